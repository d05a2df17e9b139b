//! The control channel's part in connecting rings, over real TCP, with a stand-in for the card that notes what it is told.

#![forbid(unsafe_code)]

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bookcast_tests::programs::unique;
use protocol::channel::ChannelConfig;
use protocol::control::{
    ChannelInfo, ClientSession, OneTimeToken, RcInfo, RdmaInfo, Reply, Request, RingOffer, ServerSession,
};
use protocol::line::Epoch;
use protocol::record::{ChannelId, Lane};
use protocol::time::Nanos;
use publisher::admission::{Admission, Rings, Ticket};
use publisher::config::RecoverySection;
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
    /// Rings for answers, and whose.
    replies: Vec<(u16, RingOffer)>,
    disconnects: Vec<Ticket>,
    to_drop: Vec<(Ticket, String)>,
    info: Option<RdmaInfo>,
    full: bool,
    /// When each connection was asked for.
    connected_at: Vec<Nanos>,
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
    fn connect(&mut self, offer: &RingOffer, now: Nanos) -> Result<(Ticket, OneTimeToken), String> {
        self.told(|told| {
            if told.full {
                return Err("there are 2 subscribers, as many as this publisher takes".into());
            }
            told.connects.push(*offer);
            told.connected_at.push(now);
            let number = told.connects.len() as u64;
            Ok((Ticket(number), OneTimeToken([number as u8; 16])))
        })
    }
    fn connect_replies(
        &mut self,
        connection: u16,
        offer: &RingOffer,
        _: Nanos,
    ) -> Result<(Ticket, OneTimeToken), String> {
        self.told(|told| {
            if told.full {
                return Err("there are 2 reply rings, as many as this publisher takes".into());
            }
            told.replies.push((connection, *offer));
            let number = 100 + told.replies.len() as u64;
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
        let section = RecoverySection {
            listen: SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0),
            history_lines: 64,
            lines_per_second: 1_000_000,
            subscribers: 2,
            mtu: 1500,
            core: None,
            conflate: false,
        };
        let (_, door) = publisher::recovery::open(&section, &ring, ChannelConfig::default(), ()).expect("a server");
        let admission = Admission::bind(any, vec![TOKEN.into()], channel, reader, card.clone()).expect("listens");
        let mut admission = admission.with_recovery(door);
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
    RingOffer { at, address: u64::MAX - u64::from(number), key: u32::MAX, lines: 1 << 16, from: Some(u64::MAX) }
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

/// Whoever asks for rings without end is given one at a time, and the others their turn comes all the same.
#[test]
fn a_flood_of_offers_is_taken_one_in_twenty_milliseconds_and_the_last_one_stands() {
    const OFFERS: u8 = 25;
    let server = Server::start();
    let mut flood = ClientSession::new(TOKEN, "a flood");
    for number in 1..=OFFERS {
        flood.ask(&Request::Connect { channel: 7, ring: offer(number) });
    }
    let mut stream = TcpStream::connect(server.address).expect("connects");
    stream.write_all(flood.output()).expect("writes");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
    let (mut granted, mut buffer) = (0, [0; 4096]);
    while granted < OFFERS {
        match flood.poll_reply().expect("a reply") {
            Some(Reply::Granted { token }) => {
                granted += 1;
                assert_eq!(token, OneTimeToken([granted; 16]));
            }
            Some(other) => assert!(matches!(other, Reply::Welcome { .. }), "{other:?}"),
            None => {
                let count = stream.read(&mut buffer).expect("answers");
                assert!(count > 0, "closed after {granted} answers");
                flood.on_bytes(&buffer[..count]);
            }
        }
    }
    let (times, connects) = server.card.told(|told| (told.connected_at.clone(), told.connects.clone()));
    assert!(times.windows(2).all(|pair| pair[1].since(pair[0]) >= 20_000_000), "{times:?}");
    assert_eq!(connects, (1..=OFFERS).map(offer).collect::<Vec<_>>());
    let before_last: Vec<u64> = (1..u64::from(OFFERS)).collect();
    server.disconnected(&before_last);
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

#[test]
fn a_ring_for_answers_is_connected_to_for_its_connection_and_goes_with_it() {
    let server = Server::start();
    let mut one = server.connect();
    let (first, _, token) = one.recover_by_ring(7, offer(1)).expect("let in");
    assert_eq!(token, OneTimeToken([101; 16]));
    assert_eq!(server.card.told(|told| told.replies.clone()), [(first, offer(1))]);
    // Beside a ring for lines, which it does not end.
    one.connect_ring(7, offer(9)).expect("granted");
    // Another of the same session takes its place, and so do datagrams.
    let (second, ..) = one.recover_by_ring(7, offer(2)).expect("let in");
    assert_ne!(first, second);
    server.disconnected(&[101]);
    one.recover(7).expect("let in");
    server.disconnected(&[101, 102]);
    // What the card cannot connect to is refused, and its place in the server is free again: there are two.
    server.card.told(|told| told.full = true);
    for _ in 0..5 {
        let refused = one.recover_by_ring(7, offer(3)).expect_err("refused").to_string();
        assert!(refused.contains("2 reply rings"), "{refused}");
    }
    server.card.told(|told| told.full = false);
    // A ring that is written to no more is told, and its connection is over: both places can be had by others.
    one.recover_by_ring(7, offer(4)).expect("let in");
    server.card.told(|told| told.to_drop.push((Ticket(103), "a write ended with retries exceeded".into())));
    assert_eq!(notice(&mut one), dropped_notice("a write ended with retries exceeded"));
    let mut others = [server.connect(), server.connect()];
    for other in &mut others {
        other.recover_by_ring(7, offer(5)).expect("room");
    }
    assert!(
        server
            .connect()
            .recover_by_ring(7, offer(6))
            .expect_err("two places")
            .to_string()
            .contains("which is the most")
    );
    // With its session it goes: the ring for lines, and those for answers.
    drop(one);
    server.disconnected(&[101, 102, 1]);
    drop(others);
    let until = Instant::now() + PATIENCE;
    while server.card.told(|told| told.disconnects.len()) < 5 {
        assert!(Instant::now() < until, "{:?}", server.card.told(|told| told.disconnects.clone()));
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn dropped_notice(why: &str) -> Notice {
    Notice::Dropped { channel: 7, why: why.into() }
}

/// What answers in a publisher's place: Welcome, then whatever `answer` says to each request, until the other side goes.
fn stand_in(mut answer: impl FnMut(Request) -> Vec<Reply> + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("somebody");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
        let mut session = ServerSession::new(Nanos(0));
        let mut buffer = [0; 1024];
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            session.on_bytes(&buffer[..count], Nanos(0), 1, |token| token == TOKEN);
            while let Some(request) = session.poll_request(Nanos(0)) {
                answer(request).iter().for_each(|reply| session.reply(reply));
            }
            if stream.write_all(session.output()).is_err() {
                return;
            }
            session.sent(session.output().len());
        }
    });
    address
}

fn granted() -> Reply {
    Reply::Granted { token: OneTimeToken([9; 16]) }
}

fn dropped(why: &str) -> Reply {
    Reply::Dropped { channel: 7, why: why.into() }
}

#[test]
fn the_end_of_a_former_ring_said_before_the_next_is_granted_is_not_taken_for_that_of_the_next() {
    let address = stand_in(|_| vec![dropped("the former"), granted(), dropped("the next")]);
    let mut control = Control::connect(address, TOKEN, "a test").expect("welcome");
    control.connect_ring(7, offer(1)).expect("granted");
    assert_eq!(notice(&mut control), Notice::Dropped { channel: 7, why: "the next".into() });
}

#[test]
fn a_publisher_that_says_nothing_any_more_is_noticed_and_one_that_answers_is_left_alone() {
    const SECOND: u64 = 1_000_000_000;
    // Its third check is never answered; what else it is asked is, in order.
    let mut checks = 0;
    let address = stand_in(move |request| match request {
        Request::Directory => {
            checks += 1;
            if checks == 4 { Vec::new() } else { vec![Reply::Directory { channels: Vec::new() }] }
        }
        _ => vec![granted()],
    });
    let mut control = Control::connect(address, TOKEN, "a test").expect("welcome");
    control.check(Nanos(SECOND)).expect("asked");
    assert_eq!(notice(&mut control), Notice::Changed { channels: Vec::new() });
    control.check(Nanos(2 * SECOND - 1)).expect("not yet");
    assert_eq!(control.next_notice().expect("open"), None);
    // Answers to what is asked after a check are told from the check's own.
    control.check(Nanos(2 * SECOND)).expect("asked");
    assert!(control.directory().expect("an answer of its own").is_empty());
    assert_eq!(notice(&mut control), Notice::Changed { channels: Vec::new() });
    control.check(Nanos(3 * SECOND)).expect("asked");
    assert_eq!(control.connect_ring(7, offer(1)).expect("granted"), OneTimeToken([9; 16]));
    control.check(Nanos(8 * SECOND - 1)).expect("it has five seconds");
    let silent = control.check(Nanos(8 * SECOND)).expect_err("silent");
    assert!(matches!(silent, ControlError::Silent { waited_ns, .. } if waited_ns == 5 * SECOND), "{silent}");
    assert!(silent.to_string().contains("has not answered for 5 s"), "{silent}");
}

#[test]
fn an_answer_that_comes_byte_by_byte_has_no_more_time_than_another() {
    const LIMIT: Duration = Duration::from_millis(300);
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let address = listener.local_addr().expect("an address");
    let dribbling = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("somebody");
        stream.write_all(&(60_u32 << 10).to_le_bytes()).expect("a header");
        let until = Instant::now() + 20 * LIMIT;
        while Instant::now() < until && stream.write_all(b" ").is_ok() {
            std::thread::sleep(LIMIT / 10);
        }
    });
    let start = Instant::now();
    let error = Control::connect_within(LIMIT, address, TOKEN, "a test").expect_err("no answer");
    println!("given up after {:?}, of {LIMIT:?}: {error}", start.elapsed());
    assert!(
        matches!(&error, ControlError::Io { source, .. }
        if matches!(source.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock)),
        "{error:?}"
    );
    assert!(start.elapsed() < 10 * LIMIT);
    dribbling.join().expect("ends when nobody listens");
}
