//! What a run consists of, and what its processes tell each other.
//!
//! A run is one parent and, per transport, one publishing and one subscribing child of the same executable. The parent
//! hands each child its [`Spec`] as an argument, waits until both have said [`Ready`], and tells both the [`Start`];
//! each child answers with its report. Everything is one line of JSON each, on the child's standard input and output.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use publisher::filter::Filter;
use publisher::pace::{Pace, Schedule};
use serde::{Deserialize, Serialize};

/// How lines travel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// The publisher's ring in shared memory.
    Shm,
    /// UDP multicast.
    Udp,
    /// RDMA datagrams to a multicast group.
    RdmaUd,
    /// RDMA writes into the subscriber's ring.
    RdmaRc,
    /// Both; the first copy of each line wins.
    Rdma,
}

impl Transport {
    /// Its name, as in options and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Transport::Shm => "shm",
            Transport::Udp => "udp",
            Transport::RdmaUd => "rdma-ud",
            Transport::RdmaRc => "rdma-rc",
            Transport::Rdma => "rdma",
        }
    }

    /// Whether it needs a build with the feature `rdma`, a device, and its address.
    pub const fn is_rdma(self) -> bool {
        matches!(self, Transport::RdmaUd | Transport::RdmaRc | Transport::Rdma)
    }
}

/// Where the messages come from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
// There is one per run.
#[allow(clippy::large_enum_variant)]
pub enum Feed {
    /// A generated ITCH day.
    Generated {
        /// The same seed gives the same day.
        seed: u64,
        /// Securities.
        symbols: u16,
        /// Messages.
        messages: u64,
        /// Time from the first message to the last, ns.
        span_ns: u64,
    },
    /// An ITCH capture.
    File {
        /// Any file that holds a feed.
        path: PathBuf,
        /// Files that follow it.
        #[serde(default)]
        more: Vec<PathBuf>,
        /// What it is, by the name of its kind; left out: by its content.
        #[serde(default)]
        kind: Option<String>,
        /// Which MoldUDP64 session to follow; left out: the first.
        session: Option<String>,
        /// The session's date, `YYYY-MM-DD` or `none`.
        date: Option<String>,
        /// Take a capture that is cut off for one that ends there.
        lenient: bool,
        /// Build books from increments when the capture starts in mid-day.
        natural: bool,
        /// Carry market participant positions too.
        full: bool,
        /// Which part of it is wanted.
        #[serde(default)]
        filter: Filter,
    },
}

/// One run over one transport.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Spec {
    /// Which transport.
    pub transport: Transport,
    /// What is published.
    pub feed: Feed,
    /// How fast.
    pub pace: Pace,
    /// The channel's name, unique on this host.
    pub channel: String,
    /// Lines in the ring.
    pub ring_lines: usize,
    /// The multicast group and port, for UDP.
    pub group: Ipv4Addr,
    /// See `group`.
    pub port: u16,
    /// The RDMA ports, for the transports that need them.
    #[serde(default)]
    pub rdma: Option<RdmaSpec>,
    /// The publisher's control channel, told to the subscriber.
    #[serde(default)]
    pub control: Option<ControlAt>,
    /// The folder for the logs of both, if they are to write them.
    #[serde(default)]
    pub log: Option<PathBuf>,
    /// The mapping from counter ticks to time that all processes of the run share, as text.
    pub clock: String,
    /// The publisher's core and the subscriber's, where there is one for each.
    pub cores: Option<(usize, usize)>,
    /// Sizes of the books: instruments, orders, levels.
    pub books: (usize, usize, usize),
}

/// The ports of a run by RDMA.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RdmaSpec {
    /// The IPv4 address of the publisher's port.
    pub address: Ipv4Addr,
    /// Its device; `None`: whichever has the address.
    pub device: Option<String>,
    /// The IPv4 address of the subscriber's port.
    pub peer_address: Ipv4Addr,
    /// Its device.
    pub peer_device: Option<String>,
}

/// Where a control channel listens, and who it lets in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ControlAt {
    /// Where.
    pub address: SocketAddr,
    /// The token to show.
    pub token: String,
}

/// A child is ready to start.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Ready {
    /// Its process id.
    pub pid: u32,
    /// The first message's own time, ns (the publisher's answer only).
    pub first_ns: u64,
    /// The first message's number in the venue's stream (the publisher's answer only).
    pub first_ordinal: u64,
    /// What the feed's date is, in words (the publisher's answer only).
    pub date: String,
    /// Its control channel, if it has one (the publisher's answer only).
    #[serde(default)]
    pub control: Option<ControlAt>,
    /// Why it is not pinned as asked, or what else is worth knowing.
    pub notes: Vec<String>,
}

/// When the first message is to be handed over, and how the others follow.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Start {
    /// The plan.
    pub schedule: Schedule,
}

/// A distribution, in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Percentiles {
    /// Median.
    pub p50: u64,
    /// 99 of 100.
    pub p99: u64,
    /// 999 of 1,000.
    pub p999: u64,
    /// The highest.
    pub max: u64,
    /// Samples.
    pub count: u64,
}

impl Percentiles {
    /// Of a histogram of ns.
    pub fn of(histogram: &hdrhistogram::Histogram<u64>) -> Percentiles {
        Percentiles {
            p50: histogram.value_at_quantile(0.5),
            p99: histogram.value_at_quantile(0.99),
            p999: histogram.value_at_quantile(0.999),
            max: histogram.max(),
            count: histogram.len(),
        }
    }
}

/// What the publishing child did.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct PublisherReport {
    /// Messages handed over.
    pub messages: u64,
    /// Lines put into the ring.
    pub published: u64,
    /// Book digests among them.
    pub digests: u64,
    /// Hand-over of the first message to that of the last, ns.
    pub took_ns: u64,
    /// The same by the plan; 0 when flat out.
    pub planned_ns: u64,
    /// How far behind the plan each message was handed over.
    pub lag: Percentiles,
    /// Gaps between idle turns: the 99.9th percentile by time, and the longest, ns.
    pub jitter_p999_ns: u64,
    /// See `jitter_p999_ns`.
    pub jitter_max_ns: u64,
    /// How long the scheduler kept this process's loop waiting for its core, ns, by the kernel's own count.
    pub off_core_ns: u64,
    /// Lines that a lane could not send.
    pub send_drops: u64,
    /// Messages that were refused: unknown type or wrong length.
    pub refused: u64,
    /// Messages that named an order that is not in the book.
    pub unknown_orders: u64,
    /// Books that became Suspect.
    pub suspect_books: u64,
    /// What the clock had drifted by at the end, ns.
    pub clock_drift_ns: i64,
    /// Why the feed ended early, if it did.
    pub error: Option<String>,
    /// It was asked to stop.
    pub stopped: bool,
    /// What is worth knowing.
    pub notes: Vec<String>,
}

/// What the subscribing child saw.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct SubscriberReport {
    /// Lines delivered.
    pub delivered: u64,
    /// Lines named as lost.
    pub lost: u64,
    /// Gaps that named them.
    pub gaps: u64,
    /// Holes that another path, or a late packet, filled in time.
    pub holes_filled: u64,
    /// Lines in them.
    pub lines_filled: u64,
    /// The ways that lines came by, and how often each was first.
    pub paths: Vec<PathReport>,
    /// Events of readable books.
    pub events: u64,
    /// Instruments that have a definition.
    pub instruments: u64,
    /// Digests compared with a book that called itself Live or Suspect.
    pub digests_compared: u64,
    /// Of these, how many disagreed.
    pub digests_disagreed: u64,
    /// Digests compared with a Stale book.
    pub digests_stale: u64,
    /// Delivery of each line less its intended hand-over.
    pub visible_from_intended: Percentiles,
    /// End of each event in the handler less its intended hand-over.
    pub complete_from_intended: Percentiles,
    /// Delivery of each line less its actual hand-over.
    pub visible_from_actual: Percentiles,
    /// Lines whose hand-over time could not be told.
    pub publish_time_unknown: u64,
    /// Lines that seem to have come before they were sent: the clocks disagree.
    pub negative: u64,
    /// Gaps between idle turns: the 99.9th percentile by time, and the longest, ns.
    pub jitter_p999_ns: u64,
    /// See `jitter_p999_ns`.
    pub jitter_max_ns: u64,
    /// How long the scheduler kept this process's loop waiting for its core, ns, by the kernel's own count.
    pub off_core_ns: u64,
    /// Datagrams that the kernel dropped.
    pub kernel_drops: u64,
    /// Datagrams that did not verify.
    pub refused_packets: u64,
    /// It saw the end of the stream.
    pub ended: bool,
    /// What is worth knowing.
    pub notes: Vec<String>,
}

/// What one way of several brought.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PathReport {
    /// Its name.
    pub name: String,
    /// Lines that it brought first.
    pub won: u64,
    /// Lines that had come already.
    pub duplicates: u64,
}

/// What a child says at its end.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// The publisher's.
    Publisher(PublisherReport),
    /// The subscriber's.
    Subscriber(SubscriberReport),
    /// It could not do its work: why.
    Failed(String),
}
