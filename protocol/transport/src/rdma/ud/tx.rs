//! The sending half of a UD lane.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use protocol::line::{LINE_LEN, Line, Stamp};
use protocol::packet::HEADER_LEN;
use protocol::time::Nanos;
use zerocopy::little_endian::U64;

use super::super::address::{AddressHandle, Route};
use super::super::completion::{Completion, CompletionQueue};
use super::super::domain::Domain;
use super::super::error::RdmaError;
use super::super::local::LocalPort;
use super::super::mailbox::{Inbox, Outbox, mailbox};
use super::super::multicast::{GroupAddress, MulticastMembership};
use super::super::queue_pair::{BURST, Depths, Operation, Piece, QueuePair, SendList, Service};
use super::super::region::{Region, Rights};
use super::keeper::{Built, Core, Order, Return, Side, Target, UdEvent, UdKeeperCounters, is_failure, note, refusal};
use super::{
    BATCH, LEAST_DEPTH, ORDERS, RETURNS, SENDS_PER_SIGNAL, UdFailure, UdOptions, UdPeer, UdSource, lines_per_packet,
    slab,
};
use crate::lane::LaneTx;
use crate::memory::{Mapping, RingMemory};
use crate::packets::{Cutter, Packet, Tally};
use crate::ring::RingWriter;

/// What a [`UdTx`] has done. Lines count where their packet counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UdTxCounters {
    /// Packets with lines that were posted.
    pub packets: u64,
    /// Lines in them.
    pub lines: u64,
    /// Heartbeats that were posted.
    pub heartbeats: u64,
    /// Heartbeats left out because the queue was full, or the lane was being built anew.
    pub heartbeats_skipped: u64,
    /// Packets and heartbeats that the device did not take. Each is a gap for every subscriber of this lane.
    pub packets_dropped: u64,
    /// Lines in those packets.
    pub lines_dropped: u64,
    /// Lines never sent because the ring had overwritten them before this lane got to them.
    pub lines_skipped: u64,
    /// Lines never sent because the lane was being built anew.
    pub lines_passed_over: u64,
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

/// What a sender is built of: made and destroyed by the keeper.
pub(super) struct TxEquipment {
    // Before what it sends from, so that it is destroyed first.
    queue_pair: QueuePair,
    handle: AddressHandle,
    ring_region: Region,
    header_region: Region,
    completions: Arc<CompletionQueue>,
    headers: Arc<Mapping>,
    to_queue_pair: u32,
    /// Of the datagrams.
    qkey: u32,
    lines_per_packet: usize,
    depth: u64,
}

/// What the hot half works with: the equipment, and what is under way on it.
pub(super) struct TxGear {
    equipment: Arc<TxEquipment>,
    /// Sends posted so far, and how many of them are known to have ended.
    posted: u64,
    done: u64,
    since_signal: u64,
    /// Sends under way that asked for a completion, oldest first: their numbers, and when they were posted.
    signalled: VecDeque<(u64, Nanos)>,
    list: SendList,
    /// Lines of each send in the list; 0 for a heartbeat.
    line_counts: [usize; BURST],
    batch: [Completion; BATCH],
    failure: Option<UdFailure>,
}

/// How senders are built.
pub(super) struct TxSide {
    memory: RingMemory,
}

impl Side for TxSide {
    type Gear = TxGear;
    type Equipment = TxEquipment;
    type Sources = ();

    fn check(&self, options: &UdOptions, local: &LocalPort) -> Result<(), RdmaError> {
        options.require_port(local, 1)?;
        options.require(local, "the send queue", options.send_depth, LEAST_DEPTH)
    }

    fn build(
        &self,
        options: &UdOptions,
        local: &LocalPort,
        target: Target,
        group: Option<&GroupAddress>,
        scale: usize,
    ) -> Result<Built<Self>, RdmaError> {
        let domain = Domain::new(&local.device)?;
        let memory = &self.memory;
        let ring_region =
            Region::new(&domain, memory.mapping(), memory.address(), memory.byte_len(), Rights::SendOnly)?;
        let headers = slab(local, options.send_depth * HEADER_LEN)?;
        let (address, len) = headers.extent();
        let header_region = Region::new(&domain, &headers, address, len, Rights::SendOnly)?;
        let completions = (options.send_depth * scale).min(local.device.limits().completions);
        let completions = Arc::new(CompletionQueue::new(&local.device, completions)?);
        let depths = Depths { send: options.send_depth, receive: 1 };
        let queue_pair = QueuePair::new(&domain, Service::Ud, &completions, &completions, depths)?;
        let (route, to_queue_pair, qkey) = match (target, group) {
            (Target::Group, Some(group)) => {
                let route = Route { hop_limit: options.hop_limit, ..group.route };
                (route, group.queue_pair, options.qkey_of(local, Some(group)))
            }
            (Target::Peer(peer), _) => {
                let route = Route { lid: peer.lid, ..Route::to(local, peer.gid, options.hop_limit) };
                (route, peer.queue_pair, peer.qkey)
            }
            _ => unreachable!("a sender without a destination"),
        };
        queue_pair.open_ud(local, qkey)?;
        let handle = AddressHandle::new(&domain, &route)?;
        let most = lines_per_packet(local.port.active_mtu);
        let equipment = Arc::new(TxEquipment {
            queue_pair,
            handle,
            ring_region,
            header_region,
            completions,
            headers,
            to_queue_pair,
            qkey,
            lines_per_packet: options.max_lines.map_or(most, |lines| lines.clamp(1, most)),
            depth: options.send_depth as u64,
        });
        let gear = TxGear {
            equipment: Arc::clone(&equipment),
            posted: 0,
            done: 0,
            since_signal: 0,
            signalled: VecDeque::with_capacity(options.send_depth),
            list: SendList::new(),
            line_counts: [0; BURST],
            batch: [Completion::empty(); BATCH],
            failure: None,
        };
        Ok((Box::new(gear), equipment))
    }

    fn attach(_: &TxEquipment, _: &mut MulticastMembership) -> Result<(), RdmaError> {
        Ok(())
    }

    fn queue_pair(equipment: &TxEquipment) -> &QueuePair {
        &equipment.queue_pair
    }

    fn qkey(equipment: &TxEquipment) -> u32 {
        equipment.qkey
    }

    fn verdict(gear: &TxGear) -> (u32, Option<UdFailure>) {
        (gear.equipment.queue_pair.number(), gear.failure)
    }
}

/// The hot half of a sender. See the [module](crate::rdma).
///
/// Allocates nothing, and makes no system call that the device's driver does not make.
pub struct UdTx {
    /// `None` while the lane is being built anew.
    gear: Option<Box<TxGear>>,
    orders: Inbox<Order<TxGear, ()>>,
    returns: Outbox<Return<TxGear, ()>>,
    cutter: Cutter,
    deadline_ns: u64,
    counters: UdTxCounters,
}

impl UdTx {
    /// A lane that sends the lines of `ring` from its present head on to the group. The ring's memory is registered for as
    /// long as the lane lives.
    ///
    /// # Errors
    /// [`RdmaError`]: no such device or address, a port without datagrams, one that is down or of too small an MTU, memory
    /// that may not be locked, a group that cannot be joined.
    pub fn open(options: &UdOptions, ring: &RingWriter) -> Result<(UdTx, UdTxKeeper), RdmaError> {
        UdTx::open_at(options, Target::Group, ring)
    }

    /// The same to one queue pair alone: replies, and round trips to measure. The group of the options is left alone.
    ///
    /// # Errors
    /// As [`open`](UdTx::open).
    pub fn open_to(options: &UdOptions, peer: UdPeer, ring: &RingWriter) -> Result<(UdTx, UdTxKeeper), RdmaError> {
        UdTx::open_at(options, Target::Peer(peer), ring)
    }

    fn open_at(options: &UdOptions, target: Target, ring: &RingWriter) -> Result<(UdTx, UdTxKeeper), RdmaError> {
        let (orders, to_hot) = mailbox(ORDERS);
        let (to_keeper, returns) = mailbox(RETURNS);
        let side = TxSide { memory: ring.memory().clone() };
        let core = Core::open(side, options, target, orders, returns)?;
        let mut tx = UdTx {
            gear: None,
            orders: to_hot,
            returns: to_keeper,
            cutter: Cutter::new(ring),
            deadline_ns: options.deadline_ns,
            counters: UdTxCounters::default(),
        };
        tx.answer();
        Ok((tx, UdTxKeeper(core)))
    }

    /// What it has done so far.
    pub fn counters(&self) -> &UdTxCounters {
        &self.counters
    }

    /// The most lines it puts into one packet; 0 while it is being built anew.
    pub fn lines_per_packet(&self) -> usize {
        self.gear.as_ref().map_or(0, |gear| gear.equipment.lines_per_packet)
    }

    /// The most bytes that it sends inline; 0 while it is being built anew.
    pub fn inline_limit(&self) -> usize {
        self.gear.as_ref().map_or(0, |gear| gear.equipment.queue_pair.inline_limit())
    }

    /// The stamp of the next line to send.
    pub fn cursor(&self) -> Stamp {
        self.cutter.cursor()
    }

    /// Whether it sends: not while it is being built anew.
    pub fn is_working(&self) -> bool {
        self.gear.is_some()
    }

    /// Does what the keeper asks for.
    #[cold]
    fn answer(&mut self) {
        while let Some(order) = self.orders.take() {
            match order {
                Order::Recall => self.give_back(),
                Order::Gear(gear) => {
                    self.give_back();
                    self.gear = Some(gear);
                }
                Order::Sources(_) => {}
            }
        }
    }

    /// Gives the gear back to be destroyed. The box has room for all there can be; only if the keeper is gone is it
    /// destroyed here.
    #[cold]
    fn give_back(&mut self) {
        if let Some(gear) = self.gear.take() {
            let _ = self.returns.post(Return::Gear(gear));
        }
    }
}

impl TxGear {
    fn room(&self) -> u64 {
        self.equipment.depth - (self.posted - self.done) - self.list.len() as u64
    }

    /// Takes what has ended.
    fn reap(&mut self, counters: &mut UdTxCounters) {
        loop {
            let count = self.equipment.completions.poll(&mut self.batch);
            for completion in &self.batch[..count] {
                // Sends end in order, so this one and all before it have.
                self.done = self.done.max(completion.id() + 1);
                while self.signalled.front().is_some_and(|(id, _)| *id < self.done) {
                    self.signalled.pop_front();
                }
                let status = completion.status();
                if is_failure(status.reaction()) {
                    counters.failed += 1;
                    note(&mut self.failure, status);
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
    #[inline]
    fn watch(&mut self, now: Nanos, deadline_ns: u64, counters: &mut UdTxCounters) {
        if self.waited(now) <= deadline_ns {
            return;
        }
        // It may have ended since the last flush.
        self.reap(counters);
        let waited_ns = self.waited(now);
        if waited_ns > deadline_ns {
            self.failure.get_or_insert(UdFailure::Deadline { waited_ns });
        }
    }

    /// Adds a packet to the list.
    #[inline]
    fn push(&mut self, packet: Packet<'_>, now: Nanos, counters: &mut UdTxCounters) {
        let equipment = &*self.equipment;
        let (lines, count) = (packet.lines, packet.line_count());
        debug_assert!(
            count <= equipment.lines_per_packet,
            "{count} lines in a packet of {}",
            equipment.lines_per_packet
        );
        let id = self.posted + self.list.len() as u64;
        // The slot's last send has ended: there is room in the queue.
        let slot = (id % equipment.depth) as usize * HEADER_LEN;
        let words: [U64; 4] = zerocopy::transmute!(packet.header);
        for (i, word) in words.into_iter().enumerate() {
            let place = equipment.headers.word_mut(slot + i * 8);
            // Relaxed: the doorbell, a write that the driver orders after all before it, is what the device follows.
            place.store(word.get(), Ordering::Relaxed);
        }
        let header = Piece {
            address: equipment.header_region.address() + slot as u64,
            len: HEADER_LEN,
            key: equipment.header_region.local_key(),
        };
        let key = equipment.ring_region.local_key();
        let piece = |lines: &[Line]| Piece { address: lines.as_ptr() as u64, len: size_of_val(lines), key };
        let pieces = [header, piece(lines.0), piece(lines.1)];
        let used = 1 + usize::from(!lines.0.is_empty()) + usize::from(!lines.1.is_empty());
        let is_inline = HEADER_LEN + count * LINE_LEN <= equipment.queue_pair.inline_limit();
        self.since_signal += 1;
        // A heartbeat is sent when little else is: a send that hangs is noticed then too.
        let is_signalled = self.since_signal >= SENDS_PER_SIGNAL || count == 0;
        if is_signalled {
            self.since_signal = 0;
            self.signalled.push_back((id, now));
        }
        counters.signalled += u64::from(is_signalled);
        counters.inline += u64::from(is_inline);
        self.line_counts[self.list.len()] = count;
        let to =
            Operation::Datagram { to: &equipment.handle, queue_pair: equipment.to_queue_pair, qkey: equipment.qkey };
        self.list.push(id, &pieces[..used], to, is_signalled, is_inline);
    }

    /// Rings the doorbell for what is in the list; returns how many lines the device took.
    fn post(&mut self, counters: &mut UdTxCounters) -> usize {
        let count = self.list.len();
        if count == 0 {
            return 0;
        }
        counters.doorbells += 1;
        // SAFETY: pieces are headers and places of the ring, both in regions that the equipment keeps. A header's slot is
        // used again only after its send has ended. A place of the ring may be overwritten while the device reads it, if
        // the ring goes round before the send has ended; such a packet has a line that does not verify, and receivers drop
        // it whole. The handle is destroyed after the queue pair.
        let taken = match unsafe { self.equipment.queue_pair.post_sends(&mut self.list) } {
            Ok(()) => count,
            Err((taken, error)) => {
                // Which of the sends not taken were to ask for completions is not worth knowing: the next one does.
                self.since_signal = SENDS_PER_SIGNAL;
                let end = self.posted + taken as u64;
                self.signalled.retain(|(id, _)| *id < end);
                if let Some(errno) = refusal(&error) {
                    self.failure.get_or_insert(UdFailure::NotPosted { errno });
                }
                taken
            }
        };
        self.posted += taken as u64;
        let tally = Tally::new(&self.line_counts[..count], taken);
        counters.packets += tally.packets;
        counters.lines += tally.lines;
        counters.heartbeats += tally.heartbeats;
        counters.packets_dropped += tally.packets_dropped;
        counters.lines_dropped += tally.lines_dropped;
        tally.lines as usize
    }
}

impl LaneTx for UdTx {
    fn flush(&mut self, ring: &RingWriter, now: Nanos) -> usize {
        if self.orders.has_mail() {
            self.answer();
        }
        if self.cutter.is_at_head(ring) {
            return 0;
        }
        let counters = &mut self.counters;
        counters.lines_skipped += self.cutter.catch_up(ring);
        if let Some(gear) = &mut self.gear {
            gear.watch(now, self.deadline_ns, counters);
            if gear.failure.is_some() {
                self.give_back();
            }
        }
        let counters = &mut self.counters;
        let Some(gear) = &mut self.gear else {
            counters.lines_passed_over += self.cutter.pass_over(ring);
            return 0;
        };
        let mut sent = 0;
        loop {
            if gear.room() == 0 {
                sent += gear.post(counters);
                gear.reap(counters);
                if gear.room() == 0 {
                    counters.full_queue += u64::from(!self.cutter.is_at_head(ring));
                    break;
                }
            }
            let Some(packet) = self.cutter.cut(ring, gear.equipment.lines_per_packet, now) else { break };
            gear.push(packet, now, counters);
            if gear.list.is_full() {
                sent += gear.post(counters);
            }
        }
        sent += gear.post(counters);
        gear.reap(counters);
        if gear.failure.is_some() {
            self.give_back();
        }
        sent
    }

    /// Flushes first: a heartbeat that named lines not yet sent would make each subscriber take them for lost.
    fn heartbeat(&mut self, ring: &RingWriter, now: Nanos, ended: bool) {
        self.flush(ring, now);
        let counters = &mut self.counters;
        let Some(gear) = &mut self.gear else {
            counters.heartbeats_skipped += 1;
            return;
        };
        gear.reap(counters);
        gear.watch(now, self.deadline_ns, counters);
        if !self.cutter.is_at_head(ring) || gear.room() == 0 || gear.failure.is_some() {
            counters.heartbeats_skipped += 1;
        } else {
            gear.push(self.cutter.heartbeat(ring, now, ended), now, counters);
            gear.post(counters);
        }
        if gear.failure.is_some() {
            self.give_back();
        }
    }

    fn lines_unsent(&self) -> u64 {
        self.counters.lines_dropped + self.counters.lines_skipped + self.counters.lines_passed_over
    }
}

/// The cold half of a sender. See the [module](crate::rdma).
pub struct UdTxKeeper(Core<TxSide>);

impl UdTxKeeper {
    /// One turn: watches, mends, destroys. Makes system calls and allocates. Never waits.
    pub fn do_work(&mut self, now: Nanos) -> usize {
        self.0.do_work(now)
    }

    /// What happened, oldest first.
    pub fn next_event(&mut self) -> Option<UdEvent> {
        self.0.next_event()
    }

    /// Sends to another queue pair from now on: that of a receiver which was built anew. For a lane to one queue pair
    /// ([`UdTx::open_to`]); it is built anew for that, with a source of its own.
    ///
    /// # Panics
    /// If the lane sends to a group.
    pub fn redirect(&mut self, peer: UdPeer, now: Nanos) {
        self.0.redirect(peer, now);
    }

    /// What receivers see as the sender, and must expect: they drop all others. While the lane is being built anew, what it
    /// was before.
    pub fn source(&self) -> UdSource {
        self.0.source()
    }

    /// The port that it sends from, as it was when the lane was last built.
    pub fn local(&self) -> &LocalPort {
        self.0.local()
    }

    /// The queue pair, to ask the device about it; `None` while the lane is being built anew.
    pub fn queue_pair(&self) -> Option<&QueuePair> {
        self.0.queue_pair()
    }

    /// What it has seen and done.
    pub fn counters(&self) -> &UdKeeperCounters {
        self.0.counters()
    }
}
