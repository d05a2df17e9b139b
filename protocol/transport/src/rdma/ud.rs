//! The UD multicast lane: one send for every subscriber at once.
//!
//! The same packets as over UDP, sent by the card straight from the publisher's ring: each is gathered from a header and
//! one or two pieces of the ring's own memory, which is registered once and gives nobody else any rights. A datagram is
//! never sent again here: what is lost shows to the subscriber as a gap in the stamps.
//!
//! A payload above the port's active MTU would be taken, completed with success, and never delivered; a wrong Q_Key and an
//! empty receive queue are as silent. So lengths are checked here, and everything is counted.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::sync::Arc;

use protocol::line::{LINE_LEN, Line, Stamp};
use protocol::packet::{HEADER_LEN, MAX_LINES, PacketHeader, Refused};
use protocol::record::{ChannelId, Lane};
use protocol::run::RunSink;
use protocol::time::Nanos;
use zerocopy::little_endian::U64;

use super::address::AddressHandle;
use super::completion::{Completion, CompletionQueue, Reaction, Status};
use super::device::{Gid, LinkLayer, LocalPort};
use super::domain::Domain;
use super::error::RdmaError;
use super::multicast::MulticastMembership;
use super::queue_pair::{BURST, Depths, Operation, Piece, QueuePair, ReceiveList, SendList, Service};
use super::region::{Region, Rights};
use crate::datagram::hand_up;
use crate::lane::{LaneRx, LaneTx};
use crate::memory::Mapping;
use crate::ring::RingWriter;

/// Bytes that a card puts before each datagram received: the global routing header, or 20 unused bytes and an IPv4 header.
pub const GRH_LEN: usize = 40;
/// One send in so many asks for a completion: enough to learn in time that the queue is free again.
const SENDS_PER_SIGNAL: u64 = 64;
/// The least send queue: two times what goes without a signal.
const LEAST_DEPTH: usize = 128;
/// The longest packet.
const PACKET_LEN: usize = HEADER_LEN + MAX_LINES * LINE_LEN;
/// Where a receive buffer begins: 40 bytes of GRH and 32 of header then end at a multiple of 64, and lines are aligned.
const BUFFER_OFFSET: usize = 56;
/// From one receive buffer to the next: 65 lines, so that they do not all begin in the same set of the cache.
const BUFFER_STRIDE: usize = 65 * LINE_LEN;
/// Completions taken at once.
const BATCH: usize = 32;

const _: () = assert!((BUFFER_OFFSET + GRH_LEN + HEADER_LEN).is_multiple_of(LINE_LEN));
const _: () = assert!(BUFFER_OFFSET + GRH_LEN + PACKET_LEN <= BUFFER_STRIDE);

/// A sender of datagrams, as receivers see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdSource {
    /// Its port.
    pub gid: Gid,
    /// Its queue pair.
    pub queue_pair: u32,
}

/// Where a UD lane's traffic goes, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UdOptions {
    /// The device; `None`: whichever has the address.
    pub device: Option<String>,
    /// The IPv4 address of the port to send from or to receive on.
    pub address: Ipv4Addr,
    /// The multicast group, 224.0.0.0/4.
    pub group: Ipv4Addr,
    /// The key that datagrams carry on RoCE, below 2^31; receivers drop all others without a word. It prevents accidents,
    /// it is no security. On InfiniBand the group's own is used.
    pub qkey: u32,
    /// How many routers a packet may pass, itself included.
    pub hop_limit: u8,
    /// Work requests in the send queue; at least 128.
    pub send_depth: usize,
    /// How long a send that asked for a completion may go without one before the lane counts as failed.
    pub deadline_ns: u64,
    /// Receive buffers: peak rate times the worst stall of the receiver. When none is left, datagrams are dropped without
    /// a word. 4,160 bytes each.
    pub receive_depth: usize,
}

impl UdOptions {
    /// For one network: hop limit 1, a send queue of 256, a deadline of 100 ms, 2,048 receive buffers (8.5 MB).
    pub fn new(address: Ipv4Addr, group: Ipv4Addr, qkey: u32) -> UdOptions {
        UdOptions {
            device: None,
            address,
            group,
            qkey,
            hop_limit: 1,
            send_depth: 256,
            deadline_ns: 100_000_000,
            receive_depth: 2048,
        }
    }

    /// The port, if it can carry a packet of one line.
    fn local(&self) -> Result<LocalPort, RdmaError> {
        let local = LocalPort::find(self.device.as_deref(), self.address)?;
        local.require_datagrams()?;
        local.require_mtu(HEADER_LEN + LINE_LEN)?;
        Ok(local)
    }

    /// The group's own key where there is a subnet manager, else ours.
    fn qkey(&self, local: &LocalPort, membership: &MulticastMembership) -> u32 {
        if local.port.link_layer == LinkLayer::InfiniBand { membership.address().qkey } else { self.qkey }
    }

    fn require(&self, local: &LocalPort, what: &'static str, value: usize, least: usize) -> Result<(), RdmaError> {
        let most = local.device.limits().queue_depth.min(local.device.limits().completions);
        if (least..=most).contains(&value) {
            return Ok(());
        }
        let allowed = format!("from {least} to {most}");
        Err(RdmaError::Limit { device: local.device.name().to_owned(), what, value: value as u64, allowed })
    }
}

/// The most lines of a packet on a port of this MTU: 15 at 1024, 63 at 4096.
pub fn lines_per_packet(mtu: usize) -> usize {
    (mtu.saturating_sub(HEADER_LEN) / LINE_LEN).min(MAX_LINES)
}

/// Why a UD lane carries nothing any more. It is to be opened anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UdFailure {
    /// A send or a receive ended with an error.
    #[error("it ended with {0}: {next}", next = .0.next_step())]
    Completion(Status),
    /// A send did not end in time: the device hangs.
    #[error("a send has not ended after {waited_ns} ns; see the kernel's log for the device")]
    Deadline {
        /// How long it has been under way.
        waited_ns: u64,
    },
}

/// What a [`UdTx`] has done. Lines count where their packet counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UdTxCounters {
    /// Packets with lines that were posted.
    pub packets: u64,
    /// Lines in them.
    pub lines: u64,
    /// Heartbeats that were posted.
    pub heartbeats: u64,
    /// Heartbeats left out because the queue was full.
    pub heartbeats_skipped: u64,
    /// Packets and heartbeats that the device did not take. Each is a gap for every subscriber of this lane.
    pub packets_dropped: u64,
    /// Lines in those packets.
    pub lines_dropped: u64,
    /// Lines never sent because the ring had overwritten them before this lane got to them.
    pub lines_skipped: u64,
    /// Times that the queue was full and lines were left for the next flush.
    pub full_queue: u64,
    /// Doorbells.
    pub doorbells: u64,
    /// Sends that went inline.
    pub inline: u64,
    /// Sends that asked for a completion.
    pub signalled: u64,
    /// Sends that ended with an error.
    pub failed: u64,
}

/// The sending half of a UD multicast lane.
///
/// Allocates nothing after [`UdTx::open`], and makes no system call that the device's driver does not make.
pub struct UdTx {
    // Before what it sends from, so that it is destroyed first.
    queue_pair: QueuePair,
    handle: AddressHandle,
    ring_region: Region,
    header_region: Region,
    _membership: MulticastMembership,
    completions: Arc<CompletionQueue>,
    local: LocalPort,
    headers: Arc<Mapping>,
    to_queue_pair: u32,
    qkey: u32,
    channel: ChannelId,
    lane: Lane,
    lines_per_packet: usize,
    depth: u64,
    cursor: Stamp,
    /// Sends posted so far, and how many of them are known to have ended.
    posted: u64,
    done: u64,
    since_signal: u64,
    /// Sends under way that asked for a completion, oldest first: their numbers, and when they were posted.
    signalled: VecDeque<(u64, Nanos)>,
    deadline_ns: u64,
    list: SendList,
    /// Lines of each send in the list; 0 for a heartbeat.
    line_counts: [usize; BURST],
    batch: [Completion; BATCH],
    failure: Option<UdFailure>,
    counters: UdTxCounters,
}

impl UdTx {
    /// A lane that sends the lines of `ring` from its present head on. The ring's memory is registered for as long as the
    /// lane lives.
    ///
    /// # Errors
    /// [`RdmaError`]: no such device or address, a port that is down or of too small an MTU, memory that may not be
    /// locked, a group that cannot be joined.
    pub fn open(options: &UdOptions, ring: &RingWriter) -> Result<UdTx, RdmaError> {
        let local = options.local()?;
        options.require(&local, "the send queue", options.send_depth, LEAST_DEPTH)?;
        let domain = Domain::new(&local.device)?;
        let memory = ring.memory();
        let ring_region =
            Region::new(&domain, memory.mapping(), memory.address(), memory.byte_len(), Rights::SendOnly)?;
        let headers = slab(&local, options.send_depth * HEADER_LEN)?;
        let (address, len) = headers.extent();
        let header_region = Region::new(&domain, &headers, address, len, Rights::SendOnly)?;

        let completions = Arc::new(CompletionQueue::new(&local.device, options.send_depth)?);
        let depths = Depths { send: options.send_depth, receive: 1 };
        let queue_pair = QueuePair::new(&domain, Service::Ud, &completions, &completions, depths)?;
        let membership = MulticastMembership::join(&local, options.group)?;
        let qkey = options.qkey(&local, &membership);
        queue_pair.open_ud(&local, qkey)?;
        let mut route = membership.address().route;
        route.hop_limit = options.hop_limit;
        let handle = AddressHandle::new(&domain, &route)?;
        Ok(UdTx {
            to_queue_pair: membership.address().queue_pair,
            lines_per_packet: lines_per_packet(local.port.active_mtu),
            queue_pair,
            handle,
            ring_region,
            header_region,
            _membership: membership,
            completions,
            local,
            headers,
            qkey,
            channel: ring.channel(),
            lane: ring.lane(),
            depth: options.send_depth as u64,
            cursor: ring.head(),
            posted: 0,
            done: 0,
            since_signal: 0,
            signalled: VecDeque::with_capacity(options.send_depth),
            deadline_ns: options.deadline_ns,
            list: SendList::new(),
            line_counts: [0; BURST],
            batch: [Completion::empty(); BATCH],
            failure: None,
            counters: UdTxCounters::default(),
        })
    }

    /// What it has done so far.
    pub fn counters(&self) -> &UdTxCounters {
        &self.counters
    }

    /// The most lines it puts into one packet.
    pub fn lines_per_packet(&self) -> usize {
        self.lines_per_packet
    }

    /// The most bytes that it sends inline.
    pub fn inline_limit(&self) -> usize {
        self.queue_pair.inline_limit()
    }

    /// The stamp of the next line to send.
    pub fn cursor(&self) -> Stamp {
        self.cursor
    }

    /// What receivers see as the sender: they drop all others.
    pub fn source(&self) -> UdSource {
        UdSource { gid: self.local.gid.gid, queue_pair: self.queue_pair.number() }
    }

    /// The port that it sends from.
    pub fn local(&self) -> &LocalPort {
        &self.local
    }

    /// The queue pair, to ask the device about it.
    pub fn queue_pair(&self) -> &QueuePair {
        &self.queue_pair
    }

    /// Why this lane sends nothing any more; `None` while it works.
    pub fn failure(&self) -> Option<UdFailure> {
        self.failure
    }

    fn room(&self) -> u64 {
        self.depth - (self.posted - self.done) - self.list.len() as u64
    }

    /// Takes what has ended.
    fn reap(&mut self) {
        loop {
            let count = self.completions.poll(&mut self.batch);
            for completion in &self.batch[..count] {
                // Sends end in order, so this one and all before it have.
                self.done = self.done.max(completion.id() + 1);
                while self.signalled.front().is_some_and(|(id, _)| *id < self.done) {
                    self.signalled.pop_front();
                }
                let status = completion.status();
                if status.reaction() != Reaction::Reclaim {
                    self.counters.failed += 1;
                    self.failure.get_or_insert(UdFailure::Completion(status));
                }
            }
            if count < BATCH {
                return;
            }
        }
    }

    /// How long the oldest send that asked for a completion has been without one.
    fn waited(&self, now: Nanos) -> u64 {
        self.signalled.front().map_or(0, |(_, posted_at)| now.since(*posted_at).max(0) as u64)
    }

    /// Fails the lane if a send does not end.
    fn watch(&mut self, now: Nanos) {
        if self.waited(now) <= self.deadline_ns {
            return;
        }
        // It may have ended since the last flush.
        self.reap();
        let waited_ns = self.waited(now);
        if waited_ns > self.deadline_ns {
            self.failure.get_or_insert(UdFailure::Deadline { waited_ns });
        }
    }

    /// The oldest line that this lane still owes and the ring still holds; what it owes beyond that is counted.
    fn start(&mut self, ring: &RingWriter) -> Stamp {
        assert!(
            self.cursor.epoch() == ring.epoch()
                && ring.memory().address().as_ptr() as u64 == self.ring_region.address(),
            "lane opened on another ring than it is flushed with"
        );
        let behind = ring.oldest().sequence().0.saturating_sub(self.cursor.sequence().0);
        self.counters.lines_skipped += behind;
        self.cursor.plus(behind)
    }

    /// Adds a packet to the list.
    #[inline]
    fn push(&mut self, next: Stamp, lines: (&[Line], &[Line]), now: Nanos, ended: bool) {
        let count = lines.0.len() + lines.1.len();
        debug_assert!(count <= self.lines_per_packet, "{count} lines in a packet of {}", self.lines_per_packet);
        let id = self.posted + self.list.len() as u64;
        // The slot's last send has ended: there is room in the queue.
        let slot = (id % self.depth) as usize * HEADER_LEN;
        let words: [U64; 4] = zerocopy::transmute!(PacketHeader::new(self.channel, self.lane, next, now, ended));
        for (i, word) in words.into_iter().enumerate() {
            let place = self.headers.word_mut(slot + i * 8);
            // Relaxed: the doorbell, a write that the driver orders after all before it, is what the device follows.
            place.store(word.get(), std::sync::atomic::Ordering::Relaxed);
        }
        let header = Piece {
            address: self.header_region.address() + slot as u64,
            len: HEADER_LEN,
            key: self.header_region.local_key(),
        };
        let key = self.ring_region.local_key();
        let piece = |lines: &[Line]| Piece { address: lines.as_ptr() as u64, len: size_of_val(lines), key };
        let pieces = [header, piece(lines.0), piece(lines.1)];
        let used = 1 + usize::from(!lines.0.is_empty()) + usize::from(!lines.1.is_empty());
        let is_inline = HEADER_LEN + count * LINE_LEN <= self.queue_pair.inline_limit();
        self.since_signal += 1;
        let is_signalled = self.since_signal >= SENDS_PER_SIGNAL;
        if is_signalled {
            self.since_signal = 0;
            self.signalled.push_back((id, now));
        }
        self.counters.signalled += u64::from(is_signalled);
        self.counters.inline += u64::from(is_inline);
        self.line_counts[self.list.len()] = count;
        let to = Operation::Datagram { to: &self.handle, queue_pair: self.to_queue_pair, qkey: self.qkey };
        self.list.push(id, &pieces[..used], to, is_signalled, is_inline);
    }

    /// Rings the doorbell for what is in the list; returns how many lines the device took.
    fn post(&mut self) -> usize {
        let count = self.list.len();
        if count == 0 {
            return 0;
        }
        self.counters.doorbells += 1;
        // SAFETY: pieces are headers and places of the ring, both in regions that this lane keeps. A header's slot is used
        // again only after its send has ended. A place of the ring may be overwritten while the device reads it, if the
        // ring goes round before the send has ended; such a packet has a line that does not verify, and receivers drop it
        // whole. The handle lives as long as the queue pair.
        let taken = match unsafe { self.queue_pair.post_sends(&mut self.list) } {
            Ok(()) => count,
            Err((taken, _)) => {
                // Which of the sends not taken were to ask for completions is not worth knowing: the next one does.
                self.since_signal = SENDS_PER_SIGNAL;
                let end = self.posted + taken as u64;
                self.signalled.retain(|(id, _)| *id < end);
                taken
            }
        };
        self.posted += taken as u64;
        let mut sent = 0;
        for (place, &lines) in self.line_counts[..count].iter().enumerate() {
            let of_lines = u64::from(lines > 0);
            if place < taken {
                self.counters.packets += of_lines;
                self.counters.heartbeats += 1 - of_lines;
                self.counters.lines += lines as u64;
                sent += lines;
            } else {
                self.counters.packets_dropped += 1;
                self.counters.lines_dropped += lines as u64;
            }
        }
        sent
    }
}

impl LaneTx for UdTx {
    fn flush(&mut self, ring: &RingWriter, now: Nanos) -> usize {
        let head = ring.head();
        if self.cursor == head {
            return 0;
        }
        let mut cursor = self.start(ring);
        self.watch(now);
        if self.failure.is_some() {
            self.counters.lines_dropped += head.0 - cursor.0;
            self.cursor = head;
            return 0;
        }
        let mut sent = 0;
        while cursor < head {
            if self.room() == 0 {
                sent += self.post();
                self.reap();
                if self.room() == 0 {
                    self.counters.full_queue += 1;
                    break;
                }
            }
            let owed = head.0 - cursor.0;
            let count = (owed as usize).min(self.lines_per_packet);
            self.push(cursor.plus(count as u64), ring.lines(cursor, count), now, false);
            cursor = cursor.plus(count as u64);
            if self.list.is_full() {
                sent += self.post();
            }
        }
        sent += self.post();
        self.cursor = cursor;
        self.reap();
        sent
    }

    /// Flushes first: a heartbeat that named lines not yet sent would make each subscriber take them for lost.
    fn heartbeat(&mut self, ring: &RingWriter, now: Nanos, ended: bool) {
        self.flush(ring, now);
        self.reap();
        self.watch(now);
        if self.cursor != ring.head() || self.room() == 0 || self.failure.is_some() {
            self.counters.heartbeats_skipped += 1;
            return;
        }
        self.push(ring.head(), (&[], &[]), now, ended);
        self.post();
    }

    fn lines_unsent(&self) -> u64 {
        self.counters.lines_dropped + self.counters.lines_skipped
    }
}

/// What a [`UdRx`] has seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UdRxCounters {
    /// Packets with lines, handed up.
    pub packets: u64,
    /// Lines handed up.
    pub lines: u64,
    /// Packets without lines, handed up as positions.
    pub heartbeats: u64,
    /// Packets refused, by [`Refused::index`].
    pub refused: [u64; Refused::COUNT],
    /// Datagrams from a sender that is not among those expected, dropped.
    pub foreign: u64,
    /// The own datagrams, brought back by the network, dropped.
    pub own: u64,
    /// Datagrams too short for their routing header.
    pub short: u64,
    /// Receives that ended with an error.
    pub failed: u64,
    /// Receive buffers that the device did not take back.
    pub not_reposted: u64,
    /// Times that as many datagrams as there are buffers came without the queue once being found empty: the device may
    /// have had no buffer left, and then it drops what comes without a word.
    pub starved: u64,
}

impl UdRxCounters {
    /// All refused packets, whatever the reason.
    pub fn refused_total(&self) -> u64 {
        self.refused.iter().sum()
    }
}

/// The receiving half of a UD multicast lane.
///
/// The card writes datagrams into buffers set aside at the start; lines are handed up where they lie, and the buffers are
/// given back to the card after that, in batches. Allocates nothing after [`UdRx::open`], and makes no system call that
/// the device's driver does not make.
pub struct UdRx {
    // First, so that it is left before the queue pair is let go of.
    _membership: MulticastMembership,
    queue_pair: Arc<QueuePair>,
    region: Region,
    completions: Arc<CompletionQueue>,
    slab: Arc<Mapping>,
    local: LocalPort,
    channel: ChannelId,
    sources: Vec<UdSource>,
    own: Vec<UdSource>,
    depth: usize,
    buffer_len: usize,
    batch: [Completion; BATCH],
    filled: usize,
    taken: usize,
    /// Buffers taken from the device since a poll last found nothing more.
    in_a_row: usize,
    list: ReceiveList,
    failure: Option<UdFailure>,
    counters: UdRxCounters,
}

impl UdRx {
    /// Joins the group and listens for packets of `channel`, from whichever sender until
    /// [`expect`](UdRx::expect) says from whom.
    ///
    /// # Errors
    /// As [`UdTx::open`].
    pub fn open(options: &UdOptions, channel: ChannelId) -> Result<UdRx, RdmaError> {
        let local = options.local()?;
        options.require(&local, "the receive queue", options.receive_depth, 1)?;
        let depth = options.receive_depth;
        let domain = Domain::new(&local.device)?;
        let slab = slab(&local, depth * BUFFER_STRIDE)?;
        let (address, len) = slab.extent();
        let region = Region::new(&domain, &slab, address, len, Rights::Receive)?;
        let completions = Arc::new(CompletionQueue::new(&local.device, depth)?);
        let queue_pair =
            QueuePair::new(&domain, Service::Ud, &completions, &completions, Depths { send: 1, receive: depth })?;
        let queue_pair = Arc::new(queue_pair);
        let mut membership = MulticastMembership::join(&local, options.group)?;
        queue_pair.open_ud(&local, options.qkey(&local, &membership))?;
        let mut rx = UdRx {
            buffer_len: GRH_LEN + PACKET_LEN.min(local.port.active_mtu),
            _membership: {
                membership.attach(&queue_pair)?;
                membership
            },
            queue_pair,
            region,
            completions,
            slab,
            local,
            channel,
            sources: Vec::new(),
            own: Vec::new(),
            depth,
            batch: [Completion::empty(); BATCH],
            filled: 0,
            taken: 0,
            in_a_row: 0,
            list: ReceiveList::new(),
            failure: None,
            counters: UdRxCounters::default(),
        };
        for buffer in 0..depth {
            rx.give_back(buffer as u64);
        }
        rx.post();
        if rx.counters.not_reposted > 0 {
            return Err(RdmaError::Limit {
                device: rx.local.device.name().to_owned(),
                what: "the receive queue",
                value: depth as u64,
                allowed: format!("what the device takes, {}", depth as u64 - rx.counters.not_reposted),
            });
        }
        Ok(rx)
    }

    /// Takes datagrams of these senders only, and drops and counts all others. With none, any sender is taken.
    pub fn expect(&mut self, sources: &[UdSource]) {
        self.sources = sources.to_vec();
    }

    /// Drops and counts datagrams of these senders: the own ones, which the network brings back.
    pub fn ignore_own(&mut self, own: &[UdSource]) {
        self.own = own.to_vec();
    }

    /// What it has seen so far.
    pub fn counters(&self) -> &UdRxCounters {
        &self.counters
    }

    /// The port that it receives on.
    pub fn local(&self) -> &LocalPort {
        &self.local
    }

    /// The queue pair, to ask the device about it.
    pub fn queue_pair(&self) -> &QueuePair {
        &self.queue_pair
    }

    /// Why this lane receives nothing any more; `None` while it works.
    pub fn failure(&self) -> Option<UdFailure> {
        self.failure
    }

    /// Puts a buffer on the list of those to be posted.
    fn give_back(&mut self, buffer: u64) {
        let piece = Piece {
            address: self.region.address() + buffer * BUFFER_STRIDE as u64 + BUFFER_OFFSET as u64,
            len: self.buffer_len,
            key: self.region.local_key(),
        };
        self.list.push(buffer, piece);
        if self.list.is_full() {
            self.post();
        }
    }

    fn post(&mut self) {
        let count = self.list.len();
        // SAFETY: buffers lie in the region, which the card may write; each is on the list only while nobody borrows from
        // it: lines are handed up and done with before their buffer is given back.
        if let Err((taken, _)) = unsafe { self.queue_pair.post_receives(&mut self.list) } {
            self.counters.not_reposted += (count - taken) as u64;
        }
    }

    /// Takes the next batch of completions. The batch before has been dealt with, and its buffers go back now.
    fn receive(&mut self) {
        for place in 0..self.filled {
            self.give_back(self.batch[place].id());
        }
        self.post();
        self.taken = 0;
        self.filled = self.completions.poll(&mut self.batch);
        self.in_a_row = if self.filled == 0 { 0 } else { self.in_a_row + self.filled };
        if self.filled > 0 && self.in_a_row >= self.depth {
            self.counters.starved += 1;
            self.in_a_row = 0;
        }
    }
}

impl LaneRx for UdRx {
    fn poll<S: RunSink>(&mut self, _now: Nanos, limit: usize, sink: &mut S) -> usize {
        let mut lines = 0;
        // Each packet counts at least one, so that a flood of foreign packets cannot keep the caller here.
        let mut work = 0;
        while work < limit {
            if self.taken == self.filled {
                // A batch that was not full emptied the queue; the next poll asks again.
                if work > 0 && self.filled < BATCH {
                    break;
                }
                self.receive();
                if self.filled == 0 {
                    break;
                }
            }
            let completion = self.batch[self.taken];
            self.taken += 1;
            work += 1;
            let status = completion.status();
            if status != Status::Success {
                self.counters.failed += 1;
                self.failure.get_or_insert(UdFailure::Completion(status));
                continue;
            }
            let len = completion.byte_len();
            if len < GRH_LEN || len > self.buffer_len {
                self.counters.short += 1;
                continue;
            }
            let start = completion.id() as usize * BUFFER_STRIDE + BUFFER_OFFSET;
            // SAFETY: a completed buffer is the card's no more, until it is given back in `receive`. The borrow ends
            // within this turn of the loop.
            let bytes = unsafe { self.slab.bytes(start, len) };
            let (header, packet) = bytes.split_at(GRH_LEN);
            let gid = if completion.has_grh() { source_gid(header) } else { Gid::default() };
            let source = UdSource { gid, queue_pair: completion.source_queue_pair() };
            if self.own.contains(&source) {
                self.counters.own += 1;
                continue;
            }
            if !self.sources.is_empty() && !self.sources.contains(&source) {
                self.counters.foreign += 1;
                continue;
            }
            match hand_up(packet, self.channel, true, sink) {
                Ok(0) => self.counters.heartbeats += 1,
                Ok(count) => {
                    self.counters.packets += 1;
                    lines += count;
                    work += count - 1;
                }
                Err(refused) => self.counters.refused[refused.index()] += 1,
            }
        }
        self.counters.lines += lines as u64;
        lines
    }
}

/// The sender's GID, from the 40 bytes before a datagram: a routing header as IPv6 has it, or 20 unused bytes and an IPv4
/// header.
fn source_gid(header: &[u8]) -> Gid {
    // An IPv6 header begins with its version; the 20 bytes before an IPv4 header are zeroes on some devices and undefined
    // on others, so the IPv4 header is looked at first: version 4, five words.
    if header[20] == 0x45 {
        let source: [u8; 4] = header[32..36].try_into().expect("four bytes");
        return Gid::from_ipv4(source.into());
    }
    Gid(header[8..24].try_into().expect("sixteen bytes"))
}

/// Pages of our own for a device.
fn slab(local: &LocalPort, len: usize) -> Result<Arc<Mapping>, RdmaError> {
    match Mapping::anonymous(len.next_multiple_of(crate::memory::PAGE_LEN)) {
        Ok((mapping, _)) => Ok(Arc::new(mapping)),
        Err(source) => Err(RdmaError::System {
            device: local.device.name().to_owned(),
            what: "map memory for buffers",
            source,
            next: "ask for fewer buffers, or free memory",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fifteen_lines_fit_1024_bytes_and_63_fit_4096() {
        for (mtu, lines) in [(0, 0), (95, 0), (96, 1), (256, 3), (1024, 15), (2048, 31), (4096, 63), (9000, 63)] {
            assert_eq!(lines_per_packet(mtu), lines, "{mtu}");
        }
    }

    #[test]
    fn two_lines_and_a_header_go_inline() {
        assert_eq!((super::super::queue_pair::UD_INLINE - HEADER_LEN) / LINE_LEN, 2);
    }

    #[test]
    fn the_sender_is_read_from_either_kind_of_header() {
        let mut header = [0; GRH_LEN];
        header[20] = 0x45;
        header[32..36].copy_from_slice(&[10, 99, 0, 1]);
        header[36..40].copy_from_slice(&[239, 1, 2, 3]);
        assert_eq!(source_gid(&header), Gid::from_ipv4(Ipv4Addr::new(10, 99, 0, 1)));
        let mut header = [0; GRH_LEN];
        header[0] = 0x60;
        header[8..24].copy_from_slice(&[0xFE; 16]);
        assert_eq!(source_gid(&header), Gid([0xFE; 16]));
    }
}
