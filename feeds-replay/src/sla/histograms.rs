//! The judged latencies for other tools: an HdrHistogram interval log, and a percentile distribution (.hgrm).

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use super::blocks::Latencies;

/// One histogram of an interval log covers so much, ns.
const INTERVAL_NS: u64 = 1_000_000_000;

fn histogram() -> Histogram<u64> {
    // The longest latency in a log is 2^32 ns.
    Histogram::new_with_bounds(1, 10_000_000_000, 3).expect("bounds are legal")
}

/// Writes `latencies` of a run that began at `start_ns` (ns since 1970) as an interval log, a second to each histogram.
/// Values are ns.
///
/// # Errors
/// The system's.
pub fn write_interval_log(path: &Path, latencies: &Latencies, start_ns: u64, tag: &str) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    let mut serializer = V2DeflateSerializer::new();
    let tag: String = tag.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let start = UNIX_EPOCH + Duration::from_nanos(start_ns);
    let mut builder = IntervalLogWriterBuilder::new();
    builder.add_comment("latencies from intended hand-over, in ns").with_start_time(start).with_base_time(start);
    let mut log = builder.begin_log_with(&mut file, &mut serializer)?;
    for second in latencies.timed().chunk_by(|a, b| a.at_ns / INTERVAL_NS == b.at_ns / INTERVAL_NS) {
        let mut interval = histogram();
        for timed in second {
            interval.saturating_record(timed.latency_ns.max(1).into());
        }
        let begin = Duration::from_nanos(second[0].at_ns / INTERVAL_NS * INTERVAL_NS);
        log.write_histogram(&interval, begin, Duration::from_nanos(INTERVAL_NS), Tag::new(&tag))
            .map_err(|error| io::Error::other(error.to_string()))?;
    }
    file.flush()
}

/// `latencies` as HdrHistogram's percentile distribution, in us, five steps to each half of what is left.
pub fn hgrm(latencies: &Latencies) -> String {
    let mut all = histogram();
    for latency in latencies.sorted() {
        all.saturating_record((*latency).max(1).into());
    }
    let mut out = String::new();
    let _ = writeln!(out, "{:>12} {:>14} {:>10} {:>14}\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)");
    let mut count = 0;
    for step in all.iter_quantiles(5) {
        count += step.count_since_last_iteration();
        let (value, quantile) = (step.value_iterated_to() as f64 / 1e3, step.quantile_iterated_to());
        if quantile < 1.0 {
            let _ = writeln!(out, "{value:>12.3} {quantile:>14.12} {count:>10} {:>14.2}", 1.0 / (1.0 - quantile));
        } else {
            let _ = writeln!(out, "{value:>12.3} {quantile:>14.12} {count:>10}");
        }
    }
    let _ = writeln!(out, "#[Mean    = {:>12.3}, StdDeviation   = {:>12.3}]", all.mean() / 1e3, all.stdev() / 1e3);
    let _ = writeln!(out, "#[Max     = {:>12.3}, Total count    = {:>12}]", all.max() as f64 / 1e3, all.len());
    let _ = writeln!(out, "#[Buckets = {:>12}, SubBuckets     = {:>12}]", all.buckets(), 2048);
    out
}

#[cfg(test)]
mod tests {
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    use super::super::blocks::Timed;
    use super::*;

    fn latencies() -> Latencies {
        Latencies::new(
            (0..3_000u32).map(|i| Timed { at_ns: u64::from(i) * 1_000_000, latency_ns: 1_000 + i }).collect(),
        )
    }

    #[test]
    fn the_interval_log_is_read_by_the_format_s_own_reader() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log.hlog");
        write_interval_log(&path, &latencies(), 1_700_000_000_000_000_000, "1 shm").expect("writes");
        let bytes = std::fs::read(&path).expect("reads");
        let mut counts = Vec::new();
        for entry in IntervalLogIterator::new(&bytes) {
            if let Ok(LogEntry::Interval(interval)) = entry {
                assert_eq!(interval.tag().map(|tag| tag.as_str().to_owned()), Some("1-shm".to_owned()));
                let coded = interval.encoded_histogram();
                let bytes = decode_base64(coded);
                let one: Histogram<u64> = Deserializer::new().deserialize(&mut &bytes[..]).expect("a histogram");
                counts.push((interval.start_timestamp().as_secs(), one.len(), one.min()));
            }
        }
        assert_eq!(counts, [(0, 1_000, 1_000), (1, 1_000, 2_000), (2, 1_000, 3_000)]);
    }

    /// Base64 as RFC 4648 has it.
    fn decode_base64(text: &str) -> Vec<u8> {
        const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut bytes = Vec::new();
        let (mut bits, mut count) = (0u32, 0);
        for byte in text.bytes().filter(|byte| *byte != b'=') {
            let value = ALPHABET.iter().position(|letter| *letter == byte).expect("base64") as u32;
            (bits, count) = (bits << 6 | value, count + 6);
            if count >= 8 {
                count -= 8;
                bytes.push((bits >> count) as u8);
            }
        }
        bytes
    }

    #[test]
    fn the_percentile_distribution_ends_with_all_samples() {
        let text = hgrm(&latencies());
        let last = text.lines().rfind(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit()));
        assert!(last.expect("rows").contains("1.000000000000       3000"), "{text}");
        assert!(text.contains("Total count    =         3000"), "{text}");
    }
}
