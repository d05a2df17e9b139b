//! After set-up, neither half of an RDMA lane allocates. What libibverbs and its driver do in C is not seen here.
//!
//! A program of its own, because the allocator is counted for the whole process: one test, one thread.

mod rdma_support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use protocol::line::Stamp;
use protocol::run::{LanePath, LossCause, Position, Run, RunSink};
use rdma_support::*;
use transport::rdma::{RcOptions, RcRingTx, UdRx, UdTx};
use transport::{LaneRx, LaneTx};

thread_local! {
    /// Allocations of this thread, so that the test harness's own threads do not count.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, counting.
struct Counting;

// SAFETY: everything is passed on unchanged to the system's allocator; counting touches a thread-local number that needs
// no allocation and no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's duties are those of System.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's duties are those of System.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

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
    let group = fresh_group();
    let mut ring = ring(1 << 14);
    let options = RcOptions { heartbeat_interval_ns: Some(1_000_000), ..rc_options() };
    let mut rc = RcRingTx::open(&options, &ring).expect("a lane here");
    let (peer, mut reliable) = connect(&mut rc, &ring, 1 << 14);
    // One of two subscribers dies on the way: that allocates nothing either.
    let (_, dead) = connect(&mut rc, &ring, 1 << 14);
    drop(dead);
    let (mut ud, here) = UdTx::open(&ud_options(HERE, group), &ring).expect("a sender here");
    let (mut unreliable, mut there) = UdRx::open(&ud_options(THERE, group), CHANNEL).expect("a receiver there");
    there.expect(vec![here.source()]);
    let (mut seen_rc, mut seen_ud) = (Count::default(), Count::default());

    assert!(ALLOCATIONS.get() > 0, "the allocator does not count");
    let before = ALLOCATIONS.get();
    for turn in 0..2000 {
        let now = now();
        put(&mut ring, 1 + turn % 40);
        rc.flush(&ring, now);
        ud.flush(&ring, now);
        ud.heartbeat(&ring, now, false);
        reliable.poll(now, 1 << 20, &mut seen_rc);
        unreliable.poll(now, 1 << 20, &mut seen_ud);
        let start = std::time::Instant::now();
        while rc.under_way(peer) > Some(100) && start.elapsed().as_secs() < 10 {
            std::thread::yield_now();
            rc.reap();
        }
    }
    assert_eq!(ALLOCATIONS.get() - before, 0, "allocations in 2000 turns");
    assert!(
        seen_rc.lines > 10_000 && seen_rc.positions > 10,
        "{} lines, {} positions",
        seen_rc.lines,
        seen_rc.positions
    );
    assert!(
        seen_ud.lines > 10_000 && seen_ud.positions > 1000,
        "{} lines, {} positions",
        seen_ud.lines,
        seen_ud.positions
    );
    assert!(rc.next_event().is_some(), "the dead subscriber was never told of");
}
