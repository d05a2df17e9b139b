//! The `feeds-replay` command end to end: real processes, real shared memory, real sockets.

#![forbid(unsafe_code)]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use bookcast_tests::programs::{Running, generated_day, output, printed};
use serde_json::Value;

fn json(arguments: &[&str]) -> Value {
    let output = output("feeds-replay", arguments);
    assert!(output.status.success(), "{arguments:?}: {}", printed(&output));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", printed(&output)))
}

/// What every sound run says, whatever the machine is like.
fn check_sound(result: &Value, transports: &[&str]) {
    assert_eq!(result["digests_agree"], true, "{result:#}");
    let mut sums = [0; 3];
    for name in transports {
        let run = &result["transports"][name];
        let [published, delivered, lost] = ["published", "delivered", "lost_named"]
            .map(|key| run[key].as_u64().unwrap_or_else(|| panic!("{key}: {run:#}")));
        assert_eq!(published, delivered + lost, "{name}: {run:#}");
        assert!(run["digests_compared"].as_u64() > Some(0), "{name}: {run:#}");
        assert_eq!(run["loss_explained"], true, "{name}: {run:#}");
        for (sum, part) in sums.iter_mut().zip([published, delivered, lost]) {
            *sum += part;
        }
    }
    assert_eq!(result["transports"].as_object().map(|map| map.len()), Some(transports.len()));
    for (key, sum) in ["published", "delivered", "lost_named"].iter().zip(sums) {
        assert_eq!(result[key].as_u64(), Some(sum), "{key}");
    }
}

#[test]
fn the_demo_delivers_a_whole_day_over_both_transports_and_books_agree() {
    let result = json(&["demo", "--seconds", "2", "--rate", "10000", "--json"]);
    check_sound(&result, &["shm", "udp"]);
    for name in ["shm", "udp"] {
        let run = &result["transports"][name];
        assert_eq!(run["messages"], 20_000);
        assert_eq!(run["instruments"], 50);
        assert!(run["valid"].is_boolean(), "{run:#}");
        for key in
            ["latency_from_intended_ns", "latency_from_actual_ns", "sender_lag_ns", "event_complete_from_intended_ns"]
        {
            let latency = &run[key];
            let [p50, p99, p999, max] = ["p50", "p99", "p999", "max"].map(|p| latency[p].as_u64().expect("a number"));
            assert!(
                p50 <= p99 && p99 <= p999 && p999 <= max && latency["count"].as_u64() > Some(0),
                "{key}: {latency}"
            );
        }
    }
}

#[test]
fn flat_out_claims_no_latency_from_intended_and_no_validity() {
    let folder = tempfile::tempdir().expect("a folder");
    let day = generated_day(folder.path(), 30_000, 1_000_000_000);
    let result = json(&["replay", path(&day), "--date", "none", "--speed", "max", "--transport", "shm", "--json"]);
    check_sound(&result, &["shm"]);
    let run = &result["transports"]["shm"];
    assert_eq!(run["latency_from_intended_ns"], Value::Null);
    assert!(run["latency_from_actual_ns"]["count"].as_u64() > Some(20_000), "{run:#}");
    assert_eq!(run["valid"], Value::Null);
    assert_eq!(run["messages"], 30_000);
}

#[test]
fn a_fixed_rate_takes_the_time_that_it_takes() {
    let folder = tempfile::tempdir().expect("a folder");
    let day = generated_day(folder.path(), 10_000, 3_600_000_000_000);
    let began = Instant::now();
    let result = json(&["replay", path(&day), "--date", "none", "--rate", "10000", "--transport", "udp", "--json"]);
    check_sound(&result, &["udp"]);
    assert!(began.elapsed() >= Duration::from_millis(999), "10,000 messages at 10,000 a second");
    let planned = result["transports"]["udp"]["rate_planned_per_s"].as_f64().expect("a number");
    assert!((planned / 10_000.0 - 1.0).abs() < 0.001, "{planned}");
}

/// The folder of recorded data beside the project, if it is there.
fn data(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data").join(name);
    if path.exists() {
        return Some(path);
    }
    println!("SKIPPED data test: {name} is not there");
    None
}

#[test]
fn the_recorded_itch_day_reaches_the_subscriber_whole() {
    let Some(file) = data("itch/ex20101224.itch") else { return };
    for pace in [["--speed", "max"], ["--rate", "20000"]] {
        let result = json(&["replay", path(&file), pace[0], pace[1], "--transport", "both", "--json"]);
        check_sound(&result, &["shm", "udp"]);
        for name in ["shm", "udp"] {
            let run = &result["transports"][name];
            assert_eq!(run["messages"], 12_012);
            assert_eq!(run["lost_named"], 0, "{name}: the file fits into every queue on the way");
            assert_eq!(run["instruments"], 3);
            // Counted by a separate program: changes of orders that the file never adds.
            assert_eq!(run["unknown_orders"], 117);
        }
    }
}

fn path(path: &Path) -> &str {
    path.to_str().expect("test paths are UTF-8")
}

/// A file under `folder` with these bytes.
fn file(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    fs::File::create(&path).and_then(|mut file| file.write_all(bytes)).expect("writes");
    path
}

#[test]
fn wrong_input_is_named_with_its_cause_and_the_next_step() {
    let folder = tempfile::tempdir().expect("a folder");
    let day = generated_day(folder.path(), 5_000, 100_000_000);
    let missing = folder.path().join("missing.itch");
    let empty = file(folder.path(), "empty.itch", b"");
    let cases: [(&[&str], &[&str]); 8] = [
        (&["replay", path(&missing), "--date", "none"], &["missing.itch"]),
        (&["replay", path(folder.path()), "--date", "none"], &["directory"]),
        (&["replay", path(&empty), "--date", "none"], &["empty"]),
        (&["replay", path(&day)], &["--date"]),
        (&["replay", path(&day), "--date", "yesterday"], &["yesterday", "YYYY-MM-DD"]),
        (&["replay", path(&day), "--date", "none", "--speed", "fast"], &["--speed fast", "max"]),
        (&["replay", path(&day), "--date", "none", "--rate", "0"], &["pace"]),
        (&["replay", path(&day), "--date", "none", "--ring-lines", "1000"], &["--ring-lines 1000", "power of two"]),
    ];
    for (arguments, expected) in cases {
        let output = output("feeds-replay", arguments);
        let text = printed(&output);
        assert!(!output.status.success(), "{arguments:?}: {text}");
        for part in expected {
            assert!(text.contains(part), "{arguments:?} should say {part:?}: {text}");
        }
    }
}

/// Everything before a fault is published and delivered; then the fault is named.
#[test]
fn what_stands_before_a_fault_is_not_lost() {
    let folder = tempfile::tempdir().expect("a folder");
    let day = generated_day(folder.path(), 6_000, 100_000_000);
    let bytes = fs::read(&day).expect("reads");
    let mut ends = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        at += 2 + usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
        ends.push(at);
    }
    let cut = &bytes[..ends[4_000] + 9];
    let mut zero = bytes[..ends[4_000]].to_vec();
    zero.extend([0, 0]);
    zero.extend(&bytes[ends[4_000]..]);
    let mut unknown = bytes[..ends[2_999]].to_vec();
    unknown.extend([0, 3, b'!', 1, 2]);
    unknown.extend(&bytes[ends[2_999]..]);
    let compressed = {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&bytes).expect("compresses");
        encoder.finish().expect("compresses")
    };

    let run = |name: &str, bytes: &[u8], extra: &[&str]| {
        let file = file(folder.path(), name, bytes);
        let arguments = [&["replay", path(&file), "--date", "none", "--speed", "max", "--json"], extra].concat();
        let output = output("feeds-replay", &arguments);
        let result: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", printed(&output)));
        check_sound(&result, &["shm"]);
        (output.status.success(), result["transports"]["shm"].clone())
    };
    for (name, bytes, expected) in [
        ("cut.itch", cut, format!("offset {}", ends[4_000])),
        ("zero.itch", &zero[..], format!("offset {}", ends[4_000])),
    ] {
        let (fine, result) = run(name, bytes, &[]);
        assert!(!fine, "{result:#}");
        assert_eq!(result["messages"], 4_001, "{result:#}");
        let error = result["feed_error"].as_str().expect("an error");
        assert!(error.contains(name) && error.contains(&expected), "{error}");
    }
    let (fine, result) = run("cut.itch", cut, &["--lenient"]);
    assert!(fine, "{result:#}");
    assert_eq!(result["messages"], 4_001);
    assert!(result["notes"].to_string().contains("cut off"), "{result:#}");

    let (fine, result) = run("unknown.itch", &unknown, &[]);
    assert!(fine, "{result:#}");
    assert_eq!((&result["messages"], &result["refused_messages"]), (&6_001.into(), &1.into()));

    let (fine, result) = run("early.itch.gz", &compressed[..compressed.len() / 2], &[]);
    assert!(!fine && result["messages"].as_u64() > Some(100), "{result:#}");
    assert!(result["feed_error"].as_str().is_some_and(|error| error.contains("gzip")), "{result:#}");
    let (fine, result) = run("whole.itch.gz", &compressed, &[]);
    assert!(fine);
    assert_eq!(result["messages"], 6_000);
}

#[test]
fn an_interrupted_run_reports_what_was_measured_so_far() {
    let running = Running::start("feeds-replay", &["demo", "--seconds", "60", "--rate", "5000", "--json"], &[]);
    // Long enough for the processes to be up and the first messages to be on their way.
    std::thread::sleep(Duration::from_secs(3));
    // Ctrl-C in a terminal reaches every process of the run, in any order: the subscriber first is the worst.
    let own = running.child.id();
    let children = fs::read_to_string(format!("/proc/{own}/task/{own}/children")).expect("proc(5): children");
    let children: Vec<&str> = children.split_ascii_whitespace().collect();
    assert_eq!(children.len(), 2, "a publisher and a subscriber: {children:?}");
    for pid in children.iter().rev() {
        assert!(Command::new("kill").args(["-s", "INT", pid]).status().expect("kill runs").success());
    }
    std::thread::sleep(Duration::from_millis(100));
    running.signal("INT");
    let output = running.finish(Duration::from_secs(30));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", printed(&output)));
    let run = &result["transports"]["shm"];
    assert_eq!(run["stopped"], true, "{run:#}");
    let published = run["published"].as_u64().expect("a number");
    assert!(published > 0 && run["messages"].as_u64() < Some(300_000));
    assert_eq!(run["delivered"], published);
    assert_eq!(run["loss_explained"], true, "{run:#}");
    assert_eq!(result["transports"].as_object().map(|map| map.len()), Some(1), "the second was not begun");
}

#[test]
fn a_generated_file_is_whole_repeatable_and_not_written_over_unasked() {
    let folder = tempfile::tempdir().expect("a folder");
    let [one, two] = ["one.itch", "two.itch"].map(|name| folder.path().join(name));
    let make = |file: &Path, extra: &[&str]| {
        let arguments = ["generate", path(file), "--messages", "8000", "--symbols", "20", "--json"];
        output("feeds-replay", &[&arguments[..], extra].concat())
    };
    let made = make(&one, &[]);
    assert!(made.status.success() && make(&two, &[]).status.success(), "{}", printed(&made));
    let summary: Value = serde_json::from_slice(&made.stdout).expect("JSON");
    assert_eq!(
        (&summary["messages"], summary["bytes"].as_u64()),
        (&8000.into(), fs::metadata(&one).ok().map(|m| m.len()))
    );
    assert_eq!(summary["by_type"].as_object().map(serde_json::Map::len), Some(23), "every type of message");
    assert_eq!(fs::read(&one).expect("reads"), fs::read(&two).expect("reads"));

    let refused = make(&one, &["--seed", "2"]);
    assert!(!refused.status.success() && printed(&refused).contains("--force"), "{}", printed(&refused));
    assert_eq!(fs::read(&one).expect("reads"), fs::read(&two).expect("reads"));
    assert!(make(&one, &["--seed", "2", "--force"]).status.success());
    assert_ne!(fs::read(&one).expect("reads"), fs::read(&two).expect("reads"));
    assert!(!make(&folder.path().join("no/folder.itch"), &[]).status.success());
    assert_eq!(fs::read_dir(folder.path()).expect("lists").count(), 2, "nothing half-made stays");

    let result = json(&["replay", path(&two), "--date", "none", "--speed", "max", "--json"]);
    check_sound(&result, &["shm"]);
    assert_eq!(result["transports"]["shm"]["messages"], 8000);
}

#[test]
fn a_subscriber_that_dies_ends_the_run_and_leaves_nothing_behind() {
    let mut running = Running::start("feeds-replay", &["demo", "--seconds", "120", "--rate", "5000"], &[]);
    let parent = running.child.id();
    let mut stdout = std::io::BufReader::new(running.child.stdout.take().expect("piped"));
    let pids = loop {
        let mut line = String::new();
        assert!(std::io::BufRead::read_line(&mut stdout, &mut line).expect("reads") > 0, "it names its processes");
        if line.contains("subscriber is pid") {
            let numbers = line.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse::<u32>().ok());
            break numbers.collect::<Vec<u32>>();
        }
    };
    let [publisher, subscriber] = pids[..] else { panic!("two pids, not {pids:?}") };
    let kill = std::process::Command::new("kill").args(["-s", "KILL", &subscriber.to_string()]).status();
    assert!(kill.expect("kill runs").success());
    let output = running.finish(Duration::from_secs(30));
    assert!(!output.status.success());
    let text = printed(&output);
    assert!(text.contains("subscriber") && text.contains(&subscriber.to_string()), "{text}");
    assert!(!Path::new(&format!("/proc/{publisher}")).exists(), "the publisher was ended too");
    let rings = fs::read_dir("/dev/shm").expect("lists").filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    assert_eq!(rings.filter(|name| name.contains(&format!("-{parent}-"))).count(), 0, "its ring is put away");
}
