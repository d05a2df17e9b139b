//! Latency ratios in words: validity first, then how they were taken, then the numbers.

use std::fmt;

use serde::Serialize;
use transport::clock::{Clock, ClockSource};

use crate::handover::{GAP_NS, Pace, Series, Slice, WARM_UP_ITEMS, step_ns};
use crate::machine::{Cores, Machine, load, stolen_ticks};
use crate::ratio::{Ratio, of_slices};

/// Fewer rounds than this tell nothing about their spread.
pub const LEAST_ROUNDS: usize = 20;
/// A clock that drifted more than this from the monotonic clock, parts per billion, is not to be believed.
const MOST_DRIFT_PPB: i64 = 20_000;

/// A subject, the bare limit that it is compared with, and the bar that it is to reach.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Comparison {
    /// A contender's name.
    pub subject: &'static str,
    /// Another's.
    pub bare: &'static str,
    /// The most that the ratios at p50 and at p99 may be; `None` where nothing was promised.
    pub bar: Option<(f64, f64)>,
}

/// What one contender came to, over all of its slices.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub what: &'static str,
    /// How it was driven.
    pub pace: Pace,
    /// Slices.
    pub slices: usize,
    /// Slices of which the machine took more than a hundredth: [`Slice::is_disturbed`].
    pub disturbed: usize,
    /// Samples.
    pub samples: u64,
    /// Items that did not arrive in time.
    pub lost: u64,
    /// Items that seem to have arrived before they were sent.
    pub negative: u64,
    /// Median over slices of each slice's p50, p99 and p99.9, ns.
    pub of_slices: [f64; 3],
    /// p50, p99, p99.9 and maximum over all samples, ns.
    pub of_all: [u64; 4],
    /// Each slice by itself, by round.
    pub by_round: Vec<Slice>,
}

/// How one contender compares with another.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Compared {
    /// Which.
    pub subject: &'static str,
    /// With which.
    pub bare: &'static str,
    /// Ratios at p50, p99 and p99.9, over all rounds.
    pub all: [Option<Ratio>; 3],
    /// The same over the rounds in which the machine disturbed neither.
    pub undisturbed: [Option<Ratio>; 3],
    /// The bar at p50 and p99.
    pub bar: Option<(f64, f64)>,
    /// Whether the medians over all rounds reach it; `None` without a bar, and in an invalid run.
    pub reached: Option<bool>,
}

/// One run of `hop`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct HopReport {
    /// Whether anything may be concluded from it.
    pub valid: bool,
    /// Why not.
    pub reasons: Vec<String>,
    /// Where, with the load before the run.
    pub machine: Machine,
    /// The load average after it.
    pub load_after: Option<f64>,
    /// Time that the hypervisor withheld during the run, in ticks, over all cores.
    pub stolen_ticks: u64,
    /// The pinned cores.
    pub cores: Cores,
    /// What the times were read from.
    pub clock: String,
    /// The clock's smallest step, ns.
    pub clock_step_ns: u64,
    /// How far the clock drifted from the monotonic clock, parts per billion.
    pub clock_drift_ppb: i64,
    /// Of the pacing.
    pub seed: u64,
    /// How long it took, seconds.
    pub seconds: f64,
    /// Places in the rings.
    pub ring_lines: usize,
    /// The contenders.
    pub rows: Vec<Row>,
    /// The ratios.
    pub compared: Vec<Compared>,
}

/// What is known before a run, and kept for its report.
#[derive(Clone, PartialEq, Debug)]
pub struct Setting {
    /// Where, with the load before the run.
    pub machine: Machine,
    /// [`stolen_ticks`] before the run.
    pub stolen_before: u64,
    /// The pinned cores.
    pub cores: Cores,
    /// Of the pacing.
    pub seed: u64,
    /// Places in the rings.
    pub ring_lines: usize,
}

impl HopReport {
    /// Judges what was measured. Comparisons of contenders that took no part are left out.
    pub fn new(
        setting: Setting,
        clock: Clock,
        seconds: f64,
        series: &[Series],
        comparisons: &[Comparison],
    ) -> HopReport {
        let check = clock.check();
        let mut reasons = Vec::new();
        if clock.source() != ClockSource::Tsc {
            reasons.push(format!("the clock is {}: two cores cannot be compared to a few ns with it", clock.source()));
        }
        if check.drift_ppb.abs() > MOST_DRIFT_PPB {
            reasons.push(format!("the clock drifted by {} parts per billion", check.drift_ppb));
        }
        let rounds = series.iter().map(|series| series.slices.len()).min().unwrap_or(0);
        if rounds < LEAST_ROUNDS {
            reasons.push(format!("{rounds} rounds, fewer than {LEAST_ROUNDS}: give it more --seconds"));
        }
        let slices: usize = series.iter().map(|series| series.slices.len()).sum();
        let disturbed: usize = series.iter().map(|series| disturbed(&series.slices)).sum();
        if 2 * disturbed > slices {
            reasons.push(format!(
                "oversubscribed: the machine took more than a hundredth of {disturbed} of {slices} slices; repeat it when nothing \
                 else runs"
            ));
        }
        for series in series {
            let (lost, negative) =
                (sum(&series.slices, |slice| slice.lost), sum(&series.slices, |slice| slice.negative));
            if (lost + negative) * 1_000 > series.all.len() {
                reasons.push(format!("{}: {lost} items lost, {negative} with negative latency", series.name));
            }
        }
        let valid = reasons.is_empty();
        let find = |name: &str| series.iter().find(|series| series.name == name);
        let compared = comparisons.iter().filter_map(|comparison| {
            Some(compare(comparison, &find(comparison.subject)?.slices, &find(comparison.bare)?.slices, valid))
        });
        HopReport {
            valid,
            reasons,
            compared: compared.collect(),
            rows: series.iter().map(Row::of).collect(),
            machine: setting.machine,
            load_after: load(),
            stolen_ticks: stolen_ticks().saturating_sub(setting.stolen_before),
            cores: setting.cores,
            clock: clock.source().to_string(),
            clock_step_ns: step_ns(clock),
            clock_drift_ppb: check.drift_ppb,
            seed: setting.seed,
            seconds,
            ring_lines: setting.ring_lines,
        }
    }
}

impl Row {
    fn of(series: &Series) -> Row {
        let median = |of: fn(&Slice) -> f64| {
            crate::ratio::spread(series.slices.iter().map(of).collect()).map_or(0.0, |r| r.median)
        };
        Row {
            name: series.name,
            what: series.what,
            pace: series.pace,
            slices: series.slices.len(),
            disturbed: disturbed(&series.slices),
            samples: series.all.len(),
            lost: sum(&series.slices, |slice| slice.lost),
            negative: sum(&series.slices, |slice| slice.negative),
            of_slices: QUANTILES.map(median),
            of_all: [
                series.all.value_at_quantile(0.5),
                series.all.value_at_quantile(0.99),
                series.all.value_at_quantile(0.999),
                series.all.max(),
            ],
            by_round: series.slices.clone(),
        }
    }
}

const QUANTILES: [fn(&Slice) -> f64; 3] = [|slice| slice.p50, |slice| slice.p99, |slice| slice.p999];

fn compare(comparison: &Comparison, subject: &[Slice], bare: &[Slice], valid: bool) -> Compared {
    let ratios = |subject: &[Slice], bare: &[Slice]| {
        QUANTILES.map(|of| {
            let values = |slices: &[Slice]| slices.iter().map(of).collect::<Vec<f64>>();
            of_slices(&values(subject), &values(bare))
        })
    };
    let all = ratios(subject, bare);
    let (quiet_subject, quiet_bare): (Vec<Slice>, Vec<Slice>) =
        subject.iter().zip(bare).filter(|(a, b)| !a.is_disturbed() && !b.is_disturbed()).unzip();
    let reached = match (comparison.bar, all) {
        (Some((p50, p99)), [Some(at_p50), Some(at_p99), _]) if valid => {
            Some(at_p50.median <= p50 && at_p99.median <= p99)
        }
        _ => None,
    };
    let undisturbed = ratios(&quiet_subject, &quiet_bare);
    Compared { subject: comparison.subject, bare: comparison.bare, all, undisturbed, bar: comparison.bar, reached }
}

fn disturbed(slices: &[Slice]) -> usize {
    slices.iter().filter(|slice| slice.is_disturbed()).count()
}

fn sum(slices: &[Slice], of: fn(&Slice) -> u64) -> u64 {
    slices.iter().map(of).sum()
}

impl fmt::Display for HopReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.valid {
            true => writeln!(f, "VALID")?,
            false => writeln!(f, "INVALID: {}", self.reasons.join("; "))?,
        }
        writeln!(f, "machine: {}", self.machine)?;
        let after = self.load_after.map_or("unknown".into(), |load| format!("{load:.2}"));
        writeln!(
            f,
            "taken:   {}; load average after {after}; {} ticks stolen by the hypervisor; {:.1} s",
            self.cores, self.stolen_ticks, self.seconds
        )?;
        writeln!(
            f,
            "clock:   {} in steps of {} ns, drifted {} ppb from the monotonic clock; one-way, from before the send to item in hand",
            self.clock, self.clock_step_ns, self.clock_drift_ppb
        )?;
        writeln!(
            f,
            "slices:  contenders in turn, one item under way at a time, {WARM_UP_ITEMS} items of warm-up each; pacing seed {}",
            self.seed
        )?;
        writeln!(
            f,
            "         disturbed: gaps of {GAP_NS} ns and more in the sender's waiting, or other threads, took over 1 %; kept, counted"
        )?;
        writeln!(f, "rings:   {} lines", self.ring_lines)?;
        writeln!(f)?;
        writeln!(
            f,
            "{:<22} {:>8} {:>8} {:>8} │ {:>7} {:>8} {:>9} {:>10} │ {:>9} {:>6} {:>9} {:>11}",
            "latency, ns",
            "p50",
            "p99",
            "p99.9",
            "p50",
            "p99",
            "p99.9",
            "max",
            "samples",
            "slices",
            "disturbed",
            "pace, us"
        )?;
        writeln!(f, "{:<22} {:^26} │ {:^37} │", "", "median of slices", "all samples")?;
        for row in &self.rows {
            let [p50, p99, p999] = row.of_slices;
            let [all_p50, all_p99, all_p999, max] = row.of_all;
            let pace = format!("{}-{}", row.pace.least_ns as f64 / 1e3, row.pace.most_ns as f64 / 1e3);
            write!(
                f,
                "{:<22} {p50:>8.0} {p99:>8.0} {p999:>8.0} │ {all_p50:>7} {all_p99:>8} {all_p999:>9} {max:>10} │ ",
                row.name
            )?;
            write!(f, "{:>9} {:>6} {:>9} {pace:>11}", row.samples, row.slices, row.disturbed)?;
            if row.lost + row.negative > 0 {
                write!(f, "  {} lost, {} negative", row.lost, row.negative)?;
            }
            writeln!(f)?;
        }
        writeln!(f)?;
        writeln!(
            f,
            "{:<46} {:>19} {:>19} {:>19}   bar",
            "ratio in the same round: median (quartiles)", "p50", "p99", "p99.9"
        )?;
        for compared in &self.compared {
            write!(f, "{:<46}", format!("{} / {}", compared.subject, compared.bare))?;
            write_ratios(f, &compared.all)?;
            match (compared.bar, compared.reached) {
                (None, _) => writeln!(f, "   -")?,
                (Some((p50, p99)), None) => writeln!(f, "   p50 {p50}, p99 {p99}: no claim")?,
                (Some((p50, p99)), Some(true)) => writeln!(f, "   p50 {p50}, p99 {p99}: reached")?,
                (Some((p50, p99)), Some(false)) => writeln!(f, "   p50 {p50}, p99 {p99}: NOT REACHED")?,
            }
            let rounds = compared.undisturbed[0].map_or(0, |ratio| ratio.rounds);
            write!(f, "{:<46}", format!("    {rounds} undisturbed rounds"))?;
            write_ratios(f, &compared.undisturbed)?;
            writeln!(f)?;
        }
        writeln!(f)?;
        for row in &self.rows {
            writeln!(f, "{:<22} {}", row.name, row.what)?;
        }
        Ok(())
    }
}

fn write_ratios(f: &mut fmt::Formatter<'_>, ratios: &[Option<Ratio>; 3]) -> fmt::Result {
    for ratio in ratios {
        let text = ratio.map_or("-".into(), |ratio| {
            format!("{:.2} ({:.2}-{:.2})", ratio.median, ratio.lower_quartile, ratio.upper_quartile)
        });
        write!(f, " {text:>19}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(p50: u32, gaps: u64) -> Slice {
        let p50 = f64::from(p50);
        Slice {
            samples: 100,
            p50,
            p99: 2.0 * p50,
            p999: 3.0 * p50,
            gap_ns: 100 * gaps,
            took_ns: 1_000,
            ..Slice::default()
        }
    }

    #[test]
    fn disturbed_rounds_count_and_are_told_apart() {
        let subject = [slice(60, 0), slice(900, 1), slice(60, 0)];
        let bare = [slice(30, 0), slice(30, 0), slice(40, 1)];
        let comparison = Comparison { subject: "a", bare: "b", bar: Some((1.9, 3.0)) };
        let compared = compare(&comparison, &subject, &bare, true);
        assert_eq!(compared.all[0].map(|ratio| (ratio.median, ratio.rounds)), Some((2.0, 3)));
        assert_eq!(compared.undisturbed[0].map(|ratio| (ratio.median, ratio.rounds)), Some((2.0, 1)));
        assert_eq!(compared.reached, Some(false), "2.0 at p50 is above 1.9");
    }

    #[test]
    fn an_invalid_run_claims_nothing() {
        let comparison = Comparison { subject: "a", bare: "b", bar: Some((2.0, 2.0)) };
        let compared = compare(&comparison, &[slice(30, 0)], &[slice(30, 0)], false);
        assert_eq!(compared.reached, None);
    }
}
