//! One line through the ring into a strategy: arbiter, books, callbacks.

use protocol::arbiter::ArbiterConfig;
use protocol::line::Epoch;
use protocol::record::{ChannelId, Flags, InstrumentId, Kind, Lane, Record, Side};
use protocol::sequencer::Sequencer;
use protocol::time::Nanos;
use subscriber::{Context, EngineConfig, EventEnd, Handler, Subscriber, Update};
use transport::RingWriter;
use transport::clock::Clock;
use transport::shm::{RingOptions, RxOptions, SetupError, ShmRx};

use crate::handover::{Arrival, Receiver, Sender};

/// One update through a named ring of `lines` lines into a strategy's handler: numbered, sealed, put and flushed;
/// received by a whole [`Subscriber`] over the lane that strategies use, applied to its book, and seen at the end of the
/// event, when the book shows it. Orders are added and deleted in turn at the best price of a book of 20 levels a side.
///
/// # Errors
/// [`SetupError`], if the ring cannot be made or opened.
pub fn subscriber_line(lines: usize, clock: Clock) -> Result<(impl Sender, impl Receiver), SetupError> {
    let name = super::ring_name();
    let lane = Lane::new(0);
    let ring = RingWriter::create(&RingOptions::new(&name, ChannelId::new(1), lane, Epoch(1), lines))?;
    let mut sender = UpdateSender { ring, sequencer: Sequencer::new(Epoch(1), 1), record: order(), is_resting: false };
    sender.build_book(clock.now());
    let rx = ShmRx::open(RxOptions::new(&name, lane))?;
    let subscriber = Subscriber::new(rx, ArbiterConfig::default(), EngineConfig::default(), clock);
    let mut receiver = UpdateReceiver { subscriber, strategy: Strategy::new(clock) };
    receiver.read_book();
    Ok((sender, receiver))
}

const INSTRUMENT: InstrumentId = InstrumentId(1);
/// Levels on each side of the book.
const LEVELS: i64 = 20;
const BEST_BID: i64 = 100_000_000_000;

fn order() -> Record {
    let mut record = Record::new(Kind::ADD, INSTRUMENT);
    record.flags = Flags::LAST;
    record.side = Side::BID;
    record.price.set(BEST_BID);
    record.size.set(100);
    record.order_id.set(1);
    record
}

struct UpdateSender {
    ring: RingWriter,
    sequencer: Sequencer,
    record: Record,
    is_resting: bool,
}

impl UpdateSender {
    #[inline(always)]
    fn put(&mut self, record: &Record, now: Nanos) {
        let (_, line) = self.sequencer.seal(record, now).expect("a slice is shorter than an epoch");
        self.ring.put(&line);
        self.ring.flush();
    }

    /// A book for the updates to fall into.
    fn build_book(&mut self, now: Nanos) {
        let mut start = Record::new(Kind::SESSION_START, InstrumentId::CHANNEL);
        start.flags = Flags::LAST;
        self.put(&start, now);
        for level in 1..=LEVELS {
            for (side, price) in
                [(Side::BID, BEST_BID - level * 10_000_000), (Side::ASK, BEST_BID + level * 10_000_000)]
            {
                let mut record = order();
                record.side = side;
                record.price.set(price);
                record.order_id.set(price as u64);
                self.put(&record, now);
            }
        }
    }
}

impl Sender for UpdateSender {
    #[inline(always)]
    fn send(&mut self, clock: Clock) {
        let now = clock.now();
        self.record.kind = if self.is_resting { Kind::DELETE } else { Kind::ADD };
        self.is_resting = !self.is_resting;
        self.record.ts_event.set(now.0);
        let record = self.record;
        self.put(&record, now);
    }
}

struct UpdateReceiver {
    subscriber: Subscriber<ShmRx>,
    strategy: Strategy,
}

impl UpdateReceiver {
    fn read_book(&mut self) {
        while self.strategy.events < 2 * LEVELS as u64 {
            self.subscriber.poll(&mut self.strategy);
        }
        self.strategy.arrival = None;
    }
}

impl Receiver for UpdateReceiver {
    #[inline(always)]
    fn poll(&mut self, _: Clock) -> Option<Arrival> {
        self.strategy.arrival = None;
        self.subscriber.poll(&mut self.strategy);
        self.strategy.arrival
    }
}

struct Strategy {
    clock: Clock,
    sent: Nanos,
    events: u64,
    arrival: Option<Arrival>,
}

impl Strategy {
    fn new(clock: Clock) -> Strategy {
        Strategy { clock, sent: Nanos::ZERO, events: 0, arrival: None }
    }
}

impl Handler for Strategy {
    #[inline]
    fn on_record(&mut self, _: &Context<'_>, update: &Update<'_>) {
        self.sent = update.record.event_time();
    }

    #[inline]
    fn on_event_end(&mut self, _: &Context<'_>, end: &EventEnd) {
        let seen = self.clock.now();
        assert!(end.changed, "every update changes the book");
        self.events += 1;
        self.arrival = Some(Arrival { sent: self.sent, seen });
    }

    fn on_gap(&mut self, _: &Context<'_>, gap: &subscriber::Gap) {
        panic!("{gap:?} with one line under way at a time");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_update_reaches_the_strategy_with_the_time_it_was_sent() {
        let clock = Clock::calibrate();
        let (mut sender, mut receiver) = subscriber_line(64, clock).expect("a ring");
        for item in 0..200 {
            let before = clock.now();
            sender.send(clock);
            let arrival = loop {
                if let Some(arrival) = receiver.poll(clock) {
                    break arrival;
                }
            };
            assert!(before <= arrival.sent && arrival.sent <= arrival.seen, "item {item}: {arrival:?}");
            assert_eq!(receiver.poll(clock), None, "item {item} came once");
        }
    }
}
