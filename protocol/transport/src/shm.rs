//! Rings between processes: the shared-memory file.
//!
//! A named ring is the file `/dev/shm/bookcast-<name>-<lane>.ring` (another directory by [`RingOptions::dir`] or the
//! environment variable [`DIR_VARIABLE`]):
//!
//! ```text
//!  byte 0              4096                8192
//!  header page         counters page       region: the latest line in 128 bytes, then 64 bytes a line
//! ```
//!
//! Where the machine has a hugetlbfs mount with enough free pages, the region is a file of its own there, and the header
//! names it. Readers map everything read-only, after they have checked the header against the files' lengths.
//!
//! **Appearing.** The file is made under a temporary name in the same directory, locked, filled and given all its memory
//! (so that no store can meet a full file system), and only then linked to its name. Who sees the name sees a whole ring.
//!
//! **Alive** means that the file's lock (flock, exclusive) is held; a pid proves nothing. Two starters cannot both win:
//! a name that does not exist is taken by a hard link, which fails if somebody was quicker; a name that exists is
//! replaced only by whoever holds the lock of the very file that the name leads to, checked after the lock was taken. A
//! lock that is held is tried again for [`LOCK_PATIENCE`] before its holder counts as alive, because another starter may
//! be about to replace that file.
//!
//! **Leftovers.** A publisher that ends removes its name. One that was killed leaves its file behind, without a lock:
//! readers may still drain it, the next publisher of the lane replaces it. Temporary files of dead starters are removed
//! by the next starter, again under their lock.
//!
//! [`list`] tells the living from the dead by `/proc/locks`, because to try the lock would be to hold it for a moment,
//! in which a starting publisher could take that for life.

mod error;
mod file;
pub(crate) mod named;
mod rx;

use std::path::{Path, PathBuf};
use std::time::Duration;

use protocol::line::{Epoch, LINE_LEN, SequenceNumber};
use protocol::record::{ChannelId, Lane};

use crate::ring::RingShape;

pub use error::{BadFile, SetupError};
pub(crate) use file::Published;
pub use file::{HEADER_LEN, MAGIC, RingHeader, ShmRing, VERSION};
pub(crate) use named::{MAP_HINT, OPEN_HINT};
pub use rx::{RxCounts, RxOptions, ShmRx};

/// The environment variable that names the directory of the ring files.
pub const DIR_VARIABLE: &str = "BOOKCAST_SHM_DIR";
/// The directory if nothing else is said.
pub const DEFAULT_DIR: &str = "/dev/shm";
/// How long a held lock is tried again before its holder counts as alive.
pub const LOCK_PATIENCE: Duration = Duration::from_millis(60);
/// The most bytes of a ring's name.
pub const MAX_NAME_LEN: usize = 64;
/// The most lines of a ring: 64 GiB of them.
pub const MAX_LINES: usize = 1 << 30;

/// How to create a named ring.
#[derive(Clone, Debug)]
pub struct RingOptions {
    /// The channel's name as strategies know it: letters, digits, `.`, `_` and `-`, at most [`MAX_NAME_LEN`].
    pub name: String,
    /// The channel.
    pub channel: ChannelId,
    /// The lane.
    pub lane: Lane,
    /// The epoch of every line.
    pub epoch: Epoch,
    /// The first line's sequence number: 1, or where a publisher that joins a running epoch begins.
    pub first: SequenceNumber,
    /// The number of places, a power of two of at least 2.
    pub lines: usize,
    /// The directory; `None`: by [`DIR_VARIABLE`], else [`DEFAULT_DIR`].
    pub dir: Option<PathBuf>,
    /// Whether to look for huge pages.
    pub huge_pages: bool,
}

impl RingOptions {
    /// A ring from sequence number 1 on, in the usual directory, on huge pages if there are any.
    pub fn new(name: &str, channel: ChannelId, lane: Lane, epoch: Epoch, lines: usize) -> RingOptions {
        let (name, first) = (name.to_owned(), SequenceNumber::FIRST);
        RingOptions { name, channel, lane, epoch, first, lines, dir: None, huge_pages: true }
    }
}

/// Whether a ring's publisher runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Aliveness {
    /// It holds the file's lock.
    Alive,
    /// Nobody does, or somebody whom this process's pid namespace does not show.
    Dead,
    /// `/proc/locks` cannot be read here.
    Unknown,
}

/// One ring that [`list`] found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RingInfo {
    /// Its name.
    pub name: String,
    /// Its channel.
    pub channel: ChannelId,
    /// Its lane.
    pub lane: Lane,
    /// Its epoch.
    pub epoch: Epoch,
    /// Its number of places.
    pub lines: usize,
    /// The process that created it.
    pub pid: u32,
    /// Whether that process still runs.
    pub aliveness: Aliveness,
    /// Its file.
    pub path: PathBuf,
}

/// The rings of the usual directory, by name and lane. Files that are no rings are left out.
///
/// # Errors
/// [`SetupError::System`] if the directory cannot be read.
pub fn list() -> Result<Vec<RingInfo>, SetupError> {
    list_in(&dir_or_default(None))
}

/// The rings of `dir`. See [`list`].
///
/// # Errors
/// [`SetupError::System`] if the directory cannot be read.
pub fn list_in(dir: &Path) -> Result<Vec<RingInfo>, SetupError> {
    file::list(dir)
}

/// Whether a publisher could take `lane` of the channel `name` now: for whoever has something to spend before it creates the
/// ring, such as an epoch. `dir` as in [`RingOptions`].
///
/// # Errors
/// [`SetupError::Alive`] when another process publishes this lane; others as [`RingWriter::create`] would give them.
///
/// [`RingWriter::create`]: crate::RingWriter::create
pub fn check_free(dir: Option<&Path>, name: &str, lane: Lane) -> Result<(), SetupError> {
    file::check_free(&path_of(&dir_or_default(dir), name, lane)?)
}

/// The counters of the ring `name` and `lane` in the usual directory, in their order of registration, whether its
/// publisher runs or not.
///
/// # Errors
/// As [`ShmRing::open`].
pub fn read_counters(name: &str, lane: Lane) -> Result<Vec<(String, u64)>, SetupError> {
    read_counters_in(&dir_or_default(None), name, lane)
}

/// The counters of a ring in `dir`. See [`read_counters`].
///
/// # Errors
/// As [`ShmRing::open`].
pub fn read_counters_in(dir: &Path, name: &str, lane: Lane) -> Result<Vec<(String, u64)>, SetupError> {
    file::read_counters(dir, name, lane)
}

/// The directory that holds when `dir` says nothing.
pub(crate) fn dir_or_default(dir: Option<&Path>) -> PathBuf {
    match dir {
        Some(dir) => dir.to_owned(),
        None => std::env::var_os(DIR_VARIABLE).map_or_else(|| PathBuf::from(DEFAULT_DIR), PathBuf::from),
    }
}

/// Where the ring `name` and `lane` is in `dir`.
///
/// # Errors
/// [`SetupError::Name`] if the name would lead elsewhere.
pub(crate) fn path_of(dir: &Path, name: &str, lane: Lane) -> Result<PathBuf, SetupError> {
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if name.is_empty() || name.len() > MAX_NAME_LEN || !name.bytes().all(is_legal) {
        return Err(SetupError::Name { name: name.to_owned() });
    }
    Ok(dir.join(format!("bookcast-{name}-{}.ring", lane.0)))
}

/// Bytes of the region of a ring of `lines` lines.
pub(crate) const fn region_len(lines: usize) -> usize {
    2 * LINE_LEN + lines * LINE_LEN
}

/// A shape, or the error that says what is wrong with it.
pub(crate) fn shape(epoch: Epoch, first: SequenceNumber, lines: usize) -> Result<RingShape, SetupError> {
    let shape = if lines <= MAX_LINES { RingShape::new(epoch, first, lines) } else { None };
    shape.ok_or(SetupError::Shape { lines, epoch: epoch.0, first: first.0 })
}
