//! A word in another line each time, over a ring: the floor of what is written once and never in the same place.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use protocol::time::Nanos;
use transport::clock::Clock;

use crate::handover::{Arrival, Receiver, Sender};

/// A line with one word in it.
#[repr(align(64))]
struct WordLine(AtomicU64);

const _: () = assert!(size_of::<WordLine>() == 64);

/// One word in each line of a ring of `lines` lines: the reader polls the line that is next. It differs from
/// [`hot_word`](super::hot_word) only in that each line was last touched one round ago.
///
/// # Panics
/// If `lines` is 0.
pub fn cold_words(lines: usize) -> (impl Sender, impl Receiver) {
    assert!(lines > 0, "a ring has lines");
    let ring: Arc<[WordLine]> = (0..lines).map(|_| WordLine(AtomicU64::new(0))).collect();
    // A new round is told from the last by its value: times only grow, so what is later than the last one seen is new.
    (ColdSender { ring: Arc::clone(&ring), next: 0 }, ColdReceiver { ring, next: 0, last: 0 })
}

struct ColdSender {
    ring: Arc<[WordLine]>,
    next: usize,
}

impl Sender for ColdSender {
    #[inline(always)]
    fn send(&mut self, clock: Clock) {
        // Release: pairs with the Acquire in ColdReceiver::poll.
        self.ring[self.next].0.store(clock.now().0, Ordering::Release);
        self.next = if self.next + 1 == self.ring.len() { 0 } else { self.next + 1 };
    }
}

struct ColdReceiver {
    ring: Arc<[WordLine]>,
    next: usize,
    last: u64,
}

impl Receiver for ColdReceiver {
    #[inline(always)]
    fn poll(&mut self, clock: Clock) -> Option<Arrival> {
        let word = self.ring[self.next].0.load(Ordering::Acquire);
        if word <= self.last {
            return None;
        }
        let seen = clock.now();
        self.last = word;
        self.next = if self.next + 1 == self.ring.len() { 0 } else { self.next + 1 };
        Some(Arrival { sent: Nanos(word), seen })
    }
}
