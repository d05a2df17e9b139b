//! MoldUDP64, downstream: messages into packets, heartbeats, and the end of the session.
//!
//! A packet is session (10 bytes), sequence of its first message (8) and how many it holds (2), big-endian, then each
//! message behind its length (2). A count of 0 is a heartbeat and of 0xFFFF the end of the session; both name the sequence
//! that comes next.

use std::io;

use super::super::random::Random;

/// Which of the two copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Line {
    A,
    B,
}

/// Session, sequence, count.
const HEADER_LEN: usize = 20;
/// The most payload of a packet: what fits an Ethernet frame with IP and UDP headers.
const MOST_LEN: usize = 1472;
/// A packet is sent so long after its first message at the latest, ns.
const LINGER_NS: u64 = 5_000;
/// A sign of life after so much silence, ns.
const HEARTBEAT_NS: u64 = 1_000_000_000;
/// The session's name.
const SESSION: &[u8; 10] = b"GENERATED ";
const END_OF_SESSION: u16 = 0xFFFF;
/// How often the end of the session is said.
const ENDS: u64 = 3;

/// Whether a packet is neither a heartbeat nor the end.
pub(super) fn has_messages(packet: &[u8]) -> bool {
    !matches!(u16::from_be_bytes([packet[18], packet[19]]), 0 | END_OF_SESSION)
}

/// Gathers messages into packets.
#[derive(Debug)]
pub(super) struct Packetiser {
    packet: Vec<u8>,
    count: u16,
    /// The sequence number after the last message of the packet.
    next: u64,
    opened_ns: u64,
    last_ns: u64,
    /// When the packet before was sent.
    sent_ns: Option<u64>,
}

/// Takes a packet and the time it is sent.
type Send<'a> = &'a mut dyn FnMut(&[u8], u64, &mut Random) -> io::Result<()>;

impl Packetiser {
    pub(super) fn new() -> Packetiser {
        Packetiser { packet: Vec::with_capacity(MOST_LEN), count: 0, next: 1, opened_ns: 0, last_ns: 0, sent_ns: None }
    }

    /// Takes a message behind its length.
    #[inline]
    pub(super) fn take(
        &mut self,
        sequence: u64,
        framed: &[u8],
        time_ns: u64,
        random: &mut Random,
        send: Send<'_>,
    ) -> io::Result<()> {
        if self.count > 0
            && (sequence != self.next
                || self.packet.len() + framed.len() > MOST_LEN
                || time_ns - self.opened_ns > LINGER_NS)
        {
            self.flush(random, send)?;
        }
        if self.count == 0 {
            self.heartbeats(time_ns, random, send)?;
            self.packet.clear();
            self.packet.extend_from_slice(SESSION);
            self.packet.extend_from_slice(&sequence.to_be_bytes());
            self.packet.extend_from_slice(&[0, 0]);
            self.opened_ns = time_ns;
        }
        self.packet.extend_from_slice(framed);
        (self.count, self.next, self.last_ns) = (self.count + 1, sequence + 1, time_ns);
        Ok(())
    }

    /// Sends what there is, and the end of the session.
    pub(super) fn finish(&mut self, random: &mut Random, send: Send<'_>) -> io::Result<()> {
        self.flush(random, send)?;
        let sent_ns = self.sent_ns.unwrap_or(0);
        for nth in 1..=ENDS {
            self.bare(END_OF_SESSION);
            send(&self.packet, sent_ns + nth * HEARTBEAT_NS, random)?;
        }
        Ok(())
    }

    fn flush(&mut self, random: &mut Random, send: Send<'_>) -> io::Result<()> {
        if self.count > 0 {
            self.packet[HEADER_LEN - 2..HEADER_LEN].copy_from_slice(&self.count.to_be_bytes());
            // Packets leave in order.
            let sent_ns = (self.last_ns + 1_000).max(self.sent_ns.map_or(0, |sent_ns| sent_ns + 200));
            self.sent_ns = Some(sent_ns);
            self.count = 0;
            send(&self.packet, sent_ns, random)?;
        }
        Ok(())
    }

    /// What is sent while nothing happens until `time_ns`.
    fn heartbeats(&mut self, time_ns: u64, random: &mut Random, send: Send<'_>) -> io::Result<()> {
        while let Some(due_ns) = self.sent_ns.map(|sent_ns| sent_ns + HEARTBEAT_NS).filter(|due_ns| *due_ns < time_ns) {
            self.bare(0);
            self.sent_ns = Some(due_ns);
            send(&self.packet, due_ns, random)?;
        }
        Ok(())
    }

    /// A packet without messages.
    fn bare(&mut self, count: u16) {
        self.packet.clear();
        self.packet.extend_from_slice(SESSION);
        self.packet.extend_from_slice(&self.next.to_be_bytes());
        self.packet.extend_from_slice(&count.to_be_bytes());
    }
}
