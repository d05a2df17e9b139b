//! Prices and sizes as decimal text.

use std::fmt;

use crate::record::UNDEFINED_PRICE;

/// A price (or size) as `value * 10^exponent`, printed exactly and without needless zeros: `101.25`, `-0.5`, `7`.
///
/// [`UNDEFINED_PRICE`] prints as `-`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decimal {
    /// The digits.
    pub value: i64,
    /// The power of ten they count in.
    pub exponent: i32,
}

impl Decimal {
    /// In the default price unit, 10^-9.
    pub const fn nano(value: i64) -> Decimal {
        Decimal { value, exponent: -9 }
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.value == UNDEFINED_PRICE {
            return f.pad("-");
        }
        let digits = self.value.unsigned_abs().to_string();
        let sign = if self.value < 0 { "-" } else { "" };
        let text = if self.exponent >= 0 {
            // Exponents come from a Definition's text; anything a price could have fits in a line.
            let zeros = if self.value == 0 { 0 } else { self.exponent.min(64) as usize };
            format!("{sign}{digits}{}", "0".repeat(zeros))
        } else {
            let places = self.exponent.unsigned_abs().min(64) as usize;
            let padded = format!("{digits:0>width$}", width = places + 1);
            let (whole, fraction) = padded.split_at(padded.len() - places);
            let fraction = fraction.trim_end_matches('0');
            let point = if fraction.is_empty() { "" } else { "." };
            format!("{sign}{whole}{point}{fraction}")
        };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact() {
        let text = |value, exponent| Decimal { value, exponent }.to_string();
        assert_eq!(text(101_250_000_000, -9), "101.25");
        assert_eq!(text(-500_000_000, -9), "-0.5");
        assert_eq!(text(7_000_000_000, -9), "7");
        assert_eq!(text(1, -9), "0.000000001");
        assert_eq!(text(i64::MIN, -9), "-9223372036.854775808");
        assert_eq!(text(0, -9), "0");
        assert_eq!(text(12, 3), "12000");
        assert_eq!(text(0, 3), "0");
        assert_eq!(text(5, i32::MIN).len(), 66);
        assert_eq!(text(UNDEFINED_PRICE, -9), "-");
        assert_eq!(format!("{:>8}|", Decimal::nano(1_500_000_000)), "     1.5|");
    }
}
