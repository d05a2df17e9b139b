//! What came of a ping, as text and as JSON.

use std::fmt::Write;

use serde_json::{Value, json};
use transport::clock::Clock;

use super::PingArguments;
use super::rally::Pinged;
use super::spec::{Echoed, PingTransport, Times};
use crate::verdict::duration;

/// The scheduler took this share of the time away, in parts of a thousand, from a process that had a core of its own: its
/// times are the machine's.
const OFF_CORE_LIMIT_PER_MILLE: u64 = 10;
/// Samples behind a percentile before it says something: ten beyond it.
const SAMPLES_FOR_P999: u64 = 10_000;

/// What a figure is, beside every figure.
pub const CAVEAT: &str = "closed loop: one ping is under way at a time, so this says nothing of a rate, and a stall delays \
                          the next ping instead of being counted against it (coordinated omission); half a round trip is \
                          what ib_write_lat and ib_send_lat print";

/// What came of a ping.
#[derive(Clone, PartialEq, Debug)]
pub struct PingReport {
    /// Which way the lines went.
    pub transport: PingTransport,
    /// By multicast, where that is a choice.
    pub multicast: bool,
    /// Lines of one ping.
    pub lines: u64,
    /// From the hand-over of a ping to the answer in its sender's hands.
    pub round_trip: Times,
    /// Pings without an answer in time.
    pub lost: u64,
    /// It was asked to stop before it was through.
    pub stopped: bool,
    /// Why the figures claim nothing; empty if they may be believed.
    pub invalid_because: Vec<String>,
    /// What is worth knowing.
    pub notes: Vec<String>,
    /// How it was taken: processes, cores, clock, machine.
    pub taken: String,
}

impl PingReport {
    pub(super) fn new(
        arguments: &PingArguments,
        (cores, cores_usable): (Option<(usize, usize)>, usize),
        clock: Clock,
        (echo_pid, echoed): (u32, Echoed),
        pinged: &Pinged,
    ) -> PingReport {
        let round_trip = Times::of(&pinged.round_trips);
        let (mut invalid_because, mut notes) = (Vec::new(), Vec::new());
        if cores.is_none() {
            invalid_because
                .push("oversubscribed: two busy processes have one core to share, and yield to each other".into());
        }
        let sides = [("pinging", pinged.off_core_ns, pinged.took_ns), ("echoing", echoed.off_core_ns, echoed.took_ns)];
        for (who, off_core_ns, took_ns) in sides {
            if cores.is_some() && off_core_ns * 1000 > took_ns * OFF_CORE_LIMIT_PER_MILLE {
                invalid_because.push(format!(
                    "the scheduler kept the {who} process from its core for {} of {}",
                    duration(off_core_ns),
                    duration(took_ns)
                ));
            }
        }
        let check = clock.check();
        // The two ends of a round trip are read from one clock: only its rate matters.
        if check.drift_ppb.abs() > 1_000_000 {
            invalid_because.push(format!("the clock ran {} ppb off the monotonic clock", check.drift_ppb));
        }
        if pinged.lost > 0 {
            invalid_because.push(format!("{} pings had no answer", pinged.lost));
        }
        if pinged.stopped {
            invalid_because.push(format!("stopped as asked, after {} of {}", round_trip.count, arguments.count));
        }
        if round_trip.count < SAMPLES_FOR_P999 {
            notes.push(format!("p99.9 of {} samples is hardly more than the longest", round_trip.count));
        }
        if echoed.lost > 0 {
            notes.push(format!("the echo's lane named {} lines as lost", echoed.lost));
        }
        let on = match cores {
            Some((ping, echo)) => format!("on cores {ping} and {echo}, spinning"),
            None => "not pinned, yielding".into(),
        };
        let taken = format!(
            "between two processes (pids {} and {echo_pid}) {on}; after {} pings of warm-up; clock {} ({} ppb in {}); {}",
            std::process::id(),
            arguments.warmup,
            check.source,
            check.drift_ppb,
            duration(check.elapsed_ns),
            machine(cores_usable)
        );
        PingReport {
            transport: arguments.transport,
            multicast: arguments.multicast || arguments.transport == PingTransport::Udp,
            lines: arguments.size,
            round_trip,
            lost: pinged.lost,
            stopped: pinged.stopped,
            invalid_because,
            notes,
            taken,
        }
    }

    /// As JSON, times in ns.
    pub fn json(&self) -> Value {
        json!({
            "transport": self.transport,
            "multicast": self.multicast,
            "lines": self.lines,
            "valid": self.invalid_because.is_empty(),
            "invalid_because": self.invalid_because,
            "round_trip_ns": self.round_trip,
            "half_round_trip_ns": self.round_trip.half(),
            "lost": self.lost,
            "stopped": self.stopped,
            "what": CAVEAT,
            "taken": self.taken,
            "notes": self.notes,
        })
    }

    /// As text: validity first, then the table, then how it was taken.
    pub fn text(&self) -> String {
        let name = self.transport.name();
        let mut out = String::new();
        let _ = if self.invalid_because.is_empty() {
            writeln!(out, "{name}: VALID")
        } else {
            writeln!(out, "{name}: INVALID, its times claim nothing")
        };
        for reason in &self.invalid_because {
            let _ = writeln!(out, "  because {reason}");
        }
        let _ = writeln!(
            out,
            "\n{:<21} {:>10} {:>10} {:>10} {:>10} {:>10} {:>11}",
            "", "min", "p50", "p99", "p99.9", "max", "samples"
        );
        for (what, times) in [("round trip", self.round_trip), ("half a round trip", self.round_trip.half())] {
            let Times { min, p50, p99, p999, max, count } = times;
            let [min, p50, p99, p999, max] = [min, p50, p99, p999, max].map(duration);
            let _ = writeln!(out, "{what:<21} {min:>10} {p50:>10} {p99:>10} {p999:>10} {max:>10} {count:>11}");
        }
        let lines = if self.lines == 1 { "one line".into() } else { format!("{} lines", self.lines) };
        let how = if self.multicast { ", by multicast" } else { "" };
        let _ = writeln!(out, "\n{lines} a ping{how}\n{CAVEAT}\ntaken {}", self.taken);
        for note in &self.notes {
            let _ = writeln!(out, "note: {note}");
        }
        out
    }
}

/// This machine, in a few words.
fn machine(cores_usable: usize) -> String {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .unwrap_or("")
        .trim_start_matches(['\t', ' ', ':']);
    let is_virtual = cpuinfo.lines().any(|line| line.starts_with("flags") && line.ends_with(" hypervisor"))
        || cpuinfo.contains(" hypervisor ");
    format!(
        "{model}, {} usable cores, {}, Linux {}, load average {}",
        cores_usable,
        if is_virtual { "virtual machine" } else { "no hypervisor seen" },
        read("/proc/sys/kernel/osrelease").trim(),
        read("/proc/loadavg").split(' ').next().unwrap_or("unknown"),
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use hdrhistogram::Histogram;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        ping: PingArguments,
    }

    fn pinged(count: u64, off_core_ns: u64) -> Pinged {
        let mut round_trips = Histogram::new_with_bounds(1, 10_000_000_000, 3).expect("bounds are legal");
        round_trips.record_n(2_000, count).expect("in range");
        Pinged { round_trips, lost: 0, took_ns: 1_000_000, off_core_ns, stopped: false }
    }

    fn report(cores: Option<(usize, usize)>, pinged: &Pinged) -> PingReport {
        let arguments = Line::parse_from(["ping", "--transport", "shm"]).ping;
        PingReport::new(&arguments, (cores, 2), Clock::calibrate(), (7, Echoed::default()), pinged)
    }

    #[test]
    fn half_a_round_trip_is_labelled_and_half() {
        let report = report(Some((0, 1)), &pinged(20_000, 0));
        let json = report.json();
        assert_eq!(
            (json["round_trip_ns"]["p50"].as_u64(), json["half_round_trip_ns"]["p50"].as_u64()),
            (Some(2_000), Some(1_000))
        );
        assert_eq!(json["valid"], true, "{json}");
        let text = report.text();
        for part in ["shm: VALID", "round trip", "half a round trip", "coordinated omission", "ib_write_lat"] {
            assert!(text.contains(part), "{part:?} is not in: {text}");
        }
        assert!(report.notes.is_empty(), "{:?}", report.notes);
    }

    #[test]
    fn what_the_machine_took_away_makes_it_invalid_and_is_said_first() {
        for (cores, off_core, reason) in [(None, 0, "oversubscribed"), (Some((0, 1)), 20_000, "from its core")] {
            let report = report(cores, &pinged(50, off_core));
            let text = report.text();
            assert!(text.starts_with("shm: INVALID"), "{text}");
            assert!(report.invalid_because.iter().any(|why| why.contains(reason)), "{text}");
            assert!(report.notes.iter().any(|note| note.contains("hardly more")), "{text}");
        }
    }
}
