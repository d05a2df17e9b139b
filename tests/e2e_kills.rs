//! Processes that are killed: nobody else notices more than must be, nothing leaks, and what everybody wrote down holds
//! together.
//!
//! `BOOKCAST_KILLS` says how many subscribers are killed (20 if it does not), `BOOKCAST_SEED` when.

#![forbid(unsafe_code)]

use std::io::{BufWriter, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bookcast_tests::programs::{Running, output, printed, unique};
use feeds_replay::generate::{GenerateOptions, generate};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::Value;

const TOKEN: &str = "a token for tests";
/// Ten times what any step here should take, and more: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);
const SYMBOLS: u16 = 20;

fn given(name: &str, otherwise: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")),
        Err(_) => otherwise,
    }
}

/// When things happen in a test. The seed stands in what a failing test prints.
fn chance(what: &str) -> Pcg64Mcg {
    let seed = given("BOOKCAST_SEED", 1);
    println!("{what}: BOOKCAST_SEED={seed}");
    Pcg64Mcg::seed_from_u64(seed)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("test paths are UTF-8")
}

/// A channel and a folder of logs.
struct Setting {
    folder: tempfile::TempDir,
    name: String,
    group: String,
}

impl Setting {
    /// A day of `messages`, published at `rate` a second.
    fn new(what: &str, messages: u64) -> Setting {
        let folder = tempfile::tempdir().expect("a folder");
        let mut file = BufWriter::new(std::fs::File::create(folder.path().join("day.itch")).expect("creates"));
        let options = GenerateOptions {
            seed: 13,
            symbols: SYMBOLS,
            messages,
            span_ns: Some(1_000_000_000),
            longest_burst: 256,
            ..GenerateOptions::default()
        };
        generate(&options, &mut file).expect("generates");
        file.flush().expect("writes");
        let [.., high, low] = std::process::id().to_be_bytes();
        let name = unique(what);
        let port =
            30_000 + name.bytes().fold(0u16, |sum, byte| sum.wrapping_mul(31).wrapping_add(u16::from(byte))) % 8_000;
        Setting { folder, name, group: format!("{}:{port}", Ipv4Addr::new(239, 255, high, low)) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A publisher's configuration; with a control channel and a recovery server if `control` is its address.
    fn config(&self, lane: u16, rate: f64, control: Option<&str>) -> PathBuf {
        let (group, port) = self.group.split_once(':').expect("group:port");
        let control = control.map_or(String::new(), |at| {
            format!("[control]\nlisten = '{at}'\ntokens = [{TOKEN:?}]\n[recovery]\nlisten = '127.0.0.1:0'\n")
        });
        let config = format!(
            "[channel]\nname = {:?}\nid = 7\nlane = {lane}\n[feed]\npath = {:?}\ndate = 'none'\npace = {{ rate = {rate:?} }}\n\
             [ring]\nlines = 65536\n[udp]\ngroup = '{group}'\nport = {port}\ninterface = '127.0.0.1'\nttl = 0\n{control}\
             [run]\nyield_when_idle = true\nlead_ms = 500\nlinger_ms = 2000\nstate_dir = {:?}\n",
            self.name,
            self.path("day.itch"),
            self.path(&format!("state-{lane}"))
        );
        let path = self.path(&format!("publisher-{lane}.toml"));
        std::fs::write(&path, config).expect("writes");
        path
    }

    fn watch(&self, log: &str, more: &[&str]) -> Running {
        let log = self.path(log);
        let mut arguments = vec!["watch", &self.name, "--json", "--log", text(&log)];
        arguments.extend(more);
        let mut running = Running::start("subscriber", &arguments, &[("BOOKCAST_TOKEN", TOKEN)]);
        // Nobody waits for what it says on the way.
        let said = running.child.stderr.take().expect("piped");
        std::thread::spawn(move || std::io::copy(&mut { said }, &mut std::io::sink()));
        running
    }

    /// Checks logs as a user would.
    fn check(&self, more: &[&str], logs: &[&str]) -> Value {
        let logs: Vec<PathBuf> = logs.iter().map(|log| self.path(log)).collect();
        let mut arguments = vec!["check", "--json"];
        arguments.extend(more);
        arguments.extend(logs.iter().map(|log| text(log)));
        let checked = output("feeds-replay", &arguments);
        assert!(checked.status.success(), "{}", printed(&checked));
        let history: Value = serde_json::from_slice(&checked.stdout).expect("JSON");
        assert_eq!(history["sound"], true);
        history
    }

    /// Files of this channel in shared memory.
    fn shared_memory(&self) -> Vec<String> {
        let listed = output("publisher", &["channels", "--json"]);
        let rings: Value = serde_json::from_slice(&listed.stdout).expect("JSON");
        let rings = rings.as_array().expect("a list");
        rings.iter().filter(|ring| ring["name"] == self.name.as_str()).map(Value::to_string).collect()
    }

    fn counter(&self, what: &str) -> u64 {
        self.counter_of(0, what)
    }

    fn counter_of(&self, lane: u16, what: &str) -> u64 {
        let output = output("publisher", &["counters", &self.name, "--lane", &lane.to_string(), "--json"]);
        let counters: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        counters[what].as_u64().unwrap_or(0)
    }
}

/// Waits until something is so.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn ended(running: Running, what: &str) -> Value {
    let output = running.finish(PATIENCE);
    let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    assert!(output.status.success(), "{what}: {:?} {}", output.status, printed(&output));
    said
}

/// It has every book, and they are right.
fn assert_whole(said: &Value, what: &str) {
    assert_eq!(said["totals"]["digests_disagreed"], 0, "{what}: {said}");
    assert_eq!((&said["books"]["live"], &said["books"]["stale"]), (&SYMBOLS.into(), &0.into()), "{what}: {said}");
}

fn descriptors(running: &Running) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", running.child.id())).expect("it runs").count()
}

fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").to_string()
}

#[test]
fn subscribers_that_are_killed_harm_nobody_and_leave_nothing_behind() {
    let kills = given("BOOKCAST_KILLS", 20);
    let mut random = chance("subscribers killed");
    // It is stopped when it is enough; on a busy machine each of them may take seconds.
    let setting = Setting::new("killed", 60_000 + kills * 4_000);
    let control = free_address();
    let config = setting.config(0, 2_000.0, Some(&control));
    let (log, recovery_log) = (setting.path("publisher.log"), setting.path("recovery.log"));
    let arguments = ["run", text(&config), "--json", "--log", text(&log), "--recovery-log", text(&recovery_log)];
    let mut publisher = Running::start("publisher", &arguments, &[]);
    publisher.control_channel(drop);
    let udp = ["--udp", &setting.group, "--channel-id", "7"];
    let lossy = [&udp[..], &["--lose", "0.05", "--recover", "--control", &control]].concat();
    let near = setting.watch("near.log", &[]);
    let far = setting.watch("far.log", &lossy);
    wait_until("both are there", || setting.counter("recovery subscribers") == 1 && setting.counter("lines") > 500);
    let before = descriptors(&publisher);
    for kill in 0..kills {
        // Each time the next one continues the log of the one before it.
        let (log, ways): (&str, &[&str]) =
            if kill % 2 == 0 { ("victim-near.log", &[]) } else { ("victim-far.log", &lossy) };
        let len = || std::fs::metadata(setting.path(log)).map_or(0, |file| file.len());
        let before = len();
        let mut victim = setting.watch(log, ways);
        // Some die while they start, others in the middle of their work.
        if random.random_bool(0.6) {
            wait_until("it writes its log", || len() > before);
        }
        std::thread::sleep(Duration::from_millis(random.random_range(0..200)));
        victim.child.kill().expect("it is this test's own child");
        victim.child.wait().expect("waits");
    }
    wait_until("the dead are let go", || setting.counter("recovery subscribers") == 1);
    wait_until("no descriptor is left behind", || descriptors(&publisher) <= before);
    assert_eq!(setting.shared_memory().len(), 1);
    publisher.signal("TERM");
    let published = ended(publisher, "the publisher");
    let (near, far) = (ended(near, "the one in shared memory"), ended(far, "the one with losses"));
    assert_eq!((&published["stopped"], &published["lines_unsent"]), (&true.into(), &0.into()), "{published}");
    for (said, what) in [(&near, "near"), (&far, "far")] {
        assert_whole(said, what);
        let next = published["published"].as_u64().map(|lines| lines + 1);
        assert_eq!(said["next_sequence"].as_u64(), next, "{what}");
    }
    assert_eq!(setting.shared_memory(), Vec::<String>::new());
    let history = setting
        .check(&[], &["publisher.log", "recovery.log", "near.log", "far.log", "victim-near.log", "victim-far.log"]);
    let parts: usize = ["victim-near.log", "victim-far.log"].iter().map(|log| parts_of(&history, log).len()).sum();
    println!(
        "{kills} killed, {parts} of them after they had begun a log; {} of {} lines and {} of {} digests held against another log",
        history["lines_compared"], history["lines"], history["digests_compared"], history["digests"]
    );
    assert!(parts as u64 <= kills && parts > 0, "{parts}");
    assert_eq!(history["lines"], published["published"], "the publisher's log has them all");
    println!("far: {} lines recovered, {} lost", far["totals"]["lines_recovered"], far["totals"]["lost"]);
    // In shared memory nothing is lost; how much of the datagrams is depends on how busy the machine is.
    setting.check(&["--lossless"], &["publisher.log", "recovery.log", "near.log"]);
}

fn parts_of<'a>(history: &'a Value, log: &str) -> &'a [Value] {
    let logs = history["logs"].as_array().expect("a list");
    let log = logs.iter().find(|one| one["file"].as_str().is_some_and(|file| file.ends_with(log)));
    log.and_then(|log| log["parts"].as_array()).map_or(&[], Vec::as_slice)
}

#[test]
fn a_publisher_that_is_killed_and_started_again_and_again_is_followed_by_late_joiners_too() {
    let mut random = chance("a publisher killed");
    let setting = Setting::new("again", 100_000);
    let control = free_address();
    let config = setting.config(0, 2_000.0, Some(&control));
    let (log, recovery_log) = (setting.path("publisher.log"), setting.path("recovery.log"));
    let arguments = ["run", text(&config), "--json", "--log", text(&log), "--recovery-log", text(&recovery_log)];
    let udp = ["--udp", &setting.group, "--channel-id", "7"];
    let lossy = [&udp[..], &["--lose", "0.05", "--recover", "--control", &control]].concat();
    let mut watching = Vec::new();
    for round in 0..3 {
        let mut publisher = Running::start("publisher", &arguments, &[]);
        publisher.control_channel(drop);
        // Two that are there from this publisher's first line on, and, but for the first round, two that come late.
        if round == 0 {
            watching.push(("near.log", setting.watch("near.log", &[])));
            watching.push(("far.log", setting.watch("far.log", &lossy)));
        }
        wait_until("lines", || setting.counter("lines") > 1_000);
        std::thread::sleep(Duration::from_millis(random.random_range(0..400)));
        if round == 1 {
            let recover = ["--recover", "--control", &control];
            watching.push(("late-near.log", setting.watch("late-near.log", &recover)));
            watching.push(("late-far.log", setting.watch("late-far.log", &lossy)));
            wait_until("they are let in", || setting.counter("recovery subscribers") == 3);
        }
        publisher.signal("KILL");
        publisher.finish(PATIENCE);
    }
    let mut publisher = Running::start("publisher", &arguments, &[]);
    publisher.control_channel(drop);
    wait_until("lines", || setting.counter("lines") > 3_000);
    publisher.signal("TERM");
    let published = ended(publisher, "the last publisher");
    let mut logs = vec!["publisher.log", "recovery.log"];
    for (log, running) in watching {
        let said = ended(running, log);
        assert_whole(&said, log);
        let next = published["published"].as_u64().map(|lines| lines + 1);
        assert_eq!((said["next_sequence"].as_u64(), &said["epoch"]), (next, &4.into()), "{log}: {said}");
        logs.push(log);
    }
    assert_eq!(setting.shared_memory(), Vec::<String>::new(), "what the dead left behind was removed");
    let history = setting.check(&[], &logs);
    let epochs: Vec<&Value> =
        parts_of(&history, "/publisher.log").iter().map(|part| &part["joined"]["epoch"]).collect();
    assert_eq!(epochs, [1, 2, 3, 4]);
    println!("{} of {} lines held against another log", history["lines_compared"], history["lines"]);
    assert!(history["lines_compared"].as_u64() > history["lines"].as_u64().map(|lines| lines / 2), "{history}");
}

#[test]
fn a_is_killed_while_b_lives_and_nothing_is_lost() {
    let mut random = chance("A killed");
    let setting = Setting::new("pair", 100_000);
    let control = free_address();
    let configs = [(0, None), (1, Some(control.as_str()))].map(|(lane, at)| setting.config(lane, 2_000.0, at));
    // What a full queue of datagrams loses on a busy machine is B's to give again.
    let recover = ["--udp", &setting.group, "--channel-id", "7", "--recover", "--control", &control];
    let watching = setting.watch("both.log", &recover);
    let lanes = configs.map(|config| {
        let log = setting.path(&format!("{}.log", config.file_stem().expect("a name").to_str().expect("UTF-8")));
        Running::start("publisher", &["run", text(&config), "--json", "--log", text(&log)], &[])
    });
    let [first, mut second] = lanes;
    second.control_channel(drop);
    wait_until("both publish", || (0..2).all(|lane| setting.counter_of(lane, "lines") > 1_000));
    std::thread::sleep(Duration::from_millis(random.random_range(0..500)));
    first.signal("KILL");
    first.finish(PATIENCE);
    let there = setting.counter_of(0, "lines");
    wait_until("B goes on alone", || setting.counter_of(1, "lines") > there + 3_000);
    second.signal("TERM");
    let published = ended(second, "B");
    let said = ended(watching, "the subscriber");
    assert_whole(&said, "of both");
    assert_eq!((&said["totals"]["lost"], &said["epoch"]), (&0.into(), &1.into()), "{said}");
    assert_eq!(said["next_sequence"].as_u64(), published["published"].as_u64().map(|lines| lines + 1));
    let history = setting.check(&["--lossless"], &["publisher-0.log", "publisher-1.log", "both.log"]);
    assert_eq!(history["lines_compared"], history["lines"], "A's lines are B's, and the subscriber's");
    // A's leftover is removed by whoever publishes that lane next; here nobody does.
    for ring in output("publisher", &["channels", "--json"]).stdout.split(|byte| *byte == b'\n') {
        let rings: Value = serde_json::from_slice(ring).unwrap_or_default();
        let dead = rings.as_array().into_iter().flatten().filter(|ring| ring["name"] == setting.name.as_str());
        dead.filter_map(|ring| ring["path"].as_str()).for_each(|path| {
            let _ = std::fs::remove_file(path);
        });
    }
}
