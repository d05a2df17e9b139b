//! `flow`: flat out. Lines a second from core to core, beside a bare copy of the same bytes; messages a second through the
//! publisher's pipeline on one core.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use benches::day::{Day, DayFile, DayOptions};
use benches::flow::{
    FlowSlice, PipelineRun, WRITE_LINES, day_in_file, day_in_memory, ring_stream, run_pipeline, run_stream,
};
use benches::limits::{bare_copy, memcpy_bytes_per_second};
use benches::machine::{Cores, Jitter, Machine, idle_jitter, load, pin_anew};
use benches::ratio::{Ratio, spread};
use clap::Parser;
use cli::{eprintln, println};
use protocol::book::BooksConfig;
use protocol::channel::ChannelConfig;
use protocol::line::{Epoch, LINE_LEN};
use protocol::record::{ChannelId, Lane};
use serde::Serialize;
use transport::RingWriter;
use transport::clock::Clock;

/// Measures throughput: lines from core to core through the ring with a reader that misses none, beside a bare copy of
/// the same bytes; and a generated day through the whole pipeline on one core.
#[derive(Parser)]
#[command(version)]
struct Options {
    /// Rounds of ring and bare copy.
    #[arg(long, default_value_t = 40, value_name = "N")]
    rounds: usize,
    /// Lines in each slice.
    #[arg(long, default_value_t = 1 << 22, value_name = "N")]
    slice_lines: u64,
    /// Places in the rings, a power of two.
    #[arg(long, default_value_t = 1 << 16, value_name = "N")]
    lines: usize,
    /// Messages of the generated day.
    #[arg(long, default_value_t = 2_000_000, value_name = "N")]
    messages: u64,
    /// Securities of the generated day.
    #[arg(long, default_value_t = 500, value_name = "N")]
    symbols: u16,
    /// Seed of the generated day.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the day to a file in TMPDIR and read it from there in each run, as a publisher does, in constant memory,
    /// instead of holding it in memory: for days of any length. What is promised is measured with
    /// `--stream --messages 10000000`.
    #[arg(long)]
    stream: bool,
    /// Runs of the pipeline, of which the best counts.
    #[arg(long, default_value_t = 5, value_name = "N")]
    runs: usize,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// How long the core is watched for its own jitter before each run of the pipeline.
const JITTER_NS: u64 = 100_000_000;

/// Everything that was measured.
#[derive(Serialize)]
struct Report {
    valid: bool,
    reasons: Vec<String>,
    machine: Machine,
    load_after: Option<f64>,
    cores: Option<Cores>,
    memcpy_bytes_per_second: f64,
    ring: Vec<FlowSlice>,
    bare: Vec<FlowSlice>,
    ring_lines_per_second: Option<Ratio>,
    bare_lines_per_second: Option<Ratio>,
    ring_to_bare: Option<Ratio>,
    digest_every: u32,
    pipeline: Vec<PipelineRun>,
    /// Of the core just before each run.
    jitter: Vec<Jitter>,
    best_messages_per_second: f64,
}

fn main() -> ExitCode {
    let options = Options::parse();
    match measure(&options) {
        Ok(report) if options.json => {
            println!("{}", serde_json::to_string(&report).expect("a report has string keys only"));
            ExitCode::SUCCESS
        }
        Ok(report) => {
            print(&options, &report);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("flow: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(options: &Options) -> Result<Report, Box<dyn std::error::Error>> {
    let machine = Machine::here();
    let clock = Clock::calibrate();
    let cores = Cores::choose();
    let mut reasons = Vec::new();
    if let Some(core) = machine.cores.first() {
        pin_anew(*core)?;
    }
    let memcpy = memcpy_bytes_per_second(4 << 20, 5, clock);
    let (mut ring, mut bare) = (Vec::new(), Vec::new());
    if let Some(cores) = cores {
        if !options.lines.is_power_of_two() || options.lines < 1024 {
            return Err(format!("--lines {}: give a power of two of at least 1024", options.lines).into());
        }
        let (mut writer, mut reader) = ring_stream(options.lines, clock)?;
        let (mut bare_writer, mut bare_reader) = bare_copy(options.lines);
        for round in 0..options.rounds {
            let lines = options.slice_lines;
            // Each goes first in turn.
            if round % 2 == 0 {
                ring.push(run_stream(&mut writer, &mut reader, lines, cores, clock)?);
            }
            bare.push(run_stream(&mut bare_writer, &mut bare_reader, lines, cores, clock)?);
            if round % 2 == 1 {
                ring.push(run_stream(&mut writer, &mut reader, lines, cores, clock)?);
            }
        }
    } else {
        reasons
            .push("oversubscribed: fewer than two usable cores; no stream from core to core was measured".to_owned());
    }
    let taken = |slices: &[FlowSlice]| slices.iter().filter(|slice| slice.is_disturbed()).count();
    let disturbed = taken(&ring) + taken(&bare);
    if 2 * disturbed > ring.len() + bare.len() {
        reasons.push(format!(
            "oversubscribed: others had over 1 % of {disturbed} of {} slices; repeat it when nothing else runs",
            ring.len() + bare.len()
        ));
    }

    let day = DayOptions { seed: options.seed, symbols: options.symbols, messages: options.messages };
    let (in_memory, in_file) = match options.stream {
        false => (Some(Day::generate(day)?), None),
        true => (None, Some(DayFile::generate(day)?)),
    };
    let config =
        ChannelConfig { books: BooksConfig { orders: 1 << 20, ..BooksConfig::default() }, ..Default::default() };
    let mut into = RingWriter::anonymous(ChannelId::new(1), Lane::new(0), Epoch(1), options.lines)?;
    let mut pipeline = Vec::new();
    let mut jitter = Vec::new();
    for epoch in 0..options.runs {
        jitter.push(idle_jitter(clock, JITTER_NS));
        if epoch > 0 {
            into = RingWriter::anonymous(ChannelId::new(1), Lane::new(0), Epoch(1), options.lines)?;
        }
        if let Some(day) = &in_memory {
            pipeline.push(run_pipeline(day_in_memory(day), day.date(), config, &mut into, clock)?);
        }
        if let Some(day) = &in_file {
            pipeline.push(run_pipeline(day_in_file(day)?, day.date(), config, &mut into, clock)?);
        }
    }
    if pipeline.iter().all(|run| run.is_disturbed()) {
        reasons.push("oversubscribed: others had over 1 % of every run of the pipeline".to_owned());
    }

    let rates = |slices: &[FlowSlice]| spread(slices.iter().map(FlowSlice::rate).collect());
    let ratios = ring.iter().zip(&bare).map(|(ring, bare)| ring.rate() / bare.rate()).collect();
    Ok(Report {
        valid: reasons.is_empty(),
        reasons,
        machine,
        load_after: load(),
        cores,
        memcpy_bytes_per_second: memcpy,
        ring_lines_per_second: rates(&ring),
        bare_lines_per_second: rates(&bare),
        ring_to_bare: spread(ratios),
        ring,
        bare,
        digest_every: config.digest_every,
        best_messages_per_second: pipeline.iter().map(PipelineRun::rate).fold(0.0, f64::max),
        pipeline,
        jitter,
    })
}

fn print(options: &Options, report: &Report) {
    match report.valid {
        true => println!("VALID"),
        false => println!("INVALID: {}", report.reasons.join("; ")),
    }
    println!("machine: {}", report.machine);
    println!("load average after: {}", report.load_after.map_or("unknown".into(), |load| format!("{load:.2}")));
    println!("memcpy of 4 MiB by one core, best of 5: {:.1} GB/s", report.memcpy_bytes_per_second / 1e9);
    if let Some(cores) = report.cores {
        println!();
        println!(
            "core to core, flat out: {cores}; {} slices each in turn of {} lines, {} lines a ring, shown every {WRITE_LINES};",
            report.ring.len(),
            options.slice_lines,
            options.lines
        );
        println!("the writer stays three quarters of the ring ahead of the reader at most, so that no line is missed");
        let row = |name: &str, rate: Option<Ratio>, slices: &[FlowSlice]| {
            let Some(rate) = rate else { return };
            let disturbed = slices.iter().filter(|slice| slice.is_disturbed()).count();
            println!(
                "{name:<34} {:>6.1} million lines/s (quartiles {:.1}-{:.1}), {:.1} GB/s, {disturbed} slices disturbed",
                rate.median / 1e6,
                rate.lower_quartile / 1e6,
                rate.upper_quartile / 1e6,
                rate.median * LINE_LEN as f64 / 1e9
            );
        };
        row("ring: seal, put, flush; verify", report.ring_lines_per_second, &report.ring);
        row("bare copy in, copy out", report.bare_lines_per_second, &report.bare);
        if let Some(ratio) = report.ring_to_bare {
            println!(
                "ring / bare in the same round: {:.2} (quartiles {:.2}-{:.2})",
                ratio.median, ratio.lower_quartile, ratio.upper_quartile
            );
        }
    }
    println!();
    println!(
        "pipeline on one core: {} messages, {} symbols, seed {}, {}; frame, decode, normalise, sequence, books, a digest every {} \
         messages, put, flush; nobody reads",
        options.messages,
        options.symbols,
        options.seed,
        if options.stream { "read from a file" } else { "in memory" },
        report.digest_every
    );
    for (run, (result, jitter)) in report.pipeline.iter().zip(&report.jitter).enumerate() {
        println!(
            "run {}: {:.2} million messages/s, {:.2} million lines/s, {:.0} ns a message, {} us without the core; \
             jitter p99.9 {} ns, at most {} us",
            run + 1,
            result.rate() / 1e6,
            result.lines as f64 * 1e3 / result.ns as f64,
            result.ns as f64 / result.messages as f64,
            result.waited_ns / 1_000,
            jitter.p999_ns,
            jitter.max_ns / 1_000
        );
    }
    println!("best of {}: {:.2} million messages/s", report.pipeline.len(), report.best_messages_per_second / 1e6);
}
