//! How connections of the RC lane end, between two soft devices of RoCE v2 or iWARP: each end is told by its name and in
//! time, harms nobody else, and leaves nothing behind.

#![forbid(unsafe_code)]

mod rdma_support;

use std::io::{BufRead, BufReader};
use std::net::SocketAddrV4;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use protocol::line::Stamp;
use protocol::run::{LanePath, LossCause, Position, Run, RunSink};
use protocol::time::Nanos;
use rdma_support::*;
use transport::rdma::*;
use transport::{LaneRx, LaneTx, RingWriter};

#[test]
fn connections_that_end_and_those_that_never_were_leave_nothing_behind() {
    let mut ring = ring(1024);
    let mut publisher = Publisher::open(&rc_options(), &ring);
    let before = resources();
    println!("{before:#?}");
    let mut kept = None;
    for round in 0..8_u8 {
        let (ticket, mut subscriber) = publisher.connect(256);
        put(&mut ring, 10);
        publisher.tx.flush(&ring, now());
        assert_ne!(resources(), before, "a connection takes something");
        match round % 4 {
            // Asked to end.
            0 => {
                publisher.keeper.disconnect(ticket);
                let (dropped, why) = publisher.dropped(&ring);
                assert!(dropped == ticket && matches!(why, DropReason::Asked), "{why:?}");
                let lost = until("end there", || subscriber.event());
                assert!(matches!(lost, RcRxEvent::Lost { why: LostReason::Disconnected }), "{lost:?}");
                assert!(!subscriber.keeper.is_connected());
            }
            // The subscriber is gone.
            1 => {
                drop(subscriber);
                let (dropped, why) = publisher.dropped(&ring);
                assert_eq!(dropped, ticket);
                println!("{why}");
            }
            // It asks for a place where nobody listens, and for one where nobody admits it.
            2 => {
                let (offer, _) = subscriber.offer();
                let nowhere = RcOffer { at: SocketAddrV4::new(THERE, 1), ..offer };
                for offer in [offer, nowhere] {
                    let ticket = publisher.keeper.connect(&offer, RcToken::from_bytes([round; 16]), now());
                    let why = publisher.settle(ticket, &mut subscriber).expect_err("not connected");
                    println!("{why}");
                }
                publisher.keeper.disconnect(ticket);
                publisher.dropped(&ring);
                drop(subscriber);
            }
            // Given up half way, at every step that there is.
            _ => {
                for turns in 0..20 {
                    let (offer, token) = subscriber.offer();
                    let ticket = publisher.keeper.connect(&offer, token, now());
                    for _ in 0..turns {
                        publisher.keeper.do_work(now());
                        std::thread::sleep(Duration::from_millis(1));
                        subscriber.keeper.do_work(now());
                    }
                    // Rings come back only from whoever polls.
                    subscriber.poll(now(), 1 << 10, &mut Losses::default());
                    publisher.keeper.disconnect(ticket);
                    let why = until("an end", || {
                        publisher.tx.flush(&ring, now());
                        match publisher.event()? {
                            RcTxEvent::Dropped { ticket: dropped, why } if dropped == ticket => Some(why),
                            _ => None,
                        }
                    });
                    assert!(matches!(why, DropReason::Asked), "{why:?}");
                }
                kept = Some(subscriber);
            }
        }
        publisher.tx.flush(&ring, now());
        if let Some(subscriber) = kept.take() {
            drop(subscriber);
            until("an end of all", || {
                publisher.tx.flush(&ring, now());
                publisher.event();
                (publisher.keeper.sessions() == 0).then_some(())
            });
        }
        assert_eq!(publisher.keeper.sessions(), 0);
        assert_resources(&before);
    }
}

#[test]
fn connecting_to_a_subscriber_that_does_not_answer_is_given_up_in_time() {
    let ring = ring(256);
    let options = RcOptions { connect_limit_ns: 200_000_000, max_peers: 3, ..rc_options() };
    let mut publisher = Publisher::open(&options, &ring);
    // It listens, and never turns.
    let mut subscriber = Subscriber::open(256);
    let (offer, token) = subscriber.offer();
    let start = Instant::now();
    let tickets = [(); 4].map(|()| publisher.keeper.connect(&offer, token, now()));
    let event = publisher.keeper.next_event();
    let too_many = matches!(&event, Some(RcTxEvent::Dropped { ticket, why: DropReason::TooMany { max_peers: 3 } }) if *ticket == tickets[3]);
    assert!(too_many, "{event:?}");
    let mut dropped = Vec::new();
    while dropped.len() < 3 {
        match until("end", || publisher.event()) {
            RcTxEvent::Dropped { ticket, why: DropReason::TimeLimit { step, limit_ns: 200_000_000 } } => {
                assert_eq!(step, Step::Answer);
                dropped.push(ticket);
            }
            other => panic!("{other:?}"),
        }
    }
    let took = start.elapsed();
    println!("three attempts with a limit of 200 ms ended after {took:?}");
    dropped.sort();
    assert_eq!(dropped, tickets[..3]);
    assert!(took >= Duration::from_millis(200) && took < Duration::from_secs(2), "{took:?}");
    // What it finds when it wakes up is withdrawn; afterwards it can be connected.
    publisher.connect_again(&mut subscriber);
}

/// On iWARP the kernel keeps an attempt that nobody answered for ten seconds. Whoever asks for one after the other, and
/// answers none, takes no more than a bounded number of them; closing the lane waits for none.
#[test]
fn attempts_that_nobody_answers_are_kept_in_bounded_number_and_hold_nobody_up() {
    if fabric() != Fabric::Iwarp {
        println!("only on iWARP does the kernel keep them");
        return;
    }
    let ring = ring(256);
    let mut publisher = Publisher::open(&RcOptions { connect_limit_ns: 50_000_000, ..rc_options() }, &ring);
    let mut given_up = 0;
    // Never turned, so they answer nobody; the backlog of each is 8.
    let mut silent = Vec::new();
    let attempts = loop {
        let mut subscriber = Subscriber::open(256);
        let (offer, token) = subscriber.offer();
        silent.push(subscriber);
        let mut unended = None;
        for _ in 0..6 {
            let ticket = publisher.keeper.connect(&offer, token, now());
            match until("end", || publisher.event()) {
                RcTxEvent::Dropped { ticket: of, why: DropReason::TimeLimit { .. } } if of == ticket => given_up += 1,
                RcTxEvent::Dropped { why: DropReason::Unended { attempts }, .. } => unended = Some(attempts),
                other => panic!("{other:?}"),
            }
        }
        if let Some(attempts) = unended {
            break attempts;
        }
        assert!(given_up < 100, "{given_up} attempts were given up, and none was refused");
    };
    println!("refused while the kernel kept {attempts} attempts, after {given_up}");
    assert_eq!(attempts, 16);
    // When the kernel has let go of them there is room again.
    let mut subscriber = Subscriber::open(256);
    let (offer, token) = subscriber.offer();
    let start = Instant::now();
    loop {
        publisher.keeper.connect(&offer, token, now());
        match until("end", || publisher.event()) {
            RcTxEvent::Dropped { why: DropReason::Unended { .. }, .. } => {
                std::thread::sleep(Duration::from_millis(100))
            }
            RcTxEvent::Dropped { why: DropReason::TimeLimit { .. }, .. } => break,
            other => panic!("{other:?}"),
        }
        assert!(start.elapsed() < 5 * LIMIT, "they never end");
    }
    println!("there was room again after {:?}, of 10 s", start.elapsed());
    // One that is under way when the lane is closed. For the keeper no time passes, so it cannot be given up first.
    let at = now();
    publisher.keeper.connect(&offer, token, at);
    let closing = Instant::now();
    while closing.elapsed() < Duration::from_millis(20) {
        publisher.keeper.do_work(at);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(publisher.keeper.sessions(), 1);
    let closing = Instant::now();
    drop(publisher);
    println!("closed after {:?}", closing.elapsed());
    assert!(closing.elapsed() < Duration::from_secs(5), "{:?}", closing.elapsed());
}

#[test]
fn a_dead_subscriber_is_dropped_by_name_and_its_neighbour_loses_nothing() {
    let mut ring = ring(1 << 14);
    // Retries of 3 times 4 ms: the card gives up first. On iWARP TCP does not for minutes: the deadline is first.
    let options = RcOptions { timers: RcTimers { retries: 3, ..RcTimers::default() }, ..rc_options() };
    let mut publisher = Publisher::open(&options, &ring);
    let (dead, gone) = publisher.connect(1 << 14);
    let mut seen = Seen::default();
    put(&mut ring, 100);
    publisher.tx.flush(&ring, now());
    let mut gone_seen = Seen::default();
    let mut gone = gone;
    poll_until(&mut gone, &mut gone_seen, LIMIT, "line 100", |seen| seen.next > 100);
    // Its neighbour is on this side of the wire.
    let mut alive = Subscriber::open_at(HERE, 1 << 14);
    publisher.connect_to(&mut alive);
    publisher.tx.flush(&ring, now());
    poll_until(&mut alive, &mut seen, LIMIT, "line 100", |seen| seen.next > 100);
    if fabric() != Fabric::Iwarp {
        let info = publisher.tx.queue_pair(dead).expect("taken in").query().expect("its state");
        assert_eq!((info.ack_timeout, info.retries), (10, 3));
    }
    let _netem = Netem::new(&["w0", "w1"], &["loss", "100%"]);
    let died = Instant::now();
    let mut told = None;
    let mut longest = Duration::ZERO;
    while told.is_none() || ring.head().sequence().0 <= 10_000 {
        assert!(died.elapsed() < LIMIT, "the dead subscriber was never told of");
        // What is under way may not lie half the ring behind: while nobody has told of the dead one, go slowly.
        if told.is_some() || publisher.tx.under_way(dead).unwrap_or(0) < 64 {
            put(&mut ring, 20);
        }
        let turn = Instant::now();
        publisher.tx.flush(&ring, now());
        longest = longest.max(turn.elapsed());
        if let Some(event) = publisher.event() {
            told = Some((event, died.elapsed()));
        }
        if alive.poll(now(), 1 << 20, &mut seen) == 0 {
            std::thread::yield_now();
        }
    }
    let (event, after) = told.expect("told of");
    println!("{event:?} after {after:?}; the longest flush took {longest:?}");
    let RcTxEvent::Dropped { ticket, why } = event else { panic!("{event:?}") };
    assert_eq!(ticket, dead);
    if fabric() == Fabric::Iwarp {
        assert!(matches!(why, DropReason::Write(PeerFailure::Deadline { .. })), "{why:?}");
    } else {
        assert!(matches!(why, DropReason::Write(PeerFailure::Completion(Status::RetryExceeded))), "{why:?}");
        assert_eq!(why.reaction(), Reaction::DropPeer);
    }
    assert!(after < 2 * Duration::from_nanos(DEADLINE_NS), "{after:?}");
    let last = ring.head().sequence().0 - 1;
    poll_until(&mut alive, &mut seen, LIMIT, "the last line", |seen| seen.next > last);
    assert_eq!(seen.lines, last);
    publisher.nothing_happened();
}

#[test]
fn a_subscriber_that_goes_away_is_told_of_at_once_and_its_neighbour_loses_nothing() {
    let mut ring = ring(1 << 14);
    let mut publisher = Publisher::open(&rc_options(), &ring);
    let (_, mut alive) = publisher.connect(1 << 14);
    let (leaver, gone) = publisher.connect(1 << 14);
    put(&mut ring, 100);
    publisher.tx.flush(&ring, now());
    drop(gone);
    let left = Instant::now();
    // Nothing is written: the word of the subscriber's kernel alone says it.
    let (ticket, why) = publisher.dropped(&ring);
    println!("{why} after {:?}", left.elapsed());
    assert_eq!(ticket, leaver);
    put(&mut ring, 100);
    publisher.tx.flush(&ring, now());
    let mut seen = Seen::default();
    poll_until(&mut alive, &mut seen, LIMIT, "line 200", |seen| seen.next > 200);
    publisher.nothing_happened();
}

#[test]
fn what_is_posted_to_a_queue_pair_in_error_comes_back_flushed() {
    let mut ring = ring(256);
    let mut publisher = Publisher::open(&rc_options(), &ring);
    let (ticket, _subscriber) = publisher.connect(256);
    publisher.tx.flush(&ring, now());
    publisher.tx.queue_pair(ticket).expect("taken in").fail().expect("in error");
    put(&mut ring, 1);
    publisher.tx.heartbeat(&ring, now(), false);
    let why = match publisher.keeper.next_event() {
        Some(event) => panic!("{event:?}"),
        None => until("end", || {
            publisher.tx.flush(&ring, now());
            match publisher.event()? {
                RcTxEvent::Dropped { why, .. } => Some(why),
                other => panic!("{other:?}"),
            }
        }),
    };
    println!("{why:?}");
    if fabric() != Fabric::Iwarp {
        assert!(matches!(why, DropReason::Write(PeerFailure::Completion(Status::Flushed))), "{why:?}");
        assert_eq!(why.reaction(), Reaction::Ignore);
    }
}

/// Writes to a subscriber that is silent in virtual time, where its card's silence must not be told of first. That takes it
/// 30 ms and more of real time; where this thread was held up for so long, it is tried again.
fn before_the_card_gives_up(what: impl Fn(&mut Publisher, &mut RingWriter, RcTicket) -> Option<DropReason>) {
    if fabric() == Fabric::Iwarp {
        println!(
            "not on this fabric: a write has ended when TCP has taken it, and a silent subscriber fills its buffers first"
        );
        return;
    }
    for attempt in 0..10 {
        let mut ring = ring(1024);
        let mut publisher = Publisher::open(&rc_options(), &ring);
        let (ticket, _subscriber) = publisher.connect(1024);
        publisher.tx.flush(&ring, Nanos(0));
        let _netem = Netem::new(&["w0", "w1"], &["loss", "100%"]);
        let why = what(&mut publisher, &mut ring, ticket).expect("it is told of");
        if !matches!(why, DropReason::Write(PeerFailure::Completion(Status::RetryExceeded))) {
            return;
        }
        println!("attempt {attempt}: the card gave up first");
    }
    panic!("the card gave up first, ten times");
}

/// What has become of the only connection.
fn ended(publisher: &mut Publisher) -> Option<DropReason> {
    match publisher.event()? {
        RcTxEvent::Dropped { why, .. } => Some(why),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_waits_for_a_completion_too_long_is_dropped_and_never_read_again() {
    before_the_card_gives_up(|publisher, ring, ticket| {
        put(ring, 1);
        publisher.tx.heartbeat(ring, Nanos(1_000), false);
        // The line, and the heartbeat, which asks for a completion.
        assert_eq!((publisher.tx.under_way(ticket), publisher.tx.signalled_under_way()), (Some(2), 1));
        publisher.tx.flush(ring, Nanos(1_000 + DEADLINE_NS));
        let early = ended(publisher);
        if early.is_some() {
            return early;
        }
        publisher.tx.flush(ring, Nanos(1_001 + DEADLINE_NS));
        let why = ended(publisher).expect("too long by now");
        let deadline = PeerFailure::Deadline { waited_ns: DEADLINE_NS + 1 };
        let failure = match &why {
            DropReason::Write(failure) => *failure,
            other => panic!("{other:?}"),
        };
        assert!([deadline, PeerFailure::Completion(Status::RetryExceeded)].contains(&failure), "{failure:?}");
        assert_eq!((publisher.tx.peers().count(), publisher.tx.flush(ring, Nanos(2 * DEADLINE_NS))), (0, 0));
        Some(why)
    });
}

#[test]
fn what_is_under_way_is_dropped_before_its_source_is_overwritten() {
    before_the_card_gives_up(|publisher, ring, _| {
        put(ring, 1);
        publisher.tx.flush(ring, Nanos(1_000));
        put(ring, 511);
        publisher.tx.flush(ring, Nanos(1_000));
        let early = ended(publisher);
        if early.is_some() {
            let is_overrun = matches!(early, Some(DropReason::Write(PeerFailure::Overrun)));
            assert!(!is_overrun, "half the ring is still there");
            return early;
        }
        put(ring, 1);
        publisher.tx.flush(ring, Nanos(1_000));
        let why = ended(publisher).expect("too far by now");
        let expected =
            matches!(why, DropReason::Write(PeerFailure::Overrun | PeerFailure::Completion(Status::RetryExceeded)));
        assert!(expected, "{why:?}");
        assert_eq!(publisher.tx.peers().count(), 0);
        Some(why)
    });
}

/// As the arbiter does: a line that comes twice is told once.
#[derive(Default)]
struct Once {
    told: Losses,
    twice: u64,
}

impl RunSink for Once {
    fn on_run(&mut self, run: Run<'_>) {
        let known = self.told.next.saturating_sub(run.first.sequence().0).min(run.lines.len() as u64);
        self.twice += known;
        if known < run.lines.len() as u64 {
            self.told.on_run(Run { first: run.first.plus(known), lines: &run.lines[known as usize..], ..run });
        }
    }

    fn on_position(&mut self, position: Position) {
        self.told.on_position(position);
    }

    fn on_loss(&mut self, path: LanePath, first: Stamp, count: u64, cause: LossCause) {
        self.told.on_loss(path, first, count, cause);
    }
}

#[test]
fn a_new_connection_has_a_new_ring_and_what_the_old_one_holds_comes_first() {
    let mut ring = ring(1024);
    let mut publisher = Publisher::open(&rc_options(), &ring);
    let (first, mut subscriber) = publisher.connect(1024);
    let before = resources();
    put(&mut ring, 300);
    publisher.tx.flush(&ring, now());
    let mut seen = Once::default();
    poll_until(&mut subscriber, &mut seen, LIMIT, "line 300", |seen| seen.told.next == 301);
    // Twenty more arrive and are not read; then the connection ends, and twenty are published meanwhile.
    put(&mut ring, 20);
    let mut publisher = Settled(publisher);
    publisher.heartbeat(&ring, now(), false);
    let mut publisher = publisher.0;
    publisher.keeper.disconnect(first);
    publisher.dropped(&ring);
    let lost = until("end there", || subscriber.event());
    assert!(matches!(lost, RcRxEvent::Lost { .. }), "{lost:?}");
    assert!(subscriber.keeper.region().is_none(), "nobody may write the old ring any more");
    put(&mut ring, 20);
    publisher.tx.flush(&ring, now());
    let second = publisher.connect_to(&mut subscriber);
    assert_ne!(first, second);
    put(&mut ring, 20);
    publisher.tx.flush(&ring, now());
    poll_until(&mut subscriber, &mut seen, LIMIT, "line 360", |seen| seen.told.next == 361);
    // The offer says what was read by then: what the old ring still held is written again, and what came meanwhile too.
    assert_eq!((seen.told.lines, seen.told.jumps.len(), seen.twice), (360, 0, 20));
    // The old ring came back and is gone.
    subscriber.keeper.do_work(now());
    assert_resources(&before);

    // A newer connection beside one that lives takes its place.
    let third = publisher.connect_to(&mut subscriber);
    let (dropped, why) = publisher.dropped(&ring);
    println!("{why}");
    assert_eq!(dropped, second);
    put(&mut ring, 20);
    publisher.tx.flush(&ring, now());
    poll_until(&mut subscriber, &mut seen, LIMIT, "line 380", |seen| seen.told.next == 381);
    assert_eq!((seen.told.lines, seen.told.jumps.len(), seen.twice), (380, 0, 20));
    assert_eq!(publisher.tx.peers().collect::<Vec<_>>(), [third]);
    assert_resources(&before);
}

/// What a child of this program is told to be, and the test that it runs for that.
const ROLE: &str = "BOOKCAST_TEST_ROLE";

/// This program again, in a process of its own, as `role` of the test called `name`.
fn child(name: &str, role: &str) -> (Child, impl FnMut() -> String) {
    let mut child = Command::new(std::env::current_exe().expect("this very program"))
        .args(["--exact", name, "--nocapture"])
        .env(ROLE, role)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let said = move || loop {
        let line = lines.next().expect("the child is still there").expect("text");
        if let Some(said) = line.strip_prefix("said: ") {
            return said.to_owned();
        }
    };
    (child, said)
}

fn say(offer: &RcOffer, token: RcToken) {
    let token = u128::from_le_bytes(*token.as_bytes());
    println!("said: {} {} {} {} {token}", offer.at, offer.address, offer.key, offer.lines);
}

fn heard(said: &str) -> (RcOffer, RcToken) {
    let mut words = said.split(' ');
    let mut word = || words.next().expect("another word");
    let at = word().parse().expect("an address");
    let address = word().parse().expect("an address");
    let key = word().parse().expect("a key");
    let lines = word().parse().expect("a number");
    let token = word().parse::<u128>().expect("a token");
    (RcOffer { at, address, key, lines, from: None }, RcToken::from_bytes(token.to_le_bytes()))
}

#[test]
fn a_subscriber_that_is_killed_is_dropped_in_time_and_leaves_nothing_behind() {
    let name = "a_subscriber_that_is_killed_is_dropped_in_time_and_leaves_nothing_behind";
    if std::env::var_os(ROLE).is_some() {
        let mut subscriber = Subscriber::open(1 << 14);
        let (offer, token) = subscriber.offer();
        say(&offer, token);
        let mut seen = Seen::default();
        let start = Instant::now();
        while start.elapsed() < LIMIT {
            subscriber.keeper.do_work(now());
            if subscriber.poll(now(), 1 << 10, &mut seen) == 0 {
                std::thread::sleep(Duration::from_millis(1));
            } else if seen.next > 100 {
                println!("said: line 100");
            }
        }
        return;
    }
    let mut ring = ring(1 << 14);
    let mut publisher = Publisher::open(&rc_options(), &ring);
    let (_, mut neighbour) = publisher.connect(1 << 14);
    publisher.tx.flush(&ring, now());
    let before = resources();
    let (mut child, mut said) = child(name, "subscriber");
    let (offer, token) = heard(&said());
    let victim = publisher.keeper.connect(&offer, token, now());
    let event = until("connection", || publisher.event());
    assert!(matches!(event, RcTxEvent::Connected { ticket, .. } if ticket == victim), "{event:?}");
    put(&mut ring, 100);
    publisher.tx.flush(&ring, now());
    assert_eq!(said(), "line 100");
    child.kill().expect("killed");
    let killed = Instant::now();
    let mut seen = Seen::default();
    let why = until("end", || {
        // The neighbour is served all the while.
        put(&mut ring, 1);
        publisher.tx.flush(&ring, now());
        let next = ring.head().sequence().0;
        poll_until(&mut neighbour, &mut seen, LIMIT, "the newest line", |seen| seen.next == next);
        match publisher.event()? {
            RcTxEvent::Dropped { ticket, why } if ticket == victim => Some(why),
            other => panic!("{other:?}"),
        }
    });
    println!("{why} {:?} after the kill", killed.elapsed());
    assert!(killed.elapsed() < Duration::from_secs(10), "ten times what is promised");
    child.wait().expect("gone");
    assert_resources(&before);
    assert_eq!(seen.lines, ring.head().sequence().0 - 1);
    publisher.nothing_happened();
}

#[test]
fn a_publisher_that_is_killed_is_told_of_and_the_next_one_finds_an_open_door() {
    let name = "a_publisher_that_is_killed_is_told_of_and_the_next_one_finds_an_open_door";
    if let Ok(role) = std::env::var(ROLE) {
        let (offer, token) = heard(&role);
        let mut ring = ring(1 << 10);
        let mut publisher = Publisher::open(&rc_options(), &ring);
        let ticket = publisher.keeper.connect(&offer, token, now());
        let event = until("connection", || publisher.event());
        assert!(matches!(event, RcTxEvent::Connected { ticket: it, .. } if it == ticket), "{event:?}");
        put(&mut ring, 100);
        let start = Instant::now();
        while start.elapsed() < LIMIT {
            publisher.tx.flush(&ring, now());
            std::thread::sleep(Duration::from_millis(1));
        }
        return;
    }
    let mut subscriber = Subscriber::open(1 << 10);
    let before = resources();
    let (offer, token) = subscriber.offer();
    let role = format!(
        "{} {} {} {} {}",
        offer.at,
        offer.address,
        offer.key,
        offer.lines,
        u128::from_le_bytes(*token.as_bytes())
    );
    let (mut child, _said) = child(name, &role);
    let mut seen = Losses::default();
    let event = until("connection", || subscriber.event());
    assert!(matches!(event, RcRxEvent::Connected { first } if first == stamp(1)), "{event:?}");
    poll_until(&mut subscriber, &mut seen, LIMIT, "line 100", |seen| seen.next == 101);
    child.kill().expect("killed");
    let killed = Instant::now();
    let event = until("end", || subscriber.event());
    println!("{event:?} {:?} after the kill", killed.elapsed());
    assert!(matches!(event, RcRxEvent::Lost { why: LostReason::Disconnected }), "{event:?}");
    child.wait().expect("gone");
    assert_resources(&before);
    let mut ring = ring(1 << 10);
    let mut publisher = Publisher::open(&rc_options(), &ring);
    put(&mut ring, 200);
    publisher.connect_to(&mut subscriber);
    publisher.tx.flush(&ring, now());
    // A ring of its own, from the first line on: what was read before is for the arbiter to leave out.
    let mut seen = Losses::default();
    poll_until(&mut subscriber, &mut seen, LIMIT, "line 200", |seen| seen.next == 201);
    assert_eq!((seen.lines, seen.jumps.len()), (200, 0));
}
