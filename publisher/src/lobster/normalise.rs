//! Rows into records.

use protocol::book::OrderLookup;
use protocol::record::{InstrumentId, Kind, Record, Side, StatusWord, condition, status};
use protocol::time::Nanos;

use super::row::{BadRow, Row, RowType};
use crate::counters::Counters;
use crate::date::SessionDate;
use crate::feed::{Message, Notice};
use crate::text::definition::Text;
use crate::text::event::Origin;
use crate::venue::{Rejected, Venue};

/// Prices come in 10^-4 dollars, ours in 10^-9.
const NANO_PER_UNIT: i64 = 100_000;

/// What stands where no level is; in the order-book file, and nowhere a price.
pub const DUMMY_PRICE: i64 = 9_999_999_999;

/// The one stock of a file.
const INSTRUMENT: InstrumentId = InstrumentId(1);

/// Turns the rows of one file into records.
#[derive(Debug)]
pub struct Normaliser {
    symbol: String,
    date: SessionDate,
    defined: bool,
    counters: Counters,
}

impl Normaliser {
    /// A normaliser for the messages of `symbol` on `date`.
    pub fn new(symbol: &str, date: SessionDate) -> Normaliser {
        Normaliser { symbol: symbol.to_owned(), date, defined: false, counters: Counters::ZERO }
    }

    #[cold]
    fn define(&mut self, origin: Origin, out: &mut impl FnMut(Record)) {
        self.defined = true;
        let text = Text::default()
            .line("symbol", self.symbol.as_bytes())
            .line("venue", b"XNAS")
            .line("type", b"equity")
            .line("currency", b"USD");
        let mut record = Record::new(Kind::DEFINITION, INSTRUMENT);
        record.order_id.set(1);
        record.price.set(100 * NANO_PER_UNIT);
        self.counters.implied_instruments += 1;
        self.counters.lines += origin.send(record, text.bytes(), out);
    }

    /// Shares at a price that can be one: `None`, counted, for -1, 0 and the dummies.
    fn priced(&mut self, kind: Kind, row: &Row) -> Option<Record> {
        if row.price <= 0 || row.price == DUMMY_PRICE {
            self.counters.refused_prices += 1;
            return None;
        }
        let Some(price) = row.price.checked_mul(NANO_PER_UNIT) else {
            self.counters.refused_prices += 1;
            return None;
        };
        let mut record = Record::new(kind, INSTRUMENT);
        record.side = row.side;
        record.order_id.set(row.order_id as u64);
        record.price.set(price);
        record.size.set(row.size);
        Some(record)
    }

    fn convert(&mut self, row: &Row, orders: &impl OrderLookup, origin: Origin, out: &mut impl FnMut(Record)) {
        let kind = match row.row_type {
            RowType::New => Kind::ADD,
            RowType::Cancel => Kind::REDUCE,
            RowType::Delete => Kind::DELETE,
            RowType::Execute => Kind::EXECUTE,
            RowType::Hidden => Kind::TRADE,
            RowType::Cross => Kind::CROSS,
            RowType::Halt => {
                self.counters.lines += origin.send(halt(row), &[], out);
                return;
            }
        };
        let Some(mut record) = self.priced(kind, row) else { return };
        match row.row_type {
            RowType::Cancel | RowType::Delete | RowType::Execute => {
                let known = orders.order(INSTRUMENT, row.order_id as u64).is_some();
                self.counters.unknown_orders += u64::from(!known);
            }
            RowType::Hidden => {
                // The direction of what was never shown is not told by the venue.
                (record.side, record.detail) = (Side::NONE, condition::PRINTABLE | condition::HIDDEN);
                record.order_id.set(0);
            }
            RowType::Cross => {
                (record.side, record.detail) = (Side::NONE, condition::PRINTABLE | condition::CROSS);
            }
            RowType::New | RowType::Halt => {}
        }
        if row.row_type != RowType::Execute {
            self.counters.lines += origin.send(record, &[], out);
            return;
        }
        origin.stamp(&mut record);
        out(record);
        let mut trade = record;
        (trade.kind, trade.detail) = (Kind::TRADE, condition::PRINTABLE);
        trade.side = if row.side == Side::BID { Side::ASK } else { Side::BID };
        trade.order_id.set(0);
        self.counters.lines += 1 + origin.send(trade, &[], out);
    }

    fn origin(&self, message: &Message<'_>, time: u64) -> Origin {
        Origin::new(Some(self.date.at(time).0), message.capture.map(|capture| capture.0), 0, message.ordinal)
    }
}

/// A halt, or its end. `order_id` is the row's price: -1 (as 64 bits) halted, 0 quoting, 1 trading.
fn halt(row: &Row) -> Record {
    let (action, is_trading, is_quoting) = match row.price {
        -1 => (status::HALT, b'N', b'N'),
        0 => (status::QUOTING, b'N', b'Y'),
        1 => (status::TRADING, b'Y', b'Y'),
        _ => (status::NONE, b'~', b'~'),
    };
    let word = StatusWord { reason: 0, trading_event: 0, is_trading, is_quoting, short_sale: b'~', scope: b'~' };
    let mut record = Record::new(Kind::STATUS, INSTRUMENT);
    record.detail = action;
    record.order_id.set(row.price as u64);
    record.size.set(word.to_u64());
    record
}

/// A row that cannot be read, as every venue says it.
fn rejected(line: &[u8], bad: BadRow) -> Rejected {
    let message_type = Row::type_of(line).unwrap_or(0);
    match bad {
        _ if line.is_empty() => Rejected::Empty,
        BadRow::Type => Rejected::Unknown { message_type, len: line.len() },
        BadRow::Fields(_) => Rejected::Malformed { message_type, what: "it has not six fields" },
        BadRow::Field(what) => Rejected::Malformed { message_type, what },
    }
}

impl Venue for Normaliser {
    fn normalise(&mut self, message: &Message<'_>, orders: &impl OrderLookup, out: &mut impl FnMut(Record)) {
        if message.bytes.is_empty() {
            self.counters.empty_messages += 1;
            return;
        }
        let message_type = usize::from(Row::type_of(message.bytes).unwrap_or(0));
        self.counters.messages_by_type[message_type] += 1;
        match Row::parse(message.bytes) {
            Ok(row) => {
                let origin = self.origin(message, row.time);
                if !self.defined {
                    self.define(origin, out);
                }
                self.convert(&row, orders, origin, out);
            }
            Err(BadRow::Type) => {
                self.counters.unknown_types += 1;
                self.counters.unknown_by_type[message_type] += 1;
            }
            Err(BadRow::Fields(_) | BadRow::Field(_)) => self.counters.malformed += 1,
        }
    }

    /// Files have no gaps and no sessions: a source of them says nothing.
    fn notice(&mut self, _notice: &Notice, _out: &mut impl FnMut(Record)) {}

    fn time(&self, message: &Message<'_>) -> Option<Nanos> {
        self.venue_time(message)
    }

    fn venue_time(&self, message: &Message<'_>) -> Option<Nanos> {
        let time = message.bytes.split(|byte| *byte == b',').next()?;
        crate::text::decimal::parse_size(time, 9).ok().map(|time| self.date.at(time))
    }

    fn check(&self, bytes: &[u8]) -> Result<(), Rejected> {
        Row::parse(bytes).map(|_| ()).map_err(|bad| rejected(bytes, bad))
    }

    fn type_of(&self, bytes: &[u8]) -> Option<u8> {
        (!bytes.is_empty()).then(|| Row::type_of(bytes).unwrap_or(0))
    }

    fn type_name(&self, message_type: u8) -> String {
        RowType::of(message_type).map_or_else(|| crate::venue::plain_name(message_type), |row| row.name().to_owned())
    }

    fn says_start(&self) -> bool {
        false
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn instrument_count(&self) -> u32 {
        u32::from(self.defined)
    }

    fn date(&self) -> SessionDate {
        self.date
    }
}

#[cfg(test)]
mod tests;
