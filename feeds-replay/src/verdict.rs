//! Whether a run may be believed, and what it showed.
//!
//! Validity is said first and with numbers. A run that is not valid makes no claim about latency, however good it looks.

use publisher::pace::Pace;

use crate::run::RunReport;

/// What a run is held to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    /// p99.9 of the latency from the intended hand-over, ns.
    pub p999_ns: u64,
}

impl Default for Limit {
    /// 1 ms.
    fn default() -> Limit {
        Limit { p999_ns: 1_000_000 }
    }
}

/// What became of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// `None` for a flat-out run, which has no intended time and can claim nothing; otherwise whether it may be believed.
    pub valid: Option<bool>,
    /// Why it may not.
    pub reasons: Vec<String>,
    /// Whether p99.9 kept the limit; `None` unless the run is valid.
    pub met: Option<bool>,
    /// At least one digest was compared and none disagreed with a book that called itself Live.
    pub digests_agree: bool,
    /// Every line published was delivered or named as lost.
    pub loss_explained: bool,
}

/// Judges a run.
pub fn judge(report: &RunReport, limit: Limit) -> Verdict {
    let (publisher, subscriber) = (&report.publisher, &report.subscriber);
    let digests_agree = subscriber.digests_compared > 0 && subscriber.digests_disagreed == 0;
    let accounted = subscriber.delivered + subscriber.lost;
    let loss_explained = accounted == publisher.published && subscriber.ended;
    let mut reasons = Vec::new();
    if !digests_agree {
        reasons.push(if subscriber.digests_compared == 0 {
            "no digest could be compared: no book was Live when one came (a capture that begins in mid-day needs --natural)"
                .to_string()
        } else {
            format!("{} of {} digests disagree", subscriber.digests_disagreed, subscriber.digests_compared)
        });
    }
    if !loss_explained {
        reasons.push(format!(
            "of {} lines published {} were delivered and {} named as lost{}",
            publisher.published,
            subscriber.delivered,
            subscriber.lost,
            if subscriber.ended { "" } else { "; the end of the stream never came" }
        ));
    }
    if let Some(error) = &publisher.error {
        reasons.push(format!("the feed ended early: {error}"));
    }
    if report.spec.pace == Pace::Max {
        return Verdict { valid: None, reasons, met: None, digests_agree, loss_explained };
    }
    if report.spec.cores.is_none() {
        reasons
            .push("oversubscribed: fewer cores than busy threads, so the loops yield and no latency is claimed".into());
    }
    if publisher.stopped {
        reasons.push("it was stopped before its end".into());
    }
    let off = publisher.took_ns.abs_diff(publisher.planned_ns);
    if off > publisher.planned_ns / 100 && !publisher.stopped {
        reasons.push(format!(
            "the rate was not held within 1 %: {} planned, {} taken",
            duration(publisher.planned_ns),
            duration(publisher.took_ns)
        ));
    }
    if publisher.lag.p999 > limit.p999_ns / 10 {
        reasons.push(format!(
            "the sender lagged: p99.9 {}, more than a tenth of the limit of {}",
            duration(publisher.lag.p999),
            duration(limit.p999_ns)
        ));
    }
    let jitter = publisher.jitter_p999_ns.max(subscriber.jitter_p999_ns);
    if jitter > limit.p999_ns / 4 {
        reasons.push(format!(
            "the machine's own jitter: p99.9 {}, more than a quarter of the limit of {} (the scheduler kept the publisher off \
             its core for {}, the subscriber for {})",
            duration(jitter),
            duration(limit.p999_ns),
            duration(publisher.off_core_ns),
            duration(subscriber.off_core_ns)
        ));
    }
    if publisher.clock_drift_ns.unsigned_abs() > limit.p999_ns / 100 {
        reasons.push(format!("the clock drifted by {} ns", publisher.clock_drift_ns));
    }
    if subscriber.publish_time_unknown > 0 {
        reasons.push(format!("{} lines whose hand-over time could not be told", subscriber.publish_time_unknown));
    }
    if subscriber.negative > 0 {
        reasons.push(format!("{} lines that came before they were sent", subscriber.negative));
    }
    if subscriber.visible_from_intended.count == 0 {
        reasons.push("nothing was measured".into());
    }
    let valid = reasons.is_empty();
    let met = valid.then_some(subscriber.visible_from_intended.p999 <= limit.p999_ns);
    Verdict { valid: Some(valid), reasons, met, digests_agree, loss_explained }
}

/// Ns in the unit that suits them.
pub fn duration(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Feed, Percentiles, PublisherReport, Spec, SubscriberReport, Transport};

    fn fine() -> RunReport {
        let latency = Percentiles { p50: 500, p99: 2_000, p999: 40_000, max: 90_000, count: 1000 };
        RunReport {
            spec: Spec {
                transport: Transport::Shm,
                feed: Feed::Generated { seed: 1, symbols: 5, messages: 1000, span_ns: 1 },
                pace: Pace::Speed(1.0),
                channel: "x".into(),
                ring_lines: 64,
                group: [239, 0, 0, 1].into(),
                port: 1,
                rdma: None,
                control: None,
                log: None,
                clock: String::new(),
                cores: Some((0, 1)),
                books: (1, 1, 1),
            },
            publisher: PublisherReport {
                messages: 900,
                published: 1000,
                took_ns: 1_000_500_000,
                planned_ns: 1_000_000_000,
                lag: Percentiles { p999: 20_000, ..latency },
                jitter_p999_ns: 30_000,
                ..PublisherReport::default()
            },
            subscriber: SubscriberReport {
                delivered: 1000,
                digests_compared: 14,
                visible_from_intended: latency,
                ended: true,
                ..SubscriberReport::default()
            },
            pids: (1, 2),
            date: String::new(),
            notes: Vec::new(),
        }
    }

    fn judged(change: impl FnOnce(&mut RunReport)) -> Verdict {
        let mut report = fine();
        change(&mut report);
        judge(&report, Limit::default())
    }

    #[test]
    fn a_clean_run_is_valid_and_its_limit_is_judged() {
        let verdict = judged(|_| {});
        assert_eq!((verdict.valid, verdict.met), (Some(true), Some(true)));
        let verdict = judged(|run| run.subscriber.visible_from_intended.p999 = 1_000_001);
        assert_eq!((verdict.valid, verdict.met), (Some(true), Some(false)));
    }

    #[test]
    fn each_thing_that_spoils_a_run_is_named() {
        type Spoil = fn(&mut RunReport);
        let cases: [(Spoil, &str); 10] = [
            (|run| run.publisher.stopped = true, "stopped before its end"),
            (|run| run.publisher.took_ns = 1_010_000_001, "rate"),
            (|run| run.publisher.lag.p999 = 100_001, "lagged"),
            (|run| run.subscriber.jitter_p999_ns = 250_001, "jitter"),
            (|run| run.publisher.jitter_p999_ns = 250_001, "jitter"),
            (|run| run.subscriber.digests_disagreed = 1, "1 of 14 digests disagree"),
            (|run| run.subscriber.digests_compared = 0, "no digest"),
            (|run| run.subscriber.delivered = 999, "999 were delivered"),
            (|run| run.subscriber.ended = false, "never came"),
            (|run| run.spec.cores = None, "oversubscribed"),
        ];
        for (spoil, expect) in cases {
            let verdict = judged(spoil);
            assert_eq!((verdict.valid, verdict.met), (Some(false), None), "{expect}");
            assert!(verdict.reasons.iter().any(|reason| reason.contains(expect)), "{expect}: {:?}", verdict.reasons);
        }
    }

    #[test]
    fn named_loss_is_explained_and_flat_out_claims_nothing() {
        let verdict = judged(|run| (run.subscriber.delivered, run.subscriber.lost) = (990, 10));
        assert!(verdict.loss_explained && verdict.valid == Some(true));
        let verdict = judged(|run| run.spec.pace = Pace::Max);
        assert_eq!((verdict.valid, verdict.met), (None, None));
    }
}
