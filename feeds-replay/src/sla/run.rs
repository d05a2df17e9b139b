//! One case, run: the parent's side. Starts one publisher and the subscribers, tells them when to begin, watches.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use protocol::record::Lane;
use publisher::pace::Schedule;
use transport::clock::Clock;
use transport::shm;

use super::file::{Case, Hindrance};
use super::spec::{Planned, Progress, Said, SeenReport, SentReport, SlaSpec};
use crate::run::{Process, RunError};
use crate::spec::{Feed, RdmaSpec, Ready, Spec, Start};

/// From "all are ready" to the first message.
const LEAD_NS: u64 = 300_000_000;
/// How long a child may take to get ready: a large capture is read into memory meanwhile.
const READY_PATIENCE: Duration = Duration::from_secs(600);
/// How long a child may take to come to its end after the publisher did: it writes its log.
const END_PATIENCE: Duration = Duration::from_secs(60);
/// How long a subscriber may be silent on its way to the end of the stream, at first.
const CATCH_UP_PATIENCE: Duration = Duration::from_secs(30);
/// Samples kept for each subscriber at most: 32 bytes each.
pub const MOST_SAMPLES: usize = 24 << 20;

/// What all cases of one command share.
#[derive(Clone, Debug)]
pub struct Setup {
    /// What is published.
    pub feed: Feed,
    /// Lines in the ring.
    pub ring_lines: usize,
    /// Sizes of the books.
    pub books: (usize, usize, usize),
    /// RDMA ports.
    pub rdma: Option<RdmaSpec>,
    /// Which cores may be used, in order.
    pub cores: Vec<usize>,
}

/// What the processes of a case reported, and where their logs are.
#[derive(Clone, Debug)]
pub struct RawRun {
    /// The case.
    pub case: Case,
    /// When what was due.
    pub schedule: Schedule,
    /// The publisher's report.
    pub sent: SentReport,
    /// The subscribers' reports.
    pub seen: Vec<SeenReport>,
    /// The cores of publisher and subscribers; empty if there were not enough.
    pub cores: Vec<usize>,
    /// Their process ids, the publisher's first.
    pub pids: Vec<u32>,
    /// The feed's date, in words.
    pub date: String,
    /// What the children thought worth knowing.
    pub notes: Vec<String>,
    /// The clock's numbers.
    pub clock: String,
    /// What the publisher found its feed to be.
    pub planned: Planned,
    /// Where the logs are.
    pub folder: PathBuf,
}

/// How a case goes on, for whoever shows it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Live {
    /// The case's name.
    pub case: String,
    /// Messages handed over, and all of them.
    pub messages: u64,
    /// See `messages`.
    pub planned: u64,
    /// The sender's highest lag so far, ns.
    pub lag_max_ns: u64,
    /// Each subscriber's last word.
    pub subscribers: Vec<Progress>,
    /// Since the start.
    pub elapsed: Duration,
}

/// Shows how a case goes on.
pub trait Watcher {
    /// All processes are ready; their ids, the publisher's first.
    fn on_ready(&mut self, case: &Case, pids: &[u32]);
    /// About twice a second.
    fn on_live(&mut self, live: &Live);
}

/// Nobody looks.
impl Watcher for () {
    fn on_ready(&mut self, _: &Case, _: &[u32]) {}
    fn on_live(&mut self, _: &Live) {}
}

/// Runs `case` to its end, with logs in `folder`. When `stop` is set, it is ended in good order and reported as far as it
/// came.
///
/// # Errors
/// [`RunError`]; no child is left behind.
pub fn run_case(
    setup: &Setup,
    case: &Case,
    folder: &Path,
    clock: Clock,
    stop: &AtomicBool,
    watcher: &mut impl Watcher,
) -> Result<RawRun, RunError> {
    let mut spec = first_spec(setup, case, folder, clock);
    let cores = std::mem::take(&mut spec.0);
    let mut spec = spec.1;
    let mut publisher = Process::start("sla-publisher", &spec)?;
    let (published, planned) = hear_ready(&mut publisher, "publisher", stop)?;
    spec.run.control = published.control.clone();
    spec.room = (planned.messages as usize * 2 + 65_536).min(MOST_SAMPLES);
    let mut subscribers = Vec::with_capacity(case.subscribers);
    let mut pids = vec![published.pid];
    let mut notes = published.notes.clone();
    for subscriber in 0..case.subscribers {
        spec.subscriber = subscriber;
        spec.core = cores.get(1 + subscriber).copied();
        spec.hindrance = if subscriber + 1 == case.subscribers { case.hindrance } else { Hindrance::default() };
        let mut process = Process::start("sla-subscriber", &spec)?;
        let (ready, _) = hear_ready(&mut process, "subscriber", stop)?;
        pids.push(ready.pid);
        notes.extend(ready.notes);
        subscribers.push(process);
    }
    watcher.on_ready(case, &pids);
    let schedule = Schedule {
        pace: case.pace,
        start_ns: clock.now().plus(LEAD_NS + room_ns(spec.room)).0,
        first_ns: published.first_ns,
        first_ordinal: published.first_ordinal,
    };
    for process in subscribers.iter_mut().chain([&mut publisher]) {
        process.say(&Start { schedule })?;
    }

    let began = Instant::now();
    let mut live = Live {
        case: case.name.clone(),
        planned: planned.messages,
        subscribers: vec![Progress::default(); case.subscribers],
        ..Live::default()
    };
    let mut seen: Vec<Option<SeenReport>> = vec![None; case.subscribers];
    let mut asked_to_stop = false;
    let sent = loop {
        let said = publisher.try_hear::<Said>(Duration::from_millis(250))?;
        if let Some(said) = said {
            break expect(said, "publisher", |said| match said {
                Said::Sent(report) => Some(report),
                _ => None,
            })?;
        }
        // A subscriber that fails or dies ends the run now, not when the publisher is through.
        for (at, process) in subscribers.iter_mut().enumerate() {
            listen(process, Duration::ZERO, &mut live.subscribers[at], &mut seen[at])?;
        }
        for (name, value) in shm::read_counters(&spec.run.channel, Lane::new(0)).unwrap_or_default() {
            match name.as_str() {
                "messages" => live.messages = value,
                "sender lag max ns" => live.lag_max_ns = value,
                _ => {}
            }
        }
        live.elapsed = began.elapsed();
        watcher.on_live(&live);
        // Relaxed: the flag carries nothing but itself.
        if stop.load(Ordering::Relaxed) && !asked_to_stop {
            asked_to_stop = true;
            publisher.say(&"stop")?;
        }
    };
    for (at, process) in subscribers.iter_mut().enumerate() {
        bring_home(process, &mut live.subscribers[at], &mut seen[at])?;
    }
    let seen: Vec<SeenReport> = seen.into_iter().flatten().collect();
    for note in sent.turns.notes.iter().chain(seen.iter().flat_map(|report| &report.turns.notes)) {
        notes.push(note.clone());
    }
    notes.dedup();
    Ok(RawRun {
        case: case.clone(),
        schedule,
        sent,
        seen,
        cores,
        pids,
        date: published.date,
        notes,
        clock: spec.run.clock,
        planned,
        folder: folder.to_owned(),
    })
}

/// Where a run's cores are, and what its publisher is started with.
fn first_spec(setup: &Setup, case: &Case, folder: &Path, clock: Clock) -> (Vec<usize>, SlaSpec) {
    let threads = 1 + case.subscribers;
    let cores = setup.cores.len().checked_sub(threads).map_or(Vec::new(), |from| setup.cores[from..].to_vec());
    let pid = std::process::id();
    let [high, low] = ((pid % 65_536) as u16).to_be_bytes();
    // Runs of one parent follow one another; the name keeps a ring that was left behind apart all the same.
    static RUNS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = RUNS.fetch_add(1, Ordering::Relaxed);
    let run = Spec {
        transport: case.transport,
        feed: setup.feed.clone(),
        pace: case.pace,
        channel: format!("sla-{pid}-{number}-{}", case.transport.name()),
        ring_lines: setup.ring_lines,
        group: [239, 255, high, low].into(),
        port: 20_000 + (pid % 40_000) as u16,
        rdma: setup.rdma.clone(),
        control: None,
        log: None,
        clock: clock.to_parts().to_string(),
        cores: match cores[..] {
            [publisher, subscriber, ..] => Some((publisher, subscriber)),
            _ => None,
        },
        books: setup.books,
    };
    let spec = SlaSpec {
        run,
        choice: case.choice.clone(),
        percentiles: case.limits.iter().map(|limit| limit.percentile).collect(),
        folder: folder.to_owned(),
        subscriber: 0,
        core: cores.first().copied(),
        hindrance: Hindrance::default(),
        room: 0,
    };
    (cores, spec)
}

/// Subscribers touch the memory of their logs before the start, at a GB a second or better.
fn room_ns(room: usize) -> u64 {
    room as u64 * 40
}

fn hear_ready(process: &mut Process, role: &'static str, stop: &AtomicBool) -> Result<(Ready, Planned), RunError> {
    let until = Instant::now() + READY_PATIENCE;
    while Instant::now() < until {
        if let Some(said) = process.try_hear::<Said>(Duration::from_millis(100))? {
            return expect(said, role, |said| match said {
                Said::Ready(ready, planned) => Some((ready, planned)),
                _ => None,
            });
        }
        // Relaxed: the flag carries nothing but itself.
        if stop.load(Ordering::Relaxed) {
            return Err(RunError::Interrupted);
        }
    }
    process.hear::<Said>(Duration::ZERO).and_then(|said| expect(said, role, |_| None))
}

/// Takes what is expected out of what was said.
fn expect<T>(said: Said, role: &'static str, take: impl FnOnce(Said) -> Option<T>) -> Result<T, RunError> {
    match said {
        Said::Failed(why) => Err(RunError::Child { role, why }),
        said => take(said).ok_or_else(|| RunError::Child { role, why: "it answered as another".into() }),
    }
}

/// Takes in what a subscriber has said, waiting at most `patience` for its first word.
fn listen(
    process: &mut Process,
    patience: Duration,
    progress: &mut Progress,
    seen: &mut Option<SeenReport>,
) -> Result<bool, RunError> {
    let mut wait = patience;
    let mut heard = false;
    while seen.is_none() {
        let Some(said) = process.try_hear::<Said>(wait)? else { break };
        wait = Duration::ZERO;
        heard = true;
        match said {
            Said::Progress(said) => *progress = said,
            said => {
                *seen = Some(expect(said, "subscriber", |said| match said {
                    Said::Seen(report) => Some(report),
                    _ => None,
                })?);
            }
        }
    }
    Ok(heard)
}

/// Waits for a subscriber's report. One that is behind goes on as long as it gets further.
fn bring_home(process: &mut Process, progress: &mut Progress, seen: &mut Option<SeenReport>) -> Result<(), RunError> {
    let mut until = Instant::now() + CATCH_UP_PATIENCE;
    let mut lines = progress.lines;
    while seen.is_none() && Instant::now() < until {
        listen(process, Duration::from_millis(250), progress, seen)?;
        if progress.lines > lines {
            lines = progress.lines;
            until = Instant::now() + CATCH_UP_PATIENCE;
        }
    }
    if seen.is_none() {
        process.say(&"stop")?;
        let until = Instant::now() + END_PATIENCE;
        while seen.is_none() && Instant::now() < until {
            listen(process, Duration::from_millis(250), progress, seen)?;
        }
    }
    if seen.is_none() {
        *seen = Some(expect(process.hear::<Said>(Duration::ZERO)?, "subscriber", |said| match said {
            Said::Seen(report) => Some(report),
            _ => None,
        })?);
    }
    Ok(())
}
