//! `feeds-replay sla`: does this build, on this machine, at this load, keep a latency SLA; and if not, where did the time go?

pub mod blocks;
pub mod feed;
pub mod file;
pub mod verdict;
