//! Incremental books as CSV, in the form of Tardis's `incremental_book_L2`: levels of any crypto venue.
//!
//! ```text
//!  exchange,symbol,timestamp,local_timestamp,is_snapshot,side,price,amount
//! ```
//!
//! [`row`] reads a row, [`normalise`] turns the rows of one moment into the lines of one event. NOTES.md in this folder has
//! the rules.

pub mod normalise;
pub mod row;

pub use normalise::Normaliser;
pub use row::{Row, belong_together, is_header};

/// The first line.
pub const HEADER: &[u8] = b"exchange,symbol,timestamp,local_timestamp,is_snapshot,side,price,amount";
