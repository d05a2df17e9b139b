//! A generated day of ITCH: framed, decoded, normalised, and through the whole pipeline; per message.

#![forbid(unsafe_code)]

use std::hint::black_box;
use std::io::Cursor;
use std::path::Path;
use std::time::Duration;

use benches::day::{Day, DayOptions};
use benches::flow::{day_in_memory, run_pipeline};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use protocol::book::{Books, BooksConfig, Start};
use protocol::channel::ChannelConfig;
use protocol::line::Epoch;
use protocol::record::{ChannelId, Lane};
use publisher::feed::FeedSource;
use publisher::itch::{BinaryFile, FramingOptions, Normaliser, NormaliserOptions, decode};
use transport::RingWriter;
use transport::clock::Clock;

const MESSAGES: u64 = 100_000;

fn benches(c: &mut Criterion) {
    let day = Day::generate(DayOptions { seed: 1, symbols: 100, messages: MESSAGES }).expect("options are in range");
    let mut group = c.benchmark_group("a generated day");
    group.throughput(Throughput::Elements(MESSAGES)).sample_size(20).measurement_time(Duration::from_secs(4));

    group.bench_function("frame", |b| {
        b.iter(|| {
            let source = Cursor::new(day.bytes());
            let mut source = BinaryFile::from_reader(source, Path::new("generated"), FramingOptions::default());
            let mut count = 0;
            while let Some(message) = source.next().expect("a sound day") {
                black_box(message.bytes);
                count += 1;
            }
            assert_eq!(count, MESSAGES);
        });
    });

    group.bench_function("decode", |b| {
        b.iter(|| {
            for message in day.messages() {
                black_box(decode(black_box(message.bytes)).expect("a conforming day").header());
            }
        });
    });

    // Orders are looked up in an empty book, so executions and the like become nothing but a count; the pipeline below
    // has the real lookups.
    group.bench_function("decode and normalise, no orders found", |b| {
        let books = Books::new(BooksConfig::default(), Start::Strict);
        b.iter_batched_ref(
            || Normaliser::new(NormaliserOptions::default(), day.date()),
            |normaliser| {
                for message in day.messages() {
                    let _ = normaliser.normalise(black_box(&message), &books, &mut |record| {
                        black_box(&record);
                    });
                }
                assert_eq!(normaliser.counters().messages(), MESSAGES);
            },
            BatchSize::LargeInput,
        );
    });

    let clock = Clock::calibrate();
    group.bench_function("pipeline: frame to ring, books and digests included", |b| {
        b.iter_batched_ref(
            || RingWriter::anonymous(ChannelId::new(1), Lane::new(0), Epoch(1), 1 << 14).expect("memory for the ring"),
            |ring| {
                run_pipeline(day_in_memory(&day), day.date(), ChannelConfig::default(), ring, clock)
                    .expect("a sound day")
                    .lines
            },
            BatchSize::LargeInput,
        );
    });
    group.finish();
}

criterion_group!(group, benches);
criterion_main!(group);
