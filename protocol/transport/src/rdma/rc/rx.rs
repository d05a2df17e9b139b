//! The hot half of the subscriber's side.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use protocol::line::Stamp;
use protocol::record::{ChannelId, Lane};
use protocol::run::{Carrier, LanePath, RunSink};
use protocol::time::Nanos;

use super::rx_keeper::{RcRxKeeper, RcRxOptions};
use crate::lane::LaneRx;
use crate::rdma::error::RdmaError;
use crate::rdma::mailbox::{Inbox, Outbox};
use crate::ring::RingReader;

/// The receiving half of an RC lane: reads the ring that the publisher's card writes. Polling looks at memory, and makes no
/// call at all; without a connection it looks at nothing.
///
/// A new connection has a ring of its own. What the old one still holds is handed up first; what neither holds is missing,
/// and the arbiter names it.
pub struct RcRx {
    reader: Option<Box<RingReader>>,
    /// Of a newer connection, until the old ring is read to its end.
    next: Option<Box<RingReader>>,
    inbox: Inbox<Box<RingReader>>,
    /// Readers of rings that are done with: unmapping them is for the keeper.
    outbox: Outbox<Box<RingReader>>,
    /// The stamp after the last line handed up, for the keeper's next offer; 0 before the first.
    place: Arc<AtomicU64>,
}

impl RcRx {
    /// A lane without a connection yet, and its keeper.
    ///
    /// # Errors
    /// [`RdmaError`]: no such device or address, a port that is down, a size that is no power of two of at least 2.
    pub fn open(options: &RcRxOptions, channel: ChannelId, lane: Lane) -> Result<(RcRx, RcRxKeeper), RdmaError> {
        RcRxKeeper::open(options, channel, LanePath::new(lane, Carrier::RdmaRc))
    }

    pub(super) fn new(inbox: Inbox<Box<RingReader>>, outbox: Outbox<Box<RingReader>>, place: Arc<AtomicU64>) -> RcRx {
        RcRx { reader: None, next: None, inbox, outbox, place }
    }

    /// The reader of the present ring: where it stands, what it has counted.
    pub fn reader(&self) -> Option<&RingReader> {
        self.reader.as_deref()
    }

    #[cold]
    fn take_mail(&mut self) {
        while let Some(reader) = self.inbox.take() {
            let before = self.next.replace(reader);
            self.give_back(before);
        }
    }

    fn give_back(&mut self, reader: Option<Box<RingReader>>) {
        if let Some(reader) = reader
            && let Err(reader) = self.outbox.post(reader)
        {
            // There is room for every ring that is out, so the keeper is gone.
            drop(reader);
        }
    }

    #[cold]
    fn advance(&mut self) {
        let before = std::mem::replace(&mut self.reader, self.next.take());
        self.give_back(before);
    }
}

impl LaneRx for RcRx {
    #[inline]
    fn poll<S: RunSink>(&mut self, now: Nanos, limit: usize, sink: &mut S) -> usize {
        if self.inbox.has_mail() {
            self.take_mail();
        }
        let Some(reader) = &mut self.reader else {
            if self.next.is_some() {
                self.advance();
            }
            return 0;
        };
        let count = reader.poll(now, limit, sink);
        if count > 0 {
            // Relaxed: a hint for the next offer; a line that comes twice is dropped.
            self.place.store(reader.cursor().0, Ordering::Relaxed);
        }
        // Not while lines of the old ring are known of: those not there within the hedge time are named, and what stands
        // behind them is still to come.
        if count == 0 && self.next.is_some() && limit > 0 && reader.cursor() >= reader.head() {
            self.advance();
        }
        count
    }

    #[inline]
    fn known_head(&self) -> Option<Stamp> {
        self.reader.as_ref().and_then(|reader| reader.known_head())
    }
}

#[cfg(test)]
mod tests {
    use protocol::line::{Epoch, Line, SequenceNumber};
    use protocol::record::{InstrumentId, Kind, Record};
    use protocol::run::{LossCause, Position, Run};

    use super::*;
    use crate::memory::{Mapping, PAGE_LEN, RingMemory};
    use crate::rdma::mailbox::mailbox;
    use crate::ring::{RingShape, StartAt};

    const LINES: usize = 16;
    const HEDGE_NS: u64 = 1_000;

    fn stamp(sequence: u64) -> Stamp {
        Stamp::new(Epoch(1), SequenceNumber(sequence))
    }

    /// A ring as a card writes it: any place at any time, and the latest line once in a while.
    struct Card(Arc<Mapping>);

    impl Card {
        fn write(&self, at: usize, line: &Line) {
            for (i, word) in line.words().into_iter().enumerate() {
                self.0.word_mut(at + i * 8).store(word, Ordering::Release);
            }
        }

        fn line(&self, sequence: u64) {
            let line = Line::seal(Record::new(Kind::ADD, InstrumentId(1)), stamp(sequence));
            self.write(128 + sequence as usize % LINES * 64, &line);
        }

        fn beat(&self, next: u64) {
            self.write(0, &Line::seal(Record::new(Kind::HEARTBEAT, InstrumentId::CHANNEL), stamp(next)));
        }
    }

    fn ring(first: u64) -> (Card, Box<RingReader>) {
        let (mapping, _) = Mapping::anonymous(PAGE_LEN).expect("a page");
        let mapping = Arc::new(mapping);
        let memory = RingMemory::new(Arc::clone(&mapping), 0, LINES);
        let shape = RingShape::new(Epoch(1), SequenceNumber(first), LINES).expect("a shape");
        let path = LanePath::new(Lane::new(1), Carrier::RdmaRc);
        let reader = RingReader::new(memory, shape, path, StartAt::At(SequenceNumber(first)), HEDGE_NS);
        (Card(mapping), Box::new(reader.watching_its_place()))
    }

    /// First and count of what was handed up, or named as lost.
    #[derive(Default)]
    struct Told(Vec<(&'static str, u64, u64)>);

    impl RunSink for Told {
        fn on_run(&mut self, run: Run<'_>) {
            self.0.push(("lines", run.first.sequence().0, run.lines.len() as u64));
        }
        fn on_position(&mut self, _: Position) {}
        fn on_loss(&mut self, _: LanePath, first: Stamp, count: u64, _: LossCause) {
            self.0.push(("loss", first.sequence().0, count));
        }
    }

    #[test]
    fn a_ring_with_a_hole_is_read_to_its_end_before_the_next_one() {
        let (to_hot, inbox) = mailbox(4);
        let (outbox, mut from_hot) = mailbox(4);
        let mut rx = RcRx::new(inbox, outbox, Arc::default());
        let (old, reader) = ring(1);
        to_hot.post(reader).unwrap_or_else(|_| panic!("there is room"));
        let mut told = Told::default();
        // Line 3 was never written, because the queue was full too long; 4 and 5 were.
        [1, 2, 4, 5].into_iter().for_each(|sequence| old.line(sequence));
        old.beat(6);
        rx.poll(Nanos(1), 100, &mut told);
        rx.poll(Nanos(2), 100, &mut told);
        let (new, reader) = ring(6);
        to_hot.post(reader).unwrap_or_else(|_| panic!("there is room"));
        new.line(6);
        // While the hole may still fill, nothing behind it is given up.
        for now in 3..20 {
            rx.poll(Nanos(now), 100, &mut told);
        }
        assert_eq!(told.0, [("lines", 1, 2)]);
        assert!(from_hot.take().is_none());
        for now in 0..5 {
            rx.poll(Nanos(2 * HEDGE_NS + now), 100, &mut told);
        }
        assert_eq!(told.0, [("lines", 1, 2), ("loss", 3, 1), ("lines", 4, 2), ("lines", 6, 1)]);
        assert!(from_hot.take().is_some(), "the old ring's reader is handed back");
    }
}
