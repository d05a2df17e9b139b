//! The two sides of each transport: how their ends are set up, one after the other, until the rally can begin.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use protocol::line::Epoch;
use protocol::record::{ChannelId, Lane};
use publisher::pin::pin;
#[cfg(feature = "rdma")]
use serde::de::DeserializeOwned;
use transport::clock::{Clock, IdleStrategy};
use transport::ring::RingWriter;
use transport::shm::{RingOptions, RxOptions, ShmRx};
use transport::udp::{Interface, UdpOptions, UdpRx, UdpTx};
use transport::{LaneRx, LaneTx};

use super::bare::{Bare, Waiting};
use super::rally::{Pinged, Rally, Station};
use super::report::PingReport;
use super::spec::{At, EchoReady, EchoSpec, Echoed, PingTransport, Way};
use super::{PingArguments, PingError};
use crate::roles::{Failure, say, stop_flag, stop_with_parent};
use crate::run::Process;

/// The echo may have to wait for an RDMA connection, which has a time limit of its own.
const READY_PATIENCE: Duration = Duration::from_secs(60);
/// What it still has to do when it is told to stop.
const END_PATIENCE: Duration = Duration::from_secs(10);
/// Each direction is a channel, so that a lane that hears itself (multicast on one host) drops what it hears.
pub(super) const THERE: ChannelId = ChannelId::new(1);
pub(super) const BACK: ChannelId = ChannelId::new(2);
pub(super) const EPOCH: Epoch = Epoch(1);
/// Lines of each ring: many times what is ever under way.
pub(super) const RING_LINES: usize = 1 << 12;

/// The ring of one direction, in memory of this process alone.
pub(super) fn anonymous(channel: ChannelId) -> Result<RingWriter, PingError> {
    let ring = RingWriter::anonymous(channel, Lane::new(0), EPOCH, RING_LINES);
    ring.map_err(|error| PingError::set_up("a ring", error))
}

fn udp_options(group: Ipv4Addr, port: u16, interface: Ipv4Addr) -> UdpOptions {
    let ttl = u8::from(!interface.is_loopback());
    UdpOptions { ttl, ..UdpOptions::new(group, port, Interface::Address(interface)) }
}

/// The pinging side, from before the echo is started to its end.
pub(super) struct Side<'a> {
    pub(super) arguments: &'a PingArguments,
    cores: Option<(usize, usize)>,
    clock: Clock,
    stop: &'a AtomicBool,
    echo: Option<Process>,
    ready: Option<EchoReady>,
}

impl Side<'_> {
    pub(super) fn address(&self) -> Ipv4Addr {
        self.arguments.address.unwrap_or(Ipv4Addr::LOCALHOST)
    }

    pub(super) fn peer_address(&self) -> Ipv4Addr {
        self.arguments.peer_address.unwrap_or(self.address())
    }

    #[cfg(feature = "rdma")]
    pub(super) fn clock(&self) -> Clock {
        self.clock
    }

    /// Starts the echo, and waits until its receiving half stands: where that is.
    pub(super) fn start(&mut self, way: Way) -> Result<At, PingError> {
        let core = self.cores.map(|(_, echo)| echo);
        let spec = EchoSpec { way, clock: self.clock.to_parts().to_string(), core };
        let mut echo = Process::start("echo", &spec)?;
        let ready: EchoReady = echo.hear(READY_PATIENCE)?;
        let at = ready.at.clone();
        (self.echo, self.ready) = (Some(echo), Some(ready));
        Ok(at)
    }

    /// Tells the echo something, and hears what it answers.
    #[cfg(feature = "rdma")]
    pub(super) fn hear<T: DeserializeOwned>(&mut self) -> Result<T, PingError> {
        let echo = self.echo.as_mut().expect("the echo was started");
        Ok(echo.hear(READY_PATIENCE)?)
    }

    /// Both ends stand: plays, and brings both sides' accounts together.
    pub(super) fn play<T: LaneTx, R: LaneRx>(mut self, mut station: Station<T, R>) -> Result<PingReport, PingError> {
        let (mut echo, ready) = self.echo.take().zip(self.ready.take()).expect("the echo was started");
        // Counted before this thread is pinned to one of them.
        let cores = (self.cores, publisher::pin::usable_cores().len());
        let idle = match self.cores {
            Some((core, _)) => {
                pin(core).map_err(|error| PingError::Asked(error.to_string()))?;
                IdleStrategy::Spin
            }
            None => IdleStrategy::Yield,
        };
        let PingArguments { warmup, count, size: lines, .. } = *self.arguments;
        let pinged: Pinged = station.ping(Rally { warmup, count, lines, idle }, self.clock, self.stop)?;
        echo.say(&"stop")?;
        let echoed: Echoed = echo.hear(END_PATIENCE)?;
        Ok(PingReport::new(self.arguments, cores, self.clock, (ready.pid, echoed), &pinged))
    }
}

/// Sets the pinging side up as asked, and plays.
pub(super) fn ping(
    arguments: &PingArguments,
    cores: Option<(usize, usize)>,
    clock: Clock,
    stop: &Arc<AtomicBool>,
) -> Result<PingReport, PingError> {
    let mut side = Side { arguments, cores, clock, stop, echo: None, ready: None };
    let pid = std::process::id();
    match arguments.transport {
        PingTransport::Shm => {
            let name = format!("ping-{pid}");
            let options = RingOptions::new(&name, THERE, Lane::new(0), EPOCH, RING_LINES);
            let ring = RingWriter::create(&options).map_err(|error| PingError::set_up("a ring", error))?;
            side.start(Way::Shm { name: name.clone() })?;
            let rx = ShmRx::open(RxOptions::new(&name, Lane::new(1)));
            let rx = rx.map_err(|error| PingError::set_up("the way back", error))?;
            side.play(Station { ring, tx: (), rx })
        }
        PingTransport::Udp => {
            let [high, low] = ((pid % 65_536) as u16).to_be_bytes();
            let group = Ipv4Addr::new(239, 255, high, low);
            let first = 20_000 + 2 * (pid % 20_000) as u16;
            let ports = (first, first + 1);
            let ring = anonymous(THERE)?;
            let failed = |error| PingError::set_up("the UDP lane", error);
            let rx = UdpRx::open(&udp_options(group, ports.1, side.address()), BACK).map_err(failed)?;
            let tx = UdpTx::open(&udp_options(group, ports.0, side.address()), &ring).map_err(failed)?;
            side.start(Way::Udp { group, ports, interface: side.peer_address() })?;
            side.play(Station { ring, tx, rx })
        }
        PingTransport::KernelUdp | PingTransport::KernelTcp => {
            let is_tcp = arguments.transport == PingTransport::KernelTcp;
            let failed = |error| PingError::set_up("a socket", error);
            let (waiting, ping) = Waiting::open(is_tcp, side.address()).map_err(failed)?;
            let At::Socket(peer) = side.start(Way::Kernel { is_tcp, ping, at: side.peer_address() })? else {
                return Err(PingError::set_up("a socket", "the echo does not say where it is"));
            };
            let ring = anonymous(THERE)?;
            let (tx, rx) = waiting.meet(peer).and_then(|bare| bare.split(&ring)).map_err(failed)?;
            side.play(Station { ring, tx, rx })
        }
        #[cfg(feature = "rdma")]
        PingTransport::RdmaUd => super::rdma::ping_ud(side),
        #[cfg(feature = "rdma")]
        PingTransport::RdmaRc => super::rdma::ping_rc(side),
        #[cfg(not(feature = "rdma"))]
        PingTransport::RdmaUd | PingTransport::RdmaRc => Err(PingError::NotBuilt(arguments.transport)),
    }
}

/// The echo: its own end of the way that its specification names, until it is told to stop.
///
/// # Errors
/// Whatever keeps it from its work, in words for the pinging side to print.
pub(crate) fn echo(spec: &str) -> Result<(), Failure> {
    let spec: EchoSpec = serde_json::from_str(spec)?;
    let clock = Clock::from_parts(&spec.clock.parse()?)?;
    let stop = stop_flag()?;
    let echo = Echo { core: spec.core, clock, stop };
    match spec.way {
        Way::Shm { name } => {
            let rx = ShmRx::open(RxOptions::new(&name, Lane::new(0)))?;
            let ring = RingWriter::create(&RingOptions::new(&name, BACK, Lane::new(1), EPOCH, RING_LINES))?;
            echo.ready(At::AsTold)?;
            echo.play(Station { ring, tx: (), rx })
        }
        Way::Udp { group, ports, interface } => {
            let ring = anonymous(BACK)?;
            let rx = UdpRx::open(&udp_options(group, ports.0, interface), THERE)?;
            let tx = UdpTx::open(&udp_options(group, ports.1, interface), &ring)?;
            echo.ready(At::AsTold)?;
            echo.play(Station { ring, tx, rx })
        }
        Way::Kernel { is_tcp, ping, at } => {
            let ring = anonymous(BACK)?;
            let (bare, at) = Bare::connect(is_tcp, at, ping)?;
            let (tx, rx) = bare.split(&ring)?;
            echo.ready(At::Socket(at))?;
            echo.play(Station { ring, tx, rx })
        }
        #[cfg(feature = "rdma")]
        Way::RdmaUd { port, groups, ping } => super::rdma::echo_ud(echo, &port, groups, ping),
        #[cfg(feature = "rdma")]
        Way::RdmaRc { port, ping, tokens } => super::rdma::echo_rc(echo, &port, ping, tokens),
        #[cfg(not(feature = "rdma"))]
        Way::RdmaUd { .. } | Way::RdmaRc { .. } => Err("this build has no RDMA".into()),
    }
}

/// What the echo is, whichever its ends.
pub(super) struct Echo {
    core: Option<usize>,
    clock: Clock,
    stop: Arc<AtomicBool>,
}

impl Echo {
    /// Says that the receiving half stands.
    pub(super) fn ready(&self, at: At) -> Result<(), Failure> {
        say(&EchoReady { pid: std::process::id(), at })
    }

    #[cfg(feature = "rdma")]
    pub(super) fn clock(&self) -> Clock {
        self.clock
    }

    pub(super) fn play<T: LaneTx, R: LaneRx>(self, mut station: Station<T, R>) -> Result<(), Failure> {
        stop_with_parent(&self.stop);
        let idle = match self.core {
            Some(core) => {
                pin(core)?;
                IdleStrategy::Spin
            }
            None => IdleStrategy::Yield,
        };
        let echoed = station.echo(idle, self.clock, &self.stop);
        say(&echoed)
    }
}
