//! The command `subscriber watch`, without a terminal: what it prints, and how it ends.

#![forbid(unsafe_code)]
#![cfg(feature = "watch")]

use std::path::Path;
use std::process::{Command, Output};

use protocol::channel::{ChannelConfig, ChannelWriter};
use protocol::definition::continuations;
use protocol::line::{Epoch, Line};
use protocol::record::{ChannelId, Flags, InstrumentId, Kind, Lane, Record, Side, condition};
use protocol::time::Nanos;
use serde_json::Value;
use transport::RingWriter;
use transport::shm::{DIR_VARIABLE, RingOptions};

fn last(kind: Kind, instrument: u32) -> Record {
    let mut record = Record::new(kind, InstrumentId(instrument));
    record.flags = Flags::LAST;
    record
}

/// A whole session of two instruments in a ring in `directory`: 11 lines, then its end.
fn publish(directory: &Path) -> RingWriter {
    let mut options = RingOptions::new("watched", ChannelId::new(1), Lane::new(0), Epoch(3), 64);
    options.dir = Some(directory.to_owned());
    options.huge_pages = false;
    let mut ring = RingWriter::create(&options).expect("a fresh directory");
    let mut records = vec![last(Kind::SESSION_START, 0)];
    for (instrument, symbol) in [(1, "AAPL"), (2, "MSFT")] {
        let text = format!("symbol={symbol}\n");
        continuations(&last(Kind::DEFINITION, instrument), text.as_bytes(), &mut |record| records.push(record));
        let mut add = last(Kind::ADD, instrument);
        add.side = Side::BID;
        add.order_id.set(u64::from(instrument));
        add.size.set(1_500);
        add.price.set(101_250_000_000);
        records.push(add);
    }
    let mut trade = last(Kind::TRADE, 1);
    trade.detail = condition::PRINTABLE;
    trade.price.set(101_250_000_000);
    trade.size.set(100);
    records.extend([trade, last(Kind::SESSION_END, 0)]);
    // The end of the session brings a digest of each of the two books.
    let mut writer = ChannelWriter::new(Epoch(3), ChannelConfig::default());
    let now = Nanos(1_700_000_000_000_000_000);
    for record in &records {
        writer.push(record, now, &mut |line: &Line| ring.put(line)).expect("numbers are left");
    }
    ring.flush();
    ring.heartbeat(now, true);
    ring
}

/// Runs the command to its end. It ends by itself, after `--seconds` at the latest.
fn watch(directory: &Path, options: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_subscriber"))
        .args(["watch", "watched"])
        .args(options)
        .env(DIR_VARIABLE, directory)
        .output()
        .expect("the command was built with this test")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_session_is_summed_up_as_json() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let _ring = publish(directory.path());
    let output = watch(directory.path(), &["--json", "--seconds", "60"]);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    let summary: Value = serde_json::from_str(&said).expect("standard output is JSON and nothing else");
    assert_eq!((&summary["state"], &summary["epoch"]), (&"ended".into(), &3.into()), "{said}");
    assert_eq!(summary["next_sequence"], 12, "{said}");
    let totals = &summary["totals"];
    for (name, expected) in [
        ("delivered", 11),
        ("skipped", 0),
        ("trades", 1),
        ("gaps", 0),
        ("lost", 0),
        ("digests_agreed", 2),
        ("digests_disagreed", 0),
    ] {
        assert_eq!(totals[name], expected, "{name}: {said}");
    }
    assert_eq!((&summary["books"]["live"], &summary["instruments"]), (&2.into(), &2.into()), "{said}");
}

#[test]
fn chosen_instruments_are_shown_in_plain_words() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let _ring = publish(directory.path());
    let output = watch(directory.path(), &["--symbols", "AA*", "--seconds", "60"]);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    assert!(said.contains("channel 'watched' by shared memory: the stream has ended at epoch 3"), "{said}");
    assert!(said.contains("  books: 1 Live\n"), "{said}");
    assert!(said.contains("digests: 1 agreed, 0 disagreed"), "{said}");
}

#[test]
fn a_publisher_that_is_not_there_is_waited_for_and_its_file_named() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let output = watch(directory.path(), &["--seconds", "1", "--lane", "2"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "nothing came: {said}");
    let file = directory.path().join("bookcast-watched-2.ring");
    assert!(said.starts_with("waiting for channel 'watched' … "), "{said}");
    assert_eq!(said.matches(&file.display().to_string()).count(), 2, "said once, and at the end: {said}");
}
