//! One item from one pinned thread to another, many times, all contenders in turn.
//!
//! The sender waits until an item is due (a random time after the last one, so that the line is handed over and not
//! streamed), reads the clock, and sends; the item carries that time. The receiver reads the clock when it has the item;
//! the difference is the one-way latency, both by the same counter. The receiver then says in a line of its own that it
//! has the item, and the sender sends nothing before that: one item is under way at a time, so a stall of the machine
//! costs one sample, with whatever contender it falls into. (This is a measurement of a hand-over. It says nothing about
//! queues; those are measured open loop, by `feeds-replay`.)

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;

use crossbeam_utils::CachePadded;
use hdrhistogram::Histogram;
use protocol::time::Nanos;
use publisher::pin::PinError;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::Serialize;
use transport::clock::Clock;

use crate::machine::{Cores, pin_anew, waited_ns};

/// Items at the start of each slice that are not recorded: they find cold caches, and a receiver that is not there yet.
pub const WARM_UP_ITEMS: u64 = 200;
/// A turn of the sender's waiting loop that takes this long, ns, was not the sender's: another process or the hypervisor
/// had its core. (The kernel's own timer interrupt takes up to some 10 us in a virtual machine, hundreds of times a second;
/// it belongs to the machine as it is.)
pub const GAP_NS: u64 = 50_000;
/// How long the sender waits for an item to be received before it takes it for lost, ns.
const PATIENCE_NS: u64 = 200_000_000;
/// Idle turns of the receiver between two looks at whether the slice is over.
const TURNS_PER_LOOK: u32 = 4096;
/// The longest latency that is told apart, ns.
const HIGHEST_NS: u64 = 10_000_000_000;

/// The sending half of a contender.
pub trait Sender: Send {
    /// Reads the clock, and sends one item that carries that time.
    fn send(&mut self, clock: Clock);
}

/// The receiving half of a contender.
pub trait Receiver: Send {
    /// One turn of its polling loop, with whatever a turn costs in earnest. What arrived, if something did.
    fn poll(&mut self, clock: Clock) -> Option<Arrival>;
}

/// An item that arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// The time that it carries.
    pub sent: Nanos,
    /// When the receiver had it.
    pub seen: Nanos,
}

/// How a contender is driven.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Pace {
    /// Least time from one item to the next, ns.
    pub least_ns: u64,
    /// Most time from one item to the next, ns.
    pub most_ns: u64,
    /// Items in a slice, those of the warm-up included.
    pub items: u64,
}

impl Pace {
    /// For memory: one item each 1 to 2 us, 12,000 in a slice of about 20 ms.
    pub const MEMORY: Pace = Pace { least_ns: 1_000, most_ns: 2_000, items: 12_000 };
    /// For datagrams: one item each 10 to 20 us, 3,000 in a slice of about 45 ms.
    pub const DATAGRAMS: Pace = Pace { least_ns: 10_000, most_ns: 20_000, items: 3_000 };

    /// How long a slice takes, ns, when nothing stalls.
    pub fn slice_ns(&self) -> u64 {
        (self.least_ns + self.most_ns) / 2 * self.items
    }
}

/// Something that hands items over, by name.
pub struct Contender {
    /// Its name in reports.
    pub name: &'static str,
    /// What it does, in a line.
    pub what: &'static str,
    /// How it is driven.
    pub pace: Pace,
    sender: Box<dyn SendSlice>,
    receiver: Box<dyn ReceiveSlice>,
}

impl Contender {
    /// A contender of two halves. The loops around them are compiled for their types: nothing is dispatched per turn.
    pub fn new(
        name: &'static str,
        what: &'static str,
        pace: Pace,
        halves: (impl Sender + 'static, impl Receiver + 'static),
    ) -> Contender {
        Contender { name, what, pace, sender: Box::new(halves.0), receiver: Box::new(halves.1) }
    }
}

/// What one slice came to.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Slice {
    /// Items recorded.
    pub samples: u64,
    /// Median latency, ns, found between the steps of the clock as in [`quantile`].
    pub p50: f64,
    /// 99th percentile, ns.
    pub p99: f64,
    /// 99.9th percentile, ns.
    pub p999: f64,
    /// Longest, ns.
    pub max: u64,
    /// Items that seem to have arrived before they were sent: the two cores' counters disagree.
    pub negative: u64,
    /// Items that did not arrive in time.
    pub lost: u64,
    /// Turns of the waiting sender of [`GAP_NS`] and more.
    pub gaps: u64,
    /// How long those took together, ns.
    pub gap_ns: u64,
    /// How long the whole slice took, ns.
    pub took_ns: u64,
    /// How long another thread had the sender's core while it could have run, ns.
    pub sender_waited_ns: u64,
    /// How long another thread had the receiver's core while it could have run, ns.
    pub receiver_waited_ns: u64,
}

impl Slice {
    /// Whether the machine took more than a hundredth of the slice: what it says of p99 may be the machine's doing. The
    /// sender's gaps count, because nothing of the contender runs in its waiting loop, and the time that the scheduler says
    /// another thread had a core.
    pub fn is_disturbed(&self) -> bool {
        (self.gap_ns.max(self.sender_waited_ns) + self.receiver_waited_ns) * 100 > self.took_ns
    }
}

/// All slices of one contender.
pub struct Series {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub what: &'static str,
    /// How it was driven.
    pub pace: Pace,
    /// One slice for each round.
    pub slices: Vec<Slice>,
    /// All samples of all slices.
    pub all: Histogram<u64>,
}

/// What the two threads share. Each field has a line of its own.
#[derive(Default)]
struct Control {
    /// Items received in this slice. Written by the receiver.
    received: CachePadded<AtomicU64>,
    /// The sender has sent everything. Written by the sender.
    is_over: CachePadded<AtomicBool>,
    /// No round follows. Written by the sender before the barrier that begins a round.
    is_finished: CachePadded<AtomicBool>,
}

trait SendSlice: Send {
    fn run(&mut self, pace: Pace, control: &Control, clock: Clock, random: &mut Pcg64Mcg) -> SentSlice;
}

trait ReceiveSlice: Send {
    fn run(&mut self, control: &Control, clock: Clock, histogram: &mut Histogram<u64>) -> ReceivedSlice;
}

#[derive(Default)]
struct SentSlice {
    lost: u64,
    gaps: u64,
    gap_ns: u64,
    took_ns: u64,
    waited_ns: u64,
}

#[derive(Default)]
struct ReceivedSlice {
    negative: u64,
    waited_ns: u64,
}

impl<T: Sender> SendSlice for T {
    fn run(&mut self, pace: Pace, control: &Control, clock: Clock, random: &mut Pcg64Mcg) -> SentSlice {
        let waited_before = waited_ns();
        let mut slice = SentSlice::default();
        let began = clock.now();
        let mut last = began;
        for item in 1..=pace.items {
            let due = last.plus(random.random_range(pace.least_ns..=pace.most_ns));
            while last < due {
                let now = clock.now();
                let gap = now.0.saturating_sub(last.0);
                if gap >= GAP_NS {
                    slice.gaps += 1;
                    slice.gap_ns += gap;
                }
                last = now;
            }
            self.send(clock);
            let sent = clock.now();
            // Acquire: pairs with the Release below; nothing but the count is taken from it.
            while control.received.load(Ordering::Acquire) + slice.lost < item {
                last = clock.now();
                if last.since(sent) >= PATIENCE_NS as i64 {
                    slice.lost += 1;
                }
            }
            last = clock.now();
        }
        // Release: pairs with the receiver's Acquire; everything has been sent.
        control.is_over.store(true, Ordering::Release);
        slice.took_ns = last.0.saturating_sub(began.0);
        slice.waited_ns = waited_ns() - waited_before;
        slice
    }
}

impl<T: Receiver> ReceiveSlice for T {
    fn run(&mut self, control: &Control, clock: Clock, histogram: &mut Histogram<u64>) -> ReceivedSlice {
        let waited_before = waited_ns();
        let mut slice = ReceivedSlice::default();
        let mut received = 0;
        let mut idle_turns = 0u32;
        loop {
            if let Some(arrival) = self.poll(clock) {
                received += 1;
                control.received.store(received, Ordering::Release);
                if received > WARM_UP_ITEMS {
                    match u64::try_from(arrival.seen.since(arrival.sent)) {
                        Ok(latency) => histogram.saturating_record(latency),
                        Err(_) => slice.negative += 1,
                    }
                }
            } else {
                idle_turns = idle_turns.wrapping_add(1);
                if idle_turns.is_multiple_of(TURNS_PER_LOOK) && control.is_over.load(Ordering::Acquire) {
                    break;
                }
            }
        }
        slice.waited_ns = waited_ns() - waited_before;
        slice
    }
}

/// Runs all contenders in turn for about `length_ns`, at least one round: the sender on the calling thread, which stays
/// pinned afterwards, the receiver on one of its own. Each round begins one contender further on, so that no contender
/// always follows the same one.
///
/// # Errors
/// [`PinError`], if a thread cannot be pinned.
///
/// # Panics
/// If there are no contenders, or a slice is meant to take more than 100 ms.
pub fn interleave(
    contenders: Vec<Contender>,
    cores: Cores,
    clock: Clock,
    seed: u64,
    length_ns: u64,
) -> Result<Vec<Series>, PinError> {
    assert!(!contenders.is_empty(), "nothing to measure");
    for contender in &contenders {
        let slice_ns = contender.pace.slice_ns();
        assert!(slice_ns <= 100_000_000, "a slice of {} takes {slice_ns} ns, more than 100 ms", contender.name);
    }
    let count = contenders.len();
    let control = Arc::new(Control::default());
    let barrier = Arc::new(Barrier::new(2));
    let mut series = Vec::new();
    let mut senders = Vec::new();
    let mut receivers = Vec::new();
    for Contender { name, what, pace, sender, receiver } in contenders {
        series.push(Series { name, what, pace, slices: Vec::new(), all: histogram() });
        senders.push(sender);
        receivers.push(receiver);
    }
    pin_anew(cores.writer)?;
    let (pinned, is_pinned) = mpsc::channel();
    let receiving = {
        let (control, barrier) = (Arc::clone(&control), Arc::clone(&barrier));
        thread::spawn(move || {
            let outcome = pin_anew(cores.reader);
            let failed = outcome.is_err();
            // The other side waits for this word before it does anything else.
            pinned.send(outcome).expect("the sender waits for this");
            if failed { Vec::new() } else { receive_rounds(&mut receivers, &control, &barrier, clock) }
        })
    };
    is_pinned.recv().expect("the receiver says whether it is pinned")?;

    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut sent: Vec<Vec<SentSlice>> = (0..count).map(|_| Vec::new()).collect();
    let began = clock.now();
    for round in 0.. {
        let is_finished = round > 0 && clock.now().since(began) >= length_ns as i64;
        control.is_finished.store(is_finished, Ordering::Relaxed);
        barrier.wait();
        if is_finished {
            break;
        }
        for place in 0..count {
            let contender = (round + place) % count;
            // Relaxed: the barriers before and after order these against the receiver.
            control.received.store(0, Ordering::Relaxed);
            control.is_over.store(false, Ordering::Relaxed);
            barrier.wait();
            sent[contender].push(senders[contender].run(series[contender].pace, &control, clock, &mut random));
            barrier.wait();
        }
    }
    let received = receiving.join().expect("the receiving thread does not panic");
    let step_ns = step_ns(clock);
    for ((series, sent), received) in series.iter_mut().zip(sent).zip(received) {
        for (sent, (received, histogram)) in sent.into_iter().zip(received) {
            series.slices.push(slice_of(&sent, &received, &histogram, step_ns));
            series.all.add(histogram).expect("the bounds are the same");
        }
    }
    Ok(series)
}

/// The receiver's side of [`interleave`]: what each contender's slices came to, by round.
fn receive_rounds(
    receivers: &mut [Box<dyn ReceiveSlice>],
    control: &Control,
    barrier: &Barrier,
    clock: Clock,
) -> Vec<Vec<(ReceivedSlice, Histogram<u64>)>> {
    let count = receivers.len();
    let mut received: Vec<Vec<_>> = (0..count).map(|_| Vec::new()).collect();
    for round in 0.. {
        barrier.wait();
        if control.is_finished.load(Ordering::Relaxed) {
            break;
        }
        for place in 0..count {
            let contender = (round + place) % count;
            let mut histogram = histogram();
            barrier.wait();
            let slice = receivers[contender].run(control, clock, &mut histogram);
            received[contender].push((slice, histogram));
            barrier.wait();
        }
    }
    received
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, HIGHEST_NS, 3).expect("bounds are legal")
}

/// The smallest step that `clock` is seen to make, ns. Processors count in steps of their own reference clock, 10 ns and
/// more on some, however fast they run.
pub fn step_ns(clock: Clock) -> u64 {
    let mut last = clock.now();
    let mut least = u64::MAX;
    for _ in 0..100_000 {
        let now = clock.now();
        if now > last {
            least = least.min(now.0 - last.0);
        }
        last = now;
    }
    least
}

/// The quantile `q` of latencies that were read in steps of `step_ns`: the samples of one step are taken to be spread
/// evenly over it, which the random pacing makes true. Without this, latencies of a few steps would make ratios jump.
pub fn quantile(histogram: &Histogram<u64>, q: f64, step_ns: u64) -> f64 {
    let step = step_ns.max(1);
    let wanted = q * histogram.len() as f64;
    // The step being looked at, the samples before it, and those in it.
    let (mut at, mut before, mut within) = (0, 0u64, 0u64);
    for value in histogram.iter_recorded() {
        let place = (value.value_iterated_to() + step / 2) / step;
        if place != at {
            if (before + within) as f64 >= wanted && within > 0 {
                break;
            }
            (at, before, within) = (place, before + within, 0);
        }
        within += value.count_since_last_iteration();
    }
    if within == 0 {
        return 0.0;
    }
    let share = ((wanted - before as f64) / within as f64).clamp(0.0, 1.0);
    ((at as f64 - 0.5 + share) * step as f64).max(0.0)
}

fn slice_of(sent: &SentSlice, received: &ReceivedSlice, histogram: &Histogram<u64>, step_ns: u64) -> Slice {
    Slice {
        samples: histogram.len(),
        p50: quantile(histogram, 0.5, step_ns),
        p99: quantile(histogram, 0.99, step_ns),
        p999: quantile(histogram, 0.999, step_ns),
        max: histogram.max(),
        negative: received.negative,
        lost: sent.lost,
        gaps: sent.gaps,
        gap_ns: sent.gap_ns,
        took_ns: sent.took_ns,
        sender_waited_ns: sent.waited_ns,
        receiver_waited_ns: received.waited_ns,
    }
}

#[cfg(test)]
mod tests;
