//! How a strategy is unit-tested: the type that runs live, on messages made for the test and on a generated day.

#![forbid(unsafe_code)]

use std::io::Cursor;

use feeds_replay::backtest::{Backtest, BacktestOptions};
use feeds_replay::generate::encode::{self, Head, NewOrder};
use feeds_replay::generate::{GenerateOptions, generate};
use protocol::book::BooksConfig;
use protocol::time::Nanos;
use publisher::date::SessionDate;
use subscriber::{BookState, Context, EventEnd, Handler, InstrumentId};

#[path = "../../subscriber/examples/strategy/imbalance.rs"]
mod imbalance;

use imbalance::{Decision, Desk, Imbalance, Lean, RATIO};

const BOOKS: BooksConfig = BooksConfig { instruments: 64, orders: 1 << 14, levels: 1 << 13 };

/// Keeps every decision, and the words that a person would read.
#[derive(Default)]
struct Journal {
    decisions: Vec<(Nanos, Decision)>,
    words: Vec<String>,
    handed_over: Vec<Option<Nanos>>,
}

impl Desk for Journal {
    fn on_decision(&mut self, ctx: &Context<'_>, decision: &Decision, handed_over: Option<Nanos>) {
        self.decisions.push((ctx.now(), *decision));
        self.words.push(decision.show(ctx).to_string());
        self.handed_over.push(handed_over);
    }
}

fn run(bytes: Vec<u8>, handler: &mut impl Handler) {
    let options = BacktestOptions { books: BOOKS, ..BacktestOptions::default() };
    let mut backtest = Backtest::from_reader(Cursor::new(bytes), SessionDate::NONE, options);
    backtest.run(handler).expect("whole messages");
}

/// A day that begins at 1 ns, one message a nanosecond.
#[derive(Default)]
struct Day {
    bytes: Vec<u8>,
    now: u64,
}

impl Day {
    fn head(&mut self, locate: u16) -> Head {
        self.now += 1;
        Head { locate, tracking: 0, elapsed_ns: self.now }
    }

    fn system(&mut self, code: u8) {
        let head = self.head(0);
        encode::system_event(&mut self.bytes, head, code);
    }

    fn add(&mut self, reference: u64, buy_sell: u8, shares: u32, price: u32) {
        let head = self.head(1);
        let order = NewOrder { reference, buy_sell, shares, stock: *b"AAPL    ", price };
        encode::add_order(&mut self.bytes, head, &order, None);
    }

    fn cancel(&mut self, reference: u64, shares: u32) {
        let head = self.head(1);
        encode::order_cancel(&mut self.bytes, head, reference, shares);
    }
}

#[test]
fn it_decides_when_a_side_outweighs_the_other_and_not_again_until_that_flips() {
    let mut day = Day::default();
    day.system(b'O');
    day.add(1, b'B', 300, 1_000_000);
    // Only now are there two sides, and three to one is enough.
    day.add(2, b'S', 100, 1_000_100);
    let first = day.now;
    // Still the same side; nothing new.
    day.add(3, b'B', 500, 1_000_000);
    // Neither side outweighs the other.
    day.add(4, b'S', 700, 1_000_100);
    // Deeper in the book: best prices have not changed.
    day.add(5, b'S', 9_000, 1_000_200);
    day.cancel(3, 500);
    day.cancel(1, 100);
    // 800 against 200.
    let second = day.now;
    day.system(b'C');

    let mut strategy = Imbalance::new(Journal::default(), BOOKS.instruments);
    run(day.bytes, &mut strategy);
    let decisions: Vec<_> = strategy.desk.decisions.iter().map(|(now, decision)| (now.0, decision.lean)).collect();
    assert_eq!(decisions[0], (first, Lean::Buy));
    // 300 against 800 was not enough: 3 x 300 is more.
    assert_eq!(decisions[1..], [(second, Lean::Sell)]);
    assert!(strategy.desk.words[1].starts_with("AAPL     sell 200 @ 100 | 800 @ 100.01"), "{:?}", strategy.desk.words);
    // In a backtest a message is handed over at its own time.
    assert_eq!(strategy.desk.handed_over, [Some(Nanos(first)), Some(Nanos(second))]);
    assert_eq!((strategy.decisions(), strategy.not_followed()), (2, 0));
}

/// Writes down, at every event, which way the book itself says that the instrument leans: by the depth of the book and not
/// by what the event says.
#[derive(Default)]
struct Leans {
    last: std::collections::HashMap<InstrumentId, Lean>,
    flips: Vec<(InstrumentId, Lean, u64)>,
}

impl Handler for Leans {
    fn on_event_end(&mut self, ctx: &Context<'_>, end: &EventEnd) {
        let book = ctx.book(end.instrument).expect("readable");
        let (Some(bid), Some(ask)) = (book.bids().next(), book.asks().next()) else { return };
        let lean = match (bid.size / RATIO >= ask.size, ask.size / RATIO >= bid.size) {
            (true, false) => Lean::Buy,
            (false, true) => Lean::Sell,
            _ => return,
        };
        if book.state() == BookState::Live && self.last.insert(end.instrument, lean) != Some(lean) {
            self.flips.push((end.instrument, lean, end.stamp.sequence().0));
        }
    }

    fn on_state_change(&mut self, _: &Context<'_>, change: &subscriber::StateChange) {
        self.last.remove(&change.instrument);
    }
}

#[test]
fn over_a_generated_day_it_decides_at_every_flip_of_the_book_and_nowhere_else() {
    for seed in [1, 2] {
        let options = GenerateOptions { seed, symbols: 20, messages: 20_000, ..GenerateOptions::default() };
        let mut bytes = Vec::new();
        generate(&options, &mut bytes).expect("legal options");
        let mut strategy = Imbalance::new(Journal::default(), BOOKS.instruments);
        run(bytes.clone(), &mut strategy);
        let mut leans = Leans::default();
        run(bytes.clone(), &mut leans);
        let decided: Vec<_> = strategy
            .desk
            .decisions
            .iter()
            .map(|(_, decision)| (decision.instrument, decision.lean, decision.stamp.sequence().0))
            .collect();
        assert!(decided.len() > 100, "seed {seed}: only {} decisions", decided.len());
        assert_eq!(decided, leans.flips, "seed {seed}");

        // The same bytes, the same decisions.
        let mut again = Imbalance::new(Journal::default(), BOOKS.instruments);
        run(bytes, &mut again);
        assert_eq!(strategy.desk.decisions, again.desk.decisions, "seed {seed}");
    }
}

#[test]
fn instruments_beyond_its_table_are_counted_and_left_alone() {
    let options = GenerateOptions { seed: 3, symbols: 20, messages: 5_000, ..GenerateOptions::default() };
    let mut bytes = Vec::new();
    generate(&options, &mut bytes).expect("legal options");
    let mut strategy = Imbalance::new(Journal::default(), 2);
    run(bytes, &mut strategy);
    assert!(strategy.not_followed() > 0);
    assert!(strategy.desk.decisions.iter().all(|(_, decision)| decision.instrument.0 <= 2));
}
