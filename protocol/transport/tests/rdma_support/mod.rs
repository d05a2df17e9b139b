//! The two ends of the wire that tests/vm/run makes, and what tests over it share.

#![allow(dead_code)]

pub(crate) mod ud;

use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use protocol::line::{Epoch, Line, SequenceNumber, Stamp};
use protocol::record::{ChannelId, InstrumentId, Kind, Lane, Record};
use protocol::run::{LanePath, LossCause, Position, Run, RunSink};
use protocol::time::Nanos;
use transport::rdma::{
    DropReason, Fabric, LocalPort, RcOffer, RcOptions, RcRingTx, RcRx, RcRxEvent, RcRxKeeper, RcRxOptions, RcTicket,
    RcToken, RcTxEvent, RcTxKeeper, UdOptions,
};
use transport::ring::RingWriter;
use transport::{LaneRx, LaneTx};

pub(crate) const CHANNEL: ChannelId = ChannelId::new(300);
pub(crate) const LANE: Lane = Lane::new(1);
pub(crate) const EPOCH: Epoch = Epoch(5);
/// The publisher's port: rxe0 or siw0 on w0.
pub(crate) const HERE: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
/// The subscriber's port: rxe1 or siw1 on w1.
pub(crate) const THERE: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);
pub(crate) const QKEY: u32 = 0x0B0C_0A57;
/// Ten times the deadline that holds on hardware, and twice that: two busy pollers and the soft devices share two cores.
pub(crate) const DEADLINE_NS: u64 = 2_000_000_000;
/// Ten times what connecting may take.
pub(crate) const CONNECT_LIMIT_NS: u64 = 10_000_000_000;
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

/// Checks the content of every line, and their order.
#[derive(Default)]
pub(crate) struct Seen {
    /// The sequence number after the last line; 0 before the first.
    pub(crate) next: u64,
    pub(crate) lines: u64,
    pub(crate) dated: u64,
    pub(crate) positions: Vec<Position>,
}

impl RunSink for Seen {
    fn on_run(&mut self, run: Run<'_>) {
        assert!(self.next == 0 || run.first.sequence().0 == self.next, "{} after {}", run.first, self.next);
        for (i, line) in run.lines.iter().enumerate() {
            let at = run.first.plus(i as u64);
            assert_eq!(*line, line_of(at), "content of {at}");
        }
        self.next = run.end().sequence().0;
        self.lines += run.lines.len() as u64;
        self.dated += if run.publish_time.is_some() { run.lines.len() as u64 } else { 0 };
    }

    fn on_position(&mut self, position: Position) {
        self.positions.push(position);
    }

    fn on_loss(&mut self, _: LanePath, first: Stamp, count: u64, cause: LossCause) {
        panic!("{count} lines from {first} are lost: {cause:?}");
    }
}

/// Checks the content of every line and that they ascend; counts what is missing, declared or not.
#[derive(Default)]
pub(crate) struct Losses {
    /// The sequence number after the last line; 0 before the first.
    pub(crate) next: u64,
    pub(crate) lines: u64,
    /// Lines that the lane itself declared lost.
    pub(crate) lost: u64,
    /// Where lines are missing that nobody declared, and how many.
    pub(crate) jumps: Vec<(u64, u64)>,
}

impl RunSink for Losses {
    fn on_run(&mut self, run: Run<'_>) {
        let first = run.first.sequence().0;
        assert!(first >= self.next, "{first} after {}", self.next);
        if self.next > 0 && first > self.next {
            self.jumps.push((self.next, first - self.next));
        }
        for (i, line) in run.lines.iter().enumerate() {
            let at = run.first.plus(i as u64);
            assert_eq!(*line, line_of(at), "content of {at}");
        }
        self.next = run.end().sequence().0;
        self.lines += run.lines.len() as u64;
    }

    fn on_position(&mut self, _: Position) {}

    fn on_loss(&mut self, _: LanePath, first: Stamp, count: u64, _: LossCause) {
        assert!(first.sequence().0 >= self.next, "{first} after {}", self.next);
        self.next = first.sequence().0 + count;
        self.lost += count;
    }
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
    RcOptions {
        deadline_ns: DEADLINE_NS,
        heartbeat_interval_ns: None,
        connect_limit_ns: CONNECT_LIMIT_NS,
        ..RcOptions::new(HERE)
    }
}

/// Far beyond what anything here takes.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// What the devices at the ends of the wire run. `BOOKCAST_RDMA`, where it is set, says what they must be: `rxe` or `siw`.
pub(crate) fn fabric() -> Fabric {
    let local = LocalPort::find(None, HERE).expect("a device here");
    if let Ok(wanted) = std::env::var("BOOKCAST_RDMA") {
        assert!(local.device.name().starts_with(&wanted), "{} is not {wanted}", local.device.name());
    }
    local.fabric
}

/// Calls `what` until it gives something, yielding; fails after [`LIMIT`].
pub(crate) fn until<T>(wanted: &str, mut what: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = what() {
            return found;
        }
        assert!(start.elapsed() < LIMIT, "no {wanted} within {LIMIT:?}");
        std::thread::yield_now();
    }
}

/// Both halves of a publisher's RC lane, driven from one thread.
pub(crate) struct Publisher {
    pub(crate) tx: RcRingTx,
    pub(crate) keeper: RcTxKeeper,
    connected: usize,
}

impl Publisher {
    pub(crate) fn open(options: &RcOptions, ring: &RingWriter) -> Publisher {
        let (tx, keeper) = RcRingTx::open(options, ring).expect("a lane here");
        Publisher { tx, keeper, connected: 0 }
    }

    /// Connects a fresh ring of `lines` places; the hot half takes it in with its next flush.
    pub(crate) fn connect(&mut self, lines: usize) -> (RcTicket, Subscriber) {
        let mut subscriber = Subscriber::open(lines);
        let ticket = self.connect_to(&mut subscriber);
        (ticket, subscriber)
    }

    /// Connects with a fresh offer of `subscriber`.
    pub(crate) fn connect_to(&mut self, subscriber: &mut Subscriber) -> RcTicket {
        let (offer, token) = subscriber.offer();
        let ticket = self.keeper.connect(&offer, token, now());
        let first = self.settle(ticket, subscriber).expect("connected");
        let told = until("connection there", || subscriber.event());
        assert!(matches!(told, RcRxEvent::Connected { first: there } if there == first), "{told:?}, not {first}");
        ticket
    }

    /// Connects with a fresh offer of `subscriber`, whatever it has still to say of earlier ones.
    pub(crate) fn connect_again(&mut self, subscriber: &mut Subscriber) -> RcTicket {
        let (offer, token) = subscriber.offer();
        let ticket = self.keeper.connect(&offer, token, now());
        self.settle(ticket, subscriber).expect("connected");
        ticket
    }

    /// Turns both keepers until the connection is made or dropped.
    pub(crate) fn settle(&mut self, ticket: RcTicket, subscriber: &mut Subscriber) -> Result<Stamp, DropReason> {
        let event = until("answer", || {
            subscriber.keeper.do_work(now());
            self.event()
        });
        match event {
            RcTxEvent::Connected { ticket: connected, first } => {
                assert_eq!(connected, ticket);
                self.connected += 1;
                Ok(first)
            }
            RcTxEvent::Dropped { ticket: dropped, why } => {
                assert_eq!(dropped, ticket);
                Err(why)
            }
            RcTxEvent::Device(event) => panic!("{event:?}"),
        }
    }

    /// What the keeper has to say after a turn.
    pub(crate) fn event(&mut self) -> Option<RcTxEvent> {
        self.keeper.do_work(now());
        self.keeper.next_event()
    }

    /// Flushes until a connection is dropped.
    pub(crate) fn dropped(&mut self, ring: &RingWriter) -> (RcTicket, DropReason) {
        let event = until("connection dropped", || {
            self.tx.flush(ring, now());
            self.event()
        });
        match event {
            RcTxEvent::Dropped { ticket, why } => (ticket, why),
            other => panic!("{other:?}"),
        }
    }

    /// Fails if anything has happened that was not asked about.
    pub(crate) fn nothing_happened(&mut self) {
        let event = self.event();
        assert!(event.is_none(), "{event:?}");
    }
}

/// Both halves of a subscriber's RC lane, driven from one thread.
pub(crate) struct Subscriber {
    pub(crate) rx: RcRx,
    pub(crate) keeper: RcRxKeeper,
}

impl Subscriber {
    pub(crate) fn open(lines: usize) -> Subscriber {
        Subscriber::open_at(THERE, lines)
    }

    pub(crate) fn open_at(address: Ipv4Addr, lines: usize) -> Subscriber {
        let options = RcRxOptions { lines, hedge_ns: HEDGE_NS, ..RcRxOptions::new(address) };
        let (rx, keeper) = RcRx::open(&options, CHANNEL, LANE).expect("a lane there");
        Subscriber { rx, keeper }
    }

    /// A fresh offer and the token that it expects.
    pub(crate) fn offer(&mut self) -> (RcOffer, RcToken) {
        let offer = self.keeper.offer().expect("a ring there");
        let token = RcToken::random().expect("random bytes");
        assert!(self.keeper.expect(token));
        (offer, token)
    }

    /// What the keeper has to say after a turn.
    pub(crate) fn event(&mut self) -> Option<RcRxEvent> {
        self.keeper.do_work(now());
        self.keeper.next_event()
    }
}

impl LaneRx for Subscriber {
    fn poll<S: RunSink>(&mut self, now: Nanos, limit: usize, sink: &mut S) -> usize {
        self.rx.poll(now, limit, sink)
    }

    fn known_head(&self) -> Option<Stamp> {
        self.rx.known_head()
    }
}

/// An RC lane that waits in each flush until its writes have ended, where a publisher would do other work: the suite
/// flushes once and then only looks.
pub(crate) struct Settled(pub(crate) Publisher);

impl Settled {
    fn settle(&mut self, ring: &RingWriter, now: Nanos) -> usize {
        let start = Instant::now();
        let mut lines = 0;
        while self.0.tx.signalled_under_way() > 0 {
            assert!(start.elapsed() < Duration::from_secs(10), "writes have not ended: {:?}", self.0.event());
            std::thread::yield_now();
            lines += self.0.tx.flush(ring, now);
        }
        if self.0.tx.peers().count() < self.0.connected {
            panic!("{:?}", self.0.dropped(ring));
        }
        lines
    }
}

impl LaneTx for Settled {
    fn flush(&mut self, ring: &RingWriter, now: Nanos) -> usize {
        self.0.tx.flush(ring, now) + self.settle(ring, now)
    }

    fn heartbeat(&mut self, ring: &RingWriter, now: Nanos, ended: bool) {
        self.0.tx.heartbeat(ring, now, ended);
        self.settle(ring, now);
    }
}

/// `tc netem` on one or both ends of the wire, taken off when dropped. There is one wire, and one test at a time.
pub(crate) struct Netem {
    ends: &'static [&'static str],
    _wire: MutexGuard<'static, ()>,
}

impl Netem {
    pub(crate) fn new(ends: &'static [&'static str], what: &[&str]) -> Netem {
        static WIRE: Mutex<()> = Mutex::new(());
        let netem = Netem { ends, _wire: WIRE.lock().unwrap_or_else(PoisonError::into_inner) };
        for end in ends {
            let status = Command::new("tc").args(["qdisc", "add", "dev", end, "root", "netem"]).args(what).status();
            assert!(status.expect("tc is there").success(), "netem {what:?} on {end}");
        }
        netem
    }
}

impl Drop for Netem {
    fn drop(&mut self) {
        for end in self.ends {
            let _ = Command::new("tc").args(["qdisc", "del", "dev", end, "root"]).status();
        }
    }
}

/// How many queue pairs, regions, domains, completion queues and identifiers the kernel keeps for each device.
pub(crate) fn resources() -> Vec<String> {
    let output = Command::new("rdma").arg("resource").output().expect("rdma is there");
    let text = String::from_utf8(output.stdout).expect("text");
    // The contexts of librdmacm stay open as long as the process lives.
    text.lines().map(|line| line.split(" ctx ").next().unwrap_or(line).trim().to_owned()).collect()
}

/// Waits until there are as many again as `before`: the kernel lets go of connections in its own time.
pub(crate) fn assert_resources(before: &[String]) {
    let start = Instant::now();
    loop {
        let now = resources();
        if now == before {
            return;
        }
        assert!(start.elapsed() < LIMIT, "left behind:\n{now:#?}\nbefore:\n{before:#?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Nanoseconds since some moment: real time for deadlines.
pub(crate) fn now() -> Nanos {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Nanos(since.expect("a clock past 1970").as_nanos() as u64)
}

/// Polls `rx` until `done`, yielding; fails after `limit`.
pub(crate) fn poll_until<R: LaneRx, S: RunSink>(
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
