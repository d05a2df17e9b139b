//! No torn line is accepted from a ring that a card writes while it is lapped.
//!
//! Each line is a function of its stamp. One thread publishes as fast as the soft device writes; the other looks at places
//! of a ring so small that it is lapped all the time, copies a line in the reader's own order of loads, and holds every
//! line that verifies against what its stamp stands for. The product's reader runs beside it on the same ring.

#![forbid(unsafe_code)]

mod rdma_support;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use protocol::line::{Line, Stamp};
use protocol::run::{LanePath, LossCause, Position, Run, RunSink};
use rdma_support::*;
use transport::ring::core::{Word, Words};
use transport::{LaneRx, LaneTx};

/// Reads that verify, and lines that are written meanwhile.
const READS: u64 = 100_000_000;
const LINES: u64 = 1_000_000;
/// The longest that this may take: it is 30 s on a quiet machine.
const LONGEST: Duration = Duration::from_secs(160);
/// Places of the subscriber's ring.
const PLACES: usize = 64;

/// Checks what the product's reader hands up.
#[derive(Default)]
struct Judge {
    lines: u64,
    lost: u64,
    next: u64,
}

impl RunSink for Judge {
    fn on_run(&mut self, run: Run<'_>) {
        assert_eq!(run.first, stamp(self.next), "out of order");
        for (i, line) in run.lines.iter().enumerate() {
            let at = run.first.plus(i as u64);
            assert_eq!(*line, line_of(at), "a torn line was accepted at {at}");
        }
        self.lines += run.lines.len() as u64;
        self.next += run.lines.len() as u64;
    }

    fn on_position(&mut self, position: Position) {
        assert!(position.next.sequence().0 <= self.next, "{position:?} is beyond what was handed up");
    }

    fn on_loss(&mut self, _: LanePath, first: Stamp, count: u64, _: LossCause) {
        assert_eq!(first, stamp(self.next), "out of order");
        self.lost += count;
        self.next += count;
    }
}

#[derive(Default)]
struct Looks {
    verified: u64,
    rejected: u64,
    changes: u64,
}

/// The line last seen in a place, which was held against what its stamp stands for.
#[derive(Clone, Copy, Default)]
struct Held {
    stamp: u64,
    words: [u64; 8],
}

fn publish(
    stop: &AtomicBool,
    head: &AtomicU64,
    mut ring: transport::RingWriter,
    mut publisher: Publisher,
) -> (u64, String) {
    let start = Instant::now();
    let mut beat_at = start;
    let (mut owed, mut done) = (0, false);
    while !done {
        done = stop.load(Ordering::Relaxed) || start.elapsed() > LONGEST * 2;
        // The card lags behind by what its queue holds: 256 writes of four lines at most, an eighth of the ring.
        if owed == 0 {
            put(&mut ring, 64);
            // Release: pairs with the Acquire in `look`. A line is written only after it counts as published.
            head.store(ring.head().sequence().0, Ordering::Release);
        } else {
            std::thread::yield_now();
        }
        let now = now();
        publisher.tx.flush(&ring, now);
        if beat_at.elapsed() > Duration::from_millis(1) {
            beat_at = Instant::now();
            publisher.tx.heartbeat(&ring, now, false);
            publisher.nothing_happened();
        }
        let tx = &publisher.tx;
        owed = tx.peers().map(|ticket| tx.lag(ticket, &ring).unwrap_or(0)).sum::<u64>();
    }
    let tx = &publisher.tx;
    let counters = tx.peers().next().and_then(|ticket| tx.counters(ticket).copied());
    (ring.head().sequence().0 - 1, format!("{counters:?}"))
}

/// One look at a place.
#[inline]
fn look(memory: &transport::RingMemory, place: usize, head: &AtomicU64, held: &mut Held, looks: &mut Looks) {
    let words = Words::<8>::place(memory, (2 + place) * 8);
    let mut copy = [0; 8];
    copy[7] = words[7].load(Ordering::Acquire);
    for (value, word) in copy.iter_mut().zip(words).take(7) {
        *value = word.load(Ordering::Relaxed);
    }
    let line = Line::from_words(copy);
    let at = line.stamp();
    if at.0 == held.stamp {
        assert_eq!(copy, held.words, "a torn line verifies with {at}");
        looks.verified += 1;
        return;
    }
    // Acquire: pairs with the Release in `publish`; read after the line.
    let head = head.load(Ordering::Acquire);
    let is_plausible = at.epoch() == EPOCH
        && at.sequence().0 < head
        && at.sequence().0 > 0
        && at.sequence().0 % PLACES as u64 == place as u64;
    if !is_plausible {
        looks.rejected += u64::from(copy != [0; 8]);
        return;
    }
    assert_eq!(line, line_of(at), "a torn line verifies with {at}");
    looks.verified += 1;
    looks.changes += 1;
    *held = Held { stamp: at.0, words: copy };
}

#[test]
fn no_torn_line_is_accepted_from_a_ring_that_a_card_writes() {
    let ring = ring(1 << 13);
    let mut publisher = Publisher::open(&rc_options(), &ring);
    let (_, mut subscriber) = publisher.connect(PLACES);
    let memory = subscriber.keeper.memory().expect("connected").clone();
    let (stop, head) = (AtomicBool::new(false), AtomicU64::new(1));
    let mut judge = Judge { next: 1, ..Judge::default() };
    let mut looks = Looks::default();
    let mut held = [Held::default(); PLACES];
    let (published, sender) = std::thread::scope(|scope| {
        let publisher = scope.spawn(|| publish(&stop, &head, ring, publisher));
        let start = Instant::now();
        let mut place = 0;
        let is_enough = |looks: &Looks| looks.verified >= READS && head.load(Ordering::Relaxed) > LINES;
        while !is_enough(&looks) && start.elapsed() < LONGEST && !publisher.is_finished() {
            // One place in a row until it changes shows more torn lines than going round: the card is in it just then.
            for _ in 0..512 {
                look(&memory, place, &head, &mut held[place], &mut looks);
            }
            place = (place + 7) % PLACES;
            subscriber.poll(now(), 1 << 10, &mut judge);
        }
        stop.store(true, Ordering::Relaxed);
        publisher.join().expect("the publisher came to its end")
    });
    println!(
        "{published} lines written, {} laps; {} verifying reads, {} of them of a line not seen before, {} rejected; the \
         reader beside: {} lines, {} lost, {:?}; the sender: {sender}",
        published / PLACES as u64,
        looks.verified,
        looks.changes,
        looks.rejected,
        judge.lines,
        judge.lost,
        subscriber.rx.reader().expect("connected").counts(),
    );
    assert!(published > LINES, "{published} lines are too few to show anything");
    assert!(looks.verified >= READS && looks.changes > 10_000, "too few looks");
    assert!(looks.rejected > 0, "no look fell into a write: the test shows nothing");
    assert!(judge.lines > 0 && judge.lost > 0, "the reader was never lapped");
}
