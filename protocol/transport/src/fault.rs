//! A lane that misbehaves by plan.
//!
//! [`FaultInjector`] wraps any lane. What the inner lane hands up becomes packets again, byte by byte as on a wire; the
//! plan's faults are done to those bytes; and what still verifies is handed up. So the faults hit the real decoder, and the
//! receiver is promised what a network promises: whatever arrives is true, and nothing else is certain.
//!
//! ```
//! use transport::fault::{Fault, FaultPlan};
//!
//! // One packet in twenty lost, one in twenty sent twice, one in ten overtaken by up to 64 others; repeatable.
//! let storm = FaultPlan { drop: 0.05, duplicate: 0.05, reorder: 0.1, reorder_span: 64, ..FaultPlan::seeded(42) };
//! // Or exactly what a test's name says: the third packet lost, and all from the tenth to the twelfth.
//! let named = FaultPlan::script([(2, Fault::Drop), (9, Fault::DropThrough(11))]);
//! # let _ = (storm, named);
//! ```

use protocol::line::{Line, Stamp};
use protocol::packet::{MAX_LINES, Refused};
use protocol::record::{ChannelId, Lane};
use protocol::run::{Carrier, LanePath, LossCause, Position, Run, RunSink};
use protocol::time::Nanos;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::datagram::hand_up;
use crate::lane::LaneRx;
use crate::slots::{Head, Slots};

/// The channel that the injector writes into its packets. Runs do not say theirs, and no other reader sees the packets.
const CHANNEL: ChannelId = ChannelId::new(0);

/// The most bits flipped in one packet.
const MOST_FLIPS: usize = 8;

/// What goes wrong, and how often. Probabilities are per packet and independent, 0.0 to 1.0.
///
/// The same plan over the same input gives the same output. Heartbeats are packets too.
#[derive(Clone, PartialEq, Debug)]
pub struct FaultPlan {
    /// Lost.
    pub drop: f64,
    /// Handed up twice, the copy up to `reorder_span` packets later.
    pub duplicate: f64,
    /// Held until 1 to `reorder_span` later packets have passed it.
    pub reorder: f64,
    /// The most packets by which one is overtaken.
    pub reorder_span: u64,
    /// The longest that a packet waits for others to overtake it, ns: a stream that stops does not keep it.
    pub reorder_hold_ns: u64,
    /// Held for 1 to `delay_ns`; packets behind it do not wait.
    pub delay: f64,
    /// The longest delay, ns of the time given to `poll`.
    pub delay_ns: u64,
    /// 1 to 8 of its bits flipped.
    pub corrupt: f64,
    /// Cut to a random shorter length.
    pub truncate: f64,
    /// Seed of all the choices above.
    pub seed: u64,
    /// The most lines in a packet, 1 to 63; 1 makes faults hit single lines.
    pub lines_per_packet: usize,
    /// The most packets held at a time. One more, and the one due first is let go early, which is counted.
    pub most_held: usize,
    /// Faults done to named packets, counted from 0, beside those by chance.
    pub script: Vec<(u64, Fault)>,
}

impl FaultPlan {
    /// No fault at all, and a seed for those that are added.
    pub fn seeded(seed: u64) -> FaultPlan {
        FaultPlan {
            drop: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            reorder_span: 16,
            reorder_hold_ns: 1_000_000,
            delay: 0.0,
            delay_ns: 1_000_000,
            corrupt: 0.0,
            truncate: 0.0,
            seed,
            lines_per_packet: 22,
            most_held: 1024,
            script: Vec::new(),
        }
    }

    /// No fault at all.
    pub fn none() -> FaultPlan {
        FaultPlan::seeded(0)
    }

    /// These faults, each done to the packet of that number, and no other. In any order.
    pub fn script(faults: impl IntoIterator<Item = (u64, Fault)>) -> FaultPlan {
        FaultPlan { script: faults.into_iter().collect(), ..FaultPlan::none() }
    }
}

/// A fault for a named packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It is lost.
    Drop,
    /// It and all packets up to this number, included, are lost.
    DropThrough(u64),
    /// It is handed up twice: now, and when this many later packets have passed.
    Duplicate(u64),
    /// It is held until this many later packets have passed, however long that takes.
    Hold(u64),
    /// It is held for this many ns.
    Delay(u64),
    /// This bit of it is flipped, modulo its length.
    Flip(usize),
    /// It is cut to this many bytes.
    Truncate(usize),
}

/// What a [`FaultInjector`] has done. All but `refused` and `lines` count packets by fault; one packet may suffer several.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FaultCounts {
    /// Packets made of what the inner lane handed up.
    pub packets: u64,
    /// Lost.
    pub dropped: u64,
    /// Handed up twice.
    pub duplicated: u64,
    /// Held to be overtaken.
    pub reordered: u64,
    /// Held for a time.
    pub delayed: u64,
    /// Bits flipped in.
    pub corrupted: u64,
    /// Cut.
    pub truncated: u64,
    /// Let go before their time, because [`FaultPlan::most_held`] others were held.
    pub forced: u64,
    /// Packets refused on the way up, by [`Refused::index`].
    pub refused: [u64; Refused::COUNT],
    /// Lines handed up, copies included.
    pub lines: u64,
}

impl FaultCounts {
    /// All refused packets, whatever the reason.
    pub fn refused_total(&self) -> u64 {
        self.refused.iter().sum()
    }
}

/// Wraps a lane and does the faults of a plan to what it hands up.
///
/// Losses that the inner lane declares pass through at their place in the order of arrival.
#[derive(Debug)]
pub struct FaultInjector<R> {
    inner: R,
    wire: Wire,
}

impl<R: LaneRx> FaultInjector<R> {
    /// Wraps `inner`.
    ///
    /// # Panics
    /// If a probability is not within 0.0 to 1.0, `lines_per_packet` not within 1 to 63, `most_held` is 0, or
    /// `reorder_span` or `delay_ns` is 0 where the plan needs it.
    pub fn new(inner: R, plan: FaultPlan) -> FaultInjector<R> {
        FaultInjector { inner, wire: Wire::new(plan) }
    }

    /// What has been done so far.
    pub fn counts(&self) -> &FaultCounts {
        &self.wire.counts
    }

    /// How many packets are held.
    pub fn held(&self) -> usize {
        self.wire.held.len()
    }

    /// No more faults from here on, scripted ones included; what is held comes when it is due.
    pub fn heal(&mut self) {
        self.wire.plan = FaultPlan {
            seed: self.wire.plan.seed,
            lines_per_packet: self.wire.plan.lines_per_packet,
            most_held: self.wire.plan.most_held,
            ..FaultPlan::none()
        };
        self.wire.next_scripted = 0;
        self.wire.drop_before = 0;
    }

    /// Hands up all that is held, in the order in which it would have come; returns the number of lines.
    pub fn release<S: RunSink>(&mut self, sink: &mut S) -> usize {
        let before = self.wire.counts.lines;
        while let Some(place) = self.wire.first_held(|held| Some(held.due.0)) {
            self.wire.let_go(place, sink);
        }
        (self.wire.counts.lines - before) as usize
    }

    /// The lane that is wrapped.
    pub fn inner(&self) -> &R {
        &self.inner
    }

    /// The lane that is wrapped.
    pub fn inner_mut(&mut self) -> &mut R {
        &mut self.inner
    }
}

impl<R: LaneRx> LaneRx for FaultInjector<R> {
    fn poll<S: RunSink>(&mut self, now: Nanos, limit: usize, sink: &mut S) -> usize {
        let before = self.wire.counts.lines;
        self.wire.release_due(now, sink);
        let held_lines = (self.wire.counts.lines - before) as usize;
        if held_lines < limit {
            self.inner.poll(now, limit - held_lines, &mut Arrivals { wire: &mut self.wire, now, sink });
        }
        (self.wire.counts.lines - before) as usize
    }

    fn known_head(&self) -> Option<Stamp> {
        self.inner.known_head()
    }
}

/// A packet that waits.
#[derive(Clone, Copy, Debug)]
struct Held {
    slot: usize,
    /// Whether the header's publish time means anything.
    timed: bool,
    /// It goes when this many packets have been made, …
    after: u64,
    /// … or at this time, whichever comes first.
    due: Nanos,
    /// Which came first, among those that go at once.
    order: u64,
}

/// Everything but the inner lane, so that it can be the inner lane's sink.
#[derive(Debug)]
struct Wire {
    plan: FaultPlan,
    rng: Pcg64Mcg,
    /// The first entry of the script that has not been looked at.
    next_scripted: usize,
    /// Packets before this number are lost (from the script).
    drop_before: u64,
    slots: Slots,
    held: Vec<Held>,
    /// How many packets were ever held: their order.
    order: u64,
    counts: FaultCounts,
    /// Over what the inner lane brought the last of them: an injector is put around one lane.
    carrier: Carrier,
}

/// What befalls one packet.
#[derive(Default)]
struct Fate {
    drop: bool,
    /// A copy comes when this many later packets have passed.
    copy_after: Option<u64>,
    /// Held until this many later packets have passed, or for this many ns.
    hold: Option<(u64, u64)>,
    /// Held for this many ns.
    delay_ns: Option<u64>,
    /// The first `flip_count` of these bits are flipped; they are all different.
    flips: [usize; MOST_FLIPS],
    flip_count: usize,
    /// Cut to this many bytes.
    cut: Option<usize>,
}

impl Fate {
    /// Adds a bit to be flipped, unless it is there already or there is no more room: flipped twice it would be whole.
    fn flip(&mut self, bit: usize) {
        if self.flip_count < MOST_FLIPS && !self.flips[..self.flip_count].contains(&bit) {
            self.flips[self.flip_count] = bit;
            self.flip_count += 1;
        }
    }
}

impl Wire {
    fn new(mut plan: FaultPlan) -> Wire {
        for (name, p) in [
            ("drop", plan.drop),
            ("duplicate", plan.duplicate),
            ("reorder", plan.reorder),
            ("delay", plan.delay),
            ("corrupt", plan.corrupt),
            ("truncate", plan.truncate),
        ] {
            assert!((0.0..=1.0).contains(&p), "{name} is a probability, 0.0 to 1.0, not {p}");
        }
        let lines = plan.lines_per_packet;
        assert!((1..=MAX_LINES).contains(&lines), "a packet holds 1 to {MAX_LINES} lines, not {lines}");
        assert!(plan.most_held > 0, "most_held must be at least 1");
        assert!(plan.reorder == 0.0 || plan.reorder_span > 0, "reordering needs a reorder_span of at least 1");
        assert!(plan.delay == 0.0 || plan.delay_ns > 0, "delays need a delay_ns of at least 1");
        plan.script.sort_by_key(|(number, _)| *number);
        Wire {
            rng: Pcg64Mcg::seed_from_u64(plan.seed),
            next_scripted: 0,
            drop_before: 0,
            // The packet at hand and its copy come on top of those that are held.
            slots: Slots::new(plan.most_held + 2),
            held: Vec::with_capacity(plan.most_held),
            order: 0,
            counts: FaultCounts::default(),
            carrier: Carrier::Local,
            plan,
        }
    }

    /// One packet arrives from the inner lane.
    fn arrive<S: RunSink>(&mut self, now: Nanos, head: Head, timed: bool, lines: &[Line], sink: &mut S) {
        let slot = self.slots.take().expect("two slots more than can be held");
        self.slots.write(slot, CHANNEL, head, (lines, &[]));
        let number = self.counts.packets;
        self.counts.packets += 1;

        let fate = self.decide(number, self.slots.bytes(slot).len());
        if fate.drop {
            self.counts.dropped += 1;
            self.slots.give(slot);
        } else {
            self.go(now, number, slot, timed, &fate, sink);
        }
        // What waited for this packet to pass it may go now.
        while let Some(place) = self.first_held(|held| (held.after <= number).then_some(held.after)) {
            self.let_go(place, sink);
        }
    }

    /// Draws, and looks up in the script, what befalls packet `number` of `len` bytes.
    fn decide(&mut self, number: u64, len: usize) -> Fate {
        let (plan, rng) = (&self.plan, &mut self.rng);
        let mut fate = Fate { drop: number < self.drop_before, ..Fate::default() };
        // No draw where there is no chance, so that a plan with one fault is not moved by the others.
        let happens = |rng: &mut Pcg64Mcg, p: f64| p > 0.0 && rng.random_bool(p);
        fate.drop |= happens(rng, plan.drop);
        if happens(rng, plan.duplicate) {
            fate.copy_after = Some(rng.random_range(0..=plan.reorder_span));
        }
        if happens(rng, plan.reorder) {
            fate.hold = Some((rng.random_range(1..=plan.reorder_span), plan.reorder_hold_ns));
        }
        if happens(rng, plan.delay) {
            fate.delay_ns = Some(rng.random_range(1..=plan.delay_ns));
        }
        if happens(rng, plan.corrupt) {
            for _ in 0..rng.random_range(1..=MOST_FLIPS) {
                fate.flip(rng.random_range(0..len * 8));
            }
        }
        if happens(rng, plan.truncate) {
            fate.cut = Some(rng.random_range(0..len));
        }
        while let Some(&(at, fault)) = plan.script.get(self.next_scripted).filter(|(at, _)| *at <= number) {
            self.next_scripted += 1;
            debug_assert!(at == number, "packets are numbered one by one");
            match fault {
                Fault::Drop => fate.drop = true,
                Fault::DropThrough(last) => {
                    self.drop_before = self.drop_before.max(last.saturating_add(1));
                    fate.drop |= number < self.drop_before;
                }
                Fault::Duplicate(after) => fate.copy_after = Some(after),
                Fault::Hold(after) => fate.hold = Some((after, u64::MAX)),
                Fault::Delay(ns) => fate.delay_ns = Some(ns),
                Fault::Flip(bit) => fate.flip(bit % (len * 8)),
                Fault::Truncate(to) => fate.cut = Some(to),
            }
        }
        fate
    }

    /// Packet `number`, which is not lost, goes its way.
    fn go<S: RunSink>(&mut self, now: Nanos, number: u64, slot: usize, timed: bool, fate: &Fate, sink: &mut S) {
        // The copy is made first: damage on the way of one is none to the other.
        let copy = fate.copy_after.map(|after| {
            let copy = self.slots.take().expect("two slots more than can be held");
            self.slots.copy(slot, copy);
            (copy, after)
        });

        let bytes = self.slots.bytes_mut(slot);
        let len = bytes.len();
        for bit in &fate.flips[..fate.flip_count] {
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        self.counts.corrupted += u64::from(fate.flip_count > 0);
        if let Some(cut) = fate.cut.filter(|cut| *cut < len) {
            self.slots.truncate(slot, cut);
            self.counts.truncated += 1;
        }

        self.counts.reordered += u64::from(fate.hold.is_some());
        self.counts.delayed += u64::from(fate.delay_ns.is_some());
        match (fate.delay_ns, fate.hold) {
            // A packet both delayed and overtaken comes when its delay is over.
            (Some(ns), _) => self.hold(slot, timed, u64::MAX, now.plus(ns), sink),
            (None, Some((after, ns))) => self.hold(slot, timed, number.saturating_add(after), now.plus(ns), sink),
            (None, None) => self.emit(slot, timed, sink),
        }
        if let Some((copy, after)) = copy {
            self.counts.duplicated += 1;
            if after == 0 {
                self.emit(copy, timed, sink);
            } else {
                let due = now.plus(self.plan.reorder_hold_ns);
                self.hold(copy, timed, number.saturating_add(after), due, sink);
            }
        }
    }

    /// Keeps a packet for later; if no more can be kept, lets the one due first go.
    fn hold<S: RunSink>(&mut self, slot: usize, timed: bool, after: u64, due: Nanos, sink: &mut S) {
        if self.held.len() == self.plan.most_held {
            let place = self.first_held(|held| Some(held.due.0)).expect("at least one is held");
            self.counts.forced += 1;
            self.let_go(place, sink);
        }
        self.held.push(Held { slot, timed, after, due, order: self.order });
        self.order += 1;
    }

    /// Lets go what is due at `now`, the earliest first.
    fn release_due<S: RunSink>(&mut self, now: Nanos, sink: &mut S) {
        while let Some(place) = self.first_held(|held| (held.due <= now).then_some(held.due.0)) {
            self.let_go(place, sink);
        }
    }

    /// Of the held packets for which `key` is something, the one with the least, in order of holding where they are equal.
    fn first_held(&self, key: impl Fn(&Held) -> Option<u64>) -> Option<usize> {
        let keyed = self.held.iter().enumerate().filter_map(|(place, held)| Some((key(held)?, held.order, place)));
        keyed.min().map(|(_, _, place)| place)
    }

    fn let_go<S: RunSink>(&mut self, place: usize, sink: &mut S) {
        let held = self.held.swap_remove(place);
        self.emit(held.slot, held.timed, sink);
    }

    /// Decodes a packet and hands up what it says.
    fn emit<S: RunSink>(&mut self, slot: usize, timed: bool, sink: &mut S) {
        match hand_up(self.slots.bytes(slot), CHANNEL, timed, self.carrier, sink) {
            Ok(lines) => self.counts.lines += lines as u64,
            Err(refused) => self.counts.refused[refused.index()] += 1,
        }
        self.slots.give(slot);
    }
}

/// Takes what the inner lane hands up, and makes packets of it.
struct Arrivals<'a, S> {
    wire: &'a mut Wire,
    now: Nanos,
    sink: &'a mut S,
}

impl<S: RunSink> RunSink for Arrivals<'_, S> {
    fn on_run(&mut self, run: Run<'_>) {
        let mut next = run.first;
        for lines in run.lines.chunks(self.wire.plan.lines_per_packet) {
            next = next.plus(lines.len() as u64);
            self.wire.carrier = run.path.carrier;
            let head = head(run.path.lane, next, run.publish_time, false);
            self.wire.arrive(self.now, head, run.publish_time.is_some(), lines, self.sink);
        }
    }

    fn on_position(&mut self, position: Position) {
        self.wire.carrier = position.path.carrier;
        let head = head(position.path.lane, position.next, position.publish_time, position.ended);
        self.wire.arrive(self.now, head, position.publish_time.is_some(), &[], self.sink);
    }

    fn on_loss(&mut self, path: LanePath, first: Stamp, count: u64, cause: LossCause) {
        self.sink.on_loss(path, first, count, cause);
    }
}

/// A header; the time is zero where the lane gave none.
fn head(lane: Lane, next: Stamp, publish_time: Option<Nanos>, ended: bool) -> Head {
    Head { lane, next, publish_time: publish_time.unwrap_or(Nanos::ZERO), ended }
}

#[cfg(test)]
mod tests;
