//! `subscriber watch --conflate`: how things stand, once a second.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use protocol::price::Decimal;
use serde_json::json;
use subscriber::{BookState, Conflated, ConflatedBook, InstrumentId, Level};

use super::view::grouped;
use super::{Arguments, Failure};

/// From one turn to the next.
const NAP: Duration = Duration::from_millis(10);

/// What was seen of the channel.
#[derive(Default)]
struct Tally {
    books: HashMap<InstrumentId, ConflatedBook>,
    /// Books taken, of each instrument since the last line and in all.
    since: HashMap<InstrumentId, u64>,
    taken: u64,
}

impl Tally {
    fn take(&mut self, book: &ConflatedBook) {
        self.books.insert(book.instrument, *book);
        *self.since.entry(book.instrument).or_default() += 1;
        self.taken += 1;
    }

    fn count(&self, state: BookState) -> usize {
        self.books.values().filter(|book| book.state == state).count()
    }
}

/// Watches until the end of the stream, the time given, or a signal. Returns whether something came.
pub(super) fn watch(arguments: &Arguments, mut conflated: Conflated, stop: &AtomicBool) -> Result<bool, Failure> {
    let until = arguments.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut tally = Tally::default();
    let mut next = Instant::now() + Duration::from_millis(100);
    // Relaxed: the flag carries nothing but itself.
    while !stop.load(Ordering::Relaxed) && until.is_none_or(|until| Instant::now() < until) {
        let taken = conflated.poll(|book| tally.take(book));
        if taken == 0 && conflated.pulse().is_some_and(|pulse| pulse.ended && pulse.behind == 0) {
            break;
        }
        if Instant::now() >= next {
            next = Instant::now() + Duration::from_secs(1);
            let line = line(&conflated, &mut tally);
            let said = if arguments.json { writeln!(io::stderr(), "{line}") } else { writeln!(io::stdout(), "{line}") };
            if said.is_err() {
                break;
            }
        }
        std::thread::sleep(NAP);
    }
    let last = match arguments.json {
        true => summary(arguments, &conflated, &tally).to_string(),
        false => line(&conflated, &mut tally),
    };
    // Whoever closed the output wants no summary.
    let _ = writeln!(io::stdout(), "{last}");
    Ok(!tally.books.is_empty())
}

fn price(book: &ConflatedBook, value: i64) -> String {
    Decimal { value, exponent: i32::from(book.price_exponent) }.to_string()
}

/// The channel, then the instrument whose book was taken most often since the last line.
fn line(conflated: &Conflated, tally: &mut Tally) -> String {
    let Some(pulse) = conflated.pulse() else {
        return "waiting: no conflated books of this channel here; its publisher needs [recovery] with conflate = true"
            .into();
    };
    let silence = match (pulse.ended, conflated.is_silent()) {
        (true, _) => " ended",
        (false, true) => " SILENT",
        (false, false) => "",
    };
    let states = [BookState::Live, BookState::Suspect, BookState::Stale, BookState::Unknown]
        .map(|state| (tally.count(state), state))
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, state)| format!("{} {state:?}", grouped(count as u64)))
        .collect::<Vec<_>>()
        .join(", ");
    let mut text = format!(
        "{}:{}{silence} | {} books taken, {} behind | {}",
        pulse.next.epoch().0,
        pulse.next.sequence().0,
        grouped(tally.taken),
        grouped(pulse.behind),
        if states.is_empty() { "no books" } else { &states }
    );
    let busiest = tally.since.iter().max_by_key(|(instrument, count)| (**count, std::cmp::Reverse(instrument.0)));
    if let Some(book) = busiest.and_then(|(instrument, _)| tally.books.get(instrument)) {
        let side = |level: Option<Level>| {
            level.map_or("-".into(), |level| format!("{} @ {}", grouped(level.size), price(book, level.price)))
        };
        let bbo = book.bbo();
        let last = book.last_trade.map_or(String::new(), |trade| format!(" | last {}", price(book, trade.price)));
        text += &format!(" | {} {} | {}{last}", book.symbol(), side(bbo.bid), side(bbo.ask));
    }
    tally.since.clear();
    text
}

fn summary(arguments: &Arguments, conflated: &Conflated, tally: &Tally) -> serde_json::Value {
    let level = |book: &ConflatedBook, level: &Level| json!({"price": price(book, level.price), "size": level.size, "orders": level.orders});
    let mut books: Vec<&ConflatedBook> = tally.books.values().collect();
    books.sort_by_key(|book| book.instrument.0);
    let rows: Vec<_> = books
        .iter()
        .map(|book| {
            json!({
                "instrument": book.instrument.0,
                "symbol": book.symbol(),
                "state": format!("{:?}", book.state),
                "bids": book.bids.levels().iter().map(|at| level(book, at)).collect::<Vec<_>>(),
                "asks": book.asks.levels().iter().map(|at| level(book, at)).collect::<Vec<_>>(),
                "last_trade": book.last_trade.map(|trade| json!({"price": price(book, trade.price), "size": trade.size})),
                "sequence": book.at.sequence().0,
            })
        })
        .collect();
    json!({
        "channel": arguments.channel,
        "way": "conflated, in shared memory",
        "epoch": conflated.pulse().map(|pulse| pulse.next.epoch().0),
        "next_sequence": conflated.pulse().map(|pulse| pulse.next.sequence().0),
        "ended": conflated.pulse().is_some_and(|pulse| pulse.ended),
        "silent": conflated.is_silent(),
        "reattached": conflated.reattached(),
        "taken": tally.taken,
        "books": {"live": tally.count(BookState::Live), "suspect": tally.count(BookState::Suspect),
            "stale": tally.count(BookState::Stale), "unknown": tally.count(BookState::Unknown)},
        "instruments": rows,
    })
}
