//! Virtual RDMA memory: a ring that a publisher's card writes into a subscriber's memory. Whatever has piled up is one write;
//! the words of a write become visible in any order, a few at a time; writes come one after the other.
//!
//! The reader is the product's.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use protocol::line::{Line, Stamp};
use protocol::record::{InstrumentId, Kind, Lane, Record};
use protocol::run::{Carrier, LanePath};
use protocol::time::Nanos;
use rand::Rng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;
use transport::ring::core::{Word, Words};
use transport::ring::{RingReader, RingShape, StartAt};

/// Lines of a subscriber's ring: few, so that it is lapped.
const RING_LINES: usize = 256;
/// Lines of one write at most: a sixteenth of the ring, as the product has it.
const WRITE_LINES: usize = RING_LINES / 16;

pub(crate) struct VirtualWord(Rc<Vec<Cell<u64>>>, usize);

impl Word for VirtualWord {
    fn load(&self, _: Ordering) -> u64 {
        self.0[self.1].get()
    }
}

/// The subscriber's view of it.
pub(crate) struct VirtualMemory(Vec<VirtualWord>);

impl Words<8> for VirtualMemory {
    type Word = VirtualWord;

    fn place(&self, offset: usize) -> &[VirtualWord; 8] {
        self.0[offset..offset + 8].try_into().expect("eight words")
    }
}

/// Words that become visible at one moment.
pub(crate) type Piece = Vec<(usize, u64)>;

/// One connection: the ring, its reader, and how far the writer is.
pub(crate) struct RemoteRing {
    memory: Rc<Vec<Cell<u64>>>,
    shape: RingShape,
    pub(crate) reader: RingReader<VirtualMemory>,
    /// The line that is written next.
    pub(crate) cursor: Stamp,
    /// When the last piece under way becomes visible.
    busy_until: u64,
    last_beat: u64,
    /// Tells connections apart: what is under way to an old one is lost.
    pub(crate) number: u64,
}

impl RemoteRing {
    /// A fresh, zeroed ring whose first line will be `first`.
    pub(crate) fn connect(first: Stamp, lane: usize, number: u64) -> RemoteRing {
        let shape = RingShape::new(first.epoch(), first.sequence(), RING_LINES).expect("a shape");
        let memory = Rc::new(vec![Cell::new(0); shape.words::<8>()]);
        let words = (0..memory.len()).map(|at| VirtualWord(Rc::clone(&memory), at)).collect();
        let path = LanePath::new(Lane::new(lane as u16), Carrier::RdmaRc);
        let start = StartAt::At(first.sequence());
        let reader = RingReader::new(VirtualMemory(words), shape, path, start, 2_000_000).watching_its_place();
        RemoteRing { memory, shape, reader, cursor: first, busy_until: 0, last_beat: 0, number }
    }

    /// A few words become visible.
    pub(crate) fn show(&self, piece: &Piece) {
        piece.iter().for_each(|(at, value)| self.memory[*at].set(*value));
    }

    /// Writes `lines`, those from the cursor on: gives the pieces, each with the time at which it becomes visible, and how many
    /// writes of several lines that took.
    pub(crate) fn write(&mut self, lines: &[Line], now: u64, random: &mut Pcg64Mcg) -> (Vec<(u64, Piece)>, u64) {
        let mut pieces = Vec::new();
        let mut coalesced = 0;
        for write in lines.chunks(WRITE_LINES) {
            coalesced += u64::from(write.len() > 1);
            let mut words = Vec::with_capacity(write.len() * 8);
            for line in write {
                let place = 8 * (2 + self.shape.index(self.cursor));
                words.extend(line.words().into_iter().enumerate().map(|(i, value)| (place + i, value)));
                self.cursor = self.cursor.plus(1);
            }
            self.scatter(words, now, random, &mut pieces);
        }
        (pieces, coalesced)
    }

    /// The latest line: once per heartbeat interval, and at no other time.
    pub(crate) fn beat(&mut self, now: u64, clock: Nanos, ended: bool, random: &mut Pcg64Mcg) -> Vec<(u64, Piece)> {
        let mut pieces = Vec::new();
        if now - self.last_beat >= 10_000_000 {
            self.last_beat = now;
            let mut record = Record::new(Kind::HEARTBEAT, InstrumentId::CHANNEL);
            record.ts_event.set(clock.0);
            record.detail = u8::from(ended);
            let words = Line::seal(record, self.cursor).words().into_iter().enumerate().collect();
            self.scatter(words, now, random, &mut pieces);
        }
        pieces
    }

    /// Cuts a write into pieces of any of its words.
    fn scatter(&mut self, mut words: Piece, now: u64, random: &mut Pcg64Mcg, pieces: &mut Vec<(u64, Piece)>) {
        words.shuffle(random);
        let mut at = self.busy_until.max(now + 3_000);
        while !words.is_empty() {
            let count = if random.random_ratio(1, 2) { words.len() } else { random.random_range(1..=words.len()) };
            at += random.random_range(100..4_000);
            pieces.push((at, words.split_off(words.len() - count)));
        }
        self.busy_until = at;
    }

    /// Nothing becomes visible before then: the card sends again and again what is lost.
    pub(crate) fn hold_until(&mut self, until: u64) {
        self.busy_until = self.busy_until.max(until);
    }
}
