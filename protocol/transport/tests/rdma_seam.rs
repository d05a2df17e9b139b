//! UD lanes before devices that do what soft ones never do: every completion status and every asynchronous event leads to
//! its reaction, performed, and what the device refuses is said.

#![forbid(unsafe_code)]

mod rdma_support;

use std::time::Duration;

use rdma_support::ud::Pair;
use rdma_support::*;
use transport::rdma::seam::{Call, Direction, PresentedPort, Seam};
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
    // There is room for every buffer, so even a full queue is none that could come free again.
    for errno in [libc::EINVAL, libc::ENOMEM] {
        let (seam, mut pair) = flowing(End::Receiver);
        seam.refuse_posts(Direction::Receive, 1, errno);
        pair.turn_until(LIMIT, "notice", |pair| !pair.rx_events.is_empty());
        End::Receiver.mended(&mut pair);
        let pair = sound(pair);
        let failure = UdFailure::NotPosted { errno };
        assert!(matches!(&pair.rx_events[0], UdEvent::Failed(why) if *why == failure), "{:?}", pair.rx_events);
        assert!(pair.rx.counters().not_reposted > 0);
    }
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
