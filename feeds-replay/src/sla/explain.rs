//! Whose doing a late record was: gaps of the threads that it passed, and the burst it stood in.

use super::log::{Gap, NO_TIME};
use super::outcome::{Cause, ThreadGaps};
use crate::verdict::duration;

/// The gaps of one thread, on the run's own line of time.
pub struct Gaps {
    thread: String,
    /// Times are ns from the start of the run.
    gaps: Vec<Gap>,
    /// What the machine's gaps may have delayed: each with as long again behind it, for what had piled up.
    touched: Vec<(u64, u64)>,
}

impl Gaps {
    /// The gaps of `thread`, whose times are ns since 1970, of a run that began at `start_ns`. What was over before that
    /// is left out.
    pub fn new(thread: &str, mut gaps: Vec<Gap>, start_ns: u64) -> Gaps {
        gaps.retain(|gap| gap.end > start_ns);
        for gap in &mut gaps {
            (gap.start, gap.end) = (gap.start.saturating_sub(start_ns), gap.end - start_ns);
        }
        let mut touched: Vec<(u64, u64)> = Vec::new();
        for gap in gaps.iter().filter(|gap| is_machine(gap)) {
            let (start, end) = (gap.start, gap.end + (gap.end - gap.start));
            match touched.last_mut() {
                Some((_, last)) if *last >= start => *last = end.max(*last),
                _ => touched.push((start, end)),
            }
        }
        Gaps { thread: thread.into(), gaps, touched }
    }

    /// Whether something between `from` and `to` may have been delayed by the machine.
    pub fn touched(&self, from: u64, to: u64) -> bool {
        let at = self.touched.partition_point(|(_, end)| *end < from);
        self.touched.get(at).is_some_and(|(start, _)| *start <= to)
    }

    /// Gaps that overlap `from..=to`.
    fn within(&self, from: u64, to: u64) -> impl Iterator<Item = &Gap> {
        let at = self.gaps.partition_point(|gap| gap.end < from);
        self.gaps[at..].iter().take_while(move |gap| gap.start <= to)
    }

    /// All of them together.
    pub fn summary(&self) -> ThreadGaps {
        let sum = |of: fn(&Gap) -> u64| self.gaps.iter().map(of).sum::<u64>();
        ThreadGaps {
            thread: self.thread.clone(),
            gaps: self.gaps.len() as u64,
            longest_ns: self.gaps.iter().map(|gap| gap.end - gap.start).max().unwrap_or(0),
            machine_ns: sum(|gap| gap.machine_ns),
            own_ns: sum(|gap| (gap.end - gap.start).saturating_sub(gap.machine_ns)),
            switches: sum(|gap| gap.switches.into()),
            faults: sum(|gap| gap.faults.into()),
            steal_ticks: sum(|gap| gap.steal_ticks.into()),
            ..ThreadGaps::default()
        }
    }
}

/// A counter shows that the machine had a tenth of it or more, or 20 us.
fn is_machine(gap: &Gap) -> bool {
    gap.machine_ns >= 20_000.min((gap.end - gap.start) / 10).max(1)
}

/// Why a record that was due at `at_ns` came `latency_ns` later, in a burst of `burst` records, past these threads.
pub fn explain(at_ns: u64, latency_ns: u64, burst: u64, threads: &[&Gaps]) -> (Cause, String) {
    let until = at_ns + latency_ns;
    let longest = threads
        .iter()
        .flat_map(|gaps| gaps.within(at_ns, until).map(|gap| (gaps.thread.as_str(), gap)))
        .max_by_key(|(_, gap)| gap.end.min(until).saturating_sub(gap.start.max(at_ns)));
    if let Some((thread, gap)) = longest {
        let overlap = gap.end.min(until).saturating_sub(gap.start.max(at_ns));
        // A gap that makes up little of the latency is no explanation of it.
        if overlap * 4 >= latency_ns {
            let took = gap.end - gap.start;
            let what = format!("the {thread} was away from its loop for {}", duration(took));
            return if gap.machine_ns * 2 >= took {
                (Cause::Machine, format!("{what}: {}", counters(gap)))
            } else if gap.worked > 0 {
                (Cause::Own, format!("{what} in a turn with work, and counters show {}: {}", shown(gap), counters(gap)))
            } else {
                (
                    Cause::Own,
                    format!("{what}, and counters show {} of the machine's doing: {}", shown(gap), counters(gap)),
                )
            };
        }
    }
    if let Some(gaps) = threads.iter().find(|gaps| gaps.touched(at_ns, until)) {
        return (Cause::Machine, format!("records had piled up while the machine kept the {} away", gaps.thread));
    }
    if burst >= 32 {
        return (Cause::Burst, format!("{burst} records were due within 100 us, and each waits for those before it"));
    }
    (Cause::Unknown, format!("no long turn of a thread that it passed, and only {burst} records due within 100 us"))
}

fn shown(gap: &Gap) -> String {
    if gap.machine_ns == 0 { "nothing".into() } else { format!("only {}", duration(gap.machine_ns)) }
}

fn counters(gap: &Gap) -> String {
    let mut all = vec![
        format!("waited {} for its core", duration(gap.wait_ns)),
        format!("{} switches", gap.switches),
        format!("{} page faults", gap.faults),
    ];
    if gap.steal_ticks > 0 {
        all.push(format!("{} ticks of 10 ms stolen by the hypervisor", gap.steal_ticks));
    }
    if gap.interrupts != NO_TIME && gap.interrupts > 0 {
        all.push(format!("{} interrupts since the last look", gap.interrupts));
    }
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(start: u64, end: u64, machine_ns: u64) -> Gap {
        Gap { start: 1_000 + start, end: 1_000 + end, machine_ns, wait_ns: machine_ns, ..Gap::default() }
    }

    #[test]
    fn a_record_in_a_gap_of_the_machines_is_told_apart_from_one_of_our_own() {
        let machine = Gaps::new("subscriber", vec![gap(1_000_000, 6_000_000, 5_000_000)], 1_000);
        let own = Gaps::new("subscriber", vec![gap(1_000_000, 6_000_000, 0)], 1_000);
        let none = Gaps::new("publisher", Vec::new(), 1_000);
        let (cause, text) = explain(2_000_000, 4_000_000, 1, &[&none, &machine]);
        assert!(cause == Cause::Machine && text.contains("waited 5.00 ms"), "{text}");
        let (cause, text) = explain(2_000_000, 4_000_000, 1, &[&none, &own]);
        assert!(cause == Cause::Own && text.contains("nothing"), "{text}");
        let (cause, text) = explain(7_000_000, 4_000_000, 1, &[&none, &machine]);
        assert!(cause == Cause::Machine && text.contains("piled up"), "{text}");
        assert_eq!(explain(20_000_000, 50_000, 500, &[&none, &machine]).0, Cause::Burst);
        assert_eq!(explain(20_000_000, 50_000, 3, &[&none, &machine]).0, Cause::Unknown);
    }

    #[test]
    fn what_the_machine_touched_reaches_as_far_behind_a_gap_as_the_gap_was_long() {
        let gaps = Gaps::new("subscriber", vec![gap(100_000, 200_000, 100_000), gap(900_000, 950_000, 0)], 1_000);
        for (from, to, expected) in [
            (0, 50_000, false),
            (50_000, 100_000, true),
            (150_000, 160_000, true),
            (290_000, 295_000, true),
            (300_001, 400_000, false),
            (900_000, 940_000, false),
        ] {
            assert_eq!(gaps.touched(from, to), expected, "{from} to {to}");
        }
        let summary = gaps.summary();
        assert_eq!((summary.gaps, summary.machine_ns, summary.own_ns), (2, 100_000, 50_000));
    }
}
