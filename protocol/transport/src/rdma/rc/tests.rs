//! What needs the inside of a lane, between the two devices that tests/vm/run makes.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use protocol::line::{Epoch, Line};
use protocol::record::{ChannelId, InstrumentId, Kind, Lane, Record};
use protocol::time::Nanos;

use super::*;
use crate::lane::LaneTx;
use crate::rdma::completion::{Reaction, Status};
use crate::rdma::queue_pair::{Operation, Piece, SendList};
use crate::ring::RingWriter;

fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "no {what}");
        std::thread::yield_now();
    }
}

/// No lane sends messages, so nothing but a fault of this program brings a device to say that the peer was not ready. It
/// has its reaction all the same.
#[test]
fn a_peer_without_a_receive_buffer_is_dropped_by_name() {
    const EVER: Nanos = Nanos(1);
    let mut ring = RingWriter::anonymous(ChannelId::new(1), Lane::new(1), Epoch(1), 256).expect("a ring");
    let options = RcOptions { heartbeat_interval_ns: None, ..RcOptions::new(Ipv4Addr::new(10, 99, 0, 1)) };
    let (mut tx, mut keeper) = RcRingTx::open(&options, &ring).expect("a lane here");
    let options = RcRxOptions { lines: 256, ..RcRxOptions::new(Ipv4Addr::new(10, 99, 0, 2)) };
    let (_rx, mut there) = RcRx::open(&options, ChannelId::new(1), Lane::new(1)).expect("a lane there");
    let (offer, token) = (there.offer().expect("a ring there"), RcToken::random().expect("random bytes"));
    assert!(there.expect(token));
    let ticket = keeper.connect(&offer, token, EVER);
    let event = until("connection", || {
        there.do_work(EVER);
        keeper.do_work(EVER);
        keeper.next_event()
    });
    assert!(matches!(event, RcTxEvent::Connected { .. }), "{event:?}");
    let line = Line::seal(Record::new(Kind::ADD, InstrumentId(1)), ring.next());
    ring.put(&line);
    ring.flush();
    tx.flush(&ring, EVER);

    let region = tx.regions()[0];
    let piece = Piece { address: region.address(), len: 64, key: region.local_key() };
    let mut list = SendList::new();
    // Its number is that of the line's write: there is one such.
    list.push(u64::from(ticket.tag()) << 48, &[piece], Operation::Message, true, false);
    let queue_pair = tx.queue_pair(ticket).expect("taken in");
    // SAFETY: the piece lies in a region that the lane keeps longer than its queue pairs.
    unsafe { queue_pair.post_sends(&mut list) }.expect("posted");
    let event = until("end", || {
        tx.flush(&ring, EVER);
        keeper.do_work(EVER);
        keeper.next_event()
    });
    let RcTxEvent::Dropped { why, .. } = event else { panic!("{event:?}") };
    let status = Status::RnrRetryExceeded;
    assert!(matches!(why, DropReason::Write(PeerFailure::Completion(it)) if it == status), "{why:?}");
    assert_eq!(why.reaction(), Reaction::DropPeer);
}
