//! One MoldUDP64 datagram: header and message blocks.

use std::fmt;

use zerocopy::big_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// Bytes in a header.
pub const HEADER_LEN: usize = 20;
/// The count that ends a session.
pub const END_OF_SESSION: u16 = 0xFFFF;
/// Bytes in the length before each message.
pub const LENGTH_LEN: usize = 2;

/// A session's name: ten bytes of text, padded with spaces (or zeros throughout, where somebody blanked it).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(transparent)]
pub struct SessionId(pub [u8; 10]);

impl SessionId {
    /// Whether a sender could have called a session this.
    fn is_plausible(self) -> bool {
        self.0 == [0; 10] || self.0.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ')
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == [0; 10] {
            return f.write_str("(zeros)");
        }
        fmt::Display::fmt(&self.0.trim_ascii().escape_ascii(), f)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The header as it travels.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    session: SessionId,
    sequence: U64,
    count: U16,
}

const _: () = {
    assert!(size_of::<Header>() == HEADER_LEN);
    assert!(std::mem::offset_of!(Header, sequence) == 10);
    assert!(std::mem::offset_of!(Header, count) == 18);
};

/// What a datagram is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// It carries messages.
    Messages,
    /// It carries none, and says which comes next.
    Heartbeat,
    /// The session is over; says which message would have come next.
    EndOfSession,
    /// A listener asks for messages: a header that announces some, and nothing behind it.
    Request,
}

/// A datagram taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MoldPacket<'a> {
    /// Whose stream it belongs to.
    pub session: SessionId,
    /// The number of its first message, or of the next that will come.
    pub sequence: u64,
    /// What it is for.
    pub purpose: Purpose,
    /// Messages that its header announces; 0 unless [`Purpose::Messages`].
    pub announced: u16,
    /// Messages that are there whole, the first so many.
    pub present: u16,
    /// Those messages, each behind its length.
    pub blocks: &'a [u8],
    /// Bytes behind the last message, or of the one that is not whole.
    pub left_over: usize,
}

impl<'a> MoldPacket<'a> {
    /// Takes a datagram's payload apart. `None` if it cannot be MoldUDP64: too short for a header, or a session that is no
    /// text.
    #[inline]
    pub fn parse(payload: &'a [u8]) -> Option<MoldPacket<'a>> {
        let (header, rest) = Header::ref_from_prefix(payload).ok()?;
        if !header.session.is_plausible() {
            return None;
        }
        let (purpose, announced) = match header.count.get() {
            0 => (Purpose::Heartbeat, 0),
            END_OF_SESSION => (Purpose::EndOfSession, 0),
            _ if rest.is_empty() => (Purpose::Request, 0),
            count => (Purpose::Messages, count),
        };
        let (mut present, mut at) = (0, 0);
        while present < announced {
            let Some((_, after)) = block(rest, at) else { break };
            at = after;
            present += 1;
        }
        Some(MoldPacket {
            session: header.session,
            sequence: header.sequence.get(),
            purpose,
            announced,
            present,
            blocks: &rest[..at],
            left_over: rest.len() - at,
        })
    }

    /// The messages that are there whole, in order.
    pub fn messages(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (blocks, mut at) = (self.blocks, 0);
        std::iter::from_fn(move || {
            let (message, next) = block(blocks, at)?;
            at = next;
            Some(message)
        })
    }

    /// Whether every message announced is there.
    pub fn is_whole(&self) -> bool {
        self.present == self.announced
    }

    /// The number after its last message: the one that must come next.
    pub fn next_sequence(&self) -> u64 {
        self.sequence.saturating_add(u64::from(self.announced))
    }
}

/// The message whose block begins `at` in `blocks`, and where the next one begins.
#[inline]
pub fn block(blocks: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let len = blocks.get(at..)?.first_chunk::<LENGTH_LEN>()?;
    let begin = at + LENGTH_LEN;
    let end = begin + usize::from(u16::from_be_bytes(*len));
    Some((blocks.get(begin..end)?, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(count: u16, blocks: &[u8]) -> Vec<u8> {
        [b"0000100001", &7u64.to_be_bytes()[..], &count.to_be_bytes(), blocks].concat()
    }

    #[test]
    fn messages_heartbeats_ends_and_requests_are_told_apart() {
        let messages = payload(2, b"\0\x01a\0\x02bc");
        let got = MoldPacket::parse(&messages).expect("a packet");
        assert_eq!((got.purpose, got.sequence, got.announced, got.present), (Purpose::Messages, 7, 2, 2));
        assert_eq!((got.next_sequence(), got.left_over, got.session.to_string()), (9, 0, "0000100001".into()));
        assert_eq!(block(got.blocks, 0), Some((&b"a"[..], 3)));
        assert_eq!(block(got.blocks, 3), Some((&b"bc"[..], 7)));
        assert_eq!(block(got.blocks, 7), None);
        for (count, purpose) in [(0, Purpose::Heartbeat), (0xFFFF, Purpose::EndOfSession), (3, Purpose::Request)] {
            let bytes = payload(count, b"");
            let got = MoldPacket::parse(&bytes).expect("a packet");
            assert_eq!((got.purpose, got.next_sequence(), got.is_whole()), (purpose, 7, true));
        }
    }

    #[test]
    fn a_packet_cut_in_a_message_has_those_before_it() {
        let bytes = payload(2, b"\0\x01a\0\x02bc");
        for (len, present) in [(21, 0), (22, 0), (23, 1), (24, 1), (26, 1)] {
            let got = MoldPacket::parse(&bytes[..len]).expect("a header");
            assert_eq!((got.present, got.is_whole()), (present, false), "{len} bytes");
        }
        assert_eq!(MoldPacket::parse(&bytes[..19]), None);
    }

    #[test]
    fn bytes_behind_the_last_message_are_no_message() {
        let bytes = payload(1, b"\0\x01a\0\0\0\0");
        let got = MoldPacket::parse(&bytes).expect("a packet");
        assert_eq!((got.present, got.blocks, got.left_over), (1, &b"\0\x01a"[..], 4));
    }

    #[test]
    fn a_session_that_is_no_text_is_another_protocol() {
        let mut bytes = payload(1, b"\0\x01a");
        bytes[3] = 0x80;
        assert_eq!(MoldPacket::parse(&bytes), None);
        bytes[..10].fill(0);
        assert_eq!(MoldPacket::parse(&bytes).expect("blanked").session.to_string(), "(zeros)");
    }
}
