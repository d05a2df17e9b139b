//! The few things that differ from transport to transport.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU16, Ordering};

use protocol::line::Epoch;
use protocol::record::{ChannelId, Lane};
use tempfile::TempDir;
use transport::fault::{FaultInjector, FaultPlan};
use transport::link::{LinkOptions, LinkRx, LinkTx};
use transport::ring::{RingReader, RingWriter, StartAt};
use transport::shm::{RingOptions, RxOptions, ShmRx};
use transport::udp::{Interface, UdpOptions, UdpRx, UdpTx};
use transport::{LaneRx, LaneTx};

/// All rings of the suite.
pub(crate) const CHANNEL: ChannelId = ChannelId::new(300);
pub(crate) const LANE: Lane = Lane::new(1);
pub(crate) const EPOCH: Epoch = Epoch(5);

/// A transport under test. It must hold back at least 1000 lines for a reader that is not polled, and at most 10,000.
pub(crate) trait Harness {
    type Tx: LaneTx;
    type Rx: LaneRx;

    /// Whether the lane itself says which lines it will not deliver. Where it does not, a jump in the stamps does.
    const DECLARES_LOSSES: bool;

    /// A new ring of `capacity` lines, and a lane that carries it.
    fn make(&mut self, capacity: usize) -> (RingWriter, Self::Tx, Self::Rx);

    /// A further reader of the lane made last, which is to get the lines flushed from now on.
    fn join(&mut self, ring: &RingWriter, tx: &mut Self::Tx) -> Self::Rx;
}

pub(crate) fn ring(capacity: usize) -> RingWriter {
    RingWriter::anonymous(CHANNEL, LANE, EPOCH, capacity).expect("a ring without a name")
}

/// Packets in a queue, in virtual time.
pub(crate) struct Link;

impl Harness for Link {
    type Tx = LinkTx;
    type Rx = LinkRx;
    const DECLARES_LOSSES: bool = false;

    fn make(&mut self, capacity: usize) -> (RingWriter, LinkTx, LinkRx) {
        let ring = ring(capacity);
        let options = LinkOptions { queue_packets: 128, delay_ns: 25_000, ..LinkOptions::default() };
        let (tx, rx) = transport::link::link(&ring, options);
        (ring, tx, rx)
    }

    fn join(&mut self, _: &RingWriter, tx: &mut LinkTx) -> LinkRx {
        tx.receiver()
    }
}

/// Datagrams on the loopback interface, each lane with a port of its own.
#[derive(Default)]
pub(crate) struct Udp {
    options: Option<UdpOptions>,
}

impl Udp {
    fn receiver(&self) -> UdpRx {
        UdpRx::open(self.options.as_ref().expect("made before joined"), CHANNEL).expect("a receiver on loopback")
    }
}

impl Harness for Udp {
    type Tx = UdpTx;
    type Rx = UdpRx;
    const DECLARES_LOSSES: bool = false;

    fn make(&mut self, capacity: usize) -> (RingWriter, UdpTx, UdpRx) {
        static PORT: AtomicU16 = AtomicU16::new(0);
        let [.., high, low] = std::process::id().to_be_bytes();
        let port = 12_000 + PORT.fetch_add(1, Ordering::Relaxed);
        let mut options = UdpOptions::new(Ipv4Addr::new(239, 255, high, low), port, Interface::LOOPBACK);
        options.ttl = 0;
        // About 220 packets, by the kernel's accounting.
        options.receive_buffer = 256 << 10;
        let ring = ring(capacity);
        let tx = UdpTx::open(&options, &ring).expect("a sender on loopback");
        self.options = Some(options);
        (ring, tx, self.receiver())
    }

    fn join(&mut self, _: &RingWriter, _: &mut UdpTx) -> UdpRx {
        self.receiver()
    }
}

/// The ring itself, read in place within the process: its lane has nothing to send.
pub(crate) struct Ring;

/// As configured by default. With one thread a line that was flushed is whole at once, so it should never run out.
const HEDGE_NS: u64 = 200_000;

impl Harness for Ring {
    type Tx = ();
    type Rx = RingReader;
    const DECLARES_LOSSES: bool = true;

    fn make(&mut self, capacity: usize) -> (RingWriter, (), RingReader) {
        let ring = ring(capacity);
        let rx = ring.reader(StartAt::Oldest, HEDGE_NS);
        (ring, (), rx)
    }

    fn join(&mut self, ring: &RingWriter, (): &mut ()) -> RingReader {
        ring.reader(StartAt::Newest, HEDGE_NS)
    }
}

/// The ring in a file of its own, which readers find by name and map read-only.
#[derive(Default)]
pub(crate) struct Shm {
    /// Of the ring made last; removed with this.
    dir: Option<TempDir>,
}

impl Shm {
    const NAME: &str = "conformance";

    fn reader(&self, start: StartAt) -> ShmRx {
        let dir = self.dir.as_ref().map(|dir| dir.path().to_owned());
        let options = RxOptions { dir, start, hedge_ns: HEDGE_NS, ..RxOptions::new(Shm::NAME, LANE) };
        ShmRx::open(options).expect("a reader of the file")
    }
}

impl Harness for Shm {
    type Tx = ();
    type Rx = ShmRx;
    const DECLARES_LOSSES: bool = true;

    fn make(&mut self, capacity: usize) -> (RingWriter, (), ShmRx) {
        let dir = tempfile::tempdir().expect("a directory of its own");
        let mut options = RingOptions::new(Shm::NAME, CHANNEL, LANE, EPOCH, capacity);
        options.dir = Some(dir.path().to_owned());
        let ring = RingWriter::create(&options).expect("a ring in a file");
        self.dir = Some(dir);
        (ring, (), self.reader(StartAt::Oldest))
    }

    fn join(&mut self, _: &RingWriter, (): &mut ()) -> ShmRx {
        self.reader(StartAt::Newest)
    }
}

/// Another transport, with its readers wrapped in a fault injector.
pub(crate) struct Faulty<H> {
    inner: H,
    plan: FaultPlan,
}

impl<H> Faulty<H> {
    pub(crate) fn new(inner: H, plan: FaultPlan) -> Faulty<H> {
        Faulty { inner, plan }
    }

    /// With a fault injector that does nothing.
    pub(crate) fn harmless(inner: H) -> Faulty<H> {
        Faulty::new(inner, FaultPlan::none())
    }
}

impl<H: Harness> Harness for Faulty<H> {
    type Tx = H::Tx;
    type Rx = FaultInjector<H::Rx>;
    const DECLARES_LOSSES: bool = H::DECLARES_LOSSES;

    fn make(&mut self, capacity: usize) -> (RingWriter, Self::Tx, Self::Rx) {
        let (ring, tx, rx) = self.inner.make(capacity);
        (ring, tx, FaultInjector::new(rx, self.plan.clone()))
    }

    fn join(&mut self, ring: &RingWriter, tx: &mut Self::Tx) -> Self::Rx {
        FaultInjector::new(self.inner.join(ring, tx), self.plan.clone())
    }
}
