//! Address handles: routes that a device has looked up and kept.

use std::ptr::NonNull;

use super::device::Gid;
use super::domain::Domain;
use super::error::RdmaError;
use super::local::LocalPort;
use super::sys;

/// Where a datagram goes: a route, kept by the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// Where to.
    pub gid: Gid,
    /// The own GID's place in the port's table.
    pub source_index: u8,
    /// How many routers a packet may pass, itself included.
    pub hop_limit: u8,
    /// The destination's LID on InfiniBand; 0 on Ethernet.
    pub lid: u16,
    /// The service level on InfiniBand.
    pub service_level: u8,
    /// The rate that is not to be passed, as verbs number it; 0: the port's own. On InfiniBand a group has one.
    pub static_rate: u8,
    /// The traffic class: on RoCE the IP header's.
    pub traffic_class: u8,
    /// The flow label.
    pub flow_label: u32,
    /// The own port's number.
    pub port: u8,
}

impl Route {
    /// From `local` to `gid`; over InfiniBand without the LID yet.
    pub fn to(local: &LocalPort, gid: Gid, hop_limit: u8) -> Route {
        Route {
            gid,
            source_index: local.gid.index,
            hop_limit,
            lid: 0,
            service_level: 0,
            static_rate: 0,
            traffic_class: 0,
            flow_label: 0,
            port: local.port.number,
        }
    }

    /// As verbs have it.
    pub(super) fn attributes(&self) -> sys::ibv_ah_attr {
        let mut attributes = sys::ibv_ah_attr::default();
        attributes.grh.dgid.raw = self.gid.0;
        attributes.grh.sgid_index = self.source_index;
        attributes.grh.hop_limit = self.hop_limit;
        attributes.dlid = self.lid;
        attributes.sl = self.service_level;
        attributes.static_rate = self.static_rate;
        attributes.grh.traffic_class = self.traffic_class;
        attributes.grh.flow_label = self.flow_label;
        attributes.is_global = 1;
        attributes.port_num = self.port;
        attributes
    }
}

/// A route that the device keeps, for datagrams.
pub struct AddressHandle {
    raw: NonNull<sys::ibv_ah>,
    /// Let go after the handle.
    _domain: Domain,
}

// SAFETY: libibverbs is thread-safe in all calls on an address handle (verbs(7)).
unsafe impl Send for AddressHandle {}
// SAFETY: as above.
unsafe impl Sync for AddressHandle {}

impl AddressHandle {
    /// Looks the route up and keeps it.
    ///
    /// # Errors
    /// [`RdmaError::System`] if there is no way to the destination.
    pub fn new(domain: &Domain, route: &Route) -> Result<AddressHandle, RdmaError> {
        let mut attributes = route.attributes();
        // SAFETY: the domain is live; the attributes are only read.
        let raw = unsafe { sys::ibv_create_ah(domain.raw(), &mut attributes) };
        match NonNull::new(raw) {
            Some(raw) => Ok(AddressHandle { raw, _domain: domain.clone() }),
            None => Err(RdmaError::last(
                domain.device().name(),
                "find the way to a destination",
                "check that it answers (`ip neigh`), or that the group's address is in 224.0.0.0/4",
            )),
        }
    }

    pub(super) fn raw(&self) -> *mut sys::ibv_ah {
        self.raw.as_ptr()
    }
}

impl Drop for AddressHandle {
    fn drop(&mut self) {
        // SAFETY: created in `new`, destroyed once. Whoever posts sends with it keeps it until its queue pair is gone.
        unsafe { sys::ibv_destroy_ah(self.raw.as_ptr()) };
    }
}
