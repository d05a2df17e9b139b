//! The strategy of `strategy_skeleton`, on a capture: the same type, the same books, no publisher.
//!
//! ```text
//! cargo run --release -p feeds-replay --example backtest_skeleton -- FILE [SYMBOL…] [--date YYYY-MM-DD|none]
//! ```
//!
//! The handler is compiled from the very file that the live program uses, so that what is tested is what runs. What is
//! not the same: time. A backtest tells a strategy each message's own time, and there is no hand-over and no clock to
//! react against. `tests/backtest_strategy.rs` is how such a strategy is unit-tested.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use feeds_replay::backtest::{Backtest, BacktestOptions};
use protocol::book::{BooksConfig, Start};
use protocol::time::Nanos;
use subscriber::{Context, Selection};

#[path = "../../subscriber/examples/strategy/imbalance.rs"]
mod imbalance;

use imbalance::{Decision, Desk, Imbalance, Lean, RATIO};

/// Runs a strategy over a capture.
#[derive(Parser)]
#[command(after_help = "\
Examples:
  backtest_skeleton 12302019.NASDAQ_ITCH50.gz AAPL
      one stock of a day; the date is in the file's name
  backtest_skeleton day.itch --date 2010-12-24 --print
      every stock, with each decision written down
  backtest_skeleton slice.itch --date none --natural
      a capture that starts in mid-day: all books are Suspect, and this strategy decides on Live ones only")]
struct Arguments {
    /// ITCH 5.0 in BinaryFILE framing, plain or gzip.
    file: PathBuf,
    /// Names or patterns; left out: everything.
    symbols: Vec<String>,
    /// The session's date, or 'none' for times of day. Left out: from the file's name.
    #[arg(long)]
    date: Option<String>,
    /// Take a capture that is cut off for one that ends there.
    #[arg(long)]
    lenient: bool,
    /// Build books from increments when the capture starts in mid-day.
    #[arg(long)]
    natural: bool,
    /// Print each decision.
    #[arg(long)]
    print: bool,
}

/// Writes decisions down. A fill model would stand here.
#[derive(Default)]
struct Journal {
    buys: u64,
    sells: u64,
    print: bool,
}

impl Desk for Journal {
    fn on_decision(&mut self, ctx: &Context<'_>, decision: &Decision, _: Option<Nanos>) {
        match decision.lean {
            Lean::Buy => self.buys += 1,
            Lean::Sell => self.sells += 1,
        }
        if self.print {
            println!("{} {}", TimeOfDay(ctx.now()), decision.show(ctx));
        }
    }
}

/// UTC, or the venue's own time of day where the session has no date.
struct TimeOfDay(Nanos);

impl std::fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (seconds, ns) = (self.0.0 / 1_000_000_000 % 86_400, self.0.0 % 1_000_000_000);
        write!(f, "{:02}:{:02}:{:02}.{ns:09}", seconds / 3600, seconds / 60 % 60, seconds % 60)
    }
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("backtest_skeleton: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let options = BacktestOptions {
        date: arguments.date,
        session: None,
        selection: Selection::symbols(&arguments.symbols),
        lenient: arguments.lenient,
        start: if arguments.natural { Start::Natural } else { Start::Strict },
        books: BooksConfig::default(),
    };
    let mut strategy =
        Imbalance::new(Journal { print: arguments.print, ..Journal::default() }, options.books.instruments);
    let mut backtest = Backtest::open(&arguments.file, options)?;
    let outcome = backtest.run(&mut strategy);

    let counts = backtest.engine().counts();
    let digests = backtest.engine().digest_counts();
    println!(
        "{} messages became {} lines, {} of them of instruments that were not asked for; {} events",
        backtest.messages(),
        counts.lines,
        counts.skipped,
        counts.events
    );
    println!(
        "{} decisions (one side's size {RATIO} times the other's): {} to buy, {} to sell; digests: {} agreed, {} disagreed",
        strategy.decisions(),
        strategy.desk.buys,
        strategy.desk.sells,
        digests.compared - digests.disagreed,
        digests.disagreed
    );
    if strategy.not_followed() > 0 {
        println!("{} events of instruments beyond the strategy's table were left out", strategy.not_followed());
    }
    if let Some(warning) = backtest.warning() {
        eprintln!("backtest_skeleton: taken for the end, as asked: {warning}");
    }
    // Everything before the fault was delivered, and is in the figures above.
    Ok(outcome?)
}
