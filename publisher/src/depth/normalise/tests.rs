use std::io::Cursor;
use std::path::Path;

use protocol::book::{BookState, Books, BooksConfig, Start};
use protocol::channel::ChannelConfig;
use protocol::line::Epoch;

use super::*;
use crate::Pipeline;
use crate::capture::window::Window;
use crate::input::Packing;
use crate::text::{Layout, LineFile};

type Text = Pipeline<LineFile<Cursor<Vec<u8>>>, Normaliser>;

/// A local time, and the venue's 1.27 s later, in ms.
const LOCAL: u64 = 1_723_161_253_937_085_768;
const VENUE_MS: u64 = 1_723_161_255_208;

fn through(text: &str) -> (Vec<Record>, Text) {
    let window = Window::new(Cursor::new(text.as_bytes().to_vec()), Path::new("x.json"), Packing::Plain);
    let config = ChannelConfig {
        books: BooksConfig { instruments: 8, orders: 16, levels: 1 << 14 },
        start: Start::Strict,
        digest_every: 0,
    };
    let source = LineFile::from_window(window, Layout::Depth, false);
    let mut pipeline = Pipeline::new(source, Normaliser::new(SessionDate::NONE), Epoch(1), config);
    let mut records = Vec::new();
    while pipeline.step(Nanos(1), &mut |line| records.push(line.record)).expect("a sound file") {}
    records.retain(|record| !matches!(record.kind, Kind::DEFINITION | Kind::CONTINUATION));
    (records, pipeline)
}

fn diff(first: u64, last: u64, bids: &str, asks: &str) -> String {
    format!(
        "{LOCAL} {{\"stream\":\"btcusdt@depth\",\"data\":{{\"e\":\"depthUpdate\",\"E\":{VENUE_MS},\"s\":\"BTCUSDT\",\
         \"U\":{first},\"u\":{last},\"b\":{bids},\"a\":{asks}}}}}\n"
    )
}

fn snapshot(last: u64, bids: &str, asks: &str) -> String {
    format!("{LOCAL} {{\"lastUpdateId\":{last},\"bids\":{bids},\"asks\":{asks}}}\n")
}

fn ticker(last: u64, bid: (&str, &str), ask: (&str, &str)) -> String {
    format!(
        "{LOCAL} {{\"stream\":\"btcusdt@bookTicker\",\"data\":{{\"u\":{last},\"s\":\"BTCUSDT\",\"b\":\"{}\",\"B\":\"{}\",\
         \"a\":\"{}\",\"A\":\"{}\"}}}}\n",
        bid.0, bid.1, ask.0, ask.1
    )
}

/// Prices in whole units and sizes in 10^-8, best first.
fn levels(books: &Books, instrument: u32, side: Side) -> Vec<(i64, u64)> {
    let book = books.view(InstrumentId(instrument)).expect("a book");
    book.levels(side).map(|level| (level.price / 1_000_000_000, level.size)).collect()
}

fn state(pipeline: &Text, instrument: u32) -> BookState {
    pipeline.channel().books().state(InstrumentId(instrument))
}

const UNIT: u64 = 100_000_000;

#[test]
fn a_book_is_unknown_until_a_snapshot_and_what_came_before_it_goes_on_top() {
    let text = diff(1, 5, r#"[["90","1"]]"#, "[]") + &diff(6, 9, r#"[["91","2"],["89","0"]]"#, r#"[["95","1"]]"#);
    let (_, pipeline) = through(&text);
    assert_eq!(state(&pipeline, 1), BookState::Unknown);
    // It holds updates up to 7: the second diff straddles its end.
    let text = text + &snapshot(7, r#"[["90","1"],["89","3"],["88","4"]]"#, r#"[["96","5"]]"#);
    let (_, pipeline) = through(&text);
    assert_eq!(state(&pipeline, 1), BookState::Live);
    let books = pipeline.channel().books();
    assert_eq!(levels(books, 1, Side::BID), [(91, 2 * UNIT), (90, UNIT), (88, 4 * UNIT)]);
    assert_eq!(levels(books, 1, Side::ASK), [(95, UNIT), (96, 5 * UNIT)]);
}

#[test]
fn a_level_of_size_zero_is_deleted_and_deleting_an_absent_one_is_legal() {
    let text = snapshot(7, r#"[["90","1"],["89","3"],["70","0.00000000"]]"#, r#"[["96","5"]]"#)
        + &diff(8, 8, r#"[["90","0.00000000"],["50","0.00000000"]]"#, r#"[["96.00000000","6.00000000"]]"#);
    let (records, pipeline) = through(&text);
    assert_eq!(state(&pipeline, 1), BookState::Live);
    let books = pipeline.channel().books();
    assert_eq!(levels(books, 1, Side::BID), [(89, 3 * UNIT)]);
    assert_eq!(levels(books, 1, Side::ASK), [(96, 6 * UNIT)]);
    let ends: Vec<bool> = records.iter().map(Record::is_last).collect();
    assert_eq!(ends, [false, false, false, true, false, false, true], "a line of JSON is one event");
}

#[test]
fn updates_that_are_missing_are_a_venue_gap_and_the_book_is_suspect_until_a_snapshot() {
    let text = snapshot(100, r#"[["90","1"]]"#, "[]") + &diff(105, 107, r#"[["91","1"]]"#, "[]");
    let (records, pipeline) = through(&text);
    let gap = records.iter().find(|record| record.kind == Kind::VENUE_GAP).expect("a gap");
    assert_eq!((gap.order_id.get(), gap.size.get(), gap.is_last()), (101, 4, true));
    assert_eq!(state(&pipeline, 1), BookState::Suspect);
    let text = text + &snapshot(106, r#"[["80","1"]]"#, "[]");
    let (_, pipeline) = through(&text);
    assert_eq!(state(&pipeline, 1), BookState::Live);
    assert_eq!(levels(pipeline.channel().books(), 1, Side::BID), [(91, UNIT), (80, UNIT)]);
    // One that is of before the gap is of no use.
    let text = text + &diff(110, 110, "[]", "[]") + &snapshot(103, r#"[["70","1"]]"#, "[]");
    let (_, pipeline) = through(&text);
    assert_eq!(state(&pipeline, 1), BookState::Suspect);
    assert_eq!(pipeline.venue().counters().not_carried, 1);
}

#[test]
fn copies_of_two_recorders_are_applied_once() {
    let one = diff(8, 9, r#"[["90","2"]]"#, "[]");
    let two = diff(10, 12, r#"[["90","3"]]"#, "[]");
    let first = snapshot(7, r#"[["90","1"]]"#, "[]");
    let (records, pipeline) = through(&[first.as_str(), &one, &one, &two, &one, &two].concat());
    assert_eq!(records.iter().filter(|record| record.kind == Kind::LEVEL_SET).count(), 3);
    assert_eq!(levels(pipeline.channel().books(), 1, Side::BID), [(90, 3 * UNIT)]);
    assert_eq!((pipeline.venue().counters().not_carried, state(&pipeline, 1)), (3, BookState::Live));
}

#[test]
fn of_two_snapshots_with_disjoint_prices_the_second_alone_stands() {
    let text = snapshot(7, r#"[["90","1"]]"#, r#"[["95","1"]]"#) + &snapshot(9, r#"[["80","1"]]"#, r#"[["85","1"]]"#);
    let (_, pipeline) = through(&(text + &diff(10, 10, r#"[["81","1"]]"#, "[]")));
    let books = pipeline.channel().books();
    assert_eq!(levels(books, 1, Side::BID), [(81, UNIT), (80, UNIT)]);
    assert_eq!(levels(books, 1, Side::ASK), [(85, UNIT)]);
}

#[test]
fn a_snapshot_in_front_of_everything_is_of_the_symbol_whose_diffs_follow() {
    let text = snapshot(7, r#"[["90","1"]]"#, "[]")
        + &ticker(8, ("1", "1"), ("2", "1"))
        + &diff(8, 8, "[]", r#"[["95","1"]]"#);
    let (_, pipeline) = through(&text);
    let depth = 2;
    assert_eq!(state(&pipeline, depth), BookState::Live);
    assert_eq!(levels(pipeline.channel().books(), depth, Side::BID), [(90, UNIT)]);
    // With two symbols it is nobody's.
    let other = diff(1, 1, "[]", "[]").replace("BTCUSDT", "ETHUSDT");
    let (_, pipeline) = through(&(text + &other + &snapshot(9, "[]", "[]")));
    assert_eq!(pipeline.venue().counters().not_carried, 1);
}

#[test]
fn best_prices_are_a_book_of_their_own_and_each_side_is_one_level() {
    let text = snapshot(7, r#"[["90","1"]]"#, r#"[["95","1"]]"#)
        + &diff(8, 8, "[]", "[]")
        + &ticker(9, ("90", "1"), ("95", "1"))
        + &ticker(10, ("91", "2"), ("95", "1"))
        + &ticker(11, ("91", "2"), ("95", "1"))
        + &ticker(12, ("91", "2"), ("0.00000000", "0.00000000"));
    let (records, pipeline) = through(&text);
    let books = pipeline.channel().books();
    assert_eq!(levels(books, 1, Side::BID), [(90, UNIT)], "the diffs' book stands");
    assert_eq!(levels(books, 2, Side::BID), [(91, 2 * UNIT)]);
    assert_eq!(levels(books, 2, Side::ASK), []);
    assert_eq!(state(&pipeline, 2), BookState::Live);
    let told: Vec<(Kind, bool)> = records
        .iter()
        .filter(|record| record.instrument.get() == 2)
        .map(|record| (record.kind, record.is_last()))
        .collect();
    let set = Kind::LEVEL_SET;
    assert_eq!(told, [(Kind::CLEAR, false), (set, false), (set, true), (set, true), (set, true)], "what changed");
}

#[test]
fn a_message_without_the_venues_time_has_its_own_and_one_1_27_s_ahead_keeps_both() {
    let (records, _) = through(&(diff(8, 8, r#"[["90","1"]]"#, "[]") + &ticker(9, ("90", "1"), ("95", "1"))));
    let diff = &records[0];
    assert_eq!(diff.ts_event.get(), VENUE_MS * 1_000_000);
    assert_eq!(diff.capture_time(), Nanos(LOCAL));
    assert!(diff.ts_event.get() - diff.capture_time().0 > 1_270_000_000, "the local clock is behind");
    assert!(!diff.flags.has(Flags::OWN_TIME));
    let ticker = &records[1];
    assert!(ticker.flags.has(Flags::OWN_TIME));
    assert_eq!(ticker.ts_event.get(), LOCAL);
}

#[test]
fn a_trade_touches_no_book_and_says_who_started_it() {
    let trade = |id: u64, maker: bool| {
        format!(
            "{LOCAL} {{\"e\":\"trade\",\"E\":{VENUE_MS},\"s\":\"BTCUSDT\",\"t\":{id},\"p\":\"61837.63000000\",\
             \"q\":\"0.02000000\",\"T\":{},\"m\":{maker},\"M\":true}}\n",
            VENUE_MS - 1
        )
    };
    let text = snapshot(7, r#"[["61837.63","1"]]"#, "[]") + &diff(8, 8, "[]", "[]");
    let (records, pipeline) = through(&(text + &trade(5, true) + &trade(6, false) + &trade(6, false)));
    let trades: Vec<_> = records
        .iter()
        .filter(|record| record.kind == Kind::TRADE)
        .map(|record| (record.side, record.order_id.get(), record.price.get(), record.size.get()))
        .collect();
    let (price, size) = (61_837_630_000_000, 2_000_000);
    assert_eq!(trades, [(Side::ASK, 5, price, size), (Side::BID, 6, price, size)]);
    assert_eq!(levels(pipeline.channel().books(), 1, Side::BID), [(61_837, UNIT)]);
    assert_eq!(pipeline.venue().counters().not_carried, 1, "the copy");
}

#[test]
fn a_price_that_no_record_holds_is_refused_and_the_book_says_that_it_lacks_it() {
    let text = snapshot(7, r#"[["90","1"]]"#, "[]") + &diff(8, 8, r#"[["0.0000000001","1"],["89","1"]]"#, "[]");
    let (_, pipeline) = through(&text);
    assert_eq!(pipeline.venue().counters().refused_prices, 1);
    assert_eq!(state(&pipeline, 1), BookState::Suspect);
    assert_eq!(levels(pipeline.channel().books(), 1, Side::BID), [(90, UNIT), (89, UNIT)]);
}

#[test]
fn prices_one_unit_apart_are_two_levels() {
    let bids = r#"[["0.100000001","1"],["0.100000002","2"],["0.1","3"]]"#;
    let (_, pipeline) = through(&(snapshot(7, bids, "[]") + &diff(8, 8, "[]", "[]")));
    let book = pipeline.channel().books().view(InstrumentId(1)).expect("a book");
    let levels: Vec<_> = book.levels(Side::BID).map(|level| (level.price, level.size / UNIT)).collect();
    assert_eq!(levels, [(100_000_002, 2), (100_000_001, 1), (100_000_000, 3)]);
}

#[test]
fn what_is_not_read_is_counted_and_the_rest_goes_on() {
    let text = "{\"result\":null,\"id\":1}\n{\"e\":\"depthUpdate\"}\nnot json\n".to_owned() + &diff(8, 8, "[]", "[]");
    let (_, pipeline) = through(&text);
    let counters = pipeline.venue().counters();
    assert_eq!((counters.unknown_types, counters.malformed, counters.messages()), (1, 2, 4));
}
