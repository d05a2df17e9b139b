//! `subscriber watch`: what a channel does, for people.
//!
//! One thread polls, as a strategy would, and at most ten times a second puts together a [`view::View`]: a few hundred
//! rows, some microseconds to some hundred of them. It leaves it where the other thread finds it, and never waits for
//! that thread: if it has the place locked, the view is left at a later turn. The other thread draws, in a terminal
//! ([`terminal`]) or as one line a second ([`plain`]), however long that takes.

mod plain;
mod poll;
mod source;
mod terminal;
mod view;

use std::io::IsTerminal;
use std::net::SocketAddrV4;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{ArgAction, Args};
use protocol::book::{BooksConfig, Start};
use protocol::record::ChannelId;
use subscriber::{Builder, Subscriber};
use transport::LaneRx;
use transport::udp::{Interface, UdpOptions};

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
    /// Receive UDP multicast of this group and port, instead of reading shared memory.
    #[arg(long, value_name = "GROUP:PORT")]
    udp: Option<SocketAddrV4>,
    /// The interface to receive on, by name or IPv4 address.
    #[arg(long, default_value = "127.0.0.1", requires = "udp")]
    interface: String,
    /// The channel's number, as packets carry it.
    #[arg(long, default_value_t = 1, value_name = "N", requires = "udp")]
    channel_id: u16,
    /// Read shared memory beside UDP.
    #[arg(long, requires = "udp")]
    shared_memory: bool,
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
    let start = if arguments.natural { Start::Natural } else { Start::Strict };
    // A whole market: what outgrows it costs this program an allocation, and nobody else anything.
    let books = BooksConfig { instruments: 1 << 14, orders: 1 << 18, levels: 1 << 17 };
    let builder =
        Builder::new(&arguments.channel).symbols(&arguments.symbols).lane(arguments.lane).start(start).books(books);
    let Some(udp) = arguments.udp else { return watch(&arguments, builder.shared_memory()?, &stop) };
    let Ok(interface) = Interface::from_str(&arguments.interface);
    let options = UdpOptions::new(*udp.ip(), udp.port(), interface);
    let channel = ChannelId::new(arguments.channel_id);
    if arguments.shared_memory {
        watch(&arguments, builder.shared_memory_and_udp(&options, channel)?, &stop)
    } else {
        watch(&arguments, builder.udp(&options, channel)?, &stop)
    }
}

fn watch<R: LaneRx + Source + Send>(
    arguments: &Arguments,
    mut subscriber: Subscriber<R>,
    stop: &AtomicBool,
) -> Result<bool, Failure> {
    let in_terminal = !arguments.plain && !arguments.json && std::io::stdout().is_terminal();
    let until = arguments.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    // A channel that ends may begin again: who looks at a terminal decides when it is over.
    let board = Board::new(usize::from(arguments.depth), !in_terminal, until);
    let (last, shown) = std::thread::scope(|scope| {
        let board = &board;
        let poller =
            scope.spawn(move || poll::poll(&mut subscriber, board, stop, (&arguments.channel, arguments.lane)));
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
    shown?;
    plain::summarise(arguments, &last);
    Ok(last.totals.delivered + last.totals.lost > 0 && last.totals.digests_disagreed == 0)
}

/// Where to look for the channel, for people.
fn way(arguments: &Arguments) -> String {
    match arguments.udp {
        Some(udp) if arguments.shared_memory => format!("shared memory and {udp} on {}", arguments.interface),
        Some(udp) => format!("{udp} on {}", arguments.interface),
        None => "shared memory".into(),
    }
}
