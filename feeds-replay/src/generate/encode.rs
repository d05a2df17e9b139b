//! ITCH 5.0 messages into bytes, each behind its BinaryFILE length.
//!
//! Written from the specification's field tables and from nothing else: it shares no type, constant or macro with the
//! decoder, so that the golden messages, which both are held to, catch a mistake in either. Numbers are unsigned
//! big-endian; prices are in 1/10,000 dollar, the index levels of type `V` in 1/100,000,000.

/// What every message begins with, its type aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The security's number for the day; 0 none.
    pub locate: u16,
    /// Internal number of the venue.
    pub tracking: u16,
    /// Nanoseconds since midnight; 48 bits are sent.
    pub elapsed_ns: u64,
}

/// The fields of a stock directory message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Directory {
    /// Symbol, padded with spaces.
    pub stock: [u8; 8],
    /// Listing market.
    pub market_category: u8,
    /// Financial status.
    pub financial_status: u8,
    /// Shares in a round lot.
    pub round_lot_size: u32,
    /// `Y` or `N`.
    pub round_lots_only: u8,
    /// Class of the issue.
    pub issue_classification: u8,
    /// Sub-type of the issue.
    pub issue_subtype: [u8; 2],
    /// `P` live, `T` test.
    pub authenticity: u8,
    /// `Y`, `N` or space.
    pub short_sale_threshold: u8,
    /// `Y`, `N` or space.
    pub ipo_flag: u8,
    /// `1`, `2` or space.
    pub luld_tier: u8,
    /// `Y`, `N` or space.
    pub etp_flag: u8,
    /// Leverage.
    pub etp_leverage: u32,
    /// `Y` or `N`.
    pub inverse: u8,
}

/// What an added order is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewOrder {
    /// Its number, unique for the day.
    pub reference: u64,
    /// `B` or `S`.
    pub buy_sell: u8,
    /// Shares.
    pub shares: u32,
    /// Symbol.
    pub stock: [u8; 8],
    /// Limit.
    pub price: u32,
}

/// The fields of a net order imbalance indicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Imbalance {
    /// Shares paired.
    pub paired_shares: u64,
    /// Shares not paired.
    pub imbalance_shares: u64,
    /// `B`, `S`, `N`, `O` or `P`.
    pub direction: u8,
    /// Symbol.
    pub stock: [u8; 8],
    /// Far price.
    pub far_price: u32,
    /// Near price.
    pub near_price: u32,
    /// Reference price.
    pub reference_price: u32,
    /// Which auction.
    pub cross_type: u8,
    /// Price variation indicator.
    pub price_variation: u8,
}

/// The fields of a direct listing's price discovery message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listing {
    /// Symbol.
    pub stock: [u8; 8],
    /// `Y` or `N`.
    pub open_eligibility: u8,
    /// Lowest price allowed.
    pub minimum_price: u32,
    /// Highest price allowed.
    pub maximum_price: u32,
    /// Near execution price.
    pub near_execution_price: u32,
    /// Nanoseconds since midnight.
    pub near_execution_time: u64,
    /// Lower collar.
    pub lower_collar: u32,
    /// Upper collar.
    pub upper_collar: u32,
}

/// A message under construction at the end of a buffer.
struct Draft<'a> {
    out: &'a mut Vec<u8>,
    end: usize,
}

impl<'a> Draft<'a> {
    /// Length prefix and header of a message of `len` bytes.
    #[inline]
    fn new(out: &'a mut Vec<u8>, message_type: u8, len: u16, head: Head) -> Draft<'a> {
        let end = out.len() + 2 + usize::from(len);
        let mut front = [0u8; 13];
        front[0..2].copy_from_slice(&len.to_be_bytes());
        front[2] = message_type;
        front[3..5].copy_from_slice(&head.locate.to_be_bytes());
        front[5..7].copy_from_slice(&head.tracking.to_be_bytes());
        front[7..13].copy_from_slice(&head.elapsed_ns.to_be_bytes()[2..8]);
        out.extend_from_slice(&front);
        Draft { out, end }
    }

    #[inline]
    fn byte(self, value: u8) -> Self {
        self.out.push(value);
        self
    }

    #[inline]
    fn number4(self, value: u32) -> Self {
        self.out.extend_from_slice(&value.to_be_bytes());
        self
    }

    #[inline]
    fn number8(self, value: u64) -> Self {
        self.out.extend_from_slice(&value.to_be_bytes());
        self
    }

    #[inline]
    fn text(self, value: &[u8]) -> Self {
        self.out.extend_from_slice(value);
        self
    }

    #[inline]
    fn finish(self) {
        assert!(self.out.len() == self.end, "a message ends at {} instead of {}", self.out.len(), self.end);
    }
}

/// `S`, system event, 12 bytes.
pub fn system_event(out: &mut Vec<u8>, head: Head, event_code: u8) {
    Draft::new(out, b'S', 12, head).byte(event_code).finish();
}

/// `R`, stock directory, 39 bytes.
pub fn stock_directory(out: &mut Vec<u8>, head: Head, directory: &Directory) {
    Draft::new(out, b'R', 39, head)
        .text(&directory.stock)
        .byte(directory.market_category)
        .byte(directory.financial_status)
        .number4(directory.round_lot_size)
        .byte(directory.round_lots_only)
        .byte(directory.issue_classification)
        .text(&directory.issue_subtype)
        .byte(directory.authenticity)
        .byte(directory.short_sale_threshold)
        .byte(directory.ipo_flag)
        .byte(directory.luld_tier)
        .byte(directory.etp_flag)
        .number4(directory.etp_leverage)
        .byte(directory.inverse)
        .finish();
}

/// `H`, stock trading action, 25 bytes.
pub fn trading_action(out: &mut Vec<u8>, head: Head, stock: &[u8; 8], trading_state: u8, reason: &[u8; 4]) {
    Draft::new(out, b'H', 25, head).text(stock).byte(trading_state).byte(b' ').text(reason).finish();
}

/// `Y`, Reg SHO short-sale price test, 20 bytes.
pub fn reg_sho(out: &mut Vec<u8>, head: Head, stock: &[u8; 8], action: u8) {
    Draft::new(out, b'Y', 20, head).text(stock).byte(action).finish();
}

/// `L`, market participant position, 26 bytes: primary market maker, mode and state in this order.
pub fn participant_position(out: &mut Vec<u8>, head: Head, mpid: &[u8; 4], stock: &[u8; 8], codes: [u8; 3]) {
    Draft::new(out, b'L', 26, head).text(mpid).text(stock).text(&codes).finish();
}

/// `V`, decline levels of the market-wide circuit breaker, 35 bytes.
pub fn breaker_levels(out: &mut Vec<u8>, head: Head, levels: [u64; 3]) {
    Draft::new(out, b'V', 35, head).number8(levels[0]).number8(levels[1]).number8(levels[2]).finish();
}

/// `W`, a breached level of the market-wide circuit breaker, 12 bytes.
pub fn breaker_status(out: &mut Vec<u8>, head: Head, breached_level: u8) {
    Draft::new(out, b'W', 12, head).byte(breached_level).finish();
}

/// `K`, IPO quoting period, 28 bytes; the release time in seconds since midnight.
pub fn ipo_quoting_period(
    out: &mut Vec<u8>,
    head: Head,
    stock: &[u8; 8],
    release_seconds: u32,
    qualifier: u8,
    ipo_price: u32,
) {
    Draft::new(out, b'K', 28, head).text(stock).number4(release_seconds).byte(qualifier).number4(ipo_price).finish();
}

/// `J`, LULD auction collar, 35 bytes: reference, upper and lower price in this order.
pub fn auction_collar(out: &mut Vec<u8>, head: Head, stock: &[u8; 8], prices: [u32; 3], extension: u32) {
    Draft::new(out, b'J', 35, head)
        .text(stock)
        .number4(prices[0])
        .number4(prices[1])
        .number4(prices[2])
        .number4(extension)
        .finish();
}

/// `h`, operational halt, 21 bytes.
pub fn operational_halt(out: &mut Vec<u8>, head: Head, stock: &[u8; 8], market_code: u8, action: u8) {
    Draft::new(out, b'h', 21, head).text(stock).byte(market_code).byte(action).finish();
}

/// `A`, add order, 36 bytes; with an attribution `F`, 40 bytes.
#[inline]
pub fn add_order(out: &mut Vec<u8>, head: Head, order: &NewOrder, attribution: Option<&[u8; 4]>) {
    let (message_type, len) = if attribution.is_some() { (b'F', 40) } else { (b'A', 36) };
    Draft::new(out, message_type, len, head)
        .number8(order.reference)
        .byte(order.buy_sell)
        .number4(order.shares)
        .text(&order.stock)
        .number4(order.price)
        .text(attribution.map_or(&[], |mpid| mpid))
        .finish();
}

/// `E`, order executed, 31 bytes.
#[inline]
pub fn order_executed(out: &mut Vec<u8>, head: Head, reference: u64, shares: u32, match_number: u64) {
    Draft::new(out, b'E', 31, head).number8(reference).number4(shares).number8(match_number).finish();
}

/// `C`, order executed with price, 36 bytes.
pub fn order_executed_with_price(
    out: &mut Vec<u8>,
    head: Head,
    reference: u64,
    shares: u32,
    match_number: u64,
    printable: u8,
    price: u32,
) {
    Draft::new(out, b'C', 36, head)
        .number8(reference)
        .number4(shares)
        .number8(match_number)
        .byte(printable)
        .number4(price)
        .finish();
}

/// `X`, order cancel, 23 bytes.
#[inline]
pub fn order_cancel(out: &mut Vec<u8>, head: Head, reference: u64, shares: u32) {
    Draft::new(out, b'X', 23, head).number8(reference).number4(shares).finish();
}

/// `D`, order delete, 19 bytes.
#[inline]
pub fn order_delete(out: &mut Vec<u8>, head: Head, reference: u64) {
    Draft::new(out, b'D', 19, head).number8(reference).finish();
}

/// `U`, order replace, 35 bytes.
#[inline]
pub fn order_replace(out: &mut Vec<u8>, head: Head, original: u64, new: u64, shares: u32, price: u32) {
    Draft::new(out, b'U', 35, head).number8(original).number8(new).number4(shares).number4(price).finish();
}

/// `P`, trade against an order that was never displayed, 44 bytes.
pub fn trade(out: &mut Vec<u8>, head: Head, order: &NewOrder, match_number: u64) {
    Draft::new(out, b'P', 44, head)
        .number8(order.reference)
        .byte(order.buy_sell)
        .number4(order.shares)
        .text(&order.stock)
        .number4(order.price)
        .number8(match_number)
        .finish();
}

/// `Q`, cross trade, 40 bytes.
pub fn cross_trade(
    out: &mut Vec<u8>,
    head: Head,
    shares: u64,
    stock: &[u8; 8],
    price: u32,
    match_number: u64,
    cross_type: u8,
) {
    Draft::new(out, b'Q', 40, head)
        .number8(shares)
        .text(stock)
        .number4(price)
        .number8(match_number)
        .byte(cross_type)
        .finish();
}

/// `B`, broken trade, 19 bytes.
pub fn broken_trade(out: &mut Vec<u8>, head: Head, match_number: u64) {
    Draft::new(out, b'B', 19, head).number8(match_number).finish();
}

/// `I`, net order imbalance indicator, 50 bytes.
pub fn imbalance(out: &mut Vec<u8>, head: Head, imbalance: &Imbalance) {
    Draft::new(out, b'I', 50, head)
        .number8(imbalance.paired_shares)
        .number8(imbalance.imbalance_shares)
        .byte(imbalance.direction)
        .text(&imbalance.stock)
        .number4(imbalance.far_price)
        .number4(imbalance.near_price)
        .number4(imbalance.reference_price)
        .byte(imbalance.cross_type)
        .byte(imbalance.price_variation)
        .finish();
}

/// `N`, retail price improvement indicator, 20 bytes.
pub fn retail_interest(out: &mut Vec<u8>, head: Head, stock: &[u8; 8], interest: u8) {
    Draft::new(out, b'N', 20, head).text(stock).byte(interest).finish();
}

/// `O`, direct listing with capital raise, 48 bytes.
pub fn direct_listing(out: &mut Vec<u8>, head: Head, listing: &Listing) {
    Draft::new(out, b'O', 48, head)
        .text(&listing.stock)
        .byte(listing.open_eligibility)
        .number4(listing.minimum_price)
        .number4(listing.maximum_price)
        .number4(listing.near_execution_price)
        .number8(listing.near_execution_time)
        .number4(listing.lower_collar)
        .number4(listing.upper_collar)
        .finish();
}
