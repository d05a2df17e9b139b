//! Prints the best prices of some instruments whenever they change, and everything that makes them doubtful.
//!
//! ```text
//! cargo run --release -p subscriber --example print_bbo -- CHANNEL [SYMBOL…]
//! ```
//!
//! The strategy is [`Printer`]: what it implements is all that a strategy must.

#![forbid(unsafe_code)]

use std::fmt;
use std::io::{self, BufWriter, Stdout, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Parser;
use protocol::price::Decimal;
use subscriber::{BookState, Builder, Context, EventEnd, Gap, Handler, InstrumentId, Level, StateChange};
use transport::clock::IdleStrategy;

/// Prints best bid and offer when they change, gaps, and changes of a book's state.
#[derive(Parser)]
#[command(after_help = "\
Examples:
  print_bbo itch                 every instrument of channel 'itch'
  print_bbo itch AAPL 'BRK.*'    these only; * is any characters, ? is one

Waits for a publisher that is not there yet. Ends at the end of the stream, or with Ctrl-C.")]
struct Arguments {
    /// The channel, as its publisher calls it.
    channel: String,
    /// Names or patterns; left out: everything.
    symbols: Vec<String>,
}

struct Printer {
    out: BufWriter<Stdout>,
    /// Nobody reads what is printed any more.
    closed: bool,
}

impl Handler for Printer {
    fn on_event_end(&mut self, ctx: &Context<'_>, end: &EventEnd) {
        if end.before != end.after {
            let (bid, ask) = (end.after.bid, end.after.ask);
            let show = |level: Option<Level>| show(ctx, end.instrument, level);
            // A Suspect book can be read, and says so.
            let doubt = if ctx.book(end.instrument).is_ok_and(|book| book.state() == BookState::Live) {
                ""
            } else {
                " (Suspect)"
            };
            self.say(format_args!("{:<8} {:>22} | {}{doubt}", ctx.symbol(end.instrument), show(bid), show(ask)));
        }
    }

    fn on_state_change(&mut self, ctx: &Context<'_>, change: &StateChange) {
        let symbol = ctx.symbol(change.instrument);
        self.say(format_args!("{symbol:<8} {:?} -> {:?}: {:?}", change.from, change.to, change.reason));
    }

    fn on_gap(&mut self, _: &Context<'_>, gap: &Gap) {
        self.say(format_args!("lost {} lines from {} on: {:?}", gap.count, gap.first, gap.cause));
    }

    fn on_end(&mut self, _: &Context<'_>) {
        self.say(format_args!("the stream has ended"));
    }

    fn on_idle(&mut self, _: &Context<'_>) {
        self.closed |= self.out.flush().is_err();
    }
}

impl Printer {
    fn say(&mut self, what: fmt::Arguments<'_>) {
        self.closed |= writeln!(self.out, "{what}").is_err();
    }
}

/// `size @ price`, the price in the instrument's own unit.
fn show(ctx: &Context<'_>, instrument: InstrumentId, level: Option<Level>) -> String {
    let exponent = ctx.definition(instrument).map_or(-9, |definition| definition.price_exponent());
    level.map_or("-".into(), |level| format!("{} @ {}", level.size, Decimal { value: level.price, exponent }))
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("print_bbo: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let mut subscriber = Builder::new(&arguments.channel).symbols(&arguments.symbols).shared_memory()?;
    let mut printer = Printer { out: BufWriter::new(io::stdout()), closed: false };
    let mut waiting = false;
    // Relaxed: the flag carries nothing but itself.
    while !subscriber.has_ended() && !printer.closed && !stop.load(Ordering::Relaxed) {
        let work = subscriber.poll(&mut printer);
        if work == 0 && !waiting && subscriber.rx().ring().is_none() {
            waiting = true;
            eprintln!("waiting for a publisher of channel '{}' …", arguments.channel);
        }
        IdleStrategy::Yield.idle(work);
    }
    // A reader that has gone wants no more; that is not an error of ours.
    let _ = printer.out.flush();
    Ok(())
}
