//! A book's levels on their way out, as one event; and the times that its lines share.

use protocol::definition::continuations;
use protocol::record::{Flags, InstrumentId, Kind, Record, Side};

/// `detail` of a Clear or an EventEnd that the stream did not hold and its snapshot needed.
pub const IMPLIED: u8 = 1;

/// A snapshot is let out after so many lines, well within [`protocol::book::OPEN_EVENT_BOUND`].
const SNAPSHOT_LINES: u32 = 4096;

/// The times and the sequence that the lines of one message share.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Origin {
    /// The venue's time, or the receiver's where `flags` has OWN_TIME; ns since 1970.
    pub ts_event: u64,
    /// When it was received, ns since 1970.
    pub ts_capture: u64,
    /// OWN_TIME, BAD_TS.
    pub flags: Flags,
    /// The venue's sequence, its low half.
    pub venue_seq: u32,
}

impl Origin {
    /// The venue's time where it gave one that is within 2^31 ns of the receiver's, else the receiver's; `last` where there
    /// is neither.
    pub fn new(event: Option<u64>, capture: Option<u64>, last: u64, sequence: u64) -> Origin {
        let (ts_event, ts_capture, flags) = match (event, capture) {
            (None, None) => (last, last, Flags::OWN_TIME.with(Flags::BAD_TS)),
            (None, Some(capture)) => (capture, capture, Flags::OWN_TIME),
            (Some(event), None) => (event, event, Flags::NONE),
            (Some(event), Some(capture)) if capture.abs_diff(event) < 1 << 31 => (event, capture, Flags::NONE),
            (Some(_), Some(capture)) => (capture, capture, Flags::OWN_TIME),
        };
        Origin { ts_event, ts_capture, flags, venue_seq: sequence as u32 }
    }

    /// Stamps a record.
    pub fn stamp(&self, record: &mut Record) {
        record.ts_event.set(self.ts_event);
        record.ts_capture.set(self.ts_capture as u32);
        record.venue_seq.set(self.venue_seq);
        record.flags = record.flags.with(self.flags);
    }

    /// Lets a record go that is an event of its own, with its payload; returns how many lines that were.
    pub fn send(&self, mut record: Record, payload: &[u8], out: &mut impl FnMut(Record)) -> u64 {
        self.stamp(&mut record);
        record.flags = record.flags.with(Flags::LAST);
        let mut lines = 0;
        continuations(&record, payload, &mut |line| {
            lines += 1;
            out(line);
        });
        lines
    }
}

/// Lines of one event of one book: the newest is held back, so that the last can be marked as such.
pub struct LevelEvent<'a, F> {
    out: &'a mut F,
    origin: Origin,
    instrument: InstrumentId,
    /// SNAPSHOT, TOB.
    flags: Flags,
    held: Option<Record>,
    open_lines: u32,
    lines: u64,
}

impl<'a, F: FnMut(Record)> LevelEvent<'a, F> {
    /// An event of `instrument`; each of its lines has `flags`.
    pub fn new(instrument: InstrumentId, origin: Origin, flags: Flags, out: &'a mut F) -> LevelEvent<'a, F> {
        LevelEvent { out, origin, instrument, flags, held: None, open_lines: 0, lines: 0 }
    }

    /// The book is empty from here on; `detail` is [`IMPLIED`] or 0.
    pub fn clear(&mut self, detail: u8) {
        let mut record = Record::new(Kind::CLEAR, self.instrument);
        record.flags = self.flags.without(Flags::TOB);
        record.detail = detail;
        self.push(record);
    }

    /// A level, absolute; size 0 deletes it.
    pub fn level(&mut self, side: Side, price: i64, size: u64) {
        // What is in the book already shows in several events, the book Suspect until the last of them.
        if self.flags.has(Flags::SNAPSHOT) && self.open_lines >= SNAPSHOT_LINES {
            let mut end = Record::new(Kind::EVENT_END, self.instrument);
            (end.flags, end.detail) = (Flags::LAST, IMPLIED);
            self.push(end);
            self.open_lines = 0;
        }
        let mut record = Record::new(Kind::LEVEL_SET, self.instrument);
        record.flags = self.flags.with(Flags::LEVEL);
        record.side = side;
        record.price.set(price);
        record.size.set(size);
        self.push(record);
    }

    fn push(&mut self, mut record: Record) {
        self.origin.stamp(&mut record);
        self.open_lines += 1;
        if let Some(before) = self.held.replace(record) {
            self.lines += 1;
            (self.out)(before);
        }
    }

    /// Ends the event with the line that was last; returns how many lines it had.
    pub fn finish(mut self) -> u64 {
        if let Some(mut last) = self.held.take() {
            last.flags = last.flags.with(Flags::LAST);
            self.lines += 1;
            (self.out)(last);
        }
        self.lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_is_missing_or_far_is_the_receivers_own() {
        let of = |event, capture| {
            let origin = Origin::new(event, capture, 7, 1 << 32 | 5);
            (origin.ts_event, origin.ts_capture, origin.flags, origin.venue_seq)
        };
        let near = (1u64 << 31) - 1;
        assert_eq!(of(None, Some(9)), (9, 9, Flags::OWN_TIME, 5));
        assert_eq!(of(None, None), (7, 7, Flags::OWN_TIME.with(Flags::BAD_TS), 5));
        assert_eq!(of(Some(9), None), (9, 9, Flags::NONE, 5));
        assert_eq!(of(Some(near), Some(0)), (near, 0, Flags::NONE, 5));
        assert_eq!(of(Some(1 << 31), Some(0)), (0, 0, Flags::OWN_TIME, 5));
    }

    #[test]
    fn only_the_last_line_of_an_event_ends_it_and_a_long_snapshot_is_several() {
        let mut lines = Vec::new();
        let mut out = |record: Record| lines.push(record);
        let mut event = LevelEvent::new(InstrumentId(1), Origin::default(), Flags::SNAPSHOT, &mut out);
        event.clear(0);
        for price in 1..=10_000 {
            event.level(Side::BID, price, 1);
        }
        assert_eq!(event.finish(), 10_003);
        let ends: Vec<usize> = (0..lines.len()).filter(|at| lines[*at].is_last()).collect();
        assert_eq!(ends, [4096, 8193, 10_002]);
        assert!(lines[4096].kind == Kind::EVENT_END && !lines[4096].flags.has(Flags::SNAPSHOT));
        assert!(lines[10_002].flags.has(Flags::SNAPSHOT));
        assert_eq!(LevelEvent::new(InstrumentId(1), Origin::default(), Flags::NONE, &mut |_| ()).finish(), 0);
    }
}
