//! The children over RDMA: the publishing one serves a control channel, where the subscribing one offers its ring.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use protocol::control::ChannelInfo;
use publisher::admission::{Admission, Rings};
use publisher::rdma::{RdmaOptions, RdmaTx, open};
use subscriber::rdma::RdmaRx;
use subscriber::{Builder, Subscriber};
use transport::RingWriter;
use transport::clock::Clock;
use transport::rdma::RcToken;
use transport::ring::StartAt;

use super::{Failure, HEARTBEAT_NS};
use crate::spec::{ControlAt, Feed, RdmaSpec, Spec, Transport};

/// Work requests in each send queue.
const SEND_DEPTH: usize = 256;
/// How long a send may take before its subscriber is given up. Soft devices, whose kernel threads share cores with busy
/// loops, need more than a card's 100 ms.
const DEADLINE_NS: u64 = 2_000_000_000;
/// The key that datagrams carry.
const QKEY: u32 = 0x0052_504C;
/// How long the ring's own reader waits for a line that was written.
const HEDGE_NS: u64 = 200_000;

/// A control channel on a thread of its own, as long as this value lives.
pub(crate) struct Server {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Relaxed: the flag carries nothing but itself.
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // If it panicked, its message stands on standard error.
            let _ = thread.join();
        }
    }
}

fn asked(spec: &Spec) -> Result<&RdmaSpec, Failure> {
    spec.rdma.as_ref().ok_or_else(|| "a run by RDMA without an address".into())
}

/// Opens the publisher's lanes, and says where subscribers ask.
pub(crate) fn serve(spec: &Spec, ring: &RingWriter, clock: Clock) -> Result<(RdmaTx, Server, ControlAt), Failure> {
    let rdma = asked(spec)?;
    let options = RdmaOptions {
        device: rdma.device.clone(),
        address: rdma.address,
        group: (spec.transport != Transport::RdmaRc).then_some(spec.group),
        qkey: QKEY,
        hop_limit: 1,
        subscribers: usize::from(spec.transport != Transport::RdmaUd),
        send_depth: SEND_DEPTH,
        deadline_ns: DEADLINE_NS,
        heartbeat_ns: HEARTBEAT_NS,
    };
    let (lanes, _, door) = open(&options, ring, 0)?;
    let channel = ChannelInfo {
        name: spec.channel.clone(),
        id: ring.channel().0.get(),
        lane: ring.lane().0.get(),
        epoch: ring.epoch().0,
        heartbeat_ns: HEARTBEAT_NS,
        natural_start: matches!(spec.feed, Feed::File { natural: true, .. }),
        shared_memory: None,
        udp: None,
        rdma: door.info(),
        recovery: None,
    };
    // Nobody but the child that the parent tells it to can know it.
    let token: String = RcToken::random()?.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let reader = ring.reader(StartAt::Oldest, HEDGE_NS);
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut admission = Admission::bind(any, vec![token.clone()], channel, reader, door)?;
    let at = ControlAt { address: admission.local_address()?, token };
    let over = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&over);
    let thread = std::thread::Builder::new().name("control".to_owned()).spawn(move || {
        // Relaxed: the flag carries nothing but itself.
        while !stop.load(Ordering::Relaxed) {
            if admission.do_work(clock.now()) == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    })?;
    Ok((lanes, Server { over, thread: Some(thread) }, at))
}

/// Makes the subscriber, whose ring is written to when this returns.
pub(crate) fn subscribe(spec: &Spec, builder: Builder) -> Result<Subscriber<RdmaRx>, Failure> {
    let rdma = asked(spec)?;
    let control = spec.control.as_ref().ok_or("a run by RDMA without a control channel")?;
    let options = subscriber::rdma::RdmaOptions {
        name: "feeds-replay".to_owned(),
        device: rdma.peer_device.clone(),
        ud: spec.transport != Transport::RdmaRc,
        rc: spec.transport != Transport::RdmaUd,
        lines: spec.ring_lines,
        ..subscriber::rdma::RdmaOptions::new(control.address, &control.token, rdma.peer_address)
    };
    Ok(builder.rdma(&options)?)
}

/// Datagrams for which there was no buffer, as far as can be told, and datagrams refused.
pub(crate) fn losses(rx: &RdmaRx) -> (u64, u64) {
    rx.ud().map_or((0, 0), |ud| {
        let counters = ud.counters();
        (counters.starved, counters.refused_total() + counters.foreign)
    })
}

/// What the lanes said of themselves, but for the first connection, which every run has.
pub(crate) fn news(rx: &RdmaRx) -> Vec<String> {
    let mut first = true;
    let mut notes = Vec::new();
    while let Some(news) = rx.next_news() {
        if matches!(news, subscriber::rdma::RdmaNews::Connected { .. }) && std::mem::take(&mut first) {
            continue;
        }
        notes.push(format!("RDMA: {news}"));
    }
    notes
}
