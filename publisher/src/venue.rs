//! What the pipeline needs of a venue: one trait, so that a feed is one folder and nothing else.

use protocol::book::OrderLookup;
use protocol::record::{InstrumentId, Record};
use protocol::time::Nanos;

use crate::counters::Counters;
use crate::date::SessionDate;
use crate::feed::{Message, Notice};
use crate::{dbn, itch};

/// Why bytes are no message. Ordinary outcomes: small, and counted by the normaliser.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Rejected {
    /// No bytes at all, so no type.
    #[error("a message without bytes")]
    Empty,
    /// A type that the specification does not list. Its length is known from the framing: the next message is sound.
    #[error("unknown message type 0x{message_type:02X}, {len} bytes")]
    Unknown {
        /// The type byte.
        message_type: u8,
        /// Bytes in the message.
        len: usize,
    },
    /// A known type with another length than the specification gives it.
    #[error("message type {} has {actual} bytes instead of {expected}", plain_name(*message_type))]
    BadLength {
        /// The type byte.
        message_type: u8,
        /// Bytes by the specification.
        expected: usize,
        /// Bytes that came.
        actual: usize,
    },
}

/// A type byte as it is printed where no venue gives it a name.
pub fn plain_name(message_type: u8) -> String {
    match message_type {
        0x21..=0x7E => char::from(message_type).to_string(),
        other => format!("0x{other:02X}"),
    }
}

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

    /// When the venue made the message, by its own clock; `None` for one that does not say.
    fn venue_time(&self, message: &Message<'_>) -> Option<Nanos>;

    /// Whether bytes are a message of this venue.
    ///
    /// # Errors
    /// [`Rejected`]: why they are none.
    fn check(&self, bytes: &[u8]) -> Result<(), Rejected>;

    /// The type byte that a message is counted by.
    fn type_of(&self, bytes: &[u8]) -> Option<u8> {
        bytes.first().copied()
    }

    /// What a type is called in reports.
    fn type_name(&self, message_type: u8) -> String {
        plain_name(message_type)
    }

    /// Whether the venue says when its day starts, for all books at once. If not, each book has its own beginning.
    fn says_start(&self) -> bool {
        true
    }

    /// What was counted since the beginning.
    fn counters(&self) -> &Counters;

    /// How many instruments there are; they are numbered from 1.
    fn instrument_count(&self) -> u32;

    /// The date in use.
    fn date(&self) -> SessionDate;
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

    fn venue_time(&self, message: &Message<'_>) -> Option<Nanos> {
        let header = itch::messages::Message::header_of(message.bytes)?;
        Some(self.date().at(header.timestamp.get()))
    }

    fn check(&self, bytes: &[u8]) -> Result<(), Rejected> {
        itch::decode(bytes).map(|_| ())
    }

    fn counters(&self) -> &Counters {
        itch::Normaliser::counters(self)
    }

    fn instrument_count(&self) -> u32 {
        itch::Normaliser::instrument_count(self)
    }

    fn date(&self) -> SessionDate {
        itch::Normaliser::date(self)
    }
}

/// What a normaliser is told once, whatever the feed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VenueOptions {
    /// The market, for feeds that do not say it themselves.
    pub market: itch::Market,
    /// Also carry what few readers want.
    pub full: bool,
}

/// The normaliser of whatever feed a file holds: made by [`crate::open::OpenFeed::venue`].
// There is one per process; a box would cost an indirection per message.
#[allow(clippy::large_enum_variant)]
pub enum AnyVenue {
    /// Nasdaq TotalView-ITCH 5.0.
    Itch(itch::Normaliser),
    /// DBN, of any venue.
    Dbn(dbn::Normaliser),
}

/// The same call on whichever it is.
macro_rules! either {
    ($any:expr, $venue:ident => $call:expr) => {
        match $any {
            AnyVenue::Itch($venue) => $call,
            AnyVenue::Dbn($venue) => $call,
        }
    };
}

impl Venue for AnyVenue {
    #[inline]
    fn normalise(&mut self, message: &Message<'_>, orders: &impl OrderLookup, out: &mut impl FnMut(Record)) {
        either!(self, venue => Venue::normalise(venue, message, orders, out));
    }

    fn notice(&mut self, notice: &Notice, out: &mut impl FnMut(Record)) {
        either!(self, venue => Venue::notice(venue, notice, out));
    }

    #[inline]
    fn order_of(&self, bytes: &[u8]) -> Option<(InstrumentId, u64)> {
        either!(self, venue => Venue::order_of(venue, bytes))
    }

    #[inline]
    fn time(&self, message: &Message<'_>) -> Option<Nanos> {
        either!(self, venue => Venue::time(venue, message))
    }

    fn venue_time(&self, message: &Message<'_>) -> Option<Nanos> {
        either!(self, venue => Venue::venue_time(venue, message))
    }

    fn check(&self, bytes: &[u8]) -> Result<(), Rejected> {
        either!(self, venue => Venue::check(venue, bytes))
    }

    fn type_of(&self, bytes: &[u8]) -> Option<u8> {
        either!(self, venue => Venue::type_of(venue, bytes))
    }

    fn type_name(&self, message_type: u8) -> String {
        either!(self, venue => Venue::type_name(venue, message_type))
    }

    fn says_start(&self) -> bool {
        either!(self, venue => Venue::says_start(venue))
    }

    fn counters(&self) -> &Counters {
        either!(self, venue => Venue::counters(venue))
    }

    fn instrument_count(&self) -> u32 {
        either!(self, venue => Venue::instrument_count(venue))
    }

    fn date(&self) -> SessionDate {
        either!(self, venue => Venue::date(venue))
    }
}
