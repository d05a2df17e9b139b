//! Time of day: when each message is sent.
//!
//! A day is a row of phases, each with a beginning, an end and a planned number of messages. Within a phase messages come
//! by a process of two states: quiet, with gaps of the phase's own size, and bursts, with gaps of a few hundred
//! nanoseconds, as when one order sets off many. The quiet gap is worked out anew from what time and how many messages
//! are left, so that a phase fills its time and never passes its end.

use super::random::Random;

const SECOND: u64 = 1_000_000_000;

/// One quiet message in so many begins a burst.
const BURST_BEGINS: u64 = 32;
/// One message of a burst in so many ends it.
const BURST_ENDS: u64 = 24;
/// Mean gap within a burst, in ns.
const BURST_GAP: u64 = 700;

/// Where the phases of a day begin, in ns since midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DayTimes {
    pub(super) start_of_messages: u64,
    pub(super) start_of_system_hours: u64,
    pub(super) opening_imbalance: u64,
    pub(super) start_of_market_hours: u64,
    pub(super) trading: u64,
    pub(super) closing_imbalance: u64,
    pub(super) closing_cross: u64,
    pub(super) end_of_market_hours: u64,
    pub(super) end_of_system_hours: u64,
    pub(super) end_of_messages: u64,
}

impl DayTimes {
    /// The hours that Nasdaq keeps.
    pub(super) const REAL: DayTimes = DayTimes {
        start_of_messages: (3 * 3600 + 5 * 60) * SECOND,
        start_of_system_hours: 4 * 3600 * SECOND,
        opening_imbalance: (9 * 3600 + 28 * 60) * SECOND,
        start_of_market_hours: (9 * 3600 + 30 * 60) * SECOND,
        trading: (9 * 3600 + 30 * 60 + 2) * SECOND,
        closing_imbalance: (15 * 3600 + 59 * 60 + 50) * SECOND,
        closing_cross: 16 * 3600 * SECOND,
        end_of_market_hours: (16 * 3600 + 5) * SECOND,
        end_of_system_hours: 20 * 3600 * SECOND,
        end_of_messages: (20 * 3600 + 5 * 60) * SECOND,
    };

    /// The same phases within `span_ns`, most of it trading, with the opening at half past nine.
    pub(super) fn compressed(span_ns: u64) -> DayTimes {
        let part = |per_mille: u64| (u128::from(span_ns) * u128::from(per_mille) / 1000) as u64;
        let start = DayTimes::REAL.start_of_market_hours - part(55);
        DayTimes {
            start_of_messages: start,
            start_of_system_hours: start + part(20),
            opening_imbalance: start + part(50),
            start_of_market_hours: start + part(55),
            trading: start + part(60),
            closing_imbalance: start + part(940),
            closing_cross: start + part(945),
            end_of_market_hours: start + part(950),
            end_of_system_hours: start + part(985),
            end_of_messages: start + span_ns,
        }
    }
}

/// Gives each message its time. Times never go back.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    now: u64,
    end: u64,
    remaining: u64,
    bursting: bool,
}

impl Clock {
    pub(super) fn new(now: u64) -> Clock {
        Clock { now, end: now, remaining: 0, bursting: false }
    }

    /// Begins a phase of about `messages` messages.
    pub(super) fn begin(&mut self, start: u64, end: u64, messages: u64) {
        self.now = self.now.max(start);
        self.end = end.max(self.now);
        self.remaining = messages;
        self.bursting = false;
    }

    pub(super) fn is_bursting(&self) -> bool {
        self.bursting
    }

    /// The time of the next message.
    #[inline]
    pub(super) fn next(&mut self, random: &mut Random) -> u64 {
        let mean = (self.end - self.now) / (self.remaining + 1);
        self.remaining = self.remaining.saturating_sub(1);
        let gap = if self.bursting {
            self.bursting = !random.one_in(BURST_ENDS);
            random.gap(BURST_GAP.min(mean / 8))
        } else {
            self.bursting = random.one_in(BURST_BEGINS);
            // Of all messages, 32 of 56 are quiet and take nearly all the time.
            random.gap(mean * (BURST_BEGINS + BURST_ENDS) / BURST_BEGINS)
        };
        self.now = (self.now + gap).min(self.end);
        self.now
    }
}
