//! The two ends of a control connection, without I/O.

use super::frame::{self, FrameError, Inbox, MAX_BODY_LEN, MAX_HELLO_LEN};
use super::{PREFACE, Reply, Request};
use crate::time::Nanos;

/// How long a peer has to show who it is, ns: 2 s.
pub const HELLO_PATIENCE_NS: u64 = 2_000_000_000;
/// How long an identified peer may say nothing, ns: ten minutes. One that only asks when it starts has no reason to stay;
/// one that stays, to be told of changes, checks every now and then that the server is there.
pub const IDLE_PATIENCE_NS: u64 = 600_000_000_000;
/// The most bytes that wait for a peer that does not read them.
pub const MAX_OUTPUT_LEN: usize = 256 << 10;

/// Why a session has ended. Ordinary outcomes, to be counted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Close {
    /// The other side does not speak this protocol, or not this version.
    #[error("it does not begin with the preface of this version: not a subscriber of this version")]
    Preface,
    /// It did not show who it is in time.
    #[error("it did not show who it is within {} s", HELLO_PATIENCE_NS / 1_000_000_000)]
    TooSlow,
    /// It asked before it said who it is, or said it twice.
    #[error("it asked out of turn")]
    OutOfTurn,
    /// Its token is not known.
    #[error("its token is not known here")]
    UnknownToken,
    /// Its bytes are no frames of this version.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// It does not read what it asked for.
    #[error("it does not read its answers")]
    NotReading,
    /// It said nothing for long.
    #[error("it said nothing for {} s", IDLE_PATIENCE_NS / 1_000_000_000)]
    Idle,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Preface,
    Hello,
    Identified,
}

/// The server's end: one for each connection.
#[derive(Debug)]
pub struct ServerSession {
    stage: Stage,
    inbox: Inbox,
    output: Vec<u8>,
    deadline: Nanos,
    /// It holds something for its client, who need not say anything meanwhile.
    kept: bool,
    peer: String,
    closed: Option<Close>,
}

impl ServerSession {
    /// A connection accepted at `now`.
    pub fn new(now: Nanos) -> ServerSession {
        ServerSession {
            stage: Stage::Preface,
            inbox: Inbox::default(),
            output: Vec::new(),
            deadline: now.plus(HELLO_PATIENCE_NS),
            kept: false,
            peer: String::new(),
            closed: None,
        }
    }

    /// How many bytes may be read from the connection now: what a stranger can make the server hold is bounded by it.
    pub fn wants(&self) -> usize {
        let bound = if self.stage == Stage::Identified { MAX_BODY_LEN } else { MAX_HELLO_LEN };
        (PREFACE.len() + frame::HEADER_LEN + bound).saturating_sub(self.inbox.len())
    }

    /// Takes what came, at most [`ServerSession::wants`] bytes. `is_known` says whether a token is one of those configured.
    /// Requests that may be answered come out of [`ServerSession::poll_request`].
    pub fn on_bytes(&mut self, bytes: &[u8], now: Nanos, pid: u32, is_known: impl Fn(&str) -> bool) {
        if self.closed.is_some() {
            return;
        }
        self.inbox.push(bytes);
        if self.stage == Stage::Preface {
            match self.inbox.take_preface(&PREFACE) {
                None => return,
                Some(Err(())) => return self.refuse(Close::Preface),
                Some(Ok(())) => self.stage = Stage::Hello,
            }
        }
        if self.stage == Stage::Hello {
            match self.inbox.next::<Request>(MAX_HELLO_LEN) {
                Ok(None) => {}
                Ok(Some(Request::Hello { token, name })) if is_known(&token) => {
                    self.peer = name.chars().filter(|c| !c.is_control()).take(64).collect();
                    self.stage = Stage::Identified;
                    self.deadline = now.plus(IDLE_PATIENCE_NS);
                    self.reply(&Reply::Welcome { pid });
                }
                Ok(Some(Request::Hello { .. })) => self.refuse(Close::UnknownToken),
                Ok(Some(_)) => self.refuse(Close::OutOfTurn),
                Err(error) => self.refuse(error.into()),
            }
        }
    }

    /// The next request of an identified peer. Each is to be answered by [`ServerSession::reply`].
    pub fn poll_request(&mut self, now: Nanos) -> Option<Request> {
        if self.stage != Stage::Identified || self.closed.is_some() {
            return None;
        }
        match self.inbox.next::<Request>(MAX_BODY_LEN) {
            Ok(None) => None,
            Ok(Some(Request::Hello { .. })) => {
                self.refuse(Close::OutOfTurn);
                None
            }
            Ok(Some(request)) => {
                self.deadline = now.plus(IDLE_PATIENCE_NS);
                Some(request)
            }
            Err(error) => {
                self.refuse(error.into());
                None
            }
        }
    }

    /// Queues an answer. A peer that lets too many of them wait is given up.
    pub fn reply(&mut self, reply: &Reply) {
        frame::write(reply, &mut self.output);
        if self.output.len() > MAX_OUTPUT_LEN {
            self.output.clear();
            self.closed = Some(Close::NotReading);
        }
    }

    /// Ends sessions whose time is up.
    pub fn on_timeout(&mut self, now: Nanos) {
        if self.next_timeout().is_some_and(|deadline| now >= deadline) {
            self.refuse(if self.stage == Stage::Identified { Close::Idle } else { Close::TooSlow });
        }
    }

    /// When [`ServerSession::on_timeout`] has something to do.
    pub fn next_timeout(&self) -> Option<Nanos> {
        (self.closed.is_none() && !self.kept).then_some(self.deadline)
    }

    /// Says whether it holds something for its client, such as a connection: it is not ended then for saying nothing.
    pub fn keep(&mut self, kept: bool, now: Nanos) {
        self.kept = kept;
        self.deadline = self.deadline.max(now.plus(IDLE_PATIENCE_NS));
    }

    /// Bytes to be sent.
    pub fn output(&self) -> &[u8] {
        &self.output
    }

    /// That many of them were sent.
    pub fn sent(&mut self, count: usize) {
        self.output.drain(..count);
    }

    /// Why the session has ended, if it has: the connection is closed once the output is sent or cannot be.
    pub fn closed(&self) -> Option<&Close> {
        self.closed.as_ref()
    }

    /// Whether the peer has shown who it is.
    pub fn is_identified(&self) -> bool {
        self.stage == Stage::Identified
    }

    /// What the peer calls itself, once it is identified.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    fn refuse(&mut self, close: Close) {
        // A stranger is told no more than that it was refused.
        let why = if self.stage == Stage::Identified { close.to_string() } else { "refused".to_owned() };
        frame::write(&Reply::Refused { why }, &mut self.output);
        self.closed = Some(close);
    }
}

/// The client's end.
#[derive(Debug)]
pub struct ClientSession {
    inbox: Inbox,
    output: Vec<u8>,
}

impl ClientSession {
    /// Says who it is, first of all.
    pub fn new(token: &str, name: &str) -> ClientSession {
        let mut output = PREFACE.to_vec();
        frame::write(&Request::Hello { token: token.to_owned(), name: name.to_owned() }, &mut output);
        ClientSession { inbox: Inbox::default(), output }
    }

    /// Asks something.
    pub fn ask(&mut self, request: &Request) {
        frame::write(request, &mut self.output);
    }

    /// Bytes to be sent.
    pub fn output(&self) -> &[u8] {
        &self.output
    }

    /// All of them were sent.
    pub fn sent(&mut self) {
        self.output.clear();
    }

    /// Takes what came.
    pub fn on_bytes(&mut self, bytes: &[u8]) {
        self.inbox.push(bytes);
    }

    /// The next answer, or what the server says unasked.
    ///
    /// # Errors
    /// [`FrameError`]: the other side does not speak this protocol.
    pub fn poll_reply(&mut self) -> Result<Option<Reply>, FrameError> {
        self.inbox.next(MAX_OUTPUT_LEN)
    }
}

#[cfg(test)]
mod tests;
