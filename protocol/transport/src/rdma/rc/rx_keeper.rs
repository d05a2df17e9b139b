//! The cold half of the subscriber's side: offers rings, admits one publisher to each.

use std::collections::VecDeque;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use protocol::line::Stamp;
use protocol::record::ChannelId;
use protocol::run::LanePath;
use protocol::time::Nanos;

use super::request::{RcOffer, RcToken, Refusal, Request};
use super::rx::RcRx;
use super::tx_keeper::no_channel;
use super::{EVENTS_PER_TURN, ring_len};
use crate::memory::{Mapping, PAGE_LEN, RingMemory};
use crate::rdma::completion::CompletionQueue;
use crate::rdma::connection::{ConnectionEvent, ConnectionId, EventChannel, News, PrivateData};
use crate::rdma::domain::Domain;
use crate::rdma::error::RdmaError;
use crate::rdma::event::{AsyncEvent, EventKind, EventReaction};
use crate::rdma::local::LocalPort;
use crate::rdma::mailbox::{Inbox, Outbox, mailbox};
use crate::rdma::queue_pair::{Depths, QueuePair, RcTimers, RemoteRights, Service};
use crate::rdma::region::{Region, Rights};
use crate::ring::{RingReader, RingShape, StartAt};

/// Rings that the hot half may have at one time: the present one, the next one, and what is on the way to and fro.
const RINGS_OUT: usize = 4;
/// Events that are kept for whoever asks late, beside what became of connections: refusals beyond them are only counted.
const EVENTS: usize = 64;

/// Where an RC lane's lines come to, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RcRxOptions {
    /// The device; `None`: whichever has the address.
    pub device: Option<String>,
    /// The IPv4 address of the port to receive at.
    pub address: Ipv4Addr,
    /// Places of each ring, a power of two.
    pub lines: usize,
    /// How long a line that was written may fail to verify before it is named as lost.
    pub hedge_ns: u64,
}

impl RcRxOptions {
    /// Rings of 65,536 lines, which are 4 MiB; 200 us of hedge time.
    pub fn new(address: Ipv4Addr) -> RcRxOptions {
        RcRxOptions { device: None, address, lines: 1 << 16, hedge_ns: 200_000 }
    }
}

/// What became of an offer or a connection.
#[derive(Debug)]
pub enum RcRxEvent {
    /// A publisher writes into the ring that was offered last.
    Connected {
        /// The stamp of the first line that it writes.
        first: Stamp,
    },
    /// Somebody was refused.
    Refused {
        /// Why.
        why: Refusal,
    },
    /// An admitted publisher could not be connected: [`Refusal::OwnFault`].
    CannotConnect {
        /// What went wrong here.
        error: RdmaError,
    },
    /// The connection is over. Its queue pair and its region are gone; what lies in the ring is still handed up.
    Lost {
        /// Why.
        why: LostReason,
    },
    /// The port or the device said something that no connection answers for. If the device, or a completion queue, failed,
    /// the offer is withdrawn; the next one opens the device again.
    Device(AsyncEvent),
}

/// Why a connection is over.
#[derive(Debug, thiserror::Error)]
pub enum LostReason {
    /// The publisher let go, or its process is gone.
    #[error("the publisher is gone")]
    Disconnected,
    /// The publisher did not take up what it had asked for.
    #[error("the publisher did not complete the connection: {0}")]
    NotCompleted(io::Error),
    /// The device said that it, or the queue pair, failed.
    #[error("the device says that {}", .0.text())]
    Device(EventKind),
}

/// What was counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RcRxCounters {
    /// Rings that were offered.
    pub offers: u64,
    /// Connections that were admitted.
    pub connected: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Connections that ended, other than by a newer one.
    pub lost: u64,
}

/// A ring that a peer may write once a queue pair lets it.
struct Ring {
    region: Region,
    completions: Arc<CompletionQueue>,
    domain: Domain,
    memory: RingMemory,
}

impl Ring {
    /// A zeroed ring in a domain of its own.
    fn new(local: &LocalPort, lines: usize) -> Result<Ring, RdmaError> {
        let domain = Domain::new(&local.device)?;
        let len = ring_len(lines as u64) as usize;
        let mapping = match Mapping::anonymous(len.next_multiple_of(PAGE_LEN)) {
            Ok((mapping, _)) => Arc::new(mapping),
            Err(source) => {
                return Err(RdmaError::System {
                    device: local.device.name().to_owned(),
                    what: "map memory for a ring",
                    source,
                    next: "ask for a smaller ring, or free memory",
                });
            }
        };
        let memory = RingMemory::new(mapping, 0, lines);
        let region = Region::new(&domain, memory.mapping(), memory.address(), len, Rights::RemoteWrite)?;
        let completions = Arc::new(CompletionQueue::new(&local.device, 1)?);
        Ok(Ring { region, completions, domain, memory })
    }
}

/// A ring that waits for its publisher.
struct Offered {
    token: Option<RcToken>,
    /// The only first stamp that will do; `None`: any.
    first: Option<Stamp>,
    listener: ConnectionId,
    ring: Ring,
}

/// A ring with its publisher.
struct Connected {
    // Destroyed before the identifier (rdma_destroy_id(3)) and before the region that is written through it.
    queue_pair: QueuePair,
    id: ConnectionId,
    /// Still listens, to refuse others.
    listener: ConnectionId,
    ring: Ring,
}

/// Offers rings and admits one publisher to each: for a thread that turns every millisecond or so.
pub struct RcRxKeeper {
    offered: Option<Offered>,
    connected: Option<Connected>,
    events_of_connections: EventChannel,
    to_hot: Outbox<Box<RingReader>>,
    from_hot: Inbox<Box<RingReader>>,
    /// Rings that were given to the hot half and have not come back.
    rings_out: usize,
    local: LocalPort,
    /// It failed, and is opened again with the next offer.
    is_device_lost: bool,
    options: RcRxOptions,
    channel: ChannelId,
    path: LanePath,
    counters: RcRxCounters,
    events: VecDeque<RcRxEvent>,
    /// The stamp after the last line that the hot half handed up.
    place: Arc<AtomicU64>,
}

impl RcRxKeeper {
    pub(super) fn open(
        options: &RcRxOptions,
        channel: ChannelId,
        path: LanePath,
    ) -> Result<(RcRx, RcRxKeeper), RdmaError> {
        let local = LocalPort::find(options.device.as_deref(), options.address)?;
        if !options.lines.is_power_of_two() || !(2..=crate::shm::MAX_LINES).contains(&options.lines) {
            return Err(RdmaError::Limit {
                device: local.device.name().to_owned(),
                what: "the number of lines of a ring",
                value: options.lines as u64,
                allowed: format!("a power of two from 2 to {}", crate::shm::MAX_LINES),
            });
        }
        let events_of_connections = EventChannel::new().map_err(|source| no_channel(&local, source))?;
        let place = Arc::new(AtomicU64::new(0));
        let (to_hot, inbox) = mailbox(RINGS_OUT);
        let (outbox, from_hot) = mailbox(RINGS_OUT);
        let keeper = RcRxKeeper {
            offered: None,
            connected: None,
            events_of_connections,
            to_hot,
            from_hot,
            rings_out: 0,
            local,
            is_device_lost: false,
            options: options.clone(),
            channel,
            path,
            counters: RcRxCounters::default(),
            events: VecDeque::new(),
            place: Arc::clone(&place),
        };
        Ok((RcRx::new(inbox, outbox, place), keeper))
    }

    /// A fresh ring, and a place to ask for it. An offer that nobody has taken is withdrawn: its ring, key and port are
    /// worth nothing from now on. A connection goes on until somebody takes the new offer.
    ///
    /// # Errors
    /// [`RdmaError`]: a port that is down, memory that may not be locked, no more of something on the device.
    pub fn offer(&mut self) -> Result<RcOffer, RdmaError> {
        self.offered = None;
        self.local = if self.is_device_lost {
            LocalPort::find(self.options.device.as_deref(), self.options.address)?
        } else {
            self.local.look_again()?
        };
        self.is_device_lost = false;
        let ring = Ring::new(&self.local, self.options.lines)?;
        let listen = || {
            let listener = ConnectionId::new(&self.events_of_connections)?;
            let at = listener.listen(self.options.address)?;
            Ok((listener, at))
        };
        let (listener, at) = listen().map_err(|source| RdmaError::System {
            device: self.local.device.name().to_owned(),
            what: "listen for a publisher",
            source,
            next: "check that the port's network interface is up and has the address (`ip addr`)",
        })?;
        let (address, key, lines) = (ring.region.address(), ring.region.remote_key(), self.options.lines as u64);
        self.offered = Some(Offered { token: None, first: None, listener, ring });
        self.counters.offers += 1;
        // Relaxed: see `RcRx::poll`.
        let from = Some(Stamp(self.place.load(Ordering::Relaxed))).filter(|place| place.0 > 0);
        Ok(RcOffer { at, address, key, lines, from })
    }

    /// Admits whoever shows `token` to the ring that was offered last, once. Until then nobody is admitted.
    ///
    /// Returns whether there is an offer that nobody has taken yet.
    pub fn expect(&mut self, token: RcToken) -> bool {
        self.expect_at(token, None)
    }

    /// The same for a ring of replies, whose first line is known beforehand.
    pub fn expect_replies(&mut self, token: RcToken, first: Stamp) -> bool {
        self.expect_at(token, Some(first))
    }

    fn expect_at(&mut self, token: RcToken, first: Option<Stamp>) -> bool {
        match &mut self.offered {
            Some(offered) => {
                (offered.token, offered.first) = (Some(token), first);
                true
            }
            None => false,
        }
    }

    /// One turn: what the kernel, the hot half and the device have said since the last. Returns how much that was.
    pub fn do_work(&mut self, _now: Nanos) -> usize {
        let mut work = 0;
        while let Some(reader) = self.from_hot.take() {
            work += 1;
            self.rings_out -= 1;
            drop(reader);
        }
        for _ in 0..EVENTS_PER_TURN {
            let Ok(Some(event)) = self.events_of_connections.next() else { break };
            work += 1;
            self.on_connection_event(event);
        }
        while let Ok(Some(event)) = self.local.device.next_event() {
            work += 1;
            self.on_device_event(event);
        }
        work
    }

    /// What happened, in order.
    pub fn next_event(&mut self) -> Option<RcRxEvent> {
        self.events.pop_front()
    }

    /// What was counted.
    pub fn counters(&self) -> &RcRxCounters {
        &self.counters
    }

    /// Whether a publisher is connected.
    pub fn is_connected(&self) -> bool {
        self.connected.is_some()
    }

    /// The port, as it was when the last ring was offered.
    pub fn local(&self) -> &LocalPort {
        &self.local
    }

    /// The ring that was offered last, as any reader sees it; if it was taken, the connection's.
    pub fn memory(&self) -> Option<&RingMemory> {
        self.ring().map(|ring| &ring.memory)
    }

    /// That ring's region, to see what rights it gives.
    pub fn region(&self) -> Option<&Region> {
        self.ring().map(|ring| &ring.region)
    }

    /// The connection's queue pair, to ask the device about it.
    pub fn queue_pair(&self) -> Option<&QueuePair> {
        self.connected.as_ref().map(|connected| &connected.queue_pair)
    }

    fn ring(&self) -> Option<&Ring> {
        let offered = self.offered.as_ref().map(|offered| &offered.ring);
        offered.or(self.connected.as_ref().map(|connected| &connected.ring))
    }

    fn on_connection_event(&mut self, event: ConnectionEvent) {
        let of_connection = self.connected.as_ref().is_some_and(|connected| connected.id.key() == event.about);
        match event.news {
            News::Request { id, private } => {
                let listens = |listener: &ConnectionId| listener.key() == event.about;
                let answer = if self.offered.as_ref().is_some_and(|offered| listens(&offered.listener)) {
                    self.admit(&private)
                } else {
                    let taken = self.connected.as_ref().is_some_and(|connected| listens(&connected.listener));
                    debug_assert!(taken, "a request for a listener that is gone");
                    Err(Refusal::SecondConnection)
                };
                match answer {
                    Ok(first) => self.connect(id, first),
                    Err(why) => {
                        self.refuse(&id, why);
                        self.say(RcRxEvent::Refused { why });
                    }
                }
            }
            News::Disconnected if of_connection => self.lose(LostReason::Disconnected),
            News::DeviceRemoved if of_connection => self.lose(LostReason::Device(EventKind::DeviceFatal)),
            News::Failed { source, .. } if of_connection => self.lose(LostReason::NotCompleted(source)),
            News::Rejected { .. } if of_connection => {
                self.lose(LostReason::NotCompleted(io::Error::from(io::ErrorKind::ConnectionAborted)));
            }
            // Established: the hot half has the ring already, because a write can come before the word that one may.
            _ => {}
        }
    }

    /// Whether the request may have the ring; if so, where its lines begin.
    fn admit(&self, private: &PrivateData) -> Result<Stamp, Refusal> {
        let request = Request::read(private.bytes())?;
        let offered = self.offered.as_ref().ok_or(Refusal::NotExpected)?;
        if !offered.token.as_ref().ok_or(Refusal::NotExpected)?.matches(&request.token()) {
            return Err(Refusal::WrongToken);
        }
        if request.channel != self.channel {
            return Err(Refusal::WrongChannel);
        }
        if request.lane != self.path.lane {
            return Err(Refusal::WrongLane);
        }
        let is_expected = |first: &Stamp| offered.first.is_none_or(|expected| expected == *first);
        let first = request.first().filter(is_expected).ok_or(Refusal::BadStart)?;
        if self.rings_out >= RINGS_OUT { Err(Refusal::Busy) } else { Ok(first) }
    }

    /// Gives the offered ring to the publisher behind `id`, and to the hot half.
    fn connect(&mut self, id: ConnectionId, first: Stamp) {
        let Some(Offered { listener, ring, .. }) = self.offered.take() else { unreachable!("admitted to nothing") };
        let queue_pair = match self.accept(&id, &ring) {
            Ok(queue_pair) => queue_pair,
            Err(error) => {
                self.refuse(&id, Refusal::OwnFault);
                self.events.push_back(RcRxEvent::CannotConnect { error });
                return;
            }
        };
        let shape = RingShape::new(first.epoch(), first.sequence(), self.options.lines);
        let shape = shape.unwrap_or_else(|| panic!("no ring of {} lines begins with {first}", self.options.lines));
        let start = StartAt::At(first.sequence());
        let reader = RingReader::new(ring.memory.clone(), shape, self.path, start, self.options.hedge_ns);
        // An older connection's queue pair goes before the hot half hears of the new ring: it reads the old one to its end,
        // and that must not move any more.
        self.connected = None;
        // Where the hot half is gone, the reader goes too.
        if self.to_hot.post(Box::new(reader.watching_its_place())).is_ok() {
            self.rings_out += 1;
        }
        self.connected = Some(Connected { queue_pair, id, listener, ring });
        self.counters.connected += 1;
        self.events.push_back(RcRxEvent::Connected { first });
    }

    fn accept(&self, id: &ConnectionId, ring: &Ring) -> Result<QueuePair, RdmaError> {
        let depths = Depths { send: 1, receive: 1 };
        let queue_pair = QueuePair::new(&ring.domain, Service::Rc, &ring.completions, &ring.completions, depths)?;
        queue_pair.init_rc(id, RemoteRights::WRITE)?;
        queue_pair.connect_rc(id, RcTimers::default())?;
        id.accept(queue_pair.number()).map_err(|source| RdmaError::System {
            device: self.local.device.name().to_owned(),
            what: "accept a publisher's connection",
            source,
            next: "let it connect again: it may have given up",
        })?;
        Ok(queue_pair)
    }

    fn refuse(&mut self, id: &ConnectionId, why: Refusal) {
        self.counters.refused += 1;
        // Letting the identifier go refuses too; only the reason would be missing.
        let _ = id.reject(&why.to_bytes());
    }

    /// Nobody writes into the ring any more.
    fn lose(&mut self, why: LostReason) {
        self.connected = None;
        self.counters.lost += 1;
        self.events.push_back(RcRxEvent::Lost { why });
    }

    fn on_device_event(&mut self, event: AsyncEvent) {
        let number = self.connected.as_ref().map(|connected| connected.queue_pair.number());
        match event.kind.reaction() {
            EventReaction::RebuildQueuePair | EventReaction::DropPeer => {
                if number.is_some() && number == event.queue_pair {
                    self.lose(LostReason::Device(event.kind));
                }
            }
            EventReaction::RebuildCompletionQueue | EventReaction::ReopenDevice => {
                if number.is_some() {
                    self.lose(LostReason::Device(event.kind));
                }
                self.offered = None;
                self.is_device_lost = true;
                self.say(RcRxEvent::Device(event));
            }
            // Each offer looks the port up again.
            EventReaction::PortDown | EventReaction::RefreshPort | EventReaction::CheckAddress => {
                self.say(RcRxEvent::Device(event))
            }
            EventReaction::Count => {}
        }
    }

    fn say(&mut self, event: RcRxEvent) {
        if self.events.len() < EVENTS {
            self.events.push_back(event);
        }
    }
}
