//! How lines move: shared memory, UDP multicast, an in-process link, and a fault injector around any of them.

pub mod clock;
pub mod counters;
mod datagram;
pub mod fault;
mod lane;
pub mod link;
mod memory;
pub mod ring;
pub mod shm;
mod slots;
pub mod udp;

pub use lane::{LaneRx, LaneTx};
pub use memory::{Pages, RingMemory, SharedWord};
pub use ring::RingWriter;
