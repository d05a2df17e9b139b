//! Mapped memory: the pages that rings live in.
//!
//! Other processes write these pages while they are read here, so nothing but atomic loads and stores touches them, with
//! one exception: the only writer of a ring reads its own flushed lines as plain memory ([`WriterMemory::lines`]).

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use protocol::line::{LINE_LEN, Line};

use crate::ring::core::{Word, WordMut, Words, WordsMut};

#[cfg(not(target_endian = "little"))]
compile_error!("rings hold little-endian words in place; a big-endian machine would have to swap each of them");

/// The unit in which pages are touched: the smallest page of every machine we run on.
pub(crate) const PAGE_LEN: usize = 4096;
/// Words of a line.
const LINE_WORDS: usize = LINE_LEN / 8;
/// Lines' worth of memory before line 0.
const LATEST_LINES: usize = 2;

/// What kind of pages a ring stands on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pages {
    /// Reserved huge pages of this many bytes each.
    Huge {
        /// Bytes in a page.
        page_len: usize,
    },
    /// Ordinary memory, of which the kernel has put this many bytes on huge pages by itself.
    Transparent {
        /// Bytes on huge pages when the ring was set up.
        bytes: usize,
    },
    /// Pages of the smallest size.
    Base,
}

impl fmt::Display for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pages::Huge { page_len } => write!(f, "reserved huge pages of {} KiB", page_len >> 10),
            Pages::Transparent { bytes } => write!(f, "ordinary memory, {} KiB of it on huge pages", bytes >> 10),
            Pages::Base => f.write_str("small pages"),
        }
    }
}

/// A mapped range of pages, unmapped when dropped.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    writable: bool,
}

// SAFETY: the range stays mapped until drop, and is reached only through atomics (`words`, `words_mut`) or, by its one
// writer, as in `WriterMemory::lines`.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// `len` bytes of zeroes of this process's own, on reserved huge pages if there are enough of them.
    pub(crate) fn anonymous(len: usize) -> io::Result<(Mapping, Pages)> {
        const HUGE_PAGE_LEN: usize = 2 << 20;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        if len >= HUGE_PAGE_LEN {
            let rounded = len.next_multiple_of(HUGE_PAGE_LEN);
            let huge = flags | libc::MAP_HUGETLB | libc::MAP_HUGE_2MB;
            if let Ok(mapping) = Mapping::map(rounded, true, huge, None) {
                mapping.touch();
                return Ok((mapping, Pages::Huge { page_len: HUGE_PAGE_LEN }));
            }
        }
        let mapping = Mapping::map(len, true, flags, None)?;
        mapping.advise_huge();
        mapping.touch();
        let pages = mapping.pages();
        Ok((mapping, pages))
    }

    /// The first `len` bytes of `file`, shared with whoever else maps them.
    pub(crate) fn of_file(file: &File, len: usize, writable: bool) -> io::Result<Mapping> {
        Mapping::map(len, writable, libc::MAP_SHARED, Some(file))
    }

    fn map(len: usize, writable: bool, flags: libc::c_int, file: Option<&File>) -> io::Result<Mapping> {
        let protection = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        let descriptor = file.map_or(-1, AsRawFd::as_raw_fd);
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing that Rust knows of.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, descriptor, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).expect("mmap does not return null without MAP_FIXED");
        Ok(Mapping { base, len, writable })
    }

    /// Asks for huge pages behind an ordinary mapping. Declined advice is no failure: the ring works on small pages.
    pub(crate) fn advise_huge(&self) {
        // SAFETY: the range is this mapping's own; the advice does not change its contents.
        unsafe { libc::madvise(self.base.as_ptr().cast(), self.len, libc::MADV_HUGEPAGE) };
    }

    /// Asks for every page now. Unlike a store, this reports a full file system instead of raising SIGBUS.
    pub(crate) fn populate(&self) {
        let advice = if self.writable { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
        // SAFETY: the range is this mapping's own; populating it does not change its contents.
        unsafe { libc::madvise(self.base.as_ptr().cast(), self.len, advice) };
    }

    /// Touches every page, so that the first line to arrive finds it mapped. A writer must be alone with the memory.
    pub(crate) fn touch(&self) {
        let words = self.words(0, self.len / 8);
        for word in words.iter().step_by(PAGE_LEN / 8) {
            let value = word.0.load(Ordering::Relaxed);
            if self.writable {
                word.0.store(value, Ordering::Relaxed);
            }
        }
    }

    /// What the kernel says of this mapping in `/proc/self/smaps`.
    pub(crate) fn pages(&self) -> Pages {
        let Ok(text) = std::fs::read_to_string("/proc/self/smaps") else { return Pages::Base };
        let address = self.base.as_ptr() as usize;
        let mut inside = false;
        let mut bytes = 0;
        for line in text.lines() {
            let mut fields = line.split_ascii_whitespace();
            let first = fields.next().unwrap_or_default();
            if let Some((start, end)) = first.split_once('-') {
                let start = usize::from_str_radix(start, 16).unwrap_or(0);
                let end = usize::from_str_radix(end, 16).unwrap_or(0);
                inside = start < address + self.len && address < end;
            } else if inside && matches!(first, "AnonHugePages:" | "ShmemPmdMapped:" | "FilePmdMapped:") {
                bytes += fields.next().and_then(|kib| kib.parse::<usize>().ok()).unwrap_or(0) * 1024;
            }
        }
        // Neighbouring mappings of one kind are one range to the kernel; no more than this one's own counts.
        if bytes > 0 { Pages::Transparent { bytes: bytes.min(self.len) } } else { Pages::Base }
    }

    /// The `count` words from byte `offset` on.
    ///
    /// # Panics
    /// If they do not lie within the mapping, or `offset` is no multiple of 8.
    pub(crate) fn words(&self, offset: usize, count: usize) -> &[SharedWord] {
        let end = count.checked_mul(8).and_then(|len| len.checked_add(offset));
        assert!(
            offset.is_multiple_of(8) && end.is_some_and(|end| end <= self.len),
            "{count} words at {offset} of {} mapped bytes",
            self.len
        );
        // SAFETY: in bounds and aligned by the assertion (the base is page-aligned), mapped until drop, and every other
        // access in this process is atomic too, or a plain read (see the head of this file).
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(offset).cast::<SharedWord>(), count) }
    }

    /// Where the mapping begins, and its length in bytes: what a card is told.
    #[cfg(feature = "rdma")]
    pub(crate) fn extent(&self) -> (NonNull<u8>, usize) {
        (self.base, self.len)
    }

    /// `len` bytes from `offset` on, as plain memory.
    ///
    /// # Safety
    /// Nobody, no card either, writes to these bytes while the slice lives.
    ///
    /// # Panics
    /// If they do not lie within the mapping.
    #[cfg(feature = "rdma")]
    pub(crate) unsafe fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        let end = offset.checked_add(len);
        assert!(end.is_some_and(|end| end <= self.len), "{len} bytes at {offset} of {} mapped bytes", self.len);
        // SAFETY: in bounds by the assertion, mapped until drop, and not written meanwhile by the caller's duty.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(offset), len) }
    }

    /// One word to be written.
    ///
    /// # Panics
    /// As [`Mapping::words`]; if the mapping is read-only.
    pub(crate) fn word_mut(&self, offset: usize) -> &AtomicU64 {
        assert!(self.writable, "a read-only mapping");
        &self.words(offset, 1)[0].0
    }

    /// The `count` words from byte `offset` on, to be written.
    ///
    /// # Panics
    /// As [`Mapping::words`]; if the mapping is read-only.
    pub(crate) fn words_mut(&self, offset: usize, count: usize) -> &[AtomicU64] {
        assert!(self.writable, "a read-only mapping");
        let words: *const [SharedWord] = self.words(offset, count);
        // SAFETY: `SharedWord` is a transparent `AtomicU64`, and the mapping is writable.
        unsafe { &*(words as *const [AtomicU64]) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `Mapping::map` with this length, and nothing borrows from it any more: whoever keeps pointers
        // into it (`RingMemory`, `Counter`) keeps the `Arc` that owns it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// A word of mapped memory that somebody else may write at any moment. It can only be loaded.
#[repr(transparent)]
pub struct SharedWord(AtomicU64);

impl Word for SharedWord {
    #[inline(always)]
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }
}

impl WordMut for AtomicU64 {
    #[inline(always)]
    fn store(&self, value: u64, order: Ordering) {
        AtomicU64::store(self, value, order);
    }
}

/// A ring's region in mapped memory, for readers. Cheap to clone: the pages are shared, and stay mapped as long as
/// anybody holds them.
#[derive(Clone)]
pub struct RingMemory {
    mapping: Arc<Mapping>,
    words: NonNull<SharedWord>,
    count: usize,
}

// SAFETY: `words` points into `mapping`, which is `Send` and `Sync` and is kept mapped by the `Arc`.
unsafe impl Send for RingMemory {}
// SAFETY: as above; only atomic loads go through it.
unsafe impl Sync for RingMemory {}

impl RingMemory {
    /// The region of a ring of `lines` lines that begins at byte `offset` of `mapping`.
    pub(crate) fn new(mapping: Arc<Mapping>, offset: usize, lines: usize) -> RingMemory {
        assert!(offset.is_multiple_of(LINE_LEN), "lines are aligned to {LINE_LEN} bytes, not to {offset}");
        let count = (LATEST_LINES + lines) * LINE_WORDS;
        let words = NonNull::from(mapping.words(offset, count)).cast();
        RingMemory { mapping, words, count }
    }

    /// The pages that the region lies in.
    #[cfg(feature = "rdma")]
    pub(crate) fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// The region's first byte, which is the latest line's.
    pub(crate) fn address(&self) -> NonNull<u8> {
        self.words.cast()
    }

    /// Bytes of the region: 128 for the latest line, 64 for each place.
    #[cfg(feature = "rdma")]
    pub(crate) fn byte_len(&self) -> usize {
        self.count * 8
    }

    #[inline(always)]
    fn words(&self) -> &[SharedWord] {
        // SAFETY: `new` took pointer and count from a slice of the mapping, which the `Arc` keeps mapped.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.count) }
    }
}

impl Words<LINE_WORDS> for RingMemory {
    type Word = SharedWord;

    #[inline(always)]
    fn place(&self, offset: usize) -> &[SharedWord; LINE_WORDS] {
        self.words()[offset..offset + LINE_WORDS].try_into().expect("as many words as a line has")
    }
}

/// A ring's region, for its only writer.
pub(crate) struct WriterMemory(RingMemory);

impl WriterMemory {
    /// Takes the right to write `memory`: to be called once for a ring, by whoever created it.
    pub(crate) fn new(memory: RingMemory) -> WriterMemory {
        assert!(memory.mapping.writable, "a read-only mapping");
        WriterMemory(memory)
    }

    /// For readers in this process.
    pub(crate) fn shared(&self) -> &RingMemory {
        &self.0
    }

    /// Puts a line into place `index`: for memory that a card sends from, where no reader looks.
    #[cfg(feature = "rdma")]
    pub(crate) fn put(&self, index: usize, line: &Line) {
        let place = self.place_mut((LATEST_LINES + index) * LINE_WORDS);
        for (word, value) in place.iter().zip(line.words()) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// `count` lines from place `index` on, as plain memory.
    ///
    /// # Safety
    /// The ring's one writer must not store to these places while the slice lives.
    pub(crate) unsafe fn lines(&self, index: usize, count: usize) -> &[Line] {
        let words = &self.0.words()[(LATEST_LINES + index) * LINE_WORDS..][..count * LINE_WORDS];
        // SAFETY: in bounds by the slicing; aligned, because regions begin at a multiple of 64 (`RingMemory::new`); any
        // bytes are a `Line` (it is `FromBytes`); not written while the slice lives, by the caller's duty. Other threads
        // and processes only load.
        unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<Line>(), count) }
    }
}

impl WordsMut<LINE_WORDS> for WriterMemory {
    type Word = AtomicU64;

    #[inline(always)]
    fn place_mut(&self, offset: usize) -> &[AtomicU64; LINE_WORDS] {
        let place: &[SharedWord; LINE_WORDS] = self.0.place(offset);
        // SAFETY: `SharedWord` is a transparent `AtomicU64`, and `new` saw that the mapping is writable.
        unsafe { &*std::ptr::from_ref(place).cast::<[AtomicU64; LINE_WORDS]>() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anonymous_memory_is_zero_and_aligned_for_lines() {
        let (mapping, _) = Mapping::anonymous(3 * PAGE_LEN).expect("maps");
        let memory = RingMemory::new(Arc::new(mapping), 0, 4);
        for offset in (0..6 * LINE_WORDS).step_by(LINE_WORDS) {
            assert!(memory.place(offset).iter().all(|word| word.load(Ordering::Relaxed) == 0));
        }
        assert_eq!(memory.words().as_ptr() as usize % PAGE_LEN, 0);
    }

    #[test]
    #[should_panic(expected = "range end index")]
    fn a_place_beyond_the_region_is_refused() {
        let (mapping, _) = Mapping::anonymous(PAGE_LEN).expect("maps");
        RingMemory::new(Arc::new(mapping), 0, 4).place(6 * LINE_WORDS);
    }

    #[test]
    #[should_panic(expected = "mapped bytes")]
    fn a_region_longer_than_its_mapping_is_refused() {
        let (mapping, _) = Mapping::anonymous(PAGE_LEN).expect("maps");
        let _ = RingMemory::new(Arc::new(mapping), 0, 64);
    }

    #[test]
    #[should_panic(expected = "read-only")]
    fn a_read_only_mapping_is_never_written() {
        let file = tempfile::tempfile().expect("a temporary file");
        file.set_len(PAGE_LEN as u64).expect("grows");
        let mapping = Mapping::of_file(&file, PAGE_LEN, false).expect("maps");
        let _ = WriterMemory::new(RingMemory::new(Arc::new(mapping), 0, 4));
    }
}
