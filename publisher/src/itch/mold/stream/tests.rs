//! Order, first copies, patience: every message once, in order, or declared.

use super::*;

/// Datagrams of messages whose content is their number, unless `content` says otherwise.
fn blocks(sequence: u64, count: u16, content: u8) -> Vec<u8> {
    (sequence..sequence + u64::from(count)).flat_map(|n| [0, 2, n as u8, content]).collect()
}

struct Wire {
    stream: Stream,
    /// What came out: numbers, and gaps as (first, count).
    out: Vec<Out>,
    time: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Out {
    Message(u64),
    Gap(u64, u64),
}
use Out::{Gap, Message};

impl Wire {
    fn new(packets: u32) -> Wire {
        Wire { stream: Stream::new(Patience { packets, ns: 0 }), out: Vec::new(), time: 0 }
    }

    fn drain(&mut self, ending: bool) {
        loop {
            if self.stream.advance() {
                let delivery = self.stream.delivery();
                assert_eq!(delivery.bytes[0], delivery.sequence as u8);
                self.out.push(Message(delivery.sequence));
                continue;
            }
            match self.stream.settle(ending) {
                Settled::Waiting => return,
                Settled::Ready => {}
                Settled::Gap(missing) => self.out.push(Gap(missing.first, missing.count)),
            }
        }
    }

    fn packet_of(&mut self, side: usize, sequence: u64, count: u16, content: u8) -> &mut Wire {
        self.time += 1;
        let blocks = blocks(sequence, count, content);
        let capture = Some(Nanos(self.time));
        self.stream.offer(&Arrival { sequence, count, blocks: &blocks, capture, offset: 0, side });
        self.drain(false);
        self
    }

    fn packet(&mut self, side: usize, sequence: u64, count: u16) -> &mut Wire {
        self.packet_of(side, sequence, count, 0)
    }

    fn heartbeat(&mut self, next: u64) -> &mut Wire {
        self.time += 1;
        self.stream.announce(next, Some(Nanos(self.time)));
        self.drain(false);
        self
    }

    fn end(&mut self) -> Vec<Out> {
        self.drain(true);
        std::mem::take(&mut self.out)
    }
}

fn messages(from: u64, to: u64) -> Vec<Out> {
    (from..=to).map(Message).collect()
}

#[test]
fn packets_in_order_are_delivered_at_once() {
    let mut wire = Wire::new(8);
    wire.packet(0, 1, 3).packet(0, 4, 2);
    assert_eq!(wire.out, messages(1, 5));
}

#[test]
fn a_packet_wholly_below_the_expected_sequence_is_a_counted_duplicate() {
    let mut wire = Wire::new(8);
    wire.packet(0, 1, 5).packet(0, 2, 2).packet(0, 6, 1);
    assert_eq!(wire.end(), messages(1, 6));
    assert_eq!(wire.stream.counts(), StreamCounts { delivered: 6, duplicates: 2, ..StreamCounts::default() });
}

#[test]
fn old_sequences_sent_again_for_minutes_are_dropped_and_counted() {
    let mut wire = Wire::new(8);
    // More than can be compared with.
    let total = 2 * HISTORY as u64;
    for at in 0..total / 1_024 {
        wire.packet(0, 1 + at * 1_024, 1_024);
    }
    for _ in 0..3 {
        for at in 0..total / 1_024 {
            wire.packet(0, 1 + at * 1_024, 1_024);
        }
    }
    wire.packet(0, total + 1, 1);
    assert_eq!(wire.end(), messages(1, total + 1));
    let counts = wire.stream.counts();
    assert_eq!((counts.duplicates, counts.differing, counts.late, counts.gaps), (3 * total, 0, 0, 0));
}

#[test]
fn of_a_partial_overlap_the_new_part_is_delivered() {
    let mut wire = Wire::new(8);
    wire.packet(0, 1, 5).packet(0, 4, 5);
    assert_eq!(wire.end(), messages(1, 8));
    assert_eq!(wire.stream.counts().duplicates, 2);
}

#[test]
fn the_loss_of_the_last_packet_is_found_by_the_heartbeat() {
    let mut wire = Wire::new(8);
    wire.packet(0, 1, 3).heartbeat(5);
    assert_eq!(wire.out, messages(1, 3), "it may still come");
    assert_eq!(wire.end()[3..], [Gap(4, 1)]);
}

#[test]
fn a_heartbeat_or_an_end_takes_no_number() {
    let mut wire = Wire::new(8);
    wire.packet(0, 1, 3).heartbeat(4).heartbeat(4).packet(0, 4, 1);
    assert_eq!(wire.end(), messages(1, 4));
    assert_eq!(wire.stream.counts().gaps, 0);
}

#[test]
fn what_one_line_lost_and_the_other_has_is_no_gap() {
    let mut wire = Wire::new(8);
    wire.packet(0, 1, 2).packet(0, 5, 2).packet(0, 7, 2);
    assert_eq!(wire.out, messages(1, 2));
    // The other line is behind, and brings it.
    wire.packet(1, 1, 2).packet(1, 3, 2);
    assert_eq!(wire.out, messages(1, 8));
    wire.packet(1, 5, 2).packet(1, 7, 2);
    assert_eq!(wire.end(), messages(1, 8));
    let counts = wire.stream.counts();
    assert_eq!((counts.duplicates, counts.gaps, counts.missing), (6, 0, 0));
}

#[test]
fn what_both_lines_lost_is_one_gap_in_its_place() {
    let mut wire = Wire::new(4);
    for at in [1, 3, 9, 11, 13, 15, 17] {
        wire.packet(0, at, 2).packet(1, at, 2);
    }
    let expected = [messages(1, 4), vec![Gap(5, 4)], messages(9, 18)].concat();
    assert_eq!(wire.end(), expected);
    assert_eq!(wire.stream.gaps().count(), 1);
}

#[test]
fn patience_begins_anew_as_long_as_missing_messages_keep_coming() {
    let mut wire = Wire::new(4);
    wire.packet(0, 1, 1).packet(0, 50, 1);
    // The line that has them is far behind, and out of its own order at times.
    for at in 1..48u64 {
        wire.packet(1, at ^ 1, 1);
    }
    wire.packet(1, 48, 1).packet(1, 49, 1).packet(1, 50, 1);
    assert_eq!(wire.end(), messages(1, 50));
}

#[test]
fn packets_out_of_order_within_the_patience_are_put_in_order() {
    let mut wire = Wire::new(4);
    wire.packet(0, 1, 1).packet(0, 3, 1).packet(0, 2, 1).packet(0, 4, 1);
    assert_eq!(wire.end(), messages(1, 4));
    assert_eq!(wire.stream.counts().gaps, 0);
}

#[test]
fn what_comes_after_it_was_declared_lost_is_dropped_and_counted() {
    let mut wire = Wire::new(2);
    wire.packet(0, 1, 1).packet(0, 3, 1).packet(0, 4, 1).packet(0, 5, 1).packet(0, 2, 1);
    assert_eq!(wire.end(), [vec![Message(1), Gap(2, 1)], messages(3, 5)].concat());
    assert_eq!((wire.stream.counts().late, wire.stream.counts().duplicates), (1, 0));
}

#[test]
fn copies_that_differ_are_counted_and_the_first_stands() {
    let mut wire = Wire::new(4);
    wire.packet_of(0, 1, 3, 7).packet_of(1, 1, 3, 7).packet_of(1, 2, 1, 8);
    assert_eq!(wire.end(), messages(1, 3));
    assert_eq!((wire.stream.counts().differing, wire.stream.first_differing()), (1, Some(2)));
    // Also where both were held back, and where the copy overlaps in part.
    wire.packet_of(0, 5, 1, 7).packet_of(1, 5, 1, 9).packet_of(1, 4, 2, 7).packet_of(0, 5, 2, 9);
    assert_eq!(wire.end(), messages(4, 6));
    assert_eq!(wire.stream.counts().differing, 3);
}

#[test]
fn a_line_that_is_behind_at_the_start_loses_nothing() {
    let mut wire = Wire::new(4);
    wire.packet(0, 105, 2).packet(1, 101, 2).packet(0, 107, 2).packet(1, 103, 2).packet(1, 105, 2);
    wire.packet(0, 109, 1);
    assert_eq!(wire.end(), messages(101, 109), "and no gap before the first");
    wire.packet(1, 99, 1);
    assert_eq!(wire.stream.counts().before_start, 1);
}

#[test]
fn a_number_out_of_all_reason_waits_until_nothing_else_can_come() {
    let mut wire = Wire::new(4);
    wire.packet(0, 1, 1).packet(0, u64::MAX - 9, 2);
    for at in 2..40 {
        wire.packet(0, at, 1);
    }
    for _ in 0..40 {
        wire.heartbeat(40);
    }
    assert_eq!(wire.out, messages(1, 39));
    let rest = wire.end();
    assert_eq!(rest[39], Gap(40, u64::MAX - 9 - 40));
    assert_eq!(rest.len(), 42);
}

#[test]
fn what_is_held_back_is_bounded() {
    let mut wire = Wire::new(u32::MAX);
    wire.packet(0, 1, 1);
    for at in 0..2 * MAX_HELD as u64 {
        wire.packet(0, 3 + at, 1);
    }
    assert_eq!(wire.out[1], Gap(2, 1));
    assert_eq!(wire.end().len(), 2 * MAX_HELD + 2);
}

#[test]
fn another_session_begins_at_one_and_what_it_lacks_is_missing() {
    let mut wire = Wire::new(4);
    wire.packet(0, 1, 9);
    wire.end();
    wire.stream.begin_session();
    wire.packet(0, 4, 2);
    assert_eq!(wire.end(), [Gap(1, 3), Message(4), Message(5)]);
}

/// Two lines, each with its own losses, delays, repetitions and disorder: whatever either brought in time is delivered,
/// once and in order; everything else is declared, once and in order.
#[test]
fn any_two_lines_give_every_message_once_or_declare_it() {
    for seed in 0..200u64 {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut below = |bound: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % bound
        };
        let mut packets = Vec::new();
        let mut at = 1;
        while at < 600 {
            let count = 1 + below(4);
            packets.push((at, count as u16));
            at += count;
        }
        let last = at;
        // (order of arrival, line, packet): a line is up to 20 arrivals behind, and its packets up to 3 out of order.
        let mut arrivals = Vec::new();
        let mut brought = vec![false; last as usize];
        for side in 0..2 {
            let behind = below(20);
            for (place, packet) in packets.iter().enumerate() {
                if below(10) == 0 {
                    continue;
                }
                for _ in 0..1 + u64::from(below(10) == 0) {
                    arrivals.push((2 * (place as u64 + behind + below(3)), side, *packet));
                }
                brought[packet.0 as usize..packet.0 as usize + usize::from(packet.1)].fill(true);
            }
        }
        arrivals.sort_by_key(|(time, ..)| *time);
        let mut wire = Wire::new(100);
        for (_, side, (sequence, count)) in arrivals {
            wire.packet(side, sequence, count);
        }
        wire.heartbeat(last);
        let mut next = None;
        for out in wire.end() {
            let (first, count, is_there) = match out {
                Message(n) => (n, 1, true),
                Gap(first, count) => (first, count, false),
            };
            assert_eq!(*next.get_or_insert(first), first, "seed {seed}");
            for n in first..first + count {
                assert_eq!(brought[n as usize], is_there, "seed {seed}: message {n}");
            }
            next = Some(first + count);
        }
        assert_eq!(next, Some(last), "seed {seed}");
    }
}
