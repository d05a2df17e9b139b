//! `feeds-replay check`, on logs that the real processes of a replay wrote.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};

use bookcast_tests::programs::{generated_day, output, printed};
use serde_json::Value;

fn text(path: &Path) -> &str {
    path.to_str().expect("test paths are UTF-8")
}

/// Replays a small day over shared memory with logs; gives those of publisher and subscriber.
fn logs(folder: &Path) -> [PathBuf; 2] {
    let day = generated_day(folder, 20_000, 1_000_000_000);
    let to = folder.join("logs");
    let replayed = output(
        "feeds-replay",
        &["replay", text(&day), "--date", "none", "--rate", "20000", "--log", text(&to), "--json"],
    );
    assert!(replayed.status.success(), "{}", printed(&replayed));
    ["shm-publisher.log", "shm-subscriber.log"].map(|name| to.join(name))
}

#[test]
fn the_logs_of_a_replay_hold_together_and_whatever_is_done_to_them_is_found_and_placed() {
    let folder = tempfile::tempdir().expect("a folder");
    let [publisher, subscriber] = logs(folder.path());
    let check = |more: &[&str]| {
        let checked = output("feeds-replay", &[&["check"], more].concat());
        (checked.status.code(), printed(&checked))
    };
    let (both, json) =
        ([text(&publisher), text(&subscriber)], |said: &str| -> Value { serde_json::from_str(said).expect("JSON") });
    let (status, said) = check(&["--lossless", "--json", both[0], both[1]]);
    let history = json(&said);
    assert_eq!((status, &history["sound"]), (Some(0), &true.into()), "{said}");
    assert!(history["lines"].as_u64() > Some(20_000) && history["lines"] == history["lines_compared"], "{said}");
    assert!(history["digests"].as_u64() > Some(100) && history["digests"] == history["digests_compared"], "{said}");
    let (status, said) = check(&both);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.starts_with("SOUND") && said.contains("publisher of 'replay-"), "{said}");

    // A log that ends anywhere is good up to there.
    let whole = std::fs::read(&subscriber).expect("reads");
    std::fs::write(&subscriber, &whole[..whole.len() / 2 + 3]).expect("writes");
    let (status, said) = check(&both);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("cut off while it was written"), "{said}");

    // One bit.
    let mut damaged = whole.clone();
    damaged[4_003] ^= 4;
    std::fs::write(&subscriber, &damaged).expect("writes");
    let (status, said) = check(&both);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.starts_with("WRONG: 1 problem") && said.contains("at byte 4000: the entry is damaged"), "{said}");

    // A piece that was cut out, another file, no file, no arguments.
    std::fs::write(&subscriber, [&whole[..4_000], &whole[4_040..]].concat()).expect("writes");
    assert_eq!(check(&both).0, Some(1));
    let (status, said) = check(&[both[0], text(&folder.path().join("generated.itch"))]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("this is no log"), "{said}");
    let (status, said) = check(&[both[0], "/no/such.log"]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("/no/such.log: No such file"), "{said}");
    assert_eq!(check(&[]).0, Some(2));
}

#[test]
fn the_log_of_another_stream_is_found_to_differ() {
    let (folder, other) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let [publisher, subscriber] = logs(folder.path());
    // The same day once more under the same name of a channel, but for one order's size.
    let day = other.path().join("generated.itch");
    let mut bytes = std::fs::read(folder.path().join("generated.itch")).expect("reads");
    let add = bytes.windows(3).position(|bytes| bytes == [0, 36, b'A']).expect("an Add") + 2;
    // Shares are bytes 20 to 23 of an Add.
    bytes[add + 23] ^= 1;
    std::fs::write(&day, bytes).expect("writes");
    let to = other.path().join("logs");
    let replayed = output(
        "feeds-replay",
        &["replay", text(&day), "--date", "none", "--rate", "20000", "--log", text(&to), "--json"],
    );
    assert!(!replayed.stdout.is_empty(), "{}", printed(&replayed));
    let read = |path: &Path| std::fs::read(path).expect("reads");
    let (ours, theirs) = (read(&subscriber), read(&to.join("shm-subscriber.log")));
    // Each process names its channel after its parent's id: the names are made the same by taking our beginning.
    let renamed = other.path().join("renamed.log");
    let beginning = |bytes: &[u8]| {
        let entries = bytes.chunks(40).take_while(|entry| entry[0] <= 2).count();
        entries * 40
    };
    assert_eq!(beginning(&ours), beginning(&theirs), "names of one length");
    std::fs::write(&renamed, [&ours[..beginning(&ours)], &theirs[beginning(&theirs)..]].concat()).expect("writes");
    let checked = output("feeds-replay", &["check", "--json", text(&publisher), text(&subscriber), text(&renamed)]);
    assert_eq!(checked.status.code(), Some(1), "{}", printed(&checked));
    let history: Value = serde_json::from_slice(&checked.stdout).expect("JSON");
    let problems = history["problems"].as_array().expect("a list");
    let says = |words: &str| problems.iter().any(|problem| problem["problem"].to_string().contains(words));
    assert!(says("are others than those of log 0") && says("is another than that of log 0"), "{problems:?}");
    assert!(problems.iter().all(|problem| problem["log"] == 2), "{problems:?}");
}
