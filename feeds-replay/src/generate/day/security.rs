//! A security: its state, its prices, and the orders that rest in it.

use super::super::book::{Order, Side, Which};
use super::super::random::Random;
use super::{CENT, LOWEST_MID};

/// What may happen in a security.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// Not released yet: no orders.
    Closed,
    /// Orders come and go; nothing executes.
    Halted,
    /// Everything.
    Trading,
}

/// The orders that came last to a security: those that go first, and those that are replaced over and over.
#[derive(Clone, Debug, Default)]
pub(super) struct Recent {
    /// The newest is before `next`. A reference of 0 is none.
    orders: [(Which, Order); 8],
    next: usize,
}

impl Recent {
    #[inline]
    pub(super) fn push(&mut self, which: Which, order: Order) {
        self.orders[self.next] = (which, order);
        self.next = (self.next + 1) % self.orders.len();
    }

    /// One of the newest, the newest of all half of the time. It may rest no longer.
    #[inline]
    pub(super) fn draw(&self, random: &mut Random) -> (Which, Order) {
        let back = 1 + random.halving() as usize % self.orders.len();
        self.orders[(self.next + self.orders.len() - back) % self.orders.len()]
    }
}

#[derive(Clone, Debug)]
pub(super) struct Security {
    pub(super) locate: u16,
    pub(super) stock: [u8; 8],
    pub(super) state: State,
    pub(super) mid: u32,
    pub(super) lowest: u32,
    pub(super) highest: u32,
    pub(super) bids: Side,
    pub(super) asks: Side,
    pub(super) recent: Recent,
    /// An order that follows the market. It may rest no longer.
    pub(super) follower: (Which, Order),
}

impl Security {
    pub(super) fn side(&self, which: Which) -> &Side {
        match which {
            Which::Bid => &self.bids,
            Which::Ask => &self.asks,
        }
    }

    pub(super) fn side_mut(&mut self, which: Which) -> &mut Side {
        match which {
            Which::Bid => &mut self.bids,
            Which::Ask => &mut self.asks,
        }
    }

    /// A price near the middle that does not meet the other side.
    #[inline]
    pub(super) fn price(&self, which: Which, random: &mut Random) -> u32 {
        let away = (1 + random.halving() + if random.one_in(4) { random.below(8) as u32 } else { 0 }) * CENT;
        match which {
            Which::Bid => {
                let limit = self.asks.best().map_or(u32::MAX, |ask| ask.price - CENT);
                (self.mid - away).min(limit)
            }
            Which::Ask => {
                let limit = self.bids.best().map_or(0, |bid| bid.price + CENT);
                (self.mid + away).max(limit)
            }
        }
    }

    /// Moves the middle by a cent now and then, within half and twice its first value.
    #[inline]
    pub(super) fn walk(&mut self, random: &mut Random) {
        match random.below(16) {
            0 if self.mid < self.highest => self.mid += CENT,
            1 if self.mid > self.lowest => self.mid -= CENT,
            _ => {}
        }
    }
}

/// The `index`-th security by popularity.
pub(super) fn security(index: usize, orders_per_side: usize, random: &mut Random) -> Security {
    let letter = |place: usize| b'A' + (index / place % 26) as u8;
    let stock = [b'Z', letter(676), letter(26), letter(1), b' ', b' ', b' ', b' '];
    let mid = (10 * 100 + random.below(400 * 100) as u32) * CENT;
    Security {
        locate: index as u16 + 1,
        stock,
        state: State::Trading,
        mid,
        lowest: (mid / 2 / CENT * CENT).max(LOWEST_MID),
        highest: mid * 2,
        bids: Side::new(Which::Bid, orders_per_side),
        asks: Side::new(Which::Ask, orders_per_side),
        recent: Recent::default(),
        follower: Default::default(),
    }
}
