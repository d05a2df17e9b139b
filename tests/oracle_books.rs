//! The books of publisher and subscriber against an independent naive book, at the end of every event.

#![forbid(unsafe_code)]

use std::path::Path;

use bookcast_tests::compare::assert_same_book;
use bookcast_tests::data::data_file;
use bookcast_tests::naive::NaiveState;
use bookcast_tests::random::INSTRUMENTS;
use bookcast_tests::stream::{BOOKS, Oracle, random_lines};
use feeds_replay::generate::{GenerateOptions, generate};
use protocol::book::{BookState, Inconsistency, Start};
use protocol::channel::ChannelConfig;
use protocol::line::{Epoch, Line};
use protocol::record::InstrumentId;
use protocol::time::Nanos;
use publisher::Pipeline;
use publisher::date::SessionDate;
use publisher::itch::{BinaryFile, FramingOptions, Message, Normaliser, NormaliserOptions};

/// What came of one day.
struct Outcome {
    messages_by_type: [u64; 256],
    events: u64,
    whole: u64,
    digests: u64,
    /// Books in each state at the end: Unknown, Live, Suspect.
    states: [usize; 3],
    /// By [`Inconsistency::index`].
    inconsistencies: [u64; Inconsistency::ALL.len()],
}

/// Drives a whole ITCH day through publisher and engine, against the naive books; compares the publisher's own books too.
fn day(name: &str, bytes: &[u8], start: Start, whole_every: u64) -> Outcome {
    let source = BinaryFile::from_reader(bytes, Path::new(name), FramingOptions::default());
    let venue = Normaliser::new(NormaliserOptions { full: true, ..NormaliserOptions::default() }, SessionDate::NONE);
    let config = ChannelConfig { books: BOOKS, start, digest_every: 16 };
    let mut pipeline = Pipeline::new(source, venue, Epoch(1), config);
    let mut oracle = Oracle::new(name, start, whole_every);
    let mut lines: Vec<Line> = Vec::new();
    let mut now = 0;
    loop {
        now += 1;
        lines.clear();
        let more = pipeline.step(Nanos(now), &mut |line| lines.push(*line)).expect("a sound file");
        for line in &lines {
            oracle.take(line);
        }
        if !more {
            break;
        }
    }
    let digests = oracle.finish();
    let mut states = [0; 3];
    for instrument in oracle.naive.instruments() {
        let naive = oracle.naive.book(instrument);
        let view = pipeline.channel().books().view(InstrumentId(instrument)).expect("the publisher has it");
        assert_same_book(&view, naive, &|| format!("{name}: the publisher's own book of {instrument}"));
        states[match naive.state() {
            NaiveState::Unknown => 0,
            NaiveState::Live => 1,
            NaiveState::Suspect => 2,
        }] += 1;
    }
    Outcome {
        messages_by_type: pipeline.venue().counters().messages_by_type,
        events: oracle.events,
        whole: oracle.whole,
        digests,
        states,
        inconsistencies: Inconsistency::ALL.map(|kind| oracle.engine.inconsistencies(kind)),
    }
}

fn generated(options: GenerateOptions) -> Vec<u8> {
    let mut bytes = Vec::new();
    generate(&options, &mut bytes).expect("options within their limits");
    bytes
}

#[test]
fn small_generated_days_equal_the_naive_books_at_every_event() {
    for seed in 1..=8 {
        let options = GenerateOptions { seed, symbols: 5, messages: 5_000, ..GenerateOptions::default() };
        let outcome = day(&format!("generated day, seed {seed}"), &generated(options), Start::Strict, 1);
        for message_type in Message::TYPES {
            let count = outcome.messages_by_type[usize::from(*message_type)];
            assert!(count > 0, "seed {seed}: no message of type {}", char::from(*message_type));
        }
        assert!(outcome.events >= 4_000 && outcome.whole >= outcome.events, "seed {seed}: {} events", outcome.events);
        assert!(outcome.digests >= 200, "seed {seed}: {} digests", outcome.digests);
        assert_eq!(outcome.states, [0, 5, 0], "seed {seed}: a conforming day leaves every book Live");
    }
}

#[test]
fn a_larger_generated_day_equals_the_naive_books() {
    let options = GenerateOptions {
        seed: 99,
        symbols: 40,
        messages: 100_000,
        orders_per_side: 128,
        ..GenerateOptions::default()
    };
    let outcome = day("large generated day, seed 99", &generated(options), Start::Strict, 500);
    assert!(outcome.events >= 80_000 && outcome.whole >= 160, "{} events", outcome.events);
    assert_eq!(outcome.states, [0, 40, 0]);
}

#[test]
fn a_day_joined_in_the_middle_equals_the_naive_books() {
    let bytes = generated(GenerateOptions { seed: 5, symbols: 5, messages: 6_000, ..GenerateOptions::default() });
    // Cut off the first half, message by message.
    let mut at = 0;
    for _ in 0..3_000 {
        at += 2 + usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
    }
    let strict = day("half a day, strict", &bytes[at..], Start::Strict, 1);
    assert_eq!((strict.states, strict.digests), ([5, 0, 0], 0), "nothing said what the books were");
    let natural = day("half a day, natural", &bytes[at..], Start::Natural, 1);
    assert_eq!(natural.states, [0, 0, 5]);
    assert!(natural.digests > 0);
}

/// Reads a recorded file whole.
fn recorded(file: &str, test: &str) -> Option<Vec<u8>> {
    let path = data_file(file, test)?;
    Some(std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}

#[test]
fn the_recorded_example_day_equals_the_naive_books_at_every_event() {
    let test = "the_recorded_example_day_equals_the_naive_books_at_every_event";
    let Some(bytes) = recorded("itch/ex20101224.itch", test) else { return };
    let outcome = day("ex20101224", &bytes, Start::Strict, 1);
    assert_eq!(outcome.messages_by_type.iter().sum::<u64>(), 12_012);
    // Counted in the file by hand: 18 executions, 3 cancels, 94 deletes and 2 replaces name orders that were never added,
    // and nothing takes more than is left. The Adds of those two replaces have no side.
    let count = |kind: Inconsistency| outcome.inconsistencies[kind.index()];
    assert_eq!((count(Inconsistency::UnknownOrder), count(Inconsistency::NoSuchSide)), (18 + 3 + 94 + 2, 2));
    assert_eq!((count(Inconsistency::OverReduced), count(Inconsistency::DuplicateOrder)), (0, 0));
    assert_eq!((outcome.states, outcome.digests > 500), ([0, 0, 3], true));
    assert!(outcome.events > 11_000, "{} events", outcome.events);
}

#[test]
fn other_recorded_files_equal_the_naive_books_whatever_their_start() {
    let test = "other_recorded_files_equal_the_naive_books_whatever_their_start";
    for name in ["nasdaq-first-1000-messages", "xnas-20230822-slice", "bx-20230822-slice", "synthetic-3-symbols"] {
        let Some(bytes) = recorded(&format!("itch/{name}.itch"), test) else { return };
        let strict = day(&format!("{name}, strict"), &bytes, Start::Strict, 1);
        let natural = day(&format!("{name}, natural"), &bytes, Start::Natural, 1);
        assert_eq!(strict.events, natural.events, "{name}");
        assert!(strict.events > 0, "{name}");
        assert_eq!(natural.states[0], 0, "{name}: a book of a natural start is never Unknown");
    }
}

#[test]
fn random_streams_with_every_inconsistency_equal_the_naive_books_at_every_event() {
    let mut inconsistencies = [0; Inconsistency::ALL.len()];
    let mut seen_states = [false; 2];
    for seed in 1..=24 {
        let start = if seed % 4 == 0 { Start::Natural } else { Start::Strict };
        let mut oracle = Oracle::new(&format!("random stream, seed {seed}"), start, 1);
        for line in random_lines(seed, 12_000, start) {
            oracle.take(&line);
            let state = oracle.engine.context(Nanos(0)).book_even_if_stale(InstrumentId(1)).map(|view| view.state());
            seen_states[0] |= state == Ok(BookState::Live);
            seen_states[1] |= state == Ok(BookState::Suspect);
        }
        assert!(oracle.finish() > 100, "seed {seed}: hardly a digest");
        assert!(oracle.events > 8_000, "seed {seed}: {} events", oracle.events);
        assert_eq!(oracle.naive.instruments().count() as u32, INSTRUMENTS, "seed {seed}");
        for (count, kind) in inconsistencies.iter_mut().zip(Inconsistency::ALL) {
            *count += oracle.engine.inconsistencies(kind);
        }
    }
    assert_eq!(seen_states, [true, true]);
    for (count, kind) in inconsistencies.into_iter().zip(Inconsistency::ALL) {
        // Random streams end their events long before the bound; that one has a stream of its own below.
        assert_eq!(count > 0, kind != Inconsistency::MissingLast, "{kind:?}: {count}");
    }
}

#[test]
fn random_streams_whose_events_never_end_equal_the_naive_books() {
    use protocol::record::{Flags, Kind};
    for seed in 1..=3 {
        let mut oracle = Oracle::new(&format!("random stream without LAST, seed {seed}"), Start::Strict, 1);
        let mut channel = protocol::channel::ChannelWriter::new(
            Epoch(1),
            ChannelConfig { books: BOOKS, start: Start::Strict, digest_every: 50 },
        );
        let mut records = bookcast_tests::random::RandomRecords::new(seed);
        for step in 0..60_000u64 {
            let mut record = records.next_record();
            if record.kind == Kind::EVENT_END || (step > 0 && record.instrument.get() == 0) {
                continue;
            }
            // Only instrument 1 ends its events.
            if record.instrument.get() > 1 {
                record.flags = record.flags.without(Flags::LAST);
            }
            let mut out = |line: &Line| oracle.take(line);
            channel.push(&record, Nanos(step), &mut out).expect("far from the last sequence number");
            channel.end_message(Nanos(step), &mut out).expect("far from the last sequence number");
        }
        assert!(oracle.finish() > 0, "seed {seed}");
        let closed = oracle.engine.inconsistencies(Inconsistency::MissingLast);
        assert!(closed >= 4 * 5, "seed {seed}: {closed} events were closed");
    }
}
