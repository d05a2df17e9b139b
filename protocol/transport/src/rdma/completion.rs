//! Completions: how posted work ended, and what is to be done about it.

use std::fmt;
use std::ptr::NonNull;

use super::device::Device;
use super::error::RdmaError;
use super::sys;

/// What an ending asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reaction {
    /// The work is done: its queue entry and its memory are free again.
    Reclaim,
    /// The queue pair was in error already; the cause came before. Its entry is free again.
    Ignore,
    /// The peer is gone or does not answer: drop it, and let it come again.
    DropPeer,
    /// The peer refuses what it is sent: its ring, key or rights are not what it told. Drop it, and do not try again with
    /// the same ones.
    RefusePeer,
    /// The own request was wrong, or the own memory is not what was registered: drop the queue pair, count it as a fault
    /// of this program.
    OwnFault,
    /// The device failed: rebuild the queue pair, and the device if that fails.
    Rebuild,
}

macro_rules! statuses {
    ($($name:ident = $raw:ident, $reaction:ident, $text:literal, $next:literal;)*) => {
        /// How a piece of work ended: every status of verbs, by name.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Status {
            $(#[doc = concat!($text, " (`", stringify!($raw), "`).")] $name,)*
            /// A status that this version does not know, as the driver numbers it.
            Other(u32),
        }

        impl Status {
            /// Every status that has a name.
            pub const ALL: &'static [Status] = &[$(Status::$name),*];

            /// From the number that verbs give it.
            pub fn from_raw(raw: u32) -> Status {
                match raw {
                    $(sys::ibv_wc_status::$raw => Status::$name,)*
                    other => Status::Other(other),
                }
            }

            /// The number that verbs give it.
            pub const fn raw(self) -> u32 {
                match self {
                    $(Status::$name => sys::ibv_wc_status::$raw,)*
                    Status::Other(raw) => raw,
                }
            }

            /// What it asks for.
            pub const fn reaction(self) -> Reaction {
                match self {
                    $(Status::$name => Reaction::$reaction,)*
                    Status::Other(_) => Reaction::Rebuild,
                }
            }

            /// The next thing to try.
            pub const fn next_step(self) -> &'static str {
                match self {
                    $(Status::$name => $next,)*
                    Status::Other(_) => "see the driver's documentation for its own statuses",
                }
            }

            const fn text(self) -> &'static str {
                match self {
                    $(Status::$name => $text,)*
                    Status::Other(_) => "a status that is not known",
                }
            }
        }
    };
}

statuses! {
    Success = IBV_WC_SUCCESS, Reclaim, "success", "nothing is to be done";
    LocalLength = IBV_WC_LOC_LEN_ERR, OwnFault, "a message longer than its buffer or than the port allows", "check the MTU of both sides";
    LocalOperation = IBV_WC_LOC_QP_OP_ERR, OwnFault, "a request that the queue pair cannot do", "report it: the request was made wrongly";
    LocalEec = IBV_WC_LOC_EEC_OP_ERR, OwnFault, "a local end-to-end context error", "report it: such contexts are not used";
    LocalProtection = IBV_WC_LOC_PROT_ERR, OwnFault, "a buffer outside its registered region", "report it: the region was let go too early";
    Flushed = IBV_WC_WR_FLUSH_ERR, Ignore, "flushed: the queue pair was in error already", "see the completion before it for the cause";
    WindowBind = IBV_WC_MW_BIND_ERR, OwnFault, "a memory window that could not be bound", "report it: windows are not used";
    BadResponse = IBV_WC_BAD_RESP_ERR, DropPeer, "a response that makes no sense", "check that both sides run the same kind of device";
    LocalAccess = IBV_WC_LOC_ACCESS_ERR, OwnFault, "the own buffer may not be written", "report it: the buffer was registered wrongly";
    RemoteInvalidRequest = IBV_WC_REM_INV_REQ_ERR, RefusePeer, "the peer calls the request invalid", "check that the peer's queue pair allows writes";
    RemoteAccess = IBV_WC_REM_ACCESS_ERR, RefusePeer, "the peer's memory may not be written there: wrong key, range or rights", "let the peer register its ring again and tell the new key";
    RemoteOperation = IBV_WC_REM_OP_ERR, DropPeer, "the peer could not do it", "see the peer's log";
    RetryExceeded = IBV_WC_RETRY_EXC_ERR, DropPeer, "the peer did not answer", "check that the peer lives and the link is up";
    RnrRetryExceeded = IBV_WC_RNR_RETRY_EXC_ERR, DropPeer, "the peer had no receive buffer", "the peer does not keep up with what it is sent";
    LocalRdd = IBV_WC_LOC_RDD_VIOL_ERR, OwnFault, "a local reliable-datagram-domain violation", "report it: such domains are not used";
    RemoteInvalidRead = IBV_WC_REM_INV_RD_REQ_ERR, RefusePeer, "the peer calls the datagram request invalid", "check the Q_Key of both sides";
    RemoteAborted = IBV_WC_REM_ABORT_ERR, DropPeer, "the peer aborted", "see the peer's log";
    InvalidEecn = IBV_WC_INV_EECN_ERR, OwnFault, "an invalid end-to-end context number", "report it: such contexts are not used";
    InvalidEecState = IBV_WC_INV_EEC_STATE_ERR, OwnFault, "an invalid end-to-end context state", "report it: such contexts are not used";
    Fatal = IBV_WC_FATAL_ERR, Rebuild, "the device failed", "see the kernel's log for the device";
    ResponseTimeout = IBV_WC_RESP_TIMEOUT_ERR, DropPeer, "the peer did not respond in time", "check that the peer lives and the link is up";
    General = IBV_WC_GENERAL_ERR, Rebuild, "an error without a name", "see the kernel's log for the device";
    TagMatching = IBV_WC_TM_ERR, OwnFault, "a tag-matching error", "report it: tag matching is not used";
    TagMatchingIncomplete = IBV_WC_TM_RNDV_INCOMPLETE, OwnFault, "an incomplete tag-matching rendezvous", "report it: tag matching is not used";
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Status::Other(raw) => write!(f, "{} ({raw})", self.text()),
            _ => f.write_str(self.text()),
        }
    }
}

/// How one work request ended.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(super) struct Completion(sys::ibv_wc);

impl Completion {
    /// Not one yet.
    pub(super) fn empty() -> Completion {
        Completion(sys::ibv_wc::default())
    }

    /// The work request's own number.
    #[inline(always)]
    pub(super) fn id(&self) -> u64 {
        self.0.wr_id()
    }

    #[inline(always)]
    pub(super) fn status(&self) -> Status {
        match self.0.error() {
            None => Status::Success,
            Some((status, _)) => Status::from_raw(status),
        }
    }

    /// Bytes received; on UD the 40 bytes of the GRH count.
    #[inline(always)]
    pub(super) fn byte_len(&self) -> usize {
        self.0.len()
    }

    /// The sender's queue pair, on UD.
    #[inline(always)]
    pub(super) fn source_queue_pair(&self) -> u32 {
        self.0.src_qp
    }

    /// Whether the first 40 bytes received are a GRH; otherwise they mean nothing.
    #[inline(always)]
    pub(super) fn has_grh(&self) -> bool {
        self.0.wc_flags.0 & sys::ibv_wc_flags::IBV_WC_GRH.0 != 0
    }
}

/// A completion queue, polled and never waited on.
pub struct CompletionQueue {
    raw: NonNull<sys::ibv_cq>,
    device: Device,
    len: usize,
}

// SAFETY: libibverbs is thread-safe in all calls on a completion queue (verbs(7)).
unsafe impl Send for CompletionQueue {}
// SAFETY: as above.
unsafe impl Sync for CompletionQueue {}

impl CompletionQueue {
    /// A queue of at least `len` entries. One that overflows is lost with all its queue pairs, so it must hold every work
    /// request that can be under way.
    ///
    /// # Errors
    /// [`RdmaError::Limit`] if the device has no queue so long; [`RdmaError::System`].
    pub fn new(device: &Device, len: usize) -> Result<CompletionQueue, RdmaError> {
        let most = device.limits().completions;
        if len == 0 || len > most {
            return Err(RdmaError::Limit {
                device: device.name().to_owned(),
                what: "the length of a completion queue",
                value: len as u64,
                allowed: format!("from 1 to {most}"),
            });
        }
        // SAFETY: the device is open; no completion channel and no context are given.
        let raw =
            unsafe { sys::ibv_create_cq(device.raw(), len as i32, std::ptr::null_mut(), std::ptr::null_mut(), 0) };
        match NonNull::new(raw) {
            Some(raw) => Ok(CompletionQueue { raw, device: device.clone(), len }),
            None => Err(RdmaError::last(
                device.name(),
                "create a completion queue",
                "ask for a shorter one, or see `rdma resource` for who holds them",
            )),
        }
    }

    /// How many entries were asked for.
    pub fn capacity(&self) -> usize {
        self.len
    }

    /// The device it is on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Takes what has ended, at most as much as `out` holds; returns how much.
    #[inline(always)]
    pub(super) fn poll(&self, out: &mut [Completion]) -> usize {
        // SAFETY: a Completion is an ibv_wc (repr(transparent)); the
        // slice is as long as it says.
        let out = unsafe { std::slice::from_raw_parts_mut(out.as_mut_ptr().cast::<sys::ibv_wc>(), out.len()) };
        // SAFETY: the queue is live until drop.
        let count = unsafe { sys::ibv_poll_cq(self.raw(), out) };
        // Negative: the queue itself is broken. Its device's asynchronous event says so, and names it.
        usize::try_from(count).unwrap_or(0)
    }

    pub(super) fn raw(&self) -> *mut sys::ibv_cq {
        self.raw.as_ptr()
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: created in `new`, destroyed once; queue pairs that use it hold it in an `Arc`.
        unsafe { sys::ibv_destroy_cq(self.raw.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_a_name_a_reaction_and_a_next_step() {
        for raw in 0..=23 {
            let status = Status::from_raw(raw);
            assert_eq!((Status::ALL[raw as usize], status.raw()), (status, raw));
            assert!(!status.to_string().is_empty() && !status.next_step().is_empty());
        }
        assert_eq!(Status::from_raw(24), Status::Other(24));
        let unanswered = [Status::RetryExceeded, Status::RnrRetryExceeded, Status::ResponseTimeout];
        assert!(unanswered.iter().all(|status| status.reaction() == Reaction::DropPeer));
        assert_eq!(Status::from_raw(10), Status::RemoteAccess);
        assert_eq!(Status::RemoteAccess.reaction(), Reaction::RefusePeer);
        assert_eq!(Status::Flushed.reaction(), Reaction::Ignore);
    }
}
