//! The publishing side of Bookcast: from a venue's feed to lines in a ring, and out on every lane.
//!
//! ```text
//!  capture ─► FeedSource ─► Venue ─► ChannelWriter ─► RingWriter ─► lanes
//!             messages      records  lines, digests    shared memory  UDP, …
//! ```
//!
//! - [`open`]: any file that holds a feed, by its content. [`feed`] is what comes out of it, [`input`] and [`capture`] are
//!   how files and packet captures are read, and [`date`] is what feeds leave out.
//! - [`series`]: several files in a row. [`detect`]: what a file holds, by its content.
//! - [`itch`]: Nasdaq TotalView-ITCH 5.0. Each venue is one folder that implements [`venue::Venue`].
//! - [`dbn`]: Databento Binary Encoding, of whatever venue.
//! - [`filter`]: a part of a feed.
//! - [`pipeline`]: the two together with the sequencer and the publisher's own books; no I/O, so a backtest runs it too.
//! - [`publisher`]: the busy-polling loop. [`pace`] says when each message is due, [`turns`] what the machine took.
//! - [`admission`]: the control channel, for subscribers that ask what there is.
#![cfg_attr(feature = "rdma", doc = "- [`rdma`]: the RDMA lanes, and what keeps them.")]
//! - [`devices`]: the RDMA devices of this host, for whoever sets it up.
//! - [`config`], [`epoch`], [`pin`], [`drive`]: what a process around the loop needs.
//!
//! - [`join`]: what a publisher does that starts while another lane of its channel is alive.
//! - [`recovery`]: the server that sends again what subscribers lost, a thread of its own.
//!
//! Left out: back-pressure. The loop waits for no subscriber and knows of none.

#![forbid(unsafe_code)]
// Those of the standard library panic where nobody reads any more; those of `cli` do not.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod admission;
pub mod capture;
pub mod config;
pub mod counters;
pub mod date;
pub mod dbn;
pub mod detect;
pub mod devices;
pub mod drive;
pub mod epoch;
pub mod feed;
pub mod filter;
pub mod input;
pub mod itch;
pub mod join;
pub mod open;
pub mod pace;
pub mod pin;
pub mod pipeline;
pub mod publisher;
#[cfg(feature = "rdma")]
pub mod rdma;
pub mod recovery;
pub mod series;
pub mod turns;
pub mod venue;

pub use pipeline::Pipeline;
pub use publisher::Publisher;
