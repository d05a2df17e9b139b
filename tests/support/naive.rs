//! A second, naive book, written from the description of the records alone: sorted vectors, everything recomputed.
//!
//! It shares no code with `protocol::book` or `protocol::hash`. It is slow, and plain enough to be believed by reading: a
//! side is one vector of orders in order of price and priority, or one vector of levels; levels, best prices and digests
//! are worked out anew whenever somebody asks. It knows the stream as its publisher wrote it, whole and from the
//! beginning: losses are not its matter.

use std::collections::BTreeMap;

use protocol::record::{Flags, Kind, Record, Side};

/// What a naive book says of itself. It never misses anything, so it is never Stale.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NaiveState {
    /// Never complete.
    Unknown,
    /// Complete.
    Live,
    /// Complete, but the venue was inconsistent or lost something.
    Suspect,
}

/// A resting order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NaiveOrder {
    /// Its id.
    pub id: u64,
    /// Its price.
    pub price: i64,
    /// What is left of it.
    pub size: u64,
    /// Sequence of the line that last put it at the back of its queue.
    pub priority: u64,
}

/// A price level: price, size, count.
pub type NaiveLevel = (i64, u64, u64);

/// The four ladders: bids, asks, implied bids, implied asks.
const LADDERS: [u8; 4] = *b"BAba";

/// Lines after which an event that has not ended is closed.
const LINES_WITHOUT_LAST: u64 = 8192;

/// What a book is fed by: decided by the first order or level with a side and a price.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fed {
    Nothing,
    Orders,
    Levels,
}

/// One book.
#[derive(Clone, Debug)]
pub struct NaiveBook {
    /// By ladder: orders, best price first, then the lowest priority.
    orders: [Vec<NaiveOrder>; 4],
    /// By ladder: levels, best price first.
    levels: [Vec<NaiveLevel>; 4],
    fed: Fed,
    complete: bool,
    suspect: bool,
    /// Inside a snapshot of the venue\'s that has not ended.
    filling: bool,
    trading: bool,
    /// The lines of the open event.
    open: Vec<(u64, Record)>,
}

fn ladder(side: Side) -> Option<usize> {
    LADDERS.iter().position(|byte| *byte == side.0)
}

/// Whether the first price is better than the second.
fn better(ladder: usize, a: i64, b: i64) -> bool {
    if ladder.is_multiple_of(2) { a > b } else { a < b }
}

impl NaiveBook {
    fn new(natural: bool) -> NaiveBook {
        NaiveBook {
            orders: Default::default(),
            levels: Default::default(),
            fed: Fed::Nothing,
            complete: natural,
            suspect: natural,
            filling: false,
            trading: false,
            open: Vec::new(),
        }
    }

    /// What it says of itself.
    pub fn state(&self) -> NaiveState {
        match (self.complete, self.suspect || self.filling) {
            (false, _) => NaiveState::Unknown,
            (true, false) => NaiveState::Live,
            (true, true) => NaiveState::Suspect,
        }
    }

    /// Whether an event is open.
    pub fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// The levels of a side, best first.
    pub fn levels(&self, side: Side) -> Vec<NaiveLevel> {
        let at = ladder(side).expect("a side with a ladder");
        let mut levels = self.levels[at].clone();
        for order in &self.orders[at] {
            match levels.last_mut() {
                Some(level) if level.0 == order.price => {
                    level.1 = level.1.wrapping_add(order.size);
                    level.2 += 1;
                }
                _ => levels.push((order.price, order.size, 1)),
            }
        }
        levels
    }

    /// The best level of a side.
    pub fn best(&self, side: Side) -> Option<NaiveLevel> {
        let at = ladder(side).expect("a side with a ladder");
        if let Some(level) = self.levels[at].first() {
            return Some(*level);
        }
        let price = self.orders[at].first()?.price;
        let queue = self.orders[at].iter().take_while(|order| order.price == price);
        Some(queue.fold((price, 0, 0), |sum, order| (price, sum.1.wrapping_add(order.size), sum.2 + 1)))
    }

    /// The orders of a side, best price first, then first in the queue first.
    pub fn orders(&self, side: Side) -> &[NaiveOrder] {
        &self.orders[ladder(side).expect("a side with a ladder")]
    }

    /// D, L and the number of resting orders.
    pub fn digests(&self) -> (u64, u64, u64) {
        let (mut d, mut l, mut resting) = (0u64, 0u64, 0);
        for byte in LADDERS {
            for order in self.orders(Side(byte)) {
                d = d.wrapping_add(hash_of_order(byte, order));
                resting += 1;
            }
            for level in self.levels(Side(byte)) {
                l = l.wrapping_add(hash_of_level(byte, level));
            }
        }
        (d, l, resting)
    }

    fn empty(&mut self) {
        self.orders = Default::default();
        self.levels = Default::default();
        (self.fed, self.complete, self.suspect, self.filling) = (Fed::Nothing, true, false, false);
    }

    fn oddity(&mut self) {
        self.suspect |= self.complete;
    }

    fn find(&self, id: u64) -> Option<(usize, usize)> {
        (0..4).find_map(|at| self.orders[at].iter().position(|order| order.id == id).map(|place| (at, place)))
    }

    fn rest(&mut self, at: usize, order: NaiveOrder) {
        let behind = |other: &NaiveOrder| {
            better(at, order.price, other.price) || (other.price == order.price && other.priority > order.priority)
        };
        let place = self.orders[at].iter().position(behind).unwrap_or(self.orders[at].len());
        self.orders[at].insert(place, order);
    }

    /// Whether an order or level can have a place in this book.
    fn has_place(&mut self, record: &Record, fed: Fed) -> Option<usize> {
        let deletes = fed == Fed::Levels && record.size.get() == 0;
        let at = ladder(record.side).filter(|_| record.price.get() != i64::MAX || deletes);
        if at.is_some() && self.fed == Fed::Nothing {
            self.fed = fed;
        }
        let at = at.filter(|_| self.fed == fed);
        if at.is_none() {
            self.oddity();
        }
        at
    }

    fn apply(&mut self, sequence: u64, record: &Record) {
        let (id, price, size) = (record.order_id.get(), record.price.get(), record.size.get());
        match record.kind {
            Kind::ADD => {
                let Some(at) = self.has_place(record, Fed::Orders) else { return };
                // A duplicate live id: the second stands.
                if let Some((at, place)) = self.find(id) {
                    self.orders[at].remove(place);
                    self.oddity();
                }
                self.rest(at, NaiveOrder { id, price, size, priority: sequence });
            }
            Kind::MODIFY => {
                let Some(at) = self.has_place(record, Fed::Orders) else { return };
                let Some((old_at, place)) = self.find(id) else { return self.oddity() };
                let old = self.orders[old_at].remove(place);
                let keeps = match record.detail {
                    1 => true,
                    2 => false,
                    _ => at == old_at && price == old.price && size <= old.size,
                };
                if size > 0 {
                    self.rest(
                        at,
                        NaiveOrder { id, price, size, priority: if keeps { old.priority } else { sequence } },
                    );
                }
            }
            Kind::REDUCE | Kind::EXECUTE => {
                let Some((at, place)) = self.find(id) else { return self.oddity() };
                let left = self.orders[at][place].size;
                if size < left {
                    self.orders[at][place].size -= size;
                    return;
                }
                self.orders[at].remove(place);
                if size > left {
                    self.oddity();
                }
            }
            Kind::DELETE => {
                let Some((at, place)) = self.find(id) else { return self.oddity() };
                self.orders[at].remove(place);
            }
            Kind::LEVEL_SET => {
                let Some(at) = self.has_place(record, Fed::Levels) else { return };
                if record.flags.0 & Flags::TOB.0 != 0 {
                    self.levels[at].clear();
                }
                self.levels[at].retain(|level| level.0 != price);
                if size > 0 {
                    let place = self.levels[at].iter().position(|level| better(at, price, level.0));
                    let place = place.unwrap_or(self.levels[at].len());
                    // The order count of a level has 32 bits in a book.
                    self.levels[at].insert(place, (price, size, id.min(u64::from(u32::MAX))));
                }
            }
            Kind::CLEAR => {
                self.empty();
                // A snapshot of the venue's begins, and this is not the end of it.
                self.filling = record.flags.0 & (Flags::SNAPSHOT.0 | Flags::LAST.0) == Flags::SNAPSHOT.0;
            }
            Kind::VENUE_GAP => self.oddity(),
            // Nothing, a new price indication and the short-sale restriction say nothing of trading.
            Kind::STATUS if ![0, 6, 14].contains(&record.detail) => self.trading = record.detail == 7,
            _ => {}
        }
    }

    /// Applies the open event and judges what came of it.
    fn close(&mut self) {
        for (sequence, record) in std::mem::take(&mut self.open) {
            self.apply(sequence, &record);
            let ends = Flags::SNAPSHOT.0 | Flags::LAST.0;
            self.filling &= record.flags.0 & ends != ends;
        }
        let crossed = |bid: u8, ask: u8| match (self.best(Side(bid)), self.best(Side(ask))) {
            (Some(bid), Some(ask)) => bid.0 > ask.0,
            _ => false,
        };
        if self.trading && (crossed(b'B', b'A') || crossed(b'b', b'a')) {
            self.oddity();
        }
    }
}

/// All books of a channel, as their publisher wrote them.
pub struct NaiveBooks {
    books: BTreeMap<u32, NaiveBook>,
    /// What a book is that has not been heard of.
    unheard: NaiveBook,
    ended: Vec<u32>,
}

impl NaiveBooks {
    /// Books before the first line. `natural`: they are built from increments, Suspect.
    pub fn new(natural: bool) -> NaiveBooks {
        NaiveBooks { books: BTreeMap::new(), unheard: NaiveBook::new(natural), ended: Vec::new() }
    }

    /// Takes the next line; the instruments whose events ended with it, in the order in which those began.
    pub fn apply(&mut self, sequence: u64, record: &Record) -> &[u32] {
        self.ended.clear();
        let mut overdue: Vec<(u64, u32)> = Vec::new();
        for (instrument, book) in &self.books {
            if let Some((since, _)) = book.open.first()
                && sequence - since > LINES_WITHOUT_LAST
            {
                overdue.push((*since, *instrument));
            }
        }
        overdue.sort_unstable();
        for (_, instrument) in overdue {
            let book = self.books.get_mut(&instrument).expect("just seen");
            book.close();
            book.oddity();
            self.ended.push(instrument);
        }
        match record.instrument.get() {
            0 => self.apply_to_all(record),
            instrument => {
                let book = self.books.entry(instrument).or_insert_with(|| self.unheard.clone());
                // A digest stands between events and changes nothing.
                if record.kind != Kind::BOOK_DIGEST {
                    book.open.push((sequence, *record));
                    if record.flags.0 & 0x80 != 0 || record.kind == Kind::EVENT_END {
                        book.close();
                        self.ended.push(instrument);
                    }
                }
            }
        }
        &self.ended
    }

    fn apply_to_all(&mut self, record: &Record) {
        let all = self.books.values_mut().chain(std::iter::once(&mut self.unheard));
        match record.kind {
            Kind::SESSION_START | Kind::CLEAR => {
                for book in all {
                    book.open.clear();
                    book.empty();
                    // A new session has not said yet that it trades.
                    book.trading &= record.kind == Kind::CLEAR;
                }
            }
            Kind::VENUE_GAP => all.for_each(NaiveBook::oddity),
            Kind::EVENT_END => {
                let mut open: Vec<(u64, u32)> =
                    self.books.iter().filter_map(|(i, book)| book.open.first().map(|first| (first.0, *i))).collect();
                open.sort_unstable();
                for (_, instrument) in open {
                    self.books.get_mut(&instrument).expect("just seen").close();
                    self.ended.push(instrument);
                }
            }
            _ => {}
        }
    }

    /// The book of an instrument.
    pub fn book(&self, instrument: u32) -> &NaiveBook {
        self.books.get(&instrument).unwrap_or(&self.unheard)
    }

    /// Every instrument heard of.
    pub fn instruments(&self) -> impl Iterator<Item = u32> + '_ {
        self.books.keys().copied()
    }
}

/// Digits of pi after the point, in words of 64 bits: the keys that the wire document lists.
const PI: [u64; 8] = [
    0x243f6a8885a308d3,
    0x13198a2e03707344,
    0xa4093822299f31d0,
    0x082efa98ec4e6c89,
    0x452821e638d01377,
    0xbe5466cf34e90c6c,
    0xc0ac29b7c97c50dd,
    0x3f84d5b5b5470917,
];

/// Multiplies to 128 bits and XORs the halves, by schoolbook on 32-bit digits.
fn multiply_and_fold(a: u64, b: u64) -> u64 {
    let (a0, a1, b0, b1) = (a & 0xFFFF_FFFF, a >> 32, b & 0xFFFF_FFFF, b >> 32);
    let low = a0 * b0;
    let middle = a1 * b0 + (low >> 32);
    let other = a0 * b1 + (middle & 0xFFFF_FFFF);
    let high = a1 * b1 + (middle >> 32) + (other >> 32);
    (other << 32 | low & 0xFFFF_FFFF) ^ high
}

fn hash_of_order(side: u8, order: &NaiveOrder) -> u64 {
    let a = multiply_and_fold(order.id ^ PI[0], order.price as u64 ^ PI[1]);
    let b = multiply_and_fold(order.size ^ PI[2], order.priority ^ PI[3]);
    multiply_and_fold(a ^ u64::from(side) ^ PI[4], b ^ PI[5])
}

fn hash_of_level(side: u8, (price, size, count): NaiveLevel) -> u64 {
    let a = multiply_and_fold(price as u64 ^ PI[6], size ^ PI[7]);
    multiply_and_fold(a ^ u64::from(side) ^ PI[2], count ^ PI[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_wire_document() {
        let order = NaiveOrder { id: 42, price: 1_000_000_000, size: 100, priority: 7 };
        assert_eq!(hash_of_order(b'B', &order), 0x9863_C636_3AC2_8948);
        assert_eq!(hash_of_level(b'A', (-5, 100, 2)), 0x39F9_285F_E7D2_398B);
        assert_eq!(multiply_and_fold(u64::MAX, u64::MAX), 1 ^ (u64::MAX - 1));
    }
}
