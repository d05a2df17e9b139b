//! A publisher that is started again elsewhere, a control connection that goes silent, a device that fails: subscribers and
//! publishers over real verbs find their way by themselves, and say so. Runs in the virtual machine.

#![forbid(unsafe_code)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bookcast_tests::programs::{Running, generated_day, unique};
use bookcast_tests::wire::{FarEnd, HERE, THERE};
use protocol::line::Epoch;
use protocol::record::{ChannelId, Lane};
use publisher::admission::Rings;
use subscriber::rdma::{RdmaNews, RdmaOptions, RdmaRx};
use subscriber::{Builder, Context, Gap, Handler, Subscriber, Update};
use transport::clock::Clock;
use transport::rdma::seam::Seam;
use transport::rdma::{AsyncEvent, EventKind};
use transport::{LaneTx, RingWriter};

const TOKEN: &str = "a token for tests";
/// Ten times what any step here should take, and more: the machine is emulated, and may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// A publisher of a generated day to `group`, and where its control channel is.
fn publish(folder: &Path, name: &str, group: &str, listen: &str, lead_ms: u64) -> (Running, SocketAddr) {
    let day = folder.join("day");
    std::fs::create_dir_all(&day).expect("a folder");
    let day = generated_day(&day, 60_000, 30_000_000_000);
    let config = folder.join("publisher.toml");
    let text = format!(
        "[channel]\nname = {name:?}\nid = 7\n[feed]\npath = {day:?}\ndate = 'none'\npace = {{ rate = 2000.0 }}\n\
         [control]\nlisten = {listen:?}\ntokens = [{TOKEN:?}]\n\
         [rdma]\naddress = '{HERE}'\ngroup = {group:?}\nsubscribers = 4\ndeadline_ms = 2000\n\
         [run]\nyield_when_idle = true\nlead_ms = {lead_ms}\nlinger_ms = 1000\nstate_dir = {:?}\n",
        folder.join("state")
    );
    std::fs::write(&config, text).expect("writes");
    let mut running = Running::start("publisher", &["run", config.to_str().expect("UTF-8"), "--json"], &[]);
    let mut stderr = BufReader::new(running.child.stderr.take().expect("piped")).lines();
    let mut said = String::new();
    let control = loop {
        let Some(Ok(line)) = stderr.next() else { panic!("it ended before it said where it listens: {said}") };
        if let Some(address) = line.trim().strip_prefix("control channel: subscribers ask at ") {
            break address.parse().expect("an address");
        }
        said.push_str(&line);
    };
    // It is never to wait for a reader.
    std::thread::spawn(move || stderr.map_while(Result::ok).for_each(drop));
    (running, control)
}

/// A subscriber on one lane, and what it heard.
struct Listening {
    subscriber: Subscriber<RdmaRx>,
    lane: &'static str,
    notes: Notes,
    news: Vec<RdmaNews>,
}

#[derive(Default)]
struct Notes {
    lines: u64,
    gaps: Vec<Gap>,
}

impl Handler for Notes {
    fn on_record(&mut self, _: &Context<'_>, _: &Update<'_>) {
        self.lines += 1;
    }
    fn on_gap(&mut self, _: &Context<'_>, gap: &Gap) {
        self.gaps.push(*gap);
    }
}

impl Listening {
    fn start(control: SocketAddr, name: &str, lane: &'static str) -> Listening {
        let options = RdmaOptions {
            ud: lane == "ud",
            rc: lane == "rc",
            ..RdmaOptions::new(control, TOKEN, THERE.parse().expect("an address"))
        };
        let subscriber = Builder::new(name).rdma(&options).expect("subscribes");
        Listening { subscriber, lane, notes: Notes::default(), news: Vec::new() }
    }
}

/// Polls all of them until each is where `is_done` says.
fn until(what: &str, all: &mut [Listening], is_done: impl Fn(&Listening) -> bool) -> Duration {
    let start = Instant::now();
    loop {
        let mut work = 0;
        for it in &mut *all {
            work += it.subscriber.poll(&mut it.notes);
            while let Some(news) = it.subscriber.rx().next_news() {
                println!("  {} {:?}: {news}", it.lane, start.elapsed());
                it.news.push(news);
            }
        }
        if all.iter().all(&is_done) {
            return start.elapsed();
        }
        for it in &*all {
            assert!(start.elapsed() < PATIENCE, "{what}: {} has {} lines, {:?}", it.lane, it.notes.lines, it.news);
        }
        if work == 0 {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

#[test]
fn a_publisher_that_is_started_again_with_another_group_is_found_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = unique("restart");
    let (first, control) = publish(folder.path(), &name, "239.255.9.1", "127.0.0.1:0", 3_000);
    let mut both = ["ud", "rc"].map(|lane| Listening::start(control, &name, lane));
    until("lines of the first", &mut both, |it| it.notes.lines > 500);
    first.signal("KILL");
    drop(first);
    let is_away = |it: &Listening| it.news.iter().any(|news| matches!(news, RdmaNews::Away { .. }));
    until("word of its end", &mut both, is_away);
    // What it had sent is taken to its end: nothing more comes from it.
    let ended = Instant::now();
    until("the last of its lines", &mut both, |_| ended.elapsed() > Duration::from_secs(1));
    let (second, _) = publish(folder.path(), &name, "239.255.9.2", &control.to_string(), 5_000);
    let held = both.each_ref().map(|it| (it.lane, it.notes.lines));
    let held = |it: &Listening| held.iter().find(|(lane, _)| *lane == it.lane).expect("one of them").1;
    let took = until("lines of the second", &mut both, |it| it.notes.lines > held(it) + 500);
    println!("both had 500 lines of the second {took:?} after it listened, 5 s before its first");
    for it in both {
        assert_eq!(it.subscriber.engine().digest_counts().disagreed, 0, "{}", it.lane);
    }
    second.signal("TERM");
    let output = second.finish(PATIENCE);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// Datagrams above a port's MTU are lost without a word: a port that is up again with too small a one is none that is back.
#[test]
fn a_port_that_comes_back_with_too_small_an_mtu_is_named_with_the_remedy() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = unique("mtu");
    let (publishing, control) = publish(folder.path(), &name, "239.255.9.4", "127.0.0.1:0", 3_000);
    let mut one = [Listening::start(control, &name, "ud")];
    until("the first lines", &mut one, |it| it.notes.lines > 500);
    let far_end = FarEnd::down();
    let said = |it: &Listening, what: &str| it.news.iter().any(|news| news.to_string().contains(what));
    until("word of it", &mut one, |it| said(it, "the port is down"));
    let mtu = |bytes: &str| {
        let done = Command::new("ip").args(["link", "set", "w1", "mtu", bytes]).status();
        assert!(done.is_ok_and(|status| status.success()), "ip link set w1 mtu {bytes}");
    };
    mtu("1500");
    far_end.up();
    until("the reason", &mut one, |it| said(it, "raise the MTU"));
    let (held, back) = (one[0].notes.lines, said(&one[0], "datagrams can come again"));
    mtu("4200");
    until("more lines", &mut one, |it| it.notes.lines > held + 500);
    assert!(!back && said(&one[0], "datagrams can come again"), "{:?}", one[0].news);
    publishing.signal("TERM");
    assert!(publishing.finish(PATIENCE).status.success());
}

/// Stands between subscribers and a control channel. Connections before number `silent` are held open and forwarded no more.
fn proxy(to: SocketAddr, silent: Arc<AtomicUsize>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for (number, near) in listener.incoming().map_while(Result::ok).enumerate() {
            let far = TcpStream::connect(to).expect("the control channel");
            for (mut from, mut into) in [
                (near.try_clone().expect("a handle"), far.try_clone().expect("a handle")),
                (far.try_clone().expect("a handle"), near.try_clone().expect("a handle")),
            ] {
                let silent = Arc::clone(&silent);
                std::thread::spawn(move || {
                    let mut buffer = [0; 4096];
                    while let Ok(count @ 1..) = from.read(&mut buffer) {
                        // What comes is taken and goes nowhere, as where the host behind the way is gone.
                        if number >= silent.load(Ordering::Relaxed) && into.write_all(&buffer[..count]).is_err() {
                            return;
                        }
                    }
                });
            }
            // Held open, whoever closes his side.
            std::mem::forget((near, far));
        }
    });
    address
}

#[test]
fn a_control_connection_that_goes_silent_is_noticed_and_no_line_is_lost_over_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = unique("silent");
    let (publishing, control) = publish(folder.path(), &name, "239.255.9.3", "127.0.0.1:0", 3_000);
    let silent = Arc::new(AtomicUsize::new(0));
    let through = proxy(control, Arc::clone(&silent));
    let mut one = [Listening::start(through, &name, "rc")];
    until("the first lines", &mut one, |it| it.notes.lines > 500);
    silent.store(1, Ordering::Relaxed);
    let connected = |it: &Listening| it.news.iter().filter(|news| matches!(news, RdmaNews::Connected { .. })).count();
    assert_eq!(connected(&one[0]), 1);
    // The lines go on meanwhile: writes need no control channel.
    let took = until("another connection", &mut one, |it| connected(it) == 2);
    println!("connected again {took:?} after the control connection went silent, of 5 s and what connecting takes");
    let is_named = |news: &RdmaNews| matches!(news, RdmaNews::Away { why } if why.contains("has not answered for 5 s"));
    assert!(one[0].news.iter().any(is_named), "{:?}", one[0].news);
    let more = one[0].notes.lines + 2_000;
    until("two thousand lines more", &mut one, |it| it.notes.lines > more);
    // The former ring was written to until the next one was.
    assert_eq!(one[0].notes.gaps, [], "{:?}", one[0].news);
    assert_eq!(connected(&one[0]), 2, "{:?}", one[0].news);
    assert_eq!(one[0].subscriber.engine().digest_counts().disagreed, 0);
    publishing.signal("TERM");
    let output = publishing.finish(PATIENCE);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// An operator reads of a device that failed, of why it cannot be opened again, once, and of its being back.
#[test]
fn a_publisher_says_why_it_cannot_write_and_when_it_can_again() {
    let seam = Seam::install("rxe0");
    let mut ring = RingWriter::anonymous(ChannelId::new(7), Lane::new(0), Epoch(1), 256).expect("a ring");
    let options = publisher::rdma::RdmaOptions {
        device: None,
        address: HERE.parse().expect("an address"),
        group: None,
        qkey: 1,
        hop_limit: 1,
        subscribers: 2,
        send_depth: 128,
        deadline_ns: 2_000_000_000,
        heartbeat_ns: 10_000_000,
    };
    let (mut lanes, _, mut door) = publisher::rdma::open(&options, &ring, 0).expect("lanes");
    let clock = Clock::calibrate();
    let mut said = Vec::new();
    let mut turn_until = |is_enough: &dyn Fn(&[String]) -> bool, said: &mut Vec<String>| {
        let start = Instant::now();
        while !is_enough(said) {
            assert!(start.elapsed() < PATIENCE, "it never said so: {said:?}");
            ring.flush();
            lanes.flush(&ring, clock.now());
            door.do_work(clock.now());
            said.extend(std::iter::from_fn(|| door.next_message()));
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    seam.refuse_registrations(Some(12));
    seam.inject(AsyncEvent { kind: EventKind::DeviceFatal, queue_pair: None, port: None });
    let has = |what: &'static str| move |said: &[String]| said.iter().any(|message| message.contains(what));
    turn_until(&has("RDMA writes are out, and nobody can be connected"), &mut said);
    assert!(said.iter().any(|message| message.contains("the device failed")), "{said:?}");
    assert!(said.iter().any(|message| message.contains("ulimit -l")), "{said:?}");
    // It is tried each second, and said once.
    let until = Instant::now() + Duration::from_millis(2_500);
    turn_until(&|_| Instant::now() >= until, &mut said);
    seam.refuse_registrations(None);
    turn_until(&has("subscribers can be connected"), &mut said);
    println!("{said:#?}");
    let complaints = said.iter().filter(|message| message.contains("RDMA writes are out")).count();
    assert_eq!(complaints, 1, "{said:?}");
}
