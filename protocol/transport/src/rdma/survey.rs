//! What RDMA this host has, and what is missing to run on each fabric.
//!
//! Looking opens devices and reads their tables; it sends nothing and changes nothing. What is missing is said in plain
//! sentences with the next step, so that whoever set the host up can go on from there.

use std::net::Ipv4Addr;

use super::device::{Device, DeviceLimits, Fabric, GidEntry, LinkLayer, Port, Transport};

/// Everything that was found.
#[derive(Clone, Debug)]
pub struct Survey {
    /// The devices, in the system's order.
    pub devices: Vec<DeviceSurvey>,
}

/// One device.
#[derive(Clone, Debug)]
pub struct DeviceSurvey {
    /// Its name.
    pub name: String,
    /// What was read from it; or why it could not be opened, with the next step.
    pub found: Result<DeviceDetails, String>,
}

/// What a device says of itself.
#[derive(Clone, Debug)]
pub struct DeviceDetails {
    /// What it speaks.
    pub transport: Transport,
    /// What it can hold.
    pub limits: DeviceLimits,
    /// Its ports.
    pub ports: Vec<PortSurvey>,
}

/// One port.
#[derive(Clone, Debug)]
pub struct PortSurvey {
    /// As the device says.
    pub port: Port,
    /// What it runs; `None` if it is of no use here.
    pub fabric: Option<Fabric>,
    /// The network interface behind each of its GIDs, in the same order; `None` where there is none.
    pub interfaces: Vec<Option<String>>,
}

/// A port that can be used now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UsablePort {
    /// The device.
    pub device: String,
    /// The port's number.
    pub port: u8,
    /// Its IPv4 addresses, on RoCE v2. Elsewhere they are those of its network interface, which `ip addr` shows.
    pub addresses: Vec<Ipv4Addr>,
}

/// Whether a fabric runs here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FabricVerdict {
    /// Which.
    pub fabric: Fabric,
    /// The ports that run it now; it runs here if there is one.
    pub ports: Vec<UsablePort>,
    /// What keeps other ports, or the whole host, from it: sentences, each with its next step. Empty if nothing does.
    pub missing: Vec<String>,
}

impl FabricVerdict {
    /// Whether it runs here.
    pub fn is_usable(&self) -> bool {
        !self.ports.is_empty()
    }
}

impl Survey {
    /// Looks at every device of this host.
    pub fn take() -> Survey {
        let devices = Device::names().into_iter().map(|name| {
            let found = Device::open(&name).map_err(|error| error.to_string()).and_then(|device| details(&device));
            DeviceSurvey { name, found }
        });
        Survey { devices: devices.collect() }
    }

    /// Whether `fabric` runs here, on which ports, and what is missing.
    pub fn verdict(&self, fabric: Fabric) -> FabricVerdict {
        let (mut ports, mut missing) = (Vec::new(), Vec::new());
        let mut has_one = false;
        for device in &self.devices {
            let name = &device.name;
            match &device.found {
                Err(error) => missing.push(error.clone()),
                Ok(found) => {
                    for port in found.ports.iter().filter(|port| port.fabric == Some(fabric)) {
                        has_one = true;
                        match port.usable(name) {
                            Ok(usable) => ports.push(usable),
                            Err(sentence) => missing.push(sentence),
                        }
                    }
                }
            }
        }
        if !has_one {
            missing.push(no_device(fabric));
        }
        FabricVerdict { fabric, ports, missing }
    }

    /// The verdicts on all fabrics.
    pub fn verdicts(&self) -> Vec<FabricVerdict> {
        [Fabric::RoceV2, Fabric::InfiniBand, Fabric::Iwarp].map(|fabric| self.verdict(fabric)).into()
    }
}

impl PortSurvey {
    /// This port of `device` as one that can be used, or why it cannot.
    fn usable(&self, device: &str) -> Result<UsablePort, String> {
        let port = &self.port;
        let number = port.number;
        if !port.state.is_active() {
            let next = match port.link_layer {
                LinkLayer::InfiniBand if port.subnet_manager_lid == 0 => {
                    "check the cable, and that a subnet manager runs on the fabric (`sminfo`)"
                }
                LinkLayer::InfiniBand => "check the cable and the subnet manager's log",
                _ => "check the cable, and bring its network interface up (`ip link set … up`)",
            };
            return Err(format!("port {number} of {device} is {}, not active: {next}", port.state.name()));
        }
        let addresses: Vec<Ipv4Addr> =
            port.gids.iter().filter(|entry| entry.is_roce_v2_ipv4()).filter_map(|entry| entry.gid.ipv4()).collect();
        if self.fabric == Some(Fabric::RoceV2) && addresses.is_empty() {
            return Err(format!(
                "port {number} of {device} has no RoCE v2 GID of an IPv4 address: give its network interface one \
                 (`ip addr add …`), and see that RoCE v2 is switched on"
            ));
        }
        if self.fabric == Some(Fabric::InfiniBand) && port.pkeys.iter().all(|pkey| pkey & 0x7FFF == 0) {
            return Err(format!(
                "port {number} of {device} is in no partition: let the subnet manager put it into one"
            ));
        }
        Ok(UsablePort { device: device.to_owned(), port: number, addresses })
    }
}

fn details(device: &Device) -> Result<DeviceDetails, String> {
    let ports = (1..=device.port_count()).map(|number| {
        let port = device.port(number).map_err(|error| error.to_string())?;
        let fabric = Fabric::of(device.transport(), port.link_layer);
        let interfaces = port.gids.iter().map(GidEntry::interface).collect();
        Ok(PortSurvey { port, fabric, interfaces })
    });
    let ports = ports.collect::<Result<_, String>>()?;
    Ok(DeviceDetails { transport: device.transport(), limits: *device.limits(), ports })
}

fn no_device(fabric: Fabric) -> String {
    match fabric {
        Fabric::RoceV2 => {
            "no device that runs RoCE: load the card's driver, or make a software device with `rdma link add rxe0 type \
             rxe netdev eth0` (module rdma_rxe)"
        }
        Fabric::InfiniBand => {
            "no port with an InfiniBand link: it takes an InfiniBand card, its driver, and a subnet manager on the fabric"
        }
        Fabric::Iwarp => {
            "no iWARP device: load the card's driver, or make a software device with `rdma link add siw0 type siw netdev \
             eth0` (module siw)"
        }
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdma::device::{Gid, GidType, PortState};

    fn port(
        state: PortState,
        link_layer: LinkLayer,
        fabric: Fabric,
        gids: Vec<GidEntry>,
        pkeys: Vec<u16>,
    ) -> PortSurvey {
        let interfaces = vec![None; gids.len()];
        let port = Port {
            number: 1,
            state,
            link_layer,
            active_mtu: 4096,
            max_mtu: 4096,
            lid: 0,
            subnet_manager_lid: 0,
            pkeys,
            gids,
        };
        PortSurvey { port, fabric: Some(fabric), interfaces }
    }

    fn survey(name: &str, transport: Transport, port: PortSurvey) -> Survey {
        let limits = DeviceLimits { queue_depth: 1, completions: 1, pieces: 1, region_len: 1, group_members: 1 };
        let found = Ok(DeviceDetails { transport, limits, ports: vec![port] });
        Survey { devices: vec![DeviceSurvey { name: name.to_owned(), found }] }
    }

    fn gid(address: Ipv4Addr, gid_type: GidType) -> GidEntry {
        GidEntry { gid: Gid::from_ipv4(address), index: 1, gid_type, interface_index: 0 }
    }

    #[track_caller]
    fn assert_missing(survey: &Survey, fabric: Fabric, parts: &[&str]) {
        let verdict = survey.verdict(fabric);
        assert!(!verdict.is_usable());
        let [sentence] = &verdict.missing[..] else { panic!("{:?}", verdict.missing) };
        for part in parts {
            assert!(sentence.contains(part), "{part:?} is not in: {sentence}");
        }
    }

    #[test]
    fn a_host_without_devices_misses_each_fabric_for_its_own_reason() {
        let survey = Survey { devices: Vec::new() };
        assert_missing(&survey, Fabric::RoceV2, &["no device that runs RoCE", "rdma link add rxe0"]);
        assert_missing(&survey, Fabric::InfiniBand, &["InfiniBand card", "subnet manager"]);
        assert_missing(&survey, Fabric::Iwarp, &["no iWARP device", "rdma link add siw0"]);
    }

    #[test]
    fn a_port_with_an_ipv4_gid_runs_roce_and_nothing_else() {
        let address = Ipv4Addr::new(10, 0, 0, 1);
        let gids = vec![gid(address, GidType::RoceV2)];
        let roce = port(PortState::Active, LinkLayer::Ethernet, Fabric::RoceV2, gids, vec![0xFFFF]);
        let survey = survey("mlx5_0", Transport::InfiniBand, roce);
        let verdicts = survey.verdicts();
        let usable = UsablePort { device: "mlx5_0".to_owned(), port: 1, addresses: vec![address] };
        let roce = FabricVerdict { fabric: Fabric::RoceV2, ports: vec![usable], missing: Vec::new() };
        assert_eq!(verdicts[0], roce);
        assert!(verdicts[1..].iter().all(|verdict| !verdict.is_usable() && verdict.missing.len() == 1));
    }

    #[test]
    fn what_keeps_a_port_from_its_fabric_is_named_with_the_next_step() {
        let address = Ipv4Addr::new(10, 0, 0, 1);
        let down = port(PortState::Down, LinkLayer::Ethernet, Fabric::RoceV2, Vec::new(), Vec::new());
        let down = survey("mlx5_0", Transport::InfiniBand, down);
        assert_missing(&down, Fabric::RoceV2, &["port 1 of mlx5_0 is down", "ip link set"]);
        let old = vec![gid(address, GidType::RoceV1)];
        let old = port(PortState::Active, LinkLayer::Ethernet, Fabric::RoceV2, old, Vec::new());
        assert_missing(
            &survey("mlx4_0", Transport::InfiniBand, old),
            Fabric::RoceV2,
            &["mlx4_0 has no RoCE v2 GID", "ip addr add"],
        );
        let waiting =
            port(PortState::Initialising, LinkLayer::InfiniBand, Fabric::InfiniBand, Vec::new(), vec![0xFFFF]);
        let waiting = survey("mlx5_1", Transport::InfiniBand, waiting);
        assert_missing(&waiting, Fabric::InfiniBand, &["waiting for the subnet manager", "sminfo"]);
        let nowhere = port(PortState::Active, LinkLayer::InfiniBand, Fabric::InfiniBand, Vec::new(), vec![0, 0]);
        assert_missing(
            &survey("mlx5_1", Transport::InfiniBand, nowhere),
            Fabric::InfiniBand,
            &["in no partition", "subnet manager"],
        );
        let shut = DeviceSurvey { name: "mlx5_0".to_owned(), found: Err("cannot open mlx5_0".to_owned()) };
        let verdict = Survey { devices: vec![shut] }.verdict(Fabric::Iwarp);
        assert_eq!((verdict.is_usable(), verdict.missing.len()), (false, 2));
        assert_eq!(verdict.missing[0], "cannot open mlx5_0");
    }
}
