//! Books under the faults that users reported of others, one test each; their states; and hostile records by the million.

mod faults;
mod hostile;
mod states;

use super::*;
use crate::line::{Epoch, SequenceNumber};
use crate::record::{UNDEFINED_PRICE, modify, status};
use crate::sequencer::Sequencer;
use crate::time::Nanos;

/// Small tables, so that tests also see them grow.
const SMALL: BooksConfig = BooksConfig { instruments: 4, orders: 16, levels: 16 };
const ONE: InstrumentId = InstrumentId(1);
const TWO: InstrumentId = InstrumentId(2);
const CHANNEL: InstrumentId = InstrumentId::CHANNEL;

/// A publisher's sequencer and one reader's books.
struct Feed {
    sequencer: Sequencer,
    books: Books,
    events: Vec<BookEvent>,
}

impl Feed {
    fn new(start: Start) -> Feed {
        Feed { sequencer: Sequencer::new(Epoch(1), 4), books: Books::new(SMALL, start), events: Vec::new() }
    }

    /// A feed whose session has begun: every book is empty and Live.
    fn started() -> Feed {
        let mut feed = Feed::new(Start::Strict);
        feed.send(last(Kind::SESSION_START, CHANNEL));
        feed
    }

    /// Numbers a record and applies it; returns its sequence number.
    fn send(&mut self, record: Record) -> u64 {
        let (stamp, line) = self.sequencer.seal(&record, Nanos(1)).expect("not exhausted");
        self.books.apply(stamp, &line.record);
        while let Some(event) = self.books.poll_event() {
            self.events.push(event);
        }
        stamp.sequence().0
    }

    /// Numbers a record that this reader never gets, and is not told of either.
    fn lose(&mut self, record: Record) {
        self.sequencer.seal(&record, Nanos(1)).expect("not exhausted");
    }

    /// Tells the reader that lines are lost.
    fn gap(&mut self) {
        self.books.on_gap();
        while let Some(event) = self.books.poll_event() {
            self.events.push(event);
        }
    }

    /// Begins another epoch on both sides.
    fn epoch(&mut self, epoch: u16) {
        self.sequencer = Sequencer::new(Epoch(epoch), 4);
        self.books.on_epoch();
        while let Some(event) = self.books.poll_event() {
            self.events.push(event);
        }
    }

    fn state(&self, instrument: InstrumentId) -> BookState {
        self.books.state(instrument)
    }

    fn view(&self, instrument: InstrumentId) -> BookView<'_> {
        self.books.view(instrument).expect("heard of")
    }

    /// Price, size and count of each level of a side, best first.
    fn levels(&self, instrument: InstrumentId, side: Side) -> Vec<(i64, u64, u32)> {
        self.view(instrument).levels(side).map(|level| (level.price, level.size, level.orders)).collect()
    }

    /// Id, size and priority of each order of a queue.
    fn queue(&self, instrument: InstrumentId, side: Side, price: i64) -> Vec<(u64, u64, u64)> {
        self.view(instrument).queue(side, price).map(|(id, order)| (id, order.size, order.priority)).collect()
    }

    /// The events told since the last call.
    fn take_events(&mut self) -> Vec<BookEvent> {
        std::mem::take(&mut self.events)
    }

    /// The changes of state told since the last call.
    fn take_changes(&mut self) -> Vec<(InstrumentId, BookState, BookState, StateReason)> {
        let changes = self.take_events().into_iter().filter_map(|event| match event {
            BookEvent::State(c) => Some((c.instrument, c.from, c.to, c.reason)),
            BookEvent::EventEnd(_) => None,
        });
        changes.collect()
    }

    /// The digest record of the publisher's book, which here is this same book.
    fn digest(&self, instrument: InstrumentId) -> Record {
        self.books.digest_record(instrument).expect("heard of")
    }
}

/// A record that ends its event.
fn last(kind: Kind, instrument: InstrumentId) -> Record {
    Record { flags: Flags::LAST, ..Record::new(kind, instrument) }
}

/// The same record in the middle of its event.
fn open(mut record: Record) -> Record {
    record.flags = record.flags.without(Flags::LAST);
    record
}

fn order(kind: Kind, instrument: InstrumentId, id: u64, side: Side, price: i64, size: u64) -> Record {
    let mut record = Record { side, ..last(kind, instrument) };
    record.order_id.set(id);
    record.price.set(price);
    record.size.set(size);
    record
}

fn add(id: u64, side: Side, price: i64, size: u64) -> Record {
    order(Kind::ADD, ONE, id, side, price, size)
}

fn modify(id: u64, side: Side, price: i64, size: u64, detail: u8) -> Record {
    Record { detail, ..order(Kind::MODIFY, ONE, id, side, price, size) }
}

fn reduce(id: u64, size: u64) -> Record {
    order(Kind::REDUCE, ONE, id, Side::NONE, UNDEFINED_PRICE, size)
}

fn delete(id: u64) -> Record {
    order(Kind::DELETE, ONE, id, Side::NONE, UNDEFINED_PRICE, 0)
}

fn level(side: Side, price: i64, size: u64, count: u64) -> Record {
    order(Kind::LEVEL_SET, ONE, count, side, price, size)
}

fn status_of(instrument: InstrumentId, action: u8) -> Record {
    Record { detail: action, ..last(Kind::STATUS, instrument) }
}

fn venue_gap(instrument: InstrumentId) -> Record {
    let mut record = last(Kind::VENUE_GAP, instrument);
    record.order_id.set(77);
    record.size.set(5);
    record
}

/// Recomputes both digests and the number of resting orders from what a reader of the book can see.
fn digests_from_scratch(view: &BookView<'_>) -> (u64, u64, u64) {
    let (mut orders, mut levels, mut resting) = (0u64, 0u64, 0u64);
    for side in store::SIDES {
        for level in view.levels(side) {
            let hash = crate::hash::level_hash(side.0, level.price, level.size, u64::from(level.orders));
            levels = levels.wrapping_add(hash);
            for (id, order) in view.queue(side, level.price) {
                let hash = crate::hash::order_hash(id, side.0, order.price, order.size, order.priority);
                orders = orders.wrapping_add(hash);
                resting += 1;
            }
        }
    }
    (orders, levels, resting)
}

/// What a reader can see of a book must hang together: sorted levels, sums and counts of their queues, digests.
fn check_book(view: &BookView<'_>, context: &dyn Fn() -> String) {
    for (at, side) in store::SIDES.into_iter().enumerate() {
        let mut before = None;
        let mut depth = 0;
        for level in view.levels(side) {
            let key = store::key_of(at, level.price);
            assert!(
                before.is_none_or(|b| b < key),
                "levels of {side:?} out of order at {}: {}",
                level.price,
                context()
            );
            before = Some(key);
            depth += 1;
            let mut priority = 0;
            let mut sum = (0u64, 0u32);
            for (id, order) in view.queue(side, level.price) {
                assert!(order.priority > priority, "queue of {} out of order: {}", level.price, context());
                assert_eq!((order.side, order.price), (side, level.price), "{}", context());
                assert_eq!(view.order(id), Some(order), "order {id}: {}", context());
                priority = order.priority;
                sum = (sum.0.wrapping_add(order.size), sum.1 + 1);
            }
            // A level without a queue is an aggregated one, and never empty.
            if sum.1 > 0 {
                assert_eq!((level.size, level.orders), sum, "level {}: {}", level.price, context());
            } else {
                assert!(level.size > 0, "empty level {} kept: {}", level.price, context());
            }
        }
        assert_eq!(view.depth(side), depth, "{}", context());
    }
    let (orders, levels) = view.digests();
    assert_eq!((orders, levels, view.resting_orders()), digests_from_scratch(view), "digests: {}", context());
}
