//! `feeds-replay sla`: does this build, on this machine, at this load, keep a latency SLA; and if not, where did the time go?
//!
//! - [`file`](mod@file): what is promised. [`feed`]: what is replayed. (When, is [`publisher::pace`].)
//! - [`run`], [`spec`], and the roles: a case as processes, and what they tell each other. [`live`]: how it goes on.
//! - [`recorder`], [`probe`], [`turns`]: what is measured, around the product and not in it. [`log`]: how it is brought home.
//! - [`analyse`], [`blocks`], [`explain`]: from samples to percentiles with their confidence, stages, and whose doing it was.
//! - [`verdict`]: MET, BROKEN or INVALID. [`ramp`]: the highest load that keeps a limit.
//! - [`outcome`]: all of it as data; as [`text`], as a [`page`], as [`histograms`]; [`machine`] says where it was taken.
//! - [`command`]: the command.
//!
//! SLA.md beside this crate's sources says the same to whoever writes an SLA file or reads a report.

pub mod analyse;
pub mod blocks;
pub mod command;
pub mod explain;
pub mod feed;
pub mod file;
pub mod histograms;
pub mod live;
pub mod log;
pub mod machine;
pub mod outcome;
pub mod page;
pub mod probe;
pub mod ramp;
pub mod recorder;
pub(crate) mod roles;
pub mod run;
pub mod spec;
pub mod text;
pub mod turns;
pub mod verdict;
