//! The `subscriber` command: looks at a channel as a strategy sees it.

#![forbid(unsafe_code)]
// Those of the standard library panic where nobody reads any more; those of `cli` do not.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use cli::eprintln;

mod channels;
mod watch;

/// Looks at a channel that a publisher of this host, or of this network, sends.
#[derive(Parser)]
#[command(
    version,
    about,
    after_help = "\
Examples:
  subscriber watch itch                 every instrument of channel 'itch', in this terminal
  subscriber channels 127.0.0.1:31000   what a publisher with [control] has; BOOKCAST_TOKEN holds the token
  subscriber watch --help               what else it can do"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Ask a publisher which channels it has, and how to get them.
    Channels(channels::Arguments),
    /// Show a channel's books, rate, losses and digests while they change.
    Watch(Box<watch::Arguments>),
    #[command(flatten)]
    Manual(cli::Manual),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Channels(arguments) => channels::run(arguments),
        Command::Watch(arguments) => watch::run(*arguments),
        Command::Manual(manual) => {
            manual.print(Arguments::command(), &mut std::io::stdout()).map(|()| true).map_err(Into::into)
        }
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("subscriber: {error}");
            ExitCode::FAILURE
        }
    }
}
