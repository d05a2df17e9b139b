//! The command `feeds-replay generate`.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use cli::{eprintln, println};
use publisher::date::session_date;
use serde_json::{Value, json};

use super::output::{DayWriter, Format, OutputOptions, Written};
use super::profile::BurstProfile;
use super::{GenerateOptions, GenerateSummary, Generator};

/// The day of a generated capture's packets where none is given: it cannot be mistaken for a real capture's.
const DATE: &str = "2000-01-03";
/// Bytes gathered before they are written.
const BUFFER_LEN: usize = 1 << 20;

/// What `feeds-replay generate` is told.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  feeds-replay generate day.itch
      a million messages of 500 symbols in BinaryFILE, at the hours that Nasdaq keeps
  feeds-replay generate big.itch --messages 300000000 --symbols 8000
      a day as large as a real one (9 GB); memory stays small
  feeds-replay generate minute.itch --messages 3000000 --seconds 60
      a whole day's course within a minute, at 50,000 messages a second on average
  feeds-replay generate day.pcapng --both-lines --loss 100 --gaps 5
      MoldUDP64 on lines A and B, each losing 100 of a million packets, and five venue gaps that neither line fills
  feeds-replay generate day.pcap --microseconds --date 2024-06-03 --force
      pcap as older tools write it, of that day, over what was there

What is made: opening and closing crosses, halts, pauses and an offering, all message types of ITCH 5.0, a few symbols \
with most messages, orders of which most go soon and some are replaced over and over, and micro-bursts of 10 to 80 times \
the mean rate. The profile that is printed is the busiest window's rate over the mean of the whole day; of a small day \
the short windows say little, because the mean of such a window is far below one message.")]
pub struct GenerateArguments {
    /// The file to write. Its ending says what: .pcap or .pcapng MoldUDP64, anything else BinaryFILE. Nothing is left
    /// behind if it is interrupted.
    file: PathBuf,
    /// Messages, exactly: at least 5,000, and 30 for each security.
    #[arg(long, default_value_t = 1_000_000)]
    messages: u64,
    /// Securities.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u16).range(5..=17_576))]
    symbols: u16,
    /// The same seed and options give the same bytes.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Seconds from the first message to the last; left out: the hours that Nasdaq keeps, 03:05 to 20:05.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=32_400))]
    seconds: Option<u64>,
    /// The longest micro-burst, in messages.
    #[arg(long, default_value_t = 8_192, value_name = "N", value_parser = clap::value_parser!(u32).range(8..=65_536))]
    longest_burst: u32,
    /// What kind of file, whatever its ending.
    #[arg(long, value_enum)]
    format: Option<FileFormat>,
    /// Venue gaps: places where up to 32 messages are missing from every line.
    #[arg(long, default_value_t = 0, value_name = "N")]
    gaps: u32,
    /// Line B beside line A: every packet comes twice.
    #[arg(long)]
    both_lines: bool,
    /// Of a million packets of a line, how many it loses and the other has.
    #[arg(long, default_value_t = 0, value_name = "N", requires = "both_lines", value_parser = clap::value_parser!(u32).range(0..=500_000))]
    loss: u32,
    /// The day of the packets, YYYY-MM-DD. Left out: 2000-01-03.
    #[arg(long)]
    date: Option<String>,
    /// Times of packets in microseconds; left out: in nanoseconds.
    #[arg(long)]
    microseconds: bool,
    /// Replace the file if it is there.
    #[arg(long)]
    force: bool,
    /// Print what was made as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum FileFormat {
    /// Each message behind its length, as in Nasdaq's day files.
    Binaryfile,
    /// MoldUDP64 packets in pcap.
    Pcap,
    /// MoldUDP64 packets in pcapng.
    Pcapng,
}

impl GenerateArguments {
    fn format(&self) -> Format {
        let ending = || self.file.extension().map(|ending| ending.to_string_lossy().to_lowercase());
        match (self.format, ending().as_deref()) {
            (Some(FileFormat::Pcap), _) | (None, Some("pcap")) => Format::Pcap,
            (Some(FileFormat::Pcapng), _) | (None, Some("pcapng")) => Format::Pcapng,
            _ => Format::BinaryFile,
        }
    }

    fn output(&self) -> Result<OutputOptions, Failure> {
        let format = self.format();
        if format == Format::BinaryFile {
            let packets_only = [
                (self.both_lines, "--both-lines"),
                (self.date.is_some(), "--date"),
                (self.microseconds, "--microseconds"),
            ];
            if let Some((_, option)) = packets_only.into_iter().find(|(given, _)| *given) {
                return Err(format!(
                    "{option} says something of packets, and BinaryFILE has none: name the file .pcap or .pcapng"
                )
                .into());
            }
        }
        let date = self.date.as_deref().unwrap_or(DATE);
        if date.eq_ignore_ascii_case("none") {
            return Err("--date none: packets have a date; give one".into());
        }
        Ok(OutputOptions {
            format,
            date: session_date(Some(date), None, &self.file)?,
            microseconds: self.microseconds,
            both_lines: self.both_lines,
            loss_per_million: self.loss,
            gaps: self.gaps,
            messages: self.messages,
            seed: self.seed,
        })
    }
}

type Failure = Box<dyn std::error::Error>;

/// Runs the command; `stop` interrupts it.
///
/// # Errors
/// In words: what is wrong with an option, or with the destination.
pub fn run(arguments: &GenerateArguments, stop: &AtomicBool) -> Result<(), Failure> {
    let file = &arguments.file;
    if file.exists() && !arguments.force {
        return Err(format!("{} is there already: choose another name, or --force", file.display()).into());
    }
    let name = file.file_name().ok_or_else(|| format!("{} is no file name", file.display()))?;
    let options = GenerateOptions {
        seed: arguments.seed,
        symbols: arguments.symbols,
        messages: arguments.messages,
        span_ns: arguments.seconds.map(|seconds| seconds * 1_000_000_000),
        longest_burst: arguments.longest_burst,
        ..GenerateOptions::default()
    };
    let output = arguments.output()?;
    // Under another name until it is whole: what bears the name is never half a day.
    let temporary = file.with_file_name(format!(".{}.{}", name.to_string_lossy(), std::process::id()));
    let (summary, written, profile) = match write(options, output, &temporary, stop, !arguments.json) {
        Ok(made) => made,
        Err(error) => {
            // If it was never created there is nothing to remove.
            let _ = std::fs::remove_file(&temporary);
            return Err(error);
        }
    };
    std::fs::rename(&temporary, file)?;
    if arguments.json {
        println!("{}", as_json(file, &summary, &written, &profile));
    } else {
        print(arguments, &output, &summary, &written, &profile);
    }
    Ok(())
}

/// Writes the day, and shows how far it is.
fn write(
    options: GenerateOptions,
    output: OutputOptions,
    path: &Path,
    stop: &AtomicBool,
    show: bool,
) -> Result<(GenerateSummary, Written, BurstProfile), Failure> {
    let mut day = Generator::new(options)?;
    let failed = |cause| format!("{}: {cause}; check the destination's free space", path.display());
    let out = BufWriter::with_capacity(BUFFER_LEN, File::create(path).map_err(failed)?);
    let mut writer = DayWriter::new(output, out).map_err(failed)?;
    let mut shown = Instant::now();
    let mut taken = 0u64;
    while let Some(framed) = day.next_framed() {
        writer.take(framed).map_err(failed)?;
        taken += 1;
        if taken.is_multiple_of(1 << 16) {
            // Relaxed: the flag carries nothing but itself.
            if stop.load(Ordering::Relaxed) {
                return Err("interrupted; nothing was written".into());
            }
            if show && shown.elapsed() >= Duration::from_secs(2) {
                shown = Instant::now();
                eprintln!("{taken} of {} messages", options.messages);
            }
        }
    }
    let (written, profile, out) = writer.finish().map_err(failed)?;
    out.into_inner().map_err(|error| failed(error.into_error()))?.sync_all().map_err(failed)?;
    Ok((day.summary().clone(), written, profile))
}

fn by_type(summary: &GenerateSummary) -> impl Iterator<Item = (char, u64)> {
    let counts = (0..=255u8).zip(summary.by_type);
    counts.filter(|(_, count)| *count > 0).map(|(message_type, count)| (message_type.into(), count))
}

fn as_json(file: &Path, summary: &GenerateSummary, written: &Written, profile: &BurstProfile) -> Value {
    let types: serde_json::Map<String, Value> =
        by_type(summary).map(|(message_type, count)| (message_type.to_string(), count.into())).collect();
    let gap = |gap: &super::output::Gap| json!({"first": gap.first, "count": gap.count});
    let peak = |peak: super::profile::Peak| json!({"window_ns": peak.window_ns, "peak_to_mean": peak.ratio, "messages": peak.messages, "mean": peak.mean});
    json!({
        "file": file,
        "messages": summary.messages,
        "bytes": written.bytes,
        "by_type": types,
        "written": written.messages,
        "gaps": written.gaps.iter().map(gap).collect::<Vec<Value>>(),
        "lines": {
            "A": {"packets": written.packets[0], "lost": written.lost[0]},
            "B": {"packets": written.packets[1], "lost": written.lost[1]},
        },
        "bursts": profile.peaks().into_iter().map(peak).collect::<Vec<Value>>(),
    })
}

fn print(
    arguments: &GenerateArguments,
    output: &OutputOptions,
    summary: &GenerateSummary,
    written: &Written,
    profile: &BurstProfile,
) {
    println!("{}: {} messages, {} bytes", arguments.file.display(), written.messages, written.bytes);
    for (message_type, count) in by_type(summary) {
        println!("{count:>12}  {message_type}");
    }
    println!("bursts, peak rate over mean rate:");
    profile.peaks().iter().for_each(|peak| println!("  {peak}"));
    if !written.gaps.is_empty() {
        let lost: u64 = written.gaps.iter().map(|gap| gap.count).sum();
        println!(
            "{} venue gaps: {lost} messages are on no line, the first at {}",
            written.gaps.len(),
            written.gaps[0].first
        );
    }
    if output.format == Format::BinaryFile {
        println!("it has no date: replay it with --date none, or a date of your choice");
        return;
    }
    for (at, line) in ["A", "B"].iter().enumerate().take(if output.both_lines { 2 } else { 1 }) {
        println!("line {line}: {} packets, {} lost", written.packets[at], written.lost[at]);
    }
    println!("its date is {}", output.date);
}
