//! What every command that reads a capture is told about it.

use clap::Args;
use protocol::time::Nanos;
use publisher::date::SessionDate;
use publisher::detect::FeedKind;
use publisher::filter::{Filter, Filtered};
use publisher::open::FeedOptions;
use publisher::venue::Venue;

use crate::book::Moment;

/// How a capture is read, and which part of it is wanted.
#[derive(Args, Clone, Debug, Default)]
pub struct FeedArguments {
    /// What the capture is: itch, mold, dbn, lobster, depth or tardis. Left out: told by its content.
    #[arg(long, value_name = "KIND")]
    pub feed: Option<FeedKind>,
    /// The session's date, YYYY-MM-DD, or 'none' for times of day. Left out: from the capture's times, else the file's name.
    #[arg(long)]
    pub date: Option<String>,
    /// Which MoldUDP64 session of a packet capture to follow. Left out: the first.
    #[arg(long)]
    pub session: Option<String>,
    /// Take a capture that is cut off for one that ends there.
    #[arg(long)]
    pub lenient: bool,
    /// Carry market participant positions too.
    #[arg(long)]
    pub full: bool,
    /// Which part.
    #[command(flatten)]
    pub only: OnlyArguments,
}

/// Which part of a capture is wanted. Definitions, statuses and the venue's snapshots always pass.
#[derive(Args, Clone, Debug, Default)]
pub struct OnlyArguments {
    /// These symbols only, separated by commas.
    #[arg(long, value_name = "SYMBOLS", value_delimiter = ',')]
    pub symbols: Vec<String>,
    /// The instruments with these numbers only: the venue's locates or ids.
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',')]
    pub instruments: Vec<u32>,
    /// These publishers only, by DBN's numbers, where a capture holds several.
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',')]
    pub publishers: Vec<u16>,
    /// From this time on: the exchange's time of day (HH:MM:SS[.n]) or RFC 3339.
    #[arg(long, value_name = "TIME")]
    pub from: Option<Moment>,
    /// Before this time.
    #[arg(long, value_name = "TIME")]
    pub to: Option<Moment>,
}

impl OnlyArguments {
    /// In the times of a session of `date`.
    ///
    /// # Errors
    /// A moment that such a session does not have.
    pub fn filter(&self, date: &SessionDate) -> Result<Filter, crate::book::MomentError> {
        let moment = |moment: Option<Moment>| moment.map(|moment| moment.in_session(date)).transpose();
        Ok(Filter {
            symbols: self.symbols.clone(),
            instruments: self.instruments.clone(),
            publishers: self.publishers.clone(),
            from: moment(self.from)?.map(|time: Nanos| time.0),
            to: moment(self.to)?.map(|time| time.0),
        })
    }
}

impl FeedArguments {
    /// For [`publisher::open::open_feed`].
    pub fn options(&self) -> FeedOptions {
        FeedOptions { feed: self.feed, lenient: self.lenient, session: self.session.clone(), preload: None }
    }

    /// `venue`, and of its records what is wanted.
    ///
    /// # Errors
    /// As [`OnlyArguments::filter`].
    pub fn filtered<V: Venue>(&self, venue: V) -> Result<Filtered<V>, crate::book::MomentError> {
        let filter = self.only.filter(&venue.date())?;
        Ok(Filtered::new(venue, filter))
    }
}
