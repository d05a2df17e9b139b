//! What a line costs the publisher: one work request and one doorbell by UD, however many subscribers there are; one of each
//! for every subscriber by RC. Counted, and asserted; the times are printed beside, and claim nothing but their order.

#![forbid(unsafe_code)]

mod rdma_support;

use std::time::{Duration, Instant};

use protocol::run::RunSink;
use rdma_support::*;
use transport::rdma::{Fabric, UdRx, UdTx};
use transport::{LaneRx, LaneTx, RingWriter};

const SUBSCRIBERS: [usize; 4] = [1, 2, 4, 8];
/// Lines, each flushed by itself and awaited by every subscriber, so that none can go out together with the next.
const LINES: usize = 200;
/// No wrap: a write that wraps is two.
const PLACES: usize = 1024;

/// How long the publisher was in its flush, and how long it took until the last subscriber had the line.
#[derive(Default)]
struct Times {
    flush: Vec<Duration>,
    last: Vec<Duration>,
}

impl Times {
    fn print(mut self, how: &str, subscribers: usize, work_requests: u64, doorbells: u64) {
        let [flush, last] = [&mut self.flush, &mut self.last].map(|times| {
            times.sort_unstable();
            times[times.len() / 2].as_nanos() as f64 / 1000.0
        });
        println!(
            "{how}, {subscribers} subscribers: {:.2} work requests and {:.2} doorbells a line; median {flush:.1} us in \
             the publisher's flush, {last:.1} us until the last subscriber has it ({LINES} lines, one at a time)",
            work_requests as f64 / LINES as f64,
            doorbells as f64 / LINES as f64
        );
    }
}

/// Publishes line after line, each when everybody has the one before.
fn publish<R: LaneRx>(ring: &mut RingWriter, tx: &mut impl LaneTx, subscribers: &mut [(R, Seen)]) -> Times {
    let mut times = Times::default();
    for line in 1..=LINES as u64 {
        put(ring, 1);
        let began = Instant::now();
        tx.flush(ring, now());
        times.flush.push(began.elapsed());
        while subscribers.iter().any(|(_, seen)| seen.lines < line) {
            assert!(began.elapsed() < LIMIT, "line {line} did not come to everybody within {LIMIT:?}");
            for (rx, seen) in &mut *subscribers {
                rx.poll(now(), 16, seen);
            }
        }
        times.last.push(began.elapsed());
    }
    times
}

fn assert_all_seen<R, S: RunSink>(subscribers: &[(R, S)], lines: impl Fn(&S) -> u64) {
    assert!(subscribers.iter().all(|(_, seen)| lines(seen) == LINES as u64));
}

#[test]
fn one_datagram_a_line_serves_any_number_of_subscribers() {
    if fabric() == Fabric::Iwarp {
        return assert!(UdTx::open(&ud_options(HERE, fresh_group()), &ring(PLACES)).is_err(), "iWARP has no datagrams");
    }
    for count in SUBSCRIBERS {
        let (mut ring, group) = (ring(PLACES), fresh_group());
        let mut keepers = Vec::new();
        let mut subscribers: Vec<(UdRx, Seen)> = (0..count)
            .map(|_| {
                let (rx, keeper) = UdRx::open(&ud_options(THERE, group), CHANNEL).expect("a receiver there");
                keepers.push(keeper);
                (rx, Seen::default())
            })
            .collect();
        let (mut tx, _keeper) = UdTx::open(&ud_options(HERE, group), &ring).expect("a sender here");
        let times = publish(&mut ring, &mut tx, &mut subscribers);
        let counters = tx.counters();
        assert_eq!((counters.packets, counters.doorbells), (LINES as u64, LINES as u64), "{count} subscribers");
        assert_all_seen(&subscribers, |seen| seen.lines);
        times.print("UD", count, counters.packets, counters.doorbells);
    }
}

#[test]
fn each_subscriber_by_rc_takes_one_write_a_line() {
    for count in SUBSCRIBERS {
        let mut ring = ring(PLACES);
        let mut publisher = Publisher::open(&rc_options(), &ring);
        let (tickets, mut subscribers): (Vec<_>, Vec<_>) = (0..count)
            .map(|_| {
                let (ticket, subscriber) = publisher.connect(PLACES);
                (ticket, (subscriber, Seen::default()))
            })
            .unzip();
        let times = publish(&mut ring, &mut publisher.tx, &mut subscribers);
        publisher.nothing_happened();
        let (mut writes, mut doorbells) = (0, 0);
        for ticket in tickets {
            let counters = publisher.tx.counters(ticket).expect("connected");
            assert_eq!(
                (counters.writes, counters.doorbells),
                (LINES as u64, LINES as u64),
                "{ticket:?} of {count} subscribers"
            );
            writes += counters.writes;
            doorbells += counters.doorbells;
        }
        assert_all_seen(&subscribers, |seen| seen.lines);
        times.print("RC", count, writes, doorbells);
    }
}
