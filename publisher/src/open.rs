//! Opening a feed, whatever it is stored in: one function for every command.
//!
//! What a file is, is told by its content, never by its name: gzip or plain, and within that BinaryFILE, pcap, pcapng, or
//! bare MoldUDP64 datagrams. Whatever it is, messages come out in the venue's order, with the times and the gaps that the
//! container knows of.

use std::path::Path;

use protocol::time::Nanos;

use crate::capture::Container;
use crate::date::{DateError, SessionDate, session_date};
use crate::feed::{FeedError, FeedSource, Message, Notice};
use crate::input::{Input, InputError};
use crate::itch::mold::{self, MoldFeed, MoldOptions, MoldStats};
use crate::itch::{BinaryFile, FramingOptions};

/// Bytes that tell what a stream is.
const HEAD_LEN: usize = 64;

/// How a feed is opened.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FeedOptions {
    /// A capture that is cut off ends there, with a warning, instead of with an error.
    pub lenient: bool,
    /// Which MoldUDP64 session to follow, where a capture has several side by side. Left out: the first.
    pub session: Option<String>,
    /// Read the whole file into memory first if it is, uncompressed, at most so many bytes.
    pub preload: Option<u64>,
}

/// Why a feed cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file.
    #[error(transparent)]
    Input(#[from] InputError),
    /// What is in it: not a single datagram of a feed before the end, or before a fault.
    #[error(transparent)]
    Feed(#[from] FeedError),
    /// Its date.
    #[error(transparent)]
    Date(#[from] DateError),
}

/// A feed from a file.
// There is one per process; a box would cost an indirection per message.
#[allow(clippy::large_enum_variant)]
pub enum OpenFeed {
    /// Messages one behind the other, in Nasdaq's own files.
    BinaryFile(BinaryFile<Input>, FeedFile),
    /// Datagrams.
    Mold(MoldFeed<Input>, FeedFile),
}

/// What is known of a feed's file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FeedFile {
    path: std::path::PathBuf,
    gzip: bool,
    preloaded: bool,
}

/// Opens the feed in the file `path`.
///
/// Of a packet capture as much is read as it takes to come to the feed's first datagram.
///
/// # Errors
/// [`OpenError`]: the file cannot be read, or there is no feed in it.
pub fn open_feed(path: &Path, options: &FeedOptions) -> Result<OpenFeed, OpenError> {
    let mut input = match options.preload {
        Some(limit) => Input::preload(path, limit)?,
        None => Input::open(path)?,
    };
    let file = FeedFile { path: path.to_owned(), gzip: input.is_gzip(), preloaded: input.is_preloaded() };
    let head = input.peek(HEAD_LEN);
    let container = Container::of(head);
    if container.is_none() && !mold::is_bare(head) {
        let framing = FramingOptions { lenient: options.lenient };
        return Ok(OpenFeed::BinaryFile(BinaryFile::new(input, framing), file));
    }
    let options = MoldOptions { lenient: options.lenient, session: options.session.clone(), ..MoldOptions::default() };
    let feed = MoldFeed::new(input, container, options);
    match feed.fault_at_start() {
        Some(error) => Err(error.clone().into()),
        None => Ok(OpenFeed::Mold(feed, file)),
    }
}

impl OpenFeed {
    fn file(&self) -> &FeedFile {
        match self {
            OpenFeed::BinaryFile(_, file) | OpenFeed::Mold(_, file) => file,
        }
    }

    /// What the messages are stored in, in words.
    pub fn container(&self) -> &'static str {
        match self {
            OpenFeed::BinaryFile(..) => "BinaryFILE",
            OpenFeed::Mold(feed, _) => feed.container().map_or("MoldUDP64 datagrams", Container::name),
        }
    }

    /// Whether that is inside gzip.
    pub fn is_gzip(&self) -> bool {
        self.file().gzip
    }

    /// Whether the whole file is in memory.
    pub fn is_preloaded(&self) -> bool {
        self.file().preloaded
    }

    /// When the feed's first datagram was captured, where that is known.
    pub fn first_capture(&self) -> Option<Nanos> {
        match self {
            OpenFeed::BinaryFile(..) => None,
            OpenFeed::Mold(feed, _) => feed.first_capture(),
        }
    }

    /// The session's date: `option` (the value of `--date`), else that of the first datagram, else one in the file's name.
    ///
    /// # Errors
    /// [`DateError`]; each names the option.
    pub fn session_date(&self, option: Option<&str>) -> Result<SessionDate, DateError> {
        session_date(option, self.first_capture(), &self.file().path)
    }

    /// Bytes of the uncompressed stream that were dealt with.
    pub fn offset(&self) -> u64 {
        match self {
            OpenFeed::BinaryFile(file, _) => file.offset(),
            OpenFeed::Mold(feed, _) => feed.offset(),
        }
    }

    /// What was counted of sessions, lines and frames; `None` for files that have none.
    pub fn mold_stats(&self) -> Option<MoldStats> {
        match self {
            OpenFeed::BinaryFile(..) => None,
            OpenFeed::Mold(feed, _) => Some(feed.stats()),
        }
    }
}

impl FeedSource for OpenFeed {
    #[inline]
    fn next(&mut self) -> Result<Option<Message<'_>>, FeedError> {
        match self {
            OpenFeed::BinaryFile(file, _) => file.next(),
            OpenFeed::Mold(feed, _) => feed.next(),
        }
    }

    #[inline]
    fn poll_notice(&mut self) -> Option<Notice> {
        match self {
            OpenFeed::BinaryFile(file, _) => file.poll_notice(),
            OpenFeed::Mold(feed, _) => feed.poll_notice(),
        }
    }

    #[inline]
    fn glance(&self, limit: usize, see: &mut impl FnMut(&[u8])) {
        match self {
            OpenFeed::BinaryFile(file, _) => file.glance(limit, see),
            OpenFeed::Mold(feed, _) => feed.glance(limit, see),
        }
    }

    fn warning(&self) -> Option<&FeedError> {
        match self {
            OpenFeed::BinaryFile(file, _) => file.warning(),
            OpenFeed::Mold(feed, _) => feed.warning(),
        }
    }

    fn remarks(&self) -> Vec<String> {
        match self {
            OpenFeed::BinaryFile(file, _) => file.remarks(),
            OpenFeed::Mold(feed, _) => feed.remarks(),
        }
    }
}
