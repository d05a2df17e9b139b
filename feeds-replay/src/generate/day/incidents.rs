//! What happens once a day to one security or to the market: halts, releases, pauses, offerings.

use super::super::book::Which;
use super::super::encode;
use super::Generator;
use super::security::State;

/// What happens once, at a given part (of 1,000) of the trading phase.
#[derive(Clone, Copy, Debug)]
pub(super) enum Incident {
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
pub(super) const INCIDENTS: [(u64, Incident); 18] = [
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

impl Generator {
    pub(super) fn incident(&mut self, incident: Incident) {
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

    /// One of each message that ordinary business might not happen to hold in a short day.
    pub(super) fn rare_messages(&mut self, index: usize) {
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
    pub(super) fn add_some(&mut self, index: usize) {
        for which in [Which::Bid, Which::Ask, Which::Bid, Which::Ask] {
            if self.securities[index].side(which).is_full() {
                self.delete_at(index, which, 0);
            }
            self.add(index, which);
        }
    }
}
