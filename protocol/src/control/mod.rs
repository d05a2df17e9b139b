//! The control channel: what a subscriber asks a publisher before the first line, over any byte stream.
//!
//! Frames of JSON, each behind its length. A peer shows who it is first (a token that both were configured with), in
//! bounded time and memory; then it may ask which channels there are and how to get them. [`ServerSession`] and
//! [`ClientSession`] are the two ends without I/O: bytes and `now` go in, bytes and requests or replies come out.
//!
//! ```text
//!  client                                   server
//!  "BKCCTRL1"  Hello { token, name }   ──►
//!                                      ◄──  Welcome { … }            or Refused { why }, then the end
//!  Directory                           ──►
//!                                      ◄──  Directory { channels }
//!  Instruments { channel, after }      ──►
//!                                      ◄──  Instruments { … }
//!  Connect { channel, ring }           ──►
//!                                      ◄──  Granted { token }; the publisher's card then connects to the ring
//!                                           and presents the token
//!  Disconnect { channel }              ──►
//!                                      ◄──  Disconnected
//!  Recover { channel, ring }           ──►
//!                                      ◄──  Recovery { connection, key, token }; requests then go to the recovery server,
//!                                           by datagrams that bear this key; answers come the same way, or into the ring
//!                                           if there is one, which a connection of the card's with this token writes
//!  Position { channel, next, … }       ──►  for who wants to be tracked: no answer
//!                                      ◄──  Dropped { … }, Changed { … }, Behind { … }   unasked, when it happens
//! ```
//!
//! A session that holds a connection for its client lives as long as the client wants; when it ends, so does the
//! connection.

mod frame;
mod session;

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use frame::{FrameError, HEADER_LEN, MAX_BODY_LEN, MAX_HELLO_LEN};
pub use session::{ClientSession, Close, HELLO_PATIENCE_NS, IDLE_PATIENCE_NS, MAX_OUTPUT_LEN, ServerSession};

/// What a client sends before its first frame; the digit is the version.
pub const PREFACE: [u8; 8] = *b"BKCCTRL1";

/// The most instruments in one reply.
pub const INSTRUMENTS_PER_REPLY: usize = 256;

/// What a client asks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Who it is: the first thing it says.
    Hello {
        /// The token that server and client were configured with.
        token: String,
        /// What it calls itself, for the server's messages.
        name: String,
    },
    /// Which channels there are, and how to get them.
    Directory,
    /// Which instruments a channel has, in order of id, those after `after`.
    Instruments {
        /// The channel.
        channel: u16,
        /// The last id known already; 0 for all.
        after: u32,
    },
    /// To be written to by RDMA: here is a ring, and who listens for the connection. A second one of the same session and
    /// channel replaces the first.
    Connect {
        /// The channel.
        channel: u16,
        /// The ring, in the client's own memory.
        ring: RingOffer,
    },
    /// To be written to no more.
    Disconnect {
        /// The channel.
        channel: u16,
    },
    /// To be let into the recovery server, for as long as this session lives. A second one of the same session and channel
    /// replaces the first.
    Recover {
        /// The channel.
        channel: u16,
        /// Where answers are to be written by RDMA; without it they come as datagrams. What it wants next says nothing here.
        #[serde(default)]
        ring: Option<RingOffer>,
    },
    /// How far it has read: said now and then, it is told when its ring is nearly full ([`Reply::Behind`]). The only request
    /// that is not answered.
    Position {
        /// The channel.
        channel: u16,
        /// The stamp of the line that it reads next.
        next: u64,
        /// Lines of the ring that it reads, where that is not the publisher's own.
        #[serde(default)]
        ring_lines: Option<u64>,
    },
}

/// A ring in a subscriber's memory that a publisher may write by RDMA.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RingOffer {
    /// Where the subscriber listens for the RDMA connection: the address of its port, and a port of the connection
    /// manager's.
    pub at: SocketAddrV4,
    /// Where the ring begins in the subscriber's memory.
    pub address: u64,
    /// The key that lets it be written.
    pub key: u32,
    /// Places of the ring.
    pub lines: u64,
    /// The stamp of the line that it wants next, if it had a connection before: what was published meanwhile is written
    /// too, where it is still there.
    #[serde(default)]
    pub from: Option<u64>,
}

/// What an RDMA connection presents, once, to be let in: sixteen bytes that nobody can guess.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OneTimeToken(pub [u8; 16]);

/// What stands in each recovery request of one connection: eight bytes that nobody can guess. It keeps strangers out, and
/// is no secret to whoever can read along.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestKey(pub u64);

/// Says that there is one, and not what it is.
impl fmt::Debug for RequestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RequestKey(..)")
    }
}

/// What a server answers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The token is known.
    Welcome {
        /// The server's process id, to name it by.
        pid: u32,
    },
    /// The channels.
    Directory {
        /// Each of them.
        channels: Vec<ChannelInfo>,
    },
    /// Some instruments of a channel.
    Instruments {
        /// The channel.
        channel: u16,
        /// At most [`INSTRUMENTS_PER_REPLY`], in order of id.
        instruments: Vec<InstrumentInfo>,
        /// There are more: ask again after the last of these.
        more: bool,
        /// Definitions may be missing: the server itself lost lines of this channel.
        incomplete: bool,
    },
    /// The ring offered will be connected to, by somebody who presents this token.
    Granted {
        /// Good for one connection.
        token: OneTimeToken,
    },
    /// The ring is written to no more.
    Disconnected,
    /// The recovery server expects requests of this connection, at [`RecoveryInfo::at`].
    Recovery {
        /// The connection's number: it stands in each request, and in the stamp of each line of a reply. Never 0.
        connection: u16,
        /// What stands in each of its requests.
        key: RequestKey,
        /// If a ring was offered: what its connection will present, good for one.
        #[serde(default)]
        token: Option<OneTimeToken>,
    },
    /// Unasked: the connection to the client's ring could not be made, or is over: to the ring of lines, or of answers.
    Dropped {
        /// The channel.
        channel: u16,
        /// Why.
        why: String,
    },
    /// Unasked, once in a session: the client said how far it has read, and is about to lose lines. It is tracked no more.
    Behind {
        /// The channel.
        channel: u16,
        /// Lines between it and the newest.
        lines: u64,
        /// Lines of its ring.
        ring_lines: u64,
    },
    /// Unasked: the channels are reached in another way than before.
    Changed {
        /// Each of them.
        channels: Vec<ChannelInfo>,
    },
    /// The request is refused.
    Refused {
        /// Why, and what to do next.
        why: String,
    },
}

/// One lane of one channel.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChannelInfo {
    /// The channel's name.
    pub name: String,
    /// Its number, as packets carry it.
    pub id: u16,
    /// Which path of the channel this is.
    pub lane: u16,
    /// The epoch published in.
    pub epoch: u16,
    /// How often a sign of life comes, ns.
    pub heartbeat_ns: u64,
    /// Whether books start from increments when the feed starts in mid-day: the subscriber must do the same.
    pub natural_start: bool,
    /// The ring in shared memory, for subscribers on the same host.
    pub shared_memory: Option<SharedMemoryInfo>,
    /// The multicast group, if it is sent by UDP.
    pub udp: Option<UdpInfo>,
    /// How to get it by RDMA.
    #[serde(default)]
    pub rdma: Option<RdmaInfo>,
    /// The recovery server, if there is one.
    #[serde(default)]
    pub recovery: Option<RecoveryInfo>,
}

/// Where lost lines and snapshots are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RecoveryInfo {
    /// Where requests go, by UDP. An address of all zeros stands for the control channel's own.
    pub at: SocketAddrV4,
    /// The most lines that are kept to be sent again.
    pub history_lines: u64,
    /// The most lines a second that one subscriber is sent.
    pub lines_per_second: u64,
}

/// A ring in shared memory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SharedMemoryInfo {
    /// The folder of the ring's file.
    pub directory: PathBuf,
    /// Lines in the ring.
    pub lines: u64,
}

/// A UDP multicast lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UdpInfo {
    /// The group.
    pub group: Ipv4Addr,
    /// The port.
    pub port: u16,
    /// The MTU that packets are made for, bytes.
    pub mtu: u32,
}

/// A channel by RDMA.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RdmaInfo {
    /// The address of the port that it is sent from.
    pub address: Ipv4Addr,
    /// Datagrams to a group, where the fabric has them: iWARP has none.
    pub ud: Option<UdInfo>,
    /// Writes into subscribers' rings, if any are made.
    pub rc: Option<RcInfo>,
}

/// An RDMA multicast group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UdInfo {
    /// The group.
    pub group: Ipv4Addr,
    /// The key that its datagrams carry.
    pub qkey: u32,
    /// The most bytes of a datagram: the sender's MTU. A receiver's own must not be less.
    pub mtu: u32,
    /// The sender's GID: datagrams of others are dropped.
    pub source_gid: Ipv6Addr,
    /// The sender's queue pair.
    pub source_queue_pair: u32,
}

/// Writes into subscribers' rings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RcInfo {
    /// Lines in the publisher's own ring: a subscriber's need not be longer.
    pub lines: u64,
    /// The most subscribers at one time.
    pub max_subscribers: u32,
}

/// One instrument.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InstrumentInfo {
    /// Its number in the records.
    pub id: u32,
    /// The venue's symbol, empty if it is not known.
    pub symbol: String,
}
