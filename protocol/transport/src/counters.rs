//! The counters page: up to 64 named counters that any process may read while their owner runs.
//!
//! ```text
//!  byte 0       8                64                     64 + 56 i
//!  count u64    reserved         name 48 B, value u64   …          64 slots, up to byte 3648 of 4096
//! ```
//!
//! A slot is written once with its name, then counted in `count`; from there on only its value changes. One thread owns
//! each counter, so that counting is a load and a store, and the hot loop needs no locked instruction.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use crate::memory::{Mapping, PAGE_LEN};
use crate::ring::core::Word;

/// The most counters of one page.
pub const MAX_COUNTERS: usize = 64;
/// The most bytes of a counter's name.
pub const MAX_COUNTER_NAME_LEN: usize = 48;
/// Bytes of the page.
pub(crate) const COUNTERS_LEN: usize = PAGE_LEN;

const SLOTS_OFFSET: usize = 64;
const SLOT_LEN: usize = MAX_COUNTER_NAME_LEN + 8;
const _: () = assert!(SLOTS_OFFSET + MAX_COUNTERS * SLOT_LEN <= COUNTERS_LEN);

/// Why a counter could not be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CounterError {
    /// The page is full.
    #[error("the counters page holds {MAX_COUNTERS} counters and all are taken: register fewer, or share one")]
    Full,
    /// The name does not fit its slot.
    #[error("a counter's name has 1 to {MAX_COUNTER_NAME_LEN} bytes and no zero byte")]
    Name,
}

/// The counters of one ring's owner.
pub struct CounterPage {
    mapping: Arc<Mapping>,
    offset: usize,
    /// Names in the order of their slots. Registration is start-up work; counting never takes this lock.
    names: Mutex<Vec<String>>,
}

impl CounterPage {
    /// Over a page of zeroes at byte `offset` of `mapping`.
    pub(crate) fn new(mapping: Arc<Mapping>, offset: usize) -> CounterPage {
        CounterPage { mapping, offset, names: Mutex::new(Vec::with_capacity(MAX_COUNTERS)) }
    }

    /// The counter called `name`: a new one at 0, or the one that already has the name.
    ///
    /// # Errors
    /// [`CounterError`], if the page is full or the name does not fit.
    pub fn register(&self, name: &str) -> Result<Counter, CounterError> {
        if name.is_empty() || name.len() > MAX_COUNTER_NAME_LEN || name.bytes().any(|byte| byte == 0) {
            return Err(CounterError::Name);
        }
        let mut names = self.names.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let index = match names.iter().position(|known| known == name) {
            Some(index) => index,
            None if names.len() == MAX_COUNTERS => return Err(CounterError::Full),
            None => {
                let slot = self.offset + SLOTS_OFFSET + names.len() * SLOT_LEN;
                let mut bytes = [0; MAX_COUNTER_NAME_LEN];
                bytes[..name.len()].copy_from_slice(name.as_bytes());
                for (i, word) in bytes.chunks_exact(8).enumerate() {
                    let word = u64::from_le_bytes(word.try_into().expect("8 bytes"));
                    self.mapping.word_mut(slot + i * 8).store(word, Ordering::Relaxed);
                }
                names.push(name.to_owned());
                // Release: pairs with the Acquire in `read`: who sees the count sees the name.
                self.mapping.word_mut(self.offset).store(names.len() as u64, Ordering::Release);
                names.len() - 1
            }
        };
        let value = self.offset + SLOTS_OFFSET + index * SLOT_LEN + MAX_COUNTER_NAME_LEN;
        Ok(Counter { mapping: Arc::clone(&self.mapping), offset: value })
    }

    /// Every counter and its value, in order of registration.
    pub fn read(&self) -> Vec<(String, u64)> {
        read(&self.mapping, self.offset)
    }
}

/// Reads the counters page at byte `offset` of `mapping`, whoever writes it. Whatever it holds, no more than the page is
/// read, and a name that is no UTF-8 is shown with replacement characters.
pub(crate) fn read(mapping: &Mapping, offset: usize) -> Vec<(String, u64)> {
    let words = mapping.words(offset, COUNTERS_LEN / 8);
    // Acquire: pairs with the Release in `CounterPage::register`.
    let count = words[0].load(Ordering::Acquire).min(MAX_COUNTERS as u64) as usize;
    let slots = words[SLOTS_OFFSET / 8..].chunks_exact(SLOT_LEN / 8).take(count);
    slots
        .map(|slot| {
            let (value, name) = slot.split_last().expect("a slot has words");
            let bytes: Vec<u8> = name.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
            let len = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
            (String::from_utf8_lossy(&bytes[..len]).into_owned(), value.load(Ordering::Relaxed))
        })
        .collect()
}

/// One counter. Its owner is one thread; anybody may read it.
pub struct Counter {
    mapping: Arc<Mapping>,
    offset: usize,
}

impl Counter {
    /// Adds `n`, wrapping. `&mut`, because a second adder would lose counts.
    #[inline]
    pub fn add(&mut self, n: u64) {
        let word = self.mapping.word_mut(self.offset);
        word.store(word.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Makes `value` its value.
    #[inline]
    pub fn set(&mut self, value: u64) {
        self.mapping.word_mut(self.offset).store(value, Ordering::Relaxed);
    }

    /// Its value.
    #[inline]
    pub fn get(&self) -> u64 {
        self.mapping.word_mut(self.offset).load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> CounterPage {
        CounterPage::new(Arc::new(Mapping::anonymous(2 * PAGE_LEN).expect("maps").0), PAGE_LEN)
    }

    #[test]
    fn counters_are_read_back_by_name_in_order() {
        let page = page();
        let mut lines = page.register("lines").expect("room");
        let mut longest = page.register(&"x".repeat(48)).expect("48 bytes fit");
        lines.add(2);
        lines.add(3);
        longest.set(u64::MAX);
        assert_eq!(page.read(), [("lines".to_owned(), 5), ("x".repeat(48), u64::MAX)]);
        assert_eq!(page.register("lines").expect("known").get(), 5);
        assert_eq!(page.read().len(), 2);
    }

    #[test]
    fn a_full_page_and_a_long_name_are_refused() {
        let page = page();
        assert_eq!(page.register(&"x".repeat(49)).err(), Some(CounterError::Name));
        assert_eq!(page.register("").err(), Some(CounterError::Name));
        for i in 0..MAX_COUNTERS {
            page.register(&format!("counter {i}")).expect("room");
        }
        assert_eq!(page.register("one more").err(), Some(CounterError::Full));
        assert_eq!(page.read().len(), MAX_COUNTERS);
    }

    #[test]
    fn a_page_of_garbage_is_read_within_its_bounds() {
        let (mapping, _) = Mapping::anonymous(PAGE_LEN).expect("maps");
        for offset in (0..PAGE_LEN).step_by(8) {
            mapping.word_mut(offset).store(u64::MAX, Ordering::Relaxed);
        }
        assert_eq!(read(&mapping, 0).len(), MAX_COUNTERS);
    }
}
