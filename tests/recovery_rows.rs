//! What goes wrong with sequences and times in public, row by row: the rows that need no recovery server.
//!
//! Records go through the publisher's channel, a ring and a link for each lane, a fault injector, the arbiter and the
//! engine, in virtual time. Whatever is lost, one thing holds throughout: a book that says that it can be read is the book
//! of the publisher at that very line.

#![forbid(unsafe_code)]

use std::collections::HashMap;

use bookcast_tests::naive::NaiveBooks;
use bookcast_tests::stream::{Told, engine, random_lines};
use protocol::arbiter::{Arbiter, ArbiterConfig, Delivery};
use protocol::book::{BookState, BooksConfig, Start, StateReason};
use protocol::channel::{ChannelConfig, ChannelWriter};
use protocol::line::{Epoch, Line, SequenceNumber, Stamp};
use protocol::record::{ChannelId, Flags, InstrumentId, Kind, Lane, Record, Side};
use protocol::run::{Carrier, LanePath, LossCause, Position, Run, RunSink};
use protocol::time::Nanos;
use subscriber::{Engine, EngineConfig, Handler, Selection};
use transport::fault::{Fault, FaultInjector, FaultPlan};
use transport::link::{LinkOptions, LinkRx, LinkTx, link};
use transport::{LaneRx, LaneTx, RingWriter};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const HEDGE_NS: u64 = 200_000;
const ONE: InstrumentId = InstrumentId(1);
const TWO: InstrumentId = InstrumentId(2);

/// One line of a channel: its ring, its link, and what goes wrong on the way.
struct Path {
    ring: RingWriter,
    tx: LinkTx,
    rx: FaultInjector<LinkRx>,
}

/// A publisher on one or two lanes, and one subscriber.
struct World {
    channel: ChannelWriter,
    paths: Vec<Path>,
    arbiter: Arbiter,
    engine: Engine,
    told: Told,
    now: Nanos,
}

impl World {
    /// `plans`: one for each lane.
    fn new(epoch: u16, plans: Vec<FaultPlan>) -> World {
        let config = ArbiterConfig { paths: plans.len(), hedge_ns: HEDGE_NS, ..ArbiterConfig::default() };
        World {
            channel: channel(epoch),
            paths: paths(epoch, plans),
            arbiter: Arbiter::new(config),
            engine: engine(Start::Strict),
            told: Told::default(),
            now: Nanos(1_800_000_000 * SECOND),
        }
    }

    /// Two lanes without faults whose session has begun.
    fn started(plans: Vec<FaultPlan>) -> World {
        let mut world = World::new(1, plans);
        world.send(last(Kind::SESSION_START, InstrumentId::CHANNEL));
        world
    }

    /// Publishes a record at the present time, in a packet of its own, and lets the subscriber poll.
    fn send(&mut self, record: Record) -> Stamp {
        let stamp = self.put(record);
        self.flush();
        self.poll();
        stamp
    }

    fn put(&mut self, record: Record) -> Stamp {
        let (paths, stamp) = (&mut self.paths, self.channel.next());
        self.channel
            .push(&record, self.now, &mut |line: &Line| paths.iter_mut().for_each(|path| path.ring.put(line)))
            .expect("far from the last sequence number");
        stamp
    }

    /// Takes a line that a publisher made before.
    fn put_line(&mut self, line: &Line) {
        self.paths.iter_mut().for_each(|path| path.ring.put(line));
    }

    fn flush(&mut self) {
        for path in &mut self.paths {
            path.ring.flush();
            path.tx.flush(&path.ring, self.now);
        }
    }

    fn heartbeat(&mut self, ended: bool) {
        for path in &mut self.paths {
            path.tx.heartbeat(&path.ring, self.now, ended);
        }
    }

    fn poll(&mut self) {
        for path in &mut self.paths {
            let mut turn = self.engine.turn(self.now, &mut self.told);
            path.rx.poll(self.now, usize::MAX, &mut self.arbiter.sink(self.now, &mut turn));
        }
        self.arbiter.on_timeout(self.now, &mut self.engine.turn(self.now, &mut self.told));
    }

    /// Time passes, and the subscriber polls.
    fn wait(&mut self, ns: u64) {
        self.now = self.now.plus(ns);
        self.poll();
    }

    fn state(&self, instrument: InstrumentId) -> BookState {
        let view = self.engine.context(self.now).book_even_if_stale(instrument);
        view.expect("heard of").state()
    }

    fn levels(&self, instrument: InstrumentId, side: Side) -> Vec<(i64, u64, u32)> {
        let view = self.engine.context(self.now).book_even_if_stale(instrument).expect("heard of");
        view.levels(side).map(|level| (level.price, level.size, level.orders)).collect()
    }

    /// The sequence numbers of the lines that were told, in order.
    fn sequences(&self) -> Vec<u64> {
        self.told.lines.iter().map(|(stamp, _)| stamp.sequence().0).collect()
    }
}

fn channel(epoch: u16) -> ChannelWriter {
    ChannelWriter::new(
        Epoch(epoch),
        ChannelConfig { books: BooksConfig::default(), digest_every: 0, start: Start::Strict },
    )
}

fn paths(epoch: u16, plans: Vec<FaultPlan>) -> Vec<Path> {
    let path = |(lane, plan)| {
        let ring = RingWriter::anonymous(ChannelId::new(0), Lane::new(lane), Epoch(epoch), 1 << 12);
        let ring = ring.expect("memory for a small ring");
        let (tx, rx) = link(&ring, LinkOptions::default());
        Path { ring, tx, rx: FaultInjector::new(rx, plan) }
    };
    (0..).zip(plans).map(path).collect()
}

fn last(kind: Kind, instrument: InstrumentId) -> Record {
    Record { flags: Flags::LAST, ..Record::new(kind, instrument) }
}

fn add(instrument: InstrumentId, id: u64, side: Side, price: i64, size: u64) -> Record {
    let mut record = Record { side, ..last(Kind::ADD, instrument) };
    record.order_id.set(id);
    record.price.set(price);
    record.size.set(size);
    record
}

fn bid(id: u64, price: i64, size: u64) -> Record {
    add(ONE, id, Side::BID, price, size)
}

/// The lines of a Definition that gives `instrument` a symbol.
fn define(world: &mut World, instrument: InstrumentId, symbol: &str) {
    let head = last(Kind::DEFINITION, instrument);
    let text = format!("symbol={symbol}\n");
    protocol::definition::continuations(&head, text.as_bytes(), &mut |record| _ = world.put(record));
    world.flush();
    world.poll();
}

#[test]
fn the_copies_of_a_and_b_are_applied_once() {
    let mut world = World::started(vec![FaultPlan::none(), FaultPlan::none()]);
    for id in 1..=10 {
        world.send(bid(id, 100, 5));
    }
    assert_eq!(world.levels(ONE, Side::BID), [(100, 50, 10)]);
    assert_eq!(world.sequences(), (1..=11).collect::<Vec<_>>());
    let duplicates =
        [0, 1].map(|lane| world.arbiter.path_counts(LanePath::new(Lane::new(lane), Carrier::Local)).duplicates);
    assert_eq!((duplicates, world.engine.counts().lines), ([0, 11], 11));
    assert!(world.told.gaps.is_empty() && world.state(ONE) == BookState::Live);
}

#[test]
fn what_one_lane_lost_the_other_brings() {
    // Packet 3 of A and packet 6 of B are lost.
    let mut world = World::started(vec![FaultPlan::script([(3, Fault::Drop)]), FaultPlan::script([(6, Fault::Drop)])]);
    for id in 1..=10 {
        world.send(bid(id, 100, 5));
    }
    assert_eq!(world.sequences(), (1..=11).collect::<Vec<_>>());
    assert!(world.told.gaps.is_empty(), "{:?}", world.told.gaps);
    assert!(world.told.changes.iter().all(|change| change.to == BookState::Live), "{:?}", world.told.changes);
}

#[test]
fn reordered_packets_within_the_hedge_time_come_in_order_and_nobody_is_told_of_a_gap() {
    // 1, 3, 2: the second packet is overtaken by one.
    let mut world = World::new(1, vec![FaultPlan::script([(1, Fault::Hold(1))])]);
    world.send(last(Kind::SESSION_START, InstrumentId::CHANNEL));
    world.send(bid(1, 100, 5));
    world.wait(HEDGE_NS / 2);
    assert_eq!(world.sequences(), [1]);
    world.send(bid(2, 101, 6));
    world.wait(10 * HEDGE_NS);
    assert_eq!(world.sequences(), [1, 2, 3]);
    assert!(world.told.gaps.is_empty(), "{:?}", world.told.gaps);
    assert_eq!((world.levels(ONE, Side::BID), world.state(ONE)), (vec![(101, 6, 1), (100, 5, 1)], BookState::Live));
}

#[test]
fn what_comes_after_the_hedge_time_was_declared_and_is_not_applied() {
    let mut world = World::new(1, vec![FaultPlan::script([(1, Fault::Delay(SECOND))])]);
    world.send(last(Kind::SESSION_START, InstrumentId::CHANNEL));
    world.send(bid(1, 100, 5));
    world.send(bid(2, 101, 6));
    world.wait(HEDGE_NS);
    assert_eq!(world.sequences(), [1, 3]);
    assert_eq!(world.told.gaps.iter().map(|gap| (gap.first.sequence().0, gap.count)).collect::<Vec<_>>(), [(2, 1)]);
    assert_eq!(world.state(ONE), BookState::Stale);
    world.wait(2 * SECOND);
    assert_eq!((world.sequences(), world.state(ONE)), (vec![1, 3], BookState::Stale));
    assert_eq!(world.levels(ONE, Side::BID), [(101, 6, 1)]);
}

#[test]
fn the_loss_of_the_last_packet_is_found_by_the_heartbeat() {
    let mut world = World::started(vec![FaultPlan::script([(2, Fault::Drop)])]);
    world.send(bid(1, 100, 5));
    let lost = world.send(bid(2, 100, 5));
    world.wait(10 * MS);
    assert!(world.told.gaps.is_empty(), "nothing has said that there is a third line");
    world.heartbeat(false);
    world.poll();
    world.wait(HEDGE_NS);
    assert_eq!(world.told.gaps.iter().map(|gap| (gap.first, gap.count)).collect::<Vec<_>>(), [(lost, 1)]);
    assert_eq!(world.state(ONE), BookState::Stale);
    world.heartbeat(true);
    world.poll();
    assert_eq!((world.told.endings, world.engine.has_ended()), (1, true), "all was delivered or named");
}

#[test]
fn after_a_lost_channel_wide_clear_nobody_is_taken_for_live() {
    let mut world = World::started(vec![FaultPlan::script([(3, Fault::Drop)])]);
    world.send(bid(1, 100, 5));
    world.send(add(TWO, 1, Side::ASK, 200, 6));
    world.send(last(Kind::CLEAR, InstrumentId::CHANNEL));
    // One line of one instrument; then one of the other.
    world.send(bid(2, 99, 1));
    world.wait(HEDGE_NS);
    assert_eq!((world.state(ONE), world.state(TWO)), (BookState::Stale, BookState::Stale));
    world.send(add(TWO, 2, Side::ASK, 201, 1));
    world.send(bid(3, 98, 1));
    world.send(add(TWO, 3, Side::ASK, 202, 1));
    assert_eq!((world.state(ONE), world.state(TWO)), (BookState::Stale, BookState::Stale));
    assert!(world.engine.context(world.now).book(ONE).is_err(), "not readable without asking for it by name");
    // The next Clear that does come mends both.
    world.send(last(Kind::CLEAR, InstrumentId::CHANNEL));
    world.send(bid(4, 97, 1));
    world.send(add(TWO, 4, Side::ASK, 203, 1));
    assert_eq!((world.state(ONE), world.state(TWO)), (BookState::Live, BookState::Live));
    assert_eq!((world.levels(ONE, Side::BID), world.levels(TWO, Side::ASK)), (vec![(97, 1, 1)], vec![(203, 1, 1)]));
}

#[test]
fn a_sequence_that_falls_back_to_one_is_a_new_epoch_and_not_stale_data() {
    let mut arbiter = Arbiter::new(ArbiterConfig::default());
    let (mut engine, mut told) = (engine(Start::Natural), Told::default());
    let now = Nanos(SECOND);
    let mut run = |stamp: Stamp, record: Record, seq: u32, engine: &mut Engine, told: &mut Told| {
        let mut record = record;
        record.instrument_seq.set(seq);
        let line = [Line::seal(record, stamp)];
        let run = Run {
            path: LanePath::new(Lane::new(0), Carrier::Local),
            first: stamp,
            lines: &line,
            publish_time: Some(now),
        };
        arbiter.sink(now, &mut engine.turn(now, told)).on_run(run);
        arbiter.counts()
    };
    let old = Stamp::new(Epoch(1), SequenceNumber(26_941_144));
    run(old, bid(1, 100, 5), 7, &mut engine, &mut told);
    let one = Stamp::new(Epoch(2), SequenceNumber(1));
    run(one, bid(2, 101, 5), 1, &mut engine, &mut told);
    let counts = run(old.plus(1), bid(3, 102, 5), 8, &mut engine, &mut told);
    assert_eq!((told.epochs.clone(), counts.epochs), (vec![(Epoch(1), Epoch(2))], 1));
    assert_eq!(told.lines.iter().map(|(stamp, _)| *stamp).collect::<Vec<_>>(), [old, one], "the old epoch is over");
    let state = engine.context(now).book_even_if_stale(ONE).expect("heard of").state();
    assert_eq!(state, BookState::Stale);
    let start = last(Kind::SESSION_START, InstrumentId::CHANNEL);
    run(one.plus(1), start, 1, &mut engine, &mut told);
    let view = engine.context(now).book(ONE).expect("readable again");
    assert_eq!((view.state(), view.resting_orders()), (BookState::Live, 0));
}

#[test]
fn a_publisher_that_starts_anew_makes_books_stale_until_its_start_of_day() {
    let mut world = World::started(vec![FaultPlan::none()]);
    define(&mut world, ONE, "AAPL");
    world.send(bid(1, 100, 5));
    assert_eq!(world.engine.context(world.now).instrument("AAPL"), Some(ONE));
    // In its new life it numbers its instruments in another order.
    (world.channel, world.paths) = (channel(2), paths(2, vec![FaultPlan::none()]));
    world.told.changes.clear();
    world.send(last(Kind::STATISTIC, InstrumentId::CHANNEL));
    assert_eq!(world.told.epochs, [(Epoch(1), Epoch(2))]);
    assert_eq!(world.state(ONE), BookState::Stale);
    assert_eq!(
        world.told.changes.iter().map(|c| (c.to, c.reason)).collect::<Vec<_>>(),
        [(BookState::Stale, StateReason::NewEpoch)]
    );
    assert_eq!(world.engine.context(world.now).instrument("AAPL"), None, "what a number meant is forgotten");
    world.send(last(Kind::SESSION_START, InstrumentId::CHANNEL));
    define(&mut world, ONE, "MSFT");
    define(&mut world, TWO, "AAPL");
    world.send(bid(7, 300, 1));
    let ctx = world.engine.context(world.now);
    assert_eq!((ctx.instrument("AAPL"), ctx.instrument("MSFT"), ctx.symbol(ONE)), (Some(TWO), Some(ONE), "MSFT"));
    assert_eq!((world.levels(ONE, Side::BID), world.state(ONE)), (vec![(300, 1, 1)], BookState::Live));
}

#[test]
fn one_locate_in_two_sessions_is_two_instruments() {
    use publisher::date::SessionDate;
    use publisher::feed::{FeedSource, Message};
    use publisher::itch::{BinaryFile, FramingOptions, Normaliser, NormaliserOptions};
    use publisher::venue::Venue;
    // Start of messages, then a directory message for locate 1, twice with another symbol.
    let session = |symbol: &[u8; 8]| {
        let mut bytes = b"\0\x0cS\0\0\0\0\0\0\0\0\0\x01O".to_vec();
        bytes.extend_from_slice(b"\0\x27R\0\x01\0\0\0\0\0\0\0\x02");
        bytes.extend_from_slice(symbol);
        // 39 bytes in all: from the market category to the inverse indicator.
        bytes.extend_from_slice(b"QN\0\0\0\x64NCZ PNN1N\0\0\0\0N");
        bytes
    };
    let mut bytes = session(b"AAAA    ");
    bytes.extend(session(b"BBBB    "));
    let mut source = BinaryFile::from_reader(&bytes[..], "two sessions".as_ref(), FramingOptions::default());
    let mut venue = Normaliser::new(NormaliserOptions::default(), SessionDate::NONE);
    let mut world = World::new(1, vec![FaultPlan::none()]);
    let mut records = Vec::new();
    while let Some(message) = source.next().expect("sound") {
        let message: Message<'_> = message;
        Venue::normalise(&mut venue, &message, world.channel.books(), &mut |record| records.push(record));
        for record in records.drain(..) {
            world.put(record);
        }
        world.flush();
        world.poll();
    }
    let symbols: Vec<_> = world.told.definitions.iter().map(|(i, symbol)| (i.0, symbol.as_str())).collect();
    assert_eq!(symbols, [(1, "AAAA"), (2, "BBBB")]);
}

/// The publish times that were told, each beside what it was.
fn publish_times(world: &World, sent: &[(Stamp, Nanos)]) -> Vec<(Nanos, Option<Nanos>)> {
    let told: HashMap<Stamp, Option<Nanos>> = world.told.lines.iter().copied().collect();
    sent.iter().map(|(stamp, time)| (*time, told[stamp])).collect()
}

#[test]
fn publish_times_are_right_across_long_silences_with_heartbeats() {
    let mut world = World::started(vec![FaultPlan::none()]);
    let mut sent = Vec::new();
    for silence_ms in [1u64, 900, 2_200, 4_200, 4_295, 4_400, 9_000, 60_000] {
        for _ in 0..silence_ms / 100 {
            world.wait(100 * MS);
            world.heartbeat(false);
            world.poll();
        }
        world.wait(silence_ms % 100 * MS);
        sent.push((world.send(bid(silence_ms, 100, 1)), world.now));
    }
    for (time, told) in publish_times(&world, &sent) {
        assert_eq!(told, Some(time));
    }
    assert_eq!(world.engine.counts().publish_time_unknown, 0);
}

/// Lines as a ring hands them up, without a packet header's time: what is known of the time is the heartbeats alone.
fn hand_up(engine: &mut Engine, told: &mut Told, stamp: Stamp, publish: Nanos, now: Nanos) {
    let mut record = last(Kind::STATISTIC, InstrumentId::CHANNEL);
    record.ts_publish.set(publish.low());
    record.instrument_seq.set(stamp.sequence().0 as u32);
    engine.turn(now, told).on_lines(
        stamp,
        &[Line::seal(record, stamp)],
        LanePath::new(Lane::new(0), Carrier::Local),
        None,
    );
}

#[test]
fn a_publish_time_after_a_silence_without_heartbeats_is_right_or_none_and_counted() {
    for silence in (0..200).map(|n| n * 100 * MS).chain([(1 << 32) - 1, 1 << 32, (1 << 32) + 1, 1 << 33]) {
        let (mut engine, mut told) = (engine(Start::Strict), Told::default());
        let begin = Nanos(1_800_000_000 * SECOND);
        engine.turn(begin, &mut told).on_publish_time(Lane::new(0), begin);
        let first = Stamp::new(Epoch(1), SequenceNumber(1));
        hand_up(&mut engine, &mut told, first, begin, begin.plus(30_000));
        let time = begin.plus(silence);
        hand_up(&mut engine, &mut told, first.plus(1), time, time.plus(30_000));
        // The heartbeat that comes next makes the times known again.
        let beat = time.plus(10 * MS);
        engine.turn(beat, &mut told).on_publish_time(Lane::new(0), beat);
        let later = beat.plus(5 * MS);
        hand_up(&mut engine, &mut told, first.plus(2), later, later.plus(30_000));
        let times: Vec<_> = told.lines.iter().map(|(_, time)| *time).collect();
        assert_eq!((times[0], times[2]), (Some(begin), Some(later)), "silence {silence}");
        assert!(times[1].is_none() || times[1] == Some(time), "silence {silence}: {time:?} was told as {:?}", times[1]);
        if silence <= 2 * SECOND {
            assert_eq!(times[1], Some(time), "silence {silence}");
        }
        let unknown = u64::from(times[1].is_none());
        assert_eq!(engine.counts().publish_time_unknown, unknown, "silence {silence}");
    }
}

#[test]
fn a_heartbeat_that_overtakes_lines_of_another_lane_does_not_move_their_times() {
    let mut world =
        World::started(vec![FaultPlan::script([(1, Fault::Drop)]), FaultPlan::script([(1, Fault::Delay(MS / 10))])]);
    world.wait(MS);
    let sent = [(world.send(bid(1, 100, 1)), world.now)];
    world.wait(MS / 20);
    world.heartbeat(false);
    world.poll();
    assert_eq!(world.sequences(), [1], "known to exist, and still under way on B");
    world.wait(MS / 10);
    assert_eq!(world.sequences(), [1, 2]);
    assert_eq!(publish_times(&world, &sent), [(sent[0].1, Some(sent[0].1))]);
}

#[test]
fn a_heartbeat_that_overtakes_lines_that_wait_for_others_does_not_move_their_times() {
    let mut world = World::started(vec![FaultPlan::script([(1, Fault::Drop)])]);
    world.wait(MS);
    world.send(bid(1, 100, 1));
    let sent = [(world.send(bid(2, 100, 1)), world.now)];
    world.wait(HEDGE_NS / 2);
    world.heartbeat(false);
    world.poll();
    assert_eq!(world.sequences(), [1], "the third line waits for the second");
    world.wait(HEDGE_NS);
    assert_eq!((world.sequences(), world.told.gaps.len()), (vec![1, 3], 1));
    assert_eq!(publish_times(&world, &sent), [(sent[0].1, Some(sent[0].1))]);
}

#[test]
fn lines_that_waited_keep_the_time_of_their_own_publisher_whose_clock_is_behind() {
    let mut arbiter = Arbiter::new(ArbiterConfig { paths: 2, ..ArbiterConfig::default() });
    let (mut engine, mut told) = (engine(Start::Strict), Told::default());
    let now = Nanos(1_800_000_000 * SECOND);
    // The clock of lane 1 is a millisecond ahead. Lane 0 brings the third line before lane 1 brings the second.
    let ahead = now.plus(MS);
    for (lane, time) in [(0, now), (1, ahead)] {
        let next = Stamp::new(Epoch(1), SequenceNumber::FIRST);
        let position = Position {
            path: LanePath::new(Lane::new(lane), Carrier::Local),
            next,
            publish_time: Some(time),
            ended: false,
        };
        arbiter.sink(now, &mut engine.turn(now, &mut told)).on_position(position);
    }
    for (lane, sequence, publish) in [(1, 1, ahead), (0, 3, now.plus(20)), (1, 2, ahead.plus(10))] {
        let stamp = Stamp::new(Epoch(1), SequenceNumber(sequence));
        let mut record = last(Kind::STATISTIC, InstrumentId::CHANNEL);
        record.ts_publish.set(publish.low());
        record.instrument_seq.set(sequence as u32);
        let line = [Line::seal(record, stamp)];
        let run = Run {
            path: LanePath::new(Lane::new(lane), Carrier::Local),
            first: stamp,
            lines: &line,
            publish_time: Some(publish),
        };
        arbiter.sink(now, &mut engine.turn(now, &mut told)).on_run(run);
    }
    let times: Vec<_> = told.lines.iter().map(|(_, time)| *time).collect();
    assert_eq!(times, [Some(ahead), Some(ahead.plus(10)), Some(now.plus(20))]);
}

#[test]
fn the_clock_of_the_old_epochs_publisher_tells_nothing_of_the_new_ones() {
    let (mut engine, mut told) = (engine(Start::Strict), Told::default());
    let now = Nanos(1_800_000_000 * SECOND);
    let first = Stamp::new(Epoch(1), SequenceNumber(1));
    engine.turn(now, &mut told).on_publish_time(Lane::new(0), now);
    hand_up(&mut engine, &mut told, first, now, now);
    // The new publisher's clock is 3 s behind, and no heartbeat of it has come yet.
    engine.turn(now, &mut told).on_epoch(Epoch(1), Epoch(2));
    let other = Nanos(now.0 - 3 * SECOND);
    let new = Stamp::new(Epoch(2), SequenceNumber(1));
    hand_up(&mut engine, &mut told, new, other, now.plus(MS));
    engine.turn(now, &mut told).on_publish_time(Lane::new(0), other.plus(MS));
    hand_up(&mut engine, &mut told, new.plus(1), other.plus(2 * MS), now.plus(2 * MS));
    let times: Vec<_> = told.lines.iter().map(|(_, time)| *time).collect();
    assert_eq!(times, [Some(now), None, Some(other.plus(2 * MS))]);
}

#[test]
fn a_position_is_not_a_line() {
    // A heartbeat names the next sequence number; then that very line comes: it is delivered, once.
    let mut world = World::started(vec![FaultPlan::none()]);
    world.heartbeat(false);
    world.poll();
    assert_eq!(world.sequences(), [1]);
    world.send(bid(1, 100, 5));
    world.heartbeat(false);
    world.poll();
    assert_eq!((world.sequences(), world.levels(ONE, Side::BID)), (vec![1, 2], vec![(100, 5, 1)]));
}

/// Tells of every end of an event: the book must be the publisher's at that line.
struct Watcher<'a> {
    /// By sequence number and instrument: the digests of the naive book whose event ended there.
    truth: &'a HashMap<(u64, u32), (u64, u64, u64)>,
    name: String,
    compared: u64,
    lost: u64,
    healed: u64,
    ended: bool,
}

impl Handler for Watcher<'_> {
    fn on_event_end(&mut self, ctx: &subscriber::Context<'_>, end: &subscriber::EventEnd) {
        let view = ctx.book(end.instrument).expect("told of readable books only");
        let (orders, levels) = view.digests();
        let ours = (orders, levels, view.resting_orders());
        let theirs = self.truth.get(&(end.stamp.sequence().0, end.instrument.0));
        assert_eq!(Some(&ours), theirs, "{}: {end:?} of a book that says {:?}", self.name, view.state());
        self.compared += 1;
    }
    fn on_gap(&mut self, _: &subscriber::Context<'_>, gap: &subscriber::Gap) {
        self.lost += gap.count;
    }
    fn on_state_change(&mut self, _: &subscriber::Context<'_>, change: &subscriber::StateChange) {
        self.healed += u64::from(change.from == BookState::Stale);
    }
    fn on_end(&mut self, _: &subscriber::Context<'_>) {
        self.ended = true;
    }
}

/// A random stream over lanes with these faults. Returns lines lost, events compared, books healed.
fn lossy_run(seed: u64, plans: Vec<FaultPlan>) -> (u64, u64, u64) {
    let lines = random_lines(seed, 6_000, Start::Strict);
    let mut naive = NaiveBooks::new(false);
    let mut truth = HashMap::new();
    for (sequence, line) in (1..).zip(&lines) {
        for instrument in naive.apply(sequence, &line.record).to_vec() {
            truth.insert((sequence, instrument), naive.book(instrument).digests());
        }
    }
    let lanes = plans.len();
    let mut world = World::new(1, plans);
    let mut watcher = Watcher {
        truth: &truth,
        name: format!("seed {seed}, {lanes} lanes"),
        compared: 0,
        lost: 0,
        healed: 0,
        ended: false,
    };
    let turn = |world: &mut World, watcher: &mut Watcher<'_>| {
        let now = world.now;
        for path in &mut world.paths {
            let mut turn = world.engine.turn(now, watcher);
            path.rx.poll(now, usize::MAX, &mut world.arbiter.sink(now, &mut turn));
        }
        world.arbiter.on_timeout(now, &mut world.engine.turn(now, watcher));
    };
    for chunk in lines.chunks(3) {
        world.now = world.now.plus(20_000);
        chunk.iter().for_each(|line| world.put_line(line));
        world.flush();
        turn(&mut world, &mut watcher);
    }
    // The end is announced until it is heard.
    for _ in 0..100 {
        world.now = world.now.plus(10 * MS);
        world.heartbeat(true);
        turn(&mut world, &mut watcher);
    }
    assert!(watcher.ended, "seed {seed}: the end was never heard");
    let published = lines.len() as u64;
    let delivered = world.engine.counts().lines;
    assert_eq!(delivered + watcher.lost, published, "seed {seed}: each line comes once, or a gap names it");
    assert_eq!(
        world.engine.digest_counts().disagreed,
        0,
        "seed {seed}: no digest disagreed with a book that called itself Live"
    );
    (watcher.lost, watcher.compared, watcher.healed)
}

/// Packets of up to 3 lines, one each 20 us: what is overtaken by ten or more comes after the hedge time.
fn bad_weather(seed: u64, drop: f64, reorder_span: u64) -> FaultPlan {
    FaultPlan { drop, duplicate: 0.05, reorder: 0.05, reorder_span, lines_per_packet: 3, ..FaultPlan::seeded(seed) }
}

#[test]
fn no_loss_without_an_event_and_no_readable_book_that_is_wrong() {
    let (mut lost, mut compared, mut healed) = (0, 0, 0);
    for seed in 1..=12 {
        let outcome = lossy_run(seed, vec![bad_weather(seed, 0.05, 64)]);
        (lost, compared, healed) = (lost + outcome.0, compared + outcome.1, healed + outcome.2);
    }
    assert!(lost > 1_000 && compared > 5_000 && healed > 500, "lost {lost}, compared {compared}, healed {healed}");
}

#[test]
fn rare_losses_leave_books_that_heal_and_are_right() {
    let (mut lost, mut compared, mut healed) = (0, 0, 0);
    for seed in 21..=32 {
        let outcome = lossy_run(seed, vec![bad_weather(seed, 0.002, 8)]);
        (lost, compared, healed) = (lost + outcome.0, compared + outcome.1, healed + outcome.2);
    }
    assert!(lost > 50 && compared > 20_000 && healed > 100, "lost {lost}, compared {compared}, healed {healed}");
}

#[test]
fn two_lanes_in_bad_weather_lose_little_and_stay_right() {
    let (mut lost, mut compared) = (0, 0);
    let mut single = 0;
    for seed in 41..=46 {
        let outcome = lossy_run(seed, vec![bad_weather(seed, 0.05, 64), bad_weather(seed + 1000, 0.05, 64)]);
        (lost, compared) = (lost + outcome.0, compared + outcome.1);
        single += lossy_run(seed, vec![bad_weather(seed, 0.05, 64)]).0;
    }
    assert!(lost * 4 < single && compared > 10_000, "lost {lost} against {single} on one lane, compared {compared}");
}

#[test]
fn a_late_joiner_is_never_quietly_wrong() {
    for seed in 51..=56 {
        let lines = random_lines(seed, 6_000, Start::Strict);
        let mut naive = NaiveBooks::new(false);
        let mut truth = HashMap::new();
        for (sequence, line) in (1..).zip(&lines) {
            for instrument in naive.apply(sequence, &line.record).to_vec() {
                truth.insert((sequence, instrument), naive.book(instrument).digests());
            }
        }
        let name = format!("late joiner, seed {seed}");
        let mut watcher = Watcher { truth: &truth, name, compared: 0, lost: 0, healed: 0, ended: false };
        let mut engine = Engine::new(EngineConfig { selection: Selection::all(), ..EngineConfig::default() });
        // One whose early store reaches back to the first line would take what is missing for a gap.
        let mut arbiter = Arbiter::new(ArbiterConfig { early_lines: 1024, ..ArbiterConfig::default() });
        let (from, now) = (1_500, Nanos(SECOND));
        for (sequence, line) in (1u64..).zip(&lines).skip(from) {
            let first = Stamp::new(Epoch(1), SequenceNumber(sequence));
            let run = Run {
                path: LanePath::new(Lane::new(0), Carrier::Local),
                first,
                lines: std::slice::from_ref(line),
                publish_time: None,
            };
            arbiter.sink(now, &mut engine.turn(now, &mut watcher)).on_run(run);
        }
        assert_eq!(engine.counts().lines, (lines.len() - from) as u64);
        assert!(watcher.compared > 500, "seed {seed}: {} events of readable books", watcher.compared);
        assert_eq!((engine.digest_counts().disagreed, watcher.healed), (0, 0), "seed {seed}: nothing was lost");
    }
}

#[test]
fn whoever_selects_instruments_is_told_the_same_of_them_at_the_same_lines() {
    use bookcast_tests::random::{INSTRUMENTS, RandomRecords};
    let mut channel = channel(1);
    let mut lines: Vec<Line> = Vec::new();
    let mut push = |record: &Record| {
        channel
            .push(record, Nanos(1), &mut |line: &Line| lines.push(*line))
            .expect("far from the last sequence number");
    };
    push(&last(Kind::SESSION_START, InstrumentId::CHANNEL));
    for instrument in 1..=INSTRUMENTS {
        let head = last(Kind::DEFINITION, InstrumentId(instrument));
        let text = format!("symbol=S{instrument}\n");
        protocol::definition::continuations(&head, text.as_bytes(), &mut |record| push(&record));
    }
    let mut records = RandomRecords::new(7);
    for _ in 0..60_000 {
        let mut record = records.next_record();
        // The one selected never ends an event: the bound does, and no channel-wide line.
        if record.instrument_id() == ONE {
            record.flags = record.flags.without(Flags::LAST);
        }
        if record.instrument_id() != InstrumentId::CHANNEL && record.kind != Kind::EVENT_END {
            push(&record);
        }
    }
    let read = |selection: Selection| {
        let mut engine = Engine::new(EngineConfig { selection, ..EngineConfig::default() });
        let mut told = Told::default();
        let first = Stamp::new(Epoch(1), SequenceNumber::FIRST);
        engine.turn(Nanos(1), &mut told).on_lines(first, &lines, LanePath::new(Lane::new(0), Carrier::Local), None);
        (engine, told)
    };
    let ((all, all_told), (one, one_told)) = (read(Selection::all()), read(Selection::symbols(["S1"])));
    let ends = |told: &Told| told.ends.iter().filter(|end| end.instrument == ONE).copied().collect::<Vec<_>>();
    assert_eq!(ends(&all_told), ends(&one_told));
    assert!(ends(&one_told).len() > 5, "{:?}", one_told.ends);
    assert_eq!(one_told.ends.len(), ends(&one_told).len(), "nothing is told of the others");
    let digests = |engine: &Engine| engine.context(Nanos(1)).book(ONE).map(|view| (view.state(), view.digests()));
    assert_eq!(digests(&all).expect("readable"), digests(&one).expect("readable"));
    assert!(one.context(Nanos(1)).book(TWO).is_err());
    assert!(one.counts().skipped > 10_000 && one.counts().lines == all.counts().lines);
}

#[test]
fn a_session_that_ends_inside_an_open_event_still_ends_and_digests_the_others() {
    let config = ChannelConfig { books: BooksConfig::default(), digest_every: 1_000, start: Start::Strict };
    let mut channel = ChannelWriter::new(Epoch(1), config);
    let mut kinds = Vec::new();
    let open = Record { flags: Flags::NONE, ..bid(2, 101, 5) };
    let start = last(Kind::SESSION_START, InstrumentId::CHANNEL);
    let end = last(Kind::SESSION_END, InstrumentId::CHANNEL);
    for record in [start, bid(1, 100, 5), add(TWO, 1, Side::ASK, 200, 6), open, end] {
        let mut out = |line: &Line| kinds.push((line.record.kind, line.record.instrument_id()));
        channel.push(&record, Nanos(1), &mut out).expect("far from the last sequence number");
    }
    let told = [(Kind::ADD, ONE), (Kind::BOOK_DIGEST, TWO), (Kind::SESSION_END, InstrumentId::CHANNEL)];
    assert_eq!(kinds[kinds.len() - 3..], told);
}

#[test]
fn a_lane_that_names_its_loss_is_believed_at_once_when_it_is_the_only_one() {
    let mut arbiter = Arbiter::new(ArbiterConfig::default());
    let (mut engine, mut told) = (engine(Start::Strict), Told::default());
    let (now, path) = (Nanos(SECOND), LanePath::new(Lane::new(0), Carrier::Local));
    let first = Stamp::new(Epoch(1), SequenceNumber(1));
    let mut turn = engine.turn(now, &mut told);
    let mut sink = arbiter.sink(now, &mut turn);
    sink.on_position(Position { path, next: first, publish_time: None, ended: false });
    sink.on_loss(path, first, 40, LossCause::Lapped);
    let line = [Line::seal(last(Kind::STATISTIC, InstrumentId::CHANNEL), first.plus(40))];
    sink.on_run(Run { path, first: first.plus(40), lines: &line, publish_time: None });
    let gaps: Vec<_> = told.gaps.iter().map(|gap| (gap.first, gap.count, gap.cause)).collect();
    assert_eq!((gaps, told.lines.len()), (vec![(first, 40, LossCause::Lapped)], 1));
}
