//! The `feeds-replay` command.

#![forbid(unsafe_code)]
// Those of the standard library panic where nobody reads any more; those of `cli` do not.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

use std::io::{IsTerminal, Write};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use cli::{eprintln, println};
use feeds_replay::book::command::BookArguments;
use feeds_replay::check::command::{self as check_command, CheckArguments};
use feeds_replay::compare::{self, CompareArguments};
use feeds_replay::feed_arguments::FeedArguments;
use feeds_replay::generate::command::GenerateArguments;
use feeds_replay::inspect::command::{self as inspect_command, InspectArguments};
use feeds_replay::ping::{self, PingArguments};
use feeds_replay::record::command::RecordArguments;
use feeds_replay::report::Summary;
use feeds_replay::run::{Watcher, run};
use feeds_replay::sla::command::{self as sla_command, SlaArguments};
use feeds_replay::spec::{Feed, RdmaSpec, Spec, Transport};
use feeds_replay::verdict::Limit;
use publisher::open::open_feeds;
use publisher::pace::Pace;
use transport::clock::Clock;

/// Replays market-data feeds through the real publisher and subscriber, and measures tail latencies.
#[derive(Parser)]
#[command(
    version,
    about,
    after_help = "\
Examples:
  feeds-replay demo
      a generated day over shared memory, then over UDP multicast
  feeds-replay replay day.itch --date 2019-12-30 --transport both
      a capture as it was, over both
  feeds-replay replay 12302019.NASDAQ_ITCH50.gz --rate 100000
      at 100,000 messages a second; the date is in the file's name
  feeds-replay replay 12302019.NASDAQ_ITCH50.gz --speed max
      flat out
  feeds-replay inspect 12302019.NASDAQ_ITCH50.gz
      what is in a capture, and what is off in it
  feeds-replay replay day.itch --transport rdma --address 10.0.0.1 --peer-address 10.0.0.2
      by RDMA from one port of this host to another: datagrams and writes into the subscriber's ring at once
  feeds-replay generate day.itch --messages 10000000 --symbols 500
      a day to try things on, for whoever has no capture
  feeds-replay book 12302019.NASDAQ_ITCH50.gz --symbol AAPL --at 09:30:00
      a book as it was at a moment
  feeds-replay check publisher.log subscriber.log
      whether what was published came, in order, exactly once or named
  feeds-replay record morning.pcapng.gz -o morning.dbn.zst
      the normalised stream as DBN
  feeds-replay sla 12302019.NASDAQ_ITCH50.gz --sla sla.toml --out report
      whether a latency SLA is kept, as a page to send on
  feeds-replay ping --transport shm
      one update there and back at a time, to set beside perftest

Every run uses one publishing and one subscribing process. The exit status is 0 if books agree and every \
line published was delivered or named as lost, 1 if not, 2 if the command line is wrong."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Replay a generated market day over shared memory and over UDP multicast, and show the tail latencies.
    Demo(Demo),
    /// Replay a capture.
    Replay(Replay),
    /// Say what is in a capture, and what is off in it.
    Inspect(InspectArguments),
    /// Write a generated market day as an ITCH capture.
    Generate(GenerateArguments),
    /// Show a book as it was at a moment, or where two captures' books part.
    Book(BookArguments),
    /// Check the logs of a channel's participants: in order, exactly once or named, and the same for all.
    Check(CheckArguments),
    /// Write the normalised stream of a capture, or of a running publisher, as DBN.
    Record(RecordArguments),
    /// Send one update at a time there and back between two processes, and show the round trip's times.
    Ping(PingArguments),
    /// Say whether this build, on this machine, keeps a latency SLA; and if not, where the time went.
    Sla(SlaArguments),
    /// Say whether two builds, or two runs, are equally fast.
    Compare(CompareArguments),
    #[command(flatten)]
    Manual(cli::Manual),
    /// What the processes of a run are started with.
    #[command(hide = true)]
    Role {
        /// publisher, subscriber or echo
        role: String,
        /// JSON
        spec: String,
    },
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  feeds-replay demo
  feeds-replay demo --seconds 60 --rate 200000 --symbols 500
  feeds-replay demo --json | jq '.transports.shm.latency_from_intended_ns.p99'")]
struct Demo {
    /// Seconds per transport.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Messages a second, on average; they come in bursts, as on a real venue.
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1_000..=1_000_000))]
    rate: u64,
    /// Securities.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(5..=8_000))]
    symbols: u16,
    /// The same seed gives the same day.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  feeds-replay replay 12302019.NASDAQ_ITCH50.gz
      as it was captured, over shared memory
  feeds-replay replay day.itch --date 2019-12-30 --speed 10 --transport both
      ten times as fast, over shared memory and then over UDP multicast
  feeds-replay replay day.itch --date none --rate 100000 --limit-us 200
      evenly spaced, with a stricter limit; times are times of day
  feeds-replay replay day.itch --date none --speed max --json
      flat out: throughput and losses, and no claim of latency")]
struct Replay {
    /// The capture: ITCH 5.0 as BinaryFILE, or as MoldUDP64 in pcap or pcapng, or DBN; plain, gzip or zstd. Several are replayed one
    /// after the other.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    feed: FeedArguments,
    /// Which way the lines go.
    #[arg(long, value_enum, default_value_t = Ways::Shm)]
    transport: Ways,
    #[command(flatten)]
    rdma: RdmaPorts,
    /// As captured, that many times as fast; or 'max' for flat out, which claims no latency.
    #[arg(long, default_value = "1", conflicts_with = "rate")]
    speed: String,
    /// Evenly spaced, that many messages a second.
    #[arg(long)]
    rate: Option<f64>,
    /// Build books from increments when the capture starts in mid-day; they are Suspect.
    #[arg(long)]
    natural: bool,
    #[command(flatten)]
    common: Common,
}

/// For --transport rdma-ud, rdma-rc and rdma; they need a build with the feature rdma.
#[derive(Args)]
struct RdmaPorts {
    /// The IPv4 address of the RDMA port that the publisher sends from.
    #[arg(long, value_name = "ADDRESS")]
    address: Option<Ipv4Addr>,
    /// The IPv4 address of the RDMA port that the subscriber receives on; left out: the same.
    #[arg(long, value_name = "ADDRESS", requires = "address")]
    peer_address: Option<Ipv4Addr>,
    /// The publisher's RDMA device, where several have the address.
    #[arg(long, value_name = "NAME", requires = "address")]
    device: Option<String>,
    /// The subscriber's RDMA device.
    #[arg(long, value_name = "NAME", requires = "address")]
    peer_device: Option<String>,
}

impl RdmaPorts {
    /// What the run needs of them.
    fn spec(&self, ways: Ways) -> Result<Option<RdmaSpec>, Failure> {
        if !ways.list().iter().any(|transport| transport.is_rdma()) {
            return match self.address {
                Some(address) => {
                    Err(format!("--address {address} is for --transport rdma-ud, rdma-rc and rdma").into())
                }
                None => Ok(None),
            };
        }
        if !cfg!(feature = "rdma") {
            return Err(transport::NO_RDMA.into());
        }
        let Some(address) = self.address else {
            return Err("give the IPv4 address of an RDMA port with --address; `publisher devices` lists them".into());
        };
        Ok(Some(RdmaSpec {
            address,
            device: self.device.clone(),
            peer_address: self.peer_address.unwrap_or(address),
            peer_device: self.peer_device.clone(),
        }))
    }
}

#[derive(Args)]
struct Common {
    /// The limit for p99.9 of the latency from intended hand-over, in microseconds.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=60_000_000))]
    limit_us: u64,
    /// Lines in the publisher's ring, a power of two.
    #[arg(long, default_value_t = 1 << 18)]
    ring_lines: usize,
    /// Have both processes write down what they publish and are given, for 'feeds-replay check', into this folder. That costs
    /// some of what is measured.
    #[arg(long, value_name = "FOLDER")]
    log: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Ways {
    /// Shared memory.
    Shm,
    /// UDP multicast on loopback.
    Udp,
    /// Shared memory, then UDP multicast.
    Both,
    /// RDMA datagrams to a multicast group.
    RdmaUd,
    /// RDMA writes into the subscriber's ring.
    RdmaRc,
    /// Both of these at once: the first copy of each line wins.
    Rdma,
}

impl Ways {
    fn list(self) -> &'static [Transport] {
        match self {
            Ways::Shm => &[Transport::Shm],
            Ways::Udp => &[Transport::Udp],
            Ways::Both => &[Transport::Shm, Transport::Udp],
            Ways::RdmaUd => &[Transport::RdmaUd],
            Ways::RdmaRc => &[Transport::RdmaRc],
            Ways::Rdma => &[Transport::Rdma],
        }
    }
}

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // There a status of 2 is a verdict; a command line that is wrong is an error.
            let is_sla = std::env::args().nth(1).is_some_and(|command| command == "sla" || command == "compare");
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { if is_sla { 3 } else { 2 } } else { 0 });
        }
    };
    let outcome = match arguments.command {
        Command::Demo(demo) => run_demo(&demo),
        Command::Replay(replay) => run_replay(replay),
        Command::Inspect(inspect) => stop_flag().and_then(|stop| inspect_command::run(&inspect, &stop)),
        Command::Generate(generate) => {
            stop_flag().and_then(|stop| feeds_replay::generate::command::run(&generate, &stop).map(|()| true))
        }
        Command::Book(book) => feeds_replay::book::command::run(&book),
        Command::Check(arguments) => check_command::run(&arguments),
        Command::Record(record) => stop_flag().and_then(|stop| feeds_replay::record::command::run(&record, &stop)),
        Command::Ping(arguments) => run_ping(&arguments),
        Command::Sla(arguments) => {
            let verdict = stop_flag().and_then(|stop| sla_command::run(&arguments, &stop));
            return status(verdict.map(|verdict| verdict.exit_code()));
        }
        Command::Compare(arguments) => {
            let finding = stop_flag().and_then(|stop| compare::run(&arguments, &stop));
            return status(finding.map(|finding| finding.exit_code()));
        }
        Command::Manual(manual) => {
            manual.print(Arguments::command(), &mut std::io::stdout()).map(|()| true).map_err(Into::into)
        }
        Command::Role { role, spec } => {
            return if feeds_replay::roles::run(&role, &spec) { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
    };
    match outcome {
        Ok(sound) if sound => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("feeds-replay: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run_demo(demo: &Demo) -> Result<bool, Failure> {
    let feed = Feed::Generated {
        seed: demo.seed,
        symbols: demo.symbols,
        messages: demo.seconds * demo.rate,
        span_ns: demo.seconds * 1_000_000_000,
    };
    let total = demo.seconds * demo.rate;
    if !demo.common.json {
        println!(
            "A generated market day of {total} messages on {} symbols, replayed in {} s: through the publisher, over shared \
             memory and then UDP multicast, into a subscriber. Separate processes.",
            demo.symbols, demo.seconds
        );
    }
    let books = (usize::from(demo.symbols) + 16, 1 << 17, 1 << 16);
    run_all(feed, Pace::Speed(1.0), Ways::Both, None, books, Some(total), &demo.common)
}

fn run_replay(replay: Replay) -> Result<bool, Failure> {
    let pace = match (replay.rate, replay.speed.as_str()) {
        (Some(rate), _) => Pace::Rate(rate),
        (None, "max") => Pace::Max,
        (None, number) => Pace::Speed(
            number.parse().map_err(|_| format!("--speed {number}: give a number such as 1 or 0.5, or 'max'"))?,
        ),
    }
    .checked()?;
    let rdma = replay.rdma.spec(replay.transport)?;
    // What is wrong with the file is said before anything is started.
    let opened = open_feeds(&replay.files, &replay.feed.options())?;
    let filter = replay.feed.only.filter(&opened.session_date(replay.feed.date.as_deref())?)?;
    if matches!(pace, Pace::Rate(_)) && !opened.counts_messages() {
        return Err(
            "--rate needs a feed whose records tell their place in it, and the sequence in DBN is the venue's own; \
                    give --speed"
                .into(),
        );
    }
    drop(opened);
    let mut bytes = 0;
    for file in &replay.files {
        bytes += std::fs::metadata(file)?.len();
    }
    let mut files = replay.files;
    let path = files.remove(0);
    let books = if bytes > 64 << 20 { (1 << 14, 1 << 21, 1 << 19) } else { (1 << 10, 1 << 18, 1 << 16) };
    let feed = Feed::File {
        path,
        more: files,
        kind: replay.feed.feed.map(|kind| kind.name().to_owned()),
        session: replay.feed.session,
        date: replay.feed.date,
        lenient: replay.feed.lenient,
        natural: replay.natural,
        full: replay.feed.full,
        filter,
    };
    run_all(feed, pace, replay.transport, rdma, books, None, &replay.common)
}

fn run_ping(arguments: &PingArguments) -> Result<bool, Failure> {
    Ok(ping::command(arguments, &stop_flag()?)?)
}

/// The exit status of a command whose statuses 0, 1 and 2 are verdicts: an error is 3.
fn status(verdict: Result<u8, Failure>) -> ExitCode {
    match verdict {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("feeds-replay: {error}");
            ExitCode::from(3)
        }
    }
}

/// A flag that the first Ctrl-C (or SIGTERM) sets; the second ends this program at once.
fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

fn run_all(
    feed: Feed,
    pace: Pace,
    ways: Ways,
    rdma: Option<RdmaSpec>,
    books: (usize, usize, usize),
    total: Option<u64>,
    common: &Common,
) -> Result<bool, Failure> {
    if !common.ring_lines.is_power_of_two() || common.ring_lines < 2 {
        return Err(format!("--ring-lines {}: give a power of two, such as 262144", common.ring_lines).into());
    }
    if let Some(folder) = &common.log {
        std::fs::create_dir_all(folder).map_err(|cause| format!("{}: {cause}", folder.display()))?;
    }
    let stop = stop_flag()?;
    let clock = Clock::calibrate();
    let cores = publisher::pin::usable_cores();
    let cores = match cores[..] {
        [.., publisher, subscriber] => Some((publisher, subscriber)),
        _ => None,
    };
    let pid = std::process::id();
    let mut shown = Shown { quiet: common.json, total, live: std::io::stderr().is_terminal() };
    let mut reports = Vec::new();
    for transport in ways.list() {
        if stop.load(Ordering::Relaxed) {
            eprintln!("{}: not run, because a stop was asked for", transport.name());
            continue;
        }
        let [high, low] = ((pid % 65_536) as u16).to_be_bytes();
        let spec = Spec {
            transport: *transport,
            feed: feed.clone(),
            pace,
            channel: format!("replay-{pid}-{}", transport.name()),
            ring_lines: common.ring_lines,
            group: [239, 255, high, low].into(),
            port: 20_000 + (pid % 40_000) as u16,
            rdma: rdma.clone(),
            control: None,
            log: common.log.clone(),
            clock: clock.to_parts().to_string(),
            cores,
            books,
        };
        reports.push(run(&spec, clock, &stop, &mut shown)?);
        shown.end_line();
    }
    let summary = Summary::new(reports, Limit { p999_ns: common.limit_us * 1000 });
    if common.json {
        println!("{}", summary.json());
    } else {
        println!("\n{}", summary.text());
    }
    Ok(summary.is_sound())
}

/// Shows how far a run is, on standard error.
struct Shown {
    quiet: bool,
    total: Option<u64>,
    /// Standard error is a terminal: one line is written over and over.
    live: bool,
}

impl Shown {
    fn end_line(&self) {
        if self.live && !self.quiet {
            eprintln!();
        }
    }
}

impl Watcher for Shown {
    fn on_ready(&mut self, spec: &Spec, publisher: u32, subscriber: u32) {
        if !self.quiet {
            println!("{}: publisher is pid {publisher}, subscriber is pid {subscriber}", spec.transport.name());
        }
    }

    fn on_progress(&mut self, spec: &Spec, messages: u64, elapsed: Duration) {
        if self.quiet || !(self.live || elapsed.as_millis() % 2_000 < 1_000) {
            return;
        }
        let share = self.total.map_or(String::new(), |total| format!(" of {total}"));
        let text =
            format!("{}: {messages} messages{share} after {:.1} s", spec.transport.name(), elapsed.as_secs_f64());
        if self.live {
            // Whoever does not look any more does not stop the run.
            let _ = write!(std::io::stderr(), "\r{text:<70}");
        } else {
            eprintln!("{text}");
        }
    }
}
