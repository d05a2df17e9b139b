//! The text of a Definition: `key=value` lines.
//!
//! Keys that every venue's definitions have come first, then what ITCH alone says, under the specification's names. A
//! code that the venue leaves blank has no line. Values are graphic ASCII; any other byte, and the backslash, is written
//! as `\xNN`, so that a hostile symbol can end no line. The text has no zero byte, which is what pads its last line.

use super::messages::{StockDirectory, Symbol};

/// More than the longest text there can be.
const TEXT_CAPACITY: usize = 640;

/// Text under construction, without allocation.
pub(super) struct Text {
    bytes: [u8; TEXT_CAPACITY],
    len: usize,
}

impl Text {
    /// Of a security seen in the stock directory.
    pub(super) fn of_directory(venue: &str, directory: &StockDirectory) -> Text {
        let mut text = Text::of_symbol(venue, &directory.stock);
        text.number("round_lot", directory.round_lot_size.get());
        text.code("market_category", &[directory.market_category]);
        text.code("financial_status", &[directory.financial_status]);
        text.code("round_lots_only", &[directory.round_lots_only]);
        text.code("issue_classification", &[directory.issue_classification]);
        text.code("issue_subtype", &directory.issue_subtype.0);
        text.code("authenticity", &[directory.authenticity]);
        text.code("short_sale_threshold", &[directory.short_sale_threshold]);
        text.code("ipo", &[directory.ipo_flag]);
        text.code("luld_tier", &[directory.luld_tier]);
        text.code("etp", &[directory.etp_flag]);
        text.number("etp_leverage", directory.etp_leverage.get());
        text.code("inverse", &[directory.inverse]);
        text
    }

    /// Of a security that another message named first: its symbol, if that message had one, and what holds for all.
    pub(super) fn of_symbol(venue: &str, symbol: &Symbol) -> Text {
        let mut text = Text { bytes: [0; TEXT_CAPACITY], len: 0 };
        text.code("symbol", &symbol.0);
        text.code("venue", venue.as_bytes());
        text.code("type", b"equity");
        text.code("currency", b"USD");
        text
    }

    /// The text.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// A line, unless the value is blank.
    fn code(&mut self, key: &str, value: &[u8]) {
        let Some(last) = value.iter().rposition(|byte| *byte != b' ') else { return };
        let value = &value[..=last];
        self.push_all(key.as_bytes());
        self.push(b'=');
        for &byte in value {
            if byte.is_ascii_graphic() && byte != b'\\' {
                self.push(byte);
            } else {
                let digit = |nibble: u8| b"0123456789ABCDEF"[usize::from(nibble)];
                self.push_all(&[b'\\', b'x', digit(byte >> 4), digit(byte & 15)]);
            }
        }
        self.push(b'\n');
    }

    fn number(&mut self, key: &str, value: u32) {
        let mut digits = [0u8; 10];
        let mut at = digits.len();
        let mut rest = value;
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.code(key, &digits[at..]);
    }

    fn push_all(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.push(*byte));
    }

    /// Full is not reached with a venue name of the length that the options allow; what does not fit is cut.
    fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.len) {
            *place = byte;
            self.len += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromBytes;

    use super::*;

    #[test]
    fn a_directory_message_is_told_line_by_line() {
        let bytes = b"R\0\x0d\0\0\0\0\0\0\0\0AAPL    QN\0\0\0\x64NCZ PN 1N\0\0\0\0N";
        let directory = StockDirectory::ref_from_bytes(bytes).expect("39 bytes");
        let text = Text::of_directory("XNAS", directory);
        assert_eq!(
            std::str::from_utf8(text.bytes()).expect("text"),
            "symbol=AAPL\nvenue=XNAS\ntype=equity\ncurrency=USD\nround_lot=100\nmarket_category=Q\nfinancial_status=N\n\
             round_lots_only=N\nissue_classification=C\nissue_subtype=Z\nauthenticity=P\nshort_sale_threshold=N\n\
             luld_tier=1\netp=N\netp_leverage=0\ninverse=N\n"
        );
    }

    #[test]
    fn hostile_bytes_end_no_line_and_fit() {
        assert_eq!(
            Text::of_symbol("XNAS", &super::super::messages::Text(*b"A\nb=c\\  ")).bytes(),
            b"symbol=A\\x0Ab=c\\x5C\nvenue=XNAS\ntype=equity\ncurrency=USD\n"
        );
        assert_eq!(
            Text::of_symbol("XNAS", &super::super::messages::Text(*b"        ")).bytes(),
            b"venue=XNAS\ntype=equity\ncurrency=USD\n"
        );
        let bytes = [0xFEu8; 39];
        let directory = StockDirectory::ref_from_bytes(&bytes).expect("39 bytes");
        let text = Text::of_directory(&"V".repeat(16), directory);
        assert!(text.bytes().ends_with(b"inverse=\\xFE\n"), "cut at {}", text.len);
        assert!(text.bytes().starts_with(b"symbol=\\xFE\\xFE\\xFE\\xFE\\xFE\\xFE\\xFE\\xFE\nvenue="));
        assert!(text.bytes().is_ascii());
    }
}
