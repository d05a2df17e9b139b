//! MoldUDP64: Nasdaq's framing of a message stream in UDP datagrams, read from captures.
//!
//! [`packet`] is the datagram's layout. [`stream`] puts the datagrams of a session, from however many lines, into one
//! stream: first copy wins, and what is missing is declared only when no line can bring it any more. [`source`] reads a
//! capture, tells sessions and lines apart, and is a [`FeedSource`](crate::feed::FeedSource); [`stats`] is what it counted.
//!
//! What the protocol says, in our own words: a datagram is a header of 20 bytes (session, 10 bytes of text; the sequence
//! number of its first message, 8 bytes; how many messages follow, 2 bytes; big-endian), then each message behind its
//! length, 2 bytes. Without messages it is a heartbeat, and with a count of 65,535 it says that the session is over; both
//! carry the number that the next message would have, and neither takes one. A listener that missed something asks with a
//! header alone (session, first message, how many) and gets an ordinary datagram back.
//!
//! Sequence numbers begin at 1. A datagram numbered 0 has no place in a sequence: captures whose datagrams were wrapped
//! again by somebody are like that. Its messages are delivered where they stand, and counted apart.

pub mod packet;
mod raw;
pub mod source;
pub mod stats;
pub mod stream;

pub use packet::{MoldPacket, SessionId};
pub use source::{MoldFeed, MoldOptions};
pub use stats::{MoldStats, SessionStats, SideStats};

/// Whether bytes can begin one of several MoldUDP64 datagrams that lie one behind the other.
pub(crate) fn is_bare(bytes: &[u8]) -> bool {
    raw::RawPackets::<std::io::Empty>::is_one(bytes)
}
