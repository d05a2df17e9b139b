//! How sure a percentile is: latencies are correlated, so they are counted by blocks of time.
//!
//! A stall delays thousands of records, and says as much as one. So samples are put into blocks by their intended time, and
//! confidence comes from drawing whole blocks with replacement (the block bootstrap). Blocks are as long as stated, and are
//! doubled until what lies beyond the percentile in one block no longer tells what lies beyond it in the next.

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

/// Blocks beyond a percentile that it takes to claim it.
pub const BLOCKS_BEYOND: usize = 100;
/// Correlation of neighbouring blocks up to which they count as independent.
const INDEPENDENT: f64 = 0.2;
/// Redrawn samples of a bootstrap.
const REDRAWS: usize = 1_000;
/// Values at which the share beyond is counted, block by block.
const GRID: usize = 96;
/// How far around the percentile's own share beyond they reach, as a factor either way.
const REACH: f64 = 16.0;

/// One latency and where it belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timed {
    /// The intended time, ns from the start of the run.
    pub at_ns: u64,
    /// The latency, ns.
    pub latency_ns: u32,
}

/// A percentile, and how sure it is.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Estimate {
    /// Percent.
    pub percentile: f64,
    /// As measured, ns.
    pub value_ns: u64,
    /// The lower end of the 95 % confidence interval, ns.
    pub low_ns: u64,
    /// Its upper end, ns.
    pub high_ns: u64,
    /// Samples.
    pub samples: u64,
    /// How long a block is, ns.
    pub block_ns: u64,
    /// Blocks that hold samples.
    pub blocks: usize,
    /// Blocks that hold a sample at or beyond the percentile.
    pub blocks_beyond: usize,
    /// Correlation of what lies beyond in neighbouring blocks.
    pub correlation: f64,
}

impl Estimate {
    /// Whether there are blocks enough beyond it to claim it.
    pub fn is_supported(&self) -> bool {
        self.blocks_beyond >= BLOCKS_BEYOND
    }
}

/// The smallest value that `percentile` percent of the sorted values do not exceed; 0 of none.
pub fn quantile(sorted: &[u32], percentile: f64) -> u32 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0 };
    // A little less, so that 99.9 % of 1000 is 999 in spite of binary fractions.
    let rank = (percentile / 100.0 * sorted.len() as f64 - 1e-6).ceil() as usize;
    sorted[rank.saturating_sub(1).min(last)]
}

/// The latencies of a run, sorted both ways.
pub struct Latencies {
    /// By intended time.
    timed: Vec<Timed>,
    /// By latency.
    sorted: Vec<u32>,
}

impl Latencies {
    /// Of samples in any order.
    pub fn new(mut timed: Vec<Timed>) -> Latencies {
        // Records of one message share a time, and venues' times may go back: a stable order is all it takes.
        timed.sort_by_key(|sample| sample.at_ns);
        let mut sorted: Vec<u32> = timed.iter().map(|sample| sample.latency_ns).collect();
        sorted.sort_unstable();
        Latencies { timed, sorted }
    }

    /// By latency, ascending.
    pub fn sorted(&self) -> &[u32] {
        &self.sorted
    }

    /// By intended time.
    pub fn timed(&self) -> &[Timed] {
        &self.timed
    }

    /// The percentile, ns.
    pub fn percentile(&self, percentile: f64) -> u64 {
        u64::from(quantile(&self.sorted, percentile))
    }

    /// The percentile with its confidence interval, from blocks of at least `block_ns`. `None` of no samples. The same
    /// samples and seed give the same interval.
    pub fn estimate(&self, percentile: f64, block_ns: u64, seed: u64) -> Option<Estimate> {
        if self.timed.is_empty() {
            return None;
        }
        let value = quantile(&self.sorted, percentile);
        // Beyond is at or above: where many samples are as high as the highest, that is what there is.
        let below = value.saturating_sub(1);
        let (mut block_ns, mut counts) = (block_ns.max(1), self.count(block_ns.max(1), &[below]));
        let mut correlation = lag_one(&counts);
        while correlation > INDEPENDENT && counts.len() > 8 {
            block_ns *= 2;
            counts = self.count(block_ns, &[below]);
            correlation = lag_one(&counts);
        }
        let grid = self.grid(percentile);
        let blocks = self.count(block_ns, &grid);
        let (low, high) = redraw(&blocks, &grid, percentile, seed);
        Some(Estimate {
            percentile,
            value_ns: value.into(),
            low_ns: low.min(u64::from(value)),
            high_ns: high.max(u64::from(value)),
            samples: self.sorted.len() as u64,
            block_ns,
            blocks: blocks.len(),
            blocks_beyond: counts.iter().filter(|block| block.beyond[0] > 0).count(),
            correlation,
        })
    }

    /// Values, ascending, whose shares beyond lie around that of `percentile`.
    fn grid(&self, percentile: f64) -> Vec<u32> {
        let beyond = 1.0 - percentile / 100.0;
        let mut grid: Vec<u32> = (0..=GRID)
            .map(|i| beyond * REACH.powf(1.0 - 2.0 * i as f64 / GRID as f64))
            .filter(|share| *share < 1.0)
            .map(|share| quantile(&self.sorted, (1.0 - share) * 100.0))
            .chain([self.sorted[0], self.sorted[self.sorted.len() - 1]])
            .collect();
        grid.sort_unstable();
        grid.dedup();
        grid
    }

    fn count(&self, block_ns: u64, grid: &[u32]) -> Vec<Block> {
        let mut blocks: Vec<Block> = Vec::new();
        let mut current = None;
        for sample in &self.timed {
            let at = sample.at_ns / block_ns;
            if current != Some(at) {
                current = Some(at);
                blocks.push(Block { at, samples: 0, beyond: vec![0; grid.len()] });
            }
            let block = blocks.last_mut().expect("one was just pushed");
            block.samples += 1;
            let below = grid.partition_point(|value| *value < sample.latency_ns);
            if let Some(place) = below.checked_sub(1) {
                block.beyond[place] += 1;
            }
        }
        for block in &mut blocks {
            // What lies beyond a value lies beyond every lower one.
            for i in (0..grid.len().saturating_sub(1)).rev() {
                block.beyond[i] += block.beyond[i + 1];
            }
        }
        blocks
    }
}

/// Samples of one stretch of time, and how many of them exceed each value of a grid.
struct Block {
    at: u64,
    samples: u32,
    beyond: Vec<u32>,
}

/// How much the share beyond in one block tells of that in the next: their correlation.
fn lag_one(blocks: &[Block]) -> f64 {
    let shares: Vec<f64> = blocks.iter().map(|block| f64::from(block.beyond[0]) / f64::from(block.samples)).collect();
    let n = shares.len() as f64;
    let mean = shares.iter().sum::<f64>() / n;
    let spread: f64 = shares.iter().map(|share| (share - mean).powi(2)).sum::<f64>() / n;
    if blocks.len() < 3 || spread <= f64::EPSILON {
        return 0.0;
    }
    let mut pairs = 0;
    let mut together = 0.0;
    for (i, pair) in blocks.windows(2).enumerate() {
        if pair[1].at == pair[0].at + 1 {
            pairs += 1;
            together += (shares[i] - mean) * (shares[i + 1] - mean);
        }
    }
    if pairs == 0 { 0.0 } else { together / f64::from(pairs) / spread }
}

/// The 2.5 % and 97.5 % of the percentile over redrawn runs.
fn redraw(blocks: &[Block], grid: &[u32], percentile: f64, seed: u64) -> (u64, u64) {
    let share = 1.0 - percentile / 100.0;
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut values = Vec::with_capacity(REDRAWS);
    let mut beyond = vec![0u64; grid.len()];
    for _ in 0..REDRAWS {
        beyond.fill(0);
        let mut samples = 0u64;
        for _ in 0..blocks.len() {
            let block = &blocks[random.random_range(0..blocks.len())];
            samples += u64::from(block.samples);
            for (sum, count) in beyond.iter_mut().zip(&block.beyond) {
                *sum += u64::from(*count);
            }
        }
        let allowed = share * samples as f64;
        // The first value that no more than the allowed number exceeds; between it and the one before by proportion.
        let place = beyond.partition_point(|count| *count as f64 > allowed).min(grid.len() - 1);
        let value = if place == 0 {
            f64::from(grid[0])
        } else {
            let (above, at) = (beyond[place - 1] as f64, beyond[place] as f64);
            let part = if above > at { ((above - allowed) / (above - at)).clamp(0.0, 1.0) } else { 1.0 };
            f64::from(grid[place - 1]) + part * (f64::from(grid[place]) - f64::from(grid[place - 1]))
        };
        values.push(value.round() as u64);
    }
    values.sort_unstable();
    let at = |part: f64| values[((values.len() - 1) as f64 * part).round() as usize];
    (at(0.025), at(0.975))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(seed: u64) -> Pcg64Mcg {
        Pcg64Mcg::seed_from_u64(seed)
    }

    /// Independent latencies, evenly spread over 0 to 1 ms, 10 us apart.
    fn even(count: u64, seed: u64) -> Latencies {
        let mut random = random(seed);
        let sample = |i| Timed { at_ns: i * 10_000, latency_ns: random.random_range(0..1_000_000) };
        Latencies::new((0..count).map(sample).collect())
    }

    #[test]
    fn a_percentile_is_the_value_that_so_many_do_not_exceed() {
        let sorted: Vec<u32> = (1..=1000).collect();
        assert_eq!([50.0, 99.0, 99.9, 100.0].map(|p| quantile(&sorted, p)), [500, 990, 999, 1000]);
        assert_eq!(quantile(&[], 50.0), 0);
        assert_eq!(quantile(&[7], 99.9), 7);
    }

    #[test]
    fn intervals_of_independent_samples_hold_the_truth_as_often_as_they_say() {
        let mut held = 0;
        for seed in 0..60 {
            let estimate = even(20_000, seed).estimate(99.0, 1_000_000, seed).expect("samples");
            assert_eq!(estimate.blocks, 200);
            held += u32::from((estimate.low_ns..=estimate.high_ns).contains(&990_000));
            // By arithmetic: 20,000 samples of which 1 % is beyond; the density is 1e-6, so the error is 0.7 us.
            assert!((1_000..8_000).contains(&(estimate.high_ns - estimate.low_ns)), "{estimate:?}");
        }
        assert!(held >= 50, "{held} of 60 intervals hold the true value; 57 are expected");
    }

    #[test]
    fn what_comes_together_counts_once() {
        // Stalls of 200 ms each: in blocks of 10 ms the neighbours go together, so blocks grow until they do not.
        let mut samples = Vec::new();
        for i in 0..100_000u64 {
            let (second, into) = (i / 1_000, i % 1_000);
            let stalled = second % 7 == 0 && into < 200;
            samples.push(Timed { at_ns: i * 1_000_000, latency_ns: if stalled { 5_000_000 } else { 1_000 } });
        }
        let estimate = Latencies::new(samples).estimate(99.0, 10_000_000, 1).expect("samples");
        assert!(estimate.block_ns >= 160_000_000, "{estimate:?}");
        let by_blocks_of_10_ms = 15 * 20;
        assert!(estimate.blocks_beyond < by_blocks_of_10_ms / 4 || !estimate.is_supported(), "{estimate:?}");
    }

    #[test]
    fn the_same_seed_gives_the_same_interval_and_nothing_gives_none() {
        let latencies = even(5_000, 3);
        assert_eq!(latencies.estimate(99.9, 1_000_000, 9), latencies.estimate(99.9, 1_000_000, 9));
        assert_eq!(Latencies::new(Vec::new()).estimate(99.0, 1, 1), None);
        let one = Latencies::new(vec![Timed { at_ns: 5, latency_ns: 70 }]).estimate(99.0, 10, 1).expect("one");
        assert_eq!((one.low_ns, one.value_ns, one.high_ns, one.is_supported()), (70, 70, 70, false));
    }

    #[test]
    fn few_blocks_beyond_do_not_support_a_claim() {
        let latencies = even(20_000, 5);
        assert!(latencies.estimate(90.0, 1_000_000, 1).expect("samples").is_supported());
        assert!(!latencies.estimate(99.9, 1_000_000, 1).expect("samples").is_supported(), "20 samples beyond");
    }
}
