use std::sync::Mutex;

use super::*;
use crate::limits::{Polling, cold_words, hot_line, hot_word};
use crate::subjects::{RingTurn, ring_line};

/// One item, on one thread: it arrives once, with the time it was sent.
fn passes_on(mut halves: (impl Sender, impl Receiver), items: usize) {
    let clock = Clock::calibrate();
    for item in 0..items {
        assert_eq!(halves.1.poll(clock), None, "item {item} is not there before it is sent");
        let before = clock.now();
        halves.0.send(clock);
        let arrival = (0..1_000).find_map(|_| halves.1.poll(clock)).expect("it arrives");
        assert!(before <= arrival.sent && arrival.sent <= arrival.seen, "item {item}: {arrival:?}");
    }
}

#[test]
fn every_contender_in_memory_passes_on_each_item_once() {
    for polling in [Polling::Tight, Polling::Hint, Polling::Clock] {
        passes_on(hot_word(polling), 100);
    }
    passes_on(hot_line(), 100);
    passes_on(cold_words(16), 100);
    passes_on(ring_line(16, RingTurn::ReadsClock).expect("a ring"), 100);
    passes_on(ring_line(16, RingTurn::StandsStill).expect("a ring"), 100);
}

/// Notes the order in which contenders are driven.
struct Noted<T>(T, &'static str, Arc<Mutex<Vec<&'static str>>>);

impl<T: Sender> Sender for Noted<T> {
    fn send(&mut self, clock: Clock) {
        let mut order = self.2.lock().expect("nobody panics");
        if order.last() != Some(&self.1) {
            order.push(self.1);
        }
        self.0.send(clock);
    }
}

#[test]
fn contenders_take_turns_and_each_slice_has_every_sample() {
    let Some(cores) = Cores::choose() else {
        println!("one usable core: nothing can be interleaved");
        return;
    };
    let order = Arc::default();
    // Slow enough for a machine that is busy with other tests, short enough to be over at once.
    let pace = Pace { least_ns: 2_000, most_ns: 4_000, items: WARM_UP_ITEMS + 50 };
    let contender = |name| {
        let (sender, receiver) = hot_word(Polling::Tight);
        Contender::new(name, "", pace, (Noted(sender, name, Arc::clone(&order)), receiver))
    };
    let (contenders, clock) = (vec![contender("a"), contender("b")], Clock::calibrate());
    let series = thread::spawn(move || interleave(contenders, cores, clock, 7, 20_000_000).expect("two cores"));
    let series = series.join().expect("no panic");
    assert_eq!(series.len(), 2);
    let rounds = series[0].slices.len();
    for series in &series {
        assert_eq!(series.slices.len(), rounds);
        for slice in &series.slices {
            assert_eq!(slice.samples + slice.negative + slice.lost, 50, "{slice:?}");
            // Quantiles are found between the clock's steps, so the last one may lie half a step above the longest.
            assert!(
                slice.p50 <= slice.p99 && slice.p99 <= slice.p999 && slice.p999 <= slice.max as f64 + 20.0,
                "{slice:?}"
            );
        }
        assert_eq!(series.all.len(), series.slices.iter().map(|slice| slice.samples).sum::<u64>());
    }
    // Each round begins with the other one, so the two follow themselves at every change of rounds: a, b, a, b …
    let order = order.lock().expect("nobody panics");
    assert_eq!(order[..2], ["a", "b"]);
    assert!(order.windows(2).all(|pair| pair[0] != pair[1]));
    assert_eq!(order.len(), rounds + 1, "{order:?}");
}

#[test]
fn a_quantile_is_found_between_the_steps_of_the_clock() {
    let mut histogram = histogram();
    // Read in steps of 10 ns (and a nanosecond of rounding): a quarter at 30, half at 40, a quarter at 50.
    for (value, count) in [(30, 20), (31, 5), (40, 30), (39, 20), (50, 25)] {
        histogram.record_n(value, count).expect("within bounds");
    }
    for (q, expected) in [(0.25, 35.0), (0.5, 40.0), (0.75, 45.0), (1.0, 55.0), (0.125, 30.0)] {
        let got = quantile(&histogram, q, 10);
        assert!((got - expected).abs() < 1e-9, "{q}: {got} and not {expected}");
    }
    assert_eq!(quantile(&super::histogram(), 0.5, 10), 0.0);
}
