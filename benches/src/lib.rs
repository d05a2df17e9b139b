//! How fast it is, and how fast it could be: measuring devices, and the bare limits of the machine beside every number.
//!
//! A latency in nanoseconds says more about the machine and the moment than about the code: the cores of a virtual machine
//! move, and the bare hand-over of a cache line jumps several times over within one process. So every claim is a
//! *ratio*, taken like this:
//!
//! - [`handover`]: two pinned threads, one item under way at a time. Slices of at most 100 ms, all contenders in turn,
//!   over and over; what is compared is one contender with another *in the same round*, and the result is the median of
//!   those ratios ([`ratio`]).
//! - [`limits`]: what the machine can do without us: a hot line, a cold word over a ring, a datagram, a copy.
//! - [`subjects`]: what we do: the ring, the subscriber on top of it, the datagram lane.
//! - [`flow`]: flat out: lines a second through the ring beside a bare copy, and messages a second through the pipeline.
//! - [`machine`]: where it was measured, and what the machine took meanwhile; with fewer than two cores nothing is claimed.
//! - [`recovery`]: one lost packet, a late joiner, a subscriber that stands still.
//! - [`report`]: all of it in words, validity first. [`numbers`]: README's numbers. [`day`]: a generated day in memory.
//!
//! ```
//! use benches::ratio::{Ratio, of_slices};
//!
//! // Three rounds; in the second the machine was twice as slow for both, which no ratio shows.
//! let ratio = of_slices(&[60.0, 120.0, 66.0], &[40.0, 80.0, 40.0]).expect("three rounds");
//! assert_eq!(ratio.median, 1.5);
//! ```
//!
//! The binaries are `hop` (latency ratios), `flow` (throughput), `heal` (recovery), `numbers` (which writes README.md's) and,
//! with the feature `peers`, `decode` (feeds taken apart, beside other crates for that); criterion benches of the pieces are in
//! `benches/`, and the crate `costs` counts their instructions.
//!
//! Left out: peers of the transports.

#![deny(unsafe_code)]

pub mod day;
pub mod flow;
pub mod handover;
pub mod limits;
pub mod machine;
pub mod numbers;
pub mod ratio;
pub mod recovery;
pub mod report;
pub mod subjects;
