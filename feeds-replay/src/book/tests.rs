use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use publisher::date::session_date;
use publisher::itch::{BinaryFile, FramingOptions, Normaliser, NormaliserOptions};

use super::diff::diff;
use super::*;
use crate::generate::encode::{self, Directory, Head, NewOrder};
use crate::generate::{GenerateOptions, generate};

type Bytes<'a> = Walk<BinaryFile<&'a [u8]>, Normaliser>;

fn walk(bytes: &[u8]) -> Bytes<'_> {
    walk_with(bytes, SessionDate::NONE, false)
}

fn walk_with(bytes: &[u8], date: SessionDate, lenient: bool) -> Bytes<'_> {
    let file = BinaryFile::from_reader(bytes, Path::new("test.itch"), FramingOptions { lenient });
    Walk::new(file, Normaliser::new(NormaliserOptions::default(), date), date)
}

const SECOND: u64 = 1_000_000_000;

fn head(locate: u16, seconds: u64) -> Head {
    Head { locate, tracking: 0, elapsed_ns: seconds * SECOND }
}

fn symbol(name: &str) -> [u8; 8] {
    format!("{name:<8}").into_bytes().try_into().expect("at most 8 letters")
}

fn directory(out: &mut Vec<u8>, locate: u16, name: &str, seconds: u64) {
    let directory = Directory {
        stock: symbol(name),
        market_category: b'Q',
        financial_status: b'N',
        round_lot_size: 100,
        round_lots_only: b'N',
        issue_classification: b'C',
        issue_subtype: *b"Z ",
        authenticity: b'P',
        short_sale_threshold: b'N',
        ipo_flag: b'N',
        luld_tier: b'1',
        etp_flag: b'N',
        etp_leverage: 0,
        inverse: b'N',
    };
    encode::stock_directory(out, head(locate, seconds), &directory);
}

fn add(out: &mut Vec<u8>, at: (u16, u64), name: &str, reference: u64, buy_sell: u8, shares: u32, price: u32) {
    let order = NewOrder { reference, buy_sell, shares, stock: symbol(name), price };
    encode::add_order(out, head(at.0, at.1), &order, None);
}

/// Times in seconds: 1 start, 2 directory of AAPL (1) and AAP (2), 10 two bids, 20 an ask and (same time) a third bid, 30 one
/// bid deleted, 40 the end.
fn small_day() -> Vec<u8> {
    let mut out = Vec::new();
    encode::system_event(&mut out, head(0, 1), b'O');
    directory(&mut out, 1, "AAPL", 2);
    directory(&mut out, 2, "AAP", 2);
    add(&mut out, (1, 10), "AAPL", 1, b'B', 300, 1_000_000);
    add(&mut out, (1, 10), "AAPL", 2, b'B', 200, 1_000_000);
    add(&mut out, (1, 20), "AAPL", 3, b'S', 500, 1_000_500);
    add(&mut out, (1, 20), "AAPL", 4, b'B', 100, 999_999);
    encode::order_delete(&mut out, head(1, 30), 2);
    encode::system_event(&mut out, head(0, 40), b'C');
    out
}

fn seconds(seconds: u64) -> Option<Moment> {
    Some(Moment::TimeOfDay(seconds * SECOND))
}

fn of(levels: &[Level]) -> Vec<(i64, u64, u32)> {
    levels.iter().map(|level| (level.price / 100_000, level.size, level.orders)).collect()
}

#[test]
fn the_book_is_as_of_the_last_event_at_or_before_the_time() {
    let day = small_day();
    for (at, bids, asks, message) in [
        (seconds(9), vec![], vec![], 3),
        (Some(Moment::TimeOfDay(10 * SECOND - 1)), vec![], vec![], 3),
        (seconds(10), vec![(1_000_000, 500, 2)], vec![], 5),
        (seconds(19), vec![(1_000_000, 500, 2)], vec![], 5),
        (seconds(20), vec![(1_000_000, 500, 2), (999_999, 100, 1)], vec![(1_000_500, 500, 1)], 7),
        (seconds(30), vec![(1_000_000, 300, 1), (999_999, 100, 1)], vec![(1_000_500, 500, 1)], 8),
        (seconds(40), vec![(1_000_000, 300, 1), (999_999, 100, 1)], vec![(1_000_500, 500, 1)], 9),
        (None, vec![(1_000_000, 300, 1), (999_999, 100, 1)], vec![(1_000_500, 500, 1)], 9),
    ] {
        let image = book_at(&mut walk(&day), "AAPL", at).unwrap_or_else(|error| panic!("{at:?}: {error}"));
        assert_eq!((of(&image.bids), of(&image.asks)), (bids, asks), "{at:?}");
        assert_eq!(image.last.message, message, "{at:?}");
        let orders: u32 = image.bids.iter().chain(&image.asks).map(|level| level.orders).sum();
        assert_eq!(image.resting_orders, u64::from(orders), "{at:?}");
        assert_eq!((image.state, image.mid_day), (BookState::Live, false), "{at:?}");
    }
}

#[test]
fn a_time_in_utc_is_the_same_moment_as_the_exchanges_own() {
    let day = small_day();
    let date = session_date(Some("2019-12-30"), None, Path::new("")).expect("a date");
    // Half a minute after New York's midnight.
    let at = "2019-12-30T05:00:20Z".parse().expect("RFC 3339");
    let image = book_at(&mut walk_with(&day, date, false), "AAPL", Some(at)).expect("a book");
    assert_eq!((image.last.message, image.resting_orders), (7, 4));
}

#[test]
fn json_has_levels_best_first_with_prices_as_exact_text() {
    let day = small_day();
    let image = book_at(&mut walk(&day), "AAPL", seconds(20)).expect("a book");
    let value = json(&image, usize::MAX);
    assert_eq!(value["bids"][0], serde_json::json!({"price": "100", "size": 500, "orders": 2}));
    assert_eq!(value["bids"][1], serde_json::json!({"price": "99.9999", "size": 100, "orders": 1}));
    assert_eq!(value["asks"], serde_json::json!([{"price": "100.05", "size": 500, "orders": 1}]));
    assert_eq!((value["resting_orders"].as_u64(), value["state"].as_str()), (Some(4), Some("Live")));
    assert_eq!(value["last_event"]["exchange"], "00:00:20.000000000");
    assert_eq!(json(&image, 1)["bids"].as_array().map(Vec::len), Some(1));
    let text = text(&image, 1);
    assert!(text.starts_with("AAPL is Live\n"), "{text}");
    assert!(text.contains("100.05") && !text.contains("99.9999") && text.contains("1 more levels"), "{text}");
}

#[test]
fn an_unknown_symbol_is_refused_with_the_near_ones() {
    let day = small_day();
    let error = book_at(&mut walk(&day), "aapl", None).expect_err("symbols are told apart by case").to_string();
    assert!(error.contains("did you mean one of AAPL, AAP?"), "{error}");
    let error = book_at(&mut walk(&day), "ZVZZT", None).expect_err("not there").to_string();
    assert!(error.contains("it has 2, such as AAP, AAPL"), "{error}");
}

#[test]
fn a_time_outside_the_capture_is_refused_with_its_end() {
    let day = small_day();
    let error = book_at(&mut walk(&day), "AAPL", seconds(0)).expect_err("before").to_string();
    assert!(error.contains("before the capture's first event, at 00:00:01.000000000"), "{error}");
    let error = book_at(&mut walk(&day), "AAPL", seconds(41)).expect_err("after").to_string();
    assert!(error.contains("after the capture's last event, at 00:00:40.000000000"), "{error}");
}

#[test]
fn a_cut_capture_gives_what_is_before_the_cut_and_says_where_it_is() {
    let mut day = small_day();
    // In the middle of the delete at 30.
    let cut = day.len() - (2 + 12) - 5;
    day.truncate(cut);
    let image = book_at(&mut walk(&day), "AAPL", None).expect("what is before");
    assert_eq!((image.last.message, image.resting_orders), (7, 4));
    assert!(image.cut.expect("the cut").to_string().contains("cut off inside message 8"));
    // Before the cut nothing is wrong.
    assert_eq!(book_at(&mut walk(&day), "AAPL", seconds(10)).expect("before").resting_orders, 2);
    for at in [20, 30] {
        let error = book_at(&mut walk(&day), "AAPL", seconds(at)).expect_err("more may have come").to_string();
        assert!(error.contains("cut off inside message 8") && error.contains("00:00:20.000000000"), "{error}");
    }
    let image = book_at(&mut walk_with(&day, SessionDate::NONE, true), "AAPL", None).expect("forgiven");
    assert!(image.cut.is_none() && image.warning.is_some());
}

#[test]
fn a_capture_that_starts_in_mid_day_is_suspect_and_says_why() {
    let mut day = Vec::new();
    directory(&mut day, 1, "AAPL", 2);
    add(&mut day, (1, 10), "AAPL", 1, b'B', 300, 1_000_000);
    let image = book_at(&mut walk(&day), "AAPL", None).expect("a book");
    assert_eq!((image.state, image.mid_day, image.resting_orders), (BookState::Suspect, true, 1));
    assert!(text(&image, 10).starts_with("AAPL is Suspect: the capture starts in mid-day"));
}

/// Orders by reference, read from the bytes by their offsets: no code shared with what is tested.
fn naive_levels(bytes: &[u8], locate: u16, until_ns: u64) -> [BTreeMap<u64, (u64, u32)>; 2] {
    let be = |bytes: &[u8]| bytes.iter().fold(0u64, |value, byte| value << 8 | u64::from(*byte));
    let mut orders: HashMap<u64, (u8, u64, u64)> = HashMap::new();
    let mut at = 0;
    while at < bytes.len() {
        let len = be(&bytes[at..at + 2]) as usize;
        let m = &bytes[at + 2..at + 2 + len];
        at += 2 + len;
        if be(&m[5..11]) > until_ns {
            break;
        }
        if be(&m[1..3]) != u64::from(locate) {
            continue;
        }
        let mut take = |reference: u64, shares: u64| {
            let left = orders.get_mut(&reference).map(|order| {
                order.2 -= shares;
                order.2
            });
            if left == Some(0) {
                orders.remove(&reference);
            }
        };
        match m[0] {
            b'A' | b'F' => {
                orders.insert(be(&m[11..19]), (m[19], be(&m[32..36]), be(&m[20..24])));
            }
            b'E' | b'C' | b'X' => take(be(&m[11..19]), be(&m[19..23])),
            b'D' => {
                orders.remove(&be(&m[11..19]));
            }
            b'U' => {
                let (side, ..) = orders.remove(&be(&m[11..19])).expect("rests");
                orders.insert(be(&m[19..27]), (side, be(&m[31..35]), be(&m[27..31])));
            }
            _ => {}
        }
    }
    let mut levels = [BTreeMap::new(), BTreeMap::new()];
    for (side, price, shares) in orders.into_values() {
        let level: &mut (u64, u32) = levels[usize::from(side == b'S')].entry(price).or_default();
        *level = (level.0 + shares, level.1 + 1);
    }
    levels
}

fn generated(seed: u64, messages: u64) -> Vec<u8> {
    let mut day = Vec::new();
    let options = GenerateOptions { seed, symbols: 6, messages, ..GenerateOptions::default() };
    generate(&options, &mut day).expect("options in range");
    day
}

#[test]
fn at_any_time_of_a_generated_day_the_book_is_what_a_naive_one_holds() {
    let seed = 21;
    println!("seed {seed}");
    let day = generated(seed, 20_000);
    let mut probe = walk(&day);
    let names: Vec<String> = {
        probe.advance_to(Nanos::UNDEFINED).expect("a sound day");
        (1..=6).map(|i| probe.symbols().get(InstrumentId(i)).expect("defined").symbol.clone()).collect()
    };
    let mut filled = 0;
    for (step, minute) in (250..1_200).step_by(50).enumerate() {
        let at_ns = minute * 60 * SECOND + 123_456_789;
        let locate = step as u16 % 6 + 1;
        let name = &names[usize::from(locate) - 1];
        let image = book_at(&mut walk(&day), name, Some(Moment::TimeOfDay(at_ns))).expect("within the day");
        let [bids, asks] = naive_levels(&day, locate, at_ns);
        let flat = |levels: Vec<(&u64, &(u64, u32))>| -> Vec<(i64, u64, u32)> {
            levels.into_iter().map(|(price, level)| (*price as i64, level.0, level.1)).collect()
        };
        assert_eq!(of(&image.bids), flat(bids.iter().rev().collect()), "{name} at {at_ns}");
        assert_eq!(of(&image.asks), flat(asks.iter().collect()), "{name} at {at_ns}");
        filled += usize::from(image.resting_orders > 4);
    }
    assert!(filled > 8, "{filled} books had more than a few orders");
}

/// The start and end of the `n`-th message of type `wanted`, framing included.
fn nth_of_type(bytes: &[u8], wanted: u8, n: usize) -> std::ops::Range<usize> {
    let (mut at, mut seen) = (0, 0);
    while at < bytes.len() {
        let end = at + 2 + usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
        if bytes[at + 2] == wanted {
            if seen == n {
                return at..end;
            }
            seen += 1;
        }
        at = end;
    }
    panic!("fewer than {n} messages of type {wanted}");
}

#[test]
fn the_same_capture_twice_agrees() {
    let day = generated(4, 8_000);
    let parting = diff(&mut walk(&day), &mut walk(&day), None, None).expect("two captures");
    assert!(parting.agrees(), "{parting:?}");
    assert_eq!((parting.symbols, parting.messages[0]), (6, 8_000));
    assert!(parting.compared_times > 3_000, "{}", parting.compared_times);
    assert!(parting.text(&["a".into(), "b".into()], 10).starts_with("the books of 6 symbols agree\n"));
}

#[test]
fn a_message_that_one_capture_lacks_is_where_the_books_part() {
    let day = generated(5, 8_000);
    let missing = nth_of_type(&day, b'A', 500);
    let m = &day[missing.clone()][2..];
    let time = Nanos(m[5..11].iter().fold(0, |value, byte| value << 8 | u64::from(*byte)));
    let stock = std::str::from_utf8(&m[24..32]).expect("text").trim_end();
    let mut other = day.clone();
    other.drain(missing);
    let parting = diff(&mut walk(&day), &mut walk(&other), None, None).expect("two captures");
    assert!(!parting.agrees());
    let [parted] = &parting.parted[..] else { panic!("one symbol parts: {:?}", parting.parted) };
    assert_eq!((parted.symbol.as_str(), parted.time), (stock, time));
    assert_eq!(parted.messages[0], parted.messages[1] + 1);
    assert_eq!(parted.resting[0], parted.resting[1] + 1);
    assert_eq!(parted.levels.len(), 1, "{:?}", parted.levels);
    let value = parting.json(&["a".into(), "b".into()], 10);
    assert_eq!((&value["agree"], &value["parted"][0]["symbol"]), (&false.into(), &stock.into()));
    assert!(parting.text(&["a".into(), "b".into()], 10).contains(&format!("{stock}: part at ")));
    // Another symbol's books agree, and so do all of them before that moment.
    let other_symbol = if stock == "ZAAA" { "ZAAB" } else { "ZAAA" };
    assert!(diff(&mut walk(&day), &mut walk(&other), Some(other_symbol), None).expect("two captures").agrees());
    let before = Some(Moment::TimeOfDay(time.0 - 1));
    assert!(diff(&mut walk(&day), &mut walk(&other), None, before).expect("two captures").parted.is_empty());
}

#[test]
fn orders_that_differ_within_the_same_levels_are_found_at_the_end() {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for (out, first, second) in [(&mut a, 1, 2), (&mut b, 2, 1)] {
        encode::system_event(out, head(0, 1), b'O');
        directory(out, 1, "AAPL", 2);
        add(out, (1, 10), "AAPL", first, b'B', 100, 1_000_000);
        add(out, (1, 10), "AAPL", second, b'B', 100, 1_000_000);
    }
    let parting = diff(&mut walk(&a), &mut walk(&b), None, None).expect("two captures");
    assert!(!parting.agrees() && parting.parted[0].levels.is_empty() && parting.parted[0].at_end, "{parting:?}");
}

#[test]
fn a_capture_that_is_cut_is_compared_up_to_the_cut() {
    let day = generated(6, 8_000);
    let parting = diff(&mut walk(&day), &mut walk(&day[..day.len() / 2]), None, None).expect("two captures");
    assert!(!parting.agrees() && parting.parted.is_empty(), "{:?}", parting.parted);
    assert!(parting.errors[1].as_ref().expect("cut").contains("cut off inside message"));
    assert!(diff(&mut walk(&day), &mut walk(&day), Some("NONE"), None).is_err());
}
