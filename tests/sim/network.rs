//! The virtual network: packets as bytes, and what goes wrong with them.

use std::rc::Rc;

use protocol::line::{Line, Stamp};
use protocol::packet::{self, PacketHeader, Refused};
use protocol::record::{ChannelId, Lane};
use protocol::time::Nanos;
use rand::Rng;
use rand_pcg::Pcg64Mcg;
use zerocopy::{FromBytes, IntoBytes};

/// The one channel there is.
pub(crate) const CHANNEL: ChannelId = ChannelId::new(7);

/// A packet: its header in the second half of the first line's place, so that lines are aligned where they lie.
#[derive(Clone)]
pub(crate) struct Packet(Rc<Vec<Line>>);

impl Packet {
    pub(crate) fn new(lane: usize, next: Stamp, time: Nanos, lines: &[Line], ended: bool) -> Packet {
        let header = PacketHeader::new(CHANNEL, Lane::new(lane as u16), next, time, ended);
        let mut first = [0u8; 64];
        first[32..].copy_from_slice(header.as_bytes());
        let mut all = Vec::with_capacity(lines.len() + 1);
        all.push(Line::read_from_bytes(&first).expect("64 bytes"));
        all.extend_from_slice(lines);
        Packet(Rc::new(all))
    }

    /// How many lines it carries.
    pub(crate) fn lines(&self) -> u64 {
        self.0.len() as u64 - 1
    }

    /// As a receiver checks it.
    pub(crate) fn decode(&self) -> Result<packet::Packet<'_>, Refused> {
        packet::decode(&self.0.as_bytes()[32..], CHANNEL)
    }

    /// With one bit turned round.
    fn corrupted(&self, random: &mut Pcg64Mcg) -> Packet {
        let mut all = self.0.as_ref().clone();
        let bit = random.random_range(32 * 8..all.len() * 64 * 8);
        all.as_mut_bytes()[bit / 8] ^= 1 << (bit % 8);
        Packet(Rc::new(all))
    }
}

/// What can go wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// A packet is lost.
    Loss,
    /// Packets are lost one after the other.
    Burst,
    /// A packet comes twice.
    Duplicate,
    /// A packet is overtaken.
    Reorder,
    /// A packet takes many times as long, and all behind it.
    Delay,
    /// Nothing comes or goes for a time.
    Partition,
    /// A bit of a packet is turned round.
    Corruption,
    /// The publisher, and the recovery server with it, dies and starts in a new epoch.
    PublisherCrash,
    /// The publisher stops for a time.
    PublisherPause,
    /// A subscriber dies and starts anew.
    SubscriberCrash,
    /// A subscriber stops for a time.
    SubscriberPause,
    /// The recovery server stops for a time; its ring may go round.
    ServerPause,
    /// One of two lanes is silent for a time, and sends on with the newest lines.
    LaneDown,
    /// One of two publishers dies while the other lives, and comes back by joining it.
    PairCrash,
    /// One of two publishers goes astray: what it publishes is not what the other does.
    Split,
    /// A host's clock is set.
    ClockStep,
    /// The words of an RDMA write become visible in several pieces.
    TornWrite,
    /// Several lines pile up and go out as one RDMA write.
    Coalesced,
    /// The connection of an RDMA lane breaks; it is made again, with a fresh ring.
    RdmaBroken,
}

impl Fault {
    pub(crate) const ALL: [Fault; 19] = [
        Fault::Loss,
        Fault::Burst,
        Fault::Duplicate,
        Fault::Reorder,
        Fault::Delay,
        Fault::Partition,
        Fault::Corruption,
        Fault::PublisherCrash,
        Fault::PublisherPause,
        Fault::SubscriberCrash,
        Fault::SubscriberPause,
        Fault::ServerPause,
        Fault::LaneDown,
        Fault::PairCrash,
        Fault::Split,
        Fault::ClockStep,
        Fault::TornWrite,
        Fault::Coalesced,
        Fault::RdmaBroken,
    ];
}

/// What a link does to packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    pub(crate) loss: f64,
    pub(crate) duplicate: f64,
    pub(crate) reorder: f64,
    pub(crate) corrupt: f64,
    pub(crate) burst: f64,
    pub(crate) slow: f64,
}

impl Weather {
    pub(crate) const FAIR: Weather =
        Weather { loss: 0.0, duplicate: 0.0, reorder: 0.0, corrupt: 0.0, burst: 0.0, slow: 0.0 };

    /// The losses that the issue of recovery is about, and a little of everything else.
    pub(crate) fn random(random: &mut Pcg64Mcg) -> Weather {
        let loss = [0.001, 0.01, 0.05, 0.2][random.random_range(0..4)];
        let mut some = |most: f64| if random.random_ratio(1, 3) { random.random_range(0.0..most) } else { most / 50.0 };
        Weather {
            loss,
            duplicate: some(0.1),
            reorder: some(0.2),
            corrupt: some(0.05),
            burst: some(0.02),
            slow: some(0.01),
        }
    }
}

/// Time from one end of a link to the other, ns.
pub(crate) const DELAY_NS: u64 = 15_000;

/// One direction of a link.
pub(crate) struct Link {
    pub(crate) weather: Weather,
    burst_left: u32,
    slow_until: u64,
    pub(crate) cut_until: u64,
    last_arrival: u64,
    /// What befalls the next packet, whatever the weather.
    forced: Option<Fault>,
}

impl Link {
    pub(crate) fn new(weather: Weather) -> Link {
        Link { weather, burst_left: 0, slow_until: 0, cut_until: 0, last_arrival: 0, forced: None }
    }

    /// One packet is lost, and a few behind it.
    pub(crate) fn begin_burst(&mut self, packets: u32) {
        self.burst_left = packets;
    }

    /// The next packet is lost, repeated, overtaken or corrupted.
    pub(crate) fn force(&mut self, fault: Fault) {
        self.forced = Some(fault);
    }

    pub(crate) fn slow_down(&mut self, until: u64) {
        self.slow_until = until;
    }

    /// Sends a packet: `arrive` is called for each copy that comes, with its time; `hit` for each fault.
    pub(crate) fn send(
        &mut self,
        packet: &Packet,
        now: u64,
        random: &mut Pcg64Mcg,
        mut hit: impl FnMut(Fault),
        mut arrive: impl FnMut(u64, Packet),
    ) {
        let weather = self.weather;
        let forced = self.forced.take();
        let mut befalls = |fault: Fault, chance: f64| forced == Some(fault) || random.random_bool(chance);
        let (is_lost, is_burst, is_slow) = (
            befalls(Fault::Loss, weather.loss),
            befalls(Fault::Burst, weather.burst),
            befalls(Fault::Delay, weather.slow),
        );
        let is_overtaken = befalls(Fault::Reorder, weather.reorder);
        let (is_corrupt, is_double) =
            (befalls(Fault::Corruption, weather.corrupt), befalls(Fault::Duplicate, weather.duplicate));
        if now < self.cut_until {
            return hit(Fault::Partition);
        }
        if self.burst_left > 0 {
            self.burst_left -= 1;
            return hit(Fault::Burst);
        }
        if is_lost {
            return hit(Fault::Loss);
        }
        if is_burst {
            self.burst_left = random.random_range(1..12);
            return hit(Fault::Burst);
        }
        if is_slow {
            self.slow_until = now + random.random_range(100_000..3_000_000);
        }
        let mut at = now + DELAY_NS + random.random_range(0..4_000);
        if now < self.slow_until {
            hit(Fault::Delay);
            at += random.random_range(5 * DELAY_NS..60 * DELAY_NS);
        }
        if is_overtaken {
            hit(Fault::Reorder);
            at += random.random_range(0..400_000);
        } else {
            // In order, but for those that are overtaken.
            at = at.max(self.last_arrival);
            self.last_arrival = at;
        }
        if is_corrupt {
            hit(Fault::Corruption);
            return arrive(at, packet.corrupted(random));
        }
        if is_double {
            hit(Fault::Duplicate);
            arrive(at + random.random_range(0..1_000_000), packet.clone());
        }
        arrive(at, packet.clone());
    }
}
