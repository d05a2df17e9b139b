//! Rows into records: those of one moment are one event.

use std::collections::HashMap;

use protocol::book::OrderLookup;
use protocol::record::{Flags, InstrumentId, Kind, Record};
use protocol::time::Nanos;

use super::row::{BadRow, Row};
use crate::counters::Counters;
use crate::date::SessionDate;
use crate::feed::{Message, Notice};
use crate::text::decimal;
use crate::text::definition::Text;
use crate::text::event::{LevelEvent, Origin};
use crate::venue::{Rejected, Venue};

/// Sizes are in 10^-8.
pub const SIZE_PLACES: u32 = 8;
/// Prices are in 10^-9.
const PRICE_PLACES: u32 = 9;

/// The types that messages are counted by.
const SNAPSHOT: u8 = b's';
const UPDATE: u8 = b'u';

/// One book.
#[derive(Debug)]
struct Book {
    exchange: Vec<u8>,
    symbol: Vec<u8>,
    instrument: InstrumentId,
    /// The rows before were of the snapshot that was received then.
    in_snapshot: Option<u64>,
}

/// Turns rows into records.
#[derive(Debug)]
pub struct Normaliser {
    date: SessionDate,
    books: Vec<Book>,
    by_symbol: HashMap<Vec<u8>, Vec<usize>>,
    /// What was found last: rows of one book come one after the other.
    last: usize,
    last_time: u64,
    counters: Counters,
}

impl Normaliser {
    /// A normaliser; `date` is how times of day are read, and changes no record.
    pub fn new(date: SessionDate) -> Normaliser {
        Normaliser {
            date,
            books: Vec::new(),
            by_symbol: HashMap::new(),
            last: 0,
            last_time: 0,
            counters: Counters::ZERO,
        }
    }

    /// The place of a row's book; made, and defined, if it is new.
    fn book(&mut self, row: &Row<'_>, origin: Origin, out: &mut impl FnMut(Record)) -> usize {
        let is = |book: &Book| book.exchange == row.exchange && book.symbol == row.symbol;
        if self.books.get(self.last).is_some_and(is) {
            return self.last;
        }
        let known =
            self.by_symbol.get(row.symbol).and_then(|places| places.iter().copied().find(|at| is(&self.books[*at])));
        self.last = known.unwrap_or_else(|| self.make(row, origin, out));
        self.last
    }

    #[cold]
    fn make(&mut self, row: &Row<'_>, origin: Origin, out: &mut impl FnMut(Record)) -> usize {
        let at = self.books.len();
        let instrument = InstrumentId(at as u32 + 1);
        self.books.push(Book {
            exchange: row.exchange.to_owned(),
            symbol: row.symbol.to_owned(),
            instrument,
            in_snapshot: None,
        });
        self.by_symbol.entry(row.symbol.to_owned()).or_default().push(at);
        let text = Text::default()
            .line("symbol", row.symbol)
            .line("venue", row.exchange)
            .line("type", b"crypto")
            .line("book", b"incremental_book_L2")
            .line("size_exponent", b"-8");
        let mut record = Record::new(Kind::DEFINITION, instrument);
        record.order_id.set(instrument.0.into());
        self.counters.implied_instruments += 1;
        self.counters.lines += origin.send(record, text.bytes(), out);
        at
    }

    fn rows(&mut self, message: &Message<'_>, first: &Row<'_>, out: &mut impl FnMut(Record)) {
        let origin = Origin::new(Some(first.time), Some(first.local_time), self.last_time, message.ordinal);
        self.last_time = first.local_time;
        let at = self.book(first, origin, out);
        let book = &mut self.books[at];
        let instrument = book.instrument;
        let flags = if first.is_snapshot { Flags::SNAPSHOT } else { Flags::NONE };
        let begins = first.is_snapshot && book.in_snapshot != Some(first.local_time);
        book.in_snapshot = first.is_snapshot.then_some(first.local_time);
        let (mut refused, mut bad) = (0, 0);
        let mut event = LevelEvent::new(instrument, origin, flags, out);
        if begins {
            event.clear(0);
        }
        for line in lines(message.bytes) {
            let Ok(row) = Row::parse(line) else {
                bad += 1;
                continue;
            };
            match (decimal::parse(row.price, PRICE_PLACES), decimal::parse_size(row.amount, SIZE_PLACES)) {
                // A level that is not there needs no line in a snapshot.
                (Ok(_), Ok(0)) if row.is_snapshot => {}
                (Ok(price), Ok(size)) => event.level(row.side, price, size),
                _ => refused += 1,
            }
        }
        self.counters.lines += event.finish();
        self.counters.malformed += bad;
        if refused + bad > 0 {
            // The book lacks levels from now on, and has to say so.
            self.counters.refused_prices += refused;
            let mut gap = Record::new(Kind::VENUE_GAP, instrument);
            gap.order_id.set(message.ordinal);
            gap.size.set(refused + bad);
            self.counters.lines += origin.send(gap, &[], out);
        }
    }
}

/// The rows of a message, none of them blank.
fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes
        .split(|byte| *byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
        .filter(|line| !line.is_empty())
}

fn first_row(bytes: &[u8]) -> Result<Row<'_>, BadRow> {
    Row::parse(lines(bytes).next().unwrap_or_default())
}

impl Venue for Normaliser {
    fn normalise(&mut self, message: &Message<'_>, _orders: &impl OrderLookup, out: &mut impl FnMut(Record)) {
        if message.bytes.is_empty() {
            self.counters.empty_messages += 1;
            return;
        }
        let first = first_row(message.bytes);
        let message_type = self.type_of(message.bytes).unwrap_or(0);
        self.counters.messages_by_type[usize::from(message_type)] += 1;
        match first {
            Ok(first) => self.rows(message, &first, out),
            Err(_) => self.counters.malformed += 1,
        }
    }

    /// Files have no gaps and no sessions: a source of them says nothing.
    fn notice(&mut self, _notice: &Notice, _out: &mut impl FnMut(Record)) {}

    fn time(&self, message: &Message<'_>) -> Option<Nanos> {
        message.capture.or_else(|| self.venue_time(message))
    }

    fn venue_time(&self, message: &Message<'_>) -> Option<Nanos> {
        first_row(message.bytes).ok().map(|row| Nanos(row.time))
    }

    fn check(&self, bytes: &[u8]) -> Result<(), Rejected> {
        if bytes.is_empty() {
            return Err(Rejected::Empty);
        }
        for line in lines(bytes) {
            if let Err(bad) = Row::parse(line) {
                let what = match bad {
                    BadRow::Fields(_) => "it has not eight fields",
                    BadRow::Field(what) => what,
                };
                return Err(Rejected::Malformed { message_type: 0, what });
            }
        }
        Ok(())
    }

    fn type_of(&self, bytes: &[u8]) -> Option<u8> {
        if bytes.is_empty() {
            return None;
        }
        Some(first_row(bytes).map_or(0, |row| if row.is_snapshot { SNAPSHOT } else { UPDATE }))
    }

    fn type_name(&self, message_type: u8) -> String {
        match message_type {
            SNAPSHOT => "snapshot".to_owned(),
            UPDATE => "update".to_owned(),
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
        self.books.len() as u32
    }

    fn date(&self) -> SessionDate {
        self.date
    }
}

#[cfg(test)]
mod tests;
