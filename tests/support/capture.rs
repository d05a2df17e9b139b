//! Packet captures made by hand: ITCH messages, MoldUDP64 datagrams, Ethernet frames, pcap and pcapng files.
//!
//! Byte by byte from the formats' specifications, and nothing of the project's own, so that what reads them is not
//! tested against itself.

use std::net::Ipv4Addr;

/// The A line of the tests' feed.
pub const LINE_A: (Ipv4Addr, u16) = (Ipv4Addr::new(233, 54, 12, 111), 26_477);
/// The B line.
pub const LINE_B: (Ipv4Addr, u16) = (Ipv4Addr::new(233, 49, 196, 111), 26_477);
/// The session of the tests' feed.
pub const SESSION: &[u8; 10] = b"000010059B";
/// Capture times begin here: 2023-08-22 09:30 in New York.
pub const OPEN_NS: u64 = 1_692_711_000_000_000_000;
/// The same as nanoseconds since midnight there.
pub const OPEN_OF_DAY_NS: u64 = 34_200_000_000_000;

/// An ITCH message: type, locate, tracking number 0, time since midnight, the rest.
pub fn itch(message_type: u8, locate: u16, time: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![message_type];
    bytes.extend(locate.to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(&time.to_be_bytes()[2..]);
    bytes.extend(body);
    bytes
}

/// A system event.
pub fn system_event(code: u8, time: u64) -> Vec<u8> {
    itch(b'S', 0, time, &[code])
}

/// An order: locate, reference, side, shares, symbol and price in 1/10,000.
pub fn add(locate: u16, time: u64, reference: u64, side: u8, shares: u32, price: u32) -> Vec<u8> {
    let mut body = reference.to_be_bytes().to_vec();
    body.push(side);
    body.extend(shares.to_be_bytes());
    body.extend(b"ACME    ");
    body.extend(price.to_be_bytes());
    itch(b'A', locate, time, &body)
}

/// A partial cancel.
pub fn cancel(locate: u16, time: u64, reference: u64, shares: u32) -> Vec<u8> {
    itch(b'X', locate, time, &[&reference.to_be_bytes()[..], &shares.to_be_bytes()].concat())
}

/// A deletion.
pub fn delete(locate: u16, time: u64, reference: u64) -> Vec<u8> {
    itch(b'D', locate, time, &reference.to_be_bytes())
}

/// A trading action: `T` trading, `H` halted.
pub fn trading_action(locate: u16, time: u64, state: u8) -> Vec<u8> {
    itch(b'H', locate, time, &[b"ACME    ", &[state, b' '][..], b"    "].concat())
}

/// Messages behind their lengths: a BinaryFILE.
pub fn binary_file(messages: &[Vec<u8>]) -> Vec<u8> {
    messages.iter().flat_map(|message| [&(message.len() as u16).to_be_bytes(), &message[..]].concat()).collect()
}

/// A MoldUDP64 datagram with messages.
pub fn mold(session: &[u8; 10], sequence: u64, messages: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = mold_header(session, sequence, messages.len() as u16);
    bytes.extend(binary_file(messages));
    bytes
}

/// A MoldUDP64 header: count 0 is a heartbeat, 0xFFFF the end of the session.
pub fn mold_header(session: &[u8; 10], sequence: u64, count: u16) -> Vec<u8> {
    [&session[..], &sequence.to_be_bytes(), &count.to_be_bytes()].concat()
}

/// An Ethernet frame with an IPv4 UDP datagram to `line`.
pub fn frame(line: (Ipv4Addr, u16), payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x01, 0x00, 0x5E, 0x36, 0x0C, 0x6F, 2, 2, 2, 2, 2, 2, 0x08, 0x00];
    bytes.extend([0x45, 0]);
    bytes.extend((28 + payload.len() as u16).to_be_bytes());
    bytes.extend([0, 0, 0x40, 0, 16, 17, 0, 0]);
    bytes.extend([10, 0, 0, 1]);
    bytes.extend(line.0.octets());
    bytes.extend(5_000u16.to_be_bytes());
    bytes.extend(line.1.to_be_bytes());
    bytes.extend((8 + payload.len() as u16).to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(payload);
    bytes
}

/// What a pcap file's numbers look like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PcapForm {
    /// Big-endian.
    pub big: bool,
    /// Nanoseconds, not microseconds.
    pub nanos: bool,
}

/// A frame and when it was captured, ns.
pub type Captured = (u64, Vec<u8>);

/// A pcap file of Ethernet frames.
pub fn pcap(form: PcapForm, frames: &[Captured]) -> Vec<u8> {
    let word = |value: u32| if form.big { value.to_be_bytes() } else { value.to_le_bytes() };
    let half = |value: u16| if form.big { value.to_be_bytes() } else { value.to_le_bytes() };
    let mut bytes = word(if form.nanos { 0xA1B2_3C4D } else { 0xA1B2_C3D4 }).to_vec();
    bytes.extend([half(2), half(4)].concat());
    bytes.extend([word(0), word(0), word(262_144), word(1)].concat());
    for (time, frame) in frames {
        let fraction = time % 1_000_000_000 / if form.nanos { 1 } else { 1_000 };
        let len = frame.len() as u32;
        bytes.extend([word((time / 1_000_000_000) as u32), word(fraction as u32), word(len), word(len)].concat());
        bytes.extend(frame);
    }
    bytes
}

/// The usual pcap file: little-endian, nanoseconds.
pub fn pcap_nanos(frames: &[Captured]) -> Vec<u8> {
    pcap(PcapForm { big: false, nanos: true }, frames)
}

/// One interface of a pcapng section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NgInterface {
    /// `if_tsresol`; `None` leaves the option out, which means microseconds.
    pub resolution: Option<u8>,
    /// `if_tsoffset`, seconds.
    pub offset: i64,
}

impl NgInterface {
    /// Microseconds, by default.
    pub const MICROS: NgInterface = NgInterface { resolution: None, offset: 0 };
    /// Nanoseconds.
    pub const NANOS: NgInterface = NgInterface { resolution: Some(9), offset: 0 };

    fn units(self, time: u64) -> u64 {
        let time = u128::from(time) - self.offset as u128 * 1_000_000_000;
        let exponent = u32::from(self.resolution.unwrap_or(6));
        let per_second = if exponent & 0x80 == 0 { 10u128.pow(exponent) } else { 1 << (exponent & 0x7F) };
        (time * per_second / 1_000_000_000) as u64
    }
}

/// A pcapng section of Ethernet frames, each with the place of its interface.
pub fn pcapng(big: bool, interfaces: &[NgInterface], frames: &[(usize, Captured)]) -> Vec<u8> {
    let word = |value: u32| if big { value.to_be_bytes() } else { value.to_le_bytes() };
    let half = |value: u16| if big { value.to_be_bytes() } else { value.to_le_bytes() };
    let double = |value: u64| if big { value.to_be_bytes() } else { value.to_le_bytes() };
    let block = |kind: u32, mut body: Vec<u8>| {
        body.resize(body.len().next_multiple_of(4), 0);
        let len = word(body.len() as u32 + 12);
        [&word(kind)[..], &len, &body, &len].concat()
    };
    let mut bytes = block(0x0A0D_0D0A, [&word(0x1A2B_3C4D)[..], &half(1), &half(0), &double(u64::MAX)].concat());
    for interface in interfaces {
        let mut body = [&half(1)[..], &half(0), &word(0)].concat();
        if let Some(resolution) = interface.resolution {
            body.extend([&half(9)[..], &half(1), &[resolution, 0, 0, 0]].concat());
        }
        if interface.offset != 0 {
            body.extend([&half(14)[..], &half(8), &double(interface.offset as u64)].concat());
        }
        body.extend([half(0), half(0)].concat());
        bytes.extend(block(1, body));
        // Statistics of an interface, which readers pass over.
        bytes.extend(block(5, [word(0), word(0), word(0)].concat()));
    }
    for (at, (time, frame)) in frames {
        let units = interfaces[*at].units(*time);
        let len = word(frame.len() as u32);
        let mut body = [&word(*at as u32)[..], &word((units >> 32) as u32), &word(units as u32), &len, &len].concat();
        body.extend(frame);
        bytes.extend(block(6, body));
    }
    bytes
}
