//! The arbiter of a channel with two publishers: second copies are held against the first, one lane may be withdrawn, and
//! the stream ends when everybody who lives has ended.

use super::{Arbiter, Delivery, PathState};
use crate::line::{Line, Stamp};
use crate::pair::{Found, PairWatch, Split, kept_and_withdrawn};
use crate::record::Lane;
use crate::run::Run;
use crate::time::Nanos;

impl Arbiter {
    /// Lines were delivered, as this lane brought them.
    #[inline]
    pub(super) fn note(&mut self, first: Stamp, lines: &[Line], lane: Option<Lane>) {
        if self.watching
            && let Some(watch) = &mut self.watch
        {
            watch.note(first, lines, lane);
        }
    }

    /// Compares a run with what was delivered, and with what waits. True if its own lane is withdrawn now.
    #[inline(never)]
    pub(super) fn is_refuted(&mut self, run: &Run<'_>, now: Nanos, delivery: &mut impl Delivery) -> bool {
        let Some(watch) = &mut self.watch else { return false };
        let next = self.next.expect("entered an epoch");
        let lane = run.path.lane;
        let old = next.0.saturating_sub(run.first.0).min(run.lines.len() as u64) as usize;
        let mut found = watch.check(run.first, &run.lines[..old], lane, next);
        if found.is_none() && self.early.held() > 0 {
            found = PairWatch::check_early(run.first.plus(old as u64), &run.lines[old..], lane, &self.early);
        }
        let Some(Found { at, first }) = found else { return false };
        let (kept, withdrawn) = kept_and_withdrawn(first, lane);
        // What the lane that stays was not seen to have as well may be what it never said.
        // (And a recovery server may be either's.)
        let is_tainted = self.config.recover_ns > 0 || !watch.is_vouched(kept, next);
        self.withdraw(Split { at, kept, withdrawn, is_tainted }, now, delivery);
        withdrawn == lane
    }

    #[cold]
    fn withdraw(&mut self, split: Split, now: Nanos, delivery: &mut impl Delivery) {
        let next = self.next.expect("entered an epoch");
        for state in &mut self.paths[..self.known] {
            state.withdrawn = state.path.lane == split.withdrawn || state.withdrawn && state.path.lane != split.kept;
        }
        self.early.discard(split.withdrawn);
        // What only the withdrawn lane has is nobody's loss.
        let known = self.paths[..self.known].iter().filter(|state| !state.withdrawn).map(|state| state.position);
        self.head = known.chain([next]).max().expect("one at least");
        self.lost_until = self.lost_until.min(self.head);
        if let Some(watch) = &mut self.watch {
            watch.begin(next, std::iter::once(split.kept));
        }
        self.counts.splits += 1;
        delivery.on_split(split);
        self.settle(now, delivery);
    }

    /// Something came by a path, at this place, that had been silent. After a split the publisher may be another one than before,
    /// which joined the lane that is withdrawn: that cannot be told from the lane, so its lines prove nothing of the books.
    #[cold]
    pub(super) fn on_return(&mut self, at: usize, now: Nanos, delivery: &mut impl Delivery) {
        let Some(next) = self.next else { return };
        let kept = self.paths[at].path.lane;
        let known = &self.paths[..self.known];
        let was_there = known.iter().any(|state| state.path.lane == kept && state.is_alive_in(next.epoch()));
        let Some(other) = known.iter().find(|state| state.withdrawn) else { return };
        let withdrawn = other.path.lane;
        if !was_there && withdrawn != kept {
            self.early.clear();
            self.withdraw(Split { at: next, kept, withdrawn, is_tainted: true }, now, delivery);
        }
    }

    /// A path fell silent: somebody else may have to stand in, or may have been waiting for its end.
    #[cold]
    pub(super) fn on_silence(&mut self, now: Nanos, delivery: &mut impl Delivery) {
        let Some(at) = self.next else { return };
        let known = &self.paths[..self.known];
        let is_served = known.iter().any(|state| !state.withdrawn && state.is_alive_in(at.epoch()));
        let standby = known.iter().find(|state| state.withdrawn && state.is_alive_in(at.epoch()));
        let silent = known.iter().find(|state| !state.withdrawn);
        if let (false, Some(standby), Some(silent)) = (is_served, standby, silent) {
            let (kept, withdrawn) = (standby.path.lane, silent.path.lane);
            self.withdraw(Split { at, kept, withdrawn, is_tainted: true }, now, delivery);
        } else {
            self.tell_end(delivery);
        }
    }

    /// Tells of the end, if everybody who lives has come to it.
    #[cold]
    pub(super) fn tell_end(&mut self, delivery: &mut impl Delivery) {
        let next = self.next.expect("entered an epoch");
        let known = &self.paths[..self.known];
        let has_ended = |lane: Lane| known.iter().any(|state| state.path.lane == lane && state.end == Some(next));
        // One publisher may leave while the other goes on.
        let is_living = |state: &&PathState| state.is_alive_in(next.epoch()) || state.end == Some(next);
        let mut living = known.iter().filter(|state| !state.withdrawn).filter(is_living);
        let is_over =
            self.end.is_some() && living.clone().count() > 0 && living.all(|state| has_ended(state.path.lane));
        if is_over && !self.end_told {
            self.end_told = true;
            delivery.on_end(next);
        }
    }
}
