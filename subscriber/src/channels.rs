//! `subscriber channels`: what a publisher says it has.

use std::net::SocketAddr;

use clap::Args;
use cli::println;
use protocol::control::ChannelInfo;
use serde_json::json;
use subscriber::Control;

/// The options of `subscriber channels`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  BOOKCAST_TOKEN=... subscriber channels 127.0.0.1:31000
      the channels of that publisher, and how to get them
  BOOKCAST_TOKEN=... subscriber channels 127.0.0.1:31000 --instruments --json
      with every instrument, for a program")]
pub(crate) struct Arguments {
    /// Where the publisher's [control] listens, such as 127.0.0.1:31000.
    address: SocketAddr,
    /// One of the tokens in the publisher's [control]. Better in the environment than in the list of processes.
    #[arg(long, env = "BOOKCAST_TOKEN", hide_env_values = true)]
    token: String,
    /// List the instruments too.
    #[arg(long)]
    instruments: bool,
    /// Print it as JSON.
    #[arg(long)]
    json: bool,
}

/// Asks, and prints the answer.
pub(crate) fn run(arguments: Arguments) -> Result<bool, Box<dyn std::error::Error>> {
    let name = format!("subscriber channels, pid {}", std::process::id());
    let mut control = Control::connect(arguments.address, &arguments.token, &name)?;
    let channels = control.directory()?;
    let mut rows = Vec::new();
    for channel in &channels {
        let instruments = if arguments.instruments { Some(control.instruments(channel.id)?) } else { None };
        rows.push((channel, instruments));
    }
    if arguments.json {
        let channels: Vec<_> = rows
            .iter()
            .map(|(channel, instruments)| {
                let mut row = json!(channel);
                if let Some((instruments, incomplete)) = instruments {
                    row["instruments"] = json!(instruments);
                    row["instruments_incomplete"] = json!(incomplete);
                }
                row
            })
            .collect();
        println!("{}", json!({"pid": control.pid(), "channels": channels}));
        return Ok(true);
    }
    println!(
        "publisher pid {} at {} has {} channel{}",
        control.pid(),
        arguments.address,
        channels.len(),
        plural(channels.len())
    );
    for (channel, instruments) in rows {
        print_channel(channel);
        if let Some((instruments, incomplete)) = instruments {
            println!(
                "  {} instruments{}",
                instruments.len(),
                if incomplete { "; the publisher knows that it misses some" } else { "" }
            );
            for instrument in instruments {
                println!("  {:>8}  {}", instrument.id, instrument.symbol);
            }
        }
    }
    Ok(true)
}

fn print_channel(channel: &ChannelInfo) {
    println!(
        "'{}', number {}, lane {}, epoch {}; a sign of life every {} ms; books start {}",
        channel.name,
        channel.id,
        channel.lane,
        channel.epoch,
        channel.heartbeat_ns / 1_000_000,
        if channel.natural_start { "from increments" } else { "with the session" }
    );
    match &channel.shared_memory {
        Some(ring) => println!("  shared memory: {} lines in {}", ring.lines, ring.directory.display()),
        None => println!("  shared memory: none"),
    }
    match &channel.udp {
        Some(udp) => println!("  UDP: {}:{}, MTU {}", udp.group, udp.port, udp.mtu),
        None => println!("  UDP: none"),
    }
    match &channel.recovery {
        Some(recovery) => println!(
            "  recovery: at {}, {} lines of history, {} lines a second for each subscriber",
            recovery.at, recovery.history_lines, recovery.lines_per_second
        ),
        None => println!("  recovery: none, what is lost is lost"),
    }
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}
