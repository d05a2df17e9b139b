//! BinaryFILE: each message behind its length, two bytes, big-endian.
//!
//! Nasdaq's own day files are framed this way. The framing has no sequence numbers and no times; a message's place in the
//! file stands for its sequence. A length of zero ends the session: it is taken as such only as the very last thing in
//! the file, after at least one message. Anywhere else it is a fault, because nothing after it can be framed.

use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::feed::{FeedError, FeedSource, Message};
use crate::input::{Input, Packing};

/// Bytes of uncompressed input held at a time: more than the longest message, 65,535 and its prefix.
const BUFFER_LEN: usize = 1 << 20;
/// Bytes in a length prefix.
const PREFIX_LEN: usize = 2;

/// How a [`BinaryFile`] is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FramingOptions {
    /// A stream that is cut off ends there, with a warning, instead of with an error.
    pub lenient: bool,
}

/// The messages of a BinaryFILE stream.
///
/// Memory is one buffer of 1 MiB, taken when it is made.
#[derive(Debug)]
pub struct BinaryFile<R = Input> {
    path: PathBuf,
    reader: R,
    options: FramingOptions,
    packing: Packing,
    buffer: Box<[u8]>,
    /// What is unread in the buffer.
    start: usize,
    end: usize,
    /// Offset of `buffer[start]` in the stream.
    offset: u64,
    /// Messages delivered.
    delivered: u64,
    /// The reader has ended, or failed with this.
    reader_end: Option<Result<(), FeedError>>,
    /// Nothing follows.
    finished: Option<Result<(), FeedError>>,
    warning: Option<FeedError>,
}

impl BinaryFile<Input> {
    /// The messages of an open capture.
    pub fn new(input: Input, options: FramingOptions) -> BinaryFile<Input> {
        let (path, packing) = (input.path().to_owned(), input.packing());
        let mut file = BinaryFile::from_reader(input, &path, options);
        file.packing = packing;
        file
    }
}

impl<R: Read> BinaryFile<R> {
    /// The messages of any reader; `path` names it in errors.
    pub fn from_reader(reader: R, path: &Path, options: FramingOptions) -> BinaryFile<R> {
        BinaryFile {
            path: path.to_owned(),
            reader,
            options,
            packing: Packing::Plain,
            buffer: vec![0; BUFFER_LEN].into_boxed_slice(),
            start: 0,
            end: 0,
            offset: 0,
            delivered: 0,
            reader_end: None,
            finished: None,
            warning: None,
        }
    }

    /// Messages delivered so far.
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Bytes of the uncompressed stream that were delivered, framing included.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads until `wanted` bytes are unread in the buffer, or the reader ends; whether they are.
    fn fill(&mut self, wanted: usize) -> bool {
        while self.end - self.start < wanted {
            if self.reader_end.is_some() {
                return false;
            }
            if self.start > 0 {
                self.buffer.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            }
            match self.reader.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.reader_end = Some(Ok(())),
                Ok(n) => self.end += n,
                Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
                Err(cause) => self.reader_end = Some(Err(self.read_error(cause))),
            }
        }
        true
    }

    fn read_error(&self, cause: io::Error) -> FeedError {
        let offset = self.offset + (self.end - self.start) as u64;
        FeedError::of_read(&self.path, self.packing, offset, Arc::new(cause))
    }

    /// Finds the next whole message: its length, or `None` when nothing follows.
    #[inline]
    fn find(&mut self) -> Result<Option<usize>, FeedError> {
        // The usual case first: everything is in the buffer.
        let unread = &self.buffer[self.start..self.end];
        if let [high, low, rest @ ..] = unread {
            let len = usize::from(u16::from_be_bytes([*high, *low]));
            if len != 0 && len <= rest.len() {
                return Ok(Some(len));
            }
        }
        self.find_slow()
    }

    #[cold]
    fn find_slow(&mut self) -> Result<Option<usize>, FeedError> {
        if let Some(finished) = &self.finished {
            return finished.clone().map(|()| None);
        }
        let found = self.find_or_end();
        if let Ok(Some(len)) = found {
            return Ok(Some(len));
        }
        let finished = match found {
            Err(error) if self.options.lenient && error.is_early_end() => {
                self.warning = Some(error);
                Ok(())
            }
            Err(error) => Err(error),
            Ok(_) => Ok(()),
        };
        // What could not be framed stays unread for good.
        self.start = self.end;
        self.finished = Some(finished.clone());
        finished.map(|()| None)
    }

    fn find_or_end(&mut self) -> Result<Option<usize>, FeedError> {
        let ordinal = self.delivered + 1;
        if !self.fill(PREFIX_LEN) {
            self.reader_end.clone().unwrap_or(Ok(()))?;
            return match self.end - self.start {
                0 if self.offset == 0 => Err(FeedError::Empty { path: self.path.clone() }),
                0 => Ok(None),
                present => Err(self.truncated(ordinal, PREFIX_LEN, present)),
            };
        }
        let len = usize::from(u16::from_be_bytes([self.buffer[self.start], self.buffer[self.start + 1]]));
        if len == 0 {
            let more = self.fill(PREFIX_LEN + 1);
            if more || self.delivered == 0 {
                return Err(FeedError::ZeroLength { path: self.path.clone(), offset: self.offset, ordinal });
            }
            self.reader_end.clone().unwrap_or(Ok(()))?;
            self.offset += PREFIX_LEN as u64;
            return Ok(None);
        }
        if !self.fill(PREFIX_LEN + len) {
            self.reader_end.clone().unwrap_or(Ok(()))?;
            return Err(self.truncated(ordinal, PREFIX_LEN + len, self.end - self.start));
        }
        Ok(Some(len))
    }

    fn truncated(&self, ordinal: u64, needed: usize, present: usize) -> FeedError {
        FeedError::Truncated {
            path: self.path.clone(),
            offset: self.offset,
            ordinal,
            needed: needed as u64,
            present: present as u64,
        }
    }
}

impl<R: Read> FeedSource for BinaryFile<R> {
    #[inline]
    fn next(&mut self) -> Result<Option<Message<'_>>, FeedError> {
        let Some(len) = self.find()? else { return Ok(None) };
        let begin = self.start + PREFIX_LEN;
        let offset = self.offset;
        self.delivered += 1;
        self.start = begin + len;
        self.offset += (PREFIX_LEN + len) as u64;
        Ok(Some(Message { ordinal: self.delivered, offset, capture: None, bytes: &self.buffer[begin..begin + len] }))
    }

    #[inline]
    fn glance(&self, limit: usize, see: &mut impl FnMut(&[u8])) {
        let mut unread = &self.buffer[self.start..self.end];
        for _ in 0..limit {
            let [high, low, rest @ ..] = unread else { return };
            let len = usize::from(u16::from_be_bytes([*high, *low]));
            let (Some(message), 1..) = (rest.get(..len), len) else { return };
            see(message);
            unread = &rest[len..];
        }
    }

    fn warning(&self) -> Option<&FeedError> {
        self.warning.as_ref()
    }
}

#[cfg(test)]
mod tests;
