//! The measuring strategy of an SLA run: writes down every line that reaches it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use protocol::arbiter::Gap;
use protocol::line::Stamp;
use protocol::record::{Kind, Record};
use protocol::time::Nanos;
use publisher::pace::Schedule;
use subscriber::{Context, EventEnd, Handler, Update};

use super::file::Hindrance;
use super::log::{NO_TIME, Sample, SeenStep, is_stepped};
use super::probe::Verified;

/// Latencies that whoever looks on from outside sees.
const SHOWN: usize = 4_096;
/// One sample in so many is shown.
const SHOW_EVERY: u64 = 16;

/// A look at a run from another thread: what was measured last, without a lock or a copy.
pub struct Glimpse {
    latencies: Vec<AtomicU32>,
    lines: AtomicU64,
    lost: AtomicU64,
}

impl Default for Glimpse {
    fn default() -> Glimpse {
        Glimpse {
            latencies: (0..SHOWN).map(|_| AtomicU32::new(NO_TIME)).collect(),
            lines: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }
}

impl Glimpse {
    #[inline]
    fn show(&self, lines: u64, latency: u32) {
        // Relaxed, all of it: each number stands for itself, and one that is a moment old does no harm.
        self.lines.store(lines, Ordering::Relaxed);
        self.latencies[(lines / SHOW_EVERY) as usize % SHOWN].store(latency, Ordering::Relaxed);
    }

    /// Lines measured and lost so far, and the latencies shown since the last call, sorted, ns.
    pub fn take(&self) -> (u64, u64, Vec<u32>) {
        let mut latencies: Vec<u32> =
            self.latencies.iter().map(|latency| latency.swap(NO_TIME, Ordering::Relaxed)).collect();
        latencies.retain(|latency| *latency != NO_TIME);
        latencies.sort_unstable();
        (self.lines.load(Ordering::Relaxed), self.lost.load(Ordering::Relaxed), latencies)
    }
}

/// Writes down each line and the end of each event, by the clock `N`.
///
/// It reads the clock once for each line and once for the end of each event, on purpose: a latency is taken when the
/// strategy sees the line, not when the turn began. Continuations and book digests are not measured: they are no news of
/// the venue's.
pub struct Recorder<N> {
    now: N,
    schedule: Schedule,
    samples: Vec<Sample>,
    steps: Vec<SeenStep>,
    verified: Verified,
    glimpse: Arc<Glimpse>,
    hindrance: Hindrance,
    next_stall: Option<Nanos>,
    lines: u64,
    unkept: u64,
    negative: u64,
    /// The line last seen; what it is in `samples` and `steps`.
    last: Option<(Stamp, Nanos, bool)>,
    /// The message last stepped, so that its other lines are not.
    stepped: u32,
}

impl<N: FnMut() -> Nanos> Recorder<N> {
    /// A recorder with room for `room` lines, which it touches now.
    pub fn new(now: N, schedule: Schedule, room: usize, verified: Verified, hindrance: Hindrance) -> Recorder<N> {
        let blank =
            Sample { intended_ns: 1, sequence: 0, visible_ns: 0, complete_ns: 0, from_actual_ns: 0, instrument: 0 };
        let mut samples = vec![blank; room];
        samples.clear();
        let mut steps = vec![SeenStep { ordinal: 1, ..SeenStep::default() }; room / 32 + 64];
        steps.clear();
        Recorder {
            now,
            schedule,
            samples,
            steps,
            verified,
            glimpse: Arc::default(),
            hindrance,
            next_stall: None,
            lines: 0,
            unkept: 0,
            negative: 0,
            last: None,
            stepped: 0,
        }
    }

    /// A look at it from other threads.
    pub fn glimpse(&self) -> Arc<Glimpse> {
        Arc::clone(&self.glimpse)
    }

    /// What was measured, in the order of the stream.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// The steps of one message in 64.
    pub fn steps(&self) -> &[SeenStep] {
        &self.steps
    }

    /// Lines for which there was no room.
    pub fn unkept(&self) -> u64 {
        self.unkept
    }

    /// Lines that seem to have come before they were due or sent.
    pub fn negative(&self) -> u64 {
        self.negative
    }

    #[inline]
    fn note(&mut self, record: &Record, stamp: Stamp, ts_publish: Option<Nanos>) {
        self.last = None;
        if matches!(record.kind, Kind::BOOK_DIGEST | Kind::CLEAR) {
            return;
        }
        let now = (self.now)();
        let Some(intended) = self.schedule.intended_of(record) else { return };
        let visible = now.since(intended);
        let from_actual = ts_publish.map(|sent| now.since(sent));
        if visible < 0 || from_actual.is_some_and(|latency| latency < 0) {
            self.negative += 1;
            return;
        }
        if self.samples.len() == self.samples.capacity() {
            self.unkept += 1;
            return;
        }
        let visible_ns = clip(visible);
        self.samples.push(Sample {
            intended_ns: intended.0.saturating_sub(self.schedule.start_ns),
            sequence: stamp.sequence().0,
            visible_ns,
            complete_ns: NO_TIME,
            from_actual_ns: from_actual.map_or(NO_TIME, clip),
            instrument: record.instrument.get(),
        });
        self.lines += 1;
        if self.lines.is_multiple_of(SHOW_EVERY) {
            self.glimpse.show(self.lines, visible_ns);
        }
        let ordinal = record.venue_seq.get();
        let stepped = is_stepped(ordinal) && ordinal != self.stepped && self.steps.len() < self.steps.capacity();
        if stepped {
            self.stepped = ordinal;
            let verified = self.verified.of(stamp).unwrap_or(Nanos::ZERO).0;
            let step =
                SeenStep { ordinal: ordinal.into(), intended: intended.0, verified, callback: now.0, complete: 0 };
            self.steps.push(step);
        }
        self.last = Some((stamp, intended, stepped));
    }

    /// Slowness of the strategy's own, if it was asked for.
    #[cold]
    #[inline(never)]
    fn hinder(&mut self) {
        let Hindrance { work_ns, stall_ns, stall_every_ns } = self.hindrance;
        let began = (self.now)();
        let mut until = began.plus(work_ns);
        if stall_every_ns > 0 {
            let due = *self.next_stall.get_or_insert(began.plus(stall_every_ns));
            if began >= due {
                until = until.plus(stall_ns);
                self.next_stall = Some(began.plus(stall_ns + stall_every_ns));
            }
        }
        while (self.now)() < until {
            std::hint::spin_loop();
        }
    }
}

#[inline]
fn clip(latency: i64) -> u32 {
    u32::try_from(latency).unwrap_or(NO_TIME - 1).min(NO_TIME - 1)
}

impl<N: FnMut() -> Nanos> Handler for Recorder<N> {
    #[inline]
    fn on_record(&mut self, _: &Context<'_>, update: &Update<'_>) {
        if self.hindrance != Hindrance::default() {
            self.hinder();
        }
        if update.record.kind == Kind::CONTINUATION {
            // It has no times of its own; the record it belongs to was measured. Its event may end with it.
            if let Some((stamp, intended, stepped)) = self.last {
                self.last = Some((stamp.plus(1), intended, stepped));
            }
            return;
        }
        self.note(update.record, update.stamp, update.ts_publish);
    }

    #[inline]
    fn on_event_end(&mut self, _: &Context<'_>, end: &EventEnd) {
        if let Some((stamp, intended, stepped)) = self.last
            && stamp == end.stamp
        {
            let now = (self.now)();
            if let Some(sample) = self.samples.last_mut() {
                sample.complete_ns = clip(now.since(intended).max(0));
            }
            if stepped && let Some(step) = self.steps.last_mut() {
                step.complete = now.0;
            }
        }
    }

    fn on_gap(&mut self, _: &Context<'_>, gap: &Gap) {
        // Relaxed: it stands for itself.
        self.glimpse.lost.fetch_add(gap.count, Ordering::Relaxed);
    }
}
