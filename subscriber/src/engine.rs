//! The engine: takes the lines of a channel in order, keeps directory and books, and calls the handler.
//!
//! It knows no transport and no clock. A live [`Subscriber`](crate::Subscriber) feeds it from the arbiter; a backtest
//! feeds it straight from a file.

use std::collections::HashMap;

use protocol::arbiter::{Delivery, Gap};
use protocol::book::{BookEvent, Books, BooksConfig, DigestCounts, Inconsistency, MAX_INSTRUMENTS, Start, StateReason};
use protocol::definition::{Assembler, Definition};
use protocol::line::{Epoch, Line, SequenceNumber, Stamp};
use protocol::log::{OwnDigest, OwnDigests};
use protocol::pair::Split;
use protocol::record::{Flags, InstrumentId, Kind, Lane, Record};
use protocol::recovery::{CatchUp, CatchUpConfig, CatchUpCounts};
use protocol::run::{Carrier, LanePath};
use protocol::time::Nanos;

use crate::handler::{Context, Handler, NotReadable, Status, Trade, Update};
use crate::selection::{Choice, Choices, Selection};

mod recovering;

/// Settings of an [`Engine`].
#[derive(Clone, Debug, Default)]
pub struct EngineConfig {
    /// Which instruments are wanted.
    pub selection: Selection,
    /// Sizes of the books.
    pub books: BooksConfig,
    /// What books are taken for when the feed starts in mid-day. Must be what the publisher uses.
    pub start: Start,
}

/// What an [`Engine`] counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EngineCounts {
    /// Lines that came.
    pub lines: u64,
    /// Lines of instruments that are not wanted.
    pub skipped: u64,
    /// Events of readable books.
    pub events: u64,
    /// Gaps told.
    pub gaps: u64,
    /// Lines in them.
    pub lost: u64,
    /// Changes of state of wanted books.
    pub state_changes: u64,
    /// Lines whose publish time could not be told in full.
    pub publish_time_unknown: u64,
    /// Definitions and other long records of which a line is missing.
    pub broken_records: u64,
}

/// Definitions by instrument and by symbol.
pub struct Directory {
    selection: Selection,
    instruments: usize,
    choices: Choices,
    definitions: Vec<Option<Definition>>,
    by_symbol: HashMap<String, InstrumentId>,
}

impl Directory {
    fn new(selection: Selection, instruments: usize) -> Directory {
        Directory {
            selection: selection.clone(),
            instruments,
            choices: Choices::new(selection, instruments),
            definitions: Vec::with_capacity(instruments + 1),
            by_symbol: HashMap::with_capacity(instruments),
        }
    }

    pub(crate) fn definition(&self, instrument: InstrumentId) -> Option<&Definition> {
        self.definitions.get(instrument.index())?.as_ref()
    }

    pub(crate) fn find(&self, symbol: &str) -> Option<InstrumentId> {
        self.by_symbol.get(symbol).copied()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (InstrumentId, &Definition)> {
        self.definitions
            .iter()
            .enumerate()
            .filter_map(|(i, definition)| Some((InstrumentId(i as u32), definition.as_ref()?)))
    }

    #[inline]
    pub(crate) fn check_selected(&self, instrument: InstrumentId) -> Result<(), NotReadable> {
        match self.choices.of(instrument) {
            Choice::Wanted => Ok(()),
            Choice::Undecided => Err(NotReadable::NeverHeard(instrument)),
            Choice::Unwanted => Err(NotReadable::NotSelected(instrument)),
        }
    }

    /// A new epoch numbers its instruments anew: what the numbers of the old one meant is forgotten.
    fn forget(&mut self) {
        self.choices = Choices::new(self.selection.clone(), self.instruments);
        self.definitions.clear();
        self.by_symbol.clear();
    }

    fn define(&mut self, instrument: InstrumentId, definition: Definition) -> Choice {
        // No book has such a number, and a table that long would take the machine's memory.
        if instrument.0 > MAX_INSTRUMENTS {
            return Choice::Unwanted;
        }
        let choice = self.choices.decide(instrument, definition.symbol());
        // What the number meant before is over.
        if let Some(old) = self.definitions.get_mut(instrument.index()).and_then(Option::take)
            && self.by_symbol.get(old.symbol()) == Some(&instrument)
        {
            self.by_symbol.remove(old.symbol());
        }
        if choice == Choice::Wanted {
            if instrument.index() >= self.definitions.len() {
                self.definitions.resize(instrument.index() + 1, None);
            }
            if !definition.symbol().is_empty() {
                self.by_symbol.insert(definition.symbol().to_string(), instrument);
            }
            self.definitions[instrument.index()] = Some(definition);
        }
        choice
    }
}

/// Lanes whose clocks are told apart; those numbered higher share the last anchor.
const CLOCKS: usize = 8;

/// Gives the full publish time of each line from its low half. Each lane may have a publisher, and so a clock, of its own.
#[derive(Default)]
struct PublishClocks {
    /// By lane, which may come over several carriers: the last full time known, and this reader's own clock then.
    anchors: [Option<(Nanos, Nanos)>; CLOCKS],
}

/// An anchor older than this on the reader's clock is not used: half of the 2^32 ns within which a low half tells the time.
/// The other half is for lines that waited in a ring while this reader was behind. Heartbeats come every few milliseconds.
const ANCHOR_NS: i64 = 2 << 30;

impl PublishClocks {
    #[inline]
    fn of(&mut self, lane: Lane) -> &mut Option<(Nanos, Nanos)> {
        &mut self.anchors[usize::from(lane.0.get()).min(CLOCKS - 1)]
    }

    fn set(&mut self, lane: Lane, publish: Nanos, now: Nanos) {
        *self.of(lane) = Some((publish, now));
    }

    #[inline]
    fn full(&mut self, lane: Lane, low: u32, now: Nanos) -> Option<Nanos> {
        let slot = self.of(lane);
        let (anchor, seen) = (*slot)?;
        if now.since(seen) >= ANCHOR_NS {
            *slot = None;
            return None;
        }
        let time = Nanos::next_with_low(anchor, low);
        *slot = Some((time, now));
        Some(time)
    }
}

/// Takes the lines of a channel in order, keeps directory and books, and calls a [`Handler`]. Knows no transport and no
/// clock: a live [`Subscriber`](crate::Subscriber) feeds it from its lanes, a backtest from a file.
pub struct Engine {
    books: Books,
    directory: Directory,
    assembler: Assembler,
    publish_clocks: PublishClocks,
    counts: EngineCounts,
    /// Lines known to exist and not delivered, as the arbiter last said.
    lag: u64,
    /// The stamp of the line that comes next.
    next: Stamp,
    /// Where snapshots meet the stream, if anybody recovers.
    catch_up: Option<CatchUp>,
    /// How often books came into doubt.
    doubts: u64,
    ended: bool,
    session_ended: bool,
}

impl Engine {
    /// An engine that has seen nothing. Allocates and touches all memory now.
    pub fn new(config: EngineConfig) -> Engine {
        Engine {
            books: Books::new(config.books, config.start),
            directory: Directory::new(config.selection, config.books.instruments),
            assembler: Assembler::default(),
            publish_clocks: PublishClocks::default(),
            counts: EngineCounts::default(),
            lag: 0,
            next: Stamp(0),
            catch_up: None,
            doubts: 0,
            ended: false,
            session_ended: false,
        }
    }

    /// The same, ready to take snapshots: its [`Turn`] is a [`Recovering`](protocol::recovery::Recovering). Allocates and
    /// touches the memory for what is delivered while snapshots are waited for.
    pub fn recovering(mut self, config: CatchUpConfig) -> Engine {
        self.catch_up = Some(CatchUp::new(config));
        self
    }

    /// What became of snapshots so far; nothing, if nobody recovers.
    pub fn snapshot_counts(&self) -> CatchUpCounts {
        self.catch_up.as_ref().map(CatchUp::counts).unwrap_or_default()
    }

    /// What was counted so far.
    pub fn counts(&self) -> EngineCounts {
        EngineCounts { broken_records: self.assembler.broken(), ..self.counts }
    }

    /// How digests compared so far.
    pub fn digest_counts(&self) -> DigestCounts {
        self.books.digest_counts()
    }

    /// How often the venue's feed was inconsistent in this way.
    pub fn inconsistencies(&self, kind: Inconsistency) -> u64 {
        self.books.inconsistencies(kind)
    }

    /// The books, for whoever looks from outside a callback.
    pub fn context(&self, now: Nanos) -> Context<'_> {
        Context { now, books: &self.books, directory: &self.directory, lag: self.lag }
    }

    /// Whether the publisher said that nothing follows, and everything before was delivered or named.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether the venue's session is over.
    pub fn session_ended(&self) -> bool {
        self.session_ended
    }

    /// How often books outgrew their configured size and had to allocate.
    pub fn books_grown(&self) -> u64 {
        self.books.grown()
    }

    pub(crate) fn set_lag(&mut self, lag: u64) {
        self.lag = lag;
    }

    /// This engine at one moment, with a handler to call: what an arbiter delivers to.
    #[inline]
    pub fn turn<'a, H: Handler>(&'a mut self, now: Nanos, handler: &'a mut H) -> Turn<'a, H> {
        Turn { engine: self, now, handler }
    }

    #[inline]
    fn on_line<H: Handler>(&mut self, stamp: Stamp, record: &Record, path: LanePath, now: Nanos, handler: &mut H) {
        self.counts.lines += 1;
        if record.kind == Kind::CONTINUATION {
            return self.on_continuation(stamp, record, path, now, handler);
        }
        // Whose clock it was that a recovered line was published by is not known, and it is no measure of anything.
        let is_recovered = path.carrier == Carrier::Recovery;
        let ts_publish = match is_recovered {
            false => self.publish_clocks.full(path.lane, record.ts_publish.get(), now),
            true => None,
        };
        self.counts.publish_time_unknown += u64::from(ts_publish.is_none() && !is_recovered);
        let instrument = record.instrument_id();
        let told = match if instrument == InstrumentId::CHANNEL { Choice::Wanted } else { self.choice(instrument) } {
            Choice::Wanted => true,
            Choice::Undecided => false,
            Choice::Unwanted => {
                self.counts.skipped += 1;
                self.books.pass(stamp);
                if record.kind == Kind::DEFINITION {
                    self.assembler.push(stamp.sequence(), record);
                }
                return self.tell_events(now, handler);
            }
        };
        if record.flags.has(Flags::CONTINUES) {
            self.assembler.push(stamp.sequence(), record);
        }
        if told {
            self.tell_record(stamp, record, ts_publish, path, now, handler);
        }
        self.books.apply(stamp, record);
        self.tell_events(now, handler);
        if instrument == InstrumentId::CHANNEL {
            match record.kind {
                Kind::SESSION_START => {
                    self.session_ended = false;
                    handler.on_session_start(&self.context(now));
                }
                Kind::SESSION_END => {
                    self.session_ended = true;
                    handler.on_session_end(&self.context(now));
                }
                _ => {}
            }
        }
    }

    #[inline]
    fn choice(&self, instrument: InstrumentId) -> Choice {
        self.directory.choices.of(instrument)
    }

    #[inline]
    fn tell_record<H: Handler>(
        &mut self,
        stamp: Stamp,
        record: &Record,
        ts_publish: Option<Nanos>,
        path: LanePath,
        now: Nanos,
        handler: &mut H,
    ) {
        let ctx = self.context(now);
        handler.on_record(&ctx, &Update { record, stamp, ts_publish, path });
        if let Some(trade) = Trade::of(record) {
            handler.on_trade(&ctx, &trade);
        } else if record.kind == Kind::STATUS {
            handler.on_status(&ctx, &Status::of(record));
        }
    }

    fn on_continuation<H: Handler>(
        &mut self,
        stamp: Stamp,
        record: &Record,
        path: LanePath,
        now: Nanos,
        handler: &mut H,
    ) {
        let instrument = record.instrument_id();
        let whole = self.assembler.push(stamp.sequence(), record);
        let definition = whole
            .filter(|(head, _)| head.kind == Kind::DEFINITION)
            .map(|(head, payload)| Definition::parse(head, payload));
        let choice = if instrument == InstrumentId::CHANNEL { Choice::Wanted } else { self.choice(instrument) };
        if choice == Choice::Wanted {
            handler.on_record(&self.context(now), &Update { record, stamp, ts_publish: None, path });
        }
        let is_wanted_now =
            definition.is_some_and(|definition| self.directory.define(instrument, definition) == Choice::Wanted);
        if choice != Choice::Unwanted || is_wanted_now {
            // One that was not wanted until now has missed lines. Its count tells, and makes its book Stale at once.
            self.books.apply(stamp, record);
        } else {
            self.counts.skipped += 1;
            self.books.pass(stamp);
        }
        if is_wanted_now {
            let ctx = self.context(now);
            let definition = ctx.definition(instrument).expect("just defined");
            handler.on_definition(&ctx, instrument, definition);
        }
        self.tell_events(now, handler);
    }

    #[inline]
    fn tell_events<H: Handler>(&mut self, now: Nanos, handler: &mut H) {
        while let Some(event) = self.books.poll_event() {
            match event {
                BookEvent::EventEnd(end) => {
                    if self.choice(end.instrument) == Choice::Wanted {
                        self.counts.events += 1;
                        handler.on_event_end(&self.context(now), &end);
                    }
                }
                BookEvent::State(change) => {
                    if matches!(change.reason, StateReason::CountJumped | StateReason::DigestDisagreed) {
                        self.doubt(false, self.next);
                    }
                    if self.choice(change.instrument) == Choice::Wanted {
                        self.counts.state_changes += 1;
                        handler.on_state_change(&self.context(now), &change);
                    }
                }
            }
        }
    }
}

impl Engine {
    /// Books are in doubt: snapshots are wanted. `lost`: what was delivered before `next` does not go on there.
    fn doubt(&mut self, lost: bool, next: Stamp) {
        self.doubts += 1;
        match &mut self.catch_up {
            Some(catch_up) if lost => catch_up.begin(next),
            Some(catch_up) => catch_up.begin_if_idle(next),
            None => {}
        }
    }
}

/// An [`Engine`] at one moment, with a handler to call.
pub struct Turn<'a, H> {
    engine: &'a mut Engine,
    now: Nanos,
    handler: &'a mut H,
}

impl<H: Handler> Delivery for Turn<'_, H> {
    #[inline]
    fn on_lines(&mut self, first: Stamp, lines: &[Line], path: LanePath, publish_time: Option<Nanos>) {
        if let Some(time) = publish_time {
            self.engine.publish_clocks.set(path.lane, time, self.now);
        }
        for (i, line) in lines.iter().enumerate() {
            self.engine.on_line(first.plus(i as u64), &line.record, path, self.now, self.handler);
        }
        self.engine.next = first.plus(lines.len() as u64);
        if let Some(catch_up) = &mut self.engine.catch_up {
            catch_up.on_lines(first, lines);
        }
    }

    fn on_gap(&mut self, gap: Gap) {
        self.engine.counts.gaps += 1;
        self.engine.counts.lost += gap.count;
        self.engine.next = gap.first.plus(gap.count);
        self.engine.doubt(true, self.engine.next);
        self.engine.books.on_gap();
        self.handler.on_gap(&self.engine.context(self.now), &gap);
        self.engine.tell_events(self.now, self.handler);
    }

    fn on_joined(&mut self, at: Stamp) {
        self.engine.next = at;
        if at.sequence() != SequenceNumber::FIRST {
            self.engine.books.on_join_late();
            self.engine.doubt(true, at);
        }
    }

    fn on_epoch(&mut self, from: Epoch, to: Epoch) {
        self.engine.ended = false;
        self.engine.next = Stamp::new(to, SequenceNumber::FIRST);
        self.engine.doubt(true, self.engine.next);
        // Another publisher may read another clock.
        self.engine.publish_clocks = PublishClocks::default();
        self.engine.books.on_epoch();
        self.handler.on_epoch(&self.engine.context(self.now), from, to);
        self.engine.tell_events(self.now, self.handler);
        self.engine.directory.forget();
    }

    fn on_publish_time(&mut self, lane: Lane, time: Nanos) {
        self.engine.publish_clocks.set(lane, time, self.now);
    }

    fn on_path_silent(&mut self, path: LanePath, since: Nanos) {
        self.handler.on_path_silent(&self.engine.context(self.now), path, since);
    }

    fn on_split(&mut self, split: Split) {
        if split.is_tainted {
            if let Some(catch_up) = &mut self.engine.catch_up {
                // Snapshots that wait may be the withdrawn publisher's.
                catch_up.end();
            }
            self.engine.doubt(true, self.engine.next);
            self.engine.books.on_split();
        }
        self.handler.on_split(&self.engine.context(self.now), &split);
        self.engine.tell_events(self.now, self.handler);
    }

    fn on_end(&mut self, _at: Stamp) {
        self.engine.ended = true;
        self.handler.on_end(&self.engine.context(self.now));
    }
}

impl<H> OwnDigests for Turn<'_, H> {
    fn own_digest(&self, instrument: InstrumentId) -> OwnDigest {
        // Of one that is not decided on yet the books hold what came so far; the digest is as good as any.
        match self.engine.choice(instrument) {
            Choice::Unwanted => OwnDigest::NotKept,
            Choice::Wanted | Choice::Undecided => OwnDigest::of_books(&self.engine.books, instrument),
        }
    }
}
