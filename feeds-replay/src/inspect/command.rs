//! The command `inspect`.

use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use clap::Args;
use cli::eprintln;
use publisher::open::OpenError;

use super::{InspectOptions, inspect};
use crate::feed_arguments::FeedArguments;

/// Between two lines that say how far it is.
const SHOW_EVERY: Duration = Duration::from_secs(2);

/// What `feeds-replay inspect` is told.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  feeds-replay inspect 12302019.NASDAQ_ITCH50.gz
      a day file as Nasdaq gives it; the date is in its name
  feeds-replay inspect morning.pcapng.gz
      a packet capture: lines A and B are arbitrated, and shown one by one; the date is that of the packets
  feeds-replay inspect day.itch --date none --json | jq .crossed_event_ends

A packet capture may hold several sessions side by side: all of them are inspected, unless --session names one.

The exit status is 0 if the capture was read to its end, and 1 if it is cut off or damaged; everything before the fault \
is reported all the same. Ctrl-C ends it with what was found so far.")]
pub struct InspectArguments {
    /// The capture: ITCH 5.0 as BinaryFILE, or as MoldUDP64 in pcap or pcapng, or DBN; plain, gzip or zstd. Several are read one after
    /// the other.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// How it is read.
    #[command(flatten)]
    pub feed: FeedArguments,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Inspects a capture and prints what is in it. Returns whether it could be read to its end (or was asked to stop).
///
/// # Errors
/// [`OpenError`]: there is nothing to inspect.
pub fn run(arguments: &InspectArguments, stop: &AtomicBool) -> Result<bool, Box<dyn std::error::Error>> {
    let options = InspectOptions { feed: arguments.feed.clone(), ..InspectOptions::default() };
    let mut shown = Instant::now();
    let inspection = inspect(&arguments.files, &options, stop, &mut |progress| {
        if shown.elapsed() >= SHOW_EVERY {
            shown = Instant::now();
            eprintln!("{} messages in {} MB so far", progress.messages, progress.bytes / 1_000_000);
        }
    })
    .map_err(|error: OpenError| Box::new(error))?;
    let out = if arguments.json { format!("{}\n", inspection.json()) } else { inspection.text() };
    match io::stdout().write_all(out.as_bytes()) {
        // Whoever reads has seen enough: `inspect … | head`.
        Err(cause) if cause.kind() == ErrorKind::BrokenPipe => {}
        written => written?,
    }
    // The text has it already, in its first lines.
    if let Some(error) = inspection.error.as_ref().filter(|_| arguments.json) {
        eprintln!("feeds-replay: {error}");
    }
    Ok(inspection.error.is_none())
}
