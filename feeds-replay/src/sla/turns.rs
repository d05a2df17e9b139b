//! Gaps in a thread's own turns, and what the kernel's counters say of them.
//!
//! A loop that polls knows when it was away. Whether the machine took it away is for counters to show: time that the
//! scheduler let it wait, a switch while it had nothing to do, time that the hypervisor withheld. Without one of these a gap
//! is the loop's own. The counters are read after a long gap only, so that a calm run does not pay for them.

use std::fs::File;
use std::os::unix::fs::FileExt;

use protocol::time::Nanos;

use super::log::{Gap, NO_TIME};

/// An idle turn that took so long is a gap, ns.
const LONG_IDLE_NS: u64 = 20_000;
/// A turn with work that took so long is looked into, ns: the machine may have been at it too.
const LONG_WORK_NS: u64 = 50_000;
/// From this length on the slow counters are read too (some 70 us), ns.
const LOOK_DEEPER_NS: u64 = 1_000_000;
/// Gaps that are kept.
const KEPT: usize = 1 << 16;
/// A tick of `/proc/stat`, ns (proc(5): USER_HZ, 100 on every Linux of our targets).
const TICK_NS: u64 = 10_000_000;

/// Counters of a thread and its core, as far as the kernel keeps them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Time waited for a core, ns.
    pub wait_ns: u64,
    /// Times put on a core.
    pub switches: u64,
    /// Page faults.
    pub faults: u64,
    /// Ticks withheld by the hypervisor from the thread's core; read only when looking deeper.
    pub steal_ticks: u64,
    /// Interrupts of the thread's core; read only when looking deeper.
    pub interrupts: u64,
}

/// Where counters come from.
pub trait Counters {
    /// Reads them. What is not read, or not kept by this kernel, stays as it was.
    fn read(&mut self, deeper: bool, into: &mut Counts);
}

/// The kernel's, for the calling thread.
pub struct ProcCounters {
    schedstat: Option<File>,
    stat: Option<File>,
    machine: Option<File>,
    interrupts: Option<File>,
    core: Option<usize>,
    buffer: Vec<u8>,
}

impl ProcCounters {
    /// For the calling thread, which runs on `core`, if it is pinned.
    pub fn of_this_thread(core: Option<usize>) -> ProcCounters {
        let open = |path| File::open(path).ok();
        ProcCounters {
            schedstat: open("/proc/thread-self/schedstat"),
            stat: open("/proc/thread-self/stat"),
            machine: open("/proc/stat"),
            interrupts: open("/proc/interrupts"),
            core,
            buffer: vec![0; 1 << 16],
        }
    }
}

/// The whole of a small file of /proc, read again.
fn again<'a>(file: &Option<File>, buffer: &'a mut [u8]) -> Option<&'a str> {
    let len = file.as_ref()?.read_at(buffer, 0).ok()?;
    std::str::from_utf8(&buffer[..len]).ok()
}

impl Counters for ProcCounters {
    fn read(&mut self, deeper: bool, into: &mut Counts) {
        // Documentation/scheduler/sched-stats.rst: time on the core, time waiting for one, times put on one.
        if let Some(text) = again(&self.schedstat, &mut self.buffer) {
            let mut numbers = text.split_ascii_whitespace().skip(1).map_while(|number| number.parse().ok());
            (into.wait_ns, into.switches) =
                (numbers.next().unwrap_or(into.wait_ns), numbers.next().unwrap_or(into.switches));
        }
        // proc(5), stat: behind the name in brackets, minor faults are the 8th field and major ones the 10th.
        if let Some(text) = again(&self.stat, &mut self.buffer)
            && let Some((_, fields)) = text.rsplit_once(')')
        {
            let fields: [u64; 2] = [7, 9]
                .map(|at| fields.split_ascii_whitespace().nth(at).and_then(|number| number.parse().ok()).unwrap_or(0));
            into.faults = fields[0] + fields[1];
        }
        if !deeper {
            return;
        }
        let core = self.core.map_or("cpu ".to_owned(), |core| format!("cpu{core} "));
        if let Some(text) = again(&self.machine, &mut self.buffer)
            && let Some(line) = text.lines().find(|line| line.starts_with(&core))
        {
            // proc(5), stat: the 8th number of a core's line is steal.
            let steal = line.split_ascii_whitespace().nth(8).and_then(|number| number.parse().ok());
            into.steal_ticks = steal.unwrap_or(into.steal_ticks);
        }
        if let Some(text) = again(&self.interrupts, &mut self.buffer)
            && let Some(core) = self.core
        {
            let column = format!("CPU{core}");
            let at = text.lines().next().and_then(|head| head.split_ascii_whitespace().position(|name| name == column));
            if let Some(at) = at {
                into.interrupts = text
                    .lines()
                    .skip(1)
                    .filter_map(|line| line.split_ascii_whitespace().nth(at + 1)?.parse::<u64>().ok())
                    .sum();
            }
        }
    }
}

/// The turns of one thread; see the [module](self).
pub struct Turns<C> {
    counters: C,
    counts: Counts,
    last: Option<Nanos>,
    /// The beginning of the last turn that found nothing to do.
    idle_at: Nanos,
    gaps: Vec<Gap>,
    /// Gaps, at the end of the list, since which the thread has had something to do all the time.
    open: usize,
    /// Gaps for which there was no room.
    unkept: u64,
}

impl<C: Counters> Turns<C> {
    /// No turn yet. Allocates all it needs.
    pub fn new(mut counters: C) -> Turns<C> {
        let mut counts = Counts::default();
        counters.read(true, &mut counts);
        Turns { counters, counts, last: None, idle_at: Nanos::ZERO, gaps: Vec::with_capacity(KEPT), open: 0, unkept: 0 }
    }

    /// A turn begins at `now`; the one before did `work`.
    #[inline]
    pub fn turn(&mut self, now: Nanos, work: usize) {
        if let Some(last) = self.last.replace(now) {
            if work == 0 {
                self.idle_at = last;
                if self.open > 0 {
                    self.close(last);
                }
            }
            let took = now.0.saturating_sub(last.0);
            if took >= if work == 0 { LONG_IDLE_NS } else { LONG_WORK_NS } {
                self.look(last, now, work > 0);
            }
        }
    }

    /// At `now` there was nothing left to do: what had piled up in the gaps before is dealt with.
    #[cold]
    fn close(&mut self, now: Nanos) {
        let from = self.gaps.len() - self.open;
        self.gaps[from..].iter_mut().for_each(|gap| gap.busy_until = now.0);
        self.open = 0;
    }

    #[cold]
    fn look(&mut self, start: Nanos, end: Nanos, worked: bool) {
        let took = end.0 - start.0;
        let before = self.counts;
        let deeper = took >= LOOK_DEEPER_NS;
        self.counters.read(deeper, &mut self.counts);
        let now = self.counts;
        let wait_ns = now.wait_ns.saturating_sub(before.wait_ns);
        let switches = now.switches.saturating_sub(before.switches) as u32;
        let steal_ticks = now.steal_ticks.saturating_sub(before.steal_ticks) as u32;
        // A loop that had nothing to do and was switched away was kept from its core, whatever ran there. One that had work
        // may have let go of it itself: only what it waited for counts.
        let machine_ns =
            if !worked && switches > 0 { took } else { took.min(wait_ns.max(u64::from(steal_ticks) * TICK_NS)) };
        if self.gaps.len() == KEPT {
            self.unkept += 1;
            return;
        }
        self.gaps.push(Gap {
            start: start.0,
            end: end.0,
            machine_ns,
            wait_ns,
            switches,
            faults: now.faults.saturating_sub(before.faults) as u32,
            steal_ticks,
            interrupts: if deeper { now.interrupts.saturating_sub(before.interrupts) as u32 } else { NO_TIME },
            worked: u32::from(worked),
            reserved: 0,
            busy_from: self.idle_at.0,
            busy_until: u64::MAX,
        });
        self.open += 1;
    }

    /// The gaps, in order.
    pub fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    /// Gaps for which there was no room.
    pub fn unkept(&self) -> u64 {
        self.unkept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counters that a test sets.
    struct Said(std::rc::Rc<std::cell::Cell<Counts>>);

    impl Counters for Said {
        fn read(&mut self, deeper: bool, into: &mut Counts) {
            let said = self.0.get();
            *into = if deeper {
                said
            } else {
                Counts { steal_ticks: into.steal_ticks, interrupts: into.interrupts, ..said }
            };
        }
    }

    fn gap(took: u64, work: usize, counts: Counts) -> Option<Gap> {
        let said = std::rc::Rc::default();
        let mut turns = Turns::new(Said(std::rc::Rc::clone(&said)));
        turns.turn(Nanos(1_000), 0);
        said.set(counts);
        turns.turn(Nanos(1_000 + took), work);
        turns.gaps().first().copied()
    }

    #[test]
    fn a_gap_is_the_machines_only_if_a_counter_shows_it() {
        let none = Counts::default();
        let waited = Counts { wait_ns: 3_000_000, switches: 1, ..none };
        let machine = |took, work, counts| gap(took, work, counts).expect("long enough").machine_ns;
        assert_eq!(machine(5_000_000, 0, none), 0, "nothing shows it: ours");
        assert_eq!(machine(5_000_000, 0, waited), 5_000_000, "switched away while idle");
        assert_eq!(machine(5_000_000, 9, waited), 3_000_000, "with work, only the wait");
        assert_eq!(machine(50_000_000, 9, Counts { switches: 1, ..none }), 0, "it slept by itself");
        assert_eq!(machine(15_000_000, 9, Counts { steal_ticks: 1, ..none }), 10_000_000);
        assert_eq!(machine(2_000_000, 9, waited), 2_000_000, "never more than the gap");
        assert_eq!(gap(19_999, 0, none), None);
        assert_eq!(gap(49_999, 1, none), None, "an ordinary turn with work");
    }

    #[test]
    fn gaps_of_one_busy_stretch_know_where_it_began_and_ended() {
        let mut turns = Turns::new(Said(std::rc::Rc::default()));
        // Idle at 0 and 1; work from 2 us to 300 us, with two long turns; idle again at 301 us.
        for (now, work) in [(0, 1), (1, 0), (2, 0), (102, 5), (110, 5), (300, 5), (301, 5), (302, 0), (400, 0)] {
            turns.turn(Nanos(now * 1_000), work);
        }
        let spans: Vec<_> = turns.gaps().iter().map(|gap| (gap.start, gap.busy_from, gap.busy_until)).collect();
        assert_eq!(spans, [(2_000, 1_000, 301_000), (110_000, 1_000, 301_000), (302_000, 302_000, u64::MAX)]);
    }

    #[test]
    fn the_kernels_counters_see_a_thread_that_waits_for_its_core() {
        let core = publisher::pin::usable_cores()[0];
        let busy = move || {
            publisher::pin::pin(core).expect("a usable core");
            let mut counters = ProcCounters::of_this_thread(Some(core));
            let (mut before, mut after) = (Counts::default(), Counts::default());
            counters.read(true, &mut before);
            let began = std::time::Instant::now();
            while began.elapsed().as_millis() < 150 {
                std::hint::spin_loop();
            }
            counters.read(true, &mut after);
            (after.wait_ns - before.wait_ns, after.interrupts >= before.interrupts)
        };
        let [one, two] = [busy; 2].map(std::thread::spawn).map(|thread| thread.join().expect("no panic"));
        // Together they had 150 ms of one core at the very least to wait for; half leaves room for a late start.
        assert!(one.0 + two.0 > 75_000_000, "{one:?} {two:?}");
        assert!(one.1 && two.1);
    }
}
