//! One subscriber of an RC lane, as the hot half keeps it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use protocol::line::{LINE_LEN, Line, Stamp};
use protocol::record::{InstrumentId, Kind, Record};
use protocol::time::Nanos;

use super::LATEST_LEN;
use super::request::RcOffer;
use super::tx::{RcTicket, Sources};
use crate::memory::WriterMemory;
use crate::rdma::completion::{Completion, Reaction, Status};
use crate::rdma::queue_pair::{Operation, Piece, QueuePair, SendList};
use crate::reply::ReplyPlaces;
use crate::ring::RingWriter;

/// One send in so many asks for a completion.
const SENDS_PER_SIGNAL: u64 = 64;

/// Why a subscriber was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PeerFailure {
    /// A write ended with an error.
    #[error("a write ended with an error: {0}; {next}", next = .0.next_step())]
    Completion(Status),
    /// A write did not end in time.
    #[error("a write has not ended after {waited_ns} ns")]
    Deadline {
        /// How long it has been under way.
        waited_ns: u64,
    },
    /// Its oldest write had not ended, and what that was sent from was about to be overwritten.
    #[error("a write has not ended while the publisher's ring went half round")]
    Overrun,
    /// The device did not take a write.
    #[error("the device did not take a write: error {errno}")]
    NotPosted {
        /// The system's number.
        errno: i32,
    },
}

/// What was done for one subscriber.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PeerCounters {
    /// Writes of lines that were posted.
    pub writes: u64,
    /// Lines in them.
    pub lines: u64,
    /// Writes of the latest line.
    pub heartbeats: u64,
    /// Doorbells.
    pub doorbells: u64,
    /// Writes that went inline.
    pub inline: u64,
    /// Writes that asked for a completion.
    pub signalled: u64,
    /// Turns in which the queue was full and the subscriber was skipped.
    pub full_queue: u64,
    /// Lines never written because the ring had overwritten them, or was about to, before the queue had room.
    pub lines_skipped: u64,
}

/// One write of lines under way.
#[derive(Clone, Copy)]
struct Signalled {
    /// Its number.
    id: u64,
    posted_at: Nanos,
}

/// A subscriber that is connected. The keeper makes it and lets it go; in between it is the hot half's.
pub(super) struct Peer {
    pub(super) ticket: RcTicket,
    /// Its own place among the lines that heartbeats are sent from.
    beat_place: usize,
    queue_pair: QueuePair,
    offer: RcOffer,
    /// The stamp of the next line to write. Of a reply ring: the connection, and the lines staged so far, from 1.
    pub(super) cursor: Stamp,
    /// Of a reply ring.
    places: ReplyPlaces,
    /// Writes posted so far, and how many of them are known to have ended.
    posted: u64,
    done: u64,
    /// The first line of each write under way, by its number modulo the depth.
    starts: Box<[Stamp]>,
    /// Writes under way that asked for a completion, oldest first.
    signalled: VecDeque<Signalled>,
    since_signal: u64,
    lines_since_signal: u64,
    /// When the latest line was last written.
    beat_at: Option<Nanos>,
    /// A heartbeat that waits for room; whether it says that the session has ended.
    beat_wanted: Option<bool>,
    pub(super) failure: Option<PeerFailure>,
    pub(super) counters: PeerCounters,
    /// After the queue pair, so that the regions which it sends from outlive it.
    _sources: Arc<Sources>,
}

impl Peer {
    /// A subscriber that gets everything from `first` on.
    pub(super) fn new(
        ticket: RcTicket,
        beat_place: usize,
        queue_pair: QueuePair,
        offer: RcOffer,
        first: Stamp,
        sources: &Arc<Sources>,
    ) -> Peer {
        let depth = queue_pair.depths().send;
        Peer {
            ticket,
            beat_place,
            queue_pair,
            offer,
            cursor: first,
            places: ReplyPlaces::new(offer.lines, first),
            posted: 0,
            done: 0,
            starts: vec![first; depth].into_boxed_slice(),
            signalled: VecDeque::with_capacity(depth),
            since_signal: 0,
            lines_since_signal: 0,
            beat_at: None,
            beat_wanted: None,
            failure: None,
            counters: PeerCounters::default(),
            _sources: Arc::clone(sources),
        }
    }

    pub(super) fn queue_pair(&self) -> &QueuePair {
        &self.queue_pair
    }

    /// Writes that are not known to have ended.
    pub(super) fn under_way(&self) -> u64 {
        self.posted - self.done
    }

    /// How many of them asked for a completion.
    pub(super) fn signalled_under_way(&self) -> usize {
        self.signalled.len()
    }

    /// The low 48 bits of a work request's number count writes; the upper 16 are the subscriber.
    fn tag(&self, id: u64) -> u64 {
        u64::from(self.ticket.tag()) << 48 | id & ((1 << 48) - 1)
    }

    /// Whether nothing can be posted now.
    pub(super) fn is_full(&self) -> bool {
        self.under_way() >= self.starts.len() as u64
    }

    /// Asks for a heartbeat as soon as there is room, unless its interval is not over. The end of a session is not
    /// forgotten over a heartbeat asked for after it.
    pub(super) fn want_beat(&mut self, ended: bool, interval_ns: Option<u64>, now: Nanos) {
        if ended || !interval_ns.is_some_and(|interval| self.has_beaten(interval, now)) {
            self.beat_wanted = Some(ended || self.beat_wanted.unwrap_or(false));
        }
    }

    fn room(&self, list: &SendList) -> u64 {
        self.starts.len() as u64 - (self.posted - self.done) - list.len() as u64
    }

    pub(super) fn on_completion(&mut self, completion: &Completion) {
        let id = completion.id() & ((1 << 48) - 1);
        // Writes end in order, so this one and all before it have.
        self.done = self.done.max(id + 1);
        while self.signalled.front().is_some_and(|oldest| oldest.id <= id) {
            self.signalled.pop_front();
        }
        let status = completion.status();
        if status.reaction() != Reaction::Reclaim {
            self.fail(PeerFailure::Completion(status));
        }
    }

    /// Nothing more is posted for it. The first reason counts.
    #[cold]
    pub(super) fn fail(&mut self, failure: PeerFailure) {
        self.failure.get_or_insert(failure);
    }

    /// What would make this subscriber's writes carry something else than they should, or never end.
    #[inline]
    pub(super) fn verdict(&self, ring: &RingWriter, now: Nanos, deadline_ns: u64) -> Option<PeerFailure> {
        if self.posted > self.done {
            let oldest = self.starts[(self.done % self.starts.len() as u64) as usize];
            if ring.next().0 - oldest.0 > ring.capacity() as u64 / 2 {
                return Some(PeerFailure::Overrun);
            }
        }
        self.overdue(now, deadline_ns)
    }

    /// Whether its oldest write that asked for a completion has had none for too long.
    #[inline]
    pub(super) fn overdue(&self, now: Nanos, deadline_ns: u64) -> Option<PeerFailure> {
        let waited = now.since(self.signalled.front()?.posted_at);
        (waited > 0 && waited as u64 > deadline_ns).then_some(PeerFailure::Deadline { waited_ns: waited as u64 })
    }

    /// Adds a write to the list.
    #[inline]
    fn push(&mut self, list: &mut SendList, piece: Piece, to: u64, lines: u64, signal: bool, now: Nanos) {
        let id = self.posted + list.len() as u64;
        self.since_signal += 1;
        self.lines_since_signal += lines;
        let is_inline = piece.len <= self.queue_pair.inline_limit();
        if signal {
            self.since_signal = 0;
            self.lines_since_signal = 0;
            self.signalled.push_back(Signalled { id, posted_at: now });
        }
        self.starts[(id % self.starts.len() as u64) as usize] = self.cursor;
        self.counters.inline += u64::from(is_inline);
        self.counters.signalled += u64::from(signal);
        let operation = Operation::Write { address: to, key: self.offer.key };
        list.push(self.tag(id), &[piece], operation, signal, is_inline);
    }

    /// Rings the doorbell for what is in the list.
    fn post(&mut self, list: &mut SendList) {
        let count = list.len();
        if count == 0 || self.failure.is_some() {
            return;
        }
        self.counters.doorbells += 1;
        // SAFETY: pieces are places of the ring and the peer's own heartbeat line, in regions that outlive the queue pair (`_sources`). A place
        // is overwritten when the ring has gone round; `verdict` ends that at half of it. Replies are sent from places of their
        // own, which are written again only when their write has ended (`reply_room`). A line that changed
        // nevertheless while it was read does not verify, or is a later one, whole, in the place that is its own.
        match unsafe { self.queue_pair.post_sends(list) } {
            Ok(()) => self.posted += count as u64,
            Err((taken, source)) => {
                self.posted += taken as u64;
                self.fail(PeerFailure::NotPosted { errno: source.raw_os_error().unwrap_or(0) });
            }
        }
    }
}

/// What all subscribers of a lane write from in one turn, and how far.
pub(super) struct Turn<'a> {
    pub(super) ring: &'a RingWriter,
    pub(super) sources: &'a Sources,
    /// A sixteenth of the ring: the longest write.
    pub(super) write_limit: u64,
    pub(super) heartbeat_interval_ns: Option<u64>,
    pub(super) now: Nanos,
}

impl Peer {
    /// Writes what this subscriber has not had yet; returns how many lines.
    pub(super) fn write(&mut self, turn: &Turn<'_>, list: &mut SendList) -> usize {
        let (ring, head) = (turn.ring, turn.ring.head());
        let capacity = ring.capacity() as u64;
        // `verdict` ends what is half the ring behind; what is begun has an eighth of it to be done with.
        let reach = capacity / 2 - capacity / 8;
        let oldest = ring.oldest().0.max(head.0.saturating_sub(reach));
        let skipped = oldest.saturating_sub(self.cursor.0);
        self.counters.lines_skipped += skipped;
        self.cursor = self.cursor.plus(skipped);
        let remote_capacity = self.offer.lines;
        let limit = turn.write_limit.min((remote_capacity / 16).max(1));
        let mut written = 0;
        while self.cursor < head {
            if self.room(list) == 0 {
                self.counters.full_queue += 1;
                break;
            }
            let to_wrap = capacity - self.cursor.0 % capacity;
            let remote_index = self.cursor.0 % remote_capacity;
            let count = (head.0 - self.cursor.0).min(to_wrap).min(remote_capacity - remote_index).min(limit);
            let (lines, _) = ring.lines(self.cursor, count as usize);
            let piece = Piece {
                address: lines.as_ptr() as u64,
                len: size_of_val(lines),
                key: turn.sources.ring_region.local_key(),
            };
            let to = self.offer.address + LATEST_LEN + remote_index * LINE_LEN as u64;
            let signal = self.since_signal + 1 >= SENDS_PER_SIGNAL || self.lines_since_signal + count >= limit;
            self.push(list, piece, to, count, signal, turn.now);
            self.cursor = self.cursor.plus(count);
            self.counters.writes += 1;
            self.counters.lines += count;
            written += count as usize;
            if list.is_full() {
                self.post(list);
                if self.failure.is_some() {
                    return written;
                }
            }
        }
        self.post(list);
        written
    }

    /// Whether its latest line was written within the last `interval_ns`.
    fn has_beaten(&self, interval_ns: u64, now: Nanos) -> bool {
        self.beat_at.is_some_and(|at| now.since(at) < i64::try_from(interval_ns).unwrap_or(i64::MAX))
    }

    /// Writes the latest line, if it is time and nothing is owed: its clock is at or before that of every line to come.
    pub(super) fn beat(&mut self, turn: &Turn<'_>, list: &mut SendList) {
        let is_due = turn.heartbeat_interval_ns.is_some_and(|interval| !self.has_beaten(interval, turn.now));
        if self.beat_wanted.is_none() && !is_due {
            return;
        }
        if self.cursor != turn.ring.next() || self.room(list) == 0 {
            return;
        }
        let ended = self.beat_wanted.take().unwrap_or(false);
        let mut record = Record::new(Kind::HEARTBEAT, InstrumentId::CHANNEL);
        record.ts_event.set(turn.now.0);
        record.detail = u8::from(ended);
        let line = Line::seal(record, self.cursor);
        // A device without room inline may still be reading the one before; the mask covers that too.
        for (i, word) in line.words().into_iter().enumerate() {
            turn.sources.beats.word_mut(self.beat_place * LINE_LEN + i * 8).store(word, Ordering::Relaxed);
        }
        let piece = Piece {
            address: turn.sources.beat_region.address() + (self.beat_place * LINE_LEN) as u64,
            len: LINE_LEN,
            key: turn.sources.beat_region.local_key(),
        };
        self.push(list, piece, self.offer.address, 0, true, turn.now);
        self.beat_at = Some(turn.now);
        self.counters.heartbeats += 1;
        self.post(list);
    }
}

/// The most pieces that lines of replies are written in: they go round their memory here once, and round the ring there.
const REPLY_PIECES: u64 = 3;

/// Where lines of replies stand until they are written: each peer has `lines` places of its own.
pub(super) struct Stage<'a> {
    pub(super) memory: &'a WriterMemory,
    pub(super) lines: u64,
    pub(super) sources: &'a Sources,
    pub(super) now: Nanos,
}

impl Peer {
    /// How many lines of replies can be staged and posted now, of `staged` that may be under way; 0 while the queue is full.
    pub(super) fn reply_room(&self, staged: u64) -> usize {
        let depth = self.starts.len() as u64;
        if self.under_way() + REPLY_PIECES > depth || self.failure.is_some() {
            return 0;
        }
        let oldest = if self.posted > self.done { self.starts[(self.done % depth) as usize] } else { self.cursor };
        // At most one round of the remote ring at once, so that there are no more pieces.
        (staged - (self.cursor.0 - oldest.0)).min(self.offer.lines) as usize
    }

    /// Writes lines of replies, the first of which has the stamp `first`, to the places that are theirs; returns how many were
    /// taken, those left out by [`ReplyPlaces`] included.
    pub(super) fn write_replies(
        &mut self,
        stage: &Stage<'_>,
        first: Stamp,
        lines: &[Line],
        list: &mut SendList,
    ) -> usize {
        let taken = lines.len().min(self.reply_room(stage.lines));
        let end = first.plus(taken as u64);
        let mut at = self.places.take(first, end);
        while at < end {
            let (place, remote_place) = (self.cursor.0 % stage.lines, self.places.index(at));
            let count = (end.0 - at.0).min(stage.lines - place).min(self.places.lines() - remote_place);
            let place = self.beat_place as u64 * stage.lines + place;
            for (i, line) in lines[(at.0 - first.0) as usize..][..count as usize].iter().enumerate() {
                stage.memory.put(place as usize + i, line);
            }
            let piece = Piece {
                address: stage.sources.ring_region.address() + LATEST_LEN + place * LINE_LEN as u64,
                len: count as usize * LINE_LEN,
                key: stage.sources.ring_region.local_key(),
            };
            let to = self.offer.address + LATEST_LEN + remote_place * LINE_LEN as u64;
            // Each asks for a completion: answers are few, and their places are free again only then.
            self.push(list, piece, to, count, true, stage.now);
            self.cursor = self.cursor.plus(count);
            at = at.plus(count);
            self.counters.writes += 1;
            self.counters.lines += count;
        }
        self.post(list);
        taken
    }
}
