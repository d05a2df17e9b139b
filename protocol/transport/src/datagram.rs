//! From the bytes of a packet to what a lane hands up: the same for every lane that carries packets.

use protocol::packet::{Refused, decode};
use protocol::record::ChannelId;
use protocol::run::{Carrier, LanePath, Position, Run, RunSink};

/// Checks a packet and hands up its lines as a run, or its position if it has none; returns the number of lines.
///
/// `bytes` must lie as [`decode`] wants them. With `timed` false the header's publish time means nothing and is left out.
///
/// # Errors
/// [`Refused`]: nothing was handed up.
#[inline]
pub(crate) fn hand_up<S: RunSink>(
    bytes: &[u8],
    channel: ChannelId,
    timed: bool,
    carrier: Carrier,
    sink: &mut S,
) -> Result<usize, Refused> {
    let packet = decode(bytes, channel)?;
    let publish_time = timed.then(|| packet.header.time());
    let path = LanePath::new(packet.header.lane, carrier);
    if packet.lines.is_empty() {
        sink.on_position(Position { path, next: packet.first, publish_time, ended: packet.header.ended() });
    } else {
        sink.on_run(Run { path, first: packet.first, lines: packet.lines, publish_time });
    }
    Ok(packet.lines.len())
}
