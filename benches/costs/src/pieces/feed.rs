//! ITCH messages: viewed, made records of, and through the whole pipeline.

use std::hint::black_box;
use std::io::Cursor;
use std::path::Path;

use protocol::book::BooksConfig;
use protocol::channel::ChannelConfig;
use protocol::line::Epoch;
use protocol::record::{ChannelId, Lane};
use protocol::time::Nanos;
use publisher::Pipeline;
use publisher::date::SessionDate;
use publisher::feed::Message;
use publisher::itch::{BinaryFile, FramingOptions, Normaliser, NormaliserOptions, decode};
use transport::RingWriter;

use super::{Piece, STEPS};

const LOCATE: u16 = 1;

/// A message's type, its locate, no tracking number and a time that rises by a microsecond, then `body`.
fn message(message_type: u8, nth: usize, body: &[&[u8]]) -> Vec<u8> {
    let mut bytes = vec![message_type];
    bytes.extend_from_slice(&LOCATE.to_be_bytes());
    bytes.extend_from_slice(&[0, 0]);
    bytes.extend_from_slice(&(34_200_000_000_000 + 1_000 * nth as u64).to_be_bytes()[2..]);
    body.iter().for_each(|part| bytes.extend_from_slice(part));
    bytes
}

/// In turn, five to a round: an order comes, is executed in part, is reduced, is replaced, and the new one goes. Lengths
/// are the specification's.
fn messages() -> Vec<Vec<u8>> {
    (0..STEPS)
        .map(|nth| {
            let round = (nth / 5) as u64;
            let (order, new) = ((2 * round + 1).to_be_bytes(), (2 * round + 2).to_be_bytes());
            let price = (1_000_000u32 + 100 * (round as u32 % 8)).to_be_bytes();
            let shares = |shares: u32| shares.to_be_bytes();
            match nth % 5 {
                0 => message(b'A', nth, &[&order, b"B", &shares(300), b"BOOKCAST", &price]),
                1 => message(b'E', nth, &[&order, &shares(100), &(nth as u64).to_be_bytes()]),
                2 => message(b'X', nth, &[&order, &shares(50)]),
                3 => message(b'U', nth, &[&order, &new, &shares(200), &price]),
                _ => message(b'D', nth, &[&new]),
            }
        })
        .collect()
}

/// What comes before the first of them: the start of messages.
fn start() -> Vec<u8> {
    let mut bytes = message(b'S', 0, &[b"O"]);
    bytes[1..3].fill(0);
    bytes
}

/// Viewing a message as what it is.
pub struct ItchDecode {
    messages: Vec<Vec<u8>>,
    at: usize,
    sum: u64,
}

impl Piece for ItchDecode {
    const NAME: &'static str = "itch decode";

    fn new() -> ItchDecode {
        ItchDecode { messages: messages(), at: 0, sum: 0 }
    }

    #[inline(always)]
    fn step(&mut self) {
        if let Ok(message) = decode(black_box(&self.messages[self.at])) {
            self.sum += u64::from(black_box(&message).header().stock_locate.get());
        }
        self.at += 1;
    }

    fn check(&self, steps: u64) {
        assert_eq!(self.sum, steps * u64::from(LOCATE));
    }
}

/// A message into records. The book that it asks is empty, so of a side that a message leaves out nothing becomes known:
/// [`PipelineMessage`] has the real book.
pub struct ItchNormalise {
    normaliser: Normaliser,
    books: protocol::book::Books,
    messages: Vec<Vec<u8>>,
    at: usize,
    lines: u64,
}

impl Piece for ItchNormalise {
    const NAME: &'static str = "itch normalise";

    fn new() -> ItchNormalise {
        let config = BooksConfig { instruments: 16, orders: 1 << 12, levels: 1 << 10 };
        let mut piece = ItchNormalise {
            normaliser: Normaliser::new(NormaliserOptions::default(), SessionDate::NONE),
            books: protocol::book::Books::new(config, protocol::book::Start::Strict),
            messages: vec![start()],
            at: 0,
            lines: 0,
        };
        piece.step();
        (piece.messages, piece.at, piece.lines) = (messages(), 0, 0);
        piece
    }

    #[inline(always)]
    fn step(&mut self) {
        let ordinal = self.at as u64 + 1;
        let message = Message { ordinal, offset: 0, capture: None, bytes: black_box(&self.messages[self.at]) };
        let lines = &mut self.lines;
        // What is refused shows in the number of lines.
        let _ = self.normaliser.normalise(&message, &self.books, &mut |record| {
            *lines += 1;
            black_box(&record);
        });
        self.at += 1;
    }

    fn check(&self, steps: u64) {
        assert_eq!(self.normaliser.counters().messages(), steps + 1);
        assert!(self.lines >= steps, "{} lines of {steps} messages", self.lines);
    }
}

/// A message through the publisher's pipeline: framed, decoded, normalised, numbered, sealed, put, shown, and into the
/// publisher's own books, with a digest every 64 messages.
pub struct PipelineMessage {
    pipeline: Pipeline<BinaryFile<Cursor<Vec<u8>>>, Normaliser>,
    ring: RingWriter,
}

impl Piece for PipelineMessage {
    const NAME: &'static str = "pipeline message";

    fn new() -> PipelineMessage {
        let mut bytes = Vec::new();
        for message in std::iter::once(start()).chain(messages()) {
            bytes.extend_from_slice(&(message.len() as u16).to_be_bytes());
            bytes.extend_from_slice(&message);
        }
        let source = BinaryFile::from_reader(Cursor::new(bytes), Path::new("counted"), FramingOptions::default());
        let venue = Normaliser::new(NormaliserOptions::default(), SessionDate::NONE);
        let books = BooksConfig { instruments: 16, orders: 1 << 12, levels: 1 << 10 };
        let config = ChannelConfig { books, ..ChannelConfig::default() };
        let ring = RingWriter::anonymous(ChannelId::new(1), Lane::new(0), Epoch(1), 4096).expect("a small ring");
        let mut piece = PipelineMessage { pipeline: Pipeline::new(source, venue, Epoch(1), config), ring };
        // The start of messages.
        piece.step();
        piece
    }

    #[inline(always)]
    fn step(&mut self) {
        let now = black_box(Nanos(1_000_000));
        let ring = &mut self.ring;
        let more = self.pipeline.publish(now, &mut |line| ring.put(line)).expect("sound messages");
        ring.flush();
        self.pipeline.settle(now, &mut |line| ring.put(line)).expect("numbers enough");
        black_box(more);
    }

    fn check(&self, steps: u64) {
        assert_eq!(self.pipeline.messages(), steps + 1);
        assert_eq!(self.pipeline.venue().counters().unknown_orders, 0);
    }
}
