//! The transports, and what the two processes tell each other: JSON lines, on the echo's standard input and output.

use std::net::{Ipv4Addr, SocketAddrV4};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// How pings travel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum PingTransport {
    /// Rings in shared memory.
    Shm,
    /// UDP multicast.
    Udp,
    /// RDMA UD datagrams.
    RdmaUd,
    /// RDMA RC writes into a ring of the other side.
    RdmaRc,
    /// For comparison: the bare line over a connected UDP socket of the kernel.
    KernelUdp,
    /// For comparison: the bare line over a TCP connection of the kernel.
    KernelTcp,
}

impl PingTransport {
    /// Its name, as in options and reports.
    pub const fn name(self) -> &'static str {
        match self {
            PingTransport::Shm => "shm",
            PingTransport::Udp => "udp",
            PingTransport::RdmaUd => "rdma-ud",
            PingTransport::RdmaRc => "rdma-rc",
            PingTransport::KernelUdp => "kernel-udp",
            PingTransport::KernelTcp => "kernel-tcp",
        }
    }

    /// Whether it needs an RDMA device.
    pub const fn is_rdma(self) -> bool {
        matches!(self, PingTransport::RdmaUd | PingTransport::RdmaRc)
    }
}

/// What the echo is started with.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct EchoSpec {
    /// Where its two ends are.
    pub(crate) way: Way,
    /// The mapping from counter ticks to time that both processes share, as text.
    pub(crate) clock: String,
    /// Its core; `None` to yield on whichever.
    pub(crate) core: Option<usize>,
}

/// The ends of a transport, as the echo must know them to set up its own.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Way {
    /// Two rings of this name: lane 0 there, lane 1 back.
    Shm {
        /// The channel's name.
        name: String,
    },
    /// One group, a port for each direction.
    Udp {
        /// The group.
        group: Ipv4Addr,
        /// The port there, and the one back.
        ports: (u16, u16),
        /// The echo's own interface, by its address.
        interface: Ipv4Addr,
    },
    /// Sockets: where the pinging side is, and the echo's own address.
    Kernel {
        /// A connection, not datagrams.
        is_tcp: bool,
        /// The pinging side's socket.
        ping: SocketAddrV4,
        /// The echo's address.
        at: Ipv4Addr,
    },
    /// Datagrams.
    RdmaUd {
        /// The echo's port.
        port: Port,
        /// The group there, and the one back; `None` for datagrams to one queue pair.
        groups: Option<(Ipv4Addr, Ipv4Addr)>,
        /// The pinging side's queue pair.
        ping: UdAt,
    },
    /// Writes.
    RdmaRc {
        /// The echo's port.
        port: Port,
        /// What the pinging side offers.
        ping: RcAt,
        /// What the connection there must present, and what the one back.
        tokens: ([u8; 16], [u8; 16]),
    },
}

/// A port, as one names it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Port {
    /// The device; `None`: whichever has the address.
    pub(crate) device: Option<String>,
    /// Its address.
    pub(crate) address: Ipv4Addr,
}

/// Where datagrams are received: `UdPeer`, as plain data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct UdAt {
    /// The port's GID.
    pub(crate) gid: [u8; 16],
    /// The port's LID.
    pub(crate) lid: u16,
    /// The queue pair's number.
    pub(crate) queue_pair: u32,
    /// The key that datagrams must carry.
    pub(crate) qkey: u32,
}

/// Where writes go: `RcOffer`, as plain data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct RcAt {
    /// Where a connection is awaited.
    pub(crate) at: SocketAddrV4,
    /// Where the ring begins.
    pub(crate) address: u64,
    /// The key that lets it be written.
    pub(crate) key: u32,
    /// Its places.
    pub(crate) lines: u64,
}

/// What the echo says when its receiving half stands.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct EchoReady {
    /// Its process id.
    pub(crate) pid: u32,
    /// Where to send, if that was not known before.
    pub(crate) at: At,
}

/// Where the echo's receiving half is.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum At {
    /// Where it was told to be.
    AsTold,
    /// At this socket.
    Socket(SocketAddrV4),
    /// At this queue pair.
    Ud(UdAt),
    /// In this ring.
    Rc(RcAt),
}

/// What the echo says when both connections are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(not(feature = "rdma"), expect(dead_code, reason = "connections are RDMA's"))]
pub(crate) struct Connected {}

/// What the echo has done, said at its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Echoed {
    /// Lines sent back.
    pub(crate) lines: u64,
    /// Lines that its lane named as lost.
    pub(crate) lost: u64,
    /// From its first turn to its last, ns.
    pub(crate) took_ns: u64,
    /// How long the scheduler kept it waiting for its core meanwhile, ns.
    pub(crate) off_core_ns: u64,
}

/// A distribution of times, in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Times {
    /// The shortest.
    pub min: u64,
    /// Median.
    pub p50: u64,
    /// 99 of 100.
    pub p99: u64,
    /// 999 of 1,000.
    #[serde(rename = "p99.9")]
    pub p999: u64,
    /// The longest.
    pub max: u64,
    /// Samples.
    pub count: u64,
}

impl Times {
    /// Of a histogram of ns.
    pub fn of(histogram: &hdrhistogram::Histogram<u64>) -> Times {
        Times {
            min: if histogram.is_empty() { 0 } else { histogram.min() },
            p50: histogram.value_at_quantile(0.5),
            p99: histogram.value_at_quantile(0.99),
            p999: histogram.value_at_quantile(0.999),
            max: histogram.max(),
            count: histogram.len(),
        }
    }

    /// Half of each time.
    pub fn half(self) -> Times {
        let Times { min, p50, p99, p999, max, count } = self;
        Times { min: min / 2, p50: p50 / 2, p99: p99 / 2, p999: p999 / 2, max: max / 2, count }
    }
}
