//! The control channel's part in connecting rings, over real TCP, with a stand-in for the card that notes what it is told.

#![forbid(unsafe_code)]

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bookcast_tests::programs::unique;
use protocol::control::{ChannelInfo, OneTimeToken, RcInfo, RdmaInfo, RingOffer};
use protocol::line::Epoch;
use protocol::record::{ChannelId, Lane};
use protocol::time::Nanos;
use publisher::admission::{Admission, Rings, Ticket};
use subscriber::{Control, ControlError, Notice};
use transport::RingWriter;
use transport::clock::Clock;
use transport::ring::StartAt;
use transport::shm::RingOptions;

const TOKEN: &str = "a token for tests";
/// Ten times what any step here should take, and more: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a card was told, and what it has to say.
#[derive(Default)]
struct Told {
    connects: Vec<RingOffer>,
    disconnects: Vec<Ticket>,
    to_drop: Vec<(Ticket, String)>,
    info: Option<RdmaInfo>,
    full: bool,
}

#[derive(Clone, Default)]
struct Card(Arc<Mutex<Told>>);

impl Card {
    fn told<T>(&self, look: impl FnOnce(&mut Told) -> T) -> T {
        look(&mut self.0.lock().expect("no test panics while it holds this"))
    }
}

impl Rings for Card {
    fn info(&self) -> Option<RdmaInfo> {
        self.told(|told| told.info)
    }
    fn connect(&mut self, offer: &RingOffer, _: Nanos) -> Result<(Ticket, OneTimeToken), String> {
        self.told(|told| {
            if told.full {
                return Err("there are 2 subscribers, as many as this publisher takes".into());
            }
            told.connects.push(*offer);
            let number = told.connects.len() as u64;
            Ok((Ticket(number), OneTimeToken([number as u8; 16])))
        })
    }
    fn disconnect(&mut self, ticket: Ticket) {
        self.told(|told| told.disconnects.push(ticket));
    }
    fn next_dropped(&mut self) -> Option<(Ticket, String)> {
        self.told(|told| told.to_drop.pop())
    }
    fn do_work(&mut self, _: Nanos) -> usize {
        0
    }
}

/// A server on a thread of its own, which ends with this value.
struct Server {
    address: SocketAddr,
    card: Card,
    over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    fn start() -> Server {
        let (card, over) = (Card::default(), Arc::new(AtomicBool::new(false)));
        let clock = Clock::calibrate();
        let options = RingOptions::new(&unique("rings"), ChannelId::new(7), Lane::new(0), Epoch(3), 64);
        let ring = RingWriter::create(&options).expect("a ring");
        let channel = ChannelInfo {
            name: "x".into(),
            id: 7,
            lane: 0,
            epoch: 3,
            heartbeat_ns: 10_000_000,
            natural_start: false,
            shared_memory: None,
            udp: None,
            rdma: None,
            recovery: None,
        };
        let reader = ring.reader(StartAt::Oldest, 0);
        let any = "127.0.0.1:0".parse().expect("an address");
        let mut admission = Admission::bind(any, vec![TOKEN.into()], channel, reader, card.clone()).expect("listens");
        let address = admission.local_address().expect("an address");
        let stop = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            let _ring = ring;
            while !stop.load(Ordering::Relaxed) {
                if admission.do_work(clock.now()) == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        Server { address, card, over, thread: Some(thread) }
    }

    fn connect(&self) -> Control {
        Control::connect(self.address, TOKEN, "a test").expect("welcome")
    }

    /// Waits until the card was told to end exactly these connections.
    fn disconnected(&self, tickets: &[u64]) {
        let tickets: Vec<Ticket> = tickets.iter().map(|&number| Ticket(number)).collect();
        let until = Instant::now() + PATIENCE;
        while self.card.told(|told| told.disconnects != tickets) {
            assert!(
                Instant::now() < until,
                "{:?} ended, not {tickets:?}",
                self.card.told(|told| told.disconnects.clone())
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the server does not panic");
        }
    }
}

fn offer(number: u8) -> RingOffer {
    let at = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, number), 4791);
    RingOffer { at, address: u64::MAX - u64::from(number), key: u32::MAX, lines: 1 << 16 }
}

fn notice(control: &mut Control) -> Notice {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(notice) = control.next_notice().expect("an open connection") {
            return notice;
        }
        assert!(Instant::now() < until, "nothing is said");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_ring_that_is_offered_is_connected_to_until_it_is_taken_back_or_its_session_ends() {
    let server = Server::start();
    let mut one = server.connect();
    assert_eq!(one.connect_ring(7, offer(1)).expect("granted"), OneTimeToken([1; 16]));
    // Addresses and keys arrive whole, whatever their size.
    assert_eq!(server.card.told(|told| told.connects.clone()), [offer(1)]);
    // Another ring of the same session takes the first one's place.
    assert_eq!(one.connect_ring(7, offer(2)).expect("granted"), OneTimeToken([2; 16]));
    server.disconnected(&[1]);
    let mut two = server.connect();
    two.connect_ring(7, offer(3)).expect("granted");
    one.disconnect_ring(7).expect("done");
    server.disconnected(&[1, 2]);
    // What is over already is not ended twice.
    drop(one);
    drop(two);
    server.disconnected(&[1, 2, 3]);
}

#[test]
fn refusals_say_why_and_leave_the_session_open() {
    let server = Server::start();
    let mut control = server.connect();
    server.card.told(|told| told.full = true);
    let refused = control.connect_ring(7, offer(1)).expect_err("refused").to_string();
    assert!(refused.contains("as many as this publisher takes"), "{refused}");
    let refused = control.connect_ring(8, offer(1)).expect_err("refused").to_string();
    assert!(refused.contains("channel 8 is not published here"), "{refused}");
    assert!(matches!(control.disconnect_ring(8), Err(ControlError::Refused { .. })));
    assert_eq!(control.directory().expect("still open").len(), 1);
}

#[test]
fn what_happens_to_a_connection_is_said_to_its_session_alone_and_what_concerns_all_to_all() {
    let server = Server::start();
    let (mut one, mut two) = (server.connect(), server.connect());
    one.connect_ring(7, offer(1)).expect("granted");
    two.connect_ring(7, offer(2)).expect("granted");
    server.card.told(|told| told.to_drop.push((Ticket(1), "a write ended with retries exceeded".into())));
    let dropped = Notice::Dropped { channel: 7, why: "a write ended with retries exceeded".into() };
    assert_eq!(notice(&mut one), dropped);
    let info =
        RdmaInfo { address: Ipv4Addr::new(10, 0, 0, 9), ud: None, rc: Some(RcInfo { lines: 64, max_subscribers: 2 }) };
    server.card.told(|told| told.info = Some(info));
    for control in [&mut one, &mut two] {
        let Notice::Changed { channels } = notice(control) else { panic!("the first thing that the second hears") };
        assert_eq!(channels[0].rdma, Some(info));
        assert_eq!(control.directory().expect("answers").as_slice(), channels);
    }
    // A notice between a question and its answer is kept, and the answer found.
    server.card.told(|told| told.to_drop.push((Ticket(2), "gone".into())));
    let until = Instant::now() + PATIENCE;
    while server.card.told(|told| !told.to_drop.is_empty()) {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(two.directory().expect("answers").len(), 1);
    assert_eq!(notice(&mut two), Notice::Dropped { channel: 7, why: "gone".into() });
    // A connection that was dropped is not ended again when its session is.
    drop((one, two));
    server.connect().connect_ring(7, offer(3)).expect("granted");
    server.disconnected(&[3]);
}
