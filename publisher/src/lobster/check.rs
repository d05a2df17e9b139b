//! The levels that the records make, held against the order-book file.
//!
//! The file shows the best levels only, and begins in the middle of the day. So the levels of its first row are the seed; from
//! then on each record changes them, and every level that a row *and* the row before it show has to have the size that we
//! computed. So does one that the message itself made. Any other level that a row shows and the one before does not has
//! come into the window from below, where nobody could follow it: it is learned, and counted.

use std::collections::BTreeMap;

use protocol::record::{Kind, Record, Side};

use super::book_file::{BookRow, Levels};

/// Prices in 10^-9 dollars; the file has 10^-4.
const NANO_PER_UNIT: i64 = 100_000;

/// What came of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Rows that were compared.
    pub rows: u64,
    /// Levels in a row and in the one before it.
    pub compared: u64,
    /// Of these and of `made`, those whose size is not the one that we computed: row (from 1), side, price in 10^-4, ours, theirs.
    pub wrong: Vec<(u64, Side, i64, u64, u64)>,
    /// Levels that the message itself made; compared too.
    pub made: u64,
    /// Levels that came into the window from below, and were learned.
    pub learned: u64,
}

/// Holds records against rows.
#[derive(Debug, Default)]
pub struct Check {
    sides: [BTreeMap<i64, i64>; 2],
    before: Option<BookRow>,
    outcome: Outcome,
}

impl Check {
    /// Takes the records of the next message, and the row after it.
    pub fn row(&mut self, records: &[Record], row: BookRow) {
        self.outcome.rows += 1;
        let Some(before) = self.before.take() else {
            for (own, levels) in self.sides.iter_mut().zip([&row.bids, &row.asks]) {
                own.extend(levels.iter().map(|(price, size)| (*price, *size as i64)));
            }
            self.before = Some(row);
            return;
        };
        records.iter().for_each(|record| self.change(record));
        let sides = [(Side::BID, &row.bids, &before.bids), (Side::ASK, &row.asks, &before.asks)];
        for (own, (side, now, then)) in self.sides.iter_mut().zip(sides) {
            let made = records.iter().find(|record| record.kind == Kind::ADD && record.side == side);
            let made = made.map(|record| record.price.get() / NANO_PER_UNIT);
            compare(own, side, now, then, made, &mut self.outcome);
        }
        self.before = Some(row);
    }

    fn change(&mut self, record: &Record) {
        let size = record.size.get() as i64;
        let by = match record.kind {
            Kind::ADD => size,
            Kind::REDUCE | Kind::DELETE | Kind::EXECUTE => -size,
            _ => return,
        };
        let side = usize::from(record.side == Side::ASK);
        let level = self.sides[side].entry(record.price.get() / NANO_PER_UNIT).or_default();
        *level = level.wrapping_add(by);
    }

    /// What came of it so far.
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }
}

fn compare(
    own: &mut BTreeMap<i64, i64>,
    side: Side,
    now: &Levels,
    then: &Levels,
    made: Option<i64>,
    outcome: &mut Outcome,
) {
    for &(price, size) in now {
        let was_there = then.iter().any(|(before, _)| *before == price);
        if !was_there && made != Some(price) {
            outcome.learned += 1;
            continue;
        }
        *(if was_there { &mut outcome.compared } else { &mut outcome.made }) += 1;
        let ours = own.get(&price).copied().unwrap_or(0);
        if ours != size as i64 {
            outcome.wrong.push((outcome.rows, side, price, ours.max(0) as u64, size));
        }
    }
    // What left the window changes unseen.
    own.clear();
    own.extend(now.iter().map(|(price, size)| (*price, *size as i64)));
}
