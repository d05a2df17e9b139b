//! The 56-byte record: one normalised update.
//!
//! ```text
//!  byte 0        8         16        24       32      40           44           48              52            56
//!  kind flags    ts_event  order_id  price    size    ts_capture   ts_publish   instrument_seq  venue_seq
//!  side detail   u64       u64       i64      u64     low 32 bits  low 32 bits  u32             low 32 bits
//!  instrument u32
//! ```
//!
//! Kinds, sides and details are open sets: they are bytes with names, and a byte without a name is carried and delivered
//! like any other. What each venue message becomes is in WIRE.md.

use std::fmt;

use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::hash::h64;
use crate::time::Nanos;

/// What a record says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct Kind(pub u8);

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $text:literal;)*) => {
        impl Kind {
            $($(#[$doc])* pub const $name: Kind = Kind($value);)*

            /// Every kind that has a name, in order of value.
            pub const ALL: &'static [Kind] = &[$(Kind::$name),*];

            /// The name as printed, or `None` for a byte that this version does not know.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 { $($value => Some($text),)* _ => None }
            }
        }
    };
}

kinds! {
    /// A new resting order.
    ADD = 1, "Add";
    /// New side, price and size of a resting order, absolute. `detail`: [`modify`].
    MODIFY = 2, "Modify";
    /// `size` is taken off a resting order.
    REDUCE = 3, "Reduce";
    /// A resting order leaves; carries its side, price and remaining size. `detail`: [`REPLACED`].
    DELETE = 4, "Delete";
    /// An execution against a resting order: its id, the size taken, its resting price. Changes the book.
    EXECUTE = 5, "Execute";
    /// A fill as reported by venues that cancel the order separately. Never touches a book.
    FILL = 6, "Fill";
    /// A trade: match id in `order_id`, print price, size, aggressor side; `detail`: [`condition`]. Never touches a book.
    TRADE = 7, "Trade";
    /// The trade with match id `order_id` is void.
    TRADE_BUST = 8, "TradeBust";
    /// A cross (auction) print; match id in `order_id`; `detail`: [`condition`]; the venue's cross type in a Continuation.
    CROSS = 9, "Cross";
    /// A price level, absolute: `size` and order count (`order_id`) at `price`; size 0 deletes it.
    LEVEL_SET = 10, "LevelSet";
    /// The book of `instrument` is empty; instrument 0: every book of the channel.
    CLEAR = 11, "Clear";
    /// On instrument 0: every open event of the channel ends here.
    EVENT_END = 12, "EventEnd";
    /// Trading status. `detail`: [`status`]; `size`: [`StatusWord`]; `order_id`: the venue's raw code.
    STATUS = 13, "Status";
    /// A published statistic. `detail`: [`statistic`]; `price`; `size` as i64; `order_id` reference time.
    STATISTIC = 14, "Statistic";
    /// Auction imbalance: price reference, size paired, order_id imbalance, side; `detail`: venue's auction type byte.
    IMBALANCE = 15, "Imbalance";
    /// An instrument: order_id venue id | publisher << 32, price tick, size round lot, text in Continuations.
    DEFINITION = 16, "Definition";
    /// Belongs to the record before it: 40 bytes of payload at 8..48.
    CONTINUATION = 17, "Continuation";
    /// The venue's feed lost records for good: order_id first missing venue sequence, size how many.
    VENUE_GAP = 18, "VenueGap";
    /// The venue's own start of day: every book of the channel is known to be empty.
    SESSION_START = 19, "SessionStart";
    /// The venue's end of day. Nothing but a new session follows.
    SESSION_END = 20, "SessionEnd";
    /// The publisher's book of `instrument`: order_id D, price L as bits, size resting orders, `detail`: [`digest`].
    BOOK_DIGEST = 21, "BookDigest";
    /// Begins a snapshot (reply ring only).
    SNAPSHOT_BEGIN = 22, "SnapshotBegin";
    /// Ends a snapshot (reply ring only).
    SNAPSHOT_END = 23, "SnapshotEnd";
    /// Begins an answer (reply ring only).
    REPLY_BEGIN = 24, "ReplyBegin";
    /// The publisher lives: only ever in a latest line. ts_event its clock in full; `detail` 1 after the session's end.
    HEARTBEAT = 25, "Heartbeat";
    /// Asks the recovery server for something (never in a stream): see [`crate::recovery`].
    REQUEST = 26, "Request";
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "Kind({})", self.0),
        }
    }
}

/// Which side of the book, or of a trade.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct Side(pub u8);

impl Side {
    /// Buy.
    pub const BID: Side = Side(b'B');
    /// Sell.
    pub const ASK: Side = Side(b'A');
    /// None, or not known.
    pub const NONE: Side = Side(b'N');
    /// Implied buy interest: a ladder of its own.
    pub const IMPLIED_BID: Side = Side(b'b');
    /// Implied sell interest: a ladder of its own.
    pub const IMPLIED_ASK: Side = Side(b'a');

    /// The other side; [`Side::NONE`] and unknown bytes stay what they are.
    #[inline]
    pub const fn opposite(self) -> Side {
        match self {
            Side::BID => Side::ASK,
            Side::ASK => Side::BID,
            Side::IMPLIED_BID => Side::IMPLIED_ASK,
            Side::IMPLIED_ASK => Side::IMPLIED_BID,
            other => other,
        }
    }
}

impl fmt::Debug for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

/// Bits of a record's `flags`. The upper six are DBN's; the lower two are ours.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct Flags(pub u8);

impl Flags {
    /// No flag.
    pub const NONE: Flags = Flags(0);
    /// The last line of the instrument's event.
    pub const LAST: Flags = Flags(0x80);
    /// The one level stated is the whole side.
    pub const TOB: Flags = Flags(0x40);
    /// Part of a venue snapshot.
    pub const SNAPSHOT: Flags = Flags(0x20);
    /// An aggregated level, not an order.
    pub const LEVEL: Flags = Flags(0x10);
    /// The venue or its receiver marked the time as doubtful.
    pub const BAD_TS: Flags = Flags(0x08);
    /// The venue or its receiver marked the book as doubtful.
    pub const MAYBE_BAD_BOOK: Flags = Flags(0x04);
    /// `ts_event` holds the capture time in full: the venue gave no time, or one 2^31 ns or more away.
    pub const OWN_TIME: Flags = Flags(0x02);
    /// The next line of the channel belongs to this record.
    pub const CONTINUES: Flags = Flags(0x01);

    /// Whether all bits of `other` are set.
    #[inline]
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets of bits.
    #[inline]
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// These bits without `other`'s.
    #[inline]
    pub const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (Flags::LAST, "LAST"),
            (Flags::TOB, "TOB"),
            (Flags::SNAPSHOT, "SNAPSHOT"),
            (Flags::LEVEL, "LEVEL"),
            (Flags::BAD_TS, "BAD_TS"),
            (Flags::MAYBE_BAD_BOOK, "MAYBE_BAD_BOOK"),
            (Flags::OWN_TIME, "OWN_TIME"),
            (Flags::CONTINUES, "CONTINUES"),
        ];
        let mut first = true;
        for (flag, name) in names.into_iter().filter(|(flag, _)| self.has(*flag)) {
            let _ = flag;
            if !std::mem::take(&mut first) {
                f.write_str("|")?;
            }
            f.write_str(name)?;
        }
        if first { f.write_str("-") } else { Ok(()) }
    }
}

/// `detail` of Modify: what happens to the order's place in its queue.
pub mod modify {
    /// Keeps its place only if the price is equal and the size not greater.
    pub const BY_RULE: u8 = 0;
    /// Keeps its place.
    pub const KEEPS: u8 = 1;
    /// Goes to the back.
    pub const TO_BACK: u8 = 2;
}

/// `detail` of a Delete and of the Add after it that together are a replace.
pub const REPLACED: u8 = 1;

/// `detail` bits of Trade and Cross.
pub mod condition {
    /// Counts towards volume.
    pub const PRINTABLE: u8 = 0x01;
    /// Against an order that the feed never displayed.
    pub const HIDDEN: u8 = 0x02;
    /// Part of a cross.
    pub const CROSS: u8 = 0x04;
}

/// `detail` of Status: the StatusAction values of DBN.
pub mod status {
    /// No change.
    pub const NONE: u8 = 0;
    /// Before the open.
    pub const PRE_OPEN: u8 = 1;
    /// Before a cross.
    pub const PRE_CROSS: u8 = 2;
    /// Quoting only.
    pub const QUOTING: u8 = 3;
    /// In a cross.
    pub const CROSS: u8 = 4;
    /// Opening by rotation.
    pub const ROTATION: u8 = 5;
    /// A new price indication.
    pub const NEW_PRICE_INDICATION: u8 = 6;
    /// Trading.
    pub const TRADING: u8 = 7;
    /// Halted.
    pub const HALT: u8 = 8;
    /// Paused.
    pub const PAUSE: u8 = 9;
    /// Suspended.
    pub const SUSPEND: u8 = 10;
    /// Before the close.
    pub const PRE_CLOSE: u8 = 11;
    /// Closed.
    pub const CLOSE: u8 = 12;
    /// After the close.
    pub const POST_CLOSE: u8 = 13;
    /// The short-sale restriction changed.
    pub const SHORT_SALE_RESTRICTION: u8 = 14;
    /// Not available for trading.
    pub const NOT_AVAILABLE: u8 = 15;

    /// Whether an action says if the instrument trades from now on.
    pub const fn decides_trading(action: u8) -> bool {
        !matches!(action, NONE | SHORT_SALE_RESTRICTION | NEW_PRICE_INDICATION)
    }
}

/// `detail` of Statistic.
pub mod statistic {
    /// Upper price band.
    pub const UPPER_BAND: u8 = 1;
    /// Lower price band.
    pub const LOWER_BAND: u8 = 2;
    /// Reference price of the bands; `size` is the extension number.
    pub const REFERENCE_BAND: u8 = 3;
    /// Market-wide circuit breaker, level 1.
    pub const BREAKER_LEVEL_1: u8 = 4;
    /// Market-wide circuit breaker, level 2.
    pub const BREAKER_LEVEL_2: u8 = 5;
    /// Market-wide circuit breaker, level 3.
    pub const BREAKER_LEVEL_3: u8 = 6;
    /// IPO price; `order_id` the release time.
    pub const IPO_PRICE: u8 = 7;
    /// Official opening price.
    pub const OFFICIAL_OPEN: u8 = 8;
    /// Official closing price.
    pub const OFFICIAL_CLOSE: u8 = 9;
    /// Settlement price.
    pub const SETTLEMENT: u8 = 10;
    /// Open interest.
    pub const OPEN_INTEREST: u8 = 11;
    /// Traded volume.
    pub const VOLUME: u8 = 12;
    /// High.
    pub const HIGH: u8 = 13;
    /// Low.
    pub const LOW: u8 = 14;
    /// A venue statistic without a place of its own here; the whole of it in Continuations.
    pub const RAW: u8 = 255;
}

/// `detail` of BookDigest: what the publisher says of its own book.
pub mod digest {
    /// The publisher's book is complete and consistent.
    pub const LIVE: u8 = 0;
    /// The publisher's book is Suspect; digests are still comparable.
    pub const SUSPECT: u8 = 1;
    /// The publisher's own book is not complete (it started in the middle): nothing to agree with.
    pub const UNKNOWN: u8 = 2;
}

/// The price that means "none".
pub const UNDEFINED_PRICE: i64 = i64::MAX;

/// `size` of a Status record, taken apart: reason u16, trading event u16, then four bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StatusWord {
    /// Why, as the StatusReason values of DBN; 0 none.
    pub reason: u16,
    /// What else happens, as the TradingEvent values of DBN; 0 none.
    pub trading_event: u16,
    /// `Y`, `N` or `~` (not said).
    pub is_trading: u8,
    /// `Y`, `N` or `~` (not said).
    pub is_quoting: u8,
    /// Short-sale restriction: the venue's byte, `~` where not said.
    pub short_sale: u8,
    /// Scope: the venue's byte (market, group, …), `~` where not said.
    pub scope: u8,
}

impl StatusWord {
    /// As carried in `size`.
    pub const fn to_u64(self) -> u64 {
        self.reason as u64
            | (self.trading_event as u64) << 16
            | (self.is_trading as u64) << 32
            | (self.is_quoting as u64) << 40
            | (self.short_sale as u64) << 48
            | (self.scope as u64) << 56
    }

    /// From the `size` of a Status record.
    pub const fn from_u64(word: u64) -> StatusWord {
        StatusWord {
            reason: word as u16,
            trading_event: (word >> 16) as u16,
            is_trading: (word >> 32) as u8,
            is_quoting: (word >> 40) as u8,
            short_sale: (word >> 48) as u8,
            scope: (word >> 56) as u8,
        }
    }
}

/// One book of one publisher; 0 is the channel itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Debug)]
#[repr(transparent)]
pub struct InstrumentId(pub u32);

impl InstrumentId {
    /// The channel as a whole.
    pub const CHANNEL: InstrumentId = InstrumentId(0);

    /// As an index into tables that have a row for the channel.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// One normalised update, 56 bytes, little-endian.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Record {
    /// What it says.
    pub kind: Kind,
    /// [`Flags`].
    pub flags: Flags,
    /// [`Side`].
    pub side: Side,
    /// By kind.
    pub detail: u8,
    /// [`InstrumentId`]; 0 is the channel.
    pub instrument: U32,
    /// The exchange's time, UTC ns (or the capture time, with [`Flags::OWN_TIME`]).
    pub ts_event: U64,
    /// Order or match id; by kind.
    pub order_id: U64,
    /// In 10^price_exponent of the Definition (default -9); [`UNDEFINED_PRICE`] is none. Negative prices are legal.
    pub price: I64,
    /// In 10^size_exponent (default 0) size units.
    pub size: U64,
    /// Low half of the capture time.
    pub ts_capture: U32,
    /// Low half of the publisher's clock.
    pub ts_publish: U32,
    /// The instrument's lines plus the channel-wide lines, wrapping.
    pub instrument_seq: U32,
    /// Low half of the venue's sequence.
    pub venue_seq: U32,
}

/// Bytes in a [`Record`].
pub const RECORD_LEN: usize = 56;
/// Bytes of payload in a Continuation.
pub const CONTINUATION_LEN: usize = 40;
/// The most lines one record may take, itself included.
pub const MAX_LINES_PER_RECORD: usize = 64;

const _: () = {
    assert!(size_of::<Record>() == RECORD_LEN);
    assert!(std::mem::offset_of!(Record, instrument) == 4);
    assert!(std::mem::offset_of!(Record, ts_event) == 8);
    assert!(std::mem::offset_of!(Record, order_id) == 16);
    assert!(std::mem::offset_of!(Record, price) == 24);
    assert!(std::mem::offset_of!(Record, size) == 32);
    assert!(std::mem::offset_of!(Record, ts_capture) == 40);
    assert!(std::mem::offset_of!(Record, ts_publish) == 44);
    assert!(std::mem::offset_of!(Record, instrument_seq) == 48);
    assert!(std::mem::offset_of!(Record, venue_seq) == 52);
};

impl Record {
    /// A record of `kind` on `instrument` with side none, no price, and everything else zero.
    #[inline]
    pub fn new(kind: Kind, instrument: InstrumentId) -> Record {
        Record {
            kind,
            flags: Flags::NONE,
            side: Side::NONE,
            detail: 0,
            instrument: U32::new(instrument.0),
            ts_event: U64::ZERO,
            order_id: U64::ZERO,
            price: I64::new(UNDEFINED_PRICE),
            size: U64::ZERO,
            ts_capture: U32::ZERO,
            ts_publish: U32::ZERO,
            instrument_seq: U32::ZERO,
            venue_seq: U32::ZERO,
        }
    }

    /// A Continuation of `head` with up to 40 bytes of payload, the rest zero.
    ///
    /// # Panics
    /// If `payload` is longer than [`CONTINUATION_LEN`].
    pub fn continuation(head: &Record, payload: &[u8]) -> Record {
        let mut bytes = [0u8; RECORD_LEN];
        bytes[8..8 + payload.len()].copy_from_slice(payload);
        assert!(
            payload.len() <= CONTINUATION_LEN,
            "a continuation holds {CONTINUATION_LEN} bytes, not {}",
            payload.len()
        );
        let mut record: Record = zerocopy::transmute!(bytes);
        record.kind = Kind::CONTINUATION;
        record.side = head.side;
        record.detail = head.detail;
        record.instrument = head.instrument;
        record.venue_seq = head.venue_seq;
        record
    }

    /// The 40 payload bytes of a Continuation.
    #[inline]
    pub fn payload(&self) -> &[u8; CONTINUATION_LEN] {
        self.as_bytes()[8..48].try_into().expect("40 bytes")
    }

    /// The instrument.
    #[inline]
    pub fn instrument_id(&self) -> InstrumentId {
        InstrumentId(self.instrument.get())
    }

    /// The exchange's time (or the capture time, with [`Flags::OWN_TIME`]).
    #[inline]
    pub fn event_time(&self) -> Nanos {
        Nanos(self.ts_event.get())
    }

    /// The capture time in full: the one nearest to `ts_event` (DESIGN: within 2^31 ns, else OWN_TIME is set).
    #[inline]
    pub fn capture_time(&self) -> Nanos {
        Nanos::nearest(self.event_time(), self.ts_capture.get())
    }

    /// Whether this line ends the event of its instrument.
    #[inline]
    pub fn is_last(&self) -> bool {
        self.flags.has(Flags::LAST)
    }

    /// The seven words, as the hash reads them.
    #[inline(always)]
    pub fn words(&self) -> [u64; 7] {
        let words: [U64; 7] = zerocopy::transmute!(*self);
        words.map(U64::get)
    }

    /// From seven words, the inverse of [`Record::words`].
    #[inline(always)]
    pub fn from_words(words: [u64; 7]) -> Record {
        let words: [U64; 7] = words.map(U64::new);
        zerocopy::transmute!(words)
    }

    /// [`h64`] of this record.
    #[inline(always)]
    pub fn hash(&self) -> u64 {
        h64(&self.words())
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} {:?} side {:?} detail {} instrument {} id {} price {} size {} at {} iseq {} venue {}",
            self.kind,
            self.flags,
            self.side,
            self.detail,
            self.instrument,
            self.order_id,
            self.price,
            self.size,
            self.ts_event,
            self.instrument_seq,
            self.venue_seq
        )
    }
}

/// A channel: an independently sequenced stream.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(transparent)]
pub struct ChannelId(pub U16);

impl ChannelId {
    /// From a number.
    pub const fn new(id: u16) -> ChannelId {
        ChannelId(U16::new(id))
    }
}

/// One path of a channel: 0 is the A line, 1 the B line, and so on.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(transparent)]
pub struct Lane(pub U16);

impl Lane {
    /// From a number.
    pub const fn new(lane: u16) -> Lane {
        Lane(U16::new(lane))
    }
}
