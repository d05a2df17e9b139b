//! A snapshot put together from the lines of a reply, and judged before anybody's book is touched.

use crate::hash::{level_hash, order_hash};
use crate::record::{InstrumentId, Kind, Record, Side, UNDEFINED_PRICE};

use super::snapshot::{SnapshotBegin, SnapshotEnd, SnapshotForm, order_of};

/// A snapshot that is whole and consistent in itself: its lines are as many as it says, are of one instrument, and add up
/// to its digests.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    /// Its first line.
    pub begin: SnapshotBegin,
    /// Its last line.
    pub end: SnapshotEnd,
    /// What stands between the two.
    pub records: &'a [Record],
}

impl<'a> Snapshot<'a> {
    /// From its lines. `None` if they are no snapshot, or do not add up to what it says of itself.
    pub fn from_records(records: &'a [Record]) -> Option<Snapshot<'a>> {
        let (first, rest) = records.split_first()?;
        let (last, between) = rest.split_last()?;
        let begin = SnapshotBegin::from_record(first)?;
        let end = SnapshotEnd::from_record(last)?;
        let snapshot = Snapshot { begin, end, records: between };
        (begin.lines == rest.len() as u64 && snapshot.adds_up()).then_some(snapshot)
    }

    fn adds_up(&self) -> bool {
        let Snapshot { begin, end, records } = self;
        if end.instrument != begin.instrument || end.at != begin.at || begin.at.sequence().0 == 0 {
            return false;
        }
        let (mut orders, mut levels, mut count) = (0u64, 0u64, 0);
        for record in *records {
            let (side, price, size) = (record.side, record.price.get(), record.size.get());
            match (record.kind, begin.form) {
                _ if record.instrument_id() != begin.instrument => return false,
                (Kind::ADD, SnapshotForm::Mbo) => {
                    let order = order_of(record);
                    orders =
                        orders.wrapping_add(order_hash(record.order_id.get(), side.0, price, size, order.priority));
                }
                (Kind::LEVEL_SET, SnapshotForm::Mbp | SnapshotForm::Bbo) => {
                    levels = levels.wrapping_add(level_hash(side.0, price, size, record.order_id.get()));
                }
                (Kind::ADD | Kind::LEVEL_SET, _) => return false,
                _ => continue,
            }
            let has_ladder = [Side::BID, Side::ASK, Side::IMPLIED_BID, Side::IMPLIED_ASK].contains(&side);
            if !has_ladder || price == UNDEFINED_PRICE {
                return false;
            }
            count += 1;
        }
        // The levels of a book of orders follow from the orders, and are compared when it stands.
        let has_levels = begin.form == SnapshotForm::Mbo || levels == end.levels;
        orders == end.orders && has_levels && (count == end.count || self.is_of_channel())
    }

    /// Whether it is of the channel itself: what books are that nothing was heard of yet.
    pub fn is_of_channel(&self) -> bool {
        self.begin.instrument == InstrumentId::CHANNEL
    }
}
