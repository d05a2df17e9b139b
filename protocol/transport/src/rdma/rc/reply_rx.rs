//! A subscriber's end of a reply ring.

use protocol::line::Line;
use protocol::record::{ChannelId, Lane};
use protocol::run::{Carrier, LanePath, RunSink};
use protocol::time::Nanos;

use super::rx::RcRx;
use super::rx_keeper::{RcRxKeeper, RcRxOptions};
use crate::lane::LaneRx;
use crate::rdma::error::RdmaError;
use crate::reply::{ReplyLane, ReplyRx};

/// Answers come by writes into a ring of this subscriber's own, requests leave as datagrams.
///
/// A request is one line and rare, and one that is lost is asked again. A send on the queue pair would need receive buffers
/// of the publisher's, one set for each subscriber, filled by whoever is connected; so its queue pairs only ever write.
///
/// The ring is read in order. What was written and does not verify is waited for, and meanwhile asked for again; what the
/// reader names as lost (its place was overwritten, or did not verify for as long as the options say) never comes by this
/// ring, and the connection wants to be replaced.
pub struct RcReplyRx {
    requests: ReplyRx,
    ring: RcRx,
}

impl RcReplyRx {
    /// A ring for the answers to what `requests` sends, to be offered by the keeper and connected with
    /// [`expect_replies`](RcRxKeeper::expect_replies), for `lane` of `channel`.
    ///
    /// # Errors
    /// As [`RcRx::open`].
    pub fn open(
        options: &RcRxOptions,
        (channel, lane): (ChannelId, Lane),
        requests: ReplyRx,
    ) -> Result<(RcReplyRx, RcRxKeeper), RdmaError> {
        let (ring, keeper) = RcRxKeeper::open(options, channel, LanePath::new(lane, Carrier::Recovery))?;
        Ok((RcReplyRx { requests, ring }, keeper))
    }

    /// The lane that reads the ring.
    pub fn ring(&self) -> &RcRx {
        &self.ring
    }
}

impl LaneRx for RcReplyRx {
    fn poll<S: RunSink>(&mut self, now: Nanos, limit: usize, sink: &mut S) -> usize {
        self.ring.poll(now, limit, sink)
    }
}

impl ReplyLane for RcReplyRx {
    fn request(&mut self, request: &Line, now: Nanos) -> bool {
        self.requests.request(request, now)
    }
}
