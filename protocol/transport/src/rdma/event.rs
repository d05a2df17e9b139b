//! Asynchronous events: what a device says beside completions.

use std::io;

use super::device::Device;
use super::error::RdmaError;
use super::sys;

/// What an event asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventReaction {
    /// Nothing beyond counting it.
    Count,
    /// Every queue pair that uses the completion queue is lost: rebuild them with a longer one.
    RebuildCompletionQueue,
    /// The queue pair is in error: rebuild it, and tell its owner.
    RebuildQueuePair,
    /// A peer tried what it may not do: its queue pair is in error; drop the peer.
    DropPeer,
    /// The device is lost: close everything, open it again.
    ReopenDevice,
    /// The port is down: nothing goes out until it is up; say so.
    PortDown,
    /// The port is up, or the subnet is another: look the port up again, join groups again, rebuild queue pairs.
    RefreshPort,
    /// An address of the port changed, perhaps one that is not in use: look the GID up again, and if it is not what it was,
    /// do as for `RefreshPort`.
    CheckAddress,
}

macro_rules! events {
    ($($name:ident = $raw:ident, $reaction:ident, $about:ident, $text:literal;)*) => {
        /// Every asynchronous event of verbs, by name.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum EventKind {
            $(#[doc = concat!($text, " (`", stringify!($raw), "`).")] $name,)*
            /// An event that this version does not know, as the driver numbers it.
            Other(u32),
        }

        impl EventKind {
            /// Every event that has a name.
            pub const ALL: &'static [EventKind] = &[$(EventKind::$name),*];

            /// From the number that verbs give it.
            pub fn from_raw(raw: u32) -> EventKind {
                match raw {
                    $(sys::$raw => EventKind::$name,)*
                    other => EventKind::Other(other),
                }
            }

            /// The number that verbs give it.
            pub const fn raw(self) -> u32 {
                match self {
                    $(EventKind::$name => sys::$raw,)*
                    EventKind::Other(raw) => raw,
                }
            }

            /// What it asks for.
            pub const fn reaction(self) -> EventReaction {
                match self {
                    $(EventKind::$name => EventReaction::$reaction,)*
                    EventKind::Other(_) => EventReaction::Count,
                }
            }

            /// In words.
            pub const fn text(self) -> &'static str {
                match self {
                    $(EventKind::$name => $text,)*
                    EventKind::Other(_) => "an event that is not known",
                }
            }

            /// What it is about.
            pub const fn about(self) -> About {
                match self {
                    $(EventKind::$name => About::$about,)*
                    EventKind::Other(_) => About::Device,
                }
            }
        }
    };
}

/// What an event is about: which member of its union means something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum About {
    /// A queue pair.
    QueuePair,
    /// A port.
    Port,
    /// The device, or a queue that we have none of, or one that the event's number does not tell apart.
    Device,
}

events! {
    CompletionQueueError = IBV_EVENT_CQ_ERR, RebuildCompletionQueue, Device, "a completion queue overflowed";
    QueuePairFatal = IBV_EVENT_QP_FATAL, RebuildQueuePair, QueuePair, "a queue pair failed";
    QueuePairRequest = IBV_EVENT_QP_REQ_ERR, DropPeer, QueuePair, "a peer sent an invalid request";
    QueuePairAccess = IBV_EVENT_QP_ACCESS_ERR, DropPeer, QueuePair, "a peer reached for memory that is not its own";
    Established = IBV_EVENT_COMM_EST, Count, QueuePair, "the first packet came before the connection was told of";
    SendQueueDrained = IBV_EVENT_SQ_DRAINED, Count, QueuePair, "a send queue is drained";
    PathMigrated = IBV_EVENT_PATH_MIG, Count, QueuePair, "a path migrated";
    PathMigrationFailed = IBV_EVENT_PATH_MIG_ERR, RebuildQueuePair, QueuePair, "a path failed to migrate";
    DeviceFatal = IBV_EVENT_DEVICE_FATAL, ReopenDevice, Device, "the device failed";
    PortActive = IBV_EVENT_PORT_ACTIVE, RefreshPort, Port, "a port is active";
    PortError = IBV_EVENT_PORT_ERR, PortDown, Port, "a port is down";
    LidChange = IBV_EVENT_LID_CHANGE, RefreshPort, Port, "a port's LID changed";
    PkeyChange = IBV_EVENT_PKEY_CHANGE, RefreshPort, Port, "a port's P_Key table changed";
    SubnetManagerChange = IBV_EVENT_SM_CHANGE, RefreshPort, Port, "the subnet manager changed";
    SharedReceiveError = IBV_EVENT_SRQ_ERR, Count, Device, "a shared receive queue failed; none is used";
    SharedReceiveLimit = IBV_EVENT_SRQ_LIMIT_REACHED, Count, Device, "a shared receive queue is low; none is used";
    LastReceive = IBV_EVENT_QP_LAST_WQE_REACHED, Count, QueuePair, "a queue pair took its last shared receive";
    ClientReregister = IBV_EVENT_CLIENT_REREGISTER, RefreshPort, Port, "the subnet manager asks to join again";
    GidChange = IBV_EVENT_GID_CHANGE, CheckAddress, Port, "a port's GID table changed";
    WorkQueueFatal = IBV_EVENT_WQ_FATAL, Count, Device, "a work queue failed; none is used";
}

/// One event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AsyncEvent {
    /// What happened.
    pub kind: EventKind,
    /// The number of the queue pair it is about, if it is about one.
    pub queue_pair: Option<u32>,
    /// The number of the port it is about, if it is about one.
    pub port: Option<u8>,
}

impl Device {
    /// Lets [`next_event`](Device::next_event) return at once when there is none. For a device that was just opened.
    pub(super) fn events_do_not_wait(&self) -> io::Result<()> {
        // SAFETY: the context is open until the last `Device` is gone; the field was set when it was opened.
        let descriptor = unsafe { (*self.raw()).async_fd };
        // SAFETY: fcntl on an open descriptor of ours; F_GETFL takes no argument.
        let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
        // SAFETY: as above; F_SETFL takes an int.
        if flags < 0 || unsafe { libc::fcntl(descriptor, libc::F_SETFL, flags | libc::O_NONBLOCK) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// The next asynchronous event, if there is one. Never waits; makes a system call, so it belongs into a thread that
    /// is not the hot one.
    ///
    /// # Errors
    /// [`RdmaError::System`] if the device is gone.
    pub fn next_event(&self) -> Result<Option<AsyncEvent>, RdmaError> {
        const NEXT: &str = "see the kernel's log for the device";
        // SAFETY: an event is numbers and pointers, for which all zeroes is a value.
        let mut event: sys::ibv_async_event = unsafe { std::mem::zeroed() };
        // SAFETY: the context is open; the call fills the event, or fails with EAGAIN because the descriptor does not wait.
        if unsafe { sys::get_async_event(self.raw(), &mut event) } != 0 {
            let error = RdmaError::last(self.name(), "read an asynchronous event", NEXT);
            let RdmaError::System { source, .. } = &error else { return Err(error) };
            return match source.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR) => Ok(None),
                _ => Err(error),
            };
        }
        let kind = EventKind::from_raw(event.event_type);
        // SAFETY: the kind says which member the driver has set (ibv_get_async_event(3)); a queue pair is not destroyed
        // before its events are acknowledged, which happens below, so the pointer is good.
        let (queue_pair, port) = unsafe {
            match kind.about() {
                About::QueuePair => (event.element.qp.as_ref().map(|queue_pair| queue_pair.qp_num), None),
                About::Port => (None, u8::try_from(event.element.port_num).ok()),
                About::Device => (None, None),
            }
        };
        // SAFETY: the event is from the call above, and acknowledged once.
        unsafe { sys::ack_async_event(self.raw(), &mut event) };
        Ok(Some(AsyncEvent { kind, queue_pair, port }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_has_a_name_and_a_reaction() {
        for raw in 0..=19 {
            assert_eq!(EventKind::ALL[raw as usize], EventKind::from_raw(raw), "{raw}");
        }
        assert_eq!(EventKind::ALL.len(), 20);
        assert_eq!(EventKind::from_raw(20), EventKind::Other(20));
        assert_eq!(EventKind::GidChange.reaction(), EventReaction::CheckAddress);
        assert_eq!(EventKind::QueuePairAccess.reaction(), EventReaction::DropPeer);
    }
}
