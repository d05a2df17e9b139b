//! A bounded piece of a stream: what is unread, and where in the stream it stands.

use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::feed::FeedError;
use crate::input::Packing;

/// Bytes held at a time, unless something longer has to be seen as a whole.
const WINDOW_LEN: usize = 1 << 20;

/// The longest thing that is ever held as a whole. Whatever claims to be longer is damaged.
pub const LONGEST: usize = 16 << 20;

/// See the [module](self).
#[derive(Debug)]
pub struct Window<R> {
    path: PathBuf,
    reader: R,
    packing: Packing,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Of `buffer[start]` in the stream.
    offset: u64,
    /// The reader has ended, or failed with this.
    ended: Option<Result<(), FeedError>>,
}

impl<R: Read> Window<R> {
    /// A window at the start of a stream; `path` names it in errors, `packing` is what its bytes come out of.
    pub fn new(reader: R, path: &Path, packing: Packing) -> Window<R> {
        Window {
            path: path.to_owned(),
            reader,
            packing,
            buffer: vec![0; WINDOW_LEN],
            start: 0,
            end: 0,
            offset: 0,
            ended: None,
        }
    }

    /// The path it was made with.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the bytes come out of.
    pub fn packing(&self) -> Packing {
        self.packing
    }

    /// Where the unread bytes stand in the stream.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// What is unread and in memory.
    #[inline]
    pub fn unread(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Passes over `len` unread bytes.
    ///
    /// # Panics
    /// If so many are not unread.
    #[inline]
    pub fn consume(&mut self, len: usize) {
        assert!(len <= self.end - self.start, "{len} bytes of {} passed over", self.end - self.start);
        self.start += len;
        self.offset += len as u64;
    }

    /// Reads until `wanted` bytes are unread in memory, or the stream ends; whether they are.
    ///
    /// # Panics
    /// If more than [`LONGEST`] are wanted.
    #[inline]
    pub fn fill(&mut self, wanted: usize) -> bool {
        self.end - self.start >= wanted || self.fill_slow(wanted)
    }

    #[cold]
    fn fill_slow(&mut self, wanted: usize) -> bool {
        assert!(wanted <= LONGEST, "{wanted} bytes wanted, {LONGEST} is the bound");
        while self.end - self.start < wanted {
            if self.ended.is_some() {
                return false;
            }
            if self.start > 0 {
                self.buffer.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            }
            if self.buffer.len() < wanted {
                self.buffer.resize(wanted, 0);
            }
            match self.reader.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.ended = Some(Ok(())),
                Ok(n) => self.end += n,
                Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
                Err(cause) => {
                    let offset = self.offset + (self.end - self.start) as u64;
                    self.ended = Some(Err(FeedError::of_read(&self.path, self.packing, offset, Arc::new(cause))));
                }
            }
        }
        true
    }

    /// Passes over everything, for good: nothing is read any more. The place stays where it is.
    pub fn drop_rest(&mut self) {
        self.start = self.end;
        self.ended = Some(Ok(()));
    }

    /// What reading failed with, once it has and the bytes before the failure do not suffice.
    ///
    /// # Errors
    /// [`FeedError`]: the stream did not end, it broke.
    pub fn broken(&self) -> Result<(), FeedError> {
        self.ended.clone().unwrap_or(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_is_there_however_the_bytes_arrive() {
        struct Drip<'a>(&'a [u8]);
        impl Read for Drip<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
                let n = self.0.len().min(buffer.len()).min(7);
                buffer[..n].copy_from_slice(&self.0[..n]);
                self.0 = &self.0[n..];
                Ok(n)
            }
        }
        let bytes: Vec<u8> = (0..200u8).collect();
        let mut window = Window::new(Drip(&bytes), Path::new("x"), Packing::Plain);
        for at in (0..200).step_by(20) {
            assert!(window.fill(20));
            assert_eq!((window.offset(), &window.unread()[..20]), (at as u64, &bytes[at..at + 20]));
            window.consume(20);
        }
        assert!(!window.fill(1));
        assert!(window.broken().is_ok());
    }

    #[test]
    fn something_longer_than_the_window_is_held_as_a_whole() {
        let bytes = vec![7u8; 3 * WINDOW_LEN];
        let mut window = Window::new(&bytes[..], Path::new("x"), Packing::Plain);
        assert!(window.fill(10));
        window.consume(10);
        assert!(window.fill(2 * WINDOW_LEN));
        assert!(!window.fill(3 * WINDOW_LEN - 9));
        assert_eq!(window.unread().len(), 3 * WINDOW_LEN - 10);
    }
}
