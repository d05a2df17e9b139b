//! Opening a capture: the one place that says what kinds of file the commands of this crate read.

use std::path::Path;

use publisher::date::{SessionDate, session_date};
use publisher::input::Input;
use publisher::itch::{BinaryFile, FramingOptions};

pub use crate::backtest::OpenError;

/// An open capture: venue messages in order.
pub type Feed = BinaryFile<Input>;

/// How a capture is opened.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OpenOptions {
    /// The session's date, `YYYY-MM-DD` or `none`; left out: from the file's name.
    pub date: Option<String>,
    /// Take a capture that is cut off for one that ends there.
    pub lenient: bool,
}

/// Opens a capture, and finds out its date.
///
/// # Errors
/// [`OpenError`].
pub fn open(path: &Path, options: &OpenOptions) -> Result<(Feed, SessionDate), OpenError> {
    let input = Input::open(path)?;
    let date = session_date(options.date.as_deref(), None, path)?;
    Ok((BinaryFile::new(input, FramingOptions { lenient: options.lenient }), date))
}
