//! The arbiter between lanes and books: lines in order, second copies, gaps.

use std::hint::black_box;

use protocol::arbiter::{Arbiter, ArbiterConfig, Delivery, Gap};
use protocol::line::{Epoch, Line, Stamp};
use protocol::pair::Split;
use protocol::record::Lane;
use protocol::run::{Carrier, LanePath, Run, RunSink};
use protocol::time::Nanos;

use super::Piece;
use super::wire::{FIRST, order};

const NOW: Nanos = Nanos(1_000_000);

#[derive(Default)]
struct Taken {
    lines: u64,
    lost: u64,
}

impl Delivery for Taken {
    #[inline(always)]
    fn on_lines(&mut self, _: Stamp, lines: &[Line], _: LanePath, _: Option<Nanos>) {
        self.lines += lines.len() as u64;
        black_box(lines);
    }
    fn on_gap(&mut self, gap: Gap) {
        self.lost += gap.count;
    }
    fn on_joined(&mut self, _: Stamp) {}
    fn on_epoch(&mut self, _: Epoch, _: Epoch) {}
    fn on_publish_time(&mut self, _: Lane, _: Nanos) {}
    fn on_path_silent(&mut self, _: LanePath, _: Nanos) {}
    fn on_end(&mut self, _: Stamp) {}
    fn on_split(&mut self, _: Split) {}
}

/// An arbiter, and lines for it: it takes verified lines, and does not look inside them.
struct Setting {
    arbiter: Arbiter,
    taken: Taken,
    lines: Vec<Line>,
    next: Stamp,
    now: Nanos,
}

impl Setting {
    fn new(config: ArbiterConfig) -> Setting {
        let lines = (0..2).map(|i| Line::seal(order(), FIRST.plus(i))).collect();
        Setting { arbiter: Arbiter::new(config), taken: Taken::default(), lines, next: FIRST, now: NOW }
    }

    #[inline(always)]
    fn hand(&mut self, lane: u16, first: Stamp, count: usize) {
        let path = LanePath::new(Lane::new(lane), Carrier::Local);
        let run = Run { path, first, lines: black_box(&self.lines[..count]), publish_time: None };
        self.arbiter.sink(self.now, &mut self.taken).on_run(run);
    }

    fn check(&self, lines: u64, lost: u64) {
        assert_eq!((self.taken.lines, self.taken.lost), (lines, lost));
    }
}

/// One line that is the next.
pub struct ArbiterInOrder(Setting);

impl Piece for ArbiterInOrder {
    const NAME: &'static str = "arbiter in order";

    fn new() -> ArbiterInOrder {
        ArbiterInOrder(Setting::new(ArbiterConfig::default()))
    }

    #[inline(always)]
    fn step(&mut self) {
        self.0.hand(0, self.0.next, 1);
        self.0.next = self.0.next.plus(1);
    }

    fn check(&self, steps: u64) {
        self.0.check(steps, 0);
    }
}

/// One line on two lanes: the first copy passes, the second does not.
pub struct ArbiterSecondCopy(Setting);

impl Piece for ArbiterSecondCopy {
    const NAME: &'static str = "arbiter two lanes";

    fn new() -> ArbiterSecondCopy {
        ArbiterSecondCopy(Setting::new(ArbiterConfig { paths: 2, ..ArbiterConfig::default() }))
    }

    #[inline(always)]
    fn step(&mut self) {
        self.0.hand(0, self.0.next, 1);
        self.0.hand(1, self.0.next, 1);
        self.0.next = self.0.next.plus(1);
    }

    fn check(&self, steps: u64) {
        self.0.check(steps, 0);
    }
}

/// The look at what is missing, when nothing is: once a turn of the subscriber's loop.
pub struct GapCheck(Setting);

impl Piece for GapCheck {
    const NAME: &'static str = "gap check";

    fn new() -> GapCheck {
        let mut setting = Setting::new(ArbiterConfig::default());
        setting.hand(0, FIRST, 1);
        GapCheck(setting)
    }

    #[inline(always)]
    fn step(&mut self) {
        self.0.arbiter.on_timeout(black_box(self.0.now), &mut self.0.taken);
    }

    fn check(&self, _: u64) {
        self.0.check(1, 0);
    }
}

/// A line that is missing: the one after it waits for the hedge time, then the gap is named and it is delivered.
pub struct GapDeclared {
    setting: Setting,
    hedge_ns: u64,
}

impl Piece for GapDeclared {
    const NAME: &'static str = "gap declared";

    fn new() -> GapDeclared {
        let config = ArbiterConfig::default();
        let mut setting = Setting::new(config);
        setting.hand(0, FIRST, 1);
        setting.next = FIRST.plus(1);
        GapDeclared { setting, hedge_ns: config.hedge_ns }
    }

    #[inline(always)]
    fn step(&mut self) {
        let setting = &mut self.setting;
        setting.hand(0, setting.next.plus(1), 1);
        setting.now = setting.now.plus(self.hedge_ns);
        setting.arbiter.on_timeout(setting.now, &mut setting.taken);
        setting.next = setting.next.plus(2);
    }

    fn check(&self, steps: u64) {
        self.setting.check(1 + steps, steps);
    }
}
