//! The reply lane over real sockets: requests, answers, strangers; and nothing is allocated on the way.
//!
//! The allocator is counted for each thread by itself.

mod counting;

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

use protocol::line::{Line, Stamp};
use protocol::record::{ChannelId, InstrumentId, Kind, Lane, Record};
use protocol::recovery::Connection;
use protocol::run::{LanePath, LossCause, Position, Run, RunSink};
use protocol::time::Nanos;
use transport::LaneRx;
use transport::fault::{Fault, FaultInjector, FaultPlan};
use transport::reply::{ReplyError, ReplyLane, ReplyPort, ReplyRx, ReplyTx};

const IDS: (ChannelId, Lane) = (ChannelId::new(3), Lane::new(1));
const CONNECTION: Connection = Connection(9);
/// Loopback takes microseconds; the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(10);

fn server() -> (ReplyTx, SocketAddrV4) {
    let tx = ReplyTx::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0), 1500, IDS.0, IDS.1).expect("a server");
    let at = tx.local_address().expect("an address");
    (tx, at)
}

fn line(stamp: Stamp) -> Line {
    let mut record = Record::new(Kind::ADD, InstrumentId(1));
    record.order_id.set(stamp.0);
    Line::seal(record, stamp)
}

/// Checks that lines come in order, and counts them.
#[derive(Default)]
struct InOrder {
    next: Option<Stamp>,
    lines: u64,
    holes: u64,
}

impl RunSink for InOrder {
    fn on_run(&mut self, run: Run<'_>) {
        self.holes += u64::from(self.next.is_some_and(|next| next != run.first));
        for (i, got) in run.lines.iter().enumerate() {
            assert_eq!(*got, line(run.first.plus(i as u64)));
        }
        self.next = Some(run.end());
        self.lines += run.lines.len() as u64;
    }
    fn on_position(&mut self, _: Position) {}
    fn on_loss(&mut self, _: LanePath, _: Stamp, _: u64, _: LossCause) {}
}

/// The next request, which is under way.
fn heard(tx: &mut ReplyTx) -> (SocketAddrV4, Line) {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(request) = tx.receive() {
            return request;
        }
        assert!(Instant::now() < until, "no request came");
    }
}

/// Sends `count` lines from reply count `first` on as one packet.
fn send(tx: &mut ReplyTx, to: SocketAddrV4, first: u64, count: usize) {
    for (i, place) in tx.room()[..count].iter_mut().enumerate() {
        *place = line(CONNECTION.stamp(first + i as u64));
    }
    assert!(tx.send(to, CONNECTION.stamp(first + count as u64), count, Nanos(1)));
}

fn receive(rx: &mut impl LaneRx, seen: &mut InOrder, lines: u64) {
    let until = Instant::now() + PATIENCE;
    while seen.lines < lines {
        rx.poll(Nanos(1), 256, seen);
        assert!(Instant::now() < until, "{} lines of {lines}", seen.lines);
    }
}

#[test]
fn a_request_arrives_and_its_answer_finds_the_way_back_without_allocating() {
    let (mut tx, at) = server();
    let mut rx = ReplyRx::connect(at, IDS, 1 << 20).expect("a socket");
    let request = line(CONNECTION.stamp(1));
    assert!(rx.request(&request, Nanos(1)));
    let (from, got) = heard(&mut tx);
    assert_eq!(got, request);
    assert_eq!(tx.room().len(), 22);
    let mut seen = InOrder::default();
    counting::check();
    counting::start();
    for packet in 0..200 {
        rx.request(&request, Nanos(1));
        heard(&mut tx);
        send(&mut tx, from, 1 + packet * 22, 22);
        receive(&mut rx, &mut seen, (packet + 1) * 22);
    }
    assert_eq!(counting::stop(), 0, "allocations in 200 turns");
    assert_eq!((seen.holes, rx.counters().packets, rx.requests_refused()), (0, 200, 0));
    assert_eq!((tx.counters().lines, tx.counters().packets_dropped), (4400, 0));
}

#[test]
fn answers_of_anybody_but_the_server_are_never_heard() {
    let (mut tx, at) = server();
    let (mut other, _) = server();
    let mut rx = ReplyRx::connect(at, IDS, 1 << 20).expect("a socket");
    rx.request(&line(CONNECTION.stamp(1)), Nanos(1));
    let (from, _) = heard(&mut tx);
    send(&mut other, from, 500, 1);
    send(&mut tx, from, 1, 1);
    let mut seen = InOrder::default();
    receive(&mut rx, &mut seen, 1);
    assert_eq!(seen.next, Some(CONNECTION.stamp(2)));
    rx.poll(Nanos(1), 256, &mut seen);
    assert_eq!((seen.lines, rx.counters().refused_total()), (1, 0));
}

#[test]
fn what_is_no_request_is_refused_at_a_glance() {
    let (mut tx, at) = server();
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    for useless in [&b"hello"[..], &[0; 1400], &[]] {
        socket.send_to(useless, at).expect("sends");
    }
    for ids in [(ChannelId::new(4), IDS.1), (IDS.0, Lane::new(0))] {
        let mut elsewhere = ReplyRx::connect(at, ids, 1 << 20).expect("a socket");
        elsewhere.request(&line(CONNECTION.stamp(1)), Nanos(1));
    }
    let until = Instant::now() + PATIENCE;
    while tx.refused() < 5 {
        assert_eq!(tx.receive(), None);
        assert!(Instant::now() < until, "{} refused", tx.refused());
    }
    assert_eq!(tx.counters().received, 5);
}

#[test]
fn a_fault_injector_fits_around_a_reply_lane() {
    let (mut tx, at) = server();
    let plan = FaultPlan::script([(1, Fault::Drop)]);
    let mut rx = FaultInjector::new(ReplyRx::connect(at, IDS, 1 << 20).expect("a socket"), plan);
    assert!(rx.request(&line(CONNECTION.stamp(1)), Nanos(1)), "requests go through unharmed");
    let (from, _) = heard(&mut tx);
    for packet in 0..3 {
        send(&mut tx, from, 1 + packet * 10, 10);
    }
    let mut seen = InOrder::default();
    receive(&mut rx, &mut seen, 20);
    assert_eq!((seen.holes, seen.next), (1, Some(CONNECTION.stamp(31))));
}

#[test]
fn a_port_that_is_taken_and_an_mtu_that_is_too_small_are_told_with_the_next_step() {
    let (_tx, at) = server();
    let error = ReplyTx::bind(at, 1500, IDS.0, IDS.1).map(|_| ()).expect_err("taken").to_string();
    assert!(error.contains(&at.to_string()) && error.contains("[recovery]") && error.contains("ss -ulpn"), "{error}");
    let anywhere = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
    assert!(matches!(ReplyTx::bind(anywhere, 123, IDS.0, IDS.1), Err(ReplyError::Mtu { least: 124, .. })));
}
