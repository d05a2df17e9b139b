//! From a feed to lines, without I/O of its own: source, normaliser, sequencer, the publisher's books and digests.
//!
//! A publisher drives it against the clock, a backtest as fast as it goes, the workbench to look inside. Messages are
//! taken one by one: [`Pipeline::peek`] shows when the next is due, [`Pipeline::step`] turns it into lines. A publisher takes
//! the step in two halves, so that the lines are on their way before its own books are brought up to date.

use protocol::channel::{ChannelConfig, ChannelWriter};
use protocol::line::{Epoch, Line};
use protocol::record::Record;
use protocol::sequencer::Exhausted;
use protocol::time::Nanos;

use crate::feed::{FeedError, FeedSource, Message};
use crate::venue::Venue;

/// The most records one venue message becomes without an allocation.
const SCRATCH_RECORDS: usize = 128;
/// The longest venue message that is held back without an allocation.
const SCRATCH_BYTES: usize = 64;

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
    /// Messages before it.
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
    due: Option<Due>,
    taken: u64,
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
            due: None,
            taken: 0,
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
            let Some(message) = self.source.next()? else { return Ok(None) };
            self.held.clear();
            self.held.extend_from_slice(message.bytes);
            self.held_ordinal = message.ordinal;
            self.held_offset = message.offset;
            self.held_capture = message.capture;
            self.last_time = self.venue.time(&message).unwrap_or(self.last_time);
            self.due = Some(Due { index: self.taken, time: self.last_time });
        }
        Ok(self.due)
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
        self.taken += 1;
        let message = Message {
            ordinal: self.held_ordinal,
            offset: self.held_offset,
            capture: self.held_capture,
            bytes: &self.held,
        };
        self.records.clear();
        let records = &mut self.records;
        self.venue.normalise(&message, self.channel.books(), &mut |record| records.push(record));
        self.unsettled = true;
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
        }
        Ok(())
    }

    /// Messages taken so far.
    pub fn messages(&self) -> u64 {
        self.taken
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
