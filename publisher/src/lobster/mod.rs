//! LOBSTER: the messages of one Nasdaq stock as CSV, and the order book after each as the check of it.
//!
//! [`row`] reads a row of the message file, [`normalise`] turns it into records. [`book_file`] reads the order-book file,
//! which is no feed: [`check`] holds the levels that the records make against it, row by row. NOTES.md in this folder has
//! the rules.

pub mod book_file;
pub mod check;
pub mod normalise;
pub mod row;

pub use normalise::Normaliser;
pub use row::Row;

/// The ticker that a file is of, which its name begins with: `AAPL_2012-06-21_34200000_57600000_message_10.csv`. Empty where
/// the name has no underscore.
pub fn symbol_of(path: &std::path::Path) -> String {
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    name.split_once('_').map_or_else(String::new, |(symbol, _)| symbol.to_owned())
}
