use std::collections::{BTreeMap, HashMap, HashSet};

use super::encode::{self, Head};
use super::*;

/// The messages typed from the specification: type, bytes, and fields as text. The decoder's tests read the same file.
fn golden() -> Vec<(u8, Vec<u8>, HashMap<String, String>)> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../publisher/tests/golden/itch50.txt");
    let text = std::fs::read_to_string(path).unwrap_or_else(|cause| panic!("{path}: {cause}"));
    let mut messages: Vec<(u8, Vec<u8>, HashMap<String, String>)> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        if let Some(title) = line.strip_prefix("message ") {
            messages.push((title.as_bytes()[0], Vec::new(), HashMap::new()));
            continue;
        }
        let (_, bytes, fields) = messages.last_mut().expect("a message line comes first");
        // Offset, bytes, name, value; the bytes are apart from the rest by two spaces.
        let columns: Vec<&str> = line.split("  ").filter(|column| !column.trim().is_empty()).collect();
        bytes.extend(columns[1].split_whitespace().map(|byte| u8::from_str_radix(byte, 16).expect("hexadecimal")));
        let (name, value) = line[line.find(columns[2].trim()).expect("found")..].split_once(' ').expect("a value");
        fields.insert(name.to_owned(), value.trim_start().to_owned());
    }
    messages
}

struct Fields<'a>(&'a HashMap<String, String>);

impl Fields<'_> {
    fn raw(&self, name: &str) -> &str {
        self.0.get(name).unwrap_or_else(|| panic!("no field {name}"))
    }
    fn number<T: TryFrom<u64>>(&self, name: &str) -> T {
        let value: u64 = self.raw(name).parse().unwrap_or_else(|cause| panic!("{name}: {cause}"));
        T::try_from(value).unwrap_or_else(|_| panic!("{name}: {value} is out of range"))
    }
    fn text<const N: usize>(&self, name: &str) -> [u8; N] {
        let quoted = self.raw(name);
        quoted.as_bytes()[1..quoted.len() - 1].try_into().unwrap_or_else(|_| panic!("{name}: {quoted} is not {N} long"))
    }
    fn code(&self, name: &str) -> u8 {
        let [code] = self.text::<1>(name);
        code
    }
}

fn encode_golden(message_type: u8, fields: &Fields<'_>) -> Vec<u8> {
    let f = fields;
    let mut buffer = Vec::new();
    let out = &mut buffer;
    let head = Head {
        locate: f.number("stock_locate"),
        tracking: f.number("tracking_number"),
        elapsed_ns: f.number("timestamp"),
    };
    let order = |f: &Fields<'_>| encode::NewOrder {
        reference: f.number("order_reference"),
        buy_sell: f.code("buy_sell"),
        shares: f.number("shares"),
        stock: f.text("stock"),
        price: f.number("price"),
    };
    match message_type {
        b'S' => encode::system_event(out, head, f.code("event_code")),
        b'R' => {
            let directory = encode::Directory {
                stock: f.text("stock"),
                market_category: f.code("market_category"),
                financial_status: f.code("financial_status"),
                round_lot_size: f.number("round_lot_size"),
                round_lots_only: f.code("round_lots_only"),
                issue_classification: f.code("issue_classification"),
                issue_subtype: f.text("issue_subtype"),
                authenticity: f.code("authenticity"),
                short_sale_threshold: f.code("short_sale_threshold"),
                ipo_flag: f.code("ipo_flag"),
                luld_tier: f.code("luld_tier"),
                etp_flag: f.code("etp_flag"),
                etp_leverage: f.number("etp_leverage"),
                inverse: f.code("inverse"),
            };
            encode::stock_directory(out, head, &directory);
        }
        b'H' => encode::trading_action(out, head, &f.text("stock"), f.code("trading_state"), &f.text("reason")),
        b'Y' => encode::reg_sho(out, head, &f.text("stock"), f.code("action")),
        b'L' => {
            let codes = [f.code("primary_market_maker"), f.code("market_maker_mode"), f.code("participant_state")];
            encode::participant_position(out, head, &f.text("mpid"), &f.text("stock"), codes);
        }
        b'V' => encode::breaker_levels(out, head, [f.number("level_1"), f.number("level_2"), f.number("level_3")]),
        b'W' => encode::breaker_status(out, head, f.code("breached_level")),
        b'K' => {
            let (time, qualifier) = (f.number("release_time"), f.code("release_qualifier"));
            encode::ipo_quoting_period(out, head, &f.text("stock"), time, qualifier, f.number("ipo_price"));
        }
        b'J' => {
            let prices = [f.number("reference_price"), f.number("upper_price"), f.number("lower_price")];
            encode::auction_collar(out, head, &f.text("stock"), prices, f.number("extension"));
        }
        b'h' => encode::operational_halt(out, head, &f.text("stock"), f.code("market_code"), f.code("action")),
        b'A' => encode::add_order(out, head, &order(f), None),
        b'F' => encode::add_order(out, head, &order(f), Some(&f.text("attribution"))),
        b'E' => {
            let (shares, match_number) = (f.number("executed_shares"), f.number("match_number"));
            encode::order_executed(out, head, f.number("order_reference"), shares, match_number);
        }
        b'C' => encode::order_executed_with_price(
            out,
            head,
            f.number("order_reference"),
            f.number("executed_shares"),
            f.number("match_number"),
            f.code("printable"),
            f.number("execution_price"),
        ),
        b'X' => encode::order_cancel(out, head, f.number("order_reference"), f.number("cancelled_shares")),
        b'D' => encode::order_delete(out, head, f.number("order_reference")),
        b'U' => {
            let (old, new) = (f.number("original_reference"), f.number("new_reference"));
            encode::order_replace(out, head, old, new, f.number("shares"), f.number("price"));
        }
        b'P' => encode::trade(out, head, &order(f), f.number("match_number")),
        b'Q' => encode::cross_trade(
            out,
            head,
            f.number("shares"),
            &f.text("stock"),
            f.number("cross_price"),
            f.number("match_number"),
            f.code("cross_type"),
        ),
        b'B' => encode::broken_trade(out, head, f.number("match_number")),
        b'I' => {
            let imbalance = encode::Imbalance {
                paired_shares: f.number("paired_shares"),
                imbalance_shares: f.number("imbalance_shares"),
                direction: f.code("imbalance_direction"),
                stock: f.text("stock"),
                far_price: f.number("far_price"),
                near_price: f.number("near_price"),
                reference_price: f.number("reference_price"),
                cross_type: f.code("cross_type"),
                price_variation: f.code("price_variation"),
            };
            encode::imbalance(out, head, &imbalance);
        }
        b'N' => encode::retail_interest(out, head, &f.text("stock"), f.code("interest")),
        b'O' => {
            let listing = encode::Listing {
                stock: f.text("stock"),
                open_eligibility: f.code("open_eligibility"),
                minimum_price: f.number("minimum_price"),
                maximum_price: f.number("maximum_price"),
                near_execution_price: f.number("near_execution_price"),
                near_execution_time: f.number("near_execution_time"),
                lower_collar: f.number("lower_collar"),
                upper_collar: f.number("upper_collar"),
            };
            encode::direct_listing(out, head, &listing);
        }
        other => panic!("no encoder for type {}", char::from(other)),
    }
    buffer
}

#[test]
fn the_encoder_writes_every_golden_message_byte_for_byte() {
    let golden = golden();
    assert_eq!(golden.len(), 23);
    for (message_type, bytes, fields) in golden {
        let got = encode_golden(message_type, &Fields(&fields));
        let name = char::from(message_type);
        assert_eq!(got[..2], (bytes.len() as u16).to_be_bytes(), "length prefix of {name}");
        assert_eq!(got[2..], bytes, "bytes of {name}");
    }
}

/// A reader of the generator's bytes by offsets alone, and a naive book: what a day must be for a receiver.
#[derive(Default)]
struct Checker {
    last_ns: u64,
    /// By reference: locate, side, price, shares.
    orders: HashMap<u64, (u16, u8, u32, u32)>,
    references: HashSet<u64>,
    matches: HashSet<u64>,
    /// By locate and side: prices, with how many orders rest there.
    levels: HashMap<(u16, u8), BTreeMap<u32, u32>>,
    states: HashMap<u16, u8>,
    crosses_per_type: HashMap<u8, u64>,
    imbalances: HashSet<(u16, u8)>,
    events: Vec<u8>,
    by_type: BTreeMap<u8, u64>,
    first_ns: Option<u64>,
    bursts: u64,
}

fn be(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

impl Checker {
    fn best(&self, locate: u16, side: u8) -> Option<u32> {
        let level = self.levels.get(&(locate, side))?;
        let best = if side == b'B' { level.last_key_value() } else { level.first_key_value() };
        best.map(|(price, _)| *price)
    }

    fn add(&mut self, locate: u16, reference: u64, side: u8, price: u32, shares: u32) {
        assert!(self.references.insert(reference), "reference {reference} used twice");
        assert!(shares > 0 && price > 0 && price.is_multiple_of(100), "order {reference}: {shares} at {price}");
        self.orders.insert(reference, (locate, side, price, shares));
        *self.levels.entry((locate, side)).or_default().entry(price).or_default() += 1;
        if let (Some(bid), Some(ask)) = (self.best(locate, b'B'), self.best(locate, b'S')) {
            assert!(bid < ask, "order {reference} crosses or locks: {bid} against {ask}");
        }
    }

    fn take(&mut self, locate: u16, reference: u64, shares: Option<u32>) -> (u8, u32) {
        let order = self.orders.get_mut(&reference).unwrap_or_else(|| panic!("order {reference} does not rest"));
        assert_eq!(order.0, locate, "order {reference} is of another security");
        let (side, price) = (order.1, order.2);
        let taken = shares.unwrap_or(order.3);
        assert!(taken > 0 && taken <= order.3, "{taken} taken off {} of order {reference}", order.3);
        order.3 -= taken;
        if order.3 == 0 {
            self.orders.remove(&reference);
            let level = self.levels.get_mut(&(locate, side)).expect("a level");
            let count = level.get_mut(&price).expect("a price");
            *count -= 1;
            if *count == 0 {
                level.remove(&price);
            }
        }
        (side, price)
    }

    fn execute(&mut self, locate: u16, m: &[u8]) -> (u8, u32) {
        let (reference, shares, match_number) = (be(&m[11..19]), be(&m[19..23]) as u32, be(&m[23..31]));
        assert!(self.matches.insert(match_number), "match {match_number} used twice");
        let (side, price) = self.orders.get(&reference).map(|order| (order.1, order.2)).expect("rests");
        assert_eq!(Some(price), self.best(locate, side), "order {reference} is not at the best price");
        self.take(locate, reference, Some(shares))
    }

    fn message(&mut self, m: &[u8]) {
        let locate = be(&m[1..3]) as u16;
        let now = be(&m[5..11]);
        assert!(now >= self.last_ns, "time goes back from {} to {now}", self.last_ns);
        self.bursts += u64::from(now - self.last_ns < 2_000);
        self.last_ns = now;
        self.first_ns.get_or_insert(now);
        *self.by_type.entry(m[0]).or_default() += 1;
        assert!(self.events.first() == Some(&b'O') || m[0] == b'S', "a message before the start of messages");
        assert!(self.events.last() != Some(&b'C'), "a message after the end of messages");
        let price = |range: std::ops::Range<usize>| be(&m[range]) as u32;
        match m[0] {
            b'S' => self.events.push(m[11]),
            b'R' => assert!(self.states.insert(locate, b'?').is_none(), "two directory messages of {locate}"),
            b'H' => {
                self.states.insert(locate, m[19]);
            }
            b'h' => {
                self.states.insert(locate, m[20]);
            }
            b'A' | b'F' => {
                assert!(m[19] == b'B' || m[19] == b'S');
                self.add(locate, be(&m[11..19]), m[19], price(32..36), be(&m[20..24]) as u32);
            }
            b'E' => {
                assert_eq!(self.states[&locate], b'T', "an execution in a stopped security");
                self.execute(locate, m);
            }
            b'C' => {
                let (side, resting) = self.execute(locate, m);
                let print = price(32..36);
                match (m[31], side) {
                    (b'Y', b'B') => assert!(print < resting),
                    (b'Y', _) => assert!(print > resting),
                    (b'N', _) => assert_eq!(print, resting),
                    (other, _) => panic!("printable {other}"),
                }
                assert!(m[31] == b'N' || self.states[&locate] == b'T');
            }
            b'X' => {
                let before = self.orders.get(&be(&m[11..19])).expect("rests").3;
                assert!((be(&m[19..23]) as u32) < before, "a cancel of the whole order");
                self.take(locate, be(&m[11..19]), Some(be(&m[19..23]) as u32));
            }
            b'D' => {
                self.take(locate, be(&m[11..19]), None);
            }
            b'U' => {
                let (side, _) = self.take(locate, be(&m[11..19]), None);
                self.add(locate, be(&m[19..27]), side, price(31..35), be(&m[27..31]) as u32);
            }
            b'P' => {
                assert!(self.matches.insert(be(&m[36..44])));
                assert_eq!(self.states[&locate], b'T', "a trade in a stopped security");
            }
            b'Q' => {
                assert!(self.matches.insert(be(&m[31..39])));
                assert!(self.imbalances.contains(&(locate, m[39])), "a cross without an imbalance before it");
                *self.crosses_per_type.entry(m[39]).or_default() += 1;
            }
            b'B' => assert!(self.matches.contains(&be(&m[11..19])), "what is broken never happened"),
            b'I' => {
                self.imbalances.insert((locate, m[48]));
            }
            _ => {}
        }
    }
}

fn check(options: GenerateOptions) -> (Checker, Vec<u8>) {
    let mut bytes = Vec::new();
    let summary = generate(&options, &mut bytes).unwrap_or_else(|error| panic!("{options:?}: {error}"));
    let mut checker = Checker::default();
    let (mut at, mut messages) = (0, 0);
    while at < bytes.len() {
        let len = be(&bytes[at..at + 2]) as usize;
        checker.message(&bytes[at + 2..at + 2 + len]);
        at += 2 + len;
        messages += 1;
    }
    assert_eq!((at, messages), (bytes.len(), options.messages), "{options:?}");
    assert_eq!((summary.messages, summary.bytes), (messages, bytes.len() as u64));
    for (message_type, count) in &checker.by_type {
        assert_eq!(summary.by_type[usize::from(*message_type)], *count);
    }
    (checker, bytes)
}

#[test]
fn a_day_conforms_and_holds_all_23_types_whatever_the_seed_and_size() {
    let mut types = b"SRHYLVWKJhAFECXDUPQBINO".to_vec();
    types.sort_unstable();
    for (seed, symbols, messages, span_ns, orders_per_side) in [
        (1, 5, 5_000, None, 256),
        (2, 5, 5_000, Some(10_000_000_000), 16),
        (3, 166, 5_000, None, 64),
        (4, 50, 60_000, Some(MIN_SPAN_NS), 256),
        (5, 10, 100_000, Some(MAX_SPAN_NS), 32),
        (u64::MAX, 1_000, 30_000, None, 128),
        (7, 20, 5_001, None, 4096),
    ] {
        let options = GenerateOptions { seed, symbols, messages, span_ns, orders_per_side, ..Default::default() };
        println!("{options:?}");
        let (checker, _) = check(options);
        assert_eq!(checker.by_type.keys().copied().collect::<Vec<u8>>(), types, "{options:?}");
        assert_eq!(checker.events, b"OSQMEC", "{options:?}");
        let symbols = u64::from(symbols);
        let crosses = [(b'O', symbols - 2), (b'C', symbols), (b'H', 4)];
        assert_eq!(checker.crosses_per_type, HashMap::from(crosses), "{options:?}");
        let span = checker.last_ns - checker.first_ns.expect("a message");
        match span_ns {
            Some(wanted) => assert!(span <= wanted && span > wanted / 10 * 9, "{options:?}: {span}"),
            None => assert!((60_000_000_000_000..62_000_000_000_000).contains(&span), "{options:?}: {span}"),
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_gives_others() {
    let options = GenerateOptions { seed: 11, symbols: 8, messages: 20_000, ..GenerateOptions::default() };
    let first = check(options).1;
    assert!(first == check(options).1);
    assert!(first != check(GenerateOptions { seed: 12, ..options }).1);
}

#[test]
fn a_few_securities_have_most_messages_and_messages_come_in_bursts() {
    let options = GenerateOptions { seed: 3, symbols: 100, messages: 100_000, ..GenerateOptions::default() };
    let (checker, bytes) = check(options);
    let mut by_locate = HashMap::<u64, u64>::new();
    let mut at = 0;
    while at < bytes.len() {
        *by_locate.entry(be(&bytes[at + 3..at + 5])).or_default() += 1;
        at += 2 + be(&bytes[at..at + 2]) as usize;
    }
    // 1/rank over 100 ranks: the first has 19 % of the draws, the first ten 56 %.
    let popular: u64 = (1..=10).map(|locate| by_locate[&locate]).sum();
    assert!(by_locate[&1] > 14_000 && popular > 50_000, "{} and {popular}", by_locate[&1]);
    // Executions that one order sets off come within 2 us of each other, whatever the day's length.
    assert!((2_000..10_000).contains(&checker.bursts), "{} messages within 2 us of the one before", checker.bursts);
}

#[test]
fn bursts_come_at_ten_to_eighty_times_the_mean_rate() {
    // At 100,000 messages a second a window of a millisecond has a hundred on average.
    let options = GenerateOptions {
        seed: 8,
        symbols: 100,
        messages: 1_000_000,
        span_ns: Some(10_000_000_000),
        ..GenerateOptions::default()
    };
    let calm = GenerateOptions { longest_burst: 8, ..options };
    let peaks = [options, calm].map(|options| {
        println!("{options:?}");
        let mut day = Generator::new(options).expect("options in range");
        let mut profile = profile::BurstProfile::default();
        while let Some(framed) = day.next_framed() {
            profile.take(be(&framed[7..13]));
        }
        profile.peaks()
    });
    let [second, millisecond, tenth, _] = peaks[0];
    assert!((1.2..10.0).contains(&second.ratio), "{second}");
    assert!((40.0..100.0).contains(&millisecond.ratio), "{millisecond}");
    assert!((40.0..120.0).contains(&tenth.ratio), "{tenth}");
    assert!(peaks[1][1].ratio < millisecond.ratio / 2.0, "{}", peaks[1][1]);
}

#[test]
fn most_orders_go_soon_and_some_are_replaced_over_and_over() {
    let options = GenerateOptions { seed: 6, symbols: 20, messages: 200_000, ..GenerateOptions::default() };
    let mut day = Generator::new(options).expect("options in range");
    // By reference: the message it came with, and how many replaces made it.
    let mut orders: HashMap<u64, (u64, u32)> = HashMap::new();
    let (mut lives, mut longest_chain, mut count) = (Vec::new(), 0, 0);
    while let Some(framed) = day.next_framed() {
        let m = &framed[2..];
        count += 1;
        match m[0] {
            b'A' | b'F' => {
                orders.insert(be(&m[11..19]), (count, 0));
            }
            b'D' => lives.extend(orders.remove(&be(&m[11..19])).map(|(born, _)| count - born)),
            b'U' => {
                let (born, chain) = orders.remove(&be(&m[11..19])).expect("rests");
                lives.push(count - born);
                orders.insert(be(&m[19..27]), (count, chain + 1));
                longest_chain = longest_chain.max(chain + 1);
            }
            _ => {}
        }
    }
    lives.sort_unstable();
    let (median, late) = (lives[lives.len() / 2], lives[lives.len() / 100 * 95]);
    assert!(median < 500 && late > 20 * median, "median {median}, 95 of 100 {late} messages");
    assert!(longest_chain >= 10, "{longest_chain} replaces in a row");
}

#[test]
fn the_feed_gives_what_the_file_holds() {
    let options = GenerateOptions { seed: 5, symbols: 6, messages: 6_000, ..GenerateOptions::default() };
    let bytes = check(options).1;
    let mut file = publisher::itch::BinaryFile::from_reader(bytes.as_slice(), "generated".as_ref(), Default::default());
    let mut day = Generator::new(options).expect("options in range");
    loop {
        let (a, b) = (file.next().expect("sound"), day.next().expect("sound"));
        assert_eq!(a, b);
        if a.is_none() {
            break;
        }
    }
    assert_eq!(file.delivered(), 6_000);
}

#[test]
fn options_out_of_range_are_refused_with_the_range() {
    let good = GenerateOptions::default();
    for (options, word) in [
        (GenerateOptions { symbols: 4, ..good }, "5 to 17576"),
        (GenerateOptions { symbols: 20_000, ..good }, "5 to 17576"),
        (GenerateOptions { messages: 4_999, ..good }, "at least 5000"),
        (GenerateOptions { messages: 29_999, symbols: 1_000, ..good }, "at least 30000"),
        (GenerateOptions { span_ns: Some(0), ..good }, "of 0 ns"),
        (GenerateOptions { orders_per_side: 4, ..good }, "16 to 4096"),
        (GenerateOptions { longest_burst: 4, ..good }, "8 to 65536"),
    ] {
        let error = Generator::new(options).expect_err("refused").to_string();
        assert!(error.contains(word), "{error}");
    }
}

#[test]
fn a_destination_that_fails_is_named() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::Error::from(io::ErrorKind::StorageFull))
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let options = GenerateOptions { symbols: 5, messages: 5_000, ..GenerateOptions::default() };
    let error = generate(&options, &mut Full).expect_err("nothing is taken").to_string();
    assert!(error.contains("free space"), "{error}");
}
