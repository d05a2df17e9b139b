//! Datagrams one behind the other in a file, with nothing between them: each is as long as its messages say.

use std::io::Read;

use super::packet::{END_OF_SESSION, HEADER_LEN, LENGTH_LEN, MoldPacket, Purpose};
use crate::capture::window::{LONGEST, Window};
use crate::feed::FeedError;

/// The datagrams of such a file. One that is cut off comes first as far as it goes, then as the error.
pub(super) struct RawPackets<R> {
    window: Window<R>,
    /// Bytes that the datagram handed out last still occupies.
    lent: usize,
    datagrams: u64,
    messages: u64,
    fault: Option<FeedError>,
}

impl<R: Read> RawPackets<R> {
    pub(super) fn new(window: Window<R>) -> RawPackets<R> {
        RawPackets { window, lent: 0, datagrams: 0, messages: 0, fault: None }
    }

    pub(super) fn window(&self) -> &Window<R> {
        &self.window
    }

    /// Whether a stream that begins with `head` can be this: a header with messages, and the first of them begins.
    pub(super) fn is_one(head: &[u8]) -> bool {
        let Some(packet) = MoldPacket::parse(head) else { return false };
        match packet.purpose {
            // Something has to tell it from a BinaryFILE of blanked lengths: a first message that has a length.
            Purpose::Messages => {
                packet.sequence < 1 << 48
                    && head.get(HEADER_LEN..HEADER_LEN + LENGTH_LEN).is_some_and(|length| length != [0, 0])
            }
            Purpose::Heartbeat | Purpose::EndOfSession => packet.sequence != 0 && packet.sequence < 1 << 48,
            Purpose::Request => false,
        }
    }

    /// The next datagram and where it begins; `None` at the end.
    pub(super) fn next_packet(&mut self) -> Result<Option<(u64, &[u8])>, FeedError> {
        self.window.consume(std::mem::take(&mut self.lent));
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        if !self.window.fill(1) {
            self.window.broken()?;
            return Ok(None);
        }
        self.datagrams += 1;
        let offset = self.window.offset();
        let (len, present) = match self.measure() {
            Ok(len) => (len, len),
            Err((fault, present)) => {
                self.fault = Some(fault.clone());
                // A header alone would be read as a request.
                if present <= HEADER_LEN {
                    return Err(fault);
                }
                (0, present)
            }
        };
        self.lent = len;
        Ok(Some((offset, &self.window.unread()[..present])))
    }

    /// How long the datagram is; or why it is not whole, and how much of it is.
    fn measure(&mut self) -> Result<usize, (FeedError, usize)> {
        self.need(HEADER_LEN, 0, 0)?;
        let head = &self.window.unread()[..HEADER_LEN];
        if MoldPacket::parse(head).is_none() {
            return Err((self.damaged("no MoldUDP64 header stands where one must"), 0));
        }
        let count = match u16::from_be_bytes([head[HEADER_LEN - 2], head[HEADER_LEN - 1]]) {
            END_OF_SESSION => 0,
            count => count,
        };
        let mut len = HEADER_LEN;
        for _ in 0..count {
            self.need(len + LENGTH_LEN, len, len)?;
            let unread = self.window.unread();
            let message_len = usize::from(u16::from_be_bytes([unread[len], unread[len + 1]]));
            self.need(len + LENGTH_LEN + message_len, len, len)?;
            self.messages += 1;
            len += LENGTH_LEN + message_len;
        }
        Ok(len)
    }

    /// Reads up to `wanted` bytes of the datagram; `message_at` is where the message begins that needs them, and `whole`
    /// bytes of the datagram are good.
    fn need(&mut self, wanted: usize, message_at: usize, whole: usize) -> Result<(), (FeedError, usize)> {
        if wanted > LONGEST {
            return Err((self.damaged("a datagram of more than 16 MiB is announced"), whole));
        }
        if self.window.fill(wanted) {
            return Ok(());
        }
        let fault = match self.window.broken() {
            Err(broken) => broken,
            Ok(()) => FeedError::Truncated {
                path: self.window.path().to_owned(),
                offset: self.window.offset() + message_at as u64,
                ordinal: self.messages + 1,
                needed: (wanted - message_at) as u64,
                present: (self.window.unread().len() - message_at) as u64,
            },
        };
        Err((fault, whole))
    }

    fn damaged(&self, what: &'static str) -> FeedError {
        FeedError::CaptureDamaged {
            path: self.window.path().to_owned(),
            offset: self.window.offset(),
            packet: self.datagrams,
            what,
        }
    }
}
