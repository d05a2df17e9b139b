use super::*;
use crate::record::{InstrumentId, Kind, Record};

mod pair;

const EPOCH: Epoch = Epoch(1);

fn stamp(sequence: u64) -> Stamp {
    Stamp::new(EPOCH, SequenceNumber(sequence))
}

fn path(lane: u16) -> LanePath {
    LanePath::new(Lane::new(lane), Carrier::Local)
}

fn line(at: Stamp) -> Line {
    let mut record = Record::new(Kind::ADD, InstrumentId(1));
    record.order_id.set(at.0);
    Line::seal(record, at)
}

fn lines(first: Stamp, count: u64) -> Vec<Line> {
    (0..count).map(|i| line(first.plus(i))).collect()
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum Seen {
    Joined(Stamp),
    Lines(u64, u64),
    Gap(u64, u64, LossCause),
    Epoch(u16, u16),
    Silent(u16),
    End(u64),
    Split(Split),
}

/// Notes what is delivered, and checks that each line is the one its stamp says.
#[derive(Default)]
struct Notes {
    seen: Vec<Seen>,
}

impl Delivery for Notes {
    fn on_lines(&mut self, first: Stamp, lines: &[Line], _: LanePath, _: Option<Nanos>) {
        for (i, line) in lines.iter().enumerate() {
            assert!(line.verifies(first.plus(i as u64)));
        }
        let (first, count) = (first.sequence().0, lines.len() as u64);
        if let Some(Seen::Lines(start, len)) = self.seen.last_mut()
            && *start + *len == first
        {
            *len += count;
        } else {
            self.seen.push(Seen::Lines(first, count));
        }
    }
    fn on_gap(&mut self, gap: Gap) {
        self.seen.push(Seen::Gap(gap.first.sequence().0, gap.count, gap.cause));
    }
    fn on_joined(&mut self, at: Stamp) {
        self.seen.push(Seen::Joined(at));
    }
    fn on_epoch(&mut self, from: Epoch, to: Epoch) {
        self.seen.push(Seen::Epoch(from.0, to.0));
    }
    fn on_publish_time(&mut self, _: Lane, _: Nanos) {}
    fn on_path_silent(&mut self, path: LanePath, _: Nanos) {
        self.seen.push(Seen::Silent(path.lane.0.get()));
    }
    fn on_end(&mut self, at: Stamp) {
        self.seen.push(Seen::End(at.sequence().0));
    }
    fn on_split(&mut self, split: Split) {
        self.seen.push(Seen::Split(split));
    }
}

struct Bench {
    arbiter: Arbiter,
    notes: Notes,
}

impl Bench {
    fn new(paths: usize, early_lines: usize) -> Bench {
        let config = ArbiterConfig { paths, early_lines, hedge_ns: 100, recover_ns: 0, lane_silent_ns: 10_000 };
        Bench { arbiter: Arbiter::new(config), notes: Notes::default() }
    }

    fn run(&mut self, now: u64, lane: u16, first: Stamp, count: u64) {
        let lines = lines(first, count);
        let run = Run { path: path(lane), first, lines: &lines, publish_time: None };
        self.arbiter.sink(Nanos(now), &mut self.notes).on_run(run);
    }

    fn position(&mut self, now: u64, next: Stamp, ended: bool) {
        let position = Position { path: path(0), next, publish_time: None, ended };
        self.arbiter.sink(Nanos(now), &mut self.notes).on_position(position);
    }

    fn timeout(&mut self, now: u64) {
        self.arbiter.on_timeout(Nanos(now), &mut self.notes);
    }

    /// What was seen since the last call.
    fn seen(&mut self) -> Vec<Seen> {
        std::mem::take(&mut self.notes.seen)
    }
}

#[test]
fn a_packet_wholly_below_the_cursor_is_a_duplicate() {
    let mut b = Bench::new(1, 16);
    b.run(0, 0, stamp(1), 5);
    b.run(1, 0, stamp(2), 2);
    assert_eq!(b.seen(), [Seen::Joined(stamp(1)), Seen::Lines(1, 5)]);
    assert_eq!(b.arbiter.path_counts(path(0)), PathCounts { won: 5, duplicates: 2, ..PathCounts::default() });
    assert_eq!(b.arbiter.next_timeout(), Some(Nanos(10_001)), "nothing is missing; only silence is waited for");
}

#[test]
fn a_partial_overlap_delivers_the_rest() {
    let mut b = Bench::new(1, 16);
    b.run(0, 0, stamp(1), 5);
    b.run(1, 0, stamp(4), 5);
    assert_eq!(b.seen(), [Seen::Joined(stamp(1)), Seen::Lines(1, 8)]);
}

#[test]
fn copies_of_two_lanes_are_delivered_once() {
    let mut b = Bench::new(2, 16);
    for first in [1, 4, 7] {
        b.run(first, 0, stamp(first), 3);
        b.run(first + 1, 1, stamp(first), 3);
    }
    assert_eq!(b.seen(), [Seen::Joined(stamp(1)), Seen::Lines(1, 9)]);
    assert_eq!(b.arbiter.path_counts(path(1)).duplicates, 9);
}

#[test]
fn reordered_packets_within_the_hedge_time_are_put_in_order_without_a_gap() {
    let mut b = Bench::new(1, 16);
    b.run(0, 0, stamp(1), 1);
    b.run(10, 0, stamp(3), 1);
    b.timeout(99);
    assert_eq!(b.arbiter.next_timeout(), Some(Nanos(110)));
    b.run(100, 0, stamp(2), 1);
    b.timeout(1_000);
    assert_eq!(b.seen(), [Seen::Joined(stamp(1)), Seen::Lines(1, 3)]);
    let counts = b.arbiter.counts();
    assert_eq!((counts.gaps, counts.holes_filled, counts.filled), (0, 1, 1));
}

#[test]
fn a_line_is_won_by_the_path_that_brought_it_first_though_another_brings_it_again_before_its_turn() {
    let mut b = Bench::new(2, 64);
    b.run(0, 0, stamp(1), 2);
    // 3 and 4 are lost; 5 to 8 wait. The other path brings 3 to 6 in one piece.
    b.run(1, 0, stamp(5), 4);
    b.run(2, 1, stamp(3), 4);
    assert_eq!(b.seen(), [Seen::Joined(stamp(1)), Seen::Lines(1, 8)]);
    assert_eq!(b.arbiter.path_counts(path(0)), PathCounts { won: 6, ..PathCounts::default() });
    assert_eq!(b.arbiter.path_counts(path(1)), PathCounts { won: 2, duplicates: 2, ..PathCounts::default() });
}

#[test]
fn a_hole_longer_than_the_early_store_is_named_in_few_pieces() {
    for (paths, most) in [(1, 5), (2, 5)] {
        let mut b = Bench::new(paths, 64);
        b.run(0, 0, stamp(1), 2);
        b.run(1, 0, stamp(1_003), 2);
        for i in 0..40 {
            b.run(2 + i, 0, stamp(1_005 + i * 4), 4);
        }
        b.timeout(10_000);
        let seen = b.seen();
        let gaps: Vec<_> = seen
            .iter()
            .filter_map(|seen| if let Seen::Gap(at, count, _) = seen { Some((*at, *count)) } else { None })
            .collect();
        assert_eq!(gaps.iter().map(|(_, count)| count).sum::<u64>(), 1_000, "{seen:?}");
        assert!(gaps.len() <= most, "{gaps:?}");
        assert_eq!(seen.last(), Some(&Seen::Lines(1_003, 162)), "{seen:?}");
    }
}

#[test]
fn what_one_path_lost_and_another_brought_is_counted_as_filled_and_who_brought_it_is_told() {
    let mut b = Bench::new(2, 64);
    // The first path is ahead, and loses 11 to 20 and 25.
    b.run(0, 0, stamp(1), 10);
    b.run(1, 0, stamp(21), 4);
    b.run(2, 0, stamp(26), 5);
    assert_eq!([0, 1].map(|lane| b.arbiter.path_lag(path(lane))), [Some(0), None]);
    // The second brings everything, in pieces.
    for first in [1, 6, 11, 16, 21, 26] {
        b.run(10, 1, stamp(first), 5);
        assert_eq!(b.arbiter.path_lag(path(1)), Some(26 - first));
    }
    assert_eq!(b.seen(), [Seen::Joined(stamp(1)), Seen::Lines(1, 30)]);
    let counts = b.arbiter.counts();
    assert_eq!((counts.gaps, counts.holes_filled, counts.filled), (0, 2, 11));
    assert_eq!(b.arbiter.path_counts(path(0)), PathCounts { won: 19, ..PathCounts::default() });
    assert_eq!(b.arbiter.path_counts(path(1)), PathCounts { won: 11, duplicates: 19, ..PathCounts::default() });
}

#[test]
fn a_lane_with_a_backlog_is_not_cut_off_by_one_that_is_ahead() {
    let mut b = Bench::new(2, 64);
    b.run(0, 0, stamp(1), 2);
    b.run(10, 1, stamp(41), 2);
    // 19 turns, 60 ns apart, of two lines each: together far more than the hedge time of 100 ns.
    for turn in 1..20 {
        b.run(10 + turn * 60, 0, stamp(1 + turn * 2), 2);
        b.timeout(10 + turn * 60);
    }
    b.run(1_300, 0, stamp(41), 1);
    assert_eq!(b.seen(), [Seen::Joined(stamp(1)), Seen::Lines(1, 42)]);
    // Once it comes no further, what is missing has the hedge time, from its last line on.
    b.run(2_000, 1, stamp(50), 1);
    b.run(2_060, 0, stamp(43), 2);
    b.timeout(2_159);
    assert_eq!(b.seen(), [Seen::Lines(43, 2)]);
    b.timeout(2_160);
    assert_eq!(b.seen(), [Seen::Gap(45, 5, LossCause::Missing), Seen::Lines(50, 1)]);
}

#[test]
fn what_is_missing_after_the_hedge_time_is_named_in_order() {
    let mut b = Bench::new(1, 16);
    b.run(0, 0, stamp(1), 1);
    b.run(10, 0, stamp(4), 2);
    b.run(20, 0, stamp(8), 1);
    b.timeout(110);
    assert_eq!(
        b.seen(),
        [Seen::Joined(stamp(1)), Seen::Lines(1, 1), Seen::Gap(2, 2, LossCause::Missing), Seen::Lines(4, 2)]
    );
    b.timeout(119);
    assert_eq!(b.seen(), [], "the second hole has a hedge time of its own, from when it was first known");
    b.timeout(120);
    assert_eq!(b.seen(), [Seen::Gap(6, 2, LossCause::Missing), Seen::Lines(8, 1)]);
    b.run(300, 1, stamp(2), 1);
    assert_eq!(b.seen(), [], "what was declared lost stays lost");
}

#[test]
fn the_loss_of_the_last_packet_shows_in_the_heartbeat() {
    let mut b = Bench::new(1, 16);
    b.run(0, 0, stamp(1), 3);
    b.position(50, stamp(5), false);
    assert_eq!(b.arbiter.lag(), 1);
    b.timeout(150);
    assert_eq!(b.seen(), [Seen::Joined(stamp(1)), Seen::Lines(1, 3), Seen::Gap(4, 1, LossCause::Missing)]);
}

#[test]
fn the_end_is_told_once_and_after_what_is_missing_before_it() {
    let mut b = Bench::new(1, 16);
    b.run(0, 0, stamp(1), 3);
    b.position(50, stamp(5), true);
    b.position(60, stamp(5), true);
    b.timeout(150);
    b.position(160, stamp(5), true);
    let expected = [Seen::Joined(stamp(1)), Seen::Lines(1, 3), Seen::Gap(4, 1, LossCause::Missing), Seen::End(5)];
    assert_eq!(b.seen(), expected);
    b.timeout(1_000_000);
    assert_eq!(b.seen(), [], "after the end, silence is no news");
}

#[test]
fn an_early_store_that_is_full_gives_up_the_oldest_hole_at_once() {
    let mut b = Bench::new(1, 8);
    b.run(0, 0, stamp(1), 1);
    b.run(1, 0, stamp(3), 2);
    b.run(2, 0, stamp(12), 4);
    assert_eq!(
        b.seen(),
        [
            Seen::Joined(stamp(1)),
            Seen::Lines(1, 1),
            Seen::Gap(2, 1, LossCause::Missing),
            Seen::Lines(3, 2),
            Seen::Gap(5, 5, LossCause::Missing)
        ],
        "10 and 11 may still come: 12 to 15 fit, and two more"
    );
    b.run(3, 0, stamp(10), 1);
    b.run(3, 0, stamp(40), 20);
    assert_eq!(
        b.seen(),
        [
            Seen::Lines(10, 1),
            Seen::Gap(11, 1, LossCause::Missing),
            Seen::Lines(12, 4),
            Seen::Gap(16, 24, LossCause::Missing),
            Seen::Lines(40, 20)
        ],
        "a run longer than the store is taken as it is"
    );
    assert_eq!(b.arbiter.counts().early_overflows, 4);
}

#[test]
fn a_lane_that_says_it_lost_lines_is_believed_at_once_when_it_is_the_only_one() {
    let mut b = Bench::new(1, 16);
    b.run(0, 0, stamp(1), 1);
    b.arbiter.sink(Nanos(5), &mut b.notes).on_loss(path(0), stamp(2), 10, LossCause::Lapped);
    b.run(5, 0, stamp(12), 1);
    assert_eq!(
        b.seen(),
        [Seen::Joined(stamp(1)), Seen::Lines(1, 1), Seen::Gap(2, 10, LossCause::Lapped), Seen::Lines(12, 1)]
    );
}

#[test]
fn a_lane_that_lost_lines_waits_for_the_others_when_there_are_others() {
    let mut b = Bench::new(2, 16);
    b.run(0, 0, stamp(1), 1);
    b.arbiter.sink(Nanos(5), &mut b.notes).on_loss(path(0), stamp(2), 2, LossCause::Lapped);
    b.run(6, 0, stamp(4), 1);
    b.run(50, 1, stamp(2), 2);
    assert_eq!(b.seen(), [Seen::Joined(stamp(1)), Seen::Lines(1, 4)]);
}

#[test]
fn a_stream_that_is_met_near_its_start_is_taken_from_its_start() {
    let mut b = Bench::new(1, 16);
    b.run(0, 0, stamp(6), 2);
    b.run(1, 0, stamp(1), 3);
    b.timeout(100);
    assert_eq!(
        b.seen(),
        [Seen::Joined(stamp(1)), Seen::Lines(1, 3), Seen::Gap(4, 2, LossCause::Missing), Seen::Lines(6, 2)]
    );
    let mut b = Bench::new(1, 16);
    b.run(0, 0, stamp(17), 2);
    assert_eq!(b.seen(), [Seen::Joined(stamp(17)), Seen::Lines(17, 2)]);
}

#[test]
fn a_new_epoch_ends_the_old_one_and_old_lines_are_dropped() {
    let mut b = Bench::new(2, 16);
    let new = |sequence| Stamp::new(Epoch(2), SequenceNumber(sequence));
    b.run(0, 0, stamp(26_941_144), 2);
    b.run(1, 0, stamp(26_941_148), 1);
    b.run(2, 0, new(1), 2);
    b.run(3, 1, stamp(26_941_146), 2);
    assert_eq!(
        b.seen(),
        [
            Seen::Joined(stamp(26_941_144)),
            Seen::Lines(26_941_144, 2),
            Seen::Gap(26_941_146, 2, LossCause::Missing),
            Seen::Lines(26_941_148, 1),
            Seen::Epoch(1, 2),
            Seen::Lines(1, 2)
        ]
    );
    assert_eq!(b.arbiter.path_counts(path(1)).old_epoch, 2);
}

#[test]
fn an_epoch_whose_first_lines_are_lost_names_them() {
    let mut b = Bench::new(1, 16);
    b.run(0, 0, stamp(1), 1);
    b.run(10, 0, Stamp::new(Epoch(2), SequenceNumber(4)), 1);
    b.timeout(110);
    assert_eq!(
        b.seen(),
        [
            Seen::Joined(stamp(1)),
            Seen::Lines(1, 1),
            Seen::Epoch(1, 2),
            Seen::Gap(1, 3, LossCause::Missing),
            Seen::Lines(4, 1)
        ]
    );
}

#[test]
fn a_silent_lane_is_told_once_until_it_speaks_again() {
    let mut b = Bench::new(2, 16);
    b.run(0, 1, stamp(1), 1);
    b.timeout(9_999);
    b.timeout(10_000);
    b.timeout(20_000);
    b.run(20_001, 1, stamp(2), 1);
    b.timeout(30_001);
    assert_eq!(
        b.seen(),
        [Seen::Joined(stamp(1)), Seen::Lines(1, 1), Seen::Silent(1), Seen::Lines(2, 1), Seen::Silent(1)]
    );
}

/// A stream cut into packets of random length is sent on random lanes with loss, duplication and reordering. Whatever
/// comes out must be: every line exactly once in order, or named exactly once in a gap that nothing delivered overlaps.
#[test]
fn every_line_is_delivered_or_named_exactly_once_whatever_the_network_does() {
    for seed in 1..=400u64 {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut random = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) % below
        };
        let lanes = 1 + random(3);
        let (total, loss) = (400, random(30));
        let mut packets: Vec<(u64, u16, u64, u64)> = Vec::new();
        for lane in 0..lanes {
            let mut first = 1;
            while first <= total {
                let count = (1 + random(7)).min(total + 1 - first);
                for _ in 0..1 + u64::from(random(20) == 0) {
                    if random(100) >= loss {
                        packets.push((first * 10 + random(1 + lane * 400), lane as u16, first, count));
                    }
                }
                first += count;
            }
        }
        packets.sort_unstable();
        let mut b = Bench::new(lanes as usize, 64);
        b.position(0, stamp(1), false);
        let mut now = 0;
        for (time, lane, first, count) in packets {
            now = time;
            b.timeout(now);
            b.run(now, lane, stamp(first), count);
        }
        b.position(now, stamp(total + 1), true);
        b.timeout(now + 100);
        b.timeout(now + 200);
        assert_eq!(b.arbiter.lag(), 0, "seed {seed}: every hole was known, so each has had its time");
        let (mut next, mut named) = (1, 0);
        for seen in b.seen() {
            match seen {
                Seen::Joined(at) => assert_eq!(at, stamp(1), "seed {seed}"),
                Seen::Lines(first, count) | Seen::Gap(first, count, _) => {
                    assert_eq!(first, next, "seed {seed}");
                    assert!(count > 0, "seed {seed}");
                    next = first + count;
                    named += if matches!(seen, Seen::Gap(..)) { count } else { 0 };
                }
                Seen::End(at) => assert_eq!(at, total + 1, "seed {seed}"),
                Seen::Silent(_) => {}
                Seen::Epoch(..) | Seen::Split(_) => panic!("seed {seed}: {seen:?}"),
            }
        }
        assert_eq!(next, total + 1, "seed {seed}: everything is accounted for");
        let counts = b.arbiter.counts();
        assert_eq!((counts.delivered, counts.lost), (total - named, named), "seed {seed}");
        assert!(loss > 0 || named == 0 || counts.early_overflows > 0 || lanes > 1, "seed {seed}: {named} lost");
    }
}

#[test]
fn patience_that_passed_while_nobody_polled_begins_anew() {
    let mut b = Bench::new(2, 16);
    b.run(0, 0, stamp(1), 2);
    b.run(10, 0, stamp(4), 2);
    b.seen();
    let due = b.arbiter.next_timeout().expect("something is missing");
    assert_eq!(due, Nanos(110));
    // Its owner was stopped: what the other path brought meanwhile has not been read yet.
    let late = due.0 + OVERSLEPT_NS;
    b.timeout(late);
    assert_eq!((b.seen(), b.arbiter.counts().overslept), (vec![Seen::Silent(0)], 1));
    assert_eq!(b.arbiter.next_timeout(), Some(Nanos(late + 100)));
    b.run(late + 50, 1, stamp(3), 1);
    assert_eq!(b.seen(), [Seen::Lines(3, 3)]);
    // The next hole is another matter; and who is late by less than that declares it.
    b.run(late + 60, 0, stamp(8), 1);
    b.timeout(late + 60 + 100 + OVERSLEPT_NS - 1);
    assert_eq!(b.seen()[..1], [Seen::Gap(6, 2, LossCause::Missing)]);
}

#[test]
fn holes_that_were_known_before_a_pause_are_given_up_together_after_it() {
    let mut b = Bench::new(2, 16);
    b.run(0, 0, stamp(1), 2);
    b.run(10, 0, stamp(4), 1);
    b.run(20, 0, stamp(6), 1);
    b.timeout(5_000_000);
    b.timeout(5_000_100);
    let gaps: Vec<Seen> = b.seen().into_iter().filter(|seen| matches!(seen, Seen::Gap(..))).collect();
    assert_eq!(gaps, [Seen::Gap(3, 1, LossCause::Missing), Seen::Gap(5, 1, LossCause::Missing)]);
    assert_eq!(b.arbiter.counts().overslept, 1);
}

#[test]
fn who_polls_seldom_is_told_all_the_same() {
    let mut b = Bench::new(2, 16);
    b.run(0, 0, stamp(1), 2);
    b.run(10, 0, stamp(4), 1);
    // Every turn is late by far more than a turn can take.
    for turn in 1..4 {
        b.timeout(turn * 50 * OVERSLEPT_NS);
    }
    let gaps: Vec<Seen> = b.seen().into_iter().filter(|seen| matches!(seen, Seen::Gap(..))).collect();
    assert_eq!(gaps, [Seen::Gap(3, 1, LossCause::Missing)]);
    assert_eq!(b.arbiter.counts().overslept, 1);
}
