//! The ring: lines in memory, one writer that waits for nobody, any number of readers that come and go.
//!
//! A power of two of places, and before them the latest line. The line of sequence `s` stands at place `s` modulo the
//! size; the writer goes round and round, and a reader that it laps is told exactly which lines it lost. Each line
//! verifies with the stamp that its reader expects ([`protocol::line`]), so no reader ever accepts a line that the
//! writer was in the middle of.
//!
//! [`RingWriter`] and [`RingReader`] are the product's types; [`core`] holds the algorithm that both are made of.

pub mod core;
mod reader;
mod writer;

pub use core::{ReaderCounts, RingShape, StartAt};
pub use reader::RingReader;
pub use writer::RingWriter;
