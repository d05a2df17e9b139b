//! UD lanes before devices that do what soft ones never do: every completion status and every asynchronous event leads to
//! its reaction, performed; what the device refuses is said; InfiniBand's attributes are what its specification wants.

#![forbid(unsafe_code)]

mod rdma_support;

use std::time::Duration;

use rdma_support::ud::Pair;
use rdma_support::*;
use transport::rdma::seam::{AddressAttributes, Call, Direction, JoinAnswer, Modification, PresentedPort, Seam};
use transport::rdma::*;

/// Far beyond what anything here takes.
const LIMIT: Duration = Duration::from_secs(20);

/// An end of the wire, and what happened to its lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Sender,
    Receiver,
}

impl End {
    const BOTH: [End; 2] = [End::Sender, End::Receiver];

    fn device(self) -> &'static str {
        match self {
            End::Sender => "rxe0",
            End::Receiver => "rxe1",
        }
    }

    fn direction(self) -> Direction {
        match self {
            End::Sender => Direction::Send,
            End::Receiver => Direction::Receive,
        }
    }

    fn events(self, pair: &Pair) -> &[UdEvent] {
        match self {
            End::Sender => &pair.tx_events,
            End::Receiver => &pair.rx_events,
        }
    }

    fn counters(self, pair: &Pair) -> UdKeeperCounters {
        match self {
            End::Sender => *pair.tx_keeper.counters(),
            End::Receiver => *pair.rx_keeper.counters(),
        }
    }

    /// The number of its queue pair.
    fn number(self, pair: &Pair) -> u32 {
        let queue_pair = match self {
            End::Sender => pair.tx_keeper.queue_pair(),
            End::Receiver => pair.rx_keeper.queue_pair(),
        };
        queue_pair.expect("it works").number()
    }

    fn is_working(self, pair: &Pair) -> bool {
        match self {
            End::Sender => pair.tx.is_working(),
            End::Receiver => pair.rx.is_working(),
        }
    }

    fn mended(self, pair: &mut Pair) {
        pair.turn_until(LIMIT, "mended lane", |pair| {
            matches!(self.events(pair).last(), Some(UdEvent::Mended { .. })) && self.is_working(pair)
        });
    }
}

/// A lane with a seam before one end, over which lines have come.
fn flowing(end: End) -> (Seam, Pair) {
    let seam = Seam::install(end.device());
    let mut pair = Pair::new();
    pair.flows(LIMIT);
    seam.take_calls();
    (seam, pair)
}

/// Whether the queue pair was destroyed after another was made for it, or before.
fn is_rebuilt(calls: &[Call], old: u32) -> bool {
    calls.contains(&Call::DestroyQueuePair { number: old })
        && calls.iter().any(|call| matches!(call, Call::CreateQueuePair { service: Some(Service::Ud), .. }))
}

fn is_joined(calls: &[Call], end: End) -> bool {
    end == End::Sender || calls.iter().any(|call| matches!(call, Call::Attach { .. }))
}

/// Nothing that is not named is lost, and lines flow.
fn sound(mut pair: Pair) -> Pair {
    pair.flows(LIMIT);
    pair.settle(LIMIT);
    pair
}

// ── Completions ──────────────────────────────────────────────────────────────────────────────────────────────────────

/// The next completion ends so.
fn ends_with(end: End, status: Status, reaction: Reaction) {
    assert_eq!(status.reaction(), reaction);
    let (seam, mut pair) = flowing(end);
    let old = end.number(&pair);
    seam.complete_with(end.direction(), &[status]);
    while seam.statuses_left() > 0 {
        pair.turn(1);
    }
    if reaction == Reaction::Reclaim {
        let mut pair = sound(pair);
        assert_eq!((end.number(&pair), end.events(&pair).len(), pair.account.lost()), (old, 0, 0));
        pair.turn(1);
        return;
    }
    end.mended(&mut pair);
    let pair = sound(pair);
    let [UdEvent::Failed(failure), UdEvent::Mended { .. }] = end.events(&pair) else {
        panic!("{:?}", end.events(&pair))
    };
    assert_eq!(*failure, UdFailure::Completion(status));
    assert!(failure.to_string().contains(status.next_step()), "{failure}");
    let counters = end.counters(&pair);
    assert_eq!((counters.failures, counters.mended), (1, 1));
    // A fault of this program is counted as one.
    assert_eq!(counters.own_faults, u64::from(reaction == Reaction::OwnFault));
    let calls = seam.take_calls();
    assert!(is_rebuilt(&calls, old) && is_joined(&calls, end), "{calls:?}");
    assert_ne!(end.number(&pair), old);
}

macro_rules! statuses {
    ($($name:ident: $status:ident, $reaction:ident;)*) => {
        mod send_that_ends_with {
            use super::*;
            $(#[test] fn $name() { ends_with(End::Sender, Status::$status, Reaction::$reaction); })*
        }

        mod receive_that_ends_with {
            use super::*;
            $(#[test] fn $name() { ends_with(End::Receiver, Status::$status, Reaction::$reaction); })*
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
fn a_status_that_nobody_knows_is_told_by_its_number_and_the_lane_is_built_anew() {
    for end in End::BOTH {
        ends_with(end, Status::Other(99), Reaction::Rebuild);
    }
}

#[test]
fn what_was_flushed_does_not_hide_the_cause() {
    let (seam, mut pair) = flowing(End::Receiver);
    // Both come with one poll: what is sent in one burst is there when the receiver looks.
    seam.complete_with(Direction::Receive, &[Status::Flushed, Status::LocalProtection]);
    for _ in 0..2 {
        put(&mut pair.ring, 1);
        transport::LaneTx::flush(&mut pair.tx, &pair.ring, now());
    }
    std::thread::sleep(Duration::from_millis(50));
    End::Receiver.mended(&mut pair);
    let failure = UdFailure::Completion(Status::LocalProtection);
    let told = pair.rx_events.iter().any(|event| matches!(event, UdEvent::Failed(why) if *why == failure));
    assert!(told, "{:?}", pair.rx_events);
    sound(pair);
}

#[test]
fn a_send_that_never_completes_is_noticed_by_the_deadline_and_the_lane_mended() {
    const DEADLINE: u64 = 100_000_000;
    let seam = Seam::install("rxe0");
    let mut pair = Pair::with(|options| UdOptions { deadline_ns: DEADLINE, ..options });
    pair.flows(LIMIT);
    seam.swallow(Direction::Send, true);
    let took = pair.turn_until(LIMIT, "notice", |pair| !pair.tx.is_working());
    seam.swallow(Direction::Send, false);
    End::Sender.mended(&mut pair);
    let pair = sound(pair);
    let deadlines: Vec<u64> = pair
        .tx_events
        .iter()
        .filter_map(|event| match event {
            UdEvent::Failed(UdFailure::Deadline { waited_ns }) => Some(*waited_ns),
            _ => None,
        })
        .collect();
    println!("noticed after {took:?}, the deadline is {DEADLINE} ns: {deadlines:?}");
    assert!(deadlines.len() == 1 && deadlines[0] > DEADLINE, "{:?}", pair.tx_events);
    // Receivers had what was sent: only what came while the lane was mended is lost.
    assert!(pair.tx.counters().lines_passed_over >= pair.account.lost(), "{:?}", pair.account.gaps);
}

// ── Posts and registrations ──────────────────────────────────────────────────────────────────────────────────────────

#[test]
fn a_send_that_finds_the_queue_full_is_one_gap_and_a_send_that_is_refused_ends_the_lane() {
    let (seam, mut pair) = flowing(End::Sender);
    seam.refuse_posts(Direction::Send, 1, libc::ENOMEM);
    pair.turn(3);
    let pair = sound(pair);
    let counters = *pair.tx.counters();
    assert_eq!((counters.packets_dropped, counters.lines_dropped, pair.account.lost()), (1, 3, 3));
    assert!(pair.tx_events.is_empty(), "{:?}", pair.tx_events);

    let mut pair = pair;
    seam.refuse_posts(Direction::Send, 1, libc::EINVAL);
    pair.turn(2);
    End::Sender.mended(&mut pair);
    let pair = sound(pair);
    let failure = UdFailure::NotPosted { errno: libc::EINVAL };
    assert!(matches!(&pair.tx_events[0], UdEvent::Failed(why) if *why == failure), "{:?}", pair.tx_events);
    assert_eq!(pair.tx.counters().lines_dropped, 5);
}

#[test]
fn a_receive_buffer_that_is_refused_ends_the_lane_with_the_number() {
    let (seam, mut pair) = flowing(End::Receiver);
    seam.refuse_posts(Direction::Receive, 1, libc::EINVAL);
    pair.turn_until(LIMIT, "notice", |pair| !pair.rx_events.is_empty());
    End::Receiver.mended(&mut pair);
    let pair = sound(pair);
    let failure = UdFailure::NotPosted { errno: libc::EINVAL };
    assert!(matches!(&pair.rx_events[0], UdEvent::Failed(why) if *why == failure), "{:?}", pair.rx_events);
    assert!(pair.rx.counters().not_reposted > 0);
}

#[test]
fn memory_that_may_not_be_registered_is_said_with_the_remedy_for_either_error() {
    for errno in [libc::EPERM, libc::ENOMEM] {
        let seam = Seam::install("rxe0");
        seam.refuse_registrations(Some(errno));
        let text = UdTx::open(&ud_options(HERE, fresh_group()), &ring(256)).err().expect("refused").to_string();
        for part in ["no permission to lock", "rxe0", "ulimit -l unlimited"] {
            assert!(text.contains(part), "{part:?} is not in: {text}");
        }
    }
}

#[test]
fn a_lane_that_cannot_be_mended_says_why_once_a_second_and_is_mended_on_a_fresh_device_when_it_can() {
    let (seam, mut pair) = flowing(End::Receiver);
    seam.refuse_registrations(Some(libc::ENOMEM));
    let event =
        AsyncEvent { kind: EventKind::QueuePairFatal, queue_pair: Some(End::Receiver.number(&pair)), port: None };
    seam.inject(event);
    let complaints =
        |pair: &Pair| pair.rx_events.iter().filter(|event| matches!(event, UdEvent::CannotMend(_))).count();
    let took = pair.turn_until(LIMIT, "two complaints", |pair| complaints(pair) == 2);
    println!("two complaints after {took:?}, {:?}", pair.rx_keeper.counters());
    assert!(took >= Duration::from_millis(1900), "{took:?}");
    let locked = |event: &UdEvent| matches!(event, UdEvent::CannotMend(RdmaError::Locked { .. }));
    assert_eq!(pair.rx_events.iter().filter(|event| locked(event)).count(), 2, "{:?}", pair.rx_events);
    assert!(pair.rx_keeper.counters().tries > 5);
    seam.refuse_registrations(None);
    End::Receiver.mended(&mut pair);
    assert!(pair.rx_keeper.counters().reopened > 0 && seam.take_calls().contains(&Call::OpenDevice));
    sound(pair);
}

// ── Events ───────────────────────────────────────────────────────────────────────────────────────────────────────────

/// The device of that end says so.
fn says(end: End, kind: EventKind, reaction: EventReaction) {
    assert_eq!(kind.reaction(), reaction);
    let (seam, mut pair) = flowing(end);
    let old = end.number(&pair);
    let before = end.counters(&pair);
    let event = AsyncEvent {
        kind,
        queue_pair: (kind.about() == About::QueuePair).then_some(old),
        port: (kind.about() == About::Port).then_some(1),
    };
    if reaction == EventReaction::PortDown {
        seam.present(PresentedPort { state: Some(PortState::Down), ..PresentedPort::default() });
    }
    seam.inject(event);
    pair.turn_until(LIMIT, "event", |pair| end.counters(pair).device_events == before.device_events + 1);
    let failed = |pair: &Pair| matches!(end.events(pair), [UdEvent::Failed(UdFailure::Event(why)), UdEvent::Mended { .. }] if *why == kind);
    match reaction {
        EventReaction::Count | EventReaction::CheckAddress => {
            let pair = sound(pair);
            let calls = seam.take_calls();
            assert_eq!((end.number(&pair), pair.account.lost(), calls), (old, 0, vec![]));
            match (reaction, end.events(&pair)) {
                (EventReaction::Count, [UdEvent::Device(told)]) => assert_eq!(*told, event),
                (EventReaction::CheckAddress, []) => assert_eq!(end.counters(&pair).unchanged, before.unchanged + 1),
                (_, events) => panic!("{events:?}"),
            }
        }
        EventReaction::RebuildCompletionQueue => {
            end.mended(&mut pair);
            let pair = sound(pair);
            let calls = seam.take_calls();
            assert!(failed(&pair) && is_rebuilt(&calls, old) && is_joined(&calls, end), "{calls:?}");
            // The queue that overflowed was as long as what can be under way; the next is twice that.
            let long = match end {
                End::Sender => 2 * 256,
                End::Receiver => 2 * 512,
            };
            assert!(calls.contains(&Call::CreateCompletionQueue { len: long }), "{calls:?}");
        }
        EventReaction::RebuildQueuePair | EventReaction::DropPeer => {
            end.mended(&mut pair);
            let pair = sound(pair);
            let calls = seam.take_calls();
            assert!(
                failed(&pair) && is_rebuilt(&calls, old) && is_joined(&calls, end),
                "{:?} {calls:?}",
                end.events(&pair)
            );
            assert!(!calls.contains(&Call::OpenDevice));
        }
        EventReaction::ReopenDevice => {
            end.mended(&mut pair);
            let pair = sound(pair);
            let calls = seam.take_calls();
            assert!(failed(&pair) && is_rebuilt(&calls, old) && is_joined(&calls, end), "{calls:?}");
            assert!(calls.contains(&Call::OpenDevice), "{calls:?}");
            assert_eq!(end.counters(&pair).reopened, 1);
        }
        EventReaction::PortDown => {
            pair.turn_until(LIMIT, "stop", |pair| !end.is_working(pair));
            let head = pair.ring.head().sequence().0;
            pair.turn_until(LIMIT, "300 lines", |pair| pair.ring.head().sequence().0 > head + 300);
            let [UdEvent::PortDown, complaints @ ..] = end.events(&pair) else { panic!("{:?}", end.events(&pair)) };
            let waits = |event: &UdEvent| matches!(event, UdEvent::CannotMend(RdmaError::PortDown { .. }));
            assert!(!end.is_working(&pair) && complaints.iter().all(waits), "{complaints:?}");
            seam.present(PresentedPort::default());
            seam.inject(AsyncEvent { kind: EventKind::PortActive, ..event });
            end.mended(&mut pair);
            let pair = sound(pair);
            let calls = seam.take_calls();
            assert!(is_rebuilt(&calls, old) && is_joined(&calls, end), "{calls:?}");
            assert!(pair.account.lost() >= 250, "{:?}", pair.account.gaps);
            assert_eq!(end.counters(&pair).failures, 0);
        }
        EventReaction::RefreshPort => {
            end.mended(&mut pair);
            let pair = sound(pair);
            let calls = seam.take_calls();
            assert!(is_rebuilt(&calls, old) && is_joined(&calls, end), "{calls:?}");
            assert!(matches!(end.events(&pair), [UdEvent::Mended { .. }]), "{:?}", end.events(&pair));
            assert_eq!(end.counters(&pair).failures, 0);
        }
    }
}

macro_rules! events {
    ($($name:ident: $kind:ident, $reaction:ident;)*) => {
        mod sender_told_of {
            use super::*;
            $(#[test] fn $name() { says(End::Sender, EventKind::$kind, EventReaction::$reaction); })*
        }

        mod receiver_told_of {
            use super::*;
            $(#[test] fn $name() { says(End::Receiver, EventKind::$kind, EventReaction::$reaction); })*
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

#[test]
fn an_event_that_nobody_knows_is_told_by_its_number() {
    for end in End::BOTH {
        says(end, EventKind::Other(77), EventReaction::Count);
    }
}

#[test]
fn events_of_other_ports_and_queue_pairs_are_told_and_change_nothing() {
    let (seam, mut pair) = flowing(End::Receiver);
    // On the same device, but of another context: in life its events would not come here at all.
    let (_other, other_keeper) =
        UdRx::open_unicast(&ud_options(THERE, fresh_group()), CHANNEL).expect("another receiver");
    seam.take_calls();
    let old = End::Receiver.number(&pair);
    let other = other_keeper.queue_pair().expect("it works").number();
    let events = [
        AsyncEvent { kind: EventKind::PortError, queue_pair: None, port: Some(2) },
        AsyncEvent { kind: EventKind::ClientReregister, queue_pair: None, port: Some(2) },
        AsyncEvent { kind: EventKind::GidChange, queue_pair: None, port: Some(2) },
        AsyncEvent { kind: EventKind::QueuePairFatal, queue_pair: Some(other), port: None },
    ];
    for event in events {
        seam.inject(event);
    }
    pair.turn_until(LIMIT, "events", |pair| pair.rx_events.len() == events.len());
    let pair = sound(pair);
    for (told, event) in pair.rx_events.iter().zip(events) {
        assert!(matches!(told, UdEvent::Device(told) if *told == event), "{told:?}");
    }
    assert_eq!((End::Receiver.number(&pair), pair.account.lost(), seam.take_calls()), (old, 0, vec![]));
}

// ── InfiniBand ───────────────────────────────────────────────────────────────────────────────────────────────────────

/// `ibv_qp_attr_mask` (verbs.h).
mod mask {
    pub(crate) const STATE: u32 = 1;
    pub(crate) const PKEY_INDEX: u32 = 1 << 4;
    pub(crate) const PORT: u32 = 1 << 5;
    pub(crate) const QKEY: u32 = 1 << 6;
    pub(crate) const SQ_PSN: u32 = 1 << 16;
}

/// A port's own GID: the default subnet prefix, and its number.
const OWN_GID: Gid = Gid([0xFE, 0x80, 0, 0, 0, 0, 0, 0, 0x00, 0x02, 0xC9, 0x03, 0x00, 0x12, 0x34, 0x57]);
/// What the subnet manager calls the group: link-local scope, IPv4's signature, the partition, the address.
const MGID: Gid = Gid([0xFF, 0x12, 0x40, 0x1B, 0x80, 0x12, 0, 0, 0, 0, 0, 0, 0x0F, 0x63, 0x00, 0x01]);
const MLID: u16 = 0xC003;
const GROUP_QKEY: u32 = 0x0000_0B1B;

fn infiniband(device: &str) -> Seam {
    let seam = Seam::install(device);
    let gid = GidEntry { gid: OWN_GID, index: 0, gid_type: GidType::InfiniBand, interface_index: 0 };
    seam.present(PresentedPort {
        link_layer: Some(LinkLayer::InfiniBand),
        state: None,
        lid: Some(7),
        subnet_manager_lid: Some(1),
        active_mtu: Some(2048),
        // Limited membership in the interface's partition stands before the full one.
        pkeys: Some(vec![0xFFFF, 0x0012, 0, 0x8012]),
        gids: Some(vec![gid]),
        interface_pkey: Some(0x8012),
    });
    seam.answer_joins(Some(JoinAnswer {
        address: AddressAttributes {
            gid: MGID,
            flow_label: 5,
            source_index: 0,
            hop_limit: 0,
            traffic_class: 6,
            lid: MLID,
            service_level: 3,
            source_path_bits: 0,
            static_rate: 7,
            is_global: true,
            port: 1,
        },
        queue_pair: 0xFF_FFFF,
        qkey: GROUP_QKEY,
    }));
    seam.cut_off(true);
    seam
}

fn modifications(calls: &[Call]) -> Vec<Modification> {
    let of = |call: &Call| match call {
        Call::ModifyQueuePair(modification) => Some(*modification),
        _ => None,
    };
    calls.iter().filter_map(of).collect()
}

/// The three steps of a UD queue pair: what each names, and what it must hold.
fn assert_ud_steps(calls: &[Call], queue_pair: u32, qkey: u32) {
    let steps = modifications(calls);
    let [init, receive, send] = &steps[..] else { panic!("{steps:?}") };
    assert!(steps.iter().all(|step| step.queue_pair == queue_pair));
    assert_eq!(init.state, QueuePairState::Init);
    assert_eq!(init.mask, mask::STATE | mask::PKEY_INDEX | mask::PORT | mask::QKEY);
    assert_eq!((init.pkey_index, init.port, init.qkey), (3, 1, qkey));
    assert_eq!((receive.state, receive.mask), (QueuePairState::ReadyToReceive, mask::STATE));
    assert_eq!((send.state, send.mask), (QueuePairState::ReadyToSend, mask::STATE | mask::SQ_PSN));
    assert_eq!(send.send_packet, 0);
}

fn handles(calls: &[Call]) -> Vec<AddressAttributes> {
    let of = |call: &Call| match call {
        Call::CreateAddressHandle(attributes) => Some(*attributes),
        _ => None,
    };
    calls.iter().filter_map(of).collect()
}

#[test]
fn infiniband_port_is_found_with_lid_partition_and_its_first_gid() {
    let _seam = infiniband("rxe1");
    let local = LocalPort::find(None, THERE).expect("a port");
    assert_eq!((local.fabric, local.port.link_layer), (Fabric::InfiniBand, LinkLayer::InfiniBand));
    assert_eq!((local.port.lid, local.port.subnet_manager_lid, local.port.active_mtu), (7, 1, 2048));
    assert_eq!((local.gid.gid, local.gid.index, local.pkey_index), (OWN_GID, 0, 3));
}

#[test]
fn infiniband_sender_uses_the_groups_key_partition_and_way() {
    let seam = infiniband("rxe0");
    let (tx, keeper) = UdTx::open(&ud_options(HERE, fresh_group()), &ring(256)).expect("a sender here");
    let calls = seam.take_calls();
    assert_ud_steps(&calls, keeper.source().queue_pair, GROUP_QKEY);
    assert_eq!(
        handles(&calls),
        [AddressAttributes {
            gid: MGID,
            flow_label: 5,
            source_index: 0,
            // Within the subnet.
            hop_limit: 1,
            traffic_class: 6,
            lid: MLID,
            service_level: 3,
            source_path_bits: 0,
            static_rate: 7,
            is_global: true,
            port: 1,
        }]
    );
    assert_eq!((keeper.source().gid, tx.lines_per_packet()), (OWN_GID, 31));
    // The ring and the headers, for nobody else.
    let regions = calls.iter().filter(|call| matches!(call, Call::Register { access: 0, .. })).count();
    assert_eq!(regions, 2, "{calls:?}");
}

#[test]
fn infiniband_receiver_attaches_to_the_group_by_mgid_and_mlid() {
    let seam = infiniband("rxe1");
    let (rx, keeper) = UdRx::open(&ud_options(THERE, fresh_group()), CHANNEL).expect("a receiver there");
    let number = keeper.queue_pair().expect("it works").number();
    let calls = seam.take_calls();
    assert_ud_steps(&calls, number, GROUP_QKEY);
    assert!(calls.contains(&Call::Attach { queue_pair: number, gid: MGID, lid: MLID }), "{calls:?}");
    drop((rx, keeper));
    let calls = seam.take_calls();
    let place = |wanted: Call| calls.iter().position(|call| *call == wanted);
    let detached = place(Call::Detach { queue_pair: number, gid: MGID, lid: MLID }).expect("detached");
    assert!(detached < place(Call::DestroyQueuePair { number }).expect("destroyed"), "{calls:?}");
}

#[test]
fn infiniband_peer_is_reached_by_its_lid_with_its_own_key() {
    let seam = infiniband("rxe1");
    let group = fresh_group();
    let (_rx, rx_keeper) = UdRx::open_unicast(&ud_options(THERE, group), CHANNEL).expect("a receiver there");
    let peer = rx_keeper.peer();
    assert_eq!((peer.gid, peer.lid, peer.qkey), (OWN_GID, 7, QKEY));
    let calls = seam.take_calls();
    assert_ud_steps(&calls, peer.queue_pair, QKEY);
    assert!(!calls.iter().any(|call| matches!(call, Call::Attach { .. })), "{calls:?}");
    drop(seam);

    let seam = infiniband("rxe0");
    let (_tx, tx_keeper) = UdTx::open_to(&ud_options(HERE, group), peer, &ring(256)).expect("a sender here");
    let calls = seam.take_calls();
    assert_ud_steps(&calls, tx_keeper.source().queue_pair, QKEY);
    let to = AddressAttributes {
        gid: OWN_GID,
        hop_limit: 1,
        lid: 7,
        is_global: true,
        port: 1,
        ..AddressAttributes::default()
    };
    assert_eq!(handles(&calls), [to]);
}

#[test]
fn infiniband_subnet_that_changes_is_followed() {
    let seam = infiniband("rxe0");
    let ring = ring(256);
    let (mut tx, mut keeper) = UdTx::open(&ud_options(HERE, fresh_group()), &ring).expect("a sender here");
    let old = keeper.source().queue_pair;
    seam.take_calls();
    // A new subnet manager: another LID, another place in the table, another way to the group.
    let gid = GidEntry { gid: OWN_GID, index: 0, gid_type: GidType::InfiniBand, interface_index: 0 };
    seam.present(PresentedPort {
        link_layer: Some(LinkLayer::InfiniBand),
        lid: Some(70),
        subnet_manager_lid: Some(2),
        active_mtu: Some(256),
        pkeys: Some(vec![0xFFFF, 0x8012]),
        gids: Some(vec![gid]),
        interface_pkey: Some(0x8012),
        ..PresentedPort::default()
    });
    let address = AddressAttributes {
        gid: MGID,
        lid: MLID + 1,
        service_level: 1,
        is_global: true,
        port: 1,
        ..AddressAttributes::default()
    };
    seam.answer_joins(Some(JoinAnswer { address, queue_pair: 0xFF_FFFF, qkey: GROUP_QKEY + 1 }));
    seam.inject(AsyncEvent { kind: EventKind::SubnetManagerChange, queue_pair: None, port: Some(1) });
    let start = std::time::Instant::now();
    let source = loop {
        assert!(start.elapsed() < LIMIT, "not mended: {:?}", keeper.counters());
        keeper.do_work(now());
        if let Some(UdEvent::Mended { source }) = keeper.next_event() {
            break source;
        }
    };
    transport::LaneTx::heartbeat(&mut tx, &ring, now(), false);
    let calls = seam.take_calls();
    let init = modifications(&calls)[0];
    assert_eq!((init.queue_pair, init.pkey_index, init.qkey), (source.queue_pair, 1, GROUP_QKEY + 1));
    assert_eq!(handles(&calls), [AddressAttributes { hop_limit: 1, ..address }]);
    assert_eq!((keeper.local().port.lid, tx.lines_per_packet()), (70, 3));
    assert_ne!(source.queue_pair, old);
}

#[test]
fn infiniband_interface_in_no_partition_of_the_port_is_named_with_those_there_are() {
    let seam = infiniband("rxe0");
    seam.present(PresentedPort {
        link_layer: Some(LinkLayer::InfiniBand),
        pkeys: Some(vec![0xFFFF, 0]),
        interface_pkey: Some(0x8012),
        gids: Some(vec![GidEntry { gid: OWN_GID, index: 0, gid_type: GidType::InfiniBand, interface_index: 0 }]),
        ..PresentedPort::default()
    });
    let text = LocalPort::find(None, HERE).expect_err("no such partition").to_string();
    for part in ["0x8012", "port 1 of rxe0", "0xffff", "subnet manager"] {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}

#[test]
fn a_port_is_refused_that_is_not_active_or_whose_mtu_is_too_small_or_has_no_gid() {
    let seam = Seam::install("rxe0");
    let open = |options: UdOptions| UdTx::open(&options, &ring(256)).err().map(|error| error.to_string());
    let options = || ud_options(HERE, fresh_group());
    seam.present(PresentedPort { state: Some(PortState::Initialising), ..PresentedPort::default() });
    let text = open(options()).expect("refused");
    assert!(text.contains("port 1 of rxe0 is waiting for the subnet manager, not active"), "{text}");
    seam.present(PresentedPort { active_mtu: Some(0), ..PresentedPort::default() });
    let text = open(options()).expect("refused");
    assert!(text.contains("active MTU of port 1 of rxe0 is 0, and a packet takes 96"), "{text}");
    seam.present(PresentedPort { active_mtu: Some(256), ..PresentedPort::default() });
    let receiver = UdOptions { address: HERE, max_lines: Some(15), ..options() };
    let text = UdRx::open(&receiver, CHANNEL).err().expect("refused").to_string();
    assert!(text.contains("active MTU of port 1 of rxe0 is 256, and a packet takes 992"), "{text}");
    let old = GidEntry { gid: Gid::from_ipv4(HERE), index: 3, gid_type: GidType::RoceV1, interface_index: 0 };
    seam.present(PresentedPort { gids: Some(vec![old]), ..PresentedPort::default() });
    let text = open(options()).expect("refused");
    for part in ["no RoCE v2 GID for 10.99.0.1", "RoceV1, index 3", "ibv_devinfo -v"] {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}
