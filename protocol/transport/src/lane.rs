//! The two traits every transport implements.

use protocol::line::Stamp;
use protocol::run::RunSink;
use protocol::time::Nanos;

use crate::ring::RingWriter;

/// The sending half of a lane: carries what the publisher's ring holds to wherever this transport leads.
///
/// The publisher's ring is the source of everything. A lane keeps a cursor over it and sends straight from its memory;
/// nothing is copied on the way to the transport. Sets of lanes are tuples, so that the running loop never asks which.
pub trait LaneTx {
    /// Sends everything from this lane's cursor to the ring's head. Never waits: what the transport does not take now is
    /// dropped (datagrams) or left for the next call (rings), and counted. Returns the number of lines handed over.
    fn flush(&mut self, ring: &RingWriter, now: Nanos) -> usize;

    /// Says that the publisher lives, and where it stands. Called at the heartbeat interval when nothing else was sent on
    /// this lane meanwhile, and at the end of the session. (The ring has a heartbeat at each interval, under traffic too.)
    fn heartbeat(&mut self, ring: &RingWriter, now: Nanos, ended: bool);

    /// Lines that this lane did not send and never will: the transport did not take them, or the ring had overwritten them
    /// before. Each is part of a gap for whoever has this lane alone.
    fn lines_unsent(&self) -> u64 {
        0
    }
}

/// The receiving half of a lane.
pub trait LaneRx {
    /// Hands up what has arrived, in runs, at most about `limit` lines; returns the number of lines handed up.
    fn poll<S: RunSink>(&mut self, now: Nanos, limit: usize, sink: &mut S) -> usize;

    /// The stamp after the newest line that this lane has seen a sign of, handed up or not; `None` where it knows of no
    /// more than it has handed up. A ring's reader that is behind knows by how much; a socket does not.
    fn known_head(&self) -> Option<Stamp> {
        None
    }
}

impl LaneTx for () {
    fn flush(&mut self, _: &RingWriter, _: Nanos) -> usize {
        0
    }
    fn heartbeat(&mut self, _: &RingWriter, _: Nanos, _: bool) {}
}

impl<A: LaneTx, B: LaneTx> LaneTx for (A, B) {
    fn flush(&mut self, ring: &RingWriter, now: Nanos) -> usize {
        self.0.flush(ring, now) + self.1.flush(ring, now)
    }
    fn heartbeat(&mut self, ring: &RingWriter, now: Nanos, ended: bool) {
        self.0.heartbeat(ring, now, ended);
        self.1.heartbeat(ring, now, ended);
    }
    fn lines_unsent(&self) -> u64 {
        self.0.lines_unsent() + self.1.lines_unsent()
    }
}

/// A lane that may be left out where it is set up.
impl<A: LaneTx> LaneTx for Option<A> {
    fn flush(&mut self, ring: &RingWriter, now: Nanos) -> usize {
        self.as_mut().map_or(0, |lane| lane.flush(ring, now))
    }
    fn heartbeat(&mut self, ring: &RingWriter, now: Nanos, ended: bool) {
        if let Some(lane) = self {
            lane.heartbeat(ring, now, ended);
        }
    }
    fn lines_unsent(&self) -> u64 {
        self.as_ref().map_or(0, LaneTx::lines_unsent)
    }
}

impl LaneRx for () {
    fn poll<S: RunSink>(&mut self, _: Nanos, _: usize, _: &mut S) -> usize {
        0
    }
}

impl<A: LaneRx, B: LaneRx> LaneRx for (A, B) {
    fn poll<S: RunSink>(&mut self, now: Nanos, limit: usize, sink: &mut S) -> usize {
        self.0.poll(now, limit, sink) + self.1.poll(now, limit, sink)
    }
    fn known_head(&self) -> Option<Stamp> {
        self.0.known_head().max(self.1.known_head())
    }
}

/// A lane that may be left out where it is set up.
impl<A: LaneRx> LaneRx for Option<A> {
    fn poll<S: RunSink>(&mut self, now: Nanos, limit: usize, sink: &mut S) -> usize {
        self.as_mut().map_or(0, |lane| lane.poll(now, limit, sink))
    }
    fn known_head(&self) -> Option<Stamp> {
        self.as_ref()?.known_head()
    }
}
