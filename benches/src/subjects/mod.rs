//! What we do, in the shape that [`handover`](crate::handover) drives: the product's own types on both sides.

mod ring;
mod subscriber;
mod udp;

pub use ring::{RingTurn, ring_line};
pub use subscriber::subscriber_line;
pub use udp::{UdpLineError, udp_line};

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};

/// A name for a ring that no other measurement uses: process id and a count.
fn ring_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("benches-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// A group for private use and a port, from the process id: two measurements at once do not hear each other. `place` tells
/// apart those of one process; it is less than 8.
pub fn own_group(place: u16) -> (Ipv4Addr, u16) {
    let id = std::process::id();
    let [_, _, high, low] = id.to_be_bytes();
    (Ipv4Addr::new(239, 254, high, low), 20_000 + (id % 5_000) as u16 * 8 + place)
}
