//! Our records as DBN, version 3: what existing tools read.
//!
//! Order streams become `mbo`, level streams `mbo` with the flags for aggregated levels or for tops of books, and beside
//! them go `status`, `definition`, `imbalance` and `statistics`. What one of our records says in one line may take two there
//! (an Execute is a fill and a cancel); what DBN has no place for is left out and counted by name; what would come out wrong
//! (a size of more than 32 bits, a price that its 10^-9 does not hold, implied interest) is refused by name.
//!
//! Records can be written as they come; the metadata, which stands in front of them, is known at the end only. So
//! [`Writer`] writes records alone, and gives the metadata at the end ([`Written`]); who writes files puts them together.

mod target;

use std::collections::BTreeMap;
use std::io::{self, Write};

use dbn::encode::dbn::MetadataEncoder;
use dbn::{
    FlagSet, ImbalanceMsg, MboMsg, Metadata, RecordHeader, Schema, StatMsg, StatusMsg, SymbolMapping, UNDEF_TIMESTAMP,
    rtype,
};
use protocol::definition::{Assembler, Definition};
use protocol::line::SequenceNumber;
use protocol::record::{Flags, InstrumentId, Kind, Record, Side, StatusWord, UNDEFINED_PRICE, statistic};

use super::definition;
use super::normalise::{IMPLIED, STATISTICS};
use target::{Target, Targets};

/// Why a record cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// Writing failed.
    #[error("writing failed: {0}")]
    Io(#[from] io::Error),
    /// DBN cannot hold what it says.
    #[error("line {sequence}, of '{symbol}': {what}: this cannot be written as DBN")]
    Refused {
        /// The line's sequence number.
        sequence: u64,
        /// Whose record.
        symbol: String,
        /// What does not fit.
        what: String,
    },
    /// The metadata cannot be made.
    #[error("the metadata cannot be written: {0}")]
    Metadata(String),
}

/// What was written, and what not.
#[derive(Debug, Default)]
pub struct Written {
    /// DBN records, by schema.
    pub records: BTreeMap<&'static str, u64>,
    /// Executions, each of which became a fill and a cancel.
    pub expanded: u64,
    /// Records whose time is the receiver's own: they go out without a venue's time.
    pub own_time: u64,
    /// Our records that were left out, by name.
    pub left_out: BTreeMap<&'static str, u64>,
    /// Our records of which DBN holds a part only, by what is lost.
    pub reduced: BTreeMap<&'static str, u64>,
    /// Times of the first and of the last record.
    span: Option<(u64, u64)>,
    /// Publishers, with how many records each.
    publishers: BTreeMap<u16, u64>,
    /// Symbols, with the instruments they name: number, times of the first and of the last record.
    symbols: BTreeMap<String, Vec<(u32, u64, u64)>>,
}

/// Turns records into DBN.
pub struct Writer<W> {
    out: W,
    targets: Targets,
    assembler: Assembler,
    /// All books were said to be empty: those that are named later are.
    begun: bool,
    written: Written,
}

/// The times and the place of a record on its way out.
#[derive(Clone, Copy)]
struct Place {
    ts_event: u64,
    ts_recv: u64,
    sequence: u32,
}

impl<W: Write> Writer<W> {
    /// A writer of records, without anything in front of them.
    pub fn new(out: W) -> Writer<W> {
        Writer {
            out,
            targets: Targets::default(),
            assembler: Assembler::default(),
            begun: false,
            written: Written::default(),
        }
    }

    /// Writes what a line of the stream says. Lines come in order; each of a record that continues comes here.
    ///
    /// # Errors
    /// [`EncodeError`]: nothing of this record was written.
    pub fn push(&mut self, sequence: SequenceNumber, record: &Record) -> Result<(), EncodeError> {
        if record.kind != Kind::CONTINUATION && !record.flags.has(Flags::CONTINUES) {
            return self.take(sequence, record, &[]);
        }
        let Some((head, payload)) = self.assembler.push(sequence, record) else { return Ok(()) };
        let (mut head, payload) = (*head, payload.to_vec());
        // The head of a record that continues has no LAST; its last line has.
        head.flags = head.flags.without(Flags::CONTINUES).with(Flags(record.flags.0 & Flags::LAST.0));
        self.take(sequence, &head, &payload)
    }

    /// Flushes, and gives back what was written to, and the account.
    ///
    /// # Errors
    /// [`EncodeError::Io`].
    pub fn finish(mut self) -> Result<(W, Written), EncodeError> {
        self.out.flush()?;
        self.written.symbols = self.targets.symbols();
        Ok((self.out, self.written))
    }

    fn place(&mut self, record: &Record) -> Place {
        let ts_recv = record.capture_time().0;
        let own_time = record.flags.has(Flags::OWN_TIME);
        let ts_event = if own_time { UNDEF_TIMESTAMP } else { record.event_time().0 };
        // The low half of an OWN_TIME record is that of its event time.
        let ts_recv = if own_time { record.event_time().0 } else { ts_recv };
        let span = self.written.span.get_or_insert((ts_recv, ts_recv));
        *span = (span.0.min(ts_recv), span.1.max(ts_recv));
        self.targets.note_time(record.instrument_id(), ts_recv);
        Place { ts_event, ts_recv, sequence: record.venue_seq.get() }
    }

    fn take(&mut self, sequence: SequenceNumber, record: &Record, payload: &[u8]) -> Result<(), EncodeError> {
        let instrument = record.instrument_id();
        if record.flags.has(Flags::OWN_TIME) {
            self.written.own_time += 1;
        }
        match record.kind {
            Kind::DEFINITION => self.define(record, payload),
            Kind::SESSION_START | Kind::CLEAR if instrument == InstrumentId::CHANNEL => {
                self.begun = true;
                self.for_all(sequence, record, Kind::CLEAR)
            }
            Kind::EVENT_END if instrument == InstrumentId::CHANNEL => self.for_all(sequence, record, Kind::EVENT_END),
            Kind::ADD
            | Kind::MODIFY
            | Kind::REDUCE
            | Kind::DELETE
            | Kind::EXECUTE
            | Kind::FILL
            | Kind::TRADE
            | Kind::CROSS
            | Kind::LEVEL_SET
            | Kind::CLEAR
            | Kind::EVENT_END => {
                if !payload.is_empty() {
                    *self.written.reduced.entry("participants and cross types").or_default() += 1;
                }
                self.order(sequence, record)
            }
            Kind::STATUS => self.status(record),
            Kind::STATISTIC => self.statistic(sequence, record, payload),
            Kind::IMBALANCE => self.imbalance(sequence, record, payload),
            kind => {
                self.leave_out(kind.name().unwrap_or("records of unknown kinds"));
                Ok(())
            }
        }
    }

    fn leave_out(&mut self, name: &'static str) {
        *self.written.left_out.entry(name).or_default() += 1;
    }

    fn refused(&self, sequence: SequenceNumber, record: &Record, what: String) -> EncodeError {
        let symbol = self.targets.get(record.instrument_id()).map_or_else(String::new, |target| target.symbol.clone());
        EncodeError::Refused { sequence: sequence.0, symbol, what }
    }

    fn write(&mut self, schema: &'static str, publisher: u16, bytes: &[u8]) -> Result<(), EncodeError> {
        self.out.write_all(bytes)?;
        *self.written.records.entry(schema).or_default() += 1;
        *self.written.publishers.entry(publisher).or_default() += 1;
        Ok(())
    }

    fn target(&self, instrument: InstrumentId) -> Target {
        self.targets.get(instrument).cloned().unwrap_or_else(|| Target::unknown(instrument))
    }

    /// A price in 10^-9.
    fn price(&self, sequence: SequenceNumber, record: &Record, target: &Target) -> Result<i64, EncodeError> {
        let price = record.price.get();
        target.nano(price).ok_or_else(|| {
            let exponent = target.price_exponent;
            self.refused(
                sequence,
                record,
                format!("a price of {price} x 10^{exponent}, which 10^-9 does not hold exactly"),
            )
        })
    }

    fn size(&self, sequence: SequenceNumber, record: &Record, size: u64) -> Result<u32, EncodeError> {
        u32::try_from(size).map_err(|_| self.refused(sequence, record, format!("a size of {size}, above 32 bits")))
    }

    /// A record of the channel, told of every book.
    fn for_all(&mut self, sequence: SequenceNumber, record: &Record, kind: Kind) -> Result<(), EncodeError> {
        let all: Vec<InstrumentId> = self.targets.all();
        for instrument in all {
            if kind == Kind::EVENT_END && !self.targets.is_open(instrument) {
                continue;
            }
            let mut one = Record { kind, ..*record };
            one.instrument.set(instrument.0);
            one.flags = one.flags.with(Flags::LAST);
            self.order(sequence, &one)?;
        }
        Ok(())
    }

    fn order(&mut self, sequence: SequenceNumber, record: &Record) -> Result<(), EncodeError> {
        let snapshot_clear = record.kind == Kind::CLEAR && record.flags.has(Flags::SNAPSHOT);
        if record.detail == IMPLIED && (record.kind == Kind::EVENT_END || snapshot_clear) {
            self.leave_out("what the venue's snapshots left unsaid");
            return Ok(());
        }
        if [Side::IMPLIED_BID, Side::IMPLIED_ASK].contains(&record.side) {
            return Err(self.refused(sequence, record, "implied interest".into()));
        }
        let target = self.target(record.instrument_id());
        if target.size_exponent != 0 {
            let what = format!("sizes in units of 10^{}", target.size_exponent);
            return Err(self.refused(sequence, record, what));
        }
        let price = self.price(sequence, record, &target)?;
        let size = self.size(sequence, record, record.size.get())?;
        let place = self.place(record);
        let mut flags = record.flags.0 & 0xFC;
        let action = match record.kind {
            Kind::ADD => b'A',
            Kind::MODIFY => b'M',
            Kind::REDUCE | Kind::DELETE => b'C',
            Kind::EXECUTE => b'F',
            Kind::FILL => b'F',
            Kind::TRADE => b'T',
            Kind::CROSS => {
                *self.written.reduced.entry("crosses, as trades").or_default() += 1;
                b'T'
            }
            Kind::CLEAR => b'R',
            Kind::LEVEL_SET => {
                if !record.flags.has(Flags::TOB) {
                    flags |= Flags::LEVEL.0;
                }
                if size == 0 && price != UNDEFINED_PRICE { b'C' } else { b'A' }
            }
            _ => b'N',
        };
        let mut message = MboMsg {
            hd: RecordHeader::new::<MboMsg>(rtype::MBO, target.publisher, target.id, place.ts_event),
            order_id: record.order_id.get(),
            price,
            size,
            flags: FlagSet::new(flags),
            action: action as _,
            side: record.side.0 as _,
            ts_recv: place.ts_recv,
            sequence: place.sequence,
            ..MboMsg::default()
        };
        if record.kind == Kind::EXECUTE {
            // The fill tells of it, and the cancel that follows changes the book.
            message.flags = FlagSet::new(flags & !Flags::LAST.0);
            self.write("mbo", target.publisher, message.as_ref())?;
            message.flags = FlagSet::new(flags);
            message.action = b'C' as _;
            self.written.expanded += 1;
        }
        self.targets.note_event(record);
        self.write("mbo", target.publisher, message.as_ref())
    }

    fn define(&mut self, record: &Record, payload: &[u8]) -> Result<(), EncodeError> {
        let instrument = record.instrument_id();
        let told = Definition::parse(record, payload);
        let target = Target::of(&told);
        let is_new = self.targets.set(instrument, target.clone());
        let place = self.place(record);
        // Names alone go into the metadata; a definition has more to say.
        let named_alone = told.entries().all(|(key, _)| ["symbol", "venue", "stream"].contains(&key));
        if !named_alone {
            let mut message = definition::read(&told);
            message.hd = RecordHeader::new::<dbn::InstrumentDefMsg>(
                rtype::INSTRUMENT_DEF,
                target.publisher,
                target.id,
                place.ts_event,
            );
            message.ts_recv = place.ts_recv;
            message.min_price_increment = target.nano(record.price.get()).unwrap_or(UNDEFINED_PRICE);
            message.min_lot_size_round_lot = record.size.get() as u32 as i32;
            self.write("definition", target.publisher, message.as_ref())?;
        }
        if is_new && self.begun {
            let mut clear = Record { kind: Kind::CLEAR, ..*record };
            (clear.flags, clear.detail, clear.side) = (Flags::LAST, 0, Side::NONE);
            clear.order_id.set(0);
            clear.price.set(UNDEFINED_PRICE);
            clear.size.set(0);
            self.order(SequenceNumber(0), &clear)?;
        }
        Ok(())
    }

    fn status(&mut self, record: &Record) -> Result<(), EncodeError> {
        let target = self.target(record.instrument_id());
        let place = self.place(record);
        let word = StatusWord::from_u64(record.size.get());
        let message = StatusMsg {
            hd: RecordHeader::new::<StatusMsg>(rtype::STATUS, target.publisher, target.id, place.ts_event),
            ts_recv: place.ts_recv,
            action: record.detail.into(),
            reason: word.reason,
            trading_event: word.trading_event,
            is_trading: word.is_trading as _,
            is_quoting: word.is_quoting as _,
            is_short_sell_restricted: word.short_sale as _,
            ..StatusMsg::default()
        };
        self.write("status", target.publisher, message.as_ref())
    }

    fn statistic(&mut self, sequence: SequenceNumber, record: &Record, payload: &[u8]) -> Result<(), EncodeError> {
        let target = self.target(record.instrument_id());
        let ours = record.detail;
        // What came from DBN says its own type; for others there is one, or none.
        let told = if target.is_dbn { payload.get(..6) } else { None };
        let known = STATISTICS.iter().find(|(_, detail)| *detail == ours).map(|(theirs, _)| *theirs);
        let Some(stat_type) = told.map(|told| u16::from_le_bytes([told[0], told[1]])).or(known) else {
            self.leave_out(if ours == statistic::RAW { "raw statistics" } else { "statistics without a type in DBN" });
            return Ok(());
        };
        let price = self.price(sequence, record, &target)?;
        let place = self.place(record);
        let mut message = StatMsg {
            hd: RecordHeader::new::<StatMsg>(rtype::STATISTICS, target.publisher, target.id, place.ts_event),
            ts_recv: place.ts_recv,
            ts_ref: record.order_id.get(),
            price,
            quantity: record.size.get() as i64,
            sequence: place.sequence,
            stat_type,
            ..StatMsg::default()
        };
        if let Some(told) = told {
            message.channel_id = u16::from_le_bytes([told[2], told[3]]);
            (message.update_action, message.stat_flags) = (told[4], told[5]);
        }
        self.write("statistics", target.publisher, message.as_ref())
    }

    fn imbalance(&mut self, sequence: SequenceNumber, record: &Record, payload: &[u8]) -> Result<(), EncodeError> {
        let target = self.target(record.instrument_id());
        let word = |at: usize| {
            let bytes = payload.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(0, i64::from_le_bytes)
        };
        let half = |at: usize| {
            let bytes = payload.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(0, u32::from_le_bytes)
        };
        let place = self.place(record);
        let mut message = ImbalanceMsg {
            hd: RecordHeader::new::<ImbalanceMsg>(rtype::IMBALANCE, target.publisher, target.id, place.ts_event),
            ts_recv: place.ts_recv,
            ref_price: self.price(sequence, record, &target)?,
            paired_qty: self.size(sequence, record, record.size.get())?,
            total_imbalance_qty: self.size(sequence, record, record.order_id.get())?,
            auction_type: record.detail as _,
            side: record.side.0 as _,
            auct_interest_clr_price: word(0),
            cont_book_clr_price: word(8),
            ind_match_price: word(16),
            ..ImbalanceMsg::default()
        };
        if target.is_dbn {
            message.auction_time = word(24) as u64;
            (message.upper_collar, message.lower_collar, message.ssr_filling_price) = (word(40), word(48), word(56));
            (message.market_imbalance_qty, message.unpaired_qty) = (half(64), half(68));
            if let Some(&[auction, freeze, extensions, unpaired, significant]) = payload.get(32..37) {
                (message.auction_status, message.freeze_status, message.num_extensions) = (auction, freeze, extensions);
                (message.unpaired_side, message.significant_imbalance) = (unpaired as _, significant as _);
            }
        } else if let Some(&[_, variation, _]) = payload.get(32..35) {
            *self.written.reduced.entry("imbalances, without their direction").or_default() += 1;
            message.significant_imbalance = variation as _;
        }
        self.write("imbalance", target.publisher, message.as_ref())
    }
}

impl Written {
    /// All DBN records.
    pub fn total(&self) -> u64 {
        self.records.values().sum()
    }

    /// What stands in front of the records: one schema where all are of one, the venue's data set, and what the instruments
    /// are called.
    ///
    /// # Errors
    /// [`EncodeError::Metadata`].
    pub fn metadata(&self) -> Result<Vec<u8>, EncodeError> {
        let schema = match self.records.keys().collect::<Vec<_>>()[..] {
            [&"mbo"] => Some(Schema::Mbo),
            [&"status"] => Some(Schema::Status),
            [&"definition"] => Some(Schema::Definition),
            [&"imbalance"] => Some(Schema::Imbalance),
            [&"statistics"] => Some(Schema::Statistics),
            _ => None,
        };
        let publisher = self.publishers.iter().max_by_key(|(_, count)| **count).map(|(publisher, _)| *publisher);
        let dataset = publisher.and_then(|publisher| dbn::Publisher::try_from(publisher).ok());
        let dataset = dataset.map_or("UNKNOWN", |publisher| publisher.dataset().as_str());
        let (start, end) = self.span.unwrap_or((0, 0));
        let interval = |(id, first, last): &(u32, u64, u64)| dbn::MappingInterval {
            start_date: target::date(*first),
            // The day after the last.
            end_date: target::date(last.saturating_add(target::NS_PER_DAY)),
            symbol: id.to_string(),
        };
        let mapping = |(symbol, named): (&String, &Vec<(u32, u64, u64)>)| SymbolMapping {
            raw_symbol: symbol.clone(),
            intervals: named.iter().map(interval).collect(),
        };
        let metadata = Metadata::builder()
            .dataset(dataset)
            .schema(schema)
            .start(start)
            .end(std::num::NonZeroU64::new(end.saturating_add(1)))
            .stype_in(Some(dbn::SType::RawSymbol))
            .stype_out(dbn::SType::InstrumentId)
            .symbols(self.symbols.keys().cloned().collect())
            .mappings(self.symbols.iter().map(mapping).collect())
            .build();
        let mut bytes = Vec::new();
        let encoded = MetadataEncoder::new(&mut bytes).encode(&metadata);
        encoded.map_err(|error| EncodeError::Metadata(error.to_string()))?;
        Ok(bytes)
    }
}
