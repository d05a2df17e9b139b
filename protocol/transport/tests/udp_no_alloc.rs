//! After set-up, neither half of a UDP lane, nor the fault injector around one, allocates.
//!
//! A program of its own, because the allocator is counted for the whole process: one test, one thread.

mod counting;

use std::net::Ipv4Addr;

use protocol::line::{Epoch, Line, Stamp};
use protocol::record::{ChannelId, InstrumentId, Kind, Lane, Record};
use protocol::run::{LanePath, LossCause, Position, Run, RunSink};
use protocol::time::Nanos;
use transport::fault::{FaultInjector, FaultPlan};
use transport::ring::RingWriter;
use transport::udp::{Interface, UdpOptions, UdpRx, UdpTx};
use transport::{LaneRx, LaneTx};

#[derive(Default)]
struct Count {
    lines: u64,
    positions: u64,
}

impl RunSink for Count {
    fn on_run(&mut self, run: Run<'_>) {
        self.lines += run.lines.len() as u64;
    }
    fn on_position(&mut self, _: Position) {
        self.positions += 1;
    }
    fn on_loss(&mut self, _: LanePath, _: Stamp, _: u64, _: LossCause) {}
}

#[test]
fn the_loops_allocate_nothing() {
    let [.., high, low] = std::process::id().to_be_bytes();
    let mut options = UdpOptions::new(Ipv4Addr::new(239, 255, high, low), 21_000, Interface::LOOPBACK);
    options.ttl = 0;
    let channel = ChannelId::new(1);
    let mut ring = RingWriter::anonymous(channel, Lane::new(0), Epoch(1), 1024).expect("a ring without a name");
    let mut tx = UdpTx::open(&options, &ring).expect("sender");
    let mut plain = UdpRx::open(&options, channel).expect("receiver");
    let plan = FaultPlan {
        drop: 0.05,
        duplicate: 0.05,
        reorder: 0.1,
        delay: 0.1,
        corrupt: 0.05,
        truncate: 0.05,
        ..FaultPlan::seeded(9)
    };
    let mut faulty = FaultInjector::new(UdpRx::open(&options, channel).expect("receiver"), plan);
    let (mut seen, mut seen_faulty) = (Count::default(), Count::default());

    counting::check();
    counting::start();
    for turn in 0..2000 {
        let now = Nanos(turn * 10_000);
        for _ in 0..1 + turn % 40 {
            let line = Line::seal(Record::new(Kind::ADD, InstrumentId(1)), ring.next());
            ring.put(&line);
        }
        ring.flush();
        tx.flush(&ring, now);
        tx.heartbeat(&ring, now, false);
        plain.poll(now, 1 << 20, &mut seen);
        faulty.poll(now, 1 << 20, &mut seen_faulty);
    }
    assert_eq!(counting::stop(), 0, "allocations in 2000 turns");
    assert!(seen.lines > 10_000 && seen.positions > 1000, "{} lines, {} positions", seen.lines, seen.positions);
    assert!(seen_faulty.lines > 10_000 && faulty.counts().dropped > 10, "{:?}", faulty.counts());
}
