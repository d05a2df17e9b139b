//! A subscriber: the product's arbiter, engine and recovery, and a handler that holds everything against the oracle.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use bookcast_tests::naive::NaiveState;
use protocol::arbiter::{Arbiter, ArbiterConfig};
use protocol::book::{BookState, BookView, BooksConfig, EventEnd, Start, StateChange};
use protocol::line::{Epoch, SequenceNumber, Stamp};
use protocol::log::{Logged, Recorder};
use protocol::pair::Split;
use protocol::record::InstrumentId;
use protocol::recovery::{CatchUpConfig, Recovery, RecoveryConfig, Session};
use protocol::run::{Carrier, LanePath, Position, Run, RunSink};
use protocol::time::Nanos;
use subscriber::{Context, Engine, EngineConfig, Gap, Handler, Selection, Update};
use transport::LaneRx;

use crate::history::Notes;
use crate::network::Packet;
use crate::oracle::{Oracle, before};
use crate::rdma::RemoteRing;

/// Books for the few instruments of a run.
pub(crate) const BOOKS: BooksConfig = BooksConfig { instruments: 16, orders: 1024, levels: 256 };
/// Lines of replies under way, on both sides.
pub(crate) const REPLY_LINES: usize = 1024;

/// What a subscriber is told, checked as it is told.
pub(crate) struct Check {
    oracle: Rc<RefCell<Oracle>>,
    name: String,
    /// The line that must come next.
    next: Option<Stamp>,
    /// The newest changes of state, for messages.
    changes: VecDeque<(Option<Stamp>, StateChange)>,
    pub(crate) delivered: u64,
    pub(crate) lost: u64,
    pub(crate) gaps: u64,
    pub(crate) compared: u64,
    /// After a split: the branch of the lane that was kept.
    pub(crate) kept: Option<usize>,
    pub(crate) splits: u64,
    pub(crate) ended: bool,
    /// Publish times told in full.
    pub(crate) dated: u64,
}

impl Check {
    /// The last line that was told or named.
    fn at(&self) -> Option<Stamp> {
        self.next.map(before)
    }

    /// Which of two versions this subscriber's books must be of at this line. `None`: it has come to where the publishers part,
    /// and cannot know it yet.
    fn branch(&self, at: Stamp) -> Option<usize> {
        let fork = self.oracle.borrow().fork(at.epoch());
        match fork {
            Some(fork) if at.sequence().0 >= fork => self.kept,
            _ => Some(0),
        }
    }

    /// A book that can be read is the publisher's at this very line.
    fn compare(&mut self, view: &BookView<'_>, is_suspect_known: bool) {
        let Some(at) = self.at() else { return };
        let Some(branch) = self.branch(at) else { return };
        let instrument = view.instrument().0;
        let oracle = self.oracle.borrow();
        let truth = oracle.truth(instrument, at, branch);
        let Some((digests, state)) = truth else {
            assert_eq!(view.digests(), (0, 0), "{}: instrument {instrument} at {at} was not heard of", self.name);
            return;
        };
        let (orders, levels) = view.digests();
        assert_eq!((orders, levels, view.resting_orders()), digests, "{}: instrument {instrument} at {at}", self.name);
        let same = match view.state() {
            // Where a Status may have been missed, a crossed book may be Suspect and not know it.
            BookState::Live => state == NaiveState::Live || !is_suspect_known,
            BookState::Suspect => state == NaiveState::Suspect,
            _ => true,
        };
        let changes =
            || self.changes.iter().filter(|(_, change)| change.instrument.0 == instrument).collect::<Vec<_>>();
        assert!(
            same,
            "{}: instrument {instrument} is {:?}, in truth {state:?}, at {at}: {:?}",
            self.name,
            view.state(),
            changes()
        );
        self.compared += 1;
    }

    fn compare_readable(&mut self, ctx: &Context<'_>, instrument: InstrumentId) {
        if let Ok(view) = ctx.book(instrument) {
            self.compare(&view, ctx.suspect_is_known(instrument));
        }
    }
}

impl Handler for Check {
    fn on_record(&mut self, _: &Context<'_>, update: &Update<'_>) {
        let expected = *self.next.get_or_insert(update.stamp);
        assert_eq!(update.stamp, expected, "{}: the line that must come next", self.name);
        let oracle = self.oracle.borrow();
        assert!(oracle.is_true(update.stamp, update.record, None), "{}: {expected} never was", self.name);
        if let Some(time) = update.ts_publish
            && update.path.carrier != Carrier::Recovery
        {
            let times = || oracle.times_of(update.stamp);
            assert!(
                oracle.is_time_of(update.stamp, time),
                "{}: {expected} by {} was not published at {time:?}, but at {:?}",
                self.name,
                update.path,
                times()
            );
            self.dated += 1;
        }
        drop(oracle);
        self.next = Some(expected.plus(1));
        self.delivered += 1;
    }

    fn on_event_end(&mut self, ctx: &Context<'_>, end: &EventEnd) {
        self.compare_readable(ctx, end.instrument);
    }

    fn on_state_change(&mut self, ctx: &Context<'_>, change: &StateChange) {
        if self.changes.len() == 32 {
            self.changes.pop_front();
        }
        self.changes.push_back((self.at(), *change));
        // Several changes may be told after one line; what the book is now is what counts.
        self.compare_readable(ctx, change.instrument);
    }

    fn on_gap(&mut self, _: &Context<'_>, gap: &Gap) {
        let expected = *self.next.get_or_insert(gap.first);
        assert_eq!(gap.first, expected, "{}: the gap begins where the stream stopped", self.name);
        assert!(gap.count > 0, "{}: an empty gap at {expected}", self.name);
        self.next = Some(expected.plus(gap.count));
        (self.gaps, self.lost) = (self.gaps + 1, self.lost + gap.count);
    }

    fn on_split(&mut self, _: &Context<'_>, split: &Split) {
        let oracle = self.oracle.borrow();
        assert!(oracle.fork(split.at.epoch()).is_some(), "{}: {split:?}, and both say the same", self.name);
        self.kept = Some(oracle.branch_of_lane[usize::from(split.kept.0.get())]);
        self.splits += 1;
    }

    fn on_end(&mut self, _: &Context<'_>) {
        self.ended = true;
    }

    fn on_epoch(&mut self, _: &Context<'_>, _: Epoch, to: Epoch) {
        (self.kept, self.ended) = (None, false);
        self.next = Some(Stamp::new(to, SequenceNumber::FIRST));
    }
}

/// One incarnation of a subscriber.
pub(crate) struct Subscriber {
    pub(crate) arbiter: Arbiter,
    pub(crate) engine: Engine,
    pub(crate) recovery: Recovery,
    pub(crate) check: Check,
    log: Recorder<Notes>,
    /// Where lane 0 writes by RDMA.
    pub(crate) ring: Option<RemoteRing>,
    /// What has come and was not taken in; true for replies.
    pub(crate) inbox: VecDeque<(bool, Packet)>,
    pub(crate) paused_until: u64,
    pub(crate) refused: u64,
    turns: u64,
}

/// Packets that fit into a receive queue.
const QUEUE: usize = 512;

impl Subscriber {
    pub(crate) fn new(
        oracle: Rc<RefCell<Oracle>>,
        paths: usize,
        session: Session,
        seed: u64,
        name: String,
        log: Recorder<Notes>,
    ) -> Subscriber {
        let arbiter = ArbiterConfig {
            paths,
            hedge_ns: 200_000,
            recover_ns: 40_000_000,
            early_lines: 1024,
            lane_silent_ns: 50_000_000,
        };
        let recovery =
            RecoveryConfig { reply_lines: REPLY_LINES, request_timeout_ns: 1_000_000, ..RecoveryConfig::default() };
        let engine = EngineConfig { selection: Selection::all(), books: BOOKS, start: Start::Strict };
        let catch_up = CatchUpConfig { recent_lines: 2048, held_lines: 2048 };
        Subscriber {
            arbiter: Arbiter::new(arbiter),
            engine: Engine::new(engine).recovering(catch_up),
            recovery: Recovery::new(recovery, session, seed),
            check: Check {
                oracle,
                name,
                next: None,
                changes: VecDeque::new(),
                delivered: 0,
                lost: 0,
                gaps: 0,
                compared: 0,
                kept: None,
                splits: 0,
                ended: false,
                dated: 0,
            },
            ring: None,
            log,
            inbox: VecDeque::new(),
            paused_until: 0,
            refused: 0,
            turns: 0,
        }
    }

    /// A packet came. False if the queue is full.
    pub(crate) fn receive(&mut self, is_reply: bool, packet: Packet) -> bool {
        if self.inbox.len() >= QUEUE {
            return false;
        }
        self.inbox.push_back((is_reply, packet));
        true
    }

    /// Takes in what has come, and does what is due.
    pub(crate) fn turn(&mut self, now: Nanos) {
        let gaps = self.check.gaps;
        while let Some((is_reply, packet)) = self.inbox.pop_front() {
            let Ok(packet) = packet.decode() else {
                self.refused += 1;
                continue;
            };
            let mut turn = self.engine.turn(now, &mut self.check);
            let mut turn = Logged::new(&mut turn, &mut self.log);
            let time = Some(packet.header.time());
            let path = LanePath::new(packet.header.lane, Carrier::Udp);
            if is_reply {
                if self.arbiter.is_withdrawn(packet.header.lane) {
                    continue;
                }
                self.recovery.on_replies(packet.first, packet.lines, now, &mut self.arbiter, &mut turn);
            } else if packet.lines.is_empty() {
                let ended = packet.header.ended();
                let position = Position { path, next: packet.first, publish_time: time, ended };
                self.arbiter.sink(now, &mut turn).on_position(position);
            } else {
                let run = Run { path, first: packet.first, lines: packet.lines, publish_time: time };
                self.arbiter.sink(now, &mut turn).on_run(run);
            }
        }
        let mut turn = self.engine.turn(now, &mut self.check);
        let mut turn = Logged::new(&mut turn, &mut self.log);
        if let Some(ring) = &mut self.ring {
            while ring.reader.poll(now, 64, &mut self.arbiter.sink(now, &mut turn)) > 0 {}
        }
        self.arbiter.on_timeout(now, &mut turn);
        self.recovery.turn(now, &mut self.arbiter, &mut turn);
        // Books of which nothing has come must be right as well, above all after a loss.
        self.turns += 1;
        if self.check.gaps != gaps || self.turns.is_multiple_of(16) {
            self.compare_all(now);
        }
    }

    /// Whether lines are known to stand in its ring that it has not read.
    pub(crate) fn waits_for_words(&self) -> bool {
        self.ring.as_ref().is_some_and(|ring| ring.reader.head() > ring.reader.cursor())
    }

    /// When the next turn is due, if nothing comes before.
    pub(crate) fn next_timeout(&self) -> Option<Nanos> {
        [self.arbiter.next_timeout(), self.recovery.next_timeout(&self.arbiter)].into_iter().flatten().min()
    }

    /// Compares whatever can be read.
    pub(crate) fn compare_all(&mut self, now: Nanos) {
        let ctx = self.engine.context(now);
        for instrument in 1..=bookcast_tests::random::INSTRUMENTS {
            self.check.compare_readable(&ctx, InstrumentId(instrument));
        }
    }

    /// What the book of an instrument says of itself.
    pub(crate) fn state(&self, instrument: u32) -> Option<BookState> {
        let ctx = self.engine.context(Nanos::ZERO);
        ctx.book_even_if_stale(InstrumentId(instrument)).ok().map(|view| view.state())
    }
}
