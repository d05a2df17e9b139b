//! What two sides of an RC lane say to each other before the first line: an offer, a token, a request and a refusal.

use std::fmt;
use std::io;
use std::net::SocketAddrV4;

use protocol::line::Stamp;
use protocol::record::{ChannelId, Lane};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::rdma::connection::MAX_PRIVATE_LEN;

/// What a subscriber tells a publisher by another way (the control channel): where it listens, and what may be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RcOffer {
    /// Where it listens for a connection of librdmacm.
    pub at: SocketAddrV4,
    /// Where the ring begins in the subscriber's memory.
    pub address: u64,
    /// The key that lets it be written.
    pub key: u32,
    /// Places of the ring.
    pub lines: u64,
    /// The line that it wants next, if it had a connection before: what was published meanwhile is written too, where it
    /// is still there.
    pub from: Option<Stamp>,
}

impl RcOffer {
    /// Whether a ring can be there: as many places as a ring can have, and an end within the address space. Its numbers come
    /// from somebody else, and may be any.
    pub(super) fn is_ring(&self) -> bool {
        self.lines.is_power_of_two()
            && (2..=crate::shm::MAX_LINES as u64).contains(&self.lines)
            && self.address.checked_add(super::ring_len(self.lines)).is_some()
    }
}

/// What a publisher's connection must present: told to both sides by another way, and good for one connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RcToken([u8; RcToken::LEN]);

impl RcToken {
    /// Bytes of a token.
    pub const LEN: usize = 16;

    /// One that nobody can guess, from the operating system.
    ///
    /// # Errors
    /// If the system gives no random bytes.
    pub fn random() -> io::Result<RcToken> {
        let mut bytes = [0; RcToken::LEN];
        // SAFETY: getrandom writes at most as many bytes as it is told, which the array has. So few come at once
        // (getrandom(2)).
        let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        if got == bytes.len() as isize { Ok(RcToken(bytes)) } else { Err(io::Error::last_os_error()) }
    }

    /// A token that came by another way.
    pub const fn from_bytes(bytes: [u8; RcToken::LEN]) -> RcToken {
        RcToken(bytes)
    }

    /// Its bytes, to be told to the other side and to nobody else.
    pub const fn as_bytes(&self) -> &[u8; RcToken::LEN] {
        &self.0
    }

    /// Whether the two are the same, in a time that does not tell where they differ.
    pub(super) fn matches(&self, other: &RcToken) -> bool {
        let difference = self.0.iter().zip(&other.0).fold(0, |all, (a, b)| all | (a ^ b));
        std::hint::black_box(difference) == 0
    }
}

impl fmt::Debug for RcToken {
    /// Without its bytes: logs are no place for secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RcToken(…)")
    }
}

/// `BKR` and the version.
const REQUEST: u32 = u32::from_le_bytes([b'B', b'K', b'R', 1]);
/// `BKN` and the version.
const REFUSAL: u32 = u32::from_le_bytes([b'B', b'K', b'N', 1]);

/// The private data of a publisher's connection request.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Request {
    /// [`REQUEST`].
    magic: U32,
    /// The channel.
    pub(super) channel: ChannelId,
    /// The lane.
    pub(super) lane: Lane,
    /// The token.
    token: [u8; RcToken::LEN],
    /// The stamp of the first line to be written.
    first: U64,
}

const _: () = {
    assert!(size_of::<Request>() == 32 && size_of::<Request>() <= MAX_PRIVATE_LEN);
    assert!(std::mem::offset_of!(Request, channel) == 4);
    assert!(std::mem::offset_of!(Request, lane) == 6);
    assert!(std::mem::offset_of!(Request, token) == 8);
    assert!(std::mem::offset_of!(Request, first) == 24);
};

impl Request {
    pub(super) fn new(channel: ChannelId, lane: Lane, token: RcToken, first: Stamp) -> Request {
        Request { magic: U32::new(REQUEST), channel, lane, token: token.0, first: U64::new(first.0) }
    }

    /// From private data, which may be longer by padding.
    pub(super) fn read(private: &[u8]) -> Result<Request, Refusal> {
        match Request::read_from_prefix(private) {
            Ok((request, _)) if request.magic.get() == REQUEST => Ok(request),
            _ => Err(Refusal::Malformed),
        }
    }

    pub(super) fn token(&self) -> RcToken {
        RcToken(self.token)
    }

    /// The first stamp, if it is one: an epoch and a sequence number of at least 1.
    pub(super) fn first(&self) -> Option<Stamp> {
        let first = Stamp(self.first.get());
        (first.epoch().0 > 0 && first.sequence().0 > 0).then_some(first)
    }
}

macro_rules! refusals {
    ($($name:ident = $code:literal, $text:literal;)*) => {
        /// Why a subscriber refused a connection. It is counted, and the ring stays as it was.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
        pub enum Refusal {
            $(#[doc = concat!("It says: ", $text, ".")] #[error($text)] $name,)*
        }

        impl Refusal {
            /// Every one.
            pub const ALL: &'static [Refusal] = &[$(Refusal::$name),*];

            const fn code(self) -> u32 {
                match self { $(Refusal::$name => $code,)* }
            }
        }
    };
}

refusals! {
    Malformed = 1, "the request is none of ours, or of another version";
    WrongToken = 2, "the token is not the one that was agreed on";
    WrongChannel = 3, "the request is for another channel";
    WrongLane = 4, "the request is for another lane";
    BadStart = 5, "the first stamp is none (epoch and sequence begin at 1), or not the one agreed on";
    NotExpected = 6, "no token has been agreed on";
    SecondConnection = 7, "this offer has been taken already";
    Busy = 8, "the subscriber has not taken in the rings of earlier connections yet";
    OwnFault = 9, "the subscriber could not set its side up";
}

impl Refusal {
    /// The private data that says so.
    pub(super) fn to_bytes(self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&REFUSAL.to_le_bytes());
        bytes[4..].copy_from_slice(&self.code().to_le_bytes());
        bytes
    }

    /// From private data, if it is such.
    pub(super) fn read(private: &[u8]) -> Option<Refusal> {
        let word = |at| Some(u32::from_le_bytes(private.get(at..at + 4)?.try_into().ok()?));
        if word(0)? != REFUSAL {
            return None;
        }
        let code = word(4)?;
        Refusal::ALL.iter().copied().find(|refusal| refusal.code() == code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::line::{Epoch, SequenceNumber};

    #[test]
    fn a_request_is_what_it_is_drawn_as_and_padding_does_not_matter() {
        let first = Stamp::new(Epoch(5), SequenceNumber(0x0102_0304_0506));
        let token = RcToken::from_bytes(*b"0123456789abcdef");
        let request = Request::new(ChannelId::new(300), Lane::new(1), token, first);
        let mut drawn = b"BKR\x01\x2C\x01\x01\x000123456789abcdef\x06\x05\x04\x03\x02\x01\x05\x00".to_vec();
        assert_eq!(request.as_bytes(), drawn);
        drawn.resize(MAX_PRIVATE_LEN, 0);
        let read = Request::read(&drawn).expect("a request");
        assert_eq!((read.first(), read.channel, read.lane), (Some(first), ChannelId::new(300), Lane::new(1)));
        assert!(read.token().matches(&token));
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let token = RcToken::from_bytes([7; 16]);
        let request = Request::new(ChannelId::new(1), Lane::new(1), token, Stamp::new(Epoch(1), SequenceNumber(1)));
        let bytes = request.as_bytes();
        for len in 0..bytes.len() {
            assert_eq!(Request::read(&bytes[..len]).err(), Some(Refusal::Malformed), "{len} bytes");
        }
        for place in 0..4 {
            let mut bytes = bytes.to_vec();
            bytes[place] ^= 1;
            assert_eq!(Request::read(&bytes).err(), Some(Refusal::Malformed), "byte {place}");
        }
        for first in [Stamp(0), Stamp::new(Epoch(0), SequenceNumber(1)), Stamp::new(Epoch(1), SequenceNumber(0))] {
            assert_eq!(Request::new(ChannelId::new(1), Lane::new(1), token, first).first(), None);
        }
        for bit in 0..128 {
            let mut other = *token.as_bytes();
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(!token.matches(&RcToken::from_bytes(other)), "bit {bit}");
        }
    }

    #[test]
    fn an_offer_of_any_numbers_is_looked_at_and_only_a_ring_is_one() {
        let at = "10.99.0.2:1".parse().expect("an address");
        let offer = RcOffer { at, address: 4096, key: 1, lines: 256, from: None };
        assert!(offer.is_ring() && RcOffer { lines: 2, ..offer }.is_ring());
        let most = crate::shm::MAX_LINES as u64;
        for lines in [0, 1, 100, most + 1, most * 2, 1 << 58, 1 << 62, 1 << 63, u64::MAX] {
            assert!(!RcOffer { lines, ..offer }.is_ring(), "{lines}");
        }
        let last = u64::MAX - 128 - 256 * 64;
        assert!(RcOffer { address: last, ..offer }.is_ring() && !RcOffer { address: last + 1, ..offer }.is_ring());
    }

    #[test]
    fn tokens_are_random_and_not_shown() {
        let (one, other) = (RcToken::random().expect("random bytes"), RcToken::random().expect("random bytes"));
        assert!(!one.matches(&other) && one.matches(&one));
        assert_eq!(format!("{one:?}"), "RcToken(…)");
    }

    #[test]
    fn a_refusal_says_why() {
        for refusal in Refusal::ALL {
            let mut bytes = refusal.to_bytes().to_vec();
            assert_eq!(Refusal::read(&bytes), Some(*refusal));
            bytes.resize(MAX_PRIVATE_LEN, 0);
            assert_eq!(Refusal::read(&bytes), Some(*refusal));
            assert_eq!(Refusal::read(&bytes[..7]), None);
        }
        assert_eq!(Refusal::read(&[0; 56]), None);
        let codes: std::collections::HashSet<u32> = Refusal::ALL.iter().map(|refusal| refusal.code()).collect();
        assert_eq!(codes.len(), Refusal::ALL.len());
    }
}
