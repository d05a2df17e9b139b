//! What a strategy implements, and what it is told.

use protocol::arbiter::Gap;
use protocol::book::{BookState, BookView, Books, EventEnd, StateChange};
use protocol::definition::Definition;
use protocol::line::{Epoch, Stamp};
use protocol::pair::Split;
use protocol::record::{InstrumentId, Kind, Record, Side, StatusWord, condition};
use protocol::run::LanePath;
use protocol::time::Nanos;

use crate::recovery::Behind;

/// A strategy. Every method has an empty body by default: implement what matters.
///
/// Calls come in stream order, on the thread that polls. Within one event of an instrument: [`Handler::on_record`] for
/// each line (with [`Handler::on_trade`] and [`Handler::on_status`] beside it where they apply), then
/// [`Handler::on_event_end`]. The book changes between the last of the former and the latter, never in the middle.
pub trait Handler {
    /// A line of a wanted instrument, or of the channel itself. The book does not hold yet what it says: it changes when
    /// the event has ended, which [`Handler::on_event_end`] tells.
    fn on_record(&mut self, _ctx: &Context<'_>, _update: &Update<'_>) {}

    /// An instrument was defined, or defined anew. Told for wanted instruments only.
    fn on_definition(&mut self, _ctx: &Context<'_>, _instrument: InstrumentId, _definition: &Definition) {}

    /// An event has ended; the book of its instrument is readable and holds all of it.
    fn on_event_end(&mut self, _ctx: &Context<'_>, _end: &EventEnd) {}

    /// A trade or a cross.
    fn on_trade(&mut self, _ctx: &Context<'_>, _trade: &Trade) {}

    /// The trading status of an instrument, or of the whole channel.
    fn on_status(&mut self, _ctx: &Context<'_>, _status: &Status) {}

    /// Lines that this subscriber will never get. Every book of the channel is Stale from here on, until proved otherwise.
    fn on_gap(&mut self, _ctx: &Context<'_>, _gap: &Gap) {}

    /// A book changed its state.
    fn on_state_change(&mut self, _ctx: &Context<'_>, _change: &StateChange) {}

    /// The publisher was started anew. Sequence numbers begin again at 1.
    fn on_epoch(&mut self, _ctx: &Context<'_>, _from: Epoch, _to: Epoch) {}

    /// This subscriber's ring is nearly full: it is too slow, and about to lose lines. Told once in a connection, and only under
    /// [`Policy::Tracked`](crate::Policy::Tracked), which ends with it.
    fn on_behind(&mut self, _ctx: &Context<'_>, _behind: &Behind) {}

    /// Nothing, not even a heartbeat, has come by this path since `since`.
    fn on_path_silent(&mut self, _ctx: &Context<'_>, _path: LanePath, _since: Nanos) {}

    /// The publishers of this channel, A and B, do not say the same: nothing is taken any more from the one that is withdrawn.
    /// Where its lines may have come into the books, every book of the channel is Stale from here on, until proved otherwise.
    fn on_split(&mut self, _ctx: &Context<'_>, _split: &Split) {}

    /// The venue's session has begun: every book is known to be empty.
    fn on_session_start(&mut self, _ctx: &Context<'_>) {}

    /// The venue's session has ended.
    fn on_session_end(&mut self, _ctx: &Context<'_>) {}

    /// The publisher has nothing more to say: it ended as planned, and everything it sent was delivered or named.
    fn on_end(&mut self, _ctx: &Context<'_>) {}

    /// A poll that brought nothing.
    fn on_idle(&mut self, _ctx: &Context<'_>) {}
}

/// A handler that does nothing: for counting and for waiting.
impl Handler for () {}

/// One line as it was delivered.
#[derive(Clone, Copy, Debug)]
pub struct Update<'a> {
    /// What it says.
    pub record: &'a Record,
    /// Its epoch and sequence number.
    pub stamp: Stamp,
    /// The publisher's clock when it was sent, in full. `None` for a Continuation, which has none, for a line that
    /// a recovery server brought, and where two of the publisher's times lay 2^32 ns or more apart, so that the low half in the line does not tell.
    pub ts_publish: Option<Nanos>,
    /// The path that brought it first: whose lane, over which carrier. For lines that waited for others this is the path that
    /// ended the wait.
    pub path: LanePath,
}

/// A trade, as told by [`Handler::on_trade`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trade {
    /// What was traded.
    pub instrument: InstrumentId,
    /// The venue's match id.
    pub match_id: u64,
    /// The price printed, in price units.
    pub price: i64,
    /// How much, in size units.
    pub size: u64,
    /// The side that started it; none in a cross or where the venue does not say.
    pub aggressor: Side,
    /// The venue's time.
    pub ts_event: Nanos,
    /// Condition bits: [`condition`].
    pub condition: u8,
}

impl Trade {
    /// Whether it counts towards volume.
    pub fn is_printable(&self) -> bool {
        self.condition & condition::PRINTABLE != 0
    }

    pub(crate) fn of(record: &Record) -> Option<Trade> {
        let cross = match record.kind {
            Kind::TRADE => 0,
            Kind::CROSS => condition::CROSS,
            _ => return None,
        };
        Some(Trade {
            instrument: record.instrument_id(),
            match_id: record.order_id.get(),
            price: record.price.get(),
            size: record.size.get(),
            aggressor: record.side,
            ts_event: record.event_time(),
            condition: record.detail | cross,
        })
    }
}

/// A trading status, as told by [`Handler::on_status`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// Whose; [`InstrumentId::CHANNEL`] for the whole channel.
    pub instrument: InstrumentId,
    /// What happened: [`protocol::record::status`].
    pub action: u8,
    /// Reason, event and the rest.
    pub word: StatusWord,
    /// The venue's raw code.
    pub raw: u64,
    /// The venue's time.
    pub ts_event: Nanos,
}

impl Status {
    pub(crate) fn of(record: &Record) -> Status {
        Status {
            instrument: record.instrument_id(),
            action: record.detail,
            word: StatusWord::from_u64(record.size.get()),
            raw: record.order_id.get(),
            ts_event: record.event_time(),
        }
    }
}

/// Why a book cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotReadable {
    /// Nothing was ever heard of this instrument.
    #[error("nothing has been heard of instrument {}", .0.0)]
    NeverHeard(InstrumentId),
    /// It is not among the selected instruments.
    #[error("instrument {} is not among those selected", .0.0)]
    NotSelected(InstrumentId),
    /// The book is not complete, or may have missed something.
    #[error("the book of instrument {} is {state:?}", .instrument.0)]
    State {
        /// Whose book.
        instrument: InstrumentId,
        /// What it says of itself.
        state: BookState,
    },
}

/// What a handler can look at while it is called.
pub struct Context<'a> {
    pub(crate) now: Nanos,
    pub(crate) books: &'a Books,
    pub(crate) directory: &'a crate::engine::Directory,
    pub(crate) lag: u64,
}

impl<'a> Context<'a> {
    /// The time of this turn of the loop, read once before it.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// The book of an instrument, if it may be read: Live, or Suspect (look at [`BookView::state`]).
    ///
    /// # Errors
    /// [`NotReadable`], which says why not.
    #[inline]
    pub fn book(&self, instrument: InstrumentId) -> Result<BookView<'a>, NotReadable> {
        self.directory.check_selected(instrument)?;
        let view = self.books.view(instrument).ok_or(NotReadable::NeverHeard(instrument))?;
        if view.state().is_readable() { Ok(view) } else { Err(NotReadable::State { instrument, state: view.state() }) }
    }

    /// The book of an instrument in whatever state it is. What it holds may be wrong: [`BookView::state`] says so.
    ///
    /// # Errors
    /// [`NotReadable::NeverHeard`] or [`NotReadable::NotSelected`].
    pub fn book_even_if_stale(&self, instrument: InstrumentId) -> Result<BookView<'a>, NotReadable> {
        self.directory.check_selected(instrument)?;
        self.books.view(instrument).ok_or(NotReadable::NeverHeard(instrument))
    }

    /// Whether an instrument trades, as its last Status said. `None` where one may have been missed.
    pub fn is_trading(&self, instrument: InstrumentId) -> Option<bool> {
        self.books.trading_is_known(instrument).then(|| self.books.is_trading(instrument))
    }

    /// Whether a book that is Live is so for the publisher too: not where a Status may have been missed, until a digest, a
    /// Clear or a snapshot has come. Until then it may be crossed, while trading, without being Suspect.
    pub fn suspect_is_known(&self, instrument: InstrumentId) -> bool {
        self.books.suspect_is_known(instrument)
    }

    /// What the publisher said of an instrument.
    pub fn definition(&self, instrument: InstrumentId) -> Option<&'a Definition> {
        self.directory.definition(instrument)
    }

    /// The venue's symbol of an instrument, empty if it is not known.
    pub fn symbol(&self, instrument: InstrumentId) -> &'a str {
        self.directory.definition(instrument).map_or("", Definition::symbol)
    }

    /// The instrument with this symbol: the newest one, where a symbol was defined more than once.
    pub fn instrument(&self, symbol: &str) -> Option<InstrumentId> {
        self.directory.find(symbol)
    }

    /// Every wanted instrument that has a definition.
    pub fn instruments(&self) -> impl Iterator<Item = (InstrumentId, &'a Definition)> + use<'a> {
        self.directory.iter()
    }

    /// How many lines are known to exist that have not been delivered yet.
    pub fn lag(&self) -> u64 {
        self.lag
    }
}
