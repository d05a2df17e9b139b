//! Ports of this host by their addresses.

use std::net::Ipv4Addr;

use super::device::{Device, Fabric, GidEntry, Port, names};
use super::error::RdmaError;
use super::identifier::{Bound, Identifier, PortSpace};

/// A port of this host by its address: where lanes begin and end.
#[derive(Clone, Debug)]
pub struct LocalPort {
    /// The device.
    pub device: Device,
    /// The port, as it was when it was looked up.
    pub port: Port,
    /// What it runs.
    pub fabric: Fabric,
    /// The GID that stands for the address: on RoCE v2 the mapped address, elsewhere the port's own. Of no meaning on
    /// iWARP.
    pub gid: GidEntry,
    /// The place in the port's P_Key table of the network interface's P_Key, on InfiniBand; 0 elsewhere.
    pub pkey_index: u16,
    /// The address.
    pub address: Ipv4Addr,
}

impl LocalPort {
    /// The port behind `address`, which must be of the device called `device`, if one is named. librdmacm knows it on every
    /// fabric. On RoCE v2 the GID's place in the table is found by looking: index 0 is mostly link-local.
    ///
    /// # Errors
    /// [`RdmaError::NoDevice`], [`RdmaError::NoAddress`], [`RdmaError::OtherDevice`], [`RdmaError::NoGid`],
    /// [`RdmaError::NoPkey`] or [`RdmaError::PortDown`].
    pub fn find(device: Option<&str>, address: Ipv4Addr) -> Result<LocalPort, RdmaError> {
        LocalPort::find_reusing(None, device, address)
    }

    /// The same port looked up again: its state, GID, LID and P_Key may have changed. The device stays open.
    ///
    /// # Errors
    /// As [`find`](LocalPort::find).
    pub fn look_again(&self) -> Result<LocalPort, RdmaError> {
        LocalPort::find_reusing(Some(&self.device), Some(self.device.name()), self.address)
    }

    fn find_reusing(open: Option<&Device>, wanted: Option<&str>, address: Ipv4Addr) -> Result<LocalPort, RdmaError> {
        let known = Device::names();
        if known.is_empty() || wanted.is_some_and(|wanted| known.iter().all(|name| name != wanted)) {
            return Err(RdmaError::NoDevice { wanted: wanted.map(str::to_owned), known: names(known.into_iter()) });
        }
        let identifier = Identifier::new(PortSpace::Connections).map_err(|source| RdmaError::System {
            device: known.join(", "),
            what: "open librdmacm",
            source,
            next: "load the rdma_ucm module, and check the rights of /dev/infiniband/rdma_cm",
        })?;
        let no_address = |cause: String| RdmaError::NoAddress { address, cause, known: addresses() };
        let bound = identifier.bind(address).map_err(|source| no_address(source.to_string()))?;
        let bound = bound.ok_or_else(|| no_address("no RDMA device stands behind it".to_owned()))?;
        if let Some(wanted) = wanted.filter(|wanted| *wanted != bound.device) {
            return Err(RdmaError::OtherDevice { address, wanted: wanted.to_owned(), found: bound.device });
        }
        let device = match open {
            Some(device) => device.clone(),
            None => Device::open(&bound.device)?,
        };
        LocalPort::of(device, &bound, address)
    }

    fn of(device: Device, bound: &Bound, address: Ipv4Addr) -> Result<LocalPort, RdmaError> {
        let port = device.port(bound.port)?;
        let name = || device.name().to_owned();
        let Some(fabric) = Fabric::of(device.transport(), port.link_layer) else {
            let cause = format!("{} runs neither RoCE v2 nor InfiniBand nor iWARP", device.name());
            return Err(RdmaError::NoAddress { address, cause, known: addresses() });
        };
        if !port.state.is_active() {
            return Err(RdmaError::PortDown { device: name(), port: port.number, state: port.state.name() });
        }
        let mapped = |entry: &&GidEntry| entry.is_roce_v2_ipv4() && entry.gid.ipv4() == Some(address);
        let gid = match fabric {
            Fabric::RoceV2 => port.gids.iter().find(mapped).copied(),
            // A port's first GID is its own: subnet prefix and port number.
            Fabric::InfiniBand => port.gids.iter().find(|entry| entry.index == 0).copied(),
            Fabric::Iwarp => Some(port.gids.first().copied().unwrap_or(GidEntry::NONE)),
        };
        let Some(gid) = gid else {
            let known = names(gid_names(&device, &port).into_iter());
            return Err(RdmaError::NoGid { device: name(), port: port.number, address, fabric, known });
        };
        let pkey_index = match fabric {
            Fabric::InfiniBand => pkey_place(&port.pkeys, bound.pkey).ok_or_else(|| RdmaError::NoPkey {
                device: name(),
                port: port.number,
                pkey: bound.pkey,
                known: names(port.pkeys.iter().map(|pkey| format!("{pkey:#06x}"))),
            })?,
            Fabric::RoceV2 | Fabric::Iwarp => 0,
        };
        Ok(LocalPort { device, port, fabric, gid, pkey_index, address })
    }

    /// Fails where there are no datagrams.
    pub(super) fn require_datagrams(&self) -> Result<(), RdmaError> {
        if self.fabric.has_datagrams() {
            return Ok(());
        }
        Err(RdmaError::NoDatagrams { device: self.device.name().to_owned(), fabric: self.fabric })
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

/// The place of a P_Key in a port's table. The top bit says full or limited membership; the rest names the partition, and
/// a full membership is taken before a limited one, as the kernel does.
fn pkey_place(table: &[u16], pkey: u16) -> Option<u16> {
    let same = |entry: &u16| entry & 0x7FFF == pkey & 0x7FFF && pkey & 0x7FFF != 0;
    let full = table.iter().position(|entry| same(entry) && entry >> 15 == 1);
    full.or_else(|| table.iter().position(same)).and_then(|place| u16::try_from(place).ok())
}

fn gid_names(device: &Device, port: &Port) -> Vec<String> {
    let named =
        |entry: &GidEntry| format!("{} {} ({:?}, index {})", device.name(), entry.gid, entry.gid_type, entry.index);
    port.gids.iter().map(named).collect()
}

/// Every GID of every port of this host, in words.
fn addresses() -> String {
    let mut known = Vec::new();
    for device in Device::all() {
        for port in (1..=device.port_count()).filter_map(|number| device.port(number).ok()) {
            known.extend(gid_names(&device, &port));
        }
    }
    names(known.into_iter())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdma::device::{LinkLayer, PortState};

    #[test]
    fn a_port_whose_mtu_is_too_small_is_named_with_the_remedy() {
        let mut port = Port {
            number: 2,
            state: PortState::Active,
            link_layer: LinkLayer::Ethernet,
            active_mtu: 96,
            max_mtu: 4096,
            lid: 0,
            subnet_manager_lid: 0,
            pkeys: Vec::new(),
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
    fn a_partition_is_found_by_its_number_and_full_membership_comes_first() {
        let table = [0xFFFF, 0x0001, 0, 0x8001, 0x0002];
        assert_eq!(pkey_place(&table, 0xFFFF), Some(0));
        assert_eq!((pkey_place(&table, 0x8001), pkey_place(&table, 0x0001)), (Some(3), Some(3)));
        assert_eq!(pkey_place(&table, 0x8002), Some(4));
        // An empty place is no partition.
        assert_eq!((pkey_place(&table, 0x8003), pkey_place(&table, 0), pkey_place(&table, 0x8000)), (None, None, None));
    }
}
