//! What can be wrong with a history.

use super::entry::EntryError;
use crate::line::{Epoch, Stamp};
use crate::record::InstrumentId;

/// Something that is wrong, and where it shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Problem {
    /// Which log, in the order in which they were given.
    pub log: usize,
    /// The entry's first byte in that log.
    pub offset: u64,
    /// What.
    pub wrong: Wrong,
}

/// What is wrong. `other` and `at_offset` name the log and the entry that say otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Wrong {
    /// It does not begin as a log does.
    #[error("this is no log of a version that is known here: it does not begin as one")]
    NotALog,
    /// An entry cannot be read; nothing after it was looked at.
    #[error("{0}; what follows was not looked at")]
    Entry(#[from] EntryError),
    /// A Begin within a part, an entry without one, or a name in pieces that do not fit.
    #[error("an entry that has no place here")]
    Misplaced,
    /// Something was delivered or named before the stream was taken up.
    #[error("{found} comes before the stream was taken up")]
    NotJoined {
        /// What.
        found: Stamp,
    },
    /// Lines are missing, and nobody said so.
    #[error("silent loss: {expected} must come next, and {found} comes")]
    Skipped {
        /// What must come.
        expected: Stamp,
        /// What comes.
        found: Stamp,
    },
    /// Lines came, or were named, once more.
    #[error("not exactly once: {expected} must come next, and {found} comes again")]
    Repeated {
        /// What must come.
        expected: Stamp,
        /// What comes.
        found: Stamp,
    },
    /// A line of an old epoch after a new one began.
    #[error("epoch {} after epoch {} had begun", .found.epoch().0, .expected.epoch().0)]
    OldEpoch {
        /// What must come.
        expected: Stamp,
        /// What comes.
        found: Stamp,
    },
    /// An epoch that was not announced.
    #[error("epoch {} was never said to begin", .found.epoch().0)]
    NewEpoch {
        /// What comes.
        found: Stamp,
    },
    /// An epoch begins that is not newer.
    #[error("epoch {} is said to begin after epoch {}", .to.0, .from.0)]
    EpochBackwards {
        /// The one before.
        from: Epoch,
        /// The one that begins.
        to: Epoch,
    },
    /// A publisher cannot lose what it publishes.
    #[error("a publisher names a gap in what it published itself")]
    PublisherGap,
    /// A digest of a place that is not among what is delivered next.
    #[error("a digest of {at}, which is not delivered next")]
    DigestElsewhere {
        /// The place.
        at: Stamp,
    },
    /// No BookDigest stands there, as the publisher says.
    #[error("a digest of instrument {} at {at}, where log {other} published none", .instrument.0)]
    DigestNeverSent {
        /// The place.
        at: Stamp,
        /// Whose book.
        instrument: InstrumentId,
        /// The publisher's log.
        other: usize,
    },
    /// Two participants' lines differ.
    #[error("{count} lines from {first} on are others than those of log {other} (at byte {at_offset})")]
    LinesDiffer {
        /// The first.
        first: Stamp,
        /// How many.
        count: u64,
        /// The other log.
        other: usize,
        /// Its entry.
        at_offset: u64,
    },
    /// Two participants' books differ.
    #[error(
        "the book of instrument {} at {at} is another than that of log {other} (at byte {at_offset})",
        .instrument.0
    )]
    DigestsDiffer {
        /// The BookDigest's place.
        at: Stamp,
        /// Whose book.
        instrument: InstrumentId,
        /// The other log.
        other: usize,
        /// Its entry.
        at_offset: u64,
    },
    /// Lines that no publisher published, though all of them ended their logs in good order.
    #[error("the history goes on to {found}, and the publishers of this epoch ended before {end}")]
    BeyondTheEnd {
        /// The stamp after the last line.
        found: Stamp,
        /// That of the publishers.
        end: Stamp,
    },
    /// The end is said to be where the log is not.
    #[error("the stream is said to have ended at {found}, and the log is at {expected}")]
    EndElsewhere {
        /// Where the log is.
        expected: Stamp,
        /// Where the end is said to be.
        found: Stamp,
    },
    /// The end is said to be where no publisher ended.
    #[error("the stream is said to have ended at {found}, where no publisher said so")]
    EndNotPublished {
        /// Where.
        found: Stamp,
    },
    /// Something after the log was closed.
    #[error("an entry after the log was closed")]
    AfterClose,
    /// Lossless was asked for, and something was lost or not logged.
    #[error("not lossless: {lost} lines are named as lost, {unlogged} entries were not logged")]
    Lossy {
        /// Lines in gaps.
        lost: u64,
        /// Entries that there was no room for.
        unlogged: u64,
    },
    /// Lossless was asked for, and the log does not come to the stream's end.
    #[error("not lossless: the log does not come to the end of the stream")]
    NoEnd,
}
