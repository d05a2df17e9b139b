//! Reply rings between two soft devices, of RoCE v2 or iWARP: who may write them, in what order, and what becomes of a
//! connection whose answers do not arrive.

#![forbid(unsafe_code)]

mod rdma_support;

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};

use protocol::line::{Line, Stamp};
use protocol::recovery::Connection;
use rdma_support::*;
use transport::LaneRx;
use transport::rdma::*;
use transport::reply::{ReplyLane, ReplyRings, ReplyRx};

const ONE: Connection = Connection(40_001);

/// The recovery server's end, both halves.
struct Server {
    tx: RcReplyTx,
    keeper: RcTxKeeper,
}

impl Server {
    fn open(max_peers: usize) -> Server {
        let (tx, keeper) =
            RcReplyTx::open(&RcOptions { max_peers, ..rc_options() }, CHANNEL, LANE).expect("a lane here");
        Server { tx, keeper }
    }

    fn event(&mut self) -> Option<RcTxEvent> {
        self.tx.do_work(now());
        self.keeper.do_work(now());
        self.keeper.next_event()
    }

    /// Connects a fresh ring of `lines` places for `connection`.
    fn connect(&mut self, connection: Connection, lines: usize) -> Asker {
        let mut asker = Asker::open(lines);
        let (offer, token) = asker.offer(connection);
        self.keeper.connect_replies(&offer, connection.stamp(1), token, now());
        let told = until("answer", || {
            asker.keeper.do_work(now());
            self.event()
        });
        assert!(matches!(told, RcTxEvent::Connected { first, .. } if first == connection.stamp(1)), "{told:?}");
        self.tx.do_work(now());
        assert!(self.tx.room(connection) > 0, "a fresh ring has room");
        asker
    }

    /// Writes `count` lines from `first` on, as there is room.
    fn write(&mut self, first: Stamp, count: u64) {
        let mut done = 0;
        until("room", || {
            self.tx.do_work(now());
            let room = (self.tx.room(Connection::of(first).0) as u64).min(count - done);
            let lines: Vec<Line> = (0..room).map(|i| line_of(first.plus(done + i))).collect();
            assert_eq!(self.tx.write(first.plus(done), &lines, now()), lines.len(), "there was room");
            done += room;
            (done == count).then_some(())
        });
    }
}

/// A subscriber's end, both halves; nobody takes its requests.
struct Asker {
    rx: RcReplyRx,
    keeper: RcRxKeeper,
}

impl Asker {
    fn open(lines: usize) -> Asker {
        let nobody = "127.0.0.1:9".parse().expect("an address");
        let requests = ReplyRx::connect(nobody, (CHANNEL, LANE), 4096).expect("a socket");
        let options = RcRxOptions { lines, hedge_ns: HEDGE_NS, ..RcRxOptions::new(THERE) };
        let (rx, keeper) = RcReplyRx::open(&options, (CHANNEL, LANE), requests).expect("a lane there");
        Asker { rx, keeper }
    }

    fn offer(&mut self, connection: Connection) -> (RcOffer, RcToken) {
        let offer = self.keeper.offer().expect("a ring there");
        let token = RcToken::random().expect("random bytes");
        assert!(self.keeper.expect_replies(token, connection.stamp(1)));
        (offer, token)
    }
}

#[test]
fn answers_come_in_order_and_what_is_written_again_puts_no_place_back() {
    let mut server = Server::open(2);
    let mut asker = server.connect(ONE, 256);
    // A neighbour's lines are staged beside these, and come where they belong.
    let two = Connection(2);
    let mut neighbour = server.connect(two, 64);
    let (mut seen, mut beside) = (Seen::default(), Seen::default());
    let (mut next, mut theirs) = (1, 1);
    for turn in 0..600_u64 {
        let count = 1 + turn * 7 % 100;
        server.write(ONE.stamp(next), count);
        next += count;
        // What a subscriber whose request came twice asked for again: read already, or under way, or overwritten.
        let again = (next - 1).min(1 + turn % 300);
        server.write(ONE.stamp(next - again), again);
        let count = 1 + turn % 50;
        server.write(two.stamp(theirs), count);
        theirs += count;
        poll_until(&mut asker.rx, &mut seen, LIMIT, "lines", |seen| seen.next == next);
        poll_until(&mut neighbour.rx, &mut beside, LIMIT, "lines", |seen| seen.next == theirs);
    }
    assert_eq!((seen.lines, beside.lines), (next - 1, theirs - 1));
    let counters = server.tx.counters(ONE).expect("connected");
    println!("{next} lines: {counters:?}");
    assert!(counters.lines > next, "lines were written again");
    assert_eq!(counters.signalled, counters.writes);
    assert!(
        server.event().is_none() && asker.keeper.next_event().is_some_and(|e| matches!(e, RcRxEvent::Connected { .. }))
    );
}

#[test]
fn no_torn_answer_is_accepted_while_the_card_writes() {
    let mut server = Server::open(1);
    let mut asker = server.connect(ONE, 1024);
    let over = AtomicBool::new(false);
    const LINES: u64 = 200_000;
    let mut seen = Seen::default();
    std::thread::scope(|scope| {
        let over = &over;
        scope.spawn(move || {
            // Never more than the ring holds beside what was read: the reader says how far it is by its own count.
            for first in (1..=LINES).step_by(500) {
                server.write(ONE.stamp(first), 500);
                until("end of the writes", || {
                    server.tx.do_work(now());
                    (server.tx.under_way(ONE) == Some(0)).then_some(())
                });
                while !over.swap(false, Ordering::Acquire) {
                    std::thread::yield_now();
                }
            }
        });
        for end in (501..=LINES + 1).step_by(500) {
            poll_until(&mut asker.rx, &mut seen, LIMIT, "lines", |seen| seen.next == end);
            over.store(true, Ordering::Release);
        }
    });
    assert_eq!(seen.lines, LINES);
}

#[test]
fn the_server_gives_nobody_any_rights_and_the_subscriber_gives_writing_alone() {
    let mut server = Server::open(2);
    let asker = server.connect(ONE, 256);
    assert!(server.tx.regions().iter().all(|region| region.rights() == Rights::SendOnly));
    let region = asker.keeper.region().expect("connected");
    assert_eq!((region.rights(), region.byte_len()), (Rights::RemoteWrite, 128 + 64 * 256));
    let ours = server.tx.queue_pair(ONE).expect("connected").query().expect("its state");
    let theirs = asker.keeper.queue_pair().expect("connected").query().expect("its state");
    if fabric() != Fabric::Iwarp {
        assert_eq!((ours.state, ours.rights), (QueuePairState::ReadyToSend, RemoteRights::NONE));
        assert_eq!((theirs.state, theirs.rights), (QueuePairState::ReadyToSend, RemoteRights::WRITE));
    }
}

#[test]
fn whoever_begins_elsewhere_than_agreed_is_refused_and_whoever_is_one_too_many_too() {
    let mut server = Server::open(1);
    let mut asker = Asker::open(64);
    let (offer, token) = asker.offer(ONE);
    server.keeper.connect_replies(&offer, Connection(7).stamp(1), token, now());
    let told = until("answer", || {
        asker.keeper.do_work(now());
        server.event()
    });
    let is_refused = matches!(&told, RcTxEvent::Dropped { why: DropReason::Refused(Refusal::BadStart), .. });
    assert!(is_refused, "{told:?}");
    let _first = server.connect(ONE, 64);
    let (offer, token) = asker.offer(Connection(2));
    server.keeper.connect_replies(&offer, Connection(2).stamp(1), token, now());
    let told = server.event();
    assert!(matches!(&told, Some(RcTxEvent::Dropped { why: DropReason::TooMany { max_peers: 1 }, .. })), "{told:?}");
}

#[test]
fn sizes_beyond_the_device_are_refused_by_name() {
    for max_peers in [0, 1 << 20] {
        let error = RcReplyTx::open(&RcOptions { max_peers, ..rc_options() }, CHANNEL, LANE).err().expect("a limit");
        assert!(matches!(error, RdmaError::Limit { .. }), "{error}");
        assert!(error.to_string().contains("reply rings"), "{error}");
    }
}

#[test]
fn requests_leave_as_datagrams_and_answers_come_by_the_ring_alone() {
    let mut server = Server::open(1);
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let std::net::SocketAddr::V4(at) = socket.local_addr().expect("an address") else { panic!("asked for IPv4") };
    let mut asker = server.connect(ONE, 64);
    let requests = ReplyRx::connect(at, (CHANNEL, LANE), 4096).expect("a socket");
    let options = RcRxOptions { lines: 64, ..RcRxOptions::new(THERE) };
    let (mut rx, _keeper) = RcReplyRx::open(&options, (CHANNEL, LANE), requests).expect("a lane there");
    assert!(rx.request(&line_of(ONE.stamp(1)), now()));
    let mut packet = [0; 256];
    let (len, from) = socket.recv_from(&mut packet).expect("the request");
    assert_eq!(len, 96, "a header and a line");
    // Whatever comes back to that socket is nobody's.
    socket.send_to(&packet[..len], from).expect("sends");
    let mut seen = Seen::default();
    assert_eq!(rx.poll(now(), 100, &mut seen), 0);
    server.write(ONE.stamp(1), 3);
    poll_until(&mut asker.rx, &mut seen, LIMIT, "lines", |seen| seen.next == 4);
}

#[test]
fn whoever_is_gone_is_dropped_and_its_answers_are_not_taken() {
    let before = resources();
    let mut server = Server::open(2);
    let asker = server.connect(ONE, 64);
    let mut other = server.connect(Connection(2), 64);
    server.write(ONE.stamp(1), 10);
    drop(asker);
    let mut written = 10;
    let told = until("word of its end", || {
        // Answers go on, into nowhere; a full queue is passed over.
        let room = server.tx.room(ONE).min(10);
        let lines: Vec<Line> = (1..=room as u64).map(|i| line_of(ONE.stamp(written + i))).collect();
        written += server.tx.write(ONE.stamp(written + 1), &lines, now()) as u64;
        server.event()
    });
    println!("after {written} lines: {told:?}");
    assert!(matches!(told, RcTxEvent::Dropped { .. }), "{told:?}");
    assert_eq!((server.tx.room(ONE), server.tx.write(ONE.stamp(written + 1), &[Line::ZERO], now())), (0, 0));
    // The neighbour has lost nothing, and the place is free for the next.
    let mut seen = Seen::default();
    server.write(Connection(2).stamp(1), 60);
    poll_until(&mut other.rx, &mut seen, LIMIT, "lines", |seen| seen.next == 61);
    let third = server.connect(Connection(3), 64);
    drop((third, other, server));
    assert_resources(&before);
}
