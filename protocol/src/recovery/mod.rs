//! Recovery: how lines that were lost are had after all, and books that missed something become right again.
//!
//! A subscriber that misses lines asks the recovery server of its channel, which reads the publisher's own ring, keeps the
//! newest lines ([`History`]) and books, and never touches the publishing loop. Requests and replies are lines like any
//! other; each proves itself, and its stamp is (connection, count), the connection being a number that the control channel
//! gave together with a key.
//!
//! ```text
//!  subscriber                                        recovery server
//!  Request 1: lines 3:42, 7 of them           ──►
//!                                             ◄──    ReplyBegin { request 1, lines from 3:42, 7 follow }, 7 lines
//!  Request 2: snapshots 1..=4294967295        ──►
//!                                             ◄──    ReplyBegin { request 2, snapshots, next 17, 900 follow },
//!                                                    SnapshotBegin … SnapshotEnd, SnapshotBegin … SnapshotEnd, …
//!  Request 3: snapshots 17..=4294967295       ──►
//!  Request 4: replies 310, 22 of them         ──►    (a datagram with these lines was lost: once more)
//! ```
//!
//! Everything here is without I/O, and bounded in memory and time.
//!
//! - [`Request`], [`Ask`], [`Connection`]; [`ReplyBegin`], [`Answer`], [`Refusal`]: the words.
//! - [`SnapshotBegin`], [`SnapshotEnd`] and what stands between them: [`snapshot`].
//! - [`History`]: the newest lines, by sequence.
//! - The subscriber's half: [`Recovery`] asks for what an [arbiter](crate::arbiter) and books miss, [`Recovering`] is what it
//!   needs to know of the books, [`CatchUp`] joins a [`Snapshot`] and what was delivered since.
//! - The server's half: [`Responder`], which answers from a history and from a [`SnapshotSource`].

mod assembly;
mod catch_up;
mod history;
mod machine;
mod reader;
mod replies;
mod reply;
mod request;
mod responder;
pub mod snapshot;
mod source;

pub use assembly::Snapshot;
pub use catch_up::{CatchUp, CatchUpConfig, CatchUpCounts, Fate};
pub use history::History;
pub use machine::{Recovering, Recovery, RecoveryConfig, RecoveryCounts, RecoveryState, Session};
pub use reply::{Answer, Refusal, ReplyBegin};
pub use request::{Ask, Connection, Request};
pub use responder::{ReplyRun, Responder, ResponderConfig, ResponderCounts};
pub use snapshot::{SnapshotBegin, SnapshotEnd, SnapshotForm};
pub use source::{NoSnapshot, SnapshotSource};
