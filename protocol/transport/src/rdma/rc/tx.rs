//! The hot half of the publisher's side.

use std::fmt;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use protocol::line::{LINE_LEN, Stamp};
use protocol::time::Nanos;

use super::peer::{Peer, PeerCounters, Turn};
use super::peers::Peers;
use super::tx_keeper::{RcTxKeeper, WrittenFrom};
use crate::lane::LaneTx;
use crate::memory::{Mapping, PAGE_LEN, RingMemory};
use crate::rdma::completion::CompletionQueue;
use crate::rdma::domain::Domain;
use crate::rdma::error::RdmaError;
use crate::rdma::local::LocalPort;
use crate::rdma::queue_pair::{QueuePair, RcTimers, SendList};
use crate::rdma::region::{Region, Rights};
use crate::ring::RingWriter;

/// The least send queue: two times what goes without a signal.
const LEAST_DEPTH: usize = 128;
/// The most subscribers: their numbers must fit work requests, and none may be used again soon.
pub(super) const MOST_PEERS: usize = 4096;

/// Where an RC lane's writes come from, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RcOptions {
    /// The device; `None`: whichever has the address.
    pub device: Option<String>,
    /// The IPv4 address of the port to write from.
    pub address: Ipv4Addr,
    /// The most subscribers at one time, those that are connecting included.
    pub max_peers: usize,
    /// Work requests in each subscriber's send queue; at least 128.
    pub send_depth: usize,
    /// How long a write that asked for a completion may go without one before its subscriber is dropped. The card's own
    /// retries end sooner, unless they do not end at all.
    pub deadline_ns: u64,
    /// How often the latest line of each subscriber's ring is written, under traffic and without; what
    /// [`heartbeat`](LaneTx::heartbeat) asks for in between is left out, but for the end of the session. `None`: whenever
    /// that asks for it, and at no other time.
    pub heartbeat_interval_ns: Option<u64>,
    /// How long connecting may take. librdmacm's own limits are many seconds: a request that is lost on the way is sent again
    /// after four, so on a bad wire it is better to give up and have another offer.
    pub connect_limit_ns: u64,
    /// When an unanswered packet is sent again, and how often.
    pub timers: RcTimers,
}

impl RcOptions {
    /// Up to 16 subscribers with queues of 256, a deadline of 100 ms, a heartbeat each 10 ms, a second to connect.
    pub fn new(address: Ipv4Addr) -> RcOptions {
        RcOptions {
            device: None,
            address,
            max_peers: 16,
            send_depth: 256,
            deadline_ns: 100_000_000,
            heartbeat_interval_ns: Some(10_000_000),
            connect_limit_ns: 1_000_000_000,
            timers: RcTimers::default(),
        }
    }
}

/// One connection of an RC lane to a subscriber, from [`connect`](RcTxKeeper::connect) on. Never given twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RcTicket(pub(super) u64);

impl RcTicket {
    /// What its work requests carry: so many tickets later the completions of this one are long gone.
    #[inline(always)]
    pub(super) fn tag(self) -> u16 {
        self.0 as u16
    }
}

impl fmt::Display for RcTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connection {}", self.0)
    }
}

/// What both halves and every subscriber share. It outlives every queue pair that sends from it.
pub(super) struct Sources {
    pub(super) ring_region: Region,
    pub(super) beat_region: Region,
    /// One line for each subscriber: a device that takes no line inline reads it from here.
    pub(super) beats: Arc<Mapping>,
    pub(super) completions: Arc<CompletionQueue>,
    pub(super) domain: Domain,
    /// The ring's head at the last flush.
    pub(super) head: CachePadded<AtomicU64>,
}

impl Sources {
    /// Registers the ring in `memory`, whose head is `head`, on `local`.
    pub(super) fn new(
        options: &RcOptions,
        local: &LocalPort,
        memory: &RingMemory,
        head: Stamp,
    ) -> Result<Sources, RdmaError> {
        let domain = Domain::new(&local.device)?;
        let ring_region =
            Region::new(&domain, memory.mapping(), memory.address(), memory.byte_len(), Rights::SendOnly)?;
        let len = (options.max_peers * LINE_LEN).next_multiple_of(PAGE_LEN);
        let beats = match Mapping::anonymous(len) {
            Ok((mapping, _)) => Arc::new(mapping),
            Err(source) => {
                return Err(RdmaError::System {
                    device: local.device.name().to_owned(),
                    what: "map memory for heartbeats",
                    source,
                    next: "free memory",
                });
            }
        };
        let (address, len) = beats.extent();
        let beat_region = Region::new(&domain, &beats, address, len, Rights::SendOnly)?;
        // A queue pair that fails flushes everything that it has under way, asked for or not. What one that is gone has left
        // is taken before its place is given to another (`take_mail`).
        let entries = options.send_depth * options.max_peers;
        let completions = Arc::new(CompletionQueue::new(&local.device, entries)?);
        let head = CachePadded::new(AtomicU64::new(head.0));
        Ok(Sources { ring_region, beat_region, beats, completions, domain, head })
    }
}

/// The publisher's side: a cursor per subscriber over the ring.
///
/// Flushing allocates nothing and makes no system call beyond what the device's driver does. Subscribers come from the
/// keeper, and go back to it when they fail or are let go.
pub struct RcRingTx {
    peers: Peers,
    options: RcOptions,
    write_limit: u64,
    list: SendList,
}

impl RcRingTx {
    /// A lane over `ring`, without subscribers yet, and its keeper. The ring's memory is registered for as long as either
    /// half, or a connection, lives.
    ///
    /// # Errors
    /// [`RdmaError`]: no such device or address, a port that is down, memory that may not be locked, sizes that the device
    /// does not have.
    pub fn open(options: &RcOptions, ring: &RingWriter) -> Result<(RcRingTx, RcTxKeeper), RdmaError> {
        let local = LocalPort::find(options.device.as_deref(), options.address)?;
        let limits = *local.device.limits();
        let limit = |what, value: usize, allowed| RdmaError::Limit {
            device: local.device.name().to_owned(),
            what,
            value: value as u64,
            allowed,
        };
        if !(LEAST_DEPTH..=limits.queue_depth).contains(&options.send_depth) {
            let allowed = format!("from {LEAST_DEPTH} to {}", limits.queue_depth);
            return Err(limit("the send queue", options.send_depth, allowed));
        }
        let entries = options.send_depth * options.max_peers.min(MOST_PEERS + 1);
        if entries == 0 || options.max_peers > MOST_PEERS || entries > limits.completions {
            let allowed = format!("1 to {MOST_PEERS} and, times the send queue, at most {}", limits.completions);
            return Err(limit("the number of subscribers", options.max_peers, allowed));
        }
        let sources = Arc::new(Sources::new(options, &local, ring.memory(), ring.head())?);
        let (peers, to_hot, from_hot) = Peers::new(options.max_peers, Arc::clone(&sources));
        let keeper = RcTxKeeper::new(options, local, WrittenFrom::ring(ring), sources, to_hot, from_hot)?;
        let lane = RcRingTx {
            peers,
            options: options.clone(),
            write_limit: (ring.capacity() as u64 / 16).max(1),
            list: SendList::new(),
        };
        Ok((lane, keeper))
    }

    /// Every subscriber that is written to, in the order in which they were taken in.
    pub fn peers(&self) -> impl Iterator<Item = RcTicket> + '_ {
        self.peers.list.iter().map(|peer| peer.ticket)
    }

    /// What was done for a subscriber.
    pub fn counters(&self, ticket: RcTicket) -> Option<&PeerCounters> {
        self.peer(ticket).map(|peer| &peer.counters)
    }

    /// How many lines a subscriber is behind the ring's head.
    pub fn lag(&self, ticket: RcTicket, ring: &RingWriter) -> Option<u64> {
        self.peer(ticket).map(|peer| ring.head().0 - peer.cursor.0)
    }

    /// How many writes of a subscriber are not known to have ended.
    pub fn under_way(&self, ticket: RcTicket) -> Option<u64> {
        self.peer(ticket).map(|peer| peer.under_way())
    }

    /// How many of those asked for a completion, over all subscribers.
    pub fn signalled_under_way(&self) -> usize {
        self.peers.list.iter().map(|peer| peer.signalled_under_way()).sum()
    }

    /// A subscriber's queue pair, to ask the device about it.
    pub fn queue_pair(&self, ticket: RcTicket) -> Option<&QueuePair> {
        self.peer(ticket).map(|peer| peer.queue_pair())
    }

    /// The regions that the lane sends from, to see that they give nobody any rights.
    pub fn regions(&self) -> [&Region; 2] {
        [&self.peers.sources.ring_region, &self.peers.sources.beat_region]
    }

    fn peer(&self, ticket: RcTicket) -> Option<&Peer> {
        self.peers.list.iter().find(|peer| peer.ticket == ticket).map(|peer| &**peer)
    }

    /// Takes what has ended. A flush does so by itself.
    pub fn reap(&mut self) {
        self.peers.reap();
    }

    /// One turn over all subscribers. `wanted`: a heartbeat was asked for, and whether it is the session's last.
    fn turn(&mut self, ring: &RingWriter, now: Nanos, wanted: Option<bool>) -> usize {
        debug_assert!(
            ring.memory().address().as_ptr() as u64 == self.peers.sources.ring_region.address(),
            "lane opened on another ring than it is flushed with"
        );
        self.peers.take_mail();
        // Completions are taken after posting, except where something hangs on them.
        let deadline_ns = self.options.deadline_ns;
        if self.peers.list.iter().any(|peer| peer.is_full() || peer.verdict(ring, now, deadline_ns).is_some()) {
            self.peers.reap();
        }
        let interval = self.options.heartbeat_interval_ns;
        let Peers { list: peers, sources, .. } = &mut self.peers;
        let turn = Turn { ring, sources, write_limit: self.write_limit, heartbeat_interval_ns: interval, now };
        let mut written = 0;
        for peer in peers {
            if peer.failure.is_some() {
                continue;
            }
            if let Some(failure) = peer.verdict(ring, now, deadline_ns) {
                peer.fail(failure);
                continue;
            }
            if let Some(ended) = wanted {
                peer.want_beat(ended, interval, now);
            }
            written += peer.write(&turn, &mut self.list);
            if peer.failure.is_none() {
                peer.beat(&turn, &mut self.list);
            }
        }
        self.peers.reap();
        self.peers.hand_back_failed();
        // Relaxed: where a subscriber that comes later begins; a little early or late is all the same.
        self.peers.sources.head.store(ring.head().0, Ordering::Relaxed);
        written
    }
}

impl LaneTx for RcRingTx {
    /// Writes to every subscriber whose queue has room, and the latest line of each whose heartbeat interval is over.
    fn flush(&mut self, ring: &RingWriter, now: Nanos) -> usize {
        self.turn(ring, now, None)
    }

    /// Asks for the latest line to be written: now, or where the queue is full or lines are owed, at the next flush that
    /// can.
    fn heartbeat(&mut self, ring: &RingWriter, now: Nanos, ended: bool) {
        self.turn(ring, now, Some(ended));
    }

    /// Over all subscribers, those that are gone included: lines that a full queue kept waiting for too long.
    fn lines_unsent(&self) -> u64 {
        self.peers.past_lines_skipped + self.peers.list.iter().map(|peer| peer.counters.lines_skipped).sum::<u64>()
    }
}
