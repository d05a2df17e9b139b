//! A closed-loop round trip of one update between two processes, through the real lanes, both ways.
//!
//! One process puts a line into its ring and flushes its lane; the other, this executable again, takes the line from its
//! receiving half, puts the same record into a ring of its own, and flushes that; the first waits for it to come back, and
//! only then sends the next. So a round trip is two passages of everything that a line passes on its way from a publisher
//! to a subscriber, and half of it is what perftest's `ib_write_lat` and `ib_send_lat` print, taken as they take it.
//!
//! It is no measurement of a service: one line is under way at a time, and a stall delays the next ping instead of being
//! counted against it (coordinated omission). `feeds-replay replay` measures that.
//!
//! - [`spec`]: the transports, and what the two processes tell each other.
//! - `rally`: the two loops. `lanes`, `bare`, `rdma`: the two ends of each transport.
//! - [`report`]: what came of it, as text and JSON.

mod bare;
mod lanes;
mod rally;
#[cfg(feature = "rdma")]
mod rdma;
pub mod report;
pub mod spec;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use cli::{print, println};
use transport::clock::Clock;

use crate::run::RunError;
use report::PingReport;
use spec::PingTransport;

pub(crate) use lanes::echo;

/// The most lines of one ping: what both rings take in one flush.
const MAX_LINES: u64 = 256;

/// What `feeds-replay ping` is asked for.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  feeds-replay ping --transport shm
      through two rings in shared memory
  feeds-replay ping --transport rdma-rc --address 10.99.0.1 --peer-address 10.99.0.2
      RC writes between two ports of this host: half a round trip stands beside
      `ib_write_lat -s 64`
  feeds-replay ping --transport rdma-ud --address 10.99.0.1
      UD datagrams, out of a port and back into it: beside `ib_send_lat -c UD -s 96`

A round trip is closed loop: it says nothing of a rate, and a stall delays the next ping instead of being \
counted. The exit status is 0 if every ping was answered, 1 if not, 2 if the command line is wrong.")]
pub struct PingArguments {
    /// Which way the lines go, there and back.
    #[arg(long, value_enum)]
    pub transport: PingTransport,
    /// Round trips that are measured.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub count: u64,
    /// Round trips before those, that are not.
    #[arg(long, default_value_t = 1_000)]
    pub warmup: u64,
    /// Lines of one ping, put together and flushed once.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=MAX_LINES))]
    pub size: u64,
    /// The core of each process, such as 2,3. Left out: the last two that may be used; where there is only one, none, and
    /// both yield.
    #[arg(long, value_parser = cores, value_name = "PING,ECHO")]
    pub cores: Option<(usize, usize)>,
    /// The pinging side's IPv4 address. Needed for rdma-ud and rdma-rc; else 127.0.0.1.
    #[arg(long)]
    pub address: Option<Ipv4Addr>,
    /// The echo's address, on another port of this host. Left out: the same.
    #[arg(long)]
    pub peer_address: Option<Ipv4Addr>,
    /// The RDMA device of --address, such as rxe0. Left out: whichever has it.
    #[arg(long)]
    pub device: Option<String>,
    /// The RDMA device of --peer-address.
    #[arg(long)]
    pub peer_device: Option<String>,
    /// rdma-ud only: by multicast, as a publisher sends, instead of to one queue pair.
    #[arg(long)]
    pub multicast: bool,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

fn cores(text: &str) -> Result<(usize, usize), String> {
    let parsed = text.split_once(',').map(|(ping, echo)| (ping.trim().parse(), echo.trim().parse()));
    let Some((Ok(ping), Ok(echo))) = parsed else {
        return Err("give two numbers, such as 2,3: the core of the pinging process, and that of the echo".into());
    };
    Ok((ping, echo))
}

/// Why a ping came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum PingError {
    /// The command line asks for what cannot be.
    #[error("{0}")]
    Asked(String),
    /// This build cannot do it.
    #[error("--transport {}: {}", .0.name(), transport::NO_RDMA)]
    NotBuilt(PingTransport),
    /// One end could not be set up.
    #[error("cannot set up {what}: {why}")]
    SetUp {
        /// Of what.
        what: &'static str,
        /// The cause, in its own words.
        why: String,
    },
    /// The other process failed.
    #[error(transparent)]
    Echo(#[from] RunError),
    /// Nothing comes back.
    #[error(
        "no answer to {lost} pings in a row, each of which had {} ms: the first of them was ping {first}; see that both \
         addresses are on active ports (`publisher devices`) and that nothing between them drops the packets",
        .patience_ns / 1_000_000
    )]
    NoAnswer {
        /// How many.
        lost: u64,
        /// The number of the first of them.
        first: u64,
        /// How long each was waited for.
        patience_ns: u64,
    },
    /// What came back is not what was sent.
    #[error("ping {number} came back as {what}: a fault of this program, or of what is between its two ends")]
    Garbled {
        /// Which ping.
        number: u64,
        /// What was found.
        what: String,
    },
}

impl PingError {
    fn set_up(what: &'static str, why: impl std::fmt::Display) -> PingError {
        PingError::SetUp { what, why: why.to_string() }
    }
}

/// Pings, prints what came of it, and returns whether every ping was answered.
///
/// # Errors
/// [`PingError`]; no process is left behind.
pub fn command(arguments: &PingArguments, stop: &Arc<AtomicBool>) -> Result<bool, PingError> {
    let report = ping(arguments, stop)?;
    if arguments.json {
        println!("{}", report.json());
    } else {
        print!("{}", report.text());
    }
    Ok(report.lost == 0 && !report.stopped)
}

/// Pings as asked. When `stop` is set meanwhile, the report is of what was measured until then.
///
/// # Errors
/// [`PingError`]; no process is left behind.
pub fn ping(arguments: &PingArguments, stop: &Arc<AtomicBool>) -> Result<PingReport, PingError> {
    check(arguments)?;
    let usable = publisher::pin::usable_cores();
    let cores = match (arguments.cores, &usable[..]) {
        (Some((ping, echo)), _) if ping == echo => {
            return Err(PingError::Asked(format!(
                "--cores {ping},{echo}: both processes poll without a pause, so each needs a core of its own; leave \
                 --cores out to have both yield where there is only one"
            )));
        }
        (Some(cores), _) => Some(cores),
        (None, [.., ping, echo]) => Some((*ping, *echo)),
        (None, _) => None,
    };
    for core in cores.iter().flat_map(|(ping, echo)| [*ping, *echo]) {
        publisher::pin::check(core).map_err(|error| PingError::Asked(error.to_string()))?;
    }
    lanes::ping(arguments, cores, Clock::calibrate(), stop)
}

/// What can be said to be wrong before anything is started.
fn check(arguments: &PingArguments) -> Result<(), PingError> {
    let transport = arguments.transport;
    if transport.is_rdma() {
        if cfg!(not(feature = "rdma")) {
            return Err(PingError::NotBuilt(transport));
        }
        if arguments.address.is_none() {
            return Err(PingError::Asked(format!(
                "--transport {} needs --address, the IPv4 address of a port: `publisher devices` lists them",
                transport.name()
            )));
        }
    } else if arguments.device.is_some() || arguments.peer_device.is_some() {
        return Err(PingError::Asked(format!(
            "--transport {} has no RDMA device: leave --device out",
            transport.name()
        )));
    }
    if arguments.multicast && transport != PingTransport::RdmaUd {
        return Err(PingError::Asked(
            "--multicast is for rdma-ud: udp is multicast anyway, the others never are".into(),
        ));
    }
    Ok(())
}
