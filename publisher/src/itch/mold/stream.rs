//! One session's stream, put together from the datagrams of its lines. No I/O: datagrams go in, messages and gaps come out.
//!
//! The first copy of each message is delivered, in order; every other is compared with it and dropped. A datagram that is
//! ahead is held back while what is missing may still come: from the other line, which may be a little behind, or out of
//! order on the same. A gap is declared once [`Patience`] is over *without any progress*: as long as missing messages keep
//! coming, the rest is waited for. The end of the capture ends all waiting.
//!
//! A stream that begins in mid-session begins at the lowest number seen within the same patience, so that a line which is
//! behind at the start of the capture loses nothing; what comes below that later is counted, and dropped.

use std::collections::VecDeque;

use protocol::hash::h64;
use protocol::time::Nanos;

use super::packet::block;
use crate::feed::Missing;

/// How long something missing is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    /// At least so many datagrams of the session.
    pub packets: u32,
    /// And, by capture time, at least so long, ns. Where captures give no time, sixteen times the packets instead.
    pub ns: u64,
}

impl Default for Patience {
    /// 64 datagrams and one second: lines differ by milliseconds at worst, but a quiet capture has few datagrams a second.
    fn default() -> Patience {
        Patience { packets: 64, ns: 1_000_000_000 }
    }
}

/// Datagrams held back at most, whatever the patience.
const MAX_HELD: usize = 1 << 14;
/// Bytes held back at most.
const MAX_HELD_BYTES: usize = 32 << 20;
/// How many delivered messages late copies can be compared with. A power of two.
const HISTORY: usize = 1 << 16;
/// How many gaps are remembered, to know what comes too late.
const GAPS_KEPT: usize = 1 << 10;
/// How many buffers of delivered datagrams are kept for the next.
const SPARE: usize = 64;

/// A datagram with messages, for [`Stream::offer`].
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The number of its first message.
    pub sequence: u64,
    /// How many messages it has.
    pub count: u16,
    /// They, each behind its length.
    pub blocks: &'a [u8],
    /// When it was captured.
    pub capture: Option<Nanos>,
    /// Where `blocks` begins in the file.
    pub offset: u64,
    /// Which line it came by.
    pub side: usize,
}

/// A message in its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delivery<'a> {
    /// Its number.
    pub sequence: u64,
    /// Where its block begins in the file.
    pub offset: u64,
    /// When the copy that is delivered was captured.
    pub capture: Option<Nanos>,
    /// Which line that copy came by.
    pub side: usize,
    /// The message.
    pub bytes: &'a [u8],
}

/// What [`Stream::settle`] came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Settled {
    /// Nothing: more datagrams are needed.
    Waiting,
    /// The stream can go on.
    Ready,
    /// These messages are lost, and the stream can go on.
    Gap(Missing),
}

/// What a [`Stream`] counted, in messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StreamCounts {
    /// Delivered.
    pub delivered: u64,
    /// Further copies of what was delivered: dropped.
    pub duplicates: u64,
    /// Of these, how many differ from the copy that was delivered.
    pub differing: u64,
    /// Came after they had been declared lost: dropped.
    pub late: u64,
    /// Came with a number below the first that was delivered: dropped.
    pub before_start: u64,
    /// Gaps declared.
    pub gaps: u64,
    /// Declared lost.
    pub missing: u64,
}

/// A datagram held in memory.
#[derive(Debug, Default)]
struct Held {
    sequence: u64,
    count: u16,
    /// Where its next message's block begins in `blocks`.
    at: usize,
    blocks: Vec<u8>,
    capture: Option<Nanos>,
    offset: u64,
    side: usize,
}

impl Held {
    fn end(&self) -> u64 {
        self.sequence + u64::from(self.count)
    }
}

/// See the [module](self).
#[derive(Debug)]
pub struct Stream {
    patience: Patience,
    /// The number that must come next; `None` before the first is known.
    expected: Option<u64>,
    /// The first number delivered.
    first: u64,
    /// Whose messages are being delivered.
    current: Held,
    /// The message to hand out now, in `current.blocks`.
    ready: (usize, usize),
    /// What is ahead, in order of sequence.
    held: VecDeque<Held>,
    held_bytes: usize,
    spare: Vec<Vec<u8>>,
    /// The highest number of which it was said that it comes next, and when that was captured.
    announced: (u64, Option<Nanos>),
    /// Datagrams since something was last delivered, while something is missing.
    waited: u32,
    /// When the first of those was captured.
    since: Option<Nanos>,
    /// The latest capture time seen.
    now: Option<Nanos>,
    /// Number and hash of what was delivered.
    history: Box<[(u64, u64)]>,
    gaps: VecDeque<Missing>,
    counts: StreamCounts,
    /// The first message that differed, and the lines of both copies are unknown by then: only its number is kept.
    first_differing: Option<u64>,
}

impl Stream {
    /// A stream of which nothing has come. All its usual memory is taken now.
    pub fn new(patience: Patience) -> Stream {
        Stream {
            patience,
            expected: None,
            first: 0,
            current: Held { blocks: Vec::with_capacity(1 << 16), ..Held::default() },
            ready: (0, 0),
            held: VecDeque::with_capacity(SPARE),
            held_bytes: 0,
            spare: (0..SPARE).map(|_| Vec::with_capacity(1500)).collect(),
            announced: (0, None),
            waited: 0,
            since: None,
            now: None,
            history: vec![(0, 0); HISTORY].into_boxed_slice(),
            gaps: VecDeque::with_capacity(GAPS_KEPT),
            counts: StreamCounts::default(),
            first_differing: None,
        }
    }

    /// Begins another session, whose first message is number 1: nothing of the old one remains but its memory.
    pub fn begin_session(&mut self) {
        while let Some(held) = self.held.pop_front() {
            self.put_away(held);
        }
        self.expected = Some(1);
        self.first = 1;
        (self.current.count, self.announced, self.waited, self.since) = (0, (0, None), 0, None);
        self.history.fill((0, 0));
        self.gaps.clear();
        self.counts = StreamCounts::default();
        self.first_differing = None;
    }

    /// What was counted in this session.
    pub fn counts(&self) -> StreamCounts {
        self.counts
    }

    /// The gaps of this session that were declared last, oldest first.
    pub fn gaps(&self) -> impl Iterator<Item = &Missing> {
        self.gaps.iter()
    }

    /// The first message of which a copy differed from the one delivered.
    pub fn first_differing(&self) -> Option<u64> {
        self.first_differing
    }

    /// The number that must come next; `None` before the first is known.
    pub fn expected(&self) -> Option<u64> {
        self.expected
    }

    /// Takes a datagram with messages. The caller has taken every message that was ready.
    #[inline]
    pub fn offer(&mut self, arrival: &Arrival<'_>) {
        let ready = self.expected == Some(arrival.sequence) && self.held.is_empty() && self.current.count == 0;
        if ready {
            // The usual case: the next datagram.
            fill(&mut self.current, arrival);
            self.now = self.now.max(arrival.capture);
            return;
        }
        self.offer_out_of_order(arrival);
    }

    #[cold]
    fn offer_out_of_order(&mut self, arrival: &Arrival<'_>) {
        self.now = self.now.max(arrival.capture);
        if self.expected.is_none() && arrival.sequence == 1 {
            (self.expected, self.first) = (Some(1), 1);
        }
        if self.expected.is_some_and(|expected| arrival.sequence + u64::from(arrival.count) <= expected) {
            self.drop_copies(arrival);
        } else {
            self.hold(arrival);
        }
        self.note_waiting(arrival.capture);
    }

    /// Takes the word of a heartbeat, an end of session or a datagram that was cut off: `next` is the number that comes
    /// next.
    pub fn announce(&mut self, next: u64, capture: Option<Nanos>) {
        self.now = self.now.max(capture);
        if self.expected == Some(next) {
            // A line that has got exactly this far may still bring what is missing. (And if what is ahead is nonsense, this
            // is what says so.)
            (self.waited, self.since) = (0, None);
            return;
        }
        if next > self.announced.0 {
            self.announced = (next, capture);
        }
        self.note_waiting(capture);
    }

    /// Whether something is known to be missing (or, at the start, to have come).
    fn is_behind(&self) -> bool {
        match self.expected {
            None => !self.held.is_empty(),
            Some(expected) => {
                self.announced.0 > expected || self.held.front().is_some_and(|held| held.sequence > expected)
            }
        }
    }

    fn note_waiting(&mut self, capture: Option<Nanos>) {
        if self.current.count == 0 && self.is_behind() {
            self.waited += 1;
            self.since = self.since.or(capture);
        }
    }

    fn drop_copies(&mut self, arrival: &Arrival<'_>) {
        let (mut sequence, mut at) = (arrival.sequence, 0);
        while let Some((message, after)) = block(arrival.blocks, at) {
            self.drop_copy(sequence, message_hash(message));
            (sequence, at) = (sequence + 1, after);
        }
    }

    /// Counts a message that was delivered, or declared lost, before.
    fn drop_copy(&mut self, sequence: u64, hash: u64) {
        let (known, delivered) = self.history[sequence as usize % HISTORY];
        if known == sequence {
            self.counts.duplicates += 1;
            if delivered != hash {
                self.counts.differing += 1;
                self.first_differing.get_or_insert(sequence);
            }
        } else if sequence < self.first {
            self.counts.before_start += 1;
        } else {
            let place = self.gaps.partition_point(|gap| gap.first <= sequence);
            let gap = place.checked_sub(1).and_then(|at| self.gaps.get(at));
            if gap.is_some_and(|gap| sequence - gap.first < gap.count) {
                self.counts.late += 1;
            } else {
                // Too old to be compared.
                self.counts.duplicates += 1;
            }
        }
    }

    fn hold(&mut self, arrival: &Arrival<'_>) {
        let place = self.held.partition_point(|held| held.sequence <= arrival.sequence);
        let same = place.checked_sub(1).and_then(|at| self.held.get(at)).is_some_and(|held| {
            held.sequence == arrival.sequence && held.count == arrival.count && held.blocks == arrival.blocks
        });
        if same {
            self.counts.duplicates += u64::from(arrival.count);
            return;
        }
        let mut held = Held { blocks: self.spare.pop().unwrap_or_default(), ..Held::default() };
        fill(&mut held, arrival);
        self.held_bytes += arrival.blocks.len();
        self.held.insert(place, held);
    }

    fn put_away(&mut self, held: Held) {
        self.held_bytes -= held.blocks.len();
        if self.spare.len() < SPARE {
            self.spare.push(held.blocks);
        }
    }

    /// Makes the next message ready for [`Stream::delivery`]; false if it is not there.
    #[inline]
    pub fn advance(&mut self) -> bool {
        loop {
            if self.current.count == 0 && !self.load() {
                return false;
            }
            // What is in `current` began at or below what is expected.
            let expected = self.expected.expect("known once something is loaded");
            let Some((message, after)) = block(&self.current.blocks, self.current.at) else {
                unreachable!("{} messages are left of {} blocks", self.current.count, self.current.blocks.len());
            };
            let sequence = self.current.sequence;
            let hash = message_hash(message);
            self.ready = (self.current.at, after);
            self.current.at = after;
            self.current.sequence += 1;
            self.current.count -= 1;
            if sequence < expected {
                self.drop_copy(sequence, hash);
                continue;
            }
            self.expected = Some(expected + 1);
            self.history[sequence as usize % HISTORY] = (sequence, hash);
            self.counts.delivered += 1;
            (self.waited, self.since) = (0, None);
            return true;
        }
    }

    /// The message that [`Stream::advance`] made ready.
    #[inline]
    pub fn delivery(&self) -> Delivery<'_> {
        let (from, to) = self.ready;
        let (bytes, _) = block(&self.current.blocks[..to], from).expect("a whole block was found here");
        Delivery {
            sequence: self.current.sequence - 1,
            offset: self.current.offset + from as u64,
            capture: self.current.capture,
            side: self.current.side,
            bytes,
        }
    }

    /// Takes the next datagram that was held back, if its turn has come.
    fn load(&mut self) -> bool {
        while let (Some(expected), Some(held)) = (self.expected, self.held.front()) {
            if held.sequence > expected {
                return false;
            }
            let Some(held) = self.held.pop_front() else { return false };
            let before = std::mem::replace(&mut self.current, held);
            self.held_bytes -= self.current.blocks.len();
            if self.spare.len() < SPARE {
                self.spare.push(before.blocks);
            }
            if self.current.end() > self.current.sequence {
                return true;
            }
        }
        false
    }

    /// When nothing is ready: declares what is missing if it was waited for long enough, or if the stream is `ending`.
    pub fn settle(&mut self, ending: bool) -> Settled {
        if !self.is_behind() || !(ending || self.is_patience_over()) {
            return Settled::Waiting;
        }
        (self.waited, self.since) = (0, None);
        let ahead = self.held.front().map(|held| (held.sequence, held.capture));
        let Some(expected) = self.expected else {
            let (sequence, _) = ahead.expect("something was held");
            (self.expected, self.first) = (Some(sequence), sequence);
            return Settled::Ready;
        };
        let (next, capture) = ahead.unwrap_or(self.announced);
        let missing = Missing { first: expected, count: next - expected, capture };
        self.expected = Some(next);
        self.counts.gaps += 1;
        self.counts.missing = self.counts.missing.saturating_add(missing.count);
        if self.gaps.len() == GAPS_KEPT {
            self.gaps.pop_front();
        }
        self.gaps.push_back(missing);
        Settled::Gap(missing)
    }

    fn is_patience_over(&self) -> bool {
        if self.held.len() >= MAX_HELD || self.held_bytes >= MAX_HELD_BYTES {
            return true;
        }
        if self.waited < self.patience.packets {
            return false;
        }
        match (self.since, self.now) {
            (Some(since), Some(now)) => now.since(since) >= self.patience.ns as i64,
            _ => self.waited >= self.patience.packets.saturating_mul(16),
        }
    }
}

fn fill(held: &mut Held, arrival: &Arrival<'_>) {
    held.blocks.clear();
    held.blocks.extend_from_slice(arrival.blocks);
    held.sequence = arrival.sequence;
    held.count = arrival.count;
    held.at = 0;
    held.capture = arrival.capture;
    held.offset = arrival.offset;
    held.side = arrival.side;
}

/// Tells copies of one message apart.
#[inline]
fn message_hash(message: &[u8]) -> u64 {
    let mut hash = message.len() as u64;
    for piece in message.chunks(48) {
        let mut bytes = [0u8; 48];
        bytes[..piece.len()].copy_from_slice(piece);
        let word = |at: usize| u64::from_le_bytes(bytes[at * 8..at * 8 + 8].try_into().expect("8 bytes"));
        hash = h64(&[word(0), word(1), word(2), word(3), word(4), word(5), hash]);
    }
    hash
}

#[cfg(test)]
mod tests;
