//! One publisher on one end of the wire, subscriber processes on the other, over real verbs: what each of them ends with,
//! whatever befalls the wire or a neighbour. Runs in the virtual machine.

#![forbid(unsafe_code)]

use std::io::Read;
use std::time::{Duration, Instant};

use bookcast_tests::day::{PATIENCE, Publishing, TOKEN, Watching, number};
use bookcast_tests::programs::{generated_day, output, printed};
use bookcast_tests::wire::{FarEnd, HERE, Held, Netem, THERE};
use serde_json::Value;
use subscriber::rdma::{RdmaNews, RdmaOptions};
use subscriber::{Builder, Context, Gap, Handler, Update};

/// What befalls the wire, in turn: its name for `tc netem`, and whether it loses anything.
const WEATHER: [(&str, bool); 5] = [
    ("", false),
    ("loss 1%", true),
    ("loss 10%", true),
    ("delay 2ms reorder 75% 50%", false),
    ("duplicate 20%", false),
];

#[test]
fn a_day_by_datagrams_by_writes_and_by_both_over_a_wire_that_loses_reorders_and_duplicates() {
    let (messages, rate) = (60_000, 2_500);
    let folder = tempfile::tempdir().expect("a folder");
    let publishing = Publishing::start(folder.path(), messages, rate, 10_000);
    let watching = ["ud", "rc", "both"].map(|lanes| publishing.watch(lanes));
    watching.iter().for_each(Watching::hears);
    let each = messages / WEATHER.len() as u64;
    let mut lost_before = 0;
    for (at, (what, loses)) in WEATHER.into_iter().enumerate() {
        let netem = (!what.is_empty()).then(|| Netem::new(what));
        let until = if at + 1 == WEATHER.len() { None } else { Some(each * (at as u64 + 1)) };
        match until {
            Some(until) => publishing.wait_for_messages(until),
            None => publishing.wait_for_end(),
        }
        drop(netem);
        // Once a second each says where it stands.
        std::thread::sleep(Duration::from_millis(1_500));
        let lost = watching[0].lost_so_far();
        println!("  {}: datagrams lost {} lines", if what.is_empty() { "fair" } else { what }, lost - lost_before);
        assert!(lost > lost_before || !loses, "{what}: nothing was lost\n{}", watching[0].said());
        lost_before = lost;
    }
    let report = publishing.finish();
    println!("{messages} messages at {rate} a second: {report}");
    let [ud, rc, both] = watching.map(Watching::finish);
    let (lines, digests) = (number(&report, "published"), number(&report, "digests"));
    assert_eq!(number(&report, "messages"), messages);
    rc.is_whole(lines, digests);
    both.is_whole(lines, digests);
    // Each line was delivered or named; no book called itself right that was not.
    ud.is_complete(lines);
    assert!(ud.total("digests_agreed") > 0 && ud.total("lost") > 0, "{}", ud.json);
    // Who won is told apart, and what one lane lost the other brought.
    let (datagrams, writes) = (both.won("RDMA UD"), both.won("RDMA RC"));
    println!(
        "  both: {datagrams} lines came first by datagrams, {writes} by writes; {} holes with {} lines were filled",
        both.total("holes_filled"),
        both.total("lines_filled")
    );
    assert_eq!(datagrams + writes, lines);
    assert!(both.total("holes_filled") > 0 && both.total("lines_filled") > 0, "{}", both.json);
    assert_eq!((rc.won("RDMA RC"), rc.won("RDMA UD")), (lines, 0));
}

#[test]
fn subscribers_that_are_killed_stopped_and_started_again_cost_nobody_anything() {
    let folder = tempfile::tempdir().expect("a folder");
    let publishing = Publishing::start(folder.path(), 400_000, 2_000, 10_000);
    let pid = publishing.running.child.id();
    let neighbours = ["rc", "both"].map(|lanes| publishing.watch(lanes));
    neighbours.iter().for_each(Watching::hears);
    let before = Held::by(pid);
    println!("the publisher holds {before:?}");
    publishing.wait_for_messages(2_000);
    let settled = |what: &str| {
        let until = Instant::now() + PATIENCE;
        while Held::by(pid) != before {
            assert!(Instant::now() < until, "after {what} it holds {:?}, not {before:?}", Held::by(pid));
            std::thread::sleep(Duration::from_millis(20));
        }
    };

    // Killed: the kernel closes its connections, and with the first of them it is let go.
    let victim = publishing.watch("both");
    publishing.wait_for("is written to from", 3);
    assert_ne!(Held::by(pid), before, "a third subscriber costs something");
    let killed_at = Instant::now();
    victim.running.signal("KILL");
    publishing.wait_for("gone", 1);
    println!("a killed subscriber was let go after {:?}, of 1 s", killed_at.elapsed());
    settled("the kill");

    // Stopped: its card goes on writing into its ring, and nobody waits for it. When it goes on it is told what it missed.
    let sleeper = publishing.watch("rc");
    publishing.wait_for("is written to from", 4);
    let stopped = sleeper.pid();
    sleeper.running.signal("STOP");
    std::thread::sleep(Duration::from_secs(2));
    sleeper.running.signal("CONT");
    // And restarted, under the same name, several times.
    for times in 0..3 {
        let fleeting = publishing.watch("rc");
        publishing.wait_for("is written to from", 5 + times);
        fleeting.running.signal(if times % 2 == 0 { "KILL" } else { "TERM" });
        publishing.wait_for("gone", 2 + times);
    }

    publishing.running.signal("TERM");
    let report = publishing.finish();
    println!("{report}; pid {stopped} was stopped for 2 s");
    let (lines, digests) = (number(&report, "published"), number(&report, "digests"));
    let sleeper = sleeper.finish();
    assert_eq!(sleeper.total("digests_disagreed"), 0);
    assert_eq!(sleeper.json["next_sequence"].as_u64(), Some(lines + 1), "{}", sleeper.json);
    for neighbour in neighbours {
        neighbour.finish().is_whole(lines, digests);
    }
}

/// Notes when lines come, and which are missing.
#[derive(Default)]
struct Notes {
    lines: u64,
    gaps: Vec<Gap>,
    last: Option<Instant>,
}

impl Handler for Notes {
    fn on_record(&mut self, _: &Context<'_>, _: &Update<'_>) {
        self.lines += 1;
        self.last = Some(Instant::now());
    }
    fn on_gap(&mut self, _: &Context<'_>, gap: &Gap) {
        self.gaps.push(*gap);
    }
}

#[test]
fn a_link_that_is_down_for_two_seconds_and_up_again_resumes_by_itself_on_both_lanes() {
    let folder = tempfile::tempdir().expect("a folder");
    let publishing = Publishing::start(folder.path(), 60_000, 2_000, 3_000);
    for lanes in ["ud", "rc"] {
        let options = RdmaOptions {
            ud: lanes == "ud",
            rc: lanes == "rc",
            ..RdmaOptions::new(publishing.control, TOKEN, THERE.parse().expect("an address"))
        };
        let mut subscriber = Builder::new(&publishing.name).rdma(&options).expect("subscribes");
        let mut notes = Notes::default();
        let mut news = Vec::new();
        let mut poll_until = |notes: &mut Notes, what: &str, is_done: &dyn Fn(&Notes) -> bool| {
            let from = Instant::now();
            while !is_done(notes) {
                assert!(from.elapsed() < Duration::from_secs(30), "{what}: {news:?}\n{}", publishing.said());
                if subscriber.poll(notes) == 0 {
                    std::thread::sleep(Duration::from_micros(50));
                }
                while let Some(heard) = subscriber.rx().next_news() {
                    news.push(heard);
                }
            }
            from.elapsed()
        };
        poll_until(&mut notes, "the first lines", &|notes| notes.lines > 100);
        let far_end = FarEnd::down();
        let down_at = Instant::now();
        poll_until(&mut notes, "two seconds", &|_| down_at.elapsed() > Duration::from_secs(2));
        let held = notes.lines;
        let gaps = notes.gaps.len();
        far_end.up();
        let took = poll_until(&mut notes, "the next line", &|notes| notes.lines > held);
        println!(
            "{lanes}: the first line came {took:?} after the link was up, of 3 s; before it: {:?}",
            &notes.gaps[gaps..]
        );
        let missed: u64 = notes.gaps[gaps..].iter().map(|gap| gap.count).sum();
        if lanes == "ud" {
            // What was published meanwhile is named, two seconds and more of it, before what followed was delivered.
            assert!(missed > 1_000, "{:?}", notes.gaps);
        } else {
            // It asked to be written to from where it had come to, and the publisher's ring still held that.
            assert_eq!(missed, 0, "{:?}", notes.gaps);
        }
        let more = notes.lines + 1_000;
        poll_until(&mut notes, "a thousand lines more", &|notes| notes.lines > more);
        println!("{lanes}: {news:?}");
        let is_back = |news: &RdmaNews| match lanes {
            "ud" => matches!(news, RdmaNews::DatagramsBack),
            _ => matches!(news, RdmaNews::Connected { .. }),
        };
        assert!(news.iter().skip(1).any(is_back), "{news:?}");
        assert_eq!(subscriber.engine().digest_counts().disagreed, 0);
    }
    publishing.running.signal("TERM");
    let report = publishing.finish();
    println!("{report}");
}

#[test]
fn whoever_cannot_be_served_is_told_why_and_what_next() {
    let folder = tempfile::tempdir().expect("a folder");
    let publishing = Publishing::start(folder.path(), 6_000, 2_000, 20_000);
    let refused = |change: &dyn Fn(&mut RdmaOptions), name: &str, parts: &[&str]| {
        let mut options = RdmaOptions::new(publishing.control, TOKEN, THERE.parse().expect("an address"));
        change(&mut options);
        let text = Builder::new(name).rdma(&options).err().expect("cannot be served").to_string();
        println!("{text}");
        for part in parts {
            assert!(text.contains(part), "{part:?} is not in: {text}");
        }
    };
    let name = publishing.name.clone();
    refused(&|options| options.token = "a guess at it".into(), &name, &["check the token"]);
    refused(&|_| (), "another", &["has no channel \"another\"", &name]);
    refused(&|options| options.address = "10.99.0.77".parse().expect("an address"), &name, &["10.99.0.77"]);
    refused(&|options| options.device = Some("mlx5_0".into()), &name, &["mlx5_0", "rxe0"]);
    refused(&|options| options.lines = 1_000, &name, &["power of two"]);
    refused(
        &|options| options.control = "127.0.0.1:9".parse().expect("an address"),
        &name,
        &["127.0.0.1:9", "is the publisher running"],
    );
    // As many as it takes, and one more.
    let taken: Vec<_> = (0..6)
        .map(|_| {
            let options = RdmaOptions {
                ud: false,
                lines: 64,
                ..RdmaOptions::new(publishing.control, TOKEN, THERE.parse().expect("an address"))
            };
            Builder::new(&name).rdma(&options).expect("there is room")
        })
        .collect();
    refused(&|_| (), &name, &["there are 6 subscribers already", "[rdma] subscribers"]);
    drop(taken);
    let mut rest = String::new();
    let mut running = publishing.running;
    running.signal("TERM");
    if let Some(mut stdout) = running.child.stdout.take() {
        stdout.read_to_string(&mut rest).expect("reads");
    }
    assert!(running.finish(PATIENCE).status.success(), "{rest}");
}

#[test]
fn a_capture_is_replayed_over_each_lane_and_over_both() {
    let folder = tempfile::tempdir().expect("a folder");
    let day = generated_day(folder.path(), 6_000, 3_000_000_000);
    let day = day.to_str().expect("UTF-8");
    for transport in ["rdma-ud", "rdma-rc", "rdma"] {
        let mut arguments = vec!["replay", day, "--date", "none", "--json", "--transport", transport];
        arguments.extend(["--address", HERE, "--peer-address", THERE]);
        let output = output("feeds-replay", &arguments);
        // It is not for this machine to say that a latency is good; that books agree and nothing is unaccounted for is.
        assert!(output.status.success(), "{transport}: {}", printed(&output));
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let run = &report["transports"][transport];
        println!(
            "{transport}: p50 {} ns from actual hand-over; {}",
            run["latency_from_actual_ns"]["p50"], run["paths"]
        );
        assert_eq!((number(run, "messages"), &run["digests_agree"]), (6_000, &Value::Bool(true)), "{run}");
        assert_eq!(number(run, "delivered") + number(run, "lost_named"), number(run, "published"), "{run}");
        assert!(number(run, "digests_compared") > 0, "{run}");
        if transport != "rdma-ud" {
            assert_eq!(number(run, "lost_named"), 0, "{run}");
        }
        assert_eq!(run["paths"].as_array().map(Vec::len), Some(1 + usize::from(transport == "rdma")), "{run}");
    }
}
