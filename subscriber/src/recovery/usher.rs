//! The usher: holds the control connection that lets this subscriber into the recovery server, and asks again when it broke.

use std::net::{SocketAddr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use protocol::control::RequestKey;
use protocol::line::Stamp;
use protocol::record::{ChannelId, Lane};
use protocol::recovery::Connection;
use protocol::time::Nanos;
use transport::reply::ReplyRx;

use super::{Behind, Policy, RecoveryOptions, Way};
use crate::control::{Control, ControlError, Notice};

/// How long asking the publisher may take.
const ASK_PATIENCE: Duration = Duration::from_secs(1);
/// From one attempt to the next.
const RETRY: Duration = Duration::from_millis(100);
/// The control connection is looked after this often.
const LOOK: Duration = Duration::from_millis(10);

/// What a subscriber needs to ask the recovery server.
pub(super) struct Admitted {
    pub(super) connection: Connection,
    pub(super) key: RequestKey,
    pub(super) way: Way,
}

/// What the two threads share beside the channel.
#[derive(Default)]
struct Shared {
    /// There is something in the channel.
    fresh: AtomicBool,
    /// The subscriber is gone.
    over: AtomicBool,
    /// The way that the poller has is no good any more.
    spoilt: AtomicBool,
    /// Why there is no connection now; empty while there is one.
    trouble: Mutex<String>,
    /// How far the poller has read, for who is tracked; 0 before it read anything.
    position: AtomicU64,
    /// The publisher has said that it is tracked no more: how many lines it was behind, and the size of its ring.
    lapsed: AtomicBool,
    behind: AtomicU64,
    ring_lines: AtomicU64,
}

/// The poller's side of the usher: ends the thread when it is dropped.
pub(super) struct Usher {
    shared: Arc<Shared>,
    admitted: Receiver<Admitted>,
    thread: Option<JoinHandle<()>>,
}

impl Usher {
    /// Starts the thread. Where the publisher cannot be asked, it goes on trying; without a thread nobody is ever let in, and
    /// [`Usher::trouble`] says so.
    pub(super) fn start(options: RecoveryOptions, channel: String) -> Usher {
        let shared = Arc::new(Shared::default());
        // One at a time: the next connection is asked for when this one is over.
        let (sender, admitted) = sync_channel(1);
        let mut desk = Desk {
            options,
            channel,
            shared: Arc::clone(&shared),
            sender,
            control: None,
            #[cfg(feature = "rdma")]
            ring: None,
            began: Instant::now(),
            id: 0,
            reported: None,
        };
        desk.say("the publisher was not asked yet".to_owned());
        let thread = match std::thread::Builder::new().name("bookcast-recovery".to_owned()).spawn(move || desk.run()) {
            Ok(thread) => Some(thread),
            Err(error) => {
                say(&shared, format!("the system gives no thread for recovery ({error}); raise the limit of threads"));
                None
            }
        };
        Usher { shared, admitted, thread }
    }

    /// A new connection to the server, if there is one. One load while there is none.
    #[inline]
    pub(super) fn next(&mut self) -> Option<Admitted> {
        // Acquire: pairs with the Release in `Desk::ask`. It is set after the connection was put into the channel.
        if !self.shared.fresh.load(Ordering::Relaxed) {
            return None;
        }
        self.shared.fresh.swap(false, Ordering::Acquire);
        self.admitted.try_recv().ok()
    }

    /// Asks for another connection: the way of the present one is no good any more.
    #[cold]
    pub(super) fn replace(&self) {
        // Relaxed: the flag carries nothing but itself.
        self.shared.spoilt.store(true, Ordering::Relaxed);
    }

    /// Says how far the poller has read. One store.
    #[inline]
    pub(super) fn set_position(&self, next: Stamp) {
        // Relaxed: the number carries nothing but itself.
        self.shared.position.store(next.0, Ordering::Relaxed);
    }

    /// What the publisher said when it let go of this subscriber, once. One load while it has said nothing.
    #[inline]
    pub(super) fn lapsed(&self) -> Option<Behind> {
        // Acquire: pairs with the Release in `take_notices`.
        if !self.shared.lapsed.load(Ordering::Acquire) {
            return None;
        }
        self.shared.lapsed.store(false, Ordering::Relaxed);
        let [lines, ring_lines] =
            [&self.shared.behind, &self.shared.ring_lines].map(|number| number.load(Ordering::Relaxed));
        Some(Behind { lines, ring_lines })
    }

    /// Why there is no connection now; empty while there is one.
    pub(super) fn trouble(&self) -> String {
        self.shared.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Usher {
    fn drop(&mut self) {
        // Relaxed: the flag carries nothing but itself.
        self.shared.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It has said what went wrong, if it panicked.
            let _ = thread.join();
        }
    }
}

/// The thread's side.
struct Desk {
    options: RecoveryOptions,
    channel: String,
    shared: Arc<Shared>,
    sender: SyncSender<Admitted>,
    control: Option<Control>,
    /// What keeps the ring that answers are written into.
    #[cfg(feature = "rdma")]
    ring: Option<transport::rdma::RcRxKeeper>,
    began: Instant,
    /// The channel's number.
    id: u16,
    /// The position reported last on this connection.
    reported: Option<u64>,
}

impl Desk {
    fn run(&mut self) {
        let mut ask_at = Instant::now();
        while !self.shared.over.load(Ordering::Relaxed) {
            match &mut self.control {
                Some(_) => {
                    if let Err(trouble) = self.look_after() {
                        self.hang_up();
                        self.say(trouble);
                    }
                }
                // A connection that the poller has not taken up yet is one too many already: it stands still.
                None if Instant::now() >= ask_at && !self.shared.fresh.load(Ordering::Relaxed) => {
                    let outcome = self.ask();
                    if outcome.is_err() {
                        self.hang_up();
                    }
                    self.say(outcome.err().unwrap_or_default());
                    ask_at = Instant::now() + RETRY;
                }
                None => {}
            }
            std::thread::sleep(LOOK);
        }
    }

    fn say(&self, trouble: String) {
        say(&self.shared, trouble);
    }

    fn now(&self) -> Nanos {
        Nanos(self.began.elapsed().as_nanos() as u64)
    }

    /// Looks whether the connection still stands.
    fn look_after(&mut self) -> Result<(), String> {
        // Relaxed: the flag carries nothing but itself.
        if self.shared.spoilt.swap(false, Ordering::Relaxed) {
            return Err("answers were overwritten before they were read; another connection is made".to_owned());
        }
        let now = self.now();
        #[cfg(feature = "rdma")]
        if let Some(keeper) = &mut self.ring {
            super::ring::look_after(keeper, now)?;
        }
        let Some(control) = &mut self.control else { return Ok(()) };
        control.check(now).map_err(|error| error.to_string())?;
        take_notices(control, self.id, &self.shared)?;
        report(control, self.id, &self.options, &self.shared, &mut self.reported).map_err(|error| error.to_string())
    }

    /// Gives the connection up: the queue pair first, so that nobody writes any more when the publisher hears of it.
    fn hang_up(&mut self) {
        #[cfg(feature = "rdma")]
        drop(self.ring.take());
        self.control = None;
    }

    /// Asks to be let in; on success the poller finds the connection.
    fn ask(&mut self) -> Result<(), String> {
        let RecoveryOptions { control: address, token, name, receive_buffer, .. } = &self.options;
        let in_words = |error: ControlError| error.to_string();
        let mut control = Control::connect_within(ASK_PATIENCE, *address, token, name).map_err(in_words)?;
        let channels = control.directory().map_err(in_words)?;
        let Some(channel) = channels.iter().find(|channel| channel.name == self.channel) else {
            return Err(format!("the publisher at {address} has no channel '{}'", self.channel));
        };
        let Some(recovery) = channel.recovery else {
            return Err(format!("the publisher at {address} has no recovery server ([recovery])"));
        };
        let ids = (ChannelId::new(channel.id), Lane::new(channel.lane));
        let lane = ReplyRx::connect(reached_at(recovery.at, *address), ids, *receive_buffer)
            .map_err(|error| error.to_string())?;
        #[cfg(feature = "rdma")]
        let ring = self.options.ring.as_ref();
        #[cfg(not(feature = "rdma"))]
        let ring = None::<std::convert::Infallible>;
        let admitted = match ring {
            None => {
                let (connection, key) = control.recover(channel.id).map_err(in_words)?;
                Admitted { connection: Connection(connection), key, way: Way::Plain(Box::new(lane)) }
            }
            #[cfg(feature = "rdma")]
            Some(options) => {
                // All that may be asked for at one time: half of `reply_lines` in lines of the stream, and one snapshot.
                let protocol::recovery::RecoveryConfig { reply_lines, snapshot_lines, .. } = self.options.requests;
                let lines = (reply_lines / 2 + reply_lines.max(snapshot_lines)).next_power_of_two();
                let (over, began) = (&self.shared.over, self.began);
                let (admitted, keeper) = super::ring::open(options, lines, ids, lane, &mut control, over, began)?;
                self.ring = Some(keeper);
                admitted
            }
            #[cfg(not(feature = "rdma"))]
            Some(never) => match never {},
        };
        match self.sender.try_send(admitted) {
            Ok(()) => {
                self.control = Some(control);
                (self.id, self.reported) = (channel.id, None);
                // What the last connection said of this subscriber's pace is over with it.
                self.shared.lapsed.store(false, Ordering::Relaxed);
                // Release: pairs with the Acquire in `Usher::next`.
                self.shared.fresh.store(true, Ordering::Release);
                Ok(())
            }
            Err(TrySendError::Full(_)) => Err("the last connection was not taken up yet".to_owned()),
            Err(TrySendError::Disconnected(_)) => Err("the subscriber is gone".to_owned()),
        }
    }
}

/// Hears what the publisher says unasked. What concerns lanes is theirs to hear; that the connection stands matters here, and
/// the ring's for answers, and whether this subscriber is tracked.
fn take_notices(control: &mut Control, id: u16, shared: &Shared) -> Result<(), String> {
    while let Some(notice) = control.next_notice().map_err(|error| error.to_string())? {
        match notice {
            Notice::Dropped { channel, why } if channel == id => {
                return Err(format!("the publisher writes no more answers: {why}"));
            }
            Notice::Behind { channel, lines, ring_lines } if channel == id => {
                shared.behind.store(lines, Ordering::Relaxed);
                shared.ring_lines.store(ring_lines, Ordering::Relaxed);
                // Release: pairs with the Acquire in `Usher::lapsed`. The publisher says it once in a connection.
                shared.lapsed.store(true, Ordering::Release);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Says how far the poller has read, if it is tracked and has read anything new.
fn report(
    control: &mut Control,
    id: u16,
    options: &RecoveryOptions,
    shared: &Shared,
    reported: &mut Option<u64>,
) -> Result<(), ControlError> {
    let next = shared.position.load(Ordering::Relaxed);
    if options.policy != Policy::Tracked || next == 0 || *reported == Some(next) {
        return Ok(());
    }
    *reported = Some(next);
    control.report(id, Stamp(next), options.ring_lines)
}

fn say(shared: &Shared, trouble: String) {
    *shared.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
}

/// Where a server is that listens on every address of the publisher's host: where its control channel is.
fn reached_at(at: SocketAddrV4, control: SocketAddr) -> SocketAddrV4 {
    match control {
        SocketAddr::V4(control) if at.ip().is_unspecified() => SocketAddrV4::new(*control.ip(), at.port()),
        _ => at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_on_every_address_is_where_its_control_channel_is() {
        let control = "10.0.0.1:31000".parse().expect("an address");
        let at = |text: &str| reached_at(text.parse().expect("an address"), control).to_string();
        assert_eq!(at("0.0.0.0:5"), "10.0.0.1:5");
        assert_eq!(at("10.0.0.2:5"), "10.0.0.2:5");
    }
}
