//! The packet: a 32-byte header, then lines. What UD and UDP carry.
//!
//! ```text
//!  byte 0      4         6         8            16             24        32
//!  magic+ver   channel   lane      next stamp   publish time   tag       lines …
//!  u32         u16       u16       u64          u64            u64       64 bytes each
//! ```
//!
//! `next` is the stamp after the packet's last line, so that the loss of the last packet shows in the next heartbeat; the
//! first line's stamp follows from it and from the length. The tag is [`h64`] of the first 24 bytes, padded with zeros to
//! 56. A packet without lines is a heartbeat. A packet whose magic, tag or any line does not verify is refused whole:
//! [`decode`] says why, and the caller counts it.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Ref, Unaligned};

use crate::hash::h64;
use crate::line::{LINE_LEN, Line, SequenceNumber, Stamp};
use crate::record::{ChannelId, Lane, RECORD_LEN};
use crate::time::Nanos;

/// `BKC` and the version, as the little-endian u32 at byte 0.
pub const MAGIC: u32 = u32::from_le_bytes([b'B', b'K', b'C', 1]);
/// Bytes in a [`PacketHeader`].
pub const HEADER_LEN: usize = 32;
/// The most lines in one packet: what an MTU of 4096 holds.
pub const MAX_LINES: usize = 63;

/// Bit 63 of the publish time: the session has ended. UTC ns do not reach it before the year 2262.
const ENDED: u64 = 1 << 63;

/// The first 32 bytes of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct PacketHeader {
    /// [`MAGIC`].
    pub magic: U32,
    /// The channel.
    pub channel: ChannelId,
    /// The lane.
    pub lane: Lane,
    /// The stamp after the last line.
    pub next: U64,
    /// The publisher's clock, UTC ns, at or before each line's `ts_publish`; bit 63: the session has ended.
    pub publish_time: U64,
    /// [`h64`] of the bytes before it.
    pub tag: U64,
}

const _: () = {
    assert!(size_of::<PacketHeader>() == HEADER_LEN);
    assert!(std::mem::offset_of!(PacketHeader, channel) == 4);
    assert!(std::mem::offset_of!(PacketHeader, lane) == 6);
    assert!(std::mem::offset_of!(PacketHeader, next) == 8);
    assert!(std::mem::offset_of!(PacketHeader, publish_time) == 16);
    assert!(std::mem::offset_of!(PacketHeader, tag) == 24);
};

impl PacketHeader {
    /// A header, its tag filled in.
    pub fn new(channel: ChannelId, lane: Lane, next: Stamp, publish_time: Nanos, ended: bool) -> PacketHeader {
        let time = publish_time.0 & !ENDED | if ended { ENDED } else { 0 };
        let mut header = PacketHeader {
            magic: U32::new(MAGIC),
            channel,
            lane,
            next: U64::new(next.0),
            publish_time: U64::new(time),
            tag: U64::ZERO,
        };
        header.tag.set(header.expected_tag());
        header
    }

    /// What the tag must be.
    fn expected_tag(&self) -> u64 {
        let mut padded = [0u8; RECORD_LEN];
        padded[..24].copy_from_slice(&self.as_bytes()[..24]);
        let words: [U64; 7] = zerocopy::transmute!(padded);
        h64(&words.map(U64::get))
    }

    /// The publisher's clock in full.
    pub fn time(&self) -> Nanos {
        Nanos(self.publish_time.get() & !ENDED)
    }

    /// Whether the session has ended.
    pub fn ended(&self) -> bool {
        self.publish_time.get() & ENDED != 0
    }
}

/// A packet that verified: its header, and its lines where they lay.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The header.
    pub header: &'a PacketHeader,
    /// The stamp of the first line (of the next one to come, when there are no lines).
    pub first: Stamp,
    /// The lines, each verified.
    pub lines: &'a [Line],
}

/// Why a packet was refused. Ordinary outcomes: small, and counted by kind ([`Refused::index`]).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Refused {
    /// Shorter than a header.
    #[error("shorter than a header")]
    Short,
    /// The magic or version is not ours.
    #[error("magic or version is not ours")]
    Magic,
    /// The tag does not fit the header.
    #[error("the header's tag does not verify")]
    Tag,
    /// Another channel's packet.
    #[error("another channel's packet")]
    Channel,
    /// What follows the header is not whole lines, or more than fit a packet.
    #[error("not a whole number of lines")]
    Length,
    /// `next` leaves no room for as many lines as there are.
    #[error("more lines than sequence numbers before them")]
    Sequence,
    /// A line does not verify with its stamp.
    #[error("a line does not verify")]
    Line,
    /// A Heartbeat stands among the lines.
    #[error("a heartbeat line in a packet")]
    Heartbeat,
    /// The buffer is not aligned to 64 bytes behind the header: a fault of the receiver, not of the packet.
    #[error("receive buffer is misaligned")]
    Alignment,
}

impl Refused {
    /// How many kinds there are.
    pub const COUNT: usize = 9;

    /// A place in a table of counters.
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// Checks a received datagram in place.
///
/// `bytes` must start 32 bytes before a multiple of 64, so that lines are aligned where they lie.
///
/// # Errors
/// [`Refused`], whatever the bytes are; nothing is read beyond `bytes`, nothing panics.
#[inline]
pub fn decode(bytes: &[u8], channel: ChannelId) -> Result<Packet<'_>, Refused> {
    let (header, rest) = PacketHeader::ref_from_prefix(bytes).map_err(|_| Refused::Short)?;
    if header.magic.get() != MAGIC {
        return Err(Refused::Magic);
    }
    if header.tag.get() != header.expected_tag() {
        return Err(Refused::Tag);
    }
    if header.channel != channel {
        return Err(Refused::Channel);
    }
    if rest.len() % LINE_LEN != 0 || rest.len() > MAX_LINES * LINE_LEN {
        return Err(Refused::Length);
    }
    let lines: &[Line] = match Ref::<&[u8], [Line]>::from_bytes(rest) {
        Ok(lines) => Ref::into_ref(lines),
        // A heartbeat has nothing that could be misaligned.
        Err(_) if rest.is_empty() => &[],
        Err(_) => return Err(Refused::Alignment),
    };
    let next = Stamp(header.next.get());
    let count = lines.len() as u64;
    if next.sequence().0 <= count || next.epoch().0 == 0 {
        return Err(Refused::Sequence);
    }
    let first = Stamp::new(next.epoch(), SequenceNumber(next.sequence().0 - count));
    for (i, line) in lines.iter().enumerate() {
        if !line.verifies(first.plus(i as u64)) {
            return Err(Refused::Line);
        }
        if line.record.kind == crate::record::Kind::HEARTBEAT {
            return Err(Refused::Heartbeat);
        }
    }
    Ok(Packet { header, first, lines })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::Epoch;
    use crate::record::{InstrumentId, Kind, Record};

    #[repr(C, align(64))]
    struct Buffer([u8; 64 * 80]);

    /// A packet of `count` lines from sequence 5 on, starting 32 bytes into an aligned buffer.
    fn packet(count: usize, buffer: &mut Buffer) -> usize {
        let first = Stamp::new(Epoch(2), SequenceNumber(5));
        let header = PacketHeader::new(ChannelId::new(9), Lane::new(1), first.plus(count as u64), Nanos(77), false);
        buffer.0[32..64].copy_from_slice(header.as_bytes());
        for i in 0..count {
            let mut record = Record::new(Kind::ADD, InstrumentId(1));
            record.order_id.set(i as u64);
            let line = Line::seal(record, first.plus(i as u64));
            buffer.0[64 + i * 64..][..64].copy_from_slice(line.as_bytes());
        }
        HEADER_LEN + count * LINE_LEN
    }

    #[test]
    fn what_was_encoded_decodes() {
        let mut buffer = Buffer([0; 64 * 80]);
        for count in [0, 1, 2, 63] {
            let len = packet(count, &mut buffer);
            let got = decode(&buffer.0[32..32 + len], ChannelId::new(9)).expect("decodes");
            assert_eq!(got.lines.len(), count);
            assert_eq!(got.first, Stamp::new(Epoch(2), SequenceNumber(5)));
            assert_eq!((got.header.time(), got.header.ended()), (Nanos(77), false));
            assert_eq!(got.header.lane, Lane::new(1));
        }
    }

    #[test]
    fn every_truncation_and_every_flipped_bit_is_refused() {
        let mut buffer = Buffer([0; 64 * 80]);
        let len = packet(2, &mut buffer);
        // A packet cut after its first line has a `next` that no longer fits the line; cut after the header it is a
        // heartbeat that names a later stamp, which is true.
        for cut in (0..len).filter(|cut| *cut != HEADER_LEN) {
            assert!(decode(&buffer.0[32..32 + cut], ChannelId::new(9)).is_err(), "cut at {cut}");
        }
        for bit in 0..len * 8 {
            buffer.0[32 + bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&buffer.0[32..32 + len], ChannelId::new(9)).is_err(), "bit {bit}");
            buffer.0[32 + bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn a_flipped_bit_in_next_drops_the_packet_whole() {
        let mut buffer = Buffer([0; 64 * 80]);
        let len = packet(1, &mut buffer);
        buffer.0[32 + 8] ^= 1;
        assert_eq!(decode(&buffer.0[32..32 + len], ChannelId::new(9)).unwrap_err(), Refused::Tag);
    }

    #[test]
    fn refusals_name_their_cause() {
        let mut buffer = Buffer([0; 64 * 80]);
        let len = packet(1, &mut buffer);
        let at = |buffer: &Buffer, range: std::ops::Range<usize>, channel| {
            decode(&buffer.0[range], ChannelId::new(channel)).map(|_| ()).unwrap_err()
        };
        assert_eq!(at(&buffer, 32..32 + 31, 9), Refused::Short);
        assert_eq!(at(&buffer, 32..32 + len, 8), Refused::Channel);
        assert_eq!(at(&buffer, 32..32 + len - 1, 9), Refused::Length);
        assert_eq!(at(&buffer, 0..64, 9), Refused::Magic);
        buffer.0.copy_within(32..32 + len, 33);
        assert_eq!(at(&buffer, 33..33 + len, 9), Refused::Alignment);
        let lines = 70;
        let len = packet(lines, &mut buffer);
        assert_eq!(at(&buffer, 32..32 + len, 9), Refused::Length);

        // More lines than sequence numbers before `next`.
        let header = PacketHeader::new(ChannelId::new(9), Lane::new(0), Stamp(1 << 48 | 1), Nanos(1), false);
        buffer.0[32..64].copy_from_slice(header.as_bytes());
        assert_eq!(at(&buffer, 32..32 + HEADER_LEN + LINE_LEN, 9), Refused::Sequence);

        let stamp = Stamp::new(Epoch(1), SequenceNumber(5));
        let beat = Line::seal(Record::new(Kind::HEARTBEAT, InstrumentId::CHANNEL), stamp);
        let header = PacketHeader::new(ChannelId::new(9), Lane::new(0), stamp.plus(1), Nanos(1), false);
        buffer.0[32..64].copy_from_slice(header.as_bytes());
        buffer.0[64..128].copy_from_slice(beat.as_bytes());
        assert_eq!(at(&buffer, 32..32 + HEADER_LEN + LINE_LEN, 9), Refused::Heartbeat);
    }
}
