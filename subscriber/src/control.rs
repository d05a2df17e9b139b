//! Asking a publisher which channels it has, and how to get them.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use protocol::control::{ChannelInfo, ClientSession, FrameError, InstrumentInfo, Reply, Request};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

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
    /// It answered something else than what was asked.
    #[error("the publisher at {address} answered something else than what was asked; is it of another version?")]
    Unexpected {
        /// Where.
        address: SocketAddr,
    },
}

/// An open control connection.
#[derive(Debug)]
pub struct Control {
    address: SocketAddr,
    stream: TcpStream,
    session: ClientSession,
    pid: u32,
}

impl Control {
    /// Connects, and shows who it is: `token` is one of those in the publisher's `[control]`, `name` is for its messages.
    ///
    /// # Errors
    /// [`ControlError`], within five seconds.
    pub fn connect(address: SocketAddr, token: &str, name: &str) -> Result<Control, ControlError> {
        let failed = |source| ControlError::Io { address, source };
        let stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(failed)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let mut control = Control { address, stream, session: ClientSession::new(token, name), pid: 0 };
        match control.exchange()? {
            Reply::Welcome { pid } => control.pid = pid,
            _ => return Err(ControlError::Unexpected { address }),
        }
        Ok(control)
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

    /// Sends what is waiting and takes one answer.
    fn exchange(&mut self) -> Result<Reply, ControlError> {
        let address = self.address;
        let failed = |source| ControlError::Io { address, source };
        // A peer that refuses closes at once: what it said still stands in the receive buffer and is the better message.
        let sent = self.stream.write_all(self.session.output());
        self.session.sent();
        let mut buffer = [0; 4096];
        loop {
            if let Some(reply) = self.session.poll_reply().map_err(|source| ControlError::Frame { address, source })? {
                return match reply {
                    Reply::Refused { why } => Err(ControlError::Refused { address, why }),
                    reply => Ok(reply),
                };
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => {
                    sent.map_err(failed)?;
                    return Err(failed(io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection")));
                }
                Ok(count) => self.session.on_bytes(&buffer[..count]),
                Err(source) => return Err(failed(source)),
            }
        }
    }
}
