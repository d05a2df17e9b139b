//! What the machine took from a busy-polling thread: gaps between its own turns.
//!
//! A thread that polls reads the clock every turn. When a turn that had nothing to do took long all the same, something
//! else had the core: an interrupt, another process, the hypervisor. [`IdleGaps`] keeps those gaps weighted by time, so
//! that a percentile answers the question that matters to a message: *at a random moment, how long is the gap one would
//! fall into?*

use hdrhistogram::Histogram;
use protocol::time::Nanos;

/// Gaps shorter than this are ordinary turns; their time is only summed.
const LEAST_NS: u64 = 1_000;

/// Gaps between the turns of one thread.
pub struct IdleGaps {
    /// Gaps of at least [`LEAST_NS`], each counted once per ns of its length.
    long: Histogram<u64>,
    /// Time in shorter gaps, ns.
    short_ns: u64,
    last: Option<Nanos>,
    last_was_idle: bool,
}

impl Default for IdleGaps {
    fn default() -> IdleGaps {
        IdleGaps::new()
    }
}

impl IdleGaps {
    /// Nothing seen yet. Allocates all it needs: gaps up to 100 s, three digits.
    pub fn new() -> IdleGaps {
        let long = Histogram::new_with_bounds(LEAST_NS, 100_000_000_000, 3).expect("bounds are legal");
        IdleGaps { long, short_ns: 0, last: None, last_was_idle: false }
    }

    /// A turn begins at `now`, and the one before did `work`. A turn that worked is not the machine's fault, however long
    /// it took: only idle turns count.
    #[inline]
    pub fn turn(&mut self, now: Nanos, work_before: usize) {
        self.last_was_idle = work_before == 0;
        if let Some(last) = self.last.replace(now)
            && self.last_was_idle
        {
            let gap = now.0.saturating_sub(last.0);
            if gap < LEAST_NS {
                self.short_ns += gap;
            } else {
                self.long.saturating_record_n(gap, gap);
            }
        }
    }

    /// The gap, ns, that a share `percentile` of all idle time lies within; 0 where that is below the 1 us that are told
    /// apart.
    pub fn percentile(&self, percentile: f64) -> u64 {
        let total = self.short_ns as f64 + self.long.len() as f64;
        let beyond = total * (1.0 - percentile / 100.0);
        if total == 0.0 || (self.long.len() as f64) <= beyond {
            return 0;
        }
        let within_long = (self.long.len() as f64 - beyond) / self.long.len() as f64;
        self.long.value_at_quantile(within_long)
    }

    /// The longest gap, ns; 0 if none reached 1 us.
    pub fn max(&self) -> u64 {
        self.long.max()
    }

    /// All idle time seen, ns.
    pub fn idle_ns(&self) -> u64 {
        self.short_ns + self.long.len()
    }
}

/// How long the scheduler has kept the calling thread waiting for a core, ns, since it began; `None` where the kernel does
/// not say. A counter of the kernel's own: what it shows was not the loop's doing.
pub fn off_core_ns() -> Option<u64> {
    // Documentation/scheduler/sched-stats.rst: time on the core, time waiting for one, slices.
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_time_not_of_turns() {
        let mut gaps = IdleGaps::new();
        let mut now = Nanos(0);
        gaps.turn(now, 0);
        // 999 us in turns of 100 ns, then one gap of 1 ms: half of all time, though one turn in ten thousand.
        for _ in 0..9_990 {
            now = now.plus(100);
            gaps.turn(now, 0);
        }
        now = now.plus(1_000_000);
        gaps.turn(now, 0);
        assert_eq!(gaps.percentile(40.0), 0);
        assert!((990_000..=1_010_000).contains(&gaps.percentile(60.0)), "{}", gaps.percentile(60.0));
        // A turn that worked is not counted.
        now = now.plus(50_000_000);
        gaps.turn(now, 3);
        assert!(gaps.max() < 1_010_000);
    }
}
