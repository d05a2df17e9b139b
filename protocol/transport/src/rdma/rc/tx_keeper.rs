//! The cold half of the publisher's side: connects, and destroys what has failed.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use protocol::line::Stamp;
use protocol::record::{ChannelId, Lane};
use protocol::time::Nanos;
use zerocopy::IntoBytes;

use super::EVENTS_PER_TURN;
use super::drop_reason::DropReason;
use super::peer::{Peer, PeerFailure};
use super::peers::{FromHot, ToHot};
use super::request::{RcOffer, RcToken, Refusal, Request};
use super::tx::{RcOptions, RcTicket, Sources};
use crate::memory::RingMemory;
use crate::rdma::completion::{Reaction, Status};
use crate::rdma::connection::{ConnectionEvent, ConnectionId, ConnectionKey, EventChannel, News, Step};
use crate::rdma::device::Transport;
use crate::rdma::error::RdmaError;
use crate::rdma::event::{AsyncEvent, EventKind, EventReaction};
use crate::rdma::local::LocalPort;
use crate::rdma::mailbox::{Inbox, Outbox};
use crate::rdma::queue_pair::{Depths, QueuePair, RemoteRights, Service};
use crate::ring::RingWriter;

/// Events of the device that are kept for whoever asks late; more are counted by nobody and lost.
const DEVICE_EVENTS: usize = 64;

/// Attempts on iWARP that were given up and that the kernel has not let go of, at least: each keeps a thread, a queue pair and
/// an identifier, and whoever is asked for connections without end must not run out of them.
const LEAST_BURIED: usize = 16;

/// How often it is tried to open a device again that has failed.
const MEND_INTERVAL_NS: i64 = 1_000_000_000;

/// What became of a connection.
#[derive(Debug)]
pub enum RcTxEvent {
    /// It is made: the hot half writes to it from its next flush on.
    Connected {
        /// Which.
        ticket: RcTicket,
        /// The stamp of the first line that it gets, unless the ring has overwritten that by then.
        first: Stamp,
    },
    /// It could not be made, or it is over. Its queue pair is destroyed, and its place is free again. (On iWARP the kernel
    /// keeps one whose request was never answered for some seconds more.)
    Dropped {
        /// Which.
        ticket: RcTicket,
        /// Why.
        why: DropReason,
    },
    /// The port or the device said something that no one connection answers for. If the device, or the completion queue,
    /// failed, every connection is dropped, and everything is opened again by itself.
    Device(AsyncEvent),
}

/// What was counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RcTxCounters {
    /// Connections that were made.
    pub connected: u64,
    /// Connections, and attempts, that ended.
    pub dropped: u64,
    /// Of those: subscribers that refused, or whose ring, key or rights were not what they had told.
    pub refused: u64,
    /// Of those: by a fault of this program.
    pub own_faults: u64,
    /// Times that the device was opened again because it, or a completion queue, had failed.
    pub mended: u64,
}

/// How far a connection is.
enum Stage {
    Address,
    Route,
    /// The request is out.
    Answer(QueuePair),
    /// The hot half has it.
    Writing,
    /// The hot half is to hand it back.
    Leaving(DropReason),
}

/// A lane that does not work.
struct Broken {
    kind: EventKind,
    /// When it was last tried to mend it.
    tried_at: Option<Nanos>,
    /// Why that failed.
    why: Option<RdmaError>,
}

struct Session {
    ticket: RcTicket,
    offer: RcOffer,
    /// Where it begins, where that does not follow from the ring and the offer.
    start: Option<Stamp>,
    token: RcToken,
    /// Its place among the lines that heartbeats are sent from.
    beat_place: usize,
    began: Nanos,
    first: Stamp,
    /// Its queue pair's number, once there is one.
    queue_pair: Option<u32>,
    // The queue pair in it is destroyed before the identifier (rdma_destroy_id(3)).
    stage: Stage,
    id: ConnectionId,
}

/// What a lane writes from, and what it says of itself.
pub(super) struct WrittenFrom {
    pub(super) channel: ChannelId,
    pub(super) lane: Lane,
    /// The first stamp of the publisher's ring, and its places.
    pub(super) first: Stamp,
    pub(super) lines: u64,
    /// To be registered again if need be.
    pub(super) memory: RingMemory,
}

impl WrittenFrom {
    pub(super) fn ring(ring: &RingWriter) -> WrittenFrom {
        WrittenFrom {
            channel: ring.channel(),
            lane: ring.lane(),
            first: ring.shape().first(),
            lines: ring.capacity() as u64,
            memory: ring.memory().clone(),
        }
    }
}

/// Connects subscribers to a lane and ends their connections: for a thread that turns every millisecond or so.
pub struct RcTxKeeper {
    // Before the sources that their queue pairs send from.
    sessions: Vec<Session>,
    events_of_connections: EventChannel,
    to_hot: Outbox<ToHot>,
    from_hot: Inbox<FromHot>,
    sources: Arc<Sources>,
    local: LocalPort,
    options: RcOptions,
    source: WrittenFrom,
    free_places: Vec<usize>,
    next_ticket: u64,
    /// The device or the completion queue failed, and no connection works until everything is opened again.
    broken: Option<Broken>,
    /// Attempts that `bury` has not done with.
    buried: Arc<AtomicUsize>,
    counters: RcTxCounters,
    events: VecDeque<RcTxEvent>,
}

impl RcTxKeeper {
    pub(super) fn new(
        options: &RcOptions,
        local: LocalPort,
        source: WrittenFrom,
        sources: Arc<Sources>,
        to_hot: Outbox<ToHot>,
        from_hot: Inbox<FromHot>,
    ) -> Result<RcTxKeeper, RdmaError> {
        let events_of_connections = EventChannel::new().map_err(|source| no_channel(&local, source))?;
        Ok(RcTxKeeper {
            sessions: Vec::with_capacity(options.max_peers),
            events_of_connections,
            to_hot,
            from_hot,
            sources,
            local,
            options: options.clone(),
            source,
            free_places: (0..options.max_peers).rev().collect(),
            next_ticket: 0,
            broken: None,
            buried: Arc::new(AtomicUsize::new(0)),
            counters: RcTxCounters::default(),
            events: VecDeque::new(),
        })
    }

    /// Begins to connect to whoever made `offer`, showing `token`. What becomes of it is told as an event; within
    /// [`connect_limit_ns`](RcOptions::connect_limit_ns) it is connected or dropped.
    pub fn connect(&mut self, offer: &RcOffer, token: RcToken, now: Nanos) -> RcTicket {
        self.connect_with(offer, None, token, now)
    }

    /// The same for a ring of replies, whose first line has the stamp `first`.
    pub fn connect_replies(&mut self, offer: &RcOffer, first: Stamp, token: RcToken, now: Nanos) -> RcTicket {
        self.connect_with(offer, Some(first), token, now)
    }

    fn connect_with(&mut self, offer: &RcOffer, start: Option<Stamp>, token: RcToken, now: Nanos) -> RcTicket {
        let ticket = self.free_ticket();
        if let Err(why) = self.begin(ticket, offer, start, token, now) {
            self.tell_dropped(ticket, why);
        }
        ticket
    }

    /// Ends a connection, or the attempt to make it: [`DropReason::Asked`] says that it is over.
    pub fn disconnect(&mut self, ticket: RcTicket) {
        if let Some(place) = self.place(ticket) {
            self.drop_session(place, DropReason::Asked);
        }
    }

    /// One turn: what the kernel, the hot half and the device have said since the last. Returns how much that was.
    pub fn do_work(&mut self, now: Nanos) -> usize {
        let mut work = 0;
        while let Some(back) = self.from_hot.take() {
            work += 1;
            match back {
                FromHot::Peer(peer) => self.on_handed_back(peer),
                FromHot::Sources(before) => drop(before),
            }
        }
        for _ in 0..EVENTS_PER_TURN {
            let Some(event) = self.next_connection_event() else { break };
            work += 1;
            self.on_connection_event(event);
        }
        while let Ok(Some(event)) = self.local.device.next_event() {
            work += 1;
            self.on_device_event(event);
        }
        let limit_ns = self.options.connect_limit_ns;
        let closed = self.to_hot.is_abandoned();
        for place in (0..self.sessions.len()).rev() {
            let session = &self.sessions[place];
            let step = match session.stage {
                Stage::Address => Step::Address,
                Stage::Route => Step::Route,
                Stage::Answer(_) => Step::Answer,
                Stage::Writing | Stage::Leaving(_) => {
                    if closed {
                        self.end(place, DropReason::Closed);
                    }
                    continue;
                }
            };
            let waited = now.since(session.began);
            if waited > 0 && waited as u64 > limit_ns {
                work += 1;
                self.end(place, DropReason::TimeLimit { step, limit_ns });
            }
        }
        if self.broken.is_some() && self.sessions.is_empty() {
            work += usize::from(self.mend(now));
        }
        work
    }

    /// Opens the device again, at most once in [`MEND_INTERVAL_NS`]. Returns whether that succeeded.
    fn mend(&mut self, now: Nanos) -> bool {
        let Some(broken) = &mut self.broken else { return false };
        if broken.tried_at.is_some_and(|at| now.since(at) < MEND_INTERVAL_NS) {
            return false;
        }
        broken.tried_at = Some(now);
        // Relaxed: as in `first`.
        let head = Stamp(self.sources.head.load(Ordering::Relaxed));
        let opened = LocalPort::find(self.options.device.as_deref(), self.options.address)
            .and_then(|local| Ok((Arc::new(Sources::new(&self.options, &local, &self.source.memory, head)?), local)));
        match opened {
            Ok((sources, local)) => {
                if self.to_hot.post(ToHot::Renew(Arc::clone(&sources))).is_err() {
                    // The hot half has not taken the last ones yet.
                    return false;
                }
                self.sources = sources;
                self.local = local;
                self.broken = None;
                self.counters.mended += 1;
                true
            }
            Err(error) => {
                broken.why = Some(error);
                false
            }
        }
    }

    /// What happened, in order.
    pub fn next_event(&mut self) -> Option<RcTxEvent> {
        self.events.pop_front()
    }

    /// What was counted.
    pub fn counters(&self) -> &RcTxCounters {
        &self.counters
    }

    /// Why the lane does not work, if it does not: the device failed, and opening it again, which is tried each second, did
    /// so too. Until it works, connections are dropped with [`DropReason::Device`].
    pub fn cannot_mend(&self) -> Option<&RdmaError> {
        self.broken.as_ref().and_then(|broken| broken.why.as_ref())
    }

    /// Connections that are made, being made, or being ended.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// The port that is written from, as it was when the lane was opened.
    pub fn local(&self) -> &LocalPort {
        &self.local
    }

    /// A ticket that nobody has, and whose work requests cannot be taken for anybody else's.
    fn free_ticket(&mut self) -> RcTicket {
        loop {
            let ticket = RcTicket(self.next_ticket);
            self.next_ticket += 1;
            if self.sessions.iter().all(|session| session.ticket.tag() != ticket.tag()) {
                return ticket;
            }
        }
    }

    fn place(&self, ticket: RcTicket) -> Option<usize> {
        self.sessions.iter().position(|session| session.ticket == ticket)
    }

    fn place_of_key(&self, key: ConnectionKey) -> Option<usize> {
        self.sessions.iter().position(|session| session.id.key() == key)
    }

    fn limit_ms(&self) -> c_int {
        c_int::try_from(self.options.connect_limit_ns.div_ceil(1_000_000).max(1)).unwrap_or(c_int::MAX)
    }

    fn begin(
        &mut self,
        ticket: RcTicket,
        offer: &RcOffer,
        start: Option<Stamp>,
        token: RcToken,
        now: Nanos,
    ) -> Result<(), DropReason> {
        if let Some(broken) = &self.broken {
            return Err(DropReason::Device(broken.kind));
        }
        if !offer.is_ring() {
            return Err(DropReason::BadOffer { lines: offer.lines, address: offer.address });
        }
        // Relaxed: a bound, and nothing hangs on it.
        let attempts = self.buried.load(Ordering::Relaxed);
        if attempts >= self.options.max_peers.max(LEAST_BURIED) {
            return Err(DropReason::Unended { attempts });
        }
        let failed = |source| DropReason::NotConnected { step: Step::Address, source };
        let id = ConnectionId::new(&self.events_of_connections).map_err(failed)?;
        let Some(beat_place) = self.free_places.pop() else {
            return Err(DropReason::TooMany { max_peers: self.options.max_peers });
        };
        if let Err(source) = id.find_address(self.options.address, offer.at, self.limit_ms()) {
            self.free_places.push(beat_place);
            return Err(failed(source));
        }
        self.sessions.push(Session {
            ticket,
            offer: *offer,
            start,
            token,
            beat_place,
            began: now,
            first: start.unwrap_or(self.source.first),
            queue_pair: None,
            stage: Stage::Address,
            id,
        });
        Ok(())
    }

    /// The next event of a connection; an error of the channel itself is that of no connection, and comes again.
    fn next_connection_event(&mut self) -> Option<ConnectionEvent> {
        self.events_of_connections.next().unwrap_or(None)
    }

    fn on_connection_event(&mut self, event: ConnectionEvent) {
        // Nobody listens here: a request has no session, and is refused by letting its identifier go.
        let Some(place) = self.place_of_key(event.about) else { return };
        let result = match (event.news, &self.sessions[place].stage) {
            (News::AddressFound, Stage::Address) => self.find_route(place),
            (News::RouteFound, Stage::Route) => self.ask(place),
            (News::Answered, Stage::Answer(_)) => self.take_answer(place, true),
            (News::Established, Stage::Answer(_)) => self.take_answer(place, false),
            // The subscriber let go before it had seen that its agreement was confirmed.
            (News::Rejected { .. }, Stage::Writing | Stage::Leaving(_)) => Err(DropReason::Disconnected),
            (News::Rejected { reason, private }, _) => Err(match Refusal::read(private.bytes()) {
                Some(refusal) => DropReason::Refused(refusal),
                None => DropReason::Rejected { reason },
            }),
            (News::Failed { step, source }, _) => Err(DropReason::NotConnected { step, source }),
            (News::Disconnected, _) => Err(DropReason::Disconnected),
            (News::DeviceRemoved, _) => Err(DropReason::Device(EventKind::DeviceFatal)),
            _ => Ok(()),
        };
        if let Err(why) = result {
            self.drop_session(place, why);
        }
    }

    fn find_route(&mut self, place: usize) -> Result<(), DropReason> {
        let limit_ms = self.limit_ms();
        let session = &mut self.sessions[place];
        let (own, found) = (self.local.device.name(), session.id.device_name());
        if found.as_deref() != Some(own) {
            let message = format!("its address is reached by {}", found.as_deref().unwrap_or("no device"));
            let source = io::Error::new(io::ErrorKind::AddrNotAvailable, message);
            return Err(DropReason::NotConnected { step: Step::Address, source });
        }
        session.stage = Stage::Route;
        session.id.find_route(limit_ms).map_err(|source| DropReason::NotConnected { step: Step::Route, source })
    }

    /// Sends the request, with a queue pair whose peer has no rights here.
    fn ask(&mut self, place: usize) -> Result<(), DropReason> {
        let depths = Depths { send: self.options.send_depth, receive: 1 };
        let Sources { domain, completions, .. } = &*self.sources;
        let queue_pair =
            QueuePair::new(domain, Service::Rc, completions, completions, depths).map_err(DropReason::Setup)?;
        let Session { offer, start, .. } = &self.sessions[place];
        let first = start.unwrap_or_else(|| self.first(offer));
        let session = &mut self.sessions[place];
        queue_pair.init_rc(&session.id, RemoteRights::NONE).map_err(DropReason::Setup)?;
        let number = queue_pair.number();
        session.first = first;
        session.queue_pair = Some(number);
        session.stage = Stage::Answer(queue_pair);
        let request = Request::new(self.source.channel, self.source.lane, session.token, first);
        let asked = session.id.connect(number, request.as_bytes());
        asked.map_err(|source| DropReason::NotConnected { step: Step::Answer, source })
    }

    /// Where a subscriber begins: with the line that it wants next, or the ring's first, if a quarter of the smaller ring
    /// holds everything since, so that it is not overtaken while it catches up; else with what comes now.
    fn first(&self, offer: &RcOffer) -> Stamp {
        // Relaxed: see `RcRingTx::turn`.
        let head = Stamp(self.sources.head.load(Ordering::Relaxed));
        // Of another epoch, or of no line that there is: it says nothing.
        let wanted = offer.from.filter(|from| (self.source.first..=head).contains(from));
        let start = wanted.unwrap_or(self.source.first);
        if head.0 - start.0 <= self.source.lines.min(offer.lines) / 4 { start } else { head }
    }

    /// The subscriber agrees: the queue pair is made ready, looked at, and given to the hot half.
    fn take_answer(&mut self, place: usize, confirm: bool) -> Result<(), DropReason> {
        let session = &mut self.sessions[place];
        let Stage::Answer(queue_pair) = &session.stage else { unreachable!("an answer to what was not asked") };
        queue_pair.connect_rc(&session.id, self.options.timers).map_err(DropReason::Setup)?;
        self.sources.check_rights(queue_pair).map_err(DropReason::Setup)?;
        if confirm {
            let failed = |source| DropReason::NotConnected { step: Step::Answer, source };
            session.id.confirm().map_err(failed)?;
        }
        let Stage::Answer(queue_pair) = std::mem::replace(&mut session.stage, Stage::Writing) else {
            unreachable!("looked at above")
        };
        let (ticket, first) = (session.ticket, session.first);
        let peer = Peer::new(ticket, session.beat_place, queue_pair, session.offer, first, &self.sources);
        if self.to_hot.post(ToHot::Take(Box::new(peer))).is_err() {
            // It has room for every subscriber. The box came back, and its queue pair is gone.
            self.end(place, DropReason::Closed);
            return Ok(());
        }
        self.counters.connected += 1;
        self.events.push_back(RcTxEvent::Connected { ticket, first });
        Ok(())
    }

    fn on_handed_back(&mut self, peer: Box<Peer>) {
        let Some(place) = self.place(peer.ticket) else { return };
        let leaving = match std::mem::replace(&mut self.sessions[place].stage, Stage::Writing) {
            Stage::Leaving(why) => Some(why),
            _ => None,
        };
        let why = match (peer.failure, leaving) {
            (_, Some(DropReason::Asked)) | (None, None) => DropReason::Asked,
            // What was flushed failed for a reason that was told otherwise.
            (Some(PeerFailure::Completion(Status::Flushed)) | None, Some(why)) => why,
            (Some(failure), _) => DropReason::Write(failure),
        };
        // It fails only where the device is gone; then nothing is read from the ring any more either.
        let _ = peer.queue_pair().fail();
        drop(peer);
        self.end(place, why);
    }

    fn on_device_event(&mut self, event: AsyncEvent) {
        match event.kind.reaction() {
            EventReaction::RebuildQueuePair | EventReaction::DropPeer => {
                let is_it = |session: &Session| session.queue_pair.is_some() && session.queue_pair == event.queue_pair;
                if let Some(place) = self.sessions.iter().position(is_it) {
                    self.drop_session(place, DropReason::Device(event.kind));
                }
            }
            EventReaction::RebuildCompletionQueue | EventReaction::ReopenDevice => {
                self.broken = Some(Broken { kind: event.kind, tried_at: None, why: None });
                for place in (0..self.sessions.len()).rev() {
                    self.drop_session(place, DropReason::Device(event.kind));
                }
                self.say(event);
            }
            // Connections look the port up themselves, each time.
            EventReaction::PortDown | EventReaction::RefreshPort | EventReaction::CheckAddress => self.say(event),
            EventReaction::Count => {}
        }
    }

    fn say(&mut self, event: AsyncEvent) {
        if self.events.len() < DEVICE_EVENTS {
            self.events.push_back(RcTxEvent::Device(event));
        }
    }

    /// Ends a session, at once or when the hot half has handed its queue pair back.
    fn drop_session(&mut self, place: usize, why: DropReason) {
        let session = &mut self.sessions[place];
        match session.stage {
            Stage::Leaving(_) => {}
            Stage::Writing => {
                session.stage = Stage::Leaving(why);
                if self.to_hot.post(ToHot::LetGo(session.ticket)).is_err() {
                    // It has room for one such message for each subscriber.
                    self.end(place, DropReason::Closed);
                }
            }
            Stage::Address | Stage::Route | Stage::Answer(_) => self.end(place, why),
        }
    }

    /// The end of a session whose queue pair is here, or gone.
    fn end(&mut self, place: usize, why: DropReason) {
        let Session { ticket, beat_place, stage, id, .. } = self.sessions.remove(place);
        self.let_go(stage, id);
        self.free_places.push(beat_place);
        self.tell_dropped(ticket, why);
    }

    fn tell_dropped(&mut self, ticket: RcTicket, why: DropReason) {
        self.counters.dropped += 1;
        match why.reaction() {
            Reaction::RefusePeer => self.counters.refused += 1,
            Reaction::OwnFault => self.counters.own_faults += 1,
            Reaction::Reclaim | Reaction::Ignore | Reaction::DropPeer | Reaction::Rebuild => {}
        }
        self.events.push_back(RcTxEvent::Dropped { ticket, why });
    }
}

impl RcTxKeeper {
    /// Destroys what a session had here.
    fn let_go(&self, stage: Stage, id: ConnectionId) {
        match stage {
            Stage::Answer(queue_pair) if self.local.device.transport() == Transport::Iwarp => self.bury(queue_pair, id),
            stage => {
                drop(stage);
                drop(id);
            }
        }
    }

    /// Destroys what still waits for an answer on iWARP. There the kernel lets go of neither queue pair nor identifier until
    /// the answer has come or its own time is over (`connect_wait` of iw_cm; 10 s on siw), and others must not wait so long.
    fn bury(&self, queue_pair: QueuePair, id: ConnectionId) {
        let (sources, buried) = (Arc::clone(&self.sources), Arc::clone(&self.buried));
        buried.fetch_add(1, Ordering::Relaxed);
        let grave = Grave { queue_pair: Some(queue_pair), id: Some(id), _sources: sources, buried };
        // Without a thread it is done here, which the closure's end does.
        let _ = std::thread::Builder::new().name("rc-bury".to_owned()).spawn(move || drop(grave));
    }
}

/// What is destroyed by [`bury`](RcTxKeeper::bury).
struct Grave {
    queue_pair: Option<QueuePair>,
    id: Option<ConnectionId>,
    /// What the queue pair would have sent from.
    _sources: Arc<Sources>,
    buried: Arc<AtomicUsize>,
}

impl Drop for Grave {
    fn drop(&mut self) {
        // Before the identifier (rdma_destroy_id(3)).
        self.queue_pair = None;
        self.id = None;
        self.buried.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for RcTxKeeper {
    /// Attempts that are under way do not hold up whoever closes the lane.
    fn drop(&mut self) {
        while let Some(Session { stage, id, .. }) = self.sessions.pop() {
            self.let_go(stage, id);
        }
    }
}

impl Sources {
    /// Fails if the peer of `queue_pair` could do anything with our memory.
    fn check_rights(&self, queue_pair: &QueuePair) -> Result<(), RdmaError> {
        let refuse = |rights: String| {
            let device = self.domain.device().name().to_owned();
            Err(RdmaError::Rights { device, queue_pair: queue_pair.number(), rights })
        };
        if [&self.ring_region, &self.beat_region].into_iter().any(|region| region.rights().is_remote()) {
            return refuse("a region with remote rights".to_owned());
        }
        // Drivers of iWARP do not keep a queue pair's rights (siw names the same ones for each); regions rule there.
        if self.domain.device().transport() == Transport::Iwarp {
            return Ok(());
        }
        let rights = queue_pair.query()?.rights;
        if rights == RemoteRights::NONE { Ok(()) } else { refuse(rights.to_string()) }
    }
}

/// There is no event channel of librdmacm.
pub(super) fn no_channel(local: &LocalPort, source: io::Error) -> RdmaError {
    RdmaError::System {
        device: local.device.name().to_owned(),
        what: "open librdmacm",
        source,
        next: "load the rdma_ucm module, and check the rights of /dev/infiniband/rdma_cm",
    }
}
