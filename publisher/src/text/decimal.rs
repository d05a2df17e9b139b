//! Decimal text as whole numbers, exactly.

/// Why text is no number that is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotExact {
    /// It is no decimal number.
    Text,
    /// It is one, and more digits stand behind the point than the unit holds, or more before it than the type.
    Range,
}

/// The value of decimal text in units of 10^-`places`: `"1.5"` in 3 places is 1500.
///
/// A sign, digits, and a point with digits behind it; zeros beyond the places are forgiven. So is an exponent, which some
/// writers put behind small numbers (`1e-7`).
///
/// # Errors
/// [`NotExact`].
pub fn parse(text: &[u8], places: u32) -> Result<i64, NotExact> {
    let (text, negative) = match text {
        [b'-', rest @ ..] => (rest, true),
        [b'+', rest @ ..] => (rest, false),
        text => (text, false),
    };
    let (mantissa, exponent) = match text.iter().position(|byte| matches!(byte, b'e' | b'E')) {
        Some(at) => (&text[..at], exponent_of(&text[at + 1..])?),
        None => (text, 0),
    };
    let mut value: i64 = 0;
    let mut digits = 0u32;
    // The power of ten by which the digits so far are short of the unit.
    let mut short = i64::from(places) + exponent;
    let mut behind_point = false;
    for &byte in mantissa {
        match byte {
            b'0'..=b'9' => {
                digits += 1;
                let digit = i64::from(byte - b'0');
                if behind_point {
                    if short <= 0 {
                        // Beyond the unit nothing but zeros may stand.
                        if digit != 0 {
                            return reject_unless_decimal(mantissa);
                        }
                        continue;
                    }
                    short -= 1;
                }
                value = match value.checked_mul(10).and_then(|value| value.checked_add(digit)) {
                    Some(value) => value,
                    None => return reject_unless_decimal(mantissa),
                };
            }
            b'.' if !behind_point => behind_point = true,
            _ => return Err(NotExact::Text),
        }
    }
    if digits == 0 {
        return Err(NotExact::Text);
    }
    while short > 0 && value != 0 {
        value = value.checked_mul(10).ok_or(NotExact::Range)?;
        short -= 1;
    }
    while short < 0 && value != 0 {
        if value % 10 != 0 {
            return Err(NotExact::Range);
        }
        value /= 10;
        short += 1;
    }
    Ok(if negative { -value } else { value })
}

/// As [`parse`], for what is never below zero.
///
/// # Errors
/// [`NotExact`].
pub fn parse_size(text: &[u8], places: u32) -> Result<u64, NotExact> {
    parse(text, places).and_then(|value| u64::try_from(value).map_err(|_| NotExact::Range))
}

/// A whole number without sign, point or exponent.
pub fn whole(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |value, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value.checked_mul(10)?.checked_add(digit.into())
    })
}

/// A time since 1970 in ns; whether it was counted in seconds, milliseconds, microseconds or nanoseconds is told by its
/// digits: of times from 2001 to 2286 they are 10, 13, 16 and 19.
pub fn epoch_time(text: &[u8]) -> Option<u64> {
    let value = whole(text)?;
    let unit = match text.len() {
        10 => 1_000_000_000,
        13 => 1_000_000,
        16 => 1_000,
        19 => 1,
        _ => return None,
    };
    value.checked_mul(unit)
}

fn exponent_of(text: &[u8]) -> Result<i64, NotExact> {
    let (digits, sign) = match text {
        [b'-', rest @ ..] => (rest, -1),
        [b'+', rest @ ..] => (rest, 1),
        text => (text, 1),
    };
    let value = whole(digits).ok_or(NotExact::Text)?;
    // No number that fits has more.
    if value > 64 { Err(NotExact::Range) } else { Ok(sign * value as i64) }
}

fn reject_unless_decimal(mantissa: &[u8]) -> Result<i64, NotExact> {
    let points = mantissa.iter().filter(|byte| **byte == b'.').count();
    let rest = mantissa.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
    Err(if rest && points <= 1 { NotExact::Range } else { NotExact::Text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_text_is_exact_and_never_a_float() {
        assert_eq!(parse(b"61837.63000000", 9), Ok(61_837_630_000_000));
        // The nearest double to 0.1 + 0.2 is not 0.3; to 9007199254.740993 it is another number.
        assert_eq!(parse(b"9007199254.740993", 9), Ok(9_007_199_254_740_993_000));
        assert_eq!(parse(b"0.000000001", 9), Ok(1));
        assert_eq!(parse(b"-0.5", 1), Ok(-5));
        assert_eq!(parse(b"7", 0), Ok(7));
        assert_eq!(parse(b".5", 2), Ok(50));
        assert_eq!(parse(b"5.", 2), Ok(500));
        assert_eq!(parse(b"1.5000", 1), Ok(15));
        assert_eq!(parse(b"34200.004241176", 9), Ok(34_200_004_241_176));
        assert_eq!(parse(b"1e-7", 9), Ok(100));
        assert_eq!(parse(b"1.25E2", 0), Ok(125));
        assert_eq!(parse(b"1200e-2", 0), Ok(12));
        assert_eq!(parse(b"0e-60", 9), Ok(0));
    }

    #[test]
    fn what_the_unit_does_not_hold_is_refused_and_never_rounded() {
        for text in
            [&b"0.15"[..], b"1.999", b"9223372036854775808", b"99999999999999999999.5", b"1e30", b"15e-2", b"1e-99"]
        {
            assert_eq!(parse(text, 1), Err(NotExact::Range), "{}", String::from_utf8_lossy(text));
        }
        for text in [&b""[..], b"-", b".", b"1.2.3", b"1,5", b"0x10", b"NaN", b"1e", b"e5", b" 1", b"--1", b"0.15x"] {
            assert_eq!(parse(text, 1), Err(NotExact::Text), "{}", String::from_utf8_lossy(text));
        }
        assert_eq!(parse_size(b"-1", 0), Err(NotExact::Range));
        assert_eq!((whole(b"18446744073709551615"), whole(b"18446744073709551616")), (Some(u64::MAX), None));
    }

    #[test]
    fn seconds_milliseconds_microseconds_and_nanoseconds_are_told_by_their_digits() {
        let time = 1_723_161_255_208_000_000;
        assert_eq!(epoch_time(b"1723161255208"), Some(time));
        assert_eq!(epoch_time(b"1723161255208000"), Some(time));
        assert_eq!(epoch_time(b"1723161255208000000"), Some(time));
        assert_eq!(epoch_time(b"1723161255"), Some(1_723_161_255_000_000_000));
        assert_eq!((epoch_time(b"172316125520"), epoch_time(b"17231612552x8")), (None, None));
        assert_eq!(epoch_time(b"9999999999"), Some(9_999_999_999_000_000_000));
    }
}
