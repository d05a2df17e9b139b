//! What a strategy is told, and in which order.

use protocol::record::{InstrumentId, Kind, REPLACED, Side, StatusWord, condition, status};
use subscriber::RestingOrder;

use crate::support::{Bench, add, delete, last, open, session_start};

#[test]
fn an_event_is_its_records_then_its_end_and_the_book_changes_in_between() {
    let mut bench = Bench::new();
    bench.publish(&[session_start(), add(1, 10, Side::BID, 5, 100)]);
    assert_eq!(
        bench.notes(),
        ["1 SessionStart of 0", "session starts", "2 Add of 1, no book", "event of 1: - | - -> 5x100 (1) | -",]
    );
    // A replace, and a second order: three lines, one event. None of it shows before its end.
    let mut old = open(delete(1, 10));
    old.detail = REPLACED;
    let mut new = open(add(1, 11, Side::BID, 7, 101));
    new.detail = REPLACED;
    bench.publish(&[old, new, add(1, 12, Side::ASK, 1, 105)]);
    assert_eq!(
        bench.notes(),
        [
            "3 Delete of 1, book 5x100 (1) | -",
            "4 Add of 1, book 5x100 (1) | -",
            "5 Add of 1, book 5x100 (1) | -",
            "event of 1: 5x100 (1) | - -> 7x101 (1) | 1x105 (1)",
        ]
    );
    assert_eq!(bench.subscriber.engine().counts().events, 2);
}

#[test]
fn an_event_that_comes_in_pieces_is_told_once_it_is_whole() {
    let mut bench = Bench::new();
    bench.publish(&[session_start(), open(add(1, 10, Side::BID, 5, 100))]);
    bench.notes();
    bench.publish(&[open(add(1, 11, Side::ASK, 5, 103))]);
    assert_eq!(bench.notes(), ["3 Add of 1, book - | -"]);
    assert_eq!(bench.context().book(InstrumentId(1)).expect("Live").resting_orders(), 0, "half an event is none");
    bench.publish(&[last(Kind::EVENT_END, 0)]);
    assert_eq!(bench.notes(), ["4 EventEnd of 0", "event of 1: - | - -> 5x100 (1) | 5x103 (1)"]);
}

#[test]
fn trades_and_statuses_are_told_beside_their_records() {
    let mut bench = Bench::new();
    bench.publish(&[session_start(), add(1, 10, Side::BID, 5, 100)]);
    bench.notes();
    let mut execute = open(last(Kind::EXECUTE, 1));
    execute.order_id.set(10);
    execute.size.set(2);
    let mut trade = last(Kind::TRADE, 1);
    (trade.side, trade.detail) = (Side::ASK, condition::PRINTABLE);
    trade.order_id.set(77);
    trade.price.set(100);
    trade.size.set(2);
    let mut cross = trade;
    (cross.kind, cross.side) = (Kind::CROSS, Side::NONE);
    let mut halt = last(Kind::STATUS, 1);
    halt.detail = status::HALT;
    halt.size.set(StatusWord { reason: 3, ..StatusWord::default() }.to_u64());
    let mut closed = last(Kind::STATUS, 0);
    closed.detail = status::CLOSE;
    bench.publish(&[execute, trade, cross, halt, closed]);
    assert_eq!(
        bench.notes(),
        [
            "3 Execute of 1, book 5x100 (1) | -",
            "4 Trade of 1, book 5x100 (1) | -",
            "trade of 1: 2x100, A, match 77, condition 1",
            "event of 1: 5x100 (1) | - -> 3x100 (1) | -",
            "5 Cross of 1, book 3x100 (1) | -",
            "trade of 1: 2x100, N, match 77, condition 5",
            "event of 1: 3x100 (1) | - -> 3x100 (1) | -",
            "6 Status of 1, book 3x100 (1) | -",
            "status of 1: 8, reason 3",
            "event of 1: 3x100 (1) | - -> 3x100 (1) | -",
            "7 Status of 0",
            "status of 0: 12, reason 0",
        ]
    );
}

#[test]
fn depth_queues_and_single_orders_can_be_looked_up() {
    let mut bench = Bench::new();
    bench.publish(&[
        session_start(),
        add(1, 10, Side::BID, 5, 100),
        add(1, 11, Side::BID, 7, 100),
        add(1, 12, Side::BID, 1, 98),
        add(1, 13, Side::BID, 2, 101),
        add(1, 14, Side::ASK, 9, 110),
        add(1, 15, Side::ASK, 4, 104),
        add(2, 10, Side::ASK, 99, 104),
    ]);
    let ctx = bench.context();
    let book = ctx.book(InstrumentId(1)).expect("Live");
    let levels = |levels: protocol::book::Levels<'_>| {
        levels.map(|level| (level.price, level.size, level.orders)).collect::<Vec<_>>()
    };
    assert_eq!(levels(book.bids()), [(101, 2, 1), (100, 12, 2), (98, 1, 1)]);
    assert_eq!(levels(book.asks()), [(104, 4, 1), (110, 9, 1)]);
    assert_eq!((book.depth(Side::BID), book.depth(Side::ASK), book.resting_orders()), (3, 2, 6));
    let queue: Vec<u64> = book.queue(Side::BID, 100).map(|(order_id, _)| order_id).collect();
    assert_eq!(queue, [10, 11]);
    assert_eq!(book.order(11), Some(RestingOrder { side: Side::BID, price: 100, size: 7, priority: 3 }));
    assert_eq!(book.order(99), None);
    let other = ctx.book(InstrumentId(2)).expect("Live").order(10).expect("the same id in another book");
    assert_eq!((other.side, other.size), (Side::ASK, 99));
}
