//! Times as values. Nothing in this crate reads a clock.

use std::fmt;

/// A point in time: nanoseconds since 1970-01-01T00:00:00Z.
///
/// [`Nanos::UNDEFINED`] (all ones, as in DBN) stands for "no time was given".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// No time was given.
    pub const UNDEFINED: Nanos = Nanos(u64::MAX);
    /// The epoch itself.
    pub const ZERO: Nanos = Nanos(0);

    /// This time plus `ns`, saturating.
    #[inline]
    pub const fn plus(self, ns: u64) -> Nanos {
        Nanos(self.0.saturating_add(ns))
    }

    /// `self - earlier` in ns, signed: clocks of different machines may well be the wrong way round.
    #[inline]
    pub const fn since(self, earlier: Nanos) -> i64 {
        self.0.wrapping_sub(earlier.0) as i64
    }

    /// The low 32 bits, as records carry them.
    #[inline]
    pub const fn low(self) -> u32 {
        self.0 as u32
    }

    /// The time nearest to `anchor` whose low 32 bits are `low`: within 2^31 ns (2.1 s) either way.
    #[inline]
    pub const fn nearest(anchor: Nanos, low: u32) -> Nanos {
        let ahead = low.wrapping_sub(anchor.0 as u32) as i32;
        Nanos(anchor.0.wrapping_add(ahead as i64 as u64))
    }

    /// The first time at or after `anchor` whose low 32 bits are `low`: within 2^32 ns (4.3 s).
    #[inline]
    pub const fn next_with_low(anchor: Nanos, low: u32) -> Nanos {
        let ahead = low.wrapping_sub(anchor.0 as u32);
        Nanos(anchor.0.wrapping_add(ahead as u64))
    }
}

impl fmt::Debug for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Nanos::UNDEFINED { f.write_str("undefined") } else { write!(f, "{}ns", self.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_halves_give_back_the_full_time_on_either_side_of_the_anchor() {
        let anchor = Nanos((7 << 32) + 5);
        for offset in [-(1i64 << 31) + 1, -6, -5, 0, 1, 1 << 30, (1 << 31) - 1] {
            let t = Nanos(anchor.0.wrapping_add_signed(offset));
            assert_eq!(Nanos::nearest(anchor, t.low()), t, "offset {offset}");
            assert_eq!(t.since(anchor), offset);
        }
    }

    #[test]
    fn a_clock_that_never_goes_back_is_followed_across_the_wrap() {
        let anchor = Nanos((7 << 32) + 0xFFFF_FFF0);
        for ahead in [0u64, 1, 0x20, (1 << 32) - 1] {
            let t = anchor.plus(ahead);
            assert_eq!(Nanos::next_with_low(anchor, t.low()), t);
        }
    }
}
