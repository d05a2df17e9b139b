//! A book in words, and as JSON.

use std::fmt::Write;

use protocol::book::{BookState, Level};
use protocol::price::Decimal;
use serde_json::{Value, json};

use super::{BookImage, When};

/// A price as decimal text, exactly.
pub(super) fn price(value: i64, exponent: i32) -> String {
    Decimal { value, exponent }.to_string()
}

/// The book as JSON: `bids` and `asks`, best first, each with `price` as a decimal string, `size` and `orders`;
/// `resting_orders`; `state`; and which book this is, as of when. At most `depth` levels a side.
pub fn json(image: &BookImage, depth: usize) -> Value {
    let levels = |levels: &[Level]| -> Vec<Value> {
        let level = |level: &Level| {
            json!({
                "price": price(level.price, image.price_exponent), "size": level.size, "orders": level.orders,
            })
        };
        levels.iter().take(depth).map(level).collect()
    };
    let moment = |time| {
        let when = When { time, date: image.date };
        json!({"ns": when.time.0, "exchange": when.exchange(), "utc": when.utc()})
    };
    json!({
        "symbol": image.symbol,
        "state": format!("{:?}", image.state),
        "starts_in_mid_day": image.mid_day,
        "at": image.at.map(moment),
        "last_event": moment(image.last.time),
        "messages": image.last.message,
        "last_event_of_symbol": image.last_own.map(|event| moment(event.time)),
        "resting_orders": image.resting_orders,
        "bid_levels": image.bids.len(),
        "ask_levels": image.asks.len(),
        "bids": levels(&image.bids),
        "asks": levels(&image.asks),
        "error": image.cut.as_ref().map(ToString::to_string),
        "warning": image.warning,
    })
}

/// The book in words: what it is first, then at most `depth` levels a side, side by side.
pub fn text(image: &BookImage, depth: usize) -> String {
    let when = |time| When { time, date: image.date };
    let mut out = String::new();
    let doubt = match image.state {
        BookState::Suspect if image.mid_day => {
            ": the capture starts in mid-day, so what rested before is missing".to_owned()
        }
        BookState::Suspect => ": the venue's own messages do not agree with each other, or some are lost".to_owned(),
        BookState::Unknown => ": nothing says what it holds".to_owned(),
        _ => String::new(),
    };
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{} is {:?}{doubt}", image.symbol, image.state);
    let _ = writeln!(out, "after message {}, {}", image.last.message, when(image.last.time));
    if let Some(own) = image.last_own {
        let _ = writeln!(out, "last event of {}: message {}, {}", image.symbol, own.message, when(own.time));
    }
    let _ = writeln!(
        out,
        "{} orders rest on {} bid and {} ask levels\n",
        image.resting_orders,
        image.bids.len(),
        image.asks.len()
    );
    let _ =
        writeln!(out, "{:>7} {:>12} {:>14} | {:<14} {:<12} {:<7}", "orders", "size", "bid", "ask", "size", "orders");
    let rows = image.bids.len().max(image.asks.len()).min(depth);
    for row in 0..rows {
        let bid = image.bids.get(row).map_or_else(
            || format!("{:35}", ""),
            |level| format!("{:>7} {:>12} {:>14}", level.orders, level.size, price(level.price, image.price_exponent)),
        );
        let ask = image.asks.get(row).map_or_else(String::new, |level| {
            format!("{:<14} {:<12} {}", price(level.price, image.price_exponent), level.size, level.orders)
        });
        let _ = writeln!(out, "{}", format!("{bid} | {ask}").trim_end());
    }
    let more = image.bids.len().max(image.asks.len()) - rows;
    if more > 0 {
        let _ = writeln!(out, "{more} more levels down; --depth shows them");
    }
    out
}
