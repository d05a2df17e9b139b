//! A lane over shared memory that survives its publisher.

use std::path::PathBuf;

use protocol::line::Stamp;
use protocol::record::Lane;
use protocol::run::{Carrier, LanePath, LossCause, RunSink};
use protocol::time::Nanos;

use super::{SetupError, ShmRing};
use crate::lane::LaneRx;
use crate::ring::{ReaderCounts, RingReader, StartAt};

/// How to read a named ring.
#[derive(Clone, Debug)]
pub struct RxOptions {
    /// The channel's name.
    pub name: String,
    /// The lane.
    pub lane: Lane,
    /// The directory; `None`: by [`DIR_VARIABLE`](super::DIR_VARIABLE), else [`DEFAULT_DIR`](super::DEFAULT_DIR).
    pub dir: Option<PathBuf>,
    /// Where to begin in the first ring.
    pub start: StartAt,
    /// How long a line that was written may fail to verify before it is named as lost.
    pub hedge_ns: u64,
    /// After how long a silence of the latest line the name is looked up again.
    pub silent_ns: u64,
    /// At most how often it is looked up.
    pub relook_ns: u64,
}

impl RxOptions {
    /// From the oldest line on, with 200 us of hedge time; the name is looked up again after 100 ms of silence, each
    /// 100 ms.
    pub fn new(name: &str, lane: Lane) -> RxOptions {
        RxOptions {
            name: name.to_owned(),
            lane,
            dir: None,
            start: StartAt::Oldest,
            hedge_ns: 200_000,
            silent_ns: 100_000_000,
            relook_ns: 100_000_000,
        }
    }
}

/// What a lane over shared memory has counted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RxCounts {
    /// Times the name was looked up while the ring was silent.
    pub relooks: u64,
    /// Times a publisher's fresh ring took the place of the one before.
    pub reattached: u64,
    /// Rings found under the name that were of an older epoch, and left alone.
    pub older_epochs: u64,
    /// Files found under the name that could not be used.
    pub bad_files: u64,
}

/// Reads a named ring, and goes over to the fresh one when its publisher has died and another has started.
///
/// While the latest line changes, polling makes no system call. When it is silent, the name is looked up at the stated
/// interval. A file of a newer epoch is read from its first line on, after the old ring has been read to its end. A
/// fresh file of the same epoch (its publisher joined what another lane publishes) is read from the cursor on; lines that
/// it begins after are named as [`LossCause::Missing`]. An older epoch is left alone and counted.
pub struct ShmRx {
    options: RxOptions,
    dir: PathBuf,
    attached: Option<(ShmRing, RingReader)>,
    /// The fresh ring, while the old one is read to its end.
    next: Option<ShmRing>,
    /// Whether the old ring has been looked at closely since the fresh one was found.
    looked_closely: bool,
    /// `now` of the first poll of this ring.
    attached_at: Option<Nanos>,
    looked_up_at: Option<Nanos>,
    counts: RxCounts,
    past: ReaderCounts,
}

impl ShmRx {
    /// Opens the ring that is there.
    ///
    /// # Errors
    /// As [`ShmRing::open`]; [`SetupError::NotThere`] is worth trying again, or use [`ShmRx::waiting`].
    pub fn open(options: RxOptions) -> Result<ShmRx, SetupError> {
        let mut rx = ShmRx::waiting(options)?;
        let ring = ShmRing::open_in(&rx.dir, &rx.options.name, rx.options.lane)?;
        rx.attach(ring, rx.options.start);
        Ok(rx)
    }

    /// Opens the ring if it is there; otherwise each poll looks for it, at the interval of
    /// [`relook_ns`](RxOptions::relook_ns).
    ///
    /// # Errors
    /// [`SetupError::Name`] if there can never be such a ring. What else is wrong with a file under the name is counted
    /// in [`RxCounts::bad_files`], and looked at again.
    pub fn waiting(options: RxOptions) -> Result<ShmRx, SetupError> {
        let dir = super::dir_or_default(options.dir.as_deref());
        super::path_of(&dir, &options.name, options.lane)?;
        Ok(ShmRx {
            options,
            dir,
            attached: None,
            next: None,
            looked_closely: false,
            attached_at: None,
            looked_up_at: None,
            counts: RxCounts::default(),
            past: ReaderCounts::default(),
        })
    }

    /// The lane that is read.
    pub fn lane(&self) -> Lane {
        self.options.lane
    }

    /// The ring being read, once there is one.
    pub fn ring(&self) -> Option<&ShmRing> {
        self.attached.as_ref().map(|(ring, _)| ring)
    }

    /// The stamp of the next line to hand up.
    pub fn cursor(&self) -> Option<Stamp> {
        self.attached.as_ref().map(|(_, reader)| reader.cursor())
    }

    /// The stamp after the newest line that the writer is known to have written.
    pub fn head(&self) -> Option<Stamp> {
        self.attached.as_ref().map(|(_, reader)| reader.head())
    }

    /// `now` of the poll that last found the latest line of the ring changed.
    pub fn last_life(&self) -> Option<Nanos> {
        self.attached.as_ref().and_then(|(_, reader)| reader.last_life())
    }

    /// What was counted about rings.
    pub fn counts(&self) -> &RxCounts {
        &self.counts
    }

    /// What was counted about lines, over all rings so far.
    pub fn reader_counts(&self) -> ReaderCounts {
        match &self.attached {
            Some((_, reader)) => sum(&self.past, reader.counts()),
            None => self.past,
        }
    }

    fn attach(&mut self, ring: ShmRing, start: StartAt) {
        if let Some((_, reader)) = &self.attached {
            self.past = sum(&self.past, reader.counts());
        }
        let reader = ring.reader(start, self.options.hedge_ns);
        self.attached = Some((ring, reader));
        self.attached_at = None;
        self.looked_closely = false;
    }

    /// Nothing was read: is the ring still the one to read?
    #[cold]
    fn look_up(&mut self, now: Nanos) {
        self.looked_up_at = Some(now);
        self.counts.relooks += 1;
        if self.attached.as_ref().is_some_and(|(ring, _)| !ring.is_replaced()) {
            return;
        }
        let found = match ShmRing::open_in(&self.dir, &self.options.name, self.options.lane) {
            Ok(found) => found,
            Err(error) => {
                self.counts.bad_files += u64::from(!error.is_not_there());
                return;
            }
        };
        match &self.attached {
            None => self.attach(found, self.options.start),
            Some((ring, _)) if found.shape().epoch() < ring.shape().epoch() => self.counts.older_epochs += 1,
            Some(_) => {
                self.next = Some(found);
                self.looked_closely = false;
            }
        }
    }

    /// Goes over to the fresh ring: its first line, or within one epoch the line at the cursor.
    fn go_over<S: RunSink>(&mut self, fresh: ShmRing, sink: &mut S) {
        let first = fresh.shape().first();
        let cursor = self.cursor().unwrap_or(first);
        if first.epoch() == cursor.epoch() && first > cursor {
            sink.on_loss(
                LanePath::new(self.options.lane, Carrier::SharedMemory),
                cursor,
                first.0 - cursor.0,
                LossCause::Missing,
            );
        }
        // Stamps order by epoch first, so in a newer epoch this is the fresh ring's first line.
        let start = first.max(cursor).sequence();
        self.counts.reattached += 1;
        self.attach(fresh, StartAt::At(start));
    }

    #[cold]
    fn poll_idle<S: RunSink>(&mut self, now: Nanos, sink: &mut S) {
        let due = |at: Option<Nanos>| at.is_none_or(|at| now.since(at) >= self.options.relook_ns as i64);
        let Some((_, reader)) = &mut self.attached else {
            if due(self.looked_up_at) {
                self.look_up(now);
            }
            return;
        };
        if self.next.is_some() {
            if reader.cursor() < reader.head() {
                return;
            }
            if !self.looked_closely {
                // Its writer is gone, so one look at everything is the last word.
                reader.look_closely();
                self.looked_closely = true;
                return;
            }
            if let Some(fresh) = self.next.take() {
                self.go_over(fresh, sink);
            }
            return;
        }
        if due(self.looked_up_at) {
            self.look_up(now);
        }
    }
}

impl LaneRx for ShmRx {
    #[inline]
    fn poll<S: RunSink>(&mut self, now: Nanos, limit: usize, sink: &mut S) -> usize {
        if let Some((_, reader)) = &mut self.attached {
            let count = reader.poll(now, limit, sink);
            if count > 0 {
                self.looked_closely = false;
                return count;
            }
            if self.next.is_none() {
                let attached_at = *self.attached_at.get_or_insert(now);
                let alive_at = reader.last_life().unwrap_or(attached_at);
                if now.since(alive_at) < self.options.silent_ns as i64 {
                    return 0;
                }
            }
        }
        if limit > 0 {
            self.poll_idle(now, sink);
        }
        0
    }

    #[inline]
    fn known_head(&self) -> Option<Stamp> {
        self.head()
    }
}

fn sum(a: &ReaderCounts, b: &ReaderCounts) -> ReaderCounts {
    ReaderCounts {
        lines: a.lines + b.lines,
        laps: a.laps + b.laps,
        lapped_lines: a.lapped_lines + b.lapped_lines,
        unverified_lines: a.unverified_lines + b.unverified_lines,
        disbelieved_looks: a.disbelieved_looks + b.disbelieved_looks,
        undated_runs: a.undated_runs + b.undated_runs,
    }
}
