//! The engine as recovery sees it: which instruments want snapshots, and what becomes of those that come.

use protocol::definition::Definition;
use protocol::line::Stamp;
use protocol::record::{Flags, InstrumentId, Kind, Record};
use protocol::recovery::{CatchUp, Fate, Recovering, Snapshot};

use super::{Engine, Turn};
use crate::handler::Handler;
use crate::selection::Choice;

impl Engine {
    /// Whether this instrument (or the channel) wants a snapshot. One whose Definition has not come may be wanted.
    fn is_unready(&self, instrument: InstrumentId) -> bool {
        if instrument == InstrumentId::CHANNEL {
            return !self.books.channel_is_known();
        }
        // One of which a Status may have been missed could be crossed and not know it.
        let ready = self.books.state(instrument).is_readable() && self.books.suspect_is_known(instrument);
        self.choice(instrument) != Choice::Unwanted && !ready
    }
}

/// The Definition among the records of a snapshot, if it has a whole one.
fn definition_in(records: &[Record]) -> Option<Definition> {
    let at = records.iter().position(|record| record.kind == Kind::DEFINITION)?;
    let (head, rest) = records[at..].split_first()?;
    let mut payload = Vec::new();
    let mut goes_on = head.flags.has(Flags::CONTINUES);
    for record in rest.iter().take_while(|record| record.kind == Kind::CONTINUATION) {
        payload.extend_from_slice(record.payload());
        goes_on = record.flags.has(Flags::CONTINUES);
    }
    (!goes_on && !payload.is_empty()).then(|| Definition::parse(head, &payload))
}

impl<H: Handler> Turn<'_, H> {
    /// Takes over what a snapshot says of its instrument, if that is news.
    fn define(&mut self, instrument: InstrumentId, definition: Definition) {
        if self.engine.directory.definition(instrument) == Some(&definition) {
            return;
        }
        if self.engine.directory.define(instrument, definition) == Choice::Wanted {
            let ctx = self.engine.context(self.now);
            let definition = ctx.definition(instrument).expect("just defined");
            self.handler.on_definition(&ctx, instrument, definition);
        }
    }
}

impl<H: Handler> Recovering for Turn<'_, H> {
    fn doubts(&self) -> u64 {
        self.engine.doubts
    }

    fn next_unready(&self, from: InstrumentId) -> Option<(InstrumentId, InstrumentId)> {
        let highest = self.highest().0;
        let first = (from.0..=highest).find(|i| self.engine.is_unready(InstrumentId(*i)))?;
        let after = (first..=highest).find(|i| !self.engine.is_unready(InstrumentId(*i)));
        Some((InstrumentId(first), InstrumentId(after.map_or(highest, |after| after - 1))))
    }

    fn highest(&self) -> InstrumentId {
        self.engine.books.highest()
    }

    fn lowest_use(&self) -> Option<Stamp> {
        self.engine.catch_up.as_ref().and_then(CatchUp::lowest_use)
    }

    fn on_snapshots_asked(&mut self, first: InstrumentId, last: InstrumentId) {
        self.engine.books.on_snapshots_asked(first, last);
        self.engine.tell_events(self.now, self.handler);
    }

    fn on_snapshots_failed(&mut self, first: InstrumentId, last: InstrumentId) {
        self.engine.books.on_snapshots_failed(first, last);
        self.engine.tell_events(self.now, self.handler);
    }

    fn on_snapshot(&mut self, snapshot: &Snapshot<'_>, records: &[Record]) -> Fate {
        let instrument = snapshot.begin.instrument;
        let is_of_this_epoch = snapshot.begin.at.epoch() == self.engine.next.epoch();
        if is_of_this_epoch
            && !snapshot.is_of_channel()
            && let Some(definition) = definition_in(snapshot.records)
        {
            self.define(instrument, definition);
            if self.engine.choice(instrument) == Choice::Unwanted {
                return Fate::Useless;
            }
        }
        // A book that healed meanwhile knows as much, and is not set back.
        if is_of_this_epoch && !self.engine.is_unready(instrument) {
            return Fate::Useless;
        }
        let Some(catch_up) = &mut self.engine.catch_up else { return Fate::Useless };
        let fate = catch_up.take(snapshot, records, &mut self.engine.books);
        self.engine.tell_events(self.now, self.handler);
        fate
    }

    fn settle_snapshots(&mut self) -> usize {
        while let Some(records) = self.engine.catch_up.as_mut().and_then(CatchUp::next_due) {
            if let Some(snapshot) = Snapshot::from_records(&records) {
                self.on_snapshot(&snapshot, &records);
            }
        }
        self.engine.catch_up.as_ref().map_or(0, CatchUp::waiting)
    }

    fn on_caught_up(&mut self) {
        if let Some(catch_up) = &mut self.engine.catch_up {
            catch_up.end();
        }
    }
}
