//! A publisher and a subscriber in one thread, and a handler that writes down what it is told.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use protocol::arbiter::ArbiterConfig;
use protocol::book::{BooksConfig, Start};
use protocol::channel::{ChannelConfig, ChannelWriter};
use protocol::definition::continuations;
use protocol::line::{Epoch, Line};
use protocol::record::{ChannelId, Flags, InstrumentId, Kind, Lane, Record, Side};
use protocol::run::{LanePath, LossCause, Position, Run, RunSink};
use protocol::time::Nanos;
use subscriber::{
    Bbo, Context, Definition, EngineConfig, EventEnd, Gap, Handler, Level, Selection, StateChange, Status, Subscriber,
    Trade, Update,
};
use transport::clock::Clock;
use transport::link::{LinkOptions, LinkRx, LinkTx};
use transport::{LaneRx, LaneTx, RingWriter};

/// Room enough for every test.
const BOOKS: BooksConfig = BooksConfig { instruments: 16, orders: 256, levels: 64 };
/// The time of the first line: shortly before the low half of the clock wraps, which nobody may notice.
const FIRST_NS: u64 = (7 << 32) - 1_000;
/// How long a missing line is waited for.
pub(crate) const HEDGE_NS: u64 = 1_000;
/// How many lines ahead of a missing one are kept. Whoever comes later than this after an epoch's start has joined late.
pub(crate) const EARLY_LINES: usize = 64;
/// After how long a lane is silent.
pub(crate) const SILENT_NS: u64 = 1_000_000_000;

/// Receives over links that the test adds; everything is lost while `losing`.
pub(crate) struct TestRx {
    links: Rc<RefCell<Vec<LinkRx>>>,
    losing: Rc<Cell<bool>>,
}

struct Nobody;

impl RunSink for Nobody {
    fn on_run(&mut self, _: Run<'_>) {}
    fn on_position(&mut self, _: Position) {}
    fn on_loss(&mut self, _: LanePath, _: protocol::line::Stamp, _: u64, _: LossCause) {}
}

impl LaneRx for TestRx {
    fn poll<S: RunSink>(&mut self, now: Nanos, limit: usize, sink: &mut S) -> usize {
        let mut lines = 0;
        for link in self.links.borrow_mut().iter_mut() {
            if self.losing.get() {
                link.poll(now, usize::MAX, &mut Nobody);
            } else {
                lines += link.poll(now, limit, sink);
            }
        }
        lines
    }
}

/// One publisher's side: its own books and digests, its ring, its link.
pub(crate) struct Feed {
    pub(crate) writer: ChannelWriter,
    ring: RingWriter,
    tx: LinkTx,
}

/// Publisher, link and subscriber.
pub(crate) struct Bench {
    pub(crate) feed: Feed,
    pub(crate) subscriber: Subscriber<TestRx>,
    pub(crate) notes: Notes,
    pub(crate) now: Nanos,
    links: Rc<RefCell<Vec<LinkRx>>>,
    losing: Rc<Cell<bool>>,
    start: Start,
}

impl Feed {
    fn new(epoch: u16, start: Start) -> Feed {
        let ring =
            RingWriter::anonymous(ChannelId::new(1), Lane::new(0), Epoch(epoch), 1 << 12).expect("there is memory");
        // Digests only where a test asks for one.
        let config = ChannelConfig { books: BOOKS, start, digest_every: 0 };
        let tx = LinkTx::new(&ring, LinkOptions::default());
        Feed { writer: ChannelWriter::new(Epoch(epoch), config), ring, tx }
    }

    fn put(&mut self, record: &Record, now: Nanos) {
        let ring = &mut self.ring;
        self.writer.push(record, now, &mut |line: &Line| ring.put(line)).expect("numbers are left");
        self.writer.end_message(now, &mut |line: &Line| ring.put(line)).expect("numbers are left");
    }
}

impl Bench {
    /// Everything is wanted, and the subscriber is there from the first line on.
    pub(crate) fn new() -> Bench {
        Bench::with(Selection::all(), Start::Strict)
    }

    pub(crate) fn with(selection: Selection, start: Start) -> Bench {
        let (links, losing) = (Rc::new(RefCell::new(Vec::new())), Rc::new(Cell::new(false)));
        let mut feed = Feed::new(1, start);
        links.borrow_mut().push(feed.tx.receiver());
        let arbiter = ArbiterConfig {
            hedge_ns: HEDGE_NS,
            lane_silent_ns: SILENT_NS,
            early_lines: EARLY_LINES,
            ..ArbiterConfig::default()
        };
        let rx = TestRx { links: Rc::clone(&links), losing: Rc::clone(&losing) };
        let engine = EngineConfig { selection, books: BOOKS, start };
        let subscriber = Subscriber::new(rx, arbiter, engine, Clock::calibrate());
        Bench { feed, subscriber, notes: Notes::default(), now: Nanos(FIRST_NS), links, losing, start }
    }

    /// Publishes these records, each with its lines at once, and lets the subscriber poll. A nanosecond passes.
    pub(crate) fn publish(&mut self, records: &[Record]) {
        self.send(records);
        self.poll();
    }

    /// Publishes these records, and loses them on the way.
    pub(crate) fn lose(&mut self, records: &[Record]) {
        self.send(records);
        self.losing.set(true);
        self.poll();
        self.losing.set(false);
    }

    /// Publishes these records without letting the subscriber poll.
    pub(crate) fn send(&mut self, records: &[Record]) {
        for record in records {
            self.feed.put(record, self.now);
        }
        self.feed.ring.flush();
        self.feed.tx.flush(&self.feed.ring, self.now);
    }

    pub(crate) fn poll(&mut self) -> usize {
        self.now = self.now.plus(1);
        self.subscriber.poll_at(self.now, &mut self.notes)
    }

    /// Lets time pass, and the subscriber poll.
    pub(crate) fn wait(&mut self, ns: u64) {
        self.now = self.now.plus(ns);
        self.poll();
    }

    pub(crate) fn heartbeat(&mut self, ended: bool) {
        self.feed.ring.flush();
        self.feed.tx.heartbeat(&self.feed.ring, self.now, ended);
        self.poll();
    }

    /// A digest of the publisher's book, as it stands.
    pub(crate) fn digest(&self, instrument: u32) -> Record {
        self.feed.writer.books().digest_record(InstrumentId(instrument)).expect("a book of that instrument")
    }

    /// The publisher is started anew, in this epoch; the old one says nothing more.
    pub(crate) fn restart(&mut self, epoch: u16) {
        self.feed = Feed::new(epoch, self.start);
        self.links.borrow_mut().push(self.feed.tx.receiver());
    }

    pub(crate) fn context(&self) -> Context<'_> {
        self.subscriber.engine().context(self.now)
    }

    /// What was noted since the last call.
    pub(crate) fn notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes.seen)
    }
}

/// Writes down every call in a few words: what, and what the book looked like to the callee.
#[derive(Default)]
pub(crate) struct Notes {
    pub(crate) seen: Vec<String>,
    /// The publish time that came with each record.
    pub(crate) published: Vec<Option<Nanos>>,
    pub(crate) lags: Vec<u64>,
    pub(crate) idle: u64,
}

impl Notes {
    fn note(&mut self, text: String) {
        self.seen.push(text);
    }
}

/// `3x100 (2)`: three units at 100 in two orders; `-` for nothing.
pub(crate) fn level_text(level: Option<Level>) -> String {
    level.map_or("-".into(), |level| format!("{}x{} ({})", level.size, level.price, level.orders))
}

pub(crate) fn bbo_text(bbo: Bbo) -> String {
    format!("{} | {}", level_text(bbo.bid), level_text(bbo.ask))
}

impl Handler for Notes {
    fn on_record(&mut self, ctx: &Context<'_>, update: &Update<'_>) {
        let instrument = update.record.instrument_id();
        let book = match ctx.book(instrument) {
            _ if instrument == InstrumentId::CHANNEL => String::new(),
            Ok(book) => format!(", book {}", bbo_text(book.bbo())),
            Err(_) => ", no book".into(),
        };
        self.published.push(update.ts_publish);
        self.lags.push(ctx.lag());
        let sequence = update.stamp.sequence().0;
        self.note(format!("{sequence} {:?} of {}{book}", update.record.kind, instrument.0));
    }

    fn on_definition(&mut self, ctx: &Context<'_>, instrument: InstrumentId, definition: &Definition) {
        assert_eq!(ctx.instrument(definition.symbol()), Some(instrument), "found by the name just told");
        self.note(format!("{} is {}", instrument.0, definition.symbol()));
    }

    fn on_event_end(&mut self, ctx: &Context<'_>, end: &EventEnd) {
        let book = ctx.book(end.instrument).expect("readable at the end of its event");
        assert_eq!(book.bbo(), end.after, "the book holds all of the event");
        self.note(format!("event of {}: {} -> {}", end.instrument.0, bbo_text(end.before), bbo_text(end.after)));
    }

    fn on_trade(&mut self, _: &Context<'_>, trade: &Trade) {
        self.note(format!(
            "trade of {}: {}x{}, {:?}, match {}, condition {}",
            trade.instrument.0, trade.size, trade.price, trade.aggressor, trade.match_id, trade.condition
        ));
    }

    fn on_status(&mut self, _: &Context<'_>, status: &Status) {
        self.note(format!("status of {}: {}, reason {}", status.instrument.0, status.action, status.word.reason));
    }

    fn on_gap(&mut self, _: &Context<'_>, gap: &Gap) {
        self.note(format!("gap of {} from {}: {:?}", gap.count, gap.first, gap.cause));
    }

    fn on_state_change(&mut self, ctx: &Context<'_>, change: &StateChange) {
        assert_eq!(ctx.book(change.instrument).is_ok(), change.to.is_readable(), "told after the state was changed");
        self.note(format!("{} {:?} -> {:?}: {:?}", change.instrument.0, change.from, change.to, change.reason));
    }

    fn on_epoch(&mut self, _: &Context<'_>, from: Epoch, to: Epoch) {
        self.note(format!("epoch {} -> {}", from.0, to.0));
    }

    fn on_path_silent(&mut self, _: &Context<'_>, path: LanePath, _: Nanos) {
        self.note(format!("{path} is silent"));
    }

    fn on_session_start(&mut self, _: &Context<'_>) {
        self.note("session starts".into());
    }

    fn on_session_end(&mut self, _: &Context<'_>) {
        self.note("session ends".into());
    }

    fn on_end(&mut self, _: &Context<'_>) {
        self.note("end".into());
    }

    fn on_idle(&mut self, _: &Context<'_>) {
        self.idle += 1;
    }
}

/// A record of `kind` that is an event of its own.
pub(crate) fn last(kind: Kind, instrument: u32) -> Record {
    let mut record = Record::new(kind, InstrumentId(instrument));
    record.flags = Flags::LAST;
    record
}

pub(crate) fn session_start() -> Record {
    last(Kind::SESSION_START, 0)
}

/// A new order, ending its event.
pub(crate) fn add(instrument: u32, order_id: u64, side: Side, size: u64, price: i64) -> Record {
    let mut record = last(Kind::ADD, instrument);
    record.side = side;
    record.order_id.set(order_id);
    record.size.set(size);
    record.price.set(price);
    record
}

pub(crate) fn delete(instrument: u32, order_id: u64) -> Record {
    let mut record = last(Kind::DELETE, instrument);
    record.order_id.set(order_id);
    record
}

/// The same record, not ending its event.
pub(crate) fn open(mut record: Record) -> Record {
    record.flags = record.flags.without(Flags::LAST);
    record
}

/// A Definition, as its three lines: the head and two Continuations.
pub(crate) fn definition(instrument: u32, symbol: &str) -> Vec<Record> {
    let mut lines = Vec::new();
    let text = format!("symbol={symbol}\nname={}\n", "x".repeat(60 - symbol.len()));
    continuations(&last(Kind::DEFINITION, instrument), text.as_bytes(), &mut |record| lines.push(record));
    assert_eq!(lines.len(), 3, "{text}");
    lines
}
