use jiff::civil::date;
use protocol::book::{Books, BooksConfig, Start};

use super::*;
use crate::date::DateSource;

/// The records of rows, without the Definition; and what was counted.
fn records(rows: &[&str]) -> (Vec<Record>, Counters) {
    let day = SessionDate::new(date(2012, 6, 21), DateSource::Option).expect("a date");
    let mut venue = Normaliser::new("AAPL", day);
    let books = Books::new(BooksConfig { instruments: 2, orders: 16, levels: 16 }, Start::Natural);
    let mut records = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        let message = Message { ordinal: at as u64 + 1, offset: 0, capture: None, bytes: row.as_bytes() };
        venue.normalise(&message, &books, &mut |record| records.push(record));
    }
    let kind = |record: &Record| matches!(record.kind, Kind::DEFINITION | Kind::CONTINUATION);
    (records.into_iter().filter(|record| !kind(record)).collect(), venue.counters().clone())
}

fn told(record: &Record) -> (Kind, Side, u64, i64, u64, bool) {
    let price = record.price.get() / NANO_PER_UNIT;
    (record.kind, record.side, record.order_id.get(), price, record.size.get(), record.is_last())
}

#[test]
fn each_type_of_row_becomes_its_record() {
    let (records, counters) = records(&[
        "34200.004241176,1,7,18,5853300,1",
        "34200.1,2,7,8,5853300,1",
        "34200.2,4,7,6,5853300,1",
        "34200.3,3,7,4,5853300,1",
        "34200.4,5,0,50,5853400,-1",
        "34200.5,6,-1,900,5853500,-1",
    ]);
    let told: Vec<_> = records.iter().map(told).collect();
    let (bid, ask, none) = (Side::BID, Side::ASK, Side::NONE);
    assert_eq!(
        told,
        [
            (Kind::ADD, bid, 7, 5_853_300, 18, true),
            (Kind::REDUCE, bid, 7, 5_853_300, 8, true),
            (Kind::EXECUTE, bid, 7, 5_853_300, 6, false),
            (Kind::TRADE, ask, 0, 5_853_300, 6, true),
            (Kind::DELETE, bid, 7, 5_853_300, 4, true),
            (Kind::TRADE, none, 0, 5_853_400, 50, true),
            (Kind::CROSS, none, u64::MAX, 5_853_500, 900, true),
        ]
    );
    // 2012-06-21 in New York begins at 04:00 UTC.
    assert_eq!(records[0].ts_event.get(), 1_340_251_200_000_000_000 + 34_200_004_241_176);
    assert_eq!(records.iter().map(|record| record.venue_seq.get()).collect::<Vec<_>>(), [1, 2, 3, 3, 4, 5, 6]);
    assert_eq!((counters.unknown_orders, counters.refused_prices), (3, 0), "the book of this test stays empty");
    assert_eq!(records[5].detail, condition::PRINTABLE | condition::HIDDEN);
}

#[test]
fn halts_and_dummy_prices_are_no_levels() {
    let (records, counters) = records(&[
        "36000.0,7,0,0,-1,-1",
        "36001.0,7,0,0,0,-1",
        "36002.0,7,0,0,1,-1",
        "36003.0,1,8,100,9999999999,1",
        "36004.0,1,9,100,-9999999999,-1",
        "36005.0,1,10,100,-1,1",
    ]);
    let told: Vec<_> =
        records.iter().map(|record| (record.kind, record.detail, record.order_id.get() as i64)).collect();
    assert_eq!(
        told,
        [(Kind::STATUS, status::HALT, -1), (Kind::STATUS, status::QUOTING, 0), (Kind::STATUS, status::TRADING, 1)]
    );
    assert_eq!(counters.refused_prices, 3);
}

#[test]
fn what_cannot_be_read_is_counted_by_what_it_is() {
    let (records, counters) = records(&["1.0,8,7,1,1,1", "1.0,1,7,x,1,1", "1.0,1,7", ""]);
    assert!(records.is_empty());
    assert_eq!((counters.unknown_types, counters.unknown_by_type[usize::from(b'8')]), (1, 1));
    assert_eq!((counters.malformed, counters.empty_messages, counters.messages()), (2, 1, 4));
}

#[test]
fn the_definition_has_the_ticker_of_the_files_name() {
    let path = std::path::Path::new("/x/AAPL_2012-06-21_34200000_57600000_message_10.csv");
    assert_eq!(crate::lobster::symbol_of(path), "AAPL");
    let mut venue = Normaliser::new("AAPL", SessionDate::NONE);
    let books = Books::new(BooksConfig { instruments: 2, orders: 16, levels: 16 }, Start::Natural);
    let mut text = Vec::new();
    let message = Message { ordinal: 1, offset: 0, capture: None, bytes: b"1.0,1,7,1,100,1" };
    venue.normalise(&message, &books, &mut |record| {
        if record.kind == Kind::CONTINUATION {
            text.extend_from_slice(record.payload());
        }
    });
    let text = String::from_utf8(text).expect("text");
    assert_eq!(text.trim_end_matches('\0'), "symbol=AAPL\nvenue=XNAS\ntype=equity\ncurrency=USD\n");
    assert_eq!(venue.instrument_count(), 1);
}
