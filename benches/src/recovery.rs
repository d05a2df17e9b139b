//! What recovery takes: how long one lost packet is missed, how long a late joiner is without books, and what a subscriber
//! that stands still costs the publisher.
//!
//! Ring, control channel, recovery server and subscriber are threads of this process; requests and answers go over real
//! sockets on loopback. Times are from the subscriber's own clock.

use std::io::Cursor;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use hdrhistogram::Histogram;
use protocol::book::BooksConfig;
use protocol::channel::ChannelConfig;
use protocol::control::ChannelInfo;
use protocol::line::{Epoch, Line, SequenceNumber, Stamp};
use protocol::record::{ChannelId, Flags, InstrumentId, Kind, Lane, Record};
use protocol::recovery::{Ask, Connection, Request};
use protocol::sequencer::Sequencer;
use publisher::Pipeline;
use publisher::admission::Admission;
use publisher::config::Config;
use publisher::itch::{BinaryFile, FramingOptions, Normaliser, NormaliserOptions};
use serde::Serialize;
use subscriber::{Builder, Control, RecoveryOptions, Subscriber};
use transport::clock::Clock;
use transport::fault::{Fault, FaultInjector, FaultPlan};
use transport::link::{LinkOptions, link};
use transport::reply::{ReplyLane, ReplyRx};
use transport::ring::{RingReader, StartAt};
use transport::{LaneRx, LaneTx, RingWriter};

use crate::day::{Day, DayOptions};

const NAME: &str = "recovery-bench";
const TOKEN: &str = "a token for benches";
const CHANNEL: ChannelId = ChannelId::new(1);
const LANE: Lane = Lane::new(0);
const EPOCH: Epoch = Epoch(1);
/// How long anything may take before the run is given up.
const PATIENCE_NS: i64 = 60_000_000_000;
/// How long a place of the ring that was written may fail to verify, ns.
const HEDGE_NS: u64 = 200_000;

type Failure = Box<dyn std::error::Error>;

/// Times, ns, and how many there were.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Times {
    /// Half took no longer.
    pub p50: u64,
    /// One in a hundred took longer.
    pub p99: u64,
    /// The longest.
    pub max: u64,
    /// How many.
    pub count: u64,
}

impl Times {
    fn of(histogram: &Histogram<u64>) -> Times {
        Times {
            p50: histogram.value_at_quantile(0.5),
            p99: histogram.value_at_quantile(0.99),
            max: histogram.max(),
            count: histogram.len(),
        }
    }
}

/// The publisher's control channel and recovery server, on a thread that ends when this is dropped.
struct Server {
    address: SocketAddr,
    over: Arc<AtomicBool>,
    /// What the recovery server counted, to be shown when something failed.
    counters: Arc<Mutex<String>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Of `ring`; it has read the ring to its head when it looks at it next.
    fn start(ring: &RingWriter, channel: ChannelConfig, clock: Clock) -> Result<Server, Failure> {
        let text = format!(
            "[channel]\nname = {NAME:?}\n[feed]\npath = 'none'\n[control]\nlisten = '127.0.0.1:0'\ntokens = [{TOKEN:?}]\n\
             [recovery]\nlisten = '127.0.0.1:0'\n"
        );
        let config = Config::parse(&text, Path::new("the bench's own settings"))?;
        let section = config.recovery.ok_or("the settings have a recovery server")?;
        let (mut server, door) = publisher::recovery::open(&section, ring, channel, ())?;
        let info = ChannelInfo {
            name: NAME.into(),
            id: CHANNEL.0.get(),
            lane: LANE.0.get(),
            epoch: EPOCH.0,
            heartbeat_ns: 10_000_000,
            natural_start: false,
            shared_memory: None,
            udp: None,
            rdma: None,
            recovery: None,
        };
        let any: SocketAddr = "127.0.0.1:0".parse()?;
        let reader = ring.reader(StartAt::Newest, HEDGE_NS);
        let mut admission = Admission::bind(any, vec![TOKEN.into()], info, reader, ())?.with_recovery(door);
        let address = admission.local_address()?;
        let over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&over);
        let counters = Arc::new(Mutex::new(String::new()));
        let said = Arc::clone(&counters);
        let thread = std::thread::spawn(move || {
            let mut next_words = clock.now();
            // Relaxed: the flag carries nothing but itself.
            while !stop.load(Ordering::Relaxed) {
                let now = clock.now();
                if server.do_work(now) + admission.do_work(now) == 0 {
                    std::thread::sleep(Duration::from_micros(50));
                }
                if now >= next_words {
                    next_words = now.plus(1_000_000_000);
                    *said.lock().unwrap_or_else(PoisonError::into_inner) = format!("{:?}", server.counts());
                }
            }
        });
        Ok(Server { address, over, counters, thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // If it panicked, its message stands on standard error.
            let _ = thread.join();
        }
    }
}

fn let_in<R: LaneRx>(subscriber: &mut Subscriber<R>, clock: Clock) -> Result<(), Failure> {
    let began = clock.now();
    while subscriber.recovery().is_none_or(|recovery| recovery.connection.is_none()) {
        subscriber.poll(&mut ());
        if clock.now().since(began) > PATIENCE_NS {
            return Err(format!("not let into the recovery server: {:?}", subscriber.recovery()).into());
        }
    }
    Ok(())
}

/// How long the line of a lost packet is missed: from the turn that brings the packet behind it, hedge time and jitter
/// included, until it has been delivered. One packet in three is lost, `trials` times.
///
/// # Errors
/// What could not be set up, or took a minute.
pub fn heal_one_packet(trials: u64, clock: Clock) -> Result<Times, Failure> {
    let mut ring = RingWriter::anonymous(CHANNEL, LANE, EPOCH, 1 << 12)?;
    let server = Server::start(&ring, ChannelConfig::default(), clock)?;
    let (mut tx, rx) = link(&ring, LinkOptions::default());
    let plan = FaultPlan::script((0..trials).map(|trial| (3 * trial + 1, Fault::Drop)));
    let builder = Builder::new(NAME).clock(clock).recover(RecoveryOptions::new(server.address, TOKEN));
    let mut subscriber = builder.lanes(FaultInjector::new(rx, plan), 1);
    let_in(&mut subscriber, clock)?;
    let mut sequencer = Sequencer::new(EPOCH, 16);
    let mut record = Record::new(Kind::TRADE, InstrumentId(1));
    record.flags = Flags::LAST;
    let mut times = Histogram::new_with_bounds(1, PATIENCE_NS as u64, 3)?;
    for trial in 0..trials {
        let mut missed_since = clock.now();
        for _ in 0..3 {
            let (_, line) = sequencer.seal(&record, clock.now())?;
            ring.put(&line);
            ring.flush();
            tx.flush(&ring, clock.now());
            missed_since = clock.now();
            subscriber.poll(&mut ());
        }
        let delivered = (trial + 1) * 3;
        while subscriber.counts().delivered < delivered {
            subscriber.poll(&mut ());
            if subscriber.counts().lost > 0 || clock.now().since(missed_since) > PATIENCE_NS {
                return Err(format!("packet {trial} was not had again: {:?}", subscriber.recovery()).into());
            }
        }
        times.saturating_record(clock.now().since(missed_since).max(0) as u64);
    }
    let (dropped, recovered) = (subscriber.rx().counts().dropped, subscriber.counts().recovered);
    if (dropped, recovered) != (trials, trials) {
        return Err(format!("{dropped} of {trials} packets were lost and {recovered} had again").into());
    }
    Ok(Times::of(&times))
}

/// What a late joiner went through.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct LateJoin {
    /// Instruments, all of which it has valid books of.
    pub instruments: u32,
    /// From its first poll, ns; asking the control channel is before that.
    pub valid_after_ns: u64,
    /// Lines of snapshots that this took.
    pub reply_lines: u64,
    /// Lines a second that were published meanwhile.
    pub lines_per_second: u64,
    /// Books that a digest found wrong later on: not one is allowed.
    pub disagreed: u64,
    /// Digests that agreed later on.
    pub agreed: u64,
}

fn pipeline(day: &Day, books: BooksConfig) -> Pipeline<BinaryFile<Cursor<Vec<u8>>>, Normaliser> {
    let bytes = Cursor::new(day.bytes().to_vec());
    let source = BinaryFile::from_reader(bytes, Path::new("generated"), FramingOptions::default());
    let venue = Normaliser::new(NormaliserOptions::default(), day.date());
    Pipeline::new(source, venue, EPOCH, ChannelConfig { books, ..ChannelConfig::default() })
}

/// How long a subscriber that comes in the middle of a day of so many instruments is without valid books, while publishing
/// goes on at `rate` messages a second.
///
/// # Errors
/// What could not be set up, or took a minute.
pub fn join_late(symbols: u16, rate: u64, clock: Clock) -> Result<LateJoin, Failure> {
    let books = BooksConfig { instruments: 1 << 14, orders: 1 << 20, levels: 1 << 19 };
    let messages = u64::from(symbols) * 60 + 100_000;
    let day = Day::generate(DayOptions { seed: 5, symbols, messages })?;
    let mut pipeline = pipeline(&day, books);
    let mut ring = RingWriter::anonymous(CHANNEL, LANE, EPOCH, 1 << 16)?;
    let server = Server::start(&ring, ChannelConfig { books, ..ChannelConfig::default() }, clock)?;
    // Half of the day at a pace that the server's thread keeps up with.
    let pace_ns = 2_000;
    let mut due = clock.now();
    for _ in 0..messages / 2 {
        while clock.now() < due {
            std::hint::spin_loop();
        }
        due = due.plus(pace_ns);
        pipeline.step(clock.now(), &mut |line: &Line| ring.put(line))?;
        ring.flush();
    }
    ring.heartbeat(clock.now(), false);
    let reader: RingReader = ring.reader(StartAt::Newest, HEDGE_NS);
    let builder = Builder::new(NAME).clock(clock).books(books);
    let mut subscriber = builder.recover(RecoveryOptions::new(server.address, TOKEN)).lanes(reader, 1);
    let over = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&over);
    let publishing = std::thread::spawn(move || -> Result<u64, String> {
        let (mut due, began, mut lines) = (clock.now(), clock.now(), 0u64);
        while !stop.load(Ordering::Relaxed) {
            while clock.now() < due {
                std::thread::yield_now();
            }
            due = due.plus(1_000_000_000 / rate.max(1));
            let put = &mut |line: &Line| {
                ring.put(line);
                lines += 1;
            };
            let more = pipeline.step(clock.now(), put).map_err(|error| error.to_string())?;
            ring.flush();
            if !more {
                break;
            }
        }
        let took = clock.now().since(began).max(1) as u64;
        Ok(lines.saturating_mul(1_000_000_000) / took)
    });
    // The control channel is asked before the clock starts.
    let began_asking = clock.now();
    while subscriber.recovery().is_some_and(|recovery| !recovery.trouble.is_empty()) {
        std::thread::sleep(Duration::from_millis(1));
        if clock.now().since(began_asking) > PATIENCE_NS {
            return Err("not let into the recovery server".into());
        }
    }
    let began = clock.now();
    let unready = |subscriber: &Subscriber<RingReader>| {
        let context = subscriber.context();
        (1..=u32::from(symbols)).find(|id| context.book(InstrumentId(*id)).is_err())
    };
    let mut next_look = began;
    let valid = loop {
        subscriber.poll(&mut ());
        let now = clock.now();
        // Looking at all books takes a while; a millisecond's error is well within what is measured.
        if now >= next_look {
            if subscriber.engine().snapshot_counts().applied > 0 && unready(&subscriber).is_none() {
                break now;
            }
            next_look = now.plus(1_000_000);
        }
        if now.since(began) > PATIENCE_NS {
            over.store(true, Ordering::Relaxed);
            return Err(format!(
                "{:?} has no valid book: {:?}, {:?}, {:?}; {:?}",
                unready(&subscriber),
                subscriber.recovery(),
                subscriber.engine().snapshot_counts(),
                subscriber.counts(),
                server.counters.lock()
            )
            .into());
        }
    };
    let reply_lines = subscriber.recovery().map_or(0, |recovery| recovery.counts.reply_lines);
    // Some digests later.
    while clock.now().since(valid) < 500_000_000 {
        subscriber.poll(&mut ());
    }
    over.store(true, Ordering::Relaxed);
    let lines_per_second = publishing.join().map_err(|_| "the publishing thread panicked")??;
    let digests = subscriber.engine().digest_counts();
    Ok(LateJoin {
        instruments: u32::from(symbols),
        valid_after_ns: valid.since(began).max(0) as u64,
        reply_lines,
        lines_per_second,
        disagreed: digests.disagreed,
        agreed: digests.compared - digests.disagreed,
    })
}

/// Publishing flat out, with a subscriber of the recovery server that stands still and without.
#[derive(Clone, Debug, Serialize)]
pub struct StandingStill {
    /// Messages a second of each slice without, and of the slice with that followed it.
    pub slices: Vec<(f64, f64)>,
    /// The medians of both, messages a second.
    pub without: f64,
    /// As above.
    pub with: f64,
    /// The median of with over without.
    pub ratio: f64,
}

/// Compares in `rounds` interleaved slices of one day each: a subscriber was let in, asked for all that may be had, and
/// never reads an answer.
///
/// # Errors
/// What could not be set up.
pub fn stand_still(rounds: usize, messages: u64, clock: Clock) -> Result<StandingStill, Failure> {
    let books = BooksConfig::default();
    let day = Day::generate(DayOptions { seed: 6, symbols: 100, messages })?;
    let mut slices = Vec::new();
    for _ in 0..rounds {
        let without = publish_flat_out(&day, books, false, clock)?;
        let with = publish_flat_out(&day, books, true, clock)?;
        slices.push((without, with));
    }
    Ok(StandingStill {
        without: median(slices.iter().map(|(without, _)| *without)),
        with: median(slices.iter().map(|(_, with)| *with)),
        ratio: median(slices.iter().map(|(without, with)| with / without)),
        slices,
    })
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn publish_flat_out(day: &Day, books: BooksConfig, stopped: bool, clock: Clock) -> Result<f64, Failure> {
    let mut ring = RingWriter::anonymous(CHANNEL, LANE, EPOCH, 1 << 16)?;
    let server = Server::start(&ring, ChannelConfig { books, ..ChannelConfig::default() }, clock)?;
    let mut pipeline = pipeline(day, books);
    let mut standing = match stopped {
        true => {
            let mut control = Control::connect(server.address, TOKEN, "one that stands still")?;
            let at = control.directory()?[0].recovery.ok_or("a recovery server")?.at;
            let (connection, key) = control.recover(CHANNEL.0.get())?;
            Some((control, connection, key, ReplyRx::connect(at, (CHANNEL, LANE), 1 << 20)?))
        }
        false => None,
    };
    let began = clock.now();
    let mut messages = 0u64;
    while pipeline.step(clock.now(), &mut |line: &Line| ring.put(line))? {
        ring.flush();
        messages += 1;
        // It asks for every book, over and over, and stands still.
        if let Some((_, connection, key, lane)) = &mut standing
            && messages.is_multiple_of(day.summary().messages / 64)
        {
            let ask = Ask::Snapshots {
                first: InstrumentId(1),
                last: InstrumentId(u32::MAX),
                not_before: Stamp::new(EPOCH, SequenceNumber::FIRST),
                max_lines: 1 << 14,
            };
            let number = messages;
            let request = Request { connection: Connection(*connection), number, key: key.0, ask };
            lane.request(&request.to_line(), clock.now());
        }
    }
    Ok(messages as f64 * 1e9 / clock.now().since(began).max(1) as f64)
}
