//! A strategy that runs live and measures its own reaction.
//!
//! ```text
//! cargo run --release -p subscriber --example strategy_skeleton -- CHANNEL [SYMBOL…] [--core N] [--yield] [--print]
//! ```
//!
//! The strategy is in `strategy/imbalance.rs`; feeds-replay's `backtest_skeleton` runs the same type on a capture. Here it
//! gets a desk that takes the time of every decision, twice: since the turn of the loop began in which its line became
//! visible, and since the publisher handed the line over. The first is this program's own; the second holds the way too,
//! and the difference of two clocks.

#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Parser;
use core_affinity::CoreId;
use hdrhistogram::Histogram;
use protocol::book::BooksConfig;
use protocol::time::Nanos;
use subscriber::{Builder, Context};
use transport::clock::{Clock, IdleStrategy};

#[path = "strategy/imbalance.rs"]
mod imbalance;

use imbalance::{Decision, Desk, Imbalance, RATIO};

/// Decides on best bid and offer as they change, and measures how long that took.
#[derive(Parser)]
#[command(after_help = "\
Examples:
  strategy_skeleton itch --core 1
      pinned, spinning: what a strategy with a core of its own does
  strategy_skeleton itch AAPL --yield
      gives the core away when there is nothing to do
  strategy_skeleton itch --yield --print
      writes each decision down; the times then include the writing of the one before

Waits for a publisher that is not there yet. Ends at the end of the stream, or with Ctrl-C.")]
struct Arguments {
    /// The channel, as its publisher calls it.
    channel: String,
    /// Names or patterns; left out: everything.
    symbols: Vec<String>,
    /// Pin this thread to that core.
    #[arg(long)]
    core: Option<usize>,
    /// Give the core away when there is nothing to do, instead of spinning.
    #[arg(long = "yield")]
    yields: bool,
    /// Print each decision.
    #[arg(long)]
    print: bool,
}

/// Where a real strategy would send an order, this one looks at the clock.
struct Stopwatch {
    clock: Clock,
    /// Decision less the beginning of the turn, ns.
    since_visible: Histogram<u64>,
    /// Decision less the publisher's hand-over, ns.
    since_handed_over: Histogram<u64>,
    /// Decisions whose hand-over is not known, or seems to lie in the future.
    without_hand_over: u64,
    before_hand_over: u64,
    print: bool,
}

impl Stopwatch {
    fn new(clock: Clock, print: bool) -> Stopwatch {
        // Up to 1,000 s, three digits; longer ones count as that.
        let histogram = || Histogram::new_with_bounds(1, 1_000_000_000_000, 3).expect("bounds are legal");
        let (since_visible, since_handed_over) = (histogram(), histogram());
        Stopwatch { clock, since_visible, since_handed_over, without_hand_over: 0, before_hand_over: 0, print }
    }
}

impl Desk for Stopwatch {
    #[inline]
    fn on_decision(&mut self, ctx: &Context<'_>, decision: &Decision, handed_over: Option<Nanos>) {
        let now = self.clock.now();
        self.since_visible.saturating_record(now.since(ctx.now()).max(0) as u64);
        match handed_over.map(|handed_over| u64::try_from(now.since(handed_over))) {
            Some(Ok(since)) => self.since_handed_over.saturating_record(since),
            Some(Err(_)) => self.before_hand_over += 1,
            None => self.without_hand_over += 1,
        }
        if self.print {
            println!("{}", decision.show(ctx));
        }
    }
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("strategy_skeleton: {error}");
            ExitCode::FAILURE
        }
    }
}

fn pin(core: usize) -> Result<(), String> {
    let cores: Vec<usize> = core_affinity::get_core_ids().unwrap_or_default().iter().map(|core| core.id).collect();
    if !cores.contains(&core) {
        return Err(format!("--core {core}: this process may use {cores:?}"));
    }
    if core_affinity::set_for_current(CoreId { id: core }) {
        return Ok(());
    }
    Err(format!("--core {core}: the system refused to pin this thread; leave --core out, or ask for the right to"))
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    if let Some(core) = arguments.core {
        pin(core)?;
    }
    let idle = if arguments.yields { IdleStrategy::Yield } else { IdleStrategy::Spin };
    let books = BooksConfig::default();
    let clock = Clock::calibrate();
    let mut subscriber =
        Builder::new(&arguments.channel).symbols(&arguments.symbols).books(books).clock(clock).shared_memory()?;
    let mut strategy = Imbalance::new(Stopwatch::new(clock, arguments.print), books.instruments);

    subscriber.poll(&mut strategy);
    if subscriber.rx().ring().is_none() {
        eprintln!("waiting for a publisher of channel '{}' …", arguments.channel);
    }
    // Relaxed: the flag carries nothing but itself.
    while !subscriber.has_ended() && !stop.load(Ordering::Relaxed) {
        let work = subscriber.poll(&mut strategy);
        idle.idle(work);
    }

    let (counts, digests) = (subscriber.counts(), subscriber.engine().digest_counts());
    println!(
        "{} decisions on {} events of {} lines; {} lines lost in {} gaps; digests: {} agreed, {} disagreed",
        strategy.decisions(),
        subscriber.engine().counts().events,
        counts.delivered,
        counts.lost,
        counts.gaps,
        digests.compared - digests.disagreed,
        digests.disagreed
    );
    println!(
        "a decision: best prices changed, and one side's size is now {RATIO} times the other's, which it was not before"
    );
    show("turn of the loop to decision", &strategy.desk.since_visible);
    show("publisher's hand-over to decision", &strategy.desk.since_handed_over);
    println!(
        "taken with: clock {} (drift since calibration {} ns); {}; {}",
        clock.source(),
        clock.check().drift_ns,
        if arguments.yields { "yielding when idle" } else { "spinning when idle" },
        arguments.core.map_or("not pinned".into(), |core| format!("pinned to core {core}"))
    );
    println!("the publisher's clock was calibrated by itself: the second row contains how far the two are apart");
    let left_out = [
        (strategy.desk.before_hand_over, "decisions that seem to come before their hand-over: the two clocks disagree"),
        (
            strategy.desk.without_hand_over,
            "decisions whose hand-over is not known: no heartbeat has dated the stream yet",
        ),
        (strategy.not_followed(), "events of instruments beyond the strategy's table"),
        (subscriber.engine().books_grown(), "times that the books outgrew their configured size, and allocated"),
    ];
    for (count, what) in left_out.into_iter().filter(|(count, _)| *count > 0) {
        println!("note: {count} {what}");
    }
    Ok(())
}

fn show(what: &str, histogram: &Histogram<u64>) {
    if histogram.is_empty() {
        println!("{what:<34} no sample");
        return;
    }
    let at = |quantile| histogram.value_at_quantile(quantile);
    println!(
        "{what:<34} p50 {:>8} ns  p99 {:>8} ns  p99.9 {:>8} ns  max {:>10} ns  of {}",
        at(0.5),
        at(0.99),
        at(0.999),
        histogram.max(),
        histogram.len()
    );
}
