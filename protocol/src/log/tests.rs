//! The format, the recorder, and each thing that a checker must find. Whole histories with seeded corruptions are in the
//! workspace's tests.

use super::*;
use crate::arbiter::Gap;
use crate::line::{Epoch, Line, SequenceNumber, Stamp};
use crate::record::{Flags, InstrumentId, Kind, Record};
use crate::run::LossCause;

fn at(epoch: u16, sequence: u64) -> Stamp {
    Stamp::new(Epoch(epoch), SequenceNumber(sequence))
}

fn lines(first: Stamp, count: u64) -> Vec<Line> {
    let line = |i: u64| {
        let mut record = Record::new(Kind::ADD, InstrumentId(1));
        record.order_id.set(first.plus(i).0);
        Line::seal(record, first.plus(i))
    };
    (0..count).map(line).collect()
}

fn begin(role: Role) -> Begin {
    Begin { role, lane: 3, pid: 77, time_ns: 1_700_000_000_000_000_000, name_len: 0 }
}

/// A log of these entries.
fn file(role: Role, entries: &[Entry]) -> Vec<u8> {
    let beginning = Entry::beginning(begin(role), "itch");
    beginning.iter().chain(entries).zip(0..).flat_map(|(entry, number)| entry.seal(number)).collect()
}

fn record(feed: impl FnOnce(&mut Recorder<Vec<Entry>>)) -> Vec<Entry> {
    let mut recorder = Recorder::new(Vec::new());
    feed(&mut recorder);
    recorder.close();
    recorder.sink().clone()
}

fn check(logs: &[(Role, Vec<Entry>)]) -> History {
    let mut checker = Checker::new();
    for (number, (role, entries)) in logs.iter().enumerate() {
        checker.add(&format!("log {number}"), &file(*role, entries));
    }
    checker.finish()
}

/// What is wrong with one subscriber's log of these entries.
fn wrongs(entries: &[Entry]) -> Vec<Wrong> {
    check(&[(Role::Subscriber, entries.to_vec())]).problems.into_iter().map(|problem| problem.wrong).collect()
}

#[test]
fn an_entry_is_read_as_it_was_written_and_only_in_its_place() {
    let entries = [
        Entry::Begin(Begin { name_len: 4, ..begin(Role::Recovery) }),
        Entry::Name(*b"itch\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
        Entry::Joined { at: at(2, 9) },
        Entry::Lines { first: at(2, 9), count: 56, sum: u64::MAX },
        Entry::Gap { first: at(2, 65), count: 1 << 40, cause: LossCause::Unverified },
        Entry::Epoch { from: at(2, 70), to: Epoch(u16::MAX) },
        Entry::Digest { at: at(2, 11), instrument: InstrumentId(8), book: Some(0) },
        Entry::Digest { at: at(2, 11), instrument: InstrumentId(8), book: None },
        Entry::Unlogged { until: at(2, 100), entries: 3 },
        Entry::Ended { at: at(2, 100) },
        Entry::Closed { at: Stamp(0) },
    ];
    for entry in entries {
        let bytes = entry.seal(5);
        assert_eq!(Entry::read(&bytes, 5), Ok(entry));
        assert_eq!(Entry::read(&bytes, 6), Err(EntryError::Damaged), "moved");
        for bit in 0..ENTRY_LEN * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Entry::read(&flipped, 5), Err(EntryError::Damaged), "{entry:?}, bit {bit}");
        }
    }
}

/// The vectors of WIRE.md.
#[test]
fn vectors_of_the_wire_document() {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let entry = Entry::Lines { first: at(1, 1), count: 64, sum: 0x0123_4567_89AB_CDEF };
    assert_eq!(hex(&entry.seal(3)), VECTOR_LINES);
    let mut record = Record::new(Kind::ADD, InstrumentId(7));
    record.order_id.set(42);
    assert_eq!(line_sum(at(1, 5), &record), VECTOR_SUM);
}

const VECTOR_LINES: &str = "040000000000000001000000000001004000000000000000efcdab8967452301a1cb77c33ce13516";
const VECTOR_SUM: u64 = 0xB343_37B7_98F3_9F4A;

#[test]
fn an_entry_that_says_what_none_says_is_refused() {
    for entry in [
        Entry::Lines { first: at(1, 1), count: 0, sum: 0 },
        Entry::Lines { first: at(1, 1), count: 65, sum: 0 },
        Entry::Lines { first: at(0, 1), count: 1, sum: 0 },
        Entry::Gap { first: at(1, 0), count: 1, cause: LossCause::Missing },
        Entry::Gap { first: at(1, 2), count: u64::MAX, cause: LossCause::Missing },
        // No stamp follows the last one of all.
        Entry::Lines { first: Stamp(u64::MAX), count: 1, sum: 0 },
    ] {
        assert!(matches!(Entry::read(&entry.seal(0), 0), Err(EntryError::BadValue(_))), "{entry:?}");
    }
}

#[test]
fn what_publishers_may_differ_in_is_not_in_the_sum_and_everything_else_is() {
    let mut record = Record::new(Kind::ADD, InstrumentId(1));
    let sum = line_sum(at(1, 1), &record);
    record.ts_event.set(9);
    record.ts_capture.set(9);
    record.ts_publish.set(9);
    record.flags = record.flags.with(Flags::OWN_TIME);
    assert_eq!(line_sum(at(1, 1), &record), sum);
    assert_ne!(line_sum(at(1, 2), &record), sum);
    assert_ne!(line_sum(at(2, 1), &record), sum);
    record.instrument_seq.set(1);
    assert_ne!(line_sum(at(1, 1), &record), sum);
    // Two records that change places change the sum of their run.
    let [first, second] = [7, 8].map(|order| {
        let mut record = Record::new(Kind::ADD, InstrumentId(1));
        record.order_id.set(order);
        record
    });
    let pair = |a, b| line_sum(at(1, 1), a).wrapping_add(line_sum(at(1, 2), b));
    assert_ne!(pair(&first, &second), pair(&second, &first));
    let continuation = Record::continuation(&first, &[1; 40]);
    assert_ne!(line_sum(at(1, 1), &continuation), line_sum(at(1, 1), &Record::continuation(&first, &[2; 40])));
}

#[test]
fn runs_end_at_blocks_gaps_and_epochs_and_a_piecemeal_delivery_is_the_same() {
    let whole = record(|recorder| {
        recorder.on_joined(at(1, 60));
        recorder.on_lines(at(1, 60), &lines(at(1, 60), 100));
        recorder.on_gap(Gap { first: at(1, 160), count: 5, cause: LossCause::Missing });
        recorder.on_lines(at(1, 165), &lines(at(1, 165), 10));
        recorder.on_epoch(Epoch(2));
        recorder.on_lines(at(2, 1), &lines(at(2, 1), 3));
        recorder.on_end(at(2, 4));
    });
    let ranges: Vec<(u64, u64)> = whole
        .iter()
        .filter_map(|entry| match entry {
            Entry::Lines { first, count, .. } => Some((first.sequence().0, *count)),
            _ => None,
        })
        .collect();
    assert_eq!(ranges, [(60, 5), (65, 64), (129, 31), (165, 10), (1, 3)]);
    let pieces = record(|recorder| {
        recorder.on_joined(at(1, 60));
        let all = lines(at(1, 60), 100);
        for (i, line) in all.chunks(7).enumerate() {
            recorder.on_lines(at(1, 60 + 7 * i as u64), line);
        }
        recorder.on_gap(Gap { first: at(1, 160), count: 5, cause: LossCause::Missing });
        recorder.on_lines(at(1, 165), &lines(at(1, 165), 10));
        recorder.on_epoch(Epoch(2));
        recorder.on_lines(at(2, 1), &lines(at(2, 1), 3));
        recorder.on_end(at(2, 4));
    });
    assert_eq!(whole, pieces);
    assert_eq!(wrongs(&whole), []);
}

#[test]
fn a_recorder_writes_down_what_it_is_given_even_if_that_is_wrong() {
    let entries = record(|recorder| {
        recorder.on_joined(at(1, 1));
        recorder.on_lines(at(1, 1), &lines(at(1, 1), 10));
        recorder.on_lines(at(1, 12), &lines(at(1, 12), 10));
    });
    assert_eq!(wrongs(&entries), [Wrong::Skipped { expected: at(1, 11), found: at(1, 12) }]);
    let entries = record(|recorder| {
        recorder.on_joined(at(1, 1));
        recorder.on_lines(at(1, 1), &lines(at(1, 1), 10));
        recorder.on_lines(at(1, 10), &lines(at(1, 10), 10));
    });
    assert_eq!(wrongs(&entries), [Wrong::Repeated { expected: at(1, 11), found: at(1, 10) }]);
}

#[test]
fn each_way_to_be_out_of_order_has_its_name() {
    let joined = Entry::Joined { at: at(2, 1) };
    let run = |first, count| Entry::Lines { first, count, sum: 5 };
    let gap = |first, count| Entry::Gap { first, count, cause: LossCause::Missing };
    assert_eq!(wrongs(&[run(at(2, 1), 1)]), [Wrong::NotJoined { found: at(2, 1) }]);
    assert_eq!(wrongs(&[joined, run(at(1, 1), 1)]), [Wrong::OldEpoch { expected: at(2, 1), found: at(1, 1) }]);
    assert_eq!(wrongs(&[joined, run(at(3, 1), 1)]), [Wrong::NewEpoch { found: at(3, 1) }]);
    assert_eq!(wrongs(&[joined, gap(at(2, 1), 5), run(at(2, 6), 1)]), []);
    assert_eq!(
        wrongs(&[joined, gap(at(2, 1), 5), run(at(2, 5), 1)]),
        [Wrong::Repeated { expected: at(2, 6), found: at(2, 5) }]
    );
    let epoch = |to| Entry::Epoch { from: at(2, 1), to: Epoch(to) };
    assert_eq!(wrongs(&[joined, epoch(3), run(at(3, 1), 1)]), []);
    assert_eq!(wrongs(&[joined, epoch(2)]), [Wrong::EpochBackwards { from: Epoch(2), to: Epoch(2) }]);
    assert_eq!(
        wrongs(&[joined, epoch(3), run(at(2, 1), 1)]),
        [Wrong::OldEpoch { expected: at(3, 1), found: at(2, 1) }]
    );
    assert_eq!(
        wrongs(&[joined, Entry::Ended { at: at(2, 2) }]),
        [Wrong::EndElsewhere { expected: at(2, 1), found: at(2, 2) }]
    );
    assert_eq!(wrongs(&[joined, Entry::Closed { at: at(2, 1) }, run(at(2, 1), 1)]), [Wrong::AfterClose]);
    assert_eq!(wrongs(&[Entry::Name([0; 24])]), [Wrong::Misplaced]);
    let hole = Entry::Unlogged { until: at(2, 500), entries: 9 };
    assert_eq!(wrongs(&[joined, run(at(2, 1), 1), hole, run(at(2, 500), 1)]), []);
    let digest = |at| Entry::Digest { at, instrument: InstrumentId(1), book: Some(1) };
    assert_eq!(wrongs(&[joined, digest(at(2, 1)), digest(at(2, 2)), run(at(2, 1), 2)]), []);
    assert_eq!(wrongs(&[joined, run(at(2, 1), 2), digest(at(2, 2))]), [Wrong::DigestElsewhere { at: at(2, 2) }]);
    assert_eq!(wrongs(&[joined, digest(at(2, 1)), gap(at(2, 1), 1)]), [Wrong::DigestElsewhere { at: at(2, 1) }]);
}

#[test]
fn counts_that_no_log_can_reach_stay_at_their_end() {
    let many = Entry::Unlogged { until: at(2, 9), entries: u64::MAX - 1 };
    let mut entries = vec![Entry::Joined { at: at(2, 1) }, many, many];
    // The largest gap there is within an epoch, epoch after epoch.
    let most = (1 << 48) - 2;
    for epoch in 3..10 {
        entries.push(Entry::Epoch { from: at(epoch - 1, if epoch == 3 { 9 } else { most + 1 }), to: Epoch(epoch) });
        entries.push(Entry::Gap { first: at(epoch, 1), count: most, cause: LossCause::Missing });
    }
    let history = check(&[(Role::Subscriber, entries)]);
    let section = &history.logs[0].sections[0];
    assert_eq!((section.unlogged, section.lost_total()), (u64::MAX, 7 * most));
    assert_eq!(history.problems, []);
}

#[test]
fn a_log_continued_by_another_process_may_not_go_back_to_an_old_epoch() {
    let part = |epoch| [Entry::Joined { at: at(epoch, 9) }, Entry::Closed { at: at(epoch, 9) }];
    let mut entries = part(2).to_vec();
    entries.extend(Entry::beginning(begin(Role::Subscriber), "itch"));
    let mut older = entries.clone();
    entries.extend(part(2));
    assert_eq!(wrongs(&entries), []);
    older.extend(part(1));
    assert_eq!(wrongs(&older), [Wrong::EpochBackwards { from: Epoch(2), to: Epoch(1) }]);
}

fn published(count: u64) -> Vec<Entry> {
    record(|recorder| {
        recorder.on_joined(at(1, 1));
        recorder.on_digest(at(1, 3), InstrumentId(1), OwnDigest::Book(1, 2, 3));
        recorder.on_lines(at(1, 1), &lines(at(1, 1), count));
        recorder.on_end(at(1, count + 1));
    })
}

#[test]
fn lines_that_two_logs_have_in_other_pieces_are_counted_once() {
    // It joins within the first block, and breaks off within the second.
    let part = record(|recorder| {
        recorder.on_joined(at(1, 10));
        recorder.on_lines(at(1, 10), &lines(at(1, 10), 91));
    });
    let history = check(&[(Role::Publisher, published(200)), (Role::Subscriber, part)]);
    assert!(history.problems.is_empty(), "{:?}", history.problems);
    assert_eq!((history.totals.lines, history.totals.lines_compared), (200, 0));
}

#[test]
fn logs_are_held_against_each_other() {
    let publisher = || (Role::Publisher, published(200));
    let history = check(&[publisher(), (Role::Subscriber, published(200)), (Role::Recovery, published(128))]);
    let wrong: Vec<Wrong> = history.problems.iter().map(|problem| problem.wrong).collect();
    assert_eq!(wrong, [Wrong::EndNotPublished { found: at(1, 129) }]);
    assert_eq!((history.totals.lines, history.totals.lines_compared), (200, 200));
    assert_eq!((history.totals.digests, history.totals.digests_compared), (1, 1));

    let alter = |change: &dyn Fn(&mut Entry)| {
        let mut entries = published(200);
        entries.iter_mut().for_each(change);
        let history = check(&[publisher(), (Role::Subscriber, entries)]);
        history.problems.into_iter().map(|problem| problem.wrong).collect::<Vec<Wrong>>()
    };
    let found = alter(&|entry| {
        if let Entry::Lines { first, sum, .. } = entry
            && *first == at(1, 65)
        {
            *sum ^= 1;
        }
    });
    assert_eq!(found, [Wrong::LinesDiffer { first: at(1, 65), count: 64, other: 0, at_offset: 5 * ENTRY_LEN as u64 }]);
    let found = alter(&|entry| {
        if let Entry::Digest { book, .. } = entry {
            *book = Some(4);
        }
    });
    assert!(matches!(found[..], [Wrong::DigestsDiffer { other: 0, .. }]), "{found:?}");
    let found = alter(&|entry| {
        if let Entry::Digest { at, .. } = entry {
            *at = at.plus(1);
        }
    });
    assert!(matches!(found[..], [Wrong::DigestNeverSent { other: 0, .. }]), "{found:?}");

    let history = check(&[publisher(), (Role::Subscriber, published(300))]);
    let wrong: Vec<Wrong> = history.problems.iter().map(|problem| problem.wrong).collect();
    assert!(wrong.contains(&Wrong::BeyondTheEnd { found: at(1, 301), end: at(1, 201) }), "{wrong:?}");
    // One that had nothing to say before it ended is followed by whoever heard its heartbeats, and by nobody further.
    let silent = record(|recorder| recorder.on_joined(at(2, 1)));
    let follower = |count| {
        let log = record(|recorder| {
            recorder.on_joined(at(1, 201));
            recorder.on_epoch(Epoch(2));
            recorder.on_lines(at(2, 1), &lines(at(2, 1), count));
        });
        check(&[publisher(), (Role::Publisher, silent.clone()), (Role::Subscriber, log)])
    };
    assert!(follower(0).is_sound(), "{:?}", follower(0).problems);
    assert_eq!(follower(1).problems[0].wrong, Wrong::BeyondTheEnd { found: at(2, 2), end: at(2, 1) });
    // One that was cut off may have published what is not in its log any more.
    let mut killed = published(200);
    killed.pop();
    let history = check(&[(Role::Publisher, killed), (Role::Subscriber, published(300))]);
    assert!(history.is_sound(), "{:?}", history.problems);
}

#[test]
fn a_log_that_was_cut_off_is_good_up_to_its_last_whole_entry_and_a_damaged_one_is_not() {
    let whole = file(Role::Subscriber, &published(200));
    for len in 0..=whole.len() {
        let mut checker = Checker::new();
        checker.add("cut", &whole[..len]);
        let history = checker.finish();
        assert!(history.is_sound(), "{len} bytes: {:?}", history.problems);
        assert_eq!(history.logs[0].cut_bytes, (len % ENTRY_LEN) as u64);
        assert_eq!(history.logs[0].sections.iter().any(|part| part.closed), len == whole.len());
    }
    for byte in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[byte] ^= 0x10;
        let mut checker = Checker::new();
        checker.add("damaged", &damaged);
        let history = checker.finish();
        assert_eq!(history.problems[0].offset, (byte / ENTRY_LEN * ENTRY_LEN) as u64, "byte {byte}");
    }
    let mut checker = Checker::new();
    checker.add("another file", b"#!/usr/bin/env bash\nset -euo pipefail\ncd somewhere\n");
    assert_eq!(checker.finish().problems[0].wrong, Wrong::NotALog);
}

#[test]
fn lossless_is_more_than_sound() {
    let lossless = |entries: &[Entry]| {
        let mut checker = Checker::new().lossless();
        checker.add("log", &file(Role::Subscriber, entries));
        checker.finish().problems.into_iter().map(|problem| problem.wrong).collect::<Vec<Wrong>>()
    };
    assert_eq!(lossless(&published(100)), []);
    let joined = Entry::Joined { at: at(1, 1) };
    let gap = Entry::Gap { first: at(1, 1), count: 4, cause: LossCause::Lapped };
    let (end, closed) = (Entry::Ended { at: at(1, 5) }, Entry::Closed { at: at(1, 5) });
    assert_eq!(lossless(&[joined, gap, end, closed]), [Wrong::Lossy { lost: 4, unlogged: 0 }]);
    assert_eq!(lossless(&[joined, Entry::Closed { at: at(1, 1) }]), [Wrong::NoEnd]);
}
