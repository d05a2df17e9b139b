//! The whole of a book against the naive one.

use protocol::book::{Bbo, BookState, BookView, Level};
use protocol::record::Side;

use crate::naive::{NaiveBook, NaiveLevel, NaiveState};

const SIDES: [Side; 4] = [Side::BID, Side::ASK, Side::IMPLIED_BID, Side::IMPLIED_ASK];

fn level_of(level: Level) -> NaiveLevel {
    (level.price, level.size, u64::from(level.orders))
}

/// What a naive book would say of its best prices.
pub fn naive_bbo(book: &NaiveBook) -> [Option<NaiveLevel>; 2] {
    [book.best(Side::BID), book.best(Side::ASK)]
}

/// Best prices in the naive book's words.
pub fn bbo_of(bbo: Bbo) -> [Option<NaiveLevel>; 2] {
    [bbo.bid.map(level_of), bbo.ask.map(level_of)]
}

/// Asserts that best prices, digests and state agree.
///
/// # Panics
/// If they do not, with `context` and both sides.
pub fn assert_same_top(view: &BookView<'_>, naive: &NaiveBook, context: &dyn Fn() -> String) {
    assert_eq!(bbo_of(view.bbo()), naive_bbo(naive), "best prices: {}", context());
    let (orders, levels) = view.digests();
    assert_eq!((orders, levels, view.resting_orders()), naive.digests(), "digests: {}", context());
    assert_same_state(view.state(), naive.state(), context);
}

/// Asserts that both say the same of themselves.
///
/// # Panics
/// If they do not.
pub fn assert_same_state(state: BookState, naive: NaiveState, context: &dyn Fn() -> String) {
    let expected = match naive {
        NaiveState::Unknown => BookState::Unknown,
        NaiveState::Live => BookState::Live,
        NaiveState::Suspect => BookState::Suspect,
    };
    assert_eq!(state, expected, "state: {}", context());
}

/// Asserts that all levels and all queues, order by order, agree, and everything of [`assert_same_top`].
///
/// # Panics
/// If they do not, with `context` and both sides.
pub fn assert_same_book(view: &BookView<'_>, naive: &NaiveBook, context: &dyn Fn() -> String) {
    for side in SIDES {
        let levels: Vec<NaiveLevel> = view.levels(side).map(level_of).collect();
        assert_eq!(levels, naive.levels(side), "levels of {side:?}: {}", context());
        let mut theirs = naive.orders(side).iter();
        for (price, ..) in &levels {
            for (id, order) in view.queue(side, *price) {
                let other = theirs.next().unwrap_or_else(|| panic!("order {id} is one too many: {}", context()));
                let ours = (id, order.side, order.price, order.size, order.priority);
                let other = (other.id, side, other.price, other.size, other.priority);
                assert_eq!(ours, other, "queue of {side:?} {price}: {}", context());
            }
        }
        assert_eq!(theirs.next(), None, "an order of {side:?} is missing: {}", context());
    }
    assert_same_top(view, naive, context);
}
