//! Without a terminal: one line a second, and a summary at the end.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use protocol::pair::Split;
use serde_json::json;
use subscriber::BookState;

use super::poll::Board;
use super::view::{Pulse, View, grouped};
use super::{Arguments, way};

/// Says a line a second until the polling is over, or nobody listens any more.
pub(crate) fn show(arguments: &Arguments, board: &Board, stop: &AtomicBool) {
    let mut out = Out { to_error: arguments.json };
    let mut next = Instant::now();
    let mut waited_for = String::new();
    // Relaxed: the flags carry nothing but themselves.
    while !board.over.load(Ordering::Relaxed) && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(20));
        if Instant::now() < next {
            continue;
        }
        let Some(view) = board.take() else { continue };
        let said = if view.pulse == Pulse::Waiting {
            // Said once, and again when what is known of it changes.
            if waited_for == view.waiting_for {
                continue;
            }
            waited_for.clone_from(&view.waiting_for);
            out.say(&format!("waiting for channel '{}' … {}", arguments.channel, view.waiting_for))
        } else {
            next = Instant::now() + Duration::from_secs(1);
            out.say(&line(&view))
        };
        if said.is_err() {
            return;
        }
    }
}

struct Out {
    to_error: bool,
}

impl Out {
    fn say(&mut self, text: &str) -> io::Result<()> {
        if self.to_error { writeln!(io::stderr(), "{text}") } else { writeln!(io::stdout(), "{text}") }
    }
}

fn time_of_day(view: &View) -> String {
    let seconds = view.now.0 / 1_000_000_000 % 86_400;
    format!("{:02}:{:02}:{:02}Z", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// One line: the channel, then the most active instrument.
fn line(view: &View) -> String {
    let totals = &view.totals;
    let mut text = format!(
        "{} {} | {}/s, {} lines, lag {} | lost {} in {} gaps | digests {} agreed, {} disagreed | {}",
        time_of_day(view),
        pulse(view),
        grouped(view.rate.round() as u64),
        grouped(totals.delivered),
        grouped(view.lag),
        grouped(totals.lost),
        grouped(totals.gaps),
        grouped(totals.digests_agreed),
        grouped(totals.digests_disagreed),
        states(view)
    );
    if let Some(split) = view.last_split {
        text += &format!(" | {}", split_text(split));
    }
    if let Some(row) = view.rows.first() {
        let side = |level: Option<subscriber::Level>| {
            level.map_or("-".into(), |level| format!("{} @ {}", grouped(level.size), row.price(level.price)))
        };
        let doubt = if row.state == BookState::Live { String::new() } else { format!(" ({:?})", row.state) };
        text += &format!(" | {}{doubt} {} | {}", row.symbol, side(row.bbo.bid), side(row.bbo.ask));
    }
    text
}

/// Epoch and sequence, or what else is to be said of the channel.
pub(crate) fn pulse(view: &View) -> String {
    let at = view.next.map_or(String::new(), |next| format!("{}:{}", next.epoch().0, next.sequence().0));
    match view.pulse {
        Pulse::Waiting => "waiting".into(),
        Pulse::Running => at,
        Pulse::Silent => {
            format!("{at} SILENT for {:.1} s", view.silence_ns.unwrap_or(0) as f64 / 1e9)
        }
        Pulse::Ended => format!("{at} ended"),
    }
}

/// What became of a pair of publishers that do not say the same.
pub(crate) fn split_text(split: Split) -> String {
    format!("SPLIT at {}: lane {} is withdrawn", split.at, split.withdrawn.0)
}

/// How many books are in which state, leaving out those that none is in.
pub(crate) fn states(view: &View) -> String {
    let states = &view.states;
    let parts: Vec<String> = [
        (states.live, "Live"),
        (states.suspect, "Suspect"),
        (states.stale, "Stale"),
        (states.snapshotting, "Snapshotting"),
        (states.unknown, "Unknown"),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, name)| format!("{} {name}", grouped(count)))
    .collect();
    if parts.is_empty() { "no books".into() } else { parts.join(", ") }
}

/// What came of it all.
pub(crate) fn summarise(arguments: &Arguments, view: &View) {
    let mut out = Out { to_error: false };
    let totals = &view.totals;
    // Whoever closed the output wants no summary.
    if arguments.json {
        let paths: Vec<_> = view
            .paths
            .iter()
            .map(|path| json!({"what": path.what, "lines": path.lines, "trouble": path.trouble}))
            .collect();
        let won: Vec<_> = view
            .won
            .iter()
            .map(|(path, counts)| {
                json!({"lane": path.lane.0.get(), "carrier": path.carrier.name(), "won": counts.won,
                    "duplicates": counts.duplicates, "silences": counts.silences,
                    "withdrawn": counts.withdrawn})
            })
            .collect();
        let summary = json!({
            "won": won,
            "channel": arguments.channel,
            "way": way(arguments),
            "state": view.pulse,
            "epoch": view.next.map(|next| next.epoch().0),
            "next_sequence": view.next.map(|next| next.sequence().0),
            "split": view.last_split.map(|split| json!({"at": split.at.sequence().0, "kept": split.kept.0.get(),
                "withdrawn": split.withdrawn.0.get(), "tainted": split.is_tainted})),
            "session_ended": view.session_ended,
            "seconds": view.since_first_ns as f64 / 1e9,
            "totals": totals,
            "lag": view.lag,
            "books": view.states,
            "instruments": view.instruments,
            "paths": paths,
            "recovery_trouble": view.recovery_trouble,
            "longest_view_ns": view.longest_ns,
        });
        let _ = out.say(&summary.to_string());
        return;
    }
    if view.next.is_none() {
        let _ = out.say(&format!("nothing came: {}", view.waiting_for));
        return;
    }
    let ended = match view.pulse {
        Pulse::Ended => "the stream has ended",
        Pulse::Silent => "its publisher has fallen silent",
        Pulse::Waiting | Pulse::Running => "left while it ran",
    };
    let mut lines = vec![
        format!("channel '{}' by {}: {ended} at {}", arguments.channel, way(arguments), pulse_at(view)),
        format!(
            "  {} lines in {:.1} s, {} of them of instruments not asked for; {} events, {} trades",
            grouped(totals.delivered),
            view.since_first_ns as f64 / 1e9,
            grouped(totals.skipped),
            grouped(totals.events),
            grouped(totals.trades)
        ),
        format!(
            "  {} lines lost in {} gaps; {} changes of a book's state; {} new epochs, {} silences",
            grouped(totals.lost),
            grouped(totals.gaps),
            grouped(totals.state_changes),
            totals.epochs_begun,
            totals.silences
        ),
        format!(
            "  {} holes with {} lines were filled in time, by another path or a late packet",
            grouped(totals.holes_filled),
            grouped(totals.lines_filled)
        ),
        format!(
            "  digests: {} agreed, {} disagreed, {} made a Stale book Live again",
            grouped(totals.digests_agreed),
            grouped(totals.digests_disagreed),
            grouped(totals.digests_healed)
        ),
        format!("  books: {}", states(view)),
    ];
    if let Some(split) = view.last_split {
        lines.push(format!("  its publishers do not say the same: {}", split_text(split)));
    }
    if totals.nearly_full > 0 {
        lines.push("  its ring was nearly full: the publisher said so, and tracks it no more".to_owned());
    }
    if let Some(trouble) = &view.recovery_trouble {
        let trouble = if trouble.is_empty() { String::new() } else { format!("; {trouble}") };
        lines.push(format!(
            "  recovery: {} lines and {} snapshots for {} requests{trouble}",
            grouped(totals.lines_recovered),
            grouped(totals.snapshots),
            grouped(totals.recovery_requests)
        ));
    }
    for path in &view.paths {
        let trouble = if path.trouble.is_empty() { "no trouble" } else { &path.trouble };
        lines.push(format!("  {}: {} lines; {trouble}", path.what, grouped(path.lines)));
    }
    if view.won.len() > 1 {
        for (path, counts) in &view.won {
            lines.push(format!(
                "  {path} was first with {} lines, later than another with {}",
                grouped(counts.won),
                grouped(counts.duplicates)
            ));
        }
    }
    for line in lines {
        if out.say(&line).is_err() {
            return;
        }
    }
}

fn pulse_at(view: &View) -> String {
    view.next.map_or("no line".into(), |next| format!("epoch {}, sequence {}", next.epoch().0, next.sequence().0))
}
