//! Rings between processes: publishers that start, race, die and start again, and readers that outlive them.
//!
//! Tests that need another process start this very test executable again, with the name of the test and a role in the
//! environment; the child plays its role inside that test and never returns from it.

#![forbid(unsafe_code)]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use protocol::line::{Epoch, Line, SequenceNumber, Stamp};
use protocol::record::{ChannelId, InstrumentId, Kind, Lane, Record};
use protocol::run::{Carrier, LanePath, LossCause, Position, Run, RunSink};
use protocol::time::Nanos;
use tempfile::TempDir;
use transport::LaneRx;
use transport::ring::{RingWriter, StartAt};
use transport::shm::{self, Aliveness, BadFile, RingOptions, RxOptions, SetupError, ShmRing, ShmRx};

const NAME: &str = "xnas-itch";
const CHANNEL: ChannelId = ChannelId::new(41);
const LANE: Lane = Lane::new(1);
const LINES: usize = 256;
/// The role of a child, and the directory it works in.
const ROLE: &str = "BOOKCAST_TEST_ROLE";
const DIR: &str = "BOOKCAST_TEST_DIR";

fn options(dir: &Path, epoch: u16) -> RingOptions {
    RingOptions { dir: Some(dir.to_owned()), ..RingOptions::new(NAME, CHANNEL, LANE, Epoch(epoch), LINES) }
}

fn rx_options(dir: &Path) -> RxOptions {
    RxOptions { dir: Some(dir.to_owned()), ..RxOptions::new(NAME, LANE) }
}

fn ring_path(dir: &Path) -> PathBuf {
    dir.join("bookcast-xnas-itch-1.ring")
}

fn line_of(stamp: Stamp) -> Line {
    let mut record = Record::new(Kind::ADD, InstrumentId(7));
    record.order_id.set(stamp.0.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    Line::seal(record, stamp)
}

fn publish(writer: &mut RingWriter, count: u64) {
    for _ in 0..count {
        let line = line_of(writer.next());
        writer.put(&line);
    }
    writer.flush();
}

/// The directory's entries, by name.
fn entries(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Collects stamps in order, and everything else that was told. Content is checked on the way.
#[derive(Default)]
struct Log {
    stamps: Vec<Stamp>,
    losses: Vec<(Stamp, u64, LossCause)>,
    positions: Vec<Position>,
}

impl RunSink for Log {
    fn on_run(&mut self, run: Run<'_>) {
        assert_eq!(run.path.lane, LANE);
        for (i, line) in run.lines.iter().enumerate() {
            let stamp = run.first.plus(i as u64);
            assert_eq!(*line, line_of(stamp));
            self.stamps.push(stamp);
        }
    }

    fn on_position(&mut self, position: Position) {
        self.positions.push(position);
    }

    fn on_loss(&mut self, path: LanePath, first: Stamp, count: u64, cause: LossCause) {
        assert_eq!(path, LanePath::new(LANE, Carrier::SharedMemory));
        self.losses.push((first, count, cause));
    }
}

fn stamps(epoch: u16, sequences: std::ops::RangeInclusive<u64>) -> Vec<Stamp> {
    sequences.map(|sequence| Stamp::new(Epoch(epoch), SequenceNumber(sequence))).collect()
}

/// A child process, ended (by its id) and waited for when dropped.
struct Role(Child);

impl Role {
    /// Starts this executable again to play `role` in the test called `test`.
    fn start(test: &str, role: &str, dir: &Path) -> Role {
        let executable = std::env::current_exe().expect("this executable's path");
        let child = Command::new(executable)
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env(DIR, dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        Role(child)
    }

    /// The next line that it says to us. The test harness prints lines of its own; ours begin with `>`.
    fn hears(&mut self) -> String {
        let mut output = BufReader::with_capacity(1, self.0.stdout.as_mut().expect("piped"));
        let mut text = String::new();
        loop {
            text.clear();
            assert!(output.read_line(&mut text).expect("a line") > 0, "the child ended without a word");
            // The harness prints `test <name> ... ` before what the test prints.
            if let Some((_, said)) = text.split_once('>') {
                return said.trim().to_owned();
            }
        }
    }

    fn kill(mut self) {
        self.0.kill().expect("SIGKILL");
        self.0.wait().expect("waited for");
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The role to play and where, if this process is a child.
fn role() -> Option<(String, PathBuf)> {
    Some((std::env::var(ROLE).ok()?, PathBuf::from(std::env::var_os(DIR)?)))
}

fn say(what: &str) {
    println!(">{what}");
    std::io::stdout().flush().expect("flushes");
}

/// Holds still until the parent closes our input or kills us.
fn stay() -> ! {
    let _ = std::io::stdin().lock().read_line(&mut String::new());
    std::process::exit(0);
}

#[test]
fn a_killed_publisher_is_followed_by_a_fresh_epoch_and_its_reader_goes_over() {
    if let Some((role, dir)) = role() {
        let epoch = role.parse().expect("the epoch");
        let mut writer = RingWriter::create(&options(&dir, epoch)).expect("created");
        publish(&mut writer, 10);
        writer.heartbeat(Nanos(77), false);
        say("published");
        stay();
    }
    const TEST: &str = "a_killed_publisher_is_followed_by_a_fresh_epoch_and_its_reader_goes_over";
    let dir = TempDir::new().expect("a directory");
    let mut first = Role::start(TEST, "5", dir.path());
    assert_eq!(first.hears(), "published");

    let mut rx = ShmRx::open(rx_options(dir.path())).expect("opens");
    let mut log = Log::default();
    let mut now = 1_000_000_000;
    let mut poll = |rx: &mut ShmRx, log: &mut Log, turns: u32| {
        for _ in 0..turns {
            now += 1_000_000;
            rx.poll(Nanos(now), 4, log);
        }
    };
    poll(&mut rx, &mut log, 5);
    assert_eq!(log.stamps, stamps(5, 1..=10));
    assert_eq!(rx.ring().expect("attached").pid(), first.0.id());
    let listed = shm::list_in(dir.path()).expect("lists");
    assert_eq!((listed.len(), listed[0].pid, listed[0].aliveness), (1, first.0.id(), Aliveness::Alive));

    // A living lane is refused, by name.
    match RingWriter::create(&options(dir.path(), 6)).err() {
        Some(SetupError::Alive { pid, channel, lane, path }) => {
            assert_eq!((pid, channel, lane, path), (first.0.id(), 41, 1, ring_path(dir.path())));
        }
        other => panic!("a second publisher of a living lane: {other:?}"),
    }
    assert_eq!(entries(dir.path()), ["bookcast-xnas-itch-1.ring"], "a refused starter leaves nothing behind");

    first.kill();
    let listed = shm::list_in(dir.path()).expect("lists");
    assert_eq!((listed[0].name.as_str(), listed[0].epoch, listed[0].aliveness), (NAME, Epoch(5), Aliveness::Dead));
    poll(&mut rx, &mut log, 300);
    assert!(rx.counts().relooks > 0 && rx.counts().reattached == 0, "{:?}", rx.counts());

    let mut second = Role::start(TEST, "6", dir.path());
    assert_eq!(second.hears(), "published");
    poll(&mut rx, &mut log, 300);
    assert_eq!(log.stamps, [stamps(5, 1..=10), stamps(6, 1..=10)].concat());
    assert_eq!((rx.counts().reattached, log.losses.len()), (1, 0));
    let positions: Vec<(Stamp, Option<Nanos>)> =
        log.positions.iter().map(|position| (position.next, position.publish_time)).collect();
    let next = |epoch| Stamp::new(Epoch(epoch), SequenceNumber(11));
    assert_eq!(positions, [(next(5), Some(Nanos(77))), (next(6), Some(Nanos(77)))]);
    assert_eq!(entries(dir.path()), ["bookcast-xnas-itch-1.ring"]);
}

#[test]
fn of_two_starters_that_race_exactly_one_wins() {
    if let Some((role, dir)) = role() {
        // Both wait for the same file to appear, so that they start as nearly at once as can be had.
        say("ready");
        let begun = Instant::now();
        while !dir.join("go").exists() {
            assert!(begun.elapsed() < Duration::from_secs(30), "nobody said go");
        }
        match RingWriter::create(&options(&dir, role.parse().expect("the epoch"))) {
            Ok(writer) => {
                say("won");
                let _writer = writer;
                stay();
            }
            Err(SetupError::Alive { pid, .. }) => say(&format!("lost to {pid}")),
            Err(error) => say(&format!("failed: {error}")),
        }
        stay();
    }
    const TEST: &str = "of_two_starters_that_race_exactly_one_wins";
    for round in 0..10 {
        let dir = TempDir::new().expect("a directory");
        if round % 2 == 1 {
            // A dead publisher's file, which both want to replace.
            let mut dead = Role::start(TEST, "1", dir.path());
            assert_eq!(dead.hears(), "ready");
            File::create(dir.path().join("go")).expect("go");
            assert_eq!(dead.hears(), "won");
            dead.kill();
            fs::remove_file(dir.path().join("go")).expect("no go");
        }
        let mut starters = ["2", "3"].map(|epoch| Role::start(TEST, epoch, dir.path()));
        for starter in &mut starters {
            assert_eq!(starter.hears(), "ready");
        }
        File::create(dir.path().join("go")).expect("go");
        let said = [starters[0].hears(), starters[1].hears()];
        let winner = usize::from(said[1] == "won");
        assert_eq!(said[winner], "won", "round {round}: {said:?}");
        assert_eq!(said[1 - winner], format!("lost to {}", starters[winner].0.id()), "round {round}: {said:?}");
        let ring = ShmRing::open_in(dir.path(), NAME, LANE).expect("the winner's ring");
        assert_eq!(ring.pid(), starters[winner].0.id());
        assert_eq!(entries(dir.path()), ["bookcast-xnas-itch-1.ring", "go"], "round {round}");
    }
}

#[test]
fn a_publisher_that_ends_removes_its_name_and_its_lane_is_free_at_once() {
    let dir = TempDir::new().expect("a directory");
    let mut writer = RingWriter::create(&options(dir.path(), 1)).expect("created");
    publish(&mut writer, 3);
    let ring = ShmRing::open_in(dir.path(), NAME, LANE).expect("opens");
    // A reader in this process keeps the memory, and must not keep the lock.
    let mut reader = writer.reader(StartAt::Oldest, 0);
    drop(writer);
    assert_eq!(entries(dir.path()), [""; 0]);
    let again = RingWriter::create(&options(dir.path(), 2)).expect("the lane is free");
    let mut log = Log::default();
    reader.poll(Nanos(1), 100, &mut log);
    ring.reader(StartAt::Oldest, 0).poll(Nanos(1), 100, &mut log);
    assert_eq!(log.stamps, [stamps(1, 1..=3), stamps(1, 1..=3)].concat(), "readers keep what they have mapped");
    drop(again);
}

#[test]
fn a_publisher_whose_name_was_taken_away_leaves_the_other_file_alone() {
    let dir = TempDir::new().expect("a directory");
    let writer = RingWriter::create(&options(dir.path(), 1)).expect("created");
    fs::remove_file(ring_path(dir.path())).expect("removed by hand");
    let other = RingWriter::create(&options(dir.path(), 2)).expect("nobody holds the name");
    drop(writer);
    assert_eq!(ShmRing::open_in(dir.path(), NAME, LANE).expect("still there").shape().epoch(), Epoch(2));
    drop(other);
    assert_eq!(entries(dir.path()), [""; 0]);
}

#[test]
fn readers_map_the_file_read_only() {
    let dir = TempDir::new().expect("a directory");
    let mut writer = RingWriter::create(&options(dir.path(), 1)).expect("created");
    let mappings = || {
        let maps = fs::read_to_string("/proc/self/maps").expect("maps");
        // By inode: the writer's mapping still goes by the temporary name that it was made under.
        let inode = fs::metadata(ring_path(dir.path())).expect("it is there").ino().to_string();
        let fields = maps.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
        let ours = fields.filter(|fields| fields[4] == inode && fields[5].contains("bookcast-xnas-itch-1."));
        let mut modes: Vec<String> = ours.map(|fields| fields[1].to_owned()).collect();
        modes.sort();
        modes
    };
    assert_eq!(mappings(), ["rw-s"]);
    let ring = ShmRing::open_in(dir.path(), NAME, LANE).expect("opens");
    assert_eq!(mappings(), ["r--s", "rw-s"]);
    let mut reader = ring.reader(StartAt::Oldest, 0);
    drop(ring);
    publish(&mut writer, 3);
    let mut log = Log::default();
    reader.poll(Nanos(1), 10, &mut log);
    assert_eq!(log.stamps, stamps(1, 1..=3));
    drop(reader);
    assert_eq!(mappings(), ["rw-s"], "a reader that leaves unmaps the ring");
}

#[test]
fn a_reader_before_its_publisher_waits_and_then_gets_everything() {
    let dir = TempDir::new().expect("a directory");
    let missing = ShmRing::open_in(dir.path(), NAME, LANE).err().expect("nothing is there");
    assert!(missing.is_not_there(), "{missing}");
    assert!(missing.to_string().contains("bookcast-xnas-itch-1.ring"), "{missing}");
    let mut rx = ShmRx::waiting(rx_options(dir.path())).expect("a legal name");
    let mut log = Log::default();
    assert_eq!(rx.poll(Nanos(1_000_000_000), 10, &mut log), 0);
    let mut writer = RingWriter::create(&options(dir.path(), 1)).expect("created");
    publish(&mut writer, 5);
    // Looked up once already; not again before its time.
    assert_eq!(rx.poll(Nanos(1_050_000_000), 10, &mut log), 0);
    assert_eq!((rx.counts().relooks, rx.cursor()), (1, None));
    for turn in 0..4 {
        rx.poll(Nanos(1_100_000_000 + turn), 10, &mut log);
    }
    assert_eq!(log.stamps, stamps(1, 1..=5));
}

#[test]
fn a_ring_that_is_not_silent_is_never_looked_up_again() {
    let dir = TempDir::new().expect("a directory");
    let mut writer = RingWriter::create(&options(dir.path(), 1)).expect("created");
    let mut rx = ShmRx::open(rx_options(dir.path())).expect("opens");
    let mut log = Log::default();
    for turn in 0..1_000_u64 {
        let now = Nanos(1_000_000_000 + turn * 10_000_000);
        writer.heartbeat(now, false);
        rx.poll(now, 10, &mut log);
    }
    assert_eq!(rx.counts().relooks, 0);
    assert_eq!(log.positions.len(), 1_000);
}

#[test]
fn an_older_epoch_under_the_name_is_left_alone() {
    let dir = TempDir::new().expect("a directory");
    let mut writer = RingWriter::create(&options(dir.path(), 7)).expect("created");
    publish(&mut writer, 2);
    let mut rx = ShmRx::open(rx_options(dir.path())).expect("opens");
    drop(writer);
    let mut older = RingWriter::create(&options(dir.path(), 6)).expect("created");
    publish(&mut older, 2);
    let mut log = Log::default();
    for turn in 0..500_u64 {
        rx.poll(Nanos(1_000_000_000 + turn * 1_000_000), 10, &mut log);
    }
    assert_eq!(log.stamps, stamps(7, 1..=2));
    assert!(rx.counts().older_epochs > 0 && rx.counts().reattached == 0, "{:?}", rx.counts());
}

#[test]
fn a_fresh_ring_of_the_same_epoch_is_read_on_from_the_cursor() {
    for (first, missing) in [(4, 0), (3, 0), (9, 5)] {
        let dir = TempDir::new().expect("a directory");
        let mut writer = RingWriter::create(&options(dir.path(), 1)).expect("created");
        publish(&mut writer, 3);
        let mut rx = ShmRx::open(rx_options(dir.path())).expect("opens");
        drop(writer);
        let joining = RingOptions { first: SequenceNumber(first), ..options(dir.path(), 1) };
        let mut writer = RingWriter::create(&joining).expect("created");
        publish(&mut writer, 10);
        let mut log = Log::default();
        for turn in 0..500_u64 {
            rx.poll(Nanos(1_000_000_000 + turn * 1_000_000), 10, &mut log);
        }
        let begins = first.max(4);
        assert_eq!(log.stamps, [stamps(1, 1..=3), stamps(1, begins..=first + 9)].concat(), "from {first}");
        let expected = Stamp::new(Epoch(1), SequenceNumber(4));
        let losses = if missing > 0 { vec![(expected, missing, LossCause::Missing)] } else { vec![] };
        assert_eq!(log.losses, losses, "from {first}");
    }
}

#[test]
fn an_old_ring_is_read_to_its_end_before_the_fresh_one() {
    let dir = TempDir::new().expect("a directory");
    let mut writer = RingWriter::create(&options(dir.path(), 1)).expect("created");
    publish(&mut writer, 10);
    let mut rx = ShmRx::open(rx_options(dir.path())).expect("opens");
    let mut log = Log::default();
    let mut turn = 0;
    let mut poll = |rx: &mut ShmRx, log: &mut Log, turns: u64, limit: usize| {
        for _ in 0..turns {
            turn += 1;
            rx.poll(Nanos(1_000_000_000 + turn * 1_000_000), limit, log);
        }
    };
    poll(&mut rx, &mut log, 20, 10);
    // What the first publisher writes last is found only after its name leads elsewhere.
    publish(&mut writer, 100);
    drop(writer);
    let mut fresh = RingWriter::create(&options(dir.path(), 2)).expect("created");
    publish(&mut fresh, 5);
    poll(&mut rx, &mut log, 400, 7);
    assert_eq!(log.stamps, [stamps(1, 1..=110), stamps(2, 1..=5)].concat());
    assert_eq!(log.losses, []);
}

#[test]
fn files_of_dead_starters_are_removed_and_those_of_living_ones_are_not() {
    let dir = TempDir::new().expect("a directory");
    let dead = dir.path().join(".bookcast-other-0.ring.1-0.tmp");
    let living = dir.path().join(".bookcast-other-0.ring.2-0.tmp");
    let foreign = dir.path().join(".somebody-else.tmp");
    for path in [&dead, &living, &foreign] {
        File::create(path).expect("created");
    }
    let lock = File::open(&living).expect("opens");
    lock.lock().expect("locked");
    let writer = RingWriter::create(&options(dir.path(), 1)).expect("created");
    assert!(!dead.exists() && living.exists() && foreign.exists(), "{:?}", entries(dir.path()));
    drop(writer);
}

#[test]
fn a_file_that_is_no_ring_is_a_plain_error_that_names_it() {
    let dir = TempDir::new().expect("a directory");
    let path = ring_path(dir.path());
    let open = || match ShmRing::open_in(dir.path(), NAME, LANE) {
        Err(SetupError::BadFile { path: named, cause }) if named == path => cause,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it opened"),
    };
    fs::write(&path, []).expect("written");
    assert_eq!(open(), BadFile::Truncated { needed: 4096, actual: 0 });
    fs::write(&path, vec![0xA5; 100_000]).expect("written");
    assert_eq!(open(), BadFile::Magic);
    // Not ours: it is not replaced either.
    assert!(matches!(
        RingWriter::create(&options(dir.path(), 1)),
        Err(SetupError::BadFile { cause: BadFile::Magic, .. })
    ));
    assert_eq!(fs::read(&path).expect("read").len(), 100_000);
    fs::remove_file(&path).expect("removed");
    fs::create_dir(&path).expect("a directory in its place");
    assert_eq!(open(), BadFile::Kind);
    fs::remove_dir(&path).expect("removed");

    // A sound one, cut short at every length that matters, then with another version and under another name.
    let writer = RingWriter::create(&options(dir.path(), 1)).expect("created");
    let whole = fs::read(&path).expect("read");
    drop(writer);
    assert_eq!(whole.len(), 8192 + 128 + 64 * LINES);
    for len in [1, 8, 4095, 4096, 8192, 8192 + 128, whole.len() - 1] {
        fs::write(&path, &whole[..len]).expect("written");
        assert!(matches!(open(), BadFile::Truncated { actual, .. } if actual == len as u64), "cut at {len}");
        assert_eq!(shm::list_in(dir.path()).expect("lists"), [], "cut at {len}");
    }
    let mut other_version = whole.clone();
    other_version[8] = 99;
    fs::write(&path, &other_version).expect("written");
    assert_eq!(open(), BadFile::Version { found: 99 });
    fs::write(&path, &whole).expect("written");
    let misplaced = dir.path().join("bookcast-xnas-itch-2.ring");
    fs::rename(&path, &misplaced).expect("renamed");
    match ShmRing::open_in(dir.path(), NAME, Lane::new(2)) {
        Err(SetupError::BadFile { cause: BadFile::Misnamed { name, lane: 1 }, .. }) => assert_eq!(name, NAME),
        other => panic!("{:?}", other.err()),
    }
}

#[test]
fn every_header_byte_may_be_garbage() {
    let dir = TempDir::new().expect("a directory");
    let path = ring_path(dir.path());
    let writer = RingWriter::create(&options(dir.path(), 1)).expect("created");
    let whole = fs::read(&path).expect("read");
    drop(writer);
    let mut refused = 0;
    for byte in 0..104 {
        for value in [0, 1, 0x7F, 0xFF] {
            let mut bytes = whole.clone();
            bytes[byte] ^= value;
            fs::write(&path, &bytes).expect("written");
            match ShmRing::open_in(dir.path(), NAME, LANE) {
                // What is not checked is what only informs: channel, pid, time, and epochs and sequences that might be.
                Ok(ring) => drop(ring.reader(StartAt::Newest, 0).poll(Nanos(1), 10, &mut Log::default())),
                Err(SetupError::BadFile { .. }) => refused += 1,
                Err(other) => panic!("byte {byte}: {other}"),
            }
        }
    }
    assert!(refused > 150, "only {refused} refused");
}

#[test]
fn a_leftover_of_another_version_is_replaced() {
    let dir = TempDir::new().expect("a directory");
    let path = ring_path(dir.path());
    let mut bytes = vec![0; 4096];
    bytes[..8].copy_from_slice(b"BKC-RING");
    bytes[8] = 200;
    fs::write(&path, bytes).expect("written");
    let writer = RingWriter::create(&options(dir.path(), 3)).expect("replaced");
    assert_eq!(ShmRing::open_in(dir.path(), NAME, LANE).expect("opens").shape().epoch(), Epoch(3));
    drop(writer);
}

#[test]
fn counters_are_read_by_another_process() {
    if let Some((_, dir)) = role() {
        let counters = shm::read_counters_in(&dir, NAME, LANE).expect("reads");
        say(&counters.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" "));
        stay();
    }
    let dir = TempDir::new().expect("a directory");
    let writer = RingWriter::create(&options(dir.path(), 1)).expect("created");
    let mut lines = writer.counters().register("lines").expect("room");
    let mut laps = writer.counters().register("feed_gaps").expect("room");
    lines.add(123_456);
    laps.set(7);
    let mut child = Role::start("counters_are_read_by_another_process", "read", dir.path());
    assert_eq!(child.hears(), "lines=123456 feed_gaps=7");
    let ring = ShmRing::open_in(dir.path(), NAME, LANE).expect("opens");
    lines.add(1);
    assert_eq!(ring.counters()[0], ("lines".to_owned(), 123_457));
}

#[test]
fn another_process_reads_lines_while_they_are_written() {
    if let Some((_, dir)) = role() {
        let start = StartAt::At(SequenceNumber::FIRST);
        let mut rx = ShmRx::open(RxOptions { start, ..rx_options(&dir) }).expect("opens");
        say("ready");
        let mut log = Log::default();
        let begun = Instant::now();
        while log.positions.last().is_none_or(|position| !position.ended) {
            let now = Nanos(begun.elapsed().as_nanos() as u64 + 1);
            if rx.poll(now, 256, &mut log) == 0 {
                std::thread::yield_now();
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "no end");
        }
        let lost: u64 = log.losses.iter().map(|(_, count, _)| count).sum();
        say(&format!("{}", log.stamps.len() as u64 + lost));
        stay();
    }
    let dir = TempDir::new().expect("a directory");
    let mut writer = RingWriter::create(&options(dir.path(), 1)).expect("created");
    let mut child = Role::start("another_process_reads_lines_while_they_are_written", "read", dir.path());
    assert_eq!(child.hears(), "ready");
    for _ in 0..20_000 {
        publish(&mut writer, 5);
        std::hint::spin_loop();
    }
    writer.heartbeat(Nanos(1), true);
    assert_eq!(child.hears(), "100000");
}

#[test]
fn names_that_would_lead_elsewhere_are_refused() {
    let dir = TempDir::new().expect("a directory");
    for name in ["", "../x", "a/b", "a b", "ä", &"x".repeat(65)] {
        let bad = RingOptions { name: name.to_owned(), ..options(dir.path(), 1) };
        assert!(matches!(RingWriter::create(&bad), Err(SetupError::Name { .. })), "{name:?}");
        assert!(matches!(ShmRing::open_in(dir.path(), name, LANE), Err(SetupError::Name { .. })), "{name:?}");
    }
    for (lines, epoch) in [(0, 1), (1, 1), (3, 1), (1 << 31, 1), (64, 0)] {
        let bad = RingOptions { lines, ..options(dir.path(), epoch) };
        assert!(matches!(RingWriter::create(&bad), Err(SetupError::Shape { .. })), "{lines} lines, epoch {epoch}");
    }
    assert_eq!(entries(dir.path()), [""; 0]);
}

#[test]
fn a_directory_that_cannot_be_made_is_named_with_the_next_step() {
    let dir = TempDir::new().expect("a directory");
    let file = dir.path().join("file");
    File::create(&file).expect("created");
    let error = RingWriter::create(&options(&file.join("sub"), 1)).err().expect("a file is no directory");
    let text = error.to_string();
    assert!(text.contains("file/sub") && text.contains("BOOKCAST_SHM_DIR"), "{text}");
}
