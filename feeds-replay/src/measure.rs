//! The measuring strategy: a handler that notes when things reached it.

use hdrhistogram::Histogram;
use protocol::line::Stamp;
use protocol::record::Kind;
use protocol::time::Nanos;
use publisher::pace::Schedule;
use subscriber::{Context, EventEnd, Handler, Update};
use transport::clock::Clock;

use crate::spec::Percentiles;

/// The longest latency that is told apart, ns: 1,000 s. Longer ones count as that.
const HIGHEST_NS: u64 = 1_000_000_000_000;

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, HIGHEST_NS, 3).expect("bounds are legal")
}

/// Measures each line against its intended and its actual hand-over, and each event's end against the intended one.
///
/// Reads the clock once for each line and once for each event, on purpose: a latency is taken when the strategy sees the
/// line, not when the turn began.
pub struct Meter {
    clock: Clock,
    schedule: Schedule,
    visible_from_intended: Histogram<u64>,
    complete_from_intended: Histogram<u64>,
    visible_from_actual: Histogram<u64>,
    /// The line last seen and its intended time, for the end of its event.
    last: Option<(Stamp, Option<Nanos>)>,
    negative: u64,
}

impl Meter {
    /// A meter for a run by `schedule`; `clock` must be the one the publisher reads.
    pub fn new(clock: Clock, schedule: Schedule) -> Meter {
        Meter {
            clock,
            schedule,
            visible_from_intended: histogram(),
            complete_from_intended: histogram(),
            visible_from_actual: histogram(),
            last: None,
            negative: 0,
        }
    }

    /// Delivery less intended hand-over, for each line that has an intended time.
    pub fn visible_from_intended(&self) -> Percentiles {
        Percentiles::of(&self.visible_from_intended)
    }

    /// End of event less intended hand-over.
    pub fn complete_from_intended(&self) -> Percentiles {
        Percentiles::of(&self.complete_from_intended)
    }

    /// Delivery less actual hand-over.
    pub fn visible_from_actual(&self) -> Percentiles {
        Percentiles::of(&self.visible_from_actual)
    }

    /// Lines that seem to have come before they were sent.
    pub fn negative(&self) -> u64 {
        self.negative
    }

    #[inline]
    fn note(histogram: &mut Histogram<u64>, negative: &mut u64, latency: i64) {
        match u64::try_from(latency) {
            Ok(latency) => histogram.saturating_record(latency),
            Err(_) => *negative += 1,
        }
    }
}

impl Handler for Meter {
    #[inline]
    fn on_record(&mut self, _: &Context<'_>, update: &Update<'_>) {
        if update.record.kind == Kind::CONTINUATION {
            // It has no times of its own; the record it belongs to was measured. Its event may end with it.
            if let Some((stamp, intended)) = self.last {
                self.last = Some((stamp.plus(1), intended));
            }
            return;
        }
        let now = self.clock.now();
        let intended = self.schedule.intended_of(update.record);
        if let Some(intended) = intended {
            Meter::note(&mut self.visible_from_intended, &mut self.negative, now.since(intended));
        }
        if let Some(sent) = update.ts_publish {
            Meter::note(&mut self.visible_from_actual, &mut self.negative, now.since(sent));
        }
        self.last = Some((update.stamp, intended));
    }

    #[inline]
    fn on_event_end(&mut self, _: &Context<'_>, end: &EventEnd) {
        if let Some((stamp, Some(intended))) = self.last
            && stamp == end.stamp
        {
            let now = self.clock.now();
            Meter::note(&mut self.complete_from_intended, &mut self.negative, now.since(intended));
        }
    }
}
