//! One datagram over loopback multicast, sent and received by bare system calls.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};

use protocol::line::LINE_LEN;
use protocol::packet::HEADER_LEN;
use protocol::time::Nanos;
use socket2::{Domain, Protocol, Socket, Type};
use transport::clock::Clock;

use crate::handover::{Arrival, Receiver, Sender};

/// Bytes of a packet with one line: what the datagram lane sends for one line.
const LEN: usize = HEADER_LEN + LINE_LEN;

/// A busy-polled socket pair: `send` on one core, non-blocking `recv` on the other, of as many bytes as a packet with one
/// line has. Loopback, TTL 0.
///
/// # Errors
/// The system's, if a socket cannot be set up.
pub fn bare_udp(group: Ipv4Addr, port: u16) -> io::Result<(impl Sender, impl Receiver)> {
    let open = || Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP));
    let destination = SocketAddrV4::new(group, port);
    let receiver = open()?;
    receiver.set_reuse_address(true)?;
    receiver.set_nonblocking(true)?;
    receiver.bind(&destination.into())?;
    receiver.join_multicast_v4(&group, &Ipv4Addr::LOCALHOST)?;
    let sender = open()?;
    sender.set_multicast_if_v4(&Ipv4Addr::LOCALHOST)?;
    sender.set_multicast_ttl_v4(0)?;
    sender.set_multicast_loop_v4(true)?;
    sender.connect(&destination.into())?;
    Ok((UdpSender { socket: sender.into(), bytes: [0; LEN] }, UdpReceiver { socket: receiver.into(), bytes: [0; LEN] }))
}

struct UdpSender {
    socket: UdpSocket,
    bytes: [u8; LEN],
}

impl Sender for UdpSender {
    #[inline(always)]
    fn send(&mut self, clock: Clock) {
        self.bytes[..8].copy_from_slice(&clock.now().0.to_le_bytes());
        // What the kernel does not take shows as a lost item.
        let _ = self.socket.send(&self.bytes);
    }
}

struct UdpReceiver {
    socket: UdpSocket,
    bytes: [u8; LEN],
}

impl Receiver for UdpReceiver {
    #[inline(always)]
    fn poll(&mut self, clock: Clock) -> Option<Arrival> {
        let len = self.socket.recv(&mut self.bytes).ok()?;
        let seen = clock.now();
        assert_eq!(len, LEN, "nobody else sends to this group and port");
        let sent = u64::from_le_bytes(self.bytes[..8].try_into().expect("8 bytes"));
        Some(Arrival { sent: Nanos(sent), seen })
    }
}
