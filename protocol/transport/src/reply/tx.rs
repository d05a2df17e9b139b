//! The recovery server's end of the reply lane, over UDP.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, SocketAddrV4, UdpSocket};

use protocol::line::{LINE_LEN, Line, Stamp};
use protocol::packet::{HEADER_LEN, MAX_LINES, PacketHeader, decode};
use protocol::record::{ChannelId, Lane};
use protocol::time::Nanos;
use socket2::SockRef;
use zerocopy::IntoBytes;

use super::{ReplyError, ReplyPort};
use crate::udp::IP_UDP_LEN;

/// Asked for the kernel's queues. Requests of a thousand subscribers that lost the same packet fit.
const QUEUE: usize = 4 << 20;

/// Useless datagrams that one call of [`ReplyPort::receive`] goes through.
const USELESS: usize = 16;

/// What a [`ReplyTx`] has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReplyTxCounters {
    /// Datagrams received, whoever sent them.
    pub received: u64,
    /// Of these, no packet of one line for this channel and lane: refused at a glance.
    pub refused: u64,
    /// Packets that the kernel took.
    pub packets: u64,
    /// Lines in them.
    pub lines: u64,
    /// Packets that the kernel did not take: their lines are asked for again.
    pub packets_dropped: u64,
    /// System calls that failed for another reason than an empty or full queue.
    pub errors: u64,
}

/// One socket for the requests and the answers of all subscribers. Allocates nothing after [`ReplyTx::bind`].
pub struct ReplyTx {
    socket: UdpSocket,
    channel: ChannelId,
    lane: Lane,
    lines_per_packet: usize,
    /// The packet in the making: its header in the second half of the first line, so that the lines are aligned.
    packet: Box<[Line]>,
    inbox: Box<[Line; 3]>,
    counters: ReplyTxCounters,
}

impl ReplyTx {
    /// Listens on `listen` (port 0: any that is free) for the subscribers of `lane` of `channel`. `mtu` is the path's, in
    /// bytes with all headers: it decides how many lines a packet holds.
    ///
    /// # Errors
    /// [`ReplyError`].
    pub fn bind(listen: SocketAddrV4, mtu: u32, channel: ChannelId, lane: Lane) -> Result<ReplyTx, ReplyError> {
        let lines_per_packet = ((mtu as usize).saturating_sub(IP_UDP_LEN + HEADER_LEN) / LINE_LEN).min(MAX_LINES);
        if lines_per_packet == 0 {
            return Err(ReplyError::Mtu { mtu, least: (IP_UDP_LEN + HEADER_LEN + LINE_LEN) as u32 });
        }
        let failed = |what| move |source| ReplyError::Listen { what, address: listen, source };
        let socket = UdpSocket::bind(listen).map_err(failed("listen"))?;
        socket.set_nonblocking(true).map_err(failed("make its socket non-blocking"))?;
        let options = SockRef::from(&socket);
        // The kernel gives what net.core.rmem_max and wmem_max allow; less is no error.
        options.set_recv_buffer_size(QUEUE).map_err(failed("set the receive buffer"))?;
        options.set_send_buffer_size(QUEUE).map_err(failed("set the send buffer"))?;
        Ok(ReplyTx {
            socket,
            channel,
            lane,
            lines_per_packet,
            packet: vec![Line::ZERO; 1 + MAX_LINES].into_boxed_slice(),
            inbox: Box::new([Line::ZERO; 3]),
            counters: ReplyTxCounters::default(),
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The system's.
    pub fn local_address(&self) -> io::Result<SocketAddrV4> {
        match self.socket.local_addr()? {
            SocketAddr::V4(address) => Ok(address),
            SocketAddr::V6(address) => unreachable!("bound to an IPv4 address, not to {address}"),
        }
    }

    /// What it has done so far.
    pub fn counters(&self) -> &ReplyTxCounters {
        &self.counters
    }

    /// The most lines of one packet.
    pub fn lines_per_packet(&self) -> usize {
        self.lines_per_packet
    }
}

impl ReplyPort for ReplyTx {
    type Address = SocketAddrV4;

    fn receive(&mut self) -> Option<(SocketAddrV4, Line)> {
        // A bounded number of useless ones: a flood of them must not keep the caller here.
        for _ in 0..USELESS {
            // A request fills one line behind its header; what is longer than that shows by the length.
            let buffer = &mut self.inbox.as_mut_bytes()[LINE_LEN - HEADER_LEN..];
            match self.socket.recv_from(buffer) {
                Ok((len, from)) => {
                    self.counters.received += 1;
                    let packet = decode(&buffer[..len], self.channel).ok();
                    let line = packet.filter(|packet| packet.header.lane == self.lane && packet.lines.len() == 1);
                    if let (Some(packet), SocketAddr::V4(from)) = (line, from) {
                        return Some((from, packet.lines[0]));
                    }
                    self.counters.refused += 1;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                // A subscriber that is gone: an earlier answer came back as refused. The next datagram may be fine.
                Err(_) => self.counters.errors += 1,
            }
        }
        None
    }

    fn room(&mut self) -> &mut [Line] {
        &mut self.packet[1..][..self.lines_per_packet]
    }

    /// # Panics
    /// If `count` is more than a packet holds.
    fn send(&mut self, to: SocketAddrV4, next: Stamp, count: usize, now: Nanos) -> bool {
        assert!(count <= self.lines_per_packet, "{count} lines in a packet of {}", self.lines_per_packet);
        let header = PacketHeader::new(self.channel, self.lane, next, now, false);
        self.packet[0].as_mut_bytes()[LINE_LEN - HEADER_LEN..].copy_from_slice(header.as_bytes());
        let bytes = &self.packet.as_bytes()[LINE_LEN - HEADER_LEN..][..HEADER_LEN + count * LINE_LEN];
        match self.socket.send_to(bytes, to) {
            Ok(_) => {
                self.counters.packets += 1;
                self.counters.lines += count as u64;
                return true;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => self.counters.errors += 1,
        }
        self.counters.packets_dropped += 1;
        false
    }

    fn refused(&self) -> u64 {
        self.counters.refused
    }
}
