//! The numbers of README.md, written from what was measured: nobody types one.
//!
//! README.md has blocks between `<!-- numbers: NAME -->` and `<!-- numbers: end -->`. The binary `numbers` runs what
//! measures, and puts here what came of it, with date, machine and compiler, and with what makes a run invalid said first.

use std::fmt::Write;

use serde_json::Value;

/// A block of README.md.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Block {
    /// Core to core and through UDP, beside the machine's limits.
    Latency,
    /// Flat out.
    Throughput,
    /// What is lost, who comes late, who stands still.
    Recovery,
    /// Instructions of the hot path's pieces.
    Instructions,
    /// What the demo prints.
    Demo,
}

impl Block {
    /// Every block.
    pub const ALL: [Block; 5] = [Block::Latency, Block::Throughput, Block::Recovery, Block::Instructions, Block::Demo];

    /// Its name in the markers.
    pub const fn name(self) -> &'static str {
        match self {
            Block::Latency => "latency",
            Block::Throughput => "throughput",
            Block::Recovery => "recovery",
            Block::Instructions => "instructions",
            Block::Demo => "demo",
        }
    }
}

/// Why numbers cannot be written.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NumbersError {
    /// The markers of a block are missing, or in the wrong order.
    #[error("there is no block between <!-- numbers: {name} --> and <!-- numbers: end -->")]
    NoBlock {
        /// Its name.
        name: &'static str,
    },
    /// What was measured lacks something.
    #[error("the measurement has no {what}")]
    Missing {
        /// What.
        what: String,
    },
}

/// When and by what compiler.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Taken {
    /// `YYYY-MM-DD`, UTC.
    pub date: String,
    /// Such as `rustc 1.95.0`.
    pub compiler: String,
}

const END: &str = "<!-- numbers: end -->";

/// `text` with `body` in the place of what the block holds.
///
/// # Errors
/// [`NumbersError::NoBlock`].
pub fn put(text: &str, block: Block, body: &str) -> Result<String, NumbersError> {
    let no_block = NumbersError::NoBlock { name: block.name() };
    let begin = format!("<!-- numbers: {} -->\n", block.name());
    let (before, rest) = text.split_once(&begin).ok_or(no_block.clone())?;
    let (old, after) = rest.split_once(END).ok_or(no_block.clone())?;
    if old.contains("<!-- numbers: ") {
        return Err(no_block);
    }
    Ok(format!("{before}{begin}{}\n{END}{after}", body.trim_end()))
}

/// What makes a measurement invalid; empty if nothing does.
pub fn reasons(report: &Value) -> Vec<String> {
    let reasons = report["reasons"].as_array().into_iter().flatten();
    let said: Vec<String> = reasons.filter_map(Value::as_str).map(str::to_owned).collect();
    match report["valid"].as_bool() {
        Some(true) => Vec::new(),
        _ if said.is_empty() => vec!["it does not say that it is valid".to_owned()],
        _ => said,
    }
}

/// The table of `hop --json`.
///
/// # Errors
/// [`NumbersError::Missing`].
pub fn latency(hop: &Value, taken: &Taken) -> Result<String, NumbersError> {
    const ROWS: [(&str, &str, Option<&str>); 6] = [
        ("bare hot word", "bare hand-over of one hot word: the machine's limit", None),
        ("bare hot line of 8", "bare hand-over of eight words of one line", None),
        ("ring", "the ring: seal, put, flush; poll, verify", Some("bare hot word")),
        ("subscriber", "the subscriber: ring, arbiter, book, callback at the end of the event", Some("bare hot word")),
        ("bare UDP", "bare UDP on loopback (paced 10 to 20 us)", None),
        ("UDP lane", "the UDP lane, against bare UDP", Some("bare UDP")),
    ];
    let mut out = head(hop, taken)?;
    out.push_str(
        "| one line, one way, writer and reader pinned, paced 1 to 2 us apart | p50 | p99 | ratio p50 | ratio p99 |\n",
    );
    out.push_str("|---|---|---|---|---|\n");
    for (name, words, bare) in ROWS {
        let row = find(hop, "rows", |row| row["name"] == name, name)?;
        let at = |place: usize| number(&row["of_slices"][place], name).map(duration);
        let ratio = |place: usize| -> Result<String, NumbersError> {
            let Some(bare) = bare else { return Ok(String::new()) };
            let compared =
                find(hop, "compared", |row| row["subject"] == name && row["bare"] == bare, "such comparison")?;
            number(&compared["all"][place]["median"], "ratio").map(|ratio| format!("{ratio:.2}"))
        };
        // Writing to a string cannot fail.
        let _ = writeln!(out, "| {words} | {} | {} | {} | {} |", at(0)?, at(1)?, ratio(0)?, ratio(1)?);
    }
    Ok(out)
}

/// The sentences of `flow --json`.
///
/// # Errors
/// [`NumbersError::Missing`].
pub fn throughput(flow: &Value, taken: &Taken) -> Result<String, NumbersError> {
    let mut out = head(flow, taken)?;
    out.push_str("| flat out | a second |\n|---|---|\n");
    if flow["ring_lines_per_second"].is_object() {
        for (key, words) in [
            ("ring_lines_per_second", "lines from core to core through the ring, none missed"),
            ("bare_lines_per_second", "the same bytes by a bare copy, unsealed and unchecked"),
        ] {
            let rate = number(&flow[key]["median"], key)?;
            // Writing to a string cannot fail.
            let _ = writeln!(out, "| {words} | {:.1} million |", rate / 1e6);
        }
    }
    let best = number(&flow["best_messages_per_second"], "best_messages_per_second")?;
    let runs = flow["pipeline"].as_array().map_or(0, Vec::len);
    let _ = writeln!(
        out,
        "| ITCH messages through the whole pipeline on one core (frame, decode, normalise, books, digests, put, flush), best of \
         {runs} | {:.2} million |",
        best / 1e6
    );
    Ok(out)
}

/// The table of `heal --json`.
///
/// # Errors
/// [`NumbersError::Missing`].
pub fn recovery(heal: &Value, taken: &Taken) -> Result<String, NumbersError> {
    let mut out = head(heal, taken)?;
    let (lost, late, still) = (&heal["lost_packet_ns"], &heal["late_join"], &heal["standing_still"]);
    let crowded = match heal["oversubscribed"].as_bool() {
        Some(true) => " (three busy threads on fewer cores: nothing is claimed)",
        _ => "",
    };
    let at = |key: &str| number(&lost[key], key).map(duration);
    out.push_str("| recovery over loopback, server and subscriber in one process | |\n|---|---|\n");
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "| a lost packet is missed for (200 us of hedge time and up to 100 us of jitter included; {} packets) | p50 {}, p99 {} |",
        number(&lost["count"], "count")?,
        at("p50")?,
        at("p99")?
    );
    let _ = writeln!(
        out,
        "| a late joiner has valid books of {} instruments, while {:.0} lines a second are published{crowded} | after {:.0} ms |",
        number(&late["instruments"], "instruments")?,
        number(&late["lines_per_second"], "lines_per_second")?,
        number(&late["valid_after_ns"], "valid_after_ns")? / 1e6
    );
    let pairs = still["slices"].as_array().map_or(0, Vec::len);
    let _ = writeln!(
        out,
        "| messages a second, flat out, beside a subscriber that asks for every book and stands still, and without it (medians of \
         {pairs} interleaved pairs) | {:.2} and {:.2} million, ratio {:.3} |",
        number(&still["with"], "with")? / 1e6,
        number(&still["without"], "without")? / 1e6,
        number(&still["ratio"], "ratio")?
    );
    Ok(out)
}

/// A table of instruction counts: by piece, instructions of one operation.
pub fn instructions<'a>(counts: impl Iterator<Item = (&'a str, f64)>, key: &str, taken: &Taken) -> String {
    let mut out = format!("Counted on {} with {key}.\n\n| piece | instructions |\n|---|---|\n", taken.date);
    for (name, count) in counts {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "| {} | {count:.0} |", name.replace('_', " "));
    }
    out
}

/// What the demo printed from its first verdict on, folded to the width of a page.
///
/// # Errors
/// [`NumbersError::Missing`], if there is no verdict in it.
pub fn demo(printed: &str, machine: &str, taken: &Taken) -> Result<String, NumbersError> {
    const WIDTH: usize = 120;
    let missing = || NumbersError::Missing { what: "verdict".to_owned() };
    let begin = printed.find("\n\n").ok_or_else(missing)?;
    let verdicts = printed[begin..].trim_matches('\n');
    if !verdicts.contains("VALID") {
        return Err(missing());
    }
    let mut out = format!("Run on {}, {machine}:\n\n```text\n", taken.date);
    for line in verdicts.lines() {
        let indent = line.len() - line.trim_start().len() + 2;
        let mut rest = line.to_owned();
        while rest.chars().count() > WIDTH {
            let room = rest.char_indices().nth(WIDTH).map_or(rest.len(), |(at, _)| at);
            let Some(space) = rest[..room].rfind(' ').filter(|space| *space > indent) else { break };
            let next = format!("{:indent$}{}", "", rest[space..].trim_start());
            out.push_str(rest[..space].trim_end());
            out.push('\n');
            rest = next;
        }
        out.push_str(rest.trim_end());
        out.push('\n');
    }
    out.push_str("```\n");
    Ok(out)
}

/// Validity first, then when and where.
fn head(report: &Value, taken: &Taken) -> Result<String, NumbersError> {
    let reasons = reasons(report);
    let verdict = match reasons.is_empty() {
        true => "The run called itself VALID.".to_owned(),
        false => format!("**INVALID, nothing is claimed**: {}.", reasons.join("; ")),
    };
    Ok(format!("{verdict} Taken on {} on {}, {}.\n\n", taken.date, machine(&report["machine"])?, taken.compiler))
}

/// The machine in words, from a report's own account of it.
///
/// # Errors
/// [`NumbersError::Missing`].
pub fn machine(machine: &Value) -> Result<String, NumbersError> {
    let text =
        |key: &str| machine[key].as_str().ok_or_else(|| NumbersError::Missing { what: format!("machine: {key}") });
    let cores = machine["cores"].as_array().map_or(0, Vec::len);
    let kind = if machine["is_virtual"] == true { "of a virtual machine" } else { "" };
    let words = format!("{}, {cores} cores {kind}", text("processor")?);
    Ok(format!("{}, Linux {}", words.trim_end(), text("kernel")?))
}

fn find<'a>(
    report: &'a Value,
    list: &str,
    wanted: impl Fn(&Value) -> bool,
    what: &str,
) -> Result<&'a Value, NumbersError> {
    let rows = report[list].as_array().into_iter().flatten();
    rows.into_iter().find(|row| wanted(row)).ok_or_else(|| NumbersError::Missing { what: format!("{what} in {list}") })
}

fn number(value: &Value, what: &str) -> Result<f64, NumbersError> {
    value.as_f64().ok_or_else(|| NumbersError::Missing { what: format!("number for {what}") })
}

fn duration(ns: f64) -> String {
    if ns < 1_000.0 { format!("{ns:.0} ns") } else { format!("{:.2} us", ns / 1_000.0) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn taken() -> Taken {
        Taken { date: "2026-11-30".to_owned(), compiler: "rustc 1.95.0".to_owned() }
    }

    fn hop(valid: bool) -> Value {
        let rows: Vec<Value> = ["bare hot word", "bare hot line of 8", "ring", "subscriber", "bare UDP", "UDP lane"]
            .into_iter()
            .zip([47.0, 50.0, 59.4, 102.0, 2690.0, 3130.0])
            .map(|(name, p50)| json!({"name": name, "of_slices": [p50, 2.0 * p50, 3.0 * p50]}))
            .collect();
        let compared: Vec<Value> =
            [("ring", "bare hot word", 1.28), ("subscriber", "bare hot word", 2.18), ("UDP lane", "bare UDP", 1.16)]
                .into_iter()
                .map(|(subject, bare, ratio)| {
                    json!({"subject": subject, "bare": bare, "all": [{"median": ratio}, {"median": 2.0 * ratio}, null]})
                })
                .collect();
        let machine = json!({"processor": "A Processor", "is_virtual": true, "cores": [0, 1], "kernel": "6.18"});
        let reasons: &[&str] = if valid { &[] } else { &["oversubscribed", "12 rounds"] };
        json!({"valid": valid, "reasons": reasons, "machine": machine, "rows": rows, "compared": compared})
    }

    #[test]
    fn a_block_is_replaced_and_nothing_beside_it() {
        let text = "before\n<!-- numbers: latency -->\nold\n<!-- numbers: end -->\nafter\n<!-- numbers: demo -->\n<!-- numbers: end -->\n";
        let new = put(text, Block::Latency, "new\n\n").expect("a block");
        assert_eq!(new, text.replace("old", "new"));
        // Again: the same.
        assert_eq!(put(&new, Block::Latency, "new").as_deref(), Ok(new.as_str()));
        assert!(put(text, Block::Throughput, "new").is_err());
        let broken = "<!-- numbers: latency -->\n<!-- numbers: demo -->\n<!-- numbers: end -->\n";
        assert!(put(broken, Block::Latency, "new").is_err());
    }

    #[test]
    fn the_latency_table_has_medians_and_ratios_and_says_whether_to_believe_it() {
        let table = latency(&hop(true), &taken()).expect("all is there");
        assert!(table.starts_with(
            "The run called itself VALID. Taken on 2026-11-30 on A Processor, 2 cores of a virtual machine, Linux 6.18, rustc 1.95.0."
        ));
        assert!(
            table.contains("| the ring: seal, put, flush; poll, verify | 59 ns | 119 ns | 1.28 | 2.56 |"),
            "{table}"
        );
        assert!(table.contains("| bare UDP on loopback (paced 10 to 20 us) | 2.69 us | 5.38 us |  |  |"), "{table}");
        let table = latency(&hop(false), &taken()).expect("all is there");
        assert!(table.starts_with("**INVALID, nothing is claimed**: oversubscribed; 12 rounds."), "{table}");
        let mut short = hop(true);
        short["rows"].as_array_mut().expect("rows").pop();
        assert_eq!(latency(&short, &taken()), Err(NumbersError::Missing { what: "UDP lane in rows".to_owned() }));
    }

    #[test]
    fn throughput_says_best_of_how_many() {
        let mut flow = hop(true);
        flow["ring_lines_per_second"] = json!({"median": 61_230_000.0});
        flow["bare_lines_per_second"] = json!({"median": 150_000_000.0});
        flow["best_messages_per_second"] = json!(5_120_000.0);
        flow["pipeline"] = json!([{}, {}, {}, {}, {}]);
        let text = throughput(&flow, &taken()).expect("all is there");
        assert!(text.contains("61.2 million") && text.contains("best of 5 | 5.12 million"), "{text}");
    }

    #[test]
    fn the_recovery_table_has_its_three_rows_and_says_where_cores_are_too_few() {
        let mut heal = hop(true);
        heal["lost_packet_ns"] = json!({"p50": 310_000, "p99": 1_250_000, "max": 9_000_000, "count": 2000});
        heal["late_join"] = json!({"instruments": 10_000, "valid_after_ns": 41_600_000, "lines_per_second": 121_904});
        heal["standing_still"] = json!({"slices": [[1, 2], [3, 4]], "with": 6.98e6, "without": 7.02e6, "ratio": 0.994});
        let table = recovery(&heal, &taken()).expect("all is there");
        for part in [
            "2000 packets) | p50 310.00 us, p99 1250.00 us |",
            "10000 instruments, while 121904 lines a second are published | after 42 ms |",
            "2 interleaved pairs) | 6.98 and 7.02 million, ratio 0.994 |",
        ] {
            assert!(table.contains(part), "{part} in {table}");
        }
        heal["oversubscribed"] = json!(true);
        assert!(recovery(&heal, &taken()).expect("all is there").contains("nothing is claimed) | after"));
        heal["late_join"] = json!({});
        assert!(recovery(&heal, &taken()).is_err());
    }

    #[test]
    fn the_demo_is_shown_from_its_verdict_on_and_folded() {
        let printed = format!("A generated day\nshm: pid 1\n\nshm: VALID\n  {}\n", "word ".repeat(40));
        let text = demo(&printed, "A Processor", &taken()).expect("a verdict");
        assert!(text.starts_with("Run on 2026-11-30, A Processor:\n\n```text\nshm: VALID\n  word"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 120) && text.contains("\n    word"), "{text}");
        assert!(demo("no verdict\n\nat all", "", &taken()).is_err());
    }

    #[test]
    fn the_readme_has_every_block() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md");
        let text = std::fs::read_to_string(path).expect("README.md");
        for block in Block::ALL {
            assert!(put(&text, block, "").is_ok(), "{}", block.name());
        }
    }
}
