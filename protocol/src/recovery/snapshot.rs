//! The lines of a snapshot: one instrument's book, whole, as of one stamp.
//!
//! SnapshotBegin; the instrument's Definition, its statuses, price bands and last trade as far as there were any; then its
//! orders (Add), bids before asks, best price first, queue order within a price, or its levels (LevelSet) in the same order;
//! SnapshotEnd. Each line between the two has flag SNAPSHOT.

use crate::book::RestingOrder;
use crate::line::Stamp;
use crate::record::{Flags, InstrumentId, Kind, Record, Side};

/// What a snapshot's book is made of: `detail` of SnapshotBegin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SnapshotForm {
    /// Single orders.
    Mbo,
    /// Price levels.
    Mbp,
    /// Best bid and offer alone.
    Bbo,
    /// Neither yet: it is empty, and whether orders or levels feed it is decided by what comes next.
    Undecided,
}

impl SnapshotForm {
    const fn code(self) -> u8 {
        match self {
            SnapshotForm::Mbo => 0,
            SnapshotForm::Mbp => 1,
            SnapshotForm::Bbo => 2,
            SnapshotForm::Undecided => 3,
        }
    }

    const fn of(code: u8) -> Option<SnapshotForm> {
        match code {
            0 => Some(SnapshotForm::Mbo),
            1 => Some(SnapshotForm::Mbp),
            2 => Some(SnapshotForm::Bbo),
            3 => Some(SnapshotForm::Undecided),
            _ => None,
        }
    }
}

/// The first line of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotBegin {
    /// Whose book; instrument 0: what every book is that the server has none of at `at`.
    pub instrument: InstrumentId,
    /// The last line of the stream that is included. No event of the instrument is open after it: this is the book as its
    /// last event left it.
    pub at: Stamp,
    /// Lines that follow, the SnapshotEnd included.
    pub lines: u64,
    /// What `instrument_seq` a line of the instrument at `at` would have had: its own lines so far plus the channel-wide
    /// ones.
    pub instrument_seq: u32,
    /// What the book is made of.
    pub form: SnapshotForm,
    /// The publisher's book is Suspect (flag MAYBE_BAD_BOOK).
    pub suspect: bool,
    /// The server knows whether the instrument trades (the Status in the snapshot, or its absence, tells), and with it
    /// whether the book is Suspect.
    pub suspect_known: bool,
}

impl SnapshotBegin {
    /// As a record.
    pub fn to_record(&self) -> Record {
        let mut record = Record::new(Kind::SNAPSHOT_BEGIN, self.instrument);
        record.flags = if self.suspect { Flags::MAYBE_BAD_BOOK } else { Flags::NONE };
        record.detail = self.form.code();
        record.order_id.set(self.at.0);
        record.price.set(i64::from(self.instrument_seq));
        record.size.set(self.lines);
        record.venue_seq.set(u32::from(!self.suspect_known));
        record
    }

    /// From a record. `None` if it begins no snapshot that this version knows.
    pub fn from_record(record: &Record) -> Option<SnapshotBegin> {
        if record.kind != Kind::SNAPSHOT_BEGIN {
            return None;
        }
        Some(SnapshotBegin {
            instrument: record.instrument_id(),
            at: Stamp(record.order_id.get()),
            lines: record.size.get(),
            instrument_seq: u32::try_from(record.price.get()).ok()?,
            form: SnapshotForm::of(record.detail)?,
            suspect: record.flags.has(Flags::MAYBE_BAD_BOOK),
            suspect_known: record.venue_seq.get() == 0,
        })
    }
}

/// The last line of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotEnd {
    /// Whose book.
    pub instrument: InstrumentId,
    /// As in the SnapshotBegin.
    pub at: Stamp,
    /// Digest D.
    pub orders: u64,
    /// Digest L.
    pub levels: u64,
    /// Orders (of Mbo) or levels between the two; of instrument 0 the highest instrument that the server has a book of.
    pub count: u64,
}

impl SnapshotEnd {
    /// As a record.
    pub fn to_record(&self) -> Record {
        let mut record = Record::new(Kind::SNAPSHOT_END, self.instrument);
        record.flags = Flags::LAST;
        record.ts_event.set(self.levels);
        record.order_id.set(self.at.0);
        record.price.set(self.orders as i64);
        record.size.set(self.count);
        record
    }

    /// From a record. `None` if it ends no snapshot.
    pub fn from_record(record: &Record) -> Option<SnapshotEnd> {
        (record.kind == Kind::SNAPSHOT_END).then(|| SnapshotEnd {
            instrument: record.instrument_id(),
            at: Stamp(record.order_id.get()),
            orders: record.price.get() as u64,
            levels: record.ts_event.get(),
            count: record.size.get(),
        })
    }
}

/// A resting order as a snapshot has it: an Add, with its priority in the place of instrument_seq and venue_seq.
pub fn order_record(instrument: InstrumentId, order_id: u64, order: &RestingOrder) -> Record {
    let mut record = Record::new(Kind::ADD, instrument);
    record.flags = Flags::SNAPSHOT;
    record.side = order.side;
    record.order_id.set(order_id);
    record.price.set(order.price);
    record.size.set(order.size);
    record.instrument_seq.set(order.priority as u32);
    record.venue_seq.set((order.priority >> 32) as u32);
    record
}

/// The order that an Add of a snapshot says.
pub fn order_of(record: &Record) -> RestingOrder {
    RestingOrder {
        side: record.side,
        price: record.price.get(),
        size: record.size.get(),
        priority: u64::from(record.instrument_seq.get()) | u64::from(record.venue_seq.get()) << 32,
    }
}

/// A price level as a snapshot has it: a LevelSet.
pub fn level_record(instrument: InstrumentId, side: Side, price: i64, size: u64, orders: u32) -> Record {
    let mut record = Record::new(Kind::LEVEL_SET, instrument);
    record.flags = Flags::SNAPSHOT.with(Flags::LEVEL);
    record.side = side;
    record.order_id.set(u64::from(orders));
    record.price.set(price);
    record.size.set(size);
    record
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::{Epoch, SequenceNumber};

    #[test]
    fn begin_and_end_are_read_as_written() {
        let at = Stamp::new(Epoch(7), SequenceNumber(1 << 40));
        for suspect in [false, true] {
            let begin = SnapshotBegin {
                instrument: InstrumentId(4),
                at,
                lines: 10,
                instrument_seq: u32::MAX,
                form: SnapshotForm::Mbp,
                suspect,
                suspect_known: !suspect,
            };
            assert_eq!(SnapshotBegin::from_record(&begin.to_record()), Some(begin));
        }
        let end = SnapshotEnd { instrument: InstrumentId(4), at, orders: u64::MAX, levels: 3, count: 9 };
        assert_eq!(SnapshotEnd::from_record(&end.to_record()), Some(end));
    }

    #[test]
    fn an_order_keeps_its_priority_whatever_its_size() {
        let order = RestingOrder { side: Side::ASK, price: -5, size: u64::MAX, priority: (1 << 47) + 3 };
        assert_eq!(order_of(&order_record(InstrumentId(1), 9, &order)), order);
    }
}
