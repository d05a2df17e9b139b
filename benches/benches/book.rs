//! One record into a book of 20 levels a side with 16 orders each.

#![forbid(unsafe_code)]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use protocol::book::{Books, BooksConfig, Start};
use protocol::line::{Epoch, SequenceNumber, Stamp};
use protocol::record::{Flags, InstrumentId, Kind, Record, Side, modify};

const INSTRUMENT: InstrumentId = InstrumentId(1);
const LEVELS: i64 = 20;
const ORDERS: u64 = 16;
const MIDDLE: i64 = 100_000_000_000;
const STEP: i64 = 10_000_000;

struct Bench {
    books: Books,
    stamp: Stamp,
    channel: u32,
    own: u32,
}

impl Bench {
    fn new() -> Bench {
        let mut bench = Bench {
            books: Books::new(BooksConfig::default(), Start::Strict),
            stamp: Stamp::new(Epoch(1), SequenceNumber::FIRST),
            channel: 0,
            own: 0,
        };
        let mut start = Record::new(Kind::SESSION_START, InstrumentId::CHANNEL);
        start.flags = Flags::LAST;
        bench.apply(start);
        let mut id = 1_000;
        for level in 1..=LEVELS {
            for _ in 0..ORDERS {
                for (side, price) in [(Side::BID, MIDDLE - level * STEP), (Side::ASK, MIDDLE + level * STEP)] {
                    id += 1;
                    bench.apply(record(Kind::ADD, side, price, id, 1_000_000_000));
                }
            }
        }
        bench
    }

    /// One record, an event of its own, and what it gives rise to.
    #[inline(always)]
    fn apply(&mut self, mut record: Record) {
        let count = if record.instrument_id() == INSTRUMENT { &mut self.own } else { &mut self.channel };
        *count = count.wrapping_add(1);
        record
            .instrument_seq
            .set(self.own.wrapping_mul(u32::from(record.instrument_id() == INSTRUMENT)) + self.channel);
        self.books.apply(self.stamp, &record);
        self.stamp = self.stamp.plus(1);
        while let Some(event) = self.books.poll_event() {
            black_box(event);
        }
    }

    /// The book is as it was before the bench, and consistent.
    fn check(&self) {
        let view = self.books.view(INSTRUMENT).expect("it has orders");
        assert!(view.state().is_readable(), "{:?}", view.state());
        assert_eq!(view.resting_orders(), 2 * LEVELS as u64 * ORDERS);
    }
}

fn record(kind: Kind, side: Side, price: i64, order_id: u64, size: u64) -> Record {
    let mut record = Record::new(kind, INSTRUMENT);
    record.flags = Flags::LAST;
    record.side = side;
    record.price.set(price);
    record.order_id.set(order_id);
    record.size.set(size);
    record
}

fn benches(c: &mut Criterion) {
    let mut group = c.benchmark_group("book");
    for (name, price) in
        [("at the best price", MIDDLE - STEP), ("at a new best price", MIDDLE), ("ten levels down", MIDDLE - 10 * STEP)]
    {
        let mut bench = Bench::new();
        group.bench_function(format!("add and delete {name}"), |b| {
            b.iter(|| {
                bench.apply(black_box(record(Kind::ADD, Side::BID, price, 1, 100)));
                bench.apply(black_box(record(Kind::DELETE, Side::BID, price, 1, 100)));
            });
        });
        bench.check();
    }

    let mut bench = Bench::new();
    group.bench_function("execute in part at the best price", |b| {
        b.iter(|| bench.apply(black_box(record(Kind::EXECUTE, Side::BID, MIDDLE - STEP, 1_001, 1))));
    });
    bench.check();

    let mut bench = Bench::new();
    group.bench_function("add, and execute in full", |b| {
        b.iter(|| {
            bench.apply(black_box(record(Kind::ADD, Side::BID, MIDDLE, 1, 100)));
            bench.apply(black_box(record(Kind::EXECUTE, Side::BID, MIDDLE, 1, 100)));
        });
    });
    bench.check();

    let mut bench = Bench::new();
    let mut size = 1_000_000_000;
    group.bench_function("modify: smaller, keeps its place", |b| {
        b.iter(|| {
            size -= 1;
            bench.apply(black_box(record(Kind::MODIFY, Side::BID, MIDDLE - STEP, 1_001, size)));
        });
    });
    bench.check();

    let mut bench = Bench::new();
    let mut price = MIDDLE - STEP;
    group.bench_function("modify: to another level and back", |b| {
        b.iter(|| {
            price = if price == MIDDLE - STEP { MIDDLE - 2 * STEP } else { MIDDLE - STEP };
            let mut record = record(Kind::MODIFY, Side::BID, price, 1_001, 100);
            record.detail = modify::TO_BACK;
            bench.apply(black_box(record));
        });
    });
    bench.check();

    let bench = Bench::new();
    group.bench_function("digest record", |b| b.iter(|| bench.books.digest_record(black_box(INSTRUMENT))));
    group.finish();
}

criterion_group!(group, benches);
criterion_main!(group);
