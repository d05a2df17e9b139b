//! Keepers: what watches a UD lane, and builds it anew when it fails.
//!
//! Both directions share one state machine. It is either *working*, with a lane in the hot half's hands, or *mending*:
//! trying every 100 ms to look the port up, join the group and build. An event that makes mending worth a try at once (the
//! port is up, its addresses changed) does not wait for the 100 ms, unless the last try was less than that ago.

use std::collections::VecDeque;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;

use protocol::time::Nanos;

use super::super::completion::{Reaction, Status};
use super::super::error::RdmaError;
use super::super::event::EventReaction;
use super::super::local::LocalPort;
use super::super::mailbox::{Inbox, Outbox};
use super::super::multicast::{GroupAddress, MulticastJoin, MulticastMembership};
use super::super::queue_pair::QueuePair;
use super::{AsyncEvent, EventKind, UdFailure, UdOptions, UdPeer, UdSource};

/// From one try to mend a lane to the next.
const RETRY_NS: u64 = 100_000_000;
/// How often a lane that cannot be mended is complained of.
const COMPLAIN_NS: u64 = 1_000_000_000;
/// How long a join may take before it is begun again.
const JOIN_NS: u64 = 5_000_000_000;
/// What waits to be told at most; the oldest is dropped and counted.
const MAX_EVENTS: usize = 256;
/// A completion queue that overflowed is made twice as long, no more often than this.
const MAX_DOUBLINGS: u32 = 4;

/// What happened to a UD lane: its owner is told.
#[derive(Debug)]
pub enum UdEvent {
    /// The port is down: nothing goes out and nothing comes in until it is up.
    PortDown,
    /// The lane failed, and is being built anew.
    Failed(UdFailure),
    /// The lane was built anew.
    Mended {
        /// The sender as receivers must expect it from now on; of a receiver, its own port and queue pair.
        source: UdSource,
    },
    /// The lane could not be built anew; it is tried again. Said once a second at most.
    CannotMend(RdmaError),
    /// What the device said, where nothing is to be done about it here.
    Device(AsyncEvent),
}

/// What a keeper has seen and done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UdKeeperCounters {
    /// Asynchronous events of the device.
    pub device_events: u64,
    /// Failures of the lane.
    pub failures: u64,
    /// Those among them that are this program's own fault.
    pub own_faults: u64,
    /// Times that the port was looked up again because its addresses changed, and nothing had changed for this lane.
    pub unchanged: u64,
    /// Tries to build the lane anew.
    pub tries: u64,
    /// Times that it was built anew.
    pub mended: u64,
    /// Times that the device was opened anew for that.
    pub reopened: u64,
    /// Events dropped because nobody asked for them.
    pub events_dropped: u64,
}

/// From a keeper to its hot half.
pub(super) enum Order<G, P> {
    /// Give back what you have.
    Recall,
    /// Take this.
    Gear(Box<G>),
    /// Whom to accept.
    Sources(Box<P>),
}

/// From a hot half to its keeper.
pub(super) enum Return<G, P> {
    Gear(Box<G>),
    Sources(Box<P>),
}

/// Where datagrams go to or come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Target {
    /// The group of the options.
    Group,
    /// One queue pair.
    Peer(UdPeer),
    /// Whatever is sent to the own queue pair.
    Own,
}

/// What was built: for the hot half, and for both.
pub(super) type Built<S> = (Box<<S as Side>::Gear>, Arc<<S as Side>::Equipment>);

/// One direction: what it is built of.
pub(super) trait Side: Sized {
    /// What the hot half works with.
    type Gear: Send;
    /// What is destroyed when neither half needs it any more.
    type Equipment: Send + Sync;
    /// Whom to accept.
    type Sources: Send;

    /// Everything, for `local`. `scale`: how many times longer than needed the completion queue is.
    fn build(
        &self,
        options: &UdOptions,
        local: &LocalPort,
        target: Target,
        group: Option<&GroupAddress>,
        scale: usize,
    ) -> Result<Built<Self>, RdmaError>;

    /// What receives; a sender attaches nothing.
    fn attach(equipment: &Self::Equipment, membership: &mut MulticastMembership) -> Result<(), RdmaError>;

    fn check(&self, options: &UdOptions, local: &LocalPort) -> Result<(), RdmaError>;
    fn queue_pair(equipment: &Self::Equipment) -> &QueuePair;
    fn qkey(equipment: &Self::Equipment) -> u32;
    /// Why the hot half gave it back, if it did so by itself, and the number of its queue pair.
    fn verdict(gear: &Self::Gear) -> (u32, Option<UdFailure>);
}

/// A lane that works.
struct Kept<E> {
    // Before the queue pair that is attached to it.
    membership: Option<MulticastMembership>,
    equipment: Arc<E>,
    number: u32,
}

/// A lane that does not.
struct Mending {
    next_try: Nanos,
    said_at: Nanos,
    join: Option<(LocalPort, MulticastJoin, Nanos)>,
}

type Gear<S> = <S as Side>::Gear;
type Sources<S> = <S as Side>::Sources;

/// The state machine of both keepers.
pub(super) struct Core<S: Side> {
    side: S,
    options: UdOptions,
    target: Target,
    // Before the device.
    kept: Option<Kept<S::Equipment>>,
    mending: Option<Mending>,
    local: LocalPort,
    /// The device is to be opened anew before anything is built.
    reopen: bool,
    /// Times that the completion queue was doubled.
    doublings: u32,
    source: UdSource,
    peer: UdPeer,
    last_try: Nanos,
    orders: Outbox<Order<Gear<S>, Sources<S>>>,
    /// Orders that found the box full, oldest first.
    unposted: VecDeque<Order<Gear<S>, Sources<S>>>,
    returns: Inbox<Return<Gear<S>, Sources<S>>>,
    events: VecDeque<UdEvent>,
    counters: UdKeeperCounters,
}

impl<S: Side> Core<S> {
    /// Opens the lane, waiting for the group to be joined; what was built goes to the hot half by the mailbox.
    pub(super) fn open(
        side: S,
        options: &UdOptions,
        target: Target,
        orders: Outbox<Order<Gear<S>, Sources<S>>>,
        returns: Inbox<Return<Gear<S>, Sources<S>>>,
    ) -> Result<Core<S>, RdmaError> {
        let local = LocalPort::find(options.device.as_deref(), options.address)?;
        side.check(options, &local)?;
        let membership = match target {
            Target::Group => Some(MulticastMembership::join(&local, options.group)?),
            Target::Peer(_) | Target::Own => None,
        };
        let nobody = UdSource { gid: local.gid.gid, queue_pair: 0 };
        let mut core = Core {
            side,
            options: options.clone(),
            target,
            kept: None,
            mending: None,
            peer: UdPeer { gid: local.gid.gid, lid: local.port.lid, queue_pair: 0, qkey: 0 },
            local,
            reopen: false,
            doublings: 0,
            source: nobody,
            last_try: Nanos::ZERO,
            orders,
            unposted: VecDeque::new(),
            returns,
            events: VecDeque::new(),
            counters: UdKeeperCounters::default(),
        };
        core.build(core.local.clone(), membership)?;
        // What the device says from here on is about this lane.
        Ok(core)
    }

    pub(super) fn do_work(&mut self, now: Nanos) -> usize {
        let mut work = self.post();
        while let Some(returned) = self.returns.take() {
            work += 1;
            match returned {
                Return::Gear(gear) => {
                    let (number, failure) = S::verdict(&gear);
                    if let Some(failure) = failure.filter(|_| self.number() == Some(number)) {
                        self.fail(failure, now);
                    }
                }
                Return::Sources(sources) => drop(sources),
            }
        }
        loop {
            match self.local.device.next_event() {
                Ok(Some(event)) => {
                    work += 1;
                    self.counters.device_events += 1;
                    self.react(event, now);
                }
                Ok(None) => break,
                Err(error) => {
                    // Nothing more comes from a device that is gone.
                    if self.mending.is_none() {
                        self.fail(UdFailure::Event(EventKind::DeviceFatal), now);
                        self.tell(UdEvent::CannotMend(error));
                    }
                    self.reopen = true;
                    break;
                }
            }
        }
        let is_lost =
            self.kept.as_ref().and_then(|kept| kept.membership.as_ref()).is_some_and(MulticastMembership::is_lost);
        if is_lost {
            work += 1;
            self.stop(now);
        }
        work + self.mend(now)
    }

    pub(super) fn next_event(&mut self) -> Option<UdEvent> {
        self.events.pop_front()
    }

    pub(super) fn counters(&self) -> &UdKeeperCounters {
        &self.counters
    }

    pub(super) fn local(&self) -> &LocalPort {
        &self.local
    }

    pub(super) fn source(&self) -> UdSource {
        self.source
    }

    pub(super) fn peer(&self) -> UdPeer {
        self.peer
    }

    pub(super) fn queue_pair(&self) -> Option<&QueuePair> {
        self.kept.as_ref().map(|kept| S::queue_pair(&kept.equipment))
    }

    pub(super) fn redirect(&mut self, peer: UdPeer, now: Nanos) {
        assert!(matches!(self.target, Target::Peer(_)), "a lane to {:?}", self.target);
        self.target = Target::Peer(peer);
        self.stop(now);
    }

    pub(super) fn regroup(&mut self, group: Ipv4Addr, qkey: u32, now: Nanos) {
        assert!(self.target == Target::Group, "a lane to {:?}", self.target);
        if (self.options.group, self.options.qkey) != (group, qkey) {
            (self.options.group, self.options.qkey) = (group, qkey);
            self.stop(now);
        }
    }

    fn number(&self) -> Option<u32> {
        self.kept.as_ref().map(|kept| kept.number)
    }

    fn tell(&mut self, event: UdEvent) {
        if self.events.len() == MAX_EVENTS {
            self.events.pop_front();
            self.counters.events_dropped += 1;
        }
        self.events.push_back(event);
    }

    /// Sends an order to the hot half, behind those that wait already.
    pub(super) fn order(&mut self, order: Order<Gear<S>, Sources<S>>) {
        if matches!(order, Order::Sources(_)) {
            // Only the last word counts, and so what waits stays bounded.
            self.unposted.retain(|waiting| !matches!(waiting, Order::Sources(_)));
        }
        self.unposted.push_back(order);
        self.post();
    }

    /// Posts what has waited; returns how much there was room for.
    fn post(&mut self) -> usize {
        let mut posted = 0;
        while let Some(order) = self.unposted.pop_front() {
            if let Err(order) = self.orders.post(order) {
                self.unposted.push_front(order);
                break;
            }
            posted += 1;
        }
        posted
    }

    /// Does what an event asks for.
    fn react(&mut self, event: AsyncEvent, now: Nanos) {
        let is_our_port = event.port == Some(self.local.port.number);
        let is_our_queue_pair = event.queue_pair.is_some() && event.queue_pair == self.number();
        match event.kind.reaction() {
            // Each lane has a completion queue of its own, on a context of its own: there is no other.
            EventReaction::RebuildCompletionQueue if self.kept.is_some() => {
                self.doublings = (self.doublings + 1).min(MAX_DOUBLINGS);
                self.fail(UdFailure::Event(event.kind), now);
            }
            // A datagram's sender has no connection that could be dropped: the queue pair is in error all the same.
            EventReaction::RebuildQueuePair | EventReaction::DropPeer if is_our_queue_pair => {
                self.fail(UdFailure::Event(event.kind), now);
            }
            EventReaction::ReopenDevice => {
                self.reopen = true;
                self.fail(UdFailure::Event(event.kind), now);
            }
            EventReaction::PortDown if is_our_port => {
                self.tell(UdEvent::PortDown);
                self.stop(now);
            }
            EventReaction::RefreshPort if is_our_port => self.stop(now),
            EventReaction::CheckAddress if is_our_port => {
                if self.mending.is_none() && self.is_unchanged() {
                    self.counters.unchanged += 1;
                } else {
                    self.stop(now);
                }
            }
            _ => self.tell(UdEvent::Device(event)),
        }
    }

    /// Whether the port is still what the lane was built on.
    fn is_unchanged(&self) -> bool {
        let key = |local: &LocalPort| {
            let port = &local.port;
            (local.fabric, local.gid.gid, local.gid.index, local.pkey_index, port.number, port.lid, port.active_mtu)
        };
        self.local.look_again().is_ok_and(|now| key(&now) == key(&self.local))
    }

    fn fail(&mut self, failure: UdFailure, now: Nanos) {
        if self.kept.is_none() {
            return;
        }
        self.counters.failures += 1;
        self.counters.own_faults += u64::from(failure.is_own_fault());
        self.tell(UdEvent::Failed(failure));
        self.stop(now);
    }

    /// Lets go of what there is, and mends from now on, or goes on mending with a try at once.
    fn stop(&mut self, now: Nanos) {
        if self.kept.take().is_some() {
            self.order(Order::Recall);
        }
        // The first try comes at once, unless the last was just now.
        let next_try = now.max(self.last_try.plus(RETRY_NS));
        let next_try = if self.last_try == Nanos::ZERO { now } else { next_try };
        match &mut self.mending {
            Some(mending) => {
                mending.next_try = mending.next_try.min(next_try);
                // What it is joined with may be what changed.
                mending.join = None;
            }
            None => self.mending = Some(Mending { next_try, said_at: now, join: None }),
        }
    }

    /// Tries to mend, if it is time to.
    fn mend(&mut self, now: Nanos) -> usize {
        // The hot half has not taken in yet what was built before: building more would be for nothing.
        let Some(mending) = self.mending.as_mut().filter(|_| self.unposted.is_empty()) else { return 0 };
        let outcome = match mending.join.take() {
            Some((local, mut join, until)) => match join.poll() {
                Ok(None) if now < until => {
                    mending.join = Some((local, join, until));
                    return 0;
                }
                Ok(None) => Err(join.timed_out()),
                Ok(Some(membership)) => self.build(local, Some(membership)),
                Err(error) => Err(error),
            },
            None if now >= mending.next_try => {
                mending.next_try = now.plus(RETRY_NS);
                self.last_try = now;
                self.counters.tries += 1;
                match self.begin(now) {
                    Ok(Some(local)) => self.build(local, None),
                    Ok(None) => return 1,
                    Err(error) => Err(error),
                }
            }
            None => return 0,
        };
        match outcome {
            Ok(()) => {
                self.mending = None;
                self.counters.mended += 1;
                self.tell(UdEvent::Mended { source: self.source });
            }
            Err(error) => {
                // A port that is down, an address that is gone: waiting helps. Whatever else, a fresh start may.
                let waits = matches!(
                    error,
                    RdmaError::PortDown { .. }
                        | RdmaError::NoGid { .. }
                        | RdmaError::NoAddress { .. }
                        | RdmaError::Mtu { .. }
                );
                self.reopen |= !waits;
                let mending = self.mending.as_mut().expect("still mending");
                if now.since(mending.said_at) >= COMPLAIN_NS as i64 {
                    mending.said_at = now;
                    self.tell(UdEvent::CannotMend(error));
                }
            }
        }
        1
    }

    /// Looks the port up again, and begins to join the group; without one, the port can be built on at once.
    fn begin(&mut self, now: Nanos) -> Result<Option<LocalPort>, RdmaError> {
        let local = if self.reopen {
            let local = LocalPort::find(self.options.device.as_deref(), self.options.address)?;
            self.reopen = false;
            self.counters.reopened += 1;
            local
        } else {
            self.local.look_again()?
        };
        self.side.check(&self.options, &local)?;
        // Events come from the device that is in use.
        self.local = local.clone();
        if self.target != Target::Group {
            return Ok(Some(local));
        }
        let join = MulticastJoin::begin(&local, self.options.group)?;
        self.mending.as_mut().expect("mending").join = Some((local, join, now.plus(JOIN_NS)));
        Ok(None)
    }

    /// Builds on `local`, and hands it to the hot half.
    fn build(&mut self, local: LocalPort, mut membership: Option<MulticastMembership>) -> Result<(), RdmaError> {
        let group = membership.as_ref().map(|membership| *membership.address());
        let scale = 1 << self.doublings;
        let (gear, equipment) = self.side.build(&self.options, &local, self.target, group.as_ref(), scale)?;
        if let Some(membership) = &mut membership {
            S::attach(&equipment, membership)?;
        }
        let number = S::queue_pair(&equipment).number();
        self.source = UdSource { gid: local.gid.gid, queue_pair: number };
        self.peer = UdPeer { gid: local.gid.gid, lid: local.port.lid, queue_pair: number, qkey: S::qkey(&equipment) };
        self.local = local;
        self.kept = Some(Kept { membership, equipment, number });
        self.order(Order::Gear(gear));
        Ok(())
    }
}

/// Whether an ending is the end of a UD lane: it has no peer that could be dropped, so whatever is not success is. What was
/// flushed says only that the queue pair was in error already.
pub(super) fn is_failure(reaction: Reaction) -> bool {
    match reaction {
        Reaction::Reclaim => false,
        Reaction::Ignore | Reaction::DropPeer | Reaction::RefusePeer | Reaction::OwnFault | Reaction::Rebuild => true,
    }
}

/// Keeps `status` as why the lane failed, unless something else was why before. What was flushed is not why, if anything
/// else is known.
pub(super) fn note(failure: &mut Option<UdFailure>, status: Status) {
    match failure {
        None | Some(UdFailure::Completion(Status::Flushed)) => *failure = Some(UdFailure::Completion(status)),
        Some(_) => {}
    }
}

/// Whether a refused post means that the queue pair is of no use any more. A full queue comes free again.
pub(super) fn refusal(error: &io::Error) -> Option<i32> {
    match error.raw_os_error() {
        Some(libc::ENOMEM | libc::EAGAIN) => None,
        errno => Some(errno.unwrap_or(0)),
    }
}
