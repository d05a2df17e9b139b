//! Recovery over RDMA: what datagrams lose, books of late joiners, publishers and subscribers that are killed. Answers are
//! written into a ring of each subscriber's, by a card whose publisher exposes no memory. Runs in the virtual machine.
//!
//! `BOOKCAST_NIGHTLY=1` kills a subscriber 200 times and not 20.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bookcast_tests::day::{PATIENCE, Publishing, TOKEN, Watching, number};
use bookcast_tests::wire::{Held, Netem, THERE};
use protocol::recovery::RecoveryConfig;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use subscriber::rdma::{RdmaOptions, RdmaRx};
use subscriber::{
    BookState, Builder, ConnectError, Context, Gap, Handler, InstrumentId, RecoveryOptions, StateChange, Subscriber,
    Update,
};

/// Books of the generated day.
const BOOKS: u32 = 20;
/// What a late joiner should take to valid books, on a machine that is neither emulated nor busy.
const LATE_JOIN: Duration = Duration::from_millis(500);

/// Whether this machine's devices have connections alone.
fn is_iwarp() -> bool {
    std::env::var("BOOKCAST_RDMA").as_deref() == Ok("siw")
}

/// Checks order, and keeps what it was told.
#[derive(Default)]
struct Witness {
    next: u64,
    lines: u64,
    gaps: Vec<Gap>,
    states: HashMap<InstrumentId, BookState>,
}

impl Witness {
    fn lost(&self) -> u64 {
        self.gaps.iter().map(|gap| gap.count).sum()
    }
}

impl Handler for Witness {
    fn on_record(&mut self, _: &Context<'_>, update: &Update<'_>) {
        let sequence = update.stamp.sequence().0;
        assert!(self.next == 0 || sequence == self.next, "{sequence} came where {} was due", self.next);
        self.next = sequence + 1;
        self.lines += 1;
    }
    fn on_gap(&mut self, _: &Context<'_>, gap: &Gap) {
        assert!(self.next == 0 || gap.first.sequence().0 == self.next, "{gap:?} where {} was due", self.next);
        self.next = gap.first.sequence().0 + gap.count;
        self.gaps.push(*gap);
    }
    fn on_state_change(&mut self, _: &Context<'_>, change: &StateChange) {
        self.states.insert(change.instrument, change.to);
    }
    fn on_epoch(&mut self, _: &Context<'_>, _: protocol::line::Epoch, _: protocol::line::Epoch) {
        self.next = 1;
    }
}

/// A subscriber that recovers, on one lane or both.
fn subscribe(publishing: &Publishing, lanes: &str, early_lines: usize) -> Subscriber<RdmaRx> {
    try_subscribe(publishing.control, &publishing.name, lanes, early_lines).expect("subscribes")
}

fn try_subscribe(
    control: SocketAddr,
    name: &str,
    lanes: &str,
    early_lines: usize,
) -> Result<Subscriber<RdmaRx>, ConnectError> {
    let recovery = RecoveryOptions {
        // The guest's own scheduler may hold anything up for so long.
        patience_ns: 10_000_000_000,
        early_lines,
        requests: RecoveryConfig {
            reply_lines: 1 << 15,
            request_timeout_ns: 50_000_000,
            attempts: 12,
            ..Default::default()
        },
        ..RecoveryOptions::new(control, TOKEN)
    };
    let options = RdmaOptions {
        ud: lanes != "rc",
        rc: lanes != "ud",
        lines: 4096,
        ..RdmaOptions::new(control, TOKEN, THERE.parse().expect("an address"))
    };
    Builder::new(name).recover(recovery).rdma(&options)
}

fn poll_until(
    subscriber: &mut Subscriber<RdmaRx>,
    witness: &mut Witness,
    what: &str,
    within: Duration,
    done: impl Fn(&Witness, &Subscriber<RdmaRx>) -> bool,
) -> Duration {
    let began = Instant::now();
    while !done(witness, subscriber) {
        if subscriber.poll(witness) == 0 {
            std::thread::sleep(Duration::from_micros(100));
        }
        while let Some(news) = subscriber.rx().next_news() {
            println!("  {:?}: {news}", began.elapsed());
        }
        assert!(
            began.elapsed() < within,
            "{what}: not within {within:?}; {} lines, {:?}, {:?}, {:?}",
            witness.lines,
            witness.gaps,
            subscriber.counts(),
            subscriber.recovery()
        );
    }
    began.elapsed()
}

/// Whether the server can write answers into this subscriber's ring.
fn is_let_in(subscriber: &Subscriber<RdmaRx>) -> bool {
    subscriber.recovery().is_some_and(|recovery| recovery.has_ring)
}

/// How many books are in no readable state.
fn unready(subscriber: &Subscriber<RdmaRx>) -> usize {
    let context = subscriber.context();
    (1..=BOOKS).filter(|id| context.book(InstrumentId(*id)).is_err()).count()
}

/// Books agree with the publisher's, and answers came by the ring alone.
fn is_right(publishing: &Publishing, subscriber: &Subscriber<RdmaRx>) {
    let digests = subscriber.engine().digest_counts();
    assert!(digests.compared > 0 && digests.disagreed == 0, "{digests:?}");
    assert_eq!(unready(subscriber), 0);
    let (sent, written) =
        (publishing.counter("recovery lines sent"), publishing.counter("recovery lines written into rings"));
    assert!(sent == written && sent > Some(0), "of {sent:?} lines {written:?} were written");
    assert_eq!(publishing.counter("recovery lines unsent"), Some(0));
}

#[test]
fn what_datagrams_lose_is_written_into_the_ring_and_nothing_is_lost() {
    if is_iwarp() {
        println!("not on this fabric");
        return;
    }
    for loss in ["1%", "10%"] {
        let folder = tempfile::tempdir().expect("a folder");
        let publishing = Publishing::recovering(folder.path(), 6_000, 2_000, 2_000, "127.0.0.1:0");
        // Beside it, what a person would start; its requests have the patience that is for hardware.
        let watching = (loss == "1%").then(|| publishing.watch_with("ud", &["--recover"]));
        let mut subscriber = subscribe(&publishing, "ud", 1 << 16);
        let mut witness = Witness::default();
        poll_until(&mut subscriber, &mut witness, "is let in", PATIENCE, |_, s| is_let_in(s));
        let netem = Netem::new(&format!("loss {loss}"));
        poll_until(&mut subscriber, &mut witness, "the whole day", PATIENCE, |_, s| s.has_ended());
        drop(netem);
        let (counts, status) = (subscriber.counts(), subscriber.recovery().expect("recovers"));
        println!("{loss}: {counts:?}\n  {status:?}");
        is_right(&publishing, &subscriber);
        assert!(counts.recovered > 0 && status.counts.retransmitted > 0, "{counts:?} {status:?}");
        publishing.running.signal("TERM");
        let report = publishing.finish();
        assert_eq!((witness.lost(), witness.lines), (0, number(&report, "published")), "{:?}", witness.gaps);
        if let Some(summary) = watching.map(Watching::finish) {
            assert!(summary.total("lines_recovered") > 0 && summary.total("digests_agreed") > 0, "{}", summary.json);
            assert_eq!((summary.total("digests_disagreed"), &summary.json["books"]["stale"]), (0, &0.into()));
            assert_eq!(summary.json["next_sequence"], number(&report, "published") + 1, "{}", summary.json);
        }
    }
}

#[test]
fn whoever_joins_in_mid_day_has_valid_books_by_every_lane() {
    let folder = tempfile::tempdir().expect("a folder");
    let publishing = Publishing::recovering(folder.path(), 24_000, 2_000, 500, "127.0.0.1:0");
    publishing.wait_for_messages(6_000);
    let lanes: &[&str] = if is_iwarp() { &["rc"] } else { &["ud", "rc", "both"] };
    let mut all = Vec::new();
    for lanes in lanes {
        let mut witness = Witness::default();
        // With a larger early store it would take itself for one that missed the beginning, and ask for all of it.
        let mut late = subscribe(&publishing, lanes, 4096);
        let within = 10 * LATE_JOIN + PATIENCE / 4;
        let took = poll_until(&mut late, &mut witness, "valid books", within, |_, s| unready(s) == 0);
        println!(
            "{lanes}: {BOOKS} valid books {took:?} after the first poll; stated {LATE_JOIN:?}, deadline {within:?}"
        );
        assert!(witness.next > 5_000, "{lanes} came late: {}", witness.next);
        assert!(late.recovery().expect("recovers").counts.snapshots > 0, "{:?}", late.recovery());
        all.push((late, witness));
    }
    // Each is compared with the publisher's digests for a while.
    for (late, witness) in &mut all {
        let compared = late.engine().digest_counts().compared;
        poll_until(late, witness, "digests", PATIENCE, |_, s| s.engine().digest_counts().compared > compared + 5);
        is_right(&publishing, late);
    }
    publishing.running.signal("TERM");
    publishing.finish();
}

#[test]
fn a_publisher_that_is_killed_and_started_again_is_asked_anew() {
    let folder = tempfile::tempdir().expect("a folder");
    let listen: SocketAddr = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port");
    let lanes = if is_iwarp() { "rc" } else { "ud" };
    let first = Publishing::recovering(folder.path(), 20_000, 2_000, 1_500, &listen.to_string());
    let mut subscriber = subscribe(&first, lanes, 1 << 16);
    let mut witness = Witness::default();
    poll_until(&mut subscriber, &mut witness, "lines", PATIENCE, |w, s| w.lines > 1_000 && is_let_in(s));
    first.running.signal("KILL");
    drop(first);
    let second = Publishing::recovering(folder.path(), 6_000, 2_000, 3_000, &listen.to_string());
    let epoch = |s: &Subscriber<RdmaRx>| s.next().map(|next| next.epoch().0);
    let reconnected = |s: &Subscriber<RdmaRx>| s.recovery().is_some_and(|r| r.reconnects > 0 && r.trouble.is_empty());
    poll_until(&mut subscriber, &mut witness, "another ring", PATIENCE, |_, s| reconnected(s));
    // A tenth is lost where datagrams can be.
    let netem = (!is_iwarp()).then(|| Netem::new("loss 10%"));
    poll_until(&mut subscriber, &mut witness, "the new epoch", PATIENCE, |_, s| epoch(s) == Some(2));
    let lost = witness.lost();
    poll_until(&mut subscriber, &mut witness, "the whole day", PATIENCE, |_, s| s.has_ended());
    drop(netem);
    println!("{lost} lines were lost with the first publisher; {:?}", subscriber.recovery());
    if lanes == "ud" {
        is_right(&second, &subscriber);
    }
    assert_eq!((subscriber.engine().digest_counts().disagreed, unready(&subscriber)), (0, 0));
    second.running.signal("TERM");
    let published = number(&second.finish(), "published");
    assert_eq!((witness.lost(), witness.next), (lost, published + 1), "{:?}", witness.gaps);
}

/// Where a victim finds what it needs: the control channel, the channel's name, the lanes.
const VICTIM: &str = "BOOKCAST_TEST_VICTIM";

/// A subscriber with small books, which start fast: this very program, in another process.
fn victim(publishing: &Publishing, lanes: &str) -> Child {
    Command::new(std::env::current_exe().expect("this very program"))
        .args(["--exact", "subscribers_that_are_killed_at_any_moment_leave_nothing_behind"])
        .env(VICTIM, format!("{} {} {lanes}", publishing.control, publishing.name))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts")
}

/// Follows the channel until it is killed.
fn follow(what: &str) {
    let words: Vec<&str> = what.split(' ').collect();
    let [control, name, lanes] = words[..] else { panic!("{what}") };
    let control = control.parse().expect("an address");
    let began = Instant::now();
    // Refused while there are as many as the publisher takes: those that were killed are not all let go yet.
    let mut subscriber = loop {
        match try_subscribe(control, name, lanes, 4096) {
            Ok(subscriber) => break subscriber,
            Err(_) => assert!(began.elapsed() < PATIENCE),
        }
    };
    while began.elapsed() < PATIENCE {
        subscriber.poll(&mut ());
        std::thread::sleep(Duration::from_micros(100));
    }
}

#[test]
fn subscribers_that_are_killed_at_any_moment_leave_nothing_behind() {
    if let Ok(what) = std::env::var(VICTIM) {
        return follow(&what);
    }
    // Four at a time: what takes longest is to start them.
    let rounds = if std::env::var_os("BOOKCAST_NIGHTLY").is_some() { 50 } else { 5 };
    let folder = tempfile::tempdir().expect("a folder");
    let publishing = Publishing::recovering(folder.path(), 60_000 * rounds / 5, 1_000, 5_000, "127.0.0.1:0");
    let pid = publishing.running.child.id();
    let lanes = if is_iwarp() { "rc" } else { "both" };
    let neighbour = publishing.watch_with(lanes, &["--recover"]);
    neighbour.hears();
    let written_to = "is written to from";
    let mut connected = 1 + usize::from(lanes != "ud");
    publishing.wait_for(written_to, connected);
    let before = Held::by(pid);
    let seed = u64::from(pid);
    println!("seed {seed}; the publisher holds {before:?}");
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    for _ in 0..rounds {
        let began = Instant::now();
        let mut victims: Vec<Child> = (0..4).map(|_| victim(&publishing, lanes)).collect();
        for (at, victim) in victims.iter_mut().enumerate() {
            if at >= 2 {
                // Not before somebody has come so far, however busy the machine is.
                connected += 1;
                publishing.wait_for(written_to, connected);
            }
            // While it starts, asks, connects, catches up, or follows.
            std::thread::sleep(Duration::from_millis(random.random_range(0..400)));
            victim.kill().and_then(|()| victim.wait()).expect("killed");
        }
        connected = publishing.said().matches(written_to).count();
        println!("  four started and killed within {:?}", began.elapsed());
    }
    let times = 4 * rounds;
    // On iWARP the kernel keeps attempts that were never answered for ten seconds.
    let until = Instant::now() + PATIENCE;
    while Held::by(pid) != before {
        assert!(Instant::now() < until, "after {times} kills it holds {:?}, not {before:?}", Held::by(pid));
        std::thread::sleep(Duration::from_millis(20));
    }
    println!(
        "{connected} connections were made; lines written into reply rings: {:?}",
        publishing.counter("recovery lines written into rings")
    );
    publishing.running.signal("TERM");
    let report = publishing.finish();
    neighbour.finish().is_whole(number(&report, "published"), number(&report, "digests"));
}
