//! Order books: by order, with price levels and best bid and offer as views of the same ladders.
//!
//! [`Books`] holds every book of one channel. It takes the channel's lines in order ([`Books::apply`]), is told where
//! lines are missing ([`Books::on_gap`], [`Books::on_epoch`]), and says what came of them ([`Books::poll_event`]): the end
//! of an event with the best prices before and after it, or a change of state. Publisher, subscriber, recovery server and
//! backtest all run this same code, so that the publisher's digests mean something to everybody.
//!
//! Two rules make a book trustworthy:
//!
//! - **Books change at the end of an event only.** Lines of an open event wait in a bounded pool; nobody sees half of it.
//! - **A book is readable only in the states that say so.** After a gap every book is [`BookState::Stale`] until its next
//!   record continues its own count (which counts its own lines and the channel-wide ones, so that a lost channel-wide
//!   Clear cannot hide), a digest agrees, or a Clear or new session empties it.

mod change;
mod event;
mod index;
mod ladder;
mod restore;
mod state;
mod store;
mod trust;
mod view;

use std::collections::VecDeque;

pub use restore::NotRestored;
pub use state::{BookState, Inconsistency, StateChange, StateReason};
pub use view::{Bbo, BookView, Level, Levels, Queue};

use crate::line::Stamp;
use crate::record::{Flags, InstrumentId, Kind, Record, Side, digest};
use crate::recovery::SnapshotForm;
use index::NIL;
use store::{Sides, Store};

/// A resting order, as its owner's book holds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RestingOrder {
    /// Its side.
    pub side: Side,
    /// Its price, in the instrument's price units.
    pub price: i64,
    /// What is left of it.
    pub size: u64,
    /// The sequence number of the line that last put it at the back of its queue.
    pub priority: u64,
}

/// Finds resting orders: what a normaliser needs to know of the book that its own records built.
pub trait OrderLookup {
    /// The resting order with this id in the book of `instrument`, if any.
    fn order(&self, instrument: InstrumentId, order_id: u64) -> Option<RestingOrder>;
}

/// An event that has not ended after this many lines of the channel is closed as it stands, and its book is Suspect.
///
/// Counted in lines, never in time, so that every reader of the stream closes it at the same place.
pub const OPEN_EVENT_BOUND: u64 = 8192;

/// The highest instrument id that gets a book. Publishers number instruments densely from 1.
pub const MAX_INSTRUMENTS: u32 = 1 << 22;

/// How much room is made at the start. Whatever outgrows it allocates, and [`Books::grown`] counts that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BooksConfig {
    /// Books.
    pub instruments: usize,
    /// Orders resting at one time, in all books together.
    pub orders: usize,
    /// Price levels at one time, in all books together.
    pub levels: usize,
}

impl Default for BooksConfig {
    /// A few hundred instruments: 1,024 books, 262,144 orders (80 bytes each), 65,536 levels (64 bytes each); about 26 MB.
    fn default() -> BooksConfig {
        BooksConfig { instruments: 1024, orders: 1 << 18, levels: 1 << 16 }
    }
}

/// What books are taken for when the stream starts in the middle of a day.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Start {
    /// Unknown until a snapshot, a Clear or the venue's own start of day.
    #[default]
    Strict,
    /// Built from increments, Suspect until a venue snapshot, a Clear or a start of day.
    Natural,
}

/// What [`Books::poll_event`] tells.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum BookEvent {
    /// An event of a readable book has ended.
    EventEnd(EventEnd),
    /// A book changed its state.
    State(StateChange),
}

/// The end of an event: the book before and after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EventEnd {
    /// Whose event.
    pub instrument: InstrumentId,
    /// The line that ended it.
    pub stamp: Stamp,
    /// Whether anything in the book changed.
    pub changed: bool,
    /// Best bid and offer before the event.
    pub before: Bbo,
    /// Best bid and offer after it.
    pub after: Bbo,
}

/// How digests compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DigestCounts {
    /// Compared with a book that called itself Live or Suspect.
    pub compared: u64,
    /// Of these, how many disagreed. One is one too many.
    pub disagreed: u64,
    /// Compared with a Stale book.
    pub compared_stale: u64,
    /// Of these, how many agreed and made the book readable again.
    pub healed: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FedBy {
    Nothing,
    Orders,
    Levels,
}

#[derive(Clone, Copy)]
struct Book {
    sides: Sides,
    /// The instrument_seq of the last own line, and the channel's count then.
    last_seq: u32,
    channel_at_last: u32,
    /// First and last pending line of the open event.
    pending_head: u32,
    pending_tail: u32,
    /// Sequence number of the open event's first line; 0 when none is open.
    open_since: u64,
    /// `last_seq` is known: false until the first line after a start in the middle.
    counted: bool,
    complete: bool,
    suspect: bool,
    stale: bool,
    /// Lines that concern this book may be lost: continuing its count proves nothing any more.
    broken: bool,
    /// Lines of the channel are lost since the last own line.
    gapped: bool,
    /// The last Status was Trading.
    trading: bool,
    /// Whether that is known: false where a Status may have been missed.
    trading_known: bool,
    /// It was not known for a time: a crossed book may have gone unnoticed.
    unjudged: bool,
    /// A snapshot has been asked for.
    snapshotting: bool,
    /// A snapshot of the venue's is coming in several events: what came of it so far is not the whole book.
    filling: bool,
    fed_by: FedBy,
}

impl Book {
    const NEW: Book = Book {
        sides: Sides::EMPTY,
        last_seq: 0,
        channel_at_last: 0,
        pending_head: NIL,
        pending_tail: NIL,
        open_since: 0,
        counted: true,
        complete: false,
        suspect: false,
        stale: false,
        broken: false,
        gapped: false,
        trading: false,
        trading_known: true,
        unjudged: false,
        snapshotting: false,
        filling: false,
        fed_by: FedBy::Nothing,
    };

    fn state(&self) -> BookState {
        match (self.complete, self.stale, self.suspect || self.filling) {
            (false, ..) | (true, true, _) if self.snapshotting => BookState::Snapshotting,
            (false, ..) => BookState::Unknown,
            (true, true, _) => BookState::Stale,
            (true, false, true) => BookState::Suspect,
            (true, false, false) => BookState::Live,
        }
    }
}

#[derive(Clone, Copy)]
struct PendingLine {
    record: Record,
    sequence: u64,
    next: u32,
}

/// Every book of one channel.
pub struct Books {
    store: Store,
    /// By instrument id; place 0 is the channel, and the pattern for books not seen yet.
    books: Vec<Book>,
    /// Channel-wide lines so far, as the last of them said.
    channel_seq: u32,
    /// False until the first channel-wide line after a start in the middle.
    channel_counted: bool,
    /// Lines of the channel are lost since the last channel-wide line.
    channel_gapped: bool,
    pending: Vec<PendingLine>,
    pending_free: u32,
    /// Open events by age: (instrument, sequence of the first line). Entries of events that have ended are skipped.
    open: VecDeque<(InstrumentId, u64)>,
    events: VecDeque<BookEvent>,
    digests: DigestCounts,
    inconsistencies: [u64; Inconsistency::ALL.len()],
    start: Start,
    beyond: u64,
    /// Times that the table of books outgrew its configured size.
    books_grown: u64,
}

impl Books {
    /// Books for a stream that is read from an epoch's first line. Allocates and touches all memory now.
    pub fn new(config: BooksConfig, start: Start) -> Books {
        let bound = OPEN_EVENT_BOUND as usize + 2;
        let blank =
            PendingLine { record: Record::new(Kind::CONTINUATION, InstrumentId::CHANNEL), sequence: 0, next: NIL };
        let mut pending = vec![blank; bound];
        for (i, line) in pending.iter_mut().enumerate() {
            line.next = if i + 1 < bound { i as u32 + 1 } else { NIL };
        }
        let mut books = Vec::with_capacity(config.instruments + 1);
        books.push(Book { complete: start == Start::Natural, suspect: start == Start::Natural, ..Book::NEW });
        Books {
            store: Store::new(config.orders, config.levels),
            books,
            channel_seq: 0,
            channel_counted: true,
            channel_gapped: false,
            pending,
            pending_free: 0,
            open: VecDeque::with_capacity(bound),
            // A channel-wide line makes at most two events for each book: its state, and the end of its open event.
            events: VecDeque::with_capacity(2 * config.instruments + 16),
            digests: DigestCounts::default(),
            inconsistencies: [0; Inconsistency::ALL.len()],
            start,
            beyond: 0,
            books_grown: 0,
        }
    }

    /// The stream is read from somewhere in the middle of an epoch: nothing is known of any count.
    pub fn on_join_late(&mut self) {
        self.channel_counted = false;
        for book in &mut self.books {
            (book.counted, book.trading_known) = (false, false);
        }
    }

    /// Takes the next line of the stream. Only the channel's own lines and those of wanted instruments need to come here;
    /// whatever comes, comes in order.
    #[inline]
    pub fn apply(&mut self, stamp: Stamp, record: &Record) {
        self.pass(stamp);
        let instrument = record.instrument_id();
        if instrument == InstrumentId::CHANNEL {
            return self.apply_channel(stamp, record);
        }
        if !self.make_room(instrument) {
            return;
        }
        self.count_line(instrument, record.instrument_seq.get());
        self.take(instrument, stamp, record);
    }

    /// Takes a line of an instrument that has been counted.
    #[inline(always)]
    fn take(&mut self, instrument: InstrumentId, stamp: Stamp, record: &Record) {
        let sequence = stamp.sequence().0;
        if record.kind == Kind::BOOK_DIGEST {
            return self.compare_digest(instrument, record);
        }
        let ends = record.flags.has(Flags::LAST) || record.kind == Kind::EVENT_END;
        let book = &mut self.books[instrument.index()];
        if ends && book.open_since == 0 {
            let before = view::bbo_of(&self.store, &book.sides, 0);
            let changed = self.change(instrument, record, sequence);
            self.end_event(instrument, stamp, before, changed);
        } else {
            self.keep_pending(instrument, record, sequence);
            if ends {
                self.close_event(instrument, stamp);
            }
        }
    }

    /// Takes all lines of one message at once, for who wants to know of an event's end only whether it changed a readable
    /// book: [`Books::poll_event`] does not tell of it, and the lines need not wait in the pool. The books come out as if each
    /// line had been applied.
    ///
    /// `None` if the lines are not one whole event of one instrument, or if there is more to them (another open event, a
    /// count that does not continue): nothing was done, and they are to be applied one by one.
    #[inline]
    pub fn apply_event(&mut self, lines: &[(Stamp, Record)]) -> Option<bool> {
        let instrument = lines.first()?.1.instrument_id();
        if !self.open.is_empty() || instrument == InstrumentId::CHANNEL {
            return None;
        }
        let channel_seq = self.channel_seq;
        let book = self.books.get_mut(instrument.index())?;
        if book.stale || book.gapped || !book.counted {
            return None;
        }
        let mut seq = book.last_seq.wrapping_add(channel_seq.wrapping_sub(book.channel_at_last));
        for (at, (_, record)) in lines.iter().enumerate() {
            seq = seq.wrapping_add(1);
            let is_last = record.flags.has(Flags::LAST);
            if record.instrument_id() != instrument
                || record.instrument_seq.get() != seq
                || is_last != (at + 1 == lines.len())
                || matches!(record.kind, Kind::BOOK_DIGEST | Kind::EVENT_END)
            {
                return None;
            }
        }
        (book.last_seq, book.channel_at_last) = (seq, channel_seq);
        let mut changed = false;
        for (stamp, record) in lines {
            changed |= self.change(instrument, record, stamp.sequence().0);
        }
        self.judge_crossed(instrument);
        Some(changed && self.books[instrument.index()].state().is_readable())
    }

    /// Brings what the books hold of `orders` into the cache. They come out as they were.
    #[inline]
    pub fn warm(&self, orders: &[(InstrumentId, u64)]) {
        self.store.warm(orders);
    }

    /// The line with this stamp came and is of no interest to these books. It counts towards [`OPEN_EVENT_BOUND`], so that
    /// whoever takes a selection of instruments closes an event that does not end where everybody else does.
    #[inline]
    pub fn pass(&mut self, stamp: Stamp) {
        if let Some((_, since)) = self.open.front()
            && stamp.sequence().0 - since > OPEN_EVENT_BOUND
        {
            self.close_overdue(stamp);
        }
    }

    /// Lines of the channel are lost to this reader before the next one that comes.
    pub fn on_gap(&mut self) {
        self.make_stale(StateReason::Gap);
    }

    /// Lines were delivered that the publisher which goes on may not have sent: every book is Stale, and its count, which
    /// is the same for both, proves nothing. A digest that agrees does, or a snapshot.
    pub fn on_split(&mut self) {
        self.make_stale(StateReason::Split);
        for at in 0..self.books.len() {
            self.break_count(InstrumentId(at as u32));
        }
    }

    /// A new epoch begins: counts start again, and every book is Stale until the new epoch says what it holds.
    pub fn on_epoch(&mut self) {
        self.make_stale(StateReason::NewEpoch);
        for at in 0..self.books.len() {
            self.drop_pending(InstrumentId(at as u32));
            let book = &mut self.books[at];
            book.broken |= book.complete;
            // Counts begin again with the epoch, and the last Status of the old one says nothing of the new.
            (book.last_seq, book.channel_at_last, book.counted, book.gapped) = (0, 0, true, false);
            (book.trading, book.trading_known, book.unjudged) = (false, true, false);
        }
        self.open.clear();
        (self.channel_seq, self.channel_counted, self.channel_gapped) = (0, true, false);
    }

    /// The next thing that came of what was applied.
    #[inline]
    pub fn poll_event(&mut self) -> Option<BookEvent> {
        self.events.pop_front()
    }

    /// The book of an instrument, in whatever state it is: the caller looks at [`BookView::state`]. `None` if nothing was
    /// ever heard of it.
    #[inline]
    pub fn view(&self, instrument: InstrumentId) -> Option<BookView<'_>> {
        if instrument == InstrumentId::CHANNEL {
            return None;
        }
        let book = self.books.get(instrument.index())?;
        Some(BookView { store: &self.store, sides: &book.sides, instrument, state: book.state() })
    }

    /// What the book of an instrument says of itself.
    #[inline]
    pub fn state(&self, instrument: InstrumentId) -> BookState {
        self.books.get(instrument.index()).unwrap_or(&self.books[0]).state()
    }

    /// Whether the last Status of an instrument was Trading: only then is a crossed book an inconsistency.
    #[inline]
    pub fn is_trading(&self, instrument: InstrumentId) -> bool {
        self.books.get(instrument.index()).is_some_and(|book| book.trading)
    }

    /// Whether [`Books::is_trading`] is known to be so: not in a book that lost lines, or began in the middle, and has not
    /// had a Status since.
    #[inline]
    pub fn trading_is_known(&self, instrument: InstrumentId) -> bool {
        self.books.get(instrument.index()).unwrap_or(&self.books[0]).trading_known
    }

    /// Whether a book that is Live is so for the publisher too. Where it is not known if the instrument trades, or was not for
    /// a time, a crossed book may have gone unnoticed; an agreeing digest, a snapshot or a Clear makes up for that.
    #[inline]
    pub fn suspect_is_known(&self, instrument: InstrumentId) -> bool {
        let book = self.books.get(instrument.index()).unwrap_or(&self.books[0]);
        book.trading_known && !book.unjudged
    }

    /// Every instrument heard of so far.
    pub fn instruments(&self) -> impl Iterator<Item = InstrumentId> + use<> {
        (1..self.books.len() as u32).map(InstrumentId)
    }

    /// What `instrument_seq` a line of this instrument would have had that came last of all: its own lines so far plus the
    /// channel-wide ones. `None` where that is not known: no line of it came since a start in the middle, or lines are lost.
    pub fn instrument_seq(&self, instrument: InstrumentId) -> Option<u32> {
        if instrument == InstrumentId::CHANNEL {
            return (self.channel_counted && !self.channel_gapped).then_some(self.channel_seq);
        }
        let book = self.books.get(instrument.index()).filter(|book| book.counted && !book.gapped)?;
        Some(book.last_seq.wrapping_add(self.channel_seq.wrapping_sub(book.channel_at_last)))
    }

    /// What feeds the book of an instrument.
    pub fn form(&self, instrument: InstrumentId) -> SnapshotForm {
        match self.books.get(instrument.index()).unwrap_or(&self.books[0]).fed_by {
            FedBy::Nothing => SnapshotForm::Undecided,
            FedBy::Orders => SnapshotForm::Mbo,
            FedBy::Levels => SnapshotForm::Mbp,
        }
    }

    /// The highest instrument heard of so far; the channel, if none was.
    pub fn highest(&self) -> InstrumentId {
        InstrumentId(self.books.len() as u32 - 1)
    }

    /// Whether an event of this instrument is open: a digest or a snapshot would fall inside it.
    pub fn has_open_event(&self, instrument: InstrumentId) -> bool {
        self.books.get(instrument.index()).is_some_and(|book| book.open_since != 0)
    }

    /// How digests compared so far.
    pub fn digest_counts(&self) -> DigestCounts {
        self.digests
    }

    /// How often the venue's feed was inconsistent in this way, in books that were otherwise complete.
    pub fn inconsistencies(&self, kind: Inconsistency) -> u64 {
        self.inconsistencies[kind.index()]
    }

    /// How often something outgrew its configured size and had to allocate.
    pub fn grown(&self) -> u64 {
        self.store.grown() + self.books_grown
    }

    /// Lines of instruments beyond [`MAX_INSTRUMENTS`], which have no book.
    pub fn beyond(&self) -> u64 {
        self.beyond
    }

    #[inline]
    fn make_room(&mut self, instrument: InstrumentId) -> bool {
        if instrument.index() >= self.books.len() {
            if instrument.0 > MAX_INSTRUMENTS {
                self.beyond += 1;
                return false;
            }
            self.books_grown += u64::from(instrument.index() >= self.books.capacity());
            let pattern = Book { sides: Sides::EMPTY, ..self.books[0] };
            self.books.resize(instrument.index() + 1, pattern);
        }
        true
    }

    /// A BookDigest record of the book as it stands. The caller gives it its place in the stream.
    pub fn digest_record(&self, instrument: InstrumentId) -> Option<Record> {
        let view = self.view(instrument)?;
        let (orders, levels) = view.digests();
        let mut record = Record::new(Kind::BOOK_DIGEST, instrument);
        record.flags = Flags::LAST;
        record.order_id.set(orders);
        record.price.set(levels as i64);
        record.size.set(view.resting_orders());
        record.detail = match view.state() {
            BookState::Live => digest::LIVE,
            BookState::Suspect => digest::SUSPECT,
            _ => digest::UNKNOWN,
        };
        Some(record)
    }

    /// What books are taken for at the start, as configured.
    pub fn start(&self) -> Start {
        self.start
    }
}

impl OrderLookup for Books {
    #[inline]
    fn order(&self, instrument: InstrumentId, order_id: u64) -> Option<RestingOrder> {
        let slot = self.store.slot(self.store.find(instrument, order_id)?);
        Some(RestingOrder { side: slot.side, price: slot.price, size: slot.size, priority: slot.priority })
    }
}

#[cfg(test)]
mod tests;
