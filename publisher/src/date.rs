//! The session's date: what turns a venue's time of day into UTC.
//!
//! ITCH, PITCH and LOBSTER give time since local midnight and no date. The date is what `--date` says, else that of the
//! packet's capture time, else one in the file name, else an error that names `--date`.
//!
//! The specification counts nanoseconds *since midnight*, so a time here is New York's midnight in UTC plus the elapsed
//! nanoseconds: exact, never going back, and the same addition all day. Daylight saving is in where midnight lies. On the
//! two days a year on which clocks are changed (Sundays, without a session) a day has 23 or 25 hours, and elapsed time
//! differs from the clock on the wall by one hour after two in the morning; a wall-clock reading would give one of the
//! hours no time and another one two.

use std::fmt;
use std::path::Path;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use protocol::time::Nanos;

/// Where United States equity venues keep their clocks.
pub const ZONE: &str = "America/New_York";

/// Years that a date in a file name may have: before 1990 there were no such feeds.
const PLAUSIBLE_YEARS: std::ops::RangeInclusive<i16> = 1990..=2099;

/// Where a session's date came from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DateSource {
    /// The option `--date`.
    Option,
    /// The capture time of the packets.
    Capture,
    /// The file's name.
    FileName,
}

/// A session's date, or the statement that there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionDate {
    midnight: Nanos,
    date: Option<(Date, DateSource)>,
}

impl SessionDate {
    /// `--date none`: times are times of day, counted from zero.
    pub const NONE: SessionDate = SessionDate { midnight: Nanos::ZERO, date: None };

    /// New York's midnight at the start of `date`.
    ///
    /// # Errors
    /// [`DateError::OutOfRange`] for a date whose midnight no UTC nanosecond counter from 1970 holds.
    pub fn new(date: Date, source: DateSource) -> Result<SessionDate, DateError> {
        let midnight = new_york()?
            .to_zoned(date.at(0, 0, 0, 0))
            .ok()
            .and_then(|zoned: Zoned| u64::try_from(zoned.timestamp().as_nanosecond()).ok())
            .filter(|ns| *ns < i64::MAX as u64)
            .ok_or_else(|| DateError::OutOfRange { date: date.to_string() })?;
        Ok(SessionDate { midnight: Nanos(midnight), date: Some((date, source)) })
    }

    /// Local midnight in UTC; zero when there is no date.
    #[inline]
    pub const fn midnight(&self) -> Nanos {
        self.midnight
    }

    /// The date, if there is one.
    pub fn date(&self) -> Option<Date> {
        self.date.map(|(date, _)| date)
    }

    /// Where it came from, if there is one.
    pub fn source(&self) -> Option<DateSource> {
        self.date.map(|(_, source)| source)
    }

    /// Whether times are times of day only: the output is to say so.
    pub fn is_time_of_day(&self) -> bool {
        self.date.is_none()
    }

    /// The UTC time that is `elapsed_ns` after local midnight.
    #[inline]
    pub const fn at(&self, elapsed_ns: u64) -> Nanos {
        self.midnight.plus(elapsed_ns)
    }
}

impl fmt::Display for SessionDate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.date {
            None => write!(f, "no date: times are times of day (--date none)"),
            Some((date, source)) => {
                let from = match source {
                    DateSource::Option => "as given",
                    DateSource::Capture => "from the capture time",
                    DateSource::FileName => "from the file name",
                };
                write!(f, "{date} {from}, midnight in New York")
            }
        }
    }
}

/// Why there is no session date.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DateError {
    /// `--date` is not a date.
    #[error("--date {given}: not a date; give --date YYYY-MM-DD, or --date none for times of day")]
    BadOption {
        /// What was given.
        given: String,
    },
    /// The date cannot be counted in UTC nanoseconds from 1970.
    #[error("the date {date} is outside 1970 to 2262; give another with --date YYYY-MM-DD")]
    OutOfRange {
        /// The date.
        date: String,
    },
    /// The file name holds more than one date.
    #[error("{name}: the name holds the dates {first} and {second}; say which with --date YYYY-MM-DD")]
    Ambiguous {
        /// The file's name.
        name: String,
        /// One of them.
        first: String,
        /// Another.
        second: String,
    },
    /// Nothing says what day it is.
    #[error(
        "{name}: the feed gives times of day only, and neither a capture time nor the file name says which day; give \
         --date YYYY-MM-DD, or --date none for times of day"
    )]
    Unknown {
        /// The file's name.
        name: String,
    },
    /// The zone's rules are not to be had.
    #[error("no rules for the time zone {ZONE}: {cause}; the build lacks its time zone database")]
    Zone {
        /// What was said.
        cause: String,
    },
}

fn new_york() -> Result<TimeZone, DateError> {
    TimeZone::get(ZONE).map_err(|cause| DateError::Zone { cause: cause.to_string() })
}

/// The session's date: `option` (the value of `--date`), else the New York day of `capture`, else a date in the name of
/// `file_name`.
///
/// In a name, these count, if they are dates of the years 1990 to 2099: eight digits `YYYYMMDD` or `MMDDYYYY` (as in
/// Nasdaq's `12302019.NASDAQ_ITCH50.gz`), `YYYY-MM-DD`, and Nasdaq's `SMMDDYY-v50`. Folders are not looked at.
///
/// # Errors
/// [`DateError`]; each names the option `--date`.
pub fn session_date(option: Option<&str>, capture: Option<Nanos>, file_name: &Path) -> Result<SessionDate, DateError> {
    if let Some(given) = option {
        if given.eq_ignore_ascii_case("none") {
            return Ok(SessionDate::NONE);
        }
        let date = dashed_date(given.as_bytes())
            .filter(|_| given.len() == 10)
            .ok_or_else(|| DateError::BadOption { given: given.to_owned() })?;
        return SessionDate::new(date, DateSource::Option);
    }
    if let Some(capture) = capture.filter(|capture| *capture != Nanos::UNDEFINED) {
        let timestamp = Timestamp::from_nanosecond(i128::from(capture.0))
            .map_err(|_| DateError::OutOfRange { date: format!("{} ns after 1970", capture.0) })?;
        return SessionDate::new(timestamp.to_zoned(new_york()?).date(), DateSource::Capture);
    }
    let name = file_name.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let mut found: Option<Date> = None;
    for date in dates_in(name.as_bytes()) {
        match found {
            Some(first) if first != date => {
                return Err(DateError::Ambiguous { name, first: first.to_string(), second: date.to_string() });
            }
            _ => found = Some(date),
        }
    }
    match found {
        Some(date) => SessionDate::new(date, DateSource::FileName),
        None => Err(DateError::Unknown { name }),
    }
}

/// Every plausible date in a file name.
fn dates_in(name: &[u8]) -> Vec<Date> {
    let mut dates = Vec::new();
    let mut at = 0;
    while at < name.len() {
        if !name[at].is_ascii_digit() {
            at += 1;
            continue;
        }
        let len = digits_at(&name[at..]);
        let run = &name[at..at + len];
        let before = at.checked_sub(1).map(|i| name[i]);
        let after = &name[at + len..];
        match len {
            8 => {
                dates.extend(plausible(number(&run[..4]), number(&run[4..6]), number(&run[6..])));
                dates.extend(plausible(number(&run[4..]), number(&run[..2]), number(&run[2..4])));
            }
            6 if before.is_some_and(|byte| byte.eq_ignore_ascii_case(&b'S'))
                && after.len() >= 2
                && after[..2].eq_ignore_ascii_case(b"-v") =>
            {
                dates.extend(plausible(2000 + number(&run[4..]), number(&run[..2]), number(&run[2..4])));
            }
            4 => dates.extend(dashed_date(&name[at..])),
            _ => {}
        }
        at += len;
    }
    dates
}

/// `YYYY-MM-DD` at the start of `text`, with no digit after it.
fn dashed_date(text: &[u8]) -> Option<Date> {
    let (head, rest) = text.split_at_checked(10)?;
    let groups = [&head[..4], &head[5..7], &head[8..]];
    let shaped = head[4] == b'-' && head[7] == b'-' && groups.iter().all(|group| digits_at(group) == group.len());
    if !shaped || digits_at(rest) > 0 {
        return None;
    }
    plausible(number(groups[0]), number(groups[1]), number(groups[2]))
}

fn digits_at(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// The value of up to four digits.
fn number(digits: &[u8]) -> i16 {
    digits.iter().fold(0, |value, digit| value * 10 + i16::from(digit - b'0'))
}

fn plausible(year: i16, month: i16, day: i16) -> Option<Date> {
    if !PLAUSIBLE_YEARS.contains(&year) {
        return None;
    }
    Date::new(year, i8::try_from(month).ok()?, i8::try_from(day).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000_000_000;

    fn of_name(name: &str) -> Result<String, DateError> {
        session_date(None, None, Path::new(name)).map(|date| date.date().expect("a date").to_string())
    }

    fn midnight(date: &str) -> Nanos {
        session_date(Some(date), None, Path::new("")).expect("a date").midnight()
    }

    /// UTC as text, to compare with what a calendar says.
    fn utc(time: Nanos) -> String {
        Timestamp::from_nanosecond(i128::from(time.0)).expect("in range").to_string()
    }

    #[test]
    fn the_option_rules_then_the_capture_then_the_name() {
        let name = Path::new("/data/20100104/12302019.NASDAQ_ITCH50.gz");
        // 2024-06-03T01:00Z is the evening of the 2nd in New York.
        let capture = Some(Nanos(1_717_376_400_000_000_000));
        let got = |option, capture| {
            let date = session_date(option, capture, name).expect("a date");
            (date.date().map(|date| date.to_string()), date.source())
        };
        assert_eq!(got(Some("2021-05-06"), capture), (Some("2021-05-06".into()), Some(DateSource::Option)));
        assert_eq!(got(None, capture), (Some("2024-06-02".into()), Some(DateSource::Capture)));
        assert_eq!(got(None, None), (Some("2019-12-30".into()), Some(DateSource::FileName)));
        assert_eq!(got(None, Some(Nanos::UNDEFINED)).1, Some(DateSource::FileName));
        assert_eq!(got(Some("none"), capture), (None, None));
    }

    #[test]
    fn names_as_venues_and_people_write_them() {
        for (name, date) in [
            ("ex20101224.itch", "2010-12-24"),
            ("ex20101224.zero-length-prefixes.itch", "2010-12-24"),
            ("xnas-20230822-slice.itch", "2023-08-22"),
            ("12302019.NASDAQ_ITCH50.gz", "2019-12-30"),
            ("S081321-v50.txt.gz", "2021-08-13"),
            ("s020217-v50-bx.txt", "2017-02-02"),
            ("day_2024-02-29_x.itch", "2024-02-29"),
            ("2024-02-29.2024-02-29.itch", "2024-02-29"),
            ("20180127_IEXTP1_DEEP1.0.pcap", "2018-01-27"),
        ] {
            assert_eq!(of_name(name), Ok(date.to_owned()), "{name}");
        }
    }

    #[test]
    fn what_is_no_plausible_date_is_not_taken_for_one() {
        for name in [
            "synthetic-3-symbols.itch",
            "nasdaq-first-1000-messages.itch",
            "20230229.itch",
            "2023-02-29.itch",
            "13312019.itch",
            "18991231.itch",
            "S081321.txt",
            "081321-v50.txt",
            "120230822.itch",
            "2024-02-291.itch",
            "2024-2-29.itch",
            "",
        ] {
            let error = of_name(name).expect_err(name);
            assert!(matches!(error, DateError::Unknown { .. }), "{name}: {error}");
            assert!(error.to_string().contains("--date"), "{error}");
        }
    }

    #[test]
    fn two_dates_in_one_name_are_an_error_that_names_both() {
        let error = of_name("20240102-20240103.itch").expect_err("two dates").to_string();
        assert!(error.contains("2024-01-02") && error.contains("2024-01-03") && error.contains("--date"), "{error}");
    }

    #[test]
    fn a_bad_option_is_refused() {
        for given in ["", "yesterday", "2024-13-01", "20240102", "2024-01-02x", " 2024-01-02", "9999-01-01"] {
            let error = session_date(Some(given), None, Path::new("20240102")).expect_err(given);
            assert!(error.to_string().contains("--date"), "{given}: {error}");
        }
    }

    #[test]
    fn midnight_follows_daylight_saving() {
        assert_eq!(utc(midnight("2024-01-02")), "2024-01-02T05:00:00Z");
        assert_eq!(utc(midnight("2024-03-08")), "2024-03-08T05:00:00Z");
        assert_eq!(utc(midnight("2024-03-11")), "2024-03-11T04:00:00Z");
        assert_eq!(utc(midnight("2024-11-01")), "2024-11-01T04:00:00Z");
        assert_eq!(utc(midnight("2024-11-04")), "2024-11-04T05:00:00Z");
    }

    #[test]
    fn the_day_of_23_hours_and_the_day_of_25_hours_meet_the_next() {
        for (day, next, hours) in [("2024-03-10", "2024-03-11", 23), ("2024-11-03", "2024-11-04", 25)] {
            let date = session_date(Some(day), None, Path::new("")).expect("a date");
            assert_eq!(date.at(hours * HOUR), midnight(next), "{day}");
        }
        let spring = session_date(Some("2024-03-10"), None, Path::new("")).expect("a date");
        assert_eq!(utc(spring.at(2 * HOUR)), "2024-03-10T07:00:00Z", "clocks go from 2 to 3 at this moment");
        let autumn = session_date(Some("2024-11-03"), None, Path::new("")).expect("a date");
        assert_eq!(utc(autumn.at(2 * HOUR)), "2024-11-03T06:00:00Z", "clocks go from 2 back to 1 at this moment");
    }

    #[test]
    fn the_last_nanosecond_of_a_day_is_still_that_day() {
        let date = session_date(Some("2024-06-03"), None, Path::new("")).expect("a date");
        assert_eq!(utc(date.at(24 * HOUR - 1)), "2024-06-04T03:59:59.999999999Z");
        assert_eq!(date.at(24 * HOUR), midnight("2024-06-04"));
    }

    #[test]
    fn without_a_date_times_are_times_of_day_and_the_output_says_so() {
        let none = session_date(Some("None"), None, Path::new("")).expect("no date is wanted");
        assert!(none.is_time_of_day());
        assert_eq!(none.at(34_200_000_000_000), Nanos(34_200_000_000_000));
        assert!(none.to_string().contains("times of day"));
        let some = session_date(Some("2024-06-03"), None, Path::new("")).expect("a date");
        assert_eq!(some.to_string(), "2024-06-03 as given, midnight in New York");
    }
}
