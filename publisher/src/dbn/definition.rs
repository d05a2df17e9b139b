//! The text of a Definition, and a DBN definition out of it again.
//!
//! Each field that differs from the layout's own default is a `key=value` line. Keys that every venue's definitions have
//! come first (`symbol`, `venue`, `type`, `currency`, `expiry`, `strike`, `group`); the rest have the names of the layout.
//! Prices are exact decimals. Values are printable ASCII; any other byte, and the backslash, is written as `\xNN`.

use std::fmt::{Display, Write};
use std::str::FromStr;

use dbn::{InstrumentDefMsg, UNDEF_PRICE};
use protocol::definition::{Definition, MAX_PAYLOAD_LEN};
use protocol::price::Decimal;

/// What a field is turned into, or made of.
trait Visitor {
    fn price(&mut self, key: &str, value: &mut i64, default: i64);
    fn number<T: Display + FromStr + PartialEq + Copy>(&mut self, key: &str, value: &mut T, default: T);
    fn letter(&mut self, key: &str, value: &mut std::ffi::c_char, default: std::ffi::c_char);
    fn text(&mut self, key: &str, value: &mut [std::ffi::c_char]);
}

/// Every field that a Definition's head does not hold, in the order in which they are told.
fn visit(visitor: &mut impl Visitor, definition: &mut InstrumentDefMsg) {
    let default = InstrumentDefMsg::default();
    macro_rules! each {
        ($($kind:ident $key:literal $field:ident;)*) => {
            $(each!(@ $kind $key $field);)*
        };
        (@ text $key:literal $field:ident) => { visitor.text($key, &mut definition.$field) };
        (@ $kind:ident $key:literal $field:ident) => {
            visitor.$kind($key, &mut definition.$field, default.$field)
        };
    }
    each! {
        text "symbol" raw_symbol;
        letter "instrument_class" instrument_class;
        text "currency" currency;
        text "group" group;
        text "exchange" exchange;
        text "asset" asset;
        number "expiry" expiration;
        number "activation" activation;
        price "strike" strike_price;
        text "strike_price_currency" strike_price_currency;
        text "underlying" underlying;
        text "security_type" security_type;
        text "cfi" cfi;
        text "settl_currency" settl_currency;
        text "secsubtype" secsubtype;
        text "unit_of_measure" unit_of_measure;
        price "unit_of_measure_qty" unit_of_measure_qty;
        number "multiplier" contract_multiplier;
        number "multiplier_unit" contract_multiplier_unit;
        price "display_factor" display_factor;
        price "high_limit_price" high_limit_price;
        price "low_limit_price" low_limit_price;
        price "max_price_variation" max_price_variation;
        price "min_price_increment_amount" min_price_increment_amount;
        price "price_ratio" price_ratio;
        number "raw_instrument_id" raw_instrument_id;
        number "inst_attrib_value" inst_attrib_value;
        number "underlying_id" underlying_id;
        number "depth_implied" market_depth_implied;
        number "depth" market_depth;
        number "market_segment_id" market_segment_id;
        number "max_trade_vol" max_trade_vol;
        number "min_lot_size" min_lot_size;
        number "min_lot_size_block" min_lot_size_block;
        number "min_trade_vol" min_trade_vol;
        number "decay_quantity" decay_quantity;
        number "original_contract_size" original_contract_size;
        number "appl_id" appl_id;
        number "maturity_year" maturity_year;
        number "maturity_month" maturity_month;
        number "maturity_day" maturity_day;
        number "maturity_week" maturity_week;
        number "decay_start_date" decay_start_date;
        number "channel_id" channel_id;
        letter "match_algorithm" match_algorithm;
        letter "security_update_action" security_update_action;
        letter "user_defined_instrument" user_defined_instrument;
        number "main_fraction" main_fraction;
        number "sub_fraction" sub_fraction;
        number "price_display_format" price_display_format;
        number "underlying_product" underlying_product;
        number "flow_schedule_type" flow_schedule_type;
        number "tick_rule" tick_rule;
        number "leg_count" leg_count;
        number "leg_index" leg_index;
        number "leg_instrument_id" leg_instrument_id;
        text "leg_symbol" leg_raw_symbol;
        letter "leg_instrument_class" leg_instrument_class;
        letter "leg_side" leg_side;
        price "leg_price" leg_price;
        price "leg_delta" leg_delta;
        number "leg_ratio_price_numerator" leg_ratio_price_numerator;
        number "leg_ratio_price_denominator" leg_ratio_price_denominator;
        number "leg_ratio_qty_numerator" leg_ratio_qty_numerator;
        number "leg_ratio_qty_denominator" leg_ratio_qty_denominator;
        number "leg_underlying_id" leg_underlying_id;
    }
}

/// What the letter of an instrument class means, in the words of Definitions.
fn type_of(class: u8) -> Option<&'static str> {
    Some(match class {
        b'K' => "equity",
        b'F' => "future",
        b'C' => "call",
        b'P' => "put",
        b'B' => "bond",
        b'S' => "future_spread",
        b'T' => "option_spread",
        b'M' => "mixed_spread",
        b'X' => "fx_spot",
        b'Y' => "commodity_spot",
        b'I' => "index",
        _ => return None,
    })
}

/// Writes lines.
pub(super) struct Text {
    text: String,
}

impl Text {
    /// Of an instrument of which nothing but its name is known.
    pub(super) fn of_symbol(symbol: &str, venue: &str, stream: &str) -> Text {
        let mut text = Text { text: String::with_capacity(256) };
        text.line("symbol", symbol.as_bytes());
        text.common(venue, stream);
        text
    }

    /// Of a definition.
    pub(super) fn of_definition(definition: &InstrumentDefMsg, venue: &str, stream: &str) -> Text {
        let mut text = Text { text: String::with_capacity(MAX_PAYLOAD_LEN) };
        if let Some(name) = type_of(definition.instrument_class as u8) {
            text.line("type", name.as_bytes());
        }
        text.common(venue, stream);
        visit(&mut text, &mut definition.clone());
        text
    }

    /// The text: cut between lines where it is longer than a record may be, which no definition of sane text reaches.
    pub(super) fn bytes(&self) -> &[u8] {
        let bytes = self.text.as_bytes();
        if bytes.len() <= MAX_PAYLOAD_LEN {
            return bytes;
        }
        let cut = bytes[..MAX_PAYLOAD_LEN].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        &bytes[..cut]
    }

    fn common(&mut self, venue: &str, stream: &str) {
        self.line("venue", venue.as_bytes());
        self.line("stream", stream.as_bytes());
    }

    /// A line, unless the value is empty.
    fn line(&mut self, key: &str, value: &[u8]) {
        if value.is_empty() {
            return;
        }
        self.text.push_str(key);
        self.text.push('=');
        for &byte in value {
            if (byte.is_ascii_graphic() || byte == b' ') && byte != b'\\' {
                self.text.push(char::from(byte));
            } else {
                // Writing to a string cannot fail.
                let _ = write!(self.text, "\\x{byte:02X}");
            }
        }
        self.text.push('\n');
    }
}

impl Visitor for Text {
    fn price(&mut self, key: &str, value: &mut i64, default: i64) {
        if *value != default {
            self.line(key, Decimal::nano(*value).to_string().as_bytes());
        }
    }

    fn number<T: Display + FromStr + PartialEq + Copy>(&mut self, key: &str, value: &mut T, default: T) {
        if *value != default {
            self.line(key, value.to_string().as_bytes());
        }
    }

    fn letter(&mut self, key: &str, value: &mut std::ffi::c_char, default: std::ffi::c_char) {
        if *value != default {
            self.line(key, &[*value as u8]);
        }
    }

    fn text(&mut self, key: &str, value: &mut [std::ffi::c_char]) {
        let bytes: Vec<u8> = value.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect();
        self.line(key, &bytes);
    }
}

/// Reads lines.
struct Reading<'a> {
    definition: &'a Definition,
}

impl Visitor for Reading<'_> {
    fn price(&mut self, key: &str, value: &mut i64, _default: i64) {
        if let Some(read) = self.definition.get(key).and_then(nano_of) {
            *value = read;
        }
    }

    fn number<T: Display + FromStr + PartialEq + Copy>(&mut self, key: &str, value: &mut T, _default: T) {
        if let Some(read) = self.definition.get(key).and_then(|text| text.parse().ok()) {
            *value = read;
        }
    }

    fn letter(&mut self, key: &str, value: &mut std::ffi::c_char, _default: std::ffi::c_char) {
        if let Some(byte) = self.definition.get(key).and_then(|text| unescaped(text).first().copied()) {
            *value = byte as std::ffi::c_char;
        }
    }

    fn text(&mut self, key: &str, value: &mut [std::ffi::c_char]) {
        let bytes = self.definition.get(key).map(unescaped).unwrap_or_default();
        // The last place is a zero, always.
        let room = value.len() - 1;
        for (place, byte) in value[..room].iter_mut().zip(bytes) {
            *place = byte as std::ffi::c_char;
        }
    }
}

/// The fields of a DBN definition that a Definition's text gives; the head's are the caller's.
pub(super) fn read(definition: &Definition) -> InstrumentDefMsg {
    let mut message = InstrumentDefMsg::default();
    visit(&mut Reading { definition }, &mut message);
    message
}

/// Text with `\xNN` turned into bytes again.
fn unescaped(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = text.get(at + 2..at + 4).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (bytes[at], bytes.get(at + 1), hex) {
            (b'\\', Some(b'x'), Some(byte)) => {
                out.push(byte);
                at += 4;
            }
            (byte, ..) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    out
}

/// Decimal text in 10^-9, exactly; none if it is no number, or has more digits than that.
fn nano_of(text: &str) -> Option<i64> {
    if text == "-" {
        return Some(UNDEF_PRICE);
    }
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() || fraction.len() > 9 || !digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return None;
    }
    let whole: i128 = whole.parse().ok()?;
    let fraction: i128 = format!("{fraction:0<9}").parse().ok()?;
    i64::try_from(sign * (whole * 1_000_000_000 + fraction)).ok()
}

#[cfg(test)]
mod tests {
    use protocol::record::{InstrumentId, Kind, Record};

    use super::*;

    fn through(message: &InstrumentDefMsg) -> InstrumentDefMsg {
        let text = Text::of_definition(message, "XCME", "orders");
        let head = Record::new(Kind::DEFINITION, InstrumentId(1));
        read(&Definition::parse(&head, text.bytes()))
    }

    #[test]
    fn a_definition_comes_back_field_by_field() {
        let mut message = InstrumentDefMsg {
            strike_price: -1_234_567_891,
            expiration: 1_710_768_600_000_000_000,
            instrument_class: b'F' as _,
            contract_multiplier: -5,
            display_factor: i64::MIN,
            leg_side: b'B' as _,
            ..InstrumentDefMsg::default()
        };
        for (place, byte) in message.raw_symbol.iter_mut().zip(*b"ESH4 \\\n=x") {
            *place = byte as _;
        }
        for (place, byte) in message.cfi.iter_mut().zip(*b"FFIXSX") {
            *place = byte as _;
        }
        assert_eq!(through(&message), message);
        let text = Text::of_definition(&message, "XCME", "orders");
        let text = std::str::from_utf8(text.bytes()).expect("text");
        assert!(text.starts_with("type=future\nvenue=XCME\nstream=orders\nsymbol=ESH4 \\x5C\\x0A=x\n"), "{text}");
        assert!(text.contains("\nstrike=-1.234567891\n"), "{text}");
    }

    #[test]
    fn hostile_text_fits_and_ends_no_line() {
        let mut message = InstrumentDefMsg::default();
        for field in [&mut message.raw_symbol[..], &mut message.group, &mut message.leg_raw_symbol, &mut message.asset]
        {
            field.fill(-2);
        }
        let text = Text::of_definition(&message, &"V".repeat(40), "orders");
        assert!(text.bytes().len() <= MAX_PAYLOAD_LEN);
        assert!(text.bytes().is_ascii() && text.bytes().ends_with(b"\n"));
    }

    #[test]
    fn decimals_are_read_exactly_or_not_at_all() {
        for value in [0, 1, -1, 1_500_000_000, i64::MIN, i64::MAX - 1, -999_999_999] {
            assert_eq!(nano_of(&Decimal::nano(value).to_string()), Some(value));
        }
        for text in ["", ".", "1.0000000001", "1e5", "--1", "99999999999999999999", "1.2.3"] {
            assert_eq!(nano_of(text), None, "{text}");
        }
    }
}
