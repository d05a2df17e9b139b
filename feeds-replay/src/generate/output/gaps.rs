//! Which messages a venue loses.

use super::super::random::Random;

/// Consecutive messages that no line carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gap {
    /// The first of them, counted from 1.
    pub first: u64,
    /// How many.
    pub count: u64,
}

/// The venue gaps of a day, spread over it.
#[derive(Clone, Debug)]
pub struct Gaps {
    gaps: Vec<Gap>,
    /// The gap that is next or under way.
    at: usize,
}

impl Gaps {
    /// `count` gaps of 1 to 32 messages between the first tenth and the last hundredth of a day; fewer if the day has no room
    /// for as many apart from each other.
    pub fn new(count: u32, messages: u64, seed: u64) -> Gaps {
        const LONGEST: u64 = 32;
        let mut random = Random::new(seed ^ 0x6761_7073);
        let (from, to) = (messages / 10, messages - messages / 100);
        let count = u64::from(count).min((to - from) / (2 * LONGEST));
        let gaps = (0..count)
            .map(|nth| {
                let part = (to - from) / count;
                let length = (1u64 << random.halving().min(5)).min(LONGEST);
                let first = from + nth * part + random.below(part - LONGEST) + 1;
                Gap { first, count: length }
            })
            .collect();
        Gaps { gaps, at: 0 }
    }

    /// Every gap, in order.
    pub fn all(&self) -> &[Gap] {
        &self.gaps
    }

    /// Whether this message is lost. Asked for each message in order.
    #[inline]
    pub fn holds(&mut self, sequence: u64) -> bool {
        let Some(gap) = self.gaps.get(self.at) else { return false };
        if sequence < gap.first {
            return false;
        }
        if sequence + 1 == gap.first + gap.count {
            self.at += 1;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_apart_within_the_day_and_hold_what_they_say() {
        for (count, messages) in [(0, 5_000), (1, 5_000), (20, 5_000), (10_000, 5_000), (1_000, 10_000_000)] {
            let mut gaps = Gaps::new(count, messages, 3);
            let all = gaps.all().to_vec();
            assert!(all.len() as u32 == count || all.len() > 50, "{} of {count}", all.len());
            assert!(all.windows(2).all(|pair| pair[0].first + pair[0].count < pair[1].first), "{all:?}");
            assert!(all.iter().all(|gap| gap.first > messages / 10 && gap.first + gap.count <= messages));
            let lost = (1..=messages).filter(|sequence| gaps.holds(*sequence)).count() as u64;
            assert_eq!(lost, all.iter().map(|gap| gap.count).sum::<u64>());
        }
    }
}
