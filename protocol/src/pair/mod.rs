//! Two publishers of one channel, A and B: what must be the same, and what becomes of a pair that is not.
//!
//! Both number the same stream of the venue in the same epoch, so a line of one is a line of the other, but for the time
//! at which each captured and published it. Where that holds, the first copy wins and either may die. It is not taken on
//! trust:
//!
//! - A publisher that starts while another lane is alive ([`Joiner`]) replays the venue's stream and holds its own lines
//!   against that lane's, until sequence and digests agree; only then does it publish.
//! - A subscriber of both lanes compares each second copy with the first ([`crate::arbiter`]). Copies that differ mean that
//!   the publishers' inputs differ: the pair is declared [`Split`], and one lane is withdrawn.

mod join;
mod watch;

use std::fmt;

use crate::hash::h64;
use crate::line::Stamp;
use crate::record::{Flags, Kind, Lane, Record};

pub use join::{CannotJoin, JoinConfig, Joiner, JoinerSink};
pub(crate) use watch::{Found, PairWatch};

/// What of a record the publishers of one channel must agree on, in 16 bytes.
///
/// `ts_capture`, `ts_publish` and OWN_TIME are each publisher's own, and so is `ts_event` where either has OWN_TIME.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Fingerprint {
    /// 48 bits of the hash, a byte of flags (1: OWN_TIME), and the kind.
    what: u64,
    time: u64,
}

const OWN_TIME: u64 = 1 << 8;

impl Fingerprint {
    /// Of a record as it was published, its instrument_seq included.
    #[inline]
    pub fn of(record: &Record) -> Fingerprint {
        let mut words = record.words();
        let kind = u64::from(record.kind.0);
        if record.kind == Kind::CONTINUATION {
            // Payload where others have times: all of it is the venue's.
            return Fingerprint { what: h64(&words) & !0xFFFF | kind, time: 0 };
        }
        let own = u64::from(record.flags.has(Flags::OWN_TIME)) * OWN_TIME;
        // The flags are the second byte of the record.
        words[0] &= !(u64::from(Flags::OWN_TIME.0) << 8);
        let time = std::mem::take(&mut words[1]);
        words[5] = 0;
        Fingerprint { what: h64(&words) & !0xFFFF | own | kind, time }
    }

    /// Whether both say the same.
    #[inline]
    pub fn agrees(self, other: Fingerprint) -> bool {
        (self.what ^ other.what) & !OWN_TIME == 0
            && (self.time == other.time || (self.what | other.what) & OWN_TIME != 0)
    }

    /// The kind of the record.
    pub const fn kind(self) -> Kind {
        Kind(self.what as u8)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:012x}", self.kind(), self.what >> 16)
    }
}

/// The publishers of a pair do not say the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Split {
    /// Where that was seen: the first line of which two copies differ; or where the other lane was taken up, when the one
    /// that was kept has fallen silent.
    pub at: Stamp,
    /// The lane that goes on.
    pub kept: Lane,
    /// The lane from which nothing is taken any more in this epoch.
    pub withdrawn: Lane,
    /// Lines that only the withdrawn lane vouches for have been delivered: every book is Stale until a digest of the lane
    /// that goes on agrees with it, or its snapshot is applied.
    pub is_tainted: bool,
}

/// Which of two lanes is kept, and which is withdrawn, when their copies of a line differ. Nobody can tell who is right; the
/// lane with the lower number stays, so that every subscriber goes on with the same one.
pub(crate) fn kept_and_withdrawn(a: Lane, b: Lane) -> (Lane, Lane) {
    if a.0.get() < b.0.get() { (a, b) } else { (b, a) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::InstrumentId;

    fn add() -> Record {
        let mut record = Record { flags: Flags::LAST, ..Record::new(Kind::ADD, InstrumentId(3)) };
        (record.order_id, record.price, record.size) = (7.into(), 100.into(), 5.into());
        (record.ts_event, record.ts_capture, record.ts_publish) = (1_000.into(), 1_010.into(), 1_020.into());
        (record.instrument_seq, record.venue_seq) = (4.into(), 9.into());
        record
    }

    fn agree(a: &Record, b: &Record) -> bool {
        let forth = Fingerprint::of(a).agrees(Fingerprint::of(b));
        assert_eq!(forth, Fingerprint::of(b).agrees(Fingerprint::of(a)), "either way round");
        forth
    }

    #[test]
    fn copies_may_differ_in_times_of_their_own_and_in_nothing_else() {
        let a = add();
        let mut b = Record { ts_capture: 99.into(), ts_publish: 98.into(), ..a };
        assert!(agree(&a, &b));
        b.ts_event.set(2_000);
        assert!(!agree(&a, &b), "the venue's time is the venue's");
        b.flags = b.flags.with(Flags::OWN_TIME);
        assert!(agree(&a, &b), "where one has a time of its own, times may differ");
        for (at, byte) in [(0, 2u8), (1, 0x20), (2, b'A'), (3, 1), (4, 9), (16, 1), (24, 1), (32, 1), (48, 1), (52, 1)]
        {
            use zerocopy::{FromBytes, IntoBytes};
            let mut bytes: [u8; 56] = a.as_bytes().try_into().expect("56 bytes");
            bytes[at] ^= byte;
            assert!(!agree(&a, &Record::read_from_bytes(&bytes).expect("56 bytes")), "byte {at}");
        }
    }

    #[test]
    fn every_byte_of_a_continuation_is_the_venues() {
        let a = Record::continuation(&add(), &[7; 40]);
        for at in 0..40 {
            let mut payload = [7; 40];
            payload[at] = 8;
            assert!(!agree(&a, &Record::continuation(&add(), &payload)), "byte {at}");
        }
        assert!(agree(&a, &a));
    }
}
