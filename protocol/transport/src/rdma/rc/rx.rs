//! The hot half of the subscriber's side.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use protocol::line::Stamp;
use protocol::record::{ChannelId, Lane};
use protocol::run::RunSink;
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
        RcRxKeeper::open(options, channel, lane)
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
        if count == 0 && self.next.is_some() && limit > 0 {
            self.advance();
        }
        count
    }

    #[inline]
    fn known_head(&self) -> Option<Stamp> {
        self.reader.as_ref().and_then(|reader| reader.known_head())
    }
}
