//! The torn-write adversary: memory in which the words that a writer stores become visible in any order, at any pause,
//! between any two loads of the reader. So a card writes a ring in remote memory, and worse.
//!
//! The writer and the reader are the product's own source ([`transport::ring::core`]). Each word has a queue of stores
//! that are on their way; before each load the adversary lets the writer go on, makes some of those stores visible, or
//! does nothing for a while. Only stores to one and the same word keep their order.

#![forbid(unsafe_code)]

mod adversary_support;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use adversary_support::{Bus, Disturb, LoadMemory, StoreMemory, TestLine, Unmasked, record_of};
use protocol::line::{Epoch, Line, SequenceNumber, Stamp};
use protocol::record::{InstrumentId, Kind, Record};
use protocol::run::LossCause;
use protocol::time::Nanos;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use transport::ring::StartAt;
use transport::ring::core::{Beat, ReaderCore, ReaderCounts, RingShape, RingSink, WriterCore};

const EPOCH: Epoch = Epoch(1);
fn beat_record(clock: u64) -> Record {
    let mut record = Record::new(Kind::HEARTBEAT, InstrumentId::CHANNEL);
    record.ts_event.set(clock);
    record
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

impl<L: TestLine> Disturb for Adversary<L> {
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
            4..24 => self.bus.show_some(&mut random, 3),
            24..28 => self.bus.show_some(&mut random, 64),
            _ => {}
        }
    }
}

impl<L: TestLine> Adversary<L> {
    fn new(shape: RingShape, last: u64, seed: u64) -> Rc<Adversary<L>> {
        let bus = Bus::new(shape.words::<8>());
        let memory = bus.stores();
        Rc::new(Adversary {
            bus,
            writer: RefCell::new(WriterCore::new(memory, shape)),
            random: RefCell::new(Pcg64Mcg::seed_from_u64(seed)),
            calm: Cell::new(0),
            last,
            loads: Cell::new(0),
        })
    }

    /// The writer goes on by one step, and all of its stores are on their way.
    fn write(&self, random: &mut Pcg64Mcg) {
        // Queues as long as this hold the stores of several rounds of a small ring.
        if self.bus.busy() > 400 {
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

    /// The writer ends, and everything becomes visible.
    fn finish(&self) {
        let mut writer = self.writer.borrow_mut();
        while writer.next().sequence().0 <= self.last {
            let next = writer.next();
            writer.put(&L::seal(record_of(next), next));
        }
        writer.flush();
        while self.bus.busy() > 0 {
            self.bus.show(0);
        }
        self.calm.set(u32::MAX);
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
    let memory = LoadMemory::new(&adversary.bus, &adversary);
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
