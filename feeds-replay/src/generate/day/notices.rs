//! What is said of a security beside its orders: directory, status, auctions, collars.

use super::super::book::Which;
use super::super::encode::{self, Directory, Imbalance, Listing};
use super::security::State;
use super::{CENT, Generator, PARTICIPANTS};

impl Generator {
    pub(super) fn directory(&mut self, index: usize) {
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

    pub(super) fn trading_action(&mut self, index: usize, trading_state: u8, reason: &[u8; 4]) {
        let head = self.head(index);
        encode::trading_action(&mut self.buffer, head, &self.securities[index].stock, trading_state, reason);
        self.appended += 1;
    }

    pub(super) fn reg_sho(&mut self, index: usize, action: u8) {
        let head = self.head(index);
        encode::reg_sho(&mut self.buffer, head, &self.securities[index].stock, action);
        self.appended += 1;
    }

    pub(super) fn position(&mut self, index: usize, nth: usize) {
        let participant = PARTICIPANTS[(index + nth) % PARTICIPANTS.len()];
        let primary = if nth == 0 { b'Y' } else { b'N' };
        let head = self.head(index);
        let stock = &self.securities[index].stock;
        encode::participant_position(&mut self.buffer, head, participant, stock, [primary, b'N', b'A']);
        self.appended += 1;
    }

    pub(super) fn operational_halt(&mut self, index: usize, action: u8) {
        let head = self.head(index);
        encode::operational_halt(&mut self.buffer, head, &self.securities[index].stock, b'Q', action);
        self.securities[index].state = if action == b'H' { State::Halted } else { State::Trading };
        self.appended += 1;
    }

    /// Imbalance, cross, and trading (again).
    pub(super) fn release(&mut self, index: usize, reason: &[u8; 4]) {
        self.imbalance(index, b'H');
        self.cross(index, b'H');
        self.trading_action(index, b'T', reason);
        self.securities[index].state = State::Trading;
    }

    pub(super) fn imbalance(&mut self, index: usize, cross_type: u8) {
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
    pub(super) fn cross(&mut self, index: usize, cross_type: u8) {
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

    pub(super) fn collar(&mut self, index: usize) {
        let head = self.head(index);
        let security = &self.securities[index];
        let prices = [security.mid, security.mid / 100 * 105, security.mid / 100 * 95];
        encode::auction_collar(&mut self.buffer, head, &security.stock, prices, 0);
        self.appended += 1;
    }

    pub(super) fn listing(&mut self, index: usize) {
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

    pub(super) fn system_event(&mut self, event_code: u8) {
        let head = self.head_of_market();
        encode::system_event(&mut self.buffer, head, event_code);
        self.appended += 1;
    }
}
