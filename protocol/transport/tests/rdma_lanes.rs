//! The RDMA lanes between two soft devices: what is set up, what is refused, and what a peer can and cannot do.

#![forbid(unsafe_code)]

mod rdma_support;

use std::net::Ipv4Addr;
use std::process::Command;
use std::time::{Duration, Instant};

use protocol::line::Stamp;
use protocol::record::ChannelId;
use protocol::run::{LanePath, LossCause, Position, Run, RunSink};
use protocol::time::Nanos;
use rdma_support::*;
use transport::rdma::*;
use transport::{LaneRx, LaneTx};

/// Far beyond what anything here takes.
const LIMIT: Duration = Duration::from_secs(20);

/// Checks the content of every line, and their order.
#[derive(Default)]
struct Seen {
    /// The sequence number after the last line; 0 before the first.
    next: u64,
    lines: u64,
    dated: u64,
    positions: Vec<Position>,
}

impl RunSink for Seen {
    fn on_run(&mut self, run: Run<'_>) {
        assert!(self.next == 0 || run.first.sequence().0 == self.next, "{} after {}", run.first, self.next);
        for (i, line) in run.lines.iter().enumerate() {
            let at = run.first.plus(i as u64);
            assert_eq!(*line, line_of(at), "content of {at}");
        }
        self.next = run.end().sequence().0;
        self.lines += run.lines.len() as u64;
        self.dated += if run.publish_time.is_some() { run.lines.len() as u64 } else { 0 };
    }

    fn on_position(&mut self, position: Position) {
        self.positions.push(position);
    }

    fn on_loss(&mut self, _: LanePath, first: Stamp, count: u64, cause: LossCause) {
        panic!("{count} lines from {first} are lost: {cause:?}");
    }
}

fn words_of(ring: &RcRing) -> Vec<u64> {
    use std::sync::atomic::Ordering;
    use transport::ring::core::{Word, Words};
    let lines = ring.offer().lines;
    (0..lines + 2)
        .flat_map(|line| Words::<8>::place(ring.memory(), line * 8).each_ref().map(|word| word.load(Ordering::Acquire)))
        .collect()
}

/// Flushes until something happened to a peer.
fn event(tx: &mut RcRingTx, ring: &transport::RingWriter) -> (PeerEvent, Duration) {
    let start = Instant::now();
    loop {
        tx.flush(ring, now());
        if let Some(event) = tx.next_event() {
            return (event, start.elapsed());
        }
        assert!(start.elapsed() < LIMIT, "nothing happened within {LIMIT:?}");
        std::thread::yield_now();
    }
}

#[test]
fn the_gid_of_an_address_is_found_by_looking_and_is_not_the_first() {
    for (address, device) in [(HERE, "rxe0"), (THERE, "rxe1")] {
        let local = LocalPort::find(None, address).expect("a port with the address");
        assert_eq!((local.device.name(), local.device.transport()), (device, Transport::InfiniBand));
        assert_eq!((local.port.number, local.port.state), (1, PortState::Active));
        assert_eq!((local.port.link_layer, local.port.active_mtu), (LinkLayer::Ethernet, 4096));
        assert_eq!((local.fabric, local.pkey_index), (Fabric::RoceV2, 0));
        assert_eq!((local.gid.gid, local.gid.gid_type), (Gid::from_ipv4(address), GidType::RoceV2));
        let first = local.port.gids.first().expect("a table that is not empty");
        assert_eq!((first.index, first.is_roce_v2_ipv4()), (0, false), "{:?}", local.port.gids);
        assert!(local.gid.index > 0);
        assert_eq!(LocalPort::find(Some(device), address).expect("the same one").gid, local.gid);
        assert_eq!(local.look_again().expect("the same one").gid, local.gid);
    }
}

#[test]
fn a_survey_names_what_there_is_and_what_is_missing() {
    let survey = Survey::take();
    let names: Vec<&str> = survey.devices.iter().map(|device| &device.name[..]).collect();
    assert_eq!(names, ["rxe0", "rxe1"]);
    for (device, (address, interface)) in survey.devices.iter().zip([(HERE, "w0"), (THERE, "w1")]) {
        let found = device.found.as_ref().expect("it opens");
        assert_eq!((found.transport, found.ports.len()), (Transport::InfiniBand, 1));
        let port = &found.ports[0];
        assert_eq!((port.fabric, port.port.active_mtu), (Some(Fabric::RoceV2), 4096));
        let place = port.port.gids.iter().position(|entry| entry.gid.ipv4() == Some(address)).expect("its GID");
        assert_eq!(port.port.gids[place].gid_type, GidType::RoceV2);
        assert_eq!(port.interfaces[place].as_deref(), Some(interface));
    }
    let [roce, infiniband, iwarp] = &survey.verdicts()[..] else { panic!("three fabrics") };
    assert_eq!(roce.ports.iter().flat_map(|port| port.addresses.clone()).collect::<Vec<_>>(), [HERE, THERE]);
    assert!(roce.missing.is_empty(), "{:?}", roce.missing);
    assert!(!infiniband.is_usable() && infiniband.missing[0].contains("InfiniBand card"), "{:?}", infiniband.missing);
    assert!(!iwarp.is_usable() && iwarp.missing[0].contains("siw"), "{:?}", iwarp.missing);
}

#[test]
fn an_address_or_a_device_that_is_not_there_is_named_with_those_that_are() {
    let nobody = Ipv4Addr::new(10, 99, 0, 77);
    let text = LocalPort::find(None, nobody).expect_err("nobody has it").to_string();
    for part in ["10.99.0.77", "rxe0 ::ffff:10.99.0.1", "rxe1 ::ffff:10.99.0.2", "ip addr"] {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
    let text = LocalPort::find(Some("mlx9"), HERE).expect_err("no such device").to_string();
    for part in ["mlx9", "rxe0, rxe1", "rdma link add"] {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
    // This host's, but no RDMA device's.
    let text = LocalPort::find(None, Ipv4Addr::LOCALHOST).expect_err("no device has it").to_string();
    assert!(text.contains("127.0.0.1") && text.contains("rxe0"), "{text}");
    let text = LocalPort::find(Some("rxe1"), HERE).expect_err("the other's").to_string();
    assert!(text.contains("10.99.0.1 is the address of rxe0, not of rxe1"), "{text}");
    let error = UdRx::open(&ud_options(THERE, Ipv4Addr::new(10, 0, 0, 1)), CHANNEL).err().expect("no group");
    assert!(matches!(error, RdmaError::Multicast { .. }), "{error}");
    let error = RcRing::open(None, THERE, 100).err().expect("no power of two");
    assert!(matches!(error, RdmaError::Limit { value: 100, .. }), "{error}");
    let options = UdOptions { qkey: 1 << 31, ..ud_options(THERE, fresh_group()) };
    let error = UdRx::open(&options, CHANNEL).err().expect("a privileged key");
    assert!(error.to_string().contains("Q_Key"), "{error}");
}

#[test]
fn memory_that_may_not_be_locked_is_refused_with_the_limit_and_the_remedy() {
    const CHILD: &str = "BOOKCAST_TEST_UNLOCKED_CHILD";
    if std::env::var_os(CHILD).is_some() {
        let text = RcRing::open(None, THERE, 1 << 14).err().expect("a megabyte over the limit").to_string();
        println!("refused: {text}");
        for part in ["no permission to lock 1048704 bytes", "rxe1", "the limit is 65536 bytes", "ulimit -l unlimited"] {
            assert!(text.contains(part), "{part:?} is not in: {text}");
        }
        return;
    }
    let name = "memory_that_may_not_be_locked_is_refused_with_the_limit_and_the_remedy";
    let executable = std::env::current_exe().expect("this very program");
    let output = Command::new("setpriv")
        .args(["--bounding-set", "-ipc_lock", "--inh-caps", "-ipc_lock", "sh", "-c"])
        .arg(format!("ulimit -l 64; exec \"$0\" --exact {name} --nocapture"))
        .arg(executable)
        .env(CHILD, "1")
        .output()
        .expect("setpriv is there");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("refused: "), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_publisher_gives_nobody_any_rights_and_a_subscriber_gives_writing_alone() {
    let ring = ring(256);
    let mut tx = RcRingTx::open(&rc_options(), &ring).expect("a lane here");
    let (peer, rx) = connect(&mut tx, &ring, 256);
    let info = tx.queue_pair(peer).expect("connected").query().expect("its state");
    println!("publisher's queue pair: {info:?}");
    assert_eq!((info.state, info.rights), (QueuePairState::ReadyToSend, RemoteRights::NONE));
    assert_eq!((info.ack_timeout, info.retries), (10, 6));
    assert!(tx.regions().iter().all(|region| region.rights() == Rights::SendOnly && !region.rights().is_remote()));
    let info = rx.ring().queue_pair().query().expect("its state");
    println!("subscriber's queue pair: {info:?}");
    assert_eq!(info.rights, RemoteRights::WRITE);
    assert_eq!(rx.ring().region().rights(), Rights::RemoteWrite);
    assert_eq!(rx.ring().region().byte_len(), 128 + 64 * 256);

    let (_ud, keeper) = UdTx::open(&ud_options(HERE, fresh_group()), &ring).expect("a sender here");
    assert_eq!(keeper.queue_pair().expect("it works").query().expect("its state").rights, RemoteRights::NONE);
}

#[test]
fn a_wrong_key_is_refused_by_name_and_harms_nobody_else() {
    let mut ring = ring(1024);
    let mut tx = RcRingTx::open(&rc_options(), &ring).expect("a lane here");
    let (good, mut rx) = connect(&mut tx, &ring, 1024);
    let remote = RcRing::open(None, THERE, 1024).expect("a ring there");
    let pending = tx.prepare().expect("a queue pair here");
    remote.connect(&pending.endpoint()).expect("connected there");
    let offer = RcOffer { key: remote.offer().key ^ 0x100, ..remote.offer() };
    let (bad, _) = tx.connect(pending, &offer, &ring).expect("connected here");

    put(&mut ring, 10);
    tx.flush(&ring, now());
    // The completion that says so is asked for with the heartbeat, if not before.
    tx.heartbeat(&ring, now(), false);
    let (event, after) = event(&mut tx, &ring);
    println!("{event:?} after {after:?}");
    assert_eq!(event, PeerEvent { peer: bad, failure: PeerFailure::Completion(Status::RemoteAccess) });
    assert_eq!(Status::RemoteAccess.reaction(), Reaction::RefusePeer);
    assert_eq!(tx.queue_pair(bad).expect("still there").query().expect("its state").state, QueuePairState::Error);
    assert!(words_of(&remote).iter().all(|word| *word == 0), "something was written");

    for _ in 0..100 {
        put(&mut ring, 5);
        tx.flush(&ring, now());
        std::thread::yield_now();
    }
    let mut seen = Seen::default();
    poll_until(&mut rx, &mut seen, LIMIT, "line 510", |seen| seen.next > 510);
    assert_eq!((seen.lines, tx.next_event()), (510, None));
    assert!(tx.remove(bad) && !tx.remove(bad));
    assert!(tx.counters(bad).is_none() && tx.counters(good).is_some());
}

#[test]
fn a_write_one_byte_outside_the_ring_is_refused_and_the_ring_unchanged() {
    let mut ring = ring(1024);
    // The next line is that of the last place.
    put(&mut ring, 254);
    let mut tx = RcRingTx::open(&rc_options(), &ring).expect("a lane here");
    let remote = RcRing::open(None, THERE, 256).expect("a ring there");
    let pending = tx.prepare().expect("a queue pair here");
    remote.connect(&pending.endpoint()).expect("connected there");
    let offer = RcOffer { address: remote.offer().address + 1, ..remote.offer() };
    let (peer, first) = tx.connect(pending, &offer, &ring).expect("connected here");
    assert_eq!(first, stamp(255));
    put(&mut ring, 1);
    tx.flush(&ring, now());
    tx.heartbeat(&ring, now(), false);
    let (event, _) = event(&mut tx, &ring);
    assert_eq!(event, PeerEvent { peer, failure: PeerFailure::Completion(Status::RemoteAccess) });
    assert!(words_of(&remote).iter().all(|word| *word == 0), "something was written");
}

#[test]
fn a_dead_subscriber_is_dropped_by_name_and_its_neighbour_loses_nothing() {
    let mut ring = ring(1 << 14);
    let mut tx = RcRingTx::open(&rc_options(), &ring).expect("a lane here");
    let (_, mut alive) = connect(&mut tx, &ring, 1 << 14);
    let (dead, gone) = connect(&mut tx, &ring, 1 << 14);
    let mut seen = Seen::default();
    put(&mut ring, 100);
    tx.flush(&ring, now());
    poll_until(&mut alive, &mut seen, LIMIT, "line 100", |seen| seen.next > 100);
    drop(gone);
    let died = Instant::now();
    let mut told = None;
    let mut longest = Duration::ZERO;
    while told.is_none() || ring.head().sequence().0 <= 10_000 {
        assert!(died.elapsed() < LIMIT, "the dead subscriber was never told of");
        // What is under way may not lie half the ring behind: while nobody has told of the dead one, go slowly.
        if told.is_some() || tx.under_way(dead).unwrap_or(0) < 64 {
            put(&mut ring, 20);
        }
        let turn = Instant::now();
        tx.flush(&ring, now());
        longest = longest.max(turn.elapsed());
        if let Some(event) = tx.next_event() {
            told = Some((event, died.elapsed()));
        }
        if alive.poll(now(), 1 << 20, &mut seen) == 0 {
            std::thread::yield_now();
        }
    }
    let (event, after) = told.expect("told of");
    println!("{event:?} after {after:?}; the longest flush took {longest:?}");
    assert_eq!(event.peer, dead);
    assert_eq!(event.failure, PeerFailure::Completion(Status::RetryExceeded));
    assert!(after < Duration::from_nanos(DEADLINE_NS), "{after:?}");
    let last = ring.head().sequence().0 - 1;
    poll_until(&mut alive, &mut seen, LIMIT, "the last line", |seen| seen.next > last);
    assert_eq!((seen.lines, tx.next_event()), (last, None));
}

/// Writes to a subscriber that is dead in virtual time, where its card's silence must not be told of first. That takes it
/// 30 ms and more of real time; where this thread was held up for so long, it is tried again.
fn before_the_card_gives_up(what: impl Fn(&mut RcRingTx, &mut transport::RingWriter, PeerId) -> Option<PeerEvent>) {
    for attempt in 0..10 {
        let mut ring = ring(1024);
        let mut tx = RcRingTx::open(&rc_options(), &ring).expect("a lane here");
        let (peer, gone) = connect(&mut tx, &ring, 1024);
        drop(gone);
        let event = what(&mut tx, &mut ring, peer).expect("it is told of");
        assert_eq!(event.peer, peer);
        if event.failure != PeerFailure::Completion(Status::RetryExceeded) {
            return;
        }
        println!("attempt {attempt}: the card gave up first");
    }
    panic!("the card gave up first, ten times");
}

#[test]
fn what_waits_for_a_completion_too_long_is_dropped_and_never_read_again() {
    before_the_card_gives_up(|tx, ring, peer| {
        put(ring, 1);
        tx.heartbeat(ring, Nanos(1_000), false);
        // The line, and the heartbeat, which asks for a completion.
        assert_eq!((tx.under_way(peer), tx.signalled_under_way()), (Some(2), 1));
        tx.flush(ring, Nanos(1_000 + DEADLINE_NS));
        let event = tx.next_event();
        if event.is_some() {
            return event;
        }
        tx.flush(ring, Nanos(1_001 + DEADLINE_NS));
        let event = tx.next_event();
        let deadline = PeerFailure::Deadline { waited_ns: DEADLINE_NS + 1 };
        let failure = event.expect("too long by now").failure;
        assert!([deadline, PeerFailure::Completion(Status::RetryExceeded)].contains(&failure), "{failure:?}");
        let before = *tx.counters(peer).expect("still there");
        put(ring, 10);
        tx.flush(ring, Nanos(2 * DEADLINE_NS));
        assert_eq!(tx.counters(peer), Some(&before));
        event
    });
}

#[test]
fn what_is_under_way_is_dropped_before_its_source_is_overwritten() {
    before_the_card_gives_up(|tx, ring, peer| {
        put(ring, 1);
        tx.flush(ring, Nanos(1_000));
        put(ring, 511);
        tx.flush(ring, Nanos(1_000));
        let event = tx.next_event();
        if event.is_some() {
            assert_ne!(event.map(|event| event.failure), Some(PeerFailure::Overrun), "half the ring is still there");
            return event;
        }
        put(ring, 1);
        tx.flush(ring, Nanos(1_000));
        let event = tx.next_event();
        let failure = event.expect("too far by now").failure;
        let other = PeerFailure::Completion(Status::RetryExceeded);
        assert!([PeerFailure::Overrun, other].contains(&failure), "{failure:?}");
        assert_eq!(tx.queue_pair(peer).expect("still there").query().expect("its state").state, QueuePairState::Error);
        event
    });
}

#[test]
fn heartbeats_are_written_once_per_interval_under_traffic_and_date_the_lines() {
    let mut ring = ring(4096);
    let options = RcOptions { heartbeat_interval_ns: Some(10_000_000), ..rc_options() };
    let mut tx = Settled(RcRingTx::open(&options, &ring).expect("a lane here"));
    let (peer, mut rx) = connect(&mut tx.0, &ring, 4096);
    let mut seen = Seen::default();
    // A thousand turns of a millisecond, in virtual time; the lines have that time in their records.
    for turn in 0..1000u64 {
        let now = Nanos(1_700_000_000_000_000_000 + turn * 1_000_000);
        put(&mut ring, 1);
        tx.flush(&ring, now);
        // What the publisher asks for beside that is too much.
        tx.heartbeat(&ring, now, false);
        let start = Instant::now();
        while seen.next <= turn + 1 {
            assert!(start.elapsed() < LIMIT, "line {} did not come", turn + 1);
            rx.poll(now, 1 << 10, &mut seen);
        }
        rx.poll(now, 1 << 10, &mut seen);
    }
    let counters = *tx.0.counters(peer).expect("connected");
    println!("{counters:?}");
    assert_eq!((counters.heartbeats, counters.lines, counters.writes), (100, 1000, 1000));
    // Each heartbeat goes inline and asks for a completion; so does one write of lines in a sixteenth of the ring or less.
    assert!(counters.signalled >= 100 && counters.signalled <= 100 + 1000 / 32, "{counters:?}");
    assert_eq!(counters.inline, 1100);
    assert_eq!(seen.lines, 1000);
    assert!(seen.positions.len() >= 90, "{} heartbeats were seen", seen.positions.len());
    assert!(seen.dated > 900, "{} lines of 1000 were dated", seen.dated);
    for position in &seen.positions {
        let time = position.publish_time.expect("a heartbeat has a clock").0 - 1_700_000_000_000_000_000;
        assert_eq!(position.next.sequence().0, time / 1_000_000 + 2, "{position:?}");
    }
}

#[test]
fn a_burst_of_datagrams_is_one_doorbell_and_small_ones_go_inline() {
    let mut ring = ring(8192);
    let group = fresh_group();
    let options = UdOptions { receive_depth: 256, ..ud_options(THERE, group) };
    let (mut rx, _keeper) = UdRx::open(&options, CHANNEL).expect("a receiver there");
    let (mut tx, _keeper) = UdTx::open(&ud_options(HERE, group), &ring).expect("a sender here");
    assert_eq!((tx.lines_per_packet(), tx.inline_limit()), (63, UD_INLINE));
    for (lines, packets, doorbells, inline) in [
        (1, 1, 1, 1),
        (2, 1, 1, 1),
        (3, 1, 1, 0),
        (63, 1, 1, 0),
        (64, 2, 1, 1),
        (63 * 16, 16, 1, 0),
        (63 * 17, 17, 2, 0),
    ] {
        let before = *tx.counters();
        put(&mut ring, lines);
        assert_eq!(tx.flush(&ring, now()), lines);
        let after = tx.counters();
        let did = (after.packets - before.packets, after.doorbells - before.doorbells, after.inline - before.inline);
        assert_eq!(did, (packets, doorbells, inline), "{lines} lines");
    }
    // One in 64 asks for a completion.
    for _ in 0..1000 {
        put(&mut ring, 1);
        tx.flush(&ring, now());
        rx.poll(now(), 1 << 10, &mut Seen::default());
    }
    let counters = tx.counters();
    println!("{counters:?}");
    assert_eq!((counters.packets, counters.signalled), (1039, 1039 / 64));
    assert_eq!((counters.packets_dropped, counters.failed, counters.lines_skipped), (0, 0, 0));
}

/// Sets the MTU of both ends of the wire; back to what it was when dropped.
struct WireMtu;

impl WireMtu {
    const USUAL: &str = "4200";

    fn set(mtu: &str) -> WireMtu {
        for end in ["w0", "w1"] {
            let status = Command::new("ip").args(["link", "set", end, "mtu", mtu]).status();
            assert!(status.expect("ip is there").success(), "mtu {mtu} on {end}");
        }
        WireMtu
    }
}

impl Drop for WireMtu {
    fn drop(&mut self) {
        for end in ["w0", "w1"] {
            let _ = Command::new("ip").args(["link", "set", end, "mtu", WireMtu::USUAL]).status();
        }
    }
}

#[test]
fn no_datagram_is_longer_than_the_active_mtu() {
    for (wire, active, lines) in [("1500", 1024, 15), ("600", 512, 7), ("400", 256, 3)] {
        let _mtu = WireMtu::set(wire);
        let group = fresh_group();
        let mut ring = ring(4096);
        let (mut rx, there) = UdRx::open(&ud_options(THERE, group), CHANNEL).expect("a receiver there");
        let (mut tx, here) = UdTx::open(&ud_options(HERE, group), &ring).expect("a sender here");
        assert_eq!((there.local().port.active_mtu, here.local().port.active_mtu), (active, active));
        assert_eq!(tx.lines_per_packet(), lines);
        // Longer ones would be taken and never come.
        put(&mut ring, 200);
        assert_eq!(tx.flush(&ring, now()), 200);
        let mut seen = Seen::default();
        poll_until(&mut rx, &mut seen, LIMIT, "line 200", |seen| seen.next == 201);
        assert_eq!((seen.lines, tx.counters().packets), (200, 200_u64.div_ceil(lines as u64)));

        // RC writes are cut by the device.
        let mut tx = RcRingTx::open(&rc_options(), &ring).expect("a lane here");
        let (_, mut rx) = connect(&mut tx, &ring, 4096);
        put(&mut ring, 200);
        tx.flush(&ring, now());
        let mut seen = Seen::default();
        poll_until(&mut rx, &mut seen, LIMIT, "line 400", |seen| seen.next == 401);
    }
}

#[test]
fn datagrams_of_foreign_senders_and_the_own_ones_are_dropped_and_counted() {
    let group = fresh_group();
    let (mut ours, mut theirs) = (ring(1024), ring(1024));
    let (mut tx, tx_keeper) = UdTx::open(&ud_options(HERE, group), &ours).expect("a sender here");
    let (mut foreign, foreign_keeper) = UdTx::open(&ud_options(HERE, group), &theirs).expect("another one");
    let (mut there, mut there_keeper) = UdRx::open(&ud_options(THERE, group), CHANNEL).expect("a receiver there");
    there_keeper.expect(vec![tx_keeper.source()]);
    // The sender's own port is in the group as well, and the network brings its datagrams back.
    let (mut here, mut here_keeper) = UdRx::open(&ud_options(HERE, group), CHANNEL).expect("a receiver here");
    here_keeper.expect(Vec::new());
    here_keeper.ignore_own(vec![tx_keeper.source(), foreign_keeper.source()]);
    let (mut other_channel, _keeper) =
        UdRx::open(&ud_options(THERE, group), ChannelId::new(301)).expect("a receiver there");
    let other_key = UdOptions { qkey: QKEY + 1, ..ud_options(THERE, group) };
    let (mut other_key, _keeper) = UdRx::open(&other_key, CHANNEL).expect("a receiver there");

    let mut seen = Seen::default();
    let (mut others, mut echoes) = (Seen::default(), Seen::default());
    let mut silence = Seen::default();
    for turn in 1..=50 {
        put(&mut theirs, 3);
        foreign.flush(&theirs, now());
        put(&mut ours, 2);
        tx.flush(&ours, now());
        poll_until(&mut there, &mut seen, LIMIT, "lines", |seen| seen.next > 2 * turn);
        here.poll(now(), 1 << 10, &mut echoes);
        other_channel.poll(now(), 1 << 10, &mut others);
        other_key.poll(now(), 1 << 10, &mut silence);
    }
    println!("there {:?}\nhere {:?}", there.counters(), here.counters());
    assert_eq!((there.counters().packets, there.counters().foreign, there.counters().refused_total()), (50, 50, 0));
    assert_eq!((echoes.lines, here.counters().own, here.counters().foreign), (0, 100, 0));
    assert_eq!((others.lines, other_channel.counters().refused_total()), (0, 100));
    // The device drops what has another key without a word.
    assert_eq!((silence.lines, *other_key.counters()), (0, UdRxCounters::default()));
}

#[test]
fn a_change_of_addresses_is_told_as_an_event_of_its_port() {
    let device = Device::open("rxe1").expect("the device there");
    while device.next_event().expect("events can be read").is_some() {}
    let address = |what: &str| {
        let status = Command::new("ip").args(["addr", what, "10.99.0.9/24", "dev", "w1"]).status();
        assert!(status.expect("ip is there").success(), "ip addr {what}");
    };
    for what in ["add", "del"] {
        address(what);
        let start = Instant::now();
        let event = loop {
            if let Some(event) = device.next_event().expect("events can be read") {
                break event;
            }
            assert!(start.elapsed() < LIMIT, "no event after ip addr {what}");
            std::thread::yield_now();
        };
        println!("{event:?}");
        assert_eq!(event, AsyncEvent { kind: EventKind::GidChange, queue_pair: None, port: Some(1) });
        assert_eq!(event.kind.reaction(), EventReaction::CheckAddress);
    }
}
