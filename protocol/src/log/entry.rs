//! One entry of a log, and its 40 bytes.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::hash::h64;
use crate::line::{Epoch, SequenceNumber, Stamp};
use crate::record::InstrumentId;
use crate::run::LossCause;

/// Bytes of an entry.
pub const ENTRY_LEN: usize = 40;
/// Stands in the Begin of every log: "BCLG".
pub const MAGIC: u32 = u32::from_le_bytes(*b"BCLG");
/// This version of the format.
pub const VERSION: u16 = 1;
/// A run of lines ends at each multiple of this sequence number, so that runs of different logs can be held against each
/// other. An entry for every 64 lines is less than a hundredth of what they weigh.
pub const BLOCK_LINES: u64 = 64;

/// Bytes of the channel's name in one entry.
const NAME_BYTES: usize = 24;

/// Whose log it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// It numbered the lines: whatever it logs was published.
    Publisher,
    /// The recovery server of a publisher.
    Recovery,
    /// A subscriber.
    Subscriber,
}

impl Role {
    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Role::Publisher => "publisher",
            Role::Recovery => "recovery server",
            Role::Subscriber => "subscriber",
        }
    }
}

/// The first entry of a log, and of each part that a later process appended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Begin {
    /// Whose log.
    pub role: Role,
    /// The lane that it publishes, or reads in shared memory.
    pub lane: u16,
    /// Its process.
    pub pid: u32,
    /// When it began by the wall clock, UTC ns; 0 if nobody said.
    pub time_ns: u64,
    /// Bytes of the channel's name, which the Name entries that follow hold.
    pub name_len: u8,
}

/// One entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// A process begins.
    Begin(Begin),
    /// A piece of the channel's name, padded with zeros.
    Name([u8; NAME_BYTES]),
    /// The stream is taken up here.
    Joined {
        /// The stamp that comes next.
        at: Stamp,
    },
    /// These lines were delivered (or published), in order.
    Lines {
        /// The first.
        first: Stamp,
        /// How many, at least 1 and at most [`BLOCK_LINES`].
        count: u64,
        /// The wrapping sum of [`line_sum`](super::line_sum) over them.
        sum: u64,
    },
    /// These lines were named as lost.
    Gap {
        /// The first.
        first: Stamp,
        /// How many, at least 1.
        count: u64,
        /// Why.
        cause: LossCause,
    },
    /// A new epoch began, at its line 1.
    Epoch {
        /// The stamp that would have come next in the old one.
        from: Stamp,
        /// The new one.
        to: Epoch,
    },
    /// What the participant's own book came to where a BookDigest stands in the stream.
    Digest {
        /// The BookDigest's place.
        at: Stamp,
        /// Whose book.
        instrument: InstrumentId,
        /// Digests and orders of the book in one number; `None` where the book was not to be read.
        book: Option<u64>,
    },
    /// Entries that the sink had no room for stood here. The history between the entry before and `until` is not known.
    Unlogged {
        /// Where the log goes on.
        until: Stamp,
        /// How many entries.
        entries: u64,
    },
    /// The publisher said that nothing follows, and everything before was delivered or named.
    Ended {
        /// The stamp after the last line.
        at: Stamp,
    },
    /// The log was ended in good order. One without was cut off.
    Closed {
        /// The stamp that would have come next; 0 if nothing ever came.
        at: Stamp,
    },
}

/// Why 40 bytes are no entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EntryError {
    /// The tag does not fit the rest, or the place.
    #[error("the entry is damaged, or stands in a place that is not its own")]
    Damaged,
    /// It verifies, and is of a kind that this version does not know.
    #[error("an entry of unknown kind {0}")]
    UnknownKind(u8),
    /// It verifies, and says something that no entry of its kind says.
    #[error("an entry of kind {0} with a value that it cannot have")]
    BadValue(u8),
}

/// An entry as it stands in a file.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Raw {
    kind: u8,
    detail: u8,
    small: U16,
    instrument: U32,
    stamp: U64,
    count: U64,
    value: U64,
    /// `h64` of the words before, the entry's number in the file, the magic and 0.
    tag: U64,
}

const _: () = {
    assert!(size_of::<Raw>() == ENTRY_LEN);
    assert!(std::mem::offset_of!(Raw, stamp) == 8);
    assert!(std::mem::offset_of!(Raw, tag) == 32);
};

const BEGIN: u8 = 1;
const NAME: u8 = 2;
const JOINED: u8 = 3;
const LINES: u8 = 4;
const GAP: u8 = 5;
const EPOCH: u8 = 6;
const DIGEST: u8 = 7;
const UNLOGGED: u8 = 8;
const ENDED: u8 = 9;
const CLOSED: u8 = 10;

impl Raw {
    fn new(kind: u8, detail: u8, stamp: Stamp, count: u64, value: u64) -> Raw {
        Raw {
            kind,
            detail,
            small: U16::new(0),
            instrument: U32::new(0),
            stamp: U64::new(stamp.0),
            count: U64::new(count),
            value: U64::new(value),
            tag: U64::new(0),
        }
    }

    fn tag(&self, number: u64) -> u64 {
        let words: [U64; 5] = zerocopy::transmute!(*self);
        h64(&[words[0].get(), words[1].get(), words[2].get(), words[3].get(), number, u64::from(MAGIC), 0])
    }
}

impl Entry {
    /// Its bytes as entry `number` of a file, the first being 0.
    pub fn seal(&self, number: u64) -> [u8; ENTRY_LEN] {
        let mut raw = match *self {
            Entry::Begin(begin) => {
                let role = match begin.role {
                    Role::Publisher => 0,
                    Role::Recovery => 1,
                    Role::Subscriber => 2,
                };
                let stamp = u64::from(begin.name_len) << 32 | u64::from(begin.lane) << 16 | BLOCK_LINES;
                let mut raw = Raw::new(BEGIN, role, Stamp(stamp), u64::from(begin.pid), begin.time_ns);
                raw.small.set(VERSION);
                raw.instrument.set(MAGIC);
                raw
            }
            Entry::Name(bytes) => {
                let words: [U64; 3] = zerocopy::transmute!(bytes);
                Raw::new(NAME, 0, Stamp(words[0].get()), words[1].get(), words[2].get())
            }
            Entry::Joined { at } => Raw::new(JOINED, 0, at, 0, 0),
            Entry::Lines { first, count, sum } => Raw::new(LINES, 0, first, count, sum),
            Entry::Gap { first, count, cause } => {
                let cause = match cause {
                    LossCause::Lapped => 0,
                    LossCause::Unverified => 1,
                    LossCause::Missing => 2,
                };
                Raw::new(GAP, cause, first, count, 0)
            }
            Entry::Epoch { from, to } => Raw::new(EPOCH, 0, from, u64::from(to.0), 0),
            Entry::Digest { at, instrument, book } => {
                let mut raw = Raw::new(DIGEST, u8::from(book.is_none()), at, 0, book.unwrap_or(0));
                raw.instrument.set(instrument.0);
                raw
            }
            Entry::Unlogged { until, entries } => Raw::new(UNLOGGED, 0, until, entries, 0),
            Entry::Ended { at } => Raw::new(ENDED, 0, at, 0, 0),
            Entry::Closed { at } => Raw::new(CLOSED, 0, at, 0, 0),
        };
        raw.tag = U64::new(raw.tag(number));
        zerocopy::transmute!(raw)
    }

    /// Reads entry `number` of a file.
    ///
    /// # Errors
    /// [`EntryError`].
    pub fn read(bytes: &[u8; ENTRY_LEN], number: u64) -> Result<Entry, EntryError> {
        let raw: Raw = zerocopy::transmute!(*bytes);
        if raw.tag.get() != raw.tag(number) {
            return Err(EntryError::Damaged);
        }
        let (stamp, count, value) = (Stamp(raw.stamp.get()), raw.count.get(), raw.value.get());
        let entry = match raw.kind {
            BEGIN => {
                let role = match raw.detail {
                    0 => Role::Publisher,
                    1 => Role::Recovery,
                    _ => Role::Subscriber,
                };
                Entry::Begin(Begin {
                    role,
                    lane: (stamp.0 >> 16) as u16,
                    pid: count as u32,
                    time_ns: value,
                    name_len: (stamp.0 >> 32) as u8,
                })
            }
            NAME => {
                let words = [U64::new(stamp.0), U64::new(count), U64::new(value)];
                Entry::Name(zerocopy::transmute!(words))
            }
            JOINED => Entry::Joined { at: stamp },
            LINES => Entry::Lines { first: stamp, count, sum: value },
            GAP => {
                let cause = match raw.detail {
                    0 => LossCause::Lapped,
                    1 => LossCause::Unverified,
                    _ => LossCause::Missing,
                };
                Entry::Gap { first: stamp, count, cause }
            }
            EPOCH => Entry::Epoch { from: stamp, to: Epoch(count as u16) },
            DIGEST => Entry::Digest {
                at: stamp,
                instrument: InstrumentId(raw.instrument.get()),
                book: (raw.detail == 0).then_some(value),
            },
            UNLOGGED => Entry::Unlogged { until: stamp, entries: count },
            ENDED => Entry::Ended { at: stamp },
            CLOSED => Entry::Closed { at: stamp },
            kind => return Err(EntryError::UnknownKind(kind)),
        };
        // Whatever has no place in an entry of its kind is zero, and every range lies within an epoch: what is read is what
        // would be written, bit for bit.
        let is_range = match entry {
            Entry::Lines { first, count, .. } => (1..=BLOCK_LINES).contains(&count) && fits(first, count),
            Entry::Gap { first, count, .. } => count >= 1 && fits(first, count),
            _ => true,
        };
        if !is_range || entry.seal(number) != *bytes {
            return Err(EntryError::BadValue(raw.kind));
        }
        Ok(entry)
    }

    /// The entries that begin a log of the channel `name`, of which at most 255 bytes are kept.
    pub fn beginning(begin: Begin, name: &str) -> Vec<Entry> {
        let name = &name.as_bytes()[..name.len().min(u8::MAX.into())];
        let mut entries = vec![Entry::Begin(Begin { name_len: name.len() as u8, ..begin })];
        entries.extend(name.chunks(NAME_BYTES).map(|piece| {
            let mut bytes = [0; NAME_BYTES];
            bytes[..piece.len()].copy_from_slice(piece);
            Entry::Name(bytes)
        }));
        entries
    }
}

/// Whether `count` lines from `first` on lie within an epoch that there is, and a stamp follows them.
fn fits(first: Stamp, count: u64) -> bool {
    let sequence = first.sequence().0;
    first.epoch().0 > 0
        && sequence > 0
        && count <= SequenceNumber::MAX.0 - sequence + 1
        && first.0.checked_add(count).is_some()
}
