use std::io::Write;

use super::*;

/// A reader that gives at most `step` bytes at a time, and fails at its end if it is told to.
struct Slow<'a> {
    bytes: &'a [u8],
    step: usize,
    failure: Option<ErrorKind>,
}

impl Read for Slow<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.step.min(self.bytes.len()).min(buffer.len());
        if n == 0 {
            return self.failure.map_or(Ok(0), |kind| Err(io::Error::from(kind)));
        }
        buffer[..n].copy_from_slice(&self.bytes[..n]);
        self.bytes = &self.bytes[n..];
        Ok(n)
    }
}

fn framed(messages: &[&[u8]]) -> Vec<u8> {
    messages.iter().flat_map(|m| [&(m.len() as u16).to_be_bytes(), *m].concat()).collect()
}

/// Messages as ordinal, offset and bytes; the end; the warning.
type Drained = (Vec<(u64, u64, Vec<u8>)>, Result<(), FeedError>, Option<FeedError>);

/// Everything a source gives, and how it ends. The end is asked for twice: it stays.
fn drain<R: Read>(mut source: BinaryFile<R>) -> Drained {
    let mut got = Vec::new();
    for _ in 0..10_000_000 {
        match source.next() {
            Ok(Some(message)) => got.push((message.ordinal, message.offset, message.bytes.to_vec())),
            end => {
                let end = end.map(|_| ());
                let again = source.next().map(|message| assert_eq!(message, None));
                assert_eq!(format!("{end:?}"), format!("{again:?}"));
                return (got, end, source.warning().cloned());
            }
        }
    }
    panic!("no end after {} messages", got.len());
}

fn read(bytes: &[u8], lenient: bool) -> Drained {
    drain(BinaryFile::from_reader(bytes, Path::new("some.itch"), FramingOptions { lenient }))
}

#[test]
fn a_length_prefix_is_never_read_as_a_message_type() {
    let bytes = b"\x00\x0cS0123456789A\x00\x01S";
    let (got, end, warning) = read(bytes, false);
    assert_eq!(got, [(1, 0, b"S0123456789A".to_vec()), (2, 14, b"S".to_vec())]);
    assert!(end.is_ok() && warning.is_none());
}

#[test]
fn messages_are_whole_however_the_bytes_arrive() {
    let longest = vec![b'L'; 65_535];
    let middle = vec![b'M'; 4_000];
    let mut messages: Vec<&[u8]> = vec![b"a", b"bcdef", &longest, b"g"];
    // More than the buffer holds, so that messages lie across its end.
    messages.extend((0..400).map(|_| middle.as_slice()));
    messages.extend([&longest[..], b"z"]);
    let bytes = framed(&messages);
    for step in [1, 2, 3, 7, 4096, usize::MAX] {
        let slow = Slow { bytes: &bytes, step, failure: None };
        let (got, end, _) = drain(BinaryFile::from_reader(slow, Path::new("x"), FramingOptions::default()));
        assert!(end.is_ok(), "step {step}: {end:?}");
        assert_eq!(got.len(), messages.len(), "step {step}");
        let mut offset = 0;
        for (i, (ordinal, at, content)) in got.iter().enumerate() {
            assert_eq!((*ordinal, *at), (i as u64 + 1, offset), "step {step}");
            assert!(content == messages[i], "step {step}, message {i}");
            offset += 2 + content.len() as u64;
        }
    }
}

#[test]
fn a_file_cut_in_mid_message_gives_all_before_it_then_an_error_that_says_where() {
    let bytes = framed(&[b"S0123456789A", b"second", b"third"]);
    for cut in 1..bytes.len() {
        let whole = [(0, 14), (14, 22), (22, 29)].iter().filter(|(_, end)| *end <= cut).count();
        let (got, end, warning) = read(&bytes[..cut], false);
        assert_eq!(got.len(), whole, "cut at {cut}");
        let at = [0, 14, 22][whole];
        if cut == at {
            assert!(end.is_ok() && warning.is_none(), "cut at {cut}");
            continue;
        }
        let error = end.expect_err("cut");
        assert_eq!(error.offset(), at as u64, "cut at {cut}");
        let text = error.to_string();
        let place = format!("some.itch: cut off inside message {} at offset {at}", whole + 1);
        assert!(text.contains(&place) && text.contains("--lenient"), "cut at {cut}: {text}");
    }
}

#[test]
fn lenient_takes_an_early_end_for_the_end_and_warns() {
    let bytes = framed(&[b"first", b"second"]);
    let (got, end, warning) = read(&bytes[..bytes.len() - 1], true);
    assert_eq!(got.len(), 1);
    assert!(end.is_ok());
    assert!(
        matches!(warning, Some(FeedError::Truncated { offset: 7, ordinal: 2, needed: 8, present: 7, .. })),
        "{warning:?}"
    );
}

#[test]
fn zero_length_prefixes_are_an_error_that_names_file_and_offset_lenient_or_not() {
    // Prefixes blanked, as in a file that was published so.
    let blanked = b"\x00\x00S0123456789A\x00\x00R";
    for lenient in [false, true] {
        let (got, end, warning) = read(blanked, lenient);
        assert!(got.is_empty() && warning.is_none());
        let text = end.expect_err("refused").to_string();
        assert!(text.contains("some.itch: the length prefix of message 1 at offset 0 is zero"), "{text}");
    }
    let (got, end, _) = read(b"\x00\x01S\x00\x00\x00\x01S", false);
    assert_eq!(got.len(), 1);
    assert!(matches!(end, Err(FeedError::ZeroLength { offset: 3, ordinal: 2, .. })), "{end:?}");
    let (got, end, _) = read(b"\x00\x00", false);
    assert!(got.is_empty() && matches!(end, Err(FeedError::ZeroLength { offset: 0, .. })), "{end:?}");
}

#[test]
fn a_zero_length_as_the_very_last_thing_ends_the_session() {
    let (got, end, warning) = read(b"\x00\x01S\x00\x00", false);
    assert_eq!(got.len(), 1);
    assert!(end.is_ok() && warning.is_none());
}

#[test]
fn a_device_that_fails_is_an_error_even_when_lenient_and_after_all_before_it() {
    let bytes = framed(&[b"first", b"second"]);
    for failure in [ErrorKind::Other, ErrorKind::UnexpectedEof, ErrorKind::InvalidData] {
        let slow = Slow { bytes: &bytes[..10], step: 3, failure: Some(failure) };
        let source = BinaryFile::from_reader(slow, Path::new("x"), FramingOptions { lenient: true });
        let (got, end, _) = drain(source);
        assert_eq!(got.len(), 1);
        assert!(matches!(end, Err(FeedError::Io { offset: 10, .. })), "{end:?}");
    }
}

#[test]
fn an_interrupted_read_is_tried_again() {
    struct Interrupted<'a>(Slow<'a>, bool);
    impl Read for Interrupted<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 { Err(io::Error::from(ErrorKind::Interrupted)) } else { self.0.read(buffer) }
        }
    }
    let bytes = framed(&[b"first", b"second"]);
    let reader = Interrupted(Slow { bytes: &bytes, step: 1, failure: None }, false);
    let (got, end, _) = drain(BinaryFile::from_reader(reader, Path::new("x"), FramingOptions::default()));
    assert_eq!(got.len(), 2);
    assert!(end.is_ok());
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).expect("into memory");
    encoder.finish().expect("into memory")
}

fn open(bytes: &[u8], lenient: bool) -> BinaryFile {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(bytes).expect("written");
    // The file stays readable after its name is gone.
    BinaryFile::new(Input::open(file.path()).expect("opens"), FramingOptions { lenient })
}

#[test]
fn gzip_members_cut_in_mid_message_are_read_through() {
    let bytes = framed(&[b"first", b"second", b"third"]);
    let members = [gzip(&bytes[..1]), gzip(&bytes[1..9]), gzip(&bytes[9..])].concat();
    let (got, end, _) = drain(open(&members, false));
    assert_eq!(got.into_iter().map(|(_, _, bytes)| bytes).collect::<Vec<_>>(), [&b"first"[..], b"second", b"third"]);
    assert!(end.is_ok(), "{end:?}");
}

#[test]
fn a_gzip_that_ends_early_gives_all_before_it_then_says_so() {
    let messages: Vec<Vec<u8>> =
        (0..20_000u32).map(|i| i.wrapping_mul(2_654_435_761).to_be_bytes().repeat(1 + i as usize % 5)).collect();
    let bytes = framed(&messages.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let whole = gzip(&bytes);
    for keep in [whole.len() / 2, whole.len() - 4] {
        let (got, end, _) = drain(open(&whole[..keep], false));
        assert!(got.len() > 8_000, "{} messages of half a file", got.len());
        assert!(got.iter().zip(&messages).all(|((_, _, a), b)| a == b));
        assert!(matches!(end, Err(FeedError::PackedEndsEarly { .. })), "{end:?}");
        let text = end.expect_err("early").to_string();
        assert!(text.contains("ends early") && text.contains("--lenient"), "{text}");
        let (again, end, warning) = drain(open(&whole[..keep], true));
        assert_eq!(again.len(), got.len());
        assert!(end.is_ok() && matches!(warning, Some(FeedError::PackedEndsEarly { .. })), "{end:?} {warning:?}");
    }
}

#[test]
fn a_damaged_gzip_is_an_error_lenient_or_not() {
    let mut damaged = gzip(&framed(&[b"first", b"second"]));
    let checksum = damaged.len() - 8;
    damaged[checksum] ^= 1;
    for lenient in [false, true] {
        let (got, end, _) = drain(open(&damaged, lenient));
        assert_eq!(got.len(), 2);
        assert!(matches!(end, Err(FeedError::PackedDamaged { .. })), "{end:?}");
    }
}

#[test]
fn a_gzip_of_nothing_says_that_nothing_is_in_it() {
    let (got, end, _) = drain(open(&gzip(b""), false));
    assert!(got.is_empty());
    assert!(matches!(end, Err(FeedError::Empty { .. })), "{end:?}");
}

#[test]
fn a_glance_shows_what_comes_next_and_takes_nothing() {
    let bytes = framed(&[b"one", b"twelve", b"three", b"four"]);
    let mut source = BinaryFile::from_reader(&bytes[..], Path::new("x"), FramingOptions::default());
    let glance = |source: &BinaryFile<&[u8]>, limit| {
        let mut seen = Vec::new();
        source.glance(limit, &mut |message| seen.push(message.to_vec()));
        seen
    };
    assert!(glance(&source, 2).is_empty(), "nothing has been read yet");
    for expected in [&b"one"[..], b"twelve", b"three", b"four"] {
        assert_eq!(source.next().expect("sound").expect("there is one").bytes, expected);
        let (delivered, offset) = (source.delivered(), source.offset());
        let mut rest = Vec::new();
        while let Some((len, tail)) = bytes[offset as usize..]
            .get(rest.iter().map(|m: &Vec<u8>| m.len() + 2).sum()..)
            .and_then(|tail| tail.split_first_chunk::<2>())
        {
            rest.push(tail[..usize::from(u16::from_be_bytes(*len))].to_vec());
        }
        assert_eq!(glance(&source, 9), rest);
        assert_eq!(glance(&source, 1), rest[..rest.len().min(1)]);
        assert_eq!((source.delivered(), source.offset()), (delivered, offset));
    }
}

#[test]
fn a_glance_ends_before_what_is_cut_or_cannot_be_framed() {
    for (end, whole) in [(&b"\x00\x09cut"[..], 1), (b"\x00\x00more", 1), (b"\x00", 1), (b"", 1)] {
        let bytes = [&framed(&[b"one", b"two"])[..], end].concat();
        let mut source = BinaryFile::from_reader(&bytes[..], Path::new("x"), FramingOptions::default());
        assert!(source.next().expect("sound").is_some());
        let mut seen = 0;
        source.glance(9, &mut |message| {
            assert_eq!(message, b"two");
            seen += 1;
        });
        assert_eq!(seen, whole, "{end:?}");
    }
}
