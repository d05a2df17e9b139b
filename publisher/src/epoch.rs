//! The epoch: a counter on disk, raised by each first publisher of a channel and synced before the first line.

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

/// Raises the epoch of `channel` in `state_dir` and returns it. When this returns, the new value is on disk: a publisher
/// that dies now does not hand the same epoch out again.
///
/// # Errors
/// [`EpochError`], and the old value stays.
pub fn raise(state_dir: &Path, channel: &str) -> Result<Epoch, EpochError> {
    let path = state_dir.join(format!("{channel}.epoch"));
    let io = |source| EpochError::Io { path: path.clone(), source };
    fs::create_dir_all(state_dir).map_err(io)?;
    let last = match fs::read_to_string(&path) {
        Ok(text) => text
            .trim()
            .parse::<u16>()
            .map_err(|_| EpochError::Garbled { path: path.clone(), found: text.trim().chars().take(40).collect() })?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(io(error)),
    };
    let next = last.checked_add(1).ok_or_else(|| EpochError::UsedUp { path: path.clone() })?;
    let temporary = state_dir.join(format!("{channel}.epoch.{}", std::process::id()));
    let mut file = File::create(&temporary).map_err(io)?;
    writeln!(file, "{next}").and_then(|()| file.sync_all()).map_err(io)?;
    fs::rename(&temporary, &path).map_err(io)?;
    File::open(state_dir).and_then(|dir| dir.sync_all()).map_err(io)?;
    Ok(Epoch(next))
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
