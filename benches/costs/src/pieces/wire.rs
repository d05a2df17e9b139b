//! A line in itself.

use std::hint::black_box;

use protocol::line::{Epoch, Line, SequenceNumber, Stamp};
use protocol::record::{InstrumentId, Kind, Record, Side};

use super::Piece;

/// The stamp of the first line of every piece.
pub(super) const FIRST: Stamp = Stamp::new(Epoch(1), SequenceNumber::FIRST);

/// A record with something in every field that an order has.
pub(super) fn order() -> Record {
    let mut record = Record::new(Kind::ADD, InstrumentId(1));
    record.side = Side::BID;
    record.order_id.set(123_456_789);
    record.price.set(1_234_500_000_000);
    record.size.set(300);
    record
}

/// Encoding: a record and its stamp become a line.
pub struct Seal {
    record: Record,
    next: Stamp,
    last: Line,
}

impl Piece for Seal {
    const NAME: &'static str = "line seal";

    fn new() -> Seal {
        Seal { record: order(), next: FIRST, last: Line::ZERO }
    }

    #[inline(always)]
    fn step(&mut self) {
        self.last = black_box(Line::seal(black_box(self.record), self.next));
        self.next = self.next.plus(1);
    }

    fn check(&self, steps: u64) {
        assert_eq!(self.next, FIRST.plus(steps));
        assert!(steps == 0 || self.last.verifies(FIRST.plus(steps - 1)));
    }
}

/// Whether a line is the one that is expected.
pub struct Verify {
    line: Line,
    verified: u64,
}

impl Piece for Verify {
    const NAME: &'static str = "line verify";

    fn new() -> Verify {
        Verify { line: Line::seal(order(), FIRST), verified: 0 }
    }

    #[inline(always)]
    fn step(&mut self) {
        self.verified += u64::from(black_box(&self.line).verifies(black_box(FIRST)));
    }

    fn check(&self, steps: u64) {
        assert_eq!(self.verified, steps);
    }
}
