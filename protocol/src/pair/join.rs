//! A publisher that starts while another lane of its channel is alive: from where may it publish?

use super::Fingerprint;
use crate::line::{Epoch, Line, Stamp};
use crate::record::{Kind, Lane};
use crate::run::{LanePath, LossCause, Position, Run, RunSink};
use crate::time::Nanos;

/// Settings of a [`Joiner`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JoinConfig {
    /// The newest lines of either side that are remembered: a power of two.
    pub window_lines: usize,
    /// Digests of books that must have agreed; 0 where the stream has none.
    pub digests: u64,
    /// Lines that must have agreed.
    pub lines: u64,
    /// The other lane is given up if it gives no sign of life for this long, ns.
    pub silent_ns: u64,
}

impl Default for JoinConfig {
    /// 65,536 lines remembered; one digest and one line, and whatever else there is to compare, must agree; five seconds.
    fn default() -> JoinConfig {
        JoinConfig { window_lines: 1 << 16, digests: 1, lines: 1, silent_ns: 5_000_000_000 }
    }
}

/// Why a publisher cannot join a lane that is, or was, alive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CannotJoin {
    /// The same line, and not the same content.
    #[error(
        "at {at} lane {} published {theirs:?} and the feed here gives {ours:?}: the two feeds, or what is to be made of them \
         ([feed], [books] and digest_every), differ; make them the same, or end that lane first", lane.0
    )]
    Differs {
        /// The line.
        at: Stamp,
        /// The lane that lives.
        lane: Lane,
        /// What it published there.
        theirs: Kind,
        /// What would be published here.
        ours: Kind,
    },
    /// The session is over.
    #[error("lane {} has said at {at} that the stream ends there: there is nothing to join", lane.0)]
    Ended {
        /// The lane.
        lane: Lane,
        /// Where it ended.
        at: Stamp,
    },
    /// No more signs of life.
    #[error(
        "lane {} was alive and gives no sign of life any more: if it is dead, start again, and this publisher opens a new epoch",
        lane.0
    )]
    Silent {
        /// The lane.
        lane: Lane,
    },
    /// It was started anew meanwhile.
    #[error("lane {} has gone over to epoch {}: start again to join that", lane.0, epoch.0)]
    NewEpoch {
        /// The lane.
        lane: Lane,
        /// Its epoch now.
        epoch: Epoch,
    },
}

#[derive(Clone, Copy)]
struct Entry {
    stamp: Stamp,
    print: Fingerprint,
    /// When it came.
    at: Nanos,
}

/// The newest lines of one side, the line of sequence s at s modulo the size.
struct Window(Box<[Entry]>);

impl Window {
    fn new(lines: usize) -> Window {
        assert!(lines.is_power_of_two(), "a window holds a power of two of lines, not {lines}");
        Window(
            vec![Entry { stamp: Stamp(0), print: Fingerprint::default(), at: Nanos::ZERO }; lines].into_boxed_slice(),
        )
    }

    fn put(&mut self, stamp: Stamp, print: Fingerprint, at: Nanos) {
        let place = stamp.0 as usize & (self.0.len() - 1);
        // A line that comes twice came when it first did.
        if self.0[place].stamp != stamp {
            self.0[place] = Entry { stamp, print, at };
        }
    }

    fn get(&self, stamp: Stamp) -> Option<&Entry> {
        Some(&self.0[stamp.0 as usize & (self.0.len() - 1)]).filter(|entry| entry.stamp == stamp)
    }
}

/// Compares what a publisher would publish with what a lane that lives does publish: no I/O, no clock.
///
/// Its lines go in by [`Joiner::sink`], in whatever order they come; the own ones by [`Joiner::on_own`], which is fed as long
/// as [`Joiner::wants_more`]. [`Joiner::outcome`] says when, and from where, this publisher may publish.
pub struct Joiner {
    config: JoinConfig,
    lane: Lane,
    /// The stamp of the own line that comes next.
    next: Stamp,
    /// The stamp after the newest line that the other lane is known to have published.
    head: Stamp,
    theirs: Window,
    ours: Window,
    lines: u64,
    digests: u64,
    heard: Option<Nanos>,
    refused: Option<CannotJoin>,
}

impl Joiner {
    /// A publisher that would join `lane`, and whose own first line will be `first`: the first of that lane's epoch.
    ///
    /// # Panics
    /// If the window is not a power of two.
    pub fn new(config: JoinConfig, lane: Lane, first: Stamp) -> Joiner {
        Joiner {
            config,
            lane,
            next: first,
            head: first,
            theirs: Window::new(config.window_lines),
            ours: Window::new(config.window_lines),
            lines: 0,
            digests: 0,
            heard: None,
            refused: None,
        }
    }

    /// Where the other lane's lines go at time `now`.
    pub fn sink(&mut self, now: Nanos) -> JoinerSink<'_> {
        // It is not to blame for what was before it was first listened to.
        self.heard.get_or_insert(now);
        JoinerSink { joiner: self, now }
    }

    /// Whether the next message of the venue may be replayed: the other lane has published beyond what was.
    #[inline]
    pub fn wants_more(&self) -> bool {
        self.next < self.head && self.refused.is_none()
    }

    /// Takes a line that would have been published. `now` as in [`Joiner::sink`].
    ///
    /// # Panics
    /// If it is not the next one.
    #[inline]
    pub fn on_own(&mut self, line: &Line, now: Nanos) {
        assert!(line.verifies(self.next), "{:?} comes after {:?}", line.stamp(), self.next);
        let (at, ours) = (self.next, Fingerprint::of(&line.record));
        self.ours.put(at, ours, now);
        self.next = at.plus(1);
        if let Some(theirs) = self.theirs.get(at) {
            self.compare(at, theirs.print, ours);
        }
    }

    fn compare(&mut self, at: Stamp, theirs: Fingerprint, ours: Fingerprint) {
        if !theirs.agrees(ours) {
            let (theirs, ours) = (theirs.kind(), ours.kind());
            self.refused.get_or_insert(CannotJoin::Differs { at, lane: self.lane, theirs, ours });
            return;
        }
        self.lines += 1;
        self.digests += u64::from(ours.kind() == Kind::BOOK_DIGEST);
    }

    /// The stamp of the own line that comes next.
    pub fn next(&self) -> Stamp {
        self.next
    }

    /// How many lines the other lane is ahead.
    pub fn behind(&self) -> u64 {
        self.head.0.saturating_sub(self.next.0)
    }

    /// Lines and digests that agreed so far.
    pub fn agreed(&self) -> (u64, u64) {
        (self.lines, self.digests)
    }

    /// When the other lane's line came, if it is remembered.
    pub fn arrived(&self, stamp: Stamp) -> Option<Nanos> {
        self.theirs.get(stamp).map(|entry| entry.at)
    }

    /// Where this publisher stands: `Some` with the first line that it may publish, once it has caught up and enough agrees.
    ///
    /// # Errors
    /// [`CannotJoin`]; it stays so.
    pub fn outcome(&mut self, now: Nanos) -> Result<Option<Stamp>, CannotJoin> {
        let heard = *self.heard.get_or_insert(now);
        if now.since(heard) >= self.config.silent_ns as i64 {
            self.refused.get_or_insert(CannotJoin::Silent { lane: self.lane });
        }
        if let Some(why) = self.refused {
            return Err(why);
        }
        let proved = self.lines >= self.config.lines && self.digests >= self.config.digests;
        Ok((proved && self.next >= self.head).then_some(self.next))
    }

    /// Something of the other lane: of which epoch? False if it is none of this one's.
    fn hear(&mut self, path: LanePath, stamp: Stamp, now: Nanos) -> bool {
        if path.lane != self.lane || stamp.epoch() < self.next.epoch() {
            return false;
        }
        if stamp.epoch() > self.next.epoch() {
            self.refused.get_or_insert(CannotJoin::NewEpoch { lane: self.lane, epoch: stamp.epoch() });
            return false;
        }
        self.heard = Some(now);
        true
    }
}

/// A [`Joiner`] at one moment, as the other lane's receiver sees it.
pub struct JoinerSink<'a> {
    joiner: &'a mut Joiner,
    now: Nanos,
}

impl RunSink for JoinerSink<'_> {
    fn on_run(&mut self, run: Run<'_>) {
        let joiner = &mut *self.joiner;
        if !joiner.hear(run.path, run.first, self.now) {
            return;
        }
        for (i, line) in run.lines.iter().enumerate() {
            let at = run.first.plus(i as u64);
            let theirs = Fingerprint::of(&line.record);
            let is_new = joiner.theirs.get(at).is_none();
            joiner.theirs.put(at, theirs, self.now);
            if let (true, Some(ours)) = (is_new, joiner.ours.get(at)) {
                let ours = ours.print;
                joiner.compare(at, theirs, ours);
            }
        }
        joiner.head = joiner.head.max(run.end());
    }

    fn on_position(&mut self, position: Position) {
        let joiner = &mut *self.joiner;
        if !joiner.hear(position.path, position.next, self.now) {
            return;
        }
        joiner.head = joiner.head.max(position.next);
        if position.ended {
            joiner.refused.get_or_insert(CannotJoin::Ended { lane: joiner.lane, at: position.next });
        }
    }

    /// What was lost is not compared.
    fn on_loss(&mut self, path: LanePath, first: Stamp, count: u64, _: LossCause) {
        if self.joiner.hear(path, first, self.now) {
            self.joiner.head = self.joiner.head.max(first.plus(count));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::SequenceNumber;
    use crate::record::{InstrumentId, Record};
    use crate::run::Carrier;

    const B: LanePath = LanePath::new(Lane::new(1), Carrier::Udp);

    fn stamp(sequence: u64) -> Stamp {
        Stamp::new(Epoch(4), SequenceNumber(sequence))
    }

    /// Line `sequence`: each tenth a digest; `salt` in what it says.
    fn line(sequence: u64, salt: u64) -> Line {
        let kind = if sequence.is_multiple_of(10) { Kind::BOOK_DIGEST } else { Kind::ADD };
        let mut record = Record::new(kind, InstrumentId(1));
        record.order_id.set(sequence ^ salt);
        Line::seal(record, stamp(sequence))
    }

    struct Bench(Joiner);

    impl Bench {
        fn new() -> Bench {
            let config = JoinConfig { window_lines: 64, silent_ns: 1_000, ..JoinConfig::default() };
            Bench(Joiner::new(config, B.lane, stamp(1)))
        }

        fn theirs(&mut self, now: u64, sequences: std::ops::Range<u64>, salt: u64) {
            let lines: Vec<Line> = sequences.clone().map(|at| line(at, salt)).collect();
            let run = Run { path: B, first: stamp(sequences.start), lines: &lines, publish_time: None };
            self.0.sink(Nanos(now)).on_run(run);
        }

        fn replay(&mut self, now: u64) {
            while self.0.wants_more() {
                let line = line(self.0.next().sequence().0, 0);
                self.0.on_own(&line, Nanos(now));
            }
        }
    }

    #[test]
    fn it_publishes_from_where_it_has_caught_up_and_a_digest_agrees() {
        let mut b = Bench::new();
        assert_eq!(b.0.outcome(Nanos(0)), Ok(None), "nothing was heard");
        b.theirs(1, 95..99, 0);
        assert_eq!((b.0.behind(), b.0.outcome(Nanos(1))), (98, Ok(None)));
        b.replay(2);
        assert_eq!(b.0.outcome(Nanos(2)), Ok(None), "no digest has been compared yet");
        assert_eq!((b.0.agreed(), b.0.arrived(stamp(98)), b.0.arrived(stamp(90))), ((4, 0), Some(Nanos(1)), None));
        b.theirs(3, 99..102, 0);
        assert_eq!(b.0.outcome(Nanos(3)), Ok(None), "behind again");
        b.replay(4);
        assert_eq!(b.0.outcome(Nanos(4)), Ok(Some(stamp(102))));
    }

    #[test]
    fn own_lines_ahead_of_the_other_lane_are_compared_when_that_comes() {
        let mut b = Bench::new();
        b.theirs(1, 1..2, 0);
        for sequence in 1..15 {
            b.0.on_own(&line(sequence, 0), Nanos(1));
        }
        assert_eq!(b.0.outcome(Nanos(1)), Ok(None));
        b.theirs(2, 2..9, 0);
        b.theirs(2, 10..11, 0);
        assert_eq!((b.0.agreed(), b.0.outcome(Nanos(2))), ((9, 1), Ok(Some(stamp(15)))), "one was lost on the way");
        b.theirs(2, 10..11, 0);
        assert_eq!(b.0.agreed(), (9, 1), "what comes twice counts once");
    }

    #[test]
    fn inputs_that_differ_are_refused_whoever_says_it_first() {
        for theirs_first in [true, false] {
            let mut b = Bench::new();
            b.theirs(1, 1..13, if theirs_first { 64 } else { 0 });
            b.replay(1);
            if !theirs_first {
                b.0.on_own(&line(13, 0), Nanos(1));
                b.theirs(2, 13..14, 64);
            }
            let at = stamp(if theirs_first { 1 } else { 13 });
            let why = CannotJoin::Differs { at, lane: B.lane, theirs: Kind::ADD, ours: Kind::ADD };
            assert_eq!((b.0.outcome(Nanos(2)), b.0.wants_more()), (Err(why), false));
            assert!(why.to_string().contains(&format!("at {at} lane 1 published Add")), "{why}");
        }
    }

    #[test]
    fn a_lane_that_ends_dies_or_starts_anew_is_not_joined() {
        let ending = |b: &mut Bench, next: Stamp, ended| {
            b.0.sink(Nanos(1)).on_position(Position { path: B, next, publish_time: None, ended });
            b.0.outcome(Nanos(1))
        };
        assert_eq!(ending(&mut Bench::new(), stamp(5), true), Err(CannotJoin::Ended { lane: B.lane, at: stamp(5) }));
        let newer = Stamp::new(Epoch(5), SequenceNumber(1));
        let why = CannotJoin::NewEpoch { lane: B.lane, epoch: Epoch(5) };
        assert_eq!(ending(&mut Bench::new(), newer, false), Err(why));
        let older = Stamp::new(Epoch(3), SequenceNumber(9));
        assert_eq!(ending(&mut Bench::new(), older, true), Ok(None), "what is left of an old epoch says nothing");
        let mut b = Bench::new();
        assert_eq!(b.0.outcome(Nanos(1)), Ok(None));
        assert_eq!(b.0.outcome(Nanos(1_001)), Err(CannotJoin::Silent { lane: B.lane }), "it was never heard of");
        let mut b = Bench::new();
        assert_eq!(ending(&mut b, stamp(5), false), Ok(None));
        assert_eq!(b.0.outcome(Nanos(1_000)), Ok(None));
        assert_eq!(b.0.outcome(Nanos(1_001)), Err(CannotJoin::Silent { lane: B.lane }));
        // Another lane's lines are no sign of this one's life, nor are they compared.
        let a = LanePath::new(Lane::new(0), Carrier::Udp);
        let lines = [line(1, 64)];
        let mut b = Bench::new();
        b.0.sink(Nanos(1)).on_run(Run { path: a, first: stamp(1), lines: &lines, publish_time: None });
        assert_eq!((b.0.behind(), b.0.outcome(Nanos(1_001))), (0, Err(CannotJoin::Silent { lane: B.lane })));
    }
}
