//! Beginning, progress and end of a stream; times and positions.

use protocol::arbiter::{Arbiter, ArbiterConfig, Delivery};
use protocol::book::{BooksConfig, Start};
use protocol::channel::{ChannelConfig, ChannelWriter};
use protocol::line::{Epoch, Line, SequenceNumber, Stamp};
use protocol::pair::Split;
use protocol::record::{ChannelId, InstrumentId, Kind, Lane, Side};
use protocol::run::{Carrier, LanePath, Run, RunSink};
use protocol::time::Nanos;
use subscriber::{BookState, Builder, Engine, EngineConfig, NotReadable, Selection};
use transport::RingWriter;
use transport::shm::RingOptions;

use crate::support::{Bench, HEDGE_NS, Notes, SILENT_NS, add, definition, last, session_start};

#[test]
fn the_end_of_the_stream_is_told_once_and_after_everything_before_it() {
    let mut bench = Bench::new();
    bench.publish(&[session_start()]);
    bench.lose(&[add(1, 10, Side::BID, 5, 100)]);
    bench.notes();
    bench.heartbeat(true);
    assert!(!bench.subscriber.has_ended() && bench.notes().is_empty(), "a line may still come");
    bench.wait(HEDGE_NS);
    assert_eq!(bench.notes(), ["gap of 1 from 1:2: Missing", "end"]);
    assert!(bench.subscriber.has_ended());
    bench.heartbeat(true);
    bench.wait(SILENT_NS);
    assert_eq!(bench.notes(), [] as [&str; 0], "told once, and nobody calls it silent");
}

#[test]
fn the_venues_session_end_is_not_the_end_of_the_stream() {
    let mut bench = Bench::new();
    bench.publish(&[session_start(), last(Kind::SESSION_END, 0)]);
    assert_eq!(bench.notes()[2..], ["2 SessionEnd of 0", "session ends"]);
    assert!(bench.subscriber.engine().session_ended() && !bench.subscriber.has_ended());
    bench.publish(&[session_start()]);
    assert!(!bench.subscriber.engine().session_ended());
}

#[test]
fn a_new_epoch_makes_every_book_stale_and_forgets_what_numbers_meant() {
    let mut bench = Bench::new();
    bench.publish(&[session_start()]);
    bench.publish(&definition(1, "AAPL"));
    bench.publish(&[add(1, 10, Side::BID, 5, 100)]);
    bench.heartbeat(true);
    assert!(bench.subscriber.has_ended());
    bench.notes();

    bench.restart(2);
    bench.publish(&[add(1, 77, Side::ASK, 1, 50)]);
    assert_eq!(
        bench.notes(),
        ["epoch 1 -> 2", "1 Live -> Stale: NewEpoch", "1 Add of 1, no book"],
        "its first line says nothing of what the book held before"
    );
    assert!(!bench.subscriber.has_ended(), "there is a stream again");
    assert_eq!(bench.context().symbol(InstrumentId(1)), "");
    assert_eq!(bench.context().instrument("AAPL"), None);
    assert!(matches!(bench.context().book(InstrumentId(1)), Err(NotReadable::State { .. })));
    bench.publish(&[session_start()]);
    bench.publish(&definition(1, "MSFT"));
    bench.publish(&[add(1, 78, Side::ASK, 2, 60)]);
    let notes = bench.notes();
    assert!(notes.contains(&"1 Stale -> Live: SessionStart".into()), "{notes:?}");
    assert_eq!(notes.last().expect("the add's event"), "event of 1: - | - -> - | 2x60 (1)");
    assert_eq!(bench.context().symbol(InstrumentId(1)), "MSFT");
    assert_eq!(bench.subscriber.counts().epochs, 1);
}

#[test]
fn choices_are_made_anew_in_a_new_epoch() {
    let mut bench = Bench::with(Selection::symbols(["AAPL"]), Start::Strict);
    bench.publish(&[session_start()]);
    bench.publish(&definition(1, "AAPL"));
    bench.restart(2);
    bench.publish(&[session_start()]);
    bench.publish(&definition(1, "MSFT"));
    bench.publish(&definition(2, "AAPL"));
    bench.notes();
    bench.publish(&[add(1, 10, Side::BID, 5, 100), add(2, 20, Side::BID, 6, 100)]);
    assert_eq!(bench.notes(), ["9 Add of 2, book - | -", "event of 2: - | - -> 6x100 (1) | -"]);
    assert_eq!(bench.context().book(InstrumentId(1)).err(), Some(NotReadable::NotSelected(InstrumentId(1))));
}

#[test]
fn lag_counts_the_lines_known_to_exist_and_not_delivered() {
    let mut bench = Bench::new();
    bench.publish(&[session_start(), add(1, 10, Side::BID, 5, 100)]);
    assert_eq!((bench.subscriber.lag(), bench.context().lag()), (0, 0));
    bench.lose(&[add(1, 11, Side::BID, 5, 100), add(1, 12, Side::BID, 5, 100)]);
    bench.publish(&[add(1, 13, Side::BID, 5, 100)]);
    assert_eq!((bench.subscriber.lag(), bench.context().lag()), (3, 3));
    bench.notes.lags.clear();
    bench.wait(HEDGE_NS);
    assert_eq!(bench.notes.lags, [3], "as of the turn before");
    assert_eq!((bench.subscriber.lag(), bench.context().lag()), (0, 0));
    // A heartbeat shows the loss of the newest line.
    bench.lose(&[add(1, 14, Side::BID, 5, 100)]);
    bench.heartbeat(false);
    assert_eq!(bench.subscriber.lag(), 1);
}

#[test]
fn a_reader_of_a_ring_that_is_behind_says_by_how_much() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let options = RingOptions::new("lag", ChannelId::new(1), Lane::new(0), Epoch(1), 4096);
    let mut ring = RingWriter::create(&RingOptions { dir: Some(dir.path().to_owned()), ..options }).expect("a ring");
    let mut writer = ChannelWriter::new(Epoch(1), ChannelConfig { digest_every: 0, ..ChannelConfig::default() });
    for order in 0..1_000 {
        writer.push(&add(1, order, Side::BID, 5, 100), Nanos(1), &mut |line| ring.put(line)).expect("not exhausted");
    }
    ring.flush();
    let mut subscriber = Builder::new("lag").directory(dir.path()).shared_memory().expect("a subscriber");
    let mut lags = Vec::new();
    for turn in 1..100 {
        let work = subscriber.poll_at(Nanos(turn), &mut ()) as u64;
        assert_eq!(subscriber.context().lag(), subscriber.lag());
        if work > 0 {
            lags.push((work, subscriber.lag()));
        }
    }
    // What is known before the first line is read, less what was read.
    let mut left = 1_000;
    for (work, lag) in &lags {
        left -= work;
        assert_eq!(*lag, left, "{lags:?}");
    }
    assert!(left == 0 && lags.len() > 2, "{lags:?}");
}

#[test]
fn a_poll_that_brings_nothing_is_idle_and_says_so_once() {
    let mut bench = Bench::new();
    assert_eq!((bench.poll(), bench.notes.idle), (0, 1));
    bench.send(&[session_start(), add(1, 10, Side::BID, 5, 100)]);
    assert_eq!((bench.poll(), bench.notes.idle), (2, 1));
    assert_eq!((bench.poll(), bench.notes.idle), (0, 2));
}

#[test]
fn a_turn_hands_up_a_bounded_number_of_lines() {
    let mut bench = Bench::new();
    bench.send(&vec![last(Kind::STATISTIC, 1); 1_000]);
    let mut turns = Vec::new();
    while turns.iter().sum::<usize>() < 1_000 {
        turns.push(bench.poll());
        assert!(turns.len() < 100, "{turns:?}");
    }
    // Packets are taken whole, so the last one of a turn may go beyond.
    assert!(turns.iter().all(|lines| (1..subscriber::POLL_LIMIT + 22).contains(lines)), "{turns:?}");
}

#[test]
fn a_silent_lane_is_told_once_until_it_speaks_again() {
    let mut bench = Bench::new();
    bench.publish(&[session_start()]);
    bench.notes();
    bench.wait(SILENT_NS);
    bench.wait(SILENT_NS);
    assert_eq!(bench.notes(), ["lane 0 over local is silent"]);
    bench.heartbeat(false);
    bench.wait(SILENT_NS);
    assert_eq!(bench.notes(), ["lane 0 over local is silent"]);
    assert_eq!(bench.subscriber.path_counts(LanePath::new(Lane::new(0), Carrier::Local)).silences, 2);
}

#[test]
fn publish_times_are_told_in_full_across_the_wrap_of_their_low_half() {
    let mut bench = Bench::new();
    let mut sent = Vec::new();
    // The first step crosses a multiple of 2^32 ns; the others are longer than its half, and than the whole.
    for pause_ns in [0, 2_000, 3_000_000_000, 5_000_000_000, 20_000_000_000] {
        bench.wait(pause_ns);
        sent.push(Some(bench.now));
        bench.publish(&[add(1, 1 + pause_ns, Side::BID, 1, 1)]);
    }
    assert_eq!(bench.notes.published, sent);
    assert_eq!(bench.subscriber.engine().counts().publish_time_unknown, 0);
}

#[test]
fn lines_that_waited_for_others_have_the_time_they_were_sent_at() {
    let mut bench = Bench::new();
    bench.publish(&[session_start()]);
    bench.notes.published.clear();
    bench.lose(&[add(1, 10, Side::BID, 1, 1)]);
    let sent = bench.now;
    bench.publish(&[add(1, 11, Side::BID, 1, 1)]);
    bench.wait(HEDGE_NS);
    assert_eq!(bench.notes.published, [Some(sent)]);
}

#[test]
fn a_continuation_has_no_publish_time() {
    let mut bench = Bench::new();
    let sent = bench.now;
    bench.publish(&definition(1, "AAPL"));
    assert_eq!(bench.notes.published, [Some(sent), None, None]);
    assert_eq!(bench.subscriber.engine().counts().publish_time_unknown, 0, "nobody misses it");
}

#[test]
fn without_an_anchor_a_publish_time_is_none_and_counted() {
    let books = BooksConfig { instruments: 4, orders: 16, levels: 16 };
    let mut engine = Engine::new(EngineConfig { books, ..EngineConfig::default() });
    let mut notes = Notes::default();
    let stamp = |sequence| Stamp::new(Epoch(1), SequenceNumber(sequence));
    let line = |sequence: u64, sent: Nanos| {
        let mut record = last(Kind::STATISTIC, 1);
        record.ts_publish.set(sent.low());
        record.instrument_seq.set(sequence as u32);
        Line::seal(record, stamp(sequence))
    };
    let path = LanePath::new(Lane::new(0), Carrier::Local);
    let sent = Nanos(9 << 32);
    engine.turn(Nanos(100), &mut notes).on_joined(stamp(1));
    engine.turn(Nanos(100), &mut notes).on_lines(stamp(1), &[line(1, sent)], path, None);
    // A heartbeat of the lane gives one, for a while by the reader's own clock.
    engine.turn(Nanos(200), &mut notes).on_publish_time(path.lane, sent);
    engine.turn(Nanos(300), &mut notes).on_lines(stamp(2), &[line(2, sent.plus(7))], path, None);
    let later = 300 + 3_000_000_000;
    engine.turn(Nanos(later), &mut notes).on_lines(stamp(3), &[line(3, sent.plus(later))], path, None);
    // Another lane's clock is another clock.
    engine.turn(Nanos(later), &mut notes).on_lines(
        stamp(4),
        &[line(4, sent)],
        LanePath::new(Lane::new(1), Carrier::Local),
        None,
    );
    assert_eq!(notes.published, [None, Some(sent.plus(7)), None, None]);
    assert_eq!(engine.counts().publish_time_unknown, 3);
}

/// A line of instrument 1 as it was published at `sent`.
fn published_at(sequence: u64, sent: Nanos) -> Line {
    let mut record = last(Kind::STATISTIC, 1);
    record.ts_publish.set(sent.low());
    record.instrument_seq.set(sequence as u32);
    Line::seal(record, Stamp::new(Epoch(1), SequenceNumber(sequence)))
}

#[test]
fn a_line_that_was_recovered_has_no_publish_time_and_sets_nobodys_clock() {
    let books = BooksConfig { instruments: 4, orders: 16, levels: 16 };
    let mut engine = Engine::new(EngineConfig { books, ..EngineConfig::default() });
    let mut notes = Notes::default();
    let stamp = |sequence| Stamp::new(Epoch(1), SequenceNumber(sequence));
    let path = LanePath::new(Lane::new(0), Carrier::Udp);
    // The server is B's, whose clock is behind A's: taken for A's, its low half would be that of 4.3 s later.
    let (a, b) = (Nanos(9 << 32), Nanos((9 << 32) - 50));
    let mut turn = engine.turn(Nanos(100), &mut notes);
    turn.on_joined(stamp(1));
    turn.on_lines(stamp(1), &[published_at(1, a)], path, Some(a));
    turn.on_lines(stamp(2), &[published_at(2, b)], LanePath::new(Lane::new(0), Carrier::Recovery), None);
    turn.on_lines(stamp(3), &[published_at(3, a.plus(9))], path, None);
    assert_eq!(notes.published, [Some(a), None, Some(a.plus(9))]);
    assert_eq!(engine.counts().publish_time_unknown, 0, "a measurement loses nothing by it");
}

#[test]
fn a_line_that_waited_is_dated_by_the_run_that_brought_it() {
    let books = BooksConfig { instruments: 4, orders: 16, levels: 16 };
    let mut engine = Engine::new(EngineConfig { books, ..EngineConfig::default() });
    let mut arbiter = Arbiter::new(ArbiterConfig { paths: 2, early_lines: 16, ..ArbiterConfig::default() });
    let mut notes = Notes::default();
    let stamp = |sequence| Stamp::new(Epoch(1), SequenceNumber(sequence));
    let run = |arbiter: &mut Arbiter, engine: &mut Engine, notes: &mut Notes, lane, sequence, sent: Nanos| {
        let lines = [published_at(sequence, sent)];
        let path = LanePath::new(Lane::new(lane), Carrier::Udp);
        let run = Run { path, first: stamp(sequence), lines: &lines, publish_time: Some(sent) };
        arbiter.sink(Nanos(100), &mut engine.turn(Nanos(100), notes)).on_run(run);
    };
    // A's publisher died and came back on a host whose clock had been set back meanwhile.
    let (before, after) = (Nanos(9 << 32), Nanos((9 << 32) - 1_000_000));
    run(&mut arbiter, &mut engine, &mut notes, 0, 1, before);
    run(&mut arbiter, &mut engine, &mut notes, 0, 3, after);
    run(&mut arbiter, &mut engine, &mut notes, 1, 2, before.plus(7));
    assert_eq!(notes.published, [Some(before), Some(before.plus(7)), Some(after)]);
}

#[test]
fn a_split_makes_books_stale_until_a_digest_agrees_for_their_count_proves_nothing() {
    let mut notes = Notes::default();
    let books = BooksConfig { instruments: 4, orders: 16, levels: 16 };
    let mut engine = Engine::new(EngineConfig { books, ..EngineConfig::default() });
    let config = ChannelConfig { books, digest_every: 0, ..ChannelConfig::default() };
    let mut writer = ChannelWriter::new(Epoch(1), config);
    let mut lines = Vec::new();
    for record in [last(Kind::SESSION_START, 0), last(Kind::ADD, 1), last(Kind::ADD, 2), last(Kind::TRADE, 1)] {
        let mut record = record;
        record.side = Side::BID;
        record.order_id.set(u64::from(record.instrument.get()));
        (record.price, record.size) = (100.into(), 5.into());
        writer.push(&record, Nanos(1), &mut |line| lines.push(*line)).expect("numbers are left");
        writer.end_message(Nanos(1), &mut |line| lines.push(*line)).expect("numbers are left");
    }
    let digest = writer.books().digest_record(InstrumentId(1)).expect("a readable book");
    writer.push(&digest, Nanos(1), &mut |line| lines.push(*line)).expect("numbers are left");
    let path = LanePath::new(Lane::new(0), Carrier::Udp);
    let at = lines[0].stamp();
    let mut turn = engine.turn(Nanos(100), &mut notes);
    turn.on_joined(at);
    turn.on_lines(at, &lines[..3], path, None);
    let state =
        |engine: &Engine, id| engine.context(Nanos(100)).book_even_if_stale(InstrumentId(id)).map(|b| b.state());
    let split = |is_tainted| Split { at: at.plus(3), kept: Lane::new(0), withdrawn: Lane::new(1), is_tainted };
    engine.turn(Nanos(100), &mut notes).on_split(split(false));
    assert_eq!(state(&engine, 1), Ok(BookState::Live), "all that was delivered is the kept lane's");
    engine.turn(Nanos(100), &mut notes).on_split(split(true));
    assert_eq!((state(&engine, 1), state(&engine, 2)), (Ok(BookState::Stale), Ok(BookState::Stale)));
    engine.turn(Nanos(100), &mut notes).on_lines(at.plus(3), &lines[3..4], path, None);
    assert_eq!(state(&engine, 1), Ok(BookState::Stale), "both lanes count alike");
    engine.turn(Nanos(100), &mut notes).on_lines(at.plus(4), &lines[4..], path, None);
    assert_eq!((state(&engine, 1), state(&engine, 2)), (Ok(BookState::Live), Ok(BookState::Stale)));
}
