//! The recovery server: answers subscribers who lost lines, or came late.
//!
//! It runs on a thread (and, if told so, a core) of its own, and is a subscriber of the publisher's own ring: it copies
//! lines into a history, keeps books, and answers requests from them. The publishing loop knows nothing of it. If it is
//! itself too slow it is lapped like anybody else, and its history begins anew behind the gap.
//!
//! What is answered is decided by [`Responder`]; here is what that needs of the world: the ring, the way to subscribers
//! ([`ReplyPort`]; over UDP, [`ReplyTx`]), who may ask and from where, and counters. The control channel lets subscribers in,
//! by the [`Door`].

mod conflating;
mod door;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddrV4;

use protocol::arbiter::{Arbiter, ArbiterConfig, Delivery};
use protocol::channel::ChannelConfig;
use protocol::control::{RecoveryInfo, RequestKey};
use protocol::line::Line;
use protocol::log::{Logged, Recorder};
use protocol::recovery::{Connection, Request, Responder, ResponderConfig, ResponderCounts};
use protocol::time::Nanos;
use transport::cells::CellsWriter;
use transport::counters::Counter;
use transport::log::LogSink;
use transport::reply::{ReplyError, ReplyPort, ReplyRings, ReplyTx};
use transport::ring::{RingReader, StartAt};
use transport::shm::SetupError;
use transport::{LaneRx, RingWriter};

use crate::config::RecoverySection;
use conflating::{Conflating, Taking};
use door::GuestList;

pub use door::Door;

/// Lines read from the ring in one turn.
const LINES_PER_TURN: usize = 4096;
/// Requests taken in one turn.
const REQUESTS_PER_TURN: usize = 64;
/// Packets sent in one turn: a tenth of a millisecond's worth, in which a million lines a second bring 100 lines.
const PACKETS_PER_TURN: usize = 32;
/// Lines of its own replies kept for each subscriber: 2 MiB. Who asks for a book of more than 16,000 orders makes it more, up to
/// 16 MiB for one of 262,000.
const REPLY_LINES: usize = 1 << 15;
const MOST_REPLY_LINES: usize = 1 << 18;
/// Lines that a subscriber may be sent at once, after a pause.
const BURST_LINES: u64 = 8192;
/// How long a place of the ring that was written may fail to verify, ns.
const HEDGE_NS: u64 = 200_000;
/// The counters are written this often, ns.
const COUNTERS_EVERY_NS: u64 = 10_000_000;

/// Names of the server's counters in the ring's counter page, in order.
const COUNTERS: [&str; 18] = [
    "recovery lines kept",
    "recovery lines lost",
    "recovery subscribers",
    "recovery requests",
    "recovery requests repeated",
    "recovery requests of strangers",
    "recovery requests malformed",
    "recovery requests crowded out",
    "recovery refusals",
    "recovery lines retransmitted",
    "recovery snapshots",
    "recovery lines sent",
    "recovery lines sent again",
    "recovery lines unsent",
    "recovery lines written into rings",
    "conflated books written",
    "conflated books behind",
    "conflated lines without a cell",
];

/// Why there is no recovery server.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    /// The reply lane.
    #[error(transparent)]
    Reply(#[from] ReplyError),
    /// No random bytes for keys.
    #[error("the recovery server cannot read /dev/urandom ({0}), which makes the keys of its subscribers")]
    Random(io::Error),
    /// The file of cells.
    #[error(transparent)]
    Cells(#[from] SetupError),
    /// Its socket has no address.
    #[error("the recovery server cannot tell where it listens: {0}")]
    Address(io::Error),
}

/// A subscriber that was let in.
struct Seat<A> {
    key: RequestKey,
    has_ring: bool,
    /// Where its first request came from: further ones come from there, and answers go there.
    at: Option<A>,
}

/// What was refused before anybody looked at what it asks. Ordinary outcomes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StrangerCounts {
    /// Packets whose line is no request of this version.
    pub malformed: u64,
    /// Requests of connections that there are not (any more).
    pub unknown: u64,
    /// Requests that name a connection and not its key.
    pub wrong_keys: u64,
    /// Requests of a connection from another place than its first.
    pub strayed: u64,
}

/// See the [module](self). `P` is how requests come and answers go, `W` how they go to those who have a ring for them.
pub struct RecoveryServer<P: ReplyPort = ReplyTx, W: ReplyRings = ()> {
    responder: Responder,
    /// The cells that it keeps, if it does.
    conflating: Option<Conflating>,
    /// Puts what the ring brings in order, and names what it lost, as for any subscriber.
    arbiter: Arbiter,
    reader: RingReader,
    port: P,
    rings: W,
    guests: GuestList,
    seats: HashMap<u16, Seat<P::Address>>,
    strangers: StrangerCounts,
    counters: [Counter; COUNTERS.len()],
    next_counters: Nanos,
    /// Lines that the reply lane did not take.
    unsent: u64,
    /// Lines that were written into reply rings.
    written: u64,
    log: Option<Recorder<LogSink>>,
}

/// A server of `ring` over UDP, and the door to it. Subscribers that have a ring for the answers get them by `rings`; where
/// there are none, `()`. Allocates and touches history and books.
///
/// # Errors
/// [`RecoveryError`].
///
/// # Panics
/// If the ring's counter page is full.
pub fn open<W: ReplyRings>(
    section: &RecoverySection,
    ring: &RingWriter,
    channel: ChannelConfig,
    rings: W,
) -> Result<(RecoveryServer<ReplyTx, W>, Door), RecoveryError> {
    open_with(section, ring, channel, responder(section, channel), rings)
}

/// A responder for a server like this, that has seen nothing: for a publisher that replays its feed before there is a ring.
/// Allocates and touches history and books.
pub fn responder(section: &RecoverySection, channel: ChannelConfig) -> Responder {
    Responder::new(ResponderConfig {
        history_lines: section.history_lines,
        reply_lines: REPLY_LINES,
        most_reply_lines: MOST_REPLY_LINES,
        lines_per_s: section.lines_per_second,
        burst_lines: BURST_LINES,
        books: channel.books,
        start: channel.start,
        ..ResponderConfig::default()
    })
}

/// As [`open`], with a responder that may have been given every line before the ring's first.
///
/// # Errors
/// [`RecoveryError`].
///
/// # Panics
/// If the ring's counter page is full.
pub fn open_with<W: ReplyRings>(
    section: &RecoverySection,
    ring: &RingWriter,
    channel: ChannelConfig,
    responder: Responder,
    rings: W,
) -> Result<(RecoveryServer<ReplyTx, W>, Door), RecoveryError> {
    let port = ReplyTx::bind(section.listen, section.mtu, ring.channel(), ring.lane())?;
    let at: SocketAddrV4 = port.local_address().map_err(RecoveryError::Address)?;
    let info =
        RecoveryInfo { at, history_lines: section.history_lines as u64, lines_per_second: section.lines_per_second };
    let (door, guests) = door::door(info, section.subscribers).map_err(RecoveryError::Random)?;
    let mut server = RecoveryServer::new(responder, section.subscribers, ring, (port, rings), guests);
    if section.conflate {
        let mut conflating = Conflating::new(CellsWriter::beside(ring, channel.books.instruments + 1)?);
        if server.arbiter.next().is_some() {
            // Its books come from a replay.
            conflating.on_doubt();
        }
        server.conflating = Some(conflating);
    }
    Ok((server, door))
}

/// Takes what is new in the ring.
fn read_ring(reader: &mut RingReader, arbiter: &mut Arbiter, now: Nanos, delivery: &mut impl Delivery) -> usize {
    let work = reader.poll(now, LINES_PER_TURN, &mut arbiter.sink(now, delivery));
    arbiter.on_timeout(now, delivery);
    work
}

impl<P: ReplyPort, W: ReplyRings> RecoveryServer<P, W> {
    fn new(
        responder: Responder,
        seats: usize,
        ring: &RingWriter,
        (port, rings): (P, W),
        guests: GuestList,
    ) -> RecoveryServer<P, W> {
        let mut arbiter = Arbiter::new(ArbiterConfig::default());
        if responder.source().next() == ring.shape().first() {
            // What is before the ring's first line is no gap.
            arbiter.take_up(ring.shape().first());
        }
        RecoveryServer {
            responder,
            conflating: None,
            arbiter,
            reader: ring.reader(StartAt::Oldest, HEDGE_NS),
            port,
            rings,
            guests,
            seats: HashMap::with_capacity(seats),
            strangers: StrangerCounts::default(),
            counters: COUNTERS.map(|name| ring.counters().register(name).expect("the counter page has room")),
            next_counters: Nanos::ZERO,
            unsent: 0,
            written: 0,
            log: None,
        }
    }

    /// The same, and everything that the ring gives it is written down. Dropping the server closes the log.
    pub fn logged(mut self, mut recorder: Recorder<LogSink>) -> RecoveryServer<P, W> {
        if let Some(at) = self.arbiter.next() {
            // It goes on where a replay stopped.
            recorder.on_joined(at);
        }
        self.log = Some(recorder);
        self
    }

    /// One turn: who came and went, new lines, requests, answers. Returns how much was done.
    pub fn do_work(&mut self, now: Nanos) -> usize {
        let mut work = self.update_guests();
        let mut taking = Taking { responder: &mut self.responder, conflating: &mut self.conflating };
        work += match &mut self.log {
            None => read_ring(&mut self.reader, &mut self.arbiter, now, &mut taking),
            Some(log) => read_ring(&mut self.reader, &mut self.arbiter, now, &mut Logged::new(&mut taking, log)),
        };
        if let Some(conflating) = &mut self.conflating {
            work += conflating.turn(now, self.responder.source());
        }
        for _ in 0..REQUESTS_PER_TURN {
            let Some((from, line)) = self.port.receive() else { break };
            work += 1;
            if self.is_known(from, &line) {
                self.responder.on_request(&line);
            }
        }
        work += self.rings.do_work(now);
        for _ in 0..PACKETS_PER_TURN {
            let room = self.port.room();
            let (seats, rings, packet) = (&self.seats, &self.rings, room.len());
            let has_ring = |connection: Connection| seats.get(&connection.0).is_some_and(|seat| seat.has_ring);
            let room_of = |connection| if has_ring(connection) { rings.room(connection) } else { packet };
            let Some(reply) = self.responder.poll_reply_within(now, room_of) else { break };
            let count = reply.lines.len();
            work += count;
            let seat = self.seats.get(&reply.connection.0);
            if seat.is_some_and(|seat| seat.has_ring) {
                let taken = self.rings.write(reply.first, reply.lines, now);
                self.written += taken as u64;
                self.unsent += (count - taken) as u64;
                continue;
            }
            room[..count].copy_from_slice(reply.lines);
            let to = seat.and_then(|seat| seat.at);
            if !to.is_some_and(|to| self.port.send(to, reply.first.plus(count as u64), count, now)) {
                // The queue is full: what was not sent is asked for again.
                self.unsent += count as u64;
                break;
            }
        }
        if now >= self.next_counters {
            self.next_counters = now.plus(COUNTERS_EVERY_NS);
            self.write_counters();
        }
        work
    }

    /// What was answered.
    pub fn counts(&self) -> ResponderCounts {
        self.responder.counts()
    }

    /// What was refused at the door.
    pub fn strangers(&self) -> StrangerCounts {
        self.strangers
    }

    /// Whether a request is of somebody who was let in, and comes from where that one is. A stranger's costs a look into a
    /// table.
    fn is_known(&mut self, from: P::Address, line: &Line) -> bool {
        let Some(request) = Request::from_line(line) else {
            self.strangers.malformed += 1;
            return false;
        };
        let Some(seat) = self.seats.get_mut(&request.connection.0) else {
            self.strangers.unknown += 1;
            return false;
        };
        if seat.key.0 != request.key {
            self.strangers.wrong_keys += 1;
            return false;
        }
        // Whoever read a key along on the way cannot have the answers sent elsewhere.
        let is_there = *seat.at.get_or_insert(from) == from;
        self.strangers.strayed += u64::from(!is_there);
        is_there
    }

    fn update_guests(&mut self) -> usize {
        let (seats, responder) = (&mut self.seats, &mut self.responder);
        let changed = self.guests.changed(|places| {
            seats.retain(|connection, _| {
                let stays = places.iter().flatten().any(|guest| guest.connection == *connection);
                if !stays {
                    responder.dismiss(Connection(*connection));
                }
                stays
            });
            for guest in places.iter().flatten() {
                seats.entry(guest.connection).or_insert_with(|| {
                    responder.admit(Connection(guest.connection), guest.key.0);
                    Seat { key: guest.key, has_ring: guest.has_ring, at: None }
                });
            }
        });
        usize::from(changed)
    }

    fn write_counters(&mut self) {
        let (counts, strangers) = (self.responder.counts(), self.strangers);
        let [written, behind, beyond] = self.conflating.as_ref().map_or([0; 3], Conflating::counts);
        let values = [
            counts.lines,
            counts.lost,
            self.seats.len() as u64,
            counts.requests,
            counts.repeated,
            strangers.unknown + strangers.wrong_keys + strangers.strayed + counts.strangers,
            strangers.malformed + self.port.refused(),
            counts.overruns,
            counts.refused,
            counts.retransmitted,
            counts.snapshots,
            counts.sent,
            counts.sent_again,
            self.unsent,
            self.written,
            written,
            behind,
            beyond,
        ];
        for (counter, value) in self.counters.iter_mut().zip(values) {
            counter.set(value);
        }
    }
}

#[cfg(test)]
mod tests;
