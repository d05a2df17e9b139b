//! How lines move: shared memory, UDP multicast, an in-process link, and a fault injector around any of them.

mod datagram;
pub mod fault;
pub mod link;
mod slots;
pub mod udp;
mod lane;

pub use lane::{LaneRx, LaneTx};
