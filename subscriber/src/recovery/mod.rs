//! Asking for what was lost: the recovery server of a channel, over a socket of one's own. Over RDMA the answers come into a
//! ring of one's own, which the server's card writes.
//!
//! What is asked, and what becomes of the answers, is decided in [`protocol::recovery`]. Here is what that needs of the world:
//! a thread that holds the control connection ([`usher`]) and hands over a way to the server whenever there is a new one,
//! and the turn that moves lines between that way, the arbiter and the books. The poller itself never waits: while
//! nothing is missing its turn costs a load or two, and no system call.

#[cfg(feature = "rdma")]
mod ring;
mod usher;

use std::net::SocketAddr;

use protocol::arbiter::Arbiter;
use protocol::control::RequestKey;
use protocol::line::{Line, Stamp};
use protocol::recovery::{
    CatchUpConfig, Connection, Recovering, Recovery, RecoveryConfig, RecoveryCounts, RecoveryState, Session,
};
use protocol::run::{LanePath, LossCause, Position, Run, RunSink};
use protocol::time::Nanos;
use transport::LaneRx;
use transport::fault::{FaultInjector, FaultPlan};
use transport::reply::{ReplyLane, ReplyRx};

#[cfg(feature = "rdma")]
pub use ring::ReplyRingOptions;
use usher::Usher;

/// Lines of answers taken in one turn.
const LINES_PER_TURN: usize = 512;

/// What becomes of a subscriber that is too slow. Nobody waits for it in any case. (Who wants the latest of each instrument
/// alone is never too slow: see [`Conflated`](crate::Conflated).)
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Policy {
    /// It is told what it lost, and gets it from the recovery server, or snapshots.
    #[default]
    Gap,
    /// The same; and while it keeps up it says every few milliseconds how far it has read, by the thread that holds the control
    /// connection. The publisher counts that, and when this subscriber's ring is nearly full it is told so
    /// ([`Handler::on_behind`](crate::Handler::on_behind)), and goes on with policy `Gap` until the next connection. By
    /// datagrams it is measured by the publisher's ring: what waits in a socket's queue for longer than that is slow, too.
    Tracked,
}

/// A tracked subscriber's ring was nearly full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Behind {
    /// Lines between this subscriber and the newest, when the publisher said so.
    pub lines: u64,
    /// Lines of the ring that it reads.
    pub ring_lines: u64,
}

/// Where a subscriber asks for what it lost, and how.
#[derive(Clone, PartialEq, Debug)]
pub struct RecoveryOptions {
    /// The publisher's control channel, which lets subscribers into its recovery server.
    pub control: SocketAddr,
    /// One of the tokens in the publisher's `[control]`.
    pub token: String,
    /// What this subscriber calls itself, for the publisher's messages.
    pub name: String,
    /// Asked for the kernel's queue of answers, bytes, before its doubling.
    pub receive_buffer: usize,
    /// How long what is missing may take to come after its hedge time, ns, before it is declared lost.
    pub patience_ns: u64,
    /// Lines that may come meanwhile, at least: a power of two. What comes beyond them declares the gap.
    pub early_lines: usize,
    /// When to ask, how often, how much.
    pub requests: RecoveryConfig,
    /// How much is kept while snapshots are waited for.
    pub catch_up: CatchUpConfig,
    /// What becomes of this subscriber when it is too slow.
    pub policy: Policy,
    /// Lines of the ring that it reads, where that is not the publisher's own: for [`Policy::Tracked`].
    pub ring_lines: Option<u64>,
    /// Faults done to answers that come as datagrams, to try what becomes of it.
    pub faults: Option<FaultPlan>,
    /// Have answers written by RDMA into a ring that holds all that may be asked for at one time, 16 MiB by default
    /// ([`snapshot_lines`](RecoveryConfig::snapshot_lines) decides); `None`: they come as datagrams. [`Builder::rdma`](crate::Builder::rdma) sets this by itself.
    #[cfg(feature = "rdma")]
    pub ring: Option<ReplyRingOptions>,
}

impl RecoveryOptions {
    /// By the control channel at `control`, with `token`; 4 MiB for answers that wait, half a second of patience, 65,536
    /// lines (4 MiB) that may come meanwhile.
    pub fn new(control: SocketAddr, token: &str) -> RecoveryOptions {
        RecoveryOptions {
            control,
            token: token.to_owned(),
            name: format!("subscriber, pid {}", std::process::id()),
            receive_buffer: 4 << 20,
            patience_ns: 500_000_000,
            early_lines: 1 << 16,
            requests: RecoveryConfig { reply_lines: 1 << 15, ..RecoveryConfig::default() },
            catch_up: CatchUpConfig::default(),
            policy: Policy::Gap,
            ring_lines: None,
            faults: None,
            #[cfg(feature = "rdma")]
            ring: None,
        }
    }

    /// The same, and tracked.
    pub fn tracked(self) -> RecoveryOptions {
        RecoveryOptions { policy: Policy::Tracked, ..self }
    }
}

/// How the recovery of a subscriber stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecoveryStatus {
    /// Where it stands.
    pub state: RecoveryState,
    /// What was asked, and what came of it.
    pub counts: RecoveryCounts,
    /// The connection to the server that is used now.
    pub connection: Option<Connection>,
    /// Times that the server, or the way to it, was another one.
    pub reconnects: u64,
    /// Whether its answers are written into a ring of this subscriber's own.
    pub has_ring: bool,
    /// Requests that the system did not send.
    pub unsent: u64,
    /// What becomes of this subscriber when it is too slow: as asked for, or [`Policy::Gap`] since it was.
    pub policy: Policy,
    /// Times that the publisher let go of it because its ring was nearly full.
    pub lapses: u64,
    /// Why the server cannot be had at this moment; empty if it can.
    pub trouble: String,
}

/// The way to the server and back.
enum Way {
    Plain(Box<ReplyRx>),
    Faulty(Box<FaultInjector<ReplyRx>>),
    #[cfg(feature = "rdma")]
    Ring(Box<transport::rdma::RcReplyRx>),
}

impl Way {
    fn poll(&mut self, now: Nanos, sink: &mut impl RunSink) -> usize {
        match self {
            Way::Plain(lane) => lane.poll(now, LINES_PER_TURN, sink),
            Way::Faulty(lane) => lane.poll(now, LINES_PER_TURN, sink),
            #[cfg(feature = "rdma")]
            Way::Ring(lane) => lane.poll(now, LINES_PER_TURN, sink),
        }
    }

    fn is_ring(&self) -> bool {
        !matches!(self, Way::Plain(_) | Way::Faulty(_))
    }

    fn request(&mut self, request: &Line, now: Nanos) -> bool {
        match self {
            Way::Plain(lane) => lane.request(request, now),
            Way::Faulty(lane) => lane.request(request, now),
            #[cfg(feature = "rdma")]
            Way::Ring(lane) => lane.request(request, now),
        }
    }
}

/// A subscriber's recovery: state, thread and way to the server.
pub(crate) struct Recoverer {
    usher: Usher,
    recovery: Recovery,
    way: Option<(Connection, Way)>,
    faults: Option<FaultPlan>,
    reconnects: u64,
    unsent: u64,
    /// As asked for, and as it is.
    asked_policy: Policy,
    policy: Policy,
    lapses: u64,
}

impl Recoverer {
    /// Recovery of the channel that its publisher calls `channel`. It begins when the publisher has been asked.
    pub(crate) fn start(options: &RecoveryOptions, channel: &str) -> Recoverer {
        // Nobody yet: nothing is asked before the publisher has given a connection.
        let nobody = Session { connection: Connection(0), key: 0 };
        Recoverer {
            usher: Usher::start(options.clone(), channel.to_owned()),
            // The process id makes neighbours' jitter different.
            recovery: Recovery::new(options.requests, nobody, u64::from(std::process::id())),
            way: None,
            faults: options.faults.clone(),
            reconnects: 0,
            unsent: 0,
            asked_policy: options.policy,
            policy: options.policy,
            lapses: 0,
        }
    }

    /// One turn at `now`: takes answers, asks for what is missing.
    #[inline]
    pub(crate) fn turn<T: Recovering>(&mut self, now: Nanos, arbiter: &mut Arbiter, target: &mut T) {
        if let Some(admitted) = self.usher.next() {
            self.reconnect(admitted);
        }
        if self.policy == Policy::Tracked
            && let Some(reached) = arbiter.reached()
        {
            self.usher.set_position(reached);
        }
        let Some((_, way)) = &mut self.way else { return };
        if self.recovery.state() != RecoveryState::Live {
            let mut answers = Answers { recovery: &mut self.recovery, arbiter, target, now, is_spoilt: false };
            way.poll(now, &mut answers);
            if answers.is_spoilt {
                self.usher.replace();
            }
        }
        self.recovery.turn(now, arbiter, target);
        while let Some(request) = self.recovery.poll_request() {
            self.unsent += u64::from(!way.request(&request, now));
        }
    }

    /// What the publisher said if it has let go of this tracked subscriber since the last call.
    #[inline]
    pub(crate) fn take_behind(&mut self) -> Option<Behind> {
        if self.policy != Policy::Tracked {
            return None;
        }
        let behind = self.usher.lapsed()?;
        self.policy = Policy::Gap;
        self.lapses += 1;
        Some(behind)
    }

    #[cold]
    fn reconnect(&mut self, admitted: usher::Admitted) {
        let usher::Admitted { connection, key: RequestKey(key), way } = admitted;
        self.recovery.reconnect(Session { connection, key });
        let way = match (way, self.faults.clone()) {
            (Way::Plain(lane), Some(plan)) => Way::Faulty(Box::new(FaultInjector::new(*lane, plan))),
            (way, _) => way,
        };
        // Another publisher, or the same anew, knows nothing of how slow this subscriber was.
        self.policy = self.asked_policy;
        self.reconnects += u64::from(self.way.is_some());
        self.way = Some((connection, way));
    }

    /// How it stands.
    pub(crate) fn status(&self) -> RecoveryStatus {
        RecoveryStatus {
            state: self.recovery.state(),
            counts: self.recovery.counts(),
            connection: self.way.as_ref().map(|(connection, _)| *connection),
            reconnects: self.reconnects,
            has_ring: self.way.as_ref().is_some_and(|(_, way)| way.is_ring()),
            unsent: self.unsent,
            policy: self.policy,
            lapses: self.lapses,
            trouble: self.usher.trouble(),
        }
    }
}

/// Takes what socket or ring hands up.
struct Answers<'a, T> {
    recovery: &'a mut Recovery,
    arbiter: &'a mut Arbiter,
    target: &'a mut T,
    now: Nanos,
    /// Lines of answers were lost that no asking brings back by this way.
    is_spoilt: bool,
}

impl<T: Recovering> RunSink for Answers<'_, T> {
    fn on_run(&mut self, run: Run<'_>) {
        // The server of a publisher that does not say what the other says would mend books with the wrong lines.
        if self.arbiter.is_withdrawn(run.path.lane) {
            return;
        }
        self.recovery.on_replies(run.first, run.lines, self.now, self.arbiter, self.target);
    }
    /// The server sends nothing without lines.
    fn on_position(&mut self, _: Position) {}
    /// A socket does not know what it lost; [`Recovery`] does. A ring's reader goes on behind what it names here, so that what
    /// is sent again would not be seen.
    fn on_loss(&mut self, _: LanePath, _: Stamp, _: u64, _: LossCause) {
        self.is_spoilt = true;
    }
}
