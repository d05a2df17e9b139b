//! A and B: two real publishers of one channel, of which either may die, and a pair whose inputs differ.

#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bookcast_tests::programs::{Running, generated_day, output, printed, unique};
use protocol::book::{Books, BooksConfig, Start};
use protocol::channel::ChannelConfig;
use protocol::line::{Epoch, Line};
use protocol::record::{ChannelId, Lane};
use publisher::date::session_date;
use publisher::itch::{Market, Normaliser, NormaliserOptions};
use publisher::open::{FeedOptions, open_feed};
use publisher::pipeline::Pipeline;
use subscriber::{
    BookState, Builder, Context, Control, Gap, Handler, InstrumentId, RecoveryOptions, Split, StateChange, Subscriber,
    Update,
};
use transport::LaneRx;
use transport::udp::{Interface, UdpOptions};

const TOKEN: &str = "a token for tests";
/// Ten times what any step here should take, and more: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);
/// A day of a minute: tests are over before it is.
const MESSAGES: u64 = 60_000;
const RATE: f64 = 1_000.0;
/// Where B's feed may be another one.
const CHANGED: u64 = 10_000;

/// Each test runs three processes that want a core each, and who joins must keep up with the living lane: one at a time.
static TURN: Mutex<()> = Mutex::new(());

/// One of the two publishers.
struct Publisher {
    config: PathBuf,
    udp: UdpOptions,
    rings: PathBuf,
}

struct Pair {
    _turn: MutexGuard<'static, ()>,
    _folder: tempfile::TempDir,
    name: String,
    day: PathBuf,
    publishers: [Publisher; 2],
}

/// A pair that finds its partner in shared memory, or, each with a folder of rings of its own as on a host of its own, on
/// the network. `change` may make B's feed another one.
fn pair(what: &str, on_one_host: bool, change: Option<fn(&mut [u8])>) -> Pair {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a folder");
    let name = unique(what);
    let day = generated_day(folder.path(), MESSAGES, 60_000_000_000);
    let other = folder.path().join("changed.itch");
    let mut bytes = std::fs::read(&day).expect("reads");
    if let Some(change) = change {
        change(&mut bytes);
    }
    std::fs::write(&other, bytes).expect("writes");
    let [.., high, low] = std::process::id().to_be_bytes();
    let base = 32_000 + name.bytes().fold(0u16, |sum, byte| sum.wrapping_mul(31).wrapping_add(u16::from(byte))) % 8_000;
    let udp = |lane: u16| {
        let mut udp = UdpOptions::new([239, 254, high, low].into(), base + lane * 8_000, Interface::LOOPBACK);
        udp.ttl = 0;
        udp
    };
    let publishers = [0u16, 1].map(|lane| {
        let rings = folder.path().join(if on_one_host { "rings".to_owned() } else { format!("rings-{lane}") });
        std::fs::create_dir_all(&rings).expect("a folder");
        let config = folder.path().join(format!("{lane}.toml"));
        let (own, others) = (udp(lane), udp(1 - lane));
        let partner = format!(
            "[partner]\ngroup = '{}'\nport = {}\ninterface = '127.0.0.1'\nwait_ms = 400\n",
            others.group, others.port
        );
        let text = format!(
            "[channel]\nname = {name:?}\nid = 7\nlane = {lane}\n[feed]\npath = {:?}\ndate = 'none'\npace = {{ rate = {RATE:?} }}\n\
             [ring]\ndirectory = {rings:?}\n[udp]\ngroup = '{}'\nport = {}\ninterface = '127.0.0.1'\nttl = 0\n{}\
             [control]\nlisten = '127.0.0.1:0'\ntokens = [{TOKEN:?}]\n[recovery]\nlisten = '127.0.0.1:0'\nhistory_lines = 65536\n\
             [run]\nyield_when_idle = true\nlead_ms = 1000\nlinger_ms = 1000\nstate_dir = {:?}\n",
            if lane == 0 { &day } else { &other },
            own.group,
            own.port,
            if on_one_host { "" } else { &partner },
            folder.path().join(if on_one_host { "state".to_owned() } else { format!("state-{lane}") }),
        );
        std::fs::write(&config, text).expect("writes");
        Publisher { config, udp: own, rings }
    });
    Pair { _turn: turn, _folder: folder, name, day, publishers }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("test paths are UTF-8")
}

impl Pair {
    /// Starts one; it is published, or joined, when this returns.
    fn start(&self, lane: usize) -> Running {
        self.start_asked(lane).0
    }

    /// The same, and where its control channel is.
    fn start_asked(&self, lane: usize) -> (Running, SocketAddr) {
        let mut running = Running::start("publisher", &["run", text(&self.publishers[lane].config), "--json"], &[]);
        // Should it end without saying where, this tells why.
        let control = running.control_channel(move |line| eprintln!("lane {lane}: {line}"));
        (running, control)
    }

    fn builder(&self) -> Builder {
        Builder::new(&self.name).directory(&self.publishers[0].rings)
    }

    /// What the day's books are right before line `next`: D and L of each.
    fn truth(&self, next: u64) -> Vec<(u64, u64)> {
        let date = session_date(Some("none"), None, &self.day).expect("none is legal");
        let market = Market::from_venue("XNAS").expect("one");
        let venue = Normaliser::new(NormaliserOptions { market, full: false }, date);
        let source = open_feed(&self.day, &FeedOptions::default()).expect("opens");
        let mut pipeline = Pipeline::new(source, venue, Epoch(1), ChannelConfig::default());
        let mut books = Books::new(BooksConfig::default(), Start::Strict);
        let mut take = |line: &Line| {
            if line.stamp().sequence().0 < next {
                books.apply(line.stamp(), &line.record);
                while books.poll_event().is_some() {}
            }
        };
        while pipeline.channel().next().sequence().0 < next
            && pipeline.step(protocol::time::Nanos(1), &mut take).expect("a sound day")
        {}
        let views = (1..=books.highest().0).filter_map(|id| books.view(InstrumentId(id)));
        views.map(|view| view.digests()).collect()
    }
}

/// Checks order, and keeps what it was told.
#[derive(Default)]
struct Witness {
    next: u64,
    lines: u64,
    lost: u64,
    stale: u64,
    epochs: u64,
    splits: Vec<Split>,
}

impl Handler for Witness {
    fn on_record(&mut self, _: &Context<'_>, update: &Update<'_>) {
        let sequence = update.stamp.sequence().0;
        assert!(self.next == 0 || self.next == sequence, "in order, exactly once: {sequence} after {}", self.next);
        self.next = sequence + 1;
        self.lines += 1;
    }
    fn on_gap(&mut self, _: &Context<'_>, gap: &Gap) {
        self.next = gap.first.sequence().0 + gap.count;
        self.lost += gap.count;
    }
    fn on_state_change(&mut self, _: &Context<'_>, change: &StateChange) {
        self.stale += u64::from(change.to == BookState::Stale);
    }
    fn on_epoch(&mut self, _: &Context<'_>, _: Epoch, _: Epoch) {
        self.epochs += 1;
    }
    fn on_split(&mut self, _: &Context<'_>, split: &Split) {
        self.splits.push(*split);
    }
}

fn poll_until<R: LaneRx>(
    subscriber: &mut Subscriber<R>,
    witness: &mut Witness,
    what: &str,
    done: impl Fn(&Witness, &Subscriber<R>) -> bool,
) {
    let began = Instant::now();
    while !done(witness, subscriber) {
        if subscriber.poll(witness) == 0 {
            std::thread::yield_now();
            let paths: Vec<_> = subscriber.paths().collect();
            let (counts, next) = (subscriber.counts(), subscriber.next());
            assert!(began.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}; {next:?} {counts:?} {paths:?}");
        }
    }
}

/// Lines that a lane has brought, first or second.
fn brought<R>(subscriber: &Subscriber<R>, lane: u16) -> u64
where
    R: LaneRx,
{
    let of_lane = subscriber.paths().filter(|(path, _)| path.lane == Lane::new(lane));
    of_lane.map(|(_, counts)| counts.won + counts.duplicates).sum()
}

/// A dies while B lives, A comes back and joins, B dies: whoever reads both has every line, and no book is ever Stale.
fn either_may_die<R: LaneRx>(pair: &Pair, mut subscriber: Subscriber<R>) {
    let mut witness = Witness::default();
    let a = pair.start(0);
    poll_until(&mut subscriber, &mut witness, "A's lines", |w, _| w.lines > 500);
    let b = pair.start(1);
    poll_until(&mut subscriber, &mut witness, "B's lines", |_, s| brought(s, 1) > 500);
    a.signal("KILL");
    a.finish(PATIENCE);
    let (lines, of_a) = (witness.lines, brought(&subscriber, 0));
    poll_until(&mut subscriber, &mut witness, "B goes on", |w, _| w.lines > lines + 600);
    let again = pair.start(0);
    poll_until(&mut subscriber, &mut witness, "A's lines again", |_, s| brought(s, 0) > of_a + 500);
    b.signal("KILL");
    b.finish(PATIENCE);
    let lines = witness.lines;
    poll_until(&mut subscriber, &mut witness, "A goes on", |w, _| w.lines > lines + 600);
    drop(again);
    let books = pair.truth(witness.next);
    let paths: Vec<_> = subscriber.paths().collect();
    println!("{:?} {paths:?} {:?}", subscriber.counts(), subscriber.engine().digest_counts());
    assert_eq!((witness.lines, witness.lost), (witness.next - 1, 0));
    assert_eq!((witness.stale, witness.epochs, witness.splits.len()), (0, 0, 0), "{:?}", witness.splits);
    let digests = subscriber.engine().digest_counts();
    assert!(digests.compared > 20 && digests.disagreed == 0, "{digests:?}");
    let context = subscriber.context();
    let ours = (1..=books.len() as u32).map(|id| context.book(InstrumentId(id)).expect("readable").digests());
    assert!(ours.eq(books.iter().copied()));
}

#[test]
fn in_shared_memory_either_of_a_and_b_may_die_and_come_back() {
    let pair = pair("pair-shm", true, None);
    let subscriber = pair.builder().shared_memory_pair().expect("attaches");
    either_may_die(&pair, subscriber);
}

#[test]
fn over_udp_either_of_a_and_b_may_die_and_come_back() {
    let pair = pair("pair-udp", false, None);
    let [a, b] = &pair.publishers;
    let subscriber = pair.builder().udp_pair((&a.udp, &b.udp), ChannelId::new(7)).expect("receives");
    either_may_die(&pair, subscriber);
}

#[test]
fn who_asks_a_publisher_that_joined_gets_books_and_lines_of_before() {
    let pair = pair("pair-late", true, None);
    let a = pair.start(0);
    let mut first = pair.builder().shared_memory_pair().expect("attaches");
    let mut witness = Witness::default();
    poll_until(&mut first, &mut witness, "A's lines", |w, _| w.lines > 2_000);
    let (b, control) = pair.start_asked(1);
    poll_until(&mut first, &mut witness, "B's lines", |_, s| brought(s, 1) > 200);
    a.signal("KILL");
    a.finish(PATIENCE);
    // Its control channel knows instruments that were defined before it joined.
    let mut asked = Control::connect(control, TOKEN, "a test").expect("welcome");
    let channel = asked.directory().expect("a directory").remove(0);
    let (instruments, incomplete) = asked.instruments(7).expect("instruments");
    assert_eq!((channel.lane, instruments.len(), incomplete), (1, 20, false));
    for early_lines in [64, 1 << 16] {
        // Once it takes itself for a late joiner, once for one that missed the beginning.
        let options = RecoveryOptions {
            early_lines,
            // Until it is let in, on a busy machine.
            patience_ns: 30_000_000_000,
            ..RecoveryOptions::new(control, TOKEN)
        };
        let mut late = Builder::of(&channel).recover(options).shared_memory().expect("attaches");
        let mut told = Witness::default();
        let all = |s: &Subscriber<_>| (1..=20).all(|id| s.context().book(InstrumentId(id)).is_ok());
        poll_until(&mut late, &mut told, "books", |_, s| all(s));
        let counts = late.counts();
        println!("{counts:?} {:?}", late.recovery());
        assert_eq!((told.lost, late.engine().digest_counts().disagreed), (0, 0));
    }
    drop(b);
}

/// Some way into the day an order's size is another one.
fn another_size(bytes: &mut [u8]) {
    let (mut at, mut message) = (0, 0);
    while at + 2 < bytes.len() {
        let len = usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
        if message > CHANGED && bytes[at + 2] == b'A' {
            bytes[at + 2 + 23] ^= 1;
            return;
        }
        (at, message) = (at + 2 + len, message + 1);
    }
    panic!("no order is added in the rest of the day");
}

#[test]
fn a_pair_whose_inputs_differ_is_declared_split_and_the_differing_one_cannot_join() {
    let pair = pair("pair-split", true, Some(another_size));
    let a = pair.start(0);
    let mut subscriber = pair.builder().shared_memory_pair().expect("attaches");
    let mut witness = Witness::default();
    poll_until(&mut subscriber, &mut witness, "A's lines", |w, _| w.lines > 500);
    // Up to there both are the same.
    let watch = |json: &str| {
        let rings = text(&pair.publishers[0].rings);
        Running::start("subscriber", &["watch", &pair.name, "--pair", json], &[("BOOKCAST_SHM_DIR", rings)])
    };
    let watching = watch("--json");
    let b = pair.start(1);
    poll_until(&mut subscriber, &mut witness, "B's lines", |_, s| brought(s, 1) > 500);
    assert_eq!(witness.splits, []);
    poll_until(&mut subscriber, &mut witness, "a split", |w, _| !w.splits.is_empty());
    let split = witness.splits[0];
    assert_eq!((split.kept, split.withdrawn), (Lane::new(0), Lane::new(1)));
    b.signal("KILL");
    b.finish(PATIENCE);
    // Now it cannot join any more.
    let again = output("publisher", &["run", text(&pair.publishers[1].config)]);
    assert!(!again.status.success(), "{}", printed(&again));
    let said = printed(&again);
    assert!(said.contains("cannot join the channel: at ") && said.contains("differ"), "{said}");
    let lines = witness.lines;
    poll_until(&mut subscriber, &mut witness, "A goes on", |w, _| w.lines > lines + 600);
    watching.signal("TERM");
    drop(a);
    let books = pair.truth(witness.next);
    println!("{split:?}; {:?} {:?}", subscriber.counts(), subscriber.engine().digest_counts());
    assert_eq!((witness.lines, witness.lost, witness.splits.len()), (witness.next - 1, 0, 1));
    assert_eq!(subscriber.engine().digest_counts().disagreed, 0);
    // Whatever can be read is A's book. (Without a recovery server one that B's lines came into may stay Stale.)
    let context = subscriber.context();
    for (book, id) in books.iter().zip(1..) {
        if let Ok(view) = context.book(InstrumentId(id)) {
            assert_eq!(view.digests(), *book, "instrument {id}");
        }
    }
    let summary = watching.finish(PATIENCE);
    let said: serde_json::Value = serde_json::from_slice(&summary.stdout).expect("JSON");
    assert_eq!((said["totals"]["splits"].as_u64(), said["split"]["withdrawn"].as_u64()), (Some(1), Some(1)), "{said}");
}

#[test]
fn a_publisher_that_asks_for_another_epoch_than_the_living_lanes_is_refused() {
    let pair = pair("pair-epoch", true, None);
    let _a = pair.start(0);
    let refused = output("publisher", &["run", text(&pair.publishers[1].config), "--epoch", "9"]);
    let said = printed(&refused);
    assert!(!refused.status.success() && said.contains("lane 0 is alive in epoch 1"), "{said}");
}
