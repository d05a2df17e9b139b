use std::collections::HashMap;

use super::*;
use crate::book::store::UNUSED;

struct Tried {
    index: OrderIndex,
    orders: Vec<OrderSlot>,
    free: Vec<u32>,
    oracle: HashMap<(u32, u64), u32>,
}

impl Tried {
    fn new(room: usize, most: usize) -> Tried {
        let index = OrderIndex::with_capacity(room);
        Tried { index, orders: vec![UNUSED; most], free: (0..most as u32).collect(), oracle: HashMap::new() }
    }

    fn insert(&mut self, instrument: u32, order_id: u64) {
        let slot = self.free.pop().expect("as many slots as the test takes");
        let order = &mut self.orders[slot as usize];
        (order.instrument, order.order_id) = (instrument, order_id);
        self.index.insert(&Key::new(InstrumentId(instrument), order_id), slot, &mut self.orders);
        assert!(self.oracle.insert((instrument, order_id), slot).is_none());
    }

    fn remove(&mut self, instrument: u32, order_id: u64) {
        let slot = self.oracle.remove(&(instrument, order_id)).expect("it is there");
        let order = self.orders[slot as usize];
        self.index.remove(&order);
        self.orders[slot as usize].instrument = 0;
        self.free.push(slot);
    }

    fn get(&self, instrument: u32, order_id: u64) -> Option<u32> {
        self.index.get(&Key::new(InstrumentId(instrument), order_id), &self.orders)
    }

    fn has(&self, instrument: u32, order_id: u64) -> bool {
        self.oracle.contains_key(&(instrument, order_id))
    }

    fn check(&self) {
        assert_eq!(self.index.used, self.oracle.len());
        for ((instrument, order_id), slot) in &self.oracle {
            assert_eq!(self.get(*instrument, *order_id), Some(*slot), "instrument {instrument}, order {order_id}");
        }
    }

    /// The most rows that a search for any of its orders, or for a stranger like it, looks at.
    fn longest_way(&self) -> usize {
        let way = |instrument: u32, order_id: u64| {
            let key = Key::new(InstrumentId(instrument), order_id);
            let mut row = self.index.home(order_id);
            let mut step = 0;
            while self.index.rows[row].tags[PASSED] > 0 {
                row = self.index.next_row(&key, row, step);
                step += 1;
            }
            step + 1
        };
        self.oracle.keys().flat_map(|(i, o)| [way(*i, *o), way(i + 1_000_000, *o)]).max().unwrap_or(0)
    }

    fn empty(&mut self) {
        for (instrument, order_id) in self.oracle.keys().copied().collect::<Vec<_>>() {
            self.remove(instrument, order_id);
        }
        assert!(self.index.rows.iter().all(|row| row.tags == [FREE; ROW_ORDERS + 1]), "nothing is left behind");
    }
}

fn xorshift(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn behaves_like_a_map_over_a_long_random_life() {
    let mut tried = Tried::new(64, 3 * 150);
    let mut state = 0x1234_5678_9ABC_DEF1u64;
    for step in 0..200_000u32 {
        let random = xorshift(&mut state);
        let (instrument, order_id) = ((random >> 8) as u32 % 3 + 1, (random >> 32) % 150);
        let is_there = tried.has(instrument, order_id);
        if random & 1 == 0 && !is_there {
            tried.insert(instrument, order_id);
        } else if random & 1 == 1 && is_there {
            tried.remove(instrument, order_id);
        }
        assert_eq!(tried.get(instrument, order_id), tried.oracle.get(&(instrument, order_id)).copied(), "step {step}");
        if step % 1_000 == 0 {
            tried.check();
        }
    }
    assert!(tried.index.grown > 0, "the table was sized too small on purpose");
    tried.empty();
}

/// The instrument and id of the nth order, given a random number.
type Shape = fn(u64, u64) -> (u32, u64);

/// Every shape of ids that a venue is known to have, and some that only malice has, at the full load that the index was
/// made for: nothing is lost, and no search looks at more than a few rows.
#[test]
fn no_shape_of_ids_makes_long_ways() {
    const ORDERS: u64 = 1 << 14;
    let mut state = 99u64;
    let shapes: [(&str, Shape); 9] = [
        ("one sequence over all instruments", |n, _| (1 + (n % 500) as u32, 1_000_000 + n)),
        ("a sequence for each of many instruments", |n, _| (1 + (n % 512) as u32, n / 512)),
        ("a sequence for each of two instruments", |n, _| (1 + (n % 2) as u32, n / 2)),
        ("one id in every instrument", |n, _| (1 + n as u32, 7)),
        ("random ids", |_, random| (1, random)),
        ("only every 256th id", |n, _| (1, n << 8)),
        ("the counter in the upper half", |n, _| (1, n << 32)),
        ("the counter in the top bits", |n, _| (1, n << 50)),
        ("sixteen partitions", |n, _| (1, ((n % 16) << 56) | (n / 16))),
    ];
    for (name, shape) in &shapes {
        let mut tried = Tried::new(ORDERS as usize, ORDERS as usize);
        for n in 0..ORDERS {
            let (instrument, order_id) = shape(n, xorshift(&mut state));
            tried.insert(instrument, order_id);
        }
        assert_eq!(tried.index.grown, 0, "{name}");
        tried.check();
        let longest = tried.longest_way();
        assert!(longest <= 24, "{name}: a search looks at {longest} rows");
        tried.empty();
    }
}

/// Ids chosen to share one row, whose owner is the whole index: each costs a look at that row and at its own second one.
#[test]
fn ids_made_to_share_a_row_spread_over_the_others() {
    let mut tried = Tried::new(1 << 12, 1 << 12);
    let home = tried.index.home(0);
    let same: Vec<u64> = (0u64..).map(|n| n << 2).filter(|id| tried.index.home(*id) == home).take(1 << 12).collect();
    for order_id in same {
        tried.insert(1, order_id);
    }
    assert_eq!(tried.index.grown, 0);
    tried.check();
    let longest = tried.longest_way();
    assert!(longest <= 24, "a search looks at {longest} rows");
    tried.empty();
}

#[test]
fn the_orders_of_neighbouring_ids_lie_side_by_side() {
    let index = OrderIndex::with_capacity(1 << 16);
    for start in [0u64, 1 << 20, 77 << 8] {
        let rows: Vec<usize> = (start..start + 64).map(|id| index.home(id) - index.home(start)).collect();
        assert_eq!(rows, (0..64).map(|n| n / 4).collect::<Vec<_>>(), "from id {start}");
    }
}
