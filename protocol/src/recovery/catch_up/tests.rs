use super::*;
use crate::book::{BookState, BooksConfig, Start};
use crate::line::{Epoch, SequenceNumber};
use crate::record::{Flags, InstrumentId, Kind, Side};
use crate::recovery::SnapshotSource;
use crate::sequencer::Sequencer;
use crate::time::Nanos;

const SMALL: BooksConfig = BooksConfig { instruments: 4, orders: 64, levels: 64 };
const ONE: InstrumentId = InstrumentId(1);

fn stamp(sequence: u64) -> Stamp {
    Stamp::new(Epoch(1), SequenceNumber(sequence))
}

/// A publisher's stream, and a recovery server's books at every line of it.
struct Stream {
    sequencer: Sequencer,
    lines: Vec<Line>,
    /// The snapshot of instrument 1 after each line; none before there is one.
    snapshots: Vec<Option<Vec<Record>>>,
    source: SnapshotSource,
}

impl Stream {
    /// A session begins.
    fn new() -> Stream {
        let mut source = SnapshotSource::new(SMALL, Start::Strict);
        source.on_joined(stamp(1));
        let mut stream =
            Stream { sequencer: Sequencer::new(Epoch(1), 4), lines: Vec::new(), snapshots: vec![None], source };
        stream.send(Record { flags: Flags::LAST, ..Record::new(Kind::SESSION_START, InstrumentId::CHANNEL) });
        stream
    }

    fn send(&mut self, record: Record) {
        let (stamp, line) = self.sequencer.seal(&record, Nanos(1)).expect("far from the end");
        self.source.apply(stamp, &line.record);
        self.lines.push(line);
        let mut records = Vec::new();
        let taken = self.source.write(ONE, &mut |record| records.push(record)).is_ok();
        self.snapshots.push(taken.then_some(records));
    }

    fn order(&mut self, kind: Kind, id: u64, price: i64) {
        let mut record = Record { flags: Flags::LAST, side: Side::BID, ..Record::new(kind, ONE) };
        record.order_id.set(id);
        record.price.set(price);
        record.size.set(10);
        self.send(record);
    }

    /// As many orders as it takes until `count` lines are there, each at a price of its own.
    fn fill(&mut self, count: usize) {
        while self.lines.len() < count {
            let id = self.lines.len() as u64;
            self.order(Kind::ADD, id, 1000 + id as i64);
        }
    }
}

/// A subscriber's books of which nothing is known before line `from`, and what it keeps.
struct Reader {
    books: Books,
    catch_up: CatchUp,
}

impl Reader {
    fn joined_at(from: u64, config: CatchUpConfig) -> Reader {
        let mut books = Books::new(SMALL, Start::Strict);
        books.on_join_late();
        let mut catch_up = CatchUp::new(config);
        catch_up.begin(stamp(from));
        Reader { books, catch_up }
    }

    fn read(&mut self, stream: &Stream, from: u64, to: u64) {
        for sequence in from..=to {
            let line = &stream.lines[sequence as usize - 1];
            self.books.apply(stamp(sequence), &line.record);
            self.catch_up.on_lines(stamp(sequence), std::slice::from_ref(line));
        }
    }

    fn take(&mut self, records: &[Record]) -> Fate {
        let snapshot = Snapshot::from_records(records).expect("a snapshot");
        self.catch_up.take(&snapshot, records, &mut self.books)
    }

    fn prices(&self) -> Vec<i64> {
        self.books.view(ONE).expect("heard of").bids().map(|level| level.price).collect()
    }

    fn state(&self) -> BookState {
        self.books.state(ONE)
    }
}

/// The true bids at a line.
fn prices_at(stream: &Stream, sequence: u64) -> Vec<i64> {
    let records = stream.snapshots[sequence as usize].as_ref().expect("one was taken");
    records.iter().filter(|record| record.kind == Kind::ADD).map(|record| record.price.get()).collect()
}

#[test]
fn of_two_snapshots_with_disjoint_prices_the_second_alone_stands() {
    let mut stream = Stream::new();
    stream.order(Kind::ADD, 1, 100);
    stream.order(Kind::ADD, 2, 101);
    for id in [1, 2] {
        stream.order(Kind::DELETE, id, 0);
    }
    stream.order(Kind::ADD, 3, 200);
    let mut reader = Reader::joined_at(2, CatchUpConfig::default());
    reader.read(&stream, 2, 3);
    assert_eq!(reader.take(stream.snapshots[3].as_ref().expect("taken")), Fate::Applied);
    assert_eq!(reader.prices(), [101, 100]);
    // The deletes are lost, and with them goes what was kept.
    reader.books.on_gap();
    reader.catch_up.begin(stamp(6));
    reader.read(&stream, 6, 6);
    assert_eq!(reader.state(), BookState::Stale);
    assert_eq!(reader.take(stream.snapshots[6].as_ref().expect("taken")), Fate::Applied);
    assert_eq!((reader.prices(), reader.state()), (vec![200], BookState::Live));
}

#[test]
fn a_snapshot_older_than_what_was_applied_is_brought_up_to_date_with_what_was_kept() {
    let mut stream = Stream::new();
    stream.fill(20);
    let mut reader = Reader::joined_at(8, CatchUpConfig::default());
    reader.read(&stream, 8, 15);
    assert_eq!(reader.take(stream.snapshots[10].as_ref().expect("taken")), Fate::Applied);
    assert_eq!((reader.prices(), reader.state()), (prices_at(&stream, 15), BookState::Live));
    reader.read(&stream, 16, 20);
    assert_eq!(reader.prices(), prices_at(&stream, 20));
}

#[test]
fn a_snapshot_of_before_what_was_kept_does_not_meet_it_and_one_that_straddles_does() {
    let mut stream = Stream::new();
    stream.fill(120);
    // The first line kept is 105: a snapshot at 100 does not meet it, one at 104 does.
    let mut reader = Reader::joined_at(105, CatchUpConfig::default());
    reader.read(&stream, 105, 110);
    assert_eq!(reader.take(stream.snapshots[100].as_ref().expect("taken")), Fate::Useless);
    assert_eq!((reader.state(), reader.catch_up.counts().too_old), (BookState::Unknown, 1));
    assert_eq!(reader.catch_up.lowest_use(), Some(stamp(104)));
    assert_eq!(reader.take(stream.snapshots[104].as_ref().expect("taken")), Fate::Applied);
    assert_eq!(reader.prices(), prices_at(&stream, 110));
    // Lines 98 to 103 were kept, and the snapshot is in the middle of them.
    let mut reader = Reader::joined_at(98, CatchUpConfig::default());
    reader.read(&stream, 98, 103);
    assert_eq!(reader.take(stream.snapshots[100].as_ref().expect("taken")), Fate::Applied);
    assert_eq!((reader.prices(), reader.state()), (prices_at(&stream, 103), BookState::Live));
}

#[test]
fn an_overlap_whose_counts_do_not_meet_is_an_error_and_counted() {
    let mut stream = Stream::new();
    stream.fill(20);
    let mut reader = Reader::joined_at(8, CatchUpConfig::default());
    reader.read(&stream, 8, 15);
    // As if the server had counted a line that never came here.
    let mut records = stream.snapshots[10].clone().expect("taken");
    let counted = records[0].price.get();
    records[0].price.set(counted - 1);
    assert_eq!(reader.take(&records), Fate::Useless);
    assert_eq!((reader.state(), reader.catch_up.counts().did_not_meet), (BookState::Unknown, 1));
}

#[test]
fn a_snapshot_ahead_of_the_stream_waits_for_it_within_a_bound() {
    let mut stream = Stream::new();
    stream.fill(20);
    let config = CatchUpConfig { held_lines: 40, ..CatchUpConfig::default() };
    let mut reader = Reader::joined_at(8, config);
    reader.read(&stream, 8, 10);
    let ahead = stream.snapshots[15].clone().expect("taken");
    assert_eq!(reader.take(&ahead), Fate::Waits);
    assert_eq!(reader.take(&ahead), Fate::Waits);
    assert_eq!(reader.take(&ahead), Fate::Useless, "a third has no room");
    assert_eq!((reader.catch_up.waiting(), reader.catch_up.counts().overflows), (2, 1));
    reader.read(&stream, 11, 14);
    assert!(reader.catch_up.next_due().is_none());
    reader.read(&stream, 15, 18);
    let due = reader.catch_up.next_due().expect("the stream has reached it");
    assert_eq!(reader.take(&due), Fate::Applied);
    assert_eq!(reader.prices(), prices_at(&stream, 18));
    // The same snapshot once more changes nothing, the queues least of all.
    let before = reader.books.view(ONE).expect("heard of").digests();
    let due = reader.catch_up.next_due().expect("the second");
    assert_eq!(reader.take(&due), Fate::Applied);
    assert_eq!(reader.books.view(ONE).expect("heard of").digests(), before);
}

#[test]
fn updates_before_any_snapshot_are_kept_within_a_bound() {
    let mut stream = Stream::new();
    stream.fill(40);
    let mut reader = Reader::joined_at(2, CatchUpConfig { recent_lines: 8, ..CatchUpConfig::default() });
    reader.read(&stream, 2, 30);
    // Lines 23 to 30 are kept.
    assert_eq!(reader.catch_up.lowest_use(), Some(stamp(22)));
    assert_eq!(reader.take(stream.snapshots[21].as_ref().expect("taken")), Fate::Useless);
    assert_eq!(reader.take(stream.snapshots[22].as_ref().expect("taken")), Fate::Applied);
    assert_eq!(reader.prices(), prices_at(&stream, 30));
}

#[test]
fn a_snapshot_of_another_epoch_is_of_no_use() {
    let mut stream = Stream::new();
    stream.fill(20);
    let mut reader = Reader::joined_at(8, CatchUpConfig::default());
    reader.read(&stream, 8, 10);
    assert_eq!(reader.take(stream.snapshots[15].as_ref().expect("taken")), Fate::Waits);
    reader.books.on_epoch();
    reader.catch_up.begin(Stamp::new(Epoch(2), SequenceNumber(1)));
    assert_eq!(reader.catch_up.waiting(), 0, "what waited waits no more");
    assert_eq!(reader.take(stream.snapshots[10].as_ref().expect("taken")), Fate::Useless);
    assert_eq!(reader.catch_up.counts().too_old, 1);
}
