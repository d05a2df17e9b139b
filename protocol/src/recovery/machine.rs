//! The subscriber's half: asks for what is missing, and says what state the channel is in.

use std::collections::VecDeque;

use crate::arbiter::{Arbiter, Delivery};
use crate::line::{Line, Stamp};
use crate::record::{InstrumentId, Record};
use crate::time::Nanos;

use super::assembly::Snapshot;
use super::catch_up::Fate;
use super::reader::Reader;
use super::replies::Replies;
use super::reply::{Answer, Refusal};
use super::request::{Ask, Connection, Request};

/// Settings of a [`Recovery`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecoveryConfig {
    /// Lines of replies that may be under way; a power of two, at most what the server keeps for a connection.
    pub reply_lines: usize,
    /// The most lines of one instrument's snapshot; one that is longer than half of `reply_lines` comes by itself.
    pub snapshot_lines: usize,
    /// An answer that is not complete after this long is asked for again, ns; each time after twice as long.
    pub request_timeout_ns: u64,
    /// Times that one request is sent before it is given up.
    pub attempts: u32,
    /// A request waits up to this long, by chance, so that not everybody who lost a packet asks at once, ns.
    pub jitter_ns: u64,
    /// Requests in a second.
    pub requests_per_s: u64,
    /// Requests at once, after a pause.
    pub burst_requests: u64,
    /// How long lines of a reply may be overtaken by others before they are asked for again, ns.
    pub reply_hedge_ns: u64,
    /// Holes that are no farther apart than this many lines are asked for as one.
    pub merge_lines: u64,
    /// How long after books came into doubt snapshots are asked for, ns: meanwhile many heal by themselves. As long, then
    /// twice as long and so on up to a hundred times as long, lies between one round of requests and the next.
    pub round_delay_ns: u64,
    /// Rounds of requests for snapshots before books are left as they are.
    pub rounds: u32,
}

impl Default for RecoveryConfig {
    /// 8,192 lines, and 131,072 of one snapshot; 5 ms, six attempts; 100 us of jitter; 2,000 requests a second, 16 at once;
    /// 300 us hedge; 8 lines; 1 ms, 24 rounds.
    fn default() -> RecoveryConfig {
        RecoveryConfig {
            reply_lines: 8192,
            snapshot_lines: 1 << 17,
            request_timeout_ns: 5_000_000,
            attempts: 6,
            jitter_ns: 100_000,
            requests_per_s: 2_000,
            burst_requests: 16,
            reply_hedge_ns: 300_000,
            merge_lines: 8,
            round_delay_ns: 1_000_000,
            rounds: 24,
        }
    }
}

/// As whom a subscriber asks: what the control channel gave it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Session {
    /// Its connection.
    pub connection: Connection,
    /// The key that goes with it.
    pub key: u64,
}

/// Where recovery stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RecoveryState {
    /// Nothing is missing, and no book is waited for.
    Live,
    /// Lines are missing, and may still come by themselves, or are about to be asked for.
    Gapped,
    /// Lines were asked for.
    Requesting,
    /// Snapshots were asked for, or are about to be.
    Snapshot,
    /// Snapshots are here, and the stream has not come so far yet.
    CatchUp,
}

impl RecoveryState {
    /// Every one, in order of [`RecoveryState::index`].
    pub const ALL: [RecoveryState; 5] = [
        RecoveryState::Live,
        RecoveryState::Gapped,
        RecoveryState::Requesting,
        RecoveryState::Snapshot,
        RecoveryState::CatchUp,
    ];

    /// A place in a table of counters.
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// What recovery did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecoveryCounts {
    /// Requests sent, repetitions included.
    pub requests: u64,
    /// Of these, for lines.
    pub line_requests: u64,
    /// Of these, for snapshots.
    pub snapshot_requests: u64,
    /// Of these, for parts of replies that were lost.
    pub reply_requests: u64,
    /// Requests that were sent again because no answer came.
    pub timeouts: u64,
    /// Requests given up after their last attempt.
    pub failed: u64,
    /// Requests put off because the rate was used up.
    pub put_off: u64,
    /// Answers that refused what was asked.
    pub refused: u64,
    /// Lines asked for that the server's history no longer held.
    pub not_held: u64,
    /// Instruments whose snapshots are longer than a reply.
    pub too_long: u64,
    /// Lines of replies that came, of use or not.
    pub reply_lines: u64,
    /// Of these, such as had come before, or were too far ahead.
    pub useless_lines: u64,
    /// Times that lines of replies did not come, and were passed over.
    pub skips: u64,
    /// Retransmitted lines read.
    pub retransmitted: u64,
    /// Snapshots read.
    pub snapshots: u64,
    /// Snapshots that were not what they said.
    pub malformed: u64,
    /// Rounds of requests for snapshots begun.
    pub rounds: u64,
    /// Times that books were left in doubt after the last round.
    pub given_up: u64,
    /// Times each state was entered, by [`RecoveryState::index`].
    pub entered: [u64; RecoveryState::ALL.len()],
}

/// Books and what feeds them, as recovery sees them.
pub trait Recovering: Delivery {
    /// How often books came into doubt: a gap was declared, the stream was taken up in the middle, an epoch began, a count
    /// jumped, a digest disagreed.
    fn doubts(&self) -> u64;
    /// The first run of instruments (or the channel itself) from `from` on that want snapshots.
    fn next_unready(&self, from: InstrumentId) -> Option<(InstrumentId, InstrumentId)>;
    /// The highest instrument heard of.
    fn highest(&self) -> InstrumentId;
    /// The lowest stamp at which a snapshot is of any use; `None` if none is.
    fn lowest_use(&self) -> Option<Stamp>;
    /// Snapshots of these instruments have been asked for.
    fn on_snapshots_asked(&mut self, first: InstrumentId, last: InstrumentId);
    /// Those that were asked for among these, and did not come, do not come.
    fn on_snapshots_failed(&mut self, first: InstrumentId, last: InstrumentId);
    /// A snapshot came, whose lines these are.
    fn on_snapshot(&mut self, snapshot: &Snapshot<'_>, records: &[Record]) -> Fate;
    /// Applies snapshots that waited for the stream. Returns how many go on waiting.
    fn settle_snapshots(&mut self) -> usize;
    /// Nothing is waited for any more.
    fn on_caught_up(&mut self);
}

/// A request that is not answered yet.
#[derive(Clone, Copy)]
struct Outstanding {
    number: u64,
    ask: Ask,
    /// When it is sent, or sent again.
    due: Nanos,
    /// Times it was sent.
    sent: u32,
    /// Its time was over while nobody turned this, and began anew: once for each time it is sent.
    excused: bool,
}

/// Rounds of requests for snapshots.
struct Rounds {
    /// The doubts that were there when the present rounds began.
    doubts: u64,
    /// The next instrument to ask for in this round; `None` when there is no round.
    from: Option<u64>,
    /// When the next request may be sent.
    wait_until: Nanos,
    delay_ns: u64,
    round: u32,
    /// Whether instruments may exist that nothing was heard of.
    tail: bool,
}

/// Asks a recovery server for what one channel's [`Arbiter`] and books miss.
///
/// The owner feeds it the lines of replies ([`Recovery::on_replies`]), gives it a turn whenever time has passed or something
/// was delivered ([`Recovery::turn`]), and sends what [`Recovery::poll_request`] returns.
pub struct Recovery {
    config: RecoveryConfig,
    session: Session,
    random: u64,
    replies: Replies,
    reader: Reader,
    outstanding: Vec<Outstanding>,
    number: u64,
    out: VecDeque<Line>,
    /// When the requests sent so far will have been paid for, at the rate allowed.
    paid: Nanos,
    /// When holes are looked for next; `None` while nothing is missing.
    scan_at: Option<Nanos>,
    /// Ranges of lines that are not to be had: first, and the one after the last.
    lost: VecDeque<(Stamp, Stamp)>,
    /// When lines of replies that are missing are asked for next, and how often they were.
    again: Option<(Nanos, u32)>,
    rounds: Rounds,
    state: RecoveryState,
    counts: RecoveryCounts,
}

/// Requests for lines that may be under way at one time.
const LINE_REQUESTS: usize = 8;
/// Ranges that are known not to be had; more are asked for again.
const LOST: usize = 16;

impl Recovery {
    /// Recovery that has nothing to do yet. `seed` decides the jitter. Allocates and touches all memory now.
    pub fn new(config: RecoveryConfig, session: Session, seed: u64) -> Recovery {
        Recovery {
            config,
            session,
            random: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            replies: Replies::new(session.connection, config.reply_lines),
            reader: Reader::new(config.reply_lines / 2, config.snapshot_lines),
            outstanding: Vec::with_capacity(LINE_REQUESTS + 1),
            number: 0,
            out: VecDeque::with_capacity(LINE_REQUESTS + 4),
            paid: Nanos::ZERO,
            scan_at: None,
            lost: VecDeque::with_capacity(LOST),
            again: None,
            rounds: Rounds {
                doubts: 0,
                from: None,
                wait_until: Nanos::ZERO,
                delay_ns: config.round_delay_ns,
                round: 0,
                tail: false,
            },
            state: RecoveryState::Live,
            counts: RecoveryCounts::default(),
        }
    }

    /// Another server, or the same one started anew: what was asked of the old one is asked again.
    pub fn reconnect(&mut self, session: Session) {
        self.session = session;
        self.replies.restart(session.connection);
        self.reader.break_off();
        self.number = 0;
        self.out.clear();
        self.again = None;
        self.lost.clear();
        for outstanding in &mut self.outstanding {
            self.number += 1;
            (outstanding.number, outstanding.sent, outstanding.due) = (self.number, 0, Nanos::ZERO);
        }
    }

    /// Where recovery stands.
    pub fn state(&self) -> RecoveryState {
        self.state
    }

    /// What was done so far.
    pub fn counts(&self) -> RecoveryCounts {
        let read = self.reader.counts;
        RecoveryCounts {
            retransmitted: read.retransmitted,
            snapshots: read.snapshots,
            malformed: read.malformed,
            ..self.counts
        }
    }

    /// A request to send, sealed with its stamp.
    pub fn poll_request(&mut self) -> Option<Line> {
        self.out.pop_front()
    }

    /// Lines of replies came: verified with the stamps (connection, count) from `first` on, in any order.
    pub fn on_replies<T: Recovering>(
        &mut self,
        first: Stamp,
        lines: &[Line],
        now: Nanos,
        arbiter: &mut Arbiter,
        target: &mut T,
    ) {
        self.counts.reply_lines += lines.len() as u64;
        let before = self.replies.next();
        let reader = &mut self.reader;
        self.counts.useless_lines +=
            self.replies.on_run(first, lines, now, |run| reader.read(run, now, arbiter, target));
        if self.replies.next() > before {
            self.again = None;
            // A long answer is on its way for as long as it takes: what is waited for is its next line.
            if let Some((reading, _)) = self.reader.reading()
                && let Some(outstanding) = self.outstanding.iter_mut().find(|waiting| waiting.number == reading)
            {
                outstanding.due = outstanding.due.max(now.plus(self.config.request_timeout_ns));
            }
        }
        self.take_answers(now, target);
    }

    /// Does what is due: asks, asks again, gives up. Cheap when there is nothing to do.
    pub fn turn<T: Recovering>(&mut self, now: Nanos, arbiter: &mut Arbiter, target: &mut T) {
        let waiting = target.settle_snapshots();
        self.ask_for_replies(now, arbiter, target);
        self.give_up_lost(now, arbiter, target);
        self.ask_again(now, arbiter, target);
        self.ask_for_lines(now, arbiter);
        self.ask_for_snapshots(now, waiting, target);
        self.note_state(arbiter, waiting);
    }

    /// When [`Recovery::turn`] must be called, if nothing comes before.
    pub fn next_timeout(&self, arbiter: &Arbiter) -> Option<Nanos> {
        let resend = self.outstanding.iter().map(|outstanding| outstanding.due).min();
        let replies = self.replies.hole_since.map(|since| match self.again {
            Some((at, _)) => at,
            None => since.plus(self.config.reply_hedge_ns),
        });
        let lines = arbiter.hedged_at().map(|at| self.scan_at.unwrap_or(at).max(at));
        let snapshots =
            self.rounds.from.filter(|_| !self.asks_for_snapshots()).map(|_| self.rounds.wait_until.max(self.paid));
        [resend, replies, lines, snapshots].into_iter().flatten().min()
    }

    fn jitter(&mut self) -> u64 {
        // A xorshift step: jitter need not be good, only different from the neighbours'.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % self.config.jitter_ns.max(1)
    }

    fn asks_for_snapshots(&self) -> bool {
        self.outstanding.iter().any(|outstanding| matches!(outstanding.ask, Ask::Snapshots { .. }))
    }

    /// Whether one more request may be sent now.
    fn may_send(&mut self, now: Nanos) -> bool {
        let cost = 1_000_000_000 / self.config.requests_per_s.max(1);
        if self.paid.since(now) > (cost * self.config.burst_requests) as i64 {
            self.counts.put_off += 1;
            return false;
        }
        self.paid = self.paid.max(now).plus(cost);
        true
    }

    fn send(&mut self, number: u64, ask: Ask) {
        self.counts.requests += 1;
        match ask {
            Ask::Lines { .. } => self.counts.line_requests += 1,
            Ask::Snapshots { .. } => self.counts.snapshot_requests += 1,
            Ask::Replies { .. } => self.counts.reply_requests += 1,
        }
        let Session { connection, key } = self.session;
        self.out.push_back(Request { connection, number, key, ask }.to_line());
    }

    /// Asks for a request's answer for the first time.
    fn ask(&mut self, ask: Ask, now: Nanos) {
        self.number += 1;
        let due = now.plus(self.config.request_timeout_ns + self.jitter());
        self.outstanding.push(Outstanding { number: self.number, ask, due, sent: 1, excused: false });
        self.send(self.number, ask);
    }

    /// Lines in the middle of the replies are missing.
    fn ask_for_replies<T: Recovering>(&mut self, now: Nanos, arbiter: &mut Arbiter, target: &mut T) {
        let Some(since) = self.replies.hole_since else { return };
        let (due, asked) = self.again.unwrap_or((since.plus(self.config.reply_hedge_ns), 0));
        if now < due {
            return;
        }
        let Some((first, count)) = self.replies.hole() else { return };
        if asked >= self.config.attempts {
            self.counts.skips += 1;
            self.again = None;
            self.reader.break_off();
            let reader = &mut self.reader;
            self.replies.skip(now, |run| reader.read(run, now, arbiter, target));
            // What was passed over answers nothing any more, and would not be read if it came again.
            for outstanding in &mut self.outstanding {
                self.number += 1;
                (outstanding.number, outstanding.due) = (self.number, now);
            }
            self.take_answers(now, target);
        } else if self.may_send(now) {
            self.number += 1;
            let (_, first) = Connection::of(first);
            self.send(self.number, Ask::Replies { first, count });
            self.again = Some((now.plus(self.config.request_timeout_ns << asked.min(4)), asked + 1));
        }
    }

    /// What is known not to be had is declared lost when its turn comes.
    fn give_up_lost<T: Recovering>(&mut self, now: Nanos, arbiter: &mut Arbiter, target: &mut T) {
        while let Some((_, end)) = self
            .lost
            .iter()
            .copied()
            .find(|(first, end)| arbiter.next().is_some_and(|next| *first <= next && next < *end))
        {
            let before = arbiter.next();
            arbiter.give_up(end, now, target);
            if arbiter.next() == before {
                break;
            }
        }
        if let Some(next) = arbiter.next() {
            self.lost.retain(|(_, end)| *end > next);
        }
    }

    /// Sends again what was not answered in time.
    fn ask_again<T: Recovering>(&mut self, now: Nanos, arbiter: &Arbiter, target: &mut T) {
        let mut at = 0;
        while at < self.outstanding.len() {
            let Outstanding { number, ask, due, sent, excused } = self.outstanding[at];
            if let Ask::Lines { first, count } = ask
                && arbiter.next().is_none_or(|next| next >= first.plus(count))
            {
                self.outstanding.swap_remove(at);
                continue;
            }
            at += 1;
            if now < due {
                continue;
            }
            // Whoever turns this was not running: the answer may wait in a queue that could not be read meanwhile. Not twice:
            // who turns this seldom would else wait for ever.
            let overslept = !excused && now.since(due) > self.config.request_timeout_ns as i64;
            // Its lines stand behind others that are asked for by themselves.
            let is_held_up = self.replies.hole_since.is_some()
                && self.reader.reading().is_some_and(|(reading, _)| reading == number);
            if sent > 0 && (overslept || is_held_up) {
                let outstanding = &mut self.outstanding[at - 1];
                (outstanding.due, outstanding.excused) =
                    (now.plus(self.config.request_timeout_ns), overslept || excused);
                continue;
            }
            if sent >= self.config.attempts {
                self.counts.failed += 1;
                at -= 1;
                self.outstanding.swap_remove(at);
                match ask {
                    Ask::Lines { first, count } => self.lose(first, first.plus(count)),
                    _ => self.end_round(now, target),
                }
                continue;
            }
            if !self.may_send(now) {
                self.outstanding[at - 1].due = now.plus(self.config.request_timeout_ns);
                continue;
            }
            self.counts.timeouts += u64::from(sent > 0);
            match self.reader.reading() {
                // Its beginning has come: only the end is missing.
                Some((reading, left)) if reading == number => {
                    self.number += 1;
                    let (_, first) = Connection::of(self.replies.next());
                    self.send(self.number, Ask::Replies { first, count: left });
                }
                _ => self.send(number, ask),
            }
            let wait = (self.config.request_timeout_ns << sent.min(4)) + self.jitter();
            let outstanding = &mut self.outstanding[at - 1];
            (outstanding.sent, outstanding.due, outstanding.excused) = (sent + 1, now.plus(wait), false);
        }
    }

    fn lose(&mut self, first: Stamp, end: Stamp) {
        if self.lost.len() == LOST {
            self.lost.pop_front();
        }
        self.lost.push_back((first, end));
    }

    /// Asks for lines that have been missing for longer than their hedge time.
    fn ask_for_lines(&mut self, now: Nanos, arbiter: &Arbiter) {
        let Some(hedged_at) = arbiter.hedged_at() else {
            self.scan_at = None;
            return;
        };
        if now < hedged_at {
            return;
        }
        let at = match self.scan_at {
            Some(at) => at,
            None => now.plus(self.jitter()),
        };
        self.scan_at = Some(at);
        if now < at {
            return;
        }
        self.scan_at = Some(now.plus(self.config.jitter_ns.max(20_000)));
        let mut wanted: Option<(Stamp, Stamp)> = None;
        for (first, count) in arbiter.holes(now) {
            let end = first.plus(count);
            match wanted {
                Some((from, to)) if first.0 - to.0 <= self.config.merge_lines => wanted = Some((from, end)),
                Some((from, to)) => {
                    if !self.ask_for_range(from, to, now) {
                        return;
                    }
                    wanted = Some((first, end));
                }
                None => wanted = Some((first, end)),
            }
        }
        if let Some((from, to)) = wanted {
            self.ask_for_range(from, to, now);
        }
    }

    /// Asks for what was not asked for of a range of lines. False if no more can be asked now.
    fn ask_for_range(&mut self, mut from: Stamp, to: Stamp, now: Nanos) -> bool {
        while from < to {
            let asked = self.outstanding.iter().filter_map(|outstanding| match outstanding.ask {
                Ask::Lines { first, count } => Some((first, first.plus(count))),
                _ => None,
            });
            let known = asked.chain(self.lost.iter().copied());
            let (mut end, mut under_way, mut lines) = (to, 0, 0);
            let mut covered = None;
            for (first, after) in known {
                if first <= from && from < after {
                    covered = Some(after);
                }
                if from < first {
                    end = end.min(first);
                }
            }
            if let Some(after) = covered {
                from = after;
                continue;
            }
            for outstanding in &self.outstanding {
                if let Ask::Lines { count, .. } = outstanding.ask {
                    under_way += 1;
                    lines += count + 1;
                }
            }
            // Half of what may be under way is left to snapshots.
            let room = (self.config.reply_lines as u64 / 2).saturating_sub(lines + 1);
            if under_way >= LINE_REQUESTS || room == 0 || !self.may_send(now) {
                return false;
            }
            let count = (end.0 - from.0).min(room).min(self.config.reply_lines as u64 / 4);
            self.ask(Ask::Lines { first: from, count }, now);
            from = from.plus(count);
        }
        true
    }

    fn ask_for_snapshots<T: Recovering>(&mut self, now: Nanos, waiting: usize, target: &mut T) {
        if target.doubts() != self.rounds.doubts {
            self.rounds.doubts = target.doubts();
            (self.rounds.delay_ns, self.rounds.round, self.rounds.tail) = (self.config.round_delay_ns, 0, true);
            if !self.asks_for_snapshots() {
                self.begin_round(now);
            }
        }
        let Some(from) = self.rounds.from else { return };
        if self.asks_for_snapshots() || now < self.rounds.wait_until {
            return;
        }
        let highest = target.highest();
        let run = u32::try_from(from).ok().and_then(|from| target.next_unready(InstrumentId(from)));
        let (first, last) = match run {
            Some((first, last)) if last >= highest && self.rounds.tail => (first, InstrumentId(u32::MAX)),
            Some(run) => run,
            None if self.rounds.tail && from <= u64::from(u32::MAX) => {
                (InstrumentId(from.max(u64::from(highest.0) + 1) as u32), InstrumentId(u32::MAX))
            }
            None => {
                if target.next_unready(InstrumentId::CHANNEL).is_none() && waiting == 0 {
                    self.rounds.from = None;
                    target.on_caught_up();
                } else {
                    self.end_round(now, target);
                }
                return;
            }
        };
        let Some(not_before) = target.lowest_use() else {
            self.end_round(now, target);
            return;
        };
        if self.may_send(now) {
            let max_lines = self.config.snapshot_lines as u64;
            target.on_snapshots_asked(first, last);
            self.ask(Ask::Snapshots { first, last, not_before, max_lines }, now);
        }
    }

    fn begin_round(&mut self, now: Nanos) {
        self.counts.rounds += 1;
        self.rounds.from = Some(0);
        self.rounds.wait_until = now.plus(self.rounds.delay_ns + self.jitter());
    }

    /// This round brought what it brought; the next one follows after a pause, if any does.
    fn end_round<T: Recovering>(&mut self, now: Nanos, target: &mut T) {
        target.on_snapshots_failed(InstrumentId::CHANNEL, InstrumentId(u32::MAX));
        self.rounds.round += 1;
        if self.rounds.round >= self.config.rounds {
            self.counts.given_up += 1;
            self.rounds.from = None;
            target.on_caught_up();
        } else {
            self.rounds.delay_ns = (self.rounds.delay_ns * 2).min(100 * self.config.round_delay_ns);
            self.begin_round(now);
        }
    }

    /// Takes note of answers that have been read to their ends.
    fn take_answers<T: Recovering>(&mut self, now: Nanos, target: &mut T) {
        while let Some(begin) = self.reader.done.pop() {
            let Some(at) = self.outstanding.iter().position(|outstanding| outstanding.number == begin.request) else {
                continue;
            };
            let ask = self.outstanding[at].ask;
            match begin.answer {
                Answer::Refused { why, number } => self.on_refused(at, why, number, now, target),
                Answer::Lines { .. } => {
                    self.outstanding.swap_remove(at);
                }
                Answer::Snapshots { next, .. } => {
                    self.outstanding.swap_remove(at);
                    let Ask::Snapshots { last, .. } = ask else { continue };
                    if next.is_none() && last.0 == u32::MAX {
                        self.rounds.tail = false;
                    }
                    self.rounds.from = Some(next.map_or(u64::from(last.0) + 1, |next| u64::from(next.0)));
                }
            }
        }
    }

    fn on_refused<T: Recovering>(&mut self, at: usize, why: Refusal, number: u64, now: Nanos, target: &mut T) {
        self.counts.refused += 1;
        let Outstanding { ask, sent, .. } = self.outstanding[at];
        let is_early = why == Refusal::Behind || matches!((why, ask), (Refusal::WrongEpoch, Ask::Snapshots { .. }));
        if is_early && sent < self.config.attempts {
            // Not yet: the same under another number, for this one has been answered.
            self.number += 1;
            let due = now.plus((self.config.request_timeout_ns >> 3) << sent.min(6));
            self.outstanding[at] = Outstanding { number: self.number, ask, due, sent, excused: false };
            return;
        }
        self.outstanding.swap_remove(at);
        match ask {
            Ask::Lines { first, count } => {
                let end = first.plus(count);
                let oldest = Stamp(number).max(first);
                // All that is older is lost with it, asked for or not: one gap, and not one for each request.
                let lost = if why == Refusal::NotHeld && oldest > first { oldest } else { end };
                self.counts.not_held += lost.min(end).0 - first.0;
                self.lose(first, lost);
            }
            Ask::Snapshots { .. } if why == Refusal::TooLong => {
                self.counts.too_long += 1;
                self.rounds.from = Some(number.saturating_add(1));
            }
            _ => self.end_round(now, target),
        }
    }

    fn note_state(&mut self, arbiter: &Arbiter, waiting: usize) {
        let asks_for_lines = self.outstanding.iter().any(|outstanding| matches!(outstanding.ask, Ask::Lines { .. }));
        let state = if asks_for_lines {
            RecoveryState::Requesting
        } else if arbiter.hedged_at().is_some() {
            RecoveryState::Gapped
        } else if waiting > 0 {
            RecoveryState::CatchUp
        } else if self.rounds.from.is_some() {
            RecoveryState::Snapshot
        } else {
            RecoveryState::Live
        };
        if state != self.state {
            self.state = state;
            self.counts.entered[state.index()] += 1;
        }
    }
}

#[cfg(test)]
mod tests;
