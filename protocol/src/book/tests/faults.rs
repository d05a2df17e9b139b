//! The table "Books" of what goes wrong in public, row by row, and the rules beside it.

use super::*;
use crate::record::{REPLACED, condition};

use BookState::{Live, Suspect, Unknown};
use Side as S;

#[test]
fn fills_and_trades_never_touch_a_book() {
    let mut feed = Feed::started();
    feed.send(add(1, S::BID, 100, 10));
    let digests = feed.view(ONE).digests();
    feed.send(order(Kind::FILL, ONE, 1, S::BID, 100, 4));
    feed.send(order(Kind::TRADE, ONE, 1, S::ASK, 100, 4));
    feed.send(order(Kind::FILL, ONE, 999, S::BID, 100, 4));
    feed.send(order(Kind::CROSS, ONE, 1, S::NONE, 100, 4));
    feed.send(order(Kind::TRADE_BUST, ONE, 1, S::NONE, 100, 4));
    assert_eq!((feed.view(ONE).digests(), feed.state(ONE)), (digests, Live));
    // The cancel that follows does.
    feed.send(reduce(1, 4));
    assert_eq!(feed.levels(ONE, S::BID), [(100, 6, 1)]);
    assert_eq!(feed.state(ONE), Live);
}

#[test]
fn an_execution_takes_its_size_once_though_its_trade_follows() {
    let mut feed = Feed::started();
    feed.send(add(1, S::ASK, 100, 10));
    feed.take_events();
    feed.send(open(order(Kind::EXECUTE, ONE, 1, S::ASK, 100, 4)));
    assert_eq!(feed.levels(ONE, S::ASK), [(100, 10, 1)], "not before the event's end");
    feed.send(Record { detail: condition::PRINTABLE, ..order(Kind::TRADE, ONE, 55, S::BID, 100, 4) });
    assert_eq!(feed.levels(ONE, S::ASK), [(100, 6, 1)]);
    assert_eq!(feed.take_events().len(), 1, "one event");
    feed.send(order(Kind::EXECUTE, ONE, 1, S::ASK, 100, 6));
    assert_eq!(feed.levels(ONE, S::ASK), []);
    assert_eq!((feed.view(ONE).order(1), feed.state(ONE)), (None, Live));
}

#[test]
fn a_clear_with_size_0_clears() {
    let mut feed = Feed::started();
    feed.send(add(1, S::BID, 100, 10));
    feed.send(order(Kind::CLEAR, ONE, 0, S::NONE, UNDEFINED_PRICE, 0));
    assert_eq!((feed.view(ONE).resting_orders(), feed.view(ONE).digests()), (0, (0, 0)));
    assert_eq!((feed.levels(ONE, S::BID), feed.state(ONE)), (vec![], Live));
    feed.send(order(Kind::CLEAR, ONE, 0, S::NONE, 0, 0));
    assert_eq!(feed.state(ONE), Live, "clearing an empty book is legal");
}

#[test]
fn three_changes_with_last_on_the_third_are_one_event() {
    let mut feed = Feed::started();
    feed.send(add(1, S::BID, 100, 10));
    feed.take_events();
    let empty_before = feed.view(ONE).bbo();
    feed.send(open(add(2, S::BID, 101, 5)));
    feed.send(open(add(3, S::ASK, 103, 7)));
    assert_eq!(feed.take_events(), [], "nothing is told of half an event");
    assert_eq!(feed.view(ONE).bbo(), empty_before, "nothing is seen of half an event");
    assert!(feed.books.has_open_event(ONE));
    let ended_by = feed.send(delete(1));
    let level = |price, size| Some(Level { price, size, orders: 1 });
    let end = EventEnd {
        instrument: ONE,
        stamp: Stamp::new(Epoch(1), SequenceNumber(ended_by)),
        changed: true,
        before: Bbo { bid: level(100, 10), ask: None },
        after: Bbo { bid: level(101, 5), ask: level(103, 7) },
    };
    assert_eq!(feed.take_events(), [BookEvent::EventEnd(end)]);
    assert!(!feed.books.has_open_event(ONE));
    // Each order's priority is the sequence of its own line, not that of the event's end.
    assert_eq!(feed.queue(ONE, S::BID, 101), [(2, 5, ended_by - 2)]);
}

#[test]
fn a_missing_last_closes_after_the_bound_and_is_suspect() {
    let mut feed = Feed::started();
    let first = feed.send(open(add(1, S::BID, 100, 10)));
    // The bound counts lines of the channel, whoever's they are.
    for _ in 0..OPEN_EVENT_BOUND {
        assert!(feed.books.has_open_event(ONE));
        feed.send(order(Kind::TRADE, TWO, 1, S::NONE, 1, 1));
    }
    assert_eq!((feed.state(ONE), feed.view(ONE).resting_orders()), (Live, 0));
    feed.take_events();
    feed.send(order(Kind::TRADE, TWO, 1, S::NONE, 1, 1));
    assert_eq!((feed.state(ONE), feed.state(TWO)), (Suspect, Live));
    assert_eq!(feed.queue(ONE, S::BID, 100), [(1, 10, first)], "closed as it stands");
    assert_eq!(feed.books.inconsistencies(Inconsistency::MissingLast), 1);
    let said = StateReason::Inconsistent(Inconsistency::MissingLast);
    assert_eq!(feed.take_changes(), [(ONE, Live, Suspect, said)]);
    // The LAST that comes after all ends an event of its own.
    feed.send(add(2, S::BID, 100, 1));
    assert_eq!(feed.levels(ONE, S::BID), [(100, 11, 2)]);
}

#[test]
fn a_missing_last_closes_at_the_same_line_for_whoever_skips_other_instruments() {
    let mut feed = Feed::started();
    let first = feed.send(open(add(1, S::BID, 100, 10)));
    let stamp = |sequence| Stamp::new(Epoch(1), SequenceNumber(sequence));
    for sequence in first + 1..=first + OPEN_EVENT_BOUND {
        feed.books.pass(stamp(sequence));
    }
    assert!(feed.books.has_open_event(ONE));
    feed.books.pass(stamp(first + OPEN_EVENT_BOUND + 1));
    assert!(!feed.books.has_open_event(ONE));
    assert_eq!(feed.state(ONE), Suspect);
}

#[test]
fn events_that_never_end_stay_within_the_pool_whatever_their_number() {
    let mut feed = Feed::started();
    for id in 0..5 * OPEN_EVENT_BOUND {
        let instrument = InstrumentId(1 + (id * id % 37) as u32);
        let record = order(Kind::ADD, instrument, id, S::BID, 100, 1);
        // One in five ends an event, which leaves holes in the list of open ones.
        feed.send(if id % 5 == 0 { record } else { open(record) });
    }
    feed.send(last(Kind::EVENT_END, CHANNEL));
    let resting: u64 = feed.books.instruments().map(|i| feed.view(i).resting_orders()).sum();
    assert_eq!(resting, 5 * OPEN_EVENT_BOUND);
}

#[test]
fn a_stream_that_starts_mid_day_is_unknown_until_a_clear() {
    let mut feed = Feed::new(Start::Strict);
    feed.books.on_join_late();
    feed.send(reduce(1, 5));
    feed.send(add(2, S::BID, 100, 5));
    assert_eq!(feed.state(ONE), Unknown);
    assert_eq!(feed.take_events(), [], "no event of a book that is not readable, no inconsistency either");
    assert_eq!(feed.books.inconsistencies(Inconsistency::UnknownOrder), 0);
    feed.send(last(Kind::CLEAR, ONE));
    assert_eq!((feed.state(ONE), feed.state(TWO)), (Live, Unknown));
    assert_eq!(feed.view(ONE).resting_orders(), 0);
    assert_eq!(feed.take_changes(), [(ONE, Unknown, Live, StateReason::Clear)]);
}

#[test]
fn a_lost_level_delete_is_a_gap_then_stale_then_repaired() {
    let mut feed = Feed::started();
    feed.send(status_of(ONE, status::TRADING));
    feed.send(level(S::BID, 100, 5, 1));
    feed.send(level(S::ASK, 101, 5, 1));
    feed.lose(level(S::ASK, 101, 0, 0));
    feed.gap();
    assert_eq!(feed.state(ONE), BookState::Stale);
    feed.take_events();
    // Crossed here, not at the publisher's: neither told as an event nor blamed on the venue.
    feed.send(level(S::BID, 102, 5, 1));
    assert_eq!((feed.state(ONE), feed.take_events()), (BookState::Stale, vec![]));
    assert_eq!(feed.books.inconsistencies(Inconsistency::Crossed), 0);
    // The publisher repeats nothing, but a Clear and the levels after it do.
    feed.send(open(last(Kind::CLEAR, ONE)));
    feed.send(open(level(S::BID, 102, 5, 1)));
    feed.send(level(S::BID, 100, 5, 1));
    assert_eq!(feed.state(ONE), Live);
    assert_eq!(feed.levels(ONE, S::BID), [(102, 5, 1), (100, 5, 1)]);
    assert_eq!(feed.levels(ONE, S::ASK), []);
}

#[test]
fn crossed_is_an_inconsistency_only_while_trading() {
    let mut feed = Feed::started();
    feed.send(add(1, S::BID, 102, 5));
    feed.send(add(2, S::ASK, 101, 5));
    assert_eq!(feed.state(ONE), Live, "no status yet: before the open");
    feed.send(delete(2));
    feed.send(status_of(ONE, status::TRADING));
    feed.send(add(3, S::ASK, 102, 5));
    assert_eq!(feed.state(ONE), Live, "locked is not crossed");
    feed.send(status_of(ONE, status::HALT));
    feed.send(add(4, S::ASK, 101, 5));
    assert_eq!(feed.state(ONE), Live, "halted: an auction is being built");
    // The short-sale restriction says nothing of trading.
    feed.send(status_of(ONE, status::SHORT_SALE_RESTRICTION));
    assert_eq!(feed.state(ONE), Live);
    feed.send(status_of(ONE, status::TRADING));
    assert_eq!(feed.state(ONE), Suspect, "trading resumed and it is still crossed");
    assert_eq!(feed.books.inconsistencies(Inconsistency::Crossed), 1);
    assert_eq!(feed.levels(ONE, S::ASK), [(101, 5, 1), (102, 5, 1)], "no repair");
}

#[test]
fn crossed_is_judged_at_the_end_of_an_event() {
    let mut feed = Feed::started();
    feed.send(status_of(ONE, status::TRADING));
    feed.send(add(1, S::BID, 100, 5));
    feed.send(open(add(2, S::ASK, 99, 5)));
    feed.send(delete(1));
    assert_eq!(feed.state(ONE), Live);
}

#[test]
fn an_order_repriced_far_away_is_followed_there_and_back() {
    let mut feed = Feed::started();
    for id in 10..40 {
        feed.send(add(id, S::ASK, 599_200 + id as i64 * 100, 1));
    }
    feed.send(add(1, S::ASK, 599_200, 5));
    feed.send(modify(1, S::ASK, 898_800, 5, 0));
    assert_eq!(feed.view(ONE).order(1).map(|o| o.price), Some(898_800));
    assert_eq!(feed.view(ONE).levels(S::ASK).last().map(|l| (l.price, l.size)), Some((898_800, 5)));
    feed.send(reduce(1, 2));
    feed.send(modify(1, S::ASK, 599_200, 3, 0));
    assert_eq!(feed.levels(ONE, S::ASK)[0], (599_200, 3, 1));
    assert_eq!((feed.view(ONE).depth(S::ASK), feed.state(ONE)), (31, Live));
}

#[test]
fn a_replace_keeps_the_side_of_the_old_order() {
    let mut feed = Feed::started();
    feed.send(add(1, S::ASK, 105, 5));
    feed.send(open(Record { detail: REPLACED, ..order(Kind::DELETE, ONE, 1, S::ASK, 105, 5) }));
    feed.send(Record { detail: REPLACED, ..order(Kind::ADD, ONE, 2, S::ASK, 104, 6) });
    assert_eq!((feed.levels(ONE, S::ASK), feed.levels(ONE, S::BID)), (vec![(104, 6, 1)], vec![]));
    assert_eq!(feed.view(ONE).order(1), None);
}

#[test]
fn a_replace_of_an_unknown_order_is_ignored_and_suspect() {
    let mut feed = Feed::started();
    feed.send(open(Record { detail: REPLACED, ..order(Kind::DELETE, ONE, 1, S::NONE, UNDEFINED_PRICE, 0) }));
    feed.send(Record { detail: REPLACED, ..order(Kind::ADD, ONE, 2, S::NONE, 104, 6) });
    assert_eq!((feed.state(ONE), feed.view(ONE).resting_orders()), (Suspect, 0));
    assert_eq!(feed.books.inconsistencies(Inconsistency::UnknownOrder), 1);
    assert_eq!(feed.books.inconsistencies(Inconsistency::NoSuchSide), 1);
}

#[test]
fn sizes_and_ids_above_32_bits_are_exact() {
    let mut feed = Feed::started();
    let id = (1 << 40) + 7;
    feed.send(add(id, S::BID, 100, 1 << 33));
    // The same low half is another order.
    feed.send(add(7, S::BID, 100, 1));
    assert_eq!(feed.levels(ONE, S::BID), [(100, (1 << 33) + 1, 2)]);
    feed.send(reduce(id, (1 << 32) + 5));
    assert_eq!(feed.view(ONE).order(id).map(|o| o.size), Some((1 << 32) - 5));
    feed.send(delete(7));
    assert_eq!(feed.levels(ONE, S::BID), [(100, (1 << 32) - 5, 1)]);
    let widest = add(u64::MAX, S::ASK, 101, u64::MAX);
    feed.send(widest);
    assert_eq!(feed.levels(ONE, S::ASK), [(101, u64::MAX, 1)]);
    assert_eq!(feed.state(ONE), Live);
}

#[test]
fn two_orders_at_one_price_one_cancelled_leave_the_right_total() {
    let mut feed = Feed::started();
    let first = feed.send(add(1, S::BID, 100, 10));
    feed.send(add(2, S::BID, 100, 20));
    feed.send(delete(2));
    assert_eq!((feed.levels(ONE, S::BID), feed.queue(ONE, S::BID, 100)), (vec![(100, 10, 1)], vec![(1, 10, first)]));
}

#[test]
fn a_level_set_to_0_is_deleted() {
    let mut feed = Feed::started();
    feed.send(level(S::BID, 100, 10, 2));
    feed.send(level(S::BID, 100, 0, 2));
    assert_eq!((feed.levels(ONE, S::BID), feed.view(ONE).digests(), feed.state(ONE)), (vec![], (0, 0), Live));
}

#[test]
fn deleting_an_absent_level_is_legal_and_an_unknown_order_is_suspect() {
    let mut feed = Feed::started();
    feed.take_events();
    feed.send(level(S::BID, 100, 0, 0));
    assert_eq!((feed.levels(ONE, S::BID), feed.state(ONE)), (vec![], Live));
    let events = feed.take_events();
    assert!(matches!(events[..], [BookEvent::EventEnd(EventEnd { changed: false, .. })]), "{events:?}");
    let mut feed = Feed::started();
    feed.send(delete(1));
    assert_eq!((feed.state(ONE), feed.state(TWO)), (Suspect, Live));
    let said = StateReason::Inconsistent(Inconsistency::UnknownOrder);
    assert_eq!(feed.take_changes(), [(ONE, Live, Suspect, said)]);
}

#[test]
fn an_insert_in_mid_book_is_sorted() {
    let mut feed = Feed::started();
    for (id, price) in (1..).zip([100, 104, 102, 101, 103, 98, 106]) {
        feed.send(add(id, S::BID, price, 1));
        feed.send(add(100 + id, S::ASK, price, 1));
    }
    let prices = |side| feed.levels(ONE, side).into_iter().map(|(price, ..)| price).collect::<Vec<_>>();
    assert_eq!(prices(S::BID), [106, 104, 103, 102, 101, 100, 98]);
    assert_eq!(prices(S::ASK), [98, 100, 101, 102, 103, 104, 106]);
}

#[test]
fn a_price_far_from_the_rest_is_kept() {
    let mut feed = Feed::started();
    let far = [i64::MIN, -5, 0, 1, i64::MAX - 1];
    for (id, price) in (1..).zip(far) {
        feed.send(add(id, S::BID, price, 1));
        feed.send(add(100 + id, S::ASK, price, 1));
    }
    let prices = |side| feed.levels(ONE, side).into_iter().map(|(price, ..)| price).collect::<Vec<_>>();
    assert_eq!(prices(S::BID), [i64::MAX - 1, 1, 0, -5, i64::MIN]);
    assert_eq!(prices(S::ASK), far);
    assert_eq!(feed.state(ONE), Live);
}

#[test]
fn negative_prices_are_ordered_like_any_other() {
    let mut feed = Feed::started();
    feed.send(status_of(ONE, status::TRADING));
    feed.send(add(1, S::BID, -37_630_000_000, 1));
    feed.send(add(2, S::BID, -40_000_000_000, 1));
    feed.send(add(3, S::ASK, -37_000_000_000, 1));
    let bbo = feed.view(ONE).bbo();
    assert_eq!((bbo.bid_price(), bbo.ask_price(), bbo.is_crossed()), (-37_630_000_000, -37_000_000_000, false));
    assert_eq!(feed.state(ONE), Live);
}

#[test]
fn an_id_can_be_used_again_after_its_delete() {
    let mut feed = Feed::started();
    feed.send(add(1, S::BID, 100, 5));
    feed.send(delete(1));
    let again = feed.send(add(1, S::ASK, 101, 6));
    assert_eq!((feed.queue(ONE, S::ASK, 101), feed.levels(ONE, S::BID)), (vec![(1, 6, again)], vec![]));
    assert_eq!(feed.state(ONE), Live);
}

#[test]
fn of_two_live_orders_with_one_id_the_second_stands_and_the_book_is_suspect() {
    let mut feed = Feed::started();
    feed.send(add(1, S::BID, 100, 5));
    let other = feed.send(add(2, S::BID, 100, 3));
    let second = feed.send(add(1, S::BID, 100, 6));
    assert_eq!(feed.queue(ONE, S::BID, 100), [(2, 3, other), (1, 6, second)]);
    assert_eq!((feed.levels(ONE, S::BID), feed.view(ONE).resting_orders()), (vec![(100, 9, 2)], 2));
    assert_eq!((feed.state(ONE), feed.books.inconsistencies(Inconsistency::DuplicateOrder)), (Suspect, 1));
    let third = feed.send(add(1, S::ASK, 103, 7));
    assert_eq!((feed.levels(ONE, S::BID), feed.queue(ONE, S::ASK, 103)), (vec![(100, 3, 1)], vec![(1, 7, third)]));
}

#[test]
fn a_cancel_larger_than_the_order_removes_it_and_is_suspect() {
    for kind in [Kind::REDUCE, Kind::EXECUTE] {
        let mut feed = Feed::started();
        feed.send(add(1, S::BID, 100, 5));
        feed.send(order(kind, ONE, 1, S::BID, 100, 10));
        assert_eq!((feed.levels(ONE, S::BID), feed.view(ONE).order(1)), (vec![], None), "{kind:?}");
        assert_eq!((feed.state(ONE), feed.books.inconsistencies(Inconsistency::OverReduced)), (Suspect, 1), "{kind:?}");
    }
}

#[test]
fn one_order_id_in_two_instruments_is_two_orders() {
    let mut feed = Feed::started();
    feed.send(add(1, S::BID, 100, 5));
    feed.send(order(Kind::ADD, TWO, 1, S::ASK, 200, 6));
    feed.send(reduce(1, 5));
    assert_eq!((feed.levels(ONE, S::BID), feed.levels(TWO, S::ASK)), (vec![], vec![(200, 6, 1)]));
    assert_eq!((feed.state(ONE), feed.state(TWO)), (Live, Live));
}

#[test]
fn foreign_flags_neither_end_an_event_nor_change_a_book() {
    let mut feed = Feed::started();
    // What DBN calls flags 129 and 130 carries LAST and bits that are ours; the normaliser masks those off.
    let masked = Flags(130).without(Flags::OWN_TIME).without(Flags::CONTINUES);
    feed.send(Record { flags: masked, ..add(1, S::BID, 100, 5) });
    assert_eq!(feed.levels(ONE, S::BID), [(100, 5, 1)]);
    feed.send(Record { flags: Flags::BAD_TS.with(Flags::MAYBE_BAD_BOOK), ..add(2, S::BID, 100, 5) });
    assert!(feed.books.has_open_event(ONE), "no LAST among these");
    // Action N ends the event of its instrument, whatever its flags.
    feed.send(Record::new(Kind::EVENT_END, ONE));
    assert_eq!((feed.levels(ONE, S::BID), feed.books.has_open_event(ONE)), (vec![(100, 10, 2)], false));
}

#[test]
fn an_undefined_price_is_no_level() {
    let mut feed = Feed::started();
    feed.send(add(1, S::BID, UNDEFINED_PRICE, 5));
    assert_eq!((feed.levels(ONE, S::BID), feed.view(ONE).bbo()), (vec![], Bbo::default()));
    assert_eq!((feed.state(ONE), feed.books.inconsistencies(Inconsistency::NoPrice)), (Suspect, 1));
    let mut feed = Feed::started();
    feed.send(add(1, S::BID, 100, 5));
    feed.send(modify(1, S::BID, UNDEFINED_PRICE, 6, 0));
    assert_eq!((feed.levels(ONE, S::BID), feed.state(ONE)), (vec![(100, 5, 1)], Suspect));
    // An empty side has no price, and a level that goes away needs none.
    let mut feed = Feed::started();
    feed.send(level(S::ASK, 101, 5, 1));
    feed.send(Record { flags: Flags::LAST.with(Flags::TOB), ..level(S::ASK, UNDEFINED_PRICE, 0, 0) });
    assert_eq!((feed.levels(ONE, S::ASK), feed.state(ONE)), (vec![], Live));
}

#[test]
fn modify_by_rule_keeps_its_place_only_at_the_same_price_and_no_greater_size() {
    let mut feed = Feed::started();
    let first = feed.send(add(1, S::BID, 100, 10));
    let second = feed.send(add(2, S::BID, 100, 10));
    feed.send(modify(1, S::BID, 100, 10, modify::BY_RULE));
    assert_eq!(feed.queue(ONE, S::BID, 100), [(1, 10, first), (2, 10, second)], "the same price and size");
    feed.send(modify(1, S::BID, 100, 9, modify::BY_RULE));
    assert_eq!(feed.queue(ONE, S::BID, 100), [(1, 9, first), (2, 10, second)], "size down");
    let up = feed.send(modify(1, S::BID, 100, 10, modify::BY_RULE));
    assert_eq!(feed.queue(ONE, S::BID, 100), [(2, 10, second), (1, 10, up)], "size up");
    let away = feed.send(modify(2, S::BID, 99, 10, modify::BY_RULE));
    assert_eq!(
        (feed.queue(ONE, S::BID, 99), feed.levels(ONE, S::BID)),
        (vec![(2, 10, away)], vec![(100, 10, 1), (99, 10, 1)])
    );
    let back = feed.send(modify(2, S::BID, 100, 1, modify::BY_RULE));
    assert_eq!(feed.queue(ONE, S::BID, 100), [(1, 10, up), (2, 1, back)], "a price that comes back goes to the back");
    // A byte without a name is the rule.
    let other = feed.send(modify(1, S::BID, 100, 11, 200));
    assert_eq!(feed.queue(ONE, S::BID, 100), [(2, 1, back), (1, 11, other)]);
    assert_eq!(feed.state(ONE), Live);
}

#[test]
fn modify_that_keeps_keeps_its_priority_whatever_changes() {
    let mut feed = Feed::started();
    let first = feed.send(add(1, S::BID, 100, 10));
    let second = feed.send(add(2, S::BID, 100, 10));
    let third = feed.send(add(3, S::BID, 99, 10));
    feed.send(modify(1, S::BID, 100, 50, modify::KEEPS));
    assert_eq!(feed.queue(ONE, S::BID, 100), [(1, 50, first), (2, 10, second)]);
    // At another price it stands where its priority puts it: in front of the third, which is younger.
    feed.send(modify(1, S::BID, 99, 50, modify::KEEPS));
    assert_eq!(feed.queue(ONE, S::BID, 99), [(1, 50, first), (3, 10, third)]);
    feed.send(modify(3, S::BID, 100, 10, modify::KEEPS));
    assert_eq!(feed.queue(ONE, S::BID, 100), [(2, 10, second), (3, 10, third)]);
    // And between two others.
    feed.send(modify(2, S::BID, 99, 10, modify::KEEPS));
    feed.send(modify(3, S::BID, 99, 10, modify::KEEPS));
    feed.send(modify(2, S::BID, 99, 12, modify::KEEPS));
    assert_eq!(feed.queue(ONE, S::BID, 99), [(1, 50, first), (2, 12, second), (3, 10, third)]);
    assert_eq!(feed.state(ONE), Live);
}

#[test]
fn modify_to_the_back_goes_there_even_if_nothing_else_changes() {
    let mut feed = Feed::started();
    feed.send(add(1, S::BID, 100, 10));
    let second = feed.send(add(2, S::BID, 100, 10));
    let back = feed.send(modify(1, S::BID, 100, 10, modify::TO_BACK));
    assert_eq!(feed.queue(ONE, S::BID, 100), [(2, 10, second), (1, 10, back)]);
}

#[test]
fn modify_moves_an_order_to_the_side_it_names() {
    let mut feed = Feed::started();
    feed.send(add(1, S::BID, 100, 10));
    let moved = feed.send(modify(1, S::ASK, 100, 10, modify::BY_RULE));
    assert_eq!((feed.levels(ONE, S::BID), feed.queue(ONE, S::ASK, 100)), (vec![], vec![(1, 10, moved)]));
    feed.send(modify(1, S::ASK, 100, 0, modify::KEEPS));
    assert_eq!((feed.view(ONE).resting_orders(), feed.state(ONE)), (0, Live), "nothing left of it");
    feed.send(modify(9, S::ASK, 100, 1, modify::KEEPS));
    assert_eq!((feed.view(ONE).resting_orders(), feed.state(ONE)), (0, Suspect), "an unknown order is not invented");
}

#[test]
fn a_replace_chain_in_one_event_ends_where_its_last_link_says() {
    let mut feed = Feed::started();
    feed.send(add(1, S::BID, 100, 10));
    let other = feed.send(add(9, S::BID, 101, 10));
    let replace = |old, new, price, size| {
        [
            open(Record { detail: REPLACED, ..order(Kind::DELETE, ONE, old, S::BID, 0, 0) }),
            open(Record { detail: REPLACED, ..order(Kind::ADD, ONE, new, S::BID, price, size) }),
        ]
    };
    feed.take_events();
    let mut sequence = 0;
    for record in [replace(1, 2, 101, 5), replace(2, 3, 102, 6), replace(3, 4, 101, 7)].concat() {
        sequence = feed.send(record);
    }
    feed.send(last(Kind::EVENT_END, CHANNEL));
    assert_eq!(feed.queue(ONE, S::BID, 101), [(9, 10, other), (4, 7, sequence)]);
    assert_eq!((feed.levels(ONE, S::BID), feed.state(ONE)), (vec![(101, 17, 2)], Live));
    assert_eq!(feed.take_events().len(), 1);
}

#[test]
fn prices_one_unit_apart_are_two_levels() {
    let mut feed = Feed::started();
    feed.send(add(1, S::BID, 100_000_000_000, 1));
    feed.send(add(2, S::BID, 100_000_000_001, 1));
    assert_eq!(feed.levels(ONE, S::BID), [(100_000_000_001, 1, 1), (100_000_000_000, 1, 1)]);
}

#[test]
fn after_a_reset_five_levels_are_five_and_other_books_stand() {
    let mut feed = Feed::started();
    let mut other_channel = Feed::started();
    other_channel.send(order(Kind::ADD, TWO, 9, S::BID, 50, 1));
    for price in 95..=100 {
        feed.send(level(S::BID, price, 5, 1));
        feed.send(level(S::IMPLIED_ASK, price + 100, 5, 1));
    }
    feed.send(order(Kind::ADD, TWO, 9, S::BID, 50, 1));
    assert_eq!(feed.levels(ONE, S::BID).len(), 6);
    feed.send(last(Kind::CLEAR, CHANNEL));
    assert_eq!((feed.levels(ONE, S::IMPLIED_ASK), feed.levels(TWO, S::BID)), (vec![], vec![]));
    for price in 96..=100 {
        feed.send(level(S::BID, price, 7, 1));
    }
    let five: Vec<(i64, u64, u32)> = (96..=100).rev().map(|price| (price, 7, 1)).collect();
    assert_eq!((feed.levels(ONE, S::BID), feed.state(ONE)), (five, BookState::Live));
    assert_eq!(other_channel.levels(TWO, S::BID), [(50, 1, 1)]);
}

#[test]
fn the_same_levels_twice_change_nothing() {
    let mut feed = Feed::started();
    let snapshot = [level(S::BID, 100, 5, 1), level(S::BID, 99, 6, 2), level(S::ASK, 101, 7, 3)];
    for record in snapshot {
        feed.send(record);
    }
    let (digests, levels) = (feed.view(ONE).digests(), feed.levels(ONE, S::BID));
    feed.take_events();
    for record in snapshot {
        feed.send(record);
    }
    assert_eq!((feed.view(ONE).digests(), feed.levels(ONE, S::BID)), (digests, levels));
    let changed = |e: &BookEvent| matches!(e, BookEvent::EventEnd(EventEnd { changed: true, .. }));
    assert_eq!(feed.take_events().iter().filter(|e| changed(e)).count(), 0);
}

#[test]
fn the_same_orders_twice_after_a_clear_are_the_same_queues_with_new_places() {
    let mut feed = Feed::started();
    for _ in 0..2 {
        feed.send(open(last(Kind::CLEAR, ONE)));
        feed.send(open(add(1, S::BID, 100, 5)));
        feed.send(add(2, S::BID, 100, 6));
        let order = feed.queue(ONE, S::BID, 100).iter().map(|(id, size, _)| (*id, *size)).collect::<Vec<_>>();
        assert_eq!(
            (order, feed.levels(ONE, S::BID), feed.state(ONE)),
            (vec![(1, 5), (2, 6)], vec![(100, 11, 2)], Live)
        );
    }
}

#[test]
fn a_level_with_tob_is_the_whole_side() {
    let mut feed = Feed::started();
    let tob = |record| Record { flags: Flags::LAST.with(Flags::TOB), ..record };
    feed.send(level(S::BID, 100, 5, 1));
    feed.send(level(S::BID, 99, 5, 1));
    feed.send(level(S::ASK, 103, 5, 1));
    feed.send(tob(level(S::BID, 98, 7, 2)));
    assert_eq!((feed.levels(ONE, S::BID), feed.levels(ONE, S::ASK)), (vec![(98, 7, 2)], vec![(103, 5, 1)]));
    feed.send(tob(level(S::BID, 98, 0, 0)));
    assert_eq!((feed.levels(ONE, S::BID), feed.levels(ONE, S::ASK)), (vec![], vec![(103, 5, 1)]));
    assert_eq!(feed.state(ONE), Live);
}

#[test]
fn implied_ladders_stand_apart() {
    let mut feed = Feed::started();
    feed.send(status_of(ONE, status::TRADING));
    feed.send(level(S::ASK, 101, 5, 1));
    feed.send(level(S::IMPLIED_BID, 102, 9, 0));
    let bbo = feed.view(ONE).bbo();
    assert_eq!(
        (bbo.bid, bbo.ask_price(), feed.state(ONE)),
        (None, 101, Live),
        "implied crossed with outright is legal"
    );
    assert_eq!((feed.levels(ONE, S::IMPLIED_BID), feed.levels(ONE, S::BID)), (vec![(102, 9, 0)], vec![]));
    feed.send(level(S::IMPLIED_ASK, 102, 9, 0));
    assert_eq!(feed.state(ONE), Live, "locked");
    feed.send(level(S::IMPLIED_ASK, 101, 9, 0));
    assert_eq!(feed.state(ONE), Suspect, "implied bid above implied ask, on one ladder");
    feed.send(last(Kind::CLEAR, ONE));
    assert_eq!((feed.levels(ONE, S::IMPLIED_BID), feed.levels(ONE, S::IMPLIED_ASK)), (vec![], vec![]));
}

#[test]
fn orders_and_levels_do_not_mix_in_one_book() {
    let mut feed = Feed::started();
    feed.send(add(1, S::BID, 100, 5));
    feed.send(level(S::BID, 100, 9, 1));
    assert_eq!((feed.levels(ONE, S::BID), feed.state(ONE)), (vec![(100, 5, 1)], Suspect));
    assert_eq!(feed.books.inconsistencies(Inconsistency::MixedFeed), 1);
    // A Clear decides anew.
    feed.send(last(Kind::CLEAR, ONE));
    feed.send(level(S::BID, 100, 9, 3));
    assert_eq!((feed.levels(ONE, S::BID), feed.state(ONE)), (vec![(100, 9, 3)], Live));
}

#[test]
fn an_event_end_of_the_channel_ends_every_open_event() {
    let mut feed = Feed::started();
    feed.send(open(add(1, S::BID, 100, 5)));
    feed.send(open(order(Kind::ADD, TWO, 1, S::ASK, 200, 6)));
    feed.take_events();
    feed.send(last(Kind::EVENT_END, CHANNEL));
    let ended: Vec<_> = feed
        .take_events()
        .into_iter()
        .map(|event| match event {
            BookEvent::EventEnd(end) => (end.instrument, end.changed),
            BookEvent::State(change) => panic!("{change:?}"),
        })
        .collect();
    assert_eq!(ended, [(ONE, true), (TWO, true)]);
    assert_eq!((feed.levels(ONE, S::BID), feed.levels(TWO, S::ASK)), (vec![(100, 5, 1)], vec![(200, 6, 1)]));
}

#[test]
fn a_continuation_carries_last_and_changes_no_book() {
    let mut feed = Feed::started();
    let head = Record { flags: Flags::CONTINUES, ..add(1, S::BID, 100, 5) };
    feed.send(head);
    assert_eq!(feed.levels(ONE, S::BID), []);
    // A payload that looks like a whole other order.
    let mut tail = Record::continuation(&head, &[0xFF; 40]);
    tail.flags = Flags::LAST;
    feed.send(tail);
    assert_eq!((feed.levels(ONE, S::BID), feed.state(ONE)), (vec![(100, 5, 1)], Live));
}
