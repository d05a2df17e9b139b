//! After set-up, neither writing nor reading a ring allocates: not when idle, behind, lapped, or told a heartbeat.
//!
//! A program of its own, because the allocator is counted for the whole process.

mod counting;

use protocol::line::{Epoch, Line, Stamp};
use protocol::record::{ChannelId, InstrumentId, Kind, Lane, Record};
use protocol::run::{LanePath, LossCause, Position, Run, RunSink};
use protocol::time::Nanos;
use transport::LaneRx;
use transport::ring::{RingWriter, StartAt};
use transport::shm::{RingOptions, RxOptions, ShmRx};

#[derive(Default)]
struct Count {
    lines: u64,
    lost: u64,
    positions: u64,
}

impl RunSink for Count {
    fn on_run(&mut self, run: Run<'_>) {
        self.lines += run.lines.len() as u64;
    }

    fn on_position(&mut self, _: Position) {
        self.positions += 1;
    }

    fn on_loss(&mut self, _: LanePath, _: Stamp, count: u64, _: LossCause) {
        self.lost += count;
    }
}

#[test]
fn writing_and_reading_a_named_ring_allocates_nothing() {
    let dir = tempfile::TempDir::new().expect("a directory");
    let lane = Lane::new(0);
    let options = RingOptions {
        dir: Some(dir.path().to_owned()),
        ..RingOptions::new("quiet", ChannelId::new(1), lane, Epoch(1), 256)
    };
    let mut writer = RingWriter::create(&options).expect("created");
    let mut counter = writer.counters().register("lines").expect("room");
    let rx = RxOptions { dir: Some(dir.path().to_owned()), ..RxOptions::new("quiet", lane) };
    let mut rx = ShmRx::open(rx).expect("opens");
    let mut local = writer.reader(StartAt::Oldest, 0);
    let record = Record::new(Kind::ADD, InstrumentId(1));
    let (mut near, mut far) = (Count::default(), Count::default());

    counting::check();
    counting::start();
    for turn in 0..20_000_u64 {
        let now = Nanos(1 + turn * 1_000);
        for _ in 0..turn % 40 {
            let line = Line::seal(record, writer.next());
            writer.put(&line);
        }
        writer.flush();
        counter.add(turn % 40);
        if turn % 10 == 0 {
            writer.heartbeat(now, false);
        }
        rx.poll(now, 64, &mut near);
        // This one sleeps, and is lapped.
        if turn % 100 < 5 {
            local.poll(now, 64, &mut far);
        }
    }
    let allocated = counting::stop();
    assert_eq!(allocated, 0, "allocations while lines were moving");
    assert!(near.lines > 300_000 && near.positions > 1_000 && near.lost == 0, "{} lines", near.lines);
    assert!(far.lost > 0 && far.lines > 0, "{} lines, {} lost", far.lines, far.lost);
}
