//! Lines into records.
//!
//! Each stream of a symbol is a book of its own, an instrument: diffs (to which trades belong), best prices, aggregated
//! trades, and pictures of the best levels. They are numbered from 1 in the order in which the file first needs them, and
//! their Definitions name each other.

use std::collections::HashMap;

use protocol::book::OrderLookup;
use protocol::record::{Flags, InstrumentId, Kind, Record, Side, UNDEFINED_PRICE, condition};
use protocol::time::Nanos;

use super::message::{Depth, Malformed, Snapshot, Ticker, Trade, Update, letter, levels};
use super::sync::{Sync, Verdict};
use crate::counters::Counters;
use crate::date::SessionDate;
use crate::feed::{Message, Notice};
use crate::text::decimal;
use crate::text::definition::Text;
use crate::text::event::{IMPLIED, LevelEvent, Origin};
use crate::venue::{Rejected, Venue};

/// Sizes are in 10^-8.
pub const SIZE_PLACES: u32 = 8;
/// Prices are in 10^-9.
const PRICE_PLACES: u32 = 9;

/// The streams of a symbol that are books of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stream {
    Depth,
    Ticker,
    Aggregate,
    Partial,
}

impl Stream {
    const ALL: [Stream; 4] = [Stream::Depth, Stream::Ticker, Stream::Aggregate, Stream::Partial];

    const fn name(self) -> &'static str {
        match self {
            Stream::Depth => "depth",
            Stream::Ticker => "bookTicker",
            Stream::Aggregate => "aggTrade",
            Stream::Partial => "partial depth",
        }
    }
}

/// A level as it is told: price and size.
type Level = (i64, u64);

/// What is known of a symbol.
#[derive(Debug)]
struct Symbol {
    name: Vec<u8>,
    instruments: [Option<InstrumentId>; Stream::ALL.len()],
    sync: Sync,
    /// The best prices told last, and their update.
    best: Option<[Level; 2]>,
    last_ticker: u64,
    /// The newest trade and aggregated trade.
    last_trade: [u64; 2],
}

/// Turns lines into records.
#[derive(Debug)]
pub struct Normaliser {
    date: SessionDate,
    symbols: Vec<Symbol>,
    by_name: HashMap<Vec<u8>, usize>,
    /// What was found last.
    last: usize,
    instruments: u32,
    /// A snapshot that came before anything said whose it is: the line, and when it was received.
    orphan: Option<(Vec<u8>, Option<u64>)>,
    last_time: u64,
    counters: Counters,
}

/// Price and size exactly, if a record can hold them so.
fn exact(price: &[u8], size: &[u8]) -> Option<Level> {
    let price = decimal::parse(price, PRICE_PLACES).ok().filter(|price| *price != UNDEFINED_PRICE)?;
    Some((price, decimal::parse_size(size, SIZE_PLACES).ok()?))
}

impl Normaliser {
    /// A normaliser; `date` is how times of day are read, and changes no record.
    pub fn new(date: SessionDate) -> Normaliser {
        Normaliser {
            date,
            symbols: Vec::new(),
            by_name: HashMap::new(),
            last: 0,
            instruments: 0,
            orphan: None,
            last_time: 0,
            counters: Counters::ZERO,
        }
    }

    fn symbol(&mut self, name: &[u8]) -> usize {
        if self.symbols.get(self.last).is_some_and(|symbol| symbol.name.eq_ignore_ascii_case(name)) {
            return self.last;
        }
        // Streams are named in lower case, symbols in upper.
        let key = name.to_ascii_uppercase();
        self.last = match self.by_name.get(&key) {
            Some(at) => *at,
            None => {
                self.symbols.push(Symbol {
                    name: key.clone(),
                    instruments: [None; Stream::ALL.len()],
                    sync: Sync::default(),
                    best: None,
                    last_ticker: 0,
                    last_trade: [0; 2],
                });
                self.by_name.insert(key, self.symbols.len() - 1);
                self.symbols.len() - 1
            }
        };
        self.last
    }

    /// The instrument of a stream; made, and defined, if it is new.
    fn instrument(&mut self, at: usize, stream: Stream, origin: Origin, out: &mut impl FnMut(Record)) -> InstrumentId {
        if let Some(instrument) = self.symbols[at].instruments[stream as usize] {
            return instrument;
        }
        self.instruments += 1;
        let instrument = InstrumentId(self.instruments);
        self.symbols[at].instruments[stream as usize] = Some(instrument);
        self.counters.implied_instruments += 1;
        // The others of the symbol are told again: from now on they have one more to name.
        self.define(at, stream, origin, out);
        for other in Stream::ALL.into_iter().filter(|other| *other != stream) {
            if self.symbols[at].instruments[other as usize].is_some() {
                self.define(at, other, origin, out);
            }
        }
        instrument
    }

    #[cold]
    fn define(&mut self, at: usize, stream: Stream, origin: Origin, out: &mut impl FnMut(Record)) {
        let symbol = &self.symbols[at];
        let Some(instrument) = symbol.instruments[stream as usize] else { return };
        let mut text = Text::default()
            .line("symbol", &symbol.name)
            .line("type", b"crypto")
            .line("book", stream.name().as_bytes())
            .line("size_exponent", b"-8");
        for other in symbol.instruments.iter().flatten().filter(|other| **other != instrument) {
            text = text.line("related", other.0.to_string().as_bytes());
        }
        let mut record = Record::new(Kind::DEFINITION, instrument);
        record.order_id.set(instrument.0.into());
        self.counters.lines += origin.send(record, text.bytes(), out);
    }

    fn origin(&mut self, time: Option<u64>, capture: Option<u64>, sequence: u64) -> Origin {
        let origin = Origin::new(time, capture, self.last_time, sequence);
        self.last_time = origin.ts_capture;
        origin
    }

    /// The book lacks something from now on.
    fn gap(
        &mut self,
        instrument: InstrumentId,
        origin: Origin,
        (first, count): (u64, u64),
        out: &mut impl FnMut(Record),
    ) {
        let mut record = Record::new(Kind::VENUE_GAP, instrument);
        record.order_id.set(first);
        record.size.set(count);
        self.counters.lines += origin.send(record, &[], out);
    }

    fn refuse(
        &mut self,
        count: u64,
        instrument: InstrumentId,
        origin: Origin,
        update: u64,
        out: &mut impl FnMut(Record),
    ) {
        if count > 0 {
            self.counters.refused_prices += count;
            self.gap(instrument, origin, (update, 1), out);
        }
    }

    fn depth(&mut self, depth: &Depth<'_>, capture: Option<u64>, out: &mut impl FnMut(Record)) {
        let at = self.symbol(depth.symbol);
        let is_first = self.symbols[at].instruments[Stream::Depth as usize].is_none();
        if is_first && let Some((line, received)) = self.orphan.take() {
            self.adopt(at, &line, received, out);
        }
        let origin = self.origin(depth.time, capture, depth.last);
        let instrument = self.instrument(at, Stream::Depth, origin, out);
        match self.symbols[at].sync.diff(depth.first, depth.last, depth.previous) {
            Verdict::Old => {
                self.counters.not_carried += 1;
                return;
            }
            Verdict::Follows => {}
            Verdict::Gap { first, count } => self.gap(instrument, origin, (first, count), out),
        }
        let sync = &mut self.symbols[at].sync;
        let mut refused = 0;
        let mut event = LevelEvent::new(instrument, origin, Flags::NONE, out);
        for (side, text) in [(Side::BID, depth.bids), (Side::ASK, depth.asks)] {
            let _ = levels(text, &mut |price, size| match exact(price, size) {
                Some((price, size)) => {
                    sync.keep((side, price, size));
                    event.level(side, price, size);
                }
                None => refused += 1,
            });
        }
        self.counters.lines += event.finish();
        self.refuse(refused, instrument, origin, depth.last, out);
    }

    /// A snapshot that came first is of the symbol whose diffs come now.
    #[cold]
    fn adopt(&mut self, at: usize, line: &[u8], received: Option<u64>, out: &mut impl FnMut(Record)) {
        if let Ok(Update::Snapshot(snapshot)) = Update::parse(line) {
            self.whole(at, &snapshot, received, out);
        }
    }

    fn snapshot(&mut self, line: &[u8], snapshot: &Snapshot<'_>, capture: Option<u64>, out: &mut impl FnMut(Record)) {
        if let Some(symbol) = snapshot.symbol {
            let at = self.symbol(symbol);
            return match snapshot.is_partial {
                true => self.partial(at, snapshot, capture, out),
                false => self.whole(at, snapshot, capture, out),
            };
        }
        let has_diffs = |symbol: &Symbol| symbol.instruments[Stream::Depth as usize].is_some();
        let mut of_diffs = (0..self.symbols.len()).filter(|at| has_diffs(&self.symbols[*at]));
        match (of_diffs.next(), of_diffs.next()) {
            (Some(only), None) => self.whole(only, snapshot, capture, out),
            // It does not say whose it is, and there is more than one that it could be of.
            (Some(_), Some(_)) => self.counters.not_carried += 1,
            (None, _) => {
                if self.orphan.replace((line.to_owned(), capture)).is_some() {
                    self.counters.not_carried += 1;
                }
            }
        }
    }

    /// The whole book, to which diffs are.
    fn whole(&mut self, at: usize, snapshot: &Snapshot<'_>, capture: Option<u64>, out: &mut impl FnMut(Record)) {
        let origin = self.origin(snapshot.time, capture, snapshot.last);
        let instrument = self.instrument(at, Stream::Depth, origin, out);
        if !self.symbols[at].sync.snapshot(snapshot.last) {
            self.counters.not_carried += 1;
            return;
        }
        self.picture(at, instrument, origin, snapshot, true, out);
    }

    /// The best levels alone: each picture is the whole of this book.
    fn partial(&mut self, at: usize, snapshot: &Snapshot<'_>, capture: Option<u64>, out: &mut impl FnMut(Record)) {
        let origin = self.origin(snapshot.time, capture, snapshot.last);
        let instrument = self.instrument(at, Stream::Partial, origin, out);
        self.picture(at, instrument, origin, snapshot, false, out);
    }

    fn picture(
        &mut self,
        at: usize,
        instrument: InstrumentId,
        origin: Origin,
        snapshot: &Snapshot<'_>,
        with_diffs: bool,
        out: &mut impl FnMut(Record),
    ) {
        let mut refused = 0;
        let mut event = LevelEvent::new(instrument, origin, Flags::SNAPSHOT, out);
        event.clear(0);
        for (side, text) in [(Side::BID, snapshot.bids), (Side::ASK, snapshot.asks)] {
            let _ = levels(text, &mut |price, size| match exact(price, size) {
                // A level that is not there needs no line.
                Some((_, 0)) => {}
                Some((price, size)) => event.level(side, price, size),
                None => refused += 1,
            });
        }
        if with_diffs {
            self.symbols[at].sync.since_snapshot().for_each(|(side, price, size)| event.level(side, price, size));
        }
        self.counters.lines += event.finish();
        self.refuse(refused, instrument, origin, snapshot.last, out);
    }

    fn ticker(&mut self, ticker: &Ticker<'_>, capture: Option<u64>, out: &mut impl FnMut(Record)) {
        let at = self.symbol(ticker.symbol);
        let origin = self.origin(ticker.time, capture, ticker.last);
        let instrument = self.instrument(at, Stream::Ticker, origin, out);
        let symbol = &mut self.symbols[at];
        if ticker.last < symbol.last_ticker {
            self.counters.not_carried += 1;
            return;
        }
        symbol.last_ticker = ticker.last;
        let sides = [exact(ticker.bid.0, ticker.bid.1), exact(ticker.ask.0, ticker.ask.1)];
        let [Some(bid), Some(ask)] = sides else {
            return self.refuse(1, instrument, origin, ticker.last, out);
        };
        // A side without a price or a size is empty.
        let told = |level: Level| if level.0 == 0 || level.1 == 0 { (UNDEFINED_PRICE, 0) } else { level };
        let now = [told(bid), told(ask)];
        let before = symbol.best.replace(now);
        let mut event = LevelEvent::new(instrument, origin, Flags::TOB, out);
        if before.is_none() {
            event.clear(IMPLIED);
        }
        for (place, side) in [Side::BID, Side::ASK].into_iter().enumerate() {
            if before.is_none_or(|before| before[place] != now[place]) {
                event.level(side, now[place].0, now[place].1);
            }
        }
        self.counters.lines += event.finish();
    }

    fn trade(&mut self, trade: &Trade<'_>, capture: Option<u64>, out: &mut impl FnMut(Record)) {
        let at = self.symbol(trade.symbol);
        // Its number is in order_id; the stream of levels is numbered in another way.
        let origin = self.origin(trade.time, capture, 0);
        let stream = if trade.is_aggregate { Stream::Aggregate } else { Stream::Depth };
        let instrument = self.instrument(at, stream, origin, out);
        let last = &mut self.symbols[at].last_trade[usize::from(trade.is_aggregate)];
        // The first has no number before it, and 0 is one.
        if trade.id < *last {
            self.counters.not_carried += 1;
            return;
        }
        *last = trade.id.saturating_add(1);
        let Some((price, size)) = exact(trade.price, trade.size) else {
            self.counters.refused_prices += 1;
            return;
        };
        let mut record = Record::new(Kind::TRADE, instrument);
        record.side = if trade.buyer_is_maker { Side::ASK } else { Side::BID };
        record.detail = condition::PRINTABLE;
        record.order_id.set(trade.id);
        record.price.set(price);
        record.size.set(size);
        self.counters.lines += origin.send(record, &[], out);
    }
}

impl Venue for Normaliser {
    fn normalise(&mut self, message: &Message<'_>, _orders: &impl OrderLookup, out: &mut impl FnMut(Record)) {
        if message.bytes.is_empty() {
            self.counters.empty_messages += 1;
            return;
        }
        let capture = message.capture.map(|capture| capture.0);
        match Update::parse(message.bytes) {
            Ok(update) => {
                self.counters.messages_by_type[usize::from(update.letter())] += 1;
                match update {
                    Update::Depth(depth) => self.depth(&depth, capture, out),
                    Update::Snapshot(snapshot) => self.snapshot(message.bytes, &snapshot, capture, out),
                    Update::Ticker(ticker) => self.ticker(&ticker, capture, out),
                    Update::Trade(trade) => self.trade(&trade, capture, out),
                }
            }
            Err(malformed) => {
                self.counters.messages_by_type[usize::from(malformed.letter())] += 1;
                if malformed == Malformed::Unknown {
                    self.counters.unknown_types += 1;
                    self.counters.unknown_by_type[usize::from(letter::OTHER)] += 1;
                } else {
                    self.counters.malformed += 1;
                }
            }
        }
    }

    /// Files have no sessions, and gaps show in the numbers of the diffs: a source of lines says nothing.
    fn notice(&mut self, _notice: &Notice, _out: &mut impl FnMut(Record)) {}

    fn time(&self, message: &Message<'_>) -> Option<Nanos> {
        message.capture.or_else(|| self.venue_time(message))
    }

    fn venue_time(&self, message: &Message<'_>) -> Option<Nanos> {
        Update::parse(message.bytes).ok().and_then(|update| update.time()).map(Nanos)
    }

    fn check(&self, bytes: &[u8]) -> Result<(), Rejected> {
        match Update::parse(bytes) {
            Ok(_) => Ok(()),
            Err(_) if bytes.is_empty() => Err(Rejected::Empty),
            Err(Malformed::Unknown) => Err(Rejected::Unknown { message_type: letter::OTHER, len: bytes.len() }),
            Err(Malformed::Json) => {
                Err(Rejected::Malformed { message_type: letter::NONE, what: "it is no JSON object" })
            }
            Err(Malformed::Field(message_type, what)) => Err(Rejected::Malformed { message_type, what }),
        }
    }

    fn type_of(&self, bytes: &[u8]) -> Option<u8> {
        if bytes.is_empty() {
            return None;
        }
        Some(Update::parse(bytes).map_or_else(Malformed::letter, |update| update.letter()))
    }

    fn type_name(&self, message_type: u8) -> String {
        match message_type {
            letter::DEPTH => "depthUpdate".to_owned(),
            letter::SNAPSHOT => "snapshot".to_owned(),
            letter::TICKER => "bookTicker".to_owned(),
            letter::TRADE => "trade".to_owned(),
            letter::AGGREGATE => "aggTrade".to_owned(),
            letter::OTHER => "other".to_owned(),
            other => crate::venue::plain_name(other),
        }
    }

    fn says_start(&self) -> bool {
        false
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn instrument_count(&self) -> u32 {
        self.instruments
    }

    fn date(&self) -> SessionDate {
        self.date
    }
}

#[cfg(test)]
mod tests;
