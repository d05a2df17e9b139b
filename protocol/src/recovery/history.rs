//! A bounded store of consecutive lines, by sequence: what the recovery server answers from.

use crate::line::{Line, Stamp};

/// The last so many lines of one epoch of a stream, without a hole. Copies them; the newest push out the oldest.
///
/// The same store holds the lines of a connection's replies, and what a subscriber keeps while it waits for a snapshot.
pub struct History {
    lines: Box<[Line]>,
    mask: u64,
    /// The oldest line held, if any is; and the stamp after the newest.
    first: Stamp,
    next: Stamp,
}

impl History {
    /// Room for `lines` lines, a power of two. Allocates and touches all memory now.
    ///
    /// # Panics
    /// If `lines` is not a power of two.
    pub fn new(lines: usize) -> History {
        assert!(lines.is_power_of_two(), "a history holds a power of two of lines, not {lines}");
        History {
            lines: vec![Line::ZERO; lines].into_boxed_slice(),
            mask: lines as u64 - 1,
            first: Stamp(0),
            next: Stamp(0),
        }
    }

    /// How many lines there is room for.
    pub fn capacity(&self) -> u64 {
        self.mask + 1
    }

    /// Makes room for `lines` lines, a power of two, if there is less; what is held stays. Allocates.
    ///
    /// # Panics
    /// If `lines` is not a power of two.
    pub fn grow(&mut self, lines: usize) {
        if lines as u64 <= self.capacity() {
            return;
        }
        let mut larger = History::new(lines);
        larger.restart(self.first);
        let mut from = self.first;
        while from < self.next {
            let run = self.run(from, self.len());
            larger.push(from, run);
            from = from.plus(run.len() as u64);
        }
        *self = larger;
    }

    /// How many lines are held.
    pub fn len(&self) -> u64 {
        self.next.0 - self.first.0
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The stamp of the oldest line held (of the next one to come, when none is).
    pub fn first(&self) -> Stamp {
        self.first
    }

    /// The stamp after the newest line held.
    pub fn next(&self) -> Stamp {
        self.next
    }

    /// Takes lines that verified with the stamps from `first` on. If they do not follow the newest one held, all that
    /// was held is forgotten: a history has no holes.
    pub fn push(&mut self, first: Stamp, lines: &[Line]) {
        if first != self.next {
            self.restart(first);
        }
        for line in lines {
            self.lines[(self.next.sequence().0 & self.mask) as usize] = *line;
            self.next = self.next.plus(1);
        }
        self.first = self.first.max(Stamp(self.next.0.saturating_sub(self.capacity())));
    }

    /// Forgets everything; the next line to come is `at`.
    pub fn restart(&mut self, at: Stamp) {
        (self.first, self.next) = (at, at);
    }

    /// Whether all `count` lines from `first` on are held.
    pub fn holds(&self, first: Stamp, count: u64) -> bool {
        first >= self.first && count <= self.next.0 && first.0 <= self.next.0 - count
    }

    /// The line with this stamp, if it is held.
    pub fn get(&self, stamp: Stamp) -> Option<&Line> {
        self.holds(stamp, 1).then(|| &self.lines[(stamp.sequence().0 & self.mask) as usize])
    }

    /// The lines held from `first` on, at most `count`, in one piece: fewer where the store wraps round or ends. Empty if
    /// `first` is not held.
    pub fn run(&self, first: Stamp, count: u64) -> &[Line] {
        if !self.holds(first, 1) {
            return &[];
        }
        let start = first.sequence().0 & self.mask;
        let count = count.min(self.next.0 - first.0).min(self.capacity() - start);
        &self.lines[start as usize..(start + count) as usize]
    }

    /// The lines held from `first` to before `end`, with their stamps. Stops where lines are not held.
    pub fn range(&self, first: Stamp, end: Stamp) -> impl Iterator<Item = (Stamp, &Line)> + Clone {
        (first.0..end.0).map(Stamp).map_while(|stamp| Some((stamp, self.get(stamp)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::{Epoch, SequenceNumber};
    use crate::record::{InstrumentId, Kind, Record};

    fn lines(first: Stamp, count: u64) -> Vec<Line> {
        (0..count).map(|i| Line::seal(Record::new(Kind::ADD, InstrumentId(1)), first.plus(i))).collect()
    }

    #[test]
    fn the_newest_lines_are_held_and_the_oldest_pushed_out() {
        let first = Stamp::new(Epoch(2), SequenceNumber(5));
        let mut history = History::new(8);
        assert!(history.is_empty() && history.get(first).is_none() && history.run(first, 1).is_empty());
        history.push(first, &lines(first, 6));
        assert!(history.holds(first, 6) && !history.holds(first, 7));
        history.push(first.plus(6), &lines(first.plus(6), 5));
        assert_eq!((history.first(), history.next(), history.len()), (first.plus(3), first.plus(11), 8));
        assert!(!history.holds(first.plus(2), 1));
        for (stamp, line) in history.range(first.plus(3), first.plus(11)) {
            assert!(line.verifies(stamp));
        }
        assert_eq!(history.range(first.plus(3), first.plus(99)).count(), 8);
        // In pieces, where the store wraps round.
        let piece = history.run(first.plus(3), 100);
        assert_eq!(piece.len(), 8);
        let piece = history.run(first.plus(5), 100).len();
        assert_eq!(piece, 6);
    }

    #[test]
    fn more_lines_at_once_than_there_is_room_for_leave_the_newest() {
        let first = Stamp::new(Epoch(1), SequenceNumber(1));
        let mut history = History::new(4);
        history.push(first, &lines(first, 11));
        assert_eq!((history.first(), history.len()), (first.plus(7), 4));
        assert!(history.get(first.plus(10)).expect("held").verifies(first.plus(10)));
    }

    #[test]
    fn a_history_that_grows_holds_what_it_held_and_more() {
        let first = Stamp::new(Epoch(1), SequenceNumber(1));
        let mut history = History::new(4);
        history.push(first, &lines(first, 7));
        history.grow(4);
        assert_eq!(history.capacity(), 4);
        history.grow(16);
        assert_eq!((history.capacity(), history.first(), history.len()), (16, first.plus(3), 4));
        history.push(first.plus(7), &lines(first.plus(7), 12));
        assert_eq!((history.first(), history.len()), (first.plus(3), 16));
        assert!(history.range(first.plus(3), first.plus(19)).all(|(stamp, line)| line.verifies(stamp)));
    }

    #[test]
    fn a_hole_or_a_new_epoch_forgets_what_was_before() {
        let first = Stamp::new(Epoch(1), SequenceNumber(1));
        let mut history = History::new(8);
        history.push(first, &lines(first, 3));
        history.push(first.plus(5), &lines(first.plus(5), 1));
        assert_eq!((history.first(), history.len()), (first.plus(5), 1));
        let second = Stamp::new(Epoch(2), SequenceNumber(1));
        history.push(second, &lines(second, 2));
        assert_eq!((history.first(), history.next()), (second, second.plus(2)));
        assert!(!history.holds(first.plus(5), 1));
    }
}
