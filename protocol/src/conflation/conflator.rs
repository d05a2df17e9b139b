//! The writing half: which cells are behind, and what they are to hold.

use std::collections::VecDeque;

use crate::book::BookState;
use crate::line::Stamp;
use crate::record::{InstrumentId, Kind, Record, Side};
use crate::recovery::SnapshotSource;
use crate::time::Nanos;

use super::{BestLevels, CELL_SYMBOL_LEN, ConflatedBook, LastTrade};

/// What is kept of an instrument beside its book.
#[derive(Clone, Copy)]
struct Known {
    /// Its cell is behind, and stands in the queue.
    is_queued: bool,
    /// Whether the symbol is that of its present Definition.
    is_named: bool,
    symbol: [u8; CELL_SYMBOL_LEN],
    price_exponent: i8,
    event_time: Nanos,
}

impl Known {
    const NEW: Known = Known {
        is_queued: false,
        is_named: false,
        symbol: [0; CELL_SYMBOL_LEN],
        price_exponent: -9,
        event_time: Nanos::ZERO,
    };
}

/// Notes which instruments were touched, and makes their books for cells. Nothing is kept of what happened in between: an
/// instrument that was touched a thousand times waits once.
pub struct Conflator {
    /// By instrument id; place 0 is the channel's and not used.
    known: Vec<Known>,
    queue: VecDeque<u32>,
    /// Cells that there are, that of the channel included.
    cells: usize,
    round: u32,
    beyond: u64,
}

impl Conflator {
    /// For cells of instruments 1 to `instruments`. Allocates now.
    pub fn new(instruments: usize) -> Conflator {
        Conflator {
            known: Vec::with_capacity(instruments + 1),
            queue: VecDeque::with_capacity(instruments + 1),
            cells: instruments + 1,
            round: 1,
            beyond: 0,
        }
    }

    /// The round that cells are written in now: to be published before the next of them is.
    pub fn round(&self) -> u32 {
        self.round
    }

    /// How many cells are behind their books.
    pub fn behind(&self) -> usize {
        self.queue.len()
    }

    /// Lines of instruments that have no cell.
    pub fn beyond(&self) -> u64 {
        self.beyond
    }

    /// A line of the channel was taken by the [`SnapshotSource`].
    #[inline]
    pub fn on_line(&mut self, record: &Record) {
        let instrument = record.instrument_id();
        if instrument == InstrumentId::CHANNEL {
            // The end of open events changes no other book than those that wait for it.
            if record.kind != Kind::EVENT_END {
                self.queue_all();
            }
            return;
        }
        if instrument.index() >= self.cells {
            self.beyond += 1;
            return;
        }
        if instrument.index() >= self.known.len() {
            // Those in between have books now, too.
            let from = self.known.len().max(1);
            self.known.resize(instrument.index() + 1, Known::NEW);
            (from..instrument.index()).for_each(|at| self.queue(at));
        }
        let known = &mut self.known[instrument.index()];
        match record.kind {
            Kind::DEFINITION => known.is_named = false,
            Kind::CONTINUATION => {}
            _ => known.event_time = record.event_time(),
        }
        self.queue(instrument.index());
    }

    /// The server has lost lines, or a new epoch begins: what cells hold is not to be believed any more.
    pub fn on_doubt(&mut self) {
        self.round = self.round.wrapping_add(1);
        self.queue_all();
    }

    /// A new epoch numbers its instruments anew.
    pub fn on_epoch(&mut self) {
        for known in &mut self.known {
            *known = Known { is_queued: known.is_queued, ..Known::NEW };
        }
        self.on_doubt();
    }

    /// The next book whose cell is behind, in the order in which they fell behind. One in the middle of an event goes on
    /// waiting.
    pub fn next(&mut self, source: &SnapshotSource) -> Option<ConflatedBook> {
        for _ in 0..self.queue.len() {
            let at = self.queue.pop_front()?;
            let instrument = InstrumentId(at);
            if source.books().has_open_event(instrument) {
                self.queue.push_back(at);
                continue;
            }
            self.known[instrument.index()].is_queued = false;
            return Some(self.book(instrument, source));
        }
        None
    }

    fn book(&mut self, instrument: InstrumentId, source: &SnapshotSource) -> ConflatedBook {
        let known = &mut self.known[instrument.index()];
        if !known.is_named
            && let Some(definition) = source.definition(instrument)
        {
            let symbol = definition.symbol();
            // Cut off between characters, so that it is text still.
            let len = (0..=symbol.len().min(CELL_SYMBOL_LEN)).rfind(|at| symbol.is_char_boundary(*at)).unwrap_or(0);
            known.symbol = [0; CELL_SYMBOL_LEN];
            known.symbol[..len].copy_from_slice(&symbol.as_bytes()[..len]);
            known.price_exponent = i8::try_from(definition.price_exponent()).unwrap_or(-9);
            known.is_named = true;
        }
        let books = source.books();
        let view = books.view(instrument);
        let side = |side| view.as_ref().map_or(BestLevels::NONE, |view| BestLevels::of(view, side));
        ConflatedBook {
            instrument,
            state: view.as_ref().map_or(BookState::Unknown, |view| view.state()),
            at: Stamp(source.next().0.saturating_sub(1)),
            round: self.round,
            event_time: known.event_time,
            trading: books.trading_is_known(instrument).then(|| books.is_trading(instrument)),
            bids: side(Side::BID),
            asks: side(Side::ASK),
            last_trade: source.last_trade(instrument).map(LastTrade::of),
            price_exponent: known.price_exponent,
            symbol: known.symbol,
        }
    }

    fn queue(&mut self, at: usize) {
        let known = &mut self.known[at];
        if !known.is_queued {
            known.is_queued = true;
            self.queue.push_back(at as u32);
        }
    }

    fn queue_all(&mut self) {
        (1..self.known.len()).for_each(|at| self.queue(at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::{BooksConfig, Start};
    use crate::line::{Epoch, SequenceNumber};
    use crate::record::Flags;

    /// A channel's lines, and what a server makes of them.
    struct Bench {
        source: SnapshotSource,
        conflator: Conflator,
        sequence: u64,
        channel: u32,
        own: [u32; 8],
    }

    impl Bench {
        fn new(cells: usize) -> Bench {
            let books = BooksConfig { instruments: 8, orders: 64, levels: 64 };
            let source = SnapshotSource::new(books, Start::Natural);
            Bench { source, conflator: Conflator::new(cells), sequence: 0, channel: 0, own: [0; 8] }
        }

        fn line(&mut self, kind: Kind, instrument: u32, price: i64, last: bool) {
            let mut record = Record::new(kind, InstrumentId(instrument));
            self.sequence += 1;
            let count = if instrument == 0 { &mut self.channel } else { &mut self.own[instrument as usize] };
            *count += 1;
            let own = if instrument == 0 { 0 } else { self.own[instrument as usize] };
            record.instrument_seq.set(own + self.channel);
            record.side = Side::BID;
            record.flags = if last { Flags::LAST } else { Flags::NONE };
            record.order_id.set(self.sequence);
            record.ts_event.set(self.sequence * 10);
            record.price.set(price);
            record.size.set(100);
            self.source.apply(Stamp::new(Epoch(1), SequenceNumber(self.sequence)), &record);
            self.conflator.on_line(&record);
        }

        fn next(&mut self) -> Option<ConflatedBook> {
            self.conflator.next(&self.source)
        }
    }

    #[test]
    fn an_instrument_that_changed_a_hundred_times_waits_once_and_shows_the_last() {
        let mut bench = Bench::new(8);
        for price in 1..=100 {
            bench.line(Kind::ADD, 2, price, true);
        }
        bench.line(Kind::TRADE, 2, 77, true);
        let first = bench.next().expect("instrument 1 exists since 2 does");
        assert_eq!((first.instrument.0, first.bbo().bid), (1, None));
        let book = bench.next().expect("behind");
        assert_eq!((book.instrument.0, book.bbo().bid.map(|bid| bid.price)), (2, Some(100)));
        assert_eq!((book.bids.levels().len(), book.bids.depth()), (10, 100));
        assert_eq!(book.last_trade.map(|trade| trade.price), Some(77));
        assert_eq!((book.at.sequence().0, book.event_time), (101, Nanos(1010)));
        assert!(bench.next().is_none());
    }

    #[test]
    fn nobody_sees_half_an_event_and_others_do_not_wait_for_it() {
        let mut bench = Bench::new(8);
        bench.line(Kind::ADD, 1, 10, true);
        assert_eq!(bench.next().map(|book| book.bids.depth()), Some(1));
        bench.line(Kind::ADD, 1, 11, false);
        bench.line(Kind::ADD, 2, 5, true);
        assert_eq!(bench.next().map(|book| book.instrument.0), Some(2));
        assert!(bench.next().is_none(), "in the middle of an event");
        assert_eq!(bench.conflator.behind(), 1);
        bench.line(Kind::ADD, 1, 12, true);
        assert_eq!(bench.next().map(|book| (book.instrument.0, book.bids.depth())), Some((1, 3)));
    }

    #[test]
    fn what_the_server_lost_begins_a_round_in_which_every_cell_is_written_anew() {
        let mut bench = Bench::new(8);
        bench.line(Kind::ADD, 1, 10, true);
        bench.line(Kind::ADD, 2, 20, true);
        let before: Vec<ConflatedBook> = std::iter::from_fn(|| bench.next()).collect();
        assert!(before.iter().all(|book| book.state.is_readable()) && before.len() == 2);
        bench.source.on_gap(Stamp::new(Epoch(1), SequenceNumber(9)));
        bench.conflator.on_doubt();
        // What stands in the cells still is not believed in this round.
        assert!(before.iter().all(|book| book.in_round(bench.conflator.round()).state == BookState::Stale));
        let after: Vec<ConflatedBook> = std::iter::from_fn(|| bench.next()).collect();
        assert_eq!(after.iter().map(|book| book.state).collect::<Vec<_>>(), [BookState::Stale; 2]);
        assert!(after.iter().all(|book| book.round == bench.conflator.round()));
    }

    #[test]
    fn a_line_of_the_channel_touches_every_book_and_an_instrument_without_a_cell_is_counted() {
        let mut bench = Bench::new(3);
        bench.line(Kind::ADD, 3, 10, true);
        bench.line(Kind::ADD, 4, 10, true);
        assert_eq!(bench.conflator.beyond(), 1);
        while bench.next().is_some() {}
        bench.line(Kind::CLEAR, 0, 0, true);
        let cleared: Vec<(u32, u32)> =
            std::iter::from_fn(|| bench.next()).map(|book| (book.instrument.0, book.bids.depth())).collect();
        assert_eq!(cleared, [(1, 0), (2, 0), (3, 0)]);
    }
}
