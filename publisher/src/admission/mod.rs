//! The control channel's server: tells those who may know which channels there are and how to get them.
//!
//! It runs on a thread of its own and touches the publishing loop in nothing: what it knows of instruments it reads from
//! the ring, as any subscriber does. A malformed or slow peer costs its own session and nothing else.
//!
//! Whoever wants to be written to by RDMA offers a ring here. [`Rings`] connects to it; the connection belongs to the
//! session, and ends with it. So a subscriber that dies is let go as soon as its host closes the socket for it.

mod rings;
mod tracking;

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use protocol::control::{
    ChannelInfo, INSTRUMENTS_PER_REPLY, InstrumentInfo, MAX_BODY_LEN, OneTimeToken, Reply, Request, RequestKey,
    RingOffer, ServerSession,
};
use protocol::definition::{Assembler, Definition};
use protocol::line::Stamp;
use protocol::record::{Flags, Kind, Record};
use protocol::run::{LanePath, LossCause, Position, Run, RunSink};
use protocol::time::Nanos;
use transport::LaneRx;
use transport::counters::{Counter, CounterPage};
use transport::ring::RingReader;

use crate::recovery::Door;

pub use rings::{Rings, Ticket};
use tracking::Tracking;

/// The most connections at a time; further ones are closed at once, and counted.
const MAX_SESSIONS: usize = 256;
/// The most of them that have not shown who they are; the next one takes the place of whoever has been silent longest.
const MAX_STRANGERS: usize = 32;
/// Connections accepted in one turn: each has a turn or more to show itself before others can take its place.
const ACCEPTS_PER_TURN: usize = MAX_STRANGERS / 2;
/// From one request of a session for a connection to a ring, or for its end, to the next, ns: each is several system calls
/// and a line in the log, and a single read may bring hundreds. What comes sooner waits.
const RING_REQUEST_INTERVAL_NS: u64 = 20_000_000;
/// Lines read from the ring in one turn.
const LINES_PER_TURN: usize = 4096;
/// Names of its counters in the ring's counter page, in order.
const COUNTERS: [&str; 3] =
    ["tracked subscribers", "tracked lines behind, the slowest", "tracked subscribers let go, nearly lapped"];

/// Why the control channel cannot be served.
#[derive(Debug, thiserror::Error)]
#[error(
    "the control channel cannot listen on {address} ({source}); choose another 'listen' in [control], or end what holds it"
)]
pub struct ListenError {
    address: SocketAddr,
    source: io::Error,
}

/// What an [`Admission`] counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AdmissionCounts {
    /// Connections accepted.
    pub accepted: u64,
    /// Peers that showed who they are.
    pub identified: u64,
    /// Connections closed unheard because there were too many.
    pub turned_away: u64,
    /// Sessions ended for a reason of the protocol's: wrong token, no frame, too slow, and so on.
    pub refused: u64,
    /// Requests answered.
    pub answered: u64,
    /// Connections to subscribers' rings that were asked for.
    pub connects: u64,
    /// Those that could not be made, or ended by themselves.
    pub dropped: u64,
    /// Subscribers that are tracked now.
    pub tracked: u64,
    /// Of these, how many lines the slowest is behind.
    pub slowest: u64,
    /// Tracked subscribers whose rings were nearly full: they were told, and are tracked no more.
    pub lapsed: u64,
}

/// What the channel's instruments are, by its Definitions so far.
#[derive(Default)]
pub struct Definitions {
    assembler: Assembler,
    symbols: BTreeMap<u32, String>,
    incomplete: bool,
}

impl Definitions {
    /// Takes the next line of the stream.
    #[inline]
    pub fn on_line(&mut self, stamp: Stamp, record: &Record) {
        if record.kind != Kind::CONTINUATION && !record.flags.has(Flags::CONTINUES) {
            return;
        }
        if let Some((head, payload)) = self.assembler.push(stamp.sequence(), record)
            && head.kind == Kind::DEFINITION
        {
            let symbol = Definition::parse(head, payload).symbol().to_owned();
            self.symbols.insert(head.instrument.get(), symbol);
        }
    }
}

impl RunSink for Definitions {
    fn on_run(&mut self, run: Run<'_>) {
        for (i, line) in run.lines.iter().enumerate() {
            self.on_line(run.first.plus(i as u64), &line.record);
        }
    }

    fn on_position(&mut self, _: Position) {}

    fn on_loss(&mut self, _: LanePath, _: Stamp, _: u64, _: LossCause) {
        self.incomplete = true;
    }
}

/// One peer.
struct Session {
    stream: TcpStream,
    protocol: ServerSession,
    /// How many connections were accepted before it.
    number: u64,
    /// The connection to its ring, made or in the making.
    ring: Option<Ticket>,
    /// Its next request is taken then or later.
    takes_at: Nanos,
    /// Its connection to the recovery server, and to the ring for its answers.
    recovery: Option<(u16, Option<Ticket>)>,
    tracking: Tracking,
}

/// See the [module](self).
pub struct Admission<R = ()> {
    listener: TcpListener,
    tokens: Vec<String>,
    channel: ChannelInfo,
    reader: RingReader,
    definitions: Definitions,
    sessions: Vec<Session>,
    rings: R,
    recovery: Option<Door>,
    buffer: Vec<u8>,
    counts: AdmissionCounts,
    counters: Option<[Counter; COUNTERS.len()]>,
}

impl<R: Rings> Admission<R> {
    /// Listens on `address` for peers that know one of `tokens`. `reader` reads the channel's own ring from its start;
    /// `rings` connects subscribers by RDMA, `()` where there is none.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn bind(
        address: SocketAddr,
        tokens: Vec<String>,
        channel: ChannelInfo,
        reader: RingReader,
        rings: R,
    ) -> Result<Admission<R>, ListenError> {
        let listener = TcpListener::bind(address)
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .map_err(|source| ListenError { address, source })?;
        Ok(Admission {
            listener,
            tokens,
            channel,
            reader,
            definitions: Definitions::default(),
            sessions: Vec::new(),
            rings,
            recovery: None,
            buffer: vec![0; MAX_BODY_LEN],
            counts: AdmissionCounts::default(),
            counters: None,
        })
    }

    /// Knows what stood before the ring's first line.
    pub fn with_definitions(mut self, definitions: Definitions) -> Admission<R> {
        self.definitions = definitions;
        self
    }

    /// Lets subscribers into the recovery server too, and says in the directory where it is.
    pub fn with_recovery(mut self, door: Door) -> Admission<R> {
        self.channel.recovery = Some(door.info());
        self.recovery = Some(door);
        self
    }

    /// Counts those who are tracked on this page, too.
    ///
    /// # Panics
    /// If it is full.
    pub fn with_counters(mut self, page: &CounterPage) -> Admission<R> {
        self.counters = Some(COUNTERS.map(|name| page.register(name).expect("the counter page has room")));
        self
    }

    /// Where it listens: the port that was chosen, where the address said 0.
    ///
    /// # Errors
    /// The system's.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// What connects subscribers' rings.
    pub fn rings_mut(&mut self) -> &mut R {
        &mut self.rings
    }

    /// What was counted so far.
    pub fn counts(&self) -> AdmissionCounts {
        self.counts
    }

    /// One turn: definitions, new connections, requests, time-outs. Returns how much was done; after zero the caller may
    /// sleep a millisecond.
    pub fn do_work(&mut self, now: Nanos) -> usize {
        let mut work = self.reader.poll(now, LINES_PER_TURN, &mut self.definitions);
        work += self.accept(now);
        work += self.turn_rings(now);
        work += self.judge_tracked();
        let mut at = 0;
        while at < self.sessions.len() {
            match self.serve(at, now) {
                Some(done) => {
                    work += done;
                    at += 1;
                }
                None => {
                    let session = self.sessions.swap_remove(at);
                    if let Some(ticket) = session.ring {
                        self.rings.disconnect(ticket);
                    }
                    self.let_go(session.recovery);
                    work += 1;
                }
            }
        }
        work
    }

    /// Ends a session's connection to the recovery server.
    fn let_go(&mut self, recovery: Option<(u16, Option<Ticket>)>) {
        let (Some((connection, ring)), Some(door)) = (recovery, &mut self.recovery) else { return };
        door.dismiss(connection);
        if let Some(ticket) = ring {
            self.rings.disconnect(ticket);
        }
    }

    fn accept(&mut self, now: Nanos) -> usize {
        let mut accepted = 0;
        // A bounded number in one turn, so that a flood of connections does not starve the sessions there are.
        while accepted < ACCEPTS_PER_TURN {
            // An error here is the peer's (it has gone again) or passes (no descriptor is free): the next turn tries again.
            let Ok((stream, _)) = self.listener.accept() else { break };
            accepted += 1;
            let number = self.counts.accepted;
            self.counts.accepted += 1;
            let strangers = self.sessions.iter().filter(|session| !session.protocol.is_identified()).count();
            if strangers >= MAX_STRANGERS || (strangers > 0 && self.sessions.len() >= MAX_SESSIONS) {
                // Whoever means to show itself has done so by now; those who do not must not keep others out.
                self.drop_oldest_stranger();
                self.counts.turned_away += 1;
            }
            if self.sessions.len() >= MAX_SESSIONS || stream.set_nonblocking(true).is_err() {
                self.counts.turned_away += 1;
                continue;
            }
            let protocol = ServerSession::new(now);
            self.sessions.push(Session {
                stream,
                protocol,
                number,
                ring: None,
                takes_at: now,
                recovery: None,
                tracking: Tracking::Not,
            });
        }
        accepted
    }

    fn drop_oldest_stranger(&mut self) {
        let strangers = self.sessions.iter().enumerate().filter(|(_, session)| !session.protocol.is_identified());
        if let Some((at, _)) = strangers.min_by_key(|(_, session)| session.number) {
            // It has no ring and no recovery: those are for the identified.
            self.sessions.swap_remove(at);
        }
    }

    /// Turns the connections, and tells whom it concerns.
    fn turn_rings(&mut self, now: Nanos) -> usize {
        let mut work = self.rings.do_work(now);
        while let Some((ticket, why)) = self.rings.next_dropped() {
            work += 1;
            self.counts.dropped += 1;
            // One whose session has ended is nobody's business.
            let is_of_answers = |session: &Session| session.recovery.is_some_and(|(_, ring)| ring == Some(ticket));
            let is_whose = |session: &&mut Session| session.ring == Some(ticket) || is_of_answers(session);
            let Some(session) = self.sessions.iter_mut().find(is_whose) else { continue };
            if session.ring == Some(ticket) {
                session.ring = None;
            } else if let (Some((connection, _)), Some(door)) = (session.recovery.take(), &mut self.recovery) {
                // Without its ring nothing is answered.
                door.dismiss(connection);
            }
            session.protocol.keep(session.ring.is_some() || session.recovery.is_some(), now);
            session.protocol.reply(&Reply::Dropped { channel: self.channel.id, why });
        }
        let info = self.rings.info();
        if info != self.channel.rdma {
            work += 1;
            self.channel.rdma = info;
            for session in self.sessions.iter_mut().filter(|session| session.protocol.is_identified()) {
                session.protocol.reply(&Reply::Changed { channels: vec![self.channel.clone()] });
            }
        }
        work
    }

    /// Tells tracked subscribers whose rings are nearly full, and lets them go.
    fn judge_tracked(&mut self) -> usize {
        let head = self.reader.head();
        let (mut told, mut tracked, mut slowest) = (0, 0, 0);
        for session in &mut self.sessions {
            if let Some((lines, ring_lines)) = session.tracking.judge(head) {
                told += 1;
                session.protocol.reply(&Reply::Behind { channel: self.channel.id, lines, ring_lines });
            } else if let Some((behind, _)) = session.tracking.behind(head) {
                tracked += 1;
                slowest = behind.max(slowest);
            }
        }
        self.counts.lapsed += told as u64;
        (self.counts.tracked, self.counts.slowest) = (tracked, slowest);
        if let Some(counters) = &mut self.counters {
            for (counter, value) in counters.iter_mut().zip([tracked, slowest, self.counts.lapsed]) {
                counter.set(value);
            }
        }
        told
    }

    /// One turn of one session; `None` when it is over.
    fn serve(&mut self, at: usize, now: Nanos) -> Option<usize> {
        let Session { stream, protocol: session, ring, takes_at, recovery, tracking, .. } = &mut self.sessions[at];
        let mut work = 0;
        let wants = session.wants().min(self.buffer.len());
        if wants > 0 && session.closed().is_none() {
            match stream.read(&mut self.buffer[..wants]) {
                Ok(0) => return None,
                Ok(count) => {
                    let was_identified = session.is_identified();
                    let is_known = |token: &str| self.tokens.iter().any(|known| is_same(known, token));
                    session.on_bytes(&self.buffer[..count], now, std::process::id(), is_known);
                    self.counts.identified += u64::from(!was_identified && session.is_identified());
                    work += count;
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(_) => return None,
            }
        }
        while now >= *takes_at
            && let Some(request) = session.poll_request(now)
        {
            if matches!(
                request,
                Request::Connect { .. } | Request::Disconnect { .. } | Request::Recover { ring: Some(_), .. }
            ) {
                *takes_at = now.plus(RING_REQUEST_INTERVAL_NS);
            }
            let reply = match request {
                Request::Position { channel, next, ring_lines } if channel == self.channel.id => {
                    let own = self.reader.shape().capacity() as u64;
                    tracking.on_position(Stamp(next), ring_lines.unwrap_or(own));
                    work += 1;
                    continue;
                }
                Request::Connect { channel, ring: offer } if channel == self.channel.id => {
                    if let Some(former) = ring.take() {
                        self.rings.disconnect(former);
                    }
                    self.counts.connects += 1;
                    match self.rings.connect(&offer, now) {
                        Ok((ticket, token)) => {
                            *ring = Some(ticket);
                            session.keep(true, now);
                            Reply::Granted { token }
                        }
                        Err(why) => {
                            session.keep(recovery.is_some(), now);
                            Reply::Refused { why }
                        }
                    }
                }
                Request::Disconnect { channel } if channel == self.channel.id => {
                    if let Some(ticket) = ring.take() {
                        self.rings.disconnect(ticket);
                    }
                    session.keep(recovery.is_some(), now);
                    Reply::Disconnected
                }
                Request::Recover { channel, ring: offer } if channel == self.channel.id && self.recovery.is_some() => {
                    let door = self.recovery.as_mut().expect("looked at just now");
                    if let Some((connection, ring)) = recovery.take() {
                        door.dismiss(connection);
                        ring.into_iter().for_each(|ticket| self.rings.disconnect(ticket));
                    }
                    let reply = match let_in(door, &mut self.rings, offer.as_ref(), now) {
                        Ok((connection, key, ring)) => {
                            *recovery = Some((connection, ring.map(|(ticket, _)| ticket)));
                            Reply::Recovery { connection, key, token: ring.map(|(_, token)| token) }
                        }
                        Err(why) => Reply::Refused { why },
                    };
                    session.keep(recovery.is_some() || ring.is_some(), now);
                    reply
                }
                request => answer(&request, &self.channel, &self.definitions),
            };
            session.reply(&reply);
            self.counts.answered += 1;
            work += 1;
        }
        session.on_timeout(now);
        if !session.output().is_empty() {
            match stream.write(session.output()) {
                Ok(count) => {
                    session.sent(count);
                    work += count;
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(_) => return None,
            }
        }
        if session.closed().is_some() {
            // What did not go out at once to a peer that is refused does not go out at all.
            self.counts.refused += 1;
            return None;
        }
        Some(work)
    }
}

/// A connection to the recovery server, its key, and the connection to the ring for its answers, if it has one.
type LetIn = (u16, RequestKey, Option<(Ticket, OneTimeToken)>);

fn let_in(door: &mut Door, rings: &mut impl Rings, offer: Option<&RingOffer>, now: Nanos) -> Result<LetIn, String> {
    let (connection, key) = door.admit(offer.is_some())?;
    match offer.map(|offer| rings.connect_replies(connection, offer, now)).transpose() {
        Ok(ring) => Ok((connection, key, ring)),
        Err(why) => {
            door.dismiss(connection);
            Err(why)
        }
    }
}

fn answer(request: &Request, channel: &ChannelInfo, definitions: &Definitions) -> Reply {
    match request {
        Request::Directory => Reply::Directory { channels: vec![channel.clone()] },
        Request::Instruments { channel: id, after } if *id == channel.id => {
            let mut rest = definitions.symbols.range(after.saturating_add(1)..);
            let instruments: Vec<InstrumentInfo> = rest
                .by_ref()
                .take(INSTRUMENTS_PER_REPLY)
                .map(|(id, symbol)| InstrumentInfo { id: *id, symbol: symbol.clone() })
                .collect();
            Reply::Instruments {
                channel: *id,
                instruments,
                more: rest.next().is_some(),
                incomplete: definitions.incomplete,
            }
        }
        Request::Recover { channel: id, .. } if *id == channel.id => Reply::Refused {
            why: "this publisher has no recovery server: it has no [recovery]; do without, or add it".into(),
        },
        Request::Instruments { channel: id, .. }
        | Request::Recover { channel: id, .. }
        | Request::Position { channel: id, .. }
        | Request::Connect { channel: id, .. }
        | Request::Disconnect { channel: id } => {
            Reply::Refused { why: format!("channel {id} is not published here; ask for the directory") }
        }
        // The session itself takes hellos.
        Request::Hello { .. } => Reply::Refused { why: "it asked out of turn".into() },
    }
}

/// Compares in a time that tells nothing of where the first difference is.
fn is_same(known: &str, given: &str) -> bool {
    let (known, given) = (known.as_bytes(), given.as_bytes());
    known.len() == given.len() && known.iter().zip(given).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}
