//! A subscriber of a running publisher.

use protocol::arbiter::{Arbiter, ArbiterConfig, ArbiterCounts, PathCounts};
use protocol::line::Stamp;
use protocol::log::{Logged, Recorder};
use protocol::recovery::Recovering;
use protocol::run::LanePath;
use protocol::time::Nanos;
use transport::LaneRx;
use transport::clock::Clock;
use transport::log::LogSink;

use crate::engine::{Engine, EngineConfig};
use crate::handler::{Context, Handler};
use crate::recovery::{Recoverer, RecoveryStatus};

/// Lines handed up at most by one call of [`Subscriber::poll`], per lane: a strategy gets its turn back in bounded time.
pub const POLL_LIMIT: usize = 256;

/// Receives one channel over the lanes `R`, keeps its books, and calls a [`Handler`].
///
/// `R` is one transport, or a tuple of several, settled where the subscriber is made: see [`Builder`](crate::Builder).
pub struct Subscriber<R> {
    rx: R,
    arbiter: Arbiter,
    engine: Engine,
    clock: Clock,
    /// On the heap: a subscriber without it is none the larger.
    recovery: Option<Box<Recoverer>>,
    /// Likewise.
    log: Option<Box<Recorder<LogSink>>>,
}

/// What a turn does with the lanes; `delivery` takes what the arbiter decides.
#[inline]
fn turn_lanes<R: LaneRx, D: Recovering>(
    rx: &mut R,
    arbiter: &mut Arbiter,
    recovery: &mut Option<Box<Recoverer>>,
    now: Nanos,
    delivery: &mut D,
) -> usize {
    let work = rx.poll(now, POLL_LIMIT, &mut arbiter.sink(now, delivery));
    if let Some(recovery) = recovery {
        recovery.turn(now, arbiter, delivery);
    }
    arbiter.on_timeout(now, delivery);
    work
}

impl<R: LaneRx> Subscriber<R> {
    /// A subscriber over `rx`. Allocates and touches all memory now.
    pub fn new(rx: R, arbiter: ArbiterConfig, engine: EngineConfig, clock: Clock) -> Subscriber<R> {
        Subscriber { rx, arbiter: Arbiter::new(arbiter), engine: Engine::new(engine), clock, recovery: None, log: None }
    }

    /// The same, with recovery.
    pub(crate) fn recovering(
        rx: R,
        arbiter: ArbiterConfig,
        engine: Engine,
        clock: Clock,
        recoverer: Recoverer,
    ) -> Subscriber<R> {
        let recovery = Some(Box::new(recoverer));
        Subscriber { rx, arbiter: Arbiter::new(arbiter), engine, clock, recovery, log: None }
    }

    /// The same, and everything that it is given is written down: see [`transport::log::open`]. Dropping the subscriber closes
    /// the log.
    pub fn logged(mut self, recorder: Recorder<LogSink>) -> Subscriber<R> {
        self.log = Some(Box::new(recorder));
        self
    }

    /// Entries of its log for which there was no room, and which the log names; 0 without a log.
    pub fn unlogged(&self) -> u64 {
        self.log.as_ref().map_or(0, |log| log.unlogged())
    }

    /// One turn: takes in what has come, at most [`POLL_LIMIT`] lines per lane, and calls `handler` for each of them.
    /// Reads the clock once. Returns the number of lines; after zero the caller's idle strategy decides what to do.
    #[inline]
    pub fn poll<H: Handler>(&mut self, handler: &mut H) -> usize {
        let now = self.clock.now();
        self.poll_at(now, handler)
    }

    /// [`Subscriber::poll`] at a time that the caller has read.
    #[inline]
    pub fn poll_at<H: Handler>(&mut self, now: Nanos, handler: &mut H) -> usize {
        let mut turn = self.engine.turn(now, handler);
        let (rx, arbiter, recovery) = (&mut self.rx, &mut self.arbiter, &mut self.recovery);
        let work = match &mut self.log {
            None => turn_lanes(rx, arbiter, recovery, now, &mut turn),
            Some(log) => turn_lanes(rx, arbiter, recovery, now, &mut Logged::new(&mut turn, log)),
        };
        let lag = self.lag();
        self.engine.set_lag(lag);
        if let Some(behind) = self.recovery.as_mut().and_then(|recovery| recovery.take_behind()) {
            handler.on_behind(&self.engine.context(now), &behind);
        }
        if work == 0 {
            handler.on_idle(&self.engine.context(now));
        }
        work
    }

    /// Whether the publisher said that nothing follows, and everything before was delivered or named as lost.
    pub fn has_ended(&self) -> bool {
        self.engine.has_ended()
    }

    /// Lines known to exist that have neither been delivered nor named as lost.
    pub fn lag(&self) -> u64 {
        let Some(next) = self.arbiter.next() else { return 0 };
        // A head of another epoch says nothing of this one's lines.
        let head = self.rx.known_head().filter(|head| head.epoch() == next.epoch());
        self.arbiter.lag().max(head.map_or(0, |head| head.0.saturating_sub(next.0)))
    }

    /// The stamp that comes next, `None` before anything came.
    pub fn next(&self) -> Option<Stamp> {
        self.arbiter.next()
    }

    /// What the arbiter counted.
    pub fn counts(&self) -> ArbiterCounts {
        self.arbiter.counts()
    }

    /// The paths that the channel comes by, as far as they were heard of, and what each did: which of them won, how often.
    pub fn paths(&self) -> impl Iterator<Item = (LanePath, PathCounts)> + '_ {
        self.arbiter.paths()
    }

    /// How many lines a path is behind the newest line known; `None` if it was never heard of.
    pub fn path_lag(&self, path: LanePath) -> Option<u64> {
        self.arbiter.path_lag(path)
    }

    /// What one path did.
    pub fn path_counts(&self, path: LanePath) -> PathCounts {
        self.arbiter.path_counts(path)
    }

    /// How recovery stands; `None` if this subscriber does without.
    pub fn recovery(&self) -> Option<RecoveryStatus> {
        self.recovery.as_ref().map(|recovery| recovery.status())
    }

    /// The books' side: counts, digests, whether the stream has ended.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// What a handler would see now.
    pub fn context(&self) -> Context<'_> {
        self.engine.context(self.clock.now())
    }

    /// The receiving lanes, for their own counters.
    pub fn rx(&self) -> &R {
        &self.rx
    }

    /// The clock that this subscriber reads.
    pub fn clock(&self) -> Clock {
        self.clock
    }
}
