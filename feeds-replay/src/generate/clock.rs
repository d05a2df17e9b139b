//! Time of day: when each message is sent.
//!
//! A day is a row of phases, each with a beginning, an end and a planned number of messages. Within a phase messages come
//! by a process of two states: quiet, with gaps of the phase's own size, and micro-bursts at 10 to 80 times the rate of the
//! whole day. Most bursts are short and a few are very long, as on a real venue; and a coming order that takes several
//! resting ones sets off messages within a microsecond. The quiet gap is worked out anew from what time and how many
//! messages are left, so that a phase fills its time and never passes its end.

use super::random::Random;

const SECOND: u64 = 1_000_000_000;

/// One quiet message in so many begins a burst.
const BURST_BEGINS: u64 = 64;
/// The shortest burst, in messages. Half are that long, a quarter twice as long, and so on up to the longest.
const SHORTEST_BURST: u64 = 8;
/// A burst's rate, as a multiple of the day's mean rate.
const BURST_FACTORS: std::ops::Range<u64> = 10..80;
/// Mean gap between messages that one message sets off, in ns.
const AT_ONCE_GAP: u64 = 200;

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
    /// The mean gap of the whole day, ns.
    day_gap: u64,
    /// How often a burst's length doubles at most.
    doublings: u32,
    /// Messages left of the burst under way, and their mean gap.
    burst_left: u64,
    burst_gap: u64,
    /// Messages that follow at once.
    at_once: u64,
}

impl Clock {
    /// At the start of a day of `messages` messages from `now` to `end`, with bursts of up to `longest_burst` messages.
    pub(super) fn new(now: u64, end: u64, messages: u64, longest_burst: u32) -> Clock {
        let day_gap = (end - now) / messages.max(1);
        let doublings = (u64::from(longest_burst) / SHORTEST_BURST).max(1).ilog2();
        Clock { now, end: now, remaining: 0, day_gap, doublings, burst_left: 0, burst_gap: 0, at_once: 0 }
    }

    /// Begins a phase of about `messages` messages.
    pub(super) fn begin(&mut self, start: u64, end: u64, messages: u64) {
        self.now = self.now.max(start);
        self.end = end.max(self.now);
        self.remaining = messages;
        self.burst_left = 0;
    }

    pub(super) fn is_bursting(&self) -> bool {
        self.burst_left > 0
    }

    /// The next `messages` messages are set off by the one before.
    pub(super) fn begin_at_once(&mut self, messages: u64) {
        self.at_once = messages;
    }

    /// Whatever was to follow at once has come.
    pub(super) fn end_at_once(&mut self) {
        self.at_once = 0;
    }

    /// The time of the next message.
    #[inline]
    pub(super) fn next(&mut self, random: &mut Random) -> u64 {
        let mean = (self.end - self.now) / (self.remaining + 1);
        self.remaining = self.remaining.saturating_sub(1);
        let gap = if self.at_once > 0 {
            self.at_once -= 1;
            random.gap(AT_ONCE_GAP.min(mean))
        } else if self.burst_left > 0 {
            self.burst_left -= 1;
            random.gap(self.burst_gap)
        } else {
            if random.one_in(BURST_BEGINS) {
                self.burst_left = SHORTEST_BURST << random.halving().min(self.doublings);
                let factor = BURST_FACTORS.start + random.below(BURST_FACTORS.end - BURST_FACTORS.start);
                // Where a phase is busier than the day, as at the opening, its bursts are still bursts.
                self.burst_gap = (self.day_gap / factor).min(mean / 4);
            }
            // The mean length of a burst: half of the shortest for each length there is, and once more for the longest. Of
            // all messages, BURST_BEGINS of so many are quiet and take nearly all the time.
            let mean_burst = SHORTEST_BURST / 2 * (u64::from(self.doublings) + 2);
            random.gap(mean * (BURST_BEGINS + mean_burst) / BURST_BEGINS)
        };
        self.now = (self.now + gap).min(self.end);
        self.now
    }
}
