//! The conformance suite of all lanes, over real verbs: UD from one soft device to another, RC the same way.

#![forbid(unsafe_code)]

#[allow(dead_code)]
#[path = "conformance/harness.rs"]
mod harness;
mod rdma_support;
#[path = "conformance/suite.rs"]
mod suite;

use std::net::Ipv4Addr;

use harness::{Faulty, Harness};
use rdma_support::{
    HERE, NEVER_NS, Publisher, Settled, Subscriber, THERE, fabric, fresh_group, rc_options, ud_options,
};
use transport::rdma::{Fabric, RcOptions, UdOptions, UdRx, UdRxKeeper, UdSource, UdTx, UdTxKeeper};
use transport::ring::RingWriter;

/// UD multicast, each lane with a group of its own.
#[derive(Default)]
struct Ud {
    group: Option<Ipv4Addr>,
    keepers: Vec<(Option<UdTxKeeper>, Option<UdRxKeeper>)>,
}

impl Ud {
    fn receiver(&mut self, sources: Vec<UdSource>) -> UdRx {
        let options = ud_options(THERE, self.group.expect("made before joined"));
        let (rx, mut keeper) = UdRx::open(&options, harness::CHANNEL).expect("a receiver there");
        keeper.expect(sources);
        self.keepers.push((None, Some(keeper)));
        rx
    }
}

impl Harness for Ud {
    type Tx = UdTx;
    type Rx = UdRx;
    const DECLARES_LOSSES: bool = false;

    fn make(&mut self, capacity: usize) -> (RingWriter, UdTx, UdRx) {
        let group = fresh_group();
        self.group = Some(group);
        let ring = harness::ring(capacity);
        // Time is virtual in the suite: no deadline means anything.
        let options = UdOptions { deadline_ns: NEVER_NS, ..ud_options(HERE, group) };
        let (tx, keeper) = UdTx::open(&options, &ring).expect("a sender here");
        let rx = self.receiver(vec![keeper.source()]);
        self.keepers.push((Some(keeper), None));
        (ring, tx, rx)
    }

    fn join(&mut self, _: &RingWriter, _: &mut UdTx) -> UdRx {
        self.receiver(Vec::new())
    }
}

/// RC writes from a ring four times as large as each subscriber's: the suite puts nearly a whole ring between two flushes,
/// and what is under way may lie no more than half the publisher's ring behind.
#[derive(Default)]
struct Rc {
    capacity: usize,
}

impl Harness for Rc {
    type Tx = Settled;
    type Rx = Subscriber;
    const DECLARES_LOSSES: bool = true;

    fn make(&mut self, capacity: usize) -> (RingWriter, Settled, Subscriber) {
        self.capacity = capacity;
        let ring = harness::ring(4 * capacity);
        // As above.
        let options = RcOptions { deadline_ns: NEVER_NS, ..rc_options() };
        let mut tx = Settled(Publisher::open(&options, &ring));
        let rx = self.join(&ring, &mut tx);
        (ring, tx, rx)
    }

    fn join(&mut self, _: &RingWriter, tx: &mut Settled) -> Subscriber {
        tx.0.connect(self.capacity).1
    }
}

/// The tests of the suite for one harness, each under its own name.
macro_rules! conforms {
    ($transport:ident, $harness:expr, $is_there:expr) => {
        mod $transport {
            use super::*;

            /// Where the fabric does not have it, there is nothing to conform.
            fn is_there() -> bool {
                let is_there = $is_there(fabric());
                if !is_there {
                    println!("not on this fabric");
                }
                is_there
            }

            #[test]
            fn every_line_comes_once_in_order_at_every_batch_size() {
                if is_there() {
                    suite::every_line_comes_once_in_order(&mut $harness);
                }
            }

            #[test]
            fn heartbeats_say_where_the_writer_stands_and_bring_no_lines() {
                if is_there() {
                    suite::heartbeats_say_where_the_writer_stands(&mut $harness);
                }
            }

            #[test]
            fn the_end_of_the_session_is_seen_after_its_last_line() {
                if is_there() {
                    suite::the_end_of_the_session_is_seen(&mut $harness);
                }
            }

            #[test]
            fn a_reader_that_slept_learns_exactly_what_it_missed() {
                if is_there() {
                    suite::a_reader_that_slept_learns_what_it_missed(&mut $harness);
                }
            }

            #[test]
            fn a_poll_hands_up_about_as_much_as_it_was_asked_for() {
                if is_there() {
                    suite::the_limit_is_respected(&mut $harness);
                }
            }

            #[test]
            fn a_second_reader_that_joins_later_starts_cleanly() {
                if is_there() {
                    suite::a_second_reader_starts_cleanly(&mut $harness);
                }
            }

            #[test]
            fn a_reader_that_sleeps_does_not_hold_up_its_neighbour() {
                if is_there() {
                    suite::a_sleeping_reader_does_not_hold_up_its_neighbour(&mut $harness);
                }
            }

            #[test]
            fn with_faults_what_is_handed_up_is_still_true() {
                if is_there() {
                    suite::with_faults_what_is_handed_up_is_true(|plan| Faulty::new($harness, plan));
                }
            }
        }
    };
}

conforms!(ud, Ud::default(), |fabric| fabric != Fabric::Iwarp);
conforms!(rc, Rc::default(), |_| true);
