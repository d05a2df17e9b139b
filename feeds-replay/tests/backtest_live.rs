//! A backtest shows a strategy what a live subscriber shows it, call by call.

#![forbid(unsafe_code)]

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Cursor;
use std::path::Path;

use feeds_replay::backtest::{Backtest, BacktestOptions};
use feeds_replay::generate::{GenerateOptions, generate};
use protocol::arbiter::{ArbiterConfig, Gap};
use protocol::book::{BooksConfig, Start};
use protocol::channel::ChannelConfig;
use protocol::line::{Epoch, Line};
use protocol::record::{ChannelId, InstrumentId, Kind, Lane};
use protocol::time::Nanos;
use publisher::date::{SessionDate, session_date};
use publisher::feed::FeedError;
use publisher::itch::{BinaryFile, FramingOptions, Normaliser, NormaliserOptions};
use publisher::pipeline::{Pipeline, PipelineError};
use subscriber::{
    Context, Definition, EngineConfig, EngineCounts, EventEnd, Handler, Selection, StateChange, Status, Subscriber,
    Trade, Update,
};
use transport::clock::Clock;
use transport::link::{LinkOptions, link};
use transport::{LaneTx, RingWriter};

const BOOKS: BooksConfig = BooksConfig { instruments: 64, orders: 1 << 14, levels: 1 << 13 };

/// Takes every call that says something of the stream into one hash, in order. What only a live run has (idle polls,
/// silence, the announced end) is left out.
#[derive(Default)]
struct Transcript {
    hash: DefaultHasher,
    calls: u64,
    trades: u64,
    /// The last calls, to show where two transcripts part.
    text: String,
}

impl Transcript {
    fn call(&mut self, what: std::fmt::Arguments<'_>) {
        self.calls += 1;
        self.text.clear();
        self.text.write_fmt(what).expect("a string takes everything");
        self.text.hash(&mut self.hash);
    }

    fn sum(&self) -> (u64, u64) {
        (self.calls, self.hash.finish())
    }
}

impl Handler for Transcript {
    fn on_record(&mut self, ctx: &Context<'_>, update: &Update<'_>) {
        let best = ctx.book(update.record.instrument_id()).map(|book| book.bbo());
        self.call(format_args!(
            "{:?} {} {:?} {:?} {:?} {best:?}",
            ctx.now(),
            update.stamp,
            update.record,
            update.ts_publish,
            update.path.lane
        ));
    }
    fn on_definition(&mut self, _: &Context<'_>, instrument: InstrumentId, definition: &Definition) {
        self.call(format_args!("{instrument:?} {definition:?}"));
    }
    fn on_event_end(&mut self, ctx: &Context<'_>, end: &EventEnd) {
        let book = ctx.book(end.instrument).expect("readable at the end of its event");
        self.call(format_args!("{end:?} {:?} {:?} {}", book.state(), book.digests(), book.resting_orders()));
    }
    fn on_trade(&mut self, _: &Context<'_>, trade: &Trade) {
        self.trades += 1;
        self.call(format_args!("{trade:?}"));
    }
    fn on_status(&mut self, _: &Context<'_>, status: &Status) {
        self.call(format_args!("{status:?}"));
    }
    fn on_gap(&mut self, _: &Context<'_>, gap: &Gap) {
        self.call(format_args!("{gap:?}"));
    }
    fn on_state_change(&mut self, _: &Context<'_>, change: &StateChange) {
        self.call(format_args!("{change:?}"));
    }
    fn on_epoch(&mut self, _: &Context<'_>, from: Epoch, to: Epoch) {
        self.call(format_args!("{from:?} {to:?}"));
    }
    fn on_session_start(&mut self, _: &Context<'_>) {
        self.call(format_args!("session start"));
    }
    fn on_session_end(&mut self, _: &Context<'_>) {
        self.call(format_args!("session end"));
    }
}

fn day(seed: u64) -> Vec<u8> {
    let options = GenerateOptions { seed, symbols: 20, messages: 20_000, ..GenerateOptions::default() };
    let mut bytes = Vec::new();
    generate(&options, &mut bytes).expect("legal options");
    bytes
}

fn date() -> SessionDate {
    session_date(Some("2000-01-03"), None, Path::new("generated")).expect("a date")
}

fn backtest(bytes: &[u8], options: BacktestOptions) -> Backtest<BinaryFile<Cursor<Vec<u8>>>, Normaliser> {
    Backtest::from_reader(Cursor::new(bytes.to_vec()), date(), BacktestOptions { books: BOOKS, ..options })
}

/// The same bytes through the publisher's pipeline into a ring, over a link, into a live subscriber: one message and one
/// poll at a time, at the message's own time.
fn live(bytes: &[u8], selection: Selection, transcript: &mut Transcript) -> EngineCounts {
    let source = BinaryFile::from_reader(Cursor::new(bytes), Path::new("generated"), FramingOptions::default());
    let venue = Normaliser::new(NormaliserOptions::default(), date());
    let config = ChannelConfig { books: BOOKS, ..ChannelConfig::default() };
    let mut pipeline = Pipeline::new(source, venue, Epoch(1), config);
    let mut ring = RingWriter::anonymous(ChannelId::new(1), Lane::new(0), Epoch(1), 1 << 12).expect("there is memory");
    let (mut tx, rx) = link(&ring, LinkOptions::default());
    let engine = EngineConfig { selection, books: BOOKS, start: Start::Strict };
    let mut subscriber = Subscriber::new(rx, ArbiterConfig::default(), engine, Clock::calibrate());
    let mut now = Nanos::ZERO;
    while let Some(due) = pipeline.peek().expect("a whole day") {
        now = now.max(due.time);
        pipeline.step(now, &mut |line: &Line| ring.put(line)).expect("a whole day");
        ring.flush();
        tx.flush(&ring, now);
        subscriber.poll_at(now, transcript);
    }
    tx.heartbeat(&ring, now, true);
    subscriber.poll_at(now, transcript);
    assert!(subscriber.has_ended());
    assert_eq!(subscriber.counts().lost, 0);
    assert_eq!(subscriber.engine().digest_counts().disagreed, 0);
    subscriber.engine().counts()
}

#[test]
fn a_backtest_makes_the_calls_that_a_live_subscriber_makes() {
    for seed in [1, 2, 3] {
        for patterns in [&[] as &[&str], &["ZAAA", "ZAAC", "ZAAD?", "*M"]] {
            let bytes = day(seed);
            let (mut of_file, mut of_stream) = (Transcript::default(), Transcript::default());
            let options = BacktestOptions { selection: Selection::symbols(patterns), ..BacktestOptions::default() };
            let mut backtest = backtest(&bytes, options);
            backtest.run(&mut of_file).expect("a whole day");
            let counts = live(&bytes, Selection::symbols(patterns), &mut of_stream);
            let hint = format!("seed {seed}, {patterns:?}; ends with {:?} and {:?}", of_file.text, of_stream.text);
            assert_eq!(of_file.sum(), of_stream.sum(), "{hint}");
            assert_eq!(backtest.engine().counts(), counts, "{hint}");
            assert_eq!(backtest.messages(), 20_000, "{hint}");
            // A comparison of nothing with nothing would agree as well.
            let digests = backtest.engine().digest_counts();
            assert!(of_file.calls > 10_000, "{} calls; {hint}", of_file.calls);
            assert!(of_file.trades > 100 && digests.compared > 20, "{} trades, {digests:?}; {hint}", of_file.trades);
            assert_eq!(digests.disagreed, 0, "{hint}");
            assert_eq!(counts.skipped > 0, !patterns.is_empty(), "{hint}");
        }
    }
}

#[test]
fn the_time_told_is_that_of_the_message_and_never_goes_back() {
    #[derive(Default)]
    struct Times {
        last: Nanos,
        told: u64,
    }
    impl Handler for Times {
        fn on_record(&mut self, ctx: &Context<'_>, update: &Update<'_>) {
            assert!(ctx.now() >= self.last, "{:?} after {:?}", ctx.now(), self.last);
            // The digests before the end of the session carry the time of the last change, not of the end.
            if !matches!(update.record.kind, Kind::CONTINUATION | Kind::BOOK_DIGEST) {
                assert_eq!(update.record.event_time(), ctx.now());
            }
            self.last = ctx.now();
            self.told += 1;
        }
    }
    let mut times = Times::default();
    backtest(&day(4), BacktestOptions::default()).run(&mut times).expect("a whole day");
    assert!(times.told > 20_000);
    assert!(times.last > date().at(20 * 3_600_000_000_000), "the day ends after eight in the evening");
}

#[test]
fn everything_before_a_cut_is_delivered_and_then_the_error() {
    let bytes = day(5);
    // The end of the 12,000th message, found by walking the length prefixes.
    let whole = (0..12_000).fold(0, |at, _| at + 2 + usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]])));
    let mut expected = Transcript::default();
    backtest(&bytes[..whole], BacktestOptions::default()).run(&mut expected).expect("whole messages");

    // Within the length, after it, and one byte short of the message's end.
    let next = 2 + usize::from(u16::from_be_bytes([bytes[whole], bytes[whole + 1]]));
    for cut in [1, 2, 7, next - 1] {
        let mut told = Transcript::default();
        let mut cut_off = backtest(&bytes[..whole + cut], BacktestOptions::default());
        let error = cut_off.run(&mut told).expect_err("it is cut off");
        assert!(matches!(error, PipelineError::Feed(FeedError::Truncated { .. })), "{cut} bytes: {error}");
        assert_eq!(told.sum(), expected.sum(), "{cut} bytes");
        assert_eq!(cut_off.messages(), 12_000);
        // Asked again, it says so again, and delivers nothing.
        assert!(cut_off.step(&mut told).is_err());
        assert_eq!(told.sum(), expected.sum());

        let mut lenient =
            backtest(&bytes[..whole + cut], BacktestOptions { lenient: true, ..BacktestOptions::default() });
        let mut told = Transcript::default();
        lenient.run(&mut told).expect("it was asked to be lenient");
        assert_eq!(told.sum(), expected.sum());
        assert!(lenient.warning().is_some());
    }
}

#[test]
fn an_empty_capture_is_no_day() {
    let mut told = Transcript::default();
    let outcome = backtest(&[], BacktestOptions::default()).run(&mut told);
    assert_eq!(told.calls, 0);
    let error = outcome.expect_err("there is nothing in it").to_string();
    assert!(error.contains("(reader)"), "{error}");
}
