//! The highest load at which a limit still holds: a search that asks a run at a time.

use publisher::pace::Pace;
use serde::{Deserialize, Serialize};

use super::verdict::Verdict;

/// How close the search comes: the highest that held and the lowest that did not are at most so far apart.
const CLOSE: f64 = 1.1;
/// The search ends at so many times the case's own load, and at so little of it: less load takes longer.
const MOST: f64 = 1_024.0;
const LEAST: f64 = 1.0 / 8.0;
/// Runs at most.
const RUNS: usize = 16;

/// One run of a ramp.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Step {
    /// How many times the case's own load.
    pub factor: f64,
    /// The load in words.
    pub pace: String,
    /// What came of it.
    pub verdict: Verdict,
    /// The first reason, if it did not hold.
    pub because: Option<String>,
}

/// What a ramp found.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Ramp {
    /// The case.
    pub case: String,
    /// Its runs, in the order they were made.
    pub steps: Vec<Step>,
    /// The highest factor at which every limit held in a valid run; `None` if none did.
    pub highest: Option<f64>,
    /// The lowest factor at which it did not; `None` if it always did.
    pub lowest_failed: Option<f64>,
}

/// `pace`, so many times as much.
pub fn scaled(pace: Pace, factor: f64) -> Pace {
    match pace {
        Pace::Speed(speed) => Pace::Speed(speed * factor),
        Pace::Rate(rate) => Pace::Rate(rate * factor),
        Pace::Bursts { messages, every_ns } => {
            Pace::Bursts { messages, every_ns: ((every_ns as f64 / factor) as u64).max(1) }
        }
        Pace::Squeezed { speed, every_ns, width_ns, factor: inside } => {
            Pace::Squeezed { speed: speed * factor, every_ns, width_ns, factor: inside }
        }
        Pace::Max => Pace::Max,
    }
}

/// Rounds of the capture at so many times the load, so that a run takes about as long as the case's own.
pub fn rounds(loops: u32, factor: f64) -> u32 {
    (f64::from(loops) * factor).round().max(1.0) as u32
}

/// What to try next after `steps` (factor, and whether it held); `None` when the answer is close enough.
pub fn next(steps: &[(f64, bool)]) -> Option<f64> {
    let held = steps.iter().filter(|(_, held)| *held).map(|(factor, _)| *factor).fold(0.0, f64::max);
    // One that held above one that failed was luck, or the failure was the machine's: what counts is the lower failure.
    let failed = steps.iter().filter(|(_, held)| !held).map(|(factor, _)| *factor).fold(f64::INFINITY, f64::min);
    if steps.len() >= RUNS {
        return None;
    }
    match (held > 0.0, failed.is_finite()) {
        (false, false) => Some(1.0),
        (true, false) => Some(held * 2.0).filter(|factor| *factor <= MOST),
        (false, true) => Some(failed / 2.0).filter(|factor| *factor >= LEAST),
        (true, true) if failed <= held * CLOSE => None,
        (true, true) => Some((held * failed).sqrt()),
    }
}

impl Ramp {
    /// Of runs that were made.
    pub fn new(case: &str, steps: Vec<Step>) -> Ramp {
        let of = |held: bool| {
            steps.iter().filter(move |step| (step.verdict == Verdict::Met) == held).map(|step| step.factor)
        };
        let lowest_failed = of(false).reduce(f64::min);
        let highest = of(true).filter(|factor| lowest_failed.is_none_or(|failed| *factor < failed)).reduce(f64::max);
        Ramp { case: case.into(), highest, lowest_failed, steps }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(holds: impl Fn(f64) -> bool) -> Vec<(f64, bool)> {
        let mut steps = Vec::new();
        while let Some(factor) = next(&steps) {
            steps.push((factor, holds(factor)));
        }
        steps
    }

    #[test]
    fn the_highest_load_is_found_to_a_tenth() {
        for truth in [0.13, 0.8, 1.0, 3.7, 100.0] {
            let steps = search(|factor| factor <= truth);
            let held = steps.iter().filter(|step| step.1).map(|step| step.0).fold(0.0, f64::max);
            assert!(held <= truth && held * CLOSE >= truth * 0.999, "{held} for {truth}: {steps:?}");
            assert!(steps.len() <= RUNS, "{steps:?}");
        }
        assert!(search(|_| false).iter().all(|step| step.0 >= LEAST));
        assert!(search(|_| true).iter().all(|step| step.0 <= MOST));
    }

    #[test]
    fn a_load_that_held_above_one_that_failed_is_not_the_answer() {
        let step = |factor, verdict| Step { factor, pace: String::new(), verdict, because: None };
        let ramp = Ramp::new("x", vec![step(1.0, Verdict::Met), step(2.0, Verdict::Broken), step(4.0, Verdict::Met)]);
        assert_eq!((ramp.highest, ramp.lowest_failed), (Some(1.0), Some(2.0)));
        assert_eq!(Ramp::new("x", vec![step(1.0, Verdict::Invalid)]).highest, None);
    }

    #[test]
    fn more_load_is_more_of_whatever_the_load_is() {
        assert_eq!(scaled(Pace::Rate(100.0), 2.0), Pace::Rate(200.0));
        let bursts = Pace::Bursts { messages: 10, every_ns: 1_000 };
        assert_eq!(scaled(bursts, 4.0), Pace::Bursts { messages: 10, every_ns: 250 });
        assert_eq!([0.25, 1.0, 2.6].map(|factor| rounds(2, factor)), [1, 2, 5]);
    }
}
