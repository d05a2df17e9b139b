//! The hot loops allocate nothing: publisher, ring, reader, arbiter and books over a whole generated day, counted by the
//! allocator itself.

#![deny(unsafe_code)]

use std::path::{Path, PathBuf};

use bookcast_tests::capture;
use bookcast_tests::stream::BOOKS;
use feeds_replay::generate::{GenerateOptions, generate};
use protocol::arbiter::{Arbiter, ArbiterConfig};
use protocol::book::{EventEnd, Start};
use protocol::channel::ChannelConfig;
use protocol::line::{Epoch, Line};
use protocol::log::Role;
use protocol::record::{ChannelId, Flags, Kind, Lane};
use protocol::time::Nanos;
use publisher::Pipeline;
use publisher::capture::Container;
use publisher::capture::window::Window;
use publisher::date::SessionDate;
use publisher::feed::FeedSource;
use publisher::itch::mold::stream::Patience;
use publisher::itch::mold::{MoldFeed, MoldOptions};
use publisher::itch::{BinaryFile, FramingOptions, Normaliser, NormaliserOptions};
use publisher::pace::{Pace, Schedule};
use publisher::publisher::{Publisher, PublisherConfig, Turn};
use subscriber::{Context, Engine, EngineConfig, Handler, Selection, Subscriber, Update};
use transport::clock::Clock;
use transport::log::LogTx;
use transport::ring::{RingWriter, StartAt};
use transport::{LaneRx, LaneTx};

/// The allocator cannot be counted without unsafe code; it is the measuring device of this test.
#[allow(unsafe_code)]
#[path = "../protocol/transport/tests/counting/mod.rs"]
mod counting;

/// A strategy that looks at what it is told, and keeps sums.
#[derive(Default)]
struct Looker {
    records: u64,
    events: u64,
    depth: u64,
}

impl Handler for Looker {
    fn on_record(&mut self, _: &Context<'_>, _: &Update<'_>) {
        self.records += 1;
    }
    fn on_event_end(&mut self, ctx: &Context<'_>, end: &EventEnd) {
        self.events += 1;
        let book = ctx.book(end.instrument).expect("told of readable books only");
        self.depth += book.bids().chain(book.asks()).take(10).map(|level| level.size).sum::<u64>();
        if let Some(level) = end.after.bid {
            self.depth +=
                book.queue(protocol::record::Side::BID, level.price).map(|(_, order)| order.size).sum::<u64>();
        }
    }
}

fn pipeline(bytes: &[u8]) -> Pipeline<BinaryFile<&[u8]>, Normaliser> {
    let source = BinaryFile::from_reader(bytes, Path::new("generated"), FramingOptions::default());
    let venue = Normaliser::new(NormaliserOptions { full: true, ..NormaliserOptions::default() }, SessionDate::NONE);
    Pipeline::new(source, venue, Epoch(1), ChannelConfig { books: BOOKS, start: Start::Strict, digest_every: 64 })
}

/// How many messages there are, and the number of the last that defined an instrument.
fn survey(bytes: &[u8]) -> (u64, u64) {
    let mut pipeline = pipeline(bytes);
    let mut last_definition = 0;
    loop {
        let mut defines = false;
        let mut out = |line: &Line| defines |= line.record.kind == Kind::DEFINITION;
        if !pipeline.step(Nanos(1), &mut out).expect("a sound day") {
            assert!(!defines);
            return (pipeline.messages(), last_definition);
        }
        if defines {
            last_definition = pipeline.messages();
        }
    }
}

#[test]
fn the_counter_counts() {
    counting::check();
    counting::start();
    std::hint::black_box([0u64; 8]);
    assert_eq!(counting::stop(), 0);
}

/// One day through publisher, ring or lane, arbiter and engine; calls of the allocator after the last definition.
fn run_day(options: GenerateOptions, over_link: bool) {
    let mut bytes = Vec::new();
    generate(&options, &mut bytes).expect("options within their limits");
    let (messages, last_definition) = survey(&bytes);
    assert_eq!(messages, options.messages);
    assert!(last_definition < messages / 2, "definitions to message {last_definition} leave no day to measure");

    let mut pipeline = pipeline(&bytes);
    let mut ring =
        RingWriter::anonymous(ChannelId::new(1), Lane::new(0), Epoch(1), 1 << 12).expect("memory for a small ring");
    let mut reader = ring.reader(StartAt::Oldest, 200_000);
    let (mut tx, mut rx) = transport::link::link(&ring, transport::link::LinkOptions::default());
    let mut arbiter = Arbiter::new(ArbiterConfig::default());
    let mut engine = Engine::new(EngineConfig { selection: Selection::all(), books: BOOKS, start: Start::Strict });
    let mut looker = Looker::default();
    let mut lines = 0;
    let mut measured = 0;
    let mut now = 0;
    loop {
        if pipeline.messages() == last_definition {
            counting::start();
        }
        now += 10_000;
        let more = pipeline.step(Nanos(now), &mut |line: &Line| {
            ring.put(line);
            lines += 1;
        });
        ring.flush();
        measured += 1;
        if measured % 1000 == 0 {
            ring.heartbeat(Nanos(now), false);
            tx.heartbeat(&ring, Nanos(now), false);
        }
        tx.flush(&ring, Nanos(now));
        let mut turn = engine.turn(Nanos(now), &mut looker);
        let mut sink = arbiter.sink(Nanos(now), &mut turn);
        if over_link {
            while rx.poll(Nanos(now), 256, &mut sink) > 0 {}
        } else {
            while reader.poll(Nanos(now), 256, &mut sink) > 0 {}
        }
        arbiter.on_timeout(Nanos(now), &mut turn);
        if !matches!(more, Ok(true)) {
            assert!(more.is_ok(), "{more:?}");
            break;
        }
    }
    let calls = counting::stop();
    let digests = engine.digest_counts();
    assert_eq!((engine.counts().lines, looker.records), (lines, lines), "every line came");
    assert_eq!((digests.compared > messages / 100, digests.disagreed), (true, 0));
    assert_eq!((engine.books_grown(), pipeline.channel().books().grown()), (0, 0), "sizes hold the whole day");
    assert!(looker.events > messages / 2 && looker.depth > 0);
    assert_eq!(calls, 0, "seed {}: calls of the allocator after message {last_definition} of {messages}", options.seed);
}

#[test]
fn publisher_ring_reader_and_books_allocate_nothing_over_a_whole_day() {
    run_day(GenerateOptions { seed: 3, symbols: 50, messages: 200_000, ..GenerateOptions::default() }, false);
}

#[test]
fn publisher_link_receiver_and_books_allocate_nothing_over_a_whole_day() {
    run_day(GenerateOptions { seed: 4, symbols: 20, messages: 100_000, ..GenerateOptions::default() }, true);
}

/// A day in datagrams on two lines, both of which lose some: what is held back and put in order costs no allocation.
#[test]
fn a_capture_of_two_lines_is_read_without_an_allocation() {
    let options = GenerateOptions { seed: 8, symbols: 20, messages: 100_000, ..GenerateOptions::default() };
    let mut bytes = Vec::new();
    generate(&options, &mut bytes).expect("options within their limits");
    let (mut frames, mut at, mut sequence, mut datagram) = (Vec::new(), 0, 1u64, 0u64);
    while at < bytes.len() {
        let (from, mut count) = (at, 0u16);
        while at < bytes.len() && count < 12 {
            at += 2 + usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
            count += 1;
        }
        let payload = [&capture::mold_header(capture::SESSION, sequence, count)[..], &bytes[from..at]].concat();
        // B is four datagrams behind; each loses one in fifty, and one in a thousand is lost on both.
        let time = 10 * datagram;
        if datagram % 50 != 7 {
            frames.push((time, capture::frame(capture::LINE_A, &payload)));
        }
        if datagram % 50 != 31 && datagram % 1_000 != 7 {
            frames.push((time + 45, capture::frame(capture::LINE_B, &payload)));
        }
        sequence += u64::from(count);
        datagram += 1;
    }
    frames.sort_by_key(|(time, _)| *time);
    for (time, _) in &mut frames {
        *time += capture::OPEN_NS;
    }
    let frames: Vec<(usize, capture::Captured)> = frames.into_iter().map(|frame| (0, frame)).collect();
    let file = capture::pcapng(false, &[capture::NgInterface::NANOS], &frames);
    let window = Window::new(&file[..], Path::new("two lines"), publisher::input::Packing::Plain);
    let options = MoldOptions { patience: Patience { packets: 40, ns: 0 }, ..MoldOptions::default() };
    let mut feed = MoldFeed::from_window(window, Some(Container::PcapNg), options);
    let (mut messages, mut gaps) = (0u64, 0);
    loop {
        if messages == 1_000 {
            counting::start();
        }
        let more = feed.next().expect("a sound capture").is_some();
        while feed.poll_notice().is_some() {
            gaps += 1;
        }
        if !more {
            break;
        }
        messages += 1;
    }
    let calls = counting::stop();
    let lost = (0..datagram).filter(|at| at % 1_000 == 7).count();
    assert_eq!((gaps, messages), (lost, 100_000 - 12 * lost as u64));
    assert_eq!(calls, 0, "calls of the allocator after message 1000 of {messages}");
}

#[test]
fn the_loops_as_they_ship_allocate_nothing_over_a_whole_day() {
    run_loops(None);
}

#[test]
fn what_is_written_down_allocates_nothing_where_it_happens_and_is_all_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let logs = run_loops(Some(folder.path()));
    let history = feeds_replay::check::check(&logs, true).expect("can be read");
    assert!(history.is_sound(), "{}", feeds_replay::check::text(&history));
    let totals = history.totals;
    assert!(totals.lines > 100_000 && totals.lines_compared == totals.lines, "{totals:?}");
    assert!(totals.digests > 1_000 && totals.digests_compared == totals.digests, "{totals:?}");
    let bytes: u64 = history.logs.iter().map(|log| log.bytes).sum();
    println!("{bytes} bytes of two logs for {} lines", totals.lines);
    assert!(bytes < 4 * totals.lines);
}

/// Publisher and subscriber as they ship, over a whole day; with logs in `folder`, whose paths are returned.
fn run_loops(folder: Option<&Path>) -> Vec<PathBuf> {
    let options = GenerateOptions { seed: 6, symbols: 20, messages: 100_000, ..GenerateOptions::default() };
    let mut bytes = Vec::new();
    generate(&options, &mut bytes).expect("options within their limits");
    let (messages, last_definition) = survey(&bytes);
    let ring =
        RingWriter::anonymous(ChannelId::new(1), Lane::new(0), Epoch(1), 1 << 12).expect("memory for a small ring");
    let reader = ring.reader(StartAt::Oldest, 200_000);
    // One message each 10 us: as long as a turn of this test.
    let schedule = Schedule { pace: Pace::Rate(100_000.0), start_ns: 1_000_000, first_ns: 0, first_ordinal: 1 };
    let config = PublisherConfig { schedule, heartbeat_ns: 1_000_000 };
    let names = ["publisher.log", "subscriber.log"];
    let logs: Vec<PathBuf> = folder.iter().flat_map(|folder| names.map(|name| folder.join(name))).collect();
    let mut opened = logs
        .iter()
        .zip([Role::Publisher, Role::Subscriber])
        .map(|(path, role)| transport::log::open(path, role, "itch", 0).expect("a log can be opened"));
    let (log, keeper) = opened.next().unzip();
    let log = log.map(|recorder| LogTx::new(recorder, &ring));
    let (recorder, other_keeper) = opened.next().unzip();
    let mut publisher = Publisher::new(pipeline(&bytes), ring, log, config);
    let engine = EngineConfig { selection: Selection::all(), books: BOOKS, start: Start::Strict };
    let mut subscriber = Subscriber::new(reader, ArbiterConfig::default(), engine, Clock::calibrate());
    if let Some(recorder) = recorder {
        subscriber = subscriber.logged(recorder);
    }
    let mut looker = Looker::default();
    let (mut now, mut counting_since) = (0, None);
    loop {
        if counting_since.is_none() && publisher.stats().messages > last_definition {
            counting_since = Some(publisher.stats().messages);
            counting::start();
        }
        now += 10_000;
        let turn = publisher.do_work(Nanos(now)).expect("a sound day");
        while subscriber.poll_at(Nanos(now), &mut looker) > 0 {}
        if turn == Turn::Ended {
            break;
        }
    }
    // The end is told with a position, which a poll that read lines leaves to the next.
    subscriber.poll_at(Nanos(now + 10_000), &mut looker);
    let calls = counting::stop();
    let since = counting_since.expect("counting was started");
    assert!(since < messages / 2 && publisher.stats().messages == messages, "counted from message {since} on");
    assert_eq!((looker.records, subscriber.counts().lost), (publisher.stats().lines, 0), "every line came");
    assert!(subscriber.has_ended() && looker.events > messages / 2);
    assert_eq!(calls, 0, "seed {}: calls of the allocator after message {since} of {messages}", options.seed);
    assert_eq!(subscriber.unlogged(), 0);
    drop((publisher, subscriber));
    keeper.into_iter().chain(other_keeper).for_each(|keeper| keeper.finish().expect("written"));
    logs
}

#[test]
fn a_gap_over_every_book_and_its_healing_allocate_nothing() {
    use protocol::arbiter::{Delivery, Gap};
    use protocol::line::Stamp;
    use protocol::record::{InstrumentId, Record};
    use protocol::run::{Carrier, LanePath, LossCause};
    let mut channel = protocol::channel::ChannelWriter::new(Epoch(1), ChannelConfig::default());
    let mut engine = Engine::new(EngineConfig::default());
    let mut looker = Looker::default();
    let instruments = protocol::book::BooksConfig::default().instruments as u32;
    let mut now = 0;
    let mut round = |kind: Kind, instrument: u32, engine: &mut Engine, looker: &mut Looker| {
        now += 1;
        let mut record = Record { flags: Flags::LAST, ..Record::new(kind, InstrumentId(instrument)) };
        record.side = protocol::record::Side::BID;
        record.price.set(100);
        record.order_id.set(now);
        record.size.set(1);
        let mut stamp: Stamp = channel.next();
        channel
            .push(&record, Nanos(now), &mut |line: &Line| {
                engine.turn(Nanos(now), looker).on_lines(
                    stamp,
                    std::slice::from_ref(line),
                    LanePath::new(Lane::new(0), Carrier::Local),
                    None,
                );
                stamp = stamp.plus(1);
            })
            .expect("far from the last sequence number");
    };
    round(Kind::SESSION_START, 0, &mut engine, &mut looker);
    for instrument in 1..=instruments {
        round(Kind::ADD, instrument, &mut engine, &mut looker);
    }
    counting::start();
    for _ in 0..3 {
        let gap = Gap { first: Stamp(1 << 48 | 1), count: 1, cause: LossCause::Missing };
        engine.turn(Nanos(1), &mut looker).on_gap(gap);
        for instrument in 1..=instruments {
            round(Kind::ADD, instrument, &mut engine, &mut looker);
        }
        round(Kind::CLEAR, 0, &mut engine, &mut looker);
    }
    assert_eq!(counting::stop(), 0);
    // Each gap made every book Stale, and each book healed by its count.
    assert_eq!(engine.counts().state_changes, 3 * 2 * u64::from(instruments));
}
