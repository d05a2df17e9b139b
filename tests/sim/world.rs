//! One run: a publisher with its recovery server, subscribers, a network, and a seed that decides everything.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::rc::Rc;

use bookcast_tests::naive::NaiveState;
use bookcast_tests::random::RandomRecords;
use protocol::arbiter::{Delivery, Gap};
use protocol::book::Start;
use protocol::channel::{ChannelConfig, ChannelWriter};
use protocol::line::{Epoch, Line, SequenceNumber, Stamp};
use protocol::log::{Logged, Recorder, Role};
use protocol::record::{Flags, InstrumentId, Kind, Lane, Record};
use protocol::recovery::{Connection, RecoveryState, Responder, ResponderConfig, Session};
use protocol::run::{Carrier, LanePath, LossCause};
use protocol::time::Nanos;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::history::{self, Logs, Notes};
use crate::network::{Fault, Link, Packet, Weather};
use crate::oracle::Oracle;
use crate::subscriber::{BOOKS, REPLY_LINES, Subscriber};

const MS: u64 = 1_000_000;
/// Lines in a packet of the stream and of replies.
const PACKET_LINES: usize = 22;
/// Lines in the publisher's ring: a recovery server that is farther behind is lapped.
const RING_LINES: u64 = 2048;
/// Losses stop, and within this time everybody has the right books.
const CALM_NS: u64 = 2_000 * MS;
/// States by faults.
pub(crate) type Table = [[u64; Fault::ALL.len()]; RecoveryState::ALL.len()];

/// How a run is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) subscribers: usize,
    /// 1, or 2: A and B carry the same lines.
    pub(crate) lanes: usize,
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
    pub(crate) reply_lines: u64,
    /// Lines of the stream that links did not bring, each counted once for each subscriber.
    pub(crate) missed: u64,
    /// From the end of the faults until everybody had the right books, ns.
    pub(crate) healed_ns: u64,
    /// Lines and book digests of one participant's log that were held against another's.
    pub(crate) logged_lines: u64,
    pub(crate) logged_digests: u64,
}

enum What {
    Publish,
    Server,
    Arrive {
        subscriber: usize,
        is_reply: bool,
        packet: Packet,
    },
    Request {
        packet: Packet,
    },
    Wake(usize),
    /// Something breaks, for anybody; and again after a while.
    Fault,
    /// Something breaks for this one.
    Strike(usize),
    /// The next packet is lost by everybody.
    LoseOne,
    /// The publisher starts (again).
    Start,
    /// A subscriber starts (again).
    Join(usize),
    /// A subscriber hears of the server that there is now.
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

struct Publisher {
    channel: ChannelWriter,
    records: RandomRecords,
    last_sent: u64,
    log: Recorder<Notes>,
}

struct Server {
    responder: Responder,
    /// The line that it reads next.
    next: Stamp,
    joined: bool,
    paused_until: u64,
    log: Recorder<Notes>,
}

struct Node {
    subscriber: Option<Subscriber>,
    connection: Connection,
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
    epoch: u16,
    publisher: Option<Publisher>,
    publisher_paused_until: u64,
    lane_down_until: [u64; 2],
    server: Option<Server>,
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
        let mut link = || Link::new(plan.weather.unwrap_or_else(|| Weather::random(&mut random)));
        let nodes = (0..plan.subscribers)
            .map(|_| Node {
                subscriber: None,
                connection: Connection(0),
                streams: (0..plan.lanes).map(|_| link()).collect(),
                replies: link(),
                requests: link(),
                wake_at: u64::MAX,
                joins: 0,
            })
            .collect();
        World {
            plan,
            random,
            now,
            order: 0,
            queue: BinaryHeap::new(),
            oracle: Rc::new(RefCell::new(Oracle::new())),
            logs: Logs::default(),
            epoch: 0,
            publisher: None,
            publisher_paused_until: 0,
            lane_down_until: [0; 2],
            server: None,
            nodes,
            connections: 0,
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
        self.after(0, What::Start);
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
        let end = self.storm_until + CALM_NS;
        let mut calm = false;
        let mut check_at = self.storm_until + MS;
        while let Some(Reverse(event)) = self.queue.pop() {
            if !calm && event.at >= self.storm_until {
                calm = true;
                self.calm_down();
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
    }

    fn is_storm(&self) -> bool {
        self.now < self.storm_until
    }

    fn happen(&mut self, what: What) {
        match what {
            What::Start => self.start(),
            What::Publish => self.publish(),
            What::Server => self.serve(),
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
            What::Request { packet } => {
                if let (Some(server), Ok(packet)) = (&mut self.server, packet.decode()) {
                    packet.lines.iter().for_each(|line| server.responder.on_request(line));
                    self.after(5_000, What::Server);
                }
            }
        }
    }

    fn start(&mut self) {
        self.epoch += 1;
        let config = ChannelConfig { books: BOOKS, start: Start::Strict, digest_every: 37 };
        let mut log = self.logs.begin(Role::Publisher, format!("publisher {}", self.epoch));
        log.on_joined(Stamp::new(Epoch(self.epoch), SequenceNumber::FIRST));
        self.publisher = Some(Publisher {
            channel: ChannelWriter::new(Epoch(self.epoch), config),
            records: RandomRecords::new(self.random.random()),
            last_sent: 0,
            log,
        });
        let responder = Responder::new(ResponderConfig {
            history_lines: self.plan.history_lines,
            reply_lines: REPLY_LINES,
            books: BOOKS,
            ..ResponderConfig::default()
        });
        let next = Stamp::new(Epoch(self.epoch), SequenceNumber::FIRST);
        let log = self.logs.begin(Role::Recovery, format!("server {}", self.epoch));
        self.server = Some(Server { responder, next, joined: false, paused_until: 0, log });
        self.after(0, What::Publish);
        for subscriber in 0..self.nodes.len() {
            let wait = self.random.random_range(MS..5 * MS);
            self.after(wait, What::Reconnect(subscriber));
        }
    }

    /// A few messages of the venue, and whatever they become.
    fn publish(&mut self) {
        let pause = if self.is_storm() { self.random.random_range(20_000..250_000) } else { MS };
        let Some(mut publisher) = self.publisher.take() else { return };
        if self.now < self.publisher_paused_until {
            let at = self.publisher_paused_until;
            self.publisher = Some(publisher);
            return self.at(at, What::Publish);
        }
        let mut lines: Vec<Line> = Vec::new();
        let records = if self.is_storm() { self.random.random_range(0..12) } else { self.random.random_range(0..3) };
        for i in 0..records {
            let mut record = publisher.records.next_record();
            if self.is_storm() || i + 1 < records || self.random.random_ratio(1, 2) {
                // What the venue says.
            } else if record.kind != Kind::SESSION_START {
                record = Record { flags: Flags::LAST, ..Record::new(Kind::EVENT_END, InstrumentId::CHANNEL) };
            }
            let now = Nanos(self.now);
            publisher.channel.push(&record, now, &mut |line| lines.push(*line)).expect("far from the end");
            publisher.channel.end_message(now, &mut |line| lines.push(*line)).expect("far from the end");
        }
        {
            let mut oracle = self.oracle.borrow_mut();
            lines.iter().for_each(|line| oracle.publish(line));
        }
        self.outcome.published += lines.len() as u64;
        let next = publisher.channel.next();
        let mut first = Stamp(next.0 - lines.len() as u64);
        history::publish(&mut publisher.log, first, &lines);
        for chunk in lines.chunks(PACKET_LINES) {
            first = first.plus(chunk.len() as u64);
            self.multicast(first, chunk);
            publisher.last_sent = self.now;
        }
        if self.now - publisher.last_sent >= 10 * MS {
            publisher.last_sent = self.now;
            self.multicast(next, &[]);
        }
        self.publisher = Some(publisher);
        self.after(10_000, What::Server);
        self.after(pause, What::Publish);
    }

    /// Sends lines, those before `next`, on each lane that is up.
    fn multicast(&mut self, next: Stamp, lines: &[Line]) {
        for lane in (0..self.plan.lanes).filter(|lane| self.lane_down_until[*lane] <= self.now).collect::<Vec<_>>() {
            let packet = Packet::new(lane, next, Nanos(self.now), lines);
            for subscriber in 0..self.nodes.len() {
                self.send(subscriber, Way::Stream(lane), &packet);
            }
        }
    }

    fn send(&mut self, subscriber: usize, way: Way, packet: &Packet) {
        let node = &mut self.nodes[subscriber];
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
            }
        };
        let mut arrivals = Vec::new();
        link.send(packet, self.now, &mut self.random, hit, |at, packet| arrivals.push((at, packet)));
        for (at, packet) in arrivals {
            let what = match way {
                Way::Request => What::Request { packet },
                way => What::Arrive { subscriber, is_reply: way == Way::Reply, packet },
            };
            self.at(at, what);
        }
    }

    /// The recovery server reads on in the ring, and answers.
    fn serve(&mut self) {
        let Some(mut server) = self.server.take() else { return };
        if self.now < server.paused_until {
            let at = server.paused_until;
            self.server = Some(server);
            return self.at(at, What::Server);
        }
        let head = self.publisher.as_ref().map_or(server.next, |publisher| publisher.channel.next());
        let mut reader = Logged::new(&mut server.responder, &mut server.log);
        if !server.joined {
            server.joined = true;
            reader.on_joined(server.next);
        }
        let behind = head.0.saturating_sub(server.next.0);
        if behind > RING_LINES {
            let count = behind - RING_LINES / 2;
            reader.on_gap(Gap { first: server.next, count, cause: LossCause::Lapped });
            server.next = server.next.plus(count);
        }
        let path = LanePath::new(Lane::new(0), Carrier::SharedMemory);
        {
            let oracle = self.oracle.borrow();
            let lines = oracle.lines_from(server.next, usize::MAX >> 1);
            if !lines.is_empty() {
                reader.on_lines(server.next, lines, path, None);
                server.next = server.next.plus(lines.len() as u64);
            }
        }
        let mut packets = Vec::new();
        while let Some(run) = server.responder.poll_reply(Nanos(self.now), PACKET_LINES) {
            let next = run.first.plus(run.lines.len() as u64);
            packets.push((run.connection, Packet::new(0, next, Nanos(self.now), run.lines)));
        }
        if let Some(at) = server.responder.next_timeout() {
            self.at(at.0.max(self.now + 1_000), What::Server);
        }
        self.server = Some(server);
        for (connection, packet) in packets {
            if let Some(to) = self.nodes.iter().position(|node| node.connection == connection) {
                self.send(to, Way::Reply, &packet);
            }
        }
    }

    /// What the control channel does: a connection and a key for a subscriber.
    fn admit(&mut self, subscriber: usize) -> Option<Session> {
        let server = self.server.as_mut()?;
        server.responder.dismiss(self.nodes[subscriber].connection);
        self.connections += 1;
        let session = Session { connection: Connection(self.connections), key: self.random.random() };
        server.responder.admit(session.connection, session.key);
        self.nodes[subscriber].connection = session.connection;
        Some(session)
    }

    fn join(&mut self, subscriber: usize) {
        let Some(session) = self.admit(subscriber) else {
            return self.after(MS, What::Join(subscriber));
        };
        let node = &mut self.nodes[subscriber];
        node.joins += 1;
        let name = format!("seed {}, subscriber {subscriber}, start {}", self.plan.seed, node.joins);
        let seed = self.random.random();
        let log = self.logs.begin(Role::Subscriber, format!("subscriber {subscriber}, start {}", node.joins));
        node.subscriber = Some(Subscriber::new(Rc::clone(&self.oracle), self.plan.lanes, session, seed, name, log));
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
        let Some(node) = &mut self.nodes[subscriber].subscriber else { return };
        if now < node.paused_until {
            let at = node.paused_until;
            return self.wake(subscriber, at);
        }
        let before = node.recovery.state();
        node.turn(Nanos(now));
        let state = node.recovery.state();
        let mut requests = Vec::new();
        while let Some(line) = node.recovery.poll_request() {
            requests.push(Packet::new(0, line.stamp().plus(1), Nanos(now), &[line]));
        }
        let timeout = node.next_timeout();
        for packet in requests {
            self.send(subscriber, Way::Request, &packet);
        }
        if let Some(at) = timeout {
            self.wake(subscriber, at.0.max(now + 1_000));
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

    fn wake(&mut self, subscriber: usize, at: u64) {
        if at < self.nodes[subscriber].wake_at {
            self.nodes[subscriber].wake_at = at;
            self.at(at, What::Wake(subscriber));
        }
    }

    /// Something breaks for a subscriber, or for all.
    fn strike(&mut self, subscriber: usize) {
        if !self.is_storm() {
            return;
        }
        let until = (self.now + self.random.random_range(200_000..8 * MS)).min(self.storm_until);
        let fault = Fault::ALL[self.random.random_range(0..Fault::ALL.len())];
        if self.plan.weather.is_some() || (!self.plan.crashes && fault as usize >= Fault::PublisherCrash as usize) {
            return;
        }
        if (fault as usize) < Fault::PublisherCrash as usize {
            self.note(subscriber, fault);
        }
        let node = &mut self.nodes[subscriber];
        match fault {
            Fault::Loss | Fault::Duplicate | Fault::Reorder | Fault::Corruption => {
                node.links().for_each(|link| link.force(fault));
            }
            Fault::Burst => node.streams[0].begin_burst(self.random.random_range(1..30)),
            Fault::Delay => node.streams.iter_mut().for_each(|link| link.slow_down(until)),
            Fault::Partition => {
                node.links().for_each(|link| link.cut_until = until);
            }
            Fault::PublisherCrash if self.random.random_ratio(1, 3) && self.publisher.is_some() => {
                self.note_all(fault);
                (self.publisher, self.server) = (None, None);
                self.at(until.min(self.storm_until), What::Start);
            }
            Fault::PublisherPause => {
                self.note_all(fault);
                self.publisher_paused_until = until;
            }
            Fault::SubscriberCrash => {
                self.note(subscriber, fault);
                self.nodes[subscriber].subscriber = None;
                self.nodes[subscriber].wake_at = u64::MAX;
                self.at(until, What::Join(subscriber));
            }
            Fault::SubscriberPause => {
                self.note(subscriber, fault);
                if let Some(node) = &mut self.nodes[subscriber].subscriber {
                    node.paused_until = until;
                    self.wake(subscriber, until);
                }
            }
            Fault::LaneDown if self.plan.lanes == 2 => {
                self.note_all(fault);
                self.lane_down_until[self.random.random_range(0..2)] = until;
            }
            Fault::ServerPause => {
                self.note_all(fault);
                if let Some(server) = &mut self.server {
                    server.paused_until = until;
                }
            }
            _ => {}
        }
    }

    fn note(&mut self, subscriber: usize, fault: Fault) {
        if let Some(node) = &self.nodes[subscriber].subscriber {
            self.outcome.table[node.recovery.state().index()][fault as usize] += 1;
        }
    }

    fn note_all(&mut self, fault: Fault) {
        (0..self.nodes.len()).for_each(|subscriber| self.note(subscriber, fault));
    }

    /// What is not right yet, if anything.
    fn unhealed(&mut self) -> Option<String> {
        let Some(publisher) = &self.publisher else { return Some("there is no publisher".to_string()) };
        let head = publisher.channel.next();
        let oracle = self.oracle.borrow();
        for (at, node) in self.nodes.iter().enumerate() {
            let Some(node) = &node.subscriber else { return Some(format!("subscriber {at} is not there")) };
            let next = node.arbiter.next();
            if next.is_none_or(|next| next.epoch() != head.epoch() || head.0 - next.0 > 8) {
                return Some(format!("subscriber {at} is at {next:?}, the publisher at {head}"));
            }
            for instrument in oracle.naive.instruments() {
                let truth = oracle.naive.book(instrument).state();
                let state = node.state(instrument);
                let source = self
                    .server
                    .as_ref()
                    .map(|server| server.responder.source().books().state(InstrumentId(instrument)));
                // A book that the server itself has in doubt cannot be had from it; until something heals, it is said to be
                // in doubt.
                let can_heal = source.is_some_and(|source| source.is_readable());
                if truth != NaiveState::Unknown && can_heal && !state.is_some_and(|state| state.is_readable()) {
                    let recovery = (node.recovery.state(), node.recovery.counts(), node.engine.snapshot_counts());
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
            self.outcome.asked.push(node.recovery.counts().line_requests);
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
        // Dropped, they close their logs.
        (self.publisher, self.server) = (None, None);
        self.nodes.clear();
        (self.outcome.logged_lines, self.outcome.logged_digests) = self.logs.check(self.plan.seed);
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
