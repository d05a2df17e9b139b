//! The bodies of the fuzz targets, which the ordinary tests share, and what they make their seeds with.

#[path = "../../tests/support/capture.rs"]
pub mod capture;
#[path = "../../tests/support/dbn.rs"]
pub mod dbn;
#[path = "../../tests/support/fuzz/mod.rs"]
pub mod fuzz;
