//! Conflation: the latest of each instrument in place of every change of it.
//!
//! For who wants to know how things stand, and not how they came about: a screen, a risk check, a strategy that looks once a
//! second. The recovery server's [`Conflator`] notes which instruments its lines touched and writes their [`ConflatedBook`]s
//! into cells, each as 79 words ([`Content`]); how cells are shared so that nobody ever reads half of one is the crate
//! `transport`'s affair. However far a reader falls behind, it finds the newest book and nothing waits for it.
//!
//! A cell never shows half an event: it is written between events of its instrument. When the server itself has lost lines,
//! the *round* rises that it publishes beside the cells, before any cell is touched: a cell of an earlier round is
//! [`BookState::Stale`] whatever it says, until it is written anew.

mod conflator;

pub use conflator::Conflator;

use crate::book::{Bbo, BookState, BookView, Level};
use crate::line::Stamp;
use crate::record::{InstrumentId, Kind, Record, Side, UNDEFINED_PRICE, condition};
use crate::time::Nanos;

/// Levels of each side in a cell.
pub const CELL_LEVELS: usize = 10;
/// Words of a cell's content: with the version word before it, a cell has 640 bytes.
pub const CONTENT_WORDS: usize = 79;
/// The longest symbol that a cell holds, bytes. A longer one is cut off.
pub const CELL_SYMBOL_LEN: usize = 24;

/// A cell's content as it lies in memory; WIRE.md draws it.
pub type Content = [u64; CONTENT_WORDS];

/// Where things are in a [`Content`], in words.
mod place {
    pub(super) const AT: usize = 0;
    pub(super) const ROUND: usize = 1;
    pub(super) const EVENT_TIME: usize = 2;
    pub(super) const DEPTHS: usize = 3;
    pub(super) const TRADE: usize = 4;
    pub(super) const SYMBOL: usize = 8;
    pub(super) const EXPONENT: usize = 11;
    pub(super) const LEVELS: usize = 12;
    pub(super) const RESERVED: usize = LEVELS + 2 * super::CELL_LEVELS * 3;
}
const _: () = assert!(place::RESERVED == 72 && place::RESERVED <= CONTENT_WORDS);

/// Bits 40 to 47 of word 1.
mod flag {
    pub(super) const TRADING: u8 = 1;
    pub(super) const TRADING_KNOWN: u8 = 2;
    pub(super) const HAS_TRADE: u8 = 4;
}

const STATES: [BookState; 5] =
    [BookState::Unknown, BookState::Snapshotting, BookState::Live, BookState::Suspect, BookState::Stale];

/// The last trade of an instrument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LastTrade {
    /// In price units.
    pub price: i64,
    /// In size units.
    pub size: u64,
    /// The venue's time.
    pub event_time: Nanos,
    /// The venue's match id.
    pub match_id: u64,
    /// The side that started it; none in a cross or where the venue does not say.
    pub aggressor: Side,
    /// Condition bits: [`crate::record::condition`].
    pub condition: u8,
}

impl LastTrade {
    fn of(record: &Record) -> LastTrade {
        let cross = if record.kind == Kind::CROSS { condition::CROSS } else { 0 };
        LastTrade {
            price: record.price.get(),
            size: record.size.get(),
            event_time: record.event_time(),
            match_id: record.order_id.get(),
            aggressor: record.side,
            condition: record.detail | cross,
        }
    }
}

/// The best levels of one side, best first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BestLevels {
    levels: [Level; CELL_LEVELS],
    /// Levels of the whole side, those that are not here included.
    depth: u32,
}

impl BestLevels {
    const NONE: BestLevels =
        BestLevels { levels: [Level { price: UNDEFINED_PRICE, size: 0, orders: 0 }; CELL_LEVELS], depth: 0 };

    fn of(view: &BookView<'_>, side: Side) -> BestLevels {
        let mut best = BestLevels { depth: view.depth(side) as u32, ..BestLevels::NONE };
        for (place, level) in best.levels.iter_mut().zip(view.levels(side)) {
            *place = level;
        }
        best
    }

    /// At most [`CELL_LEVELS`] of them.
    pub fn levels(&self) -> &[Level] {
        &self.levels[..CELL_LEVELS.min(self.depth as usize)]
    }

    /// How many levels the whole side has.
    pub fn depth(&self) -> u32 {
        self.depth
    }
}

/// How one instrument stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConflatedBook {
    /// Whose book.
    pub instrument: InstrumentId,
    /// What the book says of itself.
    pub state: BookState,
    /// The last line of the channel that the server had taken when it wrote this.
    pub at: Stamp,
    /// The server's round then: see the [module](self).
    pub round: u32,
    /// The venue's time of the instrument's last line; zero before any.
    pub event_time: Nanos,
    /// Whether it trades, as its last Status said. `None` where one may have been missed.
    pub trading: Option<bool>,
    /// The outright bids.
    pub bids: BestLevels,
    /// The outright asks.
    pub asks: BestLevels,
    /// Its last trade.
    pub last_trade: Option<LastTrade>,
    /// Prices are in units of 10 to this power.
    pub price_exponent: i8,
    symbol: [u8; CELL_SYMBOL_LEN],
}

impl ConflatedBook {
    /// Best bid and offer.
    pub fn bbo(&self) -> Bbo {
        Bbo { bid: self.bids.levels().first().copied(), ask: self.asks.levels().first().copied() }
    }

    /// The venue's symbol, empty if it is not known.
    pub fn symbol(&self) -> &str {
        let len = self.symbol.iter().position(|byte| *byte == 0).unwrap_or(CELL_SYMBOL_LEN);
        std::str::from_utf8(&self.symbol[..len]).unwrap_or("")
    }

    /// The same in a channel whose server's round is `round` now: what was written before the server lost lines is Stale.
    pub fn in_round(mut self, round: u32) -> ConflatedBook {
        if self.round != round && self.state.is_readable() {
            self.state = BookState::Stale;
        }
        self
    }

    /// As words for a cell.
    pub fn to_content(&self) -> Content {
        let mut words = [0; CONTENT_WORDS];
        let mut flags = if self.last_trade.is_some() { flag::HAS_TRADE } else { 0 };
        if let Some(trading) = self.trading {
            flags |= flag::TRADING_KNOWN | if trading { flag::TRADING } else { 0 };
        }
        let state = STATES.iter().position(|state| *state == self.state).expect("every state is in the table") as u8;
        let (aggressor, condition) = self.last_trade.map_or((0, 0), |trade| (trade.aggressor.0, trade.condition));
        let round = self.round.to_le_bytes();
        words[place::AT] = self.at.0;
        words[place::ROUND] =
            u64::from_le_bytes([round[0], round[1], round[2], round[3], state, flags, aggressor, condition]);
        words[place::EVENT_TIME] = self.event_time.0;
        words[place::DEPTHS] = u64::from(self.bids.depth) | u64::from(self.asks.depth) << 32;
        if let Some(trade) = self.last_trade {
            let trade = [trade.price as u64, trade.size, trade.event_time.0, trade.match_id];
            words[place::TRADE..place::SYMBOL].copy_from_slice(&trade);
        }
        for (word, bytes) in words[place::SYMBOL..].iter_mut().zip(self.symbol.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().expect("eight of them"));
        }
        words[place::EXPONENT] = u64::from(self.price_exponent as u8);
        let levels = self.bids.levels.iter().chain(&self.asks.levels);
        for (words, level) in words[place::LEVELS..place::RESERVED].chunks_exact_mut(3).zip(levels) {
            words.copy_from_slice(&[level.price as u64, level.size, u64::from(level.orders)]);
        }
        words
    }

    /// From the words of the cell of `instrument`. `None` if this version does not know such a state.
    pub fn from_content(instrument: InstrumentId, words: &Content) -> Option<ConflatedBook> {
        let [r0, r1, r2, r3, state, flags, aggressor, condition] = words[place::ROUND].to_le_bytes();
        let trade = &words[place::TRADE..];
        let last_trade = (flags & flag::HAS_TRADE != 0).then(|| LastTrade {
            price: trade[0] as i64,
            size: trade[1],
            event_time: Nanos(trade[2]),
            match_id: trade[3],
            aggressor: Side(aggressor),
            condition,
        });
        let mut symbol = [0; CELL_SYMBOL_LEN];
        for (bytes, word) in symbol.chunks_exact_mut(8).zip(&words[place::SYMBOL..]) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        let side = |depth: u64, from: usize| {
            let mut best = BestLevels { depth: depth as u32, ..BestLevels::NONE };
            for (level, words) in best.levels.iter_mut().zip(words[from..].chunks_exact(3)) {
                *level = Level { price: words[0] as i64, size: words[1], orders: words[2] as u32 };
            }
            best
        };
        let depths = words[place::DEPTHS];
        Some(ConflatedBook {
            instrument,
            state: *STATES.get(usize::from(state))?,
            at: Stamp(words[place::AT]),
            round: u32::from_le_bytes([r0, r1, r2, r3]),
            event_time: Nanos(words[place::EVENT_TIME]),
            trading: (flags & flag::TRADING_KNOWN != 0).then_some(flags & flag::TRADING != 0),
            bids: side(depths, place::LEVELS),
            asks: side(depths >> 32, place::LEVELS + 3 * CELL_LEVELS),
            last_trade,
            price_exponent: words[place::EXPONENT] as i8,
            symbol,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::{Epoch, SequenceNumber};

    fn book(depth: u32) -> ConflatedBook {
        let mut bids = BestLevels { depth, ..BestLevels::NONE };
        let mut asks = BestLevels { depth: depth / 2, ..BestLevels::NONE };
        for i in 0..CELL_LEVELS.min(depth as usize) {
            bids.levels[i] = Level { price: -5 - i as i64, size: u64::MAX - i as u64, orders: i as u32 + 1 };
        }
        for i in 0..CELL_LEVELS.min(depth as usize / 2) {
            asks.levels[i] = Level { price: i as i64, size: i as u64, orders: u32::MAX };
        }
        ConflatedBook {
            instrument: InstrumentId(7),
            state: BookState::Suspect,
            at: Stamp::new(Epoch(3), SequenceNumber(1 << 40)),
            round: 9,
            event_time: Nanos(123),
            trading: Some(true),
            bids,
            asks,
            last_trade: Some(LastTrade {
                price: -1,
                size: 2,
                event_time: Nanos(3),
                match_id: 4,
                aggressor: Side::ASK,
                condition: 5,
            }),
            price_exponent: -4,
            symbol: *b"BRK.A\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        }
    }

    #[test]
    fn a_cell_is_read_as_written() {
        for depth in [0, 1, 10, 300] {
            for state in STATES {
                for (trading, last_trade) in [(None, None), (Some(false), book(1).last_trade), (Some(true), None)] {
                    let book = ConflatedBook { state, trading, last_trade, ..book(depth) };
                    assert_eq!(ConflatedBook::from_content(InstrumentId(7), &book.to_content()), Some(book));
                }
            }
        }
        let book = book(300);
        assert_eq!((book.symbol(), book.bids.levels().len(), book.bids.depth()), ("BRK.A", 10, 300));
        assert_eq!(book.bbo().bid.map(|level| level.price), Some(-5));
    }

    #[test]
    fn a_state_that_this_version_does_not_know_is_no_book() {
        let mut words = book(1).to_content();
        words[place::ROUND] |= 0xFF << 32;
        assert_eq!(ConflatedBook::from_content(InstrumentId(7), &words), None);
    }

    #[test]
    fn a_book_of_an_earlier_round_is_stale_and_one_that_could_not_be_read_is_as_it_was() {
        assert_eq!(book(1).in_round(9).state, BookState::Suspect);
        assert_eq!(book(1).in_round(10).state, BookState::Stale);
        let unknown = ConflatedBook { state: BookState::Unknown, ..book(1) };
        assert_eq!(unknown.in_round(10).state, BookState::Unknown);
    }

    /// The layout that WIRE.md draws, word by word: a change here is a change of the version of the file.
    #[test]
    fn words_are_where_they_are_drawn() {
        let words = book(10).to_content();
        assert_eq!(words[0], 3 << 48 | 1 << 40);
        assert_eq!(words[1], 0x0541_0703_0000_0009);
        assert_eq!((words[2], words[3]), (123, 10 | 5 << 32));
        assert_eq!(words[4..8], [u64::MAX, 2, 3, 4]);
        assert_eq!(words[8..12], [u64::from_le_bytes(*b"BRK.A\0\0\0"), 0, 0, 0xFC]);
        assert_eq!(words[12..15], [-5i64 as u64, u64::MAX, 1]);
        assert_eq!(words[42..45], [0, 0, u64::from(u32::MAX)]);
        assert_eq!(words[72..], [0; 7]);
    }
}
