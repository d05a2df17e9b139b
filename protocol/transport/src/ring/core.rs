//! The ring's algorithm, apart from the memory it runs on.
//!
//! [`WriterCore`] and [`ReaderCore`] are generic over their memory ([`WordsMut`], [`Words`]) and over what a line is made
//! of ([`RingLine`]). The product runs them on mapped pages with lines of eight words; the model checker runs the same
//! source on its own atomics with lines of three words; the torn-write adversary runs it on memory whose words become
//! visible in any order. What is proved there is what ships.
//!
//! In units of words, with `W` words a line: the latest line stands at 0, line `i` at `2 * W + i * W`. With the product's
//! eight that is 128 bytes for the latest line (two cache lines, so that the adjacent-line prefetcher does not pull
//! line 0 along), then 64 bytes a line.

use std::sync::atomic::Ordering;

use protocol::line::{Epoch, Line, SequenceNumber, Stamp};
use protocol::record::Kind;
use protocol::run::LossCause;
use protocol::time::Nanos;

/// Lines that a reader copies before it hands them up.
pub const BATCH_LINES: usize = 32;
/// Of this many looks at an unchanged stamp word of the latest line, one reads the whole line: in remote memory the
/// stamp word can become visible before the words it covers.
pub const LOOKS_PER_WHOLE_LOOK: u32 = 64;
/// Of this many looks at an unchanged latest line, one looks at the reader's own place as well: the lines of a flush but
/// its newest stand in their places before the latest line changes. A multiple of [`LOOKS_PER_WHOLE_LOOK`], and large:
/// the place is written right after the latest line, and a look that falls just there fetches a line that is on its way
/// between the cores. One look in 16 put that into the 99th percentile (430 instead of 310 ns where a bare hand-over takes
/// 390).
pub const LOOKS_PER_PLACE_LOOK: u32 = 256;
const _: () = assert!(LOOKS_PER_PLACE_LOOK.is_multiple_of(LOOKS_PER_WHOLE_LOOK));
/// How old an anchor may be for the low half of a line's time to be completed with it: 2^32 ns less a second, which
/// covers what a line waits between its stamp and its flush.
const ANCHOR_LIMIT_NS: i64 = (1 << 32) - 1_000_000_000;

/// One word that others write.
pub trait Word {
    /// Its value.
    fn load(&self, order: Ordering) -> u64;
}

/// One word that this side alone writes.
pub trait WordMut {
    /// Makes `value` its value.
    fn store(&self, value: u64, order: Ordering);
}

/// The memory of a ring, as a reader sees it.
pub trait Words<const W: usize> {
    /// One of its words.
    type Word: Word;

    /// The `W` words from `offset` on.
    ///
    /// # Panics
    /// If the memory is shorter.
    fn place(&self, offset: usize) -> &[Self::Word; W];
}

/// The memory of a ring, as its only writer sees it.
pub trait WordsMut<const W: usize> {
    /// One of its words.
    type Word: WordMut;

    /// The `W` words from `offset` on.
    ///
    /// # Panics
    /// If the memory is shorter.
    fn place_mut(&self, offset: usize) -> &[Self::Word; W];
}

/// What a Heartbeat says beside its stamp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Beat {
    /// The publisher's clock in full.
    pub clock: Nanos,
    /// The session has ended.
    pub ended: bool,
}

/// What a ring needs to know of its lines: `W` words, of which the last is written last and holds the masked stamp.
pub trait RingLine<const W: usize>: Copy {
    /// A place never written.
    const ZERO: Self;

    /// From the words as they stand in memory.
    fn from_words(words: [u64; W]) -> Self;
    /// As the words stand in memory.
    fn words(&self) -> [u64; W];
    /// The stamp that the line would verify with.
    fn stamp(&self) -> Stamp;
    /// What it says if it is a Heartbeat.
    fn beat(&self) -> Option<Beat>;
    /// The low half of the publisher's clock; `None` for a line that has payload there.
    fn ts_publish(&self) -> Option<u32>;
}

impl RingLine<8> for Line {
    const ZERO: Line = Line::ZERO;

    #[inline(always)]
    fn from_words(words: [u64; 8]) -> Line {
        Line::from_words(words)
    }

    #[inline(always)]
    fn words(&self) -> [u64; 8] {
        Line::words(self)
    }

    #[inline(always)]
    fn stamp(&self) -> Stamp {
        Line::stamp(self)
    }

    #[inline(always)]
    fn beat(&self) -> Option<Beat> {
        (self.record.kind == Kind::HEARTBEAT)
            .then(|| Beat { clock: self.record.event_time(), ended: self.record.detail == 1 })
    }

    #[inline(always)]
    fn ts_publish(&self) -> Option<u32> {
        (self.record.kind != Kind::CONTINUATION).then(|| self.record.ts_publish.get())
    }
}

/// The fixed facts of one ring: they come from its header page or the control channel, never from a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RingShape {
    epoch: Epoch,
    first: SequenceNumber,
    capacity: u64,
}

impl RingShape {
    /// A ring of `capacity` lines whose first line is `first` of `epoch`; `None` unless `capacity` is a power of two of
    /// at least 2, `epoch` at least 1, and `first` a sequence number.
    pub const fn new(epoch: Epoch, first: SequenceNumber, capacity: usize) -> Option<RingShape> {
        let sequence_is_legal = first.0 >= 1 && first.0 <= SequenceNumber::MAX.0;
        if capacity >= 2 && capacity.is_power_of_two() && epoch.0 >= 1 && sequence_is_legal {
            Some(RingShape { epoch, first, capacity: capacity as u64 })
        } else {
            None
        }
    }

    /// The epoch of every line of this ring.
    #[inline]
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The number of places.
    #[inline]
    pub const fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// The stamp of the first line that this ring ever holds: sequence 1, or where a publisher that joins a running
    /// epoch begins.
    #[inline]
    pub const fn first(&self) -> Stamp {
        Stamp::new(self.epoch, self.first)
    }

    /// The number of words of the region, with `W` words a line.
    #[inline]
    pub const fn words<const W: usize>(&self) -> usize {
        W * (2 + self.capacity as usize)
    }

    /// The index of the place of `stamp`'s line.
    #[inline(always)]
    pub const fn index(&self, stamp: Stamp) -> usize {
        (stamp.0 & (self.capacity - 1)) as usize
    }

    /// Where the place of `stamp`'s line begins, in words.
    #[inline(always)]
    const fn offset<const W: usize>(&self, stamp: Stamp) -> usize {
        W * (2 + self.index(stamp))
    }
}

/// Where the latest line begins, in words.
const LATEST: usize = 0;

/// The writing half: one per ring, in ascending order, waiting for nobody.
pub struct WriterCore<M, L, const W: usize> {
    memory: M,
    shape: RingShape,
    /// The stamp that the next put must carry.
    next: Stamp,
    /// The newest line of this flush, which stands nowhere yet. Meaningful while `unflushed` is not 0.
    held: L,
    unflushed: u64,
    flush_limit: u64,
}

impl<M: WordsMut<W>, L: RingLine<W>, const W: usize> WriterCore<M, L, W> {
    /// A writer over `memory`, which is all zero and which nobody else writes.
    pub fn new(memory: M, shape: RingShape) -> Self {
        // The place that the latest line names must not be overwritten before the latest line is: at most `capacity`
        // lines may go unflushed. A sixteenth keeps readers near, and keeps most of the ring readable.
        let flush_limit = shape.capacity.min((shape.capacity / 16).max(2));
        WriterCore { memory, shape, next: shape.first(), held: L::ZERO, unflushed: 0, flush_limit }
    }

    /// The ring's fixed facts.
    pub fn shape(&self) -> &RingShape {
        &self.shape
    }

    /// The memory.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// The stamp that the next line must carry.
    #[inline(always)]
    pub fn next(&self) -> Stamp {
        self.next
    }

    /// The stamp after the last flushed line.
    #[inline(always)]
    pub fn head(&self) -> Stamp {
        Stamp(self.next.0 - self.unflushed)
    }

    /// Lines put since the last flush.
    #[inline(always)]
    pub fn unflushed(&self) -> usize {
        self.unflushed as usize
    }

    /// The oldest flushed line that the ring still holds (the head, when there is none).
    ///
    /// Unflushed lines but the newest stand in their places already, each in the place of a flushed one.
    #[inline]
    pub fn oldest(&self) -> Stamp {
        let overwritten = self.next.0 - u64::from(self.unflushed > 0);
        Stamp(self.shape.first().0.max(overwritten.saturating_sub(self.shape.capacity)).min(self.head().0))
    }

    /// Puts the line with stamp [`next`](Self::next). It is held back until the next put or flush.
    #[inline(always)]
    pub fn put(&mut self, line: &L) {
        debug_assert_eq!(line.stamp(), self.next, "lines are put in ascending order");
        debug_assert!(
            self.next.epoch() == self.shape.epoch,
            "sequence numbers of epoch {:?} ran out",
            self.shape.epoch
        );
        if self.unflushed >= self.flush_limit {
            self.flush();
        }
        if self.unflushed > 0 {
            self.write(self.shape.offset::<W>(Stamp(self.next.0 - 1)), &self.held);
        }
        self.held = *line;
        self.next = self.next.plus(1);
        self.unflushed += 1;
    }

    /// Makes every line that was put visible: the newest in the latest line first, then in its own place.
    #[inline(always)]
    pub fn flush(&mut self) {
        if self.unflushed > 0 {
            self.write(LATEST, &self.held);
            self.write(self.shape.offset::<W>(Stamp(self.next.0 - 1)), &self.held);
            self.unflushed = 0;
        }
    }

    /// Flushes, then writes `beat`, a Heartbeat with stamp [`next`](Self::next), to the latest line.
    pub fn beat(&mut self, beat: &L) {
        debug_assert_eq!(beat.stamp(), self.next, "a heartbeat carries the next stamp");
        debug_assert!(beat.beat().is_some(), "not a heartbeat");
        self.flush();
        self.write(LATEST, beat);
    }

    #[inline(always)]
    fn write(&self, offset: usize, line: &L) {
        let words = line.words();
        let place = self.memory.place_mut(offset);
        for (word, value) in place.iter().zip(words).take(W - 1) {
            word.store(value, Ordering::Relaxed);
        }
        // Release: pairs with the Acquire in ReaderCore::read. What was written before this line is visible to whoever
        // sees this stamp; that the line itself is whole is for its mask to prove.
        place[W - 1].store(words[W - 1], Ordering::Release);
    }
}

/// What a reader hands up: the ring's half of [`protocol::run::RunSink`], for lines of any size.
pub trait RingSink<L> {
    /// Consecutive verified lines, at least one. `publish_time`: at or before the first line's `ts_publish` and less
    /// than 2^32 ns earlier, where that is certain.
    fn on_lines(&mut self, first: Stamp, lines: &[L], publish_time: Option<Nanos>);
    /// A heartbeat: every line before `next` was written, and each of them was handed up or named as lost before this
    /// call.
    fn on_beat(&mut self, next: Stamp, beat: Beat);
    /// The `count` lines from `first` on will not come.
    fn on_loss(&mut self, first: Stamp, count: u64, cause: LossCause);
}

/// Where a reader begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StartAt {
    /// At the ring's first line if the ring still holds it, or holds nothing yet; else like `Newest`: a late joiner that
    /// cannot have the whole epoch gains nothing from having a part of it.
    Oldest,
    /// At the newest line that was flushed, which is delivered too; at the ring's first line if nothing was. What the
    /// writer overwrites before this line has been read is no loss: the reader joins at what is the newest by then.
    Newest,
    /// At this line, whether or not the ring still holds it: what it no longer holds is named as a loss.
    At(SequenceNumber),
}

/// What a reader has counted since it attached.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ReaderCounts {
    /// Lines handed up.
    pub lines: u64,
    /// Times the writer went round the ring past this reader.
    pub laps: u64,
    /// Lines lost to that.
    pub lapped_lines: u64,
    /// Lines lost because their place did not verify within the hedge time.
    pub unverified_lines: u64,
    /// Looks at the latest line that decoded to nothing believable: torn, or overtaken before its place was seen.
    pub disbelieved_looks: u64,
    /// Runs handed up without a publish time.
    pub undated_runs: u64,
}

/// The publisher's clock at some moment, and a bound on when that was.
#[derive(Clone, Copy)]
struct Anchor {
    /// The publisher's clock in full: at or before that of every line still to come.
    clock: Nanos,
    /// The reader's clock at a moment when what `clock` was taken from had not been written yet.
    not_before: Nanos,
}

/// A heartbeat that waits until every line before it has been handed up.
#[derive(Clone, Copy)]
struct PendingBeat {
    next: Stamp,
    beat: Beat,
    /// The reader's clock when the latest line was not yet this heartbeat; `None` if it stood there from the start.
    not_before: Option<Nanos>,
}

/// The reading half: a cursor over a ring that somebody else writes.
///
/// Every look copies all words of a line and verifies the copy. A place is accepted only with the stamp at the cursor;
/// the latest line is accepted only with the stamp at the cursor, and is otherwise a hint, believed only if its epoch is
/// the ring's own and the place that it names verifies with that very stamp.
pub struct ReaderCore<M, L, const W: usize> {
    memory: M,
    shape: RingShape,
    hedge_ns: i64,
    /// Where to begin, until that has been settled.
    start: Option<StartAt>,
    /// It began at the newest line, and has not got that line yet.
    is_joining: bool,
    /// The stamp of the next line to hand up.
    cursor: Stamp,
    /// The stamp after the newest line known to have been written; never below the cursor.
    head: Stamp,
    /// The stamp word of the latest line when it was last delivered or believed: nothing new while it stays.
    resolved: u64,
    /// The stamp word of the latest line when it was last looked at.
    seen: u64,
    looks: u32,
    /// Every poll looks at the place: the latest line is no news of lines, only of the writer's life.
    watches_place: bool,
    /// `now` of the last look at the latest line.
    looked_at: Option<Nanos>,
    /// `now` of the look before the one that found the latest line changed.
    unchanged_at: Option<Nanos>,
    /// `now` of the look that last found the latest line changed.
    life: Option<Nanos>,
    pending: Option<PendingBeat>,
    ended: bool,
    /// Since when the place at the cursor, known to have been written, does not verify.
    waiting_since: Option<Nanos>,
    anchor: Option<Anchor>,
    /// Lines from this stamp on were not yet flushed at this `now`.
    mark: (Stamp, Nanos),
    counts: ReaderCounts,
    batch: [L; BATCH_LINES],
}

impl<M: Words<W>, L: RingLine<W>, const W: usize> ReaderCore<M, L, W> {
    /// A reader over `memory`. `hedge_ns`: how long a place that was written may fail to verify before it counts as
    /// lost.
    pub fn new(memory: M, shape: RingShape, start: StartAt, hedge_ns: u64) -> Self {
        let first = shape.first();
        ReaderCore {
            memory,
            shape,
            hedge_ns: hedge_ns.min(i64::MAX as u64) as i64,
            start: Some(start),
            is_joining: false,
            cursor: first,
            head: first,
            resolved: 0,
            seen: 0,
            looks: LOOKS_PER_PLACE_LOOK - 1,
            watches_place: false,
            looked_at: None,
            unchanged_at: None,
            life: None,
            pending: None,
            ended: false,
            waiting_since: None,
            anchor: None,
            mark: (first, Nanos::ZERO),
            counts: ReaderCounts::default(),
            batch: [L::ZERO; BATCH_LINES],
        }
    }

    /// Looks at its place in every poll, and not now and then: for a ring whose latest line is written once per heartbeat
    /// interval, so that lines show in their places alone.
    pub fn watch_place(&mut self) {
        self.watches_place = true;
    }

    /// The ring's fixed facts.
    pub fn shape(&self) -> &RingShape {
        &self.shape
    }

    /// The stamp of the next line to hand up. Until the first poll that settles where to begin, the ring's first.
    pub fn cursor(&self) -> Stamp {
        self.cursor
    }

    /// The stamp after the newest line known to have been written: `head - cursor` is how far this reader is behind.
    pub fn head(&self) -> Stamp {
        self.head
    }

    /// Whether a heartbeat with the end of the session was handed up.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// `now` of the look that last found the latest line changed; `None` if it never changed since this reader attached.
    pub fn last_life(&self) -> Option<Nanos> {
        self.life
    }

    /// What was counted so far.
    pub fn counts(&self) -> &ReaderCounts {
        &self.counts
    }

    /// Hands up what there is, at most `limit` lines; returns how many.
    #[inline]
    pub fn poll<S: RingSink<L>>(&mut self, now: Nanos, limit: usize, sink: &mut S) -> usize {
        if limit == 0 || (self.start.is_some() && !self.settle_start()) {
            return 0;
        }
        if self.cursor < self.head {
            return self.poll_backlog(now, limit, sink);
        }
        self.looks = self.looks.wrapping_add(1);
        // Relaxed: only compared with what was seen before; what follows from a change is read again in full.
        let word = self.memory.place(LATEST)[W - 1].load(Ordering::Relaxed);
        if word == self.resolved && !self.looks.is_multiple_of(LOOKS_PER_WHOLE_LOOK) {
            self.looked_at = Some(now);
            if self.watches_place {
                return self.look_at_place(now, limit, sink);
            }
            // Place looks are whole looks too, so there is none here.
            self.mark = (self.cursor, now);
            return 0;
        }
        let count = self.look_at_latest(now, limit, sink);
        self.settle_beat(sink);
        count
    }

    /// Makes the next poll read the whole latest line and the place at the cursor, whatever the stamp word says.
    pub fn look_closely(&mut self) {
        self.looks = LOOKS_PER_PLACE_LOOK - 1;
    }

    /// Lines known to have been written come first: nothing newer matters until they are read.
    fn poll_backlog<S: RingSink<L>>(&mut self, now: Nanos, limit: usize, sink: &mut S) -> usize {
        let mut count = self.read_places(self.backlog_end(), None, now, limit, sink);
        if count == 0 {
            count = self.wait_or_lose(now, limit, sink);
        }
        self.settle_beat(sink);
        count
    }

    /// How far to read at once: up to a heartbeat that waits, else to the head.
    fn backlog_end(&self) -> Stamp {
        match self.pending {
            Some(pending) if pending.next > self.cursor => pending.next.min(self.head),
            _ => self.head,
        }
    }

    /// Decides where to begin. `false` if the latest line is not believable just now: to be tried again.
    fn settle_start(&mut self) -> bool {
        let first = self.shape.first();
        let cursor = match self.start {
            None => return true,
            Some(StartAt::At(sequence)) => Some(Stamp::new(self.shape.epoch, sequence)),
            Some(StartAt::Oldest) => {
                let place = self.read(self.shape.offset::<W>(first));
                let untouched = place.words() == [0; W] || place.stamp() == first;
                if untouched { Some(first) } else { self.newest() }
            }
            Some(StartAt::Newest) => self.newest(),
        };
        let Some(cursor) = cursor else {
            self.counts.disbelieved_looks += 1;
            return false;
        };
        self.cursor = cursor;
        self.head = cursor;
        self.mark.0 = cursor;
        self.is_joining = !matches!(self.start, Some(StartAt::At(_))) && cursor != first;
        self.start = None;
        true
    }

    /// The stamp of the newest flushed line, or the ring's first while there is none; `None` if the latest line is not
    /// believable.
    fn newest(&self) -> Option<Stamp> {
        let latest = self.read(LATEST);
        let stamp = latest.stamp();
        if latest.words() == [0; W] || (stamp == self.shape.first() && latest.beat().is_some()) {
            return Some(self.shape.first());
        }
        let line = self.line_named_by(&latest)?;
        self.confirms(line).then_some(line)
    }

    /// The line that a look at the latest line says is the newest, not yet believed.
    #[inline(always)]
    fn line_named_by(&self, latest: &L) -> Option<Stamp> {
        let stamp = latest.stamp();
        let named = if latest.beat().is_some() { stamp.0.wrapping_sub(1) } else { stamp.0 };
        let is_of_this_ring = stamp.epoch() == self.shape.epoch && named >= self.shape.first().0;
        is_of_this_ring.then_some(Stamp(named))
    }

    /// The latest line changed, was not understood last time, or is due for a whole look.
    fn look_at_latest<S: RingSink<L>>(&mut self, now: Nanos, limit: usize, sink: &mut S) -> usize {
        let latest = self.read(LATEST);
        let words = latest.words();
        let word = words[W - 1];
        let seen_already = word == self.resolved;
        self.note_look(word, now);

        let stamp = latest.stamp();
        let beat = latest.beat();
        if let (Some(beat), true) = (beat, stamp == self.shape.first()) {
            // No line was written before this heartbeat: there is no place to confirm it, and no position in it. The
            // stamp is one that was expected, so all of its bits check it.
            self.resolved = word;
            if !seen_already && self.cursor == stamp {
                self.pending = Some(PendingBeat { next: stamp, beat, not_before: self.unchanged_at });
            }
            return self.read_on(now, limit, sink);
        }
        let Some(named) = self.line_named_by(&latest) else {
            if words == [0; W] {
                self.resolved = word;
            } else {
                self.counts.disbelieved_looks += 1;
            }
            return self.read_on(now, limit, sink);
        };

        let mut count = 0;
        if beat.is_none() && named >= self.cursor && named.0 - self.cursor.0 < self.shape.capacity {
            // Whatever stands between the cursor and it is in its place already, and proves itself. If the lines up to it
            // all do, the copy in hand is the line at the cursor, or it is torn and verifies with nothing.
            count = self.read_places(named, Some(&latest), now, limit, sink);
            if self.cursor > named {
                self.resolved = word;
                return count;
            }
        }
        if !self.confirms(named) {
            self.counts.disbelieved_looks += 1;
            return if count == 0 { self.read_on(now, limit, sink) } else { count };
        }
        self.resolved = word;
        self.believe_head(named.plus(1), now);
        if let (Some(beat), false) = (beat, seen_already)
            && stamp >= self.cursor
        {
            self.pending = Some(PendingBeat { next: stamp, beat, not_before: self.unchanged_at });
        }
        if count == 0 && self.cursor < self.head {
            count = self.read_places(self.backlog_end(), None, now, limit, sink);
            if count == 0 {
                count = self.wait_or_lose(now, limit, sink);
            }
        } else if count == 0 && seen_already && (self.watches_place || self.looks.is_multiple_of(LOOKS_PER_PLACE_LOOK))
        {
            count = self.read_on(now, limit, sink);
        }
        count
    }

    /// Nothing new in the latest line of a ring where that says nothing about lines.
    fn look_at_place<S: RingSink<L>>(&mut self, now: Nanos, limit: usize, sink: &mut S) -> usize {
        let count = self.read_on(now, limit, sink);
        if count == 0 && self.cursor == self.head {
            // The place was looked at and the line was not there.
            self.mark = (self.cursor, now);
        }
        count
    }

    /// Reads places from the cursor on for as long as they verify, without any hint that they were written.
    fn read_on<S: RingSink<L>>(&mut self, now: Nanos, limit: usize, sink: &mut S) -> usize {
        let end = self.cursor.plus(self.shape.capacity);
        let count = self.read_places(end, None, now, limit, sink);
        if count == 0 && self.is_overwritten() {
            return self.wait_or_lose(now, limit, sink);
        }
        count
    }

    /// The place at the cursor was written, and does not verify: lapped, or not (yet) visible.
    #[cold]
    fn wait_or_lose<S: RingSink<L>>(&mut self, now: Nanos, limit: usize, sink: &mut S) -> usize {
        let latest = self.read(LATEST);
        self.note_look(latest.words()[W - 1], now);
        if let Some(named) = self.line_named_by(&latest)
            && named >= self.head
            && self.confirms(named)
        {
            self.believe_head(named.plus(1), now);
        }
        if self.is_overwritten() {
            self.believe_head(self.cursor.plus(self.shape.capacity + 1), now);
        }
        if self.head.0 - self.cursor.0 > self.shape.capacity {
            if self.is_joining {
                // It has not had a line yet, so it has lost none: it joins once more, at what is the newest by now.
                self.start = Some(StartAt::Newest);
                self.pending = None;
                return 0;
            }
            self.counts.laps += 1;
            self.lose(Stamp(self.head.0 - self.shape.capacity / 2), LossCause::Lapped, sink);
        } else if !self.confirms(self.cursor) {
            let since = *self.waiting_since.get_or_insert(now);
            if now.since(since) < self.hedge_ns {
                return 0;
            }
            let mut to = self.cursor.plus(1);
            while to < self.head && !self.confirms(to) {
                to = to.plus(1);
            }
            self.lose(to, LossCause::Unverified, sink);
        }
        self.read_places(self.backlog_end(), None, now, limit, sink)
    }

    /// Names the lines from the cursor to `to` as lost, and goes on from there.
    fn lose<S: RingSink<L>>(&mut self, to: Stamp, cause: LossCause, sink: &mut S) {
        let count = to.0 - self.cursor.0;
        match cause {
            LossCause::Lapped => self.counts.lapped_lines += count,
            _ => self.counts.unverified_lines += count,
        }
        sink.on_loss(self.cursor, count, cause);
        self.cursor = to;
        self.waiting_since = None;
    }

    /// Reads places from the cursor to `end`, as long as they verify; then `tail`, which is a copy of the line at `end`.
    #[inline]
    fn read_places<S: RingSink<L>>(
        &mut self,
        end: Stamp,
        tail: Option<&L>,
        now: Nanos,
        limit: usize,
        sink: &mut S,
    ) -> usize {
        let mut total = 0;
        loop {
            let first = self.cursor;
            let room = BATCH_LINES.min(limit - total);
            let mut count = 0;
            while count < room {
                let stamp = first.plus(count as u64);
                let line = if stamp < end {
                    self.read(self.shape.offset::<W>(stamp))
                } else if let (Some(tail), true) = (tail, stamp == end) {
                    *tail
                } else {
                    break;
                };
                if line.stamp() != stamp || line.beat().is_some() {
                    break;
                }
                self.batch[count] = line;
                count += 1;
            }
            if count > 0 {
                self.deliver(count, now, sink);
                total += count;
            }
            if count < room || total == limit {
                return total;
            }
        }
    }

    /// Hands up the first `count` lines of the batch: those from the cursor on.
    #[inline(always)]
    fn deliver<S: RingSink<L>>(&mut self, count: usize, now: Nanos, sink: &mut S) {
        let lines = &self.batch[..count];
        let end = self.cursor.plus(count as u64);
        let mut publish_time = None;
        if let Some(anchor) = &mut self.anchor {
            if now.since(anchor.not_before) < ANCHOR_LIMIT_NS {
                publish_time = Some(anchor.clock);
                if let Some(low) = lines.iter().rev().find_map(L::ts_publish) {
                    anchor.clock = Nanos::next_with_low(anchor.clock, low);
                }
                if end > self.mark.0 {
                    anchor.not_before = anchor.not_before.max(self.mark.1);
                }
            } else {
                self.anchor = None;
            }
        }
        self.counts.undated_runs += u64::from(publish_time.is_none());
        self.counts.lines += count as u64;
        sink.on_lines(self.cursor, lines, publish_time);
        self.cursor = end;
        self.head = self.head.max(end);
        self.waiting_since = None;
        self.is_joining = false;
    }

    /// Hands up the heartbeat that waited for the lines before it.
    #[inline]
    fn settle_beat<S: RingSink<L>>(&mut self, sink: &mut S) {
        let Some(pending) = self.pending else { return };
        if self.cursor < pending.next {
            return;
        }
        self.pending = None;
        self.ended |= pending.beat.ended;
        if let (Some(not_before), true) = (pending.not_before, self.cursor == pending.next) {
            self.anchor = Some(Anchor { clock: pending.beat.clock, not_before });
        }
        sink.on_beat(pending.next, pending.beat);
    }

    fn believe_head(&mut self, head: Stamp, now: Nanos) {
        self.head = self.head.max(head);
        // Where lines show in their places alone, some beyond the head may have been there already.
        if self.cursor >= self.mark.0 && !self.watches_place {
            self.mark = (self.head, now);
        }
    }

    fn note_look(&mut self, word: u64, now: Nanos) {
        if word != self.seen {
            self.seen = word;
            self.unchanged_at = self.looked_at;
            if self.looked_at.is_some() {
                self.life = Some(now);
            }
        }
        self.looked_at = Some(now);
    }

    /// Whether the place of `stamp`'s line verifies with it.
    #[inline]
    fn confirms(&self, stamp: Stamp) -> bool {
        let line = self.read(self.shape.offset::<W>(stamp));
        line.stamp() == stamp && line.beat().is_none()
    }

    /// Whether the place at the cursor holds the line of the writer's next round: a stamp known beforehand, so all of its
    /// bits check it.
    #[inline]
    fn is_overwritten(&self) -> bool {
        self.confirms(self.cursor.plus(self.shape.capacity))
    }

    /// Copies the line at `offset`, torn or not.
    #[inline(always)]
    fn read(&self, offset: usize) -> L {
        let place = self.memory.place(offset);
        let mut words = [0; W];
        // Acquire: pairs with the Release in WriterCore::write. Whoever sees this stamp sees what was written before it,
        // so a place below a believed position holds its line, or a later one.
        words[W - 1] = place[W - 1].load(Ordering::Acquire);
        for (value, word) in words.iter_mut().zip(place).take(W - 1) {
            *value = word.load(Ordering::Relaxed);
        }
        L::from_words(words)
    }
}

#[cfg(test)]
mod tests;
