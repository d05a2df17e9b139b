//! `subscriber watch`: what a channel does, for people.
//!
//! One thread polls, as a strategy would, and at most ten times a second puts together a [`view::View`]: a few hundred
//! rows, some microseconds to some hundred of them. It leaves it where the other thread finds it, and never waits for
//! that thread: if it has the place locked, the view is left at a later turn. The other thread draws, in a terminal
//! ([`terminal`]) or as one line a second ([`plain`]), however long that takes.

mod conflated;
mod plain;
mod poll;
mod source;
mod terminal;
mod view;

use std::io::IsTerminal;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{ArgAction, Args};
use protocol::book::{BooksConfig, Start};
use protocol::record::ChannelId;
use subscriber::{Builder, RecoveryOptions, Subscriber};
use transport::LaneRx;
use transport::fault::{FaultInjector, FaultPlan};
use transport::udp::{Interface, UdpOptions, UdpRx};

use poll::Board;
use source::Source;

/// What `watch` is asked to show.
#[derive(Args)]
#[command(after_help = "\
Examples:
  subscriber watch itch
      channel 'itch' from this host's shared memory
  subscriber watch itch --symbols AAPL,'BRK.*' --depth 20
      some instruments, twenty levels deep
  subscriber watch itch --udp 239.255.7.1:30001 --interface 127.0.0.1
      the same channel by UDP multicast
  subscriber watch itch --udp 239.255.7.1:30001 --shared-memory
      by both: the first copy of each line wins
  subscriber watch itch --pair
      both of its publishers, A and B, in shared memory
  subscriber watch itch --rdma 10.0.0.2 --control 10.0.0.1:31000 --token 'a secret of ours'
      by RDMA, received on the port with that address: datagrams and writes into a ring of its own
  BOOKCAST_TOKEN=... subscriber watch itch --udp 239.255.7.1:30001 --recover --control 10.0.0.1:31000
      what the datagrams lose is asked for, and so are the books of instruments that it came late for
  BOOKCAST_TOKEN=... subscriber watch itch --rdma 10.0.0.2 --rdma-lanes ud --recover --control 10.0.0.1:31000
      the same by RDMA: the answers are written into a ring of this program's own
  subscriber watch itch --conflate --symbols AAPL
      the latest of each instrument, once a second, however fast it changes
  subscriber watch itch --plain
      one line a second, as without a terminal
  subscriber watch itch --json --seconds 10
      ten seconds, then what came of them as JSON

Keys: up, down, page up, page down, home and end choose the instrument whose depth is shown; q or Ctrl-C ends.

What a book says of itself:
  Live      every change was seen
  Suspect   the venue's own feed is inconsistent, or began in mid-day (--natural)
  Stale     something may have been missed here
  Unknown   nothing has said yet what it held to begin with: its publisher began in mid-day, or this
            program joined late

The exit status is 0, or 1 if nothing could be watched, nothing came, or a digest disagreed. Without a terminal it \
ends with the stream.")]
pub(crate) struct Arguments {
    /// The channel, as its publisher calls it.
    channel: String,
    /// Only instruments with these symbols: names, or patterns with * and ?; separated by commas.
    #[arg(long, value_delimiter = ',')]
    symbols: Vec<String>,
    /// Which path of the channel, in shared memory.
    #[arg(long, default_value_t = 0)]
    lane: u16,
    /// Read both publishers' rings in shared memory, A (lane 0) and B (lane 1): the first copy of each line wins.
    #[arg(long, conflicts_with_all = ["lane", "udp", "rdma"])]
    pair: bool,
    /// Receive UDP multicast of this group and port, instead of reading shared memory.
    #[arg(long, value_name = "GROUP:PORT")]
    udp: Option<SocketAddrV4>,
    /// Receive the other publisher's UDP multicast too.
    #[arg(long, value_name = "GROUP:PORT", requires = "udp", conflicts_with_all = ["shared_memory", "lose"])]
    udp_b: Option<SocketAddrV4>,
    /// The interface to receive on, by name or IPv4 address.
    #[arg(long, default_value = "127.0.0.1", requires = "udp")]
    interface: String,
    /// The channel's number, as packets carry it.
    #[arg(long, default_value_t = 1, value_name = "N", requires = "udp")]
    channel_id: u16,
    /// Read shared memory beside UDP.
    #[arg(long, requires = "udp")]
    shared_memory: bool,
    /// Receive by RDMA on the port that has this IPv4 address, instead of reading shared memory (needs a build with the
    /// feature rdma).
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["udp", "shared_memory"], requires = "control", requires = "token")]
    rdma: Option<Ipv4Addr>,
    /// The publisher's control channel: for RDMA, where the way to the channel is asked for; and for recovery.
    #[arg(long, value_name = "ADDRESS:PORT")]
    control: Option<SocketAddr>,
    /// The token that the publisher knows.
    #[arg(long, env = "BOOKCAST_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Ask the publisher's recovery server for what is lost, and for the books of instruments that this program came late
    /// for.
    #[arg(long, requires = "control", requires = "token")]
    recover: bool,
    /// The latest book of each instrument, as the recovery server keeps it in this host's shared memory ([recovery]
    /// conflate), instead of every line.
    #[arg(long, conflicts_with_all = ["udp", "rdma", "control", "recover", "natural"])]
    conflate: bool,
    /// Be tracked: report how far this program has read, and hear from the publisher when its ring is nearly full.
    #[arg(long, requires = "recover")]
    tracked: bool,
    /// Take so many microseconds over each line, on purpose, to see what becomes of a subscriber that is too slow.
    #[arg(long, value_name = "N", conflicts_with = "conflate", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    slow_us: Option<u64>,
    /// Lose that share of the datagrams on purpose, 0 to 1, to see what becomes of it.
    #[arg(long, value_name = "SHARE", requires = "udp", conflicts_with = "shared_memory", value_parser = share)]
    lose: Option<f64>,
    /// The RDMA device, where several have the address.
    #[arg(long, value_name = "NAME", requires = "rdma")]
    device: Option<String>,
    /// By RDMA: datagrams alone (ud), writes into this program's ring alone (rc), or both.
    #[arg(long, value_name = "WAY", default_value = "both", value_parser = ["ud", "rc", "both"])]
    rdma_lanes: String,
    /// Lines of the ring that the publisher writes by RDMA: a power of two.
    #[arg(long, value_name = "N", default_value_t = 1 << 16)]
    ring_lines: usize,
    /// Over both RDMA lanes: how long what the datagrams lost may take to come by writes, ms. With --recover at least as long
    /// is waited for the recovery server, and never less than 500 ms.
    #[arg(long, value_name = "N", default_value_t = 250, requires = "rdma", value_parser = clap::value_parser!(u64).range(1..=60_000))]
    patience_ms: u64,
    /// Levels shown on each side of the chosen instrument's book.
    #[arg(long, default_value_t = 15, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    depth: u16,
    /// The publisher starts its books in mid-day (start = "natural").
    #[arg(long)]
    natural: bool,
    /// One line a second, also in a terminal.
    #[arg(long, action = ArgAction::SetTrue)]
    plain: bool,
    /// Print the final summary as JSON; what is said meanwhile goes to standard error.
    #[arg(long)]
    json: bool,
    /// Write down what comes, for 'feeds-replay check'. A log that is there is continued.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// End after that many seconds.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    seconds: Option<u64>,
}

type Failure = Box<dyn std::error::Error>;

/// Watches until the end. Returns whether something came and no digest disagreed.
///
/// # Errors
/// What keeps a subscriber from being made, or the terminal from being used.
pub(crate) fn run(arguments: Arguments) -> Result<bool, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The second Ctrl-C ends this program at once.
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    if arguments.control.is_some() && arguments.rdma.is_none() && !arguments.recover {
        return Err("--control is for --rdma or --recover: give one of them, or leave it out".into());
    }
    let start = if arguments.natural { Start::Natural } else { Start::Strict };
    // A whole market: what outgrows it costs this program an allocation, and nobody else anything.
    let books = BooksConfig { instruments: 1 << 14, orders: 1 << 18, levels: 1 << 17 };
    let builder =
        Builder::new(&arguments.channel).symbols(&arguments.symbols).lane(arguments.lane).start(start).books(books);
    if arguments.conflate {
        return conflated::watch(&arguments, builder.conflated()?, &stop);
    }
    let builder = match (arguments.recover, arguments.control, &arguments.token) {
        (true, Some(control), Some(token)) => {
            let name = format!("subscriber watch, pid {}", std::process::id());
            let options = RecoveryOptions::new(control, token);
            let patience_ns = arguments.rdma.map_or(0, |_| arguments.patience_ms * 1_000_000).max(options.patience_ns);
            let options = RecoveryOptions { name, patience_ns, ..options };
            builder.recover(if arguments.tracked { options.tracked() } else { options })
        }
        _ => builder,
    };
    if let Some(address) = arguments.rdma {
        return watch_rdma(&arguments, builder, address, &stop);
    }
    if arguments.pair {
        return watch(&arguments, builder.shared_memory_pair()?, &stop);
    }
    let Some(udp) = arguments.udp else { return watch(&arguments, builder.shared_memory()?, &stop) };
    let Ok(interface) = Interface::from_str(&arguments.interface);
    let options = UdpOptions::new(*udp.ip(), udp.port(), interface);
    let channel = ChannelId::new(arguments.channel_id);
    if let Some(other) = arguments.udp_b {
        let other = UdpOptions { group: *other.ip(), port: other.port(), ..options.clone() };
        return watch(&arguments, builder.udp_pair((&options, &other), channel)?, &stop);
    }
    if let Some(drop) = arguments.lose {
        let plan = FaultPlan { drop, ..FaultPlan::seeded(u64::from(std::process::id())) };
        let lossy = FaultInjector::new(UdpRx::open(&options, channel)?, plan);
        watch(&arguments, builder.lanes(lossy, 1), &stop)
    } else if arguments.shared_memory {
        watch(&arguments, builder.shared_memory_and_udp(&options, channel)?, &stop)
    } else {
        watch(&arguments, builder.udp(&options, channel)?, &stop)
    }
}

#[cfg(feature = "rdma")]
fn watch_rdma(arguments: &Arguments, builder: Builder, address: Ipv4Addr, stop: &AtomicBool) -> Result<bool, Failure> {
    let (Some(control), Some(token)) = (arguments.control, &arguments.token) else {
        return Err("--rdma needs --control and --token: the publisher says there how the channel is reached".into());
    };
    let options = subscriber::rdma::RdmaOptions {
        name: format!("subscriber watch, pid {}", std::process::id()),
        device: arguments.device.clone(),
        ud: arguments.rdma_lanes != "rc",
        rc: arguments.rdma_lanes != "ud",
        lines: arguments.ring_lines,
        patience_ns: arguments.patience_ms * 1_000_000,
        ..subscriber::rdma::RdmaOptions::new(control, token, address)
    };
    watch(arguments, builder.rdma(&options)?, stop)
}

#[cfg(not(feature = "rdma"))]
fn watch_rdma(_: &Arguments, _: Builder, _: Ipv4Addr, _: &AtomicBool) -> Result<bool, Failure> {
    Err(transport::NO_RDMA.into())
}

fn watch<R: LaneRx + Source + Send>(
    arguments: &Arguments,
    mut subscriber: Subscriber<R>,
    stop: &AtomicBool,
) -> Result<bool, Failure> {
    let log = arguments
        .log
        .as_ref()
        .map(|path| transport::log::open(path, protocol::log::Role::Subscriber, &arguments.channel, arguments.lane));
    let (recorder, keeper) = log.transpose()?.unzip();
    if let Some(recorder) = recorder {
        subscriber = subscriber.logged(recorder);
    }
    let in_terminal = !arguments.plain && !arguments.json && std::io::stdout().is_terminal();
    let until = arguments.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    // A channel that ends may begin again: who looks at a terminal decides when it is over.
    let board = Board::new(usize::from(arguments.depth), !in_terminal, until);
    let (last, shown) = std::thread::scope(|scope| {
        let (board, polled) = (&board, &mut subscriber);
        let names = (arguments.channel.as_str(), arguments.lane);
        let slow = arguments.slow_us.map(Duration::from_micros);
        let poller = scope.spawn(move || poll::poll(polled, board, stop, names, slow));
        let shown = if in_terminal {
            terminal::show(arguments, board, stop).map_err(Failure::from)
        } else {
            plain::show(arguments, board, stop);
            Ok(())
        };
        // Relaxed: the flag carries nothing but itself.
        stop.store(true, Ordering::Relaxed);
        (poller.join().expect("the polling thread does not panic; if it did, its message stands above"), shown)
    });
    // Its log is closed with it.
    drop(subscriber);
    if let Some(keeper) = keeper {
        keeper.finish()?;
    }
    shown?;
    plain::summarise(arguments, &last);
    Ok(last.totals.delivered + last.totals.lost > 0 && last.totals.digests_disagreed == 0)
}

/// A share, 0 to 1.
fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| format!("{text} is no number"))?;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err(format!("{text} is not within 0 to 1")) }
}

/// Where to look for the channel, for people.
fn way(arguments: &Arguments) -> String {
    match arguments.udp {
        None if arguments.rdma.is_some() => match arguments.rdma_lanes.as_str() {
            "ud" => "RDMA datagrams".into(),
            "rc" => "RDMA writes".into(),
            _ => "RDMA datagrams and writes".into(),
        },
        Some(udp) if arguments.shared_memory => format!("shared memory and {udp} on {}", arguments.interface),
        Some(udp) => match arguments.udp_b {
            Some(other) => format!("{udp} and {other} on {}", arguments.interface),
            None => format!("{udp} on {}", arguments.interface),
        },
        None if arguments.pair => "shared memory, both publishers".into(),
        None => "shared memory".into(),
    }
}
