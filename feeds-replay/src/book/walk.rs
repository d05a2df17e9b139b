//! Through a capture event by event, books and symbols with it.

use std::collections::HashMap;

use protocol::book::{Books, BooksConfig, Start};
use protocol::channel::ChannelConfig;
use protocol::definition::{Assembler, Definition};
use protocol::line::{Epoch, Line, SequenceNumber};
use protocol::record::{Flags, InstrumentId, Kind, Record};
use protocol::time::Nanos;
use publisher::date::SessionDate;
use publisher::feed::FeedSource;
use publisher::pipeline::{Pipeline, PipelineError};
use publisher::venue::Venue;

/// What is known of an instrument.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Instrument {
    /// Its symbol, or `locate N` where the capture never gives one.
    pub symbol: String,
    /// Prices are in units of 10 to this power.
    pub price_exponent: i32,
}

/// The instruments of a capture so far, by number and by symbol.
#[derive(Debug, Default)]
pub struct Symbols {
    by_instrument: Vec<Option<Instrument>>,
    /// The instrument that was last defined under a symbol.
    by_symbol: HashMap<String, InstrumentId>,
}

impl Symbols {
    /// The instrument that this symbol names now.
    pub fn find(&self, symbol: &str) -> Option<InstrumentId> {
        self.by_symbol.get(symbol).copied()
    }

    /// What is known of an instrument.
    pub fn get(&self, instrument: InstrumentId) -> Option<&Instrument> {
        self.by_instrument.get(instrument.index())?.as_ref()
    }

    /// Every symbol, in no order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_symbol.keys().map(String::as_str)
    }

    /// How many symbols there are.
    pub fn len(&self) -> usize {
        self.by_symbol.len()
    }

    /// Whether none was defined.
    pub fn is_empty(&self) -> bool {
        self.by_symbol.is_empty()
    }

    fn define(&mut self, instrument: InstrumentId, definition: &Definition) {
        if self.by_instrument.len() <= instrument.index() {
            self.by_instrument.resize(instrument.index() + 1, None);
        }
        let symbol = match definition.symbol() {
            // The lower half is the venue's own number.
            "" => format!("locate {}", definition.venue_id as u32),
            symbol => symbol.to_owned(),
        };
        let place = &mut self.by_instrument[instrument.index()];
        if let Some(before) = place.take()
            && before.symbol != symbol
            && self.by_symbol.get(&before.symbol) == Some(&instrument)
        {
            self.by_symbol.remove(&before.symbol);
        }
        *place = Some(Instrument { symbol: symbol.clone(), price_exponent: definition.price_exponent() });
        self.by_symbol.insert(symbol, instrument);
    }
}

/// An event that is next, or was taken last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// Its time: the venue's, or that of its capture where the venue gave none.
    pub time: Nanos,
    /// The venue message that ended it, counted from 1.
    pub message: u64,
}

/// A capture, and its books as of some event in it.
///
/// [`Walk::peek`] shows the next event, which the books do not know of yet; [`Walk::advance`] takes it. Messages that
/// become no record are passed over.
pub struct Walk<S, V> {
    pipeline: Pipeline<S, V>,
    date: SessionDate,
    symbols: Symbols,
    assembler: Assembler,
    next: Option<Event>,
    /// Instruments that the next event concerns, the channel itself (0) included.
    touched: Vec<InstrumentId>,
    first: Option<Event>,
    last: Option<Event>,
    /// By instrument: the last event that concerned it.
    last_of: Vec<Option<Event>>,
    /// Start of day or a Clear of the whole channel was seen.
    began: bool,
}

impl<S: FeedSource, V: Venue> Walk<S, V> {
    /// At the start of a capture. Books are built from increments if it begins in the middle of a day; they are Suspect
    /// then.
    pub fn new(source: S, venue: V, date: SessionDate) -> Walk<S, V> {
        let config = ChannelConfig { books: BooksConfig::default(), start: Start::Natural, digest_every: 0 };
        Walk {
            pipeline: Pipeline::new(source, venue, Epoch(1), config),
            date,
            symbols: Symbols::default(),
            assembler: Assembler::default(),
            next: None,
            touched: Vec::with_capacity(64),
            first: None,
            last: None,
            last_of: Vec::new(),
            began: false,
        }
    }

    /// The next event, not taken yet; `None` at the end of the capture.
    ///
    /// # Errors
    /// [`PipelineError`], after every event before the fault.
    pub fn peek(&mut self) -> Result<Option<Event>, PipelineError> {
        if self.next.is_none() {
            self.touched.clear();
        }
        while self.next.is_none() {
            let (symbols, assembler, touched) = (&mut self.symbols, &mut self.assembler, &mut self.touched);
            let (mut time, mut sequence) = (None, self.pipeline.channel().next().sequence());
            let began = &mut self.began;
            let more = self.pipeline.publish(Nanos::ZERO, &mut |line: &Line| {
                let record = &line.record;
                // A Continuation has payload where others have their time. A venue gap lies somewhere between the event before
                // and the one after, and is no event of its own: from when on its books are Suspect nobody knows better.
                let is_gap = record.kind == Kind::VENUE_GAP && record.flags.has(Flags::OWN_TIME);
                if record.kind != Kind::CONTINUATION && !is_gap {
                    time = Some(record.event_time());
                }
                if touched.last() != Some(&record.instrument_id()) {
                    touched.push(record.instrument_id());
                }
                *began |= record.kind == Kind::SESSION_START
                    || record.kind == Kind::CLEAR && record.instrument_id() == InstrumentId::CHANNEL;
                note_definition(symbols, assembler, sequence, record);
                sequence = sequence.plus(1);
            })?;
            if !more {
                // A gap at the very end is still to be taken.
                self.pipeline.settle(Nanos::ZERO, &mut |_| {})?;
                return Ok(None);
            }
            self.next = time.map(|time| Event { time, message: self.pipeline.messages() });
        }
        Ok(self.next)
    }

    /// Takes the event that [`Walk::peek`] showed into the books. Does nothing if none was shown.
    ///
    /// # Errors
    /// [`PipelineError`].
    pub fn advance(&mut self) -> Result<(), PipelineError> {
        let Some(event) = self.next.take() else { return Ok(()) };
        self.pipeline.settle(Nanos::ZERO, &mut |_| {})?;
        self.first.get_or_insert(event);
        self.last = Some(event);
        for instrument in &self.touched {
            if self.last_of.len() <= instrument.index() {
                self.last_of.resize(instrument.index() + 1, None);
            }
            self.last_of[instrument.index()] = Some(event);
        }
        Ok(())
    }

    /// Takes every event up to and including `until`. Returns whether an event after it was seen; if not, the capture has
    /// ended.
    ///
    /// # Errors
    /// [`PipelineError`], after every event before the fault.
    pub fn advance_to(&mut self, until: Nanos) -> Result<bool, PipelineError> {
        while let Some(next) = self.peek()? {
            if next.time > until {
                return Ok(true);
            }
            self.advance()?;
        }
        Ok(false)
    }

    /// The books as of the last event taken.
    pub fn books(&self) -> &Books {
        self.pipeline.channel().books()
    }

    /// The instruments defined so far, the next event's included.
    pub fn symbols(&self) -> &Symbols {
        &self.symbols
    }

    /// Instruments that the event shown or taken last concerns; the channel itself (0) may be among them.
    pub fn touched(&self) -> &[InstrumentId] {
        &self.touched
    }

    /// The first event of the capture, once it was taken.
    pub fn first(&self) -> Option<Event> {
        self.first
    }

    /// The event taken last.
    pub fn last(&self) -> Option<Event> {
        self.last
    }

    /// The event taken last of those that concern this instrument.
    pub fn last_of(&self, instrument: InstrumentId) -> Option<Event> {
        self.last_of.get(instrument.index()).copied().flatten()
    }

    /// Whether the start of a day was among the events: if not, the capture begins in the middle of one.
    pub fn began(&self) -> bool {
        self.began
    }

    /// The session's date.
    pub fn date(&self) -> SessionDate {
        self.date
    }

    /// What a lenient source forgave.
    pub fn warning(&self) -> Option<String> {
        self.pipeline.source().warning().map(ToString::to_string)
    }
}

fn note_definition(symbols: &mut Symbols, assembler: &mut Assembler, sequence: SequenceNumber, record: &Record) {
    if record.kind != Kind::CONTINUATION && !record.flags.has(Flags::CONTINUES) {
        return;
    }
    if let Some((head, payload)) = assembler.push(sequence, record)
        && head.kind == Kind::DEFINITION
    {
        symbols.define(head.instrument_id(), &Definition::parse(head, payload));
    }
}
