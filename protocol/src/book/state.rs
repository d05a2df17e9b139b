//! What a book says of itself.

use crate::record::InstrumentId;

/// Whether a book can be believed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BookState {
    /// Never complete: nothing has said yet what the book was to begin with.
    Unknown,
    /// A snapshot is on its way.
    Snapshotting,
    /// Complete, and every change since was seen.
    Live,
    /// Complete, but the venue's own feed was inconsistent, or had a gap that nobody could fill. Readable, flagged.
    Suspect,
    /// This subscriber may have missed something. Not readable without asking for it by name.
    Stale,
}

impl BookState {
    /// Whether a strategy may read the book without further ado.
    pub const fn is_readable(self) -> bool {
        matches!(self, BookState::Live | BookState::Suspect)
    }
}

/// What made a book change its state.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StateReason {
    /// The venue's start of day: every book is known to be empty.
    SessionStart,
    /// A Clear, of this book or of the channel.
    Clear,
    /// Lines of the channel are lost to this subscriber.
    Gap,
    /// A new epoch began.
    NewEpoch,
    /// The channel's publishers do not say the same, and lines of the one that is withdrawn may be in this book.
    Split,
    /// The next record after a gap continued the instrument's own count: nothing of it was lost.
    Continued,
    /// The publisher's digest agrees with this book.
    DigestAgreed,
    /// The publisher's digest does not agree with this book.
    DigestDisagreed,
    /// The instrument's own count jumped though no gap had been declared.
    CountJumped,
    /// The venue's feed is inconsistent.
    Inconsistent(Inconsistency),
    /// The venue's feed lost records for good.
    VenueGap,
    /// A snapshot has been asked for.
    SnapshotAsked,
    /// The snapshot that was asked for did not come, or was not to be used.
    SnapshotFailed,
    /// A snapshot was applied, with what came since.
    Snapshot,
    /// Books are built from the middle of a day, as asked.
    NaturalStart,
}

/// What can be wrong with a venue's own feed. Each has one deterministic repair, so that everybody's digest still agrees.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Inconsistency {
    /// A change of an order that is not in the book. Ignored.
    UnknownOrder,
    /// A second order under a live id. Replaces the first.
    DuplicateOrder,
    /// More taken off an order than was left. The order is removed.
    OverReduced,
    /// An event that did not end within its bound. Closed as it stands.
    MissingLast,
    /// Bid above ask at the end of an event while trading. Left as it is.
    Crossed,
    /// An order or level on a side that has no ladder. Ignored.
    NoSuchSide,
    /// Orders and aggregated levels in one book. The second kind is ignored.
    MixedFeed,
    /// An order or level without a price, which has no place on a ladder. Ignored.
    NoPrice,
}

impl Inconsistency {
    /// Every one, in order of [`Inconsistency::index`].
    pub const ALL: [Inconsistency; 8] = [
        Inconsistency::UnknownOrder,
        Inconsistency::DuplicateOrder,
        Inconsistency::OverReduced,
        Inconsistency::MissingLast,
        Inconsistency::Crossed,
        Inconsistency::NoSuchSide,
        Inconsistency::MixedFeed,
        Inconsistency::NoPrice,
    ];

    /// A place in a table of counters.
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// A book changed its state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StateChange {
    /// Whose book.
    pub instrument: InstrumentId,
    /// What it said before.
    pub from: BookState,
    /// What it says now.
    pub to: BookState,
    /// Why.
    pub reason: StateReason,
}
