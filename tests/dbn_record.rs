//! What `feeds-replay record` writes is what was read: DBN comes back record by record, and other feeds come back as books
//! that are the same at every message, order by order.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use bookcast_tests::data::data_file;
use bookcast_tests::dbn::{Mbo, NO_PRICE, NO_TIME, flags, mbo_file};
use bookcast_tests::programs::{output, printed};
use feeds_replay::generate::{GenerateOptions, generate};
use feeds_replay::record::{Output, record_capture};
use protocol::book::{Books, BooksConfig, Start};
use protocol::channel::ChannelConfig;
use protocol::line::{Epoch, Line};
use protocol::record::{InstrumentId, Kind, Side};
use protocol::time::Nanos;
use publisher::Pipeline;
use publisher::date::SessionDate;
use publisher::feed::FeedSource;
use publisher::itch::{BinaryFile, FramingOptions, Normaliser, NormaliserOptions};
use publisher::open::{FeedOptions, OpenFeed, open_feed};
use publisher::venue::{AnyVenue, Venue, VenueOptions};
use serde_json::Value;

const BOOKS: BooksConfig = BooksConfig { instruments: 64, orders: 1 << 15, levels: 1 << 13 };

fn config() -> ChannelConfig {
    ChannelConfig { books: BOOKS, start: Start::Natural, digest_every: 0 }
}

fn pipeline(path: &Path) -> Pipeline<OpenFeed, AnyVenue> {
    let feed = open_feed(path, &FeedOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    let venue = feed.venue(SessionDate::NONE, VenueOptions::default());
    Pipeline::new(feed, venue, Epoch(1), config())
}

/// Every record of a DBN file: its bytes.
fn records(path: &Path) -> Vec<Vec<u8>> {
    let mut feed = open_feed(path, &FeedOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(feed.container(), "DBN");
    let mut records = Vec::new();
    while let Some(message) = feed.next().unwrap_or_else(|error| panic!("{error}")) {
        records.push(message.bytes.to_vec());
    }
    records
}

/// Orders in queue order: id, price, size.
type Queue = Vec<(u64, i64, u64)>;

/// The book of an instrument: digest of its levels, and each side's orders in queue order.
fn book(books: &Books, instrument: u32) -> (u64, Vec<Queue>) {
    let Some(view) = books.view(InstrumentId(instrument)) else { return (0, Vec::new()) };
    let of = |side| {
        let levels: Vec<i64> = view.levels(side).map(|level| level.price).collect();
        let orders = levels.iter().flat_map(|price| view.queue(side, *price));
        orders.map(|(id, order)| (id, order.price, order.size)).collect()
    };
    (view.digests().1, [Side::BID, Side::ASK].map(of).into())
}

/// Records what an open pipeline's feed holds, into `folder`.
fn recorded<S: FeedSource, V: Venue>(source: S, venue: V, path: &Path, zstd: bool) {
    let mut out = Output::create(path, zstd).expect("creates");
    let recorded = record_capture(source, venue, &mut out, &AtomicBool::new(false)).unwrap_or_else(|e| panic!("{e}"));
    assert!(recorded.error.is_none() && !recorded.stopped);
    out.finish().expect("writes");
    let left: Vec<PathBuf> = std::fs::read_dir(path.parent().expect("a folder"))
        .expect("reads")
        .map(|entry| entry.expect("reads").path())
        .filter(|path| path.to_string_lossy().contains("partial"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// The fields of an order record that come back, and the ones that do not set to what is written for them.
fn kept(record: &[u8], own_time: bool) -> Vec<u8> {
    let mut bytes = record.to_vec();
    assert_eq!((bytes[1], bytes.len()), (0xA0, 56));
    if own_time {
        bytes[8..16].fill(0xFF);
    }
    // Flags of the publisher's own, the channel, and the time from the sender's clock to the receiver's.
    bytes[36] &= 0xFC;
    bytes[37] = 0xFF;
    bytes[48..52].fill(0);
    bytes
}

fn word(record: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(record[at..at + 8].try_into().expect("8 bytes"))
}

/// Holds a DBN file of orders against what was recorded of it.
fn assert_round_trip(original: &Path, copy: &Path, whole_every: u64) -> u64 {
    let (before, after) = (records(original), records(copy));
    assert_eq!(before.len(), after.len());
    let mut own_times = 0;
    for (at, (before, after)) in before.iter().zip(&after).enumerate() {
        let own_time = word(before, 8).abs_diff(word(before, 40)) >= 1 << 31;
        own_times += u64::from(own_time);
        assert_eq!(kept(before, own_time), *after, "record {at}");
    }
    let (mut one, mut other) = (pipeline(original), pipeline(copy));
    let mut steps = 0u64;
    loop {
        let more = one.step(Nanos(1), &mut |_| {}).expect("sound");
        assert_eq!(other.step(Nanos(1), &mut |_| {}).expect("sound"), more);
        if !more {
            return own_times;
        }
        steps += 1;
        let [one, other] = [&one, &other].map(|pipeline| pipeline.channel().books());
        for instrument in 1..=2 {
            let levels = [one, other].map(|books| books.view(InstrumentId(instrument)).map(|view| view.digests().1));
            assert_eq!(levels[0], levels[1], "L of {instrument} after record {steps}");
            if steps.is_multiple_of(whole_every) {
                assert_eq!(book(one, instrument), book(other, instrument), "{instrument} after record {steps}");
            }
        }
    }
}

#[test]
fn dbn_orders_come_back_record_by_record_in_every_version() {
    let clear = Mbo { action: b'R', side: b'N', order: 0, price: NO_PRICE, size: 0, flags: 40, ..Mbo::default() };
    let mut all = vec![clear];
    for order in 1..=40u64 {
        let snapshot =
            if order <= 20 { flags::SNAPSHOT | if order == 20 { flags::LAST } else { 0 } } else { flags::LAST };
        let side = if order % 2 == 0 { b'B' } else { b'A' };
        let price = if side == b'B' { 100 - order as i64 } else { 100 + order as i64 };
        let at = if order == 7 { NO_TIME } else { order * 1_000 };
        all.push(Mbo { order, side, price, flags: snapshot, at, sequence: order as u32, ..Mbo::default() });
    }
    for (action, order, size, flags) in [
        (b'M', 4, 20, 0x82),
        (b'T', 0, 3, 0),
        (b'F', 4, 3, 0),
        (b'C', 4, 3, 0x80),
        (b'C', 5, 10, 0x80),
        (b'N', 0, 0, 0x80),
        (b'M', 6, 5, 0),
        (b'C', 6, 5, 0x81),
    ] {
        let side = if order % 2 == 0 { b'B' } else { b'A' };
        let price = if side == b'B' { 100 - order as i64 } else { 100 + order as i64 };
        all.push(Mbo { action, order, size, side, price, flags, at: 90_000, ..Mbo::default() });
    }
    // A snapshot that nothing announces, and that ends without saying so.
    all.extend((50..55).map(|order| Mbo { order, price: 90, flags: flags::SNAPSHOT, at: 95_000, ..Mbo::default() }));
    all.push(Mbo { order: 60, price: 91, at: 96_000, ..Mbo::default() });
    let folder = tempfile::tempdir().expect("a folder");
    for version in 1..=3 {
        let original = folder.path().join(format!("v{version}.dbn"));
        std::fs::write(&original, mbo_file(version, &all)).expect("writes");
        for zstd in [false, true] {
            let copy = folder.path().join("copy.dbn");
            let feed = open_feed(&original, &FeedOptions::default()).expect("opens");
            let venue = feed.venue(SessionDate::NONE, VenueOptions::default());
            recorded(feed, venue, &copy, zstd);
            assert_eq!(assert_round_trip(&original, &copy, 1), 1, "the order without a time of its own");
        }
    }
}

#[test]
fn a_day_of_futures_comes_back_record_by_record() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, own_times) in
        [("esh4-glbx-mdp3-20231224.mbo.dbn.zst", 0), ("esh4-glbx-mdp3-20231225.mbo.dbn.zst", 8_725)]
    {
        let Some(original) = data_file(&format!("dbn/{name}"), "a_day_of_futures_comes_back_record_by_record") else {
            return;
        };
        let copy = folder.path().join(name);
        let feed = open_feed(&original, &FeedOptions::default()).expect("opens");
        let venue = feed.venue(SessionDate::NONE, VenueOptions::default());
        recorded(feed, venue, &copy, true);
        assert_eq!(assert_round_trip(&original, &copy, 5_000), own_times, "{name}");
    }
}

#[test]
fn an_itch_day_as_dbn_has_the_same_books_at_every_message() {
    let options = GenerateOptions { seed: 11, symbols: 6, messages: 12_000, ..GenerateOptions::default() };
    let mut day = Vec::new();
    generate(&options, &mut day).expect("options within their limits");
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("day.dbn.zst");
    let source = || BinaryFile::from_reader(Cursor::new(day.clone()), Path::new("day"), FramingOptions::default());
    let date = publisher::date::session_date(Some("2019-12-30"), None, Path::new("")).expect("a date");
    let venue = || Normaliser::new(NormaliserOptions::default(), date);
    recorded(source(), venue(), &copy, true);
    // Which message of the day each DBN record came from, where it says so.
    let records = records(&copy);
    let came_from =
        |record: &Vec<u8>| (record[1] == 0xA0).then(|| u32::from_le_bytes(record[52..56].try_into().expect("4 bytes")));
    let mut one = Pipeline::new(source(), venue(), Epoch(1), config());
    let mut other = pipeline(&copy);
    // The instruments of both by the venue's number.
    let mut numbers = [BTreeMap::new(), BTreeMap::new()];
    let note = |numbers: &mut BTreeMap<u32, u32>, line: &Line| {
        if line.record.kind == Kind::DEFINITION {
            numbers.insert(line.record.order_id.get() as u32, line.record.instrument.get());
        }
    };
    let (mut at, mut compared) = (0, 0u32);
    while one.step(Nanos(1), &mut |line| note(&mut numbers[0], line)).expect("sound") {
        let message = one.messages() as u32;
        while at < records.len() && came_from(&records[at]).is_none_or(|from| from <= message) {
            assert!(other.step(Nanos(1), &mut |line| note(&mut numbers[1], line)).expect("sound"));
            at += 1;
        }
        let [ours, theirs] = [one.channel().books(), other.channel().books()];
        for (number, mine) in &numbers[0] {
            let Some(copied) = numbers[1].get(number) else { continue };
            let levels = |books: &Books, instrument| books.view(InstrumentId(instrument)).map(|view| view.digests().1);
            let (before, after) = (levels(ours, *mine), levels(theirs, *copied));
            assert_eq!(before.unwrap_or(0), after.unwrap_or(0), "L of {number} after message {message}");
            compared += u32::from(before.is_some_and(|levels| levels != 0));
            if message.is_multiple_of(250) {
                assert_eq!(book(ours, *mine), book(theirs, *copied), "{number} after message {message}");
            }
        }
    }
    assert!(compared > 30_000 && at == records.len(), "{compared} books compared, {at} records");
}

fn run(arguments: &[&str]) -> (Option<i32>, String, Value) {
    let output = output("feeds-replay", arguments);
    (output.status.code(), printed(&output), serde_json::from_slice(&output.stdout).unwrap_or(Value::Null))
}

#[test]
fn the_command_lists_what_became_of_each_record_and_refuses_what_dbn_cannot_hold() {
    let folder = tempfile::tempdir().expect("a folder");
    let (day, copy) = (folder.path().join("20191230.itch"), folder.path().join("day.dbn"));
    let options = GenerateOptions { seed: 3, symbols: 5, messages: 5_000, ..GenerateOptions::default() };
    let mut bytes = Vec::new();
    generate(&options, &mut bytes).expect("options within their limits");
    std::fs::write(&day, bytes).expect("writes");
    let (day, copy) = (day.to_str().expect("ours"), copy.to_str().expect("ours"));
    let (status, text, found) = run(&["record", day, "-o", copy, "--json"]);
    assert_eq!(status, Some(0), "{text}");
    assert!(found["executions_expanded"].as_u64() > Some(0) && found["left_out"]["SessionEnd"] == 1, "{text}");
    assert_eq!(found["records"]["definition"], 5, "{text}");
    let (status, text, inspected) = run(&["inspect", copy, "--json"]);
    assert_eq!(status, Some(0), "{text}");
    assert_eq!(
        (&inspected["container"], &inspected["by_type"]["mbo"]),
        (&Value::from("DBN"), &found["records"]["mbo"])
    );
    assert_eq!((inspected["unknown_orders"].as_u64(), inspected["starts_mid_day"].as_bool()), (Some(0), Some(false)));
    // A folder that is not there.
    let (status, text, _) = run(&["record", day, "-o", "/nonexistent/x.dbn"]);
    assert!(status == Some(1) && text.contains("/nonexistent/x.dbn"), "{text}");
}
