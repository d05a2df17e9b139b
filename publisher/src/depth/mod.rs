//! Depth diffs in the form of Binance's streams, as JSON lines: levels, best prices and trades.
//!
//! [`message`] reads a line, [`sync`] says how diffs and snapshots meet, and [`normalise`] makes records of it all. NOTES.md
//! in this folder has the rules and where they stand in public.

pub mod message;
pub mod normalise;
pub mod sync;

use protocol::time::Nanos;

pub use message::{Malformed, Update};
pub use normalise::Normaliser;

use crate::text::decimal;

/// The local time in front of a line, where there is one, and the JSON behind it.
pub fn split_stamp(line: &[u8]) -> (Option<Nanos>, &[u8]) {
    let digits = line.iter().take_while(|byte| byte.is_ascii_digit()).count();
    match line.get(digits) {
        Some(b' ' | b'\t' | b',') if digits > 0 => {
            (decimal::epoch_time(&line[..digits]).map(Nanos), &line[digits + 1..])
        }
        _ => (None, line),
    }
}

/// When a line was received or, where it does not say, when the venue made it.
pub fn time_of_line(line: &[u8]) -> Option<Nanos> {
    let (capture, json) = split_stamp(line);
    capture.or_else(|| Update::parse(json).ok().and_then(|update| update.time()).map(Nanos))
}
