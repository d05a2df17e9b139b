//! Trading states: what a system event, a trading action or a halt becomes in a Status record.
//!
//! `detail` is a StatusAction and the reason a StatusReason, both as DBN numbers them. The venue's own code is always
//! kept in `order_id`, so that nothing is lost where the numbers are coarser: the code byte in bits 0 to 7 and, for a
//! trading action, its reason text in bits 8 to 39, first character lowest. [`raw_code`] packs it, [`raw_parts`] unpacks.

use protocol::record::{StatusWord, status};

/// DBN's StatusReason values that Nasdaq's codes map to.
mod reason {
    pub(super) const NONE: u16 = 0;
    pub(super) const MARKET_EVENT: u16 = 3;
    pub(super) const REGULATORY: u16 = 10;
    pub(super) const NON_COMPLIANCE: u16 = 12;
    pub(super) const FILINGS_NOT_CURRENT: u16 = 13;
    pub(super) const SEC_TRADING_SUSPENSION: u16 = 14;
    pub(super) const NEW_ISSUE: u16 = 15;
    pub(super) const ISSUE_AVAILABLE: u16 = 16;
    pub(super) const ISSUES_REVIEWED: u16 = 17;
    pub(super) const FILING_REQUIREMENTS_SATISFIED: u16 = 18;
    pub(super) const NEWS_PENDING: u16 = 30;
    pub(super) const NEWS_RELEASED: u16 = 31;
    pub(super) const NEWS_AND_RESUMPTION_TIMES: u16 = 32;
    pub(super) const NEWS_NOT_FORTHCOMING: u16 = 33;
    pub(super) const LULD_PAUSE: u16 = 50;
    pub(super) const OPERATIONAL: u16 = 60;
    pub(super) const ADDITIONAL_INFORMATION: u16 = 70;
    pub(super) const ETF: u16 = 90;
    pub(super) const CORPORATE_ACTION: u16 = 100;
    pub(super) const MARKET_WIDE_LEVEL_1: u16 = 120;
    pub(super) const MARKET_WIDE_LEVEL_2: u16 = 121;
    pub(super) const MARKET_WIDE_LEVEL_3: u16 = 122;
    pub(super) const MARKET_WIDE_CARRYOVER: u16 = 123;
    pub(super) const MARKET_WIDE_RESUMPTION: u16 = 124;
    pub(super) const QUOTATION_NOT_AVAILABLE: u16 = 130;
}

/// Not said.
const UNSAID: u8 = b'~';

/// A word that says nothing.
const SILENT: StatusWord = StatusWord {
    reason: reason::NONE,
    trading_event: 0,
    is_trading: UNSAID,
    is_quoting: UNSAID,
    short_sale: UNSAID,
    scope: UNSAID,
};

/// The venue's code and its reason text as a Status record carries them in `order_id`.
pub const fn raw_code(code: u8, reason: [u8; 4]) -> u64 {
    let [a, b, c, d] = reason;
    u64::from_le_bytes([code, a, b, c, d, 0, 0, 0])
}

/// The code and the reason text (zeros where there is none) of a Status record's `order_id`: the inverse of
/// [`raw_code`].
pub const fn raw_parts(order_id: u64) -> (u8, [u8; 4]) {
    let [code, a, b, c, d, ..] = order_id.to_le_bytes();
    (code, [a, b, c, d])
}

/// A system event other than start and end of messages.
pub(super) fn of_system_event(event_code: u8) -> (u8, StatusWord) {
    match event_code {
        b'S' => (status::PRE_OPEN, StatusWord { is_quoting: b'Y', ..SILENT }),
        b'Q' => (status::TRADING, StatusWord { is_trading: b'Y', is_quoting: b'Y', ..SILENT }),
        b'M' => (status::POST_CLOSE, SILENT),
        b'E' => (status::CLOSE, StatusWord { is_trading: b'N', is_quoting: b'N', ..SILENT }),
        _ => (status::NONE, SILENT),
    }
}

/// A trading action on one security.
pub(super) fn of_trading_action(trading_state: u8, reason_text: [u8; 4]) -> (u8, StatusWord) {
    let (action, is_trading, is_quoting) = match trading_state {
        b'T' => (status::TRADING, b'Y', b'Y'),
        b'Q' => (status::QUOTING, b'N', b'Y'),
        b'P' => (status::PAUSE, b'N', b'N'),
        b'H' => (status::HALT, b'N', b'N'),
        _ => (status::NONE, UNSAID, UNSAID),
    };
    (action, StatusWord { reason: of_reason_text(&reason_text), is_trading, is_quoting, ..SILENT })
}

/// An operational halt. It changes this feed's own state only where it names this feed's own market.
pub(super) fn of_operational_halt(market_code: u8, action: u8, own_market: u8) -> (u8, StatusWord) {
    let word = StatusWord { reason: reason::OPERATIONAL, scope: market_code, ..SILENT };
    match action {
        _ if market_code != own_market => (status::NONE, word),
        b'H' => (status::HALT, StatusWord { is_trading: b'N', is_quoting: b'N', ..word }),
        b'T' => (status::TRADING, StatusWord { is_trading: b'Y', is_quoting: b'Y', ..word }),
        _ => (status::NONE, word),
    }
}

/// A short-sale price test.
pub(super) fn of_reg_sho(action: u8) -> (u8, StatusWord) {
    (status::SHORT_SALE_RESTRICTION, StatusWord { short_sale: action, ..SILENT })
}

/// A breached market-wide circuit breaker. It states no action of its own: whether trading stops depends on the time of
/// day, and each security's own trading action says so.
pub(super) fn of_breaker(breached_level: u8) -> (u8, StatusWord) {
    let reason = match breached_level {
        b'1' => reason::MARKET_WIDE_LEVEL_1,
        b'2' => reason::MARKET_WIDE_LEVEL_2,
        b'3' => reason::MARKET_WIDE_LEVEL_3,
        _ => reason::MARKET_EVENT,
    };
    (status::NONE, StatusWord { reason, ..SILENT })
}

/// Retail interest: says nothing about trading, only that there is such interest.
pub(super) fn of_retail_interest() -> (u8, StatusWord) {
    (status::NONE, SILENT)
}

/// A trading action's reason text as a StatusReason; 0 where it has none there.
fn of_reason_text(text: &[u8; 4]) -> u16 {
    match text {
        b"T1  " => reason::NEWS_PENDING,
        b"T2  " => reason::NEWS_RELEASED,
        b"T3  " => reason::NEWS_AND_RESUMPTION_TIMES,
        b"T5  " | b"T7  " | b"LUDP" | b"LUDS" => reason::LULD_PAUSE,
        b"T6  " => reason::MARKET_EVENT,
        b"T8  " => reason::ETF,
        b"T12 " => reason::ADDITIONAL_INFORMATION,
        b"H4  " => reason::NON_COMPLIANCE,
        b"H9  " => reason::FILINGS_NOT_CURRENT,
        b"H10 " => reason::SEC_TRADING_SUSPENSION,
        b"H11 " | b"C11 " => reason::REGULATORY,
        b"O1  " => reason::OPERATIONAL,
        b"IPO1" | b"IPOQ" | b"IPOE" => reason::NEW_ISSUE,
        b"R1  " | b"R2  " => reason::ISSUE_AVAILABLE,
        b"C3  " => reason::NEWS_NOT_FORTHCOMING,
        b"C4  " | b"R4  " => reason::ISSUES_REVIEWED,
        b"C9  " | b"R9  " => reason::FILING_REQUIREMENTS_SATISFIED,
        b"M1  " => reason::CORPORATE_ACTION,
        b"M2  " => reason::QUOTATION_NOT_AVAILABLE,
        b"MWC0" => reason::MARKET_WIDE_CARRYOVER,
        b"MWC1" => reason::MARKET_WIDE_LEVEL_1,
        b"MWC2" => reason::MARKET_WIDE_LEVEL_2,
        b"MWC3" => reason::MARKET_WIDE_LEVEL_3,
        b"MWCQ" => reason::MARKET_WIDE_RESUMPTION,
        _ => reason::NONE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_raw_code_comes_back_whole() {
        assert_eq!(raw_parts(raw_code(b'H', *b"T1  ")), (b'H', *b"T1  "));
        assert_eq!(raw_code(b'Q', [0; 4]), u64::from(b'Q'));
    }

    #[test]
    fn trading_states_have_their_actions_and_a_new_one_has_none() {
        for (state, action, trading, quoting) in [
            (b'T', status::TRADING, b'Y', b'Y'),
            (b'Q', status::QUOTING, b'N', b'Y'),
            (b'P', status::PAUSE, b'N', b'N'),
            (b'H', status::HALT, b'N', b'N'),
            (b'?', status::NONE, b'~', b'~'),
        ] {
            let (got, word) = of_trading_action(state, *b"    ");
            assert_eq!((got, word.is_trading, word.is_quoting, word.reason), (action, trading, quoting, 0));
        }
        assert_eq!(of_trading_action(b'P', *b"LUDP").1.reason, 50);
        assert_eq!(of_trading_action(b'H', *b"ZZZZ").1.reason, 0);
    }

    #[test]
    fn an_operational_halt_of_another_market_leaves_this_one_as_it_is() {
        assert_eq!(of_operational_halt(b'Q', b'H', b'Q').0, status::HALT);
        assert_eq!(of_operational_halt(b'Q', b'T', b'Q').0, status::TRADING);
        let (action, word) = of_operational_halt(b'X', b'H', b'Q');
        assert_eq!((action, word.scope, word.is_trading), (status::NONE, b'X', b'~'));
    }
}
