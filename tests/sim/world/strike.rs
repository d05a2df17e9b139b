//! What breaks.

use protocol::line::Epoch;
use rand::Rng;

use super::{MS, QUIET_NS, What, World};
use crate::network::Fault;
use crate::publisher::Astray;

impl World {
    /// Something breaks for a subscriber, or for all.
    pub(super) fn strike(&mut self, subscriber: usize) {
        if !self.is_storm() {
            return;
        }
        let until = (self.now + self.random.random_range(200_000..8 * MS)).min(self.storm_until);
        let (pair, rdma) = (self.plan.lanes == 2, self.plan.rdma);
        // Torn and coalesced writes come by themselves.
        let can_strike = |fault: &Fault| match fault {
            Fault::LaneDown | Fault::PairCrash | Fault::Split => pair,
            Fault::RdmaBroken => rdma,
            Fault::TornWrite | Fault::Coalesced => false,
            _ => true,
        };
        let faults: Vec<Fault> = Fault::ALL.into_iter().filter(can_strike).collect();
        let fault = faults[self.random.random_range(0..faults.len())];
        if self.plan.weather.is_some() || (!self.plan.crashes && fault as usize >= Fault::PublisherCrash as usize) {
            return;
        }
        let lane = self.random.random_range(0..self.plan.lanes);
        let living = self.publishing().count();
        if (fault as usize) < Fault::PublisherCrash as usize {
            self.note(subscriber, fault);
        }
        let node = &mut self.nodes[subscriber];
        match fault {
            Fault::Loss | Fault::Duplicate | Fault::Reorder | Fault::Corruption => {
                node.links().for_each(|link| link.force(fault));
            }
            Fault::Burst => node.streams[0].begin_burst(self.random.random_range(1..30)),
            Fault::Delay => node.streams.iter_mut().for_each(|link| link.slow_down(until)),
            Fault::Partition => {
                node.links().for_each(|link| link.cut_until = until);
                if let Some(ring) = node.subscriber.as_mut().and_then(|node| node.ring.as_mut()) {
                    ring.hold_until(until);
                }
            }
            Fault::PublisherCrash if self.random.random_ratio(1, 3) && living > 0 => {
                // All of them: nobody is left to be joined.
                self.note_all(fault);
                for lane in 0..self.plan.lanes {
                    self.publishers[lane] = None;
                    self.forget_server(lane);
                    let late = self.random.random_range(0..2 * MS);
                    self.at(until.min(self.storm_until) + late, What::Start(lane));
                }
            }
            Fault::PairCrash if living == 2 => {
                self.note_all(fault);
                self.publishers[lane] = None;
                self.forget_server(lane);
                // Where the pair was split, one that comes back stays quiet for as long as it takes to be missed.
                let is_split = self.oracle.borrow().fork(Epoch(self.epoch)).is_some();
                let quiet = if is_split { QUIET_NS } else { 0 };
                self.at(until.min(self.storm_until) + quiet, What::Start(lane));
            }
            Fault::Split if living == 2 && self.oracle.borrow().fork(Epoch(self.epoch)).is_none() => {
                let is_planned = self.publishers.iter().flatten().any(|publisher| publisher.astray.is_some());
                if !is_planned {
                    self.note_all(fault);
                    let misses = Astray::Misses(self.random.random_range(1..4));
                    let astray = if self.random.random_ratio(1, 2) { misses } else { Astray::Misreads };
                    self.publishers[lane].as_mut().expect("both live").astray = Some(astray);
                }
            }
            Fault::ClockStep => {
                // Forward by any time; back by less than it takes to heal, for who waits waits that much longer.
                let by = self.random.random_range(-200_000_000..3_000_000_000i64);
                self.note(subscriber, fault);
                if self.random.random_ratio(1, 2) {
                    self.nodes[subscriber].clock.step(self.now, by);
                    self.wake(subscriber, self.now + 1_000);
                } else if let Some(publisher) = &mut self.publishers[lane] {
                    publisher.clock.step(self.now, by);
                    self.clocks[lane] = publisher.clock;
                }
            }
            Fault::RdmaBroken if self.plan.rdma => {
                self.note(subscriber, fault);
                if let Some(node) = &mut self.nodes[subscriber].subscriber {
                    node.ring = None;
                }
                self.at(until, What::Connect(subscriber));
            }
            Fault::PublisherPause => {
                self.note_all(fault);
                if let Some(publisher) = &mut self.publishers[lane] {
                    publisher.paused_until = until;
                }
            }
            Fault::SubscriberCrash => {
                self.note(subscriber, fault);
                self.nodes[subscriber].subscriber = None;
                self.nodes[subscriber].wake_at = u64::MAX;
                self.at(until, What::Join(subscriber));
            }
            Fault::SubscriberPause => {
                self.note(subscriber, fault);
                if let Some(node) = &mut self.nodes[subscriber].subscriber {
                    node.paused_until = until;
                    self.wake(subscriber, until);
                }
            }
            Fault::LaneDown if self.plan.lanes == 2 => {
                self.note_all(fault);
                self.lane_down_until[self.random.random_range(0..2)] = until;
            }
            Fault::ServerPause => {
                self.note_all(fault);
                if let Some(publisher) = &mut self.publishers[lane] {
                    publisher.server_paused_until = until;
                }
            }
            _ => {}
        }
    }

    pub(super) fn note(&mut self, subscriber: usize, fault: Fault) {
        if let Some(node) = &self.nodes[subscriber].subscriber {
            self.outcome.table[node.recovery.state().index()][fault as usize] += 1;
        }
    }

    pub(super) fn note_all(&mut self, fault: Fault) {
        (0..self.nodes.len()).for_each(|subscriber| self.note(subscriber, fault));
    }
}
