//! Nasdaq TotalView-ITCH 5.0.
//!
//! A day of one Nasdaq market, every displayed order of it. Four files, in the order the bytes pass through them:
//! [`framing`] cuts a BinaryFILE stream into messages, [`messages`] is the specification's tables as types, [`mod@decode`]
//! views a message's bytes as one of them, and [`normalise`] turns it into records. Beside the last stand the words it
//! needs for trading states ([`status`]) and for definitions (`definition`). NOTES.md in this folder is what the
//! specification says, in our own words.
//!
//! [`mold`] takes the same messages out of packet captures, where MoldUDP64 frames them.
//!
//! Left out: SoupBinTCP, which carries ITCH over TCP, and versions before 5.0, whose messages
//! share type letters but not layouts.
//!
//! ```
//! use publisher::feed::FeedSource;
//! use publisher::itch::{BinaryFile, FramingOptions, Message, decode};
//!
//! // One system event behind its length: start of messages, at 3:00 in the morning.
//! let file: &[u8] = b"\0\x0cS\0\0\0\0\x09\xd2\x87\x40\xa8\0O";
//! let mut feed = BinaryFile::from_reader(file, "example".as_ref(), FramingOptions::default());
//! while let Some(message) = feed.next()? {
//!     let Ok(Message::SystemEvent(event)) = decode(message.bytes) else { continue };
//!     assert_eq!((event.event_code, message.ordinal), (b'O', 1));
//! }
//! # Ok::<(), publisher::feed::FeedError>(())
//! ```

pub mod decode;
mod definition;
mod event;
pub mod framing;
pub mod messages;
pub mod mold;
pub mod normalise;
pub mod status;

pub use crate::counters::Counters;
pub use decode::{Rejected, decode};
pub use framing::{BinaryFile, FramingOptions};
pub use messages::Message;
pub use normalise::{Market, Normaliser, NormaliserOptions};
