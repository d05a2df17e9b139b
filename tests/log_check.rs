//! The history that several participants wrote down, true and corrupted: a true one passes, each corruption is found.

#![forbid(unsafe_code)]

use bookcast_tests::stream::{BOOKS, random_lines};
use protocol::arbiter::{Arbiter, ArbiterConfig, Delivery};
use protocol::book::Start;
use protocol::line::{Epoch, Line, SequenceNumber, Stamp};
use protocol::log::{
    BLOCK_LINES, Begin, Checker, ENTRY_LEN, Entry, History, Logged, OwnDigest, OwnDigests, Recorder, Role,
};
use protocol::record::{Kind, Lane};
use protocol::recovery::{Responder, ResponderConfig};
use protocol::run::{Carrier, LanePath, Position, Run, RunSink};
use protocol::time::Nanos;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use subscriber::{Engine, EngineConfig, Selection};

const SEEDS: u64 = 24;
const PATH: LanePath = LanePath::new(Lane::new(0), Carrier::Udp);

type Log = (Role, Vec<Entry>);

/// Two epochs of a random stream.
fn stream(seed: u64) -> Vec<Vec<Line>> {
    let first = random_lines(seed, 1_500, Start::Strict);
    let second = random_lines(seed ^ 1 << 40, 1_000, Start::Strict);
    let again =
        |(line, sequence): (&Line, u64)| Line::seal(line.record, Stamp::new(Epoch(2), SequenceNumber(sequence)));
    vec![first, second.iter().zip(1..).map(again).collect()]
}

fn stamp_of(lines: &[Line], at: usize) -> Stamp {
    let epoch = lines[0].stamp().epoch();
    Stamp::new(epoch, SequenceNumber(at as u64 + 1))
}

fn publisher(epoch: &[Line]) -> Log {
    let mut log = Recorder::new(Vec::new());
    let first = stamp_of(epoch, 0);
    log.on_joined(first);
    for (at, line) in epoch.iter().enumerate().filter(|(_, line)| line.record.kind == Kind::BOOK_DIGEST) {
        log.on_digest(first.plus(at as u64), line.record.instrument_id(), OwnDigest::of_record(&line.record));
    }
    log.on_lines(first, epoch);
    log.on_end(first.plus(epoch.len() as u64));
    log.close();
    (Role::Publisher, log.sink().clone())
}

/// What comes to a participant by a path that loses, doubles and swaps packets.
fn receive(
    stream: &[Vec<Line>],
    random: &mut Pcg64Mcg,
    loss: f64,
    from: usize,
    target: &mut (impl Delivery + OwnDigests),
) -> Vec<Entry> {
    let mut log = Recorder::new(Vec::new());
    let mut arbiter = Arbiter::new(ArbiterConfig { early_lines: 256, hedge_ns: 50, ..ArbiterConfig::default() });
    let mut now = 0;
    for (number, epoch) in stream.iter().enumerate() {
        let mut at = if number == 0 { from } else { 0 };
        let mut held: Option<(Stamp, &[Line])> = None;
        while at < epoch.len() {
            let count = random.random_range(1..20).min(epoch.len() - at);
            let packet = (stamp_of(epoch, at), &epoch[at..at + count]);
            at += count;
            now += 10;
            if random.random_bool(loss) {
                continue;
            }
            let mut packets = vec![packet];
            if random.random_bool(0.05) {
                packets.push(packet);
            }
            if let Some(late) = held.take() {
                packets.push(late);
            } else if random.random_bool(0.05) {
                held = packets.pop();
            }
            for (first, lines) in packets {
                let mut logged = Logged::new(target, &mut log);
                arbiter.sink(Nanos(now), &mut logged).on_run(Run { path: PATH, first, lines, publish_time: None });
                arbiter.on_timeout(Nanos(now), &mut logged);
            }
        }
        let next = stamp_of(epoch, epoch.len());
        let mut logged = Logged::new(target, &mut log);
        arbiter.sink(Nanos(now), &mut logged).on_position(Position {
            path: PATH,
            next,
            publish_time: None,
            ended: true,
        });
        now += 1_000;
        arbiter.on_timeout(Nanos(now), &mut logged);
    }
    log.close();
    log.sink().clone()
}

/// Publishers of both epochs, a recovery server that loses nothing, subscribers that do; one of them came late.
fn history(seed: u64) -> Vec<Log> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let stream = stream(seed);
    let mut logs: Vec<Log> = stream.iter().map(|epoch| publisher(epoch)).collect();
    let mut server = Responder::new(ResponderConfig { books: BOOKS, ..ResponderConfig::default() });
    logs.push((Role::Recovery, receive(&stream, &mut random, 0.0, 0, &mut server)));
    for (loss, from) in [(0.02, 0), (0.2, 0), (0.05, 700)] {
        let config = EngineConfig { selection: Selection::all(), books: BOOKS, start: Start::Strict };
        let (mut engine, mut handler) = (Engine::new(config), ());
        let log = receive(&stream, &mut random, loss, from, &mut engine.turn(Nanos(0), &mut handler));
        logs.push((Role::Subscriber, log));
    }
    logs
}

fn bytes((role, entries): &Log) -> Vec<u8> {
    let begin = Begin { role: *role, lane: 0, pid: 1, time_ns: 2, name_len: 0 };
    let beginning = Entry::beginning(begin, "random");
    beginning.iter().chain(entries).zip(0..).flat_map(|(entry, number)| entry.seal(number)).collect()
}

fn check(logs: &[Log]) -> History {
    let mut checker = Checker::new();
    for (number, log) in logs.iter().enumerate() {
        checker.add(&format!("{} {number}", log.0.name()), &bytes(log));
    }
    checker.finish()
}

/// Which entries a corruption can be done to, so that a checker can find it.
fn places(entries: &[Entry], fits: impl Fn(&Entry) -> bool) -> Vec<usize> {
    entries.iter().enumerate().filter(|(_, entry)| fits(entry)).map(|(at, _)| at).collect()
}

fn moves(entry: &Entry) -> bool {
    matches!(entry, Entry::Lines { .. } | Entry::Gap { .. } | Entry::Epoch { .. })
}

/// Whether everything of this gap's only block but the gap itself was delivered, and the gap is short: told as delivered,
/// the block is whole.
fn hides_in_a_block(entries: &[Entry], at: usize) -> bool {
    let Entry::Gap { first, count, .. } = entries[at] else { return false };
    let block = |stamp: Stamp| (stamp.sequence().0 - 1) / BLOCK_LINES;
    let is_other_gap = |(other, entry): (usize, &Entry)| match entry {
        Entry::Gap { first: start, count: more, .. } => {
            other != at
                && start.epoch() == first.epoch()
                && (block(*start)..=block(Stamp(start.0 + more - 1))).contains(&block(first))
        }
        Entry::Joined { at } => at.epoch() == first.epoch() && at.sequence().0 > 1 && block(*at) == block(first),
        _ => false,
    };
    let is_whole = entries.iter().any(|entry| {
        matches!(entry, Entry::Lines { first: start, count: more, .. }
            if start.epoch() == first.epoch() && block(*start) == block(first) && start.0 + more > first.0 + count
                && (start.sequence().0 + more - 1).is_multiple_of(BLOCK_LINES))
    });
    block(first) == block(Stamp(first.0 + count - 1)) && is_whole && !entries.iter().enumerate().any(is_other_gap)
}

/// What is done to a log. Each is sealed anew: only what it says can give it away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Corruption {
    Drop,
    Double,
    Swap,
    Shift,
    Lengthen,
    Shorten,
    OtherLines,
    OtherBook,
    DigestMoved,
    EpochChanged,
    EndMoved,
    CloseMoved,
    JoinMoved,
    GapHidden,
    OldEpochLate,
}

const ALL: [Corruption; 15] = [
    Corruption::Drop,
    Corruption::Double,
    Corruption::Swap,
    Corruption::Shift,
    Corruption::Lengthen,
    Corruption::Shorten,
    Corruption::OtherLines,
    Corruption::OtherBook,
    Corruption::DigestMoved,
    Corruption::EpochChanged,
    Corruption::EndMoved,
    Corruption::CloseMoved,
    Corruption::JoinMoved,
    Corruption::GapHidden,
    Corruption::OldEpochLate,
];

/// Corrupts a log; false if there is nothing in it that this can be done to.
fn corrupt(entries: &mut Vec<Entry>, what: Corruption, random: &mut Pcg64Mcg) -> bool {
    let choices = match what {
        Corruption::Drop | Corruption::Double => places(entries, moves),
        Corruption::Swap => (1..entries.len()).filter(|at| moves(&entries[at - 1]) && moves(&entries[*at])).collect(),
        Corruption::Shift | Corruption::Lengthen => {
            places(entries, |entry| matches!(entry, Entry::Lines { .. } | Entry::Gap { .. }))
        }
        Corruption::Shorten => places(entries, |entry| matches!(entry, Entry::Lines { count: 2.., .. })),
        // A whole block, which the publisher's log has too.
        Corruption::OtherLines => places(entries, |entry| matches!(entry, Entry::Lines { count: BLOCK_LINES, .. })),
        Corruption::OtherBook | Corruption::DigestMoved => {
            places(entries, |entry| matches!(entry, Entry::Digest { book: Some(_), .. }))
        }
        Corruption::EpochChanged | Corruption::OldEpochLate => {
            places(entries, |entry| matches!(entry, Entry::Epoch { .. }))
        }
        Corruption::EndMoved => places(entries, |entry| matches!(entry, Entry::Ended { .. })),
        Corruption::CloseMoved => places(entries, |entry| matches!(entry, Entry::Closed { .. })),
        Corruption::JoinMoved => places(entries, |entry| matches!(entry, Entry::Joined { .. })),
        Corruption::GapHidden => (0..entries.len()).filter(|at| hides_in_a_block(entries, *at)).collect(),
    };
    if choices.is_empty() {
        return false;
    }
    let at = choices[random.random_range(0..choices.len())];
    let by = random.random_range(1..100);
    match (what, &mut entries[at]) {
        (Corruption::Drop, _) => drop(entries.remove(at)),
        (Corruption::Double, _) => entries.insert(at, entries[at]),
        (Corruption::Swap, _) => entries.swap(at - 1, at),
        (Corruption::Shift, Entry::Lines { first, .. } | Entry::Gap { first, .. }) => *first = first.plus(by),
        (Corruption::Lengthen, Entry::Lines { count, .. } | Entry::Gap { count, .. }) => *count += by,
        (Corruption::Shorten, Entry::Lines { count, .. }) => *count -= 1,
        (Corruption::OtherLines, Entry::Lines { sum, .. }) => *sum ^= 1 << (by % 64),
        (Corruption::OtherBook, Entry::Digest { book, .. }) => *book = book.map(|book| book ^ 1 << (by % 64)),
        (Corruption::DigestMoved, Entry::Digest { at, .. }) => *at = at.plus(by),
        (Corruption::EpochChanged, Entry::Epoch { to, .. }) => *to = Epoch(to.0 + 1),
        (Corruption::EndMoved, Entry::Ended { at }) | (Corruption::CloseMoved, Entry::Closed { at }) => {
            *at = at.plus(by);
        }
        (Corruption::JoinMoved, Entry::Joined { at }) => *at = at.plus(by),
        (Corruption::GapHidden, Entry::Gap { first, count, .. }) => {
            entries[at] = Entry::Lines { first: *first, count: *count, sum: random.random() };
        }
        (Corruption::OldEpochLate, _) => {
            let old =
                entries.iter().rfind(|entry| matches!(entry, Entry::Lines { first, .. } if first.epoch() == Epoch(1)));
            let old = *old.expect("it was there in epoch 1");
            entries.insert(at + 1, old);
        }
        (what, entry) => unreachable!("{what:?} of {entry:?}"),
    }
    true
}

#[test]
fn a_true_history_passes_and_most_of_it_is_held_against_another_log() {
    for seed in 0..SEEDS {
        let logs = history(seed);
        let history = check(&logs);
        assert!(history.is_sound(), "seed {seed}: {:?}", history.problems);
        let totals = history.totals;
        assert_eq!((totals.digests_compared > 20, history.unpublished.len()), (true, 0), "seed {seed}: {totals:?}");
        assert!(totals.lines_compared > 2_000, "seed {seed}: {totals:?}");
        let lost: u64 = history.logs.iter().flat_map(|log| &log.sections).map(|part| part.lost_total()).sum();
        assert!(lost > 100, "seed {seed}: {lost} lines lost");
    }
}

#[test]
fn each_corruption_of_a_true_history_is_found() {
    let mut found = [0; ALL.len()];
    for seed in 0..SEEDS {
        let truth = history(seed);
        let mut random = Pcg64Mcg::seed_from_u64(!seed);
        for (kind, what) in ALL.into_iter().enumerate() {
            for round in 0..8 {
                let mut logs = truth.clone();
                let victim = random.random_range(0..logs.len());
                if !corrupt(&mut logs[victim].1, what, &mut random) {
                    continue;
                }
                let history = check(&logs);
                assert!(!history.is_sound(), "seed {seed}, round {round}: {what:?} of log {victim} was not found");
                found[kind] += 1;
            }
        }
    }
    println!("found: {:?}", ALL.iter().zip(found).collect::<Vec<_>>());
    assert!(found.iter().all(|count| *count >= 20), "each was tried: {found:?}");
}

#[test]
fn a_flipped_bit_is_found_where_it_is_and_a_cut_log_is_good_as_far_as_it_goes() {
    for seed in 0..SEEDS {
        let truth = history(seed);
        let mut random = Pcg64Mcg::seed_from_u64(seed << 8);
        for _ in 0..8 {
            let victim = random.random_range(0..truth.len());
            let whole = bytes(&truth[victim]);
            let at = random.random_range(0..whole.len());
            let is_cut = random.random();
            let mut changed = whole.clone();
            if is_cut {
                changed.truncate(at);
            } else {
                changed[at] ^= 1 << random.random_range(0..8);
            }
            let mut checker = Checker::new();
            for (number, log) in truth.iter().enumerate() {
                if number == victim {
                    checker.add("changed", &changed);
                } else {
                    checker.add("true", &bytes(log));
                }
            }
            let history = checker.finish();
            if is_cut {
                assert!(history.is_sound(), "seed {seed}, {at} bytes of log {victim}: {:?}", history.problems);
            } else {
                let problem = history.problems.iter().find(|problem| problem.log == victim);
                let problem = problem.unwrap_or_else(|| panic!("seed {seed}: byte {at} of log {victim}"));
                assert_eq!(problem.offset, (at / ENTRY_LEN * ENTRY_LEN) as u64, "seed {seed}, log {victim}");
            }
        }
    }
}
