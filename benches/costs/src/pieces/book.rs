//! One record into a book of 20 levels a side with 16 orders each; each record is an event of its own.

use std::hint::black_box;

use protocol::book::{BookState, Books, BooksConfig, Start};
use protocol::line::Stamp;
use protocol::record::{Flags, InstrumentId, Kind, Record, Side, modify};

use super::wire::FIRST;
use super::{Piece, STEPS};

const INSTRUMENT: InstrumentId = InstrumentId(1);
const LEVELS: i64 = 20;
const ORDERS: u64 = 16;
const RESTING: u64 = 2 * LEVELS as u64 * ORDERS;
const MIDDLE: i64 = 100_000_000_000;
const STEP: i64 = 10_000_000;
/// The first order at the best bid, large enough for every execution.
const BIG: u64 = 1_001;

struct Setting {
    books: Books,
    stamp: Stamp,
    own: u32,
}

impl Setting {
    fn new() -> Setting {
        let config = BooksConfig { instruments: 16, orders: 1 << 12, levels: 1 << 10 };
        let mut setting = Setting { books: Books::new(config, Start::Strict), stamp: FIRST, own: 1 };
        let mut start = Record::new(Kind::SESSION_START, InstrumentId::CHANNEL);
        start.flags = Flags::LAST;
        start.instrument_seq.set(1);
        setting.take(&start);
        let mut id = 1_000;
        for level in 1..=LEVELS {
            for _ in 0..ORDERS {
                for (side, price) in [(Side::BID, MIDDLE - level * STEP), (Side::ASK, MIDDLE + level * STEP)] {
                    id += 1;
                    setting.apply(record(Kind::ADD, side, price, id, 1_000_000_000));
                }
            }
        }
        setting
    }

    #[inline(always)]
    fn apply(&mut self, mut record: Record) {
        self.own += 1;
        record.instrument_seq.set(self.own);
        self.take(black_box(&record));
    }

    #[inline(always)]
    fn take(&mut self, record: &Record) {
        self.books.apply(self.stamp, record);
        self.stamp = self.stamp.plus(1);
        while let Some(event) = self.books.poll_event() {
            black_box(event);
        }
    }

    fn check(&self, resting: u64) {
        let view = self.books.view(INSTRUMENT).expect("it has orders");
        assert_eq!((view.state(), view.resting_orders()), (BookState::Live, resting));
    }
}

fn record(kind: Kind, side: Side, price: i64, order_id: u64, size: u64) -> Record {
    let mut record = Record::new(kind, INSTRUMENT);
    record.flags = Flags::LAST;
    record.side = side;
    record.price.set(price);
    record.order_id.set(order_id);
    record.size.set(size);
    record
}

/// A bid somewhere in the first eight levels.
#[inline(always)]
fn own_order(kind: Kind, nth: u64) -> Record {
    record(kind, Side::BID, MIDDLE - (1 + nth as i64 % 8) * STEP, 1_000_000 + nth, 100)
}

/// An order comes.
pub struct BookAdd(Setting, u64);

impl Piece for BookAdd {
    const NAME: &'static str = "book add";

    fn new() -> BookAdd {
        BookAdd(Setting::new(), 0)
    }

    #[inline(always)]
    fn step(&mut self) {
        self.0.apply(own_order(Kind::ADD, self.1));
        self.1 += 1;
    }

    fn check(&self, steps: u64) {
        self.0.check(RESTING + steps);
    }
}

/// An order goes.
pub struct BookDelete(Setting, u64);

impl Piece for BookDelete {
    const NAME: &'static str = "book delete";

    fn new() -> BookDelete {
        let mut setting = Setting::new();
        (0..STEPS as u64).for_each(|nth| setting.apply(own_order(Kind::ADD, nth)));
        BookDelete(setting, 0)
    }

    #[inline(always)]
    fn step(&mut self) {
        self.0.apply(own_order(Kind::DELETE, self.1));
        self.1 += 1;
    }

    fn check(&self, steps: u64) {
        self.0.check(RESTING + STEPS as u64 - steps);
    }
}

/// An order at the best price is executed in part.
pub struct BookExecute(Setting);

impl Piece for BookExecute {
    const NAME: &'static str = "book execute";

    fn new() -> BookExecute {
        BookExecute(Setting::new())
    }

    #[inline(always)]
    fn step(&mut self) {
        self.0.apply(record(Kind::EXECUTE, Side::BID, MIDDLE - STEP, BIG, 1));
    }

    fn check(&self, steps: u64) {
        self.0.check(RESTING);
        let order = self.0.books.view(INSTRUMENT).and_then(|view| view.order(BIG)).expect("it rests");
        assert_eq!(order.size, 1_000_000_000 - steps);
    }
}

/// An order moves to the back of the next level, and back.
pub struct BookModify(Setting, bool);

impl Piece for BookModify {
    const NAME: &'static str = "book modify";

    fn new() -> BookModify {
        BookModify(Setting::new(), false)
    }

    #[inline(always)]
    fn step(&mut self) {
        self.1 = !self.1;
        let price = if self.1 { MIDDLE - 2 * STEP } else { MIDDLE - STEP };
        let mut record = record(Kind::MODIFY, Side::BID, price, BIG, 100);
        record.detail = modify::TO_BACK;
        self.0.apply(record);
    }

    fn check(&self, steps: u64) {
        self.0.check(RESTING);
        let order = self.0.books.view(INSTRUMENT).and_then(|view| view.order(BIG)).expect("it rests");
        assert_eq!(order.price == MIDDLE - 2 * STEP, steps % 2 == 1);
    }
}

/// The digest of a book, as a record.
pub struct BookDigest(Setting, u64);

impl Piece for BookDigest {
    const NAME: &'static str = "book digest";

    fn new() -> BookDigest {
        BookDigest(Setting::new(), 0)
    }

    #[inline(always)]
    fn step(&mut self) {
        let record = self.0.books.digest_record(black_box(INSTRUMENT));
        self.1 += u64::from(black_box(record).is_some());
    }

    fn check(&self, steps: u64) {
        assert_eq!(self.1, steps);
    }
}
