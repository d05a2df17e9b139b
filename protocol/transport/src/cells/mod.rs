//! Cells: the latest of many things, each in a place of its own, for any number of readers.
//!
//! The recovery server keeps how each instrument stands in the cells of a file beside the ring's,
//! `bookcast-<name>-<lane>.cells`, which readers map read-only:
//!
//! ```text
//!  byte 0              4096                                            8192
//!  header page         round u64, unused to 64, then the pulse cell    cell 0, cell 1 …   640 bytes each
//! ```
//!
//! A cell is a version word and 79 words of content, as [`protocol::conflation`] makes them; cell i is instrument i's, and
//! cell 0 is not used. The pulse is a small cell of the same making: it says which line comes next and what the server's
//! clock reads, and changes each millisecond or so for as long as the server lives. The round is a word by itself: it rises before
//! the first cell of a new round is written.
//!
//! Whoever holds the ring's lock has the right to this name too, so there is one writer. The file is made whole under a
//! temporary name and then renamed; a dead publisher's is replaced by the next publisher of the lane, or removed.

pub mod core;
mod file;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use protocol::conflation::{CONTENT_WORDS, Content};
use protocol::line::{Epoch, Stamp};
use protocol::record::{ChannelId, Lane};
use protocol::time::Nanos;

use crate::memory::{Mapping, SharedWord};
use crate::ring::RingWriter;
use crate::ring::core::{Word, WordMut};
use crate::shm::SetupError;

use self::core::Look;
use file::{CellsHeader, Published};

pub(crate) use file::remove_leftover;
pub use file::{CELLS_MAGIC, CELLS_VERSION};

/// Bytes of a cell.
pub const CELL_LEN: usize = 8 * CELL_WORDS;
const CELL_WORDS: usize = 1 + CONTENT_WORDS;
const _: () = assert!(CELL_LEN == 640);
/// The most cells of one file: 2.5 GiB of them.
pub const MAX_CELLS: usize = 1 << 22;
/// Where the round stands, and the pulse behind it in a cache line of its own.
const ROUND_OFFSET: usize = file::HEADER_LEN;
const PULSE_OFFSET: usize = ROUND_OFFSET + 64;
const PULSE_WORDS: usize = 5;
/// Where cell 0 begins.
const CELLS_OFFSET: usize = 2 * file::HEADER_LEN;
/// Looks at one cell before it counts as busy: a writing takes some hundred nanoseconds, unless its writer is not running.
const TRIES: u32 = 1000;

/// Bytes of a file of so many cells.
const fn file_len(cells: usize) -> usize {
    CELLS_OFFSET + cells * CELL_LEN
}

/// How the writer stood when it last said so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pulse {
    /// How often it has said so: it lives as long as this rises. Counted by [`CellsWriter::beat`].
    pub beat: u64,
    /// The line that it takes next.
    pub next: Stamp,
    /// Its clock.
    pub clock: Nanos,
    /// Cells that were behind what it knew.
    pub behind: u64,
    /// The publisher has nothing more to say, and once none is behind the cells are final.
    pub ended: bool,
}

/// Writes cells. There is one writer for each file, always: nothing here can be cloned.
pub struct CellsWriter {
    mapping: Arc<Mapping>,
    /// How often each cell was written; the pulse's count is the last.
    times: Box<[u64]>,
    /// Removes the name; `None` for cells without one.
    published: Option<Published>,
    header: Box<CellsHeader>,
}

impl CellsWriter {
    /// `cells` cells beside the file of `ring`; in this process alone, if the ring has no name. All of their memory is
    /// touched.
    ///
    /// # Errors
    /// [`SetupError`]: more of them than [`MAX_CELLS`], or than there is memory for; or the system refuses.
    pub fn beside(ring: &RingWriter, cells: usize) -> Result<CellsWriter, SetupError> {
        if cells > MAX_CELLS {
            return Err(SetupError::Cells { cells });
        }
        let header = CellsHeader::new(ring, cells);
        let (mapping, published) = match ring.path() {
            Some(path) => {
                let (mapping, published) = Published::create(&path.with_extension(file::EXTENSION), &header)?;
                (mapping, Some(published))
            }
            None => {
                let len = file_len(cells);
                let (mapping, _) = Mapping::anonymous(len).map_err(|source| SetupError::memory(len, source))?;
                (mapping, None)
            }
        };
        Ok(CellsWriter {
            mapping: Arc::new(mapping),
            times: vec![0; cells + 1].into_boxed_slice(),
            published,
            header: Box::new(header),
        })
    }

    /// How many cells there are.
    pub fn cells(&self) -> usize {
        self.times.len() - 1
    }

    /// Where the file is, if there is one.
    pub fn path(&self) -> Option<&Path> {
        self.published.as_ref().map(Published::path)
    }

    /// Says which round cells are written in from now on.
    pub fn set_round(&mut self, round: u32) {
        // Release: it is seen before whatever is written into cells after it (`CellsReader::round`).
        self.mapping.word_mut(ROUND_OFFSET).store(u64::from(round), Ordering::Release);
    }

    /// Writes cell `index`.
    ///
    /// # Panics
    /// If there is no such cell.
    #[inline]
    pub fn write(&mut self, index: usize, content: &Content) {
        assert!(index < self.cells(), "cell {index} of {}", self.cells());
        let cell = self.mapping.words_mut(CELLS_OFFSET + index * CELL_LEN, CELL_WORDS);
        core::write(cell, self.times[index], content);
        self.times[index] += 1;
    }

    /// Says that this writer lives, and how it stands.
    pub fn beat(&mut self, pulse: Pulse) {
        let cell = self.mapping.words_mut(PULSE_OFFSET, PULSE_WORDS);
        let times = self.times.last_mut().expect("the pulse's own");
        core::write(cell, *times, &[pulse.next.0, pulse.clock.0, pulse.behind, u64::from(pulse.ended)]);
        *times += 1;
    }

    /// A reader in this process.
    pub fn reader(&self) -> CellsReader {
        CellsReader { mapping: Arc::clone(&self.mapping), header: self.header.clone(), found: None }
    }
}

/// Reads cells, of this process or another. Nothing that it does is known to the writer.
pub struct CellsReader {
    mapping: Arc<Mapping>,
    header: Box<CellsHeader>,
    /// The file's device and inode, and its path.
    found: Option<((u64, u64), PathBuf)>,
}

impl CellsReader {
    /// Opens the cells beside the ring `name` and `lane`, whether their writer runs or not. `dir`: `None` by
    /// [`DIR_VARIABLE`](crate::shm::DIR_VARIABLE), else [`DEFAULT_DIR`](crate::shm::DEFAULT_DIR).
    ///
    /// # Errors
    /// [`SetupError::NotThere`] if there are none (yet); [`SetupError::BadFile`] if the file is foreign, truncated, or another
    /// version's; [`SetupError::System`] if the system refuses.
    pub fn open(dir: Option<&Path>, name: &str, lane: Lane) -> Result<CellsReader, SetupError> {
        let (mapping, header, found) = file::open(dir, name, lane)?;
        Ok(CellsReader { mapping: Arc::new(mapping), header, found: Some(found) })
    }

    /// How many cells there are.
    pub fn cells(&self) -> usize {
        self.header.cells()
    }

    /// The channel.
    pub fn channel(&self) -> ChannelId {
        self.header.channel
    }

    /// The epoch that was published in when the file was made.
    pub fn epoch(&self) -> Epoch {
        Epoch(self.header.epoch.get())
    }

    /// The process that writes.
    pub fn pid(&self) -> u32 {
        self.header.pid.get()
    }

    /// The round that cells are written in: to be asked for after a cell was read.
    #[inline]
    pub fn round(&self) -> u32 {
        // Acquire: pairs with the Release in `CellsWriter::set_round`.
        self.mapping.words(ROUND_OFFSET, 1)[0].load(Ordering::Acquire) as u32
    }

    /// How the writer stood when it last said so; `None` before it ever did, or while it is about to and does not run.
    pub fn pulse(&self) -> Option<Pulse> {
        let mut words = [0; PULSE_WORDS - 1];
        match look_again(self.mapping.words(PULSE_OFFSET, PULSE_WORDS), &mut words) {
            Look::Version(version) => {
                let [next, clock, behind, ended] = words;
                Some(Pulse { beat: version / 2, next: Stamp(next), clock: Nanos(clock), behind, ended: ended != 0 })
            }
            Look::Never | Look::InWriting => None,
        }
    }

    /// The version of cell `index`, odd while it is being written; 0 if there is no such cell, too. One load, to see whether
    /// anything is new.
    #[inline]
    pub fn version(&self, index: usize) -> u64 {
        if index >= self.cells() {
            return 0;
        }
        // Relaxed: whoever finds it changed reads the cell.
        self.mapping.words(CELLS_OFFSET + index * CELL_LEN, 1)[0].load(Ordering::Relaxed)
    }

    /// Reads cell `index` into `content`, looking again for as long as it is being written, within reason.
    #[inline]
    pub fn read(&self, index: usize, content: &mut Content) -> Look {
        if index >= self.cells() {
            return Look::Never;
        }
        look_again(self.mapping.words(CELLS_OFFSET + index * CELL_LEN, CELL_WORDS), content)
    }

    /// Whether the file's name now leads to another file. A name that leads nowhere is no other file.
    pub fn is_replaced(&self) -> bool {
        self.found.as_ref().is_some_and(|(identity, path)| file::is_another(path, *identity))
    }
}

fn look_again(cell: &[SharedWord], content: &mut [u64]) -> Look {
    for _ in 0..TRIES {
        match core::look(cell, content) {
            Look::InWriting => std::hint::spin_loop(),
            found => return found,
        }
    }
    Look::InWriting
}

// The traits are what the algorithm knows of words; that mapped ones have them is what makes it run here.
const _: fn() = || {
    fn has<W: Word, M: WordMut>() {}
    has::<SharedWord, std::sync::atomic::AtomicU64>();
};
