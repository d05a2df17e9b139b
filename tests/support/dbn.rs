//! DBN files made by hand, byte by byte from the layouts that its documentation gives, and nothing of the project's own.

/// Times begin here.
pub const START_NS: u64 = 1_692_711_000_000_000_000;
/// No price.
pub const NO_PRICE: i64 = i64::MAX;
/// No time.
pub const NO_TIME: u64 = u64::MAX;

/// Flags, as DBN has them.
pub mod flags {
    /// The last record of an event.
    pub const LAST: u8 = 0x80;
    /// The top of the book alone.
    pub const TOB: u8 = 0x40;
    /// Of a snapshot.
    pub const SNAPSHOT: u8 = 0x20;
    /// An aggregated level.
    pub const MBP: u8 = 0x10;
}

/// The numbers of schemas.
pub mod schema {
    /// Orders.
    pub const MBO: u16 = 0;
    /// Tops of books.
    pub const MBP_1: u16 = 1;
    /// Ten levels.
    pub const MBP_10: u16 = 2;
    /// Tops of books at trades.
    pub const TBBO: u16 = 3;
    /// Trades.
    pub const TRADES: u16 = 4;
}

/// What stands in front of the records: of a version, a schema, and with names for instruments on 22 August 2023.
pub fn metadata(version: u8, schema: u16, names: &[(&str, u32)]) -> Vec<u8> {
    let symbol_len = if version == 1 { 22 } else { 71 };
    let text = |text: &str, len: usize| {
        let mut bytes = text.as_bytes().to_vec();
        bytes.resize(len, 0);
        bytes
    };
    let mut body = text("XNAS.ITCH", 16);
    body.extend(schema.to_le_bytes());
    body.extend(START_NS.to_le_bytes());
    body.extend(NO_TIME.to_le_bytes());
    body.extend(0u64.to_le_bytes());
    if version == 1 {
        body.extend(u64::MAX.to_le_bytes());
    }
    // Symbols in, instrument numbers out, no sending times.
    body.extend([1, 0, 0]);
    if version > 1 {
        body.extend((symbol_len as u16).to_le_bytes());
    }
    body.resize(100, 0);
    body.extend(0u32.to_le_bytes());
    body.extend((names.len() as u32).to_le_bytes());
    for (name, _) in names {
        body.extend(text(name, symbol_len));
    }
    body.extend([0; 8]);
    body.extend((names.len() as u32).to_le_bytes());
    for (name, id) in names {
        body.extend(text(name, symbol_len));
        body.extend(1u32.to_le_bytes());
        body.extend(20_230_822u32.to_le_bytes());
        body.extend(20_230_823u32.to_le_bytes());
        body.extend(text(&id.to_string(), symbol_len));
    }
    [&b"DBN"[..], &[version], &(body.len() as u32).to_le_bytes(), &body].concat()
}

/// A record: its type, publisher, instrument and event time in front of what it says.
pub fn record(rtype: u8, publisher: u16, instrument: u32, ts_event: u64, body: &[u8]) -> Vec<u8> {
    let len = 16 + body.len();
    assert!(len.is_multiple_of(4), "{len} bytes");
    let mut bytes = vec![(len / 4) as u8, rtype];
    bytes.extend(publisher.to_le_bytes());
    bytes.extend(instrument.to_le_bytes());
    bytes.extend(ts_event.to_le_bytes());
    bytes.extend(body);
    bytes
}

/// What an order record says.
#[derive(Clone, Copy, Debug)]
pub struct Mbo {
    /// Its instrument.
    pub instrument: u32,
    /// Its action: `A`, `M`, `C`, `R`, `T`, `F` or `N`.
    pub action: u8,
    /// Its side.
    pub side: u8,
    /// The order.
    pub order: u64,
    /// Its price, 10^-9.
    pub price: i64,
    /// Its size.
    pub size: u32,
    /// [`flags`].
    pub flags: u8,
    /// Nanoseconds after [`START_NS`] at which it happened; [`NO_TIME`] none.
    pub at: u64,
    /// The venue's sequence.
    pub sequence: u32,
}

impl Default for Mbo {
    fn default() -> Mbo {
        Mbo {
            instrument: 7,
            action: b'A',
            side: b'B',
            order: 1,
            price: 100_000_000_000,
            size: 10,
            flags: flags::LAST,
            at: 0,
            sequence: 1,
        }
    }
}

impl Mbo {
    /// Its bytes: received 500 ns after it happened.
    pub fn bytes(&self) -> Vec<u8> {
        let ts_event = if self.at == NO_TIME { NO_TIME } else { START_NS + self.at };
        let ts_recv = if self.at == NO_TIME { START_NS } else { ts_event + 500 };
        let mut body = self.order.to_le_bytes().to_vec();
        body.extend(self.price.to_le_bytes());
        body.extend(self.size.to_le_bytes());
        body.extend([self.flags, 0, self.action, self.side]);
        body.extend(ts_recv.to_le_bytes());
        body.extend(250i32.to_le_bytes());
        body.extend(self.sequence.to_le_bytes());
        record(0xA0, 2, self.instrument, ts_event, &body)
    }
}

/// Bid price and size, ask price and size.
pub type Level = (i64, u32, i64, u32);

/// A record with a picture of the book: `rtype` 0 without levels, 1 with one, 10 with ten.
pub fn mbp(rtype: u8, action: u8, flags: u8, trade: (u8, i64, u32), levels: &[Level], at: u64) -> Vec<u8> {
    let (side, price, size) = trade;
    let mut body = price.to_le_bytes().to_vec();
    body.extend(size.to_le_bytes());
    body.extend([action, side, flags, 0]);
    body.extend((START_NS + at + 500).to_le_bytes());
    body.extend(250i32.to_le_bytes());
    body.extend(1u32.to_le_bytes());
    let depth = usize::from(rtype);
    let none = (NO_PRICE, 0, NO_PRICE, 0);
    for place in 0..depth {
        let (bid, bid_size, ask, ask_size) = levels.get(place).copied().unwrap_or(none);
        body.extend([bid.to_le_bytes(), ask.to_le_bytes()].concat());
        body.extend(
            [bid_size, ask_size, u32::from(bid_size > 0), u32::from(ask_size > 0)].map(u32::to_le_bytes).concat(),
        );
    }
    record(rtype, 2, 7, START_NS + at, &body)
}

/// A status: 7 trading, 8 halted.
pub fn status(instrument: u32, action: u16, at: u64) -> Vec<u8> {
    let mut body = (START_NS + at + 500).to_le_bytes().to_vec();
    body.extend([action, 0, 0].map(u16::to_le_bytes).concat());
    body.extend(b"YY~\0\0\0\0\0\0\0");
    record(0x12, 2, instrument, START_NS + at, &body)
}

/// A whole file of order records of one instrument, 7, called ACME.
pub fn mbo_file(version: u8, records: &[Mbo]) -> Vec<u8> {
    let mut bytes = metadata(version, schema::MBO, &[("ACME", 7)]);
    bytes.extend(records.iter().flat_map(Mbo::bytes));
    bytes
}
