//! Subscribers that are too slow, as real processes: one that stands still, one ten times too slow, one that stutters. Neither
//! the publisher nor their neighbours may notice.

#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use bookcast_tests::programs::Running;
use bookcast_tests::stage::{PATIENCE, Plan, SMALL, Setting, TOKEN, Witness, is_let_in, poll_until, setting, unready};
use protocol::run::LossCause;
use serde_json::Value;
use subscriber::{Policy, RecoveryOptions, Subscriber};
use transport::LaneRx;

/// Four seconds of 6,000 messages each, through a ring that holds little more than one of them.
const PLAN: Plan = Plan { messages: 24_000, rate: 6_000.0, ring_lines: 8192, ..SMALL };

/// Starts `subscriber watch` with recovery, tracked.
fn watch(setting: &Setting, way: &[&str], more: &[&str]) -> Running {
    let control = setting.control.to_string();
    let first = ["watch", &setting.name, "--recover", "--tracked", "--control", &control, "--json"];
    let arguments: Vec<&str> = first.iter().chain(way).chain(more).copied().collect();
    Running::start("subscriber", &arguments, &[("BOOKCAST_TOKEN", TOKEN)])
}

/// What one said at its end. It may have lost lines, but knows which, and its books are right.
fn end_of(running: Running, who: &str, ended: bool, published: u64) -> Value {
    let output = running.finish(PATIENCE);
    let said: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{who}: {error}: {output:?}"));
    println!("{who}: {}", said["totals"]);
    assert!(output.status.success(), "{who}: {said}");
    assert_eq!(said["totals"]["digests_disagreed"], 0, "{who}: {said}");
    let [delivered, lost, next] = [&said["totals"]["delivered"], &said["totals"]["lost"], &said["next_sequence"]]
        .map(|number| number.as_u64().expect("a number"));
    // It was there from the first line on: each is delivered or named.
    assert_eq!(delivered + lost + 1, next, "{who}: {said}");
    if ended {
        assert_eq!(
            (next, &said["books"]["live"], &said["books"]["stale"]),
            (published + 1, &20.into(), &0.into()),
            "{who}: {said}"
        );
    }
    said
}

/// Runs the day with the three beside `neighbour`, which is polled here and must get every line.
fn day_beside_slow_ones<R: LaneRx>(
    setting: &Setting,
    publisher: Running,
    way: &[&str],
    mut neighbour: Subscriber<R>,
) -> [Value; 3] {
    let mut witness = Witness::default();
    let [stopped, slow, stuttering] = [&[][..], &["--slow-us", "1500"], &[]].map(|more| watch(setting, way, more));
    poll_until(&mut neighbour, &mut witness, "all are let in", PATIENCE, |_, s| is_let_in(s));
    let until = Instant::now() + PATIENCE;
    // Before the first line, so that each knows of every line.
    while setting.counter("recovery subscribers") < 4 {
        assert!(Instant::now() < until, "four are let in");
    }
    assert_eq!(witness.lines, 0, "they are there before the first line");
    poll_until(&mut neighbour, &mut witness, "lines", PATIENCE, |w, _| w.lines > 1_000);
    // Each of the three has read something, and said so.
    let said = |setting: &Setting| {
        setting.counter("tracked subscribers") + setting.counter("tracked subscribers let go, nearly lapped")
    };
    while said(setting) < 3 {
        let more = witness.lines + 1;
        poll_until(&mut neighbour, &mut witness, "a line", PATIENCE, |w, s| s.has_ended() || w.lines > more);
        assert!(Instant::now() < until, "three are tracked");
    }
    stopped.signal("STOP");
    let (began, lines) = (Instant::now(), witness.lines);
    let mut stutters = 0;
    while !neighbour.has_ended() {
        let cycle = Instant::now();
        stuttering.signal("STOP");
        let still = |_: &Witness, s: &Subscriber<R>| s.has_ended() || cycle.elapsed() >= Duration::from_millis(50);
        poll_until(&mut neighbour, &mut witness, "50 ms", PATIENCE, still);
        stuttering.signal("CONT");
        stutters += 1;
        let runs = |_: &Witness, s: &Subscriber<R>| s.has_ended() || cycle.elapsed() >= Duration::from_secs(1);
        poll_until(&mut neighbour, &mut witness, "a second", PATIENCE, runs);
    }
    let rate = (witness.lines - lines) as f64 / began.elapsed().as_secs_f64();
    let let_go = setting.counter("tracked subscribers let go, nearly lapped");
    stopped.signal("CONT");
    // Whoever takes ten times too long would take ten times the day.
    slow.signal("TERM");
    let published: Value = serde_json::from_slice(&publisher.finish(PATIENCE).stdout).expect("JSON");
    println!("neighbour: {rate:.0} lines/s beside them, {stutters} stutters, {:?}", neighbour.counts());
    println!("publisher: {published}");
    // The publisher's plan, to the line: what it is without them, too.
    let lines = published["published"].as_u64().expect("a number");
    assert_eq!((published["messages"].as_u64(), published["lines_unsent"].as_u64()), (Some(PLAN.messages), Some(0)));
    assert_eq!(lines, quiet_day(setting), "as many lines as without anybody");
    // The neighbour's books: every line, in order, once.
    assert_eq!((witness.lines, witness.lost, witness.next), (lines, 0, lines + 1), "{:?}", witness.gaps);
    let digests = neighbour.engine().digest_counts();
    assert_eq!((digests.disagreed, unready(&neighbour, 20)), (0, 0));
    assert!(digests.compared > 100, "{digests:?}");
    let said = [
        end_of(stopped, "stopped", true, lines),
        end_of(slow, "ten times too slow", false, lines),
        end_of(stuttering, "stuttering", true, lines),
    ];
    println!("{let_go} tracked subscribers were let go");
    said
}

/// How many lines the same day has when nobody listens.
fn quiet_day(setting: &Setting) -> u64 {
    let text = std::fs::read_to_string(&setting.config).expect("reads");
    let quiet = setting.folder.path().join("quiet.toml");
    let text = text.replace(&format!("name = {:?}", setting.name), &format!("name = \"{}-quiet\"", setting.name));
    let text = text.replace("pace = { rate = 6000.0 }", "pace = \"max\"").replace("_ms = 1000", "_ms = 0");
    std::fs::write(&quiet, text.replace("linger_ms = 3000", "linger_ms = 0")).expect("writes");
    let quiet = Running::start("publisher", &["run", bookcast_tests::stage::path(&quiet), "--json"], &[]);
    let published: Value = serde_json::from_slice(&quiet.finish(PATIENCE).stdout).expect("JSON");
    published["published"].as_u64().expect("a number")
}

#[test]
fn in_shared_memory_neither_publisher_nor_neighbours_notice_slow_subscribers() {
    let setting = setting("slow-shm", &PLAN);
    let (publisher, address) = setting.publish();
    let options = RecoveryOptions::new(address, TOKEN);
    let neighbour = setting.builder(address).recover(options).shared_memory().expect("attaches");
    let [stopped, slow, _] = day_beside_slow_ones(&setting, publisher, &[], neighbour);
    // The ring went round under these two, and both had been told before.
    for (said, who) in [(stopped, "stopped"), (slow, "slow")] {
        assert_eq!(said["totals"]["nearly_full"], 1, "{who}: {said}");
        assert!(
            said["paths"][0]["trouble"].as_str().is_some_and(|trouble| trouble.contains("overwritten")),
            "{who}: {said}"
        );
    }
}

#[test]
fn by_udp_neither_publisher_nor_neighbours_notice_slow_subscribers() {
    let setting = setting("slow-udp", &PLAN);
    let (publisher, address) = setting.publish();
    let options = RecoveryOptions::new(address, TOKEN);
    let neighbour = setting
        .builder(address)
        .recover(options)
        .udp(&setting.udp, protocol::record::ChannelId::new(7))
        .expect("receives");
    let udp = setting.udp.destination().to_string();
    day_beside_slow_ones(&setting, publisher, &["--udp", &udp, "--channel-id", "7"], neighbour);
}

#[test]
fn a_tracked_subscriber_is_told_once_that_its_ring_is_nearly_full_and_goes_on_as_any_other() {
    let plan = Plan { messages: 12_000, rate: 4_000.0, ring_lines: 4096, ..SMALL };
    let setting = setting("tracked", &plan);
    let (_publisher, address) = setting.publish();
    let options = RecoveryOptions::new(address, TOKEN).tracked();
    let mut subscriber = setting.builder(address).recover(options).shared_memory().expect("attaches");
    let mut witness = Witness::default();
    poll_until(&mut subscriber, &mut witness, "lines", PATIENCE, |w, s| is_let_in(s) && w.lines > 500);
    let policy = |s: &Subscriber<_>| s.recovery().map(|status| (status.policy, status.lapses));
    assert_eq!((policy(&subscriber), witness.behinds.len()), (Some((Policy::Tracked, 0)), 0));
    let until = Instant::now() + PATIENCE;
    let let_go = "tracked subscribers let go, nearly lapped";
    assert_eq!(setting.counter(let_go), 0);
    // It stands still until the publisher has let go of it.
    while setting.counter(let_go) == 0 {
        assert!(
            Instant::now() < until,
            "it is let go: {} lines behind",
            setting.counter("tracked lines behind, the slowest")
        );
    }
    assert_eq!((setting.counter(let_go), setting.counter("tracked subscribers")), (1, 0));
    poll_until(&mut subscriber, &mut witness, "it is told", PATIENCE, |w, _| !w.behinds.is_empty());
    assert_eq!(policy(&subscriber), Some((Policy::Gap, 1)));
    poll_until(&mut subscriber, &mut witness, "the whole day", PATIENCE, |_, s| s.has_ended());
    println!("{:?}; {:?}; {:?}", witness.behinds, subscriber.counts(), witness.gaps);
    assert_eq!(witness.behinds.len(), 1, "once");
    let behind = witness.behinds[0];
    assert!(behind.ring_lines == 4096 && behind.lines >= 3072, "{behind:?}");
    assert_eq!((witness.lost, unready(&subscriber, 20)), (0, 0));
    assert!(witness.gaps.iter().all(|gap| gap.cause == LossCause::Lapped));
}
