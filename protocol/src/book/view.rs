//! Reading a book: best bid and offer, depth, queues.

use super::RestingOrder;
use super::index::NIL;
use super::ladder::LadderIter;
use super::state::BookState;
use super::store::{Sides, Store, ladder_index, price_of};
use crate::record::{InstrumentId, Side, UNDEFINED_PRICE};

/// A price level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Level {
    /// In the instrument's price units.
    pub price: i64,
    /// Sum of what rests here.
    pub size: u64,
    /// How many orders rest here (0 where the venue does not say).
    pub orders: u32,
}

/// Best bid and offer of the outright ladders.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bbo {
    /// The highest bid, if any.
    pub bid: Option<Level>,
    /// The lowest ask, if any.
    pub ask: Option<Level>,
}

impl Bbo {
    /// Bid above ask.
    pub fn is_crossed(&self) -> bool {
        matches!((self.bid, self.ask), (Some(bid), Some(ask)) if bid.price > ask.price)
    }

    /// Bid equal to ask.
    pub fn is_locked(&self) -> bool {
        matches!((self.bid, self.ask), (Some(bid), Some(ask)) if bid.price == ask.price)
    }

    /// The bid price, or [`UNDEFINED_PRICE`].
    pub fn bid_price(&self) -> i64 {
        self.bid.map_or(UNDEFINED_PRICE, |level| level.price)
    }

    /// The ask price, or [`UNDEFINED_PRICE`].
    pub fn ask_price(&self) -> i64 {
        self.ask.map_or(UNDEFINED_PRICE, |level| level.price)
    }
}

/// One book, borrowed for reading.
#[derive(Clone, Copy)]
pub struct BookView<'a> {
    pub(super) store: &'a Store,
    pub(super) sides: &'a Sides,
    pub(super) instrument: InstrumentId,
    pub(super) state: BookState,
}

impl<'a> BookView<'a> {
    /// Whose book this is.
    pub fn instrument(&self) -> InstrumentId {
        self.instrument
    }

    /// What the book says of itself.
    pub fn state(&self) -> BookState {
        self.state
    }

    /// Best bid and offer.
    #[inline]
    pub fn bbo(&self) -> Bbo {
        bbo_of(self.store, self.sides, 0)
    }

    /// The levels of a side, best first. Empty for a side that has no ladder.
    pub fn levels(&self, side: Side) -> Levels<'a> {
        let ladder = ladder_index(side);
        let empty = super::ladder::Ladder::EMPTY;
        let list = ladder.map_or(&empty, |at| &self.sides.ladders[at]);
        Levels { inner: self.store.levels.iter(list), ladder: ladder.unwrap_or(0) }
    }

    /// The levels of the outright bid side, best (highest) first.
    pub fn bids(&self) -> Levels<'a> {
        self.levels(Side::BID)
    }

    /// The levels of the outright ask side, best (lowest) first.
    pub fn asks(&self) -> Levels<'a> {
        self.levels(Side::ASK)
    }

    /// How many levels a side has.
    pub fn depth(&self, side: Side) -> usize {
        ladder_index(side).map_or(0, |at| self.sides.ladders[at].len())
    }

    /// The orders of one level, first in the queue first. Empty where there is no such level, or only an aggregated one.
    pub fn queue(&self, side: Side, price: i64) -> Queue<'a> {
        let head = ladder_index(side)
            .and_then(|at| self.store.levels.find(&self.sides.ladders[at], super::store::key_of(at, price)).ok())
            .map_or(NIL, |level| self.store.levels.level(level).head);
        Queue { store: self.store, next: head }
    }

    /// A resting order by its id.
    pub fn order(&self, order_id: u64) -> Option<RestingOrder> {
        let slot = self.store.slot(self.store.find(self.instrument, order_id)?);
        Some(RestingOrder { side: slot.side, price: slot.price, size: slot.size, priority: slot.priority })
    }

    /// How many orders rest in this book.
    pub fn resting_orders(&self) -> u64 {
        self.sides.resting
    }

    /// Digests D (orders) and L (levels).
    pub fn digests(&self) -> (u64, u64) {
        (self.sides.digest_orders, self.sides.digest_levels)
    }
}

/// Best bid and offer of a pair of ladders: 0 outright, 2 implied.
#[inline]
pub(super) fn bbo_of(store: &Store, sides: &Sides, pair: usize) -> Bbo {
    let best = |at: usize| {
        store.levels.best(&sides.ladders[at]).map(|(key, level)| Level {
            price: price_of(at, key),
            size: level.size,
            orders: level.count,
        })
    };
    Bbo { bid: best(pair), ask: best(pair + 1) }
}

/// Whether bid is above ask in a pair of ladders.
#[inline]
pub(super) fn is_crossed(sides: &Sides, pair: usize) -> bool {
    match (sides.ladders[pair].best_key(), sides.ladders[pair + 1].best_key()) {
        (Some(bid), Some(ask)) => price_of(pair, bid) > price_of(pair + 1, ask),
        _ => false,
    }
}

/// Levels of one side, best first.
pub struct Levels<'a> {
    inner: LadderIter<'a>,
    ladder: usize,
}

impl Iterator for Levels<'_> {
    type Item = Level;

    fn next(&mut self) -> Option<Level> {
        let (key, level) = self.inner.next()?;
        Some(Level { price: price_of(self.ladder, key), size: level.size, orders: level.count })
    }
}

/// Orders of one level, first in the queue first, with their ids.
pub struct Queue<'a> {
    store: &'a Store,
    next: u32,
}

impl Iterator for Queue<'_> {
    type Item = (u64, RestingOrder);

    fn next(&mut self) -> Option<Self::Item> {
        if self.next == NIL {
            return None;
        }
        let slot = self.store.slot(self.next);
        self.next = slot.next;
        let order = RestingOrder { side: slot.side, price: slot.price, size: slot.size, priority: slot.priority };
        Some((slot.order_id, order))
    }
}
