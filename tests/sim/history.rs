//! What the participants of a run write down, and whether it holds together.

use std::cell::RefCell;
use std::rc::Rc;

use protocol::line::{Line, Stamp};
use protocol::log::{Begin, Checker, Entry, EntrySink, OwnDigest, Recorder, Role};
use protocol::record::Kind;

/// One participant's log, in memory.
#[derive(Clone, Default)]
pub(crate) struct Notes(Rc<RefCell<Vec<Entry>>>);

impl EntrySink for Notes {
    fn put(&mut self, entry: &Entry) -> bool {
        self.0.borrow_mut().push(*entry);
        true
    }
}

/// The logs of a run.
#[derive(Default)]
pub(crate) struct Logs(Vec<(Role, String, Notes)>);

impl Logs {
    /// Another participant's.
    pub(crate) fn begin(&mut self, role: Role, name: String) -> Recorder<Notes> {
        let notes = Notes::default();
        self.0.push((role, name, notes.clone()));
        Recorder::new(notes)
    }

    /// Checks them together, as `feeds-replay check` does. Returns how many lines and digests were held against another log.
    pub(crate) fn check(&self, seed: u64) -> (u64, u64) {
        let mut checker = Checker::new();
        for (role, name, notes) in &self.0 {
            let begin = Begin { role: *role, lane: 0, pid: 0, time_ns: 0, name_len: 0 };
            let beginning = Entry::beginning(begin, "sim");
            let notes = notes.0.borrow();
            let bytes: Vec<u8> =
                beginning.iter().chain(notes.iter()).zip(0..).flat_map(|(entry, number)| entry.seal(number)).collect();
            checker.add(name, &bytes);
        }
        let history = checker.finish();
        for problem in &history.problems {
            println!("seed {seed}: {} at byte {}: {}", history.logs[problem.log].name, problem.offset, problem.wrong);
        }
        assert!(history.is_sound(), "seed {seed}: {} problems in the logs", history.problems_total);
        (history.totals.lines_compared, history.totals.digests_compared)
    }
}

/// Writes down what a publisher published.
pub(crate) fn publish(recorder: &mut Recorder<Notes>, first: Stamp, lines: &[Line]) {
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| line.record.kind == Kind::BOOK_DIGEST) {
        let own = OwnDigest::of_record(&line.record);
        recorder.on_digest(first.plus(at as u64), line.record.instrument_id(), own);
    }
    recorder.on_lines(first, lines);
}
