//! Databento Binary Encoding (DBN), versions 1 to 3: order streams, level streams, trades, statuses, definitions,
//! imbalances and statistics of whatever venue.
//!
//! [`file`](mod@file) cuts a stream into records and reads the metadata in front of them, [`types`] says which types and
//! lengths there are, [`symbols`] what instruments are called and when, and [`normalise`] turns records into ours. NOTES.md
//! in this folder says how each field is read, and what is not carried. The layouts are those of the crate `dbn`.
//!
//! Left out: version 4, whose records have another header; consolidated books (cmbp, cbbo) and bars (ohlcv), which are
//! counted as not carried.

mod definition;
pub mod encode;
pub mod file;
mod instruments;
mod levels;
pub mod normalise;
pub mod symbols;
pub mod types;

pub use file::DbnFile;
pub use normalise::Normaliser;

/// The first bytes of a file, in front of the version.
pub const MAGIC: [u8; 3] = *b"DBN";
