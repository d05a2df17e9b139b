//! A ring of one's own for answers, which the recovery server's card writes.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use protocol::control::RingOffer;
use protocol::record::{ChannelId, Lane};
use protocol::recovery::Connection;
use protocol::time::Nanos;
use transport::rdma::{RcOffer, RcReplyRx, RcRxEvent, RcRxKeeper, RcRxOptions, RcToken};
use transport::reply::ReplyRx;

use super::Way;
use super::usher::Admitted;
use crate::control::{Control, Notice};

/// How long the publisher may take to connect.
const CONNECT_PATIENCE: Duration = Duration::from_secs(2);
/// How long a place that was written may fail to verify before the ring is given up, ns. Until then what is missing is asked
/// for again, into the same place.
const PATIENCE_NS: u64 = 1_000_000_000;

/// Where the recovery server is to write its answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplyRingOptions {
    /// The device; `None`: whichever has the address.
    pub device: Option<String>,
    /// The IPv4 address of the port to receive on.
    pub address: Ipv4Addr,
}

/// Offers a ring of `lines` lines, and waits until the server writes into it.
pub(super) fn open(
    options: &ReplyRingOptions,
    lines: usize,
    ids: (ChannelId, Lane),
    requests: ReplyRx,
    control: &mut Control,
    over: &AtomicBool,
    began: Instant,
) -> Result<(Admitted, RcRxKeeper), String> {
    let in_words = |error: transport::rdma::RdmaError| error.to_string();
    let rc = RcRxOptions {
        device: options.device.clone(),
        lines,
        hedge_ns: PATIENCE_NS,
        ..RcRxOptions::new(options.address)
    };
    let (lane, mut keeper) = RcReplyRx::open(&rc, ids, requests).map_err(in_words)?;
    let RcOffer { at, address, key, lines, .. } = keeper.offer().map_err(in_words)?;
    let (channel, _) = ids;
    let offer = RingOffer { at, address, key, lines, from: None };
    let (connection, key, token) =
        control.recover_by_ring(channel.0.get(), offer).map_err(|error| error.to_string())?;
    keeper.expect_replies(RcToken::from_bytes(token.0), Connection(connection).stamp(1));
    let asked = Instant::now();
    while !keeper.is_connected() {
        // Relaxed: the flag carries nothing but itself.
        if over.load(Ordering::Relaxed) {
            return Err("the subscriber is gone".to_owned());
        }
        if asked.elapsed() > CONNECT_PATIENCE {
            return Err(format!("the publisher has not connected to the ring for answers in {CONNECT_PATIENCE:?}"));
        }
        look_after(&mut keeper, Nanos(began.elapsed().as_nanos() as u64))?;
        if let Some(Notice::Dropped { why, .. }) = control.next_notice().map_err(|error| error.to_string())? {
            return Err(format!("the publisher cannot connect to the ring for answers: {why}"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let way = Way::Ring(Box::new(lane));
    Ok((Admitted { connection: Connection(connection), key, way }, keeper))
}

/// One turn of the ring's keeper; fails if the ring is written to no more.
pub(super) fn look_after(keeper: &mut RcRxKeeper, now: Nanos) -> Result<(), String> {
    keeper.do_work(now);
    while let Some(event) = keeper.next_event() {
        match event {
            RcRxEvent::Lost { why } => return Err(format!("answers come no more: {why}")),
            RcRxEvent::CannotConnect { error } => return Err(error.to_string()),
            // Strangers, and what no connection answers for.
            RcRxEvent::Connected { .. } | RcRxEvent::Refused { .. } | RcRxEvent::Device(_) => {}
        }
    }
    Ok(())
}
