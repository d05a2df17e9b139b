//! The tender: holds the control connection, keeps the lanes, asks again when something broke.

use std::net::Ipv6Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use protocol::control::{ChannelInfo, RingOffer, UdInfo};
use protocol::record::{ChannelId, Lane};
use protocol::time::Nanos;
use transport::clock::Clock;
use transport::rdma::{
    Fabric, Gid, LocalPort, RcOffer, RcRx, RcRxEvent, RcRxKeeper, RcRxOptions, RcToken, UdEvent, UdOptions, UdRx,
    UdRxKeeper, UdSource, lines_per_packet,
};

use super::{RdmaConnectError, RdmaNews, RdmaOptions, RdmaRx, Tender};
use crate::control::{Control, ControlError, Notice};

/// News that nobody has read; further ones are left out until somebody does.
const MAX_NEWS: usize = 256;
/// How long the publisher may take to connect to a ring that is offered, ns.
const CONNECT_PATIENCE_NS: u64 = 2_000_000_000;
/// How long the first connection may take: the publisher may be busy starting.
const FIRST_PATIENCE_NS: u64 = 5_000_000_000;
/// From one attempt to the next, ns.
const RETRY_NS: u64 = 100_000_000;
/// The same where the publisher says no: it has as many subscribers as it takes, for example.
const REFUSED_RETRY_NS: u64 = 1_000_000_000;
/// How long each answer of the publisher may take: meanwhile lanes wait to be kept.
const ASK_PATIENCE: Duration = Duration::from_millis(500);

/// How the ring stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ring {
    /// Not offered; to be offered then.
    Idle { retry_at: Nanos },
    /// Offered and granted; the publisher is expected to connect.
    Offered { since: Nanos },
    /// Written to.
    Connected,
}

/// A publisher that is asked again, by a thread of its own: where nobody answers, connecting takes its whole patience, and
/// lanes are not to wait for that.
type Asking = JoinHandle<Result<(Control, Vec<ChannelInfo>), ControlError>>;

struct State {
    options: RdmaOptions,
    channel: ChannelId,
    control: Option<Control>,
    /// When the publisher is asked again, while there is no connection to it.
    ask_at: Nanos,
    asking: Option<Asking>,
    ud: Option<UdRxKeeper>,
    /// What was last heard of the datagrams.
    heard: Option<UdInfo>,
    rc: Option<RcRxKeeper>,
    ring: Ring,
    news: SyncSender<RdmaNews>,
    /// The last thing that went wrong, for whoever waits.
    last: String,
}

/// Asks the publisher for the channel `name`, opens the lanes wanted, and waits until its ring is written to, if it wants
/// one. Also gives the channel's description, and how many paths there are.
///
/// # Errors
/// [`RdmaConnectError`].
pub(crate) fn open(
    options: &RdmaOptions,
    name: &str,
    hedge_ns: u64,
    clock: Clock,
) -> Result<(RdmaRx, ChannelInfo, usize), RdmaConnectError> {
    let mut control = Control::connect(options.control, &options.token, &options.name)?;
    let channels = control.directory()?;
    let Some(channel) = channels.iter().find(|channel| channel.name == name).cloned() else {
        let known: Vec<&str> = channels.iter().map(|channel| channel.name.as_str()).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return Err(RdmaConnectError::NoChannel { address: options.control, name: name.to_owned(), known });
    };
    let not_sent = |why: &str| RdmaConnectError::NotSent { name: name.to_owned(), why: why.to_owned() };
    let Some(rdma) = channel.rdma else {
        return Err(not_sent("its publisher has no [rdma]; take shared memory or UDP"));
    };
    if !options.ud && !options.rc {
        return Err(not_sent("neither datagrams nor writes are wanted"));
    }
    let local = LocalPort::find(options.device.as_deref(), options.address)?;
    let (news, heard) = sync_channel(MAX_NEWS);
    let no_datagrams = match rdma.ud {
        _ if local.fabric == Fabric::Iwarp => Some(format!("{} is iWARP, which has none", local.device.name())),
        None => Some("the publisher sends none".to_owned()),
        Some(_) => None,
    };
    if let Some(why) = no_datagrams.as_ref().filter(|_| options.ud) {
        if !options.rc {
            return Err(not_sent(&format!("no datagrams: {why}; take writes (rc) instead")));
        }
        // A fresh queue has room.
        let _ = news.try_send(RdmaNews::WritesAlone { why: why.clone() });
    }
    if options.rc && rdma.rc.is_none() {
        return Err(not_sent(
            "its publisher writes into no rings ([rdma] subscribers = 0); take datagrams (ud) instead",
        ));
    }
    let (id, lane) = (ChannelId::new(channel.id), Lane::new(channel.lane));
    let datagrams = rdma.ud.filter(|_| options.ud && no_datagrams.is_none());
    let (ud_rx, ud) = match datagrams {
        Some(info) => {
            if let Some(why) = too_long(&info, &local) {
                return Err(not_sent(&why));
            }
            let (rx, mut keeper) = open_ud(options, &info, id)?;
            keeper.expect(vec![source(&info)]);
            (Some(rx), Some(keeper))
        }
        None => (None, None),
    };
    let (rc_rx, rc) = match options.rc {
        true => {
            let (rx, keeper) = open_rc(options, id, lane, hedge_ns)?;
            (Some(rx), Some(keeper))
        }
        false => (None, None),
    };
    let paths = usize::from(ud.is_some()) + usize::from(rc.is_some());
    // From here on lanes wait while it answers.
    control.set_patience(ASK_PATIENCE)?;
    let mut state = State {
        options: options.clone(),
        channel: id,
        control: Some(control),
        ask_at: Nanos::ZERO,
        asking: None,
        ud,
        heard: datagrams,
        rc,
        ring: Ring::Idle { retry_at: Nanos::ZERO },
        news,
        last: "nothing was heard of it".to_owned(),
    };
    let until = clock.now().plus(FIRST_PATIENCE_NS);
    while state.rc.is_some() && state.ring != Ring::Connected {
        let now = clock.now();
        if now >= until {
            return Err(RdmaConnectError::NotConnected { waited_ns: FIRST_PATIENCE_NS, last: state.last });
        }
        if state.turn(now) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let over = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&over);
    let thread = std::thread::Builder::new().name("bookcast-rdma".to_owned()).spawn(move || {
        // Relaxed: the flag carries nothing but itself.
        while !stop.load(Ordering::Relaxed) {
            if state.turn(clock.now()) == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
    let thread = Some(thread.map_err(RdmaConnectError::Thread)?);
    Ok((RdmaRx { ud: ud_rx, rc: rc_rx, news: heard, _tender: Tender { over, thread } }, channel, paths))
}

fn open_ud(options: &RdmaOptions, info: &UdInfo, channel: ChannelId) -> Result<(UdRx, UdRxKeeper), RdmaConnectError> {
    let ud = UdOptions {
        device: options.device.clone(),
        receive_depth: options.receive_depth,
        max_lines: longest(info),
        ..UdOptions::new(options.address, info.group, info.qkey)
    };
    Ok(UdRx::open(&ud, channel)?)
}

fn open_rc(
    options: &RdmaOptions,
    channel: ChannelId,
    lane: Lane,
    hedge_ns: u64,
) -> Result<(RcRx, RcRxKeeper), RdmaConnectError> {
    let rc = RcRxOptions {
        device: options.device.clone(),
        lines: options.lines,
        hedge_ns,
        ..RcRxOptions::new(options.address)
    };
    Ok(RcRx::open(&rc, channel, lane)?)
}

/// Why datagrams as long as the publisher's may not come, if so: longer ones than the port's MTU are lost without a word.
fn too_long(info: &UdInfo, local: &LocalPort) -> Option<String> {
    let (device, mtu) = (local.device.name(), local.port.active_mtu);
    let is_too_long = info.mtu as usize > mtu;
    is_too_long
        .then(|| format!("its datagrams have up to {} bytes, and the MTU of {device} is {mtu}: raise it", info.mtu))
}

/// Lines in the longest datagrams that the publisher sends: a port that does not carry them, now or later, is refused.
fn longest(info: &UdInfo) -> Option<usize> {
    Some(lines_per_packet(info.mtu as usize))
}

fn source(info: &UdInfo) -> UdSource {
    UdSource { gid: Gid(Ipv6Addr::octets(&info.source_gid)), queue_pair: info.source_queue_pair }
}

impl State {
    fn say(&mut self, news: RdmaNews) {
        if let RdmaNews::Lost { why } | RdmaNews::Refused { why } | RdmaNews::Away { why } = &news {
            self.last.clone_from(why);
        }
        // Full: nobody reads. What the last trouble was is kept.
        let _ = self.news.try_send(news);
    }

    /// One turn; returns how much was done.
    fn turn(&mut self, now: Nanos) -> usize {
        self.turn_ud(now) + self.turn_rc(now) + self.turn_control(now)
    }

    fn turn_ud(&mut self, now: Nanos) -> usize {
        let mut work = self.ud.as_mut().map_or(0, |keeper| keeper.do_work(now));
        while let Some(event) = self.ud.as_mut().and_then(UdRxKeeper::next_event) {
            work += 1;
            self.say(match event {
                UdEvent::PortDown => RdmaNews::DatagramsOut { why: "the port is down".to_owned() },
                UdEvent::Failed(failure) => RdmaNews::DatagramsOut { why: failure.to_string() },
                UdEvent::Mended { .. } => RdmaNews::DatagramsBack,
                UdEvent::CannotMend(error) => RdmaNews::DatagramsOut { why: error.to_string() },
                UdEvent::Device(event) => RdmaNews::Device { what: event.kind.text().to_owned() },
            });
        }
        work
    }

    fn turn_rc(&mut self, now: Nanos) -> usize {
        let mut work = self.rc.as_mut().map_or(0, |keeper| keeper.do_work(now));
        while let Some(event) = self.rc.as_mut().and_then(RcRxKeeper::next_event) {
            work += 1;
            match event {
                RcRxEvent::Connected { first } => {
                    self.ring = Ring::Connected;
                    self.say(RdmaNews::Connected { first });
                }
                RcRxEvent::Refused { why } => self.say(RdmaNews::Refused { why: why.to_string() }),
                RcRxEvent::CannotConnect { error } => self.lose(error.to_string(), now),
                // While another ring is offered, that is said of the one before, which was given up already.
                RcRxEvent::Lost { .. } if matches!(self.ring, Ring::Offered { .. }) => {}
                RcRxEvent::Lost { why } => self.lose(why.to_string(), now),
                RcRxEvent::Device(event) => self.say(RdmaNews::Device { what: event.kind.text().to_owned() }),
            }
        }
        work
    }

    /// The ring is written to no more, or never was: another is offered soon.
    fn lose(&mut self, why: String, now: Nanos) {
        if !matches!(self.ring, Ring::Idle { .. }) {
            self.ring = Ring::Idle { retry_at: now.plus(RETRY_NS) };
            self.say(RdmaNews::Lost { why });
        }
    }

    fn turn_control(&mut self, now: Nanos) -> usize {
        let Some(control) = &mut self.control else { return self.ask_again(now) };
        match control.next_notice().and_then(|notice| control.check(now).map(|()| notice)) {
            Ok(None) => {}
            Ok(Some(Notice::Dropped { channel, why })) => {
                if channel == self.channel.0.get() {
                    self.lose(why, now);
                }
                return 1;
            }
            // This connection reports no position.
            Ok(Some(Notice::Behind { .. })) => {}
            Ok(Some(Notice::Changed { channels })) => {
                self.heed(&channels, now);
                return 1;
            }
            Err(error) => {
                self.hang_up(error.to_string(), now);
                return 1;
            }
        }
        match self.ring {
            Ring::Idle { retry_at } if self.rc.is_some() && now >= retry_at => {
                self.offer(now);
                1
            }
            Ring::Offered { since } if now.since(since) >= CONNECT_PATIENCE_NS as i64 => {
                self.lose("the publisher did not connect in time".to_owned(), now);
                1
            }
            _ => 0,
        }
    }

    /// The publisher cannot be asked any more; what it wrote to, it writes to no more.
    fn hang_up(&mut self, why: String, now: Nanos) {
        self.control = None;
        self.ask_at = now.plus(RETRY_NS);
        self.say(RdmaNews::Away { why });
        if self.rc.is_some() {
            self.lose("the control connection is over, and the ring's with it".to_owned(), now);
        }
    }

    fn ask_again(&mut self, now: Nanos) -> usize {
        let asked = match self.asking.take() {
            Some(asking) if asking.is_finished() => asking.join(),
            Some(asking) => {
                self.asking = Some(asking);
                return 0;
            }
            None if now < self.ask_at => return 0,
            None => {
                let RdmaOptions { control, token, name, .. } = self.options.clone();
                let ask = move || {
                    let mut control = Control::connect_within(ASK_PATIENCE, control, &token, &name)?;
                    let channels = control.directory()?;
                    Ok((control, channels))
                };
                match std::thread::Builder::new().name("bookcast-ask".to_owned()).spawn(ask) {
                    Ok(asking) => self.asking = Some(asking),
                    Err(error) => {
                        self.ask_at = now.plus(RETRY_NS);
                        self.last = format!("no thread to ask the publisher: {error}");
                    }
                }
                return 1;
            }
        };
        match asked {
            Ok(Ok((control, channels))) => {
                self.control = Some(control);
                self.heed(&channels, now);
            }
            Ok(Err(error)) => {
                self.ask_at = now.plus(RETRY_NS);
                self.last = error.to_string();
            }
            // It has said so on standard error.
            Err(_) => self.ask_at = now.plus(RETRY_NS),
        }
        1
    }

    /// Takes note of how the channel is reached now.
    fn heed(&mut self, channels: &[ChannelInfo], now: Nanos) {
        let Some(channel) = channels.iter().find(|channel| channel.id == self.channel.0.get()) else { return };
        let Some(info) = channel.rdma.and_then(|rdma| rdma.ud).filter(|info| self.heard != Some(*info)) else { return };
        let Some(keeper) = &mut self.ud else { return };
        let before = self.heard.replace(info);
        keeper.expect(vec![source(&info)]);
        // Where its datagrams are too long for the port now, the keeper says so, each second, and how to mend it.
        keeper.regroup(info.group, info.qkey, longest(&info), now);
        if before.is_some_and(|before| (before.group, before.qkey) != (info.group, info.qkey)) {
            let why = format!("the publisher sends to another group now, {}, which is being joined", info.group);
            self.say(RdmaNews::DatagramsOut { why });
        }
    }

    /// Offers a fresh ring.
    fn offer(&mut self, now: Nanos) {
        let (Some(keeper), Some(control)) = (&mut self.rc, &mut self.control) else { return };
        let retry = Ring::Idle { retry_at: now.plus(RETRY_NS) };
        let RcOffer { at, address, key, lines, from } = match keeper.offer() {
            Ok(offer) => offer,
            Err(error) => {
                self.ring = retry;
                return self.say(RdmaNews::Lost { why: error.to_string() });
            }
        };
        match control
            .connect_ring(self.channel.0.get(), RingOffer { at, address, key, lines, from: from.map(|from| from.0) })
        {
            Ok(token) => {
                keeper.expect(RcToken::from_bytes(token.0));
                self.ring = Ring::Offered { since: now };
            }
            Err(error @ ControlError::Refused { .. }) => {
                self.ring = Ring::Idle { retry_at: now.plus(REFUSED_RETRY_NS) };
                self.say(RdmaNews::Lost { why: error.to_string() });
            }
            Err(error) => self.hang_up(error.to_string(), now),
        }
    }
}
