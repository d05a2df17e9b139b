//! RC lanes before devices that do what soft ones never do: every completion status and every asynchronous event leads to
//! its reaction, performed; and what a queue pair is told is exactly what it should be.

#![forbid(unsafe_code)]

mod rdma_support;
#[path = "rdma_support/reactions.rs"]
mod reactions;

use protocol::line::Stamp;
use protocol::run::{LanePath, LossCause, Position, Run, RunSink};
use rdma_support::*;
use transport::LaneTx;
use transport::RingWriter;
use transport::rdma::seam::{AddressAttributes, Call, ConnectionAnswer, Direction, Modification, Seam};
use transport::rdma::*;

/// The sequence number after the newest line. A new ring begins where it begins: what comes twice, or not at all, is for
/// the arbiter.
#[derive(Default)]
struct Newest(u64);

impl RunSink for Newest {
    fn on_run(&mut self, run: Run<'_>) {
        for (i, line) in run.lines.iter().enumerate() {
            let at = run.first.plus(i as u64);
            assert_eq!(*line, line_of(at), "content of {at}");
        }
        self.0 = self.0.max(run.end().sequence().0);
    }

    fn on_position(&mut self, _: Position) {}

    fn on_loss(&mut self, _: LanePath, first: Stamp, count: u64, cause: LossCause) {
        panic!("{count} lines from {first} are lost: {cause:?}");
    }
}

/// A lane with a subscriber, over which lines come.
struct Lane {
    ring: RingWriter,
    publisher: Publisher,
    subscriber: Subscriber,
    ticket: RcTicket,
}

impl Lane {
    fn new(options: &RcOptions) -> Lane {
        let ring = ring(1 << 12);
        let mut publisher = Publisher::open(options, &ring);
        let (ticket, subscriber) = publisher.connect(1 << 12);
        let mut lane = Lane { ring, publisher, subscriber, ticket };
        lane.flows();
        lane
    }

    /// Lines are published, and come.
    fn flows(&mut self) {
        put(&mut self.ring, 10);
        self.publisher.tx.flush(&self.ring, now());
        let next = self.ring.head().sequence().0;
        poll_until(&mut self.subscriber, &mut Newest::default(), LIMIT, "the newest line", |seen| seen.0 == next);
    }

    /// A write that asks for its completion.
    fn write(&mut self) {
        put(&mut self.ring, 1);
        self.publisher.tx.heartbeat(&self.ring, now(), false);
    }

    fn dropped(&mut self) -> DropReason {
        let (ticket, why) = self.publisher.dropped(&self.ring);
        assert_eq!(ticket, self.ticket);
        why
    }

    /// The subscriber learns that its connection is over, and can have another.
    fn comes_again(&mut self) {
        let lost = until("end there", || self.subscriber.event());
        assert!(matches!(lost, RcRxEvent::Lost { .. }), "{lost:?}");
        self.ticket = self.publisher.connect_to(&mut self.subscriber);
        self.flows();
    }

    fn own_number(&self) -> u32 {
        self.publisher.tx.queue_pair(self.ticket).expect("taken in").number()
    }
}

// ── Completions ──────────────────────────────────────────────────────────────────────────────────────────────────────

/// The next write ends so.
fn ends_with(status: Status, reaction: Reaction) {
    assert_eq!(status.reaction(), reaction);
    let seam = Seam::install("rxe0");
    let mut lane = Lane::new(&rc_options());
    let number = lane.own_number();
    seam.take_calls();
    // The completion of the line's own write, if it asked for one, is as good as the heartbeat's.
    seam.complete_with(Direction::Send, &[status]);
    lane.write();
    if reaction == Reaction::Reclaim {
        until("completion", || {
            lane.publisher.tx.flush(&lane.ring, now());
            (seam.statuses_left() == 0).then_some(())
        });
        lane.publisher.nothing_happened();
        lane.flows();
        assert!(seam.take_calls().is_empty());
        return;
    }
    let why = lane.dropped();
    println!("{why}");
    assert!(matches!(why, DropReason::Write(PeerFailure::Completion(it)) if it == status), "{why:?}");
    assert_eq!(why.reaction(), reaction);
    let calls = seam.take_calls();
    assert!(calls.contains(&Call::DestroyQueuePair { number }), "{calls:?}");
    let counters = *lane.publisher.keeper.counters();
    let (refused, own) = (u64::from(reaction == Reaction::RefusePeer), u64::from(reaction == Reaction::OwnFault));
    assert_eq!((counters.dropped, counters.refused, counters.own_faults), (1, refused, own));
    lane.comes_again();
    assert_ne!(lane.own_number(), number);
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

reactions::every_status!(statuses);

#[test]
fn a_status_that_nobody_knows_is_told_by_its_number() {
    ends_with(Status::Other(99), Reaction::Rebuild);
}

#[test]
fn a_write_that_never_completes_is_noticed_by_the_deadline() {
    const DEADLINE: u64 = 100_000_000;
    let seam = Seam::install("rxe0");
    let mut lane = Lane::new(&RcOptions { deadline_ns: DEADLINE, ..rc_options() });
    seam.swallow(Direction::Send, true);
    lane.write();
    let why = lane.dropped();
    seam.swallow(Direction::Send, false);
    println!("{why}; the deadline is {DEADLINE} ns");
    let deadline = |why: &DropReason| match why {
        DropReason::Write(PeerFailure::Deadline { waited_ns }) => Some(*waited_ns),
        _ => None,
    };
    assert!(deadline(&why).is_some_and(|waited| waited > DEADLINE), "{why:?}");
    lane.comes_again();
}

#[test]
fn a_write_that_the_device_does_not_take_is_told_with_the_number() {
    let seam = Seam::install("rxe0");
    let mut lane = Lane::new(&rc_options());
    seam.refuse_posts(Direction::Send, 1, libc::EINVAL);
    lane.write();
    let why = lane.dropped();
    println!("{why}");
    assert!(matches!(why, DropReason::Write(PeerFailure::NotPosted { errno: libc::EINVAL })), "{why:?}");
    assert_eq!((why.reaction(), lane.publisher.keeper.counters().own_faults), (Reaction::OwnFault, 1));
    lane.comes_again();
}

// ── Events ───────────────────────────────────────────────────────────────────────────────────────────────────────────

fn event_of(kind: EventKind, number: u32) -> AsyncEvent {
    AsyncEvent {
        kind,
        queue_pair: (kind.about() == About::QueuePair).then_some(number),
        port: (kind.about() == About::Port).then_some(1),
    }
}

/// The publisher's device says so.
fn publisher_is_told(kind: EventKind, reaction: EventReaction) {
    assert_eq!(kind.reaction(), reaction);
    let seam = Seam::install("rxe0");
    let mut lane = Lane::new(&rc_options());
    let number = lane.own_number();
    seam.take_calls();
    let event = event_of(kind, number);
    seam.inject(event);
    let is_it = |why: &DropReason| matches!(why, DropReason::Device(it) if *it == kind);
    match reaction {
        EventReaction::Count => {
            assert!(lane.publisher.keeper.do_work(now()) > 0, "the event was not taken");
            lane.publisher.nothing_happened();
            lane.flows();
        }
        EventReaction::PortDown | EventReaction::RefreshPort | EventReaction::CheckAddress => {
            // Each connection looks the port up for itself: it is told, and nothing else.
            let told = until("event", || lane.publisher.event());
            assert!(matches!(told, RcTxEvent::Device(it) if it == event), "{told:?}");
            lane.flows();
        }
        EventReaction::RebuildQueuePair | EventReaction::DropPeer => {
            let why = lane.dropped();
            assert!(is_it(&why), "{why:?}");
            let calls = seam.take_calls();
            assert!(
                calls.contains(&Call::DestroyQueuePair { number }) && !calls.contains(&Call::OpenDevice),
                "{calls:?}"
            );
            lane.comes_again();
        }
        EventReaction::RebuildCompletionQueue | EventReaction::ReopenDevice => {
            let told = until("event", || lane.publisher.event());
            assert!(matches!(told, RcTxEvent::Device(it) if it == event), "{told:?}");
            // Until the hot half has let go of what was, nobody new is taken.
            let (offer, token) = lane.subscriber.offer();
            lane.publisher.keeper.connect(&offer, token, now());
            let refused = lane.publisher.keeper.next_event();
            assert!(matches!(&refused, Some(RcTxEvent::Dropped { why, .. }) if is_it(why)), "{refused:?}");
            let why = lane.dropped();
            assert!(is_it(&why), "{why:?}");
            until("device opened again", || {
                lane.publisher.tx.flush(&lane.ring, now());
                lane.publisher.keeper.do_work(now());
                (lane.publisher.keeper.counters().mended == 1).then_some(())
            });
            let calls = seam.take_calls();
            assert!(
                calls.contains(&Call::DestroyQueuePair { number }) && calls.contains(&Call::OpenDevice),
                "{calls:?}"
            );
            assert!(calls.iter().any(|call| matches!(call, Call::Register { access: 0, .. })), "{calls:?}");
            lane.comes_again();
        }
    }
}

/// The subscriber's device says so.
fn subscriber_is_told(kind: EventKind, reaction: EventReaction) {
    assert_eq!(kind.reaction(), reaction);
    let seam = Seam::install("rxe1");
    let mut lane = Lane::new(&rc_options());
    let number = lane.subscriber.keeper.queue_pair().expect("connected").number();
    seam.take_calls();
    let event = event_of(kind, number);
    seam.inject(event);
    let lost = |told: &RcRxEvent| matches!(told, RcRxEvent::Lost { why: LostReason::Device(it) } if *it == kind);
    let again = |lane: &mut Lane| {
        // The publisher is told by the subscriber's kernel.
        let why = lane.dropped();
        assert!(matches!(why, DropReason::Disconnected), "{why:?}");
        lane.ticket = lane.publisher.connect_to(&mut lane.subscriber);
        lane.flows();
    };
    match reaction {
        EventReaction::Count => {
            assert!(lane.subscriber.keeper.do_work(now()) > 0, "the event was not taken");
            assert!(lane.subscriber.event().is_none());
            lane.flows();
        }
        EventReaction::PortDown | EventReaction::RefreshPort | EventReaction::CheckAddress => {
            let told = until("event", || lane.subscriber.event());
            assert!(matches!(told, RcRxEvent::Device(it) if it == event), "{told:?}");
            lane.flows();
        }
        EventReaction::RebuildQueuePair | EventReaction::DropPeer => {
            let told = until("event", || lane.subscriber.event());
            assert!(lost(&told), "{told:?}");
            let calls = seam.take_calls();
            assert!(calls.contains(&Call::DestroyQueuePair { number }), "{calls:?}");
            again(&mut lane);
            assert!(!seam.take_calls().contains(&Call::OpenDevice));
        }
        EventReaction::RebuildCompletionQueue | EventReaction::ReopenDevice => {
            let told = until("event", || lane.subscriber.event());
            assert!(lost(&told), "{told:?}");
            let told = until("event", || lane.subscriber.event());
            assert!(matches!(told, RcRxEvent::Device(it) if it == event), "{told:?}");
            again(&mut lane);
            let calls = seam.take_calls();
            assert!(
                calls.contains(&Call::DestroyQueuePair { number }) && calls.contains(&Call::OpenDevice),
                "{calls:?}"
            );
        }
    }
}

macro_rules! events {
    ($($name:ident: $kind:ident, $reaction:ident;)*) => {
        mod publisher_told_of {
            use super::*;
            $(#[test] fn $name() { publisher_is_told(EventKind::$kind, EventReaction::$reaction); })*
        }

        mod subscriber_told_of {
            use super::*;
            $(#[test] fn $name() { subscriber_is_told(EventKind::$kind, EventReaction::$reaction); })*
        }

        #[test]
        fn no_event_is_forgotten() {
            assert_eq!(EventKind::ALL, [$(EventKind::$kind),*]);
        }
    };
}

reactions::every_event!(events);

#[test]
fn a_device_that_cannot_be_opened_again_is_said_with_the_reason_and_mended_when_it_can() {
    let seam = Seam::install("rxe0");
    let mut lane = Lane::new(&rc_options());
    seam.refuse_registrations(Some(libc::ENOMEM));
    seam.inject(event_of(EventKind::DeviceFatal, 0));
    assert!(matches!(until("event", || lane.publisher.event()), RcTxEvent::Device(_)));
    lane.dropped();
    let text = until("reason", || {
        lane.publisher.keeper.do_work(now());
        lane.publisher.keeper.cannot_mend().map(ToString::to_string)
    });
    println!("{text}");
    assert!(text.contains("ulimit -l unlimited"), "{text}");
    seam.refuse_registrations(None);
    until("mending", || {
        lane.publisher.tx.flush(&lane.ring, now());
        lane.publisher.keeper.do_work(now());
        (lane.publisher.keeper.counters().mended == 1).then_some(())
    });
    assert!(lane.publisher.keeper.cannot_mend().is_none());
    lane.comes_again();
}

// ── Attributes ───────────────────────────────────────────────────────────────────────────────────────────────────────

/// `ibv_qp_attr_mask` (verbs.h).
mod mask {
    pub(crate) const STATE: u32 = 1;
    pub(crate) const ACCESS_FLAGS: u32 = 1 << 3;
    pub(crate) const PKEY_INDEX: u32 = 1 << 4;
    pub(crate) const PORT: u32 = 1 << 5;
    pub(crate) const AV: u32 = 1 << 7;
    pub(crate) const PATH_MTU: u32 = 1 << 8;
    pub(crate) const TIMEOUT: u32 = 1 << 9;
    pub(crate) const RETRY_CNT: u32 = 1 << 10;
    pub(crate) const RNR_RETRY: u32 = 1 << 11;
    pub(crate) const RQ_PSN: u32 = 1 << 12;
    pub(crate) const MAX_QP_RD_ATOMIC: u32 = 1 << 13;
    pub(crate) const MIN_RNR_TIMER: u32 = 1 << 15;
    pub(crate) const SQ_PSN: u32 = 1 << 16;
    pub(crate) const MAX_DEST_RD_ATOMIC: u32 = 1 << 17;
    pub(crate) const DEST_QPN: u32 = 1 << 20;

    pub(crate) const INIT: u32 = STATE | ACCESS_FLAGS | PKEY_INDEX | PORT;
    pub(crate) const RECEIVE: u32 = STATE | AV | PATH_MTU | DEST_QPN | RQ_PSN | MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER;
    pub(crate) const SEND: u32 = STATE | TIMEOUT | RETRY_CNT | RNR_RETRY | SQ_PSN | MAX_QP_RD_ATOMIC;
}

fn modifications(seam: &Seam) -> [Modification; 3] {
    let of = |call: &Call| match call {
        Call::ModifyQueuePair(modification) => Some(*modification),
        _ => None,
    };
    let steps: Vec<Modification> = seam.take_calls().iter().filter_map(of).collect();
    steps.try_into().unwrap_or_else(|steps| panic!("not three steps: {steps:?}"))
}

/// `IBV_ACCESS_REMOTE_WRITE`.
const REMOTE_WRITE: u32 = 1 << 1;

/// What both sides must be told whatever the fabric; returns the way that each has to the other.
fn assert_steps(seams: [&Seam; 2], numbers: [u32; 2], pkey_index: u16) -> [AddressAttributes; 2] {
    let sides = seams.map(modifications);
    let [(ours, 0), (theirs, REMOTE_WRITE)] = [(sides[0], sides[0][0].access), (sides[1], sides[1][0].access)] else {
        panic!("the publisher gives rights, or the subscriber other ones than writing: {sides:?}")
    };
    for (steps, own, peer) in [(ours, numbers[0], numbers[1]), (theirs, numbers[1], numbers[0])] {
        let [init, receive, send] = steps;
        assert!(steps.iter().all(|step| step.queue_pair == own), "{steps:?}");
        assert_eq!((init.state, init.mask, init.port), (QueuePairState::Init, mask::INIT, 1));
        assert_eq!(init.pkey_index, pkey_index);
        assert_eq!((receive.state, receive.mask), (QueuePairState::ReadyToReceive, mask::RECEIVE));
        // 5: 4096 bytes.
        assert_eq!((receive.destination, receive.path_mtu, receive.peer_reads), (peer, 5, 0));
        assert_eq!((send.state, send.mask), (QueuePairState::ReadyToSend, mask::SEND));
        assert_eq!((send.ack_timeout, send.retries, send.rnr_retries, send.reads), (10, 6, 0, 0));
    }
    // What one side sends with is what the other waits for.
    assert_eq!((ours[1].receive_packet, theirs[1].receive_packet), (theirs[2].send_packet, ours[2].send_packet));
    [ours[1].address, theirs[1].address]
}

#[test]
fn roce_queue_pairs_are_told_exactly_what_they_should_be() {
    let seams = [Seam::install("rxe0"), Seam::install("rxe1")];
    let lane = Lane::new(&rc_options());
    let numbers = [lane.own_number(), lane.subscriber.keeper.queue_pair().expect("connected").number()];
    let ways = assert_steps([&seams[0], &seams[1]], numbers, 0);
    for (way, own, peer) in [(ways[0], HERE, THERE), (ways[1], THERE, HERE)] {
        let source = LocalPort::find(None, own).expect("its port").gid.index;
        assert_eq!((way.gid, way.source_index), (Gid::from_ipv4(peer), source));
        assert!(way.is_global && way.port == 1 && way.hop_limit > 0, "{way:?}");
    }
}

#[test]
fn infiniband_queue_pairs_get_the_way_and_the_partition_that_the_subnet_manager_gave() {
    let seams = [Seam::install("rxe0"), Seam::install("rxe1")];
    let way = AddressAttributes { lid: 0x0017, service_level: 3, source_path_bits: 1, port: 1, ..Default::default() };
    for seam in &seams {
        // The kernel sets bits 21 to 23 too, which libibverbs does not know.
        seam.answer_connections(Some(ConnectionAnswer { address: way, pkey_index: 2, mask: 0x00E0_0000 }));
        seam.cut_off(true);
    }
    let ring = ring(1 << 12);
    let mut publisher = Publisher::open(&rc_options(), &ring);
    let mut subscriber = Subscriber::open(1 << 12);
    let (offer, token) = subscriber.offer();
    let ticket = publisher.keeper.connect(&offer, token, now());
    // The device behind it was told nothing, and says so when it is asked for the rights that it gives.
    let outcome = publisher.settle(ticket, &mut subscriber);
    println!("{outcome:?}");
    let created = |seam: &Seam, calls: &[Call]| {
        let of = |call: &Call| match call {
            Call::CreateQueuePair { number, .. } => Some(*number),
            _ => None,
        };
        calls.iter().find_map(of).unwrap_or_else(|| panic!("no queue pair before {seam:?}: {calls:?}"))
    };
    let calls = [seams[0].take_calls(), seams[1].take_calls()];
    let numbers = [created(&seams[0], &calls[0]), created(&seams[1], &calls[1])];
    for (calls, (own, access)) in calls.iter().zip([(numbers[0], 0), (numbers[1], REMOTE_WRITE)]) {
        let steps: Vec<&Modification> = calls
            .iter()
            .filter_map(|call| match call {
                Call::ModifyQueuePair(modification) => Some(modification),
                _ => None,
            })
            .collect();
        let [init, receive, send, ..] = &steps[..] else { panic!("{steps:?}") };
        assert!(steps.iter().all(|step| step.queue_pair == own));
        assert_eq!((init.mask, init.access, init.pkey_index, init.port), (mask::INIT, access, 2, 1));
        assert_eq!((receive.mask, receive.address), (mask::RECEIVE, way));
        assert_eq!((send.mask, send.ack_timeout, send.retries), (mask::SEND, 10, 6));
    }
}
