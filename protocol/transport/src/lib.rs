//! How lines move: shared memory, UDP multicast, RDMA (with the feature `rdma`), an in-process link, and a fault injector
//! around any of them. And the way back: requests for what was lost, and their answers ([`reply`]). For who wants the latest
//! and not every change, [`cells`]. And what a participant writes down of it all ([`log`]).

pub mod cells;
pub mod clock;
pub mod counters;
mod datagram;
pub mod fault;
mod lane;
pub mod link;
pub mod log;
mod memory;
mod packets;
#[cfg(feature = "rdma")]
pub mod rdma;
pub mod reply;
pub mod ring;
pub mod shm;
mod slots;
pub mod udp;

/// What to say to whoever asks for RDMA and has a build without it.
pub const NO_RDMA: &str = "this build has no RDMA: build it with `cargo build --release --workspace --features rdma`; on Debian that \
                           needs `apt-get install libibverbs-dev librdmacm-dev cmake pkg-config clang libclang-dev`";

pub use lane::{LaneRx, LaneTx};
pub use memory::{Pages, RingMemory, SharedWord};
pub use ring::RingWriter;
