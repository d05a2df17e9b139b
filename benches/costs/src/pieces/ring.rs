//! Lines into shared memory and out of it, within one thread: instructions alone, no hand-over between cores.

use std::hint::black_box;

use protocol::arbiter::{Arbiter, ArbiterConfig, Delivery, Gap};
use protocol::line::{Epoch, Line, Stamp};
use protocol::pair::Split;
use protocol::record::{ChannelId, Flags, InstrumentId, Kind, Lane, Record, Side};
use protocol::run::{LanePath, LossCause, Position, Run, RunSink};
use protocol::time::Nanos;
use subscriber::{Context, Engine, EngineConfig, EventEnd, Handler};
use transport::ring::{RingReader, StartAt};
use transport::{LaneRx, RingWriter};

use super::wire::{FIRST, order};
use super::{Piece, STEPS};

/// More than [`STEPS`], so that nothing is overwritten.
const PLACES: usize = 2048;
/// How long a line may fail to verify, ns.
const HEDGE_NS: u64 = 200_000;
const NOW: Nanos = Nanos(1_700_000_000_000_000_000);

fn ring() -> RingWriter {
    RingWriter::anonymous(ChannelId::new(1), Lane::new(0), Epoch(1), PLACES).expect("memory for a small ring")
}

fn filled(records: impl Iterator<Item = Record>) -> RingWriter {
    let mut writer = ring();
    for record in records {
        let line = Line::seal(record, writer.next());
        writer.put(&line);
        writer.flush();
    }
    writer
}

/// Publishing: a sealed line is put and shown.
pub struct Publish {
    writer: RingWriter,
    lines: Vec<Line>,
    at: usize,
}

impl Piece for Publish {
    const NAME: &'static str = "ring publish";

    fn new() -> Publish {
        let lines = (0..STEPS as u64).map(|i| Line::seal(order(), FIRST.plus(i))).collect();
        Publish { writer: ring(), lines, at: 0 }
    }

    #[inline(always)]
    fn step(&mut self) {
        self.writer.put(black_box(&self.lines[self.at]));
        self.writer.flush();
        self.at += 1;
    }

    fn check(&self, steps: u64) {
        assert_eq!(self.writer.head(), FIRST.plus(steps));
    }
}

#[derive(Default)]
struct Count(u64);

impl RunSink for Count {
    #[inline(always)]
    fn on_run(&mut self, run: Run<'_>) {
        self.0 += run.lines.len() as u64;
        black_box(run.lines);
    }

    fn on_position(&mut self, _: Position) {}

    fn on_loss(&mut self, _: LanePath, first: Stamp, count: u64, cause: LossCause) {
        panic!("{count} lines from {first} lost ({cause:?}) within one thread");
    }
}

/// A poll that finds one line, verifies it and hands it on.
pub struct PollAndDeliver {
    reader: RingReader,
    // The ring lives as long as its writer.
    _writer: RingWriter,
    count: Count,
}

impl Piece for PollAndDeliver {
    const NAME: &'static str = "ring poll and deliver";

    fn new() -> PollAndDeliver {
        let writer = filled((0..STEPS).map(|_| order()));
        PollAndDeliver { reader: writer.reader(StartAt::Oldest, HEDGE_NS), _writer: writer, count: Count::default() }
    }

    #[inline(always)]
    fn step(&mut self) {
        self.reader.poll(black_box(NOW), 1, &mut self.count);
    }

    fn check(&self, steps: u64) {
        assert_eq!(self.count.0, steps);
    }
}

/// A poll that finds nothing new.
pub struct PollIdle {
    reader: RingReader,
    _writer: RingWriter,
    count: Count,
}

impl Piece for PollIdle {
    const NAME: &'static str = "ring poll, nothing new";

    fn new() -> PollIdle {
        let writer = filled(std::iter::once(order()));
        let mut reader = writer.reader(StartAt::Oldest, HEDGE_NS);
        let mut count = Count::default();
        reader.poll(NOW, 256, &mut count);
        PollIdle { reader, _writer: writer, count }
    }

    #[inline(always)]
    fn step(&mut self) {
        self.reader.poll(black_box(NOW), 256, &mut self.count);
    }

    fn check(&self, _: u64) {
        assert_eq!(self.count.0, 1);
    }
}

#[derive(Default)]
struct Strategy {
    ends: u64,
}

impl Handler for Strategy {
    #[inline]
    fn on_event_end(&mut self, _: &Context<'_>, end: &EventEnd) {
        self.ends += u64::from(end.changed);
        black_box(end.after);
    }
}

/// Hands on what the arbiter lets pass.
struct ToEngine<'a> {
    engine: &'a mut Engine,
    strategy: &'a mut Strategy,
}

impl Delivery for ToEngine<'_> {
    #[inline(always)]
    fn on_lines(&mut self, first: Stamp, lines: &[Line], path: LanePath, publish_time: Option<Nanos>) {
        self.engine.turn(NOW, self.strategy).on_lines(first, lines, path, publish_time);
    }
    fn on_gap(&mut self, gap: Gap) {
        panic!("{gap:?} within one thread");
    }
    fn on_joined(&mut self, next: Stamp) {
        self.engine.turn(NOW, self.strategy).on_joined(next);
    }
    fn on_epoch(&mut self, _: Epoch, _: Epoch) {}
    fn on_publish_time(&mut self, _: Lane, _: Nanos) {}
    fn on_path_silent(&mut self, _: LanePath, _: Nanos) {}
    fn on_end(&mut self, _: Stamp) {}
    fn on_split(&mut self, _: Split) {}
}

/// A poll that finds one order, and takes it through arbiter and book to the end of its event in a strategy's handler.
pub struct DeliverToHandler {
    reader: RingReader,
    _writer: RingWriter,
    arbiter: Arbiter,
    engine: Engine,
    strategy: Strategy,
}

impl Piece for DeliverToHandler {
    const NAME: &'static str = "ring to strategy";

    fn new() -> DeliverToHandler {
        let mut start = Record::new(Kind::SESSION_START, InstrumentId::CHANNEL);
        start.flags = Flags::LAST;
        start.instrument_seq.set(1);
        let orders = (0..STEPS as u64).map(|i| {
            let mut record = order();
            record.flags = Flags::LAST;
            record.side = if i % 2 == 0 { Side::BID } else { Side::ASK };
            // Twenty levels a side, which never meet.
            let away = 1_000_000_000 + i as i64 / 2 % 20 * 10_000_000;
            record.price.set(100_000_000_000 + if i % 2 == 0 { -away } else { away });
            record.order_id.set(1 + i);
            record.instrument_seq.set(2 + i as u32);
            record
        });
        let writer = filled(std::iter::once(start).chain(orders));
        let mut piece = DeliverToHandler {
            reader: writer.reader(StartAt::Oldest, HEDGE_NS),
            _writer: writer,
            arbiter: Arbiter::new(ArbiterConfig::default()),
            engine: Engine::new(EngineConfig::default()),
            strategy: Strategy::default(),
        };
        // The start of the day.
        piece.step();
        piece
    }

    #[inline(always)]
    fn step(&mut self) {
        let mut delivery = ToEngine { engine: &mut self.engine, strategy: &mut self.strategy };
        self.reader.poll(black_box(NOW), 1, &mut self.arbiter.sink(NOW, &mut delivery));
    }

    fn check(&self, steps: u64) {
        assert_eq!(self.strategy.ends, steps);
    }
}
