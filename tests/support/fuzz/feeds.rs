//! Feeds, and what they are stored in.

use std::io::{Read, Write};
use std::path::Path;

use protocol::book::{Books, BooksConfig, Start};
use protocol::channel::ChannelConfig;
use protocol::line::{Epoch, Line, SequenceNumber, Stamp};
use protocol::time::Nanos;
use publisher::Pipeline;
use publisher::capture::window::Window;
use publisher::capture::{Container, Packets, datagram};
use publisher::date::SessionDate;
use publisher::dbn::{DbnFile, Normaliser as DbnNormaliser};
use publisher::feed::{FeedError, FeedSource, Message, Notice};
use publisher::input::{Input, Packing};
use publisher::itch::mold::packet::{HEADER_LEN, MoldPacket, Purpose};
use publisher::itch::mold::{MoldFeed, MoldOptions};
use publisher::itch::{self, BinaryFile, FramingOptions, Normaliser, NormaliserOptions};
use publisher::open::{FeedOptions, open_feed};
use publisher::venue::Venue;

/// Books that are small, so that their bounds are met too.
const BOOKS: BooksConfig = BooksConfig { instruments: 16, orders: 64, levels: 32 };
/// Uncompressed bytes that are read of an input: a thousand bytes may well be many gigabytes.
const MOST_BYTES: u64 = 4 << 20;
/// Messages that are taken of an input.
const MOST_MESSAGES: usize = 100_000;

/// The name that the inputs have in errors.
fn path() -> &'static Path {
    Path::new("input")
}

/// Gives a few bytes at a time: how many, changes.
struct Drip<'a> {
    bytes: &'a [u8],
    turn: usize,
}

impl Read for Drip<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.turn += 1;
        let len = [1, 7, 2, 64, 19, 4096][self.turn % 6];
        self.bytes.read(&mut buffer[..len.min(self.bytes.len())])
    }
}

/// What a source gave.
#[derive(PartialEq, Eq, Debug, Default)]
struct Given {
    messages: Vec<(u64, u64, Vec<u8>)>,
    notices: Vec<(usize, String)>,
    end: Option<String>,
    warning: Option<String>,
    early: bool,
}

/// Takes everything, or as much as is enough.
fn drain(source: &mut impl FeedSource) -> Given {
    let mut given = Given::default();
    let notice = |source: &mut dyn FnMut() -> Option<Notice>, given: &mut Given| {
        while let Some(notice) = source() {
            given.notices.push((given.messages.len(), format!("{notice:?}")));
        }
    };
    let mut bytes = 0;
    loop {
        let mut glanced = 0;
        source.glance(4, &mut |message| glanced += message.len());
        let outcome = source
            .next()
            .map(|message| message.map(|Message { ordinal, offset, bytes, .. }| (ordinal, offset, bytes.to_vec())));
        notice(&mut || source.poll_notice(), &mut given);
        match outcome {
            Ok(Some(message)) => {
                bytes += message.2.len() as u64 + 1;
                given.messages.push(message);
                if given.messages.len() == MOST_MESSAGES || bytes > MOST_BYTES {
                    break;
                }
            }
            Ok(None) => {
                assert!(source.next().is_ok_and(|message| message.is_none()), "an end stays one");
                break;
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                let again = source.next().map(|_| ()).expect_err("a fault stays one");
                assert_eq!(again.to_string(), error.to_string());
                given.early = error.is_early_end();
                given.end = Some(error.to_string());
                break;
            }
        }
    }
    given.warning = source.warning().map(FeedError::to_string);
    let _ = source.remarks();
    given
}

/// The same bytes in any pieces, strictly and leniently.
fn compare(whole: &Given, dripped: &Given, lenient: &Given) {
    assert_eq!(whole, dripped, "in small pieces");
    assert_eq!(whole.messages, lenient.messages, "leniently");
    if whole.early {
        assert_eq!((&lenient.end, &lenient.warning), (&None, &whole.end));
    } else {
        assert_eq!((&lenient.end, &lenient.warning), (&whole.end, &None));
    }
}

/// Publishes a feed, and follows the lines with other books: they are the same, by every digest.
fn publish<V: Venue>(source: impl FeedSource, venue: V) {
    let config = ChannelConfig { books: BOOKS, start: Start::Strict, digest_every: 1 };
    let mut pipeline = Pipeline::new(source, venue, Epoch(1), config);
    let mut follower = Books::new(BOOKS, Start::Strict);
    let mut next = Stamp::new(Epoch(1), SequenceNumber(1));
    let mut lines = 0u64;
    for now in 0..MOST_MESSAGES as u64 {
        let more = pipeline.step(Nanos(now), &mut |line: &Line| {
            assert!(line.verifies(next), "{} where {next} comes", line.stamp());
            assert_ne!(line.record.words(), [0; 7], "an empty line");
            follower.apply(next, &line.record);
            while follower.poll_event().is_some() {}
            next = next.plus(1);
            lines += 1;
        });
        if !more.unwrap_or(false) || lines > MOST_MESSAGES as u64 {
            break;
        }
    }
    let counts = follower.digest_counts();
    assert_eq!((counts.disagreed, counts.compared_stale), (0, 0), "{counts:?}");
}

/// ITCH in BinaryFILE.
pub fn itch(bytes: &[u8]) {
    let strict = FramingOptions::default();
    let lenient = FramingOptions { lenient: true };
    let whole = drain(&mut BinaryFile::from_reader(bytes, path(), strict));
    let dripped = drain(&mut BinaryFile::from_reader(Drip { bytes, turn: 0 }, path(), strict));
    compare(&whole, &dripped, &drain(&mut BinaryFile::from_reader(bytes, path(), lenient)));
}

/// Messages of ITCH alone: each is of the length that its first byte says, so that what changes is what is in them.
pub fn itch_message(bytes: &[u8]) {
    let mut framed = Vec::new();
    let mut rest = bytes;
    while let Some(first) = rest.first() {
        let known = lengths().iter().find(|(message_type, _)| message_type == first);
        let len = known.map_or(1, |(_, len)| *len).min(rest.len());
        let (message, after) = rest.split_at(len);
        let decoded = itch::decode(message);
        assert_eq!(decoded.is_ok(), known.is_some_and(|(_, whole)| *whole == len), "{message:02X?}");
        if let Ok(decoded) = decoded {
            assert_eq!(decoded.header().stock_locate.get().to_be_bytes(), message[1..3]);
            let _ = format!("{decoded:?}");
        }
        framed.extend((len as u16).to_be_bytes());
        framed.extend(message);
        rest = after;
    }
    let venue = Normaliser::new(NormaliserOptions { full: true, ..NormaliserOptions::default() }, SessionDate::NONE);
    publish(BinaryFile::from_reader(&framed[..], path(), FramingOptions::default()), venue);
}

/// The types of ITCH 5.0 and their lengths, by its specification.
pub fn lengths() -> &'static [(u8, usize)] {
    &[
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
    ]
}

/// A MoldUDP64 datagram, and a file of them.
pub fn mold(bytes: &[u8]) {
    if let Some(packet) = MoldPacket::parse(bytes) {
        let messages: Vec<&[u8]> = packet.messages().collect();
        assert_eq!(messages.len(), usize::from(packet.present));
        assert!(packet.present <= packet.announced);
        let len: usize = messages.iter().map(|message| message.len() + 2).sum();
        assert_eq!(HEADER_LEN + len + packet.left_over, bytes.len());
        assert!(packet.purpose == Purpose::Messages || packet.announced == 0);
        assert!(packet.next_sequence() >= packet.sequence);
    }
    let raw = |lenient, dripping| {
        let options = MoldOptions { lenient, ..MoldOptions::default() };
        match dripping {
            true => drain(&mut MoldFeed::from_window(
                Window::new(Drip { bytes, turn: 0 }, path(), Packing::Plain),
                None,
                options,
            )),
            false => drain(&mut MoldFeed::from_window(Window::new(bytes, path(), Packing::Plain), None, options)),
        }
    };
    // A lenient reader of datagrams in a row takes a cut one's whole messages, and so does a strict one.
    assert_eq!(raw(false, false), raw(false, true), "in small pieces");
    publish(mold_feed(bytes, None), Normaliser::new(NormaliserOptions::default(), SessionDate::NONE));
}

fn mold_feed(bytes: &[u8], container: Option<Container>) -> MoldFeed<&[u8]> {
    let window = Window::new(bytes, path(), Packing::Plain);
    MoldFeed::from_window(window, container, MoldOptions { lenient: true, ..MoldOptions::default() })
}

/// The frames of a capture: number, place in the stream, time, link and bytes.
type Frame = (u64, u64, Option<Nanos>, u32, Vec<u8>);

fn frames<R: Read>(reader: R, container: Container) -> (Vec<Frame>, Option<String>) {
    let mut found = Vec::new();
    let end = match Packets::new(Window::new(reader, path(), Packing::Plain), container) {
        Ok(mut packets) => loop {
            match packets.next_packet() {
                Ok(Some(packet)) => {
                    found.push((packet.number, packet.offset, packet.time, packet.link, packet.bytes.to_vec()));
                }
                Ok(None) => break None,
                Err(error) => break Some(error.to_string()),
            }
        },
        Err(error) => Some(error.to_string()),
    };
    (found, end)
}

fn capture(bytes: &[u8], container: Container) {
    let (whole, end) = frames(bytes, container);
    let dripped = frames(Drip { bytes, turn: 0 }, container);
    assert_eq!((&whole, &end), (&dripped.0, &dripped.1), "in small pieces");
    for (place, (number, offset, _, link, frame)) in whole.iter().enumerate() {
        assert_eq!(*number, place as u64 + 1);
        // Each is what stands there in the file.
        assert_eq!(&bytes[*offset as usize..][..frame.len()], &frame[..]);
        look_at_frame(*link, frame);
    }
    let mut feed = mold_feed(bytes, Some(container));
    let _ = (feed.fault_at_start().map(ToString::to_string), feed.first_capture());
    drain(&mut feed);
}

/// pcap, of whichever form its first bytes say.
pub fn pcap(bytes: &[u8]) {
    match Container::of(bytes) {
        Some(container @ (Container::PcapMicros | Container::PcapNanos)) => capture(bytes, container),
        _ => capture(bytes, Container::PcapNanos),
    }
}

/// pcapng.
pub fn pcapng(bytes: &[u8]) {
    capture(bytes, Container::PcapNg);
}

fn look_at_frame(link: u32, frame: &[u8]) {
    if let Ok(found) = datagram(link, frame) {
        let within = frame.as_ptr_range();
        let payload = found.payload.as_ptr_range();
        assert!(found.payload.is_empty() || within.start <= payload.start && payload.end <= within.end);
    }
}

/// One frame: the kind of its link, two bytes, and what was captured.
pub fn frame(bytes: &[u8]) {
    let Some((link, frame)) = bytes.split_first_chunk::<2>() else { return };
    look_at_frame(u32::from(u16::from_le_bytes(*link)), frame);
}

/// A file with `bytes` in it, in memory where the system has such files.
fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
    let memory = Path::new("/dev/shm");
    let mut file =
        if memory.is_dir() { tempfile::NamedTempFile::new_in(memory) } else { tempfile::NamedTempFile::new() }
            .expect("a temporary file");
    file.write_all(bytes).expect("a small file can be written");
    file
}

/// A file that may be compressed: gzip, zstd, or as it is.
pub fn packed(bytes: &[u8]) {
    let file = file(bytes);
    let read = |mut input: Input, piece: usize| {
        let mut read = Vec::new();
        let mut buffer = vec![0; piece];
        let error = loop {
            match input.read(&mut buffer) {
                Ok(0) => break None,
                Ok(n) => read.extend_from_slice(&buffer[..n]),
                Err(error) => break Some(error.kind()),
            }
            if read.len() as u64 >= MOST_BYTES {
                read.truncate(MOST_BYTES as usize);
                return (read, None);
            }
        };
        (read, error)
    };
    let Ok(input) = Input::open(file.path()) else { return };
    let packing = input.packing();
    let (whole, error) = read(input, 1 << 16);
    if packing == Packing::Plain {
        assert_eq!((&whole[..], error), (bytes, None));
    }
    let mut input = Input::open(file.path()).expect("it was opened before");
    let head = input.peek(100).to_vec();
    assert_eq!(head, input.peek(100), "a look takes nothing");
    assert!(head.len() <= 100);
    // Of what is damaged, how much comes before the fault may depend on how much is asked for; what comes does not.
    assert!(head.iter().zip(&whole).all(|(one, other)| one == other));
    let (again, _) = read(input, 313);
    assert!(again.iter().zip(&whole).all(|(one, other)| one == other));
    if error.is_none() {
        assert_eq!(whole.len(), again.len());
    }
}

/// DBN.
pub fn dbn(bytes: &[u8]) {
    let open = |lenient| DbnFile::from_window(Window::new(bytes, path(), Packing::Plain), lenient);
    let whole = open(false).map(|mut file| drain(&mut file)).map_err(|error| error.to_string());
    let dripped = DbnFile::from_window(Window::new(Drip { bytes, turn: 0 }, path(), Packing::Plain), false);
    let dripped = dripped.map(|mut file| drain(&mut file)).map_err(|error| error.to_string());
    let whole = match (whole, dripped) {
        (Ok(whole), Ok(dripped)) => (whole, dripped),
        (Err(whole), Err(dripped)) => return assert_eq!(whole, dripped),
        (whole, dripped) => panic!("{whole:?} and, in small pieces, {dripped:?}"),
    };
    compare(&whole.0, &whole.1, &drain(&mut open(true).expect("it was opened before")));
    let file = open(true).expect("it was opened before");
    let venue = DbnNormaliser::new(file.metadata(), SessionDate::NONE);
    publish(file, venue);
}

/// Any file that may hold a feed, as every command opens it.
pub fn detect(bytes: &[u8]) {
    let file = file(bytes);
    match open_feed(file.path(), &FeedOptions { lenient: true, ..FeedOptions::default() }) {
        Ok(mut feed) => {
            let _ = (feed.kind(), feed.container(), feed.packing(), feed.session(), feed.session_date(Some("none")));
            drain(&mut feed);
        }
        Err(error) => assert!(error.to_string().contains(&file.path().display().to_string()), "{error}"),
    }
}
