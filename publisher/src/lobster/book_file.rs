//! The order-book file: what LOBSTER says the book is after each message.
//!
//! A row is ask price, ask size, bid price, bid size for each level, best first; where a side has no more levels there are
//! dummy prices, 9999999999 for asks and -9999999999 for bids, of size 0.

use super::normalise::DUMMY_PRICE;
use crate::text::decimal;

/// A side's levels, best first: price in 10^-4 dollars, and shares. No dummies.
pub type Levels = Vec<(i64, u64)>;

/// The best levels after a message.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BookRow {
    /// Bids, best first.
    pub bids: Levels,
    /// Asks, best first.
    pub asks: Levels,
    /// How many levels a row shows at most.
    pub depth: usize,
}

impl BookRow {
    /// Reads a row; `None` if it is none.
    pub fn parse(line: &[u8]) -> Option<BookRow> {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b',').collect();
        if !fields.len().is_multiple_of(4) {
            return None;
        }
        let mut row = BookRow { depth: fields.len() / 4, ..BookRow::default() };
        for level in fields.chunks_exact(4) {
            let asked = (decimal::parse(level[0], 0).ok()?, decimal::parse_size(level[1], 0).ok()?);
            let bid = (decimal::parse(level[2], 0).ok()?, decimal::parse_size(level[3], 0).ok()?);
            if asked.0 != DUMMY_PRICE {
                row.asks.push(asked);
            }
            if bid.0 != -DUMMY_PRICE {
                row.bids.push(bid);
            }
        }
        Some(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dummy_prices_are_no_levels() {
        let row = BookRow::parse(b"5859400,200,5853300,18,9999999999,0,5853000,150,9999999999,0,-9999999999,0");
        let expected =
            BookRow { bids: vec![(5_853_300, 18), (5_853_000, 150)], asks: vec![(5_859_400, 200)], depth: 3 };
        assert_eq!(row, Some(expected));
        assert_eq!(BookRow::parse(b"1,2,3"), None);
        assert_eq!(BookRow::parse(b"1,2,3,-4"), None);
    }
}
