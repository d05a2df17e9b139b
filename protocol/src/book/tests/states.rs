//! What a book says of itself: what makes it readable, what takes that away, and what gives it back.

use super::*;

use BookState::{Live, Stale, Suspect, Unknown};

/// A Live book of ONE and one of TWO, each with an order.
fn two_books() -> Feed {
    let mut feed = Feed::started();
    feed.send(add(1, Side::BID, 100, 5));
    feed.send(order(Kind::ADD, TWO, 1, Side::ASK, 200, 6));
    feed.take_events();
    feed
}

#[test]
fn a_session_start_makes_every_book_live_and_empty() {
    let mut feed = Feed::new(Start::Strict);
    feed.send(add(1, Side::BID, 100, 5));
    assert_eq!((feed.state(ONE), feed.state(TWO)), (Unknown, Unknown));
    feed.take_events();
    feed.send(last(Kind::SESSION_START, CHANNEL));
    assert_eq!((feed.state(ONE), feed.state(TWO), feed.view(ONE).resting_orders()), (Live, Live, 0));
    assert_eq!(feed.take_changes(), [(ONE, Unknown, Live, StateReason::SessionStart)]);
}

#[test]
fn a_channel_wide_clear_empties_every_book() {
    let mut feed = two_books();
    feed.send(delete(99));
    assert_eq!(feed.state(ONE), Suspect);
    feed.take_events();
    feed.send(open(add(2, Side::BID, 101, 5)));
    feed.send(last(Kind::CLEAR, CHANNEL));
    assert_eq!((feed.state(ONE), feed.state(TWO)), (Live, Live));
    assert_eq!((feed.view(ONE).resting_orders(), feed.view(TWO).resting_orders()), (0, 0));
    assert!(!feed.books.has_open_event(ONE), "what an open event held was before the Clear");
    assert_eq!(feed.take_changes(), [(ONE, Suspect, Live, StateReason::Clear)]);
    feed.send(last(Kind::EVENT_END, CHANNEL));
    assert_eq!(feed.view(ONE).resting_orders(), 0);
}

#[test]
fn a_gap_makes_every_book_stale_and_continuing_the_count_heals_each() {
    let mut feed = two_books();
    feed.lose(add(2, Side::BID, 101, 5));
    feed.gap();
    let stale = |i| (i, Live, Stale, StateReason::Gap);
    assert_eq!(feed.take_changes(), [stale(ONE), stale(TWO)]);
    // What was lost was ONE's: TWO's next line continues its count, ONE's does not.
    feed.send(order(Kind::ADD, TWO, 2, Side::ASK, 200, 1));
    assert_eq!(feed.take_changes(), [(TWO, Stale, Live, StateReason::Continued)]);
    feed.send(add(3, Side::BID, 102, 5));
    feed.send(add(4, Side::BID, 102, 5));
    assert_eq!((feed.state(ONE), feed.take_changes()), (Stale, vec![]), "continuing later proves nothing");
}

#[test]
fn an_instrument_first_heard_of_after_a_gap_proves_itself_by_its_count() {
    let mut feed = two_books();
    feed.gap();
    feed.send(order(Kind::ADD, InstrumentId(3), 1, Side::ASK, 300, 1));
    assert_eq!(feed.state(InstrumentId(3)), Live, "its first line is number one");
    feed.lose(order(Kind::ADD, InstrumentId(4), 1, Side::ASK, 400, 1));
    feed.gap();
    feed.send(order(Kind::ADD, InstrumentId(4), 2, Side::ASK, 400, 1));
    assert_eq!(feed.state(InstrumentId(4)), Stale, "its first line is number two");
}

#[test]
fn after_a_lost_channel_wide_clear_nobody_is_taken_for_live() {
    let mut feed = two_books();
    feed.send(order(Kind::ADD, InstrumentId(3), 1, Side::ASK, 300, 1));
    feed.lose(last(Kind::CLEAR, CHANNEL));
    feed.gap();
    feed.send(add(2, Side::BID, 101, 5));
    assert_eq!((feed.state(ONE), feed.state(TWO)), (Stale, Stale));
    feed.send(add(3, Side::BID, 101, 5));
    feed.send(order(Kind::ADD, TWO, 2, Side::ASK, 200, 1));
    feed.send(order(Kind::ADD, TWO, 3, Side::ASK, 200, 1));
    assert_eq!((feed.state(ONE), feed.state(TWO)), (Stale, Stale));
    // The next channel-wide line shows the loss to those who have not spoken since.
    feed.send(last(Kind::STATISTIC, CHANNEL));
    feed.send(order(Kind::ADD, InstrumentId(3), 2, Side::ASK, 300, 1));
    assert_eq!(feed.state(InstrumentId(3)), Stale);
    assert_eq!(feed.state(InstrumentId(4)), Stale, "nor is one that nobody has heard of");
}

#[test]
fn a_lost_channel_wide_line_is_found_even_if_nobody_declared_a_gap() {
    let mut feed = two_books();
    feed.lose(last(Kind::CLEAR, CHANNEL));
    feed.send(add(2, Side::BID, 101, 5));
    assert_eq!(feed.take_changes(), [(ONE, Live, Stale, StateReason::CountJumped)]);
    feed.send(last(Kind::STATISTIC, CHANNEL));
    assert_eq!(feed.state(TWO), Stale);
}

#[test]
fn a_channel_wide_line_lost_before_a_clear_of_one_book_does_not_make_it_stale_again() {
    let mut feed = two_books();
    feed.lose(last(Kind::STATISTIC, CHANNEL));
    feed.lose(last(Kind::STATISTIC, CHANNEL));
    feed.gap();
    feed.send(last(Kind::CLEAR, ONE));
    feed.take_events();
    // The next one shows that two were lost: ONE was cleared since, TWO has not spoken since.
    feed.send(last(Kind::STATISTIC, CHANNEL));
    feed.send(add(2, Side::BID, 101, 5));
    feed.send(order(Kind::ADD, TWO, 2, Side::ASK, 200, 1));
    assert_eq!((feed.state(ONE), feed.state(TWO)), (Live, Stale));
    assert!(feed.take_changes().iter().all(|change| change.0 != ONE));
}

#[test]
fn a_book_that_missed_something_is_healed_by_an_agreeing_digest() {
    let mut feed = two_books();
    // The lost line changed nothing that a book shows.
    feed.lose(order(Kind::TRADE, ONE, 9, Side::BID, 100, 1));
    feed.gap();
    feed.send(order(Kind::TRADE, ONE, 10, Side::BID, 100, 1));
    assert_eq!(feed.state(ONE), Stale);
    feed.take_events();
    let digest = Record { detail: digest::LIVE, ..feed.digest(ONE) };
    feed.send(digest);
    assert_eq!(feed.take_changes(), [(ONE, Stale, Live, StateReason::DigestAgreed)]);
    let counts = feed.books.digest_counts();
    assert_eq!((counts.compared_stale, counts.healed, counts.compared, counts.disagreed), (1, 1, 0, 0));
    // Healed for good: the count goes on from there.
    feed.send(add(5, Side::BID, 101, 5));
    assert_eq!(feed.state(ONE), Live);
}

#[test]
fn a_stale_book_stays_so_when_the_digest_disagrees() {
    let mut feed = two_books();
    feed.lose(add(2, Side::BID, 101, 5));
    feed.gap();
    feed.lose(add(3, Side::BID, 101, 5));
    let mut digest = Record { detail: digest::LIVE, ..feed.digest(ONE) };
    digest.size.set(2);
    feed.send(digest);
    assert_eq!(feed.state(ONE), Stale);
    let counts = feed.books.digest_counts();
    assert_eq!((counts.compared_stale, counts.healed, counts.compared, counts.disagreed), (1, 0, 0, 0));
}

#[test]
fn a_disagreeing_digest_makes_a_live_book_stale_and_is_counted() {
    for wrong in 0..3 {
        let mut feed = two_books();
        let mut digest = feed.digest(ONE);
        feed.send(digest);
        assert_eq!((feed.state(ONE), feed.books.digest_counts().compared), (Live, 1));
        match wrong {
            0 => digest.order_id.set(digest.order_id.get() ^ 1),
            1 => digest.price.set(digest.price.get() ^ 1),
            _ => digest.size.set(digest.size.get() + 1),
        }
        feed.send(digest);
        assert_eq!((feed.state(ONE), feed.state(TWO)), (Stale, Live));
        assert_eq!(feed.take_changes(), [(ONE, Live, Stale, StateReason::DigestDisagreed)]);
        assert_eq!(feed.books.digest_counts().disagreed, 1);
        feed.send(add(2, Side::BID, 101, 5));
        assert_eq!(feed.state(ONE), Stale, "continuing the count does not mend a wrong book");
        feed.send(last(Kind::CLEAR, ONE));
        assert_eq!(feed.state(ONE), Live);
    }
}

#[test]
fn a_digest_of_a_publisher_that_does_not_know_its_book_is_not_compared() {
    let mut feed = two_books();
    let mut digest = Record { detail: digest::UNKNOWN, ..feed.digest(ONE) };
    digest.order_id.set(1);
    feed.send(digest);
    assert_eq!((feed.state(ONE), feed.books.digest_counts()), (Live, DigestCounts::default()));
}

#[test]
fn the_publishers_word_on_suspect_comes_with_its_digest() {
    let mut feed = two_books();
    let digest = feed.digest(ONE);
    feed.send(Record { detail: digest::SUSPECT, ..digest });
    assert_eq!(feed.state(ONE), Suspect);
    feed.send(Record { detail: digest::LIVE, ..digest });
    assert_eq!(feed.state(ONE), Live);
}

#[test]
fn a_new_epoch_makes_every_book_stale_until_it_says_what_it_holds() {
    let mut feed = two_books();
    feed.send(open(add(7, Side::BID, 99, 1)));
    feed.epoch(2);
    let stale = |i| (i, Live, Stale, StateReason::NewEpoch);
    assert_eq!(feed.take_changes(), [stale(ONE), stale(TWO)]);
    assert!(!feed.books.has_open_event(ONE));
    // The count starts at one again; continuing it proves nothing about what the old epoch left.
    feed.send(add(2, Side::BID, 101, 5));
    assert_eq!(feed.state(ONE), Stale);
    feed.send(last(Kind::SESSION_START, CHANNEL));
    assert_eq!((feed.state(ONE), feed.state(TWO), feed.view(ONE).resting_orders()), (Live, Live, 0));
    feed.send(add(2, Side::BID, 101, 5));
    assert_eq!(feed.state(ONE), Live);
}

#[test]
fn a_status_of_the_old_epoch_does_not_judge_the_new() {
    for kind in [Kind::SESSION_START, Kind::CLEAR] {
        let mut feed = two_books();
        feed.send(status_of(ONE, status::TRADING));
        feed.epoch(2);
        feed.send(last(kind, CHANNEL));
        feed.send(add(1, Side::BID, 102, 5));
        feed.send(add(2, Side::ASK, 101, 5));
        assert_eq!(feed.state(ONE), Live, "the publisher of the new epoch has not heard of any trading either");
    }
}

#[test]
fn a_status_that_may_have_been_lost_does_not_judge_what_comes_after() {
    let mut feed = two_books();
    feed.send(status_of(ONE, status::TRADING));
    feed.lose(status_of(ONE, status::HALT));
    feed.gap();
    feed.send(last(Kind::CLEAR, CHANNEL));
    feed.send(add(1, Side::BID, 102, 5));
    feed.send(add(2, Side::ASK, 101, 5));
    assert_eq!(feed.state(ONE), Live);
}

#[test]
fn a_gap_after_a_session_start_in_a_new_epoch_is_healed_by_the_count() {
    let mut feed = two_books();
    feed.epoch(2);
    feed.send(last(Kind::SESSION_START, CHANNEL));
    feed.lose(order(Kind::ADD, TWO, 1, Side::ASK, 200, 6));
    feed.gap();
    feed.send(add(1, Side::BID, 100, 5));
    assert_eq!((feed.state(ONE), feed.state(TWO)), (Live, Stale));
}

#[test]
fn lines_lost_before_a_channel_wide_clear_do_not_matter_after_it() {
    let mut feed = Feed::started();
    feed.send(add(1, Side::BID, 100, 5));
    feed.lose(add(2, Side::BID, 100, 5));
    feed.lose(order(Kind::ADD, TWO, 1, Side::ASK, 200, 6));
    feed.gap();
    feed.send(last(Kind::CLEAR, CHANNEL));
    assert_eq!((feed.state(ONE), feed.state(TWO)), (Live, Live));
    // The counts of both have jumped, and rightly so.
    feed.send(add(3, Side::BID, 100, 5));
    feed.send(order(Kind::ADD, TWO, 2, Side::ASK, 200, 6));
    assert_eq!((feed.state(ONE), feed.state(TWO)), (Live, Live));
    // From there on they count again.
    feed.lose(add(4, Side::BID, 100, 5));
    feed.gap();
    feed.send(add(5, Side::BID, 100, 5));
    feed.send(order(Kind::ADD, TWO, 3, Side::ASK, 200, 6));
    assert_eq!((feed.state(ONE), feed.state(TWO)), (Stale, Live));
}

#[test]
fn lines_lost_before_the_session_start_do_not_matter_after_it() {
    let mut feed = Feed::new(Start::Strict);
    feed.lose(last(Kind::DEFINITION, ONE));
    feed.gap();
    feed.send(last(Kind::SESSION_START, CHANNEL));
    feed.send(add(1, Side::BID, 100, 5));
    assert_eq!((feed.state(ONE), feed.levels(ONE, Side::BID)), (Live, vec![(100, 5, 1)]));
}

#[test]
fn a_clear_inside_an_event_whose_rest_is_lost_makes_nothing_live() {
    // However the event is closed in the end: by the instrument's next line, by an EventEnd, or by the bound.
    for close in 0..3 {
        let mut feed = two_books();
        feed.send(open(last(Kind::CLEAR, ONE)));
        feed.send(open(add(2, Side::BID, 101, 5)));
        feed.lose(add(3, Side::BID, 102, 5));
        feed.gap();
        match close {
            0 => _ = feed.send(add(4, Side::BID, 103, 5)),
            1 => _ = feed.send(last(Kind::EVENT_END, CHANNEL)),
            _ => (0..=OPEN_EVENT_BOUND).for_each(|_| _ = feed.send(order(Kind::TRADE, TWO, 1, Side::BID, 1, 1))),
        }
        assert!(!feed.books.has_open_event(ONE), "closed by {close}");
        assert_eq!(feed.state(ONE), Stale, "closed by {close}");
        feed.send(add(5, Side::BID, 103, 5));
        assert_eq!(feed.state(ONE), Stale, "closed by {close}");
        feed.send(last(Kind::CLEAR, ONE));
        assert_eq!(feed.state(ONE), Live);
    }
}

#[test]
fn a_clear_inside_an_event_with_a_gap_that_took_nothing_of_it_is_believed_at_the_next_line() {
    let mut feed = two_books();
    let mut wrong = feed.digest(ONE);
    wrong.size.set(9);
    feed.send(wrong);
    feed.send(open(last(Kind::CLEAR, ONE)));
    feed.lose(order(Kind::ADD, TWO, 3, Side::ASK, 201, 5));
    feed.gap();
    feed.send(last(Kind::EVENT_END, CHANNEL));
    assert_eq!((feed.state(ONE), feed.view(ONE).resting_orders()), (Stale, 0), "a line behind the Clear may be lost");
    feed.send(add(4, Side::BID, 103, 5));
    assert_eq!((feed.state(ONE), feed.levels(ONE, Side::BID)), (Live, vec![(103, 5, 1)]));
}

#[test]
fn an_open_event_goes_on_after_a_gap_that_took_nothing_of_it() {
    let mut feed = two_books();
    feed.send(open(last(Kind::CLEAR, ONE)));
    feed.send(open(add(2, Side::BID, 101, 5)));
    feed.lose(order(Kind::ADD, TWO, 3, Side::ASK, 201, 5));
    feed.gap();
    feed.send(add(4, Side::BID, 103, 5));
    assert_eq!((feed.state(ONE), feed.state(TWO)), (Live, Stale));
    assert_eq!(feed.levels(ONE, Side::BID), [(103, 5, 1), (101, 5, 1)]);
}

#[test]
fn a_late_joiner_keeps_the_counts_straight_across_its_first_channel_wide_line() {
    let mut feed = Feed::started();
    for _ in 0..40 {
        feed.send(last(Kind::STATISTIC, CHANNEL));
        feed.send(add(1, Side::BID, 100, 5));
    }
    feed.books = Books::new(SMALL, Start::Strict);
    feed.books.on_join_late();
    feed.send(last(Kind::CLEAR, ONE));
    feed.take_events();
    feed.send(add(1, Side::BID, 100, 5));
    feed.send(last(Kind::STATISTIC, CHANNEL));
    feed.send(add(2, Side::BID, 100, 5));
    feed.send(order(Kind::ADD, TWO, 1, Side::ASK, 200, 6));
    assert_eq!((feed.take_changes(), feed.state(ONE), feed.state(TWO)), (vec![], Live, Unknown));
    // And a loss is still a loss.
    feed.lose(last(Kind::CLEAR, CHANNEL));
    feed.gap();
    feed.send(add(3, Side::BID, 100, 5));
    assert_eq!(feed.state(ONE), Stale);
}

#[test]
fn a_gap_before_a_late_joiners_first_line_of_an_instrument_proves_nothing() {
    let mut feed = Feed::started();
    feed.send(add(1, Side::BID, 100, 5));
    feed.books = Books::new(SMALL, Start::Strict);
    feed.books.on_join_late();
    feed.send(last(Kind::CLEAR, CHANNEL));
    assert_eq!((feed.state(ONE), feed.state(TWO)), (Live, Live), "empty, by the Clear");
    feed.gap();
    feed.send(add(2, Side::BID, 100, 5));
    assert_eq!(feed.state(ONE), Stale, "its first line may or may not continue something");
    feed.send(add(3, Side::BID, 100, 5));
    assert_eq!(feed.state(ONE), Stale, "and its second continues only the first");
    let digest = Record { detail: digest::LIVE, ..feed.digest(ONE) };
    feed.send(digest);
    assert_eq!(feed.state(ONE), Live);
}

#[test]
fn books_of_a_natural_start_are_suspect_until_a_clear() {
    let mut feed = Feed::new(Start::Natural);
    feed.send(add(1, Side::BID, 100, 5));
    assert_eq!((feed.state(ONE), feed.state(TWO)), (Suspect, Suspect));
    assert_eq!(feed.levels(ONE, Side::BID), [(100, 5, 1)]);
    let ended = |event: &BookEvent| matches!(event, BookEvent::EventEnd(end) if end.instrument == ONE);
    assert!(feed.take_events().iter().any(ended), "readable, flagged");
    assert_eq!(feed.digest(ONE).detail, digest::SUSPECT);
    feed.send(last(Kind::CLEAR, ONE));
    assert_eq!((feed.state(ONE), feed.state(TWO)), (Live, Suspect));
    feed.send(last(Kind::SESSION_START, CHANNEL));
    assert_eq!((feed.state(ONE), feed.state(TWO)), (Live, Live));
}

#[test]
fn a_venue_gap_is_suspect_and_no_recovery_is_asked() {
    let mut feed = two_books();
    feed.send(venue_gap(ONE));
    assert_eq!(feed.take_changes(), [(ONE, Live, Suspect, StateReason::VenueGap)]);
    feed.send(venue_gap(CHANNEL));
    assert_eq!(feed.take_changes(), [(TWO, Live, Suspect, StateReason::VenueGap)]);
    assert_eq!(feed.state(InstrumentId(3)), Suspect, "nor can one be trusted that nobody has heard of");
    feed.send(last(Kind::SESSION_START, CHANNEL));
    assert_eq!((feed.state(ONE), feed.state(TWO), feed.state(InstrumentId(3))), (Live, Live, Live));
}

#[test]
fn a_venue_gap_of_an_open_event_counts_at_its_end() {
    let mut feed = two_books();
    feed.send(open(venue_gap(ONE)));
    assert_eq!(feed.state(ONE), Live);
    feed.send(add(2, Side::BID, 101, 5));
    assert_eq!(feed.state(ONE), Suspect);
}

#[test]
fn an_oddity_in_a_stale_book_is_not_blamed_on_the_venue() {
    let mut feed = two_books();
    feed.lose(add(2, Side::BID, 101, 5));
    feed.gap();
    feed.send(delete(2));
    assert_eq!((feed.state(ONE), feed.books.inconsistencies(Inconsistency::UnknownOrder)), (Stale, 0));
    feed.send(last(Kind::CLEAR, ONE));
    assert_eq!(feed.state(ONE), Live, "not Suspect by what it was Stale for");
}

#[test]
fn what_outgrows_its_configured_size_goes_on_and_is_counted() {
    let mut feed = Feed::started();
    assert_eq!(feed.books.grown(), 0);
    for id in 0..1000 {
        let instrument = InstrumentId(1 + id as u32 % 9);
        feed.send(order(Kind::ADD, instrument, id, Side::BID, id as i64, 1));
    }
    assert!(feed.books.grown() > 0);
    let resting: u64 = feed.books.instruments().map(|i| feed.view(i).resting_orders()).sum();
    assert_eq!(resting, 1000);
}

#[test]
fn instruments_beyond_the_last_have_no_book_and_are_counted() {
    let mut feed = Feed::started();
    // Not through a sequencer, which counts every instrument's lines.
    let record = order(Kind::ADD, InstrumentId(u32::MAX), 1, Side::BID, 1, 1);
    feed.books.apply(Stamp::new(Epoch(1), SequenceNumber(2)), &record);
    assert_eq!((feed.books.beyond(), feed.books.view(InstrumentId(u32::MAX)).is_none()), (1, true));
    assert_eq!(feed.books.instruments().count(), 0);
}

#[test]
fn a_book_that_may_have_missed_a_status_says_that_it_may_be_crossed_until_somebody_tells() {
    let mut feed = Feed::started();
    assert!(feed.books.suspect_is_known(ONE));
    // A Status is lost, and the Clear behind it makes the book Live: whether it trades is not known.
    feed.lose(status_of(ONE, status::TRADING));
    feed.gap();
    feed.send(last(Kind::CLEAR, CHANNEL));
    assert_eq!((feed.state(ONE), feed.books.trading_is_known(ONE)), (BookState::Live, false));
    feed.send(add(1, Side::BID, 101, 5));
    feed.send(add(2, Side::ASK, 100, 5));
    assert_eq!((feed.state(ONE), feed.books.suspect_is_known(ONE)), (BookState::Live, false));
    // That it is known now does not say what it was meanwhile.
    feed.send(status_of(ONE, status::HALT));
    assert_eq!((feed.books.trading_is_known(ONE), feed.books.suspect_is_known(ONE)), (true, false));
    let mut digest = feed.books.digest_record(ONE).expect("a book");
    digest.detail = digest::SUSPECT;
    feed.send(digest);
    assert_eq!((feed.state(ONE), feed.books.suspect_is_known(ONE)), (BookState::Suspect, true));
}
