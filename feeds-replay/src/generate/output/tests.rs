use std::collections::BTreeMap;

use super::super::{GenerateOptions, Generator};
use super::*;

const MESSAGES: u64 = 8_000;

fn date() -> SessionDate {
    publisher::date::session_date(Some("2024-06-03"), None, "".as_ref()).expect("a date")
}

fn options(format: Format) -> OutputOptions {
    OutputOptions {
        format,
        date: date(),
        microseconds: false,
        both_lines: false,
        loss_per_million: 0,
        gaps: 0,
        messages: MESSAGES,
        seed: 9,
    }
}

/// The messages of a day of 20 s, and the file.
fn day(output: OutputOptions) -> (Vec<Vec<u8>>, Written, Vec<u8>) {
    day_of(20, output)
}

fn day_of(seconds: u64, output: OutputOptions) -> (Vec<Vec<u8>>, Written, Vec<u8>) {
    println!("seed {}, {output:?}", output.seed);
    let options = GenerateOptions {
        seed: output.seed,
        symbols: 6,
        messages: MESSAGES,
        span_ns: Some(seconds * 1_000_000_000),
        ..GenerateOptions::default()
    };
    let mut generator = Generator::new(options).expect("options in range");
    let mut writer = DayWriter::new(output, Vec::new()).expect("into memory");
    let mut messages = Vec::new();
    while let Some(framed) = generator.next_framed() {
        messages.push(framed[2..].to_vec());
        writer.take(framed).expect("into memory");
    }
    let (written, _, bytes) = writer.finish().expect("into memory");
    assert_eq!(written.bytes, bytes.len() as u64);
    (messages, written, bytes)
}

fn be(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn le(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// Capture time, interface (pcapng alone knows one) and frame of every packet, read by offsets alone.
fn frames(bytes: &[u8], format: Format, unit_ns: u64) -> Vec<(u64, Option<u64>, Vec<u8>)> {
    let mut frames = Vec::new();
    if format == Format::Pcap {
        let magic = if unit_ns == 1 { 0xA1B2_3C4D } else { 0xA1B2_C3D4 };
        assert_eq!((le(&bytes[..4]), le(&bytes[4..6]), le(&bytes[6..8])), (magic, 2, 4));
        assert_eq!(le(&bytes[20..24]), 1);
        let mut at = 24;
        while at < bytes.len() {
            let len = le(&bytes[at + 8..at + 12]) as usize;
            assert_eq!(le(&bytes[at + 12..at + 16]) as usize, len);
            let time = le(&bytes[at..at + 4]) * 1_000_000_000 + le(&bytes[at + 4..at + 8]) * unit_ns;
            frames.push((time, None, bytes[at + 16..at + 16 + len].to_vec()));
            at += 16 + len;
        }
        return frames;
    }
    let (mut at, mut interfaces) = (0, 0);
    while at < bytes.len() {
        let total = le(&bytes[at + 4..at + 8]) as usize;
        let block = &bytes[at..at + total];
        assert_eq!(total % 4, 0);
        assert_eq!(le(&block[total - 4..]) as usize, total);
        match le(&block[..4]) {
            0x0A0D_0D0A => assert_eq!((at, le(&block[8..12])), (0, 0x1A2B_3C4D)),
            1 => {
                interfaces += 1;
                // Link type, then the options: name, and units of time.
                assert_eq!((le(&block[8..10]), le(&block[16..20]), block[20]), (1, 0x1_0002, b"AB"[interfaces - 1]));
                assert_eq!((le(&block[24..28]), block[28]), (0x1_0009, if unit_ns == 1 { 9 } else { 6 }));
            }
            6 => {
                let time = (le(&block[12..16]) << 32 | le(&block[16..20])) * unit_ns;
                let len = le(&block[20..24]) as usize;
                assert!(le(&block[8..12]) < interfaces as u64);
                frames.push((time, Some(le(&block[8..12])), block[28..28 + len].to_vec()));
            }
            other => panic!("block type {other}"),
        }
        at += total;
    }
    frames
}

/// One's-complement sum of big-endian words: all ones where the checksum in them is right.
fn folded(bytes: &[u8], start: u64) -> u64 {
    let mut sum = start;
    for pair in bytes.chunks(2) {
        sum += if pair.len() == 2 { be(pair) } else { be(pair) << 8 };
    }
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    sum
}

/// A line's messages by sequence, and the sequence that its end of session names.
type OneLine = (BTreeMap<u64, Vec<u8>>, Option<u64>);

/// What lines A and B carry.
fn lines(frames: &[(u64, Option<u64>, Vec<u8>)]) -> [OneLine; 2] {
    let mut lines: [OneLine; 2] = Default::default();
    let mut last_ns = 0;
    for (time, interface, frame) in frames {
        assert!(*time >= last_ns, "capture time goes back");
        last_ns = *time;
        assert_eq!(be(&frame[12..14]), 0x0800);
        let (ip, udp) = (&frame[14..34], &frame[34..]);
        assert_eq!((ip[0], ip[9], folded(ip, 0)), (0x45, 17, 0xFFFF));
        assert_eq!(be(&ip[2..4]) as usize, frame.len() - 14);
        assert_eq!(be(&udp[4..6]) as usize, udp.len());
        assert_eq!(folded(udp, folded(&ip[12..20], 17 + udp.len() as u64)), 0xFFFF);
        let line = usize::from(ip[19]) - 1;
        assert!(interface.is_none_or(|interface| interface as usize == line));
        assert_eq!(frame[..6], [0x01, 0x00, 0x5E, ip[17] & 0x7F, ip[18], ip[19]]);
        let mold = &udp[8..];
        assert!(mold.len() <= 1472 && &mold[..10] == b"GENERATED ");
        let (sequence, count) = (be(&mold[10..18]), be(&mold[18..20]));
        let (messages, end) = &mut lines[line];
        match count {
            0xFFFF => *end = Some(sequence),
            _ => assert!(end.is_none(), "after the end of the session"),
        }
        let mut at = 20;
        for nth in 0..if count == 0xFFFF { 0 } else { count } {
            let len = be(&mold[at..at + 2]) as usize;
            let message = mold[at + 2..at + 2 + len].to_vec();
            // The packet is captured after what it says has happened, and soon.
            let sent_ns = date().at(be(&message[5..11])).0;
            assert!((sent_ns..sent_ns + 1_000_000).contains(time), "{sent_ns} and {time}");
            assert!(messages.insert(sequence + nth, message).is_none(), "{sequence} twice on a line");
            at += 2 + len;
        }
        assert_eq!(at, mold.len());
    }
    lines
}

#[test]
fn both_capture_formats_hold_the_day_message_for_message() {
    for (format, microseconds) in
        [(Format::Pcap, false), (Format::Pcap, true), (Format::Pcapng, false), (Format::Pcapng, true)]
    {
        let (messages, written, bytes) = day(OutputOptions { microseconds, ..options(format) });
        let frames = frames(&bytes, format, if microseconds { 1_000 } else { 1 });
        // Packet times in microseconds are cut, so that they may seem to be before what they carry.
        let frames: Vec<_> = frames
            .into_iter()
            .map(|(time, interface, frame)| (time + if microseconds { 999 } else { 0 }, interface, frame))
            .collect();
        let [(a, end), (b, no_end)] = lines(&frames);
        assert_eq!((a.len() as u64, end), (MESSAGES, Some(MESSAGES + 1)));
        assert!(a.into_values().eq(messages), "{format:?}");
        assert_eq!((b.len(), no_end, written.packets[1]), (0, None, 0));
        assert!(written.packets[0] < MESSAGES, "some packets hold several messages");
    }
}

#[test]
fn gaps_are_on_no_line_and_what_one_line_lost_the_other_has() {
    let output = OutputOptions { both_lines: true, loss_per_million: 50_000, gaps: 7, ..options(Format::Pcapng) };
    let (messages, written, bytes) = day(output);
    let [(a, end_a), (b, end_b)] = lines(&frames(&bytes, Format::Pcapng, 1));
    assert_eq!((end_a, end_b), (Some(MESSAGES + 1), Some(MESSAGES + 1)));
    assert!(written.lost.iter().all(|lost| *lost > 20), "{written:?}");
    assert!(a.len() < messages.len() && b.len() < messages.len());
    assert_eq!(written.gaps.len(), 7);
    let missing: Vec<u64> = written.gaps.iter().flat_map(|gap| gap.first..gap.first + gap.count).collect();
    assert_eq!(written.messages, MESSAGES - missing.len() as u64);
    for (sequence, message) in (1..).zip(&messages) {
        let copies: Vec<&Vec<u8>> = [&a, &b].into_iter().filter_map(|line| line.get(&sequence)).collect();
        assert_eq!(copies.is_empty(), missing.contains(&sequence), "sequence {sequence}");
        assert!(copies.iter().all(|copy| *copy == message), "sequence {sequence}");
    }
}

#[test]
fn a_binary_file_is_the_day_without_what_the_gaps_hold() {
    let (messages, written, bytes) = day(OutputOptions { gaps: 3, ..options(Format::BinaryFile) });
    let mut wanted = Vec::new();
    for (sequence, message) in (1..).zip(&messages) {
        if !written.gaps.iter().any(|gap| (gap.first..gap.first + gap.count).contains(&sequence)) {
            wanted.extend_from_slice(&(message.len() as u16).to_be_bytes());
            wanted.extend_from_slice(message);
        }
    }
    assert!(bytes == wanted);
    assert!(written.messages < MESSAGES);
}

#[test]
fn silence_is_broken_by_a_heartbeat_every_second() {
    let (messages, _, bytes) = day_of(2_000, options(Format::Pcap));
    let frames = frames(&bytes, Format::Pcap, 1);
    let heartbeats = frames.iter().filter(|(_, _, frame)| be(&frame[60..62]) == 0).count();
    assert!((100..2_000).contains(&heartbeats), "{heartbeats}");
    let silence = frames.windows(2).map(|pair| pair[1].0 - pair[0].0).max();
    assert!(silence < Some(1_001_000_000), "{silence:?}");
    let [(a, _), _] = lines(&frames);
    assert!(a.into_values().eq(messages));
}
