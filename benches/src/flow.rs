//! Flat out: as many lines as two cores can pass on when the reader misses none, and as many messages as one core can
//! turn into lines.
//!
//! The ring's writer waits for nobody, so flat out it would lap any reader. Here, and only here, the measuring writer
//! looks at the reader's position before it writes, and stays three quarters of the ring ahead at most. The reader says
//! where it is after each read, in a line of its own. The bare copy is bounded by the same device.

use std::hint::black_box;
use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

use crossbeam_utils::CachePadded;
use protocol::channel::ChannelConfig;
use protocol::line::{Epoch, Line, Stamp};
use protocol::record::{ChannelId, InstrumentId, Kind, Lane, Record};
use protocol::run::{LanePath, LossCause, Position, Run, RunSink};
use protocol::time::Nanos;
use publisher::Pipeline;
use publisher::date::SessionDate;
use publisher::feed::FeedSource;
use publisher::input::{Input, InputError};
use publisher::itch::{BinaryFile, FramingOptions, Normaliser, NormaliserOptions};
use publisher::pin::PinError;
use publisher::pipeline::PipelineError;
use serde::Serialize;
use transport::clock::Clock;
use transport::ring::{RingReader, StartAt};
use transport::shm::SetupError;
use transport::{LaneRx, RingWriter};

use crate::day::{Day, DayFile};
use crate::machine::{Cores, pin_anew, waited_ns};

/// Lines in one write, shown to the reader together.
pub const WRITE_LINES: usize = 32;

/// How much a writer may write before its reader has read: the writer's half.
pub struct Room {
    read: Arc<CachePadded<AtomicU64>>,
    /// `read` as last looked at: the line is fetched from the other core only when this does not suffice.
    seen: u64,
    written: u64,
    most: u64,
}

/// How much a reader has read: the reader's half of [`Room`].
pub struct Taken {
    read: Arc<CachePadded<AtomicU64>>,
    count: u64,
}

impl Room {
    /// Both halves, for `capacity` places: three quarters of them may be filled and not yet read.
    pub fn new(capacity: u64) -> (Room, Taken) {
        let read: Arc<CachePadded<AtomicU64>> = Arc::default();
        let taken = Taken { read: Arc::clone(&read), count: 0 };
        (Room { read, seen: 0, written: 0, most: capacity - capacity / 4 }, taken)
    }

    /// Takes `count` places, if there are that many.
    #[inline(always)]
    pub fn take(&mut self, count: u64) -> bool {
        if self.written + count - self.seen > self.most {
            // Acquire: pairs with the Release in Taken::add: the reader is done with what it counted.
            self.seen = self.read.load(Ordering::Acquire);
            if self.written + count - self.seen > self.most {
                return false;
            }
        }
        self.written += count;
        true
    }
}

impl Taken {
    /// The reader is done with `count` further places.
    #[inline(always)]
    pub fn add(&mut self, count: u64) {
        self.count += count;
        self.read.store(self.count, Ordering::Release);
    }
}

/// The writing half of a stream.
pub trait StreamWriter: Send {
    /// Writes up to `count` further lines (at most [`WRITE_LINES`]) and shows them; false if there was no room for them.
    fn write(&mut self, count: usize) -> bool;
}

/// The reading half of a stream.
pub trait StreamReader: Send {
    /// Takes what there is, up to a bound of its own; how many lines that were.
    fn read(&mut self) -> usize;
}

/// Lines through the product's ring: sealed, put, and flushed every [`WRITE_LINES`]; polled and verified.
///
/// # Errors
/// [`SetupError`], if there is no memory for a ring of `lines` lines.
pub fn ring_stream(lines: usize, clock: Clock) -> Result<(impl StreamWriter, impl StreamReader), SetupError> {
    let ring = RingWriter::anonymous(ChannelId::new(1), Lane::new(0), Epoch(1), lines)?;
    let reader = ring.reader(StartAt::Oldest, 200_000);
    let (room, taken) = Room::new(lines as u64);
    let record = Record::new(Kind::ADD, InstrumentId(1));
    Ok((RingStreamWriter { ring, room, record }, RingStreamReader { reader, taken, clock, next: 1 }))
}

struct RingStreamWriter {
    ring: RingWriter,
    room: Room,
    record: Record,
}

impl StreamWriter for RingStreamWriter {
    #[inline(always)]
    fn write(&mut self, count: usize) -> bool {
        if !self.room.take(count as u64) {
            return false;
        }
        for _ in 0..count {
            let stamp = self.ring.next();
            self.record.order_id.set(stamp.sequence().0);
            self.ring.put(&Line::seal(self.record, stamp));
        }
        self.ring.flush();
        true
    }
}

struct RingStreamReader {
    reader: RingReader,
    taken: Taken,
    clock: Clock,
    next: u64,
}

impl StreamReader for RingStreamReader {
    #[inline(always)]
    fn read(&mut self) -> usize {
        let count = self.reader.poll(self.clock.now(), 256, &mut InOrder(&mut self.next));
        if count > 0 {
            self.taken.add(count as u64);
        }
        count
    }
}

/// Looks at one word of every line, and holds the stream to its promise.
struct InOrder<'a>(&'a mut u64);

impl RunSink for InOrder<'_> {
    #[inline(always)]
    fn on_run(&mut self, run: Run<'_>) {
        for line in run.lines {
            assert_eq!(line.record.order_id.get(), *self.0, "out of order");
            *self.0 += 1;
        }
    }

    fn on_position(&mut self, _: Position) {}

    fn on_loss(&mut self, _: LanePath, first: Stamp, count: u64, cause: LossCause) {
        panic!("{count} lines from {first} were lost ({cause:?}), and the writer waits for this reader");
    }
}

/// What one flat-out slice came to.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct FlowSlice {
    /// Lines passed on.
    pub lines: u64,
    /// From the first write to the last read, ns.
    pub ns: u64,
    /// How long other threads had the cores of writer and reader while those could have run, ns.
    pub waited_ns: u64,
}

impl FlowSlice {
    /// Whether other threads took more than a hundredth of the time.
    pub fn is_disturbed(&self) -> bool {
        self.waited_ns * 100 > self.ns
    }

    /// Lines a second.
    pub fn rate(&self) -> f64 {
        self.lines as f64 * 1e9 / self.ns.max(1) as f64
    }
}

/// Passes `lines` lines from the calling thread, which stays pinned, to another.
///
/// # Errors
/// [`PinError`], if a thread cannot be pinned.
pub fn run_stream(
    writer: &mut impl StreamWriter,
    reader: &mut impl StreamReader,
    lines: u64,
    cores: Cores,
    clock: Clock,
) -> Result<FlowSlice, PinError> {
    pin_anew(cores.writer)?;
    let (pinned, is_pinned) = mpsc::channel();
    thread::scope(|scope| {
        let reading = scope.spawn(move || {
            let outcome = pin_anew(cores.reader);
            let failed = outcome.is_err();
            let waited_before = waited_ns();
            pinned.send(outcome).expect("the writer waits for this");
            let mut read = 0;
            while read < lines && !failed {
                read += reader.read() as u64;
            }
            (clock.now(), waited_ns() - waited_before)
        });
        is_pinned.recv().expect("the reader says whether it is pinned")?;
        let waited_before = waited_ns();
        let began = clock.now();
        let mut left = lines;
        while left > 0 {
            let count = left.min(WRITE_LINES as u64);
            if writer.write(count as usize) {
                left -= count;
            }
        }
        let writer_waited_ns = waited_ns() - waited_before;
        let (ended, reader_waited_ns) = reading.join().expect("the reading thread does not panic");
        let ns = ended.since(began).max(0) as u64;
        Ok(FlowSlice { lines, ns, waited_ns: writer_waited_ns + reader_waited_ns })
    })
}

/// What one run of the pipeline came to.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct PipelineRun {
    /// Messages taken.
    pub messages: u64,
    /// Lines put into the ring.
    pub lines: u64,
    /// How long it took, ns.
    pub ns: u64,
    /// How long another thread had the core, ns.
    pub waited_ns: u64,
}

impl PipelineRun {
    /// Whether other threads took more than a hundredth of the time.
    pub fn is_disturbed(&self) -> bool {
        self.waited_ns * 100 > self.ns
    }

    /// Messages a second.
    pub fn rate(&self) -> f64 {
        self.messages as f64 * 1e9 / self.ns.max(1) as f64
    }
}

/// Messages that the publisher takes in one turn: it reads the clock and flushes once in so many.
const TURN_MESSAGES: usize = 64;

/// The messages of a day that is in memory.
pub fn day_in_memory(day: &Day) -> BinaryFile<Cursor<&[u8]>> {
    BinaryFile::from_reader(Cursor::new(day.bytes()), Path::new("generated"), FramingOptions::default())
}

/// The messages of a day in a file, read as a publisher reads it.
///
/// # Errors
/// [`InputError`], if it cannot be opened.
pub fn day_in_file(day: &DayFile) -> Result<BinaryFile, InputError> {
    Ok(BinaryFile::new(Input::open(day.path())?, FramingOptions::default()))
}

/// Runs a whole day of `date` through the publisher's pipeline into a ring, on the calling thread: framing, decoding,
/// normalising, sequencing, the publisher's own books, digests, put and flush. Nobody reads the ring.
///
/// # Errors
/// [`PipelineError`], if the day is not what its generator promises.
#[inline(never)] // A frame of its own in every profile.
pub fn run_pipeline(
    source: impl FeedSource,
    date: SessionDate,
    config: ChannelConfig,
    ring: &mut RingWriter,
    clock: Clock,
) -> Result<PipelineRun, PipelineError> {
    let venue = Normaliser::new(NormaliserOptions::default(), date);
    let mut pipeline = Pipeline::new(source, venue, ring.epoch(), config);
    let mut lines = 0;
    let waited_before = waited_ns();
    let began = clock.now();
    let mut more = true;
    while more {
        let now = clock.now();
        for _ in 0..TURN_MESSAGES {
            more = pipeline.step(now, &mut |line| {
                ring.put(line);
                lines += 1;
            })?;
            if !more {
                break;
            }
        }
        ring.flush();
    }
    let ns = clock.now().since(began).max(0) as u64;
    black_box(&pipeline);
    Ok(PipelineRun { messages: pipeline.messages(), lines, ns, waited_ns: waited_ns() - waited_before })
}

/// A moment that is as good as any, where a clock's reading is not what is measured.
pub const SOME_TIME: Nanos = Nanos(1_700_000_000_000_000_000);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::day::DayOptions;

    #[test]
    fn room_is_three_quarters_of_the_places_and_comes_back_when_read() {
        let (mut room, mut taken) = Room::new(64);
        assert!(room.take(48));
        assert!(!room.take(1));
        taken.add(10);
        assert!(room.take(10) && !room.take(1));
    }

    #[test]
    fn the_ring_stream_delivers_in_order_and_never_laps() {
        let (mut writer, mut reader) = ring_stream(128, Clock::calibrate()).expect("128 lines");
        let (mut written, mut read) = (0, 0);
        for _ in 0..1_000 {
            written += if writer.write(32) { 32 } else { 0 };
            if written > read + 64 {
                // The sink asserts order and content, and panics at a loss.
                read += reader.read();
            }
        }
        while read < written {
            read += reader.read();
        }
        assert!(written > 10_000, "{written}");
        assert_eq!(reader.read(), 0);
    }

    #[test]
    fn the_pipeline_takes_every_message_of_a_day() {
        let options = DayOptions { seed: 5, symbols: 5, messages: 5_000 };
        let day = Day::generate(options).expect("a short day");
        let mut ring = RingWriter::anonymous(ChannelId::new(1), Lane::new(0), Epoch(1), 1 << 12).expect("a ring");
        let clock = Clock::calibrate();
        let run = run_pipeline(day_in_memory(&day), day.date(), ChannelConfig::default(), &mut ring, clock)
            .expect("a sound day");
        assert_eq!(run.messages, 5_000);
        assert_eq!(ring.head().sequence().0, run.lines + 1);
        assert!(run.lines >= run.messages, "{} lines", run.lines);

        let file = DayFile::generate(options).expect("a short day");
        let mut ring = RingWriter::anonymous(ChannelId::new(1), Lane::new(0), Epoch(1), 1 << 12).expect("a ring");
        let source = day_in_file(&file).expect("just written");
        let streamed =
            run_pipeline(source, file.date(), ChannelConfig::default(), &mut ring, clock).expect("a sound day");
        assert_eq!((streamed.messages, streamed.lines), (run.messages, run.lines));
    }
}
