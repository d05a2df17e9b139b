//! Feeds in text, end to end: found by their content, inspected, replayed, their books held against independent ones. Inputs
//! are made here; where recorded files are at hand, each of them is read to its end.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use bookcast_tests::data::data_file;
use bookcast_tests::programs::{output, printed};
use bookcast_tests::stream::BOOKS;
use protocol::book::{BookState, Inconsistency, Start};
use protocol::channel::ChannelConfig;
use protocol::line::Epoch;
use protocol::record::{InstrumentId, Kind, Record, Side};
use protocol::time::Nanos;
use publisher::Pipeline;
use publisher::lobster::book_file::{BookRow, Levels};
use publisher::lobster::check::Check;
use publisher::open::{FeedOptions, OpenFeed, open_feed, open_feeds};
use publisher::venue::{AnyVenue, VenueOptions};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::Value;

const LOBSTER: &str = "AAPL_2012-06-21_34200000_57600000_message_10.csv";

fn pipeline(path: &Path, start: Start) -> Pipeline<OpenFeed, AnyVenue> {
    let feed = open_feed(path, &FeedOptions::default()).expect("opens");
    let venue = feed.venue(feed.session_date(None).expect("a date"), VenueOptions::default());
    Pipeline::new(feed, venue, Epoch(1), ChannelConfig { books: BOOKS, start, digest_every: 0 })
}

/// Takes the next message and returns its records.
fn step(pipeline: &mut Pipeline<OpenFeed, AnyVenue>) -> Option<Vec<Record>> {
    let mut records = Vec::new();
    pipeline.step(Nanos(1), &mut |line| records.push(line.record)).expect("a sound file").then_some(records)
}

/// The best levels of the only book, in 10^-4 dollars.
fn best(pipeline: &Pipeline<OpenFeed, AnyVenue>, side: Side, depth: usize) -> Levels {
    let Some(view) = pipeline.channel().books().view(InstrumentId(1)) else { return Levels::new() };
    view.levels(side).take(depth).map(|level| (level.price / 100_000, level.size)).collect()
}

#[test]
fn lobster_every_level_in_two_rows_running_has_the_size_that_the_records_make() {
    let name = "lobster_every_level_in_two_rows_running_has_the_size_that_the_records_make";
    let Some(messages) = data_file(&format!("lobster/{LOBSTER}"), name) else { return };
    let book = messages.with_file_name(LOBSTER.replace("message", "orderbook"));
    let book = fs::read_to_string(book).expect("reads");
    let mut pipeline = pipeline(&messages, Start::Natural);
    let mut check = Check::default();
    for row in book.lines() {
        let records = step(&mut pipeline).expect("a message for each row");
        check.row(&records, BookRow::parse(row.as_bytes()).expect("a row"));
    }
    assert!(step(&mut pipeline).is_none(), "a row for each message");
    let outcome = check.outcome();
    assert_eq!(outcome.wrong, [], "no exception");
    // Counted by a script that shares nothing with this project.
    assert_eq!((outcome.rows, outcome.compared, outcome.made, outcome.learned), (999, 19_314, 328, 318));
}

/// A day of one stock from an empty book: its messages, and the book after each, from a plain map of orders.
fn lobster_day(seed: u64, rows: usize, depth: usize) -> (String, String) {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut orders: BTreeMap<u64, (i64, i64, u64)> = BTreeMap::new();
    let (mut messages, mut books) = (String::new(), String::new());
    let mut time: u64 = 34_200_000_000_000;
    for row in 1..=rows as u64 {
        time += random.random_range(1..5_000_000);
        let known: Vec<u64> = orders.keys().copied().collect();
        let line = match random.random_range(0..100) {
            _ if known.is_empty() => None,
            0..45 => None,
            45..90 => {
                let id = known[random.random_range(0..known.len())];
                let (side, price, left) = orders[&id];
                let some = random.random_range(1..=left);
                let (kind, size) = match random.random_range(0..3) {
                    0 if some < left => (2, some),
                    1 => (4, some),
                    _ => (3, left),
                };
                if size == left {
                    orders.remove(&id)
                } else {
                    orders.insert(id, (side, price, left - size))
                };
                Some((kind, id as i64, size, price, side))
            }
            90..95 => Some((5, 0, random.random_range(1..500), 5_850_000, 1)),
            95..97 => Some((6, -1, 900, 5_850_000, -1)),
            _ => Some((7, 0, 0, random.random_range(-1..=1), -1)),
        };
        let (kind, id, size, price, side) = line.unwrap_or_else(|| {
            let side = if random.random_bool(0.5) { 1 } else { -1 };
            let price = 5_850_000 - side * 100 * random.random_range(1..40);
            let size = random.random_range(1..1_000);
            orders.insert(row, (side, price, size));
            (1, row as i64, size, price, side)
        });
        messages +=
            &format!("{}.{:09},{kind},{id},{size},{price},{side}\n", time / 1_000_000_000, time % 1_000_000_000);
        let mut levels = [BTreeMap::<i64, u64>::new(), BTreeMap::new()];
        for (side, price, left) in orders.values() {
            *levels[usize::from(*side < 0)].entry(*price).or_default() += left;
        }
        let bids: Vec<_> = levels[0].iter().rev().collect();
        let asks: Vec<_> = levels[1].iter().collect();
        let fields: Vec<String> = (0..depth)
            .map(|at| {
                let (ask, ask_size) = asks.get(at).map_or((9_999_999_999, 0), |(price, size)| (**price, **size));
                let (bid, bid_size) = bids.get(at).map_or((-9_999_999_999, 0), |(price, size)| (**price, **size));
                format!("{ask},{ask_size},{bid},{bid_size}")
            })
            .collect();
        books += &(fields.join(",") + "\n");
    }
    (messages, books)
}

fn written(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, text).expect("writes");
    path
}

#[test]
fn lobster_from_an_empty_book_equals_every_row() {
    const DEPTH: usize = 10;
    let folder = tempfile::tempdir().expect("a folder");
    for seed in 1..=3 {
        let (messages, books) = lobster_day(seed, 4_000, DEPTH);
        let mut pipeline = pipeline(&written(folder.path(), LOBSTER, &messages), Start::Natural);
        for (at, row) in books.lines().enumerate() {
            step(&mut pipeline).expect("a message for each row");
            let row = BookRow::parse(row.as_bytes()).expect("a row");
            assert_eq!(best(&pipeline, Side::BID, DEPTH), row.bids, "seed {seed}, row {}", at + 1);
            assert_eq!(best(&pipeline, Side::ASK, DEPTH), row.asks, "seed {seed}, row {}", at + 1);
        }
        assert!(step(&mut pipeline).is_none());
        for kind in Inconsistency::ALL.into_iter().filter(|kind| *kind != Inconsistency::Crossed) {
            assert_eq!(pipeline.channel().books().inconsistencies(kind), 0, "seed {seed}: {kind:?}");
        }
    }
}

#[test]
fn the_check_finds_a_level_that_is_wrong() {
    let folder = tempfile::tempdir().expect("a folder");
    let (messages, books) = lobster_day(5, 300, 5);
    // One order's size in the messages is another than the rows say.
    let at = messages.lines().position(|row| row.split(',').nth(1) == Some("1") && !row.is_empty()).expect("an order");
    let changed: Vec<String> = messages
        .lines()
        .enumerate()
        .map(|(row, line)| {
            let mut fields: Vec<String> = line.split(',').map(str::to_owned).collect();
            if row > at && fields[1] == "2" {
                fields[3] = (fields[3].parse::<u64>().expect("a size") + 1).to_string();
            }
            fields.join(",")
        })
        .collect();
    let mut pipeline = pipeline(&written(folder.path(), LOBSTER, &changed.join("\n")), Start::Natural);
    let mut check = Check::default();
    for row in books.lines() {
        check.row(&step(&mut pipeline).expect("a message"), BookRow::parse(row.as_bytes()).expect("a row"));
    }
    assert!(!check.outcome().wrong.is_empty());
}

#[test]
fn the_recorded_depth_stream_is_whole_and_its_best_prices_are_those_of_its_bookticker() {
    let name = "the_recorded_depth_stream_is_whole_and_its_best_prices_are_those_of_its_bookticker";
    let Some(path) = data_file("crypto/binance-spot-btcusdt-20240808.json.gz", name) else { return };
    let mut pipeline = pipeline(&path, Start::Strict);
    let (mut kinds, mut own_times) = (BTreeMap::new(), 0u64);
    while let Some(records) = step(&mut pipeline) {
        for record in records {
            *kinds.entry(record.kind.name().unwrap_or_default()).or_insert(0u64) += 1;
            own_times += u64::from(record.flags.has(protocol::record::Flags::OWN_TIME));
        }
    }
    assert_eq!(kinds.get(Kind::VENUE_GAP.name().unwrap_or_default()), None);
    assert_eq!(kinds[Kind::TRADE.name().unwrap_or_default()], 9_757);
    assert!(own_times > 28_000, "best prices bear no time of the venue's: {own_times}");
    let books = pipeline.channel().books();
    for instrument in [1, 2] {
        assert_eq!(books.state(InstrumentId(instrument)), BookState::Live);
    }
    let view = books.view(InstrumentId(1)).expect("the diffs' book");
    // Levels and best prices at the end, by a script that keeps levels in a dictionary.
    assert_eq!((view.depth(Side::BID), view.depth(Side::ASK)), (1_209, 2_196));
    assert_eq!((view.bbo().bid_price(), view.bbo().ask_price()), (61_685_990_000_000, 61_686_000_000_000));
}

fn json(arguments: &[&str]) -> Value {
    let output = output("feeds-replay", arguments);
    assert!(output.status.success(), "{arguments:?}: {}", printed(&output));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", printed(&output)))
}

/// A stream of depth diffs with a gap in it, best prices, and a local clock that is 1.27 s behind.
fn depth_stream() -> String {
    let mut text = String::new();
    let local = |n: u64| 1_723_161_253_937_085_768 + n * 100_000_000;
    let venue_ms = |n: u64| (local(n) + 1_270_000_000) / 1_000_000;
    text += &format!("{} {{\"lastUpdateId\":9,\"bids\":[[\"99.5\",\"1\"]],\"asks\":[[\"100.5\",\"1\"]]}}\n", local(0));
    for n in 1..=200u64 {
        // Updates 1000 to 1009 are missing.
        let first = 10 * n + if n < 100 { 0 } else { 10 };
        let last = first + 9;
        text += &format!(
            "{} {{\"stream\":\"btcusdt@depth\",\"data\":{{\"e\":\"depthUpdate\",\"E\":{},\"s\":\"BTCUSDT\",\"U\":{first},\
             \"u\":{last},\"b\":[[\"{}\",\"{}\"]],\"a\":[]}}}}\n",
            local(n),
            venue_ms(n),
            90 + n % 9,
            n % 4
        );
        text += &format!(
            "{} {{\"u\":{last},\"s\":\"BTCUSDT\",\"b\":\"99.5\",\"B\":\"{n}\",\"a\":\"100.5\",\"A\":\"1\"}}\n",
            local(n)
        );
    }
    text
}

fn tardis_stream() -> String {
    let mut text = "exchange,symbol,timestamp,local_timestamp,is_snapshot,side,price,amount\n".to_owned();
    for n in 0..500u64 {
        let (time, snapshot) = (1_585_699_200_000_000 + 1_000 * n, n % 250 == 0);
        for side in ["bid", "ask"] {
            let price = if side == "bid" { 99 - n % 7 } else { 101 + n % 7 };
            text += &format!("deribit,BTC-PERPETUAL,{time},{},{snapshot},{side},{price}.5,{}\n", time + 250, n % 5);
        }
    }
    text
}

#[test]
fn inspect_says_the_gap_and_that_the_local_clock_is_1_27_s_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = written(folder.path(), "depth.txt", &depth_stream());
    let path = path.to_str().expect("a path");
    let found = json(&["inspect", path, "--json"]);
    assert_eq!((&found["sequence_gaps"], &found["missing_messages"]), (&Value::from(1), &Value::from(10)), "{found:#}");
    let after = &found["capture_after_event_ns"];
    let [least, most] = ["least", "most"].map(|key| after[key].as_i64().expect("a number"));
    assert!(least <= most && (-1_270_000_000..=-1_269_000_000).contains(&least), "{after}");
    let text = printed(&output("feeds-replay", &["inspect", path]));
    assert!(text.contains("the capture's clock is behind, and no latency can be had from these"), "{text}");
}

#[test]
fn every_feed_in_text_is_found_by_its_content_and_replayed() {
    let folder = tempfile::tempdir().expect("a folder");
    // The stock and the day are all that is ever taken from a name.
    for (name, text) in [(LOBSTER, lobster_day(7, 2_000, 1).0), ("one", depth_stream()), ("two", tardis_stream())] {
        let path = written(folder.path(), name, &text);
        let mut arguments =
            vec!["replay", path.to_str().expect("a path"), "--speed", "max", "--transport", "shm", "--json"];
        // LOBSTER's files begin in the middle of a day, the others with a snapshot.
        if name == LOBSTER {
            arguments.push("--natural");
        }
        let result = json(&arguments);
        assert_eq!(result["digests_agree"], true, "{name}: {result:#}");
        let run = &result["transports"]["shm"];
        assert!(run["delivered"].as_u64() > Some(400) && run["loss_explained"] == true, "{name}: {run:#}");
    }
}

#[test]
fn a_book_is_shown_and_a_stock_recorded_as_dbn_and_sizes_that_dbn_has_not_are_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let stock = written(folder.path(), LOBSTER, &lobster_day(7, 500, 1).0);
    let depth = written(folder.path(), "depth", &depth_stream());
    let (stock, depth) = (stock.to_str().expect("a path"), depth.to_str().expect("a path"));
    for (path, symbol) in [(stock, "AAPL"), (depth, "BTCUSDT")] {
        let shown = output("feeds-replay", &["book", path, "--symbol", symbol]);
        assert!(shown.status.success() && printed(&shown).contains(symbol), "{}", printed(&shown));
    }
    let recorded = folder.path().join("stock.dbn");
    let recorded = recorded.to_str().expect("a path");
    let done = output("feeds-replay", &["record", stock, "-o", recorded]);
    assert!(done.status.success(), "{}", printed(&done));
    assert_eq!(json(&["inspect", recorded, "--json"])["unknown_orders"], 0);
    let refused = output("feeds-replay", &["record", depth, "-o", recorded]);
    assert!(
        !refused.status.success() && printed(&refused).contains("sizes in units of 10^-8"),
        "{}",
        printed(&refused)
    );
}

#[test]
fn files_of_two_stocks_or_days_are_not_read_as_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let (text, _) = lobster_day(7, 10, 1);
    let first = written(folder.path(), LOBSTER, &text);
    for other in [LOBSTER.replace("AAPL", "MSFT"), LOBSTER.replace("06-21", "06-22")] {
        let other = written(folder.path(), &other, &text);
        let error = open_feeds(&[first.clone(), other], &FeedOptions::default()).err().expect("refused");
        assert!(error.to_string().contains("read them apart"), "{error}");
    }
    assert!(open_feeds(&[first.clone(), first], &FeedOptions::default()).is_ok());
}
