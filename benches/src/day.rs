//! A generated day, so that no bench measures the generator: whole, in memory, so that none measures a disk either, or in
//! a file, for days of any length.

use std::io::{BufWriter, Write};
use std::path::Path;

use feeds_replay::generate::{GenerateError, GenerateOptions, GenerateSummary, generate};
use publisher::date::{SessionDate, session_date};
use publisher::feed::Message;
use tempfile::NamedTempFile;

/// Which day.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DayOptions {
    /// The same seed gives the same bytes.
    pub seed: u64,
    /// Securities.
    pub symbols: u16,
    /// Messages.
    pub messages: u64,
}

/// A day of ITCH in BinaryFILE framing.
pub struct Day {
    bytes: Vec<u8>,
    summary: GenerateSummary,
    date: SessionDate,
}

impl Day {
    /// Makes the day.
    ///
    /// # Errors
    /// [`GenerateError`], if the options leave no room for a whole day.
    pub fn generate(options: DayOptions) -> Result<Day, GenerateError> {
        let DayOptions { seed, symbols, messages } = options;
        // No message of a generated day is longer than 50 bytes with its framing; most have less than 40.
        let mut bytes = Vec::with_capacity(messages as usize * 40);
        let options = GenerateOptions { seed, symbols, messages, ..GenerateOptions::default() };
        let summary = generate(&options, &mut bytes)?;
        let date = session_date(Some("none"), None, Path::new("generated")).expect("`none` is a date option");
        Ok(Day { bytes, summary, date })
    }

    /// All of it, framing included.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What is in it.
    pub fn summary(&self) -> &GenerateSummary {
        &self.summary
    }

    /// Its date: none, so that times are times of day.
    pub fn date(&self) -> SessionDate {
        self.date
    }

    /// The messages one by one, without their framing.
    pub fn messages(&self) -> impl Iterator<Item = Message<'_>> {
        let (mut offset, mut ordinal) = (0usize, 0u64);
        std::iter::from_fn(move || {
            let prefix: [u8; 2] = self.bytes.get(offset..offset + 2)?.try_into().ok()?;
            let len = usize::from(u16::from_be_bytes(prefix));
            let bytes = self.bytes.get(offset + 2..offset + 2 + len)?;
            ordinal += 1;
            let message = Message { ordinal, offset: offset as u64, capture: None, bytes };
            offset += 2 + len;
            Some(message)
        })
    }
}

/// A day of ITCH in a file, in BinaryFILE framing. The file goes with it.
pub struct DayFile {
    file: NamedTempFile,
    date: SessionDate,
}

impl DayFile {
    /// Writes the day to a new file in the system's folder for such (`TMPDIR`).
    ///
    /// # Errors
    /// [`GenerateError`], if the options leave no room for a whole day or the file cannot be written.
    pub fn generate(options: DayOptions) -> Result<DayFile, GenerateError> {
        let DayOptions { seed, symbols, messages } = options;
        let options = GenerateOptions { seed, symbols, messages, ..GenerateOptions::default() };
        let mut file = NamedTempFile::new().map_err(|source| GenerateError::Write { bytes: 0, source })?;
        let mut out = BufWriter::with_capacity(1 << 20, file.as_file_mut());
        let GenerateSummary { bytes, .. } = generate(&options, &mut out)?;
        out.flush().map_err(|source| GenerateError::Write { bytes, source })?;
        drop(out);
        let date = session_date(Some("none"), None, file.path()).expect("`none` is a date option");
        Ok(DayFile { file, date })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Its date: none, so that times are times of day.
    pub fn date(&self) -> SessionDate {
        self.date
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_cut_into_as_many_messages_as_were_asked_for() {
        let day = Day::generate(DayOptions { seed: 3, symbols: 5, messages: 5_000 }).expect("a short day");
        assert_eq!(day.messages().count(), 5_000);
        let bytes: usize = day.messages().map(|message| message.bytes.len() + 2).sum();
        assert_eq!(bytes, day.bytes().len());
        assert_eq!(day.summary().messages, 5_000);
    }
}
