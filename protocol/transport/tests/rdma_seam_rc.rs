//! RC lanes before devices that do what soft ones never do: every completion status and every asynchronous event leads to
//! its reaction, performed, and harms no neighbour; a connection's queue pair is told what its way wants.

#![forbid(unsafe_code)]

mod rdma_support;

use rdma_support::*;
use transport::rdma::seam::{AddressAttributes, Call, Direction, Modification, PathAnswer, Seam};
use transport::rdma::*;
use transport::ring::RingWriter;
use transport::{LaneRx, LaneTx};

/// `EINVAL`.
const EINVAL: i32 = 22;
/// Places of the subscribers' rings, and of the publisher's.
const LINES: usize = 1 << 12;

/// A publisher behind a seam with two subscribers, both of which have lines.
struct Pair {
    seam: Seam,
    ring: RingWriter,
    publisher: Publisher,
    subscribers: Vec<(RcTicket, Subscriber, Seen)>,
}

impl Pair {
    fn new(device: &str) -> Pair {
        let seam = Seam::install(device);
        let ring = ring(LINES);
        let mut publisher = Publisher::open(&rc_options(), &ring);
        let subscribers = (0..2).map(|_| {
            let (ticket, subscriber) = publisher.connect(LINES);
            (ticket, subscriber, Seen::default())
        });
        let subscribers = subscribers.collect();
        let mut pair = Pair { seam, ring, publisher, subscribers };
        pair.flows();
        pair.seam.take_calls();
        pair
    }

    /// Ten lines more come to everybody who is left.
    fn flows(&mut self) {
        put(&mut self.ring, 10);
        let next = self.ring.head().sequence().0;
        for (_, subscriber, seen) in &mut self.subscribers {
            until("ten lines", || {
                self.publisher.tx.flush(&self.ring, now());
                subscriber.rx.poll(now(), 1 << 12, seen);
                (seen.next == next).then_some(())
            });
        }
    }

    /// A line and a heartbeat, which asks for a completion, and a turn of the keeper.
    fn turn(&mut self) -> Option<RcTxEvent> {
        put(&mut self.ring, 1);
        self.publisher.tx.flush(&self.ring, now());
        self.publisher.tx.heartbeat(&self.ring, now(), false);
        std::thread::yield_now();
        self.publisher.event()
    }

    /// The number of a subscriber's queue pair at the publisher.
    fn number(&self, place: usize) -> u32 {
        self.publisher.tx.queue_pair(self.subscribers[place].0).expect("connected").number()
    }

    fn numbers(&self) -> [u32; 2] {
        [self.number(0), self.number(1)]
    }

    /// One of them is dropped: the other has everything, the place is free, and another subscriber takes it.
    fn sound_without(mut self, dropped: RcTicket, number: u32) {
        let place = self.subscribers.iter().position(|(ticket, ..)| *ticket == dropped).expect("one of them");
        self.subscribers.remove(place);
        self.flows();
        let calls = self.seam.take_calls();
        assert!(calls.contains(&Call::DestroyQueuePair { number }), "{calls:?}");
        assert_eq!(self.publisher.tx.peers().collect::<Vec<_>>(), [self.subscribers[0].0]);
        let (ticket, again) = self.publisher.connect(LINES);
        self.subscribers.push((ticket, again, Seen::default()));
        self.flows();
        self.publisher.nothing_happened();
    }
}

// ── Completions ──────────────────────────────────────────────────────────────────────────────────────────────────────

/// The next completion of a write ends so.
fn ends_with(status: Status, reaction: Reaction) {
    let mut pair = Pair::new("rxe0");
    let numbers = pair.numbers();
    pair.seam.complete_with(Direction::Send, &[status]);
    let mut event = None;
    until("completion", || {
        event = pair.turn();
        (pair.seam.statuses_left() == 0).then_some(())
    });
    if reaction == Reaction::Reclaim {
        assert!(event.is_none(), "{event:?}");
        pair.flows();
        assert_eq!(pair.numbers(), numbers);
        pair.publisher.nothing_happened();
        return;
    }
    let event = event.unwrap_or_else(|| until("connection dropped", || pair.turn()));
    let RcTxEvent::Dropped { ticket, why } = event else { panic!("{event:?}") };
    assert!(matches!(why, DropReason::Write(PeerFailure::Completion(told)) if told == status), "{why:?}");
    assert_eq!(why.reaction(), reaction);
    assert!(why.to_string().contains(&status.to_string()), "{why}");
    let place = usize::from(ticket != pair.subscribers[0].0);
    pair.sound_without(ticket, numbers[place]);
}

macro_rules! statuses {
    ($($name:ident: $status:ident, $reaction:ident;)*) => {
        mod write_that_ends_with {
            use super::*;
            $(#[test] fn $name() { ends_with(Status::$status, Reaction::$reaction); })*
        }

        #[test]
        fn no_status_is_forgotten() {
            assert_eq!(Status::ALL, [$(Status::$status),*]);
        }
    };
}

statuses! {
    success: Success, Reclaim;
    local_length: LocalLength, OwnFault;
    local_operation: LocalOperation, OwnFault;
    local_eec: LocalEec, OwnFault;
    local_protection: LocalProtection, OwnFault;
    flushed: Flushed, Ignore;
    window_bind: WindowBind, OwnFault;
    bad_response: BadResponse, DropPeer;
    local_access: LocalAccess, OwnFault;
    remote_invalid_request: RemoteInvalidRequest, RefusePeer;
    remote_access: RemoteAccess, RefusePeer;
    remote_operation: RemoteOperation, DropPeer;
    retry_exceeded: RetryExceeded, DropPeer;
    rnr_retry_exceeded: RnrRetryExceeded, DropPeer;
    local_rdd: LocalRdd, OwnFault;
    remote_invalid_read: RemoteInvalidRead, RefusePeer;
    remote_aborted: RemoteAborted, DropPeer;
    invalid_eecn: InvalidEecn, OwnFault;
    invalid_eec_state: InvalidEecState, OwnFault;
    fatal: Fatal, Rebuild;
    response_timeout: ResponseTimeout, DropPeer;
    general: General, Rebuild;
    tag_matching: TagMatching, OwnFault;
    tag_matching_incomplete: TagMatchingIncomplete, OwnFault;
}

#[test]
fn a_write_that_never_completes_is_noticed_by_the_deadline() {
    let seam = Seam::install("rxe0");
    let mut ring = ring(LINES);
    let options = RcOptions { deadline_ns: 100_000_000, ..rc_options() };
    let mut publisher = Publisher::open(&options, &ring);
    let (ticket, _subscriber) = publisher.connect(LINES);
    seam.swallow(Direction::Send, true);
    put(&mut ring, 1);
    publisher.tx.heartbeat(&ring, now(), false);
    let start = std::time::Instant::now();
    let (dropped, why) = publisher.dropped(&ring);
    println!("{why} (after {:?})", start.elapsed());
    assert_eq!((dropped, why.reaction()), (ticket, Reaction::DropPeer));
    assert!(
        matches!(why, DropReason::Write(PeerFailure::Deadline { waited_ns }) if waited_ns > 100_000_000),
        "{why:?}"
    );
}

#[test]
fn a_write_that_is_refused_drops_its_subscriber_alone() {
    let mut pair = Pair::new("rxe0");
    let numbers = pair.numbers();
    pair.seam.refuse_posts(Direction::Send, 1, EINVAL);
    let event = until("connection dropped", || pair.turn());
    let RcTxEvent::Dropped { ticket, why } = event else { panic!("{event:?}") };
    assert!(matches!(why, DropReason::Write(PeerFailure::NotPosted { errno }) if errno == EINVAL), "{why:?}");
    assert_eq!((ticket, why.reaction()), (pair.subscribers[0].0, Reaction::OwnFault));
    pair.sound_without(ticket, numbers[0]);
}

// ── Events ───────────────────────────────────────────────────────────────────────────────────────────────────────────

fn event_of(kind: EventKind, queue_pair: u32) -> AsyncEvent {
    AsyncEvent {
        kind,
        queue_pair: (kind.about() == About::QueuePair).then_some(queue_pair),
        port: (kind.about() == About::Port).then_some(1),
    }
}

/// The publisher's device says so.
fn publisher_told(kind: EventKind, reaction: EventReaction) {
    assert_eq!(kind.reaction(), reaction);
    let mut pair = Pair::new("rxe0");
    let numbers = pair.numbers();
    let event = event_of(kind, numbers[0]);
    pair.seam.inject(event);
    match reaction {
        EventReaction::Count => {
            pair.flows();
            pair.publisher.nothing_happened();
            assert_eq!((pair.numbers(), pair.seam.take_calls()), (numbers, vec![]));
        }
        EventReaction::RebuildQueuePair | EventReaction::DropPeer => {
            let told = until("connection dropped", || pair.turn());
            let RcTxEvent::Dropped { ticket, why } = told else { panic!("{told:?}") };
            assert!(matches!(why, DropReason::Device(told) if told == kind), "{why:?}");
            let wanted = if reaction == EventReaction::DropPeer { Reaction::DropPeer } else { Reaction::Rebuild };
            assert_eq!((ticket, why.reaction()), (pair.subscribers[0].0, wanted));
            pair.sound_without(ticket, numbers[0]);
        }
        EventReaction::RebuildCompletionQueue | EventReaction::ReopenDevice => {
            // Everybody hangs on it: all are dropped, by name, and the owner is told.
            let (mut dropped, mut said) = (Vec::new(), 0);
            until("all dropped", || {
                match pair.turn() {
                    Some(RcTxEvent::Dropped { ticket, why: DropReason::Device(why) }) if why == kind => {
                        dropped.push(ticket)
                    }
                    Some(RcTxEvent::Device(told)) if told == event => said += 1,
                    None => {}
                    Some(other) => panic!("{other:?}"),
                }
                (dropped.len() == 2 && said == 1).then_some(())
            });
            dropped.sort();
            let tickets: Vec<RcTicket> = pair.subscribers.iter().map(|(ticket, ..)| *ticket).collect();
            assert_eq!(dropped, tickets);
            let calls = pair.seam.take_calls();
            assert!(
                numbers.iter().all(|number| calls.contains(&Call::DestroyQueuePair { number: *number })),
                "{calls:?}"
            );
        }
        EventReaction::PortDown | EventReaction::RefreshPort | EventReaction::CheckAddress => {
            // A connection outlives it, or its writes do not end; its owner is told.
            let told = until("event", || pair.turn());
            assert!(matches!(told, RcTxEvent::Device(told) if told == event), "{told:?}");
            pair.flows();
            assert_eq!(pair.numbers(), numbers);
        }
    }
}

/// The subscriber's device says so.
fn subscriber_told(kind: EventKind, reaction: EventReaction) {
    let seam = Seam::install("rxe1");
    let mut ring = ring(LINES);
    let mut publisher = Publisher::open(&rc_options(), &ring);
    let (_, mut subscriber) = publisher.connect(LINES);
    let made = |call: &Call| match call {
        Call::CreateQueuePair { number, service: Some(Service::Rc), .. } => Some(*number),
        _ => None,
    };
    let number = seam.take_calls().iter().find_map(made).expect("one was made");
    let event = event_of(kind, number);
    seam.inject(event);
    let is_lost = matches!(
        reaction,
        EventReaction::RebuildQueuePair
            | EventReaction::DropPeer
            | EventReaction::RebuildCompletionQueue
            | EventReaction::ReopenDevice
    );
    let is_said = !matches!(reaction, EventReaction::Count | EventReaction::RebuildQueuePair | EventReaction::DropPeer);
    if is_lost {
        let told = until("loss", || subscriber.event());
        assert!(matches!(told, RcRxEvent::Lost { why: LostReason::Device(why) } if why == kind), "{told:?}");
        assert!(seam.take_calls().contains(&Call::DestroyQueuePair { number }));
    }
    if is_said {
        let told = until("event", || subscriber.event());
        assert!(matches!(told, RcRxEvent::Device(told) if told == event), "{told:?}");
    }
    if !is_lost {
        let mut seen = Seen::default();
        put(&mut ring, 10);
        until("ten lines", || {
            publisher.tx.flush(&ring, now());
            let told = subscriber.event();
            assert!(told.is_none(), "{told:?}");
            subscriber.rx.poll(now(), 1 << 12, &mut seen);
            (seen.lines == 10).then_some(())
        });
        assert_eq!(seam.take_calls(), []);
    }
}

macro_rules! events {
    ($($name:ident: $kind:ident, $reaction:ident;)*) => {
        mod publisher_told_of {
            use super::*;
            $(#[test] fn $name() { publisher_told(EventKind::$kind, EventReaction::$reaction); })*
        }

        mod subscriber_told_of {
            use super::*;
            $(#[test] fn $name() { subscriber_told(EventKind::$kind, EventReaction::$reaction); })*
        }

        #[test]
        fn no_event_is_forgotten() {
            assert_eq!(EventKind::ALL, [$(EventKind::$kind),*]);
        }
    };
}

events! {
    completion_queue_error: CompletionQueueError, RebuildCompletionQueue;
    queue_pair_fatal: QueuePairFatal, RebuildQueuePair;
    queue_pair_request: QueuePairRequest, DropPeer;
    queue_pair_access: QueuePairAccess, DropPeer;
    established: Established, Count;
    send_queue_drained: SendQueueDrained, Count;
    path_migrated: PathMigrated, Count;
    path_migration_failed: PathMigrationFailed, RebuildQueuePair;
    device_fatal: DeviceFatal, ReopenDevice;
    port_active: PortActive, RefreshPort;
    port_error: PortError, PortDown;
    lid_change: LidChange, RefreshPort;
    pkey_change: PkeyChange, RefreshPort;
    subnet_manager_change: SubnetManagerChange, RefreshPort;
    shared_receive_error: SharedReceiveError, Count;
    shared_receive_limit: SharedReceiveLimit, Count;
    last_receive: LastReceive, Count;
    client_reregister: ClientReregister, RefreshPort;
    gid_change: GidChange, CheckAddress;
    work_queue_fatal: WorkQueueFatal, Count;
}

// ── The way to the peer ──────────────────────────────────────────────────────────────────────────────────────────────

/// `ibv_qp_attr_mask` (verbs.h).
mod mask {
    pub(crate) const STATE: u32 = 1;
    pub(crate) const ACCESS: u32 = 1 << 3;
    pub(crate) const PKEY_INDEX: u32 = 1 << 4;
    pub(crate) const PORT: u32 = 1 << 5;
    pub(crate) const ADDRESS: u32 = 1 << 7;
    pub(crate) const PATH_MTU: u32 = 1 << 8;
    pub(crate) const ACK_TIMEOUT: u32 = 1 << 9;
    pub(crate) const RETRIES: u32 = 1 << 10;
    pub(crate) const RNR_RETRIES: u32 = 1 << 11;
    pub(crate) const RECEIVE_PACKET: u32 = 1 << 12;
    pub(crate) const READS: u32 = 1 << 13;
    pub(crate) const RNR_TIMER: u32 = 1 << 15;
    pub(crate) const SEND_PACKET: u32 = 1 << 16;
    pub(crate) const PEER_READS: u32 = 1 << 17;
    pub(crate) const DESTINATION: u32 = 1 << 20;
}

fn modifications(seam: &Seam) -> Vec<Modification> {
    let of = |call: Call| match call {
        Call::ModifyQueuePair(modification) => Some(modification),
        _ => None,
    };
    seam.take_calls().into_iter().filter_map(of).collect()
}

/// The three steps that `ibv_modify_qp` was given: exactly these attributes, with the peer's rights and our timers.
fn assert_steps(steps: &[Modification], access: u32, timers: RcTimers) {
    let [init, receive, send] = steps else { panic!("{steps:?}") };
    assert_eq!((init.state, init.access, init.port), (QueuePairState::Init, access, 1));
    assert_eq!(init.mask, mask::STATE | mask::PKEY_INDEX | mask::PORT | mask::ACCESS);
    assert_eq!(receive.state, QueuePairState::ReadyToReceive);
    let receiving = mask::STATE
        | mask::ADDRESS
        | mask::PATH_MTU
        | mask::DESTINATION
        | mask::RECEIVE_PACKET
        | mask::PEER_READS
        | mask::RNR_TIMER;
    assert_eq!((receive.mask, receive.peer_reads), (receiving, 0));
    assert!(receive.destination > 0);
    assert_eq!(send.state, QueuePairState::ReadyToSend);
    let sending = mask::STATE | mask::ACK_TIMEOUT | mask::RETRIES | mask::RNR_RETRIES | mask::SEND_PACKET | mask::READS;
    assert_eq!((send.mask, send.reads, send.rnr_retries), (sending, 0, 0));
    assert_eq!((send.ack_timeout, send.retries), (timers.ack_timeout, timers.retries));
}

#[test]
fn roce_connection_gives_the_publishers_memory_to_nobody_and_the_subscribers_to_writes_alone() {
    const WRITE: u32 = 2;
    let seams = [Seam::install("rxe0"), Seam::install("rxe1")];
    let ring = ring(LINES);
    let mut publisher = Publisher::open(&rc_options(), &ring);
    let _subscriber = publisher.connect(LINES);
    let [here, there] = seams.each_ref().map(modifications);
    assert_steps(&here, 0, RcTimers { ack_timeout: 10, retries: 6 });
    assert_eq!((here[1].address.gid, here[1].address.is_global), (Gid::from_ipv4(THERE), true));
    let [init, receive, ..] = &there[..] else { panic!("{there:?}") };
    assert_eq!((init.access, receive.address.gid), (WRITE, Gid::from_ipv4(HERE)));
}

#[test]
fn infiniband_connection_goes_the_way_that_the_subnet_manager_gave() {
    let seam = Seam::install("rxe0");
    // By LID alone: within a subnet there is no routing header.
    let address =
        AddressAttributes { lid: 9, service_level: 3, static_rate: 7, port: 1, ..AddressAttributes::default() };
    seam.answer_paths(Some(PathAnswer { address, pkey_index: 3, mtu: 2048 }));
    // The device behind the seam knows no such way.
    seam.cut_off(true);
    let ring = ring(LINES);
    let mut publisher = Publisher::open(&rc_options(), &ring);
    let _subscriber = publisher.connect(LINES);
    let steps = modifications(&seam);
    assert_steps(&steps, 0, RcTimers { ack_timeout: 10, retries: 6 });
    assert_eq!((steps[0].pkey_index, steps[1].address, steps[1].path_mtu), (3, address, 4));
}
