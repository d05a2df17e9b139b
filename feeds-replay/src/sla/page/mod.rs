//! The outcome as one HTML file that opens anywhere: style and figures inside, no script, light and dark.
//!
//! The verdict first, then whether it may be believed, then the numbers, then where the time went, then how it was taken.

use std::fmt::Write;

use super::outcome::{CaseOutcome, Disclosure, Outcome};
use super::ramp::Ramp;
use super::verdict::{Verdict, percentile_name};
use crate::verdict::duration;

mod plot;

const STYLE: &str = include_str!("page.css");

/// Text as HTML has it.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Met => "met",
        Verdict::Broken => "broken",
        Verdict::Invalid => "invalid",
    }
}

fn meaning(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Met => "Every limit was kept, and the run may be believed.",
        Verdict::Broken => "A limit was broken, and it was not the machine's doing.",
        Verdict::Invalid => "The run says nothing, for the reasons below. Its numbers are shown, and claim nothing.",
    }
}

/// The page.
pub fn page(outcome: &Outcome) -> String {
    let mut out = String::with_capacity(64 << 10);
    let name = escape(&outcome.name);
    let verdict = outcome.verdict;
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{name}: {verdict}</title><style>{STYLE}</style></head><body><main>\n\
         <header><h1>{name}</h1><p class=\"soft\">Latency SLA on {}, {}</p>\
         <p id=\"verdict\" class=\"verdict {}\">{verdict}</p><p>{}</p></header>\n",
        escape(&outcome.disclosure.processor),
        escape(&outcome.disclosure.began),
        class(verdict),
        meaning(verdict),
        verdict = verdict.name(),
    );
    if outcome.cases.len() > 1 {
        overview(&mut out, outcome);
    }
    for ramp in &outcome.ramps {
        ramp_table(&mut out, ramp);
    }
    for (at, case) in outcome.cases.iter().enumerate() {
        one(&mut out, at + 1, case);
    }
    disclosure(&mut out, &outcome.disclosure, &outcome.cases);
    out.push_str("</main></body></html>\n");
    out
}

fn overview(out: &mut String, outcome: &Outcome) {
    out.push_str("<section class=\"card\"><table><thead><tr><th>case</th><th>verdict</th></tr></thead><tbody>");
    for (at, case) in outcome.cases.iter().enumerate() {
        let verdict = case.judgement.verdict;
        let _ = write!(
            out,
            "<tr><td><a href=\"#case-{}\">{}</a></td><td><span class=\"verdict {}\">{}</span></td></tr>",
            at + 1,
            escape(&case.case.name),
            class(verdict),
            verdict.name()
        );
    }
    out.push_str("</tbody></table></section>\n");
}

fn ramp_table(out: &mut String, ramp: &Ramp) {
    let found = ramp.highest.map_or("None was found.".to_owned(), |factor| {
        format!("It is {factor:.2} times the case's own load, to a tenth.")
    });
    let _ = write!(
        out,
        "<section class=\"card\"><h3>{}: the highest load that keeps every limit</h3><p>{found}</p>\
         <table class=\"stack\"><thead><tr><th>load</th><th>verdict</th><th>why</th></tr></thead><tbody>",
        escape(&ramp.case)
    );
    for step in &ramp.steps {
        let _ = write!(
            out,
            "<tr><td data-name=\"load\">{}</td><td data-name=\"verdict\"><span class=\"verdict {}\">{}</span></td>\
             <td class=\"wide small\">{}</td></tr>",
            escape(&step.pace),
            class(step.verdict),
            step.verdict.name(),
            escape(step.because.as_deref().unwrap_or("every limit kept"))
        );
    }
    out.push_str("</tbody></table></section>\n");
}

fn one(out: &mut String, number: usize, case: &CaseOutcome) {
    let verdict = case.judgement.verdict;
    let _ = writeln!(
        out,
        "<section id=\"case-{number}\"><h2>{} <span class=\"verdict {}\" data-verdict=\"{verdict}\">{verdict}</span></h2>\
         <p class=\"soft\">{}, {}; {} subscriber{}; judged is {}</p>",
        escape(&case.case.name),
        class(verdict),
        case.case.transport.name(),
        escape(&case.pace),
        case.case.subscribers,
        if case.case.subscribers == 1 { "" } else { "s" },
        case.case.measure.name(),
        verdict = verdict.name(),
    );
    reasons(out, case);
    limits(out, case);
    out.push_str("<div class=\"pair\"><div class=\"figure\"><h3>Latency by percentile</h3>");
    out.push_str(&plot::percentiles(case));
    out.push_str("<ul class=\"legend\">");
    for (at, curve) in case.distributions.iter().take(plot::CURVES).enumerate() {
        let _ =
            write!(out, "<li><span class=\"key k{at}\"></span>{}, {}</li>", escape(&curve.what), escape(&curve.whose));
    }
    out.push_str("</ul></div><div class=\"figure\"><h3>Load: records due in each millisecond</h3>");
    out.push_str(&plot::bursts(&case.load));
    let load = &case.load;
    let _ = writeln!(
        out,
        "<ul class=\"legend\"><li><span class=\"key k0\"></span>mean</li>\
         <li><span class=\"key k0\" style=\"opacity:.35\"></span>most in one millisecond</li></ul>\
         <p class=\"small soft\">{} messages, {} lines; {:.0} records a second on average, at most {} in one millisecond</p>\
         </div></div>",
        load.messages, load.lines, load.mean_per_s, load.peak_per_ms
    );
    distributions(out, case);
    stages(out, case);
    worst(out, case);
    threads(out, case);
    out.push_str("</section>\n");
}

fn reasons(out: &mut String, case: &CaseOutcome) {
    let judgement = &case.judgement;
    let mut list = |title: &str, reasons: &[String]| {
        if !reasons.is_empty() {
            let items: String = reasons.iter().map(|reason| format!("<li>{}</li>", escape(reason))).collect();
            let _ = write!(out, "<h3>{title}</h3><ul>{items}</ul>");
        }
    };
    let also = if judgement.verdict == Verdict::Broken {
        "What was wrong with the run besides"
    } else {
        "Why it says nothing"
    };
    list("What was broken", &judgement.broken_because);
    list(also, &judgement.invalid_because);
    let items: String = judgement.held.iter().map(|held| format!("<li>{}</li>", escape(held))).collect();
    let open = if judgement.verdict == Verdict::Met { " open" } else { "" };
    let _ = writeln!(
        out,
        "<details{open}><summary>{} rules of validity held</summary><ul>{items}</ul></details>",
        judgement.held.len()
    );
}

fn limits(out: &mut String, case: &CaseOutcome) {
    out.push_str(
        "<section class=\"card\"><table class=\"stack limits\"><thead><tr><th>limit</th><th class=\"n\">at most</th>\
         <th class=\"n\">measured</th><th class=\"n\">95 % within</th><th class=\"n\">without the machine</th>\
         <th class=\"n\">blocks beyond</th><th class=\"n\">sender lag</th><th class=\"n\">jitter</th></tr></thead><tbody>",
    );
    for limit in &case.evidence.limits {
        let name = percentile_name(limit.limit.percentile);
        let number = |of: Option<u64>| of.map_or("nothing".to_owned(), duration);
        let measured = limit.measured;
        let _ = write!(
            out,
            "<tr data-percentile=\"{name}\"><td data-name=\"limit\">{name}</td>\
             <td class=\"n\" data-name=\"at most\">{}</td><td class=\"n measured\" data-name=\"measured\"><b>{}</b></td>\
             <td class=\"n\" data-name=\"95 % within\">{} to {}</td>\
             <td class=\"n\" data-name=\"without the machine\">{}</td>\
             <td class=\"n\" data-name=\"blocks beyond\">{} of {}</td>\
             <td class=\"n\" data-name=\"sender lag\">{}</td><td class=\"n\" data-name=\"jitter\">{}</td></tr>",
            duration(limit.limit.at_most_ns),
            number(measured.map(|estimate| estimate.value_ns)),
            number(measured.map(|estimate| estimate.low_ns)),
            number(measured.map(|estimate| estimate.high_ns)),
            number(limit.without_machine.map(|estimate| estimate.value_ns)),
            measured.map_or(0, |estimate| estimate.blocks_beyond),
            measured.map_or(0, |estimate| estimate.blocks),
            duration(limit.lag_ns),
            duration(limit.jitter_ns)
        );
    }
    out.push_str("</tbody></table></section>\n");
}

fn distributions(out: &mut String, case: &CaseOutcome) {
    out.push_str(
        "<section class=\"card\"><h3>Latencies</h3><table class=\"stack\"><thead><tr><th>what, whose</th>\
         <th class=\"n\">p50</th><th class=\"n\">p90</th><th class=\"n\">p99</th><th class=\"n\">p99.9</th>\
         <th class=\"n\">p99.99</th><th class=\"n\">max</th><th class=\"n\">samples</th></tr></thead><tbody>",
    );
    for (at, row) in case.distributions.iter().enumerate() {
        let _ = write!(
            out,
            "<tr{}><td class=\"wide\">{}<br><span class=\"small soft\">{}</span></td>",
            if at == 0 { " class=\"judged\"" } else { "" },
            escape(&row.what),
            escape(&row.whose)
        );
        let values = [
            ("p50", row.p50_ns),
            ("p90", row.p90_ns),
            ("p99", row.p99_ns),
            ("p99.9", row.p999_ns),
            ("p99.99", row.p9999_ns),
            ("max", row.max_ns),
        ];
        for (name, value) in values {
            let _ = write!(out, "<td class=\"n\" data-name=\"{name}\">{}</td>", duration(value));
        }
        let _ = write!(out, "<td class=\"n\" data-name=\"samples\">{}</td></tr>", row.samples);
    }
    let measuring = &case.measuring;
    let _ = writeln!(
        out,
        "</tbody></table><p class=\"small soft\">Measuring a line costs {} readings of the clock, {:.0} ns each, and {:.0} ns \
         more; all of it is inside these numbers.</p></section>",
        measuring.clock_reads, measuring.clock_ns, measuring.other_ns
    );
}

fn stages(out: &mut String, case: &CaseOutcome) {
    let Some(stages) = &case.stages else { return };
    let _ = write!(
        out,
        "<div class=\"figure stages\"><h3>Where the time went</h3><p class=\"small soft\">One message in 64 is stamped on its \
         way: {} of them. Means of the {} around the median, and of the {} around the 99.9th percentile.</p>{}",
        stages.messages,
        stages.p50_messages,
        stages.p999_messages,
        plot::stages(stages)
    );
    out.push_str(
        "<table><thead><tr><th>stage</th><th class=\"n\">at p50</th><th class=\"n\">share</th><th class=\"n\">at p99.9</th>\
         <th class=\"n\">share</th></tr></thead><tbody>",
    );
    let sums = [&stages.p50_ns, &stages.p999_ns].map(|times| times.iter().sum::<f64>().max(1e-9));
    for (at, name) in stages.names.iter().enumerate() {
        let (low, high) = (stages.p50_ns[at], stages.p999_ns[at]);
        let _ = write!(
            out,
            "<tr><td><span class=\"key k{at}\"></span>{}</td><td class=\"n\">{}</td><td class=\"n\">{:.0} %</td>\
             <td class=\"n\">{}</td><td class=\"n\">{:.0} %</td></tr>",
            escape(name),
            duration(low as u64),
            low * 100.0 / sums[0],
            duration(high as u64),
            high * 100.0 / sums[1]
        );
    }
    out.push_str("</tbody></table></div>\n");
}

fn worst(out: &mut String, case: &CaseOutcome) {
    if case.worst.is_empty() {
        return;
    }
    out.push_str(
        "<section class=\"card worst\"><h3>The worst records, and whose doing they were</h3><p class=\"small soft\">At least \
         10 ms lie between them, so that one stall is told once. A gap is the machine's only if a counter of the kernel's shows it.</p>\
         <table class=\"stack\"><thead><tr><th class=\"n\">latency</th><th class=\"n\">due at</th><th>record</th>\
         <th class=\"n\">sender lag</th><th class=\"n\">on the way</th><th class=\"n\">burst</th><th>why</th></tr></thead><tbody>",
    );
    for one in &case.worst {
        let known = |value: Option<u64>| value.map_or("not known".to_owned(), duration);
        let _ = write!(
            out,
            "<tr><td class=\"n\" data-name=\"latency\"><b>{}</b></td><td class=\"n\" data-name=\"due at\">{:.3} s</td>\
             <td data-name=\"record\">{} <span class=\"small soft\">{}</span></td>\
             <td class=\"n\" data-name=\"sender lag\">{}</td><td class=\"n\" data-name=\"on the way\">{}</td>\
             <td class=\"n\" data-name=\"burst\">{}</td>\
             <td class=\"wide small\"><span class=\"cause\">{}</span>: {}",
            duration(one.latency_ns),
            one.at_ns as f64 / 1e9,
            escape(&one.symbol),
            one.sequence,
            known(one.lag_ns),
            known(one.from_actual_ns),
            one.burst,
            one.cause.name(),
            escape(&one.because)
        );
        if let (Some(times), Some(stages)) = (&one.stages_ns, &case.stages) {
            let times = stages.names.iter().zip(times).map(|(name, time)| format!("{name} {}", duration(*time)));
            let _ = write!(out, "<br>stamped: {}", escape(&times.collect::<Vec<_>>().join(", ")));
        }
        out.push_str("</td></tr>");
    }
    out.push_str("</tbody></table></section>\n");
}

fn threads(out: &mut String, case: &CaseOutcome) {
    out.push_str(
        "<section class=\"card\"><h3>Gaps in the threads' own turns</h3><table class=\"stack\"><thead><tr><th>thread</th>\
         <th class=\"n\">long turns</th><th class=\"n\">longest</th><th class=\"n\">the machine's</th><th class=\"n\">not</th>\
         <th class=\"n\">switches</th><th class=\"n\">faults</th><th class=\"n\">stolen</th></tr></thead><tbody>",
    );
    for thread in &case.threads {
        let _ = write!(
            out,
            "<tr><td data-name=\"thread\">{}</td><td class=\"n\" data-name=\"long turns\">{}</td>\
             <td class=\"n\" data-name=\"longest\">{}</td><td class=\"n\" data-name=\"the machine's\">{}</td>\
             <td class=\"n\" data-name=\"not\">{}</td><td class=\"n\" data-name=\"switches\">{}</td>\
             <td class=\"n\" data-name=\"faults\">{}</td><td class=\"n\" data-name=\"stolen\">{}</td></tr>",
            escape(&thread.thread),
            thread.gaps,
            duration(thread.longest_ns),
            duration(thread.machine_ns),
            duration(thread.own_ns),
            thread.switches,
            thread.faults,
            duration(thread.steal_ticks * 10_000_000)
        );
    }
    out.push_str("</tbody></table>");
    for note in &case.notes {
        let _ = write!(out, "<p class=\"small\">Note: {}</p>", escape(note));
    }
    out.push_str("</section>\n");
}

fn disclosure(out: &mut String, disclosure: &Disclosure, cases: &[CaseOutcome]) {
    let placement: Vec<String> = cases
        .iter()
        .map(|case| match &case.placement[..] {
            [] => format!("{}: not pinned, yielding", case.case.name),
            [publisher, subscribers @ ..] => {
                let list: Vec<String> = subscribers.iter().map(usize::to_string).collect();
                format!(
                    "{}: publisher on core {publisher}, subscribers on {}, spinning",
                    case.case.name,
                    list.join(", ")
                )
            }
        })
        .collect();
    let captures: Vec<String> = disclosure
        .captures
        .iter()
        .map(|(path, hash)| if hash.is_empty() { path.clone() } else { format!("{path} (SHA-256 {hash})") })
        .collect();
    let cores: Vec<String> = disclosure.cores.iter().map(usize::to_string).collect();
    let rows = [
        ("capture", captures.join("; ")),
        (
            "machine",
            format!(
                "{}, {}",
                disclosure.processor,
                if disclosure.is_virtual { "virtual machine" } else { "no hypervisor seen" }
            ),
        ),
        ("cores", format!("{} usable: {}", cores.len(), cores.join(", "))),
        ("load average", format!("{:.2} over the minute before", disclosure.load)),
        ("kernel", format!("Linux {}", disclosure.kernel)),
        ("isolation", disclosure.isolation.clone()),
        ("governor", disclosure.governor.clone()),
        ("clock", disclosure.clock.clone()),
        ("placement", placement.join("; ")),
        ("build", disclosure.build.clone()),
        ("began", disclosure.began.clone()),
        ("command", disclosure.command.clone()),
    ];
    out.push_str(
        "<section class=\"card\" id=\"disclosure\"><h2 style=\"margin-top:0\">How it was taken</h2><table><tbody>",
    );
    for (name, value) in rows {
        let _ = writeln!(out, "<tr><th scope=\"row\">{name}</th><td>{}</td></tr>", escape(&value));
    }
    out.push_str(
        "</tbody></table><p class=\"small soft\">Open loop: each message's hand-over is planned beforehand from one anchor, and \
         latency is counted from the plan, so that a stall hides nothing. Confidence comes from drawing whole blocks of time; \
         blocks are doubled until neighbours are independent. Without the machine: \
         the run gone through again, each line dealt with when it is due and the one before is done, in the time of our own \
         that it took.</p></section>",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(escape("<b title=\"x\">&"), "&lt;b title=&quot;x&quot;&gt;&amp;");
    }
}
