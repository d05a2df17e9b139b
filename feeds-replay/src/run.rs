//! One run: the parent's side. Starts the children, tells them when to begin, watches, and brings their reports together.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use protocol::record::Lane;
use serde::Serialize;
use serde::de::DeserializeOwned;
use transport::clock::Clock;
use transport::shm;

use crate::roles;
use crate::spec::{PublisherReport, Ready, Report, Spec, Start, SubscriberReport};

/// From "both are ready" to the first message.
const LEAD_NS: u64 = 300_000_000;
/// How long a child may take to get ready: a large capture is read into memory meanwhile.
const READY_PATIENCE: Duration = Duration::from_secs(600);
/// How long a subscriber may take to come to the end after its publisher did.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// Why a run came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A process could not be started.
    #[error("this program could not start itself as {role}: {source}")]
    Spawn {
        /// As what.
        role: &'static str,
        /// The system's cause.
        source: io::Error,
    },
    /// A child said why it could not do its work.
    #[error("the {role} failed: {why}")]
    Child {
        /// Which.
        role: &'static str,
        /// In its own words.
        why: String,
    },
    /// A child went away without a report.
    #[error("the {role} (pid {pid}) went away without a word; its own messages stand above")]
    Gone {
        /// Which.
        role: &'static str,
        /// Its process id.
        pid: u32,
    },
    /// A child did not answer in time.
    #[error("the {role} (pid {pid}) did not answer within {} s and was ended", .patience.as_secs())]
    Silent {
        /// Which.
        role: &'static str,
        /// Its process id.
        pid: u32,
        /// How long it had.
        patience: Duration,
    },
    /// It was asked to stop before anything was published.
    #[error("interrupted before the run began; nothing was measured")]
    Interrupted,
    /// What was to be sent to a child could not be.
    #[error("cannot talk to the {role}: {source}")]
    Talk {
        /// Which.
        role: &'static str,
        /// The system's cause.
        source: io::Error,
    },
}

/// What both children reported.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// How it was run.
    pub spec: Spec,
    /// The publisher's report.
    pub publisher: PublisherReport,
    /// The subscriber's report.
    pub subscriber: SubscriberReport,
    /// Their process ids.
    pub pids: (u32, u32),
    /// The feed's date, in words.
    pub date: String,
    /// What the children thought worth knowing.
    pub notes: Vec<String>,
}

/// What happens while a run goes on, for whoever shows it.
pub trait Watcher {
    /// Both processes are ready.
    fn on_ready(&mut self, spec: &Spec, publisher: u32, subscriber: u32);
    /// About once a second: messages handed over so far.
    fn on_progress(&mut self, spec: &Spec, messages: u64, elapsed: Duration);
}

/// Runs `spec` to its end. When `stop` is set, the run is ended in good order and reported as far as it came.
///
/// # Errors
/// [`RunError`]; no child is left behind.
pub fn run(
    spec: &Spec,
    clock: Clock,
    stop: &Arc<AtomicBool>,
    watcher: &mut impl Watcher,
) -> Result<RunReport, RunError> {
    // The publisher first: a subscriber looks for the ring when it starts, and is attached before it says that it is ready.
    let mut publisher = Process::start("publisher", spec)?;
    let published = publisher.hear_ready(stop)?;
    let told = Spec { control: published.control.clone(), ..spec.clone() };
    let mut subscriber = Process::start("subscriber", &told)?;
    let subscribed = subscriber.hear_ready(stop)?;
    watcher.on_ready(spec, published.pid, subscribed.pid);
    let start = Start { schedule: roles::schedule(spec, clock.now().plus(LEAD_NS).0, &published) };
    subscriber.say(&start)?;
    publisher.say(&start)?;

    let began = Instant::now();
    let mut asked_to_stop = false;
    let mut subscriber_report = None;
    let publisher_report = loop {
        match publisher.try_hear::<Report>(Duration::from_millis(1000))? {
            Some(report) => break report,
            None => {
                let messages = shm::read_counters(&spec.channel, Lane::new(0))
                    .ok()
                    .and_then(|counters| counters.into_iter().find(|(name, _)| name == "messages"))
                    .map_or(0, |(_, value)| value);
                watcher.on_progress(spec, messages, began.elapsed());
            }
        }
        // A subscriber that fails or dies ends the run now, not when the publisher is through.
        if subscriber_report.is_none() {
            subscriber_report = subscriber.try_hear::<Report>(Duration::ZERO)?;
            if let Some(Report::Failed(why)) = subscriber_report {
                return Err(RunError::Child { role: "subscriber", why });
            }
        }
        // Relaxed: the flag carries nothing but itself.
        if stop.load(Ordering::Relaxed) && !asked_to_stop {
            asked_to_stop = true;
            publisher.say(&"stop")?;
        }
    };
    let publisher_report = match publisher_report {
        Report::Publisher(report) => report,
        Report::Failed(why) => return Err(RunError::Child { role: "publisher", why }),
        Report::Subscriber(_) => {
            return Err(RunError::Child { role: "publisher", why: "it answered as another".into() });
        }
    };
    if subscriber_report.is_none() {
        subscriber_report = subscriber.try_hear::<Report>(END_PATIENCE)?;
    }
    let subscriber_report = match subscriber_report {
        Some(report) => report,
        None => {
            subscriber.say(&"stop")?;
            subscriber.hear(END_PATIENCE)?
        }
    };
    let subscriber_report = match subscriber_report {
        Report::Subscriber(report) => report,
        Report::Failed(why) => return Err(RunError::Child { role: "subscriber", why }),
        Report::Publisher(_) => {
            return Err(RunError::Child { role: "subscriber", why: "it answered as another".into() });
        }
    };
    let mut notes = published.notes;
    for note in subscribed.notes.iter().chain(&publisher_report.notes).chain(&subscriber_report.notes) {
        if !notes.contains(note) {
            notes.push(note.clone());
        }
    }
    Ok(RunReport {
        spec: spec.clone(),
        publisher: publisher_report,
        subscriber: subscriber_report,
        pids: (published.pid, subscribed.pid),
        date: published.date,
        notes,
    })
}

/// A child of this executable, ended when this is dropped.
pub(crate) struct Process {
    role: &'static str,
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Process {
    pub(crate) fn start(role: &'static str, spec: &impl Serialize) -> Result<Process, RunError> {
        let spawn = |source| RunError::Spawn { role, source };
        let spec = serde_json::to_string(spec).map_err(|error| spawn(error.into()))?;
        let mut child = Command::new(std::env::current_exe().map_err(spawn)?)
            .args(["role", role, &spec])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(spawn)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(spawn(io::Error::other("its pipes are missing")));
        };
        Ok(Process { role, child, input, lines: read_lines(output) })
    }

    pub(crate) fn say(&mut self, what: &impl Serialize) -> Result<(), RunError> {
        let talk = |source| RunError::Talk { role: self.role, source };
        let text = serde_json::to_string(what).map_err(|error| talk(error.into()))?;
        writeln!(self.input, "{text}").and_then(|()| self.input.flush()).map_err(talk)
    }

    pub(crate) fn hear<T: DeserializeOwned>(&mut self, patience: Duration) -> Result<T, RunError> {
        let silent = RunError::Silent { role: self.role, pid: self.child.id(), patience };
        self.try_hear(patience)?.ok_or(silent)
    }

    /// Waits for a child to get ready, unless `stop` is set meanwhile.
    fn hear_ready(&mut self, stop: &AtomicBool) -> Result<Ready, RunError> {
        let until = Instant::now() + READY_PATIENCE;
        while Instant::now() < until {
            if let Some(ready) = self.try_hear(Duration::from_millis(100))? {
                return Ok(ready);
            }
            // Relaxed: the flag carries nothing but itself.
            if stop.load(Ordering::Relaxed) {
                return Err(RunError::Interrupted);
            }
        }
        Err(RunError::Silent { role: self.role, pid: self.child.id(), patience: READY_PATIENCE })
    }

    /// The next thing the child says, `None` if it says nothing in time.
    pub(crate) fn try_hear<T: DeserializeOwned>(&mut self, patience: Duration) -> Result<Option<T>, RunError> {
        match self.lines.recv_timeout(patience) {
            Ok(line) => match serde_json::from_str(&line) {
                Ok(said) => Ok(Some(said)),
                Err(_) => Err(self.explain(&line)),
            },
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(RunError::Gone { role: self.role, pid: self.child.id() }),
        }
    }

    /// What came instead of what was expected: most likely the child's report of a failure.
    fn explain(&self, line: &str) -> RunError {
        let why = match serde_json::from_str::<Report>(line) {
            Ok(Report::Failed(why)) => why,
            _ => format!("it said {line:?}"),
        };
        RunError::Child { role: self.role, why }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A child that has reported ends by itself; one that has not is of no use to anybody. It is given a moment to put
        // its ring away (a closed input means "stop"), then it is killed. Errors mean that it has gone already.
        let until = Instant::now() + Duration::from_secs(2);
        let _ = writeln!(self.input, "\"stop\"");
        while Instant::now() < until {
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_lines(output: ChildStdout) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines() {
            let Ok(line) = line else { return };
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}
