//! A subscriber's end of the reply lane, over UDP.

use std::io;
use std::net::SocketAddrV4;

use protocol::line::{LINE_LEN, Line};
use protocol::packet::{HEADER_LEN, PacketHeader};
use protocol::record::{ChannelId, Lane};
use protocol::run::RunSink;
use protocol::time::Nanos;
use socket2::{Domain, Protocol, Socket, Type};
use zerocopy::IntoBytes;

use super::{ReplyError, ReplyLane};
use crate::lane::LaneRx;
use crate::udp::{BufferSize, UdpRx, UdpRxCounters};

/// A connected socket: requests go out on it, answers come in. Allocates nothing after [`ReplyRx::connect`].
pub struct ReplyRx {
    rx: UdpRx,
    channel: ChannelId,
    lane: Lane,
    refused: u64,
}

impl ReplyRx {
    /// A socket for the recovery server at `server`, which answers for `lane` of `channel`. `receive_buffer` is asked for the
    /// kernel's queue, in bytes before its doubling: no more may be asked of the server at one time than it holds.
    ///
    /// # Errors
    /// [`ReplyError::Connect`].
    pub fn connect(
        server: SocketAddrV4,
        (channel, lane): (ChannelId, Lane),
        receive_buffer: usize,
    ) -> Result<ReplyRx, ReplyError> {
        let step = |what, result: io::Result<()>| {
            result.map_err(|source| ReplyError::Connect { what, address: server, source })
        };
        let failed = |what| move |source| ReplyError::Connect { what, address: server, source };
        let socket =
            Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).map_err(failed("open a UDP socket"))?;
        step("make the socket non-blocking", socket.set_nonblocking(true))?;
        step("set the receive buffer", socket.set_recv_buffer_size(receive_buffer))?;
        let granted = socket.recv_buffer_size().map_err(failed("read the receive buffer's size"))?;
        // Connected, the kernel drops what others send, and gives the socket a port of its own.
        step("connect the socket", socket.connect(&server.into()))?;
        let buffer = BufferSize { requested: receive_buffer, granted: granted / 2 };
        let rx = UdpRx::over(socket, channel, buffer).map_err(|source| ReplyError::Connect {
            what: "ask for the kernel's drop counter",
            address: server,
            source,
        })?;
        Ok(ReplyRx { rx, channel, lane, refused: 0 })
    }

    /// What it has received so far.
    pub fn counters(&self) -> &UdpRxCounters {
        self.rx.counters()
    }

    /// Requests that the kernel did not take.
    pub fn requests_refused(&self) -> u64 {
        self.refused
    }

    /// The kernel's receive queue.
    pub fn receive_buffer(&self) -> BufferSize {
        self.rx.receive_buffer()
    }
}

impl LaneRx for ReplyRx {
    fn poll<S: RunSink>(&mut self, now: Nanos, limit: usize, sink: &mut S) -> usize {
        self.rx.poll(now, limit, sink)
    }
}

impl ReplyLane for ReplyRx {
    fn request(&mut self, request: &Line, now: Nanos) -> bool {
        let header = PacketHeader::new(self.channel, self.lane, request.stamp().plus(1), now, false);
        let mut packet = [0; HEADER_LEN + LINE_LEN];
        packet[..HEADER_LEN].copy_from_slice(header.as_bytes());
        packet[HEADER_LEN..].copy_from_slice(request.as_bytes());
        // A server that is gone shows as a refused connection: the request is lost, and so would be the answer.
        let sent = self.rx.socket().send(&packet).is_ok_and(|len| len == packet.len());
        self.refused += u64::from(!sent);
        sent
    }
}
