//! What our instruments are called in DBN.

use std::collections::BTreeMap;

use protocol::definition::Definition;
use protocol::record::{Flags, InstrumentId, Kind, Record, UNDEFINED_PRICE};

/// Nanoseconds in a day.
pub(super) const NS_PER_DAY: u64 = 86_400_000_000_000;
/// The longest symbol that the metadata holds: 71 bytes, the last of which is zero.
const SYMBOL_LEN: usize = dbn::SYMBOL_CSTR_LEN - 1;

/// The UTC date of a time.
pub(super) fn date(time: u64) -> time::Date {
    // The julian day of 1970-01-01. A u64 of ns ends in 2554.
    const EPOCH_DAY: i32 = 2_440_588;
    let day = i32::try_from(time / NS_PER_DAY).unwrap_or(0);
    time::Date::from_julian_day(EPOCH_DAY + day).unwrap_or(time::Date::MIN)
}

/// An instrument as DBN knows it.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) publisher: u16,
    pub(super) id: u32,
    pub(super) symbol: String,
    pub(super) price_exponent: i32,
    pub(super) size_exponent: i32,
    /// When its first record was received, and its last.
    pub(super) span: Option<(u64, u64)>,
    /// Its records came out of DBN: what stands in their Continuations is laid out as we read it there.
    pub(super) is_dbn: bool,
}

impl Target {
    /// What a Definition says.
    pub(super) fn of(definition: &Definition) -> Target {
        Target {
            publisher: (definition.venue_id >> 32) as u16,
            id: definition.venue_id as u32,
            symbol: definition.symbol().to_owned(),
            price_exponent: definition.price_exponent(),
            size_exponent: definition.get("size_exponent").and_then(|text| text.parse().ok()).unwrap_or(0),
            span: None,
            is_dbn: definition.get("stream").is_some(),
        }
    }

    /// An instrument without a Definition, and the channel itself.
    pub(super) fn unknown(instrument: InstrumentId) -> Target {
        Target {
            publisher: 0,
            id: instrument.0,
            symbol: String::new(),
            price_exponent: -9,
            size_exponent: 0,
            span: None,
            is_dbn: false,
        }
    }

    /// A price in 10^-9, if it is one exactly.
    pub(super) fn nano(&self, price: i64) -> Option<i64> {
        if price == UNDEFINED_PRICE {
            return Some(price);
        }
        match self.price_exponent.checked_add(9)? {
            0 => Some(price),
            more @ 1.. => price.checked_mul(10i64.checked_pow(more as u32)?).filter(|nano| *nano != UNDEFINED_PRICE),
            fewer => {
                let by = 10i64.checked_pow(fewer.unsigned_abs())?;
                (price % by == 0).then_some(price / by)
            }
        }
    }
}

/// All of them, and whether an event of each is open.
#[derive(Debug, Default)]
pub(super) struct Targets {
    by_instrument: Vec<Option<Target>>,
    open: Vec<bool>,
}

impl Targets {
    pub(super) fn get(&self, instrument: InstrumentId) -> Option<&Target> {
        self.by_instrument.get(instrument.index())?.as_ref()
    }

    /// Returns whether it was not known.
    pub(super) fn set(&mut self, instrument: InstrumentId, target: Target) -> bool {
        if self.by_instrument.len() <= instrument.index() {
            self.by_instrument.resize(instrument.index() + 1, None);
        }
        let place = &mut self.by_instrument[instrument.index()];
        let span = place.as_ref().and_then(|before| before.span);
        place.replace(Target { span, ..target }).is_none()
    }

    /// A record of an instrument was received at `time`.
    pub(super) fn note_time(&mut self, instrument: InstrumentId, time: u64) {
        if let Some(Some(target)) = self.by_instrument.get_mut(instrument.index()) {
            let span = target.span.get_or_insert((time, time));
            *span = (span.0.min(time), span.1.max(time));
        }
    }

    pub(super) fn all(&self) -> Vec<InstrumentId> {
        let known = self.by_instrument.iter().enumerate().filter(|(_, target)| target.is_some());
        known.map(|(at, _)| InstrumentId(at as u32)).collect()
    }

    pub(super) fn note_event(&mut self, record: &Record) {
        let at = record.instrument_id().index();
        if self.open.len() <= at {
            self.open.resize(at + 1, false);
        }
        self.open[at] = !record.flags.has(Flags::LAST) && record.kind != Kind::EVENT_END;
    }

    pub(super) fn is_open(&self, instrument: InstrumentId) -> bool {
        self.open.get(instrument.index()).copied().unwrap_or(false)
    }

    /// Each symbol with the numbers that it names, and the times of their records; what the metadata cannot hold is not
    /// among them.
    pub(super) fn symbols(&self) -> BTreeMap<String, Vec<(u32, u64, u64)>> {
        let mut symbols: BTreeMap<String, Vec<(u32, u64, u64)>> = BTreeMap::new();
        for target in self.by_instrument.iter().flatten() {
            if target.symbol.is_empty() || target.symbol.len() > SYMBOL_LEN || !target.symbol.is_ascii() {
                continue;
            }
            let (first, last) = target.span.unwrap_or_default();
            let named = symbols.entry(target.symbol.clone()).or_default();
            match named.iter_mut().find(|(id, ..)| *id == target.id) {
                Some((_, start, end)) => (*start, *end) = (first.min(*start), last.max(*end)),
                None => named.push((target.id, first, last)),
            }
        }
        symbols
    }
}
