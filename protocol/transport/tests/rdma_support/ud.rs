//! A UD lane from one end of the wire to the other with both keepers, an arbiter behind it, and an account of what came.

use std::net::Ipv4Addr;
use std::process::Command;
use std::time::{Duration, Instant};

use protocol::arbiter::{Arbiter, ArbiterConfig, Delivery, Gap};
use protocol::line::{Epoch, Line, Stamp};
use protocol::pair::Split;
use protocol::record::Lane;
use protocol::run::LanePath;
use protocol::time::Nanos;
use transport::rdma::{UdEvent, UdOptions, UdRx, UdRxKeeper, UdTx, UdTxKeeper};
use transport::ring::RingWriter;
use transport::{LaneRx, LaneTx};

use super::{CHANNEL, HERE, THERE, fresh_group, line_of, now, put, ring, stamp, ud_options};

/// What an arbiter with one lane behind it made of the stream. Every sequence number is delivered or named, in order.
#[derive(Default)]
pub(crate) struct Account {
    pub(crate) next: u64,
    pub(crate) delivered: u64,
    pub(crate) gaps: Vec<(u64, u64)>,
    pub(crate) ended: bool,
}

impl Account {
    pub(crate) fn lost(&self) -> u64 {
        self.gaps.iter().map(|(_, count)| count).sum()
    }
}

impl Delivery for Account {
    fn on_lines(&mut self, first: Stamp, lines: &[Line], _: LanePath, _: Option<Nanos>) {
        assert_eq!(first, stamp(self.next), "out of order");
        for (i, line) in lines.iter().enumerate() {
            let at = first.plus(i as u64);
            assert_eq!(*line, line_of(at), "content of {at}");
        }
        self.next += lines.len() as u64;
        self.delivered += lines.len() as u64;
    }

    fn on_gap(&mut self, gap: Gap) {
        assert_eq!(gap.first, stamp(self.next), "out of order");
        self.gaps.push((self.next, gap.count));
        self.next += gap.count;
    }

    fn on_joined(&mut self, at: Stamp) {
        assert_eq!(at, stamp(1));
        self.next = 1;
    }

    fn on_epoch(&mut self, from: Epoch, to: Epoch) {
        panic!("epoch {from:?} to {to:?}");
    }

    fn on_publish_time(&mut self, _: Lane, _: Nanos) {}
    fn on_path_silent(&mut self, _: LanePath, _: Nanos) {}
    fn on_split(&mut self, _: Split) {}
    fn on_end(&mut self, at: Stamp) {
        assert_eq!(at, stamp(self.next));
        self.ended = true;
    }
}

/// Both halves of both ends, driven by one thread in turns.
pub(crate) struct Pair {
    pub(crate) ring: RingWriter,
    pub(crate) tx: UdTx,
    pub(crate) tx_keeper: UdTxKeeper,
    pub(crate) rx: UdRx,
    pub(crate) rx_keeper: UdRxKeeper,
    pub(crate) account: Account,
    pub(crate) tx_events: Vec<UdEvent>,
    pub(crate) rx_events: Vec<UdEvent>,
    arbiter: Arbiter,
    turned_at: Instant,
}

impl Pair {
    pub(crate) fn new() -> Pair {
        Pair::with(|options| options)
    }

    /// With the options of both ends as `change` makes them.
    pub(crate) fn with(change: impl Fn(UdOptions) -> UdOptions) -> Pair {
        let group = fresh_group();
        let ring = ring(1 << 14);
        let options = |address: Ipv4Addr| change(UdOptions { receive_depth: 512, ..ud_options(address, group) });
        let (rx, mut rx_keeper) = UdRx::open(&options(THERE), CHANNEL).expect("a receiver there");
        let (tx, tx_keeper) = UdTx::open(&options(HERE), &ring).expect("a sender here");
        rx_keeper.expect(vec![tx_keeper.source()]);
        let config = ArbiterConfig { hedge_ns: 2_000_000, early_lines: 1 << 14, ..ArbiterConfig::default() };
        Pair {
            ring,
            tx,
            tx_keeper,
            rx,
            rx_keeper,
            account: Account::default(),
            tx_events: Vec::new(),
            rx_events: Vec::new(),
            arbiter: Arbiter::new(config),
            turned_at: Instant::now(),
        }
    }

    /// One turn of all four. The receiver is told who the sender is, as the control channel would tell it.
    pub(crate) fn turn(&mut self, lines: usize) {
        let now = now();
        put(&mut self.ring, lines);
        self.tx.flush(&self.ring, now);
        self.rx.poll(now, 1 << 12, &mut self.arbiter.sink(now, &mut self.account));
        if self.arbiter.next_timeout().is_some_and(|at| at <= now) {
            self.arbiter.on_timeout(now, &mut self.account);
        }
        self.tx_keeper.do_work(now);
        self.rx_keeper.do_work(now);
        while let Some(event) = self.tx_keeper.next_event() {
            if let UdEvent::Mended { source } = event {
                self.rx_keeper.expect(vec![source]);
            }
            self.tx_events.push(event);
        }
        self.rx_events.extend(std::iter::from_fn(|| self.rx_keeper.next_event()));
    }

    /// Turns until `done`, a line each millisecond or so; fails after `limit`.
    #[track_caller]
    pub(crate) fn turn_until(&mut self, limit: Duration, what: &str, mut done: impl FnMut(&Pair) -> bool) -> Duration {
        let start = Instant::now();
        while !done(self) {
            assert!(
                start.elapsed() < limit,
                "no {what} within {limit:?}: {:?}, {:?}; sender {:?} {:?}; receiver {:?} {:?}",
                self.tx_events,
                self.rx_events,
                self.tx.counters(),
                self.tx_keeper.counters(),
                self.rx.counters(),
                self.rx_keeper.counters(),
            );
            let lines = usize::from(self.turned_at.elapsed() >= Duration::from_millis(1));
            if lines > 0 {
                self.turned_at = Instant::now();
            }
            self.turn(lines);
            std::thread::yield_now();
        }
        start.elapsed()
    }

    /// Turns until a line comes that is published after now.
    #[track_caller]
    pub(crate) fn flows(&mut self, limit: Duration) -> Duration {
        let head = self.ring.head().sequence().0;
        let mut before = None;
        self.turn_until(limit, "line", |pair| {
            let delivered = pair.account.delivered;
            pair.account.next > head + 1 && delivered > *before.get_or_insert(delivered)
        })
    }

    /// Every line that was published before is delivered or named.
    pub(crate) fn settle(&mut self, limit: Duration) {
        let head = self.ring.head().sequence().0;
        self.turn_until(limit, "end", |pair| pair.account.next > head);
        assert_eq!(self.account.delivered + self.account.lost() + 1, self.account.next);
        assert_eq!(self.rx.counters().refused_total(), 0);
    }
}

/// What the system holds of RDMA, and how many descriptors this process has: the same before and after, or something leaks.
pub(crate) fn resources() -> (String, usize) {
    let output = Command::new("rdma").arg("resource").output().expect("rdma is there");
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("the own descriptors").count();
    (String::from_utf8_lossy(&output.stdout).into_owned(), descriptors)
}
