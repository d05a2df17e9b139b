//! From the logs of a run to its outcome.

use std::collections::HashMap;
use std::io;

use super::blocks::{Latencies, Timed, quantile};
use super::explain::{Gaps, explain};
use super::file::Measure;
use super::log::{self, NO_TIME, Sample, SeenStep, SentStep};
use super::outcome::{CaseOutcome, Distribution, LoadProfile, Measuring, Outlier, Slice, Stages, ThreadGaps};
use super::run::RawRun;
use super::verdict::{Evidence, LimitEvidence, judge};

/// The worst records that are shown.
const WORST: usize = 12;
/// So long passes at least from one's arrival to the next one's due time, ns: one stall is told once.
const APART_NS: u64 = 10_000_000;
/// Records due within so long before another stand in one burst with it, ns.
const BURST_NS: u64 = 100_000;
/// Slices, ns.
const SLICE_NS: u64 = 100_000_000;
/// Points of a load profile over time.
const PARTS: u64 = 240;
/// Seed of the bootstrap: the same logs give the same report.
const SEED: u64 = 1;

/// The stages' names, in order.
pub const STAGES: [&str; 7] = [
    "wait for the publisher",
    "decode",
    "normalise",
    "publish",
    "on the way, and verify",
    "arbitrate, to the callback",
    "book, to the event's end",
];

/// What a record's latency is, as judged.
fn judged(sample: &Sample, measure: Measure) -> Option<u32> {
    let latency = match measure {
        Measure::Visible => sample.visible_ns,
        Measure::Complete => sample.complete_ns,
    };
    (latency != NO_TIME).then_some(latency)
}

/// A judged record and where it came from.
#[derive(Clone, Copy)]
struct Judged {
    timed: Timed,
    subscriber: u32,
    place: u32,
}

/// Brings together what the processes of a case wrote down, and judges it.
///
/// # Errors
/// A log cannot be read.
pub fn analyse(raw: &RawRun) -> io::Result<CaseOutcome> {
    let mut samples = Vec::with_capacity(raw.seen.len());
    let mut gaps =
        vec![Gaps::new("the publisher", log::read(&raw.folder.join("publisher.gaps"))?, raw.schedule.start_ns)];
    for at in 0..raw.seen.len() {
        samples.push(log::read::<Sample>(&raw.folder.join(format!("subscriber-{at}.samples")))?);
        let name = if raw.seen.len() == 1 { "the subscriber".to_owned() } else { format!("subscriber {}", at + 1) };
        let path = raw.folder.join(format!("subscriber-{at}.gaps"));
        gaps.push(Gaps::new(&name, log::read(&path)?, raw.schedule.start_ns));
    }
    let worst_of_all = worst_of_all(&samples, raw.case.measure);
    let latencies = Latencies::new(worst_of_all.iter().map(|judged| judged.timed).collect());
    let adjusted: Vec<Vec<u32>> = samples
        .iter()
        .zip(&gaps[1..])
        .map(|(samples, own)| without_machine(samples, &[&gaps[0], own], raw.case.measure))
        .collect();
    let without_machine = |judged: &Judged| Timed {
        latency_ns: adjusted[judged.subscriber as usize][judged.place as usize],
        ..judged.timed
    };
    let calm = Latencies::new(worst_of_all.iter().map(without_machine).collect());
    let evidence = evidence(raw, &latencies, &calm);
    let sent = log::read::<SentStep>(&raw.folder.join("publisher.steps"))?;
    let seen = log::read::<SeenStep>(&raw.folder.join("subscriber-0.steps"))?;
    // Both sides know a message by its place in the feed, where records tell it.
    let stepped = if raw.planned.counts_messages { steps(&sent, &seen, raw.schedule.start_ns) } else { Vec::new() };
    let worst = outliers(raw, &worst_of_all, &samples, &gaps, &stepped);
    let symbols_read = raw.seen.first();
    Ok(CaseOutcome {
        case: raw.case.clone(),
        pace: raw.case.pace.to_string(),
        judgement: judge(&evidence),
        evidence,
        distributions: distributions(raw, &latencies, &samples),
        stages: stages(&stepped),
        worst,
        load: load_profile(raw, &samples),
        threads: threads(raw, &gaps),
        slices: slices(&latencies),
        measuring: symbols_read.map_or(Measuring::default(), |seen| Measuring {
            clock_reads: 2,
            clock_ns: seen.clock_cost_ns,
            other_ns: seen.record_cost_ns,
        }),
        placement: raw.cores.clone(),
        pids: raw.pids.clone(),
        date: raw.date.clone(),
        notes: raw.notes.clone(),
    })
}

/// The judged latencies of a run: of each line the worst of all subscribers'.
///
/// # Errors
/// A log cannot be read.
pub fn judged_latencies(raw: &RawRun) -> io::Result<Latencies> {
    let samples: Vec<Vec<Sample>> = (0..raw.seen.len())
        .map(|at| log::read(&raw.folder.join(format!("subscriber-{at}.samples"))))
        .collect::<io::Result<_>>()?;
    let worst = worst_of_all(&samples, raw.case.measure);
    Ok(Latencies::new(worst.iter().map(|judged| judged.timed).collect()))
}

/// For each line the worst latency of all subscribers that saw it.
fn worst_of_all(samples: &[Vec<Sample>], measure: Measure) -> Vec<Judged> {
    let one = |subscriber: usize, place: usize, sample: &Sample| {
        let latency_ns = judged(sample, measure)?;
        let timed = Timed { at_ns: sample.intended_ns, latency_ns };
        Some((sample.sequence, Judged { timed, subscriber: subscriber as u32, place: place as u32 }))
    };
    let mut lists = samples.iter().enumerate().map(|(subscriber, samples)| {
        samples.iter().enumerate().filter_map(move |(place, sample)| one(subscriber, place, sample)).collect::<Vec<_>>()
    });
    let mut worst = lists.next().unwrap_or_default();
    for other in lists {
        // Both ascend by sequence number.
        let mut at = 0;
        let mut only_there = Vec::new();
        for (sequence, there) in other {
            while worst.get(at).is_some_and(|(known, _)| *known < sequence) {
                at += 1;
            }
            match worst.get_mut(at) {
                Some((known, here)) if *known == sequence => {
                    if there.timed.latency_ns > here.timed.latency_ns {
                        *here = there;
                    }
                }
                _ => only_there.push((sequence, there)),
            }
        }
        worst.append(&mut only_there);
        worst.sort_by_key(|(sequence, _)| *sequence);
    }
    worst.into_iter().map(|(_, judged)| judged).collect()
}

/// What each latency would have been, at least, without the machine's gaps in the turns of `threads`: lines are dealt with in
/// order, each when it is due and the one before is done, and takes what it took of our own time.
fn without_machine(samples: &[Sample], threads: &[&Gaps; 2], measure: Measure) -> Vec<u32> {
    let [publisher, subscriber] = threads;
    let own = |thread: &Gaps, from: u64, to: u64| {
        to.saturating_sub(from).saturating_sub(thread.machine_within(from, to.max(from)))
    };
    let (mut seen_before, mut done_before) = (0, 0);
    let clip = |latency: u64| u32::try_from(latency).unwrap_or(NO_TIME - 1).min(NO_TIME - 1);
    let one = |sample: &Sample| {
        let due = sample.intended_ns;
        let seen = due + u64::from(sample.visible_ns);
        // Up to its hand-over a line waits for the publisher, from then on for the subscriber.
        let sent =
            if sample.from_actual_ns == NO_TIME { due } else { seen.saturating_sub(sample.from_actual_ns.into()) };
        let from = due.max(seen_before).min(seen);
        let took = own(publisher, from, sent) + own(subscriber, from.max(sent), seen);
        let done = due.max(done_before) + took;
        (seen_before, done_before) = (seen.max(seen_before), done);
        match measure {
            Measure::Visible => clip(done - due),
            Measure::Complete if sample.complete_ns == NO_TIME => NO_TIME,
            Measure::Complete => {
                let complete = (due + u64::from(sample.complete_ns)).max(seen);
                clip(done - due + own(subscriber, seen, complete))
            }
        }
    };
    samples.iter().map(one).collect()
}

fn evidence(raw: &RawRun, latencies: &Latencies, calm: &Latencies) -> Evidence {
    let loops = || std::iter::once(&raw.sent.turns).chain(raw.seen.iter().map(|seen| &seen.turns));
    let limits = raw.case.limits.iter().enumerate().map(|(at, limit)| LimitEvidence {
        limit: *limit,
        measured: latencies.estimate(limit.percentile, raw.case.block_ns, SEED),
        without_machine: calm.estimate(limit.percentile, raw.case.block_ns, SEED),
        lag_ns: raw.sent.lag_ns.get(at).copied().unwrap_or(0),
        jitter_ns: loops().filter_map(|turns| turns.jitter_ns.get(at).copied()).max().unwrap_or(0),
    });
    Evidence {
        limits: limits.collect(),
        planned_ns: raw.sent.planned_ns,
        took_ns: raw.sent.took_ns,
        stopped: raw.sent.stopped,
        own_cores: !raw.cores.is_empty(),
        clock_drift_ns: loops().map(|turns| turns.clock_drift_ns.unsigned_abs()).max().unwrap_or(0),
        clock_elapsed_ns: loops().map(|turns| turns.clock_elapsed_ns).max().unwrap_or(0),
        clock_error_ns: loops().map(|turns| turns.clock_error_ns).max().unwrap_or(0),
        published: raw.sent.published,
        subscribers: raw.seen.iter().map(|seen| seen.accounts).collect(),
        gaps_allowed: raw.case.gaps_allowed,
        feed_error: raw.sent.error.clone(),
    }
}

fn distributions(raw: &RawRun, judged_latencies: &Latencies, samples: &[Vec<Sample>]) -> Vec<Distribution> {
    let whose = if samples.len() > 1 { "worst of all".to_owned() } else { "subscriber 1".to_owned() };
    let mut all = vec![distribution(raw.case.measure.name(), &whose, judged_latencies.sorted())];
    type Field = fn(&Sample) -> u32;
    let fields: [(&str, Field); 3] = [
        (Measure::Visible.name(), |sample| sample.visible_ns),
        (Measure::Complete.name(), |sample| sample.complete_ns),
        ("line visible, from actual hand-over", |sample| sample.from_actual_ns),
    ];
    for (at, samples) in samples.iter().enumerate() {
        let whose = format!("subscriber {}", at + 1);
        for (what, field) in fields {
            let mut values: Vec<u32> = samples.iter().map(field).filter(|value| *value != NO_TIME).collect();
            values.sort_unstable();
            let is_judged = all[0].what == what && all[0].whose == whose;
            if !values.is_empty() && !is_judged {
                all.push(distribution(what, &whose, &values));
            }
        }
    }
    all
}

fn distribution(what: &str, whose: &str, sorted: &[u32]) -> Distribution {
    let at = |percentile| u64::from(quantile(sorted, percentile));
    let sum: u64 = sorted.iter().map(|value| u64::from(*value)).sum();
    // Evenly over the nines, eight points to each, as far as there are samples.
    let nines = (sorted.len().max(2) as f64).log10();
    let points = (nines * 8.0).ceil() as usize;
    let curve = (0..=points).map(|i| {
        let percentile = 100.0 * (1.0 - 10f64.powf(-(i as f64) / 8.0));
        (percentile, at(percentile))
    });
    Distribution {
        what: what.into(),
        whose: whose.into(),
        samples: sorted.len() as u64,
        mean_ns: if sorted.is_empty() { 0.0 } else { sum as f64 / sorted.len() as f64 },
        p50_ns: at(50.0),
        p90_ns: at(90.0),
        p99_ns: at(99.0),
        p999_ns: at(99.9),
        p9999_ns: at(99.99),
        max_ns: sorted.last().copied().unwrap_or(0).into(),
        curve: curve.collect(),
    }
}

/// One stepped message: when it was due, and its time in each stage.
pub(crate) struct Stepped {
    at_ns: u64,
    to_callback_ns: u64,
    total_ns: u64,
    stages_ns: [u64; STAGES.len()],
}

/// Joins both sides of the stepped messages.
fn steps(sent: &[SentStep], seen: &[SeenStep], start_ns: u64) -> Vec<Stepped> {
    let by_ordinal: HashMap<u32, &SeenStep> = seen.iter().map(|step| (step.ordinal as u32, step)).collect();
    let join = |sent: &SentStep| {
        let seen = by_ordinal.get(&(sent.ordinal as u32))?;
        Some(Stepped {
            at_ns: seen.intended.saturating_sub(start_ns),
            to_callback_ns: seen.callback.saturating_sub(seen.intended),
            total_ns: seen.callback.max(seen.complete).saturating_sub(seen.intended),
            stages_ns: stage_times(sent, seen),
        })
    };
    sent.iter().filter(|step| step.visible > 0).filter_map(join).collect()
}

fn stage_times(sent: &SentStep, seen: &SeenStep) -> [u64; STAGES.len()] {
    let intended = seen.intended;
    let taken = sent.taken.max(intended);
    // A message is cut out ahead of its time where there is time; only what falls behind its due time delays it.
    let decode = sent.decoded.clamp(intended, taken) - sent.asked.clamp(intended, taken);
    let normalised = sent.normalised.max(taken);
    // A reader may see a line before the flush that brought it has returned.
    let verified = if seen.verified == 0 { seen.callback } else { seen.verified }.max(normalised);
    let visible = sent.visible.clamp(normalised, verified);
    let callback = seen.callback.max(verified);
    let complete = if seen.complete == 0 { callback } else { seen.complete.max(callback) };
    [
        taken - intended - decode,
        decode,
        normalised - taken,
        visible - normalised,
        verified - visible,
        callback - verified,
        complete - callback,
    ]
}

fn stages(stepped: &[Stepped]) -> Option<Stages> {
    if stepped.is_empty() {
        return None;
    }
    let mut by_total: Vec<&Stepped> = stepped.iter().collect();
    by_total.sort_by_key(|step| step.total_ns);
    let n = by_total.len();
    // Around the median a tenth of all; around 99.9 % what lies from 99.8 to 99.98 %, and ten at least.
    let part = |from: f64, to: f64| ((n as f64 * from) as usize, (n as f64 * to).ceil() as usize);
    let (from, to) = part(0.45, 0.55);
    let middle = &by_total[from.min(n - 1)..to.clamp(from + 1, n)];
    let (from, to) = part(0.998, 0.9998);
    let tail = if to - from >= 10 { &by_total[from..to] } else { &by_total[n.saturating_sub(10)..] };
    let mean = |group: &[&Stepped]| {
        (0..STAGES.len())
            .map(|stage| group.iter().map(|step| step.stages_ns[stage] as f64).sum::<f64>() / group.len() as f64)
            .collect()
    };
    Some(Stages {
        messages: n as u64,
        names: STAGES.map(String::from).to_vec(),
        p50_ns: mean(middle),
        p50_messages: middle.len() as u64,
        p999_ns: mean(tail),
        p999_messages: tail.len() as u64,
    })
}

fn outliers(
    raw: &RawRun,
    judged: &[Judged],
    samples: &[Vec<Sample>],
    gaps: &[Gaps],
    stepped: &[Stepped],
) -> Vec<Outlier> {
    let mut order: Vec<u32> = (0..judged.len() as u32).collect();
    let worst_first =
        |a: &u32, b: &u32| judged[*b as usize].timed.latency_ns.cmp(&judged[*a as usize].timed.latency_ns);
    // Stalls hold many records each: enough of the worst that some of them are apart.
    let candidates = order.len().min(200_000);
    if candidates < order.len() {
        order.select_nth_unstable_by(candidates, worst_first);
        order.truncate(candidates);
    }
    order.sort_by(worst_first);
    let mut due: Vec<u64> = judged.iter().map(|judged| judged.timed.at_ns).collect();
    due.sort_unstable();
    let mut worst: Vec<Outlier> = Vec::new();
    for at in order {
        let one = judged[at as usize];
        let until = one.timed.at_ns + u64::from(one.timed.latency_ns);
        let is_told = |other: &Outlier| {
            other.at_ns < until + APART_NS && one.timed.at_ns < other.at_ns + other.latency_ns + APART_NS
        };
        if worst.iter().any(is_told) {
            continue;
        }
        let sample = &samples[one.subscriber as usize][one.place as usize];
        let from = due.partition_point(|time| time + BURST_NS < one.timed.at_ns);
        let to = due.partition_point(|time| *time <= one.timed.at_ns);
        let burst = (to - from) as u64;
        let threads = [&gaps[0], &gaps[1 + one.subscriber as usize]];
        let (cause, because) = explain(one.timed.at_ns, one.timed.latency_ns.into(), burst, &threads);
        let known = |value: u32| (value != NO_TIME).then_some(u64::from(value));
        let from_actual_ns = known(sample.from_actual_ns);
        let symbols = raw.seen.get(one.subscriber as usize).map_or(&[][..], |seen| &seen.symbols);
        let symbol = symbols.iter().find(|(instrument, _)| *instrument == sample.instrument);
        worst.push(Outlier {
            at_ns: one.timed.at_ns,
            latency_ns: one.timed.latency_ns.into(),
            symbol: symbol.map_or_else(|| "the channel".to_owned(), |(_, symbol)| symbol.clone()),
            sequence: sample.sequence,
            subscriber: one.subscriber as usize + 1,
            lag_ns: from_actual_ns.map(|actual| u64::from(sample.visible_ns).saturating_sub(actual)),
            from_actual_ns,
            event_ns: known(sample.complete_ns).map(|complete| complete.saturating_sub(sample.visible_ns.into())),
            stages_ns: stage_of(stepped, one.subscriber, sample).map(|stages| stages.to_vec()),
            burst,
            cause,
            because,
        });
        if worst.len() == WORST {
            break;
        }
    }
    worst
}

/// The stages of that very record, if its message was stepped; the first subscriber's steps are known.
fn stage_of(stepped: &[Stepped], subscriber: u32, sample: &Sample) -> Option<[u64; STAGES.len()]> {
    let is_it =
        |step: &&Stepped| step.at_ns == sample.intended_ns && step.to_callback_ns == u64::from(sample.visible_ns);
    stepped.iter().find(is_it).filter(|_| subscriber == 0).map(|step| step.stages_ns)
}

fn load_profile(raw: &RawRun, samples: &[Vec<Sample>]) -> LoadProfile {
    const MS: u64 = 1_000_000;
    let samples = samples.first().map_or(&[][..], |samples| samples);
    let end = samples.iter().map(|sample| sample.intended_ns).max().unwrap_or(0) + 1;
    let mut per_ms = vec![0u32; (end / MS + 1).min(100_000_000) as usize];
    for sample in samples {
        if let Some(count) = per_ms.get_mut((sample.intended_ns / MS) as usize) {
            *count += 1;
        }
    }
    let width = per_ms.len().div_ceil(PARTS as usize).max(1);
    let parts = per_ms.chunks(width).enumerate().map(|(at, part)| {
        let mean = part.iter().map(|count| f64::from(*count)).sum::<f64>() / part.len() as f64;
        ((at * width) as u64 * MS, mean, u64::from(part.iter().copied().max().unwrap_or(0)))
    });
    let mut classes: Vec<(u64, u64)> = Vec::new();
    for count in &per_ms {
        let class = if *count == 0 { 0 } else { 1u64 << count.ilog2() };
        match classes.iter_mut().find(|(lowest, _)| *lowest == class) {
            Some((_, milliseconds)) => *milliseconds += 1,
            None => classes.push((class, 1)),
        }
    }
    classes.sort_unstable();
    LoadProfile {
        messages: raw.sent.messages,
        lines: raw.sent.published,
        events: raw.seen.first().map_or(0, |seen| seen.events),
        mean_per_s: samples.len() as f64 * 1e9 / end.max(1) as f64,
        peak_per_ms: per_ms.iter().copied().max().unwrap_or(0).into(),
        parts: parts.collect(),
        milliseconds: classes,
        lag_ns: raw.case.limits.iter().map(|limit| limit.percentile).zip(raw.sent.lag_ns.iter().copied()).collect(),
        lag_max_ns: raw.sent.lag_max_ns,
    }
}

fn threads(raw: &RawRun, gaps: &[Gaps]) -> Vec<ThreadGaps> {
    let loops = std::iter::once(&raw.sent.turns).chain(raw.seen.iter().map(|seen| &seen.turns));
    gaps.iter()
        .zip(loops)
        .map(|(gaps, turns)| {
            let percentiles = raw.case.limits.iter().map(|limit| limit.percentile);
            ThreadGaps {
                jitter_ns: percentiles.zip(turns.jitter_ns.iter().copied()).collect(),
                off_core_ns: turns.off_core_ns,
                unkept: turns.gaps_unkept,
                ..gaps.summary()
            }
        })
        .collect()
}

fn slices(latencies: &Latencies) -> Vec<Slice> {
    let mut slices = Vec::new();
    for slice in latencies.timed().chunk_by(|a, b| a.at_ns / SLICE_NS == b.at_ns / SLICE_NS) {
        let mut values: Vec<u32> = slice.iter().map(|timed| timed.latency_ns).collect();
        values.sort_unstable();
        let at = |percentile| u64::from(quantile(&values, percentile));
        slices.push(Slice {
            at_ns: slice[0].at_ns / SLICE_NS * SLICE_NS,
            samples: values.len() as u64,
            p50_ns: at(50.0),
            p99_ns: at(99.0),
            p999_ns: at(99.9),
        });
    }
    slices
}

#[cfg(test)]
mod tests {
    use super::super::log::Gap;
    use super::*;

    fn sample(intended_ns: u64, visible_ns: u32) -> Sample {
        Sample {
            intended_ns,
            sequence: 1,
            visible_ns,
            complete_ns: visible_ns + 10,
            from_actual_ns: visible_ns,
            instrument: 1,
        }
    }

    fn gap(start: u64, end: u64, machine_ns: u64) -> Gap {
        Gap { start, end, machine_ns, busy_until: u64::MAX, ..Gap::default() }
    }

    #[test]
    fn without_the_machine_a_latency_keeps_our_own_work_and_our_own_queue() {
        let none = Gaps::new("the publisher", Vec::new(), 0);
        // Each line takes 100 us of work. The machine takes 900 us from 1,000 us on; three lines wait for it.
        let samples = [
            sample(500_000, 100_000),
            sample(1_000_000, 1_000_000),
            sample(1_400_000, 700_000),
            sample(1_450_000, 750_000),
            sample(3_000_000, 100_000),
        ];
        let machine = Gaps::new("the subscriber", vec![gap(1_000_000, 1_900_000, 900_000)], 0);
        let adjusted = without_machine(&samples, &[&none, &machine], Measure::Visible);
        // The fourth would have waited for the third all the same: due 50 us after it.
        assert_eq!(adjusted, [100_000, 100_000, 100_000, 150_000, 100_000]);
        let ours = Gaps::new("the subscriber", vec![gap(1_000_000, 1_900_000, 0)], 0);
        let adjusted = without_machine(&samples, &[&none, &ours], Measure::Visible);
        assert_eq!(adjusted, [100_000, 1_000_000, 700_000, 750_000, 100_000], "no counter: it stays ours");
        // A publisher that is away delays nothing that it has handed over.
        let away = Gaps::new("the publisher", vec![gap(0, 9_000_000, 9_000_000)], 0);
        assert_eq!(without_machine(&samples, &[&away, &ours], Measure::Visible), adjusted);
        let complete = without_machine(&samples, &[&none, &machine], Measure::Complete);
        assert_eq!(complete[1], 100_010);
    }

    #[test]
    fn stages_follow_one_another_and_add_up() {
        let sent = SentStep { ordinal: 1, asked: 90, decoded: 95, taken: 120, normalised: 130, visible: 150 };
        let seen = SeenStep { ordinal: 1, intended: 100, verified: 145, callback: 160, complete: 175 };
        // Cut out ahead of its time; seen before the flush that brought it had returned.
        assert_eq!(stage_times(&sent, &seen), [20, 0, 10, 15, 0, 15, 15]);
        let late = SentStep { asked: 105, decoded: 112, ..sent };
        let times = stage_times(&late, &seen);
        assert_eq!((times[0], times[1], times.iter().sum::<u64>()), (13, 7, 75));
    }
}
