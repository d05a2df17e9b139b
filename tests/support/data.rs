//! Recorded market data, where it is there.

use std::path::PathBuf;

/// A file of the recorded data beside the checkout, for the test called `test`.
///
/// Where the data is not there, prints `SKIPPED data test: <test>`, which the test command counts, and returns `None`:
/// the test then has nothing to do.
pub fn data_file(path: &str, test: &str) -> Option<PathBuf> {
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "shared", "data"].iter().collect();
    let file = folder.join(path);
    if file.is_file() {
        return Some(file);
    }
    println!("SKIPPED data test: {test}");
    eprintln!("skipped: {} is not there", file.display());
    None
}
