//! Writes: a connection in each direction, each into a ring of the side that reads it.

use std::time::{Duration, Instant};

use protocol::record::{ChannelId, Lane};
use transport::RingWriter;
use transport::clock::Clock;
use transport::rdma::{
    RcOffer, RcOptions, RcRingTx, RcRx, RcRxEvent, RcRxKeeper, RcRxOptions, RcToken, RcTxEvent, RcTxKeeper, RdmaError,
};

use super::{CONNECTING_TURN, DEADLINE_NS, Keepers, echo_port, failed};
use crate::ping::PingError;
use crate::ping::lanes::{BACK, Echo, RING_LINES, Side, THERE, anonymous};
use crate::ping::rally::Station;
use crate::ping::report::PingReport;
use crate::ping::spec::{At, Connected, Port, RcAt, Way};
use crate::roles::{Failure, say};

/// A line that was written and does not become whole within this is lost, and its ping with it.
const HEDGE_NS: u64 = 50_000_000;
/// How long both connections may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

impl From<RcOffer> for RcAt {
    fn from(offer: RcOffer) -> RcAt {
        RcAt { at: offer.at, address: offer.address, key: offer.key, lines: offer.lines }
    }
}

impl From<RcAt> for RcOffer {
    fn from(at: RcAt) -> RcOffer {
        RcOffer { at: at.at, address: at.address, key: at.key, lines: at.lines, from: None }
    }
}

/// Both lanes of one side.
struct Ends {
    tx: RcRingTx,
    tx_keeper: RcTxKeeper,
    rx: RcRx,
    rx_keeper: RcRxKeeper,
}

impl Ends {
    fn open(port: &Port, ring: &RingWriter, channel: ChannelId) -> Result<Ends, RdmaError> {
        let (device, address) = (port.device.clone(), port.address);
        let rx =
            RcRxOptions { device: device.clone(), lines: RING_LINES, hedge_ns: HEDGE_NS, ..RcRxOptions::new(address) };
        let (rx, rx_keeper) = RcRx::open(&rx, channel, Lane::new(0))?;
        let tx = RcOptions {
            device,
            max_peers: 1,
            deadline_ns: DEADLINE_NS,
            // Nobody waits for a sign of life, and it would fall between two pings.
            heartbeat_interval_ns: None,
            connect_limit_ns: CONNECT_LIMIT.as_nanos() as u64,
            ..RcOptions::new(address)
        };
        let (tx, tx_keeper) = RcRingTx::open(&tx, ring)?;
        Ok(Ends { tx, tx_keeper, rx, rx_keeper })
    }

    /// Connects to `peer`, and waits until that has connected to this side too.
    fn connect(&mut self, peer: RcOffer, token: RcToken, clock: Clock) -> Result<(), String> {
        self.tx_keeper.connect(&peer, token, clock.now());
        let (mut sends, mut receives) = (false, false);
        let until = Instant::now() + 2 * CONNECT_LIMIT;
        while !(sends && receives) {
            self.tx_keeper.do_work(clock.now());
            self.rx_keeper.do_work(clock.now());
            match self.tx_keeper.next_event() {
                Some(RcTxEvent::Connected { .. }) => sends = true,
                Some(RcTxEvent::Dropped { why, .. }) => return Err(format!("cannot connect to {}: {why}", peer.at)),
                Some(RcTxEvent::Device(_)) | None => {}
            }
            match self.rx_keeper.next_event() {
                Some(RcRxEvent::Connected { .. }) => receives = true,
                Some(RcRxEvent::Device(_)) | None => {}
                Some(event) => return Err(format!("nobody connected to this side: {event:?}")),
            }
            if Instant::now() > until {
                return Err(format!("no connection in both directions within {} s", 2 * CONNECT_LIMIT.as_secs()));
            }
            std::thread::sleep(CONNECTING_TURN);
        }
        Ok(())
    }

    /// The hot halves, and the thread that turns the others.
    fn start(self, clock: Clock) -> (RcRingTx, RcRx, Keepers) {
        let Ends { tx, mut tx_keeper, rx, mut rx_keeper } = self;
        let keepers = Keepers::start(clock, move |now| {
            tx_keeper.do_work(now);
            rx_keeper.do_work(now);
        });
        (tx, rx, keepers)
    }
}

/// The pinging side.
pub(in crate::ping) fn ping_rc(mut side: Side<'_>) -> Result<PingReport, PingError> {
    let port = Port { device: side.arguments.device.clone(), address: side.address() };
    let ring = anonymous(THERE)?;
    let mut ends = Ends::open(&port, &ring, BACK).map_err(failed)?;
    let token = || RcToken::random().map_err(|error| PingError::set_up("a token", error));
    let (there, back) = (token()?, token()?);
    let offer = ends.rx_keeper.offer().map_err(failed)?;
    ends.rx_keeper.expect(back);
    let (device, address) = echo_port(&side);
    let way = Way::RdmaRc {
        port: Port { device, address },
        ping: offer.into(),
        tokens: (*there.as_bytes(), *back.as_bytes()),
    };
    let At::Rc(peer) = side.start(way)? else {
        return Err(PingError::set_up("an RDMA lane", "the echo does not say where it is"));
    };
    ends.connect(peer.into(), there, side.clock()).map_err(|why| PingError::set_up("an RDMA lane", why))?;
    let Connected {} = side.hear()?;
    let (tx, rx, _keepers) = ends.start(side.clock());
    side.play(Station { ring, tx, rx })
}

/// The echo.
pub(in crate::ping) fn echo_rc(
    echo: Echo,
    port: &Port,
    ping: RcAt,
    (there, back): ([u8; 16], [u8; 16]),
) -> Result<(), Failure> {
    let ring = anonymous(BACK)?;
    let mut ends = Ends::open(port, &ring, THERE)?;
    let offer = ends.rx_keeper.offer()?;
    ends.rx_keeper.expect(RcToken::from_bytes(there));
    echo.ready(At::Rc(offer.into()))?;
    ends.connect(ping.into(), RcToken::from_bytes(back), echo.clock())?;
    say(&Connected {})?;
    let (tx, rx, _keepers) = ends.start(echo.clock());
    echo.play(Station { ring, tx, rx })
}
