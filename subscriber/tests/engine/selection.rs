//! Which instruments are told of.

use protocol::book::Start;
use protocol::record::{InstrumentId, Kind, Side};
use subscriber::{BookState, NotReadable, Selection};

use crate::support::{Bench, add, definition, last, session_start};

fn bench() -> Bench {
    let mut bench = Bench::with(Selection::symbols(["AAPL", "BRK.*"]), Start::Strict);
    bench.publish(&[session_start()]);
    bench.notes();
    bench
}

#[test]
fn wanted_instruments_are_told_and_others_skipped() {
    let mut bench = bench();
    for (instrument, symbol) in [(1, "AAPL"), (2, "MSFT"), (3, "BRK.B")] {
        bench.publish(&definition(instrument, symbol));
    }
    // The event that a definition was ends when it is known to be wanted.
    let told = ["1 is AAPL", "event of 1: - | - -> - | -", "3 is BRK.B", "event of 3: - | - -> - | -"];
    assert_eq!(bench.notes(), told);
    bench.publish(&[add(1, 10, Side::BID, 5, 100), add(2, 20, Side::BID, 5, 100), add(3, 30, Side::ASK, 6, 200)]);
    assert_eq!(
        bench.notes(),
        [
            "11 Add of 1, book - | -",
            "event of 1: - | - -> 5x100 (1) | -",
            "13 Add of 3, book - | -",
            "event of 3: - | - -> - | 6x200 (1)",
        ]
    );
    assert_eq!(bench.subscriber.engine().counts().skipped, 1);
    assert_eq!(bench.subscriber.engine().counts().lines, 13);

    let ctx = bench.context();
    let unwanted = NotReadable::NotSelected(InstrumentId(2));
    assert_eq!(ctx.book(InstrumentId(2)).err(), Some(unwanted));
    assert_eq!(ctx.book_even_if_stale(InstrumentId(2)).err(), Some(unwanted));
    assert_eq!(ctx.book(InstrumentId(9)).err(), Some(NotReadable::NeverHeard(InstrumentId(9))));
    assert_eq!(ctx.instrument("BRK.B"), Some(InstrumentId(3)));
    assert_eq!(ctx.instrument("MSFT"), None, "nothing is kept of it");
    let known: Vec<_> = ctx.instruments().map(|(instrument, known)| (instrument.0, known.symbol())).collect();
    assert_eq!(known, [(1, "AAPL"), (3, "BRK.B")]);
    assert_eq!(ctx.symbol(InstrumentId(2)), "");
}

#[test]
fn lines_before_the_definition_are_in_the_book_of_an_instrument_that_turns_out_to_be_wanted() {
    let mut bench = bench();
    bench.publish(&[add(1, 10, Side::BID, 5, 100), add(2, 20, Side::BID, 5, 100)]);
    assert_eq!(bench.notes(), [] as [&str; 0], "nobody knows yet whether they are wanted");
    assert_eq!(bench.context().book(InstrumentId(1)).err(), Some(NotReadable::NeverHeard(InstrumentId(1))));
    bench.publish(&definition(1, "AAPL"));
    bench.publish(&definition(2, "MSFT"));
    assert_eq!(bench.notes(), ["1 is AAPL", "event of 1: 5x100 (1) | - -> 5x100 (1) | -"]);
    let bid = bench.context().book(InstrumentId(1)).expect("Live").bbo().bid.expect("a bid");
    assert_eq!((bid.size, bid.price), (5, 100));
    bench.publish(&[add(1, 11, Side::ASK, 1, 101)]);
    assert_eq!(bench.notes()[1], "event of 1: 5x100 (1) | - -> 5x100 (1) | 1x101 (1)");
}

#[test]
fn digests_of_wanted_books_agree_though_the_rest_is_skipped() {
    let mut bench = bench();
    bench.publish(&definition(1, "AAPL"));
    bench.publish(&definition(2, "MSFT"));
    bench.publish(&[add(1, 10, Side::BID, 5, 100), add(2, 20, Side::BID, 5, 100)]);
    let digests = [bench.digest(1), bench.digest(2)];
    bench.publish(&digests);
    let counts = bench.subscriber.engine().digest_counts();
    assert_eq!((counts.compared, counts.disagreed), (1, 0));
}

#[test]
fn a_definition_with_a_line_lost_tells_nothing_and_the_next_one_does() {
    let mut bench = bench();
    let lines = definition(1, "AAPL");
    bench.publish(&lines[..2]);
    bench.lose(&lines[2..]);
    bench.publish(&[add(1, 10, Side::BID, 5, 100)]);
    bench.wait(1_000);
    assert_eq!(bench.notes(), ["gap of 1 from 1:4: Missing"], "its name is not known, so it is not told");
    bench.publish(&definition(1, "AAPL"));
    assert_eq!(bench.notes(), ["1 is AAPL"], "and its book is not readable yet");
    assert_eq!(bench.subscriber.engine().counts().broken_records, 1);
    // The line lost was its own, as its count tells. A Clear says what the book holds.
    assert!(matches!(bench.context().book(InstrumentId(1)), Err(NotReadable::State { .. })));
    bench.publish(&[last(Kind::CLEAR, 1)]);
    assert_eq!(bench.context().book(InstrumentId(1)).expect("cleared").resting_orders(), 0);
}

#[test]
fn a_new_definition_takes_the_place_of_the_old_one() {
    let mut bench = Bench::new();
    bench.publish(&[session_start()]);
    bench.publish(&definition(1, "OLD"));
    bench.publish(&definition(1, "NEW"));
    assert_eq!(bench.context().symbol(InstrumentId(1)), "NEW");
    assert_eq!(bench.context().instrument("NEW"), Some(InstrumentId(1)));
    assert_eq!(bench.context().instrument("OLD"), None);
    assert_eq!(bench.context().instruments().count(), 1);
}

#[test]
fn an_instrument_that_is_wanted_no_more_is_not_listed() {
    let mut bench = bench();
    bench.publish(&definition(1, "AAPL"));
    bench.publish(&definition(1, "MSFT"));
    assert_eq!(bench.context().instruments().count(), 0);
    assert_eq!(bench.context().instrument("AAPL"), None);
    assert_eq!(bench.context().book(InstrumentId(1)).err(), Some(NotReadable::NotSelected(InstrumentId(1))));
}

#[test]
fn a_book_that_was_skipped_is_stale_when_it_becomes_wanted() {
    let mut bench = bench();
    bench.publish(&definition(1, "MSFT"));
    bench.publish(&[add(1, 10, Side::BID, 5, 100)]);
    assert_eq!(bench.notes(), [] as [&str; 0]);
    bench.publish(&definition(1, "AAPL"));
    assert_eq!(bench.notes(), ["1 is AAPL", "1 Live -> Stale: CountJumped"]);
    let refused = bench.context().book(InstrumentId(1)).err();
    let state = BookState::Stale;
    assert_eq!(refused, Some(NotReadable::State { instrument: InstrumentId(1), state }), "it lacks the bid");
    bench.publish(&[last(Kind::CLEAR, 1), add(1, 11, Side::BID, 6, 100)]);
    assert_eq!(bench.notes().last().expect("told"), "event of 1: - | - -> 6x100 (1) | -");
}
