//! What the receiving lanes know of themselves.

use protocol::record::Lane;
use protocol::time::Nanos;
use transport::LaneRx;
use transport::shm::{ShmRing, ShmRx};
use transport::udp::UdpRx;

/// A receiving transport, as a person wants to see it.
#[derive(Clone, Default, Debug)]
pub(crate) struct Path {
    /// What it is, where, and who writes it.
    pub(crate) what: String,
    /// Lines that it handed up, duplicates of another path included.
    pub(crate) lines: u64,
    /// Everything that went wrong on it, in words; empty if nothing did.
    pub(crate) trouble: String,
    /// When it last gave a sign of life: the publisher's lines or heartbeats.
    pub(crate) heard: Option<Nanos>,
}

/// Tells about receiving lanes. Called some ten times a second, from the thread that polls.
pub(crate) trait Source: LaneRx {
    /// Each path of it, in a fixed order; `before` is what it said the last time, at `then`.
    fn paths(&self, before: &[Path], now: Nanos) -> Vec<Path>;

    /// Why nothing has come yet, as far as can be told: looked up anew, which costs system calls.
    fn waiting_for(&self, name: &str, lane: u16) -> String;
}

impl Source for ShmRx {
    fn paths(&self, _: &[Path], _: Nanos) -> Vec<Path> {
        let counts = self.reader_counts();
        let mut trouble = Vec::new();
        for (count, what) in [
            (counts.lapped_lines, "lines overwritten before they were read"),
            (counts.unverified_lines, "lines that did not verify"),
            (self.counts().bad_files, "looks at a file that is no ring"),
            (self.counts().older_epochs, "rings of an older epoch"),
        ] {
            if count > 0 {
                trouble.push(format!("{count} {what}"));
            }
        }
        let what = match self.ring() {
            Some(ring) => format!("shared memory {}, pid {}", ring.path().display(), ring.pid()),
            None => "shared memory, no ring yet".into(),
        };
        vec![Path { what, lines: counts.lines, trouble: trouble.join(", "), heard: self.last_life() }]
    }

    fn waiting_for(&self, name: &str, lane: u16) -> String {
        match ShmRing::open(name, Lane::new(lane)) {
            Ok(ring) => format!("{} is there, and holds nothing yet", ring.path().display()),
            Err(error) => error.to_string(),
        }
    }
}

impl Source for UdpRx {
    fn paths(&self, before: &[Path], now: Nanos) -> Vec<Path> {
        let counters = self.counters();
        let mut trouble = Vec::new();
        for (count, what) in [
            (counters.kernel_drops, "datagrams dropped by the kernel"),
            (counters.refused_total(), "datagrams refused (another channel's, or damaged)"),
            (counters.errors, "failed system calls"),
        ] {
            if count > 0 {
                trouble.push(format!("{count} {what}"));
            }
        }
        let buffer = self.receive_buffer();
        if buffer.is_short() && counters.kernel_drops > 0 {
            trouble.push(format!("receive buffer {} of {} bytes", buffer.granted, buffer.requested));
        }
        // The signs of life are counted here, not dated: what is new since the last look came about now.
        let signs = counters.packets + counters.heartbeats;
        let what = format!("UDP multicast, {} packets, {} heartbeats", counters.packets, counters.heartbeats);
        let heard = match before.first() {
            Some(path) if path.what == what => path.heard,
            _ if signs == 0 => None,
            _ => Some(now),
        };
        vec![Path { what, lines: counters.lines, trouble: trouble.join(", "), heard }]
    }

    fn waiting_for(&self, _: &str, _: u16) -> String {
        match self.counters().refused_total() {
            0 => "no datagram has come: its publisher has not started yet, or sends to another group or port".into(),
            refused => format!("{refused} datagrams came and were refused: of another channel number, or damaged"),
        }
    }
}

impl<A: Source, B: Source> Source for (A, B) {
    fn paths(&self, before: &[Path], now: Nanos) -> Vec<Path> {
        let mut paths = self.0.paths(before, now);
        let rest = before.get(paths.len()..).unwrap_or_default();
        paths.extend(self.1.paths(rest, now));
        paths
    }

    fn waiting_for(&self, name: &str, lane: u16) -> String {
        format!("{}; {}", self.0.waiting_for(name, lane), self.1.waiting_for(name, lane))
    }
}
