//! What an arbiter remembers of the lines it delivered, to hold the other lane's copies against.

use super::Fingerprint;
use crate::early::EarlyStore;
use crate::line::{Line, Stamp};
use crate::record::{Kind, Lane};

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
    /// Whose copy came first, and what it is.
    pub(crate) first: (Lane, Kind),
    /// What the second one is.
    pub(crate) second: Kind,
}

/// The newest lines delivered, by sequence. Nothing is noted before a second lane is heard of.
pub(crate) struct PairWatch {
    entries: Box<[Entry]>,
    /// Lines from here on are noted, as far as there is room.
    from: Stamp,
    /// The stamp after the newest line of which both copies were seen to agree.
    agreed: Stamp,
}

impl PairWatch {
    pub(crate) fn new() -> PairWatch {
        PairWatch { entries: vec![NOBODYS; REMEMBERED].into_boxed_slice(), from: Stamp(0), agreed: Stamp(0) }
    }

    /// Lines from `at` on will be noted.
    pub(crate) fn begin(&mut self, at: Stamp) {
        (self.from, self.agreed) = (at, at);
    }

    /// The stamp after the newest line of which both copies were seen to agree.
    pub(crate) fn agreed(&self) -> Stamp {
        self.agreed
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
            let Entry { print, lane: Some(held) } = *self.entry(at) else { continue };
            if held == lane {
                continue;
            }
            let own = Fingerprint::of(&line.record);
            if !own.agrees(print) {
                return Some(Found { at, first: (held, print.kind()), second: own.kind() });
            }
            self.agreed = self.agreed.max(at.plus(1));
        }
        None
    }

    /// Holds `lane`'s copies against those that wait in the early store.
    pub(crate) fn check_early(first: Stamp, lines: &[Line], lane: Lane, early: &EarlyStore) -> Option<Found> {
        lines.iter().enumerate().find_map(|(i, line)| {
            let at = first.plus(i as u64);
            let (held, path) = early.get(at).filter(|(_, path)| path.lane != lane)?;
            let (theirs, own) = (Fingerprint::of(&held.record), Fingerprint::of(&line.record));
            (!own.agrees(theirs)).then(|| Found { at, first: (path.lane, theirs.kind()), second: own.kind() })
        })
    }
}
