//! The ring within one thread: what putting and polling cost in instructions. What the hand-over between cores adds is
//! `hop`'s matter.

#![forbid(unsafe_code)]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use protocol::line::{Epoch, Line, Stamp};
use protocol::record::{ChannelId, InstrumentId, Kind, Lane, Record};
use protocol::run::{LanePath, LossCause, Position, Run, RunSink};
use protocol::time::Nanos;
use transport::ring::StartAt;
use transport::{LaneRx, RingWriter};

/// Small enough for the first cache.
const PLACES: usize = 256;
const BATCH: u64 = 32;

fn ring() -> RingWriter {
    RingWriter::anonymous(ChannelId::new(1), Lane::new(0), Epoch(1), PLACES).expect("memory for 256 lines")
}

struct Count(u64);

impl RunSink for Count {
    #[inline(always)]
    fn on_run(&mut self, run: Run<'_>) {
        self.0 += run.lines.len() as u64;
        black_box(run.lines);
    }

    fn on_position(&mut self, _: Position) {}

    fn on_loss(&mut self, _: LanePath, first: Stamp, count: u64, cause: LossCause) {
        panic!("{count} lines from {first} lost ({cause:?}) within one thread");
    }
}

fn put(ring: &mut RingWriter, record: Record) {
    let line = Line::seal(record, ring.next());
    ring.put(&line);
}

fn benches(c: &mut Criterion) {
    let mut group = c.benchmark_group("ring");
    let record = Record::new(Kind::ADD, InstrumentId(1));

    let mut writer = ring();
    group.bench_function("seal, put and flush one line", |b| {
        b.iter(|| {
            put(&mut writer, black_box(record));
            writer.flush();
        });
    });

    let mut writer = ring();
    let mut reader = writer.reader(StartAt::Oldest, 200_000);
    let mut count = Count(0);
    group.bench_function("seal, put, flush and poll one line", |b| {
        b.iter(|| {
            put(&mut writer, black_box(record));
            writer.flush();
            reader.poll(black_box(Nanos(1)), 256, &mut count)
        });
    });
    assert_eq!(count.0, writer.head().sequence().0 - 1, "every line was polled");

    let mut writer = ring();
    let mut reader = writer.reader(StartAt::Oldest, 200_000);
    group.bench_function("poll with nothing new", |b| b.iter(|| reader.poll(black_box(Nanos(1)), 256, &mut count)));

    group.throughput(Throughput::Elements(BATCH));
    group.bench_function("seal and put 32 lines, flush and poll once", |b| {
        b.iter(|| {
            // A sixteenth of this ring is 16 lines, so it flushes once more by itself.
            for _ in 0..BATCH {
                put(&mut writer, black_box(record));
            }
            writer.flush();
            reader.poll(black_box(Nanos(1)), 256, &mut count)
        });
    });
    group.finish();
}

criterion_group!(group, benches);
criterion_main!(group);
