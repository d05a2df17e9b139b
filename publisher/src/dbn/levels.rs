//! What changed between two pictures of a bounded book.
//!
//! A level record holds the best levels as they are after it; ours say what changed. A price that is no longer among them
//! is a level of size 0: it was deleted, or pushed out at the bottom, and a bounded book does not hold it either way.

use dbn::BidAskPair;
use protocol::record::{Side, UNDEFINED_PRICE};

/// The deepest picture there is.
pub(super) const DEPTH: usize = 10;

/// A level: its price, its size, and the orders in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Level {
    pub(super) price: i64,
    pub(super) size: u32,
    pub(super) count: u32,
}

impl Level {
    const NONE: Level = Level { price: UNDEFINED_PRICE, size: 0, count: 0 };

    fn is_there(self) -> bool {
        self.price != UNDEFINED_PRICE && self.size != 0
    }
}

/// The picture as it was last: bids, then asks.
#[derive(Clone, Debug)]
pub(super) struct Picture {
    sides: [[Level; DEPTH]; 2],
}

impl Picture {
    pub(super) const EMPTY: Picture = Picture { sides: [[Level::NONE; DEPTH]; 2] };

    /// Takes in a picture of several levels a side, and says what changed.
    pub(super) fn take(&mut self, levels: &[BidAskPair], out: &mut impl FnMut(Side, Level)) {
        for (at, (side, old)) in [Side::BID, Side::ASK].into_iter().zip(&mut self.sides).enumerate() {
            let mut new = [Level::NONE; DEPTH];
            for (place, pair) in new.iter_mut().zip(levels) {
                *place = level(pair, at);
            }
            let among = |levels: &[Level], price| levels.iter().any(|level| level.is_there() && level.price == price);
            for gone in old.iter().filter(|level| level.is_there() && !among(&new, level.price)) {
                out(side, Level { size: 0, count: 0, ..*gone });
            }
            for level in new.iter().filter(|level| level.is_there() && !old.contains(level)) {
                out(side, *level);
            }
            *old = new;
        }
    }

    /// Takes in a picture of the best level alone, and says which sides changed: each is then the whole side, and without a
    /// price where it is empty.
    pub(super) fn take_top(&mut self, top: &BidAskPair, always: bool, out: &mut impl FnMut(Side, Level)) {
        for (at, (side, old)) in [Side::BID, Side::ASK].into_iter().zip(&mut self.sides).enumerate() {
            let new = Some(level(top, at)).filter(|level| level.is_there()).unwrap_or(Level::NONE);
            if new != old[0] || always {
                out(side, new);
                old[0] = new;
            }
        }
    }
}

fn level(pair: &BidAskPair, side: usize) -> Level {
    match side {
        0 => Level { price: pair.bid_px, size: pair.bid_sz, count: pair.bid_ct },
        _ => Level { price: pair.ask_px, size: pair.ask_sz, count: pair.ask_ct },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bids(levels: &[(i64, u32)]) -> Vec<BidAskPair> {
        let none = BidAskPair { bid_px: UNDEFINED_PRICE, ask_px: UNDEFINED_PRICE, ..BidAskPair::default() };
        levels
            .iter()
            .map(|(price, size)| BidAskPair { bid_px: *price, bid_sz: *size, bid_ct: 1, ..none.clone() })
            .collect()
    }

    fn changes(picture: &mut Picture, levels: &[(i64, u32)]) -> Vec<(i64, u32)> {
        let mut changes = Vec::new();
        picture.take(&bids(levels), &mut |side, level| {
            assert_eq!(side, Side::BID);
            changes.push((level.price, level.size));
        });
        changes
    }

    #[test]
    fn a_level_that_drops_off_goes_and_one_that_stays_is_not_told_again() {
        let mut picture = Picture::EMPTY;
        assert_eq!(changes(&mut picture, &[(50, 5), (40, 4)]), [(50, 5), (40, 4)]);
        assert_eq!(changes(&mut picture, &[(50, 5), (40, 4)]), []);
        // A better price comes: the bottom is pushed out.
        assert_eq!(changes(&mut picture, &[(60, 6), (50, 5)]), [(40, 0), (60, 6)]);
        // The best goes, and what was pushed out shows again.
        assert_eq!(changes(&mut picture, &[(50, 7), (40, 4)]), [(60, 0), (50, 7), (40, 4)]);
        assert_eq!(changes(&mut picture, &[]), [(50, 0), (40, 0)]);
    }

    #[test]
    fn an_empty_top_has_no_price() {
        let mut picture = Picture::EMPTY;
        let mut told = Vec::new();
        picture.take_top(&bids(&[(50, 5)])[0], false, &mut |side, level| told.push((side, level.price, level.size)));
        picture.take_top(&bids(&[(50, 0)])[0], false, &mut |side, level| told.push((side, level.price, level.size)));
        assert_eq!(told, [(Side::BID, 50, 5), (Side::BID, UNDEFINED_PRICE, 0)]);
    }
}
