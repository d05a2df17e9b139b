//! The 23 messages of TotalView-ITCH 5.0, as they lie in memory.
//!
//! Every field is big-endian and unaligned, so a struct here is a view of the bytes that arrived; nothing is copied and
//! nothing converted until a field is asked for. Shares are whole shares. A [`Price4`] counts 1/10,000 dollar and a
//! [`Price8`] 1/100,000,000 dollar. Text is ASCII, left-justified, padded with spaces. Codes are bytes, and a byte that
//! the specification does not list is carried like any other. Sections are those of the specification; NOTES.md beside
//! this file has the whole table with offsets.

use std::fmt;

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A 48-bit unsigned number, big-endian.
#[derive(Clone, Copy, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(transparent)]
pub struct U48(pub [u8; 6]);

impl U48 {
    /// The largest that fits: 78 hours in nanoseconds.
    pub const MAX: u64 = (1 << 48) - 1;

    /// The number. Exactly its six bytes: nothing beside them is read.
    #[inline]
    pub const fn get(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }
}

impl fmt::Debug for U48 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.get())
    }
}

/// A price in 1/10,000 dollar.
#[derive(Clone, Copy, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(transparent)]
pub struct Price4(pub U32);

impl Price4 {
    /// As sent, in 1/10,000 dollar.
    #[inline]
    pub const fn raw(self) -> u32 {
        self.0.get()
    }

    /// In 1e-9 dollar, exact: the largest is 4.3e14, far inside an i64.
    #[inline]
    pub const fn nano_dollars(self) -> i64 {
        self.0.get() as i64 * 100_000
    }
}

impl fmt::Debug for Price4 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:04}", self.raw() / 10_000, self.raw() % 10_000)
    }
}

/// A price in 1/100,000,000 dollar.
#[derive(Clone, Copy, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(transparent)]
pub struct Price8(pub U64);

impl Price8 {
    /// As sent, in 1/100,000,000 dollar.
    #[inline]
    pub const fn raw(self) -> u64 {
        self.0.get()
    }

    /// In 1e-9 dollar, exact; `None` where that, or the value that stands for "no price", would leave the range of an
    /// i64 (9.2 thousand million dollars).
    #[inline]
    pub fn nano_dollars(self) -> Option<i64> {
        let value = self.0.get().checked_mul(10)?;
        i64::try_from(value).ok().filter(|value| *value != i64::MAX)
    }
}

impl fmt::Debug for Price8 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:08}", self.raw() / 100_000_000, self.raw() % 100_000_000)
    }
}

/// Text of `N` bytes: ASCII, left-justified, padded with spaces.
#[derive(Clone, Copy, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(transparent)]
pub struct Text<const N: usize>(pub [u8; N]);

impl<const N: usize> Text<N> {
    /// Without the padding.
    pub fn trimmed(&self) -> &[u8] {
        self.0.trim_ascii_end()
    }
}

impl<const N: usize> fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

/// A stock symbol.
pub type Symbol = Text<8>;

/// The 11 bytes that every message begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Header {
    /// The message type, an ASCII letter.
    pub message_type: u8,
    /// The venue's number for the security, good for one day; 0 where the message is about no security.
    pub stock_locate: U16,
    /// Nasdaq's internal number.
    pub tracking_number: U16,
    /// Nanoseconds since midnight in New York.
    pub timestamp: U48,
}

macro_rules! messages {
    ($(
        $(#[$doc:meta])*
        $name:ident = $kind:literal, $len:literal {
            $($(#[$field_doc:meta])* $field:ident: $field_type:ty, $offset:literal;)*
        }
    )*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
            #[repr(C)]
            pub struct $name {
                /// Type, security, tracking number, time.
                pub header: Header,
                $($(#[$field_doc])* pub $field: $field_type,)*
            }

            impl $name {
                /// The message type byte.
                pub const TYPE: u8 = $kind;
                /// Bytes in the message, its type included.
                pub const LEN: usize = $len;
            }

            const _: () = {
                assert!(size_of::<$name>() == $len);
                assert!(align_of::<$name>() == 1);
                $(assert!(std::mem::offset_of!($name, $field) == $offset);)*
            };
        )*

        /// A message, by its type.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Message<'a> {
            $($(#[$doc])* $name(&'a $name),)*
        }

        impl<'a> Message<'a> {
            /// The types that the specification lists.
            pub const TYPES: &'static [u8] = &[$($kind),*];

            /// Views `bytes` as the message that its first byte says it is.
            ///
            /// # Errors
            /// See [`Rejected`](super::Rejected). Any bytes give a message or an error; nothing beyond them is read.
            #[inline]
            pub(super) fn view(bytes: &'a [u8]) -> Result<Message<'a>, super::Rejected> {
                match bytes.first() {
                    $(Some(&$kind) => match $name::ref_from_bytes(bytes) {
                        Ok(message) => Ok(Message::$name(message)),
                        Err(_) => Err(super::Rejected::BadLength {
                            message_type: $kind,
                            expected: $len,
                            actual: bytes.len(),
                        }),
                    },)*
                    Some(&message_type) => Err(super::Rejected::Unknown { message_type, len: bytes.len() }),
                    None => Err(super::Rejected::Empty),
                }
            }

            /// What the message begins with that [`view`](Self::view) would find in `bytes`; `None` where that is an error.
            #[inline]
            pub(crate) fn header_of(bytes: &'a [u8]) -> Option<&'a Header> {
                /// By type; 0 for types that there are not.
                const LENGTHS: [usize; 256] = {
                    let mut lengths = [0; 256];
                    $(lengths[$kind as usize] = $len;)*
                    lengths
                };
                let (header, _) = Header::ref_from_prefix(bytes).ok()?;
                (LENGTHS[usize::from(header.message_type)] == bytes.len()).then_some(header)
            }

            /// What every message begins with.
            #[inline]
            pub fn header(&self) -> &'a Header {
                match self {
                    $(Message::$name(message) => &message.header,)*
                }
            }
        }
    };
}

const _: () = {
    assert!(size_of::<Header>() == 11);
    assert!(std::mem::offset_of!(Header, stock_locate) == 1);
    assert!(std::mem::offset_of!(Header, tracking_number) == 3);
    assert!(std::mem::offset_of!(Header, timestamp) == 5);
};

messages! {
    /// System event (1.1): the phases of the day. Its stock locate is 0.
    SystemEvent = b'S', 12 {
        /// `O` start of messages, `S` start of system hours, `Q` start of market hours, `M` end of market hours, `E` end
        /// of system hours, `C` end of messages.
        event_code: u8, 11;
    }
    /// Stock directory (1.2.1): one security, at the start of the day.
    StockDirectory = b'R', 39 {
        /// Symbol.
        stock: Symbol, 11;
        /// Listing market: `Q` `G` `S` Nasdaq Global Select, Global, Capital; `N` NYSE, `A` NYSE American, `P` NYSE Arca,
        /// `Z` Cboe BZX, `V` IEX; space not available.
        market_category: u8, 19;
        /// `D` deficient, `E` delinquent, `Q` bankrupt, `S` suspended, `G` `H` `J` `K` combinations, `C` creations or
        /// redemptions suspended, `N` normal, space not available.
        financial_status: u8, 20;
        /// Shares in a round lot.
        round_lot_size: U32, 21;
        /// `Y` only round lots are accepted, `N` any size.
        round_lots_only: u8, 25;
        /// Class of the issue, a letter.
        issue_classification: u8, 26;
        /// Sub-type of the issue, one or two letters.
        issue_subtype: Text<2>, 27;
        /// `P` live, `T` test.
        authenticity: u8, 29;
        /// `Y` under the short-sale threshold rule, `N` not, space not available.
        short_sale_threshold: u8, 30;
        /// `Y` set up for an initial public offering, `N` not, space not available.
        ipo_flag: u8, 31;
        /// `1` or `2`, the tier of the price bands; space not available.
        luld_tier: u8, 32;
        /// `Y` exchange-traded product, `N` not, space not available.
        etp_flag: u8, 33;
        /// Leverage of an exchange-traded product, rounded to a whole number.
        etp_leverage: U32, 34;
        /// `Y` inverse product, `N` not.
        inverse: u8, 38;
    }
    /// Stock trading action (1.2.2): halted, paused, quoting, trading.
    TradingAction = b'H', 25 {
        /// Symbol.
        stock: Symbol, 11;
        /// `H` halted, `P` paused, `Q` quotation only, `T` trading.
        trading_state: u8, 19;
        /// Reserved.
        reserved: u8, 20;
        /// Reason code.
        reason: Text<4>, 21;
    }
    /// Reg SHO short-sale price test (1.2.3).
    RegSho = b'Y', 20 {
        /// Symbol.
        stock: Symbol, 11;
        /// `0` no price test, `1` in effect from an intra-day drop, `2` remains in effect.
        action: u8, 19;
    }
    /// Market participant position (1.2.4).
    ParticipantPosition = b'L', 26 {
        /// Market participant.
        mpid: Text<4>, 11;
        /// Symbol.
        stock: Symbol, 15;
        /// `Y` primary market maker, `N` not.
        primary_market_maker: u8, 23;
        /// `N` normal, `P` passive, `S` syndicate, `R` pre-syndicate, `L` penalty.
        market_maker_mode: u8, 24;
        /// `A` active, `E` excused, `W` withdrawn, `S` suspended, `D` deleted.
        participant_state: u8, 25;
    }
    /// Market-wide circuit breaker: decline levels (1.2.5.1). Its stock locate is 0.
    BreakerLevels = b'V', 35 {
        /// Level 1, in index points.
        level_1: Price8, 11;
        /// Level 2, in index points.
        level_2: Price8, 19;
        /// Level 3, in index points.
        level_3: Price8, 27;
    }
    /// Market-wide circuit breaker: a level was breached (1.2.5.2). Its stock locate is 0.
    BreakerStatus = b'W', 12 {
        /// `1`, `2` or `3`.
        breached_level: u8, 11;
    }
    /// IPO quoting period (1.2.6).
    IpoQuotingPeriod = b'K', 28 {
        /// Symbol.
        stock: Symbol, 11;
        /// When quoting is to be released, in seconds since midnight in New York.
        release_time: U32, 19;
        /// `A` anticipated, `C` cancelled or postponed.
        release_qualifier: u8, 23;
        /// Offering price.
        ipo_price: Price4, 24;
    }
    /// LULD auction collar (1.2.7).
    AuctionCollar = b'J', 35 {
        /// Symbol.
        stock: Symbol, 11;
        /// Reference price of the collars.
        reference_price: Price4, 19;
        /// Upper collar.
        upper_price: Price4, 23;
        /// Lower collar.
        lower_price: Price4, 27;
        /// How many times the reopening was extended.
        extension: U32, 31;
    }
    /// Operational halt (1.2.8): of one security on one market.
    OperationalHalt = b'h', 21 {
        /// Symbol.
        stock: Symbol, 11;
        /// `Q` Nasdaq, `B` BX, `X` PSX.
        market_code: u8, 19;
        /// `H` halted, `T` resumed.
        action: u8, 20;
    }
    /// Add order, no attribution (1.3.1).
    AddOrder = b'A', 36 {
        /// The order's number, unique for the day.
        order_reference: U64, 11;
        /// `B` buy, `S` sell.
        buy_sell: u8, 19;
        /// Shares.
        shares: U32, 20;
        /// Symbol.
        stock: Symbol, 24;
        /// Limit.
        price: Price4, 32;
    }
    /// Add order with attribution (1.3.2).
    AddOrderAttributed = b'F', 40 {
        /// The order's number, unique for the day.
        order_reference: U64, 11;
        /// `B` buy, `S` sell.
        buy_sell: u8, 19;
        /// Shares.
        shares: U32, 20;
        /// Symbol.
        stock: Symbol, 24;
        /// Limit.
        price: Price4, 32;
        /// Market participant.
        attribution: Text<4>, 36;
    }
    /// Order executed (1.4.1): at its own price.
    OrderExecuted = b'E', 31 {
        /// The resting order.
        order_reference: U64, 11;
        /// Shares executed now.
        executed_shares: U32, 19;
        /// The execution's number, unique for the day.
        match_number: U64, 23;
    }
    /// Order executed with price (1.4.2): at another price than its own.
    OrderExecutedWithPrice = b'C', 36 {
        /// The resting order.
        order_reference: U64, 11;
        /// Shares executed now.
        executed_shares: U32, 19;
        /// The execution's number, unique for the day.
        match_number: U64, 23;
        /// `Y` counts in time-and-sales and volume, `N` does not (it is in a bulk print).
        printable: u8, 31;
        /// Price of the execution.
        execution_price: Price4, 32;
    }
    /// Order cancel (1.4.3): part of an order.
    OrderCancel = b'X', 23 {
        /// The order.
        order_reference: U64, 11;
        /// Shares taken off now.
        cancelled_shares: U32, 19;
    }
    /// Order delete (1.4.4): the whole order.
    OrderDelete = b'D', 19 {
        /// The order.
        order_reference: U64, 11;
    }
    /// Order replace (1.4.5): one order leaves, another with a number of its own takes over its side and security.
    OrderReplace = b'U', 35 {
        /// The order that leaves.
        original_reference: U64, 11;
        /// The order that takes over.
        new_reference: U64, 19;
        /// Its shares.
        shares: U32, 27;
        /// Its limit.
        price: Price4, 31;
    }
    /// Trade against an order that was never displayed (1.5.1).
    Trade = b'P', 44 {
        /// Zero in current feeds.
        order_reference: U64, 11;
        /// `B` in current feeds, whatever the side was.
        buy_sell: u8, 19;
        /// Shares.
        shares: U32, 20;
        /// Symbol.
        stock: Symbol, 24;
        /// Price.
        price: Price4, 32;
        /// The execution's number, unique for the day.
        match_number: U64, 36;
    }
    /// Cross trade (1.5.2): the bulk print of an auction.
    CrossTrade = b'Q', 40 {
        /// Shares matched in the cross; 0 when it found nothing to match.
        shares: U64, 11;
        /// Symbol.
        stock: Symbol, 19;
        /// Price of the cross.
        cross_price: Price4, 27;
        /// The execution's number, unique for the day.
        match_number: U64, 31;
        /// `O` opening, `C` closing, `H` initial or after a halt, `A` extended trading close.
        cross_type: u8, 39;
    }
    /// Broken trade (1.5.3): an execution that is void.
    BrokenTrade = b'B', 19 {
        /// The number of that execution.
        match_number: U64, 11;
    }
    /// Net order imbalance indicator (1.6): what an auction would give now.
    Imbalance = b'I', 50 {
        /// Shares that would match at the reference price.
        paired_shares: U64, 11;
        /// Shares that would not.
        imbalance_shares: U64, 19;
        /// `B` more to buy, `S` more to sell, `N` none, `O` too few orders, `P` paused.
        imbalance_direction: u8, 27;
        /// Symbol.
        stock: Symbol, 28;
        /// Clearing price of the auction orders alone; 0 none.
        far_price: Price4, 36;
        /// Clearing price of all orders; 0 none.
        near_price: Price4, 40;
        /// Price at which the shares above are counted.
        reference_price: Price4, 44;
        /// `O` opening, `C` closing, `H` initial or after a halt, `A` extended trading close.
        cross_type: u8, 48;
        /// How far the near price is from the reference: `L`, `1` to `9`, `A` to `C`; space not calculable.
        price_variation: u8, 49;
    }
    /// Retail price improvement indicator (1.7).
    RetailInterest = b'N', 20 {
        /// Symbol.
        stock: Symbol, 11;
        /// `B` on the buy side, `S` on the sell side, `A` on both, `N` none.
        interest: u8, 19;
    }
    /// Direct listing with capital raise: price discovery (1.8).
    DirectListing = b'O', 48 {
        /// Symbol.
        stock: Symbol, 11;
        /// `Y` eligible to be released, `N` not.
        open_eligibility: u8, 19;
        /// Lowest price allowed: 20 % under the registered range.
        minimum_price: Price4, 20;
        /// Highest price allowed: 80 % above the registered range.
        maximum_price: Price4, 24;
        /// The current reference price when the volatility test passed.
        near_execution_price: Price4, 28;
        /// When that was, in nanoseconds since midnight in New York.
        near_execution_time: U64, 32;
        /// Lower collar: 10 % under the near execution price.
        lower_collar: Price4, 40;
        /// Upper collar: 10 % above it.
        upper_collar: Price4, 44;
    }
}
