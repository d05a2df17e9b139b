//! Sends what the ring holds as multicast datagrams.

use std::io;
use std::os::fd::AsRawFd;

use protocol::line::Stamp;
use protocol::packet::{HEADER_LEN, PacketHeader};
use protocol::time::Nanos;
use socket2::Socket;

use super::{BufferSize, UdpError, UdpOptions, set_option};
use crate::lane::LaneTx;
use crate::packets::{Cutter, Packet, Tally};
use crate::ring::RingWriter;

/// The most packets handed to the kernel in one system call.
const BATCH: usize = 16;

/// Asked for the kernel's send queue: 1,800 packets of 22 lines, more than a sixteenth of a ring of 2^19 lines. The
/// kernel gives what `net.core.wmem_max` allows.
const SEND_BUFFER: usize = 4 << 20;

/// Header, lines, and the lines behind the ring's wrap.
const PIECES: usize = 3;

/// What a [`UdpTx`] has done. Lines count where their packet counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UdpTxCounters {
    /// Packets with lines that the kernel took.
    pub packets: u64,
    /// Lines that the kernel took.
    pub lines: u64,
    /// Heartbeats that the kernel took.
    pub heartbeats: u64,
    /// Packets, heartbeats included, that the kernel did not take. Each is a gap for every subscriber of this lane.
    pub packets_dropped: u64,
    /// Lines in those packets.
    pub lines_dropped: u64,
    /// Lines never sent because the ring had overwritten them before this lane was flushed.
    pub lines_skipped: u64,
    /// System calls refused because the send queue was full (EAGAIN).
    pub would_block: u64,
    /// System calls refused because the device's queue was full (ENOBUFS).
    pub no_buffers: u64,
    /// System calls that took some of their packets and not the rest.
    pub short_sends: u64,
    /// System calls refused for any other reason; the last one is [`UdpTx::last_error`].
    pub errors: u64,
}

/// The sending half of a UDP multicast lane.
///
/// Keeps a cursor over the publisher's ring and sends from the ring's own memory. Allocates nothing after
/// [`UdpTx::open`].
pub struct UdpTx {
    socket: Socket,
    cutter: Cutter,
    lines_per_packet: usize,
    send_buffer: BufferSize,
    counters: UdpTxCounters,
    last_error: i32,
    headers: [PacketHeader; BATCH],
    line_counts: [usize; BATCH],
    pieces: [[libc::iovec; PIECES]; BATCH],
    messages: [libc::mmsghdr; BATCH],
}

// SAFETY: what keeps it from being Send are the pointers in `pieces` and `messages`. They are written anew before each
// system call, in `flush`, `heartbeat` and `send`, and followed by nobody after it.
unsafe impl Send for UdpTx {}

impl UdpTx {
    /// A lane that sends the lines of `ring` from its present head on.
    ///
    /// # Errors
    /// [`UdpError`]: the options do not fit this host, or the system refuses the socket.
    pub fn open(options: &UdpOptions, ring: &RingWriter) -> Result<UdpTx, UdpError> {
        let local = options.resolve()?;
        let socket = options.socket()?;
        let step = |what, result: io::Result<()>| result.map_err(|source| options.failed(what, source));
        step("choose the interface to send from", socket.set_multicast_if_v4(&local.address))?;
        step("set the multicast TTL", socket.set_multicast_ttl_v4(options.ttl.into()))?;
        // Subscribers on this very host are among the receivers.
        step("loop multicast back to this host", socket.set_multicast_loop_v4(true))?;
        step("forbid fragments", set_option(&socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO))?;
        step("set the send buffer", socket.set_send_buffer_size(SEND_BUFFER))?;
        let granted =
            socket.send_buffer_size().map_err(|source| options.failed("read the send buffer's size", source))?;
        // Connected, the kernel finds the route once and not for each packet.
        step("connect the socket", socket.connect(&options.destination().into()))?;

        let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: mmsghdr is a plain C structure of numbers and pointers, for which all zeros is a value.
        let message: libc::mmsghdr = unsafe { std::mem::zeroed() };
        Ok(UdpTx {
            socket,
            cutter: Cutter::new(ring),
            lines_per_packet: options.lines_per_packet(),
            send_buffer: BufferSize { requested: SEND_BUFFER, granted: granted / 2 },
            counters: UdpTxCounters::default(),
            last_error: 0,
            headers: [PacketHeader::new(ring.channel(), ring.lane(), ring.head(), Nanos::ZERO, false); BATCH],
            line_counts: [0; BATCH],
            pieces: [[nothing; PIECES]; BATCH],
            messages: [message; BATCH],
        })
    }

    /// What it has done so far.
    pub fn counters(&self) -> &UdpTxCounters {
        &self.counters
    }

    /// The most lines it puts into one packet.
    pub fn lines_per_packet(&self) -> usize {
        self.lines_per_packet
    }

    /// The kernel's send queue.
    pub fn send_buffer(&self) -> BufferSize {
        self.send_buffer
    }

    /// The stamp of the next line to send.
    pub fn cursor(&self) -> Stamp {
        self.cutter.cursor()
    }

    /// The cause of the last refusal that [`UdpTxCounters::errors`] counts.
    pub fn last_error(&self) -> Option<io::Error> {
        (self.last_error != 0).then(|| io::Error::from_raw_os_error(self.last_error))
    }

    /// Makes packet `place` of the batch.
    fn prepare(&mut self, place: usize, packet: Packet<'_>) {
        self.headers[place] = packet.header;
        self.line_counts[place] = packet.line_count();
        // The first piece is the header: `send` fills it in.
        let mut used = 1;
        for lines in [packet.lines.0, packet.lines.1].into_iter().filter(|lines| !lines.is_empty()) {
            self.pieces[place][used] =
                libc::iovec { iov_base: lines.as_ptr().cast_mut().cast(), iov_len: size_of_val(lines) };
            used += 1;
        }
        self.messages[place].msg_hdr.msg_iovlen = used as _;
    }

    /// Sends the first `count` packets of the batch; returns how many lines the kernel took.
    ///
    /// # Safety
    /// The lines last given to `prepare` for each of these packets are still there, and nobody writes to them.
    unsafe fn send(&mut self, count: usize) -> usize {
        let headers = self.headers.as_ptr();
        let pieces = self.pieces.as_mut_ptr();
        let messages = self.messages.as_mut_ptr();
        for place in 0..count {
            // SAFETY: `place` is below `count`, which is at most BATCH, the length of all three arrays; the pointers come
            // from them just above, and nothing else touches them before the system call has returned.
            unsafe {
                let first = pieces.add(place).cast::<libc::iovec>();
                (*first).iov_base = headers.add(place).cast_mut().cast();
                (*first).iov_len = HEADER_LEN;
                (*messages.add(place)).msg_hdr.msg_iov = first;
            }
        }
        // SAFETY: `messages` holds `count` headers, each pointing to its pieces (above), each piece to a header of this
        // lane or to lines that the caller vouches for. sendmmsg reads them and writes msg_len only.
        let taken = unsafe {
            libc::sendmmsg(
                self.socket.as_raw_fd(),
                messages,
                count as libc::c_uint,
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            )
        };
        let taken = usize::try_from(taken).unwrap_or_else(|_| {
            match io::Error::last_os_error().raw_os_error() {
                Some(libc::EAGAIN) => self.counters.would_block += 1,
                Some(libc::ENOBUFS) => self.counters.no_buffers += 1,
                error => {
                    self.counters.errors += 1;
                    self.last_error = error.unwrap_or(0);
                }
            }
            0
        });
        if (1..count).contains(&taken) {
            self.counters.short_sends += 1;
        }
        let tally = Tally::new(&self.line_counts[..count], taken);
        self.counters.packets += tally.packets;
        self.counters.lines += tally.lines;
        self.counters.heartbeats += tally.heartbeats;
        self.counters.packets_dropped += tally.packets_dropped;
        self.counters.lines_dropped += tally.lines_dropped;
        tally.lines as usize
    }
}

impl LaneTx for UdpTx {
    fn flush(&mut self, ring: &RingWriter, now: Nanos) -> usize {
        if self.cutter.is_at_head(ring) {
            return 0;
        }
        self.counters.lines_skipped += self.cutter.catch_up(ring);
        let mut sent = 0;
        loop {
            let mut packets = 0;
            while packets < BATCH
                && let Some(packet) = self.cutter.cut(ring, self.lines_per_packet, now)
            {
                self.prepare(packets, packet);
                packets += 1;
            }
            if packets == 0 {
                return sent;
            }
            // SAFETY: the lines are the ring's, borrowed by this call, and its writer is not written to meanwhile.
            sent += unsafe { self.send(packets) };
        }
    }

    /// Flushes first: a heartbeat that named lines not yet sent would make each subscriber take them for lost.
    fn heartbeat(&mut self, ring: &RingWriter, now: Nanos, ended: bool) {
        self.flush(ring, now);
        self.prepare(0, self.cutter.heartbeat(ring, now, ended));
        // SAFETY: the packet has no lines.
        unsafe { self.send(1) };
    }

    fn lines_unsent(&self) -> u64 {
        self.counters.lines_dropped + self.counters.lines_skipped
    }
}
