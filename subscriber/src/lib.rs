//! To come.
#![forbid(unsafe_code)]
mod engine;
mod handler;
mod live;
mod selection;
pub use engine::*;
pub use handler::*;
pub use live::*;
pub use selection::Selection;
