//! What a normaliser counts.

/// What a [`Venue`](crate::venue::Venue) counted. Every message is in `messages_by_type`, whatever became of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Messages by their type byte, unknown types included.
    pub messages_by_type: [u64; 256],
    /// Messages of a known type with a wrong length, by their type byte: skipped.
    pub bad_lengths_by_type: [u64; 256],
    /// Messages of an unknown type: skipped by their length.
    pub unknown_types: u64,
    /// The same by type byte.
    pub unknown_by_type: [u64; 256],
    /// Messages without a single byte: skipped.
    pub empty_messages: u64,
    /// Executions, cancels, deletes and replaces of an order that the book does not hold.
    pub unknown_orders: u64,
    /// Prices that a record cannot hold exactly; their records were refused.
    pub refused_prices: u64,
    /// Messages that are carried only with the option `full`, and were not.
    pub not_carried: u64,
    /// Instruments that another message than a directory message introduced.
    pub implied_instruments: u64,
    /// Directory messages that gave a locate of the same session to another symbol.
    pub reassigned_locates: u64,
    /// Lines that went out.
    pub lines: u64,
}

impl Counters {
    /// Nothing yet.
    pub const ZERO: Counters = Counters {
        messages_by_type: [0; 256],
        bad_lengths_by_type: [0; 256],
        unknown_types: 0,
        unknown_by_type: [0; 256],
        empty_messages: 0,
        unknown_orders: 0,
        refused_prices: 0,
        not_carried: 0,
        implied_instruments: 0,
        reassigned_locates: 0,
        lines: 0,
    };

    /// All messages seen.
    pub fn messages(&self) -> u64 {
        self.messages_by_type.iter().sum::<u64>() + self.empty_messages
    }

    /// Messages of a known type with a wrong length.
    pub fn bad_lengths(&self) -> u64 {
        self.bad_lengths_by_type.iter().sum()
    }

    /// The unknown types that were seen, each with its count, in order of type.
    pub fn unknown_by_type(&self) -> impl Iterator<Item = (u8, u64)> + '_ {
        (0..=255u8).zip(self.unknown_by_type).filter(|(_, count)| *count > 0)
    }
}
