//! How the recovery server's answers begin.

use crate::line::Stamp;
use crate::record::{InstrumentId, Kind, Record};

/// Why the server does not give what was asked. `number` is what goes with the reason.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refusal {
    /// History no longer holds the first line asked for; `number`: the stamp of the oldest that it will hold for a while.
    NotHeld,
    /// The server has not read so far itself; `number`: the stamp that it reads next. Ask again.
    Behind,
    /// Another epoch than the server's; `number`: the stamp that it reads next.
    WrongEpoch,
    /// One snapshot alone is longer than the reply may be; `number`: its instrument.
    TooLong,
    /// A refusal that this version does not know.
    Other(u32),
}

impl Refusal {
    const fn code(self) -> u32 {
        match self {
            Refusal::NotHeld => 1,
            Refusal::Behind => 2,
            Refusal::WrongEpoch => 3,
            Refusal::TooLong => 4,
            Refusal::Other(code) => code,
        }
    }

    const fn of(code: u32) -> Refusal {
        match code {
            1 => Refusal::NotHeld,
            2 => Refusal::Behind,
            3 => Refusal::WrongEpoch,
            4 => Refusal::TooLong,
            code => Refusal::Other(code),
        }
    }
}

/// What follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Lines of the stream, one after the other from this stamp on; fewer than asked for if the server has no more yet.
    Lines {
        /// The stamp of the first.
        first: Stamp,
    },
    /// Snapshots, each from its SnapshotBegin to its SnapshotEnd, in order of instrument. Instruments asked for that are
    /// not among them have no book that could be given: never complete, in doubt, or in the middle of an event.
    Snapshots {
        /// The first instrument covered, as asked.
        first: InstrumentId,
        /// The first instrument not covered any more; `None` when all that was asked for is.
        next: Option<InstrumentId>,
    },
    /// Nothing.
    Refused {
        /// Why.
        why: Refusal,
        /// What goes with the reason.
        number: u64,
    },
}

const LINES: u8 = 1;
const SNAPSHOTS: u8 = 2;
const REFUSED: u8 = 3;

/// The ReplyBegin line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplyBegin {
    /// The number of the request that this answers.
    pub request: u64,
    /// The stamp of the line that the server reads next.
    pub head: Stamp,
    /// Lines that follow and belong to this reply.
    pub lines: u64,
    /// What they are.
    pub answer: Answer,
}

impl ReplyBegin {
    /// As a record, to be sealed with the next stamp of the connection.
    pub fn to_record(&self) -> Record {
        let mut record = Record::new(Kind::REPLY_BEGIN, InstrumentId::CHANNEL);
        record.order_id.set(self.request);
        record.ts_event.set(self.head.0);
        record.size.set(self.lines);
        match self.answer {
            Answer::Lines { first } => {
                record.detail = LINES;
                record.price.set(first.0 as i64);
            }
            Answer::Snapshots { first, next } => {
                record.detail = SNAPSHOTS;
                record.instrument.set(first.0);
                record.price.set(next.map_or(0, |next| i64::from(next.0)));
            }
            Answer::Refused { why, number } => {
                record.detail = REFUSED;
                record.price.set(number as i64);
                record.venue_seq.set(why.code());
            }
        }
        record
    }

    /// From a record. `None` if it begins no reply that this version knows.
    pub fn from_record(record: &Record) -> Option<ReplyBegin> {
        if record.kind != Kind::REPLY_BEGIN {
            return None;
        }
        let answer = match record.detail {
            LINES => Answer::Lines { first: Stamp(record.price.get() as u64) },
            SNAPSHOTS => Answer::Snapshots {
                first: record.instrument_id(),
                next: Some(InstrumentId(u32::try_from(record.price.get()).ok()?)).filter(|next| next.0 != 0),
            },
            REFUSED => Answer::Refused { why: Refusal::of(record.venue_seq.get()), number: record.price.get() as u64 },
            _ => return None,
        };
        Some(ReplyBegin {
            request: record.order_id.get(),
            head: Stamp(record.ts_event.get()),
            lines: record.size.get(),
            answer,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::{Epoch, SequenceNumber};

    #[test]
    fn what_was_answered_is_what_is_read() {
        let stamp = Stamp::new(Epoch(65535), SequenceNumber(42));
        let answers = [
            Answer::Lines { first: stamp },
            Answer::Snapshots { first: InstrumentId(3), next: None },
            Answer::Snapshots { first: InstrumentId(3), next: Some(InstrumentId(u32::MAX)) },
            Answer::Refused { why: Refusal::NotHeld, number: stamp.0 },
            Answer::Refused { why: Refusal::Other(99), number: 0 },
        ];
        for answer in answers {
            let begin = ReplyBegin { request: 5, head: stamp.plus(9), lines: 12, answer };
            assert_eq!(ReplyBegin::from_record(&begin.to_record()), Some(begin));
        }
        assert_eq!(ReplyBegin::from_record(&Record::new(Kind::ADD, InstrumentId(1))), None);
    }
}
