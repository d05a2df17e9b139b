//! What is true: every line of every epoch, and what the naive books were at each.
//!
//! Two publishers of one channel say the same, and each of them is held to that. A run may make one of them say something
//! else from some line on: then the epoch has two branches.

use std::collections::BTreeMap;

use bookcast_tests::naive::{NaiveBooks, NaiveState};
use protocol::line::{Epoch, Line, SequenceNumber, Stamp};
use protocol::pair::Fingerprint;
use protocol::record::{InstrumentId, Kind};
use protocol::time::Nanos;

/// A book at a line: D, L and resting orders, and what it says of itself.
pub(crate) type Truth = ((u64, u64, u64), NaiveState);

/// The stream of an epoch, as one publisher or two have it.
struct Branch {
    first: u64,
    lines: Vec<Line>,
    naive: NaiveBooks,
    /// By instrument: the lines at which its book changed, and what it was then.
    books: BTreeMap<u32, Vec<(u64, Truth)>>,
}

impl Branch {
    fn new(first: u64) -> Branch {
        Branch { first, lines: Vec::new(), naive: NaiveBooks::new(false), books: BTreeMap::new() }
    }

    fn line(&self, sequence: u64) -> Option<&Line> {
        self.lines.get(sequence.checked_sub(self.first)? as usize)
    }

    fn push(&mut self, line: &Line) {
        let sequence = self.first + self.lines.len() as u64;
        assert_eq!(line.stamp().sequence().0, sequence, "the publisher's own sequence");
        self.lines.push(*line);
        let record = &line.record;
        let mut touched = self.naive.apply(sequence, record).to_vec();
        if record.instrument_id() == InstrumentId::CHANNEL && record.kind != Kind::EVENT_END {
            touched.extend(self.naive.instruments());
        } else if record.instrument_id() != InstrumentId::CHANNEL {
            // Even before its first event ends, it is what books are that nothing was heard of.
            touched.push(record.instrument.get());
        }
        for instrument in touched {
            let book = self.naive.book(instrument);
            let truth = (book.digests(), book.state());
            let log = self.books.entry(instrument).or_default();
            if log.last().is_none_or(|(_, last)| *last != truth) {
                log.push((sequence, truth));
            }
        }
    }
}

struct Run {
    /// The true stream, and what a publisher that went astray made of it.
    branches: Vec<Branch>,
    /// The first line of which there are two versions.
    fork: Option<u64>,
    /// When each lane published each line, by its own clock: twice, where one that came back was behind who was there before.
    times: [BTreeMap<u64, Vec<Nanos>>; 2],
}

/// Everything that was ever published.
#[derive(Default)]
pub(crate) struct Oracle {
    epochs: BTreeMap<u16, Run>,
    /// Which branch each lane's publisher is on, or was when it died.
    pub(crate) branch_of_lane: [usize; 2],
}

impl Oracle {
    /// An epoch begins at this line.
    pub(crate) fn begin(&mut self, first: Stamp) {
        let run = Run {
            branches: vec![Branch::new(first.sequence().0)],
            fork: None,
            times: [BTreeMap::new(), BTreeMap::new()],
        };
        let before = self.epochs.insert(first.epoch().0, run);
        assert!(before.is_none(), "no epoch begins twice");
        self.branch_of_lane = [0, 0];
    }

    /// Whether the epoch has two versions.
    pub(crate) fn fork(&self, epoch: Epoch) -> Option<u64> {
        self.epochs.get(&epoch.0)?.fork
    }

    /// Whether any epoch has two versions.
    pub(crate) fn has_forked(&self) -> bool {
        self.epochs.values().any(|run| run.fork.is_some())
    }

    /// From `at` on a lane says something else.
    pub(crate) fn go_astray(&mut self, lane: usize, at: Stamp) {
        let run = self.epochs.get_mut(&at.epoch().0).expect("an epoch that has begun");
        let count = (at.sequence().0 - run.branches[0].first) as usize;
        let mut branch = Branch::new(run.branches[0].first);
        run.branches[0].lines[..count].iter().for_each(|line| branch.push(line));
        run.branches.push(branch);
        run.fork = Some(at.sequence().0);
        self.branch_of_lane[lane] = 1;
    }

    /// Takes a line as a lane publishes it (or would, while it replays), by its own clock.
    pub(crate) fn publish(&mut self, lane: usize, line: &Line, clock: Option<Nanos>) {
        let stamp = line.stamp();
        let sequence = stamp.sequence().0;
        let run = self.epochs.get_mut(&stamp.epoch().0).expect("an epoch that has begun");
        let branch = &mut run.branches[self.branch_of_lane[lane]];
        match branch.line(sequence) {
            Some(known) => {
                let (known, own) = (Fingerprint::of(&known.record), Fingerprint::of(&line.record));
                assert!(known.agrees(own), "lane {lane} and the other one at {stamp}");
            }
            None => branch.push(line),
        }
        if let Some(clock) = clock {
            run.times[lane].entry(sequence).or_default().push(clock);
        }
    }

    /// Whether a line is what was published under this stamp: by branch `of`, or by any.
    pub(crate) fn is_true(&self, stamp: Stamp, line: &protocol::record::Record, of: Option<usize>) -> bool {
        let Some(run) = self.epochs.get(&stamp.epoch().0) else { return false };
        let print = Fingerprint::of(line);
        let mut branches = run.branches.iter().enumerate().filter(|(at, _)| of.is_none_or(|of| of == *at));
        branches.any(|(_, branch)| {
            branch.line(stamp.sequence().0).is_some_and(|known| Fingerprint::of(&known.record).agrees(print))
        })
    }

    /// Whether some lane published this line at this time.
    pub(crate) fn is_time_of(&self, stamp: Stamp, time: Nanos) -> bool {
        let Some(run) = self.epochs.get(&stamp.epoch().0) else { return false };
        run.times.iter().filter_map(|times| times.get(&stamp.sequence().0)).any(|times| times.contains(&time))
    }

    /// When each lane published it.
    pub(crate) fn times_of(&self, stamp: Stamp) -> [Vec<Nanos>; 2] {
        let run = &self.epochs[&stamp.epoch().0];
        [0, 1].map(|lane: usize| run.times[lane].get(&stamp.sequence().0).cloned().unwrap_or_default())
    }

    /// The newest books of a branch.
    pub(crate) fn naive(&self, epoch: Epoch, branch: usize) -> &NaiveBooks {
        &self.epochs[&epoch.0].branches[branch].naive
    }

    /// What the book of an instrument was when the line `at` had been applied; `None` if nothing had been heard of it.
    pub(crate) fn truth(&self, instrument: u32, at: Stamp, branch: usize) -> Option<Truth> {
        let log = self.epochs.get(&at.epoch().0)?.branches.get(branch)?.books.get(&instrument)?;
        let after = log.partition_point(|(sequence, _)| *sequence <= at.sequence().0);
        after.checked_sub(1).map(|i| log[i].1)
    }
}

/// The line before this one; of the first one, itself.
pub(crate) fn before(next: Stamp) -> Stamp {
    Stamp::new(next.epoch(), SequenceNumber(next.sequence().0.saturating_sub(1)))
}
