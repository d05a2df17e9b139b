//! A toy strategy: it leans to the side on which three times as much rests as on the other.
//!
//! It stands in a file of its own because three programs compile it: `strategy_skeleton` (live), `backtest_skeleton` in
//! feeds-replay (on a capture) and a test there. A strategy of yours would be a library crate, and these its users; what
//! differs between them is the [`Desk`], which takes the decisions: it sends orders, simulates fills, or writes them down.

use std::fmt;

use protocol::line::Stamp;
use protocol::price::Decimal;
use protocol::record::Kind;
use protocol::time::Nanos;
use subscriber::{Bbo, BookState, Context, EventEnd, Handler, InstrumentId, StateChange, Update};

/// So many times what rests on the other side makes a lean.
pub(crate) const RATIO: u64 = 3;

/// Which way an instrument leans.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lean {
    /// The bid outweighs the ask.
    Buy,
    /// The ask outweighs the bid.
    Sell,
}

impl Lean {
    /// What best bid and offer say; `None` when neither side outweighs the other, or one is empty.
    pub(crate) fn of(bbo: &Bbo) -> Option<Lean> {
        let (bid, ask) = (bbo.bid?.size, bbo.ask?.size);
        if bid >= ask.saturating_mul(RATIO) {
            Some(Lean::Buy)
        } else if ask >= bid.saturating_mul(RATIO) {
            Some(Lean::Sell)
        } else {
            None
        }
    }
}

/// A lean that is new, or has flipped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Decision {
    /// Of which instrument.
    pub(crate) instrument: InstrumentId,
    /// Which way.
    pub(crate) lean: Lean,
    /// The best prices that it was decided on.
    pub(crate) bbo: Bbo,
    /// The line that ended the event.
    pub(crate) stamp: Stamp,
}

impl Decision {
    /// As text for people, with symbol and prices.
    pub(crate) fn show(&self, ctx: &Context<'_>) -> impl fmt::Display + use<> {
        let exponent = ctx.definition(self.instrument).map_or(-9, |definition| definition.price_exponent());
        let price = |value| Decimal { value, exponent };
        let (bid, ask) = (self.bbo.bid.map_or(0, |level| level.size), self.bbo.ask.map_or(0, |level| level.size));
        format!(
            "{:<8} {:<4} {bid} @ {} | {ask} @ {}  ({})",
            ctx.symbol(self.instrument),
            format!("{:?}", self.lean).to_lowercase(),
            price(self.bbo.bid_price()),
            price(self.bbo.ask_price()),
            self.stamp
        )
    }
}

/// Takes decisions.
pub(crate) trait Desk {
    /// A decision was made just now. `handed_over`: the publisher's clock when it sent the line that led to it, where
    /// that is known.
    fn on_decision(&mut self, ctx: &Context<'_>, decision: &Decision, handed_over: Option<Nanos>);
}

/// The strategy. Allocates nothing after it was made.
pub(crate) struct Imbalance<D> {
    /// Takes what is decided.
    pub(crate) desk: D,
    /// By instrument id. What lies beyond the table is not followed.
    leans: Vec<Option<Lean>>,
    /// The line last told, and the publisher's time of its record.
    newest: Option<(Stamp, Option<Nanos>)>,
    decisions: u64,
    not_followed: u64,
}

impl<D: Desk> Imbalance<D> {
    /// Follows instruments up to number `instruments`; publishers number them densely from 1.
    pub(crate) fn new(desk: D, instruments: usize) -> Imbalance<D> {
        Imbalance { desk, leans: vec![None; instruments + 1], newest: None, decisions: 0, not_followed: 0 }
    }

    /// Decisions made so far.
    pub(crate) fn decisions(&self) -> u64 {
        self.decisions
    }

    /// Events of instruments beyond the table.
    pub(crate) fn not_followed(&self) -> u64 {
        self.not_followed
    }
}

impl<D: Desk> Handler for Imbalance<D> {
    #[inline]
    fn on_record(&mut self, _: &Context<'_>, update: &Update<'_>) {
        // A Continuation has no times of its own: it goes with the record before it.
        let before = self.newest.and_then(|(_, handed_over)| handed_over);
        let handed_over = if update.record.kind == Kind::CONTINUATION { before } else { update.ts_publish };
        self.newest = Some((update.stamp, handed_over));
    }

    #[inline]
    fn on_event_end(&mut self, ctx: &Context<'_>, end: &EventEnd) {
        if end.before == end.after {
            return;
        }
        let Some(known) = self.leans.get_mut(end.instrument.index()) else {
            self.not_followed += 1;
            return;
        };
        let Some(lean) = Lean::of(&end.after) else { return };
        if *known == Some(lean) || !ctx.book(end.instrument).is_ok_and(|book| book.state() == BookState::Live) {
            return;
        }
        *known = Some(lean);
        self.decisions += 1;
        let handed_over = self.newest.filter(|(stamp, _)| *stamp == end.stamp).and_then(|(_, time)| time);
        let decision = Decision { instrument: end.instrument, lean, bbo: end.after, stamp: end.stamp };
        self.desk.on_decision(ctx, &decision, handed_over);
    }

    /// What was decided on a book that is in doubt says nothing about the book to come.
    fn on_state_change(&mut self, _: &Context<'_>, change: &StateChange) {
        if let Some(lean) = self.leans.get_mut(change.instrument.index()) {
            *lean = None;
        }
    }

    /// Instruments are numbered anew.
    fn on_epoch(&mut self, _: &Context<'_>, _: protocol::line::Epoch, _: protocol::line::Epoch) {
        self.leans.fill(None);
        self.newest = None;
    }
}
