//! A market day made from a seed: conforming ITCH 5.0 in BinaryFILE framing.
//!
//! For demonstrations and tests where no capture may be had. A day holds every message type of the specification, in the
//! right phases, with executions that never exceed what is left of an order, numbers that are unique for the day, times
//! that never go back, and books that are never crossed. A few securities have most of the messages, and messages come in
//! bursts, because both are what a market data system meets. The bytes come from an encoder of their own ([`encode`]),
//! which shares nothing with the decoder.
//!
//! [`output`] writes a day as BinaryFILE or as MoldUDP64 in pcap and pcapng, with venue gaps and a second line if wanted, and
//! [`profile`] says how bursty it is.
//!
//! What it is not: a model of a market. Prices walk at random, and nobody reacts to anybody.
//!
//! ```
//! use feeds_replay::generate::{GenerateOptions, Generator};
//!
//! let mut day = Generator::new(GenerateOptions { symbols: 5, messages: 5_000, ..GenerateOptions::default() })?;
//! let mut messages = 0;
//! while let Some(framed) = day.next_framed() {
//!     assert_eq!(framed.len(), 2 + usize::from(u16::from_be_bytes([framed[0], framed[1]])));
//!     messages += 1;
//! }
//! assert_eq!(messages, 5_000);
//! # Ok::<(), feeds_replay::generate::GenerateError>(())
//! ```

use std::fmt;
use std::io::{self, Write};

use publisher::feed::{FeedError, FeedSource, Message};

mod book;
mod clock;
pub mod command;
mod day;
pub mod encode;
pub mod output;
pub mod profile;
mod random;

pub use day::Generator;

/// The shortest day that holds every message type.
pub const MIN_MESSAGES: u64 = 5_000;
/// The fewest securities: one for each thing that happens to a security once a day.
pub const MIN_SYMBOLS: u16 = 5;
/// The most securities: their names have three letters.
pub const MAX_SYMBOLS: u16 = 17_576;
/// Messages per security that a day has at least.
pub const MIN_MESSAGES_PER_SYMBOL: u64 = 30;
/// The shortest day, in ns.
pub const MIN_SPAN_NS: u64 = 1_000_000;
/// The longest compressed day, in ns: 9 hours, so that it ends before midnight.
pub const MAX_SPAN_NS: u64 = 9 * 3_600_000_000_000;

/// What day to make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GenerateOptions {
    /// The same seed and options give the same bytes.
    pub seed: u64,
    /// Securities, from [`MIN_SYMBOLS`] to [`MAX_SYMBOLS`].
    pub symbols: u16,
    /// Messages, exactly: at least [`MIN_MESSAGES`], and [`MIN_MESSAGES_PER_SYMBOL`] for each security.
    pub messages: u64,
    /// Time from the first message to the last, in ns; `None` for the hours that Nasdaq keeps, 03:05 to 20:05.
    pub span_ns: Option<u64>,
    /// The most orders that rest on one side of one book, at least 16.
    pub orders_per_side: usize,
    /// The longest micro-burst, in messages, from 8 to 65,536. Half of the bursts have 8 messages, a quarter 16, and so on.
    pub longest_burst: u32,
}

impl Default for GenerateOptions {
    fn default() -> GenerateOptions {
        GenerateOptions {
            seed: 1,
            symbols: 50,
            messages: 1_000_000,
            span_ns: None,
            orders_per_side: 256,
            longest_burst: 8_192,
        }
    }
}

impl GenerateOptions {
    fn check(&self) -> Result<(), GenerateError> {
        let problem = |what: String| Err(GenerateError::Options { what });
        if !(MIN_SYMBOLS..=MAX_SYMBOLS).contains(&self.symbols) {
            return problem(format!("{} symbols; give {MIN_SYMBOLS} to {MAX_SYMBOLS}", self.symbols));
        }
        let least = MIN_MESSAGES.max(MIN_MESSAGES_PER_SYMBOL * u64::from(self.symbols));
        if self.messages < least {
            return problem(format!("{} messages; {} symbols need at least {least}", self.messages, self.symbols));
        }
        if let Some(span_ns) = self.span_ns.filter(|span_ns| !(MIN_SPAN_NS..=MAX_SPAN_NS).contains(span_ns)) {
            return problem(format!("a day of {span_ns} ns; give {MIN_SPAN_NS} to {MAX_SPAN_NS}"));
        }
        if !(16..=4096).contains(&self.orders_per_side) {
            return problem(format!("{} orders a side; give 16 to 4096", self.orders_per_side));
        }
        if !(8..=65_536).contains(&self.longest_burst) {
            return problem(format!("bursts of up to {} messages; give 8 to 65536", self.longest_burst));
        }
        Ok(())
    }
}

/// Why a day could not be made.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// The options leave no room for a whole day.
    #[error("a day cannot be generated with {what}")]
    Options {
        /// What is wrong, and what is allowed.
        what: String,
    },
    /// The destination did not take the bytes.
    #[error("writing the generated day failed after {bytes} bytes: {source}; check the destination's free space")]
    Write {
        /// Bytes written before.
        bytes: u64,
        /// The system's cause.
        source: io::Error,
    },
}

/// What was made.
#[derive(Clone, PartialEq, Eq)]
pub struct GenerateSummary {
    /// Messages.
    pub messages: u64,
    /// Bytes, framing included.
    pub bytes: u64,
    /// Messages by their type byte.
    pub by_type: [u64; 256],
}

impl Default for GenerateSummary {
    fn default() -> GenerateSummary {
        GenerateSummary { messages: 0, bytes: 0, by_type: [0; 256] }
    }
}

impl GenerateSummary {
    #[inline]
    fn count(&mut self, framed: &[u8]) {
        self.messages += 1;
        self.bytes += framed.len() as u64;
        self.by_type[usize::from(framed[2])] += 1;
    }
}

impl fmt::Debug for GenerateSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} messages, {} bytes:", self.messages, self.bytes)?;
        for (message_type, count) in (0..=255u8).zip(self.by_type).filter(|(_, count)| *count > 0) {
            write!(f, " {} {count}", char::from(message_type))?;
        }
        Ok(())
    }
}

/// Writes a whole day.
///
/// # Errors
/// [`GenerateError`]: options out of range, or a destination that fails.
pub fn generate(options: &GenerateOptions, out: &mut impl Write) -> Result<GenerateSummary, GenerateError> {
    /// Bytes gathered before they are written.
    const BATCH_LEN: usize = 64 << 10;
    let mut day = Generator::new(*options)?;
    let mut batch = Vec::with_capacity(BATCH_LEN + 256);
    let mut written = 0;
    loop {
        let more = match day.next_framed() {
            Some(framed) => {
                batch.extend_from_slice(framed);
                true
            }
            None => false,
        };
        if batch.len() >= BATCH_LEN || !more {
            out.write_all(&batch).map_err(|source| GenerateError::Write { bytes: written, source })?;
            written += batch.len() as u64;
            batch.clear();
        }
        if !more {
            out.flush().map_err(|source| GenerateError::Write { bytes: written, source })?;
            return Ok(day.summary().clone());
        }
    }
}

/// A generated day is a feed without a file.
impl FeedSource for Generator {
    fn next(&mut self) -> Result<Option<Message<'_>>, FeedError> {
        let (ordinal, offset) = (self.summary().messages + 1, self.summary().bytes);
        Ok(self.next_framed().map(|framed| Message { ordinal, offset, capture: None, bytes: &framed[2..] }))
    }
}

#[cfg(test)]
mod tests;
