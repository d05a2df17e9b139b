//! Running a publisher's loop to its end, on the calling thread.

use std::sync::atomic::{AtomicBool, Ordering};

use protocol::time::Nanos;
use transport::LaneTx;
use transport::clock::{Clock, IdleStrategy};

use crate::feed::FeedSource;
use crate::pipeline::PipelineError;
use crate::publisher::{Publisher, Turn};
use crate::venue::Venue;

/// How a loop ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// The feed came to its end.
    FeedEnded,
    /// Somebody asked it to stop.
    Stopped,
}

/// Turns `publisher` until its feed ends, `stop` is set, or the feed fails; then announces the end of the stream for
/// `linger_ns`, so that subscribers who lost the last packet learn of it.
///
/// # Errors
/// [`PipelineError`], after everything before the fault was published and the end was announced.
pub fn drive<S: FeedSource, V: Venue, L: LaneTx>(
    publisher: &mut Publisher<S, V, L>,
    clock: Clock,
    idle: IdleStrategy,
    stop: &AtomicBool,
    linger_ns: u64,
) -> Result<Ending, PipelineError> {
    let outcome = loop {
        // Relaxed: the flag carries nothing but itself.
        if stop.load(Ordering::Relaxed) {
            break Ok(Ending::Stopped);
        }
        match publisher.do_work(clock.now()) {
            Ok(Turn::Worked(work)) => idle.idle(work),
            Ok(Turn::Ended) => break Ok(Ending::FeedEnded),
            Err(error) => break Err(error),
        }
    };
    let until: Nanos = clock.now().plus(linger_ns);
    loop {
        let now = clock.now();
        publisher.end(now);
        if now >= until {
            return outcome;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}
