//! Identifiers of librdmacm: what names a device and a port by an IP address, on any fabric.

use std::ffi::CStr;
use std::io;
use std::net::Ipv4Addr;
use std::ptr::NonNull;

use super::seam;
use super::sys::{self, cm};

/// What an identifier is for. Port numbers of the two are apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PortSpace {
    /// Connections. Every fabric has it.
    Connections,
    /// Datagrams and groups. iWARP has none.
    Datagrams,
}

/// What an address stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Bound {
    /// The device's name.
    pub(super) device: String,
    /// The port's number.
    pub(super) port: u8,
    /// The P_Key of the network interface, on InfiniBand; 0xFFFF elsewhere.
    pub(super) pkey: u16,
}

/// An identifier on an event channel of its own. Destroyed when dropped.
pub(super) struct Identifier {
    channel: NonNull<cm::rdma_event_channel>,
    id: NonNull<cm::rdma_cm_id>,
}

// SAFETY: librdmacm is thread-safe in calls on different identifiers, and this one has a channel of its own; both are only
// passed to it, by whoever owns the value.
unsafe impl Send for Identifier {}

impl Identifier {
    pub(super) fn new(space: PortSpace) -> io::Result<Identifier> {
        // SAFETY: takes nothing, returns a channel or null.
        let Some(channel) = NonNull::new(unsafe { cm::rdma_create_event_channel() }) else {
            return Err(io::Error::last_os_error());
        };
        let space = match space {
            PortSpace::Connections => cm::RDMA_PS_TCP,
            PortSpace::Datagrams => cm::RDMA_PS_UDP,
        };
        let mut id = std::ptr::null_mut();
        // SAFETY: the channel is live; one pointer is written.
        let code = unsafe { cm::rdma_create_id(channel.as_ptr(), &mut id, std::ptr::null_mut(), space) };
        match NonNull::new(id) {
            Some(id) if code == 0 => Ok(Identifier { channel, id }),
            _ => {
                let error = io::Error::last_os_error();
                // SAFETY: the channel was just made, and has no identifiers.
                unsafe { cm::rdma_destroy_event_channel(channel.as_ptr()) };
                Err(error)
            }
        }
    }

    /// Binds to `address`, with a port number that librdmacm chooses. `None`: the address is this host's, but no RDMA
    /// device stands behind it.
    pub(super) fn bind(&self, address: Ipv4Addr) -> io::Result<Option<Bound>> {
        let mut address = socket_address(address);
        // SAFETY: the identifier is live; the address is read only, and as long as its family says.
        if unsafe { cm::rdma_bind_addr(self.raw(), (&raw mut address).cast()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the identifier is live; binding has written its fields. `verbs` is an open device or null; names are
        // zero-terminated and live as long as the device. Of the union only `ibaddr` has a P_Key.
        unsafe {
            let id = &*self.id.as_ptr();
            let Some(verbs) = id.verbs.as_ref() else { return Ok(None) };
            let device = CStr::from_ptr(sys::ibv_get_device_name(verbs.device)).to_string_lossy().into_owned();
            let pkey = u16::from_be(id.route.addr.addr.ibaddr.as_ref().pkey);
            let pkey = seam::interface_pkey(&device, pkey);
            Ok(Some(Bound { device, port: id.port_num, pkey }))
        }
    }

    pub(super) fn raw(&self) -> *mut cm::rdma_cm_id {
        self.id.as_ptr()
    }

    pub(super) fn channel(&self) -> *mut cm::rdma_event_channel {
        self.channel.as_ptr()
    }
}

impl Drop for Identifier {
    fn drop(&mut self) {
        // SAFETY: made in `new`, destroyed once, the identifier first; every event was acknowledged.
        unsafe {
            cm::rdma_destroy_id(self.id.as_ptr());
            cm::rdma_destroy_event_channel(self.channel.as_ptr());
        }
    }
}

pub(super) fn socket_address(address: Ipv4Addr) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: 0,
        sin_addr: libc::in_addr { s_addr: u32::from(address).to_be() },
        sin_zero: [0; 8],
    }
}
