//! The orders and levels of all books of a channel, and the few operations that change one.
//!
//! Digests are kept up to date by each operation: every change of an order takes its old hash out of D and puts the new
//! one in, every change of a level the same with L.

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering};

use super::index::{Key, NIL, OrderIndex};
use super::ladder::{Ladder, LevelPool};
use crate::hash::{level_hash, order_hash};
use crate::record::{InstrumentId, Side};

/// A resting order and its neighbours in the queue: one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct OrderSlot {
    pub(super) order_id: u64,
    pub(super) price: i64,
    pub(super) size: u64,
    pub(super) priority: u64,
    /// What the order contributes to the book's digest.
    digest: u64,
    prev: u32,
    /// Also links the free slots.
    pub(super) next: u32,
    /// 0, which has no book, in a free slot.
    pub(super) instrument: u32,
    /// The level that it rests on.
    level: u32,
    /// Where the order index has it.
    pub(super) place: u32,
    pub(super) side: Side,
    ladder: u8,
}

const _: () = assert!(size_of::<OrderSlot>() == 64);

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
    /// The slot found last: who asks for an order is mostly about to change it. (A Cell would do, but for readers that
    /// share a book among threads.)
    found: AtomicU32,
    /// No order ever had a higher priority.
    highest_priority: u64,
    pub(super) levels: LevelPool,
}

pub(super) const UNUSED: OrderSlot = OrderSlot {
    order_id: 0,
    price: 0,
    size: 0,
    priority: 0,
    digest: 0,
    prev: NIL,
    next: NIL,
    instrument: 0,
    level: NIL,
    place: NIL,
    side: Side::NONE,
    ladder: 0,
};

impl Store {
    /// 64 bytes for each order, those of the [`OrderIndex`], and those of the [`LevelPool`].
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
            found: AtomicU32::new(0),
            highest_priority: 0,
            levels: LevelPool::with_capacity(levels),
        }
    }

    /// How often something outgrew its configured size and had to allocate.
    pub(super) fn grown(&self) -> u64 {
        self.index.grown + self.slots_grown + self.levels.grown
    }

    #[inline]
    pub(super) fn find(&self, instrument: InstrumentId, order_id: u64) -> Option<u32> {
        // Relaxed: a hint, which the slot itself confirms.
        let found = self.found.load(Ordering::Relaxed);
        let slot = &self.slots[found as usize];
        if slot.order_id == order_id && slot.instrument == instrument.0 && instrument != InstrumentId::CHANNEL {
            return Some(found);
        }
        self.look_up(instrument, order_id)
    }

    fn look_up(&self, instrument: InstrumentId, order_id: u64) -> Option<u32> {
        let found = self.index.get(&Key::new(instrument, order_id), &self.slots)?;
        self.found.store(found, Ordering::Relaxed);
        Some(found)
    }

    /// Reads what finding and changing `orders` reads. Each pass reads what needs nothing of the others in it, so that the
    /// processor waits for all of it at once.
    #[inline]
    pub(super) fn warm(&self, orders: &[(InstrumentId, u64)]) {
        let mut read = 0u32;
        for (_, order_id) in orders {
            read ^= self.index.touch(*order_id);
        }
        black_box(read);
        for (instrument, order_id) in orders {
            black_box(self.index.get(&Key::new(*instrument, *order_id), &self.slots));
        }
    }

    #[inline]
    pub(super) fn slot(&self, slot: u32) -> &OrderSlot {
        &self.slots[slot as usize]
    }

    /// Puts a new order into its queue. Its id must not be in the book.
    #[inline]
    pub(super) fn add(&mut self, sides: &mut Sides, instrument: InstrumentId, ladder: usize, order: &Order) {
        let id = if self.free == NIL {
            self.slots_grown += 1;
            self.slots.push(UNUSED);
            self.slots.len() as u32 - 1
        } else {
            let id = self.free;
            self.free = self.slots[id as usize].next;
            id
        };
        let slot = &mut self.slots[id as usize];
        (slot.order_id, slot.instrument) = (order.order_id, instrument.0);
        self.index.insert(&Key::new(instrument, order.order_id), id, &mut self.slots);
        self.enqueue(sides, id, ladder, order);
        sides.resting += 1;
    }

    /// Takes an order out of its book.
    #[inline]
    pub(super) fn remove(&mut self, sides: &mut Sides, id: u32) {
        self.dequeue(sides, id);
        sides.resting -= 1;
        let slot = &mut self.slots[id as usize];
        self.index.remove(slot);
        slot.instrument = InstrumentId::CHANNEL.0;
        slot.next = self.free;
        self.free = id;
    }

    /// Gives an order a smaller or larger size where it stands.
    #[inline]
    pub(super) fn resize(&mut self, sides: &mut Sides, id: u32, size: u64) {
        let slot = &mut self.slots[id as usize];
        let digest = order_hash(slot.order_id, slot.side.0, slot.price, size, slot.priority);
        sides.digest_orders = sides.digest_orders.wrapping_sub(slot.digest).wrapping_add(digest);
        let level = self.levels.level_mut(slot.level);
        level.size = level.size.wrapping_sub(slot.size).wrapping_add(size);
        (slot.size, slot.digest) = (size, digest);
        let digest = level_hash(slot.side.0, slot.price, level.size, u64::from(level.count));
        sides.digest_levels = sides.digest_levels.wrapping_sub(level.digest).wrapping_add(digest);
        level.digest = digest;
    }

    /// Moves an order to another queue, or to another place in its own.
    pub(super) fn requeue(&mut self, sides: &mut Sides, id: u32, ladder: usize, order: &Order) {
        self.dequeue(sides, id);
        self.enqueue(sides, id, ladder, order);
    }

    #[inline]
    fn enqueue(&mut self, sides: &mut Sides, id: u32, ladder: usize, order: &Order) {
        let list = &mut sides.ladders[ladder];
        let key = key_of(ladder, order.price);
        let level_id = match self.levels.find(list, key) {
            Ok(level) => level,
            Err(place) => self.levels.insert(list, place, key),
        };
        let level = self.levels.level_mut(level_id);
        // Queue order is priority order. A new order's priority is the highest there is: then the tail, which is far from
        // the cache, need not be asked.
        let mut behind = level.tail;
        if order.priority < self.highest_priority {
            while behind != NIL && self.slots[behind as usize].priority > order.priority {
                behind = self.slots[behind as usize].prev;
            }
        } else {
            self.highest_priority = order.priority;
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
        level.size = level.size.wrapping_add(order.size);
        let digest = level_hash(order.side.0, order.price, level.size, u64::from(level.count));
        // A level without orders contributes nothing, and says so.
        sides.digest_levels = sides.digest_levels.wrapping_sub(level.digest).wrapping_add(digest);
        level.digest = digest;
        let digest = order_hash(order.order_id, order.side.0, order.price, order.size, order.priority);
        sides.digest_orders = sides.digest_orders.wrapping_add(digest);
        let slot = &mut self.slots[id as usize];
        (slot.price, slot.size, slot.priority, slot.digest) = (order.price, order.size, order.priority, digest);
        (slot.prev, slot.next, slot.level) = (behind, ahead, level_id);
        (slot.side, slot.ladder) = (order.side, ladder as u8);
    }

    #[inline]
    fn dequeue(&mut self, sides: &mut Sides, id: u32) {
        let slot = &self.slots[id as usize];
        let (side, price, size, prev, next, ladder) =
            (slot.side, slot.price, slot.size, slot.prev, slot.next, usize::from(slot.ladder) & 3);
        sides.digest_orders = sides.digest_orders.wrapping_sub(slot.digest);
        let level = self.levels.level_mut(slot.level);
        sides.digest_levels = sides.digest_levels.wrapping_sub(level.digest);
        if level.count == 1 {
            return self.levels.remove(&mut sides.ladders[ladder], key_of(ladder, price));
        }
        level.count -= 1;
        level.size = level.size.wrapping_sub(size);
        level.digest = level_hash(side.0, price, level.size, u64::from(level.count));
        sides.digest_levels = sides.digest_levels.wrapping_add(level.digest);
        match prev {
            NIL => level.head = next,
            prev => self.slots[prev as usize].next = next,
        }
        match next {
            NIL => level.tail = prev,
            next => self.slots[next as usize].prev = prev,
        }
    }

    /// Sets an aggregated level, absolute; size 0 deletes it, and deleting an absent level is legal.
    ///
    /// The book must be fed by levels alone: a level of single orders keeps its own sums.
    pub(super) fn set_level(&mut self, sides: &mut Sides, ladder: usize, price: i64, size: u64, count: u32) {
        let key = key_of(ladder, price);
        let side = SIDES[ladder];
        let list = &mut sides.ladders[ladder];
        let id = match self.levels.find(list, key) {
            Ok(id) => {
                let level = self.levels.level(id);
                assert!(level.head == NIL, "aggregated level at {price} has single orders");
                sides.digest_levels = sides.digest_levels.wrapping_sub(level.digest);
                if size == 0 {
                    return self.levels.remove(list, key);
                }
                id
            }
            Err(_) if size == 0 => return,
            Err(place) => self.levels.insert(list, place, key),
        };
        let level = self.levels.level_mut(id);
        (level.size, level.count) = (size, count);
        level.digest = level_hash(side.0, price, size, u64::from(count));
        sides.digest_levels = sides.digest_levels.wrapping_add(level.digest);
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

/// What an order is told to be.
pub(super) struct Order {
    pub(super) order_id: u64,
    pub(super) side: Side,
    pub(super) price: i64,
    pub(super) size: u64,
    pub(super) priority: u64,
}
