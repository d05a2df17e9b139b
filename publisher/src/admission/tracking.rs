//! Subscribers that say how far they have read: the policy `tracked`.
//!
//! A tracked subscriber reports its position every few milliseconds over the control connection. Nobody waits for it, nor does
//! the publishing loop know of it. When as many lines are between it and the newest as nearly fill its ring, it is told, once,
//! that it is about to lose lines; from there on it is like any other (policy `gap`), until it connects anew.

use protocol::line::Stamp;

/// Told when this share of the ring lies between the subscriber and the newest line: so much in `NEARLY.1`.
const NEARLY: (u64, u64) = (3, 4);

/// What is known of one subscriber's reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Tracking {
    /// It never said.
    #[default]
    Not,
    /// It has read to before this line, of a ring of so many.
    At(Stamp, u64),
    /// It fell behind, and was told.
    Lapsed,
}

impl Tracking {
    /// It reports. One that lapsed is not taken up again.
    pub(super) fn on_position(&mut self, next: Stamp, ring_lines: u64) {
        *self = match *self {
            Tracking::Lapsed => Tracking::Lapsed,
            // Reports do not overtake each other; one that goes back is of somebody who does not know what he says.
            Tracking::At(before, _) => Tracking::At(next.max(before), ring_lines),
            Tracking::Not => Tracking::At(next, ring_lines),
        };
    }

    /// How many lines of its ring lie between it and `head`, and how many the ring has. `None` for one that is not tracked, or
    /// still in another epoch.
    pub(super) fn behind(&self, head: Stamp) -> Option<(u64, u64)> {
        match *self {
            Tracking::At(next, lines) if next.epoch() == head.epoch() => Some((head.0.saturating_sub(next.0), lines)),
            _ => None,
        }
    }

    /// Lets it go if its ring is nearly full. Returns what it is to be told, once.
    pub(super) fn judge(&mut self, head: Stamp) -> Option<(u64, u64)> {
        let (behind, lines) = self.behind(head)?;
        if u128::from(behind) * u128::from(NEARLY.1) < u128::from(lines) * u128::from(NEARLY.0) {
            return None;
        }
        *self = Tracking::Lapsed;
        Some((behind, lines))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::line::{Epoch, SequenceNumber};

    fn stamp(epoch: u16, sequence: u64) -> Stamp {
        Stamp::new(Epoch(epoch), SequenceNumber(sequence))
    }

    #[test]
    fn whoever_nearly_fills_its_ring_is_told_once_and_let_go() {
        let mut tracking = Tracking::default();
        assert_eq!(tracking.judge(stamp(1, 1_000_000)), None, "it never said where it is");
        tracking.on_position(stamp(1, 1), 1024);
        assert_eq!(tracking.judge(stamp(1, 768)), None);
        tracking.on_position(stamp(1, 3), 1024);
        assert_eq!((tracking.judge(stamp(1, 769)), tracking.behind(stamp(1, 769))), (None, Some((766, 1024))));
        assert_eq!(tracking.judge(stamp(1, 771)), Some((768, 1024)));
        assert_eq!(tracking.judge(stamp(1, 10_000)), None);
        tracking.on_position(stamp(1, 10_000), 1024);
        assert_eq!((tracking, tracking.behind(stamp(1, 10_000))), (Tracking::Lapsed, None));
    }

    #[test]
    fn a_position_of_another_epoch_says_nothing_and_one_that_goes_back_is_not_believed() {
        let mut tracking = Tracking::default();
        tracking.on_position(stamp(1, 9), 64);
        assert_eq!(tracking.judge(stamp(2, 900)), None);
        tracking.on_position(stamp(2, 880), 64);
        tracking.on_position(stamp(2, 5), 64);
        assert_eq!(tracking.behind(stamp(2, 900)), Some((20, 64)));
        // A ring of no lines, or of more than there are numbers, does no harm.
        let mut odd = Tracking::default();
        odd.on_position(stamp(2, 1), u64::MAX);
        assert_eq!(odd.judge(stamp(2, 900)), None);
        odd.on_position(stamp(2, 1), 0);
        assert_eq!(odd.judge(stamp(2, 900)), Some((899, 0)));
    }
}
