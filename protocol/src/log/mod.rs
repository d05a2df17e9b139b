//! What a participant was given, written down so that it can be checked afterwards.
//!
//! A log is a sequence of [`Entry`]s of 40 bytes: where the stream was taken up, runs of lines with a sum over what they say,
//! gaps that were named, epochs that began, the digest of the participant's own book at each BookDigest, the end. A
//! [`Recorder`] makes them out of what an arbiter delivers ([`Logged`] stands in between), and hands each to an
//! [`EntrySink`] that never waits; what a sink had no room for is named in the log itself. A [`Checker`] reads the logs of
//! all participants of a channel and says what is wrong with their common history.
//!
//! No files here: bytes come out, bytes go in. `WIRE.md` draws an entry.

mod check;
mod entry;
mod problem;
mod recorder;

pub use check::{Checker, History, LogSummary, Section, Totals};
pub use entry::{BLOCK_LINES, Begin, ENTRY_LEN, Entry, EntryError, MAGIC, Role, VERSION};
pub use problem::{Problem, Wrong};
pub use recorder::{EntrySink, Logged, OwnDigest, OwnDigests, Recorder, line_sum};

#[cfg(test)]
mod tests;
