//! From a captured frame to the payload of its UDP datagram.
//!
//! IP's and UDP's own lengths rule: Ethernet padding behind a short datagram, and the trailers that capture devices append,
//! are no payload. Where the capture kept less of the frame than there was, the payload is what was kept, and marked.

use std::net::{IpAddr, SocketAddr};

use etherparse::{EtherType, LaxNetSlice, LaxSlicedPacket, TransportSlice, UdpSlice};

/// The payload of one UDP datagram, and where it went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagram<'a> {
    /// Who sent it.
    pub source: SocketAddr,
    /// Whom to: for a feed, its multicast group and port.
    pub destination: SocketAddr,
    /// What UDP carried; shorter than that where `is_cut`.
    pub payload: &'a [u8],
    /// The capture kept less of it than the lengths in its headers say.
    pub is_cut: bool,
}

/// Why a frame holds no datagram that is of use here. Ordinary outcomes, counted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Skipped {
    /// A kind of link that is not known here: its number in the registry of link types.
    UnknownLink(u32),
    /// Not IP: ARP, LLDP and the like.
    NotIp,
    /// IP, and not UDP.
    NotUdp,
    /// A fragment of a datagram.
    Fragment,
    /// The frame ends inside its headers, or they contradict themselves.
    Damaged,
}

// Numbers of the registry of link types, https://www.tcpdump.org/linktypes.html.
const LINK_NULL: u32 = 0;
const LINK_ETHERNET: u32 = 1;
const LINK_RAW_BSD: u32 = 12;
const LINK_RAW_OPENBSD: u32 = 14;
const LINK_RAW: u32 = 101;
const LINK_LOOP: u32 = 108;
const LINK_LINUX_SLL: u32 = 113;
const LINK_IPV4: u32 = 228;
const LINK_IPV6: u32 = 229;
const LINK_LINUX_SLL2: u32 = 276;

/// The header of a Linux "cooked" frame: its length, and where its protocol number stands.
const SLL: (usize, usize) = (16, 14);
/// The same of the second version.
const SLL2: (usize, usize) = (20, 0);
/// Bytes of address family before the packet on BSD loopback devices.
const FAMILY_LEN: usize = 4;

/// The datagram in `frame`, as captured on a link of kind `link`.
///
/// # Errors
/// [`Skipped`]: what the frame holds instead. Any bytes give one or the other.
pub fn datagram(link: u32, frame: &[u8]) -> Result<Datagram<'_>, Skipped> {
    let sliced = match link {
        LINK_ETHERNET => LaxSlicedPacket::from_ethernet(frame).map_err(|_| Skipped::Damaged)?,
        LINK_RAW | LINK_RAW_BSD | LINK_RAW_OPENBSD | LINK_IPV4 | LINK_IPV6 => of_ip(frame)?,
        LINK_NULL | LINK_LOOP => of_ip(frame.get(FAMILY_LEN..).ok_or(Skipped::Damaged)?)?,
        LINK_LINUX_SLL => cooked(frame, SLL)?,
        LINK_LINUX_SLL2 => cooked(frame, SLL2)?,
        unknown => return Err(Skipped::UnknownLink(unknown)),
    };
    let (source, destination, payload) = match &sliced.net {
        None if sliced.stop_err.is_some() => return Err(Skipped::Damaged),
        None | Some(LaxNetSlice::Arp(_)) => return Err(Skipped::NotIp),
        Some(LaxNetSlice::Ipv4(ip)) => {
            let header = ip.header();
            (IpAddr::V4(header.source_addr()), IpAddr::V4(header.destination_addr()), ip.payload())
        }
        Some(LaxNetSlice::Ipv6(ip)) => {
            let header = ip.header();
            (IpAddr::V6(header.source_addr()), IpAddr::V6(header.destination_addr()), ip.payload())
        }
    };
    if payload.fragmented {
        return Err(Skipped::Fragment);
    }
    match &sliced.transport {
        Some(TransportSlice::Udp(udp)) => Ok(of_udp(source, destination, udp)),
        None if sliced.stop_err.is_some() => Err(Skipped::Damaged),
        _ => Err(Skipped::NotUdp),
    }
}

fn of_ip(packet: &[u8]) -> Result<LaxSlicedPacket<'_>, Skipped> {
    LaxSlicedPacket::from_ip(packet).map_err(|_| Skipped::Damaged)
}

fn cooked(frame: &[u8], (header_len, protocol_at): (usize, usize)) -> Result<LaxSlicedPacket<'_>, Skipped> {
    let (header, packet) = frame.split_at_checked(header_len).ok_or(Skipped::Damaged)?;
    let protocol = u16::from_be_bytes([header[protocol_at], header[protocol_at + 1]]);
    Ok(LaxSlicedPacket::from_ether_type(EtherType(protocol), packet))
}

fn of_udp<'a>(source: IpAddr, destination: IpAddr, udp: &UdpSlice<'a>) -> Datagram<'a> {
    Datagram {
        source: SocketAddr::new(source, udp.source_port()),
        destination: SocketAddr::new(destination, udp.destination_port()),
        payload: udp.payload(),
        is_cut: usize::from(udp.length()) > udp.slice().len(),
    }
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;

    use super::*;

    const PAYLOAD: &[u8] = b"five!";

    /// An Ethernet frame with a datagram of [`PAYLOAD`].
    fn ethernet(vlan: bool) -> Vec<u8> {
        let mut frame = Vec::new();
        let builder = PacketBuilder::ethernet2([2; 6], [1, 0, 0x5E, 1, 2, 3]);
        if vlan {
            let builder = builder.single_vlan(etherparse::VlanId::try_new(141).expect("12 bits"));
            let builder = builder.ipv4([10, 0, 0, 1], [233, 54, 12, 111], 8).udp(5000, 26477);
            builder.write(&mut frame, PAYLOAD).expect("into memory");
        } else {
            let builder = builder.ipv4([10, 0, 0, 1], [233, 54, 12, 111], 8).udp(5000, 26477);
            builder.write(&mut frame, PAYLOAD).expect("into memory");
        }
        frame
    }

    fn check(link: u32, frame: &[u8]) {
        let got = datagram(link, frame).unwrap_or_else(|skipped| panic!("link {link}: {skipped:?}"));
        assert_eq!((got.payload, got.is_cut), (PAYLOAD, false), "link {link}");
        assert_eq!(got.destination, "233.54.12.111:26477".parse().expect("an address"));
        assert_eq!(got.source, "10.0.0.1:5000".parse().expect("an address"));
    }

    #[test]
    fn ethernet_padding_and_capture_trailers_are_no_payload() {
        let mut frame = ethernet(false);
        check(1, &frame);
        // The shortest Ethernet frame is 60 bytes without its checksum; this one has 47.
        assert_eq!(frame.len(), 47);
        frame.resize(60, 0);
        check(1, &frame);
        frame.extend(b"\xDE\xAD\xBE\xEF\x00\x01");
        check(1, &frame);
    }

    #[test]
    fn every_kind_of_link_leads_to_the_same_datagram() {
        let ip = ethernet(false)[14..].to_vec();
        check(1, &ethernet(true));
        for link in [12, 14, 101, 228] {
            check(link, &ip);
        }
        check(0, &[&[2, 0, 0, 0][..], &ip].concat());
        check(108, &[&[0, 0, 0, 2][..], &ip].concat());
        check(113, &[&[0; 14][..], &[8, 0], &ip].concat());
        check(276, &[&[8, 0][..], &[0; 18], &ip].concat());
        assert_eq!(datagram(999, &ip), Err(Skipped::UnknownLink(999)));
    }

    #[test]
    fn what_the_capture_cut_off_is_said() {
        let frame = ethernet(false);
        let got = datagram(1, &frame[..frame.len() - 2]).expect("its headers are whole");
        assert_eq!((got.payload, got.is_cut), (&PAYLOAD[..3], true));
    }

    #[test]
    fn what_is_no_datagram_says_what_it_is() {
        let mut frame = ethernet(false);
        frame[14 + 9] = 6;
        assert!(matches!(datagram(1, &frame), Err(Skipped::NotUdp | Skipped::Damaged)));
        let mut frame = ethernet(false);
        // More fragments follow.
        frame[14 + 6] = 0x20;
        assert_eq!(datagram(1, &frame), Err(Skipped::Fragment));
        let mut frame = ethernet(false);
        frame[12..14].copy_from_slice(&[0x88, 0xCC]);
        assert_eq!(datagram(1, &frame), Err(Skipped::NotIp));
        for len in 0..42 {
            assert!(datagram(1, &ethernet(false)[..len]).is_err(), "{len} bytes");
        }
    }
}
