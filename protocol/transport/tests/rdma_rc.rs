//! The RC lane between two soft devices, of RoCE v2 or iWARP: who is admitted, who is refused, and what becomes of those
//! who fail.

#![forbid(unsafe_code)]

mod rdma_support;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::{Command, Stdio};
use std::time::Instant;

use protocol::record::{ChannelId, Lane};
use protocol::time::Nanos;
use rdma_support::*;
use transport::rdma::*;
use transport::{LaneRx, LaneTx, RingWriter};

/// Each word of a ring.
fn words_of(subscriber: &Subscriber) -> Vec<u64> {
    use std::sync::atomic::Ordering;
    use transport::ring::core::{Word, Words};
    let memory = subscriber.keeper.memory().expect("a ring");
    let places = subscriber.keeper.region().expect("a ring").byte_len() / 64;
    (0..places)
        .flat_map(|place| Words::<8>::place(memory, place * 8).each_ref().map(|word| word.load(Ordering::Acquire)))
        .collect()
}

fn is_untouched(subscriber: &Subscriber) -> bool {
    words_of(subscriber).iter().all(|word| *word == 0)
}

/// What a write ends with that the subscriber's card refuses.
fn assert_refused_by_the_card(why: &DropReason) {
    match fabric() {
        Fabric::Iwarp => {
            // The other side ends the stream; which word of that comes first is chance.
            let is_end = matches!(
                why,
                DropReason::Write(PeerFailure::Completion(_) | PeerFailure::NotPosted { .. })
                    | DropReason::Disconnected
                    | DropReason::Device(_)
            );
            assert!(is_end, "{why:?}");
        }
        _ => {
            let status = Status::RemoteAccess;
            assert!(matches!(why, DropReason::Write(PeerFailure::Completion(it)) if *it == status), "{why:?}");
            assert_eq!(why.reaction(), Reaction::RefusePeer);
        }
    }
}

#[test]
fn what_is_no_ring_or_no_address_is_refused_by_name() {
    let options = RcRxOptions { lines: 100, ..RcRxOptions::new(THERE) };
    let error = RcRx::open(&options, CHANNEL, LANE).err().expect("no power of two");
    assert!(matches!(error, RdmaError::Limit { value: 100, .. }), "{error}");
    let nobody = Ipv4Addr::new(10, 99, 0, 77);
    let error = RcRx::open(&RcRxOptions::new(nobody), CHANNEL, LANE).err().expect("nobody's");
    assert!(error.to_string().contains("10.99.0.77"), "{error}");
    let ring = ring(256);
    for options in [
        RcOptions { max_peers: 0, ..rc_options() },
        RcOptions { send_depth: 127, ..rc_options() },
        RcOptions { max_peers: 1 << 20, ..rc_options() },
    ] {
        let error = RcRingTx::open(&options, &ring).err().expect("beyond a limit");
        assert!(matches!(error, RdmaError::Limit { .. }), "{error}");
    }
    let mut publisher = Publisher::open(&rc_options(), &ring);
    let offer = RcOffer { at: SocketAddrV4::new(THERE, 1), address: 4096, key: 1, lines: 256, from: None };
    // Of the numbers that a subscriber may send, some overflow where the length of their ring is reckoned.
    let lines = [100, 1, 1 << 63, !0].map(|lines| RcOffer { lines, ..offer });
    for bad in lines.into_iter().chain([RcOffer { address: !0, ..offer }]) {
        let ticket = publisher.keeper.connect(&bad, RcToken::from_bytes([1; 16]), now());
        let event = publisher.event();
        let why = DropReason::BadOffer { lines: bad.lines, address: bad.address }.to_string();
        let told = matches!(&event, Some(RcTxEvent::Dropped { ticket: of, why: it }) if *of == ticket && it.to_string() == why);
        assert!(told, "{event:?}");
    }
}

#[test]
fn memory_that_may_not_be_locked_is_refused_with_the_limit_and_the_remedy() {
    const CHILD: &str = "BOOKCAST_TEST_UNLOCKED_CHILD";
    if std::env::var_os(CHILD).is_some() {
        let options = RcRxOptions { lines: 1 << 14, ..RcRxOptions::new(THERE) };
        let (_, mut keeper) = RcRx::open(&options, CHANNEL, LANE).expect("a lane there");
        let text = keeper.offer().expect_err("a megabyte over the limit").to_string();
        println!("refused: {text}");
        let device = keeper.local().device.name().to_owned();
        for part in ["no permission to lock 1048704 bytes", &device, "the limit is 65536 bytes", "ulimit -l unlimited"]
        {
            assert!(text.contains(part), "{part:?} is not in: {text}");
        }
        return;
    }
    let name = "memory_that_may_not_be_locked_is_refused_with_the_limit_and_the_remedy";
    let executable = std::env::current_exe().expect("this very program");
    let output = Command::new("setpriv")
        .args(["--bounding-set", "-ipc_lock", "--inh-caps", "-ipc_lock", "sh", "-c"])
        .arg(format!("ulimit -l 64; exec \"$0\" --exact {name} --nocapture"))
        .arg(executable)
        .env(CHILD, "1")
        .output()
        .expect("setpriv is there");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("refused: "), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_publisher_gives_nobody_any_rights_and_a_subscriber_gives_writing_alone() {
    let ring = ring(256);
    let mut publisher = Publisher::open(&rc_options(), &ring);
    let (ticket, subscriber) = publisher.connect(256);
    publisher.tx.flush(&ring, now());
    let regions = publisher.tx.regions();
    assert!(regions.iter().all(|region| region.rights() == Rights::SendOnly && !region.rights().is_remote()));
    let region = subscriber.keeper.region().expect("connected");
    assert_eq!((region.rights(), region.byte_len()), (Rights::RemoteWrite, 128 + 64 * 256));
    let ours = publisher.tx.queue_pair(ticket).expect("taken in").query().expect("its state");
    let theirs = subscriber.keeper.queue_pair().expect("connected").query().expect("its state");
    println!("publisher's queue pair: {ours:?}\nsubscriber's queue pair: {theirs:?}");
    // siw says the same of every queue pair, whatever it was told; there the regions rule.
    if fabric() != Fabric::Iwarp {
        assert_eq!((ours.state, ours.rights), (QueuePairState::ReadyToSend, RemoteRights::NONE));
        assert_eq!((ours.ack_timeout, ours.retries), (10, 6));
        assert_eq!((theirs.state, theirs.rights), (QueuePairState::ReadyToSend, RemoteRights::WRITE));
    }
}

#[test]
fn lines_come_in_order_and_the_keepers_are_not_needed_for_them() {
    let mut ring = ring(4096);
    let mut publisher = Publisher::open(&rc_options(), &ring);
    let (ticket, mut subscriber) = publisher.connect(1024);
    let mut seen = Seen::default();
    for turn in 0..2000_u64 {
        put(&mut ring, 1 + turn as usize % 20);
        publisher.tx.flush(&ring, now());
        let next = ring.head().sequence().0;
        poll_until(&mut subscriber, &mut seen, LIMIT, "lines", |seen| seen.next == next);
    }
    publisher.nothing_happened();
    let counters = publisher.tx.counters(ticket).expect("taken in");
    println!("{counters:?}");
    assert_eq!((seen.lines, counters.lines, counters.lines_skipped), (21_000, 21_000, 0));
    assert!(subscriber.event().is_none());
    assert_eq!((subscriber.keeper.counters().connected, subscriber.keeper.counters().lost), (1, 0));
}

#[test]
fn whoever_comes_early_gets_everything_and_whoever_comes_late_what_is_new() {
    let mut ring = ring(1024);
    let mut publisher = Publisher::open(&rc_options(), &ring);
    put(&mut ring, 256);
    publisher.tx.flush(&ring, now());
    // A quarter of the ring; but of a smaller one it is more.
    let (_, mut early) = publisher.connect(1024);
    let (_, mut small) = publisher.connect(512);
    put(&mut ring, 1);
    publisher.tx.flush(&ring, now());
    let (_, mut late) = publisher.connect(1024);
    put(&mut ring, 3);
    publisher.tx.flush(&ring, now());
    for (subscriber, first) in [(&mut early, 1), (&mut small, 257), (&mut late, 258)] {
        assert_eq!(subscriber.rx.reader().map(|reader| reader.cursor()), None, "not polled yet");
        let mut seen = Seen::default();
        poll_until(subscriber, &mut seen, LIMIT, "line 260", |seen| seen.next == 261);
        assert_eq!(seen.lines, 261 - first);
    }
    publisher.nothing_happened();
}

#[test]
fn whoever_comes_back_goes_on_where_it_was_if_the_ring_still_holds_that() {
    let mut ring = ring(1024);
    let mut publisher = Publisher::open(&rc_options(), &ring);
    let (first, mut subscriber) = publisher.connect(1024);
    let mut seen = Seen::default();
    for next in [251, 501] {
        put(&mut ring, 250);
        publisher.tx.flush(&ring, now());
        poll_until(&mut subscriber, &mut seen, LIMIT, "lines", |seen| seen.next == next);
    }
    let mut again = |publisher: &mut Publisher, subscriber: &mut Subscriber, ticket, meanwhile| {
        publisher.keeper.disconnect(ticket);
        let (gone, why) = publisher.dropped(&ring);
        assert!(gone == ticket && matches!(why, DropReason::Asked), "{why:?}");
        put(&mut ring, meanwhile);
        publisher.tx.flush(&ring, now());
        let (offer, token) = subscriber.offer();
        assert_eq!(offer.from, Some(stamp(501)));
        let ticket = publisher.keeper.connect(&offer, token, now());
        let first = publisher.settle(ticket, subscriber).expect("connected");
        publisher.tx.flush(&ring, now());
        (ticket, first, ring.head())
    };
    // Nothing was read meanwhile, so 501 is what it wants, and 256 lines are a quarter of the ring.
    let (second, from, head) = again(&mut publisher, &mut subscriber, first, 256);
    assert_eq!((from, head), (stamp(501), stamp(757)));
    // One more than that, and it is told what comes now, and named what is missing.
    let (_, from, head) = again(&mut publisher, &mut subscriber, second, 1);
    assert_eq!((from, head), (stamp(758), stamp(758)));
}

#[test]
fn what_the_ring_has_overwritten_before_it_is_sent_is_counted_and_named() {
    let mut ring = ring(256);
    let mut publisher = Publisher::open(&rc_options(), &ring);
    let (ticket, mut subscriber) = publisher.connect(1024);
    // Nothing is flushed while the ring goes round; of the last half of it an eighth is slack.
    put(&mut ring, 300);
    publisher.tx.flush(&ring, now());
    let skipped = 300 - 256 / 8 * 3;
    assert_eq!(publisher.tx.counters(ticket).expect("taken in").lines_skipped, skipped);
    assert_eq!(publisher.tx.lines_unsent(), skipped);
    publisher.tx.heartbeat(&ring, now(), false);
    let mut lost = Losses::default();
    poll_until(&mut subscriber, &mut lost, LIMIT, "line 300", |seen| seen.next == 301);
    assert_eq!((lost.lines, lost.lost), (300 - skipped, skipped));
}

#[test]
fn a_wrong_token_another_channel_and_another_lane_are_refused_and_the_ring_unchanged() {
    let writer = |channel, lane| {
        let mut ring = RingWriter::anonymous(ChannelId::new(channel), Lane::new(lane), EPOCH, 256).expect("a ring");
        put(&mut ring, 10);
        ring
    };
    let right = writer(300, 1);
    let before = resources();
    let mut subscriber = Subscriber::open(256);
    for (channel, lane, flip, refusal) in
        [(300, 1, 1, Refusal::WrongToken), (301, 1, 0, Refusal::WrongChannel), (300, 2, 0, Refusal::WrongLane)]
    {
        let ring = writer(channel, lane);
        let mut publisher = Publisher::open(&rc_options(), &ring);
        let (offer, token) = subscriber.offer();
        // From the start each time, though it had these lines before.
        let offer = RcOffer { from: None, ..offer };
        let mut bytes = *token.as_bytes();
        bytes[15] ^= flip;
        let ticket = publisher.keeper.connect(&offer, RcToken::from_bytes(bytes), now());
        let why = publisher.settle(ticket, &mut subscriber).expect_err("refused");
        println!("{why}");
        assert!(matches!(why, DropReason::Refused(it) if it == refusal), "{why:?}");
        assert_eq!(why.reaction(), Reaction::RefusePeer);
        let told = subscriber.event();
        assert!(matches!(told, Some(RcRxEvent::Refused { why }) if why == refusal), "{told:?}");
        publisher.tx.flush(&ring, now());
        assert!(is_untouched(&subscriber), "something was written");
        assert_eq!(publisher.keeper.sessions(), 0);
        // The right one is not shut out by that.
        drop(publisher);
        let mut publisher = Publisher::open(&rc_options(), &right);
        let ticket = publisher.keeper.connect(&offer, token, now());
        publisher.settle(ticket, &mut subscriber).expect("connected");
        assert!(matches!(subscriber.event(), Some(RcRxEvent::Connected { .. })));
        publisher.tx.flush(&right, now());
        let mut seen = Seen::default();
        poll_until(&mut subscriber, &mut seen, LIMIT, "line 10", |seen| seen.next == 11);
        drop(publisher);
        let lost = until("end there", || subscriber.event());
        assert!(matches!(lost, RcRxEvent::Lost { why: LostReason::Disconnected }), "{lost:?}");
    }
    let counters = *subscriber.keeper.counters();
    assert_eq!((counters.offers, counters.refused, counters.connected, counters.lost), (3, 3, 3, 3));
    drop(subscriber);
    assert_resources(&before);
}

#[test]
fn before_a_token_is_agreed_on_and_after_it_was_used_nobody_is_admitted() {
    let mut ring = ring(256);
    let mut publisher = Publisher::open(&rc_options(), &ring);
    let mut subscriber = Subscriber::open(256);
    let refused = |publisher: &mut Publisher, subscriber: &mut Subscriber, offer, token, refusal| {
        let ticket = publisher.keeper.connect(offer, token, now());
        let why = publisher.settle(ticket, subscriber).expect_err("refused");
        assert!(matches!(why, DropReason::Refused(it) if it == refusal), "{why:?}");
        let told = subscriber.event();
        assert!(matches!(told, Some(RcRxEvent::Refused { why }) if why == refusal), "{told:?}");
    };
    assert!(!subscriber.keeper.expect(RcToken::from_bytes([0; 16])), "nothing is offered");
    let offer = subscriber.keeper.offer().expect("a ring there");
    refused(&mut publisher, &mut subscriber, &offer, RcToken::from_bytes([0; 16]), Refusal::NotExpected);
    let token = RcToken::random().expect("random bytes");
    assert!(subscriber.keeper.expect(token));
    let ticket = publisher.keeper.connect(&offer, token, now());
    publisher.settle(ticket, &mut subscriber).expect("connected");
    assert!(matches!(subscriber.event(), Some(RcRxEvent::Connected { .. })));
    put(&mut ring, 10);
    publisher.tx.flush(&ring, now());
    let mut seen = Seen::default();
    poll_until(&mut subscriber, &mut seen, LIMIT, "line 10", |seen| seen.next == 11);
    let before = words_of(&subscriber);
    refused(&mut publisher, &mut subscriber, &offer, token, Refusal::SecondConnection);
    assert_eq!(words_of(&subscriber), before);
    // And the first connection does not suffer.
    put(&mut ring, 10);
    publisher.tx.flush(&ring, now());
    poll_until(&mut subscriber, &mut seen, LIMIT, "line 20", |seen| seen.next == 21);
    assert_eq!(subscriber.keeper.counters().refused, 2);
}

#[test]
fn a_request_of_another_program_is_refused_and_the_ring_unchanged() {
    let mut subscriber = Subscriber::open(256);
    let (offer, _) = subscriber.offer();
    // rping asks with private data of its own.
    let (address, port) = (offer.at.ip().to_string(), offer.at.port().to_string());
    let mut stranger = Command::new("rping")
        .args(["-c", "-C", "1", "-I", &HERE.to_string(), "-a", &address, "-p", &port])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("rping is there");
    let told = until("request", || subscriber.event());
    assert!(matches!(told, RcRxEvent::Refused { why: Refusal::Malformed }), "{told:?}");
    until("end of the stranger", || stranger.try_wait().expect("our child"));
    assert!(is_untouched(&subscriber), "something was written");
    // Whoever has the token is not shut out by that.
    let ring = ring(256);
    Publisher::open(&rc_options(), &ring).connect_again(&mut subscriber);
}

#[test]
fn a_wrong_key_is_refused_by_name_and_harms_nobody_else() {
    let mut ring = ring(1024);
    let mut publisher = Publisher::open(&rc_options(), &ring);
    let (good, mut neighbour) = publisher.connect(1024);
    let mut subscriber = Subscriber::open(1024);
    let (offer, token) = subscriber.offer();
    let offer = RcOffer { key: offer.key ^ 0x100, ..offer };
    let bad = publisher.keeper.connect(&offer, token, now());
    publisher.settle(bad, &mut subscriber).expect("connected");

    put(&mut ring, 10);
    publisher.tx.flush(&ring, now());
    // The completion that says so is asked for with the heartbeat, if not before.
    publisher.tx.heartbeat(&ring, now(), false);
    let (ticket, why) = publisher.dropped(&ring);
    println!("{why}");
    assert_eq!(ticket, bad);
    assert_refused_by_the_card(&why);
    assert!(is_untouched(&subscriber), "something was written");
    assert!(publisher.tx.counters(bad).is_none() && publisher.tx.counters(good).is_some());

    for _ in 0..100 {
        put(&mut ring, 5);
        publisher.tx.flush(&ring, now());
        std::thread::yield_now();
    }
    let mut seen = Seen::default();
    poll_until(&mut neighbour, &mut seen, LIMIT, "line 510", |seen| seen.next > 510);
    assert_eq!(seen.lines, 510);
    publisher.nothing_happened();
}

#[test]
fn a_write_one_byte_outside_the_ring_is_refused_and_the_ring_unchanged() {
    let mut ring = ring(1024);
    // The next line is that of the last place.
    put(&mut ring, 254);
    let mut publisher = Publisher::open(&rc_options(), &ring);
    let mut subscriber = Subscriber::open(256);
    let (offer, token) = subscriber.offer();
    let offer = RcOffer { address: offer.address + 1, ..offer };
    let ticket = publisher.keeper.connect(&offer, token, now());
    let first = publisher.settle(ticket, &mut subscriber).expect("connected");
    assert_eq!(first, stamp(255));
    put(&mut ring, 1);
    publisher.tx.flush(&ring, now());
    publisher.tx.heartbeat(&ring, now(), false);
    let (dropped, why) = publisher.dropped(&ring);
    println!("{why}");
    assert_eq!(dropped, ticket);
    assert_refused_by_the_card(&why);
    assert!(is_untouched(&subscriber), "something was written");
}

#[test]
fn the_key_of_a_ring_that_was_given_back_opens_nothing() {
    let mut ring = ring(1024);
    let mut publisher = Publisher::open(&rc_options(), &ring);
    let mut subscriber = Subscriber::open(1024);
    let (old, _) = subscriber.offer();
    let (offer, token) = subscriber.offer();
    let mixed = RcOffer { address: old.address, key: old.key, ..offer };
    let ticket = publisher.keeper.connect(&mixed, token, now());
    publisher.settle(ticket, &mut subscriber).expect("connected");
    put(&mut ring, 10);
    publisher.tx.heartbeat(&ring, now(), false);
    let (dropped, why) = publisher.dropped(&ring);
    println!("{why}");
    assert_eq!(dropped, ticket);
    assert_refused_by_the_card(&why);
    assert!(is_untouched(&subscriber), "something was written");
    // Nor does anybody answer where the old offer listened.
    let ticket = publisher.keeper.connect(&old, token, now());
    let why = publisher.settle(ticket, &mut subscriber).expect_err("nobody listens");
    println!("{why}");
    assert!(matches!(why, DropReason::Rejected { .. } | DropReason::NotConnected { .. }), "{why:?}");
}

#[test]
fn heartbeats_are_written_once_per_interval_under_traffic_and_date_the_lines() {
    let mut ring = ring(4096);
    let options = RcOptions { heartbeat_interval_ns: Some(10_000_000), ..rc_options() };
    let mut publisher = Settled(Publisher::open(&options, &ring));
    let (ticket, mut subscriber) = publisher.0.connect(4096);
    let mut seen = Seen::default();
    // A thousand turns of a millisecond, in virtual time; the lines have that time in their records.
    for turn in 0..1000u64 {
        let now = Nanos(1_700_000_000_000_000_000 + turn * 1_000_000);
        put(&mut ring, 1);
        publisher.flush(&ring, now);
        // What the publisher asks for beside that is too much.
        publisher.heartbeat(&ring, now, false);
        let start = Instant::now();
        while seen.next <= turn + 1 {
            assert!(start.elapsed() < LIMIT, "line {} did not come", turn + 1);
            subscriber.poll(now, 1 << 10, &mut seen);
        }
        subscriber.poll(now, 1 << 10, &mut seen);
    }
    let counters = *publisher.0.tx.counters(ticket).expect("connected");
    println!("{counters:?}");
    assert_eq!((counters.heartbeats, counters.lines, counters.writes), (100, 1000, 1000));
    // Each heartbeat goes inline and asks for a completion; so does one write of lines in a sixteenth of the ring or less.
    assert!(counters.signalled >= 100 && counters.signalled <= 100 + 1000 / 32, "{counters:?}");
    assert_eq!(counters.inline, 1100);
    assert_eq!(seen.lines, 1000);
    assert!(seen.positions.len() >= 90, "{} heartbeats were seen", seen.positions.len());
    assert!(seen.dated > 900, "{} lines of 1000 were dated", seen.dated);
    for position in &seen.positions {
        let time = position.publish_time.expect("a heartbeat has a clock").0 - 1_700_000_000_000_000_000;
        assert_eq!(position.next.sequence().0, time / 1_000_000 + 2, "{position:?}");
    }
}

#[test]
fn writes_longer_than_the_mtu_are_cut_by_the_device() {
    let mut ring = ring(8192);
    let mut publisher = Publisher::open(&rc_options(), &ring);
    let (ticket, mut subscriber) = publisher.connect(8192);
    // A sixteenth of the ring in one write: 32 KiB.
    put(&mut ring, 512);
    publisher.tx.flush(&ring, now());
    let mut seen = Seen::default();
    poll_until(&mut subscriber, &mut seen, LIMIT, "line 512", |seen| seen.next == 513);
    let counters = publisher.tx.counters(ticket).expect("taken in");
    assert_eq!((counters.writes, counters.lines, counters.doorbells), (1, 512, 1));
}
