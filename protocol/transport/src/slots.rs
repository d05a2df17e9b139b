//! Packets as bytes, in memory set aside at the start: what the link and the fault injector hold.

use protocol::line::{LINE_LEN, Line, Stamp};
use protocol::packet::{HEADER_LEN, MAX_LINES, PacketHeader};
use protocol::record::{ChannelId, Lane};
use protocol::time::Nanos;
use zerocopy::IntoBytes;

/// Lines to a slot: the header takes the second half of the first one, so that what follows is aligned.
const SLOT_LINES: usize = 1 + MAX_LINES;

/// A fixed number of packets, each in a slot of its own, laid out as [`protocol::packet::decode`] wants them.
#[derive(Debug)]
pub(crate) struct Slots {
    memory: Box<[Line]>,
    /// Bytes of the packet in each slot.
    lens: Box<[usize]>,
    /// Slots not in use.
    free: Vec<usize>,
}

/// What stands in a packet's header beside the channel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) lane: Lane,
    /// The stamp after the last line.
    pub(crate) next: Stamp,
    pub(crate) publish_time: Nanos,
    pub(crate) ended: bool,
}

impl Slots {
    /// Room for `count` packets.
    pub(crate) fn new(count: usize) -> Slots {
        Slots {
            memory: vec![Line::ZERO; count * SLOT_LINES].into_boxed_slice(),
            lens: vec![0; count].into_boxed_slice(),
            free: (0..count).rev().collect(),
        }
    }

    /// Takes a slot, if one is free.
    pub(crate) fn take(&mut self) -> Option<usize> {
        self.free.pop()
    }

    /// Gives a slot back.
    pub(crate) fn give(&mut self, slot: usize) {
        debug_assert!(!self.free.contains(&slot), "slot {slot} given back twice");
        self.free.push(slot);
    }

    /// Writes a packet into `slot`: at most 63 lines, in two pieces as a ring gives them.
    pub(crate) fn write(&mut self, slot: usize, channel: ChannelId, head: Head, lines: (&[Line], &[Line])) {
        let count = lines.0.len() + lines.1.len();
        assert!(count <= MAX_LINES, "{count} lines in a packet of {MAX_LINES}");
        let header = PacketHeader::new(channel, head.lane, head.next, head.publish_time, head.ended);
        let memory = &mut self.memory[slot * SLOT_LINES..][..SLOT_LINES];
        memory[0].as_mut_bytes()[LINE_LEN - HEADER_LEN..].copy_from_slice(header.as_bytes());
        memory[1..][..lines.0.len()].copy_from_slice(lines.0);
        memory[1 + lines.0.len()..][..lines.1.len()].copy_from_slice(lines.1);
        self.lens[slot] = HEADER_LEN + count * LINE_LEN;
    }

    /// Copies the packet in `from` to `to`.
    pub(crate) fn copy(&mut self, from: usize, to: usize) {
        self.memory.copy_within(from * SLOT_LINES..(from + 1) * SLOT_LINES, to * SLOT_LINES);
        self.lens[to] = self.lens[from];
    }

    /// Cuts the packet in `slot` to `len` bytes, if it is longer.
    pub(crate) fn truncate(&mut self, slot: usize, len: usize) {
        self.lens[slot] = self.lens[slot].min(len);
    }

    /// The bytes of the packet in `slot`, its lines aligned.
    pub(crate) fn bytes(&self, slot: usize) -> &[u8] {
        let memory = self.memory[slot * SLOT_LINES..][..SLOT_LINES].as_bytes();
        &memory[LINE_LEN - HEADER_LEN..][..self.lens[slot]]
    }

    /// The bytes of the packet in `slot`, to be damaged.
    pub(crate) fn bytes_mut(&mut self, slot: usize) -> &mut [u8] {
        let memory = self.memory[slot * SLOT_LINES..][..SLOT_LINES].as_mut_bytes();
        &mut memory[LINE_LEN - HEADER_LEN..][..self.lens[slot]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::line::{Epoch, SequenceNumber};
    use protocol::packet::decode;
    use protocol::record::{InstrumentId, Kind, Record};

    #[test]
    fn a_packet_written_in_two_pieces_decodes_and_so_does_its_copy() {
        let channel = ChannelId::new(4);
        let first = Stamp::new(Epoch(2), SequenceNumber(10));
        let lines: Vec<Line> =
            (0..MAX_LINES as u64).map(|i| Line::seal(Record::new(Kind::ADD, InstrumentId(1)), first.plus(i))).collect();
        let mut slots = Slots::new(2);
        let (a, b) = (slots.take().expect("two slots"), slots.take().expect("two slots"));
        assert_eq!(slots.take(), None);
        let head =
            Head { lane: Lane::new(1), next: first.plus(MAX_LINES as u64), publish_time: Nanos(9), ended: false };
        slots.write(a, channel, head, (&lines[..20], &lines[20..]));
        slots.copy(a, b);
        slots.bytes_mut(a)[100] ^= 1;
        assert!(decode(slots.bytes(a), channel).is_err());
        let packet = decode(slots.bytes(b), channel).expect("the copy is whole");
        assert_eq!((packet.first, packet.lines), (first, &lines[..]));
        slots.truncate(b, 31);
        assert_eq!(slots.bytes(b).len(), 31);
        slots.give(a);
        assert_eq!((slots.take(), slots.take()), (Some(a), None));
    }
}
