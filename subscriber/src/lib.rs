//! The library that strategies link.
//!
//! A strategy implements [`Handler`] and polls a [`Subscriber`]. It is told of every record, every trade, the end of every
//! event with the best prices before and after it, every gap and every change of state; and it can look at books, depth
//! and single orders, in the states in which they can be believed.
//!
//! ```no_run
//! use subscriber::{Builder, Context, EventEnd, Handler};
//!
//! /// Prints the best prices of one stock whenever they change.
//! struct Printer;
//!
//! impl Handler for Printer {
//!     fn on_event_end(&mut self, ctx: &Context<'_>, end: &EventEnd) {
//!         if end.before != end.after {
//!             println!("{}: {:?}", ctx.symbol(end.instrument), end.after);
//!         }
//!     }
//! }
//!
//! fn main() -> Result<(), subscriber::ConnectError> {
//!     let mut subscriber = Builder::new("itch").symbols(["AAPL"]).shared_memory()?;
//!     while !subscriber.has_ended() {
//!         subscriber.poll(&mut Printer);
//!     }
//!     Ok(())
//! }
//! ```
//!
//! - [`Builder`] makes a subscriber, and settles its transport as a type.
//! - [`Handler`], [`Context`], [`Update`], [`Trade`], [`Status`]: what a strategy implements and is told.
//! - [`Subscriber`]: the live loop, one bounded turn per call.
//! - [`Engine`]: the same books and callbacks without transport and clock. `feeds_replay::backtest` drives it from a file,
//!   so that a strategy is tested on the code it runs on.
//!
//! - [`Conflated`]: the latest of each instrument from this host's shared memory, for who does not need every change.
//! - [`Control`]: asks a publisher which channels it has. [`RecoveryOptions`]: where what was lost is asked for.
#![cfg_attr(feature = "rdma", doc = "- [`rdma`]: a channel by RDMA, and the thread that keeps it.")]
//!
//! Left out: threads. A subscriber runs where it is polled, and nothing happens between polls; over RDMA, and for
//! recovery, a second thread keeps the connection.

#![forbid(unsafe_code)]

mod conflated;
mod connect;
mod control;
mod engine;
mod handler;
mod live;
#[cfg(feature = "rdma")]
pub mod rdma;
mod recovery;
mod selection;

pub use conflated::{Conflated, NotConflated};
pub use connect::{Builder, ConnectError};
pub use control::{Control, ControlError, Notice};
pub use engine::{Directory, Engine, EngineConfig, EngineCounts, Turn};
pub use handler::{Context, Handler, NotReadable, Status, Trade, Update};
pub use live::{POLL_LIMIT, Subscriber};
pub use protocol::arbiter::Gap;
pub use protocol::book::{Bbo, BookState, BookView, EventEnd, Level, RestingOrder, StateChange, StateReason};
pub use protocol::conflation::{BestLevels, ConflatedBook, LastTrade};
pub use protocol::definition::Definition;
pub use protocol::pair::Split;
pub use protocol::record::InstrumentId;
#[cfg(feature = "rdma")]
pub use recovery::ReplyRingOptions;
pub use recovery::{Behind, Policy, RecoveryOptions, RecoveryStatus};
pub use selection::Selection;
