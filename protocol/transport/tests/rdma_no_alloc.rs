//! After set-up, neither half of an RDMA lane allocates. What libibverbs and its driver do in C is not seen here.
//!
//! A program of its own, because the allocator is counted for the whole process: one test, one thread.

mod counting;
mod rdma_support;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use protocol::line::Stamp;
use protocol::run::{LanePath, LossCause, Position, Run, RunSink};
use rdma_support::*;
use transport::rdma::{DropReason, Fabric, RcOffer, RcOptions, RcRxKeeper, RcToken, RcTxEvent, RcTxKeeper, UdRx, UdTx};
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
    let mut ring = ring(1 << 14);
    let options = RcOptions { heartbeat_interval_ns: Some(1_000_000), ..rc_options() };
    let Publisher { tx: mut rc, keeper, .. } = Publisher::open(&options, &ring);
    let mut there = Subscriber::open(1 << 14);
    let (offer, token) = there.offer();
    let Subscriber { rx: mut reliable, keeper: there } = there;
    let has_datagrams = fabric() != Fabric::Iwarp;
    let group = fresh_group();
    let mut unreliable = has_datagrams.then(|| {
        let (ud, here) = UdTx::open(&ud_options(HERE, group), &ring).expect("a sender here");
        let (rx, mut there) = UdRx::open(&ud_options(THERE, group), CHANNEL).expect("a receiver there");
        there.expect(vec![here.source()]);
        (ud, rx, (here, there))
    });
    let (mut seen_rc, mut seen_ud) = (Count::default(), Count::default());
    let (connected, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    counting::check();
    let allocations = std::thread::scope(|scope| {
        // The keepers allocate as they like, in a thread of their own. One more subscriber comes and goes, again and again:
        // that allocates nothing in the hot halves either.
        let keepers = scope.spawn(|| turn_keepers(keeper, there, &offer, token, (&connected, &stop)));
        let start = Instant::now();
        counting::start();
        for turn in 0.. {
            if (turn >= 2000 && connected.load(Ordering::Relaxed) >= 4) || start.elapsed() > LIMIT {
                break;
            }
            let now = now();
            put(&mut ring, 1 + turn % 40);
            rc.flush(&ring, now);
            reliable.poll(now, 1 << 20, &mut seen_rc);
            if let Some((ud, rx, _)) = &mut unreliable {
                ud.flush(&ring, now);
                ud.heartbeat(&ring, now, false);
                rx.poll(now, 1 << 20, &mut seen_ud);
            }
            let start = Instant::now();
            // The first, which stays; one that is gone is told of by its keeper, and handed back in a flush.
            while rc.peers().next().is_some_and(|ticket| rc.under_way(ticket) > Some(100))
                && start.elapsed().as_secs() < 10
            {
                std::thread::yield_now();
                rc.reap();
            }
        }
        let allocations = counting::stop();
        stop.store(true, Ordering::Relaxed);
        // Whoever ends a connection waits for the hot half to hand it back.
        while !keepers.is_finished() {
            rc.flush(&ring, now());
            reliable.poll(now(), 1 << 20, &mut seen_rc);
            std::thread::yield_now();
        }
        keepers.join().expect("the keepers came to their end");
        allocations
    });
    let connected = connected.into_inner();
    println!("{connected} connections came and went; {} lines, {} positions", seen_rc.lines, seen_rc.positions);
    assert_eq!(allocations, 0, "allocations in the hot halves");
    assert!(connected >= 4, "{connected} connections");
    let is_enough = |seen: &Count, positions| seen.lines > 10_000 && seen.positions > positions;
    assert!(is_enough(&seen_rc, 10), "{} lines, {} positions", seen_rc.lines, seen_rc.positions);
    if has_datagrams {
        assert!(is_enough(&seen_ud, 1000), "{} lines, {} positions", seen_ud.lines, seen_ud.positions);
    }
}

/// Connects the first subscriber, then further ones that go away again, until it is told to stop; counts them.
fn turn_keepers(
    mut tx: RcTxKeeper,
    mut rx: RcRxKeeper,
    offer: &RcOffer,
    token: RcToken,
    (connected, stop): (&AtomicUsize, &AtomicBool),
) {
    tx.connect(offer, token, now());
    let mut other: Option<Subscriber> = None;
    let start = Instant::now();
    while !stop.load(Ordering::Relaxed) || tx.sessions() > 1 {
        assert!(start.elapsed() < 3 * LIMIT, "no end of it");
        tx.do_work(now());
        rx.do_work(now());
        if let Some(other) = &mut other {
            other.keeper.do_work(now());
        }
        match tx.next_event() {
            // The first stays.
            Some(RcTxEvent::Connected { .. }) if connected.fetch_add(1, Ordering::Relaxed) > 0 => other = None,
            Some(RcTxEvent::Dropped { why: DropReason::TimeLimit { .. }, .. }) => panic!("not connected"),
            _ => {}
        }
        if connected.load(Ordering::Relaxed) > 0
            && tx.sessions() == 1
            && other.is_none()
            && !stop.load(Ordering::Relaxed)
        {
            let mut subscriber = Subscriber::open(1 << 10);
            let (offer, token) = subscriber.offer();
            tx.connect(&offer, token, now());
            other = Some(subscriber);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
