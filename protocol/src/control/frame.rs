//! Frames: a length, four bytes, little-endian; then that many bytes of JSON.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Bytes before the body.
pub const HEADER_LEN: usize = 4;
/// The longest body that is read from a peer that has shown who it is.
pub const MAX_BODY_LEN: usize = 64 << 10;
/// The longest body that is read from one that has not.
pub const MAX_HELLO_LEN: usize = 1 << 10;

/// Why a peer's bytes are no frame.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// The body is announced longer than is read from this peer now.
    #[error("a frame of {announced} bytes was announced; at most {allowed} are read here")]
    TooLong {
        /// As announced.
        announced: usize,
        /// The bound.
        allowed: usize,
    },
    /// The body is not what it should be.
    #[error("not a request or reply of this version: {0}")]
    Body(String),
}

/// Bytes that came and were not taken yet. Never holds more than one frame of the longest body, and what came with it.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
}

impl Inbox {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Takes `expected` off the front; `None` while too little came, an error with what stood there instead.
    pub(super) fn take_preface(&mut self, expected: &[u8; 8]) -> Option<Result<(), ()>> {
        let known = self.bytes.len().min(expected.len());
        if self.bytes[..known] != expected[..known] {
            return Some(Err(()));
        }
        if known < expected.len() {
            return None;
        }
        self.bytes.drain(..expected.len());
        Some(Ok(()))
    }

    /// The next frame, when it is there as a whole.
    pub(super) fn next<T: DeserializeOwned>(&mut self, allowed: usize) -> Result<Option<T>, FrameError> {
        let Some(header) = self.bytes.first_chunk::<HEADER_LEN>() else { return Ok(None) };
        let announced = u32::from_le_bytes(*header) as usize;
        if announced > allowed {
            return Err(FrameError::TooLong { announced, allowed });
        }
        let end = HEADER_LEN + announced;
        if self.bytes.len() < end {
            return Ok(None);
        }
        let body = serde_json::from_slice(&self.bytes[HEADER_LEN..end]);
        self.bytes.drain(..end);
        body.map(Some).map_err(|error| FrameError::Body(error.to_string()))
    }
}

/// Appends a frame to `out`.
pub(super) fn write(message: &impl Serialize, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_LEN]);
    serde_json::to_writer(&mut *out, message).expect("requests and replies have string keys and no failing fields");
    let len = (out.len() - start - HEADER_LEN) as u32;
    out[start..start + HEADER_LEN].copy_from_slice(&len.to_le_bytes());
}
