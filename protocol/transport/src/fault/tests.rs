use super::*;
use protocol::line::{Epoch, SequenceNumber};
use protocol::record::{InstrumentId, Kind, Record};

/// An inner lane that hands up one run of `lines` consecutive lines a poll.
struct Source {
    next: Stamp,
    lines: usize,
}

fn stamp(sequence: u64) -> Stamp {
    Stamp::new(Epoch(1), SequenceNumber(sequence))
}

fn line(stamp: Stamp) -> Line {
    let mut record = Record::new(Kind::ADD, InstrumentId(1));
    record.order_id.set(stamp.0 ^ 0x5555);
    Line::seal(record, stamp)
}

impl LaneRx for Source {
    fn poll<S: RunSink>(&mut self, _: Nanos, _: usize, sink: &mut S) -> usize {
        let lines: Vec<Line> = (0..self.lines as u64).map(|i| line(self.next.plus(i))).collect();
        let run = Run {
            path: LanePath::new(Lane::new(3), Carrier::Local),
            first: self.next,
            lines: &lines,
            publish_time: None,
        };
        self.next = run.end();
        sink.on_run(run);
        self.lines
    }
}

/// What came, line by line.
#[derive(Default, PartialEq, Debug)]
struct Seen {
    sequences: Vec<u64>,
    positions: Vec<Position>,
    losses: Vec<(u64, u64)>,
    longest: usize,
}

impl RunSink for Seen {
    fn on_run(&mut self, run: Run<'_>) {
        assert!(!run.lines.is_empty());
        assert_eq!((run.path.lane, run.publish_time), (Lane::new(3), None));
        self.longest = self.longest.max(run.lines.len());
        for (i, got) in run.lines.iter().enumerate() {
            let at = run.first.plus(i as u64);
            assert_eq!(*got, line(at), "content of {at}");
            self.sequences.push(at.sequence().0);
        }
    }
    fn on_position(&mut self, position: Position) {
        self.positions.push(position);
    }
    fn on_loss(&mut self, _: LanePath, first: Stamp, count: u64, _: LossCause) {
        self.losses.push((first.sequence().0, count));
    }
}

/// Runs `polls` polls of `lines` lines, 1000 ns apart, then lets go what is held.
fn run(plan: FaultPlan, polls: u64, lines: usize) -> (Seen, FaultCounts) {
    let mut lane = FaultInjector::new(Source { next: stamp(1), lines }, plan);
    let mut seen = Seen::default();
    for turn in 0..polls {
        lane.poll(Nanos(turn * 1000), usize::MAX, &mut seen);
    }
    lane.release(&mut seen);
    assert_eq!(lane.held(), 0);
    assert_eq!(lane.counts().lines, seen.sequences.len() as u64);
    (seen, *lane.counts())
}

#[test]
fn without_faults_every_line_comes_once_in_order_cut_to_packets() {
    let (seen, counts) = run(FaultPlan::none(), 10, 50);
    assert_eq!(seen.sequences, (1..=500).collect::<Vec<_>>());
    assert_eq!((seen.longest, counts.packets), (22, 30));
    assert_eq!(counts, FaultCounts { packets: 30, lines: 500, ..FaultCounts::default() });
}

#[test]
fn a_script_does_its_faults_to_the_packets_it_names_and_to_no_other() {
    let plan = FaultPlan::script([
        (9, Fault::DropThrough(11)),
        (1, Fault::Drop),
        (3, Fault::Hold(2)),
        (6, Fault::Duplicate(1)),
        (13, Fault::Flip(70 * 8)),
        (14, Fault::Truncate(40)),
        (15, Fault::Delay(2500)),
    ]);
    let (seen, counts) = run(FaultPlan { lines_per_packet: 1, ..plan }, 20, 1);
    // Packet n holds line n + 1. Packet 15 leaves at 15,000 ns and comes with the poll at 18,000.
    assert_eq!(seen.sequences, [1, 3, 5, 6, 4, 7, 8, 7, 9, 13, 17, 18, 16, 19, 20]);
    assert_eq!((counts.dropped, counts.duplicated, counts.reordered, counts.delayed), (4, 1, 1, 1));
    assert_eq!((counts.corrupted, counts.truncated, counts.refused_total()), (1, 1, 2));
    assert_eq!(counts.refused[Refused::Line.index()], 1);
    assert_eq!(counts.refused[Refused::Length.index()], 1);
}

#[test]
fn a_packet_cut_behind_its_header_says_a_true_position_and_no_lines() {
    let plan = FaultPlan::script([(2, Fault::Truncate(protocol::packet::HEADER_LEN))]);
    let (seen, counts) = run(FaultPlan { lines_per_packet: 5, ..plan }, 4, 5);
    assert_eq!(seen.sequences, (1..=10).chain(16..=20).collect::<Vec<_>>());
    let position = Position {
        path: LanePath::new(Lane::new(3), Carrier::Local),
        next: stamp(16),
        publish_time: None,
        ended: false,
    };
    assert_eq!((seen.positions, counts.refused_total()), (vec![position], 0));
}

#[test]
fn one_seed_gives_one_outcome_and_every_fault_happens() {
    let plan = |seed| FaultPlan {
        drop: 0.05,
        duplicate: 0.05,
        reorder: 0.1,
        reorder_span: 64,
        delay: 0.05,
        delay_ns: 50_000,
        corrupt: 0.05,
        truncate: 0.05,
        lines_per_packet: 3,
        ..FaultPlan::seeded(seed)
    };
    for seed in 1..=5 {
        let (seen, counts) = run(plan(seed), 500, 7);
        assert_eq!((&seen, counts), (&run(plan(seed), 500, 7).0, counts), "seed {seed}");
        assert_ne!(seen, run(plan(seed + 100), 500, 7).0, "seed {seed}");
        let each = [
            counts.dropped,
            counts.duplicated,
            counts.reordered,
            counts.delayed,
            counts.corrupted,
            counts.truncated,
            counts.refused_total(),
        ];
        assert!(each.iter().all(|count| *count > 10), "seed {seed}: {counts:?}");
        assert!(!seen.sequences.is_sorted(), "seed {seed}: nothing was overtaken");
    }
}

#[test]
fn damage_alone_never_changes_what_is_said_and_each_damaged_packet_is_refused() {
    for seed in 1..=20 {
        let plan = FaultPlan { corrupt: 1.0, lines_per_packet: 2, ..FaultPlan::seeded(seed) };
        let (seen, counts) = run(plan, 200, 4);
        assert_eq!((seen.sequences.len(), counts.refused_total()), (0, 400), "seed {seed}");
        assert_eq!((seen.positions, counts.corrupted), (vec![], 400), "seed {seed}");
    }
}

#[test]
fn a_packet_is_overtaken_by_no_more_than_the_span() {
    for seed in 1..=20 {
        let plan = FaultPlan {
            reorder: 0.3,
            reorder_span: 5,
            reorder_hold_ns: u64::MAX,
            lines_per_packet: 1,
            ..FaultPlan::seeded(seed)
        };
        let (seen, counts) = run(plan, 2000, 1);
        assert!(counts.reordered > 400, "seed {seed}: {counts:?}");
        let mut most = 0;
        for (place, sequence) in seen.sequences.iter().enumerate() {
            let overtaken_by = seen.sequences[..place].iter().filter(|other| *other > sequence).count();
            most = most.max(overtaken_by);
        }
        assert!((1..=5).contains(&most), "seed {seed}: overtaken by {most}");
        let mut sorted = seen.sequences;
        sorted.sort_unstable();
        assert_eq!(sorted, (1..=2000).collect::<Vec<_>>(), "seed {seed}");
    }
}

#[test]
fn more_held_than_there_is_room_for_lets_the_first_go_and_loses_nothing() {
    let plan = FaultPlan { delay: 1.0, delay_ns: 1 << 40, most_held: 4, lines_per_packet: 1, ..FaultPlan::seeded(7) };
    let (mut seen, counts) = run(plan, 100, 1);
    assert_eq!((counts.forced, counts.delayed), (96, 100));
    seen.sequences.sort_unstable();
    assert_eq!(seen.sequences, (1..=100).collect::<Vec<_>>());
}

#[test]
fn after_healing_nothing_more_goes_wrong() {
    let plan = FaultPlan { drop: 1.0, ..FaultPlan::script([(50, Fault::DropThrough(u64::MAX))]) };
    let mut lane = FaultInjector::new(Source { next: stamp(1), lines: 1 }, plan);
    let mut seen = Seen::default();
    for _ in 0..60 {
        lane.poll(Nanos(0), 100, &mut seen);
    }
    assert!(seen.sequences.is_empty());
    lane.heal();
    for _ in 0..5 {
        lane.poll(Nanos(0), 100, &mut seen);
    }
    assert_eq!(seen.sequences, [61, 62, 63, 64, 65]);
}

#[test]
fn losses_of_the_inner_lane_pass_at_their_place() {
    struct Lapped;
    impl LaneRx for Lapped {
        fn poll<S: RunSink>(&mut self, _: Nanos, _: usize, sink: &mut S) -> usize {
            let path = LanePath::new(Lane::new(3), Carrier::Local);
            sink.on_run(Run { path, first: stamp(1), lines: &[line(stamp(1))], publish_time: None });
            sink.on_loss(path, stamp(2), 7, LossCause::Lapped);
            sink.on_run(Run { path, first: stamp(9), lines: &[line(stamp(9))], publish_time: None });
            2
        }
    }
    let mut seen = Seen::default();
    assert_eq!(FaultInjector::new(Lapped, FaultPlan::none()).poll(Nanos(0), 100, &mut seen), 2);
    assert_eq!((seen.sequences, seen.losses), (vec![1, 9], vec![(2, 7)]));
}
