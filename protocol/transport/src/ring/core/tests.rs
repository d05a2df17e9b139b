//! What the reader does, step by step, on memory of plain cells: nothing runs beside it, so a test chooses every word.

use std::cell::Cell;
use std::rc::Rc;

use protocol::record::{InstrumentId, Record};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

use super::*;

#[derive(Clone)]
struct CellWord(Cell<u64>);

impl Word for CellWord {
    fn load(&self, _: Ordering) -> u64 {
        self.0.get()
    }
}

impl WordMut for CellWord {
    fn store(&self, value: u64, _: Ordering) {
        self.0.set(value);
    }
}

#[derive(Clone)]
struct Cells(Rc<[CellWord]>);

impl Cells {
    fn for_ring(shape: RingShape) -> Cells {
        Cells(vec![CellWord(Cell::new(0)); shape.words::<8>()].into())
    }

    fn set_line(&self, offset: usize, line: &Line) {
        for (cell, word) in self.place(offset).iter().zip(line.words()) {
            cell.0.set(word);
        }
    }
}

impl Words<8> for Cells {
    type Word = CellWord;

    fn place(&self, offset: usize) -> &[CellWord; 8] {
        self.0[offset..offset + 8].try_into().unwrap()
    }
}

impl WordsMut<8> for Cells {
    type Word = CellWord;

    fn place_mut(&self, offset: usize) -> &[CellWord; 8] {
        self.place(offset)
    }
}

/// What a sink was told, in order. Lines are checked against their stamps on the way.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Told {
    /// First sequence number, how many, publish time.
    Lines(u64, usize, Option<u64>),
    Beat(u64, u64, bool),
    Loss(u64, u64, LossCause),
}

#[derive(Default)]
struct Log(Vec<Told>);

impl RingSink<Line> for Log {
    fn on_lines(&mut self, first: Stamp, lines: &[Line], publish_time: Option<Nanos>) {
        for (i, line) in lines.iter().enumerate() {
            assert_eq!(*line, line_of(first.plus(i as u64), line.record.ts_publish.get()));
        }
        self.0.push(Told::Lines(first.sequence().0, lines.len(), publish_time.map(|time| time.0)));
    }

    fn on_beat(&mut self, next: Stamp, beat: Beat) {
        self.0.push(Told::Beat(next.sequence().0, beat.clock.0, beat.ended));
    }

    fn on_loss(&mut self, first: Stamp, count: u64, cause: LossCause) {
        self.0.push(Told::Loss(first.sequence().0, count, cause));
    }
}

const EPOCH: Epoch = Epoch(3);
const HEDGE_NS: u64 = 100;

fn stamp(sequence: u64) -> Stamp {
    Stamp::new(EPOCH, SequenceNumber(sequence))
}

fn line_of(stamp: Stamp, ts_publish: u32) -> Line {
    let mut record = Record::new(Kind::ADD, InstrumentId(1));
    record.order_id.set(stamp.0.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    record.ts_publish.set(ts_publish);
    Line::seal(record, stamp)
}

fn beat_of(stamp: Stamp, clock: u64, ended: bool) -> Line {
    let mut record = Record::new(Kind::HEARTBEAT, InstrumentId::CHANNEL);
    record.ts_event.set(clock);
    record.detail = u8::from(ended);
    Line::seal(record, stamp)
}

/// A writer and a reader of one ring, a clock, and what the reader said.
struct Bench {
    cells: Cells,
    writer: WriterCore<Cells, Line, 8>,
    reader: ReaderCore<Cells, Line, 8>,
    now: u64,
    log: Log,
}

impl Bench {
    fn new(capacity: usize, start: StartAt) -> Bench {
        Bench::from(1, capacity, start)
    }

    fn from(first: u64, capacity: usize, start: StartAt) -> Bench {
        let shape = RingShape::new(EPOCH, SequenceNumber(first), capacity).expect("a shape");
        let cells = Cells::for_ring(shape);
        let writer = WriterCore::new(cells.clone(), shape);
        let reader = ReaderCore::new(cells.clone(), shape, start, HEDGE_NS);
        Bench { cells, writer, reader, now: 1_000, log: Log::default() }
    }

    fn reader_joins(&mut self, start: StartAt) {
        self.reader = ReaderCore::new(self.cells.clone(), *self.writer.shape(), start, HEDGE_NS);
        self.log.0.clear();
    }

    fn put(&mut self, count: u64) {
        for _ in 0..count {
            self.writer.put(&line_of(self.writer.next(), self.now as u32));
        }
    }

    fn publish(&mut self, count: u64) {
        self.put(count);
        self.writer.flush();
    }

    fn beat(&mut self, ended: bool) {
        self.writer.beat(&beat_of(self.writer.next(), self.now, ended));
    }

    /// One poll without a limit, at the present time; what it told.
    fn poll(&mut self) -> Vec<Told> {
        self.poll_at_most(usize::MAX)
    }

    fn poll_at_most(&mut self, limit: usize) -> Vec<Told> {
        let count = self.reader.poll(Nanos(self.now), limit, &mut self.log);
        let told = std::mem::take(&mut self.log.0);
        let lines: usize = told.iter().map(|told| if let Told::Lines(_, count, _) = told { *count } else { 0 }).sum();
        assert_eq!(count, lines, "poll returned another count than it handed up");
        told
    }

    /// Polls at the present time until nothing has been told for long enough that each kind of look has come by.
    fn drain(&mut self) -> Vec<Told> {
        let (mut all, mut idle) = (Vec::new(), 0);
        while idle < 2 * LOOKS_PER_WHOLE_LOOK {
            let told = self.poll();
            assert!(all.len() < 10_000, "it never comes to rest: {told:?}");
            idle = if told.is_empty() { idle + 1 } else { 0 };
            all.extend(told);
        }
        all
    }

    fn word(&self, offset: usize) -> &Cell<u64> {
        &self.cells.0[offset].0
    }
}

use Told::{Beat as SaysBeat, Lines, Loss};

#[test]
fn a_single_line_is_delivered_from_the_latest_line_before_its_place_is_written() {
    let mut bench = Bench::new(4, StartAt::Oldest);
    bench.cells.set_line(LATEST, &line_of(stamp(1), 7));
    assert_eq!(bench.poll(), [Lines(1, 1, None)]);
    assert_eq!(bench.drain(), []);
}

#[test]
fn a_flush_of_several_lines_is_one_run_that_ends_with_the_latest_line() {
    let mut bench = Bench::new(64, StartAt::Oldest);
    bench.put(3);
    bench.cells.set_line(LATEST, &line_of(stamp(3), 1_000));
    assert_eq!(bench.poll(), [Lines(1, 3, None)]);
    bench.writer.flush();
    assert_eq!(bench.drain(), []);
}

#[test]
fn lines_of_an_unfinished_flush_are_found_in_their_places() {
    let mut bench = Bench::new(64, StartAt::Oldest);
    bench.publish(1);
    assert_eq!(bench.drain(), [Lines(1, 1, None)]);
    bench.put(3);
    assert_eq!(bench.drain(), [Lines(2, 2, None)]);
    bench.writer.flush();
    assert_eq!(bench.drain(), [Lines(4, 1, None)]);
}

#[test]
fn a_heartbeat_is_never_delivered_and_does_not_move_the_cursor() {
    let mut bench = Bench::new(4, StartAt::Oldest);
    bench.publish(2);
    assert_eq!(bench.drain(), [Lines(1, 2, None)]);
    bench.beat(false);
    assert_eq!(bench.drain(), [SaysBeat(3, 1_000, false)]);
    assert_eq!(bench.reader.cursor(), stamp(3));
    bench.publish(1);
    assert!(matches!(bench.drain()[..], [Lines(3, 1, _)]));
}

#[test]
fn a_heartbeat_is_told_once_and_only_after_the_lines_before_it() {
    let mut bench = Bench::new(64, StartAt::Oldest);
    bench.publish(40);
    bench.beat(true);
    assert_eq!(bench.poll_at_most(10), [Lines(1, 10, None)]);
    assert!(!bench.reader.ended());
    assert_eq!(bench.drain(), [Lines(11, 30, None), SaysBeat(41, 1_000, true)]);
    assert!(bench.reader.ended());
    assert_eq!(bench.drain(), []);
}

#[test]
fn the_heartbeat_before_the_first_line_proves_life_and_gives_the_clock() {
    let mut bench = Bench::new(4, StartAt::Oldest);
    assert_eq!(bench.drain(), []);
    assert_eq!(bench.reader.last_life(), None);
    bench.now = 5_000;
    bench.beat(false);
    bench.now = 6_000;
    assert_eq!(bench.drain(), [SaysBeat(1, 5_000, false)]);
    assert_eq!(bench.reader.last_life(), Some(Nanos(6_000)));
    bench.publish(1);
    assert_eq!(bench.drain(), [Lines(1, 1, Some(5_000))]);
}

#[test]
fn a_heartbeat_in_a_ring_place_is_invalid() {
    let mut bench = Bench::new(4, StartAt::Oldest);
    bench.publish(1);
    assert_eq!(bench.drain(), [Lines(1, 1, None)]);
    bench.cells.set_line(bench.writer.shape().offset::<8>(stamp(2)), &beat_of(stamp(2), 1, false));
    assert_eq!(bench.drain(), []);
    assert_eq!(bench.reader.cursor(), stamp(2));
}

#[test]
fn life_is_seen_when_the_latest_line_changes_and_only_then() {
    let mut bench = Bench::new(4, StartAt::Oldest);
    bench.publish(1);
    bench.drain();
    assert_eq!(bench.reader.last_life(), None, "it never changed under this reader");
    bench.now = 2_000;
    bench.drain();
    assert_eq!(bench.reader.last_life(), None);
    bench.beat(false);
    bench.drain();
    bench.now = 3_000;
    bench.drain();
    assert_eq!(bench.reader.last_life(), Some(Nanos(2_000)));
}

#[test]
fn a_lapped_reader_is_told_which_lines_it_lost_and_goes_on_half_a_ring_behind() {
    let mut bench = Bench::new(8, StartAt::Oldest);
    bench.publish(2);
    assert_eq!(bench.drain(), [Lines(1, 2, None)]);
    bench.publish(20);
    // Written: up to 22. Half a ring before the head at 23 is 19.
    assert_eq!(bench.drain(), [Loss(3, 16, LossCause::Lapped), Lines(19, 4, None)]);
    assert_eq!((bench.reader.counts().laps, bench.reader.counts().lapped_lines), (1, 16));
}

#[test]
fn on_a_ring_of_two_a_lapped_reader_gets_the_newest_line() {
    let mut bench = Bench::new(2, StartAt::Oldest);
    bench.publish(1);
    bench.drain();
    bench.publish(7);
    assert_eq!(bench.drain(), [Loss(2, 6, LossCause::Lapped), Lines(8, 1, None)]);
}

#[test]
fn a_full_ring_that_was_not_passed_is_no_lap() {
    let mut bench = Bench::new(8, StartAt::Oldest);
    bench.publish(8);
    assert_eq!(bench.drain(), [Lines(1, 8, None)]);
    bench.publish(8);
    bench.beat(false);
    assert_eq!(bench.drain(), [Lines(9, 8, None), SaysBeat(17, 1_000, false)]);
}

#[test]
fn a_reader_whose_place_holds_the_next_round_is_lapped_though_nothing_was_flushed() {
    let mut bench = Bench::new(4, StartAt::Oldest);
    bench.publish(2);
    assert_eq!(bench.drain(), [Lines(1, 2, None)]);
    // Line 7 stands in the place of line 3, and the latest line is torn for good.
    bench.publish(5);
    bench.word(LATEST + 2).set(99);
    assert_eq!(bench.drain(), [Loss(3, 3, LossCause::Lapped), Lines(6, 2, None)]);
}

#[test]
fn a_written_line_that_does_not_verify_is_lost_after_the_hedge_time_and_not_before() {
    let mut bench = Bench::new(8, StartAt::Oldest);
    bench.publish(1);
    bench.drain();
    bench.publish(4);
    for hidden in [2, 3] {
        bench.word(bench.writer.shape().offset::<8>(stamp(hidden)) + 4).set(12_345);
    }
    assert_eq!(bench.drain(), []);
    bench.now += HEDGE_NS - 1;
    assert_eq!(bench.drain(), []);
    bench.now += 1;
    assert_eq!(bench.drain(), [Loss(2, 2, LossCause::Unverified), Lines(4, 2, None)]);
    assert_eq!(bench.reader.counts().unverified_lines, 2);
}

#[test]
fn a_full_ring_whose_oldest_line_is_not_visible_is_no_lap() {
    let mut bench = Bench::new(8, StartAt::At(SequenceNumber::FIRST));
    bench.publish(8);
    bench.word(bench.writer.shape().offset::<8>(stamp(1)) + 3).set(12_345);
    assert_eq!(bench.drain(), []);
    bench.now += HEDGE_NS;
    assert_eq!(bench.drain(), [Loss(1, 1, LossCause::Unverified), Lines(2, 7, None)]);
}

#[test]
fn a_line_that_becomes_whole_within_the_hedge_time_is_delivered() {
    let mut bench = Bench::new(8, StartAt::Oldest);
    bench.publish(1);
    bench.drain();
    bench.publish(3);
    let offset = bench.writer.shape().offset::<8>(stamp(2)) + 4;
    let whole = bench.word(offset).replace(12_345);
    assert_eq!(bench.drain(), []);
    bench.now += HEDGE_NS - 1;
    bench.word(offset).set(whole);
    assert_eq!(bench.drain(), [Lines(2, 3, None)]);
}

#[test]
fn a_reader_of_the_oldest_line_gets_the_whole_epoch_while_the_ring_holds_it() {
    let mut bench = Bench::new(8, StartAt::Oldest);
    bench.publish(8);
    bench.reader_joins(StartAt::Oldest);
    assert_eq!(bench.drain(), [Lines(1, 8, None)]);
    bench.publish(1);
    bench.reader_joins(StartAt::Oldest);
    assert_eq!(bench.drain(), [Lines(9, 1, None)], "late: it starts at the newest");
}

#[test]
fn a_reader_of_the_newest_line_gets_that_one_first_heartbeat_or_not() {
    let mut bench = Bench::new(8, StartAt::Newest);
    assert_eq!(bench.drain(), []);
    bench.publish(3);
    assert_eq!(bench.drain(), [Lines(1, 3, None)], "it was there before the first line");
    bench.reader_joins(StartAt::Newest);
    assert_eq!(bench.drain(), [Lines(3, 1, None)]);
    bench.beat(false);
    bench.reader_joins(StartAt::Newest);
    assert_eq!(bench.drain(), [Lines(3, 1, None), SaysBeat(4, 1_000, false)]);
}

#[test]
fn a_reader_that_joins_while_the_latest_line_is_torn_waits_for_one_that_is_not() {
    let mut bench = Bench::new(8, StartAt::Newest);
    bench.publish(11);
    let whole = bench.word(LATEST + 3).replace(5);
    for start in [StartAt::Newest, StartAt::Oldest] {
        bench.reader_joins(start);
        assert_eq!(bench.drain(), []);
    }
    bench.word(LATEST + 3).set(whole);
    assert_eq!(bench.drain(), [Lines(11, 1, None)]);
}

#[test]
fn a_late_joiner_that_is_lapped_before_its_first_line_joins_again_and_has_lost_nothing() {
    let mut bench = Bench::new(8, StartAt::Newest);
    bench.publish(11);
    bench.reader_joins(StartAt::Oldest);
    // It settles on line 11, which is torn when it comes to read it, in both places.
    let place = bench.writer.shape().offset::<8>(stamp(11)) + 3;
    assert!(bench.reader.settle_start());
    assert_eq!(bench.reader.cursor(), stamp(11));
    bench.word(place).set(5);
    bench.publish(20);
    assert_eq!(bench.drain(), [Lines(31, 1, None)]);
    assert_eq!(bench.reader.counts().laps, 0);
    bench.publish(20);
    assert!(matches!(bench.drain()[..], [Loss(32, _, LossCause::Lapped), Lines(..)]), "from there on it counts");
}

#[test]
fn a_reader_at_a_given_line_is_told_of_what_is_no_longer_held() {
    let mut bench = Bench::new(8, StartAt::Oldest);
    bench.publish(10);
    bench.reader_joins(StartAt::At(SequenceNumber(5)));
    assert_eq!(bench.drain(), [Lines(5, 6, None)]);
    bench.reader_joins(StartAt::At(SequenceNumber(2)));
    assert_eq!(bench.drain(), [Loss(2, 5, LossCause::Lapped), Lines(7, 4, None)]);
}

#[test]
fn a_ring_may_begin_in_the_middle_of_an_epoch() {
    let mut bench = Bench::from(1_000, 8, StartAt::Oldest);
    bench.beat(false);
    assert_eq!(bench.drain(), [SaysBeat(1_000, 1_000, false)]);
    bench.publish(2);
    assert!(matches!(bench.drain()[..], [Lines(1_000, 2, _)]));
    assert_eq!(bench.writer.oldest(), stamp(1_000));
}

#[test]
fn a_hint_is_not_believed_without_its_place() {
    let mut bench = Bench::new(8, StartAt::Oldest);
    bench.publish(2);
    bench.drain();
    for ahead in [4, 5, 100, 1 << 40] {
        bench.cells.set_line(LATEST, &line_of(stamp(ahead), 0));
        assert_eq!(bench.drain(), [], "line {ahead}");
        bench.cells.set_line(LATEST, &beat_of(stamp(ahead), 77, true));
        assert_eq!(bench.drain(), [], "heartbeat {ahead}");
    }
    bench.cells.set_line(LATEST, &line_of(Stamp::new(Epoch(EPOCH.0 + 1), SequenceNumber(3)), 0));
    assert_eq!(bench.drain(), [], "another epoch");
    assert_eq!((bench.reader.cursor(), bench.reader.head()), (stamp(3), stamp(3)));
}

#[test]
fn a_torn_latest_line_never_yields_a_lap_or_an_epoch() {
    let seed = 0x0007_0127;
    let mut random = Pcg64::seed_from_u64(seed);
    let mut bench = Bench::new(8, StartAt::Oldest);
    bench.publish(3);
    bench.beat(false);
    bench.publish(2);
    bench.drain();
    // Every mix of words of what the latest line held and will hold, and plain noise.
    let held = [line_of(stamp(5), 1_000), beat_of(stamp(6), 1_100, false), line_of(stamp(9), 1_200), Line::ZERO];
    for round in 0..200_000 {
        for i in 0..8 {
            let word = match random.random_range(0..8) {
                0 => random.random(),
                _ => held[random.random_range(0..held.len())].words()[i],
            };
            bench.word(LATEST + i).set(word);
        }
        let told = bench.poll();
        let beat_is_whole = told == [SaysBeat(6, 1_100, false)];
        assert!(told.is_empty() || beat_is_whole, "seed {seed} round {round}: {told:?}");
        assert_eq!(bench.reader.head(), stamp(6), "seed {seed} round {round}");
        assert_eq!(bench.reader.counts().laps, 0, "seed {seed} round {round}");
    }
    assert!(bench.reader.counts().disbelieved_looks > 100_000, "{:?}", bench.reader.counts());
}

#[test]
fn a_stamp_word_that_becomes_visible_before_its_words_is_looked_at_again() {
    let mut bench = Bench::new(8, StartAt::Oldest);
    bench.publish(2);
    assert_eq!(bench.drain(), [Lines(1, 2, None)]);
    // Line 3: the stamp word of the latest line first, the rest much later, its place never.
    let line = line_of(stamp(3), 5);
    bench.word(LATEST + 7).set(line.words()[7]);
    assert_eq!(bench.drain(), []);
    bench.cells.set_line(LATEST, &line);
    assert_eq!(bench.drain(), [Lines(3, 1, None)]);
}

#[test]
fn publish_times_follow_the_last_line_from_heartbeat_on() {
    let mut bench = Bench::new(8, StartAt::Oldest);
    bench.drain();
    bench.now = (9 << 32) - 10;
    bench.reader.poll(Nanos(bench.now), 1, &mut bench.log);
    bench.beat(false);
    assert_eq!(bench.drain(), [SaysBeat(1, (9 << 32) - 10, false)]);
    // Lines alone, for much longer than the low half lasts, each read soon after it was written.
    let mut before = bench.now;
    for sequence in 1..20 {
        for _ in 0..3 {
            bench.now += 1 << 30;
            assert_eq!(bench.drain(), []);
        }
        bench.publish(1);
        assert_eq!(bench.drain(), [Lines(sequence, 1, Some(before))]);
        before = bench.now;
    }
}

#[test]
fn a_reader_that_slept_for_longer_than_the_low_half_lasts_gives_no_time() {
    let mut bench = Bench::new(64, StartAt::Oldest);
    bench.drain();
    bench.beat(false);
    bench.drain();
    bench.publish(1);
    assert_eq!(bench.drain(), [Lines(1, 1, Some(1_000))]);
    // While it sleeps: a line, five seconds without, another line. Nothing says how far apart they are.
    bench.publish(1);
    bench.now += 5_000_000_000;
    bench.publish(1);
    assert_eq!(bench.drain(), [Lines(2, 2, None)]);
    assert_eq!(bench.drain(), []);
    // The next heartbeat is new under its eyes, and dates what follows.
    bench.beat(false);
    assert!(matches!(bench.drain()[..], [SaysBeat(4, _, false)]));
    bench.publish(1);
    assert_eq!(bench.drain(), [Lines(4, 1, Some(5_000_001_000))]);
}

#[test]
fn a_heartbeat_that_stood_there_before_the_reader_came_dates_nothing() {
    let mut bench = Bench::new(8, StartAt::Oldest);
    bench.publish(1);
    bench.beat(false);
    bench.now += 60_000_000_000;
    bench.reader_joins(StartAt::Oldest);
    assert_eq!(bench.drain(), [Lines(1, 1, None), SaysBeat(2, 1_000, false)]);
    bench.publish(1);
    assert_eq!(bench.drain(), [Lines(2, 1, None)]);
}

#[test]
fn a_reader_always_behind_still_dates_its_lines() {
    let mut bench = Bench::new(256, StartAt::Oldest);
    bench.drain();
    bench.beat(false);
    bench.drain();
    bench.publish(100);
    let mut undated = 0;
    for _ in 0..1_000 {
        // A second's worth of simulated time each 16 polls, and never caught up.
        bench.now += 1_000_000_000 / 16;
        bench.publish(30);
        for told in bench.poll_at_most(30) {
            if let Lines(_, _, time) = told {
                undated += u64::from(time.is_none());
            }
        }
        assert!(bench.reader.cursor() < bench.writer.head());
    }
    assert_eq!(undated, 0, "{:?}", bench.reader.counts());
}

#[test]
fn the_writer_says_what_it_still_holds() {
    let mut bench = Bench::new(8, StartAt::Oldest);
    assert_eq!((bench.writer.oldest(), bench.writer.head()), (stamp(1), stamp(1)));
    bench.put(1);
    assert_eq!((bench.writer.oldest(), bench.writer.head(), bench.writer.unflushed()), (stamp(1), stamp(1), 1));
    bench.writer.flush();
    bench.publish(9);
    assert_eq!((bench.writer.oldest(), bench.writer.head()), (stamp(3), stamp(11)));
    // The second of two unflushed lines is held back; the first stands in the place of line 3.
    bench.put(2);
    assert_eq!((bench.writer.oldest(), bench.writer.head(), bench.writer.unflushed()), (stamp(4), stamp(11), 2));
    // A put beyond the limit of unflushed lines flushes those before it.
    bench.put(1);
    assert_eq!((bench.writer.head(), bench.writer.unflushed()), (stamp(13), 1));
}

#[test]
fn impossible_shapes_are_refused() {
    for (epoch, first, capacity) in [(1, 1, 1), (1, 1, 0), (1, 1, 3), (0, 1, 2), (1, 0, 2), (1, 1 << 48, 2)] {
        assert_eq!(RingShape::new(Epoch(epoch), SequenceNumber(first), capacity), None, "{epoch} {first} {capacity}");
    }
    assert!(RingShape::new(Epoch(1), SequenceNumber::MAX, 2).is_some());
}

/// A card's writes: lines in their places alone, the latest line left as it is.
fn write_places(bench: &Bench, sequences: std::ops::Range<u64>) {
    for sequence in sequences {
        let at = stamp(sequence);
        bench.cells.set_line(bench.reader.shape().offset::<8>(at), &line_of(at, bench.now as u32));
    }
}

#[test]
fn a_reader_that_watches_its_place_finds_each_line_in_the_next_poll() {
    let mut bench = Bench::new(8, StartAt::Oldest);
    bench.reader.watch_place();
    for sequence in 1..200 {
        assert_eq!(bench.poll(), []);
        write_places(&bench, sequence..sequence + 1);
        assert!(matches!(bench.poll()[..], [Lines(got, 1, _)] if got == sequence), "line {sequence}");
        // A heartbeat now and then changes nothing about that.
        if sequence % 10 == 0 {
            bench.cells.set_line(LATEST, &beat_of(stamp(sequence + 1), bench.now, false));
            assert_eq!(bench.poll(), [SaysBeat(sequence + 1, bench.now, false)]);
            bench.now += 1_000;
            bench.drain();
        }
    }
}

#[test]
fn a_reader_that_does_not_watch_its_place_looks_there_now_and_then() {
    let mut bench = Bench::new(8, StartAt::Oldest);
    bench.drain();
    // The whole look that was due next.
    assert_eq!(bench.poll(), []);
    write_places(&bench, 1..2);
    let polls = (1..).find(|_| bench.poll() == [Lines(1, 1, None)]).expect("some time");
    assert!(polls > 1 && polls <= LOOKS_PER_PLACE_LOOK, "after {polls} polls");
}

#[test]
fn a_reader_that_watches_its_place_is_lapped_like_any_other() {
    let mut bench = Bench::new(8, StartAt::Oldest);
    bench.reader.watch_place();
    assert_eq!(bench.poll(), []);
    // Once round: its own place says so. Its line and those before the next round are gone.
    write_places(&bench, 1..11);
    assert_eq!(bench.drain(), [Loss(1, 5, LossCause::Lapped), Lines(6, 4, None), Lines(10, 1, None)]);
    // Several times round: only the heartbeat can say it.
    write_places(&bench, 11..50);
    bench.cells.set_line(LATEST, &beat_of(stamp(50), bench.now, true));
    assert_eq!(bench.drain(), [Loss(11, 35, LossCause::Lapped), Lines(46, 4, None), SaysBeat(50, 1_000, true)]);
}

#[test]
fn lines_that_show_in_their_places_alone_are_dated_by_when_they_were_not_there_yet() {
    let mut bench = Bench::new(8, StartAt::Oldest);
    bench.reader.watch_place();
    bench.drain();
    bench.cells.set_line(LATEST, &beat_of(stamp(1), 1_000, false));
    assert_eq!(bench.drain(), [SaysBeat(1, 1_000, false)]);
    // Watched all the time, for much longer than the low half lasts.
    let mut before = 1_000;
    for sequence in 1..10 {
        for _ in 0..3 {
            bench.now += 1 << 30;
            assert_eq!(bench.drain(), []);
        }
        write_places(&bench, sequence..sequence + 1);
        assert_eq!(bench.drain(), [Lines(sequence, 1, Some(before))]);
        before = bench.now;
    }
    // A line is written, and found three seconds later; three seconds after that another, five after the first. When it
    // was looked for last, the first one may have been there for long.
    write_places(&bench, 10..11);
    bench.now += 3_000_000_000;
    assert_eq!(bench.poll(), [Lines(10, 1, Some(before))]);
    bench.now += 3_000_000_000;
    write_places(&bench, 11..12);
    assert_eq!(bench.poll(), [Lines(11, 1, None)]);
}
