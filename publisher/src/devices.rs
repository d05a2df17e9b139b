//! `publisher devices`: the RDMA devices of this host, and which fabrics it can run.
//!
//! Looking sends nothing and changes nothing. What is missing is said in sentences, each with the next step.

/// Why there is nothing to list.
#[derive(Debug, thiserror::Error)]
pub enum DevicesError {
    /// This build knows no RDMA.
    #[error("{}", transport::NO_RDMA)]
    NotBuilt,
    /// There is no device.
    #[error(
        "no RDMA device on this host: load the card's driver, or make a software device, such as `modprobe rdma_rxe` and \
         `rdma link add rxe0 type rxe netdev eth0`"
    )]
    NoDevice,
}

/// Lists devices, ports, GIDs and limits, and says for each fabric whether this host runs it and what is missing.
///
/// # Errors
/// [`DevicesError`]; with [`DevicesError::NoDevice`] what is missing has been printed all the same.
#[cfg(not(feature = "rdma"))]
pub fn command(_as_json: bool) -> Result<(), DevicesError> {
    Err(DevicesError::NotBuilt)
}

/// Lists devices, ports, GIDs and limits, and says for each fabric whether this host runs it and what is missing.
///
/// # Errors
/// [`DevicesError`]; with [`DevicesError::NoDevice`] what is missing has been printed all the same.
#[cfg(feature = "rdma")]
pub fn command(as_json: bool) -> Result<(), DevicesError> {
    let survey = transport::rdma::Survey::take();
    let host = listing::Host::here();
    if as_json {
        cli::println!("{}", listing::json(&survey, &host));
    } else {
        cli::print!("{}", listing::text(&survey, &host));
    }
    if survey.devices.is_empty() { Err(DevicesError::NoDevice) } else { Ok(()) }
}

#[cfg(feature = "rdma")]
mod listing {
    use std::fmt::Write;
    use std::path::Path;

    use serde_json::{Value, json};
    use transport::rdma::{
        DeviceDetails, Fabric, FabricVerdict, GidEntry, GidType, LinkLayer, PortSurvey, Survey, Transport,
        lines_per_packet,
    };

    /// What RDMA needs of the system beside a device.
    pub(super) struct Host {
        /// Bytes of memory that a process may lock: `Some(None)` for any number, `None` where the system does not say.
        locked_limit: Option<Option<u64>>,
        /// The way to librdmacm's half in the kernel is there.
        has_rdma_cm: bool,
    }

    impl Host {
        pub(super) fn here() -> Host {
            let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
            Host { locked_limit: locked_limit(&limits), has_rdma_cm: Path::new("/dev/infiniband/rdma_cm").exists() }
        }

        /// What is missing, each with the next step.
        fn missing(&self) -> Vec<String> {
            let mut missing = Vec::new();
            if !self.has_rdma_cm {
                missing.push(
                    "/dev/infiniband/rdma_cm is not there, so no address can be looked up and no connection made: load \
                     the kernel module rdma_ucm"
                        .to_owned(),
                );
            }
            if let Some(Some(limit)) = self.locked_limit
                && limit < 64 << 20
            {
                missing.push(format!(
                    "a process may lock {limit} bytes of memory, and a ring of 262144 lines takes 16 MiB beside the \
                     buffers: `ulimit -l unlimited`, LimitMEMLOCK=infinity in the service's unit, or CAP_IPC_LOCK"
                ));
            }
            missing
        }
    }

    /// The soft limit from the text of `/proc/self/limits`.
    pub(super) fn locked_limit(limits: &str) -> Option<Option<u64>> {
        let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"))?;
        match line.split_ascii_whitespace().next()? {
            "unlimited" => Some(None),
            bytes => bytes.parse().ok().map(Some),
        }
    }

    fn transport(transport: Transport) -> &'static str {
        match transport {
            Transport::InfiniBand => "InfiniBand",
            Transport::Iwarp => "iWARP",
            Transport::Other => "another",
        }
    }

    fn link_layer(link_layer: LinkLayer) -> &'static str {
        match link_layer {
            LinkLayer::InfiniBand => "InfiniBand",
            LinkLayer::Ethernet => "Ethernet",
            LinkLayer::Unspecified => "unspecified",
        }
    }

    /// What a GID is for. iWARP needs none; its devices show their Ethernet address in that place.
    fn gid_type(port: &PortSurvey, entry: &GidEntry) -> String {
        match entry.gid_type {
            _ if port.fabric == Some(Fabric::Iwarp) => "iWARP".to_owned(),
            GidType::InfiniBand => "InfiniBand".to_owned(),
            GidType::RoceV1 => "RoCE v1".to_owned(),
            GidType::RoceV2 => "RoCE v2".to_owned(),
            GidType::Other(number) => format!("type {number}"),
        }
    }

    /// The lines of a UD packet on this port; `None` where there are no datagrams.
    fn lines(port: &PortSurvey) -> Option<usize> {
        matches!(port.fabric, Some(Fabric::RoceV2 | Fabric::InfiniBand)).then(|| lines_per_packet(port.port.active_mtu))
    }

    /// The lanes that a fabric carries.
    fn lanes(fabric: Fabric) -> &'static str {
        match fabric {
            Fabric::RoceV2 | Fabric::InfiniBand => "UD and RC",
            Fabric::Iwarp => "RC alone: it has no datagrams and no multicast",
        }
    }

    /// As JSON: bytes, and counts of work requests and entries.
    pub(super) fn json(survey: &Survey, host: &Host) -> Value {
        let port = |survey: &PortSurvey| {
            let port = &survey.port;
            let gids: Vec<Value> = port
                .gids
                .iter()
                .zip(&survey.interfaces)
                .map(|(entry, interface)| {
                    json!({
                        "index": entry.index, "gid": entry.gid.to_string(), "type": gid_type(survey, entry),
                        "ipv4": entry.gid.ipv4(), "interface": interface,
                    })
                })
                .collect();
            json!({
                "number": port.number, "state": port.state.name(), "active": port.state.is_active(),
                "link_layer": link_layer(port.link_layer), "fabric": survey.fabric.map(Fabric::name),
                "active_mtu": port.active_mtu, "max_mtu": port.max_mtu, "lines_per_packet": lines(survey),
                "lid": port.lid, "subnet_manager_lid": port.subnet_manager_lid, "pkeys": port.pkeys, "gids": gids,
            })
        };
        let devices: Vec<Value> = survey
            .devices
            .iter()
            .map(|device| match &device.found {
                Err(why) => json!({"name": device.name, "cannot_open": why}),
                Ok(found) => {
                    let limits = &found.limits;
                    json!({
                        "name": device.name, "transport": transport(found.transport),
                        "limits": {
                            "queue_depth": limits.queue_depth, "completions": limits.completions,
                            "pieces": limits.pieces, "region_len": limits.region_len,
                            "group_members": limits.group_members,
                        },
                        "ports": found.ports.iter().map(port).collect::<Vec<_>>(),
                    })
                }
            })
            .collect();
        let fabrics: Vec<Value> = survey
            .verdicts()
            .iter()
            .map(|verdict| {
                let ports: Vec<Value> = verdict
                    .ports
                    .iter()
                    .map(|port| json!({"device": port.device, "port": port.port, "addresses": port.addresses}))
                    .collect();
                json!({
                    "name": verdict.fabric.name(), "usable": verdict.is_usable(), "lanes": lanes(verdict.fabric),
                    "ports": ports, "missing": verdict.missing,
                })
            })
            .collect();
        json!({
            "devices": devices,
            "fabrics": fabrics,
            "host": {
                "locked_memory_limit": host.locked_limit.flatten(),
                "rdma_cm": host.has_rdma_cm,
                "missing": host.missing(),
            },
        })
    }

    /// As text: devices first, then the verdicts.
    pub(super) fn text(survey: &Survey, host: &Host) -> String {
        let mut out = String::new();
        for device in &survey.devices {
            match &device.found {
                Err(why) => drop(writeln!(out, "{}: {why}", device.name)),
                Ok(found) => device_text(&mut out, &device.name, found),
            }
        }
        for verdict in survey.verdicts() {
            verdict_text(&mut out, &verdict);
        }
        for missing in host.missing() {
            let _ = writeln!(out, "missing: {missing}");
        }
        out
    }

    fn device_text(out: &mut String, name: &str, found: &DeviceDetails) {
        let limits = &found.limits;
        let _ = writeln!(
            out,
            "{name}: {} transport; at most {} work requests a queue, {} completions, {} pieces a request, {} members a group",
            transport(found.transport),
            limits.queue_depth,
            limits.completions,
            limits.pieces,
            limits.group_members
        );
        for survey in &found.ports {
            let port = &survey.port;
            let _ = write!(
                out,
                "  port {}: {}, {} link, MTU {} of {}",
                port.number,
                port.state.name(),
                link_layer(port.link_layer),
                port.active_mtu,
                port.max_mtu
            );
            if let Some(lines) = lines(survey) {
                let _ = write!(out, ", {lines} lines a packet");
            }
            if port.link_layer == LinkLayer::InfiniBand {
                let _ = write!(out, ", LID {}, subnet manager at LID {}", port.lid, port.subnet_manager_lid);
            }
            let _ = writeln!(out);
            for (entry, interface) in port.gids.iter().zip(&survey.interfaces) {
                let gid = entry.gid.to_string();
                let interface = interface.as_deref().unwrap_or("no interface");
                let _ =
                    writeln!(out, "    GID {:<3} {gid:<39} {:<10} {interface}", entry.index, gid_type(survey, entry));
            }
        }
    }

    fn verdict_text(out: &mut String, verdict: &FabricVerdict) {
        let name = verdict.fabric.name();
        for port in &verdict.ports {
            let addresses: Vec<String> = port.addresses.iter().map(ToString::to_string).collect();
            let at = if addresses.is_empty() { String::new() } else { format!(" at {}", addresses.join(", ")) };
            let _ = writeln!(out, "{name}: yes, port {} of {}{at}; {}", port.port, port.device, lanes(verdict.fabric));
        }
        for missing in &verdict.missing {
            let answer = if verdict.is_usable() { "but" } else { "not here:" };
            let _ = writeln!(out, "{name}: {answer} {missing}");
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn the_limit_of_locked_memory_is_the_soft_one() {
            let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                        Max open files            1024                 524288               files     \n\
                        Max locked memory         8388608              unlimited            bytes     \n";
            assert_eq!(locked_limit(text), Some(Some(8_388_608)));
            assert_eq!(locked_limit(&text.replace("8388608", "unlimited")), Some(None));
            assert_eq!(locked_limit(""), None);
        }

        #[test]
        fn a_host_without_anything_is_told_each_next_step() {
            let survey = Survey { devices: Vec::new() };
            let host = Host { locked_limit: Some(Some(65_536)), has_rdma_cm: false };
            let text = text(&survey, &host);
            for part in [
                "RoCE v2: not here: ",
                "InfiniBand: not here: ",
                "iWARP: not here: ",
                "rdma link add rxe0",
                "missing: /dev/infiniband/rdma_cm",
                "rdma_ucm",
                "lock 65536 bytes",
                "ulimit -l",
            ] {
                assert!(text.contains(part), "{part:?} is not in: {text}");
            }
            let json = json(&survey, &host);
            assert_eq!(json["devices"], json!([]));
            assert_eq!(json["fabrics"].as_array().map(Vec::len), Some(3));
            assert!(json["fabrics"].as_array().is_some_and(|all| all.iter().all(|fabric| fabric["usable"] == false)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_rdma_says_how_to_build_it() {
        let text = DevicesError::NotBuilt.to_string();
        assert!(text.contains("--features rdma") && text.contains("libibverbs-dev"), "{text}");
        #[cfg(not(feature = "rdma"))]
        assert!(matches!(command(false), Err(DevicesError::NotBuilt)));
    }
}
