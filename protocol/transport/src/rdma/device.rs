//! Devices, their ports, and the addresses of those.

use std::ffi::CStr;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ptr::NonNull;
use std::sync::Arc;

use super::error::RdmaError;
use super::seam;
use super::sys;

/// A port's address, 16 bytes as IPv6 has them; on RoCE v2 over IPv4 the address is mapped (`::ffff:10.0.0.1`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The GID of an IPv4 address.
    pub const fn from_ipv4(address: Ipv4Addr) -> Gid {
        Gid(address.to_ipv6_mapped().octets())
    }

    /// The IPv4 address, if it is a mapped one.
    pub fn ipv4(self) -> Option<Ipv4Addr> {
        Ipv6Addr::from(self.0).to_ipv4_mapped()
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from(self.0).fmt(f)
    }
}

/// What a GID is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GidType {
    /// InfiniBand.
    InfiniBand,
    /// RoCE v1: Ethernet frames, not routed.
    RoceV1,
    /// RoCE v2: UDP.
    RoceV2,
    /// A type that this version does not know, as the driver numbers it.
    Other(u32),
}

/// One entry of a port's GID table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GidEntry {
    /// The GID.
    pub gid: Gid,
    /// Its place in the table: what queue pairs and address handles name.
    pub index: u8,
    /// What it is for.
    pub gid_type: GidType,
    /// The kernel's number of the network interface behind it; 0 if there is none.
    pub interface_index: u32,
}

impl GidEntry {
    /// Of a port that has none.
    pub(super) const NONE: GidEntry =
        GidEntry { gid: Gid([0; 16]), index: 0, gid_type: GidType::Other(u32::MAX), interface_index: 0 };

    /// The name of the network interface behind it, if there is one.
    pub fn interface(&self) -> Option<String> {
        if self.interface_index == 0 {
            return None;
        }
        let mut name = [0_u8; libc::IF_NAMESIZE];
        // SAFETY: the buffer is as long as the call demands; it writes a zero-terminated name, or returns null.
        let found = unsafe { libc::if_indextoname(self.interface_index, name.as_mut_ptr().cast()) };
        let name = (!found.is_null()).then(|| CStr::from_bytes_until_nul(&name).ok()).flatten()?;
        Some(name.to_string_lossy().into_owned())
    }

    /// Whether it is RoCE v2 over IPv4.
    pub fn is_roce_v2_ipv4(&self) -> bool {
        self.gid_type == GidType::RoceV2 && self.gid.ipv4().is_some()
    }
}

/// What carries a port's packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkLayer {
    /// InfiniBand: addresses by LID, groups by the subnet manager.
    InfiniBand,
    /// Ethernet: RoCE or iWARP.
    Ethernet,
    /// The driver does not say.
    Unspecified,
}

impl LinkLayer {
    fn from_raw(raw: u8) -> LinkLayer {
        match u32::from(raw) {
            sys::IBV_LINK_LAYER_INFINIBAND => LinkLayer::InfiniBand,
            sys::IBV_LINK_LAYER_ETHERNET => LinkLayer::Ethernet,
            _ => LinkLayer::Unspecified,
        }
    }

    pub(super) fn raw(self) -> u8 {
        let raw = match self {
            LinkLayer::InfiniBand => sys::IBV_LINK_LAYER_INFINIBAND,
            LinkLayer::Ethernet => sys::IBV_LINK_LAYER_ETHERNET,
            LinkLayer::Unspecified => sys::IBV_LINK_LAYER_UNSPECIFIED,
        };
        raw as u8
    }
}

/// The transport that a device speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// InfiniBand's, over whichever link: InfiniBand and RoCE.
    InfiniBand,
    /// iWARP: over TCP, without datagrams.
    Iwarp,
    /// Another one, of no use here.
    Other,
}

/// Whether a port carries traffic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortState {
    /// Without a state.
    Nop,
    /// The link is down.
    Down,
    /// The link is up, and the subnet manager has not set the port up.
    Initialising,
    /// Set up, not yet opened.
    Armed,
    /// Carries traffic.
    Active,
    /// Carries traffic, and the link is failing.
    ActiveDefer,
}

impl PortState {
    fn from_raw(raw: sys::ibv_port_state::Type) -> PortState {
        use sys::ibv_port_state::*;
        match raw {
            IBV_PORT_DOWN => PortState::Down,
            IBV_PORT_INIT => PortState::Initialising,
            IBV_PORT_ARMED => PortState::Armed,
            IBV_PORT_ACTIVE => PortState::Active,
            IBV_PORT_ACTIVE_DEFER => PortState::ActiveDefer,
            _ => PortState::Nop,
        }
    }

    pub(super) fn raw(self) -> sys::ibv_port_state::Type {
        use sys::ibv_port_state::*;
        match self {
            PortState::Nop => IBV_PORT_NOP,
            PortState::Down => IBV_PORT_DOWN,
            PortState::Initialising => IBV_PORT_INIT,
            PortState::Armed => IBV_PORT_ARMED,
            PortState::Active => IBV_PORT_ACTIVE,
            PortState::ActiveDefer => IBV_PORT_ACTIVE_DEFER,
        }
    }

    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            PortState::Nop => "without a state",
            PortState::Down => "down",
            PortState::Initialising => "waiting for the subnet manager",
            PortState::Armed => "armed",
            PortState::Active => "active",
            PortState::ActiveDefer => "active, its link failing",
        }
    }

    /// Whether it carries traffic now.
    pub const fn is_active(self) -> bool {
        matches!(self, PortState::Active | PortState::ActiveDefer)
    }
}

/// One port, as it was when it was asked.
#[derive(Clone, Debug)]
pub struct Port {
    /// Its number, from 1.
    pub number: u8,
    /// Whether it carries traffic.
    pub state: PortState,
    /// What carries its packets.
    pub link_layer: LinkLayer,
    /// The largest payload of a packet now, bytes: 256, 512, 1024, 2048 or 4096.
    pub active_mtu: usize,
    /// The largest that the port can be set to, bytes.
    pub max_mtu: usize,
    /// Its address on InfiniBand; 0 on Ethernet.
    pub lid: u16,
    /// The subnet manager's address on InfiniBand; 0 on Ethernet, or if none has been there.
    pub subnet_manager_lid: u16,
    /// Its P_Key table on InfiniBand, place by place, 0 where it is empty; as the driver says elsewhere, where it means
    /// nothing.
    pub pkeys: Vec<u16>,
    /// Its GIDs, those that are set.
    pub gids: Vec<GidEntry>,
}

/// What a device can hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceLimits {
    /// Work requests in one queue.
    pub queue_depth: usize,
    /// Entries of one completion queue.
    pub completions: usize,
    /// Pieces that one work request gathers.
    pub pieces: usize,
    /// Bytes of one region.
    pub region_len: u64,
    /// Queue pairs attached to one group.
    pub group_members: usize,
}

struct Context {
    raw: NonNull<sys::ibv_context>,
    name: String,
    transport: Transport,
    port_count: u8,
    limits: DeviceLimits,
}

// SAFETY: libibverbs is thread-safe in all calls on a context (verbs(7)), and nothing here writes through the pointer.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Drop for Context {
    fn drop(&mut self) {
        seam::closing(self.raw.as_ptr());
        // SAFETY: opened in `Device::open_raw`, closed once; whatever was made from it keeps a clone of the `Device`.
        unsafe { sys::ibv_close_device(self.raw.as_ptr()) };
    }
}

/// An open device. Cheap to clone; closed when the last clone and everything made from it is gone.
#[derive(Clone)]
pub struct Device(Arc<Context>);

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({})", self.0.name)
    }
}

/// The list that libibverbs gives out, freed when dropped.
struct DeviceList {
    raw: *mut *mut sys::ibv_device,
    count: usize,
}

impl DeviceList {
    fn get() -> DeviceList {
        let mut count = 0;
        // SAFETY: ibv_get_device_list writes one number. It returns null where there is no RDMA in the kernel at all.
        let raw = unsafe { sys::ibv_get_device_list(&mut count) };
        DeviceList { raw, count: if raw.is_null() { 0 } else { usize::try_from(count).unwrap_or(0) } }
    }

    fn iter(&self) -> impl Iterator<Item = (*mut sys::ibv_device, String)> + '_ {
        (0..self.count).map(|i| {
            // SAFETY: the list holds `count` pointers to devices, alive until it is freed; names are zero-terminated.
            unsafe {
                let device = *self.raw.add(i);
                let name = CStr::from_ptr(sys::ibv_get_device_name(device));
                (device, name.to_string_lossy().into_owned())
            }
        })
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: from ibv_get_device_list, freed once; devices that were opened stay open (ibv_get_device_list(3)).
            unsafe { sys::ibv_free_device_list(self.raw) };
        }
    }
}

impl Device {
    /// Every device of this host that can be opened.
    pub fn all() -> Vec<Device> {
        let list = DeviceList::get();
        list.iter().filter_map(|(raw, name)| Device::open_raw(raw, name).ok()).collect()
    }

    /// The names of this host's devices, whether they can be opened or not.
    pub fn names() -> Vec<String> {
        DeviceList::get().iter().map(|(_, name)| name).collect()
    }

    /// The device called `name`, such as `mlx5_0` or `rxe0`.
    ///
    /// # Errors
    /// [`RdmaError::NoDevice`] if there is none of that name; [`RdmaError::System`] if it cannot be opened.
    pub fn open(name: &str) -> Result<Device, RdmaError> {
        let list = DeviceList::get();
        let found = list.iter().find(|(_, known)| known == name);
        let Some((raw, name)) = found else {
            let wanted = Some(name.to_owned());
            return Err(RdmaError::NoDevice { wanted, known: names(list.iter().map(|(_, name)| name)) });
        };
        Device::open_raw(raw, name)
    }

    fn open_raw(raw: *mut sys::ibv_device, name: String) -> Result<Device, RdmaError> {
        const NEXT: &str = "check the rights of /dev/infiniband/uverbs*, and that the driver's provider is installed \
                            (ibverbs-providers)";
        // SAFETY: `raw` is from a list that is still alive.
        let (context, transport) = unsafe { (sys::ibv_open_device(raw), (*raw).transport_type) };
        let Some(context) = NonNull::new(context) else { return Err(RdmaError::last(&name, "open the device", NEXT)) };
        // SAFETY: the context was just opened, and is nobody else's yet.
        unsafe { seam::opened(&name, context.as_ptr()) };
        let mut attributes = sys::ibv_device_attr::default();
        // SAFETY: the context was just opened; ibv_query_device fills the structure that it is given.
        let code = unsafe { sys::ibv_query_device(context.as_ptr(), &mut attributes) };
        let count = |n: i32| usize::try_from(n).unwrap_or(0);
        let opened = Context {
            raw: context,
            transport: match transport {
                sys::IBV_TRANSPORT_IB => Transport::InfiniBand,
                sys::IBV_TRANSPORT_IWARP => Transport::Iwarp,
                _ => Transport::Other,
            },
            port_count: attributes.phys_port_cnt,
            limits: DeviceLimits {
                queue_depth: count(attributes.max_qp_wr),
                completions: count(attributes.max_cqe),
                pieces: count(attributes.max_sge),
                region_len: attributes.max_mr_size,
                group_members: count(attributes.max_mcast_qp_attach),
            },
            name,
        };
        if code != 0 {
            return Err(RdmaError::code(&opened.name, "read the device's limits", code, NEXT));
        }
        let device = Device(Arc::new(opened));
        match device.events_do_not_wait() {
            Ok(()) => Ok(device),
            Err(source) => {
                let device = device.name().to_owned();
                Err(RdmaError::System { device, what: "watch for events", source, next: NEXT })
            }
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// What it speaks.
    pub fn transport(&self) -> Transport {
        self.0.transport
    }

    /// What it can hold.
    pub fn limits(&self) -> &DeviceLimits {
        &self.0.limits
    }

    /// How many ports it has; they are numbered from 1.
    pub fn port_count(&self) -> u8 {
        self.0.port_count
    }

    /// Port `number` as it is now.
    ///
    /// # Errors
    /// [`RdmaError::System`] if there is no such port, or the device is gone.
    pub fn port(&self, number: u8) -> Result<Port, RdmaError> {
        let mut attributes = sys::ibv_port_attr::default();
        // SAFETY: the context is open.
        let code = unsafe { sys::ibv_query_port(self.raw(), number, &mut attributes) };
        if code != 0 {
            return Err(RdmaError::code(self.name(), "read a port's state", code, "see `rdma link` for its ports"));
        }
        Ok(Port {
            number,
            state: PortState::from_raw(attributes.state),
            link_layer: LinkLayer::from_raw(attributes.link_layer),
            active_mtu: mtu_bytes(attributes.active_mtu),
            max_mtu: mtu_bytes(attributes.max_mtu),
            lid: attributes.lid,
            subnet_manager_lid: attributes.sm_lid,
            pkeys: self.pkeys(number, attributes.pkey_tbl_len),
            gids: self.gids(number, attributes.gid_tbl_len),
        })
    }

    /// A port's P_Key table.
    fn pkeys(&self, port: u8, table_len: u16) -> Vec<u16> {
        let mut table = vec![0; usize::from(table_len)];
        for (place, pkey) in table.iter_mut().enumerate() {
            let mut raw = 0;
            // SAFETY: the context is open; one number is written. A place that cannot be read counts as empty.
            if unsafe { sys::ibv_query_pkey(self.raw(), port, place as i32, &mut raw) } == 0 {
                *pkey = u16::from_be(raw);
            }
        }
        table
    }

    /// The entries of a port's GID table that are set. Queue pairs name them by a byte, so no more than 256 are looked at.
    fn gids(&self, port: u8, table_len: i32) -> Vec<GidEntry> {
        let mut found = Vec::new();
        for index in 0..=u8::try_from(table_len - 1).unwrap_or(u8::MAX) {
            if table_len == 0 {
                break;
            }
            let mut entry = sys::ibv_gid_entry::default();
            let (port, place) = (u32::from(port), u32::from(index));
            // SAFETY: the context is open. An empty place is an error (ENODATA).
            let code = unsafe { sys::ibv_query_gid_ex(self.raw(), port, place, &mut entry) };
            if code != 0 {
                continue;
            }
            // SAFETY: both members of the union are sixteen bytes, any of which are a value.
            let gid = Gid(unsafe { entry.gid.raw });
            let gid_type = match entry.gid_type {
                sys::IBV_GID_TYPE_IB => GidType::InfiniBand,
                sys::IBV_GID_TYPE_ROCE_V1 => GidType::RoceV1,
                sys::IBV_GID_TYPE_ROCE_V2 => GidType::RoceV2,
                other => GidType::Other(other),
            };
            found.push(GidEntry { gid, index, gid_type, interface_index: entry.ndev_ifindex });
        }
        found
    }

    pub(super) fn raw(&self) -> *mut sys::ibv_context {
        self.0.raw.as_ptr()
    }
}

/// What carries a port's packets, and how its peers are addressed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fabric {
    /// InfiniBand's transport over UDP and Ethernet: addresses are GIDs that stand for IP addresses.
    RoceV2,
    /// InfiniBand: addresses are LIDs that the subnet manager gives out; partitions are P_Keys.
    InfiniBand,
    /// RDMA over TCP: connections alone. There are no datagrams, so there is no UD lane.
    Iwarp,
}

impl Fabric {
    /// What a port of a device of that transport runs; `None` if it is of no use here.
    pub(super) fn of(transport: Transport, link_layer: LinkLayer) -> Option<Fabric> {
        match (transport, link_layer) {
            (Transport::Iwarp, _) => Some(Fabric::Iwarp),
            (Transport::InfiniBand, LinkLayer::InfiniBand) => Some(Fabric::InfiniBand),
            (Transport::InfiniBand, LinkLayer::Ethernet) => Some(Fabric::RoceV2),
            _ => None,
        }
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Fabric::RoceV2 => "RoCE v2",
            Fabric::InfiniBand => "InfiniBand",
            Fabric::Iwarp => "iWARP",
        }
    }

    /// Whether it has datagrams, and with them UD lanes.
    pub const fn has_datagrams(self) -> bool {
        !matches!(self, Fabric::Iwarp)
    }
}

impl fmt::Display for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

pub(super) fn names(names: impl Iterator<Item = String>) -> String {
    let names: Vec<String> = names.collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Bytes of an MTU as verbs number them; 0 for a number that is none.
fn mtu_bytes(raw: sys::ibv_mtu) -> usize {
    match raw {
        sys::IBV_MTU_256..=sys::IBV_MTU_4096 => 128 << raw,
        _ => 0,
    }
}

/// The number of the largest MTU that is at most so many bytes.
pub(super) fn mtu_raw(bytes: usize) -> sys::ibv_mtu {
    (sys::IBV_MTU_256..=sys::IBV_MTU_4096).rev().find(|raw| mtu_bytes(*raw) <= bytes).unwrap_or(sys::IBV_MTU_256)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mtus_are_numbered_as_verbs_number_them() {
        for (raw, bytes) in [(1, 256), (2, 512), (3, 1024), (4, 2048), (5, 4096)] {
            assert_eq!(mtu_bytes(raw), bytes);
        }
        assert_eq!((mtu_bytes(0), mtu_bytes(6)), (0, 0));
    }

    #[test]
    fn the_fabric_follows_from_transport_and_link() {
        use LinkLayer::*;
        assert_eq!(Fabric::of(Transport::InfiniBand, Ethernet), Some(Fabric::RoceV2));
        assert_eq!(Fabric::of(Transport::InfiniBand, InfiniBand), Some(Fabric::InfiniBand));
        assert_eq!(Fabric::of(Transport::Iwarp, Ethernet), Some(Fabric::Iwarp));
        assert_eq!(
            (Fabric::of(Transport::Other, Ethernet), Fabric::of(Transport::InfiniBand, Unspecified)),
            (None, None)
        );
    }

    #[test]
    fn an_ipv4_gid_is_mapped() {
        let gid = Gid::from_ipv4(Ipv4Addr::new(10, 99, 0, 1));
        assert_eq!(gid.to_string(), "::ffff:10.99.0.1");
        assert_eq!(gid.ipv4(), Some(Ipv4Addr::new(10, 99, 0, 1)));
        assert_eq!(Gid([0xFE; 16]).ipv4(), None);
    }
}
