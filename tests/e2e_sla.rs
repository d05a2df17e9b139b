//! `feeds-replay sla` and `compare` end to end: real processes, whatever the machine is like. What a run must say of a busy
//! neighbour and of a slow strategy is asserted; how fast it was is not.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bookcast_tests::programs::{Running, generated_day, output, printed};
use serde_json::Value;

/// Runs are made one at a time: one test's neighbour is not to be another's.
static ONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    // A test that failed has left nothing behind that would matter to the next.
    ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn sla_file(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("sla.toml");
    std::fs::write(&path, text).expect("writes");
    path
}

fn path(path: &Path) -> &str {
    path.to_str().expect("test paths are UTF-8")
}

/// Runs `sla` on a generated day; its exit status and its JSON.
fn sla(folder: &Path, text: &str, more: &[&str]) -> (i32, Value) {
    let file = sla_file(folder, text);
    let arguments = [&["sla", "generated", "--json", "--sla", path(&file)], more].concat();
    let output = output("feeds-replay", &arguments);
    let json = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", printed(&output)));
    (output.status.code().expect("it ends by itself"), json)
}

fn reasons(case: &Value) -> String {
    case["judgement"]["invalid_because"].to_string()
}

/// What every sound run says, whatever its verdict.
fn check_sound(case: &Value) {
    let evidence = &case["evidence"];
    for subscriber in evidence["subscribers"].as_array().expect("a list") {
        let count = |name: &str| subscriber[name].as_u64().expect("a number");
        assert_eq!(Some(count("delivered") + count("lost")), evidence["published"].as_u64(), "{evidence:#}");
        assert!(count("digests_compared") > 0 && count("digests_disagreed") == 0, "{evidence:#}");
        assert_eq!((count("negative"), count("unkept")), (0, 0), "{evidence:#}");
    }
    for row in case["distributions"].as_array().expect("a list") {
        let values = ["p50_ns", "p90_ns", "p99_ns", "p999_ns", "p9999_ns", "max_ns"].map(|name| row[name].as_u64());
        assert!(values.is_sorted() && values[0].is_some(), "{row:#}");
    }
}

#[test]
fn several_cases_are_judged_and_written_out_for_other_tools() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("report");
    let text = r#"
        name = "books & <desk>"
        [[case]]
        name = "memory"
        transport = "shm"
        limits = { p50 = "100us", "p99.9" = "50ms" }
        load = { shape = "squeezed", every = "100ms", width = "50ms", factor = 4 }
        [[case]]
        name = "two over UDP"
        transport = "udp"
        subscribers = 2
        measure = "complete"
        gaps_allowed = 1000000
        limits = { p99 = "50ms" }
        load = { shape = "bursts", messages = 20, every = "4ms" }
        capture = { loops = 2, symbols = ["ZAAA", "ZAAB"] }
    "#;
    let (code, outcome) = sla(folder.path(), text, &["--seconds", "1", "--rate", "8000", "--out", path(&out)]);
    let verdict = outcome["verdict"].as_str().expect("a verdict");
    assert_eq!(["MET", "BROKEN", "INVALID"].get(code as usize), Some(&verdict), "{code}");
    assert_eq!(outcome["schema"], "bookcast-sla/1");
    let [memory, udp] = &outcome["cases"].as_array().expect("a list")[..] else { panic!("two cases: {outcome:#}") };
    for case in [memory, udp] {
        check_sound(case);
        assert!(case["stages"]["messages"].as_u64() > Some(10), "{:#}", case["stages"]);
        assert!(!case["worst"].as_array().expect("a list").is_empty());
    }
    assert_eq!(memory["load"]["messages"], 8_000);
    assert_eq!(udp["evidence"]["subscribers"].as_array().map(Vec::len), Some(2));
    assert_eq!(udp["distributions"][0]["whose"], "worst of all");
    assert_eq!(memory["distributions"].as_array().map(Vec::len), Some(3));

    let page = std::fs::read_to_string(out.join("report.html")).expect("the page");
    assert!(page.contains(&format!("class=\"verdict {}\">{verdict}</p>", verdict.to_lowercase())), "{page}");
    assert!(page.contains("books &amp; &lt;desk&gt;") && !page.contains("<script") && !page.contains("src="));
    let written: Value =
        serde_json::from_slice(&std::fs::read(out.join("outcome.json")).expect("the JSON")).expect("JSON");
    assert_eq!(written, outcome);
    for case in 1..=2 {
        let hgrm = std::fs::read_to_string(out.join(format!("case-{case}.hgrm"))).expect("a distribution");
        assert!(hgrm.contains("Total count"), "{hgrm}");
        let log = std::fs::read_to_string(out.join(format!("case-{case}.hlog"))).expect("an interval log");
        assert!(log.contains("StartTime") && log.contains("Tag="), "{log}");
    }
}

#[test]
fn a_busy_neighbour_on_the_core_makes_a_run_invalid_and_says_so() {
    let _alone = alone();
    let cores = publisher::pin::usable_cores();
    let [.., publisher, subscriber] = cores[..] else {
        println!("one usable core: every run is oversubscribed here");
        return;
    };
    // A neighbour that takes every turn that it is given.
    let over = Arc::new(AtomicBool::new(false));
    let neighbour = std::thread::spawn({
        let over = Arc::clone(&over);
        move || {
            publisher::pin::pin(subscriber).expect("a usable core");
            // Relaxed: the flag carries nothing but itself.
            while !over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        }
    });
    let folder = tempfile::tempdir().expect("a folder");
    let text = r#"
        [[case]]
        transport = "shm"
        limits = { p99 = "2ms" }
        load = { shape = "rate", messages_per_second = 2000 }
    "#;
    let on = format!("{publisher},{subscriber}");
    let (code, outcome) = sla(folder.path(), text, &["--seconds", "5", "--rate", "1000", "--cores", &on]);
    over.store(true, Ordering::Relaxed);
    neighbour.join().expect("no panic");
    let case = &outcome["cases"][0];
    check_sound(case);
    assert_eq!((code, outcome["verdict"].as_str()), (2, Some("INVALID")), "{:#}", case["judgement"]);
    assert!(reasons(case).contains("the machine's own jitter"), "{}", reasons(case));
    let thread = &case["threads"][1];
    assert_eq!(thread["thread"], "the subscriber");
    assert!(thread["machine_ns"].as_u64() > Some(100_000_000), "{thread:#}");
    let causes = case["worst"].as_array().expect("a list").iter().filter(|one| one["cause"] == "machine").count();
    assert!(causes > 0, "{:#}", case["worst"]);
}

#[test]
fn a_subscriber_that_is_slow_by_its_own_code_breaks_the_limit_whatever_the_machine_does() {
    let _alone = alone();
    if publisher::pin::usable_cores().len() < 2 {
        println!("one usable core: every run is oversubscribed here");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let text = r#"
        [[case]]
        transport = "shm"
        limits = { p99 = "20us" }
        load = { shape = "rate", messages_per_second = 1000 }
        slow_subscriber = { work = "100us" }
    "#;
    let (code, outcome) = sla(folder.path(), text, &["--seconds", "5", "--rate", "1000"]);
    let case = &outcome["cases"][0];
    check_sound(case);
    assert_eq!((code, outcome["verdict"].as_str()), (1, Some("BROKEN")), "{:#}", case["judgement"]);
    let limit = &case["evidence"]["limits"][0];
    assert!(limit["without_machine"]["low_ns"].as_u64() > Some(90_000), "{limit:#}");
    assert!(case["judgement"]["broken_because"][0].as_str().is_some_and(|why| why.contains("p99")));
}

#[test]
fn captures_follow_one_another_and_dbn_is_replayed_as_it_is() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let day = generated_day(folder.path(), 5_000, 400_000_000);
    let captured = "[[case]]\ntransport = \"shm\"\nlimits = { p99 = \"1s\" }\nload = { shape = \"captured\" }\n";
    let file = sla_file(folder.path(), captured);
    let run = |captures: &[&str], date: &str| {
        let arguments = [&["sla", "--json", "--sla", path(&file), "--date", date], captures].concat();
        let output = output("feeds-replay", &arguments);
        let outcome: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", printed(&output)));
        let case = outcome["cases"][0].clone();
        check_sound(&case);
        (case, outcome["disclosure"]["captures"].as_array().map(Vec::len))
    };
    let (case, captures) = run(&[path(&day), path(&day)], "none");
    assert_eq!((&case["load"]["messages"], captures), (&10_000.into(), Some(2)));
    // Both days of 0.4 s, a millisecond apart, from one anchor.
    let planned = case["evidence"]["planned_ns"].as_u64().expect("a number");
    assert!((800_000_000..=802_000_000).contains(&planned), "{planned}");

    let dbn = folder.path().join("day.dbn");
    let recorded = output("feeds-replay", &["record", path(&day), "--date", "2019-12-30", "-o", path(&dbn)]);
    assert!(recorded.status.success(), "{}", printed(&recorded));
    let (case, _) = run(&[path(&dbn)], "2019-12-30");
    assert!(case["load"]["messages"].as_u64() > Some(4_000), "{:#}", case["load"]);
    // Its records do not tell their place in the feed, so steps of both sides cannot be brought together.
    assert_eq!(case["stages"], Value::Null);
    std::fs::write(&file, captured.replace("shape = \"captured\"", "shape = \"rate\", messages_per_second = 1e4"))
        .expect("writes");
    let refused = output("feeds-replay", &["sla", path(&dbn), "--sla", path(&file)]);
    assert_eq!(refused.status.code(), Some(3));
    assert!(printed(&refused).contains("need ITCH"), "{}", printed(&refused));
}

#[test]
fn what_cannot_be_run_is_named_and_ends_with_3() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let fine = "[[case]]\ntransport = \"shm\"\nlimits = { p99 = \"1ms\" }\nload = { shape = \"captured\" }\n";
    let day = generated_day(folder.path(), 5_000, 100_000_000);
    let missing = folder.path().join("missing.itch");
    let good = sla_file(folder.path(), fine);
    let bad = folder.path().join("bad.toml");
    std::fs::write(&bad, fine.replace("limits", "limitz")).expect("writes");
    let cases: [(&[&str], &str); 7] = [
        (&["sla", path(&missing), "--sla", path(&good)], "missing.itch"),
        (&["sla", path(&day), "--sla", path(&good)], "--date"),
        (&["sla", path(&day), "--sla", path(&bad), "--date", "none"], "limitz"),
        (&["sla", path(&day), "--date", "none"], "--sla"),
        (&["sla", "generated", "--sla", path(&good), "--case", "other"], "1 shm"),
        (&["sla", "generated", "--sla", path(&good), "--cores", "100000"], "core 100000"),
        (&["sla", "generated", "--sla", path(&good), "--ring-lines", "1000"], "power of two"),
    ];
    for (arguments, expected) in cases {
        let output = output("feeds-replay", arguments);
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {}", printed(&output));
        assert!(printed(&output).contains(expected), "{arguments:?} should say {expected:?}: {}", printed(&output));
    }
}

#[test]
fn an_interrupted_run_reports_what_was_measured_and_is_invalid() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let text = "[[case]]\ntransport = \"shm\"\nlimits = { p99 = \"1s\" }\nload = { shape = \"rate\", messages_per_second = 1000 }\n";
    let file = sla_file(folder.path(), text);
    let arguments = ["sla", "generated", "--seconds", "60", "--rate", "1000", "--json", "--sla", path(&file)];
    let running = Running::start("feeds-replay", &arguments, &[]);
    std::thread::sleep(Duration::from_secs(4));
    running.signal("INT");
    let output = running.finish(Duration::from_secs(60));
    let outcome: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", printed(&output)));
    let case = &outcome["cases"][0];
    check_sound(case);
    assert_eq!(output.status.code(), Some(2), "{:#}", case["judgement"]);
    assert!(reasons(case).contains("stopped before its end"), "{}", reasons(case));
    assert!(case["load"]["messages"].as_u64().is_some_and(|messages| messages > 0 && messages < 60_000));
}
