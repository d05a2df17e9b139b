//! An inspection as text and as JSON.

use std::fmt::Write;

use jiff::Timestamp;
use protocol::time::Nanos;
use publisher::itch::mold::{SessionStats, SideStats};
use publisher::venue::plain_name;
use serde_json::{Map, Value, json};

use super::{EventEnds, Inspection, Seen};

impl Inspection {
    /// As JSON. Times are ns since 1970 (since midnight where there is no date); places are bytes of the uncompressed
    /// stream.
    pub fn json(&self) -> Value {
        let mut out = json!({
            "file": self.path,
            "more_files": self.more_files,
            "container": self.container,
            "packing": self.packing.to_string(),
            "bytes": self.bytes,
            "date": self.date.date().map(|date| date.to_string()),
            "complete": self.is_complete(),
            "stopped": self.stopped,
            "error": self.error.as_ref().map(ToString::to_string),
            "error_offset": self.error.as_ref().map(publisher::feed::FeedError::offset),
            "warning": self.warning.as_ref().map(ToString::to_string),
            "messages": self.messages,
            "by_type": self.by_name(self.by_type.iter().enumerate().map(|(at, count)| (at as u8, *count))),
            "empty_messages": self.empty_messages,
            "not_carried": self.by_name(self.not_carried.iter().map(|(message_type, count)| (*message_type, *count))),
            "lines": self.lines,
            "instruments": self.instruments,
            "implied_instruments": self.implied_instruments,
            "first_ts_event": self.first_ts_event.map(|time| time.0),
            "last_ts_event": self.last_ts_event.map(|time| time.0),
            "starts_mid_day": self.starts_mid_day,
            "sequence_gaps": self.gaps,
            "missing_messages": self.missing,
            "unknown_orders": self.unknown_orders,
            "over_cancels": self.over_cancels,
            "duplicate_orders": self.duplicate_orders,
            "crossed_event_ends": ends(self.crossed_event_ends),
            "locked_event_ends": ends(self.locked_event_ends),
        });
        let problems: Map<String, Value> = self
            .problems
            .iter()
            .map(|(problem, count, examples)| {
                let examples: Vec<Value> = examples.iter().map(seen).collect();
                (problem.key().into(), json!({"count": count, "first": examples}))
            })
            .collect();
        out["problems"] = problems.into();
        out["feeds"] = self.feeds().iter().map(feed).collect();
        if let Some(stats) = &self.mold {
            let skipped: Map<String, Value> =
                stats.skipped.iter().map(|(why, count)| (why.text(), (*count).into())).collect();
            out["capture"] = json!({
                "frames": stats.frames,
                "skipped_frames": skipped,
                "other_datagrams": stats.other_datagrams,
                "requests": stats.requests,
                "time_backwards": stats.time_backwards,
                "datagrams_of_further_sessions": stats.beyond,
            });
        }
        out
    }

    /// As text.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let packing = self.packing.suffix();
        let more = if self.more_files == 0 { String::new() } else { format!(" and {} more files", self.more_files) };
        let _ = writeln!(
            out,
            "{}{more}: {}{packing}, {} bytes, {}",
            self.path.display(),
            self.container,
            self.bytes,
            self.date
        );
        if self.starts_mid_day {
            let _ = writeln!(
                out,
                "it does not begin with the venue's start of day: books are built from what follows, and are Suspect"
            );
        }
        match (&self.error, &self.warning) {
            (Some(error), _) => {
                let _ = writeln!(out, "NOT WHOLE: {error}");
            }
            (None, Some(warning)) => {
                let _ = writeln!(out, "taken for its end, as asked: {warning}");
            }
            (None, None) => {}
        }
        if self.stopped {
            let _ = writeln!(out, "stopped as asked: what follows is what was found so far");
        }
        let range = match (self.first_ts_event, self.last_ts_event) {
            (Some(first), Some(last)) => format!(", from {} to {}", self.time(first), self.time(last)),
            _ => String::new(),
        };
        let _ = writeln!(
            out,
            "{} messages, {} lines, {} instruments{}{range}",
            self.messages,
            self.lines,
            self.instruments,
            match self.implied_instruments {
                0 => String::new(),
                implied => format!(" ({implied} without a directory message)"),
            }
        );
        for (at, count) in self.by_type.iter().enumerate().filter(|(_, count)| **count > 0) {
            let not_carried = match self.not_carried.get(&(at as u8)) {
                None => String::new(),
                Some(n) if n == count => "  not carried".into(),
                Some(n) => format!("  {n} not carried"),
            };
            let _ = writeln!(out, "{count:>14}  {}{not_carried}", self.name(at as u8));
        }
        for session in self.feeds() {
            feed_text(session, &mut out);
        }
        if let Some(stats) = &self.mold {
            let mut aside: Vec<String> =
                stats.skipped.iter().map(|(why, count)| format!("{count} {}", why.text())).collect();
            if stats.other_datagrams > 0 {
                aside.push(format!("{} datagrams of other protocols", stats.other_datagrams));
            }
            if stats.requests > 0 {
                aside.push(format!("{} requests for messages", stats.requests));
            }
            let aside = if aside.is_empty() { String::new() } else { format!("; left aside: {}", aside.join(", ")) };
            let _ = writeln!(out, "{} frames{aside}", stats.frames);
        }
        let mut any = false;
        for (problem, count, examples) in self.problems.iter() {
            any = true;
            let _ = writeln!(out, "{count:>14}  {}", problem.text());
            for seen in examples {
                let offset = seen.offset.map_or(String::new(), |offset| format!(" at offset {offset}"));
                let time = seen.time.map_or(String::new(), |time| format!(", {}", self.time(time)));
                let message = if seen.ordinal == 0 { String::new() } else { format!("message {}", seen.ordinal) };
                let _ = writeln!(out, "{:>16}{message}{offset}{time}: {}", "", seen.text);
            }
        }
        if !any {
            let _ = writeln!(out, "nothing is off");
        }
        out
    }

    /// What a type is called; none is unnamed that was counted by a venue.
    fn name(&self, message_type: u8) -> String {
        self.type_names.get(&message_type).cloned().unwrap_or_else(|| plain_name(message_type))
    }

    fn by_name(&self, counts: impl Iterator<Item = (u8, u64)>) -> Value {
        let map: Map<String, Value> = counts
            .filter(|(_, count)| *count > 0)
            .map(|(message_type, count)| (self.name(message_type), count.into()))
            .collect();
        map.into()
    }

    /// A time as people read it: UTC, or time of day where there is no date.
    fn time(&self, time: Nanos) -> String {
        if self.date.is_time_of_day() {
            let seconds = time.0 / 1_000_000_000;
            let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
            return format!("{hours:02}:{minutes:02}:{:02}.{:09}", seconds % 60, time.0 % 1_000_000_000);
        }
        match Timestamp::from_nanosecond(i128::from(time.0)) {
            Ok(timestamp) => timestamp.to_string(),
            Err(_) => format!("{} ns", time.0),
        }
    }
}

fn ends(ends: EventEnds) -> Value {
    json!({"while_trading": ends.while_trading, "other": ends.other})
}

fn seen(seen: &Seen) -> Value {
    json!({
        "message": seen.ordinal,
        "offset": seen.offset,
        "time": seen.time.map(|time| time.0),
        "what": seen.text,
    })
}

fn feed(session: &SessionStats) -> Value {
    let sides: Map<String, Value> = session
        .sides
        .iter()
        .enumerate()
        .map(|(at, side)| {
            let value = json!({
                "destination": side.destination.to_string(),
                "datagrams": side.datagrams,
                "messages": side.messages,
                "first_copies": side.first_copies,
                "heartbeats": side.heartbeats,
                "ends": side.ends,
                "gaps": side.gaps,
                "missing": side.missing,
            });
            (SideStats::letter(at).to_string(), value)
        })
        .collect();
    let counts = &session.counts;
    let gaps: Vec<Value> = session.gaps.iter().map(|gap| json!({"first": gap.first, "count": gap.count})).collect();
    json!({
        "session": session.session.to_string(),
        "messages": counts.delivered + session.unsequenced,
        "duplicates": counts.duplicates,
        "differing": counts.differing,
        "late": counts.late,
        "before_start": counts.before_start,
        "gaps": counts.gaps,
        "missing": counts.missing,
        "first_gaps": gaps,
        "first_sequence": session.first_sequence,
        "next_sequence": session.next_sequence,
        "unsequenced": session.unsequenced,
        "superseded": session.superseded,
        "short_datagrams": session.short_datagrams,
        "left_over_bytes": session.left_over_bytes,
        "ended": session.ended,
        "first_capture": session.first_capture.map(|time| time.0),
        "last_capture": session.last_capture.map(|time| time.0),
        "sides": sides,
    })
}

fn feed_text(session: &SessionStats, out: &mut String) {
    let counts = &session.counts;
    let range = match (session.first_sequence, session.next_sequence) {
        (Some(first), Some(next)) => format!(", numbers {first} to {}", next - 1),
        _ => String::new(),
    };
    let _ = writeln!(
        out,
        "session {}: {} messages{range}, {} further copies, {} missing in {} gaps{}",
        session.session,
        counts.delivered + session.unsequenced,
        counts.duplicates,
        counts.missing,
        counts.gaps,
        if session.ended { ", ended" } else { "" }
    );
    if session.unsequenced > 0 {
        let _ =
            writeln!(out, "    {} messages have no number, and are delivered where they stand", session.unsequenced);
    }
    for (at, side) in session.sides.iter().enumerate() {
        let _ = writeln!(
            out,
            "    line {} to {}: {} messages in {} datagrams ({} heartbeats), {} first copies, {} missing in {} gaps",
            SideStats::letter(at),
            side.destination,
            side.messages,
            side.datagrams,
            side.heartbeats,
            side.first_copies,
            side.missing,
            side.gaps
        );
    }
}
