//! Receives multicast datagrams and hands up their lines where they lie.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use protocol::line::{LINE_LEN, Line};
use protocol::packet::{HEADER_LEN, MAX_LINES, Refused};
use protocol::record::ChannelId;
use protocol::run::{Carrier, RunSink};
use protocol::time::Nanos;
use socket2::{InterfaceIndexOrAddress, Socket};

use super::{BufferSize, UdpError, UdpOptions, set_option};
use crate::datagram::hand_up;
use crate::lane::LaneRx;

/// The most packets taken from the kernel in one system call.
const BATCH: usize = 32;

/// The longest packet: a header and 63 lines.
const PACKET_LEN: usize = HEADER_LEN + MAX_LINES * LINE_LEN;

/// Lines in a receive buffer: the header takes the second half of the first one, so that what follows is aligned.
const BUFFER_LINES: usize = 1 + MAX_LINES;

/// Where a packet begins in its buffer.
const PACKET_OFFSET: usize = LINE_LEN - HEADER_LEN;

const _: () = assert!(PACKET_OFFSET + PACKET_LEN == BUFFER_LINES * LINE_LEN);

/// Bytes for one control message with the kernel's drop count, a u32.
// SAFETY: CMSG_SPACE computes from its argument alone.
const CONTROL_LEN: usize = unsafe { libc::CMSG_SPACE(size_of::<u32>() as u32) } as usize;

/// What a [`UdpRx`] has seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UdpRxCounters {
    /// Packets with lines, handed up.
    pub packets: u64,
    /// Lines handed up.
    pub lines: u64,
    /// Packets without lines, handed up as positions.
    pub heartbeats: u64,
    /// Packets refused, by [`Refused::index`].
    pub refused: [u64; Refused::COUNT],
    /// Datagrams longer than any packet of ours, cut by the kernel and refused.
    pub truncated: u64,
    /// Datagrams that the kernel dropped for this socket, mostly because the receive queue was full. As of the last
    /// datagram received: drops after it show with the next one.
    pub kernel_drops: u64,
    /// System calls that brought something.
    pub receives: u64,
    /// System calls that failed for another reason than an empty queue; the last one is [`UdpRx::last_error`].
    pub errors: u64,
}

impl UdpRxCounters {
    /// All refused packets, whatever the reason, those cut by the kernel included.
    pub fn refused_total(&self) -> u64 {
        self.refused.iter().sum::<u64>() + self.truncated
    }
}

/// The receiving half of a UDP multicast lane.
///
/// Takes the packets of one channel, from whichever lane they say they are; those of other channels, and whatever else
/// arrives on group and port, change counters only. Allocates nothing after [`UdpRx::open`].
pub struct UdpRx {
    socket: Socket,
    channel: ChannelId,
    receive_buffer: BufferSize,
    slab: Slab,
    messages: Box<[libc::mmsghdr]>,
    /// How many messages of the slab are filled, and how many of those were dealt with.
    filled: usize,
    taken: usize,
    /// The kernel's drop count, modulo 2^32, as last seen.
    drops_seen: u32,
    counters: UdpRxCounters,
    last_error: i32,
}

// SAFETY: what keeps it from being Send are the pointers in `slab` and `messages`. They point into the slab's own memory,
// which this value alone owns and which does not move with it.
unsafe impl Send for UdpRx {}

impl UdpRx {
    /// Joins the group and listens for packets of `channel`.
    ///
    /// Any number of receivers on one host may share group and port; each gets every packet.
    ///
    /// # Errors
    /// [`UdpError`]: the options do not fit this host, another program holds the port alone, or the system refuses.
    pub fn open(options: &UdpOptions, channel: ChannelId) -> Result<UdpRx, UdpError> {
        let local = options.resolve()?;
        let socket = options.socket()?;
        let step = |what, result: io::Result<()>| result.map_err(|source| options.failed(what, source));
        step("share the port with other subscribers", socket.set_reuse_address(true))?;
        step("set the receive buffer", socket.set_recv_buffer_size(options.receive_buffer))?;
        let granted =
            socket.recv_buffer_size().map_err(|source| options.failed("read the receive buffer's size", source))?;
        // By default Linux hands a socket the packets of every group and interface that any program of this host joined.
        step("restrict the socket to its own group", socket.set_multicast_all_v4(false))?;
        // Bound to the group and not to a local address: unicast to the port is not for this socket.
        step("bind", socket.bind(&options.destination().into()))?;
        step(
            "join the multicast group",
            socket.join_multicast_v4_n(&options.group, &InterfaceIndexOrAddress::Index(local.index)),
        )?;

        let buffer = BufferSize { requested: options.receive_buffer, granted: granted / 2 };
        UdpRx::over(socket, channel, buffer)
            .map_err(|source| options.failed("ask for the kernel's drop counter", source))
    }

    /// Over a socket that is bound or connected, and never waits. It is for packets of `channel` alone.
    ///
    /// # Errors
    /// The system's, if it does not count drops.
    pub(crate) fn over(socket: Socket, channel: ChannelId, receive_buffer: BufferSize) -> io::Result<UdpRx> {
        set_option(&socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)?;
        let slab = Slab::new();
        let messages = (0..BATCH).map(|place| slab.message(place)).collect();
        Ok(UdpRx {
            socket,
            channel,
            receive_buffer,
            slab,
            messages,
            filled: 0,
            taken: 0,
            drops_seen: 0,
            counters: UdpRxCounters::default(),
            last_error: 0,
        })
    }

    /// The socket, to send on.
    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// What it has seen so far.
    pub fn counters(&self) -> &UdpRxCounters {
        &self.counters
    }

    /// The kernel's receive queue: [`BufferSize::is_short`] when the kernel gave less than asked.
    pub fn receive_buffer(&self) -> BufferSize {
        self.receive_buffer
    }

    /// The cause of the last failure that [`UdpRxCounters::errors`] counts.
    pub fn last_error(&self) -> Option<io::Error> {
        (self.last_error != 0).then(|| io::Error::from_raw_os_error(self.last_error))
    }

    /// Fills the slab from the kernel's queue. The packets before must all have been dealt with.
    fn receive(&mut self) {
        debug_assert!(self.taken == self.filled, "{} of {} packets dealt with", self.taken, self.filled);
        (self.taken, self.filled) = (0, 0);
        // SAFETY: each message points to its own buffer, iovec and control bytes in the slab (`Slab::message`), with their
        // true lengths (`account` restores the one that the kernel changes); no reference into the slab is alive, because
        // those made in `poll` end there.
        let received = unsafe {
            libc::recvmmsg(
                self.socket.as_raw_fd(),
                self.messages.as_mut_ptr(),
                BATCH as libc::c_uint,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        match usize::try_from(received) {
            Ok(received) => {
                self.filled = received;
                self.counters.receives += 1;
            }
            Err(_) => match io::Error::last_os_error().raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR) => {}
                error => {
                    self.counters.errors += 1;
                    self.last_error = error.unwrap_or(0);
                }
            },
        }
    }

    /// Reads the kernel's drop count from message `place`, makes the message ready for the next receive, and returns the
    /// length of its packet, or None if the kernel cut it.
    fn account(&mut self, place: usize) -> Option<usize> {
        let message = &mut self.messages[place];
        // There is a control message only once something was dropped.
        if message.msg_hdr.msg_controllen > 0
            && let Some(drops) = drop_count(&message.msg_hdr)
        {
            self.counters.kernel_drops += u64::from(drops.wrapping_sub(self.drops_seen));
            self.drops_seen = drops;
        }
        message.msg_hdr.msg_controllen = CONTROL_LEN as _;
        if message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
            self.counters.truncated += 1;
            return None;
        }
        Some(message.msg_len as usize)
    }
}

impl LaneRx for UdpRx {
    fn poll<S: RunSink>(&mut self, _now: Nanos, limit: usize, sink: &mut S) -> usize {
        let mut lines = 0;
        // Each packet counts at least one, so that a flood of foreign packets cannot keep the caller here.
        let mut work = 0;
        while work < limit {
            if self.taken == self.filled {
                // A batch that was not full emptied the queue; the next poll asks again.
                if work > 0 && self.filled < BATCH {
                    break;
                }
                self.receive();
                if self.filled == 0 {
                    break;
                }
            }
            let place = self.taken;
            self.taken += 1;
            work += 1;
            let Some(len) = self.account(place) else { continue };
            match hand_up(self.slab.packet(place, len), self.channel, true, Carrier::Udp, sink) {
                Ok(0) => self.counters.heartbeats += 1,
                Ok(count) => {
                    self.counters.packets += 1;
                    lines += count;
                    work += count - 1;
                }
                Err(refused) => self.counters.refused[refused.index()] += 1,
            }
        }
        self.counters.lines += lines as u64;
        lines
    }
}

/// The drop count in the control bytes of a received message, if it is there.
fn drop_count(message: &libc::msghdr) -> Option<u32> {
    // SAFETY: the kernel filled msg_control up to msg_controllen with control messages; CMSG_FIRSTHDR gives null unless a
    // whole header is there, and a message of this level and type carries a u32 behind it (socket(7), SO_RXQ_OVFL).
    unsafe {
        let control = libc::CMSG_FIRSTHDR(message).as_ref()?;
        let is_count = control.cmsg_level == libc::SOL_SOCKET
            && control.cmsg_type == libc::SO_RXQ_OVFL
            && control.cmsg_len as usize >= libc::CMSG_LEN(size_of::<u32>() as u32) as usize;
        is_count.then(|| libc::CMSG_DATA(control).cast::<u32>().read_unaligned())
    }
}

/// One receive buffer and what the kernel needs beside it: 65 lines, so that the buffers do not all begin in the same set
/// of the cache.
#[repr(C)]
struct Place {
    /// The packet, from byte [`PACKET_OFFSET`] on: its lines begin at a multiple of 64.
    buffer: [Line; BUFFER_LINES],
    piece: libc::iovec,
    /// Control bytes; u64 for the alignment that control messages need.
    control: [u64; CONTROL_LEN / 8],
}

const _: () = assert!(CONTROL_LEN.is_multiple_of(8) && align_of::<libc::cmsghdr>() <= 8);
const _: () = assert!(size_of::<Place>() == 65 * LINE_LEN);

/// The memory that packets are received into: [`BATCH`] places, owned through a pointer, because the kernel is told their
/// addresses once and for all.
struct Slab {
    places: NonNull<Place>,
}

impl Slab {
    const LAYOUT: Layout = Layout::new::<[Place; BATCH]>();

    fn new() -> Slab {
        // SAFETY: the layout is not of size zero.
        let memory = unsafe { alloc_zeroed(Slab::LAYOUT) };
        // Zeros are a value of each of Place's fields: lines and words are numbers, an iovec is a null pointer and a length.
        let Some(places) = NonNull::new(memory.cast::<Place>()) else { handle_alloc_error(Slab::LAYOUT) };
        Slab { places }
    }

    /// A message for the kernel that points to place `place`.
    fn message(&self, place: usize) -> libc::mmsghdr {
        assert!(place < BATCH, "place {place} of {BATCH}");
        // SAFETY: mmsghdr is a plain C structure of numbers and pointers, for which all zeros is a value.
        let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
        // SAFETY: `place` is within the allocation (asserted), whose places are zeroed and nobody else's yet.
        unsafe {
            let place = self.places.add(place).as_ptr();
            let packet = (&raw mut (*place).buffer).cast::<u8>().add(PACKET_OFFSET);
            (*place).piece = libc::iovec { iov_base: packet.cast(), iov_len: PACKET_LEN };
            message.msg_hdr.msg_iov = &raw mut (*place).piece;
            message.msg_hdr.msg_iovlen = 1;
            message.msg_hdr.msg_control = (&raw mut (*place).control).cast();
            message.msg_hdr.msg_controllen = CONTROL_LEN as _;
        }
        message
    }

    /// The first `len` bytes of the packet in place `place`.
    fn packet(&self, place: usize, len: usize) -> &[u8] {
        assert!(place < BATCH && len <= PACKET_LEN, "place {place} of {BATCH}, {len} bytes of {PACKET_LEN}");
        // SAFETY: both within the allocation (asserted); the bytes were zeroed at the start and are written only by the
        // kernel in `UdpRx::receive`, which takes the whole UdpRx mutably while this borrow would still be alive.
        unsafe {
            let packet = self.places.add(place).as_ptr().cast::<u8>().add(PACKET_OFFSET);
            std::slice::from_raw_parts(packet, len)
        }
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, freed once; nothing in it needs dropping.
        unsafe { dealloc(self.places.as_ptr().cast(), Slab::LAYOUT) }
    }
}
