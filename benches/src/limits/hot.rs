//! One hot cache line from core to core: the floor of every hand-over through memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use protocol::time::Nanos;
use transport::clock::Clock;

use crate::handover::{Arrival, Receiver, Sender};

/// What a reader does between two looks at a line. It matters: on some processors a loop that does nothing but look has
/// many loads under way when the line changes, and throws them all away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Polling {
    /// Nothing: a load and a comparison.
    Tight,
    /// The processor's hint that this is a waiting loop.
    Hint,
    /// A fenced reading of the clock, as a subscriber's loop has it.
    Clock,
}

/// A single word, written by one core and polled by the other. The word is the time of sending.
pub fn hot_word(polling: Polling) -> (impl Sender, impl Receiver) {
    let word = Arc::new(CachePadded::new(AtomicU64::new(0)));
    (HotWordSender(Arc::clone(&word)), HotWordReceiver { word, last: 0, polling })
}

struct HotWordSender(Arc<CachePadded<AtomicU64>>);

impl Sender for HotWordSender {
    #[inline(always)]
    fn send(&mut self, clock: Clock) {
        // Release: pairs with the Acquire in HotWordReceiver::poll.
        self.0.store(clock.now().0, Ordering::Release);
    }
}

struct HotWordReceiver {
    word: Arc<CachePadded<AtomicU64>>,
    last: u64,
    polling: Polling,
}

impl Receiver for HotWordReceiver {
    #[inline(always)]
    fn poll(&mut self, clock: Clock) -> Option<Arrival> {
        let word = self.word.load(Ordering::Acquire);
        if word == self.last {
            match self.polling {
                Polling::Tight => {}
                Polling::Hint => std::hint::spin_loop(),
                Polling::Clock => {
                    std::hint::black_box(clock.now());
                }
            }
            return None;
        }
        self.last = word;
        Some(Arrival { sent: Nanos(word), seen: clock.now() })
    }
}

/// All eight words of one line, in the order in which the ring writes them, without a mask: what carrying 64 bytes
/// instead of 8 costs. (A reader that copies the line while it is written would not notice.)
pub fn hot_line() -> (impl Sender, impl Receiver) {
    let line: Arc<CachePadded<[AtomicU64; 8]>> = Arc::default();
    (HotLineSender(Arc::clone(&line)), HotLineReceiver { line, last: 0 })
}

struct HotLineSender(Arc<CachePadded<[AtomicU64; 8]>>);

impl Sender for HotLineSender {
    #[inline(always)]
    fn send(&mut self, clock: Clock) {
        let now = clock.now().0;
        for word in &self.0[..7] {
            word.store(now, Ordering::Relaxed);
        }
        // Release: pairs with the Acquire in HotLineReceiver::poll.
        self.0[7].store(now, Ordering::Release);
    }
}

struct HotLineReceiver {
    line: Arc<CachePadded<[AtomicU64; 8]>>,
    last: u64,
}

impl Receiver for HotLineReceiver {
    #[inline(always)]
    fn poll(&mut self, clock: Clock) -> Option<Arrival> {
        let last = self.line[7].load(Ordering::Acquire);
        if last == self.last {
            return None;
        }
        self.last = last;
        let differing = self.line[..7].iter().fold(0, |all, word| all | word.load(Ordering::Relaxed) ^ last);
        assert_eq!(differing, 0, "the words before the last were written before it");
        Some(Arrival { sent: Nanos(last), seen: clock.now() })
    }
}
