//! Several files in a row, as one feed.
//!
//! The files are of one kind, in the order in which they are named. What has no sequence of its own is counted through them;
//! what has one (MoldUDP64) goes on where it was: what the next file holds again is dropped, what no file holds is a gap, and
//! another session is one. Only the file that is read is open.

use std::collections::VecDeque;
use std::path::PathBuf;

use protocol::time::Nanos;

use crate::feed::{FeedError, FeedSource, Message, Missing, Notice};
use crate::open::{FeedOptions, OpenError, OpenFeed, open_feed};

/// See the [module](self).
pub struct Series {
    current: Box<OpenFeed>,
    next: VecDeque<PathBuf>,
    options: FeedOptions,
    /// What stands in front of the records of each file that has such.
    metadata: Vec<dbn::Metadata>,
    /// The session that is followed, and its last message.
    session: Option<String>,
    last: u64,
    /// Messages delivered, and bytes of the files before this one.
    delivered: u64,
    before: u64,
    notices: VecDeque<Notice>,
    /// The message that was delivered last: its place, and its bytes.
    held: Vec<u8>,
    duplicates: u64,
    /// The rest cannot be read.
    failed: Option<FeedError>,
}

impl Series {
    /// The feed in `paths`, of which there is one at least. Each is looked at, so that what is wrong with one is said now.
    ///
    /// # Errors
    /// [`OpenError`]: one cannot be read, or they are of several kinds.
    pub fn open(paths: &[PathBuf], options: &FeedOptions) -> Result<Series, OpenError> {
        let mut metadata = Vec::new();
        let mut first: Option<&'static str> = None;
        for path in paths {
            let feed = open_feed(path, &FeedOptions { preload: None, ..options.clone() })?;
            let kind = feed.kind().name();
            if *first.get_or_insert(kind) != kind {
                let first = first.unwrap_or_default();
                let what =
                    format!("{}: this is {kind}, and the first file is {first}; read them apart", path.display());
                return Err(OpenError::Asked(what));
            }
            metadata.extend(feed.metadata().cloned());
        }
        let current = Box::new(open_feed(&paths[0], options)?);
        Ok(Series {
            session: current.session(),
            current,
            next: paths[1..].iter().cloned().collect(),
            options: options.clone(),
            metadata,
            last: 0,
            delivered: 0,
            before: 0,
            notices: VecDeque::new(),
            held: Vec::new(),
            duplicates: 0,
            failed: None,
        })
    }

    /// The file that is read.
    pub fn current(&self) -> &OpenFeed {
        &self.current
    }

    /// What stands in front of the records of each file that has such.
    pub fn metadata(&self) -> &[dbn::Metadata] {
        &self.metadata
    }

    /// Bytes of the uncompressed streams that were dealt with.
    pub fn offset(&self) -> u64 {
        self.before + self.current.offset()
    }

    /// Goes on to the next file; whether there is one.
    fn advance(&mut self) -> Result<bool, FeedError> {
        while let Some(notice) = self.current.poll_notice() {
            self.notices.push_back(notice);
        }
        let Some(path) = self.next.pop_front() else { return Ok(false) };
        self.before += self.current.offset();
        let opened = open_feed(&path, &self.options).map_err(|error| match error {
            OpenError::Feed(error) => error,
            // It could be opened a moment ago.
            error => FeedError::Damaged { path, offset: 0, ordinal: 0, what: error.to_string() },
        })?;
        *self.current = opened;
        let session = self.current.session();
        if session != self.session {
            self.notices.push_back(Notice::Session { capture: self.current.first_capture() });
            (self.session, self.last) = (session, 0);
        }
        Ok(true)
    }

    /// The next message's number, place and time; its bytes are held.
    fn find(&mut self) -> Result<Option<(u64, u64, Option<Nanos>)>, FeedError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        loop {
            let Some(message) = self.current.next()? else {
                if self.advance()? {
                    continue;
                }
                return Ok(None);
            };
            let (ordinal, offset, capture) = (message.ordinal, message.offset, message.capture);
            self.held.clear();
            self.held.extend_from_slice(message.bytes);
            if self.session.is_none() {
                self.delivered += 1;
                return Ok(Some((self.delivered, offset, capture)));
            }
            // Messages without a number stand where they are.
            if ordinal != 0 && ordinal <= self.last {
                self.duplicates += 1;
                continue;
            }
            if ordinal > self.last + 1 && self.last != 0 && !self.within_file() {
                let (first, count) = (self.last + 1, ordinal - self.last - 1);
                self.notices.push_back(Notice::Gap(Missing { first, count, capture }));
            }
            self.last = self.last.max(ordinal);
            self.delivered += 1;
            return Ok(Some((ordinal, offset, capture)));
        }
    }

    /// Whether the file that is read has delivered before: what is missing then it says itself.
    fn within_file(&self) -> bool {
        self.current.mold_stats().is_some_and(|stats| {
            stats.sessions.iter().filter(|session| session.followed).any(|session| session.counts.delivered > 1)
        })
    }
}

impl FeedSource for Series {
    fn next(&mut self) -> Result<Option<Message<'_>>, FeedError> {
        match self.find() {
            Ok(Some((ordinal, offset, capture))) => Ok(Some(Message { ordinal, offset, capture, bytes: &self.held })),
            Ok(None) => Ok(None),
            Err(error) => {
                self.failed = Some(error.clone());
                Err(error)
            }
        }
    }

    fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front().or_else(|| self.current.poll_notice())
    }

    fn warning(&self) -> Option<&FeedError> {
        self.current.warning()
    }

    fn remarks(&self) -> Vec<String> {
        let mut remarks = self.current.remarks();
        if self.duplicates > 0 {
            remarks.push(format!("{} messages were in an earlier file already", self.duplicates));
        }
        remarks
    }
}
