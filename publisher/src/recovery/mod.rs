//! The recovery server: answers subscribers who lost lines, or came late.
//!
//! It runs on a thread (and, if told so, a core) of its own, and is a subscriber of the publisher's own ring: it copies
//! lines into a history, keeps books, and answers requests from them. The publishing loop knows nothing of it. If it is
//! itself too slow it is lapped like anybody else, and its history begins anew behind the gap.
//!
//! What is answered is decided by [`Responder`]; here is what that needs of the world: the ring, the way to subscribers
//! ([`ReplyPort`]; over UDP, [`ReplyTx`]), who may ask and from where, and counters. The control channel lets subscribers in,
//! by the [`Door`].

mod door;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddrV4;

use protocol::arbiter::{Arbiter, ArbiterConfig};
use protocol::channel::ChannelConfig;
use protocol::control::{RecoveryInfo, RequestKey};
use protocol::line::Line;
use protocol::recovery::{Connection, Request, Responder, ResponderConfig, ResponderCounts};
use protocol::time::Nanos;
use transport::counters::Counter;
use transport::reply::{ReplyError, ReplyPort, ReplyTx};
use transport::ring::{RingReader, StartAt};
use transport::{LaneRx, RingWriter};

use crate::config::RecoverySection;
use door::GuestList;

pub use door::Door;

/// Lines read from the ring in one turn.
const LINES_PER_TURN: usize = 4096;
/// Requests taken in one turn.
const REQUESTS_PER_TURN: usize = 64;
/// Packets sent in one turn: a tenth of a millisecond's worth, in which a million lines a second bring 100 lines.
const PACKETS_PER_TURN: usize = 32;
/// Lines of its own replies kept for each subscriber, and the most of one reply: 2 MiB.
const REPLY_LINES: usize = 1 << 15;
/// Lines that a subscriber may be sent at once, after a pause.
const BURST_LINES: u64 = 8192;
/// How long a place of the ring that was written may fail to verify, ns.
const HEDGE_NS: u64 = 200_000;
/// The counters are written this often, ns.
const COUNTERS_EVERY_NS: u64 = 10_000_000;

/// Names of the server's counters in the ring's counter page, in order.
const COUNTERS: [&str; 14] = [
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
    /// Its socket has no address.
    #[error("the recovery server cannot tell where it listens: {0}")]
    Address(io::Error),
}

/// A subscriber that was let in.
struct Seat<A> {
    key: RequestKey,
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

/// See the [module](self). `P` is how requests come and answers go.
pub struct RecoveryServer<P: ReplyPort = ReplyTx> {
    responder: Responder,
    /// Puts what the ring brings in order, and names what it lost, as for any subscriber.
    arbiter: Arbiter,
    reader: RingReader,
    port: P,
    guests: GuestList,
    seats: HashMap<u16, Seat<P::Address>>,
    strangers: StrangerCounts,
    counters: [Counter; COUNTERS.len()],
    next_counters: Nanos,
    /// Lines that the reply lane did not take.
    unsent: u64,
}

/// A server of `ring` over UDP, and the door to it. Allocates and touches history and books.
///
/// # Errors
/// [`RecoveryError`].
///
/// # Panics
/// If the ring's counter page is full.
pub fn open(
    section: &RecoverySection,
    ring: &RingWriter,
    channel: ChannelConfig,
) -> Result<(RecoveryServer, Door), RecoveryError> {
    open_with(section, ring, responder(section, channel))
}

/// A responder for a server like this, that has seen nothing: for a publisher that replays its feed before there is a ring.
/// Allocates and touches history and books.
pub fn responder(section: &RecoverySection, channel: ChannelConfig) -> Responder {
    Responder::new(ResponderConfig {
        history_lines: section.history_lines,
        reply_lines: REPLY_LINES,
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
pub fn open_with(
    section: &RecoverySection,
    ring: &RingWriter,
    responder: Responder,
) -> Result<(RecoveryServer, Door), RecoveryError> {
    let port = ReplyTx::bind(section.listen, section.mtu, ring.channel(), ring.lane())?;
    let at: SocketAddrV4 = port.local_address().map_err(RecoveryError::Address)?;
    let info =
        RecoveryInfo { at, history_lines: section.history_lines as u64, lines_per_second: section.lines_per_second };
    let (door, guests) = door::door(info, section.subscribers).map_err(RecoveryError::Random)?;
    Ok((RecoveryServer::new(responder, section.subscribers, ring, port, guests), door))
}

impl<P: ReplyPort> RecoveryServer<P> {
    fn new(responder: Responder, seats: usize, ring: &RingWriter, port: P, guests: GuestList) -> RecoveryServer<P> {
        let mut arbiter = Arbiter::new(ArbiterConfig::default());
        if responder.source().next() == ring.shape().first() {
            // What is before the ring's first line is no gap.
            arbiter.take_up(ring.shape().first());
        }
        RecoveryServer {
            responder,
            arbiter,
            reader: ring.reader(StartAt::Oldest, HEDGE_NS),
            port,
            guests,
            seats: HashMap::with_capacity(seats),
            strangers: StrangerCounts::default(),
            counters: COUNTERS.map(|name| ring.counters().register(name).expect("the counter page has room")),
            next_counters: Nanos::ZERO,
            unsent: 0,
        }
    }

    /// One turn: who came and went, new lines, requests, answers. Returns how much was done.
    pub fn do_work(&mut self, now: Nanos) -> usize {
        let mut work = self.update_guests();
        work += self.reader.poll(now, LINES_PER_TURN, &mut self.arbiter.sink(now, &mut self.responder));
        self.arbiter.on_timeout(now, &mut self.responder);
        for _ in 0..REQUESTS_PER_TURN {
            let Some((from, line)) = self.port.receive() else { break };
            work += 1;
            if self.is_known(from, &line) {
                self.responder.on_request(&line);
            }
        }
        for _ in 0..PACKETS_PER_TURN {
            let room = self.port.room();
            let Some(reply) = self.responder.poll_reply(now, room.len()) else { break };
            let count = reply.lines.len();
            room[..count].copy_from_slice(reply.lines);
            work += count;
            let to = self.seats.get(&reply.connection.0).and_then(|seat| seat.at);
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
                    Seat { key: guest.key, at: None }
                });
            }
        });
        usize::from(changed)
    }

    fn write_counters(&mut self) {
        let (counts, strangers) = (self.responder.counts(), self.strangers);
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
        ];
        for (counter, value) in self.counters.iter_mut().zip(values) {
            counter.set(value);
        }
    }
}

#[cfg(test)]
mod tests;
