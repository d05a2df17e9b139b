//! The reply lane: how a subscriber asks for what it lost, and how it gets it.
//!
//! Beside the lanes that carry the stream to everybody there is one way back. [`ReplyTx`] is the recovery server's end:
//! one socket, to which every subscriber's requests come and from which the answers leave. [`ReplyRx`] is a subscriber's
//! end: a connected socket of its own, so that datagrams of anybody but the server never reach it.
//!
//! Requests and answers are packets like the stream's, checked by the same decoder. The stamp of a line in them is the connection
//! (where the stream has its epoch) and the count of lines sent on it, from 1 (where the stream has its sequence); a
//! request's is the connection and its own number. So `ReplyRx` is a [`LaneRx`] like any other, a fault injector fits around
//! it, and a ring in the subscriber's memory that a card writes ([`ReplyRings`] on the server's side) can take its place. What the lines say is the crate `protocol`'s affair.
//!
//! Nothing here waits, and nothing is sent twice: what is lost is asked for again.

mod places;
mod rx;
mod tx;

use std::io;
use std::net::SocketAddrV4;

use protocol::line::{Line, Stamp};
use protocol::recovery::Connection;
use protocol::time::Nanos;

pub use places::ReplyPlaces;
pub use rx::ReplyRx;
pub use tx::{ReplyTx, ReplyTxCounters};

use crate::fault::FaultInjector;
use crate::lane::LaneRx;

/// A subscriber's end of the way back: hands up the lines of answers as runs, and sends requests.
pub trait ReplyLane: LaneRx {
    /// Sends a request, a line that is sealed with the connection's stamp; `false` if the transport did not take it, which
    /// is as good as lost.
    fn request(&mut self, request: &Line, now: Nanos) -> bool;
}

/// The recovery server's end of the way back: takes requests, sends the lines of answers.
pub trait ReplyPort {
    /// Where a subscriber is reached.
    type Address: Copy + PartialEq;

    /// The next request that came, and who sent it; `None` when there is none now. Whoever sent it may be anybody: the line
    /// proves that it is whole, and no more.
    fn receive(&mut self) -> Option<(Self::Address, Line)>;

    /// Room for the lines that are sent next, to be filled from the front.
    fn room(&mut self) -> &mut [Line];

    /// Sends the first `count` lines of [`ReplyPort::room`]; `next` is the stamp after the last of them. False if the
    /// transport did not take them, which is as good as lost.
    fn send(&mut self, to: Self::Address, next: Stamp, count: usize, now: Nanos) -> bool;

    /// What came and was no request at a glance.
    fn refused(&self) -> u64;
}

/// The recovery server's end of the rings in subscribers' memory that answers are written into, by a card: nothing is
/// lost there, so nothing is dropped here either. `()` where there are none.
pub trait ReplyRings {
    /// Takes what has ended and whoever came and went; returns how much that was.
    fn do_work(&mut self, now: Nanos) -> usize;

    /// Lines that can be written now for a connection; 0 if none, or it has no ring (yet, or any more).
    fn room(&self, connection: Connection) -> usize;

    /// Writes lines whose first has the stamp `first`, (connection, count), to their places; returns how many were taken, which
    /// is at least as many as there was room for.
    fn write(&mut self, first: Stamp, lines: &[Line], now: Nanos) -> usize;
}

/// No rings.
impl ReplyRings for () {
    fn do_work(&mut self, _: Nanos) -> usize {
        0
    }
    fn room(&self, _: Connection) -> usize {
        0
    }
    fn write(&mut self, _: Stamp, _: &[Line], _: Nanos) -> usize {
        0
    }
}

/// Rings that there may be.
impl<W: ReplyRings> ReplyRings for Option<W> {
    fn do_work(&mut self, now: Nanos) -> usize {
        self.as_mut().map_or(0, |rings| rings.do_work(now))
    }
    fn room(&self, connection: Connection) -> usize {
        self.as_ref().map_or(0, |rings| rings.room(connection))
    }
    fn write(&mut self, first: Stamp, lines: &[Line], now: Nanos) -> usize {
        self.as_mut().map_or(0, |rings| rings.write(first, lines, now))
    }
}

/// Faults befall what comes; requests go through unharmed.
impl<R: ReplyLane> ReplyLane for FaultInjector<R> {
    fn request(&mut self, request: &Line, now: Nanos) -> bool {
        self.inner_mut().request(request, now)
    }
}

/// Why a reply lane could not be set up: what was tried, for which address, the system's cause, and what to try next.
#[derive(Debug, thiserror::Error)]
pub enum ReplyError {
    /// The server's socket.
    #[error(
        "the recovery server cannot {what} on {address} ({source}); choose another 'listen' in [recovery], or find the \
         holder with `ss -ulpn sport = :{}`", address.port()
    )]
    Listen {
        /// What was tried.
        what: &'static str,
        /// Where.
        address: SocketAddrV4,
        /// The system's cause.
        source: io::Error,
    },
    /// A subscriber's socket.
    #[error(
        "cannot {what} for the recovery server at {address} ({source}); check that there is a route to it (`ip route get`)"
    )]
    Connect {
        /// What was tried.
        what: &'static str,
        /// The server.
        address: SocketAddrV4,
        /// The system's cause.
        source: io::Error,
    },
    /// The MTU is too small for one line.
    #[error("mtu {mtu} does not hold a packet of one line: give at least {least}")]
    Mtu {
        /// As given, bytes.
        mtu: u32,
        /// The least that carries a line.
        least: u32,
    },
}
