//! Joining a channel that another publisher, of another lane, publishes already.
//!
//! Such a publisher takes the living lane's epoch, replays the venue's stream from the session's start without publishing,
//! and holds what it would have published against what that lane does publish. Once sequence and digests agree it publishes
//! from there; if they do not, or cannot, it refuses to start and says why. What is decided is
//! [`protocol::pair::Joiner`]'s; here is what that needs of the world: the lane, looked for in this host's shared memory and,
//! where `[partner]` says so, on the network; and the clock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cli::eprintln;
use protocol::line::{Epoch, Line, Stamp};
use protocol::pair::{CannotJoin, JoinConfig, Joiner};
use protocol::record::{ChannelId, Lane};
use protocol::run::{LanePath, LossCause, Position, Run, RunSink};
use protocol::time::Nanos;
use transport::LaneRx;
use transport::clock::Clock;
use transport::ring::{RingReader, StartAt};
use transport::shm::{self, Aliveness, SetupError, ShmRing};
use transport::udp::{UdpError, UdpRx};

use crate::config::Config;
use crate::feed::FeedSource;
use crate::pace::{Pace, Schedule};
use crate::pipeline::{Pipeline, PipelineError};
use crate::venue::Venue;

/// Lines of the living lane taken in one turn: a small part of any ring, so that what is replayed keeps up.
const LINES_PER_TURN: usize = 4096;
/// Messages replayed in one turn. A turn is to be short beside the time in which a ring goes round.
const MESSAGES_PER_TURN: usize = 256;
/// How long a place of a ring that was written may fail to verify, ns.
const HEDGE_NS: u64 = 200_000;
/// Sleep when there is nothing to do.
const NAP: Duration = Duration::from_micros(100);
/// From the start of a publisher that joins to its first line, at least, ns. Where a pair had been split, subscribers know by
/// a silence that a lane's publisher may be another one than before; lanes are silent after 100 ms, unless told otherwise.
const QUIET_NS: u64 = 1_000_000_000;
/// How often it is said how far it is, ns.
const SAY_EVERY_NS: u64 = 2_000_000_000;

/// Why a publisher does not join, and does not start.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The living lane and this one do not go together.
    #[error("cannot join the channel: {0}")]
    Cannot(#[from] CannotJoin),
    /// An epoch was asked for, and another is alive.
    #[error(
        "cannot join the channel: epoch {asked} was asked for with --epoch, and lane {} is alive in epoch {alive}: leave --epoch \
         out, or end that lane first", lane.0
    )]
    OtherEpoch {
        /// `--epoch`.
        asked: u16,
        /// The lane that lives.
        lane: Lane,
        /// Its epoch.
        alive: u16,
    },
    /// The feed here is shorter than what was published.
    #[error(
        "cannot join the channel: the feed here ends before {at}, and lane {} has published beyond it: it needs the same feed",
        lane.0
    )]
    FeedEnded {
        /// The line that comes next.
        at: Stamp,
        /// The lane that lives.
        lane: Lane,
    },
    /// The channel has another number.
    #[error(
        "cannot join the channel: lane {} of that name is channel {alive}, and this publisher's is {own}: the publishers of one \
         channel agree on [channel] id", lane.0
    )]
    OtherChannel {
        /// The lane that lives.
        lane: Lane,
        /// Its channel.
        alive: u16,
        /// `id` in `[channel]`.
        own: u16,
    },
    /// It was asked to stop.
    #[error("stopped before it had joined the channel: nothing was published")]
    Stopped,
    /// The feed, or the sequence.
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    /// The lane's ring.
    #[error("looking for another lane of the channel: {0}")]
    SharedMemory(#[from] SetupError),
    /// The lane's datagrams.
    #[error("looking for another lane of the channel: {0}")]
    Udp(#[from] UdpError),
}

/// How the living lane comes here.
enum Way {
    /// The ring stays mapped as long as its reader.
    SharedMemory(Box<RingReader>),
    Udp(Box<UdpRx>),
}

/// A lane of the channel that is alive.
pub struct Partner {
    /// Which.
    pub lane: Lane,
    /// In which epoch it publishes.
    pub epoch: Epoch,
    way: Way,
}

impl Partner {
    /// Looks for a living lane of the channel that `config` would publish: in this host's shared memory first, then, for as
    /// long as `[partner]` says, on the network.
    ///
    /// # Errors
    /// [`JoinError`], if it cannot be looked for, or is another channel's.
    pub fn find(config: &Config, clock: Clock) -> Result<Option<Partner>, JoinError> {
        let own = (Lane::new(config.channel.lane), ChannelId::new(config.channel.id));
        let rings = match &config.ring.directory {
            Some(directory) => shm::list_in(directory)?,
            None => shm::list()?,
        };
        let is_partner = |ring: &&shm::RingInfo| {
            ring.name == config.channel.name && ring.lane != own.0 && ring.aliveness == Aliveness::Alive
        };
        if let Some(info) = rings.iter().filter(is_partner).max_by_key(|ring| ring.epoch) {
            if info.channel != own.1 {
                let (alive, own) = (info.channel.0.get(), config.channel.id);
                return Err(JoinError::OtherChannel { lane: info.lane, alive, own });
            }
            let directory = info.path.parent().unwrap_or(std::path::Path::new("/"));
            let ring = ShmRing::open_in(directory, &info.name, info.lane)?;
            let epoch = ring.shape().epoch();
            let way = Way::SharedMemory(Box::new(behind_the_head(&ring, clock)));
            return Ok(Some(Partner { lane: info.lane, epoch, way }));
        }
        let Some(section) = &config.partner else { return Ok(None) };
        let mut rx = UdpRx::open(&section.options(), own.1)?;
        let mut sign = Sign { not: own.0, found: None };
        let until = clock.now().plus(section.wait_ms * 1_000_000);
        while clock.now() < until && sign.found.is_none() {
            if rx.poll(clock.now(), LINES_PER_TURN, &mut sign) == 0 {
                std::thread::sleep(NAP);
            }
        }
        Ok(sign.found.map(|(lane, epoch)| Partner { lane, epoch, way: Way::Udp(Box::new(rx)) }))
    }

    /// Checks that what `--epoch` asks for, if it does, is this lane's epoch.
    ///
    /// # Errors
    /// [`JoinError::OtherEpoch`].
    pub fn check_epoch(&self, asked: Option<Epoch>) -> Result<(), JoinError> {
        match asked {
            Some(asked) if asked != self.epoch => {
                Err(JoinError::OtherEpoch { asked: asked.0, lane: self.lane, alive: self.epoch.0 })
            }
            _ => Ok(()),
        }
    }

    /// Replays the feed of `pipeline`, which has taken nothing yet, until this publisher may publish. Each line that is
    /// replayed goes to `beside` as well. Returns when the feed's first message was due, as far as can be told from when the
    /// lane's lines came: `None` with [`Pace::Max`].
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn join<S: FeedSource, V: Venue>(
        self,
        pipeline: &mut Pipeline<S, V>,
        pace: Pace,
        digests: bool,
        clock: Clock,
        stop: &AtomicBool,
        mut beside: impl FnMut(Stamp, &Line),
    ) -> Result<Option<Nanos>, JoinError> {
        let config = JoinConfig { digests: u64::from(digests), ..JoinConfig::default() };
        let mut joiner = Joiner::new(config, self.lane, pipeline.channel().next());
        let mut way = self.way;
        let first = pipeline.peek().map_err(PipelineError::from)?;
        let plan = Schedule {
            pace,
            start_ns: 0,
            first_ns: first.map_or(0, |due| due.time.0),
            first_ordinal: pipeline.first_ordinal(),
        };
        // A line comes no sooner than it is due: the earliest start that any of them shows is the nearest to the truth.
        let mut start: Option<Nanos> = None;
        let not_before = clock.now().plus(QUIET_NS);
        let mut say_at = clock.now().plus(SAY_EVERY_NS);
        loop {
            // Relaxed: the flag carries nothing but itself.
            if stop.load(Ordering::Relaxed) {
                return Err(JoinError::Stopped);
            }
            let now = clock.now();
            let mut work = match &mut way {
                Way::SharedMemory(reader) => reader.poll(now, LINES_PER_TURN, &mut joiner.sink(now)),
                Way::Udp(rx) => rx.poll(now, LINES_PER_TURN, &mut joiner.sink(now)),
            };
            for _ in 0..MESSAGES_PER_TURN {
                if !joiner.wants_more() {
                    break;
                }
                let at = pipeline.channel().next();
                let Some(due) = pipeline.peek().map_err(PipelineError::from)? else {
                    return Err(JoinError::FeedEnded { at, lane: self.lane });
                };
                pipeline.step(now, &mut |line| {
                    beside(joiner.next(), line);
                    joiner.on_own(line, now);
                })?;
                work += 1;
                if let (Some(after), Some(came)) = (plan.intended(due.index, due.time), joiner.arrived(at)) {
                    let seen = Nanos(came.0.saturating_sub(after.0));
                    start = Some(start.map_or(seen, |start| start.min(seen)));
                }
            }
            if joiner.outcome(now)?.is_some() && now >= not_before {
                return Ok(start);
            }
            if now >= say_at {
                say_at = now.plus(SAY_EVERY_NS);
                let (lines, digests) = joiner.agreed();
                eprintln!(
                    "joining lane {}: {} lines behind; {lines} lines and {digests} digests agree",
                    self.lane.0,
                    joiner.behind()
                );
            }
            if work == 0 {
                std::thread::sleep(NAP);
            }
        }
    }
}

/// A reader of the newer half of what a ring holds: the digests in it are compared at once.
fn behind_the_head(ring: &ShmRing, clock: Clock) -> RingReader {
    let mut newest = ring.reader(StartAt::Newest, HEDGE_NS);
    newest.poll(clock.now(), 1, &mut Nobody);
    let shape = ring.shape();
    let back = newest.cursor().0.saturating_sub(shape.capacity() as u64 / 2);
    ring.reader(StartAt::At(Stamp(back.max(shape.first().0)).sequence()), HEDGE_NS)
}

struct Nobody;

impl RunSink for Nobody {
    fn on_run(&mut self, _: Run<'_>) {}
    fn on_position(&mut self, _: Position) {}
    fn on_loss(&mut self, _: LanePath, _: Stamp, _: u64, _: LossCause) {}
}

/// Waits for a sign of life of another lane than the own one.
struct Sign {
    not: Lane,
    found: Option<(Lane, Epoch)>,
}

impl Sign {
    fn hear(&mut self, path: LanePath, stamp: Stamp) {
        if path.lane != self.not {
            self.found.get_or_insert((path.lane, stamp.epoch()));
        }
    }
}

impl RunSink for Sign {
    fn on_run(&mut self, run: Run<'_>) {
        self.hear(run.path, run.first);
    }
    fn on_position(&mut self, position: Position) {
        self.hear(position.path, position.next);
    }
    fn on_loss(&mut self, _: LanePath, _: Stamp, _: u64, _: LossCause) {}
}
