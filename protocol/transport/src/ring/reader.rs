//! The reading half, as a lane.

use protocol::line::{Line, Stamp};
use protocol::run::{LanePath, LossCause, Position, Run, RunSink};
use protocol::time::Nanos;

use crate::lane::LaneRx;
use crate::memory::RingMemory;
use crate::ring::core::{Beat, ReaderCore, ReaderCounts, RingShape, RingSink, StartAt, Words};

/// Reads a ring and hands up its lines as runs.
///
/// What a sink is told, in the order of the stream: every line once, or a loss that names it; and each heartbeat, once
/// all lines before it have been handed up or named. A position without a heartbeat is not told, because the end of each
/// run says it; [`RingReader::head`] says how far the writer is known to be.
///
/// Polling allocates nothing, takes no lock, and makes no system call.
pub struct RingReader<M = RingMemory> {
    core: ReaderCore<M, Line, 8>,
    path: LanePath,
}

impl<M: Words<8>> RingReader<M> {
    /// A reader of the ring in `memory`, beginning at `start` when it is first polled. `hedge_ns`: how long a line that
    /// was written may fail to verify before it is named as lost (never, in shared memory; a matter of the network where
    /// a card writes).
    pub fn new(memory: M, shape: RingShape, path: LanePath, start: StartAt, hedge_ns: u64) -> RingReader<M> {
        RingReader { core: ReaderCore::new(memory, shape, start, hedge_ns), path }
    }

    /// The same reader, looking at its place in every poll: for a ring that a card writes, whose latest line changes once
    /// per heartbeat interval only.
    pub fn watching_its_place(mut self) -> RingReader<M> {
        self.core.watch_place();
        self
    }

    /// Which path this is.
    pub fn path(&self) -> LanePath {
        self.path
    }

    /// The ring's epoch, size and first line.
    pub fn shape(&self) -> &RingShape {
        self.core.shape()
    }

    /// The stamp of the next line to hand up; the ring's first until the first poll has settled where to begin.
    pub fn cursor(&self) -> Stamp {
        self.core.cursor()
    }

    /// The stamp after the newest line that the writer is known to have written: `head - cursor` lines are still to be
    /// read.
    pub fn head(&self) -> Stamp {
        self.core.head()
    }

    /// Whether the end of the session has been handed up.
    pub fn ended(&self) -> bool {
        self.core.ended()
    }

    /// `now` of the poll that last found the latest line changed: the writer lived then. `None` until it changes for the
    /// first time under this reader.
    pub fn last_life(&self) -> Option<Nanos> {
        self.core.last_life()
    }

    /// What was counted since this reader attached.
    pub fn counts(&self) -> &ReaderCounts {
        self.core.counts()
    }

    /// Makes the next poll look at everything, without the short cuts of spinning.
    pub fn look_closely(&mut self) {
        self.core.look_closely();
    }
}

impl<M: Words<8>> LaneRx for RingReader<M> {
    #[inline]
    fn poll<S: RunSink>(&mut self, now: Nanos, limit: usize, sink: &mut S) -> usize {
        self.core.poll(now, limit, &mut PathSink { path: self.path, sink })
    }

    #[inline]
    fn known_head(&self) -> Option<Stamp> {
        Some(self.head())
    }
}

/// Puts the path's name on what the algorithm hands up.
struct PathSink<'a, S> {
    path: LanePath,
    sink: &'a mut S,
}

impl<S: RunSink> RingSink<Line> for PathSink<'_, S> {
    #[inline(always)]
    fn on_lines(&mut self, first: Stamp, lines: &[Line], publish_time: Option<Nanos>) {
        self.sink.on_run(Run { path: self.path, first, lines, publish_time });
    }

    fn on_beat(&mut self, next: Stamp, beat: Beat) {
        let publish_time = Some(beat.clock);
        self.sink.on_position(Position { path: self.path, next, publish_time, ended: beat.ended });
    }

    fn on_loss(&mut self, first: Stamp, count: u64, cause: LossCause) {
        self.sink.on_loss(self.path, first, count, cause);
    }
}
