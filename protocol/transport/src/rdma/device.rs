//! Devices, their ports, and the addresses of those.

use std::ffi::CStr;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ptr::NonNull;
use std::sync::Arc;

use super::error::RdmaError;
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
        Ok(Device(Arc::new(opened)))
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
        // SAFETY: the context is open; the exported function fills a structure that is no longer than this one, which is
        // all zeroes where it does not reach (the header's inline function does the same for such providers).
        let code = unsafe { sys::ibv_query_port(self.raw(), number, (&raw mut attributes).cast()) };
        if code != 0 {
            return Err(RdmaError::code(self.name(), "read a port's state", code, "see `rdma link` for its ports"));
        }
        Ok(Port {
            number,
            state: PortState::from_raw(attributes.state),
            link_layer: match u32::from(attributes.link_layer) {
                sys::IBV_LINK_LAYER_INFINIBAND => LinkLayer::InfiniBand,
                sys::IBV_LINK_LAYER_ETHERNET => LinkLayer::Ethernet,
                _ => LinkLayer::Unspecified,
            },
            active_mtu: mtu_bytes(attributes.active_mtu),
            max_mtu: mtu_bytes(attributes.max_mtu),
            lid: attributes.lid,
            gids: self.gids(number, attributes.gid_tbl_len),
        })
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
            // SAFETY: the context is open; the function fills the entry, whose size it is told. An empty place is an
            // error (ENODATA).
            let code = unsafe { sys::_ibv_query_gid_ex(self.raw(), port, place, &mut entry, 0, size_of_val(&entry)) };
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

/// A port of this host by its address: where lanes begin and end.
#[derive(Clone, Debug)]
pub struct LocalPort {
    /// The device.
    pub device: Device,
    /// The port, as it was when it was looked up.
    pub port: Port,
    /// The GID that stands for the address.
    pub gid: GidEntry,
    /// The address.
    pub address: Ipv4Addr,
}

impl LocalPort {
    /// The port whose RoCE v2 GID is `address`, on the device called `device` or on any. Its place in the GID table is
    /// found by looking: index 0 is mostly link-local.
    ///
    /// # Errors
    /// [`RdmaError::NoDevice`], [`RdmaError::NoGid`] or [`RdmaError::PortDown`].
    pub fn find(device: Option<&str>, address: Ipv4Addr) -> Result<LocalPort, RdmaError> {
        let devices = match device {
            Some(name) => vec![Device::open(name)?],
            None => Device::all(),
        };
        if devices.is_empty() {
            return Err(RdmaError::NoDevice { wanted: None, known: names(std::iter::empty()) });
        }
        let mut known = Vec::new();
        for device in &devices {
            for number in 1..=device.port_count() {
                let port = device.port(number)?;
                let gid = port.gids.iter().find(|entry| entry.is_roce_v2_ipv4() && entry.gid.ipv4() == Some(address));
                let Some(gid) = gid.copied() else {
                    known.extend(port.gids.iter().map(|entry| {
                        format!("{} {} ({:?}, index {})", device.name(), entry.gid, entry.gid_type, entry.index)
                    }));
                    continue;
                };
                if !port.state.is_active() {
                    let device = device.name().to_owned();
                    return Err(RdmaError::PortDown { device, port: number, state: port.state.name() });
                }
                return Ok(LocalPort { device: device.clone(), port, gid, address });
            }
        }
        Err(RdmaError::NoGid { address, known: names(known.into_iter()) })
    }

    /// Fails unless packets of `needed` bytes fit the port's active MTU.
    pub(super) fn require_mtu(&self, needed: usize) -> Result<(), RdmaError> {
        require_mtu(self.device.name(), &self.port, needed)
    }
}

fn require_mtu(device: &str, port: &Port, needed: usize) -> Result<(), RdmaError> {
    if port.active_mtu >= needed {
        return Ok(());
    }
    Err(RdmaError::Mtu { device: device.to_owned(), port: port.number, active: port.active_mtu, needed })
}

fn names(names: impl Iterator<Item = String>) -> String {
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

/// The number that verbs give the MTU of `bytes`.
pub(super) fn mtu_raw(bytes: usize) -> sys::ibv_mtu {
    (sys::IBV_MTU_256..=sys::IBV_MTU_4096).rev().find(|raw| mtu_bytes(*raw) <= bytes).unwrap_or(sys::IBV_MTU_256)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mtus_are_numbered_as_verbs_number_them() {
        for (raw, bytes) in [(1, 256), (2, 512), (3, 1024), (4, 2048), (5, 4096)] {
            assert_eq!((mtu_bytes(raw), mtu_raw(bytes)), (bytes, raw));
        }
        assert_eq!((mtu_bytes(0), mtu_bytes(6), mtu_raw(1500)), (0, 0, sys::IBV_MTU_1024));
    }

    #[test]
    fn a_port_whose_mtu_is_too_small_is_named_with_the_remedy() {
        let mut port = Port {
            number: 2,
            state: PortState::Active,
            link_layer: LinkLayer::Ethernet,
            active_mtu: 96,
            max_mtu: 4096,
            lid: 0,
            gids: Vec::new(),
        };
        assert!(require_mtu("mlx5_0", &port, 96).is_ok());
        port.active_mtu = 95;
        let text = require_mtu("mlx5_0", &port, 96).expect_err("a byte too small").to_string();
        for part in ["port 2 of mlx5_0 is 95", "takes 96", "raise the MTU"] {
            assert!(text.contains(part), "{part:?} is not in: {text}");
        }
    }

    #[test]
    fn an_ipv4_gid_is_mapped() {
        let gid = Gid::from_ipv4(Ipv4Addr::new(10, 99, 0, 1));
        assert_eq!(gid.to_string(), "::ffff:10.99.0.1");
        assert_eq!(gid.ipv4(), Some(Ipv4Addr::new(10, 99, 0, 1)));
        assert_eq!(Gid([0xFE; 16]).ipv4(), None);
    }
}
