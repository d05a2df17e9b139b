//! A capture as a feed: sessions and lines told apart, one of them delivered.
//!
//! A capture may hold several sessions. Those that follow each other on the same lines are one feed: when another session
//! begins on a line of the one that is followed, and that one has ended or says nothing more there, it is over (what is still
//! missing of it is declared), and the new one is followed from its message 1. Sessions on lines of their own are other channels: the first that comes is
//! followed, or the one that is asked for, and the others are only counted. Lines are told apart by where their datagrams
//! go; whatever carries the followed session is one of its lines.

use std::collections::VecDeque;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use protocol::time::Nanos;

use super::packet::{MoldPacket, Purpose};
use super::raw::RawPackets;
use super::stats::{MAX_EXAMPLES, MAX_SESSIONS, MoldStats, SessionStats};
use super::stream::{Arrival, Patience, Settled, Stream};
use crate::capture::window::Window;
use crate::capture::{Container, Packets, datagram};
use crate::feed::{FeedError, FeedSource, Message, Notice};
use crate::input::Input;

/// How a [`MoldFeed`] is read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MoldOptions {
    /// A capture that is cut off ends there, with a warning, instead of with an error.
    pub lenient: bool,
    /// Follow the session of this name, and no other. Left out: the first that comes, and those that take its place.
    pub session: Option<String>,
    /// How long something missing is waited for.
    pub patience: Patience,
    /// Where datagrams go that are known to be of another protocol, whatever they look like.
    pub foreign: Vec<SocketAddr>,
}

/// What the datagrams stand in.
enum Frames<R> {
    Capture(Packets<R>),
    Raw(RawPackets<R>),
    /// The capture's own header cannot be read.
    Broken(PathBuf),
}

/// Datagrams of a session that has to come before it is believed to take the place of one that did not end: a name that
/// was damaged on the way is no new session.
const CONFIRMING: usize = 8;

/// A session that may take the place of the one that is followed.
struct Successor {
    session: usize,
    /// The line that it came by.
    destination: SocketAddr,
    /// It does: the other one has ended, or enough of this one has come.
    confirmed: bool,
    /// What has come of it.
    kept: Vec<Kept>,
}

/// A datagram of a [`Successor`].
struct Kept {
    sequence: u64,
    count: u16,
    next: u64,
    blocks: Vec<u8>,
    capture: Option<Nanos>,
    offset: u64,
    side: usize,
}

/// The messages of a capture, in the order of their sequence.
pub struct MoldFeed<R = Input> {
    reader: Reader<R>,
    stream: Stream,
    /// Messages without a number, on their way out: the blocks, the next one's place, and which is handed out now.
    loose: Loose,
    notices: VecDeque<Notice>,
    /// Nothing more can be read: the end, or this.
    ended: Option<Result<(), FeedError>>,
    warning: Option<FeedError>,
    delivered: u64,
}

/// What reads and tells apart; beside it stands what delivers.
struct Reader<R> {
    frames: Frames<R>,
    options: MoldOptions,
    stats: MoldStats,
    /// Place of the followed session in the statistics.
    followed: Option<usize>,
    successor: Option<Successor>,
    last_time: Option<Nanos>,
    first_capture: Option<Nanos>,
}

#[derive(Default)]
struct Loose {
    blocks: Vec<u8>,
    /// Where the next message's block begins, and where the one handed out now does.
    next: usize,
    now: usize,
    capture: Option<Nanos>,
    offset: u64,
}

impl MoldFeed<Input> {
    /// The feed in an open capture. Reads until the first datagram of the feed.
    pub fn new(input: Input, container: Option<Container>, options: MoldOptions) -> MoldFeed<Input> {
        let (path, packing) = (input.path().to_owned(), input.packing());
        MoldFeed::from_window(Window::new(input, &path, packing), container, options)
    }
}

impl<R: Read> MoldFeed<R> {
    /// The feed in a capture of kind `container`; `None` for datagrams one behind the other, with nothing between them.
    /// Reads until the first datagram of the feed.
    pub fn from_window(window: Window<R>, container: Option<Container>, options: MoldOptions) -> MoldFeed<R> {
        let path = window.path().to_owned();
        let mut ended = None;
        let frames = match container {
            None => Frames::Raw(RawPackets::new(window)),
            Some(container) => match Packets::new(window, container) {
                Ok(packets) => Frames::Capture(packets),
                Err(error) => {
                    ended = Some(Err(error));
                    Frames::Broken(path)
                }
            },
        };
        let stream = Stream::new(options.patience);
        let reader = Reader {
            frames,
            options,
            stats: MoldStats::default(),
            followed: None,
            successor: None,
            last_time: None,
            first_capture: None,
        };
        let mut feed = MoldFeed {
            reader,
            stream,
            loose: Loose::default(),
            notices: VecDeque::with_capacity(8),
            ended,
            warning: None,
            delivered: 0,
        };
        while feed.ended.is_none() && feed.reader.followed.is_none() {
            feed.read();
        }
        feed
    }

    /// What was counted so far.
    pub fn stats(&self) -> MoldStats {
        let mut stats = self.reader.stats.clone();
        if let Some(session) = self.reader.followed {
            note_counts(&mut stats.sessions[session], &self.stream);
        }
        stats
    }

    /// Why there is nothing to deliver at all, if that is so: known as soon as the feed is made.
    pub fn fault_at_start(&self) -> Option<&FeedError> {
        match (&self.ended, self.reader.followed) {
            (Some(Err(error)), None) => Some(error),
            _ => None,
        }
    }

    /// When the first datagram of the feed was captured, where the capture says so.
    pub fn first_capture(&self) -> Option<Nanos> {
        self.reader.first_capture
    }

    /// What kind of capture it is; `None` for bare datagrams.
    pub fn container(&self) -> Option<Container> {
        match &self.reader.frames {
            Frames::Capture(packets) => Some(packets.container()),
            Frames::Raw(_) | Frames::Broken(_) => None,
        }
    }

    /// Bytes of the uncompressed stream that were read and dealt with.
    pub fn offset(&self) -> u64 {
        match &self.reader.frames {
            Frames::Capture(packets) => packets.window().offset(),
            Frames::Raw(packets) => packets.window().offset(),
            Frames::Broken(_) => 0,
        }
    }

    /// Messages delivered.
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Reads one frame, and deals with it.
    fn read(&mut self) {
        match self.reader.read(&mut self.stream, &mut self.loose) {
            Ok(true) => {}
            Ok(false) if self.reader.followed.is_none() => self.ended = Some(Err(self.reader.no_feed())),
            Ok(false) => self.ended = Some(Ok(())),
            Err(error) if self.reader.options.lenient && error.is_early_end() => {
                self.warning = Some(error);
                self.ended = Some(if self.reader.followed.is_none() { Err(self.reader.no_feed()) } else { Ok(()) });
            }
            Err(error) => self.ended = Some(Err(error)),
        }
    }

    /// Makes a message ready: whether it is the stream's or a loose one, or none.
    fn advance(&mut self) -> Option<Ready> {
        loop {
            if self.stream.advance() {
                return Some(Ready::InOrder);
            }
            if self.loose.advance() {
                return Some(Ready::Loose);
            }
            let ended = self.ended.is_some();
            let turns = self.reader.successor.as_ref().is_some_and(|successor| successor.confirmed || ended);
            let ending = ended || turns;
            match self.stream.settle(ending) {
                Settled::Waiting => {}
                Settled::Ready => continue,
                Settled::Gap(missing) => {
                    self.notices.push_back(Notice::Gap(missing));
                    if let Some(session) = self.reader.followed {
                        let gaps = &mut self.reader.stats.sessions[session].gaps;
                        if gaps.len() < MAX_EXAMPLES {
                            gaps.push(missing);
                        }
                    }
                    continue;
                }
            }
            if let Some(successor) = self.reader.successor.take_if(|_| turns) {
                self.follow(&successor);
            } else if ended {
                return None;
            } else {
                self.read();
            }
        }
    }

    /// Begins to follow the session that takes the place of the one followed until now.
    fn follow(&mut self, successor: &Successor) {
        if let Some(before) = self.reader.followed {
            note_counts(&mut self.reader.stats.sessions[before], &self.stream);
        }
        self.stream.begin_session();
        self.reader.followed = Some(successor.session);
        self.notices.push_back(Notice::Session { capture: successor.kept.first().and_then(|kept| kept.capture) });
        for kept in &successor.kept {
            let Kept { sequence, count, next, ref blocks, capture, offset, side } = *kept;
            self.stream.announce(next, capture);
            if count > 0 {
                self.stream.offer(&Arrival { sequence, count, blocks, capture, offset, side });
            }
        }
    }
}

enum Ready {
    InOrder,
    Loose,
}

impl Loose {
    fn advance(&mut self) -> bool {
        let Some((_, after)) = super::packet::block(&self.blocks, self.next) else { return false };
        (self.now, self.next) = (self.next, after);
        true
    }

    fn put(&mut self, packet: &MoldPacket<'_>, capture: Option<Nanos>, offset: u64) {
        self.blocks.clear();
        self.blocks.extend_from_slice(packet.blocks);
        (self.next, self.now, self.capture, self.offset) = (0, 0, capture, offset);
    }
}

impl<R: Read> FeedSource for MoldFeed<R> {
    fn next(&mut self) -> Result<Option<Message<'_>>, FeedError> {
        let Some(ready) = self.advance() else {
            return self.ended.clone().unwrap_or(Ok(())).map(|()| None);
        };
        self.delivered += 1;
        let session = self.reader.followed.map(|at| &mut self.reader.stats.sessions[at]);
        match ready {
            Ready::InOrder => {
                let delivery = self.stream.delivery();
                if let Some(session) = session {
                    session.first_sequence.get_or_insert(delivery.sequence);
                    session.sides[delivery.side].first_copies += 1;
                }
                Ok(Some(Message {
                    ordinal: delivery.sequence,
                    offset: delivery.offset,
                    capture: delivery.capture,
                    bytes: delivery.bytes,
                }))
            }
            Ready::Loose => {
                let loose = &self.loose;
                let (bytes, _) = super::packet::block(&loose.blocks, loose.now).expect("a whole block was found here");
                Ok(Some(Message {
                    ordinal: session.map_or(0, |session| {
                        session.unsequenced += 1;
                        session.unsequenced
                    }),
                    offset: loose.offset + loose.now as u64,
                    capture: loose.capture,
                    bytes,
                }))
            }
        }
    }

    #[inline]
    fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    fn warning(&self) -> Option<&FeedError> {
        self.warning.as_ref()
    }

    fn remarks(&self) -> Vec<String> {
        self.stats().remarks()
    }
}

impl<R: Read> Reader<R> {
    /// Reads one frame; false at the end.
    fn read(&mut self, stream: &mut Stream, loose: &mut Loose) -> Result<bool, FeedError> {
        let Reader { frames, options, stats, followed, successor, last_time, first_capture } = self;
        let is_bare = matches!(frames, Frames::Raw(_));
        let (payload, destination, capture, offset) = match frames {
            Frames::Capture(packets) => {
                let Some(packet) = packets.next_packet()? else { return Ok(false) };
                stats.frames += 1;
                if let (Some(last), Some(time)) = (*last_time, packet.time)
                    && time < last
                {
                    stats.time_backwards += 1;
                }
                *last_time = packet.time.or(*last_time);
                match datagram(packet.link, packet.bytes) {
                    Ok(found) => {
                        // Both are slices of one buffer.
                        let at = found.payload.as_ptr() as usize - packet.bytes.as_ptr() as usize;
                        (found.payload, found.destination, packet.time, packet.offset + at as u64)
                    }
                    Err(skipped) => {
                        *stats.skipped.entry(skipped.into()).or_default() += 1;
                        return Ok(true);
                    }
                }
            }
            Frames::Raw(packets) => {
                let Some((offset, payload)) = packets.next_packet()? else { return Ok(false) };
                stats.frames += 1;
                (payload, SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)), None, offset)
            }
            Frames::Broken(_) => return Ok(false),
        };
        let is_foreign = !options.foreign.is_empty() && options.foreign.contains(&destination);
        let known = MoldPacket::parse(payload)
            .filter(|_| !is_foreign)
            .map(|packet| {
                // Bare datagrams are cut off only where the file is: what is behind that is the file's loss, not the venue's.
                let announced = if is_bare { packet.present } else { packet.announced };
                MoldPacket { announced, ..packet }
            })
            .map(|packet| (packet, stats.sessions.iter().position(|session| session.session == packet.session)));
        // A session is believed in when its first datagram is sound; a known one's may well be cut off.
        let believable = |packet: &MoldPacket<'_>| {
            packet.sequence.checked_add(u64::from(packet.announced)).is_some()
                && match packet.purpose {
                    Purpose::Messages => packet.present > 0,
                    Purpose::Heartbeat | Purpose::EndOfSession => packet.sequence > 0 && packet.left_over == 0,
                    Purpose::Request => true,
                }
        };
        let (packet, known) = match known {
            Some((packet, known)) if believable(&packet) || known.is_some() => (packet, known),
            _ => {
                stats.other_datagrams += 1;
                stats.first_other.get_or_insert(destination);
                return Ok(true);
            }
        };
        if packet.purpose == Purpose::Request {
            stats.requests += 1;
            return Ok(true);
        }
        let at = match known {
            Some(at) => at,
            None if stats.sessions.len() == MAX_SESSIONS => {
                stats.beyond += 1;
                return Ok(true);
            }
            None => {
                let wanted = match (&options.session, *followed) {
                    (Some(name), _) => packet.session.to_string() == *name,
                    (None, None) => true,
                    (None, Some(current)) => {
                        stats.sessions[current].sides.iter().any(|side| side.destination == destination)
                    }
                };
                stats.sessions.push(SessionStats::new(packet.session, wanted));
                stats.sessions.len() - 1
            }
        };
        let session = &mut stats.sessions[at];
        let side_at = session.side(destination);
        note_datagram(session, side_at, &packet, capture, offset);
        if !session.followed {
            return Ok(true);
        }
        if followed.is_none() {
            *followed = Some(at);
            *first_capture = capture;
        }
        let offset = offset + super::packet::HEADER_LEN as u64;
        if packet.sequence == 0 {
            if *followed == Some(at) {
                loose.put(&packet, capture, offset);
            } else {
                session.superseded += u64::from(packet.present);
            }
            return Ok(true);
        }
        // A number so high that its successor cannot be counted is no number of a stream.
        if packet.sequence.checked_add(u64::from(packet.announced)).is_none() {
            return Ok(true);
        }
        if *followed != Some(at) {
            if followed.is_some_and(|current| current > at) {
                session.superseded += u64::from(packet.present);
                return Ok(true);
            }
            let kept = Kept {
                sequence: packet.sequence,
                count: packet.present,
                next: packet.next_sequence(),
                blocks: packet.blocks.to_vec(),
                capture,
                offset,
                side: side_at,
            };
            if successor.as_ref().is_some_and(|other| other.session != at) {
                dismiss(successor, stats);
            }
            let successor =
                successor.get_or_insert(Successor { session: at, destination, confirmed: false, kept: Vec::new() });
            successor.kept.push(kept);
            let ended = followed.is_some_and(|current| stats.sessions[current].ended);
            successor.confirmed = ended || successor.kept.len() >= CONFIRMING;
            return Ok(true);
        }
        if successor.as_ref().is_some_and(|successor| successor.destination == destination) {
            dismiss(successor, stats);
        }
        if packet.present > 0 {
            stream.offer(&Arrival {
                sequence: packet.sequence,
                count: packet.present,
                blocks: packet.blocks,
                capture,
                offset,
                side: side_at,
            });
        }
        if packet.purpose != Purpose::Messages || !packet.is_whole() {
            stream.announce(packet.next_sequence(), capture);
        }
        Ok(true)
    }

    /// Why there is nothing to deliver.
    fn no_feed(&self) -> FeedError {
        let path = match &self.frames {
            Frames::Capture(packets) => packets.window().path().to_owned(),
            Frames::Raw(packets) => packets.window().path().to_owned(),
            Frames::Broken(path) => path.clone(),
        };
        let stats = &self.stats;
        let mut found = vec![format!("{} frames were read", stats.frames)];
        if stats.other_datagrams > 0 {
            let to = stats.first_other.map_or(String::new(), |to| format!(" (the first to {to})"));
            found.push(format!("{} datagrams of another protocol{to}", stats.other_datagrams));
        }
        found.extend(stats.skipped.iter().map(|(why, count)| format!("{count} {}", why.text())));
        let sessions: Vec<String> = stats.sessions.iter().map(|session| session.session.to_string()).collect();
        if !sessions.is_empty() {
            found.push(format!("the sessions {}; name one of them, or none", sessions.join(", ")));
        }
        FeedError::NoFeed { path, session: self.options.session.clone(), found: found.join(", ") }
    }
}

/// The session that is followed goes on where the other came: that one is none.
fn dismiss(successor: &mut Option<Successor>, stats: &mut MoldStats) {
    if let Some(none) = successor.take() {
        let messages: u64 = none.kept.iter().map(|kept| u64::from(kept.count)).sum();
        stats.sessions[none.session].superseded += messages;
    }
}

/// Brings a followed session's counts up to date.
fn note_counts(session: &mut SessionStats, stream: &Stream) {
    session.counts = stream.counts();
    session.first_differing = stream.first_differing();
    session.next_sequence = stream.expected();
}

fn note_datagram(
    session: &mut SessionStats,
    side_at: usize,
    packet: &MoldPacket<'_>,
    capture: Option<Nanos>,
    offset: u64,
) {
    session.first_capture = session.first_capture.or(capture);
    session.last_capture = capture.or(session.last_capture);
    session.ended |= packet.purpose == Purpose::EndOfSession;
    session.left_over_bytes += if packet.is_whole() { packet.left_over as u64 } else { 0 };
    if !packet.is_whole() {
        session.short_datagrams += 1;
        session.first_short.get_or_insert(offset);
    }
    let side = &mut session.sides[side_at];
    side.datagrams += 1;
    side.messages += u64::from(packet.present);
    side.heartbeats += u64::from(packet.purpose == Purpose::Heartbeat);
    side.ends += u64::from(packet.purpose == Purpose::EndOfSession);
    if packet.sequence > 0 {
        side.note_sequence(packet.sequence, packet.next_sequence());
        side.missing += u64::from(packet.announced - packet.present);
    }
}
