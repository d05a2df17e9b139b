//! One line through the shared-memory ring.

use protocol::line::{Epoch, Line, Stamp};
use protocol::record::{ChannelId, InstrumentId, Kind, Lane, Record};
use protocol::run::{LanePath, LossCause, Position, Run, RunSink};
use transport::clock::Clock;
use transport::ring::{RingReader, StartAt};
use transport::shm::{RingOptions, SetupError, ShmRing};
use transport::{LaneRx, RingWriter};

use crate::flow::SOME_TIME;
use crate::handover::{Arrival, Receiver, Sender};

/// What a turn of the reading loop costs beside the poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RingTurn {
    /// One reading of the clock, as in a subscriber's loop.
    ReadsClock,
    /// Nothing: the time handed to the poll stands still. Shows what the reading of the clock costs; no product does this.
    StandsStill,
}

/// One line through a named ring of `lines` lines: sealed, put and flushed by a
/// [`RingWriter`]; polled, verified and handed to a sink by a [`RingReader`]. Two mappings of one file, as two processes
/// have.
///
/// # Errors
/// [`SetupError`], if the ring cannot be made or opened.
pub fn ring_line(lines: usize, turn: RingTurn) -> Result<(impl Sender, impl Receiver), SetupError> {
    let name = super::ring_name();
    let lane = Lane::new(0);
    let writer = RingWriter::create(&RingOptions::new(&name, ChannelId::new(1), lane, Epoch(1), lines))?;
    let ring = ShmRing::open(&name, lane)?;
    let reader = ring.reader(StartAt::Oldest, 200_000);
    let record = Record::new(Kind::ADD, InstrumentId(1));
    Ok((RingSender { ring: writer, record }, RingReceiver { reader, turn }))
}

struct RingSender {
    ring: RingWriter,
    record: Record,
}

impl Sender for RingSender {
    #[inline(always)]
    fn send(&mut self, clock: Clock) {
        self.record.ts_event.set(clock.now().0);
        let line = Line::seal(self.record, self.ring.next());
        self.ring.put(&line);
        self.ring.flush();
    }
}

struct RingReceiver {
    reader: RingReader,
    turn: RingTurn,
}

impl Receiver for RingReceiver {
    #[inline(always)]
    fn poll(&mut self, clock: Clock) -> Option<Arrival> {
        let now = match self.turn {
            RingTurn::ReadsClock => clock.now(),
            RingTurn::StandsStill => SOME_TIME,
        };
        let mut sink = Seen { clock, arrival: None };
        self.reader.poll(now, 256, &mut sink);
        sink.arrival
    }
}

/// Reads the clock when a verified line is in hand.
pub(super) struct Seen {
    pub(super) clock: Clock,
    pub(super) arrival: Option<Arrival>,
}

impl RunSink for Seen {
    #[inline(always)]
    fn on_run(&mut self, run: Run<'_>) {
        let seen = self.clock.now();
        let newest = run.lines.last().expect("runs are never empty");
        self.arrival = Some(Arrival { sent: newest.record.event_time(), seen });
    }

    fn on_position(&mut self, _: Position) {}

    fn on_loss(&mut self, _: LanePath, first: Stamp, count: u64, cause: LossCause) {
        panic!("{count} lines from {first} were lost ({cause:?}), with one under way at a time");
    }
}
