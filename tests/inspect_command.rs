//! `feeds-replay inspect` end to end, and packet captures through the other commands. Captures are made by hand.

#![forbid(unsafe_code)]

use std::fs;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use bookcast_tests::capture::*;
use bookcast_tests::programs::{Running, generated_day, output, printed};
use serde_json::{Value, json};

fn file(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, bytes).expect("writes");
    path
}

fn run(path: &Path, extra: &[&str]) -> (Output, Value) {
    let arguments = [&["inspect", path.to_str().expect("a path of ours"), "--json"], extra].concat();
    let output = output("feeds-replay", &arguments);
    let found = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", printed(&output)));
    (output, found)
}

/// A day of one instrument, `pairs` orders that come and go.
fn day(pairs: u64) -> Vec<Vec<u8>> {
    let mut messages =
        vec![system_event(b'O', OPEN_OF_DAY_NS - 2_000), trading_action(1, OPEN_OF_DAY_NS - 1_000, b'T')];
    for n in 0..pairs {
        messages.push(add(1, OPEN_OF_DAY_NS + 2_000 * n, n + 1, b'B', 100, 10_000));
        messages.push(delete(1, OPEN_OF_DAY_NS + 2_000 * n + 1_000, n + 1));
    }
    messages
}

/// Messages in datagrams of three, on both lines; what each line lacks is given by place of the datagram.
fn two_lines(first: u64, messages: &[Vec<u8>], lost_by_a: &[usize], lost_by_b: &[usize]) -> Vec<Captured> {
    let mut frames = Vec::new();
    let mut sequence = first;
    for (at, piece) in messages.chunks(3).enumerate() {
        let time = OPEN_NS + at as u64 * 3_000;
        let payload = mold(SESSION, sequence, piece);
        if !lost_by_a.contains(&at) {
            frames.push((time, frame(LINE_A, &payload)));
        }
        if !lost_by_b.contains(&at) {
            frames.push((time + 1_000, frame(LINE_B, &payload)));
        }
        sequence += piece.len() as u64;
    }
    for line in [LINE_A, LINE_B] {
        frames.push((OPEN_NS + 1_000_000_000, frame(line, &mold_header(SESSION, sequence, 0xFFFF))));
    }
    frames
}

#[test]
fn lines_are_arbitrated_and_shown_one_by_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let messages = day(50);
    assert_eq!(messages.len(), 102);
    let frames = two_lines(1, &messages, &[3, 7], &[5, 7]);
    let ng: Vec<(usize, Captured)> = frames.iter().map(|frame| (0, frame.clone())).collect();
    for (name, bytes) in [("two.pcap", pcap_nanos(&frames)), ("two.pcapng", pcapng(false, &[NgInterface::NANOS], &ng))]
    {
        let (output, found) = run(&file(folder.path(), name, &bytes), &[]);
        assert!(output.status.success(), "{}", printed(&output));
        // Datagram 7 is lost on both: messages 22 to 24.
        assert_eq!((&found["messages"], &found["missing_messages"]), (&json!(99), &json!(3)), "{found:#}");
        assert_eq!(found["by_type"], json!({"A": 49, "D": 48, "H": 1, "S": 1}), "{found:#}");
        assert_eq!((&found["instruments"], &found["date"]), (&json!(1), &json!("2023-08-22")));
        assert_eq!(found["first_ts_event"], json!(OPEN_NS - 2_000));
        assert_eq!(found["last_ts_event"], json!(OPEN_NS + 2_000 * 49 + 1_000));
        // The middle of the lost datagram is an Add, and its Delete is behind it.
        assert_eq!((&found["unknown_orders"], &found["complete"]), (&json!(0), &json!(true)), "{found:#}");
        let feed = &found["feeds"][0];
        assert_eq!(
            (&feed["session"], &feed["messages"], &feed["ended"]),
            (&json!("000010059B"), &json!(99), &json!(true))
        );
        assert_eq!((&feed["sides"]["A"]["messages"], &feed["sides"]["B"]["messages"]), (&json!(96), &json!(96)));
        assert_eq!((&feed["sides"]["A"]["first_copies"], &feed["sides"]["B"]["first_copies"]), (&json!(96), &json!(3)));
        assert_eq!(feed["sides"]["B"]["destination"], "233.49.196.111:26477");
        assert_eq!((&feed["gaps"], &feed["first_gaps"]), (&json!(1), &json!([{"first": 22, "count": 3}])));
        assert_eq!(feed["duplicates"], 93);
        assert_eq!(found["problems"]["gaps"]["first"][0]["message"], 22);
    }
}

#[test]
fn channels_of_one_capture_have_books_of_their_own_and_counts_add_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let other_line = (Ipv4Addr::new(233, 54, 12, 40), 25_475);
    let mut frames = two_lines(1, &day(10), &[], &[]);
    for (at, message) in day(5).iter().enumerate() {
        let payload = mold(b"BX00000001", 1 + at as u64, std::slice::from_ref(message));
        frames.insert(2 * at + 1, (OPEN_NS, frame(other_line, &payload)));
    }
    let (output, found) = run(&file(folder.path(), "both.pcap", &pcap_nanos(&frames)), &[]);
    assert!(output.status.success(), "{}", printed(&output));
    assert_eq!((&found["messages"], &found["instruments"]), (&json!(22 + 12), &json!(2)));
    assert_eq!((&found["duplicate_orders"], &found["unknown_orders"]), (&json!(0), &json!(0)));
    let feeds = found["feeds"].as_array().expect("a list");
    let of: Vec<(&Value, &Value)> = feeds.iter().map(|feed| (&feed["session"], &feed["messages"])).collect();
    assert_eq!(of, [(&json!("000010059B"), &json!(22)), (&json!("BX00000001"), &json!(12))]);
    let (_, one) = run(&folder.path().join("both.pcap"), &["--session", "BX00000001"]);
    assert_eq!((&one["messages"], &one["instruments"]), (&json!(12), &json!(1)));
}

#[test]
fn everything_off_is_counted_with_its_first_places() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |n: u64| OPEN_OF_DAY_NS + n;
    let messages = [
        system_event(b'O', at(0)),
        add(1, at(1), 1, b'B', 100, 10_000),
        // Locked, then crossed, before trading.
        add(1, at(2), 2, b'S', 100, 10_000),
        add(1, at(3), 3, b'S', 100, 9_900),
        // The same while trading: the status itself ends an event at which the book is crossed.
        trading_action(1, at(4), b'T'),
        delete(1, at(5), 3),
        delete(1, at(6), 2),
        cancel(1, at(7), 1, 101),
        cancel(1, at(8), 77, 1),
        add(1, at(9), 5, b'B', 10, 10_000),
        add(1, at(10), 5, b'B', 20, 10_000),
        b"!abc".to_vec(),
        system_event(b'Q', at(11))[..11].to_vec(),
        Vec::new(),
        delete(1, at(4), 5),
        itch(b'L', 1, at(12), b"MPIDACME    YNA"),
        system_event(b'C', at(13)),
    ];
    // A length of zero in the middle is no BinaryFILE; a message without a byte is possible only in a datagram.
    let bytes = pcap_nanos(&[(OPEN_NS + 1_000, frame(LINE_A, &mold(SESSION, 1, &messages)))]);
    let path = file(folder.path(), "off.pcap", &bytes);
    let (output, found) = run(&path, &["--feed", "mold"]);
    assert!(output.status.success(), "{}", printed(&output));
    assert_eq!(found["messages"], 17);
    for (key, expected) in [
        ("unknown_orders", json!(1)),
        ("over_cancels", json!(1)),
        ("duplicate_orders", json!(1)),
        ("crossed_event_ends", json!({"while_trading": 1, "other": 1})),
        ("locked_event_ends", json!({"while_trading": 1, "other": 1})),
        ("empty_messages", json!(1)),
        ("not_carried", json!({"!": 1, "L": 1, "S": 1})),
        ("starts_mid_day", json!(false)),
    ] {
        assert_eq!(found[key], expected, "{key}: {found:#}");
    }
    let first = |problem: &str| {
        let examples = found["problems"][problem]["first"].as_array().unwrap_or_else(|| panic!("{problem}: {found:#}"));
        (examples[0]["message"].as_u64(), examples[0]["offset"].as_u64())
    };
    let mut offset = 24 + 16 + 42 + 20;
    let offsets: Vec<u64> = messages
        .iter()
        .map(|message| {
            offset += 2 + message.len() as u64;
            offset - 2 - message.len() as u64
        })
        .collect();
    for (problem, message) in [
        ("locked_otherwise", 3),
        ("crossed_otherwise", 4),
        ("crossed_while_trading", 5),
        ("locked_while_trading", 6),
        ("over_cancels", 8),
        ("unknown_orders", 9),
        ("duplicate_orders", 11),
        ("unknown_types", 12),
        ("bad_lengths", 13),
        ("empty_messages", 14),
        ("event_time_backwards", 15),
    ] {
        assert_eq!(first(problem), (Some(message), Some(offsets[message as usize - 1])), "{problem}");
    }
    let text = printed(&bookcast_tests::programs::output(
        "feeds-replay",
        &["inspect", "--feed", "mold", path.to_str().expect("a path")],
    ));
    for part in
        ["17 messages", "1  L  not carried", "bid 1 above ask 0.99", "names order 77", "line A to 233.54.12.111"]
    {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
    let (_, full) = run(&path, &["--full", "--feed", "mold"]);
    assert_eq!(full["not_carried"], json!({"!": 1, "S": 1}));
}

#[test]
fn a_day_that_starts_in_the_middle_is_said_to() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = file(folder.path(), "middle.itch", &binary_file(&day(5)[2..]));
    let (_, found) = run(&path, &["--date", "none"]);
    assert_eq!((&found["starts_mid_day"], &found["feeds"]), (&json!(true), &json!([])));
    let output = output("feeds-replay", &["inspect", path.to_str().expect("a path"), "--date", "none"]);
    let text = printed(&output);
    assert!(text.lines().nth(1).is_some_and(|line| line.contains("Suspect")), "{text}");
    assert!(text.contains("times of day") && text.contains("09:30:00.000000000"), "{text}");
}

#[test]
fn a_cut_file_says_where_and_all_before_it_is_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let messages = day(50);
    let whole = binary_file(&messages);
    let last = whole.len() - 2 - messages[101].len();
    let frames: Vec<Captured> = messages
        .iter()
        .enumerate()
        .map(|(at, message)| (OPEN_NS, frame(LINE_A, &mold(SESSION, at as u64 + 1, std::slice::from_ref(message)))))
        .collect();
    let captured = pcap_nanos(&frames);
    let record = captured.len() - 16 - frames[101].1.len();
    let gzip = {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&captured).expect("compresses");
        encoder.finish().expect("compresses")
    };
    for (name, bytes, offset) in [
        ("cut.itch", &whole[..whole.len() - 3], Some(last)),
        ("cut.pcap", &captured[..captured.len() - 3], Some(record)),
        ("cut.pcap.gz", &gzip[..gzip.len() - 3], None),
    ] {
        let path = file(folder.path(), name, bytes);
        let (output, found) = run(&path, &["--date", "2023-08-22"]);
        assert_eq!(output.status.code(), Some(1), "{name}");
        let expected = if offset.is_some() { 101 } else { 102 };
        assert_eq!((&found["messages"], &found["complete"]), (&json!(expected), &json!(false)), "{name}: {found:#}");
        let error = found["error"].as_str().expect("an error");
        assert!(error.contains(name) && error.contains("--lenient"), "{error}");
        if let Some(offset) = offset {
            assert_eq!(found["error_offset"], json!(offset), "{error}");
            assert!(error.contains(&format!("offset {offset}")), "{error}");
        }
        let (output, found) = run(&path, &["--date", "2023-08-22", "--lenient"]);
        assert!(output.status.success(), "{name}: {}", printed(&output));
        assert_eq!((&found["messages"], &found["complete"]), (&json!(expected), &json!(true)));
        assert!(found["warning"].as_str().is_some_and(|warning| warning.contains(name)), "{found:#}");
    }
}

#[test]
fn a_capture_in_gzip_of_several_members_is_read_through() {
    let folder = tempfile::tempdir().expect("a folder");
    let bytes = pcap_nanos(&two_lines(1, &day(50), &[], &[]));
    let mut members = Vec::new();
    // One ends inside the file's header, one inside a datagram, one is empty.
    for piece in [&bytes[..10], &bytes[10..300], &[], &bytes[300..]] {
        let mut encoder = flate2::write::GzEncoder::new(&mut members, flate2::Compression::fast());
        encoder.write_all(piece).expect("compresses");
        encoder.finish().expect("compresses");
    }
    let (_, found) = run(&file(folder.path(), "members.pcap.gz", &members), &[]);
    assert_eq!(
        (&found["messages"], &found["complete"], &found["packing"]),
        (&json!(102), &json!(true), &json!("gzip"))
    );
    assert_eq!(found["bytes"], json!(bytes.len()));
}

#[test]
fn what_cannot_be_inspected_says_why_and_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let foreign = pcap_nanos(&[(OPEN_NS, frame(LINE_A, &[0x80; 64]))]);
    let plain = binary_file(&day(2));
    let cases: [(&str, &[u8], &str); 3] = [
        ("foreign.pcap", &foreign, "no MoldUDP64 feed in it"),
        ("dateless.itch", &plain, "--date"),
        ("header.pcap", &foreign[..20], "cut off at offset 0"),
    ];
    for (name, bytes, expected) in cases {
        let path = file(folder.path(), name, bytes);
        let output = output("feeds-replay", &["inspect", path.to_str().expect("a path of ours")]);
        let text = printed(&output);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(name) && text.contains(expected), "{text}");
    }
}

/// A FIFO that `feed` writes into, piece by piece, until it says that it is done or nobody reads any more; it is held open
/// until `release` is dropped.
fn pipe(
    folder: &Path,
    mut feed: impl FnMut(&mut Vec<u8>) -> bool + Send + 'static,
) -> (PathBuf, std::sync::mpsc::Receiver<u64>, std::sync::mpsc::Sender<()>) {
    let path = folder.join("pipe");
    assert!(Command::new("mkfifo").arg(&path).status().expect("mkfifo(1)").success());
    let (done, written) = std::sync::mpsc::channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let writer = path.clone();
    std::thread::spawn(move || {
        let mut out = fs::OpenOptions::new().write(true).open(writer).expect("opens");
        let (mut piece, mut total) = (Vec::new(), 0);
        loop {
            piece.clear();
            let more = feed(&mut piece);
            total += piece.len() as u64;
            if out.write_all(&piece).is_err() || !more {
                break;
            }
        }
        // Nobody waits for it when the test has failed.
        let _ = done.send(total);
        let _ = released.recv();
    });
    (path, written, release)
}

#[test]
fn ctrl_c_gives_what_was_found_so_far() {
    let folder = tempfile::tempdir().expect("a folder");
    let pairs = binary_file(&day(1_000)[2..]);
    let mut begun = false;
    let (path, _written, _release) = pipe(folder.path(), move |piece| {
        if !std::mem::replace(&mut begun, true) {
            piece.extend(binary_file(&day(0)));
        }
        piece.extend(&pairs);
        true
    });
    let arguments = ["inspect", path.to_str().expect("a path of ours"), "--date", "none", "--json"];
    let running = Running::start("feeds-replay", &arguments, &[]);
    std::thread::sleep(Duration::from_millis(700));
    running.signal("INT");
    let output = running.finish(Duration::from_secs(60));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", printed(&output)));
    assert_eq!((&found["stopped"], &found["complete"], &found["error"]), (&json!(true), &json!(false), &Value::Null));
    let messages = found["messages"].as_u64().expect("a number");
    let sum: u64 = found["by_type"].as_object().expect("counts").values().filter_map(Value::as_u64).sum();
    assert!(messages > 0 && messages == sum, "{found:#}");
    assert_eq!((&found["unknown_orders"], &found["starts_mid_day"]), (&json!(0), &json!(false)));
}

/// Peak resident memory of a process so far, bytes.
fn peak(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("proc(5)");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("a line VmHWM");
    let kilobytes: u64 = line.split_ascii_whitespace().nth(1).and_then(|text| text.parse().ok()).expect("a number");
    kilobytes * 1024
}

/// A stream of 200 MB costs no more memory than its books: nothing of it is kept.
#[test]
fn a_long_stream_is_read_in_constant_memory() {
    const TOTAL: u64 = 200_000_000;
    // Books, tables and buffers as configured, and some room. The stream is several times as long.
    const BOUND: u64 = 64 << 20;
    for is_pcap in [false, true] {
        let folder = tempfile::tempdir().expect("a folder");
        let pairs = day(50);
        let (mut sequence, mut total) = (1u64, 0u64);
        let (path, written, release) = pipe(folder.path(), move |piece| {
            let messages = if sequence == 1 { &pairs[..] } else { &pairs[2..] };
            if !is_pcap {
                piece.extend(binary_file(messages));
            } else {
                for messages in messages.chunks(25) {
                    let payload = mold(SESSION, sequence, messages);
                    let whole = pcap_nanos(&[(OPEN_NS + sequence, frame(LINE_A, &payload))]);
                    // One header for the whole stream.
                    piece.extend(&whole[if sequence == 1 { 0 } else { 24 }..]);
                    sequence += messages.len() as u64;
                }
            }
            sequence = sequence.max(2);
            total += piece.len() as u64;
            total < TOTAL
        });
        let arguments = ["inspect", path.to_str().expect("a path of ours"), "--date", "none", "--json"];
        let running = Running::start("feeds-replay", &arguments, &[]);
        let total = written.recv_timeout(Duration::from_secs(200)).expect("it reads what is written");
        assert!(total >= TOTAL, "{total} bytes were taken");
        let peak = peak(running.child.id());
        drop(release);
        let output = running.finish(Duration::from_secs(60));
        let found: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", printed(&output)));
        println!("pcap {is_pcap}: {total} bytes, {} messages, peak memory {peak} bytes", found["messages"]);
        assert_eq!((&found["bytes"], &found["complete"]), (&json!(total), &json!(true)));
        assert!(found["messages"].as_u64() > Some(3_000_000), "{found:#}");
        assert_eq!((&found["missing_messages"], &found["unknown_orders"]), (&json!(0), &json!(0)));
        assert!(peak < BOUND, "pcap {is_pcap}: {peak} bytes of memory at the peak, {BOUND} is the bound");
    }
}

/// A generated day as datagrams on two lines that begin in the middle of a sequence.
fn day_as_pcapng(folder: &Path, messages: u64) -> (PathBuf, Vec<u8>) {
    let bytes = fs::read(generated_day(folder, messages, 100_000_000)).expect("reads");
    let mut cut = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let len = usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
        cut.push(bytes[at + 2..at + 2 + len].to_vec());
        at += 2 + len;
    }
    let frames = two_lines(5_001, &cut, &[10, 200], &[20, 300]);
    let ng: Vec<(usize, Captured)> = frames.iter().map(|frame| (0, frame.clone())).collect();
    (file(folder, "day.pcapng", &pcapng(true, &[NgInterface::NANOS], &ng)), bytes)
}

#[test]
fn a_packet_capture_goes_through_publisher_and_subscriber_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let (capture, _) = day_as_pcapng(folder.path(), 6_000);
    let path = capture.to_str().expect("a path of ours");
    let arguments = ["replay", path, "--date", "none", "--rate", "20000", "--json"];
    let output = output("feeds-replay", &arguments);
    assert!(output.status.success(), "{}", printed(&output));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", printed(&output)));
    let run = &result["transports"]["shm"];
    assert_eq!((&run["messages"], &run["feed_error"]), (&json!(6_000), &Value::Null), "{run:#}");
    assert_eq!((&result["digests_agree"], &run["loss_explained"]), (&json!(true), &json!(true)), "{run:#}");
    // Every line's intended time is found from its venue sequence, which does not begin at 1 here.
    assert_eq!(run["latency_from_intended_ns"]["count"], run["latency_from_actual_ns"]["count"], "{run:#}");
    assert!(run["latency_from_intended_ns"]["count"].as_u64() > Some(6_000), "{run:#}");
}

#[test]
fn a_packet_capture_and_a_file_of_the_same_messages_are_inspected_alike() {
    let folder = tempfile::tempdir().expect("a folder");
    let (capture, _) = day_as_pcapng(folder.path(), 6_000);
    let (_, packets) = run(&capture, &["--date", "none"]);
    let (_, plain) = run(&folder.path().join("generated.itch"), &["--date", "none"]);
    for key in ["messages", "by_type", "instruments", "lines", "first_ts_event", "last_ts_event", "crossed_event_ends"]
    {
        assert_eq!(packets[key], plain[key], "{key}");
    }
    assert_eq!(plain["messages"], 6_000);
    let sides = &packets["feeds"][0]["sides"];
    assert_eq!((&sides["A"]["messages"], &sides["B"]["messages"]), (&json!(5_994), &json!(5_994)));
}

#[test]
fn the_publisher_takes_a_packet_capture_and_says_what_is_missing_in_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let frames = two_lines(1, &day(50), &[7], &[7]);
    let capture = file(folder.path(), "lost.pcap", &pcap_nanos(&frames));
    let name = bookcast_tests::programs::unique("mold");
    let config = format!(
        "[channel]\nname = \"{name}\"\n[feed]\npath = {capture:?}\npace = \"max\"\n[run]\nlinger_ms = 50\nstate_dir = {:?}\n",
        folder.path()
    );
    let config = file(folder.path(), "mold.toml", config.as_bytes());
    let config = config.to_str().expect("a path of ours");
    let checked = output("publisher", &["check-config", config]);
    assert!(printed(&checked).contains("pcap (nanoseconds)"), "{}", printed(&checked));
    let began = Instant::now();
    let published = output("publisher", &["run", config, "--json"]);
    println!("published in {:?}", began.elapsed());
    assert!(published.status.success(), "{}", printed(&published));
    let found: Value = serde_json::from_slice(&published.stdout).unwrap_or_else(|_| panic!("{}", printed(&published)));
    assert_eq!((&found["messages"], &found["venue_missing"]), (&json!(99), &json!(3)), "{found:#}");
}
