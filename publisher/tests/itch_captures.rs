//! Recorded captures, where they are at hand: message counts by type against an independent count, and the faults that
//! two of them have.
//!
//! The counts below were made by a short script over the length prefixes, which shares nothing with this project.

#![forbid(unsafe_code)]

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use protocol::book::{OrderLookup, RestingOrder};
use protocol::record::{InstrumentId, Kind, Record};
use publisher::date::session_date;
use publisher::feed::{FeedError, FeedSource};
use publisher::input::Input;
use publisher::itch::{BinaryFile, FramingOptions, Normaliser, NormaliserOptions, decode};

/// The folder of captures, or a line that says that it is not there.
fn captures(test: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/itch");
    if path.is_dir() {
        return Some(path);
    }
    println!("SKIPPED data test: {test}");
    eprintln!("skipped: {} is not there", path.display());
    None
}

/// File, messages, bytes, messages by type.
const COUNTS: [(&str, u64, u64, &str); 5] = [
    ("ex20101224.itch", 12_012, 465_048, "A 4997 D 1745 E 198 F 3 H 3 P 5000 R 3 S 6 U 12 X 45"),
    ("nasdaq-first-1000-messages.itch", 1_000, 40_874, "H 3 R 993 S 1 Y 3"),
    ("xnas-20230822-slice.itch", 112, 3_981, "A 41 C 5 D 6 E 5 F 7 H 7 I 5 J 5 L 5 P 5 Q 5 S 1 U 5 X 5 Y 5"),
    ("bx-20230822-slice.itch", 56, 1_769, "A 5 C 5 D 5 E 5 F 5 H 5 N 5 P 5 S 1 U 5 X 5 Y 5"),
    ("synthetic-3-symbols.itch", 8_009, 259_259, "A 4328 D 1667 E 1182 R 3 S 6 X 823"),
];

fn open(path: &Path) -> BinaryFile {
    BinaryFile::new(Input::open(path).unwrap_or_else(|error| panic!("{error}")), FramingOptions::default())
}

#[test]
fn captures_have_the_messages_that_an_independent_count_found() {
    let Some(folder) = captures("captures_have_the_messages_that_an_independent_count_found") else { return };
    for (name, messages, bytes, by_type) in COUNTS {
        let mut source = open(&folder.join(name));
        let mut counts = BTreeMap::<char, u64>::new();
        let mut last = 0;
        while let Some(message) = source.next().unwrap_or_else(|error| panic!("{error}")) {
            let decoded = decode(message.bytes).unwrap_or_else(|rejected| panic!("{name}: {rejected}"));
            *counts.entry(char::from(message.bytes[0])).or_default() += 1;
            let time = decoded.header().timestamp.get();
            assert!(time >= last && time < 86_400_000_000_000, "{name}: time {time} after {last}");
            last = time;
        }
        let got: Vec<String> = counts.iter().map(|(message_type, count)| format!("{message_type} {count}")).collect();
        assert_eq!(got.join(" "), by_type, "{name}");
        assert_eq!((source.delivered(), source.offset()), (messages, bytes), "{name}");
    }
}

#[derive(Default)]
struct Orders {
    resting: HashMap<(u32, u64), RestingOrder>,
    over_executed: u64,
}

impl OrderLookup for Orders {
    fn order(&self, instrument: InstrumentId, order_id: u64) -> Option<RestingOrder> {
        self.resting.get(&(instrument.0, order_id)).copied()
    }
}

impl Orders {
    fn apply(&mut self, record: &Record) {
        let key = (record.instrument.get(), record.order_id.get());
        match record.kind {
            Kind::ADD => {
                let (side, price, size) = (record.side, record.price.get(), record.size.get());
                self.resting.insert(key, RestingOrder { side, price, size, priority: 0 });
            }
            Kind::DELETE => {
                self.resting.remove(&key);
            }
            Kind::EXECUTE | Kind::REDUCE => {
                let Some(order) = self.resting.get_mut(&key) else { return };
                self.over_executed += u64::from(order.size < record.size.get());
                order.size = order.size.saturating_sub(record.size.get());
                if order.size == 0 {
                    self.resting.remove(&key);
                }
            }
            _ => {}
        }
    }
}

/// The records of a whole capture, by kind, and what the normaliser counted.
fn normalised(path: &Path, date: Option<&str>) -> (BTreeMap<u8, u64>, Normaliser, Orders) {
    let date = session_date(date, None, path).unwrap_or_else(|error| panic!("{error}"));
    let mut normaliser = Normaliser::new(NormaliserOptions::default(), date);
    let mut source = open(path);
    let mut orders = Orders::default();
    let mut kinds = BTreeMap::new();
    while let Some(message) = source.next().unwrap_or_else(|error| panic!("{error}")) {
        let mut lines = Vec::new();
        normaliser
            .normalise(&message, &orders, &mut |record| lines.push(record))
            .unwrap_or_else(|rejected| panic!("{}: {rejected}", path.display()));
        for line in &lines {
            *kinds.entry(line.kind.0).or_default() += 1;
            orders.apply(line);
        }
    }
    (kinds, normaliser, orders)
}

#[test]
fn a_whole_day_gives_the_records_that_its_messages_stand_for() {
    let Some(folder) = captures("a_whole_day_gives_the_records_that_its_messages_stand_for") else { return };
    let (kinds, normaliser, orders) = normalised(&folder.join("ex20101224.itch"), None);
    assert_eq!(normaliser.date().to_string(), "2010-12-24 from the file name, midnight in New York");
    let of = |kind: Kind| kinds.get(&kind.0).copied().unwrap_or(0);
    // A, F and the new half of U; D and the old half of U; E; E and P; X; R; H and four system events.
    assert_eq!(of(Kind::ADD), 4_997 + 3 + 12);
    assert_eq!(of(Kind::DELETE), 1_745 + 12);
    assert_eq!(of(Kind::EXECUTE), 198);
    assert_eq!(of(Kind::TRADE), 198 + 5_000);
    assert_eq!(of(Kind::REDUCE), 45);
    assert_eq!(of(Kind::DEFINITION), 3);
    assert_eq!(of(Kind::STATUS), 3 + 4);
    assert_eq!((of(Kind::SESSION_START), of(Kind::SESSION_END)), (1, 1));
    assert_eq!(normaliser.instrument_count(), 3);
    assert_eq!(normaliser.counters().implied_instruments, 0);
    // The file names 117 orders that it never added (94 D, 18 E, 3 X and 2 U), by the same independent script.
    assert_eq!((normaliser.counters().unknown_orders, orders.over_executed), (117, 0));
}

#[test]
fn slices_of_a_day_name_orders_and_instruments_that_nobody_introduced() {
    let Some(folder) = captures("slices_of_a_day_name_orders_and_instruments_that_nobody_introduced") else { return };
    let (_, normaliser, _) = normalised(&folder.join("xnas-20230822-slice.itch"), None);
    let counters = normaliser.counters();
    // Every E, C, X, D and U of the slice names an order that was added outside of it, and no directory is in it.
    assert_eq!(counters.unknown_orders, 5 + 5 + 5 + 6 + 5);
    assert_eq!(counters.implied_instruments, u64::from(normaliser.instrument_count()));
    assert_eq!(counters.not_carried, 5);
}

#[test]
fn a_capture_whose_prefixes_were_blanked_is_refused_by_name_and_offset() {
    let Some(folder) = captures("a_capture_whose_prefixes_were_blanked_is_refused_by_name_and_offset") else { return };
    let path = folder.join("ex20101224.zero-length-prefixes.itch");
    let mut source = open(&path);
    let error = source.next().expect_err("no message can be framed");
    assert!(matches!(error, FeedError::ZeroLength { offset: 0, ordinal: 1, .. }), "{error}");
    assert!(error.to_string().contains("ex20101224.zero-length-prefixes.itch"), "{error}");
}

#[test]
fn a_capture_cut_short_gives_all_before_the_cut() {
    let Some(folder) = captures("a_capture_cut_short_gives_all_before_the_cut") else { return };
    let path = folder.join("ex20101224.itch");
    let bytes = std::fs::read(&path).unwrap_or_else(|cause| panic!("{}: {cause}", path.display()));
    let mut source = BinaryFile::from_reader(&bytes[..bytes.len() - 5], &path, FramingOptions::default());
    let error = loop {
        match source.next() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("a cut file has no clean end"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, FeedError::Truncated { ordinal: 12_012, needed: 14, present: 9, .. }), "{error}");
    assert_eq!(source.delivered(), 12_011);
}
