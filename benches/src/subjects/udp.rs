//! One line through the datagram lane.

use protocol::line::{Epoch, Line};
use protocol::record::{ChannelId, InstrumentId, Kind, Lane, Record};
use transport::clock::Clock;
use transport::shm::SetupError;
use transport::udp::{Interface, UdpError, UdpOptions, UdpRx, UdpTx};
use transport::{LaneRx, LaneTx, RingWriter};

use super::ring::Seen;
use crate::handover::{Arrival, Receiver, Sender};

/// Why the datagram lane cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum UdpLineError {
    /// The ring that it sends from.
    #[error(transparent)]
    Ring(#[from] SetupError),
    /// The lane itself.
    #[error(transparent)]
    Udp(#[from] UdpError),
}

/// One line through the publisher's ring and a packet of its own, by multicast over loopback with TTL 0: sealed, put,
/// flushed, sent; received, its header and line verified, handed to a sink.
///
/// # Errors
/// [`UdpLineError`], if ring or lane cannot be set up.
pub fn udp_line(place: u16) -> Result<(impl Sender, impl Receiver), UdpLineError> {
    let (group, port) = super::own_group(place);
    let options = UdpOptions { ttl: 0, ..UdpOptions::new(group, port, Interface::LOOPBACK) };
    let channel = ChannelId::new(1);
    let ring = RingWriter::anonymous(channel, Lane::new(0), Epoch(1), 1 << 12)?;
    let rx = UdpRx::open(&options, channel)?;
    let tx = UdpTx::open(&options, &ring)?;
    let record = Record::new(Kind::ADD, InstrumentId(1));
    Ok((UdpSender { ring, tx, record }, UdpReceiver { rx }))
}

struct UdpSender {
    ring: RingWriter,
    tx: UdpTx,
    record: Record,
}

impl Sender for UdpSender {
    #[inline(always)]
    fn send(&mut self, clock: Clock) {
        let now = clock.now();
        self.record.ts_event.set(now.0);
        let line = Line::seal(self.record, self.ring.next());
        self.ring.put(&line);
        self.ring.flush();
        self.tx.flush(&self.ring, now);
    }
}

struct UdpReceiver {
    rx: UdpRx,
}

impl Receiver for UdpReceiver {
    #[inline(always)]
    fn poll(&mut self, clock: Clock) -> Option<Arrival> {
        let mut sink = Seen { clock, arrival: None };
        self.rx.poll(clock.now(), 256, &mut sink);
        sink.arrival
    }
}
