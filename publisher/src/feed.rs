//! The feed: a stream of venue messages in the venue's order.
//!
//! A [`FeedSource`] cuts a venue's own framing into messages and knows nothing of what they say. Everything in front of a
//! fault has been delivered before the fault is reported, and the report names file, offset and what to do.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use protocol::time::Nanos;

use crate::input::Packing;

/// One venue message, borrowed from the source's buffer until the next is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message<'a> {
    /// Its number in the venue's stream, from 1. Where the framing has no sequence of its own (BinaryFILE), the message's
    /// place in the file.
    pub ordinal: u64,
    /// Where its framing begins, in bytes from the start of the uncompressed stream.
    pub offset: u64,
    /// When it was captured, where the capture says so.
    pub capture: Option<Nanos>,
    /// The message, without its framing.
    pub bytes: &'a [u8],
}

/// A stream of venue messages in order.
pub trait FeedSource {
    /// The next message; `None` at the end.
    ///
    /// # Errors
    /// [`FeedError`], after everything before the fault was delivered. The source stays there: every later call gives the
    /// same error.
    fn next(&mut self) -> Result<Option<Message<'_>>, FeedError>;

    /// What else became of the stream, in order. Asked after each call of [`FeedSource::next`], whatever that returned,
    /// until there is nothing more: notices stand *in front of* the message that was returned (or of the end, or of the
    /// error).
    #[inline]
    fn poll_notice(&mut self) -> Option<Notice> {
        None
    }

    /// Shows `see` the messages that come next, as far as they are at hand already, and at most `limit` of them; takes none.
    /// A hint, for who makes ready for them: a source may show none, and the next one taken may be another.
    #[inline]
    fn glance(&self, limit: usize, see: &mut impl FnMut(&[u8])) {
        let _ = (limit, see);
    }

    /// What was forgiven, if something was: a truncated end that a lenient source took for the end.
    fn warning(&self) -> Option<&FeedError> {
        None
    }

    /// What whoever publishes or replays the feed ought to know of it, a line each: what was missing, dropped or left out
    /// so far.
    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Something that a source says of its stream between two messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notice {
    /// Messages are lost for good.
    Gap(Missing),
    /// Another session begins; its sequence counts from 1 again. What follows has nothing to do with what was before.
    Session {
        /// When the packet that showed it was captured, where the capture says so.
        capture: Option<Nanos>,
    },
}

/// Venue messages that are lost for good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Missing {
    /// The first one's number in the venue's stream.
    pub first: u64,
    /// How many, at least 1.
    pub count: u64,
    /// When the packet that showed it was captured, where the capture says so.
    pub capture: Option<Nanos>,
}

/// Why a feed cannot go on.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FeedError {
    /// The stream ends inside a message.
    #[error(
        "{}: cut off inside message {ordinal} at offset {offset}: {needed} bytes were announced and {present} are there; \
         everything before it was delivered. Fetch the file again, or accept the early end with --lenient", path.display()
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Where the message's framing begins, in the uncompressed stream.
        offset: u64,
        /// Its number, from 1.
        ordinal: u64,
        /// Bytes it takes, framing included (2, the length prefix itself, when that is cut).
        needed: u64,
        /// Bytes that are there.
        present: u64,
    },
    /// A length prefix of zero with data after it.
    #[error(
        "{}: the length prefix of message {ordinal} at offset {offset} is zero, and data follows: no message can be found \
         from here on. The file is not BinaryFILE, or its prefixes were blanked; get it from its source again", path.display()
    )]
    ZeroLength {
        /// The file.
        path: PathBuf,
        /// Where the prefix is, in the uncompressed stream.
        offset: u64,
        /// The number that the message would have had, from 1.
        ordinal: u64,
    },
    /// The stream has no bytes at all: a gzip of nothing.
    #[error("{}: there is nothing in it once decompressed; fetch the file again", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The compressed stream ends before its own end mark.
    #[error(
        "{}: the {packing} stream ends early, after {offset} bytes of uncompressed data; every whole message before it was \
         delivered. Fetch the file again, or accept the early end with --lenient", path.display()
    )]
    PackedEndsEarly {
        /// The file.
        path: PathBuf,
        /// How it is compressed.
        packing: Packing,
        /// How many uncompressed bytes came out.
        offset: u64,
    },
    /// The compressed stream is damaged.
    #[error(
        "{}: the {packing} stream is damaged after {offset} bytes of uncompressed data ({source}); every whole message before \
         it was delivered. Fetch the file again", path.display()
    )]
    PackedDamaged {
        /// The file.
        path: PathBuf,
        /// How it is compressed.
        packing: Packing,
        /// How many uncompressed bytes came out.
        offset: u64,
        /// The decompressor's words.
        source: Arc<io::Error>,
    },
    /// A packet capture ends inside a record.
    #[error(
        "{}: the capture is cut off at offset {offset}, inside the record of packet {packet}: it takes {needed} bytes or \
         more and {present} are there; everything before it was delivered. Fetch the file again, or accept the early end \
         with --lenient", path.display()
    )]
    CaptureCut {
        /// The file.
        path: PathBuf,
        /// Where the record begins, in the uncompressed stream.
        offset: u64,
        /// The packet's number, from 1; 0 in the file's own header.
        packet: u64,
        /// Bytes that it takes, as far as it can be told.
        needed: u64,
        /// Bytes that are there.
        present: u64,
    },
    /// A packet capture contradicts itself.
    #[error(
        "{}: the capture is damaged at offset {offset}, in the record of packet {packet}: {what}; everything before it was \
         delivered, and nothing can be found after it. Fetch the file again", path.display()
    )]
    CaptureDamaged {
        /// The file.
        path: PathBuf,
        /// Where the record begins, in the uncompressed stream.
        offset: u64,
        /// The packet's number, from 1; 0 in the file's own header.
        packet: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// A file of records contradicts itself.
    #[error(
        "{}: damaged at offset {offset}, in record {ordinal}: {what}; everything before it was delivered, and nothing can be \
         found after it. Fetch the file again", path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the record begins, in the uncompressed stream.
        offset: u64,
        /// Its number, from 1; 0 in the file's own header.
        ordinal: u64,
        /// What is wrong.
        what: String,
    },
    /// A packet capture without the feed that is asked for.
    #[error("{}: there is no MoldUDP64 feed{} in it, and no other is read from packet captures: {found}", path.display(), session.as_deref().map_or(String::new(), |name| format!(" of session {name}")))]
    NoFeed {
        /// The file.
        path: PathBuf,
        /// The session that was asked for, if one was.
        session: Option<String>,
        /// What there is instead, and what to do.
        found: String,
    },
    /// Reading failed.
    #[error("{}: reading failed at offset {offset} ({source}); check the device that holds it", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// How many uncompressed bytes were read before.
        offset: u64,
        /// The system's cause.
        source: Arc<io::Error>,
    },
}

impl FeedError {
    /// Where it happened, in bytes of the uncompressed stream.
    pub fn offset(&self) -> u64 {
        match self {
            FeedError::Truncated { offset, .. }
            | FeedError::ZeroLength { offset, .. }
            | FeedError::PackedEndsEarly { offset, .. }
            | FeedError::PackedDamaged { offset, .. }
            | FeedError::CaptureCut { offset, .. }
            | FeedError::CaptureDamaged { offset, .. }
            | FeedError::Damaged { offset, .. }
            | FeedError::Io { offset, .. } => *offset,
            FeedError::Empty { .. } | FeedError::NoFeed { .. } => 0,
        }
    }

    /// What `cause`, met after `offset` bytes of the uncompressed stream, means; `packing` is what they came out of.
    pub fn of_read(path: &Path, packing: Packing, offset: u64, cause: Arc<io::Error>) -> FeedError {
        let path = path.to_owned();
        match (packing, cause.kind()) {
            (Packing::Gzip | Packing::Zstd, ErrorKind::UnexpectedEof) => {
                FeedError::PackedEndsEarly { path, packing, offset }
            }
            (Packing::Gzip, ErrorKind::InvalidInput | ErrorKind::InvalidData) => {
                FeedError::PackedDamaged { path, packing, offset, source: cause }
            }
            // What the decompressor says itself has no number of the system.
            (Packing::Zstd, _) if cause.raw_os_error().is_none() => {
                FeedError::PackedDamaged { path, packing, offset, source: cause }
            }
            _ => FeedError::Io { path, offset, source: cause },
        }
    }

    /// Whether it is an early end, which a lenient source takes for the end.
    pub fn is_early_end(&self) -> bool {
        matches!(self, FeedError::Truncated { .. } | FeedError::PackedEndsEarly { .. } | FeedError::CaptureCut { .. })
    }
}
