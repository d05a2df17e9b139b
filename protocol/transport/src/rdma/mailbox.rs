//! Mailboxes between the hot half of a lane and its keeper.
//!
//! Bounded, and nobody waits: a post that finds the box full gives the message back, and taking from an empty box costs one
//! relaxed load. Posting and taking allocate nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crossbeam_utils::CachePadded;

/// A box for at most `capacity` messages.
pub(super) fn mailbox<T>(capacity: usize) -> (Outbox<T>, Inbox<T>) {
    let (sender, receiver) = sync_channel(capacity);
    let waiting = Arc::new(CachePadded::new(AtomicUsize::new(0)));
    (Outbox { sender, waiting: Arc::clone(&waiting) }, Inbox { receiver, waiting })
}

/// Where messages are posted.
pub(super) struct Outbox<T> {
    sender: SyncSender<T>,
    waiting: Arc<CachePadded<AtomicUsize>>,
}

impl<T> Outbox<T> {
    /// Posts a message. Gives it back if the box is full, or the other half is gone.
    pub(super) fn post(&self, message: T) -> Result<(), T> {
        if let Err(error) = self.sender.try_send(message) {
            let (std::sync::mpsc::TrySendError::Full(message) | std::sync::mpsc::TrySendError::Disconnected(message)) =
                error;
            return Err(message);
        }
        // Release: pairs with the Acquire in `take`. Counted only when the message lies there, so that whoever sees the
        // count never waits for a message that is still being written.
        self.waiting.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Whether nobody will ever take anything.
    pub(super) fn is_abandoned(&self) -> bool {
        Arc::strong_count(&self.waiting) == 1
    }
}

/// Where messages are taken from.
pub(super) struct Inbox<T> {
    receiver: Receiver<T>,
    waiting: Arc<CachePadded<AtomicUsize>>,
}

impl<T> Inbox<T> {
    /// Whether there is anything.
    #[inline(always)]
    pub(super) fn has_mail(&self) -> bool {
        // Relaxed: seeing it late costs a turn; `take` orders what it takes.
        self.waiting.load(Ordering::Relaxed) != 0
    }

    /// The oldest message.
    #[inline]
    pub(super) fn take(&mut self) -> Option<T> {
        if !self.has_mail() {
            return None;
        }
        // Acquire: pairs with the Release in `post`.
        self.waiting.load(Ordering::Acquire);
        let message = self.receiver.try_recv().expect("counted after it was posted, and taken here alone");
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_in_order_and_a_full_box_gives_them_back() {
        let (out, mut into) = mailbox(2);
        assert!(!into.has_mail() && into.take().is_none());
        assert_eq!([out.post(1), out.post(2), out.post(3)], [Ok(()), Ok(()), Err(3)]);
        assert_eq!([into.take(), into.take(), into.take()], [Some(1), Some(2), None]);
        assert!(!out.is_abandoned());
        drop(into);
        assert!(out.is_abandoned());
        assert_eq!(out.post(4), Err(4));
    }

    #[test]
    fn between_threads_nothing_is_lost() {
        let (out, mut into) = mailbox(4);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for mut message in 0..10_000_u64 {
                    while let Err(back) = out.post(message) {
                        message = back;
                        std::thread::yield_now();
                    }
                }
            });
            for expected in 0..10_000 {
                let message = loop {
                    match into.take() {
                        Some(message) => break message,
                        None => std::thread::yield_now(),
                    }
                };
                assert_eq!(message, expected);
            }
        });
    }
}
