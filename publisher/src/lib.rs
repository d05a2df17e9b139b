//! To come.
#![forbid(unsafe_code)]
pub mod date;
pub mod feed;
pub mod input;
pub mod itch;
