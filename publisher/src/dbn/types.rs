//! The types of records: their names, their lengths, and where their times stand.

use dbn::{
    BboMsg, CbboMsg, Cmbp1Msg, ErrorMsg, ImbalanceMsg, InstrumentDefMsg, MboMsg, Mbp1Msg, Mbp10Msg, OhlcvMsg, StatMsg,
    StatusMsg, SymbolMappingMsg, SystemMsg, TradeMsg, rtype, v1, v2,
};

/// Bytes in the header that every record has.
pub const HEADER_LEN: usize = 16;
/// Bytes of the sending time that a stream may have behind every record.
pub const TS_OUT_LEN: usize = 8;
/// Records are so many bytes, or a multiple.
pub const UNIT_LEN: usize = 4;
/// A time that is not given.
pub const NO_TIME: u64 = u64::MAX;

/// What a type byte means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Type {
    /// Its name in reports: that of the schema.
    pub name: &'static str,
    /// The lengths that its versions have, without the sending time.
    pub lengths: &'static [usize],
    /// Where its receive time stands; 0 where it has none.
    pub ts_recv_at: usize,
    /// Whether it becomes records here.
    pub carried: bool,
}

const fn a_type(name: &'static str, lengths: &'static [usize], ts_recv_at: usize, carried: bool) -> Option<Type> {
    Some(Type { name, lengths, ts_recv_at, carried })
}

/// What `rtype` means; `None` if nothing that is known here.
pub const fn of(rtype: u8) -> Option<Type> {
    match rtype {
        rtype::MBP_0 => a_type("trades", &[size_of::<TradeMsg>()], 32, true),
        rtype::MBP_1 => a_type("mbp-1", &[size_of::<Mbp1Msg>()], 32, true),
        rtype::MBP_10 => a_type("mbp-10", &[size_of::<Mbp10Msg>()], 32, true),
        rtype::MBO => a_type("mbo", &[size_of::<MboMsg>()], 40, true),
        rtype::BBO_1S => a_type("bbo-1s", &[size_of::<BboMsg>()], 32, true),
        rtype::BBO_1M => a_type("bbo-1m", &[size_of::<BboMsg>()], 32, true),
        rtype::STATUS => a_type("status", &[size_of::<StatusMsg>()], 16, true),
        rtype::INSTRUMENT_DEF => a_type("definition", DEFINITION_LENGTHS, 16, true),
        rtype::IMBALANCE => a_type("imbalance", &[size_of::<ImbalanceMsg>()], 16, true),
        rtype::STATISTICS => a_type("statistics", STATISTIC_LENGTHS, 16, true),
        rtype::SYMBOL_MAPPING => a_type("symbol mapping", SYMBOL_MAPPING_LENGTHS, 0, true),
        rtype::ERROR => a_type("error", &[size_of::<v1::ErrorMsg>(), size_of::<ErrorMsg>()], 0, false),
        rtype::SYSTEM => a_type("system", &[size_of::<v1::SystemMsg>(), size_of::<SystemMsg>()], 0, false),
        rtype::CMBP_1 => a_type("cmbp-1", &[size_of::<Cmbp1Msg>()], 32, false),
        rtype::TCBBO => a_type("tcbbo", &[size_of::<Cmbp1Msg>()], 32, false),
        rtype::CBBO_1S => a_type("cbbo-1s", &[size_of::<CbboMsg>()], 32, false),
        rtype::CBBO_1M => a_type("cbbo-1m", &[size_of::<CbboMsg>()], 32, false),
        rtype::OHLCV_1S => a_type("ohlcv-1s", &[size_of::<OhlcvMsg>()], 0, false),
        rtype::OHLCV_1M => a_type("ohlcv-1m", &[size_of::<OhlcvMsg>()], 0, false),
        rtype::OHLCV_1H => a_type("ohlcv-1h", &[size_of::<OhlcvMsg>()], 0, false),
        rtype::OHLCV_1D => a_type("ohlcv-1d", &[size_of::<OhlcvMsg>()], 0, false),
        rtype::OHLCV_EOD => a_type("ohlcv-eod", &[size_of::<OhlcvMsg>()], 0, false),
        OHLCV_OLD => a_type("ohlcv", &[size_of::<OhlcvMsg>()], 0, false),
        _ => None,
    }
}

/// The type that bars of every length once shared.
const OHLCV_OLD: u8 = 0x11;
/// Definitions of version 1, 2 and 3: their lengths tell them apart.
const DEFINITION_LENGTHS: &[usize] =
    &[size_of::<v1::InstrumentDefMsg>(), size_of::<v2::InstrumentDefMsg>(), size_of::<InstrumentDefMsg>()];
/// Statistics of versions 1 and 2, and of version 3.
const STATISTIC_LENGTHS: &[usize] = &[size_of::<v1::StatMsg>(), size_of::<StatMsg>()];
/// Symbol mappings of version 1, and of versions 2 and 3.
const SYMBOL_MAPPING_LENGTHS: &[usize] = &[size_of::<v1::SymbolMappingMsg>(), size_of::<SymbolMappingMsg>()];

impl Type {
    /// The longest of its lengths that `len` bytes are enough for, if they are exactly that, or that and a sending time.
    pub fn length_of(&self, len: usize) -> Option<usize> {
        self.lengths.iter().rev().copied().find(|known| len == *known || len == known + TS_OUT_LEN)
    }
}

/// The type byte of a record.
pub fn rtype_of(bytes: &[u8]) -> Option<u8> {
    bytes.get(1).copied()
}

/// The u64 at `at`, if it is a time.
fn time_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes: [u8; 8] = bytes.get(at..at + 8)?.try_into().ok()?;
    Some(u64::from_le_bytes(bytes)).filter(|time| *time != NO_TIME)
}

/// When a record was received, or, where it does not say, when it was made.
pub fn time_of(bytes: &[u8]) -> Option<u64> {
    let known = of(rtype_of(bytes)?)?;
    let received = if known.ts_recv_at == 0 { None } else { time_at(bytes, known.ts_recv_at) };
    received.or_else(|| ts_event_of(bytes))
}

/// When a record says that what it tells happened.
pub fn ts_event_of(bytes: &[u8]) -> Option<u64> {
    time_at(bytes, 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receive_times_stand_where_the_layouts_have_them() {
        use std::mem::offset_of;
        for (rtype, at) in [
            (rtype::MBO, offset_of!(MboMsg, ts_recv)),
            (rtype::MBP_0, offset_of!(TradeMsg, ts_recv)),
            (rtype::MBP_1, offset_of!(Mbp1Msg, ts_recv)),
            (rtype::MBP_10, offset_of!(Mbp10Msg, ts_recv)),
            (rtype::BBO_1S, offset_of!(BboMsg, ts_recv)),
            (rtype::STATUS, offset_of!(StatusMsg, ts_recv)),
            (rtype::IMBALANCE, offset_of!(ImbalanceMsg, ts_recv)),
            (rtype::STATISTICS, offset_of!(StatMsg, ts_recv)),
            (rtype::STATISTICS, offset_of!(v1::StatMsg, ts_recv)),
            (rtype::INSTRUMENT_DEF, offset_of!(InstrumentDefMsg, ts_recv)),
            (rtype::INSTRUMENT_DEF, offset_of!(v1::InstrumentDefMsg, ts_recv)),
        ] {
            assert_eq!(of(rtype).expect("known").ts_recv_at, at, "{rtype:#x}");
        }
    }

    #[test]
    fn the_lengths_are_those_of_the_three_versions() {
        let lengths = |rtype| of(rtype).expect("known").lengths;
        assert_eq!(lengths(rtype::MBO), [56]);
        assert_eq!(lengths(rtype::INSTRUMENT_DEF), [360, 400, 520]);
        assert_eq!(lengths(rtype::STATISTICS), [64, 80]);
        assert_eq!(lengths(rtype::SYMBOL_MAPPING), [80, 176]);
        let definition = of(rtype::INSTRUMENT_DEF).expect("known");
        assert_eq!(definition.length_of(408), Some(400), "with a sending time behind it");
        assert_eq!(definition.length_of(404), None);
        for rtype in 0..=255u8 {
            for length in of(rtype).map_or(&[][..], |known| known.lengths) {
                assert!(length.is_multiple_of(UNIT_LEN) && length / UNIT_LEN <= 255, "{rtype:#x}");
            }
        }
    }
}
