//! Reads the logs of a channel's participants, and says what is wrong with their common history.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::entry::{BLOCK_LINES, Begin, ENTRY_LEN, Entry, Role};
use super::problem::{Problem, Wrong};
use crate::line::{Epoch, SequenceNumber, Stamp};
use crate::record::InstrumentId;
use crate::run::LossCause;

/// Problems that are kept; more are counted.
const MAX_PROBLEMS: usize = 1000;

/// One process's part of a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Section {
    /// Who, and when.
    pub begin: Begin,
    /// The channel's name.
    pub channel: String,
    /// Where the stream was taken up; `None` if nothing ever came.
    pub joined: Option<Stamp>,
    /// The stamp that would come next.
    pub next: Option<Stamp>,
    /// Lines delivered, or published.
    pub lines: u64,
    /// Gaps named.
    pub gaps: u64,
    /// Lines in them, by cause: lapped, unverified, missing.
    pub lost: [u64; 3],
    /// Epochs begun after the first.
    pub epochs: u64,
    /// Digests of books that could be read.
    pub digests: u64,
    /// BookDigests at which the own book could not be read.
    pub unread: u64,
    /// Entries that there was no room for.
    pub unlogged: u64,
    /// Where the stream is said to have ended, the last time.
    pub ended: Option<Stamp>,
    /// It was ended in good order.
    pub closed: bool,
}

impl Section {
    /// Lines named as lost.
    pub fn lost_total(&self) -> u64 {
        self.lost.iter().fold(0, |sum, lost| sum.saturating_add(*lost))
    }
}

/// One log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogSummary {
    /// What the caller calls it.
    pub name: String,
    /// Its bytes.
    pub bytes: u64,
    /// Bytes at the end that are less than an entry: it was cut off while it was written.
    pub cut_bytes: u64,
    /// Its parts, in order.
    pub sections: Vec<Section>,
}

/// How many different lines there are in runs of lines that are sorted, and may overlap.
fn together(runs: impl Iterator<Item = (usize, Stamp, u64)>) -> u64 {
    let mut covered = (0, Stamp(0));
    let mut lines = 0;
    for (channel, first, count) in runs {
        let end = (channel, first.plus(count));
        let from = covered.max((channel, first));
        if end > from {
            lines += end.1.0 - from.1.0;
            covered = end;
        }
    }
    lines
}

/// What was compared, over all logs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Different lines in all logs together.
    pub lines: u64,
    /// Those of them whose sums could be held against another log's.
    pub lines_compared: u64,
    /// Different BookDigests in all logs together.
    pub digests: u64,
    /// Those of them for which at least two logs have a book that could be read.
    pub digests_compared: u64,
}

/// What the logs come to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct History {
    /// Each log.
    pub logs: Vec<LogSummary>,
    /// What is wrong, at most a thousand things, in the order of logs and places.
    pub problems: Vec<Problem>,
    /// How many things are wrong.
    pub problems_total: u64,
    /// What was compared.
    pub totals: Totals,
    /// Epochs that subscribers had lines of and no publisher's log has, though there are logs of publishers of that channel.
    pub unpublished: Vec<(String, Epoch)>,
}

impl History {
    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.problems_total == 0
    }
}

/// Where an entry stands.
#[derive(Clone, Copy)]
struct Place {
    log: usize,
    offset: u64,
}

/// Lines that are one entry in some log, or several that lie together.
#[derive(Clone, Copy)]
struct Run {
    sum: u64,
    place: Place,
    compared: bool,
}

struct DigestSeen {
    book: Option<(u64, Place)>,
    first: Place,
    published: bool,
    compared: bool,
}

/// What the publishers of one epoch wrote.
#[derive(Default)]
struct Published {
    /// First and end of what each wrote without a break, with the log.
    ranges: Vec<(Stamp, Stamp, usize)>,
    /// Logs in which every digest stands.
    whole: Vec<usize>,
    /// Where they said that the stream ends.
    ends: Vec<Stamp>,
    /// One was cut off, or has holes: it may have published more than it says.
    open: bool,
}

/// See the [module](super).
#[derive(Default)]
pub struct Checker {
    lossless: bool,
    logs: Vec<LogSummary>,
    problems: Vec<Problem>,
    problems_total: u64,
    channels: Vec<String>,
    runs: HashMap<(usize, Stamp, u64), Run>,
    digests: BTreeMap<(usize, Stamp, u32), DigestSeen>,
    published: BTreeMap<(usize, Epoch), Published>,
    /// The farthest that anybody came, and where the end was said to be, by epoch, for those that published nothing.
    reached: Vec<(usize, Stamp, Place)>,
    ends: Vec<(usize, Stamp, Place)>,
}

impl Checker {
    /// A checker that has read nothing.
    pub fn new() -> Checker {
        Checker::default()
    }

    /// Takes a gap, an entry that was not logged, and a log that does not come to the stream's end for wrong too.
    pub fn lossless(mut self) -> Checker {
        self.lossless = true;
        self
    }

    /// Reads one log, `name` being what the report calls it.
    pub fn add(&mut self, name: &str, bytes: &[u8]) {
        let log = self.logs.len();
        let whole = bytes.len() / ENTRY_LEN * ENTRY_LEN;
        self.logs.push(LogSummary {
            name: name.to_owned(),
            bytes: bytes.len() as u64,
            cut_bytes: (bytes.len() - whole) as u64,
            sections: Vec::new(),
        });
        let mut reader =
            LogReader { checker: self, place: Place { log, offset: 0 }, part: None, newest: HashMap::new() };
        let (entries, _) = bytes.as_chunks::<ENTRY_LEN>();
        for (number, entry) in entries.iter().enumerate() {
            reader.place.offset = (number * ENTRY_LEN) as u64;
            match Entry::read(entry, number as u64) {
                Ok(entry) => reader.take(entry),
                Err(_) if number == 0 => {
                    reader.wrong(Wrong::NotALog);
                    break;
                }
                Err(error) => {
                    reader.wrong(error.into());
                    break;
                }
            }
        }
        reader.end_part();
    }

    /// Holds the logs against each other, and says what they come to.
    pub fn finish(mut self) -> History {
        self.check_reach();
        let mut unpublished: Vec<(usize, Epoch)> = Vec::new();
        for (channel, next, _) in &self.reached {
            let key = (*channel, next.epoch());
            let has_publisher = self.published.keys().any(|(of, _)| of == channel);
            if has_publisher && !self.published.contains_key(&key) && !unpublished.contains(&key) {
                unpublished.push(key);
            }
        }
        let never_sent: Vec<_> = self.digests.iter().filter_map(|(key, seen)| self.never_sent(key, seen)).collect();
        never_sent.into_iter().for_each(|problem| self.wrong(problem));
        let mut totals = Totals::default();
        let mut runs: Vec<_> =
            self.runs.iter().map(|((channel, first, count), run)| (*channel, *first, *count, run)).collect();
        runs.sort_unstable_by_key(|(channel, first, count, _)| (*channel, *first, *count));
        // A log may begin or break off within a block that another one has whole: such runs overlap.
        totals.lines = together(runs.iter().map(|(channel, first, count, _)| (*channel, *first, *count)));
        let compared = runs.iter().filter(|(.., run)| run.compared);
        totals.lines_compared = together(compared.map(|(channel, first, count, _)| (*channel, *first, *count)));
        for seen in self.digests.values() {
            totals.digests += 1;
            totals.digests_compared += u64::from(seen.compared);
        }
        self.problems.sort_by_key(|problem| (problem.log, problem.offset));
        let channels = self.channels;
        History {
            logs: self.logs,
            problems: self.problems,
            problems_total: self.problems_total,
            totals,
            unpublished: unpublished.into_iter().map(|(channel, epoch)| (channels[channel].clone(), epoch)).collect(),
        }
    }

    fn wrong(&mut self, problem: Problem) {
        self.problems_total += 1;
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(problem);
        }
    }

    fn channel(&mut self, name: &str) -> usize {
        self.channels.iter().position(|known| known == name).unwrap_or_else(|| {
            self.channels.push(name.to_owned());
            self.channels.len() - 1
        })
    }

    /// Nobody has more than the publishers wrote, where all of them say how much that was.
    fn check_reach(&mut self) {
        let reached = std::mem::take(&mut self.reached);
        for (channel, next, place) in &reached {
            let Some(published) = self.published.get(&(*channel, next.epoch())).filter(|those| !those.open) else {
                continue;
            };
            let end = published.ranges.iter().map(|(_, end, _)| *end).max().unwrap_or(Stamp(0));
            if *next > end {
                let wrong = Wrong::BeyondTheEnd { found: *next, end };
                self.wrong(Problem { log: place.log, offset: place.offset, wrong });
            }
        }
        self.reached = reached;
        for (channel, at, place) in std::mem::take(&mut self.ends) {
            let Some(published) = self.published.get(&(channel, at.epoch())).filter(|those| !those.open) else {
                continue;
            };
            if !published.ends.contains(&at) {
                let wrong = Wrong::EndNotPublished { found: at };
                self.wrong(Problem { log: place.log, offset: place.offset, wrong });
            }
        }
    }

    /// A digest where the publisher's whole log has none.
    fn never_sent(&self, key: &(usize, Stamp, u32), seen: &DigestSeen) -> Option<Problem> {
        let (channel, at, instrument) = *key;
        let published = self.published.get(&(channel, at.epoch())).filter(|_| !seen.published)?;
        let (_, _, other) = published
            .ranges
            .iter()
            .find(|(first, end, log)| (*first..*end).contains(&at) && published.whole.contains(log))?;
        let wrong = Wrong::DigestNeverSent { at, instrument: InstrumentId(instrument), other: *other };
        Some(Problem { log: seen.first.log, offset: seen.first.offset, wrong })
    }
}

/// A part of a log that is being read.
struct Part {
    section: Section,
    channel: usize,
    /// Bytes of the name that are still to come.
    name: Vec<u8>,
    /// Lines that lie together within a block: first, count, sum.
    block: Option<(Stamp, u64, u64)>,
    /// Digests of lines that come next.
    pending: VecDeque<Stamp>,
    /// First and end of what was delivered without a break.
    ranges: Vec<(Stamp, Stamp)>,
    ends: Vec<Stamp>,
    /// The farthest in each epoch.
    reached: Vec<(Stamp, Place)>,
}

struct LogReader<'a> {
    checker: &'a mut Checker,
    place: Place,
    part: Option<Part>,
    /// The newest epoch of each channel in this log.
    newest: HashMap<String, Epoch>,
}

impl LogReader<'_> {
    fn wrong(&mut self, wrong: Wrong) {
        self.checker.wrong(Problem { log: self.place.log, offset: self.place.offset, wrong });
    }

    fn take(&mut self, entry: Entry) {
        if let Entry::Begin(begin) = entry {
            self.end_part();
            return self.begin_part(begin);
        }
        let Some(part) = &mut self.part else { return self.wrong(Wrong::NotALog) };
        if let Entry::Name(bytes) = entry {
            let missing = usize::from(part.section.begin.name_len) - part.name.len();
            if missing == 0 {
                return self.wrong(Wrong::Misplaced);
            }
            part.name.extend_from_slice(&bytes[..missing.min(bytes.len())]);
            if missing <= bytes.len() {
                part.section.channel = String::from_utf8_lossy(&part.name).into_owned();
                part.channel = self.checker.channel(&part.section.channel);
            }
            return;
        }
        if part.name.len() < part.section.begin.name_len.into() {
            return self.wrong(Wrong::Misplaced);
        }
        if part.section.closed {
            return self.wrong(Wrong::AfterClose);
        }
        match entry {
            Entry::Begin(_) | Entry::Name(_) => {}
            Entry::Joined { at } => self.on_joined(at),
            Entry::Lines { first, count, sum } => self.on_lines(first, count, sum),
            Entry::Gap { first, count, cause } => self.on_gap(first, count, cause),
            Entry::Epoch { from, to } => self.on_epoch(from, to),
            Entry::Digest { at, instrument, book } => self.on_digest(at, instrument, book),
            Entry::Unlogged { until, entries } => self.on_unlogged(until, entries),
            Entry::Ended { at } => {
                self.expect_no_digest();
                let expected = self.position();
                if expected != at {
                    self.wrong(Wrong::EndElsewhere { expected, found: at });
                }
                if let Some(part) = &mut self.part {
                    part.section.ended = Some(at);
                    part.ends.push(at);
                    if part.section.begin.role != Role::Publisher {
                        self.checker.ends.push((part.channel, at, self.place));
                    }
                }
            }
            Entry::Closed { at } => {
                self.expect_no_digest();
                let expected = self.position();
                if expected != at {
                    self.wrong(Wrong::EndElsewhere { expected, found: at });
                }
                if let Some(part) = &mut self.part {
                    part.section.closed = true;
                }
            }
        }
    }

    fn begin_part(&mut self, begin: Begin) {
        let channel = if begin.name_len == 0 { self.checker.channel("") } else { 0 };
        let section = Section {
            begin,
            channel: String::new(),
            joined: None,
            next: None,
            lines: 0,
            gaps: 0,
            lost: [0; 3],
            epochs: 0,
            digests: 0,
            unread: 0,
            unlogged: 0,
            ended: None,
            closed: false,
        };
        self.part = Some(Part {
            section,
            channel,
            name: Vec::new(),
            block: None,
            pending: VecDeque::new(),
            ranges: Vec::new(),
            ends: Vec::new(),
            reached: Vec::new(),
        });
    }

    /// The stamp that must come next; 0 before the stream was taken up.
    fn position(&self) -> Stamp {
        self.part.as_ref().and_then(|part| part.section.next).unwrap_or(Stamp(0))
    }

    /// What is wrong with `found` coming next, if anything.
    fn expect(&mut self, found: Stamp) {
        let expected = match self.part.as_ref().and_then(|part| part.section.next) {
            None => return self.wrong(Wrong::NotJoined { found }),
            Some(expected) => expected,
        };
        if found == expected {
            return;
        }
        self.wrong(if found.epoch() < expected.epoch() {
            Wrong::OldEpoch { expected, found }
        } else if found.epoch() > expected.epoch() {
            Wrong::NewEpoch { found }
        } else if found < expected {
            Wrong::Repeated { expected, found }
        } else {
            Wrong::Skipped { expected, found }
        });
    }

    /// The lines that digests were taken of must have come.
    fn expect_no_digest(&mut self) {
        if let Some(at) = self.part.as_mut().and_then(|part| part.pending.pop_front()) {
            self.wrong(Wrong::DigestElsewhere { at });
        }
        if let Some(part) = &mut self.part {
            part.pending.clear();
        }
    }

    fn on_joined(&mut self, at: Stamp) {
        let Some(part) = &mut self.part else { return };
        let is_second = part.section.joined.is_some();
        part.section.joined.get_or_insert(at);
        let newest = self.newest.get(&part.section.channel).copied().unwrap_or(Epoch(0));
        // A gap before the stream is taken up anew would have to be named.
        let expected = part.section.next;
        part.section.next = Some(at);
        if is_second && expected != Some(at) {
            self.wrong(Wrong::Skipped { expected: expected.unwrap_or(Stamp(0)), found: at });
        }
        if at.epoch() < newest {
            self.wrong(Wrong::EpochBackwards { from: newest, to: at.epoch() });
        }
        self.note_epoch(at.epoch());
    }

    fn note_epoch(&mut self, epoch: Epoch) {
        if let Some(part) = &self.part {
            let newest = self.newest.entry(part.section.channel.clone()).or_default();
            *newest = epoch.max(*newest);
        }
    }

    /// The log has come to `next`.
    fn advance(&mut self, next: Stamp) {
        let place = self.place;
        let Some(part) = &mut self.part else { return };
        part.section.next = Some(next);
        match part.reached.last_mut() {
            Some((reached, at)) if reached.epoch() == next.epoch() => {
                if next > *reached {
                    (*reached, *at) = (next, place);
                }
            }
            _ => part.reached.push((next, place)),
        }
    }

    fn on_lines(&mut self, first: Stamp, count: u64, sum: u64) {
        self.expect(first);
        let end = first.plus(count);
        let Some(part) = &mut self.part else { return };
        let mut elsewhere = None;
        while let Some(at) = part.pending.front().copied().filter(|at| *at < end) {
            part.pending.pop_front();
            elsewhere = elsewhere.or((at < first).then_some(at));
        }
        part.section.lines += count;
        match part.ranges.last_mut().filter(|(_, until)| *until == first) {
            Some((_, until)) => *until = end,
            None => part.ranges.push((first, end)),
        }
        let block = match part.block.take().filter(|(from, lines, _)| from.plus(*lines) == first) {
            Some((from, lines, so_far)) => (from, lines + count, so_far.wrapping_add(sum)),
            None => (first, count, sum),
        };
        if let Some(at) = elsewhere {
            self.wrong(Wrong::DigestElsewhere { at });
        }
        if let Some(part) = &mut self.part {
            part.block = Some(block);
        }
        if Stamp(end.0 - 1).sequence().0.is_multiple_of(BLOCK_LINES) {
            self.end_block();
        }
        self.advance(end);
    }

    /// What lies together within a block is held against what others have of the same lines.
    fn end_block(&mut self) {
        let place = self.place;
        let Some(part) = &mut self.part else { return };
        let Some((first, count, sum)) = part.block.take() else { return };
        let key = (part.channel, first, count);
        match self.checker.runs.get_mut(&key) {
            None => {
                self.checker.runs.insert(key, Run { sum, place, compared: false });
            }
            Some(run) if run.sum == sum => run.compared |= run.place.log != place.log,
            Some(run) => {
                let (other, at_offset) = (run.place.log, run.place.offset);
                self.wrong(Wrong::LinesDiffer { first, count, other, at_offset });
            }
        }
    }

    fn on_gap(&mut self, first: Stamp, count: u64, cause: LossCause) {
        self.expect_no_digest();
        self.end_block();
        self.expect(first);
        let Some(part) = &mut self.part else { return };
        part.section.gaps += 1;
        let cause = match cause {
            LossCause::Lapped => 0,
            LossCause::Unverified => 1,
            LossCause::Missing => 2,
        };
        // Whoever wrote the log may have written anything: a count stays at its end.
        part.section.lost[cause] = part.section.lost[cause].saturating_add(count);
        if part.section.begin.role == Role::Publisher {
            self.wrong(Wrong::PublisherGap);
        }
        if self.checker.lossless {
            self.wrong(Wrong::Lossy { lost: count, unlogged: 0 });
        }
        self.advance(first.plus(count));
    }

    fn on_epoch(&mut self, from: Stamp, to: Epoch) {
        self.expect_no_digest();
        self.end_block();
        self.expect(from);
        let Some(part) = &mut self.part else { return };
        part.section.epochs += 1;
        let before = part.section.next.unwrap_or(from).epoch();
        if to <= before {
            self.wrong(Wrong::EpochBackwards { from: before, to });
        }
        self.note_epoch(to);
        self.advance(Stamp::new(to, SequenceNumber::FIRST));
    }

    fn on_digest(&mut self, at: Stamp, instrument: InstrumentId, book: Option<u64>) {
        let (place, expected) = (self.place, self.position());
        let Some(part) = &mut self.part else { return };
        let is_in_order =
            at >= expected && at.epoch() == expected.epoch() && part.pending.back().is_none_or(|last| *last < at);
        part.pending.push_back(at);
        let is_published = part.section.begin.role == Role::Publisher;
        part.section.digests += u64::from(book.is_some());
        part.section.unread += u64::from(book.is_none());
        let key = (part.channel, at, instrument.0);
        if !is_in_order {
            part.pending.pop_back();
            self.wrong(Wrong::DigestElsewhere { at });
        }
        let seen = self.checker.digests.entry(key).or_insert(DigestSeen {
            book: None,
            first: place,
            published: false,
            compared: false,
        });
        seen.published |= is_published;
        let Some(value) = book else { return };
        match seen.book {
            None => seen.book = Some((value, place)),
            Some((known, other)) if known == value => seen.compared |= other.log != place.log,
            Some((_, other)) => {
                let wrong = Wrong::DigestsDiffer { at, instrument, other: other.log, at_offset: other.offset };
                self.wrong(wrong);
            }
        }
    }

    fn on_unlogged(&mut self, until: Stamp, entries: u64) {
        self.end_block();
        let expected = self.position();
        if until < expected {
            self.wrong(Wrong::Repeated { expected, found: until });
        }
        let Some(part) = &mut self.part else { return };
        part.section.unlogged = part.section.unlogged.saturating_add(entries);
        part.section.joined.get_or_insert(until);
        part.pending.clear();
        if self.checker.lossless {
            self.wrong(Wrong::Lossy { lost: 0, unlogged: entries });
        }
        self.note_epoch(until.epoch());
        self.advance(until);
    }

    /// The log, or this part of it, is over.
    fn end_part(&mut self) {
        self.end_block();
        let Some(part) = self.part.take() else { return };
        let (section, log) = (part.section, self.place.log);
        let channel = part.channel;
        let is_whole = section.closed && section.unlogged == 0;
        if section.begin.role == Role::Publisher {
            for (first, end) in part.ranges {
                self.checker.published.entry((channel, first.epoch())).or_default().ranges.push((first, end, log));
            }
            for (next, _) in &part.reached {
                let published = self.checker.published.entry((channel, next.epoch())).or_default();
                published.open |= !is_whole;
                published.ends.extend(part.ends.iter().filter(|end| end.epoch() == next.epoch()));
                if section.unlogged == 0 {
                    published.whole.push(log);
                }
            }
            // One that published nothing yet ended where it began; or it was cut off before it could say more.
            if let Some(at) = section.joined {
                let published = self.checker.published.entry((channel, at.epoch())).or_default();
                published.ranges.push((at, at, log));
                published.open |= !is_whole;
            }
        } else {
            self.checker.reached.extend(part.reached.into_iter().map(|(next, place)| (channel, next, place)));
        }
        if self.checker.lossless && section.closed && section.ended.is_none_or(|ended| Some(ended) != section.next) {
            self.wrong(Wrong::NoEnd);
        }
        self.checker.logs[log].sections.push(section);
    }
}
