//! The arbiter between lanes and books: lines in order, second copies, and a gap.

#![forbid(unsafe_code)]

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use protocol::arbiter::{Arbiter, ArbiterConfig, Delivery, Gap};
use protocol::line::{Epoch, Line, SequenceNumber, Stamp};
use protocol::pair::Split;
use protocol::record::{InstrumentId, Kind, Lane, Record};
use protocol::run::{Carrier, LanePath, Run, RunSink};
use protocol::time::Nanos;

const RUN: usize = 22;
const FIRST: Stamp = Stamp::new(Epoch(1), SequenceNumber::FIRST);

#[derive(Default)]
struct Taken {
    lines: u64,
    lost: u64,
}

impl Delivery for Taken {
    #[inline(always)]
    fn on_lines(&mut self, _: Stamp, lines: &[Line], _: LanePath, _: Option<Nanos>) {
        self.lines += lines.len() as u64;
        black_box(lines);
    }
    fn on_gap(&mut self, gap: Gap) {
        self.lost += gap.count;
    }
    fn on_joined(&mut self, _: Stamp) {}
    fn on_epoch(&mut self, _: Epoch, _: Epoch) {}
    fn on_publish_time(&mut self, _: Lane, _: Nanos) {}
    fn on_path_silent(&mut self, _: LanePath, _: Nanos) {}
    fn on_end(&mut self, _: Stamp) {}
    fn on_split(&mut self, _: Split) {}
}

fn run(lines: &[Line], first: Stamp, lane: u16) -> Run<'_> {
    Run { path: LanePath::new(Lane::new(lane), Carrier::Local), first, lines, publish_time: None }
}

fn benches(c: &mut Criterion) {
    let record = Record::new(Kind::ADD, InstrumentId(1));
    // The arbiter takes verified lines and does not look inside them.
    let lines: Vec<Line> = (0..RUN as u64).map(|i| Line::seal(record, FIRST.plus(i))).collect();
    let now = Nanos(1_000_000);
    let mut group = c.benchmark_group("arbiter");
    for count in [1, RUN] {
        let mut arbiter = Arbiter::new(ArbiterConfig::default());
        let (mut taken, mut next) = (Taken::default(), FIRST);
        group.throughput(Throughput::Elements(count as u64));
        group.bench_function(format!("in-order run of {count}"), |b| {
            b.iter(|| {
                arbiter.sink(now, &mut taken).on_run(run(&lines[..count], next, 0));
                next = next.plus(count as u64);
            });
        });
        assert_eq!((taken.lines, taken.lost), (next.0 - FIRST.0, 0));
    }

    let mut arbiter = Arbiter::new(ArbiterConfig { paths: 2, ..ArbiterConfig::default() });
    let (mut taken, mut next) = (Taken::default(), FIRST);
    group.bench_function("run of 22 on two lanes: the second copy dropped", |b| {
        b.iter(|| {
            arbiter.sink(now, &mut taken).on_run(run(&lines, next, 0));
            arbiter.sink(now, &mut taken).on_run(run(&lines, next, 1));
            next = next.plus(RUN as u64);
        });
    });
    assert_eq!(taken.lines, next.0 - FIRST.0);

    group.throughput(Throughput::Elements(1));
    let mut arbiter = Arbiter::new(ArbiterConfig::default());
    let mut taken = Taken::default();
    arbiter.sink(now, &mut taken).on_run(run(&lines, FIRST, 0));
    group.bench_function("gap check with nothing missing", |b| {
        b.iter(|| arbiter.on_timeout(black_box(now), &mut taken));
    });
    assert_eq!(taken.lost, 0);

    // One line is missing, 22 behind it wait for the hedge time, then the gap is declared and they are delivered.
    let config = ArbiterConfig::default();
    group.bench_function("gap of one before a run of 22, declared", |b| {
        let fresh = || {
            let mut arbiter = Arbiter::new(config);
            let mut taken = Taken::default();
            arbiter.sink(now, &mut taken).on_run(run(&lines[..1], FIRST, 0));
            (arbiter, taken)
        };
        b.iter_batched_ref(
            fresh,
            |(arbiter, taken)| {
                arbiter.sink(now, taken).on_run(run(&lines, FIRST.plus(2), 0));
                arbiter.on_timeout(now.plus(config.hedge_ns), taken);
                assert_eq!((taken.lines, taken.lost), (1 + RUN as u64, 1));
            },
            BatchSize::LargeInput,
        );
    });
    group.finish();
}

criterion_group!(group, benches);
criterion_main!(group);
