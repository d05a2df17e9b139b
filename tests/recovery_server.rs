//! The recovery server of a real publisher, asked line by line.

#![forbid(unsafe_code)]

use std::net::{SocketAddr, SocketAddrV4, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use bookcast_tests::programs::{Running, generated_day, output, unique};
use protocol::control::RequestKey;
use protocol::line::{Epoch, Line, SequenceNumber, Stamp};
use protocol::record::{ChannelId, InstrumentId, Kind, Lane, Record};
use protocol::recovery::{Answer, Ask, Connection, Refusal, ReplyBegin, Request};
use protocol::run::{LanePath, LossCause, Position, Run, RunSink};
use protocol::time::Nanos;
use subscriber::{Builder, Context, Control, ControlError, Handler, Update};
use transport::LaneRx;
use transport::reply::{ReplyLane, ReplyRx};

const TOKEN: &str = "a token for tests";
const CHANNEL: ChannelId = ChannelId::new(7);
const LANE: Lane = Lane::new(0);
/// Ten times what any step here should take, and more: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// A publisher with control channel and recovery server, and where subscribers ask.
fn publisher(folder: &Path, name: &str, recovery: &str) -> (Running, SocketAddr) {
    let day = generated_day(folder, 60_000, 1_000_000_000);
    let config = folder.join("publisher.toml");
    let text = format!(
        "[channel]\nname = {name:?}\nid = 7\n[feed]\npath = {day:?}\ndate = 'none'\npace = {{ rate = 4000.0 }}\n\
         [control]\nlisten = '127.0.0.1:0'\ntokens = [{TOKEN:?}]\n\
         [recovery]\nlisten = '127.0.0.1:0'\n{recovery}\n\
         [run]\nyield_when_idle = true\nlinger_ms = 100\nstate_dir = {:?}\n",
        folder.join("state")
    );
    std::fs::write(&config, text).expect("writes");
    let mut running = Running::start("publisher", &["run", config.to_str().expect("UTF-8")], &[]);
    let address = running.control_channel(drop);
    (running, address)
}

/// Every record of the stream, as a subscriber in shared memory gets it.
#[derive(Default)]
struct Stream(Vec<Record>);

impl Handler for Stream {
    fn on_record(&mut self, _: &Context<'_>, update: &Update<'_>) {
        assert_eq!(update.stamp.sequence().0, self.0.len() as u64 + 1);
        self.0.push(*update.record);
    }
}

/// The stream until it has `count` records.
fn stream(name: &str, count: usize) -> Vec<Record> {
    let mut subscriber = Builder::new(name).shared_memory().expect("attaches");
    let mut stream = Stream::default();
    let until = Instant::now() + PATIENCE;
    while stream.0.len() < count {
        subscriber.poll(&mut stream);
        assert!(Instant::now() < until, "{} records of {count} so far", stream.0.len());
    }
    stream.0
}

/// One who asks.
struct Asker {
    // The connection is good for as long as this lives.
    control: Control,
    lane: ReplyRx,
    connection: Connection,
    key: RequestKey,
    number: u64,
    /// Lines of replies, as they came.
    replies: Vec<(Stamp, Line)>,
}

struct Collect<'a>(&'a mut Vec<(Stamp, Line)>);

impl RunSink for Collect<'_> {
    fn on_run(&mut self, run: Run<'_>) {
        self.0.extend(run.lines.iter().enumerate().map(|(i, line)| (run.first.plus(i as u64), *line)));
    }
    fn on_position(&mut self, _: Position) {}
    fn on_loss(&mut self, _: LanePath, _: Stamp, _: u64, _: LossCause) {}
}

impl Asker {
    fn new(address: SocketAddr) -> Asker {
        let mut control = Control::connect(address, TOKEN, "a test").expect("welcome");
        let at = control.directory().expect("a directory")[0].recovery.expect("a recovery server").at;
        let (connection, key) = control.recover(CHANNEL.0.get()).expect("let in");
        let lane = ReplyRx::connect(at, (CHANNEL, LANE), 1 << 20).expect("a socket");
        Asker { control, lane, connection: Connection(connection), key, number: 0, replies: Vec::new() }
    }

    fn send(&mut self, ask: Ask) {
        let (connection, number, key) = (self.connection, self.number, self.key.0);
        assert!(self.lane.request(&Request { connection, number, key, ask }.to_line(), Nanos(1)));
    }

    fn poll(&mut self) {
        self.lane.poll(Nanos(1), 256, &mut Collect(&mut self.replies));
    }

    /// Asks until there is an answer, as the first request may come before the server has heard of the connection. Gives the
    /// answer and the lines that follow it.
    fn ask(&mut self, ask: Ask) -> (ReplyBegin, Vec<Record>) {
        self.number += 1;
        let until = Instant::now() + PATIENCE;
        loop {
            self.send(ask);
            for _ in 0..20 {
                self.poll();
                let begin = self.replies.iter().enumerate().find_map(|(i, (_, line))| {
                    ReplyBegin::from_record(&line.record).filter(|b| b.request == self.number).map(|b| (i, b))
                });
                if let Some((at, begin)) = begin
                    && self.replies.len() as u64 > at as u64 + begin.lines
                {
                    let lines = &self.replies[at..][..=begin.lines as usize];
                    for (i, (stamp, _)) in lines.iter().enumerate() {
                        assert_eq!(*stamp, lines[0].0.plus(i as u64), "lines follow each other");
                    }
                    let records = lines[1..].iter().map(|(_, line)| line.record).collect();
                    self.replies.drain(..=at + begin.lines as usize);
                    return (begin, records);
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            assert!(Instant::now() < until, "no answer to {ask:?}");
        }
    }
}

fn counter(name: &str, what: &str) -> u64 {
    let output = output("publisher", &["counters", name, "--json"]);
    let counters: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    counters[what].as_u64().unwrap_or_else(|| panic!("{what} in {counters}"))
}

/// Waits until a counter, which is written every 10 ms, is at least so much.
fn wait_for(name: &str, what: &str, at_least: u64) {
    let until = Instant::now() + PATIENCE;
    while counter(name, what) < at_least {
        assert!(Instant::now() < until, "{what} is {} and not {at_least}", counter(name, what));
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn stamp(sequence: u64) -> Stamp {
    Stamp::new(Epoch(1), SequenceNumber(sequence))
}

#[test]
fn lines_are_had_again_as_they_were_and_what_is_not_held_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = unique("again");
    let (_running, address) = publisher(folder.path(), &name, "history_lines = 1024");
    let mut asker = Asker::new(address);
    let records = stream(&name, 500);
    let (begin, lines) = asker.ask(Ask::Lines { first: stamp(101), count: 300 });
    assert_eq!((begin.answer, begin.lines), (Answer::Lines { first: stamp(101) }, 300));
    assert_eq!(lines, records[100..400]);
    assert!(begin.head > stamp(400));

    // More than there are yet: those that there are.
    let (begin, lines) = asker.ask(Ask::Lines { first: stamp(401), count: 1 << 40 });
    assert!(lines.len() as u64 == begin.lines && lines.len() >= 100);
    assert_eq!(lines[..100], records[400..500]);

    let (begin, _) = asker.ask(Ask::Lines { first: stamp(1 << 40), count: 1 });
    assert!(matches!(begin.answer, Answer::Refused { why: Refusal::Behind, .. }), "{begin:?}");
    let other = Stamp::new(Epoch(9), SequenceNumber(1));
    let (begin, _) = asker.ask(Ask::Lines { first: other, count: 1 });
    assert!(matches!(begin.answer, Answer::Refused { .. }), "{begin:?}");
    stream(&name, 2000);
    let (begin, _) = asker.ask(Ask::Lines { first: stamp(2), count: 1 });
    assert!(matches!(begin.answer, Answer::Refused { why: Refusal::NotHeld, .. }), "{begin:?}");
}

#[test]
fn snapshots_of_all_instruments_come_and_are_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = unique("snapshots");
    let (_running, address) = publisher(folder.path(), &name, "");
    let mut asker = Asker::new(address);
    stream(&name, 2000);
    let (mut from, mut instruments) = (InstrumentId(1), Vec::new());
    loop {
        let ask = Ask::Snapshots { first: from, last: InstrumentId(u32::MAX), not_before: stamp(1), max_lines: 4000 };
        let (begin, lines) = asker.ask(ask);
        let Answer::Snapshots { first, next } = begin.answer else { panic!("{begin:?}") };
        assert_eq!(first, from);
        instruments.extend(lines.iter().filter(|r| r.kind == Kind::SNAPSHOT_BEGIN).map(|r| r.instrument.get()));
        assert_eq!(lines.first().map(|record| record.kind), Some(Kind::SNAPSHOT_BEGIN));
        assert_eq!(lines.last().map(|record| record.kind), Some(Kind::SNAPSHOT_END));
        match next {
            Some(next) => from = next,
            None => break,
        }
    }
    assert_eq!(instruments, (1..=20).collect::<Vec<u32>>());
}

#[test]
fn strangers_get_nothing_and_are_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = unique("strangers");
    let (_running, address) = publisher(folder.path(), &name, "subscribers = 1");
    let mut asker = Asker::new(address);
    stream(&name, 100);
    let ask = Ask::Lines { first: stamp(1), count: 50 };
    asker.ask(ask);

    // There is one place.
    let mut second = Control::connect(address, TOKEN, "another").expect("welcome");
    match second.recover(CHANNEL.0.get()) {
        Err(ControlError::Refused { why, .. }) => assert!(why.contains("1 subscribers"), "{why}"),
        other => panic!("{other:?}"),
    }

    let SocketAddr::V4(at) =
        asker.control.directory().map(|channels| channels[0].recovery.expect("one").at.into()).expect("a directory")
    else {
        panic!("IPv4")
    };
    let mut stranger = ReplyRx::connect(at, (CHANNEL, LANE), 1 << 20).expect("a socket");
    let (connection, key) = (asker.connection, asker.key.0);
    let forged = [
        // The key is wrong; there is no such connection; the right key, read along, from another place.
        Request { connection, number: 90, key: key ^ 1, ask },
        Request { connection: Connection(connection.0 + 1), number: 90, key, ask },
        Request { connection, number: 90, key, ask },
    ];
    let before = counter(&name, "recovery requests");
    for request in &forged {
        stranger.request(&request.to_line(), Nanos(1));
    }
    wait_for(&name, "recovery requests of strangers", 3);
    // Of another protocol, of another channel, or garbage that fills a datagram.
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.send_to(b"GET / HTTP/1.1\r\n\r\n", SocketAddrV4::new(*at.ip(), at.port())).expect("sends");
    socket.send_to(&[0xAB; 1400], at).expect("sends");
    socket.send_to(&[], at).expect("sends");
    let mut elsewhere = ReplyRx::connect(at, (ChannelId::new(8), LANE), 1 << 20).expect("a socket");
    elsewhere.request(&forged[2].to_line(), Nanos(1));
    wait_for(&name, "recovery requests malformed", 4);
    assert_eq!(counter(&name, "recovery requests"), before, "nothing was taken");
    let mut heard = Vec::new();
    stranger.poll(Nanos(1), 256, &mut Collect(&mut heard));
    assert!(heard.is_empty(), "{heard:?}");
    // The one that is known is served as before; and when its session ends, its place is another's.
    asker.ask(ask);
    drop(asker);
    let until = Instant::now() + PATIENCE;
    while second.recover(CHANNEL.0.get()).is_err() {
        assert!(Instant::now() < until, "the place is free again");
        std::thread::sleep(Duration::from_millis(20));
    }
}
