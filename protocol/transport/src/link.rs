//! A lane within one thread: packets in a queue, in virtual time.
//!
//! The link carries the very bytes that a network would, and is checked by the same decoder; but it has no thread and no
//! clock. What is sent at a time is received at that time plus a delay, both as told by the caller, so that a test decides
//! what happens when, and a run repeats exactly.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use protocol::line::{Line, Stamp};
use protocol::packet::{MAX_LINES, Refused};
use protocol::record::{ChannelId, Lane};
use protocol::run::{Carrier, RunSink};
use protocol::time::Nanos;

use crate::datagram::hand_up;
use crate::lane::{LaneRx, LaneTx};
use crate::ring::RingWriter;
use crate::slots::{Head, Slots};

/// How a link behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkOptions {
    /// The most lines in one packet, 1 to 63.
    pub lines_per_packet: usize,
    /// The most packets under way to one receiver; those that find the queue full are dropped and counted.
    pub queue_packets: usize,
    /// Time from sending to receiving, ns.
    pub delay_ns: u64,
}

impl Default for LinkOptions {
    /// 22 lines a packet, as on Ethernet; 1024 packets under way; no delay.
    fn default() -> LinkOptions {
        LinkOptions { lines_per_packet: 22, queue_packets: 1024, delay_ns: 0 }
    }
}

/// What a [`LinkTx`] has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkTxCounters {
    /// Packets with lines sent, whatever the number of receivers.
    pub packets: u64,
    /// Lines sent.
    pub lines: u64,
    /// Heartbeats sent.
    pub heartbeats: u64,
    /// Lines never sent because the ring had overwritten them before this lane was flushed.
    pub lines_skipped: u64,
}

/// What a [`LinkRx`] has seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkRxCounters {
    /// Packets with lines, handed up.
    pub packets: u64,
    /// Lines handed up.
    pub lines: u64,
    /// Packets without lines, handed up as positions.
    pub heartbeats: u64,
    /// Packets refused, by [`Refused::index`].
    pub refused: [u64; Refused::COUNT],
    /// Packets that found the queue full.
    pub dropped: u64,
}

/// The packets under way to one receiver.
#[derive(Debug)]
struct Queue {
    slots: Slots,
    /// Slots and the times they were sent at, in that order.
    under_way: VecDeque<(usize, Nanos)>,
    dropped: u64,
}

/// The sending half of a link, for any number of receivers.
#[derive(Debug)]
pub struct LinkTx {
    options: LinkOptions,
    channel: ChannelId,
    lane: Lane,
    cursor: Stamp,
    queues: Vec<Rc<RefCell<Queue>>>,
    counters: LinkTxCounters,
}

/// The receiving half of a link.
#[derive(Debug)]
pub struct LinkRx {
    channel: ChannelId,
    delay_ns: u64,
    queue: Rc<RefCell<Queue>>,
    counters: LinkRxCounters,
}

/// A link that carries the lines of `ring` from its present head on, with one receiver.
pub fn link(ring: &RingWriter, options: LinkOptions) -> (LinkTx, LinkRx) {
    let mut tx = LinkTx::new(ring, options);
    let rx = tx.receiver();
    (tx, rx)
}

impl LinkTx {
    /// A link without receivers, which carries the lines of `ring` from its present head on.
    ///
    /// # Panics
    /// If `lines_per_packet` is not within 1 to 63, or `queue_packets` is 0.
    pub fn new(ring: &RingWriter, options: LinkOptions) -> LinkTx {
        let lines = options.lines_per_packet;
        assert!((1..=MAX_LINES).contains(&lines), "a packet holds 1 to {MAX_LINES} lines, not {lines}");
        assert!(options.queue_packets > 0, "a link needs room for at least one packet");
        LinkTx {
            options,
            channel: ring.channel(),
            lane: ring.lane(),
            cursor: ring.head(),
            queues: Vec::new(),
            counters: LinkTxCounters::default(),
        }
    }

    /// A further receiver: it gets what is sent from now on.
    pub fn receiver(&mut self) -> LinkRx {
        let queue = Rc::new(RefCell::new(Queue {
            slots: Slots::new(self.options.queue_packets),
            under_way: VecDeque::with_capacity(self.options.queue_packets),
            dropped: 0,
        }));
        self.queues.push(Rc::clone(&queue));
        LinkRx { channel: self.channel, delay_ns: self.options.delay_ns, queue, counters: LinkRxCounters::default() }
    }

    /// What it has done so far.
    pub fn counters(&self) -> &LinkTxCounters {
        &self.counters
    }

    fn send(&self, now: Nanos, next: Stamp, lines: (&[Line], &[Line]), ended: bool) {
        for queue in &self.queues {
            let queue = &mut *queue.borrow_mut();
            match queue.slots.take() {
                Some(slot) => {
                    let head = Head { lane: self.lane, next, publish_time: now, ended };
                    queue.slots.write(slot, self.channel, head, lines);
                    queue.under_way.push_back((slot, now));
                }
                None => queue.dropped += 1,
            }
        }
    }
}

impl LaneTx for LinkTx {
    fn flush(&mut self, ring: &RingWriter, now: Nanos) -> usize {
        let behind = ring.oldest().sequence().0.saturating_sub(self.cursor.sequence().0);
        self.counters.lines_skipped += behind;
        self.cursor = self.cursor.plus(behind);
        let mut sent = 0;
        while self.cursor < ring.head() {
            let owed = ring.head().sequence().0 - self.cursor.sequence().0;
            let count = (owed as usize).min(self.options.lines_per_packet);
            let next = self.cursor.plus(count as u64);
            self.send(now, next, ring.lines(self.cursor, count), false);
            self.cursor = next;
            self.counters.packets += 1;
            sent += count;
        }
        self.counters.lines += sent as u64;
        sent
    }

    /// Flushes first: a heartbeat that named lines not yet sent would make each subscriber take them for lost.
    fn heartbeat(&mut self, ring: &RingWriter, now: Nanos, ended: bool) {
        self.flush(ring, now);
        self.send(now, ring.head(), (&[], &[]), ended);
        self.counters.heartbeats += 1;
    }
}

impl LinkRx {
    /// What it has seen so far.
    pub fn counters(&self) -> LinkRxCounters {
        LinkRxCounters { dropped: self.queue.borrow().dropped, ..self.counters }
    }

    /// How many packets are under way.
    pub fn under_way(&self) -> usize {
        self.queue.borrow().under_way.len()
    }

    /// When the next packet arrives, if one is under way: the time to poll again in a simulation.
    pub fn next_arrival(&self) -> Option<Nanos> {
        self.queue.borrow().under_way.front().map(|(_, sent)| sent.plus(self.delay_ns))
    }
}

impl LaneRx for LinkRx {
    /// Hands up what arrives at or before `now`.
    ///
    /// The sink must not send on this same link, whose queue is in use while it is called.
    fn poll<S: RunSink>(&mut self, now: Nanos, limit: usize, sink: &mut S) -> usize {
        let queue = &mut *self.queue.borrow_mut();
        let mut lines = 0;
        let mut work = 0;
        while work < limit {
            let Some(&(slot, sent)) = queue.under_way.front() else { break };
            if sent.plus(self.delay_ns) > now {
                break;
            }
            queue.under_way.pop_front();
            work += 1;
            match hand_up(queue.slots.bytes(slot), self.channel, true, Carrier::Local, sink) {
                Ok(0) => self.counters.heartbeats += 1,
                Ok(count) => {
                    self.counters.packets += 1;
                    lines += count;
                    work += count - 1;
                }
                Err(refused) => self.counters.refused[refused.index()] += 1,
            }
            queue.slots.give(slot);
        }
        self.counters.lines += lines as u64;
        lines
    }
}
