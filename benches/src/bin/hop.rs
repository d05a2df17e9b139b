//! `hop`: what one line costs from core to core, as ratios to what the machine can do at best.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use benches::handover::{Contender, Pace, interleave};
use benches::limits::{Polling, bare_udp, cold_words, hot_line, hot_word};
use benches::machine::{Cores, Machine, stolen_ticks};
use benches::report::{Comparison, HopReport, Setting};
use benches::subjects::{RingTurn, own_group, ring_line, subscriber_line, udp_line};
use clap::Parser;
use cli::{eprintln, print, println};
use publisher::pin;
use transport::clock::Clock;

const HOT: &str = "bare hot word";
const HOT_HINT: &str = "bare hot word, hint";
const HOT_CLOCK: &str = "bare hot word, clock";
const HOT_LINE: &str = "bare hot line of 8";
const COLD: &str = "bare cold word";
const RING: &str = "ring";
const RING_STILL: &str = "ring, no clock a turn";
const SUBSCRIBER: &str = "subscriber";
const UDP_BARE: &str = "bare UDP";
const UDP: &str = "UDP lane";

/// Measures one line through shared memory and UDP beside the bare limits of this machine, as ratios from interleaved
/// slices of one run.
///
/// Two threads are pinned to two cores; nothing else should run. With fewer than two usable cores nothing is measured.
#[derive(Parser)]
#[command(
    version,
    after_help = "Example: hop --seconds 20, then again: a single run says little about a virtual machine."
)]
struct Options {
    /// How long to measure, in seconds.
    #[arg(long, default_value_t = 15.0, value_name = "N")]
    seconds: f64,
    /// Print one JSON object instead of tables.
    #[arg(long)]
    json: bool,
    /// Places in the rings, a power of two.
    #[arg(long, default_value_t = 1 << 16, value_name = "N")]
    lines: usize,
    /// Seed of the random pacing.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The cores of writer and reader; left out: the first two usable ones.
    #[arg(long, value_name = "WRITER,READER")]
    cores: Option<Cores>,
    /// Leave out UDP, which takes most of the time: more rounds for shared memory.
    #[arg(long)]
    memory_only: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let Some(cores) = options.cores.or_else(Cores::choose) else {
        println!("INVALID: oversubscribed: fewer than two usable cores; nothing was measured, and nothing is claimed");
        return ExitCode::from(2);
    };
    match measure(&options, cores) {
        Ok(report) if options.json => {
            println!("{}", serde_json::to_string(&report).expect("a report has string keys only"));
            ExitCode::SUCCESS
        }
        Ok(report) => {
            print!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("hop: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(options: &Options, cores: Cores) -> Result<HopReport, Box<dyn std::error::Error>> {
    if !options.lines.is_power_of_two() || options.lines < 64 {
        return Err(format!("--lines {}: give a power of two of at least 64", options.lines).into());
    }
    pin::check(cores.writer)?;
    pin::check(cores.reader)?;
    let setting = Setting {
        machine: Machine::here(),
        stolen_before: stolen_ticks(),
        cores,
        seed: options.seed,
        ring_lines: options.lines,
    };
    let clock = Clock::calibrate();
    let memory = Pace::MEMORY;
    let mut contenders = vec![
        Contender::new(
            HOT,
            "one atomic word in one line, polled; no more can be done with less",
            memory,
            hot_word(Polling::Tight),
        ),
        Contender::new(
            HOT_HINT,
            "the same, with the hint of a waiting loop between looks",
            memory,
            hot_word(Polling::Hint),
        ),
        Contender::new(HOT_CLOCK, "the same, with a clock reading between looks", memory, hot_word(Polling::Clock)),
        Contender::new(HOT_LINE, "all eight words of one line, unmasked and unchecked", memory, hot_line()),
        Contender::new(COLD, "one word in the next line of a ring each time", memory, cold_words(options.lines)),
        Contender::new(
            RING,
            "seal, put, flush; poll, verify, sink; a clock reading a turn; two threads over two mappings of a named ring",
            memory,
            ring_line(options.lines, RingTurn::ReadsClock)?,
        ),
        Contender::new(
            RING_STILL,
            "the same with a time that stands still: what the clock reading costs",
            memory,
            ring_line(options.lines, RingTurn::StandsStill)?,
        ),
        Contender::new(
            SUBSCRIBER,
            "ring, arbiter, book, callbacks: to the end of the event in a strategy's handler",
            memory,
            subscriber_line(options.lines, clock)?,
        ),
    ];
    if !options.memory_only {
        let (group, port) = own_group(0);
        let bare = bare_udp(group, port).map_err(|error| format!("bare UDP over loopback multicast: {error}"))?;
        contenders.push(Contender::new(
            UDP_BARE,
            "send and non-blocking recv of 96 bytes, loopback multicast",
            Pace::DATAGRAMS,
            bare,
        ));
        contenders.push(Contender::new(
            UDP,
            "seal, put, flush, send; receive, verify packet and line, sink; loopback multicast",
            Pace::DATAGRAMS,
            udp_line(1)?,
        ));
    }
    let comparisons = [
        Comparison { subject: RING, bare: HOT, bar: Some((2.0, 2.0)) },
        Comparison { subject: RING, bare: HOT_HINT, bar: None },
        Comparison { subject: RING, bare: HOT_CLOCK, bar: None },
        Comparison { subject: RING, bare: HOT_LINE, bar: None },
        Comparison { subject: RING, bare: COLD, bar: None },
        Comparison { subject: RING_STILL, bare: HOT, bar: None },
        Comparison { subject: COLD, bare: HOT, bar: None },
        Comparison { subject: SUBSCRIBER, bare: HOT, bar: None },
        Comparison { subject: SUBSCRIBER, bare: RING, bar: None },
        Comparison { subject: UDP, bare: UDP_BARE, bar: None },
    ];
    let began = clock.now();
    let length_ns = (options.seconds.clamp(0.0, 3_600.0) * 1e9) as u64;
    let series = interleave(contenders, cores, clock, options.seed, length_ns)?;
    let seconds = clock.now().since(began) as f64 / 1e9;
    Ok(HopReport::new(setting, clock, seconds, &series, &comparisons))
}
