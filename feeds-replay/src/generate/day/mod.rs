//! The script of a day: which message comes next.
//!
//! A [`Generator`] is a row of phases. Each step of a phase appends a message, or a few that belong together, to a small
//! buffer; the caller takes them one by one. What conforms and why is decided here: executions take the best-priced order
//! and no more than is left of it, a new order never meets the other side, nothing trades in a halted security.

mod incidents;
mod notices;
mod orders;
mod security;

use super::book::Which;
use super::clock::{Clock, DayTimes};
use super::encode::{self, Head};
use super::random::{Popularity, Random};
use super::{GenerateError, GenerateOptions, GenerateSummary};
use incidents::INCIDENTS;
use security::{Security, State, security};

/// One cent, in the feed's 1/10,000 dollar.
const CENT: u32 = 100;
/// The lowest price that the random walk reaches.
const LOWEST_MID: u32 = 5 * 100 * CENT;
/// A side with fewer orders than this gets an order rather than losing one.
const THIN: usize = 8;
/// Market participants that quotes and positions are attributed to.
const PARTICIPANTS: [&[u8; 4]; 6] = [b"GMOS", b"NITE", b"UBSS", b"CDEL", b"VIRT", b"JPMS"];

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

/// From when on, in thousandths of the trading phase, and after how many messages, in thousandths of its messages.
#[derive(Clone, Copy, Debug)]
struct Tide {
    time_before: u64,
    messages_before: u64,
}

/// A day ebbs and flows: eight times the mean in the first minutes, half of it at noon, and more again towards the end.
const TIDES: [Tide; 6] = [
    Tide { time_before: 0, messages_before: 0 },
    Tide { time_before: 5, messages_before: 40 },
    Tide { time_before: 80, messages_before: 200 },
    Tide { time_before: 350, messages_before: 500 },
    Tide { time_before: 800, messages_before: 740 },
    Tide { time_before: 970, messages_before: 930 },
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
    next_tide: usize,
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
            clock: Clock::new(times.start_of_messages, times.end_of_messages, options.messages, options.longest_burst),
            phase: Phase::StartOfMessages,
            next_incident: 0,
            next_tide: 0,
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
        let wanted = self.trading_to.saturating_sub(self.trading_from);
        let messages = |per_mille: u64| (u128::from(wanted) * u128::from(per_mille) / 1000) as u64;
        if let Some(tide) = TIDES.get(self.next_tide)
            && self.appended - self.trading_from >= messages(tide.messages_before)
        {
            self.next_tide += 1;
            let length = self.times.closing_imbalance - self.times.trading;
            let at = |per_mille: u64| self.times.trading + (u128::from(length) * u128::from(per_mille) / 1000) as u64;
            let next = TIDES.get(self.next_tide).copied().unwrap_or(Tide { time_before: 1000, messages_before: 1000 });
            let end = self.trading_from + messages(next.messages_before);
            self.clock.begin(at(tide.time_before), at(next.time_before), end.saturating_sub(self.appended));
        }
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

    #[inline]
    fn head(&mut self, index: usize) -> Head {
        let tracking = 2 * (self.random.bits() >> 61) as u16;
        Head { locate: self.securities[index].locate, tracking, elapsed_ns: self.clock.next(&mut self.random) }
    }

    fn head_of_market(&mut self) -> Head {
        Head { locate: 0, tracking: 0, elapsed_ns: self.clock.next(&mut self.random) }
    }
}
