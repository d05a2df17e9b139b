//! The epoch: a counter on disk, raised by each first publisher of a channel and synced before the first line. One that joins
//! another lane takes that lane's epoch, and remembers it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use protocol::line::Epoch;

/// Why there is no epoch to publish in.
#[derive(Debug, thiserror::Error)]
pub enum EpochError {
    /// The file holds something else than a number.
    #[error(
        "{}: holds {found:?} where the channel's epoch should stand; write the last epoch used (a number from 0 to 65535) \
         into it, or publish with --epoch N above it", path.display()
    )]
    Garbled {
        /// The file.
        path: PathBuf,
        /// What it holds.
        found: String,
    },
    /// 65,535 epochs are used up.
    #[error("{}: epoch 65535 was the last one; give the channel another name, or remove the file if no subscriber is left from before", path.display())]
    UsedUp {
        /// The file.
        path: PathBuf,
    },
    /// The system refused.
    #[error("{}: the channel's epoch cannot be kept here ({source}); choose another place with 'state_dir', or give --epoch N", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's cause.
        source: io::Error,
    },
}

/// Keeps other publishers of this host, and of this channel, from starting at the same moment: the second one is to find the
/// first alive. Given up when it is dropped, or its process ends.
#[derive(Debug)]
pub struct StartLock(#[expect(dead_code, reason = "held for its lock")] File);

/// Waits until no other publisher of `channel` that keeps its epoch in `state_dir` is starting.
///
/// # Errors
/// [`EpochError::Io`].
pub fn lock(state_dir: &Path, channel: &str) -> Result<StartLock, EpochError> {
    let path = state_dir.join(format!("{channel}.start"));
    let io = |source| EpochError::Io { path: path.clone(), source };
    fs::create_dir_all(state_dir).map_err(io)?;
    let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(io)?;
    file.lock().map_err(io)?;
    Ok(StartLock(file))
}

/// Raises the epoch of `channel` in `state_dir` and returns it. When this returns, the new value is on disk: a publisher
/// that dies now does not hand the same epoch out again.
///
/// # Errors
/// [`EpochError`], and the old value stays.
pub fn raise(state_dir: &Path, channel: &str) -> Result<Epoch, EpochError> {
    let path = state_dir.join(format!("{channel}.epoch"));
    let next = last(state_dir, &path)?.checked_add(1).ok_or_else(|| EpochError::UsedUp { path: path.clone() })?;
    write(state_dir, channel, &path, next)?;
    Ok(Epoch(next))
}

/// Remembers that `channel` is in `epoch`, which another publisher opened: the next one to be raised is beyond it.
///
/// # Errors
/// [`EpochError`], and the old value stays.
pub fn adopt(state_dir: &Path, channel: &str, epoch: Epoch) -> Result<(), EpochError> {
    let path = state_dir.join(format!("{channel}.epoch"));
    if last(state_dir, &path)? < epoch.0 { write(state_dir, channel, &path, epoch.0) } else { Ok(()) }
}

/// The last epoch used; 0 if none was.
fn last(state_dir: &Path, path: &Path) -> Result<u16, EpochError> {
    let io = |source| EpochError::Io { path: path.to_owned(), source };
    fs::create_dir_all(state_dir).map_err(io)?;
    match fs::read_to_string(path) {
        Ok(text) => text
            .trim()
            .parse::<u16>()
            .map_err(|_| EpochError::Garbled { path: path.to_owned(), found: text.trim().chars().take(40).collect() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(io(error)),
    }
}

/// Puts `epoch` on disk, in one step.
fn write(state_dir: &Path, channel: &str, path: &Path, epoch: u16) -> Result<(), EpochError> {
    let io = |source| EpochError::Io { path: path.to_owned(), source };
    let temporary = state_dir.join(format!("{channel}.epoch.{}", std::process::id()));
    let mut file = File::create(&temporary).map_err(io)?;
    writeln!(file, "{epoch}").and_then(|()| file.sync_all()).map_err(io)?;
    fs::rename(&temporary, path).map_err(io)?;
    File::open(state_dir).and_then(|dir| dir.sync_all()).map_err(io)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_start_gets_the_next_epoch() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let state = dir.path().join("deep/state");
        let got: Vec<u16> = (0..3).map(|_| raise(&state, "x").expect("raises").0).collect();
        assert_eq!(got, [1, 2, 3]);
        assert_eq!(raise(&state, "y").expect("raises"), Epoch(1));
        assert_eq!(fs::read_dir(&state).expect("lists").count(), 2, "no temporary file stays");
    }

    #[test]
    fn an_epoch_that_was_joined_is_not_opened_again() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        adopt(dir.path(), "x", Epoch(7)).expect("adopts");
        adopt(dir.path(), "x", Epoch(3)).expect("an older one is no news");
        assert_eq!(raise(dir.path(), "x").expect("raises"), Epoch(8));
    }

    #[test]
    fn two_publishers_do_not_start_at_the_same_moment() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let first = lock(dir.path(), "x").expect("locks");
        let other = File::options().write(true).open(dir.path().join("x.start")).expect("opens");
        assert!(other.try_lock().is_err(), "it is held");
        lock(dir.path(), "y").expect("another channel is another matter");
        drop(first);
        other.try_lock().expect("free again");
    }

    #[test]
    fn a_garbled_or_used_up_counter_is_a_plain_error_and_stays() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let path = dir.path().join("x.epoch");
        for (text, expect) in [("forty-two", "forty-two"), ("", "--epoch"), ("65535", "last one"), ("-1", "65535")] {
            fs::write(&path, text).expect("writes");
            let error = raise(dir.path(), "x").expect_err("refused").to_string();
            assert!(error.contains(expect), "{error}");
            assert_eq!(fs::read_to_string(&path).expect("reads"), text);
        }
    }
}
