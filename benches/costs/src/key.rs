//! What counts depend on beside the code: compiler, target, the processor's features, the C library.
//!
//! Two machines with one key count the same. The processor matters because the C library and some crates choose between
//! variants of a function by its features when a program starts; valgrind passes those on that it knows.

use std::fmt;
use std::io;
use std::process::Command;

use serde::{Deserialize, Serialize};

/// Features by which variants are chosen and which valgrind shows to a program; others change no count.
const WATCHED: [&str; 12] = [
    "sse4_2", "ssse3", "avx", "avx2", "bmi1", "bmi2", "fma", "movbe", "popcnt", "abm", // x86-64
    "asimd", "atomics", // AArch64
];

/// What counts depend on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Key {
    /// Release, commit and LLVM of the compiler, and the flags that were given to it.
    pub compiler: String,
    /// The target triple.
    pub target: String,
    /// The processor's features that matter, by name.
    pub features: String,
    /// The C library.
    pub libc: String,
}

impl Key {
    /// The key of this machine and of the compiler that cargo would use.
    ///
    /// # Errors
    /// If the compiler cannot be asked.
    pub fn here() -> io::Result<Key> {
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let output = Command::new(&rustc).arg("-vV").output()?;
        let version = String::from_utf8_lossy(&output.stdout).into_owned();
        let flags = ["CARGO_ENCODED_RUSTFLAGS", "RUSTFLAGS"].into_iter().find_map(|name| std::env::var(name).ok());
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let libc = Command::new("getconf").arg("GNU_LIBC_VERSION").output();
        let libc = libc.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
        Ok(Key {
            compiler: compiler(&version, flags.as_deref().unwrap_or_default()),
            target: field(&version, "host: ").to_owned(),
            features: features(&cpuinfo),
            libc: if libc.is_empty() { "unknown".to_owned() } else { libc },
        })
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rustc {}, {}, {}, features {}", self.compiler, self.target, self.libc, self.features)
    }
}

fn field<'a>(text: &'a str, name: &str) -> &'a str {
    text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("unknown").trim()
}

fn compiler(version: &str, flags: &str) -> String {
    let commit = field(version, "commit-hash: ");
    let commit = commit.get(..9).unwrap_or(commit);
    let compiler = format!("{} ({commit}) LLVM {}", field(version, "release: "), field(version, "LLVM version: "));
    match flags.replace('\u{1f}', " ").trim() {
        "" => compiler,
        flags => format!("{compiler} with {flags}"),
    }
}

fn features(cpuinfo: &str) -> String {
    let line = cpuinfo.lines().find(|line| line.starts_with("flags") || line.starts_with("Features"));
    let has: Vec<&str> = line.and_then(|line| line.split_once(':')).map_or("", |(_, flags)| flags).split(' ').collect();
    let known: Vec<&str> = WATCHED.into_iter().filter(|feature| has.contains(feature)).collect();
    if known.is_empty() { "none".to_owned() } else { known.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSION: &str = "rustc 1.95.0 (59807616e 2026-04-14)\nbinary: rustc\n\
                           commit-hash: 59807616e1fa2540724bfbac14d7976d7e4a3860\nhost: x86_64-unknown-linux-gnu\n\
                           release: 1.95.0\nLLVM version: 22.1.2\n";

    #[test]
    fn the_compiler_is_named_by_release_commit_llvm_and_flags() {
        assert_eq!(compiler(VERSION, ""), "1.95.0 (59807616e) LLVM 22.1.2");
        let flagged = compiler(VERSION, "-C\u{1f}target-cpu=native");
        assert_eq!(flagged, "1.95.0 (59807616e) LLVM 22.1.2 with -C target-cpu=native");
        assert_eq!(compiler("", ""), "unknown (unknown) LLVM unknown");
    }

    #[test]
    fn only_features_that_matter_are_in_the_key_and_always_in_one_order() {
        let cpuinfo = "processor\t: 0\nflags\t\t: fpu avx2 popcnt avx hypervisor sse4_2\n";
        assert_eq!(features(cpuinfo), "sse4_2 avx avx2 popcnt");
        assert_eq!(features("processor : 0\n"), "none");
    }

    #[test]
    fn this_machine_has_a_key() {
        let key = Key::here().expect("a compiler built this");
        assert_eq!(key, Key::here().expect("a compiler built this"));
        assert!(!key.compiler.contains("unknown") && !key.target.is_empty(), "{key}");
    }
}
