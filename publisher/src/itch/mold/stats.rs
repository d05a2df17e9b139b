//! What a capture of MoldUDP64 held, counted.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use protocol::time::Nanos;

use super::packet::SessionId;
use super::stream::StreamCounts;
use crate::capture::Skipped;
use crate::feed::Missing;

/// Sessions told apart at most; the datagrams of more are counted together.
pub const MAX_SESSIONS: usize = 256;
/// Lines of one session told apart at most; the rest are counted with the last.
pub const MAX_SIDES: usize = 26;
/// Examples kept of anything.
pub const MAX_EXAMPLES: usize = 16;

/// Everything counted in one capture.
#[derive(Clone, Debug, Default)]
pub struct MoldStats {
    /// Frames read.
    pub frames: u64,
    /// Frames without a datagram that can be used, by why. The link types that are not known, each with its count, are one
    /// of the reasons.
    pub skipped: BTreeMap<SkippedKey, u64>,
    /// Datagrams that are not MoldUDP64.
    pub other_datagrams: u64,
    /// Where the first of those went.
    pub first_other: Option<SocketAddr>,
    /// Datagrams in which a listener asks for messages again.
    pub requests: u64,
    /// Datagrams of sessions beyond the first [`MAX_SESSIONS`].
    pub beyond: u64,
    /// Frames captured before the one that stands in front of them in the file. They are taken in file order.
    pub time_backwards: u64,
    /// Each session, in the order in which it first came.
    pub sessions: Vec<SessionStats>,
}

impl MoldStats {
    /// Messages of the followed sessions that are lost for good.
    pub fn followed_missing(&self) -> u64 {
        self.sessions.iter().fold(0, |sum, session| sum.saturating_add(session.counts.missing))
    }

    /// What whoever publishes or replays the feed ought to know, a line each.
    pub fn remarks(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for session in &self.sessions {
            let name = session.session;
            if !session.followed {
                let messages: u64 = session.sides.iter().map(|side| side.messages).sum();
                lines.push(format!("session {name} is another channel: its {messages} messages were left out"));
                continue;
            }
            let counts = &session.counts;
            if counts.gaps > 0 {
                lines.push(format!(
                    "session {name}: {} messages are missing in {} gaps, and were declared lost",
                    counts.missing, counts.gaps
                ));
            }
            if counts.differing > 0 {
                lines.push(format!(
                    "session {name}: {} messages differ between their copies, first message {}; the first copies stand",
                    counts.differing,
                    session.first_differing.unwrap_or(0)
                ));
            }
            let dropped = [
                (counts.late, "came after they had been declared lost"),
                (counts.before_start, "are from before the start"),
                (session.superseded, "came while another session went on in its place"),
            ];
            for (count, what) in dropped.into_iter().filter(|(count, _)| *count > 0) {
                lines.push(format!("session {name}: {count} messages {what}, and were dropped"));
            }
            if session.short_datagrams > 0 {
                lines.push(format!(
                    "session {name}: {} datagrams hold less than they announce, first at offset {}",
                    session.short_datagrams,
                    session.first_short.unwrap_or(0)
                ));
            }
            if session.unsequenced > 0 {
                lines.push(format!("session {name}: {} messages have no sequence number", session.unsequenced));
            }
        }
        if self.time_backwards > 0 {
            lines.push(format!("{} frames were captured before the one in front of them", self.time_backwards));
        }
        lines
    }
}

/// [`Skipped`], as a key that has an order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum SkippedKey {
    /// [`Skipped::UnknownLink`].
    UnknownLink(u32),
    /// [`Skipped::NotIp`].
    NotIp,
    /// [`Skipped::NotUdp`].
    NotUdp,
    /// [`Skipped::Fragment`].
    Fragment,
    /// [`Skipped::Damaged`].
    Damaged,
}

impl SkippedKey {
    /// In words.
    pub fn text(self) -> String {
        match self {
            SkippedKey::UnknownLink(link) => format!("of unknown link type {link}"),
            SkippedKey::NotIp => "not IP".into(),
            SkippedKey::NotUdp => "not UDP".into(),
            SkippedKey::Fragment => "fragments".into(),
            SkippedKey::Damaged => "with damaged headers".into(),
        }
    }
}

impl From<Skipped> for SkippedKey {
    fn from(skipped: Skipped) -> SkippedKey {
        match skipped {
            Skipped::UnknownLink(link) => SkippedKey::UnknownLink(link),
            Skipped::NotIp => SkippedKey::NotIp,
            Skipped::NotUdp => SkippedKey::NotUdp,
            Skipped::Fragment => SkippedKey::Fragment,
            Skipped::Damaged => SkippedKey::Damaged,
        }
    }
}

/// One session.
#[derive(Clone, Debug)]
pub struct SessionStats {
    /// Its name.
    pub session: SessionId,
    /// Whether its messages are delivered; otherwise they are only counted, by line.
    pub followed: bool,
    /// The lines that carry it, in the order in which each first did: A, B and so on.
    pub sides: Vec<SideStats>,
    /// What became of its messages. Nothing where it is not followed.
    pub counts: StreamCounts,
    /// The first gaps that were declared.
    pub gaps: Vec<Missing>,
    /// The first message of which two copies differ.
    pub first_differing: Option<u64>,
    /// The first number delivered, and the one that would come next.
    pub first_sequence: Option<u64>,
    /// See `first_sequence`.
    pub next_sequence: Option<u64>,
    /// Messages without a place in the sequence, in datagrams numbered 0: delivered where they stand.
    pub unsequenced: u64,
    /// An end of session was seen.
    pub ended: bool,
    /// Datagrams that announce more messages than are in them: those that are whole were taken.
    pub short_datagrams: u64,
    /// Where the first of those is in the file.
    pub first_short: Option<u64>,
    /// Bytes behind the last message of a datagram.
    pub left_over_bytes: u64,
    /// Messages that came while another session was followed on the same line: of one whose place that had taken, or of
    /// none at all (a damaged name). Dropped.
    pub superseded: u64,
    /// When its first and its last datagram were captured.
    pub first_capture: Option<Nanos>,
    /// See `first_capture`.
    pub last_capture: Option<Nanos>,
}

impl SessionStats {
    /// A session of which nothing was counted yet.
    pub fn new(session: SessionId, followed: bool) -> SessionStats {
        SessionStats {
            session,
            followed,
            sides: Vec::new(),
            counts: StreamCounts::default(),
            gaps: Vec::with_capacity(MAX_EXAMPLES),
            first_differing: None,
            first_sequence: None,
            next_sequence: None,
            unsequenced: 0,
            ended: false,
            short_datagrams: 0,
            first_short: None,
            left_over_bytes: 0,
            superseded: 0,
            first_capture: None,
            last_capture: None,
        }
    }

    /// The place of the line that goes to `destination`.
    pub(super) fn side(&mut self, destination: SocketAddr) -> usize {
        match self.sides.iter().position(|side| side.destination == destination) {
            Some(at) => at,
            None if self.sides.len() < MAX_SIDES => {
                self.sides.push(SideStats::new(destination));
                self.sides.len() - 1
            }
            None => MAX_SIDES - 1,
        }
    }
}

/// One line of a session.
#[derive(Clone, Debug)]
pub struct SideStats {
    /// Group and port that its datagrams go to.
    pub destination: SocketAddr,
    /// Datagrams, of whatever purpose.
    pub datagrams: u64,
    /// Messages in them, further copies included.
    pub messages: u64,
    /// Heartbeats.
    pub heartbeats: u64,
    /// Ends of session.
    pub ends: u64,
    /// Messages whose first copy came by this line.
    pub first_copies: u64,
    /// Times that this line by itself jumped ahead.
    pub gaps: u64,
    /// Messages that it jumped over. What came late, out of order, counts too.
    pub missing: u64,
    /// The number that this line must bring next.
    pub next_sequence: u64,
}

impl SideStats {
    fn new(destination: SocketAddr) -> SideStats {
        SideStats {
            destination,
            datagrams: 0,
            messages: 0,
            heartbeats: 0,
            ends: 0,
            first_copies: 0,
            gaps: 0,
            missing: 0,
            next_sequence: 0,
        }
    }

    /// Its letter: A for the first.
    pub fn letter(at: usize) -> char {
        char::from(b'A' + at.min(MAX_SIDES - 1) as u8)
    }

    /// Takes note of a datagram that begins at `sequence` and after which `next` comes.
    pub(super) fn note_sequence(&mut self, sequence: u64, next: u64) {
        if self.next_sequence != 0 && sequence > self.next_sequence {
            self.gaps += 1;
            self.missing = self.missing.saturating_add(sequence - self.next_sequence);
        }
        self.next_sequence = self.next_sequence.max(next);
    }
}
