//! `feeds-replay inspect` on recorded captures, where they are at hand: every file gives the counts of the table,
//! `tests/data/inspect.tsv`. The counts there were made by scripts that share nothing with this project.

#![forbid(unsafe_code)]

use bookcast_tests::data::data_file;
use bookcast_tests::programs::{output, printed};
use serde_json::Value;

/// One row; the table's own first lines say what its fields are.
struct Row<'a> {
    file: &'a str,
    arguments: &'a str,
    messages: u64,
    by_type: &'a str,
    instruments: u64,
    unknown_orders: u64,
    crossed: &'a str,
    missing: u64,
    error: &'a str,
}

fn rows() -> Vec<Row<'static>> {
    let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("{text:?} is no number"));
    include_str!("data/inspect.tsv")
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            let [file, arguments, messages, by_type, instruments, unknown_orders, crossed, missing, error] = fields[..]
            else {
                panic!("nine fields: {line:?}")
            };
            Row {
                file,
                arguments,
                messages: if messages == "-" { 0 } else { number(messages) },
                by_type,
                instruments: number(instruments),
                unknown_orders: number(unknown_orders),
                crossed,
                missing: number(missing),
                error,
            }
        })
        .collect()
}

#[test]
fn every_recorded_capture_gives_the_counts_of_the_table() {
    for row in rows() {
        let Some(path) = data_file(row.file, "every_recorded_capture_gives_the_counts_of_the_table") else { return };
        let path = path.to_str().expect("a path of ours");
        let mut arguments = vec!["inspect", path, "--json"];
        if row.arguments != "-" {
            arguments.extend(row.arguments.split(' '));
        }
        let output = output("feeds-replay", &arguments);
        let text = printed(&output);
        if row.by_type == "refused" {
            assert!(text.contains(row.error) && output.status.code() == Some(1), "{}: {text}", row.file);
            continue;
        }
        let found: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {text}"));
        let by_type = found["by_type"].as_object().expect("an object");
        let by_type: Vec<String> = by_type.iter().map(|(name, count)| format!("{name} {count}")).collect();
        assert_eq!(by_type.join(" "), row.by_type, "{}", row.file);
        for (key, expected) in [
            ("messages", row.messages),
            ("instruments", row.instruments),
            ("unknown_orders", row.unknown_orders),
            ("missing_messages", row.missing),
            ("over_cancels", 0),
            ("duplicate_orders", 0),
        ] {
            assert_eq!(found[key].as_u64(), Some(expected), "{}: {key}", row.file);
        }
        let crossed = &found["crossed_event_ends"];
        assert_eq!(format!("{}/{}", crossed["while_trading"], crossed["other"]), row.crossed, "{}", row.file);
        let error = found["error"].as_str();
        if row.error == "-" {
            assert_eq!((error, output.status.code()), (None, Some(0)), "{}", row.file);
        } else {
            assert!(error.is_some_and(|error| error.contains(row.error)), "{}: {error:?}", row.file);
            assert_eq!(output.status.code(), Some(1), "{}", row.file);
        }
    }
}

#[test]
fn every_file_of_the_folders_is_in_the_table() {
    let rows = rows();
    for folder in ["itch", "mold", "dbn", "iex", "cme"] {
        let first = rows.iter().find(|row| row.file.starts_with(folder)).expect("a row");
        let Some(path) = data_file(first.file, "every_file_of_the_folders_is_in_the_table") else { return };
        for entry in path.parent().expect("a folder").read_dir().expect("reads") {
            let name = format!("{folder}/{}", entry.expect("reads").file_name().to_string_lossy());
            if name.ends_with(".xml") {
                continue;
            }
            assert!(rows.iter().any(|row| row.file == name), "{name} has no row in tests/data/inspect.tsv");
        }
    }
}
