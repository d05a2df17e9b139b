//! UD lanes over a wire that goes away and comes back: they mend themselves, and name what was lost meanwhile.

mod counting;
mod rdma_support;
// The workspace's own, of which this test needs a part.
#[allow(dead_code, unreachable_pub)]
#[path = "../../../tests/support/wire.rs"]
mod wire;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use protocol::line::Stamp;
use protocol::run::{LanePath, LossCause, Position, Run, RunSink};
use rdma_support::ud::{Pair, resources};
use rdma_support::*;
use transport::rdma::*;
use transport::{LaneRx, LaneTx};
use wire::{FarEnd, run};

/// Ten times the three seconds that it may take.
const LIMIT: Duration = Duration::from_secs(30);

fn is_mended(events: &[UdEvent]) -> bool {
    matches!(events.last(), Some(UdEvent::Mended { .. }))
}

fn is_port_down(event: &UdEvent) -> bool {
    matches!(event, UdEvent::PortDown)
}

#[test]
fn a_port_that_is_down_for_two_seconds_and_up_again_resumes_by_itself_and_the_gap_is_named() {
    let mut pair = Pair::new();
    pair.flows(LIMIT);
    let (source, peer) = (pair.tx_keeper.source(), pair.rx_keeper.peer());
    let before = resources();
    let far_end = FarEnd::down();
    let down_at = Instant::now();
    pair.turn_until(LIMIT, "two seconds", |_| down_at.elapsed() > Duration::from_secs(2));
    assert!(pair.tx_events.iter().any(is_port_down) && pair.rx_events.iter().any(is_port_down));
    assert!(!pair.tx.is_working() && !pair.rx.is_working());
    let held = pair.account.next;
    far_end.up();
    let up_at = Instant::now();
    let events = pair.turn_until(LIMIT, "mended lane", |pair| is_mended(&pair.tx_events) && is_mended(&pair.rx_events));
    let delivered = pair.account.delivered;
    pair.turn_until(LIMIT, "line", |pair| pair.account.delivered > delivered);
    println!("mended {events:?} and first line {:?} after the port was up, of 3 s", up_at.elapsed());
    pair.settle(LIMIT);
    println!("{:?}\n{:?}\n{:?}", pair.tx_events, pair.rx_events, pair.account.gaps);
    assert_ne!(pair.tx_keeper.source(), source);
    assert_ne!(pair.rx_keeper.peer(), peer);
    let counters = pair.tx.counters();
    assert!(counters.lines_passed_over > 100, "{counters:?}");
    assert!(pair.account.lost() >= counters.lines_passed_over, "{:?} {counters:?}", pair.account.gaps);
    assert!(pair.account.gaps.iter().any(|(first, count)| (*first..first + count).contains(&held)));
    assert_eq!(pair.tx.lines_unsent(), counters.lines_passed_over);
    // Nothing failed: the port was down, and is up.
    let failures = (pair.tx_keeper.counters().failures, pair.rx_keeper.counters().failures);
    assert_eq!((failures, pair.tx_keeper.counters().mended), ((0, 0), 1));
    println!("{before:?}");
    assert_eq!(resources(), before);
}

#[test]
fn an_address_that_goes_and_comes_back_is_looked_up_again() {
    let mut pair = Pair::new();
    pair.flows(LIMIT);
    let far_end = FarEnd::without_address();
    pair.turn_until(LIMIT, "notice", |pair| !pair.rx.is_working());
    let gone_at = Instant::now();
    pair.turn_until(LIMIT, "complaint", |pair| {
        assert!(gone_at.elapsed() < LIMIT);
        pair.rx_events.iter().any(|event| matches!(event, UdEvent::CannotMend(_)))
    });
    let complaint = pair.rx_events.iter().find_map(|event| match event {
        UdEvent::CannotMend(error) => Some(error.to_string()),
        _ => None,
    });
    let complaint = complaint.expect("just seen");
    println!("{complaint}");
    assert!(complaint.contains("10.99.0.2") && complaint.contains("ip addr"), "{complaint}");
    far_end.up();
    let took = pair.flows(LIMIT);
    println!("first line {took:?} after the address was back, of 3 s");
    assert!(is_mended(&pair.rx_events), "{:?}", pair.rx_events);
    pair.settle(LIMIT);
    assert_eq!(pair.tx_keeper.counters().mended, 0);
}

#[test]
fn another_address_of_the_port_that_comes_and_goes_disturbs_nothing() {
    let mut pair = Pair::new();
    pair.flows(LIMIT);
    let source = pair.tx_keeper.source();
    for (times, what) in [(1, "add"), (2, "del")] {
        run("ip", &format!("addr {what} 10.99.0.9/24 dev w0"));
        pair.turn_until(LIMIT, "event", |pair| pair.tx_keeper.counters().unchanged == times);
    }
    pair.flows(LIMIT);
    pair.settle(LIMIT);
    assert_eq!((pair.tx_keeper.source(), pair.account.lost(), pair.tx_events.len()), (source, 0, 0));
}

#[test]
fn lanes_to_one_queue_pair_each_make_a_round_trip_and_leave_groups_alone() {
    let group = fresh_group();
    let (mut there_ring, mut here_ring) = (ring(256), ring(256));
    let (mut echo_rx, echo_keeper) = UdRx::open_unicast(&ud_options(THERE, group), CHANNEL).expect("a receiver there");
    let (mut back_rx, mut back_keeper) =
        UdRx::open_unicast(&ud_options(HERE, group), CHANNEL).expect("a receiver here");
    let (mut ping, ping_keeper) =
        UdTx::open_to(&ud_options(HERE, group), echo_keeper.peer(), &here_ring).expect("a sender here");
    let (mut pong, pong_keeper) =
        UdTx::open_to(&ud_options(THERE, group), back_keeper.peer(), &there_ring).expect("a sender there");
    // A receiver in the group of the options hears nothing of it.
    let (mut group_rx, _keeper) = UdRx::open(&ud_options(THERE, group), CHANNEL).expect("a receiver in the group");
    back_keeper.expect(vec![pong_keeper.source()]);
    assert_eq!(echo_keeper.peer().qkey, QKEY);
    assert_eq!(echo_keeper.peer().queue_pair, echo_keeper.queue_pair().expect("it works").number());
    assert_ne!(ping_keeper.source(), pong_keeper.source());

    let mut times = Vec::new();
    let (mut there, mut here) = (Count::default(), Count::default());
    for turn in 1..=200 {
        let start = Instant::now();
        put(&mut here_ring, 1);
        ping.flush(&here_ring, now());
        poll_until(&mut echo_rx, &mut there, LIMIT, "ping", |seen| seen.next == turn + 1);
        put(&mut there_ring, 1);
        pong.flush(&there_ring, now());
        poll_until(&mut back_rx, &mut here, LIMIT, "pong", |seen| seen.next == turn + 1);
        times.push(start.elapsed());
    }
    times.sort();
    println!("round trip p50 {:?}", times[times.len() / 2]);
    group_rx.poll(now(), 1 << 10, &mut Count::default());
    assert_eq!((there.lines, here.lines), (200, 200));
    assert_eq!((*group_rx.counters(), back_rx.counters().foreign), (UdRxCounters::default(), 0));
    assert_eq!((echo_rx.counters().packets, ping.counters().packets), (200, 200));
}

#[test]
fn a_sender_to_one_queue_pair_follows_when_that_is_built_anew() {
    let group = fresh_group();
    let mut ring = ring(1 << 12);
    let (mut rx, mut rx_keeper) = UdRx::open_unicast(&ud_options(THERE, group), CHANNEL).expect("a receiver there");
    let (mut tx, mut tx_keeper) =
        UdTx::open_to(&ud_options(HERE, group), rx_keeper.peer(), &ring).expect("a sender here");
    let mut seen = Count::default();
    let old = rx_keeper.peer();
    let mut far_end = Some(FarEnd::down());
    let down_at = Instant::now();
    let (mut mended, mut redirected) = (false, false);
    let start = Instant::now();
    while seen.lines < 10 || !redirected {
        assert!(start.elapsed() < LIMIT, "{:?} {:?}", rx_keeper.counters(), tx_keeper.counters());
        if down_at.elapsed() > Duration::from_millis(300)
            && let Some(far_end) = far_end.take()
        {
            far_end.up();
        }
        put(&mut ring, 1);
        tx.flush(&ring, now());
        rx.poll(now(), 1 << 10, &mut seen);
        tx_keeper.do_work(now());
        rx_keeper.do_work(now());
        while let Some(event) = rx_keeper.next_event() {
            mended |= matches!(event, UdEvent::Mended { .. });
        }
        if mended && !redirected && far_end.is_none() {
            assert_ne!(rx_keeper.peer(), old);
            seen = Count::default();
            tx_keeper.redirect(rx_keeper.peer(), now());
            redirected = true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(tx_keeper.counters().mended > 0);
}

#[test]
fn a_receiver_whose_port_does_not_carry_what_is_sent_is_refused() {
    let options = UdOptions { max_lines: Some(63), ..ud_options(THERE, fresh_group()) };
    let carried = UdRx::open(&options, CHANNEL).map(drop);
    assert!(carried.is_ok(), "{carried:?}");
    run("ip", "link set w1 mtu 1500");
    let refused = UdRx::open(&options, CHANNEL).map(drop);
    let fits = UdRx::open(&UdOptions { max_lines: Some(15), ..options }, CHANNEL).map(drop);
    run("ip", "link set w1 mtu 4200");
    let text = refused.expect_err("too small").to_string();
    for part in ["active MTU of port 1 of rxe1 is 1024", "takes 4064", "raise the MTU"] {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
    assert!(fits.is_ok(), "{fits:?}");
}

#[derive(Default)]
struct Count {
    next: u64,
    lines: u64,
}

impl RunSink for Count {
    fn on_run(&mut self, run: Run<'_>) {
        for (i, line) in run.lines.iter().enumerate() {
            assert_eq!(*line, line_of(run.first.plus(i as u64)));
        }
        self.next = run.end().sequence().0;
        self.lines += run.lines.len() as u64;
    }
    fn on_position(&mut self, _: Position) {}
    fn on_loss(&mut self, _: LanePath, _: Stamp, _: u64, _: LossCause) {}
}

#[test]
fn the_hot_halves_allocate_nothing_while_their_keepers_mend_them() {
    let group = fresh_group();
    let mut ring = ring(1 << 14);
    let (mut rx, mut rx_keeper) = UdRx::open(&ud_options(THERE, group), CHANNEL).expect("a receiver there");
    let (mut tx, mut tx_keeper) = UdTx::open(&ud_options(HERE, group), &ring).expect("a sender here");
    let stop = AtomicBool::new(false);
    let mended = AtomicBool::new(false);
    let mut seen = Count::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut turns = (0, 0);
            while !stop.load(Ordering::Relaxed) {
                tx_keeper.do_work(now());
                rx_keeper.do_work(now());
                turns.0 += usize::from(matches!(tx_keeper.next_event(), Some(UdEvent::Mended { .. })));
                turns.1 += usize::from(matches!(rx_keeper.next_event(), Some(UdEvent::Mended { .. })));
                mended.store(turns.0 >= 1 && turns.1 >= 1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        counting::check();
        let mut turn = |until: &dyn Fn(&UdTx, &UdRx, &Count) -> bool| {
            let start = Instant::now();
            counting::start();
            while !until(&tx, &rx, &seen) && start.elapsed() < LIMIT {
                put(&mut ring, 1);
                tx.flush(&ring, now());
                tx.heartbeat(&ring, now(), false);
                rx.poll(now(), 1 << 12, &mut seen);
                std::thread::yield_now();
            }
            let allocated = counting::stop();
            (until(&tx, &rx, &seen), allocated)
        };
        let flowing = turn(&|_, _, seen| seen.lines > 100);
        let far_end = FarEnd::down();
        let down = turn(&|tx, rx, _| !tx.is_working() && !rx.is_working());
        far_end.up();
        let up = turn(&|tx, rx, _| mended.load(Ordering::Relaxed) && tx.is_working() && rx.is_working());
        let lines = std::cell::Cell::new(None);
        let again = turn(&|_, _, seen| {
            seen.lines
                > 100
                    + lines.get().unwrap_or_else(|| {
                        lines.set(Some(seen.lines));
                        seen.lines
                    })
        });
        stop.store(true, Ordering::Relaxed);
        assert_eq!([flowing, down, up, again], [(true, 0); 4], "whether it came to be, and allocations");
    });
}
