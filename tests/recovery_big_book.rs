//! A book of more orders than a recovery server's replies hold otherwise: it comes whole, though a part of it is lost on the way.
//!
//! Ring, control channel and recovery server are this process's own; datagrams and faults are real.

#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use protocol::channel::ChannelConfig;
use protocol::control::ChannelInfo;
use protocol::line::Epoch;
use protocol::record::{ChannelId, Flags, InstrumentId, Kind, Lane, Record, Side};
use protocol::sequencer::Sequencer;
use publisher::admission::Admission;
use publisher::config::Config;
use subscriber::{BookState, Builder, RecoveryOptions};
use transport::RingWriter;
use transport::clock::Clock;
use transport::fault::FaultPlan;
use transport::ring::StartAt;

const TOKEN: &str = "a token for tests";
/// More than twice what a reply of several snapshots holds.
const ORDERS: u64 = 40_000;
/// It takes a tenth of a second, and as long again for each part that is lost with its repetition; the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

fn order(id: u64) -> Record {
    let mut record = Record::new(Kind::ADD, InstrumentId(1));
    record.flags = Flags::LAST;
    record.side = if id.is_multiple_of(2) { Side::BID } else { Side::ASK };
    record.order_id.set(id);
    // A hundred levels on each side.
    record.price.set(if id.is_multiple_of(2) { 10_000 - (id % 200) as i64 } else { 10_001 + (id % 200) as i64 });
    record.size.set(id);
    record
}

#[test]
fn a_book_of_forty_thousand_orders_is_had_by_a_late_joiner() {
    let (id, lane, epoch) = (ChannelId::new(5), Lane::new(0), Epoch(1));
    let mut ring = RingWriter::anonymous(id, lane, epoch, 1 << 16).expect("a ring without a name");
    let text = "[channel]\nname = 'big'\nid = 5\n[feed]\npath = 'none'\n\
                [control]\nlisten = '127.0.0.1:0'\ntokens = ['a token for tests']\n\
                [recovery]\nlisten = '127.0.0.1:0'\nhistory_lines = 1024\n";
    let config = Config::parse(text, std::path::Path::new("test.toml")).expect("legal");
    let section = config.recovery.expect("there is one");
    let (mut server, door) =
        publisher::recovery::open(&section, &ring, ChannelConfig::default(), ()).expect("a recovery server");
    let channel = ChannelInfo {
        name: "big".into(),
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

    let mut sequencer = Sequencer::new(epoch, 16);
    let mut put = |ring: &mut RingWriter, record: &Record| {
        let (_, line) = sequencer.seal(record, clock.now()).expect("an epoch has room");
        ring.put(&line);
    };
    let mut start = Record::new(Kind::SESSION_START, InstrumentId::CHANNEL);
    start.flags = Flags::LAST;
    put(&mut ring, &start);
    (1..=ORDERS).for_each(|id| put(&mut ring, &order(id)));
    ring.flush();
    while server.do_work(clock.now()) > 0 {}

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
    // One datagram in a hundred of the answer is lost.
    let faults = Some(FaultPlan { drop: 0.01, ..FaultPlan::seeded(11) });
    let options = RecoveryOptions { faults, ..RecoveryOptions::new(address, TOKEN) };
    let joiner = ring.reader(StartAt::Newest, 200_000);
    let mut subscriber = Builder::new("big").clock(clock).recover(options).lanes(joiner, 1);
    let began = Instant::now();
    let mut next = ORDERS + 1;
    while subscriber.context().book(InstrumentId(1)).is_err() {
        // The stream goes on, in the same book, slowly.
        if subscriber.poll(&mut ()) == 0 && began.elapsed() > Duration::from_micros(100 * (next - ORDERS)) {
            put(&mut ring, &order(next));
            ring.flush();
            next += 1;
        }
        assert!(began.elapsed() < PATIENCE, "{:?} {:?}", subscriber.recovery(), subscriber.engine().snapshot_counts());
    }
    let took = began.elapsed();
    while subscriber.poll(&mut ()) > 0 {}
    over.store(true, Ordering::Relaxed);
    beside.join().expect("the server does not panic");
    let recovery = subscriber.recovery().expect("recovers");
    println!("{ORDERS} orders after {took:?}: {:?}", recovery.counts);
    let context = subscriber.context();
    let book = context.book(InstrumentId(1)).expect("readable");
    assert_eq!((book.state(), book.resting_orders()), (BookState::Live, next - 1));
    for id in 1..next {
        let (found, wanted) = (book.order(id).expect("it rests"), order(id));
        assert_eq!((found.side, found.price, found.size), (wanted.side, wanted.price.get(), id));
        // The line of order `id` follows that of the session's start.
        assert_eq!(found.priority, id + 1);
    }
    assert!(recovery.counts.reply_requests > 0, "parts of it were lost and had again: {:?}", recovery.counts);
    assert_eq!(recovery.counts.too_long, 0);
}
