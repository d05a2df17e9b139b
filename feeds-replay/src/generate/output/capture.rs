//! Packets into pcap and pcapng, as Ethernet frames with IPv4 and UDP, little-endian, in order of capture time.
//!
//! Written from the formats' drafts (draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng), for what is written here and no more:
//! in pcap one kind of header, in pcapng a section, an interface for each line, and enhanced packet blocks.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Write};
use std::net::Ipv4Addr;

use super::Format;
use super::mold::Line;

/// Ethernet, IPv4 and UDP headers.
const HEADERS_LEN: usize = 14 + 20 + 8;
const SNAP_LEN: u32 = 65_535;
/// LINKTYPE_ETHERNET.
const ETHERNET: u16 = 1;
/// Every frame's UDP port.
const PORT: u16 = 26_477;
const TTL: u8 = 16;

impl Line {
    /// Where its packets come from (an address for documentation) and where they go (a group for private use).
    fn addresses(self) -> (Ipv4Addr, Ipv4Addr) {
        match self {
            Line::A => (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(239, 192, 54, 1)),
            Line::B => (Ipv4Addr::new(192, 0, 2, 2), Ipv4Addr::new(239, 192, 54, 2)),
        }
    }

    fn interface(self) -> u32 {
        match self {
            Line::A => 0,
            Line::B => 1,
        }
    }
}

/// A packet that waits until nothing earlier can come. Ordered by time, then by how they came.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    captured_ns: u64,
    nth: u64,
    interface: u32,
    frame: Vec<u8>,
}

/// A capture under construction.
pub(super) struct Capture<W> {
    out: W,
    format: Format,
    microseconds: bool,
    bytes: u64,
    packets: u64,
    /// As many as fit into the longest way of a packet.
    waiting: BinaryHeap<Reverse<Waiting>>,
    /// Frames that were written, to be used again.
    spare: Vec<Vec<u8>>,
}

impl<W: Write> Capture<W> {
    pub(super) fn new(out: W, format: Format, microseconds: bool, lines: usize) -> io::Result<Capture<W>> {
        let mut capture =
            Capture { out, format, microseconds, bytes: 0, packets: 0, waiting: BinaryHeap::new(), spare: Vec::new() };
        let mut head = Vec::new();
        match format {
            Format::Pcapng => {
                section(&mut head);
                for name in [b"A", b"B"].into_iter().take(lines) {
                    interface(&mut head, name, if microseconds { 6 } else { 9 });
                }
            }
            _ => {
                let magic: u32 = if microseconds { 0xA1B2_C3D4 } else { 0xA1B2_3C4D };
                head.extend_from_slice(&magic.to_le_bytes());
                head.extend_from_slice(&2u16.to_le_bytes());
                head.extend_from_slice(&4u16.to_le_bytes());
                // Two reserved words.
                head.extend_from_slice(&[0; 8]);
                head.extend_from_slice(&SNAP_LEN.to_le_bytes());
                head.extend_from_slice(&u32::from(ETHERNET).to_le_bytes());
            }
        }
        capture.write(&head)?;
        Ok(capture)
    }

    /// A packet that is captured at this time.
    pub(super) fn packet(&mut self, line: Line, captured_ns: u64, payload: &[u8]) -> io::Result<()> {
        let mut frame = self.spare.pop().unwrap_or_default();
        frame.clear();
        build(&mut frame, line, payload, self.packets as u16);
        self.packets += 1;
        let waiting = Waiting { captured_ns, nth: self.packets, interface: line.interface(), frame };
        self.waiting.push(Reverse(waiting));
        Ok(())
    }

    /// Writes what was captured before `sent_ns`: nothing that is sent from then on is captured earlier.
    pub(super) fn drain(&mut self, sent_ns: u64) -> io::Result<()> {
        while let Some(Reverse(first)) = self.waiting.peek()
            && first.captured_ns < sent_ns
        {
            let Some(Reverse(first)) = self.waiting.pop() else { break };
            self.record(&first)?;
            self.spare.push(first.frame);
        }
        Ok(())
    }

    /// Writes everything that waits. Returns how many bytes there are in all.
    pub(super) fn finish(mut self) -> io::Result<(u64, W)> {
        self.drain(u64::MAX)?;
        Ok((self.bytes, self.out))
    }

    fn record(&mut self, packet: &Waiting) -> io::Result<()> {
        let len = packet.frame.len() as u32;
        match self.format {
            Format::Pcapng => {
                let time = packet.captured_ns / if self.microseconds { 1_000 } else { 1 };
                let pad = (4 - packet.frame.len() % 4) % 4;
                let total = 32 + len + pad as u32;
                let mut head = [0u8; 28];
                let words = [6, total, packet.interface, (time >> 32) as u32, time as u32, len, len];
                for (place, word) in head.chunks_exact_mut(4).zip(words) {
                    place.copy_from_slice(&word.to_le_bytes());
                }
                self.write(&head)?;
                self.write(&packet.frame)?;
                self.write(&[0; 3][..pad])?;
                self.write(&total.to_le_bytes())
            }
            _ => {
                let (seconds, rest) = (packet.captured_ns / 1_000_000_000, packet.captured_ns % 1_000_000_000);
                let rest = rest / if self.microseconds { 1_000 } else { 1 };
                let mut head = [0u8; 16];
                for (place, word) in head.chunks_exact_mut(4).zip([seconds as u32, rest as u32, len, len]) {
                    place.copy_from_slice(&word.to_le_bytes());
                }
                self.write(&head)?;
                self.write(&packet.frame)
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.bytes += bytes.len() as u64;
        self.out.write_all(bytes)
    }
}

/// A section header block, of a section whose length is not said.
fn section(out: &mut Vec<u8>) {
    out.extend_from_slice(&0x0A0D_0D0Au32.to_le_bytes());
    out.extend_from_slice(&28u32.to_le_bytes());
    out.extend_from_slice(&0x1A2B_3C4Du32.to_le_bytes());
    out.extend_from_slice(&1u16.to_le_bytes());
    out.extend_from_slice(&0u16.to_le_bytes());
    out.extend_from_slice(&u64::MAX.to_le_bytes());
    out.extend_from_slice(&28u32.to_le_bytes());
}

/// An interface description block: Ethernet, a name of one letter, times in units of 10 to the power of `-digits` s.
fn interface(out: &mut Vec<u8>, name: &[u8; 1], digits: u8) {
    const LEN: u32 = 8 + 8 + 8 + 8 + 4 + 4;
    out.extend_from_slice(&1u32.to_le_bytes());
    out.extend_from_slice(&LEN.to_le_bytes());
    out.extend_from_slice(&ETHERNET.to_le_bytes());
    out.extend_from_slice(&0u16.to_le_bytes());
    out.extend_from_slice(&SNAP_LEN.to_le_bytes());
    // Options if_name and if_tsresol, each of one byte and padding, then their end.
    for (code, value) in [(2u16, name[0]), (9, digits)] {
        out.extend_from_slice(&code.to_le_bytes());
        out.extend_from_slice(&1u16.to_le_bytes());
        out.extend_from_slice(&[value, 0, 0, 0]);
    }
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&LEN.to_le_bytes());
}

/// An Ethernet frame with IPv4 and UDP around the payload, checksums and all.
fn build(frame: &mut Vec<u8>, line: Line, payload: &[u8], identification: u16) {
    let (from, to) = line.addresses();
    let [_, b, c, d] = to.octets();
    // RFC 1112: a group's low 23 bits behind 01-00-5E. The source is an address for local use.
    frame.extend_from_slice(&[0x01, 0x00, 0x5E, b & 0x7F, c, d]);
    frame.extend_from_slice(&[0x02, 0, 0, 0, 0, 0x0A + line.interface() as u8]);
    frame.extend_from_slice(&[0x08, 0x00]);

    let mut ip = [0u8; 20];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&((20 + 8 + payload.len()) as u16).to_be_bytes());
    ip[4..6].copy_from_slice(&identification.to_be_bytes());
    // Not to be fragmented.
    ip[6] = 0x40;
    ip[8] = TTL;
    ip[9] = 17;
    ip[12..16].copy_from_slice(&from.octets());
    ip[16..20].copy_from_slice(&to.octets());
    let checksum = checksum(sum(&ip));
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    frame.extend_from_slice(&ip);

    let len = ((8 + payload.len()) as u16).to_be_bytes();
    let mut udp = [0u8; 8];
    udp[0..2].copy_from_slice(&PORT.to_be_bytes());
    udp[2..4].copy_from_slice(&PORT.to_be_bytes());
    udp[4..6].copy_from_slice(&len);
    // The pseudo header: both addresses, the protocol, the length.
    let pseudo = sum(&ip[12..20]) + 17 + u32::from(u16::from_be_bytes(len));
    let checksum = match self::checksum(pseudo + sum(&udp) + sum(payload)) {
        // RFC 768: zero would mean that there is none.
        0 => 0xFFFF,
        checksum => checksum,
    };
    udp[6..8].copy_from_slice(&checksum.to_be_bytes());
    frame.extend_from_slice(&udp);
    frame.extend_from_slice(payload);
    debug_assert_eq!(frame.len(), HEADERS_LEN + payload.len());
}

/// The sum of the big-endian 16-bit words; an odd byte is the upper half of one.
fn sum(bytes: &[u8]) -> u32 {
    let words = bytes.chunks_exact(2);
    let odd = words.remainder().first().map_or(0, |byte| u32::from(*byte) << 8);
    words.map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum::<u32>() + odd
}

/// RFC 1071: the complement of the sum with its carries added in.
fn checksum(mut sum: u32) -> u16 {
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_the_standards_own_example() {
        // RFC 1071, section 3: 0001 f203 f4f5 f6f7 add up to ddf2.
        assert_eq!(checksum(sum(&[0x00, 0x01, 0xF2, 0x03, 0xF4, 0xF5, 0xF6, 0xF7])), !0xDDF2);
        assert_eq!(checksum(sum(&[0xFF])), 0x00FF);
    }
}
