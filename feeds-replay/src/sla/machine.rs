//! Where a run was taken: what the page discloses.

use std::fs;
use std::io::Read;
use std::path::Path;

use sha2::{Digest, Sha256};
use transport::clock::Clock;

use super::outcome::Disclosure;
use crate::spec::Feed;

/// Words of the kernel's command line that keep others off a core.
const ISOLATING: [&str; 5] = ["isolcpus=", "nohz_full=", "rcu_nocbs=", "irqaffinity=", "nosmt"];

/// What there is to say of this machine, this build and the captures, now.
///
/// # Errors
/// A capture cannot be read.
pub fn disclose(feed: &Feed, clock: Clock) -> std::io::Result<Disclosure> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_once(':')).map_or("", |(_, value)| value.trim())
    };
    let said = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let command_line = said("/proc/cmdline");
    let isolation: Vec<&str> = command_line
        .split_ascii_whitespace()
        .filter(|word| ISOLATING.iter().any(|isolating| word.starts_with(isolating)))
        .collect();
    let governor = said("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    let captures = match feed {
        Feed::Generated { seed, symbols, messages, span_ns } => vec![(
            format!(
                "generated day: seed {seed}, {symbols} symbols, {messages} messages in {} s",
                span_ns / 1_000_000_000
            ),
            String::new(),
        )],
        Feed::File { path, more, .. } => std::iter::once(path)
            .chain(more)
            .map(|path| Ok((path.display().to_string(), hash(path)?)))
            .collect::<std::io::Result<_>>()?,
    };
    Ok(Disclosure {
        command: std::env::args().collect::<Vec<_>>().join(" "),
        captures,
        processor: field("model name").to_owned(),
        is_virtual: field("flags").split(' ').any(|flag| flag == "hypervisor"),
        kernel: said("/proc/sys/kernel/osrelease"),
        isolation: if isolation.is_empty() { "none".into() } else { isolation.join(" ") },
        governor: if governor.is_empty() { "not said by the kernel".into() } else { governor },
        cores: publisher::pin::usable_cores(),
        load: said("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0),
        clock: format!("{}, one calibration for all processes", clock.source()),
        build: format!(
            "feeds-replay {}, {}{}",
            env!("CARGO_PKG_VERSION"),
            if cfg!(debug_assertions) { "a debug build" } else { "a release build" },
            if cfg!(feature = "rdma") { ", with RDMA" } else { "" }
        ),
        began: jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
    })
}

/// The SHA-256 of a file, in hex.
fn hash(path: &Path) -> std::io::Result<String> {
    let mut file = fs::File::open(path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            len => hasher.update(&buffer[..len]),
        }
    }
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_is_named_by_its_hash() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("abc");
        fs::write(&path, "abc").expect("writes");
        // FIPS 180-4, the example of one block.
        assert_eq!(hash(&path).expect("reads"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
