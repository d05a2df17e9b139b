//! What the pipeline needs of a venue: one trait, so that a feed is one folder and nothing else.

use protocol::book::OrderLookup;
use protocol::record::{InstrumentId, Record};
use protocol::time::Nanos;

use crate::feed::{Message, Notice};
use crate::itch;

/// Turns the messages of one kind of feed into records.
pub trait Venue {
    /// Turns one message into its records, in order, LAST on the last of each event. `orders` is the book that the records
    /// are applied to. A message that is refused or not carried is counted by the venue and gives no record.
    fn normalise(&mut self, message: &Message<'_>, orders: &impl OrderLookup, out: &mut impl FnMut(Record));

    /// Turns what a source says between two messages into its records, LAST on the last of each event. What is said of the
    /// whole stream goes to the channel.
    fn notice(&mut self, notice: &Notice, out: &mut impl FnMut(Record));

    /// The resting order that a message to come is about, where that can be told from its bytes at a glance. A hint, by which
    /// the order is brought into the cache beforehand.
    #[inline]
    fn order_of(&self, bytes: &[u8]) -> Option<(InstrumentId, u64)> {
        let _ = bytes;
        None
    }

    /// When the message was captured or, where nobody says, made. `None` for one that has no time that can be read.
    fn time(&self, message: &Message<'_>) -> Option<Nanos>;
}

impl Venue for itch::Normaliser {
    #[inline]
    fn normalise(&mut self, message: &Message<'_>, orders: &impl OrderLookup, out: &mut impl FnMut(Record)) {
        // A refused message is in the normaliser's counters, by type; the next one is sound.
        let _ = itch::Normaliser::normalise(self, message, orders, out);
    }

    fn notice(&mut self, notice: &Notice, out: &mut impl FnMut(Record)) {
        itch::Normaliser::notice(self, notice, out);
    }

    #[inline]
    fn order_of(&self, bytes: &[u8]) -> Option<(InstrumentId, u64)> {
        itch::Normaliser::order_of(self, bytes)
    }

    #[inline]
    fn time(&self, message: &Message<'_>) -> Option<Nanos> {
        let header = itch::messages::Message::header_of(message.bytes)?;
        Some(message.capture.unwrap_or_else(|| self.date().at(header.timestamp.get())))
    }
}
