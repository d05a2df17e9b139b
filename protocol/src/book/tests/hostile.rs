//! Records that no sound publisher sends, by the million: nothing panics, nothing grows without bound, and what a reader
//! sees of a book always hangs together.

use super::*;
use crate::record::Kind;

/// A small generator of its own (splitmix64), so that a seed means the same for ever.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }
}

/// Any kind with any side, any flags, and fields that are now tame and now absurd.
fn hostile(random: &mut Random) -> Record {
    let kind = if random.below(64) == 0 { Kind(random.next() as u8) } else { random.of(Kind::ALL) };
    // The kinds that empty all books come seldom, or there would be no books.
    let rare = [Kind::CLEAR, Kind::SESSION_START].contains(&kind);
    let kind = if rare && random.below(50) != 0 { Kind::ADD } else { kind };
    let instrument = match random.below(20) {
        0 => 0,
        1 => random.next() as u32 | 1 << 23,
        _ => 1 + random.below(5) as u32,
    };
    let mut record = Record::new(kind, InstrumentId(instrument));
    let sides = [Side::BID, Side::ASK, Side::BID, Side::ASK, Side::IMPLIED_BID, Side::IMPLIED_ASK, Side::NONE];
    record.side = if random.below(30) == 0 { Side(random.next() as u8) } else { random.of(&sides) };
    record.flags = Flags(random.next() as u8).without(if random.below(3) == 0 { Flags::LAST } else { Flags::NONE });
    record.detail = if random.below(4) == 0 { random.next() as u8 } else { random.below(9) as u8 };
    let wild = [0, 1, u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) - 1, 1 << 32];
    let mut word = |tame: u64, often: u64| match random.below(often) {
        0 => random.next(),
        1 => random.of(&wild),
        _ => random.below(tame),
    };
    record.order_id.set(word(40, 20));
    record.price.set(word(30, 25) as i64);
    record.size.set(word(20, 20));
    record.ts_event.set(word(1000, 2));
    record.instrument_seq.set(word(1000, 2) as u32);
    record
}

/// Digests that agree by accident never happen; the publisher's own word now and then makes books readable again.
fn run(seed: u64, lines: u64, sound_counts: bool) {
    let mut random = Random(seed);
    let mut books = Books::new(SMALL, if seed.is_multiple_of(2) { Start::Strict } else { Start::Natural });
    let mut sequencer = Sequencer::new(Epoch(1), 8);
    let mut sequence = 0;
    let mut epoch = 1;
    for step in 0..lines {
        let context = || format!("seed {seed} step {step}");
        sequence += 1;
        match random.below(20_000) {
            0 => books.on_gap(),
            1 => books.on_join_late(),
            2 => {
                books.on_epoch();
                (epoch, sequence, sequencer) = (epoch + 1, 1, Sequencer::new(Epoch(1), 8));
            }
            3 => sequence += random.below(20_000),
            _ => {}
        }
        let mut record = hostile(&mut random);
        let instrument = record.instrument_id();
        if random.below(200) == 0
            && let Some(digest) = books.digest_record(instrument)
        {
            record = digest;
        }
        if sound_counts && instrument.0 < 8 {
            record = sequencer.seal(&record, Nanos(step)).expect("not exhausted").1.record;
        }
        books.apply(Stamp::new(Epoch(epoch), SequenceNumber(sequence)), &record);
        let mut events = 0;
        while books.poll_event().is_some() {
            events += 1;
        }
        assert!(events <= 2 * 8 + 2, "{events} events of one line: {}", context());
        if step % 997 == 0 || step + 1 == lines {
            for instrument in books.instruments() {
                let view = books.view(instrument).expect("listed");
                check_book(&view, &context);
            }
        } else if step % 31 == 0
            && let Some(view) = books.view(instrument)
        {
            check_book(&view, &context);
        }
    }
    assert_eq!(books.instruments().count(), 5, "seed {seed}");
}

#[test]
fn millions_of_hostile_records_never_panic_and_digests_stay_those_of_the_book() {
    for seed in 1..=4 {
        run(seed, 300_000, false);
        run(seed, 300_000, true);
    }
}

/// What came of lines: changes of state, and of whose readable books the end of an event changed what.
#[derive(Default, PartialEq, Debug)]
struct Came {
    states: Vec<StateChange>,
    changed: Vec<InstrumentId>,
}

impl Came {
    fn poll(&mut self, books: &mut Books) {
        while let Some(event) = books.poll_event() {
            match event {
                BookEvent::State(change) => self.states.push(change),
                BookEvent::EventEnd(end) if end.changed => self.changed.push(end.instrument),
                BookEvent::EventEnd(_) => {}
            }
        }
    }
}

/// Mostly an event of one instrument, one to four lines with LAST on the last; now and then something else.
fn message(random: &mut Random) -> Vec<Record> {
    if random.below(60) == 0 {
        // Ends what is open, or mends what is Stale.
        return vec![last(if random.below(4) == 0 { Kind::CLEAR } else { Kind::EVENT_END }, CHANNEL)];
    }
    let instrument = InstrumentId(1 + random.below(5) as u32);
    let count = 1 + random.below(4);
    let mut records: Vec<Record> = (0..count).map(|_| hostile(random)).collect();
    if random.below(200) != 0 {
        for (record, at) in records.iter_mut().zip(1..) {
            record.instrument.set(instrument.0);
            let other = record.flags.without(Flags::LAST);
            record.flags = if at == count { other.with(Flags::LAST) } else { other };
            if matches!(record.kind, Kind::BOOK_DIGEST | Kind::EVENT_END) {
                record.kind = Kind::DELETE;
            }
        }
    }
    records
}

#[test]
fn a_message_taken_at_once_leaves_the_books_as_its_lines_one_by_one() {
    for seed in 1..=4 {
        let mut random = Random(seed);
        let start = if seed % 2 == 0 { Start::Strict } else { Start::Natural };
        let (mut at_once, mut one_by_one) = (Books::new(SMALL, start), Books::new(SMALL, start));
        let mut sequencer = Sequencer::new(Epoch(1), 8);
        let mut taken_at_once = 0;
        for step in 0..20_000 {
            let mut lines = Vec::new();
            for record in message(&mut random) {
                if record.instrument_id().0 > MAX_INSTRUMENTS {
                    continue; // The sequencer would make room for it.
                }
                let (stamp, line) = sequencer.seal(&record, Nanos(step)).expect("not exhausted");
                // Lost lines now and then, so that counts do not always continue.
                if random.below(5_000) != 0 {
                    lines.push((stamp, line.record));
                }
            }
            if random.below(2_000) == 0 {
                at_once.on_gap();
                one_by_one.on_gap();
            }
            let (mut ours, mut theirs) = (Came::default(), Came::default());
            for (stamp, record) in &lines {
                one_by_one.apply(*stamp, record);
                theirs.poll(&mut one_by_one);
            }
            ours.poll(&mut at_once);
            match at_once.apply_event(&lines) {
                Some(changed) => {
                    taken_at_once += 1;
                    ours.changed.extend(changed.then(|| lines[0].1.instrument_id()));
                }
                None => lines.iter().for_each(|(stamp, record)| at_once.apply(*stamp, record)),
            }
            ours.poll(&mut at_once);
            assert_eq!(ours, theirs, "seed {seed} step {step}");
            for instrument in one_by_one.instruments() {
                let of = |books: &Books| books.view(instrument).map(|view| (view.digests(), view.state(), view.bbo()));
                assert_eq!(of(&at_once), of(&one_by_one), "seed {seed} step {step} {instrument:?}");
            }
        }
        assert!(taken_at_once > 5_000, "seed {seed}: {taken_at_once} messages at once");
        for kind in Inconsistency::ALL {
            assert_eq!(at_once.inconsistencies(kind), one_by_one.inconsistencies(kind), "seed {seed} {kind:?}");
        }
        assert_eq!(at_once.digest_counts(), one_by_one.digest_counts(), "seed {seed}");
    }
}
