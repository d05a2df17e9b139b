//! One row, and which rows are of one moment.

use protocol::record::Side;

use super::HEADER;
use crate::text::decimal;

/// A level after a change, or in a snapshot. Price and amount are text still: their unit is for who keeps the book.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row<'a> {
    /// The venue, in the recorder's words.
    pub exchange: &'a [u8],
    /// The venue's own symbol.
    pub symbol: &'a [u8],
    /// By the venue's clock, or the recorder's where the venue gives none; ns since 1970.
    pub time: u64,
    /// When it was received, ns since 1970.
    pub local_time: u64,
    /// It is a part of a whole book.
    pub is_snapshot: bool,
    /// Bid or ask.
    pub side: Side,
    /// Decimal text.
    pub price: &'a [u8],
    /// Decimal text; 0 deletes.
    pub amount: &'a [u8],
}

/// Why a row is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadRow {
    /// Not eight fields.
    #[error("it has {0} fields instead of 8")]
    Fields(usize),
    /// A field that is not what it has to be.
    #[error("its {0} cannot be read")]
    Field(&'static str),
}

/// The eight fields, or how many there are.
fn fields(line: &[u8]) -> Result<[&[u8]; 8], usize> {
    let mut found = [&line[..0]; 8];
    let mut count = 0;
    for field in line.split(|byte| *byte == b',') {
        if let Some(place) = found.get_mut(count) {
            *place = field;
        }
        count += 1;
    }
    if count == 8 { Ok(found) } else { Err(count) }
}

/// Microseconds since 1970 in ns.
fn microseconds(field: &[u8]) -> Option<u64> {
    decimal::whole(field)?.checked_mul(1_000)
}

impl<'a> Row<'a> {
    /// Reads a row.
    ///
    /// # Errors
    /// [`BadRow`].
    pub fn parse(line: &'a [u8]) -> Result<Row<'a>, BadRow> {
        let [exchange, symbol, time, local_time, is_snapshot, side, price, amount] =
            fields(line).map_err(BadRow::Fields)?;
        let decimal = |field: &[u8]| decimal::parse(field, 0) != Err(decimal::NotExact::Text);
        if symbol.is_empty() {
            return Err(BadRow::Field("symbol"));
        }
        Ok(Row {
            exchange,
            symbol,
            time: microseconds(time).ok_or(BadRow::Field("timestamp"))?,
            local_time: microseconds(local_time).ok_or(BadRow::Field("local_timestamp"))?,
            is_snapshot: match is_snapshot {
                b"true" => true,
                b"false" => false,
                _ => return Err(BadRow::Field("is_snapshot")),
            },
            side: match side {
                b"bid" => Side::BID,
                b"ask" => Side::ASK,
                _ => return Err(BadRow::Field("side")),
            },
            price: Some(price).filter(|price| decimal(price)).ok_or(BadRow::Field("price"))?,
            amount: Some(amount).filter(|amount| decimal(amount)).ok_or(BadRow::Field("amount"))?,
        })
    }
}

/// Whether a line is the header.
pub fn is_header(line: &[u8]) -> bool {
    line == HEADER
}

/// Whether two rows came in one message: of one symbol, received at one time, of one kind.
pub fn belong_together(one: &[u8], other: &[u8]) -> bool {
    let (Ok(one), Ok(other)) = (fields(one), fields(other)) else { return false };
    [0, 1, 3, 4].into_iter().all(|at| one[at] == other[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &str = "deribit,BTC-PERPETUAL,1585699200245000,1585699200250000,false,bid,6420.5,0.25";

    #[test]
    fn microseconds_are_microseconds_and_decimals_stay_text() {
        let row = Row::parse(ROW.as_bytes()).expect("a row");
        assert_eq!((row.exchange, row.symbol), (&b"deribit"[..], &b"BTC-PERPETUAL"[..]));
        assert_eq!((row.time, row.local_time), (1_585_699_200_245_000_000, 1_585_699_200_250_000_000));
        assert_eq!(
            (row.is_snapshot, row.side, row.price, row.amount),
            (false, Side::BID, &b"6420.5"[..], &b"0.25"[..])
        );
    }

    #[test]
    fn what_is_no_row_says_why() {
        let with =
            |from: &str, to: &str| Row::parse(ROW.replacen(from, to, 1).as_bytes()).map(|_| ()).expect_err("bad");
        assert_eq!(with(",bid", ""), BadRow::Fields(7));
        assert_eq!(with("0.25", "0.25,x"), BadRow::Fields(9));
        assert_eq!(with("BTC-PERPETUAL", ""), BadRow::Field("symbol"));
        assert_eq!(with("1585699200245000", "2020-04-01"), BadRow::Field("timestamp"));
        assert_eq!(with("1585699200250000", "-1"), BadRow::Field("local_timestamp"));
        assert_eq!(with("false", "0"), BadRow::Field("is_snapshot"));
        assert_eq!(with("bid", "buy"), BadRow::Field("side"));
        assert_eq!(with("6420.5", "6420,5"), BadRow::Fields(9));
        assert_eq!(with("6420.5", "x"), BadRow::Field("price"));
        assert_eq!(with("0.25", ""), BadRow::Field("amount"));
    }

    #[test]
    fn rows_of_one_message_are_told_by_symbol_local_time_and_kind() {
        let other = |from: &str, to: &str| belong_together(ROW.as_bytes(), ROW.replacen(from, to, 1).as_bytes());
        assert!(other("bid", "ask") && other("6420.5", "1") && other("1585699200245000", "1585699200246000"));
        assert!(!other("deribit", "bitmex") && !other("BTC", "ETH") && !other("false", "true"));
        assert!(!other("1585699200250000", "1585699200250001"));
        assert!(!belong_together(ROW.as_bytes(), b"x"));
    }
}
