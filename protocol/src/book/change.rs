//! What each kind of record does to a book.

use super::index::Key;
use super::store::{Order, ladder_index};
use super::{Books, FedBy, Inconsistency, StateReason};
use crate::record::{Flags, InstrumentId, Kind, Record, UNDEFINED_PRICE, modify, status};

impl Books {
    /// Changes a book by one record of an event that has ended. Returns whether anything changed: what neither digest
    /// shows is no change (an absent level deleted, an order modified to what it was).
    pub(super) fn change(&mut self, instrument: InstrumentId, record: &Record, sequence: u64) -> bool {
        let digests = |books: &Books| {
            let sides = &books.books[instrument.index()].sides;
            (sides.digest_orders, sides.digest_levels)
        };
        let before = digests(self);
        self.change_by_kind(instrument, record, sequence);
        digests(self) != before
    }

    #[inline]
    pub(super) fn change_by_kind(&mut self, instrument: InstrumentId, record: &Record, sequence: u64) {
        match record.kind {
            Kind::ADD => self.add(instrument, record, sequence),
            Kind::MODIFY => self.modify(instrument, record, sequence),
            Kind::REDUCE | Kind::EXECUTE => self.reduce(instrument, record),
            Kind::DELETE => self.delete(instrument, record),
            Kind::LEVEL_SET => self.level_set(instrument, record),
            Kind::CLEAR => {
                let book = &mut self.books[instrument.index()];
                self.store.clear(&mut book.sides);
                self.set_state(instrument, StateReason::Clear, |book| {
                    book.complete = true;
                    book.suspect = false;
                    book.unjudged = false;
                    book.broken = false;
                    // Lines lost behind this one, in its own event, are lost to the emptied book too; the instrument's next
                    // line tells.
                    book.stale = book.gapped;
                    book.fed_by = FedBy::Nothing;
                    // A Clear that begins a snapshot of the venue's: the book is whole at the snapshot's LAST, which may come
                    // in a later event.
                    book.filling = record.flags.has(Flags::SNAPSHOT) && !record.flags.has(Flags::LAST);
                });
            }
            Kind::STATUS => {
                let book = &mut self.books[instrument.index()];
                if status::decides_trading(record.detail) {
                    book.unjudged |= !book.trading_known;
                    (book.trading, book.trading_known) = (record.detail == status::TRADING, true);
                }
            }
            Kind::VENUE_GAP => self.set_suspect(instrument, StateReason::VenueGap),
            _ => {}
        }
        if record.flags.has(Flags::SNAPSHOT.with(Flags::LAST)) {
            self.end_filling(instrument);
        }
    }

    #[cold]
    fn end_filling(&mut self, instrument: InstrumentId) {
        self.set_state(instrument, StateReason::Snapshot, |book| book.filling = false);
    }

    /// The ladder of a record that may feed this book in this way (it is decided by what comes first).
    #[inline]
    fn feed(&mut self, instrument: InstrumentId, by: FedBy, record: &Record) -> Option<usize> {
        let book = &mut self.books[instrument.index()];
        let wrong = match ladder_index(record.side) {
            None => Inconsistency::NoSuchSide,
            // A level of size 0 goes away, wherever it was: a side that is empty (TOB) has no price.
            _ if record.price.get() == UNDEFINED_PRICE && (by == FedBy::Orders || record.size.get() != 0) => {
                Inconsistency::NoPrice
            }
            ladder if book.fed_by == by => return ladder,
            ladder if book.fed_by == FedBy::Nothing => {
                book.fed_by = by;
                return ladder;
            }
            _ => Inconsistency::MixedFeed,
        };
        self.inconsistent(instrument, wrong);
        None
    }

    #[inline]
    fn add(&mut self, instrument: InstrumentId, record: &Record, sequence: u64) {
        let Some(ladder) = self.feed(instrument, FedBy::Orders, record) else { return };
        let order_id = record.order_id.get();
        let key = Key::new(instrument, order_id);
        if let Some(id) = self.store.find_key(&key) {
            self.store.remove(&mut self.books[instrument.index()].sides, id);
            self.inconsistent(instrument, Inconsistency::DuplicateOrder);
        }
        let order = Order {
            order_id,
            side: record.side,
            price: record.price.get(),
            size: record.size.get(),
            priority: sequence,
        };
        self.store.add(&mut self.books[instrument.index()].sides, &key, ladder, &order);
    }

    fn modify(&mut self, instrument: InstrumentId, record: &Record, sequence: u64) {
        let Some(ladder) = self.feed(instrument, FedBy::Orders, record) else { return };
        let order_id = record.order_id.get();
        let Some(id) = self.store.find(instrument, order_id) else {
            self.inconsistent(instrument, Inconsistency::UnknownOrder);
            return;
        };
        let sides = &mut self.books[instrument.index()].sides;
        let (side, price, size) = (record.side, record.price.get(), record.size.get());
        let old = self.store.slot(id);
        let same_queue = old.side == side && old.price == price;
        let keeps = match record.detail {
            modify::KEEPS => true,
            modify::TO_BACK => false,
            _ => same_queue && size <= old.size,
        };
        if size == 0 {
            self.store.remove(sides, id);
        } else if keeps && same_queue {
            self.store.resize(sides, id, size);
        } else {
            let priority = if keeps { old.priority } else { sequence };
            self.store.requeue(sides, id, ladder, &Order { order_id, side, price, size, priority });
        }
    }

    fn reduce(&mut self, instrument: InstrumentId, record: &Record) {
        let Some(id) = self.store.find(instrument, record.order_id.get()) else {
            self.inconsistent(instrument, Inconsistency::UnknownOrder);
            return;
        };
        let by = record.size.get();
        let left = self.store.slot(id).size;
        let sides = &mut self.books[instrument.index()].sides;
        if by < left {
            self.store.resize(sides, id, left - by);
        } else {
            self.store.remove(sides, id);
            if by > left {
                self.inconsistent(instrument, Inconsistency::OverReduced);
            }
        }
    }

    fn delete(&mut self, instrument: InstrumentId, record: &Record) {
        let Some(id) = self.store.find(instrument, record.order_id.get()) else {
            self.inconsistent(instrument, Inconsistency::UnknownOrder);
            return;
        };
        self.store.remove(&mut self.books[instrument.index()].sides, id);
    }

    pub(super) fn level_set(&mut self, instrument: InstrumentId, record: &Record) {
        let Some(ladder) = self.feed(instrument, FedBy::Levels, record) else { return };
        let sides = &mut self.books[instrument.index()].sides;
        if record.flags.has(Flags::TOB) {
            self.store.clear_ladder(sides, ladder);
        }
        let count = u32::try_from(record.order_id.get()).unwrap_or(u32::MAX);
        self.store.set_level(sides, ladder, record.price.get(), record.size.get(), count);
    }
}
