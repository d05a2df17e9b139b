//! Where snapshots come from: the books of a reader that missed nothing, and what else a late joiner must be told.

use crate::book::{BookState, Books, BooksConfig, Start};
use crate::definition::Definition;
use crate::line::{Epoch, SequenceNumber, Stamp};
use crate::record::{Flags, InstrumentId, Kind, Record, Side, statistic, status};

use super::snapshot::{SnapshotBegin, SnapshotEnd, SnapshotForm, level_record, order_record};

/// Why there is no snapshot of an instrument now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoSnapshot {
    /// Nothing was heard of it.
    NeverHeard,
    /// Its book is not complete, or may have missed something.
    NotReadable,
    /// An event of it is open.
    InEvent,
}

/// The four ladders, in the order in which a snapshot gives them.
const SIDES: [Side; 4] = [Side::BID, Side::ASK, Side::IMPLIED_BID, Side::IMPLIED_ASK];

/// The newest record of each sort that a snapshot repeats, as far as one came.
#[derive(Clone, Default)]
struct Extras {
    /// The Definition with its Continuations.
    definition: Vec<Record>,
    /// The Status that decided whether it trades, and the newest of the others.
    statuses: [Option<Record>; 2],
    /// Upper, lower and reference band.
    bands: [Option<Record>; 3],
    trade: Option<Record>,
}

impl Extras {
    fn singles(&self) -> impl Iterator<Item = &Record> {
        self.statuses.iter().chain(&self.bands).chain(std::iter::once(&self.trade)).flatten()
    }
}

/// Books of one channel with what a snapshot says beside the orders. Takes the lines of the stream in order, like
/// [`Books`].
pub struct SnapshotSource {
    books: Books,
    extras: Vec<Extras>,
    /// The lines so far of a Definition that is not whole yet.
    definition: Vec<Record>,
    /// The stamp of the line that comes next.
    next: Stamp,
}

impl SnapshotSource {
    /// A source that has seen nothing. Allocates now what its books need.
    pub fn new(books: BooksConfig, start: Start) -> SnapshotSource {
        SnapshotSource {
            extras: Vec::with_capacity(books.instruments + 1),
            books: Books::new(books, start),
            definition: Vec::new(),
            next: Stamp(0),
        }
    }

    /// The books.
    pub fn books(&self) -> &Books {
        &self.books
    }

    /// The stamp of the line that comes next; 0 before anything came.
    pub fn next(&self) -> Stamp {
        self.next
    }

    /// The last trade or cross of an instrument since the session began.
    pub fn last_trade(&self, instrument: InstrumentId) -> Option<&Record> {
        self.extras.get(instrument.index())?.trade.as_ref()
    }

    /// The newest Definition of an instrument, if one came whole. Allocates.
    pub fn definition(&self, instrument: InstrumentId) -> Option<Definition> {
        let (head, rest) = self.extras.get(instrument.index())?.definition.split_first()?;
        let payload: Vec<u8> = rest.iter().flat_map(|record| record.payload()).copied().collect();
        Some(Definition::parse(head, &payload))
    }

    /// The stream is taken up at `at`.
    pub fn on_joined(&mut self, at: Stamp) {
        if at.sequence() != SequenceNumber::FIRST {
            self.books.on_join_late();
        }
        self.next = at;
    }

    /// Takes the next line.
    pub fn apply(&mut self, stamp: Stamp, record: &Record) {
        self.next = stamp.plus(1);
        self.note(record);
        self.books.apply(stamp, record);
        while self.books.poll_event().is_some() {}
    }

    /// The lines before `next` are lost to this reader.
    pub fn on_gap(&mut self, next: Stamp) {
        self.next = next;
        self.definition.clear();
        self.books.on_gap();
        while self.books.poll_event().is_some() {}
    }

    /// A new epoch begins: its instruments are numbered anew.
    pub fn on_epoch(&mut self, to: Epoch) {
        self.next = Stamp::new(to, SequenceNumber::FIRST);
        self.definition.clear();
        self.extras.clear();
        self.books.on_epoch();
        while self.books.poll_event().is_some() {}
    }

    fn note(&mut self, record: &Record) {
        let instrument = record.instrument_id();
        match record.kind {
            Kind::SESSION_START if instrument == InstrumentId::CHANNEL => {
                // What was said of the old session says nothing of the new one. Definitions hold for the epoch.
                for extras in &mut self.extras {
                    (extras.statuses, extras.bands, extras.trade) = Default::default();
                }
                return;
            }
            Kind::DEFINITION => {
                self.definition.clear();
                self.definition.push(*record);
            }
            Kind::CONTINUATION if !self.definition.is_empty() => self.definition.push(*record),
            Kind::STATUS | Kind::STATISTIC | Kind::TRADE | Kind::CROSS => {}
            _ => return self.definition.clear(),
        }
        // Whose number is beyond all books has no snapshot either.
        if instrument == InstrumentId::CHANNEL || instrument.0 > crate::book::MAX_INSTRUMENTS {
            return;
        }
        if instrument.index() >= self.extras.len() {
            self.extras.resize(instrument.index() + 1, Extras::default());
        }
        let extras = &mut self.extras[instrument.index()];
        let kept = Some(Record { flags: record.flags.without(Flags::CONTINUES), ..*record });
        match record.kind {
            Kind::DEFINITION | Kind::CONTINUATION => {
                if !record.flags.has(Flags::CONTINUES) {
                    std::mem::swap(&mut extras.definition, &mut self.definition);
                    self.definition.clear();
                }
                return;
            }
            Kind::STATUS => extras.statuses[usize::from(!status::decides_trading(record.detail))] = kept,
            Kind::STATISTIC => match record.detail {
                statistic::UPPER_BAND => extras.bands[0] = kept,
                statistic::LOWER_BAND => extras.bands[1] = kept,
                statistic::REFERENCE_BAND => extras.bands[2] = kept,
                _ => {}
            },
            _ => extras.trade = kept,
        }
        self.definition.clear();
    }

    /// How many lines a snapshot of this instrument takes now, SnapshotBegin and SnapshotEnd included.
    ///
    /// # Errors
    /// [`NoSnapshot`].
    pub fn lines_of(&self, instrument: InstrumentId) -> Result<u64, NoSnapshot> {
        if instrument == InstrumentId::CHANNEL {
            return if self.books.channel_is_known() { Ok(2) } else { Err(NoSnapshot::NotReadable) };
        }
        let view = self.books.view(instrument).ok_or(NoSnapshot::NeverHeard)?;
        if !view.state().is_readable() || self.books.instrument_seq(instrument).is_none() {
            return Err(NoSnapshot::NotReadable);
        }
        if self.books.has_open_event(instrument) {
            return Err(NoSnapshot::InEvent);
        }
        let extras =
            self.extras.get(instrument.index()).map_or(0, |extras| extras.definition.len() + extras.singles().count());
        let entries = match self.books.form(instrument) {
            SnapshotForm::Mbp | SnapshotForm::Bbo => SIDES.map(|side| view.depth(side)).iter().sum::<usize>() as u64,
            SnapshotForm::Mbo | SnapshotForm::Undecided => view.resting_orders(),
        };
        Ok(extras as u64 + entries + 2)
    }

    /// Writes the snapshot of an instrument, as of the last line taken, line by line. That of the channel says what books
    /// are that nothing was heard of yet: complete and empty, if it is given at all.
    ///
    /// # Errors
    /// [`NoSnapshot`], and nothing was written.
    pub fn write(&self, instrument: InstrumentId, out: &mut impl FnMut(Record)) -> Result<(), NoSnapshot> {
        let lines = self.lines_of(instrument)?;
        let instrument_seq = self.books.instrument_seq(instrument).expect("lines_of looked");
        let form = self.books.form(instrument);
        let at = Stamp(self.next.0 - 1);
        let suspect = self.books.state(instrument) == BookState::Suspect;
        let suspect_known = self.books.suspect_is_known(instrument);
        let begin = SnapshotBegin { instrument, at, lines: lines - 1, instrument_seq, form, suspect, suspect_known };
        out(begin.to_record());
        let Some(view) = self.books.view(instrument) else {
            let count = u64::from(self.books.highest().0);
            out(SnapshotEnd { instrument, at, orders: 0, levels: 0, count }.to_record());
            return Ok(());
        };
        if let Some(extras) = self.extras.get(instrument.index()) {
            for record in extras.definition.iter().chain(extras.singles()) {
                let mut record = Record { flags: record.flags.with(Flags::SNAPSHOT), ..*record };
                // What the book itself believes rules: after a loss it no longer takes an old Status for true.
                if record.kind == Kind::STATUS
                    && status::decides_trading(record.detail)
                    && (record.detail == status::TRADING) != self.books.is_trading(instrument)
                {
                    record.detail = status::NONE;
                }
                out(record);
            }
        }
        let mut count = 0;
        for side in SIDES {
            for level in view.levels(side) {
                if form == SnapshotForm::Mbp {
                    count += 1;
                    out(level_record(instrument, side, level.price, level.size, level.orders));
                } else {
                    for (order_id, order) in view.queue(side, level.price) {
                        count += 1;
                        out(order_record(instrument, order_id, &order));
                    }
                }
            }
        }
        let (orders, levels) = view.digests();
        out(SnapshotEnd { instrument, at, orders, levels, count }.to_record());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(sequence: u64) -> Stamp {
        Stamp::new(Epoch(1), SequenceNumber(sequence))
    }

    /// A line of the channel, the `count`th.
    fn channel_line(source: &mut SnapshotSource, sequence: u64, kind: Kind, count: u32) {
        let mut record = Record { flags: Flags::LAST, ..Record::new(kind, InstrumentId::CHANNEL) };
        record.instrument_seq.set(count);
        source.apply(stamp(sequence), &record);
    }

    fn channels_count(source: &SnapshotSource) -> Option<u32> {
        let mut records = Vec::new();
        source.write(InstrumentId::CHANNEL, &mut |record| records.push(record)).ok()?;
        SnapshotBegin::from_record(&records[0]).map(|begin| begin.instrument_seq)
    }

    #[test]
    fn the_channels_snapshot_has_the_channels_own_count_whatever_the_server_lost_itself() {
        let config = BooksConfig { instruments: 4, orders: 16, levels: 16 };
        // It lost lines, and a Clear made all books known again.
        let mut source = SnapshotSource::new(config, Start::Strict);
        source.on_joined(stamp(1));
        channel_line(&mut source, 1, Kind::SESSION_START, 1);
        assert_eq!(channels_count(&source), Some(1));
        source.on_gap(stamp(9));
        assert_eq!(channels_count(&source), None);
        channel_line(&mut source, 9, Kind::CLEAR, 7);
        assert_eq!(channels_count(&source), Some(7));
        channel_line(&mut source, 10, Kind::EVENT_END, 8);
        assert_eq!(channels_count(&source), Some(8));
        // It took the stream up in its middle, right before the counts wrap.
        let mut source = SnapshotSource::new(config, Start::Strict);
        source.on_joined(stamp(1 << 32));
        assert_eq!(channels_count(&source), None);
        channel_line(&mut source, 1 << 32, Kind::CLEAR, u32::MAX);
        assert_eq!(channels_count(&source), Some(u32::MAX));
        channel_line(&mut source, (1 << 32) + 1, Kind::EVENT_END, 0);
        assert_eq!(channels_count(&source), Some(0));
    }
}
