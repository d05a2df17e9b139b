//! Ordinary business: orders come, change, execute and go.

use super::super::book::{Order, Which};
use super::super::encode::{self, Head, NewOrder};
use super::security::State;
use super::{CENT, Generator, PARTICIPANTS, THIN};

/// Orders that one coming order takes beyond the first.
const MOST_SWEPT: u32 = 6;

impl Generator {
    /// Ordinary business in one security: an order comes, changes, executes or goes.
    #[inline]
    pub(super) fn act(&mut self) {
        // Bursts stay with a security more often than not.
        let mut index = self.last_security;
        if !self.clock.is_bursting() || self.random.one_in(3) {
            index = self.popularity.draw(&mut self.random);
        }
        if self.securities[index].state == State::Closed {
            index = 0;
        }
        self.last_security = index;
        let security = &mut self.securities[index];
        security.walk(&mut self.random);
        let trading = security.state == State::Trading;
        let choice = self.random.bits();
        let mut which = if choice & 1 == 0 { Which::Bid } else { Which::Ask };
        match (choice >> 1) % 1000 {
            0..420 => self.add(index, which),
            420..760 => self.delete(index, which),
            760..880 => self.replace(index, which),
            880..905 => self.cancel(index, which),
            905..950 if trading => {
                // The middle has moved through one side: that is the side to be hit.
                if security.asks.best().is_some_and(|ask| ask.price <= security.mid) {
                    which = Which::Ask;
                } else if security.bids.best().is_some_and(|bid| bid.price >= security.mid) {
                    which = Which::Bid;
                }
                self.sweep(index, which);
            }
            950..955 if trading => self.execute_with_price(index, which),
            955..970 if trading => self.hidden_trade(index),
            970..972 => self.retail_interest(index),
            _ => self.add(index, which),
        }
    }

    pub(super) fn new_order(&mut self, index: usize, which: Which) -> Order {
        self.reference += 1 + self.random.below(3);
        let security = &self.securities[index];
        let shares = match self.random.below(8) {
            0 => 1 + self.random.below(99) as u32,
            1 => 1000 + 100 * self.random.below(50) as u32,
            _ => 100 * (1 + self.random.halving().min(9)),
        };
        Order { reference: self.reference, price: security.price(which, &mut self.random), shares }
    }

    #[inline]
    pub(super) fn add(&mut self, index: usize, which: Which) {
        if self.securities[index].side(which).is_full() {
            let count = self.securities[index].side(which).len();
            let victim = self.random.below(count as u64) as usize;
            return self.delete_at(index, which, victim);
        }
        if self.random.one_in(16) {
            return self.add_attributed(index, which);
        }
        self.add_with(index, which, None);
    }

    pub(super) fn add_attributed(&mut self, index: usize, which: Which) {
        let participant = PARTICIPANTS[self.random.below(PARTICIPANTS.len() as u64) as usize];
        if !self.securities[index].side(which).is_full() {
            self.add_with(index, which, Some(participant));
        }
    }

    #[inline]
    pub(super) fn add_with(&mut self, index: usize, which: Which, attribution: Option<&[u8; 4]>) {
        let order = self.new_order(index, which);
        let head = self.head(index);
        self.resting += 1;
        let security = &mut self.securities[index];
        security.side_mut(which).insert(order);
        security.recent.push(which, order);
        let message = NewOrder {
            reference: order.reference,
            buy_sell: which.byte(),
            shares: order.shares,
            stock: security.stock,
            price: order.price,
        };
        encode::add_order(&mut self.buffer, head, &message, attribution);
        self.appended += 1;
    }

    /// A random order of a side that is not thin; of a thin side `None`, and the side has grown.
    #[inline]
    pub(super) fn pick(&mut self, index: usize, which: Which) -> Option<usize> {
        let count = self.securities[index].side(which).len();
        if count < THIN {
            self.add(index, which);
            return None;
        }
        Some(self.random.below(count as u64) as usize)
    }

    /// An order goes: more often than not one that has only just come.
    #[inline]
    pub(super) fn delete(&mut self, index: usize, which: Which) {
        if !self.random.one_in(3)
            && let Some((which, victim)) = self.recent(index)
        {
            return self.delete_at(index, which, victim);
        }
        if let Some(victim) = self.pick(index, which) {
            self.delete_at(index, which, victim);
        }
    }

    /// One of the newest orders, if it still rests and its side is not thin.
    #[inline]
    fn recent(&mut self, index: usize) -> Option<(Which, usize)> {
        let security = &self.securities[index];
        let (which, order) = security.recent.draw(&mut self.random);
        let side = security.side(which);
        if side.len() < THIN {
            return None;
        }
        side.find(order.reference, order.price).map(|place| (which, place))
    }

    #[inline]
    pub(super) fn delete_at(&mut self, index: usize, which: Which, victim: usize) {
        let head = self.head(index);
        let order = self.securities[index].side_mut(which).remove(victim);
        self.resting -= 1;
        encode::order_delete(&mut self.buffer, head, order.reference);
        self.appended += 1;
    }

    /// An order is replaced: half of the time the security's follower, an order that follows the market by one replace after
    /// the other; else mostly one of the newest, which may itself have replaced another.
    #[inline]
    pub(super) fn replace(&mut self, index: usize, which: Which) {
        let follower = self.follower(index);
        let (choice, side_len) = (self.random.below(8), self.securities[index].side(which).len());
        let found = match choice {
            0..4 => follower,
            4..6 => self.recent(index),
            _ => None,
        };
        let (which, victim) = match found {
            Some(found) => found,
            None if side_len == 0 => return self.add(index, which),
            None => (which, self.random.below(side_len as u64) as usize),
        };
        let head = self.head(index);
        let old = self.securities[index].side_mut(which).remove(victim);
        let new = self.new_order(index, which);
        let security = &mut self.securities[index];
        security.side_mut(which).insert(new);
        if follower.is_none() || follower == Some((which, victim)) {
            security.follower = (which, new);
        } else {
            security.recent.push(which, new);
        }
        encode::order_replace(&mut self.buffer, head, old.reference, new.reference, new.shares, new.price);
        self.appended += 1;
    }

    /// The security's follower, if it still rests.
    #[inline]
    fn follower(&self, index: usize) -> Option<(Which, usize)> {
        let security = &self.securities[index];
        let (which, order) = security.follower;
        security.side(which).find(order.reference, order.price).map(|place| (which, place))
    }

    pub(super) fn cancel(&mut self, index: usize, which: Which) {
        let count = self.securities[index].side(which).len();
        if count == 0 {
            return self.add(index, which);
        }
        let place = self.random.below(count as u64) as usize;
        let order = self.securities[index].side(which).get(place);
        if order.shares == 1 {
            return self.delete_at(index, which, place);
        }
        let shares = 1 + self.random.below(u64::from(order.shares) - 1) as u32;
        let head = self.head(index);
        self.securities[index].side_mut(which).take(place, shares);
        encode::order_cancel(&mut self.buffer, head, order.reference, shares);
        self.appended += 1;
    }

    /// An order comes that takes the best order of a side; half of the time the next too, and so on: executions within a
    /// microsecond.
    #[inline]
    fn sweep(&mut self, index: usize, which: Which) {
        let more = self.random.halving().min(MOST_SWEPT);
        self.execute(index, which);
        self.clock.begin_at_once(u64::from(more));
        for _ in 0..more {
            if self.securities[index].side(which).len() < THIN {
                break;
            }
            self.execute(index, which);
        }
        self.clock.end_at_once();
    }

    #[inline]
    pub(super) fn execute(&mut self, index: usize, which: Which) {
        let Some(best) = self.securities[index].side(which).best() else { return self.add(index, which) };
        let shares = self.part_of(best.shares);
        let head = self.head(index);
        self.take_best(index, which, shares);
        self.match_number += 1;
        self.last_trade = Some((head.locate, self.match_number));
        encode::order_executed(&mut self.buffer, head, best.reference, shares, self.match_number);
        self.appended += 1;
    }

    /// An execution half a cent better for the resting order than its own price.
    pub(super) fn execute_with_price(&mut self, index: usize, which: Which) {
        let Some(best) = self.securities[index].side(which).best() else { return self.add(index, which) };
        let price = match which {
            Which::Bid => best.price - CENT / 2,
            Which::Ask => best.price + CENT / 2,
        };
        let shares = self.part_of(best.shares);
        self.execute_at(index, which, best, shares, price, b'Y');
    }

    pub(super) fn execute_at(
        &mut self,
        index: usize,
        which: Which,
        best: Order,
        shares: u32,
        price: u32,
        printable: u8,
    ) {
        let head = self.head(index);
        self.take_best(index, which, shares);
        self.match_number += 1;
        let match_number = self.match_number;
        encode::order_executed_with_price(
            &mut self.buffer,
            head,
            best.reference,
            shares,
            match_number,
            printable,
            price,
        );
        self.appended += 1;
    }

    pub(super) fn take_best(&mut self, index: usize, which: Which, shares: u32) {
        let side = self.securities[index].side_mut(which);
        let count = side.len();
        side.take(count - 1, shares);
        self.resting -= (count - side.len()) as u64;
    }

    /// All of it half of the time, else at least one.
    #[inline]
    pub(super) fn part_of(&mut self, shares: u32) -> u32 {
        if self.random.one_in(2) { shares } else { 1 + self.random.below(u64::from(shares)) as u32 }
    }

    /// A trade between the best prices, against an order that was never displayed.
    pub(super) fn hidden_trade(&mut self, index: usize) {
        let security = &self.securities[index];
        let bid = security.bids.best().map_or(security.mid, |bid| bid.price);
        let ask = security.asks.best().map_or(security.mid, |ask| ask.price);
        let message = NewOrder {
            reference: 0,
            buy_sell: b'B',
            shares: 1 + self.random.below(500) as u32,
            stock: security.stock,
            price: bid / 2 + ask / 2,
        };
        let head = self.head(index);
        self.match_number += 1;
        self.last_trade = Some((head.locate, self.match_number));
        encode::trade(&mut self.buffer, head, &message, self.match_number);
        self.appended += 1;
    }

    pub(super) fn break_last_trade(&mut self) {
        let Some((locate, match_number)) = self.last_trade.take() else { return };
        let head = Head { locate, ..self.head_of_market() };
        encode::broken_trade(&mut self.buffer, head, match_number);
        self.appended += 1;
    }

    pub(super) fn retail_interest(&mut self, index: usize) {
        let interest = b"BSAN"[self.random.below(4) as usize];
        let head = self.head(index);
        encode::retail_interest(&mut self.buffer, head, &self.securities[index].stock, interest);
        self.appended += 1;
    }
}
