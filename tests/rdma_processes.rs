//! One publisher on one end of the wire, subscriber processes on the other, over real verbs: what each of them ends with,
//! whatever befalls the wire or a neighbour. Runs in the virtual machine.

#![forbid(unsafe_code)]

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bookcast_tests::programs::{Running, generated_day, printed, unique};
use bookcast_tests::wire::{FarEnd, HERE, Held, Netem, THERE};
use protocol::record::Lane;
use serde_json::Value;
use subscriber::rdma::{RdmaNews, RdmaOptions};
use subscriber::{Builder, Context, Gap, Handler, Update};

const TOKEN: &str = "a token for tests";
/// Ten times what any step here should take, and more: the machine is emulated, and may be busy.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long a send may take before its subscriber is dropped; the guest's own scheduler may hold it up so long.
const DEADLINE_MS: u64 = 2_000;

/// A publisher of a generated day, and what it says meanwhile.
struct Publishing {
    running: Running,
    control: SocketAddr,
    name: String,
    said: Arc<Mutex<Vec<String>>>,
}

impl Publishing {
    fn start(folder: &Path, messages: u64, rate: u64, lead_ms: u64) -> Publishing {
        let day = generated_day(folder, messages, messages * 1_000_000_000 / rate);
        let name = unique("rdma");
        let config = folder.join("publisher.toml");
        let text = format!(
            "[channel]\nname = {name:?}\nid = 7\n[feed]\npath = {day:?}\ndate = 'none'\n\
             pace = {{ rate = {rate}.0 }}\n[control]\nlisten = '127.0.0.1:0'\ntokens = [{TOKEN:?}]\n\
             [rdma]\naddress = '{HERE}'\ngroup = '239.255.8.1'\nsubscribers = 6\ndeadline_ms = {DEADLINE_MS}\n\
             [run]\nyield_when_idle = true\nlead_ms = {lead_ms}\nlinger_ms = 3000\nstate_dir = {:?}\n",
            folder.join("state")
        );
        std::fs::write(&config, text).expect("writes");
        let mut running = Running::start("publisher", &["run", config.to_str().expect("UTF-8"), "--json"], &[]);
        let mut stderr = BufReader::new(running.child.stderr.take().expect("piped"));
        let said = Arc::new(Mutex::new(Vec::new()));
        let control = loop {
            let mut line = String::new();
            if stderr.read_line(&mut line).expect("reads") == 0 {
                panic!("the publisher ended before it said where it listens: {said:?}");
            }
            if let Some(address) = line.trim().strip_prefix("control channel: subscribers ask at ") {
                break address.parse().expect("an address");
            }
            said.lock().expect("no panics").push(line);
        };
        let into = Arc::clone(&said);
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                into.lock().expect("no panics").push(line);
            }
        });
        Publishing { running, control, name, said }
    }

    /// A `subscriber watch` of this channel: `ud`, `rc` or `both`.
    fn watch(&self, lanes: &str) -> Watching {
        let control = self.control.to_string();
        let arguments = [
            "watch",
            &self.name,
            "--rdma",
            THERE,
            "--control",
            &control,
            "--token",
            TOKEN,
            "--rdma-lanes",
            lanes,
            "--patience-ms",
            "5000",
            "--json",
        ];
        let mut running = Running::start("subscriber", &arguments, &[]);
        let stderr = BufReader::new(running.child.stderr.take().expect("piped"));
        let said = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&said);
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                into.lock().expect("no panics").push(line);
            }
        });
        Watching { running, lanes: lanes.to_owned(), said }
    }

    fn said(&self) -> String {
        self.said.lock().expect("no panics").join("\n")
    }

    /// Waits until it has said something that contains `what`, `times` times.
    fn wait_for(&self, what: &str, times: usize) {
        let until = Instant::now() + PATIENCE;
        while self.said.lock().expect("no panics").iter().filter(|line| line.contains(what)).count() < times {
            assert!(Instant::now() < until, "the publisher never said {what:?} {times} times:\n{}", self.said());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until so many messages are handed over, as its own counters say, which are shown every two seconds.
    fn wait_for_messages(&self, count: u64) {
        let until = Instant::now() + PATIENCE;
        let counted = || transport::shm::read_counters(&self.name, Lane::new(0)).ok();
        let messages = || counted()?.into_iter().find(|(name, _)| name == "messages").map(|(_, value)| value);
        while messages().is_none_or(|messages| messages < count) {
            assert!(Instant::now() < until, "{:?} of {count} messages were handed over:\n{}", messages(), self.said());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until everything is handed over; the end is announced for a while after that.
    fn wait_for_end(&self) {
        let until = Instant::now() + PATIENCE;
        let counted = || transport::shm::read_counters(&self.name, Lane::new(0)).ok();
        let ended = || counted()?.into_iter().find(|(name, _)| name == "ended").map(|(_, value)| value == 1);
        while ended() != Some(true) {
            assert!(Instant::now() < until, "it never ended:\n{}", self.said());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for its end, and gives its account.
    fn finish(self) -> Value {
        let said = Arc::clone(&self.said);
        let output = self.running.finish(PATIENCE);
        assert!(output.status.success(), "{}{}", printed(&output), said.lock().expect("no panics").join("\n"));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }
}

/// A `subscriber watch`.
struct Watching {
    running: Running,
    lanes: String,
    said: Arc<Mutex<Vec<String>>>,
}

impl Watching {
    fn pid(&self) -> u32 {
        self.running.child.id()
    }

    fn said(&self) -> String {
        self.said.lock().expect("no panics").join("\n")
    }

    /// Waits until it has heard of the channel: a heartbeat, or lines.
    fn hears(&self) {
        let until = Instant::now() + PATIENCE;
        while !self.said().contains("digests") {
            assert!(Instant::now() < until, "{} hears nothing: {}", self.lanes, self.said());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// How many lines it has named as lost, when it last said so.
    fn lost_so_far(&self) -> u64 {
        let said = self.said();
        let last = said.lines().rev().find_map(|line| line.split_once("| lost ")).expect("it says so once a second").1;
        let number = last.split_whitespace().next().expect("a number");
        number.replace(',', "").parse().expect("a number")
    }

    /// Its summary.
    fn finish(self) -> Summary {
        let said = Arc::clone(&self.said);
        let output = self.running.finish(PATIENCE);
        let said = said.lock().expect("no panics").join("\n");
        let json: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{}: {error}: {}{said}", self.lanes, printed(&output)));
        // It fails if a digest disagreed.
        assert!(output.status.success(), "{}: {}{said}", self.lanes, printed(&output));
        println!("  {}: {}", self.lanes, json["totals"]);
        Summary { json, said }
    }
}

struct Summary {
    json: Value,
    said: String,
}

impl Summary {
    fn total(&self, name: &str) -> u64 {
        self.json["totals"][name].as_u64().unwrap_or_else(|| panic!("no total {name}: {}", self.json))
    }

    /// Lines that `carrier` brought first.
    fn won(&self, carrier: &str) -> u64 {
        let won = self.json["won"].as_array().expect("a list");
        won.iter().filter(|path| path["carrier"] == carrier).filter_map(|path| path["won"].as_u64()).sum()
    }

    /// Every line is accounted for, up to the last; books agreed wherever they called themselves right.
    fn is_complete(&self, lines: u64) {
        assert_eq!(self.total("delivered") + self.total("lost"), lines, "{}\n{}", self.json, self.said);
        assert_eq!(self.json["next_sequence"].as_u64(), Some(lines + 1), "{}\n{}", self.json, self.said);
        assert_eq!(self.total("digests_disagreed"), 0, "{}\n{}", self.json, self.said);
        assert_eq!(self.json["session_ended"], true, "{}\n{}", self.json, self.said);
    }

    /// And nothing is missing.
    fn is_whole(&self, lines: u64, digests: u64) {
        self.is_complete(lines);
        assert_eq!((self.total("lost"), self.total("gaps")), (0, 0), "{}\n{}", self.json, self.said);
        assert_eq!(self.total("digests_agreed"), digests, "{}\n{}", self.json, self.said);
        assert_eq!(self.json["books"]["stale"], 0, "{}\n{}", self.json, self.said);
    }
}

fn number(report: &Value, name: &str) -> u64 {
    report[name].as_u64().unwrap_or_else(|| panic!("no number {name}: {report}"))
}

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
        // What was published meanwhile is named, two seconds and more of it, before what followed was delivered.
        let missed: u64 = notes.gaps[gaps..].iter().map(|gap| gap.count).sum();
        assert!(missed > 1_000, "{:?}", notes.gaps);
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
