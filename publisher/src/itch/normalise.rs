//! Messages into records.
//!
//! The rules are those of the record format; this is how ITCH meets them. Each message is one event: LAST stands on its
//! last line, and nothing waits for the next message to find an end. What a message does not say and a record needs (the
//! side and price of an order that is executed, reduced, deleted or replaced) comes from the book that earlier records
//! built, through [`OrderLookup`].
//!
//! **An unknown order** (the stream began in the middle, or the venue is inconsistent) is not invented and not dropped:
//! the record goes out with side `N` and no price, the book that gets it becomes Suspect and ignores it, and it is
//! counted. A replace of one gives its Delete and its Add, both with side `N`: the new order's side is not known either.
//!
//! **Instruments** are numbered from 1 in the order in which the stream first names them. Within a session a stock locate
//! is one instrument, unless a directory message gives it to another symbol; at a start of messages all locates are
//! forgotten. A locate that no directory message introduced gets a Definition with what is known, before the record that
//! needed it.
//!
//! Left out: sequencing. Records come without `instrument_seq` and `ts_publish`, which are the sequencer's.

use std::path::Path;

use protocol::book::OrderLookup;
use protocol::record::{
    CONTINUATION_LEN, Flags, InstrumentId, Kind, REPLACED, Record, Side, UNDEFINED_PRICE, condition, statistic,
};
use protocol::time::Nanos;
use zerocopy::{FromBytes, IntoBytes};

use super::decode::{Rejected, decode};
use super::definition;
use super::event::Event;
use super::messages::{
    AuctionCollar, BreakerLevels, CrossTrade, DirectListing, Header, Imbalance, IpoQuotingPeriod, Message, OrderCancel,
    OrderDelete, OrderExecuted, OrderExecutedWithPrice, OrderReplace, ParticipantPosition, Price4, StockDirectory,
    Symbol, Text,
};
use super::status;
use crate::counters::Counters;
use crate::date::{DateSource, SessionDate, session_date};
use crate::feed;

/// The price step of the feed, 1/10,000 dollar, in the record's 1e-9 dollar.
const PRICE_STEP: i64 = 100_000;
/// Stock locates are 16 bits.
const LOCATES: usize = 1 << 16;
/// No symbol.
const BLANK: Symbol = Text([b' '; 8]);

/// Which of Nasdaq's three equity markets a feed is of. They share the specification.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Market {
    /// The Nasdaq Stock Market.
    #[default]
    Nasdaq,
    /// Nasdaq BX.
    Bx,
    /// Nasdaq PSX.
    Psx,
}

impl Market {
    /// Its market identifier code, ISO 10383.
    pub const fn venue(self) -> &'static str {
        match self {
            Market::Nasdaq => "XNAS",
            Market::Bx => "XBOS",
            Market::Psx => "XPSX",
        }
    }

    /// Its publisher number, as DBN numbers them.
    pub const fn publisher(self) -> u32 {
        match self {
            Market::Nasdaq => 2,
            Market::Bx => 3,
            Market::Psx => 4,
        }
    }

    /// Its byte in an operational halt.
    pub const fn market_code(self) -> u8 {
        match self {
            Market::Nasdaq => b'Q',
            Market::Bx => b'B',
            Market::Psx => b'X',
        }
    }

    /// The market with this identifier code, in any case.
    pub fn from_venue(venue: &str) -> Option<Market> {
        [Market::Nasdaq, Market::Bx, Market::Psx].into_iter().find(|market| market.venue().eq_ignore_ascii_case(venue))
    }
}

/// What a [`Normaliser`] is told once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NormaliserOptions {
    /// The market the feed is of.
    pub market: Market,
    /// Also carry what few readers want: market participant positions.
    pub full: bool,
}

/// Turns ITCH messages into records.
pub struct Normaliser {
    options: NormaliserOptions,
    date: SessionDate,
    /// The instrument of each locate of this session; 0 none yet.
    by_locate: Box<[u32]>,
    /// The symbol that goes with it; blank where no message said.
    symbols: Box<[Symbol]>,
    /// Instruments so far.
    instruments: u32,
    /// The event time of the last message.
    last_event: Nanos,
    counters: Counters,
}

impl std::fmt::Debug for Normaliser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Normaliser")
            .field("options", &self.options)
            .field("date", &self.date)
            .field("instruments", &self.instruments)
            .field("lines", &self.counters.lines)
            .finish_non_exhaustive()
    }
}

impl Normaliser {
    /// A normaliser for a session of `date`, with all its memory (about 770 KiB).
    pub fn new(options: NormaliserOptions, date: SessionDate) -> Normaliser {
        Normaliser {
            options,
            date,
            by_locate: vec![0; LOCATES].into_boxed_slice(),
            symbols: vec![BLANK; LOCATES].into_boxed_slice(),
            instruments: 0,
            last_event: Nanos::ZERO,
            counters: Counters::ZERO,
        }
    }

    /// Turns one message into its records, which `out` takes in order; `orders` is the book that they are applied to.
    ///
    /// All that is needed of `orders` is looked up before the first record goes out. Records come without
    /// `instrument_seq` and `ts_publish`. A message that is not carried gives no record. Nothing is allocated.
    ///
    /// # Errors
    /// [`Rejected`], counted; no record went out, and the next message is sound: the caller may go on.
    #[inline]
    pub fn normalise(
        &mut self,
        message: &feed::Message<'_>,
        orders: &impl OrderLookup,
        out: &mut impl FnMut(Record),
    ) -> Result<(), Rejected> {
        let decoded = match decode(message.bytes) {
            Ok(decoded) => decoded,
            Err(rejected) => return Err(self.count_rejected(rejected)),
        };
        let header = decoded.header();
        self.counters.messages_by_type[usize::from(header.message_type)] += 1;
        let mut event = Event::new(self.date, message, header, out);
        self.last_event = event.ts_event;
        self.dispatch(decoded, orders, &mut event);
        self.counters.lines += event.finish();
        Ok(())
    }

    /// Turns what a source says between two messages into a record of the channel.
    ///
    /// Messages that are lost for good are a VenueGap. A new session is a Clear: its messages know nothing of the old
    /// one's orders, and its stock locates are others. (Its first message, when it comes, says the same.) Where the date
    /// came from the capture, the new session has that of its own first packet.
    pub fn notice(&mut self, notice: &feed::Notice, out: &mut impl FnMut(Record)) {
        let (mut record, capture) = match notice {
            feed::Notice::Gap(missing) => {
                let mut record = Record::new(Kind::VENUE_GAP, InstrumentId::CHANNEL);
                record.order_id.set(missing.first);
                record.size.set(missing.count);
                record.venue_seq.set((missing.first + missing.count - 1) as u32);
                (record, missing.capture)
            }
            feed::Notice::Session { capture } => {
                self.by_locate.fill(0);
                self.symbols.fill(BLANK);
                if self.date.source() == Some(DateSource::Capture)
                    && let Ok(date) = session_date(None, *capture, Path::new(""))
                {
                    self.date = date;
                }
                let mut record = Record::new(Kind::CLEAR, InstrumentId::CHANNEL);
                record.venue_seq.set(1);
                (record, *capture)
            }
        };
        // The venue says no time for what it does not send: the capture's is the record's own, and where there is none (or
        // times are times of day) the last one that the venue said.
        match capture.filter(|_| !self.date.is_time_of_day()) {
            Some(capture) => {
                record.ts_event.set(capture.0);
                record.ts_capture.set(capture.low());
                record.flags = Flags::OWN_TIME;
            }
            None => {
                record.ts_event.set(self.last_event.0);
                record.ts_capture.set(self.last_event.low());
            }
        }
        record.flags = record.flags.with(Flags::LAST);
        self.counters.lines += 1;
        out(record);
    }

    /// The date in use.
    pub fn date(&self) -> SessionDate {
        self.date
    }

    /// Sets the date of the messages to come: a feed that holds several days calls this before each start of messages.
    pub fn set_date(&mut self, date: SessionDate) {
        self.date = date;
    }

    /// How many instruments there are; they are numbered from 1.
    pub fn instrument_count(&self) -> u32 {
        self.instruments
    }

    /// The instrument that `stock_locate` means in this session, once a message named it.
    pub fn instrument_of(&self, stock_locate: u16) -> Option<InstrumentId> {
        match self.by_locate[usize::from(stock_locate)] {
            0 => None,
            id => Some(InstrumentId(id)),
        }
    }

    /// The resting order that a message executes, reduces, deletes or replaces; `None` for messages that do none of that, or
    /// are of no instrument known so far.
    #[inline]
    pub fn order_of(&self, bytes: &[u8]) -> Option<(InstrumentId, u64)> {
        // All five begin alike: the header, then the order's reference number.
        let (OrderDelete::TYPE
        | OrderExecuted::TYPE
        | OrderCancel::TYPE
        | OrderReplace::TYPE
        | OrderExecutedWithPrice::TYPE) = *bytes.first()?
        else {
            return None;
        };
        let (message, _) = OrderDelete::ref_from_prefix(bytes).ok()?;
        let instrument = self.instrument_of(message.header.stock_locate.get())?;
        Some((instrument, message.order_reference.get()))
    }

    /// What was counted since the beginning.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    #[cold]
    fn count_rejected(&mut self, rejected: Rejected) -> Rejected {
        match rejected {
            Rejected::Empty => self.counters.empty_messages += 1,
            Rejected::Unknown { message_type, .. } => {
                self.counters.messages_by_type[usize::from(message_type)] += 1;
                self.counters.unknown_types += 1;
                self.counters.unknown_by_type[usize::from(message_type)] += 1;
            }
            Rejected::BadLength { message_type, .. } => {
                self.counters.messages_by_type[usize::from(message_type)] += 1;
                self.counters.bad_lengths_by_type[usize::from(message_type)] += 1;
            }
        }
        rejected
    }

    #[inline]
    fn dispatch<F: FnMut(Record)>(
        &mut self,
        message: Message<'_>,
        orders: &impl OrderLookup,
        event: &mut Event<'_, F>,
    ) {
        match message {
            Message::AddOrder(add) => {
                let instrument = self.instrument(&add.header, Some(&add.stock), event);
                let order = (add.order_reference.get(), add.buy_sell, add.price, add.shares.get());
                event.push(add_record(instrument, order));
            }
            Message::AddOrderAttributed(add) => {
                let instrument = self.instrument(&add.header, Some(&add.stock), event);
                let order = (add.order_reference.get(), add.buy_sell, add.price, add.shares.get());
                event.push_with(add_record(instrument, order), &add.attribution.0);
            }
            Message::OrderExecuted(execution) => {
                let instrument = self.instrument(&execution.header, None, event);
                let resting =
                    self.resting(orders, instrument, execution.order_reference.get(), execution.executed_shares.get());
                let print = Print {
                    match_number: execution.match_number.get(),
                    price: resting.price.get(),
                    aggressor: resting.side.opposite(),
                    condition: condition::PRINTABLE,
                };
                push_execution(event, resting, print);
            }
            Message::OrderExecutedWithPrice(execution) => {
                let instrument = self.instrument(&execution.header, None, event);
                let resting =
                    self.resting(orders, instrument, execution.order_reference.get(), execution.executed_shares.get());
                // Not printable means that the execution is inside a bulk print, that of a cross, which has no aggressor.
                let (aggressor, condition) = match execution.printable {
                    b'N' => (Side::NONE, condition::CROSS),
                    _ => (resting.side.opposite(), condition::PRINTABLE),
                };
                let print = Print {
                    match_number: execution.match_number.get(),
                    price: execution.execution_price.nano_dollars(),
                    aggressor,
                    condition,
                };
                push_execution(event, resting, print);
            }
            Message::OrderCancel(cancel) => {
                let instrument = self.instrument(&cancel.header, None, event);
                let mut record =
                    self.resting(orders, instrument, cancel.order_reference.get(), cancel.cancelled_shares.get());
                record.kind = Kind::REDUCE;
                event.push(record);
            }
            Message::OrderDelete(delete) => {
                let instrument = self.instrument(&delete.header, None, event);
                event.push(self.leaving(orders, instrument, delete.order_reference.get()));
            }
            Message::OrderReplace(replace) => self.replace(replace, orders, event),
            Message::Trade(trade) => {
                let instrument = self.instrument(&trade.header, Some(&trade.stock), event);
                let mut record = Record::new(Kind::TRADE, instrument);
                record.detail = condition::PRINTABLE | condition::HIDDEN;
                record.order_id.set(trade.match_number.get());
                record.price.set(trade.price.nano_dollars());
                record.size.set(trade.shares.get().into());
                event.push(record);
            }
            Message::CrossTrade(cross) => self.cross(cross, event),
            Message::BrokenTrade(broken) => {
                let instrument = self.instrument(&broken.header, None, event);
                let mut record = Record::new(Kind::TRADE_BUST, instrument);
                record.order_id.set(broken.match_number.get());
                event.push(record);
            }
            Message::Imbalance(imbalance) => self.imbalance(imbalance, event),
            Message::SystemEvent(system) => self.system_event(system.event_code, event),
            Message::StockDirectory(directory) => self.directory(directory, event),
            Message::TradingAction(action) => {
                let instrument = self.instrument(&action.header, Some(&action.stock), event);
                let raw = status::raw_code(action.trading_state, action.reason.0);
                event.push(status_record(
                    instrument,
                    status::of_trading_action(action.trading_state, action.reason.0),
                    raw,
                ));
            }
            Message::RegSho(test) => {
                let instrument = self.instrument(&test.header, Some(&test.stock), event);
                event.push(status_record(instrument, status::of_reg_sho(test.action), test.action.into()));
            }
            Message::OperationalHalt(halt) => {
                let instrument = self.instrument(&halt.header, Some(&halt.stock), event);
                let own = self.options.market.market_code();
                let said = status::of_operational_halt(halt.market_code, halt.action, own);
                event.push(status_record(instrument, said, halt.action.into()));
            }
            Message::BreakerStatus(breaker) => {
                let said = status::of_breaker(breaker.breached_level);
                event.push(status_record(InstrumentId::CHANNEL, said, breaker.breached_level.into()));
            }
            Message::RetailInterest(retail) => {
                let instrument = self.instrument(&retail.header, Some(&retail.stock), event);
                let mut record = status_record(instrument, status::of_retail_interest(), retail.interest.into());
                record.side = side(retail.interest);
                event.push(record);
            }
            Message::ParticipantPosition(position) => self.participant_position(position, event),
            Message::BreakerLevels(levels) => self.breaker_levels(levels, event),
            Message::IpoQuotingPeriod(ipo) => self.ipo(ipo, event),
            Message::AuctionCollar(collar) => self.auction_collar(collar, event),
            Message::DirectListing(listing) => self.direct_listing(listing, event),
        }
    }

    /// The instrument that a message is about; a locate seen for the first time gets one, and its Definition goes out.
    #[inline]
    fn instrument<F: FnMut(Record)>(
        &mut self,
        header: &Header,
        symbol: Option<&Symbol>,
        event: &mut Event<'_, F>,
    ) -> InstrumentId {
        match self.by_locate[usize::from(header.stock_locate.get())] {
            0 => self.imply_instrument(header, symbol, event),
            id => InstrumentId(id),
        }
    }

    #[cold]
    fn imply_instrument<F: FnMut(Record)>(
        &mut self,
        header: &Header,
        symbol: Option<&Symbol>,
        event: &mut Event<'_, F>,
    ) -> InstrumentId {
        let locate = header.stock_locate.get();
        let symbol = symbol.unwrap_or(&BLANK);
        let instrument = self.new_instrument(locate, symbol);
        self.counters.implied_instruments += 1;
        let text = definition::Text::of_symbol(self.options.market.venue(), symbol);
        event.push_with(self.definition(instrument, locate, 0), text.bytes());
        instrument
    }

    fn new_instrument(&mut self, locate: u16, symbol: &Symbol) -> InstrumentId {
        let count = self.instruments;
        assert!(count < u32::MAX, "instrument {count} is the last that there can be");
        self.instruments = count + 1;
        self.by_locate[usize::from(locate)] = self.instruments;
        self.symbols[usize::from(locate)] = *symbol;
        InstrumentId(self.instruments)
    }

    fn definition(&self, instrument: InstrumentId, locate: u16, round_lot: u32) -> Record {
        let mut record = Record::new(Kind::DEFINITION, instrument);
        record.order_id.set(u64::from(locate) | u64::from(self.options.market.publisher()) << 32);
        record.price.set(PRICE_STEP);
        record.size.set(round_lot.into());
        record
    }

    fn directory<F: FnMut(Record)>(&mut self, directory: &StockDirectory, event: &mut Event<'_, F>) {
        let locate = directory.header.stock_locate.get();
        let known = &mut self.symbols[usize::from(locate)];
        let instrument = match self.by_locate[usize::from(locate)] {
            0 => self.new_instrument(locate, &directory.stock),
            id if *known == directory.stock || *known == BLANK => {
                *known = directory.stock;
                InstrumentId(id)
            }
            _ => {
                self.counters.reassigned_locates += 1;
                self.new_instrument(locate, &directory.stock)
            }
        };
        let text = definition::Text::of_directory(self.options.market.venue(), directory);
        event.push_with(self.definition(instrument, locate, directory.round_lot_size.get()), text.bytes());
    }

    fn system_event<F: FnMut(Record)>(&mut self, event_code: u8, event: &mut Event<'_, F>) {
        let mut record = match event_code {
            b'O' => {
                self.by_locate.fill(0);
                self.symbols.fill(BLANK);
                Record::new(Kind::SESSION_START, InstrumentId::CHANNEL)
            }
            b'C' => Record::new(Kind::SESSION_END, InstrumentId::CHANNEL),
            _ => status_record(InstrumentId::CHANNEL, status::of_system_event(event_code), 0),
        };
        record.order_id.set(event_code.into());
        event.push(record);
    }

    /// An Execute of `shares` of a resting order, with its side and price from the book; side `N` and no price, counted,
    /// where the book does not hold it.
    #[inline]
    fn resting(&mut self, orders: &impl OrderLookup, instrument: InstrumentId, reference: u64, shares: u32) -> Record {
        let mut record = self.leaving(orders, instrument, reference);
        record.kind = Kind::EXECUTE;
        record.size.set(shares.into());
        record
    }

    /// A Delete of a resting order, with its side, price and remaining size from the book; side `N`, no price and size 0,
    /// counted, where the book does not hold it.
    #[inline]
    fn leaving(&mut self, orders: &impl OrderLookup, instrument: InstrumentId, reference: u64) -> Record {
        let mut record = Record::new(Kind::DELETE, instrument);
        record.order_id.set(reference);
        match orders.order(instrument, reference) {
            Some(order) => {
                record.side = order.side;
                record.price.set(order.price);
                record.size.set(order.size);
            }
            None => self.counters.unknown_orders += 1,
        }
        record
    }

    fn replace<F: FnMut(Record)>(
        &mut self,
        replace: &OrderReplace,
        orders: &impl OrderLookup,
        event: &mut Event<'_, F>,
    ) {
        let instrument = self.instrument(&replace.header, None, event);
        let mut old = self.leaving(orders, instrument, replace.original_reference.get());
        old.detail = REPLACED;
        let mut new = Record::new(Kind::ADD, instrument);
        new.side = old.side;
        new.detail = REPLACED;
        new.order_id.set(replace.new_reference.get());
        new.price.set(replace.price.nano_dollars());
        new.size.set(replace.shares.get().into());
        event.push(old);
        event.push(new);
    }

    /// Continuation: byte 0 the venue's cross type.
    fn cross<F: FnMut(Record)>(&mut self, cross: &CrossTrade, event: &mut Event<'_, F>) {
        let instrument = self.instrument(&cross.header, Some(&cross.stock), event);
        let mut record = Record::new(Kind::CROSS, instrument);
        record.detail = condition::PRINTABLE | condition::CROSS;
        record.order_id.set(cross.match_number.get());
        record.price.set(cross.cross_price.nano_dollars());
        record.size.set(cross.shares.get());
        event.push_with(record, &[cross.cross_type]);
    }

    /// Continuation: far price i64, near price i64, indicative price i64 (none in ITCH: undefined), time u64 (none: 0),
    /// then codes: cross type, price variation indicator, imbalance direction, five zeros. Little-endian.
    fn imbalance<F: FnMut(Record)>(&mut self, imbalance: &Imbalance, event: &mut Event<'_, F>) {
        let instrument = self.instrument(&imbalance.header, Some(&imbalance.stock), event);
        let mut record = Record::new(Kind::IMBALANCE, instrument);
        record.side = side(imbalance.imbalance_direction);
        record.detail = imbalance.cross_type;
        record.order_id.set(imbalance.imbalance_shares.get());
        record.price.set(imbalance.reference_price.nano_dollars());
        record.size.set(imbalance.paired_shares.get());
        let mut payload = [0u8; CONTINUATION_LEN];
        payload[0..8].copy_from_slice(&imbalance.far_price.nano_dollars().to_le_bytes());
        payload[8..16].copy_from_slice(&imbalance.near_price.nano_dollars().to_le_bytes());
        payload[16..24].copy_from_slice(&UNDEFINED_PRICE.to_le_bytes());
        payload[32] = imbalance.cross_type;
        payload[33] = imbalance.price_variation;
        payload[34] = imbalance.imbalance_direction;
        event.push_with(record, &payload);
    }

    /// A raw Statistic: no price, `size` the message's length, Continuation the message as it came.
    fn participant_position<F: FnMut(Record)>(&mut self, position: &ParticipantPosition, event: &mut Event<'_, F>) {
        if !self.options.full {
            self.counters.not_carried += 1;
            return;
        }
        let instrument = self.instrument(&position.header, Some(&position.stock), event);
        let mut record = event.statistic(instrument, statistic::RAW);
        record.size.set(ParticipantPosition::LEN as u64);
        event.push_with(record, position.as_bytes());
    }

    fn breaker_levels<F: FnMut(Record)>(&mut self, levels: &BreakerLevels, event: &mut Event<'_, F>) {
        let each = [
            (statistic::BREAKER_LEVEL_1, levels.level_1),
            (statistic::BREAKER_LEVEL_2, levels.level_2),
            (statistic::BREAKER_LEVEL_3, levels.level_3),
        ];
        for (detail, level) in each {
            let Some(price) = level.nano_dollars() else {
                self.counters.refused_prices += 1;
                continue;
            };
            let mut record = event.statistic(InstrumentId::CHANNEL, detail);
            record.price.set(price);
            event.push(record);
        }
    }

    /// `order_id` is the release time in UTC ns, 0 where the venue gives none. Continuation: byte 0 the release
    /// qualifier; bytes 4 to 7 the release time as sent, in seconds since midnight, u32 little-endian.
    fn ipo<F: FnMut(Record)>(&mut self, ipo: &IpoQuotingPeriod, event: &mut Event<'_, F>) {
        let instrument = self.instrument(&ipo.header, Some(&ipo.stock), event);
        let mut record = event.statistic(instrument, statistic::IPO_PRICE);
        let release_seconds = ipo.release_time.get();
        record.order_id.set(match release_seconds {
            0 => 0,
            seconds => self.date.at(u64::from(seconds) * 1_000_000_000).0,
        });
        record.price.set(ipo.ipo_price.nano_dollars());
        let mut payload = [0u8; 8];
        payload[0] = ipo.release_qualifier;
        payload[4..8].copy_from_slice(&release_seconds.to_le_bytes());
        event.push_with(record, &payload);
    }

    fn auction_collar<F: FnMut(Record)>(&mut self, collar: &AuctionCollar, event: &mut Event<'_, F>) {
        let instrument = self.instrument(&collar.header, Some(&collar.stock), event);
        let each = [
            (statistic::UPPER_BAND, collar.upper_price, 0),
            (statistic::LOWER_BAND, collar.lower_price, 0),
            (statistic::REFERENCE_BAND, collar.reference_price, collar.extension.get()),
        ];
        for (detail, price, size) in each {
            let mut record = event.statistic(instrument, detail);
            record.price.set(price.nano_dollars());
            record.size.set(size.into());
            event.push(record);
        }
    }

    /// A raw Statistic: price the near execution price, `order_id` its time in UTC ns, `size` the message's length,
    /// Continuations the message as it came.
    fn direct_listing<F: FnMut(Record)>(&mut self, listing: &DirectListing, event: &mut Event<'_, F>) {
        let instrument = self.instrument(&listing.header, Some(&listing.stock), event);
        let mut record = event.statistic(instrument, statistic::RAW);
        record.price.set(listing.near_execution_price.nano_dollars());
        record.order_id.set(match listing.near_execution_time.get() {
            0 => 0,
            elapsed_ns => self.date.at(elapsed_ns).0,
        });
        record.size.set(DirectListing::LEN as u64);
        event.push_with(record, listing.as_bytes());
    }
}

/// What an execution prints.
struct Print {
    match_number: u64,
    price: i64,
    aggressor: Side,
    condition: u8,
}

#[inline]
fn push_execution<F: FnMut(Record)>(event: &mut Event<'_, F>, execute: Record, print: Print) {
    let mut trade = Record::new(Kind::TRADE, execute.instrument_id());
    trade.side = print.aggressor;
    trade.detail = print.condition;
    trade.order_id.set(print.match_number);
    trade.price.set(print.price);
    trade.size = execute.size;
    event.push(execute);
    event.push(trade);
}

#[inline]
fn add_record(instrument: InstrumentId, (reference, buy_sell, price, shares): (u64, u8, Price4, u32)) -> Record {
    let mut record = Record::new(Kind::ADD, instrument);
    record.side = side(buy_sell);
    record.order_id.set(reference);
    record.price.set(price.nano_dollars());
    record.size.set(shares.into());
    record
}

fn status_record(instrument: InstrumentId, said: (u8, protocol::record::StatusWord), raw: u64) -> Record {
    let (action, word) = said;
    let mut record = Record::new(Kind::STATUS, instrument);
    record.detail = action;
    record.order_id.set(raw);
    record.size.set(word.to_u64());
    record
}

#[inline]
const fn side(buy_sell: u8) -> Side {
    match buy_sell {
        b'B' => Side::BID,
        b'S' => Side::ASK,
        _ => Side::NONE,
    }
}

#[cfg(test)]
mod tests;
