//! The command `record`.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use cli::{eprintln, print, println};
use publisher::dbn::encode::Written;
use publisher::open::open_feeds;
use publisher::venue::VenueOptions;
use serde_json::json;
use transport::clock::IdleStrategy;

use super::{Output, Recorder, record_capture};
use crate::feed_arguments::FeedArguments;

/// What `feeds-replay record` is told.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  feeds-replay record 12302019.NASDAQ_ITCH50.gz -o day.dbn.zst
      a day file as DBN, compressed because of its name
  feeds-replay record morning.pcapng.gz -o aapl.dbn --symbols AAPL --from 09:30:00 --to 10:00:00
      half an hour of one symbol out of a packet capture
  feeds-replay record --live itch -o now.dbn
      what a running publisher of the channel 'itch' says, over shared memory, until it ends or Ctrl-C

Orders become mbo records, levels mbo records with the flags for them; status, definition, imbalance and statistics stand \
between them. What DBN has no place for is left out, and listed; what it would hold wrongly (a size above 32 bits, for \
one) ends the recording with an error that names it. The exit status is 0 if everything was read.")]
pub struct RecordArguments {
    /// The capture; several are read one after the other.
    #[arg(required_unless_present = "live", conflicts_with = "live", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Record a running publisher's channel of this name instead, over shared memory.
    #[arg(long, value_name = "CHANNEL")]
    live: Option<String>,
    /// Where to; compressed with zstd if the name ends in .zst.
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    feed: FeedArguments,
    /// Print the account as JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the command. Returns whether everything was read.
///
/// # Errors
/// In words: what is wrong with the capture, the output, or a record.
pub fn run(arguments: &RecordArguments, stop: &AtomicBool) -> Result<bool, Box<dyn std::error::Error>> {
    let zstd = arguments.output.extension().is_some_and(|extension| extension == "zst");
    let (written, error, stopped) = match (&arguments.files[..], &arguments.live) {
        ([_, ..], _) => {
            let feed = open_feeds(&arguments.files, &arguments.feed.options())?;
            let date = feed.session_date(arguments.feed.date.as_deref())?;
            let options = VenueOptions { full: arguments.feed.full, ..VenueOptions::default() };
            let venue = arguments.feed.filtered(feed.venue(date, options))?;
            let mut out = Output::create(&arguments.output, zstd)?;
            let recorded = record_capture(feed, venue, &mut out, stop)?;
            (out.finish()?, recorded.error.map(|error| error.to_string()), recorded.stopped)
        }
        ([], Some(channel)) => {
            let mut subscriber = subscriber::Builder::new(channel).shared_memory()?;
            let mut out = Output::create(&arguments.output, zstd)?;
            let mut recorder = Recorder::new(&mut out);
            // Relaxed: the flag carries nothing but itself.
            while !subscriber.has_ended() && recorder.error.is_none() && !stop.load(Ordering::Relaxed) {
                let work = subscriber.poll(&mut recorder);
                IdleStrategy::Yield.idle(work);
            }
            let error = recorder.error.take();
            let stopped = !subscriber.has_ended() && error.is_none();
            if let Some(error @ super::RecordError::Encode(_)) = error {
                return Err(error.into());
            }
            (out.finish()?, error.map(|error| error.to_string()), stopped)
        }
        ([], None) => return Err("give a capture, or --live CHANNEL".into()),
    };
    if arguments.json {
        println!("{}", account(&written, error.as_deref(), stopped));
    } else {
        print!("{}", text(arguments, &written, stopped));
    }
    if let Some(error) = &error {
        eprintln!("feeds-replay: {error}");
    }
    Ok(error.is_none())
}

fn account(written: &Written, error: Option<&str>, stopped: bool) -> serde_json::Value {
    json!({
        "records": written.records,
        "executions_expanded": written.expanded,
        "own_time": written.own_time,
        "left_out": written.left_out,
        "reduced": written.reduced,
        "stopped": stopped,
        "error": error,
    })
}

fn text(arguments: &RecordArguments, written: &Written, stopped: bool) -> String {
    use std::fmt::Write;
    let mut out = format!("{}: {} DBN records\n", arguments.output.display(), written.total());
    // Writing to a string cannot fail.
    for (schema, count) in &written.records {
        let _ = writeln!(out, "{count:>14}  {schema}");
    }
    if written.expanded > 0 {
        let _ = writeln!(out, "{:>14}  executions, each of them a fill and a cancel", written.expanded);
    }
    if written.own_time > 0 {
        let _ = writeln!(out, "{:>14}  lines with the receiver's time alone, and no venue's", written.own_time);
    }
    for (what, count) in &written.reduced {
        let _ = writeln!(out, "{count:>14}  of which a part is lost: {what}");
    }
    for (what, count) in &written.left_out {
        let _ = writeln!(out, "{count:>14}  left out, for DBN has no place for them: {what}");
    }
    if stopped {
        let _ = writeln!(out, "stopped as asked: the file holds what came until then");
    }
    out
}
