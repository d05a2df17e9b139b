//! One publisher and subscriber processes over RDMA, on the two ends of the virtual machine's wire.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use protocol::record::Lane;
use serde_json::Value;

use crate::programs::{Running, generated_day, printed, unique};
use crate::wire::{HERE, THERE};

/// The token that everybody knows.
pub const TOKEN: &str = "a token for tests";
/// Ten times what any step should take, and more: the machine is emulated, and may be busy.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// How long a send may take before its subscriber is dropped; the guest's own scheduler may hold it up so long.
const DEADLINE_MS: u64 = 2_000;

/// A publisher of a generated day, and what it says meanwhile.
pub struct Publishing {
    /// The process.
    pub running: Running,
    /// Where its control channel listens.
    pub control: SocketAddr,
    /// The channel.
    pub name: String,
    /// What it said on standard error, line by line.
    pub said: Arc<Mutex<Vec<String>>>,
}

impl Publishing {
    /// Starts it: so many messages, so many a second, the first one `lead_ms` after the start.
    ///
    /// # Panics
    /// If it does not say where it listens.
    pub fn start(folder: &Path, messages: u64, rate: u64, lead_ms: u64) -> Publishing {
        Publishing::configured(folder, (messages, rate, lead_ms), "127.0.0.1:0", "")
    }

    /// The same with a recovery server, a ring of 4,096 lines and a history of 65,536; its control channel is at `listen`. A
    /// second one of that folder is the first one's next epoch, and has its name.
    ///
    /// # Panics
    /// If it does not say where it listens.
    pub fn recovering(folder: &Path, messages: u64, rate: u64, lead_ms: u64, listen: &str) -> Publishing {
        let more = format!("[ring]\nlines = 4096\n[recovery]\nlisten = '{HERE}:0'\nhistory_lines = 65536\n");
        Publishing::configured(folder, (messages, rate, lead_ms), listen, &more)
    }

    fn configured(folder: &Path, day: (u64, u64, u64), listen: &str, more: &str) -> Publishing {
        let (messages, rate, lead_ms) = day;
        let day = generated_day(folder, messages, messages * 1_000_000_000 / rate);
        let named = folder.join("name");
        let name = std::fs::read_to_string(&named).unwrap_or_else(|_| unique("rdma"));
        std::fs::write(&named, &name).expect("writes");
        let config = folder.join("publisher.toml");
        let text = format!(
            "[channel]\nname = {name:?}\nid = 7\n[feed]\npath = {day:?}\ndate = 'none'\n\
             pace = {{ rate = {rate}.0 }}\n[control]\nlisten = '{listen}'\ntokens = [{TOKEN:?}]\n\
             [rdma]\naddress = '{HERE}'\ngroup = '239.255.8.1'\nsubscribers = 6\ndeadline_ms = {DEADLINE_MS}\n\
             {more}\
             [run]\nyield_when_idle = true\nlead_ms = {lead_ms}\nlinger_ms = 3000\nstate_dir = {:?}\n",
            folder.join("state")
        );
        std::fs::write(&config, text).expect("writes");
        let mut running = Running::start("publisher", &["run", config.to_str().expect("UTF-8"), "--json"], &[]);
        let said = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&said);
        let control = running.control_channel(move |line| into.lock().expect("no panics").push(line));
        Publishing { running, control, name, said }
    }

    /// A `subscriber watch` of this channel: `ud`, `rc` or `both`.
    ///
    /// # Panics
    /// If it is not so, or takes longer than [`PATIENCE`].
    pub fn watch(&self, lanes: &str) -> Watching {
        self.watch_with(lanes, &[])
    }

    /// The same with further arguments, such as `--recover`.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn watch_with(&self, lanes: &str, more: &[&str]) -> Watching {
        let control = self.control.to_string();
        let mut arguments = vec![
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
        arguments.extend(more);
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

    /// All that it has said.
    ///
    /// # Panics
    /// If the reading thread did.
    pub fn said(&self) -> String {
        self.said.lock().expect("no panics").join("\n")
    }

    /// Waits until it has said something that contains `what`, `times` times.
    ///
    /// # Panics
    /// If it is not so, or takes longer than [`PATIENCE`].
    pub fn wait_for(&self, what: &str, times: usize) {
        let until = Instant::now() + PATIENCE;
        while self.said.lock().expect("no panics").iter().filter(|line| line.contains(what)).count() < times {
            assert!(Instant::now() < until, "the publisher never said {what:?} {times} times:\n{}", self.said());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// One of its counters; `None` while it has none of that name.
    pub fn counter(&self, name: &str) -> Option<u64> {
        let counted = transport::shm::read_counters(&self.name, Lane::new(0)).ok()?;
        counted.into_iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// Waits until so many messages are handed over, as its own counters say, which are shown every two seconds.
    ///
    /// # Panics
    /// If it is not so, or takes longer than [`PATIENCE`].
    pub fn wait_for_messages(&self, count: u64) {
        let until = Instant::now() + PATIENCE;
        let messages = || self.counter("messages");
        while messages().is_none_or(|messages| messages < count) {
            assert!(Instant::now() < until, "{:?} of {count} messages were handed over:\n{}", messages(), self.said());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until everything is handed over; the end is announced for a while after that.
    ///
    /// # Panics
    /// If it is not so, or takes longer than [`PATIENCE`].
    pub fn wait_for_end(&self) {
        let until = Instant::now() + PATIENCE;
        while self.counter("ended") != Some(1) {
            assert!(Instant::now() < until, "it never ended:\n{}", self.said());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for its end, and gives its account.
    ///
    /// # Panics
    /// If it is not so, or takes longer than [`PATIENCE`].
    pub fn finish(self) -> Value {
        let said = Arc::clone(&self.said);
        let output = self.running.finish(PATIENCE);
        assert!(output.status.success(), "{}{}", printed(&output), said.lock().expect("no panics").join("\n"));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }
}

/// A `subscriber watch`.
pub struct Watching {
    /// The process.
    pub running: Running,
    /// Its lanes: `ud`, `rc` or `both`.
    pub lanes: String,
    /// What it said on standard error, line by line.
    pub said: Arc<Mutex<Vec<String>>>,
}

impl Watching {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.running.child.id()
    }

    /// All that it has said.
    ///
    /// # Panics
    /// If the reading thread did.
    pub fn said(&self) -> String {
        self.said.lock().expect("no panics").join("\n")
    }

    /// Waits until it has heard of the channel: a heartbeat, or lines.
    ///
    /// # Panics
    /// If it is not so, or takes longer than [`PATIENCE`].
    pub fn hears(&self) {
        let until = Instant::now() + PATIENCE;
        while !self.said().contains("digests") {
            assert!(Instant::now() < until, "{} hears nothing: {}", self.lanes, self.said());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// How many lines it has named as lost, when it last said so.
    ///
    /// # Panics
    /// If it is not so, or takes longer than [`PATIENCE`].
    pub fn lost_so_far(&self) -> u64 {
        let said = self.said();
        let last = said.lines().rev().find_map(|line| line.split_once("| lost ")).expect("it says so once a second").1;
        let number = last.split_whitespace().next().expect("a number");
        number.replace(',', "").parse().expect("a number")
    }

    /// Its summary.
    ///
    /// # Panics
    /// If it is not so, or takes longer than [`PATIENCE`].
    pub fn finish(self) -> Summary {
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

/// What a `subscriber watch` ended with.
pub struct Summary {
    /// Its summary.
    pub json: Value,
    /// What it had said.
    pub said: String,
}

impl Summary {
    /// One of its totals.
    ///
    /// # Panics
    /// If there is none of that name.
    pub fn total(&self, name: &str) -> u64 {
        self.json["totals"][name].as_u64().unwrap_or_else(|| panic!("no total {name}: {}", self.json))
    }

    /// Lines that `carrier` brought first.
    ///
    /// # Panics
    /// If it is not so, or takes longer than [`PATIENCE`].
    pub fn won(&self, carrier: &str) -> u64 {
        let won = self.json["won"].as_array().expect("a list");
        won.iter().filter(|path| path["carrier"] == carrier).filter_map(|path| path["won"].as_u64()).sum()
    }

    /// Every line is accounted for, up to the last; books agreed wherever they called themselves right.
    ///
    /// # Panics
    /// If it is not so, or takes longer than [`PATIENCE`].
    pub fn is_complete(&self, lines: u64) {
        assert_eq!(self.total("delivered") + self.total("lost"), lines, "{}\n{}", self.json, self.said);
        assert_eq!(self.json["next_sequence"].as_u64(), Some(lines + 1), "{}\n{}", self.json, self.said);
        assert_eq!(self.total("digests_disagreed"), 0, "{}\n{}", self.json, self.said);
        assert_eq!(self.json["state"], "ended", "{}\n{}", self.json, self.said);
    }

    /// And nothing is missing.
    ///
    /// # Panics
    /// If it is not so, or takes longer than [`PATIENCE`].
    pub fn is_whole(&self, lines: u64, digests: u64) {
        self.is_complete(lines);
        assert_eq!((self.total("lost"), self.total("gaps")), (0, 0), "{}\n{}", self.json, self.said);
        assert_eq!(self.total("digests_agreed"), digests, "{}\n{}", self.json, self.said);
        assert_eq!(self.json["books"]["stale"], 0, "{}\n{}", self.json, self.said);
    }
}

/// A number of a report.
///
/// # Panics
/// If there is none of that name.
pub fn number(report: &Value, name: &str) -> u64 {
    report[name].as_u64().unwrap_or_else(|| panic!("no number {name}: {report}"))
}
