//! Whoever reads what a program prints may go away. A command then ends quietly; a publisher goes on.

#![forbid(unsafe_code)]

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use bookcast_tests::programs::{Running, generated_day, output, printed, program, unique};

const PATIENCE: Duration = Duration::from_secs(60);
/// What a shell shows for a command that dies of SIGPIPE.
const CLOSED_PIPE: i32 = 141;

/// A pipe that nobody reads from.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

/// Runs a command whose standard output nobody reads.
fn unread(name: &str, arguments: &[&str]) -> Output {
    let command = Command::new(program(name)).args(arguments).stdin(Stdio::null()).stdout(closed()).output();
    command.expect("starts")
}

fn assert_quiet(output: &Output, what: &str) {
    assert_eq!(output.status.signal(), None, "{what}: {}", printed(output));
    assert!([Some(0), Some(CLOSED_PIPE)].contains(&output.status.code()), "{what}: {:?}", output.status);
    assert_eq!(printed(output), "", "{what} says nothing of it");
}

#[test]
fn a_command_whose_output_nobody_reads_ends_quietly() {
    let folder = tempfile::tempdir().expect("a folder");
    let day = generated_day(folder.path(), 5_000, 1_000_000_000);
    let day = day.to_str().expect("test paths are UTF-8");
    let other = folder.path().join("other.itch");
    let other = other.to_str().expect("test paths are UTF-8");
    let config = folder.path().join("publisher.toml");
    std::fs::write(&config, format!("[channel]\nname = 'quiet'\n[feed]\npath = {day:?}\ndate = 'none'\n"))
        .expect("writes");
    let config = config.to_str().expect("test paths are UTF-8");
    let commands: [(&str, &[&str]); 12] = [
        ("feeds-replay", &["generate", other, "--messages", "5000", "--symbols", "20"]),
        ("feeds-replay", &["inspect", day, "--date", "none", "--json"]),
        ("feeds-replay", &["book", "--diff", day, day, "--date", "none"]),
        ("feeds-replay", &["ping", "--transport", "shm", "--count", "10", "--json"]),
        ("feeds-replay", &["--help"]),
        ("feeds-replay", &["completions", "bash"]),
        ("publisher", &["check-config", config]),
        ("publisher", &["check-config", config, "--json"]),
        ("publisher", &["channels"]),
        ("publisher", &["--version"]),
        ("subscriber", &["completions", "zsh"]),
        ("subscriber", &["watch", "--help"]),
    ];
    for (name, arguments) in commands {
        let what = format!("{name} {}", arguments.join(" "));
        // What it prints where somebody reads: a command that fails or prints nothing would show nothing here.
        if arguments[0] != "generate" && arguments[0] != "ping" {
            let read = output(name, arguments);
            assert!(read.status.success() && !read.stdout.is_empty(), "{what}: {}", printed(&read));
        }
        assert_quiet(&unread(name, arguments), &what);
    }
    assert!(std::fs::exists(other).expect("can be looked for"), "the work was done all the same");
}

#[test]
fn a_reader_that_leaves_after_the_first_byte_leaves_no_panic_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let day = folder.path().join("day.itch");
    let day = day.to_str().expect("test paths are UTF-8");
    let mut running = Running::start("feeds-replay", &["generate", day, "--messages", "5000", "--symbols", "20"], &[]);
    let mut first = [0];
    running.child.stdout.take().expect("piped").read_exact(&mut first).expect("it prints");
    let output = running.finish(PATIENCE);
    assert_quiet(&output, "generate | head -c 1");
}

#[test]
fn a_publisher_whose_log_nobody_reads_any_more_publishes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let day = generated_day(folder.path(), 5_000, 1_000_000_000);
    let config = folder.path().join("publisher.toml");
    let text = format!(
        "[channel]\nname = {:?}\n[feed]\npath = {day:?}\ndate = 'none'\npace = {{ rate = 10000.0 }}\n[run]\n\
         yield_when_idle = true\nlinger_ms = 0\nstate_dir = {:?}\n",
        unique("unread"),
        folder.path().join("state")
    );
    std::fs::write(&config, text).expect("writes");
    let child = Command::new(program("publisher"))
        .args(["run", config.to_str().expect("test paths are UTF-8"), "--json"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(closed())
        .spawn()
        .expect("starts");
    let output = Running { child }.finish(PATIENCE);
    assert!(output.status.success(), "{:?}: {}", output.status, printed(&output));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((said["messages"].as_u64(), said["error"].is_null()), (Some(5_000), true), "{said}");
}

#[test]
fn a_replay_whose_output_nobody_reads_takes_its_processes_with_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let day = generated_day(folder.path(), 5_000, 1_000_000_000);
    let child = Command::new(program("feeds-replay"))
        .args(["replay", day.to_str().expect("test paths are UTF-8"), "--date", "none", "--rate", "100"])
        .stdin(Stdio::null())
        .stdout(closed())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let channel = format!("replay-{}-", child.id());
    let output = Running { child }.finish(PATIENCE);
    assert_quiet(&output, "replay");
    // At a hundred messages a second it would take a minute.
    let until = std::time::Instant::now() + PATIENCE / 2;
    while printed(&self::output("publisher", &["channels"])).contains(&channel) {
        assert!(std::time::Instant::now() < until, "its publisher still publishes");
        std::thread::sleep(Duration::from_millis(50));
    }
}
