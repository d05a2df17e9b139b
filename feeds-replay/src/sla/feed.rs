//! A capture in memory: the messages that are wanted, of one file or several, so often as asked.
//!
//! The publishing loop is to make no system call for its feed, and a schedule needs all messages on one line of time. So
//! everything is read beforehand; what plays it is a [`FeedSource`] like any other. Each round and each file goes on where
//! the one before ended: the messages' own times are moved, their numbers go on counting, and the venue's start of day
//! stands in front of each round, so that books begin anew.

use std::collections::HashSet;
use std::path::PathBuf;

use protocol::time::Nanos;
use publisher::feed::{FeedError, FeedSource, Message, Notice};

use super::file::Choice;

/// From the last message of a round to the first of the next, ns.
const PAUSE_NS: u64 = 1_000_000;
/// The most that is held, bytes.
pub const MOST_BYTES: usize = 4 << 30;
/// Where ITCH 5.0 has its stock locate, and its time since midnight.
const LOCATE: std::ops::Range<usize> = 1..3;
const TIME: std::ops::Range<usize> = 5..11;
/// Where a stock directory message ('R') has its symbol.
const SYMBOL: std::ops::Range<usize> = 11..19;
/// The length of a system event ('S').
const SYSTEM_EVENT_LEN: usize = 12;
/// A session's messages begin ('O' in the specification's list of system events).
const START_OF_MESSAGES: u8 = b'O';

/// Why a capture cannot be replayed as asked.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The feed.
    #[error(transparent)]
    Feed(#[from] FeedError),
    /// Nothing is left.
    #[error("no message is left of {read}: {why}")]
    Nothing {
        /// Messages in the capture.
        read: u64,
        /// What they were chosen by.
        why: String,
    },
    /// It does not fit.
    #[error("{} holds more than {} MiB of messages: choose a part of it with capture.from and capture.to", .path.display(), MOST_BYTES >> 20)]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// A day of 78 hours cannot be written in ITCH.
    #[error("{rounds} rounds of {round_s} s end after what an ITCH time can say (78 hours): give fewer loops")]
    TooManyRounds {
        /// Rounds asked for.
        rounds: u32,
        /// How long one is, s.
        round_s: u64,
    },
}

#[derive(Clone, Copy)]
struct Entry {
    at: usize,
    len: u16,
    /// ns since midnight.
    time: u64,
    capture: Option<u64>,
    /// Not a message: so many are missing here.
    missing: u64,
    /// Another session begins with this one, of another file or in the same.
    begins: bool,
}

/// Messages in memory; see the [module](self).
#[derive(Default)]
pub struct Loaded {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    read: u64,
    shift: u64,
    /// Messages of the open file are put after what is there already.
    begins: bool,
    /// Messages are not ITCH: they are played as they are, once.
    as_is: bool,
}

impl Loaded {
    /// Nothing yet.
    pub fn new() -> Loaded {
        Loaded::default()
    }

    /// Reads all of `source`, which is the file `path`, and keeps what is chosen.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn read(
        &mut self,
        source: &mut impl FeedSource,
        choice: &Choice,
        path: &std::path::Path,
    ) -> Result<(), LoadError> {
        let mut wanted_locates: HashSet<[u8; 2]> = HashSet::new();
        let ended = self.entries.last().map(|last| last.time + PAUSE_NS);
        self.begins = ended.is_some();
        let mut shift = ended.map_or(Some(0), |_| None);
        loop {
            let (bytes, capture) = match source.next()? {
                Some(message) => (Some(message.bytes.to_vec()), message.capture),
                None => (None, None),
            };
            while let Some(notice) = source.poll_notice() {
                match notice {
                    Notice::Gap(missing) if !self.entries.is_empty() => {
                        let time = self.entries.last().map_or(0, |last| last.time);
                        let entry = Entry { at: 0, len: 0, time, capture: None, missing: missing.count, begins: false };
                        self.entries.push(entry);
                    }
                    Notice::Gap(_) => {}
                    Notice::Session { .. } => self.begins = true,
                }
            }
            let Some(bytes) = bytes else { break };
            self.read += 1;
            if bytes.len() < TIME.end {
                continue;
            }
            let time = time_of(&bytes);
            if bytes[0] == b'R' && bytes.len() >= SYMBOL.end && !choice.symbols.is_empty() {
                let symbol = String::from_utf8_lossy(&bytes[SYMBOL]).trim_end().to_owned();
                if choice.symbols.contains(&symbol) {
                    wanted_locates.insert([bytes[1], bytes[2]]);
                }
            }
            let locate = [bytes[LOCATE.start], bytes[LOCATE.start + 1]];
            if !choice.symbols.is_empty() && locate != [0, 0] && !wanted_locates.contains(&locate) {
                continue;
            }
            let early = choice.from_ns.is_some_and(|from| time < from);
            if choice.to_ns.is_some_and(|to| time >= to) || (early && is_of_an_order(bytes[0])) {
                continue;
            }
            // What defines instruments and their state is kept from before the window, and comes as it opens.
            let time = time.max(choice.from_ns.unwrap_or(0));
            let shift = *shift.get_or_insert_with(|| ended.unwrap_or(0).saturating_sub(time));
            let moved = if shift == 0 { time } else { time + shift };
            let Ok(len) = u16::try_from(bytes.len()) else { continue };
            if self.bytes.len() + bytes.len() > MOST_BYTES {
                return Err(LoadError::TooLong { path: path.to_owned() });
            }
            let at = self.bytes.len();
            self.bytes.extend_from_slice(&bytes);
            set_time(&mut self.bytes[at..], moved);
            let capture = capture.map(|capture| capture.0 + shift);
            let begins = std::mem::take(&mut self.begins);
            self.entries.push(Entry { at, len, time: moved, capture, missing: 0, begins });
        }
        Ok(())
    }

    /// Reads all of `source`, whose messages are not ITCH and are played as they are.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn read_as_is(&mut self, source: &mut impl FeedSource, path: &std::path::Path) -> Result<(), LoadError> {
        self.as_is = true;
        let mut begins = false;
        loop {
            let message = source.next()?.map(|message| (message.bytes.to_vec(), message.capture));
            while let Some(notice) = source.poll_notice() {
                let missing = match notice {
                    Notice::Gap(missing) => missing.count,
                    Notice::Session { .. } => 0,
                };
                begins |= missing == 0;
                if missing > 0 && !self.entries.is_empty() {
                    self.entries.push(Entry { at: 0, len: 0, time: 0, capture: None, missing, begins: false });
                }
            }
            let Some((bytes, capture)) = message else { return Ok(()) };
            self.read += 1;
            let Ok(len) = u16::try_from(bytes.len()) else { continue };
            if self.bytes.len() + bytes.len() > MOST_BYTES {
                return Err(LoadError::TooLong { path: path.to_owned() });
            }
            let at = self.bytes.len();
            self.bytes.extend_from_slice(&bytes);
            let begins = std::mem::take(&mut begins) && !self.entries.is_empty();
            self.entries.push(Entry {
                at,
                len,
                time: 0,
                capture: capture.map(|capture| capture.0),
                missing: 0,
                begins,
            });
        }
    }

    /// Messages of one round.
    pub fn messages(&self) -> u64 {
        self.entries.iter().filter(|entry| entry.missing == 0).count() as u64
    }

    /// Ready to be played `rounds` times.
    ///
    /// # Errors
    /// [`LoadError`], if nothing is left or it takes too long.
    pub fn play(mut self, rounds: u32, choice: &Choice) -> Result<Looped, LoadError> {
        let rounds = if self.as_is { 1 } else { rounds.max(1) };
        let (Some(first), Some(last)) = (self.entries.first(), self.entries.last()) else {
            let why = format!(
                "chosen were symbols {:?}, from {:?} to {:?} ns since midnight",
                choice.symbols, choice.from_ns, choice.to_ns
            );
            return Err(LoadError::Nothing { read: self.read, why });
        };
        self.shift = last.time.saturating_sub(first.time) + PAUSE_NS;
        let end = last.time.saturating_add(self.shift.saturating_mul(u64::from(rounds - 1)));
        if end >= 1 << 48 {
            return Err(LoadError::TooManyRounds { rounds, round_s: self.shift / 1_000_000_000 });
        }
        Ok(Looped {
            loaded: self,
            rounds,
            round: 0,
            next: 0,
            ordinal: 0,
            scratch: Vec::new(),
            notice: None,
            opened: true,
        })
    }
}

/// The feed; see the [module](self).
pub struct Looped {
    loaded: Loaded,
    rounds: u32,
    round: u32,
    next: usize,
    ordinal: u64,
    scratch: Vec<u8>,
    notice: Option<Notice>,
    /// The start of this round was said.
    opened: bool,
}

impl Looped {
    /// Messages in all rounds, the starts of day between them included.
    pub fn messages(&self) -> u64 {
        let opening = u64::from(self.rounds - 1) * u64::from(!self.starts_itself());
        self.loaded.messages() * u64::from(self.rounds) + opening
    }

    /// The capture has the venue's start of day as its first message.
    fn starts_itself(&self) -> bool {
        let first = self.loaded.entries[0];
        let bytes = &self.loaded.bytes[first.at..first.at + usize::from(first.len)];
        bytes[0] == b'S' && bytes.last() == Some(&START_OF_MESSAGES)
    }
}

impl FeedSource for Looped {
    #[inline]
    fn next(&mut self) -> Result<Option<Message<'_>>, FeedError> {
        loop {
            let Some(entry) = self.loaded.entries.get(self.next).copied() else {
                if self.round + 1 >= self.rounds {
                    return Ok(None);
                }
                self.round += 1;
                self.next = 0;
                self.opened = self.starts_itself();
                continue;
            };
            let shift = u64::from(self.round) * self.loaded.shift;
            self.scratch.clear();
            if !self.opened {
                self.opened = true;
                self.scratch.extend([b'S', 0, 0, 0, 0]);
                self.scratch.resize(SYSTEM_EVENT_LEN - 1, 0);
                self.scratch.push(START_OF_MESSAGES);
                set_time(&mut self.scratch, entry.time + shift);
            } else if entry.missing > 0 {
                self.next += 1;
                let missing = publisher::feed::Missing { first: self.ordinal + 1, count: entry.missing, capture: None };
                self.ordinal += entry.missing;
                self.notice = Some(Notice::Gap(missing));
                continue;
            } else {
                self.next += 1;
                if entry.begins && self.notice.is_none() {
                    self.notice =
                        Some(Notice::Session { capture: entry.capture.map(|capture| Nanos(capture + shift)) });
                }
                self.scratch.extend_from_slice(&self.loaded.bytes[entry.at..entry.at + usize::from(entry.len)]);
                if shift > 0 {
                    set_time(&mut self.scratch, entry.time + shift);
                }
            }
            self.ordinal += 1;
            return Ok(Some(Message {
                ordinal: self.ordinal,
                offset: entry.at as u64,
                capture: entry.capture.map(|capture| Nanos(capture + shift)),
                bytes: &self.scratch,
            }));
        }
    }

    fn poll_notice(&mut self) -> Option<Notice> {
        self.notice.take()
    }

    #[inline]
    fn glance(&self, limit: usize, see: &mut impl FnMut(&[u8])) {
        for entry in self.loaded.entries[self.next..].iter().take(limit).filter(|entry| entry.missing == 0) {
            see(&self.loaded.bytes[entry.at..entry.at + usize::from(entry.len)]);
        }
    }
}

/// Messages that say something of single orders, executions or auctions: what a book or a tape is made of.
fn is_of_an_order(kind: u8) -> bool {
    matches!(kind, b'A' | b'F' | b'E' | b'C' | b'X' | b'D' | b'U' | b'P' | b'Q' | b'B' | b'I' | b'N')
}

fn time_of(message: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    bytes[2..].copy_from_slice(&message[TIME]);
    u64::from_be_bytes(bytes)
}

fn set_time(message: &mut [u8], time: u64) {
    message[TIME].copy_from_slice(&time.to_be_bytes()[2..]);
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;
    use std::path::Path;

    use publisher::itch::{BinaryFile, FramingOptions};
    use publisher::pace::{Pace, Schedule};

    use super::*;
    use crate::generate::{GenerateOptions, generate};

    fn source(seed: u64) -> BinaryFile<Cursor<Vec<u8>>> {
        let mut day = Vec::new();
        let options = GenerateOptions {
            seed,
            symbols: 5,
            messages: 5_000,
            span_ns: Some(1_000_000_000),
            ..GenerateOptions::default()
        };
        generate(&options, &mut day).expect("legal");
        BinaryFile::from_reader(Cursor::new(day), Path::new("day"), FramingOptions::default())
    }

    fn loaded(choice: &Choice) -> Loaded {
        let mut loaded = Loaded::new();
        loaded.read(&mut source(1), choice, Path::new("day")).expect("a sound day");
        loaded
    }

    fn drain(feed: &mut Looped) -> Vec<(u64, u64, u8)> {
        let mut all = Vec::new();
        while let Some(message) = feed.next().expect("never fails") {
            all.push((message.ordinal, time_of(message.bytes), message.bytes[0]));
        }
        all
    }

    #[test]
    fn rounds_follow_one_another_in_number_and_time() {
        let choice = Choice::default();
        let one = drain(&mut loaded(&choice).play(1, &choice).expect("fits"));
        let mut looped = loaded(&choice).play(3, &choice).expect("fits");
        let expected = looped.messages();
        let three = drain(&mut looped);
        assert_eq!((one.len(), three.len() as u64), (5_000, expected));
        assert_eq!(three.iter().map(|m| m.0).collect::<Vec<_>>(), (1..=expected).collect::<Vec<_>>());
        assert!(three.windows(2).all(|pair| pair[0].1 <= pair[1].1), "times never go back");
        let span = one[4_999].1 - one[0].1;
        assert_eq!(three[2 * three.len() / 3].1, one[0].1 + 2 * (span + PAUSE_NS), "the third round's anchor");
        assert_eq!(three[2 * three.len() / 3].2, b'S', "a round begins with the venue's start of day");
        assert_eq!(&three[..5_000], &one[..], "the first round is the capture itself");
    }

    #[test]
    fn a_second_file_goes_on_where_the_first_ended_and_nothing_drifts() {
        let choice = Choice::default();
        let mut both = loaded(&choice);
        both.read(&mut source(2), &choice, Path::new("next")).expect("a sound day");
        let mut feed = both.play(2, &choice).expect("fits");
        let all = drain(&mut feed);
        assert!(all.windows(2).all(|pair| pair[0].1 <= pair[1].1));
        let schedule = Schedule { pace: Pace::Speed(1.0), start_ns: 77, first_ns: all[0].1, first_ordinal: 1 };
        let last = all[all.len() - 1];
        assert_eq!(schedule.intended(last.0 - 1, Nanos(last.1)), Some(Nanos(77 + last.1 - all[0].1)));
        assert_eq!(all[5_000].1 - all[4_999].1, PAUSE_NS);
    }

    #[test]
    fn drift_over_ten_minutes_is_zero_by_arithmetic() {
        // 600 rounds of 1 s and the pause between them: the last message is due where the sum says, to the ns.
        let choice = Choice::default();
        let one = drain(&mut loaded(&choice).play(1, &choice).expect("fits"));
        let (first, span) = (one[0].1, one[4_999].1 - one[0].1);
        let feed = loaded(&choice).play(600, &choice).expect("fits");
        let last = first + span + 599 * (span + PAUSE_NS);
        assert_eq!(feed.loaded.entries[4_999].time + 599 * feed.loaded.shift, last);
        for pace in [Pace::Speed(1.0), Pace::Speed(2.0), Pace::Rate(8_000.0)] {
            let schedule = Schedule { pace, start_ns: 0, first_ns: first, first_ordinal: 1 };
            let expected = match pace {
                Pace::Speed(speed) => (last - first) / speed as u64,
                _ => (feed.messages() - 1) * 125_000,
            };
            let due = schedule.intended(feed.messages() - 1, Nanos(last));
            assert_eq!(due, Some(Nanos(expected)), "{pace:?}");
            assert!(expected > 290_000_000_000);
        }
    }

    #[test]
    fn a_window_keeps_what_defines_and_symbols_leave_out_the_others() {
        let everything = Choice::default();
        let all = drain(&mut loaded(&everything).play(1, &everything).expect("fits"));
        let middle = (all[0].1 + all[4_999].1) / 2;
        let choice = Choice { from_ns: Some(middle), ..Choice::default() };
        let late = drain(&mut loaded(&choice).play(1, &choice).expect("fits"));
        assert!(late.iter().all(|m| m.1 >= middle));
        assert_eq!(late.iter().filter(|m| m.2 == b'R').count(), 5, "instruments are defined before the window");
        let orders = |list: &[(u64, u64, u8)]| list.iter().filter(|m| is_of_an_order(m.2) && m.1 >= middle).count();
        assert_eq!(orders(&late), orders(&all));

        let choice = Choice { symbols: vec!["AAA".into()], ..Choice::default() };
        let mut loaded = loaded(&choice);
        let named = loaded.bytes[SYMBOL].to_vec();
        let count = loaded.messages();
        assert!(count < 5_000, "{count} {named:?}");
        loaded.entries.clear();
        assert!(matches!(loaded.play(1, &choice), Err(LoadError::Nothing { .. })));
    }
}
