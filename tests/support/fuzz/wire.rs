//! What comes from the network, or from a file of our own.

use std::path::Path;

use protocol::book::{Books, BooksConfig, Start};
use protocol::channel::{ChannelConfig, ChannelWriter};
use protocol::control::{ClientSession, HEADER_LEN as FRAME_HEADER_LEN, MAX_BODY_LEN, Reply, ServerSession};
use protocol::definition::{Assembler, Definition};
use protocol::line::{Epoch, LINE_LEN, Line, SequenceNumber, Stamp};
use protocol::log::{Begin, Checker, ENTRY_LEN, Entry, Role};
use protocol::packet::{HEADER_LEN, MAX_LINES, Packet, PacketHeader, Refused, decode};
use protocol::record::{ChannelId, InstrumentId, Kind, Lane, RECORD_LEN, Record};
use protocol::recovery::{Connection, ReplyBegin, Request, Responder, ResponderConfig, Snapshot};
use protocol::run::LossCause;
use protocol::time::Nanos;
use publisher::config::Config;
use zerocopy::{FromBytes, IntoBytes};

/// Books that are small, so that their bounds are met too.
const BOOKS: BooksConfig = BooksConfig { instruments: 16, orders: 64, levels: 32 };
/// The channel of the packets here.
pub const CHANNEL: ChannelId = ChannelId::new(9);
/// A token that servers here know.
pub const TOKEN: &str = "a token";

/// A piece of memory that is aligned as receive buffers are.
#[repr(C, align(64))]
struct Buffer([u8; 64 * (MAX_LINES + 3)]);

impl Buffer {
    /// `bytes` with their lines at multiples of 64, and what `look` says of them.
    fn with<T>(bytes: &[u8], look: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let mut buffer = Box::new(Buffer([0; 64 * (MAX_LINES + 3)]));
        let place = buffer.0.get_mut(HEADER_LEN..HEADER_LEN + bytes.len())?;
        place.copy_from_slice(bytes);
        Some(look(place))
    }
}

/// Records of whatever `bytes` say, as many as there are whole.
fn records_of(bytes: &[u8]) -> impl Iterator<Item = Record> + '_ {
    let (records, _) = bytes.as_chunks::<RECORD_LEN>();
    records.iter().map(|record| Record::read_from_bytes(record).expect("any bytes are a record"))
}

/// A packet as it comes from the network; and one that is sealed, whatever is in it, with a byte changed on the way.
pub fn packet(bytes: &[u8]) {
    let check = |packet: Result<Packet<'_>, Refused>, len: usize| {
        if let Ok(packet) = &packet {
            assert_eq!(HEADER_LEN + packet.lines.len() * LINE_LEN, len);
            for (line, at) in packet.lines.iter().zip(0..) {
                assert!(line.verifies(packet.first.plus(at)) && line.record.kind != Kind::HEARTBEAT);
            }
        }
        packet.map(|packet| packet.lines.len())
    };
    Buffer::with(bytes, |bytes| check(decode(bytes, CHANNEL), bytes.len()));

    // Next stamp, the byte that is changed, by what; then records.
    let Some((head, rest)) = bytes.split_first_chunk::<12>() else { return };
    let next = Stamp(u64::from_le_bytes(*head.first_chunk().expect("8 of 12 bytes")));
    let (place, change) = (usize::from(u16::from_le_bytes([head[8], head[9]])), head[10]);
    let records: Vec<Record> = records_of(rest).take(MAX_LINES).collect();
    let count = records.len() as u64;
    let header = PacketHeader::new(CHANNEL, Lane::new(1), next, Nanos(77), head[11] & 1 == 1);
    let mut sealed = header.as_bytes().to_vec();
    let has_room = next.sequence().0 > count && next.epoch().0 > 0;
    let before = if has_room { next.sequence().0 - count } else { 1 };
    let first = Stamp::new(next.epoch(), SequenceNumber(before));
    for (record, at) in records.iter().zip(0..) {
        sealed.extend(Line::seal(*record, first.plus(at)).as_bytes());
    }
    let beats = records.iter().any(|record| record.kind == Kind::HEARTBEAT);
    let expected = match (has_room, beats) {
        (false, _) => Err(Refused::Sequence),
        (true, true) => Err(Refused::Heartbeat),
        (true, false) => Ok(records.len()),
    };
    let found = Buffer::with(&sealed, |bytes| check(decode(bytes, CHANNEL), bytes.len()));
    assert_eq!(found, Some(expected));
    let place = place % sealed.len();
    sealed[place] ^= change;
    let found = Buffer::with(&sealed, |bytes| check(decode(bytes, CHANNEL), bytes.len()));
    assert!(change == 0 || found.is_some_and(|found| found.is_err()), "byte {place} changed by {change:02X} is seen");
}

/// Instruments that a publisher here may have. They are numbered one by one, and tables are as long as the highest.
const INSTRUMENTS: u32 = 64;

/// Records of any content: read as from a publisher that is out of its mind, then published as a venue's. Whoever follows
/// what is published has the same books.
pub fn records(bytes: &[u8]) {
    let mut books = Books::new(BOOKS, Start::Natural);
    let mut assembler = Assembler::default();
    let mut at = Stamp::new(Epoch(1), SequenceNumber(1));
    let all: Vec<Record> = records_of(bytes)
        .map(|mut record| {
            record.instrument.set(record.instrument.get() % INSTRUMENTS);
            record
        })
        .collect();
    for record in &all {
        books.apply(at, record);
        while books.poll_event().is_some() {}
        if let Some((head, payload)) = assembler.push(at.sequence(), record) {
            let definition = Definition::parse(head, payload);
            let _ = (definition.symbol(), definition.price_exponent(), definition.entries().count());
        }
        at = at.plus(1);
    }
    if let Some(snapshot) = Snapshot::from_records(&all) {
        assert_eq!(snapshot.records.len() + 2, all.len());
    }

    let config = ChannelConfig { books: BOOKS, start: Start::Strict, digest_every: 1 };
    let mut channel = ChannelWriter::new(Epoch(1), config);
    let mut follower = Books::new(BOOKS, Start::Strict);
    let mut next = Stamp::new(Epoch(1), SequenceNumber(1));
    for (record, now) in all.iter().filter(|record| is_of_a_venue(record.kind)).zip(0..) {
        let mut out = |line: &Line| {
            assert!(line.verifies(next));
            follower.apply(next, &line.record);
            while follower.poll_event().is_some() {}
            next = next.plus(1);
        };
        channel.push(record, Nanos(now), &mut out).expect("far from the last sequence number");
        channel.end_message(Nanos(now), &mut out).expect("far from the last sequence number");
    }
    let counts = follower.digest_counts();
    assert_eq!((counts.disagreed, counts.compared_stale), (0, 0), "{counts:?}");
}

/// Whether a venue's messages become records of this kind: the others are the channel's own words.
fn is_of_a_venue(kind: Kind) -> bool {
    ![Kind::BOOK_DIGEST, Kind::SNAPSHOT_BEGIN, Kind::SNAPSHOT_END, Kind::REPLY_BEGIN, Kind::HEARTBEAT, Kind::REQUEST]
        .contains(&kind)
}

/// The bytes of a control connection, at both of its ends.
pub fn control(bytes: &[u8]) {
    let mut server = ServerSession::new(Nanos(1));
    let mut rest = bytes;
    let mut turn = 0;
    while !rest.is_empty() && server.closed().is_none() {
        turn += 1;
        let wanted = server.wants();
        assert!(wanted <= 8 + FRAME_HEADER_LEN + MAX_BODY_LEN, "{wanted} bytes are read of a peer at a time");
        let len = wanted.min(rest.len()).min([1, 30, 4096, 5][turn % 4]);
        // A frame that is longer than may be read has been refused; one that may be leaves room for its rest.
        assert!(len > 0, "nothing is read, and nothing refused");
        let (piece, after) = rest.split_at(len);
        rest = after;
        server.on_bytes(piece, Nanos(2), 7, |token| token == TOKEN);
        while let Some(request) = server.poll_request(Nanos(2)) {
            assert!(server.is_identified() && !matches!(request, protocol::control::Request::Hello { .. }));
            server.reply(&Reply::Disconnected);
        }
        assert!(server.peer().chars().count() <= 64);
        let sent = server.output().len();
        server.sent(sent);
    }
    let mut client = ClientSession::new(TOKEN, "fuzz");
    client.on_bytes(bytes);
    while let Ok(Some(reply)) = client.poll_reply() {
        // What can be read can be written, and read again.
        let text = serde_json::to_vec(&reply).expect("a reply is text");
        assert_eq!(serde_json::from_slice::<Reply>(&text).ok(), Some(reply));
    }
}

/// Requests to a recovery server that has a few lines, and what a subscriber reads of replies. Each request is a record
/// behind its stamp's number and the connection.
pub fn request(bytes: &[u8]) {
    let config = ResponderConfig {
        history_lines: 64,
        reply_lines: 64,
        most_reply_lines: 256,
        waiting: 4,
        books: BOOKS,
        ..ResponderConfig::default()
    };
    let mut responder = Responder::new(config);
    let known = Connection(3);
    responder.admit(known, 5);
    fill(&mut responder);
    let (requests, _) = bytes.as_chunks::<{ RECORD_LEN + 2 }>();
    for (request, now) in requests.iter().take(256).zip(1..) {
        let [connection, number, record @ ..] = request;
        let record = Record::read_from_bytes(record).expect("any bytes are a record");
        let stamp = Connection(u16::from(*connection)).stamp(u64::from(*number));
        let line = Line::seal(record, stamp);
        if let Some(request) = Request::from_line(&line) {
            assert_eq!(Request::from_line(&request.to_line()), Some(request));
        }
        if let Some(begin) = ReplyBegin::from_record(&record) {
            assert_eq!(ReplyBegin::from_record(&begin.to_record()), Some(begin));
        }
        responder.on_request(&line);
        let mut lines = 0;
        while let Some(run) = responder.poll_reply(Nanos(now * 1_000_000), 16) {
            assert_eq!(run.connection, known, "answers go to who was admitted");
            assert!((1..=16).contains(&run.lines.len()));
            for (line, at) in run.lines.iter().zip(0..) {
                assert!(line.verifies(run.first.plus(at)));
            }
            lines += run.lines.len();
            assert!(lines <= 4096, "one request has no end of answers");
        }
    }
}

/// A stream with a few orders, for there to be answers.
fn fill(responder: &mut Responder) {
    use protocol::arbiter::Delivery;
    let mut channel =
        ChannelWriter::new(Epoch(1), ChannelConfig { books: BOOKS, start: Start::Strict, digest_every: 0 });
    let mut next = Stamp::new(Epoch(1), SequenceNumber(1));
    responder.on_joined(next);
    for order in 0..20 {
        let kind = if order == 0 { Kind::CLEAR } else { Kind::ADD };
        let mut record = Record::new(kind, InstrumentId(1));
        record.flags = protocol::record::Flags::LAST;
        if order > 0 {
            record.side = protocol::record::Side::BID;
            record.order_id.set(order);
            record.price.set(100 + order as i64);
            record.size.set(10);
        }
        let mut out = |line: &Line| {
            responder.on_lines(
                next,
                &[*line],
                protocol::run::LanePath::new(Lane::new(0), protocol::run::Carrier::SharedMemory),
                None,
            );
            next = next.plus(1);
        };
        channel.push(&record, Nanos(order), &mut out).expect("far from the last sequence number");
    }
}

/// A participant's log as it is; and entries that verify, whatever they say: 40 bytes each, of which the last 8 are not
/// used.
pub fn log(bytes: &[u8]) {
    let check = |bytes: &[u8]| {
        for lossless in [false, true] {
            let mut checker = if lossless { Checker::new().lossless() } else { Checker::new() };
            checker.add("a", bytes);
            checker.add("b", &bytes[..bytes.len() / 2]);
            let history = checker.finish();
            assert_eq!(history.is_sound(), history.problems_total == 0);
            assert!(history.problems.iter().all(|problem| !problem.wrong.to_string().is_empty()));
        }
    };
    check(bytes);
    let begin = Begin { role: Role::Publisher, lane: 0, pid: 7, time_ns: 9, name_len: 0 };
    let (pieces, _) = bytes.as_chunks::<ENTRY_LEN>();
    let entries = Entry::beginning(begin, "x").into_iter().chain(pieces.iter().map(entry_of));
    let mut sealed = Vec::new();
    for (entry, number) in entries.zip(0..) {
        let bytes = entry.seal(number);
        match Entry::read(&bytes, number) {
            Ok(read) => assert_eq!(read, entry),
            Err(error) => assert!(matches!(error, protocol::log::EntryError::BadValue(_)), "{entry:?}: {error}"),
        }
        sealed.extend(bytes);
    }
    check(&sealed);
}

/// An entry of whatever kind and numbers `bytes` say; small ones, mostly, so that they meet.
fn entry_of(bytes: &[u8; ENTRY_LEN]) -> Entry {
    let number = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("within 40 bytes"));
    let stamp = |at: usize| match bytes[1] {
        0..128 => Stamp::new(Epoch(u16::from(bytes[at]) % 3), SequenceNumber(u64::from(bytes[at + 1]))),
        _ => Stamp(number(at)),
    };
    let (at, count, value) = (stamp(8), number(16), number(24));
    let cause = [LossCause::Lapped, LossCause::Unverified, LossCause::Missing][usize::from(bytes[2]) % 3];
    match bytes[0] % 10 {
        0 => Entry::Begin(Begin {
            role: [Role::Publisher, Role::Recovery, Role::Subscriber][usize::from(bytes[2]) % 3],
            lane: u16::from(bytes[3]),
            pid: count as u32,
            time_ns: value,
            name_len: bytes[4],
        }),
        1 => Entry::Name(*bytes[8..].first_chunk().expect("24 of 32 bytes")),
        2 => Entry::Joined { at },
        3 => Entry::Lines { first: at, count: count % 66, sum: value % 3 },
        4 => Entry::Gap { first: at, count, cause },
        5 => Entry::Epoch { from: at, to: Epoch(count as u16) },
        6 => Entry::Digest { at, instrument: InstrumentId(count as u32), book: (bytes[2] & 1 == 1).then_some(value) },
        7 => Entry::Unlogged { until: at, entries: count },
        8 => Entry::Ended { at },
        _ => Entry::Closed { at },
    }
}

/// The text of a publisher's configuration.
pub fn config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match Config::parse(text, Path::new("fuzz.toml")) {
        Ok(config) => assert!(!config.channel.name.is_empty() && config.channel.name.len() <= 64),
        Err(error) => assert!(error.to_string().contains("fuzz.toml"), "{error}"),
    }
}
