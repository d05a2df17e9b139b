//! The policy `conflate`: the latest of each instrument, for who does not need every change.
//!
//! The recovery server keeps how each instrument stands in shared memory ([`transport::cells`]); a [`Conflated`] reads it
//! there. It is never behind, however seldom it looks, and nobody waits for it or knows of it. What it does not get is what
//! happened in between. It sees the books of this host's publishers only: from another host, subscribe to the lines, or ask
//! for snapshots.

use std::collections::HashMap;
use std::path::PathBuf;

use protocol::book::BookState;
use protocol::conflation::{CONTENT_WORDS, ConflatedBook};
use protocol::record::{InstrumentId, Lane};
use protocol::time::Nanos;
use transport::cells::core::Look;
use transport::cells::{CellsReader, Pulse};
use transport::clock::Clock;
use transport::shm::SetupError;

use crate::connect::ConnectError;
use crate::selection::Selection;

/// The server says each millisecond that it lives. After so long without a sign its books are not to be believed, ns.
const SILENT_NS: i64 = 100_000_000;
/// While it is silent its file is looked for this often, ns.
const LOOK_UP_NS: i64 = 100_000_000;

/// Why a conflated book cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotConflated {
    /// Nothing was ever heard of this instrument, or it has no cell (`instruments` in `[books]` of the publisher).
    #[error("nothing has been heard of instrument {}", .0.0)]
    NeverHeard(InstrumentId),
    /// The server was stopped while it wrote this one.
    #[error("the book of instrument {} is being written, and its writer does not go on", .0.0)]
    BeingWritten(InstrumentId),
    /// The book is not complete, or may have missed something: the server, too, can lose lines, or be silent.
    #[error("the book of instrument {} is {state:?}", .instrument.0)]
    State {
        /// Whose book.
        instrument: InstrumentId,
        /// What it says of itself.
        state: BookState,
    },
}

/// Reads a channel's conflated books. Made by [`Builder::conflated`](crate::Builder::conflated).
pub struct Conflated {
    name: String,
    lane: Lane,
    directory: Option<PathBuf>,
    selection: Selection,
    clock: Clock,
    cells: Option<CellsReader>,
    /// The newest pulse seen, and when it was seen to change: that it stands there proves nothing.
    pulse: Option<(Pulse, Option<Nanos>)>,
    /// As of the last turn.
    silent: bool,
    looked_up_at: Option<Nanos>,
    now: Nanos,
    /// What is known of each cell.
    seen: Vec<Seen>,
    by_symbol: HashMap<String, InstrumentId>,
    reattached: u64,
}

/// The version of a cell that was read last, and the symbol in it.
#[derive(Clone, Default)]
struct Seen {
    version: u64,
    known: bool,
    symbol: String,
}

impl Conflated {
    pub(crate) fn open(
        name: String,
        lane: Lane,
        directory: Option<PathBuf>,
        selection: Selection,
        clock: Clock,
    ) -> Result<Conflated, ConnectError> {
        let mut conflated = Conflated {
            name,
            lane,
            directory,
            selection,
            clock,
            cells: None,
            pulse: None,
            silent: true,
            looked_up_at: None,
            now: clock.now(),
            seen: Vec::new(),
            by_symbol: HashMap::new(),
            reattached: 0,
        };
        match conflated.look_up(conflated.now) {
            // It may come yet; but a name that cannot be never does.
            Err(error @ SetupError::Name { .. }) => Err(error.into()),
            _ => Ok(conflated),
        }
    }

    /// One turn: calls `on_book` for each wanted instrument whose book is another than at the last turn, and finds out whether
    /// the server lives. However much happened in between, each comes once. Returns how many. Reads the clock once; makes
    /// no system call while the server lives. A book may come in any state: look at it.
    pub fn poll(&mut self, mut on_book: impl FnMut(&ConflatedBook)) -> usize {
        self.now = self.clock.now();
        self.look_after(self.now);
        let silent = self.hears_nothing();
        if silent != self.silent {
            // With the server all books change their states.
            self.seen.iter_mut().for_each(|seen| seen.version = 0);
            self.silent = silent;
        }
        // Of one that was never heard nothing is told: it may be what a dead publisher left.
        let is_unheard = self.pulse.is_none_or(|(pulse, heard)| heard.is_none() && !pulse.ended);
        let Some(cells) = self.cells.as_ref().filter(|_| !is_unheard) else { return 0 };
        let mut content = [0; CONTENT_WORDS];
        let mut count = 0;
        for (index, seen) in self.seen.iter_mut().enumerate().skip(1) {
            let version = cells.version(index);
            if version == seen.version {
                continue;
            }
            // One in the making comes at the next turn.
            let Look::Version(version) = cells.read(index, &mut content) else { continue };
            (seen.version, seen.known) = (version, true);
            let instrument = InstrumentId(index as u32);
            let Some(book) = ConflatedBook::from_content(instrument, &content) else { continue };
            if seen.symbol != book.symbol() {
                if self.by_symbol.get(&seen.symbol) == Some(&instrument) {
                    self.by_symbol.remove(&seen.symbol);
                }
                seen.symbol = book.symbol().to_owned();
                self.by_symbol.insert(seen.symbol.clone(), instrument);
            }
            if !self.selection.is_all() && (seen.symbol.is_empty() || !self.selection.wants(&seen.symbol)) {
                continue;
            }
            count += 1;
            on_book(&judged(book, cells.round(), silent));
        }
        count
    }

    /// The latest book of an instrument, wanted or not, if it may be read: Live, or Suspect (look at its `state`). Whether the
    /// server lives is as the last [`Conflated::poll`] found it.
    ///
    /// # Errors
    /// [`NotConflated`], which says why not.
    pub fn book(&self, instrument: InstrumentId) -> Result<ConflatedBook, NotConflated> {
        let book = self.book_even_if_stale(instrument)?;
        if book.state.is_readable() { Ok(book) } else { Err(NotConflated::State { instrument, state: book.state }) }
    }

    /// The latest book of an instrument in whatever state it is. What it holds may be wrong: its `state` says so.
    ///
    /// # Errors
    /// [`NotConflated::NeverHeard`] or [`NotConflated::BeingWritten`].
    pub fn book_even_if_stale(&self, instrument: InstrumentId) -> Result<ConflatedBook, NotConflated> {
        let never = NotConflated::NeverHeard(instrument);
        let cells = self.cells.as_ref().ok_or(never)?;
        let mut content = [0; CONTENT_WORDS];
        match cells.read(instrument.index(), &mut content) {
            Look::Never => Err(never),
            Look::InWriting => Err(NotConflated::BeingWritten(instrument)),
            Look::Version(_) => {
                let book = ConflatedBook::from_content(instrument, &content).ok_or(never)?;
                Ok(judged(book, cells.round(), self.silent))
            }
        }
    }

    /// The instrument with this symbol, as far as [`Conflated::poll`] has come across it.
    pub fn instrument(&self, symbol: &str) -> Option<InstrumentId> {
        self.by_symbol.get(symbol).copied()
    }

    /// Every instrument that [`Conflated::poll`] has come across, with its symbol (empty if it is not known).
    pub fn instruments(&self) -> impl Iterator<Item = (InstrumentId, &str)> {
        let known = self.seen.iter().enumerate().filter(|(_, seen)| seen.known);
        known.map(|(index, seen)| (InstrumentId(index as u32), seen.symbol.as_str()))
    }

    /// How the server stood when it last said so: which line it takes next, how many books are behind, whether the stream has
    /// ended. `None` before it was found.
    pub fn pulse(&self) -> Option<Pulse> {
        self.pulse.map(|(pulse, _)| pulse)
    }

    /// Whether nothing was heard of the server for a tenth of a second, at the last turn. Until it is heard of again every book
    /// is Stale. One that has ended as planned is not silent: its books are final.
    pub fn is_silent(&self) -> bool {
        self.silent
    }

    fn hears_nothing(&self) -> bool {
        match self.pulse {
            None | Some((Pulse { ended: false, .. }, None)) => true,
            Some((Pulse { ended: true, behind: 0, .. }, _)) => false,
            Some((_, heard)) => heard.is_none_or(|heard| self.now.since(heard) >= SILENT_NS),
        }
    }

    /// Times that another publisher's cells took the place of the ones before.
    pub fn reattached(&self) -> u64 {
        self.reattached
    }

    fn look_after(&mut self, now: Nanos) {
        if let Some(pulse) = self.cells.as_ref().and_then(CellsReader::pulse)
            && self.pulse.is_none_or(|(before, _)| before.beat != pulse.beat)
        {
            self.pulse = Some((pulse, Some(now)));
            return;
        }
        let heard = self.pulse.and_then(|(_, heard)| heard);
        let is_quiet = heard.is_none_or(|heard| now.since(heard) >= SILENT_NS);
        if is_quiet && self.looked_up_at.is_none_or(|at| now.since(at) >= LOOK_UP_NS) {
            // Not there, or not whole: it is looked for again.
            let _ = self.look_up(now);
        }
    }

    #[cold]
    fn look_up(&mut self, now: Nanos) -> Result<(), SetupError> {
        self.looked_up_at = Some(now);
        if self.cells.as_ref().is_some_and(|cells| !cells.is_replaced()) {
            return Ok(());
        }
        let cells = CellsReader::open(self.directory.as_deref(), &self.name, self.lane)?;
        self.reattached += u64::from(self.cells.is_some());
        // A new publisher numbers its instruments anew.
        self.seen = vec![Seen::default(); cells.cells()];
        self.by_symbol.clear();
        self.pulse = cells.pulse().map(|pulse| (pulse, None));
        self.cells = Some(cells);
        Ok(())
    }
}

/// A book as it is to be believed: an earlier round's, or a silent server's, is Stale.
fn judged(book: ConflatedBook, round: u32, silent: bool) -> ConflatedBook {
    let mut book = book.in_round(round);
    if silent && book.state.is_readable() {
        book.state = BookState::Stale;
    }
    book
}
