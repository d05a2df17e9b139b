//! A stage for recovery end to end: a real publisher with control channel and recovery server, and subscribers in this process
//! that check what they are told.

use std::collections::HashMap;
use std::io::{BufWriter, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use feeds_replay::generate::{GenerateOptions, generate};
use protocol::line::Epoch;
use protocol::record::ChannelId;
use protocol::run::LanePath;
use subscriber::{
    Behind, BookState, Builder, Context, Control, Gap, Handler, InstrumentId, StateChange, Subscriber, Update,
};
use transport::LaneRx;
use transport::fault::{FaultInjector, FaultPlan};
use transport::udp::{Interface, UdpOptions, UdpRx};

use crate::programs::{Running, output, unique};

/// What subscribers show.
pub const TOKEN: &str = "a token for tests";
/// Ten times what any step here should take, and more: the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A publisher's configuration, and the day that it is to publish.
pub struct Setting {
    /// Holds the capture and the publisher's state.
    pub folder: tempfile::TempDir,
    /// The channel.
    pub name: String,
    /// How it is sent by UDP.
    pub udp: UdpOptions,
    /// The publisher's configuration.
    pub config: PathBuf,
    /// Where subscribers ask: the same after a restart.
    pub control: SocketAddr,
}

/// What is published, and how.
#[derive(Clone, Copy)]
pub struct Plan {
    /// Instruments.
    pub symbols: u16,
    /// Messages of the day.
    pub messages: u64,
    /// Messages a second.
    pub rate: f64,
    /// Lines of the publisher's ring.
    pub ring_lines: usize,
    /// Lines that the recovery server keeps.
    pub history_lines: usize,
}

/// Three seconds of twenty instruments.
pub const SMALL: Plan =
    Plan { symbols: 20, messages: 12_000, rate: 4_000.0, ring_lines: 1 << 16, history_lines: 1 << 16 };

/// Makes the day and the configuration of a channel of its own.
///
/// # Panics
/// If files cannot be written.
pub fn setting(what: &str, plan: &Plan) -> Setting {
    let folder = tempfile::tempdir().expect("a folder");
    let day = folder.path().join("generated.itch");
    let mut file = BufWriter::new(std::fs::File::create(&day).expect("creates"));
    let options = GenerateOptions {
        seed: 11,
        symbols: plan.symbols,
        messages: plan.messages,
        span_ns: Some(1_000_000_000),
        longest_burst: 256,
        ..GenerateOptions::default()
    };
    generate(&options, &mut file).expect("generates");
    file.flush().expect("writes");
    // A group of this process's own: tests of several processes do not hear each other, and the port tells those of one
    // process apart.
    let [.., high, low] = std::process::id().to_be_bytes();
    let name = unique(what);
    let port = 22_000 + name.bytes().fold(0u16, |sum, byte| sum.wrapping_mul(31).wrapping_add(u16::from(byte))) % 8_000;
    let mut udp = UdpOptions::new([239, 255, high, low].into(), port, Interface::LOOPBACK);
    udp.ttl = 0;
    let config = folder.path().join("publisher.toml");
    // A port that was free just now.
    let control = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let text = format!(
        "[channel]\nname = {name:?}\nid = 7\n[feed]\npath = {day:?}\ndate = 'none'\npace = {{ rate = {:?} }}\n\
         [ring]\nlines = {}\n[udp]\ngroup = '{}'\nport = {}\ninterface = '127.0.0.1'\nttl = 0\n\
         [control]\nlisten = '{control}'\ntokens = [{TOKEN:?}]\n\
         [recovery]\nlisten = '127.0.0.1:0'\nconflate = true\nhistory_lines = {}\n\
         [run]\nyield_when_idle = true\nlead_ms = 1000\nlinger_ms = 3000\nstate_dir = {:?}\n",
        plan.rate,
        plan.ring_lines,
        udp.group,
        udp.port,
        plan.history_lines,
        folder.path().join("state")
    );
    std::fs::write(&config, text).expect("writes");
    Setting { folder, name, udp, config, control }
}

/// A path as an argument.
///
/// # Panics
/// If it is no UTF-8.
pub fn path(path: &Path) -> &str {
    path.to_str().expect("test paths are UTF-8")
}

impl Setting {
    /// Starts the publisher; gives the address of its control channel.
    ///
    /// # Panics
    /// If it does not come to say it.
    pub fn publish(&self) -> (Running, SocketAddr) {
        let mut running = Running::start("publisher", &["run", path(&self.config), "--json"], &[]);
        let address = running.control_channel(drop);
        assert_eq!(address, self.control);
        (running, address)
    }

    /// A subscriber of the channel as its publisher describes it.
    ///
    /// # Panics
    /// If the publisher cannot be asked.
    pub fn builder(&self, address: SocketAddr) -> Builder {
        let mut control = Control::connect(address, TOKEN, "a test").expect("welcome");
        let channels = control.directory().expect("a directory");
        Builder::of(&channels[0])
    }

    /// A receiver of the channel by UDP, with faults.
    ///
    /// # Panics
    /// If there is no such socket.
    pub fn lossy_udp(&self, plan: FaultPlan) -> FaultInjector<UdpRx> {
        FaultInjector::new(UdpRx::open(&self.udp, ChannelId::new(7)).expect("a receiver"), plan)
    }

    /// A counter of the running publisher.
    ///
    /// # Panics
    /// If there is none.
    pub fn counter(&self, what: &str) -> u64 {
        let output = output("publisher", &["counters", &self.name, "--json"]);
        let counters: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        counters[what].as_u64().unwrap_or_else(|| panic!("{what} in {counters}"))
    }
}

/// Checks order, and keeps what it was told.
#[derive(Default)]
pub struct Witness {
    /// The sequence number that comes next; 0 before any came.
    pub next: u64,
    /// Lines that came.
    pub lines: u64,
    /// Lines that were named as lost.
    pub lost: u64,
    /// The gaps.
    pub gaps: Vec<Gap>,
    /// Times that a path fell silent.
    pub silences: u64,
    /// Times that it was told that its ring is nearly full.
    pub behinds: Vec<Behind>,
    /// States of books, by instrument.
    pub states: HashMap<InstrumentId, BookState>,
}

impl Handler for Witness {
    fn on_record(&mut self, _: &Context<'_>, update: &Update<'_>) {
        let sequence = update.stamp.sequence().0;
        if self.next != 0 {
            assert_eq!(sequence, self.next, "in order, exactly once");
        }
        self.next = sequence + 1;
        self.lines += 1;
    }
    fn on_gap(&mut self, _: &Context<'_>, gap: &Gap) {
        if self.next != 0 {
            assert_eq!(gap.first.sequence().0, self.next, "a gap is named where it is");
        }
        self.next = gap.first.sequence().0 + gap.count;
        self.lost += gap.count;
        self.gaps.push(*gap);
    }
    fn on_state_change(&mut self, _: &Context<'_>, change: &StateChange) {
        self.states.insert(change.instrument, change.to);
    }
    fn on_epoch(&mut self, _: &Context<'_>, _: Epoch, _: Epoch) {
        self.next = 1;
    }
    fn on_behind(&mut self, _: &Context<'_>, behind: &Behind) {
        self.behinds.push(*behind);
    }
    fn on_path_silent(&mut self, _: &Context<'_>, _: LanePath, _: protocol::time::Nanos) {
        self.silences += 1;
    }
}

/// Polls until `done`. Returns how long that took.
///
/// # Panics
/// If it is not done within `within`.
pub fn poll_until<R: LaneRx>(
    subscriber: &mut Subscriber<R>,
    witness: &mut Witness,
    what: &str,
    within: Duration,
    done: impl Fn(&Witness, &Subscriber<R>) -> bool,
) -> Duration {
    let began = Instant::now();
    while !done(witness, subscriber) {
        if subscriber.poll(witness) == 0 {
            std::thread::yield_now();
            assert!(
                began.elapsed() < within,
                "{what}: not within {within:?}; {} lines, {} lost, {:?}, {:?}, {:?}",
                witness.lines,
                witness.lost,
                subscriber.counts(),
                subscriber.recovery(),
                subscriber.engine().snapshot_counts()
            );
        }
    }
    began.elapsed()
}

/// Whether recovery has a connection to the server.
pub fn is_let_in<R: LaneRx>(subscriber: &Subscriber<R>) -> bool {
    subscriber.recovery().is_some_and(|recovery| recovery.connection.is_some())
}

/// How many books are in no readable state.
pub fn unready<R: LaneRx>(subscriber: &Subscriber<R>, instruments: u32) -> usize {
    let context = subscriber.context();
    (1..=instruments).filter(|id| context.book(InstrumentId(*id)).is_err()).count()
}
