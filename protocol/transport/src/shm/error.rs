//! What can go wrong before the first line.

use std::io;
use std::path::{Path, PathBuf};

use crate::counters::CounterError;

/// Why a ring could not be created or opened: what was tried, on what, the cause, and the next thing to try.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The size, epoch or first sequence number is not possible.
    #[error(
        "no ring of {lines} lines from sequence {first} of epoch {epoch}: the size must be a power of two from 2 to {max}, \
         epoch and sequence at least 1",
        max = super::MAX_LINES
    )]
    Shape {
        /// The size asked for.
        lines: usize,
        /// The epoch asked for.
        epoch: u16,
        /// The first sequence number asked for.
        first: u64,
    },
    /// Too many cells.
    #[error("no file of {cells} cells: at most {max}", max = crate::cells::MAX_CELLS)]
    Cells {
        /// How many were asked for.
        cells: usize,
    },
    /// The name cannot be part of a file's name.
    #[error("{name:?} cannot name a ring: use 1 to {max} letters, digits, '.', '_' or '-'", max = super::MAX_NAME_LEN)]
    Name {
        /// The name asked for.
        name: String,
    },
    /// Nothing is there (yet). An ordinary outcome: try again.
    #[error("no ring at {path}: its publisher has not started yet, or runs under another name, lane or directory")]
    NotThere {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// Another process publishes this lane.
    #[error(
        "lane {lane} of channel {channel} is alive: process {pid} holds {path}; stop that process, or publish on another \
         lane"
    )]
    Alive {
        /// The holder's process id, as the file's header gives it.
        pid: u32,
        /// The holder's channel.
        channel: u16,
        /// The lane.
        lane: u16,
        /// The file whose lock is held.
        path: PathBuf,
    },
    /// The file is not a ring that this version can use.
    #[error("{path} is no ring that can be used: {cause}; {next}", next = cause.next())]
    BadFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        cause: BadFile,
    },
    /// The name kept changing hands.
    #[error("{path} changed hands {tries} times while it was being taken: other publishers of this lane are starting")]
    Contended {
        /// The file.
        path: PathBuf,
        /// How often it was tried.
        tries: u32,
    },
    /// The system refused.
    #[error("cannot {action} {path}: {source}; {next}")]
    System {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's cause.
        source: io::Error,
        /// The next thing to try.
        next: &'static str,
    },
    /// A counter could not be had.
    #[error(transparent)]
    Counter(#[from] CounterError),
}

impl SetupError {
    /// Whether it is worth trying again: nothing is there yet.
    pub fn is_not_there(&self) -> bool {
        matches!(self, SetupError::NotThere { .. })
    }

    /// For `map_err`: the system refused `action` on `path`.
    pub(crate) fn system<'a>(
        action: &'static str,
        path: &'a Path,
        next: &'static str,
    ) -> impl FnOnce(io::Error) -> SetupError + use<'a> {
        move |source| SetupError::System { action, path: path.to_owned(), source, next }
    }

    /// The system has no `len` bytes of memory.
    pub(crate) fn memory(len: usize, source: io::Error) -> SetupError {
        SetupError::System {
            action: "map",
            path: PathBuf::from(format!("{len} bytes of anonymous memory")),
            source,
            next: "choose a smaller ring, or raise the memory limit (ulimit -v, cgroup)",
        }
    }
}

/// What is wrong with a file that should be a ring.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadFile {
    /// It is a directory, a pipe or the like.
    #[error("it is not a regular file")]
    Kind,
    /// It is shorter than its header says, or than a header.
    #[error("it has {actual} bytes where {needed} are needed")]
    Truncated {
        /// Bytes that there must be.
        needed: u64,
        /// Bytes that there are.
        actual: u64,
    },
    /// It does not begin as a ring does.
    #[error("it does not begin with the mark of a ring")]
    Magic,
    /// Another version wrote it.
    #[error("it has version {found}, and this program reads version {}", super::VERSION)]
    Version {
        /// Its version.
        found: u32,
    },
    /// Its header contradicts itself.
    #[error("its header's {field} cannot be right")]
    Header {
        /// The field.
        field: &'static str,
    },
    /// The header is another ring's.
    #[error("its header says that it is {name:?}, lane {lane}")]
    Misnamed {
        /// The name in the header.
        name: String,
        /// The lane in the header.
        lane: u16,
    },
}

impl BadFile {
    /// The next thing to try.
    fn next(&self) -> &'static str {
        match self {
            BadFile::Version { .. } => "run publisher and subscriber of the same version",
            _ => "remove the file if nobody needs it, and start the publisher again",
        }
    }
}
