//! The sequencer: gives each record its place in the channel.
//!
//! The sequence is a pure function of the records that come in. Time decides nothing but `ts_publish`, so two publishers
//! of one feed give the same number to the same update.

use crate::line::{Epoch, Line, SequenceNumber, Stamp};
use crate::record::{InstrumentId, Kind, Record};
use crate::time::Nanos;

/// The 48 bits of the sequence number are used up: the publisher stops, and starts again in a new epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("epoch {} has used all of its sequence numbers; start the publisher again: it will open a new epoch", .0.0)]
pub struct Exhausted(pub Epoch);

/// Numbers the lines of one channel.
pub struct Sequencer {
    next: Stamp,
    channel_lines: u32,
    /// Own lines by instrument; place 0 is unused.
    own_lines: Vec<u32>,
    last_publish: Nanos,
}

impl Sequencer {
    /// The first stamp given is `epoch`:1. `instruments` is how many are expected: more cost an allocation each time
    /// the table doubles.
    ///
    /// # Panics
    /// If `epoch` is 0, which no channel has.
    pub fn new(epoch: Epoch, instruments: usize) -> Sequencer {
        assert!(epoch.0 > 0, "epochs start at 1");
        let mut own_lines = Vec::with_capacity(instruments + 1);
        own_lines.push(0);
        Sequencer {
            next: Stamp::new(epoch, SequenceNumber::FIRST),
            channel_lines: 0,
            own_lines,
            last_publish: Nanos::ZERO,
        }
    }

    /// The same in the middle of a stream: the first stamp given is `next`, and so many lines were the channel's, and each
    /// instrument's, before. (The count of an instrument that is not expected begins at the first line.)
    ///
    /// # Panics
    /// If the epoch is 0.
    pub fn going_on(next: Stamp, lines: u32, instruments: usize) -> Sequencer {
        let mut sequencer = Sequencer::new(next.epoch(), instruments);
        sequencer.own_lines.resize(instruments + 1, lines);
        Sequencer { next, channel_lines: lines, ..sequencer }
    }

    /// The stamp that the next line will get.
    #[inline]
    pub fn next(&self) -> Stamp {
        self.next
    }

    /// Fills in `instrument_seq` and `ts_publish` and seals the line. `ts_publish` never goes back within the epoch,
    /// whatever `now` does. (A Continuation has payload where other records have their times, and keeps it.)
    ///
    /// # Errors
    /// [`Exhausted`], and nothing has changed.
    #[inline]
    pub fn seal(&mut self, record: &Record, now: Nanos) -> Result<(Stamp, Line), Exhausted> {
        let mut record = *record;
        let stamp = self.number(&mut record, now)?;
        Ok((stamp, Line::seal(record, stamp)))
    }

    /// The same without the seal: fills in what is the sequencer's, in place.
    ///
    /// # Errors
    /// [`Exhausted`], and nothing has changed.
    #[inline]
    pub fn number(&mut self, record: &mut Record, now: Nanos) -> Result<Stamp, Exhausted> {
        let stamp = self.next;
        if stamp.sequence() == SequenceNumber::MAX {
            return Err(Exhausted(stamp.epoch()));
        }
        self.last_publish = self.last_publish.max(now);
        if record.kind != Kind::CONTINUATION {
            record.ts_publish.set(self.last_publish.low());
        }
        record.instrument_seq.set(self.count(record.instrument_id()));
        self.next = stamp.plus(1);
        Ok(stamp)
    }

    #[inline]
    fn count(&mut self, instrument: InstrumentId) -> u32 {
        if instrument == InstrumentId::CHANNEL {
            self.channel_lines = self.channel_lines.wrapping_add(1);
            return self.channel_lines;
        }
        if instrument.index() >= self.own_lines.len() {
            self.own_lines.resize(instrument.index() + 1, 0);
        }
        let own = &mut self.own_lines[instrument.index()];
        *own = own.wrapping_add(1);
        own.wrapping_add(self.channel_lines)
    }

    #[cfg(test)]
    fn at(next: Stamp) -> Sequencer {
        Sequencer { next, ..Sequencer::new(next.epoch(), 1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seal(sequencer: &mut Sequencer, instrument: u32, now: u64) -> Record {
        sequencer.seal(&Record::new(Kind::ADD, InstrumentId(instrument)), Nanos(now)).expect("not exhausted").1.record
    }

    #[test]
    fn instrument_seq_counts_own_lines_and_channel_lines() {
        let mut sequencer = Sequencer::new(Epoch(1), 4);
        let counts: Vec<u32> = [0, 1, 2, 1, 0, 2, 3]
            .into_iter()
            .map(|instrument| seal(&mut sequencer, instrument, 0).instrument_seq.get())
            .collect();
        assert_eq!(counts, [1, 2, 2, 3, 2, 4, 3]);
        assert_eq!(sequencer.next(), Stamp::new(Epoch(1), SequenceNumber(8)));
    }

    #[test]
    fn publish_time_never_goes_back() {
        let mut sequencer = Sequencer::new(Epoch(1), 1);
        let times: Vec<u32> =
            [10, 12, 11, 13].into_iter().map(|now| seal(&mut sequencer, 1, now).ts_publish.get()).collect();
        assert_eq!(times, [10, 12, 12, 13]);
    }

    #[test]
    fn the_payload_of_a_continuation_is_left_alone() {
        let mut sequencer = Sequencer::new(Epoch(1), 1);
        let head = Record::new(Kind::DEFINITION, InstrumentId(1));
        let sent = Record::continuation(&head, &[0xEE; 40]);
        let (_, line) = sequencer.seal(&sent, Nanos(5)).expect("not exhausted");
        assert_eq!(line.record.payload(), &[0xEE; 40]);
        assert_eq!(line.record.instrument_seq.get(), 1);
    }

    #[test]
    fn a_sequence_at_its_end_stops_and_never_wraps() {
        let last = Stamp::new(Epoch(9), SequenceNumber(SequenceNumber::MAX.0 - 1));
        let mut sequencer = Sequencer::at(last);
        assert_eq!(sequencer.seal(&Record::new(Kind::ADD, InstrumentId(1)), Nanos(0)).expect("one is left").0, last);
        for _ in 0..2 {
            let end = sequencer.seal(&Record::new(Kind::ADD, InstrumentId(1)), Nanos(0));
            assert_eq!(end.unwrap_err(), Exhausted(Epoch(9)));
        }
    }
}
