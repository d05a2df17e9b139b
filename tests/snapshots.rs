//! Snapshots of books that are in the middle of anything: taken at every point of random streams, applied later, brought up
//! to date with what came since, and compared with the naive book from then on.

#![forbid(unsafe_code)]

use bookcast_tests::compare::{assert_same_book, assert_same_state};
use bookcast_tests::naive::NaiveBooks;
use bookcast_tests::stream::{BOOKS, random_lines};
use protocol::book::{BookState, Books, NotRestored, Start};
use protocol::line::{Epoch, Line, SequenceNumber, Stamp};
use protocol::record::{InstrumentId, Record};
use protocol::recovery::{Snapshot, SnapshotSource};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

fn stamp(sequence: usize) -> Stamp {
    Stamp::new(Epoch(1), SequenceNumber(sequence as u64))
}

/// The snapshots of everything that one can be had of, after the first `count` lines, that of the channel first.
fn snapshots(source: &SnapshotSource) -> Vec<Vec<Record>> {
    (0..=source.books().highest().0)
        .filter_map(|instrument| {
            let mut records = Vec::new();
            source.write(InstrumentId(instrument), &mut |record| records.push(record)).ok()?;
            assert_eq!(records.len() as u64, source.lines_of(InstrumentId(instrument)).expect("just written"));
            Some(records)
        })
        .collect()
}

/// Lines from the `from`th to before the `to`th, with their stamps; the first line is the first.
fn between(lines: &[Line], from: usize, to: usize) -> impl Iterator<Item = (Stamp, &Record)> + Clone {
    (from..to).map(|i| (stamp(i), &lines[i - 1].record))
}

fn drain(books: &mut Books) {
    while books.poll_event().is_some() {}
}

/// The same line, its instrument's count so much farther on.
fn counted_from(line: &Line, shift: u32, stamp: Stamp) -> Line {
    let mut record = line.record;
    let count = record.instrument_seq.get();
    record.instrument_seq.set(count.wrapping_add(shift));
    Line::seal(record, stamp)
}

/// A reader that takes the stream up at line `join` of `lines`, gets snapshots taken after `at` lines when it has read
/// `now` lines, and reads on.
///
/// The reader sees every count `shift` farther on than the source does: as if that many lines had come before.
fn joins_late(lines: &[Line], source: &SnapshotSource, shift: u32, [join, at, now]: [usize; 3], context: &str) {
    let shifted: Vec<Line> = (1..).zip(lines).map(|(i, line)| counted_from(line, shift, stamp(i))).collect();
    let lines = &shifted[..];
    let mut books = Books::new(BOOKS, Start::Strict);
    books.on_join_late();
    for (stamp, record) in between(lines, join, now + 1) {
        books.apply(stamp, record);
        drain(&mut books);
    }
    let mut restored = Vec::new();
    for mut records in snapshots(source) {
        let count = records[0].price.get() as u32;
        records[0].price.set(i64::from(count.wrapping_add(shift)));
        let snapshot = Snapshot::from_records(&records).unwrap_or_else(|| panic!("{context}: {records:?}"));
        assert_eq!(snapshot.begin.at, stamp(at));
        books.restore(&snapshot, between(lines, at + 1, now + 1)).unwrap_or_else(|why| panic!("{why:?}: {context}"));
        restored.push(snapshot.begin.instrument);
    }
    let mut naive = NaiveBooks::new(false);
    for (stamp, record) in between(lines, 1, now + 1) {
        naive.apply(stamp.sequence().0, record);
    }
    drain(&mut books);
    for next in now + 1..=lines.len() + 1 {
        for instrument in naive.instruments().filter(|i| restored.contains(&InstrumentId(*i))) {
            let context = || format!("{context}, instrument {instrument} before line {next}");
            if next == now + 1 || next == lines.len() + 1 || next.is_multiple_of(97) {
                let view = books.view(InstrumentId(instrument)).expect("restored");
                assert_same_book(&view, naive.book(instrument), &context);
            }
        }
        if let Some(line) = lines.get(next - 1) {
            books.apply(stamp(next), &line.record);
            naive.apply(next as u64, &line.record);
            drain(&mut books);
        }
    }
    assert_eq!(books.digest_counts().disagreed, 0, "{context}");
    // The channel's snapshot made whatever appeared later readable too; all but what was in the middle of an event.
    for instrument in naive.instruments().map(InstrumentId) {
        if restored.contains(&InstrumentId::CHANNEL) && books.state(instrument).is_readable() {
            let view = books.view(instrument).expect("readable");
            assert_same_state(view.state(), naive.book(instrument.0).state(), &|| format!("{context}, {instrument:?}"));
        }
    }
}

#[test]
fn a_late_joiner_has_the_publishers_books_from_its_snapshots_on() {
    let mut snapshots = 0;
    for seed in 0..60 {
        let mut random = Pcg64Mcg::seed_from_u64(seed ^ 0xA5);
        let lines = random_lines(seed, 1500, Start::Strict);
        let mut source = SnapshotSource::new(BOOKS, Start::Strict);
        source.on_joined(stamp(1));
        let at = random.random_range(2..lines.len() - 1);
        for (stamp, record) in between(&lines, 1, at + 1) {
            source.apply(stamp, record);
        }
        let now = (at + random.random_range(0..300)).min(lines.len());
        let join = random.random_range(1..=at + 1);
        let context = format!("seed {seed}: joined at {join}, snapshot of {at}, applied after {now}");
        // Counts of lines wrap at 32 bits: somewhere in the middle of every other run.
        let shift = if seed.is_multiple_of(2) { 0 } else { u32::MAX - random.random_range(0..400) };
        joins_late(&lines, &source, shift, [join, at, now], &format!("{context}, counts {shift} farther on"));
        snapshots += 1;
    }
    assert_eq!(snapshots, 60);
}

#[test]
fn a_snapshot_and_increments_that_do_not_meet_are_refused_and_the_book_is_as_it_was() {
    let mut refused = 0;
    for seed in 0..40 {
        let lines = random_lines(seed, 400, Start::Strict);
        let at = 200;
        let mut source = SnapshotSource::new(BOOKS, Start::Strict);
        source.on_joined(stamp(1));
        for (stamp, record) in between(&lines, 1, at + 1) {
            source.apply(stamp, record);
        }
        // Lines at..at + 5 are not there: whichever instrument they concern must not be restored.
        let since = at + 6;
        let missed: Vec<u32> = between(&lines, at + 1, since).map(|(_, record)| record.instrument.get()).collect();
        for records in snapshots(&source) {
            let snapshot = Snapshot::from_records(&records).expect("whole");
            let instrument = snapshot.begin.instrument;
            let concerns = |i: u32| i == instrument.0 || (i == 0 && !snapshot.is_of_channel());
            let comes =
                between(&lines, since, lines.len() + 1).any(|(_, record)| record.instrument.get() == instrument.0);
            if !missed.iter().any(|i| concerns(*i)) || !comes {
                continue;
            }
            let mut books = Books::new(BOOKS, Start::Strict);
            books.on_join_late();
            let got = books.restore(&snapshot, between(&lines, since, lines.len() + 1));
            assert_eq!(got, Err(NotRestored::Overlap), "seed {seed}, {instrument:?}");
            assert_eq!(books.state(instrument), BookState::Unknown);
            assert!(books.poll_event().is_none());
            refused += 1;
        }
    }
    assert!(refused > 40, "{refused} of them");
}

#[test]
fn a_snapshot_with_a_line_missing_changed_or_twice_is_no_snapshot() {
    let lines = random_lines(3, 600, Start::Strict);
    let mut source = SnapshotSource::new(BOOKS, Start::Strict);
    source.on_joined(stamp(1));
    for (stamp, record) in between(&lines, 1, lines.len() + 1) {
        source.apply(stamp, record);
    }
    let whole = snapshots(&source).into_iter().max_by_key(Vec::len).expect("there are some");
    assert!(whole.len() > 10 && Snapshot::from_records(&whole).is_some());
    for at in 0..whole.len() {
        let mut cut = whole.clone();
        cut.remove(at);
        assert!(Snapshot::from_records(&cut).is_none(), "without line {at}");
        let mut twice = whole.clone();
        twice.insert(at, whole[at]);
        assert!(Snapshot::from_records(&twice).is_none(), "line {at} twice");
        let mut changed = whole.clone();
        changed[at].size.set(whole[at].size.get() ^ 1);
        if ![protocol::record::Kind::STATUS, protocol::record::Kind::TRADE].contains(&whole[at].kind) {
            assert!(Snapshot::from_records(&changed).is_none(), "line {at} changed");
        }
    }
    assert!(Snapshot::from_records(&[]).is_none() && Snapshot::from_records(&whole[..1]).is_none());
}

#[test]
fn an_instrument_that_the_server_has_and_the_reader_has_not_is_not_taken_for_empty() {
    let lines = random_lines(1, 600, Start::Strict);
    let mut source = SnapshotSource::new(BOOKS, Start::Strict);
    source.on_joined(stamp(1));
    for (stamp, record) in between(&lines, 1, lines.len() + 1) {
        source.apply(stamp, record);
    }
    assert_eq!(source.books().highest(), InstrumentId(5));
    let mut books = Books::new(BOOKS, Start::Strict);
    books.on_join_late();
    let records = snapshots(&source).remove(0);
    let channel = Snapshot::from_records(&records).expect("whole");
    assert!(channel.is_of_channel());
    books.restore(&channel, between(&lines, lines.len() + 1, lines.len() + 1)).expect("nothing came since");
    // The first line of an instrument that nobody had heard of, and its count: the channel's lines and itself.
    let mut record = Record::new(protocol::record::Kind::STATUS, InstrumentId(9));
    record.flags = protocol::record::Flags::LAST;
    record.instrument_seq.set(channel.begin.instrument_seq + 1);
    books.apply(stamp(lines.len() + 1), &record);
    for instrument in (1..=5).map(InstrumentId) {
        assert_eq!(books.state(instrument), BookState::Unknown, "{instrument:?} is known to the server alone");
    }
    for instrument in (6..=9).map(InstrumentId) {
        assert!(books.state(instrument).is_readable(), "{instrument:?} has begun after the snapshot, if at all");
    }
}
