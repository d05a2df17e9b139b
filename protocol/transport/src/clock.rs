//! The clock, and what a loop does when it has no work.
//!
//! A hot loop reads the time once a turn. [`Clock::now`] is a fenced read of the processor's time stamp counter and one
//! multiplication; it is UTC as of calibration and is not moved by later steps of the system's clock, so that
//! differences are differences. Where the counter is not invariant, the system's monotonic clock is read instead, and
//! [`Clock::source`] says so.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

use protocol::time::Nanos;

/// How long calibration watches the counter against the monotonic clock. Both ends are known to a few ns, so 50 ms gives
/// the rate to about 0.1 parts in a million.
const CALIBRATION_NS: u64 = 50_000_000;
/// Bracketed readings at each end, of which the tightest counts.
const BRACKET_TRIES: usize = 64;
/// Binary places of the multiplier: at 1 GHz and more it stays below 2^48, and a step of it is far below 1 ppb.
const MULTIPLIER_SHIFT: u32 = 48;

/// What [`Clock::now`] reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClockSource {
    /// The processor's invariant time stamp counter.
    Tsc,
    /// The system's monotonic clock: some 20 ns a reading.
    Monotonic,
}

impl fmt::Display for ClockSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ClockSource::Tsc => "invariant TSC",
            ClockSource::Monotonic => "CLOCK_MONOTONIC",
        })
    }
}

/// A mapping from a counter to UTC nanoseconds, fixed at calibration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clock {
    source: ClockSource,
    /// The counter at calibration (the monotonic clock in ns, if that is the source).
    base_ticks: u64,
    /// UTC at that moment.
    base_utc_ns: u64,
    /// The monotonic clock at that moment.
    base_monotonic_ns: u64,
    /// Nanoseconds per tick, shifted left by [`MULTIPLIER_SHIFT`].
    multiplier: u64,
}

/// A [`Clock`] as plain numbers, so that several processes of one host can share one mapping. As text: the numbers in
/// order of the fields, separated by commas.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockParts {
    /// 0 the time stamp counter, 1 the monotonic clock.
    pub source: u64,
    /// The counter at calibration, ticks.
    pub base_ticks: u64,
    /// UTC then, ns.
    pub base_utc_ns: u64,
    /// The monotonic clock then, ns.
    pub base_monotonic_ns: u64,
    /// Nanoseconds per tick, times 2^48.
    pub multiplier: u64,
}

/// Why numbers are no clock.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ClockError {
    /// The source's number is unknown.
    #[error("clock source {0} is unknown: pass on the numbers of a clock of this version")]
    Source(u64),
    /// The counter is not invariant here.
    #[error("the time stamp counter of this host is not invariant: calibrate a clock here, and share that one")]
    NoInvariantTsc,
    /// No rate, or an impossible one.
    #[error("a clock of {0} / 2^48 ns a tick is impossible: pass on the numbers of a calibrated clock")]
    Multiplier(u64),
    /// Not five numbers.
    #[error("{0:?} is not five numbers separated by commas")]
    Count(String),
    /// Not a number.
    #[error("a clock's numbers are decimal: {0}")]
    Number(#[from] ParseIntError),
}

/// A clock compared with the monotonic clock, which it was calibrated against.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockCheck {
    /// What the clock reads.
    pub source: ClockSource,
    /// Since calibration, by the monotonic clock.
    pub elapsed_ns: u64,
    /// How far the clock is ahead by now.
    pub drift_ns: i64,
    /// The same, in parts per billion of the time elapsed.
    pub drift_ppb: i64,
    /// How far apart the readings were that this was taken from: the error is at most half of it.
    pub bracket_ns: u64,
}

impl Clock {
    /// Finds the best source and calibrates it, which takes 50 ms.
    pub fn calibrate() -> Clock {
        if has_invariant_tsc() { Clock::calibrate_tsc() } else { Clock::monotonic() }
    }

    /// The monotonic clock, moved to UTC.
    fn monotonic() -> Clock {
        let pair = tightest(monotonic_ns, realtime_ns);
        Clock {
            source: ClockSource::Monotonic,
            base_ticks: pair.outer,
            base_utc_ns: pair.inner,
            base_monotonic_ns: pair.outer,
            multiplier: 1 << MULTIPLIER_SHIFT,
        }
    }

    fn calibrate_tsc() -> Clock {
        let begin = tightest(tsc, monotonic_ns);
        while monotonic_ns() < begin.inner + CALIBRATION_NS {
            // Asleep and not spinning: a counter that does not run while a core sleeps is to be found out here.
            std::thread::sleep(std::time::Duration::from_nanos(CALIBRATION_NS));
        }
        let end = tightest(tsc, monotonic_ns);
        let utc = tightest(tsc, realtime_ns);
        let ticks = end.outer.saturating_sub(begin.outer);
        let elapsed = end.inner - begin.inner;
        let multiplier = (u128::from(elapsed) << MULTIPLIER_SHIFT).checked_div(u128::from(ticks)).unwrap_or(0);
        let Some(multiplier) = u64::try_from(multiplier).ok().filter(|multiplier| *multiplier > 0) else {
            return Clock::monotonic();
        };
        let clock = Clock {
            source: ClockSource::Tsc,
            base_ticks: end.outer,
            base_utc_ns: 0,
            base_monotonic_ns: end.inner,
            multiplier,
        };
        Clock { base_utc_ns: utc.inner - clock.elapsed_ns(utc.outer), ..clock }
    }

    /// UTC as of calibration, ns.
    #[inline(always)]
    pub fn now(&self) -> Nanos {
        let ticks = match self.source {
            ClockSource::Tsc => tsc(),
            ClockSource::Monotonic => monotonic_ns(),
        };
        Nanos(self.base_utc_ns + self.elapsed_ns(ticks))
    }

    /// Nanoseconds from calibration to `ticks`; 0 for what was before it.
    #[inline(always)]
    fn elapsed_ns(&self, ticks: u64) -> u64 {
        let ticks = ticks.saturating_sub(self.base_ticks);
        ((u128::from(ticks) * u128::from(self.multiplier)) >> MULTIPLIER_SHIFT) as u64
    }

    /// What [`now`](Self::now) reads.
    pub fn source(&self) -> ClockSource {
        self.source
    }

    /// Compares again with the monotonic clock: how far the two have come apart since calibration.
    pub fn check(&self) -> ClockCheck {
        let ticks = match self.source {
            ClockSource::Tsc => tsc,
            ClockSource::Monotonic => monotonic_ns,
        };
        let pair = tightest(ticks, monotonic_ns);
        let elapsed_ns = pair.inner.saturating_sub(self.base_monotonic_ns);
        let drift_ns = self.elapsed_ns(pair.outer).wrapping_sub(elapsed_ns) as i64;
        let drift_ppb = i128::from(drift_ns) * 1_000_000_000 / i128::from(elapsed_ns.max(1));
        let bracket_ns = self.elapsed_ns(self.base_ticks + pair.width);
        ClockCheck { source: self.source, elapsed_ns, drift_ns, drift_ppb: drift_ppb as i64, bracket_ns }
    }

    /// As plain numbers.
    pub fn to_parts(&self) -> ClockParts {
        ClockParts {
            source: u64::from(self.source == ClockSource::Monotonic),
            base_ticks: self.base_ticks,
            base_utc_ns: self.base_utc_ns,
            base_monotonic_ns: self.base_monotonic_ns,
            multiplier: self.multiplier,
        }
    }

    /// From plain numbers, on the host and since the boot that they were taken from.
    ///
    /// # Errors
    /// [`ClockError`], if they cannot be a clock here.
    pub fn from_parts(parts: &ClockParts) -> Result<Clock, ClockError> {
        let source = match parts.source {
            0 if has_invariant_tsc() => ClockSource::Tsc,
            0 => return Err(ClockError::NoInvariantTsc),
            1 => ClockSource::Monotonic,
            other => return Err(ClockError::Source(other)),
        };
        if parts.multiplier == 0 || (source == ClockSource::Monotonic && parts.multiplier != 1 << MULTIPLIER_SHIFT) {
            return Err(ClockError::Multiplier(parts.multiplier));
        }
        Ok(Clock {
            source,
            base_ticks: parts.base_ticks,
            base_utc_ns: parts.base_utc_ns,
            base_monotonic_ns: parts.base_monotonic_ns,
            multiplier: parts.multiplier,
        })
    }
}

impl fmt::Display for ClockParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ClockParts { source, base_ticks, base_utc_ns, base_monotonic_ns, multiplier } = self;
        write!(f, "{source},{base_ticks},{base_utc_ns},{base_monotonic_ns},{multiplier}")
    }
}

impl FromStr for ClockParts {
    type Err = ClockError;

    fn from_str(text: &str) -> Result<ClockParts, ClockError> {
        let numbers: Vec<u64> = text.split(',').map(|number| number.trim().parse()).collect::<Result<_, _>>()?;
        let [source, base_ticks, base_utc_ns, base_monotonic_ns, multiplier] = numbers[..] else {
            return Err(ClockError::Count(text.to_owned()));
        };
        Ok(ClockParts { source, base_ticks, base_utc_ns, base_monotonic_ns, multiplier })
    }
}

/// Two clocks read as nearly at once as could be had.
struct Bracketed {
    /// The middle of the two readings around.
    outer: u64,
    /// The reading between them.
    inner: u64,
    /// How far apart the two around are.
    width: u64,
}

/// Reads `inner` between two readings of `outer`, many times, and keeps the tightest.
fn tightest(outer: impl Fn() -> u64, inner: impl Fn() -> u64) -> Bracketed {
    let mut best = Bracketed { outer: 0, inner: 0, width: u64::MAX };
    for _ in 0..BRACKET_TRIES {
        let before = outer();
        let between = inner();
        let width = outer().saturating_sub(before);
        if width < best.width {
            best = Bracketed { outer: before + width / 2, inner: between, width };
        }
    }
    best
}

fn clock_ns(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a timespec of our own, which the call fills in.
    let result = unsafe { libc::clock_gettime(id, &mut time) };
    // clock_gettime(2): it fails only for a bad address or a clock that does not exist.
    assert_eq!(result, 0, "clock_gettime({id}) failed");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[inline]
fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

fn realtime_ns() -> u64 {
    clock_ns(libc::CLOCK_REALTIME)
}

/// The counter, read after everything before it has been done.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn tsc() -> u64 {
    // SAFETY: SSE2, and with it `lfence`, belongs to every x86_64; `rdtsc` is open to user code unless the process has
    // asked the kernel to trap it (prctl PR_SET_TSC).
    unsafe {
        std::arch::x86_64::_mm_lfence();
        std::arch::x86_64::_rdtsc()
    }
}

/// No counter that we know how to read: `has_invariant_tsc` is false here, so nobody asks.
#[cfg(not(target_arch = "x86_64"))]
fn tsc() -> u64 {
    monotonic_ns()
}

/// CPUID leaf 0x8000_0007, EDX bit 8: the counter runs at one rate in all states of the processor (Intel SDM volume 3,
/// 18.17.1; AMD APM volume 2, 13.2.4).
#[cfg(target_arch = "x86_64")]
fn has_invariant_tsc() -> bool {
    use std::arch::x86_64::__cpuid;
    __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & (1 << 8) != 0
}

#[cfg(not(target_arch = "x86_64"))]
fn has_invariant_tsc() -> bool {
    false
}

/// What a loop does when a turn found no work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IdleStrategy {
    /// Looks again at once: for a loop with a core of its own.
    Spin,
    /// Lets others run: for more busy loops than cores.
    Yield,
}

impl IdleStrategy {
    /// To be called once a turn with the work that it did.
    #[inline(always)]
    pub fn idle(self, work: usize) {
        if work == 0 {
            match self {
                IdleStrategy::Spin => std::hint::spin_loop(),
                IdleStrategy::Yield => std::thread::yield_now(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn now_is_utc_and_never_goes_back() {
        let clock = Clock::calibrate();
        let utc = realtime_ns();
        // A second: a stall between the two readings, never a wrong day.
        assert!(clock.now().since(Nanos(utc)).abs() < 1_000_000_000, "{:?} against {utc}", clock.now());
        let mut last = clock.now();
        for _ in 0..100_000 {
            let now = clock.now();
            assert!(now >= last, "{now:?} after {last:?}");
            last = now;
        }
    }

    #[test]
    fn a_clock_agrees_with_the_monotonic_clock_that_it_was_calibrated_against() {
        for clock in [Clock::calibrate(), Clock::monotonic()] {
            std::thread::sleep(std::time::Duration::from_millis(20));
            let check = clock.check();
            assert!(check.elapsed_ns >= 20_000_000, "{check:?}");
            // A millionth would be 20 ns and more. A wrong multiplier is wrong by much more than a thousandth.
            assert!(check.drift_ppb.abs() < 1_000_000, "{check:?}");
        }
    }

    #[test]
    fn parts_give_back_the_same_clock() {
        let clock = Clock::calibrate();
        let text = clock.to_parts().to_string();
        let parts: ClockParts = text.parse().expect("five numbers");
        assert_eq!(Clock::from_parts(&parts).expect("this host's"), clock);
        assert_eq!(Clock::from_parts(&ClockParts { source: 7, ..parts }), Err(ClockError::Source(7)));
        assert_eq!(Clock::from_parts(&ClockParts { multiplier: 0, ..parts }), Err(ClockError::Multiplier(0)));
        assert_eq!("1,2,3".parse::<ClockParts>(), Err(ClockError::Count("1,2,3".to_owned())));
        assert!(matches!("1,2,3,4,x".parse::<ClockParts>(), Err(ClockError::Number(_))));
    }

    #[test]
    fn ticks_become_nanoseconds_without_overflow() {
        let clock = Clock {
            source: ClockSource::Tsc,
            base_ticks: 1000,
            base_utc_ns: 5,
            base_monotonic_ns: 0,
            multiplier: (1 << MULTIPLIER_SHIFT) / 4,
        };
        assert_eq!(clock.elapsed_ns(1000 + 4_000_000_000), 1_000_000_000);
        assert_eq!(clock.elapsed_ns(999), 0);
        // A hundred years at 4 GHz.
        assert_eq!(clock.elapsed_ns(1000 + (12_623_040_000_000_000_000)), 3_155_760_000_000_000_000);
    }
}
