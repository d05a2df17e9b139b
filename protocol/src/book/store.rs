//! The orders and levels of all books of a channel, and the few operations that change one.
//!
//! Digests are kept up to date by each operation: every change of an order takes its old hash out of D and puts the new
//! one in, every change of a level the same with L.

use super::index::{NIL, OrderIndex};
use super::ladder::{Ladder, LevelPool, Place};
use crate::hash::{level_hash, order_hash};
use crate::record::{InstrumentId, Side};

/// A resting order and its neighbours in the queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct OrderSlot {
    pub(super) order_id: u64,
    pub(super) price: i64,
    pub(super) size: u64,
    pub(super) priority: u64,
    prev: u32,
    /// Also links the free slots.
    pub(super) next: u32,
    instrument: u32,
    pub(super) side: Side,
}

/// Outright bids and asks, implied bids and asks: each a ladder of its own.
pub(super) const SIDES: [Side; 4] = [Side::BID, Side::ASK, Side::IMPLIED_BID, Side::IMPLIED_ASK];

/// Which ladder a side has, or none for a side that has no place in a book.
#[inline]
pub(super) const fn ladder_index(side: Side) -> Option<usize> {
    match side {
        Side::BID => Some(0),
        Side::ASK => Some(1),
        Side::IMPLIED_BID => Some(2),
        Side::IMPLIED_ASK => Some(3),
        _ => None,
    }
}

/// The key of a price: smallest at the best price of its side.
#[inline]
pub(super) const fn key_of(ladder: usize, price: i64) -> i64 {
    if ladder & 1 == 0 { !price } else { price }
}

/// The price of a key, the inverse of [`key_of`].
#[inline]
pub(super) const fn price_of(ladder: usize, key: i64) -> i64 {
    key_of(ladder, key)
}

/// One book's own part: where its ladders are, and its digests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sides {
    pub(super) ladders: [Ladder; 4],
    pub(super) digest_orders: u64,
    pub(super) digest_levels: u64,
    pub(super) resting: u64,
}

impl Sides {
    pub(super) const EMPTY: Sides =
        Sides { ladders: [Ladder::EMPTY; 4], digest_orders: 0, digest_levels: 0, resting: 0 };
}

/// Everything that the books of a channel share.
pub(super) struct Store {
    index: OrderIndex,
    slots: Vec<OrderSlot>,
    free: u32,
    slots_grown: u64,
    pub(super) levels: LevelPool,
}

const UNUSED: OrderSlot =
    OrderSlot { order_id: 0, price: 0, size: 0, priority: 0, prev: NIL, next: NIL, instrument: 0, side: Side::NONE };

impl Store {
    pub(super) fn new(orders: usize, levels: usize) -> Store {
        let orders = orders.max(16);
        let mut slots = vec![UNUSED; orders];
        for (i, slot) in slots.iter_mut().enumerate() {
            slot.next = if i + 1 < orders { i as u32 + 1 } else { NIL };
        }
        Store {
            index: OrderIndex::with_capacity(orders),
            slots,
            free: 0,
            slots_grown: 0,
            levels: LevelPool::with_capacity(levels),
        }
    }

    /// How often something outgrew its configured size and had to allocate.
    pub(super) fn grown(&self) -> u64 {
        self.index.grown + self.slots_grown + self.levels.grown
    }

    #[inline]
    pub(super) fn find(&self, instrument: InstrumentId, order_id: u64) -> Option<u32> {
        self.index.get(instrument, order_id)
    }

    #[inline]
    pub(super) fn slot(&self, slot: u32) -> &OrderSlot {
        &self.slots[slot as usize]
    }

    /// Puts a new order into its queue. Its id must not be in the book, its side must have a ladder.
    pub(super) fn add(&mut self, sides: &mut Sides, instrument: InstrumentId, order: &OrderSlot) {
        let id = if self.free == NIL {
            self.slots_grown += 1;
            self.slots.push(UNUSED);
            self.slots.len() as u32 - 1
        } else {
            let id = self.free;
            self.free = self.slots[id as usize].next;
            id
        };
        self.slots[id as usize] = OrderSlot { instrument: instrument.0, ..*order };
        self.index.insert(instrument, order.order_id, id);
        self.enqueue(sides, id);
        sides.resting += 1;
    }

    /// Takes an order out of its book.
    pub(super) fn remove(&mut self, sides: &mut Sides, id: u32) {
        self.dequeue(sides, id);
        sides.resting -= 1;
        let slot = &mut self.slots[id as usize];
        let removed = self.index.remove(InstrumentId(slot.instrument), slot.order_id);
        assert!(removed == Some(id), "order {} at slot {id} was indexed as {removed:?}", slot.order_id);
        slot.next = self.free;
        self.free = id;
    }

    /// Gives an order a smaller or larger size where it stands.
    pub(super) fn resize(&mut self, sides: &mut Sides, id: u32, size: u64) {
        let slot = &mut self.slots[id as usize];
        let old = *slot;
        slot.size = size;
        sides.digest_orders =
            sides.digest_orders.wrapping_sub(hash_of(&old)).wrapping_add(hash_of(&OrderSlot { size, ..old }));
        let (_, place) = self.level_of(sides, &old);
        let level = self.levels.level_mut(place);
        let before = level_hash(old.side.0, old.price, level.size, u64::from(level.count));
        level.size = level.size.wrapping_sub(old.size).wrapping_add(size);
        let after = level_hash(old.side.0, old.price, level.size, u64::from(level.count));
        sides.digest_levels = sides.digest_levels.wrapping_sub(before).wrapping_add(after);
    }

    /// Moves an order to another queue, or to another place in its own.
    pub(super) fn requeue(&mut self, sides: &mut Sides, id: u32, side: Side, price: i64, size: u64, priority: u64) {
        self.dequeue(sides, id);
        let slot = &mut self.slots[id as usize];
        (slot.side, slot.price, slot.size, slot.priority) = (side, price, size, priority);
        self.enqueue(sides, id);
    }

    fn level_of(&self, sides: &Sides, slot: &OrderSlot) -> (usize, Place) {
        let ladder = ladder_index(slot.side).expect("a resting order has a ladder");
        match self.levels.find(&sides.ladders[ladder], key_of(ladder, slot.price)) {
            Ok(place) => (ladder, place),
            Err(_) => panic!("order {} rests at {} where there is no level", slot.order_id, slot.price),
        }
    }

    fn enqueue(&mut self, sides: &mut Sides, id: u32) {
        let slot = self.slots[id as usize];
        let ladder = ladder_index(slot.side).expect("the caller chose a side that has a ladder");
        let key = key_of(ladder, slot.price);
        let place = match self.levels.find(&sides.ladders[ladder], key) {
            Ok(place) => place,
            Err(place) => self.levels.insert(&mut sides.ladders[ladder], place, key),
        };
        let level = self.levels.level_mut(place);
        if level.count > 0 {
            let before = level_hash(slot.side.0, slot.price, level.size, u64::from(level.count));
            sides.digest_levels = sides.digest_levels.wrapping_sub(before);
        }
        // Queue order is priority order; a new order's priority is the highest there is, so this ends at the tail.
        let mut behind = level.tail;
        while behind != NIL && self.slots[behind as usize].priority > slot.priority {
            behind = self.slots[behind as usize].prev;
        }
        let ahead = if behind == NIL {
            std::mem::replace(&mut level.head, id)
        } else {
            std::mem::replace(&mut self.slots[behind as usize].next, id)
        };
        if ahead == NIL {
            level.tail = id;
        } else {
            self.slots[ahead as usize].prev = id;
        }
        level.count += 1;
        level.size = level.size.wrapping_add(slot.size);
        let after = level_hash(slot.side.0, slot.price, level.size, u64::from(level.count));
        sides.digest_levels = sides.digest_levels.wrapping_add(after);
        (self.slots[id as usize].prev, self.slots[id as usize].next) = (behind, ahead);
        sides.digest_orders = sides.digest_orders.wrapping_add(hash_of(&slot));
    }

    fn dequeue(&mut self, sides: &mut Sides, id: u32) {
        let slot = self.slots[id as usize];
        sides.digest_orders = sides.digest_orders.wrapping_sub(hash_of(&slot));
        let (ladder, place) = self.level_of(sides, &slot);
        let level = self.levels.level_mut(place);
        let before = level_hash(slot.side.0, slot.price, level.size, u64::from(level.count));
        sides.digest_levels = sides.digest_levels.wrapping_sub(before);
        if slot.prev == NIL {
            level.head = slot.next;
        } else {
            self.slots[slot.prev as usize].next = slot.next;
        }
        if slot.next == NIL {
            level.tail = slot.prev;
        } else {
            self.slots[slot.next as usize].prev = slot.prev;
        }
        level.count -= 1;
        level.size = level.size.wrapping_sub(slot.size);
        if level.count == 0 {
            self.levels.remove(&mut sides.ladders[ladder], place);
        } else {
            let after = level_hash(slot.side.0, slot.price, level.size, u64::from(level.count));
            sides.digest_levels = sides.digest_levels.wrapping_add(after);
        }
    }

    /// Sets an aggregated level, absolute; size 0 deletes it, and deleting an absent level is legal.
    ///
    /// The book must be fed by levels alone: a level of single orders keeps its own sums.
    pub(super) fn set_level(&mut self, sides: &mut Sides, ladder: usize, price: i64, size: u64, count: u32) {
        let key = key_of(ladder, price);
        let side = SIDES[ladder];
        let place = match self.levels.find(&sides.ladders[ladder], key) {
            Ok(place) => {
                let level = self.levels.level(place);
                assert!(level.head == NIL, "aggregated level at {price} has single orders");
                let before = level_hash(side.0, price, level.size, u64::from(level.count));
                sides.digest_levels = sides.digest_levels.wrapping_sub(before);
                if size == 0 {
                    self.levels.remove(&mut sides.ladders[ladder], place);
                    return;
                }
                place
            }
            Err(_) if size == 0 => return,
            Err(place) => self.levels.insert(&mut sides.ladders[ladder], place, key),
        };
        let level = self.levels.level_mut(place);
        (level.size, level.count) = (size, count);
        sides.digest_levels = sides.digest_levels.wrapping_add(level_hash(side.0, price, size, u64::from(count)));
    }

    /// Empties one ladder, orders and all.
    pub(super) fn clear_ladder(&mut self, sides: &mut Sides, ladder: usize) {
        while let Some((key, level)) = self.levels.best(&sides.ladders[ladder]) {
            if level.head != NIL {
                let id = level.head;
                self.remove(sides, id);
            } else {
                let price = price_of(ladder, key);
                self.set_level(sides, ladder, price, 0, 0);
            }
        }
    }

    /// Empties a book.
    pub(super) fn clear(&mut self, sides: &mut Sides) {
        for ladder in 0..SIDES.len() {
            self.clear_ladder(sides, ladder);
        }
        assert!(
            sides.digest_orders == 0 && sides.digest_levels == 0 && sides.resting == 0,
            "an empty book has digests {:x} and {:x} and {} orders",
            sides.digest_orders,
            sides.digest_levels,
            sides.resting
        );
    }
}

#[inline]
fn hash_of(slot: &OrderSlot) -> u64 {
    order_hash(slot.order_id, slot.side.0, slot.price, slot.size, slot.priority)
}

impl OrderSlot {
    pub(super) fn new(order_id: u64, side: Side, price: i64, size: u64, priority: u64) -> OrderSlot {
        OrderSlot { order_id, side, price, size, priority, ..UNUSED }
    }
}
