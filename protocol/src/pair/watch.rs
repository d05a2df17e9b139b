//! What an arbiter remembers of the lines it delivered, to hold the other lane's copies against.

use super::Fingerprint;
use crate::early::EarlyStore;
use crate::line::{Line, Stamp};
use crate::record::Lane;

/// Lines remembered: what a lane that is farther behind brings is dropped unlooked at.
const REMEMBERED: usize = 4096;

/// Whose copy of a line was delivered.
#[derive(Clone, Copy)]
struct Entry {
    print: Fingerprint,
    /// `None`: nobody's that could be named, because it was lost, or came from a recovery server.
    lane: Option<Lane>,
}

const NOBODYS: Entry = Entry { print: Fingerprint { what: 0, time: 0 }, lane: None };

/// Two copies of a line that differ.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    /// The line.
    pub(crate) at: Stamp,
    /// Whose copy came first.
    pub(crate) first: Lane,
}

/// The newest lines delivered, by sequence. Nothing is noted before a second lane is heard of.
pub(crate) struct PairWatch {
    entries: Box<[Entry]>,
    /// Lines from here on are noted, as far as there is room.
    from: Stamp,
    /// For each lane: everything before this stamp was delivered as it brought it, or its copy was seen to agree.
    vouched: Vec<(Lane, Stamp)>,
}

/// Lanes that are told apart. A channel has two.
const LANES: usize = 4;

impl PairWatch {
    pub(crate) fn new() -> PairWatch {
        PairWatch {
            entries: vec![NOBODYS; REMEMBERED].into_boxed_slice(),
            from: Stamp(0),
            vouched: Vec::with_capacity(LANES),
        }
    }

    /// Lines from `at` on will be noted. What was delivered before is as these lanes have it, and nobody else is known to.
    pub(crate) fn begin(&mut self, at: Stamp, lanes: impl Iterator<Item = Lane>) {
        self.from = at;
        self.vouched.clear();
        for lane in lanes {
            if self.vouched.len() < LANES && self.vouched.iter().all(|(known, _)| *known != lane) {
                self.vouched.push((lane, at));
            }
        }
    }

    /// Whether everything before `next` is as this lane has it.
    pub(crate) fn is_vouched(&self, lane: Lane, next: Stamp) -> bool {
        self.vouched.iter().any(|(known, until)| *known == lane && *until >= next)
    }

    /// The lane has the `count` lines from `first` on as they were delivered.
    #[inline]
    fn vouch(&mut self, lane: Lane, first: Stamp, count: u64) {
        if let Some((_, until)) = self.vouched.iter_mut().find(|(known, until)| *known == lane && *until >= first) {
            *until = (*until).max(first.plus(count));
        }
    }

    #[inline]
    fn entry(&mut self, stamp: Stamp) -> &mut Entry {
        &mut self.entries[stamp.0 as usize % REMEMBERED]
    }

    /// Lines were delivered, as `lane` brought them.
    pub(crate) fn note(&mut self, first: Stamp, lines: &[Line], lane: Option<Lane>) {
        for (i, line) in lines.iter().enumerate() {
            *self.entry(first.plus(i as u64)) = Entry { print: Fingerprint::of(&line.record), lane };
        }
        if let Some(lane) = lane {
            self.vouch(lane, first, lines.len() as u64);
        }
    }

    /// Lines will never come.
    pub(crate) fn note_lost(&mut self, first: Stamp, count: u64) {
        for i in count.saturating_sub(REMEMBERED as u64)..count {
            *self.entry(first.plus(i)) = NOBODYS;
        }
    }

    /// Holds `lane`'s copies of lines, those of `first` and after, all of them before `next`, against what was delivered.
    pub(crate) fn check(&mut self, first: Stamp, lines: &[Line], lane: Lane, next: Stamp) -> Option<Found> {
        let oldest = Stamp(self.from.0.max(next.0.saturating_sub(REMEMBERED as u64)));
        for (i, line) in lines.iter().enumerate().skip(oldest.0.saturating_sub(first.0) as usize) {
            let at = first.plus(i as u64);
            let Entry { print, lane: held } = *self.entry(at);
            if held == Some(lane) {
                continue;
            }
            let own = Fingerprint::of(&line.record);
            match held {
                _ if own.agrees(print) => self.vouch(lane, at, 1),
                Some(held) => return Some(Found { at, first: held }),
                // Whose copy a recovery server had is not known: the lane that differs does not vouch for it.
                None => {}
            }
        }
        None
    }

    /// Holds `lane`'s copies against those that wait in the early store.
    pub(crate) fn check_early(first: Stamp, lines: &[Line], lane: Lane, early: &EarlyStore) -> Option<Found> {
        lines.iter().enumerate().find_map(|(i, line)| {
            let at = first.plus(i as u64);
            let (held, path) = early.get(at).filter(|(_, path)| path.lane != lane)?;
            let (theirs, own) = (Fingerprint::of(&held.record), Fingerprint::of(&line.record));
            (!own.agrees(theirs)).then_some(Found { at, first: path.lane })
        })
    }
}
