//! One suite, run against every transport: what any lane promises, whatever carries it.
//!
//! `suite.rs` holds the promises, `harness.rs` the few things that differ from transport to transport. Each transport is
//! tried as it is, and wrapped in a fault injector that does nothing; and each, wrapped in one that does its worst, must
//! still say nothing but the truth.

#![forbid(unsafe_code)]

mod harness;
mod suite;

use harness::{Faulty, Link, Ring, Shm, Udp};

/// The tests of the suite for one harness, each under its own name.
macro_rules! conforms {
    ($transport:ident, $harness:expr) => {
        mod $transport {
            use super::*;

            #[test]
            fn every_line_comes_once_in_order_at_every_batch_size() {
                suite::every_line_comes_once_in_order(&mut $harness);
            }

            #[test]
            fn heartbeats_say_where_the_writer_stands_and_bring_no_lines() {
                suite::heartbeats_say_where_the_writer_stands(&mut $harness);
            }

            #[test]
            fn the_end_of_the_session_is_seen_after_its_last_line() {
                suite::the_end_of_the_session_is_seen(&mut $harness);
            }

            #[test]
            fn a_reader_that_slept_learns_exactly_what_it_missed() {
                suite::a_reader_that_slept_learns_what_it_missed(&mut $harness);
            }

            #[test]
            fn a_poll_hands_up_about_as_much_as_it_was_asked_for() {
                suite::the_limit_is_respected(&mut $harness);
            }

            #[test]
            fn a_second_reader_that_joins_later_starts_cleanly() {
                suite::a_second_reader_starts_cleanly(&mut $harness);
            }

            #[test]
            fn a_reader_that_sleeps_does_not_hold_up_its_neighbour() {
                suite::a_sleeping_reader_does_not_hold_up_its_neighbour(&mut $harness);
            }

            #[test]
            fn with_faults_what_is_handed_up_is_still_true() {
                suite::with_faults_what_is_handed_up_is_true(|plan| Faulty::new($harness, plan));
            }
        }
    };
}

conforms!(ring, Ring);
conforms!(ring_wrapped, Faulty::harmless(Ring));
conforms!(shm, Shm::default());
conforms!(shm_wrapped, Faulty::harmless(Shm::default()));
conforms!(link, Link);
conforms!(link_wrapped, Faulty::harmless(Link));
conforms!(udp, Udp::default());
conforms!(udp_wrapped, Faulty::harmless(Udp::default()));
