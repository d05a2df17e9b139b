//! The cell's algorithm, apart from the memory it lies in: a sequence lock of atomics alone.
//!
//! A cell is a version word and so many words of content. The version is 0 before the first writing, odd during one and even
//! after it. There is one writer; it never waits. A reader takes what it read only if the version was the same even number
//! before and after, and looks again otherwise.
//!
//! Why a torn content is never taken: each word of content is stored with Release after the odd version, and loaded with
//! Acquire before the version is looked at again. Whoever loads a word of a writing sees its odd version, or a later one,
//! in that last look. (In the other direction: the first look at the version is an Acquire that pairs with the Release
//! which ended that writing, so no word is older than the version says.) `tests/loom_cells.rs` tries every interleaving, and
//! every value that a load may return.

use std::sync::atomic::Ordering;

use crate::ring::core::{Word, WordMut};

/// What a look at a cell found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// It was never written.
    Never,
    /// It was being written: what was read is nothing.
    InWriting,
    /// What was read is what this version holds. A later version is a later content.
    Version(u64),
}

/// Writes `content` into `cell`, which was written `times` times before. Returns the version.
///
/// # Panics
/// If the cell has no version word.
#[inline]
pub fn write<W: WordMut>(cell: &[W], times: u64, content: &[u64]) -> u64 {
    let (version, words) = cell.split_first().expect("a cell has a version word");
    // Relaxed: the Release of each word that follows carries it to whoever sees that word.
    version.store(2 * times + 1, Ordering::Relaxed);
    for (word, value) in words.iter().zip(content) {
        // Release: pairs with the Acquire in `look`; who sees this word sees the odd version.
        word.store(*value, Ordering::Release);
    }
    // Release: pairs with the Acquire of the version in `look`; who sees this version sees all words.
    version.store(2 * times + 2, Ordering::Release);
    2 * times + 2
}

/// Reads `cell` into `content`, once. Unless a version comes back, `content` holds nothing of use.
///
/// # Panics
/// If the cell has no version word.
#[inline]
pub fn look<W: Word>(cell: &[W], content: &mut [u64]) -> Look {
    let (version, words) = cell.split_first().expect("a cell has a version word");
    // Acquire: pairs with the Release that ends `write`.
    let before = version.load(Ordering::Acquire);
    if before == 0 {
        return Look::Never;
    }
    if before % 2 == 1 {
        return Look::InWriting;
    }
    for (value, word) in content.iter_mut().zip(words) {
        // Acquire: pairs with the Release of each word in `write`; and what follows is not done before.
        *value = word.load(Ordering::Acquire);
    }
    // Relaxed: it comes after the loads above, which are Acquires.
    if version.load(Ordering::Relaxed) == before { Look::Version(before) } else { Look::InWriting }
}
