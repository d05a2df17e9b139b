//! A strategy on a file, without a publisher: the handler that runs live runs here, on the same decoder, sequencer and
//! books, as fast as the file can be read.
//!
//! ```no_run
//! use feeds_replay::backtest::{Backtest, BacktestOptions};
//!
//! struct Strategy;
//! impl subscriber::Handler for Strategy {}
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut backtest = Backtest::open("day.itch".as_ref(), BacktestOptions { date: Some("none".into()), ..Default::default() })?;
//! let outcome = backtest.run(&mut Strategy);
//! println!("{} messages{}", backtest.messages(), if outcome.is_ok() { "" } else { ", cut off" });
//! # Ok(())
//! # }
//! ```

use std::io::Read;
use std::path::Path;

use protocol::arbiter::Delivery;
use protocol::book::{BooksConfig, Start};
use protocol::channel::ChannelConfig;
use protocol::line::{Epoch, Line, SequenceNumber, Stamp};
use protocol::record::Lane;
use protocol::run::{Carrier, LanePath};
use protocol::time::Nanos;
use publisher::date::SessionDate;
use publisher::feed::{FeedError, FeedSource};
use publisher::itch::{BinaryFile, FramingOptions, Normaliser, NormaliserOptions};
pub use publisher::open::OpenError;
use publisher::open::{FeedOptions, OpenFeed, open_feed};
use publisher::pipeline::{Pipeline, PipelineError};
use publisher::venue::{AnyVenue, Venue, VenueOptions};
use subscriber::{Context, Engine, EngineConfig, Handler, Selection};

/// How a file is read.
#[derive(Clone, Debug, Default)]
pub struct BacktestOptions {
    /// The session's date, `YYYY-MM-DD` or `none`; left out: from the file's name.
    pub date: Option<String>,
    /// Which MoldUDP64 session of a packet capture is wanted; left out: the first.
    pub session: Option<String>,
    /// Which instruments are wanted.
    pub selection: Selection,
    /// Take a capture that is cut off for one that ends there.
    pub lenient: bool,
    /// What books are taken for when the capture starts in mid-day.
    pub start: Start,
    /// Sizes of the books.
    pub books: BooksConfig,
}

/// A file, and a strategy's engine over it.
pub struct Backtest<S = OpenFeed, V = AnyVenue> {
    pipeline: Pipeline<S, V>,
    engine: Engine,
    now: Nanos,
    joined: bool,
}

impl Backtest<OpenFeed> {
    /// Opens a capture: ITCH as BinaryFILE or as MoldUDP64 in pcap or pcapng, or DBN; plain, gzip or zstd.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(path: &Path, options: BacktestOptions) -> Result<Backtest<OpenFeed>, OpenError> {
        let feed_options =
            FeedOptions { lenient: options.lenient, session: options.session.clone(), ..FeedOptions::default() };
        let feed = open_feed(path, &feed_options)?;
        let date = feed.session_date(options.date.as_deref())?;
        let venue = feed.venue(date, VenueOptions::default());
        Ok(Backtest::over(feed, venue, options))
    }
}

impl<R: Read> Backtest<BinaryFile<R>, Normaliser> {
    /// Over the bytes of a BinaryFILE from anywhere: for unit tests of a strategy.
    pub fn from_reader(reader: R, date: SessionDate, options: BacktestOptions) -> Backtest<BinaryFile<R>, Normaliser> {
        let framing = FramingOptions { lenient: options.lenient };
        let file = BinaryFile::from_reader(reader, Path::new("(reader)"), framing);
        Backtest::over(file, Normaliser::new(NormaliserOptions::default(), date), options)
    }
}

impl<S: FeedSource, V: Venue> Backtest<S, V> {
    /// Over any source of messages, of any venue.
    pub fn over(source: S, venue: V, options: BacktestOptions) -> Backtest<S, V> {
        let config = ChannelConfig { books: options.books, start: options.start, ..ChannelConfig::default() };
        Backtest {
            pipeline: Pipeline::new(source, venue, Epoch(1), config),
            engine: Engine::new(EngineConfig {
                selection: options.selection,
                books: options.books,
                start: options.start,
            }),
            now: Nanos::ZERO,
            joined: false,
        }
    }

    /// Takes one venue message. The time that the handler is told is the message's own. Returns false at the end.
    ///
    /// # Errors
    /// [`PipelineError`], after everything before the fault was handed to `handler`.
    pub fn step<H: Handler>(&mut self, handler: &mut H) -> Result<bool, PipelineError> {
        let Some(due) = self.pipeline.peek()? else { return Ok(false) };
        // A venue's clock may step back; a strategy's does not.
        self.now = self.now.max(due.time);
        let next = self.pipeline.channel().next();
        let mut turn = self.engine.turn(self.now, handler);
        if !std::mem::replace(&mut self.joined, true) {
            turn.on_joined(Stamp::new(next.epoch(), SequenceNumber::FIRST));
        }
        let mut stamp = next;
        self.pipeline.step(self.now, &mut |line: &Line| {
            turn.on_lines(
                stamp,
                std::slice::from_ref(line),
                LanePath::new(Lane::new(0), Carrier::Local),
                Some(due.time),
            );
            stamp = stamp.plus(1);
        })
    }

    /// Takes everything to the end, and tells the handler that it is one.
    ///
    /// # Errors
    /// [`PipelineError`], after everything before the fault was handed to `handler`.
    pub fn run<H: Handler>(&mut self, handler: &mut H) -> Result<(), PipelineError> {
        while self.step(handler)? {}
        let next = self.pipeline.channel().next();
        self.engine.turn(self.now, handler).on_end(next);
        Ok(())
    }

    /// Venue messages taken so far.
    pub fn messages(&self) -> u64 {
        self.pipeline.messages()
    }

    /// The books' side: counts, digests.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// What a handler would see now.
    pub fn context(&self) -> Context<'_> {
        self.engine.context(self.now)
    }

    /// The normaliser, for its counters.
    pub fn venue(&self) -> &V {
        self.pipeline.venue()
    }

    /// What was forgiven, if something was.
    pub fn warning(&self) -> Option<&FeedError> {
        self.pipeline.source().warning()
    }
}
