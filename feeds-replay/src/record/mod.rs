//! The normalised stream as a DBN file: from a capture, or from a running publisher.
//!
//! Records are written as they come into a file beside the one that is wanted; at the end, when it is known what the
//! instruments are called, the metadata goes in front of them. A recording that fails leaves no file behind that looks whole.

pub mod command;

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use protocol::arbiter::Gap;
use protocol::book::{BooksConfig, Start};
use protocol::channel::ChannelConfig;
use protocol::line::{Epoch, Line};
use protocol::time::Nanos;
use publisher::dbn::encode::{EncodeError, Writer, Written};
use publisher::feed::FeedSource;
use publisher::pipeline::{Pipeline, PipelineError};
use publisher::venue::Venue;
use subscriber::{Context, Handler, Update};

/// Between two looks at whether to stop, so many messages.
const MESSAGES_PER_LOOK: u64 = 1 << 12;
/// How hard zstd tries: its own default.
const ZSTD_LEVEL: i32 = 3;

/// Why there is no recording.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The output.
    #[error("{}: {source}; check that its folder is there and may be written to", path.display())]
    Output {
        /// Which file.
        path: PathBuf,
        /// The system's cause.
        source: io::Error,
    },
    /// A record that DBN cannot hold, or a file that cannot be written.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The live stream lost something for good.
    #[error(
        "lines {first} to {last} were lost on the way here, and what follows them would not be a whole recording; record \
         nearer to the publisher, or over shared memory with a larger ring"
    )]
    Lost {
        /// The first line that is lost.
        first: u64,
        /// The last.
        last: u64,
    },
    /// The publisher was started anew: another stream begins.
    #[error("the publisher was started anew; what it says from there on is another recording's")]
    Restarted,
}

/// Where a recording goes.
pub struct Output {
    path: PathBuf,
    partial: PathBuf,
    zstd: bool,
    writer: Writer<Sink>,
}

/// Records on their way into the file, compressed or not.
pub enum Sink {
    /// As they are.
    Plain(BufWriter<File>),
    /// In a zstd frame of their own.
    Zstd(Box<zstd::stream::write::Encoder<'static, BufWriter<File>>>),
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Sink::Plain(out) => out.write(bytes),
            Sink::Zstd(out) => out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Sink::Plain(out) => out.flush(),
            Sink::Zstd(out) => out.flush(),
        }
    }
}

impl Sink {
    /// Ends the frame, and gives back the file.
    fn end(self) -> io::Result<File> {
        let out = match self {
            Sink::Plain(out) => out,
            Sink::Zstd(out) => out.finish()?,
        };
        out.into_inner().map_err(io::IntoInnerError::into_error)
    }
}

impl Output {
    /// A recording into `path`; with `zstd` compressed.
    ///
    /// # Errors
    /// [`RecordError::Output`].
    pub fn create(path: &Path, zstd: bool) -> Result<Output, RecordError> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.partial", std::process::id()));
        let partial = path.with_file_name(name);
        let made = File::options().read(true).write(true).create_new(true).open(&partial).and_then(|file| {
            let file = BufWriter::with_capacity(1 << 18, file);
            Ok(if zstd {
                Sink::Zstd(Box::new(zstd::stream::write::Encoder::new(file, ZSTD_LEVEL)?))
            } else {
                Sink::Plain(file)
            })
        });
        let sink = made.map_err(|source| RecordError::Output { path: partial.clone(), source })?;
        Ok(Output { path: path.to_owned(), partial, zstd, writer: Writer::new(sink) })
    }

    /// Puts the metadata in front of the records, and the whole under its name.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn finish(mut self) -> Result<Written, RecordError> {
        let sink = std::mem::replace(&mut self.writer, Writer::new(empty(&self.partial)?));
        let (sink, written) = sink.finish()?;
        let metadata = written.metadata()?;
        let failed = |source| RecordError::Output { path: self.path.clone(), source };
        let mut records = sink.end().map_err(failed)?;
        let mut whole = self.partial.clone().into_os_string();
        whole.push(".whole");
        let whole = PathBuf::from(whole);
        let put_together = || -> io::Result<()> {
            let mut out = File::create(&whole)?;
            // A frame of its own: readers of zstd go through frames as if they were one.
            out.write_all(&if self.zstd { zstd::encode_all(&metadata[..], ZSTD_LEVEL)? } else { metadata })?;
            records.rewind()?;
            let mut buffer = vec![0; 1 << 20];
            loop {
                match records.read(&mut buffer)? {
                    0 => break,
                    n => out.write_all(&buffer[..n])?,
                }
            }
            out.sync_all()?;
            fs::rename(&whole, &self.path)
        };
        let outcome = put_together();
        if outcome.is_err() {
            // What cannot be removed is named as what it is.
            let _ = fs::remove_file(&whole);
        }
        outcome.map_err(failed)?;
        Ok(written)
    }
}

/// A sink that takes the place of one that is used up.
fn empty(path: &Path) -> Result<Sink, RecordError> {
    let file = File::open(path).map_err(|source| RecordError::Output { path: path.to_owned(), source })?;
    Ok(Sink::Plain(BufWriter::with_capacity(0, file)))
}

impl Drop for Output {
    fn drop(&mut self) {
        // What is half done is of no use to anybody.
        let _ = fs::remove_file(&self.partial);
    }
}

/// What a recording of a capture came to.
#[derive(Debug)]
pub struct Recorded {
    /// Messages taken.
    pub messages: u64,
    /// Why the capture could not be read to its end; what is before is recorded.
    pub error: Option<PipelineError>,
    /// It was asked to stop.
    pub stopped: bool,
}

/// Records a capture to its end, to a fault, or until it is asked to stop.
///
/// # Errors
/// [`RecordError`]: a record cannot be written.
pub fn record_capture<S: FeedSource, V: Venue>(
    source: S,
    venue: V,
    out: &mut Output,
    stop: &AtomicBool,
) -> Result<Recorded, RecordError> {
    let config = ChannelConfig { books: BooksConfig::default(), start: Start::Natural, digest_every: 0 };
    let mut pipeline = Pipeline::new(source, venue, Epoch(1), config);
    let (mut error, mut stopped) = (None, false);
    loop {
        let mut sequence = pipeline.channel().next().sequence();
        let mut failed = None;
        let stepped = pipeline.step(Nanos::ZERO, &mut |line: &Line| {
            if failed.is_none() {
                failed = out.writer.push(sequence, &line.record).err();
            }
            sequence = sequence.plus(1);
        });
        if let Some(failed) = failed {
            return Err(failed.into());
        }
        match stepped {
            Ok(true) => {}
            Ok(false) => break,
            Err(fault) => {
                error = Some(fault);
                break;
            }
        }
        // Relaxed: the flag carries nothing but itself.
        if pipeline.steps().is_multiple_of(MESSAGES_PER_LOOK) && stop.load(Ordering::Relaxed) {
            stopped = true;
            break;
        }
    }
    Ok(Recorded { messages: pipeline.messages(), error, stopped })
}

/// A subscriber's handler that records what comes.
pub struct Recorder<'a> {
    out: &'a mut Output,
    /// Lines that came.
    pub lines: u64,
    /// What it cannot go on after.
    pub error: Option<RecordError>,
}

impl<'a> Recorder<'a> {
    /// Into `out`.
    pub fn new(out: &'a mut Output) -> Recorder<'a> {
        Recorder { out, lines: 0, error: None }
    }
}

impl Handler for Recorder<'_> {
    fn on_record(&mut self, _: &Context<'_>, update: &Update<'_>) {
        if self.error.is_none() {
            self.lines += 1;
            self.error = self.out.writer.push(update.stamp.sequence(), update.record).err().map(Into::into);
        }
    }

    fn on_gap(&mut self, _: &Context<'_>, gap: &Gap) {
        let first = gap.first.sequence().0;
        let last = first + gap.count.saturating_sub(1);
        self.error.get_or_insert(RecordError::Lost { first, last });
    }

    fn on_epoch(&mut self, _: &Context<'_>, _: Epoch, _: Epoch) {
        self.error.get_or_insert(RecordError::Restarted);
    }
}
