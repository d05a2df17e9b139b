//! Open events: their lines wait in a bounded pool until the event ends, and change the book then.

use super::index::NIL;
use super::{Bbo, BookEvent, Books, EventEnd, Inconsistency, OPEN_EVENT_BOUND, PendingLine, view};
use crate::line::Stamp;
use crate::record::{InstrumentId, Record};

impl Books {
    pub(super) fn keep_pending(&mut self, instrument: InstrumentId, record: &Record, sequence: u64) {
        // The pool holds one line for each sequence number within the bound, and older events are closed before a line is
        // taken in; so it cannot be exhausted.
        let id = self.pending_free;
        let line = &mut self.pending[id as usize];
        self.pending_free = line.next;
        *line = PendingLine { record: *record, sequence, next: NIL };
        let book = &mut self.books[instrument.index()];
        if book.open_since == 0 {
            book.open_since = sequence;
            book.pending_head = id;
            self.open.push_back((instrument, sequence));
        } else {
            self.pending[book.pending_tail as usize].next = id;
        }
        self.books[instrument.index()].pending_tail = id;
    }

    /// Applies what an open event holds, and closes it. Returns whether the book changed.
    pub(super) fn apply_pending(&mut self, instrument: InstrumentId) -> bool {
        let book = &mut self.books[instrument.index()];
        let mut at = book.pending_head;
        (book.pending_head, book.pending_tail, book.open_since) = (NIL, NIL, 0);
        let mut changed = false;
        while at != NIL {
            let line = self.pending[at as usize];
            changed |= self.change(instrument, &line.record, line.sequence);
            self.pending[at as usize].next = self.pending_free;
            self.pending_free = at;
            at = line.next;
        }
        // The oldest entries of `open` may be of events that have ended; drop them, so that the list stays short.
        while let Some((instrument, since)) = self.open.front()
            && self.books[instrument.index()].open_since != *since
        {
            self.open.pop_front();
        }
        changed
    }

    pub(super) fn drop_pending(&mut self, instrument: InstrumentId) {
        let book = &mut self.books[instrument.index()];
        let mut at = book.pending_head;
        (book.pending_head, book.pending_tail, book.open_since) = (NIL, NIL, 0);
        while at != NIL {
            let next = std::mem::replace(&mut self.pending[at as usize].next, self.pending_free);
            self.pending_free = at;
            at = next;
        }
    }

    pub(super) fn close_event(&mut self, instrument: InstrumentId, stamp: Stamp) {
        let before = view::bbo_of(&self.store, &self.books[instrument.index()].sides, 0);
        let changed = self.apply_pending(instrument);
        self.end_event(instrument, stamp, before, changed);
    }

    pub(super) fn close_overdue(&mut self, stamp: Stamp) {
        while let Some((instrument, since)) = self.open.front().copied() {
            if self.books[instrument.index()].open_since != since {
                self.open.pop_front();
            } else if stamp.sequence().0 - since > OPEN_EVENT_BOUND {
                self.close_event(instrument, stamp);
                self.inconsistent(instrument, Inconsistency::MissingLast);
            } else {
                break;
            }
        }
    }

    #[inline]
    pub(super) fn end_event(&mut self, instrument: InstrumentId, stamp: Stamp, before: Bbo, changed: bool) {
        let book = &self.books[instrument.index()];
        let after = if changed { view::bbo_of(&self.store, &book.sides, 0) } else { before };
        self.judge_crossed(instrument);
        if self.books[instrument.index()].state().is_readable() {
            self.events.push_back(BookEvent::EventEnd(EventEnd { instrument, stamp, changed, before, after }));
        }
    }

    #[inline]
    pub(super) fn judge_crossed(&mut self, instrument: InstrumentId) {
        let book = &self.books[instrument.index()];
        let sides = &book.sides;
        if book.trading && !book.suspect && (view::is_crossed(sides, 0) || view::is_crossed(sides, 2)) {
            self.inconsistent(instrument, Inconsistency::Crossed);
        }
    }
}
