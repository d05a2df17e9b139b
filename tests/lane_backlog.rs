//! What a lane could not take at once goes out in the turns that follow, whether or not the feed has more.

#![forbid(unsafe_code)]

use std::path::Path;

use bookcast_tests::stream::BOOKS;
use feeds_replay::generate::{GenerateOptions, generate};
use protocol::book::Start;
use protocol::channel::ChannelConfig;
use protocol::line::{Epoch, Stamp};
use protocol::record::{ChannelId, Lane};
use protocol::time::Nanos;
use publisher::Pipeline;
use publisher::date::SessionDate;
use publisher::itch::{BinaryFile, FramingOptions, Normaliser, NormaliserOptions};
use publisher::pace::{Pace, Schedule};
use publisher::publisher::{Publisher, PublisherConfig};
use transport::LaneTx;
use transport::ring::RingWriter;

/// A lane whose queue has room for one line in each turn.
struct Narrow {
    cursor: Stamp,
    heartbeats: u64,
}

impl LaneTx for Narrow {
    fn flush(&mut self, ring: &RingWriter, _: Nanos) -> usize {
        let count = u64::from(self.cursor < ring.head());
        self.cursor = self.cursor.plus(count);
        count as usize
    }
    fn heartbeat(&mut self, ring: &RingWriter, now: Nanos, _: bool) {
        self.flush(ring, now);
        self.heartbeats += 1;
    }
}

#[test]
fn a_backlog_goes_out_turn_by_turn_while_the_feed_is_silent() {
    let options = GenerateOptions { seed: 6, symbols: 20, messages: 10_000, ..GenerateOptions::default() };
    let mut bytes = Vec::new();
    generate(&options, &mut bytes).expect("options within their limits");
    let source = BinaryFile::from_reader(&bytes[..], Path::new("generated"), FramingOptions::default());
    let venue = Normaliser::new(NormaliserOptions::default(), SessionDate::NONE);
    let channel = ChannelConfig { books: BOOKS, start: Start::Strict, digest_every: 64 };
    let pipeline = Pipeline::new(source, venue, Epoch(1), channel);
    let ring = RingWriter::anonymous(ChannelId::new(1), Lane::new(0), Epoch(1), 1 << 10).expect("memory");
    let lane = Narrow { cursor: ring.head(), heartbeats: 0 };
    // A message each second, and a sign of life each hour: the backlog of a burst has a second of turns without either.
    let schedule = Schedule { pace: Pace::Rate(1.0), start_ns: 1, first_ns: 0, first_ordinal: 1 };
    let config = PublisherConfig { schedule, heartbeat_ns: 3_600_000_000_000 };
    let mut publisher = Publisher::new(pipeline, ring, lane, config);
    // The turn comes late, and finds sixty messages due.
    let late = 60_000_000_001;
    publisher.do_work(Nanos(late)).expect("a sound day");
    let head = publisher.ring().head();
    let owed = head.0 - publisher.lanes().cursor.0;
    assert!(owed > 20, "{owed} lines are owed: the test shows nothing");
    for turn in 1..=owed {
        publisher.do_work(Nanos(late + turn * 1_000)).expect("a sound day");
    }
    assert_eq!((publisher.ring().head(), publisher.lanes().heartbeats), (head, 0), "nothing else has happened");
    assert_eq!(publisher.lanes().cursor, head, "{owed} turns after {owed} lines were owed");
}
