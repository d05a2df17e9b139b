//! Whether two builds or two runs differ: pairs taken side by side, whole blocks of them redrawn.
//!
//! The machine changes while one measures, and changes both of a pair. So what counts is each pair's own ratio, and because
//! neighbouring pairs share the machine's mood, blocks of neighbours are redrawn, not single pairs.

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

/// Pairs that it takes to say anything: of fewer a redrawn median is too sure of itself.
pub const LEAST_PAIRS: usize = 20;
/// Redrawn lists of pairs.
const REDRAWS: usize = 4_000;

/// Up to which difference two things are taken for the same.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Margin {
    /// As a part of the first: 0.03 is 3 %.
    pub part: f64,
    /// Or this much, ns, if that is more.
    pub ns: f64,
}

impl Default for Margin {
    /// 3 %, or 10 ns.
    fn default() -> Margin {
        Margin { part: 0.03, ns: 10.0 }
    }
}

/// What pairs say.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Finding {
    /// The difference lies within the margin, as far as can be told (90 % confidence interval).
    Same,
    /// B takes longer: by the margin or more, and the 99 % confidence interval lies above no difference.
    Slower,
    /// B takes less time, in the same sense.
    Faster,
    /// Neither can be said.
    Undecided,
}

impl Finding {
    /// As reports print it.
    pub const fn name(self) -> &'static str {
        match self {
            Finding::Same => "SAME",
            Finding::Slower => "SLOWER",
            Finding::Faster => "FASTER",
            Finding::Undecided => "UNDECIDED",
        }
    }

    /// The exit status: 0 same or faster, 1 slower, 2 undecided. (3 is an error.)
    pub const fn exit_code(self) -> u8 {
        match self {
            Finding::Same | Finding::Faster => 0,
            Finding::Slower => 1,
            Finding::Undecided => 2,
        }
    }
}

/// What was found of one quantity.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Compared {
    /// What was measured.
    pub what: String,
    /// What pairs say.
    pub finding: Finding,
    /// Pairs.
    pub pairs: usize,
    /// The median of A, ns.
    pub a_ns: f64,
    /// The median of B, ns.
    pub b_ns: f64,
    /// The median over pairs of B less A, as a part of A.
    pub difference: f64,
    /// Its 90 % confidence interval.
    pub within_90: (f64, f64),
    /// Its 99 % confidence interval.
    pub within_99: (f64, f64),
    /// The margin as a part of A.
    pub margin: f64,
    /// Neighbouring pairs that were redrawn together.
    pub block: usize,
}

/// Compares pairs (A, B), in the order they were taken. `None` of fewer than [`LEAST_PAIRS`] whose A is not zero.
pub fn compare(what: &str, pairs: &[(f64, f64)], margin: Margin, seed: u64) -> Option<Compared> {
    let pairs: Vec<(f64, f64)> = pairs.iter().copied().filter(|(a, b)| *a > 0.0 && *b > 0.0).collect();
    if pairs.len() < LEAST_PAIRS {
        return None;
    }
    // Logarithms, so that twice as long and half as long are equally far from the same.
    let ratios: Vec<f64> = pairs.iter().map(|(a, b)| (b / a).ln()).collect();
    let block = (pairs.len() as f64).cbrt().round() as usize;
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut medians: Vec<f64> = (0..REDRAWS)
        .map(|_| {
            let mut drawn = Vec::with_capacity(ratios.len() + block);
            while drawn.len() < ratios.len() {
                // Round the end, so that every pair is drawn as often as any other.
                let from = random.random_range(0..ratios.len());
                drawn.extend((0..block).map(|i| ratios[(from + i) % ratios.len()]));
            }
            drawn.truncate(ratios.len());
            median(&mut drawn)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    let at = |part: f64| medians[((REDRAWS - 1) as f64 * part).round() as usize].exp_m1();
    let (within_90, within_99) = ((at(0.05), at(0.95)), (at(0.005), at(0.995)));
    let of = |side: fn(&(f64, f64)) -> f64| median(&mut pairs.iter().map(side).collect::<Vec<_>>());
    let (a_ns, b_ns) = (of(|pair| pair.0), of(|pair| pair.1));
    let difference = median(&mut ratios.clone()).exp_m1();
    let margin = margin.part.max(margin.ns / a_ns);
    let finding = if within_99.0 > 0.0 && difference >= margin {
        Finding::Slower
    } else if within_99.1 < 0.0 && difference <= -margin {
        Finding::Faster
    } else if within_90.0 >= -margin && within_90.1 <= margin {
        Finding::Same
    } else {
        Finding::Undecided
    };
    Some(Compared {
        what: what.into(),
        finding,
        pairs: pairs.len(),
        a_ns,
        b_ns,
        difference,
        within_90,
        within_99,
        margin,
        block,
    })
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    if n == 0 {
        return 0.0;
    }
    (values[(n - 1) / 2] + values[n / 2]) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times of a build, with the machine's moods: a slow wander that both of a pair share, noise of each one's own, and now
    /// and then a disturbance of one side alone.
    fn simulated(pairs: usize, b_longer: f64, seed: u64) -> Vec<(f64, f64)> {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mut mood = 0.0f64;
        (0..pairs)
            .map(|_| {
                mood = 0.8 * mood + 0.05 * (random.random::<f64>() - 0.5);
                let mut one = || {
                    let noise = (0..4).map(|_| random.random::<f64>() - 0.5).sum::<f64>() * 0.025;
                    let hit = if random.random::<f64>() < 0.1 { random.random::<f64>() * 0.5 } else { 0.0 };
                    1_000.0 * (1.0 + mood + noise + hit)
                };
                (one(), one() * (1.0 + b_longer))
            })
            .collect()
    }

    fn count(b_longer: f64, runs: u64, finding: Finding) -> usize {
        let found = |seed| compare("x", &simulated(30, b_longer, seed), Margin::default(), seed).map(|c| c.finding);
        (0..runs).filter(|seed| found(*seed) == Some(finding)).count()
    }

    #[test]
    fn a_build_compared_with_itself_raises_at_most_one_false_alarm_in_a_hundred() {
        assert!(count(0.0, 100, Finding::Slower) <= 1);
        assert!(count(0.0, 100, Finding::Faster) <= 1);
        let same = count(0.0, 100, Finding::Same);
        assert!(same >= 60, "{same} of 100: most are told to be the same");
    }

    #[test]
    fn five_percent_more_work_is_found_in_nineteen_of_twenty() {
        let found = count(0.05, 100, Finding::Slower);
        assert!(found >= 95, "{found} of 100");
        let found = count(-0.05, 100, Finding::Faster);
        assert!(found >= 95, "{found} of 100");
    }

    #[test]
    fn a_difference_of_a_few_nanoseconds_is_none() {
        let pairs: Vec<(f64, f64)> = (0..30).map(|i| (100.0 + f64::from(i % 3), 107.0 + f64::from(i % 3))).collect();
        let compared = compare("x", &pairs, Margin::default(), 1).expect("enough");
        assert_eq!(compared.finding, Finding::Same, "7 ns are less than 10: {compared:?}");
        let strict = compare("x", &pairs, Margin { ns: 0.0, ..Margin::default() }, 1).expect("enough");
        assert_eq!(strict.finding, Finding::Slower, "{strict:?}");
        assert_eq!(compare("x", &pairs[..5], Margin::default(), 1), None);
    }
}
