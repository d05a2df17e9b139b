//! A lossy path, end to end: every line is delivered or named, and no book calls itself Live that is not right.
//!
//! A generated day goes through the publisher's pipeline into a ring and over a link of real packets; a fault injector
//! drops, duplicates, reorders, corrupts and truncates them; a subscriber receives the rest. Beside it an engine that misses
//! nothing notes the digests of each book at the end of each event. Whenever a book of the lossy subscriber is readable,
//! its digests must be those.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::io::Cursor;
use std::path::Path;

use feeds_replay::generate::{GenerateOptions, generate};
use protocol::arbiter::{ArbiterConfig, Delivery, Gap};
use protocol::book::{BooksConfig, EventEnd};
use protocol::channel::ChannelConfig;
use protocol::line::{Epoch, Line, Stamp};
use protocol::record::{ChannelId, Lane};
use protocol::run::{Carrier, LanePath};
use protocol::time::Nanos;
use publisher::Pipeline;
use publisher::date::SessionDate;
use publisher::itch::{BinaryFile, FramingOptions, Normaliser, NormaliserOptions};
use subscriber::{BookState, Context, Engine, EngineConfig, Handler, StateChange, Subscriber, Update};
use transport::fault::{FaultInjector, FaultPlan};
use transport::link::{LinkOptions, link};
use transport::{LaneTx, RingWriter};

const BOOKS: BooksConfig = BooksConfig { instruments: 64, orders: 1 << 14, levels: 1 << 12 };

/// Digests of the book of each event's instrument, by the stamp that ended the event.
#[derive(Default)]
struct Oracle {
    at: HashMap<Stamp, (u64, u64, u64)>,
}

impl Handler for Oracle {
    fn on_event_end(&mut self, ctx: &Context<'_>, end: &EventEnd) {
        let book = ctx.book(end.instrument).expect("nothing is missing here");
        assert_eq!(book.state(), BookState::Live, "a conforming day");
        let (orders, levels) = book.digests();
        self.at.insert(end.stamp, (orders, levels, book.resting_orders()));
    }
}

/// Checks order, and every readable book against the oracle.
struct Witness<'a> {
    oracle: &'a Oracle,
    seed: u64,
    next: Stamp,
    delivered: u64,
    named: u64,
    checked: u64,
    made_stale: u64,
    healed: u64,
}

impl Handler for Witness<'_> {
    fn on_record(&mut self, _: &Context<'_>, update: &Update<'_>) {
        assert_eq!(update.stamp, self.next, "seed {}: in order, exactly once", self.seed);
        self.next = update.stamp.plus(1);
        self.delivered += 1;
    }

    fn on_gap(&mut self, _: &Context<'_>, gap: &Gap) {
        assert_eq!(gap.first, self.next, "seed {}: a gap is named in its place", self.seed);
        self.next = gap.first.plus(gap.count);
        self.named += gap.count;
    }

    fn on_event_end(&mut self, ctx: &Context<'_>, end: &EventEnd) {
        let book = ctx.book(end.instrument).expect("told only of readable books");
        let (orders, levels) = book.digests();
        let truth = self.oracle.at.get(&end.stamp);
        assert_eq!(
            Some(&(orders, levels, book.resting_orders())),
            truth,
            "seed {}: {:?} is {:?} at {} and wrong",
            self.seed,
            end.instrument,
            book.state(),
            end.stamp
        );
        self.checked += 1;
    }

    fn on_state_change(&mut self, _: &Context<'_>, change: &StateChange) {
        match (change.from.is_readable(), change.to.is_readable()) {
            (true, false) => self.made_stale += 1,
            (false, true) if change.from == BookState::Stale => self.healed += 1,
            _ => {}
        }
    }
}

/// All lines of a generated day, as its publisher would send them.
fn day(seed: u64) -> Vec<Line> {
    let options = GenerateOptions {
        seed,
        symbols: 12,
        messages: 6_000,
        span_ns: Some(600_000_000),
        ..GenerateOptions::default()
    };
    let mut bytes = Vec::new();
    generate(&options, &mut bytes).expect("generates");
    let source = BinaryFile::from_reader(Cursor::new(bytes), Path::new("generated"), FramingOptions::default());
    let venue = Normaliser::new(NormaliserOptions::default(), SessionDate::NONE);
    let config = ChannelConfig { books: BOOKS, digest_every: 16, ..ChannelConfig::default() };
    let mut pipeline = Pipeline::new(source, venue, Epoch(1), config);
    let mut lines = Vec::new();
    let mut now = Nanos(1_000_000_000);
    while pipeline.step(now, &mut |line| lines.push(*line)).expect("conforming") {
        now = now.plus(1_000);
    }
    lines
}

fn oracle(lines: &[Line]) -> Oracle {
    let mut engine = Engine::new(EngineConfig { books: BOOKS, ..EngineConfig::default() });
    let mut oracle = Oracle::default();
    engine.turn(Nanos(1), &mut oracle).on_lines(
        lines[0].stamp(),
        lines,
        LanePath::new(Lane::new(0), Carrier::Local),
        Some(Nanos(1_000_000_000)),
    );
    assert_eq!(engine.digest_counts().disagreed, 0);
    assert!(engine.digest_counts().compared > 100);
    oracle
}

struct Outcome {
    named: u64,
    checked: u64,
    made_stale: u64,
    healed: u64,
}

/// Sends `lines` through `plan`, and demands what must hold whatever the plan is.
fn run(seed: u64, lines: &[Line], oracle: &Oracle, plan: FaultPlan) -> Outcome {
    let mut ring = RingWriter::anonymous(ChannelId::new(1), Lane::new(0), Epoch(1), 4096).expect("a ring");
    let (mut tx, rx) = link(&ring, LinkOptions { lines_per_packet: 8, ..LinkOptions::default() });
    let rx = FaultInjector::new(rx, plan);
    let arbiter = ArbiterConfig { hedge_ns: 150_000, early_lines: 1024, ..ArbiterConfig::default() };
    let engine = EngineConfig { books: BOOKS, ..EngineConfig::default() };
    let clock = transport::clock::Clock::calibrate();
    let mut subscriber = Subscriber::new(rx, arbiter, engine, clock);
    let mut witness =
        Witness { oracle, seed, next: lines[0].stamp(), delivered: 0, named: 0, checked: 0, made_stale: 0, healed: 0 };
    let mut now = Nanos(1_000_000_000);
    tx.heartbeat(&ring, now, false);
    for chunk in lines.chunks(5) {
        for line in chunk {
            ring.put(line);
        }
        ring.flush();
        tx.flush(&ring, now);
        now = now.plus(5_000);
        while subscriber.poll_at(now, &mut witness) > 0 {}
    }
    // The end is announced until everything is delivered or named; at most a virtual second.
    for _ in 0..1_000 {
        tx.heartbeat(&ring, now, true);
        now = now.plus(1_000_000);
        while subscriber.poll_at(now, &mut witness) > 0 {}
    }
    assert!(subscriber.has_ended(), "seed {seed}: the end was told");
    assert_eq!(witness.delivered + witness.named, lines.len() as u64, "seed {seed}: every line is accounted for");
    let counts = subscriber.counts();
    assert_eq!((counts.delivered, counts.lost), (witness.delivered, witness.named), "seed {seed}");
    assert_eq!(
        subscriber.engine().digest_counts().disagreed,
        0,
        "seed {seed}: no book that called itself Live disagreed"
    );
    Outcome { named: witness.named, checked: witness.checked, made_stale: witness.made_stale, healed: witness.healed }
}

/// Many days with `drop` and the other faults; what came of all of them together.
fn run_days(drop: f64) -> Outcome {
    let mut sum = Outcome { named: 0, checked: 0, made_stale: 0, healed: 0 };
    for seed in 1..=16 {
        let lines = day(seed);
        let oracle = oracle(&lines);
        let plan = FaultPlan {
            drop,
            duplicate: 0.05,
            reorder: 0.2,
            reorder_span: 64,
            corrupt: drop / 5.0,
            truncate: drop / 5.0,
            lines_per_packet: 1,
            ..FaultPlan::seeded(seed)
        };
        let outcome = run(seed, &lines, &oracle, plan);
        assert!(outcome.named > 0, "seed {seed}: faults happened");
        sum.named += outcome.named;
        sum.checked += outcome.checked;
        sum.made_stale += outcome.made_stale;
        sum.healed += outcome.healed;
    }
    let Outcome { named, checked, made_stale, healed } = sum;
    println!(
        "drop {drop}: {named} lines named; {checked} readable books checked, {made_stale} made Stale, {healed} healed"
    );
    sum
}

#[test]
fn nothing_is_lost_without_an_event_and_no_readable_book_is_wrong() {
    let heavy = run_days(0.05);
    assert!(heavy.named > 5_000 && heavy.checked > 1_000 && heavy.healed > 500, "the days were hard and not hopeless");
    let light = run_days(0.002);
    assert!(light.checked > 20_000 && light.made_stale > 500 && light.healed > 500, "the days were light");
}

#[test]
fn without_faults_the_same_path_loses_nothing() {
    let lines = day(99);
    let oracle = oracle(&lines);
    let outcome = run(99, &lines, &oracle, FaultPlan::none());
    assert_eq!((outcome.named, outcome.made_stale), (0, 0));
    assert_eq!(outcome.checked as usize, oracle.at.len());
}

#[test]
fn duplicates_and_reordering_within_the_hedge_time_lose_nothing() {
    for seed in 1..=8 {
        let lines = day(seed);
        let oracle = oracle(&lines);
        let plan = FaultPlan {
            drop: 0.0,
            duplicate: 0.05,
            reorder: 0.2,
            reorder_span: 16,
            delay: 0.0,
            corrupt: 0.0,
            truncate: 0.0,
            ..FaultPlan::seeded(seed)
        };
        let outcome = run(seed, &lines, &oracle, plan);
        assert_eq!(outcome.named, 0, "seed {seed}");
    }
}
