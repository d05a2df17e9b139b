//! RDMA: the card sends from the publisher's ring, and writes into the subscribers' memory.
//!
//! Two lanes over the same verbs. [`UdTx`] and [`UdRx`] carry packets by UD multicast: one send for every subscriber.
//! [`RcRingTx`] writes lines into each subscriber's own ring, which [`RcRx`] reads, over a reliable connection: nothing
//! is lost, at one work request per subscriber. Both send from the publisher's ring in place; its memory is registered
//! once, and gives nobody any rights.
//!
//! Each end of a lane is two values. The hot one belongs to the loop that polls: it allocates nothing, waits for nothing
//! and makes no system call that the device's driver does not make. The cold one, its keeper ([`UdTxKeeper`],
//! [`UdRxKeeper`], [`RcTxKeeper`], [`RcRxKeeper`]), belongs to a thread that turns every millisecond or so: whatever must be
//! created, connected or destroyed is its business, and it watches what the device says. They talk through mailboxes, and
//! one thread can drive both in turns.
//!
//! A UD lane mends itself: when its port goes down, its address moves or the lane fails, its keeper looks the port up again,
//! joins the group again, builds a queue pair and hands it over; meanwhile the sender counts what it does not send. Without
//! its keeper turning it works until the first such event, and without its keeper at all it has left the group.
//!
//! Below them is a thin layer over libibverbs and librdmacm, one file a noun: [`Device`] and [`LocalPort`], [`Domain`],
//! [`Region`], [`CompletionQueue`] with [`Status`], [`QueuePair`], [`AddressHandle`], [`MulticastMembership`], and
//! [`AsyncEvent`]. What cannot be set up is an [`RdmaError`] that says what was tried, on which device, why it failed and
//! what to try next. [`Survey`] says what a host has and what it misses. Between that layer and libibverbs is the [`seam`],
//! where tests let devices do what soft ones never do.
//!
//! Left out: shared receive queues, memory windows, reads and atomics, completion channels (lanes poll), and anything
//! newer than libibverbs 44.

mod address;
mod completion;
mod connection;
mod device;
mod domain;
mod error;
mod event;
mod identifier;
mod local;
mod mailbox;
mod multicast;
mod queue_pair;
mod rc;
mod region;
pub mod seam;
mod survey;
mod sys;
mod ud;

pub use address::{AddressHandle, Route};
pub use completion::{CompletionQueue, Reaction, Status};
pub use connection::Step;
pub use device::{Device, DeviceLimits, Fabric, Gid, GidEntry, GidType, LinkLayer, Port, PortState, Transport};
pub use domain::Domain;
pub use error::RdmaError;
pub use event::{About, AsyncEvent, EventKind, EventReaction};
pub use local::LocalPort;
pub use multicast::{GroupAddress, MulticastMembership};
pub use queue_pair::{
    BURST, Depths, QueuePair, QueuePairInfo, QueuePairState, RC_INLINE, RcTimers, RemoteRights, Service, UD_INLINE,
};
pub use rc::{
    DropReason, LostReason, PeerCounters, PeerFailure, RcOffer, RcOptions, RcReplyRx, RcReplyTx, RcRingTx, RcRx,
    RcRxCounters, RcRxEvent, RcRxKeeper, RcRxOptions, RcTicket, RcToken, RcTxCounters, RcTxEvent, RcTxKeeper, Refusal,
};
pub use region::{Region, Rights};
pub use survey::{DeviceDetails, DeviceSurvey, FabricVerdict, PortSurvey, Survey, UsablePort};
pub use ud::{
    GRH_LEN, UdEvent, UdFailure, UdKeeperCounters, UdOptions, UdPeer, UdRx, UdRxCounters, UdRxKeeper, UdSource, UdTx,
    UdTxCounters, UdTxKeeper, lines_per_packet,
};
