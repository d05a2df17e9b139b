//! Randomness that gives the same day for the same seed, on any machine and with any version of its library.
//!
//! The generator is PCG-64; numbers are drawn from it by integer arithmetic written here, because a library may change
//! how it maps bits to ranges, and floating-point functions differ between machines.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{RngCore, SeedableRng};

/// The source of all choices.
#[derive(Clone, Debug)]
pub(super) struct Random(Pcg64Mcg);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        let mut bytes = [0u8; 16];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        bytes[8..].copy_from_slice(&(!seed).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes());
        let mut random = Random(Pcg64Mcg::from_seed(bytes));
        // Near seeds give near first outputs.
        for _ in 0..8 {
            random.bits();
        }
        random
    }

    /// 64 random bits.
    #[inline]
    pub(super) fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `bound`, which is not zero.
    #[inline]
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// True once in `n` times.
    #[inline]
    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// A gap around `mean`: mostly shorter, at most four times as long; the product of two uniform numbers.
    #[inline]
    pub(super) fn gap(&mut self, mean: u64) -> u64 {
        let bits = self.bits();
        let product = u128::from(bits >> 32) * u128::from(bits & 0xFFFF_FFFF);
        ((product * u128::from(mean)) >> 62) as u64
    }

    /// 0 half of the time, 1 a quarter, 2 an eighth, and so on; at most 63.
    #[inline]
    pub(super) fn halving(&mut self) -> u32 {
        (self.bits() | 1 << 63).trailing_zeros()
    }
}

/// Draws one of `n` by popularity, the i-th with weight 1/(i + 1), in constant time (Vose's alias method).
#[derive(Clone, Debug)]
pub(super) struct Popularity {
    /// For each place: the chance, of 2^32, to stay there, and where to go otherwise.
    places: Vec<(u32, u32)>,
}

impl Popularity {
    pub(super) fn new(n: usize) -> Popularity {
        assert!(n > 0, "nothing to draw from");
        // Weights scaled so that they add up to n << 32, but for rounding.
        let total: u128 = (0..n).map(|i| (1u128 << 40) / (i as u128 + 1)).sum();
        let mut weights: Vec<u128> =
            (0..n).map(|i| ((1u128 << 40) / (i as u128 + 1) * ((n as u128) << 32)) / total).collect();
        let mut places: Vec<(u32, u32)> = (0..n).map(|i| (u32::MAX, i as u32)).collect();
        let whole = 1u128 << 32;
        let (mut small, mut large): (Vec<usize>, Vec<usize>) = (0..n).partition(|i| weights[*i] < whole);
        while let (Some(&from), Some(&to)) = (small.last(), large.last()) {
            small.pop();
            places[from] = (weights[from] as u32, to as u32);
            weights[to] -= whole - weights[from];
            if weights[to] < whole {
                large.pop();
                small.push(to);
            }
        }
        Popularity { places }
    }

    #[inline]
    pub(super) fn draw(&self, random: &mut Random) -> usize {
        let place = random.below(self.places.len() as u64) as usize;
        let (stay, other) = self.places[place];
        if (random.bits() >> 32) as u32 <= stay { place } else { other as usize }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn popularity_follows_one_over_rank() {
        let mut random = Random::new(1);
        let popularity = Popularity::new(10);
        let mut counts = [0u64; 10];
        for _ in 0..292_897 {
            counts[popularity.draw(&mut random)] += 1;
        }
        // 1/(i + 1) of 100,000, since the harmonic number of 10 is 2.92897; seven standard deviations are 2,200.
        for (i, count) in counts.into_iter().enumerate() {
            let wanted = 100_000 / (i as u64 + 1);
            assert!(count.abs_diff(wanted) < 2_200, "rank {i}: {count} instead of {wanted}");
        }
    }

    #[test]
    fn gaps_have_the_mean_that_was_asked_for() {
        let mut random = Random::new(7);
        let sum: u64 = (0..100_000).map(|_| random.gap(1_000)).sum();
        assert!((98_000_000..102_000_000).contains(&sum), "{sum}");
    }
}
