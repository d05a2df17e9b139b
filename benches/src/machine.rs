//! Where a number was taken, and what the machine took away meanwhile.

use std::fmt;
use std::fs;
use std::str::FromStr;

use core_affinity::CoreId;
use hdrhistogram::Histogram;
use protocol::time::Nanos;
use publisher::pin::{self, PinError};
use serde::Serialize;
use transport::clock::Clock;

/// Facts about this machine that stand beside every number.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Machine {
    /// The processor, as it names itself.
    pub processor: String,
    /// Whether a hypervisor is below, which may move or stop cores unseen.
    pub is_virtual: bool,
    /// The cores that this process may use.
    pub cores: Vec<usize>,
    /// The load average over the last minute: busy threads, our own included. `None` where the system does not say.
    pub load: Option<f64>,
    /// The kernel's release.
    pub kernel: String,
}

impl Machine {
    /// This machine, now.
    pub fn here() -> Machine {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            let line = cpuinfo.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_once(':')).map_or("", |(_, value)| value.trim())
        };
        Machine {
            processor: field("model name").to_owned(),
            is_virtual: field("flags").split(' ').any(|flag| flag == "hypervisor"),
            cores: pin::usable_cores(),
            load: load(),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { processor, cores, kernel, .. } = self;
        let below = if self.is_virtual { "virtual machine" } else { "no hypervisor seen" };
        write!(f, "{processor}, {} usable cores, {below}, Linux {kernel}", cores.len())?;
        match self.load {
            Some(load) => write!(f, ", load average {load:.2}"),
            None => Ok(()),
        }
    }
}

/// The load average over the last minute.
pub fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

/// The two cores of a measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Cores {
    /// Where the writing thread is pinned.
    pub writer: usize,
    /// Where the reading thread is pinned.
    pub reader: usize,
}

impl Cores {
    /// The first two cores that this process may use; `None` if there are not two, and nothing can be claimed.
    pub fn choose() -> Option<Cores> {
        match pin::usable_cores()[..] {
            [writer, reader, ..] => Some(Cores { writer, reader }),
            _ => None,
        }
    }
}

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "writer pinned to core {}, reader to core {}", self.writer, self.reader)
    }
}

impl FromStr for Cores {
    type Err = String;

    /// Two core numbers, `WRITER,READER`.
    fn from_str(text: &str) -> Result<Cores, String> {
        let wrong = || format!("{text:?} is not two different core numbers such as 0,1");
        let (writer, reader) = text.split_once(',').ok_or_else(wrong)?;
        let (writer, reader) =
            (writer.trim().parse().map_err(|_| wrong())?, reader.trim().parse().map_err(|_| wrong())?);
        if writer == reader { Err(wrong()) } else { Ok(Cores { writer, reader }) }
    }
}

/// Pins the calling thread to `core`, whatever it is pinned to already. (A thread started by a pinned one may use that one
/// core alone, until it is pinned elsewhere; [`pin::pin`] takes that for its whole choice.)
///
/// # Errors
/// [`PinError::Refused`], if the system does not allow it or there is no such core.
pub fn pin_anew(core: usize) -> Result<(), PinError> {
    /// CPU_SETSIZE of sched_setaffinity(2): the library panics at a higher number.
    const CORES: usize = 1024;
    if core < CORES && core_affinity::set_for_current(CoreId { id: core }) {
        Ok(())
    } else {
        Err(PinError::Refused { core })
    }
}

/// How long the calling thread was ready to run and another one had its core, so far, ns: the scheduler's own account. 0
/// where the system does not keep it.
pub fn waited_ns() -> u64 {
    // proc(5), scheduler statistics: time on a core, time waiting for one, times put on one.
    let schedstat = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    schedstat.split_ascii_whitespace().nth(1).and_then(|waited| waited.parse().ok()).unwrap_or(0)
}

/// Time that the hypervisor withheld from all cores so far, in the kernel's ticks (10 ms as a rule). 0 where it does not
/// say.
pub fn stolen_ticks() -> u64 {
    // proc(5): the first line is the sum over cores, and steal is the eighth number behind its name.
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let first = stat.lines().next().unwrap_or_default();
    first.split_ascii_whitespace().nth(8).and_then(|ticks| ticks.parse().ok()).unwrap_or(0)
}

/// What a core does by itself: the gaps between readings of the clock by a thread that does nothing else.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Jitter {
    /// Of a thousand gaps, one is longer, ns.
    pub p999_ns: u64,
    /// The longest, ns.
    pub max_ns: u64,
}

/// Watches the calling thread's core for `watched_ns`.
pub fn idle_jitter(clock: Clock, watched_ns: u64) -> Jitter {
    gaps_between(|| clock.now(), watched_ns)
}

fn gaps_between(mut now: impl FnMut() -> Nanos, watched_ns: u64) -> Jitter {
    // A minute at most: a histogram that finds its own bounds would not when it saturates.
    let mut gaps = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3).expect("bounds that there can be");
    let began = now();
    let mut before = began;
    while (before.since(began).max(0) as u64) < watched_ns || gaps.is_empty() {
        let then = std::mem::replace(&mut before, now());
        gaps.saturating_record(before.since(then).max(0) as u64);
    }
    Jitter { p999_ns: gaps.value_at_quantile(0.999), max_ns: gaps.max() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_that_was_away_once_shows_it() {
        let mut at = 0;
        let now = || {
            at += if at == 30_000 { 5_000_000 } else { 30 };
            Nanos(at)
        };
        let jitter = gaps_between(now, 6_000_000);
        assert_eq!(jitter.p999_ns, 30);
        assert!((4_990_000..5_010_000).contains(&jitter.max_ns), "{jitter:?}");
    }

    #[test]
    fn a_core_is_watched_as_long_as_asked() {
        let clock = Clock::calibrate();
        let began = clock.now();
        let jitter = idle_jitter(clock, 2_000_000);
        assert!(clock.now().since(began) >= 2_000_000);
        assert!(jitter.p999_ns <= jitter.max_ns && jitter.max_ns > 0, "{jitter:?}");
        idle_jitter(clock, 0);
    }

    #[test]
    fn two_different_cores_are_read_and_anything_else_is_refused() {
        assert_eq!("0,1".parse(), Ok(Cores { writer: 0, reader: 1 }));
        for wrong in ["", "1", "1,1", "a,b", "0,1,2"] {
            let error = wrong.parse::<Cores>().expect_err(wrong);
            assert!(error.contains("0,1"), "{error}");
        }
    }

    #[test]
    fn a_thread_of_a_pinned_one_can_be_pinned_elsewhere() {
        let Some(cores) = Cores::choose() else {
            println!("one usable core: there is no elsewhere");
            return;
        };
        let outer = std::thread::spawn(move || {
            pin_anew(cores.writer).expect("a usable core");
            std::thread::spawn(move || pin_anew(cores.reader).map(|()| pin::usable_cores())).join().expect("no panic")
        });
        assert_eq!(outer.join().expect("no panic"), Ok(vec![cores.reader]));
        assert_eq!(pin_anew(100_000), Err(PinError::Refused { core: 100_000 }));
    }

    #[test]
    fn threads_that_share_a_core_wait_for_it() {
        let core = pin::usable_cores()[0];
        let busy = move || {
            pin_anew(core).expect("a usable core");
            let began = std::time::Instant::now();
            while began.elapsed().as_millis() < 100 {
                std::hint::spin_loop();
            }
            waited_ns()
        };
        let threads = [busy; 2].map(std::thread::spawn);
        let waited: u64 = threads.map(|thread| thread.join().expect("no panic")).iter().sum();
        // Together they had 100 ms of one core and more to wait for; half of it leaves room for one that started late.
        assert!(waited > 50_000_000, "{waited} ns");
    }
}
