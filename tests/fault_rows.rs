//! The table `tests/faults.md` names a test for every fault, and each of them exists.

#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The tests that a row names, as (file, test).
fn tests_of(row: &str) -> Vec<(String, String)> {
    row.split('`')
        .filter_map(|piece| piece.split_once("::"))
        .map(|(file, test)| (file.to_owned(), test.to_owned()))
        .collect()
}

#[test]
fn every_fault_of_the_table_has_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let table = fs::read_to_string(root.join("tests/faults.md")).expect("the table");
    let rows: Vec<&str> =
        table.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| fault ")).collect();
    assert_eq!(rows.len(), ROWS, "rows are not taken out");
    let mut faults = BTreeSet::new();
    for row in rows {
        let fault = row.split('|').nth(1).expect("a first column").trim();
        assert!(faults.insert(fault), "{fault:?} stands there twice");
        let tests = tests_of(row);
        assert!(!tests.is_empty(), "{fault:?} names no test");
        for (file, test) in tests {
            let source = fs::read_to_string(root.join(&file)).unwrap_or_else(|error| panic!("{file}: {error}"));
            let declared = format!("fn {test}(");
            let place = source.lines().position(|line| line.trim_start().starts_with(&declared));
            let place = place.unwrap_or_else(|| panic!("{fault:?}: there is no test {test} in {file}"));
            let above = source.lines().nth(place.wrapping_sub(1)).unwrap_or_default();
            assert_eq!(above.trim(), "#[test]", "{file}: {test} is no test");
        }
    }
}

/// Rows of all tables.
const ROWS: usize = 76;
