//! Checks the logs of a channel's participants, and says what they come to.
//!
//! The checking itself is [`protocol::log`]'s; here are the files, the text and the JSON.

pub mod command;

use std::io;
use std::path::{Path, PathBuf};

use protocol::line::Stamp;
use protocol::log::{Checker, History, LogSummary, Section};
use serde_json::{Value, json};

/// Problems that the text shows.
const SHOWN: usize = 20;

/// A log that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", .path.display())]
pub struct CheckError {
    /// Which.
    pub path: PathBuf,
    /// The system's cause.
    pub source: io::Error,
}

/// Reads the logs and checks their common history. With `lossless`, whatever was lost is wrong too.
///
/// # Errors
/// [`CheckError`].
pub fn check(paths: &[impl AsRef<Path>], lossless: bool) -> Result<History, CheckError> {
    let mut checker = if lossless { Checker::new().lossless() } else { Checker::new() };
    for path in paths.iter().map(AsRef::as_ref) {
        let bytes = std::fs::read(path).map_err(|source| CheckError { path: path.to_owned(), source })?;
        checker.add(&path.display().to_string(), &bytes);
    }
    Ok(checker.finish())
}

/// The history in words, verdict first.
pub fn text(history: &History) -> String {
    let (logs, totals) = (&history.logs, &history.totals);
    let verdict = match history.problems_total {
        0 => "SOUND: in order, exactly once or named".to_owned(),
        1 => "WRONG: 1 problem".to_owned(),
        problems => format!("WRONG: {problems} problems"),
    };
    let mut out = format!(
        "{verdict}\n  {} logs; {} of {} different lines held against another log, {} of {} book digests\n",
        logs.len(),
        totals.lines_compared,
        totals.lines,
        totals.digests_compared,
        totals.digests
    );
    for (channel, epoch) in &history.unpublished {
        out += &format!("  epoch {} of channel '{channel}' is in no publisher's log: not held against one\n", epoch.0);
    }
    for (number, log) in logs.iter().enumerate() {
        out += &format!("log {number}  {}{}\n", log.name, cut(log));
        for section in &log.sections {
            out += &format!("  {}\n", section_text(section));
        }
    }
    for problem in history.problems.iter().take(SHOWN) {
        let name = &logs[problem.log].name;
        out += &format!("{name}: at byte {}: {}\n", problem.offset, problem.wrong);
    }
    let hidden = history.problems_total.saturating_sub(SHOWN as u64);
    if hidden > 0 {
        out += &format!("and {hidden} more\n");
    }
    out
}

fn cut(log: &LogSummary) -> String {
    match (log.bytes, log.cut_bytes) {
        (0, _) => ": empty, cut off before it began".to_owned(),
        (_, 0) => String::new(),
        (_, bytes) => format!(": {bytes} bytes of an entry at its end, cut off while it was written"),
    }
}

fn section_text(section: &Section) -> String {
    let begin = &section.begin;
    let mut out = format!("{} of '{}', lane {}, pid {}: ", begin.role.name(), section.channel, begin.lane, begin.pid);
    let (Some(joined), Some(next)) = (section.joined, section.next) else {
        return out + "nothing came" + ending(section);
    };
    out += &format!("{joined} to before {next}, {} lines", section.lines);
    if section.gaps > 0 {
        let [lapped, unverified, missing] = section.lost;
        out += &format!(
            ", {} named as lost in {} gaps ({lapped} lapped, {unverified} unverified, {missing} missing)",
            section.lost_total(),
            section.gaps
        );
    }
    if section.epochs > 0 {
        out += &format!(", {} new epochs", section.epochs);
    }
    out += &format!(", {} book digests", section.digests);
    if section.unread > 0 {
        out += &format!(" and {} of books not to be read", section.unread);
    }
    if section.unlogged > 0 {
        out += &format!("; {} entries not logged for want of room", section.unlogged);
    }
    out + ending(section)
}

fn ending(section: &Section) -> &'static str {
    match (section.ended == section.next && section.ended.is_some(), section.closed) {
        (true, true) => "; to the stream's end",
        (false, true) => "; left while it ran",
        (true, false) => "; to the stream's end, then cut off",
        (false, false) => "; cut off",
    }
}

/// The history as JSON.
pub fn json(history: &History) -> Value {
    let logs: Vec<Value> = history.logs.iter().map(log_json).collect();
    let problems: Vec<Value> = history
        .problems
        .iter()
        .map(|problem| {
            let file = &history.logs[problem.log].name;
            json!({"log": problem.log, "file": file, "offset": problem.offset, "problem": problem.wrong.to_string()})
        })
        .collect();
    let totals = &history.totals;
    json!({
        "sound": history.is_sound(),
        "problems_total": history.problems_total,
        "problems": problems,
        "lines": totals.lines,
        "lines_compared": totals.lines_compared,
        "digests": totals.digests,
        "digests_compared": totals.digests_compared,
        "unpublished": history.unpublished.iter().map(|(channel, epoch)| json!({"channel": channel, "epoch": epoch.0})).collect::<Vec<Value>>(),
        "logs": logs,
    })
}

fn log_json(log: &LogSummary) -> Value {
    let parts: Vec<Value> = log.sections.iter().map(section_json).collect();
    json!({"file": log.name, "bytes": log.bytes, "cut_bytes": log.cut_bytes, "parts": parts})
}

fn section_json(section: &Section) -> Value {
    let at = |stamp: Option<Stamp>| stamp.map(|at| json!({"epoch": at.epoch().0, "sequence": at.sequence().0}));
    let [lapped, unverified, missing] = section.lost;
    json!({
        "role": section.begin.role.name(),
        "channel": section.channel,
        "lane": section.begin.lane,
        "pid": section.begin.pid,
        "begun_ns": section.begin.time_ns,
        "joined": at(section.joined),
        "next": at(section.next),
        "lines": section.lines,
        "gaps": section.gaps,
        "lost": {"lapped": lapped, "unverified": unverified, "missing": missing},
        "epochs_begun": section.epochs,
        "digests": section.digests,
        "digests_unread": section.unread,
        "unlogged": section.unlogged,
        "ended": at(section.ended),
        "closed": section.closed,
    })
}

#[cfg(test)]
mod tests {
    use protocol::line::{Epoch, SequenceNumber};
    use protocol::log::{Begin, Entry, Role};
    use protocol::run::LossCause;

    use super::*;

    fn at(sequence: u64) -> Stamp {
        Stamp::new(Epoch(2), SequenceNumber(sequence))
    }

    fn file(folder: &Path, name: &str, entries: &[Entry]) -> PathBuf {
        let begin = Begin { role: Role::Subscriber, lane: 0, pid: 7, time_ns: 9, name_len: 0 };
        let beginning = Entry::beginning(begin, "itch");
        let all = beginning.iter().chain(entries).zip(0..);
        let path = folder.join(name);
        std::fs::write(&path, all.flat_map(|(entry, number)| entry.seal(number)).collect::<Vec<u8>>()).expect("writes");
        path
    }

    #[test]
    fn a_report_says_what_came_what_was_lost_and_where_what_is_wrong_stands() {
        let folder = tempfile::tempdir().expect("a folder");
        let entries = [
            Entry::Joined { at: at(1) },
            Entry::Lines { first: at(1), count: 5, sum: 0 },
            Entry::Gap { first: at(6), count: 3, cause: LossCause::Missing },
            Entry::Ended { at: at(9) },
            Entry::Closed { at: at(9) },
        ];
        let sound = file(folder.path(), "sound.log", &entries);
        let cut = file(folder.path(), "cut.log", &entries[..3]);
        let bytes = std::fs::read(&cut).expect("reads");
        std::fs::write(&cut, &bytes[..bytes.len() - 1]).expect("writes");
        let history = check(&[&sound, &cut], false).expect("can be read");
        let words = text(&history);
        assert!(words.starts_with("SOUND"), "{words}");
        for part in [
            "subscriber of 'itch', lane 0, pid 7: 2:1 to before 2:9, 5 lines, 3 named as lost in 1 gaps (0 lapped, 0 unverified, \
             3 missing)",
            "; to the stream's end\n",
            "cut.log: 39 bytes of an entry at its end, cut off while it was written",
            "5 lines, 0 book digests; cut off\n",
        ] {
            assert!(words.contains(part), "no {part:?} in {words}");
        }
        let value = json(&history);
        assert_eq!((&value["sound"], &value["lines_compared"]), (&true.into(), &5.into()));
        assert_eq!(value["logs"][0]["parts"][0]["lost"]["missing"], 3);

        let wrong = file(folder.path(), "wrong.log", &[entries[0], entries[2], entries[4]]);
        let history = check(&[&sound, &wrong], false).expect("can be read");
        let words = text(&history);
        // Behind Begin, Name and Joined.
        let expected = "wrong.log: at byte 120: silent loss: 2:1 must come next, and 2:6 comes";
        assert!(words.starts_with("WRONG: 1 problem\n") && words.contains(expected), "{words}");
        assert_eq!(json(&history)["problems"][0]["offset"], 120);

        let history = check(&[&sound], true).expect("can be read");
        assert!(text(&history).contains("not lossless: 3 lines are named as lost"), "{}", text(&history));
        let missing = check(&[folder.path().join("missing.log")], false).expect_err("is not there").to_string();
        assert!(missing.contains("missing.log"), "{missing}");
    }
}
