//! Why a connection of the publisher's side could not be made, or is over.

use std::io;

use super::peer::PeerFailure;
use super::request::Refusal;
use crate::rdma::completion::Reaction;
use crate::rdma::connection::Step;
use crate::rdma::error::RdmaError;
use crate::rdma::event::{EventKind, EventReaction};

/// Why a connection could not be made, or is over.
#[derive(Debug, thiserror::Error)]
pub enum DropReason {
    /// [`RcTxKeeper::disconnect`](super::RcTxKeeper::disconnect) asked for it.
    #[error("it was asked to end")]
    Asked,
    /// Writing failed.
    #[error("{0}")]
    Write(PeerFailure),
    /// The subscriber let go, or its process is gone.
    #[error("the subscriber is gone")]
    Disconnected,
    /// The subscriber refused.
    #[error("the subscriber refused: {0}")]
    Refused(Refusal),
    /// The subscriber's kernel refused: nobody listens there, most likely. The number is the fabric's own.
    #[error("nobody took the connection at that address (reason {reason}): let the subscriber offer again")]
    Rejected {
        /// InfiniBand's reason, or the system's error.
        reason: i32,
    },
    /// A step towards the connection failed.
    #[error("{step} failed: {source}; check that the subscriber's host is up and that there is a route to it")]
    NotConnected {
        /// Which step.
        step: Step,
        /// The system's cause.
        source: io::Error,
    },
    /// Connecting took too long.
    #[error("{step} took more than {limit_ns} ns; check that the subscriber runs and its host answers")]
    TimeLimit {
        /// Which step.
        step: Step,
        /// The limit.
        limit_ns: u64,
    },
    /// The offer is none that could be written to.
    #[error("the offer is none: {lines} lines at {address:#x}")]
    BadOffer {
        /// Its lines.
        lines: u64,
        /// Its address.
        address: u64,
    },
    /// There are as many subscribers as were asked for.
    #[error("there are {max_peers} subscribers already: open the lane for more")]
    TooMany {
        /// How many.
        max_peers: usize,
    },
    /// The kernel has not let go yet of as many attempts that were given up.
    #[error("{attempts} attempts that were given up have not ended in the kernel yet: offer again in ten seconds")]
    Unended {
        /// How many.
        attempts: usize,
    },
    /// The own side could not be set up.
    #[error("{0}")]
    Setup(RdmaError),
    /// The device said that it, or the queue pair, failed.
    #[error("the device says that {}", .0.text())]
    Device(EventKind),
    /// The hot half of the lane is gone.
    #[error("the lane is closed")]
    Closed,
}

impl DropReason {
    /// What the reason asks for: whether the same offer may be tried again, or never, or the fault is our own.
    pub fn reaction(&self) -> Reaction {
        match self {
            DropReason::Asked | DropReason::Closed => Reaction::Reclaim,
            DropReason::Write(PeerFailure::Completion(status)) => status.reaction(),
            DropReason::Write(PeerFailure::Deadline { .. } | PeerFailure::Overrun)
            | DropReason::Disconnected
            | DropReason::NotConnected { .. }
            | DropReason::TimeLimit { .. }
            | DropReason::TooMany { .. }
            | DropReason::Unended { .. } => Reaction::DropPeer,
            DropReason::Refused(_) | DropReason::Rejected { .. } | DropReason::BadOffer { .. } => Reaction::RefusePeer,
            DropReason::Write(PeerFailure::NotPosted { .. }) | DropReason::Setup(_) => Reaction::OwnFault,
            DropReason::Device(kind) => match kind.reaction() {
                EventReaction::DropPeer => Reaction::DropPeer,
                _ => Reaction::Rebuild,
            },
        }
    }
}
