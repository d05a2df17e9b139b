//! Cells under the model checker: every interleaving of a writer and a reader, and every value that a load may return.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p transport --release --test loom_cells
//! ```
//!
//! The source under test is the product's ([`transport::cells::core`]), on cells of two words of content.

#![cfg(loom)]
#![forbid(unsafe_code)]

use std::sync::atomic::Ordering;

use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;
use transport::cells::core::{Look, look, write};
use transport::ring::core::{Word, WordMut};

struct LoomWord(AtomicU64);

impl Word for LoomWord {
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }
}

impl WordMut for LoomWord {
    fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, order);
    }
}

fn cell(words: usize) -> Arc<Vec<LoomWord>> {
    Arc::new((0..words).map(|_| LoomWord(AtomicU64::new(0))).collect())
}

/// What the writing with this number puts into a cell.
fn content(times: u64) -> [u64; 2] {
    [times + 10, times + 100]
}

#[test]
fn what_a_reader_takes_is_one_writing_and_never_an_earlier_one_than_before() {
    loom::model(|| {
        let cell = cell(3);
        let writing = Arc::clone(&cell);
        let writer = thread::spawn(move || {
            for times in 0..2 {
                write(&writing[..], times, &content(times));
            }
        });
        let mut newest = 0;
        for _ in 0..2 {
            let mut found = [0; 2];
            match look(&cell[..], &mut found) {
                Look::Never => assert_eq!(newest, 0, "it was written before"),
                Look::InWriting => {}
                Look::Version(version) => {
                    assert!(version % 2 == 0 && version >= newest, "{version} after {newest}");
                    assert_eq!(found, content(version / 2 - 1), "version {version}");
                    newest = version;
                }
            }
        }
        writer.join().unwrap();
        let mut found = [0; 2];
        assert_eq!(look(&cell[..], &mut found), Look::Version(4));
        assert_eq!(found, content(1));
    });
}

/// The round is published before the cells that are written in it: a reader who asks for it after a cell knows a later one.
#[test]
fn a_cell_of_a_round_is_never_seen_before_the_round() {
    loom::model(|| {
        let (cell, round) = (cell(3), Arc::new(LoomWord(AtomicU64::new(0))));
        let (writing, rising) = (Arc::clone(&cell), Arc::clone(&round));
        let writer = thread::spawn(move || {
            // As `CellsWriter::set_round` does it.
            rising.store(1, Ordering::Release);
            write(&writing[..], 0, &[1, 7]);
        });
        let mut found = [0; 2];
        if let Look::Version(_) = look(&cell[..], &mut found) {
            // As `CellsReader::round` does it.
            assert!(round.load(Ordering::Acquire) >= found[0]);
        }
        writer.join().unwrap();
    });
}

/// That the checker sees what is wrong with weaker orders, so that the tests above say something.
#[test]
fn a_writer_without_release_is_found_out() {
    let outcome = std::panic::catch_unwind(|| {
        loom::model(|| {
            let cell = cell(3);
            let writing = Arc::clone(&cell);
            let writer = thread::spawn(move || {
                for times in 0..2 {
                    writing[0].store(2 * times + 1, Ordering::Relaxed);
                    for (word, value) in writing[1..].iter().zip(content(times)) {
                        word.store(value, Ordering::Relaxed);
                    }
                    writing[0].store(2 * times + 2, Ordering::Release);
                }
            });
            let mut found = [0; 2];
            if let Look::Version(version) = look(&cell[..], &mut found) {
                assert_eq!(found, content(version / 2 - 1));
            }
            writer.join().unwrap();
        });
    });
    assert!(outcome.is_err(), "relaxed words can be torn, and nobody noticed");
}
