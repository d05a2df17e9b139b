//! Logs in files: a thread writes what hot loops hand over without waiting. What a log says is [`protocol::log`]'s affair.
//!
//! Entries go through a bounded queue of a fixed size. The thread looks into it a thousand times a second and is never woken,
//! so that handing over costs no system call; when it is full the recorder is told, and names in the log what is missing.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, SyncSender, TryRecvError, TrySendError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use protocol::arbiter::Gap;
use protocol::line::Line;
use protocol::log::{Begin, ENTRY_LEN, Entry, EntrySink, OwnDigest, Recorder, Role};
use protocol::record::Kind;
use protocol::run::LossCause;
use protocol::time::Nanos;

use crate::lane::LaneTx;
use crate::packets::Cutter;
use crate::ring::RingWriter;

/// Entries that can wait: what 4 million lines become, more than a second's worth at any rate that a ring is read at.
const QUEUE_ENTRIES: usize = 1 << 16;
/// Between two looks of the thread into an empty queue.
const NAP: Duration = Duration::from_millis(1);
/// Lines that a publisher's log takes at once.
const LINES_AT_ONCE: usize = 256;

/// Why there is no log, or no whole one.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The file.
    #[error("the log {}: {source}", .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// The system's cause.
        source: io::Error,
    },
    /// Something else has that name.
    #[error("{} is there already and is no log of this version; give another name", .path.display())]
    NotALog {
        /// Which.
        path: PathBuf,
    },
    /// The thread that writes.
    #[error("a thread for the log {} could not be started: {source}", .path.display())]
    Thread {
        /// Which.
        path: PathBuf,
        /// The system's cause.
        source: io::Error,
    },
}

/// The hot loop's end of a log.
#[derive(Debug)]
pub struct LogSink {
    entries: SyncSender<Entry>,
}

impl EntrySink for LogSink {
    /// No allocation, no lock and no system call: the queue has its places, and its receiver never sleeps on it.
    #[inline]
    fn put(&mut self, entry: &Entry) -> bool {
        // A loop that panics has not come to an end in good order, and its log does not say so.
        if std::thread::panicking() {
            return false;
        }
        match self.entries.try_send(*entry) {
            Ok(()) => true,
            // Nobody writes any more: the keeper says why.
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }
}

/// The thread that writes a log. It ends when the sink is dropped, which closes the log.
#[derive(Debug)]
pub struct LogKeeper {
    path: PathBuf,
    thread: JoinHandle<io::Result<()>>,
}

impl LogKeeper {
    /// Whether nothing is written any more: the log was closed, or could not be written.
    pub fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits until everything is written. To be called after the [`Recorder`] was dropped: it would wait for that.
    ///
    /// # Errors
    /// What kept it from being written: everything before that is in the file.
    pub fn finish(self) -> Result<(), LogError> {
        let outcome =
            self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread that writes it panicked")));
        outcome.map_err(|source| LogError::File { path: self.path, source })
    }
}

/// Opens a log for a participant of the channel `name`. A file that holds a log is continued: what another process wrote stays,
/// but for half an entry at its end.
///
/// # Errors
/// [`LogError`].
pub fn open(path: &Path, role: Role, name: &str, lane: u16) -> Result<(Recorder<LogSink>, LogKeeper), LogError> {
    let fault = |source| LogError::File { path: path.to_owned(), source };
    let (file, number) = open_file(path).map_err(fault)?.ok_or_else(|| LogError::NotALog { path: path.to_owned() })?;
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let begin = Begin { role, lane, pid: std::process::id(), time_ns: time, name_len: 0 };
    let mut writer = Writer { out: BufWriter::with_capacity(1 << 16, file), number };
    for entry in Entry::beginning(begin, name) {
        writer.write(&entry).map_err(fault)?;
    }
    writer.out.flush().map_err(fault)?;
    let (sender, receiver) = mpsc::sync_channel(QUEUE_ENTRIES);
    let thread = std::thread::Builder::new().name("log".into()).spawn(move || writer.run(&receiver));
    let thread = thread.map_err(|source| LogError::Thread { path: path.to_owned(), source })?;
    Ok((Recorder::new(LogSink { entries: sender }), LogKeeper { path: path.to_owned(), thread }))
}

/// The file, and the number of the next entry; `None` if it holds something else.
fn open_file(path: &Path) -> io::Result<Option<(File, u64)>> {
    let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    let len = file.metadata()?.len();
    let entries = len / ENTRY_LEN as u64;
    if len > 0 {
        let mut first = [0; ENTRY_LEN];
        if entries == 0
            || file.read_exact(&mut first).is_err()
            || !matches!(Entry::read(&first, 0), Ok(Entry::Begin(_)))
        {
            return Ok(None);
        }
    }
    file.set_len(entries * ENTRY_LEN as u64)?;
    file.seek(SeekFrom::End(0))?;
    Ok(Some((file, entries)))
}

struct Writer {
    out: BufWriter<File>,
    /// Of the next entry.
    number: u64,
}

impl Writer {
    fn write(&mut self, entry: &Entry) -> io::Result<()> {
        self.out.write_all(&entry.seal(self.number))?;
        self.number += 1;
        Ok(())
    }

    fn run(mut self, entries: &Receiver<Entry>) -> io::Result<()> {
        loop {
            match entries.try_recv() {
                Ok(entry) => self.write(&entry)?,
                Err(TryRecvError::Empty) => {
                    self.out.flush()?;
                    std::thread::sleep(NAP);
                }
                Err(TryRecvError::Disconnected) => {
                    self.out.flush()?;
                    return self.out.get_ref().sync_all();
                }
            }
        }
    }
}

/// A publisher's log: a lane that sends nowhere, and writes down what the ring holds. It costs the publishing loop a branch
/// per flush when there is none.
pub struct LogTx {
    recorder: Recorder<LogSink>,
    cutter: Cutter,
    ended: bool,
}

impl LogTx {
    /// A log of what `ring` publishes from now on.
    pub fn new(mut recorder: Recorder<LogSink>, ring: &RingWriter) -> LogTx {
        let cutter = Cutter::new(ring);
        recorder.on_joined(cutter.cursor());
        LogTx { recorder, cutter, ended: false }
    }

    fn take(&mut self, ring: &RingWriter, now: Nanos) {
        let first = self.cutter.cursor();
        let count = self.cutter.catch_up(ring);
        if count > 0 {
            // It is flushed before a sixteenth of the ring is written; if ever it was not, the log says so.
            self.recorder.on_gap(Gap { first, count, cause: LossCause::Lapped });
        }
        loop {
            let mut first = self.cutter.cursor();
            let Some(packet) = self.cutter.cut(ring, LINES_AT_ONCE, now) else { return };
            for lines in [packet.lines.0, packet.lines.1] {
                record(&mut self.recorder, first, lines);
                first = first.plus(lines.len() as u64);
            }
        }
    }
}

fn record(recorder: &mut Recorder<LogSink>, first: protocol::line::Stamp, lines: &[Line]) {
    for (at, line) in lines.iter().enumerate() {
        if line.record.kind == Kind::BOOK_DIGEST {
            let own = OwnDigest::of_record(&line.record);
            recorder.on_digest(first.plus(at as u64), line.record.instrument_id(), own);
        }
    }
    if !lines.is_empty() {
        recorder.on_lines(first, lines);
    }
}

impl LaneTx for LogTx {
    /// Nothing is sent: what goes on without it still needs its signs of life.
    #[inline]
    fn flush(&mut self, ring: &RingWriter, now: Nanos) -> usize {
        if !self.cutter.is_at_head(ring) {
            self.take(ring, now);
        }
        0
    }

    fn heartbeat(&mut self, ring: &RingWriter, now: Nanos, ended: bool) {
        self.flush(ring, now);
        if ended && !std::mem::replace(&mut self.ended, true) {
            self.recorder.on_end(self.cutter.cursor());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::line::{Epoch, SequenceNumber, Stamp};
    use protocol::log::Checker;
    use protocol::record::{ChannelId, InstrumentId, Lane, Record};

    fn ring(epoch: u16) -> RingWriter {
        RingWriter::anonymous(ChannelId::new(1), Lane::new(0), Epoch(epoch), 64).expect("a ring without a name")
    }

    fn publish(ring: &mut RingWriter, lane: &mut LogTx, count: usize) {
        for _ in 0..count {
            ring.put(&Line::seal(Record::new(Kind::ADD, InstrumentId(1)), ring.next()));
            if ring.unflushed() >= 4 {
                ring.flush();
                assert_eq!(lane.flush(ring, Nanos(1)), 0);
            }
        }
        ring.flush();
        lane.flush(ring, Nanos(1));
    }

    fn check(path: &Path) -> protocol::log::History {
        let mut checker = Checker::new();
        checker.add("log", &std::fs::read(path).expect("reads"));
        checker.finish()
    }

    #[test]
    fn what_a_publisher_logs_is_what_it_published_and_a_restart_goes_on_in_the_same_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.log");
        for epoch in 1..=3 {
            let (recorder, keeper) =
                open(&path, Role::Publisher, "a channel with a name of thirty-eight", 2).expect("opens");
            let mut ring = ring(epoch);
            let mut lane = LogTx::new(recorder, &ring);
            publish(&mut ring, &mut lane, 1000);
            lane.heartbeat(&ring, Nanos(2), true);
            lane.heartbeat(&ring, Nanos(2), true);
            drop(lane);
            keeper.finish().expect("writes");
            // What a process left behind that was killed while it wrote.
            if epoch == 2 {
                let file = OpenOptions::new().append(true).open(&path);
                file.and_then(|mut file| file.write_all(&[7; 13])).expect("appends");
            }
        }
        let history = check(&path);
        assert!(history.is_sound(), "{:?}", history.problems);
        let parts = &history.logs[0].sections;
        assert_eq!(parts.len(), 3);
        for (part, epoch) in parts.iter().zip(1..) {
            let end = Stamp::new(Epoch(epoch), SequenceNumber(1001));
            assert_eq!((part.lines, part.ended, part.next, part.closed), (1000, Some(end), Some(end), true));
            assert_eq!((part.channel.as_str(), part.begin.lane), ("a channel with a name of thirty-eight", 2));
        }
    }

    #[test]
    fn a_file_that_is_no_log_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("precious.txt");
        for text in ["short", "something that is a good deal longer than forty bytes"] {
            std::fs::write(&path, text).expect("writes");
            let error = open(&path, Role::Subscriber, "x", 0).expect_err("is no log").to_string();
            assert!(error.contains("precious.txt"), "{error}");
            assert_eq!(std::fs::read_to_string(&path).expect("reads"), text);
        }
        assert!(open(&folder.path().join("no/such/folder"), Role::Subscriber, "x", 0).is_err());
    }

    #[test]
    fn a_log_on_a_full_disk_says_so_and_its_loop_goes_on() {
        let full = OpenOptions::new().write(true).open("/dev/full").expect("every Linux has it");
        let writer = Writer { out: BufWriter::new(full), number: 0 };
        let (sender, receiver) = mpsc::sync_channel(4);
        let thread = std::thread::spawn(move || writer.run(&receiver));
        let keeper = LogKeeper { path: "/dev/full".into(), thread };
        let mut recorder = Recorder::new(LogSink { entries: sender });
        let stamp = |sequence| Stamp::new(Epoch(1), SequenceNumber(sequence));
        recorder.on_joined(stamp(1));
        while !keeper.is_over() {
            std::thread::yield_now();
        }
        recorder.on_gap(Gap { first: stamp(1), count: 1, cause: LossCause::Missing });
        assert_eq!(recorder.unlogged(), 1);
        drop(recorder);
        let error = keeper.finish().expect_err("a full disk").to_string();
        assert!(error.contains("/dev/full") && error.contains("No space"), "{error}");
    }

    #[test]
    fn what_the_queue_had_no_room_for_is_named_in_the_log() {
        let (sender, receiver) = mpsc::sync_channel(4);
        let mut recorder = Recorder::new(LogSink { entries: sender });
        let stamp = |sequence| Stamp::new(Epoch(1), SequenceNumber(sequence));
        let lines: Vec<Line> =
            (1..=64 * 20).map(|at| Line::seal(Record::new(Kind::ADD, InstrumentId(1)), stamp(at))).collect();
        recorder.on_joined(stamp(1));
        recorder.on_lines(stamp(1), &lines[..640]);
        let mut entries: Vec<Entry> = receiver.try_iter().collect();
        assert_eq!((entries.len(), recorder.unlogged()), (4, 7));
        recorder.on_lines(stamp(641), &lines[640..704]);
        entries.extend(receiver.try_iter());
        drop(recorder);
        entries.extend(receiver.try_iter());
        assert_eq!(entries[4], Entry::Unlogged { until: stamp(641), entries: 7 });
        assert_eq!(entries.last(), Some(&Entry::Closed { at: stamp(705) }));
    }
}
