//! Ratios of what was measured in the same round, and their spread.

use serde::Serialize;

/// A median of per-round ratios.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Ratio {
    /// Half of the rounds were below it.
    pub median: f64,
    /// A quarter of the rounds were below it.
    pub lower_quartile: f64,
    /// A quarter of the rounds were above it.
    pub upper_quartile: f64,
    /// How many rounds there were.
    pub rounds: usize,
}

/// The ratio of `subject` to `bare`, round by round: place `i` of both is round `i`. Rounds in which `bare` is 0 are left
/// out; `None` if nothing is left.
pub fn of_slices(subject: &[f64], bare: &[f64]) -> Option<Ratio> {
    spread(subject.iter().zip(bare).filter(|(_, bare)| **bare > 0.0).map(|(subject, bare)| subject / bare).collect())
}

/// The median and the quartiles of `values`, as a [`Ratio`]; `None` if there are none.
pub fn spread(mut values: Vec<f64>) -> Option<Ratio> {
    if values.is_empty() {
        return None;
    }
    values.sort_by(f64::total_cmp);
    Some(Ratio {
        median: quantile(&values, 0.5),
        lower_quartile: quantile(&values, 0.25),
        upper_quartile: quantile(&values, 0.75),
        rounds: values.len(),
    })
}

/// The quantile `q` of sorted values, between two of them by proportion.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let at = q * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    below + (above - below) * at.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_of_the_ratios_and_not_the_ratio_of_medians() {
        // By medians it would be 30 / 20.
        let ratio = of_slices(&[10.0, 30.0, 100.0], &[10.0, 10.0, 40.0]).expect("three rounds");
        assert_eq!((ratio.median, ratio.rounds), (2.5, 3));
        assert_eq!((ratio.lower_quartile, ratio.upper_quartile), (1.75, 2.75));
    }

    #[test]
    fn rounds_without_a_bare_value_are_left_out_and_none_at_all_is_no_ratio() {
        assert_eq!(of_slices(&[10.0, 30.0], &[0.0, 10.0]).map(|ratio| (ratio.median, ratio.rounds)), Some((3.0, 1)));
        assert_eq!(of_slices(&[1.0], &[0.0]), None);
        assert_eq!(of_slices(&[], &[]), None);
    }
}
