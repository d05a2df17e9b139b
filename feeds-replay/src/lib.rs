//! Replays feeds through the real publisher and the real subscriber, and measures what reaches a strategy.
//!
//! - [`generate`]: a seeded day of conforming ITCH, for whoever has no capture.
//! - [`inspect`](mod@inspect): what is in a capture, and what is off in it.
//! - [`book`]: what a book looked like at a moment, and where two captures' books part.
//! - [`check`]: what the participants of a channel wrote down, and whether it holds together.
//! - [`record`](mod@record): the normalised stream as a DBN file. [`feed_arguments`]: what every command is told of a capture.
//! - [`backtest`]: a strategy on a file, without a publisher.
//! - [`ping`]: a closed-loop round trip through the real lanes, to set beside perftest.
//! - [`spec`], [`roles`], [`run`]: a run as several processes of one executable, and what they tell each other.
//! - [`measure`]: the measuring strategy. [`verdict`]: whether a run may be believed. [`report`]: text and JSON.
//! - [`sla`]: limits on tail latency, judged, with where the time went. [`compare`](mod@compare): two builds or two runs.
//!
//! Every latency is open loop: the time at which each message is to be handed over is fixed beforehand, and what is
//! measured is delivery less *that* time. What the sender lagged by is part of it, and is shown beside it.

#![forbid(unsafe_code)]
// Those of the standard library panic where nobody reads any more; those of `cli` do not.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod backtest;
pub mod book;
pub mod check;
pub mod compare;
pub mod feed_arguments;
pub mod generate;
pub mod inspect;
pub mod measure;
pub mod ping;
pub mod record;
pub mod report;
pub mod roles;
pub mod run;
pub mod sla;
pub mod spec;
pub mod verdict;
