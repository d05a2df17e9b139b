//! The ring: lines in memory, one writer that waits for nobody, any number of readers that come and go.
//!
//! A power of two of places, and before them the latest line. The line of sequence `s` stands at place `s` modulo the
//! size; the writer goes round and round, and a reader that it laps is told exactly which lines it lost. Each line
//! verifies with the stamp that its reader expects ([`protocol::line`]), so no reader ever accepts a line that the
//! writer was in the middle of.
//!
//! ```
//! use protocol::line::{Epoch, Line, Stamp};
//! use protocol::record::{ChannelId, InstrumentId, Kind, Lane, Record};
//! use protocol::run::{LanePath, LossCause, Position, Run, RunSink};
//! use protocol::time::Nanos;
//! use transport::LaneRx;
//! use transport::ring::{RingWriter, StartAt};
//!
//! struct Print;
//! impl RunSink for Print {
//!     fn on_run(&mut self, run: Run<'_>) {
//!         println!("{} lines from {}", run.lines.len(), run.first);
//!     }
//!     fn on_position(&mut self, position: Position) {
//!         println!("the publisher lives, and stands at {}", position.next);
//!     }
//!     fn on_loss(&mut self, _: LanePath, first: Stamp, count: u64, cause: LossCause) {
//!         println!("{count} lines from {first} are lost: {cause:?}");
//!     }
//! }
//!
//! let mut writer = RingWriter::anonymous(ChannelId::new(1), Lane::new(0), Epoch(1), 1024)?;
//! let mut reader = writer.reader(StartAt::Oldest, 200_000);
//! for _ in 0..3 {
//!     let line = Line::seal(Record::new(Kind::ADD, InstrumentId(7)), writer.next());
//!     writer.put(&line);
//! }
//! writer.flush();
//! assert_eq!(reader.poll(Nanos(1), 64, &mut Print), 3);
//! # Ok::<(), transport::shm::SetupError>(())
//! ```
//!
//! [`RingWriter`] and [`RingReader`] are the product's types; [`core`] holds the algorithm that both are made of.

pub mod core;
mod reader;
mod writer;

pub use core::{ReaderCounts, RingShape, StartAt};
pub use reader::RingReader;
pub use writer::RingWriter;
