use std::io::Cursor;
use std::path::Path;

use protocol::book::{BookState, BooksConfig, Start};
use protocol::channel::ChannelConfig;
use protocol::line::Epoch;
use protocol::record::Side;

use super::*;
use crate::Pipeline;
use crate::capture::window::Window;
use crate::input::Packing;
use crate::tardis::HEADER;
use crate::text::{Layout, LineFile};

type Text = Pipeline<LineFile<Cursor<Vec<u8>>>, Normaliser>;

const UNIT: u64 = 100_000_000;

fn through(text: &str) -> (Vec<Record>, Text) {
    let window = Window::new(Cursor::new(text.as_bytes().to_vec()), Path::new("x.csv"), Packing::Plain);
    let config = ChannelConfig {
        books: BooksConfig { instruments: 8, orders: 16, levels: 1 << 14 },
        start: Start::Strict,
        digest_every: 0,
    };
    let source = LineFile::from_window(window, Layout::Tardis, false);
    let mut pipeline = Pipeline::new(source, Normaliser::new(SessionDate::NONE), Epoch(1), config);
    let mut records = Vec::new();
    while pipeline.step(Nanos(1), &mut |line| records.push(line.record)).expect("a sound file") {}
    records.retain(|record| !matches!(record.kind, Kind::DEFINITION | Kind::CONTINUATION));
    (records, pipeline)
}

/// A file of rows `symbol milliseconds kind side price amount`; the venue's time is 5 ms before the local one.
fn file(rows: &[&str]) -> String {
    let mut text = String::from_utf8(HEADER.to_vec()).expect("text") + "\n";
    for row in rows {
        let [symbol, ms, kind, side, price, amount] = row.split(' ').collect::<Vec<_>>()[..] else { panic!("{row}") };
        let local: u64 = 1_585_699_200_000_000 + 1_000 * ms.parse::<u64>().expect("ms");
        let snapshot = kind == "snapshot";
        text += &format!("deribit,{symbol},{},{local},{snapshot},{side},{price},{amount}\n", local - 5_000);
    }
    text
}

fn levels(pipeline: &Text, instrument: u32, side: Side) -> Vec<(i64, u64)> {
    let view = pipeline.channel().books().view(InstrumentId(instrument)).expect("a book");
    view.levels(side).map(|level| (level.price, level.size)).collect()
}

fn state(pipeline: &Text, instrument: u32) -> BookState {
    pipeline.channel().books().state(InstrumentId(instrument))
}

#[test]
fn rows_of_one_moment_are_one_event_and_microseconds_are_exact() {
    let text = file(&[
        "X 10 snapshot bid 90 1",
        "X 10 snapshot ask 95.5 2",
        "X 10 snapshot ask 96 0",
        "X 20 update bid 90 0.00000001",
        "X 20 update bid 91 3",
        "X 21 update ask 95.5 0",
        "X 21 update ask 97 0",
    ]);
    let (records, pipeline) = through(&text);
    let ends: Vec<bool> = records.iter().map(Record::is_last).collect();
    assert_eq!(ends, [false, false, true, false, true, false, true]);
    assert_eq!(records[0].ts_event.get(), 1_585_699_200_005_000_000);
    assert_eq!(records[0].capture_time(), Nanos(1_585_699_200_010_000_000));
    assert_eq!(records.iter().map(|record| record.venue_seq.get()).collect::<Vec<_>>(), [1, 1, 1, 2, 2, 3, 3]);
    assert_eq!(levels(&pipeline, 1, Side::BID), [(91_000_000_000, 3 * UNIT), (90_000_000_000, 1)]);
    assert_eq!(levels(&pipeline, 1, Side::ASK), []);
    assert_eq!(state(&pipeline, 1), BookState::Live);
    let counters = pipeline.venue().counters();
    assert_eq!((counters.messages_by_type[usize::from(b's')], counters.messages_by_type[usize::from(b'u')]), (1, 2));
}

#[test]
fn a_book_is_unknown_until_a_snapshot() {
    let (_, pipeline) = through(&file(&["X 10 update bid 90 1"]));
    assert_eq!(state(&pipeline, 1), BookState::Unknown);
    let (_, pipeline) = through(&file(&["X 10 update bid 90 1", "X 11 snapshot bid 80 1"]));
    assert_eq!(state(&pipeline, 1), BookState::Live);
    assert_eq!(levels(&pipeline, 1, Side::BID), [(80_000_000_000, UNIT)]);
}

#[test]
fn a_snapshot_takes_the_place_of_the_book_and_of_another_snapshot() {
    let first = ["X 10 snapshot bid 90 1", "X 11 update bid 91 1", "X 12 snapshot bid 80 1", "X 12 snapshot bid 79 1"];
    let (_, pipeline) = through(&file(&first));
    assert_eq!(levels(&pipeline, 1, Side::BID), [(80_000_000_000, UNIT), (79_000_000_000, UNIT)]);
    let (_, pipeline) = through(&file(&["X 10 snapshot bid 90 1", "X 12 snapshot bid 80 1"]));
    assert_eq!(levels(&pipeline, 1, Side::BID), [(80_000_000_000, UNIT)]);
}

#[test]
fn symbols_and_venues_have_books_of_their_own() {
    let text = file(&["X 10 snapshot bid 90 1", "Y 10 snapshot bid 80 1", "X 10 update bid 91 1"]);
    let other = text.lines().nth(1).expect("a row").replace("deribit", "bitmex").replace(",90,", ",70,");
    let (_, pipeline) = through(&(text + &other));
    assert_eq!(levels(&pipeline, 1, Side::BID), [(91_000_000_000, UNIT), (90_000_000_000, UNIT)]);
    assert_eq!(levels(&pipeline, 2, Side::BID), [(80_000_000_000, UNIT)]);
    assert_eq!(levels(&pipeline, 3, Side::BID), [(70_000_000_000, UNIT)]);
    assert_eq!(pipeline.venue().instrument_count(), 3);
}

#[test]
fn a_long_snapshot_is_one_snapshot_and_the_book_live_at_its_end_only() {
    let rows: Vec<String> = (1..=9_000).map(|price| format!("X 10 snapshot bid {price} 1")).collect();
    let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
    let (records, pipeline) = through(&file(&rows));
    assert_eq!(records.iter().filter(|record| record.kind == Kind::CLEAR).count(), 1);
    assert_eq!((levels(&pipeline, 1, Side::BID).len(), state(&pipeline, 1)), (9_000, BookState::Live));
}

#[test]
fn rows_that_cannot_be_read_are_counted_and_the_book_says_that_it_lacks_them() {
    let text = file(&["X 10 snapshot bid 90 1", "X 11 update bid 91 0.000000001", "X 12 update bid 92 1"]);
    let (_, pipeline) = through(&text);
    assert_eq!(pipeline.venue().counters().refused_prices, 1);
    assert_eq!(state(&pipeline, 1), BookState::Suspect);
    assert_eq!(levels(&pipeline, 1, Side::BID), [(92_000_000_000, UNIT), (90_000_000_000, UNIT)]);
    let bad = text.replace("0.000000001", "x").replace(",92,1", ",92");
    let (_, pipeline) = through(&(bad + "z\n"));
    assert_eq!(pipeline.venue().counters().malformed, 3);
}
