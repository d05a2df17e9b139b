//! Recovery end to end: a real publisher with its recovery server, and subscribers that lose, come late, or stand still.

#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use bookcast_tests::programs::Running;
use bookcast_tests::stage::{PATIENCE, Plan, SMALL, TOKEN, Witness, is_let_in, poll_until, setting, unready};
use protocol::recovery::RecoveryState;
use protocol::run::LossCause;
use subscriber::{InstrumentId, RecoveryOptions, Subscriber};
use transport::fault::FaultPlan;

/// What a late joiner should take to valid books of some hundred instruments, on a machine that is not busy.
const LATE_JOIN: Duration = Duration::from_millis(500);

#[test]
fn over_udp_a_tenth_of_all_packets_is_lost_and_every_gap_heals() {
    let setting = setting("tenth", &SMALL);
    let (running, address) = setting.publish();
    let options = RecoveryOptions {
        // Answers are lost, overtaken and doubled just as well.
        faults: Some(FaultPlan { drop: 0.1, duplicate: 0.05, reorder: 0.05, ..FaultPlan::seeded(5) }),
        ..RecoveryOptions::new(address, TOKEN)
    };
    let plan = FaultPlan { drop: 0.1, duplicate: 0.05, reorder: 0.05, corrupt: 0.01, ..FaultPlan::seeded(4) };
    let lossy = setting.lossy_udp(plan);
    let mut subscriber = setting.builder(address).recover(options).lanes(lossy, 1);
    let mut witness = Witness::default();
    poll_until(&mut subscriber, &mut witness, "is let in", PATIENCE, |_, s| is_let_in(s));
    assert_eq!(witness.lines, 0, "it is there before the first line");
    poll_until(&mut subscriber, &mut witness, "the whole day", PATIENCE, |_, s| s.has_ended());
    let result = running.finish(PATIENCE);
    let result: serde_json::Value = serde_json::from_slice(&result.stdout).expect("JSON");
    let counts = subscriber.counts();
    let status = subscriber.recovery().expect("recovers");
    println!("{counts:?}\n{status:?}\n{:?}", subscriber.rx().counts());
    assert_eq!((witness.lost, Some(witness.lines)), (0, result["published"].as_u64()), "{:?}", witness.gaps);
    assert!(subscriber.rx().counts().dropped > 50, "{:?}", subscriber.rx().counts());
    assert!(counts.recovered > 50, "{counts:?}");
    let digests = subscriber.engine().digest_counts();
    assert!(digests.compared > 50 && digests.disagreed == 0, "{digests:?}");
    assert_eq!(unready(&subscriber, 20), 0);
}

#[test]
fn in_shared_memory_a_reader_that_was_lapped_gets_what_it_missed() {
    let plan = Plan { messages: 20_000, ring_lines: 1024, ..SMALL };
    let setting = setting("lapped", &plan);
    let (_running, address) = setting.publish();
    let builder = setting.builder(address).recover(RecoveryOptions::new(address, TOKEN));
    let mut subscriber = builder.shared_memory().expect("attaches");
    let mut witness = Witness::default();
    poll_until(&mut subscriber, &mut witness, "is let in", PATIENCE, |_, s| is_let_in(s));
    for round in 1..=3 {
        let before = witness.lines;
        poll_until(&mut subscriber, &mut witness, "lines", PATIENCE, |w, _| w.lines > before + 500);
        // The ring goes round meanwhile, but not so fast that the server, which reads it too, is lapped on a busy machine.
        std::thread::sleep(Duration::from_millis(350));
        let before = witness.lines;
        poll_until(&mut subscriber, &mut witness, "goes on", PATIENCE, |w, _| w.lines > before + 500);
        assert_eq!(witness.lost, 0, "round {round}: {:?} {:?}", witness.gaps, subscriber.recovery());
    }
    poll_until(&mut subscriber, &mut witness, "the whole day", PATIENCE, |_, s| s.has_ended());
    let counts = subscriber.counts();
    println!("{counts:?}\n{:?}", subscriber.recovery());
    assert!(counts.recovered > 300, "it was lapped, and had it all: {counts:?}");
    assert_eq!((witness.lost, unready(&subscriber, 20)), (0, 0));
    assert_eq!(subscriber.engine().digest_counts().disagreed, 0);
}

#[test]
fn whoever_stands_still_while_an_answer_is_under_way_has_it_all_the_same() {
    let plan = Plan { messages: 20_000, ring_lines: 2048, ..SMALL };
    let setting = setting("answer", &plan);
    let (_running, address) = setting.publish();
    let options = RecoveryOptions::new(address, TOKEN);
    let longer_than_patience = Duration::from_nanos(options.patience_ns) + Duration::from_millis(300);
    let mut subscriber = setting.builder(address).recover(options).shared_memory().expect("attaches");
    let mut witness = Witness::default();
    poll_until(&mut subscriber, &mut witness, "lines", PATIENCE, |w, s| is_let_in(s) && w.lines > 500);
    // The ring goes round, and then a part of the answer is taken: no turn takes all of it.
    std::thread::sleep(Duration::from_secs(1));
    poll_until(&mut subscriber, &mut witness, "is answered", PATIENCE, |_, s| s.counts().recovered > 0);
    assert_eq!(subscriber.recovery().map(|recovery| recovery.state), Some(RecoveryState::Requesting));
    std::thread::sleep(longer_than_patience);
    poll_until(&mut subscriber, &mut witness, "the whole day", PATIENCE, |_, s| s.has_ended());
    let counts = subscriber.counts();
    println!("{counts:?}\n{:?}", subscriber.recovery());
    assert_eq!((witness.lost, unready(&subscriber, 20)), (0, 0), "{:?}", witness.gaps);
    assert!(counts.recovered > 2_000, "{counts:?}");
}

#[test]
fn what_history_does_not_hold_is_named_and_books_come_from_snapshots() {
    // A history shorter than what is missed, in a ring that is shorter still; but not so short that a busy machine keeps the
    // server from reading it, for then there is nobody whose books are whole.
    let plan = Plan { ring_lines: 512, history_lines: 1024, ..SMALL };
    let setting = setting("beyond", &plan);
    let (_running, address) = setting.publish();
    let builder = setting.builder(address).recover(RecoveryOptions::new(address, TOKEN));
    let mut subscriber = builder.shared_memory().expect("attaches");
    let mut witness = Witness::default();
    poll_until(&mut subscriber, &mut witness, "lines", PATIENCE, |w, s| is_let_in(s) && w.lines > 2_000);
    let lost = witness.lost;
    std::thread::sleep(Duration::from_millis(500));
    poll_until(&mut subscriber, &mut witness, "the gap is named", PATIENCE, |w, _| w.lost > lost);
    let took = poll_until(&mut subscriber, &mut witness, "books are back", PATIENCE, |_, s| unready(s, 20) == 0);
    println!("valid books {took:?} after the gap was named: {:?}; {:?}", witness.gaps, subscriber.recovery());
    assert!(witness.gaps.len() < 12, "a long gap is named in few pieces: {:?}", witness.gaps);
    assert!(witness.gaps.iter().all(|gap| gap.cause == LossCause::Lapped || gap.cause == LossCause::Missing));
    assert!(subscriber.recovery().expect("recovers").counts.snapshots > 0, "{:?}", subscriber.recovery());
    poll_until(&mut subscriber, &mut witness, "the whole day", PATIENCE, |_, s| s.has_ended());
    assert_eq!((subscriber.engine().digest_counts().disagreed, unready(&subscriber, 20)), (0, 0));
}

#[test]
fn a_late_joiner_has_valid_books_of_some_hundred_instruments_in_bounded_time() {
    let symbols = 300;
    let plan = Plan { symbols, messages: 60_000, rate: 10_000.0, ring_lines: 1024, history_lines: 4096 };
    let setting = setting("late", &plan);
    let (_running, address) = setting.publish();
    // Somebody who was there from the start says when enough has happened.
    let mut first = setting.builder(address).shared_memory().expect("attaches");
    let mut witness = Witness::default();
    poll_until(&mut first, &mut witness, "half of the day", PATIENCE, |w, _| w.lines + w.lost > 30_000);

    // With a larger early store it would take itself for one that missed the beginning, and ask for all of it.
    let options = RecoveryOptions { early_lines: 4096, ..RecoveryOptions::new(address, TOKEN) };
    let lossy = setting.lossy_udp(FaultPlan { drop: 0.01, ..FaultPlan::seeded(9) });
    let mut late = setting.builder(address).recover(options.clone()).lanes(lossy, 1);
    let mut witness = Witness::default();
    let all = u32::from(symbols);
    let deadline = 10 * LATE_JOIN;
    let took = poll_until(&mut late, &mut witness, "valid books", deadline, |_, s| unready(s, all) == 0);
    println!("UDP: {all} valid books {took:?} after the first poll; stated {LATE_JOIN:?}, deadline {deadline:?}");
    assert!(witness.next > 30_000, "it came late: {}", witness.next);

    let mut later = setting.builder(address).recover(options).shared_memory().expect("attaches");
    let mut other = Witness::default();
    let took = poll_until(&mut later, &mut other, "valid books", deadline, |_, s| unready(s, all) == 0);
    println!("shared memory: {all} valid books {took:?} after the first poll");

    let until = Instant::now() + PATIENCE;
    while !(late.has_ended() && later.has_ended()) {
        late.poll(&mut witness);
        later.poll(&mut other);
        std::thread::yield_now();
        assert!(Instant::now() < until, "the end: {:?} {:?}", late.counts(), later.counts());
    }
    for digests in [late.engine().digest_counts(), later.engine().digest_counts()] {
        assert!(digests.compared > 50 && digests.disagreed == 0, "{digests:?}");
    }
    assert_eq!((witness.lost, unready(&late, all)), (0, 0), "{:?}", witness.gaps);
    // Symbols came with the snapshots.
    let context = late.context();
    assert!((1..=all).all(|id| !context.symbol(InstrumentId(id)).is_empty()));
}

#[test]
fn a_subscriber_that_stands_still_harms_nobody_and_is_right_again_afterwards() {
    let plan = Plan { messages: 16_000, ..SMALL };
    let setting = setting("still", &plan);
    let (running, address) = setting.publish();
    let (udp, control) = (setting.udp.destination().to_string(), address.to_string());
    let arguments = [
        "watch",
        &setting.name,
        "--udp",
        &udp,
        "--channel-id",
        "7",
        "--lose",
        "0.05",
        "--recover",
        "--control",
        &control,
        "--json",
    ];
    let stopped = Running::start("subscriber", &arguments, &[("BOOKCAST_TOKEN", TOKEN)]);
    let lossy = setting.lossy_udp(FaultPlan { drop: 0.05, ..FaultPlan::seeded(6) });
    let mut subscriber = setting.builder(address).recover(RecoveryOptions::new(address, TOKEN)).lanes(lossy, 1);
    let mut witness = Witness::default();
    poll_until(&mut subscriber, &mut witness, "both are let in", PATIENCE, |w, s| w.lines > 2_000 && is_let_in(s));
    assert_eq!(setting.counter("recovery subscribers"), 2);
    stopped.signal("STOP");
    let lines = witness.lines;
    poll_until(&mut subscriber, &mut witness, "the neighbour goes on", PATIENCE, |w, _| w.lines > lines + 6_000);
    assert_eq!(witness.lost, 0, "{:?}", witness.gaps);
    stopped.signal("CONT");
    poll_until(&mut subscriber, &mut witness, "the whole day", PATIENCE, |_, s| s.has_ended());
    let published: serde_json::Value = serde_json::from_slice(&running.finish(PATIENCE).stdout).expect("JSON");
    assert_eq!((witness.lost, Some(witness.lines)), (0, published["published"].as_u64()));
    assert_eq!((published["lines_unsent"].as_u64(), published["messages"].as_u64()), (Some(0), Some(16_000)));
    assert_eq!(subscriber.engine().digest_counts().disagreed, 0);

    let output = stopped.finish(PATIENCE);
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    println!("the one that stood still: {}", said["totals"]);
    assert!(output.status.success(), "{said}");
    // Whatever it missed while it stood still it has had or knows of, and its books are right.
    assert_eq!(said["totals"]["digests_disagreed"], 0, "{said}");
    assert_eq!((&said["books"]["live"], &said["books"]["stale"]), (&20.into(), &0.into()), "{said}");
    assert_eq!(said["next_sequence"].as_u64(), published["published"].as_u64().map(|lines| lines + 1));
    drop(setting.folder);
}

#[test]
fn a_publisher_that_is_killed_and_started_again_is_asked_anew() {
    let setting = setting("again", &SMALL);
    let (first, address) = setting.publish();
    let plan = FaultPlan { drop: 0.05, ..FaultPlan::seeded(8) };
    let builder = setting.builder(address).recover(RecoveryOptions::new(address, TOKEN));
    let mut subscriber = builder.lanes(setting.lossy_udp(plan), 1);
    let mut witness = Witness::default();
    poll_until(&mut subscriber, &mut witness, "lines", PATIENCE, |w, s| w.lines > 3_000 && is_let_in(s));
    first.signal("KILL");
    first.finish(PATIENCE);
    poll_until(&mut subscriber, &mut witness, "silence is told", PATIENCE, |w, _| w.silences > 0);
    let recovered = subscriber.counts().recovered;
    let (second, _) = setting.publish();
    let epoch = |s: &Subscriber<_>| s.next().map(|next| next.epoch().0);
    poll_until(&mut subscriber, &mut witness, "the new epoch", PATIENCE, |_, s| epoch(s) == Some(2));
    // What it missed in the last moments of the old epoch nobody can give it any more.
    let lost = witness.lost;
    poll_until(&mut subscriber, &mut witness, "the whole day", PATIENCE, |_, s| s.has_ended());
    let published: serde_json::Value = serde_json::from_slice(&second.finish(PATIENCE).stdout).expect("JSON");
    let status = subscriber.recovery().expect("recovers");
    println!("{lost} lines lost with the first publisher; {status:?}");
    assert_eq!(witness.lost, lost, "in the new epoch nothing is lost: {:?}", witness.gaps);
    assert_eq!(witness.next, published["published"].as_u64().expect("a number") + 1);
    assert!(status.reconnects >= 1 && subscriber.counts().recovered > recovered + 50, "{status:?}");
    assert_eq!((subscriber.engine().digest_counts().disagreed, unready(&subscriber, 20)), (0, 0));
}
