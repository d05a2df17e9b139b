//! Hostile bytes: nothing panics, nothing is invented, and what is sound is still read.

#![forbid(unsafe_code)]

use std::cell::Cell;
use std::path::Path;

use protocol::book::{OrderLookup, RestingOrder};
use protocol::record::{Flags, InstrumentId, Kind, MAX_LINES_PER_RECORD, Record, Side};
use publisher::date::SessionDate;
use publisher::feed::{FeedError, FeedSource, Message};
use publisher::itch::{BinaryFile, FramingOptions, Message as Itch, Normaliser, NormaliserOptions, Rejected, decode};

/// A small generator of its own (SplitMix64), so that a printed seed means the same for ever.
struct Random(Cell<u64>);

impl Random {
    fn next(&self) -> u64 {
        self.0.set(self.0.get().wrapping_add(0x9E37_79B9_7F4A_7C15));
        let mut z = self.0.get();
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }
    fn below(&self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
    fn bytes(&self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// A book that holds something at times, and anything.
struct Anything<'a>(&'a Random);

impl OrderLookup for Anything<'_> {
    fn order(&self, _: InstrumentId, _: u64) -> Option<RestingOrder> {
        let bits = self.0.next();
        (bits & 1 == 0).then(|| RestingOrder {
            side: if bits & 2 == 0 { Side::BID } else { Side::ASK },
            price: self.0.next() as i64,
            size: self.0.next(),
            priority: bits,
        })
    }
}

const LENGTHS: [(u8, usize); 23] = [
    (b'S', 12),
    (b'R', 39),
    (b'H', 25),
    (b'Y', 20),
    (b'L', 26),
    (b'V', 35),
    (b'W', 12),
    (b'K', 28),
    (b'J', 35),
    (b'h', 21),
    (b'A', 36),
    (b'F', 40),
    (b'E', 31),
    (b'C', 36),
    (b'X', 23),
    (b'D', 19),
    (b'U', 35),
    (b'P', 44),
    (b'Q', 40),
    (b'B', 19),
    (b'I', 50),
    (b'N', 20),
    (b'O', 48),
];

/// Any bytes, or a message of a known type and length with any content, or nearly that.
fn message(random: &Random) -> Vec<u8> {
    let (message_type, len) = LENGTHS[random.below(23)];
    let mut bytes = match random.below(8) {
        0 => {
            let len = random.below(80);
            return random.bytes(len);
        }
        1 => random.bytes((len + random.below(5)).saturating_sub(2).max(1)),
        _ => random.bytes(len),
    };
    bytes[0] = message_type;
    // Few locates, so that instruments meet again.
    if bytes.len() > 2 && random.below(4) > 0 {
        bytes[1] = 0;
        bytes[2] &= 7;
    }
    bytes
}

/// What holds of the lines of any one message.
fn check(lines: &[Record], seed: u64) {
    let mut since_head = 0;
    for (i, line) in lines.iter().enumerate() {
        let last = i + 1 == lines.len();
        assert_eq!(line.is_last(), last, "seed {seed}: {lines:?}");
        let continued = line.flags.has(Flags::CONTINUES);
        let next_belongs = lines.get(i + 1).is_some_and(|next| next.kind == Kind::CONTINUATION);
        assert_eq!(continued, next_belongs, "seed {seed}: {lines:?}");
        since_head = if line.kind == Kind::CONTINUATION { since_head + 1 } else { 1 };
        assert!(since_head <= MAX_LINES_PER_RECORD, "seed {seed}: {lines:?}");
        assert!(line.kind.name().is_some(), "seed {seed}: {lines:?}");
    }
}

#[test]
fn any_message_gives_whole_events_or_a_counted_refusal() {
    for seed in 0..20u64 {
        println!("seed {seed}");
        let random = Random(Cell::new(seed));
        let options = NormaliserOptions { full: seed % 2 == 0, ..NormaliserOptions::default() };
        let mut normaliser = Normaliser::new(options, SessionDate::NONE);
        let (mut refused, mut lines_seen) = (0, 0);
        for ordinal in 1..=20_000u64 {
            let bytes = message(&random);
            let capture = None;
            let mut lines = Vec::new();
            let message = Message { ordinal, offset: 0, capture, bytes: &bytes };
            let result = normaliser.normalise(&message, &Anything(&random), &mut |record| lines.push(record));
            assert_eq!(result.is_err(), decode(&bytes).is_err());
            if result.is_err() {
                refused += 1;
                assert!(lines.is_empty(), "seed {seed}: {bytes:?} was refused and gave {lines:?}");
            }
            check(&lines, seed);
            lines_seen += lines.len() as u64;
        }
        let counters = normaliser.counters();
        assert_eq!(counters.messages(), 20_000, "seed {seed}");
        assert_eq!(counters.unknown_types + counters.bad_lengths() + counters.empty_messages, refused, "seed {seed}");
        assert_eq!(counters.lines, lines_seen, "seed {seed}");
        assert!(counters.unknown_types > 500 && counters.bad_lengths() > 500, "seed {seed}: the input has its faults");
    }
}

/// A sound stream of `count` messages.
fn stream(random: &Random, count: usize) -> (Vec<u8>, Vec<Vec<u8>>) {
    let mut bytes = Vec::new();
    let mut messages = Vec::new();
    for _ in 0..count {
        let (message_type, len) = LENGTHS[random.below(23)];
        let mut message = random.bytes(len);
        message[0] = message_type;
        bytes.extend((len as u16).to_be_bytes());
        bytes.extend(&message);
        messages.push(message);
    }
    (bytes, messages)
}

#[test]
fn a_mutated_stream_gives_what_is_before_the_mutation_and_ends() {
    for seed in 0..2_000u64 {
        let random = Random(Cell::new(seed));
        let (mut bytes, messages) = stream(&random, 30);
        let from = random.below(bytes.len());
        match random.below(4) {
            0 => bytes[from] ^= 1 << random.below(8),
            1 => bytes.truncate(from),
            2 => {
                let noise = random.bytes(20);
                bytes.splice(from..from, noise);
            }
            _ => {
                let to = (from + 5).min(bytes.len());
                bytes.drain(from..to);
            }
        }
        let mut source = BinaryFile::from_reader(bytes.as_slice(), Path::new("mutated"), FramingOptions::default());
        let (mut at, mut delivered) = (0, 0);
        loop {
            assert!(delivered <= bytes.len(), "seed {seed}: more messages than bytes");
            match source.next() {
                Ok(Some(message)) => {
                    assert_eq!((message.ordinal, message.offset), (delivered as u64 + 1, at as u64), "seed {seed}");
                    at += 2 + message.bytes.len();
                    if at <= from {
                        assert_eq!(message.bytes, messages[delivered], "seed {seed}: {delivered} is before the fault");
                    }
                    delivered += 1;
                    // Whatever it is now, it is a message or a refusal.
                    let known = LENGTHS.contains(&(message.bytes[0], message.bytes.len()));
                    assert_eq!(decode(message.bytes).is_ok(), known, "seed {seed}");
                }
                Ok(None) => {
                    assert!(at == bytes.len() || bytes[at..] == [0, 0], "seed {seed}: ends at {at}");
                    break;
                }
                Err(FeedError::Truncated { offset, .. } | FeedError::ZeroLength { offset, .. }) => {
                    assert_eq!(offset, at as u64, "seed {seed}");
                    break;
                }
                // The mutation cut everything off.
                Err(FeedError::Empty { .. }) => {
                    assert!(bytes.is_empty(), "seed {seed}");
                    break;
                }
                Err(other) => panic!("seed {seed}: {other}"),
            }
        }
    }
}

#[test]
fn message_type_0_at_the_very_start_is_skipped_and_counted() {
    let random = Random(Cell::new(2));
    let mut bytes = b"\x00\x04\0abc".to_vec();
    let (more, messages) = stream(&random, 10);
    bytes.extend(more);
    let mut source = BinaryFile::from_reader(bytes.as_slice(), Path::new("x"), FramingOptions::default());
    let mut normaliser = Normaliser::new(NormaliserOptions::default(), SessionDate::NONE);
    let first = source.next().expect("sound framing").expect("a message");
    let refused = normaliser.normalise(&first, &Anything(&random), &mut |record| panic!("{record:?}"));
    assert_eq!(refused, Err(Rejected::Unknown { message_type: 0, len: 4 }));
    for wanted in &messages {
        let message = source.next().expect("sound framing").expect("a message");
        assert_eq!(message.bytes, wanted);
        normaliser.normalise(&message, &Anything(&random), &mut |_| {}).expect("a known message");
    }
    assert_eq!(normaliser.counters().unknown_by_type().collect::<Vec<_>>(), [(0, 1)]);
}

#[test]
fn an_unknown_type_in_mid_stream_does_not_end_the_run() {
    let random = Random(Cell::new(1));
    let (mut bytes, _) = stream(&random, 10);
    bytes.extend(b"\x00\x05\xEEabcd");
    let (more, _) = stream(&random, 10);
    bytes.extend(more);
    let mut source = BinaryFile::from_reader(bytes.as_slice(), Path::new("x"), FramingOptions::default());
    let mut normaliser = Normaliser::new(NormaliserOptions::default(), SessionDate::NONE);
    while let Some(message) = source.next().expect("sound framing") {
        let _ = normaliser.normalise(&message, &Anything(&random), &mut |_| {});
    }
    assert_eq!(normaliser.counters().messages(), 21);
    assert_eq!(normaliser.counters().unknown_by_type().collect::<Vec<_>>(), [(0xEE, 1)]);
    assert_eq!(Itch::TYPES.len(), LENGTHS.len());
}
