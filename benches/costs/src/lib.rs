//! What the hot path costs in instructions: exact, the same on every run, and held to limits that are checked in.
//!
//! - [`pieces`]: the hot path cut into pieces, each ready to be run as one operation. The criterion benches of the crate
//!   `benches` time the same pieces.
//! - [`key`]: what counts depend on: the compiler and the processor's features. [`limits`]: LIMITS.toml, by that key.
//! - [`measure`]: runs the bench `counts` (gungraun under valgrind's callgrind) and reads what it counted.
//!
//! Instructions are no nanoseconds: a cache miss costs many of them, and nothing here sees one. What they are good for is
//! to show, within a minute and on a busy machine, that a change made a function longer.
//!
//! ```
//! use costs::pieces::{Piece, Seal};
//!
//! let mut piece = Seal::new();
//! piece.step();
//! piece.check(1);
//! ```
//!
//! Left out: what the kernel does, and the hand-over between cores.

#![forbid(unsafe_code)]

pub mod key;
pub mod limits;
pub mod measure;
pub mod pieces;
