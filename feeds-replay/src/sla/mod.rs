//! `feeds-replay sla`: does this build, on this machine, at this load, keep a latency SLA; and if not, where did the time go?

pub mod analyse;
pub mod blocks;
pub mod command;
pub mod explain;
pub mod feed;
pub mod file;
pub mod histograms;
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
