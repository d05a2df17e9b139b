//! Datagrams: to one queue pair, or by multicast.

use std::net::Ipv4Addr;

use protocol::record::ChannelId;
use transport::RingWriter;
use transport::rdma::{Gid, UdOptions, UdPeer, UdRx, UdRxKeeper, UdTx, UdTxKeeper};

use super::{DEADLINE_NS, Keepers, echo_port, failed};
use crate::ping::PingError;
use crate::ping::lanes::{BACK, Echo, Side, THERE, anonymous};
use crate::ping::rally::Station;
use crate::ping::report::PingReport;
use crate::ping::spec::{At, Port, UdAt, Way};
use crate::roles::Failure;

/// Pings are few: nobody else sends with this key on a network of one's own.
const QKEY: u32 = 0x0B0C_0B1A;
/// Many times what is ever under way.
const RECEIVE_DEPTH: usize = 256;

impl From<UdPeer> for UdAt {
    fn from(peer: UdPeer) -> UdAt {
        UdAt { gid: peer.gid.0, lid: peer.lid, queue_pair: peer.queue_pair, qkey: peer.qkey }
    }
}

impl From<UdAt> for UdPeer {
    fn from(at: UdAt) -> UdPeer {
        UdPeer { gid: Gid(at.gid), lid: at.lid, queue_pair: at.queue_pair, qkey: at.qkey }
    }
}

fn options(port: &Port, group: Ipv4Addr) -> UdOptions {
    UdOptions {
        device: port.device.clone(),
        deadline_ns: DEADLINE_NS,
        receive_depth: RECEIVE_DEPTH,
        ..UdOptions::new(port.address, group, QKEY)
    }
}

/// A receiver: of `group`, or of what is sent to it alone.
fn receiver(
    port: &Port,
    group: Option<Ipv4Addr>,
    channel: ChannelId,
) -> Result<(UdRx, UdRxKeeper), transport::rdma::RdmaError> {
    match group {
        Some(group) => UdRx::open(&options(port, group), channel),
        None => UdRx::open_unicast(&options(port, Ipv4Addr::UNSPECIFIED), channel),
    }
}

/// A sender: to `group`, or to `peer` alone.
fn sender(
    port: &Port,
    group: Option<Ipv4Addr>,
    peer: UdAt,
    ring: &RingWriter,
) -> Result<(UdTx, UdTxKeeper), transport::rdma::RdmaError> {
    match group {
        Some(group) => UdTx::open(&options(port, group), ring),
        None => UdTx::open_to(&options(port, Ipv4Addr::UNSPECIFIED), peer.into(), ring),
    }
}

/// The pinging side. A group for each direction: a sender in the group that it sends to would hear itself.
pub(in crate::ping) fn ping_ud(mut side: Side<'_>) -> Result<PingReport, PingError> {
    let [high, low] = ((std::process::id() % 65_536) as u16).to_be_bytes();
    let groups = side.arguments.multicast.then(|| ([239, 254, high, low].into(), [239, 255, high, low].into()));
    let port = Port { device: side.arguments.device.clone(), address: side.address() };
    let ring = anonymous(THERE)?;
    let (rx, mut rx_keeper) = receiver(&port, groups.map(|groups| groups.1), BACK).map_err(failed)?;
    let (device, address) = echo_port(&side);
    let way = Way::RdmaUd { port: Port { device, address }, groups, ping: rx_keeper.peer().into() };
    let At::Ud(peer) = side.start(way)? else {
        return Err(PingError::set_up("an RDMA lane", "the echo does not say where it is"));
    };
    let (tx, mut tx_keeper) = sender(&port, groups.map(|groups| groups.0), peer, &ring).map_err(failed)?;
    let _keepers = Keepers::start(side.clock(), move |now| {
        rx_keeper.do_work(now);
        tx_keeper.do_work(now);
    });
    side.play(Station { ring, tx, rx })
}

/// The echo.
pub(in crate::ping) fn echo_ud(
    echo: Echo,
    port: &Port,
    groups: Option<(Ipv4Addr, Ipv4Addr)>,
    ping: UdAt,
) -> Result<(), Failure> {
    let ring = anonymous(BACK)?;
    let (rx, mut rx_keeper) = receiver(port, groups.map(|groups| groups.0), THERE)?;
    let (tx, mut tx_keeper) = sender(port, groups.map(|groups| groups.1), ping, &ring)?;
    echo.ready(At::Ud(rx_keeper.peer().into()))?;
    let _keepers = Keepers::start(echo.clock(), move |now| {
        rx_keeper.do_work(now);
        tx_keeper.do_work(now);
    });
    echo.play(Station { ring, tx, rx })
}
