use protocol::book::RestingOrder;
use protocol::definition::continuations;

use super::*;
use crate::date::SessionDate;

/// A venue whose messages are a type each: `A` defines and adds, `T` a trade, and so on; the second byte is the instrument.
struct Letters;

const NO_COUNTERS: &Counters = &Counters::ZERO;

impl Venue for Letters {
    fn normalise(&mut self, message: &Message<'_>, orders: &impl OrderLookup, out: &mut impl FnMut(Record)) {
        let [letter, instrument, rest @ ..] = message.bytes else { return };
        let id = InstrumentId(u32::from(*instrument));
        let time = rest.first().map_or(0, |time| u64::from(*time));
        let record = |kind| {
            let mut record = Record::new(kind, id);
            record.flags = Flags::LAST;
            record.ts_event.set(time);
            record
        };
        match letter {
            b'D' => {
                let mut definition = record(Kind::DEFINITION);
                definition.order_id.set((u64::from(id.0) * 100) | (2 << 32));
                continuations(&definition, format!("symbol=S{instrument}\nvenue=X\n").as_bytes(), out);
            }
            b'P' => {
                let mut first = record(Kind::ADD);
                first.flags = Flags::NONE;
                out(first);
                let mut second = record(Kind::TRADE);
                second.ts_event.set(time + 10);
                out(second);
            }
            b'S' => out(record(Kind::STATUS)),
            b'V' => {
                let mut add = record(Kind::ADD);
                add.flags = Flags::SNAPSHOT.with(Flags::LAST);
                out(add);
            }
            b'?' => {
                let mut known = record(Kind::REDUCE);
                known.size.set(u64::from(orders.order(id, 1).is_some()));
                out(known);
            }
            _ => out(record(Kind::ADD)),
        }
    }

    fn notice(&mut self, _: &Notice, _: &mut impl FnMut(Record)) {}

    fn time(&self, _: &Message<'_>) -> Option<Nanos> {
        None
    }

    fn venue_time(&self, _: &Message<'_>) -> Option<Nanos> {
        None
    }

    fn check(&self, _: &[u8]) -> Result<(), Rejected> {
        Ok(())
    }

    fn counters(&self) -> &Counters {
        NO_COUNTERS
    }

    fn instrument_count(&self) -> u32 {
        0
    }

    fn date(&self) -> SessionDate {
        SessionDate::NONE
    }
}

/// No orders at all.
struct Nothing;

impl OrderLookup for Nothing {
    fn order(&self, _: InstrumentId, _: u64) -> Option<RestingOrder> {
        None
    }
}

/// Kind and instrument of what passes.
fn passed(filter: Filter, messages: &[&[u8]]) -> Vec<(Kind, u32)> {
    let mut venue = Filtered::new(Letters, filter);
    let mut out = Vec::new();
    for bytes in messages {
        let message = Message { ordinal: 1, offset: 0, capture: None, bytes };
        venue.normalise(&message, &Nothing, &mut |record| {
            if record.kind != Kind::CONTINUATION {
                out.push((record.kind, record.instrument.get()));
            }
        });
    }
    out
}

const DAY: [&[u8]; 6] = [b"D\x01", b"D\x02", b"A\x01\x05", b"A\x02\x06", b"S\x02\x07", b"V\x01\x63"];

#[test]
fn nothing_asked_for_is_everything() {
    assert_eq!(passed(Filter::default(), &DAY).len(), 6);
}

#[test]
fn definitions_and_statuses_always_pass_and_orders_of_what_is_wanted() {
    use Kind as K;
    let expected = [(K::DEFINITION, 1), (K::DEFINITION, 2), (K::ADD, 2), (K::STATUS, 2)];
    let symbols = Filter { symbols: vec!["S2".into()], ..Filter::default() };
    assert_eq!(passed(symbols, &DAY), expected);
    let instruments = Filter { instruments: vec![200], ..Filter::default() };
    assert_eq!(passed(instruments, &DAY), expected);
    let publishers = Filter { publishers: vec![2], ..Filter::default() };
    assert_eq!(passed(publishers, &DAY).len(), 6);
    let publishers = Filter { publishers: vec![3], ..Filter::default() };
    assert_eq!(passed(publishers, &DAY), [(K::DEFINITION, 1), (K::DEFINITION, 2), (K::STATUS, 2)]);
}

#[test]
fn snapshots_pass_whatever_the_time_and_an_event_ends_where_it_did() {
    use Kind as K;
    let window = Filter { from: Some(6), to: Some(10), ..Filter::default() };
    let got = passed(window.clone(), &DAY);
    assert_eq!(got[2..], [(K::ADD, 2), (K::STATUS, 2), (K::ADD, 1)]);
    // The second line of this event is beyond the window.
    let got = passed(window, &[b"D\x01", b"P\x01\x09"]);
    assert_eq!(got, [(K::DEFINITION, 1), (K::ADD, 1), (K::EVENT_END, 1)]);
}

#[test]
fn orders_of_what_is_left_out_are_not_unknown() {
    let filter = Filter { symbols: vec!["S2".into()], ..Filter::default() };
    let mut venue = Filtered::new(Letters, filter);
    let mut sizes = Vec::new();
    let lookups: [&[u8]; 4] = [b"D\x01", b"D\x02", b"?\x02\x01", b"?\x01\x01"];
    for bytes in lookups {
        let message = Message { ordinal: 1, offset: 0, capture: None, bytes };
        venue.normalise(&message, &Nothing, &mut |record| {
            if record.kind == Kind::REDUCE {
                sizes.push(record.size.get());
            }
        });
    }
    assert_eq!(sizes, [0], "the one of what is wanted is looked up; the other does not pass");
    assert_eq!(venue.dropped(), 1);
}
