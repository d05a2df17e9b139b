//! A publisher whose feed is silent goes on saying that it lives, on its ring and on its lanes.

#![forbid(unsafe_code)]

use protocol::book::{BooksConfig, OrderLookup};
use protocol::channel::ChannelConfig;
use protocol::line::{Epoch, Stamp};
use protocol::record::{ChannelId, Flags, InstrumentId, Kind, Lane, Record};
use protocol::run::{LanePath, LossCause, Position, Run, RunSink};
use protocol::time::Nanos;
use publisher::counters::Counters;
use publisher::date::SessionDate;
use publisher::feed::{FeedError, FeedSource, Message, Notice};
use publisher::pace::{Pace, Schedule};
use publisher::pipeline::Pipeline;
use publisher::publisher::{Publisher, PublisherConfig};
use publisher::venue::{Rejected, Venue};
use transport::ring::StartAt;
use transport::{LaneRx, LaneTx, RingWriter};

const MS: u64 = 1_000_000;
const HEARTBEAT_NS: u64 = 10 * MS;

/// Two messages, a second apart.
struct Feed(u64);

impl FeedSource for Feed {
    fn next(&mut self) -> Result<Option<Message<'_>>, FeedError> {
        self.0 += 1;
        Ok((self.0 <= 2).then_some(Message { ordinal: self.0, offset: 0, capture: None, bytes: b"x" }))
    }
}

struct Market;

impl Venue for Market {
    fn normalise(&mut self, _: &Message<'_>, _: &impl OrderLookup, out: &mut impl FnMut(Record)) {
        out(Record { flags: Flags::LAST, ..Record::new(Kind::ADD, InstrumentId(1)) });
    }
    fn notice(&mut self, _: &Notice, _: &mut impl FnMut(Record)) {}
    fn time(&self, message: &Message<'_>) -> Option<Nanos> {
        Some(Nanos((message.ordinal - 1) * 1_000 * MS))
    }
    fn venue_time(&self, message: &Message<'_>) -> Option<Nanos> {
        self.time(message)
    }
    fn check(&self, _: &[u8]) -> Result<(), Rejected> {
        Ok(())
    }
    fn counters(&self) -> &Counters {
        &Counters::ZERO
    }
    fn instrument_count(&self) -> u32 {
        1
    }
    fn date(&self) -> SessionDate {
        SessionDate::NONE
    }
}

/// When heartbeats went out on a lane.
#[derive(Default)]
struct Beats(Vec<u64>);

impl LaneTx for Beats {
    fn flush(&mut self, _: &RingWriter, _: Nanos) -> usize {
        0
    }
    fn heartbeat(&mut self, _: &RingWriter, now: Nanos, _: bool) {
        self.0.push(now.0);
    }
}

/// What a reader of the ring is told of the publisher's clock.
#[derive(Default)]
struct Told {
    lines: usize,
    clocks: Vec<u64>,
}

impl RunSink for Told {
    fn on_run(&mut self, run: Run<'_>) {
        self.lines += run.lines.len();
    }
    fn on_position(&mut self, position: Position) {
        self.clocks.extend(position.publish_time.map(|time| time.0));
    }
    fn on_loss(&mut self, _: LanePath, first: Stamp, _: u64, cause: LossCause) {
        panic!("nothing is lost here: {first}, {cause:?}");
    }
}

#[test]
fn a_publisher_whose_feed_is_silent_gives_a_sign_of_life_at_each_interval() {
    let books = BooksConfig { instruments: 4, orders: 16, levels: 16 };
    let pipeline = Pipeline::new(Feed(0), Market, Epoch(1), ChannelConfig { books, ..ChannelConfig::default() });
    let ring = RingWriter::anonymous(ChannelId::new(1), Lane::new(0), Epoch(1), 64).expect("a ring without a name");
    let mut reader = ring.reader(StartAt::Oldest, 200_000);
    let schedule = Schedule { pace: Pace::Speed(1.0), start_ns: 100 * MS, first_ns: 0, first_ordinal: 1 };
    let config = PublisherConfig { schedule, heartbeat_ns: HEARTBEAT_NS };
    let mut publisher = Publisher::new(pipeline, ring, Beats::default(), config);
    let mut told = Told::default();
    // From the first message to shortly before the second.
    for now in (100 * MS..1_090 * MS).step_by(MS as usize) {
        publisher.do_work(Nanos(now)).expect("a feed without faults");
        reader.poll(Nanos(now), 16, &mut told);
    }
    assert_eq!(told.lines, 1);
    let expected: Vec<u64> = (1..=98).map(|beat| 100 * MS + beat * HEARTBEAT_NS).collect();
    assert_eq!(publisher.lanes().0, expected, "on the lane, after the one packet");
    assert!(told.clocks.len() >= 98, "in the ring: {:?}", told.clocks);
    assert!(told.clocks.windows(2).all(|two| two[1] - two[0] <= HEARTBEAT_NS), "{:?}", told.clocks);
}
