//! The UD lane between two soft devices: what is set up, what is refused, and what is dropped.

#![forbid(unsafe_code)]

mod rdma_support;

use std::net::Ipv4Addr;
use std::process::Command;
use std::time::Instant;

use protocol::record::ChannelId;
use rdma_support::*;
use transport::rdma::*;
use transport::{LaneRx, LaneTx};

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
    let options = UdOptions { qkey: 1 << 31, ..ud_options(THERE, fresh_group()) };
    let error = UdRx::open(&options, CHANNEL).err().expect("a privileged key");
    assert!(error.to_string().contains("Q_Key"), "{error}");
}

#[test]
fn a_ud_sender_gives_nobody_any_rights() {
    let ring = ring(256);
    let (_ud, keeper) = UdTx::open(&ud_options(HERE, fresh_group()), &ring).expect("a sender here");
    assert_eq!(keeper.queue_pair().expect("it works").query().expect("its state").rights, RemoteRights::NONE);
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
