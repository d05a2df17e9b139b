//! What instruments are called, and when: from the metadata in front of the records, and from symbol mappings among them.

use std::collections::HashMap;

use dbn::{Metadata, SType, SymbolMappingMsg};

/// A name, and the times for which it is said: from `start` up to `end`, UTC ns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Naming {
    /// The first ns.
    pub start: u64,
    /// The first ns after.
    pub end: u64,
    /// The name.
    pub symbol: String,
}

/// The names of instruments by the number that the stream gives them.
#[derive(Clone, Debug, Default)]
pub struct Names {
    by_id: HashMap<u32, Vec<Naming>>,
}

const NS_PER_DAY: u64 = 86_400_000_000_000;

/// Midnight UTC of a day, ns since 1970; what lies before is 0.
fn midnight(julian_day: i32) -> u64 {
    // The julian day of 1970-01-01.
    const EPOCH_DAY: i64 = 2_440_588;
    u64::try_from(i64::from(julian_day) - EPOCH_DAY).unwrap_or(0).saturating_mul(NS_PER_DAY)
}

impl Names {
    /// Those that the metadata gives. Where it gives symbols for numbers or numbers for symbols, both are read; other
    /// kinds of name say nothing of numbers.
    pub fn of(metadata: &Metadata) -> Names {
        let mut names = Names::default();
        names.add_all(metadata);
        names
    }

    /// Adds those that other metadata gives.
    pub fn add_all(&mut self, metadata: &Metadata) {
        for mapping in &metadata.mappings {
            for interval in &mapping.intervals {
                let (id, symbol) = match (metadata.stype_in, metadata.stype_out) {
                    (_, SType::InstrumentId) => (&interval.symbol, &mapping.raw_symbol),
                    (Some(SType::InstrumentId), _) => (&mapping.raw_symbol, &interval.symbol),
                    _ => continue,
                };
                if let Ok(id) = id.parse() {
                    let days = (interval.start_date.to_julian_day(), interval.end_date.to_julian_day());
                    self.add(id, midnight(days.0), midnight(days.1), symbol);
                }
            }
        }
        for namings in self.by_id.values_mut() {
            namings.sort_by_key(|naming| naming.start);
        }
    }

    fn add(&mut self, id: u32, start: u64, end: u64, symbol: &str) {
        let naming = Naming { start, end, symbol: symbol.to_owned() };
        self.by_id.entry(id).or_default().push(naming);
    }

    /// Takes in a symbol mapping from among the records.
    pub fn learn(&mut self, mapping: &SymbolMappingMsg) {
        let raw = mapping.stype_out_symbol().unwrap_or("");
        let asked = mapping.stype_in_symbol().unwrap_or("");
        let symbol = if mapping.stype_out().is_ok_and(|stype| stype == SType::RawSymbol) { raw } else { asked };
        if !symbol.is_empty() {
            // From now on: what was said before of the same times is out of date.
            self.by_id.entry(mapping.hd.instrument_id).or_default().retain(|naming| naming.end <= mapping.start_ts);
            self.add(mapping.hd.instrument_id, 0, u64::MAX, symbol);
        }
    }

    /// The name of instrument `id` at `time`, with how long it holds. Where none is said for that time, the nearest before
    /// it, else the first.
    pub fn at(&self, id: u32, time: u64) -> Option<&Naming> {
        let namings = self.by_id.get(&id)?;
        let said = namings.iter().rev().find(|naming| (naming.start..naming.end).contains(&time));
        said.or_else(|| namings.iter().rev().find(|naming| naming.start <= time)).or(namings.first())
    }
}
