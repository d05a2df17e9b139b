//! What the tests of several crates share.

#![forbid(unsafe_code)]

pub mod capture;
pub mod compare;
pub mod data;
pub mod day;
pub mod dbn;
pub mod naive;
pub mod programs;
pub mod random;
pub mod stage;
pub mod stream;
pub mod wire;
