//! The system's allocator, counting what threads that ask for it do. A test program that has this module runs on it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Calls on this thread while it counts; `None` while it does not. Constant and without a destructor, so that
    /// using it allocates nothing.
    static CALLS: Cell<Option<u64>> = const { Cell::new(None) };
}

pub(crate) struct Counting;

fn count() {
    // A thread that is ending has no counter any more, and is not one that is measured.
    let _ = CALLS.try_with(|calls| calls.set(calls.get().map(|n| n + 1)));
}

// SAFETY: every call is handed on to `System` as it came, which keeps `GlobalAlloc`'s promises; counting touches a
// thread-local integer and nothing else.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are those `System` asks for.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as above; the memory came from `System`, because everything does.
        unsafe { System.realloc(memory, layout, size) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count();
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Counts this thread's calls of the allocator, frees included, from here on.
pub(crate) fn start() {
    CALLS.with(|calls| calls.set(Some(0)));
}

/// Ends counting; how many calls there were.
pub(crate) fn stop() -> u64 {
    CALLS.with(|calls| calls.replace(None)).expect("counting was started")
}

/// What a test that counts says first: that the counter counts.
///
/// # Panics
/// If it does not.
pub(crate) fn check() {
    start();
    drop(std::hint::black_box(Box::new(1u64)));
    assert_eq!(stop(), 2, "one allocation, one release");
}
