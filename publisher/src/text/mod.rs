//! What feeds in text share: lines, decimals, JSON, and the lines of a book of levels.
//!
//! [`lines`] cuts a stream into messages, [`decimal`] reads numbers exactly (none ever goes through a float), [`json`] walks
//! an object without building one, [`event`] puts levels out as one event, and [`definition`] says what an instrument is.

pub mod decimal;
pub mod definition;
pub mod event;
pub mod json;
pub mod lines;

pub use lines::{Layout, LineFile};
