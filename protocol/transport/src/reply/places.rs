//! Which lines of answers are written into a reply ring, and where.

use protocol::line::Stamp;

/// The places of one connection's reply ring, as its only writer sees them: the line (connection, count) stands at count
/// modulo the size.
///
/// Lines that were asked for again are written again. A place never goes back to an older line for that: where a later one has
/// been written, the reader is past the older, or has lost it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplyPlaces {
    lines: u64,
    /// The stamp after the newest line that was written.
    end: Stamp,
}

impl ReplyPlaces {
    /// A ring of `lines` places, a power of two, in which nothing has been written; `first` is the connection's first line.
    pub const fn new(lines: u64, first: Stamp) -> ReplyPlaces {
        ReplyPlaces { lines, end: first }
    }

    /// How many places there are.
    pub const fn lines(&self) -> u64 {
        self.lines
    }

    /// Which place a line has.
    pub const fn index(&self, line: Stamp) -> u64 {
        line.0 % self.lines
    }

    /// The lines from `first` to before `end` are about to be written: those to leave out are before the one returned.
    pub fn take(&mut self, first: Stamp, end: Stamp) -> Stamp {
        let oldest = Stamp(self.end.0.saturating_sub(self.lines));
        self.end = self.end.max(end);
        first.max(oldest).min(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::recovery::Connection;

    #[test]
    fn a_place_never_goes_back_to_an_older_line() {
        let line = |count| Connection(3).stamp(count);
        let mut places = ReplyPlaces::new(8, line(1));
        assert_eq!((places.index(line(1)), places.index(line(8)), places.lines()), (1, 0, 8));
        assert_eq!(places.take(line(1), line(6)), line(1));
        // Again, all of them: they are still the newest of their places.
        assert_eq!(places.take(line(1), line(6)), line(1));
        assert_eq!(places.take(line(6), line(12)), line(6));
        // Lines 1 to 3 have given their places to 9 to 11.
        assert_eq!(places.take(line(1), line(6)), line(4));
        assert_eq!(places.take(line(1), line(4)), line(4), "none of these");
        assert_eq!(places.take(line(12), line(13)), line(12));
    }
}
