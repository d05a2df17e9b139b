//! The two ends of the wire that tests/vm/run makes, and what tests over it share.

#![allow(dead_code)]

pub(crate) mod ud;

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use protocol::line::{Epoch, Line, SequenceNumber, Stamp};
use protocol::record::{ChannelId, InstrumentId, Kind, Lane, Record};
use protocol::time::Nanos;
use transport::rdma::{PeerId, RcOptions, RcRing, RcRingTx, RcRx, UdOptions};
use transport::ring::RingWriter;
use transport::{LaneRx, LaneTx};

pub(crate) const CHANNEL: ChannelId = ChannelId::new(300);
pub(crate) const LANE: Lane = Lane::new(1);
pub(crate) const EPOCH: Epoch = Epoch(5);
/// The publisher's port: rxe0 on w0.
pub(crate) const HERE: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
/// The subscriber's port: rxe1 on w1.
pub(crate) const THERE: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);
pub(crate) const QKEY: u32 = 0x0B0C_0A57;
/// Ten times the deadline that holds on hardware, and twice that: two busy pollers and the soft devices share two cores.
pub(crate) const DEADLINE_NS: u64 = 2_000_000_000;
/// For lines that were written: never needed where one queue pair writes in order, unless they are lost.
pub(crate) const HEDGE_NS: u64 = 50_000_000;
/// Longer than any test.
pub(crate) const NEVER_NS: u64 = i64::MAX as u64;

pub(crate) fn stamp(sequence: u64) -> Stamp {
    Stamp::new(EPOCH, SequenceNumber(sequence))
}

pub(crate) fn ring(capacity: usize) -> RingWriter {
    RingWriter::anonymous(CHANNEL, LANE, EPOCH, capacity).expect("a ring without a name")
}

/// The line of `stamp`: each word of it depends on every bit of the stamp.
pub(crate) fn line_of(stamp: Stamp) -> Line {
    let mut record = Record::new(Kind::ADD, InstrumentId(stamp.0 as u32 | 1));
    let mix = |salt: u64| (stamp.0 ^ salt).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    record.ts_event.set(mix(1));
    record.order_id.set(mix(2));
    record.price.set(mix(3) as i64);
    record.size.set(mix(4));
    record.ts_capture.set(mix(5) as u32);
    record.ts_publish.set(mix(6) as u32);
    record.instrument_seq.set(mix(7) as u32);
    record.venue_seq.set(mix(8) as u32);
    Line::seal(record, stamp)
}

/// Puts `count` lines and flushes the ring, not the lane.
pub(crate) fn put(ring: &mut RingWriter, count: usize) {
    for _ in 0..count {
        let line = line_of(ring.next());
        ring.put(&line);
    }
    ring.flush();
}

/// A UD lane's options with a group of its own.
pub(crate) fn ud_options(address: Ipv4Addr, group: Ipv4Addr) -> UdOptions {
    UdOptions { receive_depth: 128, deadline_ns: DEADLINE_NS, ..UdOptions::new(address, group, QKEY) }
}

/// A group that no other test of this process uses.
pub(crate) fn fresh_group() -> Ipv4Addr {
    static NEXT: AtomicU16 = AtomicU16::new(1);
    let [high, low] = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    Ipv4Addr::new(239, 99, high, low)
}

pub(crate) fn rc_options() -> RcOptions {
    RcOptions { deadline_ns: DEADLINE_NS, heartbeat_interval_ns: None, ..RcOptions::new(HERE) }
}

/// Connects a fresh ring of `lines` places with `tx`; both sides tell each other within the process.
pub(crate) fn connect(tx: &mut RcRingTx, ring: &RingWriter, lines: usize) -> (PeerId, RcRx) {
    let remote = RcRing::open(None, THERE, lines).expect("a ring there");
    let pending = tx.prepare().expect("a queue pair here");
    remote.connect(&pending.endpoint()).expect("connected there");
    let (peer, first) = tx.connect(pending, &remote.offer(), ring).expect("connected here");
    (peer, remote.into_rx(first, LANE, HEDGE_NS))
}

/// An RC lane that waits in each flush until its writes have ended, where a publisher would do other work: the suite
/// flushes once and then only looks.
pub(crate) struct Settled(pub(crate) RcRingTx);

impl Settled {
    fn settle(&mut self, ring: &RingWriter, now: Nanos) -> usize {
        let start = Instant::now();
        let mut lines = 0;
        while self.0.signalled_under_way() > 0 {
            assert!(start.elapsed() < Duration::from_secs(10), "writes have not ended: {:?}", self.0.next_event());
            std::thread::yield_now();
            lines += self.0.flush(ring, now);
        }
        let event = self.0.next_event();
        assert!(event.is_none(), "{event:?}");
        lines
    }
}

impl LaneTx for Settled {
    fn flush(&mut self, ring: &RingWriter, now: Nanos) -> usize {
        self.0.flush(ring, now) + self.settle(ring, now)
    }

    fn heartbeat(&mut self, ring: &RingWriter, now: Nanos, ended: bool) {
        self.0.heartbeat(ring, now, ended);
        self.settle(ring, now);
    }
}

/// Nanoseconds since some moment: real time for deadlines.
pub(crate) fn now() -> Nanos {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Nanos(since.expect("a clock past 1970").as_nanos() as u64)
}

/// Polls `rx` until `done`, yielding; fails after `limit`.
pub(crate) fn poll_until<R: LaneRx, S: protocol::run::RunSink>(
    rx: &mut R,
    sink: &mut S,
    limit: Duration,
    what: &str,
    mut done: impl FnMut(&S) -> bool,
) {
    let start = Instant::now();
    while !done(sink) {
        assert!(start.elapsed() < limit, "no {what} within {limit:?}");
        if rx.poll(now(), 1 << 20, sink) == 0 {
            std::thread::yield_now();
        }
    }
}
