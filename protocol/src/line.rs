//! The line: one update that proves itself.
//!
//! A line is 64 bytes, one cache line: a [`Record`], then its [`Stamp`] XORed with the hash of the record. A reader knows
//! the stamp it expects, so all 64 bits check the line: whoever wrote it, core or card, in whatever order its words
//! became visible, a line that verifies is whole and is the one expected. There is no other validity rule.

use std::fmt;

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::record::Record;

/// Bytes in a [`Line`].
pub const LINE_LEN: usize = 64;

/// A channel's incarnation: a persisted counter, raised by each first publisher of a channel. Starts at 1.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
#[repr(transparent)]
pub struct Epoch(pub u16);

/// A line's number within its epoch: 48 bits, starts at 1, counts every line, never wraps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
#[repr(transparent)]
pub struct SequenceNumber(pub u64);

impl SequenceNumber {
    /// The first of an epoch.
    pub const FIRST: SequenceNumber = SequenceNumber(1);
    /// The last that 48 bits hold: 32 days at 100 million lines a second.
    pub const MAX: SequenceNumber = SequenceNumber((1 << 48) - 1);

    /// The number `n` further on.
    #[inline]
    pub const fn plus(self, n: u64) -> SequenceNumber {
        SequenceNumber(self.0 + n)
    }
}

/// Epoch and sequence number in one word: the epoch in the upper 16 bits.
///
/// Stamps order first by epoch, then by sequence number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[repr(transparent)]
pub struct Stamp(pub u64);

impl Stamp {
    /// From its halves. Bits of `sequence` above 48 are dropped: the sequencer stops before that.
    #[inline]
    pub const fn new(epoch: Epoch, sequence: SequenceNumber) -> Stamp {
        Stamp((epoch.0 as u64) << 48 | sequence.0 & SequenceNumber::MAX.0)
    }

    /// The epoch.
    #[inline]
    pub const fn epoch(self) -> Epoch {
        Epoch((self.0 >> 48) as u16)
    }

    /// The sequence number.
    #[inline]
    pub const fn sequence(self) -> SequenceNumber {
        SequenceNumber(self.0 & SequenceNumber::MAX.0)
    }

    /// The stamp `n` lines further on in the same epoch.
    ///
    /// One past [`SequenceNumber::MAX`] is never assigned to a line; it would spill into the epoch.
    #[inline]
    pub const fn plus(self, n: u64) -> Stamp {
        Stamp(self.0 + n)
    }
}

impl fmt::Debug for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.epoch().0, self.sequence().0)
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A record and its masked stamp: 64 bytes, 64-byte aligned.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(64))]
pub struct Line {
    /// The update.
    pub record: Record,
    /// `stamp XOR h64(record)`.
    pub masked_stamp: U64,
}

const _: () = {
    assert!(size_of::<Line>() == LINE_LEN);
    assert!(align_of::<Line>() == LINE_LEN);
    assert!(std::mem::offset_of!(Line, masked_stamp) == 56);
};

impl Line {
    /// A line's worth of zero bytes: a place never written. It verifies with no stamp that is ever assigned.
    pub const ZERO: Line = zerocopy::transmute!([0u64; 8]);

    /// Seals `record` with `stamp`.
    #[inline(always)]
    pub fn seal(record: Record, stamp: Stamp) -> Line {
        Line { masked_stamp: U64::new(stamp.0 ^ record.hash()), record }
    }

    /// The stamp this line would verify with. It means nothing until it is compared with one that was expected.
    #[inline(always)]
    pub fn stamp(&self) -> Stamp {
        Stamp(self.masked_stamp.get() ^ self.record.hash())
    }

    /// Whether this line is whole and is the one with `expected`.
    #[inline(always)]
    pub fn verifies(&self, expected: Stamp) -> bool {
        self.stamp() == expected
    }

    /// The eight words as memory holds them on a little-endian machine, the masked stamp last.
    #[inline(always)]
    pub fn words(&self) -> [u64; 8] {
        let words: [U64; 8] = zerocopy::transmute!(*self);
        words.map(U64::get)
    }

    /// From eight words, the inverse of [`Line::words`].
    #[inline(always)]
    pub fn from_words(words: [u64; 8]) -> Line {
        let words: [U64; 8] = words.map(U64::new);
        zerocopy::transmute!(words)
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{:?}] {:?}", self.stamp(), self.record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{InstrumentId, Kind};

    fn sample() -> Record {
        let mut record = Record::new(Kind::ADD, InstrumentId(7));
        record.order_id.set(99);
        record.price.set(1_234_500_000_000);
        record.size.set(300);
        record
    }

    #[test]
    fn a_sealed_line_verifies_with_its_stamp_and_no_other() {
        let stamp = Stamp::new(Epoch(3), SequenceNumber(41));
        let line = Line::seal(sample(), stamp);
        assert!(line.verifies(stamp));
        assert!(!line.verifies(stamp.plus(1)));
        assert!(!line.verifies(Stamp::new(Epoch(2), SequenceNumber(41))));
        assert_eq!(Line::from_words(line.words()), line);
    }

    #[test]
    fn any_flipped_bit_is_found() {
        let stamp = Stamp::new(Epoch(1), SequenceNumber(1));
        let line = Line::seal(sample(), stamp);
        for bit in 0..512 {
            let mut words = line.words();
            words[bit / 64] ^= 1 << (bit % 64);
            assert!(!Line::from_words(words).verifies(stamp), "bit {bit}");
        }
    }

    #[test]
    fn a_place_never_written_decodes_to_a_stamp_that_is_never_assigned() {
        // Sequence numbers this high are reached after two weeks at 100 million lines a second, in an epoch this high.
        let stamp = Line::ZERO.stamp();
        assert!(stamp.sequence().0 > 1 << 46 && stamp.epoch().0 > 1 << 12, "{stamp:?}");
    }

    #[test]
    fn stamps_order_by_epoch_first() {
        let old = Stamp::new(Epoch(1), SequenceNumber::MAX);
        let new = Stamp::new(Epoch(2), SequenceNumber::FIRST);
        assert!(new > old);
        assert_eq!((old.epoch(), old.sequence()), (Epoch(1), SequenceNumber::MAX));
    }
}
