//! A book from a snapshot, brought up to the present with what came since.

use super::store::{Order, ladder_index};
use super::{BookEvent, Inconsistency, PendingLine};
use super::{Books, FedBy, MAX_INSTRUMENTS, OPEN_EVENT_BOUND, RestingOrder, StateReason};
use crate::line::Stamp;
use crate::record::{InstrumentId, Kind, Record};
use crate::recovery::snapshot::order_of;
use crate::recovery::{Snapshot, SnapshotForm};

use super::index::{Key, NIL};

/// Why a snapshot was not applied. The book is as it was, but for [`NotRestored::Contents`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NotRestored {
    /// The first line after the snapshot does not continue the count that it states: lines between the two are missing.
    Overlap,
    /// Its orders or levels do not make the book that it says they are. The book is emptied and cannot be read.
    Contents,
    /// There is no book for an instrument with this number.
    Beyond,
}

impl Books {
    /// The books of instruments from `first` to `last` that cannot be read have been asked for: they are Snapshotting.
    pub fn on_snapshots_asked(&mut self, first: InstrumentId, last: InstrumentId) {
        self.set_snapshotting(first, last, true);
    }

    /// What was asked for does not come: books from `first` to `last` are Unknown or Stale again.
    pub fn on_snapshots_failed(&mut self, first: InstrumentId, last: InstrumentId) {
        self.set_snapshotting(first, last, false);
    }

    fn set_snapshotting(&mut self, first: InstrumentId, last: InstrumentId, asked: bool) {
        let reason = if asked { StateReason::SnapshotAsked } else { StateReason::SnapshotFailed };
        for at in first.0.max(1)..=last.min(self.highest()).0 {
            let readable = self.books[at as usize].state().is_readable();
            self.set_state(InstrumentId(at), reason, |book| book.snapshotting = asked && !readable);
        }
    }

    /// Whether books that nothing was heard of yet are known to be complete, and channel-wide lines are counted.
    pub fn channel_is_known(&self) -> bool {
        self.books[0].state().is_readable() && self.channel_counted && !self.channel_gapped
    }

    /// Takes a snapshot for the book of its instrument, whole or not at all. `since`: every line of the stream after the
    /// snapshot's, to the last that was applied here, without a hole.
    ///
    /// A snapshot of the channel itself says what books are of which the server has none yet, and how many channel-wide
    /// lines there were.
    ///
    /// # Errors
    /// [`NotRestored`].
    pub fn restore<'a>(
        &mut self,
        snapshot: &Snapshot<'_>,
        since: impl Iterator<Item = (Stamp, &'a Record)> + Clone,
    ) -> Result<(), NotRestored> {
        let instrument = snapshot.begin.instrument;
        let highest = if snapshot.is_of_channel() { snapshot.end.count } else { u64::from(instrument.0) };
        if highest > u64::from(MAX_INSTRUMENTS) {
            return Err(NotRestored::Beyond);
        }
        let mut count = snapshot.begin.instrument_seq;
        let mut channel_lines = 0u32;
        for (_, record) in since.clone() {
            let of_channel = record.instrument_id() == InstrumentId::CHANNEL;
            if !of_channel && record.instrument_id() != instrument {
                continue;
            }
            count = count.wrapping_add(1);
            channel_lines = channel_lines.wrapping_add(u32::from(of_channel));
            // A line of the channel has the channel's own count, which a snapshot of the channel continues.
            if of_channel == snapshot.is_of_channel() && record.instrument_seq.get() != count {
                return Err(NotRestored::Overlap);
            }
        }
        // Books that the server has are what they were here, until their own snapshots come.
        self.make_room(InstrumentId(highest as u32));
        if snapshot.is_of_channel() {
            self.restore_channel(count);
        } else {
            self.fill(snapshot)?;
        }
        let told = self.events.len();
        self.set_state(instrument, StateReason::Snapshot, |book| {
            book.complete = true;
            (book.suspect, book.filling) = (snapshot.begin.suspect, false);
            (book.stale, book.broken, book.gapped, book.snapshotting) = (false, false, false, false);
        });
        self.replay(instrument, since);
        // Ends of events in the past are no news; the change of state is.
        let mut at = 0;
        self.events.retain(|event| {
            at += 1;
            at <= told || matches!(event, BookEvent::State(_))
        });
        Ok(())
    }

    /// The channel's own count at present is `count`.
    fn restore_channel(&mut self, count: u32) {
        let ahead = count.wrapping_sub(self.channel_seq);
        for book in &mut self.books {
            // What each book knows is how many channel-wide lines came since its last own line.
            book.channel_at_last = book.channel_at_last.wrapping_add(ahead);
        }
        self.channel_seq = count;
        (self.channel_counted, self.channel_gapped) = (true, false);
        let pattern = &mut self.books[0];
        (pattern.last_seq, pattern.channel_at_last, pattern.counted) = (0, 0, true);
        (pattern.trading, pattern.trading_known, pattern.unjudged) = (false, true, false);
        pattern.fed_by = FedBy::Nothing;
    }

    /// Puts the contents of a snapshot in the place of what the book holds.
    fn fill(&mut self, snapshot: &Snapshot<'_>) -> Result<(), NotRestored> {
        let instrument = snapshot.begin.instrument;
        self.drop_pending(instrument);
        let book = &mut self.books[instrument.index()];
        self.store.clear(&mut book.sides);
        (book.counted, book.last_seq, book.channel_at_last) = (true, snapshot.begin.instrument_seq, self.channel_seq);
        (book.trading, book.trading_known) = (false, snapshot.begin.suspect_known);
        book.fed_by = match snapshot.begin.form {
            SnapshotForm::Mbo => FedBy::Orders,
            SnapshotForm::Mbp | SnapshotForm::Bbo => FedBy::Levels,
            SnapshotForm::Undecided => FedBy::Nothing,
        };
        let mut twice = false;
        for record in snapshot.records {
            let order_id = record.order_id.get();
            match record.kind {
                Kind::ADD if self.store.find(instrument, order_id).is_some() => twice = true,
                Kind::ADD => {
                    let RestingOrder { side, price, size, priority } = order_of(record);
                    // One on no side is of no book: the digests will not agree.
                    let Some(ladder) = ladder_index(side) else { continue };
                    let order = Order { order_id, side, price, size, priority };
                    let key = Key::new(instrument, order_id);
                    self.store.add(&mut self.books[instrument.index()].sides, &key, ladder, &order);
                }
                Kind::LEVEL_SET => self.level_set(instrument, record),
                Kind::STATUS => self.change_by_kind(instrument, record, 0),
                _ => {}
            }
        }
        self.books[instrument.index()].unjudged = false;
        let book = &mut self.books[instrument.index()];
        let (orders, levels) = (book.sides.digest_orders, book.sides.digest_levels);
        if twice || (orders, levels) != (snapshot.end.orders, snapshot.end.levels) {
            self.store.clear(&mut book.sides);
            self.set_state(instrument, StateReason::SnapshotFailed, |book| {
                (book.stale, book.broken, book.snapshotting) = (book.complete, book.complete, false);
            });
            return Err(NotRestored::Contents);
        }
        Ok(())
    }

    /// Applies to one book what came after its snapshot, as [`Books::apply`] would have done.
    fn replay<'a>(&mut self, instrument: InstrumentId, since: impl Iterator<Item = (Stamp, &'a Record)>) {
        // Channel-wide lines since the last own line.
        let mut channel_lines = 0u32;
        for (stamp, record) in since {
            let sequence = stamp.sequence().0;
            self.close_if_overdue(instrument, stamp);
            if record.instrument_id() == InstrumentId::CHANNEL {
                channel_lines = channel_lines.wrapping_add(1);
                match record.kind {
                    Kind::SESSION_START => self.empty_book(instrument, StateReason::SessionStart),
                    Kind::CLEAR => self.empty_book(instrument, StateReason::Clear),
                    Kind::EVENT_END if self.books[instrument.index()].open_since != 0 => {
                        self.close_event(instrument, stamp);
                    }
                    Kind::VENUE_GAP => self.set_suspect(instrument, StateReason::VenueGap),
                    _ => {}
                }
            } else if record.instrument_id() == instrument {
                channel_lines = 0;
                self.books[instrument.index()].last_seq = record.instrument_seq.get();
                if self.pending_free == NIL {
                    // Lines of the past wait beside those of the present, for which alone the pool was made.
                    self.pending_free = self.pending.len() as u32;
                    self.pending.push(PendingLine { record: *record, sequence, next: NIL });
                    self.books_grown += 1;
                }
                self.take(instrument, stamp, record);
            }
        }
        let book = &mut self.books[instrument.index()];
        if instrument != InstrumentId::CHANNEL {
            book.channel_at_last = self.channel_seq.wrapping_sub(channel_lines);
        }
        if book.open_since != 0 {
            // The list of open events is in order of age, and this one is older than some in it.
            self.open.make_contiguous().sort_by_key(|(_, since)| *since);
        }
    }

    fn close_if_overdue(&mut self, instrument: InstrumentId, stamp: Stamp) {
        let since = self.books[instrument.index()].open_since;
        if since != 0 && stamp.sequence().0 - since > OPEN_EVENT_BOUND {
            self.close_event(instrument, stamp);
            self.inconsistent(instrument, Inconsistency::MissingLast);
        }
    }
}
