//! Memory in which the words that a writer stores become visible in any order, and lines to try it with.

#![allow(dead_code)]

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use protocol::line::{Line, Stamp};
use protocol::record::{InstrumentId, Kind, Record};
use rand::Rng;
use rand_pcg::Pcg64Mcg;
use transport::ring::core::{Beat, RingLine, Word, WordMut, Words, WordsMut};

/// A line without the mask, as a ring would have it that trusts its stamp word alone.
#[derive(Clone, Copy)]
pub(crate) struct Unmasked(Line);

impl RingLine<8> for Unmasked {
    const ZERO: Unmasked = Unmasked(Line::ZERO);

    fn from_words(words: [u64; 8]) -> Unmasked {
        Unmasked(Line::from_words(words))
    }

    fn words(&self) -> [u64; 8] {
        self.0.words()
    }

    fn stamp(&self) -> Stamp {
        Stamp(self.0.masked_stamp.get())
    }

    fn beat(&self) -> Option<Beat> {
        RingLine::beat(&self.0)
    }

    fn ts_publish(&self) -> Option<u32> {
        RingLine::ts_publish(&self.0)
    }
}

/// How a test makes its lines, and how it reads them.
pub(crate) trait TestLine: RingLine<8> + 'static {
    fn seal(record: Record, stamp: Stamp) -> Self;
    fn record(&self) -> Record;
}

impl TestLine for Line {
    fn seal(record: Record, stamp: Stamp) -> Line {
        Line::seal(record, stamp)
    }

    fn record(&self) -> Record {
        self.record
    }
}

impl TestLine for Unmasked {
    fn seal(record: Record, stamp: Stamp) -> Unmasked {
        let mut line = Line::seal(record, stamp);
        line.masked_stamp.set(stamp.0);
        Unmasked(line)
    }

    fn record(&self) -> Record {
        self.0.record
    }
}

/// The record with this stamp: each word but the first depends on every bit of it.
pub(crate) fn record_of(stamp: Stamp) -> Record {
    let mut record = Record::new(Kind::ADD, InstrumentId(stamp.0 as u32 | 1));
    let mix = |salt: u64| (stamp.0 ^ salt).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    record.ts_event.set(mix(1));
    record.order_id.set(mix(2));
    record.price.set(mix(3) as i64);
    record.size.set(mix(4));
    record.ts_capture.set(mix(5) as u32);
    record.ts_publish.set(mix(6) as u32);
    record.instrument_seq.set(mix(7) as u32);
    record.venue_seq.set(mix(8) as u32);
    record
}

/// What memory holds, and what is on its way there.
pub(crate) struct Bus {
    visible: Vec<Cell<u64>>,
    on_their_way: RefCell<Vec<VecDeque<u64>>>,
    /// Indices of words with stores on their way; one entry for each store.
    busy: RefCell<Vec<usize>>,
}

impl Bus {
    /// So many words, all zero.
    pub(crate) fn new(words: usize) -> Rc<Bus> {
        Rc::new(Bus {
            visible: vec![Cell::new(0); words],
            on_their_way: RefCell::new(vec![VecDeque::new(); words]),
            busy: RefCell::new(Vec::new()),
        })
    }

    /// The writer's end of it.
    pub(crate) fn stores(self: &Rc<Bus>) -> StoreMemory {
        StoreMemory((0..self.visible.len()).map(|index| StoreWord { index, bus: Rc::clone(self) }).collect())
    }

    /// Stores that are on their way.
    pub(crate) fn busy(&self) -> usize {
        self.busy.borrow().len()
    }

    /// Makes up to `at_most` stores visible, whichever.
    pub(crate) fn show_some(&self, random: &mut Pcg64Mcg, at_most: usize) {
        for _ in 0..random.random_range(0..=at_most) {
            if self.busy() == 0 {
                return;
            }
            self.show(random.random_range(0..self.busy()));
        }
    }

    /// Makes the oldest store to the `nth` busy word visible.
    pub(crate) fn show(&self, nth: usize) {
        let word = self.busy.borrow_mut().swap_remove(nth);
        let value = self.on_their_way.borrow_mut()[word].pop_front().expect("one store for each entry");
        self.visible[word].set(value);
    }
}

/// The writer's end.
pub(crate) struct StoreWord {
    index: usize,
    bus: Rc<Bus>,
}

impl WordMut for StoreWord {
    fn store(&self, value: u64, _: Ordering) {
        self.bus.on_their_way.borrow_mut()[self.index].push_back(value);
        self.bus.busy.borrow_mut().push(self.index);
    }
}

pub(crate) struct StoreMemory(Vec<StoreWord>);

impl WordsMut<8> for StoreMemory {
    type Word = StoreWord;

    fn place_mut(&self, offset: usize) -> &[StoreWord; 8] {
        self.0[offset..offset + 8].try_into().expect("eight words")
    }
}

/// What happens before each load.
pub(crate) trait Disturb {
    /// Something, or nothing.
    fn disturb(&self);
}

/// The reader's end.
pub(crate) struct LoadWord<D> {
    index: usize,
    bus: Rc<Bus>,
    adversary: Rc<D>,
}

impl<D: Disturb> Word for LoadWord<D> {
    fn load(&self, _: Ordering) -> u64 {
        self.adversary.disturb();
        self.bus.visible[self.index].get()
    }
}

pub(crate) struct LoadMemory<D>(Vec<LoadWord<D>>);

impl<D: Disturb> LoadMemory<D> {
    pub(crate) fn new(bus: &Rc<Bus>, adversary: &Rc<D>) -> LoadMemory<D> {
        let word = |index| LoadWord { index, bus: Rc::clone(bus), adversary: Rc::clone(adversary) };
        LoadMemory((0..bus.visible.len()).map(word).collect())
    }
}

impl<D: Disturb> Words<8> for LoadMemory<D> {
    type Word = LoadWord<D>;

    fn place(&self, offset: usize) -> &[LoadWord<D>; 8] {
        self.0[offset..offset + 8].try_into().expect("eight words")
    }
}
