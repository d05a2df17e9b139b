//! One line: what it is, and its fields.

use crate::text::{decimal, json};

/// What a line says. Prices and sizes are decimal text still, levels JSON.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Update<'a> {
    /// Levels that changed, absolute.
    Depth(Depth<'a>),
    /// A whole book, or its best levels.
    Snapshot(Snapshot<'a>),
    /// The best bid and ask.
    Ticker(Ticker<'a>),
    /// A trade.
    Trade(Trade<'a>),
}

/// `depthUpdate`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Depth<'a> {
    /// The venue's symbol.
    pub symbol: &'a [u8],
    /// `E` in ns.
    pub time: Option<u64>,
    /// `U`: the first update in it.
    pub first: u64,
    /// `u`: the last.
    pub last: u64,
    /// `pu`: the last of the diff before, where the venue says it.
    pub previous: Option<u64>,
    /// `[["price","size"],…]`.
    pub bids: &'a [u8],
    /// The same.
    pub asks: &'a [u8],
}

/// A picture of a book.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Snapshot<'a> {
    /// Whose, where it came in a stream; what is asked for does not say.
    pub symbol: Option<&'a [u8]>,
    /// It shows the best levels only, again and again: a stream of its own.
    pub is_partial: bool,
    /// `E` in ns, where it has one.
    pub time: Option<u64>,
    /// The last update in it.
    pub last: u64,
    /// As in a diff.
    pub bids: &'a [u8],
    /// The same.
    pub asks: &'a [u8],
}

/// `bookTicker`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticker<'a> {
    /// The venue's symbol.
    pub symbol: &'a [u8],
    /// `T` or `E` in ns, where it has one.
    pub time: Option<u64>,
    /// `u`: the update.
    pub last: u64,
    /// Price and size.
    pub bid: (&'a [u8], &'a [u8]),
    /// Price and size.
    pub ask: (&'a [u8], &'a [u8]),
}

/// `trade` or `aggTrade`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trade<'a> {
    /// The venue's symbol.
    pub symbol: &'a [u8],
    /// Fills of one taker at one price are one.
    pub is_aggregate: bool,
    /// `T`, else `E`, in ns.
    pub time: Option<u64>,
    /// `t` or `a`.
    pub id: u64,
    /// Decimal text.
    pub price: &'a [u8],
    /// Decimal text.
    pub size: &'a [u8],
    /// The buyer's order rested: the seller started it.
    pub buyer_is_maker: bool,
}

/// Why a line is none of these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Malformed {
    /// It is no JSON object, or not whole.
    Json,
    /// An object of a kind that is not read here.
    Unknown,
    /// A known kind, by the letter it is counted under; this field is missing or cannot be read.
    Field(u8, &'static str),
}

/// The letters that messages are counted by.
pub mod letter {
    /// A diff.
    pub const DEPTH: u8 = b'd';
    /// A snapshot.
    pub const SNAPSHOT: u8 = b's';
    /// Best prices.
    pub const TICKER: u8 = b'b';
    /// A trade.
    pub const TRADE: u8 = b't';
    /// Aggregated trades.
    pub const AGGREGATE: u8 = b'a';
    /// An object of another kind.
    pub const OTHER: u8 = b'?';
    /// No object.
    pub const NONE: u8 = b'!';
}

/// The members that matter, as they stand.
#[derive(Default)]
struct Members<'a> {
    stream: Option<&'a [u8]>,
    data: Option<&'a [u8]>,
    event: Option<&'a [u8]>,
    event_time: Option<&'a [u8]>,
    symbol: Option<&'a [u8]>,
    first: Option<&'a [u8]>,
    last: Option<&'a [u8]>,
    previous: Option<&'a [u8]>,
    lower_b: Option<&'a [u8]>,
    upper_b: Option<&'a [u8]>,
    lower_a: Option<&'a [u8]>,
    upper_a: Option<&'a [u8]>,
    trade: Option<&'a [u8]>,
    price: Option<&'a [u8]>,
    quantity: Option<&'a [u8]>,
    time: Option<&'a [u8]>,
    maker: Option<&'a [u8]>,
    last_update: Option<&'a [u8]>,
    bids: Option<&'a [u8]>,
    asks: Option<&'a [u8]>,
}

impl<'a> Members<'a> {
    fn of(text: &'a [u8]) -> Option<Members<'a>> {
        let mut found = Members::default();
        json::object(text, &mut |key, value| {
            let place = match key {
                b"stream" => &mut found.stream,
                b"data" => &mut found.data,
                b"e" => &mut found.event,
                b"E" => &mut found.event_time,
                b"s" => &mut found.symbol,
                b"U" => &mut found.first,
                b"u" => &mut found.last,
                b"pu" => &mut found.previous,
                b"b" => &mut found.lower_b,
                b"B" => &mut found.upper_b,
                b"a" => &mut found.lower_a,
                b"A" => &mut found.upper_a,
                b"t" => &mut found.trade,
                b"p" => &mut found.price,
                b"q" => &mut found.quantity,
                b"T" => &mut found.time,
                b"m" => &mut found.maker,
                b"lastUpdateId" => &mut found.last_update,
                b"bids" => &mut found.bids,
                b"asks" => &mut found.asks,
                _ => return,
            };
            *place = Some(value);
        })?;
        Some(found)
    }
}

fn number(value: Option<&[u8]>) -> Option<u64> {
    decimal::whole(json::number(value?)?)
}

fn time(value: Option<&[u8]>) -> Option<u64> {
    decimal::epoch_time(json::number(value?)?)
}

fn decimal_text(value: Option<&[u8]>) -> Option<&[u8]> {
    let text = json::number(value?)?;
    (decimal::parse(text, 0) != Err(decimal::NotExact::Text)).then_some(text)
}

/// Levels that walk to their end, each with price and size.
fn level_text(value: Option<&[u8]>) -> Option<&[u8]> {
    let text = value?;
    levels(text, &mut |_, _| ())?;
    Some(text)
}

/// Shows `level` the price and the size of each level in `text`.
pub fn levels<'a>(text: &'a [u8], level: &mut impl FnMut(&'a [u8], &'a [u8])) -> Option<()> {
    json::array(text, &mut |pair| {
        let (mut price, mut size) = (None, None);
        let mut count = 0;
        json::array(pair, &mut |field| {
            match count {
                0 => price = decimal_text(Some(field)),
                1 => size = decimal_text(Some(field)),
                // Old recordings have an empty array behind the two.
                _ => {}
            }
            count += 1;
            Some(())
        })?;
        level(price?, size?);
        Some(())
    })
}

/// What stands in front of the @ in a stream's name, and behind it.
fn stream_parts(stream: Option<&[u8]>) -> Option<(&[u8], &[u8])> {
    let name = json::string(stream?)?;
    let at = name.iter().position(|byte| *byte == b'@')?;
    Some((&name[..at], &name[at + 1..]))
}

impl<'a> Update<'a> {
    /// Reads a line, without the local time that may stand in front of it.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn parse(text: &'a [u8]) -> Result<Update<'a>, Malformed> {
        let outer = Members::of(text).ok_or(Malformed::Json)?;
        let Some(data) = outer.data.filter(|data| data.first() == Some(&b'{')) else {
            return Update::of(&outer, None);
        };
        Update::of(&Members::of(data).ok_or(Malformed::Json)?, stream_parts(outer.stream))
    }

    fn of(members: &Members<'a>, stream: Option<(&'a [u8], &'a [u8])>) -> Result<Update<'a>, Malformed> {
        let event = members.event.and_then(json::string);
        match event {
            Some(b"depthUpdate") => Update::depth(members),
            Some(b"trade") => Update::trade(members, letter::TRADE),
            Some(b"aggTrade") => Update::trade(members, letter::AGGREGATE),
            Some(b"bookTicker") => Update::ticker(members),
            None if members.last_update.is_some() => Update::snapshot(members, stream),
            None if members.upper_b.is_some() && members.upper_a.is_some() => Update::ticker(members),
            _ => Err(Malformed::Unknown),
        }
    }

    fn depth(members: &Members<'a>) -> Result<Update<'a>, Malformed> {
        let field = |name| move || Malformed::Field(letter::DEPTH, name);
        let depth = Depth {
            symbol: symbol(members).ok_or_else(field("s"))?,
            time: time(members.event_time),
            first: number(members.first).ok_or_else(field("U"))?,
            last: number(members.last).ok_or_else(field("u"))?,
            // -1, which some recorders put there, is none.
            previous: number(members.previous),
            bids: level_text(members.lower_b).ok_or_else(field("b"))?,
            asks: level_text(members.lower_a).ok_or_else(field("a"))?,
        };
        if depth.first > depth.last {
            return Err(Malformed::Field(letter::DEPTH, "U"));
        }
        Ok(Update::Depth(depth))
    }

    fn snapshot(members: &Members<'a>, stream: Option<(&'a [u8], &'a [u8])>) -> Result<Update<'a>, Malformed> {
        let field = |name| move || Malformed::Field(letter::SNAPSHOT, name);
        // `depth20` shows twenty levels again and again; `depth` is that of the diffs.
        let is_partial = stream.is_some_and(|(_, kind)| {
            kind.strip_prefix(b"depth").and_then(|rest| rest.first()).is_some_and(u8::is_ascii_digit)
        });
        Ok(Update::Snapshot(Snapshot {
            symbol: symbol(members).or(stream.map(|(symbol, _)| symbol)),
            is_partial,
            time: time(members.event_time),
            last: number(members.last_update).ok_or_else(field("lastUpdateId"))?,
            bids: level_text(members.bids).ok_or_else(field("bids"))?,
            asks: level_text(members.asks).ok_or_else(field("asks"))?,
        }))
    }

    fn ticker(members: &Members<'a>) -> Result<Update<'a>, Malformed> {
        let field = |name| move || Malformed::Field(letter::TICKER, name);
        let text = |value, name| decimal_text(value).ok_or_else(field(name));
        Ok(Update::Ticker(Ticker {
            symbol: symbol(members).ok_or_else(field("s"))?,
            time: time(members.time).or(time(members.event_time)),
            last: number(members.last).ok_or_else(field("u"))?,
            bid: (text(members.lower_b, "b")?, text(members.upper_b, "B")?),
            ask: (text(members.lower_a, "a")?, text(members.upper_a, "A")?),
        }))
    }

    fn trade(members: &Members<'a>, letter: u8) -> Result<Update<'a>, Malformed> {
        let field = |name| move || Malformed::Field(letter, name);
        let is_aggregate = letter == letter::AGGREGATE;
        let id = if is_aggregate { members.lower_a } else { members.trade };
        Ok(Update::Trade(Trade {
            symbol: symbol(members).ok_or_else(field("s"))?,
            is_aggregate,
            time: time(members.time).or(time(members.event_time)),
            id: number(id).ok_or_else(field(if is_aggregate { "a" } else { "t" }))?,
            price: decimal_text(members.price).ok_or_else(field("p"))?,
            size: decimal_text(members.quantity).ok_or_else(field("q"))?,
            buyer_is_maker: match members.maker {
                Some(b"true") => true,
                Some(b"false") => false,
                _ => return Err(Malformed::Field(letter, "m")),
            },
        }))
    }

    /// When the venue made it, ns since 1970, where it says so.
    pub fn time(&self) -> Option<u64> {
        match self {
            Update::Depth(depth) => depth.time,
            Update::Snapshot(snapshot) => snapshot.time,
            Update::Ticker(ticker) => ticker.time,
            Update::Trade(trade) => trade.time,
        }
    }

    /// The letter that it is counted by.
    pub fn letter(&self) -> u8 {
        match self {
            Update::Depth(_) => letter::DEPTH,
            Update::Snapshot(_) => letter::SNAPSHOT,
            Update::Ticker(_) => letter::TICKER,
            Update::Trade(trade) if trade.is_aggregate => letter::AGGREGATE,
            Update::Trade(_) => letter::TRADE,
        }
    }
}

fn symbol<'a>(members: &Members<'a>) -> Option<&'a [u8]> {
    json::string(members.symbol?).filter(|symbol| !symbol.is_empty())
}

impl Malformed {
    /// The letter that it is counted by.
    pub fn letter(self) -> u8 {
        match self {
            Malformed::Json => letter::NONE,
            Malformed::Unknown => letter::OTHER,
            Malformed::Field(letter, _) => letter,
        }
    }
}

#[cfg(test)]
mod tests;
