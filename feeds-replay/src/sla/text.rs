//! An outcome as text: validity first, with numbers, then the verdict, then where the time went.

use std::fmt::Write;

use super::outcome::{CaseOutcome, Outcome};
use super::verdict::{Verdict, percentile_name};
use crate::verdict::duration;

/// The whole outcome.
pub fn text(outcome: &Outcome) -> String {
    let mut out = String::new();
    for case in &outcome.cases {
        verdict(&mut out, case);
    }
    for ramp in &outcome.ramps {
        let _ = writeln!(out, "{}: the highest load that keeps every limit", ramp.case);
        for step in &ramp.steps {
            let because = step.because.as_deref().unwrap_or("every limit kept");
            let _ = writeln!(out, "  {}: {}: {because}", step.pace, step.verdict.name());
        }
        let _ = match ramp.highest {
            Some(factor) => writeln!(out, "  {factor:.3} times the case's own load"),
            None => writeln!(out, "  none was found"),
        };
    }
    for case in &outcome.cases {
        let _ = writeln!(out);
        numbers(&mut out, case);
    }
    let _ = writeln!(out);
    let disclosure = &outcome.disclosure;
    for (path, hash) in &disclosure.captures {
        let _ = writeln!(
            out,
            "capture {path}{}",
            if hash.is_empty() { String::new() } else { format!(", SHA-256 {hash}") }
        );
    }
    let below = if disclosure.is_virtual { "virtual machine" } else { "no hypervisor seen" };
    let _ = writeln!(
        out,
        "taken on {}, {} usable cores, {below}, Linux {}, load average {:.2} at the start; isolation: {}; clock: {}; {}",
        disclosure.processor,
        disclosure.cores.len(),
        disclosure.kernel,
        disclosure.load,
        disclosure.isolation,
        disclosure.clock,
        disclosure.build
    );
    let _ = writeln!(out, "\n{}: {}", outcome.name, outcome.verdict.name());
    out
}

/// Reasons and limits of one case.
pub fn verdict(out: &mut String, case: &CaseOutcome) {
    let judgement = &case.judgement;
    let verdict = match judgement.verdict {
        Verdict::Invalid => "INVALID, so its latencies claim nothing",
        other => other.name(),
    };
    let _ = writeln!(out, "{}: {verdict}", case.case.name);
    for reason in &judgement.broken_because {
        let _ = writeln!(out, "  broken: {reason}");
    }
    let lead = if judgement.verdict == Verdict::Broken { "also wrong" } else { "because" };
    for reason in &judgement.invalid_because {
        let _ = writeln!(out, "  {lead}: {reason}");
    }
    for held in &judgement.held {
        let _ = writeln!(out, "  held: {held}");
    }
    for limit in &case.evidence.limits {
        let Some(measured) = limit.measured else { continue };
        let _ = writeln!(
            out,
            "  limit {} at most {}: measured {} (95 % within {} to {}; {} blocks of {})",
            percentile_name(limit.limit.percentile),
            duration(limit.limit.at_most_ns),
            duration(measured.value_ns),
            duration(measured.low_ns),
            duration(measured.high_ns),
            measured.blocks,
            duration(measured.block_ns)
        );
    }
}

fn numbers(out: &mut String, case: &CaseOutcome) {
    let _ = writeln!(
        out,
        "{} ({}, {}, {} subscriber{})",
        case.case.name,
        case.case.transport.name(),
        case.pace,
        case.case.subscribers,
        if case.case.subscribers == 1 { "" } else { "s" }
    );
    let _ = writeln!(
        out,
        "  {:<12} {:<42} {:>9} {:>9} {:>9} {:>9} {:>9} {:>10}",
        "", "latency", "p50", "p99", "p99.9", "p99.99", "max", "samples"
    );
    for row in &case.distributions {
        let _ = writeln!(
            out,
            "  {:<12} {:<42} {:>9} {:>9} {:>9} {:>9} {:>9} {:>10}",
            row.whose,
            row.what,
            duration(row.p50_ns),
            duration(row.p99_ns),
            duration(row.p999_ns),
            duration(row.p9999_ns),
            duration(row.max_ns),
            row.samples
        );
    }
    if let Some(stages) = &case.stages {
        let sums = [&stages.p50_ns, &stages.p999_ns].map(|list| list.iter().sum::<f64>().max(1.0));
        let _ = writeln!(out, "  where the time went, of {} messages stepped: at p50, at p99.9", stages.messages);
        for (at, name) in stages.names.iter().enumerate() {
            let _ = writeln!(
                out,
                "    {name:<28} {:>9} {:>4.0} % {:>12} {:>4.0} %",
                duration(stages.p50_ns[at] as u64),
                stages.p50_ns[at] * 100.0 / sums[0],
                duration(stages.p999_ns[at] as u64),
                stages.p999_ns[at] * 100.0 / sums[1]
            );
        }
    }
    if !case.worst.is_empty() {
        let _ = writeln!(out, "  the worst records, 10 ms apart or more");
        for worst in case.worst.iter().take(5) {
            let _ = writeln!(
                out,
                "    {:>9} at {:>9}, {} ({}): {}: {}",
                duration(worst.latency_ns),
                duration(worst.at_ns),
                worst.symbol,
                worst.sequence,
                worst.cause.name(),
                worst.because
            );
        }
    }
    for thread in &case.threads {
        let _ = writeln!(
            out,
            "  {}: {} long turns, the longest {}; {} of them the machine's, {} not",
            thread.thread,
            thread.gaps,
            duration(thread.longest_ns),
            duration(thread.machine_ns),
            duration(thread.own_ns)
        );
    }
    let _ = writeln!(
        out,
        "  measuring a line costs {} clock reads of {:.0} ns and {:.0} ns more",
        case.measuring.clock_reads, case.measuring.clock_ns, case.measuring.other_ns
    );
    for note in &case.notes {
        let _ = writeln!(out, "  note: {note}");
    }
}
