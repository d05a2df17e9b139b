//! The SLA file: what is promised, and under which load. TOML; a key that is not known is refused.

use std::collections::BTreeMap;
use std::path::Path;

use publisher::pace::{Pace, PaceError};
use serde::{Deserialize, Serialize};

use crate::spec::Transport;

/// Subscribers at most.
pub const MAX_SUBSCRIBERS: usize = 8;
/// The shortest block that samples are counted in, ns.
const LEAST_BLOCK_NS: u64 = 10_000;

/// Why a file says no SLA.
#[derive(Debug, thiserror::Error)]
pub enum SlaFileError {
    /// It cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// The system's cause.
        source: std::io::Error,
    },
    /// It is no TOML, or has keys that do not belong there.
    #[error("{path}: {source}")]
    Toml {
        /// The file.
        path: String,
        /// Where, and what is expected.
        source: Box<toml::de::Error>,
    },
    /// It is TOML, and says what cannot be.
    #[error("{path}: case {case}: {what}")]
    Wrong {
        /// The file.
        path: String,
        /// Which case.
        case: String,
        /// What, and what to write instead.
        what: String,
    },
    /// There is no case in it.
    #[error("{0}: there is no [[case]] in it, so nothing is promised")]
    Empty(String),
}

/// What latency a limit is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// From the intended hand-over to the line in the strategy's callback.
    #[default]
    Visible,
    /// From the intended hand-over to the end of the event in the strategy's callback, the book changed.
    Complete,
}

impl Measure {
    /// In words, as reports say it.
    pub const fn name(self) -> &'static str {
        match self {
            Measure::Visible => "line visible, from intended hand-over",
            Measure::Complete => "event complete, from intended hand-over",
        }
    }
}

/// One promise: of so many percent of all records, the latency is at most so much.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Limit {
    /// Percent, such as 99.9.
    pub percentile: f64,
    /// Ns.
    pub at_most_ns: u64,
}

/// A subscriber that is slow by its own doing: the last one of the case.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Hindrance {
    /// Work in the callback of each line, ns.
    pub work_ns: u64,
    /// A stall of the callback, ns…
    pub stall_ns: u64,
    /// … so often, ns; 0: never.
    pub stall_every_ns: u64,
}

/// Which messages of the capture are replayed, and how often.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Choice {
    /// How many times; 0 stands for 1.
    pub loops: u32,
    /// From this time of the venue's day, ns since midnight.
    pub from_ns: Option<u64>,
    /// To this time of the venue's day, ns since midnight.
    pub to_ns: Option<u64>,
    /// These symbols alone; empty: all.
    pub symbols: Vec<String>,
}

/// One load over one transport, and what is promised for it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Case {
    /// Its name, unique in the file.
    pub name: String,
    /// Over what.
    pub transport: Transport,
    /// Subscribing processes; the worst of them is judged.
    pub subscribers: usize,
    /// What the limits are about.
    pub measure: Measure,
    /// By percentile, ascending.
    pub limits: Vec<Limit>,
    /// Lines that may be lost (and named).
    pub gaps_allowed: u64,
    /// How the messages are handed over.
    pub pace: Pace,
    /// Which of them.
    pub choice: Choice,
    /// The last subscriber's own slowness.
    pub hindrance: Hindrance,
    /// Blocks of the bootstrap, ns, before they are made longer where neighbours go together.
    pub block_ns: u64,
}

/// The promises.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SlaFile {
    /// What they are for, in words.
    pub name: String,
    /// Each load with its limits.
    pub cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    name: Option<String>,
    #[serde(default, rename = "case")]
    cases: Vec<RawCase>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCase {
    name: Option<String>,
    transport: Transport,
    #[serde(default = "one")]
    subscribers: usize,
    #[serde(default)]
    measure: Measure,
    limits: BTreeMap<String, String>,
    #[serde(default)]
    gaps_allowed: u64,
    load: RawLoad,
    #[serde(default)]
    capture: RawCapture,
    #[serde(default)]
    slow_subscriber: RawSlow,
    block: Option<String>,
}

#[derive(Deserialize)]
#[serde(tag = "shape", rename_all = "kebab-case", deny_unknown_fields)]
enum RawLoad {
    Captured {
        #[serde(default = "unit")]
        speed: f64,
    },
    Rate {
        messages_per_second: f64,
    },
    Bursts {
        messages: u32,
        every: String,
    },
    Squeezed {
        #[serde(default = "unit")]
        speed: f64,
        every: String,
        width: String,
        factor: f64,
    },
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RawCapture {
    loops: Option<u32>,
    from: Option<String>,
    to: Option<String>,
    #[serde(default)]
    symbols: Vec<String>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RawSlow {
    work: Option<String>,
    stall: Option<String>,
    every: Option<String>,
}

const fn one() -> usize {
    1
}

const fn unit() -> f64 {
    1.0
}

impl SlaFile {
    /// Reads a file.
    ///
    /// # Errors
    /// [`SlaFileError`].
    pub fn read(path: &Path) -> Result<SlaFile, SlaFileError> {
        let shown = path.display().to_string();
        let text =
            std::fs::read_to_string(path).map_err(|source| SlaFileError::Read { path: shown.clone(), source })?;
        SlaFile::parse(&text, &shown)
    }

    /// Reads `text`, which errors call `path`.
    ///
    /// # Errors
    /// [`SlaFileError`], but for [`SlaFileError::Read`].
    pub fn parse(text: &str, path: &str) -> Result<SlaFile, SlaFileError> {
        let raw: Raw = toml::from_str(text)
            .map_err(|source| SlaFileError::Toml { path: path.to_owned(), source: Box::new(source) })?;
        let mut cases: Vec<Case> = Vec::with_capacity(raw.cases.len());
        for (at, raw) in raw.cases.into_iter().enumerate() {
            let name = raw.name.clone().unwrap_or_else(|| format!("{} {}", at + 1, raw.transport.name()));
            let wrong = |what| SlaFileError::Wrong { path: path.to_owned(), case: name.clone(), what };
            if cases.iter().any(|case| case.name == name) {
                return Err(wrong("another case has this name too".into()));
            }
            cases.push(raw.case(name.clone()).map_err(wrong)?);
        }
        if cases.is_empty() {
            return Err(SlaFileError::Empty(path.to_owned()));
        }
        Ok(SlaFile { name: raw.name.unwrap_or_else(|| "latency SLA".into()), cases })
    }
}

impl RawCase {
    fn case(self, name: String) -> Result<Case, String> {
        if !(1..=MAX_SUBSCRIBERS).contains(&self.subscribers) {
            return Err(format!("subscribers = {}: give 1 to {MAX_SUBSCRIBERS}", self.subscribers));
        }
        if self.transport.is_rdma() && self.subscribers != 1 {
            return Err("over RDMA one subscriber is measured: give subscribers = 1".into());
        }
        let pace = match self.load {
            RawLoad::Captured { speed } => Pace::Speed(speed),
            RawLoad::Rate { messages_per_second } => Pace::Rate(messages_per_second),
            RawLoad::Bursts { messages, every } => Pace::Bursts { messages, every_ns: span(&every)? },
            RawLoad::Squeezed { speed, every, width, factor } => {
                Pace::Squeezed { speed, every_ns: span(&every)?, width_ns: span(&width)?, factor }
            }
        };
        let pace = pace.checked().map_err(|error: PaceError| error.to_string())?;
        let mut limits = Vec::with_capacity(self.limits.len());
        for (key, value) in &self.limits {
            let percentile = key.strip_prefix('p').and_then(|number| number.parse::<f64>().ok());
            let percentile = percentile.filter(|p| (1.0..=99.9999).contains(p));
            let Some(percentile) = percentile else {
                return Err(format!("limit {key:?}: name a percentile from p1 to p99.9999, such as \"p99.9\""));
            };
            limits.push(Limit { percentile, at_most_ns: span(value)? });
        }
        if limits.is_empty() {
            return Err("no limits: give at least one, such as limits = { \"p99.9\" = \"1ms\" }".into());
        }
        limits.sort_by(|a, b| a.percentile.total_cmp(&b.percentile));
        let block_ns = self.block.as_deref().map_or(Ok(10_000_000), span)?;
        if block_ns < LEAST_BLOCK_NS {
            return Err(format!("block = {block_ns} ns: give 10us or more"));
        }
        let optional = |text: Option<String>| text.as_deref().map_or(Ok(0), span);
        let slow = self.slow_subscriber;
        if slow.stall.is_some() != slow.every.is_some() {
            return Err("slow_subscriber: stall and every belong together".into());
        }
        let time = |text: Option<String>| text.as_deref().map(time_of_day).transpose();
        let choice = Choice {
            loops: self.capture.loops.unwrap_or(1).max(1),
            from_ns: time(self.capture.from)?,
            to_ns: time(self.capture.to)?,
            symbols: self.capture.symbols,
        };
        if let (Some(from), Some(to)) = (choice.from_ns, choice.to_ns)
            && from >= to
        {
            return Err("capture: from is not before to".into());
        }
        Ok(Case {
            name,
            transport: self.transport,
            subscribers: self.subscribers,
            measure: self.measure,
            limits,
            gaps_allowed: self.gaps_allowed,
            pace,
            choice,
            hindrance: Hindrance {
                work_ns: optional(slow.work)?,
                stall_ns: optional(slow.stall)?,
                stall_every_ns: optional(slow.every)?,
            },
            block_ns,
        })
    }
}

/// A span of time in words, such as `50us` or `1.5ms`, in ns.
///
/// # Errors
/// What is wrong with it.
pub fn span(text: &str) -> Result<u64, String> {
    let trimmed = text.trim();
    let digits = trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(trimmed.len());
    let (number, unit) = (&trimmed[..digits], trimmed[digits..].trim());
    let scale = match unit {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "min" => 60e9,
        _ => return Err(format!("{text:?} is no span of time: give a number with ns, us, ms, s or min")),
    };
    let number: f64 = number.parse().map_err(|_| format!("{text:?} is no span of time: {number:?} is no number"))?;
    let ns = (number * scale).round();
    if (1.0..=86_400e9).contains(&ns) { Ok(ns as u64) } else { Err(format!("{text:?} is not between 1 ns and a day")) }
}

/// `HH:MM`, `HH:MM:SS` or `HH:MM:SS.fraction`, in ns since midnight.
fn time_of_day(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is no time of day: give HH:MM:SS, with a fraction if need be");
    let mut parts = text.split(':');
    let hours: u64 = parts.next().and_then(|part| part.parse().ok()).ok_or_else(wrong)?;
    let minutes: u64 = parts.next().and_then(|part| part.parse().ok()).ok_or_else(wrong)?;
    let seconds = parts.next().unwrap_or("0");
    let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, ""));
    let whole: u64 = whole.parse().map_err(|_| wrong())?;
    if parts.next().is_some() || hours > 23 || minutes > 59 || whole > 59 || fraction.len() > 9 {
        return Err(wrong());
    }
    let nanos: u64 = if fraction.is_empty() { 0 } else { format!("{fraction:0<9}").parse().map_err(|_| wrong())? };
    Ok(((hours * 60 + minutes) * 60 + whole) * 1_000_000_000 + nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINE: &str = r#"
        name = "books for the colocated desk"
        [[case]]
        name = "open"
        transport = "shm"
        limits = { "p99.9" = "50us", "p50" = "1.5us" }
        load = { shape = "captured", speed = 2 }
        capture = { loops = 3, from = "09:30", to = "09:30:10.5", symbols = ["AAPL"] }
        [[case]]
        transport = "udp"
        subscribers = 2
        measure = "complete"
        gaps_allowed = 5
        block = "20ms"
        limits = { "p99" = "1ms" }
        load = { shape = "bursts", messages = 100, every = "1ms" }
        slow_subscriber = { stall = "50ms", every = "1s" }
    "#;

    #[test]
    fn a_file_says_limits_by_percentile_load_and_transport() {
        let file = SlaFile::parse(FINE, "sla.toml").expect("legal");
        let [open, udp] = &file.cases[..] else { panic!("two cases") };
        assert_eq!(
            open.limits,
            [Limit { percentile: 50.0, at_most_ns: 1_500 }, Limit { percentile: 99.9, at_most_ns: 50_000 }]
        );
        assert_eq!((open.pace, open.subscribers, open.gaps_allowed), (Pace::Speed(2.0), 1, 0));
        assert_eq!((open.choice.from_ns, open.choice.to_ns), (Some(34_200_000_000_000), Some(34_210_500_000_000)));
        assert_eq!((open.choice.loops, &open.choice.symbols[..]), (3, &["AAPL".to_owned()][..]));
        assert_eq!(udp.pace, Pace::Bursts { messages: 100, every_ns: 1_000_000 });
        assert_eq!((udp.name.as_str(), udp.measure, udp.block_ns), ("2 udp", Measure::Complete, 20_000_000));
        assert_eq!(udp.hindrance, Hindrance { work_ns: 0, stall_ns: 50_000_000, stall_every_ns: 1_000_000_000 });
    }

    #[test]
    fn what_is_unknown_or_cannot_be_is_refused_by_name() {
        let cases = [
            ("[[case]]\ntransport = \"shm\"\nlimitz = {}\nload = { shape = \"captured\" }", "limitz"),
            (
                "[[case]]\ntransport = \"shm\"\nlimits = { p99 = \"1ms\" }\nload = { shape = \"captured\", rate = 5 }",
                "rate",
            ),
            ("[[case]]\ntransport = \"pigeon\"\nlimits = { p99 = \"1ms\" }\nload = { shape = \"captured\" }", "pigeon"),
            ("[[case]]\ntransport = \"shm\"\nlimits = { median = \"1ms\" }\nload = { shape = \"captured\" }", "median"),
            ("[[case]]\ntransport = \"shm\"\nlimits = { p99 = \"1\" }\nload = { shape = \"captured\" }", "ns, us"),
            ("[[case]]\ntransport = \"shm\"\nlimits = {}\nload = { shape = \"captured\" }", "no limits"),
            (
                "[[case]]\ntransport = \"shm\"\nsubscribers = 9\nlimits = { p99 = \"1ms\" }\nload = { shape = \"captured\" }",
                "subscribers = 9",
            ),
            (
                "[[case]]\ntransport = \"shm\"\nlimits = { p99 = \"1ms\" }\nload = { shape = \"captured\", speed = 0 }",
                "pace",
            ),
            ("name = \"nothing\"", "no [[case]]"),
            ("nome = \"x\"", "nome"),
        ];
        for (text, expected) in cases {
            let error = SlaFile::parse(text, "sla.toml").expect_err(text).to_string();
            assert!(error.contains(expected) && error.contains("sla.toml"), "{expected}: {error}");
        }
    }

    #[test]
    fn spans_and_times_are_exact() {
        assert_eq!(span("1.5 us"), Ok(1_500));
        assert_eq!(span("2min"), Ok(120_000_000_000));
        for bad in ["", "5", "us", "-1us", "1.2.3us", "0ns", "9999999s"] {
            assert!(span(bad).is_err(), "{bad}");
        }
        assert_eq!(time_of_day("23:59:59.999999999"), Ok(86_399_999_999_999));
        for bad in ["24:00", "9", "09:60", "09:30:61", "a:b", "1:2:3:4"] {
            assert!(time_of_day(bad).is_err(), "{bad}");
        }
    }
}
