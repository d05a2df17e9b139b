//! Reads the lines of replies in order: hands retransmitted lines to the arbiter and whole snapshots to the books.

use crate::arbiter::Arbiter;
use crate::line::{Line, Stamp};
use crate::record::{Kind, Record};
use crate::time::Nanos;

use super::assembly::Snapshot;
use super::catch_up::Fate;
use super::machine::Recovering;
use super::reply::{Answer, ReplyBegin};
use super::snapshot::SnapshotBegin;

/// What a reader has read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct ReaderCounts {
    pub(super) retransmitted: u64,
    pub(super) snapshots: u64,
    pub(super) malformed: u64,
}

/// Takes the lines of a connection's replies, in order.
pub(super) struct Reader {
    /// The reply that is being read, and how many of its lines have been.
    reading: Option<(ReplyBegin, u64)>,
    lines: Vec<Line>,
    /// The lines so far of a snapshot, and how many it has.
    records: Vec<Record>,
    snapshot_lines: u64,
    /// Replies read to their ends since they were last taken.
    pub(super) done: Vec<ReplyBegin>,
    pub(super) counts: ReaderCounts,
}

impl Reader {
    /// For replies of at most `lines` lines, and snapshots of at most `snapshot_lines`. Memory for the longest of these is
    /// asked for now, and touched when one comes.
    pub(super) fn new(lines: usize, snapshot_lines: usize) -> Reader {
        Reader {
            reading: None,
            lines: Vec::with_capacity(lines),
            records: Vec::with_capacity(lines.max(snapshot_lines)),
            snapshot_lines: 0,
            done: Vec::with_capacity(16),
            counts: ReaderCounts::default(),
        }
    }

    /// The request whose answer is being read, and how many of its lines are still to come.
    pub(super) fn reading(&self) -> Option<(u64, u64)> {
        self.reading.map(|(begin, read)| (begin.request, begin.lines - read))
    }

    /// Lines are missing: what follows is read from the next ReplyBegin on.
    pub(super) fn break_off(&mut self) {
        self.reading = None;
        self.records.clear();
    }

    pub(super) fn read(&mut self, mut lines: &[Line], now: Nanos, arbiter: &mut Arbiter, target: &mut impl Recovering) {
        while let Some(line) = lines.first() {
            let Some((begin, read)) = self.reading else {
                self.begin(&line.record);
                lines = &lines[1..];
                continue;
            };
            let count = (begin.lines - read).min(lines.len() as u64) as usize;
            let (these, rest) = lines.split_at(count);
            lines = rest;
            self.reading = Some((begin, read + count as u64));
            match begin.answer {
                Answer::Lines { first } => self.retransmitted(first.plus(read), these, now, arbiter, target),
                Answer::Snapshots { .. } => these.iter().for_each(|line| self.snapshot_line(&line.record, target)),
                Answer::Refused { .. } => {}
            }
            if read + count as u64 == begin.lines {
                self.end(begin);
            }
        }
    }

    fn begin(&mut self, record: &Record) {
        match ReplyBegin::from_record(record) {
            Some(begin) if begin.lines == 0 => self.end(begin),
            Some(begin) => {
                self.records.clear();
                self.reading = Some((begin, 0));
            }
            // The rest of a reply whose beginning was skipped.
            None => {}
        }
    }

    fn end(&mut self, begin: ReplyBegin) {
        self.counts.malformed += u64::from(!self.records.is_empty());
        self.records.clear();
        self.reading = None;
        self.done.push(begin);
    }

    fn retransmitted(
        &mut self,
        first: Stamp,
        lines: &[Line],
        now: Nanos,
        arbiter: &mut Arbiter,
        target: &mut impl Recovering,
    ) {
        self.lines.clear();
        self.lines.extend(lines.iter().enumerate().map(|(i, line)| Line::seal(line.record, first.plus(i as u64))));
        self.counts.retransmitted += lines.len() as u64;
        arbiter.on_recovered(first, &self.lines, now, target);
    }

    fn snapshot_line(&mut self, record: &Record, target: &mut impl Recovering) {
        if record.kind == Kind::SNAPSHOT_BEGIN {
            self.counts.malformed += u64::from(!self.records.is_empty());
            self.records.clear();
            let Some(begin) = SnapshotBegin::from_record(record) else {
                self.counts.malformed += 1;
                return;
            };
            self.snapshot_lines = begin.lines.saturating_add(1);
        } else if self.records.is_empty() {
            // Of a snapshot that this version does not know.
            return;
        }
        self.records.push(*record);
        if self.records.len() as u64 == self.snapshot_lines {
            match Snapshot::from_records(&self.records) {
                Some(snapshot) => {
                    self.counts.snapshots += 1;
                    let _: Fate = target.on_snapshot(&snapshot, &self.records);
                }
                None => self.counts.malformed += 1,
            }
            self.records.clear();
        }
    }
}
