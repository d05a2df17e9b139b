//! Random streams of records: plausible, and wrong now and then in the ways venues are wrong.

use protocol::record::{Flags, InstrumentId, Kind, Record, Side, UNDEFINED_PRICE};
use rand::Rng;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

/// Instruments in a random stream.
pub const INSTRUMENTS: u32 = 5;

/// Makes the records of a stream, one event after another, of several instruments at a time.
pub struct RandomRecords {
    random: Pcg64Mcg,
    next_id: u64,
    started: bool,
}

impl RandomRecords {
    /// The same seed gives the same records.
    pub fn new(seed: u64) -> RandomRecords {
        RandomRecords { random: Pcg64Mcg::seed_from_u64(seed), next_id: 1, started: false }
    }

    /// An id that is new, or one of the latest: live, gone, or of another instrument.
    fn id(&mut self, new: bool) -> u64 {
        if new && self.random.random_ratio(24, 25) {
            self.next_id += 1;
            return self.next_id;
        }
        self.next_id.saturating_sub(self.random.random_range(0..60))
    }

    fn side(&mut self) -> Side {
        match self.random.random_range(0..100) {
            0 => Side::NONE,
            1..6 => Side::IMPLIED_BID,
            6..11 => Side::IMPLIED_ASK,
            n if n % 2 == 0 => Side::BID,
            _ => Side::ASK,
        }
    }

    /// Few prices, so that queues are long; bids mostly below asks, so that books are crossed seldom.
    fn price(&mut self, side: Side) -> i64 {
        match self.random.random_range(0..200) {
            0 => UNDEFINED_PRICE,
            1 => -self.random.random_range(0..1000i64),
            2 => self.random.random_range(i64::MIN..i64::MAX),
            _ if [Side::BID, Side::IMPLIED_BID].contains(&side) => self.random.random_range(80..101),
            _ => self.random.random_range(100..121),
        }
    }

    /// The next record. Instruments 1 to 4 are fed by orders, the last one by levels, with a slip now and then.
    pub fn next_record(&mut self) -> Record {
        if !std::mem::replace(&mut self.started, true) {
            return Record { flags: Flags::LAST, ..Record::new(Kind::SESSION_START, InstrumentId::CHANNEL) };
        }
        let instrument = InstrumentId(self.random.random_range(1..=INSTRUMENTS));
        let mut flags = Flags::LAST;
        if self.random.random_ratio(1, 4) {
            flags = Flags::NONE;
        }
        let rare = self.random.random_range(0..4000);
        let (kind, instrument) = match rare {
            0 => (Kind::SESSION_START, InstrumentId::CHANNEL),
            1..4 => (Kind::CLEAR, InstrumentId::CHANNEL),
            4 => (Kind::VENUE_GAP, InstrumentId::CHANNEL),
            5 => (Kind::VENUE_GAP, instrument),
            6..30 => (Kind::CLEAR, instrument),
            30..60 => (Kind::EVENT_END, InstrumentId::CHANNEL),
            60..80 => (Kind::EVENT_END, instrument),
            80..120 => (Kind::STATUS, instrument),
            120..130 => (Kind::STATUS, InstrumentId::CHANNEL),
            130..300 => (Kind::TRADE, instrument),
            300..330 => (Kind::FILL, instrument),
            _ => {
                let by_levels = (instrument.0 == INSTRUMENTS) != self.random.random_ratio(1, 2000);
                let kind = match self.random.random_range(0..20) {
                    _ if by_levels => Kind::LEVEL_SET,
                    0..9 => Kind::ADD,
                    9..12 => Kind::MODIFY,
                    12..14 => Kind::REDUCE,
                    14..16 => Kind::EXECUTE,
                    _ => Kind::DELETE,
                };
                (kind, instrument)
            }
        };
        let mut record = Record { flags, side: self.side(), ..Record::new(kind, instrument) };
        record.price.set(self.price(record.side));
        record.size.set(if self.random.random_ratio(1, 100) {
            self.random.random()
        } else {
            self.random.random_range(0..40)
        });
        match kind {
            Kind::LEVEL_SET => {
                record.order_id.set(self.random.random_range(0..9));
                if self.random.random_ratio(1, 50) {
                    record.flags = record.flags.with(Flags::TOB);
                }
                if self.random.random_ratio(1, 300) {
                    record.order_id.set(self.random.random());
                }
            }
            Kind::STATUS => record.detail = self.random.random_range(0..16),
            Kind::MODIFY => {
                record.detail = self.random.random_range(0..4);
                record.order_id.set(self.id(false));
            }
            kind => record.order_id.set(self.id(kind == Kind::ADD)),
        }
        record
    }
}
