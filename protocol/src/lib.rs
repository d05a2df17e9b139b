//! What Bookcast says, and what must be true of it: records, lines, packets, sequencing, arbitration, gaps and books.
//!
//! Nothing here knows a clock, a socket or a thread. Bytes and time go in, events and requests come out, so that every
//! loss, reorder and restart can be replayed from a seed. How lines move is the crate `transport`'s affair; it depends on
//! this one, never the reverse. `WIRE.md` draws every byte.
//!
//! ```
//! use protocol::line::{Epoch, Line, SequenceNumber, Stamp};
//! use protocol::record::{InstrumentId, Kind, Record, Side};
//!
//! let mut record = Record::new(Kind::ADD, InstrumentId(1));
//! record.side = Side::BID;
//! record.price.set(101_250_000_000); // 101.25
//! record.size.set(300);
//!
//! // A line is accepted only by a reader that expects its stamp; whatever tore it, the mask shows it.
//! let stamp = Stamp::new(Epoch(1), SequenceNumber::FIRST);
//! let line = Line::seal(record, stamp);
//! assert!(line.verifies(stamp));
//! assert!(!line.verifies(stamp.plus(1)));
//! ```
//!
//! - [`record`], [`mod@line`], [`hash`], [`packet`], [`run`]: what travels, and what lanes hand up.
//! - [`sequencer`], [`channel`]: the sending half. [`arbiter`], [`early`]: the receiving half.
//! - [`book`]: order books, their states and digests. [`definition`], [`price`]: text.
//! - [`pair`]: two publishers of one channel.
//! - [`recovery`]: what is asked of a recovery server, what it answers, and what becomes of it.
//! - [`log`]: what a participant was given, written down, and checked.
//! - [`conflation`]: the latest of each instrument in place of every change.
//! - [`control`]: what a subscriber asks before the first line.
//! - [`time`]: times as values.

#![forbid(unsafe_code)]

pub mod arbiter;
pub mod book;
pub mod channel;
pub mod conflation;
pub mod control;
pub mod definition;
pub mod early;
pub mod hash;
pub mod line;
pub mod log;
pub mod packet;
pub mod pair;
pub mod price;
pub mod record;
pub mod recovery;
pub mod run;
pub mod sequencer;
pub mod time;
