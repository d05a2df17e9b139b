//! The `publisher` command end to end, with a subscriber in this process.

#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bookcast_tests::programs::{Running, generated_day, output, printed, unique};
use protocol::line::Epoch;
use subscriber::{Builder, Context, Gap, Handler, StateChange, StateReason, Subscriber, Update};
use transport::LaneRx;

/// The longest any step here may take, ten times what is stated for it and more: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Checks that sequence numbers come in order, and counts.
#[derive(Default)]
struct Witness {
    lines: u64,
    lost: u64,
    epochs: Vec<u16>,
    silences: u32,
    next: u64,
    made_stale_by_epoch: u64,
    live_again: u64,
}

impl Handler for Witness {
    fn on_record(&mut self, _: &Context<'_>, update: &Update<'_>) {
        let sequence = update.stamp.sequence().0;
        assert_eq!(sequence, self.next, "in order, exactly once");
        self.next += 1;
        self.lines += 1;
    }
    fn on_gap(&mut self, _: &Context<'_>, gap: &Gap) {
        assert_eq!(gap.first.sequence().0, self.next, "a gap is named where it is");
        self.next += gap.count;
        self.lost += gap.count;
    }
    fn on_epoch(&mut self, _: &Context<'_>, _: Epoch, to: Epoch) {
        self.epochs.push(to.0);
        self.next = 1;
    }
    fn on_path_silent(&mut self, _: &Context<'_>, _: protocol::run::LanePath, _: protocol::time::Nanos) {
        self.silences += 1;
    }
    fn on_state_change(&mut self, _: &Context<'_>, change: &StateChange) {
        match change.reason {
            StateReason::NewEpoch => self.made_stale_by_epoch += 1,
            StateReason::SessionStart => self.live_again += 1,
            _ => {}
        }
    }
}

fn witness() -> Witness {
    Witness { next: 1, ..Witness::default() }
}

fn poll_until<R: LaneRx>(
    subscriber: &mut Subscriber<R>,
    witness: &mut Witness,
    what: &str,
    done: impl Fn(&Witness, &Subscriber<R>) -> bool,
) {
    let until = Instant::now() + PATIENCE;
    while !done(witness, subscriber) {
        if subscriber.poll(witness) == 0 {
            std::thread::yield_now();
            assert!(Instant::now() < until, "{what}: not within {PATIENCE:?} ({} lines so far)", witness.lines);
        }
    }
}

struct Setting {
    folder: tempfile::TempDir,
    name: String,
    config: PathBuf,
}

/// A folder with a generated day and a configuration that publishes it at `pace`.
fn setting(what: &str, messages: u64, pace: &str, extra: &str) -> Setting {
    let folder = tempfile::tempdir().expect("a folder");
    let day = generated_day(folder.path(), messages, 1_000_000_000);
    let name = unique(what);
    let config = folder.path().join("publisher.toml");
    let text = format!(
        "[channel]\nname = {name:?}\n[feed]\npath = {day:?}\ndate = 'none'\npace = {pace}\n\
         [run]\nyield_when_idle = true\nlinger_ms = 200\nstate_dir = {:?}\n{extra}",
        folder.path().join("state")
    );
    fs::write(&config, text).expect("writes");
    Setting { folder, name, config }
}

fn path(path: &Path) -> &str {
    path.to_str().expect("test paths are UTF-8")
}

#[test]
fn a_subscriber_that_was_there_first_gets_the_whole_day() {
    let setting = setting("first", 20_000, "'max'", "");
    let mut subscriber = Builder::new(&setting.name).shared_memory().expect("waits");
    let mut witness = witness();
    assert_eq!(subscriber.poll(&mut witness), 0, "nobody publishes yet");
    let running = Running::start("publisher", &["run", path(&setting.config), "--json"], &[]);
    poll_until(&mut subscriber, &mut witness, "the whole day", |_, s| s.has_ended());
    let output = running.finish(PATIENCE);
    assert!(output.status.success(), "{}", printed(&output));
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(result["messages"], 20_000);
    assert_eq!(result["published"].as_u64(), Some(witness.lines + witness.lost));
    let digests = subscriber.engine().digest_counts();
    assert!(digests.compared > 0 && digests.disagreed == 0, "{digests:?}");
    drop(setting.folder);
}

#[test]
fn a_lane_that_is_alive_is_not_taken_and_its_holder_is_named() {
    let setting = setting("alive", 20_000, "{ rate = 2000.0 }", "");
    let mut subscriber = Builder::new(&setting.name).shared_memory().expect("waits");
    let mut witness = witness();
    let first = Running::start("publisher", &["run", path(&setting.config)], &[]);
    poll_until(&mut subscriber, &mut witness, "the first lines", |w, _| w.lines > 10);
    let second = output("publisher", &["run", path(&setting.config)]);
    let text = printed(&second);
    assert!(!second.status.success() && text.contains(&first.child.id().to_string()), "{text}");
    let kept = setting.folder.path().join("state").join(format!("{}.epoch", setting.name));
    assert_eq!(fs::read_to_string(kept).expect("reads").trim(), "1", "the one that was refused has spent no epoch");
    let before = witness.lines;
    poll_until(&mut subscriber, &mut witness, "the first goes on", |w, _| w.lines > before + 100);
    assert!(witness.epochs.is_empty());

    // Its counters can be read meanwhile, and the channel is listed as alive.
    let counters = output("publisher", &["counters", &setting.name, "--json"]);
    let counters: serde_json::Value = serde_json::from_slice(&counters.stdout).expect("JSON");
    assert!(counters["lines"].as_u64() > Some(0), "{counters}");
    let channels = output("publisher", &["channels"]);
    let row = printed(&channels).lines().find(|row| row.contains(&setting.name)).map(str::to_owned);
    assert!(row.as_ref().is_some_and(|row| row.contains("Alive")), "{row:?}");
    first.signal("TERM");
    assert!(first.finish(PATIENCE).status.success());
}

#[test]
fn a_publisher_killed_and_started_again_opens_a_new_epoch_and_books_are_live_again() {
    let setting = setting("restart", 20_000, "{ rate = 4000.0 }", "");
    let mut subscriber = Builder::new(&setting.name).shared_memory().expect("waits");
    let mut witness = witness();
    let first = Running::start("publisher", &["run", path(&setting.config)], &[]);
    poll_until(&mut subscriber, &mut witness, "the first lines", |w, _| w.lines > 2_000);
    first.signal("KILL");
    first.finish(PATIENCE);
    poll_until(&mut subscriber, &mut witness, "silence is told", |w, _| w.silences > 0);
    assert_eq!(witness.lost, 0);

    let second = Running::start("publisher", &["run", path(&setting.config)], &[]);
    poll_until(&mut subscriber, &mut witness, "the new epoch", |w, _| w.epochs == [2]);
    assert!(witness.made_stale_by_epoch > 0, "every book of the old epoch is Stale");
    poll_until(&mut subscriber, &mut witness, "its start of day", |w, _| w.live_again >= w.made_stale_by_epoch);
    second.signal("TERM");
    poll_until(&mut subscriber, &mut witness, "the end", |_, s| s.has_ended());
    assert!(second.finish(PATIENCE).status.success());
    assert_eq!(subscriber.engine().digest_counts().disagreed, 0);
}

#[test]
fn settings_that_cannot_work_are_plain_errors() {
    let setting = setting("wrong", 5_000, "'max'", "core = 4096\n");
    for command in ["check-config", "run"] {
        let output = output("publisher", &[command, path(&setting.config)]);
        let text = printed(&output);
        assert!(!output.status.success() && text.contains("core 4096") && text.contains("run.core"), "{text}");
    }
    let text = fs::read_to_string(&setting.config).expect("reads");
    fs::write(&setting.config, text.replace("core = 4096", "cor = 1")).expect("writes");
    let wrong = output("publisher", &["check-config", path(&setting.config)]);
    assert!(!wrong.status.success() && printed(&wrong).contains("did you mean 'core'?"), "{}", printed(&wrong));
    fs::write(&setting.config, text.replace("core = 4096", "")).expect("writes");
    let right = output("publisher", &["check-config", path(&setting.config)]);
    assert!(right.status.success() && printed(&right).contains("understood"), "{}", printed(&right));
    let udp = "[udp]\ngroup = '239.255.7.1'\nport = 30001\ninterface = 'no-such-card0'\n";
    fs::write(&setting.config, format!("{}{udp}", text.replace("core = 4096", ""))).expect("writes");
    for command in ["check-config", "run"] {
        let output = output("publisher", &[command, path(&setting.config)]);
        let text = printed(&output);
        assert!(!output.status.success() && text.contains("no-such-card0") && !text.contains("publishing"), "{text}");
    }
}
