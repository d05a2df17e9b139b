//! The cells' file: its header, how it appears, how it is opened.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use protocol::line::Epoch;
use protocol::record::{ChannelId, Lane};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{CELL_LEN, MAX_CELLS, file_len};
use crate::memory::{Mapping, PAGE_LEN};
use crate::ring::RingWriter;
use crate::shm::{self, BadFile, MAP_HINT, OPEN_HINT, SetupError, named};

/// The first eight bytes of a file of cells, whatever its version.
pub const CELLS_MAGIC: [u8; 8] = *b"BKC-CELL";
/// The version of the file's layout, and of the cells in it.
pub const CELLS_VERSION: u32 = 1;
/// Bytes of the header page.
pub(super) const HEADER_LEN: usize = PAGE_LEN;
/// What stands in the place of the ring file's extension.
pub(super) const EXTENSION: &str = "cells";

/// The header page. Everything in it is fixed before the file gets its name.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct CellsHeader {
    /// [`CELLS_MAGIC`].
    pub(super) magic: [u8; 8],
    /// [`CELLS_VERSION`].
    pub(super) version: U32,
    /// Bytes of this page.
    pub(super) header_len: U32,
    /// The number of cells.
    pub(super) cells: U64,
    /// Bytes of a cell: 640.
    pub(super) cell_len: U32,
    /// The channel.
    pub(super) channel: ChannelId,
    /// The lane.
    pub(super) lane: Lane,
    /// The epoch published in.
    pub(super) epoch: U16,
    /// Zero.
    pub(super) reserved_1: [u8; 2],
    /// The process that made the file, as its own pid namespace counts.
    pub(super) pid: U32,
    /// Bytes of this file.
    pub(super) total_len: U64,
    /// When the file was made, UTC ns by the system's clock.
    pub(super) created: U64,
    /// Zero.
    pub(super) reserved_2: [u8; HEADER_LEN - 56],
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<CellsHeader>() == HEADER_LEN);
    assert!(offset_of!(CellsHeader, version) == 8);
    assert!(offset_of!(CellsHeader, cells) == 16);
    assert!(offset_of!(CellsHeader, cell_len) == 24);
    assert!(offset_of!(CellsHeader, channel) == 28);
    assert!(offset_of!(CellsHeader, lane) == 30);
    assert!(offset_of!(CellsHeader, epoch) == 32);
    assert!(offset_of!(CellsHeader, pid) == 36);
    assert!(offset_of!(CellsHeader, total_len) == 40);
    assert!(offset_of!(CellsHeader, created) == 48);
};

impl CellsHeader {
    pub(super) fn new(ring: &RingWriter, cells: usize) -> CellsHeader {
        let created = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let Epoch(epoch) = ring.epoch();
        CellsHeader {
            magic: CELLS_MAGIC,
            version: U32::new(CELLS_VERSION),
            header_len: U32::new(HEADER_LEN as u32),
            cells: U64::new(cells as u64),
            cell_len: U32::new(CELL_LEN as u32),
            channel: ring.channel(),
            lane: ring.lane(),
            epoch: U16::new(epoch),
            reserved_1: [0; 2],
            pid: U32::new(std::process::id()),
            total_len: U64::new(file_len(cells) as u64),
            created: U64::new(created.as_nanos() as u64),
            reserved_2: [0; HEADER_LEN - 56],
        }
    }

    /// As `check` or the writer made sure.
    pub(super) fn cells(&self) -> usize {
        self.cells.get() as usize
    }

    /// Checks everything that can be checked before the file is mapped.
    fn check(&self, lane: Lane, file_len_found: u64) -> Result<(), BadFile> {
        let wrong = |field| Err(BadFile::Header { field });
        if self.magic != CELLS_MAGIC {
            return Err(BadFile::Magic);
        }
        if self.version.get() != CELLS_VERSION {
            return Err(BadFile::Version { found: self.version.get() });
        }
        if self.header_len.get() as usize != HEADER_LEN {
            return wrong("header length");
        }
        if self.cell_len.get() as usize != CELL_LEN {
            return wrong("cell length");
        }
        if self.cells.get() > MAX_CELLS as u64 {
            return wrong("number of cells");
        }
        if self.lane != lane {
            return wrong("lane");
        }
        let needed = file_len(self.cells()) as u64;
        if self.total_len.get() != needed {
            return wrong("total length");
        }
        if file_len_found < needed {
            return Err(BadFile::Truncated { needed, actual: file_len_found });
        }
        Ok(())
    }
}

/// A writer's hold on its name. Dropping it removes the name, if it still leads to this file.
pub(super) struct Published {
    /// Locked for as long as it is open, so that sweepers leave it alone.
    file: File,
    path: PathBuf,
}

impl Published {
    /// Makes the file and gives it the name `path`, whatever stood there. The caller's ring is proof that nobody alive has
    /// that name: they share one lock.
    pub(super) fn create(path: &Path, header: &CellsHeader) -> Result<(Mapping, Published), SetupError> {
        let temporary = named::Temporary::beside(path)?;
        let len = header.total_len.get() as usize;
        named::check_memory(path, len)?;
        let mapping = named::fill(temporary.file(), temporary.path(), len)?;
        let written = temporary.file().write_all_at(header.as_bytes(), 0);
        written.map_err(SetupError::system("write", temporary.path(), OPEN_HINT))?;
        fs::rename(temporary.path(), path).map_err(SetupError::system("name", path, OPEN_HINT))?;
        let file = temporary.into_file()?;
        Ok((mapping, Published { file, path: path.to_owned() }))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        if named::is_same_file(&self.file, &self.path) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Removes the cells that a dead publisher of the ring at `ring` left: who holds the ring's lock may.
pub(crate) fn remove_leftover(ring: &Path) {
    let _ = fs::remove_file(ring.with_extension(EXTENSION));
}

/// What was found under a name: the mapped file, its header, its device and inode, its path.
type Found = (Mapping, Box<CellsHeader>, ((u64, u64), PathBuf));

pub(super) fn open(dir: Option<&Path>, name: &str, lane: Lane) -> Result<Found, SetupError> {
    let path = shm::path_of(&shm::dir_or_default(dir), name, lane)?.with_extension(EXTENSION);
    let file = named::open_read(&path)?;
    let bad = |cause| SetupError::BadFile { path: path.clone(), cause };
    let metadata = file.metadata().map_err(SetupError::system("examine", &path, "try again"))?;
    if !metadata.is_file() {
        return Err(bad(BadFile::Kind));
    }
    let mut page = [0; HEADER_LEN];
    match file.read_exact_at(&mut page, 0) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(bad(BadFile::Truncated { needed: HEADER_LEN as u64, actual: metadata.len() }));
        }
        Err(error) => return Err(SetupError::system("read", &path, OPEN_HINT)(error)),
    }
    let header: Box<CellsHeader> = Box::new(zerocopy::transmute!(page));
    header.check(lane, metadata.len()).map_err(bad)?;
    let mapping = Mapping::of_file(&file, header.total_len.get() as usize, false)
        .map_err(SetupError::system("map", &path, MAP_HINT))?;
    mapping.populate();
    mapping.touch();
    Ok((mapping, header, ((metadata.dev(), metadata.ino()), path)))
}

/// Whether `path` leads to another file than the one with this device and inode.
pub(super) fn is_another(path: &Path, identity: (u64, u64)) -> bool {
    fs::metadata(path).is_ok_and(|found| (found.dev(), found.ino()) != identity)
}
