//! The lines of one message, on their way out.

use protocol::record::{CONTINUATION_LEN, Flags, InstrumentId, Kind, Record};
use protocol::time::Nanos;

use super::messages::Header;
use crate::date::SessionDate;
use crate::feed;

/// One message's lines on their way out: fills in what they share, and holds the newest back, so that the last can be
/// marked as such.
pub(super) struct Event<'a, F> {
    out: &'a mut F,
    venue_time: Nanos,
    pub(super) ts_event: Nanos,
    ts_capture: u32,
    own_time: Flags,
    venue_seq: u32,
    held: Option<Record>,
    lines: u64,
}

impl<'a, F: FnMut(Record)> Event<'a, F> {
    #[inline]
    pub(super) fn new(date: SessionDate, message: &feed::Message<'_>, header: &Header, out: &'a mut F) -> Event<'a, F> {
        let venue_time = date.at(header.timestamp.get());
        // Without a date the venue's time is a time of day: no capture time can be near it, and none is compared.
        let capture = message.capture.filter(|_| !date.is_time_of_day());
        let (ts_event, ts_capture, own_time) = match capture {
            None => (venue_time, venue_time, Flags::NONE),
            Some(capture) if capture.since(venue_time).unsigned_abs() < 1 << 31 => (venue_time, capture, Flags::NONE),
            Some(capture) => (capture, capture, Flags::OWN_TIME),
        };
        Event {
            out,
            venue_time,
            ts_event,
            ts_capture: ts_capture.low(),
            own_time,
            venue_seq: message.ordinal as u32,
            held: None,
            lines: 0,
        }
    }

    /// A Statistic that refers to the message's own time.
    pub(super) fn statistic(&self, instrument: InstrumentId, detail: u8) -> Record {
        let mut record = Record::new(Kind::STATISTIC, instrument);
        record.detail = detail;
        record.order_id.set(self.venue_time.0);
        record.size.set(0);
        record
    }

    /// A record of one line.
    #[inline]
    pub(super) fn push(&mut self, mut record: Record) {
        record.flags = record.flags.with(self.own_time);
        record.ts_event.set(self.ts_event.0);
        record.ts_capture.set(self.ts_capture);
        record.venue_seq.set(self.venue_seq);
        self.push_line(record);
    }

    /// A record with `payload` in as many Continuations as it takes.
    pub(super) fn push_with(&mut self, mut record: Record, payload: &[u8]) {
        record.venue_seq.set(self.venue_seq);
        let head = record;
        record.flags = record.flags.with(Flags::CONTINUES);
        self.push(record);
        let mut pieces = payload.chunks(CONTINUATION_LEN).peekable();
        while let Some(piece) = pieces.next() {
            let mut line = Record::continuation(&head, piece);
            if pieces.peek().is_some() {
                line.flags = line.flags.with(Flags::CONTINUES);
            }
            self.push_line(line);
        }
    }

    #[inline]
    fn push_line(&mut self, line: Record) {
        self.lines += 1;
        if let Some(before) = self.held.replace(line) {
            (self.out)(before);
        }
    }

    /// Lets the last line go, marked; how many lines there were.
    #[inline]
    pub(super) fn finish(mut self) -> u64 {
        if let Some(mut last) = self.held.take() {
            last.flags = last.flags.with(Flags::LAST);
            (self.out)(last);
        }
        self.lines
    }
}
