//! How bursty a stream is: its peak rate over its mean rate, in windows of several lengths.

use std::fmt;

/// The windows, in ns: 1 s, 1 ms, 100 us, 10 us.
pub const WINDOWS_NS: [u64; 4] = [1_000_000_000, 1_000_000, 100_000, 10_000];

/// Counts messages in windows that begin at multiples of their length. Times never go back.
#[derive(Clone, Debug, Default)]
pub struct BurstProfile {
    first: Option<u64>,
    last: u64,
    messages: u64,
    windows: [Window; WINDOWS_NS.len()],
}

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    index: u64,
    count: u64,
    peak: u64,
}

/// The busiest window of one length.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Peak {
    /// The window's length, ns.
    pub window_ns: u64,
    /// Messages in the busiest.
    pub messages: u64,
    /// Messages that a window has on average, from the first message to the last.
    pub mean: f64,
    /// Peak rate over mean rate.
    pub ratio: f64,
}

impl BurstProfile {
    /// Takes a message of this time, in ns.
    #[inline]
    pub fn take(&mut self, time_ns: u64) {
        self.first.get_or_insert(time_ns);
        self.last = time_ns;
        self.messages += 1;
        for (window, length) in self.windows.iter_mut().zip(WINDOWS_NS) {
            let index = time_ns / length;
            if index != window.index {
                (window.index, window.count) = (index, 0);
            }
            window.count += 1;
            window.peak = window.peak.max(window.count);
        }
    }

    /// The busiest windows, longest first.
    pub fn peaks(&self) -> [Peak; WINDOWS_NS.len()] {
        let span = self.last - self.first.unwrap_or(self.last);
        std::array::from_fn(|at| {
            let (window_ns, messages) = (WINDOWS_NS[at], self.windows[at].peak);
            // A stream shorter than the window fills one of them.
            let mean = self.messages as f64 * window_ns as f64 / span.max(window_ns) as f64;
            Peak { window_ns, messages, mean, ratio: if mean > 0.0 { messages as f64 / mean } else { 0.0 } }
        })
    }
}

impl fmt::Display for Peak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let window = match self.window_ns {
            ns if ns >= 1_000_000_000 => format!("{} s", ns / 1_000_000_000),
            ns if ns >= 1_000_000 => format!("{} ms", ns / 1_000_000),
            ns => format!("{} us", ns / 1_000),
        };
        write!(
            f,
            "{window:>7}: {:>8.1} times the mean, {} messages against {:.3}",
            self.ratio, self.messages, self.mean
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_of_the_busiest_window_and_the_mean_of_the_whole() {
        let mut profile = BurstProfile::default();
        // One message a millisecond for ten seconds, and a hundred more within one microsecond in the middle.
        for ms in 0..10_000u64 {
            profile.take(ms * 1_000_000);
            if ms == 5_000 {
                (0..100).for_each(|nth| profile.take(ms * 1_000_000 + nth * 10));
            }
        }
        let [second, millisecond, _, shortest] = profile.peaks();
        assert_eq!((second.messages, millisecond.messages, shortest.messages), (1_100, 101, 101));
        assert!((1.0..1.2).contains(&second.ratio), "{second}");
        assert!((99.0..101.0).contains(&millisecond.ratio), "{millisecond}");
        assert!((9_900.0..10_100.0).contains(&shortest.ratio), "{shortest}");
        assert_eq!(millisecond.to_string().split(':').next(), Some("   1 ms"));
    }

    #[test]
    fn nothing_at_all_has_no_peak() {
        assert!(BurstProfile::default().peaks().iter().all(|peak| peak.messages == 0 && peak.ratio == 0.0));
    }
}
