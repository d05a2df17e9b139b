//! Clocks that are wrong: set apart, drifting, and stepping now and then.

use protocol::time::Nanos;
use rand::Rng;
use rand_pcg::Pcg64Mcg;

/// One host's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// At this true time it read `local`.
    anchor: u64,
    local: u64,
    drift_ppm: i64,
}

impl Clock {
    /// One that is right.
    pub(crate) const RIGHT: Clock = Clock { anchor: 0, local: 0, drift_ppm: 0 };

    /// One that is up to two seconds off, and drifts by up to 200 ppm.
    pub(crate) fn random(now: u64, random: &mut Pcg64Mcg) -> Clock {
        let off = random.random_range(-2_000_000_000..2_000_000_000i64);
        Clock { anchor: now, local: now.saturating_add_signed(off), drift_ppm: random.random_range(-200..=200) }
    }

    /// What it reads at the true time `now`.
    pub(crate) fn read(&self, now: u64) -> Nanos {
        let elapsed = (now - self.anchor) as i64;
        Nanos(self.local + now - self.anchor).plus_signed(elapsed / 1_000_000 * self.drift_ppm)
    }

    /// The true time at which it will read `local`, not before `now`.
    pub(crate) fn when(&self, local: Nanos, now: u64) -> u64 {
        let wait = local.since(self.read(now)).max(0) as u64;
        // A slow clock needs longer.
        now + wait + wait / 4_000 + 2
    }

    /// It is set: by so many ns.
    pub(crate) fn step(&mut self, now: u64, by: i64) {
        let local = self.read(now).0.saturating_add_signed(by);
        (self.anchor, self.local) = (now, local);
    }
}

trait PlusSigned {
    fn plus_signed(self, ns: i64) -> Nanos;
}

impl PlusSigned for Nanos {
    fn plus_signed(self, ns: i64) -> Nanos {
        Nanos(self.0.saturating_add_signed(ns))
    }
}
