//! The wire format, byte by byte, against a golden file that another program made from the drawings in WIRE.md.

#![forbid(unsafe_code)]

use protocol::book::RestingOrder;
use protocol::line::{Epoch, Line, SequenceNumber, Stamp};
use protocol::packet::{self, HEADER_LEN, PacketHeader};
use protocol::record::{ChannelId, Flags, InstrumentId, Kind, Lane, REPLACED, Record, Side, UNDEFINED_PRICE};
use protocol::recovery::snapshot::{level_record, order_of, order_record};
use protocol::recovery::{
    Answer, Ask, Connection, Refusal, ReplyBegin, Request, SnapshotBegin, SnapshotEnd, SnapshotForm,
};
use protocol::time::Nanos;
use zerocopy::{FromBytes, IntoBytes};

const GOLDEN: &str = include_str!("golden/wire.txt");

/// The bytes of a row, and its stamp.
fn golden(name: &str) -> (Vec<u8>, Stamp) {
    let row = GOLDEN
        .lines()
        .find(|row| row.split(' ').next() == Some(name))
        .unwrap_or_else(|| panic!("there is no golden row {name}"));
    let fields: Vec<&str> = row.split(' ').collect();
    let bytes =
        (0..fields[3].len()).step_by(2).map(|i| u8::from_str_radix(&fields[3][i..i + 2], 16).expect("hex")).collect();
    let number = |text: &str| text.parse().expect("a number");
    let epoch = u16::try_from(number(fields[1])).expect("16 bits");
    (bytes, Stamp::new(Epoch(epoch), SequenceNumber(number(fields[2]))))
}

fn add() -> Record {
    let mut record = Record::new(Kind::ADD, InstrumentId(7));
    record.flags = Flags::LAST;
    record.side = Side::BID;
    record.ts_event.set(1_577_698_200_000_000_001);
    record.order_id.set(0x123_4567_89AB);
    record.price.set(1_234_500_000_000);
    record.size.set(300);
    record.ts_capture.set(0xDEAD_BEEF);
    record.ts_publish.set(0x0102_0304);
    record.instrument_seq.set(41);
    record.venue_seq.set(99);
    record
}

fn delete() -> Record {
    let mut record = Record::new(Kind::DELETE, InstrumentId(0xFFFF_FFFE));
    record.side = Side::ASK;
    record.detail = REPLACED;
    record.ts_event.set(u64::MAX);
    record.order_id.set(u64::MAX);
    record.price.set(-1);
    record.size.set((1 << 40) + 5);
    record.ts_publish.set(u32::MAX);
    record.venue_seq.set(u32::MAX);
    record
}

fn heartbeat() -> Record {
    let mut record = Record::new(Kind::HEARTBEAT, InstrumentId::CHANNEL);
    record.detail = 1;
    record.ts_event.set(1_577_698_200_123_456_789);
    assert_eq!(record.price.get(), UNDEFINED_PRICE);
    record
}

#[test]
fn lines_are_written_and_read_as_drawn() {
    for (name, record) in [("line-add", add()), ("line-delete", delete()), ("line-heartbeat", heartbeat())] {
        let (bytes, stamp) = golden(name);
        assert_eq!(Line::seal(record, stamp).as_bytes(), &bytes[..], "{name}");
        let line = Line::read_from_bytes(&bytes).expect("64 bytes");
        assert!(line.verifies(stamp), "{name}");
        assert_eq!(line.record, record, "{name}");
    }
}

#[test]
fn packets_are_written_and_read_as_drawn() {
    let time = Nanos(1_577_698_200_000_000_777);
    let (channel, lane) = (ChannelId::new(9), Lane::new(1));
    for (name, ended) in [("packet-heartbeat", false), ("packet-ended", true)] {
        let (bytes, next) = golden(name);
        assert_eq!(PacketHeader::new(channel, lane, next, time, ended).as_bytes(), &bytes[..], "{name}");
        let packet = packet::decode(&bytes, channel).expect("decodes");
        assert_eq!((packet.first, packet.lines.len()), (next, 0));
        assert_eq!((packet.header.time(), packet.header.ended(), packet.header.lane), (time, ended, lane));
    }

    let (bytes, first) = golden("packet-two-lines");
    let lines = [Line::seal(add(), first), Line::seal(delete(), first.plus(1))];
    let header = PacketHeader::new(channel, lane, first.plus(2), time, false);
    assert_eq!([header.as_bytes(), lines.as_bytes()].concat(), bytes);
    // Lines are read where they lie, so the buffer is placed as a receiver would place it.
    #[repr(align(64))]
    struct Buffer([u8; 64 + 128]);
    let mut buffer = Buffer([0; 192]);
    buffer.0[64 - HEADER_LEN..].copy_from_slice(&bytes);
    let packet = packet::decode(&buffer.0[64 - HEADER_LEN..], channel).expect("decodes");
    assert_eq!((packet.first, packet.lines), (first, &lines[..]));
}

const CONNECTION: Connection = Connection(9);

fn stamp(epoch: u16, sequence: u64) -> Stamp {
    Stamp::new(Epoch(epoch), SequenceNumber(sequence))
}

#[test]
fn requests_are_written_and_read_as_drawn() {
    let asks = [
        ("request-lines", 4, Ask::Lines { first: stamp(3, 42), count: 7 }),
        (
            "request-snapshots",
            5,
            Ask::Snapshots {
                first: InstrumentId(17),
                last: InstrumentId(u32::MAX),
                not_before: stamp(3, 99),
                max_lines: 4096,
            },
        ),
        ("request-replies", 6, Ask::Replies { first: 310, count: 22 }),
    ];
    for (name, number, ask) in asks {
        let (bytes, _) = golden(name);
        let request = Request { connection: CONNECTION, number, key: 0x0123_4567_89AB_CDEF, ask };
        assert_eq!(request.to_line().as_bytes(), &bytes[..], "{name}");
        assert_eq!(Request::from_line(&Line::read_from_bytes(&bytes).expect("64 bytes")), Some(request), "{name}");
    }
}

#[test]
fn replies_are_written_and_read_as_drawn() {
    let head = stamp(3, 80);
    let begins = [
        ("reply-lines", ReplyBegin { request: 4, head, lines: 7, answer: Answer::Lines { first: stamp(3, 42) } }),
        (
            "reply-snapshots",
            ReplyBegin {
                request: 5,
                head,
                lines: 900,
                answer: Answer::Snapshots { first: InstrumentId(17), next: Some(InstrumentId(40)) },
            },
        ),
        (
            "reply-refused",
            ReplyBegin {
                request: 6,
                head,
                lines: 0,
                answer: Answer::Refused { why: Refusal::NotHeld, number: stamp(65535, 1).0 },
            },
        ),
    ];
    for (name, begin) in begins {
        let (bytes, at) = golden(name);
        assert_eq!(Line::seal(begin.to_record(), at).as_bytes(), &bytes[..], "{name}");
        let line = Line::read_from_bytes(&bytes).expect("64 bytes");
        assert_eq!(ReplyBegin::from_record(&line.record), Some(begin), "{name}");
    }
}

#[test]
fn snapshots_are_written_and_read_as_drawn() {
    let instrument = InstrumentId(17);
    let begin = SnapshotBegin {
        instrument,
        at: stamp(3, 79),
        lines: 2,
        instrument_seq: u32::MAX - 1,
        form: SnapshotForm::Mbo,
        suspect: true,
        suspect_known: true,
    };
    let order = RestingOrder { side: Side::ASK, price: -5, size: 100, priority: (1 << 32) + 7 };
    let end = SnapshotEnd {
        instrument,
        at: stamp(3, 79),
        orders: 0x9863_C636_3AC2_8948,
        levels: 0x39F9_285F_E7D2_398B,
        count: 1,
    };
    let rows = [
        ("snapshot-begin", begin.to_record()),
        ("snapshot-order", order_record(instrument, 0x123_4567_89AB, &order)),
        ("snapshot-level", level_record(instrument, Side::IMPLIED_BID, 1_234_500_000_000, 1 << 40, 3)),
        ("snapshot-end", end.to_record()),
    ];
    for (name, record) in rows {
        let (bytes, at) = golden(name);
        assert_eq!(Line::seal(record, at).as_bytes(), &bytes[..], "{name}");
    }
    let read = |name: &str| Line::read_from_bytes(&golden(name).0).expect("64 bytes").record;
    assert_eq!(SnapshotBegin::from_record(&read("snapshot-begin")), Some(begin));
    assert_eq!(order_of(&read("snapshot-order")), order);
    assert_eq!(SnapshotEnd::from_record(&read("snapshot-end")), Some(end));
}
