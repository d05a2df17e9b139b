//! Two publishers of one channel.

use super::*;
use crate::record::Flags;

const A: u16 = 0;
const B: u16 = 1;

/// A line as `lane` publishes it: its times are its own. `said` is what it says.
fn copy(at: u64, lane: u16, kind: Kind, said: u64) -> Line {
    let mut record = Record { flags: Flags::LAST, ..Record::new(kind, InstrumentId(1)) };
    record.order_id.set(said);
    record.ts_publish.set(1_000 * u32::from(lane + 1) + at as u32);
    record.ts_capture.set(500 * u32::from(lane + 1) + at as u32);
    Line::seal(record, stamp(at))
}

impl Bench {
    fn copies(&mut self, now: u64, lane: u16, sequences: std::ops::Range<u64>, differs_from: u64) {
        let said = |at| if at >= differs_from { at + 1_000 } else { at };
        let lines: Vec<Line> = sequences.clone().map(|at| copy(at, lane, Kind::ADD, said(at))).collect();
        self.lines(now, lane, stamp(sequences.start), &lines);
    }

    fn lines(&mut self, now: u64, lane: u16, first: Stamp, lines: &[Line]) {
        let run = Run { path: path(lane), first, lines, publish_time: None };
        self.arbiter.sink(Nanos(now), &mut self.notes).on_run(run);
    }

    fn stands(&mut self, now: u64, lane: u16, next: u64, ended: bool) {
        let position = Position { path: path(lane), next: stamp(next), publish_time: None, ended };
        self.arbiter.sink(Nanos(now), &mut self.notes).on_position(position);
    }
}

fn split(at: u64, kept: u16, withdrawn: u16, is_tainted: bool) -> Seen {
    Seen::Split(Split { at: stamp(at), kept: Lane::new(kept), withdrawn: Lane::new(withdrawn), is_tainted })
}

/// Nobody differs.
const SAME: u64 = u64::MAX;

#[test]
fn copies_that_differ_in_their_own_times_only_are_one_stream() {
    let mut b = Bench::new(2, 16);
    b.copies(0, A, 1..6, SAME);
    b.copies(1, B, 1..9, SAME);
    b.copies(2, A, 6..12, SAME);
    assert_eq!(b.seen(), [Seen::Joined(stamp(1)), Seen::Lines(1, 11)]);
    assert_eq!((b.arbiter.counts().splits, b.arbiter.path_counts(path(B)).withdrawn), (0, 0));
}

#[test]
fn a_second_copy_that_differs_withdraws_the_higher_lane_whichever_came_first() {
    // A first: B has brought nothing that was delivered, so books are as A says.
    let mut b = Bench::new(2, 16);
    b.copies(0, A, 1..2, SAME);
    b.copies(0, B, 1..2, SAME);
    b.copies(1, A, 2..6, SAME);
    b.copies(1, B, 2..4, SAME);
    b.copies(2, B, 4..6, 5);
    assert_eq!(b.seen(), [Seen::Joined(stamp(1)), Seen::Lines(1, 5), split(5, A, B, false)]);
    b.copies(3, B, 6..9, 5);
    b.copies(4, A, 6..8, SAME);
    assert_eq!(b.seen(), [Seen::Lines(6, 2)]);
    assert_eq!((b.arbiter.path_counts(path(B)).withdrawn, b.arbiter.lag()), (5, 0));

    // B first: what it said since both were last seen to agree has been delivered.
    let mut b = Bench::new(2, 16);
    b.copies(0, A, 1..3, SAME);
    b.copies(1, B, 1..6, 5);
    b.copies(2, A, 3..8, SAME);
    assert_eq!(b.seen(), [Seen::Joined(stamp(1)), Seen::Lines(1, 5), split(5, A, B, true), Seen::Lines(6, 2)]);
}

#[test]
fn what_was_delivered_before_the_kept_lane_was_heard_of_is_not_known_to_be_its_own() {
    let mut b = Bench::new(2, 16);
    b.copies(0, B, 1..3, SAME);
    b.copies(0, A, 1..4, SAME);
    b.copies(1, B, 3..4, 3);
    assert_eq!(b.seen(), [Seen::Joined(stamp(1)), Seen::Lines(1, 3), split(3, A, B, true)]);
}

#[test]
fn copies_that_wait_are_compared_and_those_of_the_withdrawn_lane_forgotten() {
    let mut b = Bench::new(2, 16);
    b.copies(0, A, 1..3, SAME);
    b.copies(0, B, 1..3, SAME);
    b.copies(1, B, 5..9, 7);
    // A brings the same places, with another 7.
    b.copies(2, A, 6..8, SAME);
    assert_eq!(b.seen(), [Seen::Joined(stamp(1)), Seen::Lines(1, 2), split(7, A, B, false)]);
    // B's lines are gone; A's own stay, and what is before them is waited for as ever.
    b.copies(3, A, 3..6, SAME);
    assert_eq!((b.seen(), b.arbiter.lag()), (vec![Seen::Lines(3, 5)], 0));
}

#[test]
fn what_only_a_withdrawn_lane_had_is_nobodys_gap() {
    let mut b = Bench::new(2, 16);
    b.copies(0, A, 1..3, SAME);
    b.copies(0, B, 1..3, SAME);
    b.copies(1, B, 6..9, 6);
    assert_eq!(b.arbiter.lag(), 6);
    b.copies(2, A, 3..4, SAME);
    b.copies(3, B, 3..4, 3);
    assert_eq!(b.seen(), [Seen::Joined(stamp(1)), Seen::Lines(1, 3), split(3, A, B, false)]);
    assert_eq!((b.arbiter.lag(), b.arbiter.hedged_at()), (0, None));
    b.timeout(5_000);
    assert_eq!(b.seen(), []);
}

#[test]
fn the_withdrawn_lane_stands_in_when_the_kept_one_dies_and_a_new_epoch_begins_afresh() {
    let mut b = Bench::new(2, 16);
    b.copies(0, A, 1..2, SAME);
    b.copies(0, B, 1..2, SAME);
    b.copies(0, A, 2..6, SAME);
    b.copies(0, B, 2..6, 5);
    assert_eq!(b.seen(), [Seen::Joined(stamp(1)), Seen::Lines(1, 5), split(5, A, B, false)]);
    b.copies(9_000, B, 6..9, 5);
    b.timeout(10_000);
    // What B has beyond A's last line is missing now.
    assert_eq!(b.seen(), [Seen::Silent(A), split(6, B, A, true)]);
    b.copies(10_010, B, 9..11, 5);
    b.timeout(10_200);
    assert_eq!(b.seen(), [Seen::Gap(6, 3, LossCause::Missing), Seen::Lines(9, 2)]);
    b.copies(10_300, A, 6..20, SAME);
    assert_eq!(b.seen(), [], "who was given up for dead is withdrawn now");

    // Both are silent. Who comes back first is kept, and may be another publisher than before.
    b.timeout(30_000);
    assert_eq!(b.seen(), [Seen::Silent(A), Seen::Silent(B)]);
    b.copies(30_001, B, 11..12, SAME);
    assert_eq!(b.seen(), [split(11, B, A, true), Seen::Lines(11, 1)]);

    let next = Stamp::new(Epoch(2), SequenceNumber(1));
    let line = Line::seal(Record::new(Kind::ADD, InstrumentId(1)), next);
    b.lines(30_400, A, next, &[line]);
    assert_eq!(b.seen(), [Seen::Epoch(1, 2), Seen::Lines(1, 1)]);
}

#[test]
fn the_stream_ends_when_every_publisher_that_lives_has_ended() {
    let mut b = Bench::new(2, 16);
    b.copies(0, A, 1..3, SAME);
    b.copies(0, B, 1..3, SAME);
    // A is stopped in good order; B goes on.
    b.stands(1, A, 3, true);
    assert_eq!(b.seen(), [Seen::Joined(stamp(1)), Seen::Lines(1, 2)]);
    b.copies(2, B, 3..5, SAME);
    b.stands(3, B, 5, true);
    assert_eq!(b.seen(), [Seen::Lines(3, 2)], "A may come back and have more");
    b.timeout(10_001);
    assert_eq!(b.seen(), [Seen::Silent(A), Seen::End(5)]);

    // A dies, B ends alone; or both end.
    let mut b = Bench::new(2, 16);
    b.copies(0, A, 1..3, SAME);
    b.copies(5_000, B, 1..3, SAME);
    b.timeout(10_000);
    b.stands(10_001, B, 3, true);
    assert_eq!(b.seen()[2..], [Seen::Silent(A), Seen::End(3)]);
    let mut b = Bench::new(2, 16);
    b.copies(0, A, 1..3, SAME);
    b.copies(0, B, 1..3, SAME);
    b.stands(1, B, 3, true);
    b.stands(2, A, 3, true);
    assert_eq!(b.seen()[2..], [Seen::End(3)]);
}
