//! Where two captures' books part.
//!
//! Two captures of one session need not have the same messages at the same places, but they have the same times. So both
//! are walked side by side by time: at each time at which either has an event, both take everything up to it, and the books
//! that were touched are compared by their levels (by digest; the levels are read only where it differs). At the end every
//! pair of books is compared order by order, in queue order.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::fmt::Write;

use protocol::book::{BookState, BookView, Level};
use protocol::record::{InstrumentId, Side};
use protocol::time::Nanos;
use publisher::date::SessionDate;
use publisher::feed::FeedSource;
use publisher::venue::Venue;
use serde_json::{Value, json};

use super::show::price;
use super::{BookError, Moment, Walk, When};

/// Where two captures' books part.
#[derive(Clone, Debug)]
pub struct Parting {
    /// Times at which something happened, and books were compared.
    pub compared_times: u64,
    /// Symbols that both have.
    pub symbols: usize,
    /// Those whose books part, in order of time.
    pub parted: Vec<Parted>,
    /// Symbols that one has and the other has not: of A, of B.
    pub only_in: [Vec<String>; 2],
    /// Venue messages taken: of A, of B.
    pub messages: [u64; 2],
    /// The last event taken: of A, of B.
    pub last: [Option<Nanos>; 2],
    /// Why a capture could not be read to its end: of A, of B.
    pub errors: [Option<String>; 2],
    /// The session's date, as of A.
    pub date: SessionDate,
}

/// The books of a symbol part.
#[derive(Clone, PartialEq, Debug)]
pub struct Parted {
    /// Whose.
    pub symbol: String,
    /// When they first differ.
    pub time: Nanos,
    /// Venue messages taken then: of A, of B.
    pub messages: [u64; 2],
    /// What the books say of themselves then; `None` where it has no book yet.
    pub states: [Option<BookState>; 2],
    /// Orders that rest then.
    pub resting: [u64; 2],
    /// Levels that differ then; empty where only the orders within them do.
    pub levels: Vec<LevelDifference>,
    /// Prices are in units of 10 to this power.
    pub price_exponent: i32,
    /// Whether they still differ at the end.
    pub at_end: bool,
}

/// A price at which two books differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LevelDifference {
    /// Which side.
    pub side: Side,
    /// Which price.
    pub price: i64,
    /// What A has there, and what B has.
    pub levels: [Option<Level>; 2],
}

/// Walks both captures to `until`, or to their ends. The walks are at their starts.
///
/// # Errors
/// [`BookError`], if `symbol` is in neither, or the moment does not suit the session. A capture that fails is compared up
/// to the fault, which is in [`Parting::errors`].
pub fn diff<S: FeedSource, T: FeedSource, V: Venue, W: Venue>(
    a: &mut Walk<S, V>,
    b: &mut Walk<T, W>,
    symbol: Option<&str>,
    until: Option<Moment>,
) -> Result<Parting, BookError> {
    let date = a.date();
    let until = until.map(|moment| moment.in_session(&date)).transpose()?.unwrap_or(Nanos::UNDEFINED);
    let mut errors = [None, None];
    let mut compared_times = 0;
    let mut parted: HashMap<String, Parted> = HashMap::new();
    let mut touched: Vec<String> = Vec::new();
    loop {
        let [next_a, next_b] = [next_time(a, &mut errors[0]), next_time(b, &mut errors[1])];
        let Some(time) = next_a.into_iter().chain(next_b).min().filter(|time| *time <= until) else { break };
        // What a broken capture had after its fault is not known: nothing beyond that can be compared.
        if errors.iter().any(Option::is_some) {
            break;
        }
        touched.clear();
        let every = take(a, time, &mut errors[0], &mut touched) | take(b, time, &mut errors[1], &mut touched);
        if every {
            touched.extend(a.symbols().names().chain(b.symbols().names()).map(str::to_owned));
        }
        touched.sort_unstable();
        touched.dedup();
        compared_times += 1;
        for name in touched.iter().filter(|name| symbol.is_none_or(|wanted| wanted == *name)) {
            if parted.contains_key(name) {
                continue;
            }
            let (view_a, view_b) = (view(a, name), view(b, name));
            if !same_levels(view_a, view_b) {
                parted.insert(name.clone(), describe(a, b, name, time));
            }
        }
    }
    if let Some(symbol) = symbol
        && a.symbols().find(symbol).is_none()
        && b.symbols().find(symbol).is_none()
    {
        let near = super::near(symbol, a.symbols());
        return Err(BookError::UnknownSymbol { symbol: symbol.to_owned(), by: String::new(), near });
    }
    let wanted = |name: &&str| symbol.is_none_or(|wanted| wanted == *name);
    let (mut both, mut only_in) = (0, [Vec::new(), Vec::new()]);
    // By name, so that the same captures give the same text.
    let mut names: BTreeMap<&str, [bool; 2]> = BTreeMap::new();
    a.symbols().names().filter(wanted).for_each(|name| names.entry(name).or_default()[0] = true);
    b.symbols().names().filter(wanted).for_each(|name| names.entry(name).or_default()[1] = true);
    let end = a.last().into_iter().chain(b.last()).map(|event| event.time).max().unwrap_or(Nanos::ZERO);
    for (name, has) in names {
        match has {
            [true, true] => both += 1,
            [has_a, _] => only_in[usize::from(!has_a)].push(name.to_owned()),
        }
        let (view_a, view_b) = (view(a, name), view(b, name));
        let differ = !same_levels(view_a, view_b) || !same_queues(view_a, view_b);
        if differ {
            parted.entry(name.to_owned()).or_insert_with(|| describe(a, b, name, end)).at_end = true;
        }
    }
    let mut parted: Vec<Parted> = parted.into_values().collect();
    parted.sort_by(|x, y| (x.time, &x.symbol).cmp(&(y.time, &y.symbol)));
    let messages = [a.last(), b.last()].map(|event| event.map_or(0, |event| event.message));
    let last = [a.last(), b.last()].map(|event| event.map(|event| event.time));
    Ok(Parting { compared_times, symbols: both, parted, only_in, messages, last, errors, date })
}

fn next_time<S: FeedSource, V: Venue>(walk: &mut Walk<S, V>, error: &mut Option<String>) -> Option<Nanos> {
    match walk.peek() {
        Ok(event) => event.map(|event| event.time),
        Err(cause) => {
            *error = Some(cause.to_string());
            None
        }
    }
}

/// Takes everything up to `time`; whose books that concerns goes to `touched`. Returns whether it may concern all of them.
fn take<S: FeedSource, V: Venue>(
    walk: &mut Walk<S, V>,
    time: Nanos,
    error: &mut Option<String>,
    touched: &mut Vec<String>,
) -> bool {
    let mut every = false;
    while next_time(walk, error).is_some_and(|next| next <= time) {
        if let Err(cause) = walk.advance() {
            *error = Some(cause.to_string());
            break;
        }
        for instrument in walk.touched() {
            every |= *instrument == InstrumentId::CHANNEL;
            if let Some(known) = walk.symbols().get(*instrument)
                && touched.last() != Some(&known.symbol)
            {
                touched.push(known.symbol.clone());
            }
        }
    }
    every
}

fn view<'a, S: FeedSource, V: Venue>(walk: &'a Walk<S, V>, symbol: &str) -> Option<BookView<'a>> {
    walk.books().view(walk.symbols().find(symbol)?)
}

/// No book yet, and an empty one, are the same.
fn same_levels(a: Option<BookView<'_>>, b: Option<BookView<'_>>) -> bool {
    let key = |view: Option<BookView<'_>>| view.map_or((0, 0), |view| (view.digests().1, view.resting_orders()));
    key(a) == key(b)
}

/// The same orders, with the same sizes, in the same order at every level.
fn same_queues(a: Option<BookView<'_>>, b: Option<BookView<'_>>) -> bool {
    let orders = |view: BookView<'_>, side: Side| -> Vec<(u64, i64, u64)> {
        let queue = |level: Level| view.queue(side, level.price).map(|(id, order)| (id, order.price, order.size));
        view.levels(side).flat_map(queue).collect()
    };
    let (Some(a), Some(b)) = (a, b) else { return true };
    [Side::BID, Side::ASK].into_iter().all(|side| orders(a, side) == orders(b, side))
}

fn describe<S: FeedSource, T: FeedSource, V: Venue, W: Venue>(
    a: &Walk<S, V>,
    b: &Walk<T, W>,
    symbol: &str,
    time: Nanos,
) -> Parted {
    let views = [view(a, symbol), view(b, symbol)];
    let mut levels = Vec::new();
    for side in [Side::BID, Side::ASK] {
        let mut by_price: BTreeMap<i64, [Option<Level>; 2]> = BTreeMap::new();
        for (at, view) in views.iter().enumerate() {
            for level in view.iter().flat_map(|view| view.levels(side)) {
                by_price.entry(level.price).or_default()[at] = Some(level);
            }
        }
        let differing = by_price.into_iter().filter(|(_, [a, b])| a != b).map(|(price, levels)| LevelDifference {
            side,
            price,
            levels,
        });
        // Best first.
        match side {
            Side::BID => levels.extend(differing.rev()),
            _ => levels.extend(differing),
        }
    }
    let instrument = a.symbols().find(symbol).and_then(|instrument| a.symbols().get(instrument));
    Parted {
        symbol: symbol.to_owned(),
        time,
        messages: [a.last(), b.last()].map(|event| event.map_or(0, |event| event.message)),
        states: views.map(|view| view.map(|view| view.state())),
        resting: views.map(|view| view.map_or(0, |view| view.resting_orders())),
        levels,
        price_exponent: instrument.map_or(-9, |known| known.price_exponent),
        at_end: false,
    }
}

impl Parting {
    /// Whether every book was the same at every time, and both captures were whole.
    pub fn agrees(&self) -> bool {
        self.parted.is_empty()
            && self.only_in.iter().all(Vec::is_empty)
            && self.errors.iter().all(Option::is_none)
            && self.last[0] == self.last[1]
    }

    fn words(&self, time: Nanos) -> String {
        When { time, date: self.date }.to_string()
    }

    /// As JSON, with at most `depth` differing levels a symbol.
    pub fn json(&self, names: &[String; 2], depth: usize) -> Value {
        let moment = |time| {
            let when = When { time, date: self.date };
            json!({"ns": when.time.0, "exchange": when.exchange(), "utc": when.utc()})
        };
        let parted = |parted: &Parted| {
            let side = |at: usize| {
                json!({
                    "messages": parted.messages[at],
                    "state": parted.states[at].map(|state| format!("{state:?}")),
                    "resting_orders": parted.resting[at],
                })
            };
            let level = |level: Option<Level>| level.map(|level| json!({"size": level.size, "orders": level.orders}));
            let levels: Vec<Value> = parted
                .levels
                .iter()
                .take(depth)
                .map(|difference| {
                    json!({
                        "side": if difference.side == Side::BID { "bid" } else { "ask" },
                        "price": price(difference.price, parted.price_exponent),
                        "a": level(difference.levels[0]),
                        "b": level(difference.levels[1]),
                    })
                })
                .collect();
            json!({
                "symbol": parted.symbol, "first": moment(parted.time), "a": side(0), "b": side(1),
                "differing_levels": parted.levels.len(), "levels": levels, "apart_at_end": parted.at_end,
            })
        };
        let capture = |at: usize| {
            json!({
                "file": names[at], "messages": self.messages[at], "last_event": self.last[at].map(moment),
                "only_here": self.only_in[at], "error": self.errors[at],
            })
        };
        json!({
            "agree": self.agrees(),
            "symbols": self.symbols,
            "compared_times": self.compared_times,
            "a": capture(0),
            "b": capture(1),
            "parted": self.parted.iter().map(parted).collect::<Vec<Value>>(),
        })
    }

    /// In words: whether they agree first; then where each symbol's books part, with at most `depth` differing levels.
    pub fn text(&self, names: &[String; 2], depth: usize) -> String {
        /// As many symbols as a person reads.
        const MOST: usize = 20;
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = match (&self.parted[..], self.agrees()) {
            (_, true) => writeln!(out, "the books of {} symbols agree", self.symbols),
            ([], false) => writeln!(out, "the books agree as far as both captures go"),
            ([first, ..], false) => writeln!(
                out,
                "the books of {} of {} symbols part, first those of {} at {}",
                self.parted.len(),
                self.symbols,
                first.symbol,
                self.words(first.time)
            ),
        };
        for (at, name) in ["A", "B"].iter().enumerate() {
            let last = self.last[at].map_or_else(|| "no event".to_owned(), |time| self.words(time));
            let _ = writeln!(out, "{name}: {}, {} messages, the last event at {last}", names[at], self.messages[at]);
            if let Some(error) = &self.errors[at] {
                let _ = writeln!(out, "{name} could not be read further: {error}");
            }
            if !self.only_in[at].is_empty() {
                let (count, some) = (self.only_in[at].len(), &self.only_in[at][..self.only_in[at].len().min(MOST)]);
                let _ = writeln!(out, "{name} alone has {count} symbols: {}", some.join(", "));
            }
        }
        let _ = writeln!(out, "compared at {} times", self.compared_times);
        for parted in self.parted.iter().take(MOST) {
            let after = match parted.at_end {
                true => "and still differ at the end",
                false => "and are the same again at the end",
            };
            let _ = writeln!(
                out,
                "\n{}: part at {}, after message {} of A and {} of B, {after}",
                parted.symbol,
                self.words(parted.time),
                parted.messages[0],
                parted.messages[1]
            );
            let state = |state: Option<BookState>| state.map_or("no book".to_owned(), |state| format!("{state:?}"));
            let _ = writeln!(
                out,
                "  A: {}, {} orders rest; B: {}, {} orders rest",
                state(parted.states[0]),
                parted.resting[0],
                state(parted.states[1]),
                parted.resting[1]
            );
            if parted.levels.is_empty() {
                let _ = writeln!(out, "  the levels are the same; the orders in them, or their queues, are not");
            }
            for difference in parted.levels.iter().take(depth) {
                let side = if difference.side == Side::BID { "bid" } else { "ask" };
                let level = |level: Option<Level>| {
                    level.map_or("none".to_owned(), |level| format!("{} in {} orders", level.size, level.orders))
                };
                let _ = writeln!(
                    out,
                    "  {side} {}: A {}, B {}",
                    price(difference.price, parted.price_exponent),
                    level(difference.levels[0]),
                    level(difference.levels[1])
                );
            }
            if parted.levels.len() > depth {
                let _ = writeln!(out, "  {} more levels differ; --depth shows them", parted.levels.len() - depth);
            }
        }
        if self.parted.len() > MOST {
            let _ = writeln!(out, "\n{} more symbols part; --symbol shows one, --json all", self.parted.len() - MOST);
        }
        out
    }
}
