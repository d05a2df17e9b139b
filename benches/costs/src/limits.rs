//! LIMITS.toml: what each piece may cost, by key; and how a count compares.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::key::Key;
use crate::pieces::STEPS;

/// Instructions of [`STEPS`] steps, by the piece's name.
pub type Counts = BTreeMap<String, u64>;

/// A rise above this part of the limit is a failure, in thousandths.
pub const MOST_RISE_PER_MILLE: u64 = 10;

/// What LIMITS.toml begins with.
const HEADER: &str = "\
# What the pieces of the hot path may cost: instructions of 1,000 steps each, counted by callgrind. `cargo run -p costs`
# compares, and a rise above 1 % fails. Counts depend on the compiler and on the processor's features, so there is one table
# for each key that was measured. After a change that is worth what it costs:
#   cargo run -p costs -- update --reason \"why\"
# and the same reason in the commit.
";

/// Why limits cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum LimitsError {
    /// The file.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// The system's cause.
        source: io::Error,
    },
    /// What it says.
    #[error("{}: {source}; it is written by `cargo run -p costs -- update`", path.display())]
    Malformed {
        /// Which.
        path: PathBuf,
        /// Where and what.
        source: Box<toml::de::Error>,
    },
}

/// The limits of one key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// Where they hold.
    #[serde(flatten)]
    pub key: Key,
    /// Why they are what they are.
    pub reason: String,
    /// The limits.
    pub instructions: Counts,
}

/// Every limit that is checked in.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Limits {
    /// By key.
    #[serde(default)]
    pub limits: Vec<Entry>,
}

impl Limits {
    /// Reads the file; one that is not there has no limits.
    ///
    /// # Errors
    /// [`LimitsError`].
    pub fn read(path: &Path) -> Result<Limits, LimitsError> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(Limits::default()),
            Err(source) => return Err(LimitsError::Io { path: path.to_owned(), source }),
        };
        toml::from_str(&text)
            .map_err(|source| LimitsError::Malformed { path: path.to_owned(), source: Box::new(source) })
    }

    /// The limits of this key.
    pub fn of(&self, key: &Key) -> Option<&Entry> {
        self.limits.iter().find(|entry| entry.key == *key)
    }

    /// Puts the limits of a key in the place of those that it had.
    pub fn set(&mut self, key: Key, reason: String, instructions: Counts) {
        self.limits.retain(|entry| entry.key != key);
        self.limits.push(Entry { key, reason, instructions });
    }

    /// The file's text.
    pub fn text(&self) -> String {
        let tables = toml::to_string(self).expect("tables of strings and numbers");
        format!("{HEADER}\n{tables}")
    }
}

/// How a count compares with its limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Within a hundredth of it, either way.
    Same,
    /// More than a hundredth above it.
    Risen,
    /// More than a hundredth below it.
    Fallen,
    /// It has no limit.
    NoLimit,
    /// There is a limit, and nothing was counted.
    NotCounted,
}

/// One piece, compared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Compared {
    /// Which.
    pub name: String,
    /// What it may cost.
    pub limit: Option<u64>,
    /// What it costs.
    pub count: Option<u64>,
    /// How they compare.
    pub verdict: Verdict,
}

/// Compares what was counted with limits, piece by piece.
pub fn compare(limits: &Counts, counts: &Counts) -> Vec<Compared> {
    let mut names: Vec<&String> = limits.keys().chain(counts.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let one = |name: &String| {
        let (limit, count) = (limits.get(name).copied(), counts.get(name).copied());
        let verdict = match (limit, count) {
            (Some(limit), Some(count)) if 1000 * count > (1000 + MOST_RISE_PER_MILLE) * limit => Verdict::Risen,
            (Some(limit), Some(count)) if 1000 * count < (1000 - MOST_RISE_PER_MILLE) * limit => Verdict::Fallen,
            (Some(_), Some(_)) => Verdict::Same,
            (None, _) => Verdict::NoLimit,
            (_, None) => Verdict::NotCounted,
        };
        Compared { name: name.clone(), limit, count, verdict }
    };
    names.into_iter().map(one).collect()
}

/// A table of what was compared, in instructions a step.
pub fn table(compared: &[Compared]) -> String {
    let mut out = format!("{:<24} {:>10} {:>10}\n", "instructions a step", "now", "limit");
    for Compared { name, limit, count, verdict } in compared {
        let number = |count: &Option<u64>| count.map_or("-".to_owned(), |count| format!("{:.1}", per_step(count)));
        let change = match (limit, count) {
            (Some(limit), Some(count)) => format!("{:+.2} %", (*count as f64 / *limit as f64 - 1.0) * 100.0),
            _ => String::new(),
        };
        let said = match verdict {
            Verdict::Same => "",
            Verdict::Risen => "RISEN",
            Verdict::Fallen => "fallen",
            Verdict::NoLimit => "no limit yet",
            Verdict::NotCounted => "not counted",
        };
        let line = format!("{name:<24} {:>10} {:>10} {change:>9}  {said}", number(count), number(limit));
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

fn per_step(count: u64) -> f64 {
    count as f64 / STEPS as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(compiler: &str) -> Key {
        Key {
            compiler: compiler.to_owned(),
            target: "x86_64-unknown-linux-gnu".to_owned(),
            features: "avx2".to_owned(),
            libc: "glibc 2.36".to_owned(),
        }
    }

    fn counts(pairs: &[(&str, u64)]) -> Counts {
        pairs.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    #[test]
    fn a_rise_of_more_than_a_hundredth_is_one_and_no_less_is() {
        let limits = counts(&[("a", 100_000), ("b", 100_000), ("c", 100_000), ("d", 100_000), ("gone", 7)]);
        let now = counts(&[("a", 101_000), ("b", 101_001), ("c", 99_000), ("d", 98_999), ("new", 7)]);
        let verdicts: Vec<(String, Verdict)> =
            compare(&limits, &now).into_iter().map(|compared| (compared.name, compared.verdict)).collect();
        let wanted = [
            ("a", Verdict::Same),
            ("b", Verdict::Risen),
            ("c", Verdict::Same),
            ("d", Verdict::Fallen),
            ("gone", Verdict::NotCounted),
            ("new", Verdict::NoLimit),
        ];
        assert_eq!(verdicts, wanted.map(|(name, verdict)| (name.to_owned(), verdict)));
        let table = table(&compare(&limits, &now));
        assert!(table.contains("b                             101.0      100.0   +1.00 %  RISEN"), "{table}");
    }

    #[test]
    fn limits_are_found_by_their_key_alone_and_survive_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("LIMITS.toml");
        assert_eq!(Limits::read(&path).expect("no file is no limits"), Limits::default());
        let mut limits = Limits::default();
        limits.set(key("1"), "first".into(), counts(&[("line seal", 66_045)]));
        limits.set(key("2"), "first".into(), counts(&[("line seal", 70_000)]));
        limits.set(key("1"), "a longer hash".into(), counts(&[("line seal", 68_000)]));
        std::fs::write(&path, limits.text()).expect("writes");
        let read = Limits::read(&path).expect("what was written");
        assert_eq!(read, limits);
        assert_eq!(read.of(&key("1")).map(|entry| entry.instructions["line seal"]), Some(68_000));
        assert_eq!(read.of(&key("3")), None);
        std::fs::write(&path, "limits = 3").expect("writes");
        assert!(Limits::read(&path).expect_err("malformed").to_string().contains("costs -- update"));
    }

    #[test]
    fn the_checked_in_limits_can_be_read_and_have_a_reason_each() {
        let limits = Limits::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("LIMITS.toml")).expect("readable");
        assert!(!limits.limits.is_empty());
        for entry in limits.limits {
            assert!(!entry.reason.is_empty() && entry.instructions.len() >= 10, "{}", entry.key);
        }
    }
}
