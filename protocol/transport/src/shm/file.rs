//! The file: its header, how it appears, how it is taken over, how it is opened.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use protocol::line::{Epoch, SequenceNumber};
use protocol::record::{ChannelId, Lane};
use protocol::run::{Carrier, LanePath};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::named::{
    FULL_HINT, MAP_HINT, OPEN_HINT, TAKE_TRIES, TEMPORARY, Temporary, check_memory, create_locked, fill, is_same_file,
    open_read, sweep, unique_suffix,
};
use super::{Aliveness, BadFile, LOCK_PATIENCE, MAX_NAME_LEN, RingInfo, RingOptions, SetupError};
use crate::counters::{self, COUNTERS_LEN, CounterPage};
use crate::memory::{Mapping, PAGE_LEN, Pages, RingMemory};
use crate::ring::{RingReader, RingShape, StartAt};

/// The first eight bytes of a ring file, whatever its version.
pub const MAGIC: [u8; 8] = *b"BKC-RING";
/// The version of the file's layout, and of the lines in it.
pub const VERSION: u32 = 1;
/// Bytes of the header page.
pub const HEADER_LEN: usize = PAGE_LEN;
/// Bytes of a region path in the header.
const REGION_PATH_LEN: usize = 256;
/// Where the region begins in the ring file.
const REGION_OFFSET: usize = HEADER_LEN + COUNTERS_LEN;
/// The beginning and the end of the name of a region of its own on huge pages.
const REGION: (&str, &str) = ("bookcast-", ".region");
/// The header page. Everything in it is fixed before the file gets its name.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RingHeader {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: U32,
    /// Bytes of this page.
    pub header_len: U32,
    /// The number of places, a power of two.
    pub lines: U64,
    /// Bytes of a line: 64.
    pub line_len: U32,
    /// The channel.
    pub channel: ChannelId,
    /// The lane.
    pub lane: Lane,
    /// The epoch of every line.
    pub epoch: U16,
    /// Zero.
    pub reserved_1: [u8; 2],
    /// The process that created the file, as its own pid namespace counts.
    pub pid: U32,
    /// The sequence number of the first line that the ring ever holds.
    pub first_sequence: U64,
    /// Where the counters page begins in this file, bytes.
    pub counters_offset: U64,
    /// Bytes of the counters page.
    pub counters_len: U64,
    /// Where the region begins, bytes: in this file, or in the one that `region_path` names.
    pub region_offset: U64,
    /// Bytes of the region: 128 + 64 * lines.
    pub region_len: U64,
    /// Bytes of this file.
    pub total_len: U64,
    /// Bytes of a page of the region's file; 0 for whatever the system has.
    pub huge_page_len: U64,
    /// When the file was made, UTC ns by the system's clock.
    pub created: U64,
    /// The ring's name, filled up with zeros.
    pub name: [u8; MAX_NAME_LEN],
    /// The absolute path of the region's own file, filled up with zeros; all zero: it is in this file.
    pub region_path: [u8; REGION_PATH_LEN],
    /// Zero.
    pub reserved_2: [u8; RESERVED_LEN],
}

const RESERVED_LEN: usize = HEADER_LEN - 104 - MAX_NAME_LEN - REGION_PATH_LEN;
const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<RingHeader>() == HEADER_LEN);
    assert!(offset_of!(RingHeader, version) == 8);
    assert!(offset_of!(RingHeader, lines) == 16);
    assert!(offset_of!(RingHeader, channel) == 28);
    assert!(offset_of!(RingHeader, lane) == 30);
    assert!(offset_of!(RingHeader, epoch) == 32);
    assert!(offset_of!(RingHeader, pid) == 36);
    assert!(offset_of!(RingHeader, first_sequence) == 40);
    assert!(offset_of!(RingHeader, counters_offset) == 48);
    assert!(offset_of!(RingHeader, region_offset) == 64);
    assert!(offset_of!(RingHeader, total_len) == 80);
    assert!(offset_of!(RingHeader, created) == 96);
    assert!(offset_of!(RingHeader, name) == 104);
    assert!(offset_of!(RingHeader, region_path) == 168);
};

/// Text at the beginning of a field of zeros.
fn text_in(field: &[u8]) -> Option<&str> {
    let len = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    std::str::from_utf8(&field[..len]).ok()
}

/// `text` at the beginning of a field of zeros. The caller has checked the length.
fn text_field<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [0; N];
    field[..text.len()].copy_from_slice(text.as_bytes());
    field
}

impl RingHeader {
    /// Checks everything that can be checked before the file is mapped.
    fn check(&self, file_len: u64) -> Result<RingShape, BadFile> {
        let wrong = |field| Err(BadFile::Header { field });
        if self.magic != MAGIC {
            return Err(BadFile::Magic);
        }
        if self.version.get() != VERSION {
            return Err(BadFile::Version { found: self.version.get() });
        }
        if self.header_len.get() as usize != HEADER_LEN {
            return wrong("header length");
        }
        if self.line_len.get() as usize != protocol::line::LINE_LEN {
            return wrong("line length");
        }
        let lines = usize::try_from(self.lines.get()).unwrap_or(usize::MAX);
        let Ok(shape) = super::shape(Epoch(self.epoch.get()), SequenceNumber(self.first_sequence.get()), lines) else {
            return wrong("size, epoch or first sequence number");
        };
        if self.region_len.get() != super::region_len(lines) as u64 {
            return wrong("region length");
        }
        if self.counters_offset.get() as usize != HEADER_LEN || self.counters_len.get() as usize != COUNTERS_LEN {
            return wrong("counters page");
        }
        let has_own_region = self.region_path[0] != 0;
        let (region_offset, total_len) = match has_own_region {
            true => (0, REGION_OFFSET as u64),
            false => (REGION_OFFSET as u64, REGION_OFFSET as u64 + self.region_len.get()),
        };
        if self.region_offset.get() != region_offset {
            return wrong("region offset");
        }
        if self.total_len.get() != total_len {
            return wrong("total length");
        }
        if text_in(&self.name).is_none_or(str::is_empty) {
            return wrong("name");
        }
        if has_own_region && text_in(&self.region_path).is_none_or(|path| !path.starts_with('/')) {
            return wrong("region path");
        }
        if file_len < total_len {
            return Err(BadFile::Truncated { needed: total_len, actual: file_len });
        }
        Ok(shape)
    }

    /// Reads the header page of `file`.
    fn read(file: &File) -> io::Result<Result<RingHeader, BadFile>> {
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Ok(Err(BadFile::Kind));
        }
        let mut page = [0; HEADER_LEN];
        match file.read_exact_at(&mut page, 0) {
            Ok(()) => Ok(Ok(zerocopy::transmute!(page))),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Ok(Err(BadFile::Truncated { needed: HEADER_LEN as u64, actual: metadata.len() }))
            }
            Err(error) => Err(error),
        }
    }
}

/// A ring of another process, mapped read-only.
pub struct ShmRing {
    head: Arc<Mapping>,
    memory: RingMemory,
    shape: RingShape,
    header: Box<RingHeader>,
    /// Device and inode of the file.
    identity: (u64, u64),
    path: PathBuf,
    pages: Pages,
}

impl ShmRing {
    /// Opens the ring `name` and `lane` in the usual directory, whether its publisher runs or not.
    ///
    /// # Errors
    /// [`SetupError::NotThere`] if there is none yet, which is worth trying again; [`SetupError::BadFile`] if the file is
    /// foreign, truncated, or another version's; [`SetupError::System`] if the system refuses.
    pub fn open(name: &str, lane: Lane) -> Result<ShmRing, SetupError> {
        ShmRing::open_in(&super::dir_or_default(None), name, lane)
    }

    /// Opens a ring in `dir`. See [`ShmRing::open`].
    ///
    /// # Errors
    /// As [`ShmRing::open`].
    pub fn open_in(dir: &Path, name: &str, lane: Lane) -> Result<ShmRing, SetupError> {
        let path = super::path_of(dir, name, lane)?;
        let (file, header) = open_checked(&path)?;
        let bad = |cause| SetupError::BadFile { path: path.clone(), cause };
        let metadata = file.metadata().map_err(SetupError::system("examine", &path, "try again"))?;
        let shape = header.check(metadata.len()).map_err(bad)?;
        let header_name = text_in(&header.name).unwrap_or_default();
        if header_name != name || header.lane != lane {
            return Err(bad(BadFile::Misnamed { name: header_name.to_owned(), lane: header.lane.0.get() }));
        }
        let map = |file: &File, path: &Path, len: usize| {
            let mapping = Mapping::of_file(file, len, false).map_err(SetupError::system("map", path, MAP_HINT))?;
            mapping.advise_huge();
            mapping.populate();
            mapping.touch();
            Ok::<_, SetupError>(Arc::new(mapping))
        };
        let lines = shape.capacity();
        let region_path = text_in(&header.region_path).unwrap_or_default();
        let (head, memory, pages) = if region_path.is_empty() {
            let mapping = map(&file, &path, header.total_len.get() as usize)?;
            let pages = mapping.pages();
            (Arc::clone(&mapping), RingMemory::new(mapping, REGION_OFFSET, lines), pages)
        } else {
            let region_path = Path::new(region_path);
            let region = open_read(region_path)?;
            let page_len = usize::try_from(header.huge_page_len.get()).unwrap_or(0).max(PAGE_LEN);
            let needed = (header.region_len.get() as usize)
                .checked_next_multiple_of(page_len)
                .ok_or_else(|| bad(BadFile::Header { field: "huge page length" }))?;
            let actual = region.metadata().map_err(SetupError::system("examine", region_path, "try again"))?.len();
            if actual < needed as u64 {
                let cause = BadFile::Truncated { needed: needed as u64, actual };
                return Err(SetupError::BadFile { path: region_path.to_owned(), cause });
            }
            let region = map(&region, region_path, needed)?;
            (map(&file, &path, REGION_OFFSET)?, RingMemory::new(region, 0, lines), Pages::Huge { page_len })
        };
        let identity = (metadata.dev(), metadata.ino());
        Ok(ShmRing { head, memory, shape, header, identity, path, pages })
    }

    /// A reader of this ring. See [`RingReader::new`].
    pub fn reader(&self, start: StartAt, hedge_ns: u64) -> RingReader {
        let path = LanePath::new(self.header.lane, Carrier::SharedMemory);
        RingReader::new(self.memory.clone(), self.shape, path, start, hedge_ns)
    }

    /// The region.
    pub fn memory(&self) -> &RingMemory {
        &self.memory
    }

    /// Its epoch, size and first line.
    pub fn shape(&self) -> &RingShape {
        &self.shape
    }

    /// Its header page.
    pub fn header(&self) -> &RingHeader {
        &self.header
    }

    /// Its channel.
    pub fn channel(&self) -> ChannelId {
        self.header.channel
    }

    /// Its lane.
    pub fn lane(&self) -> Lane {
        self.header.lane
    }

    /// The process that created it.
    pub fn pid(&self) -> u32 {
        self.header.pid.get()
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What kind of pages this process sees it on.
    pub fn pages(&self) -> Pages {
        self.pages
    }

    /// Its publisher's counters, in order of registration.
    pub fn counters(&self) -> Vec<(String, u64)> {
        counters::read(&self.head, HEADER_LEN)
    }

    /// Whether the file's name now leads to another file. A name that leads nowhere is no other file.
    pub(crate) fn is_replaced(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) != self.identity)
    }
}

/// Opens and reads the header page, which is not yet checked.
fn open_checked(path: &Path) -> Result<(File, Box<RingHeader>), SetupError> {
    let file = open_read(path)?;
    let header = RingHeader::read(&file).map_err(SetupError::system("read", path, OPEN_HINT))?;
    let header = header.map_err(|cause| SetupError::BadFile { path: path.to_owned(), cause })?;
    Ok((file, Box::new(header)))
}

/// A publisher's hold on its name: the lock, for as long as this lives. Dropping it removes the name, if it still leads
/// to this file, and then gives up the lock.
pub(crate) struct Published {
    /// The lock is this descriptor's. It is given up explicitly: the mapping keeps the open file alive for as long as a
    /// reader in this process has it.
    file: File,
    path: PathBuf,
    region_path: Option<PathBuf>,
}

/// What a named ring consists of.
pub(crate) struct Parts {
    pub(crate) memory: RingMemory,
    pub(crate) counters: CounterPage,
    pub(crate) shape: RingShape,
    pub(crate) pages: Pages,
}

impl Published {
    /// Makes the file, and takes its name.
    pub(crate) fn create(options: &RingOptions) -> Result<(Published, Parts), SetupError> {
        let shape = super::shape(options.epoch, options.first, options.lines)?;
        let dir = super::dir_or_default(options.dir.as_deref());
        let path = super::path_of(&dir, &options.name, options.lane)?;
        DirBuilder::new().recursive(true).mode(0o755).create(&dir).map_err(SetupError::system(
            "create directory",
            &dir,
            "name a directory that this user may create, in the configuration or by BOOKCAST_SHM_DIR",
        ))?;
        sweep(&dir, TEMPORARY);
        // Found out before gigabytes are allocated, and again when the name is taken.
        check_free(&path)?;

        let temporary = Temporary::create(&dir, &options.name, options.lane)?;
        let own_region = if options.huge_pages { OwnRegion::create(options, options.lines) } else { None };
        let len = if own_region.is_some() { REGION_OFFSET } else { REGION_OFFSET + super::region_len(options.lines) };
        check_memory(&path, len)?;
        let mapping = Arc::new(fill(temporary.file(), temporary.path(), len)?);
        let header = header(options, len, own_region.as_ref());
        temporary.file().write_all_at(header.as_bytes(), 0).map_err(SetupError::system(
            "write",
            temporary.path(),
            FULL_HINT,
        ))?;
        let (memory, pages) = match &own_region {
            Some(region) => {
                let pages = Pages::Huge { page_len: region.page_len };
                (RingMemory::new(Arc::clone(&region.mapping), 0, options.lines), pages)
            }
            None => (RingMemory::new(Arc::clone(&mapping), REGION_OFFSET, options.lines), mapping.pages()),
        };
        let file = take(temporary, &path)?;
        // The name is ours, and so is what a dead publisher left beside it.
        crate::cells::remove_leftover(&path);
        let region_path = own_region.map(OwnRegion::keep);
        let counters = CounterPage::new(mapping, HEADER_LEN);
        Ok((Published { file, path, region_path }, Parts { memory, counters, shape, pages }))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        // Nobody replaces the name while the lock is held, so what is compared is what is removed.
        if is_same_file(&self.file, &self.path) {
            let _ = fs::remove_file(&self.path);
        }
        if let Some(region) = &self.region_path {
            let _ = fs::remove_file(region);
        }
        let _ = self.file.unlock();
    }
}

/// The header of a new ring.
fn header(options: &RingOptions, total_len: usize, own_region: Option<&OwnRegion>) -> Box<RingHeader> {
    let created = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    Box::new(RingHeader {
        magic: MAGIC,
        version: U32::new(VERSION),
        header_len: U32::new(HEADER_LEN as u32),
        lines: U64::new(options.lines as u64),
        line_len: U32::new(protocol::line::LINE_LEN as u32),
        channel: options.channel,
        lane: options.lane,
        epoch: U16::new(options.epoch.0),
        reserved_1: [0; 2],
        pid: U32::new(std::process::id()),
        first_sequence: U64::new(options.first.0),
        counters_offset: U64::new(HEADER_LEN as u64),
        counters_len: U64::new(COUNTERS_LEN as u64),
        region_offset: U64::new(if own_region.is_some() { 0 } else { REGION_OFFSET as u64 }),
        region_len: U64::new(super::region_len(options.lines) as u64),
        total_len: U64::new(total_len as u64),
        huge_page_len: U64::new(own_region.map_or(0, |region| region.page_len as u64)),
        created: U64::new(created.as_nanos() as u64),
        name: text_field(&options.name),
        region_path: own_region.map_or([0; REGION_PATH_LEN], |region| text_field(&region.path_text)),
        reserved_2: [0; RESERVED_LEN],
    })
}

/// Gives the finished file of a ring the name `path`. Returns it, locked as it is.
fn take(temporary: Temporary, path: &Path) -> Result<File, SetupError> {
    for _ in 0..TAKE_TRIES {
        // A link and not a rename: it fails when the name exists.
        match fs::hard_link(temporary.path(), path) {
            Ok(()) => return temporary.into_file(),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(SetupError::system("link", path, OPEN_HINT)(error)),
        }
        match try_take(path)? {
            Taken::Alive(error) => return Err(error),
            Taken::Gone => {}
            Taken::Dead(lock) => {
                fs::rename(temporary.path(), path).map_err(SetupError::system("replace", path, OPEN_HINT))?;
                drop(lock);
                return temporary.into_file();
            }
        }
    }
    Err(SetupError::Contended { path: path.to_owned(), tries: TAKE_TRIES })
}

/// What stands under a ring's name.
enum Taken {
    /// Nothing, or not the same thing for long enough.
    Gone,
    /// A dead publisher's file, whose lock is ours now: nobody else may replace it.
    Dead(File),
    /// A living publisher's file.
    Alive(SetupError),
}

/// See [`super::check_free`].
pub(crate) fn check_free(path: &Path) -> Result<(), SetupError> {
    match try_take(path)? {
        Taken::Alive(error) => Err(error),
        Taken::Gone | Taken::Dead(_) => Ok(()),
    }
}

/// Tries to take the lock of whatever the name leads to.
fn try_take(path: &Path) -> Result<Taken, SetupError> {
    let (file, header) = match open_checked(path) {
        Ok(opened) => opened,
        Err(SetupError::NotThere { .. }) => return Ok(Taken::Gone),
        Err(error) => return Err(error),
    };
    if header.magic != MAGIC {
        // Not ours to replace.
        return Err(SetupError::BadFile { path: path.to_owned(), cause: BadFile::Magic });
    }
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) if is_same_file(&file, path) => return Ok(Taken::Dead(file)),
            Ok(()) => return Ok(Taken::Gone),
            Err(TryLockError::WouldBlock) if !is_same_file(&file, path) => return Ok(Taken::Gone),
            Err(TryLockError::WouldBlock) if begun.elapsed() >= LOCK_PATIENCE => {
                return Ok(Taken::Alive(SetupError::Alive {
                    pid: header.pid.get(),
                    channel: header.channel.0.get(),
                    lane: header.lane.0.get(),
                    path: path.to_owned(),
                }));
            }
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(2)),
            Err(TryLockError::Error(error)) => return Err(SetupError::system("lock", path, OPEN_HINT)(error)),
        }
    }
}

/// A region in a file of its own on a hugetlbfs mount. Dropping it without [`keep`](Self::keep) removes it.
struct OwnRegion {
    mapping: Arc<Mapping>,
    path_text: String,
    page_len: usize,
    /// Locked for as long as the process lives, so that sweepers leave the file alone: the mapping keeps the lock.
    file: Option<File>,
}

impl OwnRegion {
    /// `None` if there is no mount with enough free pages, or anything else is in the way: small pages will do.
    fn create(options: &RingOptions, lines: usize) -> Option<OwnRegion> {
        let len = super::region_len(lines);
        let mounts = fs::read_to_string("/proc/mounts").ok()?;
        let (dir, page_len) = hugetlbfs_mounts(&mounts).into_iter().find(|(_, page_len)| {
            let kib = page_len / 1024;
            let free = fs::read_to_string(format!("/sys/kernel/mm/hugepages/hugepages-{kib}kB/free_hugepages"));
            let free = free.ok().and_then(|text| text.trim().parse::<usize>().ok()).unwrap_or(0);
            // Less than a page of lines would waste most of it.
            len >= *page_len && free >= len.div_ceil(*page_len)
        })?;
        sweep(&dir, REGION);
        let name = || format!("{}{}-{}.{}{}", REGION.0, options.name, options.lane.0, unique_suffix(), REGION.1);
        let (file, path) = create_locked(&dir, name).ok()?;
        let path_text = path.to_str().filter(|text| text.len() < REGION_PATH_LEN).map(str::to_owned);
        let mapping = fill(&file, &path, len.next_multiple_of(page_len));
        let (Some(path_text), Ok(mapping)) = (path_text, mapping) else {
            let _ = fs::remove_file(&path);
            return None;
        };
        Some(OwnRegion { mapping: Arc::new(mapping), path_text, page_len, file: Some(file) })
    }

    /// The region is in use: whoever publishes it removes it.
    fn keep(mut self) -> PathBuf {
        self.file = None;
        PathBuf::from(std::mem::take(&mut self.path_text))
    }
}

impl Drop for OwnRegion {
    fn drop(&mut self) {
        if self.file.is_some() {
            let _ = fs::remove_file(&self.path_text);
        }
    }
}

/// The hugetlbfs mounts in the text of `/proc/mounts`, with the length of their pages.
fn hugetlbfs_mounts(text: &str) -> Vec<(PathBuf, usize)> {
    let mounts = text.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        let (dir, kind, options) = (fields.nth(1)?, fields.next()?, fields.next()?);
        let page_len = options.split(',').find_map(|option| option.strip_prefix("pagesize="));
        let page_len = match page_len {
            Some(size) => size.strip_suffix('M').map(|n| (n, 20)).or(size.strip_suffix('G').map(|n| (n, 30))),
            None => Some(("2", 20)),
        };
        let page_len = page_len.and_then(|(number, shift)| number.parse::<usize>().ok().map(|n| n << shift));
        (kind == "hugetlbfs").then_some((PathBuf::from(dir), page_len?))
    });
    mounts.collect()
}

pub(super) fn read_counters(dir: &Path, name: &str, lane: Lane) -> Result<Vec<(String, u64)>, SetupError> {
    let path = super::path_of(dir, name, lane)?;
    let (file, header) = open_checked(&path)?;
    let len = file.metadata().map_err(SetupError::system("examine", &path, "try again"))?.len();
    header.check(len).map_err(|cause| SetupError::BadFile { path: path.clone(), cause })?;
    let mapping = Mapping::of_file(&file, REGION_OFFSET, false).map_err(SetupError::system("map", &path, MAP_HINT))?;
    Ok(counters::read(&mapping, HEADER_LEN))
}

pub(super) fn list(dir: &Path) -> Result<Vec<RingInfo>, SetupError> {
    let entries = fs::read_dir(dir).map_err(SetupError::system(
        "list",
        dir,
        "name the directory of the ring files by BOOKCAST_SHM_DIR",
    ))?;
    let locks = fs::read_to_string("/proc/locks").ok();
    let mut rings = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name();
        if !name.to_str().is_some_and(|name| name.starts_with("bookcast-") && name.ends_with(".ring")) {
            continue;
        }
        let path = entry.path();
        let Ok((file, header)) = open_checked(&path) else { continue };
        let Ok(metadata) = file.metadata() else { continue };
        let Ok(shape) = header.check(metadata.len()) else { continue };
        let aliveness = match &locks {
            None => Aliveness::Unknown,
            Some(text) if holds_lock(text, metadata.dev(), metadata.ino()) => Aliveness::Alive,
            Some(_) => Aliveness::Dead,
        };
        rings.push(RingInfo {
            name: text_in(&header.name).unwrap_or_default().to_owned(),
            channel: header.channel,
            lane: header.lane,
            epoch: shape.epoch(),
            lines: shape.capacity(),
            pid: header.pid.get(),
            aliveness,
            path,
        });
    }
    rings.sort_by(|a, b| (&a.name, a.lane.0.get()).cmp(&(&b.name, b.lane.0.get())));
    Ok(rings)
}

/// Whether the text of `/proc/locks` names an exclusive flock on this file.
///
/// A line reads `1: FLOCK  ADVISORY  WRITE 5793 00:1b:2 0 EOF`: device numbers in hexadecimal, the inode in decimal. A
/// line with `->` is somebody who waits.
fn holds_lock(text: &str, device: u64, inode: u64) -> bool {
    let file = format!("{:02x}:{:02x}:{inode}", libc::major(device), libc::minor(device));
    text.lines().any(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        matches!(fields[..], [_, "FLOCK", _, "WRITE", _, found, ..] if found == file)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_found_by_device_and_inode() {
        let text = "1: FLOCK  ADVISORY  WRITE 5793 00:1b:2 0 EOF\n\
                    1: -> FLOCK  ADVISORY  WRITE 5794 00:1b:3 0 EOF\n\
                    2: POSIX  ADVISORY  WRITE 9 00:1b:4 0 EOF\n\
                    3: FLOCK  ADVISORY  READ 9 00:1b:5 0 EOF\n";
        let device = libc::makedev(0, 0x1b);
        assert!(holds_lock(text, device, 2));
        for inode in [1, 3, 4, 5, 20] {
            assert!(!holds_lock(text, device, inode), "inode {inode}");
        }
        assert!(!holds_lock(text, libc::makedev(0, 0x1c), 2));
    }

    #[test]
    fn hugetlbfs_mounts_are_found_with_their_page_length() {
        let text = "tmpfs /dev/shm tmpfs rw,relatime 0 0\n\
                    hugetlbfs /dev/hugepages hugetlbfs rw,relatime,pagesize=2M 0 0\n\
                    none /mnt/huge1G hugetlbfs rw,pagesize=1024M,mode=755 0 0\n\
                    none /mnt/odd hugetlbfs rw,pagesize=oddM 0 0\n";
        let expected = [(PathBuf::from("/dev/hugepages"), 2 << 20), (PathBuf::from("/mnt/huge1G"), 1 << 30)];
        assert_eq!(hugetlbfs_mounts(text), expected);
    }

    fn sample() -> Box<RingHeader> {
        let options = RingOptions::new("xnas", ChannelId::new(7), Lane::new(1), Epoch(3), 64);
        header(&options, REGION_OFFSET + super::super::region_len(64), None)
    }

    #[test]
    fn a_header_that_contradicts_itself_is_refused_by_field() {
        let len = sample().total_len.get();
        assert_eq!(sample().check(len).expect("sound").capacity(), 64);
        type Change = fn(&mut RingHeader);
        let changes: [(Change, BadFile); 13] = [
            (|h| h.magic[7] = b'?', BadFile::Magic),
            (|h| h.version.set(2), BadFile::Version { found: 2 }),
            (|h| h.header_len.set(8192), BadFile::Header { field: "header length" }),
            (|h| h.line_len.set(128), BadFile::Header { field: "line length" }),
            (|h| h.lines.set(63), BadFile::Header { field: "size, epoch or first sequence number" }),
            (|h| h.lines.set(u64::MAX), BadFile::Header { field: "size, epoch or first sequence number" }),
            (|h| h.lines.set(128), BadFile::Header { field: "region length" }),
            (|h| h.epoch.set(0), BadFile::Header { field: "size, epoch or first sequence number" }),
            (|h| h.first_sequence.set(0), BadFile::Header { field: "size, epoch or first sequence number" }),
            (|h| h.region_offset.set(u64::MAX), BadFile::Header { field: "region offset" }),
            (|h| h.total_len.set(u64::MAX), BadFile::Header { field: "total length" }),
            (|h| h.name = [0xFF; MAX_NAME_LEN], BadFile::Header { field: "name" }),
            (|h| h.counters_offset.set(8), BadFile::Header { field: "counters page" }),
        ];
        for (i, (change, cause)) in changes.into_iter().enumerate() {
            let mut header = sample();
            change(&mut header);
            assert_eq!(header.check(len), Err(cause), "change {i}");
        }
        assert_eq!(sample().check(len - 1), Err(BadFile::Truncated { needed: len, actual: len - 1 }));
    }

    #[test]
    fn a_region_path_must_be_absolute_and_belongs_to_a_short_file() {
        let mut header = sample();
        header.region_path = text_field("huge/x.region");
        header.region_offset.set(0);
        header.total_len.set(REGION_OFFSET as u64);
        assert_eq!(header.check(REGION_OFFSET as u64), Err(BadFile::Header { field: "region path" }));
        header.region_path = text_field("/huge/x.region");
        assert!(header.check(REGION_OFFSET as u64).is_ok());
    }
}
