//! `feeds-replay compare`: are two builds, or two runs, equally fast?
//!
//! Two builds are run in turns, first one and then the other first, each turn a pair: the whole path from the feed's bytes to
//! the strategy's callback, flat out on one core, with nothing between the halves but the ring. Two runs of `sla` are
//! compared slice by slice, by the plan they shared.

use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use clap::Args;
use cli::{eprintln, println};
use protocol::book::BooksConfig;
use publisher::date::session_date;
use publisher::itch::{BinaryFile, FramingOptions, Normaliser, NormaliserOptions};
use publisher::turns::off_core_ns;
use serde::{Deserialize, Serialize};

use crate::backtest::{Backtest, BacktestOptions};
use crate::generate::{GenerateOptions, generate};
use crate::roles::{Failure, GENERATED_DATE};
use crate::sla::outcome::{CaseOutcome, Outcome, Slice};

pub mod pairs;

use pairs::{Compared, Finding, LEAST_PAIRS, Margin, compare};

/// Seed of the bootstrap: the same pairs give the same answer.
const SEED: u64 = 1;

/// What `feeds-replay compare` is told.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  feeds-replay compare ./before/feeds-replay ./after/feeds-replay
      two builds in turns, 30 pairs, flat out on one core
  feeds-replay compare monday/outcome.json tuesday/outcome.json
      two runs of `sla` at the same load, slice by slice

The exit status is 0 if B is the same or faster, 1 if it is slower, 2 if that cannot be told, 3 if there was nothing to \
compare.")]
pub struct CompareArguments {
    /// A build of this program, or the outcome.json of a run.
    pub a: PathBuf,
    /// The other one, of the same kind.
    pub b: PathBuf,
    /// Pairs of runs.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(20..=10_000))]
    pub pairs: u32,
    /// Differences below so many percent count as none.
    #[arg(long, default_value_t = 3.0)]
    pub margin_percent: f64,
    /// Of runs: differences of a latency below so many ns count as none.
    #[arg(long, default_value_t = 10.0)]
    pub margin_ns: f64,
    /// Messages of the generated day that builds are run on.
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(5_000..=50_000_000))]
    pub messages: u64,
    /// The core that builds run on. Left out: the last one that may be used.
    #[arg(long)]
    pub core: Option<usize>,
    /// Give B so many percent more work: to see whether it is found.
    #[arg(long, default_value_t = 0.0, hide = true)]
    pub more_work_percent: f64,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

/// What one run of a build is told.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct FlatOut {
    messages: u64,
    core: usize,
    /// Work beside each message, in parts of what a message takes: for trying whether a comparison finds it.
    #[serde(default)]
    more_work: f64,
}

/// How many times a run goes over its day; the fastest time counts.
const ROUNDS: usize = 8;

/// Time on the core: what has passed, less what the scheduler let this thread wait. Neighbours on the core make a build no
/// slower.
struct OnCore {
    began: Instant,
    waited_ns: u64,
}

impl OnCore {
    fn begin() -> OnCore {
        OnCore { waited_ns: off_core_ns().unwrap_or(0), began: Instant::now() }
    }

    fn elapsed_ns(&self) -> f64 {
        let passed = self.began.elapsed().as_nanos() as f64;
        passed - off_core_ns().unwrap_or(0).saturating_sub(self.waited_ns) as f64
    }
}

/// One run of a build: prints ns for each message, the fastest of a few rounds.
pub(crate) fn flat_out(spec: &str) -> Result<(), Failure> {
    let spec: FlatOut = serde_json::from_str(spec)?;
    publisher::pin::pin(spec.core)?;
    let mut day = Vec::new();
    let options = GenerateOptions { messages: spec.messages, symbols: 100, ..GenerateOptions::default() };
    generate(&options, &mut day)?;
    let date = session_date(Some(GENERATED_DATE), None, Path::new("generated"))?;
    let books = BooksConfig { instruments: 128, orders: 1 << 17, levels: 1 << 16 };
    let mut fastest = f64::INFINITY;
    for _ in 0..ROUNDS {
        let path = Path::new("the generated day");
        let source = BinaryFile::from_reader(Cursor::new(&day[..]), path, FramingOptions::default());
        let venue = Normaliser::new(NormaliserOptions::default(), date);
        let mut backtest = Backtest::over(source, venue, BacktestOptions { books, ..BacktestOptions::default() });
        let on_core = OnCore::begin();
        while backtest.step(&mut ())? {}
        let took = on_core.elapsed_ns();
        if spec.more_work > 0.0 {
            while on_core.elapsed_ns() < took * (1.0 + spec.more_work) {
                std::hint::spin_loop();
            }
        }
        fastest = fastest.min(on_core.elapsed_ns() / backtest.messages() as f64);
    }
    crate::roles::say(&fastest)
}

/// Compares, and prints what was found.
///
/// # Errors
/// There is nothing to compare.
pub fn run(arguments: &CompareArguments, stop: &AtomicBool) -> Result<Finding, Box<dyn std::error::Error>> {
    let margin = Margin { part: arguments.margin_percent / 100.0, ns: arguments.margin_ns };
    let is_outcome = |path: &Path| path.extension().is_some_and(|extension| extension == "json");
    let found = match (is_outcome(&arguments.a), is_outcome(&arguments.b)) {
        (true, true) => runs(&read(&arguments.a)?, &read(&arguments.b)?, margin)?,
        (false, false) => vec![builds(arguments, margin, stop)?],
        _ => return Err("give two builds of this program, or two files outcome.json of `sla`".into()),
    };
    let worst = |finding: Finding| found.iter().any(|compared| compared.finding == finding);
    let finding = if worst(Finding::Slower) {
        Finding::Slower
    } else if worst(Finding::Undecided) {
        Finding::Undecided
    } else if worst(Finding::Same) {
        Finding::Same
    } else {
        Finding::Faster
    };
    if arguments.json {
        println!("{}", serde_json::json!({ "finding": finding, "compared": found }));
    } else {
        found.iter().for_each(|compared| println!("{}", line(compared)));
        println!("{}", finding.name());
    }
    Ok(finding)
}

fn line(compared: &Compared) -> String {
    let percent = |part: f64| part * 100.0;
    format!(
        "{}: {}: B takes {:+.1} % (90 % within {:+.1} to {:+.1}, 99 % within {:+.1} to {:+.1}); A {:.1} ns, B {:.1} ns; {} pairs \
         in blocks of {}; margin {:.1} %",
        compared.what,
        compared.finding.name(),
        percent(compared.difference),
        percent(compared.within_90.0),
        percent(compared.within_90.1),
        percent(compared.within_99.0),
        percent(compared.within_99.1),
        compared.a_ns,
        compared.b_ns,
        compared.pairs,
        compared.block,
        percent(compared.margin)
    )
}

fn read(path: &Path) -> Result<Outcome, Box<dyn std::error::Error>> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_str(&text)
        .map_err(|error| format!("{}: no outcome of `sla` of this version: {error}", path.display()).into())
}

fn builds(
    arguments: &CompareArguments,
    margin: Margin,
    stop: &AtomicBool,
) -> Result<Compared, Box<dyn std::error::Error>> {
    let core = match arguments.core {
        Some(core) => core,
        None => *publisher::pin::usable_cores().last().ok_or("no core may be used")?,
    };
    let spec = |more_work| serde_json::to_string(&FlatOut { messages: arguments.messages, core, more_work });
    let (spec_a, spec_b) = (spec(0.0)?, spec(arguments.more_work_percent / 100.0)?);
    let mut taken = Vec::with_capacity(arguments.pairs as usize);
    for pair in 0..arguments.pairs {
        // Relaxed: the flag carries nothing but itself.
        if stop.load(Ordering::Relaxed) {
            eprintln!("stopped after {pair} pairs");
            break;
        }
        // In turns, so that what the first of a pair leaves behind meets both.
        let (a, b) = if pair % 2 == 0 {
            let a = one(&arguments.a, &spec_a)?;
            (a, one(&arguments.b, &spec_b)?)
        } else {
            let b = one(&arguments.b, &spec_b)?;
            (one(&arguments.a, &spec_a)?, b)
        };
        taken.push((a, b));
    }
    let what = "a message, flat out, from the feed's bytes to the callback";
    // A mean over many messages is known far better than one latency: here only the part counts.
    compare(what, &taken, Margin { ns: 0.0, ..margin }, SEED)
        .ok_or_else(|| format!("fewer than {LEAST_PAIRS} pairs say nothing").into())
}

/// ns a message of one run of a build.
fn one(program: &Path, spec: &str) -> Result<f64, Box<dyn std::error::Error>> {
    let output = Command::new(program)
        .args(["role", "flat-out", spec])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("{}: {error}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    match (output.status.success(), text.trim().parse()) {
        (true, Ok(ns)) => Ok(ns),
        _ => Err(format!("{} is no build that can be compared: it said {:?}", program.display(), text.trim()).into()),
    }
}

/// Two runs at the same load, slice by slice.
fn runs(a: &Outcome, b: &Outcome, margin: Margin) -> Result<Vec<Compared>, Box<dyn std::error::Error>> {
    let mut found = Vec::new();
    for case in &a.cases {
        let Some(other) = b.cases.iter().find(|other| other.case.name == case.case.name) else { continue };
        let shared = (&case.case.pace, &case.case.choice, case.case.transport, case.case.subscribers);
        if shared != (&other.case.pace, &other.case.choice, other.case.transport, other.case.subscribers)
            || a.disclosure.captures != b.disclosure.captures
        {
            return Err(format!("case {}: the runs differ in load, capture or transport", case.case.name).into());
        }
        type Of = fn(&Slice) -> u64;
        let quantities: [(&str, Of); 2] = [("p50", |slice| slice.p50_ns), ("p99", |slice| slice.p99_ns)];
        for (name, of) in quantities {
            let pairs = pairs_of(case, other, of);
            let what = format!("{}, {name} of slices of 100 ms", case.case.name);
            found.extend(compare(&what, &pairs, margin, SEED));
        }
    }
    if found.is_empty() {
        return Err(format!("the runs have no case with {LEAST_PAIRS} slices in common").into());
    }
    Ok(found)
}

fn pairs_of(a: &CaseOutcome, b: &CaseOutcome, of: fn(&Slice) -> u64) -> Vec<(f64, f64)> {
    let other = |at_ns| b.slices.iter().find(|slice| slice.at_ns == at_ns);
    a.slices.iter().filter_map(|slice| Some((of(slice) as f64, of(other(slice.at_ns)?) as f64))).collect()
}
