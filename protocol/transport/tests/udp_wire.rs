//! The UDP lane beside strangers: foreign bytes, other channels, full queues, an overtaken cursor. On loopback only.

#![forbid(unsafe_code)]

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use protocol::line::{Epoch, LINE_LEN, Line, Stamp};
use protocol::packet::{HEADER_LEN, MAX_LINES, PacketHeader, Refused};
use protocol::record::{ChannelId, InstrumentId, Kind, Lane, Record};
use protocol::run::{Carrier, LanePath, LossCause, Position, Run, RunSink};
use protocol::time::Nanos;
use socket2::{Domain, Protocol, Socket, Type};
use transport::ring::RingWriter;
use transport::udp::{Interface, UdpError, UdpOptions, UdpRx, UdpTx};
use transport::{LaneRx, LaneTx};
use zerocopy::IntoBytes;

const CHANNEL: ChannelId = ChannelId::new(77);
const LANE: Lane = Lane::new(0);
const NOW: Nanos = Nanos(1_700_000_000_000_000_000);
/// A hundred times what loopback takes on a busy machine.
const DEADLINE: Duration = Duration::from_secs(10);

/// A group of this process's own, a port of each call's own.
fn options() -> UdpOptions {
    static PORT: AtomicU16 = AtomicU16::new(0);
    let [.., high, low] = std::process::id().to_be_bytes();
    let port = 22_000 + PORT.fetch_add(1, Ordering::Relaxed);
    UdpOptions { ttl: 0, ..UdpOptions::new(Ipv4Addr::new(239, 255, high, low), port, Interface::LOOPBACK) }
}

fn ring(capacity: usize) -> RingWriter {
    RingWriter::anonymous(CHANNEL, LANE, Epoch(1), capacity).expect("a ring without a name")
}

fn line(stamp: Stamp) -> Line {
    let mut record = Record::new(Kind::ADD, InstrumentId(1));
    record.order_id.set(stamp.0.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    Line::seal(record, stamp)
}

fn put(ring: &mut RingWriter, count: usize) {
    for _ in 0..count {
        let line = line(ring.next());
        ring.put(&line);
    }
    ring.flush();
}

/// A socket that sends whatever it is given to the lane's group and port.
fn stranger(options: &UdpOptions) -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).expect("socket");
    socket.set_multicast_if_v4(&Ipv4Addr::LOCALHOST).expect("interface");
    socket.set_multicast_ttl_v4(0).expect("ttl");
    socket.connect(&options.destination().into()).expect("connect");
    socket
}

#[derive(Default)]
struct Seen {
    sequences: Vec<u64>,
    run_lens: Vec<usize>,
    positions: Vec<Position>,
}

impl RunSink for Seen {
    fn on_run(&mut self, run: Run<'_>) {
        assert_eq!(run.publish_time, Some(NOW));
        assert_eq!(run.lines.as_ptr() as usize % LINE_LEN, 0);
        for (i, got) in run.lines.iter().enumerate() {
            assert_eq!(*got, line(run.first.plus(i as u64)));
            self.sequences.push(run.first.sequence().0 + i as u64);
        }
        self.run_lens.push(run.lines.len());
    }
    fn on_position(&mut self, position: Position) {
        self.positions.push(position);
    }
    fn on_loss(&mut self, _: LanePath, first: Stamp, _: u64, _: LossCause) {
        panic!("a datagram lane declared a loss at {first}");
    }
}

fn poll_until(rx: &mut UdpRx, seen: &mut Seen, what: &str, done: impl Fn(&UdpRx, &Seen) -> bool) {
    let start = Instant::now();
    while !done(rx, seen) {
        if rx.poll(NOW, 1 << 20, seen) == 0 {
            assert!(start.elapsed() < DEADLINE, "{what}: not within {DEADLINE:?}; {:?}", rx.counters());
            std::thread::yield_now();
        }
    }
}

/// A well-formed packet of `count` lines from sequence 1 on.
fn packet(channel: ChannelId, count: usize) -> Vec<u8> {
    let first = Stamp::new(Epoch(1), protocol::line::SequenceNumber::FIRST);
    let mut bytes = PacketHeader::new(channel, LANE, first.plus(count as u64), NOW, false).as_bytes().to_vec();
    for i in 0..count as u64 {
        bytes.extend_from_slice(line(first.plus(i)).as_bytes());
    }
    bytes
}

#[test]
fn foreign_bytes_change_nothing_but_counters() {
    let options = options();
    let mut ring = ring(256);
    let mut tx = UdpTx::open(&options, &ring).expect("sender");
    let mut rx = UdpRx::open(&options, CHANNEL).expect("receiver");
    let stranger = stranger(&options);

    let mut old_version = packet(CHANNEL, 1);
    old_version[3] = 0;
    let mut bad_tag = packet(CHANNEL, 1);
    bad_tag[9] ^= 0x10;
    let mut bad_line = packet(CHANNEL, 3);
    bad_line[HEADER_LEN + 2 * LINE_LEN + 5] ^= 1;
    let mut oversize = packet(CHANNEL, MAX_LINES);
    oversize.push(0);
    let mut padded = packet(CHANNEL, 2);
    padded.extend_from_slice(&[0; 6]);
    let foreign: [(&[u8], Option<Refused>); 10] = [
        (&[], Some(Refused::Short)),
        (&[0xA5; 31], Some(Refused::Short)),
        (b"this is no packet of ours, but it is longer than a header", Some(Refused::Magic)),
        (&old_version, Some(Refused::Magic)),
        (&bad_tag, Some(Refused::Tag)),
        (&packet(ChannelId::new(78), 2), Some(Refused::Channel)),
        (&padded, Some(Refused::Length)),
        (&bad_line, Some(Refused::Line)),
        (&oversize, None),
        (&[0xFF; 9000], None),
    ];
    let mut refused = [0; Refused::COUNT];
    let mut seen = Seen::default();
    for (bytes, expected) in &foreign {
        put(&mut ring, 5);
        assert_eq!(tx.flush(&ring, NOW), 5);
        assert_eq!(stranger.send(bytes).expect("send"), bytes.len());
        if let Some(expected) = expected {
            refused[expected.index()] += 1;
        }
    }
    put(&mut ring, 5);
    tx.flush(&ring, NOW);
    poll_until(&mut rx, &mut seen, "all lines", |_, seen| seen.sequences.len() >= 55);
    assert_eq!(seen.sequences, (1..=55).collect::<Vec<_>>());
    let counters = rx.counters();
    assert_eq!((counters.refused, counters.truncated), (refused, 2));
    assert_eq!((counters.packets, counters.lines, counters.heartbeats), (11, 55, 0));
    assert_eq!((counters.errors, counters.refused_total(), seen.positions.len()), (0, 10, 0));
}

#[test]
fn unicast_and_other_groups_on_the_same_port_are_not_heard() {
    let options = options();
    let other = UdpOptions { group: Ipv4Addr::new(239, 254, 1, (std::process::id() & 0xFF) as u8), ..options.clone() };
    let ring = ring(64);
    let mut rx = UdpRx::open(&options, CHANNEL).expect("receiver");
    let mut neighbour = UdpRx::open(&other, CHANNEL).expect("receiver of another group");
    let mut unicast_to = options.clone();
    unicast_to.group = Ipv4Addr::LOCALHOST;
    // Nobody listens there, so the system may answer a second send with a refusal; the first goes out.
    assert_eq!(stranger(&unicast_to).send(&packet(CHANNEL, 1)).expect("send"), HEADER_LEN + LINE_LEN);
    assert_eq!(stranger(&other).send(&packet(CHANNEL, 1)).expect("send"), HEADER_LEN + LINE_LEN);
    UdpTx::open(&options, &ring).expect("sender").heartbeat(&ring, NOW, false);

    let (mut seen, mut seen_there) = (Seen::default(), Seen::default());
    poll_until(&mut neighbour, &mut seen_there, "the other group's packet", |_, seen| !seen.sequences.is_empty());
    poll_until(&mut rx, &mut seen, "the heartbeat", |_, seen| !seen.positions.is_empty());
    assert_eq!((seen.sequences.len(), rx.counters().refused_total()), (0, 0));
    assert_eq!((seen_there.sequences.len(), seen_there.positions.len()), (1, 0));
}

#[test]
fn what_a_full_queue_dropped_is_counted_to_the_packet() {
    let options = UdpOptions { receive_buffer: 16 << 10, ..options() };
    let mut ring = ring(1024);
    let mut tx = UdpTx::open(&options, &ring).expect("sender");
    let mut rx = UdpRx::open(&options, CHANNEL).expect("receiver");
    let mut seen = Seen::default();
    let mut dropped_before = 0;
    // Twice: the kernel's count is a running total.
    for round in 1..=2 {
        for _ in 0..500 {
            put(&mut ring, 22);
            assert_eq!(tx.flush(&ring, NOW), 22);
        }
        while rx.poll(NOW, 1 << 20, &mut seen) > 0 {}
        // The kernel's count comes with the first datagram that it queued after the last drop.
        put(&mut ring, 1);
        tx.flush(&ring, NOW);
        let last = round * 11_001;
        poll_until(&mut rx, &mut seen, "the last line", |_, seen| seen.sequences.last() == Some(&last));
        let (sent, got) = (tx.counters(), rx.counters());
        assert_eq!((sent.packets, sent.packets_dropped), (round * 501, 0));
        assert!(got.kernel_drops > dropped_before, "round {round}: nothing was dropped: {got:?}");
        assert_eq!(got.packets + got.kernel_drops, sent.packets, "round {round}");
        // What is missing is whole packets, and the stamps tell which.
        assert_eq!(last - seen.sequences.len() as u64, got.kernel_drops * 22, "round {round}");
        assert!(seen.sequences.is_sorted());
        dropped_before = got.kernel_drops;
    }
}

#[test]
fn a_lane_flushed_too_late_skips_what_the_ring_no_longer_holds_and_counts_it() {
    let options = options();
    let mut ring = ring(64);
    let mut tx = UdpTx::open(&options, &ring).expect("sender");
    let mut rx = UdpRx::open(&options, CHANNEL).expect("receiver");
    for _ in 0..20 {
        put(&mut ring, 10);
    }
    assert_eq!(tx.flush(&ring, NOW), 64);
    assert_eq!(tx.counters().lines_skipped, 136);
    assert_eq!((tx.cursor(), tx.flush(&ring, NOW)), (ring.head(), 0));
    let mut seen = Seen::default();
    poll_until(&mut rx, &mut seen, "what the ring held", |_, seen| seen.sequences.last() == Some(&200));
    assert_eq!(seen.sequences, (137..=200).collect::<Vec<_>>());
    assert_eq!(seen.run_lens, [22, 22, 20]);
}

#[test]
fn lines_across_the_wrap_of_the_ring_go_in_one_packet() {
    let options = UdpOptions { mtu: 65_536, ..options() };
    let mut ring = ring(64);
    let mut tx = UdpTx::open(&options, &ring).expect("sender");
    let mut rx = UdpRx::open(&options, CHANNEL).expect("receiver");
    let mut seen = Seen::default();
    // Packets of 50 lines: from the second on, most lie across the wrap of a ring of 64.
    for turn in 1..=20 {
        put(&mut ring, 50);
        assert_eq!(tx.flush(&ring, NOW), 50);
        poll_until(&mut rx, &mut seen, "a packet", |_, seen| seen.sequences.len() == turn * 50);
    }
    assert_eq!(seen.run_lens, [50; 20]);
    assert_eq!(seen.sequences, (1..=1000).collect::<Vec<_>>());
    // A ring's worth of lines takes two packets: 63 is the most.
    put(&mut ring, 64);
    tx.flush(&ring, NOW);
    poll_until(&mut rx, &mut seen, "two packets", |_, seen| seen.sequences.len() == 1064);
    assert_eq!(seen.run_lens[20..], [63, 1]);
}

#[test]
fn a_heartbeat_sends_first_what_is_still_owed() {
    let options = options();
    let mut ring = ring(64);
    let mut tx = UdpTx::open(&options, &ring).expect("sender");
    let mut rx = UdpRx::open(&options, CHANNEL).expect("receiver");
    put(&mut ring, 30);
    tx.heartbeat(&ring, NOW, true);
    let mut seen = Seen::default();
    poll_until(&mut rx, &mut seen, "the heartbeat", |_, seen| !seen.positions.is_empty());
    assert_eq!(seen.sequences, (1..=30).collect::<Vec<_>>());
    assert_eq!(
        seen.positions,
        [Position { path: LanePath::new(LANE, Carrier::Udp), next: ring.head(), publish_time: Some(NOW), ended: true }]
    );
}

#[test]
fn a_port_held_alone_by_another_program_is_an_error_that_names_it() {
    let options = options();
    let holder = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).expect("socket");
    holder.bind(&SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, options.port).into()).expect("bind");
    let error = UdpRx::open(&options, CHANNEL).map(|_| ()).unwrap_err();
    assert!(matches!(&error, UdpError::InUse { destination, .. } if *destination == options.destination()), "{error}");
    let text = error.to_string();
    assert!(text.contains(&options.destination().to_string()) && text.contains("ss -ulpn"), "{text}");
    // Once it is free, the same options work.
    drop(holder);
    UdpRx::open(&options, CHANNEL).expect("receiver");
}

#[test]
fn a_receive_buffer_smaller_than_asked_for_is_reported() {
    // No system in its senses grants this much to a socket.
    let short = UdpRx::open(&UdpOptions { receive_buffer: 1 << 30, ..options() }, CHANNEL).expect("receiver");
    assert!(short.receive_buffer().is_short(), "{:?}", short.receive_buffer());
    // In a container the kernel's limit may be out of sight.
    if let Ok(most) = std::fs::read_to_string("/proc/sys/net/core/rmem_max") {
        assert_eq!(short.receive_buffer().granted.to_string(), most.trim());
    }
    let enough = UdpRx::open(&UdpOptions { receive_buffer: 64 << 10, ..options() }, CHANNEL).expect("receiver");
    assert!(!enough.receive_buffer().is_short(), "{:?}", enough.receive_buffer());
}
