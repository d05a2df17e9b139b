//! What every lane promises.
//!
//! Each line's content is a function of its stamp, so that a reader can tell the truth from any mixture by itself. Time is
//! virtual: it advances with every poll. Only UDP also takes real time, so waits end at a deadline far beyond what they
//! need.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use protocol::line::{Line, SequenceNumber, Stamp};
use protocol::record::{InstrumentId, Kind, Record};
use protocol::run::{LanePath, LossCause, Position, Run, RunSink};
use protocol::time::Nanos;
use transport::fault::{FaultCounts, FaultInjector, FaultPlan};
use transport::ring::RingWriter;
use transport::{LaneRx, LaneTx};

use crate::harness::{EPOCH, Faulty, Harness, LANE};

/// Virtual time from one poll to the next, ns.
const POLL_NS: u64 = 10_000;
/// Real time after which a wait has failed: a hundred times what loopback takes on a busy machine.
const DEADLINE: Duration = Duration::from_secs(10);
/// A poll without a limit of its own.
const UNLIMITED: usize = 1 << 20;

fn stamp(sequence: u64) -> Stamp {
    Stamp::new(EPOCH, SequenceNumber(sequence))
}

/// The line of `sequence`: each field a different function of it.
fn line(sequence: u64) -> Line {
    let mixed = sequence.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut record = Record::new(Kind::ADD, InstrumentId(1 + (mixed >> 60) as u32));
    record.ts_event.set(1_000_000_000 + sequence * 100);
    record.order_id.set(mixed);
    record.price.set((mixed >> 7) as i64 - (1 << 40));
    record.size.set(mixed.rotate_left(20));
    record.ts_capture.set(mixed as u32);
    record.instrument_seq.set(sequence as u32);
    record.venue_seq.set((mixed >> 32) as u32);
    Line::seal(record, stamp(sequence))
}

/// What a reader was handed, checked line by line as it came.
#[derive(Default)]
struct Seen {
    /// Sequence numbers of the lines, in order of arrival.
    sequences: Vec<u64>,
    positions: Vec<Position>,
    /// Sequence numbers that the lane declared lost.
    declared: BTreeSet<u64>,
    /// Whether a line after the last position came; then the position says nothing about the end.
    lines_after_position: bool,
}

impl RunSink for Seen {
    fn on_run(&mut self, run: Run<'_>) {
        assert!(!run.lines.is_empty(), "an empty run at {}", run.first);
        assert_eq!((run.path.lane, run.first.epoch()), (LANE, EPOCH), "run at {}", run.first);
        for (i, got) in run.lines.iter().enumerate() {
            let at = run.first.plus(i as u64);
            assert_eq!(*got, line(at.sequence().0), "content of {at}");
            assert!(got.verifies(at), "{at} does not verify");
            self.sequences.push(at.sequence().0);
        }
        assert_eq!(run.end(), run.first.plus(run.lines.len() as u64));
        self.lines_after_position = true;
    }

    fn on_position(&mut self, position: Position) {
        assert_eq!((position.path.lane, position.next.epoch()), (LANE, EPOCH), "{position:?}");
        self.positions.push(position);
        self.lines_after_position = false;
    }

    fn on_loss(&mut self, path: LanePath, first: Stamp, count: u64, _: LossCause) {
        assert_eq!((path.lane, first.epoch()), (LANE, EPOCH), "loss at {first}");
        assert!(count > 0, "a loss of nothing at {first}");
        for sequence in first.sequence().0..first.sequence().0 + count {
            assert!(self.declared.insert(sequence), "{sequence} declared lost twice");
        }
    }
}

impl Seen {
    /// Strictly ascending: so nothing came twice, and nothing out of order.
    fn assert_ascending(&self) {
        for pair in self.sequences.windows(2) {
            assert!(pair[0] < pair[1], "{} came after {}", pair[1], pair[0]);
        }
    }
}

/// A reader and what it has seen.
struct Reader<R> {
    rx: R,
    seen: Seen,
}

impl<R: LaneRx> Reader<R> {
    fn new(rx: R) -> Reader<R> {
        Reader { rx, seen: Seen::default() }
    }

    /// One poll; what it returns must be what was handed up.
    fn poll(&mut self, now: &mut Nanos, limit: usize) -> usize {
        *now = now.plus(POLL_NS);
        let before = self.seen.sequences.len();
        let returned = self.rx.poll(*now, limit, &mut self.seen);
        assert_eq!(returned, self.seen.sequences.len() - before, "lines returned and lines handed up");
        returned
    }

    /// Polls until `done`.
    fn poll_until(&mut self, now: &mut Nanos, what: &str, done: impl Fn(&Seen) -> bool) {
        let start = Instant::now();
        while !done(&self.seen) {
            if self.poll(now, UNLIMITED) == 0 {
                assert!(
                    start.elapsed() < DEADLINE,
                    "no {what} in {DEADLINE:?}: {} lines, the last {:?}; last position {:?}; {} declared lost",
                    self.seen.sequences.len(),
                    self.seen.sequences.last(),
                    self.seen.positions.last(),
                    self.seen.declared.len()
                );
                std::thread::yield_now();
            }
        }
    }

    /// Polls until line `sequence` came.
    fn poll_until_line(&mut self, now: &mut Nanos, sequence: u64) {
        self.poll_until(now, &format!("line {sequence}"), |seen| seen.sequences.last() >= Some(&sequence));
    }

    /// Polls until nothing has come for `polls` polls in a row.
    fn poll_until_quiet(&mut self, now: &mut Nanos, polls: usize) {
        let mut quiet = 0;
        while quiet < polls {
            quiet = if self.poll(now, UNLIMITED) == 0 { quiet + 1 } else { 0 };
        }
    }
}

/// A ring with its lane's sending half.
struct Writer<T> {
    ring: RingWriter,
    tx: T,
}

impl<T: LaneTx> Writer<T> {
    /// The sequence number of the last line put; 0 before the first.
    fn last(&self) -> u64 {
        self.ring.next().sequence().0 - 1
    }

    /// Puts `count` lines and flushes once.
    fn put(&mut self, now: Nanos, count: usize) {
        for _ in 0..count {
            let next = line(self.ring.next().sequence().0);
            self.ring.put(&next);
        }
        self.ring.flush();
        self.tx.flush(&self.ring, now);
    }

    fn heartbeat(&mut self, now: Nanos, ended: bool) {
        self.ring.heartbeat(now, ended);
        self.tx.heartbeat(&self.ring, now, ended);
    }
}

fn make<H: Harness>(harness: &mut H, capacity: usize) -> (Writer<H::Tx>, Reader<H::Rx>, Nanos) {
    let (ring, tx, rx) = harness.make(capacity);
    (Writer { ring, tx }, Reader::new(rx), Nanos(1_700_000_000_000_000_000))
}

pub(crate) fn every_line_comes_once_in_order<H: Harness>(harness: &mut H) {
    for batch in [1, 2, 22, 63, 64, 100, 1000] {
        // 2500 lines go more than twice round the ring, and no batch size divides it but those that are powers of two.
        let (mut writer, mut reader, mut now) = make(harness, 1024);
        while writer.last() < 2500 {
            writer.put(now, batch);
            reader.poll_until_line(&mut now, writer.last());
        }
        assert_eq!(reader.seen.sequences, (1..=writer.last()).collect::<Vec<_>>(), "batch {batch}");
        assert!(reader.seen.declared.is_empty(), "batch {batch}: {:?}", reader.seen.declared);
        reader.poll_until_quiet(&mut now, 10);
        assert_eq!(reader.seen.sequences.len() as u64, writer.last(), "batch {batch}: more came after the last line");
    }
}

pub(crate) fn heartbeats_say_where_the_writer_stands<H: Harness>(harness: &mut H) {
    let (mut writer, mut reader, mut now) = make(harness, 256);
    for lines in [0, 1, 50, 0, 300] {
        for _ in 0..lines {
            writer.put(now, 1);
            reader.poll_until_line(&mut now, writer.last());
        }
        let before = reader.seen.positions.len();
        let sent = now;
        writer.heartbeat(now, false);
        reader.poll_until(&mut now, "heartbeat", |seen| seen.positions.len() > before);
        for position in &reader.seen.positions[before..] {
            assert_eq!((position.next, position.ended), (writer.ring.head(), false), "after {} lines", writer.last());
            assert!(position.publish_time.is_none_or(|time| time == sent), "{position:?}, sent at {sent:?}");
        }
    }
    assert_eq!(reader.seen.sequences, (1..=351).collect::<Vec<_>>());
    // The line after a heartbeat has the very stamp that the heartbeat named.
    writer.put(now, 1);
    reader.poll_until_line(&mut now, 352);
    assert_eq!(reader.seen.sequences.len(), 352);
    assert!(reader.seen.positions.iter().all(|position| !position.ended));
}

pub(crate) fn the_end_of_the_session_is_seen<H: Harness>(harness: &mut H) {
    let (mut writer, mut reader, mut now) = make(harness, 256);
    writer.put(now, 100);
    writer.heartbeat(now, true);
    reader.poll_until(&mut now, "end of session", |seen| seen.positions.iter().any(|position| position.ended));
    let ended = reader.seen.positions.iter().find(|position| position.ended).copied().expect("just seen");
    assert_eq!(ended.next, stamp(101));
    reader.poll_until_line(&mut now, 100);
    assert_eq!(reader.seen.sequences, (1..=100).collect::<Vec<_>>());
}

pub(crate) fn a_reader_that_slept_learns_what_it_missed<H: Harness>(harness: &mut H) {
    let (mut writer, mut reader, mut now) = make(harness, 1024);
    writer.put(now, 10);
    reader.poll_until_line(&mut now, 10);
    while writer.last() < 20_010 {
        writer.put(now, 50);
    }
    // A full queue swallows heartbeats too, so they are repeated, as a publisher does.
    let start = Instant::now();
    while reader.seen.lines_after_position || reader.seen.positions.last().map(|p| p.next) != Some(writer.ring.head()) {
        assert!(start.elapsed() < DEADLINE, "no position at {} within {DEADLINE:?}", writer.ring.head());
        writer.heartbeat(now, false);
        reader.poll_until_quiet(&mut now, 10);
    }
    reader.seen.assert_ascending();
    let delivered: BTreeSet<u64> = reader.seen.sequences.iter().copied().collect();
    assert!(delivered.len() < 20_010, "nothing was missed: the test is too short");
    let both = delivered.intersection(&reader.seen.declared).count();
    assert_eq!(both, 0, "declared lost and delivered");
    // What was not delivered lies between two stamps that were, or before the position: a jump names it. A lane that
    // declares losses declares all of them and nothing else.
    let missing: BTreeSet<u64> = (1..=writer.last()).filter(|sequence| !delivered.contains(sequence)).collect();
    let declared = if H::DECLARES_LOSSES { missing } else { BTreeSet::new() };
    assert_eq!(reader.seen.declared, declared);

    // And it goes on as if nothing had been.
    let from = reader.seen.sequences.len();
    for _ in 0..100 {
        writer.put(now, 30);
        reader.poll_until_line(&mut now, writer.last());
    }
    assert_eq!(reader.seen.sequences[from..], (20_011..=23_010).collect::<Vec<_>>());
}

pub(crate) fn the_limit_is_respected<H: Harness>(harness: &mut H) {
    for limit in [1, 30, 100, 1000] {
        let (mut writer, mut reader, mut now) = make(harness, 1024);
        writer.put(now, 1000);
        assert_eq!(reader.poll(&mut now, 0), 0, "lines from a poll with limit 0");
        let start = Instant::now();
        while reader.seen.sequences.len() < 1000 {
            assert!(start.elapsed() < DEADLINE, "limit {limit}: {} of 1000 lines", reader.seen.sequences.len());
            // One packet, or one of the ring reader's batches, is the grain.
            let lines = reader.poll(&mut now, limit);
            assert!(lines < limit + 64, "{lines} lines from a poll with limit {limit}");
        }
        assert_eq!(reader.seen.sequences, (1..=1000).collect::<Vec<_>>(), "limit {limit}");
    }
}

pub(crate) fn a_second_reader_starts_cleanly<H: Harness>(harness: &mut H) {
    let (mut writer, mut first, mut now) = make(harness, 256);
    for _ in 0..50 {
        writer.put(now, 10);
        first.poll_until_line(&mut now, writer.last());
    }
    let mut second = Reader::new(harness.join(&writer.ring, &mut writer.tx));
    second.poll_until_quiet(&mut now, 10);
    for _ in 0..50 {
        writer.put(now, 10);
        first.poll_until_line(&mut now, writer.last());
        second.poll_until_line(&mut now, writer.last());
    }
    assert_eq!(first.seen.sequences, (1..=1000).collect::<Vec<_>>());
    // It may get older lines that the transport still held; what it gets is without a hole, and all from its joining on.
    let start = second.seen.sequences[0];
    assert!(start <= 501, "the second reader starts at {start}, and joined before 501");
    assert_eq!(second.seen.sequences, (start..=1000).collect::<Vec<_>>());
    assert!(second.seen.declared.is_empty(), "lost to a reader that has just joined: {:?}", second.seen.declared);
}

pub(crate) fn a_sleeping_reader_does_not_hold_up_its_neighbour<H: Harness>(harness: &mut H) {
    let (mut writer, mut awake, mut now) = make(harness, 1024);
    let mut asleep = Reader::new(harness.join(&writer.ring, &mut writer.tx));
    while writer.last() < 20_000 {
        writer.put(now, 100);
        awake.poll_until_line(&mut now, writer.last());
    }
    assert_eq!(awake.seen.sequences, (1..=20_000).collect::<Vec<_>>());
    assert!(awake.seen.declared.is_empty());
    asleep.poll_until_quiet(&mut now, 100);
    asleep.seen.assert_ascending();
    assert!(asleep.seen.sequences.len() < 20_000, "it missed nothing: the test is too short");
}

pub(crate) fn with_faults_what_is_handed_up_is_true<H: Harness>(with_plan: impl Fn(FaultPlan) -> Faulty<H>) {
    for (seed, lines_per_packet) in [(1, 1), (2, 3), (3, 22)] {
        eprintln!("seed {seed}, {lines_per_packet} lines a packet");
        let mut harness = with_plan(FaultPlan {
            drop: 0.05,
            duplicate: 0.05,
            reorder: 0.1,
            reorder_span: 64,
            delay: 0.02,
            delay_ns: 50 * POLL_NS,
            corrupt: 0.03,
            truncate: 0.03,
            lines_per_packet,
            ..FaultPlan::seeded(seed)
        });
        let (mut writer, mut reader, mut now) = make(&mut harness, 4096);
        while writer.last() < 20_000 {
            writer.put(now, 200);
            writer.heartbeat(now, false);
            reader.poll_until_quiet(&mut now, 5);
        }
        // Longer than anything is held.
        reader.poll_until_quiet(&mut now, 400);
        // `Seen` has checked each line's content; here, that the faults were there, and did only what they may.
        let counts = *reader.rx.counts();
        assert_eq!(held(&reader.rx), 0, "seed {seed}");
        assert_every_fault_happened(&counts, seed);
        let distinct: BTreeSet<u64> = reader.seen.sequences.iter().copied().collect();
        assert!(distinct.len() < 20_000, "seed {seed}: nothing was lost");
        assert!(distinct.len() > 15_000, "seed {seed}: {} lines of 20,000 came", distinct.len());
        assert!(distinct.len() < reader.seen.sequences.len(), "seed {seed}: nothing came twice");
        assert!(!reader.seen.sequences.is_sorted(), "seed {seed}: nothing was overtaken");
        assert!(distinct.last() <= Some(&20_000), "seed {seed}: a line that was never written");
        let furthest = reader.seen.positions.iter().map(|position| position.next).max();
        assert!(furthest <= Some(writer.ring.head()), "seed {seed}: a position that was never reached");
    }
}

fn held<R: LaneRx>(rx: &FaultInjector<R>) -> usize {
    rx.held()
}

fn assert_every_fault_happened(counts: &FaultCounts, seed: u64) {
    let each = [
        counts.dropped,
        counts.duplicated,
        counts.reordered,
        counts.delayed,
        counts.corrupted,
        counts.truncated,
        counts.refused_total(),
    ];
    assert!(each.iter().all(|count| *count > 0), "seed {seed}: {counts:?}");
}
