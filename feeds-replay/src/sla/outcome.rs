//! What a run came to: the numbers of the text, the JSON and the page, and nothing that is not printed there.
//!
//! These types are the documented schema of the JSON. Times are in ns unless a name says otherwise; percentiles are in
//! percent; counts are of lines unless a name says otherwise.

use serde::{Deserialize, Serialize};

use super::file::{Case, SlaFile};
use super::ramp::Ramp;
use super::verdict::{Evidence, Judgement, Verdict};

/// The schema's name and number; it changes when a field changes its meaning or goes.
pub const SCHEMA: &str = "bookcast-sla/1";

/// Everything that one command found.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// [`SCHEMA`].
    pub schema: String,
    /// The SLA's name.
    pub name: String,
    /// BROKEN if a case is, else INVALID if one is, else MET.
    pub verdict: Verdict,
    /// Where and how it was taken.
    pub disclosure: Disclosure,
    /// Case by case, in the file's order. Of a ramp, the run at the highest load that held, or the last one.
    pub cases: Vec<CaseOutcome>,
    /// With `--ramp`: the search for the highest load, case by case.
    #[serde(default)]
    pub ramps: Vec<Ramp>,
}

impl Outcome {
    /// Of cases that were run, in order.
    pub fn new(file: &SlaFile, disclosure: Disclosure, cases: Vec<CaseOutcome>) -> Outcome {
        // BROKEN is the highest, MET the lowest; of no case at all nothing is said.
        let verdict = cases.iter().map(|case| case.judgement.verdict).max().unwrap_or(Verdict::Invalid);
        // A case that was left out for a stop has no verdict, so neither has the whole.
        let verdict = if cases.len() < file.cases.len() { verdict.max(Verdict::Invalid) } else { verdict };
        Outcome { schema: SCHEMA.into(), name: file.name.clone(), verdict, disclosure, cases, ramps: Vec::new() }
    }
}

/// Where and how numbers were taken.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Disclosure {
    /// The command line.
    pub command: String,
    /// The captures, and the SHA-256 of each file, in hex; a generated day has its parameters and none.
    pub captures: Vec<(String, String)>,
    /// The processor, as it names itself.
    pub processor: String,
    /// Whether a hypervisor is below.
    pub is_virtual: bool,
    /// The kernel's release.
    pub kernel: String,
    /// The kernel's command line settings on isolation (isolcpus, nohz_full, rcu_nocbs), or "none".
    pub isolation: String,
    /// The frequency governor of the cores, where the kernel says.
    pub governor: String,
    /// Cores that could be used.
    pub cores: Vec<usize>,
    /// The load average over a minute, at the start.
    pub load: f64,
    /// What the clock reads.
    pub clock: String,
    /// Version, profile and features of this build.
    pub build: String,
    /// When the command began, UTC.
    pub began: String,
}

/// One case.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CaseOutcome {
    /// What was asked.
    pub case: Case,
    /// How messages were handed over, in words.
    pub pace: String,
    /// The verdict and its reasons.
    pub judgement: Judgement,
    /// What it was judged by.
    pub evidence: Evidence,
    /// The latencies; the first is the one that was judged.
    pub distributions: Vec<Distribution>,
    /// Where the time went.
    pub stages: Option<Stages>,
    /// The worst records, at least 10 ms between one's arrival and the next one's due time.
    pub worst: Vec<Outlier>,
    /// What was replayed.
    pub load: LoadProfile,
    /// What the machine did to each thread.
    pub threads: Vec<ThreadGaps>,
    /// The judged latencies by slice of 100 ms.
    pub slices: Vec<Slice>,
    /// What measuring cost.
    pub measuring: Measuring,
    /// Cores of the publisher and of the subscribers; empty: not pinned.
    pub placement: Vec<usize>,
    /// Process ids, the publisher's first.
    pub pids: Vec<u32>,
    /// The feed's date, in words.
    pub date: String,
    /// What else is worth knowing.
    pub notes: Vec<String>,
}

/// One distribution of latencies.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Distribution {
    /// What is measured, in words.
    pub what: String,
    /// Whose: "worst of all", or "subscriber 1".
    pub whose: String,
    /// Samples.
    pub samples: u64,
    /// Mean.
    pub mean_ns: f64,
    /// Median.
    pub p50_ns: u64,
    /// 90 of 100.
    pub p90_ns: u64,
    /// 99 of 100.
    pub p99_ns: u64,
    /// 999 of 1,000.
    pub p999_ns: u64,
    /// 9,999 of 10,000.
    pub p9999_ns: u64,
    /// The highest.
    pub max_ns: u64,
    /// Percentile and latency, ascending, for a plot.
    pub curve: Vec<(f64, u64)>,
}

/// Where the time went, of the messages that were stepped.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Stages {
    /// Messages stepped (one in 64) and met on both sides.
    pub messages: u64,
    /// The stages' names, in order.
    pub names: Vec<String>,
    /// Mean time in each for the messages around the median.
    pub p50_ns: Vec<f64>,
    /// How many those are.
    pub p50_messages: u64,
    /// Mean time in each for the messages around the 99.9th percentile.
    pub p999_ns: Vec<f64>,
    /// How many those are.
    pub p999_messages: u64,
}

/// A record that was among the worst.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Outlier {
    /// When it was due, ns from the start of the run.
    pub at_ns: u64,
    /// Its latency as judged.
    pub latency_ns: u64,
    /// Its instrument.
    pub symbol: String,
    /// Its sequence number.
    pub sequence: u64,
    /// Which subscriber saw it so late, from 1.
    pub subscriber: usize,
    /// From due to actual hand-over.
    pub lag_ns: Option<u64>,
    /// From actual hand-over to the callback.
    pub from_actual_ns: Option<u64>,
    /// From the callback to the end of the event.
    pub event_ns: Option<u64>,
    /// Its time in each stage, if it was stepped.
    pub stages_ns: Option<Vec<u64>>,
    /// Records due within the 100 us before it and up to it, itself included.
    pub burst: u64,
    /// Whose doing it was.
    pub cause: Cause,
    /// In words, with numbers.
    pub because: String,
}

/// Whose doing a latency was.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// A counter shows that the machine had the core.
    Machine,
    /// A thread of ours was away, and no counter shows the machine.
    Own,
    /// Many records were due at once.
    Burst,
    /// Nothing of these was seen.
    Unknown,
}

impl Cause {
    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Cause::Machine => "the machine",
            Cause::Own => "own code",
            Cause::Burst => "burst",
            Cause::Unknown => "not seen",
        }
    }
}

/// What was replayed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LoadProfile {
    /// Messages handed over.
    pub messages: u64,
    /// Lines published.
    pub lines: u64,
    /// Events that a subscriber saw complete.
    pub events: u64,
    /// Records a second, over the whole.
    pub mean_per_s: f64,
    /// The most records due within 1 ms.
    pub peak_per_ms: u64,
    /// Over time, in equal parts: start in ns, mean records a ms, most records in one ms.
    pub parts: Vec<(u64, f64, u64)>,
    /// How many milliseconds had 0, 1, 2-3, 4-7, … records due: the lowest of each class, and how many.
    pub milliseconds: Vec<(u64, u64)>,
    /// The sender's lag: percentile and ns, and its highest.
    pub lag_ns: Vec<(f64, u64)>,
    /// See `lag_ns`.
    pub lag_max_ns: u64,
}

/// What the machine did to a thread.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ThreadGaps {
    /// Whose loop.
    pub thread: String,
    /// Turns that took long: 20 us idle, or 50 us with work.
    pub gaps: u64,
    /// The longest.
    pub longest_ns: u64,
    /// Time in them that counters show to be the machine's.
    pub machine_ns: u64,
    /// Time in them that no counter shows to be the machine's.
    pub own_ns: u64,
    /// Times that the thread was put on a core again.
    pub switches: u64,
    /// Page faults.
    pub faults: u64,
    /// Ticks of 10 ms that the hypervisor withheld.
    pub steal_ticks: u64,
    /// Jitter at each percentile of the limits.
    pub jitter_ns: Vec<(f64, u64)>,
    /// How long the scheduler kept it waiting, over the whole run.
    pub off_core_ns: u64,
    /// Gaps for which there was no room.
    pub unkept: u64,
}

/// 100 ms of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Slice {
    /// Its start, ns from the start of the run.
    pub at_ns: u64,
    /// Samples.
    pub samples: u64,
    /// Median.
    pub p50_ns: u64,
    /// 99 of 100.
    pub p99_ns: u64,
    /// 999 of 1,000.
    pub p999_ns: u64,
}

/// What measuring a line cost in this run.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Measuring {
    /// Readings of the clock for each line, and for the end of its event.
    pub clock_reads: u32,
    /// One reading, median.
    pub clock_ns: f64,
    /// Everything else, median.
    pub other_ns: f64,
}
