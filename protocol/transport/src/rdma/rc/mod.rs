//! The RC lane: the publisher's card writes lines straight into each subscriber's own ring.
//!
//! ```text
//!  subscriber                                            publisher
//!  RcRxKeeper::offer ── where it listens, ring, key ───► RcTxKeeper::connect
//!  RcRxKeeper::expect ◄──────── one-time token ───────── (both by the control channel)
//!        │ ◄──────── request: token, channel, first ──────────┤
//!        ├────────────────── agreed, or refused ─────────────►│
//!      RcRx ◄──────────── lines, written ──────────────── RcRingTx
//! ```
//!
//! The subscriber offers a ring that one queue pair may write and nobody may read; each connection has a fresh one. The
//! publisher connects, because its side's timers and rights rule, and because on iWARP the side that connects must send
//! first. The connection must present the token that both were told; a wrong one, a token used twice, another channel are
//! refused and counted, and the ring stays as it was.
//!
//! The publisher keeps a cursor per subscriber over its own ring, which is registered once and gives nobody any rights.
//! Each turn, if a subscriber's queue has room, everything from its cursor to the head goes out, as one write, or two at
//! the wrap; so a backlog grows into longer writes and not into more of them. A full queue is skipped and never waited
//! for. The mask of each line is the only proof that it arrived whole, and all that is needed. The remote latest line is
//! written once per heartbeat interval and at no other time; the reader looks at its place first.
//!
//! Each side has a hot half, [`RcRingTx`] and [`RcRx`], which never waits, allocates nothing and makes no system call of
//! its own, and a keeper, [`RcTxKeeper`] and [`RcRxKeeper`], for a thread that turns every millisecond or so: it connects,
//! creates and destroys. They talk through mailboxes. A subscriber that fails (a status, the deadline, an overrun) is
//! marked by the hot half, which posts nothing more for it and hands it to the keeper; the keeper destroys its queue pair
//! and says why.
//!
//! Answers of the recovery server come the same way: [`RcReplyTx`] writes them into a reply ring of each subscriber's, which
//! [`RcReplyRx`] reads. It has queue pairs, a completion queue and a thread of its own, and the same keepers.
//!
//! Left out: reconnecting. Who lost a connection and whether it is worth another offer is for the control channel to say.

mod drop_reason;
mod peer;
mod peers;
mod reply_rx;
mod reply_tx;
mod request;
mod rx;
mod rx_keeper;
#[cfg(test)]
mod tests;
mod tx;
mod tx_keeper;

pub use drop_reason::DropReason;
pub use peer::{PeerCounters, PeerFailure};
pub use reply_rx::RcReplyRx;
pub use reply_tx::RcReplyTx;
pub use request::{RcOffer, RcToken, Refusal};
pub use rx::RcRx;
pub use rx_keeper::{LostReason, RcRxCounters, RcRxEvent, RcRxKeeper, RcRxOptions};
pub use tx::{RcOptions, RcRingTx, RcTicket};
pub use tx_keeper::{RcTxCounters, RcTxEvent, RcTxKeeper};

/// Events of connections that a keeper takes in one turn: whoever asks and asks does not keep it from the rest.
const EVENTS_PER_TURN: usize = 64;
/// Bytes before place 0 of a ring.
const LATEST_LEN: u64 = 128;

/// Bytes of a ring of `lines` places.
const fn ring_len(lines: u64) -> u64 {
    LATEST_LEN + lines * protocol::line::LINE_LEN as u64
}
