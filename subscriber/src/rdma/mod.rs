//! A channel by RDMA: datagrams to a group, writes into a ring of one's own, or both.
//!
//! The publisher's control channel says how the channel is reached, and is where the ring is offered. A thread of this
//! subscriber, the tender, holds that connection, keeps both lanes, and asks again when something broke; what it does is
//! told as [`RdmaNews`]. The thread that polls makes no system call for it.
//!
//! The tender runs on the cores that the thread which made it may use: make the subscriber before pinning that thread.

mod tender;

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;

use protocol::line::Stamp;
use protocol::run::RunSink;
use protocol::time::Nanos;
use transport::LaneRx;
use transport::rdma::{RcRx, RdmaError, UdRx};

use crate::control::ControlError;

pub(crate) use tender::open;

/// What is wanted, and where to ask for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RdmaOptions {
    /// The publisher's control channel.
    pub control: SocketAddr,
    /// A token that it knows.
    pub token: String,
    /// What this subscriber calls itself, for the publisher's messages.
    pub name: String,
    /// The device; `None`: whichever has the address.
    pub device: Option<String>,
    /// The IPv4 address of the port to receive on.
    pub address: Ipv4Addr,
    /// Receive datagrams, where publisher and fabric have them.
    pub ud: bool,
    /// Be written to.
    pub rc: bool,
    /// Lines of the ring that is written; a power of two.
    pub lines: usize,
    /// Over both lanes: how long what the datagrams lost may take to come by writes, ns. The card sends again what it
    /// writes, in milliseconds, or the connection ends; waiting costs less than the books.
    pub patience_ns: u64,
    /// Buffers for datagrams: peak rate times the worst stall of this subscriber.
    pub receive_depth: usize,
}

impl RdmaOptions {
    /// Both lanes, a ring of 65,536 lines (4 MiB), a patience of 250 ms, 2,048 buffers (8.5 MB).
    pub fn new(control: SocketAddr, token: &str, address: Ipv4Addr) -> RdmaOptions {
        RdmaOptions {
            control,
            token: token.to_owned(),
            name: "subscriber".to_owned(),
            device: None,
            address,
            ud: true,
            rc: true,
            lines: 1 << 16,
            patience_ns: 250_000_000,
            receive_depth: 2048,
        }
    }
}

/// Why a channel cannot be had by RDMA.
#[derive(Debug, thiserror::Error)]
pub enum RdmaConnectError {
    /// The publisher could not be asked.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The device, its port or its memory.
    #[error(transparent)]
    Device(#[from] RdmaError),
    /// There is no channel of that name.
    #[error("the publisher at {address} has no channel {name:?}; it has: {known}")]
    NoChannel {
        /// Where.
        address: SocketAddr,
        /// The name asked for.
        name: String,
        /// The channels there are.
        known: String,
    },
    /// The channel is not sent in a way that was asked for.
    #[error("channel {name:?} cannot be had as asked: {why}")]
    NotSent {
        /// The channel.
        name: String,
        /// Which way is missing, and what to do.
        why: String,
    },
    /// The publisher has not connected to the ring.
    #[error("the publisher has not connected to the ring within {} s: {last}", .waited_ns / 1_000_000_000)]
    NotConnected {
        /// How long it had, ns.
        waited_ns: u64,
        /// What was heard last.
        last: String,
    },
    /// No thread could be had.
    #[error("no thread for the RDMA connection: {0}")]
    Thread(std::io::Error),
}

/// What happened to the lanes, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RdmaNews {
    /// The fabric or the publisher has no datagrams: this subscriber runs on writes alone.
    WritesAlone {
        /// Why.
        why: String,
    },
    /// The publisher writes into this subscriber's ring, from this line on.
    Connected {
        /// The first line.
        first: Stamp,
    },
    /// It writes no more; another ring is offered.
    Lost {
        /// Why.
        why: String,
    },
    /// Somebody connected who was not the publisher expected, and was refused.
    Refused {
        /// What was wrong.
        why: String,
    },
    /// The publisher cannot be asked now; it is tried again.
    Away {
        /// Why.
        why: String,
    },
    /// Datagrams do not come: the port is down, or the queue pair failed.
    DatagramsOut {
        /// Why.
        why: String,
    },
    /// Datagrams can come again.
    DatagramsBack,
    /// The device said something else.
    Device {
        /// What.
        what: String,
    },
}

impl fmt::Display for RdmaNews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RdmaNews::WritesAlone { why } => write!(f, "no datagrams ({why}): running on writes into the ring alone"),
            RdmaNews::Connected { first } => write!(f, "the publisher writes into the ring, from {first} on"),
            RdmaNews::Lost { why } => write!(f, "the publisher writes no more: {why}; another ring is offered"),
            RdmaNews::Refused { why } => write!(f, "a connection was refused: {why}"),
            RdmaNews::Away { why } => write!(f, "the publisher cannot be asked: {why}; trying again"),
            RdmaNews::DatagramsOut { why } => write!(f, "no datagrams: {why}"),
            RdmaNews::DatagramsBack => f.write_str("datagrams can come again"),
            RdmaNews::Device { what } => write!(f, "the device says: {what}"),
        }
    }
}

/// The receiving lanes of a channel by RDMA. The tender ends when this is dropped.
pub struct RdmaRx {
    ud: Option<UdRx>,
    rc: Option<RcRx>,
    news: Receiver<RdmaNews>,
    /// For its end: it goes with this value.
    _tender: Tender,
}

impl RdmaRx {
    /// What happened, oldest first. Costs a look at an empty queue.
    pub fn next_news(&self) -> Option<RdmaNews> {
        self.news.try_recv().ok()
    }

    /// The datagram lane, if there is one.
    pub fn ud(&self) -> Option<&UdRx> {
        self.ud.as_ref()
    }

    /// The lane of writes, if there is one.
    pub fn rc(&self) -> Option<&RcRx> {
        self.rc.as_ref()
    }
}

impl LaneRx for RdmaRx {
    #[inline]
    fn poll<S: RunSink>(&mut self, now: Nanos, limit: usize, sink: &mut S) -> usize {
        self.ud.poll(now, limit, sink) + self.rc.poll(now, limit, sink)
    }

    #[inline]
    fn known_head(&self) -> Option<Stamp> {
        self.rc.known_head()
    }
}

/// The thread that tends the lanes.
struct Tender {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Tender {
    fn drop(&mut self) {
        // Relaxed: the flag carries nothing but itself.
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // If it panicked, its message stands on standard error.
            let _ = thread.join();
        }
    }
}
