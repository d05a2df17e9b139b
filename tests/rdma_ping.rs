//! `feeds-replay ping` over RDMA, between the two ends of the wire that tests/vm/run makes.

#![forbid(unsafe_code)]

use bookcast_tests::programs::{output, printed};
use serde_json::Value;

const BETWEEN: [&str; 4] = ["--address", "10.99.0.1", "--peer-address", "10.99.0.2"];

fn is_iwarp() -> bool {
    std::env::var("VM_TOPO").expect("VM_TOPO is not set: this test runs in a guest of tests/vm/run") == "siw"
}

fn ping(arguments: &[&str]) -> Value {
    let output = output("feeds-replay", &[&["ping", "--json", "--warmup", "20"], &BETWEEN[..], arguments].concat());
    assert!(output.status.success(), "{}", printed(&output));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", printed(&output)))
}

#[track_caller]
fn assert_every_ping_came_back(json: &Value, count: u64) {
    assert_eq!((&json["lost"], &json["round_trip_ns"]["count"]), (&0.into(), &count.into()), "{json}");
    assert!(json["round_trip_ns"]["min"].as_u64().is_some_and(|min| min > 0), "{json}");
}

#[test]
fn writes_go_there_and_back() {
    for size in ["1", "40"] {
        let json = ping(&["--transport", "rdma-rc", "--count", "150", "--size", size]);
        assert_every_ping_came_back(&json, 150);
    }
}

#[test]
fn datagrams_go_there_and_back_or_iwarp_says_that_it_has_none() {
    for multicast in [&[][..], &["--multicast"]] {
        let arguments = [&["--transport", "rdma-ud", "--count", "150"], multicast].concat();
        if is_iwarp() {
            let output = output("feeds-replay", &[&["ping"], &BETWEEN[..], &arguments].concat());
            let text = printed(&output);
            assert!(!output.status.success() && text.contains("RC"), "{text}");
        } else {
            assert_every_ping_came_back(&ping(&arguments), 150);
        }
    }
}

#[test]
fn an_address_that_is_on_no_port_is_named_with_the_next_step() {
    for transport in ["rdma-rc", "rdma-ud"] {
        let output = output("feeds-replay", &["ping", "--transport", transport, "--address", "192.0.2.77"]);
        let text = printed(&output);
        assert!(!output.status.success() && output.stdout.is_empty(), "{text}");
        assert!(text.contains("192.0.2.77") && text.contains("ip addr"), "{text}");
    }
}
