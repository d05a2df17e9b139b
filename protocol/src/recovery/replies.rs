//! A connection's replies in order: what came early waits, what is missing is seen.

use crate::early::EarlyStore;
use crate::line::{Line, Stamp};
use crate::record::Lane;
use crate::run::{Carrier, LanePath};
use crate::time::Nanos;

use super::request::Connection;

/// What the lines of replies are held under while they wait; nobody tells paths apart there.
const PATH: LanePath = LanePath::new(Lane::new(0), Carrier::Recovery);

/// Puts the lines of a connection's replies in order.
pub(super) struct Replies {
    /// The line that comes next, and the one after the newest that came.
    next: Stamp,
    head: Stamp,
    early: EarlyStore,
    /// Since when lines are missing.
    pub(super) hole_since: Option<Nanos>,
}

impl Replies {
    /// Replies of `connection` from the first on; `lines`, a power of two, may wait.
    pub(super) fn new(connection: Connection, lines: usize) -> Replies {
        let first = connection.stamp(1);
        Replies { next: first, head: first, early: EarlyStore::new(lines), hole_since: None }
    }

    /// Another connection, from its first line on.
    pub(super) fn restart(&mut self, connection: Connection) {
        self.next = connection.stamp(1);
        self.head = self.next;
        self.early.clear();
        self.hole_since = None;
    }

    pub(super) fn next(&self) -> Stamp {
        self.next
    }

    /// Takes lines that verified with the stamps from `first` on, and hands on what is in order. Returns how many are of no
    /// use.
    pub(super) fn on_run(&mut self, first: Stamp, lines: &[Line], now: Nanos, mut read: impl FnMut(&[Line])) -> u64 {
        let end = first.plus(lines.len() as u64);
        if end <= self.next || first.epoch() != self.next.epoch() {
            return lines.len() as u64;
        }
        self.head = self.head.max(end);
        if first > self.next {
            self.hole_since.get_or_insert(now);
            if end.0 - self.next.0 > self.early.capacity() {
                return lines.len() as u64;
            }
            let mut old = 0;
            for (i, line) in lines.iter().enumerate() {
                old += u64::from(!self.early.insert(first.plus(i as u64), line, PATH, None, now));
            }
            return old;
        }
        let old = self.next.0 - first.0;
        let fresh = &lines[old as usize..];
        read(fresh);
        self.early.release(self.next, fresh.len());
        self.next = end;
        self.drain(now, read);
        old
    }

    fn drain(&mut self, now: Nanos, mut read: impl FnMut(&[Line])) {
        loop {
            let (run, ..) = self.early.run_from(self.next);
            if run.is_empty() {
                break;
            }
            let count = run.len();
            read(run);
            self.early.release(self.next, count);
            self.next = self.next.plus(count as u64);
        }
        self.hole_since = (self.next < self.head).then_some(now);
    }

    /// The lines that are missing before the first that waits.
    pub(super) fn hole(&self) -> Option<(Stamp, u64)> {
        let end = self.early.first_from(self.next).map_or(self.head, |(held, _)| held);
        (end > self.next).then(|| (self.next, end.0 - self.next.0))
    }

    /// What is missing does not come: goes on behind it.
    pub(super) fn skip(&mut self, now: Nanos, read: impl FnMut(&[Line])) {
        if let Some((first, count)) = self.hole() {
            self.next = first.plus(count);
        }
        self.drain(now, read);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{InstrumentId, Kind, Record};

    const ONE: Connection = Connection(1);

    fn lines(first: u64, count: u64) -> (Stamp, Vec<Line>) {
        let first = ONE.stamp(first);
        let seal = |i| Line::seal(Record::new(Kind::ADD, InstrumentId(1)), first.plus(i));
        (first, (0..count).map(seal).collect())
    }

    fn take(replies: &mut Replies, first: u64, count: u64, got: &mut Vec<u64>) -> u64 {
        let (first, lines) = lines(first, count);
        replies.on_run(first, &lines, Nanos(5), |run| got.extend(run.iter().map(|line| line.stamp().sequence().0)))
    }

    #[test]
    fn lines_are_read_once_and_in_order_whatever_order_they_come_in() {
        let mut replies = Replies::new(ONE, 16);
        let mut got = Vec::new();
        take(&mut replies, 4, 3, &mut got);
        assert_eq!((replies.hole(), replies.hole_since), (Some((ONE.stamp(1), 3)), Some(Nanos(5))));
        take(&mut replies, 9, 1, &mut got);
        assert_eq!(take(&mut replies, 1, 5, &mut got), 0);
        assert_eq!(replies.hole(), Some((ONE.stamp(7), 2)));
        assert_eq!(take(&mut replies, 2, 6, &mut got), 5);
        take(&mut replies, 8, 1, &mut got);
        assert_eq!(got, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!((replies.hole(), replies.hole_since), (None, None));
    }

    #[test]
    fn what_is_too_far_ahead_is_not_kept_and_what_never_comes_is_skipped() {
        let mut replies = Replies::new(ONE, 16);
        let mut got = Vec::new();
        assert_eq!(take(&mut replies, 15, 3, &mut got), 3);
        assert_eq!(replies.hole(), Some((ONE.stamp(1), 17)));
        take(&mut replies, 3, 2, &mut got);
        replies.skip(Nanos(6), |run| got.extend(run.iter().map(|line| line.stamp().sequence().0)));
        assert_eq!((got.as_slice(), replies.next()), (&[3, 4][..], ONE.stamp(5)));
        replies.skip(Nanos(7), |_| panic!("nothing waits"));
        assert_eq!((replies.next(), replies.hole()), (ONE.stamp(18), None));
        // Another connection's lines are nobody's.
        let line = Line::seal(Record::new(Kind::ADD, InstrumentId(1)), Connection(2).stamp(18));
        assert_eq!(replies.on_run(Connection(2).stamp(18), &[line], Nanos(8), |_| panic!("not ours")), 1);
    }
}
