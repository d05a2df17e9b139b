//! A run's outcome as text and as JSON.

use std::fmt::Write;

use publisher::pace::Pace;
use serde_json::{Value, json};

use crate::run::RunReport;
use crate::spec::{Feed, Percentiles};
use crate::verdict::{Limit, Verdict, duration, judge};

/// Several runs, judged against one limit.
pub struct Summary {
    limit: Limit,
    runs: Vec<(RunReport, Verdict)>,
}

impl Summary {
    /// Judges `runs`.
    pub fn new(runs: Vec<RunReport>, limit: Limit) -> Summary {
        let runs = runs
            .into_iter()
            .map(|run| {
                let verdict = judge(&run, limit);
                (run, verdict)
            })
            .collect();
        Summary { limit, runs }
    }

    /// Whether every run's books agree and its loss is explained: what a run must do whatever the machine is like.
    pub fn is_sound(&self) -> bool {
        self.runs
            .iter()
            .all(|(run, verdict)| verdict.digests_agree && verdict.loss_explained && run.publisher.error.is_none())
    }

    /// The runs and what became of them.
    pub fn runs(&self) -> &[(RunReport, Verdict)] {
        &self.runs
    }

    /// As JSON: counts in lines, the top level summing transports.
    pub fn json(&self) -> Value {
        let sum = |of: fn(&RunReport) -> u64| self.runs.iter().map(|(run, _)| of(run)).sum::<u64>();
        let transports: serde_json::Map<String, Value> = self
            .runs
            .iter()
            .map(|(run, verdict)| (run.spec.transport.name().to_string(), self.transport_json(run, verdict)))
            .collect();
        json!({
            "published": sum(|run| run.publisher.published),
            "delivered": sum(|run| run.subscriber.delivered),
            "lost_named": sum(|run| run.subscriber.lost),
            "digests_agree": !self.runs.is_empty() && self.runs.iter().all(|(_, verdict)| verdict.digests_agree),
            "transports": transports,
        })
    }

    fn transport_json(&self, run: &RunReport, verdict: &Verdict) -> Value {
        let (publisher, subscriber) = (&run.publisher, &run.subscriber);
        let flat_out = run.spec.pace == Pace::Max;
        let unless_flat_out = |value: Percentiles| if flat_out { Value::Null } else { json!(value) };
        json!({
            "published": publisher.published,
            "delivered": subscriber.delivered,
            "lost_named": subscriber.lost,
            "latency_from_intended_ns": unless_flat_out(subscriber.visible_from_intended),
            "event_complete_from_intended_ns": unless_flat_out(subscriber.complete_from_intended),
            "latency_from_actual_ns": subscriber.visible_from_actual,
            "sender_lag_ns": unless_flat_out(publisher.lag),
            "valid": verdict.valid,
            "invalid_because": verdict.reasons,
            "limit_p999_ns": self.limit.p999_ns,
            "limit_met": verdict.met,
            "digests_agree": verdict.digests_agree,
            "digests_compared": subscriber.digests_compared,
            "loss_explained": verdict.loss_explained,
            "messages": publisher.messages,
            "events": subscriber.events,
            "instruments": subscriber.instruments,
            "gaps": subscriber.gaps,
            "rate_planned_per_s": rate(publisher.messages, publisher.planned_ns),
            "rate_actual_per_s": rate(publisher.messages, publisher.took_ns),
            "jitter_p999_ns": {"publisher": publisher.jitter_p999_ns, "subscriber": subscriber.jitter_p999_ns},
            "off_core_ns": {"publisher": publisher.off_core_ns, "subscriber": subscriber.off_core_ns},
            "clock_drift_ns": publisher.clock_drift_ns,
            "refused_messages": publisher.refused,
            "unknown_orders": publisher.unknown_orders,
            "suspect_books": publisher.suspect_books,
            "holes_filled": subscriber.holes_filled,
            "lines_filled": subscriber.lines_filled,
            "paths": subscriber.paths,
            "kernel_drops": subscriber.kernel_drops,
            "refused_packets": subscriber.refused_packets,
            "feed_error": publisher.error,
            "stopped": publisher.stopped,
            "taken": taken(run),
            "notes": run.notes,
        })
    }

    /// As text: validity first, then the table, then how it was taken.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for (run, verdict) in &self.runs {
            let name = run.spec.transport.name();
            let _ = match verdict.valid {
                Some(true) => writeln!(out, "{name}: VALID"),
                Some(false) => writeln!(out, "{name}: INVALID, its latencies claim nothing"),
                None => writeln!(out, "{name}: flat out: there is no intended time, so no latency is claimed"),
            };
            let lead = if verdict.valid.is_some() { "because" } else { "but" };
            for reason in &verdict.reasons {
                let _ = writeln!(out, "  {lead} {reason}");
            }
            if run.publisher.stopped {
                let _ = writeln!(out, "  stopped as asked, after {} messages", run.publisher.messages);
            }
            if let Some(met) = verdict.met {
                let _ = writeln!(
                    out,
                    "  limit {}: p99.9 from intended at most {}, measured {}",
                    if met { "met" } else { "BROKEN" },
                    duration(self.limit.p999_ns),
                    duration(run.subscriber.visible_from_intended.p999)
                );
            }
        }
        let _ = writeln!(
            out,
            "\n{:<7} {:<36} {:>10} {:>10} {:>10} {:>10} {:>11}",
            "", "latency", "p50", "p99", "p99.9", "max", "samples"
        );
        for (run, _) in &self.runs {
            let subscriber = &run.subscriber;
            let mut rows = vec![("line visible, from actual hand-over", &subscriber.visible_from_actual)];
            if run.spec.pace != Pace::Max {
                rows.insert(0, ("line visible, from intended", &subscriber.visible_from_intended));
                rows.insert(1, ("event complete, from intended", &subscriber.complete_from_intended));
                rows.push(("sender behind its plan", &run.publisher.lag));
            }
            for (what, p) in rows.into_iter().filter(|(_, p)| p.count > 0) {
                let _ = writeln!(
                    out,
                    "{:<7} {what:<36} {:>10} {:>10} {:>10} {:>10} {:>11}",
                    run.spec.transport.name(),
                    duration(p.p50),
                    duration(p.p99),
                    duration(p.p999),
                    duration(p.max),
                    p.count
                );
            }
        }
        let _ = writeln!(out);
        for (run, verdict) in &self.runs {
            let (publisher, subscriber) = (&run.publisher, &run.subscriber);
            let name = run.spec.transport.name();
            let _ = writeln!(
                out,
                "{name}: {} messages became {} lines; {} delivered, {} named as lost in {} gaps, {}",
                publisher.messages,
                publisher.published,
                subscriber.delivered,
                subscriber.lost,
                subscriber.gaps,
                if verdict.loss_explained { "nothing unaccounted for" } else { "NOT ALL ACCOUNTED FOR" }
            );
            let _ = writeln!(
                out,
                "{name}: books of {} instruments: {} digests compared, {}",
                subscriber.instruments,
                subscriber.digests_compared,
                match subscriber.digests_disagreed {
                    0 if subscriber.digests_compared > 0 => "all agree".to_string(),
                    0 => "so nothing is proved".to_string(),
                    n => format!("{n} DISAGREE"),
                }
            );
            if subscriber.paths.len() > 1 {
                for path in &subscriber.paths {
                    let _ = writeln!(
                        out,
                        "{name}: {} was first with {} lines, and brought {} that another had brought already",
                        path.name, path.won, path.duplicates
                    );
                }
            }
            if subscriber.holes_filled > 0 {
                let _ = writeln!(
                    out,
                    "{name}: {} lines missing in {} holes came in time by another way, or late",
                    subscriber.lines_filled, subscriber.holes_filled
                );
            }
            if publisher.refused + publisher.unknown_orders + publisher.suspect_books > 0 {
                let _ = writeln!(
                    out,
                    "{name}: the venue's feed: {} messages refused, {} naming an unknown order, {} books became Suspect",
                    publisher.refused, publisher.unknown_orders, publisher.suspect_books
                );
            }
            if subscriber.kernel_drops + subscriber.refused_packets + publisher.send_drops > 0 {
                let _ = writeln!(
                    out,
                    "{name}: {} datagrams dropped by the kernel, {} refused, {} lines not taken by the sender's socket",
                    subscriber.kernel_drops, subscriber.refused_packets, publisher.send_drops
                );
            }
            let _ = writeln!(out, "{name}: taken {}", taken(run));
        }
        let mut told: Vec<&String> = Vec::new();
        for note in self.runs.iter().flat_map(|(run, _)| &run.notes) {
            if !told.contains(&note) {
                told.push(note);
                let _ = writeln!(out, "note: {note}");
            }
        }
        out
    }
}

/// How a number was taken: topology, load, clock.
fn taken(run: &RunReport) -> String {
    let spec = &run.spec;
    let feed = match &spec.feed {
        Feed::Generated { seed, symbols, .. } => format!("generated day of {symbols} symbols, seed {seed}"),
        Feed::File { path, .. } => format!("{}, {}", path.display(), run.date),
    };
    let pace = match spec.pace {
        Pace::Max => "flat out".into(),
        paced => format!("open loop, {paced}"),
    };
    let cores = match spec.cores {
        Some((publisher, subscriber)) => {
            format!("publisher on core {publisher}, subscriber on core {subscriber}, spinning")
        }
        None => "not pinned, yielding".into(),
    };
    let actual = rate(run.publisher.messages, run.publisher.took_ns)
        .map_or("no rate".into(), |rate| format!("{rate:.0} messages a second"));
    format!(
        "from {feed}; {pace} ({actual}); two processes (pids {} and {}), {cores}; idle jitter p99.9 {} and {}; {}",
        run.pids.0,
        run.pids.1,
        duration(run.publisher.jitter_p999_ns),
        duration(run.subscriber.jitter_p999_ns),
        clock(spec.clock.as_str(), run.publisher.clock_drift_ns)
    )
}

fn clock(parts: &str, drift_ns: i64) -> String {
    let source = if parts.starts_with("0,") { "time stamp counter" } else { "monotonic clock" };
    format!("{source}, one calibration for both, {drift_ns} ns off at the end")
}

fn rate(messages: u64, ns: u64) -> Option<f64> {
    (ns > 0).then(|| messages as f64 * 1e9 / ns as f64)
}
