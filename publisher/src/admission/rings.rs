//! What connects the publisher's card to the rings that subscribers offer, as the control channel sees it.

use protocol::control::{OneTimeToken, RdmaInfo, RingOffer};
use protocol::time::Nanos;

/// One connection asked for. Never used for another one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ticket(pub u64);

/// Makes connections, keeps them, and ends them. It runs on the control channel's thread and may make system calls, but
/// never waits.
pub trait Rings {
    /// How the channel is reached by RDMA now; `None` if it is not.
    fn info(&self) -> Option<RdmaInfo>;

    /// Begins to connect to the ring offered. The connection will present the token returned.
    ///
    /// # Errors
    /// Why not, for the subscriber.
    fn connect(&mut self, offer: &RingOffer, now: Nanos) -> Result<(Ticket, OneTimeToken), String>;

    /// The same for a ring of answers of the recovery server, whose number for its subscriber is `connection`.
    ///
    /// # Errors
    /// Why not, for the subscriber.
    fn connect_replies(
        &mut self,
        connection: u16,
        offer: &RingOffer,
        now: Nanos,
    ) -> Result<(Ticket, OneTimeToken), String>;

    /// Ends a connection, or the attempt.
    fn disconnect(&mut self, ticket: Ticket);

    /// The next connection that could not be made or is over, and why.
    fn next_dropped(&mut self) -> Option<(Ticket, String)>;

    /// What happened, in words for the publisher's log: the oldest that was not read yet.
    fn next_message(&mut self) -> Option<String> {
        None
    }

    /// One turn; returns how much was done.
    fn do_work(&mut self, now: Nanos) -> usize;
}

/// No RDMA.
impl Rings for () {
    fn info(&self) -> Option<RdmaInfo> {
        None
    }

    fn connect(&mut self, _: &RingOffer, _: Nanos) -> Result<(Ticket, OneTimeToken), String> {
        Err("this publisher writes into no subscriber's ring: it has no [rdma], or none with subscribers".into())
    }

    fn connect_replies(&mut self, _: u16, _: &RingOffer, _: Nanos) -> Result<(Ticket, OneTimeToken), String> {
        Err("this publisher writes answers into no subscriber's ring: it has no [rdma]; ask for datagrams".into())
    }

    fn disconnect(&mut self, _: Ticket) {}

    fn next_dropped(&mut self) -> Option<(Ticket, String)> {
        None
    }

    fn do_work(&mut self, _: Nanos) -> usize {
        0
    }
}
