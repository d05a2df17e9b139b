//! The recovery server's cells: how each instrument stands, for readers on this host who want the latest alone.

use protocol::arbiter::{Delivery, Gap};
use protocol::conflation::Conflator;
use protocol::line::{Epoch, Line, Stamp};
use protocol::log::{OwnDigest, OwnDigests};
use protocol::pair::Split;
use protocol::record::{InstrumentId, Lane};
use protocol::recovery::{Responder, SnapshotSource};
use protocol::run::LanePath;
use protocol::time::Nanos;
use transport::cells::{CellsWriter, Pulse};

/// Cells written in one turn: a quarter of a millisecond's work. More than that waits, and is conflated meanwhile.
const CELLS_PER_TURN: usize = 256;
/// A sign of life at least this often, ns.
const BEAT_NS: u64 = 1_000_000;

/// What keeps the cells.
pub(super) struct Conflating {
    conflator: Conflator,
    cells: CellsWriter,
    next_beat: Nanos,
    written: u64,
    ended: bool,
}

impl Conflating {
    /// Keeps `cells` from now on.
    pub(super) fn new(mut cells: CellsWriter) -> Conflating {
        let conflator = Conflator::new(cells.cells().saturating_sub(1));
        cells.set_round(conflator.round());
        Conflating { conflator, cells, next_beat: Nanos::ZERO, written: 0, ended: false }
    }

    /// One turn: some of the cells that are behind. Returns how many.
    pub(super) fn turn(&mut self, now: Nanos, source: &SnapshotSource) -> usize {
        let mut count = 0;
        while count < CELLS_PER_TURN
            && let Some(book) = self.conflator.next(source)
        {
            self.cells.write(book.instrument.index(), &book.to_content());
            count += 1;
        }
        self.written += count as u64;
        if now >= self.next_beat {
            self.next_beat = now.plus(BEAT_NS);
            let behind = self.conflator.behind() as u64;
            self.cells.beat(Pulse { beat: 0, next: source.next(), clock: now, behind, ended: self.ended });
        }
        count
    }

    /// Cells written, cells that are behind, and lines of instruments without a cell.
    pub(super) fn counts(&self) -> [u64; 3] {
        [self.written, self.conflator.behind() as u64, self.conflator.beyond()]
    }

    /// What the books are is not what the lines so far have said: all cells are written anew.
    pub(super) fn on_doubt(&mut self) {
        self.conflator.on_doubt();
        // Before anything is written in it: until then nothing in the cells is believed.
        self.cells.set_round(self.conflator.round());
    }
}

/// A [`Responder`], and what keeps the cells in step with it.
pub(super) struct Taking<'a> {
    pub(super) responder: &'a mut Responder,
    pub(super) conflating: &'a mut Option<Conflating>,
}

impl Delivery for Taking<'_> {
    fn on_lines(&mut self, first: Stamp, lines: &[Line], path: LanePath, publish_time: Option<Nanos>) {
        self.responder.on_lines(first, lines, path, publish_time);
        if let Some(Conflating { conflator, .. }) = self.conflating {
            lines.iter().for_each(|line| conflator.on_line(&line.record));
        }
    }

    fn on_gap(&mut self, gap: Gap) {
        self.responder.on_gap(gap);
        if let Some(conflating) = self.conflating {
            conflating.on_doubt();
        }
    }

    fn on_joined(&mut self, at: Stamp) {
        self.responder.on_joined(at);
    }

    fn on_epoch(&mut self, from: Epoch, to: Epoch) {
        self.responder.on_epoch(from, to);
        if let Some(conflating) = self.conflating {
            conflating.conflator.on_epoch();
            conflating.cells.set_round(conflating.conflator.round());
            conflating.ended = false;
        }
    }

    fn on_publish_time(&mut self, lane: Lane, time: Nanos) {
        self.responder.on_publish_time(lane, time);
    }

    fn on_path_silent(&mut self, path: LanePath, since: Nanos) {
        self.responder.on_path_silent(path, since);
    }

    fn on_split(&mut self, split: Split) {
        self.responder.on_split(split);
    }

    fn on_end(&mut self, at: Stamp) {
        self.responder.on_end(at);
        if let Some(conflating) = self.conflating {
            conflating.ended = true;
        }
    }
}

impl OwnDigests for Taking<'_> {
    fn own_digest(&self, instrument: InstrumentId) -> OwnDigest {
        self.responder.own_digest(instrument)
    }
}
