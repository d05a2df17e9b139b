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
    /// So many messages back to back, every so often, whatever their times.
    Bursts {
        /// Messages in a burst, at least 1; all of one burst are due at once.
        messages: u32,
        /// From one burst to the next, ns.
        every_ns: u64,
    },
    /// As captured, but the beginning of each period is squeezed: its messages come so many times as fast, and the rest of
    /// the squeezed stretch is silent. The total time stays.
    Squeezed {
        /// As in [`Pace::Speed`]; what follows is of time at that speed.
        speed: f64,
        /// From one squeezed stretch to the next, ns.
        every_ns: u64,
        /// How long a stretch is before it is squeezed, ns; at most `every_ns`.
        width_ns: u64,
        /// How many times as fast its messages come, at least 1.
        factor: f64,
    },
    /// As fast as it goes. There is no intended time, so nothing can be said against one.
    Max,
}

/// Why a pace cannot be kept.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
pub enum PaceError {
    /// A speed or a rate that is no positive number, or one so small that a day would not fit into 64 bits of ns.
    #[error("{0} is no usable pace: give a number from 0.000001 to 1000000000, or 'max'")]
    OutOfRange(f64),
    /// A burst of nothing, or no time between bursts.
    #[error("bursts of {messages} messages every {every_ns} ns: both are to be at least 1")]
    Bursts {
        /// Messages in a burst.
        messages: u32,
        /// Time between them, ns.
        every_ns: u64,
    },
    /// A stretch that is empty or longer than its period, or a factor below 1.
    #[error(
        "{width_ns} ns of every {every_ns} ns, {factor} times as fast: a stretch fits into its period, and a factor is at least 1"
    )]
    Squeezed {
        /// The stretch.
        width_ns: u64,
        /// The period.
        every_ns: u64,
        /// The factor.
        factor: f64,
    },
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pace::Speed(1.0) => f.write_str("at its own speed"),
            Pace::Speed(speed) => write!(f, "at {speed} times its own speed"),
            Pace::Rate(rate) => write!(f, "at {rate} messages a second"),
            Pace::Bursts { messages, every_ns } => {
                write!(f, "in bursts of {messages} messages every {} us", *every_ns as f64 / 1e3)
            }
            Pace::Squeezed { speed, every_ns, width_ns, factor } => write!(
                f,
                "at {speed} times its own speed, the first {} ms of every {} ms {factor} times as fast again",
                *width_ns as f64 / 1e6,
                *every_ns as f64 / 1e6
            ),
            Pace::Max => f.write_str("flat out"),
        }
    }
}

impl Pace {
    /// Checks the numbers.
    ///
    /// # Errors
    /// [`PaceError`].
    pub fn checked(self) -> Result<Pace, PaceError> {
        match self {
            Pace::Speed(n) | Pace::Rate(n) | Pace::Squeezed { speed: n, .. } if !(1e-6..=1e9).contains(&n) => {
                Err(PaceError::OutOfRange(n))
            }
            Pace::Bursts { messages, every_ns } if messages == 0 || every_ns == 0 => {
                Err(PaceError::Bursts { messages, every_ns })
            }
            Pace::Squeezed { every_ns, width_ns, factor, .. }
                if width_ns == 0 || width_ns > every_ns || !(1.0..=1e9).contains(&factor) =>
            {
                Err(PaceError::Squeezed { width_ns, every_ns, factor })
            }
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
            Pace::Speed(speed) => self.elapsed(time, speed),
            Pace::Bursts { messages, every_ns } => index / u64::from(messages) * every_ns,
            Pace::Squeezed { speed, every_ns, width_ns, factor } => {
                let elapsed = self.elapsed(time, speed);
                let into = elapsed % every_ns;
                if into < width_ns { elapsed - into + (into as f64 / factor) as u64 } else { elapsed }
            }
            // In thousandths of a message a second, so that common rates are exact.
            Pace::Rate(rate) => (u128::from(index) * 1_000_000_000_000 / ((rate * 1000.0).max(1.0) as u128)) as u64,
            Pace::Max => return None,
        };
        Some(Nanos(self.start_ns).plus(after))
    }

    /// From the first message's own time to `time`, at `speed`, ns.
    #[inline]
    fn elapsed(&self, time: Nanos, speed: f64) -> u64 {
        let elapsed = time.since(Nanos(self.first_ns)).max(0) as u64;
        if speed == 1.0 { elapsed } else { (elapsed as f64 / speed) as u64 }
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
    fn bursts_are_due_at_once_and_do_not_drift() {
        let pace = Pace::Bursts { messages: 100, every_ns: 1_000_000 };
        let schedule = Schedule { pace, start_ns: 7, first_ns: 0, first_ordinal: 1 };
        for (index, due) in [(0, 0), (99, 0), (100, 1_000_000), (60_000_000 - 1, 599_999_000_000)] {
            assert_eq!(schedule.intended(index, Nanos(0)), Some(Nanos(7 + due)), "{index}");
        }
        assert!(Pace::Bursts { messages: 0, every_ns: 1 }.checked().is_err());
        assert!(Pace::Bursts { messages: 1, every_ns: 0 }.checked().is_err());
    }

    #[test]
    fn a_squeezed_stretch_comes_faster_and_the_whole_takes_as_long() {
        let pace = Pace::Squeezed { speed: 1.0, every_ns: 1_000, width_ns: 100, factor: 4.0 };
        let schedule = Schedule { pace, start_ns: 0, first_ns: 50, first_ordinal: 1 };
        for (after, due) in [(0, 0), (40, 10), (99, 24), (100, 100), (999, 999), (1_000, 1_000), (1_040, 1_010)] {
            assert_eq!(schedule.intended(0, Nanos(50 + after)), Some(Nanos(due)), "{after}");
        }
        let ten_minutes = 600_000_000_000;
        assert_eq!(schedule.intended(0, Nanos(50 + ten_minutes)), Some(Nanos(ten_minutes)));
        for (width_ns, factor) in [(0, 2.0), (1_001, 2.0), (100, 0.5), (100, f64::NAN)] {
            let bad = Pace::Squeezed { speed: 1.0, every_ns: 1_000, width_ns, factor };
            assert!(bad.checked().is_err(), "{width_ns} {factor}");
        }
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
