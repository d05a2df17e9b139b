//! The frames of a pcap or pcapng file, in file order, with their times.
//!
//! All the forms that are about are read: pcap with microseconds and with nanoseconds, of either byte order, and the old
//! "modified" form; pcapng of either byte order, with several sections and several interfaces, each with its own link
//! type, resolution and time offset. Lengths are checked against a bound before anything is read by them.

use std::io::Read;

use pcap_parser::pcapng::{Block, EnhancedPacketBlock, InterfaceDescriptionBlock, OptionCode};
use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{
    PcapHeader, parse_block_be, parse_block_le, parse_pcap_frame, parse_pcap_frame_be, parse_pcap_frame_modified,
    parse_pcap_header,
};
use protocol::time::Nanos;

use super::window::{LONGEST, Window};
use crate::feed::FeedError;

/// What holds the frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Container {
    /// pcap, with times in microseconds.
    PcapMicros,
    /// pcap, with times in nanoseconds.
    PcapNanos,
    /// pcapng.
    PcapNg,
}

impl Container {
    /// How many bytes tell.
    pub const MAGIC_LEN: usize = 4;

    /// What a stream that begins with `head` is, if it is one of these.
    pub fn of(head: &[u8]) -> Option<Container> {
        match head.get(..Container::MAGIC_LEN)? {
            [0xA1, 0xB2, 0xC3, 0xD4] | [0xD4, 0xC3, 0xB2, 0xA1] | [0x34, 0xCD, 0xB2, 0xA1] => {
                Some(Container::PcapMicros)
            }
            [0xA1, 0xB2, 0x3C, 0x4D] | [0x4D, 0x3C, 0xB2, 0xA1] => Some(Container::PcapNanos),
            [0x0A, 0x0D, 0x0D, 0x0A] => Some(Container::PcapNg),
            _ => None,
        }
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Container::PcapMicros => "pcap (microseconds)",
            Container::PcapNanos => "pcap (nanoseconds)",
            Container::PcapNg => "pcapng",
        }
    }
}

/// One captured frame, borrowed until the next is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// Its number in the file, from 1.
    pub number: u64,
    /// Where its bytes begin, in the uncompressed stream.
    pub offset: u64,
    /// When it was captured, UTC; `None` where the capture does not say (a simple packet block, a time of zero, one that
    /// 64 bits of ns do not hold).
    pub time: Option<Nanos>,
    /// The kind of link, by its number in the registry of link types.
    pub link: u32,
    /// What was kept of it.
    pub bytes: &'a [u8],
}

/// Bytes of a pcap file's header.
const PCAP_HEADER_LEN: usize = 24;
/// Bytes before a frame in pcap, and in its "modified" form.
const PCAP_RECORD_LEN: usize = 16;
const MODIFIED_RECORD_LEN: usize = 24;
/// The smallest pcapng block: type, length, length again.
const SMALLEST_BLOCK: usize = 12;
/// Type of a section header, the same in both byte orders, and its byte-order mark.
const SECTION_HEADER: [u8; 4] = [0x0A, 0x0D, 0x0D, 0x0A];
const BYTE_ORDER_BIG: [u8; 4] = [0x1A, 0x2B, 0x3C, 0x4D];
const BYTE_ORDER_LITTLE: [u8; 4] = [0x4D, 0x3C, 0x2B, 0x1A];
/// Where a frame begins in an enhanced and in a simple packet block.
const ENHANCED_DATA_AT: usize = 28;
const SIMPLE_DATA_AT: usize = 12;
/// How many interfaces a section may have; captures have a handful.
const MAX_INTERFACES: usize = 1 << 16;

/// One interface of a pcapng section.
#[derive(Clone, Copy, Debug)]
struct Interface {
    link: u32,
    /// The most bytes it kept of a frame; 0 for all.
    snap_len: u32,
    /// Units a second.
    resolution: u128,
    offset_seconds: i64,
}

enum State {
    Pcap(PcapHeader),
    PcapNg { big_endian: bool, interfaces: Vec<Interface> },
}

/// The frames of one file.
pub struct Packets<R> {
    window: Window<R>,
    container: Container,
    state: State,
    number: u64,
    /// Bytes of the window that the packet handed out last still occupies.
    lent: usize,
}

/// A frame found in the window: how long its record is, and where in it the frame lies.
struct Found {
    record_len: usize,
    at: usize,
    len: usize,
    time: Option<Nanos>,
    link: u32,
}

impl<R: Read> Packets<R> {
    /// The frames of a stream of kind `container`.
    ///
    /// # Errors
    /// [`FeedError`], if even the file's header is not whole.
    pub fn new(mut window: Window<R>, container: Container) -> Result<Packets<R>, FeedError> {
        let state = match container {
            Container::PcapMicros | Container::PcapNanos => {
                if !window.fill(PCAP_HEADER_LEN) {
                    window.broken()?;
                    return Err(cut(&window, 0, PCAP_HEADER_LEN));
                }
                let header = match parse_pcap_header(&window.unread()[..PCAP_HEADER_LEN]) {
                    Ok((_, header)) => header,
                    Err(_) => return Err(damaged(&window, 0, "the header of the file cannot be read")),
                };
                window.consume(PCAP_HEADER_LEN);
                State::Pcap(header)
            }
            Container::PcapNg => State::PcapNg { big_endian: false, interfaces: Vec::new() },
        };
        Ok(Packets { window, container, state, number: 0, lent: 0 })
    }

    /// What kind of file it is.
    pub fn container(&self) -> Container {
        self.container
    }

    /// The stream's window: its path and place.
    pub fn window(&self) -> &Window<R> {
        &self.window
    }

    /// The next frame; `None` at the end.
    ///
    /// # Errors
    /// [`FeedError`]: the file is cut off inside a record, a record contradicts itself, or reading failed. Nothing can be
    /// found after it.
    pub fn next_packet(&mut self) -> Result<Option<Packet<'_>>, FeedError> {
        self.window.consume(std::mem::take(&mut self.lent));
        let found = loop {
            if !self.window.fill(1) {
                self.window.broken()?;
                return Ok(None);
            }
            let found = match &mut self.state {
                State::Pcap(header) => Some(pcap_record(&mut self.window, self.number + 1, header)?),
                State::PcapNg { big_endian, interfaces } => {
                    block(&mut self.window, self.number + 1, big_endian, interfaces)?
                }
            };
            if let Some(found) = found {
                break found;
            }
        };
        self.number += 1;
        self.lent = found.record_len;
        Ok(Some(Packet {
            number: self.number,
            offset: self.window.offset() + found.at as u64,
            time: found.time,
            link: found.link,
            bytes: &self.window.unread()[found.at..found.at + found.len],
        }))
    }
}

fn cut<R: Read>(window: &Window<R>, packet: u64, needed: usize) -> FeedError {
    FeedError::CaptureCut {
        path: window.path().to_owned(),
        offset: window.offset(),
        packet,
        needed: needed as u64,
        present: window.unread().len() as u64,
    }
}

fn damaged<R: Read>(window: &Window<R>, packet: u64, what: &'static str) -> FeedError {
    FeedError::CaptureDamaged { path: window.path().to_owned(), offset: window.offset(), packet, what }
}

/// Reads `needed` bytes of a record, or says that the file is cut off inside it.
fn need<R: Read>(window: &mut Window<R>, packet: u64, needed: usize) -> Result<(), FeedError> {
    if window.fill(needed) {
        return Ok(());
    }
    window.broken()?;
    Err(cut(window, packet, needed))
}

/// `units` of which `per_second` are a second, after `offset_seconds`; none for zero and what does not fit.
fn time(units: u64, per_second: u128, offset_seconds: i64) -> Option<Nanos> {
    let ns = i128::try_from(u128::from(units) * 1_000_000_000 / per_second).ok()?;
    let ns = ns + i128::from(offset_seconds) * 1_000_000_000;
    u64::try_from(ns).ok().filter(|ns| *ns != 0 && *ns != u64::MAX).map(Nanos)
}

fn pcap_record<R: Read>(window: &mut Window<R>, packet: u64, header: &PcapHeader) -> Result<Found, FeedError> {
    let header_len = if header.is_modified_format() { MODIFIED_RECORD_LEN } else { PCAP_RECORD_LEN };
    need(window, packet, header_len)?;
    let word: [u8; 4] = window.unread()[8..12].try_into().expect("4 bytes");
    let len = if header.is_bigendian() { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) } as usize;
    if len > LONGEST - header_len {
        return Err(damaged(window, packet, "a frame of more than 16 MiB is announced"));
    }
    need(window, packet, header_len + len)?;
    let record = &window.unread()[..header_len + len];
    let parsed = match (header.is_modified_format(), header.is_bigendian()) {
        (true, _) => parse_pcap_frame_modified(record),
        (false, true) => parse_pcap_frame_be(record),
        (false, false) => parse_pcap_frame(record),
    };
    let Ok((_, frame)) = parsed else { return Err(damaged(window, packet, "the record cannot be read")) };
    let scale = if header.is_nanosecond_precision() { 1 } else { 1000 };
    let ns = u64::from(frame.ts_sec) * 1_000_000_000 + u64::from(frame.ts_usec) * scale;
    Ok(Found {
        record_len: header_len + len,
        at: header_len,
        len,
        time: time(ns, 1_000_000_000, 0),
        // The upper half says how long a checksum each frame has, on some kinds of link.
        link: (header.network.0 as u32) & 0xFFFF,
    })
}

/// Takes the next block: a frame, or something else that is passed over.
fn block<R: Read>(
    window: &mut Window<R>,
    packet: u64,
    big_endian: &mut bool,
    interfaces: &mut Vec<Interface>,
) -> Result<Option<Found>, FeedError> {
    need(window, packet, SMALLEST_BLOCK)?;
    let head = &window.unread()[..SMALLEST_BLOCK];
    if head[..4] == SECTION_HEADER {
        *big_endian = match head[8..12].try_into().expect("4 bytes") {
            BYTE_ORDER_BIG => true,
            BYTE_ORDER_LITTLE => false,
            _ => return Err(damaged(window, packet, "a section has no byte-order mark")),
        };
    }
    let word: [u8; 4] = head[4..8].try_into().expect("4 bytes");
    let len = if *big_endian { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) } as usize;
    if len < SMALLEST_BLOCK || !len.is_multiple_of(4) || len > LONGEST {
        return Err(damaged(window, packet, "a block has an impossible length"));
    }
    need(window, packet, len)?;
    let bytes = &window.unread()[..len];
    let parsed = if *big_endian { parse_block_be(bytes) } else { parse_block_le(bytes) };
    let found = match parsed {
        Ok((_, Block::SectionHeader(_))) => {
            interfaces.clear();
            None
        }
        Ok((_, Block::InterfaceDescription(description))) => {
            match interface(&description, *big_endian) {
                Some(interface) if interfaces.len() < MAX_INTERFACES => interfaces.push(interface),
                _ => return Err(damaged(window, packet, "an interface cannot be understood")),
            }
            None
        }
        Ok((_, Block::EnhancedPacket(enhanced))) => match interfaces.get(enhanced.if_id as usize) {
            Some(interface) => Some(enhanced_packet(&enhanced, interface, len)),
            None => return Err(damaged(window, packet, "a frame names an interface that the section does not have")),
        },
        Ok((_, Block::SimplePacket(simple))) => match interfaces.first() {
            Some(interface) => {
                let kept = if interface.snap_len == 0 { usize::MAX } else { interface.snap_len as usize };
                let len = simple.packet_data().len().min(kept);
                Some(Found { record_len: bytes.len(), at: SIMPLE_DATA_AT, len, time: None, link: interface.link })
            }
            None => return Err(damaged(window, packet, "a frame comes before any interface")),
        },
        Ok((_, Block::Unknown(other))) if bytes[..4] == obsolete_packet(*big_endian) => {
            match obsolete(other.data, *big_endian, interfaces, len) {
                Some(found) => Some(found),
                None => return Err(damaged(window, packet, "an obsolete packet block contradicts itself")),
            }
        }
        // Statistics, names, secrets, and what is not known here.
        Ok(_) => None,
        Err(_) => return Err(damaged(window, packet, "a block contradicts itself")),
    };
    if found.is_none() {
        window.consume(len);
    }
    Ok(found)
}

/// Type of the block that frames had before there were enhanced packet blocks; old files have it.
const fn obsolete_packet(big_endian: bool) -> [u8; 4] {
    if big_endian { 2u32.to_be_bytes() } else { 2u32.to_le_bytes() }
}

/// The frame in an obsolete packet block: as the enhanced one, but for a 16-bit interface and a count of drops.
fn obsolete(data: &[u8], big_endian: bool, interfaces: &[Interface], record_len: usize) -> Option<Found> {
    let word = |at: usize| {
        let bytes: [u8; 4] = data.get(at..at + 4)?.try_into().ok()?;
        Some(if big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    };
    let first = data.first_chunk::<2>()?;
    let place = if big_endian { u16::from_be_bytes(*first) } else { u16::from_le_bytes(*first) };
    let interface = interfaces.get(usize::from(place))?;
    let units = u64::from(word(4)?) << 32 | u64::from(word(8)?);
    let len = word(12)? as usize;
    (len <= data.len().checked_sub(ENHANCED_DATA_AT - 8)?).then_some(Found {
        record_len,
        at: ENHANCED_DATA_AT,
        len,
        time: time(units, interface.resolution, interface.offset_seconds),
        link: interface.link,
    })
}

fn interface(description: &InterfaceDescriptionBlock<'_>, big_endian: bool) -> Option<Interface> {
    // Bit 7 chooses between powers of two and of ten (pcapng, if_tsresol).
    let exponent = u32::from(description.if_tsresol & 0x7F);
    let base: u128 = if description.if_tsresol & 0x80 == 0 { 10 } else { 2 };
    let offset = description.options.iter().find(|option| option.code == OptionCode::IfTsoffset);
    let offset_seconds = match offset.and_then(|option| option.value.first_chunk::<8>()) {
        Some(bytes) if big_endian => i64::from_be_bytes(*bytes),
        Some(bytes) => i64::from_le_bytes(*bytes),
        None => 0,
    };
    Some(Interface {
        link: description.linktype.0 as u32 & 0xFFFF,
        snap_len: description.snaplen,
        resolution: base.checked_pow(exponent)?,
        offset_seconds,
    })
}

fn enhanced_packet(enhanced: &EnhancedPacketBlock<'_>, interface: &Interface, record_len: usize) -> Found {
    let units = u64::from(enhanced.ts_high) << 32 | u64::from(enhanced.ts_low);
    Found {
        record_len,
        at: ENHANCED_DATA_AT,
        len: enhanced.packet_data().len(),
        time: time(units, interface.resolution, interface.offset_seconds),
        link: interface.link,
    }
}
