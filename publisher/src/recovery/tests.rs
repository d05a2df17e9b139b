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

/// Rings of everybody's that take a few lines a turn.
#[derive(Default)]
struct Shelf {
    written: Vec<(Stamp, Vec<Line>)>,
    room: usize,
}

impl ReplyRings for Shelf {
    fn do_work(&mut self, _: Nanos) -> usize {
        0
    }
    fn room(&self, _: Connection) -> usize {
        self.room
    }
    fn write(&mut self, first: Stamp, lines: &[Line], _: Nanos) -> usize {
        assert!(lines.len() <= self.room, "{} lines where {} fit", lines.len(), self.room);
        self.room -= lines.len();
        self.written.push((first, lines.to_vec()));
        lines.len()
    }
}

struct Bench {
    ring: RingWriter,
    server: RecoveryServer<Pigeonhole, Shelf>,
    door: Door,
}

fn bench(ring_lines: usize) -> Bench {
    let ring =
        RingWriter::anonymous(ChannelId::new(1), Lane::new(0), Epoch(4), ring_lines).expect("a ring without a name");
    let info = RecoveryInfo { at: "127.0.0.1:1".parse().expect("one"), history_lines: 0, lines_per_second: 0 };
    let (door, guests) = door::door(info, 4).expect("random bytes");
    let port = Pigeonhole { requests: Vec::new(), sent: Vec::new(), room: vec![Line::ZERO; 10], takes: usize::MAX };
    let config = ResponderConfig { history_lines: 256, reply_lines: 256, ..ResponderConfig::default() };
    let (responder, port) = (Responder::new(config), (port, Shelf::default()));
    Bench { server: RecoveryServer::new(responder, 4, &ring, port, guests), ring, door }
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
    let (a, b) = (bench.door.admit(false).expect("room"), bench.door.admit(false).expect("room"));
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
    let guest = bench.door.admit(false).expect("room");
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
    let guest = bench.door.admit(false).expect("room");
    bench.server.port.takes = 1;
    bench.ask(guest, 1, Ask::Lines { first: stamp(1), count: 15 }, 7);
    assert_eq!((bench.server.port.sent.len(), bench.server.unsent), (1, 6));
    bench.server.port.takes = usize::MAX;
    bench.ask(guest, 2, Ask::Replies { first: 11, count: 6 }, 7);
    let (to, next, lines) = bench.server.port.sent.last().expect("sent again");
    assert_eq!((*to, next.sequence().0, lines.len()), (7, 17, 6));
}

#[test]
fn whoever_has_a_ring_gets_its_answers_there_alone_as_far_as_there_is_room() {
    let mut bench = bench(64);
    bench.put(20);
    bench.turn();
    let by_ring = bench.door.admit(true).expect("room");
    let by_packets = bench.door.admit(false).expect("room");
    bench.turn();
    bench.ask(by_ring, 1, Ask::Lines { first: stamp(1), count: 15 }, 7);
    assert!(bench.server.rings.written.is_empty() && bench.server.port.sent.is_empty(), "no room, nothing taken");
    // It waits for its room, and nobody waits for it.
    bench.ask(by_packets, 1, Ask::Lines { first: stamp(1), count: 2 }, 8);
    assert_eq!(bench.server.port.sent.len(), 1);
    for _ in 0..4 {
        bench.server.rings.room = 6;
        bench.turn();
    }
    let written: Vec<(Stamp, usize)> =
        bench.server.rings.written.iter().map(|(first, lines)| (*first, lines.len())).collect();
    let at = |count| Connection(by_ring.0).stamp(count);
    assert_eq!(written, [(at(1), 6), (at(7), 6), (at(13), 4)]);
    for (first, lines) in &bench.server.rings.written {
        assert!(lines.iter().enumerate().all(|(i, line)| line.verifies(first.plus(i as u64))));
    }
    assert_eq!((bench.server.written, bench.server.unsent), (16, 0));
    assert!(bench.server.port.sent.iter().all(|(to, ..)| *to == 8), "not one of them as a datagram");
    // Room that is there for one who has gone is nobody's.
    bench.door.dismiss(by_ring.0);
    bench.turn();
    bench.ask(by_ring, 2, Ask::Lines { first: stamp(1), count: 1 }, 7);
    assert_eq!(bench.server.rings.written.len(), 3);
}

#[test]
fn cells_follow_the_books_and_what_the_server_lost_makes_all_of_them_stale_at_once() {
    use protocol::book::{BookState, Start};
    use protocol::conflation::{CONTENT_WORDS, ConflatedBook};
    use transport::cells::core::Look;
    use transport::cells::{CellsReader, CellsWriter};

    let mut bench = bench(16);
    let config = ResponderConfig { history_lines: 256, reply_lines: 256, start: Start::Natural, ..Default::default() };
    bench.server.responder = Responder::new(config);
    let cells = CellsWriter::beside(&bench.ring, 4).expect("cells of this process");
    let reader = cells.reader();
    bench.server.conflating = Some(Conflating::new(cells));
    let book = |reader: &CellsReader, instrument: u32| {
        let mut content = [0; CONTENT_WORDS];
        match reader.read(instrument as usize, &mut content) {
            Look::Version(_) => ConflatedBook::from_content(InstrumentId(instrument), &content)
                .map(|book| (book.in_round(reader.round()).state, book.bids.depth(), book.at.sequence().0)),
            _ => None,
        }
    };
    let put = |bench: &mut Bench, instrument: u32, count: u32, order: u64| {
        let mut record = Record::new(Kind::ADD, InstrumentId(instrument));
        record.flags = protocol::record::Flags::LAST;
        record.side = protocol::record::Side::BID;
        record.order_id.set(order);
        record.price.set(order as i64);
        record.size.set(1);
        record.instrument_seq.set(count);
        let line = Line::seal(record, bench.ring.next());
        bench.ring.put(&line);
        bench.ring.flush();
    };
    put(&mut bench, 1, 1, 10);
    put(&mut bench, 2, 1, 20);
    put(&mut bench, 2, 2, 21);
    bench.turn();
    let readable = BookState::Suspect;
    assert_eq!((book(&reader, 1), book(&reader, 2)), (Some((readable, 1, 3)), Some((readable, 2, 3))));
    assert_eq!((book(&reader, 3), reader.pulse().map(|pulse| pulse.next)), (None, Some(stamp(4))));
    // The server is lapped: what it knew of instrument 1 it cannot know any more, and says so.
    for order in 0..100 {
        put(&mut bench, 3, order + 1, u64::from(order) + 30);
    }
    let round = reader.round();
    bench.turn();
    assert!(bench.server.counts().lost > 50, "{:?}", bench.server.counts());
    assert!(reader.round() > round);
    let states = [1, 2].map(|instrument| book(&reader, instrument).map(|(state, ..)| state));
    assert_eq!(states, [Some(BookState::Stale); 2]);
    let [written, behind, beyond] = bench.server.conflating.as_ref().expect("it has").counts();
    assert!(written >= 5 && behind == 0 && beyond == 0, "{written} {behind} {beyond}");
    // The next line of an instrument that goes on where it was makes its book readable again.
    put(&mut bench, 1, 2, 11);
    bench.turn();
    assert_eq!(book(&reader, 1).map(|(state, depth, _)| (state, depth)), Some((readable, 2)));
}
