//! A publisher: the product's sequencer, books and recovery server, and the product's way of joining one that lives.

use std::collections::VecDeque;

use protocol::arbiter::{Delivery, Gap};
use protocol::book::Start;
use protocol::channel::{ChannelConfig, ChannelWriter};
use protocol::line::{Line, Stamp};
use protocol::log::{Logged, Recorder};
use protocol::pair::{CannotJoin, JoinConfig, Joiner};
use protocol::record::{Flags, InstrumentId, Kind, Lane, Record};
use protocol::recovery::{Responder, ResponderConfig};
use protocol::run::{Carrier, LanePath, LossCause, Position, Run, RunSink};
use protocol::time::Nanos;

use crate::clock::Clock;
use crate::history::Notes;
use crate::network::{Link, Packet};
use crate::oracle::Oracle;
use crate::subscriber::{BOOKS, REPLY_LINES};

/// Lines in the publisher's ring: a recovery server that is farther behind is lapped.
const RING_LINES: usize = 2048;
/// Messages between two digests.
const DIGEST_EVERY: u32 = 37;

/// Where a stream begins: its first line, and how many lines each instrument had before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beginning {
    pub(crate) first: Stamp,
    pub(crate) lines: u32,
}

/// How a publisher goes astray.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Astray {
    /// It misses so many messages, and says so.
    Misses(usize),
    /// It takes one order for another.
    Misreads,
}

/// One of a channel's publishers, with its recovery server.
pub(crate) struct Publisher {
    pub(crate) lane: usize,
    pub(crate) channel: ChannelWriter,
    pub(crate) clock: Clock,
    /// Messages of the venue taken so far.
    taken: usize,
    pub(crate) astray: Option<Astray>,
    /// While it replays.
    pub(crate) joiner: Option<Joiner>,
    /// How the other lane's packets come to it meanwhile.
    pub(crate) link: Link,
    pub(crate) last_sent: u64,
    last_publish: Nanos,
    pub(crate) paused_until: u64,
    pub(crate) ended: bool,
    pub(crate) responder: Responder,
    /// The newest lines, as its ring holds them; the last one is that before `channel.next()`.
    ring: VecDeque<Line>,
    /// The line that the recovery server reads next.
    served: Stamp,
    pub(crate) server_paused_until: u64,
    pub(crate) log: Recorder<Notes>,
    server_log: Recorder<Notes>,
}

impl Publisher {
    /// One that has published nothing.
    pub(crate) fn new(
        lane: usize,
        beginning: Beginning,
        clock: Clock,
        history_lines: usize,
        link: Link,
        (log, server_log): (Recorder<Notes>, Recorder<Notes>),
    ) -> Publisher {
        let config = ChannelConfig { books: BOOKS, start: Start::Strict, digest_every: DIGEST_EVERY };
        let channel = if beginning.lines == 0 {
            ChannelWriter::new(beginning.first.epoch(), config)
        } else {
            ChannelWriter::going_on(beginning.first, beginning.lines, config)
        };
        let mut responder = Responder::new(ResponderConfig {
            history_lines,
            reply_lines: REPLY_LINES,
            books: BOOKS,
            ..ResponderConfig::default()
        });
        responder.on_joined(beginning.first);
        Publisher {
            lane,
            channel,
            clock,
            taken: 0,
            astray: None,
            joiner: None,
            link,
            last_sent: 0,
            last_publish: Nanos::ZERO,
            paused_until: 0,
            ended: false,
            responder,
            ring: VecDeque::new(),
            served: beginning.first,
            server_paused_until: 0,
            log,
            server_log,
        }
    }

    /// What it publishes, and what its server reads, begins here.
    pub(crate) fn begin_logs(&mut self) {
        self.log.on_joined(self.channel.next());
        self.server_log.on_joined(self.served);
    }

    /// Joins the lane `other`, which lives.
    pub(crate) fn join(&mut self, other: usize) {
        let config = JoinConfig { window_lines: 1024, silent_ns: 30_000_000, ..JoinConfig::default() };
        self.joiner = Some(Joiner::new(config, Lane::new(other as u16), self.channel.next()));
    }

    /// Whether it publishes: not while it replays.
    pub(crate) fn is_publishing(&self) -> bool {
        self.joiner.is_none()
    }

    /// The next message of the venue becomes lines. `None` if there is none; false if the sequence is at its end.
    fn step(&mut self, feed: &[Record], now: Nanos, oracle: &mut Oracle, out: &mut Vec<Line>) -> Option<bool> {
        let mut record = *feed.get(self.taken)?;
        self.taken += 1;
        match self.astray {
            Some(Astray::Misses(count)) => {
                oracle.go_astray(self.lane, self.channel.next());
                self.astray = None;
                self.taken += count - 1;
                record = Record { flags: Flags::LAST, ..Record::new(Kind::VENUE_GAP, InstrumentId::CHANNEL) };
                record.size.set(count as u64);
            }
            Some(Astray::Misreads) if record.kind == Kind::ADD => {
                oracle.go_astray(self.lane, self.channel.next());
                self.astray = None;
                record.size.set(record.size.get() ^ 1);
            }
            _ => {}
        }
        let before = out.len();
        let pushed = self.channel.push(&record, now, &mut |line| out.push(*line));
        let done = pushed.and_then(|()| self.channel.end_message(now, &mut |line| out.push(*line)));
        // It never goes back, whatever the clock does.
        self.last_publish = self.last_publish.max(now);
        let clock = self.is_publishing().then_some(self.last_publish);
        out[before..].iter().for_each(|line| oracle.publish(self.lane, line, clock));
        Some(done.is_ok())
    }

    /// Publishes what the venue has said. False if the sequence is at its end.
    pub(crate) fn publish(&mut self, feed: &[Record], now: u64, oracle: &mut Oracle, out: &mut Vec<Line>) -> bool {
        let clock = self.clock.read(now);
        let mut goes_on = true;
        while let Some(done) = self.step(feed, clock, oracle, out) {
            goes_on = done;
            if !done {
                break;
            }
        }
        self.ring.extend(out.iter().copied());
        let excess = self.ring.len().saturating_sub(RING_LINES);
        self.ring.drain(..excess);
        self.ended |= feed.last().is_some_and(|record| record.kind == Kind::SESSION_END) && self.taken == feed.len();
        goes_on
    }

    /// Something of the other lane came. Replays as far as that has published; true when it publishes from here on.
    pub(crate) fn hear(
        &mut self,
        packet: Option<&Packet>,
        feed: &[Record],
        now: u64,
        oracle: &mut Oracle,
    ) -> Result<bool, CannotJoin> {
        let clock = self.clock.read(now);
        let Some(mut joiner) = self.joiner.take() else { return Ok(false) };
        if let Some(Ok(packet)) = packet.map(Packet::decode) {
            let path = LanePath::new(packet.header.lane, Carrier::Udp);
            let mut sink = joiner.sink(clock);
            if packet.lines.is_empty() {
                let ended = packet.header.ended();
                sink.on_position(Position { path, next: packet.first, publish_time: None, ended });
            } else {
                sink.on_run(Run { path, first: packet.first, lines: packet.lines, publish_time: None });
            }
        }
        let mut lines = Vec::new();
        while joiner.wants_more() {
            // Nothing of what is replayed is published: it has no publish time.
            self.joiner = Some(joiner);
            let stepped = self.step(feed, clock, oracle, &mut lines);
            joiner = self.joiner.take().expect("just put there");
            for line in lines.drain(..) {
                let path = LanePath::new(Lane::new(self.lane as u16), Carrier::Local);
                self.responder.on_lines(line.stamp(), &[line], path, None);
                joiner.on_own(&line, clock);
            }
            if stepped != Some(true) {
                break;
            }
        }
        let outcome = joiner.outcome(clock)?;
        self.served = self.channel.next();
        match outcome {
            Some(first) => assert_eq!(first, self.served),
            None => self.joiner = Some(joiner),
        }
        Ok(outcome.is_some())
    }

    /// The newest lines from `from` on, as its ring has them; the first that it has, where it has no more.
    pub(crate) fn lines_from(&self, from: Stamp) -> (Stamp, Vec<Line>) {
        let oldest = Stamp(self.channel.next().0 - self.ring.len() as u64);
        let first = from.max(oldest);
        (first, self.ring.iter().skip((first.0 - oldest.0) as usize).copied().collect())
    }

    /// The recovery server reads on in the ring.
    pub(crate) fn serve(&mut self) {
        let (first, lines) = self.lines_from(self.served);
        if first > self.served {
            let count = first.0 - self.served.0;
            let mut reader = Logged::new(&mut self.responder, &mut self.server_log);
            reader.on_gap(Gap { first: self.served, count, cause: LossCause::Lapped });
            self.served = first;
        }
        if !lines.is_empty() {
            let path = LanePath::new(Lane::new(self.lane as u16), Carrier::SharedMemory);
            Logged::new(&mut self.responder, &mut self.server_log).on_lines(first, &lines, path, None);
            self.served = first.plus(lines.len() as u64);
        }
    }
}
