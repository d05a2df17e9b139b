//! What a file claims to hold is not what is allocated for it: files of 100 bytes and less that claim gigabytes, read to
//! their ends, with the bytes that the allocator hands out counted.

#![deny(unsafe_code)]

use std::io::Write;

use bookcast_tests::fuzz::TARGETS;
use publisher::feed::FeedSource;
use publisher::input::Input;
use publisher::open::{FeedOptions, open_feed};

/// The allocator cannot be counted without unsafe code; it is the measuring device of this test.
#[allow(unsafe_code)]
mod bytes {
    use std::alloc::{GlobalAlloc, Layout, System};
    use std::cell::Cell;

    thread_local! {
        /// Bytes that this thread holds more than when it began to count, the most that were, and the largest piece.
        /// Constant and without a destructor, so that using it allocates nothing.
        static HELD: Cell<(isize, isize, usize)> = const { Cell::new((0, 0, 0)) };
    }

    struct Counting;

    fn change(taken: usize, given_back: usize) {
        // A thread that is ending has no counter any more, and is not one that is measured.
        let _ = HELD.try_with(|held| {
            let (now, most, largest) = held.get();
            let now = now + taken as isize - given_back as isize;
            held.set((now, most.max(now), largest.max(taken)));
        });
    }

    // SAFETY: every call is handed on to `System` as it came, which keeps `GlobalAlloc`'s promises; counting touches a
    // thread-local triple and nothing else.
    unsafe impl GlobalAlloc for Counting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            change(layout.size(), 0);
            // SAFETY: the caller's promises are those `System` asks for.
            unsafe { System.alloc(layout) }
        }
        unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
            change(layout.size(), 0);
            // SAFETY: as above.
            unsafe { System.alloc_zeroed(layout) }
        }
        unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
            change(size, layout.size());
            // SAFETY: as above; the memory came from `System`, because everything does.
            unsafe { System.realloc(memory, layout, size) }
        }
        unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
            change(0, layout.size());
            // SAFETY: as above.
            unsafe { System.dealloc(memory, layout) }
        }
    }

    #[global_allocator]
    static ALLOCATOR: Counting = Counting;

    /// The most bytes that `work` held at one time beyond what was held before, and the largest piece of them.
    pub(crate) fn of(work: impl FnOnce()) -> (usize, usize) {
        HELD.with(|held| held.set((0, 0, 0)));
        work();
        HELD.with(|held| (held.get().1.max(0) as usize, held.get().2))
    }
}

/// Windows and buffers of a fixed size, of which the largest is 1 MiB, and twice that while one grows.
const MOST_HELD: usize = 4 << 20;
const LARGEST: usize = 2 << 20;

/// Opens a file as every command does, and reads it to its end, or to its fault.
fn read(bytes: &[u8]) {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(bytes).expect("is written");
    for lenient in [false, true] {
        if let Ok(mut feed) = open_feed(file.path(), &FeedOptions { lenient, ..FeedOptions::default() }) {
            while let Ok(Some(_)) = feed.next() {}
        }
    }
    // Asked for as a whole, it is still what is there that is read.
    let _ = Input::preload(file.path(), 1 << 33).map(|input| input.is_preloaded());
}

/// A head, and zeros up to 100 bytes.
fn a_hundred(head: &[&[u8]]) -> Vec<u8> {
    let mut bytes = head.concat();
    assert!(bytes.len() <= 100);
    bytes.resize(100, 0);
    bytes
}

#[test]
fn the_counter_counts() {
    let (held, largest) = bytes::of(|| drop(std::hint::black_box((vec![1u8; 3_000_000], vec![1u8; 5]))));
    assert_eq!((held, largest), (3_000_005, 3_000_000));
    let nothing = || {
        std::hint::black_box([0u64; 8]);
    };
    assert_eq!(bytes::of(nothing), (0, 0));
}

#[test]
fn a_file_of_a_hundred_bytes_that_claims_a_gigabyte_is_given_nothing_for_it() {
    let giga = (1u32 << 30).to_le_bytes();
    let pcap = [&0xA1B2_3C4Du32.to_le_bytes()[..], &[2, 0, 4, 0], &[0; 8], &[0, 0, 4, 0], &[1, 0, 0, 0]].concat();
    let section = |len: [u8; 4]| {
        [&[0x0A, 0x0D, 0x0D, 0x0A][..], &len, &0x1A2B_3C4Du32.to_le_bytes(), &[1, 0, 0, 0], &[0xFF; 8], &len].concat()
    };
    // Magic number; a single segment whose size has eight bytes; the size; an empty last block.
    let zstd = [&[0x28, 0xB5, 0x2F, 0xFD, 0xE0][..], &(1u64 << 30).to_le_bytes(), &[1, 0, 0]].concat();
    // Schema and times, no limit, no symbols in or out that are there; then how many symbols are said to follow.
    let dbn = |version: u8, len: u32| [&b"DBN"[..], &[version], &len.to_le_bytes()].concat();
    let claims = [
        ("a frame of pcap", a_hundred(&[&pcap, &[0; 8], &giga, &giga])),
        ("a section of pcapng", a_hundred(&[&section(giga)])),
        ("a block of pcapng", a_hundred(&[&section(28u32.to_le_bytes()), &6u32.to_le_bytes(), &giga])),
        ("an interface of pcapng", a_hundred(&[&section(28u32.to_le_bytes()), &1u32.to_le_bytes(), &giga])),
        ("metadata of DBN", a_hundred(&[&dbn(3, 1 << 30)])),
        ("most metadata of DBN", a_hundred(&[&dbn(2, u32::MAX)])),
        ("a frame of zstd", a_hundred(&[&zstd])),
        ("a frame of zstd to be skipped", a_hundred(&[&0x184D_2A50u32.to_le_bytes(), &giga])),
        ("a message of BinaryFILE", a_hundred(&[&[0xFF, 0xFF, b'S']])),
        ("a datagram of MoldUDP64", a_hundred(&[b"000010059B", &1u64.to_be_bytes(), &[0xFF, 0xFE, 0xFF, 0xFF]])),
    ];
    for (name, bytes) in claims {
        let (held, largest) = bytes::of(|| read(&bytes));
        println!("{name}: {held} bytes held at most, {largest} at once");
        assert!(held < MOST_HELD && largest <= LARGEST, "{name}: {held} bytes held, {largest} at once");
    }
}

/// The decompressor of zstd has an allocator of its own, so the process is looked at as a whole.
#[test]
fn a_frame_of_zstd_that_claims_a_gigabyte_takes_no_memory() {
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/status").expect("proc(5)");
        let line = status.lines().find(|line| line.starts_with("VmPeak:")).expect("a line VmPeak");
        line.split_ascii_whitespace().nth(1).and_then(|text| text.parse::<u64>().ok()).expect("a number of KiB")
    };
    let frame = [&[0x28, 0xB5, 0x2F, 0xFD, 0xE0][..], &(1u64 << 30).to_le_bytes(), &[1, 0, 0]].concat();
    let before = resident();
    read(&frame);
    let grown = resident() - before;
    // Other tests of this program run beside it, and have arenas of their own.
    assert!(grown < 512 << 10, "{grown} KiB of address space for a claim of 1,048,576");
}

#[test]
fn no_seed_of_any_target_takes_more_than_what_is_fixed() {
    // Books, channels and a few readers beside each other, all small, and answers of a recovery server.
    const MOST: usize = 32 << 20;
    for target in &TARGETS {
        let mut most = (0, String::new());
        for (name, input) in (target.seeds)() {
            let (held, _) = bytes::of(|| (target.run)(&input));
            most = most.max((held, name));
        }
        println!("{}: {} bytes held at most, by '{}'", target.name, most.0, most.1);
        assert!(most.0 < MOST, "{}: {} bytes held for '{}'", target.name, most.0, most.1);
    }
}
