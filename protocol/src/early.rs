//! The early store: lines that came ahead of the cursor, kept until what is before them comes or is given up.

use crate::line::{Line, Stamp};
use crate::record::Lane;
use crate::run::{Carrier, LanePath};
use crate::time::Nanos;

/// A fixed number of lines, the line of sequence s at s modulo the size. Only the own poller writes it.
pub struct EarlyStore {
    lines: Box<[Line]>,
    /// The stamp of what stands in each place; [`Stamp`] 0 (which no line has) where there is nothing.
    stamps: Box<[Stamp]>,
    /// When each came, and by which path.
    arrived: Box<[(Nanos, LanePath)]>,
    /// The publisher's clock when the run was sent in which each came, where it was told.
    published: Box<[Option<Nanos>]>,
    mask: u64,
    held: usize,
}

const NOTHING: Stamp = Stamp(0);

impl EarlyStore {
    /// Room for `lines` lines ahead of the cursor.
    ///
    /// # Panics
    /// If `lines` is not a power of two.
    pub fn new(lines: usize) -> EarlyStore {
        assert!(lines.is_power_of_two(), "the early store holds a power of two of lines, not {lines}");
        EarlyStore {
            lines: vec![Line::ZERO; lines].into_boxed_slice(),
            stamps: vec![NOTHING; lines].into_boxed_slice(),
            arrived: vec![(Nanos::ZERO, LanePath::new(Lane::new(0), Carrier::Local)); lines].into_boxed_slice(),
            published: vec![None; lines].into_boxed_slice(),
            mask: lines as u64 - 1,
            held: 0,
        }
    }

    /// How many lines there is room for.
    pub fn capacity(&self) -> u64 {
        self.mask + 1
    }

    /// How many lines are held.
    pub fn held(&self) -> usize {
        self.held
    }

    #[inline]
    fn place(&self, stamp: Stamp) -> usize {
        (stamp.sequence().0 & self.mask) as usize
    }

    /// Keeps a line. The caller has checked that it is less than [`EarlyStore::capacity`] ahead of the cursor. Returns
    /// whether it is new; the first copy stays. `publish_time` as in [`Run`](crate::run::Run).
    pub fn insert(
        &mut self,
        stamp: Stamp,
        line: &Line,
        path: LanePath,
        publish_time: Option<Nanos>,
        now: Nanos,
    ) -> bool {
        let place = self.place(stamp);
        if self.stamps[place] == stamp {
            return false;
        }
        self.held += usize::from(self.stamps[place] == NOTHING);
        self.stamps[place] = stamp;
        self.lines[place] = *line;
        self.arrived[place] = (now, path);
        self.published[place] = publish_time;
        true
    }

    /// The line that is held under this stamp, and the path that brought it.
    #[inline]
    pub fn get(&self, stamp: Stamp) -> Option<(&Line, LanePath)> {
        let place = self.place(stamp);
        (self.stamps[place] == stamp).then(|| (&self.lines[place], self.arrived[place].1))
    }

    /// Forgets what a lane brought, and what a recovery server did, which may be that lane's.
    pub fn discard(&mut self, lane: Lane) {
        for place in 0..self.stamps.len() {
            let path = self.arrived[place].1;
            if self.stamps[place] != NOTHING && (path.lane == lane || path.carrier == Carrier::Recovery) {
                self.stamps[place] = NOTHING;
                self.held -= 1;
            }
        }
    }

    /// The longest run that starts at `first`, came by one path and with one publish time, and lies in one piece; that path and
    /// that time.
    pub fn run_from(&self, first: Stamp) -> (&[Line], LanePath, Option<Nanos>) {
        let start = self.place(first);
        let (path, published) = (self.arrived[start].1, self.published[start]);
        let len = self.stamps[start..]
            .iter()
            .zip(self.arrived[start..].iter().zip(&self.published[start..]))
            .enumerate()
            .take_while(|(i, (stamp, (arrived, time)))| {
                **stamp == first.plus(*i as u64) && arrived.1 == path && **time == published
            })
            .count();
        (&self.lines[start..start + len], path, published)
    }

    /// Forgets the `count` lines from `first` on, which have been delivered. Returns how many of them were held.
    pub fn release(&mut self, first: Stamp, count: usize) -> usize {
        let before = self.held;
        for i in 0..count as u64 {
            let place = self.place(first.plus(i));
            if self.stamps[place] == first.plus(i) {
                self.stamps[place] = NOTHING;
                self.held -= 1;
            }
        }
        before - self.held
    }

    /// The first stamp at or after `from`, less than a store's length away, that is held, and when its line came.
    pub fn first_from(&self, from: Stamp) -> Option<(Stamp, Nanos)> {
        if self.held == 0 {
            return None;
        }
        (0..self.capacity())
            .map(|i| from.plus(i))
            .find(|stamp| self.stamps[self.place(*stamp)] == *stamp)
            .map(|stamp| (stamp, self.arrived[self.place(stamp)].0))
    }

    /// The first stamp from `from` to before `end` that is not held; `end` if all are. `end` is at most a store's length
    /// ahead of the cursor.
    pub fn first_absent(&self, from: Stamp, end: Stamp) -> Stamp {
        let mut stamp = from;
        while stamp < end && self.stamps[self.place(stamp)] == stamp {
            stamp = stamp.plus(1);
        }
        stamp
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        if self.held > 0 {
            self.stamps.fill(NOTHING);
            self.held = 0;
        }
    }
}
