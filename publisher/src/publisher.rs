//! The busy-polling loop: what is due goes into the ring, and out on every lane.

use hdrhistogram::Histogram;
use protocol::book::BookState;
use protocol::time::Nanos;
use transport::counters::Counter;
use transport::{LaneTx, RingWriter};

use crate::feed::FeedSource;
use crate::pace::Schedule;
use crate::pipeline::{Pipeline, PipelineError};
use crate::turns::IdleGaps;
use crate::venue::Venue;

/// Messages taken at most in one turn, so that lanes, heartbeats and the clock get theirs.
const BATCH_MESSAGES: usize = 64;

/// What the loop is to do.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PublisherConfig {
    /// When each message is due.
    pub schedule: Schedule,
    /// A sign of life at least this often, ns.
    pub heartbeat_ns: u64,
}

/// What a turn came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// This many messages were handed over.
    Worked(usize),
    /// The feed has ended; everything has been flushed, and the end announced.
    Ended,
}

/// What the loop counted.
#[derive(Debug)]
pub struct PublisherStats {
    /// Messages handed over.
    pub messages: u64,
    /// Lines put into the ring.
    pub lines: u64,
    /// When the first message was handed over, and the last.
    pub first: Option<Nanos>,
    /// See `first`.
    pub last: Nanos,
    /// The intended time of the first message and of the last; `None` when flat out.
    pub intended: Option<(Nanos, Nanos)>,
    /// How far behind its intended time each message was handed over, ns. Empty when flat out.
    pub lag: Histogram<u64>,
}

/// Names of the counters in the ring's counter page, in order.
const COUNTERS: [&str; 8] = [
    "messages",
    "lines",
    "digests",
    "heartbeats",
    "books made suspect",
    "sender lag max ns",
    "lines unsent by lanes",
    "ended",
];
/// The counter page is written this often, ns.
const COUNTERS_EVERY_NS: u64 = 10_000_000;

/// One channel's publisher: see the [module](self).
///
/// `L` is the set of lanes beside the ring itself: `()` for shared memory alone, one lane, or a tuple of them.
pub struct Publisher<S, V, L> {
    pipeline: Pipeline<S, V>,
    ring: RingWriter,
    lanes: L,
    config: PublisherConfig,
    stats: PublisherStats,
    gaps: IdleGaps,
    counters: [Counter; COUNTERS.len()],
    next_counters: Nanos,
    flush_at: usize,
    next_heartbeat: Nanos,
    /// When something last went out on the lanes.
    last_sent: Nanos,
    heartbeats: u64,
    last_work: usize,
    ended: bool,
}

impl<S: FeedSource, V: Venue, L: LaneTx> Publisher<S, V, L> {
    /// A publisher that has sent nothing. The first call of [`Publisher::do_work`] sends a heartbeat.
    ///
    /// # Panics
    /// If the ring's counter page is full or has these names already: it is for this publisher alone.
    pub fn new(pipeline: Pipeline<S, V>, ring: RingWriter, lanes: L, config: PublisherConfig) -> Publisher<S, V, L> {
        let counters = COUNTERS.map(|name| ring.counters().register(name).expect("a fresh counter page has room"));
        let flush_at = (ring.capacity() / 16).max(1);
        Publisher {
            pipeline,
            ring,
            lanes,
            config,
            stats: PublisherStats {
                messages: 0,
                lines: 0,
                first: None,
                last: Nanos::ZERO,
                intended: None,
                lag: Histogram::new_with_bounds(1, 1_000_000_000_000, 3).expect("bounds are legal"),
            },
            gaps: IdleGaps::new(),
            counters,
            next_counters: Nanos::ZERO,
            flush_at,
            next_heartbeat: Nanos::ZERO,
            last_sent: Nanos::ZERO,
            heartbeats: 0,
            last_work: 1,
            ended: false,
        }
    }

    /// One turn at time `now`: hands over what is due, flushes ring and lanes, gives a sign of life at the heartbeat
    /// interval.
    ///
    /// # Errors
    /// [`PipelineError`], after everything before the fault was flushed. The publisher can still be ended in good order
    /// with [`Publisher::end`].
    #[inline]
    pub fn do_work(&mut self, now: Nanos) -> Result<Turn, PipelineError> {
        self.gaps.turn(now, self.last_work);
        let work = match self.take_due(now) {
            Ok(work) => work,
            Err(error) => {
                self.flush(now);
                self.settle(now)?;
                return Err(error);
            }
        };
        self.last_work = work;
        if work > 0 {
            self.flush(now);
            self.last_sent = now;
            // The lines are on their way; now the publisher's own books, and a digest if one is due.
            self.settle(now)?;
        } else if self.lanes.flush(&self.ring, now) > 0 {
            // What a lane's queue had no room for does not wait for the next message or sign of life.
            self.last_sent = now;
        }
        if now >= self.next_heartbeat {
            self.heartbeat(now);
        }
        if now >= self.next_counters {
            self.next_counters = now.plus(COUNTERS_EVERY_NS);
            self.write_counters();
        }
        if self.ended {
            self.end(now);
            return Ok(Turn::Ended);
        }
        Ok(Turn::Worked(work))
    }

    /// Hands over what is due at `now`, at most a batch. What was handed over before a fault counts.
    #[inline]
    fn take_due(&mut self, now: Nanos) -> Result<usize, PipelineError> {
        // Until the start even a flat-out feed waits: heartbeats give subscribers the publisher's clock meanwhile.
        if now.0 < self.config.schedule.start_ns {
            return Ok(0);
        }
        let (steps, messages) = (self.pipeline.steps(), self.pipeline.messages());
        let outcome = self.take_batch(now);
        let work = (self.pipeline.steps() - steps) as usize;
        if work > 0 {
            self.stats.messages += self.pipeline.messages() - messages;
            self.stats.first.get_or_insert(now);
            self.stats.last = now;
        }
        outcome.map(|()| work)
    }

    #[inline]
    fn take_batch(&mut self, now: Nanos) -> Result<(), PipelineError> {
        for _ in 0..BATCH_MESSAGES {
            let Some(due) = self.pipeline.peek()? else {
                self.ended = true;
                return Ok(());
            };
            if let Some(intended) = self.config.schedule.intended(due.index, due.time) {
                if intended > now {
                    return Ok(());
                }
                self.stats.lag.saturating_record(now.0 - intended.0);
                self.stats.intended.get_or_insert((intended, intended)).1 = intended;
            }
            let (ring, lines) = (&mut self.ring, &mut self.stats.lines);
            self.pipeline.publish(now, &mut |line| {
                ring.put(line);
                *lines += 1;
            })?;
            if self.ring.unflushed() >= self.flush_at {
                self.flush(now);
            }
        }
        Ok(())
    }

    #[inline]
    fn settle(&mut self, now: Nanos) -> Result<(), PipelineError> {
        let (ring, lines) = (&mut self.ring, &mut self.stats.lines);
        self.pipeline.settle(now, &mut |line| {
            ring.put(line);
            *lines += 1;
        })?;
        if self.ring.unflushed() > 0 {
            self.flush(now);
        }
        Ok(())
    }

    #[inline]
    fn flush(&mut self, now: Nanos) {
        self.ring.flush();
        self.lanes.flush(&self.ring, now);
    }

    /// A sign of life on the ring, under traffic too: it is the only thing there that carries the clock in full, and a late
    /// joiner needs it. On the lanes only when nothing else was sent: each of their packets carries the clock.
    fn heartbeat(&mut self, now: Nanos) {
        self.ring.heartbeat(now, self.ended);
        if self.ended || now.since(self.last_sent) >= self.config.heartbeat_ns as i64 {
            self.lanes.heartbeat(&self.ring, now, self.ended);
            self.last_sent = now;
        }
        self.heartbeats += 1;
        self.next_heartbeat = now.plus(self.config.heartbeat_ns);
    }

    /// Says that nothing follows: flushes, and announces the end on ring and lanes. May be called again, so that a
    /// subscriber that lost the announcement hears the next.
    pub fn end(&mut self, now: Nanos) {
        self.ended = true;
        self.flush(now);
        self.heartbeat(now);
        self.write_counters();
    }

    fn write_counters(&mut self) {
        let values = [
            self.stats.messages,
            self.stats.lines,
            self.pipeline.channel().digests_sent(),
            self.heartbeats,
            self.pipeline.channel().state_changes(BookState::Suspect),
            self.stats.lag.max(),
            self.lanes.lines_unsent(),
            u64::from(self.ended),
        ];
        for (counter, value) in self.counters.iter_mut().zip(values) {
            counter.set(value);
        }
    }

    /// What was counted so far.
    pub fn stats(&self) -> &PublisherStats {
        &self.stats
    }

    /// From the intended time of the first message to that of the last, ns; 0 when flat out.
    pub fn planned_ns(&self) -> u64 {
        self.stats.intended.map_or(0, |(first, last)| last.0.saturating_sub(first.0))
    }

    /// What the machine took from this loop.
    pub fn gaps(&self) -> &IdleGaps {
        &self.gaps
    }

    /// The pipeline, for its counters and books.
    pub fn pipeline(&self) -> &Pipeline<S, V> {
        &self.pipeline
    }

    /// The ring.
    pub fn ring(&self) -> &RingWriter {
        &self.ring
    }

    /// The lanes, for their counters.
    pub fn lanes(&self) -> &L {
        &self.lanes
    }
}
