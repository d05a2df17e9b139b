//! The torn-write adversary on reply rings: answers whose words become visible in any order, at any pause, between any two
//! loads of the reader; requests that are lost; answers that are so late that they are asked for, and written, again.
//!
//! Both halves of recovery, the reader and the rule which places are written are the product's own. Each word has a queue of
//! stores on their way, and only stores to one and the same word keep their order. What comes of it must be every line of
//! the stream, once, in order, as its stamp says.

#![forbid(unsafe_code)]

mod adversary_support;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use adversary_support::{Bus, Disturb, LoadMemory, StoreMemory, TestLine, Unmasked, record_of};
use protocol::arbiter::{Arbiter, ArbiterConfig, Delivery, Gap};
use protocol::book::BooksConfig;
use protocol::line::{Epoch, Line, SequenceNumber, Stamp};
use protocol::record::{InstrumentId, Lane, Record};
use protocol::recovery::{
    Connection, Fate, Recovering, Recovery, RecoveryConfig, RecoveryCounts, Responder, ResponderConfig,
    ResponderCounts, Session, Snapshot,
};
use protocol::run::{Carrier, LanePath, LossCause, Run, RunSink};
use protocol::time::Nanos;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use transport::reply::ReplyPlaces;
use transport::ring::StartAt;
use transport::ring::core::{Beat, ReaderCore, RingShape, RingSink, WordMut, WordsMut};

const PATH: LanePath = LanePath::new(Lane::new(0), Carrier::RdmaUd);
/// A turn of the subscriber.
const TURN_NS: u64 = 1_000;
/// So small that it goes round all the time.
const REPLY_LINES: usize = 64;

fn stamp(sequence: u64) -> Stamp {
    Stamp::new(Epoch(1), SequenceNumber(sequence))
}

/// Lets stores show before each load.
struct Adversary {
    bus: Rc<Bus>,
    random: RefCell<Pcg64Mcg>,
    /// Loads to let pass undisturbed.
    calm: Cell<u32>,
    loads: Cell<u64>,
}

impl Disturb for Adversary {
    fn disturb(&self) {
        self.loads.set(self.loads.get() + 1);
        if self.calm.get() > 0 {
            self.calm.set(self.calm.get() - 1);
            return;
        }
        let mut random = self.random.borrow_mut();
        match random.random_range(0..256) {
            // So long that what is on its way is asked for again.
            0 => self.calm.set(random.random_range(0..6_000)),
            1..120 => self.bus.show_some(&mut random, 3),
            120..128 => self.bus.show_some(&mut random, 64),
            _ => {}
        }
    }
}

/// The card that writes the answers of one connection into a fresh ring, and who reads that.
struct Ring<L> {
    adversary: Rc<Adversary>,
    stores: StoreMemory,
    places: ReplyPlaces,
    /// What was written, by count.
    written: HashMap<u64, Record>,
    reader: ReaderCore<LoadMemory<Adversary>, L, 8>,
}

impl<L: TestLine> Ring<L> {
    fn new(connection: Connection, seed: u64) -> Ring<L> {
        let first = connection.stamp(1);
        let shape = RingShape::new(first.epoch(), first.sequence(), REPLY_LINES).expect("a shape");
        let bus = Bus::new(shape.words::<8>());
        let random = RefCell::new(Pcg64Mcg::seed_from_u64(seed ^ u64::from(connection.0)));
        let adversary = Rc::new(Adversary { bus, random, calm: Cell::new(0), loads: Cell::new(0) });
        let memory = LoadMemory::new(&adversary.bus, &adversary);
        // What the product waits before it gives a ring up is longer than any store is on its way.
        let mut reader = ReaderCore::new(memory, shape, StartAt::At(first.sequence()), 1_000_000_000);
        reader.watch_place();
        let stores = adversary.bus.stores();
        let places = ReplyPlaces::new(REPLY_LINES as u64, first);
        Ring { adversary, stores, places, written: HashMap::new(), reader }
    }

    fn write(&mut self, first: Stamp, lines: &[Line]) {
        let end = first.plus(lines.len() as u64);
        let from = self.places.take(first, end);
        for at in from.0..end.0 {
            let line = L::seal(lines[(at - first.0) as usize].record, Stamp(at));
            let before = self.written.insert(at, line.record());
            assert!(before.is_none_or(|before| before == line.record()), "what is written again is the same");
            let place = self.stores.place_mut((2 + self.places.index(Stamp(at)) as usize) * 8);
            for (word, value) in place.iter().zip(line.words()) {
                word.store(value, Ordering::Relaxed);
            }
        }
    }
}

/// What the subscriber was told.
#[derive(Default)]
struct Told {
    next: u64,
    recovered: u64,
}

impl Delivery for Told {
    fn on_lines(&mut self, first: Stamp, lines: &[Line], path: LanePath, _: Option<Nanos>) {
        assert_eq!(first, stamp(self.next), "out of order");
        for (i, line) in lines.iter().enumerate() {
            assert_eq!(line.record, record_of(first.plus(i as u64)), "content");
        }
        self.next += lines.len() as u64;
        self.recovered += if path.carrier == Carrier::Recovery { lines.len() as u64 } else { 0 };
    }
    fn on_gap(&mut self, gap: Gap) {
        panic!("{gap:?}: nothing is ever given up here");
    }
    fn on_joined(&mut self, at: Stamp) {
        self.next = at.sequence().0;
    }
    fn on_epoch(&mut self, _: Epoch, _: Epoch) {}
    fn on_publish_time(&mut self, _: Lane, _: Nanos) {}
    fn on_path_silent(&mut self, _: LanePath, _: Nanos) {}
    fn on_split(&mut self, split: protocol::pair::Split) {
        panic!("there is one lane: {split:?}");
    }
    fn on_end(&mut self, _: Stamp) {}
}

/// Books that never want anything.
impl Recovering for Told {
    fn doubts(&self) -> u64 {
        0
    }
    fn next_unready(&self, _: InstrumentId) -> Option<(InstrumentId, InstrumentId)> {
        None
    }
    fn highest(&self) -> InstrumentId {
        InstrumentId(0)
    }
    fn lowest_use(&self) -> Option<Stamp> {
        None
    }
    fn on_snapshots_asked(&mut self, _: InstrumentId, _: InstrumentId) {}
    fn on_snapshots_failed(&mut self, _: InstrumentId, _: InstrumentId) {}
    fn on_snapshot(&mut self, _: &Snapshot<'_>, _: &[Record]) -> Fate {
        Fate::Useless
    }
    fn settle_snapshots(&mut self) -> usize {
        0
    }
    fn on_caught_up(&mut self) {}
}

/// Hands what the reader accepts to the machine: as it was written, so that what was torn is counted and leads nobody astray.
struct Answers<'a> {
    written: &'a HashMap<u64, Record>,
    wrong: &'a mut u64,
    recovery: &'a mut Recovery,
    arbiter: &'a mut Arbiter,
    told: &'a mut Told,
    now: Nanos,
    lost: &'a mut u64,
}

impl<L: TestLine> RingSink<L> for Answers<'_> {
    fn on_lines(&mut self, first: Stamp, lines: &[L], _: Option<Nanos>) {
        let mut whole = Vec::new();
        for (i, line) in lines.iter().enumerate() {
            let at = first.plus(i as u64);
            let written = self.written[&at.0];
            *self.wrong += u64::from(line.record() != written);
            whole.push(Line::seal(written, at));
        }
        self.recovery.on_replies(first, &whole, self.now, self.arbiter, self.told);
    }
    fn on_beat(&mut self, _: Stamp, _: Beat) {
        panic!("nobody writes heartbeats into a reply ring");
    }
    fn on_loss(&mut self, _: Stamp, count: u64, _: LossCause) {
        *self.lost += count;
    }
}

/// What came of it.
struct Outcome {
    wrong: u64,
    recovered: u64,
    loads: u64,
    connections: u16,
    asked: RecoveryCounts,
    answered: ResponderCounts,
    /// Rings given up because lines in them were lost.
    spoilt: u64,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} torn, {} recovered, {} connections, {} of them spoilt, {:?}, {:?}",
            self.wrong, self.recovered, self.connections, self.spoilt, self.asked, self.answered
        )
    }
}

/// Publishes lines up to `last`, of which a third never come by themselves; the rest is for recovery. Every so often there is a
/// new connection.
fn attack<L: TestLine>(last: u64, seed: u64) -> Outcome {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let config = RecoveryConfig {
        reply_lines: REPLY_LINES,
        request_timeout_ns: 100 * TURN_NS,
        attempts: u32::MAX,
        jitter_ns: 5 * TURN_NS,
        requests_per_s: 1_000_000,
        ..RecoveryConfig::default()
    };
    let mut server = Responder::new(ResponderConfig {
        history_lines: 1 << 14,
        reply_lines: REPLY_LINES,
        books: BooksConfig { instruments: 2, orders: 16, levels: 16 },
        lines_per_s: 1_000_000_000,
        ..ResponderConfig::default()
    });
    let mut connection = Connection(1);
    let key = 77;
    server.admit(connection, key);
    server.on_joined(stamp(1));
    let mut ring = Ring::<L>::new(connection, seed);
    let arbiter = ArbiterConfig {
        hedge_ns: 5 * TURN_NS,
        recover_ns: u64::MAX / 4,
        early_lines: 1 << 12,
        ..ArbiterConfig::default()
    };
    let mut arbiter = Arbiter::new(arbiter);
    let mut recovery = Recovery::new(config, Session { connection, key }, seed);
    let mut told = Told { next: 1, ..Told::default() };
    let (mut published, mut turns, mut loads, mut spoilt, mut wrong) = (0, 0, 0, 0, 0);
    while told.next <= last {
        turns += 1;
        assert!(
            turns < 400 * last,
            "seed {seed:#x}: stands at {} after {turns} turns, {:?}",
            told.next,
            recovery.counts()
        );
        let now = Nanos(turns * TURN_NS);
        // The stream waits for nobody but the early store, which is not what is tried here.
        if published < last && published < told.next + 2_000 && random.random_range(0..8) == 0 {
            let first = stamp(published + 1);
            let count = random.random_range(1..8).min(last - published);
            let line = |i| Line::seal(record_of(first.plus(i)), first.plus(i));
            let lines: Vec<Line> = (0..count).map(line).collect();
            published += count;
            server.on_lines(first, &lines, PATH, None);
            // The first and the last come: the one begins the stream, the other shows what is missing.
            if published == count || published == last || random.random_range(0..3) > 0 {
                let run = Run { path: PATH, first, lines: &lines, publish_time: None };
                arbiter.sink(now, &mut told).on_run(run);
            }
        }
        let mut lost = 0;
        let mut answers = Answers {
            written: &ring.written,
            wrong: &mut wrong,
            recovery: &mut recovery,
            arbiter: &mut arbiter,
            told: &mut told,
            now,
            lost: &mut lost,
        };
        ring.reader.poll(now, random.random_range(1..40), &mut answers);
        arbiter.on_timeout(now, &mut told);
        recovery.turn(now, &mut arbiter, &mut told);
        while let Some(request) = recovery.poll_request() {
            if random.random_range(0..10) > 0 {
                server.on_request(&request);
            }
        }
        // A full queue now and then, which is passed over.
        let room = if random.random_range(0..4) == 0 { 0 } else { random.random_range(1..64) };
        while let Some(run) = server.poll_reply_within(now, |_| room) {
            ring.write(run.first, run.lines);
        }
        if lost > 0 || random.random_range(0..20_000) == 0 {
            spoilt += u64::from(lost > 0);
            loads += ring.adversary.loads.get();
            server.dismiss(connection);
            connection = Connection(connection.0 + 1);
            server.admit(connection, key);
            ring = Ring::new(connection, seed);
            recovery.reconnect(Session { connection, key });
        }
    }
    Outcome {
        wrong,
        recovered: told.recovered,
        loads: loads + ring.adversary.loads.get(),
        connections: connection.0,
        asked: recovery.counts(),
        answered: server.counts(),
        spoilt,
    }
}

#[test]
fn no_torn_answer_is_accepted_and_everything_is_had_in_the_end() {
    let (mut loads, mut sent_again, mut timeouts) = (0, 0, 0);
    for seed in 0xB00C_2000..0xB00C_2004 {
        let last = 20_000;
        let outcome = attack::<Line>(last, seed);
        println!("seed {seed:#x}: {outcome}");
        assert_eq!(outcome.wrong, 0, "accepted a line that was not whole: seed {seed:#x}, {outcome}");
        assert!(outcome.recovered > last / 5, "hardly anything was recovered: seed {seed:#x}, {outcome}");
        loads += outcome.loads;
        sent_again += outcome.answered.sent_again;
        timeouts += outcome.asked.timeouts;
    }
    println!("{loads} loads, {sent_again} lines written again, {timeouts} requests sent again");
    assert!(loads > 1_000_000 && sent_again > 1_000 && timeouts > 100, "the adversary did not attack");
}

#[test]
fn what_was_overwritten_before_it_was_read_is_named_so_that_the_ring_is_replaced() {
    let connection = Connection(9);
    let mut ring = Ring::<Line>::new(connection, 0xB00C_4000);
    let line = |count| Line::seal(record_of(stamp(count)), connection.stamp(count));
    let lines: Vec<Line> = (1..=REPLY_LINES as u64 + 40).map(line).collect();
    ring.write(connection.stamp(1), &lines);
    while ring.adversary.bus.busy() > 0 {
        ring.adversary.bus.show(0);
    }
    /// What the reader says.
    #[derive(Default)]
    struct Said(Vec<(u64, u64, LossCause)>, u64);
    impl RingSink<Line> for Said {
        fn on_lines(&mut self, _: Stamp, lines: &[Line], _: Option<Nanos>) {
            self.1 += lines.len() as u64;
        }
        fn on_beat(&mut self, _: Stamp, _: Beat) {}
        fn on_loss(&mut self, first: Stamp, count: u64, cause: LossCause) {
            self.0.push((Connection::of(first).1, count, cause));
        }
    }
    let mut said = Said::default();
    for turn in 1..100 {
        ring.reader.poll(Nanos(turn * TURN_NS), 40, &mut said);
    }
    let Said(losses, read) = said;
    let lost: u64 = losses.iter().map(|(_, count, _)| count).sum();
    assert!(losses.iter().all(|(.., cause)| *cause == LossCause::Lapped) && losses[0].0 == 1, "{losses:?}");
    assert!(lost >= 40 && read + lost == lines.len() as u64, "{losses:?}, {read} read");
}

#[test]
fn the_same_ring_without_the_mask_is_caught_at_once() {
    let seed = 0xB00C_3000;
    let wrong = attack::<Unmasked>(4_000, seed).wrong;
    assert!(wrong > 10, "seed {seed:#x}: the adversary found only {wrong} torn lines where nothing protects them");
}
