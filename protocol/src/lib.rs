//! To come.
#![forbid(unsafe_code)]
pub mod arbiter;
pub mod book;
pub mod channel;
pub mod definition;
pub mod early;
pub mod hash;
pub mod line;
pub mod packet;
pub mod price;
pub mod record;
pub mod run;
pub mod sequencer;
pub mod time;
