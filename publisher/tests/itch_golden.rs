//! The decoder against messages typed byte by byte from the specification, one of each type.
//!
//! The generator's encoder, which shares no code with the decoder, is held to the same file.

#![forbid(unsafe_code)]

use publisher::itch::messages::{Header, Price4, Price8, Text, U48};
use publisher::itch::{Message, decode};
use zerocopy::big_endian::{U16, U32, U64};

/// One field of the file: offset, bytes, name, value as it is written there.
struct Field {
    offset: usize,
    bytes: Vec<u8>,
    name: String,
    value: String,
}

fn golden() -> Vec<(String, Vec<Field>)> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/itch50.txt");
    let text = std::fs::read_to_string(path).unwrap_or_else(|cause| panic!("{path}: {cause}"));
    let mut messages: Vec<(String, Vec<Field>)> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        if let Some(title) = line.strip_prefix("message ") {
            messages.push((title.to_owned(), Vec::new()));
            continue;
        }
        let mut rest = line.trim_start();
        let mut word = || {
            let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
            rest = after.trim_start();
            word.to_owned()
        };
        let offset = word().parse().unwrap_or_else(|cause| panic!("{line}: {cause}"));
        let mut bytes = Vec::new();
        let name = loop {
            let next = word();
            // Names are in lower case and bytes in upper; no name is two characters long.
            match u8::from_str_radix(&next, 16) {
                Ok(byte) if next.len() == 2 => bytes.push(byte),
                _ => break next,
            }
        };
        let field = Field { offset, bytes, name, value: rest.to_owned() };
        messages.last_mut().expect("a message line comes first").1.push(field);
    }
    messages
}

/// As the file writes values.
trait Written {
    fn written(&self) -> String;
}

impl Written for u8 {
    fn written(&self) -> String {
        format!("\"{}\"", char::from(*self))
    }
}
impl<const N: usize> Written for Text<N> {
    fn written(&self) -> String {
        format!("\"{}\"", std::str::from_utf8(&self.0).expect("the file's texts are ASCII"))
    }
}
impl Written for U16 {
    fn written(&self) -> String {
        self.get().to_string()
    }
}
impl Written for U32 {
    fn written(&self) -> String {
        self.get().to_string()
    }
}
impl Written for U64 {
    fn written(&self) -> String {
        self.get().to_string()
    }
}
impl Written for U48 {
    fn written(&self) -> String {
        self.get().to_string()
    }
}
impl Written for Price4 {
    fn written(&self) -> String {
        self.raw().to_string()
    }
}
impl Written for Price8 {
    fn written(&self) -> String {
        self.raw().to_string()
    }
}

/// The fields of a decoded message, in order, as the file writes them.
fn fields(message: &Message<'_>) -> Vec<(&'static str, String)> {
    macro_rules! fields {
        ($message:expr, $($name:ident),*) => {{
            let Header { message_type, stock_locate, tracking_number, timestamp } = &$message.header;
            vec![
                ("type", message_type.written()),
                ("stock_locate", stock_locate.written()),
                ("tracking_number", tracking_number.written()),
                ("timestamp", timestamp.written()),
                $((stringify!($name), $message.$name.written()),)*
            ]
        }};
    }
    match message {
        Message::SystemEvent(m) => fields!(m, event_code),
        Message::StockDirectory(m) => fields!(
            m,
            stock,
            market_category,
            financial_status,
            round_lot_size,
            round_lots_only,
            issue_classification,
            issue_subtype,
            authenticity,
            short_sale_threshold,
            ipo_flag,
            luld_tier,
            etp_flag,
            etp_leverage,
            inverse
        ),
        Message::TradingAction(m) => fields!(m, stock, trading_state, reserved, reason),
        Message::RegSho(m) => fields!(m, stock, action),
        Message::ParticipantPosition(m) => {
            fields!(m, mpid, stock, primary_market_maker, market_maker_mode, participant_state)
        }
        Message::BreakerLevels(m) => fields!(m, level_1, level_2, level_3),
        Message::BreakerStatus(m) => fields!(m, breached_level),
        Message::IpoQuotingPeriod(m) => fields!(m, stock, release_time, release_qualifier, ipo_price),
        Message::AuctionCollar(m) => fields!(m, stock, reference_price, upper_price, lower_price, extension),
        Message::OperationalHalt(m) => fields!(m, stock, market_code, action),
        Message::AddOrder(m) => fields!(m, order_reference, buy_sell, shares, stock, price),
        Message::AddOrderAttributed(m) => fields!(m, order_reference, buy_sell, shares, stock, price, attribution),
        Message::OrderExecuted(m) => fields!(m, order_reference, executed_shares, match_number),
        Message::OrderExecutedWithPrice(m) => {
            fields!(m, order_reference, executed_shares, match_number, printable, execution_price)
        }
        Message::OrderCancel(m) => fields!(m, order_reference, cancelled_shares),
        Message::OrderDelete(m) => fields!(m, order_reference),
        Message::OrderReplace(m) => fields!(m, original_reference, new_reference, shares, price),
        Message::Trade(m) => fields!(m, order_reference, buy_sell, shares, stock, price, match_number),
        Message::CrossTrade(m) => fields!(m, shares, stock, cross_price, match_number, cross_type),
        Message::BrokenTrade(m) => fields!(m, match_number),
        Message::Imbalance(m) => fields!(
            m,
            paired_shares,
            imbalance_shares,
            imbalance_direction,
            stock,
            far_price,
            near_price,
            reference_price,
            cross_type,
            price_variation
        ),
        Message::RetailInterest(m) => fields!(m, stock, interest),
        Message::DirectListing(m) => fields!(
            m,
            stock,
            open_eligibility,
            minimum_price,
            maximum_price,
            near_execution_price,
            near_execution_time,
            lower_collar,
            upper_collar
        ),
    }
}

#[test]
fn every_field_of_every_golden_message_decodes_to_its_value() {
    let golden = golden();
    let mut types: Vec<u8> = golden.iter().map(|(title, _)| title.as_bytes()[0]).collect();
    assert_eq!(types, *b"SRHYLVWKJhAFECXDUPQBINO", "one of each type, in the specification's order");
    types.sort_unstable();
    let mut known = Message::TYPES.to_vec();
    known.sort_unstable();
    assert_eq!(types, known);
    for (title, wanted) in golden {
        let bytes: Vec<u8> = wanted.iter().flat_map(|field| field.bytes.clone()).collect();
        let message = decode(&bytes).unwrap_or_else(|rejected| panic!("{title}: {rejected}"));
        let got = fields(&message);
        assert_eq!(got.len(), wanted.len(), "{title}: number of fields");
        let mut offset = 0;
        for ((name, value), field) in got.iter().zip(&wanted) {
            assert_eq!(offset, field.offset, "{title}: the file's own offset of {}", field.name);
            assert_eq!((*name, value), (field.name.as_str(), &field.value), "{title}");
            offset += field.bytes.len();
        }
        assert_eq!(offset, bytes.len());
    }
}

#[test]
fn a_golden_message_one_byte_shorter_or_longer_is_refused() {
    for (title, fields) in golden() {
        let mut bytes: Vec<u8> = fields.iter().flat_map(|field| field.bytes.clone()).collect();
        assert!(decode(&bytes[..bytes.len() - 1]).is_err(), "{title}");
        bytes.push(0);
        assert!(decode(&bytes).is_err(), "{title}");
    }
}
