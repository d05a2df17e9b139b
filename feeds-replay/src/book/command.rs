//! The command `feeds-replay book`.

use std::path::{Path, PathBuf};

use clap::Args;
use cli::{eprintln, print, println};
use publisher::filter::Filtered;
use publisher::open::{OpenFeed, open_feed};
use publisher::venue::{AnyVenue, VenueOptions};

use crate::feed_arguments::FeedArguments;

use super::diff::{Parting, diff};
use super::{Moment, Walk, book_at, json, text};

/// Levels a side that are shown where nobody says how many.
const DEPTH: usize = 10;

/// What `feeds-replay book` is told.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  feeds-replay book 12302019.NASDAQ_ITCH50.gz --symbol AAPL
      the book at the end of the capture
  feeds-replay book 12302019.NASDAQ_ITCH50.gz --symbol AAPL --at 09:30:00
      after the last event at or before half past nine by the exchange's clock
  feeds-replay book day.itch --date 2019-12-30 --symbol AAPL --at 2019-12-30T14:30:00.000000001Z --depth 5
      a moment in UTC to the nanosecond; five levels a side
  feeds-replay book 12302019.NASDAQ_ITCH50.gz --symbol AAPL --json | jq '.bids[0].price'
      for a program: every level, prices as exact decimal text
  feeds-replay book --diff ours.itch theirs.itch --date none
      where the books of two captures of one session part, symbol by symbol

The first line says what the book is. Live: complete. Suspect: the capture starts in mid-day, or the venue's messages \
do not agree. The exit status is 0 if there is a book to show (with --diff: if all books agree), else 1.")]
pub struct BookArguments {
    /// The capture: ITCH 5.0 as BinaryFILE, or as MoldUDP64 in pcap or pcapng, or DBN; plain, gzip or zstd.
    #[arg(required_unless_present = "diff", conflicts_with = "diff")]
    file: Option<PathBuf>,
    /// Whose book. With --diff: compare this symbol alone.
    #[arg(long, required_unless_present = "diff")]
    symbol: Option<String>,
    /// After the last event at or before this time: the exchange's time of day (HH:MM:SS[.n]) or RFC 3339. Left out: at
    /// the end of the capture. With --diff: compare up to then.
    #[arg(long, value_name = "TIME")]
    at: Option<Moment>,
    /// Levels a side. Left out: 10, and all of them with --json.
    #[arg(long, value_name = "N")]
    depth: Option<usize>,
    /// Compare two captures of one session at every time at which something happened, and say where their books part.
    #[arg(long, num_args = 2, value_names = ["A", "B"])]
    diff: Option<Vec<PathBuf>>,
    #[command(flatten)]
    feed: FeedArguments,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl BookArguments {
    fn walk(&self, path: &Path) -> Result<Walk<OpenFeed, Filtered<AnyVenue>>, Box<dyn std::error::Error>> {
        let feed = open_feed(path, &self.feed.options())?;
        let date = feed.session_date(self.feed.date.as_deref())?;
        let options = VenueOptions { full: self.feed.full, ..VenueOptions::default() };
        let venue = self.feed.filtered(feed.venue(date, options))?;
        Ok(Walk::new(feed, venue, date))
    }
}

/// Runs the command. Returns whether there was a whole book to show, or two captures agree.
///
/// # Errors
/// In words: what is wrong with the file, the symbol or the time.
pub fn run(arguments: &BookArguments) -> Result<bool, Box<dyn std::error::Error>> {
    let walk = |path: &Path| arguments.walk(path);
    if let Some([a, b]) = arguments.diff.as_deref() {
        let parting = diff(&mut walk(a)?, &mut walk(b)?, arguments.symbol.as_deref(), arguments.at)?;
        let names = [a, b].map(|path| path.display().to_string());
        let depth = arguments.depth.unwrap_or(DEPTH);
        match arguments.json {
            true => println!("{}", parting.json(&names, depth)),
            false => print!("{}", parting.text(&names, depth)),
        }
        return Ok(Parting::agrees(&parting));
    }
    let (Some(file), Some(symbol)) = (&arguments.file, &arguments.symbol) else {
        return Err("give a capture and --symbol, or --diff A B".into());
    };
    let image =
        book_at(&mut walk(file)?, symbol, arguments.at).map_err(|error| format!("{}: {error}", file.display()))?;
    match arguments.json {
        true => println!("{}", json(&image, arguments.depth.unwrap_or(usize::MAX))),
        false => print!("{}", text(&image, arguments.depth.unwrap_or(DEPTH))),
    }
    if let Some(warning) = &image.warning {
        eprintln!("feeds-replay: taken for the end, as asked: {warning}");
    }
    match image.cut {
        // What could be read was shown; what could not be is an error all the same.
        Some(error) => {
            eprintln!("feeds-replay: {error}");
            Ok(false)
        }
        None => Ok(true),
    }
}
