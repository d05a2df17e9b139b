//! Opening a feed, whatever it is stored in: one function for every command.
//!
//! What a file is, is told by its content ([`detect`]), never by its name: plain, gzip or zstd, and within that BinaryFILE,
//! DBN, pcap, pcapng, or bare MoldUDP64 datagrams. Whatever it is, messages come out in the venue's order, with the times and the gaps that the
//! container knows of.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use protocol::time::Nanos;

use crate::capture::Container;
use crate::date::{DateError, SessionDate, session_date};
use crate::dbn::{self, DbnFile};
use crate::detect::{self, DetectError, FeedKind, Trial};
use crate::feed::{FeedError, FeedSource, Message, Notice};
use crate::input::{Input, InputError, Packing};
use crate::itch::mold::{MoldFeed, MoldOptions, MoldStats};
use crate::itch::{self, BinaryFile, FramingOptions};
use crate::series::Series;
use crate::venue::{AnyVenue, VenueOptions};

/// Bytes of a pipe that are waited for, to tell what it holds.
const PIPE_HEAD_LEN: usize = 64;

/// How a feed is opened.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FeedOptions {
    /// What it is; left out: by its content.
    pub feed: Option<FeedKind>,
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
    /// What it is.
    #[error(transparent)]
    Detect(#[from] DetectError),
    /// Its date.
    #[error(transparent)]
    Date(#[from] DateError),
    /// Something was asked for that does not go with it.
    #[error("{0}")]
    Asked(String),
}

/// A feed from a file.
// There is one per process; a box would cost an indirection per message.
#[allow(clippy::large_enum_variant)]
pub enum OpenFeed {
    /// Messages one behind the other, in Nasdaq's own files.
    BinaryFile(BinaryFile<Input>, FeedFile),
    /// Datagrams.
    Mold(MoldFeed<Input>, FeedFile),
    /// DBN.
    Dbn(DbnFile<Input>, FeedFile),
    /// Several files in a row.
    Series(Series, FeedFile),
}

/// The same call on whichever it is.
macro_rules! each {
    ($any:expr, $feed:ident => $call:expr) => {
        match $any {
            OpenFeed::BinaryFile($feed, _) => $call,
            OpenFeed::Mold($feed, _) => $call,
            OpenFeed::Dbn($feed, _) => $call,
            OpenFeed::Series($feed, _) => $call,
        }
    };
}

/// What is known of a feed's file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FeedFile {
    path: std::path::PathBuf,
    packing: Packing,
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
    let file = FeedFile { path: path.to_owned(), packing: input.packing(), preloaded: input.is_preloaded() };
    let wanted = if input.is_stream() { PIPE_HEAD_LEN } else { detect::HEAD_LEN };
    let head = input.peek(wanted);
    let whole = head.len() < wanted;
    let container = Container::of(head);
    let kind = match (options.feed, container) {
        (Some(kind), _) => kind,
        (None, Some(_)) => FeedKind::Mold,
        // A compressed stream of nothing, or one that breaks at once: its reader says so.
        (None, None) if head.is_empty() => FeedKind::Itch,
        (None, None) => detect::stream_kind(path, head, whole)?,
    };
    match kind {
        FeedKind::Itch => {
            let framing = FramingOptions { lenient: options.lenient };
            Ok(OpenFeed::BinaryFile(BinaryFile::new(input, framing), file))
        }
        FeedKind::Dbn => Ok(OpenFeed::Dbn(DbnFile::new(input, options.lenient)?, file)),
        FeedKind::Mold => {
            let foreign = match container.filter(|_| options.feed.is_none()) {
                Some(container) => foreign_flows(path, head, container),
                None => Vec::new(),
            };
            let misfit = foreign.first().cloned();
            let foreign = foreign.into_iter().map(|(to, _)| to).collect();
            let (lenient, session) = (options.lenient, options.session.clone());
            let feed =
                MoldFeed::new(input, container, MoldOptions { lenient, session, foreign, ..MoldOptions::default() });
            match feed.fault_at_start() {
                Some(error) => Err(with_misfit(error.clone(), misfit).into()),
                None => Ok(OpenFeed::Mold(feed, file)),
            }
        }
    }
}

/// Where datagrams go that do not fit, and what first did not.
fn foreign_flows(path: &Path, head: &[u8], container: Container) -> Vec<(SocketAddr, Trial)> {
    let flows = detect::flows(path, head, container);
    flows.into_iter().filter(|(_, trial)| trial.misfit.is_some() && !trial.fits()).collect()
}

/// A capture without a feed says what first did not fit in the first of its flows, and what to do if it is one.
fn with_misfit(error: FeedError, misfit: Option<(SocketAddr, Trial)>) -> FeedError {
    match (error, misfit) {
        (FeedError::NoFeed { path, session, found }, Some((to, Trial { misfit: Some((offset, what)), .. }))) => {
            let found = format!(
                "{found}; the flow to {to} first does not fit at offset {offset}: {what}. If it is one all the same, say \
                 --feed mold"
            );
            FeedError::NoFeed { path, session, found }
        }
        (error, _) => error,
    }
}

/// Opens the feed in several files, one after the other; in one, as [`open_feed`].
///
/// # Errors
/// [`OpenError`]: one of them cannot be read, or they are of several kinds.
pub fn open_feeds(paths: &[PathBuf], options: &FeedOptions) -> Result<OpenFeed, OpenError> {
    match paths {
        [] => Err(OpenError::Asked("no file was named".into())),
        [path] => open_feed(path, options),
        [path, ..] => {
            let series = Series::open(paths, options)?;
            let current = series.current();
            let file = FeedFile {
                path: path.clone(),
                packing: current.packing(),
                // Those behind it are read when they are due.
                preloaded: false,
            };
            Ok(OpenFeed::Series(series, file))
        }
    }
}

impl OpenFeed {
    fn file(&self) -> &FeedFile {
        match self {
            OpenFeed::BinaryFile(_, file)
            | OpenFeed::Mold(_, file)
            | OpenFeed::Dbn(_, file)
            | OpenFeed::Series(_, file) => file,
        }
    }

    /// What turns its messages into records.
    pub fn venue(&self, date: SessionDate, options: VenueOptions) -> AnyVenue {
        match self {
            OpenFeed::BinaryFile(..) | OpenFeed::Mold(..) => {
                let options = itch::NormaliserOptions { market: options.market, full: options.full };
                AnyVenue::Itch(itch::Normaliser::new(options, date))
            }
            OpenFeed::Dbn(feed, _) => AnyVenue::Dbn(dbn::Normaliser::new(feed.metadata(), date)),
            OpenFeed::Series(series, _) => match series.metadata() {
                [] => series.current().venue(date, options),
                [first, more @ ..] => {
                    let mut venue = dbn::Normaliser::new(first, date);
                    more.iter().for_each(|metadata| venue.learn_names(metadata));
                    AnyVenue::Dbn(venue)
                }
            },
        }
    }

    /// What kind of feed it is.
    pub fn kind(&self) -> FeedKind {
        match self {
            OpenFeed::BinaryFile(..) => FeedKind::Itch,
            OpenFeed::Mold(..) => FeedKind::Mold,
            OpenFeed::Dbn(..) => FeedKind::Dbn,
            OpenFeed::Series(series, _) => series.current().kind(),
        }
    }

    /// What stands in front of the records, where something does.
    pub fn metadata(&self) -> Option<&::dbn::Metadata> {
        match self {
            OpenFeed::Dbn(feed, _) => Some(feed.metadata()),
            OpenFeed::Series(series, _) => series.metadata().first(),
            OpenFeed::BinaryFile(..) | OpenFeed::Mold(..) => None,
        }
    }

    /// The session that is followed, where there are sessions.
    pub fn session(&self) -> Option<String> {
        let stats = self.mold_stats()?;
        stats.sessions.iter().find(|session| session.followed).map(|session| session.session.to_string())
    }

    /// What the messages are stored in, in words.
    pub fn container(&self) -> &'static str {
        match self {
            OpenFeed::BinaryFile(..) => "BinaryFILE",
            OpenFeed::Mold(feed, _) => feed.container().map_or("MoldUDP64 datagrams", Container::name),
            OpenFeed::Dbn(..) => "DBN",
            OpenFeed::Series(series, _) => series.current().container(),
        }
    }

    /// What that is compressed with.
    pub fn packing(&self) -> Packing {
        self.file().packing
    }

    /// Whether the whole file is in memory.
    pub fn is_preloaded(&self) -> bool {
        self.file().preloaded
    }

    /// Whether the venue's own sequence counts the messages, so that each record tells its place in the stream.
    pub fn counts_messages(&self) -> bool {
        self.kind() != FeedKind::Dbn
    }

    /// When the feed's first datagram or record was captured, where that is known.
    pub fn first_capture(&self) -> Option<Nanos> {
        match self {
            OpenFeed::BinaryFile(..) => None,
            OpenFeed::Mold(feed, _) => feed.first_capture(),
            OpenFeed::Dbn(feed, _) => feed.first_capture(),
            OpenFeed::Series(series, _) => series.current().first_capture(),
        }
    }

    /// The session's date: `option` (the value of `--date`), else that of the first datagram or record, else one in the
    /// file's name. Of a feed whose records bear their date it says how times of day are read, and `none` is no answer.
    ///
    /// # Errors
    /// [`DateError`]; each names the option.
    pub fn session_date(&self, option: Option<&str>) -> Result<SessionDate, DateError> {
        let option = option.filter(|given| self.counts_messages() || !given.eq_ignore_ascii_case("none"));
        match session_date(option, self.first_capture(), &self.file().path) {
            // Without a record, or with none that has a time, there is nothing to be dated.
            Err(DateError::Unknown { .. }) if !self.counts_messages() => Ok(SessionDate::NONE),
            date => date,
        }
    }

    /// Bytes of the uncompressed stream that were dealt with.
    pub fn offset(&self) -> u64 {
        each!(self, feed => feed.offset())
    }

    /// What was counted of sessions, lines and frames; `None` for files that have none.
    pub fn mold_stats(&self) -> Option<MoldStats> {
        match self {
            OpenFeed::BinaryFile(..) | OpenFeed::Dbn(..) => None,
            OpenFeed::Mold(feed, _) => Some(feed.stats()),
            OpenFeed::Series(series, _) => series.current().mold_stats(),
        }
    }
}

impl FeedSource for OpenFeed {
    #[inline]
    fn next(&mut self) -> Result<Option<Message<'_>>, FeedError> {
        each!(self, feed => feed.next())
    }

    #[inline]
    fn poll_notice(&mut self) -> Option<Notice> {
        each!(self, feed => feed.poll_notice())
    }

    #[inline]
    fn glance(&self, limit: usize, see: &mut impl FnMut(&[u8])) {
        each!(self, feed => feed.glance(limit, see));
    }

    fn warning(&self) -> Option<&FeedError> {
        each!(self, feed => feed.warning())
    }

    fn remarks(&self) -> Vec<String> {
        each!(self, feed => feed.remarks())
    }
}
