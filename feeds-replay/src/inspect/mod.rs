//! What is in a capture: one pass over it, through the publisher's own decoder and books.
//!
//! [`inspect`] reads a file to its end (or to a fault, or until it is asked to stop) and returns an [`Inspection`]: counts
//! by type, instruments, the time range, what is missing, what is inconsistent, and what is not carried, each with the
//! first places where it was seen. Books are built from whatever the capture starts with; where that is not the venue's
//! start of day they are Suspect, and the report says so.
//!
//! A packet capture may hold several channels side by side. Each is a pass of its own, with its own books; counts add up.

pub mod command;
pub mod problems;
pub mod report;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use protocol::book::{Bbo, BookEvent, Books, BooksConfig, Inconsistency, Start};
use protocol::line::{Epoch, SequenceNumber, Stamp};
use protocol::price::Decimal;
use protocol::record::{InstrumentId, Kind, Record};
use protocol::time::Nanos;
use publisher::date::SessionDate;
use publisher::feed::{FeedError, FeedSource, Message, Notice};
use publisher::filter::Filtered;
use publisher::input::Packing;
use publisher::itch::mold::{MoldStats, SessionStats};
use publisher::open::{OpenError, open_feeds};
use publisher::venue::{AnyVenue, Rejected, Venue, VenueOptions};

use crate::feed_arguments::FeedArguments;

pub use problems::{Problem, Problems, Seen};

/// Channels of one capture that get a pass of their own; beyond, their datagrams are only counted.
pub const MAX_CHANNELS: usize = 16;

/// Messages between two looks at whether to stop, and two chances to show progress.
const MESSAGES_PER_LOOK: u64 = 1 << 14;

/// How a capture is inspected.
#[derive(Clone, Debug, Default)]
pub struct InspectOptions {
    /// How it is read, and which part of it is wanted. Without a session: all.
    pub feed: FeedArguments,
    /// Sizes of the books.
    pub books: BooksConfig,
}

/// How far an inspection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Messages so far.
    pub messages: u64,
    /// Bytes of the uncompressed stream so far.
    pub bytes: u64,
}

/// Event ends at which a book was in some state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EventEnds {
    /// While the last status was Trading.
    pub while_trading: u64,
    /// Otherwise: before the open, in a halt, where no status came.
    pub other: u64,
}

/// What one capture holds.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// The file, or the first of several.
    pub path: PathBuf,
    /// How many follow it.
    pub more_files: usize,
    /// What the messages are stored in.
    pub container: &'static str,
    /// What that is compressed with.
    pub packing: Packing,
    /// The date in use.
    pub date: SessionDate,
    /// Bytes of the uncompressed stream that were dealt with.
    pub bytes: u64,
    /// Messages, each once.
    pub messages: u64,
    /// Messages by their type byte.
    pub by_type: [u64; 256],
    /// What the types that were seen are called.
    pub type_names: BTreeMap<u8, String>,
    /// Messages that are not carried, by type: positions without the option for all, unknown types, wrong lengths.
    pub not_carried: BTreeMap<u8, u64>,
    /// Messages without a single byte.
    pub empty_messages: u64,
    /// Instruments, and those of them that no directory message introduced.
    pub instruments: u64,
    /// See `instruments`.
    pub implied_instruments: u64,
    /// Lines that a publisher would send, digests aside.
    pub lines: u64,
    /// The earliest and the latest time that the venue gave a message, ns.
    pub first_ts_event: Option<Nanos>,
    /// See `first_ts_event`.
    pub last_ts_event: Option<Nanos>,
    /// Something of the venue's day came before its start of messages, or that never came: books are built from the middle.
    pub starts_mid_day: bool,
    /// Changes of an order that is not in the book.
    pub unknown_orders: u64,
    /// Executions and cancels of more than was left of an order.
    pub over_cancels: u64,
    /// Orders under a reference that is already in the book.
    pub duplicate_orders: u64,
    /// Event ends at which the book was crossed: bid above ask.
    pub crossed_event_ends: EventEnds,
    /// Event ends at which it was locked: bid equal to ask.
    pub locked_event_ends: EventEnds,
    /// Messages missing for good, and in how many gaps.
    pub missing: u64,
    /// See `missing`.
    pub gaps: u64,
    /// Everything off, with its first examples.
    pub problems: Problems,
    /// Sessions and lines, where the capture has any.
    pub mold: Option<MoldStats>,
    /// Why it could not be read to its end.
    pub error: Option<FeedError>,
    /// What was forgiven.
    pub warning: Option<FeedError>,
    /// It was asked to stop before the end.
    pub stopped: bool,
}

/// Inspects `paths`, one after the other. `show` is called now and then; when `stop` is set, what was found so far is returned.
///
/// # Errors
/// [`OpenError`]: there is nothing to inspect. A fault further on is in [`Inspection::error`].
pub fn inspect(
    paths: &[PathBuf],
    options: &InspectOptions,
    stop: &AtomicBool,
    show: &mut dyn FnMut(Progress),
) -> Result<Inspection, OpenError> {
    let mut inspection = pass(paths, options, stop, show)?;
    let others: Vec<String> = inspection
        .mold
        .iter()
        .flat_map(|stats| stats.sessions.iter().filter(|session| !session.followed))
        .map(|session| session.session.to_string())
        .take(MAX_CHANNELS - 1)
        .collect();
    if options.feed.session.is_some() {
        return Ok(inspection);
    }
    for session in others {
        if inspection.stopped {
            break;
        }
        let mut one = options.clone();
        one.feed.session = Some(session);
        inspection.add_channel(pass(paths, &one, stop, show)?);
    }
    Ok(inspection)
}

fn pass(
    paths: &[PathBuf],
    options: &InspectOptions,
    stop: &AtomicBool,
    show: &mut dyn FnMut(Progress),
) -> Result<Inspection, OpenError> {
    let mut source = open_feeds(paths, &options.feed.options())?;
    let date = source.session_date(options.feed.date.as_deref())?;
    let venue = source.venue(date, VenueOptions { full: options.feed.full, ..VenueOptions::default() });
    let venue = options.feed.filtered(venue).map_err(|error| OpenError::Asked(error.to_string()))?;
    let mut channel = Channel::new(options, venue);
    let (container, packing) = (source.container(), source.packing());
    let (mut error, mut stopped) = (None, false);
    let mut held = Vec::with_capacity(64);
    loop {
        let place = match source.next() {
            Ok(Some(message)) => {
                held.clear();
                held.extend_from_slice(message.bytes);
                Some((message.ordinal, message.offset, message.capture))
            }
            Ok(None) => None,
            Err(fault) => {
                error = Some(fault);
                None
            }
        };
        while let Some(notice) = source.poll_notice() {
            channel.notice(&notice);
        }
        let Some((ordinal, offset, capture)) = place else { break };
        channel.message(&Message { ordinal, offset, capture, bytes: &held });
        if channel.messages.is_multiple_of(MESSAGES_PER_LOOK) {
            show(Progress { messages: channel.messages, bytes: source.offset() });
            // Relaxed: the flag carries nothing but itself.
            if stop.load(Ordering::Relaxed) {
                stopped = true;
                break;
            }
        }
    }
    let mut inspection = channel.finish(&paths[0]);
    inspection.container = container;
    inspection.more_files = paths.len() - 1;
    inspection.packing = packing;
    inspection.bytes = source.offset();
    inspection.mold = source.mold_stats();
    inspection.warning = source.warning().cloned();
    inspection.error = error;
    inspection.stopped = stopped;
    if let Some(stats) = &inspection.mold {
        inspection.problems.note_capture(stats);
    }
    Ok(inspection)
}

/// One channel on its way through decoder and books.
struct Channel {
    venue: Filtered<AnyVenue>,
    books: Books,
    /// The stamp of the next line: counts are those of one epoch.
    next: Stamp,
    /// Lines of each instrument, and of the channel, so far.
    own_lines: Vec<u32>,
    channel_lines: u32,
    records: Vec<Record>,
    messages: u64,
    not_carried: BTreeMap<u8, u64>,
    first_time: Option<Nanos>,
    last_time: Option<Nanos>,
    /// The time of the message before, to see it go back.
    time_before: Nanos,
    starts_mid_day: bool,
    started: bool,
    /// By instrument: its book was said to be empty.
    cleared: Vec<bool>,
    crossed: EventEnds,
    locked: EventEnds,
    missing: u64,
    gaps: u64,
    problems: Problems,
    inconsistencies: [u64; Inconsistency::ALL.len()],
    refused_prices: u64,
}

impl Channel {
    fn new(options: &InspectOptions, venue: Filtered<AnyVenue>) -> Channel {
        Channel {
            venue,
            books: Books::new(options.books, Start::Natural),
            next: Stamp::new(Epoch(1), SequenceNumber::FIRST),
            own_lines: Vec::new(),
            channel_lines: 0,
            records: Vec::with_capacity(128),
            messages: 0,
            not_carried: BTreeMap::new(),
            first_time: None,
            last_time: None,
            time_before: Nanos::ZERO,
            starts_mid_day: false,
            started: false,
            cleared: Vec::new(),
            crossed: EventEnds::default(),
            locked: EventEnds::default(),
            missing: 0,
            gaps: 0,
            problems: Problems::default(),
            inconsistencies: [0; Inconsistency::ALL.len()],
            refused_prices: 0,
        }
    }

    fn notice(&mut self, notice: &Notice) {
        self.records.clear();
        let records = &mut self.records;
        self.venue.notice(notice, &mut |record| records.push(record));
        if let Notice::Gap(missing) = notice {
            self.gaps += 1;
            self.missing = self.missing.saturating_add(missing.count);
            let text = format!("messages {} to {} are missing", missing.first, missing.first + missing.count - 1);
            let seen = Seen { ordinal: missing.first, offset: None, time: missing.capture, text };
            self.problems.note(Problem::Gap, seen);
        }
        let seen = Seen { ordinal: 0, offset: None, time: None, text: String::new() };
        self.apply(&|_| seen.clone());
    }

    fn message(&mut self, message: &Message<'_>) {
        self.messages += 1;
        let checked = self.venue.check(message.bytes);
        let time = checked.ok().and_then(|()| self.venue.venue_time(message));
        let seen = |text: String| Seen { ordinal: message.ordinal, offset: Some(message.offset), time, text };
        if let Some(time) = time {
            self.first_time = Some(self.first_time.map_or(time, |first| first.min(time)));
            self.last_time = Some(self.last_time.map_or(time, |last| last.max(time)));
            if time < self.time_before {
                self.problems.count(Problem::TimeBack, || {
                    seen(format!("{} ns before the message in front of it", self.time_before.0 - time.0))
                });
            }
            self.time_before = time;
        }
        let (unknown_orders, not_carried) = (self.venue.counters().unknown_orders, self.venue.counters().not_carried);
        self.records.clear();
        let records = &mut self.records;
        self.venue.normalise(message, &self.books, &mut |record| records.push(record));
        let message_type = self.venue.type_of(message.bytes);
        if let Err(rejected) = checked {
            let problem = match rejected {
                Rejected::Empty => Problem::EmptyMessage,
                Rejected::Unknown { .. } => Problem::UnknownType,
                Rejected::BadLength { .. } => Problem::BadLength,
            };
            self.problems.count(problem, || seen(rejected.to_string()));
            if let Some(message_type) = message_type {
                *self.not_carried.entry(message_type).or_default() += 1;
            }
            return;
        }
        self.note_start();
        let name = |channel: &Channel| message_type.map_or_else(String::new, |byte| channel.venue.type_name(byte));
        let counters = self.venue.counters();
        if counters.not_carried > not_carried {
            *self.not_carried.entry(message_type.unwrap_or_default()).or_default() += 1;
        }
        if counters.unknown_orders > unknown_orders {
            let order =
                self.records.iter().find(|record| record.order_id.get() != 0 && record.kind != Kind::DEFINITION);
            let order = order.map_or(0, |record| record.order_id.get());
            let text = format!("'{}' names order {order}, which is not in the book", name(self));
            self.problems.count(Problem::UnknownOrder, || seen(text));
        }
        let refused_prices = self.venue.counters().refused_prices;
        if refused_prices > self.refused_prices {
            self.refused_prices = refused_prices;
            self.problems.count(Problem::RefusedPrice, || seen("a price that a record cannot hold".into()));
        }
        self.apply(&|channel| seen(format!("'{}'", name(channel))));
    }

    /// Notes whether books begin with something that says that they are empty: a start of day as the very first thing, where
    /// the venue says such, else a clear of each book before what changes it.
    fn note_start(&mut self) {
        let starts = |record: &Record| record.kind == Kind::SESSION_START;
        if self.venue.says_start() {
            self.starts_mid_day |= !std::mem::replace(&mut self.started, true) && !self.records.iter().any(starts);
            return;
        }
        for record in &self.records {
            let at = record.instrument_id().index();
            if at >= self.cleared.len() {
                self.cleared.resize(at + 1, false);
            }
            match record.kind {
                Kind::CLEAR => self.cleared[at] = true,
                Kind::ADD | Kind::MODIFY | Kind::REDUCE | Kind::DELETE | Kind::EXECUTE | Kind::LEVEL_SET => {
                    self.starts_mid_day |= !self.cleared[at];
                }
                _ => {}
            }
        }
    }

    /// Applies the records of a message, numbered as a publisher would number them, and looks at what came of it.
    fn apply(&mut self, seen: &dyn Fn(&Channel) -> Seen) {
        for at in 0..self.records.len() {
            let mut record = self.records[at];
            let instrument = record.instrument_id();
            record.instrument_seq.set(self.count(instrument));
            self.books.apply(self.next, &record);
            self.next = self.next.plus(1);
            while let Some(event) = self.books.poll_event() {
                if let BookEvent::EventEnd(end) = event {
                    self.judge(end.instrument, &end.after, seen);
                }
            }
        }
        for kind in Inconsistency::ALL {
            let count = self.books.inconsistencies(kind);
            let before = std::mem::replace(&mut self.inconsistencies[kind.index()], count);
            let Some(problem) = self.problem_of(kind).filter(|_| count > before) else { continue };
            let order = self.records.first().map_or(0, |record| record.order_id.get());
            let mut seen = seen(self);
            seen.text = format!("{} of order {order}", seen.text);
            self.problems.count(problem, || seen);
        }
    }

    /// What an inconsistency of the books counts as; none for one that the venue's own counters tell of.
    fn problem_of(&self, kind: Inconsistency) -> Option<Problem> {
        match kind {
            Inconsistency::UnknownOrder if self.venue.counters().unknown_orders == 0 => Some(Problem::UnknownOrder),
            kind => Problem::of(kind),
        }
    }

    /// The count that the next line of `instrument` carries: its own lines and the channel's.
    fn count(&mut self, instrument: InstrumentId) -> u32 {
        if instrument == InstrumentId::CHANNEL {
            self.channel_lines = self.channel_lines.wrapping_add(1);
            return self.channel_lines;
        }
        if instrument.index() >= self.own_lines.len() {
            self.own_lines.resize(instrument.index() + 1, 0);
        }
        let own = &mut self.own_lines[instrument.index()];
        *own = own.wrapping_add(1);
        own.wrapping_add(self.channel_lines)
    }

    fn judge(&mut self, instrument: InstrumentId, after: &Bbo, seen: &dyn Fn(&Channel) -> Seen) {
        let (crossed, locked) = (after.is_crossed(), after.is_locked());
        if !crossed && !locked {
            return;
        }
        let trading = self.books.is_trading(instrument);
        let (ends, problem, relation) = match (crossed, trading) {
            (true, true) => (&mut self.crossed, Problem::CrossedWhileTrading, "above"),
            (true, false) => (&mut self.crossed, Problem::CrossedOtherwise, "above"),
            (false, true) => (&mut self.locked, Problem::LockedWhileTrading, "equal to"),
            (false, false) => (&mut self.locked, Problem::LockedOtherwise, "equal to"),
        };
        *(if trading { &mut ends.while_trading } else { &mut ends.other }) += 1;
        let mut seen = self.problems.wants(problem).then(|| seen(self));
        if let Some(seen) = &mut seen {
            let (bid, ask) = (Decimal::nano(after.bid_price()), Decimal::nano(after.ask_price()));
            seen.text = format!("{}: instrument {}: bid {bid} {relation} ask {ask}", seen.text, instrument.0);
        }
        self.problems.note_maybe(problem, seen);
    }

    fn finish(self, path: &Path) -> Inspection {
        let counters = self.venue.counters();
        Inspection {
            path: path.to_owned(),
            more_files: 0,
            container: "",
            packing: Packing::Plain,
            date: self.venue.date(),
            bytes: 0,
            messages: self.messages,
            by_type: counters.messages_by_type,
            type_names: (0..=255u8)
                .filter(|byte| counters.messages_by_type[usize::from(*byte)] > 0)
                .map(|byte| (byte, self.venue.type_name(byte)))
                .collect(),
            not_carried: self.not_carried,
            empty_messages: counters.empty_messages,
            instruments: self.venue.instrument_count().into(),
            implied_instruments: counters.implied_instruments,
            lines: counters.lines,
            first_ts_event: self.first_time,
            last_ts_event: self.last_time,
            starts_mid_day: self.starts_mid_day,
            unknown_orders: counters.unknown_orders.max(self.books.inconsistencies(Inconsistency::UnknownOrder)),
            over_cancels: self.books.inconsistencies(Inconsistency::OverReduced),
            duplicate_orders: self.books.inconsistencies(Inconsistency::DuplicateOrder),
            crossed_event_ends: self.crossed,
            locked_event_ends: self.locked,
            missing: self.missing,
            gaps: self.gaps,
            problems: self.problems,
            mold: None,
            error: None,
            warning: None,
            stopped: false,
        }
    }
}

impl Inspection {
    /// Whether it was read to its end.
    pub fn is_complete(&self) -> bool {
        self.error.is_none() && !self.stopped
    }

    /// The sessions and lines.
    pub fn feeds(&self) -> &[SessionStats] {
        self.mold.as_ref().map_or(&[], |stats| &stats.sessions)
    }

    /// Adds another channel of the same capture.
    fn add_channel(&mut self, other: Inspection) {
        self.messages += other.messages;
        for (sum, count) in self.by_type.iter_mut().zip(other.by_type) {
            *sum += count;
        }
        self.type_names.extend(other.type_names);
        for (message_type, count) in other.not_carried {
            *self.not_carried.entry(message_type).or_default() += count;
        }
        self.empty_messages += other.empty_messages;
        self.instruments += other.instruments;
        self.implied_instruments += other.implied_instruments;
        self.lines += other.lines;
        self.first_ts_event = match (self.first_ts_event, other.first_ts_event) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.last_ts_event = self.last_ts_event.max(other.last_ts_event);
        self.starts_mid_day |= other.starts_mid_day;
        self.unknown_orders += other.unknown_orders;
        self.over_cancels += other.over_cancels;
        self.duplicate_orders += other.duplicate_orders;
        for (ends, more) in [
            (&mut self.crossed_event_ends, other.crossed_event_ends),
            (&mut self.locked_event_ends, other.locked_event_ends),
        ] {
            ends.while_trading += more.while_trading;
            ends.other += more.other;
        }
        self.missing = self.missing.saturating_add(other.missing);
        self.gaps += other.gaps;
        self.problems.add(other.problems);
        self.stopped |= other.stopped;
        // What the other pass followed, it knows better.
        if let (Some(own), Some(theirs)) = (&mut self.mold, other.mold) {
            for session in theirs.sessions.into_iter().filter(|session| session.followed) {
                if let Some(place) = own.sessions.iter_mut().find(|own| own.session == session.session) {
                    *place = session;
                }
            }
        }
        self.error = self.error.take().or(other.error);
    }
}
