//! The two loops: one sends and waits, the other sends back.

use std::sync::atomic::{AtomicBool, Ordering};

use hdrhistogram::Histogram;
use protocol::line::{Line, Stamp};
use protocol::record::{InstrumentId, Kind, Record};
use protocol::run::{LanePath, LossCause, Position, Run, RunSink};
use protocol::time::Nanos;
use publisher::turns::off_core_ns;
use transport::clock::{Clock, IdleStrategy};
use transport::{LaneRx, LaneTx, RingWriter};

use super::PingError;
use super::spec::Echoed;

/// How long an answer is waited for: longer than any stall of a machine that is to be measured on.
const PATIENCE_NS: u64 = 1_000_000_000;
/// So many unanswered in a row are the end of it.
const LOST_IN_A_ROW: u64 = 3;
/// Lines taken in one turn.
const TURN_LINES: usize = 256;
/// A round trip's time is told apart up to here, ns.
const HIGHEST_NS: u64 = 10_000_000_000;

/// One side's two ends, and the ring that it sends from.
pub(super) struct Station<T, R> {
    pub(super) ring: RingWriter,
    pub(super) tx: T,
    pub(super) rx: R,
}

/// How many, how large, and how to wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rally {
    pub(super) warmup: u64,
    pub(super) count: u64,
    pub(super) lines: u64,
    pub(super) idle: IdleStrategy,
}

/// What the pinging side measured.
#[derive(Debug)]
pub(super) struct Pinged {
    pub(super) round_trips: Histogram<u64>,
    /// Pings that had no answer in time, those of the warm-up included.
    pub(super) lost: u64,
    pub(super) took_ns: u64,
    pub(super) off_core_ns: u64,
    /// It was asked to stop before it was through.
    pub(super) stopped: bool,
}

/// What has come back of the ping that is waited for.
struct Answer {
    /// Its number, from 1.
    number: u64,
    /// Lines of it, in order.
    lines: u64,
    /// A line that is no answer to any ping.
    garbled: Option<Record>,
}

impl RunSink for Answer {
    #[inline]
    fn on_run(&mut self, run: Run<'_>) {
        for line in run.lines {
            let (number, place) = (line.record.order_id.get(), line.record.size.get());
            if number == self.number && place == self.lines {
                self.lines += 1;
            } else if number > self.number || line.record.kind != Kind::ADD {
                // An older number is the late answer to a ping that was given up; another place of this one is what a lane
                // that loses packets leaves, and is waited for in vain.
                self.garbled = Some(line.record);
            }
        }
    }

    fn on_position(&mut self, _: Position) {}

    fn on_loss(&mut self, _: LanePath, _: Stamp, _: u64, _: LossCause) {}
}

impl<T: LaneTx, R: LaneRx> Station<T, R> {
    /// Sends one ping after the other, each when the one before has been answered.
    pub(super) fn ping(&mut self, rally: Rally, clock: Clock, stop: &AtomicBool) -> Result<Pinged, PingError> {
        let mut pinged = Pinged {
            round_trips: Histogram::new_with_bounds(1, HIGHEST_NS, 3).expect("bounds are legal"),
            lost: 0,
            took_ns: 0,
            off_core_ns: 0,
            stopped: false,
        };
        let mut lost_in_a_row = 0;
        let mut answer = Answer { number: 0, lines: 0, garbled: None };
        let (mut began, mut off_core) = (clock.now(), off_core_ns());
        for number in 1..=rally.warmup + rally.count {
            // Relaxed: the flag carries nothing but itself.
            if stop.load(Ordering::Relaxed) {
                pinged.stopped = true;
                break;
            }
            if number == rally.warmup + 1 {
                (began, off_core) = (clock.now(), off_core_ns());
            }
            (answer.number, answer.lines) = (number, 0);
            let sent = clock.now();
            self.send(number, rally.lines, sent);
            let back = loop {
                let now = clock.now();
                let work = self.rx.poll(now, TURN_LINES, &mut answer);
                if answer.lines == rally.lines {
                    // Read again: a poll takes time, and the answer counts from when its caller has it.
                    break Some(clock.now());
                }
                if now.since(sent) > PATIENCE_NS as i64 {
                    break None;
                }
                rally.idle.idle(work);
            };
            if let Some(record) = answer.garbled.take() {
                return Err(PingError::Garbled { number, what: format!("{record:?}") });
            }
            match back {
                Some(back) => {
                    lost_in_a_row = 0;
                    if number > rally.warmup {
                        pinged.round_trips.saturating_record(u64::try_from(back.since(sent)).unwrap_or(0));
                    }
                }
                None => {
                    pinged.lost += 1;
                    lost_in_a_row += 1;
                    if lost_in_a_row == LOST_IN_A_ROW {
                        let first = number + 1 - LOST_IN_A_ROW;
                        return Err(PingError::NoAnswer { lost: LOST_IN_A_ROW, first, patience_ns: PATIENCE_NS });
                    }
                }
            }
        }
        pinged.took_ns = u64::try_from(clock.now().since(began)).unwrap_or(0);
        pinged.off_core_ns = off_core_since(off_core);
        Ok(pinged)
    }

    #[inline]
    fn send(&mut self, number: u64, lines: u64, now: Nanos) {
        for place in 0..lines {
            let mut record = Record::new(Kind::ADD, InstrumentId(1));
            record.ts_event.set(now.0);
            record.ts_capture.set(now.low());
            record.ts_publish.set(now.low());
            record.order_id.set(number);
            record.size.set(place);
            let line = Line::seal(record, self.ring.next());
            self.ring.put(&line);
        }
        self.ring.flush();
        self.tx.flush(&self.ring, now);
    }

    /// Sends back whatever comes, until `stop` is set.
    pub(super) fn echo(&mut self, idle: IdleStrategy, clock: Clock, stop: &AtomicBool) -> Echoed {
        let mut heard = Heard { records: Vec::with_capacity(2 * TURN_LINES), lost: 0 };
        let mut echoed = Echoed::default();
        let (began, off_core) = (clock.now(), off_core_ns());
        // Relaxed: the flag carries nothing but itself.
        while !stop.load(Ordering::Relaxed) {
            let now = clock.now();
            let work = self.rx.poll(now, TURN_LINES, &mut heard);
            if !heard.records.is_empty() {
                for record in &mut heard.records {
                    record.ts_publish.set(now.low());
                    let line = Line::seal(*record, self.ring.next());
                    self.ring.put(&line);
                }
                self.ring.flush();
                self.tx.flush(&self.ring, now);
                echoed.lines += heard.records.len() as u64;
                heard.records.clear();
            }
            idle.idle(work);
        }
        let took_ns = u64::try_from(clock.now().since(began)).unwrap_or(0);
        Echoed { lost: heard.lost, took_ns, off_core_ns: off_core_since(off_core), ..echoed }
    }
}

/// What the echo has taken in this turn.
struct Heard {
    records: Vec<Record>,
    lost: u64,
}

impl RunSink for Heard {
    #[inline]
    fn on_run(&mut self, run: Run<'_>) {
        self.records.extend(run.lines.iter().map(|line| line.record));
    }

    fn on_position(&mut self, _: Position) {}

    fn on_loss(&mut self, _: LanePath, _: Stamp, count: u64, _: LossCause) {
        self.lost += count;
    }
}

fn off_core_since(before: Option<u64>) -> u64 {
    before.zip(off_core_ns()).map_or(0, |(before, now)| now.saturating_sub(before))
}
