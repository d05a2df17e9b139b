//! Records into ours.
//!
//! Field by field as NOTES.md says. A record of an order stream is one line; a level record is compared with the one before
//! it, and becomes the levels that changed; statuses, definitions and the like stand beside the book they belong to. LAST
//! is the venue's own, but for records that are an event each.
//!
//! **Instruments** are numbered from 1 in the order in which the stream first names them, one for each book: records of
//! several schemas of one instrument in one stream do not change each other's book. One that no definition introduced gets
//! a Definition with what the metadata knows, before the record that needed it.
//!
//! **Snapshots** of the venue's come as a run of records with the flag. One that no clear announces is announced here, one
//! that no LAST ends is ended here, and a long one is let out in several events, the book Suspect until the last
//! ([`IMPLIED`] marks what was put in).

use dbn::{
    BboMsg, BidAskPair, HasRType, ImbalanceMsg, InstrumentDefMsg, MboMsg, Mbp1Msg, Mbp10Msg, Publisher, RecordBuf,
    RecordHeader, Schema, StatMsg, StatusMsg, SymbolMappingMsg, TradeMsg, rtype, v1, v2,
};
use protocol::book::OrderLookup;
use protocol::definition::continuations;
use protocol::record::{
    CONTINUATION_LEN, Flags, InstrumentId, Kind, Record, Side, StatusWord, UNDEFINED_PRICE, condition, statistic,
};
use protocol::time::Nanos;

use super::definition::Text;
use super::instruments::{Instruments, Stream};
use super::levels::{Level, Picture};
use super::symbols::Names;
use super::types::{self, NO_TIME};
use crate::counters::Counters;
use crate::date::SessionDate;
use crate::feed::{Message, Notice};
use crate::venue::{Rejected, Venue};

/// `detail` of a Clear or an EventEnd that the stream did not hold and its snapshot needed.
pub const IMPLIED: u8 = 1;

/// A snapshot is let out after so many lines, well within [`protocol::book::OPEN_EVENT_BOUND`].
const SNAPSHOT_LINES: u32 = 4096;

/// The bits of a record's flags that mean the same here; the others are a publisher's own.
const KEPT_FLAGS: u8 = 0xFC;

/// The times and the sequence that the lines of one record share.
#[derive(Clone, Copy)]
struct Origin {
    ts_event: u64,
    ts_capture: u32,
    own_time: Flags,
    venue_seq: u32,
    /// In full, for what changes its meaning with time.
    time: u64,
}

/// Turns DBN records into ours.
pub struct Normaliser {
    date: SessionDate,
    names: Names,
    instruments: Instruments,
    /// Every record of type mbp-1 shows the book before a trade.
    at_trades: bool,
    buffer: Box<RecordBuf>,
    last_time: u64,
    counters: Counters,
}

impl std::fmt::Debug for Normaliser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Normaliser")
            .field("instruments", &self.instruments.len())
            .field("lines", &self.counters.lines)
            .finish_non_exhaustive()
    }
}

impl Normaliser {
    /// A normaliser for the records behind `metadata`; `date` is how times of day are read, and changes no record.
    pub fn new(metadata: &dbn::Metadata, date: SessionDate) -> Normaliser {
        Normaliser {
            date,
            names: Names::of(metadata),
            instruments: Instruments::default(),
            at_trades: metadata.schema == Some(Schema::Tbbo),
            buffer: Box::new(RecordBuf::from(MboMsg::default())),
            last_time: 0,
            counters: Counters::ZERO,
        }
    }

    /// The records of another file will follow: what it says of names holds too.
    pub fn learn_names(&mut self, metadata: &dbn::Metadata) {
        self.names.add_all(metadata);
        self.at_trades |= metadata.schema == Some(Schema::Tbbo);
    }

    /// The record of type `T` that the buffer holds.
    fn view<T: HasRType<Header = RecordHeader>>(&self) -> Option<&T> {
        self.buffer.try_get::<T>().ok()
    }

    /// Copies a record to where it is aligned, in the layout of version 3.
    fn load(&mut self, bytes: &[u8], length: usize) {
        self.buffer.raw_buf_mut()[..bytes.len()].copy_from_slice(bytes);
        // What has another layout in older versions is brought to the newest; the lengths were told apart before.
        let _ = match (bytes[1], length) {
            (rtype::INSTRUMENT_DEF, V1_DEFINITION) => self.buffer.upgrade::<v1::InstrumentDefMsg, InstrumentDefMsg>(),
            (rtype::INSTRUMENT_DEF, V2_DEFINITION) => self.buffer.upgrade::<v2::InstrumentDefMsg, InstrumentDefMsg>(),
            (rtype::STATISTICS, V1_STATISTIC) => self.buffer.upgrade::<v1::StatMsg, StatMsg>(),
            (rtype::SYMBOL_MAPPING, V1_MAPPING) => self.buffer.upgrade::<v1::SymbolMappingMsg, SymbolMappingMsg>(),
            _ => Ok(()),
        };
    }

    /// The times of a record: its own where they are within 2^31 ns of each other, else the receiver's, else those of the
    /// record before.
    fn origin(&mut self, ts_event: u64, ts_recv: u64, sequence: u32) -> Origin {
        let (ts_event, capture, own_time) = match (ts_event, ts_recv) {
            (NO_TIME, NO_TIME) => (self.last_time, self.last_time, Flags::OWN_TIME.with(Flags::BAD_TS)),
            (NO_TIME, capture) => (capture, capture, Flags::OWN_TIME),
            (event, NO_TIME) => (event, event, Flags::NONE),
            (event, capture) if capture.abs_diff(event) < 1 << 31 => (event, capture, Flags::NONE),
            (_, capture) => (capture, capture, Flags::OWN_TIME),
        };
        self.last_time = capture;
        Origin { ts_event, ts_capture: capture as u32, own_time, venue_seq: sequence, time: capture }
    }

    /// The instrument that a record of `stream` concerns; made, and defined, if it is new.
    fn instrument<F: FnMut(Record)>(
        &mut self,
        header: &RecordHeader,
        stream: Stream,
        origin: Origin,
        out: &mut F,
    ) -> u32 {
        let key = (header.publisher_id, header.instrument_id);
        let mut found = self.instruments.first(key);
        if let Some(first) = found
            && origin.time >= self.instruments.get(first).named_until
        {
            found = self.renamed(key, first, origin.time);
        }
        let mut at = found;
        while let Some(instrument) = at {
            let known = self.instruments.get_mut(instrument);
            if known.stream == Stream::Unknown {
                known.stream = stream;
            }
            if known.stream == stream || stream == Stream::Unknown {
                if !known.defined {
                    self.define_by_name(instrument, origin, out);
                }
                return instrument;
            }
            at = (known.next != 0).then_some(known.next);
        }
        let (symbol, until) = match self.names.at(key.1, origin.time) {
            Some(naming) => (naming.symbol.clone(), naming.end),
            None => (String::new(), u64::MAX),
        };
        let instrument = self.instruments.make(key, stream, symbol, until.max(origin.time.saturating_add(1)));
        self.define_by_name(instrument, origin, out);
        instrument
    }

    /// A name has run out: the number still means the instrument, or (`None`) another one from now on.
    #[cold]
    fn renamed(&mut self, key: (u16, u32), first: u32, time: u64) -> Option<u32> {
        let known = self.instruments.get_mut(first);
        let Some(naming) = self.names.at(key.1, time) else {
            known.named_until = u64::MAX;
            return Some(first);
        };
        if naming.symbol == known.symbol || known.symbol.is_empty() {
            known.named_until = if naming.end > time { naming.end } else { u64::MAX };
            return Some(first);
        }
        self.counters.reassigned_locates += 1;
        self.instruments.forget(key);
        None
    }

    fn venue_of(publisher: u16) -> &'static str {
        Publisher::try_from(publisher).map_or("", |publisher| publisher.venue().as_str())
    }

    /// A Definition with what the metadata says.
    #[cold]
    fn define_by_name<F: FnMut(Record)>(&mut self, instrument: u32, origin: Origin, out: &mut F) {
        let known = self.instruments.get_mut(instrument);
        known.defined = true;
        let text = Text::of_symbol(&known.symbol, Normaliser::venue_of(known.publisher), known.stream.name());
        let mut record = Record::new(Kind::DEFINITION, InstrumentId(instrument));
        record.order_id.set(u64::from(known.id) | u64::from(known.publisher) << 32);
        self.counters.implied_instruments += 1;
        self.push_aside(instrument, origin, record, text.bytes(), out);
    }

    /// Lets a line and its payload go, as they stand.
    #[inline]
    fn push<F: FnMut(Record)>(
        &mut self,
        instrument: u32,
        origin: Origin,
        mut record: Record,
        payload: &[u8],
        out: &mut F,
    ) {
        record.instrument.set(instrument);
        record.ts_event.set(origin.ts_event);
        record.ts_capture.set(origin.ts_capture);
        record.venue_seq.set(origin.venue_seq);
        record.flags = record.flags.with(origin.own_time);
        let mut lines = 0;
        continuations(&record, payload, &mut |line| {
            lines += 1;
            out(line);
        });
        self.counters.lines += u64::from(lines);
        let known = self.instruments.get_mut(instrument);
        if record.flags.has(Flags::LAST) || record.kind == Kind::EVENT_END {
            (known.open_lines, known.changed) = (0, false);
        } else {
            known.open_lines += lines;
            known.changed |= !matches!(record.kind, Kind::TRADE | Kind::FILL);
        }
    }

    /// Lets something go that is no part of a book's event: it ends none that is open, and is one itself where none is.
    fn push_aside<F: FnMut(Record)>(
        &mut self,
        instrument: u32,
        origin: Origin,
        mut record: Record,
        payload: &[u8],
        out: &mut F,
    ) {
        if self.instruments.get(instrument).open_lines == 0 {
            record.flags = record.flags.with(Flags::LAST);
        }
        self.push(instrument, origin, record, payload, out);
    }

    /// Lets something go that the stream did not hold.
    #[cold]
    fn push_implied<F: FnMut(Record)>(
        &mut self,
        instrument: u32,
        origin: Origin,
        kind: Kind,
        flags: Flags,
        out: &mut F,
    ) {
        let mut record = Record::new(kind, InstrumentId(instrument));
        (record.flags, record.detail) = (flags, IMPLIED);
        self.push(instrument, origin, record, &[], out);
    }

    /// Begins and ends snapshots where the stream does not say so itself; called in front of each record of a book.
    #[inline]
    fn keep_snapshot<F: FnMut(Record)>(
        &mut self,
        instrument: u32,
        origin: Origin,
        flags: Flags,
        clears: bool,
        out: &mut F,
    ) {
        let known = self.instruments.get_mut(instrument);
        let was_inside = known.in_snapshot;
        let is_inside = flags.has(Flags::SNAPSHOT);
        if !was_inside && !is_inside {
            return;
        }
        known.in_snapshot = is_inside && !flags.has(Flags::LAST);
        let open_lines = known.open_lines;
        match (was_inside, is_inside) {
            (true, false) => {
                self.push_implied(instrument, origin, Kind::EVENT_END, Flags::SNAPSHOT.with(Flags::LAST), out);
            }
            (false, true) if !clears => self.push_implied(instrument, origin, Kind::CLEAR, Flags::SNAPSHOT, out),
            (true, true) if open_lines >= SNAPSHOT_LINES => {
                self.push_implied(instrument, origin, Kind::EVENT_END, Flags::LAST, out);
            }
            _ => {}
        }
    }

    fn order<F: FnMut(Record)>(&mut self, orders: &impl OrderLookup, out: &mut F) {
        let Some(message) = self.view::<MboMsg>().cloned() else { return };
        let origin = self.origin(message.hd.ts_event, message.ts_recv, message.sequence);
        let instrument = self.instrument(&message.hd, Stream::Orders, origin, out);
        let flags = Flags(message.flags.raw() & KEPT_FLAGS);
        let action = message.action as u8;
        self.keep_snapshot(instrument, origin, flags, action == b'R', out);
        let mut record = Record::new(Kind::EVENT_END, InstrumentId(instrument));
        record.flags = flags;
        record.side = Side(message.side as u8);
        record.order_id.set(message.order_id);
        record.price.set(message.price);
        record.size.set(message.size.into());
        let is_level = flags.has(Flags::LEVEL) || flags.has(Flags::TOB);
        record.kind = match action {
            b'A' | b'M' if is_level => Kind::LEVEL_SET,
            b'C' if is_level => {
                record.size.set(0);
                Kind::LEVEL_SET
            }
            b'A' => Kind::ADD,
            b'M' => Kind::MODIFY,
            b'C' => self.cancel(instrument, orders, &record),
            b'R' => Kind::CLEAR,
            b'T' => {
                record.detail = condition::PRINTABLE;
                Kind::TRADE
            }
            b'F' => Kind::FILL,
            b'N' => Kind::EVENT_END,
            _ => return self.count_unknown(rtype::MBO),
        };
        self.push(instrument, origin, record, &[], out);
    }

    /// A cancel of all that is left is a Delete. Inside an event that has changed the book already, what is left cannot be
    /// looked up, and it is told as what is taken off, which comes to the same.
    fn cancel(&self, instrument: u32, orders: &impl OrderLookup, record: &Record) -> Kind {
        if self.instruments.get(instrument).changed {
            return Kind::REDUCE;
        }
        match orders.order(InstrumentId(instrument), record.order_id.get()) {
            Some(resting) if resting.size == record.size.get() => Kind::DELETE,
            Some(_) => Kind::REDUCE,
            None => Kind::DELETE,
        }
    }

    fn trade<F: FnMut(Record)>(&mut self, out: &mut F) {
        let Some(message) = self.view::<TradeMsg>().cloned() else { return };
        let origin = self.origin(message.hd.ts_event, message.ts_recv, message.sequence);
        let instrument = self.instrument(&message.hd, Stream::Trades, origin, out);
        // Without the book's records beside it a trade is an event of its own.
        let flags = Flags(message.flags.raw() & KEPT_FLAGS).with(Flags::LAST);
        let printed = (message.side as u8, message.price, message.size);
        let record = trade_record(instrument, flags, printed);
        self.push(instrument, origin, record, &[], out);
    }

    fn deep<F: FnMut(Record)>(&mut self, out: &mut F) {
        let Some(message) = self.view::<Mbp10Msg>().cloned() else { return };
        let origin = self.origin(message.hd.ts_event, message.ts_recv, message.sequence);
        let instrument = self.instrument(&message.hd, Stream::Levels, origin, out);
        let said = Said {
            action: message.action as u8,
            flags: Flags(message.flags.raw() & KEPT_FLAGS),
            printed: (message.side as u8, message.price, message.size),
        };
        self.picture(instrument, origin, said, &message.levels, out);
    }

    fn top<F: FnMut(Record)>(&mut self, out: &mut F) {
        let Some(message) = self.view::<Mbp1Msg>().cloned() else { return };
        let origin = self.origin(message.hd.ts_event, message.ts_recv, message.sequence);
        let stream = if self.at_trades { Stream::TopAtTrades } else { Stream::Top };
        let instrument = self.instrument(&message.hd, stream, origin, out);
        let own_event = if self.at_trades { Flags::LAST } else { Flags::NONE };
        let said = Said {
            action: message.action as u8,
            flags: Flags(message.flags.raw() & KEPT_FLAGS).with(Flags::TOB).with(own_event),
            printed: (message.side as u8, message.price, message.size),
        };
        self.picture(instrument, origin, said, &message.levels, out);
    }

    fn sampled<F: FnMut(Record)>(&mut self, out: &mut F) {
        let Some(message) = self.view::<BboMsg>().cloned() else { return };
        // The event's time is that of the last trade, which the sample may be hours behind.
        let origin = self.origin(NO_TIME, message.ts_recv, message.sequence);
        let instrument = self.instrument(&message.hd, Stream::Top, origin, out);
        let said = Said {
            action: b'N',
            flags: Flags(message.flags.raw() & KEPT_FLAGS).with(Flags::TOB).with(Flags::LAST),
            printed: (b'N', UNDEFINED_PRICE, 0),
        };
        self.picture(instrument, origin, said, &message.levels, out);
    }

    /// A record that shows a book as it is: what changed in it, and the trade if it tells of one.
    fn picture<F: FnMut(Record)>(
        &mut self,
        instrument: u32,
        origin: Origin,
        said: Said,
        levels: &[BidAskPair],
        out: &mut F,
    ) {
        let known = self.instruments.get_mut(instrument);
        let (mut picture, is_first) = match known.picture.take() {
            Some(picture) => (picture, false),
            None => (Box::new(Picture::EMPTY), true),
        };
        let clears = said.action == b'R';
        if clears {
            *picture = Picture::EMPTY;
        }
        let last = Flags(said.flags.0 & Flags::LAST.0);
        let flags = said.flags.without(Flags::LAST).with(Flags::LEVEL);
        let mut lines = Lines { held: None };
        if clears || is_first {
            let mut record = Record::new(Kind::CLEAR, InstrumentId(instrument));
            record.flags = flags.without(Flags::LEVEL).without(Flags::TOB);
            record.detail = if clears { 0 } else { IMPLIED };
            lines.push(self, instrument, origin, record, out);
        }
        let mut told = |side: Side, level: Level| {
            let mut record = Record::new(Kind::LEVEL_SET, InstrumentId(instrument));
            record.flags = flags;
            record.side = side;
            record.order_id.set(level.count.into());
            record.price.set(level.price);
            record.size.set(level.size.into());
            lines.push(self, instrument, origin, record, out);
        };
        match levels {
            [top] => picture.take_top(top, is_first || clears, &mut told),
            levels => picture.take(levels, &mut told),
        }
        if said.action == b'T' {
            let flags = flags.without(Flags::LEVEL).without(Flags::TOB);
            lines.push(self, instrument, origin, trade_record(instrument, flags, said.printed), out);
        }
        match lines.held.take() {
            Some(mut record) => {
                record.flags = record.flags.with(last);
                self.push(instrument, origin, record, &[], out);
            }
            // Nothing changed, but it may be the end of what did.
            None if last != Flags::NONE && self.instruments.get(instrument).open_lines > 0 => {
                let mut record = Record::new(Kind::EVENT_END, InstrumentId(instrument));
                record.flags = last;
                self.push(instrument, origin, record, &[], out);
            }
            None => {}
        }
        self.instruments.get_mut(instrument).picture = Some(picture);
    }

    fn status<F: FnMut(Record)>(&mut self, out: &mut F) {
        let Some(message) = self.view::<StatusMsg>().cloned() else { return };
        let origin = self.origin(message.hd.ts_event, message.ts_recv, 0);
        let word = StatusWord {
            reason: message.reason,
            trading_event: message.trading_event,
            is_trading: message.is_trading as u8,
            is_quoting: message.is_quoting as u8,
            short_sale: message.is_short_sell_restricted as u8,
            scope: b'~',
        };
        let first = self.instrument(&message.hd, Stream::Unknown, origin, out);
        // Each book of the instrument has to know.
        let mut at = first;
        while at != 0 {
            let mut record = Record::new(Kind::STATUS, InstrumentId(at));
            record.detail = u8::try_from(message.action).unwrap_or(protocol::record::status::NONE);
            record.order_id.set(message.action.into());
            record.size.set(word.to_u64());
            self.push_aside(at, origin, record, &[], out);
            at = self.instruments.get(at).next;
        }
    }

    fn definition<F: FnMut(Record)>(&mut self, out: &mut F) {
        let Some(message) = self.view::<InstrumentDefMsg>().cloned() else { return };
        let origin = self.origin(message.hd.ts_event, message.ts_recv, 0);
        let key = (message.hd.publisher_id, message.hd.instrument_id);
        let symbol = message.raw_symbol().unwrap_or("").to_owned();
        let mut found = self.instruments.first(key);
        if let Some(first) = found {
            let known = self.instruments.get(first);
            if !known.symbol.is_empty() && !symbol.is_empty() && known.symbol != symbol && !self.names_otherwise(key.1)
            {
                // The number means another instrument from now on.
                self.counters.reassigned_locates += 1;
                self.instruments.forget(key);
                found = None;
            }
        }
        let mut at = found.unwrap_or_else(|| self.instruments.make(key, Stream::Unknown, symbol, u64::MAX));
        while at != 0 {
            let known = self.instruments.get_mut(at);
            known.defined = true;
            let (next, stream) = (known.next, known.stream);
            let text = Text::of_definition(&message, Normaliser::venue_of(key.0), stream.name());
            let mut record = Record::new(Kind::DEFINITION, InstrumentId(at));
            record.order_id.set(u64::from(key.1) | u64::from(key.0) << 32);
            record.price.set(message.min_price_increment);
            // As it stands there, negative or not given: i32 in the lower half.
            record.size.set(u64::from(message.min_lot_size_round_lot as u32));
            self.push_aside(at, origin, record, text.bytes(), out);
            at = next;
        }
    }

    /// Whether the metadata calls an instrument something else than its definition does: by the kind of name that was asked
    /// for, which then is no sign of another instrument.
    fn names_otherwise(&self, id: u32) -> bool {
        self.names.at(id, self.last_time).is_some()
    }

    fn mapping(&mut self) {
        let Some(message) = self.view::<SymbolMappingMsg>().cloned() else { return };
        self.names.learn(&message);
    }

    /// Continuation 1: far, near and indicative price, auction time, then auction status, freeze status, extensions,
    /// unpaired side, significant imbalance and two zero bytes. Continuation 2: upper and lower collar, short-sale filling
    /// price, market imbalance u32, unpaired u32.
    fn imbalance<F: FnMut(Record)>(&mut self, out: &mut F) {
        let Some(message) = self.view::<ImbalanceMsg>().cloned() else { return };
        let origin = self.origin(message.hd.ts_event, message.ts_recv, 0);
        let instrument = self.instrument(&message.hd, Stream::Unknown, origin, out);
        let mut record = Record::new(Kind::IMBALANCE, InstrumentId(instrument));
        record.detail = message.auction_type as u8;
        record.side = Side(message.side as u8);
        record.price.set(message.ref_price);
        record.size.set(message.paired_qty.into());
        record.order_id.set(message.total_imbalance_qty.into());
        let mut payload = [0u8; 2 * CONTINUATION_LEN];
        let (first, second) = payload.split_at_mut(CONTINUATION_LEN);
        let prices = [
            message.auct_interest_clr_price,
            message.cont_book_clr_price,
            message.ind_match_price,
            message.auction_time as i64,
        ];
        let rest = [message.upper_collar, message.lower_collar, message.ssr_filling_price];
        for (place, value) in first.chunks_exact_mut(8).zip(prices) {
            place.copy_from_slice(&value.to_le_bytes());
        }
        for (place, value) in second.chunks_exact_mut(8).zip(rest) {
            place.copy_from_slice(&value.to_le_bytes());
        }
        first[32..37].copy_from_slice(&[
            message.auction_status,
            message.freeze_status,
            message.num_extensions,
            message.unpaired_side as u8,
            message.significant_imbalance as u8,
        ]);
        second[24..28].copy_from_slice(&message.market_imbalance_qty.to_le_bytes());
        second[28..32].copy_from_slice(&message.unpaired_qty.to_le_bytes());
        self.push_aside(instrument, origin, record, &payload, out);
    }

    /// Continuation: type u16, channel u16, update action, flags.
    fn statistic<F: FnMut(Record)>(&mut self, out: &mut F) {
        let Some(message) = self.view::<StatMsg>().cloned() else { return };
        let origin = self.origin(message.hd.ts_event, message.ts_recv, message.sequence);
        let instrument = self.instrument(&message.hd, Stream::Unknown, origin, out);
        let mut record = Record::new(Kind::STATISTIC, InstrumentId(instrument));
        record.detail = statistic_of(message.stat_type);
        record.price.set(message.price);
        record.size.set(message.quantity as u64);
        record.order_id.set(message.ts_ref);
        let mut payload = [0u8; 6];
        payload[..2].copy_from_slice(&message.stat_type.to_le_bytes());
        payload[2..4].copy_from_slice(&message.channel_id.to_le_bytes());
        (payload[4], payload[5]) = (message.update_action, message.stat_flags);
        self.push_aside(instrument, origin, record, &payload, out);
    }

    #[cold]
    fn count_unknown(&mut self, rtype: u8) {
        self.counters.unknown_types += 1;
        self.counters.unknown_by_type[usize::from(rtype)] += 1;
    }
}

const V1_DEFINITION: usize = size_of::<v1::InstrumentDefMsg>();
const V2_DEFINITION: usize = size_of::<v2::InstrumentDefMsg>();
const V1_STATISTIC: usize = size_of::<v1::StatMsg>();
const V1_MAPPING: usize = size_of::<v1::SymbolMappingMsg>();

/// What a level record says beside its levels.
struct Said {
    action: u8,
    flags: Flags,
    /// Side, price and size of the change, or of the trade.
    printed: (u8, i64, u32),
}

/// Lines on their way out: the newest is held back, so that the last can be marked as such.
struct Lines {
    held: Option<Record>,
}

impl Lines {
    fn push<F: FnMut(Record)>(
        &mut self,
        normaliser: &mut Normaliser,
        instrument: u32,
        origin: Origin,
        record: Record,
        out: &mut F,
    ) {
        if let Some(before) = self.held.replace(record) {
            normaliser.push(instrument, origin, before, &[], out);
        }
    }
}

fn trade_record(instrument: u32, flags: Flags, (side, price, size): (u8, i64, u32)) -> Record {
    let mut record = Record::new(Kind::TRADE, InstrumentId(instrument));
    record.flags = flags;
    record.detail = condition::PRINTABLE;
    record.side = Side(side);
    record.price.set(price);
    record.size.set(size.into());
    record
}

/// DBN's types of statistic in ours; what has no place of its own is RAW, and told by the Continuation.
pub const STATISTICS: [(u16, u8); 13] = [
    (1, statistic::OFFICIAL_OPEN),
    (3, statistic::SETTLEMENT),
    (4, statistic::LOW),
    (5, statistic::HIGH),
    (6, statistic::VOLUME),
    (9, statistic::OPEN_INTEREST),
    (11, statistic::OFFICIAL_CLOSE),
    (17, statistic::UPPER_BAND),
    (18, statistic::LOWER_BAND),
    (21, statistic::BREAKER_LEVEL_1),
    (22, statistic::BREAKER_LEVEL_2),
    (23, statistic::BREAKER_LEVEL_3),
    (24, statistic::REFERENCE_BAND),
];

fn statistic_of(stat_type: u16) -> u8 {
    STATISTICS.iter().find(|(theirs, _)| *theirs == stat_type).map_or(statistic::RAW, |(_, ours)| *ours)
}

impl Venue for Normaliser {
    fn normalise(&mut self, message: &Message<'_>, orders: &impl OrderLookup, out: &mut impl FnMut(Record)) {
        let bytes = message.bytes;
        let Some(rtype) = types::rtype_of(bytes) else {
            self.counters.empty_messages += 1;
            return;
        };
        self.counters.messages_by_type[usize::from(rtype)] += 1;
        let Some(known) = types::of(rtype) else { return self.count_unknown(rtype) };
        let Some(length) = known.length_of(bytes.len()).filter(|_| is_framed(bytes)) else {
            self.counters.bad_lengths_by_type[usize::from(rtype)] += 1;
            return;
        };
        if !known.carried {
            self.counters.not_carried += 1;
            return;
        }
        self.load(bytes, length);
        match rtype {
            rtype::MBO => self.order(orders, out),
            rtype::MBP_0 => self.trade(out),
            rtype::MBP_1 => self.top(out),
            rtype::MBP_10 => self.deep(out),
            rtype::BBO_1S | rtype::BBO_1M => self.sampled(out),
            rtype::STATUS => self.status(out),
            rtype::INSTRUMENT_DEF => self.definition(out),
            rtype::IMBALANCE => self.imbalance(out),
            rtype::STATISTICS => self.statistic(out),
            _ => self.mapping(),
        }
    }

    /// Files have no gaps and no sessions: a source of them says nothing.
    fn notice(&mut self, _notice: &Notice, _out: &mut impl FnMut(Record)) {}

    #[inline]
    fn order_of(&self, bytes: &[u8]) -> Option<(InstrumentId, u64)> {
        if types::rtype_of(bytes)? != rtype::MBO {
            return None;
        }
        let publisher = u16::from_le_bytes(bytes.get(2..4)?.try_into().ok()?);
        let id = u32::from_le_bytes(bytes.get(4..8)?.try_into().ok()?);
        let order = u64::from_le_bytes(bytes.get(16..24)?.try_into().ok()?);
        Some((InstrumentId(self.instruments.peek((publisher, id))?), order))
    }

    #[inline]
    fn time(&self, message: &Message<'_>) -> Option<Nanos> {
        types::time_of(message.bytes).map(Nanos)
    }

    fn venue_time(&self, message: &Message<'_>) -> Option<Nanos> {
        types::ts_event_of(message.bytes).map(Nanos)
    }

    fn check(&self, bytes: &[u8]) -> Result<(), Rejected> {
        let message_type = types::rtype_of(bytes).ok_or(Rejected::Empty)?;
        let known = types::of(message_type).ok_or(Rejected::Unknown { message_type, len: bytes.len() })?;
        match known.length_of(bytes.len()).filter(|_| is_framed(bytes)) {
            Some(_) => Ok(()),
            None => {
                let expected = known.lengths[known.lengths.len() - 1];
                Err(Rejected::BadLength { message_type, expected, actual: bytes.len() })
            }
        }
    }

    fn type_of(&self, bytes: &[u8]) -> Option<u8> {
        types::rtype_of(bytes)
    }

    fn type_name(&self, message_type: u8) -> String {
        types::of(message_type).map_or_else(|| format!("0x{message_type:02X}"), |known| known.name.to_owned())
    }

    fn says_start(&self) -> bool {
        false
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn instrument_count(&self) -> u32 {
        self.instruments.len()
    }

    fn date(&self) -> SessionDate {
        self.date
    }
}

/// Whether a record's own length is that of its bytes: whoever frames them otherwise is not believed.
fn is_framed(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|units| usize::from(*units) * types::UNIT_LEN == bytes.len())
}
