//! The control channel end to end: a real publisher, real TCP, and peers that mean no good.

#![forbid(unsafe_code)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use bookcast_tests::programs::{Running, generated_day, output, printed, unique};
use protocol::control::PREFACE;
use subscriber::{Builder, Control, ControlError};

const TOKEN: &str = "a token for tests";
/// Ten times what any step here should take, and more: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// A publisher with a control channel on a port of its own, and that port.
fn publisher(folder: &Path, name: &str) -> (Running, SocketAddr) {
    let day = generated_day(folder, 60_000, 1_000_000_000);
    let config = folder.join("publisher.toml");
    let text = format!(
        "[channel]\nname = {name:?}\nid = 7\n[feed]\npath = {day:?}\ndate = 'none'\npace = {{ rate = 4000.0 }}\n\
         [control]\nlisten = '127.0.0.1:0'\ntokens = ['another one', {TOKEN:?}]\n\
         [run]\nyield_when_idle = true\nlinger_ms = 100\nstate_dir = {:?}\n",
        folder.join("state")
    );
    std::fs::write(&config, text).expect("writes");
    let mut running = Running::start("publisher", &["run", config.to_str().expect("UTF-8")], &[]);
    let address = running.control_channel(drop);
    (running, address)
}

#[test]
fn a_subscriber_that_knows_only_address_and_token_gets_the_book() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = unique("control");
    let (running, address) = publisher(folder.path(), &name);
    let mut control = Control::connect(address, TOKEN, "a test").expect("welcome");
    assert_eq!(control.pid(), running.child.id());
    let channels = control.directory().expect("a directory");
    assert_eq!(channels.len(), 1);
    let channel = &channels[0];
    assert_eq!((channel.name.as_str(), channel.id, channel.lane, channel.epoch), (name.as_str(), 7, 0, 1));
    assert!(channel.udp.is_none() && !channel.natural_start);

    let mut subscriber = Builder::of(channel).shared_memory().expect("attaches");
    let until = Instant::now() + PATIENCE;
    while subscriber.engine().digest_counts().compared < 10 {
        subscriber.poll(&mut ());
        assert!(Instant::now() < until, "digests come");
    }
    assert_eq!(subscriber.engine().digest_counts().disagreed, 0);

    // The publisher reads its own ring for the directory, a moment behind.
    let instruments = loop {
        let (instruments, incomplete) = control.instruments(7).expect("instruments");
        assert!(!incomplete);
        if instruments.len() == 20 {
            break instruments;
        }
        assert!(Instant::now() < until, "{} instruments so far", instruments.len());
        std::thread::sleep(Duration::from_millis(20));
    };
    let context = subscriber.context();
    for instrument in &instruments {
        assert_eq!(context.symbol(subscriber::InstrumentId(instrument.id)), instrument.symbol);
    }
    assert!(matches!(control.instruments(8), Err(ControlError::Refused { .. })));

    let listed = output("subscriber", &["channels", &address.to_string(), "--token", TOKEN, "--instruments", "--json"]);
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    assert_eq!(listed["channels"][0]["name"], name.as_str());
    assert_eq!(listed["channels"][0]["instruments"].as_array().map(Vec::len), Some(20));
    let refused = output("subscriber", &["channels", &address.to_string(), "--token", "a guess at it"]);
    assert!(!refused.status.success() && printed(&refused).contains("token"), "{}", printed(&refused));
}

#[test]
fn strangers_cost_nobody_else_anything() {
    let folder = tempfile::tempdir().expect("a folder");
    let (running, address) = publisher(folder.path(), &unique("strangers"));
    let connect = || TcpStream::connect_timeout(&address, PATIENCE).expect("connects");
    // Some say nothing, some say something else, some begin and never end, some announce a gigabyte.
    let mut strangers: Vec<TcpStream> = Vec::new();
    for i in 0..100 {
        let mut stranger = connect();
        let said: &[u8] = match i % 4 {
            0 => b"",
            1 => b"GET / HTTP/1.1\r\n\r\n",
            2 => &PREFACE,
            _ => b"BKCCTRL1\0\0\0\x40",
        };
        // The server may have closed already.
        let _ = stranger.write_all(said);
        strangers.push(stranger);
    }
    // They are more than there are places; yet whoever knows the token gets in at once, since it comes after them.
    let mut control = Control::connect(address, TOKEN, "a test").expect("the first attempt gets in");
    assert_eq!(control.directory().expect("a directory").len(), 1);
    // Every stranger is let go, with at most a word.
    for (i, mut stranger) in strangers.into_iter().enumerate() {
        stranger.set_read_timeout(Some(PATIENCE)).expect("sets");
        let mut heard = Vec::new();
        // A reset is as good an end as any.
        if let Err(error) = stranger.read_to_end(&mut heard) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "stranger {i}");
        }
        assert!(heard.len() < 100, "stranger {i} heard {} bytes", heard.len());
    }
    assert_eq!(control.directory().expect("a directory").len(), 1);
    running.signal("TERM");
    assert!(running.finish(PATIENCE).status.success());
}
