//! The `costs` command: counts, and compares with what is checked in.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use cli::{eprintln, println};
use costs::key::Key;
use costs::limits::{Compared, Counts, Limits, Verdict, compare, table};
use costs::measure::Places;

/// Counts the instructions of the hot path's pieces under valgrind, and compares them with LIMITS.toml.
///
/// A rise above 1 % is a failure. Where LIMITS.toml has no table for this compiler and processor, the parent commit (or
/// HEAD, if the work tree differs from it) is built by the same compiler and compared with.
#[derive(Parser)]
#[command(
    version,
    after_help = "\
Examples:
  cargo run -p costs
      compare; 'RISEN' names the function that costs more than it may
  cargo run -p costs -- parent
      compare with the parent commit, whatever LIMITS.toml has
  cargo run -p costs -- update --reason \"the hash has one more round\"
      take what is counted for the limits; name the reason in the commit too

It needs valgrind, and gungraun-runner in target/tools (or where GUNGRAUN_RUNNER says)."
)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// The file of limits.
    #[arg(long, global = true, value_name = "FILE", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/LIMITS.toml"))]
    limits: PathBuf,
}

#[derive(Subcommand)]
enum Command {
    /// Compare with LIMITS.toml, or with the parent commit where that has nothing. What is done without a command.
    Check,
    /// Compare with the parent commit.
    Parent,
    /// Take what is counted for the limits of this compiler and processor.
    Update {
        /// Why they moved: one sentence, kept beside them.
        #[arg(long)]
        reason: String,
    },
}

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match arguments.command {
        None | Some(Command::Check) => check(&arguments.limits),
        Some(Command::Parent) => Key::here().map_err(Failure::from).and_then(|key| with_parent(&key)),
        Some(Command::Update { reason }) => update(&arguments.limits, reason).map(|()| true),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("costs: {error}");
            ExitCode::FAILURE
        }
    }
}

fn check(path: &Path) -> Result<bool, Failure> {
    let key = Key::here()?;
    let limits = Limits::read(path)?;
    let Some(entry) = limits.of(&key) else {
        say(&format!("no limits for {key}: compared with the parent commit instead"));
        return with_parent(&key);
    };
    let places = Places::here();
    let compared = compare(&entry.instructions, &places.count(&places.workspace)?);
    Ok(judge(&key, &compared, true))
}

fn with_parent(key: &Key) -> Result<bool, Failure> {
    let places = Places::here();
    let Some(commit) = places.parent() else {
        // Counting still shows that it can be counted, and what it is.
        let counts = places.count(&places.workspace)?;
        say(&table(&compare(&Counts::new(), &counts)));
        say("NOT COMPARED: there is no parent commit here that counts");
        return Ok(true);
    };
    let before = places.count_commit(&commit)?;
    let compared = compare(&before, &places.count(&places.workspace)?);
    say(&format!("'limit' is what commit {} counts", &commit[..commit.len().min(12)]));
    Ok(judge(key, &compared, false))
}

/// Shows what was compared. Returns whether nothing has risen and, where the limits are those that are checked in, every
/// piece has one.
fn judge(key: &Key, compared: &[Compared], checked_in: bool) -> bool {
    say(&table(compared));
    let names = |wanted: Verdict| -> Vec<&str> {
        compared.iter().filter(|one| one.verdict == wanted).map(|one| one.name.as_str()).collect()
    };
    let (risen, fallen) = (names(Verdict::Risen), names(Verdict::Fallen));
    let unmatched = if checked_in { [names(Verdict::NoLimit), names(Verdict::NotCounted)].concat() } else { vec![] };
    if !risen.is_empty() {
        println!("FAIL: more than 1 % above the limit: {}", risen.join(", "));
        println!("worth it? cargo run -p costs -- update --reason \"why\", and the reason in the commit");
    }
    if !unmatched.is_empty() {
        println!("FAIL: counted without a limit, or a limit without a count: {}", unmatched.join(", "));
    }
    if !fallen.is_empty() && checked_in {
        say(&format!("fallen: {}; cargo run -p costs -- update keeps it that way", fallen.join(", ")));
    }
    say(&key.to_string());
    risen.is_empty() && unmatched.is_empty()
}

fn update(path: &Path, reason: String) -> Result<(), Failure> {
    if reason.trim().is_empty() {
        return Err("--reason is empty: say in one sentence why the limits move".into());
    }
    let key = Key::here()?;
    let places = Places::here();
    let mut limits = Limits::read(path)?;
    let before = limits.of(&key).map(|entry| entry.instructions.clone()).unwrap_or_default();
    let counts = places.count(&places.workspace)?;
    say(&table(&compare(&before, &counts)));
    limits.set(key, reason, counts);
    std::fs::write(path, limits.text())?;
    println!("{} is written; name the reason in the commit", path.display());
    Ok(())
}

/// Lines that tests/all.sh shows though nothing failed.
fn say(text: &str) {
    text.lines().for_each(|line| println!("  │ {line}"));
}
