//! The RDMA lanes of a publisher, and what keeps them: see `[rdma]` in the configuration.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr};

use protocol::control::{OneTimeToken, RcInfo, RdmaInfo, RingOffer, UdInfo};
use protocol::line::Stamp;
use protocol::recovery::Connection;
use protocol::time::Nanos;
use transport::RingWriter;
use transport::rdma::{
    Fabric, LocalPort, RcOffer, RcOptions, RcReplyTx, RcRingTx, RcTicket, RcToken, RcTxEvent, RcTxKeeper, RdmaError,
    UdEvent, UdOptions, UdTx, UdTxKeeper,
};

use crate::admission::{Rings, Ticket};

/// Datagrams to a group, and writes into subscribers' rings; in this order, because the first serve all subscribers with
/// one send.
pub type RdmaTx = (Option<UdTx>, Option<RcRingTx>);

/// What is wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RdmaOptions {
    /// The device; `None`: whichever has the address.
    pub device: Option<String>,
    /// The IPv4 address of the port to send from.
    pub address: Ipv4Addr,
    /// The group that datagrams go to; `None`: none are sent.
    pub group: Option<Ipv4Addr>,
    /// The key that they carry on RoCE.
    pub qkey: u32,
    /// How many routers they may pass, the sender included.
    pub hop_limit: u8,
    /// The most subscribers whose rings are written; 0 none.
    pub subscribers: usize,
    /// Work requests in each send queue.
    pub send_depth: usize,
    /// How long a send may take before its lane, or its subscriber, is given up, ns.
    pub deadline_ns: u64,
    /// How often a sign of life is written into each subscriber's ring, ns.
    pub heartbeat_ns: u64,
}

impl RdmaOptions {
    fn ud(&self, group: Ipv4Addr) -> UdOptions {
        UdOptions {
            device: self.device.clone(),
            hop_limit: self.hop_limit,
            send_depth: self.send_depth,
            deadline_ns: self.deadline_ns,
            ..UdOptions::new(self.address, group, self.qkey)
        }
    }

    fn rc(&self) -> RcOptions {
        RcOptions {
            device: self.device.clone(),
            max_peers: self.subscribers,
            send_depth: self.send_depth,
            deadline_ns: self.deadline_ns,
            heartbeat_interval_ns: Some(self.heartbeat_ns),
            ..RcOptions::new(self.address)
        }
    }

    /// Says what would keep the lanes from being opened, as far as that can be told without opening them.
    ///
    /// # Errors
    /// As [`open`].
    pub fn check(&self) -> Result<(), RdmaError> {
        LocalPort::find(self.device.as_deref(), self.address).map(drop)
    }
}

/// Opens the lanes wanted over `ring`, and the writes of the recovery server for up to `recovering` subscribers, if any. On
/// iWARP, which has no datagrams, a group is left out, and said so.
///
/// # Errors
/// [`RdmaError`]: no such device or address, a port that is down, memory that may not be locked, and so on.
pub fn open(
    options: &RdmaOptions,
    ring: &RingWriter,
    recovering: usize,
) -> Result<(RdmaTx, Option<RcReplyTx>, RdmaDoor), RdmaError> {
    let local = LocalPort::find(options.device.as_deref(), options.address)?;
    let mut messages = VecDeque::new();
    let group = options.group.filter(|_| local.fabric != Fabric::Iwarp);
    if let (Some(group), None) = (options.group, group) {
        messages.push_back(format!(
            "{} is iWARP, which has no datagrams: nothing is sent to {group}; subscribers run on writes into their rings",
            local.device.name()
        ));
    }
    let (ud_tx, ud) = match group {
        Some(group) => {
            let (tx, keeper) = UdTx::open(&options.ud(group), ring)?;
            (Some(tx), Some(Datagrams { keeper, group, qkey: options.qkey }))
        }
        None => (None, None),
    };
    let (rc_tx, rc) = match options.subscribers {
        0 => (None, None),
        _ => {
            let (tx, keeper) = RcRingTx::open(&options.rc(), ring)?;
            (Some(tx), Some(keeper))
        }
    };
    let (replies_tx, replies) = match recovering {
        0 => (None, None),
        _ => {
            let options = RcOptions { max_peers: recovering, ..options.rc() };
            let (tx, keeper) = RcReplyTx::open(&options, ring.channel(), ring.lane())?;
            (Some(tx), Some(keeper))
        }
    };
    let door = RdmaDoor {
        address: options.address,
        lines: ring.capacity() as u64,
        max_subscribers: options.subscribers as u32,
        ud,
        rc: rc.map(|keeper| Writes::new("writes", "subscriber", keeper)),
        replies: replies.map(|keeper| Writes::new("writes of answers", "recovering subscriber", keeper)),
        next_ticket: 0,
        dropped: VecDeque::new(),
        messages,
    };
    Ok(((ud_tx, rc_tx), replies_tx, door))
}

/// The datagram lane's keeper, and what subscribers are told of it.
struct Datagrams {
    keeper: UdTxKeeper,
    group: Ipv4Addr,
    qkey: u32,
}

/// What keeps the lanes of [`open`]: connects and drops subscribers, mends what breaks. It is turned by the thread of the
/// control channel, or by one of its own.
pub struct RdmaDoor {
    address: Ipv4Addr,
    lines: u64,
    max_subscribers: u32,
    ud: Option<Datagrams>,
    rc: Option<Writes>,
    replies: Option<Writes>,
    next_ticket: u64,
    dropped: VecDeque<(Ticket, String)>,
    messages: VecDeque<String>,
}

/// A lane of writes: its keeper, who is written to, and what was said of it.
struct Writes {
    keeper: RcTxKeeper,
    /// What is written, and to whom, in messages.
    what: &'static str,
    whom: &'static str,
    tickets: Vec<(Ticket, RcTicket)>,
    /// Times that the lane was mended, as far as that was said.
    mended: u64,
    /// What was last said of why it cannot be.
    complaint: String,
}

impl Writes {
    fn new(what: &'static str, whom: &'static str, keeper: RcTxKeeper) -> Writes {
        Writes { keeper, what, whom, tickets: Vec::new(), mended: 0, complaint: String::new() }
    }

    /// One turn: what there is to be said, and who is written to no more.
    fn turn(&mut self, now: Nanos, mut say: impl FnMut(String), mut drop: impl FnMut(Ticket, String)) -> usize {
        let mut work = self.keeper.do_work(now);
        while let Some(event) = self.keeper.next_event() {
            work += 1;
            match event {
                RcTxEvent::Connected { ticket, first } => {
                    if let Some((Ticket(number), _)) = self.tickets.iter().find(|(_, known)| *known == ticket) {
                        say(format!("RDMA {} {number} is written to from {first} on", self.whom));
                    }
                }
                RcTxEvent::Dropped { ticket, why } => {
                    let Some(at) = self.tickets.iter().position(|(_, known)| *known == ticket) else { continue };
                    let (ticket, _) = self.tickets.swap_remove(at);
                    let Ticket(number) = ticket;
                    say(format!("RDMA {} {number} is let go: {why}", self.whom));
                    drop(ticket, why.to_string());
                }
                RcTxEvent::Device(event) => say(format!("RDMA device: {}", event.kind.text())),
            }
        }
        self.say_how_it_stands(say);
        work
    }

    /// Says once that the lane cannot be mended, for each reason, and that it was.
    fn say_how_it_stands(&mut self, mut say: impl FnMut(String)) {
        let mended = self.keeper.counters().mended;
        match self.keeper.cannot_mend().map(ToString::to_string) {
            Some(why) if why != self.complaint => {
                say(format!("RDMA {} are out, and nobody can be connected: {why}", self.what));
                self.complaint = why;
            }
            None if mended != self.mended => {
                say(format!("RDMA {}: the device was opened again; {}s can be connected", self.what, self.whom));
                self.mended = mended;
                self.complaint.clear();
            }
            _ => {}
        }
    }

    /// Ends a connection, if it is one of these.
    fn disconnect(&mut self, ticket: Ticket) -> Option<&'static str> {
        let at = self.tickets.iter().position(|(known, _)| *known == ticket)?;
        let (_, made) = self.tickets.swap_remove(at);
        self.keeper.disconnect(made);
        Some(self.whom)
    }
}

/// The most messages that wait to be read; the oldest go first.
const MAX_MESSAGES: usize = 256;

/// Keeps a message; the oldest go first.
fn keep(messages: &mut VecDeque<String>, message: String) {
    if messages.len() == MAX_MESSAGES {
        messages.pop_front();
    }
    messages.push_back(message);
}

impl RdmaDoor {
    fn say(&mut self, message: String) {
        keep(&mut self.messages, message);
    }

    fn turn_ud(&mut self, now: Nanos) -> usize {
        let Some(ud) = &mut self.ud else { return 0 };
        let mut work = ud.keeper.do_work(now);
        while let Some(event) = self.ud.as_mut().and_then(|ud| ud.keeper.next_event()) {
            work += 1;
            self.say(match event {
                UdEvent::PortDown => "RDMA datagrams: the port is down; nothing goes out until it is up".to_owned(),
                UdEvent::Failed(failure) => format!("RDMA datagrams: {failure}; the lane is opened anew"),
                UdEvent::Mended { source } => {
                    format!("RDMA datagrams go out again, from queue pair {} of {}", source.queue_pair, source.gid)
                }
                UdEvent::CannotMend(error) => format!("RDMA datagrams are still out: {error}"),
                UdEvent::Device(event) => format!("RDMA device: {}", event.kind.text()),
            });
        }
        work
    }

    fn turn_writes(&mut self, now: Nanos) -> usize {
        let (messages, dropped) = (&mut self.messages, &mut self.dropped);
        [&mut self.rc, &mut self.replies]
            .into_iter()
            .flatten()
            .map(|writes| {
                writes.turn(now, |message| keep(messages, message), |ticket, why| dropped.push_back((ticket, why)))
            })
            .sum()
    }

    fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket - 1)
    }
}

fn one_time_token() -> Result<RcToken, String> {
    RcToken::random().map_err(|error| format!("no random bytes for a token: {error}"))
}

fn rc_offer(offer: &RingOffer) -> RcOffer {
    let RingOffer { at, address, key, lines, from } = *offer;
    RcOffer { at, address, key, lines, from: from.map(Stamp) }
}

impl Rings for RdmaDoor {
    fn info(&self) -> Option<RdmaInfo> {
        let ud = self.ud.as_ref().map(|ud| {
            let source = ud.keeper.source();
            UdInfo {
                group: ud.group,
                qkey: ud.qkey,
                // The present one: what is built anew may be built for another.
                mtu: ud.keeper.local().port.active_mtu as u32,
                source_gid: Ipv6Addr::from(source.gid.0),
                source_queue_pair: source.queue_pair,
            }
        });
        let rc = self.rc.as_ref().map(|_| RcInfo { lines: self.lines, max_subscribers: self.max_subscribers });
        Some(RdmaInfo { address: self.address, ud, rc })
    }

    fn connect(&mut self, offer: &RingOffer, now: Nanos) -> Result<(Ticket, OneTimeToken), String> {
        let ticket = self.ticket();
        let Some(rc) = &mut self.rc else {
            return Err("this publisher sends datagrams alone: its [rdma] says subscribers = 0".into());
        };
        if rc.tickets.len() >= self.max_subscribers as usize {
            return Err(format!(
                "there are {} subscribers already, as many as this publisher takes ([rdma] subscribers)",
                rc.tickets.len()
            ));
        }
        let (token, offer) = (one_time_token()?, rc_offer(offer));
        rc.tickets.push((ticket, rc.keeper.connect(&offer, token, now)));
        self.say(format!("RDMA subscriber {} at {} is being connected", ticket.0, offer.at));
        Ok((ticket, OneTimeToken(*token.as_bytes())))
    }

    fn connect_replies(
        &mut self,
        connection: u16,
        offer: &RingOffer,
        now: Nanos,
    ) -> Result<(Ticket, OneTimeToken), String> {
        let ticket = self.ticket();
        let Some(replies) = &mut self.replies else {
            return Err("this publisher writes answers into no subscriber's ring; ask for datagrams".into());
        };
        let (token, offer, first) = (one_time_token()?, rc_offer(offer), Connection(connection).stamp(1));
        replies.tickets.push((ticket, replies.keeper.connect_replies(&offer, first, token, now)));
        Ok((ticket, OneTimeToken(*token.as_bytes())))
    }

    fn disconnect(&mut self, ticket: Ticket) {
        let gone = [&mut self.rc, &mut self.replies].into_iter().flatten().find_map(|writes| writes.disconnect(ticket));
        if let Some(whom) = gone {
            self.say(format!("RDMA {whom} {} has gone", ticket.0));
        }
    }

    fn next_dropped(&mut self) -> Option<(Ticket, String)> {
        self.dropped.pop_front()
    }

    fn next_message(&mut self) -> Option<String> {
        self.messages.pop_front()
    }

    fn do_work(&mut self, now: Nanos) -> usize {
        self.turn_ud(now) + self.turn_writes(now)
    }
}
