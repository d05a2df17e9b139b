//! What the machine can do without us. Every ratio has one of these below the line.

mod cold;
mod copy;
mod hot;
mod udp;

pub use cold::cold_words;
pub use copy::{CopyReader, CopyWriter, bare_copy, memcpy_bytes_per_second};
pub use hot::{Polling, hot_line, hot_word};
pub use udp::bare_udp;
