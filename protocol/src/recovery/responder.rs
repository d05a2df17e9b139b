//! The recovery server without its thread: lines and requests in, replies out.
//!
//! It is a [`Delivery`]: an arbiter hands it the channel's lines in order, and tells it what it lost itself. Everything it
//! keeps for a subscriber is bounded: requests that wait, lines of replies that can be sent again, lines a second.

use std::collections::VecDeque;

use crate::arbiter::{Delivery, Gap};
use crate::book::{BooksConfig, Start};
use crate::line::{Epoch, Line, SequenceNumber, Stamp};
use crate::log::{OwnDigest, OwnDigests};
use crate::pair::Split;
use crate::record::{InstrumentId, Lane, Record};
use crate::run::LanePath;
use crate::time::Nanos;

use super::history::History;
use super::reply::{Answer, Refusal, ReplyBegin};
use super::request::{Ask, Connection, Request};
use super::source::SnapshotSource;

/// Settings of a [`Responder`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResponderConfig {
    /// Lines of the stream that are kept; a power of two.
    pub history_lines: usize,
    /// Lines of its replies that are kept for each connection; a power of two. No reply is longer than half of it, but for the
    /// snapshot of an instrument that is longer by itself: what is kept grows then, up to `most_reply_lines`, and stays so.
    pub reply_lines: usize,
    /// A power of two; no reply is longer than this, less two.
    pub most_reply_lines: usize,
    /// Requests of one connection that may wait.
    pub waiting: usize,
    /// Lines that a connection gets in a second.
    pub lines_per_s: u64,
    /// Lines that it may get at once, after a pause.
    pub burst_lines: u64,
    /// Sizes of the books.
    pub books: BooksConfig,
    /// What books are taken for when the feed starts in mid-day. Must be what the publisher uses.
    pub start: Start,
}

impl Default for ResponderConfig {
    /// 2^20 lines of history (64 MiB), 8,192 reply lines (512 KiB a connection) and at most 2^18 (16 MiB), 16 requests
    /// waiting, a million lines a second, 8,192 at once.
    fn default() -> ResponderConfig {
        ResponderConfig {
            history_lines: 1 << 20,
            reply_lines: 8192,
            most_reply_lines: 1 << 18,
            waiting: 16,
            lines_per_s: 1_000_000,
            burst_lines: 8192,
            books: BooksConfig::default(),
            start: Start::Strict,
        }
    }
}

/// What a [`Responder`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ResponderCounts {
    /// Lines of the stream taken in.
    pub lines: u64,
    /// Lines of the stream that the server lost itself.
    pub lost: u64,
    /// Requests taken.
    pub requests: u64,
    /// Requests of nobody, or with another key.
    pub strangers: u64,
    /// Lines that are no request that this version knows.
    pub unknown: u64,
    /// Requests that came again, answered or not.
    pub repeated: u64,
    /// Requests so old that nothing is known of them any more.
    pub outdated: u64,
    /// Requests dropped because too many of their connection waited.
    pub overruns: u64,
    /// Retransmitted lines.
    pub retransmitted: u64,
    /// Snapshots written.
    pub snapshots: u64,
    /// Lines in them.
    pub snapshot_lines: u64,
    /// Requests refused.
    pub refused: u64,
    /// Lines of replies that were sent, repetitions included.
    pub sent: u64,
    /// Of these, those sent again.
    pub sent_again: u64,
    /// Lines of replies that were asked for again and are not held any more.
    pub not_held: u64,
}

/// Lines of a reply, on their way to one connection.
#[derive(Clone, Copy, Debug)]
pub struct ReplyRun<'a> {
    /// Whose.
    pub connection: Connection,
    /// The stamp of the first line: (connection, reply count). The others follow one by one.
    pub first: Stamp,
    /// The lines. Never empty.
    pub lines: &'a [Line],
}

/// Requests whose answers are remembered, per connection.
const REMEMBERED: usize = 64;
/// Pieces of replies to send again that may wait, per connection.
const AGAIN: usize = 16;

struct Peer {
    connection: Connection,
    key: u64,
    waiting: VecDeque<Request>,
    /// Number, first line and lines of the newest answers.
    answered: VecDeque<(u64, Stamp, u64)>,
    newest: u64,
    replies: History,
    /// The first line that has not been sent yet.
    unsent: Stamp,
    /// What is to be sent again: first line and how many.
    again: VecDeque<(Stamp, u64)>,
    /// When what was sent so far will have been paid for, at the rate allowed.
    paid: Nanos,
}

/// Answers requests from a history and from books of its own.
pub struct Responder {
    config: ResponderConfig,
    source: SnapshotSource,
    history: History,
    peers: Vec<Peer>,
    /// Whose turn it is.
    turn: usize,
    /// A reply that is being written.
    scratch: Vec<Record>,
    counts: ResponderCounts,
}

impl Responder {
    /// A responder that has seen nothing. Allocates and touches all memory now, but for what connections need.
    pub fn new(config: ResponderConfig) -> Responder {
        Responder {
            config,
            source: SnapshotSource::new(config.books, config.start),
            history: History::new(config.history_lines),
            peers: Vec::new(),
            turn: 0,
            scratch: Vec::with_capacity(config.reply_lines / 2),
            counts: ResponderCounts::default(),
        }
    }

    /// A subscriber may ask from now on, with this key. Who had the connection before is forgotten. Allocates.
    pub fn admit(&mut self, connection: Connection, key: u64) {
        self.dismiss(connection);
        let first = connection.stamp(1);
        let mut replies = History::new(self.config.reply_lines);
        replies.restart(first);
        self.peers.push(Peer {
            connection,
            key,
            waiting: VecDeque::with_capacity(self.config.waiting),
            answered: VecDeque::with_capacity(REMEMBERED),
            newest: 0,
            replies,
            unsent: first,
            again: VecDeque::with_capacity(AGAIN),
            paid: Nanos::ZERO,
        });
    }

    /// A subscriber asks no more.
    pub fn dismiss(&mut self, connection: Connection) {
        self.peers.retain(|peer| peer.connection != connection);
    }

    /// How many subscribers may ask.
    pub fn connections(&self) -> usize {
        self.peers.len()
    }

    /// What was done so far.
    pub fn counts(&self) -> ResponderCounts {
        self.counts
    }

    /// The books that snapshots are taken of.
    pub fn source(&self) -> &SnapshotSource {
        &self.source
    }

    /// The lines that retransmissions are taken from.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// A line came as a request. It is answered by [`Responder::poll_reply`], when its turn comes.
    pub fn on_request(&mut self, line: &Line) {
        let Some(request) = Request::from_line(line) else {
            self.counts.unknown += 1;
            return;
        };
        let known = self.peers.iter_mut().find(|p| p.connection == request.connection && p.key == request.key);
        let Some(peer) = known else {
            self.counts.strangers += 1;
            return;
        };
        self.counts.requests += 1;
        if let Ask::Replies { first, count } = request.ask {
            self.counts.not_held += peer.send_again(request.connection.stamp(first), count);
            return;
        }
        if let Some((_, first, lines)) = peer.answered.iter().find(|(number, ..)| *number == request.number).copied() {
            self.counts.repeated += 1;
            self.counts.not_held += peer.send_again(first, lines);
        } else if peer.waiting.iter().any(|waiting| waiting.number == request.number) {
            self.counts.repeated += 1;
        } else if request.number + REMEMBERED as u64 <= peer.newest {
            self.counts.outdated += 1;
        } else if peer.waiting.len() >= self.config.waiting {
            self.counts.overruns += 1;
        } else {
            peer.newest = peer.newest.max(request.number);
            peer.waiting.push_back(request);
        }
    }

    /// The next lines to send, at most `max_lines` of them, to whosever turn it is and within the rates allowed. Call until
    /// it returns `None`.
    pub fn poll_reply(&mut self, now: Nanos, max_lines: usize) -> Option<ReplyRun<'_>> {
        self.poll_reply_within(now, |_| max_lines)
    }

    /// The same where the way to each has room of its own: whoever has none now, 0, is passed over and keeps its turn.
    pub fn poll_reply_within(&mut self, now: Nanos, room: impl Fn(Connection) -> usize) -> Option<ReplyRun<'_>> {
        let (turn, count) = (self.turn, self.peers.len());
        let room_of = |responder: &Responder, at: usize| {
            let peer = &responder.peers[at];
            if peer.is_idle() { 0 } else { room(peer.connection) }
        };
        let (at, max_lines) = (0..count).map(|i| (turn + i) % count).find_map(|at| {
            let room = room_of(self, at);
            (room > 0 && self.prepare(at, now)).then_some((at, room))
        })?;
        self.turn = at + 1;
        let (lines_per_s, counts) = (self.config.lines_per_s.max(1), &mut self.counts);
        let peer = &mut self.peers[at];
        let (first, length, again) = match peer.again.front_mut() {
            Some((first, left)) => (*first, peer.replies.run(*first, (*left).min(max_lines as u64)).len() as u64, true),
            None => (peer.unsent, peer.replies.run(peer.unsent, max_lines as u64).len() as u64, false),
        };
        if again {
            let (from, left) = peer.again.front_mut().expect("just seen");
            (*from, *left) = (from.plus(length), *left - length);
            if *left == 0 {
                peer.again.pop_front();
            }
            counts.sent_again += length;
        } else {
            peer.unsent = first.plus(length);
        }
        counts.sent += length;
        peer.paid = peer.paid.max(now).plus(length * 1_000_000_000 / lines_per_s);
        Some(ReplyRun { connection: peer.connection, first, lines: peer.replies.run(first, length) })
    }

    /// When [`Responder::poll_reply`] has something again for somebody whose rate is used up; `None` if nobody waits.
    pub fn next_timeout(&self) -> Option<Nanos> {
        self.peers
            .iter()
            .filter(|peer| !peer.is_idle())
            .map(|peer| Nanos(peer.paid.0.saturating_sub(self.burst_ns())))
            .min()
    }

    fn burst_ns(&self) -> u64 {
        self.config.burst_lines * 1_000_000_000 / self.config.lines_per_s.max(1)
    }

    /// Whether this peer may be sent something now; answers its next request if nothing else is left.
    fn prepare(&mut self, at: usize, now: Nanos) -> bool {
        let burst_ns = self.burst_ns();
        let peer = &mut self.peers[at];
        if peer.paid.since(now) > burst_ns as i64 {
            return false;
        }
        // What is not held any more was pushed out by later replies.
        while let Some((first, left)) = peer.again.front().copied()
            && !peer.replies.holds(first, 1)
        {
            self.counts.not_held += left;
            peer.again.pop_front();
        }
        if peer.again.is_empty()
            && !peer.has_unsent()
            && let Some(request) = peer.waiting.pop_front()
        {
            self.answer(at, &request);
        }
        let peer = &self.peers[at];
        !peer.again.is_empty() || peer.has_unsent()
    }

    fn answer(&mut self, at: usize, request: &Request) {
        let limit = self.config.reply_lines as u64 / 2 - 1;
        self.scratch.clear();
        let answer = match request.ask {
            Ask::Lines { first, count } => self.lines(first, count.min(limit)),
            Ask::Snapshots { first, last, not_before, max_lines } => {
                let most = (self.config.most_reply_lines as u64).saturating_sub(2);
                self.snapshots(first, last, not_before, [limit.min(max_lines), most.min(max_lines)])
            }
            Ask::Replies { .. } => unreachable!("answered at once"),
        };
        self.counts.refused += u64::from(matches!(answer, Answer::Refused { .. }));
        let begin =
            ReplyBegin { request: request.number, head: self.source.next(), lines: self.scratch.len() as u64, answer };
        let peer = &mut self.peers[at];
        // All of a reply is held when it is sent.
        peer.replies.grow((self.scratch.len() + 2).next_power_of_two());
        let first = peer.replies.next();
        for record in std::iter::once(&begin.to_record()).chain(&self.scratch) {
            let stamp = peer.replies.next();
            peer.replies.push(stamp, &[Line::seal(*record, stamp)]);
        }
        if peer.answered.len() == REMEMBERED {
            peer.answered.pop_front();
        }
        peer.answered.push_back((request.number, first, begin.lines + 1));
    }

    fn refuse_epoch(&self, asked: Epoch) -> Option<Answer> {
        let head = self.source.next();
        let why = if head == Stamp(0) || asked > head.epoch() { Refusal::Behind } else { Refusal::WrongEpoch };
        (head == Stamp(0) || asked != head.epoch()).then_some(Answer::Refused { why, number: head.0 })
    }

    /// The oldest line that can still be asked for: while requests are under way, the oldest held is pushed out, and whoever
    /// asked for it would run after the history line by line.
    fn oldest_for_a_while(&self) -> Stamp {
        let is_full = self.history.len() == self.history.capacity();
        self.history.first().plus(if is_full { self.history.len() / 8 } else { 0 })
    }

    fn lines(&mut self, first: Stamp, count: u64) -> Answer {
        if let Some(refused) = self.refuse_epoch(first.epoch()) {
            return refused;
        }
        if first >= self.source.next() || count == 0 {
            return Answer::Refused { why: Refusal::Behind, number: self.source.next().0 };
        }
        if !self.history.holds(first, 1) {
            return Answer::Refused { why: Refusal::NotHeld, number: self.oldest_for_a_while().0 };
        }
        self.scratch.extend(self.history.range(first, first.plus(count)).map(|(_, line)| line.record));
        self.counts.retransmitted += self.scratch.len() as u64;
        Answer::Lines { first }
    }

    /// Those that fit into `together` lines; the first alone may have `alone`.
    fn snapshots(
        &mut self,
        first: InstrumentId,
        last: InstrumentId,
        not_before: Stamp,
        [together, alone]: [u64; 2],
    ) -> Answer {
        if let Some(refused) = self.refuse_epoch(not_before.epoch()) {
            return refused;
        }
        if not_before >= self.source.next() {
            return Answer::Refused { why: Refusal::Behind, number: self.source.next().0 };
        }
        let mut next = None;
        let last = last.min(self.source.books().highest());
        for instrument in (first.0..=last.0).map(InstrumentId) {
            let Ok(lines) = self.source.lines_of(instrument) else { continue };
            let is_first = self.scratch.is_empty();
            if self.scratch.len() as u64 + lines > if is_first { alone } else { together } {
                if is_first {
                    return Answer::Refused { why: Refusal::TooLong, number: u64::from(instrument.0) };
                }
                next = Some(instrument);
                break;
            }
            let scratch = &mut self.scratch;
            self.source.write(instrument, &mut |record| scratch.push(record)).expect("it has so many lines");
            self.counts.snapshots += 1;
        }
        self.counts.snapshot_lines += self.scratch.len() as u64;
        Answer::Snapshots { first, next }
    }
}

impl Peer {
    /// Whether nothing is to be sent to it.
    fn is_idle(&self) -> bool {
        self.again.is_empty() && !self.has_unsent() && self.waiting.is_empty()
    }

    fn has_unsent(&self) -> bool {
        self.unsent < self.replies.next()
    }

    /// Lines of replies are to be sent again, as far as they were sent and are held. Returns how many are not to be had.
    fn send_again(&mut self, first: Stamp, count: u64) -> u64 {
        // Whoever asks may name any number.
        let count = count.min(self.replies.capacity());
        let end = Stamp(first.0.saturating_add(count).min(self.unsent.0));
        let from = first.max(self.replies.first());
        if from >= end || self.again.len() >= AGAIN {
            return count;
        }
        if !self.again.contains(&(from, end.0 - from.0)) {
            self.again.push_back((from, end.0 - from.0));
        }
        from.0 - first.0
    }
}

impl Delivery for Responder {
    fn on_lines(&mut self, first: Stamp, lines: &[Line], _: LanePath, _: Option<Nanos>) {
        self.counts.lines += lines.len() as u64;
        self.history.push(first, lines);
        for (i, line) in lines.iter().enumerate() {
            self.source.apply(first.plus(i as u64), &line.record);
        }
    }

    fn on_gap(&mut self, gap: Gap) {
        self.counts.lost += gap.count;
        self.source.on_gap(gap.first.plus(gap.count));
    }

    fn on_joined(&mut self, at: Stamp) {
        if self.source.next() == at {
            // What was replayed before the ring began goes on there.
            return;
        }
        self.history.restart(at);
        self.source.on_joined(at);
    }

    fn on_epoch(&mut self, _: Epoch, to: Epoch) {
        self.history.restart(Stamp::new(to, SequenceNumber::FIRST));
        self.source.on_epoch(to);
    }

    fn on_publish_time(&mut self, _: Lane, _: Nanos) {}
    fn on_path_silent(&mut self, _: LanePath, _: Nanos) {}
    fn on_end(&mut self, _: Stamp) {}
    fn on_split(&mut self, _: Split) {}
}

impl OwnDigests for Responder {
    fn own_digest(&self, instrument: InstrumentId) -> OwnDigest {
        OwnDigest::of_books(self.source.books(), instrument)
    }
}

#[cfg(test)]
mod tests;
