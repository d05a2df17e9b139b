//! The ring under the model checker: every interleaving, and every value that a relaxed load may return, for a ring of
//! two lines of three words, with the latest line.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p transport --release --test loom_ring
//! ```
//!
//! The source under test is the product's ([`transport::ring::core`]). To keep the search within a minute the writer's
//! and the reader's work are cut into scenarios, and a schedule switches threads against their will at most
//! [`PREEMPTIONS`] times; which store a relaxed load sees is not bounded.

#![cfg(loom)]
#![forbid(unsafe_code)]

use std::sync::atomic::Ordering;

use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;
use protocol::line::{Epoch, SequenceNumber, Stamp};
use protocol::run::LossCause;
use protocol::time::Nanos;
use transport::ring::core::{
    Beat, ReaderCore, RingLine, RingShape, RingSink, StartAt, Word, WordMut, Words, WordsMut, WriterCore,
};

/// Switches away from a thread that could go on.
const PREEMPTIONS: usize = 2;
const EPOCH: Epoch = Epoch(2);
const CAPACITY: usize = 2;
/// A bit that only heartbeats have, in the first word.
const BEAT: u64 = 1 << 63;

#[derive(Clone, Copy, PartialEq, Debug)]
struct Small<const MASKED: bool>([u64; 3]);

/// Folded multiplication, as the product's hash is made of.
fn mask(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ 0x243F_6A88_85A3_08D3) * u128::from(b ^ 0x1319_8A2E_0370_7344);
    (product as u64) ^ (product >> 64) as u64
}

impl<const MASKED: bool> Small<MASKED> {
    fn seal(a: u64, b: u64, stamp: Stamp) -> Self {
        Small([a, b, stamp.0 ^ if MASKED { mask(a, b) } else { 0 }])
    }

    /// The line with this stamp.
    fn line(stamp: Stamp) -> Self {
        Self::seal(stamp.sequence().0 * 11, stamp.sequence().0 * 101, stamp)
    }

    fn heartbeat(stamp: Stamp) -> Self {
        Self::seal(BEAT | 5, stamp.sequence().0 * 1009, stamp)
    }
}

impl<const MASKED: bool> RingLine<3> for Small<MASKED> {
    const ZERO: Self = Small([0; 3]);

    fn from_words(words: [u64; 3]) -> Self {
        Small(words)
    }

    fn words(&self) -> [u64; 3] {
        self.0
    }

    fn stamp(&self) -> Stamp {
        let [a, b, stamp] = self.0;
        Stamp(stamp ^ if MASKED { mask(a, b) } else { 0 })
    }

    fn beat(&self) -> Option<Beat> {
        (self.0[0] & BEAT != 0).then_some(Beat { clock: Nanos(self.0[1]), ended: false })
    }

    fn ts_publish(&self) -> Option<u32> {
        Some(0)
    }
}

struct LoomWord(AtomicU64);

impl Word for LoomWord {
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }
}

impl WordMut for LoomWord {
    fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, order);
    }
}

#[derive(Clone)]
struct Memory(Arc<Vec<LoomWord>>);

impl Words<3> for Memory {
    type Word = LoomWord;

    fn place(&self, offset: usize) -> &[LoomWord; 3] {
        self.0[offset..offset + 3].try_into().unwrap()
    }
}

impl WordsMut<3> for Memory {
    type Word = LoomWord;

    fn place_mut(&self, offset: usize) -> &[LoomWord; 3] {
        self.place(offset)
    }
}

/// Checks what is handed up, line by line.
struct Judge {
    next: u64,
    /// Sequence numbers of the last line there will be.
    total: u64,
    /// Stamps of the heartbeats there will be.
    beats: &'static [u64],
    last_beat: u64,
}

impl<const MASKED: bool> RingSink<Small<MASKED>> for Judge {
    fn on_lines(&mut self, first: Stamp, lines: &[Small<MASKED>], _: Option<Nanos>) {
        for (stamp, line) in (first.0..).map(Stamp).zip(lines) {
            assert_eq!(stamp, Stamp::new(EPOCH, SequenceNumber(self.next)), "out of order");
            assert!(line.beat().is_none(), "heartbeat delivered");
            assert_eq!(*line, Small::line(stamp), "torn line accepted");
            self.next += 1;
        }
    }

    fn on_beat(&mut self, next: Stamp, beat: Beat) {
        let next = next.sequence().0;
        assert!(self.beats.contains(&next), "no heartbeat was ever written at {next}");
        assert_eq!(beat.clock.0, next * 1009, "torn heartbeat believed");
        assert!(next > self.last_beat && next <= self.next, "heartbeat {next} out of order");
        self.last_beat = next;
    }

    fn on_loss(&mut self, first: Stamp, count: u64, cause: LossCause) {
        assert_eq!(first, Stamp::new(EPOCH, SequenceNumber(self.next)), "out of order");
        assert_eq!(cause, LossCause::Lapped, "shared memory loses nothing but to laps");
        self.next += count;
        // The line before the one to go on with was written, so what was lost was overwritten or was about to be.
        assert!(self.next <= self.total, "a lap beyond the last line");
    }
}

/// One step of the writer.
#[derive(Clone, Copy)]
enum Step {
    Put,
    Flush,
    Beat,
}

fn write<const MASKED: bool>(writer: &mut WriterCore<Memory, Small<MASKED>, 3>, steps: &[Step]) {
    for step in steps {
        let next = writer.next();
        match step {
            Step::Put => writer.put(&Small::line(next)),
            Step::Flush => writer.flush(),
            Step::Beat => writer.beat(&Small::heartbeat(next)),
        }
    }
}

/// The writer does `before` alone, then `meanwhile` while a reader polls `polls` times; then the reader reads to the end.
fn check<const MASKED: bool>(
    before: &'static [Step],
    meanwhile: &'static [Step],
    beats: &'static [u64],
    start: StartAt,
    polls: usize,
) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS);
    model.check(move || {
        let shape = RingShape::new(EPOCH, SequenceNumber::FIRST, CAPACITY).unwrap();
        let words = (0..shape.words::<3>()).map(|_| LoomWord(AtomicU64::new(0))).collect();
        let memory = Memory(Arc::new(words));
        let mut writer = WriterCore::<_, Small<MASKED>, 3>::new(memory.clone(), shape);
        write(&mut writer, before);
        let total = before.iter().chain(meanwhile).filter(|step| matches!(step, Step::Put)).count() as u64;

        let writing = thread::spawn(move || write(&mut writer, meanwhile));
        let mut reader = ReaderCore::<_, Small<MASKED>, 3>::new(memory, shape, start, u64::MAX);
        let mut judge = Judge { next: 1, total, beats, last_beat: 0 };
        for _ in 0..polls {
            reader.poll(Nanos(1), usize::MAX, &mut judge);
            assert!(reader.head().sequence().0 <= total + 1, "a head beyond the last line was believed");
        }
        writing.join().unwrap();
        let mut rest = 0;
        while judge.next <= total {
            reader.look_closely();
            reader.poll(Nanos(2), usize::MAX, &mut judge);
            rest += 1;
            assert!(rest < 10, "the reader never came to the end: at {} of {total}", judge.next);
        }
    });
}

use Step::{Beat as BeatStep, Flush, Put};

const FIRST: StartAt = StartAt::At(SequenceNumber::FIRST);

#[test]
fn a_reader_that_is_lapped_inside_a_line_never_accepts_it() {
    check::<true>(&[Put, Flush, Put, Flush], &[Put, Flush, Put, Flush], &[], FIRST, 1);
}

#[test]
fn a_reader_one_line_behind_is_lapped_by_two_flushes() {
    check::<true>(&[Put, Flush], &[Put, Flush, Put, Flush], &[], FIRST, 2);
}

#[test]
fn lines_of_one_flush_come_in_order_with_the_newest_held_back() {
    check::<true>(&[], &[Put, Put, Flush], &[], FIRST, 2);
}

#[test]
fn a_heartbeat_is_never_delivered_and_never_runs_ahead_of_its_line() {
    check::<true>(&[BeatStep], &[Put, BeatStep], &[1, 2], FIRST, 2);
}

#[test]
fn a_heartbeat_is_never_taken_for_the_line_of_its_stamp() {
    check::<true>(&[Put, BeatStep], &[Put, Flush], &[2], FIRST, 2);
}

#[test]
fn a_heartbeat_over_a_line_that_its_reader_has_not_seen_loses_nothing() {
    check::<true>(&[Put, Flush], &[Put, Put, BeatStep], &[4], FIRST, 2);
}

#[test]
fn a_late_joiner_begins_at_a_line_that_was_written() {
    // Its judge begins at 1: what it cannot have any more it is told of, because it asked for line 1.
    check::<true>(&[Put, Flush, Put, Flush, Put, Flush], &[Put, BeatStep], &[5], FIRST, 2);
}

#[test]
#[should_panic(expected = "torn line accepted")]
fn without_the_mask_the_checker_finds_a_torn_line() {
    check::<false>(&[Put, Flush, Put, Flush], &[Put, Flush, Put, Flush], &[], FIRST, 2);
}
