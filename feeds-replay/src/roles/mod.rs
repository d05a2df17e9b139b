//! The two kinds of child process: one publishes, one subscribes and measures.

use std::io::{self, BufRead, Cursor, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use protocol::book::{BookState, BooksConfig, Start as BookStart};
use protocol::channel::ChannelConfig;
use protocol::line::Epoch;
use protocol::log::{Recorder, Role};
use protocol::record::{ChannelId, Lane};
use publisher::date::{SessionDate, session_date};
use publisher::drive::{Ending, drive};
use publisher::feed::FeedSource;
use publisher::filter::Filtered;
use publisher::input::PRELOAD_BYTES;
use publisher::itch::{BinaryFile, FramingOptions, Normaliser, NormaliserOptions};
use publisher::open::{FeedOptions, open_feeds};
use publisher::pace::Schedule;
use publisher::pipeline::Pipeline;
use publisher::publisher::{Publisher, PublisherConfig};
use publisher::turns::{IdleGaps, off_core_ns};
use publisher::venue::{Venue, VenueOptions};
use serde::Serialize;
use serde::de::DeserializeOwned;
use subscriber::{Builder, Subscriber};
use transport::clock::{Clock, IdleStrategy};
use transport::log::{LogKeeper, LogSink, LogTx};
use transport::shm::RingOptions;
use transport::udp::{Interface, UdpOptions, UdpRx, UdpTx};
use transport::{LaneRx, LaneTx, RingWriter};

use crate::generate::{GenerateOptions, generate};
use crate::measure::Meter;
use crate::spec::{
    ControlAt, Feed, PathReport, Percentiles, PublisherReport, Ready, Report, Spec, Start, SubscriberReport, Transport,
};

#[cfg(feature = "rdma")]
pub(crate) mod rdma;

/// Date of a generated day: it has to have one, and this one cannot be mistaken for a real capture's.
pub(crate) const GENERATED_DATE: &str = "2000-01-03";
/// How long the end of the stream is announced.
pub(crate) const LINGER_NS: u64 = 300_000_000;
/// A sign of life at least this often.
pub(crate) const HEARTBEAT_NS: u64 = 10_000_000;
/// Messages per book digest.
pub(crate) const DIGEST_EVERY: u32 = 64;
/// The channel's number; the group and the port already keep runs apart.
pub(crate) const CHANNEL: ChannelId = ChannelId::new(1);

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Runs the child that `role` names to its end, and says its report on standard output. Returns whether it could do its
/// work.
pub fn run(role: &str, spec: &str) -> bool {
    if role == "echo" {
        let outcome = crate::ping::echo(spec);
        return outcome.map_err(|error| say(&Report::Failed(error.to_string()))).is_ok();
    }
    if role == "flat-out" {
        return crate::compare::flat_out(spec).map_err(|error| say(&Report::Failed(error.to_string()))).is_ok();
    }
    if let Some(role) = role.strip_prefix("sla-") {
        return crate::sla::roles::run(role, spec);
    }
    let outcome = serde_json::from_str::<Spec>(spec).map_err(Failure::from).and_then(|spec| match role {
        "publisher" => publish(&spec).map(Report::Publisher),
        "subscriber" => subscribe(&spec).map(Report::Subscriber),
        other => Err(format!("there is no role {other:?}").into()),
    });
    let (report, fine) = match outcome {
        Ok(report) => (report, true),
        Err(error) => (Report::Failed(error.to_string()), false),
    };
    say(&report).is_ok() && fine
}

pub(crate) fn say(what: &impl Serialize) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, what)?;
    out.write_all(b"\n")?;
    out.flush()?;
    Ok(())
}

pub(crate) fn hear<T: DeserializeOwned>() -> Result<T, Failure> {
    let mut line = String::new();
    if io::stdin().lock().read_line(&mut line)? == 0 {
        return Err("the parent process went away before the run began".into());
    }
    Ok(serde_json::from_str(&line)?)
}

/// A flag that is set by SIGTERM, and (by [`stop_with_parent`]) when the parent closes its end or says anything more.
///
/// Ctrl-C reaches every process of the terminal, and means the parent: it stops the publisher, whose end of stream then
/// stops the subscriber. A subscriber that stopped by itself would leave lines behind that nobody could account for.
pub(crate) fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::clone(&stop))?;
    // A flag that nobody reads: the signal does nothing.
    signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::default())?;
    Ok(stop)
}

pub(crate) fn stop_with_parent(stop: &Arc<AtomicBool>) {
    let stop = Arc::clone(stop);
    std::thread::spawn(move || {
        let mut line = String::new();
        // Whatever comes, and the end of the input too, means: stop. Relaxed: the flag carries nothing but itself.
        let _ = io::stdin().lock().read_line(&mut line);
        stop.store(true, Ordering::Relaxed);
    });
}

pub(crate) fn books(spec: &Spec) -> BooksConfig {
    let (instruments, orders, levels) = spec.books;
    BooksConfig { instruments, orders, levels }
}

pub(crate) fn book_start(spec: &Spec) -> BookStart {
    match &spec.feed {
        Feed::File { natural: true, .. } => BookStart::Natural,
        _ => BookStart::Strict,
    }
}

/// Pins this thread if the run has a core for it; what cannot be is noted, and the run goes on.
pub(crate) fn pin(core: Option<usize>, notes: &mut Vec<String>) {
    if let Some(core) = core
        && let Err(error) = publisher::pin::pin(core)
    {
        notes.push(format!("not pinned: {error}"));
    }
}

fn idle(spec: &Spec) -> IdleStrategy {
    if spec.cores.is_some() { IdleStrategy::Spin } else { IdleStrategy::Yield }
}

pub(crate) fn udp_options(spec: &Spec) -> UdpOptions {
    let mut options = UdpOptions::new(spec.group, spec.port, Interface::LOOPBACK);
    options.ttl = 0;
    options
}

/// The log of one process of a run, if it is to have one. The role and the transport are in its name.
fn open_log(spec: &Spec, role: Role) -> Result<Option<(Recorder<LogSink>, LogKeeper)>, Failure> {
    let Some(folder) = &spec.log else { return Ok(None) };
    let path = folder.join(format!("{}-{}.log", spec.transport.name(), role.name()));
    Ok(Some(transport::log::open(&path, role, &spec.channel, 0)?))
}

fn publish(spec: &Spec) -> Result<PublisherReport, Failure> {
    match &spec.feed {
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
            let date = session_date(Some(GENERATED_DATE), None, Path::new("generated"))?;
            let framing = FramingOptions::default();
            let source = BinaryFile::from_reader(Cursor::new(day), Path::new("the generated day"), framing);
            publish_from(spec, source, Normaliser::new(NormaliserOptions::default(), date), date)
        }
        Feed::File { path, more, kind, session, date, lenient, full, filter, .. } => {
            let options = FeedOptions {
                feed: kind.as_deref().map(str::parse).transpose()?,
                lenient: *lenient,
                session: session.clone(),
                preload: Some(PRELOAD_BYTES),
            };
            let paths = [std::slice::from_ref(path), more].concat();
            let feed = open_feeds(&paths, &options)?;
            let date = feed.session_date(date.as_deref())?;
            let venue = feed.venue(date, VenueOptions { full: *full, ..VenueOptions::default() });
            publish_from(spec, feed, Filtered::new(venue, filter.clone()), date)
        }
    }
}

fn publish_from<S: FeedSource, V: Venue>(
    spec: &Spec,
    source: S,
    venue: V,
    date: SessionDate,
) -> Result<PublisherReport, Failure> {
    let mut notes = Vec::new();
    pin(spec.cores.map(|cores| cores.0), &mut notes);
    let stop = stop_flag()?;
    let clock = Clock::from_parts(&spec.clock.parse()?)?;
    let config = ChannelConfig { books: books(spec), start: book_start(spec), digest_every: DIGEST_EVERY };
    let epoch = Epoch(1);
    let mut pipeline = Pipeline::new(source, venue, epoch, config);
    // A fault in the first message is reported by the run itself, with nothing published before it.
    let first_ns = pipeline.peek().ok().flatten().map_or(0, |due| due.time.0);
    let first = (first_ns, pipeline.first_ordinal());
    let options = RingOptions::new(&spec.channel, CHANNEL, Lane::new(0), epoch, spec.ring_lines);
    let ring = RingWriter::create(&options)?;
    match spec.transport {
        Transport::Shm => publish_over(spec, pipeline, ring, (), None, clock, &stop, first, date, notes),
        Transport::Udp => {
            let lane = UdpTx::open(&udp_options(spec), &ring)?;
            publish_over(spec, pipeline, ring, lane, None, clock, &stop, first, date, notes)
        }
        #[cfg(feature = "rdma")]
        Transport::RdmaUd | Transport::RdmaRc | Transport::Rdma => {
            let (lanes, server, control) = rdma::serve(spec, &ring, clock)?;
            let report = publish_over(spec, pipeline, ring, lanes, Some(control), clock, &stop, first, date, notes);
            drop(server);
            report
        }
        #[cfg(not(feature = "rdma"))]
        Transport::RdmaUd | Transport::RdmaRc | Transport::Rdma => Err(no_rdma()),
    }
}

#[allow(clippy::too_many_arguments)]
fn publish_over<S: FeedSource, V: Venue, L: LaneTx>(
    spec: &Spec,
    pipeline: Pipeline<S, V>,
    ring: RingWriter,
    lanes: L,
    control: Option<ControlAt>,
    clock: Clock,
    stop: &Arc<AtomicBool>,
    first: (u64, u64),
    date: SessionDate,
    mut notes: Vec<String>,
) -> Result<PublisherReport, Failure> {
    say(&Ready {
        pid: std::process::id(),
        first_ns: first.0,
        first_ordinal: first.1,
        date: date.to_string(),
        control,
        notes: std::mem::take(&mut notes),
    })?;
    let Start { schedule } = hear()?;
    stop_with_parent(stop);
    let config = PublisherConfig { schedule, heartbeat_ns: HEARTBEAT_NS };
    let (log, keeper) = open_log(spec, Role::Publisher)?.unzip();
    let log = log.map(|recorder| LogTx::new(recorder, &ring));
    let mut publisher = Publisher::new(pipeline, ring, (lanes, log), config);
    let off_core = off_core_ns();
    let outcome = drive(&mut publisher, clock, idle(spec), stop, LINGER_NS);
    let off_core = off_core_since(off_core);
    let stats = publisher.stats();
    let venue = publisher.pipeline().venue().counters();
    if let Some(warning) = publisher.pipeline().source().warning() {
        notes.push(format!("taken for the end of the capture, as asked: {warning}"));
    }
    notes.extend(publisher.pipeline().source().remarks());
    if publisher.pipeline().channel().books().grown() > 0 {
        notes.push("the publisher's books outgrew their configured size and allocated during the run".into());
    }
    let took_ns = stats.first.map_or(0, |first| stats.last.0 - first.0);
    let report = PublisherReport {
        messages: stats.messages,
        published: stats.lines,
        digests: publisher.pipeline().channel().digests_sent(),
        took_ns,
        planned_ns: publisher.planned_ns(),
        lag: Percentiles::of(&stats.lag),
        jitter_p999_ns: publisher.gaps().percentile(99.9),
        jitter_max_ns: publisher.gaps().max(),
        off_core_ns: off_core,
        send_drops: publisher.lanes().lines_unsent(),
        refused: venue.unknown_types + venue.bad_lengths() + venue.empty_messages,
        unknown_orders: venue.unknown_orders,
        suspect_books: publisher.pipeline().channel().state_changes(BookState::Suspect),
        clock_drift_ns: clock.check().drift_ns,
        error: outcome.as_ref().err().map(ToString::to_string),
        stopped: matches!(outcome, Ok(Ending::Stopped)),
        notes,
    };
    // Its log is closed with it.
    drop(publisher);
    keeper.map_or(Ok(()), LogKeeper::finish)?;
    Ok(report)
}

fn subscribe(spec: &Spec) -> Result<SubscriberReport, Failure> {
    let clock = Clock::from_parts(&spec.clock.parse()?)?;
    let builder = Builder::new(&spec.channel).books(books(spec)).start(book_start(spec)).clock(clock);
    match spec.transport {
        Transport::Shm => {
            let subscriber = builder.shared_memory()?;
            subscribe_over(spec, subscriber, clock, Vec::new(), |_| (0, 0, Vec::new()))
        }
        Transport::Udp => {
            let subscriber = builder.udp(&udp_options(spec), CHANNEL)?;
            let mut notes = Vec::new();
            let buffer = subscriber.rx().receive_buffer();
            if buffer.is_short() {
                notes.push(format!(
                    "the kernel granted {} bytes of receive buffer of the {} asked for: raise net.core.rmem_max",
                    buffer.granted, buffer.requested
                ));
            }
            subscribe_over(spec, subscriber, clock, notes, |rx: &UdpRx| {
                (rx.counters().kernel_drops, rx.counters().refused_total(), Vec::new())
            })
        }
        #[cfg(feature = "rdma")]
        Transport::RdmaUd | Transport::RdmaRc | Transport::Rdma => {
            let subscriber = rdma::subscribe(spec, builder)?;
            subscribe_over(spec, subscriber, clock, Vec::new(), |rx| {
                let (starved, refused) = rdma::losses(rx);
                (starved, refused, rdma::news(rx))
            })
        }
        #[cfg(not(feature = "rdma"))]
        Transport::RdmaUd | Transport::RdmaRc | Transport::Rdma => Err(no_rdma()),
    }
}

fn subscribe_over<R: LaneRx>(
    spec: &Spec,
    mut subscriber: Subscriber<R>,
    clock: Clock,
    mut notes: Vec<String>,
    losses: impl Fn(&R) -> (u64, u64, Vec<String>),
) -> Result<SubscriberReport, Failure> {
    pin(spec.cores.map(|cores| cores.1), &mut notes);
    let (recorder, keeper) = open_log(spec, Role::Subscriber)?.unzip();
    if let Some(recorder) = recorder {
        subscriber = subscriber.logged(recorder);
    }
    let stop = stop_flag()?;
    // One turn now, so that a ring that is there is attached to before the first line is written.
    subscriber.poll(&mut ());
    say(&Ready {
        pid: std::process::id(),
        first_ns: 0,
        first_ordinal: 1,
        date: String::new(),
        control: None,
        notes: std::mem::take(&mut notes),
    })?;
    let Start { schedule } = hear()?;
    stop_with_parent(&stop);
    let mut meter = Meter::new(clock, schedule);
    let mut gaps = IdleGaps::new();
    let idle = idle(spec);
    let off_core = off_core_ns();
    let mut work = 1;
    while !subscriber.has_ended() && !stop.load(Ordering::Relaxed) {
        let now = clock.now();
        gaps.turn(now, work);
        work = subscriber.poll_at(now, &mut meter);
        idle.idle(work);
    }
    let off_core = off_core_since(off_core);
    let (kernel_drops, refused_packets, news) = losses(subscriber.rx());
    notes.extend(news);
    let paths = subscriber.paths();
    let paths = paths.map(|(path, counts)| PathReport {
        name: path.carrier.name().to_owned(),
        won: counts.won,
        duplicates: counts.duplicates,
    });
    let paths = paths.collect();
    let engine = subscriber.engine();
    let counts = subscriber.counts();
    let digests = engine.digest_counts();
    if engine.books_grown() > 0 {
        notes.push("the subscriber's books outgrew their configured size and allocated during the run".into());
    }
    let report = SubscriberReport {
        delivered: counts.delivered,
        lost: counts.lost,
        gaps: counts.gaps,
        holes_filled: counts.holes_filled,
        lines_filled: counts.filled,
        paths,
        events: engine.counts().events,
        instruments: engine.context(clock.now()).instruments().count() as u64,
        digests_compared: digests.compared,
        digests_disagreed: digests.disagreed,
        digests_stale: digests.compared_stale,
        visible_from_intended: meter.visible_from_intended(),
        complete_from_intended: meter.complete_from_intended(),
        visible_from_actual: meter.visible_from_actual(),
        publish_time_unknown: engine.counts().publish_time_unknown,
        negative: meter.negative(),
        jitter_p999_ns: gaps.percentile(99.9),
        jitter_max_ns: gaps.max(),
        off_core_ns: off_core,
        kernel_drops,
        refused_packets,
        ended: subscriber.has_ended(),
        notes,
    };
    drop(subscriber);
    keeper.map_or(Ok(()), LogKeeper::finish)?;
    Ok(report)
}

#[cfg(not(feature = "rdma"))]
pub(crate) fn no_rdma() -> Failure {
    transport::NO_RDMA.into()
}

pub(crate) fn off_core_since(before: Option<u64>) -> u64 {
    before.zip(off_core_ns()).map_or(0, |(before, now)| now.saturating_sub(before))
}

/// The plan of a run that begins at `start_ns`, of a publisher that said that it is ready.
pub fn schedule(spec: &Spec, start_ns: u64, published: &Ready) -> Schedule {
    let (first_ns, first_ordinal) = (published.first_ns, published.first_ordinal);
    Schedule { pace: spec.pace, start_ns, first_ns, first_ordinal }
}
