//! What the machine can do without us. Every ratio has one of these below the line.

mod copy;
mod cold;
mod hot;
mod udp;

pub use cold::cold_words;
pub use copy::{CopyReader, CopyWriter, bare_copy, memcpy_bytes_per_second};
pub use hot::{hot_line, hot_word};
pub use udp::bare_udp;
