//! The script of a day: which message comes next.
//!
//! A [`Generator`] is a row of phases. Each step of a phase appends a message, or a few that belong together, to a small
//! buffer; the caller takes them one by one. What conforms and why is decided here: executions take the best-priced order
//! and no more than is left of it, a new order never meets the other side, nothing trades in a halted security.

use super::book::{Order, Side, Which};
use super::clock::{Clock, DayTimes};
use super::encode::{self, Directory, Head, Imbalance, Listing, NewOrder};
use super::random::{Popularity, Random};
use super::{GenerateError, GenerateOptions, GenerateSummary};

/// One cent, in the feed's 1/10,000 dollar.
const CENT: u32 = 100;
/// The lowest price that the random walk reaches.
const LOWEST_MID: u32 = 5 * 100 * CENT;
/// A side with fewer orders than this gets an order rather than losing one.
const THIN: usize = 8;
/// Market participants that quotes and positions are attributed to.
const PARTICIPANTS: [&[u8; 4]; 6] = [b"GMOS", b"NITE", b"UBSS", b"CDEL", b"VIRT", b"JPMS"];

/// What may happen in a security.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Not released yet: no orders.
    Closed,
    /// Orders come and go; nothing executes.
    Halted,
    /// Everything.
    Trading,
}

#[derive(Clone, Debug)]
struct Security {
    locate: u16,
    stock: [u8; 8],
    state: State,
    mid: u32,
    lowest: u32,
    highest: u32,
    bids: Side,
    asks: Side,
}

impl Security {
    fn side(&self, which: Which) -> &Side {
        match which {
            Which::Bid => &self.bids,
            Which::Ask => &self.asks,
        }
    }

    fn side_mut(&mut self, which: Which) -> &mut Side {
        match which {
            Which::Bid => &mut self.bids,
            Which::Ask => &mut self.asks,
        }
    }

    /// A price near the middle that does not meet the other side.
    #[inline]
    fn price(&self, which: Which, random: &mut Random) -> u32 {
        let away = (1 + random.halving() + if random.one_in(4) { random.below(8) as u32 } else { 0 }) * CENT;
        match which {
            Which::Bid => {
                let limit = self.asks.best().map_or(u32::MAX, |ask| ask.price - CENT);
                (self.mid - away).min(limit)
            }
            Which::Ask => {
                let limit = self.bids.best().map_or(0, |bid| bid.price + CENT);
                (self.mid + away).max(limit)
            }
        }
    }

    /// Moves the middle by a cent now and then, within half and twice its first value.
    #[inline]
    fn walk(&mut self, random: &mut Random) {
        match random.below(16) {
            0 if self.mid < self.highest => self.mid += CENT,
            1 if self.mid > self.lowest => self.mid -= CENT,
            _ => {}
        }
    }
}

/// Messages that come once for each security, one security a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Each {
    Directory,
    TradingAction,
    RegSho,
    Positions,
    OpeningImbalance,
    OpeningCross,
    ClosingImbalance,
    ClosingCross,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    StartOfMessages,
    Each(Each, usize),
    StartOfSystemHours,
    BeforeOpen,
    StartOfMarketHours,
    Trading,
    EndOfMarketHours,
    AfterHours,
    EndOfSystemHours,
    CleanUp,
    EndOfMessages,
    Done,
}

/// What happens once, at a given part (of 1,000) of the trading phase.
#[derive(Clone, Copy, Debug)]
enum Incident {
    RareMessages,
    PriceTest,
    OperationalHalt,
    OperationalResume,
    IpoTime,
    IpoQuoting,
    IpoRelease,
    NewsHalt,
    NewsQuoting,
    NewsRelease,
    ListingDiscovery,
    ListingRelease,
    Pause,
    PauseCollar,
    PauseQuoting,
    PauseRelease,
    BrokenTrade,
    BreakerBreached,
}

/// In order of time. The breaker's first level is breached after 15:25, when it no longer stops trading.
const INCIDENTS: [(u64, Incident); 18] = [
    (50, Incident::RareMessages),
    (100, Incident::OperationalHalt),
    (110, Incident::OperationalResume),
    (120, Incident::IpoTime),
    (150, Incident::IpoQuoting),
    (180, Incident::IpoRelease),
    (200, Incident::NewsHalt),
    (230, Incident::NewsQuoting),
    (250, Incident::NewsRelease),
    (300, Incident::ListingDiscovery),
    (320, Incident::ListingRelease),
    (400, Incident::Pause),
    (420, Incident::PauseCollar),
    (430, Incident::PauseQuoting),
    (440, Incident::PauseRelease),
    (500, Incident::PriceTest),
    (600, Incident::BrokenTrade),
    (960, Incident::BreakerBreached),
];

/// Makes one conforming day, message by message.
///
/// The same options give the same bytes. Memory is constant: what [`GenerateOptions`] allows of resting orders, and a
/// buffer for one step.
#[derive(Clone, Debug)]
pub struct Generator {
    options: GenerateOptions,
    times: DayTimes,
    random: Random,
    popularity: Popularity,
    securities: Vec<Security>,
    clock: Clock,
    phase: Phase,
    next_incident: usize,
    /// Messages before the trading phase, and where it ends.
    trading_from: u64,
    trading_to: u64,
    /// Orders that rest, in all books.
    resting: u64,
    reference: u64,
    match_number: u64,
    last_trade: Option<(u16, u64)>,
    last_security: usize,
    /// Bytes of the step under way; what is before `taken` was handed out.
    buffer: Vec<u8>,
    taken: usize,
    /// Messages appended so far, handed out or not.
    appended: u64,
    summary: GenerateSummary,
}

impl Generator {
    /// A generator at the start of its day.
    ///
    /// # Errors
    /// [`GenerateError::Options`] when the options leave no room for a whole day.
    pub fn new(options: GenerateOptions) -> Result<Generator, GenerateError> {
        options.check()?;
        let symbols = usize::from(options.symbols);
        let mut random = Random::new(options.seed);
        let mut securities: Vec<Security> =
            (0..symbols).map(|index| security(index, options.orders_per_side, &mut random)).collect();
        for unreleased in &mut securities[symbols - 2..] {
            unreleased.state = State::Closed;
        }
        let times = options.span_ns.map_or(DayTimes::REAL, DayTimes::compressed);
        // What follows trading: one imbalance and one cross (with two executions at most) a security, the system events
        // and a broken trade, and a fiftieth of the day for after hours and the last deletes.
        let trading_to = options.messages - symbols as u64 * 4 - 4 - options.messages / 50;
        Ok(Generator {
            options,
            times,
            popularity: Popularity::new(symbols),
            random,
            securities,
            clock: Clock::new(times.start_of_messages),
            phase: Phase::StartOfMessages,
            next_incident: 0,
            trading_from: 0,
            trading_to,
            resting: 0,
            reference: 0,
            match_number: 0,
            last_trade: None,
            last_security: 0,
            buffer: Vec::with_capacity(8192),
            taken: 0,
            appended: 0,
            summary: GenerateSummary::default(),
        })
    }

    /// The next message behind its length prefix; `None` after the day's last.
    #[inline]
    pub fn next_framed(&mut self) -> Option<&[u8]> {
        while self.taken == self.buffer.len() {
            if self.phase == Phase::Done {
                return None;
            }
            self.buffer.clear();
            self.taken = 0;
            self.step();
        }
        let from = self.taken;
        let len = 2 + usize::from(u16::from_be_bytes([self.buffer[from], self.buffer[from + 1]]));
        self.taken += len;
        let framed = &self.buffer[from..from + len];
        self.summary.count(framed);
        Some(framed)
    }

    /// What was handed out so far.
    pub fn summary(&self) -> &GenerateSummary {
        &self.summary
    }

    /// The names of the symbols, in order of popularity.
    pub fn symbols(&self) -> impl Iterator<Item = &str> + '_ {
        self.securities.iter().map(|security| std::str::from_utf8(&security.stock).unwrap_or_default().trim_end())
    }

    fn step(&mut self) {
        match self.phase {
            Phase::StartOfMessages => {
                self.system_event(b'O');
                let count = self.securities.len() as u64 * 6;
                self.clock.begin(self.times.start_of_messages, self.times.start_of_system_hours, count);
                self.phase = Phase::Each(Each::Directory, 0);
            }
            Phase::Each(each, index) => self.step_each(each, index),
            Phase::StartOfSystemHours => {
                let before_open = self.options.messages / 40;
                self.clock.begin(self.times.start_of_system_hours, self.times.opening_imbalance, before_open);
                self.system_event(b'S');
                let head = self.head(0);
                // Index points, eight decimals.
                let levels = [3_720, 3_480, 3_200].map(|points| points * 100_000_000 + self.random.below(100_000_000));
                encode::breaker_levels(&mut self.buffer, head, levels);
                self.appended += 1;
                self.trading_from = self.appended + before_open;
                self.phase = Phase::BeforeOpen;
            }
            Phase::BeforeOpen if self.appended < self.trading_from => self.act(),
            Phase::BeforeOpen => {
                let count = self.securities.len() as u64;
                self.clock.begin(self.times.opening_imbalance, self.times.start_of_market_hours, count);
                self.phase = Phase::Each(Each::OpeningImbalance, 0);
            }
            Phase::StartOfMarketHours => {
                let count = self.securities.len() as u64 * 3;
                self.clock.begin(self.times.start_of_market_hours, self.times.trading, count);
                self.system_event(b'Q');
                self.phase = Phase::Each(Each::OpeningCross, 0);
            }
            Phase::Trading if self.appended < self.trading_to => self.trade(),
            Phase::Trading => {
                let count = self.securities.len() as u64;
                self.clock.begin(self.times.closing_imbalance, self.times.closing_cross, count);
                self.phase = Phase::Each(Each::ClosingImbalance, 0);
            }
            Phase::EndOfMarketHours => {
                let after_hours = self.options.messages / 50;
                self.clock.begin(self.times.end_of_market_hours, self.times.end_of_system_hours, after_hours);
                self.system_event(b'M');
                self.break_last_trade();
                self.phase = Phase::AfterHours;
            }
            // Until no more messages are left than deletes of what rests, and the last two system events.
            Phase::AfterHours if self.appended + self.resting + 2 < self.options.messages => self.act(),
            Phase::AfterHours => self.phase = Phase::EndOfSystemHours,
            Phase::EndOfSystemHours => {
                let rest = self.options.messages.saturating_sub(self.appended);
                self.clock.begin(self.times.end_of_system_hours, self.times.end_of_messages, rest);
                self.system_event(b'E');
                self.last_security = 0;
                self.phase = Phase::CleanUp;
            }
            Phase::CleanUp => self.clean_up(),
            Phase::EndOfMessages => {
                self.clock.begin(self.times.end_of_messages, self.times.end_of_messages, 0);
                self.system_event(b'C');
                self.phase = Phase::Done;
            }
            Phase::Done => {}
        }
    }

    /// One security's share of what all securities get, and the way to the next phase after the last.
    fn step_each(&mut self, each: Each, index: usize) {
        if index < self.securities.len() {
            self.phase = Phase::Each(each, index + 1);
            match each {
                Each::Directory => self.directory(index),
                Each::TradingAction => match self.securities[index].state {
                    State::Closed => self.trading_action(index, b'H', b"IPO1"),
                    _ => self.trading_action(index, b'T', b"    "),
                },
                Each::RegSho => {
                    let action = if self.random.one_in(16) { b'2' } else { b'0' };
                    self.reg_sho(index, action);
                }
                Each::Positions => {
                    self.position(index, 0);
                    self.position(index, 1);
                }
                // What is not released yet has no opening auction.
                Each::OpeningImbalance | Each::OpeningCross if self.securities[index].state == State::Closed => {}
                Each::OpeningImbalance => self.imbalance(index, b'O'),
                Each::OpeningCross => self.cross(index, b'O'),
                Each::ClosingImbalance => self.imbalance(index, b'C'),
                Each::ClosingCross => self.cross(index, b'C'),
            }
            return;
        }
        self.phase = match each {
            Each::Directory => Phase::Each(Each::TradingAction, 0),
            Each::TradingAction => Phase::Each(Each::RegSho, 0),
            Each::RegSho => Phase::Each(Each::Positions, 0),
            Each::Positions => Phase::StartOfSystemHours,
            Each::OpeningImbalance => Phase::StartOfMarketHours,
            Each::OpeningCross => {
                self.trading_from = self.appended;
                let count = self.trading_to.saturating_sub(self.appended);
                self.clock.begin(self.times.trading, self.times.closing_imbalance, count);
                Phase::Trading
            }
            Each::ClosingImbalance => {
                let count = self.securities.len() as u64 * 3;
                self.clock.begin(self.times.closing_cross, self.times.end_of_market_hours, count);
                Phase::Each(Each::ClosingCross, 0)
            }
            Each::ClosingCross => Phase::EndOfMarketHours,
        };
    }

    /// A step of the trading phase: an incident whose time has come, or ordinary business.
    #[inline]
    fn trade(&mut self) {
        if let Some((part, incident)) = INCIDENTS.get(self.next_incident) {
            let done = (self.appended - self.trading_from) * 1000;
            if done >= part * (self.trading_to - self.trading_from) {
                self.next_incident += 1;
                self.incident(*incident);
                return;
            }
        }
        self.act();
    }

    fn incident(&mut self, incident: Incident) {
        // The least popular two are the initial offering and the direct listing; three of the others are stopped at times.
        let last = self.securities.len() - 1;
        let (offering, listing, paused, news, operational) = (last, last - 1, 2, 1, 0);
        match incident {
            Incident::RareMessages => self.rare_messages(operational),
            Incident::PriceTest => self.reg_sho(news, b'1'),
            Incident::OperationalHalt => self.operational_halt(operational, b'H'),
            Incident::OperationalResume => self.operational_halt(operational, b'T'),
            Incident::IpoTime => {
                let head = self.head(offering);
                let security = &self.securities[offering];
                let release_seconds = (head.elapsed_ns / 1_000_000_000) as u32 + 600;
                encode::ipo_quoting_period(
                    &mut self.buffer,
                    head,
                    &security.stock,
                    release_seconds,
                    b'A',
                    security.mid,
                );
                self.appended += 1;
            }
            Incident::IpoQuoting => {
                self.trading_action(offering, b'Q', b"IPOQ");
                self.securities[offering].state = State::Halted;
                self.add_some(offering);
            }
            Incident::IpoRelease => self.release(offering, b"    "),
            Incident::NewsHalt => {
                self.trading_action(news, b'H', b"T1  ");
                self.securities[news].state = State::Halted;
            }
            Incident::NewsQuoting => self.trading_action(news, b'Q', b"T3  "),
            Incident::NewsRelease => self.release(news, b"T3  "),
            Incident::ListingDiscovery => {
                self.trading_action(listing, b'Q', b"IPOQ");
                self.securities[listing].state = State::Halted;
                self.add_some(listing);
                self.listing(listing);
            }
            Incident::ListingRelease => {
                self.listing(listing);
                self.release(listing, b"    ");
            }
            Incident::Pause => {
                self.trading_action(paused, b'P', b"LUDP");
                self.securities[paused].state = State::Halted;
            }
            Incident::PauseCollar => self.collar(paused),
            Incident::PauseQuoting => self.trading_action(paused, b'Q', b"LUDP"),
            Incident::PauseRelease => self.release(paused, b"LUDP"),
            Incident::BrokenTrade => self.break_last_trade(),
            Incident::BreakerBreached => {
                let head = self.head_of_market();
                encode::breaker_status(&mut self.buffer, head, b'1');
                self.appended += 1;
            }
        }
    }

    /// Ordinary business in one security: an order comes, changes, executes or goes.
    #[inline]
    fn act(&mut self) {
        // Bursts stay with a security more often than not.
        let mut index = self.last_security;
        if !self.clock.is_bursting() || self.random.one_in(3) {
            index = self.popularity.draw(&mut self.random);
        }
        if self.securities[index].state == State::Closed {
            index = 0;
        }
        self.last_security = index;
        let security = &mut self.securities[index];
        security.walk(&mut self.random);
        let trading = security.state == State::Trading;
        let choice = self.random.bits();
        let mut which = if choice & 1 == 0 { Which::Bid } else { Which::Ask };
        match (choice >> 1) % 1000 {
            0..430 => self.add(index, which),
            430..770 => self.delete(index, which),
            770..860 => self.replace(index, which),
            860..890 => self.cancel(index, which),
            890..977 if trading => {
                // The middle has moved through one side: that is the side to be hit.
                if security.asks.best().is_some_and(|ask| ask.price <= security.mid) {
                    which = Which::Ask;
                } else if security.bids.best().is_some_and(|bid| bid.price >= security.mid) {
                    which = Which::Bid;
                }
                self.execute(index, which);
            }
            977..983 if trading => self.execute_with_price(index, which),
            983..997 if trading => self.hidden_trade(index),
            997..1000 => self.retail_interest(index),
            _ => self.add(index, which),
        }
    }

    /// One of each message that ordinary business might not happen to hold in a short day.
    fn rare_messages(&mut self, index: usize) {
        self.add_some(index);
        self.add_attributed(index, Which::Bid);
        self.execute_with_price(index, Which::Bid);
        self.execute(index, Which::Ask);
        self.replace(index, Which::Bid);
        self.cancel(index, Which::Ask);
        self.hidden_trade(index);
        self.retail_interest(index);
        self.delete(index, Which::Ask);
    }

    /// Two orders on either side.
    fn add_some(&mut self, index: usize) {
        for which in [Which::Bid, Which::Ask, Which::Bid, Which::Ask] {
            if self.securities[index].side(which).is_full() {
                self.delete_at(index, which, 0);
            }
            self.add(index, which);
        }
    }

    fn new_order(&mut self, index: usize, which: Which) -> Order {
        self.reference += 1 + self.random.below(3);
        let security = &self.securities[index];
        let shares = match self.random.below(8) {
            0 => 1 + self.random.below(99) as u32,
            1 => 1000 + 100 * self.random.below(50) as u32,
            _ => 100 * (1 + self.random.halving().min(9)),
        };
        Order { reference: self.reference, price: security.price(which, &mut self.random), shares }
    }

    #[inline]
    fn add(&mut self, index: usize, which: Which) {
        if self.securities[index].side(which).is_full() {
            let count = self.securities[index].side(which).len();
            let victim = self.random.below(count as u64) as usize;
            return self.delete_at(index, which, victim);
        }
        if self.random.one_in(16) {
            return self.add_attributed(index, which);
        }
        self.add_with(index, which, None);
    }

    fn add_attributed(&mut self, index: usize, which: Which) {
        let participant = PARTICIPANTS[self.random.below(PARTICIPANTS.len() as u64) as usize];
        if !self.securities[index].side(which).is_full() {
            self.add_with(index, which, Some(participant));
        }
    }

    #[inline]
    fn add_with(&mut self, index: usize, which: Which, attribution: Option<&[u8; 4]>) {
        let order = self.new_order(index, which);
        let head = self.head(index);
        self.resting += 1;
        let security = &mut self.securities[index];
        security.side_mut(which).insert(order);
        let message = NewOrder {
            reference: order.reference,
            buy_sell: which.byte(),
            shares: order.shares,
            stock: security.stock,
            price: order.price,
        };
        encode::add_order(&mut self.buffer, head, &message, attribution);
        self.appended += 1;
    }

    /// A random order of a side that is not thin; of a thin side `None`, and the side has grown.
    #[inline]
    fn pick(&mut self, index: usize, which: Which) -> Option<usize> {
        let count = self.securities[index].side(which).len();
        if count < THIN {
            self.add(index, which);
            return None;
        }
        Some(self.random.below(count as u64) as usize)
    }

    #[inline]
    fn delete(&mut self, index: usize, which: Which) {
        if let Some(victim) = self.pick(index, which) {
            self.delete_at(index, which, victim);
        }
    }

    #[inline]
    fn delete_at(&mut self, index: usize, which: Which, victim: usize) {
        let head = self.head(index);
        let order = self.securities[index].side_mut(which).remove(victim);
        self.resting -= 1;
        encode::order_delete(&mut self.buffer, head, order.reference);
        self.appended += 1;
    }

    #[inline]
    fn replace(&mut self, index: usize, which: Which) {
        let count = self.securities[index].side(which).len();
        if count == 0 {
            return self.add(index, which);
        }
        let victim = self.random.below(count as u64) as usize;
        let head = self.head(index);
        let old = self.securities[index].side_mut(which).remove(victim);
        let new = self.new_order(index, which);
        self.securities[index].side_mut(which).insert(new);
        encode::order_replace(&mut self.buffer, head, old.reference, new.reference, new.shares, new.price);
        self.appended += 1;
    }

    fn cancel(&mut self, index: usize, which: Which) {
        let count = self.securities[index].side(which).len();
        if count == 0 {
            return self.add(index, which);
        }
        let place = self.random.below(count as u64) as usize;
        let order = self.securities[index].side(which).get(place);
        if order.shares == 1 {
            return self.delete_at(index, which, place);
        }
        let shares = 1 + self.random.below(u64::from(order.shares) - 1) as u32;
        let head = self.head(index);
        self.securities[index].side_mut(which).take(place, shares);
        encode::order_cancel(&mut self.buffer, head, order.reference, shares);
        self.appended += 1;
    }

    #[inline]
    fn execute(&mut self, index: usize, which: Which) {
        let Some(best) = self.securities[index].side(which).best() else { return self.add(index, which) };
        let shares = self.part_of(best.shares);
        let head = self.head(index);
        self.take_best(index, which, shares);
        self.match_number += 1;
        self.last_trade = Some((head.locate, self.match_number));
        encode::order_executed(&mut self.buffer, head, best.reference, shares, self.match_number);
        self.appended += 1;
    }

    /// An execution half a cent better for the resting order than its own price.
    fn execute_with_price(&mut self, index: usize, which: Which) {
        let Some(best) = self.securities[index].side(which).best() else { return self.add(index, which) };
        let price = match which {
            Which::Bid => best.price - CENT / 2,
            Which::Ask => best.price + CENT / 2,
        };
        let shares = self.part_of(best.shares);
        self.execute_at(index, which, best, shares, price, b'Y');
    }

    fn execute_at(&mut self, index: usize, which: Which, best: Order, shares: u32, price: u32, printable: u8) {
        let head = self.head(index);
        self.take_best(index, which, shares);
        self.match_number += 1;
        let match_number = self.match_number;
        encode::order_executed_with_price(
            &mut self.buffer,
            head,
            best.reference,
            shares,
            match_number,
            printable,
            price,
        );
        self.appended += 1;
    }

    fn take_best(&mut self, index: usize, which: Which, shares: u32) {
        let side = self.securities[index].side_mut(which);
        let count = side.len();
        side.take(count - 1, shares);
        self.resting -= (count - side.len()) as u64;
    }

    /// All of it half of the time, else at least one.
    #[inline]
    fn part_of(&mut self, shares: u32) -> u32 {
        if self.random.one_in(2) { shares } else { 1 + self.random.below(u64::from(shares)) as u32 }
    }

    /// A trade between the best prices, against an order that was never displayed.
    fn hidden_trade(&mut self, index: usize) {
        let security = &self.securities[index];
        let bid = security.bids.best().map_or(security.mid, |bid| bid.price);
        let ask = security.asks.best().map_or(security.mid, |ask| ask.price);
        let message = NewOrder {
            reference: 0,
            buy_sell: b'B',
            shares: 1 + self.random.below(500) as u32,
            stock: security.stock,
            price: bid / 2 + ask / 2,
        };
        let head = self.head(index);
        self.match_number += 1;
        self.last_trade = Some((head.locate, self.match_number));
        encode::trade(&mut self.buffer, head, &message, self.match_number);
        self.appended += 1;
    }

    fn break_last_trade(&mut self) {
        let Some((locate, match_number)) = self.last_trade.take() else { return };
        let head = Head { locate, ..self.head_of_market() };
        encode::broken_trade(&mut self.buffer, head, match_number);
        self.appended += 1;
    }

    fn retail_interest(&mut self, index: usize) {
        let interest = b"BSAN"[self.random.below(4) as usize];
        let head = self.head(index);
        encode::retail_interest(&mut self.buffer, head, &self.securities[index].stock, interest);
        self.appended += 1;
    }

    /// Deletes what still rests, as many as the day has messages left for.
    fn clean_up(&mut self) {
        if self.appended + 1 >= self.options.messages {
            self.phase = Phase::EndOfMessages;
            return;
        }
        while self.last_security < self.securities.len() {
            for which in [Which::Bid, Which::Ask] {
                if self.securities[self.last_security].side(which).len() > 0 {
                    let count = self.securities[self.last_security].side(which).len();
                    return self.delete_at(self.last_security, which, count - 1);
                }
            }
            self.last_security += 1;
        }
        self.phase = Phase::EndOfMessages;
    }

    fn directory(&mut self, index: usize) {
        let exchange_traded = self.random.one_in(8);
        let offering = self.securities[index].state == State::Closed;
        let directory = Directory {
            stock: self.securities[index].stock,
            market_category: b"QGSNAPZ"[self.random.below(7) as usize],
            financial_status: b'N',
            round_lot_size: 100,
            round_lots_only: b'N',
            issue_classification: if exchange_traded { b'Q' } else { b'C' },
            issue_subtype: if exchange_traded { *b"E " } else { *b"Z " },
            authenticity: b'P',
            short_sale_threshold: b'N',
            ipo_flag: if offering { b'Y' } else { b'N' },
            luld_tier: if index < 16 { b'1' } else { b'2' },
            etp_flag: if exchange_traded { b'Y' } else { b'N' },
            etp_leverage: u32::from(exchange_traded),
            inverse: b'N',
        };
        let head = self.head(index);
        encode::stock_directory(&mut self.buffer, head, &directory);
        self.appended += 1;
    }

    fn trading_action(&mut self, index: usize, trading_state: u8, reason: &[u8; 4]) {
        let head = self.head(index);
        encode::trading_action(&mut self.buffer, head, &self.securities[index].stock, trading_state, reason);
        self.appended += 1;
    }

    fn reg_sho(&mut self, index: usize, action: u8) {
        let head = self.head(index);
        encode::reg_sho(&mut self.buffer, head, &self.securities[index].stock, action);
        self.appended += 1;
    }

    fn position(&mut self, index: usize, nth: usize) {
        let participant = PARTICIPANTS[(index + nth) % PARTICIPANTS.len()];
        let primary = if nth == 0 { b'Y' } else { b'N' };
        let head = self.head(index);
        let stock = &self.securities[index].stock;
        encode::participant_position(&mut self.buffer, head, participant, stock, [primary, b'N', b'A']);
        self.appended += 1;
    }

    fn operational_halt(&mut self, index: usize, action: u8) {
        let head = self.head(index);
        encode::operational_halt(&mut self.buffer, head, &self.securities[index].stock, b'Q', action);
        self.securities[index].state = if action == b'H' { State::Halted } else { State::Trading };
        self.appended += 1;
    }

    /// Imbalance, cross, and trading (again).
    fn release(&mut self, index: usize, reason: &[u8; 4]) {
        self.imbalance(index, b'H');
        self.cross(index, b'H');
        self.trading_action(index, b'T', reason);
        self.securities[index].state = State::Trading;
    }

    fn imbalance(&mut self, index: usize, cross_type: u8) {
        let security = &self.securities[index];
        let (stock, mid) = (security.stock, security.mid);
        let direction = b"BSN"[self.random.below(3) as usize];
        let near_price = mid - CENT * self.random.below(5) as u32;
        let message = Imbalance {
            paired_shares: 100 * self.random.below(5_000),
            imbalance_shares: if direction == b'N' { 0 } else { 100 * (1 + self.random.below(500)) },
            direction,
            stock,
            far_price: mid + CENT * self.random.below(5) as u32,
            near_price,
            reference_price: mid,
            cross_type,
            price_variation: b'L',
        };
        let head = self.head(index);
        encode::imbalance(&mut self.buffer, head, &message);
        self.appended += 1;
    }

    /// An auction at the best bid: up to two bids of that price take part, inside the bulk print that follows.
    fn cross(&mut self, index: usize, cross_type: u8) {
        let mut shares = 100 * (1 + self.random.below(2_000));
        let price = self.securities[index].bids.best().map_or(self.securities[index].mid, |bid| bid.price);
        for _ in 0..2 {
            let Some(best) = self.securities[index].bids.best().filter(|bid| bid.price == price) else { break };
            shares += u64::from(best.shares);
            self.execute_at(index, Which::Bid, best, best.shares, price, b'N');
        }
        let head = self.head(index);
        self.match_number += 1;
        let stock = &self.securities[index].stock;
        encode::cross_trade(&mut self.buffer, head, shares, stock, price, self.match_number, cross_type);
        self.appended += 1;
    }

    fn collar(&mut self, index: usize) {
        let head = self.head(index);
        let security = &self.securities[index];
        let prices = [security.mid, security.mid / 100 * 105, security.mid / 100 * 95];
        encode::auction_collar(&mut self.buffer, head, &security.stock, prices, 0);
        self.appended += 1;
    }

    fn listing(&mut self, index: usize) {
        let head = self.head(index);
        let security = &self.securities[index];
        let listing = Listing {
            stock: security.stock,
            open_eligibility: b'Y',
            minimum_price: security.mid / 10 * 8,
            maximum_price: security.mid / 10 * 18,
            near_execution_price: security.mid,
            near_execution_time: head.elapsed_ns,
            lower_collar: security.mid / 10 * 9,
            upper_collar: security.mid / 10 * 11,
        };
        encode::direct_listing(&mut self.buffer, head, &listing);
        self.appended += 1;
    }

    fn system_event(&mut self, event_code: u8) {
        let head = self.head_of_market();
        encode::system_event(&mut self.buffer, head, event_code);
        self.appended += 1;
    }

    #[inline]
    fn head(&mut self, index: usize) -> Head {
        let tracking = 2 * (self.random.bits() >> 61) as u16;
        Head { locate: self.securities[index].locate, tracking, elapsed_ns: self.clock.next(&mut self.random) }
    }

    fn head_of_market(&mut self) -> Head {
        Head { locate: 0, tracking: 0, elapsed_ns: self.clock.next(&mut self.random) }
    }
}

/// The `index`-th security by popularity.
fn security(index: usize, orders_per_side: usize, random: &mut Random) -> Security {
    let letter = |place: usize| b'A' + (index / place % 26) as u8;
    let stock = [b'Z', letter(676), letter(26), letter(1), b' ', b' ', b' ', b' '];
    let mid = (10 * 100 + random.below(400 * 100) as u32) * CENT;
    Security {
        locate: index as u16 + 1,
        stock,
        state: State::Trading,
        mid,
        lowest: (mid / 2 / CENT * CENT).max(LOWEST_MID),
        highest: mid * 2,
        bids: Side::new(Which::Bid, orders_per_side),
        asks: Side::new(Which::Ask, orders_per_side),
    }
}
