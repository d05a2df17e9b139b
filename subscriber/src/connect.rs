//! From settings to a subscriber: the transport is chosen here, once, as a type.

use protocol::arbiter::ArbiterConfig;
use protocol::book::{BooksConfig, Start};
use protocol::control::ChannelInfo;
use protocol::record::{ChannelId, Lane};
use transport::LaneRx;
use transport::clock::Clock;
use transport::shm::{RxOptions, SetupError, ShmRx};
use transport::udp::{UdpError, UdpOptions, UdpRx};

use crate::conflated::Conflated;
use crate::engine::{Engine, EngineConfig};
use crate::live::Subscriber;
use crate::recovery::{Recoverer, RecoveryOptions};
use crate::selection::Selection;

/// Why a subscriber could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The shared-memory ring.
    #[error(transparent)]
    SharedMemory(#[from] SetupError),
    /// The UDP socket.
    #[error(transparent)]
    Udp(#[from] UdpError),
    /// RDMA.
    #[cfg(feature = "rdma")]
    #[error(transparent)]
    Rdma(#[from] crate::rdma::RdmaConnectError),
}

/// Makes a [`Subscriber`] of one channel.
///
/// ```no_run
/// # fn main() -> Result<(), subscriber::ConnectError> {
/// let mut subscriber = subscriber::Builder::new("itch").symbols(["AAPL", "BRK.*"]).shared_memory()?;
/// while !subscriber.has_ended() {
///     subscriber.poll(&mut ());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Builder {
    name: String,
    lane: Lane,
    directory: Option<std::path::PathBuf>,
    arbiter: ArbiterConfig,
    engine: EngineConfig,
    clock: Option<Clock>,
    recovery: Option<RecoveryOptions>,
}

impl Builder {
    /// A subscriber of the channel that its publisher calls `name`: lane 0, every instrument, books of the default size.
    pub fn new(name: &str) -> Builder {
        Builder {
            name: name.to_owned(),
            lane: Lane::new(0),
            directory: None,
            arbiter: ArbiterConfig::default(),
            engine: EngineConfig::default(),
            clock: None,
            recovery: None,
        }
    }

    /// A subscriber of a channel as its publisher describes it: see [`Control::directory`](crate::Control::directory). Its
    /// ring's folder, its lane and its way of starting are set as they must be.
    pub fn of(channel: &ChannelInfo) -> Builder {
        let mut builder = Builder::new(&channel.name).lane(channel.lane);
        builder.directory = channel.shared_memory.as_ref().map(|ring| ring.directory.clone());
        builder.engine.start = if channel.natural_start { Start::Natural } else { Start::Strict };
        builder
    }

    /// Wants only the instruments whose symbols match one of these: names, or patterns with `*` and `?`. The others are
    /// skipped cheaply.
    pub fn symbols<I: IntoIterator<Item = S>, S: AsRef<str>>(mut self, patterns: I) -> Builder {
        self.engine.selection = Selection::symbols(patterns);
        self
    }

    /// Another path of the channel than lane 0, for shared memory.
    pub fn lane(mut self, lane: u16) -> Builder {
        self.lane = Lane::new(lane);
        self
    }

    /// Another folder for ring files than the usual one.
    pub fn directory(mut self, directory: &std::path::Path) -> Builder {
        self.directory = Some(directory.to_owned());
        self
    }

    /// Room for books: what outgrows it costs an allocation, which is counted.
    pub fn books(mut self, books: BooksConfig) -> Builder {
        self.engine.books = books;
        self
    }

    /// What books are taken for when the feed starts in mid-day. Must be what the publisher uses.
    pub fn start(mut self, start: Start) -> Builder {
        self.engine.start = start;
        self
    }

    /// How long what is missing may take to come by another path or out of order, ns.
    pub fn hedge_ns(mut self, hedge_ns: u64) -> Builder {
        self.arbiter.hedge_ns = hedge_ns;
        self
    }

    /// Reads this clock instead of one of its own: for processes of one host that compare their times.
    pub fn clock(mut self, clock: Clock) -> Builder {
        self.clock = Some(clock);
        self
    }

    /// Asks the publisher's recovery server for what is lost, and for the books of instruments that this subscriber came late
    /// for. A thread of its own holds the control connection that this needs; where the publisher cannot be asked, it goes
    /// on trying, and what is lost meanwhile is lost: see [`Subscriber::recovery`].
    pub fn recover(mut self, options: RecoveryOptions) -> Builder {
        self.recovery = Some(options);
        self
    }

    /// The latest of each instrument in place of every change, from this host's shared memory: for a publisher with a recovery
    /// server that conflates. One that is not there yet is waited for. Of the settings, those of books, hedge and recovery say
    /// nothing here.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), subscriber::ConnectError> {
    /// let mut books = subscriber::Builder::new("itch").symbols(["AAPL"]).conflated()?;
    /// loop {
    ///     books.poll(|book| println!("{} {:?}: {:?}", book.symbol(), book.state, book.bbo()));
    ///     std::thread::sleep(std::time::Duration::from_secs(1));
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ConnectError::SharedMemory`] if there can never be a channel of that name.
    pub fn conflated(self) -> Result<Conflated, ConnectError> {
        let clock = self.clock.unwrap_or_else(Clock::calibrate);
        Conflated::open(self.name, self.lane, self.directory, self.engine.selection, clock)
    }

    /// Over this host's shared memory. A publisher that is not there yet is waited for: polls bring nothing until it
    /// starts.
    ///
    /// # Errors
    /// [`ConnectError::SharedMemory`] if there can never be a ring of that name.
    pub fn shared_memory(self) -> Result<Subscriber<ShmRx>, ConnectError> {
        let rx = self.shared_memory_rx()?;
        Ok(self.lanes(rx, 1))
    }

    /// Over this host's shared memory, from both of the channel's publishers: A, which is lane 0, and B, lane 1. The first copy
    /// of each line wins, and either may die. Copies that differ are told by [`Handler::on_split`](crate::Handler::on_split).
    ///
    /// # Errors
    /// [`ConnectError::SharedMemory`] if there can never be a ring of that name.
    pub fn shared_memory_pair(mut self) -> Result<Subscriber<(ShmRx, ShmRx)>, ConnectError> {
        // A publisher that comes back begins at the newest line; what is before stands in the other one's ring yet.
        self.arbiter.early_lines = self.arbiter.early_lines.max(1 << 16);
        let rx = (self.clone().lane(0).shared_memory_rx()?, self.clone().lane(1).shared_memory_rx()?);
        Ok(self.lanes(rx, 2))
    }

    /// Over UDP multicast, from both of the channel's publishers; as [`Builder::shared_memory_pair`].
    ///
    /// # Errors
    /// [`ConnectError::Udp`], for either.
    pub fn udp_pair(
        self,
        options: (&UdpOptions, &UdpOptions),
        channel: ChannelId,
    ) -> Result<Subscriber<(UdpRx, UdpRx)>, ConnectError> {
        let rx = (UdpRx::open(options.0, channel)?, UdpRx::open(options.1, channel)?);
        Ok(self.lanes(rx, 2))
    }

    /// Over UDP multicast.
    ///
    /// # Errors
    /// [`ConnectError::Udp`]: no such interface, port taken, no permission, and so on.
    pub fn udp(self, options: &UdpOptions, channel: ChannelId) -> Result<Subscriber<UdpRx>, ConnectError> {
        let rx = UdpRx::open(options, channel)?;
        Ok(self.lanes(rx, 1))
    }

    /// Over both; the first copy of each line wins.
    ///
    /// # Errors
    /// [`ConnectError`], whichever fails.
    pub fn shared_memory_and_udp(
        self,
        options: &UdpOptions,
        channel: ChannelId,
    ) -> Result<Subscriber<(ShmRx, UdpRx)>, ConnectError> {
        let rx = (self.shared_memory_rx()?, UdpRx::open(options, channel)?);
        Ok(self.lanes(rx, 2))
    }

    /// By RDMA: datagrams, writes into a ring of one's own, or both; the first copy of each line wins. The publisher's
    /// control channel says how, and how its books start; it must be there. A subscriber that loses it afterwards goes on
    /// trying.
    ///
    /// # Errors
    /// [`ConnectError::Rdma`]: the publisher cannot be asked or does not send the channel so, no such device or address, a
    /// port that is down, memory that may not be locked, and so on.
    #[cfg(feature = "rdma")]
    pub fn rdma(self, options: &crate::rdma::RdmaOptions) -> Result<Subscriber<crate::rdma::RdmaRx>, ConnectError> {
        let clock = self.clock.unwrap_or_else(Clock::calibrate);
        let (rx, channel, paths) = crate::rdma::open(options, &self.name, self.arbiter.hedge_ns, clock)?;
        let start = if channel.natural_start { Start::Natural } else { Start::Strict };
        let mut builder = self.clock(clock).start(start);
        if let Some(recovery) = &mut builder.recovery {
            let crate::rdma::RdmaOptions { device, address, rc, lines, .. } = options.clone();
            recovery.ring.get_or_insert(crate::ReplyRingOptions { device, address });
            if rc {
                recovery.ring_lines = Some(lines as u64);
            }
        }
        if paths > 1 {
            builder.arbiter.hedge_ns = builder.arbiter.hedge_ns.max(options.patience_ns);
            builder.arbiter.early_lines = builder.arbiter.early_lines.max(options.lines);
        }
        Ok(builder.lanes(rx, paths))
    }

    /// Over any lanes; `paths` says how many of them carry the channel.
    pub fn lanes<R: LaneRx>(self, rx: R, paths: usize) -> Subscriber<R> {
        let clock = self.clock.unwrap_or_else(Clock::calibrate);
        let mut arbiter = ArbiterConfig { paths, ..self.arbiter };
        let Some(options) = &self.recovery else { return Subscriber::new(rx, arbiter, self.engine, clock) };
        arbiter.recover_ns = options.patience_ns;
        arbiter.early_lines = arbiter.early_lines.max(options.early_lines);
        let recoverer = Recoverer::start(options, &self.name);
        let engine = Engine::new(self.engine).recovering(options.catch_up);
        Subscriber::recovering(rx, arbiter, engine, clock, recoverer)
    }

    fn shared_memory_rx(&self) -> Result<ShmRx, ConnectError> {
        let options = RxOptions { dir: self.directory.clone(), ..RxOptions::new(&self.name, self.lane) };
        Ok(ShmRx::waiting(RxOptions { hedge_ns: self.arbiter.hedge_ns, ..options })?)
    }
}
