//! The receiving half of a UD lane.

use std::net::Ipv4Addr;
use std::sync::Arc;

use protocol::packet::Refused;
use protocol::record::ChannelId;
use protocol::run::{Carrier, RunSink};
use protocol::time::Nanos;

use super::super::completion::{Completion, CompletionQueue};
use super::super::device::{Fabric, Gid};
use super::super::domain::Domain;
use super::super::error::RdmaError;
use super::super::local::LocalPort;
use super::super::mailbox::{Inbox, Outbox, mailbox};
use super::super::multicast::{GroupAddress, MulticastMembership};
use super::super::queue_pair::{Depths, Piece, QueuePair, ReceiveList, Service};
use super::super::region::{Region, Rights};
use super::keeper::{Built, Core, Order, Return, Side, Target, UdEvent, UdKeeperCounters, is_failure, note};
use super::{
    BATCH, BUFFER_OFFSET, BUFFER_STRIDE, GRH_LEN, ORDERS, PACKET_LEN, RETURNS, UdFailure, UdOptions, UdPeer, UdSource,
    slab,
};
use crate::datagram::hand_up;
use crate::lane::LaneRx;
use crate::memory::Mapping;

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

/// What a receiver is built of: made and destroyed by the keeper.
pub(super) struct RxEquipment {
    // Before the region that it receives into.
    queue_pair: Arc<QueuePair>,
    region: Region,
    completions: Arc<CompletionQueue>,
    slab: Arc<Mapping>,
    qkey: u32,
    depth: usize,
    buffer_len: usize,
    /// What the 40 bytes before a datagram are follows from it.
    fabric: Fabric,
}

/// What the hot half works with: the equipment, and what was taken from it.
pub(super) struct RxGear {
    equipment: Arc<RxEquipment>,
    batch: [Completion; BATCH],
    filled: usize,
    taken: usize,
    /// Buffers taken from the device since a poll last found nothing more.
    in_a_row: usize,
    list: ReceiveList,
    failure: Option<UdFailure>,
}

/// Whom a receiver accepts.
#[derive(Default)]
pub(super) struct Sources {
    /// Nobody else; anybody, if empty.
    expected: Vec<UdSource>,
    /// The own senders, whom the network brings back.
    own: Vec<UdSource>,
}

/// How receivers are built.
pub(super) struct RxSide;

impl Side for RxSide {
    type Gear = RxGear;
    type Equipment = RxEquipment;
    type Sources = Sources;

    fn check(&self, options: &UdOptions, local: &LocalPort) -> Result<(), RdmaError> {
        options.require_port(local, options.max_lines.unwrap_or(1))?;
        options.require(local, "the receive queue", options.receive_depth, 1)
    }

    fn build(
        &self,
        options: &UdOptions,
        local: &LocalPort,
        _: Target,
        group: Option<&GroupAddress>,
        scale: usize,
    ) -> Result<Built<Self>, RdmaError> {
        let depth = options.receive_depth;
        let domain = Domain::new(&local.device)?;
        let slab = slab(local, depth * BUFFER_STRIDE)?;
        let (address, len) = slab.extent();
        let region = Region::new(&domain, &slab, address, len, Rights::Receive)?;
        let completions = (depth * scale).min(local.device.limits().completions);
        let completions = Arc::new(CompletionQueue::new(&local.device, completions)?);
        let depths = Depths { send: 1, receive: depth };
        let queue_pair = Arc::new(QueuePair::new(&domain, Service::Ud, &completions, &completions, depths)?);
        let qkey = options.qkey_of(local, group);
        queue_pair.open_ud(local, qkey)?;
        let buffer_len = GRH_LEN + PACKET_LEN.min(local.port.active_mtu);
        let fabric = local.fabric;
        let equipment =
            Arc::new(RxEquipment { queue_pair, region, completions, slab, qkey, depth, buffer_len, fabric });
        let mut gear = RxGear {
            equipment: Arc::clone(&equipment),
            batch: [Completion::empty(); BATCH],
            filled: 0,
            taken: 0,
            in_a_row: 0,
            list: ReceiveList::new(),
            failure: None,
        };
        let mut counters = UdRxCounters::default();
        for buffer in 0..depth {
            gear.give_back(buffer as u64, &mut counters);
        }
        gear.post(&mut counters);
        if counters.not_reposted > 0 {
            return Err(RdmaError::Limit {
                device: local.device.name().to_owned(),
                what: "the receive queue",
                value: depth as u64,
                allowed: format!("what the device takes, {}", depth as u64 - counters.not_reposted),
            });
        }
        Ok((Box::new(gear), equipment))
    }

    fn attach(equipment: &RxEquipment, membership: &mut MulticastMembership) -> Result<(), RdmaError> {
        membership.attach(&equipment.queue_pair)
    }

    fn queue_pair(equipment: &RxEquipment) -> &QueuePair {
        &equipment.queue_pair
    }

    fn qkey(equipment: &RxEquipment) -> u32 {
        equipment.qkey
    }

    fn verdict(gear: &RxGear) -> (u32, Option<UdFailure>) {
        (gear.equipment.queue_pair.number(), gear.failure)
    }
}

/// The hot half of a receiver. See the [module](crate::rdma).
///
/// The card writes datagrams into buffers set aside by the keeper; lines are handed up where they lie, and the buffers are
/// given back to the card after that, in batches. Allocates nothing, and makes no system call that the device's driver does
/// not make.
pub struct UdRx {
    /// `None` while the lane is being built anew.
    gear: Option<Box<RxGear>>,
    /// The gear is to go back when it is emptied.
    is_recalled: bool,
    sources: Box<Sources>,
    orders: Inbox<Order<RxGear, Sources>>,
    returns: Outbox<Return<RxGear, Sources>>,
    channel: ChannelId,
    counters: UdRxCounters,
}

impl UdRx {
    /// Joins the group and listens for packets of `channel`, from whichever sender until
    /// [`expect`](UdRxKeeper::expect) says from whom.
    ///
    /// # Errors
    /// As [`UdTx::open`](super::UdTx::open).
    pub fn open(options: &UdOptions, channel: ChannelId) -> Result<(UdRx, UdRxKeeper), RdmaError> {
        UdRx::open_at(options, Target::Group, channel)
    }

    /// Listens for packets of `channel` that are sent to it alone: its keeper tells where ([`UdRxKeeper::peer`]). The group
    /// of the options is left alone.
    ///
    /// # Errors
    /// As [`open`](UdRx::open).
    pub fn open_unicast(options: &UdOptions, channel: ChannelId) -> Result<(UdRx, UdRxKeeper), RdmaError> {
        UdRx::open_at(options, Target::Own, channel)
    }

    fn open_at(options: &UdOptions, target: Target, channel: ChannelId) -> Result<(UdRx, UdRxKeeper), RdmaError> {
        let (orders, to_hot) = mailbox(ORDERS);
        let (to_keeper, returns) = mailbox(RETURNS);
        let core = Core::open(RxSide, options, target, orders, returns)?;
        let mut rx = UdRx {
            gear: None,
            is_recalled: false,
            sources: Box::default(),
            orders: to_hot,
            returns: to_keeper,
            channel,
            counters: UdRxCounters::default(),
        };
        rx.answer();
        Ok((rx, UdRxKeeper { core, sources: (Vec::new(), Vec::new()) }))
    }

    /// What it has seen so far.
    pub fn counters(&self) -> &UdRxCounters {
        &self.counters
    }

    /// Whether it receives: not while it is being built anew.
    pub fn is_working(&self) -> bool {
        self.gear.is_some()
    }

    /// Does what the keeper asks for. What was received before goes up first.
    #[cold]
    fn answer(&mut self) {
        while !self.is_recalled
            && let Some(order) = self.orders.take()
        {
            match order {
                Order::Recall => self.is_recalled = self.gear.is_some(),
                Order::Gear(gear) => {
                    self.return_gear();
                    self.gear = Some(gear);
                }
                Order::Sources(sources) => {
                    let before = std::mem::replace(&mut self.sources, sources);
                    let _ = self.returns.post(Return::Sources(before));
                }
            }
        }
    }

    /// Gives the gear back to be destroyed. The box has room for all there can be; only if the keeper is gone is it
    /// destroyed here.
    #[cold]
    fn return_gear(&mut self) {
        self.is_recalled = false;
        if let Some(gear) = self.gear.take() {
            let _ = self.returns.post(Return::Gear(gear));
        }
    }
}

impl RxGear {
    /// Puts a buffer on the list of those to be posted.
    fn give_back(&mut self, buffer: u64, counters: &mut UdRxCounters) {
        let equipment = &*self.equipment;
        let piece = Piece {
            address: equipment.region.address() + buffer * BUFFER_STRIDE as u64 + BUFFER_OFFSET as u64,
            len: equipment.buffer_len,
            key: equipment.region.local_key(),
        };
        self.list.push(buffer, piece);
        if self.list.is_full() {
            self.post(counters);
        }
    }

    fn post(&mut self, counters: &mut UdRxCounters) {
        let count = self.list.len();
        // SAFETY: buffers lie in the region, which the card may write; each is on the list only while nobody borrows from
        // it: lines are handed up and done with before their buffer is given back.
        if let Err((taken, error)) = unsafe { self.equipment.queue_pair.post_receives(&mut self.list) } {
            counters.not_reposted += (count - taken) as u64;
            // The queue has room for every buffer there is, so even a full one is a failure; and a buffer that does not go
            // back is one less for as long as this queue pair lives, until there is none and nothing comes, without a word.
            self.failure.get_or_insert(UdFailure::NotPosted { errno: error.raw_os_error().unwrap_or(0) });
        }
    }

    /// Takes the next batch of completions. The batch before has been dealt with, and its buffers go back now.
    fn receive(&mut self, counters: &mut UdRxCounters) {
        for place in 0..self.filled {
            self.give_back(self.batch[place].id(), counters);
        }
        self.post(counters);
        self.taken = 0;
        self.filled = self.equipment.completions.poll(&mut self.batch);
        self.in_a_row = if self.filled == 0 { 0 } else { self.in_a_row + self.filled };
        if self.filled > 0 && self.in_a_row >= self.equipment.depth {
            counters.starved += 1;
            self.in_a_row = 0;
        }
    }
}

impl LaneRx for UdRx {
    fn poll<S: RunSink>(&mut self, _now: Nanos, limit: usize, sink: &mut S) -> usize {
        if self.orders.has_mail() {
            self.answer();
        }
        let counters = &mut self.counters;
        let Some(gear) = &mut self.gear else { return 0 };
        let mut lines = 0;
        // Each packet counts at least one, so that a flood of foreign packets cannot keep the caller here.
        let mut work = 0;
        let mut is_empty = false;
        while work < limit {
            if gear.taken == gear.filled {
                // A batch that was not full emptied the queue; the next poll asks again.
                if work > 0 && gear.filled < BATCH {
                    break;
                }
                gear.receive(counters);
                if gear.filled == 0 {
                    is_empty = true;
                    break;
                }
            }
            let completion = gear.batch[gear.taken];
            gear.taken += 1;
            work += 1;
            let status = completion.status();
            if is_failure(status.reaction()) {
                counters.failed += 1;
                note(&mut gear.failure, status);
                continue;
            }
            let len = completion.byte_len();
            if len < GRH_LEN || len > gear.equipment.buffer_len {
                counters.short += 1;
                continue;
            }
            let start = completion.id() as usize * BUFFER_STRIDE + BUFFER_OFFSET;
            // SAFETY: a completed buffer is the card's no more, until it is given back in `receive`. The borrow ends
            // within this turn of the loop.
            let bytes = unsafe { gear.equipment.slab.bytes(start, len) };
            let (header, packet) = bytes.split_at(GRH_LEN);
            let fabric = gear.equipment.fabric;
            let gid = if completion.has_grh() { source_gid(header, fabric) } else { Gid::default() };
            let source = UdSource { gid, queue_pair: completion.source_queue_pair() };
            if self.sources.own.contains(&source) {
                counters.own += 1;
                continue;
            }
            if !self.sources.expected.is_empty() && !self.sources.expected.contains(&source) {
                counters.foreign += 1;
                continue;
            }
            match hand_up(packet, self.channel, true, Carrier::RdmaUd, sink) {
                Ok(0) => counters.heartbeats += 1,
                Ok(count) => {
                    counters.packets += 1;
                    lines += count;
                    work += count - 1;
                }
                Err(refused) => counters.refused[refused.index()] += 1,
            }
        }
        counters.lines += lines as u64;
        // What came before the failure has gone up: a failed queue pair brings nothing more but what it flushes.
        if gear.failure.is_some() || (self.is_recalled && is_empty) {
            self.return_gear();
        }
        lines
    }
}

/// The cold half of a receiver. See the [module](crate::rdma).
pub struct UdRxKeeper {
    core: Core<RxSide>,
    /// Those expected, and the own ones.
    sources: (Vec<UdSource>, Vec<UdSource>),
}

impl UdRxKeeper {
    /// One turn: watches, mends, destroys. Makes system calls and allocates. Never waits.
    pub fn do_work(&mut self, now: Nanos) -> usize {
        self.core.do_work(now)
    }

    /// What happened, oldest first.
    pub fn next_event(&mut self) -> Option<UdEvent> {
        self.core.next_event()
    }

    /// Takes datagrams of these senders only from the hot half's next poll on, and drops and counts all others. With none,
    /// any sender is taken.
    pub fn expect(&mut self, sources: Vec<UdSource>) {
        self.sources.0 = sources;
        self.send_sources();
    }

    /// Receives from another group, or with another key, from now on: the publisher is another one. The lane is built anew
    /// for that, unless it has both already. For a lane of a group ([`UdRx::open`]).
    ///
    /// # Panics
    /// If the lane has no group.
    pub fn regroup(&mut self, group: Ipv4Addr, qkey: u32, now: Nanos) {
        self.core.regroup(group, qkey, now);
    }

    /// Drops and counts datagrams of these senders: the own ones, which the network brings back.
    pub fn ignore_own(&mut self, own: Vec<UdSource>) {
        self.sources.1 = own;
        self.send_sources();
    }

    fn send_sources(&mut self) {
        let (expected, own) = self.sources.clone();
        self.core.order(Order::Sources(Box::new(Sources { expected, own })));
    }

    /// Where a sender must send to reach it alone. While the lane is being built anew, what it was before.
    pub fn peer(&self) -> UdPeer {
        self.core.peer()
    }

    /// The port that it receives on, as it was when the lane was last built.
    pub fn local(&self) -> &LocalPort {
        self.core.local()
    }

    /// The queue pair, to ask the device about it; `None` while the lane is being built anew.
    pub fn queue_pair(&self) -> Option<&QueuePair> {
        self.core.queue_pair()
    }

    /// What it has seen and done.
    pub fn counters(&self) -> &UdKeeperCounters {
        self.core.counters()
    }
}

/// The sender's GID, from the 40 bytes before a datagram: InfiniBand's routing header, which is laid out as IPv6's is; on RoCE
/// that, or 20 unused bytes and an IPv4 header.
fn source_gid(header: &[u8], fabric: Fabric) -> Gid {
    // The 20 bytes before an IPv4 header are zeroes on some devices and undefined on others, so that one is looked for first:
    // version 4, five words. On InfiniBand the byte is one of the sender's port number, and may be anything.
    if fabric == Fabric::RoceV2 && header[20] == 0x45 {
        let source: [u8; 4] = header[32..36].try_into().expect("four bytes");
        return Gid::from_ipv4(source.into());
    }
    Gid(header[8..24].try_into().expect("sixteen bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sender_is_read_from_either_kind_of_header() {
        let mut header = [0; GRH_LEN];
        header[20] = 0x45;
        header[32..36].copy_from_slice(&[10, 99, 0, 1]);
        header[36..40].copy_from_slice(&[239, 1, 2, 3]);
        assert_eq!(source_gid(&header, Fabric::RoceV2), Gid::from_ipv4(Ipv4Addr::new(10, 99, 0, 1)));
        let mut header = [0; GRH_LEN];
        header[0] = 0x60;
        header[8..24].copy_from_slice(&[0xFE; 16]);
        for fabric in [Fabric::RoceV2, Fabric::InfiniBand] {
            assert_eq!(source_gid(&header, fabric), Gid([0xFE; 16]));
        }
    }

    #[test]
    fn no_byte_of_a_port_number_on_infiniband_is_taken_for_an_ipv4_header() {
        for byte in 0..=255 {
            let mut header = [0; GRH_LEN];
            header[0] = 0x60;
            let gid = [0xFE, 0x80, 0, 0, 0, 0, 0, 0, 0x24, 0x8A, 0x07, 3, byte, 0x11, 0x22, 0x33];
            header[8..24].copy_from_slice(&gid);
            assert_eq!(source_gid(&header, Fabric::InfiniBand), Gid(gid), "{byte:#x}");
        }
    }
}
