//! The recovery server.

mod door;

pub use door::Door;
