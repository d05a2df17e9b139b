//! Whose doing a late record was: gaps of the threads that it passed, and the burst it stood in.

use super::log::{Gap, NO_TIME};
use super::outcome::{Cause, ThreadGaps};
use crate::verdict::duration;

/// The gaps of one thread, on the run's own line of time.
pub struct Gaps {
    thread: String,
    /// Times are ns from the start of the run.
    gaps: Vec<Gap>,
    /// For each gap: the machine's time in it and in those before it of the same busy stretch.
    machine: Vec<u64>,
}

impl Gaps {
    /// The gaps of `thread`, whose times are ns since 1970, of a run that began at `start_ns`. What was over before that
    /// is left out.
    pub fn new(thread: &str, mut gaps: Vec<Gap>, start_ns: u64) -> Gaps {
        gaps.retain(|gap| gap.end > start_ns);
        let moved = |time: u64| if time == u64::MAX { time } else { time.saturating_sub(start_ns) };
        for gap in &mut gaps {
            for time in [&mut gap.start, &mut gap.end, &mut gap.busy_from, &mut gap.busy_until] {
                *time = moved(*time);
            }
        }
        let mut machine: Vec<u64> = Vec::with_capacity(gaps.len());
        for (at, gap) in gaps.iter().enumerate() {
            let before = match at.checked_sub(1) {
                Some(before) if gaps[before].busy_until > gap.start => machine[before],
                _ => 0,
            };
            machine.push(before + gap.machine_ns);
        }
        Gaps { thread: thread.into(), gaps, machine }
    }

    /// The most that the machine can have delayed what this thread did at `at`: its time in the stretch without a pause
    /// that `at` lies in. Work that is done in turn, without the machine, would have been done that much sooner at best.
    pub fn machine_until(&self, at: u64) -> u64 {
        let next = self.gaps.partition_point(|gap| gap.start < at);
        match next.checked_sub(1) {
            Some(last) if self.gaps[last].busy_until >= at => self.machine[last],
            _ => 0,
        }
    }

    /// The machine's time between `from` and `to`. Where in a gap it lay is not known: it is taken to be spread evenly, so that
    /// what lies side by side in one gap is not given the same time twice.
    pub fn machine_within(&self, from: u64, to: u64) -> u64 {
        let overlap = |gap: &Gap| gap.end.min(to).saturating_sub(gap.start.max(from));
        let part = |gap: &Gap| {
            u128::from(overlap(gap)) * u128::from(gap.machine_ns) / u128::from((gap.end - gap.start).max(1))
        };
        self.within(from, to).map(|gap| part(gap) as u64).sum()
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
            let what = format!("{thread} was away from its loop for {}", duration(took));
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
    let kept = threads.iter().map(|gaps| (gaps.machine_until(until), gaps.thread.as_str())).max();
    if let Some((machine_ns, thread)) = kept
        && machine_ns * 2 >= latency_ns
    {
        let kept = duration(machine_ns);
        return (Cause::Machine, format!("records had piled up while the machine kept {thread} away for {kept}"));
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
        Gap {
            start: 1_000 + start,
            end: 1_000 + end,
            machine_ns,
            wait_ns: machine_ns,
            busy_until: 1_000 + end + 2_000_000,
            ..Gap::default()
        }
    }

    #[test]
    fn a_record_in_a_gap_of_the_machines_is_told_apart_from_one_of_our_own() {
        let machine = Gaps::new("the subscriber", vec![gap(1_000_000, 6_000_000, 5_000_000)], 1_000);
        let own = Gaps::new("the subscriber", vec![gap(1_000_000, 6_000_000, 0)], 1_000);
        let none = Gaps::new("the publisher", Vec::new(), 1_000);
        let (cause, text) = explain(2_000_000, 4_000_000, 1, &[&none, &machine]);
        assert!(cause == Cause::Machine && text.contains("waited 5.00 ms"), "{text}");
        let (cause, text) = explain(2_000_000, 4_000_000, 1, &[&none, &own]);
        assert!(cause == Cause::Own && text.contains("nothing"), "{text}");
        let (cause, text) = explain(7_000_000, 900_000, 1, &[&none, &machine]);
        assert!(cause == Cause::Machine && text.contains("piled up"), "{text}");
        assert_eq!(explain(20_000_000, 50_000, 500, &[&none, &machine]).0, Cause::Burst);
        assert_eq!(explain(20_000_000, 50_000, 3, &[&none, &machine]).0, Cause::Unknown);
    }

    #[test]
    fn the_machine_can_have_delayed_by_no_more_than_its_time_since_the_last_pause() {
        let stretch = |start: u64, end, machine, from: u64, until: u64| Gap {
            busy_from: 1_000 + from,
            busy_until: 1_000 + until,
            ..gap(start, end, machine)
        };
        let gaps = vec![
            stretch(100, 200, 90, 100, 900),
            stretch(300, 400, 100, 100, 900),
            stretch(2_000, 2_500, 0, 1_900, 2_600),
            Gap { busy_until: u64::MAX, ..stretch(3_000, 3_500, 400, 2_950, 0) },
        ];
        let gaps = Gaps::new("the subscriber", gaps, 1_000);
        for (at, expected) in
            [(50, 0), (150, 90), (250, 90), (350, 190), (900, 190), (901, 0), (2_400, 0), (2_960, 0), (9_000, 400)]
        {
            assert_eq!(gaps.machine_until(at), expected, "{at}");
        }
        let summary = gaps.summary();
        assert_eq!((summary.gaps, summary.machine_ns, summary.own_ns), (4, 590, 610));
    }
}
