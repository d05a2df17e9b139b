//! What is true: every line of every epoch, and what the naive books were at each.

use std::collections::BTreeMap;

use bookcast_tests::naive::{NaiveBooks, NaiveState};
use protocol::line::{Line, Stamp};
use protocol::record::{InstrumentId, Kind};

/// A book at a line: D, L and resting orders, and what it says of itself.
pub(crate) type Truth = ((u64, u64, u64), NaiveState);

/// One epoch of the stream.
#[derive(Default)]
struct Run {
    lines: Vec<Line>,
    /// By instrument: the lines at which its book changed, and what it was then.
    books: BTreeMap<u32, Vec<(u64, Truth)>>,
}

/// Everything that was ever published.
pub(crate) struct Oracle {
    epochs: BTreeMap<u16, Run>,
    /// The books of the newest epoch.
    pub(crate) naive: NaiveBooks,
}

impl Oracle {
    pub(crate) fn new() -> Oracle {
        Oracle { epochs: BTreeMap::new(), naive: NaiveBooks::new(false) }
    }

    /// Takes a line as it is published.
    pub(crate) fn publish(&mut self, line: &Line) {
        let stamp = line.stamp();
        let run = self.epochs.entry(stamp.epoch().0).or_insert_with(|| {
            self.naive = NaiveBooks::new(false);
            Run::default()
        });
        run.lines.push(*line);
        assert_eq!(run.lines.len() as u64, stamp.sequence().0, "the publisher's own sequence");
        let record = &line.record;
        let mut touched = self.naive.apply(stamp.sequence().0, record).to_vec();
        if record.instrument_id() == InstrumentId::CHANNEL && record.kind != Kind::EVENT_END {
            touched.extend(self.naive.instruments());
        } else if record.instrument_id() != InstrumentId::CHANNEL {
            // Even before its first event ends, it is what books are that nothing was heard of.
            touched.push(record.instrument.get());
        }
        for instrument in touched {
            let book = self.naive.book(instrument);
            let truth = (book.digests(), book.state());
            let log = run.books.entry(instrument).or_default();
            if log.last().is_none_or(|(_, last)| *last != truth) {
                log.push((stamp.sequence().0, truth));
            }
        }
    }

    /// The line with this stamp.
    pub(crate) fn line(&self, stamp: Stamp) -> Option<&Line> {
        self.epochs.get(&stamp.epoch().0)?.lines.get(stamp.sequence().0 as usize - 1)
    }

    /// The lines of an epoch from a sequence number on.
    pub(crate) fn lines_from(&self, first: Stamp, most: usize) -> &[Line] {
        let Some(run) = self.epochs.get(&first.epoch().0) else { return &[] };
        let start = (first.sequence().0 as usize - 1).min(run.lines.len());
        &run.lines[start..run.lines.len().min(start + most)]
    }

    /// What the book of an instrument was when the line `at` had been applied; `None` if nothing had been heard of it.
    pub(crate) fn truth(&self, instrument: u32, at: Stamp) -> Option<Truth> {
        let log = self.epochs.get(&at.epoch().0)?.books.get(&instrument)?;
        let after = log.partition_point(|(sequence, _)| *sequence <= at.sequence().0);
        after.checked_sub(1).map(|i| log[i].1)
    }
}
