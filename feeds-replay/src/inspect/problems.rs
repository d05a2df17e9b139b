//! What is off in a capture: how often, and where first.

use std::collections::BTreeMap;

use protocol::book::Inconsistency;
use protocol::time::Nanos;
use publisher::itch::mold::MoldStats;

/// Examples kept of each kind.
pub const EXAMPLES: usize = 3;

/// The kinds of things that can be off.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Problem {
    /// Messages missing for good.
    Gap,
    /// Copies of one message that differ between lines.
    DifferingCopies,
    /// Messages that came after they had been declared lost.
    LateMessages,
    /// Datagrams that hold less than they announce.
    ShortDatagrams,
    /// Frames captured before the one in front of them.
    CaptureTimeBack,
    /// A type that the specification does not list.
    UnknownType,
    /// A known type at another length than its own.
    BadLength,
    /// A message without a byte.
    EmptyMessage,
    /// A venue time below that of the message before.
    TimeBack,
    /// A price that a record cannot hold.
    RefusedPrice,
    /// A change of an order that is not in the book.
    UnknownOrder,
    /// More taken off an order than was left.
    OverCancel,
    /// An order under a reference that is in the book.
    DuplicateOrder,
    /// An order that is on no side. (A replace of an unknown order makes one.)
    NoSide,
    /// Bid above ask at the end of an event, while trading.
    CrossedWhileTrading,
    /// Bid above ask at the end of an event, at other times.
    CrossedOtherwise,
    /// Bid equal to ask at the end of an event, while trading.
    LockedWhileTrading,
    /// Bid equal to ask at the end of an event, at other times.
    LockedOtherwise,
}

impl Problem {
    /// Its name in JSON.
    pub const fn key(self) -> &'static str {
        match self {
            Problem::Gap => "gaps",
            Problem::DifferingCopies => "differing_copies",
            Problem::LateMessages => "late_messages",
            Problem::ShortDatagrams => "short_datagrams",
            Problem::CaptureTimeBack => "capture_time_backwards",
            Problem::UnknownType => "unknown_types",
            Problem::BadLength => "bad_lengths",
            Problem::EmptyMessage => "empty_messages",
            Problem::TimeBack => "event_time_backwards",
            Problem::RefusedPrice => "refused_prices",
            Problem::UnknownOrder => "unknown_orders",
            Problem::OverCancel => "over_cancels",
            Problem::DuplicateOrder => "duplicate_orders",
            Problem::NoSide => "orders_without_side",
            Problem::CrossedWhileTrading => "crossed_while_trading",
            Problem::CrossedOtherwise => "crossed_otherwise",
            Problem::LockedWhileTrading => "locked_while_trading",
            Problem::LockedOtherwise => "locked_otherwise",
        }
    }

    /// In words.
    pub const fn text(self) -> &'static str {
        match self {
            Problem::Gap => "gaps in the sequence",
            Problem::DifferingCopies => "messages whose copies differ between lines (the first stands)",
            Problem::LateMessages => "messages that came after they had been declared lost",
            Problem::ShortDatagrams => "datagrams that hold less than they announce",
            Problem::CaptureTimeBack => "frames captured before the one in front of them",
            Problem::UnknownType => "messages of an unknown type",
            Problem::BadLength => "messages of a known type at a wrong length",
            Problem::EmptyMessage => "messages without a byte",
            Problem::TimeBack => "messages whose time is below that of the one before",
            Problem::RefusedPrice => "prices that a record cannot hold",
            Problem::UnknownOrder => "changes of orders that are not in the book",
            Problem::OverCancel => "executions or cancels of more than was left",
            Problem::DuplicateOrder => "orders under a reference that was in the book",
            Problem::NoSide => "orders on no side",
            Problem::CrossedWhileTrading => "event ends with a crossed book, while trading",
            Problem::CrossedOtherwise => "event ends with a crossed book, not while trading",
            Problem::LockedWhileTrading => "event ends with a locked book, while trading",
            Problem::LockedOtherwise => "event ends with a locked book, not while trading",
        }
    }

    /// What an inconsistency that the books found counts as; `None` for those that are counted in another way.
    pub(super) const fn of(inconsistency: Inconsistency) -> Option<Problem> {
        match inconsistency {
            Inconsistency::OverReduced => Some(Problem::OverCancel),
            Inconsistency::DuplicateOrder => Some(Problem::DuplicateOrder),
            Inconsistency::NoSuchSide => Some(Problem::NoSide),
            // The normaliser sees unknown orders first, event ends show crossed books, and ITCH has none of the others.
            _ => None,
        }
    }
}

/// Where something was seen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// The message's number in the venue's stream.
    pub ordinal: u64,
    /// Where its framing begins in the uncompressed stream, where it is in the file at all.
    pub offset: Option<u64>,
    /// The venue's time.
    pub time: Option<Nanos>,
    /// What.
    pub text: String,
}

/// Everything off.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Problems {
    found: BTreeMap<Problem, (u64, Vec<Seen>)>,
}

impl Problems {
    /// Counts one, and keeps where it was seen while examples are wanted.
    #[inline]
    pub(super) fn count(&mut self, problem: Problem, seen: impl FnOnce() -> Seen) {
        let (count, examples) = self.found.entry(problem).or_default();
        *count += 1;
        if examples.len() < EXAMPLES {
            examples.push(seen());
        }
    }

    /// Whether one more example is to be kept.
    pub(super) fn wants(&self, problem: Problem) -> bool {
        self.found.get(&problem).is_none_or(|(_, examples)| examples.len() < EXAMPLES)
    }

    /// Counts one; an example comes with it where [`Problems::wants`] said so.
    pub(super) fn note_maybe(&mut self, problem: Problem, seen: Option<Seen>) {
        let (count, examples) = self.found.entry(problem).or_default();
        *count += 1;
        examples.extend(seen);
    }

    pub(super) fn note(&mut self, problem: Problem, seen: Seen) {
        self.count(problem, || seen);
    }

    /// What the capture itself says, besides its messages.
    pub(super) fn note_capture(&mut self, stats: &MoldStats) {
        let at = |ordinal, offset, text: String| Seen { ordinal, offset, time: None, text };
        for session in stats.sessions.iter().filter(|session| session.followed) {
            let counts = &session.counts;
            if let Some(first) = session.first_differing {
                self.set(Problem::DifferingCopies, counts.differing, at(first, None, format!("message {first}")));
            }
            if counts.late > 0 {
                self.set(Problem::LateMessages, counts.late, at(0, None, format!("session {}", session.session)));
            }
            if let Some(offset) = session.first_short {
                let text = format!("session {}", session.session);
                self.set(Problem::ShortDatagrams, session.short_datagrams, at(0, Some(offset), text));
            }
        }
        if stats.time_backwards > 0 {
            self.set(Problem::CaptureTimeBack, stats.time_backwards, at(0, None, "frames are in file order".into()));
        }
    }

    fn set(&mut self, problem: Problem, more: u64, seen: Seen) {
        self.count(problem, || seen);
        if let Some((count, _)) = self.found.get_mut(&problem) {
            *count += more - 1;
        }
    }

    pub(super) fn add(&mut self, other: Problems) {
        for (problem, (count, examples)) in other.found {
            // A frame is one frame, whichever channel is followed.
            if problem == Problem::CaptureTimeBack {
                continue;
            }
            let own = self.found.entry(problem).or_default();
            own.0 += count;
            own.1.extend(examples);
            own.1.truncate(EXAMPLES);
        }
    }

    /// Everything that was seen at least once: how often, and the first places.
    pub fn iter(&self) -> impl Iterator<Item = (Problem, u64, &[Seen])> {
        self.found.iter().map(|(problem, (count, examples))| (*problem, *count, &examples[..]))
    }
}
