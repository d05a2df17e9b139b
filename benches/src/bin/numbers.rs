//! `numbers`: measures, and writes README.md's numbers.

#![forbid(unsafe_code)]

use std::error::Error;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use benches::machine::Machine;
use benches::numbers::{Block, Taken, demo, instructions, latency, put, reasons, recovery, throughput};
use clap::{Parser, ValueEnum};
use cli::eprintln;
use costs::key::Key;
use costs::limits::Limits;
use costs::pieces::STEPS;
use jiff::Timestamp;
use serde_json::Value;

/// Runs what measures, and writes README.md's numbers from it, with date and machine.
///
/// Nothing else should run meanwhile. A measurement that calls itself INVALID is not written, unless it is asked for; then
/// it stands there as INVALID.
#[derive(Parser)]
#[command(
    version,
    after_help = "\
Examples:
  cargo run --release -p benches --bin numbers
      all of them: three minutes
  cargo run --release -p benches --bin numbers -- --only instructions
      from benches/costs/LIMITS.toml, without measuring"
)]
struct Options {
    /// Only these; left out: all.
    #[arg(long, value_enum, num_args = 1..)]
    only: Vec<Only>,
    /// How long latencies are measured, in seconds.
    #[arg(long, default_value_t = 16.0)]
    seconds: f64,
    /// Write what calls itself INVALID too.
    #[arg(long)]
    even_invalid: bool,
    /// The file to write to.
    #[arg(long, value_name = "FILE", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md"))]
    readme: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Only {
    Latency,
    Throughput,
    Recovery,
    Instructions,
    Demo,
}

impl Only {
    fn block(self) -> Block {
        match self {
            Only::Latency => Block::Latency,
            Only::Throughput => Block::Throughput,
            Only::Recovery => Block::Recovery,
            Only::Instructions => Block::Instructions,
            Only::Demo => Block::Demo,
        }
    }
}

type Failure = Box<dyn Error>;

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("numbers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Failure> {
    let compiler = Command::new("rustc").arg("-V").output()?.stdout;
    let compiler = String::from_utf8_lossy(&compiler).split(" (").next().unwrap_or("rustc").trim().to_owned();
    let taken = Taken { date: Timestamp::now().strftime("%Y-%m-%d").to_string(), compiler };
    let all: Vec<Block> = match options.only[..] {
        [] => Block::ALL.to_vec(),
        ref only => only.iter().map(|only| only.block()).collect(),
    };
    for block in all {
        eprintln!("{}: measured", block.name());
        let body = match block {
            Block::Latency => {
                let report = json(&[
                    "-p",
                    "benches",
                    "--bin",
                    "hop",
                    "--",
                    "--json",
                    "--seconds",
                    &options.seconds.to_string(),
                ])?;
                believe(&report, options.even_invalid)?;
                latency(&report, &taken)?
            }
            Block::Throughput => {
                let report = json(&["-p", "benches", "--bin", "flow", "--", "--json"])?;
                believe(&report, options.even_invalid)?;
                throughput(&report, &taken)?
            }
            Block::Recovery => {
                let report = json(&["-p", "benches", "--bin", "heal", "--", "--json"])?;
                believe(&report, options.even_invalid)?;
                recovery(&report, &taken)?
            }
            Block::Instructions => counted(&taken)?,
            Block::Demo => {
                let printed = cargo(&["-p", "feeds-replay", "--", "demo"])?;
                demo(&printed, &Machine::here().to_string(), &taken)?
            }
        };
        // Read anew each time: what was written before is kept if a later measurement fails.
        let text = std::fs::read_to_string(&options.readme)?;
        let text = put(&text, block, &body).map_err(|error| format!("{}: {error}", options.readme.display()))?;
        std::fs::write(&options.readme, text)?;
    }
    Ok(())
}

fn believe(report: &Value, even_invalid: bool) -> Result<(), Failure> {
    let reasons = reasons(report);
    if reasons.is_empty() || even_invalid {
        return Ok(());
    }
    Err(format!("INVALID, so nothing is written: {}; --even-invalid writes it as such", reasons.join("; ")).into())
}

/// From the limits that are checked in: they are what was counted.
fn counted(taken: &Taken) -> Result<String, Failure> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/costs/LIMITS.toml");
    let key = Key::here()?;
    let limits = Limits::read(path.as_ref())?;
    let entry =
        limits.of(&key).ok_or("nothing was counted for this compiler and processor: cargo run -p costs -- update")?;
    let counts = entry.instructions.iter().map(|(name, count)| (name.as_str(), *count as f64 / STEPS as f64));
    Ok(instructions(counts, &key.to_string(), taken))
}

fn json(arguments: &[&str]) -> Result<Value, Failure> {
    Ok(serde_json::from_str(&cargo(arguments)?)?)
}

/// Runs one of the project's programs, built for release, and returns what it printed.
fn cargo(arguments: &[&str]) -> Result<String, Failure> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["run", "--release", "--quiet"]).args(arguments).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output()?;
    // A demo that is invalid or unsound ends with an error, and has printed why.
    let text = String::from_utf8(output.stdout)?;
    if text.is_empty() {
        return Err(format!("cargo run {} printed nothing ({})", arguments.join(" "), output.status).into());
    }
    Ok(text)
}
