//! A subscriber that recovers allocates nothing once it is let in: neither while nothing is missing, nor while lines are
//! lost, asked for, and had again.
//!
//! Ring, control channel and recovery server are this process's own; datagrams and faults are real.

#![deny(unsafe_code)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use protocol::channel::ChannelConfig;
use protocol::control::ChannelInfo;
use protocol::line::Epoch;
use protocol::record::{ChannelId, InstrumentId, Kind, Lane, Record};
use protocol::sequencer::Sequencer;
use publisher::admission::Admission;
use publisher::config::Config;
use subscriber::{Builder, Context, Gap, Handler, RecoveryOptions, Update};
use transport::clock::Clock;
use transport::fault::{FaultInjector, FaultPlan};
use transport::link::{LinkOptions, link};
use transport::ring::StartAt;
use transport::{LaneTx, RingWriter};

/// The system's allocator, counting what threads that ask for it do.
#[allow(unsafe_code)] // A global allocator cannot be had without; it is the measuring device of this test.
mod counting {
    use std::alloc::{GlobalAlloc, Layout, System};
    use std::cell::Cell;

    thread_local! {
        /// Allocations on this thread. Constant and without a destructor, so that using it allocates nothing.
        static CALLS: Cell<u64> = const { Cell::new(0) };
    }

    pub(crate) struct Counting;

    // SAFETY: every call is handed on to `System` as it came, which keeps `GlobalAlloc`'s promises; counting touches a
    // thread-local integer and nothing else.
    unsafe impl GlobalAlloc for Counting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            // A thread that is ending has no counter any more, and is not one that is measured.
            let _ = CALLS.try_with(|calls| calls.set(calls.get() + 1));
            // SAFETY: the caller's promises are those `System` asks for.
            unsafe { System.alloc(layout) }
        }
        unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
            // SAFETY: as above; the memory came from `System`, because everything does.
            unsafe { System.dealloc(memory, layout) }
        }
    }

    #[global_allocator]
    static ALLOCATOR: Counting = Counting;

    /// Allocations of this thread so far.
    pub(crate) fn calls() -> u64 {
        CALLS.with(Cell::get)
    }
}

const TOKEN: &str = "a token for tests";
/// Recovery on loopback takes well under a millisecond; the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Default)]
struct Witness {
    next: u64,
    lost: u64,
}

impl Handler for Witness {
    fn on_record(&mut self, _: &Context<'_>, update: &Update<'_>) {
        assert_eq!(update.stamp.sequence().0, self.next + 1, "in order, exactly once");
        self.next += 1;
    }
    fn on_gap(&mut self, _: &Context<'_>, gap: &Gap) {
        self.lost += gap.count;
        self.next += gap.count;
    }
}

#[test]
fn lines_are_lost_asked_for_and_had_again_without_an_allocation() {
    let (id, lane, epoch) = (ChannelId::new(5), Lane::new(0), Epoch(1));
    let mut ring = RingWriter::anonymous(id, lane, epoch, 1 << 12).expect("a ring without a name");
    let text = "[channel]\nname = 'alloc'\nid = 5\n[feed]\npath = 'none'\n\
                [control]\nlisten = '127.0.0.1:0'\ntokens = ['a token for tests']\n\
                [recovery]\nlisten = '127.0.0.1:0'\nhistory_lines = 65536\n";
    let config = Config::parse(text, std::path::Path::new("test.toml")).expect("legal");
    let section = config.recovery.expect("there is one");
    let (mut server, door) =
        publisher::recovery::open(&section, &ring, ChannelConfig::default(), ()).expect("a recovery server");
    let channel = ChannelInfo {
        name: "alloc".into(),
        id: 5,
        lane: 0,
        epoch: 1,
        heartbeat_ns: 10_000_000,
        natural_start: false,
        shared_memory: None,
        udp: None,
        rdma: None,
        recovery: None,
    };
    let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    let reader = ring.reader(StartAt::Oldest, 200_000);
    let mut admission = Admission::bind(any, vec![TOKEN.to_owned()], channel, reader, ())
        .expect("a control channel")
        .with_recovery(door);
    let address = admission.local_address().expect("an address");
    let clock = Clock::calibrate();
    let over = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&over);
    let beside = std::thread::spawn(move || {
        // Relaxed: the flag carries nothing but itself.
        while !stop.load(Ordering::Relaxed) {
            let now = clock.now();
            if server.do_work(now) + admission.do_work(now) == 0 {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
    });

    let (mut tx, rx) = link(&ring, LinkOptions::default());
    let plan = FaultPlan { drop: 0.1, lines_per_packet: 3, ..FaultPlan::seeded(3) };
    let mut subscriber = Builder::new("alloc")
        .clock(clock)
        .recover(RecoveryOptions::new(address, TOKEN))
        .lanes(FaultInjector::new(rx, plan), 1);
    let mut witness = Witness::default();
    let until = Instant::now() + PATIENCE;
    while subscriber.recovery().is_none_or(|recovery| recovery.connection.is_none()) {
        subscriber.poll(&mut witness);
        assert!(Instant::now() < until, "let in: {:?}", subscriber.recovery());
    }

    let mut sequencer = Sequencer::new(epoch, 16);
    let mut record = Record::new(Kind::TRADE, InstrumentId(1));
    record.flags = protocol::record::Flags::LAST;
    let (mut before, mut recovered) = (0, 0);
    for turn in 0..600 {
        // The first turns touch what is touched for the first time.
        if turn == 100 {
            (before, recovered) = (counting::calls(), subscriber.counts().recovered);
        }
        for _ in 0..12 {
            let (_, line) = sequencer.seal(&record, clock.now()).expect("an epoch has room");
            ring.put(&line);
        }
        ring.flush();
        tx.heartbeat(&ring, clock.now(), false);
        let sent = ring.head().sequence().0 - 1;
        let until = Instant::now() + PATIENCE;
        while witness.next < sent {
            if subscriber.poll(&mut witness) == 0 {
                // The loss of a last packet shows with the next heartbeat.
                tx.heartbeat(&ring, clock.now(), false);
                std::thread::yield_now();
            }
            assert!(Instant::now() < until, "{} of {sent}; {:?}", witness.next, subscriber.recovery());
        }
    }
    let calls = counting::calls() - before;
    let recovered = subscriber.counts().recovered - recovered;
    over.store(true, Ordering::Relaxed);
    beside.join().expect("the server does not panic");
    assert!(before > 0, "the allocator counts");
    assert_eq!((calls, witness.lost), (0, 0), "{:?}", subscriber.recovery());
    assert!(recovered > 100, "{recovered} lines recovered: {:?}", subscriber.counts());
}
