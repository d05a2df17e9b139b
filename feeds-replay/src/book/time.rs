//! Times as people write them: RFC 3339, or the exchange's time of day.

use std::fmt;

use jiff::Timestamp;
use protocol::time::Nanos;
use publisher::date::SessionDate;

const SECOND: u64 = 1_000_000_000;

/// A moment, as it was given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// RFC 3339: a point in time, wherever one is.
    Utc(Nanos),
    /// The exchange's time of day, in ns since its midnight.
    TimeOfDay(u64),
}

/// Why a text is no moment, or not one of this session.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MomentError {
    /// Neither form.
    #[error(
        "'{given}' is no time; give the exchange's time of day, such as 09:30:00 or 15:59:59.999999999, or RFC 3339, such as \
         2019-12-30T09:30:00-05:00 or 2019-12-30T14:30:00Z"
    )]
    Malformed {
        /// What was given.
        given: String,
    },
    /// A point in time, and a session without a date.
    #[error(
        "a date was given with the time, and the capture has none (--date none); give the time of day, such as 09:30:00"
    )]
    NoDate,
}

impl std::str::FromStr for Moment {
    type Err = MomentError;

    fn from_str(given: &str) -> Result<Moment, MomentError> {
        if let Some(elapsed_ns) = time_of_day(given) {
            return Ok(Moment::TimeOfDay(elapsed_ns));
        }
        let malformed = || MomentError::Malformed { given: given.to_owned() };
        // RFC 3339 has a date, `T` (or a space), a time with seconds, and an offset. The library reads more than that.
        let shaped = given.len() >= 20 && given.as_bytes()[10..].contains(&b':') && !given.contains('[');
        let timestamp: Timestamp = given.parse().ok().filter(|_| shaped).ok_or_else(malformed)?;
        u64::try_from(timestamp.as_nanosecond()).map(|ns| Moment::Utc(Nanos(ns))).map_err(|_| malformed())
    }
}

impl Moment {
    /// The moment in the times of a session with this date.
    ///
    /// # Errors
    /// [`MomentError::NoDate`]: a session whose times are times of day knows no others.
    pub fn in_session(self, date: &SessionDate) -> Result<Nanos, MomentError> {
        match self {
            Moment::TimeOfDay(elapsed_ns) => Ok(date.at(elapsed_ns)),
            Moment::Utc(_) if date.is_time_of_day() => Err(MomentError::NoDate),
            Moment::Utc(time) => Ok(time),
        }
    }
}

/// `HH:MM:SS`, with up to nine decimals: ns since midnight.
fn time_of_day(text: &str) -> Option<u64> {
    let (whole, fraction) = match text.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (text, None),
    };
    let mut parts = whole.split(':');
    let mut number = |below: u64| {
        let part = parts.next().filter(|part| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit()))?;
        part.parse().ok().filter(|number| *number < below)
    };
    let (hours, minutes, seconds): (u64, u64, u64) = (number(24)?, number(60)?, number(60)?);
    if parts.next().is_some() {
        return None;
    }
    let nanos = match fraction {
        None => 0,
        Some(digits) if (1..=9).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse::<u64>().ok()? * 10u64.pow(9 - digits.len() as u32)
        }
        Some(_) => return None,
    };
    Some((hours * 3600 + minutes * 60 + seconds) * SECOND + nanos)
}

/// A time of a session, for people: the exchange's time of day and, where there is a date, UTC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct When {
    /// The time, as the session's records have it.
    pub time: Nanos,
    /// The session's date.
    pub date: SessionDate,
}

impl When {
    /// The exchange's time of day, `HH:MM:SS.nnnnnnnnn`. Past its midnight the hours go on from 24.
    pub fn exchange(&self) -> String {
        let before = if self.time < self.date.midnight() { "-" } else { "" };
        let elapsed_ns = self.time.0.abs_diff(self.date.midnight().0);
        let seconds = elapsed_ns / SECOND;
        let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
        format!("{before}{hours:02}:{minutes:02}:{:02}.{:09}", seconds % 60, elapsed_ns % SECOND)
    }

    /// RFC 3339 in UTC; `None` where the session has no date.
    pub fn utc(&self) -> Option<String> {
        if self.date.is_time_of_day() {
            return None;
        }
        Timestamp::from_nanosecond(i128::from(self.time.0)).ok().map(|timestamp| timestamp.to_string())
    }
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.utc() {
            Some(utc) => write!(f, "{} ({utc})", self.exchange()),
            None => write!(f, "{}", self.exchange()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use publisher::date::session_date;

    const HALF_PAST_NINE: u64 = (9 * 3600 + 30 * 60) * SECOND;

    fn winter() -> SessionDate {
        session_date(Some("2019-12-30"), None, Path::new("")).expect("a date")
    }

    #[test]
    fn both_forms_name_the_same_moment() {
        let asked = |text: &str| text.parse::<Moment>().and_then(|moment| moment.in_session(&winter()));
        let open = asked("09:30:00").expect("a time of day");
        assert_eq!(open, winter().at(HALF_PAST_NINE));
        for same in ["09:30:00.0", "09:30:00.000000000", "2019-12-30T14:30:00Z", "2019-12-30T09:30:00-05:00"] {
            assert_eq!(asked(same), Ok(open), "{same}");
        }
        assert_eq!(asked("09:30:00.000000001"), Ok(open.plus(1)));
        assert_eq!(asked("2019-12-30T14:30:00.000000001z"), Ok(open.plus(1)));
        assert_eq!(asked("09:30:00.5"), Ok(open.plus(SECOND / 2)));
        assert_eq!(asked("23:59:59.999999999"), Ok(winter().at(86_400 * SECOND - 1)));
    }

    #[test]
    fn what_is_neither_form_is_refused_with_examples() {
        for given in [
            "",
            "9:30:00",
            "09:30",
            "24:00:00",
            "09:60:00",
            "09:30:60",
            "09:30:00.",
            "09:30:00.1234567890",
            "09:30:00,5",
            "2019-12-30",
            "2019-12-30T09:30:00",
            "2019-12-30T09:30:00[America/New_York]",
            "1960-01-01T00:00:00Z",
            "+9:30:00",
        ] {
            let error = given.parse::<Moment>().expect_err(given).to_string();
            assert!(error.contains("09:30:00") && error.contains("RFC 3339"), "{error}");
        }
    }

    #[test]
    fn a_session_without_a_date_takes_times_of_day_only() {
        let of_day: Moment = "09:30:00".parse().expect("a time of day");
        assert_eq!(of_day.in_session(&SessionDate::NONE), Ok(Nanos(HALF_PAST_NINE)));
        let utc: Moment = "2019-12-30T14:30:00Z".parse().expect("RFC 3339");
        assert_eq!(utc.in_session(&SessionDate::NONE), Err(MomentError::NoDate));
    }

    #[test]
    fn times_are_printed_in_both_forms() {
        let when = When { time: winter().at(HALF_PAST_NINE + 5), date: winter() };
        assert_eq!(when.to_string(), "09:30:00.000000005 (2019-12-30T14:30:00.000000005Z)");
        let when = When { time: Nanos(25 * 3600 * SECOND), date: SessionDate::NONE };
        assert_eq!(when.to_string(), "25:00:00.000000000");
    }
}
