//! From the publisher's ring to packets: the same for every lane that sends them.

use protocol::line::{Line, Stamp};
use protocol::packet::PacketHeader;
use protocol::record::{ChannelId, Lane};
use protocol::time::Nanos;

use crate::ring::RingWriter;

/// A packet as it is to be sent: a header, and lines where the ring has them, in one piece or two.
#[derive(Clone, Copy)]
pub(crate) struct Packet<'a> {
    pub(crate) header: PacketHeader,
    pub(crate) lines: (&'a [Line], &'a [Line]),
}

impl Packet<'_> {
    /// How many lines it has; a heartbeat has none.
    #[inline]
    pub(crate) fn line_count(&self) -> usize {
        self.lines.0.len() + self.lines.1.len()
    }
}

/// A lane's place in the ring. Cuts packets from there.
#[derive(Debug)]
pub(crate) struct Cutter {
    channel: ChannelId,
    lane: Lane,
    /// Where the ring is that it began with.
    ring_address: usize,
    /// The stamp of the next line to send.
    cursor: Stamp,
}

impl Cutter {
    /// At the present head of `ring`.
    pub(crate) fn new(ring: &RingWriter) -> Cutter {
        let (channel, lane, cursor) = (ring.channel(), ring.lane(), ring.head());
        Cutter { channel, lane, ring_address: address(ring), cursor }
    }

    /// The stamp of the next line to send.
    #[inline]
    pub(crate) fn cursor(&self) -> Stamp {
        self.cursor
    }

    /// Whether everything up to the ring's head was cut.
    #[inline]
    pub(crate) fn is_at_head(&self, ring: &RingWriter) -> bool {
        self.cursor == ring.head()
    }

    /// Passes over what the ring has overwritten already; returns how many lines. To be called before packets are cut.
    ///
    /// # Panics
    /// If this is not the ring that it began with.
    #[inline]
    pub(crate) fn catch_up(&mut self, ring: &RingWriter) -> u64 {
        assert!(
            self.cursor.epoch() == ring.epoch() && self.ring_address == address(ring),
            "lane opened on another ring than it is flushed with: epoch {:?} and {:?}",
            self.cursor.epoch(),
            ring.epoch()
        );
        let behind = ring.oldest().sequence().0.saturating_sub(self.cursor.sequence().0);
        self.cursor = self.cursor.plus(behind);
        behind
    }

    /// The next packet, of `most` lines at most; `None` at the ring's head.
    #[inline]
    pub(crate) fn cut<'a>(&mut self, ring: &'a RingWriter, most: usize, now: Nanos) -> Option<Packet<'a>> {
        let owed = ring.head().0 - self.cursor.0;
        if owed == 0 {
            return None;
        }
        let count = (owed as usize).min(most);
        let lines = ring.lines(self.cursor, count);
        self.cursor = self.cursor.plus(count as u64);
        Some(Packet { header: PacketHeader::new(self.channel, self.lane, self.cursor, now, false), lines })
    }

    /// Goes to the ring's head without sending; returns how many lines it passed over.
    #[cfg(any(test, feature = "rdma"))]
    #[inline]
    pub(crate) fn pass_over(&mut self, ring: &RingWriter) -> u64 {
        let owed = ring.head().0 - self.cursor.0;
        self.cursor = ring.head();
        owed
    }

    /// A packet without lines, which says where the ring's writer stands.
    #[inline]
    pub(crate) fn heartbeat(&self, ring: &RingWriter, now: Nanos, ended: bool) -> Packet<'static> {
        Packet { header: PacketHeader::new(self.channel, self.lane, ring.head(), now, ended), lines: (&[], &[]) }
    }
}

fn address(ring: &RingWriter) -> usize {
    ring.memory().address().as_ptr() as usize
}

/// What became of packets that were handed to a transport together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tally {
    /// Packets with lines that were taken.
    pub(crate) packets: u64,
    /// Lines in them.
    pub(crate) lines: u64,
    /// Heartbeats that were taken.
    pub(crate) heartbeats: u64,
    /// Packets and heartbeats that were not.
    pub(crate) packets_dropped: u64,
    /// Lines in those.
    pub(crate) lines_dropped: u64,
}

impl Tally {
    /// Of packets with so many lines each, of which the first `taken` were taken.
    #[inline]
    pub(crate) fn new(line_counts: &[usize], taken: usize) -> Tally {
        let mut tally = Tally::default();
        for (place, &lines) in line_counts.iter().enumerate() {
            if place < taken {
                tally.packets += u64::from(lines > 0);
                tally.heartbeats += u64::from(lines == 0);
                tally.lines += lines as u64;
            } else {
                tally.packets_dropped += 1;
                tally.lines_dropped += lines as u64;
            }
        }
        tally
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::line::{Epoch, SequenceNumber};
    use protocol::record::{InstrumentId, Kind, Record};

    fn ring() -> RingWriter {
        RingWriter::anonymous(ChannelId::new(1), Lane::new(0), Epoch(3), 16).expect("a ring without a name")
    }

    fn put(ring: &mut RingWriter, count: usize) {
        for _ in 0..count {
            let line = Line::seal(Record::new(Kind::ADD, InstrumentId(1)), ring.next());
            ring.put(&line);
        }
        ring.flush();
    }

    fn stamp(sequence: u64) -> Stamp {
        Stamp::new(Epoch(3), SequenceNumber(sequence))
    }

    #[test]
    fn packets_follow_each_other_up_to_the_head_and_over_the_wrap() {
        let mut ring = ring();
        let mut cutter = Cutter::new(&ring);
        assert!(cutter.is_at_head(&ring) && cutter.cut(&ring, 7, Nanos(1)).is_none());
        let mut expected = 1;
        for count in [7, 1, 12, 15] {
            put(&mut ring, count);
            assert_eq!(cutter.catch_up(&ring), 0);
            let mut cut = 0;
            while let Some(packet) = cutter.cut(&ring, 7, Nanos(1)) {
                let lines: Vec<&Line> = packet.lines.0.iter().chain(packet.lines.1).collect();
                assert!((1..=7).contains(&lines.len()) && lines.len() == packet.line_count());
                for line in &lines {
                    assert_eq!(line.stamp(), stamp(expected));
                    expected += 1;
                }
                cut += lines.len();
            }
            assert_eq!((cut, cutter.cursor()), (count, stamp(expected)));
        }
        assert_eq!(cutter.heartbeat(&ring, Nanos(2), false).line_count(), 0);
    }

    #[test]
    fn what_is_overwritten_is_passed_over_and_counted() {
        let mut ring = ring();
        let mut cutter = Cutter::new(&ring);
        put(&mut ring, 40);
        let skipped = cutter.catch_up(&ring);
        assert_eq!(cutter.cursor(), ring.oldest());
        assert_eq!(skipped + cutter.pass_over(&ring), 40);
        assert!(cutter.is_at_head(&ring));
    }

    #[test]
    #[should_panic(expected = "lane opened on another ring")]
    fn another_ring_is_refused() {
        Cutter::new(&ring())
            .catch_up(&RingWriter::anonymous(ChannelId::new(1), Lane::new(0), Epoch(4), 16).expect("one"));
    }

    #[test]
    fn each_packet_counts_where_it_went() {
        let tally = Tally::new(&[3, 0, 5, 0, 7], 3);
        let expected = Tally { packets: 2, lines: 8, heartbeats: 1, packets_dropped: 2, lines_dropped: 7 };
        assert_eq!(tally, expected);
        assert_eq!(Tally::new(&[], 0), Tally::default());
    }
}
