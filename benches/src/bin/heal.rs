//! `heal`: what recovery takes.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use benches::machine::Machine;
use benches::recovery::{heal_one_packet, join_late, stand_still};
use clap::Parser;
use cli::{eprintln, println};
use serde_json::json;
use transport::clock::Clock;

/// Measures how long one lost packet is missed, how long a late joiner is without valid books, and what a subscriber that
/// stands still costs the publisher.
///
/// Publisher, recovery server and subscriber are three busy threads of one process: with fewer cores than that they share,
/// and the numbers are of a crowded machine.
#[derive(Parser)]
#[command(
    version,
    after_help = "Example: heal --symbols 10000, then again: a single run says little about a virtual machine."
)]
struct Options {
    /// Lost packets.
    #[arg(long, default_value_t = 2_000, value_name = "N")]
    packets: u64,
    /// Instruments that the late joiner comes late for.
    #[arg(long, default_value_t = 10_000, value_name = "N", value_parser = clap::value_parser!(u16).range(5..=16_000))]
    symbols: u16,
    /// Messages a second that are published while it joins.
    #[arg(long, default_value_t = 300_000, value_name = "N")]
    rate: u64,
    /// Rounds of publishing flat out, each without and with the one that stands still.
    #[arg(long, default_value_t = 9, value_name = "N")]
    rounds: usize,
    /// Print one JSON object instead of words.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    match measure(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(2),
        Err(error) => {
            eprintln!("heal: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(options: &Options) -> Result<bool, Box<dyn std::error::Error>> {
    let machine = Machine::here();
    let clock = Clock::calibrate();
    let healed = heal_one_packet(options.packets.max(1), clock)?;
    let late = join_late(options.symbols, options.rate, clock)?;
    let still = stand_still(options.rounds.max(1), 400_000, clock)?;
    let mut reasons = Vec::new();
    if late.disagreed > 0 || late.agreed == 0 {
        reasons
            .push(format!("of the late joiner's books {} digests disagreed, {} agreed", late.disagreed, late.agreed));
    }
    let crowded = machine.cores.len() < 3;
    if options.json {
        println!(
            "{}",
            json!({"machine": machine, "valid": reasons.is_empty(), "reasons": reasons, "oversubscribed": crowded,
                "lost_packet_ns": healed, "late_join": late, "standing_still": still})
        );
        return Ok(reasons.is_empty());
    }
    for reason in &reasons {
        println!("INVALID: {reason}");
    }
    if crowded {
        println!("oversubscribed: three busy threads share {} cores; nothing is claimed", machine.cores.len());
    }
    println!("{machine}");
    println!(
        "one lost packet is missed for p50 {} us, p99 {} us, at most {} us ({} of them; 200 us hedge time and up to 100 us \
         of jitter included)",
        healed.p50 / 1_000,
        healed.p99 / 1_000,
        healed.max / 1_000,
        healed.count
    );
    println!(
        "a late joiner has valid books of {} instruments {:.1} ms after its first poll, from {} lines of answers, while {} \
         lines a second were published; later {} digests agreed, {} disagreed",
        late.instruments,
        late.valid_after_ns as f64 / 1e6,
        late.reply_lines,
        late.lines_per_second,
        late.agreed,
        late.disagreed
    );
    println!(
        "publishing flat out beside a subscriber that asks for every book and stands still: {:.2} million messages a second, \
         {:.2} million without it; the ratio is {:.3} (medians of {} interleaved pairs)",
        still.with / 1e6,
        still.without / 1e6,
        still.ratio,
        still.slices.len()
    );
    Ok(reasons.is_empty())
}
