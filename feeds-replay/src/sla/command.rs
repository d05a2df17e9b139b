//! The command `sla`.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use cli::{eprintln, println};
use publisher::detect::FeedKind;
use publisher::filter::Filter;
use publisher::open::{FeedOptions, open_feed};
use publisher::pace::Pace;
use transport::clock::Clock;

use super::analyse::{analyse, judged_latencies};
use super::file::{Case, Choice, SlaFile};
use super::histograms::{hgrm, write_interval_log};
use super::live::Shown;
use super::machine::disclose;
use super::outcome::{CaseOutcome, Outcome};
use super::page::page;
use super::ramp::{Ramp, Step, next, rounds, scaled};
use super::run::{Setup, run_case};
use super::text::text;
use super::verdict::Verdict;
use crate::spec::{Feed, RdmaSpec};

/// What `feeds-replay sla` is told.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  feeds-replay sla 12302019.NASDAQ_ITCH50.gz --sla sla.toml
      does this build, on this machine, keep what the file promises?
  feeds-replay sla morning.pcap.gz --sla sla.toml --out report
      writes report/report.html, report/outcome.json, and an interval log and a .hgrm for each case
  feeds-replay sla generated --sla sla.toml --seconds 10 --rate 50000
      the same on a generated day, for whoever has no capture

An SLA file:
  name = \"books for the desk\"
  [[case]]
  transport = \"shm\"                  # shm, udp, rdma-ud, rdma-rc, rdma
  subscribers = 1
  measure = \"visible\"                # or complete: the event's end, the book changed
  limits = { \"p50\" = \"2us\", \"p99.9\" = \"100us\" }
  gaps_allowed = 0
  load = { shape = \"captured\", speed = 1 }
  # load = { shape = \"rate\", messages_per_second = 100000 }
  # load = { shape = \"bursts\", messages = 100, every = \"1ms\" }
  # load = { shape = \"squeezed\", every = \"100ms\", width = \"10ms\", factor = 8 }
  # capture = { loops = 3, from = \"09:30\", to = \"09:31\", symbols = [\"AAPL\"] }
  # slow_subscriber = { work = \"5us\", stall = \"50ms\", every = \"1s\" }

The exit status is 0 if every limit is met, 1 if one is broken, 2 if the run is invalid and says nothing, 3 if it could \
not be run. Ctrl-C ends it with the report of what was measured.")]
pub struct SlaArguments {
    /// The captures, one after the other: ITCH 5.0 as BinaryFILE, or as MoldUDP64 in pcap or pcapng; or one of DBN; plain or
    /// compressed. Or the word 'generated'.
    #[arg(required = true)]
    pub captures: Vec<PathBuf>,
    /// What is promised.
    #[arg(long)]
    pub sla: PathBuf,
    /// A folder for the page, the JSON and the histograms.
    #[arg(long)]
    pub out: Option<PathBuf>,
    /// Print the outcome as JSON.
    #[arg(long)]
    pub json: bool,
    /// Find the highest load at which every limit still holds: run after run, each case at more or less of its own load.
    #[arg(long)]
    pub ramp: bool,
    /// Only the cases of these names.
    #[arg(long = "case")]
    pub cases: Vec<String>,
    /// What the capture is: itch, mold or dbn. Left out: told by its content.
    #[arg(long, value_name = "KIND")]
    pub feed: Option<FeedKind>,
    /// The session's date, YYYY-MM-DD, or 'none' for times of day. Left out: from the packets' times, else the file's name.
    #[arg(long)]
    pub date: Option<String>,
    /// Which MoldUDP64 session of a packet capture to follow. Left out: the first.
    #[arg(long)]
    pub session: Option<String>,
    /// Take a capture that is cut off for one that ends there.
    #[arg(long)]
    pub lenient: bool,
    /// Build books from increments when the capture (or the window) starts in mid-day; they are Suspect.
    #[arg(long)]
    pub natural: bool,
    /// Carry market participant positions too.
    #[arg(long)]
    pub full: bool,
    /// Lines in the publisher's ring, a power of two.
    #[arg(long, default_value_t = 1 << 18)]
    pub ring_lines: usize,
    /// Of a generated day: seconds.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub seconds: u64,
    /// Of a generated day: messages a second, on average.
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1_000..=1_000_000))]
    pub rate: u64,
    /// Of a generated day: securities.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(5..=8_000))]
    pub symbols: u16,
    /// Of a generated day: its seed.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// For RDMA: the IPv4 address of the port that the publisher sends from.
    #[arg(long, value_name = "ADDRESS")]
    pub address: Option<Ipv4Addr>,
    /// For RDMA: that of the port that the subscriber receives on; left out: the same.
    #[arg(long, value_name = "ADDRESS", requires = "address")]
    pub peer_address: Option<Ipv4Addr>,
    /// Use these cores, publisher first, then the subscribers. Left out: the last ones that may be used.
    #[arg(long, value_delimiter = ',')]
    pub cores: Vec<usize>,
}

type Failure = Box<dyn std::error::Error>;

impl SlaArguments {
    /// What all cases share.
    fn setup(&self, file: &SlaFile) -> Result<Setup, Failure> {
        if !self.ring_lines.is_power_of_two() || self.ring_lines < 2 {
            return Err(format!("--ring-lines {}: give a power of two, such as 262144", self.ring_lines).into());
        }
        for core in &self.cores {
            publisher::pin::check(*core)?;
        }
        let rdma = file.cases.iter().any(|case| case.transport.is_rdma());
        if rdma && !cfg!(feature = "rdma") {
            return Err(transport::NO_RDMA.into());
        }
        let rdma = match (rdma, self.address) {
            (true, None) => return Err("a case is over RDMA: give the IPv4 address of a port with --address".into()),
            (true, Some(address)) => Some(RdmaSpec {
                address,
                device: None,
                peer_address: self.peer_address.unwrap_or(address),
                peer_device: None,
            }),
            (false, _) => None,
        };
        let cores = if self.cores.is_empty() { publisher::pin::usable_cores() } else { self.cores.clone() };
        let setup = |feed, books| Setup { feed, ring_lines: self.ring_lines, books, rdma, cores };
        if self.captures == [Path::new("generated")] && !self.captures[0].exists() {
            let feed = Feed::Generated {
                seed: self.seed,
                symbols: self.symbols,
                messages: self.seconds * self.rate,
                span_ns: self.seconds * 1_000_000_000,
            };
            return Ok(setup(feed, (usize::from(self.symbols) + 16, 1 << 17, 1 << 16)));
        }
        // What is wrong with a file is said before anything is started.
        let options =
            FeedOptions { feed: self.feed, lenient: self.lenient, session: self.session.clone(), preload: None };
        let mut bytes = 0;
        for (at, path) in self.captures.iter().enumerate() {
            let feed = open_feed(path, &options)?;
            if at == 0 {
                feed.session_date(self.date.as_deref())?;
            }
            if !feed.counts_messages() {
                self.check_uncounted(path, file)?;
            }
            bytes += std::fs::metadata(path)?.len();
        }
        let books = if bytes > 64 << 20 { (1 << 14, 1 << 21, 1 << 19) } else { (1 << 10, 1 << 18, 1 << 16) };
        let feed = Feed::File {
            path: self.captures[0].clone(),
            more: self.captures[1..].to_vec(),
            kind: self.feed.map(|kind| kind.name().to_owned()),
            session: self.session.clone(),
            date: self.date.clone(),
            lenient: self.lenient,
            natural: self.natural,
            full: self.full,
            filter: Filter::default(),
        };
        Ok(setup(feed, books))
    }
}

impl SlaArguments {
    /// A feed whose records do not tell their place in it, and whose bytes are not ours to move, is replayed as it is.
    fn check_uncounted(&self, path: &Path, file: &SlaFile) -> Result<(), Failure> {
        let asks = |case: &&Case| {
            matches!(case.pace, Pace::Rate(_) | Pace::Bursts { .. })
                || case.choice != Choice { loops: 1, ..Choice::default() }
        };
        if let Some(case) = file.cases.iter().find(asks) {
            return Err(format!(
                "{}: case {}: rates, bursts, loops and parts of a capture need ITCH, whose records tell their place in the \
                 feed; give shape = \"captured\" or \"squeezed\", and the whole of the capture",
                path.display(),
                case.name
            )
            .into());
        }
        if self.captures.len() > 1 {
            return Err(
                format!("{}: several captures follow one another in ITCH alone; give one", path.display()).into()
            );
        }
        Ok(())
    }
}

/// Runs what the file promises, and prints what came of it.
///
/// # Errors
/// It could not be run: the file, the capture, a process. (What was run before is lost then.)
pub fn run(arguments: &SlaArguments, stop: &AtomicBool) -> Result<Verdict, Failure> {
    let mut file = SlaFile::read(&arguments.sla)?;
    if let Some(unknown) = arguments.cases.iter().find(|name| file.cases.iter().all(|case| case.name != **name)) {
        let names: Vec<&str> = file.cases.iter().map(|case| case.name.as_str()).collect();
        return Err(format!("--case {unknown}: there are {}", names.join(", ")).into());
    }
    file.cases.retain(|case| arguments.cases.is_empty() || arguments.cases.contains(&case.name));
    let setup = arguments.setup(&file)?;
    if let Some(out) = &arguments.out {
        std::fs::create_dir_all(out).map_err(|error| format!("--out {}: {error}", out.display()))?;
    }
    let clock = Clock::calibrate();
    let disclosure = disclose(&setup.feed, clock)?;
    let mut shown = Shown::new(arguments.json, stop);
    let mut cases = Vec::with_capacity(file.cases.len());
    let mut ramps = Vec::new();
    for (at, case) in file.cases.iter().enumerate() {
        // Relaxed: the flag carries nothing but itself.
        if stop.load(Ordering::Relaxed) {
            eprintln!("{}: not run, because a stop was asked for", case.name);
            continue;
        }
        let mut run = |case: &Case| one_case(arguments, &setup, case, at, clock, stop, &mut shown);
        if arguments.ramp {
            let (ramp, outcome) = ramp_up(case, stop, &mut run)?;
            ramps.push(ramp);
            cases.push(outcome);
        } else {
            cases.push(run(case)?);
        }
    }
    let outcome = Outcome { ramps, ..Outcome::new(&file, disclosure, cases) };
    let json = serde_json::to_string_pretty(&outcome)?;
    if let Some(out) = &arguments.out {
        std::fs::write(out.join("outcome.json"), &json)?;
        std::fs::write(out.join("report.html"), page(&outcome))?;
    }
    if arguments.json {
        println!("{json}")
    } else {
        println!("\n{}", text(&outcome))
    }
    Ok(outcome.verdict)
}

/// Searches for the highest load of `case`. Returns the search, and the run at that load; if none held, the last run.
fn ramp_up(
    case: &Case,
    stop: &AtomicBool,
    run: &mut impl FnMut(&Case) -> Result<CaseOutcome, Failure>,
) -> Result<(Ramp, CaseOutcome), Failure> {
    let mut steps: Vec<Step> = Vec::new();
    let mut best: Option<(f64, CaseOutcome)> = None;
    let mut last = None;
    loop {
        let tried: Vec<(f64, bool)> = steps.iter().map(|step| (step.factor, step.verdict == Verdict::Met)).collect();
        // Relaxed: the flag carries nothing but itself.
        let over = stop.load(Ordering::Relaxed) && !steps.is_empty();
        let Some(factor) = next(&tried).filter(|_| !over) else { break };
        let pace = scaled(case.pace, factor).checked()?;
        let choice = Choice { loops: rounds(case.choice.loops, factor), ..case.choice.clone() };
        let outcome = run(&Case { pace, choice, ..case.clone() })?;
        let judgement = &outcome.judgement;
        let because = judgement.broken_because.iter().chain(&judgement.invalid_because).next().cloned();
        eprintln!("{} {pace}: {}", case.name, judgement.verdict.name());
        steps.push(Step { factor, pace: pace.to_string(), verdict: judgement.verdict, because });
        if judgement.verdict == Verdict::Met && best.as_ref().is_none_or(|(known, _)| *known < factor) {
            best = Some((factor, outcome));
        } else {
            last = Some(outcome);
        }
    }
    let ramp = Ramp::new(&case.name, steps);
    let outcome = best.filter(|(factor, _)| ramp.highest == Some(*factor)).map(|(_, outcome)| outcome).or(last);
    Ok((ramp, outcome.ok_or("nothing was run")?))
}

fn one_case(
    arguments: &SlaArguments,
    setup: &Setup,
    case: &Case,
    at: usize,
    clock: Clock,
    stop: &AtomicBool,
    shown: &mut Shown<'_>,
) -> Result<CaseOutcome, Failure> {
    let folder = Scratch::new()?;
    let raw = run_case(setup, case, &folder.0, clock, stop, shown);
    shown.end();
    let raw = raw?;
    if let Some(out) = &arguments.out {
        let latencies = judged_latencies(&raw)?;
        let name = |ending: &str| out.join(format!("case-{}.{ending}", at + 1));
        write_interval_log(&name("hlog"), &latencies, raw.schedule.start_ns, &case.name)?;
        std::fs::write(name("hgrm"), hgrm(&latencies))?;
    }
    Ok(analyse(&raw)?)
}

/// A folder for a run's logs, which goes with this value.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new() -> std::io::Result<Scratch> {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        // Relaxed: only uniqueness matters.
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("feeds-replay-sla-{}-{number}", std::process::id()));
        std::fs::create_dir(&path)?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("feeds-replay: {} could not be removed: {error}", self.0.display());
        }
    }
}
