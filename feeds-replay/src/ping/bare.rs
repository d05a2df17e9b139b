//! The kernel's own sockets, as ends of a ping: what the lanes are to be compared with.
//!
//! A line goes as its 64 bytes, without a header, a check or a place in a ring; the sockets never wait, and are polled as
//! the lanes are. [`Bare`] is no lane to publish over.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};

use protocol::line::{LINE_LEN, Line, Stamp};
use protocol::record::Lane;
use protocol::run::{Carrier, LanePath, Run, RunSink};
use protocol::time::Nanos;
use transport::{LaneRx, LaneTx, RingWriter};
use zerocopy::IntoBytes;

/// Lines in one datagram, and in one look: what Ethernet takes.
const LINES: usize = 22;

/// A connected socket.
#[derive(Debug)]
pub(super) enum Bare {
    /// Datagrams.
    Udp(UdpSocket),
    /// A connection.
    Tcp(TcpStream),
}

/// The side that is there first.
#[derive(Debug)]
pub(super) enum Waiting {
    /// A socket that does not know its peer yet.
    Udp(UdpSocket),
    /// A listener.
    Tcp(TcpListener),
}

impl Waiting {
    pub(super) fn open(is_tcp: bool, at: Ipv4Addr) -> io::Result<(Waiting, SocketAddrV4)> {
        let any = SocketAddrV4::new(at, 0);
        let (waiting, at) = if is_tcp {
            let listener = TcpListener::bind(any)?;
            let at = listener.local_addr()?;
            (Waiting::Tcp(listener), at)
        } else {
            let socket = UdpSocket::bind(any)?;
            let at = socket.local_addr()?;
            (Waiting::Udp(socket), at)
        };
        Ok((waiting, v4(at)?))
    }

    /// Connects with the peer, which has called [`Bare::connect`] and is at `peer`.
    pub(super) fn meet(self, peer: SocketAddrV4) -> io::Result<Bare> {
        match self {
            Waiting::Udp(socket) => {
                socket.connect(peer)?;
                Bare::Udp(socket).ready()
            }
            Waiting::Tcp(listener) => Bare::Tcp(listener.accept()?.0).ready(),
        }
    }
}

fn v4(address: SocketAddr) -> io::Result<SocketAddrV4> {
    match address {
        SocketAddr::V4(address) => Ok(address),
        SocketAddr::V6(_) => Err(io::Error::other("bound to an IPv4 address, and found at an IPv6 one")),
    }
}

impl Bare {
    /// From `at` to the side that waits at `peer`; also where this side is.
    pub(super) fn connect(is_tcp: bool, at: Ipv4Addr, peer: SocketAddrV4) -> io::Result<(Bare, SocketAddrV4)> {
        if is_tcp {
            let stream = TcpStream::connect(peer)?;
            let at = v4(stream.local_addr()?)?;
            return Ok((Bare::Tcp(stream).ready()?, at));
        }
        let socket = UdpSocket::bind(SocketAddrV4::new(at, 0))?;
        socket.connect(peer)?;
        let at = v4(socket.local_addr()?)?;
        Ok((Bare::Udp(socket).ready()?, at))
    }

    fn ready(self) -> io::Result<Bare> {
        match &self {
            Bare::Udp(socket) => socket.set_nonblocking(true)?,
            Bare::Tcp(stream) => {
                // Nagle's algorithm would keep a line back until the one before was acknowledged.
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
            }
        }
        Ok(self)
    }

    fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let sent = match self {
                Bare::Udp(socket) => socket.send(bytes),
                Bare::Tcp(stream) => stream.write(bytes),
            };
            match sent {
                Ok(count) => bytes = &bytes[count..],
                // A full queue, with one ping under way: the peer is gone, or about to read.
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The sending half.
pub(super) struct BareTx {
    socket: Bare,
    cursor: Stamp,
}

/// The receiving half.
pub(super) struct BareRx {
    socket: Bare,
    lines: [Line; LINES],
    /// Bytes of `lines` that hold the beginning of what a connection has not brought in full.
    filled: usize,
}

impl Bare {
    /// Both halves; `ring` is what is sent.
    pub(super) fn split(self, ring: &RingWriter) -> io::Result<(BareTx, BareRx)> {
        let other = match &self {
            Bare::Udp(socket) => Bare::Udp(socket.try_clone()?),
            Bare::Tcp(stream) => Bare::Tcp(stream.try_clone()?),
        };
        let rx = BareRx { socket: other, lines: [Line::ZERO; LINES], filled: 0 };
        Ok((BareTx { socket: self, cursor: ring.head() }, rx))
    }
}

impl LaneTx for BareTx {
    fn flush(&mut self, ring: &RingWriter, _: Nanos) -> usize {
        let owed = (ring.head().0 - self.cursor.0) as usize;
        let (first, rest) = ring.lines(self.cursor, owed);
        for lines in first.chunks(LINES).chain(rest.chunks(LINES)) {
            // An error is a line that is not answered, and the ping says so.
            let _ = self.socket.send(lines.as_bytes());
        }
        self.cursor = ring.head();
        owed
    }

    fn heartbeat(&mut self, _: &RingWriter, _: Nanos, _: bool) {}
}

impl LaneRx for BareRx {
    fn poll<S: RunSink>(&mut self, _: Nanos, _: usize, sink: &mut S) -> usize {
        let space = &mut self.lines.as_mut_bytes()[self.filled..];
        let received = match &mut self.socket {
            Bare::Udp(socket) => socket.recv(space),
            Bare::Tcp(stream) => stream.read(space),
        };
        let Ok(count) = received else { return 0 };
        self.filled += count;
        let whole = self.filled / LINE_LEN;
        if whole == 0 {
            return 0;
        }
        let lines = &self.lines[..whole];
        sink.on_run(Run {
            path: LanePath::new(Lane::new(0), Carrier::Local),
            first: lines[0].stamp(),
            lines,
            publish_time: None,
        });
        let rest = self.filled % LINE_LEN;
        self.lines.as_mut_bytes().copy_within(whole * LINE_LEN..whole * LINE_LEN + rest, 0);
        self.filled = rest;
        whole
    }
}
