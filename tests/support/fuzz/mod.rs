//! What the fuzz targets do with an input, as plain functions: `fuzz/` gives them whatever libFuzzer thinks of, the
//! ordinary tests give them [`seeds`] and the files in `fuzz/corpus/`.
//!
//! Each takes any bytes, and panics if something is not as it must be: nothing else panics, what is delivered does not
//! depend on how the bytes arrive, lines are whole and in order, and two that follow the same lines have the same books.

pub mod feeds;
pub mod seeds;
pub mod wire;

/// A fuzz target.
pub struct Target {
    /// Its name: that of its program in `fuzz/fuzz_targets/`, and of its folder in `fuzz/corpus/`.
    pub name: &'static str,
    /// What it does with an input.
    pub run: fn(&[u8]),
    /// The inputs that it begins with, each with a name.
    pub seeds: fn() -> Vec<(String, Vec<u8>)>,
}

/// All of them.
pub const TARGETS: [Target; 15] = [
    Target { name: "itch", run: feeds::itch, seeds: seeds::itch },
    Target { name: "itch_message", run: feeds::itch_message, seeds: seeds::itch_message },
    Target { name: "mold", run: feeds::mold, seeds: seeds::mold },
    Target { name: "pcap", run: feeds::pcap, seeds: seeds::pcap },
    Target { name: "pcapng", run: feeds::pcapng, seeds: seeds::pcapng },
    Target { name: "frame", run: feeds::frame, seeds: seeds::frame },
    Target { name: "packed", run: feeds::packed, seeds: seeds::packed },
    Target { name: "dbn", run: feeds::dbn, seeds: seeds::dbn },
    Target { name: "detect", run: feeds::detect, seeds: seeds::detect },
    Target { name: "control", run: wire::control, seeds: seeds::control },
    Target { name: "packet", run: wire::packet, seeds: seeds::packet },
    Target { name: "records", run: wire::records, seeds: seeds::records },
    Target { name: "request", run: wire::request, seeds: seeds::request },
    Target { name: "log", run: wire::log, seeds: seeds::log },
    Target { name: "config", run: wire::config, seeds: seeds::config },
];
