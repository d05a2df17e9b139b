//! The writing half: the publisher's ring, source of everything.

use std::sync::Arc;

use protocol::line::{Epoch, Line, SequenceNumber, Stamp};
use protocol::record::{ChannelId, InstrumentId, Kind, Lane, Record};
use protocol::run::{Carrier, LanePath};
use protocol::time::Nanos;

use crate::counters::{COUNTERS_LEN, CounterPage};
use crate::memory::{Mapping, Pages, RingMemory, WriterMemory};
use crate::ring::core::{RingShape, StartAt, WriterCore};
use crate::ring::reader::RingReader;
use crate::shm::{self, Published, RingOptions, SetupError};

/// Writes a ring, in this process's own memory or in a named file that other processes map.
///
/// There is one writer for each ring, always: nothing here can be cloned, and a named ring is locked by its file.
/// Writing never waits for anybody.
pub struct RingWriter {
    core: WriterCore<WriterMemory, Line, 8>,
    channel: ChannelId,
    lane: Lane,
    counters: CounterPage,
    pages: Pages,
    /// Removes the name and gives up the lock; `None` for an anonymous ring.
    published: Option<Published>,
}

impl RingWriter {
    /// A ring of `lines` lines that only this process can read.
    ///
    /// # Errors
    /// [`SetupError::Shape`] unless `lines` is a power of two of at least 2 and `epoch` at least 1;
    /// [`SetupError::System`] when there is no memory.
    pub fn anonymous(channel: ChannelId, lane: Lane, epoch: Epoch, lines: usize) -> Result<RingWriter, SetupError> {
        let shape = shm::shape(epoch, SequenceNumber::FIRST, lines)?;
        let map = |len| Mapping::anonymous(len).map_err(|source| SetupError::memory(len, source));
        let (counters, _) = map(COUNTERS_LEN)?;
        let (region, pages) = map(shm::region_len(lines))?;
        let memory = RingMemory::new(Arc::new(region), 0, lines);
        Ok(RingWriter {
            core: WriterCore::new(WriterMemory::new(memory), shape),
            channel,
            lane,
            counters: CounterPage::new(Arc::new(counters), 0),
            pages,
            published: None,
        })
    }

    /// A named ring in shared memory, for every process of this host that may read its file. See [`shm`] for the file
    /// and for what keeps two publishers apart.
    ///
    /// # Errors
    /// [`SetupError::Alive`] when another process publishes this lane; the others as they say.
    pub fn create(options: &RingOptions) -> Result<RingWriter, SetupError> {
        let (published, parts) = Published::create(options)?;
        Ok(RingWriter {
            core: WriterCore::new(WriterMemory::new(parts.memory), parts.shape),
            channel: options.channel,
            lane: options.lane,
            counters: parts.counters,
            pages: parts.pages,
            published: Some(published),
        })
    }

    /// The stamp that the next put must carry.
    #[inline(always)]
    pub fn next(&self) -> Stamp {
        self.core.next()
    }

    /// Puts `line`, whose stamp is [`next`](Self::next). Readers see it with the next put or flush at the latest.
    #[inline(always)]
    pub fn put(&mut self, line: &Line) {
        self.core.put(line);
    }

    /// Shows readers every line that was put.
    ///
    /// A put flushes by itself when a sixteenth of the ring (at least two lines) has not been flushed.
    #[inline(always)]
    pub fn flush(&mut self) {
        self.core.flush();
    }

    /// Flushes, then says in the latest line that the publisher lives, what its clock reads, and whether the session has
    /// ended.
    pub fn heartbeat(&mut self, now: Nanos, ended: bool) {
        let mut record = Record::new(Kind::HEARTBEAT, InstrumentId::CHANNEL);
        record.ts_event.set(now.0);
        record.detail = u8::from(ended);
        self.core.beat(&Line::seal(record, self.core.next()));
    }

    /// The stamp after the last flushed line.
    #[inline(always)]
    pub fn head(&self) -> Stamp {
        self.core.head()
    }

    /// The oldest flushed line that [`lines`](Self::lines) can still give; the head when there is none.
    #[inline]
    pub fn oldest(&self) -> Stamp {
        self.core.oldest()
    }

    /// Lines put since the last flush.
    #[inline(always)]
    pub fn unflushed(&self) -> usize {
        self.core.unflushed()
    }

    /// The `count` flushed lines from `first` on, where they lie: the second slice is what follows the ring's wrap.
    ///
    /// # Panics
    /// Unless all of them lie between [`oldest`](Self::oldest) and [`head`](Self::head).
    #[inline]
    pub fn lines(&self, first: Stamp, count: usize) -> (&[Line], &[Line]) {
        let (oldest, head) = (self.oldest(), self.head());
        assert!(
            first >= oldest && first <= head && count as u64 <= head.0 - first.0,
            "{count} lines from {first} are not all held: the ring holds {oldest} to {head}"
        );
        let index = self.core.shape().index(first);
        let before_wrap = count.min(self.capacity() - index);
        let memory = self.core.memory();
        // SAFETY: this is the ring's only writer, and it stores to places only in `put`, `flush` and `heartbeat`, which
        // take `&mut self`: not while these borrows of `self` live.
        unsafe { (memory.lines(index, before_wrap), memory.lines(0, count - before_wrap)) }
    }

    /// The number of places.
    pub fn capacity(&self) -> usize {
        self.core.shape().capacity()
    }

    /// The ring's epoch, size and first line.
    pub fn shape(&self) -> &RingShape {
        self.core.shape()
    }

    /// The channel.
    pub fn channel(&self) -> ChannelId {
        self.channel
    }

    /// The lane.
    pub fn lane(&self) -> Lane {
        self.lane
    }

    /// The epoch of every line.
    pub fn epoch(&self) -> Epoch {
        self.core.shape().epoch()
    }

    /// The counters that any process may read while this one runs.
    pub fn counters(&self) -> &CounterPage {
        &self.counters
    }

    /// What kind of pages the ring got.
    pub fn pages(&self) -> Pages {
        self.pages
    }

    /// Where a named ring's file is.
    pub fn path(&self) -> Option<&std::path::Path> {
        self.published.as_ref().map(Published::path)
    }

    /// The ring's region, for a card that reads it.
    pub(crate) fn memory(&self) -> &RingMemory {
        self.core.memory().shared()
    }

    /// A reader in this process. See [`RingReader::new`].
    pub fn reader(&self, start: StartAt, hedge_ns: u64) -> RingReader {
        let path = LanePath::new(self.lane, Carrier::SharedMemory);
        RingReader::new(self.core.memory().shared().clone(), *self.core.shape(), path, start, hedge_ns)
    }
}
