//! Packet captures: pcap and pcapng, from the file down to the payload of each UDP datagram.
//!
//! ```text
//!  Input ─► Window ─► Packets ───────────► datagram() ─► a venue's own framing
//!  bytes    buffered   frames, with times   UDP payloads   (MoldUDP64: itch::mold)
//! ```
//!
//! [`window`] holds a bounded piece of the stream, [`packets`] finds captured frames in it, and [`mod@datagram`] goes through
//! link, IP and UDP to the payload. What containers look like is `pcap-parser`'s knowledge, what protocols look like
//! `etherparse`'s; lengths, bounds, times and what to do about a fault are here.
//!
//! Left out: joining IP fragments (feeds do not use them; they are counted), and decryption.

pub mod datagram;
pub mod packets;
pub mod window;

pub use datagram::{Datagram, Skipped, datagram};
pub use packets::{Container, Packet, Packets};
