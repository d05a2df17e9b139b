//! The UD lane: one send for every subscriber at once.
//!
//! The same packets as over UDP, sent by the card straight from the publisher's ring: each is gathered from a header and
//! one or two pieces of the ring's own memory, which is registered once and gives nobody else any rights. A datagram is
//! never sent again here: what is lost shows to the subscriber as a gap in the stamps.
//!
//! A payload above the port's active MTU would be taken, completed with success, and never delivered; a wrong Q_Key and an
//! empty receive queue are as silent. So lengths are checked here, and everything is counted.
//!
//! The hot halves are in `tx` and `rx`; both keepers share the state machine in `keeper`.

mod keeper;
mod rx;
mod tx;

use std::net::Ipv4Addr;
use std::sync::Arc;

use protocol::line::LINE_LEN;
use protocol::packet::{HEADER_LEN, MAX_LINES};

use super::completion::{Reaction, Status};
use super::device::{Fabric, Gid};
use super::error::RdmaError;
use super::event::{AsyncEvent, EventKind};
use super::local::LocalPort;
use super::multicast::GroupAddress;
use crate::memory::Mapping;

pub use keeper::{UdEvent, UdKeeperCounters};
pub use rx::{UdRx, UdRxCounters, UdRxKeeper};
pub use tx::{UdTx, UdTxCounters, UdTxKeeper};

/// Bytes that a card puts before each datagram received: the global routing header, or 20 unused bytes and an IPv4 header.
pub const GRH_LEN: usize = 40;
/// One send in so many asks for a completion: enough to learn in time that the queue is free again.
const SENDS_PER_SIGNAL: u64 = 64;
/// The least send queue: two times what goes without a signal.
const LEAST_DEPTH: usize = 128;
/// The longest packet.
const PACKET_LEN: usize = HEADER_LEN + MAX_LINES * LINE_LEN;
/// Where a receive buffer begins: 40 bytes of GRH and 32 of header then end at a multiple of 64, and lines are aligned.
const BUFFER_OFFSET: usize = 56;
/// From one receive buffer to the next: 65 lines, so that they do not all begin in the same set of the cache.
const BUFFER_STRIDE: usize = 65 * LINE_LEN;
/// Completions taken at once.
const BATCH: usize = 32;
/// Orders from a keeper that wait for its hot half.
const ORDERS: usize = 8;
/// What comes back: all that can ever be under way, so that giving back never fails.
const RETURNS: usize = 2 * ORDERS;

const _: () = assert!((BUFFER_OFFSET + GRH_LEN + HEADER_LEN).is_multiple_of(LINE_LEN));
const _: () = assert!(BUFFER_OFFSET + GRH_LEN + PACKET_LEN <= BUFFER_STRIDE);

/// A sender of datagrams, as receivers see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdSource {
    /// Its port.
    pub gid: Gid,
    /// Its queue pair.
    pub queue_pair: u32,
}

/// A queue pair that receives datagrams meant for it alone: what a sender must know ([`UdTx::open_to`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdPeer {
    /// Its port's GID.
    pub gid: Gid,
    /// Its port's LID on InfiniBand; 0 on Ethernet.
    pub lid: u16,
    /// Its number.
    pub queue_pair: u32,
    /// The key that datagrams to it must carry.
    pub qkey: u32,
}

/// Where a UD lane's traffic goes, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UdOptions {
    /// The device; `None`: whichever has the address.
    pub device: Option<String>,
    /// The IPv4 address of the port to send from or to receive on.
    pub address: Ipv4Addr,
    /// The multicast group, 224.0.0.0/4.
    pub group: Ipv4Addr,
    /// The key that datagrams carry on RoCE, below 2^31; receivers drop all others without a word. It prevents accidents,
    /// it is no security. On InfiniBand the group's own is used.
    pub qkey: u32,
    /// How many routers a packet may pass, itself included.
    pub hop_limit: u8,
    /// Work requests in the send queue; at least 128.
    pub send_depth: usize,
    /// How long a send that asked for a completion may go without one before the lane counts as failed.
    pub deadline_ns: u64,
    /// Receive buffers: peak rate times the worst stall of the receiver. When none is left, datagrams are dropped without
    /// a word. 4,160 bytes each.
    pub receive_depth: usize,
    /// Lines in a packet at most; `None`: as many as the port carries. A sender puts no more into one. A receiver whose port
    /// does not carry so many is refused: it would miss the longer packets without a word.
    pub max_lines: Option<usize>,
}

impl UdOptions {
    /// For one network: hop limit 1, a send queue of 256, a deadline of 100 ms, 2,048 receive buffers (8.5 MB).
    pub fn new(address: Ipv4Addr, group: Ipv4Addr, qkey: u32) -> UdOptions {
        UdOptions {
            device: None,
            address,
            group,
            qkey,
            hop_limit: 1,
            send_depth: 256,
            deadline_ns: 100_000_000,
            receive_depth: 2048,
            max_lines: None,
        }
    }

    /// The group's own key where there is a subnet manager, else ours.
    fn qkey_of(&self, local: &LocalPort, group: Option<&GroupAddress>) -> u32 {
        match (local.fabric, group) {
            (Fabric::InfiniBand, Some(group)) => group.qkey,
            _ => self.qkey,
        }
    }

    /// Fails unless `local` can carry datagrams, and packets of `lines` lines.
    fn require_port(&self, local: &LocalPort, lines: usize) -> Result<(), RdmaError> {
        local.require_datagrams()?;
        local.require_mtu(HEADER_LEN + lines.clamp(1, MAX_LINES) * LINE_LEN)
    }

    fn require(&self, local: &LocalPort, what: &'static str, value: usize, least: usize) -> Result<(), RdmaError> {
        let most = local.device.limits().queue_depth.min(local.device.limits().completions);
        if (least..=most).contains(&value) {
            return Ok(());
        }
        let allowed = format!("from {least} to {most}");
        Err(RdmaError::Limit { device: local.device.name().to_owned(), what, value: value as u64, allowed })
    }
}

/// The most lines of a packet on a port of this MTU: 15 at 1024, 63 at 4096.
pub fn lines_per_packet(mtu: usize) -> usize {
    (mtu.saturating_sub(HEADER_LEN) / LINE_LEN).min(MAX_LINES)
}

/// Why a UD lane failed. Its keeper builds it anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UdFailure {
    /// A send or a receive ended with an error.
    #[error("it ended with {0}: {next}", next = .0.next_step())]
    Completion(Status),
    /// A send did not end in time: the device hangs.
    #[error("a send has not ended after {waited_ns} ns; see the kernel's log for the device")]
    Deadline {
        /// How long it has been under way.
        waited_ns: u64,
    },
    /// The device did not take a send or a receive buffer, for another reason than a full queue.
    #[error("the device did not take a work request: error {errno}; see the kernel's log for the device")]
    NotPosted {
        /// The system's number.
        errno: i32,
    },
    /// The device said so by an event.
    #[error("{text}; see the kernel's log for the device", text = .0.text())]
    Event(EventKind),
}

impl UdFailure {
    /// Whether it is this program's own fault, and to be reported.
    pub fn is_own_fault(self) -> bool {
        matches!(self, UdFailure::Completion(status) if status.reaction() == Reaction::OwnFault)
    }
}

/// Pages of our own for a device.
fn slab(local: &LocalPort, len: usize) -> Result<Arc<Mapping>, RdmaError> {
    match Mapping::anonymous(len.next_multiple_of(crate::memory::PAGE_LEN)) {
        Ok((mapping, _)) => Ok(Arc::new(mapping)),
        Err(source) => Err(RdmaError::System {
            device: local.device.name().to_owned(),
            what: "map memory for buffers",
            source,
            next: "ask for fewer buffers, or free memory",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fifteen_lines_fit_1024_bytes_and_63_fit_4096() {
        for (mtu, lines) in [(0, 0), (95, 0), (96, 1), (256, 3), (1024, 15), (2048, 31), (4096, 63), (9000, 63)] {
            assert_eq!(lines_per_packet(mtu), lines, "{mtu}");
        }
    }

    #[test]
    fn two_lines_and_a_header_go_inline() {
        assert_eq!((super::super::queue_pair::UD_INLINE - HEADER_LEN) / LINE_LEN, 2);
    }
}
