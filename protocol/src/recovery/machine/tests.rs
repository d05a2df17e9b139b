use super::*;
use crate::arbiter::{ArbiterConfig, Gap};
use crate::book::{BooksConfig, Start};
use crate::line::{Epoch, SequenceNumber};
use crate::pair::Split;
use crate::record::{Kind, Lane};
use crate::recovery::{Responder, ResponderConfig};
use crate::run::{Carrier, LanePath, Position, Run, RunSink};

const US: u64 = 1_000;
const MS: u64 = 1_000 * US;
const HEDGE_NS: u64 = 200 * US;
const RECOVER_NS: u64 = 100 * MS;
const PATH: LanePath = LanePath::new(Lane::new(0), Carrier::Udp);
const SESSION: Session = Session { connection: Connection(4), key: 99 };

fn stamp(sequence: u64) -> Stamp {
    Stamp::new(Epoch(1), SequenceNumber(sequence))
}

fn lines(first: u64, count: u64) -> Vec<Line> {
    (first..first + count)
        .map(|sequence| Line::seal(Record::new(Kind::STATUS, InstrumentId(1)), stamp(sequence)))
        .collect()
}

/// What a reader of the stream was told; books that never want anything.
#[derive(Default)]
struct Told {
    got: Vec<u64>,
    by_recovery: u64,
    gaps: Vec<(u64, u64)>,
}

impl Delivery for Told {
    fn on_lines(&mut self, first: Stamp, lines: &[Line], path: LanePath, _: Option<Nanos>) {
        assert!(lines.iter().enumerate().all(|(i, line)| line.verifies(first.plus(i as u64))));
        self.got.extend((0..lines.len() as u64).map(|i| first.sequence().0 + i));
        self.by_recovery += if path.carrier == Carrier::Recovery { lines.len() as u64 } else { 0 };
    }
    fn on_gap(&mut self, gap: Gap) {
        self.gaps.push((gap.first.sequence().0, gap.count));
    }
    fn on_joined(&mut self, _: Stamp) {}
    fn on_epoch(&mut self, _: Epoch, _: Epoch) {}
    fn on_publish_time(&mut self, _: Lane, _: Nanos) {}
    fn on_path_silent(&mut self, _: LanePath, _: Nanos) {}
    fn on_end(&mut self, _: Stamp) {}
    fn on_split(&mut self, _: Split) {}
}

impl Recovering for Told {
    fn doubts(&self) -> u64 {
        0
    }
    fn next_unready(&self, _: InstrumentId) -> Option<(InstrumentId, InstrumentId)> {
        None
    }
    fn highest(&self) -> InstrumentId {
        InstrumentId(0)
    }
    fn lowest_use(&self) -> Option<Stamp> {
        None
    }
    fn on_snapshots_asked(&mut self, _: InstrumentId, _: InstrumentId) {}
    fn on_snapshots_failed(&mut self, _: InstrumentId, _: InstrumentId) {}
    fn on_snapshot(&mut self, _: &Snapshot<'_>, _: &[Record]) -> Fate {
        Fate::Useless
    }
    fn settle_snapshots(&mut self) -> usize {
        0
    }
    fn on_caught_up(&mut self) {}
}

/// A subscriber that has lines 1 to 5, and a recovery server that has 1 to 20.
struct Bench {
    arbiter: Arbiter,
    recovery: Recovery,
    told: Told,
    server: Responder,
    now: u64,
}

impl Bench {
    fn new() -> Bench {
        Bench::with(RecoveryConfig::default(), 32)
    }

    fn with(config: RecoveryConfig, history_lines: usize) -> Bench {
        let arbiter =
            ArbiterConfig { hedge_ns: HEDGE_NS, recover_ns: RECOVER_NS, early_lines: 64, ..ArbiterConfig::default() };
        let books = BooksConfig { instruments: 2, orders: 16, levels: 16 };
        let mut server = Responder::new(ResponderConfig {
            history_lines,
            reply_lines: config.reply_lines,
            books,
            start: Start::Strict,
            ..ResponderConfig::default()
        });
        server.admit(SESSION.connection, SESSION.key);
        server.on_joined(stamp(1));
        server.on_lines(stamp(1), &lines(1, 20), PATH, None);
        let recovery = Recovery::new(config, SESSION, 7);
        let mut bench = Bench { arbiter: Arbiter::new(arbiter), recovery, told: Told::default(), server, now: MS };
        bench.live(1, 5);
        bench
    }

    fn live(&mut self, first: u64, count: u64) {
        let lines = lines(first, count);
        let run = Run { path: PATH, first: stamp(first), lines: &lines, publish_time: None };
        self.arbiter.sink(Nanos(self.now), &mut self.told).on_run(run);
    }

    fn turn(&mut self) {
        self.arbiter.on_timeout(Nanos(self.now), &mut self.told);
        self.recovery.turn(Nanos(self.now), &mut self.arbiter, &mut self.told);
    }

    /// Time passes until something is due, but not beyond `limit`. The requests that were made then.
    fn until_due(&mut self, limit: u64) -> Vec<Request> {
        while self.now < limit {
            let due = [self.recovery.next_timeout(&self.arbiter), self.arbiter.next_timeout()];
            let due = due.into_iter().flatten().map(|at| at.0).min().unwrap_or(limit);
            self.now = due.clamp(self.now + 1, limit);
            self.turn();
            let asked = self.asked();
            if !asked.is_empty() {
                return asked;
            }
        }
        Vec::new()
    }

    fn asked(&mut self) -> Vec<Request> {
        let mut asked = Vec::new();
        while let Some(line) = self.recovery.poll_request() {
            asked.push(Request::from_line(&line).expect("a request"));
        }
        asked
    }

    /// The server answers; `keep` says which lines of the replies come, by their counts.
    fn answer(&mut self, asked: &[Request], keep: impl Fn(u64) -> bool) {
        asked.iter().for_each(|request| self.server.on_request(&request.to_line()));
        let mut replies = Vec::new();
        while let Some(run) = self.server.poll_reply(Nanos(self.now), 4) {
            replies.extend(run.lines.iter().enumerate().map(|(i, line)| (run.first.plus(i as u64), *line)));
        }
        for (first, line) in replies.into_iter().filter(|(first, _)| keep(Connection::of(*first).1)) {
            let now = Nanos(self.now);
            self.recovery.on_replies(first, &[line], now, &mut self.arbiter, &mut self.told);
        }
    }
}

fn everything(from: u64, to: u64) -> Vec<u64> {
    (from..=to).collect()
}

#[test]
fn a_hole_is_asked_for_after_its_hedge_time_and_filled_in_order() {
    let mut b = Bench::new();
    b.live(9, 3);
    let began = b.now;
    b.turn();
    assert_eq!((b.asked(), b.recovery.state()), (vec![], RecoveryState::Gapped));
    let asked = b.until_due(SECOND);
    let waited = b.now - began;
    assert!((HEDGE_NS..HEDGE_NS + RecoveryConfig::default().jitter_ns).contains(&waited), "after {waited} ns");
    assert_eq!(asked.iter().map(|r| r.ask).collect::<Vec<_>>(), [Ask::Lines { first: stamp(6), count: 3 }]);
    assert_eq!(b.recovery.state(), RecoveryState::Requesting);
    b.answer(&asked, |_| true);
    b.turn();
    assert_eq!((b.told.got.clone(), b.told.by_recovery, b.told.gaps.len()), (everything(1, 11), 3, 0));
    assert_eq!((b.arbiter.counts().recovered, b.arbiter.counts().gaps), (3, 0));
    assert_eq!(b.recovery.state(), RecoveryState::Live);
    assert_eq!(b.until_due(SECOND), []);
}

const SECOND: u64 = 1_000 * MS;

#[test]
fn lines_that_come_by_themselves_within_the_hedge_time_are_not_asked_for() {
    let mut b = Bench::new();
    b.live(9, 3);
    b.now += HEDGE_NS / 2;
    b.live(6, 3);
    assert_eq!((b.until_due(SECOND), b.told.got.clone()), (vec![], everything(1, 11)));
    assert_eq!(b.recovery.counts().requests, 0);
}

#[test]
fn the_loss_of_the_last_packet_is_shown_by_a_heartbeat_and_repaired() {
    let mut b = Bench::new();
    let position = Position { path: PATH, next: stamp(9), publish_time: None, ended: false };
    b.arbiter.sink(Nanos(b.now), &mut b.told).on_position(position);
    let asked = b.until_due(SECOND);
    b.answer(&asked, |_| true);
    assert_eq!((b.told.got.clone(), b.told.by_recovery), (everything(1, 8), 3));
}

#[test]
fn an_unanswered_request_is_repeated_under_its_number_then_given_up_and_the_gap_declared() {
    let mut b = Bench::new();
    b.live(9, 3);
    let began = b.now;
    let mut times = Vec::new();
    loop {
        let asked = b.until_due(began + SECOND);
        if asked.is_empty() {
            break;
        }
        assert!(asked.iter().all(|request| request.number == 1), "{asked:?}");
        times.push(b.now);
    }
    let waits: Vec<u64> = times.windows(2).map(|two| two[1] - two[0]).collect();
    assert!(times.len() >= 3 && times.len() <= 6, "asked {} times", times.len());
    assert!(waits.windows(2).all(|two| two[1] > two[0] * 3 / 2), "each time after a longer wait: {waits:?}");
    assert_eq!(
        (b.told.got.clone(), b.told.gaps.clone()),
        ([everything(1, 5), everything(9, 11)].concat(), vec![(6, 3)])
    );
    assert_eq!(b.recovery.state(), RecoveryState::Live);
}

#[test]
fn what_is_missing_is_declared_after_a_bounded_time_whatever_the_server_does() {
    let mut b = Bench::with(RecoveryConfig { attempts: 1_000_000, ..RecoveryConfig::default() }, 32);
    b.live(9, 3);
    let due = b.now + HEDGE_NS + RECOVER_NS;
    while b.now < due - 1 {
        b.until_due(due - 1);
    }
    assert_eq!(b.told.gaps, []);
    b.until_due(due);
    assert_eq!(b.told.gaps, [(6, 3)]);
}

#[test]
fn a_request_whose_time_passed_while_nobody_ran_is_neither_repeated_nor_given_up_at_once() {
    let mut b = Bench::with(RecoveryConfig { attempts: 1, ..RecoveryConfig::default() }, 32);
    b.live(9, 3);
    let asked = b.until_due(SECOND);
    assert_eq!(asked.len(), 1);
    // Stopped for longer than anything is waited for: the answer lies in a queue, and has not been read.
    b.now += 3 * RECOVER_NS;
    b.turn();
    assert_eq!((b.asked(), b.told.gaps.clone()), (vec![], vec![]));
    b.answer(&asked, |_| true);
    b.turn();
    assert_eq!((b.told.got.clone(), b.told.by_recovery), (everything(1, 11), 3));
    assert_eq!((b.recovery.state(), b.recovery.counts().failed), (RecoveryState::Live, 0));
}

#[test]
fn who_turns_seldom_asks_again_and_is_told_in_the_end() {
    let mut b = Bench::new();
    b.live(9, 3);
    // Each turn comes late by more than an answer may take.
    let mut asked = 0;
    for _ in 0..6 {
        b.now += 50 * MS;
        b.turn();
        asked += b.asked().len();
    }
    assert!(asked >= 2, "asked {asked} times");
    assert_eq!(b.told.gaps, [(6, 3)]);
}

#[test]
fn what_history_no_longer_holds_is_declared_at_once_and_the_rest_is_had() {
    let mut b = Bench::with(RecoveryConfig::default(), 8);
    b.live(18, 3);
    let began = b.now;
    let asked = b.until_due(SECOND);
    b.answer(&asked, |_| true);
    while b.told.got.last() != Some(&20) && b.now < SECOND {
        let asked = b.until_due(SECOND);
        b.answer(&asked, |_| true);
    }
    // Of 13 to 20, the oldest is about to be pushed out.
    assert_eq!(b.told.gaps, [(6, 8)]);
    assert_eq!(b.told.got, [everything(1, 5), everything(14, 20)].concat());
    assert!(b.now - began < 10 * MS, "after {} ns", b.now - began);
    assert_eq!(b.recovery.counts().not_held, 8);
}

#[test]
fn lines_of_a_reply_that_were_lost_are_asked_for_by_count() {
    let mut b = Bench::new();
    b.live(20, 1);
    let asked = b.until_due(SECOND);
    assert_eq!(asked[0].ask, Ask::Lines { first: stamp(6), count: 14 });
    b.answer(&asked, |count| ![3, 4, 15].contains(&count));
    assert_eq!(b.told.got, everything(1, 6));
    let asked = b.until_due(SECOND);
    assert_eq!(asked.iter().map(|r| r.ask).collect::<Vec<_>>(), [Ask::Replies { first: 3, count: 2 }]);
    b.answer(&asked, |_| true);
    assert_eq!(b.told.got, everything(1, 18));
    // The last line of all is shown by nothing that follows it: it is asked for when time is up.
    let asked = b.until_due(SECOND);
    assert_eq!(asked.iter().map(|r| r.ask).collect::<Vec<_>>(), [Ask::Replies { first: 15, count: 1 }]);
    b.answer(&asked, |_| true);
    assert_eq!((b.told.got.clone(), b.told.gaps.len()), (everything(1, 20), 0));
    assert_eq!(b.server.counts().retransmitted, 14, "no line was looked up twice");
}

#[test]
fn a_reply_of_which_nothing_came_is_sent_again_as_it_was() {
    let mut b = Bench::new();
    b.live(9, 3);
    let asked = b.until_due(SECOND);
    b.answer(&asked, |_| false);
    let again = b.until_due(SECOND);
    assert_eq!(again, asked);
    b.answer(&again, |_| true);
    assert_eq!(b.told.got, everything(1, 11));
    assert_eq!((b.server.counts().repeated, b.server.counts().retransmitted), (1, 3));
    assert_eq!(b.recovery.counts().timeouts, 1);
}

#[test]
fn lines_of_another_epoch_or_that_came_already_are_not_delivered_again() {
    let mut b = Bench::new();
    let now = Nanos(b.now);
    b.arbiter.on_recovered(stamp(2), &lines(2, 3), now, &mut b.told);
    let old = Stamp::new(Epoch(7), SequenceNumber(6));
    b.arbiter.on_recovered(old, &[Line::seal(Record::new(Kind::STATUS, InstrumentId(1)), old)], now, &mut b.told);
    assert_eq!((b.told.got.clone(), b.arbiter.counts().recovered_late), (everything(1, 5), 4));
    b.arbiter.on_recovered(stamp(4), &lines(4, 4), now, &mut b.told);
    assert_eq!(b.told.got, everything(1, 7));
    // Farther ahead than the early store reaches.
    b.arbiter.on_recovered(stamp(60), &lines(60, 20), now, &mut b.told);
    b.live(8, 52);
    assert_eq!(b.told.got, everything(1, 71));
}

#[test]
fn near_holes_are_asked_for_as_one_and_far_ones_apart() {
    let mut b = Bench::new();
    for (first, count) in [(7, 2), (10, 1), (20, 1)] {
        b.live(first, count);
    }
    let asked = b.until_due(SECOND);
    let asks: Vec<Ask> = asked.iter().map(|request| request.ask).collect();
    assert_eq!(asks, [Ask::Lines { first: stamp(6), count: 14 }]);
    let mut b = Bench::with(RecoveryConfig { merge_lines: 0, ..RecoveryConfig::default() }, 32);
    for (first, count) in [(7, 2), (10, 1), (20, 1)] {
        b.live(first, count);
    }
    let asked = b.until_due(SECOND);
    let asks: Vec<(u64, u64)> = asked
        .iter()
        .map(|request| match request.ask {
            Ask::Lines { first, count } => (first.sequence().0, count),
            ask => panic!("{ask:?}"),
        })
        .collect();
    assert_eq!(asks, [(6, 1), (9, 1), (11, 9)]);
    b.answer(&asked, |_| true);
    assert_eq!(b.told.got, everything(1, 20));
}

#[test]
fn requests_are_bounded_in_rate() {
    let config =
        RecoveryConfig { requests_per_s: 1_000, burst_requests: 2, merge_lines: 0, ..RecoveryConfig::default() };
    let mut b = Bench::with(config, 32);
    for sequence in [7, 9, 11, 13, 15, 17, 19] {
        b.live(sequence, 1);
    }
    let began = b.now;
    let mut asked = b.until_due(SECOND);
    assert!(asked.len() <= 3, "{} at once", asked.len());
    while b.now < began + 4 * MS {
        asked.extend(b.until_due(began + 4 * MS));
    }
    assert!(asked.len() <= 7, "{} in 4 ms", asked.len());
    assert!(b.recovery.counts().put_off > 0);
}

#[test]
fn after_a_restart_of_the_server_the_same_is_asked_of_the_new_one() {
    let mut b = Bench::new();
    b.live(9, 3);
    let asked = b.until_due(SECOND);
    assert_eq!(asked[0].connection, SESSION.connection);
    let session = Session { connection: Connection(5), key: 100 };
    b.recovery.reconnect(session);
    b.server.dismiss(SESSION.connection);
    b.server.admit(session.connection, session.key);
    let asked = b.until_due(SECOND);
    assert_eq!((asked[0].connection, asked[0].key, asked[0].number), (Connection(5), 100, 1));
    b.answer(&asked, |_| true);
    assert_eq!((b.told.got.clone(), b.told.gaps.len()), (everything(1, 11), 0));
}
