//! The text of a Definition: `key=value` lines.

use protocol::definition::MAX_PAYLOAD_LEN;

/// Text under construction. Values are graphic ASCII; any other byte, and the backslash, is written as `\xNN`, so that a
/// hostile symbol can end no line.
#[derive(Debug, Default)]
pub struct Text {
    bytes: Vec<u8>,
}

impl Text {
    /// A line, unless the value is empty; one that no longer fits is left out.
    #[must_use]
    pub fn line(mut self, key: &str, value: &[u8]) -> Text {
        if value.is_empty() {
            return self;
        }
        let before = self.bytes.len();
        self.bytes.extend_from_slice(key.as_bytes());
        self.bytes.push(b'=');
        for &byte in value {
            if byte.is_ascii_graphic() && byte != b'\\' {
                self.bytes.push(byte);
            } else {
                self.bytes.extend_from_slice(format!("\\x{byte:02X}").as_bytes());
            }
        }
        self.bytes.push(b'\n');
        if self.bytes.len() > MAX_PAYLOAD_LEN {
            self.bytes.truncate(before);
        }
        self
    }

    /// The text.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_symbol_ends_no_line_and_a_long_one_is_left_out() {
        let text = Text::default().line("symbol", b"A\nb=c\\").line("venue", b"").line("type", b"equity");
        assert_eq!(text.bytes(), b"symbol=A\\x0Ab=c\\x5C\ntype=equity\n");
        let long = vec![b'x'; MAX_PAYLOAD_LEN];
        assert_eq!(Text::default().line("symbol", &long).line("type", b"x").bytes(), b"type=x\n");
    }
}
