//! Makes entries out of what is delivered.

use super::entry::{BLOCK_LINES, Entry};
use crate::arbiter::{Delivery, Gap};
use crate::book::Books;
use crate::hash::{h64, log_hash};
use crate::line::{Epoch, Line, SequenceNumber, Stamp};
use crate::pair::Split;
use crate::record::{Flags, InstrumentId, Kind, Lane, Record, digest};
use crate::recovery::{Fate, Recovering, Snapshot};
use crate::run::LanePath;
use crate::time::Nanos;

/// Takes entries from a loop that may not wait.
pub trait EntrySink {
    /// Takes an entry; false if there is no room for it now.
    fn put(&mut self, entry: &Entry) -> bool;
}

/// Keeps entries in memory.
impl EntrySink for Vec<Entry> {
    fn put(&mut self, entry: &Entry) -> bool {
        self.push(*entry);
        true
    }
}

/// What one line adds to the sum of its run: a hash of its stamp and of all of its record that the publishers of a channel
/// agree on, which leaves out ts_event, ts_capture, ts_publish and OWN_TIME.
#[inline]
pub fn line_sum(stamp: Stamp, record: &Record) -> u64 {
    let mut record = *record;
    // A Continuation has payload where other records have their times.
    if record.kind != Kind::CONTINUATION {
        record.ts_event.set(0);
        record.ts_capture.set(0);
        record.ts_publish.set(0);
        record.flags = record.flags.without(Flags::OWN_TIME);
    }
    log_hash(record.hash(), stamp.0)
}

/// A participant's own book where a BookDigest stands in the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OwnDigest {
    /// It keeps no such book.
    NotKept,
    /// The book is not to be read.
    NotReadable,
    /// Digests D and L, and how many orders rest.
    Book(u64, u64, u64),
}

impl OwnDigest {
    /// That of a publisher, as it stands in the BookDigest itself.
    pub fn of_record(record: &Record) -> OwnDigest {
        match record.detail {
            digest::LIVE | digest::SUSPECT => {
                OwnDigest::Book(record.order_id.get(), record.price.get() as u64, record.size.get())
            }
            _ => OwnDigest::NotReadable,
        }
    }

    /// Of a book among `books`.
    pub fn of_books(books: &Books, instrument: InstrumentId) -> OwnDigest {
        match books.view(instrument) {
            None => OwnDigest::NotReadable,
            Some(view) if !view.state().is_readable() => OwnDigest::NotReadable,
            Some(view) => {
                let (orders, levels) = view.digests();
                OwnDigest::Book(orders, levels, view.resting_orders())
            }
        }
    }
}

/// Has books.
pub trait OwnDigests {
    /// What its own book of an instrument comes to now.
    fn own_digest(&self, instrument: InstrumentId) -> OwnDigest;
}

/// Writes down what a participant is given. Made for its hot loop: an entry for every [`BLOCK_LINES`] lines, no allocation, no
/// waiting. Dropping it closes the log.
#[derive(Debug)]
pub struct Recorder<S: EntrySink> {
    sink: S,
    /// The stamp that comes next; `None` before anything came.
    next: Option<Stamp>,
    /// The first line of the run that is under way.
    run: Stamp,
    sum: u64,
    /// Entries that the sink had no room for since it last had.
    owed: u64,
    /// Of all times.
    unlogged: u64,
    closed: bool,
}

impl<S: EntrySink> Recorder<S> {
    /// A recorder of a participant that was given nothing yet. The log's beginning is the sink's affair.
    pub fn new(sink: S) -> Recorder<S> {
        Recorder { sink, next: None, run: Stamp(0), sum: 0, owed: 0, unlogged: 0, closed: false }
    }

    /// Entries so far that the sink had no room for.
    pub fn unlogged(&self) -> u64 {
        self.unlogged
    }

    /// The sink.
    pub fn sink(&self) -> &S {
        &self.sink
    }

    /// The stream is taken up at `at`.
    pub fn on_joined(&mut self, at: Stamp) {
        self.end_run();
        self.put(Entry::Joined { at }, at);
        self.start_run(at);
    }

    /// These lines were delivered. They follow what came before, which a checker verifies and this does not.
    #[inline]
    pub fn on_lines(&mut self, first: Stamp, lines: &[Line]) {
        if self.next != Some(first) {
            self.skip_to(first);
        }
        for (i, line) in lines.iter().enumerate() {
            let stamp = first.plus(i as u64);
            self.sum = self.sum.wrapping_add(line_sum(stamp, &line.record));
            self.next = Some(stamp.plus(1));
            if stamp.sequence().0.is_multiple_of(BLOCK_LINES) {
                self.end_run();
            }
        }
    }

    /// These lines will never be.
    pub fn on_gap(&mut self, gap: Gap) {
        self.end_run();
        self.put(Entry::Gap { first: gap.first, count: gap.count, cause: gap.cause }, gap.first);
        self.start_run(gap.first.plus(gap.count));
    }

    /// A new epoch begins.
    pub fn on_epoch(&mut self, to: Epoch) {
        self.end_run();
        let from = self.next.unwrap_or(Stamp(0));
        self.put(Entry::Epoch { from, to }, from);
        self.start_run(Stamp::new(to, SequenceNumber::FIRST));
    }

    /// The participant's own book, just before the BookDigest `at` is taken in. Comes before that line does.
    pub fn on_digest(&mut self, at: Stamp, instrument: InstrumentId, own: OwnDigest) {
        let book = match own {
            OwnDigest::NotKept => return,
            OwnDigest::NotReadable => None,
            OwnDigest::Book(orders, levels, count) => Some(h64(&[orders, levels, count, 0, 0, 0, 0])),
        };
        self.put(Entry::Digest { at, instrument, book }, self.run);
    }

    /// The publisher said that nothing follows `at`.
    pub fn on_end(&mut self, at: Stamp) {
        self.end_run();
        self.put(Entry::Ended { at }, at);
    }

    /// Ends the log in good order; nothing is recorded any more.
    pub fn close(&mut self) {
        if !std::mem::replace(&mut self.closed, true) {
            self.end_run();
            let at = self.next.unwrap_or(Stamp(0));
            self.put(Entry::Closed { at }, at);
        }
    }

    #[cold]
    fn skip_to(&mut self, first: Stamp) {
        self.end_run();
        self.start_run(first);
    }

    fn start_run(&mut self, at: Stamp) {
        (self.next, self.run, self.sum) = (Some(at), at, 0);
    }

    fn end_run(&mut self) {
        let Some(next) = self.next.filter(|next| *next > self.run) else { return };
        let (first, sum) = (self.run, self.sum);
        self.put(Entry::Lines { first, count: next.0 - first.0, sum }, first);
        self.start_run(next);
    }

    /// Hands over an entry that stands at `at`: if some before it were not taken, first that.
    fn put(&mut self, entry: Entry, at: Stamp) {
        let is_said = self.owed == 0 || self.sink.put(&Entry::Unlogged { until: at, entries: self.owed });
        if is_said {
            self.owed = 0;
        }
        if !is_said || !self.sink.put(&entry) {
            self.owed += 1;
            self.unlogged += 1;
        }
    }
}

impl<S: EntrySink> Drop for Recorder<S> {
    fn drop(&mut self) {
        self.close();
    }
}

/// Stands between an arbiter and what it delivers to, and has all of it written down.
pub struct Logged<'a, D, S: EntrySink> {
    inner: &'a mut D,
    recorder: &'a mut Recorder<S>,
}

impl<'a, D, S: EntrySink> Logged<'a, D, S> {
    /// What `inner` is given, `recorder` writes down.
    pub fn new(inner: &'a mut D, recorder: &'a mut Recorder<S>) -> Logged<'a, D, S> {
        Logged { inner, recorder }
    }
}

impl<D: Delivery + OwnDigests, S: EntrySink> Delivery for Logged<'_, D, S> {
    fn on_lines(&mut self, first: Stamp, lines: &[Line], path: LanePath, publish_time: Option<Nanos>) {
        let (mut from, mut time) = (0, publish_time);
        for (at, line) in lines.iter().enumerate() {
            if line.record.kind != Kind::BOOK_DIGEST {
                continue;
            }
            // The books take in everything before the digest; then they are looked at.
            if at > from {
                self.inner.on_lines(first.plus(from as u64), &lines[from..at], path, time.take());
                from = at;
            }
            let instrument = line.record.instrument_id();
            self.recorder.on_digest(first.plus(at as u64), instrument, self.inner.own_digest(instrument));
        }
        self.inner.on_lines(first.plus(from as u64), &lines[from..], path, time);
        self.recorder.on_lines(first, lines);
    }

    fn on_gap(&mut self, gap: Gap) {
        self.recorder.on_gap(gap);
        self.inner.on_gap(gap);
    }

    fn on_joined(&mut self, at: Stamp) {
        self.recorder.on_joined(at);
        self.inner.on_joined(at);
    }

    fn on_epoch(&mut self, from: Epoch, to: Epoch) {
        self.recorder.on_epoch(to);
        self.inner.on_epoch(from, to);
    }

    fn on_publish_time(&mut self, lane: Lane, time: Nanos) {
        self.inner.on_publish_time(lane, time);
    }

    fn on_path_silent(&mut self, path: LanePath, since: Nanos) {
        self.inner.on_path_silent(path, since);
    }

    fn on_end(&mut self, at: Stamp) {
        self.recorder.on_end(at);
        self.inner.on_end(at);
    }

    fn on_split(&mut self, split: Split) {
        self.inner.on_split(split);
    }
}

impl<D: Recovering + OwnDigests, S: EntrySink> Recovering for Logged<'_, D, S> {
    fn doubts(&self) -> u64 {
        self.inner.doubts()
    }
    fn next_unready(&self, from: InstrumentId) -> Option<(InstrumentId, InstrumentId)> {
        self.inner.next_unready(from)
    }
    fn highest(&self) -> InstrumentId {
        self.inner.highest()
    }
    fn lowest_use(&self) -> Option<Stamp> {
        self.inner.lowest_use()
    }
    fn on_snapshots_asked(&mut self, first: InstrumentId, last: InstrumentId) {
        self.inner.on_snapshots_asked(first, last);
    }
    fn on_snapshots_failed(&mut self, first: InstrumentId, last: InstrumentId) {
        self.inner.on_snapshots_failed(first, last);
    }
    fn on_snapshot(&mut self, snapshot: &Snapshot<'_>, records: &[Record]) -> Fate {
        self.inner.on_snapshot(snapshot, records)
    }
    fn settle_snapshots(&mut self) -> usize {
        self.inner.settle_snapshots()
    }
    fn on_caught_up(&mut self) {
        self.inner.on_caught_up();
    }
}
