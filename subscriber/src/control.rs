//! Asking a publisher which channels it has, and how to get them.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use protocol::control::{
    ChannelInfo, ClientSession, FrameError, InstrumentInfo, OneTimeToken, Reply, Request, RequestKey, RingOffer,
};
use protocol::line::Stamp;
use protocol::time::Nanos;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often a publisher is asked whether it is still there, by whoever keeps the connection, ns.
const CHECK_INTERVAL_NS: u64 = 1_000_000_000;
/// How long it may take to answer that, ns: it may be stopped for a while, or its host be very busy.
const CHECK_PATIENCE_NS: u64 = 5_000_000_000;
/// The most unasked words that wait to be read; the oldest go first.
const MAX_NOTICES: usize = 64;

/// Why a publisher could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// It cannot be reached, or went away.
    #[error(
        "the control channel at {address}: {source}; is the publisher running, with [control] listen = \"{address}\"?"
    )]
    Io {
        /// Where.
        address: SocketAddr,
        /// The system's cause.
        source: io::Error,
    },
    /// It refused.
    #[error("the publisher at {address} says: {why}; check the token and what was asked for")]
    Refused {
        /// Where.
        address: SocketAddr,
        /// In its words.
        why: String,
    },
    /// It speaks another protocol, or another version.
    #[error("what answers at {address} is no publisher of this version: {source}")]
    Frame {
        /// Where.
        address: SocketAddr,
        /// What is wrong.
        source: FrameError,
    },
    /// It says nothing, and the connection does not break: most likely its host is gone, or the way to it.
    #[error(
        "the publisher at {address} has not answered for {} s; is its host up, and is there a way to it?",
        .waited_ns / 1_000_000_000
    )]
    Silent {
        /// Where.
        address: SocketAddr,
        /// How long, ns.
        waited_ns: u64,
    },
    /// It answered something else than what was asked.
    #[error("the publisher at {address} answered something else than what was asked; is it of another version?")]
    Unexpected {
        /// Where.
        address: SocketAddr,
    },
}

/// What a publisher says unasked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// The connection to the ring that was offered could not be made, or is over.
    Dropped {
        /// The channel.
        channel: u16,
        /// Why, in the publisher's words.
        why: String,
    },
    /// The position that was [reported](Control::report) is so far behind that lines are about to be lost. It is tracked no
    /// more.
    Behind {
        /// The channel.
        channel: u16,
        /// Lines between it and the newest.
        lines: u64,
        /// Lines of its ring.
        ring_lines: u64,
    },
    /// The channels are reached in another way than before, or as before: the answer to a [check](Control::check).
    Changed {
        /// Each of them.
        channels: Vec<ChannelInfo>,
    },
}

/// An open control connection.
#[derive(Debug)]
pub struct Control {
    address: SocketAddr,
    stream: TcpStream,
    session: ClientSession,
    notices: VecDeque<Notice>,
    pid: u32,
    /// How long an answer may take.
    patience: Duration,
    /// When it was last asked whether it is there.
    checked_at: Option<Nanos>,
    /// That has not been answered yet. Answers come in the order of questions, so the next directory is this one's.
    is_checking: bool,
}

impl Control {
    /// Connects, and shows who it is: `token` is one of those in the publisher's `[control]`, `name` is for its messages.
    ///
    /// # Errors
    /// [`ControlError`], within five seconds.
    pub fn connect(address: SocketAddr, token: &str, name: &str) -> Result<Control, ControlError> {
        Control::connect_within(PATIENCE, address, token, name)
    }

    /// The same with another patience, for connecting and for each answer.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn connect_within(
        patience: Duration,
        address: SocketAddr,
        token: &str,
        name: &str,
    ) -> Result<Control, ControlError> {
        let failed = |source| ControlError::Io { address, source };
        let stream = TcpStream::connect_timeout(&address, patience).map_err(failed)?;
        stream.set_write_timeout(Some(patience)).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let mut control = Control {
            address,
            stream,
            session: ClientSession::new(token, name),
            notices: VecDeque::new(),
            pid: 0,
            patience,
            checked_at: None,
            is_checking: false,
        };
        match control.exchange()? {
            Reply::Welcome { pid } => control.pid = pid,
            _ => return Err(ControlError::Unexpected { address }),
        }
        Ok(control)
    }

    /// How long each answer may take from now on.
    ///
    /// # Errors
    /// [`ControlError::Io`] if it is zero.
    pub fn set_patience(&mut self, patience: Duration) -> Result<(), ControlError> {
        let address = self.address;
        self.stream.set_write_timeout(Some(patience)).map_err(|source| ControlError::Io { address, source })?;
        self.patience = patience;
        Ok(())
    }

    /// The publisher's process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Which channels there are.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn directory(&mut self) -> Result<Vec<ChannelInfo>, ControlError> {
        self.session.ask(&Request::Directory);
        match self.exchange()? {
            Reply::Directory { channels } => Ok(channels),
            _ => Err(ControlError::Unexpected { address: self.address }),
        }
    }

    /// The instruments of a channel that are defined so far, and whether the publisher knows that it misses some.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn instruments(&mut self, channel: u16) -> Result<(Vec<InstrumentInfo>, bool), ControlError> {
        let mut all: Vec<InstrumentInfo> = Vec::new();
        loop {
            let after = all.last().map_or(0, |instrument| instrument.id);
            self.session.ask(&Request::Instruments { channel, after });
            match self.exchange()? {
                // Ids rise from page to page, so this ends.
                Reply::Instruments { channel: of, instruments, more, incomplete }
                    if of == channel && instruments.iter().all(|instrument| instrument.id > after) =>
                {
                    let got_some = !instruments.is_empty();
                    all.extend(instruments);
                    if !(more && got_some) {
                        return Ok((all, incomplete));
                    }
                }
                _ => return Err(ControlError::Unexpected { address: self.address }),
            }
        }
    }

    /// Asks to be written to by RDMA: the publisher will connect to the ring and present the token returned. The
    /// connection lasts at most as long as this control connection. A further offer for the channel replaces this one.
    ///
    /// # Errors
    /// [`ControlError`]; refused, for example, where there are as many subscribers as the publisher takes.
    pub fn connect_ring(&mut self, channel: u16, ring: RingOffer) -> Result<OneTimeToken, ControlError> {
        self.session.ask(&Request::Connect { channel, ring });
        match self.exchange()? {
            Reply::Granted { token } => {
                // What was said before the answer was said of an earlier ring, and says nothing of this one.
                self.notices.retain(|notice| !matches!(notice, Notice::Dropped { channel: of, .. } if *of == channel));
                Ok(token)
            }
            _ => Err(ControlError::Unexpected { address: self.address }),
        }
    }

    /// Asks to be written to no more.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn disconnect_ring(&mut self, channel: u16) -> Result<(), ControlError> {
        self.session.ask(&Request::Disconnect { channel });
        match self.exchange()? {
            Reply::Disconnected => Ok(()),
            _ => Err(ControlError::Unexpected { address: self.address }),
        }
    }

    /// Asks to be let into the channel's recovery server, for as long as this control connection lives: gives the number of
    /// the connection, and the key that its requests are to bear. A further one for the channel replaces it.
    ///
    /// # Errors
    /// [`ControlError`]; refused where there is no such server, or it has as many subscribers as it takes.
    pub fn recover(&mut self, channel: u16) -> Result<(u16, RequestKey), ControlError> {
        self.session.ask(&Request::Recover { channel, ring: None });
        match self.exchange()? {
            Reply::Recovery { connection, key, .. } if connection != 0 => Ok((connection, key)),
            _ => Err(ControlError::Unexpected { address: self.address }),
        }
    }

    /// The same where answers are to be written into `ring` by RDMA. The publisher will connect to it and present the token
    /// returned; [`Notice::Dropped`] says that it cannot, or that the connection is over, and recovery with it.
    ///
    /// # Errors
    /// As [`Control::recover`]; refused, too, where the publisher writes no answers.
    pub fn recover_by_ring(
        &mut self,
        channel: u16,
        ring: RingOffer,
    ) -> Result<(u16, RequestKey, OneTimeToken), ControlError> {
        self.session.ask(&Request::Recover { channel, ring: Some(ring) });
        match self.exchange()? {
            Reply::Recovery { connection, key, token: Some(token) } if connection != 0 => Ok((connection, key, token)),
            _ => Err(ControlError::Unexpected { address: self.address }),
        }
    }

    /// Says how far this subscriber has read: `next` is the line that it reads next, `ring_lines` the size of its ring where that
    /// is not the publisher's. There is no answer; when that ring is nearly full, [`Notice::Behind`] comes.
    ///
    /// # Errors
    /// [`ControlError::Io`] when the connection is over.
    pub fn report(&mut self, channel: u16, next: Stamp, ring_lines: Option<u64>) -> Result<(), ControlError> {
        self.session.ask(&Request::Position { channel, next: next.0, ring_lines });
        let sent = self.stream.write_all(self.session.output());
        self.session.sent();
        sent.map_err(|source| ControlError::Io { address: self.address, source })
    }

    /// What the publisher has said unasked, if it has. Never waits.
    ///
    /// # Errors
    /// [`ControlError::Io`] when the connection is over.
    pub fn next_notice(&mut self) -> Result<Option<Notice>, ControlError> {
        let address = self.address;
        let failed = |source| ControlError::Io { address, source };
        self.stream.set_nonblocking(true).map_err(failed)?;
        let mut buffer = [0; 4096];
        let read = self.stream.read(&mut buffer);
        self.stream.set_nonblocking(false).map_err(failed)?;
        match read {
            Ok(0) => {
                return Err(failed(io::Error::new(ErrorKind::UnexpectedEof, "it closed the connection")));
            }
            Ok(count) => self.session.on_bytes(&buffer[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(failed(error)),
        }
        while let Some(reply) = self.session.poll_reply().map_err(|source| ControlError::Frame { address, source })? {
            match self.notice(reply) {
                Ok(notice) => self.keep(notice),
                Err(Reply::Refused { why }) => return Err(ControlError::Refused { address, why }),
                Err(_) => return Err(ControlError::Unexpected { address }),
            }
        }
        Ok(self.notices.pop_front())
    }

    /// To be called now and then by whoever keeps the connection and waits for [notices](Control::next_notice): asks for
    /// the directory once a second, whose answer comes as [`Notice::Changed`]. A publisher whose host is gone, or the way to
    /// it, breaks no connection that nobody sends on; this notices it. Does not wait for the answer.
    ///
    /// # Errors
    /// [`ControlError::Silent`] if it has not answered for five seconds; [`ControlError::Io`].
    pub fn check(&mut self, now: Nanos) -> Result<(), ControlError> {
        let address = self.address;
        let waited_ns = self.checked_at.map_or(u64::MAX, |at| u64::try_from(now.since(at)).unwrap_or(0));
        if self.is_checking {
            let is_silent = waited_ns >= CHECK_PATIENCE_NS;
            return if is_silent { Err(ControlError::Silent { address, waited_ns }) } else { Ok(()) };
        }
        if waited_ns < CHECK_INTERVAL_NS {
            return Ok(());
        }
        self.session.ask(&Request::Directory);
        let sent = self.stream.write_all(self.session.output());
        self.session.sent();
        sent.map_err(|source| ControlError::Io { address, source })?;
        (self.checked_at, self.is_checking) = (Some(now), true);
        Ok(())
    }

    fn keep(&mut self, notice: Notice) {
        if self.notices.len() == MAX_NOTICES {
            self.notices.pop_front();
        }
        self.notices.push_back(notice);
    }

    /// Sends what is waiting and takes one answer.
    fn exchange(&mut self) -> Result<Reply, ControlError> {
        let address = self.address;
        let failed = |source| ControlError::Io { address, source };
        // A peer that refuses closes at once: what it said still stands in the receive buffer and is the better message.
        let sent = self.stream.write_all(self.session.output());
        self.session.sent();
        let until = Instant::now() + self.patience;
        let mut buffer = [0; 4096];
        loop {
            if let Some(reply) = self.session.poll_reply().map_err(|source| ControlError::Frame { address, source })? {
                match self.notice(reply) {
                    Ok(notice) => self.keep(notice),
                    Err(Reply::Refused { why }) => return Err(ControlError::Refused { address, why }),
                    Err(reply) => return Ok(reply),
                }
                continue;
            }
            // For the whole answer: a peer that sends it byte by byte has no longer.
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(failed(io::Error::from(ErrorKind::TimedOut)));
            }
            self.stream.set_read_timeout(Some(left)).map_err(failed)?;
            match self.stream.read(&mut buffer) {
                // With a time limit a read is not taken up again after a signal by itself (signal(7)).
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(0) => {
                    sent.map_err(failed)?;
                    return Err(failed(io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection")));
                }
                Ok(count) => self.session.on_bytes(&buffer[..count]),
                Err(source) => return Err(failed(source)),
            }
        }
    }

    /// What is said unasked, or in answer to a [check](Control::check); anything else comes back.
    fn notice(&mut self, reply: Reply) -> Result<Notice, Reply> {
        match reply {
            Reply::Dropped { channel, why } => Ok(Notice::Dropped { channel, why }),
            Reply::Changed { channels } => Ok(Notice::Changed { channels }),
            Reply::Behind { channel, lines, ring_lines } => Ok(Notice::Behind { channel, lines, ring_lines }),
            Reply::Directory { channels } if self.is_checking => {
                self.is_checking = false;
                Ok(Notice::Changed { channels })
            }
            reply => Err(reply),
        }
    }
}
