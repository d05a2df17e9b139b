//! The arbiter: out of what several lanes bring, each line once and in order, or a named gap.
//!
//! The first copy of each line wins, whichever lane brought it. A line ahead of the cursor waits in the early store. What
//! is missing gets the hedge time to come by another lane; then it is declared lost, in order, as a [`Gap`]. With recovery
//! configured it first becomes a hole ([`Arbiter::holes`]) that a recovery server may fill ([`Arbiter::on_recovered`]), for
//! a stated time and as long as the early store can hold what comes meanwhile.
//!
//! Where the lanes are two publishers' (A and B), each second copy is held against the first. Copies that differ mean that
//! their inputs do: the pair is declared [`Split`], and one lane is withdrawn ([`crate::pair`]).
//!
//! No clock, no I/O: every call brings its `now`, [`Arbiter::next_timeout`] says when to call [`Arbiter::on_timeout`], and
//! what comes out goes to a [`Delivery`]. Lines are handed over where they lie, in the transport's receive buffer or the
//! early store, which is why `Delivery` is a callback and not a queue.

use crate::early::EarlyStore;
use crate::line::{Epoch, Line, SequenceNumber, Stamp};
use crate::pair::{PairWatch, Split};
use crate::record::Lane;
use crate::run::{Carrier, LanePath, LossCause, Position, Run, RunSink};
use crate::time::Nanos;

mod pair;

/// Paths that one arbiter tells apart. Lines of further ones are still taken; they share the last one's counters.
pub const MAX_PATHS: usize = 8;
/// How late [`Arbiter::on_timeout`] may be called, ns: more is the caller's own pause. No turn of a loop takes so long unless
/// the system took the core away.
pub const OVERSLEPT_NS: u64 = 1_000_000;

/// Settings of an [`Arbiter`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArbiterConfig {
    /// How many paths feed this arbiter: with one, a lane's own word that lines are lost is final.
    pub paths: usize,
    /// How long what is missing may take to come by another path, or out of order, ns.
    pub hedge_ns: u64,
    /// How long after its hedge time what is missing is waited for while recovery is tried, ns; 0 if it is not.
    pub recover_ns: u64,
    /// A path from which nothing, not even a heartbeat, came for this long is silent, ns.
    pub lane_silent_ns: u64,
    /// Lines ahead of the cursor that can wait; a power of two.
    pub early_lines: usize,
}

impl Default for ArbiterConfig {
    /// One path, 200 us hedge, no recovery, silent after ten heartbeats of 10 ms, 4,096 early lines (256 KiB).
    fn default() -> ArbiterConfig {
        ArbiterConfig { paths: 1, hedge_ns: 200_000, recover_ns: 0, lane_silent_ns: 100_000_000, early_lines: 4096 }
    }
}

/// Lines that this subscriber will never get.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gap {
    /// The first of them.
    pub first: Stamp,
    /// How many.
    pub count: u64,
    /// Why, as far as it is known.
    pub cause: LossCause,
}

/// Takes what the arbiter decides.
pub trait Delivery {
    /// The next lines of the stream, in order. `publish_time` as in [`Run`].
    fn on_lines(&mut self, first: Stamp, lines: &[Line], path: LanePath, publish_time: Option<Nanos>);
    /// The next lines of the stream will never come.
    fn on_gap(&mut self, gap: Gap);
    /// The stream is taken up here; what was before is not part of it. Line 1 if what came first was within an early
    /// store's length of it.
    fn on_joined(&mut self, at: Stamp);
    /// A new epoch begins at its line 1; nothing of the old one follows.
    fn on_epoch(&mut self, from: Epoch, to: Epoch);
    /// The clock of this lane's publisher, at or before the `ts_publish` of every line that is delivered from now on.
    fn on_publish_time(&mut self, lane: Lane, time: Nanos);
    /// Nothing came by this path for the configured time.
    fn on_path_silent(&mut self, path: LanePath, since: Nanos);
    /// Every publisher of the channel that lives said that the stream ends here, and everything before was delivered or
    /// named.
    fn on_end(&mut self, at: Stamp);
    /// Two publishers of the channel do not say the same; one is withdrawn. Only who reads several lanes hears of it.
    fn on_split(&mut self, split: Split);
}

/// What one path did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PathCounts {
    /// Lines that this path brought first, and that were delivered.
    pub won: u64,
    /// Lines that had come already.
    pub duplicates: u64,
    /// Lines of an epoch that is over.
    pub old_epoch: u64,
    /// Times this path fell silent.
    pub silences: u64,
    /// Lines dropped because this path's lane is withdrawn.
    pub withdrawn: u64,
}

#[derive(Clone, Copy)]
struct PathState {
    path: LanePath,
    counts: PathCounts,
    /// When something last came, if ever.
    heard: Option<Nanos>,
    silent: bool,
    /// The stamp after the newest line that this path is known to have carried.
    position: Stamp,
    /// Its lane is withdrawn: nothing is taken from it in this epoch.
    withdrawn: bool,
    /// Its publisher said that nothing follows this stamp.
    end: Option<Stamp>,
}

impl PathState {
    const UNKNOWN: PathState = PathState {
        path: LanePath::new(Lane::new(0), Carrier::Local),
        counts: PathCounts { won: 0, duplicates: 0, old_epoch: 0, silences: 0, withdrawn: 0 },
        heard: None,
        silent: false,
        position: Stamp(0),
        withdrawn: false,
        end: None,
    };

    /// It was heard of lately, and what it brought was of this epoch.
    fn is_alive_in(&self, epoch: Epoch) -> bool {
        !self.silent && self.heard.is_some() && self.position.epoch() == epoch
    }
}

/// What happened, over all paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ArbiterCounts {
    /// Lines delivered.
    pub delivered: u64,
    /// Gaps declared.
    pub gaps: u64,
    /// Lines in them.
    pub lost: u64,
    /// Times that lines were missing and came within the hedge time, by another path or out of order.
    pub holes_filled: u64,
    /// Lines in those holes.
    pub filled: u64,
    /// Lines that the recovery server brought and nobody had brought before.
    pub recovered: u64,
    /// Lines that it brought although they had come, or were declared lost already.
    pub recovered_late: u64,
    /// Lines that waited in the early store.
    pub early: u64,
    /// Times that the early store was full and a gap had to be declared before its hedge time.
    pub early_overflows: u64,
    /// Times that patience was over while nobody polled, and began anew.
    pub overslept: u64,
    /// Epochs begun after the first.
    pub epochs: u64,
    /// Times that the channel's publishers did not say the same, and one was withdrawn.
    pub splits: u64,
}

/// Merges paths into one stream. See the [module](self).
pub struct Arbiter {
    config: ArbiterConfig,
    /// The stamp that must come next; `None` before the first line or heartbeat.
    next: Option<Stamp>,
    /// The stamp after the newest line known to exist, in the epoch of `next`.
    head: Stamp,
    early: EarlyStore,
    /// Something is missing at the cursor: since when, and the head at that moment. Only what is below that head has had
    /// its hedge time when the time is up.
    missing: Option<(Nanos, Stamp)>,
    /// Patience is counted from here, where something has been missing for longer: see [`Arbiter::on_timeout`].
    resumed: Nanos,
    /// Why the lines at the cursor are missing, where a lane said so: the cause, and the stamp where that ends.
    lost_until: Stamp,
    cause: LossCause,
    /// A publisher said that nothing follows this stamp.
    end: Option<Stamp>,
    end_told: bool,
    /// What was delivered, where there may be several publishers.
    watch: Option<Box<PairWatch>>,
    /// More than one publisher has been heard of.
    watching: bool,
    /// Those heard of, in the order in which they were.
    paths: [PathState; MAX_PATHS],
    known: usize,
    counts: ArbiterCounts,
}

impl Arbiter {
    /// An arbiter that has seen nothing. Allocates all it needs.
    pub fn new(config: ArbiterConfig) -> Arbiter {
        Arbiter {
            config,
            next: None,
            head: Stamp(0),
            early: EarlyStore::new(config.early_lines),
            missing: None,
            resumed: Nanos::ZERO,
            lost_until: Stamp(0),
            cause: LossCause::Missing,
            end: None,
            end_told: false,
            watch: (config.paths > 1).then(|| Box::new(PairWatch::new())),
            watching: false,
            paths: [PathState::UNKNOWN; MAX_PATHS],
            known: 0,
            counts: ArbiterCounts::default(),
        }
    }

    /// Where lanes hand up what they have at time `now`.
    #[inline]
    pub fn sink<'a, D: Delivery>(&'a mut self, now: Nanos, delivery: &'a mut D) -> ArbiterSink<'a, D> {
        ArbiterSink { arbiter: self, now, delivery }
    }

    /// The stamp that must come next, `None` before anything came.
    pub fn next(&self) -> Option<Stamp> {
        self.next
    }

    /// The stamp after the newest line that any path has brought, delivered or waiting: how far this subscriber has read what
    /// it reads from. `None` before anything came.
    pub fn reached(&self) -> Option<Stamp> {
        let newest = self.paths[..self.known].iter().map(|state| state.position).max()?;
        self.next.map(|next| next.max(newest))
    }

    /// How many lines are known to exist that have neither been delivered nor named.
    pub fn lag(&self) -> u64 {
        self.next.map_or(0, |next| self.head.0.saturating_sub(next.0))
    }

    /// What happened so far, over all paths.
    pub fn counts(&self) -> ArbiterCounts {
        self.counts
    }

    /// The paths heard of so far, and what each did.
    pub fn paths(&self) -> impl Iterator<Item = (LanePath, PathCounts)> + '_ {
        self.paths[..self.known].iter().map(|state| (state.path, state.counts))
    }

    /// Whether this lane's publisher did not say the same as another, and nothing is taken from it in this epoch: what its
    /// recovery server has is not to be taken either.
    pub fn is_withdrawn(&self, lane: Lane) -> bool {
        self.paths[..self.known].iter().any(|state| state.withdrawn && state.path.lane == lane)
    }

    /// What one path did so far; nothing, if it was never heard of.
    pub fn path_counts(&self, path: LanePath) -> PathCounts {
        self.paths().find(|(known, _)| *known == path).map(|(_, counts)| counts).unwrap_or_default()
    }

    /// How many lines this path is behind the newest line known; `None` if it was never heard of.
    pub fn path_lag(&self, path: LanePath) -> Option<u64> {
        let state = self.paths[..self.known].iter().find(|state| state.path == path)?;
        Some(self.head.0.saturating_sub(state.position.0))
    }

    /// When [`Arbiter::on_timeout`] must be called, if nothing comes before.
    pub fn next_timeout(&self) -> Option<Nanos> {
        let hedge = self.missing.map(|(since, _)| self.given_up_at(since));
        let silence = self.paths[..self.known]
            .iter()
            .filter(|state| !state.silent)
            .filter_map(|state| state.heard)
            .map(|heard| heard.plus(self.config.lane_silent_ns))
            .min();
        match (hedge, silence) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Declares what has been missing for the hedge time, and paths that fell silent. Cheap enough for every turn.
    ///
    /// A call that comes later than [`Arbiter::next_timeout`] asked by [`OVERSLEPT_NS`] comes from somebody who was not
    /// running, and may have what is missing in a queue that could not be read meanwhile: patience begins anew,
    /// once for what was missing then. So a subscriber that was stopped does not declare lost what was sent to it while it
    /// slept, and one that seldom polls still comes to know what it will never get.
    #[inline]
    pub fn on_timeout(&mut self, now: Nanos, delivery: &mut impl Delivery) {
        while let Some((since, head_then)) = self.missing {
            let late_ns = now.since(self.given_up_at(since));
            if late_ns < 0 {
                break;
            }
            if late_ns >= OVERSLEPT_NS as i64 && self.resumed <= since {
                self.resumed = now;
                self.counts.overslept += 1;
                break;
            }
            self.give_up_below(head_then, now, delivery);
        }
        let mut has_fallen_silent = false;
        for state in &mut self.paths[..self.known] {
            let Some(heard) = state.heard else { continue };
            if !state.silent && now.since(heard) >= self.config.lane_silent_ns as i64 && !self.end_told {
                state.silent = true;
                state.counts.silences += 1;
                has_fallen_silent = true;
                delivery.on_path_silent(state.path, heard);
            }
        }
        if has_fallen_silent {
            self.on_silence(now, delivery);
        }
    }

    /// When what has been missing since `since` is declared lost.
    fn given_up_at(&self, since: Nanos) -> Nanos {
        since.max(self.resumed).plus(self.config.hedge_ns + self.config.recover_ns)
    }

    /// The stream is taken up at `at` by a delivery that has everything before it already; nothing is told.
    pub fn take_up(&mut self, at: Stamp) {
        self.early.clear();
        self.restart(at);
    }

    /// When the oldest of what is missing will have had its hedge time; `None` if nothing is missing.
    pub fn hedged_at(&self) -> Option<Nanos> {
        self.missing.map(|(since, _)| since.plus(self.config.hedge_ns))
    }

    /// What is missing and has had its hedge time: ranges of lines to ask a recovery server for, in order, each with how
    /// many lines it has. Looks through the early store: for when something is missing, not for every turn.
    pub fn holes(&self, now: Nanos) -> impl Iterator<Item = (Stamp, u64)> + '_ {
        let hedge_ns = self.config.hedge_ns as i64;
        let since = self.missing.map(|(since, _)| since);
        let mut from = self.next.filter(|_| since.is_some_and(|since| now.since(since) >= hedge_ns));
        let end = from.map_or(self.head, |from| self.head.min(from.plus(self.early.capacity())));
        std::iter::from_fn(move || {
            loop {
                let first = self.early.first_absent(from?, end);
                if first >= end {
                    return None;
                }
                let (to, came) = match self.early.first_from(first).filter(|(held, _)| *held < end) {
                    Some((held, came)) => (held, Some(came)),
                    None => (end, since),
                };
                from = Some(to);
                // The newest holes may be filled yet by what was overtaken.
                if came.is_some_and(|came| now.since(came) >= hedge_ns) {
                    return Some((first, to.0 - first.0));
                }
            }
        })
    }

    /// Lines that a recovery server had in its history, verified, those of `first` and after. They are delivered or kept
    /// like any others, but belong to no path, and neither begin an epoch nor take up a stream.
    pub fn on_recovered(&mut self, first: Stamp, lines: &[Line], now: Nanos, delivery: &mut impl Delivery) {
        let Some(next) = self.next.filter(|next| next.epoch() == first.epoch()) else {
            self.counts.recovered_late += lines.len() as u64;
            return;
        };
        let path = LanePath::new(Lane::new(0), Carrier::Recovery);
        let old = next.0.saturating_sub(first.0).min(lines.len() as u64);
        let reach = next.plus(self.early.capacity()).0.saturating_sub(first.0).min(lines.len() as u64);
        let fresh = &lines[old as usize..reach.max(old) as usize];
        self.counts.recovered_late += old;
        if fresh.is_empty() {
            return;
        }
        let first = first.plus(old);
        self.head = self.head.max(first.plus(fresh.len() as u64));
        // They wait for as long as the hole has been known, not from now.
        let since = self.missing.map_or(now, |(since, _)| since);
        if first > next {
            for (i, line) in fresh.iter().enumerate() {
                let is_new = self.early.insert(first.plus(i as u64), line, path, None, since);
                self.counts.recovered += u64::from(is_new);
                self.counts.recovered_late += u64::from(!is_new);
                self.counts.early += u64::from(is_new);
            }
            self.missing.get_or_insert((now, self.head));
            return;
        }
        let count = fresh.len() as u64;
        self.counts.delivered += count;
        self.next = Some(next.plus(count));
        self.note(next, fresh, None);
        delivery.on_lines(next, fresh, path, None);
        let held = self.early.release(next, fresh.len()) as u64;
        self.counts.recovered += count - held;
        self.counts.recovered_late += held;
        self.drain(delivery);
        self.settle(now, delivery);
    }

    /// The recovery server does not have the lines from the cursor to before `end`: they are declared lost at once, as far
    /// as no lane has brought them. Nothing happens if `end` is not ahead of the cursor, or of another epoch.
    pub fn give_up(&mut self, end: Stamp, now: Nanos, delivery: &mut impl Delivery) {
        let end = end.min(self.head);
        while let Some(next) = self.next
            && next < end
            && next.epoch() == end.epoch()
        {
            self.give_up_below(end, now, delivery);
        }
    }

    /// The place of a path, which is heard of now if it was not before. There are one or two of them, rarely four.
    #[inline]
    fn place(&mut self, path: LanePath) -> usize {
        match self.paths[..self.known].iter().position(|state| state.path == path) {
            Some(at) => at,
            None => self.meet(path),
        }
    }

    #[cold]
    fn meet(&mut self, path: LanePath) -> usize {
        let at = self.known.min(MAX_PATHS - 1);
        if self.known < MAX_PATHS {
            self.paths[at] = PathState { path, ..PathState::UNKNOWN };
            self.known += 1;
        }
        let is_of_another = self.paths[..at].iter().any(|known| known.path.lane != path.lane);
        if let (true, false, Some(watch)) = (is_of_another, self.watching, &mut self.watch) {
            // From here on there is something to compare.
            self.watching = true;
            let lanes = self.paths[..at].iter().map(|known| known.path.lane);
            watch.begin(self.next.unwrap_or_default(), lanes);
        }
        at
    }

    #[inline]
    fn hear(&mut self, path: LanePath, position: Stamp, now: Nanos) -> &mut PathState {
        let at = self.place(path);
        self.hear_at(at, position, now)
    }

    #[inline]
    fn hear_at(&mut self, at: usize, position: Stamp, now: Nanos) -> &mut PathState {
        let state = &mut self.paths[at];
        state.heard = Some(now);
        state.silent = false;
        state.position = state.position.max(position);
        state
    }

    /// Makes sure that `stamp` is of the current epoch: joins, or begins a new epoch. False if it is of an old one.
    #[inline]
    fn enter_epoch(&mut self, stamp: Stamp, now: Nanos, delivery: &mut impl Delivery) -> bool {
        match self.next {
            Some(next) if next.epoch() == stamp.epoch() => true,
            Some(next) if stamp.epoch() < next.epoch() => false,
            Some(next) => {
                // The rest of the old epoch can only come late now, and late lines of an old epoch are dropped.
                while self.next.is_some_and(|next| next < self.head) {
                    self.give_up_below(self.head, now, delivery);
                }
                self.early.clear();
                self.counts.epochs += 1;
                delivery.on_epoch(next.epoch(), stamp.epoch());
                self.restart(Stamp::new(stamp.epoch(), SequenceNumber::FIRST));
                true
            }
            None => {
                // Near an epoch's start it is taken from its start: what is missing may yet come, or is named.
                let near = stamp.sequence().0 <= self.early.capacity();
                let at = if near { Stamp::new(stamp.epoch(), SequenceNumber::FIRST) } else { stamp };
                delivery.on_joined(at);
                self.restart(at);
                true
            }
        }
    }

    fn restart(&mut self, at: Stamp) {
        self.next = Some(at);
        self.head = at;
        self.missing = None;
        self.lost_until = Stamp(0);
        self.end = None;
        self.end_told = false;
        for state in &mut self.paths[..self.known] {
            // Who starts anew is believed anew.
            (state.withdrawn, state.end) = (false, None);
        }
        if let Some(watch) = &mut self.watch {
            watch.begin(at, self.paths[..self.known].iter().map(|state| state.path.lane));
        }
    }

    #[inline]
    fn on_run(&mut self, run: Run<'_>, now: Nanos, delivery: &mut impl Delivery) {
        if !self.enter_epoch(run.first, now, delivery) {
            self.hear(run.path, Stamp(0), now).counts.old_epoch += run.lines.len() as u64;
            return;
        }
        let at = self.place(run.path);
        if self.paths[at].silent && self.watching {
            self.on_return(at, now, delivery);
        }
        self.hear_at(at, run.end(), now);
        if self.watching {
            let state = &mut self.paths[at];
            if state.withdrawn || self.is_refuted(&run, now, delivery) {
                self.paths[at].counts.withdrawn += run.lines.len() as u64;
                return;
            }
        }
        self.head = self.head.max(run.end());
        let mut next = self.next.expect("entered an epoch");
        // What is farther ahead than the early store reaches cannot be kept: give up now what makes it fit, and a quarter
        // of the store more, so that a long hole is not named in a thousand pieces.
        while run.end().0 > next.0 + self.early.capacity() && run.first > next {
            self.counts.early_overflows += 1;
            let fits_from = Stamp(run.end().0 - self.early.capacity() + self.early.capacity() / 4);
            self.give_up_below(fits_from.min(run.first), now, delivery);
            next = self.next.expect("entered an epoch");
        }
        if run.first > next {
            self.keep(run, at, now);
            return;
        }
        let old = (next.0 - run.first.0).min(run.lines.len() as u64) as usize;
        let fresh = &run.lines[old..];
        let counts = &mut self.paths[at].counts;
        counts.duplicates += old as u64;
        counts.won += fresh.len() as u64;
        if fresh.is_empty() {
            return;
        }
        self.counts.delivered += fresh.len() as u64;
        if let Some((_, head)) = self.missing {
            let end = self.early.first_from(next).map_or(head, |(held, _)| held);
            self.counts.filled += end.min(run.end()).0.saturating_sub(next.0);
            self.counts.holes_filled += u64::from(run.end() >= end);
        }
        self.next = Some(run.end());
        self.note(next, fresh, Some(run.path.lane));
        delivery.on_lines(next, fresh, run.path, run.publish_time);
        if self.early.held() > 0 {
            // Those that another path had brought before were won by that one.
            let held = self.early.release(next, fresh.len()) as u64;
            let counts = &mut self.paths[at].counts;
            counts.won -= held;
            counts.duplicates += held;
            self.drain(delivery);
        }
        self.settle(now, delivery);
        // A path that reads on below the hole's far end is filling the hole: it has a backlog, and nothing is missing yet.
        // (With one path, what is beyond the hole came by the same one: that is no backlog.)
        if self.config.paths > 1
            && self.next == Some(run.end())
            && let Some((since, _)) = &mut self.missing
        {
            *since = now;
        }
    }

    /// Keeps a run that lies ahead of the cursor.
    fn keep(&mut self, run: Run<'_>, at: usize, now: Nanos) {
        let mut fresh = 0;
        for (i, line) in run.lines.iter().enumerate() {
            fresh += u64::from(self.early.insert(run.first.plus(i as u64), line, run.path, run.publish_time, now));
        }
        let counts = &mut self.paths[at].counts;
        counts.won += fresh;
        counts.duplicates += run.lines.len() as u64 - fresh;
        self.counts.early += fresh;
        self.missing.get_or_insert((now, self.head));
    }

    /// Delivers what the early store holds at the cursor.
    fn drain(&mut self, delivery: &mut impl Delivery) {
        loop {
            let next = self.next.expect("entered an epoch");
            let (run, path, publish_time) = self.early.run_from(next);
            if run.is_empty() {
                return;
            }
            let count = run.len();
            self.counts.delivered += count as u64;
            self.next = Some(next.plus(count as u64));
            if let (true, Some(watch)) = (self.watching, &mut self.watch) {
                watch.note(next, run, (path.carrier != Carrier::Recovery).then_some(path.lane));
            }
            delivery.on_lines(next, run, path, publish_time);
            self.early.release(next, count);
        }
    }

    /// After the cursor has moved: is something missing, and since when?
    #[inline]
    fn settle(&mut self, now: Nanos, delivery: &mut impl Delivery) {
        let next = self.next.expect("entered an epoch");
        // A hole is known since the first line beyond it came; without such a line, since now.
        self.missing = (next < self.head).then(|| match self.early.first_from(next) {
            Some((held, came)) => (came, held),
            None => (now, self.head),
        });
        if self.end.is_some() {
            self.tell_end(delivery);
        }
    }

    fn on_position(&mut self, position: Position, now: Nanos, delivery: &mut impl Delivery) {
        if !self.enter_epoch(position.next, now, delivery) {
            self.hear(position.path, Stamp(0), now);
            return;
        }
        let at = self.place(position.path);
        if self.paths[at].silent && self.watching {
            self.on_return(at, now, delivery);
        }
        let state = self.hear_at(at, position.next, now);
        if state.withdrawn {
            return;
        }
        state.end = position.ended.then_some(position.next);
        self.head = self.head.max(position.next);
        let next = self.next.expect("entered an epoch");
        // A heartbeat is younger than the lines before it: while some of them may still come, it is no anchor for them.
        if let (Some(time), true) = (position.publish_time, position.next <= next) {
            delivery.on_publish_time(position.path.lane, time);
        }
        if position.ended {
            self.end = Some(position.next);
        }
        if next < self.head {
            self.missing.get_or_insert((now, self.head));
        } else {
            self.settle(now, delivery);
        }
    }

    fn on_loss(
        &mut self,
        path: LanePath,
        first: Stamp,
        count: u64,
        cause: LossCause,
        now: Nanos,
        d: &mut impl Delivery,
    ) {
        if !self.enter_epoch(first, now, d) {
            return;
        }
        let end = first.plus(count);
        if self.hear(path, end, now).withdrawn {
            return;
        }
        self.head = self.head.max(end);
        let next = self.next.expect("entered an epoch");
        if end <= next {
            return;
        }
        self.cause = cause;
        self.lost_until = self.lost_until.max(end);
        if self.config.paths <= 1 && self.config.recover_ns > 0 {
            // Nobody else can bring them: they need no hedge time, only recovery.
            let since = Nanos(now.0.saturating_sub(self.config.hedge_ns));
            self.missing.get_or_insert((since, self.head));
            return;
        }
        self.missing.get_or_insert((now, self.head));
        if self.config.paths <= 1 && first <= next {
            self.give_up_below(end, now, d);
        }
    }

    /// Declares what is missing at the cursor lost, up to the first line held, at most up to `limit`; then delivers on.
    fn give_up_below(&mut self, limit: Stamp, now: Nanos, delivery: &mut impl Delivery) {
        let next = self.next.expect("entered an epoch");
        let to = self.early.first_from(next).map_or(limit, |(held, _)| held.min(limit));
        if to > next {
            let cause = if self.lost_until > next { self.cause } else { LossCause::Missing };
            let gap = Gap { first: next, count: to.0 - next.0, cause };
            self.counts.gaps += 1;
            self.counts.lost += gap.count;
            self.next = Some(to);
            if let (true, Some(watch)) = (self.watching, &mut self.watch) {
                watch.note_lost(gap.first, gap.count);
            }
            delivery.on_gap(gap);
        }
        self.drain(delivery);
        self.settle(now, delivery);
    }
}

/// An [`Arbiter`] at one moment, with somebody to deliver to.
pub struct ArbiterSink<'a, D> {
    arbiter: &'a mut Arbiter,
    now: Nanos,
    delivery: &'a mut D,
}

impl<D: Delivery> RunSink for ArbiterSink<'_, D> {
    #[inline]
    fn on_run(&mut self, run: Run<'_>) {
        self.arbiter.on_run(run, self.now, self.delivery);
    }

    fn on_position(&mut self, position: Position) {
        self.arbiter.on_position(position, self.now, self.delivery);
    }

    fn on_loss(&mut self, path: LanePath, first: Stamp, count: u64, cause: LossCause) {
        self.arbiter.on_loss(path, first, count, cause, self.now, self.delivery);
    }
}

#[cfg(test)]
mod tests;
