//! The text of a Definition: UTF-8 `key=value` lines, carried 40 bytes at a time in Continuations.
//!
//! A publisher cuts a text into payloads with [`continuations`]; a subscriber puts records and their Continuations
//! together again with an [`Assembler`] and reads the text with [`Definition::parse`]. Unknown keys are kept.

use crate::line::SequenceNumber;
use crate::record::{CONTINUATION_LEN, Flags, Kind, MAX_LINES_PER_RECORD, Record};

/// The most bytes of payload behind a record: 63 Continuations of 40 bytes.
pub const MAX_PAYLOAD_LEN: usize = (MAX_LINES_PER_RECORD - 1) * CONTINUATION_LEN;

/// The lines of `head` followed by `payload` in Continuations: CONTINUES on all but the last, LAST (if `head` has it) on
/// the last only. Hands each line to `out`.
///
/// # Panics
/// If the payload is longer than [`MAX_PAYLOAD_LEN`].
pub fn continuations(head: &Record, payload: &[u8], out: &mut impl FnMut(Record)) {
    let count = payload.len().div_ceil(CONTINUATION_LEN);
    assert!(count < MAX_LINES_PER_RECORD, "{} bytes do not fit one record", payload.len());
    let last = Flags(head.flags.0 & Flags::LAST.0);
    if count == 0 {
        return out(*head);
    }
    let mut first = *head;
    first.flags = head.flags.without(Flags::LAST).with(Flags::CONTINUES);
    out(first);
    for (i, part) in payload.chunks(CONTINUATION_LEN).enumerate() {
        let mut line = Record::continuation(head, part);
        line.flags = if i + 1 == count { last } else { Flags::CONTINUES };
        out(line);
    }
}

/// Puts records and their Continuations together again.
pub struct Assembler {
    head: Record,
    payload: Vec<u8>,
    next: SequenceNumber,
    open: bool,
    broken: u64,
}

impl Default for Assembler {
    fn default() -> Assembler {
        Assembler {
            head: Record::new(Kind(0), crate::record::InstrumentId::CHANNEL),
            payload: Vec::with_capacity(MAX_PAYLOAD_LEN),
            next: SequenceNumber(0),
            open: false,
            broken: 0,
        }
    }
}

impl Assembler {
    /// Takes a line that has CONTINUES or is a Continuation; other lines need not come here. Returns the whole record
    /// when the line completes one: the head, and the payload of its Continuations.
    pub fn push(&mut self, sequence: SequenceNumber, record: &Record) -> Option<(&Record, &[u8])> {
        let fits = self.open && sequence == self.next && record.instrument == self.head.instrument;
        if record.kind != Kind::CONTINUATION {
            self.broken += u64::from(std::mem::replace(&mut self.open, true));
            self.head = *record;
            self.payload.clear();
            self.next = sequence.plus(1);
            return None;
        }
        if !fits {
            self.broken += u64::from(std::mem::replace(&mut self.open, false));
            return None;
        }
        self.payload.extend_from_slice(record.payload());
        self.next = sequence.plus(1);
        if record.flags.has(Flags::CONTINUES) && self.payload.len() < MAX_PAYLOAD_LEN {
            return None;
        }
        self.open = false;
        Some((&self.head, &self.payload))
    }

    /// Records whose Continuations did not all come.
    pub fn broken(&self) -> u64 {
        self.broken
    }
}

/// What a publisher said of an instrument.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Definition {
    /// Venue id or locate, and the publisher in the upper half.
    pub venue_id: u64,
    /// Smallest price step, in price units, or [`crate::record::UNDEFINED_PRICE`].
    pub tick: i64,
    /// Round lot, 0 if not known.
    pub round_lot: u64,
    entries: Vec<(String, String)>,
}

impl Definition {
    /// From a Definition record and its payload. Bytes that are not UTF-8 are replaced; a line without `=` is kept as a
    /// key with an empty value.
    pub fn parse(head: &Record, payload: &[u8]) -> Definition {
        let text = String::from_utf8_lossy(payload);
        let entries = text
            .trim_end_matches('\0')
            .lines()
            .filter(|line| !line.is_empty())
            .map(|line| {
                let (key, value) = line.split_once('=').unwrap_or((line, ""));
                (key.to_string(), value.to_string())
            })
            .collect();
        Definition { venue_id: head.order_id.get(), tick: head.price.get(), round_lot: head.size.get(), entries }
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.entries.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// The venue's symbol, empty if the publisher does not know it.
    pub fn symbol(&self) -> &str {
        self.get("symbol").unwrap_or("")
    }

    /// Prices are in units of 10 to this power.
    pub fn price_exponent(&self) -> i32 {
        self.get("price_exponent").and_then(|v| v.parse().ok()).unwrap_or(-9)
    }

    /// All keys and values, in the order they came.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries.iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::InstrumentId;

    fn lines(payload: &[u8]) -> Vec<Record> {
        let mut head = Record::new(Kind::DEFINITION, InstrumentId(5));
        head.flags = Flags::LAST;
        head.order_id.set(77);
        let mut lines = Vec::new();
        continuations(&head, payload, &mut |line| lines.push(line));
        lines
    }

    #[test]
    fn a_text_comes_back_whole_whatever_its_length() {
        for len in [0usize, 1, 39, 40, 41, 80, 1000, MAX_PAYLOAD_LEN] {
            let text: Vec<u8> = (0..len).map(|i| b'a' + (i % 26) as u8).collect();
            let lines = lines(&text);
            assert_eq!(lines.len(), 1 + len.div_ceil(40));
            let (last, before) = lines.split_last().expect("at least the head");
            assert!(last.is_last() && !last.flags.has(Flags::CONTINUES));
            assert!(before.iter().all(|line| line.flags.has(Flags::CONTINUES) && !line.is_last()));
            let mut assembler = Assembler::default();
            let mut whole = None;
            for (i, line) in lines.iter().enumerate() {
                if let Some((head, payload)) = assembler.push(SequenceNumber(10 + i as u64), line) {
                    whole = Some((*head, payload.to_vec()));
                }
            }
            if len > 0 {
                let (head, payload) = whole.expect("complete");
                assert_eq!(head.order_id.get(), 77);
                assert_eq!(&payload[..len], &text[..]);
                assert!(payload[len..].iter().all(|b| *b == 0));
            }
        }
    }

    #[test]
    fn a_record_with_a_line_missing_is_dropped_and_counted() {
        let lines = lines(&[b'x'; 120]);
        let mut assembler = Assembler::default();
        assert!(assembler.push(SequenceNumber(1), &lines[0]).is_none());
        assert!(assembler.push(SequenceNumber(2), &lines[1]).is_none());
        assert!(assembler.push(SequenceNumber(4), &lines[3]).is_none());
        assert_eq!(assembler.broken(), 1);
        // A reader who starts at a Continuation skips it.
        assert!(assembler.push(SequenceNumber(5), &lines[3]).is_none());
    }

    #[test]
    fn keys_are_read_and_unknown_ones_kept() {
        let head = Record::new(Kind::DEFINITION, InstrumentId(1));
        let definition = Definition::parse(&head, b"symbol=BRK.B\nprice_exponent=-4\nodd=x=y\n\0\0\0");
        assert_eq!((definition.symbol(), definition.price_exponent()), ("BRK.B", -4));
        assert_eq!(definition.get("odd"), Some("x=y"));
        assert_eq!(definition.entries().count(), 3);
    }
}
