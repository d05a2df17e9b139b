//! What a lane hands up: runs of verified lines, and what it knows of the writer's position.
//!
//! These are the words that transports and the arbiter share. They live here because the transport crate depends on this
//! one, never the reverse.

use std::fmt;

use crate::line::{Line, Stamp};
use crate::record::Lane;
use crate::time::Nanos;

/// What carried lines to this subscriber.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Carrier {
    /// The publisher's ring in shared memory.
    SharedMemory,
    /// UDP multicast.
    Udp,
    /// RDMA datagrams.
    RdmaUd,
    /// RDMA writes into the subscriber's own ring.
    RdmaRc,
    /// A queue within one thread, or a file.
    Local,
    /// The recovery server, which had them in its history.
    Recovery,
}

impl Carrier {
    /// In words, as reports say it.
    pub const fn name(self) -> &'static str {
        match self {
            Carrier::SharedMemory => "shared memory",
            Carrier::Udp => "UDP",
            Carrier::RdmaUd => "RDMA UD",
            Carrier::RdmaRc => "RDMA RC",
            Carrier::Local => "local",
            Carrier::Recovery => "recovery",
        }
    }
}

/// One way by which a channel's lines come: a publisher's lane, over one carrier. A lane that comes over two of them is
/// two paths, and either may win.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct LanePath {
    /// Whose: the A line or the B line.
    pub lane: Lane,
    /// Over what.
    pub carrier: Carrier,
}

impl LanePath {
    /// `lane`, over `carrier`.
    pub const fn new(lane: Lane, carrier: Carrier) -> LanePath {
        LanePath { lane, carrier }
    }
}

impl fmt::Display for LanePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lane {} over {}", self.lane.0, self.carrier.name())
    }
}

/// Consecutive lines of one epoch, each verified, borrowed from the transport's own buffer.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// Which path brought them.
    pub path: LanePath,
    /// The stamp of the first line; the others follow one by one.
    pub first: Stamp,
    /// The lines. Never empty.
    pub lines: &'a [Line],
    /// The publisher's clock in full, at or before the first line's own `ts_publish`, where the transport carries one.
    pub publish_time: Option<Nanos>,
}

impl Run<'_> {
    /// The stamp after the last line.
    #[inline]
    pub fn end(&self) -> Stamp {
        self.first.plus(self.lines.len() as u64)
    }
}

/// What a lane learned about the writer beside the lines themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// Which path says so.
    pub path: LanePath,
    /// Every line before this stamp has been written (in its epoch): what is missing below it is lost on this path, or
    /// still under way on another.
    pub next: Stamp,
    /// The publisher's clock in full, where the transport carries it.
    pub publish_time: Option<Nanos>,
    /// The session has ended: nothing follows.
    pub ended: bool,
}

/// Why a lane will never deliver lines that it once had before it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LossCause {
    /// The writer went round the ring and overwrote them before they were read.
    Lapped,
    /// The ring says that they were written, and they did not become whole within the hedge time.
    Unverified,
    /// They did not come: a datagram was lost on the way or dropped by a full receive queue.
    Missing,
}

/// Takes what a lane hands up. The arbiter is the one in use; tests bring their own.
pub trait RunSink {
    /// Lines, in order within the run.
    fn on_run(&mut self, run: Run<'_>);
    /// The writer's position: heartbeats, and packets without lines.
    fn on_position(&mut self, position: Position);
    /// This path will never deliver the `count` lines from `first` on.
    fn on_loss(&mut self, path: LanePath, first: Stamp, count: u64, cause: LossCause);
}
