//! A fabric without datagrams: its ports are found, and a UD lane is refused with what to do instead. On a machine whose
//! devices run another fabric the same lanes open.

#![forbid(unsafe_code)]

mod rdma_support;

use rdma_support::*;
use transport::rdma::*;

#[test]
fn a_port_is_found_by_its_address_whatever_its_fabric() {
    for address in [HERE, THERE] {
        let local = LocalPort::find(None, address).expect("a port with the address");
        println!("{address}: {} port {}, {}, {:?}", local.device.name(), local.port.number, local.fabric, local.gid);
        assert_eq!((local.fabric, local.port.state, local.port.number), (fabric(), PortState::Active, 1));
        assert_eq!((local.address, local.pkey_index), (address, 0));
        assert_eq!(
            LocalPort::find(Some(local.device.name()), address).expect("the same").device.name(),
            local.device.name()
        );
    }
    assert!(LocalPort::find(None, std::net::Ipv4Addr::new(10, 99, 0, 77)).is_err());
}

#[test]
fn without_datagrams_ud_lanes_are_refused_with_what_to_do_instead() {
    let group = fresh_group();
    let errors = [
        UdTx::open(&ud_options(HERE, group), &ring(256)).err(),
        UdRx::open(&ud_options(THERE, group), CHANNEL).err(),
        UdRx::open_unicast(&ud_options(THERE, group), CHANNEL).err(),
    ];
    if fabric().has_datagrams() {
        assert!(errors.iter().all(Option::is_none), "{errors:?}");
        return;
    }
    for error in errors {
        let text = error.expect("refused").to_string();
        println!("{text}");
        for part in ["iWARP", "no datagrams", "runs on RC alone"] {
            assert!(text.contains(part), "{part:?} is not in: {text}");
        }
    }
}

#[test]
fn a_survey_says_which_fabric_runs_and_what_the_others_miss() {
    let verdicts = Survey::take().verdicts();
    for verdict in &verdicts {
        println!("{verdict:?}");
        assert_eq!(verdict.is_usable(), verdict.fabric == fabric());
        assert_eq!(verdict.missing.is_empty(), verdict.is_usable());
    }
    assert_eq!(verdicts.iter().map(|verdict| verdict.ports.len()).sum::<usize>(), 2);
}
