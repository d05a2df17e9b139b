//! When a book can be read.

use protocol::book::Start;
use protocol::record::{InstrumentId, Kind, Side};
use subscriber::{BookState, NotReadable, Selection};

use crate::support::{Bench, EARLY_LINES, HEDGE_NS, add, bbo_text, delete, last, session_start};

fn refused(bench: &Bench, instrument: u32) -> Option<BookState> {
    match bench.context().book(InstrumentId(instrument)) {
        Ok(_) => None,
        Err(NotReadable::State { instrument: named, state }) => {
            assert_eq!(named.0, instrument);
            Some(state)
        }
        Err(other) => panic!("refused for another reason: {other}"),
    }
}

/// Two instruments with a bid each, Live.
fn two_books() -> Bench {
    let mut bench = Bench::new();
    bench.publish(&[session_start(), add(1, 10, Side::BID, 5, 100), add(2, 20, Side::BID, 5, 100)]);
    bench.notes();
    bench
}

#[test]
fn a_book_is_unknown_until_the_start_of_day_says_that_it_is_empty() {
    let mut bench = Bench::new();
    bench.publish(&[add(1, 10, Side::BID, 5, 100)]);
    assert_eq!(refused(&bench, 1), Some(BookState::Unknown));
    let error = bench.context().book(InstrumentId(1)).err().expect("refused");
    assert_eq!(error.to_string(), "the book of instrument 1 is Unknown");
    assert_eq!(bench.notes(), ["1 Add of 1, no book"], "and its events are not told");
    let view = bench.context().book_even_if_stale(InstrumentId(1)).expect("asked for by name");
    assert_eq!((view.state(), bbo_text(view.bbo())), (BookState::Unknown, "5x100 (1) | -".into()));

    bench.publish(&[session_start(), add(1, 11, Side::BID, 6, 100)]);
    assert_eq!(
        bench.notes(),
        [
            "2 SessionStart of 0",
            "1 Unknown -> Live: SessionStart",
            "session starts",
            "3 Add of 1, book - | -",
            "event of 1: - | - -> 6x100 (1) | -",
        ]
    );
    assert_eq!(refused(&bench, 1), None);
}

#[test]
fn a_natural_start_is_readable_and_suspect() {
    let mut bench = Bench::with(Selection::all(), Start::Natural);
    bench.publish(&[add(1, 10, Side::BID, 5, 100)]);
    assert_eq!(bench.context().book(InstrumentId(1)).expect("readable").state(), BookState::Suspect);
    assert_eq!(bench.notes(), ["1 Add of 1, no book", "event of 1: - | - -> 5x100 (1) | -"]);
}

#[test]
fn after_a_gap_every_book_is_stale_and_heals_by_continuing_its_own_count() {
    let mut bench = two_books();
    bench.lose(&[add(1, 11, Side::BID, 9, 101)]);
    bench.publish(&[add(2, 21, Side::ASK, 4, 103)]);
    assert_eq!(bench.notes(), [] as [&str; 0], "it may still come, out of order");
    bench.wait(HEDGE_NS);
    assert_eq!(
        bench.notes(),
        [
            "gap of 1 from 1:4: Missing",
            "1 Live -> Stale: Gap",
            "2 Live -> Stale: Gap",
            "5 Add of 2, no book",
            "2 Stale -> Live: Continued",
            "event of 2: 5x100 (1) | - -> 5x100 (1) | 4x103 (1)",
        ]
    );
    assert_eq!((refused(&bench, 1), refused(&bench, 2)), (Some(BookState::Stale), None));
    let stale = bench.context().book_even_if_stale(InstrumentId(1)).expect("asked for by name");
    assert_eq!((stale.state(), bbo_text(stale.bbo())), (BookState::Stale, "5x100 (1) | -".into()));

    // What was lost was of the first: its count jumps, and no line of its own makes it believable.
    bench.publish(&[add(1, 12, Side::ASK, 1, 110)]);
    assert_eq!(bench.notes(), ["6 Add of 1, no book"]);
    let digest = bench.digest(1);
    bench.publish(&[digest]);
    assert_eq!(refused(&bench, 1), Some(BookState::Stale), "the digest does not agree");
    // Once what differs is gone, it does.
    bench.publish(&[delete(1, 11)]);
    let digest = bench.digest(1);
    bench.notes();
    bench.publish(&[digest]);
    assert_eq!(bench.notes(), ["9 BookDigest of 1, no book", "1 Stale -> Live: DigestAgreed"]);
    let counts = bench.subscriber.engine().digest_counts();
    assert_eq!((counts.compared, counts.disagreed, counts.compared_stale, counts.healed), (0, 0, 2, 1));
    let engine = bench.subscriber.engine().counts();
    assert_eq!((engine.gaps, engine.lost, engine.state_changes), (1, 1, 4));
}

#[test]
fn a_lost_line_that_concerns_everybody_leaves_nobody_live() {
    let mut bench = two_books();
    bench.lose(&[last(Kind::CLEAR, 0)]);
    bench.publish(&[add(2, 21, Side::BID, 4, 90)]);
    bench.wait(HEDGE_NS);
    assert_eq!((refused(&bench, 1), refused(&bench, 2)), (Some(BookState::Stale), Some(BookState::Stale)));
    bench.publish(&[session_start()]);
    assert_eq!((refused(&bench, 1), refused(&bench, 2)), (None, None));
}

#[test]
fn a_disagreeing_digest_makes_a_book_stale() {
    let mut bench = two_books();
    let mut digest = bench.digest(1);
    digest.order_id.set(digest.order_id.get() ^ 1);
    bench.publish(&[digest]);
    assert_eq!(bench.notes(), ["4 BookDigest of 1, book 5x100 (1) | -", "1 Live -> Stale: DigestDisagreed"]);
    assert_eq!(bench.subscriber.engine().digest_counts().disagreed, 1);
}

#[test]
fn an_inconsistent_venue_makes_a_book_suspect_and_readable() {
    let mut bench = two_books();
    bench.publish(&[delete(1, 99)]);
    let notes = bench.notes();
    assert_eq!(notes[1], "1 Live -> Suspect: Inconsistent(UnknownOrder)");
    let book = bench.context().book(InstrumentId(1)).expect("readable");
    assert_eq!(book.state(), BookState::Suspect);
    assert_eq!(refused(&bench, 2), None);
}

#[test]
fn whoever_joins_late_knows_nothing_until_a_clear() {
    let mut bench = Bench::new();
    bench.lose(&[session_start(), add(1, 10, Side::BID, 5, 100)]);
    bench.lose(&vec![last(Kind::STATISTIC, 1); EARLY_LINES]);
    bench.publish(&[add(1, 11, Side::ASK, 4, 103)]);
    assert_eq!(bench.notes(), ["67 Add of 1, no book"], "what was before is not part of the stream: no gap");
    assert_eq!(refused(&bench, 1), Some(BookState::Unknown));
    let digest = bench.digest(1);
    bench.publish(&[digest]);
    assert_eq!(bench.subscriber.engine().digest_counts().compared, 0, "it does not call itself Live");
    bench.publish(&[last(Kind::CLEAR, 1), add(1, 12, Side::BID, 1, 99)]);
    assert_eq!(bbo_text(bench.context().book(InstrumentId(1)).expect("cleared").bbo()), "1x99 (1) | -");
}

#[test]
fn whoever_misses_the_first_lines_of_an_epoch_is_told_which() {
    let mut bench = Bench::new();
    bench.lose(&[session_start(), add(1, 10, Side::BID, 5, 100)]);
    bench.publish(&[add(1, 11, Side::ASK, 4, 103)]);
    bench.wait(HEDGE_NS);
    assert_eq!(bench.notes(), ["gap of 2 from 1:1: Missing", "3 Add of 1, no book"]);
    assert_eq!(refused(&bench, 1), Some(BookState::Unknown));
}

#[test]
fn counts_begin_where_a_late_joiner_does() {
    let mut bench = Bench::with(Selection::all(), Start::Natural);
    bench.lose(&vec![last(Kind::STATISTIC, 1); EARLY_LINES]);
    bench.lose(&[session_start(), add(1, 10, Side::BID, 5, 100)]);
    bench.publish(&[add(1, 11, Side::ASK, 4, 103)]);
    assert_eq!(bench.notes(), ["67 Add of 1, no book", "event of 1: - | - -> - | 4x103 (1)"]);
    let book = bench.context().book(InstrumentId(1)).expect("nothing is missing of what it was told to begin with");
    assert_eq!(book.state(), BookState::Suspect);
    // A line that concerns everybody is counted from here, too: it leaves nobody behind.
    bench.publish(&[last(Kind::STATUS, 0), add(1, 12, Side::ASK, 1, 104)]);
    assert_eq!(bench.notes().last().expect("told"), "event of 1: - | 4x103 (1) -> - | 4x103 (1)");
}
