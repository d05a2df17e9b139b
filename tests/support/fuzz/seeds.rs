//! The inputs that fuzzing begins with, made here so that it can be seen what they are: each type of message and record,
//! each form of each container, and each of them with one thing wrong.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use protocol::control::{PREFACE, Reply, Request as Asking};
use protocol::line::{Epoch, Line, SequenceNumber, Stamp};
use protocol::log::{Begin, Entry, Role};
use protocol::packet::PacketHeader;
use protocol::record::{Flags, InstrumentId, Kind, Lane, Record, Side};
use protocol::recovery::{Ask, Connection, Request};
use protocol::run::LossCause;
use protocol::time::Nanos;
use serde::Serialize;
use zerocopy::IntoBytes;

use super::feeds::lengths;
use super::wire::{CHANNEL, TOKEN};
use crate::capture::{
    self as made, Captured, LINE_A, LINE_B, NgInterface, OPEN_NS, OPEN_OF_DAY_NS, PcapForm, SESSION, binary_file,
};
use crate::dbn::{self as record_of, Mbo, flags, mbo_file, mbp, metadata, record, schema};

type Seeds = Vec<(String, Vec<u8>)>;

/// Names and inputs, as [`Seeds`].
fn named(seeds: impl IntoIterator<Item = (&'static str, Vec<u8>)>) -> Seeds {
    seeds.into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect()
}

/// A message of this type and its length, with letters where there may be text.
fn message(message_type: u8, len: usize) -> Vec<u8> {
    let mut bytes = made::itch(message_type, 1, OPEN_OF_DAY_NS, &[]);
    bytes.resize(len, b'A');
    bytes
}

/// A short day: a listing, trading, orders of both sides, and each thing that may become of an order.
fn day() -> Vec<Vec<u8>> {
    let at = |n: u64| OPEN_OF_DAY_NS + n;
    let order = |n: u64| n.to_be_bytes();
    let mut listing = b"ACME    QN".to_vec();
    listing.extend(100u32.to_be_bytes());
    listing.extend(b"NCZ PNN1N");
    listing.extend(0u32.to_be_bytes());
    listing.push(b'N');
    listing.resize(28, b'N');
    let with_participant = [&made::add(1, at(5), 13, b'S', 300, 1_010_000)[11..], b"GSCO"].concat();
    vec![
        made::system_event(b'O', at(0)),
        made::itch(b'R', 1, at(1), &listing),
        made::trading_action(1, at(2), b'T'),
        made::add(1, at(3), 11, b'B', 100, 1_000_000),
        made::add(1, at(4), 12, b'S', 200, 1_010_000),
        made::itch(b'F', 1, at(5), &with_participant),
        made::itch(b'E', 1, at(6), &[&order(11)[..], &30u32.to_be_bytes(), &order(77)].concat()),
        made::itch(
            b'C',
            1,
            at(7),
            &[&order(12)[..], &30u32.to_be_bytes(), &order(78), b"N", &1_005_000u32.to_be_bytes()].concat(),
        ),
        made::cancel(1, at(8), 12, 50),
        made::itch(
            b'U',
            1,
            at(9),
            &[&order(12)[..], &order(14), &80u32.to_be_bytes(), &1_020_000u32.to_be_bytes()].concat(),
        ),
        made::delete(1, at(10), 13),
        made::delete(1, at(11), 99),
        made::cancel(1, at(12), 14, 5_000),
        made::trading_action(1, at(13), b'H'),
        made::system_event(b'C', at(14)),
    ]
}

/// For the target `itch`.
pub fn itch() -> Seeds {
    let whole = binary_file(&day());
    let every: Vec<Vec<u8>> = lengths().iter().map(|(message_type, len)| message(*message_type, *len)).collect();
    let short: Vec<Vec<u8>> = lengths().iter().map(|(message_type, len)| message(*message_type, len - 1)).collect();
    let mut blanked = whole.clone();
    blanked[14..16].fill(0);
    named([
        ("day", whole.clone()),
        ("every type", binary_file(&every)),
        ("every type too short", binary_file(&short)),
        ("unknown types", binary_file(&[vec![0; 12], vec![0xFF; 3], made::system_event(b'O', 1)])),
        ("end of session", [&whole[..], &[0, 0]].concat()),
        ("end of session in the middle", blanked),
        ("nothing but an end", vec![0, 0]),
        ("cut in a message", whole[..whole.len() - 3].to_vec()),
        ("cut in a length", [&whole[..], &[0]].concat()),
        ("empty", Vec::new()),
    ])
}

/// For the target `itch_message`.
pub fn itch_message() -> Seeds {
    let mut seeds: Seeds = lengths()
        .iter()
        .map(|(message_type, len)| (format!("type {}", char::from(*message_type)), message(*message_type, *len)))
        .collect();
    seeds.extend(named([("day", day().concat()), ("unknown", vec![0, b'?', 0xFF]), ("cut", message(b'A', 35))]));
    seeds
}

/// For the target `mold`.
pub fn mold() -> Seeds {
    let day = day();
    let first = made::mold(SESSION, 1, &day[..5]);
    let second = made::mold(SESSION, 6, &day[5..]);
    let other = made::mold(b"000010060A", 1, &day[..3]);
    let mut no_text = first.clone();
    no_text[0] = 0x01;
    named([
        ("two datagrams", [&first[..], &second].concat()),
        (
            "the second is missing",
            [&first[..], &made::mold_header(SESSION, 9, 0), &made::mold(SESSION, 9, &day[8..])].concat(),
        ),
        ("overlap", [&first[..], &made::mold(SESSION, 4, &day[3..8])].concat()),
        ("twice", [&first[..], &first].concat()),
        ("differs", [&first[..], &made::mold(SESSION, 1, &day[5..8])].concat()),
        ("heartbeat", made::mold_header(SESSION, 1, 0)),
        ("end of session", [&first[..], &made::mold_header(SESSION, 6, 0xFFFF)].concat()),
        ("request", made::mold_header(SESSION, 1, 3)),
        ("two sessions", [&first[..], &made::mold_header(SESSION, 6, 0xFFFF), &other].concat()),
        ("messages of no length", [&made::mold_header(SESSION, 1, 2)[..], &[0; 4]].concat()),
        ("sequence at its end", made::mold(SESSION, u64::MAX, &day[..2])),
        ("cut", first[..first.len() - 2].to_vec()),
        ("trailer", [&first[..], &[0; 6]].concat()),
        ("no text", no_text),
    ])
}

/// Frames of two lines, each with what may come of it.
fn captured() -> Vec<Captured> {
    let day = day();
    let datagram =
        |line, sequence: u64, messages: &[Vec<u8>]| made::frame(line, &made::mold(SESSION, sequence, messages));
    vec![
        (OPEN_NS, datagram(LINE_A, 1, &day[..5])),
        (OPEN_NS + 1_000, datagram(LINE_B, 1, &day[..5])),
        (OPEN_NS + 2_000, datagram(LINE_B, 6, &day[5..9])),
        (OPEN_NS + 1_500, datagram(LINE_A, 10, &day[9..])),
        (OPEN_NS + 3_000, made::frame(LINE_A, &made::mold_header(SESSION, 16, 0))),
        (OPEN_NS + 4_000, made::frame((LINE_A.0, 9), b"another protocol")),
    ]
}

/// For the target `pcap`.
pub fn pcap() -> Seeds {
    let frames = captured();
    let mut seeds = Seeds::new();
    for (big, nanos) in [(false, false), (false, true), (true, false), (true, true)] {
        seeds.push((format!("big {big} nanos {nanos}"), made::pcap(PcapForm { big, nanos }, &frames)));
    }
    let whole = made::pcap_nanos(&frames);
    let mut claims = whole[..60].to_vec();
    claims[32..36].copy_from_slice(&(1u32 << 30).to_le_bytes());
    let mut modified = whole[..24].to_vec();
    modified[..4].copy_from_slice(&0xA1B2_CD34u32.to_le_bytes());
    let (_, frame) = &frames[0];
    modified.extend([1u32, 2, frame.len() as u32, frame.len() as u32, 2, 0x0008].map(u32::to_le_bytes).concat());
    modified.extend(frame);
    let mut raw = whole.clone();
    raw[20] = 101;
    seeds.extend(named([
        ("cut in a frame", whole[..whole.len() - 5].to_vec()),
        ("cut in a record's header", whole[..30].to_vec()),
        ("cut in the header", whole[..20].to_vec()),
        ("claims a gigabyte", claims),
        ("modified form", modified),
        ("another link", raw),
        ("header alone", whole[..24].to_vec()),
    ]));
    seeds
}

/// For the target `pcapng`.
pub fn pcapng() -> Seeds {
    let frames: Vec<(usize, Captured)> =
        captured().into_iter().enumerate().map(|(at, frame)| (at % 2, frame)).collect();
    let interfaces = [NgInterface::NANOS, NgInterface { resolution: Some(0x80 | 20), offset: 1_000 }];
    let whole = made::pcapng(false, &interfaces, &frames);
    let big = made::pcapng(true, &interfaces, &frames);
    let block = |kind: u32, body: &[u8]| {
        let len = (body.len() as u32 + 12).to_le_bytes();
        [&kind.to_le_bytes()[..], &len, body, &len].concat()
    };
    let head = made::pcapng(false, &[NgInterface::MICROS], &[]);
    let frame = &frames[0].1.1;
    let padded = [&frame[..], &vec![0; frame.len().next_multiple_of(4) - frame.len()]].concat();
    let len = (frame.len() as u32).to_le_bytes();
    let mut claims = whole.clone();
    claims[4..8].copy_from_slice(&(1u32 << 30).to_le_bytes());
    let mut no_order = whole.clone();
    no_order[8] = 0;
    let mut resolution = head.clone();
    resolution.extend(block(1, &[1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 0, 127, 0, 0, 0]));
    named([
        ("little", whole.clone()),
        ("big", big.clone()),
        ("two sections", [&whole[..], &big].concat()),
        ("simple block", [&head[..], &block(3, &[&len[..], &padded].concat())].concat()),
        ("obsolete block", [&head[..], &block(2, &[&[0u8; 12][..], &len, &len, &padded].concat())].concat()),
        ("unknown block", [&head[..], &block(0xBAD, &[1; 8])].concat()),
        ("a frame before any interface", [&whole[..28], &block(3, &[&len[..], &padded].concat())].concat()),
        ("no such interface", [&head[..], &block(6, &[&[9u8; 12][..], &len, &len, &padded].concat())].concat()),
        ("resolution beyond all bounds", resolution),
        ("cut", whole[..whole.len() - 7].to_vec()),
        ("claims a gigabyte", claims),
        ("no byte order", no_order),
    ])
}

/// For the target `frame`: kinds of links, IPv4 with options and as a fragment, VLAN tags, and damage.
pub fn frame() -> Seeds {
    let ethernet = made::frame(LINE_A, &made::mold(SESSION, 1, &day()[..2]));
    let ip = ethernet[14..].to_vec();
    let on = |link: u16, frame: &[u8]| [&link.to_le_bytes()[..], frame].concat();
    let tagged = |tags: &[[u8; 4]]| [&ethernet[..12], &tags.concat(), &ethernet[12..]].concat();
    let changed = |at: usize, value: u8| {
        let mut frame = ethernet.clone();
        frame[at] = value;
        frame
    };
    let mut options = [&ethernet[..34], &[1; 4], &ethernet[34..]].concat();
    options[14] = 0x46;
    options[17] += 4;
    let mut six = vec![0x60, 0, 0, 0, 0, 12, 17, 1];
    six.extend([0xFF; 32]);
    six.extend([0, 1, 0, 2, 0, 12, 0, 0, b'a', b'b', b'c', b'd']);
    named([
        ("ethernet", on(1, &ethernet)),
        ("padding", on(1, &[&ethernet[..], &[0; 9]].concat())),
        ("vlan", on(1, &tagged(&[[0x81, 0, 0, 5]]))),
        ("two vlans", on(1, &tagged(&[[0x88, 0xA8, 0, 5], [0x81, 0, 0, 6]]))),
        ("options", on(1, &options)),
        ("fragment", on(1, &changed(20, 0x20))),
        ("a later fragment", on(1, &changed(21, 3))),
        ("tcp", on(1, &changed(23, 6))),
        ("arp", on(1, &changed(13, 6))),
        ("udp longer than the frame", on(1, &changed(38, 0x7F))),
        ("ip shorter than udp", on(1, &changed(17, 24))),
        ("cut", on(1, &ethernet[..40])),
        ("raw", on(101, &ip)),
        ("ipv6", on(229, &six)),
        ("bsd loopback", on(0, &[&[2, 0, 0, 0], &ip[..]].concat())),
        ("cooked", on(113, &[&[0; 14][..], &[8, 0], &ip].concat())),
        ("cooked 2", on(276, &[&[8, 0][..], &[0; 18], &ip].concat())),
        ("unknown link", on(147, &ethernet)),
    ])
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("into memory")
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 3).expect("into memory")
}

/// For the target `packed`.
pub fn packed() -> Seeds {
    let day = binary_file(&day());
    let (gzip, zstd) = (gzip(&day), zstd(&day));
    let damaged = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x10;
        bytes
    };
    let skippable = [&0x184D_2A50u32.to_le_bytes()[..], &4u32.to_le_bytes(), b"skip"].concat();
    let mut window = zstd.clone();
    window[4] = 0;
    window[5] = 0xFF;
    named([
        ("gzip", gzip.clone()),
        ("gzip of two members", [&gzip[..], &gzip].concat()),
        ("gzip cut", gzip[..gzip.len() / 2].to_vec()),
        ("gzip damaged", damaged(&gzip)),
        ("gzip and then something else", [&gzip[..], b"else"].concat()),
        ("zstd", zstd.clone()),
        ("zstd of frames, one to be skipped", [&zstd[..], &skippable, &zstd].concat()),
        ("zstd cut", zstd[..zstd.len() / 2].to_vec()),
        ("zstd damaged", damaged(&zstd)),
        ("zstd with a large window", window),
        ("plain", day),
        ("bzip2", b"BZh91AY".to_vec()),
        ("xz", b"\xFD7zXZ\0".to_vec()),
    ])
}

/// Order records: each action, and what does not fit.
fn orders() -> Vec<Mbo> {
    let one = Mbo::default();
    let clear = Mbo { action: b'R', side: b'N', order: 0, price: record_of::NO_PRICE, size: 0, ..one };
    vec![
        clear,
        one,
        Mbo { order: 2, side: b'A', price: 101_000_000_000, ..one },
        Mbo { action: b'M', size: 4, sequence: 2, ..one },
        Mbo { action: b'T', side: b'A', order: 0, size: 4, flags: 0, ..one },
        Mbo { action: b'F', size: 4, flags: 0, ..one },
        Mbo { action: b'C', size: 4, ..one },
        Mbo { action: b'N', side: b'N', ..one },
        Mbo { action: b'C', order: 9, size: 4, ..one },
        Mbo { action: b'Z', ..one },
        Mbo { flags: flags::SNAPSHOT, order: 5, ..one },
        Mbo { flags: flags::SNAPSHOT | flags::LAST, order: 6, ..one },
        Mbo { flags: flags::MBP | flags::LAST, order: 0, ..one },
        Mbo { flags: flags::TOB | flags::LAST, order: 0, ..one },
        Mbo { at: record_of::NO_TIME, order: 8, ..one },
    ]
}

/// For the target `dbn`.
pub fn dbn() -> Seeds {
    let mut seeds: Seeds =
        (1..=4).map(|version| (format!("orders, version {version}"), mbo_file(version, &orders()))).collect();
    let whole = mbo_file(3, &orders());
    let level = (99_000_000_000, 5, 101_000_000_000, 7);
    let trade = (b'A', 100_000_000_000, 3);
    let mut levels = metadata(3, schema::MBP_10, &[("ACME", 7)]);
    for (rtype, action) in [(0, b'T'), (1, b'A'), (10, b'A'), (10, b'C'), (1, b'T'), (10, b'R')] {
        levels.extend(mbp(rtype, action, flags::LAST, trade, &[level; 3], 5));
    }
    // A record of each type and each of its lengths, with nothing in it, and of one that is not known.
    let mut every = metadata(3, schema::MBO, &[("ACME", 7)]);
    for rtype in 0..=u8::MAX {
        for len in publisher::dbn::types::of(rtype).map_or(&[][..], |known| known.lengths) {
            every.extend(record(rtype, 2, 7, record_of::START_NS, &vec![0; len - 16]));
        }
    }
    every.extend(record(0x77, 2, 7, record_of::START_NS, &[0; 8]));
    let mut claims = whole[..100].to_vec();
    claims[4..8].copy_from_slice(&(1u32 << 30).to_le_bytes());
    let mut symbols = whole.clone();
    symbols[8 + 100 + 4..][..4].copy_from_slice(&u32::MAX.to_le_bytes());
    let mut status = metadata(2, schema::MBO, &[]);
    status.extend(record_of::status(7, 7, 1));
    status.extend(record_of::status(7, 8, 2));
    seeds.extend(named([
        ("levels", levels),
        ("every type", every),
        ("status", status),
        ("cut in a record", whole[..whole.len() - 9].to_vec()),
        ("cut in the metadata", whole[..50].to_vec()),
        ("cut in the prelude", whole[..6].to_vec()),
        ("a record of no length", [&whole[..], &[0; 16]].concat()),
        ("claims a gigabyte", claims),
        ("claims four thousand million symbols", symbols),
        ("not DBN", b"DBZ\x03 something else".to_vec()),
    ]));
    seeds
}

/// For the target `detect`.
pub fn detect() -> Seeds {
    let files = [
        ("itch", binary_file(&day())),
        ("mold", made::mold(SESSION, 1, &day())),
        ("dbn", mbo_file(3, &orders())),
        ("pcap", made::pcap_nanos(&captured())),
        ("pcapng", made::pcapng(false, &[NgInterface::NANOS], &[(0, captured().remove(0))])),
    ];
    let mut seeds =
        named([("text", b"time,type,order\n1,2,3\n".to_vec()), ("empty", Vec::new()), ("zeros", vec![0; 64])]);
    for (name, bytes) in files {
        seeds.push((format!("{name} gzip"), gzip(&bytes)));
        seeds.push((format!("{name} zstd"), zstd(&bytes)));
        seeds.push((name.to_owned(), bytes));
    }
    seeds
}

fn framed(message: &impl Serialize) -> Vec<u8> {
    let body = serde_json::to_vec(message).expect("a message is text");
    [&(body.len() as u32).to_le_bytes()[..], &body].concat()
}

/// For the target `control`.
pub fn control() -> Seeds {
    let hello = |token: &str| framed(&Asking::Hello { token: token.into(), name: "fuzz".into() });
    let begun = [&PREFACE[..], &hello(TOKEN)].concat();
    let after = |bytes: &[u8]| [&begun[..], bytes].concat();
    let replies = [
        framed(&Reply::Welcome { pid: 1 }),
        framed(&Reply::Directory { channels: Vec::new() }),
        framed(&Reply::Instruments { channel: 1, instruments: Vec::new(), more: false, incomplete: true }),
        framed(&Reply::Disconnected),
        framed(&Reply::Dropped { channel: 1, why: "it did not read".into() }),
        framed(&Reply::Behind { channel: 1, lines: 2, ring_lines: 3 }),
        framed(&Reply::Refused { why: "refused".into() }),
    ]
    .concat();
    let asked = [
        framed(&Asking::Directory),
        framed(&Asking::Instruments { channel: 1, after: 2 }),
        framed(&Asking::Disconnect { channel: 1 }),
        framed(&Asking::Recover { channel: 1, ring: None }),
        framed(&Asking::Position { channel: 1, next: 5, ring_lines: Some(6) }),
    ]
    .concat();
    let connect = br#"{"connect":{"channel":1,"ring":{"at":"127.0.0.1:5","address":1,"key":2,"lines":64}}}"#;
    let connect = [&(connect.len() as u32).to_le_bytes()[..], connect].concat();
    named([
        ("asked", after(&asked)),
        ("connect", after(&connect)),
        ("hello twice", after(&hello(TOKEN))),
        ("unknown token", [&PREFACE[..], &hello("another")].concat()),
        ("no hello", [&PREFACE[..], &framed(&Asking::Directory)].concat()),
        ("another protocol", b"GET / HTTP/1.1\r\n\r\n".to_vec()),
        ("claims a gigabyte as a stranger", [&PREFACE[..], &(1u32 << 30).to_le_bytes()].concat()),
        ("claims a gigabyte", after(&(1u32 << 30).to_le_bytes())),
        ("no JSON", after(&[3, 0, 0, 0, b'{', b'[', 0xFF])),
        ("an unknown request", after(&framed(&"reboot"))),
        ("nothing in it", after(&[0; 4])),
        ("nested", after(&[&[200, 0, 0, 0][..], &[b'['; 200]].concat())),
        ("replies", replies),
    ])
}

fn an_order(kind: Kind, order: u64) -> Record {
    let mut record = Record::new(kind, InstrumentId(1));
    record.side = if order.is_multiple_of(2) { Side::BID } else { Side::ASK };
    record.flags = Flags::LAST;
    record.order_id.set(order);
    record.price.set(100 + (order % 2) as i64);
    record.size.set(10);
    record
}

/// For the target `packet`: packets as they are sent, and what makes sealed ones.
pub fn packet() -> Seeds {
    let first = Stamp::new(Epoch(2), SequenceNumber(5));
    let packet = |count: u64, next: Stamp| {
        let mut bytes = PacketHeader::new(CHANNEL, Lane::new(1), next, Nanos(77), false).as_bytes().to_vec();
        for at in 0..count {
            bytes.extend(Line::seal(an_order(Kind::ADD, at), first.plus(at)).as_bytes());
        }
        bytes
    };
    let to_seal = |next: Stamp, change: [u8; 4], kind: Kind| {
        [&next.0.to_le_bytes()[..], &change, an_order(kind, 1).as_bytes(), an_order(Kind::ADD, 2).as_bytes()].concat()
    };
    let whole = packet(2, first.plus(2));
    let mut other = PacketHeader::new(protocol::record::ChannelId::new(8), Lane::new(1), first, Nanos(7), false);
    let another_channel = other.as_bytes().to_vec();
    other.magic.set(7);
    named([
        ("heartbeat", packet(0, first)),
        ("two lines", whole.clone()),
        ("63 lines", packet(63, first.plus(63))),
        ("64 lines", packet(64, first.plus(64))),
        ("cut", whole[..whole.len() - 1].to_vec()),
        ("cut in the header", whole[..31].to_vec()),
        ("of another place", packet(2, first.plus(3))),
        ("another channel", another_channel),
        ("another magic", other.as_bytes().to_vec()),
        ("to be sealed", to_seal(first, [0; 4], Kind::ADD)),
        ("to be sealed and changed", to_seal(first, [70, 0, 1, 0], Kind::ADD)),
        ("a heartbeat among the lines", to_seal(first, [0; 4], Kind::HEARTBEAT)),
        ("no room for the lines", to_seal(Stamp::new(Epoch(2), SequenceNumber(2)), [0; 4], Kind::ADD)),
        ("no epoch", to_seal(Stamp::new(Epoch(0), SequenceNumber(9)), [0; 4], Kind::ADD)),
    ])
}

/// For the target `records`: one of each kind, and a few orders that meet.
pub fn records() -> Seeds {
    let bytes = |records: &[Record]| records.iter().flat_map(|record| record.as_bytes().to_vec()).collect::<Vec<u8>>();
    let every: Vec<Record> =
        (0..=u8::MAX).map(Kind).filter(|kind| kind.name().is_some()).map(|kind| an_order(kind, 1)).collect();
    let clear = an_order(Kind::CLEAR, 0);
    let add = an_order(Kind::ADD, 3);
    let mut open = add;
    open.flags = Flags(0);
    let met = [clear, add, an_order(Kind::ADD, 2), an_order(Kind::MODIFY, 3), an_order(Kind::EXECUTE, 3)];
    named([
        ("every kind", bytes(&every)),
        ("orders", bytes(&met)),
        ("one twice", bytes(&[clear, add, add])),
        ("an event without an end", bytes(&[&[clear][..], &[open; 80]].concat())),
        (
            "more orders than there is room for",
            bytes(&(0..70).map(|order| an_order(Kind::ADD, order)).collect::<Vec<_>>()),
        ),
        ("levels", bytes(&[clear, an_order(Kind::LEVEL_SET, 2), an_order(Kind::LEVEL_SET, 3)])),
    ])
}

/// For the target `request`: each thing that is asked, by who may and by who may not.
pub fn request() -> Seeds {
    let first = Stamp::new(Epoch(1), SequenceNumber(1));
    let asks = [
        ("lines", Ask::Lines { first, count: 7 }),
        ("lines that are not yet", Ask::Lines { first: first.plus(500), count: 7 }),
        ("all lines there may be", Ask::Lines { first, count: u64::MAX }),
        ("lines of another epoch", Ask::Lines { first: Stamp::new(Epoch(9), SequenceNumber(1)), count: 7 }),
        (
            "snapshots",
            Ask::Snapshots { first: InstrumentId(0), last: InstrumentId(u32::MAX), not_before: first, max_lines: 60 },
        ),
        (
            "a snapshot of the future",
            Ask::Snapshots {
                first: InstrumentId(1),
                last: InstrumentId(1),
                not_before: first.plus(1000),
                max_lines: 4,
            },
        ),
        ("replies", Ask::Replies { first: 1, count: 5 }),
        ("all replies there may be", Ask::Replies { first: u64::MAX, count: u64::MAX }),
    ];
    let one = |connection: u8, number: u8, ask: Ask| {
        let request = Request { connection: Connection(u16::from(connection)), number: u64::from(number), key: 5, ask };
        [&[connection, number][..], request.to_line().record.as_bytes()].concat()
    };
    let mut seeds: Seeds = asks.iter().map(|(name, ask)| ((*name).to_owned(), one(3, 1, *ask))).collect();
    let all: Vec<u8> = asks.iter().zip(1..).flat_map(|((_, ask), number)| one(3, number, *ask)).collect();
    let mut unknown = one(3, 1, asks[0].1);
    unknown[2 + 3] = 77;
    seeds.extend(named([
        ("all of them", all.clone()),
        ("all of them twice", [&all[..], &all].concat()),
        ("a stranger", one(9, 1, asks[0].1)),
        ("another version's", unknown),
    ]));
    seeds
}

/// For the target `log`: a log, and what makes entries that verify.
pub fn log() -> Seeds {
    let at = |sequence| Stamp::new(Epoch(2), SequenceNumber(sequence));
    let begin = Begin { role: Role::Subscriber, lane: 0, pid: 7, time_ns: 9, name_len: 0 };
    let entries = [
        Entry::Joined { at: at(1) },
        Entry::Lines { first: at(1), count: 5, sum: 1 },
        Entry::Gap { first: at(6), count: 3, cause: LossCause::Missing },
        Entry::Digest { at: at(8), instrument: InstrumentId(1), book: Some(9) },
        Entry::Unlogged { until: at(20), entries: 2 },
        Entry::Epoch { from: at(20), to: Epoch(3) },
        Entry::Ended { at: Stamp::new(Epoch(3), SequenceNumber(1)) },
        Entry::Closed { at: Stamp::new(Epoch(3), SequenceNumber(1)) },
    ];
    let file = |entries: &[Entry]| {
        let all = Entry::beginning(begin, "itch").into_iter().chain(entries.iter().copied());
        all.zip(0..).flat_map(|(entry, number)| entry.seal(number)).collect::<Vec<u8>>()
    };
    let whole = file(&entries);
    let mut damaged = whole.clone();
    damaged[90] ^= 1;
    // Of each kind, at the first places.
    let made: Vec<u8> = [0u8, 1, 2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 3, 9]
        .iter()
        .zip(0u8..)
        .flat_map(|(kind, place)| {
            let mut bytes = [0u8; 40];
            (bytes[0], bytes[4], bytes[8], bytes[9], bytes[16]) = (*kind, 1, 1, place, 1);
            bytes
        })
        .collect();
    let out_of_order = [entries[0], entries[2], entries[1]];
    named([
        ("whole", whole.clone()),
        ("cut", whole[..whole.len() - 1].to_vec()),
        ("damaged", damaged),
        ("out of order", file(&out_of_order)),
        ("entries of each kind", made),
        ("not a log", vec![7; 80]),
        ("empty", Vec::new()),
    ])
}

/// For the target `config`.
pub fn config() -> Seeds {
    let smallest = "[channel]\nname = 'x'\n[feed]\npath = 'y.itch'\n";
    let whole = "[channel]\nname = \"itch\"\n[feed]\npath = \"12302019.NASDAQ_ITCH50.gz\"\npace = { speed = 1.0 }\n[udp]\n\
                 group = \"239.255.7.1\"\nport = 30001\ninterface = \"127.0.0.1\"\nttl = 0\n[control]\n\
                 listen = \"127.0.0.1:31000\"\ntokens = [\"a token\"]\n[recovery]\nlisten = \"127.0.0.1:31001\"\n\
                 history_lines = 1048576\nconflate = true\n[run]\ncore = 1\n[books]\ninstruments = 10\n";
    let with = |more: &str| format!("{smallest}{more}").into_bytes();
    named([
        ("smallest", with("")),
        ("whole", whole.into()),
        ("another key", with("speeed = 1\n")),
        ("pace of nothing", with("pace = { rate = 0.0 }\n")),
        ("a ring of no size", with("[ring]\nlines = 3\n")),
        ("recovery without control", with("[recovery]\nlisten = '127.0.0.1:1'\n")),
        ("another name", b"[channel]\nname = '../x'\n[feed]\npath = 'y'\n".to_vec()),
        ("no table", b"x".to_vec()),
        ("no text", vec![0xFF]),
    ])
}
