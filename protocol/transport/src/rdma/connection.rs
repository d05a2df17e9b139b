//! Connections: identifiers of librdmacm, and the channel on which the kernel says what became of them.
//!
//! librdmacm finds the way on every fabric: by IP address to a GID on RoCE, through the subnet manager on InfiniBand, over
//! TCP on iWARP. Queue pairs stay our own, on our own domains: an identifier is told their number and says what their
//! attributes must be; so `rdma_cm_id.qp` is always null, and the side that connects is told of the answer
//! ([`News::Answered`]) and confirms it itself ([`ConnectionId::confirm`]). On iWARP the kernel moves the queue pair, and
//! there is nothing to confirm.
//!
//! Nothing here waits. Every call is a system call or several: for keepers only.

use std::ffi::{CStr, c_int};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ptr::NonNull;
use std::sync::Arc;

use super::identifier;
use super::seam;
use super::sys::{self, cm};

/// The most private data that a request carries on every fabric: InfiniBand's 92 bytes less the 36 of librdmacm's own.
pub(super) const MAX_PRIVATE_LEN: usize = 56;
/// Requests that the kernel keeps for us: each refused one costs a turn of the keeper.
const BACKLOG: c_int = 8;

struct RawChannel(NonNull<cm::rdma_event_channel>);

// SAFETY: librdmacm is thread-safe; the pointer is only passed to it.
unsafe impl Send for RawChannel {}
// SAFETY: as above.
unsafe impl Sync for RawChannel {}

impl Drop for RawChannel {
    fn drop(&mut self) {
        // SAFETY: made in `EventChannel::new`, destroyed once, after every identifier on it, which keep it; every event was
        // acknowledged.
        unsafe { cm::rdma_destroy_event_channel(self.0.as_ptr()) };
    }
}

/// Where the kernel says what became of identifiers. Reading never waits.
pub(super) struct EventChannel(Arc<RawChannel>);

impl EventChannel {
    pub(super) fn new() -> io::Result<EventChannel> {
        // SAFETY: takes nothing, returns a channel or null.
        let Some(raw) = NonNull::new(unsafe { cm::rdma_create_event_channel() }) else {
            return Err(io::Error::last_os_error());
        };
        let channel = RawChannel(raw);
        // SAFETY: the channel is live; its descriptor is fixed.
        let descriptor = unsafe { (*raw.as_ptr()).fd };
        // SAFETY: fcntl on an open descriptor of ours; F_GETFL takes no argument.
        let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
        // SAFETY: as above; F_SETFL takes an int.
        if flags < 0 || unsafe { libc::fcntl(descriptor, libc::F_SETFL, flags | libc::O_NONBLOCK) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(EventChannel(Arc::new(channel)))
    }

    /// The next event, if there is one. It is acknowledged already, so that an identifier can be let go at any time
    /// (rdma_destroy_id(3) waits for events that are not).
    pub(super) fn next(&mut self) -> io::Result<Option<ConnectionEvent>> {
        let mut event = std::ptr::null_mut();
        // SAFETY: the channel is live; one pointer is written.
        if unsafe { cm::rdma_get_cm_event(self.0.0.as_ptr(), &mut event) } != 0 {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR) => Ok(None),
                _ => Err(error),
            };
        }
        // SAFETY: the event is valid until it is acknowledged, which happens below; what it points to is copied before.
        let translated = unsafe { self.translate(&*event) };
        // SAFETY: from rdma_get_cm_event, acknowledged once.
        unsafe { cm::rdma_ack_cm_event(event) };
        Ok(Some(translated))
    }

    /// # Safety
    /// The event is one that was not acknowledged yet.
    unsafe fn translate(&self, event: &cm::rdma_cm_event) -> ConnectionEvent {
        let failed = |step| News::Failed { step, source: io::Error::from_raw_os_error(event.status.abs()) };
        // SAFETY: on an identifier of port space TCP, `conn` is the member that is set (rdma_get_cm_event(3)).
        let private = || unsafe { PrivateData::copy(event.param.conn.as_ref()) };
        let (id, listener) = (event.id as usize, event.listen_id as usize);
        let news = match event.event {
            cm::RDMA_CM_EVENT_ADDR_RESOLVED if event.status == 0 => News::AddressFound,
            cm::RDMA_CM_EVENT_ADDR_RESOLVED | cm::RDMA_CM_EVENT_ADDR_ERROR => failed(Step::Address),
            cm::RDMA_CM_EVENT_ROUTE_RESOLVED if event.status == 0 => News::RouteFound,
            cm::RDMA_CM_EVENT_ROUTE_RESOLVED | cm::RDMA_CM_EVENT_ROUTE_ERROR => failed(Step::Route),
            cm::RDMA_CM_EVENT_CONNECT_REQUEST => {
                let raw = NonNull::new(event.id).expect("a request comes with an identifier of its own");
                News::Request { id: ConnectionId { raw, _channel: Arc::clone(&self.0) }, private: private() }
            }
            cm::RDMA_CM_EVENT_CONNECT_RESPONSE if event.status == 0 => News::Answered,
            cm::RDMA_CM_EVENT_ESTABLISHED if event.status == 0 => News::Established,
            cm::RDMA_CM_EVENT_CONNECT_RESPONSE
            | cm::RDMA_CM_EVENT_ESTABLISHED
            | cm::RDMA_CM_EVENT_CONNECT_ERROR
            | cm::RDMA_CM_EVENT_UNREACHABLE => failed(Step::Answer),
            cm::RDMA_CM_EVENT_REJECTED => News::Rejected { reason: event.status, private: private() },
            cm::RDMA_CM_EVENT_DISCONNECTED => News::Disconnected,
            cm::RDMA_CM_EVENT_DEVICE_REMOVAL => News::DeviceRemoved,
            // The address moved to another device, a time of waiting is over, and what belongs to groups.
            _ => News::Nothing,
        };
        let about = if matches!(news, News::Request { .. }) { listener } else { id };
        ConnectionEvent { about: ConnectionKey(about), news }
    }
}

/// Which identifier an event is about: good as long as that lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ConnectionKey(usize);

/// What became of an identifier.
pub(super) struct ConnectionEvent {
    /// Of which; for a request the one that listens.
    pub(super) about: ConnectionKey,
    /// What.
    pub(super) news: News,
}

/// A step towards a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Finding the device and the destination's hardware address.
    Address,
    /// Finding the way there.
    Route,
    /// Waiting for an answer.
    Answer,
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Step::Address => "finding its address",
            Step::Route => "finding the way",
            Step::Answer => "waiting for its answer",
        })
    }
}

/// What an event says.
pub(super) enum News {
    /// The device and the destination's hardware address are known.
    AddressFound,
    /// The way is known: the queue pair can be made, and the connection be asked for.
    RouteFound,
    /// Somebody asks to be connected: accept or reject it, or let the identifier go, which rejects it too.
    Request { id: ConnectionId, private: PrivateData },
    /// The other side agrees: move the queue pair and confirm.
    Answered,
    /// Connected.
    Established,
    /// The other side, or its kernel, refused.
    Rejected { reason: c_int, private: PrivateData },
    /// A step failed.
    Failed { step: Step, source: io::Error },
    /// The other side let go, or is gone.
    Disconnected,
    /// The device is gone.
    DeviceRemoved,
    /// Nothing to do.
    Nothing,
}

/// What one side sends with its request or its refusal. InfiniBand and RoCE pad it with zeroes.
pub(super) struct PrivateData {
    bytes: [u8; MAX_PRIVATE_LEN],
    len: usize,
}

impl PrivateData {
    /// # Safety
    /// `parameters` came with an event that was not acknowledged yet.
    unsafe fn copy(parameters: &cm::rdma_conn_param) -> PrivateData {
        let mut copied = PrivateData { bytes: [0; MAX_PRIVATE_LEN], len: 0 };
        if !parameters.private_data.is_null() {
            copied.len = usize::from(parameters.private_data_len).min(MAX_PRIVATE_LEN);
            // SAFETY: librdmacm points at as many bytes as it says, inside the event.
            let given = unsafe { std::slice::from_raw_parts(parameters.private_data.cast::<u8>(), copied.len) };
            copied.bytes[..copied.len].copy_from_slice(given);
        }
        copied
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// One identifier of librdmacm: a listener, or one side of a connection. Letting it go disconnects, and the kernel tells
/// the other side. Its queue pair is destroyed before it (rdma_destroy_id(3)).
pub(super) struct ConnectionId {
    raw: NonNull<cm::rdma_cm_id>,
    /// Destroyed after it.
    _channel: Arc<RawChannel>,
}

// SAFETY: librdmacm is thread-safe; the pointer is only passed to it, by whoever owns this value.
unsafe impl Send for ConnectionId {}

impl ConnectionId {
    pub(super) fn new(channel: &EventChannel) -> io::Result<ConnectionId> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the channel is live; one pointer is written.
        let code = unsafe { cm::rdma_create_id(channel.0.0.as_ptr(), &mut raw, std::ptr::null_mut(), cm::RDMA_PS_TCP) };
        match NonNull::new(raw) {
            Some(raw) if code == 0 => Ok(ConnectionId { raw, _channel: Arc::clone(&channel.0) }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(super) fn key(&self) -> ConnectionKey {
        ConnectionKey(self.raw.as_ptr() as usize)
    }

    /// Listens at `address`, on a port that the kernel chooses; returns it.
    pub(super) fn listen(&self, address: Ipv4Addr) -> io::Result<SocketAddrV4> {
        let mut own = socket_address(SocketAddrV4::new(address, 0));
        // SAFETY: the identifier is live; the address is read only, and as long as its family says.
        checked(unsafe { cm::rdma_bind_addr(self.raw.as_ptr(), (&raw mut own).cast()) })?;
        // SAFETY: the identifier is live and bound.
        checked(unsafe { cm::rdma_listen(self.raw.as_ptr(), BACKLOG) })?;
        // SAFETY: the identifier is live; librdmacm has asked the kernel for its address.
        let port = u16::from_be(unsafe { cm::rdma_get_src_port(self.raw.as_ptr()) });
        Ok(SocketAddrV4::new(address, port))
    }

    /// Begins to look for `to`, from the port that has the address `from`: [`News::AddressFound`].
    pub(super) fn find_address(&self, from: Ipv4Addr, to: SocketAddrV4, limit_ms: c_int) -> io::Result<()> {
        let mut own = socket_address(SocketAddrV4::new(from, 0));
        let mut other = socket_address(to);
        let (own, other) = ((&raw mut own).cast(), (&raw mut other).cast());
        // SAFETY: the identifier is live; both addresses are read only, and as long as their family says.
        checked(unsafe { cm::rdma_resolve_addr(self.raw.as_ptr(), own, other, limit_ms) })
    }

    /// Begins to look for the way: [`News::RouteFound`].
    pub(super) fn find_route(&self, limit_ms: c_int) -> io::Result<()> {
        // SAFETY: the identifier is live, and has a device since its address was found.
        checked(unsafe { cm::rdma_resolve_route(self.raw.as_ptr(), limit_ms) })
    }

    /// The name of the device that it is bound to.
    pub(super) fn device_name(&self) -> Option<String> {
        // SAFETY: the identifier is live; `verbs` is null or an open device, whose name is zero-terminated and lives as
        // long.
        unsafe {
            let verbs = (*self.raw.as_ptr()).verbs.as_ref()?;
            Some(CStr::from_ptr(sys::ibv_get_device_name(verbs.device)).to_string_lossy().into_owned())
        }
    }

    /// What a queue pair of this connection must be told to enter `state`: attributes, and which of them.
    pub(super) fn attributes(&self, state: sys::ibv_qp_state::Type) -> io::Result<(sys::ibv_qp_attr, u32)> {
        let mut attributes = sys::ibv_qp_attr { qp_state: state, ..sys::ibv_qp_attr::default() };
        let mut which = 0;
        // SAFETY: the identifier is live; both are written.
        checked(unsafe { cm::rdma_init_qp_attr(self.raw.as_ptr(), &mut attributes, &mut which) })?;
        let mut which = which as u32;
        seam::connection_attributes(self.device_name().as_deref(), &mut attributes, &mut which);
        Ok((attributes, which))
    }

    /// Asks for the connection: [`News::Answered`] or, on iWARP, [`News::Established`].
    pub(super) fn connect(&self, queue_pair: u32, private: &[u8]) -> io::Result<()> {
        let mut parameters = parameters(queue_pair, private);
        // SAFETY: the identifier is live and has a route; the parameters are read only, and so is what they point to.
        checked(unsafe { cm::rdma_connect(self.raw.as_ptr(), &mut parameters) })
    }

    /// Confirms the other side's answer.
    pub(super) fn confirm(&self) -> io::Result<()> {
        // SAFETY: the identifier is live, and has no queue pair that librdmacm knows of.
        checked(unsafe { cm::rdma_establish(self.raw.as_ptr()) })
    }

    /// Agrees to a request.
    pub(super) fn accept(&self, queue_pair: u32) -> io::Result<()> {
        let mut parameters = parameters(queue_pair, &[]);
        // SAFETY: as for `connect`; the identifier came with a request.
        checked(unsafe { cm::rdma_accept(self.raw.as_ptr(), &mut parameters) })
    }

    /// Refuses a request.
    pub(super) fn reject(&self, private: &[u8]) -> io::Result<()> {
        assert!(private.len() <= MAX_PRIVATE_LEN, "{} bytes of private data", private.len());
        // SAFETY: the identifier is live and came with a request; the data is read only.
        checked(unsafe { cm::rdma_reject(self.raw.as_ptr(), private.as_ptr().cast(), private.len() as u8) })
    }
}

impl Drop for ConnectionId {
    fn drop(&mut self) {
        // SAFETY: made in `new` or by a request, destroyed once, before its channel; no event of it is unacknowledged.
        unsafe { cm::rdma_destroy_id(self.raw.as_ptr()) };
    }
}

/// Neither side ever reads; what else there is stands in the queue pair's attributes, which are our own.
fn parameters(queue_pair: u32, private: &[u8]) -> cm::rdma_conn_param {
    assert!(private.len() <= MAX_PRIVATE_LEN, "{} bytes of private data", private.len());
    cm::rdma_conn_param {
        private_data: private.as_ptr().cast(),
        private_data_len: private.len() as u8,
        responder_resources: 0,
        initiator_depth: 0,
        flow_control: 0,
        retry_count: 7,
        rnr_retry_count: 0,
        srq: 0,
        qp_num: queue_pair,
    }
}

fn checked(code: c_int) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn socket_address(address: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in { sin_port: address.port().to_be(), ..identifier::socket_address(*address.ip()) }
}
