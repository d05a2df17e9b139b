//! The order index: (instrument, order id) to a slot number, without allocation or rehashing on the path.
//!
//! A venue hands out order ids nearly in sequence, over all of its instruments, and most changes are of young orders. So
//! the index keeps neighbours together: four consecutive ids belong to one row, which is one cache line, and the rows of
//! neighbouring ids lie side by side. What is hot then lies in a few cache lines and pages, where a hash of the whole key
//! costs a miss of both for every order.
//!
//! Venues that number each instrument's orders by themselves, or make up ids that all belong to one row, must not suffer
//! by that. An order whose own row is full goes where a hash of its whole key says, and on from there by jumps of its own to
//! a row that has room. Each row counts the orders that passed it by, so a search ends where nobody went on, and taking an
//! order out leaves nothing behind: no tombstones, and no entry ever moves.

use super::store::OrderSlot;
use crate::record::InstrumentId;

/// "No slot."
pub(super) const NIL: u32 = u32::MAX;

/// Orders in a row.
const ROW_ORDERS: usize = 7;
/// Consecutive ids that belong to one row.
const ROW_IDS: u64 = 4;
/// Orders for each row that there may be before the index grows: four of seven places.
const FILL: usize = 4;
/// The tag of a free place.
const FREE: u32 = 0;

/// One cache line. A tag is half of the hash of a whole key, made odd; where it agrees the slot itself is asked.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Row {
    /// Of [`ROW_ORDERS`] places; then the number of orders that found this row full and went on.
    tags: [u32; ROW_ORDERS + 1],
    slots: [u32; ROW_ORDERS + 1],
}

const EMPTY_ROW: Row = Row { tags: [FREE; ROW_ORDERS + 1], slots: [NIL; ROW_ORDERS + 1] };
/// Where in `tags` the orders are counted that went on.
const PASSED: usize = ROW_ORDERS;

const _: () = assert!(size_of::<Row>() == 64);

impl Row {
    /// The places with this tag, a bit each.
    #[inline(always)]
    fn places_with(&self, tag: u32) -> u32 {
        let mut places = 0;
        for (at, other) in self.tags.iter().enumerate() {
            places |= u32::from(*other == tag) << at;
        }
        places & ((1 << ROW_ORDERS) - 1)
    }
}

/// See the [module](self).
pub(super) struct OrderIndex {
    rows: Box<[Row]>,
    /// The bits of a row's number.
    bits: u32,
    used: usize,
    pub(super) grown: u64,
}

/// A key, as the index sees it.
#[derive(Clone, Copy)]
pub(super) struct Key {
    instrument: u32,
    order_id: u64,
    tag: u32,
    /// Chooses the second row of its way.
    spread: u32,
}

/// 2^64 divided by the golden ratio, made odd.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// Knuth's multiplier of MMIX.
const JUMP: u64 = 0x5851_F42D_4C95_7F2D;

impl Key {
    #[inline(always)]
    pub(super) fn new(instrument: InstrumentId, order_id: u64) -> Key {
        let product = u128::from(order_id ^ (u64::from(instrument.0) << 40)) * u128::from(GOLDEN);
        let hash = (product as u64) ^ ((product >> 64) as u64);
        Key { instrument: instrument.0, order_id, tag: (hash >> 32) as u32 | 1, spread: hash as u32 }
    }

    #[inline(always)]
    fn is_of(&self, order: &OrderSlot) -> bool {
        order.order_id == self.order_id && order.instrument == self.instrument
    }
}

impl OrderIndex {
    /// 16 bytes for each order, the number of orders rounded up to a power of two.
    pub(super) fn with_capacity(orders: usize) -> OrderIndex {
        let len = orders.div_ceil(FILL).next_power_of_two();
        OrderIndex { rows: vec![EMPTY_ROW; len].into_boxed_slice(), bits: len.ilog2(), used: 0, grown: 0 }
    }

    /// The row that an order id belongs to: rows follow each other as ids do, from where a hash of the upper bits says, so
    /// that an unbroken sequence fills all rows alike, and ids that differ in their upper bits alone meet nowhere.
    #[inline(always)]
    fn home(&self, order_id: u64) -> usize {
        let group = order_id / ROW_IDS;
        let start = (group >> self.bits).wrapping_mul(GOLDEN) >> 32;
        group.wrapping_add(start) as usize & (self.rows.len() - 1)
    }

    /// The row to try after `row`, the `step`th of a key's way. Full rows lie side by side, so the way jumps: it is a
    /// linear congruential sequence of the key's own, whose increment is odd and whose multiplier is 1 modulo 4, so that it
    /// leads past every row (Hull and Dobell, 1962).
    #[inline]
    fn next_row(&self, key: &Key, row: usize, step: usize) -> usize {
        let jump = (row as u64).wrapping_mul(JUMP).wrapping_add(key.tag.into());
        (if step == 0 { key.spread.into() } else { jump }) as usize & (self.rows.len() - 1)
    }

    /// The slot of a key, if it is there.
    #[inline]
    pub(super) fn get(&self, key: &Key, orders: &[OrderSlot]) -> Option<u32> {
        let mut row = self.home(key.order_id);
        for step in 0.. {
            let entries = &self.rows[row];
            let mut places = entries.places_with(key.tag);
            while places != 0 {
                let slot = entries.slots[places.trailing_zeros() as usize & ROW_ORDERS];
                if key.is_of(&orders[slot as usize]) {
                    return Some(slot);
                }
                places &= places - 1;
            }
            if entries.tags[PASSED] == 0 {
                break;
            }
            row = self.next_row(key, row, step);
        }
        None
    }

    /// Reads the row that an order id belongs to; what is returned means nothing.
    #[inline]
    pub(super) fn touch(&self, order_id: u64) -> u32 {
        self.rows[self.home(order_id)].tags[PASSED]
    }

    /// Adds a key that is not there, for the order in `slot`, which learns its place.
    #[inline]
    pub(super) fn insert(&mut self, key: &Key, slot: u32, orders: &mut [OrderSlot]) {
        if self.used >= self.rows.len() * FILL {
            self.grow(orders);
        }
        self.used += 1;
        orders[slot as usize].place = self.put(key, slot);
    }

    /// Puts an entry into the first free place of its way.
    #[inline]
    fn put(&mut self, key: &Key, slot: u32) -> u32 {
        let mut row = self.home(key.order_id);
        let mut step = 0;
        loop {
            let entries = &mut self.rows[row];
            let free = entries.places_with(FREE);
            if free != 0 {
                let at = free.trailing_zeros() as usize & ROW_ORDERS;
                (entries.tags[at], entries.slots[at]) = (key.tag, slot);
                return (row * (ROW_ORDERS + 1) + at) as u32;
            }
            entries.tags[PASSED] += 1;
            row = self.next_row(key, row, step);
            step += 1;
        }
    }

    /// Takes the entry of `order` out.
    #[inline]
    pub(super) fn remove(&mut self, order: &OrderSlot) {
        let (own, at) = (order.place as usize / (ROW_ORDERS + 1), order.place as usize % (ROW_ORDERS + 1));
        self.rows[own].tags[at] = FREE;
        self.used -= 1;
        let home = self.home(order.order_id);
        if own != home {
            self.unpass(order, home, own);
        }
    }

    /// The order at row `to` does not count any more where it passed.
    fn unpass(&mut self, order: &OrderSlot, home: usize, to: usize) {
        let key = Key::new(InstrumentId(order.instrument), order.order_id);
        let mut row = home;
        for step in 0.. {
            if row == to {
                break;
            }
            self.rows[row].tags[PASSED] -= 1;
            row = self.next_row(&key, row, step);
        }
    }

    #[cold]
    fn grow(&mut self, orders: &mut [OrderSlot]) {
        let len = self.rows.len() * 2;
        let old = std::mem::replace(&mut self.rows, vec![EMPTY_ROW; len].into_boxed_slice());
        self.bits += 1;
        self.grown += 1;
        for row in old {
            for at in (0..ROW_ORDERS).filter(|at| row.tags[*at] != FREE) {
                let slot = row.slots[at];
                let order = &orders[slot as usize];
                let key = Key::new(InstrumentId(order.instrument), order.order_id);
                orders[slot as usize].place = self.put(&key, slot);
            }
        }
    }
}

#[cfg(test)]
mod tests;
