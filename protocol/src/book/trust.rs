//! How far a book is to be believed: counts that continue or jump, digests, lines that concern every book.

use super::{Book, BookEvent, Books, FedBy, Inconsistency, StateChange, StateReason};
use crate::line::Stamp;
use crate::record::{InstrumentId, Kind, Record, digest};

impl Books {
    pub(super) fn set_state(&mut self, instrument: InstrumentId, reason: StateReason, set: impl FnOnce(&mut Book)) {
        let book = &mut self.books[instrument.index()];
        let from = book.state();
        set(book);
        let to = book.state();
        if from != to && instrument != InstrumentId::CHANNEL {
            self.events.push_back(BookEvent::State(StateChange { instrument, from, to, reason }));
        }
    }

    pub(super) fn make_stale(&mut self, reason: StateReason) {
        self.channel_gapped = true;
        for at in 0..self.books.len() {
            self.books[at].gapped = true;
            self.set_state(InstrumentId(at as u32), reason, |book| {
                book.snapshotting = false;
                if book.complete {
                    book.stale = true;
                    book.broken |= !book.counted;
                }
            });
        }
    }

    /// Checks a line's own count against what must come next.
    #[inline]
    pub(super) fn count_line(&mut self, instrument: InstrumentId, seq: u32) {
        let channel_seq = self.channel_seq;
        let book = &mut self.books[instrument.index()];
        let expected = book.last_seq.wrapping_add(channel_seq.wrapping_sub(book.channel_at_last)).wrapping_add(1);
        let continues = seq == expected;
        let was_counted = std::mem::replace(&mut book.counted, true);
        book.last_seq = seq;
        book.channel_at_last = channel_seq;
        if (continues && !book.stale) || !was_counted {
            book.gapped = false;
            return;
        }
        if !continues {
            self.break_count(instrument);
        } else if !book.broken {
            self.set_state(instrument, StateReason::Continued, |book| book.stale = false);
        }
        self.books[instrument.index()].gapped = false;
    }

    /// Lines that concern this book are lost: it is Stale, and continuing its count will not mend that.
    pub(super) fn break_count(&mut self, instrument: InstrumentId) {
        // The rest of an open event may be among what was lost; what came of it is nearer to the truth than nothing. It
        // comes first: a Clear in it must not make Live what the lost lines have changed since.
        if self.books[instrument.index()].open_since != 0 {
            self.apply_pending(instrument);
        }
        // A lost Status would make us judge crossed books by an old one.
        let book = &mut self.books[instrument.index()];
        (book.trading, book.trading_known) = (false, false);
        self.set_state(instrument, StateReason::CountJumped, |book| {
            book.snapshotting &= !book.state().is_readable();
            book.stale |= book.complete;
            book.broken |= book.complete;
        });
    }

    pub(super) fn apply_channel(&mut self, stamp: Stamp, record: &Record) {
        let seq = record.instrument_seq.get();
        if !self.channel_counted || seq != self.channel_seq.wrapping_add(1) {
            let declared = self.channel_gapped;
            for at in 0..self.books.len() {
                if self.channel_counted && (!declared || self.books[at].gapped) {
                    self.books[at].gapped = true;
                    self.break_count(InstrumentId(at as u32));
                } else {
                    // Its last own line came after the declared gap (or the start in the middle), and its count, which
                    // holds the channel's, has shown what was lost. From here on it is measured by the true count.
                    self.books[at].channel_at_last = seq.wrapping_sub(1);
                }
            }
        }
        self.channel_seq = seq;
        (self.channel_counted, self.channel_gapped) = (true, false);
        match record.kind {
            Kind::SESSION_START => self.start_over(StateReason::SessionStart),
            Kind::CLEAR => self.start_over(StateReason::Clear),
            Kind::EVENT_END => {
                while let Some((instrument, since)) = self.open.pop_front() {
                    if self.books[instrument.index()].open_since == since {
                        self.close_event(instrument, stamp);
                    }
                }
            }
            Kind::VENUE_GAP => {
                for at in 0..self.books.len() {
                    self.set_suspect(InstrumentId(at as u32), StateReason::VenueGap);
                }
            }
            _ => {}
        }
    }

    /// Every book is known to be empty.
    pub(super) fn start_over(&mut self, reason: StateReason) {
        for at in 0..self.books.len() {
            self.empty_book(InstrumentId(at as u32), reason);
        }
    }

    pub(super) fn empty_book(&mut self, instrument: InstrumentId, reason: StateReason) {
        self.drop_pending(instrument);
        let book = &mut self.books[instrument.index()];
        self.store.clear(&mut book.sides);
        // Own lines that are lost were before this one and do not matter any more: the count starts again with the next
        // own line, whatever that says. A lost Status may have ended the trading.
        book.counted &= !book.gapped;
        book.trading &= !book.gapped && reason != StateReason::SessionStart;
        book.trading_known = book.trading_known && !book.gapped || reason == StateReason::SessionStart;
        book.gapped = false;
        self.set_state(instrument, reason, |book| {
            book.complete = true;
            book.suspect = false;
            book.filling = false;
            book.unjudged = false;
            book.stale = false;
            book.broken = false;
            book.fed_by = FedBy::Nothing;
        });
    }

    pub(super) fn set_suspect(&mut self, instrument: InstrumentId, reason: StateReason) {
        self.set_state(instrument, reason, |book| book.suspect |= book.complete);
    }

    pub(super) fn inconsistent(&mut self, instrument: InstrumentId, what: Inconsistency) {
        let book = &self.books[instrument.index()];
        // In a book that is not complete, or may have missed something, an oddity says nothing about the venue.
        if book.complete && !book.stale {
            self.inconsistencies[what.index()] += 1;
            self.set_suspect(instrument, StateReason::Inconsistent(what));
        }
    }

    pub(super) fn compare_digest(&mut self, instrument: InstrumentId, record: &Record) {
        let book = &self.books[instrument.index()];
        if !book.complete || record.detail == digest::UNKNOWN {
            return;
        }
        let sides = &book.sides;
        let agrees = sides.digest_orders == record.order_id.get()
            && sides.digest_levels == record.price.get() as u64
            && sides.resting == record.size.get();
        let suspect = record.detail == digest::SUSPECT;
        match (book.stale, agrees) {
            (false, true) => {
                self.digests.compared += 1;
                self.set_state(instrument, StateReason::DigestAgreed, |book| {
                    // In the middle of a venue's snapshot both are Suspect, and that says nothing of afterwards.
                    if !book.filling {
                        book.suspect = suspect;
                    }
                    book.unjudged = false;
                });
            }
            (false, false) => {
                self.digests.compared += 1;
                self.digests.disagreed += 1;
                self.set_state(instrument, StateReason::DigestDisagreed, |book| {
                    book.snapshotting = false;
                    book.stale = true;
                    book.broken = true;
                });
            }
            (true, true) => {
                self.digests.compared_stale += 1;
                self.digests.healed += 1;
                self.set_state(instrument, StateReason::DigestAgreed, |book| {
                    book.stale = false;
                    book.broken = false;
                    (book.suspect, book.unjudged) = (suspect, false);
                });
            }
            (true, false) => self.digests.compared_stale += 1,
        }
    }
}
