//! The torn-write adversary: memory in which the words that a writer stores become visible in any order, at any pause,
//! between any two loads of the reader. So a card writes a ring in remote memory, and worse.
//!
//! The writer and the reader are the product's own source ([`transport::ring::core`]). Each word has a queue of stores
//! that are on their way; before each load the adversary lets the writer go on, makes some of those stores visible, or
//! does nothing for a while. Only stores to one and the same word keep their order.

#![forbid(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use protocol::line::{Epoch, Line, SequenceNumber, Stamp};
use protocol::record::{InstrumentId, Kind, Record};
use protocol::run::LossCause;
use protocol::time::Nanos;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use transport::ring::StartAt;
use transport::ring::core::{
    Beat, ReaderCore, ReaderCounts, RingLine, RingShape, RingSink, Word, WordMut, Words, WordsMut, WriterCore,
};

const EPOCH: Epoch = Epoch(1);
/// A line without the mask, as a ring would have it that trusts its stamp word alone.
#[derive(Clone, Copy)]
struct Unmasked(Line);

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
trait TestLine: RingLine<8> + 'static {
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
fn record_of(stamp: Stamp) -> Record {
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

fn beat_record(clock: u64) -> Record {
    let mut record = Record::new(Kind::HEARTBEAT, InstrumentId::CHANNEL);
    record.ts_event.set(clock);
    record
}

/// What memory holds, and what is on its way there.
struct Bus {
    visible: Vec<Cell<u64>>,
    on_their_way: RefCell<Vec<VecDeque<u64>>>,
    /// Indices of words with stores on their way; one entry for each store.
    busy: RefCell<Vec<usize>>,
}

impl Bus {
    /// Makes the oldest store to the `nth` busy word visible.
    fn show(&self, nth: usize) {
        let word = self.busy.borrow_mut().swap_remove(nth);
        let value = self.on_their_way.borrow_mut()[word].pop_front().expect("one store for each entry");
        self.visible[word].set(value);
    }
}

/// The writer's end.
struct StoreWord {
    index: usize,
    bus: Rc<Bus>,
}

impl WordMut for StoreWord {
    fn store(&self, value: u64, _: Ordering) {
        self.bus.on_their_way.borrow_mut()[self.index].push_back(value);
        self.bus.busy.borrow_mut().push(self.index);
    }
}

struct StoreMemory(Vec<StoreWord>);

impl WordsMut<8> for StoreMemory {
    type Word = StoreWord;

    fn place_mut(&self, offset: usize) -> &[StoreWord; 8] {
        self.0[offset..offset + 8].try_into().expect("eight words")
    }
}

/// The writer and whatever decides when it goes on.
struct Adversary<L> {
    bus: Rc<Bus>,
    writer: RefCell<WriterCore<StoreMemory, L, 8>>,
    random: RefCell<Pcg64Mcg>,
    /// Loads to let pass undisturbed.
    calm: Cell<u32>,
    last: u64,
    loads: Cell<u64>,
}

impl<L: TestLine> Adversary<L> {
    fn new(shape: RingShape, last: u64, seed: u64) -> Rc<Adversary<L>> {
        let words = shape.words::<8>();
        let bus = Rc::new(Bus {
            visible: vec![Cell::new(0); words],
            on_their_way: RefCell::new(vec![VecDeque::new(); words]),
            busy: RefCell::new(Vec::new()),
        });
        let memory = StoreMemory((0..words).map(|index| StoreWord { index, bus: Rc::clone(&bus) }).collect());
        Rc::new(Adversary {
            bus,
            writer: RefCell::new(WriterCore::new(memory, shape)),
            random: RefCell::new(Pcg64Mcg::seed_from_u64(seed)),
            calm: Cell::new(0),
            last,
            loads: Cell::new(0),
        })
    }

    /// Called before each load.
    fn disturb(&self) {
        self.loads.set(self.loads.get() + 1);
        if self.calm.get() > 0 {
            self.calm.set(self.calm.get() - 1);
            return;
        }
        let mut random = self.random.borrow_mut();
        match random.random_range(0..64) {
            0 => self.calm.set(random.random_range(0..200)),
            1..4 => self.write(&mut random),
            4..24 => self.show_some(&mut random, 3),
            24..28 => self.show_some(&mut random, 64),
            _ => {}
        }
    }

    /// The writer goes on by one step, and all of its stores are on their way.
    fn write(&self, random: &mut Pcg64Mcg) {
        // Queues as long as this hold the stores of several rounds of a small ring.
        if self.bus.busy.borrow().len() > 400 {
            return;
        }
        let mut writer = self.writer.borrow_mut();
        match random.random_range(0..16) {
            0 => {
                let next = writer.next();
                writer.beat(&L::seal(beat_record(random.random()), next));
            }
            1..8 => writer.flush(),
            _ if writer.next().sequence().0 <= self.last => {
                let next = writer.next();
                writer.put(&L::seal(record_of(next), next));
            }
            _ => writer.flush(),
        }
    }

    fn show_some(&self, random: &mut Pcg64Mcg, at_most: usize) {
        for _ in 0..random.random_range(0..=at_most) {
            let busy = self.bus.busy.borrow().len();
            if busy == 0 {
                return;
            }
            self.bus.show(random.random_range(0..busy));
        }
    }

    /// The writer ends, and everything becomes visible.
    fn finish(&self) {
        let mut writer = self.writer.borrow_mut();
        while writer.next().sequence().0 <= self.last {
            let next = writer.next();
            writer.put(&L::seal(record_of(next), next));
        }
        writer.flush();
        while !self.bus.busy.borrow().is_empty() {
            self.bus.show(0);
        }
        self.calm.set(u32::MAX);
    }
}

/// The reader's end.
struct LoadWord<L> {
    index: usize,
    adversary: Rc<Adversary<L>>,
}

impl<L: TestLine> Word for LoadWord<L> {
    fn load(&self, _: Ordering) -> u64 {
        self.adversary.disturb();
        self.adversary.bus.visible[self.index].get()
    }
}

struct LoadMemory<L>(Vec<LoadWord<L>>);

impl<L: TestLine> Words<8> for LoadMemory<L> {
    type Word = LoadWord<L>;

    fn place(&self, offset: usize) -> &[LoadWord<L>; 8] {
        self.0[offset..offset + 8].try_into().expect("eight words")
    }
}

/// Checks everything that is handed up.
#[derive(Default)]
struct Judge {
    next: u64,
    delivered: u64,
    lost: u64,
    beats: u64,
    /// Lines that were accepted and are not what their stamp stands for.
    wrong: u64,
}

impl<L: TestLine> RingSink<L> for Judge {
    fn on_lines(&mut self, first: Stamp, lines: &[L], _: Option<Nanos>) {
        assert_eq!(first, Stamp::new(EPOCH, SequenceNumber(self.next)), "out of order");
        for (i, line) in lines.iter().enumerate() {
            self.wrong += u64::from(line.record() != record_of(first.plus(i as u64)));
        }
        self.next += lines.len() as u64;
        self.delivered += lines.len() as u64;
    }

    fn on_beat(&mut self, next: Stamp, _: Beat) {
        assert!(next.sequence().0 <= self.next, "a position beyond what was handed up");
        self.beats += 1;
    }

    fn on_loss(&mut self, first: Stamp, count: u64, _: LossCause) {
        assert_eq!(first, Stamp::new(EPOCH, SequenceNumber(self.next)), "out of order");
        self.next += count;
        self.lost += count;
    }
}

struct Outcome {
    judge: Judge,
    counts: ReaderCounts,
    loads: u64,
}

/// Runs `last` lines through a ring of `capacity` under attack. The reader's clock moves on by one each poll; it waits
/// `hedge_ns` of those for a line.
fn attack<L: TestLine>(capacity: usize, hedge_ns: u64, last: u64, seed: u64) -> Outcome {
    let shape = RingShape::new(EPOCH, SequenceNumber::FIRST, capacity).expect("a shape");
    let adversary = Adversary::<L>::new(shape, last, seed);
    let words = (0..shape.words::<8>()).map(|index| LoadWord { index, adversary: Rc::clone(&adversary) });
    let memory = LoadMemory(words.collect());
    let mut reader = ReaderCore::<_, L, 8>::new(memory, shape, StartAt::At(SequenceNumber::FIRST), hedge_ns);
    let mut judge = Judge { next: 1, ..Judge::default() };
    let mut random = Pcg64Mcg::seed_from_u64(seed ^ 1);
    let mut now = 0;
    while adversary.writer.borrow().next().sequence().0 <= last {
        now += 1;
        // Now and then the reader sleeps, and is lapped.
        if random.random_range(0..512) == 0 {
            for _ in 0..random.random_range(0..2_000) {
                adversary.disturb();
            }
        }
        reader.poll(Nanos(now), random.random_range(1..40), &mut judge);
        assert!(now < 200_000_000, "the writer never came to its end");
    }
    adversary.finish();
    for _ in 0..100_000 {
        now += hedge_ns;
        reader.poll(Nanos(now), usize::MAX, &mut judge);
        if judge.next > last {
            break;
        }
    }
    Outcome { judge, counts: *reader.counts(), loads: adversary.loads.get() }
}

#[test]
fn no_torn_line_is_accepted_whatever_order_words_become_visible_in() {
    let mut refused = 0;
    let mut loads = 0;
    let mut causes = (0, 0);
    // A hedge time longer than any store is on its way, and one so short that lines are given up on.
    for (round, (capacity, hedge_ns)) in
        [(2, 5_000), (2, 5), (4, 5_000), (8, 5), (64, 5_000), (64, 5)].into_iter().enumerate()
    {
        let seed = 0xB00C_0000 + round as u64;
        let last = 200_000;
        let Outcome { judge, counts, loads: these } = attack::<Line>(capacity, hedge_ns, last, seed);
        let context = format!("seed {seed:#x}, ring of {capacity}, hedge {hedge_ns}, {counts:?}");
        println!("{context}");
        assert_eq!(judge.wrong, 0, "accepted a line that was not whole: {context}");
        assert_eq!(judge.delivered + judge.lost, last, "{context}");
        assert_eq!(judge.delivered, counts.lines, "{context}");
        assert!(judge.delivered > 1_000, "hardly anything came through: {context}");
        assert!(judge.beats > 10, "no heartbeat was told: {context}");
        refused += counts.disbelieved_looks;
        loads += these;
        causes = (causes.0 + counts.lapped_lines, causes.1 + counts.unverified_lines);
    }
    println!("{loads} loads, {refused} looks at the latest line refused, lines lapped and unverified {causes:?}");
    assert!(loads > 10_000_000, "only {loads} loads");
    assert!(refused > 100_000, "only {refused} looks refused: the adversary did not attack");
    assert!(causes.0 > 0 && causes.1 > 0, "lapped and unverified {causes:?}");
}

#[test]
fn the_same_reader_without_the_mask_is_caught_at_once() {
    let seed = 0xB00C_1000;
    let mut wrong = 0;
    for (round, capacity) in [2, 4, 8].into_iter().enumerate() {
        wrong += attack::<Unmasked>(capacity, 5_000, 5_000, seed + round as u64).judge.wrong;
    }
    assert!(wrong > 100, "seed {seed:#x}: the adversary found only {wrong} torn lines where nothing protects them");
}
