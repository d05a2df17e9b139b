//! A part of a feed: some symbols, some numbers, some publishers, some time.
//!
//! [`Filtered`] stands between a venue and whoever takes its records. Definitions, statuses, venue snapshots and what
//! concerns the whole channel always pass, so that what is left can be understood. A book whose earlier orders were left out
//! is one that begins in the middle, and says so.

use protocol::book::{OrderLookup, RestingOrder};
use protocol::record::{Flags, InstrumentId, Kind, Record, Side, UNDEFINED_PRICE};
use protocol::time::Nanos;
use serde::{Deserialize, Serialize};

use crate::counters::Counters;
use crate::date::SessionDate;
use crate::feed::{Message, Notice};
use crate::venue::{Rejected, Venue};

/// What is wanted; nothing said is everything.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Filter {
    /// These symbols.
    pub symbols: Vec<String>,
    /// The instruments with these numbers of the venue's.
    pub instruments: Vec<u32>,
    /// These publishers, by DBN's numbers.
    pub publishers: Vec<u16>,
    /// Event times from here on, ns.
    pub from: Option<u64>,
    /// Event times before this, ns.
    pub to: Option<u64>,
}

impl Filter {
    /// Whether it lets everything pass.
    pub fn is_empty(&self) -> bool {
        *self == Filter::default()
    }

    fn wants(&self, definition: &Record, symbol: &[u8]) -> bool {
        let venue_id = definition.order_id.get();
        let symbols = self.symbols.is_empty() || self.symbols.iter().any(|wanted| wanted.as_bytes() == symbol);
        let instruments = self.instruments.is_empty() || self.instruments.contains(&(venue_id as u32));
        let publishers = self.publishers.is_empty() || self.publishers.contains(&((venue_id >> 32) as u16));
        symbols && instruments && publishers
    }

    fn is_in_time(&self, time: u64) -> bool {
        self.from.is_none_or(|from| time >= from) && self.to.is_none_or(|to| time < to)
    }
}

/// A venue of which a part is wanted.
pub struct Filtered<V> {
    venue: V,
    filter: Filter,
    /// Nothing is filtered: records go straight through.
    all: bool,
    state: State,
}

#[derive(Default)]
struct State {
    /// By instrument: whether it is wanted; one without a Definition is not known to be.
    wanted: Vec<bool>,
    /// By instrument: an event is open of which something passed.
    open: Vec<bool>,
    /// The definition under way: its head, and its text so far.
    defining: Option<(Record, Vec<u8>)>,
    /// The Continuations to come belong to a record that passed.
    passing: bool,
    dropped: u64,
}

impl<V: Venue> Filtered<V> {
    /// What `filter` wants of `venue`.
    pub fn new(venue: V, filter: Filter) -> Filtered<V> {
        let all = filter.is_empty();
        Filtered { venue, filter, all, state: State::default() }
    }

    /// Lines that did not pass so far.
    pub fn dropped(&self) -> u64 {
        self.state.dropped
    }

    /// The venue itself.
    pub fn venue(&self) -> &V {
        &self.venue
    }
}

impl State {
    fn is_wanted(&self, instrument: InstrumentId) -> bool {
        instrument == InstrumentId::CHANNEL || self.wanted.get(instrument.index()).copied().unwrap_or(false)
    }

    fn set(flags: &mut Vec<bool>, instrument: InstrumentId, value: bool) {
        if flags.len() <= instrument.index() {
            flags.resize(instrument.index() + 1, false);
        }
        flags[instrument.index()] = value;
    }

    /// Takes in what a Definition's lines say.
    fn learn(&mut self, filter: &Filter, record: &Record) {
        if record.kind == Kind::DEFINITION {
            self.defining = Some((*record, Vec::new()));
        } else if let Some((_, text)) = &mut self.defining {
            text.extend_from_slice(record.payload());
        }
        if !record.flags.has(Flags::CONTINUES)
            && let Some((head, text)) = self.defining.take()
        {
            let symbol = text.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"symbol="));
            let wanted = filter.wants(&head, symbol.unwrap_or_default());
            State::set(&mut self.wanted, head.instrument_id(), wanted);
        }
    }

    fn pass(&mut self, filter: &Filter, record: Record, out: &mut impl FnMut(Record)) {
        let instrument = record.instrument_id();
        let is_continuation = record.kind == Kind::CONTINUATION;
        if record.kind == Kind::DEFINITION || is_continuation && self.defining.is_some() {
            self.learn(filter, &record);
        }
        let passes = if is_continuation {
            self.passing
        } else {
            let always = matches!(record.kind, Kind::DEFINITION | Kind::STATUS);
            let of_snapshot = record.flags.has(Flags::SNAPSHOT);
            let in_time = of_snapshot || matches!(record.kind, Kind::CLEAR) || filter.is_in_time(record.ts_event.get());
            always || instrument == InstrumentId::CHANNEL || self.is_wanted(instrument) && in_time
        };
        self.passing = passes;
        let is_last = record.flags.has(Flags::LAST);
        if passes {
            if instrument != InstrumentId::CHANNEL {
                State::set(&mut self.open, instrument, !is_last);
            }
            return out(record);
        }
        self.dropped += 1;
        // An event of which something passed has to end where it ended.
        if is_last && self.open.get(instrument.index()).copied().unwrap_or(false) && !is_continuation {
            let mut end = Record::new(Kind::EVENT_END, instrument);
            (end.flags, end.ts_event, end.ts_capture) = (record.flags, record.ts_event, record.ts_capture);
            end.venue_seq = record.venue_seq;
            self.open[instrument.index()] = false;
            out(end);
        }
    }
}

/// Books know nothing of what does not pass: whatever is asked of it is told to be there, so that it is no inconsistency.
struct Known<'a, O> {
    orders: &'a O,
    state: &'a State,
}

impl<O: OrderLookup> OrderLookup for Known<'_, O> {
    fn order(&self, instrument: InstrumentId, order_id: u64) -> Option<RestingOrder> {
        if self.state.is_wanted(instrument) {
            return self.orders.order(instrument, order_id);
        }
        Some(RestingOrder { side: Side::NONE, price: UNDEFINED_PRICE, size: u64::MAX, priority: 0 })
    }
}

impl<V: Venue> Venue for Filtered<V> {
    #[inline]
    fn normalise(&mut self, message: &Message<'_>, orders: &impl OrderLookup, out: &mut impl FnMut(Record)) {
        if self.all {
            return self.venue.normalise(message, orders, out);
        }
        let mut records = Vec::new();
        let known = Known { orders, state: &self.state };
        self.venue.normalise(message, &known, &mut |record| records.push(record));
        for record in records {
            self.state.pass(&self.filter, record, out);
        }
    }

    fn notice(&mut self, notice: &Notice, out: &mut impl FnMut(Record)) {
        self.venue.notice(notice, out);
    }

    #[inline]
    fn order_of(&self, bytes: &[u8]) -> Option<(InstrumentId, u64)> {
        self.venue.order_of(bytes)
    }

    #[inline]
    fn time(&self, message: &Message<'_>) -> Option<Nanos> {
        self.venue.time(message)
    }

    fn venue_time(&self, message: &Message<'_>) -> Option<Nanos> {
        self.venue.venue_time(message)
    }

    fn check(&self, bytes: &[u8]) -> Result<(), Rejected> {
        self.venue.check(bytes)
    }

    fn type_of(&self, bytes: &[u8]) -> Option<u8> {
        self.venue.type_of(bytes)
    }

    fn type_name(&self, message_type: u8) -> String {
        self.venue.type_name(message_type)
    }

    fn says_start(&self) -> bool {
        self.venue.says_start()
    }

    fn counters(&self) -> &Counters {
        self.venue.counters()
    }

    fn instrument_count(&self) -> u32 {
        self.venue.instrument_count()
    }

    fn date(&self) -> SessionDate {
        self.venue.date()
    }
}

#[cfg(test)]
mod tests;
