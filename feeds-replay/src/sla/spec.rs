//! What the processes of an SLA run are told, and what they say: a line of JSON each, as in [`crate::spec`].

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::file::{Choice, Hindrance};
use super::verdict::Accounts;
use crate::spec::{Ready, Spec};

/// What a child is started with.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SlaSpec {
    /// Everything that a run over one transport has.
    pub run: Spec,
    /// Which messages, how often.
    pub choice: Choice,
    /// The percentiles that limits are about.
    pub percentiles: Vec<f64>,
    /// Where it puts its logs.
    pub folder: PathBuf,
    /// Which subscriber it is, from 0.
    pub subscriber: usize,
    /// The core it runs on, if there is one for it.
    pub core: Option<usize>,
    /// Its own slowness.
    pub hindrance: Hindrance,
    /// Lines that it keeps samples of, at most.
    pub room: usize,
}

/// What the publishing child found its feed to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Planned {
    /// Messages, all rounds together.
    pub messages: u64,
    /// Each record tells its message's place in the feed (in DBN the sequence is the venue's own).
    pub counts_messages: bool,
}

/// How a thread's loop went.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct LoopReport {
    /// The machine's jitter at each percentile asked for, ns: gaps between idle turns, by time.
    pub jitter_ns: Vec<u64>,
    /// The longest gap between idle turns, ns.
    pub jitter_max_ns: u64,
    /// How long the scheduler kept the loop waiting for its core, ns.
    pub off_core_ns: u64,
    /// Gaps for which there was no room in the log.
    pub gaps_unkept: u64,
    /// What the clock had drifted by at the end, ns.
    pub clock_drift_ns: i64,
    /// Since its calibration, ns.
    pub clock_elapsed_ns: u64,
    /// Within what error that was read, ns.
    pub clock_error_ns: u64,
    /// What is worth knowing.
    pub notes: Vec<String>,
}

/// What the publishing child did.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct SentReport {
    /// Its loop.
    pub turns: LoopReport,
    /// Messages handed over.
    pub messages: u64,
    /// Lines put into the ring.
    pub published: u64,
    /// First hand-over to last by the plan, ns.
    pub planned_ns: u64,
    /// The same as it was, ns.
    pub took_ns: u64,
    /// The sender's lag at each percentile asked for, ns.
    pub lag_ns: Vec<u64>,
    /// Its highest, ns.
    pub lag_max_ns: u64,
    /// Lines that a lane could not send.
    pub send_drops: u64,
    /// Messages that were refused, and those that named an unknown order.
    pub refused: u64,
    /// See `refused`.
    pub unknown_orders: u64,
    /// Why the feed ended early.
    pub error: Option<String>,
    /// It was asked to stop.
    pub stopped: bool,
}

/// What a subscribing child saw.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct SeenReport {
    /// Its loop.
    pub turns: LoopReport,
    /// What it accounts for.
    pub accounts: Accounts,
    /// Gaps that named losses.
    pub gaps: u64,
    /// Events of readable books.
    pub events: u64,
    /// Instruments by number.
    pub symbols: Vec<(u32, String)>,
    /// Datagrams that the kernel dropped, and those that did not verify.
    pub kernel_drops: u64,
    /// See `kernel_drops`.
    pub refused_packets: u64,
    /// What measuring a line costs, the clock apart, ns; and one reading of the clock.
    pub record_cost_ns: f64,
    /// See `record_cost_ns`.
    pub clock_cost_ns: f64,
}

/// How far a subscriber is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Progress {
    /// Which.
    pub subscriber: usize,
    /// Lines measured.
    pub lines: u64,
    /// Of the lines since the last word: median, 99 %, 99.9 %, ns.
    pub p50: u32,
    /// See `p50`.
    pub p99: u32,
    /// See `p50`.
    pub p999: u32,
    /// Lines named as lost, so far.
    pub lost: u64,
}

/// What a child says.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(clippy::large_enum_variant)]
pub enum Said {
    /// It is ready.
    Ready(Ready, Planned),
    /// It goes on.
    Progress(Progress),
    /// The publisher is through.
    Sent(SentReport),
    /// A subscriber is through.
    Seen(SeenReport),
    /// It could not do its work: why.
    Failed(String),
}
