//! `publisher devices` says what the virtual machine that it runs in has, and what that can run.

#![forbid(unsafe_code)]

use bookcast_tests::programs::{output, printed};
use serde_json::{Value, json};

/// The guest that this runs in, as tests/vm/run makes it.
fn guest() -> String {
    std::env::var("VM_TOPO").expect("VM_TOPO is not set: this test runs in a guest of tests/vm/run")
}

fn devices() -> (bool, Value, String) {
    let output = output("publisher", &["devices", "--json"]);
    let json = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", printed(&output)));
    (output.status.success(), json, String::from_utf8_lossy(&output.stderr).into_owned())
}

fn fabric<'a>(json: &'a Value, name: &str) -> &'a Value {
    let fabrics = json["fabrics"].as_array().expect("fabrics");
    fabrics.iter().find(|fabric| fabric["name"] == name).unwrap_or_else(|| panic!("no {name} in {json}"))
}

/// The addresses of the guest's hosts, and their interfaces.
fn hosts(guest: &str) -> &'static [(&'static str, &'static str)] {
    if guest == "loop" { &[("10.99.0.1", "w0")] } else { &[("10.99.0.1", "w0"), ("10.99.0.2", "w1")] }
}

#[test]
fn the_guests_devices_are_listed_with_mtu_and_gid_types() {
    let guest = guest();
    let (success, json, stderr) = devices();
    let found = json["devices"].as_array().expect("devices");
    let kind = match guest.as_str() {
        "none" => {
            assert!(!success && found.is_empty(), "{json}");
            assert!(
                stderr.contains("no RDMA device on this host") && stderr.contains("rdma link add rxe0"),
                "{stderr}"
            );
            return;
        }
        "siw" => "siw",
        _ => "rxe",
    };
    assert!(success, "{stderr}");
    assert_eq!(found.len(), hosts(&guest).len(), "{json}");
    for (i, (device, (address, interface))) in found.iter().zip(hosts(&guest)).enumerate() {
        assert_eq!(device["name"], format!("{kind}{i}"));
        let [port] = &device["ports"].as_array().expect("ports")[..] else { panic!("{device}") };
        assert_eq!(
            (&port["active"], &port["active_mtu"], &port["link_layer"]),
            (&json!(true), &json!(4096), &json!("Ethernet"))
        );
        let gids = port["gids"].as_array().expect("GIDs");
        if kind == "rxe" {
            let wanted = json!({
                "index": 1, "gid": format!("::ffff:{address}"), "type": "RoCE v2", "ipv4": address, "interface": interface,
            });
            assert!(gids.contains(&wanted), "no {wanted} in {port}");
            assert!(gids.iter().all(|gid| gid["type"] == "RoCE v2"), "{port}");
            assert_eq!(port["lines_per_packet"], 63);
        } else {
            assert!(gids.iter().all(|gid| gid["type"] == "iWARP"), "{port}");
            assert_eq!(port["lines_per_packet"], Value::Null, "iWARP has no datagrams: {port}");
        }
    }
}

#[test]
fn each_fabric_runs_or_says_what_is_missing() {
    let guest = guest();
    let (_, json, _) = devices();
    let runs = match guest.as_str() {
        "none" => None,
        "siw" => Some("iWARP"),
        _ => Some("RoCE v2"),
    };
    for name in ["RoCE v2", "InfiniBand", "iWARP"] {
        let fabric = fabric(&json, name);
        assert_eq!(fabric["usable"], runs == Some(name), "{fabric}");
        let (ports, missing) =
            (fabric["ports"].as_array().expect("ports"), fabric["missing"].as_array().expect("missing"));
        if runs == Some(name) {
            assert_eq!((ports.len(), missing.len()), (hosts(&guest).len(), 0), "{fabric}");
        } else {
            assert!(ports.is_empty() && !missing.is_empty(), "{fabric}");
        }
    }
    if runs == Some("RoCE v2") {
        let addresses: Vec<&Value> = fabric(&json, "RoCE v2")["ports"]
            .as_array()
            .expect("ports")
            .iter()
            .map(|port| &port["addresses"][0])
            .collect();
        assert_eq!(addresses, hosts(&guest).iter().map(|(address, _)| *address).collect::<Vec<_>>());
    }
}
