//! DBN as a feed: records become ours, and books what they say. Inputs are made by hand; where recorded files are at hand,
//! each of them is read to its end, and a whole day of futures is held against the naive books.

#![forbid(unsafe_code)]

use std::io::Cursor;
use std::path::Path;

use bookcast_tests::capture;
use bookcast_tests::compare::assert_same_book;
use bookcast_tests::data::data_file;
use bookcast_tests::dbn::{Mbo, NO_PRICE, NO_TIME, START_NS, flags, mbo_file, mbp, metadata, schema, status};
use bookcast_tests::programs::{printed, program};
use bookcast_tests::stream::{BOOKS, Oracle};
use protocol::book::{BookState, Inconsistency, Start};
use protocol::channel::ChannelConfig;
use protocol::line::{Epoch, Line};
use protocol::record::{Flags, InstrumentId, Kind, Record, Side};
use protocol::time::Nanos;
use publisher::Pipeline;
use publisher::capture::window::Window;
use publisher::date::SessionDate;
use publisher::dbn::{DbnFile, Normaliser};
use publisher::feed::{FeedError, FeedSource, Missing, Notice};
use publisher::input::Packing;
use publisher::open::{FeedOptions, open_feed, open_feeds};
use publisher::pipeline::PipelineError;
use publisher::venue::{Venue, VenueOptions};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

type Bytes = DbnFile<Cursor<Vec<u8>>>;

fn file(bytes: &[u8], lenient: bool) -> Result<Bytes, FeedError> {
    let window = Window::new(Cursor::new(bytes.to_vec()), Path::new("test.dbn"), Packing::Plain);
    DbnFile::from_window(window, lenient)
}

fn pipeline(bytes: &[u8]) -> Pipeline<Bytes, Normaliser> {
    let source = file(bytes, false).expect("sound metadata");
    let venue = Normaliser::new(source.metadata(), SessionDate::NONE);
    let config = ChannelConfig { books: BOOKS, start: Start::Strict, digest_every: 0 };
    Pipeline::new(source, venue, Epoch(1), config)
}

/// Every record but definitions, and the pipeline behind it all.
fn through(bytes: &[u8]) -> (Vec<Record>, Pipeline<Bytes, Normaliser>) {
    let mut pipeline = pipeline(bytes);
    let mut records = Vec::new();
    let mut defining = false;
    while pipeline
        .step(Nanos(1), &mut |line: &Line| {
            defining = line.record.kind == Kind::DEFINITION || defining && line.record.kind == Kind::CONTINUATION;
            if !defining {
                records.push(line.record);
            }
        })
        .expect("a sound file")
    {}
    (records, pipeline)
}

fn kinds(records: &[Record]) -> Vec<Kind> {
    records.iter().map(|record| record.kind).collect()
}

type Levels = Vec<(i64, u64, u32)>;

fn levels(pipeline: &Pipeline<Bytes, Normaliser>, instrument: u32) -> (Levels, Levels) {
    let view = pipeline.channel().books().view(InstrumentId(instrument)).expect("a book");
    let of = |side| view.levels(side).map(|level| (level.price, level.size, level.orders)).collect();
    (of(Side::BID), of(Side::ASK))
}

fn state(pipeline: &Pipeline<Bytes, Normaliser>, instrument: u32) -> BookState {
    pipeline.channel().books().state(InstrumentId(instrument))
}

fn clear() -> Mbo {
    Mbo { action: b'R', side: b'N', order: 0, price: NO_PRICE, size: 0, ..Mbo::default() }
}

#[test]
fn versions_1_to_3_of_one_file_give_the_same_records() {
    let records = [clear(), Mbo::default(), Mbo { action: b'M', size: 4, sequence: 2, ..Mbo::default() }];
    let first = through(&mbo_file(1, &records)).0;
    assert_eq!(kinds(&first), [Kind::CLEAR, Kind::ADD, Kind::MODIFY]);
    for version in [2, 3] {
        assert_eq!(through(&mbo_file(version, &records)).0, first, "version {version}");
    }
    let error = file(&mbo_file(4, &records), false).err().expect("refused").to_string();
    assert!(error.contains("DBN version 4") && error.contains("test.dbn"), "{error}");
}

#[test]
fn fills_and_trades_leave_the_book_to_the_cancels_that_follow() {
    let (records, pipeline) = through(&mbo_file(
        3,
        &[
            clear(),
            Mbo::default(),
            Mbo { action: b'T', side: b'A', order: 0, size: 4, flags: 0, ..Mbo::default() },
            Mbo { action: b'F', size: 4, flags: 0, ..Mbo::default() },
            Mbo { action: b'F', order: 99, size: 4, flags: 0, ..Mbo::default() },
            Mbo { action: b'C', size: 4, ..Mbo::default() },
        ],
    ));
    use Kind as K;
    assert_eq!(kinds(&records), [K::CLEAR, K::ADD, K::TRADE, K::FILL, K::FILL, K::REDUCE]);
    assert_eq!(levels(&pipeline, 1), (vec![(100_000_000_000, 6, 1)], vec![]));
    assert_eq!(state(&pipeline, 1), BookState::Live);
}

#[test]
fn a_cancel_of_all_that_is_left_is_a_delete_and_of_more_makes_the_book_suspect() {
    let cancel = |size, sequence| Mbo { action: b'C', size, sequence, ..Mbo::default() };
    let (records, pipeline) = through(&mbo_file(3, &[clear(), Mbo::default(), cancel(4, 2), cancel(6, 3)]));
    assert_eq!(kinds(&records)[2..], [Kind::REDUCE, Kind::DELETE]);
    assert_eq!((levels(&pipeline, 1).0, state(&pipeline, 1)), (vec![], BookState::Live));
    let (_, pipeline) = through(&mbo_file(3, &[clear(), Mbo::default(), cancel(11, 2)]));
    assert_eq!((levels(&pipeline, 1).0, state(&pipeline, 1)), (vec![], BookState::Suspect));
    // Inside the event that added it, what is left is not in any book yet.
    let added = Mbo { flags: 0, ..Mbo::default() };
    let (records, pipeline) = through(&mbo_file(3, &[clear(), added, cancel(10, 2)]));
    assert_eq!(kinds(&records)[2..], [Kind::REDUCE]);
    assert_eq!((levels(&pipeline, 1).0, state(&pipeline, 1)), (vec![], BookState::Live));
}

#[test]
fn flags_129_and_130_never_set_our_own_bits() {
    for low in [1u8, 2, 3] {
        let records = through(&mbo_file(3, &[Mbo { flags: flags::LAST | low, ..Mbo::default() }])).0;
        assert_eq!(records[0].flags, Flags::LAST, "{low}");
    }
}

#[test]
fn undefined_and_distant_times_are_the_receivers_own_and_an_undefined_price_is_no_level() {
    let bytes = mbo_file(3, &[clear(), Mbo { at: NO_TIME, price: NO_PRICE, ..Mbo::default() }]);
    let (records, pipeline) = through(&bytes);
    assert_eq!(records[1].flags, Flags::LAST.with(Flags::OWN_TIME));
    assert_eq!((records[1].event_time(), records[1].capture_time()), (Nanos(START_NS), Nanos(START_NS)));
    assert_eq!(levels(&pipeline, 1), (vec![], vec![]));
    assert_eq!(pipeline.channel().books().inconsistencies(Inconsistency::NoPrice), 1);
    // Hours between the event and its receipt: the last four bytes of the event time are moved.
    let mut bytes = mbo_file(3, &[Mbo::default()]);
    let at = bytes.len() - 56 + 8;
    bytes[at..at + 8].copy_from_slice(&(START_NS - 3_600_000_000_000).to_le_bytes());
    let records = through(&bytes).0;
    assert_eq!(records[0].flags, Flags::LAST.with(Flags::OWN_TIME));
    assert_eq!(records[0].event_time(), Nanos(START_NS + 500));
    // Near ones are both kept.
    let records = through(&mbo_file(3, &[Mbo { at: 77, ..Mbo::default() }])).0;
    assert_eq!((records[0].event_time().0, records[0].capture_time().0), (START_NS + 77, START_NS + 577));
}

#[test]
fn action_n_ends_the_event_of_its_instrument() {
    let open = Mbo { flags: 0, ..Mbo::default() };
    let end = Mbo { action: b'N', side: b'N', order: 0, price: NO_PRICE, size: 0, ..Mbo::default() };
    let mut stepping = pipeline(&mbo_file(3, &[clear(), open, end]));
    let step = |pipeline: &mut Pipeline<Bytes, Normaliser>| {
        assert!(pipeline.step(Nanos(1), &mut |_| {}).expect("sound"));
        levels(pipeline, 1).0.len()
    };
    assert_eq!([step(&mut stepping), step(&mut stepping), step(&mut stepping)], [0, 0, 1]);
}

#[test]
fn a_snapshot_that_no_clear_announces_replaces_the_book_and_ends_where_the_flag_does() {
    let order = |order, flags| Mbo { order, flags, ..Mbo::default() };
    let of_snapshot = |order| self::Mbo { flags: flags::SNAPSHOT, ..self::Mbo { order, ..Mbo::default() } };
    let (records, pipeline) =
        through(&mbo_file(3, &[order(1, flags::LAST), of_snapshot(2), of_snapshot(3), order(4, flags::LAST)]));
    use Kind as K;
    assert_eq!(kinds(&records), [K::ADD, K::CLEAR, K::ADD, K::ADD, K::EVENT_END, K::ADD]);
    assert_eq!((levels(&pipeline, 1).0, state(&pipeline, 1)), (vec![(100_000_000_000, 30, 3)], BookState::Live));
    // With a LAST of its own nothing has to be put in behind it.
    let last = order(3, flags::SNAPSHOT | flags::LAST);
    let (records, pipeline) = through(&mbo_file(3, &[of_snapshot(2), last, order(4, flags::LAST)]));
    assert_eq!(kinds(&records), [K::CLEAR, K::ADD, K::ADD, K::ADD]);
    assert_eq!((levels(&pipeline, 1).0, state(&pipeline, 1)), (vec![(100_000_000_000, 30, 3)], BookState::Live));
}

#[test]
fn the_same_snapshot_twice_leaves_every_queue_as_it_was() {
    let snapshot: Vec<Mbo> = (1..=5)
        .map(|order| Mbo { order, flags: flags::SNAPSHOT | if order == 5 { flags::LAST } else { 0 }, ..Mbo::default() })
        .collect();
    let queue = |bytes: &[u8]| {
        let (_, pipeline) = through(bytes);
        let view = pipeline.channel().books().view(InstrumentId(1)).expect("a book");
        view.queue(Side::BID, 100_000_000_000).map(|(id, _)| id).collect::<Vec<_>>()
    };
    let twice = [&snapshot[..], &snapshot].concat();
    assert_eq!(queue(&mbo_file(3, &snapshot)), [1, 2, 3, 4, 5]);
    assert_eq!(queue(&mbo_file(3, &twice)), [1, 2, 3, 4, 5]);
}

#[test]
fn a_snapshot_longer_than_an_event_may_be_is_suspect_until_its_end_and_live_then() {
    const ORDERS: u64 = 10_000;
    let snapshot: Vec<Mbo> = (1..=ORDERS)
        .map(|order| Mbo {
            order,
            price: 100_000_000_000 - order as i64 * 1_000,
            flags: flags::SNAPSHOT | if order == ORDERS { flags::LAST } else { 0 },
            ..Mbo::default()
        })
        .collect();
    let bytes = mbo_file(3, &[&[clear()][..], &snapshot].concat());
    let mut oracle = Oracle::new("long snapshot", Start::Strict, 1_000);
    let mut pipeline = pipeline(&bytes);
    let mut states = Vec::new();
    while pipeline.step(Nanos(1), &mut |line| oracle.take(line)).expect("sound") {
        let state = state(&pipeline, 1);
        if states.last() != Some(&state) {
            states.push(state);
        }
    }
    oracle.compare_all();
    assert_eq!(states, [BookState::Live, BookState::Suspect, BookState::Live]);
    assert_eq!(levels(&pipeline, 1).0.len() as u64, ORDERS);
    let books = pipeline.channel().books();
    assert!(Inconsistency::ALL.iter().all(|kind| books.inconsistencies(*kind) == 0));
}

#[test]
fn one_number_of_two_publishers_is_two_instruments_and_of_two_schemas_two_books() {
    let mut other = Mbo { order: 5, size: 3, ..Mbo::default() }.bytes();
    other[2] = 3;
    let mut bytes = mbo_file(3, &[clear(), Mbo::default()]);
    bytes.extend(other);
    bytes.extend(mbp(1, b'A', flags::LAST, (b'B', NO_PRICE, 0), &[(90, 1, 95, 2)], 1));
    let (_, pipeline) = through(&bytes);
    assert_eq!(pipeline.venue().instrument_count(), 3);
    assert_eq!(levels(&pipeline, 1).0, [(100_000_000_000, 10, 1)]);
    assert_eq!(levels(&pipeline, 3), (vec![(90, 1, 1)], vec![(95, 2, 1)]));
}

#[test]
fn an_aggregated_level_in_an_order_stream_is_a_level_and_a_top_the_whole_side() {
    let level = |price, size, flags| Mbo { order: 0, price, size, flags: flags | flags::LAST, ..Mbo::default() };
    let deep = [level(100, 7, flags::MBP), level(90, 8, flags::MBP), level(100, 9, flags::MBP)];
    assert_eq!(levels(&through(&mbo_file(3, &deep)).1, 1).0, [(100, 9, 0), (90, 8, 0)]);
    let top = [level(100, 7, flags::TOB), level(90, 8, flags::TOB)];
    assert_eq!(levels(&through(&mbo_file(3, &top)).1, 1).0, [(90, 8, 0)]);
    let gone = [level(100, 7, flags::TOB), level(NO_PRICE, 0, flags::TOB)];
    assert_eq!(levels(&through(&mbo_file(3, &gone)).1, 1).0, []);
}

#[test]
fn pictures_of_ten_levels_become_what_changed_in_them() {
    let ten = |from: i64| (0..10).map(|n| (from - n, 5, 200 + n, 5)).collect::<Vec<_>>();
    let mut bytes = metadata(3, schema::MBP_10, &[("ACME", 7)]);
    bytes.extend(mbp(10, b'A', flags::LAST, (b'B', 100, 5), &ten(100), 0));
    bytes.extend(mbp(10, b'A', flags::LAST, (b'B', 101, 5), &ten(101), 1));
    bytes.extend(mbp(10, b'T', flags::LAST, (b'B', 200, 2), &ten(101), 2));
    let (records, pipeline) = through(&bytes);
    let first: Vec<Kind> = [vec![Kind::CLEAR], vec![Kind::LEVEL_SET; 20]].concat();
    // The tenth was pushed out, and the best is new.
    let rest = [Kind::LEVEL_SET, Kind::LEVEL_SET, Kind::TRADE];
    assert_eq!(kinds(&records), [&first[..], &rest].concat());
    assert_eq!((records[21].price.get(), records[21].size.get()), (91, 0));
    assert_eq!((records[22].price.get(), records[22].is_last()), (101, true));
    assert_eq!((records[23].price.get(), records[23].size.get(), records[23].side), (200, 2, Side::BID));
    let (bids, asks) = levels(&pipeline, 1);
    assert_eq!((bids.len(), asks.len(), state(&pipeline, 1)), (10, 10, BookState::Live));
    // A clear empties it.
    bytes.extend(mbp(10, b'R', flags::LAST, (b'N', NO_PRICE, 0), &[], 3));
    assert_eq!(levels(&through(&bytes).1, 1), (vec![], vec![]));
}

#[test]
fn tops_are_whole_sides_and_trades_alone_are_events() {
    let mut bytes = metadata(3, schema::MBP_1, &[("ACME", 7)]);
    bytes.extend(mbp(1, b'A', flags::LAST, (b'B', 100, 5), &[(100, 5, 110, 6)], 0));
    bytes.extend(mbp(1, b'C', flags::LAST, (b'B', 100, 5), &[(NO_PRICE, 0, 110, 6)], 1));
    let (records, pipeline) = through(&bytes);
    assert_eq!(kinds(&records), [Kind::CLEAR, Kind::LEVEL_SET, Kind::LEVEL_SET, Kind::LEVEL_SET]);
    assert!(records[1..].iter().all(|record| record.flags.has(Flags::TOB)));
    assert_eq!(levels(&pipeline, 1), (vec![], vec![(110, 6, 1)]));
    // Neither of these says where an event ends: the records around it are not in the file.
    for (schema, rtype) in [(schema::TRADES, 0), (schema::TBBO, 1)] {
        let mut bytes = metadata(3, schema, &[("ACME", 7)]);
        bytes.extend(mbp(rtype, b'T', 0, (b'A', 100, 5), &[(100, 5, 110, 6)], 0));
        let (records, _) = through(&bytes);
        let last = records.last().expect("a trade");
        assert_eq!((last.kind, last.is_last(), last.side), (Kind::TRADE, true, Side::ASK), "schema {schema}");
    }
}

#[test]
fn a_status_inside_an_event_does_not_end_it() {
    let mut bytes = mbo_file(3, &[clear(), Mbo { flags: 0, ..Mbo::default() }]);
    bytes.extend(status(7, 7, 10));
    bytes.extend(Mbo { order: 2, ..Mbo::default() }.bytes());
    let (records, pipeline) = through(&bytes);
    assert_eq!(records.iter().map(Record::is_last).collect::<Vec<_>>(), [true, false, false, true]);
    assert!(pipeline.channel().books().is_trading(InstrumentId(1)));
    assert_eq!(levels(&pipeline, 1).0, [(100_000_000_000, 20, 2)]);
}

#[test]
fn an_unknown_type_and_a_wrong_length_are_skipped_and_counted() {
    let mut bytes = mbo_file(3, &[clear()]);
    let mut odd = Mbo::default().bytes();
    odd[1] = 0x77;
    bytes.extend(&odd);
    let mut long = Mbo::default().bytes();
    long.extend([0; 4]);
    long[0] += 1;
    bytes.extend(&long);
    bytes.extend(Mbo { action: b'Z', ..Mbo::default() }.bytes());
    bytes.extend(Mbo { order: 3, ..Mbo::default() }.bytes());
    let (records, pipeline) = through(&bytes);
    assert_eq!(kinds(&records), [Kind::CLEAR, Kind::ADD]);
    let counters = pipeline.venue().counters();
    assert_eq!((counters.unknown_types, counters.bad_lengths(), counters.messages()), (2, 1, 5));
    assert_eq!(counters.unknown_by_type().collect::<Vec<_>>(), [(0x77, 1), (0xA0, 1)]);
}

#[test]
fn a_file_cut_anywhere_gives_all_before_the_cut_and_then_says_where() {
    let bytes = mbo_file(3, &[clear(), Mbo::default(), Mbo { order: 2, ..Mbo::default() }]);
    let begin = bytes.len() - 3 * 56;
    for cut in 0..bytes.len() {
        let text = |error: FeedError| {
            assert!(error.is_early_end(), "{cut}: {error}");
            error.to_string()
        };
        let whole = cut.saturating_sub(begin) / 56;
        match file(&bytes[..cut], false) {
            Err(error) => assert!(cut < begin && text(error).contains("at offset 0"), "cut at {cut}"),
            Ok(mut source) => {
                let mut delivered = 0;
                let end = loop {
                    match source.next() {
                        Ok(Some(_)) => delivered += 1,
                        other => break other.map(|_| ()),
                    }
                };
                assert_eq!(delivered, whole, "cut at {cut}");
                let offset = format!("at offset {}", begin + whole * 56);
                match end {
                    Ok(()) => assert!((cut - begin).is_multiple_of(56), "cut at {cut}"),
                    Err(error) => assert!(text(error).contains(&offset), "cut at {cut}"),
                }
                let mut lenient = file(&bytes[..cut], true).expect("sound metadata");
                while lenient.next().expect("lenient").is_some() {}
                assert_eq!(lenient.warning().is_some(), !(cut - begin).is_multiple_of(56), "cut at {cut}");
            }
        }
    }
}

#[test]
fn a_record_of_no_length_is_an_error_that_names_file_and_offset() {
    let mut bytes = mbo_file(3, &[clear(), Mbo::default()]);
    let at = bytes.len() - 56;
    for units in 0..4 {
        bytes[at] = units;
        let mut source = file(&bytes, true).expect("sound metadata");
        assert!(source.next().expect("the first is sound").is_some());
        let error = source.next().expect_err("no record").to_string();
        assert!(error.contains("test.dbn: damaged at offset") && error.contains(&at.to_string()), "{error}");
        assert!(source.next().is_err(), "and it stays there");
    }
}

#[test]
fn metadata_that_claims_more_than_there_is_is_refused() {
    let mut bytes = mbo_file(3, &[clear()]);
    for claim in [1 << 30, u32::MAX, 17 << 20] {
        bytes[4..8].copy_from_slice(&claim.to_le_bytes());
        let error = file(&bytes, true).err().expect("refused").to_string();
        assert!(error.contains("claims") && error.contains("bound"), "{error}");
    }
    bytes[4..8].copy_from_slice(&(1u32 << 20).to_le_bytes());
    assert!(file(&bytes, true).err().expect("cut off").is_early_end());
}

#[test]
fn whatever_bytes_come_nothing_panics_and_every_record_is_accounted_for() {
    let mut sound = mbo_file(3, &[clear(), Mbo::default(), Mbo { action: b'M', ..Mbo::default() }]);
    sound.extend(status(7, 7, 1));
    sound.extend(mbp(0, b'T', 0, (b'B', 100, 1), &[], 2));
    sound.extend(mbp(1, b'A', 0x80, (b'B', 100, 1), &[(100, 1, 101, 1)], 3));
    sound.extend(mbp(10, b'A', 0x80, (b'B', 100, 1), &[(100, 1, 101, 1)], 4));
    for (rtype, len) in
        [(0x13, 344), (0x13, 384), (0x13, 504), (0x14, 96), (0x18, 48), (0x18, 64), (0x16, 64), (0x16, 160)]
    {
        sound.extend(bookcast_tests::dbn::record(rtype, 2, 7, START_NS, &vec![b'x'; len]));
    }
    sound.extend(bookcast_tests::dbn::record(0xC3, 2, 7, START_NS, &[b'y'; 64]));
    for seed in 0..3_000u64 {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mut bytes = sound.clone();
        for _ in 0..random.random_range(1..12) {
            let at = random.random_range(0..bytes.len());
            bytes[at] = match random.random_range(0..4) {
                0 => 0,
                1 => 0xFF,
                2 => bytes[at] ^ 1 << random.random_range(0..8),
                _ => random.random(),
            };
        }
        bytes.truncate(random.random_range(0..=bytes.len()));
        let Ok(source) = file(&bytes, seed % 2 == 0) else { continue };
        let venue = Normaliser::new(source.metadata(), SessionDate::NONE);
        let config = ChannelConfig { books: BOOKS, start: Start::Natural, digest_every: 3 };
        let mut pipeline = Pipeline::new(source, venue, Epoch(1), config);
        let mut taken = 0;
        loop {
            match pipeline.step(Nanos(1), &mut |_| {}) {
                Ok(true) => taken += 1,
                Ok(false) | Err(PipelineError::Feed(_)) => break,
                Err(error) => panic!("seed {seed}: {error}"),
            }
            assert!(taken <= bytes.len(), "seed {seed}: no end");
        }
        assert_eq!(pipeline.venue().counters().messages(), taken as u64, "seed {seed}");
    }
}

/// A recorded file, through the pipeline to its end, and the first `held` of its messages against the naive books.
fn recorded(name: &str, test: &str, held: u64) -> Option<(u64, u64, [u64; 8])> {
    let path = data_file(name, test)?;
    let feed = open_feed(&path, &FeedOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    let date = feed.session_date(None).expect("its records have times");
    let venue = feed.venue(date, VenueOptions::default());
    let config = ChannelConfig { books: BOOKS, start: Start::Natural, digest_every: 64 };
    let mut pipeline = Pipeline::new(feed, venue, Epoch(1), config);
    let mut oracle = Oracle::new(name, Start::Natural, 2_000);
    while pipeline.messages() < held
        && pipeline.step(Nanos(1), &mut |line| oracle.take(line)).unwrap_or_else(|error| panic!("{error}"))
    {}
    oracle.finish();
    for instrument in oracle.naive.instruments() {
        let view = pipeline.channel().books().view(InstrumentId(instrument)).expect("the publisher has it");
        assert_same_book(&view, oracle.naive.book(instrument), &|| format!("{name}, {instrument}"));
    }
    while pipeline.step(Nanos(1), &mut |_| {}).unwrap_or_else(|error| panic!("{error}")) {}
    let books = pipeline.channel().books();
    let found = Inconsistency::ALL.map(|kind| books.inconsistencies(kind));
    Some((oracle.events, pipeline.messages(), found))
}

#[test]
fn a_day_of_futures_has_no_unknown_cancels_and_is_the_naive_books_at_every_event() {
    let test = "a_day_of_futures_has_no_unknown_cancels_and_is_the_naive_books_at_every_event";
    // The naive books take their time: all of it on request.
    let held = if std::env::var_os("BOOKCAST_NIGHTLY").is_some() { u64::MAX } else { 14_000 };
    let Some((events, messages, found)) = recorded("dbn/esh4-glbx-mdp3-20231225.mbo.dbn.zst", test, held) else {
        return;
    };
    assert_eq!(messages, 68_792);
    assert_eq!(found, [0; 8], "no unknown, no duplicate, no over-cancelled order, no event without an end");
    assert!(events > 4_000, "{events} events");
    let Some((_, messages, found)) = recorded("dbn/esh4-glbx-mdp3-20231224.mbo.dbn.zst", test, u64::MAX) else {
        return;
    };
    assert_eq!((messages, found), (8_725, [0; 8]));
}

#[test]
fn the_futures_are_crossed_before_their_first_trade_only() {
    let test = "the_futures_are_crossed_before_their_first_trade_only";
    let Some(path) = data_file("dbn/esh4-glbx-mdp3-20231225.mbo.dbn.zst", test) else { return };
    let feed = open_feed(&path, &FeedOptions::default()).expect("opens");
    let venue = feed.venue(SessionDate::NONE, VenueOptions::default());
    let config = ChannelConfig { books: BOOKS, start: Start::Natural, digest_every: 0 };
    let mut pipeline = Pipeline::new(feed, venue, Epoch(1), config);
    let (mut traded, mut crossed, mut ends) = (false, 0u64, false);
    loop {
        let more = pipeline
            .step(Nanos(1), &mut |line| {
                traded |= line.record.kind == Kind::TRADE;
                ends = line.record.is_last();
            })
            .expect("sound");
        if !more {
            break;
        }
        let view = pipeline.channel().books().view(InstrumentId(1)).expect("a book");
        if ends && view.bbo().is_crossed() {
            assert!(!traded, "crossed after message {}", pipeline.messages());
            crossed += 1;
        }
    }
    assert!(traded && crossed > 800, "crossed at {crossed} event ends");
}

/// What each message of several files in a row is, by its number and what it says.
fn in_a_row(files: &[Vec<u8>]) -> (Vec<(u64, Vec<u8>)>, Vec<Notice>) {
    let folder = tempfile::tempdir().expect("a folder");
    let paths: Vec<std::path::PathBuf> = files
        .iter()
        .enumerate()
        .map(|(at, bytes)| {
            let path = folder.path().join(format!("20230822-{at}"));
            std::fs::write(&path, bytes).expect("writes");
            path
        })
        .collect();
    let mut feed = open_feeds(&paths, &FeedOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    let (mut messages, mut notices) = (Vec::new(), Vec::new());
    loop {
        let message = feed.next().unwrap_or_else(|error| panic!("{error}"));
        let message = message.map(|message| (message.ordinal, message.bytes.to_vec()));
        while let Some(notice) = feed.poll_notice() {
            notices.push(notice);
        }
        match message {
            Some(message) => messages.push(message),
            None => return (messages, notices),
        }
    }
}

#[test]
fn several_files_in_a_row_are_one_feed() {
    let records: Vec<Mbo> = (1..=6).map(|order| Mbo { order, ..Mbo::default() }).collect();
    let dbn = [mbo_file(1, &records[..2]), mbo_file(3, &records[2..3]), mbo_file(2, &records[3..])];
    let (messages, _) = in_a_row(&dbn);
    let expected: Vec<(u64, Vec<u8>)> = records.iter().zip(1..).map(|(record, at)| (at, record.bytes())).collect();
    assert_eq!(messages, expected);
    let itch: Vec<Vec<u8>> = (1..=5).map(|n| capture::add(1, capture::OPEN_OF_DAY_NS, n, b'B', 100, 1_000)).collect();
    let (messages, _) = in_a_row(&[capture::binary_file(&itch[..2]), capture::binary_file(&itch[2..])]);
    assert_eq!(messages, itch.iter().zip(1..).map(|(message, at)| (at, message.clone())).collect::<Vec<_>>());
    // MoldUDP64 goes on where it was: 3 is there twice, and 4 nowhere.
    let pcap = |sequence, messages: &[Vec<u8>]| {
        let datagram = capture::mold(capture::SESSION, sequence, messages);
        capture::pcap_nanos(&[(capture::OPEN_NS, capture::frame(capture::LINE_A, &datagram))])
    };
    let (messages, notices) = in_a_row(&[pcap(1, &itch[..3]), pcap(3, &itch[2..3]), pcap(5, &itch[4..])]);
    assert_eq!(messages.iter().map(|(ordinal, _)| *ordinal).collect::<Vec<_>>(), [1, 2, 3, 5]);
    assert!(matches!(notices[..], [Notice::Gap(Missing { first: 4, count: 1, .. })]), "{notices:?}");
}

#[test]
fn files_of_several_kinds_are_not_one_feed() {
    let folder = tempfile::tempdir().expect("a folder");
    let paths = [folder.path().join("a"), folder.path().join("b")];
    std::fs::write(&paths[0], mbo_file(3, &[Mbo::default()])).expect("writes");
    let add = capture::add(1, capture::OPEN_OF_DAY_NS, 1, b'B', 100, 1_000);
    std::fs::write(&paths[1], capture::binary_file(&[add])).expect("writes");
    let error = open_feeds(&paths, &FeedOptions::default()).err().expect("refused").to_string();
    assert!(error.contains("this is itch, and the first file is dbn"), "{error}");
}

#[test]
fn a_claimed_gigabyte_is_not_allocated() {
    let mut claims = mbo_file(3, &[]);
    claims.truncate(100);
    claims[4..8].copy_from_slice(&(1u32 << 30).to_le_bytes());
    assert!(file(&claims, false).is_err());
    let pcap_record =
        [&0xA1B2_C3D4u32.to_le_bytes()[..], &[2, 0, 4, 0], &[0; 8], &[0, 0, 4, 0], &[1, 0, 0, 0]].concat();
    let pcap = [&pcap_record[..], &[0; 8], &(1u32 << 30).to_le_bytes(), &(1u32 << 30).to_le_bytes(), &[0; 60]].concat();
    let block =
        [&[0x0A, 0x0D, 0x0D, 0x0A][..], &(1u32 << 30).to_le_bytes(), &0x1A2B_3C4Du32.to_le_bytes(), &[0; 88]].concat();
    let folder = tempfile::tempdir().expect("a folder");
    for (name, bytes) in [("dbn", &claims), ("pcap", &pcap), ("pcapng", &block)] {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).expect("writes");
        // Where there are 500 MB of address space, a gigabyte cannot be had, and its want would end the program.
        let command =
            format!("ulimit -v 500000; exec '{}' inspect '{}'", program("feeds-replay").display(), path.display());
        let output = std::process::Command::new("sh").args(["-c", &command]).output().expect("sh(1)");
        let text = printed(&output);
        assert_eq!(output.status.code(), Some(1), "{name}: {text}");
        assert!(text.contains(&format!("{name}: ")) && !text.contains("memory"), "{name}: {text}");
    }
}
