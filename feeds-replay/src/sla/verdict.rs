//! MET, BROKEN or INVALID: what a run says of its limits, and why it may be believed.
//!
//! Validity comes first. A run that is not valid has no verdict, however good its latencies look, with one exception: a
//! limit that stays broken after everything the machine did has been taken out is broken, for no quieter machine would
//! have kept it. What makes the measurement itself untrustworthy (the clock, the books, unexplained loss) leaves no
//! exception.

use serde::{Deserialize, Serialize};

use super::blocks::{BLOCKS_BEYOND, Estimate};
use super::file::Limit;
use crate::verdict::duration;

/// How far the time taken may be from the plan: 1 in 100.
const RATE_SLACK: u64 = 100;
/// The sender's lag may be this part of a limit.
const LAG_PART: u64 = 10;
/// The machine's jitter may be this part of a limit.
const JITTER_PART: u64 = 4;
/// The clock may run wrong by this part: latencies and the schedule are differences of one clock, so they are wrong by no
/// more. (A counter that jumped, or cores whose counters disagree, are wrong by much more.)
const DRIFT_PART: u64 = 100_000;
/// What two readings may be apart without any drift, ns, beside the error of the reading.
const DRIFT_LEAST_NS: u64 = 1_000;

/// What became of a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verdict {
    /// The run is valid and every limit was kept.
    Met,
    /// The run says nothing.
    Invalid,
    /// A limit was broken, and not by the machine.
    Broken,
}

impl Verdict {
    /// As reports print it.
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Met => "MET",
            Verdict::Invalid => "INVALID",
            Verdict::Broken => "BROKEN",
        }
    }

    /// The exit status that says so: 0 met, 1 broken, 2 invalid. (3 is an error.)
    pub const fn exit_code(self) -> u8 {
        match self {
            Verdict::Met => 0,
            Verdict::Broken => 1,
            Verdict::Invalid => 2,
        }
    }
}

/// What was found of one limit.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct LimitEvidence {
    /// The limit.
    pub limit: Limit,
    /// Over all samples; `None` of none.
    pub measured: Option<Estimate>,
    /// Over all samples, each as it would have been, at least, without the machine's gaps.
    pub without_machine: Option<Estimate>,
    /// The sender's lag at this percentile, ns.
    pub lag_ns: u64,
    /// The machine's jitter at this percentile, the worst of all threads', ns.
    pub jitter_ns: u64,
}

impl LimitEvidence {
    /// The limit was exceeded beyond doubt, and not by the machine.
    pub fn is_broken(&self) -> bool {
        self.without_machine.is_some_and(|estimate| estimate.low_ns > self.limit.at_most_ns)
    }

    /// The limit was kept beyond doubt.
    pub fn is_kept(&self) -> bool {
        self.measured.is_some_and(|estimate| estimate.high_ns <= self.limit.at_most_ns)
    }
}

/// What a run is judged by. Times in ns, counts in lines.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Evidence {
    /// What was found of each limit.
    pub limits: Vec<LimitEvidence>,
    /// First hand-over to last, by the plan.
    pub planned_ns: u64,
    /// The same, as it was.
    pub took_ns: u64,
    /// It was asked to stop.
    pub stopped: bool,
    /// Each busy thread had a core to itself.
    pub own_cores: bool,
    /// What the clock had drifted by at the end, ns; the worst of all processes'.
    pub clock_drift_ns: u64,
    /// Since its calibration.
    pub clock_elapsed_ns: u64,
    /// Within what error that was read.
    pub clock_error_ns: u64,
    /// Lines published.
    pub published: u64,
    /// What each subscriber delivered, lost and saw of the end.
    pub subscribers: Vec<Accounts>,
    /// Lines that may be lost.
    pub gaps_allowed: u64,
    /// Why the feed ended early.
    pub feed_error: Option<String>,
}

/// One subscriber's accounts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Accounts {
    /// Lines delivered.
    pub delivered: u64,
    /// Lines named as lost.
    pub lost: u64,
    /// It saw the end of the stream.
    pub ended: bool,
    /// Digests compared with a book that called itself Live or Suspect.
    pub digests_compared: u64,
    /// Of these, how many disagreed.
    pub digests_disagreed: u64,
    /// Lines whose hand-over time could not be told.
    pub publish_time_unknown: u64,
    /// Lines that came before they were sent.
    pub negative: u64,
    /// Samples for which there was no room.
    pub unkept: u64,
}

/// A verdict with its reasons.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Judgement {
    /// What became of the run.
    pub verdict: Verdict,
    /// Why the run is not valid; empty if it is.
    pub invalid_because: Vec<String>,
    /// What was broken, if something was.
    pub broken_because: Vec<String>,
    /// The rules that were kept, with their numbers.
    pub held: Vec<String>,
}

/// Judges a run.
pub fn judge(evidence: &Evidence) -> Judgement {
    let (mut void, mut held) = (Vec::new(), Vec::new());
    accounts(evidence, &mut void, &mut held);
    clock(evidence, &mut void, &mut held);
    let mut doubts = Vec::new();
    pace(evidence, &mut doubts, &mut held);
    let mut broken = Vec::new();
    for limit in &evidence.limits {
        machine(limit, &mut doubts, &mut held);
        certainty(limit, &mut doubts, &mut held, &mut broken);
    }
    let lost = evidence.subscribers.iter().map(|accounts| accounts.lost).max().unwrap_or(0);
    let lost_too_much = lost > evidence.gaps_allowed;
    if lost_too_much {
        let what = format!("{lost} lines were lost (and named), {} are allowed", evidence.gaps_allowed);
        // Whether the machine lost them is not known, so it breaks a promise only where the machine was fine.
        if void.is_empty() && doubts.is_empty() { broken.push(what) } else { doubts.push(what) }
    } else if !evidence.subscribers.is_empty() {
        held.push(format!("{lost} lines lost, {} allowed", evidence.gaps_allowed));
    }
    let verdict = match (void.is_empty(), broken.is_empty(), doubts.is_empty()) {
        (false, _, _) => Verdict::Invalid,
        (true, false, _) => Verdict::Broken,
        (true, true, false) => Verdict::Invalid,
        (true, true, true) => Verdict::Met,
    };
    void.append(&mut doubts);
    Judgement { verdict, invalid_because: void, broken_because: broken, held }
}

fn accounts(evidence: &Evidence, void: &mut Vec<String>, held: &mut Vec<String>) {
    let before = void.len();
    if let Some(error) = &evidence.feed_error {
        void.push(format!("the feed ended early: {error}"));
    }
    if evidence.limits.iter().any(|limit| limit.measured.is_none()) || evidence.subscribers.is_empty() {
        void.push("nothing was measured".into());
    }
    for (at, accounts) in evidence.subscribers.iter().enumerate() {
        let who = format!("subscriber {}", at + 1);
        if accounts.digests_compared == 0 {
            void.push(format!("{who}: no book digest could be compared, so nothing shows that its books are right"));
        } else if accounts.digests_disagreed > 0 {
            void.push(format!(
                "{who}: books disagree: {} of {} digests",
                accounts.digests_disagreed, accounts.digests_compared
            ));
        }
        if accounts.delivered + accounts.lost != evidence.published || !accounts.ended {
            void.push(format!(
                "{who}: loss is unexplained: of {} lines published {} were delivered and {} named as lost{}",
                evidence.published,
                accounts.delivered,
                accounts.lost,
                if accounts.ended { "" } else { "; the end of the stream never came" }
            ));
        }
        if accounts.publish_time_unknown > 0 {
            void.push(format!("{who}: {} lines whose hand-over time cannot be told", accounts.publish_time_unknown));
        }
        if accounts.negative > 0 {
            void.push(format!("{who}: {} lines came before they were sent", accounts.negative));
        }
        if accounts.unkept > 0 {
            void.push(format!("{who}: {} samples found no room: the run is too long for its log", accounts.unkept));
        }
    }
    if void.len() == before {
        let compared: u64 = evidence.subscribers.iter().map(|accounts| accounts.digests_compared).sum();
        held.push(format!("books agree: {compared} digests compared"));
        held.push(format!("every one of {} lines was delivered or named", evidence.published));
    }
}

fn clock(evidence: &Evidence, void: &mut Vec<String>, held: &mut Vec<String>) {
    let allowed = evidence.clock_elapsed_ns / DRIFT_PART + evidence.clock_error_ns + DRIFT_LEAST_NS;
    let said = format!(
        "clock drift {} ns in {}, {allowed} ns allowed",
        evidence.clock_drift_ns,
        duration(evidence.clock_elapsed_ns)
    );
    if evidence.clock_drift_ns > allowed {
        void.push(said)
    } else {
        held.push(said)
    }
    if evidence.own_cores {
        held.push("each busy thread had a core to itself".into());
    } else {
        void.push("oversubscribed: fewer cores than busy threads, so the loops yield and no latency is claimed".into());
    }
}

fn pace(evidence: &Evidence, doubts: &mut Vec<String>, held: &mut Vec<String>) {
    if evidence.stopped {
        doubts.push("it was stopped before its end".into());
    }
    let off = evidence.took_ns.abs_diff(evidence.planned_ns);
    let said = format!("{} planned, {} taken", duration(evidence.planned_ns), duration(evidence.took_ns));
    // Where the whole plan is a moment, the last message's own lag is held to the limits instead.
    if off > (evidence.planned_ns / RATE_SLACK).max(1_000_000) {
        doubts.push(format!("the rate was not held within 1 %: {said}"));
    } else {
        held.push(format!("rate held within 1 %: {said}"));
    }
}

fn machine(limit: &LimitEvidence, doubts: &mut Vec<String>, held: &mut Vec<String>) {
    let (at_most, name) = (limit.limit.at_most_ns, percentile_name(limit.limit.percentile));
    for (what, value, part) in
        [("sender lag", limit.lag_ns, LAG_PART), ("the machine's own jitter", limit.jitter_ns, JITTER_PART)]
    {
        let allowed = at_most / part;
        let said = format!("{what} {name} {}, {} allowed (1/{part} of the limit)", duration(value), duration(allowed));
        if value > allowed { doubts.push(said) } else { held.push(said) }
    }
}

fn certainty(limit: &LimitEvidence, doubts: &mut Vec<String>, held: &mut Vec<String>, broken: &mut Vec<String>) {
    let Some(measured) = limit.measured else { return };
    let (at_most, name) = (limit.limit.at_most_ns, percentile_name(limit.limit.percentile));
    let said = format!(
        "{name}: {} blocks of {} lie beyond it, {BLOCKS_BEYOND} needed",
        measured.blocks_beyond,
        duration(measured.block_ns)
    );
    if measured.is_supported() {
        held.push(said)
    } else {
        doubts.push(said)
    }
    if limit.is_broken() {
        let calm = limit.without_machine.unwrap_or(measured);
        broken.push(format!(
            "{name} {} (95 % within {} to {}), {} with everything the machine did taken out; at most {} is promised",
            duration(measured.value_ns),
            duration(measured.low_ns),
            duration(measured.high_ns),
            duration(calm.value_ns),
            duration(at_most)
        ));
    } else if !limit.is_kept() {
        doubts.push(format!(
            "{name} is not decided: {} (95 % within {} to {}) against {}{}",
            duration(measured.value_ns),
            duration(measured.low_ns),
            duration(measured.high_ns),
            duration(at_most),
            match limit.without_machine {
                Some(calm) if calm.high_ns <= at_most => format!(
                    "; with the machine's gaps taken out it is {}, which would keep it",
                    duration(calm.value_ns)
                ),
                _ => "; a longer run narrows that".into(),
            }
        ));
    }
}

/// A percentile as reports name it: `p99.9`.
pub fn percentile_name(percentile: f64) -> String {
    format!("p{percentile}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(value_ns: u64) -> Estimate {
        Estimate {
            percentile: 99.9,
            value_ns,
            low_ns: value_ns * 9 / 10,
            high_ns: value_ns * 11 / 10,
            samples: 1_000_000,
            block_ns: 10_000_000,
            blocks: 6_000,
            blocks_beyond: 500,
            correlation: 0.0,
        }
    }

    fn fine() -> Evidence {
        Evidence {
            limits: vec![LimitEvidence {
                limit: Limit { percentile: 99.9, at_most_ns: 1_000_000 },
                measured: Some(estimate(40_000)),
                without_machine: Some(estimate(38_000)),
                lag_ns: 20_000,
                jitter_ns: 30_000,
            }],
            planned_ns: 60_000_000_000,
            took_ns: 60_000_010_000,
            clock_elapsed_ns: 61_000_000_000,
            own_cores: true,
            published: 1_000_000,
            subscribers: vec![Accounts {
                delivered: 1_000_000,
                ended: true,
                digests_compared: 14,
                ..Accounts::default()
            }],
            ..Evidence::default()
        }
    }

    fn judged(change: impl FnOnce(&mut Evidence)) -> Judgement {
        let mut evidence = fine();
        change(&mut evidence);
        judge(&evidence)
    }

    #[test]
    fn a_clean_run_meets_its_limits_and_says_what_held() {
        let judgement = judged(|_| {});
        assert_eq!(judgement.verdict, Verdict::Met, "{judgement:?}");
        assert!(judgement.invalid_because.is_empty() && judgement.broken_because.is_empty());
        for said in ["rate held", "sender lag p99.9 20.0 us", "jitter p99.9", "500 blocks", "14 digests", "drift"] {
            assert!(judgement.held.iter().any(|held| held.contains(said)), "{said}: {:?}", judgement.held);
        }
    }

    #[test]
    fn each_thing_that_spoils_a_run_is_named_with_its_numbers() {
        type Spoil = fn(&mut Evidence);
        let cases: [(Spoil, &str); 14] = [
            (|run| run.stopped = true, "stopped"),
            (|run| run.took_ns = 60_700_000_000, "60.70 s taken"),
            (|run| run.limits[0].lag_ns = 100_001, "sender lag p99.9 100.0 us, 100.0 us allowed"),
            (|run| run.limits[0].jitter_ns = 250_001, "jitter p99.9 250.0 us"),
            (|run| run.clock_drift_ns = 611_001, "clock drift 611001 ns"),
            (|run| run.own_cores = false, "oversubscribed"),
            (|run| run.subscribers[0].digests_disagreed = 1, "1 of 14 digests"),
            (|run| run.subscribers[0].digests_compared = 0, "no book digest"),
            (|run| run.subscribers[0].delivered = 999, "999 were delivered"),
            (|run| run.subscribers[0].ended = false, "never came"),
            (|run| run.subscribers[0].unkept = 3, "no room"),
            (|run| run.limits[0].measured = None, "nothing was measured"),
            (|run| run.limits[0].measured = Some(Estimate { blocks_beyond: 99, ..estimate(40_000) }), "99 blocks"),
            (|run| run.limits[0].measured = Some(estimate(950_000)), "not decided"),
        ];
        for (spoil, expected) in cases {
            let judgement = judged(spoil);
            assert_eq!(judgement.verdict, Verdict::Invalid, "{expected}: {judgement:?}");
            assert!(judgement.invalid_because.iter().any(|reason| reason.contains(expected)), "{judgement:?}");
        }
    }

    #[test]
    fn a_limit_broken_without_the_machine_is_broken_however_bad_the_machine_was() {
        let judgement = judged(|run| {
            run.limits[0].measured = Some(estimate(9_000_000));
            run.limits[0].without_machine = Some(estimate(3_000_000));
            run.limits[0].jitter_ns = 5_000_000;
            run.limits[0].lag_ns = 5_000_000;
            run.took_ns *= 2;
        });
        assert_eq!(judgement.verdict, Verdict::Broken, "{judgement:?}");
        assert!(judgement.broken_because[0].contains("3.00 ms with everything"), "{judgement:?}");
        assert!(!judgement.invalid_because.is_empty(), "what was wrong with the machine is said all the same");
    }

    #[test]
    fn a_limit_broken_by_the_machine_alone_says_nothing() {
        let judgement = judged(|run| {
            run.limits[0].measured = Some(estimate(9_000_000));
            run.limits[0].without_machine = Some(estimate(40_000));
        });
        assert_eq!(judgement.verdict, Verdict::Invalid, "{judgement:?}");
        assert!(judgement.invalid_because[0].contains("would keep it"), "{judgement:?}");
    }

    #[test]
    fn nothing_excuses_books_that_disagree() {
        let judgement = judged(|run| {
            run.limits[0].without_machine = Some(estimate(9_000_000));
            run.subscribers[0].digests_disagreed = 2;
        });
        assert_eq!(judgement.verdict, Verdict::Invalid, "{judgement:?}");
    }

    #[test]
    fn named_losses_beyond_the_allowance_break_the_promise_of_a_sound_run() {
        let lose = |run: &mut Evidence| (run.subscribers[0].delivered, run.subscribers[0].lost) = (999_990, 10);
        assert_eq!(judged(lose).verdict, Verdict::Broken);
        let allowed = judged(|run| {
            lose(run);
            run.gaps_allowed = 10;
        });
        assert_eq!(allowed.verdict, Verdict::Met);
        let busy = judged(|run| {
            lose(run);
            run.limits[0].jitter_ns = 5_000_000;
        });
        assert_eq!(busy.verdict, Verdict::Invalid);
    }

    #[test]
    fn exit_codes_are_those_of_the_manual() {
        assert_eq!([Verdict::Met, Verdict::Broken, Verdict::Invalid].map(Verdict::exit_code), [0, 1, 2]);
    }
}
