//! Conflated books end to end: a real publisher keeps them in shared memory, and readers look at them there.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bookcast_tests::programs::output;
use bookcast_tests::stage::{PATIENCE, Plan, SMALL, Setting, Witness, poll_until, setting};
use protocol::conflation::CELL_LEVELS;
use subscriber::{
    Bbo, BookState, Conflated, ConflatedBook, Context, EventEnd, Handler, InstrumentId, Level, NotConflated,
};

/// What one who gets every line saw of each instrument: all of its best prices, in order.
#[derive(Default)]
struct History {
    witness: Witness,
    bbos: HashMap<InstrumentId, Vec<Bbo>>,
}

impl Handler for History {
    fn on_event_end(&mut self, _: &Context<'_>, end: &EventEnd) {
        self.bbos.entry(end.instrument).or_default().push(end.after);
    }
    fn on_record(&mut self, ctx: &Context<'_>, update: &subscriber::Update<'_>) {
        self.witness.on_record(ctx, update);
    }
    fn on_gap(&mut self, ctx: &Context<'_>, gap: &subscriber::Gap) {
        self.witness.on_gap(ctx, gap);
    }
}

fn reader(setting: &Setting, address: std::net::SocketAddr) -> Conflated {
    setting.builder(address).conflated().expect("a name that can be")
}

#[test]
fn whoever_looks_now_and_then_sees_books_that_were_and_at_the_end_those_that_are() {
    let plan = Plan { messages: 16_000, rate: 8_000.0, ..SMALL };
    let setting = setting("conflated", &plan);
    let (running, address) = setting.publish();
    let mut conflated = reader(&setting, address);
    let mut all = setting.builder(address).shared_memory().expect("attaches");
    let mut history = History::default();
    let mut looked: Vec<ConflatedBook> = Vec::new();
    let (mut turns, mut next_look) = (0u64, Instant::now());
    let until = Instant::now() + PATIENCE;
    let is_final = |conflated: &Conflated| conflated.pulse().is_some_and(|pulse| pulse.ended && pulse.behind == 0);
    while !(all.has_ended() && is_final(&conflated)) {
        if all.poll(&mut history) == 0 {
            std::thread::yield_now();
        }
        // Much less often than books change.
        if Instant::now() >= next_look {
            next_look = Instant::now() + Duration::from_millis(50);
            turns += u64::from(conflated.poll(|book| looked.push(*book)) > 0);
        }
        assert!(Instant::now() < until, "{:?}, {:?}", conflated.pulse(), all.counts());
    }
    conflated.poll(|book| looked.push(*book));
    assert_eq!(history.witness.lost, 0, "{:?}", history.witness.gaps);
    let published: serde_json::Value = serde_json::from_slice(&running.finish(PATIENCE).stdout).expect("JSON");
    println!("{} books in {turns} turns, of {} lines", looked.len(), history.witness.lines);
    assert_eq!(Some(history.witness.lines), published["published"].as_u64());
    assert!((looked.len() as u64) < history.witness.lines / 2, "they were conflated: {}", looked.len());

    // What was looked at had been so, and in that order.
    let mut places: HashMap<InstrumentId, (usize, u64)> = HashMap::new();
    let mut compared = 0;
    for book in looked.iter().filter(|book| book.state.is_readable()) {
        let (place, at) = places.entry(book.instrument).or_default();
        assert!(book.at.sequence().0 >= *at, "{}: {:?} after {at}", book.symbol(), book.at);
        *at = book.at.sequence().0;
        let seen = history.bbos.get(&book.instrument).map_or(&[][..], |seen| &seen[*place..]);
        match seen.iter().position(|bbo| *bbo == book.bbo()) {
            Some(found) => *place += found,
            // Before its first event.
            None => {
                assert!(*place == 0 && book.bbo() == Bbo::default(), "{}: {:?} never was", book.symbol(), book.bbo())
            }
        }
        compared += 1;
    }
    assert!(compared > 100, "{compared}");

    // At the end they are the books of the one who got every line, level by level, with their symbols and last trades.
    let context = all.context();
    let mut trades = 0;
    for (instrument, definition) in context.instruments() {
        let (book, view) = (conflated.book(instrument).expect("final"), context.book(instrument).expect("readable"));
        assert_eq!((book.state, book.symbol()), (view.state(), definition.symbol()));
        assert_eq!(conflated.instrument(definition.symbol()), Some(instrument));
        let best = |levels: Vec<Level>| levels.into_iter().take(CELL_LEVELS).collect::<Vec<_>>();
        assert_eq!(book.bids.levels(), best(view.bids().collect()), "{}", definition.symbol());
        assert_eq!(book.asks.levels(), best(view.asks().collect()), "{}", definition.symbol());
        assert_eq!(book.bids.depth() as usize, view.bids().count());
        assert_eq!(book.trading, context.is_trading(instrument));
        trades += u64::from(book.last_trade.is_some());
    }
    assert_eq!(context.instruments().count(), 20);
    assert!(trades > 10, "{trades} instruments have traded");
}

#[test]
fn a_dead_publishers_books_are_stale_and_the_next_ones_are_found() {
    let plan = Plan { messages: 8_000, ..SMALL };
    let setting = setting("dies", &plan);
    let (first, address) = setting.publish();
    let mut conflated = reader(&setting, address);
    let mut states: HashMap<InstrumentId, BookState> = HashMap::new();
    let mut wait = |conflated: &mut Conflated, what: &str, done: &dyn Fn(&HashMap<_, _>, &Conflated) -> bool| {
        let began = Instant::now();
        while !done(&states, conflated) {
            conflated.poll(|book| {
                states.insert(book.instrument, book.state);
            });
            std::thread::sleep(Duration::from_millis(2));
            assert!(began.elapsed() < PATIENCE, "{what}: {:?} {states:?}", conflated.pulse());
        }
        began.elapsed()
    };
    let live = |states: &HashMap<InstrumentId, BookState>| states.values().filter(|state| state.is_readable()).count();
    wait(&mut conflated, "books", &|states, _| live(states) == 20);
    let epoch = conflated.pulse().expect("alive").next.epoch();
    first.signal("KILL");
    first.finish(PATIENCE);
    let took = wait(&mut conflated, "silence is told", &|states, conflated| conflated.is_silent() && live(states) == 0);
    println!("every book Stale {took:?} after the publisher was killed; stated 100 ms");
    let one = InstrumentId(1);
    assert_eq!(conflated.book(one), Err(NotConflated::State { instrument: one, state: BookState::Stale }));
    assert!(conflated.book_even_if_stale(one).is_ok());
    let (second, _) = setting.publish();
    wait(&mut conflated, "the next publisher's books", &|states, conflated| {
        live(states) == 20
            && !conflated.is_silent()
            && conflated.pulse().is_some_and(|pulse| pulse.next.epoch() > epoch)
    });
    assert_eq!(conflated.reattached(), 1);
    drop(second);
}

#[test]
fn watch_shows_them_and_says_what_came_of_it() {
    let plan = Plan { messages: 6_000, ..SMALL };
    let setting = setting("watched", &plan);
    let (running, address) = setting.publish();
    let mut all = setting.builder(address).shared_memory().expect("attaches");
    let name = setting.name.clone();
    let watching = std::thread::spawn(move || output("subscriber", &["watch", &name, "--conflate", "--json"]));
    let mut witness = Witness::default();
    poll_until(&mut all, &mut witness, "the whole day", PATIENCE, |_, s| s.has_ended());
    let output = watching.join().expect("it ran");
    running.finish(PATIENCE);
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(output.status.success(), "{said}");
    assert_eq!((&said["ended"], &said["silent"], &said["books"]["stale"]), (&true.into(), &false.into(), &0.into()));
    assert_eq!(said["next_sequence"].as_u64(), Some(witness.next));
    let rows = said["instruments"].as_array().expect("rows");
    assert_eq!(rows.len(), 20);
    for row in rows {
        let instrument = InstrumentId(row["instrument"].as_u64().expect("a number") as u32);
        let view = all.context().book(instrument).expect("readable");
        assert_eq!(row["bids"][0]["size"].as_u64(), view.bbo().bid.map(|level| level.size), "{row}");
        assert_eq!(row["symbol"].as_str(), Some(all.context().symbol(instrument)));
    }
}
