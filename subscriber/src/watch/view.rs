//! What is looked at: the handler that keeps count, and the view that is taken of it.

use std::time::Duration;

use protocol::arbiter::Gap;
use protocol::arbiter::PathCounts;
use protocol::book::MAX_INSTRUMENTS;
use protocol::line::{Epoch, Stamp};
use protocol::pair::Split;
use protocol::price::Decimal;
use protocol::record::{InstrumentId, status as action};
use protocol::run::LanePath;
use protocol::time::Nanos;
use serde::Serialize;
use subscriber::{
    Bbo, Behind, BookState, Context, Definition, Handler, Level, NotReadable, Status, Subscriber, Trade, Update,
};

use super::source::{Path, Source};

/// Rows of a view at most: more than anybody scrolls through, few enough to be sorted and copied in no time.
pub(crate) const MAX_ROWS: usize = 500;

/// What is known of one instrument beside its book.
#[derive(Clone, Copy, Default)]
struct Seen {
    lines: u64,
    trades: u64,
    last_trade: Option<Trade>,
    /// StatusAction of the last Status.
    status: Option<u8>,
}

/// Keeps count of what comes.
#[derive(Default)]
pub(crate) struct Tally {
    /// By instrument id; grows as instruments are heard of.
    seen: Vec<Seen>,
    trades: u64,
    last_gap: Option<Gap>,
    last_split: Option<Split>,
    epochs: u64,
    silences: u64,
    session_ended: bool,
    ended: bool,
    /// When the first line came.
    first: Option<Nanos>,
    /// Times that it was told that its ring is nearly full.
    behind: u64,
    /// How long each line takes on purpose.
    pub(crate) slow: Option<Duration>,
}

impl Tally {
    fn seen(&mut self, instrument: InstrumentId) -> Option<&mut Seen> {
        if instrument == InstrumentId::CHANNEL || instrument.0 > MAX_INSTRUMENTS {
            return None;
        }
        if instrument.index() >= self.seen.len() {
            self.seen.resize(instrument.index() + 1, Seen::default());
        }
        self.seen.get_mut(instrument.index())
    }
}

impl Handler for Tally {
    #[inline]
    fn on_record(&mut self, ctx: &Context<'_>, update: &Update<'_>) {
        self.first.get_or_insert(ctx.now());
        if let Some(seen) = self.seen(update.record.instrument_id()) {
            seen.lines += 1;
        }
        if let Some(slow) = self.slow {
            std::thread::sleep(slow);
        }
    }

    fn on_behind(&mut self, _: &Context<'_>, _: &Behind) {
        self.behind += 1;
    }

    fn on_definition(&mut self, _: &Context<'_>, instrument: InstrumentId, _: &Definition) {
        // The lines of a first definition are not told as records where symbols are chosen.
        if let Some(seen) = self.seen(instrument) {
            seen.lines = seen.lines.max(1);
        }
    }

    fn on_trade(&mut self, _: &Context<'_>, trade: &Trade) {
        self.trades += 1;
        if let Some(seen) = self.seen(trade.instrument) {
            seen.trades += 1;
            seen.last_trade = Some(*trade);
        }
    }

    fn on_status(&mut self, _: &Context<'_>, status: &Status) {
        // These say something beside the trading state, which stays what it was.
        if matches!(status.action, action::NONE | action::SHORT_SALE_RESTRICTION | action::NEW_PRICE_INDICATION) {
            return;
        }
        if let Some(seen) = self.seen(status.instrument) {
            seen.status = Some(status.action);
        }
    }

    fn on_gap(&mut self, _: &Context<'_>, gap: &Gap) {
        self.last_gap = Some(*gap);
    }

    fn on_epoch(&mut self, _: &Context<'_>, _: Epoch, _: Epoch) {
        // The new epoch numbers its instruments anew.
        self.seen.clear();
        self.epochs += 1;
        self.last_split = None;
        (self.ended, self.session_ended) = (false, false);
    }

    fn on_path_silent(&mut self, _: &Context<'_>, _: LanePath, _: Nanos) {
        self.silences += 1;
    }

    fn on_split(&mut self, _: &Context<'_>, split: &Split) {
        self.last_split = Some(*split);
    }

    fn on_session_start(&mut self, _: &Context<'_>) {
        self.session_ended = false;
    }

    fn on_session_end(&mut self, _: &Context<'_>) {
        self.session_ended = true;
    }

    fn on_end(&mut self, _: &Context<'_>) {
        self.ended = true;
    }
}

/// Sums since the start. Lines are counted as they were delivered, wanted or not.
#[derive(Clone, Copy, Default, Debug, Serialize)]
pub(crate) struct Totals {
    pub(crate) delivered: u64,
    pub(crate) skipped: u64,
    pub(crate) events: u64,
    pub(crate) trades: u64,
    pub(crate) gaps: u64,
    pub(crate) lost: u64,
    /// Holes that another path, or a late packet, filled in time.
    pub(crate) holes_filled: u64,
    /// Lines in them.
    pub(crate) lines_filled: u64,
    /// Lines that the recovery server brought.
    pub(crate) lines_recovered: u64,
    /// Requests to it.
    pub(crate) recovery_requests: u64,
    /// Times that the publisher said that this subscriber's ring is nearly full.
    pub(crate) nearly_full: u64,
    /// Snapshots that it gave.
    pub(crate) snapshots: u64,
    pub(crate) epochs_begun: u64,
    /// Times that the channel's publishers did not say the same.
    pub(crate) splits: u64,
    pub(crate) silences: u64,
    pub(crate) digests_agreed: u64,
    pub(crate) digests_disagreed: u64,
    pub(crate) digests_healed: u64,
    pub(crate) state_changes: u64,
}

/// How many books are in each state.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub(crate) struct States {
    pub(crate) unknown: u64,
    pub(crate) snapshotting: u64,
    pub(crate) live: u64,
    pub(crate) suspect: u64,
    pub(crate) stale: u64,
}

impl States {
    fn count(&mut self, state: BookState) {
        match state {
            BookState::Unknown => self.unknown += 1,
            BookState::Snapshotting => self.snapshotting += 1,
            BookState::Live => self.live += 1,
            BookState::Suspect => self.suspect += 1,
            BookState::Stale => self.stale += 1,
        }
    }
}

/// How the channel is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Pulse {
    /// Nothing has come yet.
    #[default]
    Waiting,
    /// Lines or heartbeats come.
    Running,
    /// Nothing has come for a while, and nobody said that it would end.
    Silent,
    /// Its publisher said that nothing follows.
    Ended,
}

/// One instrument.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) instrument: InstrumentId,
    /// Its symbol, or `#` and its number.
    pub(crate) symbol: String,
    pub(crate) state: BookState,
    pub(crate) exponent: i32,
    pub(crate) bbo: Bbo,
    pub(crate) last_trade: Option<Trade>,
    pub(crate) trades: u64,
    pub(crate) lines: u64,
    pub(crate) status: Option<u8>,
}

impl Row {
    /// A price of this instrument.
    pub(crate) fn price(&self, value: i64) -> String {
        price_text(value, self.exponent)
    }
}

/// The chosen instrument's book.
#[derive(Clone, Default, Debug)]
pub(crate) struct Depth {
    pub(crate) row: Option<Row>,
    pub(crate) bids: Vec<Level>,
    pub(crate) asks: Vec<Level>,
    /// Levels and orders that there are, shown or not.
    pub(crate) bid_levels: usize,
    pub(crate) ask_levels: usize,
    pub(crate) orders: u64,
}

/// Everything that is shown, at one moment.
#[derive(Clone, Default, Debug)]
pub(crate) struct View {
    /// The subscriber's clock.
    pub(crate) now: Nanos,
    pub(crate) pulse: Pulse,
    /// Why it is waited, if it is.
    pub(crate) waiting_for: String,
    /// The stamp that comes next.
    pub(crate) next: Option<Stamp>,
    pub(crate) paths: Vec<Path>,
    /// Which way brought lines first, and how often.
    pub(crate) won: Vec<(LanePath, PathCounts)>,
    /// Lines a second, over about the last one.
    pub(crate) rate: f64,
    pub(crate) lag: u64,
    /// Since the last sign of life, ns.
    pub(crate) silence_ns: Option<u64>,
    pub(crate) last_gap: Option<Gap>,
    /// In this epoch.
    pub(crate) last_split: Option<Split>,
    pub(crate) session_ended: bool,
    /// With recovery: why it cannot be had at this moment, or nothing.
    pub(crate) recovery_trouble: Option<String>,
    pub(crate) totals: Totals,
    pub(crate) states: States,
    /// Instruments heard of, shown or not.
    pub(crate) instruments: usize,
    /// The most active first.
    pub(crate) rows: Vec<Row>,
    pub(crate) depth: Depth,
    /// Since the first line, ns.
    pub(crate) since_first_ns: u64,
    /// What taking this view, and the longest so far, took from the polling, ns.
    pub(crate) longest_ns: u64,
}

/// No sign of life for this long is called silence: as long as the library waits for ten heartbeats.
const SILENT_NS: u64 = 100_000_000;

/// What taking a view needs to remember.
#[derive(Default)]
pub(crate) struct Viewer {
    /// Instruments by activity, for sorting without an allocation each time.
    order: Vec<(u64, u32)>,
    /// (time, lines delivered) of the views of about the last second.
    rates: std::collections::VecDeque<(Nanos, u64)>,
    paths: Vec<Path>,
}

impl Viewer {
    /// Looks at `subscriber` at time `now`.
    pub(crate) fn look<R: Source>(
        &mut self,
        subscriber: &Subscriber<R>,
        tally: &Tally,
        now: Nanos,
        selected: InstrumentId,
        depth: usize,
    ) -> View {
        let engine = subscriber.engine();
        let ctx = engine.context(now);
        let (counts, arbiter, digests) = (engine.counts(), subscriber.counts(), engine.digest_counts());
        let recovery = subscriber.recovery();
        self.paths = subscriber.rx().paths(&self.paths, now);
        let heard = self.paths.iter().filter_map(|path| path.heard).max();
        // A ring whose publisher is dead never changes under its reader.
        let silence_ns = heard.or(tally.first).map(|heard| now.since(heard).max(0) as u64);
        let came = subscriber.next().is_some();
        let pulse = match (tally.ended, came, silence_ns) {
            (true, ..) => Pulse::Ended,
            (false, false, _) => Pulse::Waiting,
            (false, true, Some(silence)) if silence >= SILENT_NS => Pulse::Silent,
            (false, true, _) => Pulse::Running,
        };

        let mut states = States::default();
        self.order.clear();
        for (i, seen) in tally.seen.iter().enumerate().filter(|(_, seen)| seen.lines > 0) {
            let instrument = InstrumentId(i as u32);
            states.count(state_of(&ctx, instrument));
            self.order.push((u64::MAX - seen.lines, instrument.0));
        }
        let instruments = self.order.len();
        if instruments > MAX_ROWS {
            self.order.select_nth_unstable(MAX_ROWS);
            self.order.truncate(MAX_ROWS);
        }
        self.order.sort_unstable();
        let rows: Vec<Row> = self.order.iter().map(|(_, id)| row(&ctx, tally, InstrumentId(*id))).collect();
        let chosen = rows.iter().find(|row| row.instrument == selected).or(rows.first());
        let depth = chosen.map_or_else(Depth::default, |row| depth_of(&ctx, row, depth));

        View {
            now,
            pulse,
            waiting_for: String::new(),
            next: subscriber.next(),
            paths: self.paths.clone(),
            won: subscriber.paths().collect(),
            rate: self.rate(now, arbiter.delivered),
            lag: subscriber.lag(),
            silence_ns,
            last_gap: tally.last_gap,
            last_split: tally.last_split,
            session_ended: tally.session_ended,
            recovery_trouble: recovery.as_ref().map(|status| status.trouble.clone()),
            totals: Totals {
                delivered: arbiter.delivered,
                skipped: counts.skipped,
                events: counts.events,
                trades: tally.trades,
                gaps: arbiter.gaps,
                lost: arbiter.lost,
                holes_filled: arbiter.holes_filled,
                lines_filled: arbiter.filled,
                lines_recovered: arbiter.recovered,
                recovery_requests: recovery.as_ref().map_or(0, |status| status.counts.requests),
                snapshots: recovery.as_ref().map_or(0, |status| status.counts.snapshots),
                epochs_begun: tally.epochs,
                splits: arbiter.splits,
                silences: tally.silences,
                nearly_full: tally.behind,
                digests_agreed: digests.compared - digests.disagreed,
                digests_disagreed: digests.disagreed,
                digests_healed: digests.healed,
                state_changes: counts.state_changes,
            },
            states,
            instruments,
            rows,
            depth,
            since_first_ns: tally.first.map_or(0, |first| now.since(first).max(0) as u64),
            longest_ns: 0,
        }
    }

    fn rate(&mut self, now: Nanos, delivered: u64) -> f64 {
        self.rates.push_back((now, delivered));
        while self.rates.len() > 2 && self.rates.front().is_some_and(|(then, _)| now.since(*then) > 1_050_000_000) {
            self.rates.pop_front();
        }
        let (then, before) = self.rates[0];
        let elapsed = now.since(then);
        if elapsed <= 0 { 0.0 } else { (delivered - before) as f64 * 1e9 / elapsed as f64 }
    }
}

fn state_of(ctx: &Context<'_>, instrument: InstrumentId) -> BookState {
    match ctx.book(instrument) {
        Ok(view) => view.state(),
        Err(NotReadable::State { state, .. }) => state,
        Err(NotReadable::NeverHeard(_) | NotReadable::NotSelected(_)) => BookState::Unknown,
    }
}

fn row(ctx: &Context<'_>, tally: &Tally, instrument: InstrumentId) -> Row {
    let seen = tally.seen.get(instrument.index()).copied().unwrap_or_default();
    let definition = ctx.definition(instrument);
    let symbol = definition.map_or("", Definition::symbol);
    Row {
        instrument,
        symbol: if symbol.is_empty() { format!("#{}", instrument.0) } else { symbol.to_owned() },
        state: state_of(ctx, instrument),
        exponent: definition.map_or(-9, Definition::price_exponent),
        // A book that may have missed something is shown with its state beside it: a person can tell.
        bbo: ctx.book_even_if_stale(instrument).map_or(Bbo::default(), |book| book.bbo()),
        last_trade: seen.last_trade,
        trades: seen.trades,
        lines: seen.lines,
        status: seen.status,
    }
}

fn depth_of(ctx: &Context<'_>, row: &Row, depth: usize) -> Depth {
    let Ok(book) = ctx.book_even_if_stale(row.instrument) else {
        return Depth { row: Some(row.clone()), ..Depth::default() };
    };
    Depth {
        row: Some(row.clone()),
        bids: book.bids().take(depth).collect(),
        asks: book.asks().take(depth).collect(),
        bid_levels: book.depth(protocol::record::Side::BID),
        ask_levels: book.depth(protocol::record::Side::ASK),
        orders: book.resting_orders(),
    }
}

/// A price with at least two decimals, so that columns of them line up.
pub(crate) fn price_text(value: i64, exponent: i32) -> String {
    let mut text = Decimal { value, exponent }.to_string();
    let decimals = text.find('.').map(|point| text.len() - point - 1);
    match decimals {
        None if exponent < 0 && text != "-" => text.push_str(".00"),
        Some(1) => text.push('0'),
        _ => {}
    }
    text
}

/// A whole number with commas.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// What a StatusAction is called, short.
pub(crate) fn status_text(status: u8) -> &'static str {
    match status {
        action::PRE_OPEN => "pre-open",
        action::PRE_CROSS => "pre-cross",
        action::QUOTING => "quoting",
        action::CROSS => "cross",
        action::ROTATION => "rotation",
        action::TRADING => "trading",
        action::HALT => "halted",
        action::PAUSE => "paused",
        action::SUSPEND => "suspended",
        action::PRE_CLOSE => "pre-close",
        action::CLOSE => "closed",
        action::POST_CLOSE => "post-close",
        action::NOT_AVAILABLE => "not available",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_line_up_and_stay_exact() {
        assert_eq!(price_text(101_000_000_000, -9), "101.00");
        assert_eq!(price_text(101_500_000_000, -9), "101.50");
        assert_eq!(price_text(101_123_400_000, -9), "101.1234");
        assert_eq!(price_text(-500_000_000, -9), "-0.50");
        assert_eq!(price_text(7, 2), "700");
        assert_eq!(price_text(protocol::record::UNDEFINED_PRICE, -9), "-");
    }

    #[test]
    fn numbers_are_grouped_by_thousands() {
        let texts: Vec<String> = [0, 999, 1_000, 65_536, 1_000_000].into_iter().map(grouped).collect();
        assert_eq!(texts, ["0", "999", "1,000", "65,536", "1,000,000"]);
    }

    #[test]
    fn the_rate_is_of_about_the_last_second() {
        let mut viewer = Viewer::default();
        assert_eq!(viewer.rate(Nanos(0), 500), 0.0, "one view tells no rate");
        for tenth in 1..=30u64 {
            // 100 lines a second for two seconds, then 1,000.
            let delivered = 500 + if tenth <= 20 { tenth * 10 } else { 200 + (tenth - 20) * 100 };
            let rate = viewer.rate(Nanos(tenth * 100_000_000), delivered);
            let expected = match tenth {
                ..=20 => 100.0,
                30 => 1_000.0,
                _ => continue,
            };
            assert!((rate - expected).abs() < 1e-6, "{rate} after {tenth} tenths");
        }
    }
}
