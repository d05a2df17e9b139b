//! To come.
pub mod generate;
