//! Files that several processes know by name: how they are made whole before they are seen, and what the machine must have
//! for them.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use protocol::record::Lane;

use super::SetupError;
use crate::memory::Mapping;

/// The beginning and the end of the name of a file that is still being made.
pub(super) const TEMPORARY: (&str, &str) = (".bookcast-", ".tmp");
/// How often taking a name is tried.
pub(super) const TAKE_TRIES: u32 = 100;

pub(crate) const MAP_HINT: &str = "raise the memory limit (ulimit -v, cgroup), or choose a smaller ring";
pub(crate) const OPEN_HINT: &str = "check its owner and mode: subscribers need to read it, publishers to replace it";

/// Opens without waiting, whatever the path leads to.
pub(crate) fn open_read(path: &Path) -> Result<File, SetupError> {
    // NONBLOCK: a pipe under this name must not hold us up. It changes nothing for a regular file.
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open(path);
    opened.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => SetupError::NotThere { path: path.to_owned() },
        _ => SetupError::system("open", path, OPEN_HINT)(error),
    })
}

pub(crate) const FULL_HINT: &str =
    "free some space there, choose a smaller ring, or name another directory by BOOKCAST_SHM_DIR";

/// Refuses what the machine has not: touching more than there is would not fail, but have the kernel kill processes for it.
pub(crate) fn check_memory(path: &Path, len: usize) -> Result<(), SetupError> {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    match available_bytes(&meminfo) {
        Some(available) if available < len as u64 => {
            let cause = format!("{} MiB are asked for, and {} MiB of memory are available", len >> 20, available >> 20);
            Err(SetupError::system("allocate memory for", path, FULL_HINT)(io::Error::new(
                io::ErrorKind::OutOfMemory,
                cause,
            )))
        }
        _ => Ok(()),
    }
}

/// MemAvailable in the text of `/proc/meminfo`, in bytes.
pub(crate) fn available_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Gives `file` `len` bytes of zeros with memory behind each of them, mapped and touched.
pub(crate) fn fill(file: &File, path: &Path, len: usize) -> Result<Mapping, SetupError> {
    file.set_len(len as u64).map_err(SetupError::system("size", path, FULL_HINT))?;
    let mapping = Mapping::of_file(file, len, true).map_err(SetupError::system("map", path, MAP_HINT))?;
    // Advice first, then pages: an allocation by the file system would already be on small ones.
    mapping.advise_huge();
    mapping.populate();
    // SAFETY: a system call on a descriptor that is open, with numbers only.
    let refused = unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, len as libc::off_t) } != 0;
    if refused {
        return Err(SetupError::system("allocate memory for", path, FULL_HINT)(io::Error::last_os_error()));
    }
    mapping.touch();
    Ok(mapping)
}

/// A name for something that is being made: unique among processes and within this one.
pub(crate) fn unique_suffix() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// A new file, made and locked before anybody else can have its lock.
pub(crate) fn create_locked(dir: &Path, name: impl Fn() -> String) -> Result<(File, PathBuf), SetupError> {
    for _ in 0..TAKE_TRIES {
        let path = dir.join(name());
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o644).custom_flags(libc::O_CLOEXEC);
        let file = match options.open(&path) {
            Ok(file) => file,
            // Left behind by a process that had our pid.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            Err(error) => return Err(SetupError::system("create", &path, OPEN_HINT)(error)),
        };
        // A sweeper may have found it between the two calls, and taken it for a dead one's.
        if file.try_lock().is_ok() && is_same_file(&file, &path) {
            return Ok((file, path));
        }
    }
    Err(SetupError::Contended { path: dir.join(name()), tries: TAKE_TRIES })
}

/// A file that has no name of its own yet. Dropping it removes it.
pub(crate) struct Temporary {
    file: File,
    path: PathBuf,
}

impl Temporary {
    /// In `dir`, for a ring.
    pub(crate) fn create(dir: &Path, name: &str, lane: Lane) -> Result<Temporary, SetupError> {
        let name = || format!("{}{name}-{}.{}{}", TEMPORARY.0, lane.0, unique_suffix(), TEMPORARY.1);
        let (file, path) = create_locked(dir, name)?;
        Ok(Temporary { file, path })
    }

    /// In the folder of `path`, whose name it is to have.
    pub(crate) fn beside(path: &Path) -> Result<Temporary, SetupError> {
        let dir = path.parent().unwrap_or(Path::new("."));
        let stem = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let name = || format!("{}{stem}.{}{}", TEMPORARY.0, unique_suffix(), TEMPORARY.1);
        let (file, path) = create_locked(dir, name)?;
        Ok(Temporary { file, path })
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The file, locked as it is, once it has a name of its own.
    pub(crate) fn into_file(self) -> Result<File, SetupError> {
        self.file.try_clone().map_err(SetupError::system("duplicate", &self.path, OPEN_HINT))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // After a rename nothing is there any more; no other file ever gets this name.
        let _ = fs::remove_file(&self.path);
    }
}

/// Whether `path` leads to `file`.
pub(crate) fn is_same_file(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(ours), Ok(found)) => (ours.dev(), ours.ino()) == (found.dev(), found.ino()),
        _ => false,
    }
}

/// Removes files of this form that nobody holds: their makers died in the middle.
pub(crate) fn sweep(dir: &Path, (prefix, suffix): (&str, &str)) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let is_ours = name.to_str().is_some_and(|name| name.starts_with(prefix) && name.ends_with(suffix));
        if is_ours
            && let Ok(file) = open_read(&entry.path())
            && file.try_lock().is_ok()
            && is_same_file(&file, &entry.path())
        {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_machine_has_is_refused_and_not_touched() {
        let text = "MemTotal:       24576000 kB\nMemFree:          100 kB\nMemAvailable:   20000000 kB\n";
        assert_eq!(available_bytes(text), Some(20_480_000_000));
        for odd in ["", "MemAvailable:", "MemAvailable: many kB", "MemAvailable: 18446744073709551615 kB"] {
            assert_eq!(available_bytes(odd), None, "{odd:?}");
        }
        let error = check_memory(Path::new("/x/y"), 1 << 60).expect_err("no machine has that much").to_string();
        assert!(error.contains("MiB of memory are available") && error.contains("smaller ring"), "{error}");
        assert!(check_memory(Path::new("/x/y"), 4096).is_ok());
    }
}
