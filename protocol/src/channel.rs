//! The sending half of a channel, without I/O: records in, sealed lines out, digests among them.
//!
//! [`ChannelWriter`] owns the sequencer and the publisher's own books. A caller pushes the records of one venue message,
//! then says that the message is over; every so many messages the books of the instruments touched since are compared with
//! everybody else's by a BookDigest, one instrument in turn. All of it is a pure function of the venue's stream.
//!
//! Lines go out before they are applied to the publisher's own books: those wait until the message is over, so that a caller
//! can flush first, and no subscriber waits for them.

use std::collections::VecDeque;

use zerocopy::little_endian::{U32, U64};

use crate::book::{BookEvent, BookState, Books, BooksConfig, Start, StateChange};
use crate::line::{Epoch, Line, Stamp};
use crate::record::{Flags, InstrumentId, Kind, Record};
use crate::sequencer::{Exhausted, Sequencer};
use crate::time::Nanos;

/// Settings of a [`ChannelWriter`]. Part of what defines the stream: the publishers of one channel must agree on them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChannelConfig {
    /// Sizes of the books.
    pub books: BooksConfig,
    /// What books are taken for when the feed starts in mid-day.
    pub start: Start,
    /// One BookDigest after this many venue messages; 0 for none at all.
    pub digest_every: u32,
}

impl Default for ChannelConfig {
    fn default() -> ChannelConfig {
        ChannelConfig { books: BooksConfig::default(), start: Start::Strict, digest_every: 64 }
    }
}

/// Makes the stream of one channel.
pub struct ChannelWriter {
    sequencer: Sequencer,
    books: Books,
    digest_every: u32,
    until_digest: u32,
    /// Instruments changed since their last digest, oldest first, and whether each is in the list.
    touched: VecDeque<InstrumentId>,
    is_touched: Vec<bool>,
    digests_sent: u64,
    state_changes: [u64; 5],
    /// Of the last record pushed (its head): digests carry its times and venue sequence.
    last: Origin,
    /// Lines that went out and are not in the books yet.
    unsettled: Vec<(Stamp, Record)>,
}

/// When and from what of the venue a record was made.
#[derive(Clone, Copy, Default)]
struct Origin {
    ts_event: U64,
    ts_capture: U32,
    venue_seq: U32,
    own_time: Flags,
}

/// The most lines of one message that wait for its end; a longer one is taken into the books as it comes.
const UNSETTLED_LINES: usize = 128;

impl ChannelWriter {
    /// Starts the stream of `epoch`. Allocates and touches all memory now.
    pub fn new(epoch: Epoch, config: ChannelConfig) -> ChannelWriter {
        ChannelWriter {
            sequencer: Sequencer::new(epoch, config.books.instruments),
            books: Books::new(config.books, config.start),
            digest_every: config.digest_every,
            until_digest: config.digest_every,
            touched: VecDeque::with_capacity(config.books.instruments + 1),
            is_touched: vec![false; config.books.instruments + 1],
            digests_sent: 0,
            state_changes: [0; 5],
            last: Origin::default(),
            unsettled: Vec::with_capacity(UNSETTLED_LINES),
        }
    }

    /// The same in the middle of a stream, with books of which nothing is known: see [`Sequencer::going_on`]. For whoever
    /// tries what becomes of a stream that has gone on for long; a publisher starts at the beginning.
    pub fn going_on(next: Stamp, lines: u32, config: ChannelConfig) -> ChannelWriter {
        let sequencer = Sequencer::going_on(next, lines, config.books.instruments);
        ChannelWriter { sequencer, ..ChannelWriter::new(next.epoch(), config) }
    }

    /// The stamp that the next line will get.
    #[inline]
    pub fn next(&self) -> Stamp {
        self.sequencer.next()
    }

    /// The publisher's own books, as of the last message that is over.
    #[inline]
    pub fn books(&self) -> &Books {
        &self.books
    }

    /// BookDigest records sent so far.
    pub fn digests_sent(&self) -> u64 {
        self.digests_sent
    }

    /// How often one of the publisher's own books came into this state.
    pub fn state_changes(&self, to: BookState) -> u64 {
        self.state_changes[to as usize]
    }

    /// Takes one record of a venue message: numbers it and hands the line to `out`. The books take it in when the message is
    /// over.
    ///
    /// The lines of a record that continues must be pushed one after the other.
    ///
    /// # Errors
    /// [`Exhausted`]: the record has no place in this epoch, and nothing has changed.
    #[inline]
    pub fn push(&mut self, record: &Record, now: Nanos, out: &mut impl FnMut(&Line)) -> Result<(), Exhausted> {
        if record.kind == Kind::SESSION_END {
            self.settle();
            // The last word on every book that changed since its last digest, but for those in the middle of an event.
            let mut left = usize::MAX;
            while self.touched.len() < left {
                left = self.touched.len();
                self.send_digest(now, out)?;
            }
        }
        if record.kind != Kind::CONTINUATION {
            self.last = Origin {
                ts_event: record.ts_event,
                ts_capture: record.ts_capture,
                venue_seq: record.venue_seq,
                own_time: Flags(record.flags.0 & Flags::OWN_TIME.0),
            };
        }
        let mut record = *record;
        let stamp = self.sequencer.number(&mut record, now)?;
        out(&Line::seal(record, stamp));
        if self.unsettled.len() == UNSETTLED_LINES {
            self.settle();
        }
        self.unsettled.push((stamp, record));
        Ok(())
    }

    /// The venue message whose records were pushed is over: the books take them in, and a digest may fall due.
    ///
    /// # Errors
    /// [`Exhausted`].
    #[inline]
    pub fn end_message(&mut self, now: Nanos, out: &mut impl FnMut(&Line)) -> Result<(), Exhausted> {
        self.settle();
        if self.digest_every == 0 {
            return Ok(());
        }
        self.until_digest -= 1;
        if self.until_digest == 0 {
            self.until_digest = self.digest_every;
            self.send_digest(now, out)?;
        }
        Ok(())
    }

    #[inline]
    fn settle(&mut self) {
        if let Some(changed) = self.books.apply_event(&self.unsettled) {
            if changed {
                self.touch(self.unsettled[0].1.instrument_id());
            }
            self.note_events();
            return self.unsettled.clear();
        }
        for at in 0..self.unsettled.len() {
            let (stamp, record) = self.unsettled[at];
            self.books.apply(stamp, &record);
            self.note_events();
        }
        self.unsettled.clear();
    }

    #[inline]
    fn note_events(&mut self) {
        while let Some(event) = self.books.poll_event() {
            match event {
                BookEvent::EventEnd(end) if end.changed => self.touch(end.instrument),
                BookEvent::EventEnd(_) => {}
                BookEvent::State(StateChange { instrument, to, .. }) => {
                    self.state_changes[to as usize] += 1;
                    if to.is_readable() {
                        self.touch(instrument);
                    }
                }
            }
        }
    }

    #[inline]
    fn touch(&mut self, instrument: InstrumentId) {
        if self.digest_every == 0 {
            return;
        }
        if instrument.index() >= self.is_touched.len() {
            self.is_touched.resize(instrument.index() + 1, false);
        }
        if !std::mem::replace(&mut self.is_touched[instrument.index()], true) {
            self.touched.push_back(instrument);
        }
    }

    /// Sends the digest of the instrument whose turn it is. One whose event is open goes to the back of the queue.
    fn send_digest(&mut self, now: Nanos, out: &mut impl FnMut(&Line)) -> Result<(), Exhausted> {
        for _ in 0..self.touched.len() {
            let Some(instrument) = self.touched.pop_front() else { break };
            if self.books.has_open_event(instrument) {
                self.touched.push_back(instrument);
                continue;
            }
            self.is_touched[instrument.index()] = false;
            if let Some(mut record) = self.books.digest_record(instrument) {
                record.ts_event = self.last.ts_event;
                record.ts_capture = self.last.ts_capture;
                record.venue_seq = self.last.venue_seq;
                record.flags = record.flags.with(self.last.own_time);
                self.digests_sent += 1;
                let (stamp, line) = self.sequencer.seal(&record, now)?;
                out(&line);
                self.books.apply(stamp, &line.record);
                self.note_events();
                return Ok(());
            }
        }
        Ok(())
    }
}
