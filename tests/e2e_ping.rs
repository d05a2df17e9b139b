//! `feeds-replay ping` between two processes, over everything that needs no RDMA.

#![forbid(unsafe_code)]

use bookcast_tests::programs::{output, printed};
use serde_json::Value;

fn ping(arguments: &[&str]) -> Value {
    let output = output("feeds-replay", &[&["ping", "--json"], arguments].concat());
    assert!(output.status.success(), "{}", printed(&output));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", printed(&output)))
}

#[test]
fn every_ping_comes_back_over_each_transport() {
    for transport in ["shm", "udp", "kernel-udp", "kernel-tcp"] {
        for size in ["1", "30"] {
            let json = ping(&["--transport", transport, "--count", "300", "--warmup", "20", "--size", size]);
            assert_eq!((&json["transport"], &json["lost"]), (&transport.into(), &0.into()), "{json}");
            assert_eq!(json["lines"].to_string(), size);
            let (round_trip, half) = (&json["round_trip_ns"], &json["half_round_trip_ns"]);
            assert_eq!((&round_trip["count"], &half["count"]), (&300.into(), &300.into()), "{json}");
            let times = ["min", "p50", "p99", "p99.9", "max"].map(|name| {
                let [whole, half] = [round_trip, half].map(|times| times[name].as_u64().expect("ns"));
                assert_eq!(half, whole / 2, "{name} of {json}");
                whole
            });
            assert!(times[0] > 0 && times.is_sorted(), "{json}");
            assert!(json["what"].as_str().is_some_and(|what| what.contains("closed loop")), "{json}");
        }
    }
}

#[test]
fn what_cannot_be_is_said_before_anything_is_started() {
    for (arguments, parts) in [
        (&["--transport", "shm", "--cores", "0,0"][..], &["--cores 0,0", "core of its own"][..]),
        (&["--transport", "shm", "--cores", "0,99999"], &["core 99999"]),
        (&["--transport", "udp", "--device", "rxe0"], &["has no RDMA device"]),
        (&["--transport", "shm", "--multicast"], &["--multicast is for rdma-ud"]),
        (&["--transport", "udp", "--address", "192.0.2.77"], &["192.0.2.77", "interface"]),
        (&["--transport", "kernel-tcp", "--address", "192.0.2.77"], &["cannot set up a socket"]),
    ] {
        let output = output("feeds-replay", &[&["ping"], arguments].concat());
        let text = printed(&output);
        assert!(!output.status.success() && output.stdout.is_empty(), "{arguments:?}: {text}");
        for part in parts {
            assert!(text.contains(part), "{part:?} is not in: {text}");
        }
    }
}
