//! Stamps on the way of one message in 64, set around the product and not in it.
//!
//! Publisher and subscriber take their source, venue and lanes as types. Each type here wraps one of them, reads the clock
//! for the messages that are stepped, and passes everything on; so what is measured is the code that ships.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use protocol::book::OrderLookup;
use protocol::line::Stamp;
use protocol::record::{InstrumentId, Kind, Record};
use protocol::run::{LanePath, LossCause, Position, Run, RunSink};
use protocol::time::Nanos;
use publisher::counters::Counters;
use publisher::date::SessionDate;
use publisher::feed::{FeedError, FeedSource, Message, Notice};
use publisher::venue::{Rejected, Venue};
use transport::clock::Clock;
use transport::{LaneRx, LaneTx, RingWriter};

use super::log::{SentStep, is_stepped};

/// Where the publisher's stamps come together.
pub struct Steps {
    clock: Clock,
    /// The message that the source gave last, if it is stepped.
    given: Cell<SentStep>,
    done: RefCell<Vec<SentStep>>,
    /// How many of `done` are not visible yet, at its end.
    hidden: Cell<usize>,
}

impl Steps {
    /// Room for `room` steps.
    pub fn new(clock: Clock, room: usize) -> Rc<Steps> {
        Rc::new(Steps {
            clock,
            given: Cell::default(),
            done: RefCell::new(Vec::with_capacity(room)),
            hidden: Cell::new(0),
        })
    }

    /// The steps, in order.
    pub fn take(&self) -> Vec<SentStep> {
        self.done.take()
    }
}

/// A source whose messages are stamped when they were asked for, and when they were there.
pub struct SourceProbe<S> {
    inner: S,
    steps: Rc<Steps>,
    /// The number after the last message's: which one comes is known before it does, but for gaps.
    next: u64,
}

impl<S> SourceProbe<S> {
    /// Around `inner`.
    pub fn new(inner: S, steps: &Rc<Steps>) -> SourceProbe<S> {
        SourceProbe { inner, steps: Rc::clone(steps), next: 1 }
    }
}

impl<S: FeedSource> FeedSource for SourceProbe<S> {
    #[inline]
    fn next(&mut self) -> Result<Option<Message<'_>>, FeedError> {
        let stepped = is_stepped(self.next as u32);
        let asked = if stepped { self.steps.clock.now().0 } else { 0 };
        let message = self.inner.next()?;
        if let Some(message) = &message {
            self.next = message.ordinal + 1;
            if stepped {
                let decoded = self.steps.clock.now().0;
                self.steps.given.set(SentStep { ordinal: message.ordinal, asked, decoded, ..SentStep::default() });
            }
        }
        Ok(message)
    }

    #[inline]
    fn poll_notice(&mut self) -> Option<Notice> {
        self.inner.poll_notice()
    }

    #[inline]
    fn glance(&self, limit: usize, see: &mut impl FnMut(&[u8])) {
        self.inner.glance(limit, see);
    }

    fn warning(&self) -> Option<&FeedError> {
        self.inner.warning()
    }

    fn remarks(&self) -> Vec<String> {
        self.inner.remarks()
    }
}

/// A venue whose messages are stamped before and after they become records.
pub struct VenueProbe<V> {
    inner: V,
    steps: Rc<Steps>,
}

impl<V> VenueProbe<V> {
    /// Around `inner`.
    pub fn new(inner: V, steps: &Rc<Steps>) -> VenueProbe<V> {
        VenueProbe { inner, steps: Rc::clone(steps) }
    }

    /// What it wraps.
    pub fn inner(&self) -> &V {
        &self.inner
    }
}

impl<V: Venue> Venue for VenueProbe<V> {
    #[inline]
    fn normalise(&mut self, message: &Message<'_>, orders: &impl OrderLookup, out: &mut impl FnMut(Record)) {
        if !is_stepped(message.ordinal as u32) {
            return self.inner.normalise(message, orders, out);
        }
        let taken = self.steps.clock.now().0;
        self.inner.normalise(message, orders, out);
        let given = self.steps.given.get();
        let mut done = self.steps.done.borrow_mut();
        if given.ordinal == message.ordinal && done.len() < done.capacity() {
            done.push(SentStep { taken, normalised: self.steps.clock.now().0, ..given });
            self.steps.hidden.set(self.steps.hidden.get() + 1);
        }
    }

    fn notice(&mut self, notice: &Notice, out: &mut impl FnMut(Record)) {
        self.inner.notice(notice, out);
    }

    #[inline]
    fn order_of(&self, bytes: &[u8]) -> Option<(InstrumentId, u64)> {
        self.inner.order_of(bytes)
    }

    #[inline]
    fn time(&self, message: &Message<'_>) -> Option<Nanos> {
        self.inner.time(message)
    }

    fn venue_time(&self, message: &Message<'_>) -> Option<Nanos> {
        self.inner.venue_time(message)
    }

    fn check(&self, bytes: &[u8]) -> Result<(), Rejected> {
        self.inner.check(bytes)
    }

    fn type_of(&self, bytes: &[u8]) -> Option<u8> {
        self.inner.type_of(bytes)
    }

    fn type_name(&self, message_type: u8) -> String {
        self.inner.type_name(message_type)
    }

    fn says_start(&self) -> bool {
        self.inner.says_start()
    }

    fn counters(&self) -> &Counters {
        self.inner.counters()
    }

    fn instrument_count(&self) -> u32 {
        self.inner.instrument_count()
    }

    fn date(&self) -> SessionDate {
        self.inner.date()
    }
}

/// Lanes after whose flush the lines are visible: the ring's own flush came before.
pub struct TxProbe<L> {
    inner: L,
    steps: Rc<Steps>,
}

impl<L> TxProbe<L> {
    /// Around `inner`.
    pub fn new(inner: L, steps: &Rc<Steps>) -> TxProbe<L> {
        TxProbe { inner, steps: Rc::clone(steps) }
    }
}

impl<L: LaneTx> LaneTx for TxProbe<L> {
    #[inline]
    fn flush(&mut self, ring: &RingWriter, now: Nanos) -> usize {
        let sent = self.inner.flush(ring, now);
        let hidden = self.steps.hidden.take();
        if hidden > 0 {
            let visible = self.steps.clock.now().0;
            let mut done = self.steps.done.borrow_mut();
            let from = done.len() - hidden;
            done[from..].iter_mut().for_each(|step| step.visible = visible);
        }
        sent
    }

    fn heartbeat(&mut self, ring: &RingWriter, now: Nanos, ended: bool) {
        self.inner.heartbeat(ring, now, ended);
    }

    fn lines_unsent(&self) -> u64 {
        self.inner.lines_unsent()
    }
}

/// When the lines of a turn were handed up, for the stepped ones among them.
#[derive(Clone, Default)]
pub struct Verified(Rc<RefCell<Vec<(Stamp, u64, Nanos)>>>);

impl Verified {
    /// When the line with this stamp was handed up.
    pub fn of(&self, stamp: Stamp) -> Option<Nanos> {
        let runs = self.0.borrow();
        runs.iter().rev().find(|(first, count, _)| stamp.0.wrapping_sub(first.0) < *count).map(|(_, _, at)| *at)
    }
}

/// A lane whose runs are stamped as they are handed up, if a stepped line is among them.
pub struct RxProbe<R> {
    inner: R,
    clock: Clock,
    verified: Verified,
}

/// Runs of one turn that are remembered.
const RUNS: usize = 64;

impl<R> RxProbe<R> {
    /// Around `inner`.
    pub fn new(inner: R, clock: Clock) -> RxProbe<R> {
        let verified = Verified::default();
        verified.0.borrow_mut().reserve(RUNS);
        RxProbe { inner, clock, verified }
    }

    /// When lines were handed up, for the handler.
    pub fn verified(&self) -> Verified {
        self.verified.clone()
    }

    /// What it wraps.
    pub fn inner(&self) -> &R {
        &self.inner
    }
}

impl<R: LaneRx> LaneRx for RxProbe<R> {
    #[inline]
    fn poll<S: RunSink>(&mut self, now: Nanos, limit: usize, sink: &mut S) -> usize {
        let mut stamping = Stamping { sink, clock: self.clock, verified: &self.verified };
        self.inner.poll(now, limit, &mut stamping)
    }

    fn known_head(&self) -> Option<Stamp> {
        self.inner.known_head()
    }
}

struct Stamping<'a, S> {
    sink: &'a mut S,
    clock: Clock,
    verified: &'a Verified,
}

impl<S: RunSink> RunSink for Stamping<'_, S> {
    #[inline]
    fn on_run(&mut self, run: Run<'_>) {
        let is_first = |record: &Record| record.kind != Kind::CONTINUATION && is_stepped(record.venue_seq.get());
        if run.lines.iter().any(|line| is_first(&line.record)) {
            let mut runs = self.verified.0.borrow_mut();
            // What waited for lines before it may be delivered in a later turn, so the last few are kept.
            if runs.len() == RUNS {
                runs.drain(..RUNS / 2);
            }
            runs.push((run.first, run.lines.len() as u64, self.clock.now()));
        }
        self.sink.on_run(run);
    }

    #[inline]
    fn on_position(&mut self, position: Position) {
        self.sink.on_position(position);
    }

    fn on_loss(&mut self, path: LanePath, first: Stamp, count: u64, cause: LossCause) {
        self.sink.on_loss(path, first, count, cause);
    }
}
