//! What a subscriber asks the recovery server: one line, which proves itself and its sender.

use crate::line::{Epoch, Line, SequenceNumber, Stamp};
use crate::record::{InstrumentId, Kind, Record};

/// The number under which the recovery server knows a subscriber: given by the control channel, never 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Connection(pub u16);

impl Connection {
    /// The stamp of number `count` of this connection: of a request, or of a line in its replies.
    pub const fn stamp(self, count: u64) -> Stamp {
        Stamp::new(Epoch(self.0), SequenceNumber(count))
    }

    /// Whose stamp this is, and which number.
    pub const fn of(stamp: Stamp) -> (Connection, u64) {
        (Connection(stamp.epoch().0), stamp.sequence().0)
    }
}

/// What a request wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ask {
    /// The `count` lines of the stream from `first` on.
    Lines {
        /// The first of them.
        first: Stamp,
        /// How many.
        count: u64,
    },
    /// Snapshots of the instruments from `first` to `last`, as many as fit.
    Snapshots {
        /// The first instrument.
        first: InstrumentId,
        /// The last instrument.
        last: InstrumentId,
        /// The lowest stamp at which a snapshot is of any use: what the asker has of the stream begins after it.
        not_before: Stamp,
        /// The most lines that may follow the ReplyBegin.
        max_lines: u64,
    },
    /// The `count` lines of the connection's own replies from number `first` on, once more.
    Replies {
        /// The first of them.
        first: u64,
        /// How many.
        count: u64,
    },
}

const LINES: u8 = 1;
const SNAPSHOTS: u8 = 2;
const REPLIES: u8 = 3;

/// A request: kind Request, sealed with the stamp (connection, request number).
///
/// Asking again under the same number is the same request: the server sends the same lines again if it has answered
/// already. It travels as the one line of a packet, or by whatever else carries lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Who asks.
    pub connection: Connection,
    /// Its number, from 1, each new request the next one.
    pub number: u64,
    /// What the control channel gave together with the connection: a request with another key costs nothing.
    pub key: u64,
    /// What is wanted.
    pub ask: Ask,
}

impl Request {
    /// As a line.
    pub fn to_line(&self) -> Line {
        let mut record = Record::new(Kind::REQUEST, InstrumentId::CHANNEL);
        record.ts_event.set(self.key);
        match self.ask {
            Ask::Lines { first, count } => {
                record.detail = LINES;
                record.order_id.set(first.0);
                record.size.set(count);
            }
            Ask::Snapshots { first, last, not_before, max_lines } => {
                record.detail = SNAPSHOTS;
                record.instrument.set(first.0);
                record.price.set(i64::from(last.0));
                record.order_id.set(not_before.0);
                record.size.set(max_lines);
            }
            Ask::Replies { first, count } => {
                record.detail = REPLIES;
                record.order_id.set(first);
                record.size.set(count);
            }
        }
        Line::seal(record, self.connection.stamp(self.number))
    }

    /// From a line that came as a request; its stamp is what it says it is. `None` if it is no request that this version
    /// knows.
    pub fn from_line(line: &Line) -> Option<Request> {
        let record = &line.record;
        if record.kind != Kind::REQUEST {
            return None;
        }
        let (connection, number) = Connection::of(line.stamp());
        let ask = match record.detail {
            LINES => Ask::Lines { first: Stamp(record.order_id.get()), count: record.size.get() },
            SNAPSHOTS => Ask::Snapshots {
                first: record.instrument_id(),
                last: InstrumentId(u32::try_from(record.price.get()).ok()?),
                not_before: Stamp(record.order_id.get()),
                max_lines: record.size.get(),
            },
            REPLIES => Ask::Replies { first: record.order_id.get(), count: record.size.get() },
            _ => return None,
        };
        Some(Request { connection, number, key: record.ts_event.get(), ask })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_is_what_is_read() {
        let asks = [
            Ask::Lines { first: Stamp::new(Epoch(3), SequenceNumber(42)), count: 7 },
            Ask::Snapshots {
                first: InstrumentId(1),
                last: InstrumentId(u32::MAX),
                not_before: Stamp::new(Epoch(3), SequenceNumber(99)),
                max_lines: 4096,
            },
            Ask::Replies { first: 5, count: 2 },
        ];
        for ask in asks {
            let request = Request { connection: Connection(9), number: 4, key: 0xDEAD_BEEF, ask };
            let line = request.to_line();
            assert!(line.verifies(Connection(9).stamp(4)));
            assert_eq!(Request::from_line(&line), Some(request));
        }
    }

    #[test]
    fn what_is_no_request_is_none() {
        let request =
            Request { connection: Connection(9), number: 4, key: 1, ask: Ask::Replies { first: 5, count: 2 } };
        let mut line = request.to_line();
        line.record.detail = 77;
        assert_eq!(Request::from_line(&line), None);
        line.record.kind = Kind::ADD;
        assert_eq!(Request::from_line(&line), None);
    }
}
