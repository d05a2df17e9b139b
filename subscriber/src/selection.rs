//! Which instruments a strategy wants. The rest are skipped cheaply.

use protocol::record::InstrumentId;
use wildmatch::WildMatch;

/// A choice of instruments, by symbol.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Empty: everything.
    patterns: Vec<WildMatch>,
}

impl Selection {
    /// Every instrument of the channel.
    pub fn all() -> Selection {
        Selection::default()
    }

    /// The instruments whose symbols match one of `patterns`: a name, or a name with `*` (any characters) and `?` (one
    /// character). Upper and lower case are told apart, as venues do.
    ///
    /// No pattern at all selects everything, like [`Selection::all`].
    pub fn symbols<I: IntoIterator<Item = S>, S: AsRef<str>>(patterns: I) -> Selection {
        Selection { patterns: patterns.into_iter().map(|pattern| WildMatch::new(pattern.as_ref())).collect() }
    }

    /// Whether everything is wanted, whatever its symbol.
    pub fn is_all(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Whether an instrument with this symbol is wanted.
    pub fn wants(&self, symbol: &str) -> bool {
        self.is_all() || self.patterns.iter().any(|pattern| pattern.matches(symbol))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Choice {
    /// No Definition has come yet. Its book is kept, so that nothing is missing if it turns out to be wanted; nobody is
    /// told of it unless everything is wanted.
    Undecided,
    Wanted,
    Unwanted,
}

/// The choice for each instrument seen so far.
#[derive(Debug)]
pub(crate) struct Choices {
    selection: Selection,
    by_instrument: Vec<Choice>,
}

impl Choices {
    pub(crate) fn new(selection: Selection, instruments: usize) -> Choices {
        Choices { selection, by_instrument: Vec::with_capacity(instruments + 1) }
    }

    #[inline]
    pub(crate) fn of(&self, instrument: InstrumentId) -> Choice {
        if self.selection.is_all() {
            return Choice::Wanted;
        }
        self.by_instrument.get(instrument.index()).copied().unwrap_or(Choice::Undecided)
    }

    pub(crate) fn decide(&mut self, instrument: InstrumentId, symbol: &str) -> Choice {
        if instrument.index() >= self.by_instrument.len() {
            self.by_instrument.resize(instrument.index() + 1, Choice::Undecided);
        }
        let choice = if self.selection.wants(symbol) { Choice::Wanted } else { Choice::Unwanted };
        self.by_instrument[instrument.index()] = choice;
        choice
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_patterns_select_and_nothing_else_does() {
        let selection = Selection::symbols(["AAPL", "BRK.?", "Z*"]);
        for wanted in ["AAPL", "BRK.A", "BRK.B", "Z", "ZVZZT"] {
            assert!(selection.wants(wanted), "{wanted}");
        }
        for unwanted in ["AAP", "AAPLX", "BRK", "BRK.AB", "aapl", ""] {
            assert!(!selection.wants(unwanted), "{unwanted}");
        }
        assert!(Selection::all().wants("anything"));
    }
}
