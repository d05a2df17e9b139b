//! Copies: of memory by one core, and of a stream of lines from one core to another.

use std::cell::UnsafeCell;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use protocol::line::{LINE_LEN, Line};
use transport::clock::Clock;

use crate::flow::{Room, StreamReader, StreamWriter, Taken};

/// Bytes a second that one core copies from one buffer of `len` bytes to another, the best of `tries`.
pub fn memcpy_bytes_per_second(len: usize, tries: usize, clock: Clock) -> f64 {
    /// Bytes copied in one try, in round figures.
    const PER_TRY: usize = 256 << 20;
    let from = vec![1u8; len];
    let mut to = vec![0u8; len];
    let repeats = (PER_TRY / len.max(1)).max(1);
    let once = || {
        let began = clock.now();
        for _ in 0..repeats {
            to.copy_from_slice(black_box(&from));
            black_box(&mut to);
        }
        (repeats * len) as f64 * 1e9 / clock.now().since(began).max(1) as f64
    };
    std::iter::repeat_with(once).take(tries).fold(0.0, f64::max)
}

/// Lines that the reader copies out at most in one go: as the product's reader does.
const READ_LINES: usize = 32;

/// The memory of a bare copy: places, and how many lines have been written so far.
struct CopyRing {
    places: Box<[UnsafeCell<Line>]>,
    written: CachePadded<AtomicU64>,
}

// SAFETY: a place is written only by the one `CopyWriter`, and only when `Room` has shown that the one `CopyReader` is
// done with it (its Release in `Taken::add`, our Acquire in `Room::take`); it is read only when `written` has shown that it
// was written (Release in `CopyWriter::write`, Acquire in `CopyReader::read`). So no place is ever in use on both sides.
#[expect(unsafe_code, reason = "a bare copy is one that no atomic word-by-word access slows down")]
unsafe impl Sync for CopyRing {}

/// A stream of lines from core to core by plain copies: the same bytes as the ring moves, with nothing sealed and nothing
/// checked. `lines` places, a power of two.
///
/// # Panics
/// If `lines` is not a power of two of at least 64.
pub fn bare_copy(lines: usize) -> (CopyWriter, CopyReader) {
    assert!(lines.is_power_of_two() && lines >= 2 * READ_LINES, "{lines} lines");
    let places = (0..lines).map(|_| UnsafeCell::new(Line::ZERO)).collect();
    let ring = Arc::new(CopyRing { places, written: CachePadded::new(AtomicU64::new(0)) });
    let (room, taken) = Room::new(lines as u64);
    let source = vec![Line::ZERO; READ_LINES].into_boxed_slice();
    let copied = vec![Line::ZERO; READ_LINES].into_boxed_slice();
    (CopyWriter { ring: Arc::clone(&ring), room, source, next: 0 }, CopyReader { ring, taken, copied, next: 0 })
}

/// The writing half of [`bare_copy`].
pub struct CopyWriter {
    ring: Arc<CopyRing>,
    room: Room,
    source: Box<[Line]>,
    next: u64,
}

impl StreamWriter for CopyWriter {
    #[inline(always)]
    fn write(&mut self, count: usize) -> bool {
        let count = count.min(self.source.len());
        if !self.room.take(count as u64) {
            return false;
        }
        self.source[0].record.order_id.set(self.next);
        let mask = self.ring.places.len() - 1;
        let place = self.next as usize & mask;
        let before_wrap = count.min(self.ring.places.len() - place);
        // SAFETY: `Room::take` has said that the reader is done with these `count` places (see `CopyRing`); they are in
        // bounds, because `place` is masked and each piece ends at the ring's end or before; the source is elsewhere.
        #[expect(unsafe_code, reason = "see CopyRing")]
        unsafe {
            let to = self.ring.places[place].get();
            std::ptr::copy_nonoverlapping(self.source.as_ptr(), to, before_wrap);
            let to = self.ring.places[0].get();
            std::ptr::copy_nonoverlapping(self.source.as_ptr().add(before_wrap), to, count - before_wrap);
        }
        self.next += count as u64;
        // Release: pairs with the Acquire in CopyReader::read.
        self.ring.written.store(self.next, Ordering::Release);
        true
    }
}

/// The reading half of [`bare_copy`].
pub struct CopyReader {
    ring: Arc<CopyRing>,
    taken: Taken,
    copied: Box<[Line]>,
    next: u64,
}

impl StreamReader for CopyReader {
    #[inline(always)]
    fn read(&mut self) -> usize {
        // Acquire: pairs with the Release in CopyWriter::write.
        let written = self.ring.written.load(Ordering::Acquire);
        let mask = self.ring.places.len() - 1;
        let place = self.next as usize & mask;
        let count = ((written - self.next) as usize).min(READ_LINES).min(self.ring.places.len() - place);
        if count == 0 {
            return 0;
        }
        // SAFETY: `written` has said that these places are written, and the writer leaves them alone until `Taken::add`
        // (see `CopyRing`); in bounds as above.
        #[expect(unsafe_code, reason = "see CopyRing")]
        unsafe {
            let from = self.ring.places[place].get().cast_const();
            std::ptr::copy_nonoverlapping(from, self.copied.as_mut_ptr(), count);
        }
        black_box(&mut self.copied);
        self.next += count as u64;
        self.taken.add(count as u64);
        count
    }
}

const _: () = assert!(size_of::<Line>() == LINE_LEN);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_copy_delivers_every_line_once_across_the_wrap() {
        let (mut writer, mut reader) = bare_copy(64);
        let mut seen = Vec::new();
        for round in 0..40 {
            assert!(writer.write(24), "round {round}: there is room for 24 of 64");
            let mut left = 24;
            while left > 0 {
                let count = reader.read();
                assert!(count > 0 && count <= left);
                seen.extend(reader.copied[..count].iter().map(|line| line.record.order_id.get()));
                left -= count;
            }
            assert_eq!(reader.read(), 0);
        }
        // The first line of each write carries its number; the other lines carry nothing.
        let firsts: Vec<u64> = seen.chunks(24).map(|lines| lines[0]).collect();
        assert_eq!(firsts, (0..40).map(|round| round * 24).collect::<Vec<u64>>());
    }

    #[test]
    fn a_writer_without_room_writes_nothing() {
        let (mut writer, mut reader) = bare_copy(64);
        let mut written = 0;
        while writer.write(32) {
            written += 32;
        }
        assert!(written <= 64, "{written} lines in 64 places");
        let mut read = 0;
        while read < written {
            read += reader.read();
        }
        assert!(writer.write(32));
    }
}
