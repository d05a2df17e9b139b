//! The commands `feeds-replay generate` and `feeds-replay book` end to end.

#![forbid(unsafe_code)]

use bookcast_tests::programs::{output, printed};
use serde_json::Value;

fn json(arguments: &[&str]) -> Value {
    let output = output("feeds-replay", arguments);
    assert!(output.status.success(), "{arguments:?}: {}", printed(&output));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", printed(&output)))
}

/// Runs what is to fail, and returns what it says.
fn refused(arguments: &[&str]) -> String {
    let output = output("feeds-replay", arguments);
    assert!(!output.status.success(), "{arguments:?}: {}", printed(&output));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_generated_day_has_the_book_that_is_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let day = folder.path().join("day.itch");
    let day = day.to_str().expect("text");
    let made = json(&["generate", day, "--messages", "20000", "--symbols", "10", "--json"]);
    assert_eq!((made["messages"].as_u64(), made["written"].as_u64()), (Some(20_000), Some(20_000)));
    assert_eq!(made["bytes"].as_u64(), Some(std::fs::metadata(day).expect("there").len()));
    assert_eq!(made["by_type"].as_object().map(|types| types.len()), Some(23));
    let windows: Vec<u64> =
        made["bursts"].as_array().expect("a list").iter().filter_map(|peak| peak["window_ns"].as_u64()).collect();
    assert_eq!(windows, [1_000_000_000, 1_000_000, 100_000, 10_000]);

    let book = json(&["book", day, "--date", "none", "--symbol", "ZAAA", "--at", "12:00:00", "--json"]);
    assert_eq!(book["state"], "Live");
    let mut orders = 0;
    for (side, best_first) in [("bids", -1.0), ("asks", 1.0)] {
        let levels = book[side].as_array().expect("levels");
        let price = |level: &Value| level["price"].as_str().expect("text").parse::<f64>().expect("a decimal");
        assert!(levels.windows(2).all(|pair| best_first * price(&pair[0]) < best_first * price(&pair[1])), "{side}");
        orders += levels.iter().filter_map(|level| level["orders"].as_u64()).sum::<u64>();
        assert!(levels.len() > 3 && levels.iter().all(|level| level["size"].as_u64() > Some(0)), "{side}: {levels:?}");
    }
    assert_eq!(book["resting_orders"].as_u64(), Some(orders));
    let shallow =
        json(&["book", day, "--date", "none", "--symbol", "ZAAA", "--at", "12:00:00", "--json", "--depth", "2"]);
    assert_eq!(shallow["bids"], Value::from(book["bids"].as_array().expect("levels")[..2].to_vec()));

    // With a date the same moment has a name in UTC too.
    let dated = ["book", day, "--date", "2019-12-30", "--symbol", "ZAAA", "--json", "--at"];
    let utc = json(&[&dated[..], &["2019-12-30T17:00:00Z"]].concat());
    assert_eq!((&utc["bids"], &utc["asks"]), (&book["bids"], &book["asks"]));

    assert!(refused(&["book", day, "--date", "none", "--symbol", "ZAA"]).contains("did you mean"));
    assert!(refused(&["book", day, "--date", "none", "--symbol", "ZAAA", "--at", "23:00:00"]).contains("last event"));
    assert!(refused(&["book", day, "--date", "none", "--symbol", "ZAAA", "--at", "noon"]).contains("RFC 3339"));
    assert!(refused(&["book", day, "--symbol", "ZAAA"]).contains("--date"));
    assert!(refused(&["book", day]).contains("--symbol"));
}

#[test]
fn two_captures_of_different_seeds_part_and_one_with_itself_does_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let [a, b] = ["a.itch", "b.itch"].map(|name| folder.path().join(name).to_str().expect("text").to_owned());
    for (file, gaps) in [(&a, "0"), (&b, "2")] {
        json(&["generate", file, "--messages", "10000", "--symbols", "5", "--gaps", gaps, "--json"]);
    }
    let same = json(&["book", "--diff", &a, &a, "--date", "none", "--json"]);
    assert_eq!((&same["agree"], same["parted"].as_array().map(Vec::len)), (&true.into(), Some(0)));
    let output = output("feeds-replay", &["book", "--diff", &a, &b, "--date", "none", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", printed(&output));
    let parted: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(parted["agree"], false);
    let first = &parted["parted"][0];
    assert!(first["symbol"].is_string() && first["first"]["exchange"].is_string(), "{first}");
}

#[test]
fn a_capture_in_packets_needs_no_more_than_its_ending_and_options_that_do_not_fit_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
    let small = ["--messages", "5000", "--symbols", "5", "--seconds", "30"];
    for (name, magic) in [("day.pcap", [0x4D, 0x3C, 0xB2, 0xA1]), ("day.pcapng", [0x0A, 0x0D, 0x0D, 0x0A])] {
        let file = path(name);
        let both = ["--both-lines", "--loss", "20000", "--gaps", "4", "--json"];
        let made = json(&[&["generate", file.as_str()][..], &small, &both].concat());
        assert!(made["lines"]["A"]["lost"].as_u64() > Some(10) && made["lines"]["B"]["lost"].as_u64() > Some(10));
        let gaps = made["gaps"].as_array().expect("a list");
        let lost: u64 = gaps.iter().filter_map(|gap| gap["count"].as_u64()).sum();
        assert_eq!((gaps.len(), made["written"].as_u64()), (4, Some(5_000 - lost)));
        assert_eq!(std::fs::read(&file).expect("there")[..4], magic);
        assert!(refused(&[&["generate", file.as_str()][..], &small].concat()).contains("--force"));
    }
    let plain = path("day.itch");
    for option in [&["--both-lines"][..], &["--microseconds"], &["--date", "2024-06-03"]] {
        let said = refused(&[&["generate", plain.as_str()][..], &small, option].concat());
        assert!(said.contains(option[0]) && said.contains(".pcap"), "{said}");
    }
    assert!(refused(&[&["generate", plain.as_str(), "--loss", "5"][..], &small].concat()).contains("--both-lines"));
    assert!(!std::path::Path::new(&plain).exists());
}

#[test]
fn a_capture_in_packets_has_the_same_books_as_the_plain_file_and_gaps_make_them_suspect() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
    let day = ["--messages", "10000", "--symbols", "5", "--seconds", "30", "--json"];
    let lines = ["--both-lines", "--loss", "10000", "--date", "2024-06-03"];
    let (plain, packets, gaps) = (path("day.itch"), path("day.pcapng"), path("gaps.pcap"));
    json(&[&["generate", plain.as_str()][..], &day].concat());
    let made = json(&[&["generate", packets.as_str()][..], &day, &lines].concat());
    assert!(made["lines"]["A"]["lost"].as_u64() > Some(0), "{made}");
    let made = json(&[&["generate", gaps.as_str(), "--gaps", "3"][..], &day, &lines].concat());
    let last_gap = made["gaps"][2]["first"].as_u64().expect("three gaps");

    let same = json(&["book", "--diff", &plain, &packets, "--date", "2024-06-03", "--json"]);
    assert_eq!((&same["agree"], &same["symbols"]), (&true.into(), &5.into()), "{same:#}");
    // Of a file with venue gaps the books are Suspect from the first on, and say so; before it they are the same.
    let book =
        |file: &str, at: &str| json(&["book", file, "--date", "2024-06-03", "--symbol", "ZAAA", "--at", at, "--json"]);
    let early = "09:29:59";
    let (whole, gappy) = (book(&packets, early), book(&gaps, early));
    assert_eq!((&whole["bids"], &whole["state"], &gappy["state"]), (&gappy["bids"], &"Live".into(), &"Live".into()));
    let end = json(&["book", &gaps, "--symbol", "ZAAA", "--json"]);
    assert_eq!(end["state"], "Suspect", "{end:#}");
    assert_eq!(end["starts_in_mid_day"], false);
    assert!(end["messages"].as_u64() > Some(last_gap), "{end:#}");
}
