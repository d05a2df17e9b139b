//! Instruments of a stream: one for each book of each publisher's number.

use std::collections::HashMap;

use super::levels::Picture;

/// What a book is made of. Records of several schemas in one stream are books of their own: they come at their own times,
/// and must not change each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stream {
    /// Not known yet: nothing of the instrument concerned a book so far.
    Unknown,
    /// Order by order.
    Orders,
    /// Several levels a side.
    Levels,
    /// The best level of each side.
    Top,
    /// The best level of each side, as it was just before each trade.
    TopAtTrades,
    /// No book: trades alone.
    Trades,
}

impl Stream {
    /// As in the Definition.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Stream::Unknown => "any",
            Stream::Orders => "orders",
            Stream::Levels => "levels",
            Stream::Top => "top",
            Stream::TopAtTrades => "top-at-trades",
            Stream::Trades => "trades",
        }
    }
}

/// What is known of an instrument while its records come.
#[derive(Debug)]
pub(super) struct Instrument {
    pub(super) stream: Stream,
    /// The number that the records give it.
    pub(super) id: u32,
    /// Its publisher's.
    pub(super) publisher: u16,
    /// Its symbol, and until when that holds.
    pub(super) symbol: String,
    pub(super) named_until: u64,
    /// A Definition went out.
    pub(super) defined: bool,
    /// Inside a snapshot of the venue's.
    pub(super) in_snapshot: bool,
    /// Lines of the event that has not ended yet, and whether one of them changes the book.
    pub(super) open_lines: u32,
    pub(super) changed: bool,
    /// What the last level record showed; none before the first.
    pub(super) picture: Option<Box<Picture>>,
    /// The next instrument of the same number, from 1; 0 none.
    pub(super) next: u32,
}

/// All of them, numbered from 1.
#[derive(Debug, Default)]
pub(super) struct Instruments {
    all: Vec<Instrument>,
    /// The first instrument of each publisher's number.
    first: HashMap<(u16, u32), u32>,
    /// What was found last: records of one instrument come one after the other.
    last: Option<((u16, u32), u32)>,
}

impl Instruments {
    pub(super) fn len(&self) -> u32 {
        self.all.len() as u32
    }

    pub(super) fn get(&self, instrument: u32) -> &Instrument {
        &self.all[instrument as usize - 1]
    }

    pub(super) fn get_mut(&mut self, instrument: u32) -> &mut Instrument {
        &mut self.all[instrument as usize - 1]
    }

    /// The first instrument of a number.
    #[inline]
    pub(super) fn first(&mut self, key: (u16, u32)) -> Option<u32> {
        if let Some((last, instrument)) = self.last
            && last == key
        {
            return Some(instrument);
        }
        let instrument = *self.first.get(&key)?;
        self.last = Some((key, instrument));
        Some(instrument)
    }

    /// The same, looking only.
    pub(super) fn peek(&self, key: (u16, u32)) -> Option<u32> {
        self.first.get(&key).copied()
    }

    /// Makes one; it is the first of its number, or comes behind the others.
    pub(super) fn make(&mut self, key: (u16, u32), stream: Stream, symbol: String, named_until: u64) -> u32 {
        let instrument = self.len() + 1;
        self.all.push(Instrument {
            stream,
            id: key.1,
            publisher: key.0,
            symbol,
            named_until,
            defined: false,
            in_snapshot: false,
            open_lines: 0,
            changed: false,
            picture: None,
            next: 0,
        });
        match self.first.get(&key) {
            None => {
                self.first.insert(key, instrument);
            }
            Some(first) => {
                let mut last = *first;
                while self.get(last).next != 0 {
                    last = self.get(last).next;
                }
                self.get_mut(last).next = instrument;
            }
        }
        instrument
    }

    /// The number means another instrument from now on.
    pub(super) fn forget(&mut self, key: (u16, u32)) {
        self.first.remove(&key);
        self.last = None;
    }
}
