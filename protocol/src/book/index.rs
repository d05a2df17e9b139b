//! The order index: (instrument, order id) to a slot number, without allocation or rehashing on the path.

use crate::record::InstrumentId;

/// "No slot."
pub(super) const NIL: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Entry {
    order_id: u64,
    instrument: u32,
    /// [`NIL`]: the entry is free.
    slot: u32,
}

const FREE: Entry = Entry { order_id: 0, instrument: 0, slot: NIL };

/// Open addressing with linear probing and backward-shift deletion: no tombstones, so a day of adds and deletes leaves
/// the table as fast as it was. At most half full; a table that would be fuller doubles, which is counted.
pub(super) struct OrderIndex {
    entries: Box<[Entry]>,
    mask: usize,
    used: usize,
    pub(super) grown: u64,
}

#[inline]
fn spread(instrument: u32, order_id: u64) -> u64 {
    // Venues hand out ids in runs; one odd multiplication and its high half spread them.
    let product = ((order_id ^ (u64::from(instrument) << 40)) as u128) * 0x9E37_79B9_7F4A_7C15_u128;
    (product as u64) ^ ((product >> 64) as u64)
}

impl OrderIndex {
    pub(super) fn with_capacity(orders: usize) -> OrderIndex {
        let len = (orders.max(8) * 2).next_power_of_two();
        OrderIndex { entries: vec![FREE; len].into_boxed_slice(), mask: len - 1, used: 0, grown: 0 }
    }

    #[inline]
    fn home(&self, instrument: u32, order_id: u64) -> usize {
        spread(instrument, order_id) as usize & self.mask
    }

    #[inline]
    pub(super) fn get(&self, instrument: InstrumentId, order_id: u64) -> Option<u32> {
        let mut at = self.home(instrument.0, order_id);
        loop {
            let entry = &self.entries[at];
            if entry.slot == NIL {
                return None;
            }
            if entry.order_id == order_id && entry.instrument == instrument.0 {
                return Some(entry.slot);
            }
            at = (at + 1) & self.mask;
        }
    }

    /// Adds a key that is not there.
    pub(super) fn insert(&mut self, instrument: InstrumentId, order_id: u64, slot: u32) {
        if (self.used + 1) * 2 > self.entries.len() {
            self.grow();
        }
        self.place(Entry { order_id, instrument: instrument.0, slot });
        self.used += 1;
    }

    #[inline]
    fn place(&mut self, entry: Entry) {
        let mut at = self.home(entry.instrument, entry.order_id);
        while self.entries[at].slot != NIL {
            at = (at + 1) & self.mask;
        }
        self.entries[at] = entry;
    }

    /// Takes a key out; the entries behind it move up so that every probe still ends at the first free place.
    pub(super) fn remove(&mut self, instrument: InstrumentId, order_id: u64) -> Option<u32> {
        let mut at = self.home(instrument.0, order_id);
        loop {
            let entry = &self.entries[at];
            if entry.slot == NIL {
                return None;
            }
            if entry.order_id == order_id && entry.instrument == instrument.0 {
                break;
            }
            at = (at + 1) & self.mask;
        }
        let slot = self.entries[at].slot;
        let mut hole = at;
        let mut probe = at;
        loop {
            probe = (probe + 1) & self.mask;
            let entry = self.entries[probe];
            if entry.slot == NIL {
                break;
            }
            let home = self.home(entry.instrument, entry.order_id);
            // The entry may move into the hole unless its home lies cyclically behind the hole.
            if (probe.wrapping_sub(home) & self.mask) >= (probe.wrapping_sub(hole) & self.mask) {
                self.entries[hole] = entry;
                hole = probe;
            }
        }
        self.entries[hole] = FREE;
        self.used -= 1;
        Some(slot)
    }

    fn grow(&mut self) {
        let len = self.entries.len() * 2;
        let old = std::mem::replace(&mut self.entries, vec![FREE; len].into_boxed_slice());
        self.mask = len - 1;
        self.grown += 1;
        for entry in old.into_iter().filter(|entry| entry.slot != NIL) {
            self.place(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn behaves_like_a_map_over_a_long_random_life() {
        let mut index = OrderIndex::with_capacity(64);
        let mut oracle: HashMap<(u32, u64), u32> = HashMap::new();
        let mut state = 0x1234_5678_9ABC_DEF1u64;
        for step in 0..200_000u32 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let key = ((state >> 8) as u32 % 3, (state >> 32) % 150);
            let instrument = InstrumentId(key.0);
            if state & 1 == 0 {
                if let std::collections::hash_map::Entry::Vacant(vacant) = oracle.entry(key) {
                    vacant.insert(step);
                    index.insert(instrument, key.1, step);
                }
            } else {
                assert_eq!(index.remove(instrument, key.1), oracle.remove(&key), "step {step}");
            }
            assert_eq!(index.get(instrument, key.1), oracle.get(&key).copied(), "step {step}");
            assert_eq!(index.used, oracle.len());
        }
        assert!(index.grown > 0, "the table was sized too small on purpose");
    }
}
