//! The children of an SLA run: one publishes, the others subscribe and write down what they see.

use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use protocol::channel::ChannelConfig;
use protocol::line::Epoch;
use protocol::record::Lane;
use publisher::date::{SessionDate, session_date};
use publisher::input::PRELOAD_BYTES;
use publisher::itch::{BinaryFile, FramingOptions, Normaliser, NormaliserOptions};
use publisher::open::{FeedOptions, open_feed};
use publisher::pipeline::Pipeline;
use publisher::publisher::{Publisher, PublisherConfig, Turn};
use publisher::turns::{IdleGaps, off_core_ns};
use publisher::venue::{AnyVenue, Venue, VenueOptions};
use subscriber::{Builder, Subscriber};
use transport::clock::{Clock, IdleStrategy};
use transport::shm::{RingOptions, RxOptions, ShmRx};
use transport::udp::{UdpRx, UdpTx};
use transport::{LaneRx, LaneTx, RingWriter};

use super::feed::{Loaded, Looped};
use super::file::Hindrance;
use super::log;
use super::probe::{RxProbe, SourceProbe, Steps, TxProbe, VenueProbe, Verified};
use super::recorder::{Glimpse, Recorder};
use super::spec::{LoopReport, Planned, Progress, Said, SeenReport, SentReport, SlaSpec};
use super::turns::{ProcCounters, Turns};
use super::verdict::Accounts;
use crate::generate::{GenerateOptions, generate};
#[cfg(not(feature = "rdma"))]
use crate::roles::no_rdma;
use crate::roles::{
    CHANNEL, DIGEST_EVERY, Failure, GENERATED_DATE, HEARTBEAT_NS, LINGER_NS, book_start, books, hear, off_core_since,
    pin, say, stop_flag, stop_with_parent, udp_options,
};
use crate::spec::{ControlAt, Feed, Ready, Start, Transport};

/// A subscriber says so often how far it is.
const SAY_EVERY: Duration = Duration::from_millis(500);
/// Lines by which the cost of measuring is taken.
const COST_LINES: usize = 20_000;

/// Runs the child that `role` names to its end, and says its report. Returns whether it could do its work.
pub(crate) fn run(role: &str, spec: &str) -> bool {
    let outcome = serde_json::from_str::<SlaSpec>(spec).map_err(Failure::from).and_then(|spec| match role {
        "publisher" => publish(&spec).map(Said::Sent),
        "subscriber" => subscribe(&spec).map(Said::Seen),
        other => Err(format!("there is no role {other:?}").into()),
    });
    let (said, fine) = match outcome {
        Ok(said) => (said, true),
        Err(error) => (Said::Failed(error.to_string()), false),
    };
    say(&said).is_ok() && fine
}

/// The feed of a run, in memory, what normalises it, and its date.
fn load(spec: &SlaSpec) -> Result<(Looped, AnyVenue, SessionDate, bool), Failure> {
    let mut loaded = Loaded::new();
    let (venue, date, counts_messages) = match &spec.run.feed {
        Feed::Generated { seed, symbols, messages, span_ns } => {
            let options = GenerateOptions {
                seed: *seed,
                symbols: *symbols,
                messages: *messages,
                span_ns: Some(*span_ns),
                // No longer than what UDP on one host takes in well under a millisecond.
                longest_burst: 256,
                ..GenerateOptions::default()
            };
            let mut day = Vec::new();
            generate(&options, &mut day)?;
            let path = Path::new("the generated day");
            let mut source = BinaryFile::from_reader(Cursor::new(day), path, FramingOptions::default());
            loaded.read(&mut source, &spec.choice, path)?;
            let date = session_date(Some(GENERATED_DATE), None, Path::new("generated"))?;
            (AnyVenue::Itch(Normaliser::new(NormaliserOptions::default(), date)), date, true)
        }
        Feed::File { path, more, kind, session, date, lenient, full, .. } => {
            let options = FeedOptions {
                feed: kind.as_deref().map(str::parse).transpose()?,
                lenient: *lenient,
                session: session.clone(),
                preload: Some(PRELOAD_BYTES),
            };
            let mut first = None;
            for path in std::iter::once(path).chain(more) {
                let mut feed = open_feed(path, &options)?;
                let counts_messages = feed.counts_messages();
                if first.is_none() {
                    let date = feed.session_date(date.as_deref())?;
                    let venue = feed.venue(date, VenueOptions { full: *full, ..VenueOptions::default() });
                    first = Some((venue, date, counts_messages));
                }
                if counts_messages {
                    loaded.read(&mut feed, &spec.choice, path)?;
                } else {
                    loaded.read_as_is(&mut feed, path)?;
                }
            }
            first.ok_or("no file")?
        }
    };
    Ok((loaded.play(spec.choice.loops, &spec.choice)?, venue, date, counts_messages))
}

fn publish(spec: &SlaSpec) -> Result<SentReport, Failure> {
    let run = &spec.run;
    let (source, venue, date, counts_messages) = load(spec)?;
    let planned = Planned { messages: source.messages(), counts_messages };
    let clock = Clock::from_parts(&run.clock.parse()?)?;
    let mut notes = Vec::new();
    pin(spec.core, &mut notes);
    let options = RingOptions::new(&run.channel, CHANNEL, Lane::new(0), Epoch(1), run.ring_lines);
    let ring = RingWriter::create(&options)?;
    let steps = Steps::new(clock, planned.messages as usize / 32 + 64);
    let config = ChannelConfig { books: books(run), start: book_start(run), digest_every: DIGEST_EVERY };
    let pipeline = Pipeline::new(SourceProbe::new(source, &steps), VenueProbe::new(venue, &steps), Epoch(1), config);
    let sending = Sending { spec, clock, steps, planned, date, notes };
    match run.transport {
        Transport::Shm => sending.publish(pipeline, ring, (), None),
        Transport::Udp => {
            let lane = UdpTx::open(&udp_options(run), &ring)?;
            sending.publish(pipeline, ring, lane, None)
        }
        #[cfg(feature = "rdma")]
        Transport::RdmaUd | Transport::RdmaRc | Transport::Rdma => {
            let (lanes, server, control) = crate::roles::rdma::serve(run, &ring, clock)?;
            let report = sending.publish(pipeline, ring, lanes, Some(control));
            drop(server);
            report
        }
        #[cfg(not(feature = "rdma"))]
        Transport::RdmaUd | Transport::RdmaRc | Transport::Rdma => Err(no_rdma()),
    }
}

/// What the publishing child has, whatever its lanes are.
struct Sending<'a> {
    spec: &'a SlaSpec,
    clock: Clock,
    steps: std::rc::Rc<Steps>,
    planned: Planned,
    date: SessionDate,
    notes: Vec<String>,
}

type SlaPipeline = Pipeline<SourceProbe<Looped>, VenueProbe<AnyVenue>>;

impl Sending<'_> {
    fn publish<L: LaneTx>(
        mut self,
        mut pipeline: SlaPipeline,
        ring: RingWriter,
        lanes: L,
        control: Option<ControlAt>,
    ) -> Result<SentReport, Failure> {
        let Sending { spec, clock, .. } = self;
        let stop = stop_flag()?;
        let first_ns = pipeline.peek().ok().flatten().map_or(0, |due| due.time.0);
        let ready = Ready {
            pid: std::process::id(),
            first_ns,
            first_ordinal: pipeline.first_ordinal(),
            date: self.date.to_string(),
            control,
            notes: std::mem::take(&mut self.notes),
        };
        say(&Said::Ready(ready, self.planned))?;
        let Start { schedule } = hear()?;
        stop_with_parent(&stop);
        let config = PublisherConfig { schedule, heartbeat_ns: HEARTBEAT_NS };
        let lanes = TxProbe::new(lanes, &self.steps);
        let mut publisher = Publisher::new(pipeline, ring, lanes, config);
        let idle = idle(spec);
        let mut turns = Turns::new(ProcCounters::of_this_thread(spec.core));
        let off_core = off_core_ns();
        let mut work = 1;
        let outcome = loop {
            // Relaxed: the flag carries nothing but itself.
            if stop.load(Ordering::Relaxed) {
                break Ok(true);
            }
            let now = clock.now();
            turns.turn(now, work);
            match publisher.do_work(now) {
                Ok(Turn::Worked(done)) => work = done,
                Ok(Turn::Ended) => break Ok(false),
                Err(error) => break Err(error),
            }
            idle.idle(work);
        };
        let off_core_ns = off_core_since(off_core);
        linger(&mut publisher, clock);
        let stats = publisher.stats();
        let venue = publisher.pipeline().venue().counters();
        log::write(&spec.folder.join("publisher.gaps"), turns.gaps())?;
        log::write(&spec.folder.join("publisher.steps"), &self.steps.take())?;
        let mut report = SentReport {
            turns: loop_report(spec, publisher.gaps(), &turns, off_core_ns, clock, self.notes),
            messages: stats.messages,
            published: stats.lines,
            planned_ns: publisher.planned_ns(),
            took_ns: stats.first.map_or(0, |first| stats.last.0 - first.0),
            lag_ns: spec.percentiles.iter().map(|p| stats.lag.value_at_quantile(p / 100.0)).collect(),
            lag_max_ns: stats.lag.max(),
            send_drops: publisher.lanes().lines_unsent(),
            refused: venue.unknown_types + venue.bad_lengths() + venue.empty_messages,
            unknown_orders: venue.unknown_orders,
            error: outcome.as_ref().err().map(ToString::to_string),
            stopped: matches!(outcome, Ok(true)),
        };
        if publisher.pipeline().channel().books().grown() > 0 {
            let note = "the publisher's books outgrew their configured size and allocated during the run";
            report.turns.notes.push(note.into());
        }
        Ok(report)
    }
}

/// Announces the end, so that who lost the last packet learns of it.
fn linger<S: publisher::feed::FeedSource, V: publisher::venue::Venue, L: LaneTx>(
    publisher: &mut Publisher<S, V, L>,
    clock: Clock,
) {
    let until = clock.now().plus(LINGER_NS);
    loop {
        let now = clock.now();
        publisher.end(now);
        if now >= until {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn idle(spec: &SlaSpec) -> IdleStrategy {
    if spec.core.is_some() { IdleStrategy::Spin } else { IdleStrategy::Yield }
}

fn loop_report(
    spec: &SlaSpec,
    idle: &IdleGaps,
    turns: &Turns<ProcCounters>,
    off_core_ns: u64,
    clock: Clock,
    notes: Vec<String>,
) -> LoopReport {
    let check = clock.check();
    LoopReport {
        jitter_ns: spec.percentiles.iter().map(|p| idle.percentile(*p)).collect(),
        jitter_max_ns: idle.max(),
        off_core_ns,
        gaps_unkept: turns.unkept(),
        clock_drift_ns: check.drift_ns,
        clock_elapsed_ns: check.elapsed_ns,
        clock_error_ns: check.bracket_ns,
        notes,
    }
}

fn subscribe(spec: &SlaSpec) -> Result<SeenReport, Failure> {
    let run = &spec.run;
    let clock = Clock::from_parts(&run.clock.parse()?)?;
    let builder = Builder::new(&run.channel).books(books(run)).start(book_start(run)).clock(clock);
    let mut notes = Vec::new();
    match run.transport {
        Transport::Shm => {
            let rx = RxProbe::new(ShmRx::waiting(RxOptions::new(&run.channel, Lane::new(0)))?, clock);
            let verified = rx.verified();
            subscribe_over(spec, builder.lanes(rx, 1), verified, clock, notes, |_| (0, 0, Vec::new()))
        }
        Transport::Udp => {
            let rx = UdpRx::open(&udp_options(run), CHANNEL)?;
            let buffer = rx.receive_buffer();
            if buffer.is_short() {
                notes.push(format!(
                    "the kernel granted {} bytes of receive buffer of the {} asked for: raise net.core.rmem_max",
                    buffer.granted, buffer.requested
                ));
            }
            let rx = RxProbe::new(rx, clock);
            let verified = rx.verified();
            subscribe_over(spec, builder.lanes(rx, 1), verified, clock, notes, |rx| {
                (rx.inner().counters().kernel_drops, rx.inner().counters().refused_total(), Vec::new())
            })
        }
        #[cfg(feature = "rdma")]
        Transport::RdmaUd | Transport::RdmaRc | Transport::Rdma => {
            let subscriber = crate::roles::rdma::subscribe(run, builder)?;
            // Its lanes are made where they connect, so no probe is around them: verified and callback are one stage.
            subscribe_over(spec, subscriber, Verified::default(), clock, notes, |rx| {
                let (starved, refused) = crate::roles::rdma::losses(rx);
                (starved, refused, crate::roles::rdma::news(rx))
            })
        }
        #[cfg(not(feature = "rdma"))]
        Transport::RdmaUd | Transport::RdmaRc | Transport::Rdma => {
            let _ = (builder, &mut notes);
            Err(no_rdma())
        }
    }
}

fn subscribe_over<R: LaneRx>(
    spec: &SlaSpec,
    mut subscriber: Subscriber<R>,
    verified: Verified,
    clock: Clock,
    mut notes: Vec<String>,
    losses: impl Fn(&R) -> (u64, u64, Vec<String>),
) -> Result<SeenReport, Failure> {
    pin(spec.core, &mut notes);
    let stop = stop_flag()?;
    // One turn now, so that a ring that is there is attached to before the first line is written.
    subscriber.poll(&mut ());
    let ready = Ready {
        pid: std::process::id(),
        first_ns: 0,
        first_ordinal: 1,
        date: String::new(),
        control: None,
        notes: std::mem::take(&mut notes),
    };
    say(&Said::Ready(ready, Planned::default()))?;
    let Start { schedule } = hear()?;
    let now = move || clock.now();
    let mut recorder = Recorder::new(now, schedule, spec.room, verified, spec.hindrance);
    stop_with_parent(&stop);
    let teller = Teller::start(recorder.glimpse(), spec.subscriber)?;
    let mut gaps = IdleGaps::new();
    let mut turns = Turns::new(ProcCounters::of_this_thread(spec.core));
    let idle = idle(spec);
    let off_core = off_core_ns();
    let mut work = 1;
    while !subscriber.has_ended() && !stop.load(Ordering::Relaxed) {
        let now = clock.now();
        gaps.turn(now, work);
        turns.turn(now, work);
        work = subscriber.poll_at(now, &mut recorder);
        idle.idle(work);
    }
    let off_core_ns = off_core_since(off_core);
    drop(teller);
    let (kernel_drops, refused_packets, news) = losses(subscriber.rx());
    notes.extend(news);
    if subscriber.engine().books_grown() > 0 {
        notes.push("a subscriber's books outgrew their configured size and allocated during the run".into());
    }
    let name = |what: &str| spec.folder.join(format!("subscriber-{}.{what}", spec.subscriber));
    log::write(&name("samples"), recorder.samples())?;
    log::write(&name("steps"), recorder.steps())?;
    log::write(&name("gaps"), turns.gaps())?;
    let engine = subscriber.engine();
    let (counts, digests) = (subscriber.counts(), engine.digest_counts());
    let accounts = Accounts {
        delivered: counts.delivered,
        lost: counts.lost,
        ended: subscriber.has_ended(),
        digests_compared: digests.compared,
        digests_disagreed: digests.disagreed,
        publish_time_unknown: engine.counts().publish_time_unknown,
        negative: recorder.negative(),
        unkept: recorder.unkept(),
    };
    let turns = loop_report(spec, &gaps, &turns, off_core_ns, clock, notes);
    let symbols = engine.context(clock.now()).instruments();
    let symbols = symbols.map(|(instrument, definition)| (instrument.0, definition.symbol().to_owned())).collect();
    let (record_cost_ns, clock_cost_ns) = costs(clock, schedule);
    Ok(SeenReport {
        turns,
        accounts,
        gaps: counts.gaps,
        events: engine.counts().events,
        symbols,
        kernel_drops,
        refused_packets,
        record_cost_ns,
        clock_cost_ns,
    })
}

/// A thread that says now and then how far a subscriber is, as long as this value lives.
struct Teller {
    over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Teller {
    fn start(glimpse: Arc<Glimpse>, subscriber: usize) -> Result<Teller, Failure> {
        let over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&over);
        let thread = std::thread::Builder::new().name("teller".into()).spawn(move || {
            // Relaxed: the flag carries nothing but itself.
            while !stop.load(Ordering::Relaxed) {
                std::thread::park_timeout(SAY_EVERY);
                let (lines, lost, latencies) = glimpse.take();
                let [p50, p99, p999] = [50.0, 99.0, 99.9].map(|p| super::blocks::quantile(&latencies, p));
                if say(&Said::Progress(Progress { subscriber, lines, p50, p99, p999, lost })).is_err() {
                    return;
                }
            }
        })?;
        Ok(Teller { over, thread: Some(thread) })
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        // Relaxed: the flag carries nothing but itself.
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // If it panicked, its message stands on standard error.
            let _ = thread.join();
        }
    }
}

/// What measuring a line costs without its clock reads, and what one of those costs; medians, in ns. Taken after the run
/// and in the same process: a clock that stands still, and so many lines through a recorder of its own.
fn costs(clock: Clock, schedule: publisher::pace::Schedule) -> (f64, f64) {
    use subscriber::Handler as _;
    let engine = subscriber::Engine::new(subscriber::EngineConfig {
        books: protocol::book::BooksConfig { instruments: 1, orders: 16, levels: 16 },
        ..subscriber::EngineConfig::default()
    });
    let context = engine.context(clock.now());
    // An hour after the start, so that every line is due.
    let fixed = protocol::time::Nanos(schedule.start_ns.saturating_add(3_600_000_000_000));
    let room = COST_LINES + 64;
    let hindrance = Hindrance::default();
    let mut recorder = Recorder::new(move || fixed, schedule, room, Verified::default(), hindrance);
    let record =
        protocol::record::Record::new(protocol::record::Kind::STATISTIC, protocol::record::InstrumentId::CHANNEL);
    let path = protocol::run::LanePath::new(Lane::new(0), protocol::run::Carrier::Local);
    let mut per_line = Histogram::<u64>::new(3).expect("bounds are legal");
    let mut per_read = Histogram::<u64>::new(3).expect("bounds are legal");
    let batch = 100;
    for round in 0..(COST_LINES / batch) as u64 {
        let began = clock.now();
        for i in 0..batch as u64 {
            let mut record = record;
            record.venue_seq.set((schedule.first_ordinal + round * batch as u64 + i) as u32);
            let stamp =
                protocol::line::Stamp::new(Epoch(1), protocol::line::SequenceNumber(round * batch as u64 + i + 1));
            let update = subscriber::Update { record: &record, stamp, ts_publish: None, path };
            recorder.on_record(&context, std::hint::black_box(&update));
        }
        let middle = clock.now();
        for _ in 0..batch {
            std::hint::black_box(clock.now());
        }
        let end = clock.now();
        per_line.saturating_record(middle.since(began).max(0) as u64);
        per_read.saturating_record(end.since(middle).max(0) as u64);
    }
    let median = |histogram: &Histogram<u64>| histogram.value_at_quantile(0.5) as f64 / batch as f64;
    (median(&per_line), median(&per_read))
}
