//! The command `check`.

use std::path::PathBuf;

use clap::Args;
use cli::{print, println};

use super::{check, json, text};

/// What `feeds-replay check` is told.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  feeds-replay check publisher.log recovery.log strategy-*.log
      the logs that 'publisher run --log', '--recovery-log' and 'subscriber watch --log' wrote
  feeds-replay check --lossless publisher.log subscriber.log
      a gap is wrong too, and so is a log that does not come to the stream's end
  feeds-replay check --json logs/* | jq .problems

Checked within each log: sequence numbers in order, each delivered once or named as lost; no line of an old epoch after a new \
one; nothing after the end. Checked between logs: the lines' sums and the books' digests at equal sequence numbers; that \
nobody has lines that no publisher published, and no end but a publisher's. A log that was cut off, as by kill -9, is good \
up to its last whole entry. The exit status is 0 if nothing is wrong, 1 if something is, 2 if the command line is.")]
pub struct CheckArguments {
    /// The logs, of one or several channels.
    #[arg(required = true)]
    pub logs: Vec<PathBuf>,
    /// Whatever was lost, or not logged, is wrong too.
    #[arg(long)]
    pub lossless: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Checks the logs and prints what they come to. Returns whether nothing is wrong.
///
/// # Errors
/// [`CheckError`](super::CheckError).
pub fn run(arguments: &CheckArguments) -> Result<bool, Box<dyn std::error::Error>> {
    let history = check(&arguments.logs, arguments.lossless)?;
    if arguments.json {
        println!("{}", json(&history));
    } else {
        print!("{}", text(&history));
    }
    Ok(history.is_sound())
}
