//! What the processes of a run write down, and the files that bring it to the parent.
//!
//! Plain structs, one behind the other, in memory while a run goes on and written out after it. Both ends are this program
//! on this host, so the bytes are in its own order.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// No such time.
pub const NO_TIME: u32 = u32::MAX;

/// One line as a strategy saw it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Sample {
    /// Its intended hand-over, ns from the start of the run.
    pub intended_ns: u64,
    /// Its sequence number.
    pub sequence: u64,
    /// From the intended hand-over to the callback, ns; 4.29 s stands for that and more.
    pub visible_ns: u32,
    /// From the intended hand-over to the end of its event; [`NO_TIME`] if its event ends with another line.
    pub complete_ns: u32,
    /// From the actual hand-over to the callback; [`NO_TIME`] where that is not known.
    pub from_actual_ns: u32,
    /// Its instrument.
    pub instrument: u32,
}

/// A message's way through the publisher, for one in 64 messages. Times in ns since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct SentStep {
    /// The message's number.
    pub ordinal: u64,
    /// The source was asked for it.
    pub asked: u64,
    /// The source had cut it out.
    pub decoded: u64,
    /// It was due, and the normaliser began.
    pub taken: u64,
    /// Its records were made.
    pub normalised: u64,
    /// Its lines were in the ring, and with the lanes.
    pub visible: u64,
}

/// A line's way through a subscriber, for the same messages. Times in ns since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct SeenStep {
    /// The message's number, its low half.
    pub ordinal: u64,
    /// The intended hand-over.
    pub intended: u64,
    /// The lane handed up the verified line.
    pub verified: u64,
    /// The strategy's callback was called with it.
    pub callback: u64,
    /// Its event ended; 0 if it ends with another line.
    pub complete: u64,
}

/// A thread of a run was away from its loop. Times in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Gap {
    /// When the turn began, since 1970.
    pub start: u64,
    /// When the next one began.
    pub end: u64,
    /// How much of it counters show to be the machine's doing.
    pub machine_ns: u64,
    /// Waited for a core, by the scheduler's account.
    pub wait_ns: u64,
    /// Times that the thread was put on a core.
    pub switches: u32,
    /// Page faults.
    pub faults: u32,
    /// Time that the hypervisor withheld from the core, in ticks of 10 ms.
    pub steal_ticks: u32,
    /// Interrupts that the core took since it was last asked; [`NO_TIME`] if it was not.
    pub interrupts: u32,
    /// The turn had lines or messages to deal with.
    pub worked: u32,
    /// Nothing.
    pub reserved: u32,
    /// The last moment before it at which the thread had nothing to do.
    pub busy_from: u64,
    /// The first such moment after it; `u64::MAX` if the log ends before.
    pub busy_until: u64,
}

/// Writes `items` into the file `path`.
///
/// # Errors
/// The system's.
pub fn write<T: IntoBytes + Immutable>(path: &Path, items: &[T]) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    file.write_all(items.as_bytes())?;
    file.flush()
}

/// Reads what [`write()`] wrote.
///
/// # Errors
/// The system's; [`io::ErrorKind::InvalidData`] if the file holds no whole number of items.
pub fn read<T: FromBytes>(path: &Path) -> io::Result<Vec<T>> {
    let bytes = std::fs::read(path)?;
    if bytes.len() % size_of::<T>() != 0 {
        let what = format!("{} is cut off: was the disk full?", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(bytes.chunks_exact(size_of::<T>()).map(|chunk| T::read_from_bytes(chunk).expect("of its length")).collect())
}

/// Whether a message's steps are written down: one in 64, spread so that no regular pattern of the feed meets it.
#[inline]
pub const fn is_stepped(ordinal: u32) -> bool {
    ordinal.wrapping_mul(0x9E37_79B9) >> 26 == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("gaps");
        let gaps = [Gap { start: 1, end: 7, ..Gap::default() }, Gap { wait_ns: 9, ..Gap::default() }];
        write(&path, &gaps).expect("writes");
        assert_eq!(read::<Gap>(&path).expect("reads"), gaps);
        std::fs::write(&path, [1, 2, 3]).expect("writes");
        assert!(read::<Gap>(&path).expect_err("cut off").to_string().contains("cut off"));
    }

    #[test]
    fn one_message_in_64_is_stepped_whatever_the_period() {
        for period in [1u32, 2, 64, 100, 4096] {
            let stepped = (0..64_000u32).filter(|i| is_stepped(i * period + 1)).count();
            assert!((900..1_100).contains(&stepped), "{stepped} of 64,000, {period} apart");
        }
    }
}
