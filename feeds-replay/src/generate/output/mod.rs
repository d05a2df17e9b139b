//! A generated day as a file: BinaryFILE, or MoldUDP64 packets in a pcap or pcapng capture.
//!
//! [`DayWriter`] takes the messages one by one and keeps a constant amount of memory, whatever the day's size. Venue gaps
//! are messages that no line carries: in MoldUDP64 their sequence numbers are missing, in BinaryFILE nothing shows that
//! they ever were. With both lines each packet comes twice, on B a little later, and each line loses some packets that the
//! other has.

use std::io::{self, Write};

use publisher::date::SessionDate;

mod capture;
mod gaps;
mod mold;

pub use gaps::{Gap, Gaps};

use super::profile::BurstProfile;
use super::random::Random;
use capture::Capture;
use mold::{Line, Packetiser};

/// What kind of file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Each message behind its length.
    BinaryFile,
    /// MoldUDP64 in pcap.
    Pcap,
    /// MoldUDP64 in pcapng.
    Pcapng,
}

/// How a day is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutputOptions {
    /// What kind of file.
    pub format: Format,
    /// The day, for the times of packets.
    pub date: SessionDate,
    /// Times of packets in microseconds, not in nanoseconds.
    pub microseconds: bool,
    /// Line B beside line A.
    pub both_lines: bool,
    /// Of a million packets of a line, how many it loses on average; the other line has them.
    pub loss_per_million: u32,
    /// How many venue gaps.
    pub gaps: u32,
    /// Messages that the day has.
    pub messages: u64,
    /// What chance decides follows from it.
    pub seed: u64,
}

/// What was written.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Written {
    /// Messages that are in the file; with both lines counted once.
    pub messages: u64,
    /// Bytes.
    pub bytes: u64,
    /// Venue gaps: the messages that are not in the file.
    pub gaps: Vec<Gap>,
    /// Packets with messages on line A and on line B.
    pub packets: [u64; 2],
    /// Packets that line A and line B lost.
    pub lost: [u64; 2],
}

/// Writes a day.
pub struct DayWriter<W> {
    options: OutputOptions,
    gaps: Gaps,
    sequence: u64,
    profile: BurstProfile,
    written: Written,
    sink: Sink<W>,
}

enum Sink<W> {
    Plain(W),
    Packets(Box<Packets<W>>),
}

struct Packets<W> {
    packetiser: Packetiser,
    way: Way<W>,
    random: Random,
}

/// From the venue into the capture.
struct Way<W> {
    capture: Capture<W>,
    lines: usize,
    loss_per_million: u32,
    /// When the last packet of each line was captured.
    captured_ns: [u64; 2],
}

impl<W: Write> DayWriter<W> {
    /// A writer that has written what a file begins with.
    ///
    /// # Errors
    /// The destination's.
    pub fn new(options: OutputOptions, out: W) -> io::Result<DayWriter<W>> {
        let lines = if options.both_lines { 2 } else { 1 };
        let sink = match options.format {
            Format::BinaryFile => Sink::Plain(out),
            format => Sink::Packets(Box::new(Packets {
                packetiser: Packetiser::new(),
                way: Way {
                    capture: Capture::new(out, format, options.microseconds, lines)?,
                    lines,
                    loss_per_million: options.loss_per_million,
                    captured_ns: [0; 2],
                },
                random: Random::new(options.seed ^ 0x6D6F_6C64),
            })),
        };
        let gaps = Gaps::new(options.gaps, options.messages, options.seed);
        let written = Written { gaps: gaps.all().to_vec(), ..Written::default() };
        Ok(DayWriter { options, gaps, sequence: 0, profile: BurstProfile::default(), written, sink })
    }

    /// Takes the next message, behind its length.
    ///
    /// # Errors
    /// The destination's.
    #[inline]
    pub fn take(&mut self, framed: &[u8]) -> io::Result<()> {
        self.sequence += 1;
        let elapsed_ns = elapsed_ns(framed);
        self.profile.take(elapsed_ns);
        if self.gaps.holds(self.sequence) {
            return Ok(());
        }
        self.written.messages += 1;
        match &mut self.sink {
            Sink::Plain(out) => {
                self.written.bytes += framed.len() as u64;
                out.write_all(framed)
            }
            Sink::Packets(packets) => {
                let time_ns = self.options.date.at(elapsed_ns).0;
                let Packets { packetiser, way, random } = &mut **packets;
                let written = &mut self.written;
                packetiser.take(self.sequence, framed, time_ns, random, &mut |packet, sent_ns, random| {
                    way.send(packet, sent_ns, random, written)
                })
            }
        }
    }

    /// Ends the file: what is under way is written, the end of the session with it, and the destination is flushed.
    ///
    /// # Errors
    /// The destination's.
    pub fn finish(mut self) -> io::Result<(Written, BurstProfile, W)> {
        let mut out = match self.sink {
            Sink::Plain(out) => out,
            Sink::Packets(packets) => {
                let Packets { mut packetiser, mut way, mut random } = *packets;
                let written = &mut self.written;
                packetiser
                    .finish(&mut random, &mut |packet, sent_ns, random| way.send(packet, sent_ns, random, written))?;
                let (bytes, out) = way.capture.finish()?;
                self.written.bytes = bytes;
                out
            }
        };
        out.flush()?;
        Ok((self.written, self.profile, out))
    }
}

impl<W: Write> Way<W> {
    /// Sends a packet on every line but one that loses it.
    fn send(&mut self, packet: &[u8], sent_ns: u64, random: &mut Random, written: &mut Written) -> io::Result<()> {
        let mut lost = [false; 2];
        if self.lines == 2 && mold::has_messages(packet) && self.loss_per_million > 0 {
            // One draw for both lines, so that no packet is lost on both.
            let loss = u64::from(self.loss_per_million);
            let draw = random.below(1_000_000);
            lost = [draw < loss, (loss..2 * loss).contains(&draw)];
        }
        let mut arrives_ns = sent_ns + 4_000 + random.gap(1_000);
        for (at, line) in [Line::A, Line::B].into_iter().take(self.lines).enumerate() {
            // B takes the longer way.
            arrives_ns += if at == 1 { 2_000 + random.gap(20_000) } else { 0 };
            if lost[at] {
                written.lost[at] += 1;
                continue;
            }
            // A line keeps its packets in order, a frame's time at 10 Gbit/s apart at least.
            let frame_ns = packet.len() as u64 * 8 / 10;
            self.captured_ns[at] = arrives_ns.max(self.captured_ns[at] + frame_ns);
            written.packets[at] += u64::from(mold::has_messages(packet));
            self.capture.packet(line, self.captured_ns[at], packet)?;
        }
        self.capture.drain(sent_ns)
    }
}

/// The time in a message behind its length: ns since midnight, 48 bits at its sixth byte.
#[inline]
fn elapsed_ns(framed: &[u8]) -> u64 {
    framed[7..13].iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests;
