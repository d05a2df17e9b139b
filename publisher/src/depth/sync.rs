//! How diffs follow each other, and how a snapshot meets them.
//!
//! Each diff covers the updates `U` to `u`, and `pu`, where the venue says it, is the `u` of the diff before. A snapshot is
//! asked for beside the stream and holds everything up to its own last update, which may lie inside a diff (that diff
//! straddles it, and is applied: levels are absolute), before some that are applied already (they are kept here, and put
//! on top of it again), or behind all of them.

use std::collections::VecDeque;

use protocol::record::Side;

/// Diffs kept for a snapshot to come: a hundred seconds of them at ten a second.
const MAX_DIFFS: usize = 1 << 10;
/// Levels kept in them.
const MAX_LEVELS: usize = 1 << 15;

/// A level of a kept diff.
pub type Level = (Side, i64, u64);

/// What a diff is to the book.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The book has all of it.
    Old,
    /// It follows, or is the very first.
    Follows,
    /// Updates are missing before it: the first, and how many.
    Gap {
        /// The first missing update.
        first: u64,
        /// How many, at least 1; with `pu`, as many as the numbers are apart.
        count: u64,
    },
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    /// The last update before it.
    previous: u64,
    last: u64,
    levels: usize,
}

/// The place of one book in its stream.
#[derive(Debug, Default)]
pub struct Sync {
    last: Option<u64>,
    /// The book is a snapshot's, and no diff was applied since: the next one need only straddle its end.
    after_snapshot: bool,
    diffs: VecDeque<Kept>,
    levels: VecDeque<Level>,
}

impl Sync {
    /// Takes in that a diff came, and says what it is. Unless it is old, its levels follow with [`Sync::keep`].
    pub fn diff(&mut self, first: u64, last: u64, previous: Option<u64>) -> Verdict {
        let before = previous.unwrap_or(first.saturating_sub(1));
        let verdict = match self.last {
            None => Verdict::Follows,
            Some(own) if last <= own => return Verdict::Old,
            Some(own) => {
                let follows = match previous {
                    Some(previous) if !self.after_snapshot => previous == own,
                    _ => before <= own,
                };
                if follows {
                    Verdict::Follows
                } else {
                    Verdict::Gap { first: own + 1, count: before.saturating_sub(own).max(1) }
                }
            }
        };
        if verdict != Verdict::Follows {
            self.diffs.clear();
            self.levels.clear();
        }
        (self.last, self.after_snapshot) = (Some(last), false);
        while self.diffs.len() >= MAX_DIFFS {
            self.drop_oldest();
        }
        self.diffs.push_back(Kept { previous: before, last, levels: 0 });
        verdict
    }

    /// Keeps a level of the diff that came last.
    pub fn keep(&mut self, level: Level) {
        while self.levels.len() >= MAX_LEVELS && !self.diffs.is_empty() {
            self.drop_oldest();
        }
        // A diff that is too long by itself is not kept.
        if let Some(newest) = self.diffs.back_mut() {
            newest.levels += 1;
            self.levels.push_back(level);
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.diffs.pop_front() {
            self.levels.drain(..oldest.levels);
        }
    }

    /// Takes in a snapshot that holds everything up to `last`; whether it meets what came since. If not, it is of no use.
    pub fn snapshot(&mut self, last: u64) -> bool {
        if self.last.is_some_and(|own| own > last) {
            while self.diffs.front().is_some_and(|oldest| oldest.last <= last) {
                self.drop_oldest();
            }
            return self.diffs.front().is_some_and(|oldest| oldest.previous <= last);
        }
        self.diffs.clear();
        self.levels.clear();
        (self.last, self.after_snapshot) = (Some(last), true);
        true
    }

    /// The levels that go on top of the snapshot that was taken in just now, in order.
    pub fn since_snapshot(&self) -> impl Iterator<Item = Level> + '_ {
        self.levels.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(price: i64) -> Level {
        (Side::BID, price, 1)
    }

    fn prices(sync: &Sync) -> Vec<i64> {
        sync.since_snapshot().map(|(_, price, _)| price).collect()
    }

    #[test]
    fn diffs_of_a_spot_market_follow_by_their_numbers() {
        let mut sync = Sync::default();
        assert_eq!(sync.diff(5, 9, None), Verdict::Follows);
        assert_eq!(sync.diff(10, 10, None), Verdict::Follows);
        assert_eq!(sync.diff(5, 9, None), Verdict::Old);
        assert_eq!(sync.diff(9, 12, None), Verdict::Follows, "an overlap changes nothing");
        assert_eq!(sync.diff(15, 20, None), Verdict::Gap { first: 13, count: 2 });
        assert_eq!(sync.diff(21, 22, None), Verdict::Follows);
    }

    #[test]
    fn diffs_of_a_futures_market_follow_by_pu() {
        let mut sync = Sync::default();
        assert_eq!(sync.diff(500, 600, Some(490)), Verdict::Follows);
        assert_eq!(sync.diff(700, 800, Some(600)), Verdict::Follows, "numbers of other symbols lie between");
        assert_eq!(sync.diff(900, 950, Some(880)), Verdict::Gap { first: 801, count: 80 });
        assert!(sync.snapshot(1_000));
        assert_eq!(sync.diff(990, 1_010, Some(985)), Verdict::Follows, "it straddles the snapshot");
        assert_eq!(sync.diff(1_020, 1_030, Some(1_005)), Verdict::Gap { first: 1_011, count: 1 });
    }

    #[test]
    fn a_diff_that_straddles_the_snapshot_is_applied_and_one_behind_it_is_a_gap() {
        let mut sync = Sync::default();
        assert!(sync.snapshot(100));
        assert_eq!(sync.diff(90, 100, None), Verdict::Old);
        assert_eq!(sync.diff(98, 103, None), Verdict::Follows);
        let mut sync = Sync::default();
        assert!(sync.snapshot(100));
        assert_eq!(sync.diff(105, 107, None), Verdict::Gap { first: 101, count: 4 });
    }

    #[test]
    fn a_snapshot_older_than_what_was_applied_gets_that_on_top() {
        let mut sync = Sync::default();
        for n in 0..5 {
            sync.diff(100 + 10 * n, 109 + 10 * n, None);
            sync.keep(level(n as i64));
        }
        assert!(sync.snapshot(124), "inside the third");
        assert_eq!(prices(&sync), [2, 3, 4]);
        assert_eq!(sync.diff(150, 151, None), Verdict::Follows);
        assert!(!sync.snapshot(90), "older than what was kept");
        let mut sync = Sync::default();
        sync.diff(100, 110, None);
        sync.diff(120, 130, None);
        sync.keep(level(1));
        assert!(!sync.snapshot(115), "before the gap");
        assert!(sync.snapshot(119), "right before the diff behind the gap");
        assert_eq!(prices(&sync), [1]);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut sync = Sync::default();
        for n in 0..5_000u64 {
            sync.diff(n, n, None);
            for _ in 0..100 {
                sync.keep(level(n as i64));
            }
            assert!(sync.levels.len() <= MAX_LEVELS && sync.diffs.len() <= MAX_DIFFS);
        }
        assert_eq!(sync.levels.len(), sync.diffs.iter().map(|diff| diff.levels).sum::<usize>());
        assert_eq!(sync.levels.back(), Some(&level(4_999)));
        sync.diff(5_000, 5_000, None);
        for _ in 0..2 * MAX_LEVELS {
            sync.keep(level(0));
        }
        assert!(sync.levels.is_empty() && !sync.snapshot(4_999), "a diff that is too long by itself");
    }
}
