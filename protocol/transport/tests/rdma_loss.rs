//! Loss and delay on the wire between two soft devices: RC loses nothing, UD names what it loses, and a subscriber that
//! falls behind gets longer writes, not more of them.

#![forbid(unsafe_code)]

mod rdma_support;

use std::time::{Duration, Instant};

use protocol::arbiter::{Arbiter, ArbiterConfig};
use rdma_support::ud::Account;
use rdma_support::*;
use transport::rdma::{UdOptions, UdRx, UdTx};
use transport::{LaneRx, LaneTx};

const LIMIT: Duration = Duration::from_secs(60);

/// A lane, the arbiter behind it, and what came of it.
struct Subscriber<R> {
    rx: R,
    arbiter: Arbiter,
    account: Account,
}

impl<R: LaneRx> Subscriber<R> {
    fn new(rx: R) -> Subscriber<R> {
        let config = ArbiterConfig { hedge_ns: 2_000_000, early_lines: 1 << 14, ..ArbiterConfig::default() };
        Subscriber { rx, arbiter: Arbiter::new(config), account: Account::default() }
    }

    fn poll(&mut self) -> usize {
        let now = now();
        let lines = self.rx.poll(now, 1 << 12, &mut self.arbiter.sink(now, &mut self.account));
        if self.arbiter.next_timeout().is_some_and(|at| at <= now) {
            self.arbiter.on_timeout(now, &mut self.account);
        }
        lines
    }
}

/// `lines` lines by both lanes, through a wire that loses `percent` of the packets each way.
fn both_lanes(lines: u64, percent: &'static str) {
    let mut ring = ring(1 << 15);
    let group = fresh_group();
    let mut rc = Publisher::open(&rc_options(), &ring);
    let (ticket, reliable) = rc.connect(1 << 15);
    let options = UdOptions { receive_depth: 1024, ..ud_options(THERE, group) };
    let (unreliable, _keeper) = UdRx::open(&options, CHANNEL).expect("a receiver there");
    let (mut ud, _keeper) = UdTx::open(&ud_options(HERE, group), &ring).expect("a sender here");
    let mut reliable = Subscriber::new(reliable);
    let mut unreliable = Subscriber::new(unreliable);
    // The first lines tell both where the stream begins; then the wire goes bad.
    put(&mut ring, 10);
    rc.tx.flush(&ring, now());
    ud.flush(&ring, now());
    let start = Instant::now();
    while reliable.account.next < 11 || unreliable.account.next < 11 {
        assert!(start.elapsed() < LIMIT, "the wire is dead");
        reliable.poll();
        unreliable.poll();
    }
    let _netem = Netem::new(&["w0", "w1"], &["loss", percent]);

    let start = Instant::now();
    let mut beat_at = start;
    while !reliable.account.ended || !unreliable.account.ended {
        assert!(
            start.elapsed() < LIMIT,
            "not done within {LIMIT:?}: RC at {}, UD at {}, of {lines}; {:?}",
            reliable.account.next,
            unreliable.account.next,
            rc.event()
        );
        // A quarter of the ring is slack for the card's retries; beyond it the publisher of a test waits, a real one
        // drops the subscriber.
        let owed = rc.tx.lag(ticket, &ring).expect("connected") + reliable_lag(&reliable, &ring);
        if ring.next().sequence().0 <= lines && owed < 1 << 13 {
            put(&mut ring, 10);
        }
        rc.tx.flush(&ring, now());
        ud.flush(&ring, now());
        if beat_at.elapsed() >= Duration::from_millis(10) {
            beat_at = Instant::now();
            let ended = ring.next().sequence().0 > lines;
            ring.heartbeat(now(), ended);
            rc.tx.heartbeat(&ring, now(), ended);
            ud.heartbeat(&ring, now(), ended);
        }
        if reliable.poll() + unreliable.poll() == 0 {
            std::thread::yield_now();
        }
    }
    let total = ring.head().sequence().0 - 1;
    let took = start.elapsed();
    let lost: u64 = unreliable.account.gaps.iter().map(|(_, count)| count).sum();
    println!(
        "loss {percent} each way, {total} lines in {took:?}: RC {} delivered, {} gaps, {:?}; UD {} delivered, {lost} lost \
         in {} named gaps",
        reliable.account.delivered,
        reliable.account.gaps.len(),
        rc.tx.counters(ticket).expect("connected"),
        unreliable.account.delivered,
        unreliable.account.gaps.len(),
    );
    assert_eq!((reliable.account.delivered, reliable.account.gaps.len()), (total, 0));
    assert_eq!(unreliable.account.delivered + lost, total);
    assert!(lost > 0, "the wire lost nothing: the test shows nothing");
    assert_eq!(unreliable.rx.counters().refused_total(), 0);
    rc.nothing_happened();
}

/// Lines that were published and not yet read.
fn reliable_lag<R>(subscriber: &Subscriber<R>, ring: &transport::RingWriter) -> u64 {
    ring.next().sequence().0 - subscriber.account.next
}

#[test]
fn with_one_percent_loss_rc_loses_nothing_and_ud_names_every_gap() {
    both_lanes(50_000, "1%");
}

#[test]
fn with_ten_percent_loss_rc_loses_nothing_and_ud_names_every_gap() {
    both_lanes(5_000, "10%");
}

#[test]
fn a_full_queue_is_skipped_and_its_backlog_goes_out_as_longer_writes() {
    let mut ring = ring(1 << 14);
    let mut rc = Publisher::open(&rc_options(), &ring);
    let (ticket, rx) = rc.connect(1 << 14);
    rc.tx.flush(&ring, now());
    let mut subscriber = Subscriber::new(rx);
    let _netem = Netem::new(&["w0"], &["delay", "30ms", "limit", "10000"]);
    // Single lines as fast as they go fill the queue long before the first of them has arrived.
    let mut longest = Duration::ZERO;
    let mut turns = 0;
    while rc.tx.counters(ticket).expect("connected").full_queue < 100 {
        assert!(turns < 4_000, "the queue never filled: {:?}", rc.tx.counters(ticket));
        put(&mut ring, 1);
        let start = Instant::now();
        rc.tx.flush(&ring, now());
        longest = longest.max(start.elapsed());
        turns += 1;
    }
    let full = *rc.tx.counters(ticket).expect("connected");
    assert!(rc.tx.lag(ticket, &ring) >= Some(100), "{full:?}");
    rc.nothing_happened();
    let total = ring.head().sequence().0 - 1;
    let start = Instant::now();
    while subscriber.account.next <= total {
        assert!(start.elapsed() < LIMIT, "at {} of {total}; {:?}", subscriber.account.next, rc.event());
        rc.tx.flush(&ring, now());
        if subscriber.poll() == 0 {
            std::thread::yield_now();
        }
    }
    let counters = rc.tx.counters(ticket).expect("connected");
    println!("longest flush {longest:?}; full {full:?}; at the end {counters:?}");
    assert_eq!((subscriber.account.delivered, subscriber.account.gaps.len()), (total, 0));
    // What was owed when the queue was full went out in a few writes of many lines.
    assert!(counters.writes - full.writes <= (counters.lines - full.lines) / 4, "{full:?} {counters:?}");
    // A flush that waited for the wire would take its delay.
    assert!(full.full_queue >= 100);
}
