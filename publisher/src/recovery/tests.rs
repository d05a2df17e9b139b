use protocol::line::{Epoch, Line, SequenceNumber, Stamp};
use protocol::record::{ChannelId, InstrumentId, Kind, Lane, Record};
use protocol::recovery::{Answer, Ask, Refusal, ReplyBegin};

use super::*;

/// A way to subscribers that keeps what is sent, and takes only so many packets.
struct Pigeonhole {
    requests: Vec<(u8, Line)>,
    sent: Vec<(u8, Stamp, Vec<Line>)>,
    room: Vec<Line>,
    takes: usize,
}

impl ReplyPort for Pigeonhole {
    type Address = u8;

    fn receive(&mut self) -> Option<(u8, Line)> {
        self.requests.pop()
    }
    fn room(&mut self) -> &mut [Line] {
        &mut self.room
    }
    fn send(&mut self, to: u8, next: Stamp, count: usize, _: Nanos) -> bool {
        let takes = self.sent.len() < self.takes;
        if takes {
            self.sent.push((to, next, self.room[..count].to_vec()));
        }
        takes
    }
    fn refused(&self) -> u64 {
        0
    }
}

struct Bench {
    ring: RingWriter,
    server: RecoveryServer<Pigeonhole>,
    door: Door,
}

fn bench(ring_lines: usize) -> Bench {
    let ring =
        RingWriter::anonymous(ChannelId::new(1), Lane::new(0), Epoch(4), ring_lines).expect("a ring without a name");
    let info = RecoveryInfo { at: "127.0.0.1:1".parse().expect("one"), history_lines: 0, lines_per_second: 0 };
    let (door, guests) = door::door(info, 4).expect("random bytes");
    let port = Pigeonhole { requests: Vec::new(), sent: Vec::new(), room: vec![Line::ZERO; 10], takes: usize::MAX };
    let config = ResponderConfig { history_lines: 256, reply_lines: 256, ..ResponderConfig::default() };
    Bench { server: RecoveryServer::new(Responder::new(config), 4, &ring, port, guests), ring, door }
}

impl Bench {
    fn put(&mut self, count: usize) {
        for _ in 0..count {
            let line = Line::seal(Record::new(Kind::ADD, InstrumentId(1)), self.ring.next());
            self.ring.put(&line);
        }
        self.ring.flush();
    }

    fn turn(&mut self) {
        while self.server.do_work(Nanos(1)) > 0 {}
    }

    fn ask(&mut self, (connection, key): (u16, RequestKey), number: u64, ask: Ask, from: u8) {
        let request = Request { connection: Connection(connection), number, key: key.0, ask };
        self.server.port.requests.push((from, request.to_line()));
        self.turn();
    }
}

fn stamp(sequence: u64) -> Stamp {
    Stamp::new(Epoch(4), SequenceNumber(sequence))
}

#[test]
fn each_answer_goes_where_the_first_request_of_its_connection_came_from() {
    let mut bench = bench(64);
    bench.put(20);
    bench.turn();
    let (a, b) = (bench.door.admit().expect("room"), bench.door.admit().expect("room"));
    bench.turn();
    bench.ask(a, 1, Ask::Lines { first: stamp(1), count: 15 }, 7);
    bench.ask(b, 1, Ask::Lines { first: stamp(20), count: 1 }, 8);
    // The key of the first, from another place.
    bench.ask(a, 2, Ask::Lines { first: stamp(1), count: 15 }, 9);
    let sent: Vec<(u8, u64, usize)> =
        bench.server.port.sent.iter().map(|(to, next, lines)| (*to, next.sequence().0, lines.len())).collect();
    // Sixteen lines in packets of ten; counts begin at 1 for each connection.
    assert_eq!(sent, [(7, 11, 10), (7, 17, 6), (8, 3, 2)]);
    for (to, next, lines) in &bench.server.port.sent {
        let connection = Connection(if *to == 7 { a.0 } else { b.0 });
        for (i, line) in lines.iter().rev().enumerate() {
            assert!(line.verifies(connection.stamp(next.sequence().0 - 1 - i as u64)));
        }
    }
    assert_eq!(bench.server.strangers(), StrangerCounts { strayed: 1, ..StrangerCounts::default() });
    bench.door.dismiss(a.0);
    bench.turn();
    bench.ask(a, 3, Ask::Lines { first: stamp(1), count: 1 }, 7);
    assert_eq!((bench.server.strangers().unknown, bench.server.counts().requests), (1, 2));
}

#[test]
fn a_server_that_was_lapped_says_that_it_does_not_hold_what_it_lost() {
    let mut bench = bench(16);
    bench.put(5);
    bench.turn();
    bench.put(100);
    bench.turn();
    assert!(bench.server.counts().lost > 50, "{:?}", bench.server.counts());
    let guest = bench.door.admit().expect("room");
    bench.turn();
    bench.ask(guest, 1, Ask::Lines { first: stamp(3), count: 1 }, 7);
    let (_, _, lines) = &bench.server.port.sent[0];
    let begin = ReplyBegin::from_record(&lines[0].record).expect("an answer");
    assert!(matches!(begin.answer, Answer::Refused { why: Refusal::NotHeld, .. }), "{begin:?}");
    assert_eq!(begin.head, stamp(106));
    bench.ask(guest, 2, Ask::Lines { first: stamp(105), count: 1 }, 7);
    let (_, _, lines) = &bench.server.port.sent[1];
    assert_eq!(lines.len(), 2, "what it read since it holds");
}

#[test]
fn what_the_way_back_does_not_take_is_counted_and_had_by_asking_again() {
    let mut bench = bench(64);
    bench.put(20);
    bench.turn();
    let guest = bench.door.admit().expect("room");
    bench.server.port.takes = 1;
    bench.ask(guest, 1, Ask::Lines { first: stamp(1), count: 15 }, 7);
    assert_eq!((bench.server.port.sent.len(), bench.server.unsent), (1, 6));
    bench.server.port.takes = usize::MAX;
    bench.ask(guest, 2, Ask::Replies { first: 11, count: 6 }, 7);
    let (to, next, lines) = bench.server.port.sent.last().expect("sent again");
    assert_eq!((*to, next.sequence().0, lines.len()), (7, 17, 6));
}
