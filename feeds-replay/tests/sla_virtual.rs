//! A stall of the subscriber in virtual time, through the real publisher and the real subscriber: open loop shows it with the
//! size that arithmetic predicts, closed loop hides it.

#![forbid(unsafe_code)]

use std::cell::Cell;
use std::io::Cursor;
use std::path::Path;
use std::rc::Rc;

use feeds_replay::generate::{GenerateOptions, generate};
use feeds_replay::sla::blocks::{Latencies, Timed, quantile};
use feeds_replay::sla::file::Hindrance;
use feeds_replay::sla::log::NO_TIME;
use feeds_replay::sla::probe::Verified;
use feeds_replay::sla::recorder::Recorder;
use protocol::arbiter::ArbiterConfig;
use protocol::book::{BooksConfig, Start};
use protocol::channel::ChannelConfig;
use protocol::line::Epoch;
use protocol::record::{ChannelId, Lane};
use protocol::time::Nanos;
use publisher::date::session_date;
use publisher::itch::{BinaryFile, FramingOptions, Normaliser, NormaliserOptions};
use publisher::pace::{Pace, Schedule};
use publisher::pipeline::Pipeline;
use publisher::publisher::{Publisher, PublisherConfig, Turn};
use subscriber::{EngineConfig, Subscriber};
use transport::RingWriter;
use transport::clock::Clock;
use transport::ring::StartAt;

const BOOKS: BooksConfig = BooksConfig { instruments: 64, orders: 1 << 15, levels: 1 << 14 };
const MESSAGES: u64 = 100_000;
const RATE: f64 = 10_000.0;
const TURN_NS: u64 = 1_000;
const STALL_NS: u64 = 50_000_000;
/// One stall in the ten seconds of the run: 0.5 % of the time.
const STALL_AT_NS: u64 = 4_000_000_000;
const START_NS: u64 = 1_000_000_000;

/// Runs ten seconds of a day at an even rate. The subscriber polls each turn, but for one stall. Closed loop, the next
/// message is handed over when the one before has been seen. Returns the latency of every line, from its intended hand-over
/// (open loop) or from its actual one (closed loop), ns.
fn run(open_loop: bool) -> Vec<Timed> {
    let mut day = Vec::new();
    let options = GenerateOptions { symbols: 20, messages: MESSAGES, ..GenerateOptions::default() };
    generate(&options, &mut day).expect("legal options");
    let source = BinaryFile::from_reader(Cursor::new(day), Path::new("generated"), FramingOptions::default());
    let date = session_date(Some("2000-01-03"), None, Path::new("generated")).expect("a date");
    let venue = Normaliser::new(NormaliserOptions::default(), date);
    let config = ChannelConfig { books: BOOKS, ..ChannelConfig::default() };
    let mut pipeline = Pipeline::new(source, venue, Epoch(1), config);
    let first_ns = pipeline.peek().expect("sound").expect("not empty").time.0;
    // Flat out stands for "as soon as the publisher gets its turn": closed loop, it gets one when all has been seen.
    let pace = if open_loop { Pace::Rate(RATE) } else { Pace::Max };
    let schedule = Schedule { pace, start_ns: START_NS, first_ns, first_ordinal: 1 };
    let ring = RingWriter::anonymous(ChannelId::new(1), Lane::new(0), Epoch(1), 1 << 14).expect("memory");
    let reader = ring.reader(StartAt::Oldest, 200_000);
    let mut publisher = Publisher::new(pipeline, ring, (), PublisherConfig { schedule, heartbeat_ns: 10_000_000 });
    let engine = EngineConfig { books: BOOKS, start: Start::Strict, ..EngineConfig::default() };
    let mut subscriber = Subscriber::new(reader, ArbiterConfig::default(), engine, Clock::calibrate());

    let now = Rc::new(Cell::new(START_NS));
    let clock = Rc::clone(&now);
    // What is measured closed loop has no plan: any will do for the recorder, which is asked for actual latencies then.
    let measured = Schedule { pace: if open_loop { pace } else { Pace::Rate(1e9) }, ..schedule };
    let room = 4 * MESSAGES as usize;
    let mut recorder =
        Recorder::new(move || Nanos(clock.get()), measured, room, Verified::default(), Hindrance::default());
    let mut stalled_until = 0;
    let mut ended = false;
    while !subscriber.has_ended() {
        now.set(now.get() + TURN_NS);
        let time = now.get();
        let may_send = open_loop || (subscriber.lag() == 0 && stalled_until <= time);
        if may_send && !ended {
            ended = publisher.do_work(Nanos(time)).expect("a sound day") == Turn::Ended;
        }
        if stalled_until == 0 && time >= START_NS + STALL_AT_NS.min(if open_loop { u64::MAX } else { 1_000_000 }) {
            stalled_until = time + STALL_NS;
        }
        if stalled_until <= time {
            subscriber.poll_at(Nanos(time), &mut recorder);
        }
    }
    assert_eq!((recorder.unkept(), recorder.negative(), subscriber.counts().lost), (0, 0, 0));
    let latency = |sample: &feeds_replay::sla::log::Sample| {
        if open_loop { sample.visible_ns } else { sample.from_actual_ns }
    };
    let samples = recorder.samples().iter().filter(|sample| latency(sample) != NO_TIME);
    samples.map(|sample| Timed { at_ns: sample.intended_ns, latency_ns: latency(sample) }).collect()
}

#[test]
fn a_stall_of_50_ms_shows_in_p999_of_intended_latency_as_arithmetic_predicts() {
    let latencies = Latencies::new(run(true));
    // Messages come evenly for 10 s and one stall of 50 ms delays half a percent of them, evenly from 50 ms down to
    // nothing. Of all messages 0.1 % are later than the percentile: a fifth of the delayed ones. So it is 4/5 of the stall.
    let p999 = latencies.percentile(99.9);
    assert!((39_000_000..=41_000_000).contains(&p999), "p99.9 {p999} ns, 40 ms predicted");
    let p99 = latencies.percentile(99.0);
    assert!(p99 < 1_000_000, "p99 {p99} ns: 99.5 % never met the stall");
    let max = u64::from(*latencies.sorted().last().expect("samples"));
    assert!((49_900_000..=50_100_000).contains(&max), "{max}");
    // One stall is one event, whatever it delays: that is too little to claim a percentile by.
    let estimate = latencies.estimate(99.9, 10_000_000, 1).expect("samples");
    assert!(!estimate.is_supported(), "{estimate:?}");
}

#[test]
fn the_same_stall_is_missing_from_a_closed_loop_measure() {
    let mut latencies: Vec<u32> = run(false).iter().map(|timed| timed.latency_ns).collect();
    latencies.sort_unstable();
    let p999 = quantile(&latencies, 99.9);
    assert!(p999 < 1_000_000, "p99.9 {p999} ns: closed loop, a stall meets one hand-over alone");
    let late = latencies.iter().filter(|latency| **latency >= 10_000_000).count();
    assert!(late > 0 && late < latencies.len() / 1_000, "{late}: the stall is there, in a handful of lines");
}
