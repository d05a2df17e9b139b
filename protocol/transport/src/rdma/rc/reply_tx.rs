//! The recovery server's end of reply rings.

use std::sync::Arc;

use protocol::line::{Line, Stamp};
use protocol::record::{ChannelId, Lane};
use protocol::recovery::Connection;
use protocol::time::Nanos;

use super::peer::{PeerCounters, Stage};
use super::peers::Peers;
use super::tx::{MOST_PEERS, RcOptions, Sources};
use super::tx_keeper::{RcTxKeeper, WrittenFrom};
use crate::memory::{Mapping, PAGE_LEN, RingMemory, WriterMemory};
use crate::rdma::error::RdmaError;
use crate::rdma::local::LocalPort;
use crate::rdma::queue_pair::{QueuePair, SendList};
use crate::rdma::region::Region;
use crate::reply::ReplyRings;

/// Writes under way for one subscriber.
const SEND_DEPTH: usize = 32;
/// Lines under way for one subscriber: 64 KiB, which at 10 us there and back are 6 GB/s.
const STAGE_LINES: u64 = 1024;
/// Lines of one write: a sixteenth of what may be under way, so that places become free while others are still on the way.
const WRITE_LINES: usize = STAGE_LINES as usize / 16;

/// Writes the lines of replies into the rings that subscribers offer, each over a queue pair of its own. It belongs to the
/// recovery server's thread: the lanes' queue pairs, completion queues and loops are others.
///
/// Lines are copied into memory of this lane's own, which nobody else can reach, and stay there until their write has
/// ended: what they were copied from may change meanwhile. Nothing is dropped: what finds no room is not taken, and
/// comes again.
pub struct RcReplyTx {
    peers: Peers,
    stage: WriterMemory,
    deadline_ns: u64,
    list: SendList,
}

impl RcReplyTx {
    /// Nobody's ring yet, and the keeper that changes that by [`connect_replies`](RcTxKeeper::connect_replies), for `lane`
    /// of `channel`. Of the options `send_depth` and `heartbeat_interval_ns` mean nothing here: queues are short, and whether
    /// a subscriber lives is for its control connection to say.
    ///
    /// # Errors
    /// As [`RcRingTx::open`](super::RcRingTx::open).
    pub fn open(options: &RcOptions, channel: ChannelId, lane: Lane) -> Result<(RcReplyTx, RcTxKeeper), RdmaError> {
        let local = LocalPort::find(options.device.as_deref(), options.address)?;
        let options = RcOptions { send_depth: SEND_DEPTH, heartbeat_interval_ns: None, ..options.clone() };
        let most = MOST_PEERS.min(local.device.limits().completions / SEND_DEPTH);
        if options.max_peers == 0 || options.max_peers > most {
            return Err(RdmaError::Limit {
                device: local.device.name().to_owned(),
                what: "the number of reply rings",
                value: options.max_peers as u64,
                allowed: format!("1 to {most}"),
            });
        }
        let lines = options.max_peers * STAGE_LINES as usize;
        let memory = match Mapping::anonymous(super::ring_len(lines as u64).next_multiple_of(PAGE_LEN as u64) as usize)
        {
            Ok((mapping, _)) => RingMemory::new(Arc::new(mapping), 0, lines),
            Err(source) => {
                return Err(RdmaError::System {
                    device: local.device.name().to_owned(),
                    what: "map memory for replies",
                    source,
                    next: "free memory, or let fewer subscribers recover",
                });
            }
        };
        let first = Connection(1).stamp(1);
        let sources = Arc::new(Sources::new(&options, &local, &memory, first)?);
        let (peers, to_hot, from_hot) = Peers::new(options.max_peers, Arc::clone(&sources));
        let from = WrittenFrom { channel, lane, first, lines: STAGE_LINES, memory: memory.clone() };
        let keeper = RcTxKeeper::new(&options, local, from, sources, to_hot, from_hot)?;
        let stage = WriterMemory::new(memory);
        Ok((RcReplyTx { peers, stage, deadline_ns: options.deadline_ns, list: SendList::new() }, keeper))
    }

    /// Connections whose rings are written to now.
    pub fn connections(&self) -> impl Iterator<Item = Connection> + '_ {
        self.peers.list.iter().map(|peer| Connection(peer.cursor.epoch().0))
    }

    /// What was done for a connection.
    pub fn counters(&self, connection: Connection) -> Option<&PeerCounters> {
        self.place(connection).map(|place| &self.peers.list[place].counters)
    }

    /// How many writes for a connection are not known to have ended.
    pub fn under_way(&self, connection: Connection) -> Option<u64> {
        self.place(connection).map(|place| self.peers.list[place].under_way())
    }

    /// A connection's queue pair, to ask the device about it.
    pub fn queue_pair(&self, connection: Connection) -> Option<&QueuePair> {
        self.place(connection).map(|place| self.peers.list[place].queue_pair())
    }

    /// The regions that answers are sent from, to see that they give nobody any rights.
    pub fn regions(&self) -> [&Region; 2] {
        [&self.peers.sources.ring_region, &self.peers.sources.beat_region]
    }

    fn place(&self, connection: Connection) -> Option<usize> {
        self.peers.list.iter().position(|peer| peer.cursor.epoch().0 == connection.0)
    }
}

impl ReplyRings for RcReplyTx {
    fn do_work(&mut self, now: Nanos) -> usize {
        self.peers.take_mail();
        let under_way = |peers: &Peers| peers.list.iter().map(|peer| peer.under_way()).sum::<u64>();
        let before = under_way(&self.peers);
        if before > 0 {
            self.peers.reap();
        }
        for peer in &mut self.peers.list {
            if let Some(failure) = peer.overdue(now, self.deadline_ns) {
                peer.fail(failure);
            }
        }
        let ended = before - under_way(&self.peers);
        self.peers.hand_back_failed();
        ended as usize
    }

    fn room(&self, connection: Connection) -> usize {
        self.place(connection).map_or(0, |place| self.peers.list[place].reply_room(STAGE_LINES).min(WRITE_LINES))
    }

    fn write(&mut self, first: Stamp, lines: &[Line], now: Nanos) -> usize {
        let (connection, _) = Connection::of(first);
        let Some(place) = self.place(connection) else { return 0 };
        let peer = &mut self.peers.list[place];
        let stage = Stage { memory: &self.stage, lines: STAGE_LINES, sources: &self.peers.sources, now };
        peer.write_replies(&stage, first, lines, &mut self.list)
    }
}
