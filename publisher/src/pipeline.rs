//! From a feed to lines, without I/O of its own: source, normaliser, sequencer, the publisher's books and digests.
//!
//! A publisher drives it against the clock, a backtest as fast as it goes, the workbench to look inside. Messages are
//! taken one by one: [`Pipeline::peek`] shows when the next is due, [`Pipeline::step`] turns it into lines. A publisher takes
//! the step in two halves, so that the lines are on their way before its own books are brought up to date.

use std::collections::VecDeque;

use protocol::channel::{ChannelConfig, ChannelWriter};
use protocol::line::{Epoch, Line};
use protocol::record::{InstrumentId, Record};
use protocol::sequencer::Exhausted;
use protocol::time::Nanos;

use crate::feed::{FeedError, FeedSource, Message, Notice};
use crate::venue::Venue;

/// The most records one venue message becomes without an allocation.
const SCRATCH_RECORDS: usize = 128;
/// The longest venue message that is held back without an allocation.
const SCRATCH_BYTES: usize = 64;

/// Messages whose orders are brought into the cache together.
const WARM_MESSAGES: usize = 8;

/// Why a pipeline cannot go on.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PipelineError {
    /// The feed.
    #[error(transparent)]
    Feed(#[from] FeedError),
    /// The sequence numbers of the epoch are used up.
    #[error(transparent)]
    Exhausted(#[from] Exhausted),
}

/// The next message, as [`Pipeline::peek`] shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Due {
    /// Its place in the venue's own count, the first message's being 0: messages that are missing are counted too, so that
    /// whoever sees the records can tell it from their venue sequence.
    pub index: u64,
    /// Its own time. A message without a readable time has that of the one before it.
    pub time: Nanos,
}

/// See the [module](self).
pub struct Pipeline<S, V> {
    source: S,
    venue: V,
    channel: ChannelWriter,
    records: Vec<Record>,
    /// The message that was peeked at: the source's own buffer is lent only for a moment.
    held: Vec<u8>,
    held_ordinal: u64,
    held_offset: u64,
    held_capture: Option<Nanos>,
    /// A message is held.
    holds: bool,
    /// What the source said in front of it; to be published first.
    notices: VecDeque<Notice>,
    due: Option<Due>,
    /// The first message's number.
    first_ordinal: Option<u64>,
    taken: u64,
    steps: u64,
    /// Messages still to be taken of those whose orders were brought into the cache.
    warm: usize,
    /// The message published last is not in the books yet.
    unsettled: bool,
    last_time: Nanos,
}

impl<S: FeedSource, V: Venue> Pipeline<S, V> {
    /// A pipeline that has taken nothing. Allocates and touches all memory now.
    pub fn new(source: S, venue: V, epoch: Epoch, config: ChannelConfig) -> Pipeline<S, V> {
        Pipeline {
            source,
            venue,
            channel: ChannelWriter::new(epoch, config),
            records: Vec::with_capacity(SCRATCH_RECORDS),
            held: Vec::with_capacity(SCRATCH_BYTES),
            held_ordinal: 0,
            held_offset: 0,
            held_capture: None,
            holds: false,
            notices: VecDeque::with_capacity(8),
            due: None,
            first_ordinal: None,
            taken: 0,
            steps: 0,
            warm: 0,
            unsettled: false,
            last_time: Nanos::ZERO,
        }
    }

    /// The next message's place and time; `None` at the end of the feed.
    ///
    /// # Errors
    /// [`FeedError`], after everything before the fault was taken.
    #[inline]
    pub fn peek(&mut self) -> Result<Option<Due>, FeedError> {
        if self.due.is_none() {
            self.look_ahead()?;
        }
        Ok(self.due)
    }

    #[inline]
    fn look_ahead(&mut self) -> Result<(), FeedError> {
        if !self.holds {
            let outcome = match self.source.next() {
                Ok(Some(message)) => {
                    self.held.clear();
                    self.held.extend_from_slice(message.bytes);
                    self.held_ordinal = message.ordinal;
                    self.held_offset = message.offset;
                    self.held_capture = message.capture;
                    self.holds = true;
                    Ok(())
                }
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            while let Some(notice) = self.source.poll_notice() {
                self.notices.push_back(notice);
            }
            if self.notices.is_empty() {
                outcome?;
            }
        }
        if let Some(notice) = self.notices.front() {
            let (ordinal, capture) = match notice {
                Notice::Gap(missing) => (missing.first + missing.count - 1, missing.capture),
                Notice::Session { capture } => (1, *capture),
            };
            self.last_time = capture.unwrap_or(self.last_time);
            self.due = Some(self.due_at(ordinal));
        } else if self.holds {
            let message = Message {
                ordinal: self.held_ordinal,
                offset: self.held_offset,
                capture: self.held_capture,
                bytes: &self.held,
            };
            self.last_time = self.venue.time(&message).unwrap_or(self.last_time);
            self.due = Some(self.due_at(self.held_ordinal));
        }
        Ok(())
    }

    fn due_at(&mut self, ordinal: u64) -> Due {
        let first = *self.first_ordinal.get_or_insert(ordinal);
        Due { index: ordinal.saturating_sub(first), time: self.last_time }
    }

    /// Takes the next message and hands its lines, sealed at `now`, to `out`; then settles it. Returns false at the end of
    /// the feed.
    ///
    /// # Errors
    /// [`PipelineError`].
    #[inline]
    pub fn step(&mut self, now: Nanos, out: &mut impl FnMut(&Line)) -> Result<bool, PipelineError> {
        let more = self.publish(now, out)?;
        self.settle(now, out)?;
        Ok(more)
    }

    /// Takes the next message and hands its lines, sealed at `now`, to `out`. The books do not know of it yet: the caller can
    /// flush first, and then calls [`Pipeline::settle`]. (If it does not, the next call does.) Returns false at the end of
    /// the feed.
    ///
    /// # Errors
    /// [`PipelineError`].
    #[inline]
    pub fn publish(&mut self, now: Nanos, out: &mut impl FnMut(&Line)) -> Result<bool, PipelineError> {
        if self.peek()?.is_none() {
            return Ok(false);
        }
        self.settle(now, out)?;
        self.due = None;
        self.steps += 1;
        self.unsettled = true;
        self.records.clear();
        if let Some(notice) = self.notices.pop_front() {
            let records = &mut self.records;
            self.venue.notice(&notice, &mut |record| records.push(record));
            for record in &self.records {
                self.channel.push(record, now, out)?;
            }
            return Ok(true);
        }
        self.holds = false;
        self.taken += 1;
        let message = Message {
            ordinal: self.held_ordinal,
            offset: self.held_offset,
            capture: self.held_capture,
            bytes: &self.held,
        };
        let records = &mut self.records;
        self.venue.normalise(&message, self.channel.books(), &mut |record| records.push(record));
        for record in &self.records {
            self.channel.push(record, now, out)?;
        }
        Ok(true)
    }

    /// Takes the message that was published last into the books; a digest may fall due, and goes to `out`.
    ///
    /// # Errors
    /// [`PipelineError::Exhausted`].
    #[inline]
    pub fn settle(&mut self, now: Nanos, out: &mut impl FnMut(&Line)) -> Result<(), PipelineError> {
        if std::mem::take(&mut self.unsettled) {
            self.channel.end_message(now, out)?;
            match self.warm {
                0 => self.warm_up(),
                _ => self.warm -= 1,
            }
        }
        Ok(())
    }

    /// Brings the orders of the next messages into the cache, as far as those are at hand. Nearly every change is of an order
    /// that rested for long, and each alone would wait for memory twice, for the index and for the order; the waits of
    /// several together overlap.
    #[inline]
    fn warm_up(&mut self) {
        let mut orders = [(InstrumentId::CHANNEL, 0); WARM_MESSAGES];
        let (mut seen, mut count) = (0, 0);
        let venue = &self.venue;
        self.source.glance(WARM_MESSAGES, &mut |bytes| {
            seen += 1;
            if let Some(order) = venue.order_of(bytes) {
                orders[count] = order;
                count += 1;
            }
        });
        self.warm = seen;
        self.channel.books().warm(&orders[..count]);
    }

    /// Messages taken so far.
    pub fn messages(&self) -> u64 {
        self.taken
    }

    /// Steps taken so far: messages, and what the source said between them.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The first message's number in the venue's stream; 1 before it is known.
    pub fn first_ordinal(&self) -> u64 {
        self.first_ordinal.unwrap_or(1)
    }

    /// The message taken last: its number, and where its framing begins.
    pub fn last_taken(&self) -> (u64, u64) {
        (self.held_ordinal, self.held_offset)
    }

    /// The sending half: sequence, books, digests.
    pub fn channel(&self) -> &ChannelWriter {
        &self.channel
    }

    /// The venue's normaliser, for its counters.
    pub fn venue(&self) -> &V {
        &self.venue
    }

    /// The feed's source, for its warnings.
    pub fn source(&self) -> &S {
        &self.source
    }
}
