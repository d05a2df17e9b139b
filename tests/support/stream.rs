//! A stream of lines on its way into a subscriber's engine and into the naive books.

use std::collections::BTreeMap;

use protocol::arbiter::{Delivery, Gap};
use protocol::book::{BookState, BooksConfig, EventEnd, Start, StateChange};
use protocol::channel::{ChannelConfig, ChannelWriter};
use protocol::line::{Epoch, Line, Stamp};
use protocol::record::{InstrumentId, Kind, Lane};
use protocol::run::{Carrier, LanePath};
use protocol::time::Nanos;
use subscriber::{Context, Engine, EngineConfig, Handler, Selection, Update};

use crate::compare::{assert_same_book, assert_same_top, bbo_of, naive_bbo};
use crate::naive::{NaiveBooks, NaiveLevel, NaiveState};
use crate::random::RandomRecords;

/// Books of a few dozen instruments.
pub const BOOKS: BooksConfig = BooksConfig { instruments: 128, orders: 1 << 15, levels: 1 << 13 };

/// A handler that writes down what it is told.
#[derive(Default)]
pub struct Told {
    /// Ends of events.
    pub ends: Vec<EventEnd>,
    /// Changes of state.
    pub changes: Vec<StateChange>,
    /// Gaps.
    pub gaps: Vec<Gap>,
    /// Stamp and publish time of each line.
    pub lines: Vec<(Stamp, Option<Nanos>)>,
    /// Epochs begun.
    pub epochs: Vec<(Epoch, Epoch)>,
    /// Symbols of definitions, with their instruments.
    pub definitions: Vec<(InstrumentId, String)>,
    /// Times that the end of the stream was told.
    pub endings: u64,
}

impl Handler for Told {
    fn on_record(&mut self, _: &Context<'_>, update: &Update<'_>) {
        self.lines.push((update.stamp, update.ts_publish));
    }
    fn on_definition(&mut self, ctx: &Context<'_>, instrument: InstrumentId, _: &subscriber::Definition) {
        self.definitions.push((instrument, ctx.symbol(instrument).to_string()));
    }
    fn on_event_end(&mut self, _: &Context<'_>, end: &EventEnd) {
        self.ends.push(*end);
    }
    fn on_gap(&mut self, _: &Context<'_>, gap: &Gap) {
        self.gaps.push(*gap);
    }
    fn on_state_change(&mut self, _: &Context<'_>, change: &StateChange) {
        self.changes.push(*change);
    }
    fn on_epoch(&mut self, _: &Context<'_>, from: Epoch, to: Epoch) {
        self.epochs.push((from, to));
    }
    fn on_end(&mut self, _: &Context<'_>) {
        self.endings += 1;
    }
}

/// An engine for every instrument, with the settings that the stream was made with.
pub fn engine(start: Start) -> Engine {
    Engine::new(EngineConfig { selection: Selection::all(), books: BOOKS, start })
}

/// A subscriber's engine and the naive books over the same lines, compared at every end of an event.
pub struct Oracle {
    /// The product.
    pub engine: Engine,
    /// The other one.
    pub naive: NaiveBooks,
    told: Told,
    next: Stamp,
    /// Best prices of the naive books at the last end of an event.
    tops: BTreeMap<u32, [Option<NaiveLevel>; 2]>,
    /// The whole book is compared at every so many ends of events; best prices, digests and state at each.
    whole_every: u64,
    /// Ends of events compared.
    pub events: u64,
    /// Whole books compared.
    pub whole: u64,
    name: String,
}

impl Oracle {
    /// Begins at the first line of epoch 1. `name` stands in every failure.
    pub fn new(name: &str, start: Start, whole_every: u64) -> Oracle {
        Oracle {
            engine: engine(start),
            naive: NaiveBooks::new(start == Start::Natural),
            told: Told::default(),
            next: Stamp::new(Epoch(1), protocol::line::SequenceNumber::FIRST),
            tops: BTreeMap::new(),
            whole_every,
            events: 0,
            whole: 0,
            name: name.to_string(),
        }
    }

    /// Takes the next line of the stream.
    ///
    /// # Panics
    /// If product and naive book differ, or the line is not the next one.
    pub fn take(&mut self, line: &Line) {
        let stamp = self.next;
        assert!(line.verifies(stamp), "{}: {line:?} where {stamp} was expected", self.name);
        self.next = stamp.plus(1);
        let context = || format!("{}, line {stamp}: {:?}", self.name, line.record);
        self.told.ends.clear();
        self.told.lines.clear();
        self.told.changes.clear();
        let now = Nanos(stamp.sequence().0);
        let slice = std::slice::from_ref(line);
        self.engine.turn(now, &mut self.told).on_lines(stamp, slice, LanePath::new(Lane::new(0), Carrier::Local), None);
        let ended = self.naive.apply(stamp.sequence().0, &line.record).to_vec();
        let readable = |i: &&u32| self.naive.book(**i).state() != NaiveState::Unknown;
        let told: Vec<u32> = self.told.ends.iter().map(|end| end.instrument.0).collect();
        assert_eq!(told, ended.iter().filter(readable).copied().collect::<Vec<_>>(), "events ended: {}", context());
        for instrument in ended {
            let naive = self.naive.book(instrument);
            let top = naive_bbo(naive);
            let before = self.tops.insert(instrument, top).unwrap_or_default();
            if let Some(end) = self.told.ends.iter().find(|end| end.instrument.0 == instrument) {
                assert_eq!((bbo_of(end.before), bbo_of(end.after)), (before, top), "before and after: {}", context());
                assert_eq!(end.stamp, stamp, "{}", context());
            }
            let view = self.engine.context(now).book_even_if_stale(InstrumentId(instrument));
            let view = view.unwrap_or_else(|error| panic!("{error}: {}", context()));
            self.events += 1;
            if self.events.is_multiple_of(self.whole_every) {
                self.whole += 1;
                assert_same_book(&view, naive, &context);
            } else {
                assert_same_top(&view, naive, &context);
            }
        }
        if line.record.instrument.get() == 0 && [Kind::CLEAR, Kind::SESSION_START].contains(&line.record.kind) {
            self.tops.clear();
            self.compare_all();
        }
    }

    /// Compares every book as a whole.
    ///
    /// # Panics
    /// If one differs.
    pub fn compare_all(&mut self) {
        for instrument in self.naive.instruments() {
            let context = || format!("{}, instrument {instrument} before line {}", self.name, self.next);
            let view = self.engine.context(Nanos(0)).book_even_if_stale(InstrumentId(instrument));
            let view = view.unwrap_or_else(|error| panic!("{error}: {}", context()));
            assert_same_book(&view, self.naive.book(instrument), &context);
            self.whole += 1;
        }
    }

    /// Compares every book, and asserts that the stream's own digests agreed throughout. Returns how many there were.
    ///
    /// # Panics
    /// If something differs.
    pub fn finish(&mut self) -> u64 {
        self.compare_all();
        let digests = self.engine.digest_counts();
        assert_eq!((digests.disagreed, digests.compared_stale), (0, 0), "{}: {digests:?}", self.name);
        digests.compared
    }
}

/// The lines of a random stream of about `records` records, digests among them.
pub fn random_lines(seed: u64, records: u64, start: Start) -> Vec<Line> {
    let config = ChannelConfig { books: BOOKS, start, digest_every: 11 };
    let mut channel = ChannelWriter::new(Epoch(1), config);
    let mut records_of = RandomRecords::new(seed);
    let mut lines = Vec::new();
    for step in 0..records {
        let mut out = |line: &Line| lines.push(*line);
        channel.push(&records_of.next_record(), Nanos(step), &mut out).expect("far from the last sequence number");
        channel.end_message(Nanos(step), &mut out).expect("far from the last sequence number");
    }
    assert_eq!(channel.state_changes(BookState::Stale), 0, "seed {seed}: a publisher's own book is never Stale");
    lines
}
