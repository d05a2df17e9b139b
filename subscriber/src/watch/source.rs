//! What the receiving lanes know of themselves.

use protocol::time::Nanos;
use transport::LaneRx;
use transport::fault::FaultInjector;
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
        let trouble = in_words(&[
            (counts.lapped_lines, "lines overwritten before they were read"),
            (counts.unverified_lines, "lines that did not verify"),
            (self.counts().bad_files, "looks at a file that is no ring"),
            (self.counts().older_epochs, "rings of an older epoch"),
        ]);
        let what = match self.ring() {
            Some(ring) => format!("shared memory {}, pid {}", ring.path().display(), ring.pid()),
            None => "shared memory, no ring yet".into(),
        };
        vec![Path { what, lines: counts.lines, trouble, heard: self.last_life() }]
    }

    fn waiting_for(&self, name: &str, _: u16) -> String {
        match ShmRing::open(name, self.lane()) {
            Ok(ring) => format!("{} is there, and holds nothing yet", ring.path().display()),
            Err(error) => error.to_string(),
        }
    }
}

impl Source for UdpRx {
    fn paths(&self, before: &[Path], now: Nanos) -> Vec<Path> {
        let counters = self.counters();
        let mut trouble = in_words(&[
            (counters.kernel_drops, "datagrams dropped by the kernel"),
            (counters.refused_total(), "datagrams refused (another channel's, or damaged)"),
            (counters.errors, "failed system calls"),
        ]);
        let buffer = self.receive_buffer();
        if buffer.is_short() && counters.kernel_drops > 0 {
            trouble += &format!(", receive buffer {} of {} bytes", buffer.granted, buffer.requested);
        }
        // The signs of life are counted here, not dated: what is new since the last look came about now.
        let signs = counters.packets + counters.heartbeats;
        let what = format!("UDP multicast, {} packets, {} heartbeats", counters.packets, counters.heartbeats);
        let heard = match before.first() {
            Some(path) if path.what == what => path.heard,
            _ if signs == 0 => None,
            _ => Some(now),
        };
        vec![Path { what, lines: counters.lines, trouble, heard }]
    }

    fn waiting_for(&self, _: &str, _: u16) -> String {
        match self.counters().refused_total() {
            0 => "no datagram has come: its publisher has not started yet, or sends to another group or port".into(),
            refused => format!("{refused} datagrams came and were refused: of another channel number, or damaged"),
        }
    }
}

#[cfg(feature = "rdma")]
impl Source for subscriber::rdma::RdmaRx {
    fn paths(&self, before: &[Path], now: Nanos) -> Vec<Path> {
        // Said to whoever reads along; the terminal's own screen hides it, as it does all of standard error.
        while let Some(news) = self.next_news() {
            cli::eprintln!("RDMA: {news}");
        }
        let mut paths = Vec::new();
        if let Some(ud) = self.ud() {
            let counters = ud.counters();
            let trouble = [
                (counters.refused_total(), "datagrams refused (another channel's, or damaged)"),
                (counters.foreign, "datagrams of foreign senders"),
                (counters.starved, "times that all receive buffers were in use"),
                (counters.failed, "receives failed"),
            ];
            let signs = counters.packets + counters.heartbeats;
            let what = format!("RDMA datagrams, {} packets, {} heartbeats", counters.packets, counters.heartbeats);
            let heard = match before.first() {
                Some(path) if path.what == what => path.heard,
                _ if signs == 0 => None,
                _ => Some(now),
            };
            paths.push(Path { what, lines: counters.lines, trouble: in_words(&trouble), heard });
        }
        if let Some(rc) = self.rc() {
            let counts = rc.reader().map(|reader| *reader.counts()).unwrap_or_default();
            let trouble = [
                (counts.lapped_lines, "lines overwritten before they were read"),
                (counts.unverified_lines, "lines that did not verify"),
            ];
            let what = match rc.reader() {
                Some(_) => "RDMA writes into a ring of its own".to_owned(),
                None => "RDMA writes, never connected".to_owned(),
            };
            let heard = rc.reader().and_then(|reader| reader.last_life());
            paths.push(Path { what, lines: counts.lines, trouble: in_words(&trouble), heard });
        }
        paths
    }

    fn waiting_for(&self, _: &str, _: u16) -> String {
        "the publisher is there; no line and no heartbeat has come yet".into()
    }
}

impl<R: Source> Source for FaultInjector<R> {
    fn paths(&self, before: &[Path], now: Nanos) -> Vec<Path> {
        let mut paths = self.inner().paths(before, now);
        if let Some(path) = paths.first_mut() {
            let lost = in_words(&[(self.counts().dropped, "packets lost on purpose")]);
            let known = std::mem::take(&mut path.trouble);
            path.trouble = [known, lost].into_iter().filter(|words| !words.is_empty()).collect::<Vec<_>>().join(", ");
        }
        paths
    }

    fn waiting_for(&self, name: &str, lane: u16) -> String {
        self.inner().waiting_for(name, lane)
    }
}

/// What is not zero, each with its number.
fn in_words(counts: &[(u64, &str)]) -> String {
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    counts.map(|(count, what)| format!("{count} {what}")).collect::<Vec<_>>().join(", ")
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
