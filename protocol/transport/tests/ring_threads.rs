//! A real writer that laps real readers, on rings from 2 to 65,536 lines.

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use protocol::line::{Epoch, Line, SequenceNumber, Stamp};
use protocol::record::{ChannelId, InstrumentId, Kind, Lane, Record};
use protocol::run::{LanePath, LossCause, Position, Run, RunSink};
use protocol::time::Nanos;
use transport::LaneRx;
use transport::clock::Clock;
use transport::ring::{RingReader, RingWriter, StartAt};

const EPOCH: Epoch = Epoch(9);

fn line_of(stamp: Stamp) -> Line {
    let mut record = Record::new(Kind::ADD, InstrumentId(7));
    let mix = |salt: u64| (stamp.0 ^ salt).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31);
    record.ts_event.set(mix(1));
    record.order_id.set(mix(2));
    record.price.set(mix(3) as i64);
    record.size.set(mix(4));
    record.venue_seq.set(mix(5) as u32);
    Line::seal(record, stamp)
}

/// Checks order and content; counts what was delivered and what was named as lost.
struct Judge {
    next: Stamp,
    joined: bool,
    delivered: u64,
    lost: u64,
    ended: bool,
}

impl Judge {
    fn new() -> Judge {
        let next = Stamp::new(EPOCH, SequenceNumber::FIRST);
        Judge { next, joined: false, delivered: 0, lost: 0, ended: false }
    }
}

impl RunSink for Judge {
    fn on_run(&mut self, run: Run<'_>) {
        if self.joined {
            assert_eq!(run.first, self.next, "out of order");
        }
        self.joined = true;
        for (i, line) in run.lines.iter().enumerate() {
            assert_eq!(*line, line_of(run.first.plus(i as u64)), "not the line of its stamp");
        }
        self.next = run.end();
        self.delivered += run.lines.len() as u64;
    }

    fn on_position(&mut self, position: Position) {
        assert!(position.next <= self.next || !self.joined, "{position:?} beyond {:?}", self.next);
        self.ended |= position.ended;
    }

    fn on_loss(&mut self, _: LanePath, first: Stamp, count: u64, cause: LossCause) {
        assert_eq!(first, self.next, "out of order");
        assert_eq!(cause, LossCause::Lapped, "shared memory loses nothing but to laps");
        self.next = self.next.plus(count);
        self.lost += count;
        self.joined = true;
    }
}

/// Writes `total` lines as fast as it can, in flushes of one to nine, with heartbeats; ends the session.
fn write(mut writer: RingWriter, total: u64, written: &AtomicU64) -> RingWriter {
    for i in 0..total {
        // Relaxed: a slow reader waits for it to grow, and takes nothing else from it.
        written.store(i, Ordering::Relaxed);
        let line = line_of(writer.next());
        writer.put(&line);
        if i % 7 == 0 || i % 9 == 0 {
            writer.flush();
        }
        if i % 1_000 == 0 {
            writer.heartbeat(Nanos(i + 1), false);
        }
        // A pause now and then, or a reader on a ring of two would never see a line stand still.
        if i % 512 == 0 {
            std::thread::yield_now();
        }
    }
    writer.heartbeat(Nanos(total + 1), true);
    written.store(u64::MAX, Ordering::Relaxed);
    writer
}

/// Reads until the end of the session. With `written`, a slow reader: each 64 polls it waits until it has been lapped.
fn read_to_the_end(mut reader: RingReader, clock: Clock, written: Option<&AtomicU64>) -> (Judge, RingReader) {
    let capacity = reader.shape().capacity() as u64;
    let mut judge = Judge::new();
    let deadline = clock.now().plus(60_000_000_000);
    for turn in 1_u64.. {
        if judge.ended {
            break;
        }
        if let (Some(written), true) = (written, turn.is_multiple_of(64)) {
            while written.load(Ordering::Relaxed) < reader.cursor().sequence().0 + 2 * capacity {
                std::thread::yield_now();
            }
        }
        let now = clock.now();
        assert!(now < deadline, "no end after a minute, at {:?} of {:?}", reader.cursor(), reader.head());
        if reader.poll(now, 256, &mut judge) == 0 {
            std::thread::yield_now();
        }
    }
    (judge, reader)
}

#[test]
fn lapped_readers_accept_only_whole_lines_and_name_every_loss() {
    let clock = Clock::calibrate();
    for (capacity, total) in [(2, 200_000), (4, 300_000), (64, 1_000_000), (1_024, 2_000_000), (65_536, 3_000_000)] {
        let writer = RingWriter::anonymous(ChannelId::new(1), Lane::new(0), EPOCH, capacity).expect("a ring");
        // A long hedge time: a reader that is put to sleep between two looks must not take a lap for anything else.
        let readers: Vec<_> = (0..2).map(|_| writer.reader(StartAt::Oldest, 10_000_000_000)).collect();
        let written = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let slow = [None, Some(&written)];
            let readers: Vec<_> = readers
                .into_iter()
                .zip(slow)
                .map(|(reader, slow)| (slow, scope.spawn(move || read_to_the_end(reader, clock, slow))))
                .collect();
            let writer = scope.spawn(|| write(writer, total, &written));
            for (slow, reader) in readers {
                let (judge, reader) = reader.join().expect("a reader");
                let context = format!("ring of {capacity}, {:?}", reader.counts());
                // A reader that first polled after the first line was gone joined late, at the line it got first.
                let joined_at = total - judge.delivered - judge.lost;
                println!("{context}, joined after {joined_at}, delivered {}, lost {}", judge.delivered, judge.lost);
                assert_eq!(judge.next, Stamp::new(EPOCH, SequenceNumber(total + 1)), "{context}");
                assert_eq!(judge.delivered, reader.counts().lines, "{context}");
                assert_eq!(judge.lost, reader.counts().lapped_lines, "{context}");
                assert!(judge.delivered > 0, "{context}");
                assert!(slow.is_none() || judge.lost > 0, "the slow reader was never lapped: {context}");
            }
            let writer = writer.join().expect("the writer");
            assert_eq!(writer.head(), Stamp::new(EPOCH, SequenceNumber(total + 1)));
        });
    }
}

#[test]
fn delivered_and_named_lost_lines_are_all_lines_for_a_reader_from_the_first_on() {
    let clock = Clock::calibrate();
    for capacity in [2, 64, 4_096] {
        let total = 500_000;
        let writer = RingWriter::anonymous(ChannelId::new(1), Lane::new(0), EPOCH, capacity).expect("a ring");
        let reader = writer.reader(StartAt::At(SequenceNumber::FIRST), 10_000_000_000);
        let (judge, reader) = std::thread::scope(|scope| {
            let reader = scope.spawn(move || read_to_the_end(reader, clock, None));
            let _writer = scope.spawn(|| write(writer, total, &AtomicU64::new(0))).join().expect("the writer");
            reader.join().expect("the reader")
        });
        assert_eq!(judge.delivered + judge.lost, total, "ring of {capacity}, {:?}", reader.counts());
    }
}

#[test]
fn readers_come_and_go_while_the_writer_writes() {
    let clock = Clock::calibrate();
    let mut writer = RingWriter::anonymous(ChannelId::new(1), Lane::new(0), EPOCH, 1_024).expect("a ring");
    let joining = writer.reader(StartAt::Newest, 10_000_000_000);
    let memory = {
        // The first line is there before anybody joins.
        let line = line_of(writer.next());
        writer.put(&line);
        writer.flush();
        joining
    };
    drop(memory);
    let over = AtomicBool::new(false);
    let shared: Vec<RingReader> = (0..200).map(|_| writer.reader(StartAt::Newest, 10_000_000_000)).collect();
    std::thread::scope(|scope| {
        let over = &over;
        let writing = scope.spawn(move || {
            while !over.load(Ordering::Relaxed) {
                for _ in 0..5 {
                    let line = line_of(writer.next());
                    writer.put(&line);
                }
                writer.flush();
                std::thread::yield_now();
            }
            writer.head()
        });
        let mut last_seen = Stamp(0);
        for mut reader in shared {
            let mut judge = Judge::new();
            let deadline = clock.now().plus(20_000_000_000);
            while judge.delivered < 20 {
                let now = clock.now();
                assert!(now < deadline, "nothing came: {:?}", reader.counts());
                reader.poll(now, 8, &mut judge);
            }
            assert!(judge.next > last_seen, "a later reader began before an earlier one ended");
            last_seen = Stamp(judge.next.0 - judge.delivered);
        }
        over.store(true, Ordering::Relaxed);
        assert!(writing.join().expect("the writer") >= last_seen);
    });
}

#[test]
fn the_writer_reads_its_own_flushed_lines_across_the_wrap() {
    let mut writer = RingWriter::anonymous(ChannelId::new(1), Lane::new(0), EPOCH, 16).expect("a ring");
    for count in [1, 5, 16, 7, 3] {
        let first = writer.head();
        for _ in 0..count {
            let line = line_of(writer.next());
            writer.put(&line);
        }
        writer.flush();
        let (before, after) = writer.lines(first, count);
        assert_eq!(before.len() + after.len(), count);
        for (i, line) in before.iter().chain(after).enumerate() {
            assert_eq!(*line, line_of(first.plus(i as u64)));
        }
        let held = (writer.head().0 - writer.oldest().0) as usize;
        let (before, after) = writer.lines(writer.oldest(), held);
        assert!(before.iter().chain(after).zip(writer.oldest().0..).all(|(line, at)| *line == line_of(Stamp(at))));
    }
    assert_eq!(writer.lines(writer.head(), 0), (&[][..], &[][..]));
}

#[test]
#[should_panic(expected = "not all held")]
fn lines_that_were_overwritten_are_not_given() {
    let mut writer = RingWriter::anonymous(ChannelId::new(1), Lane::new(0), EPOCH, 4).expect("a ring");
    for _ in 0..5 {
        let line = line_of(writer.next());
        writer.put(&line);
    }
    writer.flush();
    let _ = writer.lines(Stamp::new(EPOCH, SequenceNumber::FIRST), 1);
}

#[test]
#[should_panic(expected = "not all held")]
fn lines_that_are_not_flushed_are_not_given() {
    let mut writer = RingWriter::anonymous(ChannelId::new(1), Lane::new(0), EPOCH, 4).expect("a ring");
    let line = line_of(writer.next());
    writer.put(&line);
    let _ = writer.lines(Stamp::new(EPOCH, SequenceNumber::FIRST), 1);
}
