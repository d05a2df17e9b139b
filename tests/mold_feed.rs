//! MoldUDP64 out of packet captures: containers, sessions, lines, gaps. Captures are made by hand, byte by byte.

#![forbid(unsafe_code)]

use std::io::Cursor;
use std::path::Path;

use bookcast_tests::capture::*;
use protocol::book::{BookState, BooksConfig};
use protocol::channel::ChannelConfig;
use protocol::line::Epoch;
use protocol::record::{Flags, InstrumentId, Kind, Record};
use protocol::time::Nanos;
use publisher::Pipeline;
use publisher::capture::Container;
use publisher::capture::window::Window;
use publisher::date::session_date;
use publisher::feed::{FeedError, FeedSource, Missing, Notice};
use publisher::itch::mold::{MoldFeed, MoldOptions};
use publisher::itch::{Normaliser, NormaliserOptions};

fn feed_with(bytes: &[u8], options: MoldOptions) -> MoldFeed<Cursor<Vec<u8>>> {
    let reader = Cursor::new(bytes.to_vec());
    MoldFeed::from_window(
        Window::new(reader, Path::new("capture"), publisher::input::Packing::Plain),
        Container::of(bytes),
        options,
    )
}

fn feed(bytes: &[u8]) -> MoldFeed<Cursor<Vec<u8>>> {
    feed_with(bytes, MoldOptions::default())
}

/// Everything that comes out of a feed.
#[derive(Debug, Default)]
struct Drained {
    /// Number, capture time, message.
    messages: Vec<(u64, Option<u64>, Vec<u8>)>,
    /// What was said, and in front of which message (by place).
    notices: Vec<(usize, Notice)>,
    error: Option<FeedError>,
}

impl Drained {
    fn numbers(&self) -> Vec<u64> {
        self.messages.iter().map(|(number, ..)| *number).collect()
    }

    fn gaps(&self) -> Vec<(usize, u64, u64)> {
        let gap = |(at, notice): &(usize, Notice)| match notice {
            Notice::Gap(Missing { first, count, .. }) => Some((*at, *first, *count)),
            Notice::Session { .. } => None,
        };
        self.notices.iter().filter_map(gap).collect()
    }
}

fn drain(feed: &mut impl FeedSource) -> Drained {
    let mut drained = Drained::default();
    for _ in 0..10_000_000 {
        let at = drained.messages.len();
        let more = match feed.next() {
            Ok(Some(message)) => {
                let capture = message.capture.map(|time| time.0);
                drained.messages.push((message.ordinal, capture, message.bytes.to_vec()));
                true
            }
            Ok(None) => false,
            Err(error) => {
                drained.error = Some(error);
                false
            }
        };
        while let Some(notice) = feed.poll_notice() {
            drained.notices.push((at, notice));
        }
        if !more {
            return drained;
        }
    }
    panic!("more messages than bytes");
}

/// Order number `n`, at the time that is `n` microseconds after the open.
fn order(n: u64) -> Vec<u8> {
    add(1, OPEN_OF_DAY_NS + n * 1_000, n, b'B', 100, 10_000)
}

fn orders(from: u64, count: u64) -> Vec<Vec<u8>> {
    (from..from + count).map(order).collect()
}

/// A datagram of `count` orders from number `from`, and the time that goes with it.
fn datagram(line: (std::net::Ipv4Addr, u16), from: u64, count: u64) -> Captured {
    (OPEN_NS + from * 1_000 + 500, frame(line, &mold(SESSION, from, &orders(from, count))))
}

fn heartbeat(line: (std::net::Ipv4Addr, u16), next: u64) -> Captured {
    (OPEN_NS + next * 1_000 + 700, frame(line, &mold_header(SESSION, next, 0)))
}

#[test]
fn every_form_of_pcap_gives_the_same_messages_but_for_the_digits_a_format_lacks() {
    let frames: Vec<Captured> = [datagram(LINE_A, 1, 3), datagram(LINE_A, 4, 1), heartbeat(LINE_A, 5)]
        .into_iter()
        .map(|(time, frame)| (time + 123, frame))
        .collect();
    let nanos = drain(&mut feed(&pcap_nanos(&frames)));
    assert_eq!(nanos.numbers(), [1, 2, 3, 4]);
    assert_eq!(nanos.messages[3].1, Some(OPEN_NS + 4_623));
    assert_eq!(nanos.messages.iter().map(|(.., bytes)| bytes.clone()).collect::<Vec<_>>(), orders(1, 4));
    for big in [false, true] {
        for is_nanos in [false, true] {
            let got = drain(&mut feed(&pcap(PcapForm { big, nanos: is_nanos }, &frames)));
            let digits = if is_nanos { 1 } else { 1_000 };
            for (got, whole) in got.messages.iter().zip(&nanos.messages) {
                assert_eq!(got.1, whole.1.map(|time| time / digits * digits), "big {big} nanos {is_nanos}");
                assert_eq!((&got.0, &got.2), (&whole.0, &whole.2));
            }
            assert_eq!((got.messages.len(), got.error.is_none()), (4, true));
        }
    }
}

#[test]
fn pcapng_with_several_interfaces_sections_resolutions_and_offsets_is_exact() {
    let binary = NgInterface { resolution: Some(0x80 | 30), offset: 0 };
    let offset = NgInterface { resolution: Some(9), offset: 1_000_000_000 };
    let interfaces = [NgInterface::MICROS, NgInterface::NANOS, offset, binary];
    for big in [false, true] {
        let frames: Vec<(usize, Captured)> = (0..4).map(|at| (at, datagram(LINE_A, at as u64 + 1, 1))).collect();
        let mut bytes = pcapng(big, &interfaces, &frames);
        // A second section has interfaces of its own, and may have the other byte order.
        bytes.extend(pcapng(!big, &[NgInterface::NANOS], &[(0, datagram(LINE_A, 5, 2))]));
        let got = drain(&mut feed(&bytes));
        assert!(got.error.is_none(), "{:?}", got.error);
        assert_eq!(got.numbers(), [1, 2, 3, 4, 5, 6], "big {big}");
        for (at, (number, time, _)) in got.messages.iter().enumerate() {
            let sent = OPEN_NS + number.min(&5) * 1_000 + 500;
            let off = sent.abs_diff(time.expect("a time"));
            // Microseconds lack three digits; 2^-30 s is just below a nanosecond, and does not divide one.
            let lacking = [500, 0, 0, 1, 0, 0][at];
            assert!(off <= lacking, "message {number} is {off} ns off");
        }
    }
}

#[test]
fn frames_in_simple_and_in_obsolete_blocks_are_read() {
    for big in [false, true] {
        let word = |value: u32| if big { value.to_be_bytes() } else { value.to_le_bytes() };
        let half = |value: u16| if big { value.to_be_bytes() } else { value.to_le_bytes() };
        let mut bytes = pcapng(big, &[NgInterface::NANOS], &[(0, datagram(LINE_A, 1, 1))]);
        let (time, frame) = datagram(LINE_A, 2, 1);
        let padded = [&frame[..], &vec![0; frame.len().next_multiple_of(4) - frame.len()]].concat();
        let len = word(frame.len() as u32);
        let mut block = |kind: u32, head: Vec<u8>| {
            let total = word((12 + head.len() + padded.len()) as u32);
            bytes.extend([&word(kind)[..], &total, &head, &padded, &total].concat());
        };
        // Obsolete: interface, drops, time, lengths. Simple: the length alone.
        let times = [word((time >> 32) as u32), word(time as u32)].concat();
        block(2, [&half(0)[..], &half(0xFFFF), &times, &len, &len].concat());
        block(3, len.to_vec());
        let mut feed = feed(&bytes);
        let got = drain(&mut feed);
        assert_eq!((got.numbers(), got.error.is_none()), (vec![1, 2], true), "big {big}: {:?}", got.error);
        assert_eq!(got.messages[1].1, Some(time));
        assert_eq!((feed.stats().frames, feed.stats().sessions[0].counts.duplicates), (3, 1));
    }
}

#[test]
fn padding_and_trailers_are_no_messages() {
    let mut frames = vec![datagram(LINE_A, 1, 2), heartbeat(LINE_A, 3), datagram(LINE_A, 3, 1)];
    for (_, frame) in &mut frames {
        // To the shortest frame that Ethernet has, and six bytes that a capture device added.
        let padded = frame.len().max(60);
        frame.resize(padded, 0);
        frame.extend([0, 1, b'A', 9, 9, 9]);
    }
    let mut feed = feed(&pcap_nanos(&frames));
    let got = drain(&mut feed);
    assert_eq!(got.numbers(), [1, 2, 3]);
    assert!(got.notices.is_empty() && got.error.is_none());
    assert_eq!(feed.stats().sessions[0].left_over_bytes, 0);
}

#[test]
fn an_end_of_session_ends_it_and_takes_no_number() {
    let end = (OPEN_NS + 3_000, frame(LINE_A, &mold_header(SESSION, 3, 0xFFFF)));
    let mut feed = feed(&pcap_nanos(&[datagram(LINE_A, 1, 2), end, heartbeat(LINE_A, 3)]));
    let got = drain(&mut feed);
    assert_eq!((got.numbers(), got.gaps()), (vec![1, 2], vec![]));
    let session = &feed.stats().sessions[0];
    assert_eq!((session.ended, session.next_sequence), (true, Some(3)));
    assert_eq!((session.sides[0].ends, session.sides[0].heartbeats), (1, 1));
}

#[test]
fn the_loss_of_the_last_datagram_is_a_gap_that_the_heartbeat_shows() {
    let got = drain(&mut feed(&pcap_nanos(&[datagram(LINE_A, 1, 2), heartbeat(LINE_A, 4)])));
    assert_eq!((got.numbers(), got.gaps()), (vec![1, 2], vec![(2, 3, 1)]));
}

#[test]
fn what_line_a_lost_and_line_b_has_is_no_gap_and_what_both_lost_is_one() {
    let mut frames = Vec::new();
    for n in 1..=20u64 {
        if n != 5 && n != 12 {
            frames.push(datagram(LINE_A, n, 1));
        }
        // B is three datagrams behind.
        if let Some(behind) = n.checked_sub(3).filter(|n| *n > 0 && *n != 8 && *n != 12) {
            frames.push(datagram(LINE_B, behind, 1));
        }
    }
    let mut feed = feed(&pcap_nanos(&frames));
    let got = drain(&mut feed);
    assert_eq!(got.numbers(), (1..=20).filter(|n| *n != 12).collect::<Vec<_>>());
    assert_eq!(got.gaps(), [(11, 12, 1)]);
    let stats = feed.stats();
    let [a, b] = &stats.sessions[0].sides[..] else { panic!("two lines: {stats:?}") };
    assert_eq!((a.messages, b.messages), (18, 15));
    assert_eq!((a.first_copies, b.first_copies), (18, 1), "message 5 came by B");
    assert_eq!((a.missing, b.missing), (2, 2));
    assert_eq!(a.destination.to_string(), "233.54.12.111:26477");
    assert_eq!((stats.sessions[0].counts.duplicates, stats.sessions[0].counts.missing), (14, 1));
}

#[test]
fn copies_that_differ_are_reported_and_the_first_is_kept() {
    let mut other = orders(2, 1);
    other[0][20] ^= 1;
    let differing = (OPEN_NS + 2_600, frame(LINE_B, &mold(SESSION, 2, &other)));
    let mut feed = feed(&pcap_nanos(&[datagram(LINE_A, 1, 3), differing, datagram(LINE_B, 3, 1)]));
    let got = drain(&mut feed);
    assert_eq!(got.messages[1].2, order(2));
    let stats = feed.stats();
    assert_eq!((stats.sessions[0].counts.differing, stats.sessions[0].first_differing), (1, Some(2)));
    assert!(stats.remarks().iter().any(|line| line.contains("1 messages differ")), "{:?}", stats.remarks());
}

#[test]
fn a_session_that_follows_on_the_same_line_counts_from_one_again() {
    let next_day = |sequence, count| {
        (OPEN_NS + 86_400_000_000_000, frame(LINE_A, &mold(b"000010060A", sequence, &orders(sequence, count))))
    };
    let late = (OPEN_NS + 86_400_000_001_000, datagram(LINE_A, 5, 1).1);
    let end = (OPEN_NS + 5_000, frame(LINE_A, &mold_header(SESSION, 4, 0xFFFF)));
    let frames = [datagram(LINE_A, 1, 2), end, next_day(2, 2), late, next_day(4, 1)];
    let mut feed = feed(&pcap_nanos(&frames));
    let got = drain(&mut feed);
    assert_eq!(got.numbers(), [1, 2, 2, 3, 4]);
    let notices: Vec<(usize, bool)> =
        got.notices.iter().map(|(at, notice)| (*at, matches!(notice, Notice::Session { .. }))).collect();
    // The end of the old one's gap, the new session, and what the new one lacks, in that order.
    assert_eq!(notices, [(2, false), (2, true), (2, false)]);
    assert_eq!(got.gaps(), [(2, 3, 1), (2, 1, 1)]);
    let stats = feed.stats();
    assert_eq!(stats.sessions.len(), 2);
    assert_eq!(stats.sessions[0].superseded, 1, "what comes of the old session after the new one began");
}

#[test]
fn a_session_that_was_cut_off_is_followed_by_another_all_the_same() {
    let next = |sequence| (OPEN_NS + 50_000, frame(LINE_A, &mold(b"000010060A", sequence, &orders(sequence, 1))));
    // However little of it comes, and though the other line still brings the end of the old one.
    for count in [1, 7, 8, 9, 30] {
        let mut frames = vec![datagram(LINE_A, 1, 1), datagram(LINE_B, 1, 1), datagram(LINE_A, 3, 1)];
        frames.push(next(1));
        frames.push(datagram(LINE_B, 2, 1));
        frames.extend((2..=count).map(next));
        let got = drain(&mut feed(&pcap_nanos(&frames)));
        assert_eq!(got.numbers(), (1..=3).chain(1..=count).collect::<Vec<_>>());
        assert_eq!((got.notices.len(), got.notices[0].0), (1, 3));
    }
}

#[test]
fn a_damaged_session_name_is_no_new_session() {
    let stray = (OPEN_NS + 2_600, frame(LINE_A, &mold(b"000010059C", 3, &orders(3, 1))));
    let frames: Vec<Captured> = (1..=20).map(|n| datagram(LINE_A, n, 1)).collect();
    let mut all = frames.clone();
    all[2] = stray;
    let mut feed = feed(&pcap_nanos(&all));
    let got = drain(&mut feed);
    assert_eq!(got.numbers(), (1..=20).filter(|n| *n != 3).collect::<Vec<_>>());
    assert_eq!(got.gaps(), [(2, 3, 1)]);
    assert_eq!((feed.stats().sessions.len(), feed.stats().sessions[1].superseded), (2, 1));
}

#[test]
fn channels_side_by_side_are_told_apart_by_line_and_session() {
    let other_line = (std::net::Ipv4Addr::new(233, 54, 12, 40), 25_475);
    let other = |sequence| {
        (OPEN_NS + sequence * 1_000 + 600, frame(other_line, &mold(b"BX00000001", sequence, &orders(sequence, 1))))
    };
    let frames = [datagram(LINE_A, 1, 1), other(7), datagram(LINE_B, 1, 1), other(8), datagram(LINE_A, 2, 1), other(9)];
    let bytes = pcap_nanos(&frames);
    let mut first = feed(&bytes);
    assert_eq!(drain(&mut first).numbers(), [1, 2]);
    let stats = first.stats();
    assert_eq!(stats.sessions.iter().map(|session| session.followed).collect::<Vec<_>>(), [true, false]);
    assert_eq!(stats.sessions[1].sides[0].messages, 3);
    assert!(stats.remarks()[0].contains("BX00000001 is another channel: its 3 messages were left out"));
    let mut second = feed_with(&bytes, MoldOptions { session: Some("BX00000001".into()), ..MoldOptions::default() });
    assert_eq!(drain(&mut second).numbers(), [7, 8, 9]);
    let none = feed_with(&bytes, MoldOptions { session: Some("nobody".into()), ..MoldOptions::default() });
    let error = none.fault_at_start().expect("there is none of that name").to_string();
    assert!(error.contains("nobody") && error.contains("BX00000001"), "{error}");
}

#[test]
fn datagrams_without_a_number_are_delivered_where_they_stand() {
    let bare = |n| (OPEN_NS + n * 1_000, frame(LINE_A, &mold(&[0; 10], 0, &orders(n, 1))));
    let mut feed = feed(&pcap_nanos(&[bare(1), bare(1), bare(3)]));
    let got = drain(&mut feed);
    assert_eq!(got.numbers(), [1, 2, 3], "they have no number of their own: their place stands for one");
    assert_eq!(got.messages[1].2, order(1));
    assert!(got.notices.is_empty());
    assert_eq!(feed.stats().sessions[0].unsequenced, 3);
}

#[test]
fn other_traffic_in_the_capture_is_counted_and_does_no_harm() {
    let foreign = (OPEN_NS + 1_700, frame((std::net::Ipv4Addr::new(239, 1, 1, 1), 5), &[0x80; 64]));
    let request = (OPEN_NS + 1_800, frame((std::net::Ipv4Addr::new(10, 0, 0, 9), 18_100), &mold_header(SESSION, 1, 5)));
    let arp = (OPEN_NS + 1_900, [&[0xFF; 12][..], &[0x08, 0x06], &[0; 28]].concat());
    let mut feed = feed(&pcap_nanos(&[foreign.clone(), datagram(LINE_A, 1, 1), request, arp, datagram(LINE_A, 2, 1)]));
    assert_eq!(drain(&mut feed).numbers(), [1, 2]);
    let stats = feed.stats();
    assert_eq!((stats.frames, stats.other_datagrams, stats.requests), (5, 1, 1));
    assert_eq!(stats.skipped.values().sum::<u64>(), 1);
    let nothing = pcap_nanos(&[foreign]);
    let error = feed_with(&nothing, MoldOptions::default()).fault_at_start().expect("no feed").to_string();
    assert!(error.contains("no MoldUDP64 feed") && error.contains("239.1.1.1:5"), "{error}");
}

#[test]
fn frames_that_were_captured_out_of_order_are_taken_in_file_order_and_counted() {
    let (first, second, third) = (datagram(LINE_A, 1, 1), datagram(LINE_A, 2, 1), datagram(LINE_A, 3, 1));
    let mut feed = feed(&pcap_nanos(&[first.clone(), (third.0, second.1), (second.0, third.1)]));
    let got = drain(&mut feed);
    assert_eq!(got.numbers(), [1, 2, 3]);
    assert!(got.messages[1].1 > got.messages[2].1);
    assert_eq!(feed.stats().time_backwards, 1);
}

#[test]
fn a_frame_that_the_capture_cut_short_gives_its_whole_messages_and_a_gap() {
    let mut cut = datagram(LINE_A, 1, 3);
    let keep = cut.1.len() - 40;
    cut.1.truncate(keep);
    let mut feed = feed(&pcap_nanos(&[cut, datagram(LINE_A, 4, 1)]));
    let got = drain(&mut feed);
    assert_eq!((got.numbers(), got.gaps()), (vec![1, 4], vec![(1, 2, 2)]));
    assert_eq!(feed.stats().sessions[0].short_datagrams, 1);
}

#[test]
fn a_capture_cut_anywhere_gives_all_before_the_cut_and_then_says_where() {
    let frames = [datagram(LINE_A, 1, 2), datagram(LINE_A, 3, 1), datagram(LINE_A, 4, 1)];
    let ng: Vec<(usize, Captured)> = frames.iter().map(|frame| (0, frame.clone())).collect();
    // Lengths of what stands before each frame's record, by the formats' own rules.
    let pcap_ends = [24, 24 + 16 + frames[0].1.len(), 24 + 32 + frames[0].1.len() + frames[1].1.len()];
    for (bytes, is_ng) in [(pcap_nanos(&frames), false), (pcapng(false, &[NgInterface::NANOS], &ng), true)] {
        let mut errors = 0;
        for len in 4..bytes.len() {
            let got = drain(&mut feed(&bytes[..len]));
            match &got.error {
                Some(FeedError::CaptureCut { offset, needed, present, .. }) => {
                    errors += 1;
                    assert_eq!(offset + present, len as u64, "{len} bytes");
                    assert!(needed > present, "{len} bytes");
                }
                // Nothing but whole records, and no feed yet or a clean end.
                None | Some(FeedError::NoFeed { .. }) => {}
                Some(other) => panic!("{len} bytes: {other}"),
            }
            if !is_ng {
                let whole = [0, 2, 3][pcap_ends.iter().filter(|end| **end <= len).count().max(1) - 1];
                assert_eq!(got.messages.len(), whole, "{len} bytes");
            }
            let lenient = MoldOptions { lenient: true, ..MoldOptions::default() };
            let mut feed = feed_with(&bytes[..len], lenient);
            let forgiven = drain(&mut feed);
            assert_eq!(forgiven.numbers(), got.numbers());
            assert!(forgiven.error.is_none() || feed.fault_at_start().is_some(), "{len} bytes: {:?}", forgiven.error);
        }
        assert!(errors > bytes.len() * 9 / 10, "{errors} of {} cuts", bytes.len());
    }
}

#[test]
fn bare_datagrams_one_behind_the_other_are_read_to_the_cut() {
    let bytes = [mold(SESSION, 1, &orders(1, 2)), mold_header(SESSION, 3, 0), mold(SESSION, 3, &orders(3, 2))].concat();
    let whole = drain(&mut feed(&bytes));
    assert_eq!((whole.numbers(), whole.error.is_none()), (vec![1, 2, 3, 4], true));
    assert_eq!(whole.messages[3].2, order(4));
    let got = drain(&mut feed(&bytes[..bytes.len() - 5]));
    assert_eq!((got.numbers(), got.gaps()), (vec![1, 2, 3], vec![]));
    let error = got.error.expect("it is cut");
    let last_at = bytes.len() as u64 - 38;
    assert!(
        matches!(error, FeedError::Truncated { offset, ordinal: 4, needed: 38, present: 33, .. } if offset == last_at)
    );
}

#[test]
fn damaged_captures_end_in_an_error_that_says_what_and_where() {
    let frames = [datagram(LINE_A, 1, 1), datagram(LINE_A, 2, 1)];
    let mut huge = pcap_nanos(&frames);
    let second = 24 + 16 + frames[0].1.len();
    huge[second + 8..second + 12].fill(0xFF);
    let got = drain(&mut feed(&huge));
    assert_eq!(got.numbers(), [1]);
    let error = got.error.expect("damaged").to_string();
    assert!(error.contains(&format!("offset {second}")) && error.contains("16 MiB"), "{error}");
    let mut backwards = pcapng(false, &[NgInterface::NANOS], &[(0, frames[0].clone()), (0, frames[1].clone())]);
    let len = backwards.len();
    backwards[len - 4..].fill(0);
    let got = drain(&mut feed(&backwards));
    assert_eq!(got.numbers(), [1]);
    assert!(got.error.expect("damaged").to_string().contains("contradicts itself"));
}

/// Whatever is done to a capture, reading it ends, and what stands before the change is delivered.
#[test]
fn mutated_captures_never_panic_and_lose_nothing_before_the_mutation() {
    let frames: Vec<Captured> =
        (0..12).map(|at| datagram(if at % 3 == 2 { LINE_B } else { LINE_A }, 1 + at, 1)).collect();
    let ng: Vec<(usize, Captured)> = frames.iter().map(|frame| (1, frame.clone())).collect();
    let files = [
        pcap_nanos(&frames),
        pcap(PcapForm { big: true, nanos: false }, &frames),
        pcapng(false, &[NgInterface::MICROS, NgInterface::NANOS], &ng),
        pcapng(true, &[NgInterface::MICROS, NgInterface::NANOS], &ng),
        frames.iter().flat_map(|(_, frame)| frame[42..].to_vec()).collect(),
    ];
    for seed in 0..6_000u64 {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut below = |bound: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % bound as u64) as usize
        };
        let mut bytes = files[below(files.len())].clone();
        let from = 24 + below(bytes.len() - 24);
        match below(4) {
            0 => bytes[from] ^= 1 << below(8),
            1 => bytes.truncate(from),
            2 => {
                let to = (from + 4).min(bytes.len());
                bytes[from..to].fill([0, 0xFF, 0x7F][below(3)]);
            }
            _ => {
                let to = (from + 1 + below(40)).min(bytes.len());
                bytes.drain(from..to);
            }
        }
        let mut feed = feed_with(&bytes, MoldOptions { lenient: seed % 2 == 0, ..MoldOptions::default() });
        let got = drain(&mut feed);
        // Each datagram of the files is one message, and no frame is longer than 150 bytes with all that is around it.
        let untouched = (from.saturating_sub(200) / 150) as u64;
        for number in 1..=untouched {
            let found = got.messages.iter().any(|(_, _, bytes)| *bytes == order(number));
            assert!(found, "seed {seed}: message {number} is before the change at {from}");
        }
    }
}

fn pipeline(bytes: &[u8]) -> Pipeline<MoldFeed<Cursor<Vec<u8>>>, Normaliser> {
    let feed = feed(bytes);
    let date = session_date(None, feed.first_capture(), Path::new("capture")).expect("a date");
    let books = BooksConfig { instruments: 8, orders: 64, levels: 64 };
    let config = ChannelConfig { books, digest_every: 0, ..ChannelConfig::default() };
    Pipeline::new(feed, Normaliser::new(NormaliserOptions::default(), date), Epoch(1), config)
}

fn lines(pipeline: &mut Pipeline<MoldFeed<Cursor<Vec<u8>>>, Normaliser>) -> Vec<Record> {
    let mut lines = Vec::new();
    while pipeline.step(Nanos(1), &mut |line| lines.push(line.record)).expect("a sound feed") {}
    lines
}

/// A day of one instrument: its start, its definition, trading, two orders.
fn morning() -> Vec<Vec<u8>> {
    vec![
        system_event(b'O', OPEN_OF_DAY_NS),
        trading_action(1, OPEN_OF_DAY_NS, b'T'),
        add(1, OPEN_OF_DAY_NS + 1_000, 11, b'B', 100, 10_000),
        add(1, OPEN_OF_DAY_NS + 2_000, 12, b'S', 100, 10_100),
    ]
}

#[test]
fn a_gap_becomes_a_venue_gap_of_the_channel_and_books_are_suspect() {
    let gap_at = OPEN_NS + 9_000;
    let frames = [
        (OPEN_NS + 5_000, frame(LINE_A, &mold(SESSION, 1, &morning()))),
        (gap_at, frame(LINE_A, &mold(SESSION, 8, &[delete(1, OPEN_OF_DAY_NS + 8_000, 11)]))),
    ];
    let bytes = pcap_nanos(&frames);
    let mut pipeline = pipeline(&bytes);
    let lines = lines(&mut pipeline);
    let at = lines.iter().position(|line| line.kind == Kind::VENUE_GAP).expect("a venue gap");
    let gap = &lines[at];
    assert_eq!((gap.instrument_id(), gap.order_id.get(), gap.size.get()), (InstrumentId::CHANNEL, 5, 3));
    assert_eq!((gap.venue_seq.get(), gap.ts_event.get()), (7, gap_at));
    assert_eq!(gap.flags, Flags::LAST.with(Flags::OWN_TIME), "the venue gave it no time");
    assert_eq!((lines[at + 1].kind, lines[at + 1].venue_seq.get()), (Kind::DELETE, 8), "in its place");
    let book = pipeline.channel().books().view(InstrumentId(1)).expect("a book");
    assert_eq!((book.state(), book.resting_orders()), (BookState::Suspect, 1));
    assert_eq!((pipeline.messages(), pipeline.steps()), (5, 6));
}

#[test]
fn a_gap_at_the_very_end_is_published_too() {
    let frames = [(OPEN_NS + 5_000, frame(LINE_A, &mold(SESSION, 1, &morning()))), heartbeat(LINE_A, 9)];
    let bytes = pcap_nanos(&frames);
    let mut pipeline = pipeline(&bytes);
    let last = *lines(&mut pipeline).last().expect("lines");
    assert_eq!((last.kind, last.order_id.get(), last.size.get()), (Kind::VENUE_GAP, 5, 4));
    let book = pipeline.channel().books().view(InstrumentId(1)).expect("a book");
    assert_eq!(book.state(), BookState::Suspect);
}

#[test]
fn packet_time_becomes_ts_capture() {
    let bytes = pcap_nanos(&[(OPEN_NS + 5_123, frame(LINE_A, &mold(SESSION, 1, &morning())))]);
    let mut pipeline = pipeline(&bytes);
    for line in lines(&mut pipeline).iter().filter(|line| line.kind != Kind::CONTINUATION) {
        assert_eq!(line.capture_time(), Nanos(OPEN_NS + 5_123), "{line:?}");
        assert!(!line.flags.has(Flags::OWN_TIME) && line.ts_event.get() < OPEN_NS + 5_123, "{line:?}");
    }
}

#[test]
fn another_session_empties_every_book_and_its_locates_are_other_instruments() {
    let day = 86_400_000_000_000;
    // The new session's own start of messages is lost: nothing else tells that its locate 1 is somebody else.
    let frames = [
        (OPEN_NS + 5_000, frame(LINE_A, &mold(SESSION, 1, &morning()))),
        (OPEN_NS + day, frame(LINE_A, &mold(b"000010060A", 2, &[add(1, OPEN_OF_DAY_NS, 5, b'B', 7, 20_000)]))),
    ];
    let bytes = pcap_nanos(&frames);
    let mut pipeline = pipeline(&bytes);
    let lines = lines(&mut pipeline);
    let kinds: Vec<Kind> = lines.iter().map(|line| line.kind).filter(|kind| *kind != Kind::CONTINUATION).collect();
    assert_eq!(kinds[kinds.len() - 4..], [Kind::CLEAR, Kind::VENUE_GAP, Kind::DEFINITION, Kind::ADD]);
    let add = lines.last().expect("lines");
    assert_eq!(add.instrument_id(), InstrumentId(2));
    assert_eq!(add.ts_event.get(), OPEN_NS + day, "the date is that of its own packets");
    let books = pipeline.channel().books();
    assert_eq!(books.view(InstrumentId(1)).expect("the old one").resting_orders(), 0);
    assert_eq!(books.state(InstrumentId(2)), BookState::Suspect);
}

#[test]
fn places_by_sequence_keep_schedules_and_records_together() {
    let frames = [
        (OPEN_NS, frame(LINE_A, &mold(SESSION, 1_000, &morning()))),
        (OPEN_NS + 9_000, frame(LINE_A, &mold(SESSION, 1_010, &[delete(1, OPEN_OF_DAY_NS + 8_000, 11)]))),
    ];
    let bytes = pcap_nanos(&frames);
    let mut pipeline = pipeline(&bytes);
    let mut places = Vec::new();
    while let Some(due) = pipeline.peek().expect("a sound feed") {
        let mut last = 0;
        pipeline.step(Nanos(1), &mut |line| last = line.record.venue_seq.get()).expect("a sound feed");
        assert_eq!(u64::from(last) - pipeline.first_ordinal(), due.index);
        places.push(due.index);
    }
    assert_eq!(places, [0, 1, 2, 3, 9, 10]);
}
