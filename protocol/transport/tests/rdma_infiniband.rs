//! UD lanes on InfiniBand, as far as a seam can show it: what queue pairs, address handles and groups are told, with the
//! attributes of an InfiniBand port; and ports that are refused.

#![forbid(unsafe_code)]

mod rdma_support;

use rdma_support::*;
use transport::rdma::seam::{AddressAttributes, Call, JoinAnswer, Modification, PresentedPort, Seam};
use transport::rdma::*;

/// `ibv_qp_attr_mask` (verbs.h).
mod mask {
    pub(crate) const STATE: u32 = 1;
    pub(crate) const PKEY_INDEX: u32 = 1 << 4;
    pub(crate) const PORT: u32 = 1 << 5;
    pub(crate) const QKEY: u32 = 1 << 6;
    pub(crate) const SQ_PSN: u32 = 1 << 16;
}

/// A port's own GID: the default subnet prefix, and its number.
const OWN_GID: Gid = Gid([0xFE, 0x80, 0, 0, 0, 0, 0, 0, 0x00, 0x02, 0xC9, 0x03, 0x00, 0x12, 0x34, 0x57]);
/// What the subnet manager calls the group: link-local scope, IPv4's signature, the partition, the address.
const MGID: Gid = Gid([0xFF, 0x12, 0x40, 0x1B, 0x80, 0x12, 0, 0, 0, 0, 0, 0, 0x0F, 0x63, 0x00, 0x01]);
const MLID: u16 = 0xC003;
const GROUP_QKEY: u32 = 0x0000_0B1B;

fn infiniband(device: &str) -> Seam {
    let seam = Seam::install(device);
    let gid = GidEntry { gid: OWN_GID, index: 0, gid_type: GidType::InfiniBand, interface_index: 0 };
    seam.present(PresentedPort {
        link_layer: Some(LinkLayer::InfiniBand),
        state: None,
        lid: Some(7),
        subnet_manager_lid: Some(1),
        active_mtu: Some(2048),
        // Limited membership in the interface's partition stands before the full one.
        pkeys: Some(vec![0xFFFF, 0x0012, 0, 0x8012]),
        gids: Some(vec![gid]),
        interface_pkey: Some(0x8012),
    });
    seam.answer_joins(Some(JoinAnswer {
        address: AddressAttributes {
            gid: MGID,
            flow_label: 5,
            source_index: 0,
            hop_limit: 0,
            traffic_class: 6,
            lid: MLID,
            service_level: 3,
            source_path_bits: 0,
            static_rate: 7,
            is_global: true,
            port: 1,
        },
        queue_pair: 0xFF_FFFF,
        qkey: GROUP_QKEY,
    }));
    seam.cut_off(true);
    seam
}

fn modifications(calls: &[Call]) -> Vec<Modification> {
    let of = |call: &Call| match call {
        Call::ModifyQueuePair(modification) => Some(*modification),
        _ => None,
    };
    calls.iter().filter_map(of).collect()
}

/// The three steps of a UD queue pair: what each names, and what it must hold.
fn assert_ud_steps(calls: &[Call], queue_pair: u32, qkey: u32) {
    let steps = modifications(calls);
    let [init, receive, send] = &steps[..] else { panic!("{steps:?}") };
    assert!(steps.iter().all(|step| step.queue_pair == queue_pair));
    assert_eq!(init.state, QueuePairState::Init);
    assert_eq!(init.mask, mask::STATE | mask::PKEY_INDEX | mask::PORT | mask::QKEY);
    assert_eq!((init.pkey_index, init.port, init.qkey), (3, 1, qkey));
    assert_eq!((receive.state, receive.mask), (QueuePairState::ReadyToReceive, mask::STATE));
    assert_eq!((send.state, send.mask), (QueuePairState::ReadyToSend, mask::STATE | mask::SQ_PSN));
    assert_eq!(send.send_packet, 0);
}

fn handles(calls: &[Call]) -> Vec<AddressAttributes> {
    let of = |call: &Call| match call {
        Call::CreateAddressHandle(attributes) => Some(*attributes),
        _ => None,
    };
    calls.iter().filter_map(of).collect()
}

#[test]
fn infiniband_port_is_found_with_lid_partition_and_its_first_gid() {
    let _seam = infiniband("rxe1");
    let local = LocalPort::find(None, THERE).expect("a port");
    assert_eq!((local.fabric, local.port.link_layer), (Fabric::InfiniBand, LinkLayer::InfiniBand));
    assert_eq!((local.port.lid, local.port.subnet_manager_lid, local.port.active_mtu), (7, 1, 2048));
    assert_eq!((local.gid.gid, local.gid.index, local.pkey_index), (OWN_GID, 0, 3));
}

#[test]
fn infiniband_sender_uses_the_groups_key_partition_and_way() {
    let seam = infiniband("rxe0");
    let (tx, keeper) = UdTx::open(&ud_options(HERE, fresh_group()), &ring(256)).expect("a sender here");
    let calls = seam.take_calls();
    assert_ud_steps(&calls, keeper.source().queue_pair, GROUP_QKEY);
    assert_eq!(
        handles(&calls),
        [AddressAttributes {
            gid: MGID,
            flow_label: 5,
            source_index: 0,
            // Within the subnet.
            hop_limit: 1,
            traffic_class: 6,
            lid: MLID,
            service_level: 3,
            source_path_bits: 0,
            static_rate: 7,
            is_global: true,
            port: 1,
        }]
    );
    assert_eq!((keeper.source().gid, tx.lines_per_packet()), (OWN_GID, 31));
    // The ring and the headers, for nobody else.
    let regions = calls.iter().filter(|call| matches!(call, Call::Register { access: 0, .. })).count();
    assert_eq!(regions, 2, "{calls:?}");
}

#[test]
fn infiniband_receiver_attaches_to_the_group_by_mgid_and_mlid() {
    let seam = infiniband("rxe1");
    let (rx, keeper) = UdRx::open(&ud_options(THERE, fresh_group()), CHANNEL).expect("a receiver there");
    let number = keeper.queue_pair().expect("it works").number();
    let calls = seam.take_calls();
    assert_ud_steps(&calls, number, GROUP_QKEY);
    assert!(calls.contains(&Call::Attach { queue_pair: number, gid: MGID, lid: MLID }), "{calls:?}");
    drop((rx, keeper));
    let calls = seam.take_calls();
    let place = |wanted: Call| calls.iter().position(|call| *call == wanted);
    let detached = place(Call::Detach { queue_pair: number, gid: MGID, lid: MLID }).expect("detached");
    assert!(detached < place(Call::DestroyQueuePair { number }).expect("destroyed"), "{calls:?}");
}

#[test]
fn infiniband_peer_is_reached_by_its_lid_with_its_own_key() {
    let seam = infiniband("rxe1");
    let group = fresh_group();
    let (_rx, rx_keeper) = UdRx::open_unicast(&ud_options(THERE, group), CHANNEL).expect("a receiver there");
    let peer = rx_keeper.peer();
    assert_eq!((peer.gid, peer.lid, peer.qkey), (OWN_GID, 7, QKEY));
    let calls = seam.take_calls();
    assert_ud_steps(&calls, peer.queue_pair, QKEY);
    assert!(!calls.iter().any(|call| matches!(call, Call::Attach { .. })), "{calls:?}");
    drop(seam);

    let seam = infiniband("rxe0");
    let (_tx, tx_keeper) = UdTx::open_to(&ud_options(HERE, group), peer, &ring(256)).expect("a sender here");
    let calls = seam.take_calls();
    assert_ud_steps(&calls, tx_keeper.source().queue_pair, QKEY);
    let to = AddressAttributes {
        gid: OWN_GID,
        hop_limit: 1,
        lid: 7,
        is_global: true,
        port: 1,
        ..AddressAttributes::default()
    };
    assert_eq!(handles(&calls), [to]);
}

#[test]
fn infiniband_subnet_that_changes_is_followed() {
    let seam = infiniband("rxe0");
    let ring = ring(256);
    let (mut tx, mut keeper) = UdTx::open(&ud_options(HERE, fresh_group()), &ring).expect("a sender here");
    let old = keeper.source().queue_pair;
    seam.take_calls();
    // A new subnet manager: another LID, another place in the table, another way to the group.
    let gid = GidEntry { gid: OWN_GID, index: 0, gid_type: GidType::InfiniBand, interface_index: 0 };
    seam.present(PresentedPort {
        link_layer: Some(LinkLayer::InfiniBand),
        lid: Some(70),
        subnet_manager_lid: Some(2),
        active_mtu: Some(256),
        pkeys: Some(vec![0xFFFF, 0x8012]),
        gids: Some(vec![gid]),
        interface_pkey: Some(0x8012),
        ..PresentedPort::default()
    });
    let address = AddressAttributes {
        gid: MGID,
        lid: MLID + 1,
        service_level: 1,
        is_global: true,
        port: 1,
        ..AddressAttributes::default()
    };
    seam.answer_joins(Some(JoinAnswer { address, queue_pair: 0xFF_FFFF, qkey: GROUP_QKEY + 1 }));
    seam.inject(AsyncEvent { kind: EventKind::SubnetManagerChange, queue_pair: None, port: Some(1) });
    let start = std::time::Instant::now();
    let source = loop {
        assert!(start.elapsed() < LIMIT, "not mended: {:?}", keeper.counters());
        keeper.do_work(now());
        if let Some(UdEvent::Mended { source }) = keeper.next_event() {
            break source;
        }
    };
    transport::LaneTx::heartbeat(&mut tx, &ring, now(), false);
    let calls = seam.take_calls();
    let init = modifications(&calls)[0];
    assert_eq!((init.queue_pair, init.pkey_index, init.qkey), (source.queue_pair, 1, GROUP_QKEY + 1));
    assert_eq!(handles(&calls), [AddressAttributes { hop_limit: 1, ..address }]);
    assert_eq!((keeper.local().port.lid, tx.lines_per_packet()), (70, 3));
    assert_ne!(source.queue_pair, old);
}

#[test]
fn infiniband_interface_in_no_partition_of_the_port_is_named_with_those_there_are() {
    let seam = infiniband("rxe0");
    seam.present(PresentedPort {
        link_layer: Some(LinkLayer::InfiniBand),
        pkeys: Some(vec![0xFFFF, 0]),
        interface_pkey: Some(0x8012),
        gids: Some(vec![GidEntry { gid: OWN_GID, index: 0, gid_type: GidType::InfiniBand, interface_index: 0 }]),
        ..PresentedPort::default()
    });
    let text = LocalPort::find(None, HERE).expect_err("no such partition").to_string();
    for part in ["0x8012", "port 1 of rxe0", "0xffff", "subnet manager"] {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}

#[test]
fn a_port_is_refused_that_is_not_active_or_whose_mtu_is_too_small_or_has_no_gid() {
    let seam = Seam::install("rxe0");
    let open = |options: UdOptions| UdTx::open(&options, &ring(256)).err().map(|error| error.to_string());
    let options = || ud_options(HERE, fresh_group());
    seam.present(PresentedPort { state: Some(PortState::Initialising), ..PresentedPort::default() });
    let text = open(options()).expect("refused");
    assert!(text.contains("port 1 of rxe0 is waiting for the subnet manager, not active"), "{text}");
    seam.present(PresentedPort { active_mtu: Some(0), ..PresentedPort::default() });
    let text = open(options()).expect("refused");
    assert!(text.contains("active MTU of port 1 of rxe0 is 0, and a packet takes 96"), "{text}");
    seam.present(PresentedPort { active_mtu: Some(256), ..PresentedPort::default() });
    let receiver = UdOptions { address: HERE, max_lines: Some(15), ..options() };
    let text = UdRx::open(&receiver, CHANNEL).err().expect("refused").to_string();
    assert!(text.contains("active MTU of port 1 of rxe0 is 256, and a packet takes 992"), "{text}");
    let old = GidEntry { gid: Gid::from_ipv4(HERE), index: 3, gid_type: GidType::RoceV1, interface_index: 0 };
    seam.present(PresentedPort { gids: Some(vec![old]), ..PresentedPort::default() });
    let text = open(options()).expect("refused");
    for part in ["no RoCE v2 GID for 10.99.0.1", "RoceV1, index 3", "ibv_devinfo -v"] {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}
