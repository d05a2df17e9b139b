use super::*;
use crate::channel::{ChannelConfig, ChannelWriter};
use crate::record::{Flags, Kind, Side};
use crate::recovery::snapshot::order_of;
use crate::recovery::{NoSnapshot, SnapshotBegin, SnapshotEnd};
use crate::run::{Carrier, LossCause};

const SMALL: BooksConfig = BooksConfig { instruments: 16, orders: 1024, levels: 256 };
const PATH: LanePath = LanePath::new(Lane::new(0), Carrier::Local);
const ONE: Connection = Connection(1);

fn responder(config: ResponderConfig) -> Responder {
    let mut responder = Responder::new(ResponderConfig { books: SMALL, history_lines: 64, ..config });
    responder.admit(ONE, 77);
    responder
}

fn add(instrument: u32, id: u64, price: i64) -> Record {
    let mut record = Record::new(Kind::ADD, InstrumentId(instrument));
    (record.flags, record.side) = (Flags::LAST, Side::BID);
    record.order_id.set(id);
    record.price.set(price);
    record.size.set(10);
    record
}

/// The lines of a session that begins, and then has these records.
fn stream(records: &[Record]) -> Vec<Line> {
    let mut channel =
        ChannelWriter::new(Epoch(3), ChannelConfig { books: SMALL, start: Start::Strict, digest_every: 0 });
    let start = Record { flags: Flags::LAST, ..Record::new(Kind::SESSION_START, InstrumentId::CHANNEL) };
    let mut lines = Vec::new();
    for record in std::iter::once(&start).chain(records) {
        channel.push(record, Nanos(1), &mut |line| lines.push(*line)).expect("far from the end");
        channel.end_message(Nanos(1), &mut |line| lines.push(*line)).expect("far from the end");
    }
    lines
}

fn stamp(sequence: u64) -> Stamp {
    Stamp::new(Epoch(3), SequenceNumber(sequence))
}

fn fed(config: ResponderConfig, lines: &[Line]) -> Responder {
    let mut responder = responder(config);
    responder.on_joined(stamp(1));
    responder.on_lines(stamp(1), lines, PATH, None);
    responder
}

fn ask(responder: &mut Responder, number: u64, ask: Ask) {
    responder.on_request(&Request { connection: ONE, number, key: 77, ask }.to_line());
}

/// Everything that comes now, each line verified, with its count.
fn replies(responder: &mut Responder, now: Nanos) -> Vec<(u64, Record)> {
    let mut got = Vec::new();
    while let Some(run) = responder.poll_reply(now, 22) {
        assert!(!run.lines.is_empty() && run.lines.len() <= 22);
        for (i, line) in run.lines.iter().enumerate() {
            let stamp = run.first.plus(i as u64);
            assert!(line.verifies(stamp));
            got.push((Connection::of(stamp).1, line.record));
        }
    }
    got
}

fn begin(got: &[(u64, Record)]) -> ReplyBegin {
    ReplyBegin::from_record(&got[0].1).expect("a reply begins")
}

fn everything() -> Ask {
    Ask::Snapshots { first: InstrumentId(1), last: InstrumentId(u32::MAX), not_before: stamp(1), max_lines: 4000 }
}

#[test]
fn lines_that_are_held_are_sent_again_with_their_records() {
    let lines = stream(&(1..50).map(|id| add(1, id, 100)).collect::<Vec<_>>());
    let mut responder = fed(ResponderConfig::default(), &lines);
    ask(&mut responder, 1, Ask::Lines { first: stamp(5), count: 30 });
    let got = replies(&mut responder, Nanos(1));
    assert_eq!(begin(&got).answer, Answer::Lines { first: stamp(5) });
    assert_eq!((begin(&got).lines, got.len(), begin(&got).head), (30, 31, stamp(51)));
    for (i, (count, record)) in got[1..].iter().enumerate() {
        assert_eq!(*count, i as u64 + 2);
        assert_eq!(*record, lines[4 + i].record);
    }
    // More than there is yet: what there is.
    ask(&mut responder, 2, Ask::Lines { first: stamp(49), count: 30 });
    assert_eq!(begin(&replies(&mut responder, Nanos(1))).lines, 2);
}

#[test]
fn refusals_name_their_reason_and_what_goes_with_it() {
    let lines = stream(&(1..100).map(|id| add(1, id, 100)).collect::<Vec<_>>());
    let mut responder = fed(ResponderConfig::default(), &lines);
    let other = Stamp::new(Epoch(2), SequenceNumber(4));
    let newer = Stamp::new(Epoch(4), SequenceNumber(4));
    let small = Ask::Snapshots { first: InstrumentId(1), last: InstrumentId(1), not_before: stamp(1), max_lines: 50 };
    let early =
        Ask::Snapshots { first: InstrumentId(1), last: InstrumentId(1), not_before: stamp(101), max_lines: 500 };
    let rows = [
        // The oldest of the 64 lines held is 37; an eighth of them will soon be pushed out.
        (Ask::Lines { first: stamp(36), count: 5 }, Refusal::NotHeld, stamp(45).0),
        (Ask::Lines { first: stamp(101), count: 5 }, Refusal::Behind, stamp(101).0),
        (Ask::Lines { first: other, count: 5 }, Refusal::WrongEpoch, stamp(101).0),
        (Ask::Lines { first: newer, count: 5 }, Refusal::Behind, stamp(101).0),
        (small, Refusal::TooLong, 1),
        (early, Refusal::Behind, stamp(101).0),
    ];
    for (number, (what, why, with)) in rows.into_iter().enumerate() {
        ask(&mut responder, number as u64 + 1, what);
        let got = replies(&mut responder, Nanos(1));
        assert_eq!(begin(&got).answer, Answer::Refused { why, number: with }, "{what:?}");
        assert_eq!((got.len(), begin(&got).lines), (1, 0));
    }
    assert_eq!(responder.counts().refused, 6);
    // Before anything came, nothing is held.
    let mut fresh = self::responder(ResponderConfig::default());
    ask(&mut fresh, 1, everything());
    assert_eq!(begin(&replies(&mut fresh, Nanos(1))).answer, Answer::Refused { why: Refusal::Behind, number: 0 });
}

#[test]
fn a_snapshot_holds_definition_status_and_the_orders_in_queue_order() {
    let mut definition = Vec::new();
    let mut head = Record::new(Kind::DEFINITION, InstrumentId(2));
    head.flags = Flags::LAST;
    crate::definition::continuations(&head, b"symbol=AAPL", &mut |record| definition.push(record));
    let mut status = Record::new(Kind::STATUS, InstrumentId(2));
    (status.flags, status.detail) = (Flags::LAST, crate::record::status::TRADING);
    let mut records = definition.clone();
    records.extend([status, add(2, 5, 100), add(1, 9, 7), add(2, 6, 101), add(2, 4, 100)]);
    let mut responder = fed(ResponderConfig::default(), &stream(&records));
    ask(&mut responder, 1, everything());
    let got = replies(&mut responder, Nanos(1));
    assert_eq!(begin(&got).answer, Answer::Snapshots { first: InstrumentId(1), next: None });
    let of_two: Vec<Record> =
        got.iter().map(|(_, record)| *record).filter(|record| record.instrument.get() == 2).collect();
    let kinds: Vec<Kind> = of_two.iter().map(|record| record.kind).collect();
    let middle = [Kind::DEFINITION, Kind::CONTINUATION, Kind::STATUS, Kind::ADD, Kind::ADD, Kind::ADD];
    assert_eq!(kinds, [&[Kind::SNAPSHOT_BEGIN][..], &middle, &[Kind::SNAPSHOT_END]].concat());
    let begun = SnapshotBegin::from_record(&of_two[0]).expect("begins");
    assert_eq!((begun.at, begun.lines, begun.instrument_seq), (stamp(8), 7, 7), "six own lines and the session start");
    let orders: Vec<(u64, u64)> =
        of_two[4..7].iter().map(|record| (record.order_id.get(), order_of(record).priority)).collect();
    assert_eq!(orders, [(6, 7), (5, 5), (4, 8)]);
    let end = SnapshotEnd::from_record(&of_two[7]).expect("ends");
    let view = responder.source().books().view(InstrumentId(2)).expect("heard of");
    assert_eq!(((end.orders, end.levels), end.count), (view.digests(), 3));
}

#[test]
fn what_does_not_fit_into_one_reply_goes_on_in_the_next() {
    let records: Vec<Record> = (0..60).map(|id| add(1 + id as u32 % 6, id, 100)).collect();
    let mut responder = fed(ResponderConfig::default(), &stream(&records));
    let mut from = InstrumentId(1);
    let mut seen = Vec::new();
    for number in 1.. {
        assert!(number < 10, "seen {seen:?}");
        ask(
            &mut responder,
            number,
            Ask::Snapshots { first: from, last: InstrumentId(u32::MAX), not_before: stamp(1), max_lines: 30 },
        );
        let got = replies(&mut responder, Nanos(1));
        let Answer::Snapshots { first, next } = begin(&got).answer else { panic!("{:?}", begin(&got)) };
        assert_eq!(first, from);
        seen.extend(got.iter().filter(|(_, r)| r.kind == Kind::SNAPSHOT_BEGIN).map(|(_, r)| r.instrument.get()));
        let Some(next) = next else { break };
        from = next;
    }
    assert_eq!(seen, [1, 2, 3, 4, 5, 6]);
}

#[test]
fn a_snapshot_that_is_longer_than_other_replies_comes_by_itself_and_whole() {
    let small = |id: u64| add(1, id, 100);
    let records: Vec<Record> =
        (0..5).map(small).chain((5..605).map(|id| add(2, id, 100))).chain([add(3, 999, 1)]).collect();
    let config = ResponderConfig { reply_lines: 64, most_reply_lines: 1024, ..ResponderConfig::default() };
    let mut responder = fed(config, &stream(&records));
    let asked = |first: u32, max_lines| Ask::Snapshots {
        first: InstrumentId(first),
        last: InstrumentId(u32::MAX),
        not_before: stamp(1),
        max_lines,
    };
    // With what comes before it does not fit; then it comes alone, and what follows after it.
    let mut covered = Vec::new();
    for (number, first) in [(1, 1), (2, 2), (3, 3)] {
        ask(&mut responder, number, asked(first, 1 << 17));
        let got = replies(&mut responder, Nanos(1));
        let Answer::Snapshots { next, .. } = begin(&got).answer else { panic!("{:?}", begin(&got)) };
        covered.push((got.len(), next.map(|next| next.0)));
        let records: Vec<Record> = got[1..].iter().map(|(_, record)| *record).collect();
        assert!(crate::recovery::Snapshot::from_records(&records).is_some());
        // What was lost on the way of it is sent again.
        ask(&mut responder, number, asked(first, 1 << 17));
        assert_eq!(replies(&mut responder, Nanos(1)), got);
    }
    assert_eq!(covered, [(8, Some(2)), (603, Some(3)), (4, None)]);
    // Who cannot take so many is told which it is, and so is everybody beyond what the server gives.
    ask(&mut responder, 4, asked(2, 600));
    let too_long = Answer::Refused { why: Refusal::TooLong, number: 2 };
    assert_eq!(begin(&replies(&mut responder, Nanos(1))).answer, too_long);
    let config = ResponderConfig { reply_lines: 64, most_reply_lines: 512, ..ResponderConfig::default() };
    let mut responder = fed(config, &stream(&records));
    ask(&mut responder, 1, asked(2, 1 << 17));
    assert_eq!(begin(&replies(&mut responder, Nanos(1))).answer, too_long);
}

#[test]
fn no_snapshot_is_taken_inside_an_event_or_of_a_book_in_doubt() {
    let mut open = add(1, 2, 100);
    open.flags = Flags::NONE;
    let lines = stream(&[add(1, 1, 100), add(2, 3, 100), open]);
    let mut responder = fed(ResponderConfig::default(), &lines);
    assert_eq!(responder.source().lines_of(InstrumentId(1)), Err(NoSnapshot::InEvent));
    assert_eq!(responder.source().lines_of(InstrumentId(2)), Ok(3));
    assert_eq!(responder.source().lines_of(InstrumentId(3)), Err(NoSnapshot::NeverHeard));
    responder.on_gap(Gap { first: stamp(5), count: 2, cause: LossCause::Lapped });
    assert_eq!(responder.source().lines_of(InstrumentId(2)), Err(NoSnapshot::NotReadable));
    assert_eq!(responder.counts().lost, 2);
    assert_eq!(responder.source().next(), stamp(7));
}

#[test]
fn a_request_that_comes_again_is_answered_with_the_same_lines() {
    let mut responder = fed(ResponderConfig::default(), &stream(&[add(1, 1, 100), add(1, 2, 100)]));
    let lines = Ask::Lines { first: stamp(1), count: 3 };
    ask(&mut responder, 1, lines);
    ask(&mut responder, 1, lines);
    let got = replies(&mut responder, Nanos(1));
    assert_eq!(got.len(), 4);
    ask(&mut responder, 1, lines);
    assert_eq!(replies(&mut responder, Nanos(1)), got);
    assert_eq!((responder.counts().repeated, responder.counts().sent_again), (2, 4));
    // Single lines of it, and such as were never sent.
    ask(&mut responder, 2, Ask::Replies { first: 3, count: 1 });
    assert_eq!(replies(&mut responder, Nanos(1)), got[2..3]);
    ask(&mut responder, 3, Ask::Replies { first: 5, count: 100 });
    assert_eq!(replies(&mut responder, Nanos(1)), []);
    assert_eq!(responder.counts().not_held, 100);
}

#[test]
fn strangers_get_nothing_and_what_is_too_much_waits_or_is_dropped() {
    let lines = stream(&(1..60).map(|id| add(1, id, 100)).collect::<Vec<_>>());
    let config = ResponderConfig { waiting: 2, lines_per_s: 1000, burst_lines: 31, ..ResponderConfig::default() };
    let mut responder = fed(config, &lines);
    let lines = Ask::Lines { first: stamp(1), count: 30 };
    for (connection, key) in [(ONE, 78), (Connection(2), 77)] {
        responder.on_request(&Request { connection, number: 1, key, ask: lines }.to_line());
    }
    assert_eq!((responder.counts().strangers, responder.counts().requests), (2, 0));
    for number in 1..=4 {
        ask(&mut responder, number, lines);
    }
    assert_eq!(responder.counts().overruns, 2);
    let start = Nanos(1_000_000_000);
    let mut got = replies(&mut responder, start);
    assert!(got.len() < 62, "{} lines at once", got.len());
    let mut now = start;
    for _ in 0..100 {
        let Some(next) = responder.next_timeout() else { break };
        now = now.max(next);
        got.extend(replies(&mut responder, now));
    }
    assert_eq!((got.len(), responder.next_timeout()), (62, None));
    // 62 lines at 1000 a second, 31 and the piece that a packet holds at once.
    assert!(now.since(start) > 5_000_000, "{} ns", now.since(start));
    responder.dismiss(ONE);
    ask(&mut responder, 5, lines);
    assert_eq!(responder.counts().strangers, 3);
}

#[test]
fn a_new_epoch_forgets_the_old_ones_lines_and_instruments() {
    let mut responder = fed(ResponderConfig::default(), &stream(&[add(1, 1, 100)]));
    responder.on_epoch(Epoch(3), Epoch(4));
    ask(&mut responder, 1, Ask::Lines { first: stamp(1), count: 1 });
    let number = Stamp::new(Epoch(4), SequenceNumber(1)).0;
    assert_eq!(begin(&replies(&mut responder, Nanos(1))).answer, Answer::Refused { why: Refusal::WrongEpoch, number });
    assert_eq!(responder.source().lines_of(InstrumentId(1)), Err(NoSnapshot::NotReadable));
}

#[test]
fn whoever_has_no_room_is_passed_over_and_keeps_its_turn() {
    let lines = stream(&(1..20).map(|id| add(1, id, 100)).collect::<Vec<_>>());
    let mut responder = fed(ResponderConfig::default(), &lines);
    let two = Connection(2);
    responder.admit(two, 78);
    ask(&mut responder, 1, Ask::Lines { first: stamp(1), count: 9 });
    let request = Request { connection: two, number: 1, key: 78, ask: Ask::Lines { first: stamp(1), count: 3 } };
    responder.on_request(&request.to_line());
    let all = |responder: &mut Responder, room: &dyn Fn(Connection) -> usize| {
        let mut got = Vec::new();
        while let Some(run) = responder.poll_reply_within(Nanos(1), room) {
            got.push((run.connection, Connection::of(run.first).1, run.lines.len()));
        }
        got
    };
    assert_eq!(all(&mut responder, &|connection| if connection == ONE { 0 } else { 22 }), [(two, 1, 4)]);
    assert!(responder.next_timeout().is_some(), "somebody waits");
    assert_eq!(all(&mut responder, &|_| 0), []);
    // Nothing of it was lost meanwhile, and it is asked for its room each time.
    assert_eq!(all(&mut responder, &|connection| usize::from(connection == ONE) * 7), [(ONE, 1, 7), (ONE, 8, 3)]);
    assert_eq!(responder.next_timeout(), None);
}

#[test]
fn numbers_of_any_size_in_a_request_are_taken_for_what_they_are() {
    let lines = stream(&[add(1, 1, 100)]);
    let mut responder = fed(ResponderConfig::default(), &lines);
    for number in 1..4 {
        ask(&mut responder, number, Ask::Replies { first: u64::MAX >> 16, count: u64::MAX });
        ask(&mut responder, number, Ask::Replies { first: 1, count: u64::MAX });
        ask(&mut responder, 10 * number, Ask::Lines { first: stamp(1), count: u64::MAX });
    }
    let got = replies(&mut responder, Nanos(1));
    assert!(got.len() >= 3 * (1 + lines.len()), "each was answered with what there is: {}", got.len());
    assert!(responder.counts().not_held > 0);
}
