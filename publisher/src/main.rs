//! The `publisher` command.

#![forbid(unsafe_code)]
// Those of the standard library panic where nobody reads any more; those of `cli` do not.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{CommandFactory, Parser, Subcommand};
use cli::{eprintln, println};
use protocol::arbiter::Delivery;
use protocol::control::{ChannelInfo, RdmaInfo, SharedMemoryInfo, UdpInfo};
use protocol::line::{Epoch, Line, SequenceNumber, Stamp};
use protocol::log::{Recorder, Role};
use protocol::record::{ChannelId, Lane};
use protocol::recovery::Responder;
use protocol::run::{Carrier, LanePath};
use protocol::time::Nanos;
use publisher::admission::{Admission, Definitions, Rings};
use publisher::config::{Config, RdmaSection, StartSetting};
use publisher::date::session_date;
use publisher::drive::{Ending, drive};
use publisher::feed::FeedSource;
use publisher::input::PRELOAD_BYTES;
use publisher::itch::Market;
use publisher::join::Partner;
use publisher::open::{FeedOptions, OpenFeed, open_feed};
use publisher::pace::Schedule;
use publisher::pipeline::Pipeline;
use publisher::publisher::{Publisher, PublisherConfig};
use publisher::recovery::{self, RecoveryServer};
use publisher::venue::{AnyVenue, Venue, VenueOptions};
use serde_json::json;
use transport::clock::{Clock, IdleStrategy};
use transport::log::{LogKeeper, LogSink, LogTx};
use transport::reply::{ReplyRings, ReplyTx};
use transport::ring::StartAt;
use transport::shm::{self, RingOptions};
use transport::udp::UdpTx;
use transport::{LaneTx, Pages, RingWriter};

/// Publishes a market-data feed: into shared memory for this host, and by UDP multicast beside it.
#[derive(Parser)]
#[command(
    version,
    about,
    after_help = "\
Examples:
  publisher check-config itch.toml      say what is wrong with a configuration, and what it means
  publisher run itch.toml               publish
  publisher counters itch               what a running publisher has done so far
  publisher devices                     which RDMA devices this host has, and what they can run
  publisher channels                    which channels this host's shared memory holds

A configuration, with everything that must be said and some that may be:
  [channel]
  name = \"itch\"
  [feed]
  path = \"12302019.NASDAQ_ITCH50.gz\"
  pace = { speed = 1.0 }               # or { rate = 100000.0 } messages a second, or \"max\"
  [udp]                                # leave out for shared memory alone
  group = \"239.255.7.1\"
  port = 30001
  interface = \"127.0.0.1\"
  [partner]                            # the other publisher's datagrams, if it is on another host
  group = \"239.255.7.2\"
  port = 30001
  interface = \"127.0.0.1\"
  [rdma]                               # needs a build with --features rdma
  address = \"10.0.0.1\"               # of the card's port
  group = \"239.255.8.1\"              # leave out for writes into subscribers' rings alone
  [control]                            # where subscribers ask, and offer their rings
  listen = \"10.0.0.1:31000\"
  tokens = [\"a secret of ours\"]
  [recovery]                           # where subscribers ask for what they lost; needs [control]
  listen = \"10.0.0.1:31001\"
  [run]
  core = 1"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Publish what a configuration says, until the feed ends or Ctrl-C.
    #[command(after_help = "\
Examples:
  publisher run itch.toml
  publisher run itch.toml --json | jq .sender_lag_ns      what became of it, for a program
  publisher run itch.toml --log itch.log                  and write down what was published, to be checked afterwards
  publisher run itch.toml --epoch 7                       in an epoch of your choice; subscribers drop older ones")]
    Run {
        /// The TOML file.
        config: PathBuf,
        /// Publish in this epoch, instead of raising the one kept in the state directory.
        #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
        epoch: Option<u16>,
        /// Write down what is published, for 'feeds-replay check'. A log that is there is continued.
        #[arg(long, value_name = "FILE")]
        log: Option<PathBuf>,
        /// Write down what the recovery server reads, likewise.
        #[arg(long, value_name = "FILE")]
        recovery_log: Option<PathBuf>,
        /// Print the result as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Check a configuration and say what it means, without publishing.
    #[command(after_help = "\
Examples:
  publisher check-config itch.toml
  publisher check-config itch.toml --json | jq .udp       the multicast group, for a program")]
    CheckConfig {
        /// The TOML file.
        config: PathBuf,
        /// Print it as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show the counters of a running publisher.
    #[command(after_help = "\
Examples:
  publisher counters itch
  publisher counters itch --lane 1                        the second publisher of the channel
  watch -n 1 publisher counters itch                      as they change")]
    Counters {
        /// The channel's name.
        name: String,
        /// Which path of the channel.
        #[arg(long, default_value_t = 0)]
        lane: u16,
        /// Print them as JSON.
        #[arg(long)]
        json: bool,
    },
    /// List this host's RDMA devices, and say which of RoCE v2, InfiniBand and iWARP it can run and what is missing.
    #[command(after_help = "\
Examples:
  publisher devices
  publisher devices --json                                for a program")]
    Devices {
        /// Print them as JSON.
        #[arg(long)]
        json: bool,
    },
    /// List the channels in this host's shared memory.
    #[command(after_help = "\
Examples:
  publisher channels
  publisher channels --json | jq -r '.[] | select(.state == \"alive\").name'      the names of those that are alive")]
    Channels {
        /// Print them as JSON.
        #[arg(long)]
        json: bool,
    },
    #[command(flatten)]
    Manual(cli::Manual),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Run { config, epoch, log, recovery_log, json } => {
            let logs = LogFiles { publisher: log, recovery: recovery_log };
            run(&config, epoch.map(Epoch), &logs, json)
        }
        Command::CheckConfig { config, json } => check_config(&config, json),
        Command::Counters { name, lane, json } => counters(&name, Lane::new(lane), json),
        Command::Devices { json } => publisher::devices::command(json).map_err(Failure::from),
        Command::Channels { json } => channels(json),
        Command::Manual(manual) => manual.print(Arguments::command(), &mut std::io::stdout()).map_err(Failure::from),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("publisher: {error}");
            ExitCode::FAILURE
        }
    }
}

/// How long a place of the ring that was written may fail to verify for the control channel's own reader, ns.
const HEDGE_NS: u64 = 200_000;

/// How long the recovery server sleeps when it has nothing to do and no core of its own. A ring of 65,536 lines holds 65 ms of
/// a million lines a second.
const RECOVERY_NAP: Duration = Duration::from_micros(100);

type Failure = Box<dyn std::error::Error>;
type FeedPipeline = Pipeline<OpenFeed, AnyVenue>;

/// Where what happens is written down.
struct LogFiles {
    publisher: Option<PathBuf>,
    recovery: Option<PathBuf>,
}

fn run(path: &Path, epoch: Option<Epoch>, logs: &LogFiles, as_json: bool) -> Result<(), Failure> {
    let config = Config::load(path)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let options =
        FeedOptions { lenient: config.feed.lenient, session: config.feed.session.clone(), ..FeedOptions::default() };
    let date = open_feed(&config.feed.path, &options)?.session_date(config.feed.date.as_deref())?;
    // What can refuse does so before an epoch is spent, and before anything is said to be published.
    if let Some(udp) = &config.udp {
        udp.options().check()?;
    }
    #[cfg(feature = "rdma")]
    if let Some(rdma) = &config.rdma {
        rdma.options(config.run.heartbeat_ms).check()?;
    }
    shm::check_free(config.ring.directory.as_deref(), &config.channel.name, Lane::new(config.channel.lane))?;
    let clock = Clock::calibrate();
    // With --epoch nothing is kept, so nothing is locked.
    let (state_dir, name) = (&config.run.state_dir, &config.channel.name);
    let mut starting = epoch.is_none().then(|| publisher::epoch::lock(state_dir, name)).transpose()?;
    let partner = Partner::find(&config, clock)?;
    let epoch = match (epoch, &partner) {
        (asked, Some(partner)) => {
            partner.check_epoch(asked)?;
            if asked.is_none() {
                publisher::epoch::adopt(state_dir, name, partner.epoch)?;
            }
            // Joining may take a while, and keeps nobody.
            starting = None;
            partner.epoch
        }
        (Some(epoch), None) => epoch,
        (None, None) => publisher::epoch::raise(state_dir, name)?,
    };
    let source = open_feed(&config.feed.path, &FeedOptions { preload: Some(PRELOAD_BYTES), ..options })?;
    if !source.is_preloaded() {
        eprintln!("note: the capture is read while it is published; its reads will show as sender lag");
    }
    let market = Market::from_venue(&config.feed.market).ok_or("the market was checked with the configuration")?;
    let venue = source.venue(date, VenueOptions { market, full: config.feed.full });
    let mut pipeline = Pipeline::new(source, venue, epoch, config.channel_config());
    let first = pipeline.peek()?;
    let mut replayed = Replayed::new(&config);
    let joined_start = match partner {
        Some(partner) => {
            eprintln!("lane {} is alive in epoch {}: replaying the feed to join it", partner.lane.0, epoch.0);
            replayed.begin(Stamp::new(epoch, SequenceNumber::FIRST));
            let has_digests = config.run.digest_every > 0;
            let beside = |stamp, line: &Line| replayed.on_line(stamp, line);
            partner.join(&mut pipeline, config.feed.pace, has_digests, clock, &stop, beside)?
        }
        None => None,
    };

    let first_line = pipeline.channel().next().sequence();
    let ring = RingWriter::create(&RingOptions {
        dir: config.ring.directory.clone(),
        first: first_line,
        ..RingOptions::new(
            &config.channel.name,
            ChannelId::new(config.channel.id),
            Lane::new(config.channel.lane),
            epoch,
            config.ring.lines,
        )
    })?;
    drop(starting);
    if first_line != SequenceNumber::FIRST {
        eprintln!("joined: publishing from sequence {}", first_line.0);
    }
    eprintln!(
        "publishing {} as channel '{}', lane {}, epoch {}: {date}; ring of {} lines on {}",
        config.feed.path.display(),
        config.channel.name,
        config.channel.lane,
        epoch.0,
        ring.capacity(),
        ring.pages()
    );
    if ring.pages() == Pages::Base && config.ring.lines * 64 >= 2 << 20 {
        eprintln!(
            "note: no huge pages could be had for the ring; to have them, reserve some (sysctl vm.nr_hugepages=N) and mount \
             hugetlbfs where this user may write"
        );
    }
    let schedule = Schedule {
        pace: config.feed.pace,
        // Time for subscribers that wait for this publisher to find it before the first line; one that joined goes on in
        // step with the lane that it joined.
        start_ns: joined_start.unwrap_or_else(|| clock.now().plus(config.run.lead_ms * 1_000_000)).0,
        first_ns: first.map_or(0, |due| due.time.0),
        first_ordinal: pipeline.first_ordinal(),
    };
    let loop_config = PublisherConfig { schedule, heartbeat_ns: config.run.heartbeat_ms * 1_000_000 };
    let udp = config.udp.as_ref().map(|udp| UdpTx::open(&udp.options(), &ring)).transpose()?;
    if logs.recovery.is_some() && config.recovery.is_none() {
        return Err("--recovery-log is for a publisher with [recovery]".into());
    }
    let open = |path: &PathBuf, role| transport::log::open(path, role, &config.channel.name, config.channel.lane);
    let (log, keeper) = logs.publisher.as_ref().map(|path| open(path, Role::Publisher)).transpose()?.unzip();
    let recovery_log = logs.recovery.as_ref().map(|path| open(path, Role::Recovery)).transpose()?;
    let log = log.map(|recorder| LogTx::new(recorder, &ring));
    let logs = OpenLogs { keeper, recovery: recovery_log };
    let prepared =
        Prepared { config: &config, pipeline, ring, replayed, logs, loop_config, clock, stop: &stop, as_json };
    #[cfg(feature = "rdma")]
    if let Some(rdma) = &config.rdma {
        let recovering = prepared.config.recovery.map_or(0, |recovery| recovery.subscribers);
        let options = rdma.options(config.run.heartbeat_ms);
        let (lanes, replies, door) = publisher::rdma::open(&options, &prepared.ring, recovering)?;
        return finish(prepared, ((lanes, udp), log), (door, replies));
    }
    match udp {
        None => finish(prepared, ((), log), ((), ())),
        Some(lane) => finish(prepared, (lane, log), ((), ())),
    }
}

/// What stands beside the loop and must know the lines before the ring's first, where some were replayed to join another lane.
struct Replayed {
    responder: Option<Responder>,
    definitions: Definitions,
}

impl Replayed {
    fn new(config: &Config) -> Replayed {
        let responder = config.recovery.as_ref().map(|section| recovery::responder(section, config.channel_config()));
        Replayed { responder, definitions: Definitions::default() }
    }

    fn begin(&mut self, first: Stamp) {
        if let Some(responder) = &mut self.responder {
            responder.on_joined(first);
        }
    }

    fn on_line(&mut self, stamp: Stamp, line: &Line) {
        self.definitions.on_line(stamp, &line.record);
        if let Some(responder) = &mut self.responder {
            let path = LanePath::new(Lane::new(0), Carrier::Local);
            responder.on_lines(stamp, std::slice::from_ref(line), path, None);
        }
    }
}

/// Says on standard error what happened to RDMA subscribers and lanes.
fn say_messages(rings: &mut impl Rings) {
    while let Some(message) = rings.next_message() {
        eprintln!("{message}");
    }
}

/// Logs that are being written; the publisher's own is a lane.
struct OpenLogs {
    keeper: Option<LogKeeper>,
    recovery: Option<(Recorder<LogSink>, LogKeeper)>,
}

/// All that a run needs but its lanes, which settle its type.
struct Prepared<'a> {
    config: &'a Config,
    pipeline: FeedPipeline,
    ring: RingWriter,
    replayed: Replayed,
    logs: OpenLogs,
    loop_config: PublisherConfig,
    clock: Clock,
    stop: &'a AtomicBool,
    as_json: bool,
}

/// Runs the loop on a thread of its own, with its lanes settled as a type, while this one shows how far it is.
fn finish<L: LaneTx + Send, R: Rings + Send, W: ReplyRings + Send>(
    prepared: Prepared<'_>,
    lanes: L,
    (mut rings, replies): (R, W),
) -> Result<(), Failure> {
    let Prepared { config, pipeline, ring, replayed, mut logs, loop_config, clock, stop, as_json } = prepared;
    let name = config.channel.name.clone();
    let ring_path = ring.path().map(Path::to_owned);
    let mut keepers: Vec<LogKeeper> = logs.keeper.take().into_iter().collect();
    let (recovery, door) = match (&config.recovery, replayed.responder) {
        (Some(section), Some(responder)) => {
            let (mut server, door) = recovery::open_with(section, &ring, config.channel_config(), responder, replies)?;
            if let Some((recorder, keeper)) = logs.recovery.take() {
                server = server.logged(recorder);
                keepers.push(keeper);
            }
            eprintln!("recovery server: subscribers of the control channel ask at {}", door.info().at);
            (Some((server, section.core)), Some(door))
        }
        _ => (None, None),
    };
    // What turns beside the loop, on a thread of its own.
    let beside: Option<Box<dyn FnMut(Nanos) -> usize + Send>> = match &config.control {
        None if config.rdma.is_none() => None,
        None => Some(Box::new(move |now| {
            let work = rings.do_work(now);
            say_messages(&mut rings);
            work
        })),
        Some(control) => {
            let reader = ring.reader(StartAt::Oldest, HEDGE_NS);
            let channel = channel_info(config, &ring, rings.info());
            let mut admission = Admission::bind(control.listen, control.tokens.clone(), channel, reader, rings)?
                .with_definitions(replayed.definitions)
                .with_counters(ring.counters());
            if let Some(door) = door {
                admission = admission.with_recovery(door);
            }
            eprintln!("control channel: subscribers ask at {}", admission.local_address()?);
            Some(Box::new(move |now| {
                let work = admission.do_work(now);
                say_messages(admission.rings_mut());
                work
            }))
        }
    };
    let idle = if config.run.yield_when_idle { IdleStrategy::Yield } else { IdleStrategy::Spin };
    let publisher = Publisher::new(pipeline, ring, lanes, loop_config);
    let over = &AtomicBool::new(false);
    let (publisher, outcome) = std::thread::scope(|scope| {
        let worker = scope.spawn(move || {
            if let Some(core) = config.run.core
                && let Err(error) = publisher::pin::pin(core)
            {
                eprintln!("publisher: not pinned: {error}");
            }
            let mut publisher = publisher;
            let outcome = drive(&mut publisher, clock, idle, stop, config.run.linger_ms * 1_000_000);
            (publisher, outcome)
        });
        let turning = beside.map(|mut turn| {
            scope.spawn(move || {
                // Relaxed: the flag carries nothing but itself.
                while !over.load(Ordering::Relaxed) {
                    if turn(clock.now()) == 0 {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
            })
        });
        let recovering = recovery.map(|(server, core)| scope.spawn(move || turn_recovery(server, core, clock, over)));
        let mut shown = Instant::now();
        let mut is_logging = true;
        while !worker.is_finished() {
            std::thread::sleep(Duration::from_millis(50));
            if is_logging && keepers.iter().any(LogKeeper::is_over) {
                is_logging = false;
                eprintln!("publisher: a log is not written any more; why is said at the end");
            }
            if shown.elapsed() >= Duration::from_secs(2) && ring_path.is_some() {
                shown = Instant::now();
                let directory = ring_path.as_ref().and_then(|path| path.parent()).unwrap_or(Path::new("."));
                if let Ok(counters) = shm::read_counters_in(directory, &name, Lane::new(config.channel.lane)) {
                    let line: Vec<String> = counters.iter().map(|(name, value)| format!("{name} {value}")).collect();
                    eprintln!("{}", line.join(", "));
                }
            }
        }
        over.store(true, Ordering::Relaxed);
        if let Some(turning) = turning {
            turning.join().expect("what turns beside does not panic; if it did, its message stands above");
        }
        if let Some(recovering) = recovering {
            recovering.join().expect("the recovery server does not panic; if it did, its message stands above");
        }
        worker.join().expect("the loop does not panic; if it did, its message stands above")
    });
    let stats = publisher.stats();
    let venue = publisher.pipeline().venue().counters();
    let lag = |quantile| stats.lag.value_at_quantile(quantile);
    if as_json {
        println!(
            "{}",
            json!({
                "messages": stats.messages,
                "published": stats.lines,
                "digests": publisher.pipeline().channel().digests_sent(),
                "unknown_types": venue.unknown_types,
                "bad_lengths": venue.bad_lengths(),
                "unknown_orders": venue.unknown_orders,
                "lines_unsent": publisher.lanes().lines_unsent(),
                "sender_lag_ns": {"p50": lag(0.5), "p99": lag(0.99), "p999": lag(0.999), "max": stats.lag.max(), "count": stats.lag.len()},
                "stopped": matches!(outcome, Ok(Ending::Stopped)),
                "error": outcome.as_ref().err().map(ToString::to_string),
                "venue_missing": publisher.pipeline().source().mold_stats().map(|stats| stats.followed_missing()),
            })
        );
    } else {
        println!(
            "{}: {} messages became {} lines, {} of them book digests",
            match outcome {
                Ok(Ending::FeedEnded) => "the feed has ended",
                Ok(Ending::Stopped) => "stopped as asked",
                Err(_) => "the feed failed",
            },
            stats.messages,
            stats.lines,
            publisher.pipeline().channel().digests_sent()
        );
        if venue.unknown_types + venue.bad_lengths() + venue.unknown_orders > 0 {
            println!(
                "of the messages {} were of unknown type, {} of wrong length, {} named an unknown order",
                venue.unknown_types,
                venue.bad_lengths(),
                venue.unknown_orders
            );
            for (message_type, count) in venue.unknown_by_type() {
                println!("  type '{}': {count} messages", message_type.escape_ascii());
            }
        }
        for line in publisher.pipeline().source().remarks() {
            println!("{line}");
        }
        if publisher.lanes().lines_unsent() > 0 {
            println!(
                "{} lines were not taken by a lane: its subscribers were told of them as gaps",
                publisher.lanes().lines_unsent()
            );
        }
        if !stats.lag.is_empty() {
            println!(
                "sender lag behind the schedule: p50 {} ns, p99 {} ns, p99.9 {} ns, max {} ns of {} messages",
                lag(0.5),
                lag(0.99),
                lag(0.999),
                stats.lag.max(),
                stats.lag.len()
            );
        }
    }
    if let Some(warning) = publisher.pipeline().source().warning() {
        eprintln!("publisher: taken for the end, as asked: {warning}");
    }
    // Its log is closed with it.
    drop(publisher);
    for keeper in keepers {
        keeper.finish()?;
    }
    outcome.map(|_| ()).map_err(Into::into)
}

/// Turns the recovery server until it is all over. On a core of its own it never sleeps.
fn turn_recovery<W: ReplyRings>(
    mut server: RecoveryServer<ReplyTx, W>,
    core: Option<usize>,
    clock: Clock,
    over: &AtomicBool,
) {
    if let Some(core) = core
        && let Err(error) = publisher::pin::pin(core)
    {
        eprintln!("publisher: the recovery server is not pinned: {error}");
    }
    // Relaxed: the flag carries nothing but itself.
    while !over.load(Ordering::Relaxed) {
        if server.do_work(clock.now()) == 0 {
            match core {
                Some(_) => IdleStrategy::Spin.idle(0),
                None => std::thread::sleep(RECOVERY_NAP),
            }
        }
    }
}

/// What subscribers are told of this channel.
fn channel_info(config: &Config, ring: &RingWriter, rdma: Option<RdmaInfo>) -> ChannelInfo {
    ChannelInfo {
        name: config.channel.name.clone(),
        id: config.channel.id,
        lane: config.channel.lane,
        epoch: ring.epoch().0,
        heartbeat_ns: config.run.heartbeat_ms * 1_000_000,
        natural_start: config.feed.start == StartSetting::Natural,
        shared_memory: ring
            .path()
            .and_then(Path::parent)
            .map(|directory| SharedMemoryInfo { directory: directory.to_owned(), lines: ring.capacity() as u64 }),
        udp: config.udp.as_ref().map(|udp| UdpInfo { group: udp.group, port: udp.port, mtu: udp.mtu }),
        rdma,
        recovery: None,
    }
}

fn rdma_in_words(rdma: &RdmaSection) -> String {
    let from =
        rdma.device.as_ref().map_or_else(|| rdma.address.to_string(), |name| format!("{} on {name}", rdma.address));
    let datagrams = match rdma.group {
        Some(group) => format!("datagrams to {group}, Q_Key {:#x}", rdma.qkey),
        None => "no datagrams".to_owned(),
    };
    format!("from {from}: {datagrams}; writes into the rings of up to {} subscribers", rdma.subscribers)
}

fn check_config(path: &Path, as_json: bool) -> Result<(), Failure> {
    let config = Config::load(path)?;
    let options =
        FeedOptions { lenient: config.feed.lenient, session: config.feed.session.clone(), ..FeedOptions::default() };
    let (feed, date) = match open_feed(&config.feed.path, &options) {
        Ok(feed) => {
            let date = feed.session_date(config.feed.date.as_deref());
            (Ok(format!("{}{}", feed.container(), feed.packing().suffix())), date)
        }
        Err(error) => (Err(error.to_string()), session_date(config.feed.date.as_deref(), None, &config.feed.path)),
    };
    let date = date.map(|date| date.to_string());
    let date = date.map_err(|error| error.to_string());
    let udp = config.udp.as_ref().map_or(Ok(()), |udp| udp.options().check().map_err(|error| error.to_string()));
    #[cfg(feature = "rdma")]
    let rdma = config
        .rdma
        .as_ref()
        .map_or(Ok(()), |rdma| rdma.options(config.run.heartbeat_ms).check().map_err(|error| error.to_string()));
    #[cfg(not(feature = "rdma"))]
    let rdma: Result<(), String> = Ok(());
    let megabytes = config.ring.lines * 64 / (1 << 20);
    if as_json {
        println!(
            "{}",
            json!({
                "channel": config.channel.name, "id": config.channel.id, "lane": config.channel.lane,
                "feed": config.feed.path, "feed_error": feed.as_ref().err(), "date": date.as_ref().ok(), "date_error": date.as_ref().err(),
                "ring_lines": config.ring.lines,
                "udp": config.udp.as_ref().map(|udp| format!("{}:{} on {}", udp.group, udp.port, udp.interface)),
                "udp_error": udp.as_ref().err(),
                "rdma": config.rdma.as_ref().map(rdma_in_words),
                "rdma_error": rdma.as_ref().err(),
                "recovery": config.recovery.map(|recovery| recovery.listen.to_string()),
                "core": config.run.core,
            })
        );
    } else {
        println!("{}: understood; every key is known and every value in range", path.display());
        println!("  channel   '{}', number {}, lane {}", config.channel.name, config.channel.id, config.channel.lane);
        let kind = feed.as_ref().map_or(String::new(), |kind| format!(" ({kind})"));
        println!("  feed      {}{kind}, {}", config.feed.path.display(), config.feed.pace);
        println!("  ring      {} lines, {megabytes} MiB", config.ring.lines);
        match &config.udp {
            Some(udp) => println!(
                "  udp       {}:{} on {}, {} lines a packet, ttl {}",
                udp.group,
                udp.port,
                udp.interface,
                udp.options().lines_per_packet(),
                udp.ttl
            ),
            None => println!("  udp       none"),
        }
        match &config.rdma {
            Some(rdma) => println!("  rdma      {}", rdma_in_words(rdma)),
            None => println!("  rdma      none"),
        }
        match &config.control {
            Some(control) => println!("  control   {}, {} tokens", control.listen, control.tokens.len()),
            None => println!("  control   none: nobody can ask what there is"),
        }
        match &config.recovery {
            Some(recovery) => println!(
                "  recovery  {}, {} lines of history, {} lines a second for each of up to {} subscribers",
                recovery.listen, recovery.history_lines, recovery.lines_per_second, recovery.subscribers
            ),
            None => println!("  recovery  none: what a subscriber loses it has lost"),
        }
        match config.run.core {
            Some(core) => println!("  core      {core}"),
            None => println!("  core      not pinned"),
        }
        if let Ok(date) = &date {
            println!("  date      {date}");
        }
    }
    match feed.map(drop).and(date.map(drop)).and(udp).and(rdma) {
        Err(error) => Err(error.into()),
        Ok(()) => Ok(()),
    }
}

fn counters(name: &str, lane: Lane, as_json: bool) -> Result<(), Failure> {
    let counters = shm::read_counters(name, lane)?;
    if as_json {
        let map: serde_json::Map<String, serde_json::Value> =
            counters.into_iter().map(|(name, value)| (name, value.into())).collect();
        println!("{}", serde_json::Value::Object(map));
    } else {
        for (name, value) in counters {
            println!("{value:>16}  {name}");
        }
    }
    Ok(())
}

fn channels(as_json: bool) -> Result<(), Failure> {
    let rings = shm::list()?;
    if as_json {
        let rows: Vec<_> = rings
            .iter()
            .map(|ring| {
                json!({
                    "name": ring.name, "channel": ring.channel.0.get(), "lane": ring.lane.0.get(), "epoch": ring.epoch.0,
                    "lines": ring.lines, "pid": ring.pid, "state": format!("{:?}", ring.aliveness).to_lowercase(),
                    "path": ring.path,
                })
            })
            .collect();
        println!("{}", serde_json::Value::Array(rows));
        return Ok(());
    }
    if rings.is_empty() {
        println!("no channels in shared memory; start one with 'publisher run CONFIG'");
    }
    for ring in rings {
        println!(
            "{:<20} lane {}  epoch {:<5} {:>9} lines  {:?}, pid {}  {}",
            ring.name,
            ring.lane.0.get(),
            ring.epoch.0,
            ring.lines,
            ring.aliveness,
            ring.pid,
            ring.path.display()
        );
    }
    Ok(())
}
