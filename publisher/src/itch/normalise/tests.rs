use std::collections::HashMap;
use std::path::Path;

use protocol::book::RestingOrder;
use protocol::record::{StatusWord, status as action};
use zerocopy::FromBytes;

use super::*;
use crate::date::session_date;

const MIDNIGHT: u64 = 1_717_387_200_000_000_000;
/// 09:30:00.000000123.
const TIME: u64 = 34_200_000_000_123;

/// Orders by instrument and id: what the normaliser needs of a book, and nothing more.
#[derive(Default)]
struct Orders(HashMap<(u32, u64), RestingOrder>);

impl OrderLookup for Orders {
    fn order(&self, instrument: InstrumentId, order_id: u64) -> Option<RestingOrder> {
        self.0.get(&(instrument.0, order_id)).copied()
    }
}

impl Orders {
    fn apply(&mut self, record: &Record) {
        let key = (record.instrument.get(), record.order_id.get());
        match record.kind {
            Kind::ADD => {
                let order =
                    RestingOrder { side: record.side, price: record.price.get(), size: record.size.get(), priority: 0 };
                self.0.insert(key, order);
            }
            Kind::EXECUTE | Kind::REDUCE => {
                if let Some(order) = self.0.get_mut(&key) {
                    order.size = order.size.saturating_sub(record.size.get());
                    if order.size == 0 {
                        self.0.remove(&key);
                    }
                }
            }
            Kind::DELETE => {
                self.0.remove(&key);
            }
            _ => {}
        }
    }
}

/// A feed under test: messages go in, records come out and are applied to the orders.
struct Feed {
    normaliser: Normaliser,
    orders: Orders,
    ordinal: u64,
    capture: Option<Nanos>,
    time: u64,
}

fn feed_with(options: NormaliserOptions) -> Feed {
    let date = session_date(Some("2024-06-03"), None, Path::new("")).expect("a date");
    assert_eq!(date.midnight(), Nanos(MIDNIGHT));
    let normaliser = Normaliser::new(options, date);
    Feed { normaliser, orders: Orders::default(), ordinal: (7 << 32) + 9, capture: None, time: TIME }
}

/// A feed in which locate 5 is instrument 1, with the symbol ABC.
fn feed() -> Feed {
    let mut feed = feed_with(NormaliserOptions::default());
    let lines = feed.send(b'H', 5, b"ABC     T     ");
    assert_eq!((lines.len(), lines[0].kind), (4, Kind::DEFINITION));
    feed
}

impl Feed {
    fn raw(&mut self, bytes: &[u8]) -> Result<Vec<Record>, Rejected> {
        self.ordinal += 1;
        let message = feed::Message { ordinal: self.ordinal, offset: 0, capture: self.capture, bytes };
        let mut lines = Vec::new();
        self.normaliser.normalise(&message, &self.orders, &mut |record| lines.push(record))?;
        lines.iter().for_each(|record| self.orders.apply(record));
        // What holds for every event.
        for (i, line) in lines.iter().enumerate() {
            assert_eq!(line.is_last(), i + 1 == lines.len(), "LAST stands on the last line only: {lines:?}");
            let belongs = lines.get(i + 1).is_some_and(|next| next.kind == Kind::CONTINUATION);
            assert_eq!(line.flags.has(Flags::CONTINUES), belongs, "{lines:?}");
            assert_eq!(line.venue_seq.get(), self.ordinal as u32);
            assert_eq!(line.instrument_seq.get(), 0);
            if line.kind != Kind::CONTINUATION {
                assert_eq!(line.ts_publish.get(), 0);
            }
        }
        Ok(lines)
    }

    fn send(&mut self, message_type: u8, locate: u16, body: &[u8]) -> Vec<Record> {
        let mut bytes = vec![message_type];
        bytes.extend(locate.to_be_bytes());
        bytes.extend([0, 2]);
        bytes.extend(&self.time.to_be_bytes()[2..]);
        bytes.extend(body);
        self.raw(&bytes).unwrap_or_else(|rejected| panic!("{}: {rejected}", char::from(message_type)))
    }

    fn add(&mut self, locate: u16, reference: u64, side: u8, shares: u32, price: u32) -> Vec<Record> {
        self.send(
            b'A',
            locate,
            &[&reference.to_be_bytes()[..], &[side], &shares.to_be_bytes(), b"ABC     ", &price.to_be_bytes()].concat(),
        )
    }
}

/// Kind, side, detail, instrument, id, price, size.
type Row = (Kind, Side, u8, u32, u64, i64, u64);

fn rows(lines: &[Record]) -> Vec<Row> {
    lines
        .iter()
        .map(|r| (r.kind, r.side, r.detail, r.instrument.get(), r.order_id.get(), r.price.get(), r.size.get()))
        .collect()
}

fn u64s(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_be_bytes()).collect()
}

fn u32s(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_be_bytes()).collect()
}

const NO_PRICE: i64 = UNDEFINED_PRICE;

#[test]
fn an_add_is_one_line_with_exact_price_and_time() {
    let mut feed = feed();
    let lines = feed.add(5, 1 << 63 | 7, b'S', u32::MAX, u32::MAX);
    assert_eq!(rows(&lines), [(Kind::ADD, Side::ASK, 0, 1, 1 << 63 | 7, 429_496_729_500_000, u64::from(u32::MAX))]);
    assert_eq!(lines[0].flags, Flags::LAST);
    assert_eq!(lines[0].event_time(), Nanos(MIDNIGHT + TIME));
    assert_eq!(lines[0].ts_capture.get(), (MIDNIGHT + TIME) as u32, "no capture time: the event's own");
    assert_eq!(lines[0].capture_time(), Nanos(MIDNIGHT + TIME));
}

#[test]
fn an_attributed_add_carries_its_participant_behind_it() {
    let mut feed = feed();
    let body = [&u64s(&[9])[..], b"B", &u32s(&[300]), b"ABC     ", &u32s(&[123_400]), b"NITE"].concat();
    let lines = feed.send(b'F', 5, &body);
    assert_eq!(rows(&lines[..1]), [(Kind::ADD, Side::BID, 0, 1, 9, 12_340_000_000, 300)]);
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[1].kind, Kind::CONTINUATION);
    assert_eq!((lines[1].side, lines[1].instrument_id()), (Side::BID, InstrumentId(1)));
    assert_eq!(lines[1].payload()[..5], *b"NITE\0");
}

#[test]
fn the_short_and_the_long_form_of_one_order_are_the_same_order() {
    let order = [&u64s(&[9])[..], b"S", &u32s(&[300]), b"ABC     ", &u32s(&[123_400])].concat();
    let short = feed().send(b'A', 5, &order);
    let long = feed().send(b'F', 5, &[&order[..], b"NITE"].concat());
    assert_eq!(rows(&short), [(Kind::ADD, Side::ASK, 0, 1, 9, 12_340_000_000, 300)]);
    assert_eq!(rows(&long[..1]), rows(&short));
    assert_eq!((short.len(), long.len()), (1, 2));
    // A long form under the short one's type is neither.
    assert!(feed().raw(&[&[b'A', 0, 5, 0, 0, 0, 0, 0, 0, 0, 1][..], &order, b"NITE"].concat()).is_err());
}

#[test]
fn an_execution_is_the_resting_orders_and_then_the_trade_with_the_aggressor_opposite() {
    let mut feed = feed();
    feed.add(5, 9, b'S', 100, 123_400);
    let lines = feed.send(b'E', 5, &[&u64s(&[9])[..], &u32s(&[30]), &u64s(&[77])].concat());
    assert_eq!(
        rows(&lines),
        [
            (Kind::EXECUTE, Side::ASK, 0, 1, 9, 12_340_000_000, 30),
            (Kind::TRADE, Side::BID, condition::PRINTABLE, 1, 77, 12_340_000_000, 30),
        ]
    );
}

#[test]
fn an_execution_with_price_prints_at_that_price_and_executes_at_the_resting_one() {
    let mut feed = feed();
    feed.add(5, 9, b'B', 100, 123_400);
    let body = |printable: &[u8]| [&u64s(&[9])[..], &u32s(&[30]), &u64s(&[77]), printable, &u32s(&[123_350])].concat();
    assert_eq!(
        rows(&feed.send(b'C', 5, &body(b"Y"))),
        [
            (Kind::EXECUTE, Side::BID, 0, 1, 9, 12_340_000_000, 30),
            (Kind::TRADE, Side::ASK, condition::PRINTABLE, 1, 77, 12_335_000_000, 30),
        ]
    );
    // Not printed: inside a cross, without an aggressor.
    assert_eq!(
        rows(&feed.send(b'C', 5, &body(b"N"))),
        [
            (Kind::EXECUTE, Side::BID, 0, 1, 9, 12_340_000_000, 30),
            (Kind::TRADE, Side::NONE, condition::CROSS, 1, 77, 12_335_000_000, 30),
        ]
    );
}

#[test]
fn a_cancel_takes_shares_off_and_a_delete_takes_what_is_left() {
    let mut feed = feed();
    feed.add(5, 9, b'B', 100, 123_400);
    let lines = feed.send(b'X', 5, &[&u64s(&[9])[..], &u32s(&[30])].concat());
    assert_eq!(rows(&lines), [(Kind::REDUCE, Side::BID, 0, 1, 9, 12_340_000_000, 30)]);
    let lines = feed.send(b'D', 5, &u64s(&[9]));
    assert_eq!(rows(&lines), [(Kind::DELETE, Side::BID, 0, 1, 9, 12_340_000_000, 70)]);
    assert_eq!(feed.normaliser.counters().unknown_orders, 0);
}

#[test]
fn the_order_of_a_message_to_come_is_told_for_the_five_that_change_one() {
    let feed = feed();
    for byte in 0..=255u8 {
        let mut bytes = vec![byte, 0, 5];
        bytes.resize(11, 0);
        bytes.extend(77u64.to_be_bytes());
        let told = b"ECXDU".contains(&byte).then_some((InstrumentId(1), 77));
        assert_eq!(feed.normaliser.order_of(&bytes), told, "type {byte:02X}");
        bytes[2] = 6;
        assert_eq!(feed.normaliser.order_of(&bytes), None, "a locate that nothing is known of");
        bytes[2] = 5;
        bytes.extend([0; 20]);
        assert_eq!(feed.normaliser.order_of(&bytes), told);
        assert_eq!(feed.normaliser.order_of(&bytes[..18]), None, "cut short");
    }
    assert_eq!(feed.normaliser.order_of(b""), None);
}

#[test]
fn a_replace_of_an_ask_stays_an_ask() {
    let mut feed = feed();
    feed.add(5, 9, b'S', 100, 123_400);
    let lines = feed.send(b'U', 5, &[&u64s(&[9, 10])[..], &u32s(&[50, 123_500])].concat());
    assert_eq!(
        rows(&lines),
        [
            (Kind::DELETE, Side::ASK, REPLACED, 1, 9, 12_340_000_000, 100),
            (Kind::ADD, Side::ASK, REPLACED, 1, 10, 12_350_000_000, 50),
        ]
    );
    // And so does a chain of them.
    let lines = feed.send(b'U', 5, &[&u64s(&[10, 11])[..], &u32s(&[50, 123_600])].concat());
    assert_eq!(lines[1].side, Side::ASK);
}

#[test]
fn an_unknown_order_is_passed_on_without_side_and_price_and_counted() {
    let mut feed = feed();
    assert_eq!(
        rows(&feed.send(b'E', 5, &[&u64s(&[9])[..], &u32s(&[30]), &u64s(&[77])].concat())),
        [
            (Kind::EXECUTE, Side::NONE, 0, 1, 9, NO_PRICE, 30),
            (Kind::TRADE, Side::NONE, condition::PRINTABLE, 1, 77, NO_PRICE, 30),
        ]
    );
    let body = [&u64s(&[9])[..], &u32s(&[30]), &u64s(&[78]), b"Y", &u32s(&[123_350])].concat();
    assert_eq!(
        rows(&feed.send(b'C', 5, &body)),
        [
            (Kind::EXECUTE, Side::NONE, 0, 1, 9, NO_PRICE, 30),
            (Kind::TRADE, Side::NONE, condition::PRINTABLE, 1, 78, 12_335_000_000, 30),
        ]
    );
    assert_eq!(
        rows(&feed.send(b'X', 5, &[&u64s(&[9])[..], &u32s(&[30])].concat())),
        [(Kind::REDUCE, Side::NONE, 0, 1, 9, NO_PRICE, 30)]
    );
    assert_eq!(rows(&feed.send(b'D', 5, &u64s(&[9]))), [(Kind::DELETE, Side::NONE, 0, 1, 9, NO_PRICE, 0)]);
    assert_eq!(
        rows(&feed.send(b'U', 5, &[&u64s(&[9, 10])[..], &u32s(&[50, 123_500])].concat())),
        [
            (Kind::DELETE, Side::NONE, REPLACED, 1, 9, NO_PRICE, 0),
            (Kind::ADD, Side::NONE, REPLACED, 1, 10, 12_350_000_000, 50),
        ]
    );
    assert_eq!(feed.normaliser.counters().unknown_orders, 5);
}

#[test]
fn an_order_of_another_instrument_is_unknown_to_this_one() {
    let mut feed = feed();
    feed.add(5, 9, b'S', 100, 123_400);
    feed.add(6, 10, b'S', 100, 123_400);
    feed.send(b'D', 6, &u64s(&[9]));
    assert_eq!(feed.normaliser.counters().unknown_orders, 1);
}

#[test]
fn a_trade_against_a_hidden_order_has_no_side_whatever_its_indicator() {
    let mut feed = feed();
    for indicator in [b"B", b"S"] {
        let body = [&u64s(&[0])[..], indicator, &u32s(&[30]), b"ABC     ", &u32s(&[123_450]), &u64s(&[78])].concat();
        assert_eq!(
            rows(&feed.send(b'P', 5, &body)),
            [(Kind::TRADE, Side::NONE, condition::PRINTABLE | condition::HIDDEN, 1, 78, 12_345_000_000, 30)]
        );
    }
}

#[test]
fn a_cross_keeps_64_bit_shares_and_the_raw_cross_type() {
    let mut feed = feed();
    let body = [&u64s(&[5_000_000_000])[..], b"ABC     ", &u32s(&[123_450]), &u64s(&[79]), b"O"].concat();
    let lines = feed.send(b'Q', 5, &body);
    let detail = condition::PRINTABLE | condition::CROSS;
    assert_eq!(rows(&lines[..1]), [(Kind::CROSS, Side::NONE, detail, 1, 79, 12_345_000_000, 5_000_000_000)]);
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[1].payload()[..2], *b"O\0");
}

#[test]
fn a_broken_trade_names_the_match() {
    let mut feed = feed();
    assert_eq!(rows(&feed.send(b'B', 5, &u64s(&[77]))), [(Kind::TRADE_BUST, Side::NONE, 0, 1, 77, NO_PRICE, 0)]);
}

#[test]
fn an_imbalance_of_an_unknown_cross_type_keeps_the_raw_byte() {
    let mut feed = feed();
    let body =
        [&u64s(&[1_000, 1 << 40])[..], b"S", b"ABC     ", &u32s(&[123_300, 123_400, 123_500]), b"?", b"L"].concat();
    let lines = feed.send(b'I', 5, &body);
    assert_eq!(rows(&lines[..1]), [(Kind::IMBALANCE, Side::ASK, b'?', 1, 1 << 40, 12_350_000_000, 1_000)]);
    assert_eq!(lines.len(), 2);
    let payload = lines[1].payload();
    let price = |at: usize| i64::from_le_bytes(payload[at..at + 8].try_into().expect("8 bytes"));
    assert_eq!((price(0), price(8), price(16)), (12_330_000_000, 12_340_000_000, NO_PRICE));
    assert_eq!(payload[24..], *b"\0\0\0\0\0\0\0\0?LS\0\0\0\0\0");
    assert_eq!(lines[1].detail, b'?');
}

#[test]
fn system_events_are_the_sessions_ends_and_the_channels_status() {
    let mut feed = feed();
    let word = |size: u64| StatusWord::from_u64(size);
    for (code, kind, detail) in [
        (b'O', Kind::SESSION_START, 0),
        (b'S', Kind::STATUS, action::PRE_OPEN),
        (b'Q', Kind::STATUS, action::TRADING),
        (b'M', Kind::STATUS, action::POST_CLOSE),
        (b'E', Kind::STATUS, action::CLOSE),
        (b'?', Kind::STATUS, action::NONE),
        (b'C', Kind::SESSION_END, 0),
    ] {
        let lines = feed.send(b'S', 0, &[code]);
        let [line] = lines.as_slice() else { panic!("{lines:?}") };
        assert_eq!((line.kind, line.detail, line.order_id.get()), (kind, detail, u64::from(code)));
        assert_eq!(line.instrument_id(), InstrumentId::CHANNEL);
        if code == b'Q' {
            assert_eq!((word(line.size.get()).is_trading, word(line.size.get()).is_quoting), (b'Y', b'Y'));
        }
    }
}

#[test]
fn a_trading_action_is_a_status_with_its_reason_kept() {
    let mut feed = feed();
    let lines = feed.send(b'H', 5, b"ABC     H T1  ");
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    assert_eq!((line.kind, line.detail, line.instrument_id()), (Kind::STATUS, action::HALT, InstrumentId(1)));
    assert_eq!(status::raw_parts(line.order_id.get()), (b'H', *b"T1  "));
    let word = StatusWord::from_u64(line.size.get());
    assert_eq!((word.reason, word.is_trading, word.is_quoting), (30, b'N', b'N'));
    assert_eq!((word.short_sale, word.scope, word.trading_event), (b'~', b'~', 0));
}

#[test]
fn the_other_status_messages_say_what_they_know() {
    let mut feed = feed();
    let one = |lines: Vec<Record>| {
        assert_eq!(lines.len(), 1, "{lines:?}");
        let word = StatusWord::from_u64(lines[0].size.get());
        assert_eq!(lines[0].kind, Kind::STATUS);
        (lines[0].instrument.get(), lines[0].detail, lines[0].order_id.get(), word, lines[0].side)
    };
    let (instrument, detail, raw, word, _) = one(feed.send(b'Y', 5, b"ABC     1"));
    assert_eq!((instrument, detail, raw, word.short_sale), (1, action::SHORT_SALE_RESTRICTION, u64::from(b'1'), b'1'));
    let (instrument, detail, raw, word, _) = one(feed.send(b'h', 5, b"ABC     QH"));
    assert_eq!((instrument, detail, raw, word.scope), (1, action::HALT, u64::from(b'H'), b'Q'));
    let (_, detail, raw, word, _) = one(feed.send(b'h', 5, b"ABC     XH"));
    assert_eq!((detail, raw, word.scope), (action::NONE, u64::from(b'H'), b'X'));
    let (instrument, detail, raw, word, _) = one(feed.send(b'W', 0, b"2"));
    assert_eq!((instrument, detail, raw, word.reason), (0, action::NONE, u64::from(b'2'), 121));
    let (instrument, detail, raw, _, side) = one(feed.send(b'N', 5, b"ABC     S"));
    assert_eq!((instrument, detail, raw, side), (1, action::NONE, u64::from(b'S'), Side::ASK));
}

#[test]
fn breaker_levels_are_three_statistics_with_eight_decimals() {
    let mut feed = feed();
    let time = MIDNIGHT + TIME;
    let lines = feed.send(b'V', 0, &u64s(&[372_012_345_678, 348_000_000_001, 1]));
    let row = |detail, price| (Kind::STATISTIC, Side::NONE, detail, 0, time, price, 0);
    assert_eq!(
        rows(&lines),
        [
            row(statistic::BREAKER_LEVEL_1, 3_720_123_456_780),
            row(statistic::BREAKER_LEVEL_2, 3_480_000_000_010),
            row(statistic::BREAKER_LEVEL_3, 10),
        ]
    );
    // A level that no record can hold is refused and counted; the event still has its end.
    let lines = feed.send(b'V', 0, &u64s(&[1, 2, u64::MAX]));
    assert_eq!(lines.len(), 2);
    assert_eq!(feed.normaliser.counters().refused_prices, 1);
    assert!(feed.send(b'V', 0, &u64s(&[u64::MAX; 3])).is_empty());
}

#[test]
fn an_ipo_price_has_its_release_time_in_utc() {
    let mut feed = feed();
    let body = |seconds, qualifier: &[u8]| [&b"ABC     "[..], &u32s(&[seconds]), qualifier, &u32s(&[400_000])].concat();
    let lines = feed.send(b'K', 5, &body(36_000, b"A"));
    let release = MIDNIGHT + 36_000_000_000_000;
    assert_eq!(rows(&lines[..1]), [(Kind::STATISTIC, Side::NONE, statistic::IPO_PRICE, 1, release, 40_000_000_000, 0)]);
    assert_eq!(lines[1].payload()[..8], *b"A\0\0\0\xA0\x8C\0\0");
    let lines = feed.send(b'K', 5, &body(0, b"C"));
    assert_eq!(lines[0].order_id.get(), 0);
    assert_eq!(lines[1].payload()[0], b'C');
}

#[test]
fn auction_collars_are_three_bands() {
    let mut feed = feed();
    let lines = feed.send(b'J', 5, &[&b"ABC     "[..], &u32s(&[100_000, 105_000, 95_000, 2])].concat());
    let row = |detail, price, size| (Kind::STATISTIC, Side::NONE, detail, 1, MIDNIGHT + TIME, price, size);
    assert_eq!(
        rows(&lines),
        [
            row(statistic::UPPER_BAND, 10_500_000_000, 0),
            row(statistic::LOWER_BAND, 9_500_000_000, 0),
            row(statistic::REFERENCE_BAND, 10_000_000_000, 2),
        ]
    );
}

/// The venue message inside a raw Statistic.
fn carried(lines: &[Record]) -> Vec<u8> {
    let bytes: Vec<u8> = lines[1..].iter().flat_map(|line| *line.payload()).collect();
    let len = lines[0].size.get() as usize;
    assert!(bytes[len..].iter().all(|byte| *byte == 0) && bytes.len() - len < CONTINUATION_LEN);
    bytes[..len].to_vec()
}

#[test]
fn a_direct_listing_is_carried_whole() {
    let mut feed = feed();
    let body = [&b"ABC     Y"[..], &u32s(&[80_000, 180_000, 100_000]), &u64s(&[TIME - 23]), &u32s(&[90_000, 110_000])]
        .concat();
    let lines = feed.send(b'O', 5, &body);
    let time = MIDNIGHT + TIME - 23;
    assert_eq!(rows(&lines[..1]), [(Kind::STATISTIC, Side::NONE, statistic::RAW, 1, time, 10_000_000_000, 48)]);
    assert_eq!(lines.len(), 3);
    let message = carried(&lines);
    assert_eq!((message[0], &message[11..]), (b'O', body.as_slice()));
}

#[test]
fn participant_positions_are_carried_only_when_all_is_wanted() {
    let mut feed = feed();
    let body = b"NITEABC     YNA";
    assert!(feed.send(b'L', 5, body).is_empty());
    assert!(feed.send(b'L', 6, body).is_empty());
    assert_eq!(feed.normaliser.counters().not_carried, 2);
    assert_eq!(feed.normaliser.instrument_of(6), None, "what is not carried names no instrument");
    let mut feed = feed_with(NormaliserOptions { full: true, ..NormaliserOptions::default() });
    feed.send(b'H', 5, b"ABC     T     ");
    let lines = feed.send(b'L', 5, body);
    assert_eq!(rows(&lines[..1]), [(Kind::STATISTIC, Side::NONE, statistic::RAW, 1, MIDNIGHT + TIME, NO_PRICE, 26)]);
    assert_eq!(carried(&lines)[11..], *body);
}

const DIRECTORY: &[u8] = b"ABC     QN\0\0\0\x64NCZ PNY1N\0\0\0\0N";

/// The text of a Definition and its Continuations.
fn text(lines: &[Record]) -> String {
    let bytes: Vec<u8> =
        lines.iter().take_while(|r| r.kind != Kind::ADD).skip(1).flat_map(|line| *line.payload()).collect();
    let len = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8(bytes[..len].to_vec()).expect("text")
}

#[test]
fn a_directory_message_is_a_definition_with_its_text() {
    let mut feed = feed_with(NormaliserOptions::default());
    let lines = feed.send(b'R', 5, DIRECTORY);
    assert_eq!(rows(&lines[..1]), [(Kind::DEFINITION, Side::NONE, 0, 1, 2 << 32 | 5, 100_000, 100)]);
    assert!(lines.len() <= protocol::record::MAX_LINES_PER_RECORD);
    let text = text(&lines);
    for line in
        ["symbol=ABC", "venue=XNAS", "type=equity", "currency=USD", "round_lot=100", "market_category=Q", "ipo=Y"]
    {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
    assert_eq!(feed.normaliser.counters().implied_instruments, 0);
}

#[test]
fn instruments_are_numbered_as_they_appear_and_a_locate_that_nobody_introduced_gets_a_definition() {
    let mut feed = feed_with(NormaliserOptions::default());
    feed.send(b'R', 500, DIRECTORY);
    let lines = feed.add(3, 9, b'B', 100, 123_400);
    assert_eq!(lines[0].kind, Kind::DEFINITION);
    assert_eq!((lines[0].order_id.get(), lines[0].size.get()), (2 << 32 | 3, 0));
    assert_eq!(text(&lines), "symbol=ABC\nvenue=XNAS\ntype=equity\ncurrency=USD\n");
    let add = lines.last().expect("a line");
    assert_eq!((add.kind, add.instrument_id()), (Kind::ADD, InstrumentId(2)));
    // A message without a symbol: the locate alone is known, and a later directory message completes it.
    let lines = feed.send(b'D', 4, &u64s(&[1]));
    assert_eq!(lines[0].instrument_id(), InstrumentId(3));
    assert!(!text(&lines[..lines.len() - 1]).contains("symbol"), "{lines:?}");
    let lines = feed.send(b'R', 4, DIRECTORY);
    assert_eq!(lines[0].instrument_id(), InstrumentId(3));
    assert_eq!(feed.normaliser.counters().implied_instruments, 2);
    assert_eq!(feed.normaliser.instrument_count(), 3);
}

#[test]
fn a_locate_reused_in_the_next_session_is_another_instrument() {
    let mut feed = feed_with(NormaliserOptions::default());
    feed.send(b'S', 0, b"O");
    assert_eq!(feed.send(b'R', 5, DIRECTORY)[0].instrument_id(), InstrumentId(1));
    // Sent again in the same session: the same instrument.
    assert_eq!(feed.send(b'R', 5, DIRECTORY)[0].instrument_id(), InstrumentId(1));
    feed.send(b'S', 0, b"C");
    feed.send(b'S', 0, b"O");
    let mut other = DIRECTORY.to_vec();
    other[..3].copy_from_slice(b"XYZ");
    assert_eq!(feed.send(b'R', 5, &other)[0].instrument_id(), InstrumentId(2));
    assert_eq!(feed.add(5, 9, b'B', 100, 123_400)[0].instrument_id(), InstrumentId(2));
    assert_eq!(feed.normaliser.counters().reassigned_locates, 0);
}

#[test]
fn a_locate_given_to_another_symbol_within_a_session_is_another_instrument_and_counted() {
    let mut feed = feed_with(NormaliserOptions::default());
    feed.send(b'R', 5, DIRECTORY);
    let mut other = DIRECTORY.to_vec();
    other[..3].copy_from_slice(b"XYZ");
    assert_eq!(feed.send(b'R', 5, &other)[0].instrument_id(), InstrumentId(2));
    assert_eq!(feed.normaliser.counters().reassigned_locates, 1);
}

#[test]
fn the_market_gives_venue_and_publisher() {
    for (market, venue, publisher) in [(Market::Nasdaq, "XNAS", 2), (Market::Bx, "XBOS", 3), (Market::Psx, "XPSX", 4)] {
        let mut feed = feed_with(NormaliserOptions { market, ..NormaliserOptions::default() });
        let lines = feed.send(b'R', 5, DIRECTORY);
        assert_eq!(lines[0].order_id.get() >> 32, publisher);
        assert!(text(&lines).contains(&format!("venue={venue}\n")));
        assert_eq!(Market::from_venue(&venue.to_lowercase()), Some(market));
    }
    assert_eq!(Market::from_venue("XNYS"), None);
}

#[test]
fn times_are_exact_above_32_bits_and_in_the_last_nanosecond_of_the_day() {
    let mut feed = feed();
    for time in [0, 1 << 32, (1 << 32) + 1, 86_399_999_999_999, (1 << 48) - 1] {
        feed.time = time;
        let lines = feed.send(b'S', 0, b"Q");
        assert_eq!(lines[0].event_time(), Nanos(MIDNIGHT + time));
    }
}

#[test]
fn a_capture_time_near_the_event_is_kept_and_one_far_away_takes_its_place() {
    let mut feed = feed();
    let event = MIDNIGHT + TIME;
    for offset in [0, 1, -1, 1_000_000_000, (1 << 31) - 1, 1 - (1 << 31)] {
        let capture = Nanos(event.wrapping_add_signed(offset));
        feed.capture = Some(capture);
        let line = feed.send(b'S', 0, b"Q")[0];
        assert_eq!((line.event_time(), line.capture_time()), (Nanos(event), capture), "offset {offset}");
        assert_eq!(line.flags, Flags::LAST);
    }
    for offset in [1 << 31, -(1 << 31), 3_600_000_000_000, -3_600_000_000_000] {
        let capture = Nanos(event.wrapping_add_signed(offset));
        feed.capture = Some(capture);
        let line = feed.send(b'S', 0, b"Q")[0];
        assert_eq!((line.event_time(), line.capture_time()), (capture, capture), "offset {offset}");
        assert_eq!(line.flags, Flags::LAST.with(Flags::OWN_TIME));
    }
}

#[test]
fn without_a_date_times_are_times_of_day_and_capture_times_are_not_compared() {
    let mut normaliser = Normaliser::new(NormaliserOptions::default(), SessionDate::NONE);
    let mut bytes = *b"S\0\0\0\0......Q";
    bytes[5..11].copy_from_slice(&TIME.to_be_bytes()[2..]);
    let message = feed::Message { ordinal: 1, offset: 0, capture: Some(Nanos(MIDNIGHT + TIME)), bytes: &bytes };
    let mut lines = Vec::new();
    normaliser.normalise(&message, &Orders::default(), &mut |record| lines.push(record)).expect("sound");
    assert_eq!((lines[0].event_time(), lines[0].flags), (Nanos(TIME), Flags::LAST));
}

#[test]
fn what_is_refused_gives_no_record_is_counted_by_type_and_the_next_message_is_sound() {
    let mut feed = feed();
    let before = feed.normaliser.counters().clone();
    assert_eq!(feed.raw(b"z123"), Err(Rejected::Unknown { message_type: b'z', len: 4 }));
    assert_eq!(feed.raw(b"z"), Err(Rejected::Unknown { message_type: b'z', len: 1 }));
    assert_eq!(feed.raw(&[0; 36]), Err(Rejected::Unknown { message_type: 0, len: 36 }));
    assert_eq!(feed.raw(&[b'A'; 37]), Err(Rejected::BadLength { message_type: b'A', expected: 36, actual: 37 }));
    assert_eq!(feed.raw(b""), Err(Rejected::Empty));
    assert_eq!(feed.add(5, 9, b'B', 100, 123_400).len(), 1);
    let counters = feed.normaliser.counters();
    assert_eq!(counters.unknown_types, 3);
    assert_eq!(counters.unknown_by_type().collect::<Vec<_>>(), [(0, 1), (b'z', 2)]);
    assert_eq!((counters.bad_lengths(), counters.bad_lengths_by_type[usize::from(b'A')]), (1, 1));
    assert_eq!(counters.empty_messages, 1);
    assert_eq!(counters.messages(), before.messages() + 6);
    assert_eq!(counters.lines, before.lines + 1);
}

#[test]
fn types_of_messages_have_views_of_their_own_bytes() {
    // A message struct is a view: what it says is what the bytes at its offsets say.
    let bytes: Vec<u8> = (0..50).collect();
    let view = Imbalance::ref_from_bytes(&bytes).expect("50 bytes");
    assert_eq!(view.as_bytes().as_ptr(), bytes.as_ptr());
    assert_eq!(view.paired_shares.get(), 0x0B0C_0D0E_0F10_1112);
}
