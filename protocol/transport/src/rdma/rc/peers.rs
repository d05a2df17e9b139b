//! The subscribers of a lane, as its hot half keeps them: they come from the keeper, and go back to it.

use std::sync::Arc;

use super::peer::Peer;
use super::tx::{RcTicket, Sources};
use crate::rdma::completion::Completion;
use crate::rdma::mailbox::{Inbox, Outbox, mailbox};

/// Completions taken at once.
const BATCH: usize = 32;

/// What the keeper tells the hot half.
pub(super) enum ToHot {
    /// A subscriber to write to from now on.
    Take(Box<Peer>),
    /// One to hand back.
    LetGo(RcTicket),
    /// Other sources, on a device that was opened again; there are no subscribers of the old ones any more.
    Renew(Arc<Sources>),
}

/// What the hot half hands back, to be destroyed.
pub(super) enum FromHot {
    /// A subscriber that has failed, or was to be let go.
    Peer(Box<Peer>),
    /// The sources before a [`Renew`](ToHot::Renew).
    Sources(Arc<Sources>),
}

/// Every subscriber that is written to, in the order in which they were taken in.
pub(super) struct Peers {
    // Peers keep `sources`; each queue pair is destroyed before its regions.
    #[expect(clippy::vec_box, reason = "boxes come from the keeper and go back to it; here nothing is freed")]
    pub(super) list: Vec<Box<Peer>>,
    inbox: Inbox<ToHot>,
    outbox: Outbox<FromHot>,
    pub(super) sources: Arc<Sources>,
    /// Lines that subscribers were never sent who are gone now.
    pub(super) past_lines_skipped: u64,
    batch: [Completion; BATCH],
}

impl Peers {
    /// Nobody yet, and what the keeper needs to change that.
    pub(super) fn new(max_peers: usize, sources: Arc<Sources>) -> (Peers, Outbox<ToHot>, Inbox<FromHot>) {
        // A subscriber is taken in once and let go at most once, and its place is free again only when it is back; which it
        // may be, having failed, before the hot half reads that it is to go. And sources.
        let (to_hot, inbox) = mailbox(3 * max_peers + 1);
        let (outbox, from_hot) = mailbox(max_peers + 1);
        let list = Vec::with_capacity(max_peers);
        let batch = [Completion::empty(); BATCH];
        (Peers { list, inbox, outbox, sources, past_lines_skipped: 0, batch }, to_hot, from_hot)
    }

    /// Takes what has ended.
    pub(super) fn reap(&mut self) {
        loop {
            let count = self.sources.completions.poll(&mut self.batch);
            for completion in &self.batch[..count] {
                let tag = (completion.id() >> 48) as u16;
                // One that was handed back is nobody's business.
                let Some(peer) = self.list.iter_mut().find(|peer| peer.ticket.tag() == tag) else { continue };
                peer.on_completion(completion);
            }
            if count < BATCH {
                return;
            }
        }
    }

    /// Takes subscribers in and hands back those that are to go. A load while there is nothing to do.
    #[inline]
    pub(super) fn take_mail(&mut self) {
        if self.inbox.has_mail() {
            self.read_mail();
        }
    }

    #[cold]
    fn read_mail(&mut self) {
        // What queue pairs that are gone have left behind, before others need the room.
        self.reap();
        while let Some(message) = self.inbox.take() {
            match message {
                ToHot::Take(peer) => self.list.push(peer),
                ToHot::LetGo(ticket) => self.hand_back(|peer| peer.ticket == ticket),
                ToHot::Renew(sources) => {
                    let before = std::mem::replace(&mut self.sources, sources);
                    drop(self.outbox.post(FromHot::Sources(before)));
                }
            }
        }
    }

    /// Hands those that have failed to the keeper.
    #[inline]
    pub(super) fn hand_back_failed(&mut self) {
        if self.list.iter().any(|peer| peer.failure.is_some()) {
            self.hand_back(|peer| peer.failure.is_some());
        }
    }

    /// Hands the subscribers that are `such` to the keeper. Allocates nothing and destroys nothing.
    #[cold]
    fn hand_back(&mut self, such: impl Fn(&Peer) -> bool) {
        while let Some(place) = self.list.iter().position(|peer| such(peer)) {
            let peer = self.list.remove(place);
            self.past_lines_skipped += peer.counters.lines_skipped;
            // There is room for every subscriber. If it comes back the keeper is gone, and nobody else is there to destroy it.
            drop(self.outbox.post(FromHot::Peer(peer)));
        }
    }
}
