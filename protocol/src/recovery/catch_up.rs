//! Between a snapshot and the present: the lines delivered meanwhile, and the snapshots that are ahead of them.

use std::collections::VecDeque;

use crate::book::{Books, NotRestored};
use crate::line::{Line, Stamp};
use crate::record::Record;

use super::assembly::Snapshot;
use super::history::History;

/// Settings of a [`CatchUp`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CatchUpConfig {
    /// Lines that were delivered and are kept while snapshots are waited for; a power of two.
    pub recent_lines: usize,
    /// Lines of snapshots that may wait for the stream to reach them.
    pub held_lines: usize,
}

impl Default for CatchUpConfig {
    /// 65,536 lines (4 MiB), and 131,072 lines of snapshots.
    fn default() -> CatchUpConfig {
        CatchUpConfig { recent_lines: 1 << 16, held_lines: 1 << 17 }
    }
}

/// What became of snapshots.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CatchUpCounts {
    /// Applied, with what came since.
    pub applied: u64,
    /// Waited for the stream to reach them.
    pub waited: u64,
    /// Older than the oldest line kept, or of another epoch.
    pub too_old: u64,
    /// Did not meet the lines that came since: never applied.
    pub did_not_meet: u64,
    /// Did not make the book that they said they were, or had no place.
    pub bad: u64,
    /// Dropped because too many waited.
    pub overflows: u64,
}

/// What became of one snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// The book holds it, and what came since.
    Applied,
    /// The stream has not come so far yet.
    Waits,
    /// It is of no use: ask again.
    Useless,
}

/// Keeps what is delivered while snapshots are under way, and joins the two.
pub struct CatchUp {
    config: CatchUpConfig,
    recent: History,
    active: bool,
    /// Snapshots ahead of the stream, with the stamps of their last lines.
    held: VecDeque<(Stamp, Vec<Record>)>,
    held_lines: usize,
    counts: CatchUpCounts,
}

impl CatchUp {
    /// One that waits for nothing. Allocates and touches all memory now, but for snapshots that wait.
    pub fn new(config: CatchUpConfig) -> CatchUp {
        CatchUp {
            config,
            recent: History::new(config.recent_lines),
            active: false,
            held: VecDeque::new(),
            held_lines: 0,
            counts: CatchUpCounts::default(),
        }
    }

    /// What became of snapshots so far.
    pub fn counts(&self) -> CatchUpCounts {
        self.counts
    }

    /// How many snapshots wait for the stream.
    pub fn waiting(&self) -> usize {
        self.held.len()
    }

    /// Lines are kept from `next` on, the one that is delivered next: what was before is lost, or not known to be whole.
    /// Snapshots that are ahead of it go on waiting.
    pub fn begin(&mut self, next: Stamp) {
        self.active = true;
        self.recent.restart(next);
        self.held.retain(|(at, _)| at.epoch() == next.epoch() && at.plus(1) >= next);
        self.held_lines = self.held.iter().map(|(_, records)| records.len()).sum();
    }

    /// Like [`CatchUp::begin`], where nothing was lost: what is kept already stays.
    pub fn begin_if_idle(&mut self, next: Stamp) {
        if !self.active {
            self.begin(next);
        }
    }

    /// Nothing is waited for any more.
    pub fn end(&mut self) {
        self.active = false;
        self.held.clear();
        self.held_lines = 0;
    }

    /// These lines have been delivered and applied.
    #[inline]
    pub fn on_lines(&mut self, first: Stamp, lines: &[Line]) {
        if self.active {
            self.recent.push(first, lines);
        }
    }

    /// The lowest stamp at which a snapshot is of any use; `None` while nothing is waited for.
    pub fn lowest_use(&self) -> Option<Stamp> {
        self.active.then(|| Stamp(self.recent.first().0 - 1))
    }

    /// Takes a snapshot: for its book if the stream has come so far, else to wait.
    pub fn take(&mut self, snapshot: &Snapshot<'_>, records: &[Record], books: &mut Books) -> Fate {
        let at = snapshot.begin.at;
        let next = self.recent.next();
        if !self.active || at.epoch() != next.epoch() || at.plus(1) < self.recent.first() {
            self.counts.too_old += 1;
            return Fate::Useless;
        }
        if at >= next {
            if self.held_lines + records.len() > self.config.held_lines {
                self.counts.overflows += 1;
                return Fate::Useless;
            }
            self.counts.waited += 1;
            self.held_lines += records.len();
            self.held.push_back((at, records.to_vec()));
            return Fate::Waits;
        }
        let since = self.recent.range(at.plus(1), next).map(|(stamp, line)| (stamp, &line.record));
        match books.restore(snapshot, since) {
            Ok(()) => {
                self.counts.applied += 1;
                return Fate::Applied;
            }
            Err(NotRestored::Overlap) => self.counts.did_not_meet += 1,
            Err(NotRestored::Contents | NotRestored::Beyond) => self.counts.bad += 1,
        }
        Fate::Useless
    }

    /// The next snapshot that waited until now and that the stream has reached.
    pub fn next_due(&mut self) -> Option<Vec<Record>> {
        let next = self.recent.next();
        let place = self.held.iter().position(|(at, _)| *at < next)?;
        let (_, records) = self.held.remove(place)?;
        self.held_lines -= records.len();
        Some(records)
    }
}

#[cfg(test)]
mod tests;
