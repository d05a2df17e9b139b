//! One run: publishers with their recovery servers, subscribers, a network, and a seed that decides everything.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::rc::Rc;

use bookcast_tests::naive::NaiveState;
use bookcast_tests::random::RandomRecords;
use protocol::line::{Epoch, Line, SequenceNumber, Stamp};
use protocol::log::Role;
use protocol::record::{Flags, InstrumentId, Kind, Record};
use protocol::recovery::{Connection, RecoveryState, Session};
use protocol::time::Nanos;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::clock::Clock;
use crate::history::{self, Logs};
use crate::network::{Fault, Link, Packet, Weather};
use crate::oracle::Oracle;
use crate::publisher::{Beginning, Publisher};
use crate::rdma::{Piece, RemoteRing};
use crate::subscriber::Subscriber;

mod strike;

const MS: u64 = 1_000_000;
/// Lines in a packet of the stream and of replies.
const PACKET_LINES: usize = 22;
/// Losses stop, and within this time everybody has the right books.
const CALM_NS: u64 = 2_000 * MS;
/// Lines that are hit by something in each run, at least.
const LEAST_FAULTS: u64 = 60;
/// How long a publisher stays quiet that comes back after a split: until its silence is noticed, by clocks set back too.
const QUIET_NS: u64 = 400 * MS;
/// States by faults.
pub(crate) type Table = [[u64; Fault::ALL.len()]; RecoveryState::ALL.len()];

/// How a run is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) subscribers: usize,
    /// 1, or 2: A and B, each with a publisher of its own.
    pub(crate) lanes: usize,
    /// Lane 0 writes into subscribers' rings as well.
    pub(crate) rdma: bool,
    /// Where the first epoch begins: with a sequence number, and with so many lines of each instrument before.
    pub(crate) begins: (u64, u32),
    /// The first epoch's number.
    pub(crate) epoch: u16,
    /// The session ends when the faults do.
    pub(crate) ends: bool,
    /// The weather of every link; `None`: a random one for each.
    pub(crate) weather: Option<Weather>,
    /// How long faults go on, ns.
    pub(crate) storm_ns: u64,
    /// Whether publisher, server and subscribers crash and stop, and half of the subscribers come late.
    pub(crate) crashes: bool,
    /// Lines that the recovery server keeps.
    pub(crate) history_lines: usize,
    /// In the middle of it everybody loses the same packet.
    pub(crate) lose_one: bool,
}

impl Plan {
    /// The run of a seed: mostly one subscriber or a few, now and then sixteen.
    pub(crate) fn of(seed: u64) -> Plan {
        let subscribers = if seed % 32 == 31 { 16 } else { 1 + (seed % 3) as usize };
        let history_lines = if seed.is_multiple_of(4) { 256 } else { 4096 };
        let lanes = if seed % 5 < 2 { 2 } else { 1 };
        Plan {
            seed,
            subscribers,
            lanes,
            rdma: seed % 3 == 1,
            // Just below each wrap: of the counts, of the sequence's low half, and of the sequence, which must not wrap.
            begins: match seed % 8 {
                3 => ((1 << 32) - 300, u32::MAX - 100),
                5 => (1 << 20, u32::MAX - 400),
                7 => (SequenceNumber::MAX.0 - 2_000, u32::MAX / 2 - 100),
                _ => (1, 0),
            },
            epoch: if seed % 7 == 6 { u16::MAX - 40 } else { 1 },
            ends: seed % 4 == 2,
            weather: None,
            storm_ns: 60 * MS,
            crashes: true,
            history_lines,
            lose_one: false,
        }
    }
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// Things that happened in the world: packets that arrived, turns, faults.
    pub(crate) events: u64,
    /// Faults that hit a line each.
    pub(crate) faults: u64,
    pub(crate) table: Table,
    pub(crate) published: u64,
    pub(crate) delivered: u64,
    pub(crate) declared: u64,
    pub(crate) recovered: u64,
    pub(crate) snapshots: u64,
    pub(crate) compared: u64,
    pub(crate) requests: u64,
    pub(crate) line_requests: u64,
    /// Requests for lines of each subscriber.
    pub(crate) asked: Vec<u64>,
    /// All requests of each subscriber, and packets of the stream that each lost.
    pub(crate) asked_in_all: Vec<u64>,
    pub(crate) lost: Vec<u64>,
    pub(crate) reply_lines: u64,
    /// Lines of the stream that links did not bring, each counted once for each subscriber.
    pub(crate) missed: u64,
    /// Packets in which they were.
    pub(crate) missed_packets: u64,
    /// Publishers that were started.
    pub(crate) starts: u64,
    /// Splits told, publishers that joined, that were refused, publish times told in full, lines that came by RDMA.
    pub(crate) splits: u64,
    pub(crate) joined: u64,
    pub(crate) refused: u64,
    pub(crate) dated: u64,
    pub(crate) written: u64,
    /// Publishers whose sequence came to its end.
    pub(crate) exhausted: u64,
    /// Subscribers that were told of the end of the session.
    pub(crate) ended: u64,
    /// From the end of the faults until everybody had the right books, ns.
    pub(crate) healed_ns: u64,
    /// Lines and book digests of one participant's log that were held against another's.
    pub(crate) logged_lines: u64,
    pub(crate) logged_digests: u64,
}

enum What {
    /// The venue says something.
    Venue,
    /// A lane's publisher takes it.
    Publish(usize),
    /// A lane's recovery server reads and answers.
    Server(usize),
    Arrive {
        subscriber: usize,
        is_reply: bool,
        packet: Packet,
    },
    /// A packet comes to a recovery server.
    Request {
        lane: usize,
        packet: Packet,
    },
    /// A packet of the other lane comes to a publisher that replays; or nothing does, for a while.
    Hear {
        lane: usize,
        packet: Option<Packet>,
    },
    /// Words become visible in a subscriber's ring.
    Show {
        subscriber: usize,
        number: u64,
        piece: Piece,
    },
    /// Lane 0 connects to a subscriber's ring.
    Connect(usize),
    Wake(usize),
    /// Something breaks, for anybody; and again after a while.
    Fault,
    /// Something breaks for this one.
    Strike(usize),
    /// The next packet is lost by everybody.
    LoseOne,
    /// A lane's publisher starts (again).
    Start(usize),
    /// A lane's publisher is stopped, because it went astray.
    Stop(usize),
    /// A subscriber starts (again).
    Join(usize),
    /// A subscriber asks some server to let it in.
    Reconnect(usize),
}

struct Event {
    at: u64,
    order: u64,
    what: What,
}

impl PartialEq for Event {
    fn eq(&self, other: &Event) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}
impl Eq for Event {}
impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Event) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Event {
    fn cmp(&self, other: &Event) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

struct Node {
    subscriber: Option<Subscriber>,
    clock: Clock,
    connection: Connection,
    /// Whose recovery server it asks.
    server: usize,
    /// One for each lane.
    streams: Vec<Link>,
    replies: Link,
    requests: Link,
    wake_at: u64,
    joins: u64,
}

impl Node {
    fn links(&mut self) -> impl Iterator<Item = &mut Link> {
        self.streams.iter_mut().chain([&mut self.replies, &mut self.requests])
    }
}

/// Everything there is.
pub(crate) struct World {
    plan: Plan,
    random: Pcg64Mcg,
    now: u64,
    order: u64,
    queue: BinaryHeap<Reverse<Event>>,
    oracle: Rc<RefCell<Oracle>>,
    logs: Logs,
    /// The newest epoch, and how many there were.
    epoch: u16,
    epochs: u32,
    records: RandomRecords,
    /// What the venue has said in this session.
    feed: Vec<Record>,
    venue_ended: bool,
    publishers: Vec<Option<Publisher>>,
    /// The clocks of the publishers' hosts.
    clocks: [Clock; 2],
    lane_down_until: [u64; 2],
    /// Connections to subscribers' rings so far.
    rings: u64,
    nodes: Vec<Node>,
    connections: u16,
    storm_until: u64,
    outcome: Outcome,
}

impl World {
    pub(crate) fn new(plan: Plan) -> World {
        let mut random = Pcg64Mcg::seed_from_u64(plan.seed);
        // The low half of the clock wraps in the middle of the run.
        let now = (400_000_000u64 << 32) - plan.storm_ns / 2;
        let off = |random: &mut Pcg64Mcg| if plan.crashes { Clock::random(now, random) } else { Clock::RIGHT };
        let link = |random: &mut Pcg64Mcg| Link::new(plan.weather.unwrap_or_else(|| Weather::random(random)));
        let nodes = (0..plan.subscribers)
            .map(|_| Node {
                subscriber: None,
                clock: off(&mut random),
                connection: Connection(0),
                server: 0,
                streams: (0..plan.lanes).map(|_| link(&mut random)).collect(),
                replies: link(&mut random),
                requests: link(&mut random),
                wake_at: u64::MAX,
                joins: 0,
            })
            .collect();
        World {
            plan,
            records: RandomRecords::new(random.random()),
            now,
            order: 0,
            queue: BinaryHeap::new(),
            oracle: Rc::new(RefCell::new(Oracle::default())),
            logs: Logs::default(),
            epoch: plan.epoch - 1,
            epochs: 0,
            feed: Vec::new(),
            venue_ended: false,
            publishers: (0..plan.lanes).map(|_| None).collect(),
            clocks: [off(&mut random), off(&mut random)],
            lane_down_until: [0; 2],
            rings: 0,
            random,
            nodes,
            // The last of the numbers that connections have are used, and then the first.
            connections: u16::MAX - 20,
            storm_until: now + plan.storm_ns,
            outcome: Outcome::default(),
        }
    }

    fn at(&mut self, at: u64, what: What) {
        self.order += 1;
        self.queue.push(Reverse(Event { at, order: self.order, what }));
    }

    fn after(&mut self, ns: u64, what: What) {
        self.at(self.now + ns, what);
    }

    /// Runs it to its end.
    pub(crate) fn run(mut self) -> Outcome {
        for lane in 0..self.plan.lanes {
            let late = if lane == 0 { 0 } else { self.random.random_range(0..3 * MS) };
            self.after(late, What::Start(lane));
        }
        self.after(0, What::Venue);
        for subscriber in 0..self.nodes.len() {
            // Half of them are there from the start.
            let late = self.random.random_range(0..self.plan.storm_ns / 2);
            let late = if subscriber % 2 == 0 || !self.plan.crashes { 0 } else { late };
            self.after(late, What::Join(subscriber));
        }
        self.after(MS, What::Fault);
        if self.plan.lose_one {
            self.after(self.plan.storm_ns / 2, What::LoseOne);
        }
        let mut end = u64::MAX;
        let mut calm = false;
        let mut check_at = u64::MAX;
        while let Some(Reverse(event)) = self.queue.pop() {
            if !calm && event.at >= self.storm_until {
                if self.plan.weather.is_none() && self.outcome.faults < LEAST_FAULTS {
                    // A day so fair goes on for a little.
                    self.storm_until += 10 * MS;
                    self.after(MS, What::Fault);
                } else {
                    calm = true;
                    end = self.storm_until + CALM_NS;
                    check_at = self.storm_until + MS;
                    self.calm_down();
                }
            }
            self.now = event.at.max(self.now);
            self.outcome.events += 1;
            self.happen(event.what);
            if calm && self.now >= check_at {
                // Looked at seldom: what is not right yet is expected to take a while.
                check_at = self.now + self.plan.storm_ns / 16;
                if self.unhealed().is_none() {
                    self.outcome.healed_ns = self.now - self.storm_until;
                    break;
                }
            }
            assert!(self.now <= end, "not healed in {} ms: {}", CALM_NS / MS, self.unhealed().expect("why"));
        }
        self.finish()
    }

    /// Nothing goes wrong any more.
    fn calm_down(&mut self) {
        for node in &mut self.nodes {
            for link in node.links() {
                *link = Link::new(Weather::FAIR);
            }
        }
        for publisher in self.publishers.iter_mut().flatten() {
            publisher.link = Link::new(Weather::FAIR);
            publisher.astray = None;
        }
    }

    fn is_storm(&self) -> bool {
        self.now < self.storm_until
    }

    fn happen(&mut self, what: What) {
        match what {
            What::Start(lane) => self.start(lane),
            What::Stop(lane) => {
                if self.publishers[lane].take().is_some() {
                    self.after(QUIET_NS, What::Start(lane));
                    self.forget_server(lane);
                }
            }
            What::Venue => self.hear_venue(),
            What::Publish(lane) => self.publish(lane),
            What::Server(lane) => self.serve(lane),
            What::Hear { lane, packet } => self.hear(lane, packet),
            What::Show { subscriber, number, piece } => {
                if let Some(node) = &mut self.nodes[subscriber].subscriber
                    && let Some(ring) = node.ring.as_ref().filter(|ring| ring.number == number)
                {
                    ring.show(&piece);
                    if node.paused_until <= self.now {
                        self.turn(subscriber);
                    }
                }
            }
            What::Connect(subscriber) => self.connect(subscriber),
            What::Join(subscriber) => self.join(subscriber),
            What::Reconnect(subscriber) => self.reconnect(subscriber),
            What::Fault => {
                if self.is_storm() {
                    let pause = self.random.random_range(500_000..6 * MS);
                    self.after(pause, What::Fault);
                    let subscriber = self.random.random_range(0..self.nodes.len());
                    self.strike(subscriber);
                }
            }
            What::Strike(subscriber) => self.strike(subscriber),
            What::LoseOne => self.nodes.iter_mut().for_each(|node| node.streams[0].force(Fault::Loss)),
            What::Arrive { subscriber, is_reply, packet } => {
                let now = self.now;
                if let Some(node) = &mut self.nodes[subscriber].subscriber
                    && node.receive(is_reply, packet)
                    && node.paused_until <= now
                {
                    self.turn(subscriber);
                }
            }
            What::Wake(subscriber) => {
                if self.nodes[subscriber].wake_at == self.now {
                    self.nodes[subscriber].wake_at = u64::MAX;
                    self.turn(subscriber);
                }
            }
            What::Request { lane, packet } => {
                if let (Some(publisher), Ok(packet)) = (&mut self.publishers[lane], packet.decode()) {
                    packet.lines.iter().for_each(|line| publisher.responder.on_request(line));
                    self.after(5_000, What::Server(lane));
                }
            }
        }
    }

    /// The lanes that publish.
    fn publishing(&self) -> impl Iterator<Item = &Publisher> {
        self.publishers.iter().flatten().filter(|publisher| publisher.is_publishing())
    }

    fn start(&mut self, lane: usize) {
        if self.publishers[lane].is_some() {
            return;
        }
        let living = self.publishing().find(|publisher| !publisher.ended).map(|publisher| publisher.lane);
        if living.is_none() && self.publishers.iter().flatten().count() > 0 {
            // The other one is itself about to find out that there is nobody to join; or the session is over.
            return self.after(3 * MS, What::Start(lane));
        }
        if living.is_none() {
            self.epoch += 1;
            self.epochs += 1;
            self.records = RandomRecords::new(self.random.random());
            self.feed.clear();
            self.venue_ended = false;
            self.oracle.borrow_mut().begin(self.beginning().first);
        }
        let weather = if self.is_storm() {
            self.plan.weather.unwrap_or_else(|| Weather::random(&mut self.random))
        } else {
            Weather::FAIR
        };
        let clock = self.clocks[lane];
        let starts = self.outcome.starts;
        self.outcome.starts += 1;
        let log = self.logs.begin(Role::Publisher, format!("lane {lane}, start {starts}"));
        let server_log = self.logs.begin(Role::Recovery, format!("server of lane {lane}, start {starts}"));
        let link = Link::new(weather);
        let mut publisher =
            Publisher::new(lane, self.beginning(), clock, self.plan.history_lines, link, (log, server_log));
        self.oracle.borrow_mut().branch_of_lane[lane] = 0;
        if let Some(living) = living {
            publisher.join(living);
            self.publishers[lane] = Some(publisher);
            return self.after(MS, What::Hear { lane, packet: None });
        }
        self.publishers[lane] = Some(publisher);
        self.begin_publishing(lane);
    }

    /// Where this epoch begins.
    fn beginning(&self) -> Beginning {
        let (first, lines) = if self.epochs == 1 { self.plan.begins } else { (1, 0) };
        Beginning { first: Stamp::new(Epoch(self.epoch), SequenceNumber(first)), lines }
    }

    fn begin_publishing(&mut self, lane: usize) {
        let publisher = self.publishers[lane].as_mut().expect("it is about to publish");
        publisher.begin_logs();
        self.after(0, What::Publish(lane));
        for subscriber in 0..self.nodes.len() {
            let wait = self.random.random_range(MS..5 * MS);
            let has_server = self.publishers[self.nodes[subscriber].server]
                .as_ref()
                .is_some_and(|publisher| publisher.is_publishing() && publisher.lane != lane);
            if !has_server {
                self.after(wait, What::Reconnect(subscriber));
            }
            if lane == 0 {
                self.after(wait, What::Connect(subscriber));
            }
        }
    }

    /// A publisher that replays hears the other lane, or nothing.
    fn hear(&mut self, lane: usize, packet: Option<Packet>) {
        let Some(publisher) = &mut self.publishers[lane] else { return };
        if publisher.is_publishing() {
            return;
        }
        if packet.is_none() {
            self.order += 1;
            let what = What::Hear { lane, packet: None };
            self.queue.push(Reverse(Event { at: self.now + MS, order: self.order, what }));
        }
        let outcome = publisher.hear(packet.as_ref(), &self.feed, self.now, &mut self.oracle.borrow_mut());
        match outcome {
            Ok(true) => {
                self.outcome.joined += 1;
                self.begin_publishing(lane);
            }
            Ok(false) => {}
            Err(_) => {
                self.outcome.refused += 1;
                self.publishers[lane] = None;
                self.after(3 * MS, What::Start(lane));
            }
        }
    }

    /// The venue says a few messages, or nothing.
    fn hear_venue(&mut self) {
        let is_storm = self.is_storm();
        let pause = if is_storm { self.random.random_range(20_000..250_000) } else { MS };
        self.after(pause, What::Venue);
        if !self.venue_ended && self.epochs > 0 {
            let records = if is_storm { self.random.random_range(0..12) } else { self.random.random_range(0..3) };
            for i in 0..records {
                let mut record = self.records.next_record();
                if is_storm || i + 1 < records || self.random.random_ratio(1, 2) {
                    // What the venue says.
                } else if record.kind != Kind::SESSION_START {
                    record = Record { flags: Flags::LAST, ..Record::new(Kind::EVENT_END, InstrumentId::CHANNEL) };
                }
                self.feed.push(record);
            }
            if !is_storm && self.plan.ends && !self.feed.is_empty() {
                // No snapshot is taken of a book in the middle of an event, so none is left open.
                for kind in [Kind::EVENT_END, Kind::SESSION_END] {
                    self.feed.push(Record { flags: Flags::LAST, ..Record::new(kind, InstrumentId::CHANNEL) });
                }
                self.venue_ended = true;
            }
        }
        for lane in 0..self.plan.lanes {
            let late = self.random.random_range(1_000..30_000);
            self.after(late, What::Publish(lane));
        }
    }

    /// A publisher takes what the venue has said, and sends whatever it becomes.
    fn publish(&mut self, lane: usize) {
        let Some(mut publisher) = self.publishers[lane].take() else { return };
        if !publisher.is_publishing() || self.now < publisher.paused_until {
            self.publishers[lane] = Some(publisher);
            return;
        }
        let mut lines: Vec<Line> = Vec::new();
        let goes_on = publisher.publish(&self.feed, self.now, &mut self.oracle.borrow_mut(), &mut lines);
        self.outcome.published += lines.len() as u64;
        let next = publisher.channel.next();
        let clock = publisher.clock.read(self.now);
        let mut first = Stamp(next.0 - lines.len() as u64);
        history::publish(&mut publisher.log, first, &lines);
        for chunk in lines.chunks(PACKET_LINES) {
            first = first.plus(chunk.len() as u64);
            self.multicast(lane, clock, first, chunk, false);
            publisher.last_sent = self.now;
        }
        if publisher.ended {
            publisher.log.on_end(next);
        }
        if self.now - publisher.last_sent >= 10 * MS || publisher.ended {
            publisher.last_sent = self.now;
            self.multicast(lane, clock, next, &[], publisher.ended);
        }
        if lane == 0 && self.plan.rdma {
            self.write_rings(&publisher);
        }
        self.after(10_000, What::Server(lane));
        if goes_on {
            self.publishers[lane] = Some(publisher);
        } else {
            // The sequence is at its end, and never wraps: it starts anew, in a new epoch.
            self.outcome.exhausted += 1;
            self.after(MS, What::Start(lane));
            self.forget_server(lane);
        }
    }

    /// Sends lines, those before `next`, on a lane if it is up.
    fn multicast(&mut self, lane: usize, clock: Nanos, next: Stamp, lines: &[Line], ended: bool) {
        if self.lane_down_until[lane] > self.now {
            return;
        }
        let packet = Packet::new(lane, next, clock, lines, ended);
        for subscriber in 0..self.nodes.len() {
            self.send(subscriber, Way::Stream(lane), &packet);
        }
        for other in (0..self.plan.lanes).filter(|other| *other != lane) {
            let Some(joiner) = self.publishers[other].as_mut().filter(|joiner| !joiner.is_publishing()) else {
                continue;
            };
            let mut arrivals = Vec::new();
            joiner.link.send(&packet, self.now, &mut self.random, |_| {}, |at, packet| arrivals.push((at, packet)));
            for (at, packet) in arrivals {
                self.at(at, What::Hear { lane: other, packet: Some(packet) });
            }
        }
    }

    /// Lane 0 writes into subscribers' rings: now and then, so that lines pile up.
    fn write_rings(&mut self, publisher: &Publisher) {
        let (now, clock) = (self.now, publisher.clock.read(self.now));
        for subscriber in 0..self.nodes.len() {
            let waits = self.random.random_ratio(1, 3);
            let Some(node) = &mut self.nodes[subscriber].subscriber else { continue };
            let state = node.recovery.state();
            let Some(ring) = &mut node.ring else { continue };
            let (first, lines) = publisher.lines_from(ring.cursor);
            if first != ring.cursor {
                // Its source is overwritten: the connection is broken, and made again.
                node.ring = None;
                self.note(subscriber, Fault::RdmaBroken);
                self.after(2 * MS, What::Connect(subscriber));
                continue;
            }
            let (mut pieces, coalesced) =
                if waits { (Vec::new(), 0) } else { ring.write(&lines, now, &mut self.random) };
            if !waits || publisher.ended {
                // Nothing follows only where everything before has been written.
                let ended = publisher.ended && ring.cursor == publisher.channel.next();
                pieces.extend(ring.beat(now, clock, ended, &mut self.random));
            }
            let number = ring.number;
            let row = &mut self.outcome.table[state.index()];
            row[Fault::Coalesced as usize] += coalesced;
            row[Fault::TornWrite as usize] += u64::from(pieces.len() > 1);
            for (at, piece) in pieces {
                self.at(at, What::Show { subscriber, number, piece });
            }
        }
    }

    /// Lane 0 connects to a subscriber's ring, which is fresh and zeroed.
    fn connect(&mut self, subscriber: usize) {
        let Some(publisher) = self.publishers[0].as_ref().filter(|publisher| publisher.is_publishing()) else { return };
        let Some(node) = self.nodes[subscriber].subscriber.as_mut().filter(|_| self.plan.rdma) else { return };
        self.rings += 1;
        node.ring = Some(RemoteRing::connect(publisher.channel.next(), 0, self.rings));
    }

    fn send(&mut self, subscriber: usize, way: Way, packet: &Packet) {
        let node = &mut self.nodes[subscriber];
        let server = node.server;
        let state = node.subscriber.as_ref().map(|node| node.recovery.state());
        let link = match way {
            Way::Stream(lane) => &mut node.streams[lane],
            Way::Reply => &mut node.replies,
            Way::Request => &mut node.requests,
        };
        let (outcome, lines) = (&mut self.outcome, packet.lines());
        let hit = |fault: Fault| {
            let Some(state) = state else { return };
            outcome.table[state.index()][fault as usize] += 1;
            outcome.faults += lines;
            if matches!(way, Way::Stream(_))
                && [Fault::Loss, Fault::Burst, Fault::Partition, Fault::Corruption].contains(&fault)
            {
                outcome.missed += lines;
                outcome.missed_packets += u64::from(lines > 0);
                if outcome.lost.len() <= subscriber {
                    outcome.lost.resize(subscriber + 1, 0);
                }
                outcome.lost[subscriber] += u64::from(lines > 0);
            }
        };
        let mut arrivals = Vec::new();
        link.send(packet, self.now, &mut self.random, hit, |at, packet| arrivals.push((at, packet)));
        for (at, packet) in arrivals {
            let what = match way {
                Way::Request => What::Request { lane: server, packet },
                way => What::Arrive { subscriber, is_reply: way == Way::Reply, packet },
            };
            self.at(at, what);
        }
    }

    /// A recovery server reads on in its publisher's ring, and answers.
    fn serve(&mut self, lane: usize) {
        let now = self.now;
        let Some(publisher) = self.publishers[lane].as_mut().filter(|publisher| publisher.is_publishing()) else {
            return;
        };
        if now < publisher.server_paused_until {
            let at = publisher.server_paused_until;
            return self.at(at, What::Server(lane));
        }
        publisher.serve();
        let clock = publisher.clock.read(now);
        let mut packets = Vec::new();
        while let Some(run) = publisher.responder.poll_reply(clock, PACKET_LINES) {
            let next = run.first.plus(run.lines.len() as u64);
            packets.push((run.connection, Packet::new(lane, next, clock, run.lines, false)));
        }
        if let Some(at) = publisher.responder.next_timeout() {
            let at = publisher.clock.when(at, now).max(now + 1_000);
            self.at(at, What::Server(lane));
        }
        for (connection, packet) in packets {
            let to = self.nodes.iter().position(|node| node.connection == connection && node.server == lane);
            if let Some(to) = to {
                self.send(to, Way::Reply, &packet);
            }
        }
    }

    /// What the control channel does: a connection and a key for a subscriber, from a publisher that lives and has not been
    /// withdrawn.
    fn admit(&mut self, subscriber: usize) -> Option<Session> {
        let node = &mut self.nodes[subscriber];
        if let Some(old) = &mut self.publishers[node.server] {
            old.responder.dismiss(node.connection);
        }
        let is_withdrawn = |lane: usize| {
            let lane = protocol::record::Lane::new(lane as u16);
            node.subscriber.as_ref().is_some_and(|subscriber| subscriber.arbiter.is_withdrawn(lane))
        };
        let lanes: Vec<usize> = self
            .publishers
            .iter()
            .flatten()
            .filter(|publisher| publisher.is_publishing())
            .map(|publisher| publisher.lane)
            .collect();
        let lanes: Vec<usize> = lanes.into_iter().filter(|lane| !is_withdrawn(*lane)).collect();
        let lane = *lanes.get(self.random.random_range(0..lanes.len().max(1)))?;
        self.connections = self.connections.wrapping_add(1).max(1);
        let session = Session { connection: Connection(self.connections), key: self.random.random() };
        let publisher = self.publishers[lane].as_mut().expect("it publishes");
        publisher.responder.admit(session.connection, session.key);
        (node.connection, node.server) = (session.connection, lane);
        Some(session)
    }

    /// A publisher is gone, and its recovery server with it.
    fn forget_server(&mut self, lane: usize) {
        for subscriber in 0..self.nodes.len() {
            if let Some(node) = &mut self.nodes[subscriber].subscriber
                && lane == 0
            {
                node.ring = None;
            }
            if self.nodes[subscriber].server == lane {
                let wait = self.random.random_range(MS..5 * MS);
                self.after(wait, What::Reconnect(subscriber));
            }
        }
    }

    fn join(&mut self, subscriber: usize) {
        self.nodes[subscriber].subscriber = None;
        let Some(session) = self.admit(subscriber) else {
            return self.after(MS, What::Join(subscriber));
        };
        let node = &mut self.nodes[subscriber];
        node.joins += 1;
        let name = format!("seed {}, subscriber {subscriber}, start {}", self.plan.seed, node.joins);
        let seed = self.random.random();
        let paths = self.plan.lanes + usize::from(self.plan.rdma);
        let log = self.logs.begin(Role::Subscriber, format!("subscriber {subscriber}, start {}", node.joins));
        node.subscriber = Some(Subscriber::new(Rc::clone(&self.oracle), paths, session, seed, name, log));
        self.after(MS, What::Connect(subscriber));
    }

    fn reconnect(&mut self, subscriber: usize) {
        if self.nodes[subscriber].subscriber.is_none() {
            return;
        }
        let Some(session) = self.admit(subscriber) else { return };
        if let Some(node) = &mut self.nodes[subscriber].subscriber {
            node.recovery.reconnect(session);
        }
    }

    fn turn(&mut self, subscriber: usize) {
        let now = self.now;
        let clock = self.nodes[subscriber].clock;
        let Some(node) = &mut self.nodes[subscriber].subscriber else { return };
        if now < node.paused_until {
            let at = node.paused_until;
            return self.wake(subscriber, at);
        }
        let (before, splits) = (node.recovery.state(), node.check.splits);
        node.turn(clock.read(now));
        let state = node.recovery.state();
        let mut requests = Vec::new();
        while let Some(line) = node.recovery.poll_request() {
            requests.push(Packet::new(0, line.stamp().plus(1), clock.read(now), &[line], false));
        }
        let timeout = node.next_timeout();
        let is_split = node.check.splits > splits;
        let waits_for_words = node.waits_for_words();
        for packet in requests {
            self.send(subscriber, Way::Request, &packet);
        }
        if let Some(at) = timeout {
            self.wake(subscriber, clock.when(at, now).max(now + 1_000));
        }
        if waits_for_words {
            self.wake(subscriber, now + 500_000);
        }
        if is_split {
            self.on_split(subscriber);
        }
        // Trouble likes those who are in the middle of something.
        let chance = match state {
            RecoveryState::CatchUp => 2,
            RecoveryState::Snapshot => 12,
            _ => 60,
        };
        if state != before && state != RecoveryState::Live && self.random.random_ratio(1, chance) {
            let soon = self.random.random_range(0..20_000);
            self.after(soon, What::Strike(subscriber));
        }
    }

    /// A subscriber was told of a split: it goes to the other server, and whoever looks after the publishers stops the one that
    /// was withdrawn.
    fn on_split(&mut self, subscriber: usize) {
        let Some(node) = &self.nodes[subscriber].subscriber else { return };
        let lanes = 0..self.plan.lanes;
        let withdrawn: Vec<usize> =
            lanes.filter(|lane| node.arbiter.is_withdrawn(protocol::record::Lane::new(*lane as u16))).collect();
        for lane in withdrawn {
            if self.nodes[subscriber].server == lane {
                self.after(MS, What::Reconnect(subscriber));
            }
            let branches = self.oracle.borrow().branch_of_lane;
            let both_live = self.publishing().count() == 2;
            if both_live && branches[0] != branches[1] {
                self.after(10 * MS, What::Stop(lane));
            }
        }
    }

    fn wake(&mut self, subscriber: usize, at: u64) {
        if at < self.nodes[subscriber].wake_at {
            self.nodes[subscriber].wake_at = at;
            self.at(at, What::Wake(subscriber));
        }
    }

    /// What is not right yet, if anything.
    fn unhealed(&mut self) -> Option<String> {
        let epoch = Epoch(self.epoch);
        let oracle = self.oracle.borrow();
        for (at, node) in self.nodes.iter().enumerate() {
            let server = self.publishers[node.server].as_ref().filter(|publisher| publisher.is_publishing());
            let Some(subscriber) = &node.subscriber else { return Some(format!("subscriber {at} is not there")) };
            // After a split it is of one branch; before it heard of one, or where there is none, of any.
            let is_of = |publisher: &&Publisher| {
                let branch = oracle.branch_of_lane[publisher.lane];
                subscriber.check.kept.is_none_or(|kept| kept == branch)
            };
            let Some(publisher) = self.publishing().find(is_of) else {
                let lives: Vec<_> =
                    self.publishers.iter().map(|one| one.as_ref().map(Publisher::is_publishing)).collect();
                let (kept, next) = (subscriber.check.kept, subscriber.arbiter.next());
                return Some(format!(
                    "there is no publisher of what subscriber {at} follows: {kept:?} at {next:?}; epoch {epoch:?}, publishing {lives:?}"
                ));
            };
            let head = publisher.channel.next();
            let next = subscriber.arbiter.next();
            if next.is_none_or(|next| next.epoch() != epoch || head.0.abs_diff(next.0) > 8) {
                return Some(format!("subscriber {at} is at {next:?}, the publisher at {head}"));
            }
            if self.venue_ended && (!subscriber.check.ended || next != Some(head)) {
                let paths: Vec<_> = subscriber.arbiter.paths().collect();
                return Some(format!("subscriber {at} has not been told of the end: {next:?} of {head}, {paths:?}"));
            }
            let naive = oracle.naive(epoch, oracle.branch_of_lane[publisher.lane]);
            for instrument in naive.instruments() {
                let truth = naive.book(instrument).state();
                let state = subscriber.state(instrument);
                let source =
                    server.and_then(|server| server.responder.source().books().state(InstrumentId(instrument)).into());
                // A book that the server itself has in doubt cannot be had from it; until something heals, it is said to be
                // in doubt.
                let can_heal = source.is_some_and(|source: protocol::book::BookState| source.is_readable());
                if truth != NaiveState::Unknown && can_heal && !state.is_some_and(|state| state.is_readable()) {
                    let (recovery, counts) = (&subscriber.recovery, subscriber.engine.snapshot_counts());
                    let recovery = (recovery.state(), recovery.counts(), counts);
                    return Some(format!("subscriber {at}, instrument {instrument}: {state:?}; {recovery:?}"));
                }
            }
        }
        None
    }

    fn finish(mut self) -> Outcome {
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        for node in &mut self.nodes {
            let Some(node) = &mut node.subscriber else { continue };
            node.compare_all(Nanos(self.now));
            self.outcome.splits += node.check.splits;
            self.outcome.dated += node.check.dated;
            self.outcome.ended += u64::from(node.check.ended);
            let by_rdma = node.arbiter.paths().filter(|(path, _)| path.carrier == protocol::run::Carrier::RdmaRc);
            self.outcome.written += by_rdma.map(|(_, counts)| counts.won + counts.duplicates).sum::<u64>();
            self.outcome.asked.push(node.recovery.counts().line_requests);
            self.outcome.asked_in_all.push(node.recovery.counts().requests);
            let (recovery, arbiter) = (node.recovery.counts(), node.arbiter.counts());
            assert_eq!(recovery.malformed, 0, "seed {}: what is read is what was written", self.plan.seed);
            assert_eq!(node.check.lost, arbiter.lost, "seed {}: every gap was told", self.plan.seed);
            for (name, count) in [
                ("delivered", node.check.delivered),
                ("declared", node.check.lost),
                ("compared", node.check.compared),
                ("recovered", arbiter.recovered),
                ("snapshots", node.engine.snapshot_counts().applied),
                ("requests", recovery.requests),
                ("line requests", recovery.line_requests),
                ("reply lines", recovery.reply_lines),
            ] {
                *sums.entry(name).or_default() += count;
            }
        }
        let outcome = &mut self.outcome;
        for (name, place) in [
            ("delivered", &mut outcome.delivered),
            ("declared", &mut outcome.declared),
            ("compared", &mut outcome.compared),
            ("recovered", &mut outcome.recovered),
            ("snapshots", &mut outcome.snapshots),
            ("requests", &mut outcome.requests),
            ("line requests", &mut outcome.line_requests),
            ("reply lines", &mut outcome.reply_lines),
        ] {
            *place = sums.get(name).copied().unwrap_or(0);
        }
        // Dropped, they close their logs. Those of a split pair differ, as they must.
        self.publishers.clear();
        self.nodes.clear();
        if !self.oracle.borrow().has_forked() {
            (self.outcome.logged_lines, self.outcome.logged_digests) = self.logs.check(self.plan.seed);
        }
        self.outcome
    }
}

/// Which link of a subscriber.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Stream(usize),
    Reply,
    Request,
}
