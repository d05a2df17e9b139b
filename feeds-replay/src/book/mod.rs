//! What a book looked like at a moment, and where two captures' books part.
//!
//! [`book_at`] walks a capture ([`Walk`]) through the publisher's own decoder, normaliser and books up to the last event at
//! or before the moment, and copies one book out ([`BookImage`]). [`diff::diff`] walks two captures side by side. What
//! starts in the middle of a day is built from increments, and says that it is Suspect.
//!
//! ```no_run
//! use feeds_replay::book::{Walk, book_at};
//! use publisher::open::{FeedOptions, open_feed};
//! use publisher::venue::VenueOptions;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let feed = open_feed("12302019.NASDAQ_ITCH50.gz".as_ref(), &FeedOptions::default())?;
//! let date = feed.session_date(None)?;
//! let venue = feed.venue(date, VenueOptions::default());
//! let image = book_at(&mut Walk::new(feed, venue, date), "AAPL", Some("09:30:00".parse()?))?;
//! println!("{} orders rest; best bid {:?}", image.resting_orders, image.bids.first());
//! # Ok(())
//! # }
//! ```

pub mod command;
pub mod diff;
mod show;
mod time;
mod walk;

use protocol::book::{BookState, Level};
use protocol::record::InstrumentId;
use protocol::time::Nanos;
use publisher::date::SessionDate;
use publisher::feed::FeedSource;
use publisher::pipeline::PipelineError;
use publisher::venue::Venue;

pub use show::{json, text};
pub use time::{Moment, MomentError, When};
pub use walk::{Event, Instrument, Symbols, Walk};

/// One book, copied out.
#[derive(Clone, Debug)]
pub struct BookImage {
    /// The instrument's symbol.
    pub symbol: String,
    /// Its number in the stream.
    pub instrument: InstrumentId,
    /// Prices are in units of 10 to this power.
    pub price_exponent: i32,
    /// What the book says of itself.
    pub state: BookState,
    /// Every bid level, highest first.
    pub bids: Vec<Level>,
    /// Every ask level, lowest first.
    pub asks: Vec<Level>,
    /// Orders that rest.
    pub resting_orders: u64,
    /// The moment that was asked for.
    pub at: Option<Nanos>,
    /// The capture's last event at or before it.
    pub last: Event,
    /// The last of these that concerned this instrument.
    pub last_own: Option<Event>,
    /// The capture began in the middle of a day: what rested before is not known.
    pub mid_day: bool,
    /// The session's date.
    pub date: SessionDate,
    /// Why the capture could not be read to its end, where that was to be.
    pub cut: Option<PipelineError>,
    /// What was forgiven.
    pub warning: Option<String>,
}

/// Why there is no book to show.
#[derive(Debug, thiserror::Error)]
pub enum BookError {
    /// The feed failed before the moment that was asked for.
    #[error("{error}. The last event before that is at {last}: books up to there can be had with --at")]
    CutBefore {
        /// What happened.
        error: PipelineError,
        /// The last event before it.
        last: String,
    },
    /// The feed failed before its first event.
    #[error(transparent)]
    Feed(PipelineError),
    /// There is no such symbol.
    #[error("the capture has no symbol '{symbol}'{by}{near}")]
    UnknownSymbol {
        /// What was asked for.
        symbol: String,
        /// Up to when it was looked for.
        by: String,
        /// Names that are near, in words.
        near: String,
    },
    /// The moment does not suit the session.
    #[error(transparent)]
    Moment(#[from] MomentError),
    /// The moment is before the first event.
    #[error("--at {at} is before the capture's first event, at {first}: no book is known then")]
    BeforeFirst {
        /// What was asked for.
        at: String,
        /// The first event.
        first: String,
    },
    /// The moment is after the last event.
    #[error(
        "--at {at} is after the capture's last event, at {last}: what came later is not in it. Leave out --at for its end"
    )]
    AfterLast {
        /// What was asked for.
        at: String,
        /// The last event.
        last: String,
    },
    /// Nothing in the capture becomes a record.
    #[error("there is no event in the capture: none of its messages is of a kind that is read here")]
    NoEvents,
}

/// The book of `symbol` after the last event at or before `at`, or at the end of the capture. The walk is at its start.
///
/// # Errors
/// [`BookError`]. A feed that fails is one only if the moment lies beyond the fault; where the end was asked for, the book
/// as of the fault comes with [`BookImage::cut`].
pub fn book_at<S: FeedSource, V: Venue>(
    walk: &mut Walk<S, V>,
    symbol: &str,
    at: Option<Moment>,
) -> Result<BookImage, BookError> {
    let date = walk.date();
    let words = |time| When { time, date }.to_string();
    let at = at.map(|moment| moment.in_session(&date)).transpose()?;
    let reached = walk.advance_to(at.unwrap_or(Nanos::UNDEFINED));
    let Some(last) = walk.last() else {
        return Err(match (reached, at, walk.peek()) {
            (Err(error), ..) => BookError::Feed(error),
            (Ok(_), Some(at), Ok(Some(first))) => BookError::BeforeFirst { at: words(at), first: words(first.time) },
            _ => BookError::NoEvents,
        });
    };
    let cut = match (reached, at) {
        (Err(error), Some(_)) => return Err(BookError::CutBefore { error, last: words(last.time) }),
        (Err(error), None) => Some(error),
        (Ok(false), Some(at)) if at > last.time => {
            return Err(BookError::AfterLast { at: words(at), last: words(last.time) });
        }
        (Ok(_), _) => None,
    };
    let instrument = walk.symbols().find(symbol).ok_or_else(|| BookError::UnknownSymbol {
        symbol: symbol.to_owned(),
        by: at.map_or(String::new(), |at| format!(" up to {}", words(at))),
        near: near(symbol, walk.symbols()),
    })?;
    let price_exponent = walk.symbols().get(instrument).map_or(-9, |known| known.price_exponent);
    let view = walk.books().view(instrument);
    Ok(BookImage {
        symbol: symbol.to_owned(),
        instrument,
        price_exponent,
        state: view.map_or(BookState::Unknown, |view| view.state()),
        bids: view.map_or_else(Vec::new, |view| view.bids().collect()),
        asks: view.map_or_else(Vec::new, |view| view.asks().collect()),
        resting_orders: view.map_or(0, |view| view.resting_orders()),
        at,
        last,
        last_own: walk.last_of(instrument),
        mid_day: !walk.began(),
        date,
        cut,
        warning: walk.warning(),
    })
}

/// Symbols like the one that was asked for, in words for an error.
fn near(symbol: &str, symbols: &Symbols) -> String {
    /// As many as a person reads.
    const MOST: usize = 5;
    let asked = symbol.to_uppercase();
    let mut names: Vec<(&str, f64)> = symbols
        .names()
        .map(|name| (name, strsim::normalized_damerau_levenshtein(&asked, &name.to_uppercase())))
        .collect();
    names.sort_by(|(a, near_a), (b, near_b)| near_b.total_cmp(near_a).then_with(|| a.cmp(b)));
    let close: Vec<&str> = names.iter().filter(|(_, near)| *near >= 0.5).map(|(name, _)| *name).take(MOST).collect();
    match (&close[..], names.len()) {
        (_, 0) => "; it names none at all".to_owned(),
        ([], count) => {
            let some: Vec<&str> = names.iter().map(|(name, _)| *name).take(MOST).collect();
            format!("; it has {count}, such as {}", some.join(", "))
        }
        ([one], _) => format!("; did you mean {one}?"),
        (several, _) => format!("; did you mean one of {}?", several.join(", ")),
    }
}

#[cfg(test)]
mod tests;
