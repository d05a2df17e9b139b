//! The RC lane: the publisher's card writes lines straight into each subscriber's own ring.
//!
//! The subscriber makes a ring ([`RcRing`]) that one queue pair may write and nobody may read, and tells its address and
//! key. The publisher ([`RcRingTx`]) keeps a cursor per subscriber over its own ring, which is registered once and gives
//! nobody any rights. Each turn, if a subscriber's queue has room, everything from its cursor to the head goes out, as one
//! write, or two at the wrap; so a backlog grows into longer writes and not into more of them. A full queue is skipped and
//! never waited for.
//!
//! The mask of each line is the only proof that it arrived whole, and all that is needed. The remote latest line is
//! written once per heartbeat interval and at no other time; the reader looks at its place first.

use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use protocol::line::{LINE_LEN, Line, Stamp};
use protocol::record::{InstrumentId, Kind, Lane, Record};
use protocol::run::{Carrier, LanePath, RunSink};
use protocol::time::Nanos;

use super::completion::{Completion, CompletionQueue, Reaction, Status};
use super::device::LocalPort;
use super::domain::Domain;
use super::error::RdmaError;
use super::queue_pair::{Depths, Operation, Piece, QueuePair, RcEndpoint, RemoteRights, SendList, Service};
use super::region::{Region, Rights};
use crate::lane::{LaneRx, LaneTx};
use crate::memory::{Mapping, PAGE_LEN, RingMemory};
use crate::ring::{RingReader, RingShape, RingWriter, StartAt};

/// Bytes before place 0.
const LATEST_LEN: u64 = 128;
/// One send in so many asks for a completion.
const SENDS_PER_SIGNAL: u64 = 64;
/// The least send queue: two times what goes without a signal.
const LEAST_DEPTH: usize = 128;
/// Completions taken at once.
const BATCH: usize = 32;

/// What a subscriber tells a publisher: where it is, and what may be written there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RcOffer {
    /// The queue pair.
    pub endpoint: RcEndpoint,
    /// Where the ring begins in the subscriber's memory.
    pub address: u64,
    /// The key that lets it be written.
    pub key: u32,
    /// Places of the ring.
    pub lines: usize,
}

/// The subscriber's side: a ring that one publisher's queue pair writes.
///
/// A fresh connection takes a fresh ring; nothing here is ever connected twice.
pub struct RcRing {
    // Before the region that its peer writes through it, so that it is destroyed first.
    queue_pair: QueuePair,
    region: Region,
    memory: RingMemory,
    local: LocalPort,
    lines: usize,
    first_packet: u32,
}

impl RcRing {
    /// A zeroed ring of `lines` places on the port that has `address`, in a domain of its own, and a queue pair that waits
    /// to be connected.
    ///
    /// # Errors
    /// [`RdmaError`]: no such device or address, a port that is down, memory that may not be locked, a size that is no
    /// power of two of at least 2.
    pub fn open(device: Option<&str>, address: Ipv4Addr, lines: usize) -> Result<RcRing, RdmaError> {
        let local = LocalPort::find(device, address)?;
        if !lines.is_power_of_two() || !(2..=crate::shm::MAX_LINES).contains(&lines) {
            return Err(RdmaError::Limit {
                device: local.device.name().to_owned(),
                what: "the number of lines of a ring",
                value: lines as u64,
                allowed: format!("a power of two from 2 to {}", crate::shm::MAX_LINES),
            });
        }
        let domain = Domain::new(&local.device)?;
        let len = LATEST_LEN as usize + lines * LINE_LEN;
        let mapping = match Mapping::anonymous(len.next_multiple_of(PAGE_LEN)) {
            Ok((mapping, _)) => Arc::new(mapping),
            Err(source) => {
                return Err(RdmaError::System {
                    device: local.device.name().to_owned(),
                    what: "map memory for a ring",
                    source,
                    next: "ask for a smaller ring, or free memory",
                });
            }
        };
        let memory = RingMemory::new(mapping, 0, lines);
        let region = Region::new(&domain, memory.mapping(), memory.address(), len, Rights::RemoteWrite)?;
        let completions = Arc::new(CompletionQueue::new(&local.device, 1)?);
        let depths = Depths { send: 1, receive: 1 };
        let queue_pair = QueuePair::new(&domain, Service::Rc, &completions, &completions, depths)?;
        queue_pair.init_rc(&local, RemoteRights::WRITE)?;
        Ok(RcRing { queue_pair, region, memory, local, lines, first_packet: random_packet() })
    }

    /// What the publisher must be told.
    pub fn offer(&self) -> RcOffer {
        RcOffer {
            endpoint: endpoint(&self.local, &self.queue_pair, self.first_packet),
            address: self.region.address(),
            key: self.region.remote_key(),
            lines: self.lines,
        }
    }

    /// Lets the publisher at `peer` write. To be called before the publisher begins ([`RcRingTx::connect`]).
    ///
    /// # Errors
    /// [`RdmaError::System`].
    pub fn connect(&self, peer: &RcEndpoint) -> Result<(), RdmaError> {
        self.queue_pair.connect_rc(&self.local, self.first_packet, peer)
    }

    /// A reader that begins with `first`, the stamp that the publisher said when it connected. It looks at its place in
    /// every poll. `hedge_ns`: how long a line that was written may fail to verify before it is named as lost.
    ///
    /// # Panics
    /// If `first` is of no epoch or before sequence 1.
    pub fn reader(&self, first: Stamp, lane: Lane, hedge_ns: u64) -> RingReader {
        let shape = RingShape::new(first.epoch(), first.sequence(), self.lines);
        let shape = shape.unwrap_or_else(|| panic!("no ring of {} lines begins with {first}", self.lines));
        let memory = self.memory.clone();
        RingReader::new(memory, shape, LanePath::new(lane, Carrier::RdmaRc), StartAt::At(first.sequence()), hedge_ns)
            .watching_its_place()
    }

    /// The ring with its reader, as a lane: see [`reader`](RcRing::reader).
    ///
    /// # Panics
    /// As [`reader`](RcRing::reader).
    pub fn into_rx(self, first: Stamp, lane: Lane, hedge_ns: u64) -> RcRx {
        RcRx { reader: self.reader(first, lane, hedge_ns), ring: self }
    }

    /// The ring's memory, as any reader sees it.
    pub fn memory(&self) -> &RingMemory {
        &self.memory
    }

    /// The region, to see what rights it gives.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// The queue pair, to ask the device about it.
    pub fn queue_pair(&self) -> &QueuePair {
        &self.queue_pair
    }
}

/// The receiving half of an RC lane: reads the ring that the publisher's card writes. Polling makes no call at all; it
/// looks at memory.
pub struct RcRx {
    ring: RcRing,
    reader: RingReader,
}

impl RcRx {
    /// The ring.
    pub fn ring(&self) -> &RcRing {
        &self.ring
    }

    /// The reader: where it stands, what it has counted.
    pub fn reader(&self) -> &RingReader {
        &self.reader
    }
}

impl LaneRx for RcRx {
    #[inline]
    fn poll<S: RunSink>(&mut self, now: Nanos, limit: usize, sink: &mut S) -> usize {
        self.reader.poll(now, limit, sink)
    }

    #[inline]
    fn known_head(&self) -> Option<Stamp> {
        self.reader.known_head()
    }
}

/// Where an RC lane's writes come from, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RcOptions {
    /// The device; `None`: whichever has the address.
    pub device: Option<String>,
    /// The IPv4 address of the port to write from.
    pub address: Ipv4Addr,
    /// The most subscribers at one time.
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
}

impl RcOptions {
    /// Up to 16 subscribers with queues of 256, a deadline of 100 ms, a heartbeat each 10 ms.
    pub fn new(address: Ipv4Addr) -> RcOptions {
        RcOptions {
            device: None,
            address,
            max_peers: 16,
            send_depth: 256,
            deadline_ns: 100_000_000,
            heartbeat_interval_ns: Some(10_000_000),
        }
    }
}

/// One subscriber of an RC lane. Never used for another one while the lane lives, short of 65,536 later.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct PeerId(u16);

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "peer {}", self.0)
    }
}

/// Why a subscriber was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PeerFailure {
    /// A write ended with an error.
    #[error("a write ended with {0}")]
    Completion(Status),
    /// A write did not end in time.
    #[error("a write has not ended after {waited_ns} ns")]
    Deadline {
        /// How long it has been under way.
        waited_ns: u64,
    },
    /// Its oldest write had not ended, and what that was sent from was about to be overwritten.
    #[error("a write has not ended while the publisher's ring went half round")]
    Overrun,
    /// The device did not take a write.
    #[error("the device did not take a write: error {errno}")]
    NotPosted {
        /// The system's number.
        errno: i32,
    },
}

/// What happened to a subscriber: its owner is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerEvent {
    /// Who.
    pub peer: PeerId,
    /// Why it gets nothing any more.
    pub failure: PeerFailure,
}

/// What was done for one subscriber.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PeerCounters {
    /// Writes of lines that were posted.
    pub writes: u64,
    /// Lines in them.
    pub lines: u64,
    /// Writes of the latest line.
    pub heartbeats: u64,
    /// Doorbells.
    pub doorbells: u64,
    /// Writes that went inline.
    pub inline: u64,
    /// Writes that asked for a completion.
    pub signalled: u64,
    /// Turns in which the queue was full and the subscriber was skipped.
    pub full_queue: u64,
    /// Lines never written because the ring had overwritten them before the queue had room.
    pub lines_skipped: u64,
}

/// A queue pair that waits for its subscriber's offer.
pub struct RcPending {
    queue_pair: QueuePair,
    endpoint: RcEndpoint,
}

impl RcPending {
    /// What the subscriber must be told.
    pub fn endpoint(&self) -> RcEndpoint {
        self.endpoint
    }
}

/// One write of lines under way.
#[derive(Clone, Copy)]
struct Signalled {
    /// Its number.
    id: u64,
    posted_at: Nanos,
}

struct Peer {
    id: PeerId,
    queue_pair: QueuePair,
    offer: RcOffer,
    /// The stamp of the next line to write.
    cursor: Stamp,
    /// Writes posted so far, and how many of them are known to have ended.
    posted: u64,
    done: u64,
    /// The first line of each write under way, by its number modulo the depth.
    starts: Box<[Stamp]>,
    /// Writes under way that asked for a completion, oldest first.
    signalled: VecDeque<Signalled>,
    since_signal: u64,
    lines_since_signal: u64,
    /// When the latest line was last written.
    beat_at: Option<Nanos>,
    /// A heartbeat that waits for room; whether it says that the session has ended.
    beat_wanted: Option<bool>,
    failure: Option<PeerFailure>,
    counters: PeerCounters,
}

/// The publisher's side: a cursor per subscriber over the ring.
///
/// Connecting and dropping subscribers allocates and makes system calls; flushing does neither, beyond what the device's
/// driver does.
pub struct RcRingTx {
    // Before the regions that they send from, so that they are destroyed first.
    peers: Vec<Peer>,
    ring_region: Region,
    beat_region: Region,
    completions: Arc<CompletionQueue>,
    beats: Arc<Mapping>,
    domain: Domain,
    local: LocalPort,
    options: RcOptions,
    /// A sixteenth of the ring: the longest write.
    write_limit: u64,
    next_id: u16,
    /// Lines that subscribers were never sent who are removed now.
    past_lines_skipped: u64,
    list: SendList,
    batch: [Completion; BATCH],
    events: VecDeque<PeerEvent>,
}

impl RcRingTx {
    /// A lane over `ring`, without subscribers yet. The ring's memory is registered for as long as the lane lives.
    ///
    /// # Errors
    /// [`RdmaError`]: no such device or address, a port that is down, memory that may not be locked, sizes that the device
    /// does not have.
    pub fn open(options: &RcOptions, ring: &RingWriter) -> Result<RcRingTx, RdmaError> {
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
        // A queue pair that fails flushes everything that it has under way, asked for or not.
        let entries = options.send_depth * options.max_peers;
        if entries == 0 || entries > limits.completions {
            let allowed = format!("at least 1 and, times the send queue, at most {}", limits.completions);
            return Err(limit("the number of subscribers", options.max_peers, allowed));
        }
        let domain = Domain::new(&local.device)?;
        let memory = ring.memory();
        let ring_region =
            Region::new(&domain, memory.mapping(), memory.address(), memory.byte_len(), Rights::SendOnly)?;
        // One line for each subscriber: a device that takes no line inline reads it from here.
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
        let completions = Arc::new(CompletionQueue::new(&local.device, entries)?);
        Ok(RcRingTx {
            peers: Vec::with_capacity(options.max_peers),
            ring_region,
            beat_region,
            completions,
            beats,
            domain,
            local,
            options: options.clone(),
            write_limit: (ring.capacity() as u64 / 16).max(1),
            next_id: 0,
            past_lines_skipped: 0,
            list: SendList::new(),
            batch: [Completion::empty(); BATCH],
            events: VecDeque::with_capacity(options.max_peers),
        })
    }

    /// A queue pair for one more subscriber, whose peer will have no rights here.
    ///
    /// # Errors
    /// [`RdmaError::Limit`] when there are as many subscribers as were asked for; [`RdmaError::System`].
    pub fn prepare(&self) -> Result<RcPending, RdmaError> {
        if self.peers.len() >= self.options.max_peers {
            return Err(RdmaError::Limit {
                device: self.local.device.name().to_owned(),
                what: "the number of subscribers",
                value: self.peers.len() as u64 + 1,
                allowed: format!("at most {}", self.options.max_peers),
            });
        }
        let depths = Depths { send: self.options.send_depth, receive: 1 };
        let queue_pair = QueuePair::new(&self.domain, Service::Rc, &self.completions, &self.completions, depths)?;
        queue_pair.init_rc(&self.local, RemoteRights::NONE)?;
        let endpoint = endpoint(&self.local, &queue_pair, random_packet());
        Ok(RcPending { queue_pair, endpoint })
    }

    /// Begins to write into the ring of `offer`, from the present head of `ring` on: the stamp returned is the first that
    /// the subscriber gets. Its own side must be connected already ([`RcRing::connect`]).
    ///
    /// # Errors
    /// [`RdmaError::Rights`] if the device gives the peer rights that it must not have; [`RdmaError::Limit`] for a ring
    /// that is none, or one subscriber too many; [`RdmaError::System`].
    pub fn connect(
        &mut self,
        pending: RcPending,
        offer: &RcOffer,
        ring: &RingWriter,
    ) -> Result<(PeerId, Stamp), RdmaError> {
        let device = || self.local.device.name().to_owned();
        let RcPending { queue_pair, endpoint } = pending;
        if !offer.lines.is_power_of_two() || offer.lines < 2 || self.peers.len() >= self.options.max_peers {
            return Err(RdmaError::Limit {
                device: device(),
                what: "the subscriber's ring of so many lines",
                value: offer.lines as u64,
                allowed: format!("a power of two, of at most {} subscribers", self.options.max_peers),
            });
        }
        queue_pair.connect_rc(&self.local, endpoint.first_packet, &offer.endpoint)?;
        let info = queue_pair.query()?;
        if info.rights != RemoteRights::NONE {
            let rights = info.rights.to_string();
            return Err(RdmaError::Rights { device: device(), queue_pair: queue_pair.number(), rights });
        }
        let id = self.free_id();
        let first = ring.head();
        let depth = self.options.send_depth;
        self.peers.push(Peer {
            id,
            queue_pair,
            offer: *offer,
            cursor: first,
            posted: 0,
            done: 0,
            starts: vec![first; depth].into_boxed_slice(),
            signalled: VecDeque::with_capacity(depth),
            since_signal: 0,
            lines_since_signal: 0,
            beat_at: None,
            beat_wanted: None,
            failure: None,
            counters: PeerCounters::default(),
        });
        Ok((id, first))
    }

    /// The next number that no subscriber has.
    fn free_id(&mut self) -> PeerId {
        loop {
            let id = PeerId(self.next_id);
            self.next_id = self.next_id.wrapping_add(1);
            if self.peers.iter().all(|peer| peer.id != id) {
                return id;
            }
        }
    }

    /// Lets a subscriber go, failed or not. Returns whether there was such a one.
    pub fn remove(&mut self, peer: PeerId) -> bool {
        let Some(place) = self.peers.iter().position(|known| known.id == peer) else { return false };
        // Completions of its queue pair that are still to come name its number, which nobody has now.
        let removed = self.peers.remove(place);
        self.past_lines_skipped += removed.counters.lines_skipped;
        true
    }

    /// What happened to subscribers, in order. A failed one gets nothing any more; it stays until it is removed.
    pub fn next_event(&mut self) -> Option<PeerEvent> {
        self.events.pop_front()
    }

    /// Every subscriber, failed ones included, in the order of their connecting.
    pub fn peers(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.peers.iter().map(|peer| peer.id)
    }

    /// What was done for a subscriber.
    pub fn counters(&self, peer: PeerId) -> Option<&PeerCounters> {
        self.peer(peer).map(|peer| &peer.counters)
    }

    /// How many lines a subscriber is behind the ring's head.
    pub fn lag(&self, peer: PeerId, ring: &RingWriter) -> Option<u64> {
        self.peer(peer).map(|peer| ring.head().0 - peer.cursor.0)
    }

    /// How many writes of a subscriber are not known to have ended.
    pub fn under_way(&self, peer: PeerId) -> Option<u64> {
        self.peer(peer).map(|peer| peer.posted - peer.done)
    }

    /// How many of those asked for a completion, over all subscribers that have not failed.
    pub fn signalled_under_way(&self) -> usize {
        self.peers.iter().filter(|peer| peer.failure.is_none()).map(|peer| peer.signalled.len()).sum()
    }

    /// A subscriber's queue pair, to ask the device about it.
    pub fn queue_pair(&self, peer: PeerId) -> Option<&QueuePair> {
        self.peer(peer).map(|peer| &peer.queue_pair)
    }

    /// The regions that the lane sends from, to see that they give nobody any rights.
    pub fn regions(&self) -> [&Region; 2] {
        [&self.ring_region, &self.beat_region]
    }

    fn peer(&self, id: PeerId) -> Option<&Peer> {
        self.peers.iter().find(|peer| peer.id == id)
    }

    /// Takes what has ended. A flush does so by itself.
    pub fn reap(&mut self) {
        loop {
            let count = self.completions.poll(&mut self.batch);
            for completion in &self.batch[..count] {
                let id = PeerId((completion.id() >> 48) as u16);
                // One that was removed is nobody's business.
                let Some(peer) = self.peers.iter_mut().find(|peer| peer.id == id) else { continue };
                peer.on_completion(completion, &mut self.events);
            }
            if count < BATCH {
                return;
            }
        }
    }
}

impl Peer {
    /// The low 48 bits of a work request's number count writes; the upper 16 are the subscriber.
    fn tag(&self, id: u64) -> u64 {
        u64::from(self.id.0) << 48 | id & ((1 << 48) - 1)
    }

    fn room(&self, list: &SendList) -> u64 {
        self.starts.len() as u64 - (self.posted - self.done) - list.len() as u64
    }

    fn on_completion(&mut self, completion: &Completion, events: &mut VecDeque<PeerEvent>) {
        let id = completion.id() & ((1 << 48) - 1);
        // Writes end in order, so this one and all before it have.
        self.done = self.done.max(id + 1);
        while self.signalled.front().is_some_and(|oldest| oldest.id <= id) {
            self.signalled.pop_front();
        }
        let status = completion.status();
        if status.reaction() != Reaction::Reclaim {
            self.fail(PeerFailure::Completion(status), events);
        }
    }

    /// Nothing more is read from the ring for it. The first reason counts.
    #[cold]
    fn fail(&mut self, failure: PeerFailure, events: &mut VecDeque<PeerEvent>) {
        if self.failure.is_none() {
            self.failure = Some(failure);
            events.push_back(PeerEvent { peer: self.id, failure });
            // It fails only where the device is gone, and then nothing is read any more either.
            let _ = self.queue_pair.fail();
        }
    }

    /// What would make this subscriber's writes carry something else than they should, or never end.
    #[inline]
    fn verdict(&self, ring: &RingWriter, now: Nanos, deadline_ns: u64) -> Option<PeerFailure> {
        if self.posted > self.done {
            let oldest = self.starts[(self.done % self.starts.len() as u64) as usize];
            if ring.next().0 - oldest.0 > ring.capacity() as u64 / 2 {
                return Some(PeerFailure::Overrun);
            }
        }
        let waited = now.since(self.signalled.front()?.posted_at);
        (waited > 0 && waited as u64 > deadline_ns).then_some(PeerFailure::Deadline { waited_ns: waited as u64 })
    }

    /// Adds a write to the list.
    #[inline]
    fn push(&mut self, list: &mut SendList, piece: Piece, to: u64, lines: u64, signal: bool, now: Nanos) {
        let id = self.posted + list.len() as u64;
        self.since_signal += 1;
        self.lines_since_signal += lines;
        let is_inline = piece.len <= self.queue_pair.inline_limit();
        if signal {
            self.since_signal = 0;
            self.lines_since_signal = 0;
            self.signalled.push_back(Signalled { id, posted_at: now });
        }
        self.starts[(id % self.starts.len() as u64) as usize] = self.cursor;
        self.counters.inline += u64::from(is_inline);
        self.counters.signalled += u64::from(signal);
        let operation = Operation::Write { address: to, key: self.offer.key };
        list.push(self.tag(id), &[piece], operation, signal, is_inline);
    }

    /// Rings the doorbell for what is in the list.
    fn post(&mut self, list: &mut SendList, events: &mut VecDeque<PeerEvent>) {
        let count = list.len();
        if count == 0 || self.failure.is_some() {
            return;
        }
        self.counters.doorbells += 1;
        // SAFETY: pieces are places of the ring and the peer's own heartbeat line, in regions that the lane keeps. A place
        // is overwritten when the ring has gone round; `verdict` ends the queue pair at half of that. A line that changed
        // nevertheless while it was read does not verify, or is a later one, whole, in the place that is its own.
        match unsafe { self.queue_pair.post_sends(list) } {
            Ok(()) => self.posted += count as u64,
            Err((taken, source)) => {
                self.posted += taken as u64;
                self.fail(PeerFailure::NotPosted { errno: source.raw_os_error().unwrap_or(0) }, events);
            }
        }
    }
}

/// What all subscribers of a lane write from, and how far.
struct Source<'a> {
    ring: &'a RingWriter,
    key: u32,
    write_limit: u64,
    beats: &'a Mapping,
    beat_region: &'a Region,
    heartbeat_interval_ns: Option<u64>,
    now: Nanos,
}

impl Peer {
    /// Writes what this subscriber has not had yet; returns how many lines.
    fn write(&mut self, source: &Source<'_>, list: &mut SendList, events: &mut VecDeque<PeerEvent>) -> usize {
        let (ring, head) = (source.ring, source.ring.head());
        let skipped = ring.oldest().0.saturating_sub(self.cursor.0);
        self.counters.lines_skipped += skipped;
        self.cursor = self.cursor.plus(skipped);
        let capacity = ring.capacity() as u64;
        let remote_capacity = self.offer.lines as u64;
        let limit = source.write_limit.min((remote_capacity / 16).max(1));
        let mut written = 0;
        while self.cursor < head {
            if self.room(list) == 0 {
                self.counters.full_queue += 1;
                break;
            }
            let to_wrap = capacity - self.cursor.0 % capacity;
            let remote_index = self.cursor.0 % remote_capacity;
            let count = (head.0 - self.cursor.0).min(to_wrap).min(remote_capacity - remote_index).min(limit);
            let (lines, _) = ring.lines(self.cursor, count as usize);
            let piece = Piece { address: lines.as_ptr() as u64, len: size_of_val(lines), key: source.key };
            let to = self.offer.address + LATEST_LEN + remote_index * LINE_LEN as u64;
            let signal = self.since_signal + 1 >= SENDS_PER_SIGNAL || self.lines_since_signal + count >= limit;
            self.push(list, piece, to, count, signal, source.now);
            self.cursor = self.cursor.plus(count);
            self.counters.writes += 1;
            self.counters.lines += count;
            written += count as usize;
            if list.is_full() {
                self.post(list, events);
                if self.failure.is_some() {
                    return written;
                }
            }
        }
        self.post(list, events);
        written
    }

    /// Whether its latest line was written within the last `interval_ns`.
    fn has_beaten(&self, interval_ns: u64, now: Nanos) -> bool {
        self.beat_at.is_some_and(|at| now.since(at) < i64::try_from(interval_ns).unwrap_or(i64::MAX))
    }

    /// Writes the latest line, if it is time and nothing is owed: its clock is at or before that of every line to come.
    fn beat(&mut self, place: usize, source: &Source<'_>, list: &mut SendList, events: &mut VecDeque<PeerEvent>) {
        let is_due = source.heartbeat_interval_ns.is_some_and(|interval| !self.has_beaten(interval, source.now));
        if self.beat_wanted.is_none() && !is_due {
            return;
        }
        if self.cursor != source.ring.next() || self.room(list) == 0 {
            return;
        }
        let ended = self.beat_wanted.take().unwrap_or(false);
        let mut record = Record::new(Kind::HEARTBEAT, InstrumentId::CHANNEL);
        record.ts_event.set(source.now.0);
        record.detail = u8::from(ended);
        let line = Line::seal(record, self.cursor);
        // A device without room inline may still be reading the one before; the mask covers that too.
        for (i, word) in line.words().into_iter().enumerate() {
            source.beats.word_mut(place * LINE_LEN + i * 8).store(word, Ordering::Relaxed);
        }
        let piece = Piece {
            address: source.beat_region.address() + (place * LINE_LEN) as u64,
            len: LINE_LEN,
            key: source.beat_region.local_key(),
        };
        self.push(list, piece, self.offer.address, 0, true, source.now);
        self.beat_at = Some(source.now);
        self.counters.heartbeats += 1;
        self.post(list, events);
    }
}

impl RcRingTx {
    /// One turn over all subscribers. `wanted`: a heartbeat was asked for, and whether it is the session's last.
    fn turn(&mut self, ring: &RingWriter, now: Nanos, wanted: Option<bool>) -> usize {
        debug_assert!(
            ring.memory().address().as_ptr() as u64 == self.ring_region.address(),
            "lane opened on another ring than it is flushed with"
        );
        // Completions are taken after posting, except where something hangs on them.
        let deadline_ns = self.options.deadline_ns;
        let hangs = |peer: &Peer| {
            peer.failure.is_none() && (peer.room(&self.list) == 0 || peer.verdict(ring, now, deadline_ns).is_some())
        };
        if self.peers.iter().any(hangs) {
            self.reap();
        }
        let source = Source {
            ring,
            key: self.ring_region.local_key(),
            write_limit: self.write_limit,
            beats: &self.beats,
            beat_region: &self.beat_region,
            heartbeat_interval_ns: self.options.heartbeat_interval_ns,
            now,
        };
        let mut written = 0;
        for (place, peer) in self.peers.iter_mut().enumerate() {
            if peer.failure.is_some() {
                continue;
            }
            if let Some(failure) = peer.verdict(ring, now, deadline_ns) {
                peer.fail(failure, &mut self.events);
                continue;
            }
            let interval = self.options.heartbeat_interval_ns;
            if let Some(ended) = wanted
                && (ended || !interval.is_some_and(|interval| peer.has_beaten(interval, now)))
            {
                // The end of a session is not forgotten over a heartbeat asked for after it.
                peer.beat_wanted = Some(ended || peer.beat_wanted.unwrap_or(false));
            }
            written += peer.write(&source, &mut self.list, &mut self.events);
            if peer.failure.is_none() {
                peer.beat(place, &source, &mut self.list, &mut self.events);
            }
        }
        self.reap();
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

    /// Over all subscribers, those that were removed included: lines that a full queue kept waiting for too long.
    fn lines_unsent(&self) -> u64 {
        self.past_lines_skipped + self.peers.iter().map(|peer| peer.counters.lines_skipped).sum::<u64>()
    }
}

fn endpoint(local: &LocalPort, queue_pair: &QueuePair, first_packet: u32) -> RcEndpoint {
    RcEndpoint {
        gid: local.gid.gid,
        lid: local.port.lid,
        queue_pair: queue_pair.number(),
        first_packet,
        mtu: local.port.active_mtu,
    }
}

/// Where a connection's packet numbers begin: anywhere, so that packets of an earlier one do not fit.
fn random_packet() -> u32 {
    RandomState::new().build_hasher().finish() as u32 & 0xFF_FFFF
}
