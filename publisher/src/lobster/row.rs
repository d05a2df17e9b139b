//! One row of the message file.
//!
//! ```text
//!  time, type, order id, size, price, direction          34200.004241176,1,16113575,18,5853300,1
//! ```

use protocol::record::Side;

use crate::text::decimal;

/// What a row tells of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RowType {
    /// A new limit order.
    New,
    /// A part of an order was cancelled.
    Cancel,
    /// All that was left of an order was.
    Delete,
    /// A displayed order was executed.
    Execute,
    /// An order that was never displayed was executed.
    Hidden,
    /// An auction printed.
    Cross,
    /// Trading was halted or resumed: the price says which.
    Halt,
}

impl RowType {
    /// All of them, 1 to 7.
    pub const ALL: [RowType; 7] = [
        RowType::New,
        RowType::Cancel,
        RowType::Delete,
        RowType::Execute,
        RowType::Hidden,
        RowType::Cross,
        RowType::Halt,
    ];

    /// In reports.
    pub const fn name(self) -> &'static str {
        match self {
            RowType::New => "new",
            RowType::Cancel => "cancel",
            RowType::Delete => "delete",
            RowType::Execute => "execute",
            RowType::Hidden => "hidden",
            RowType::Cross => "cross",
            RowType::Halt => "halt",
        }
    }

    /// The type of a digit.
    pub fn of(digit: u8) -> Option<RowType> {
        RowType::ALL.get(usize::from(digit.wrapping_sub(b'1'))).copied()
    }
}

/// A row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// ns since midnight in New York.
    pub time: u64,
    /// What it tells of.
    pub row_type: RowType,
    /// The order; below zero in crosses, 0 for hidden orders and halts.
    pub order_id: i64,
    /// Shares.
    pub size: u64,
    /// In 10^-4 dollars; in a halt -1, 0 or 1.
    pub price: i64,
    /// Of the resting order.
    pub side: Side,
}

/// Why a row is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadRow {
    /// Not six fields.
    #[error("it has {0} fields instead of 6")]
    Fields(usize),
    /// A type that there is not.
    #[error("there is no such type")]
    Type,
    /// A field that is not what it has to be.
    #[error("its {0} cannot be read")]
    Field(&'static str),
}

impl Row {
    /// Reads a row.
    ///
    /// # Errors
    /// [`BadRow`].
    pub fn parse(line: &[u8]) -> Result<Row, BadRow> {
        let mut fields = [&line[..0]; 6];
        let mut count = 0;
        for field in line.split(|byte| *byte == b',') {
            if let Some(place) = fields.get_mut(count) {
                *place = field;
            }
            count += 1;
        }
        if count != 6 {
            return Err(BadRow::Fields(count));
        }
        let [time, row_type, order_id, size, price, side] = fields;
        let number = |field, name| decimal::parse(field, 0).map_err(|_| BadRow::Field(name));
        let time = decimal::parse_size(time, 9).map_err(|_| BadRow::Field("time"))?;
        let row_type = match row_type {
            [digit] => RowType::of(*digit).ok_or(BadRow::Type)?,
            _ => return Err(BadRow::Type),
        };
        Ok(Row {
            time,
            row_type,
            order_id: number(order_id, "order id")?,
            size: decimal::parse_size(size, 0).map_err(|_| BadRow::Field("size"))?,
            price: number(price, "price")?,
            side: match side {
                b"1" => Side::BID,
                b"-1" => Side::ASK,
                _ => return Err(BadRow::Field("direction")),
            },
        })
    }

    /// The type digit of a line, whatever else is in it.
    pub fn type_of(line: &[u8]) -> Option<u8> {
        match line.split(|byte| *byte == b',').nth(1) {
            Some([digit]) => Some(*digit),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_exact_to_the_nanosecond() {
        let row = Row::parse(b"86399.999999999,2,9007199254740993,4294967297,5853300,-1").expect("a row");
        let expected = Row {
            time: 86_399_999_999_999,
            row_type: RowType::Cancel,
            order_id: 9_007_199_254_740_993,
            size: 1 << 32 | 1,
            price: 5_853_300,
            side: Side::ASK,
        };
        assert_eq!(row, expected);
    }

    #[test]
    fn what_is_no_row_says_why() {
        for (line, bad) in [
            (&b""[..], BadRow::Fields(1)),
            (b"1,2,3", BadRow::Fields(3)),
            (b"1.0,1,2,3,4,1,5", BadRow::Fields(7)),
            (b"1.0,8,2,3,4,1", BadRow::Type),
            (b"1.0,0,2,3,4,1", BadRow::Type),
            (b"1.0,11,2,3,4,1", BadRow::Type),
            (b"x,1,2,3,4,1", BadRow::Field("time")),
            (b"1.0000000001,1,2,3,4,1", BadRow::Field("time")),
            (b"1.0,1,2x,3,4,1", BadRow::Field("order id")),
            (b"1.0,1,2,-3,4,1", BadRow::Field("size")),
            (b"1.0,1,2,3,4.5,1", BadRow::Field("price")),
            (b"1.0,1,2,3,4,0", BadRow::Field("direction")),
        ] {
            assert_eq!(Row::parse(line), Err(bad), "{}", String::from_utf8_lossy(line));
        }
        assert_eq!(Row::parse(b"1,1,2,3,4,1").map(|row| row.time), Ok(1_000_000_000));
    }
}
