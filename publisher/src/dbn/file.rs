//! A DBN stream cut into records.
//!
//! ```text
//!  "DBN" version u8 │ length u32 │ metadata, length bytes │ record │ record │ …
//! ```
//!
//! A record's first byte is its length in units of four bytes. The metadata says what instruments are called; it is read
//! whole before the first record, and no more than is there is ever allocated for it.

use std::io::Read;

use dbn::Metadata;
use dbn::decode::dbn::MetadataDecoder;
use protocol::time::Nanos;

use super::MAGIC;
use super::types::{HEADER_LEN, UNIT_LEN, time_of};
use crate::capture::window::{LONGEST, Window};
use crate::feed::{FeedError, FeedSource, Message};
use crate::input::Input;

/// Bytes in front of the metadata.
pub const PRELUDE_LEN: usize = 8;
/// The versions that are read.
pub const VERSIONS: std::ops::RangeInclusive<u8> = 1..=3;

/// The records of a DBN stream.
pub struct DbnFile<R = Input> {
    window: Window<R>,
    metadata: Metadata,
    lenient: bool,
    /// Of the record that was handed out.
    lent: usize,
    delivered: u64,
    first_time: Option<Nanos>,
    finished: Option<Result<(), FeedError>>,
    warning: Option<FeedError>,
}

impl DbnFile<Input> {
    /// The records in an open file. Reads the metadata.
    ///
    /// # Errors
    /// [`FeedError`]: the metadata is cut off, damaged, or of a version that is not read here.
    pub fn new(input: Input, lenient: bool) -> Result<DbnFile<Input>, FeedError> {
        let (path, packing) = (input.path().to_owned(), input.packing());
        DbnFile::from_window(Window::new(input, &path, packing), lenient)
    }
}

impl<R: Read> DbnFile<R> {
    /// The records of a stream. Reads the metadata.
    ///
    /// # Errors
    /// As [`DbnFile::new`].
    pub fn from_window(mut window: Window<R>, lenient: bool) -> Result<DbnFile<R>, FeedError> {
        let metadata = read_metadata(&mut window)?;
        // The first record's time, which gives the day, is looked at and not taken.
        let first_time = first_time(&mut window);
        Ok(DbnFile { window, metadata, lenient, lent: 0, delivered: 0, first_time, finished: None, warning: None })
    }

    /// What stands in front of the records.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// When the first record was received.
    pub fn first_capture(&self) -> Option<Nanos> {
        self.first_time
    }

    /// Bytes of the uncompressed stream that were dealt with.
    pub fn offset(&self) -> u64 {
        self.window.offset() + self.lent as u64
    }

    /// Finds the next whole record: its length, or `None` when nothing follows.
    #[inline]
    fn find(&mut self) -> Result<Option<usize>, FeedError> {
        self.window.consume(std::mem::take(&mut self.lent));
        if let [units, rest @ ..] = self.window.unread() {
            let len = usize::from(*units) * UNIT_LEN;
            if len >= HEADER_LEN && len <= rest.len() + 1 {
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
        if let Ok(Some(_)) = found {
            return found;
        }
        let finished = match found {
            Err(error) if self.lenient && error.is_early_end() => {
                self.warning = Some(error);
                Ok(())
            }
            Err(error) => Err(error),
            Ok(_) => Ok(()),
        };
        // What could not be framed stays unread for good.
        self.window.drop_rest();
        self.finished = Some(finished.clone());
        finished.map(|()| None)
    }

    fn find_or_end(&mut self) -> Result<Option<usize>, FeedError> {
        let ordinal = self.delivered + 1;
        if !self.window.fill(1) {
            self.window.broken()?;
            return Ok(None);
        }
        let len = usize::from(self.window.unread()[0]) * UNIT_LEN;
        if len < HEADER_LEN {
            return Err(damaged(
                &self.window,
                ordinal,
                format!("it claims {len} bytes, and the header alone has {HEADER_LEN}"),
            ));
        }
        if !self.window.fill(len) {
            self.window.broken()?;
            return Err(FeedError::Truncated {
                path: self.window.path().to_owned(),
                offset: self.window.offset(),
                ordinal,
                needed: len as u64,
                present: self.window.unread().len() as u64,
            });
        }
        Ok(Some(len))
    }
}

impl<R: Read> FeedSource for DbnFile<R> {
    #[inline]
    fn next(&mut self) -> Result<Option<Message<'_>>, FeedError> {
        let Some(len) = self.find()? else { return Ok(None) };
        self.delivered += 1;
        self.lent = len;
        let bytes = &self.window.unread()[..len];
        Ok(Some(Message { ordinal: self.delivered, offset: self.window.offset(), capture: None, bytes }))
    }

    #[inline]
    fn glance(&self, limit: usize, see: &mut impl FnMut(&[u8])) {
        let mut unread = &self.window.unread()[self.lent..];
        for _ in 0..limit {
            let Some(units) = unread.first() else { return };
            let len = usize::from(*units) * UNIT_LEN;
            let (Some(record), HEADER_LEN..) = (unread.get(..len), len) else { return };
            see(record);
            unread = &unread[len..];
        }
    }

    fn warning(&self) -> Option<&FeedError> {
        self.warning.as_ref()
    }
}

fn damaged<R: Read>(window: &Window<R>, ordinal: u64, what: String) -> FeedError {
    FeedError::Damaged { path: window.path().to_owned(), offset: window.offset(), ordinal, what }
}

/// Reads prelude and metadata.
fn read_metadata<R: Read>(window: &mut Window<R>) -> Result<Metadata, FeedError> {
    let truncated = |window: &Window<R>, needed: usize| FeedError::Truncated {
        path: window.path().to_owned(),
        offset: 0,
        ordinal: 0,
        needed: needed as u64,
        present: window.unread().len() as u64,
    };
    if !window.fill(PRELUDE_LEN) {
        window.broken()?;
        return Err(truncated(window, PRELUDE_LEN));
    }
    let prelude: [u8; PRELUDE_LEN] = window.unread()[..PRELUDE_LEN].try_into().expect("8 bytes");
    let [a, b, c, version, length @ ..] = prelude;
    if [a, b, c] != MAGIC {
        return Err(damaged(window, 0, "it does not begin with the letters DBN".into()));
    }
    if !VERSIONS.contains(&version) {
        let what = format!("it is of DBN version {version}; versions 1 to 3 are read here");
        return Err(damaged(window, 0, what));
    }
    let len = u32::from_le_bytes(length) as usize;
    if len > LONGEST - PRELUDE_LEN {
        return Err(damaged(window, 0, format!("its metadata claims {len} bytes, and {LONGEST} are the bound")));
    }
    if !window.fill(PRELUDE_LEN + len) {
        window.broken()?;
        return Err(truncated(window, PRELUDE_LEN + len));
    }
    let metadata = MetadataDecoder::new(&window.unread()[..PRELUDE_LEN + len]).decode();
    let metadata = metadata.map_err(|error| damaged(window, 0, format!("its metadata cannot be read: {error}")))?;
    window.consume(PRELUDE_LEN + len);
    Ok(metadata)
}

fn first_time<R: Read>(window: &mut Window<R>) -> Option<Nanos> {
    if !window.fill(1) {
        return None;
    }
    let len = usize::from(window.unread()[0]) * UNIT_LEN;
    (len >= HEADER_LEN && window.fill(len)).then(|| time_of(&window.unread()[..len])).flatten().map(Nanos)
}
