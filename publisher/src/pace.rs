//! When each message is to be handed over: fixed beforehand, from one anchor.
//!
//! The plan is open loop: a message's intended time depends on the plan alone, never on when the one before it went out.
//! So a sender that stalls does not hide the wait, and there is no drift: every intended time is computed from the anchor.
//! The same plan, told to a subscriber on the same host, gives it the intended time of every record it receives.

use std::fmt;

use protocol::record::Record;
use protocol::time::Nanos;
use serde::{Deserialize, Serialize};

/// How fast a feed is handed over.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pace {
    /// As captured, that many times as fast: 1 is as it was.
    Speed(f64),
    /// That many messages a second, evenly, whatever their times.
    Rate(f64),
    /// As fast as it goes. There is no intended time, so nothing can be said against one.
    Max,
}

/// Why a pace cannot be kept.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
pub enum PaceError {
    /// A speed or a rate that is no positive number, or one so small that a day would not fit into 64 bits of ns.
    #[error("{0} is no usable pace: give a number from 0.000001 to 1000000000, or 'max'")]
    OutOfRange(f64),
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pace::Speed(1.0) => f.write_str("at its own speed"),
            Pace::Speed(speed) => write!(f, "at {speed} times its own speed"),
            Pace::Rate(rate) => write!(f, "at {rate} messages a second"),
            Pace::Max => f.write_str("flat out"),
        }
    }
}

impl Pace {
    /// Checks the number.
    ///
    /// # Errors
    /// [`PaceError::OutOfRange`].
    pub fn checked(self) -> Result<Pace, PaceError> {
        match self {
            Pace::Speed(n) | Pace::Rate(n) if !(1e-6..=1e9).contains(&n) => Err(PaceError::OutOfRange(n)),
            pace => Ok(pace),
        }
    }
}

/// A [`Pace`] with its anchor.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Schedule {
    /// How fast.
    pub pace: Pace,
    /// When the first message is to be handed over, ns since 1970.
    pub start_ns: u64,
    /// The first message's own time, ns since 1970 (or since midnight, for a feed without a date).
    pub first_ns: u64,
    /// The first message's number in the venue's stream: 1 in a file without a sequence of its own.
    #[serde(default = "one")]
    pub first_ordinal: u64,
}

fn one() -> u64 {
    1
}

impl Schedule {
    /// The intended time of message `index` (from 0), whose own time is `time`; `None` with [`Pace::Max`].
    #[inline]
    pub fn intended(&self, index: u64, time: Nanos) -> Option<Nanos> {
        let after = match self.pace {
            // A venue's time that goes back gives an intended time that goes back: handed over at once, lag counted.
            Pace::Speed(speed) => {
                let elapsed = time.since(Nanos(self.first_ns)).max(0);
                if speed == 1.0 { elapsed as u64 } else { (elapsed as f64 / speed) as u64 }
            }
            // In thousandths of a message a second, so that common rates are exact.
            Pace::Rate(rate) => (u128::from(index) * 1_000_000_000_000 / ((rate * 1000.0).max(1.0) as u128)) as u64,
            Pace::Max => return None,
        };
        Some(Nanos(self.start_ns).plus(after))
    }

    /// The intended time of the message that `record` came from: its time is the record's capture time, its index the
    /// venue sequence, counted from the first message's (and less than 2^31 beyond it). A stream that goes on in another
    /// session counts from 1 again: with [`Pace::Rate`] whatever is not beyond the first message is due at once.
    #[inline]
    pub fn intended_of(&self, record: &Record) -> Option<Nanos> {
        let index = record.venue_seq.get().wrapping_sub(self.first_ordinal as u32);
        self.intended((index as i32).max(0) as u64, record.capture_time())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_packets_a_microsecond_apart_do_not_drift() {
        for (pace, step) in [(Pace::Speed(1.0), 1000), (Pace::Speed(0.5), 2000), (Pace::Rate(1e6), 1000)] {
            let schedule = Schedule { pace, start_ns: 5_000, first_ns: 34_200_000_000_000, first_ordinal: 1 };
            for index in [0u64, 1, 2, 999_999, 1_000_000] {
                let time = Nanos(schedule.first_ns + index * 1000);
                assert_eq!(schedule.intended(index, time), Some(Nanos(5_000 + index * step)), "{pace:?} {index}");
            }
        }
    }

    #[test]
    fn ten_minutes_at_an_odd_rate_end_where_arithmetic_says() {
        let schedule = Schedule { pace: Pace::Rate(123_456.0), start_ns: 0, first_ns: 0, first_ordinal: 1 };
        let index = 600 * 123_456;
        assert_eq!(schedule.intended(index, Nanos(0)), Some(Nanos(600_000_000_000)));
    }

    #[test]
    fn tiny_speeds_scale_rightly_or_are_refused() {
        let schedule = Schedule { pace: Pace::Speed(0.001), start_ns: 0, first_ns: 0, first_ordinal: 1 };
        assert_eq!(schedule.intended(1, Nanos(1_000)), Some(Nanos(1_000_000)));
        for bad in [0.0, -1.0, 1e-9, f64::NAN, f64::INFINITY, 1e12] {
            assert!(Pace::Speed(bad).checked().is_err() && Pace::Rate(bad).checked().is_err(), "{bad}");
        }
        assert_eq!(Pace::Speed(0.001).checked(), Ok(Pace::Speed(0.001)));
    }

    #[test]
    fn flat_out_has_no_intended_time() {
        let schedule = Schedule { pace: Pace::Max, start_ns: 0, first_ns: 0, first_ordinal: 1 };
        assert_eq!(schedule.intended(7, Nanos(7)), None);
    }
}
