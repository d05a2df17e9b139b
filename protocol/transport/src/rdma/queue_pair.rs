//! Queue pairs: where work is posted.

use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use super::address::AddressHandle;
use super::completion::CompletionQueue;
use super::connection::ConnectionId;
use super::device::Transport;
use super::domain::Domain;
use super::error::RdmaError;
use super::local::LocalPort;
use super::sys;

use sys::ibv_qp_attr_mask as mask;

/// The most work requests behind one doorbell.
pub const BURST: usize = 16;
/// The most pieces that one send gathers: a header, lines, and the lines behind the ring's wrap.
pub(super) const PIECES: usize = 3;
/// Bytes inline that keep a send in one doorbell write on ConnectX, on UD.
pub const UD_INLINE: usize = 188;
/// The same for an RC write.
pub const RC_INLINE: usize = 220;
/// Where nothing is ever received, no receiver is ever not ready.
const RNR_RETRIES: u8 = 0;

const NEXT_STATE: &str = "check that the port is active, and both sides use GIDs of one type";

/// The kind of service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Service {
    /// Unreliable datagrams, also to groups.
    Ud,
    /// A reliable connection, for writes.
    Rc,
}

/// The sizes of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Depths {
    /// Work requests in the send queue.
    pub send: usize,
    /// Work requests in the receive queue.
    pub receive: usize,
}

/// The state of a queue pair, as the device says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueuePairState {
    /// New.
    Reset,
    /// Receives may be posted.
    Init,
    /// It receives.
    ReadyToReceive,
    /// It receives and sends.
    ReadyToSend,
    /// It ends what it has begun, and begins nothing.
    SendDrained,
    /// A send failed; it receives only.
    SendError,
    /// Everything posted is flushed.
    Error,
    /// None that has a name.
    Unknown,
}

impl QueuePairState {
    pub(super) fn from_raw(raw: sys::ibv_qp_state::Type) -> QueuePairState {
        use sys::ibv_qp_state::*;
        match raw {
            IBV_QPS_RESET => QueuePairState::Reset,
            IBV_QPS_INIT => QueuePairState::Init,
            IBV_QPS_RTR => QueuePairState::ReadyToReceive,
            IBV_QPS_RTS => QueuePairState::ReadyToSend,
            IBV_QPS_SQD => QueuePairState::SendDrained,
            IBV_QPS_SQE => QueuePairState::SendError,
            IBV_QPS_ERR => QueuePairState::Error,
            _ => QueuePairState::Unknown,
        }
    }
}

/// What a queue pair lets its peer do with our memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteRights {
    /// Writing into regions that allow it.
    pub write: bool,
    /// Reading.
    pub read: bool,
    /// Atomic operations.
    pub atomic: bool,
}

impl RemoteRights {
    /// None.
    pub const NONE: RemoteRights = RemoteRights { write: false, read: false, atomic: false };
    /// Writing alone.
    pub const WRITE: RemoteRights = RemoteRights { write: true, read: false, atomic: false };

    fn flags(self) -> u32 {
        let flag = |is_given, flag: sys::ibv_access_flags| if is_given { flag.0 } else { 0 };
        flag(self.write, sys::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE)
            | flag(self.read, sys::ibv_access_flags::IBV_ACCESS_REMOTE_READ)
            | flag(self.atomic, sys::ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC)
    }

    fn from_flags(flags: u32) -> RemoteRights {
        let has = |flag: sys::ibv_access_flags| flags & flag.0 != 0;
        RemoteRights {
            write: has(sys::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE),
            read: has(sys::ibv_access_flags::IBV_ACCESS_REMOTE_READ),
            atomic: has(sys::ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC),
        }
    }
}

impl fmt::Display for RemoteRights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [(self.write, "write"), (self.read, "read"), (self.atomic, "atomic")];
        let names: Vec<&str> = names.into_iter().filter_map(|(is_given, name)| is_given.then_some(name)).collect();
        if names.is_empty() { f.write_str("no rights") } else { write!(f, "{} rights", names.join(", ")) }
    }
}

/// What the device says of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueuePairInfo {
    /// Its state.
    pub state: QueuePairState,
    /// What its peer may do.
    pub rights: RemoteRights,
    /// Until an unanswered packet is sent again: 4.096 us times two to this power.
    pub ack_timeout: u8,
    /// How often it is sent again.
    pub retries: u8,
}

/// How an RC queue pair finds out that its peer does not answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RcTimers {
    /// An unanswered packet is sent again after 4.096 us times two to this power. 10: 4.2 ms; librdmacm's default of 19
    /// means 2 s.
    pub ack_timeout: u8,
    /// Times that it is sent again, at most 7. With 3, a loss of 10 % breaks a connection within a second.
    pub retries: u8,
}

impl Default for RcTimers {
    fn default() -> RcTimers {
        RcTimers { ack_timeout: 10, retries: 6 }
    }
}

/// A queue pair. Destroyed when dropped; its completion queues and domain outlive it.
pub struct QueuePair {
    raw: NonNull<sys::ibv_qp>,
    service: Service,
    depths: Depths,
    inline_limit: usize,
    domain: Domain,
    _queues: [Arc<CompletionQueue>; 2],
}

// SAFETY: libibverbs is thread-safe in all calls on a queue pair (verbs(7)).
unsafe impl Send for QueuePair {}
// SAFETY: as above.
unsafe impl Sync for QueuePair {}

impl QueuePair {
    /// A queue pair in state Reset. The inline limit is the service's, or what the device has, if that is less.
    ///
    /// # Errors
    /// [`RdmaError::Limit`] if the device has no queues so long; [`RdmaError::System`].
    pub fn new(
        domain: &Domain,
        service: Service,
        send: &Arc<CompletionQueue>,
        receive: &Arc<CompletionQueue>,
        depths: Depths,
    ) -> Result<QueuePair, RdmaError> {
        let device = domain.device();
        let most = device.limits().queue_depth;
        if let Some(depth) = [depths.send, depths.receive].into_iter().find(|depth| *depth > most) {
            return Err(RdmaError::Limit {
                device: device.name().to_owned(),
                what: "the depth of a queue",
                value: depth as u64,
                allowed: format!("at most {most}"),
            });
        }
        let wanted = match service {
            Service::Ud => UD_INLINE,
            Service::Rc => RC_INLINE,
        };
        let mut attributes = sys::ibv_qp_init_attr {
            send_cq: send.raw(),
            recv_cq: receive.raw(),
            qp_type: match service {
                Service::Ud => sys::ibv_qp_type::IBV_QPT_UD,
                Service::Rc => sys::ibv_qp_type::IBV_QPT_RC,
            },
            ..sys::ibv_qp_init_attr::default()
        };
        // No device says beforehand how much it takes inline: siw has 64 bytes, some have none.
        for inline in [wanted, 64, 0] {
            attributes.cap = sys::ibv_qp_cap {
                max_send_wr: depths.send.max(1) as u32,
                max_recv_wr: depths.receive.max(1) as u32,
                max_send_sge: PIECES.min(device.limits().pieces) as u32,
                max_recv_sge: 1,
                max_inline_data: inline as u32,
            };
            // SAFETY: domain and completion queues are live, and outlive the queue pair, which keeps them.
            let raw = unsafe { sys::ibv_create_qp(domain.raw(), &mut attributes) };
            if let Some(raw) = NonNull::new(raw) {
                // What the device gives may be more than was asked for; more than asked for is never used.
                let inline_limit = (attributes.cap.max_inline_data as usize).min(wanted);
                let queues = [Arc::clone(send), Arc::clone(receive)];
                return Ok(QueuePair { raw, service, depths, inline_limit, domain: domain.clone(), _queues: queues });
            }
            if io::Error::last_os_error().raw_os_error() != Some(libc::EINVAL) {
                break;
            }
        }
        Err(RdmaError::last(device.name(), "create a queue pair", "see `rdma resource` for who holds them"))
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        // SAFETY: live until drop; the field was written when it was created.
        unsafe { (*self.raw.as_ptr()).qp_num }
    }

    /// Its service.
    pub fn service(&self) -> Service {
        self.service
    }

    /// Its queues.
    pub fn depths(&self) -> Depths {
        self.depths
    }

    /// The most bytes that it sends inline.
    pub fn inline_limit(&self) -> usize {
        self.inline_limit
    }

    /// Its domain.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// Takes a UD queue pair from Reset to where it sends and receives datagrams that carry `qkey`.
    ///
    /// # Errors
    /// [`RdmaError::Limit`] for a key with its top bit set, which would be the privileged one; [`RdmaError::System`].
    pub fn open_ud(&self, local: &LocalPort, qkey: u32) -> Result<(), RdmaError> {
        assert!(self.service == Service::Ud, "a queue pair of another service");
        if qkey >> 31 != 0 {
            return Err(RdmaError::Limit {
                device: self.device_name().to_owned(),
                what: "the Q_Key",
                value: u64::from(qkey),
                allowed: "below 2^31".to_owned(),
            });
        }
        let mut attributes = sys::ibv_qp_attr {
            qp_state: sys::ibv_qp_state::IBV_QPS_INIT,
            port_num: local.port.number,
            pkey_index: local.pkey_index,
            qkey,
            ..sys::ibv_qp_attr::default()
        };
        let initial = mask::IBV_QP_STATE | mask::IBV_QP_PKEY_INDEX | mask::IBV_QP_PORT | mask::IBV_QP_QKEY;
        self.modify(&mut attributes, initial, "set a UD queue pair up")?;
        attributes.qp_state = sys::ibv_qp_state::IBV_QPS_RTR;
        self.modify(&mut attributes, mask::IBV_QP_STATE, "let a UD queue pair receive")?;
        attributes.qp_state = sys::ibv_qp_state::IBV_QPS_RTS;
        self.modify(&mut attributes, mask::IBV_QP_STATE | mask::IBV_QP_SQ_PSN, "let a UD queue pair send")
    }

    /// Takes an RC queue pair from Reset to Init, where its peer will have `rights`, whatever librdmacm would give.
    ///
    /// # Errors
    /// [`RdmaError::System`].
    pub(super) fn init_rc(&self, id: &ConnectionId, rights: RemoteRights) -> Result<(), RdmaError> {
        assert!(self.service == Service::Rc, "a queue pair of another service");
        const TRIED: &str = "set an RC queue pair up";
        let (mut attributes, which) = self.ask(id, sys::ibv_qp_state::IBV_QPS_INIT, TRIED)?;
        attributes.qp_access_flags = rights.flags();
        self.modify(&mut attributes, which | mask::IBV_QP_ACCESS_FLAGS, TRIED)
    }

    /// Takes an RC queue pair from Init to where it sends and receives. On iWARP the kernel does that, when the connection
    /// is made.
    ///
    /// # Errors
    /// [`RdmaError::System`].
    pub(super) fn connect_rc(&self, id: &ConnectionId, timers: RcTimers) -> Result<(), RdmaError> {
        if self.domain.device().transport() == Transport::Iwarp {
            return Ok(());
        }
        const RECEIVING: &str = "connect an RC queue pair";
        let (mut attributes, which) = self.ask(id, sys::ibv_qp_state::IBV_QPS_RTR, RECEIVING)?;
        // Nobody reads: neither side has a right to.
        attributes.max_dest_rd_atomic = 0;
        attributes.min_rnr_timer = 1;
        self.modify(&mut attributes, which, RECEIVING)?;
        const SENDING: &str = "let an RC queue pair send";
        let (mut attributes, which) = self.ask(id, sys::ibv_qp_state::IBV_QPS_RTS, SENDING)?;
        attributes.timeout = timers.ack_timeout;
        attributes.retry_cnt = timers.retries;
        attributes.rnr_retry = RNR_RETRIES;
        attributes.max_rd_atomic = 0;
        self.modify(&mut attributes, which, SENDING)
    }

    /// What librdmacm would set for `state`.
    fn ask(
        &self,
        id: &ConnectionId,
        state: sys::ibv_qp_state::Type,
        tried: &'static str,
    ) -> Result<(sys::ibv_qp_attr, mask), RdmaError> {
        // The kernel sets bits beyond the last of these, which stand for what RoCE once needed and are none of verbs.
        const KNOWN: u32 = (mask::IBV_QP_DEST_QPN.0 << 1) - 1;
        match id.attributes(state) {
            Ok((attributes, which)) => Ok((attributes, mask(which & KNOWN))),
            Err(source) => {
                let device = self.device_name().to_owned();
                Err(RdmaError::System { device, what: tried, source, next: "the connection is gone: connect again" })
            }
        }
    }

    /// Puts it into error: everything posted is flushed, nothing more goes out.
    ///
    /// # Errors
    /// [`RdmaError::System`] if the device is gone.
    pub fn fail(&self) -> Result<(), RdmaError> {
        let mut attributes =
            sys::ibv_qp_attr { qp_state: sys::ibv_qp_state::IBV_QPS_ERR, ..sys::ibv_qp_attr::default() };
        self.modify(&mut attributes, mask::IBV_QP_STATE, "put a queue pair into error")
    }

    /// What the device says of it.
    ///
    /// # Errors
    /// [`RdmaError::System`] if the device is gone.
    pub fn query(&self) -> Result<QueuePairInfo, RdmaError> {
        let mut attributes = sys::ibv_qp_attr::default();
        let mut initial = sys::ibv_qp_init_attr::default();
        let what = mask::IBV_QP_STATE | mask::IBV_QP_ACCESS_FLAGS | mask::IBV_QP_TIMEOUT | mask::IBV_QP_RETRY_CNT;
        // SAFETY: live until drop; both structures are filled by the call.
        let code = unsafe { sys::ibv_query_qp(self.raw(), &mut attributes, what.0 as i32, &mut initial) };
        if code != 0 {
            let what = "read a queue pair's state";
            return Err(RdmaError::code(self.device_name(), what, code, "see the kernel's log for the device"));
        }
        Ok(QueuePairInfo {
            state: QueuePairState::from_raw(attributes.qp_state),
            rights: RemoteRights::from_flags(attributes.qp_access_flags),
            ack_timeout: attributes.timeout,
            retries: attributes.retry_cnt,
        })
    }

    fn modify(&self, attributes: &mut sys::ibv_qp_attr, what: mask, tried: &'static str) -> Result<(), RdmaError> {
        // SAFETY: live until drop; the attributes are read only, and those that `what` names are set.
        let code = unsafe { sys::ibv_modify_qp(self.raw(), attributes, what.0 as i32) };
        if code == 0 { Ok(()) } else { Err(RdmaError::code(self.device_name(), tried, code, NEXT_STATE)) }
    }

    /// Posts receive buffers: one list, one doorbell. On failure, how many were taken, and why not the rest.
    ///
    /// # Safety
    /// Each piece lies in a live region with the right to be received into, and is neither read nor written by anybody
    /// until its completion or the end of the queue pair.
    pub(super) unsafe fn post_receives(&self, list: &mut ReceiveList) -> Result<(), (usize, io::Error)> {
        let count = std::mem::take(&mut list.len);
        if count == 0 {
            return Ok(());
        }
        let pieces = list.pieces.as_mut_ptr();
        let requests = list.requests.as_mut_ptr();
        for i in 0..count {
            // SAFETY: `i` is below `count`, at most BURST, the length of both arrays; they live until the call returns,
            // after which the provider keeps no pointer into them.
            unsafe {
                let request = &mut *requests.add(i);
                request.sg_list = pieces.add(i);
                request.next = if i + 1 < count { requests.add(i + 1) } else { std::ptr::null_mut() };
            }
        }
        let mut bad = std::ptr::null_mut();
        // SAFETY: a list of `count` requests, made above; the memory behind them is the caller's duty.
        let code = unsafe { sys::ibv_post_recv(self.raw(), requests, &mut bad) };
        if code == 0 {
            return Ok(());
        }
        let taken = if bad.is_null() { 0 } else { index_of(requests, bad) };
        Err((taken, io::Error::from_raw_os_error(code)))
    }

    /// Posts sends: one list, one doorbell. On failure, how many were taken, and why not the rest.
    ///
    /// # Safety
    /// Each piece lies in a live region of this queue pair's domain with the key given, or is sent inline and alive now;
    /// what is not inline stays as it is until a completion says that it was read; or whoever receives it can tell that
    /// it was changed. An address handle lives until its send has completed.
    pub(super) unsafe fn post_sends(&self, list: &mut SendList) -> Result<(), (usize, io::Error)> {
        let count = std::mem::take(&mut list.len);
        if count == 0 {
            return Ok(());
        }
        let pieces = list.pieces.as_mut_ptr();
        let requests = list.requests.as_mut_ptr();
        for i in 0..count {
            // SAFETY: as in `post_receives`.
            unsafe {
                let request = &mut *requests.add(i);
                request.sg_list = pieces.add(i).cast();
                request.next = if i + 1 < count { requests.add(i + 1) } else { std::ptr::null_mut() };
            }
        }
        let mut bad = std::ptr::null_mut();
        // SAFETY: a list of `count` requests, made above; the memory behind them is the caller's duty.
        let code = unsafe { sys::ibv_post_send(self.raw(), requests, &mut bad) };
        if code == 0 {
            return Ok(());
        }
        let taken = if bad.is_null() { 0 } else { index_of(requests, bad) };
        Err((taken, io::Error::from_raw_os_error(code)))
    }

    pub(super) fn raw(&self) -> *mut sys::ibv_qp {
        self.raw.as_ptr()
    }

    fn device_name(&self) -> &str {
        self.domain.device().name()
    }
}

/// Which element of the array at `first` the pointer is.
fn index_of<T>(first: *const T, element: *const T) -> usize {
    (element as usize).wrapping_sub(first as usize) / size_of::<T>()
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: created in `new`, destroyed once; memberships in groups keep the queue pair and detach before they let
        // it go.
        let code = unsafe { sys::ibv_destroy_qp(self.raw.as_ptr()) };
        debug_assert!(code == 0, "a queue pair could not be destroyed: {code}");
    }
}

/// A piece of registered memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) address: u64,
    pub(super) len: usize,
    pub(super) key: u32,
}

impl Piece {
    fn raw(self) -> sys::ibv_sge {
        sys::ibv_sge { addr: self.address, length: self.len as u32, lkey: self.key }
    }
}

/// What a send does.
#[derive(Clone, Copy)]
pub(super) enum Operation<'a> {
    /// A datagram.
    Datagram { to: &'a AddressHandle, queue_pair: u32, qkey: u32 },
    /// A write into the peer's memory.
    Write { address: u64, key: u32 },
    /// A message that takes one of the peer's receives: what no lane ever does on a connection.
    #[cfg(test)]
    Message,
}

/// Sends to be posted together.
pub(super) struct SendList {
    requests: Box<[sys::ibv_send_wr; BURST]>,
    pieces: Box<[[sys::ibv_sge; PIECES]; BURST]>,
    len: usize,
}

// SAFETY: the pointers in the requests are written anew before each post and followed by nobody after it.
unsafe impl Send for SendList {}

impl SendList {
    pub(super) fn new() -> SendList {
        // SAFETY: a work request is numbers and pointers, for which all zeroes is a value.
        let request: sys::ibv_send_wr = unsafe { std::mem::zeroed() };
        SendList {
            requests: Box::new([request; BURST]),
            pieces: Box::new([[sys::ibv_sge::default(); PIECES]; BURST]),
            len: 0,
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.len == BURST
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds a send.
    #[inline]
    pub(super) fn push(
        &mut self,
        id: u64,
        pieces: &[Piece],
        operation: Operation<'_>,
        is_signalled: bool,
        is_inline: bool,
    ) {
        assert!(self.len < BURST && pieces.len() <= PIECES, "{} of {BURST} sends, {} pieces", self.len, pieces.len());
        for (to, from) in self.pieces[self.len].iter_mut().zip(pieces) {
            *to = from.raw();
        }
        let request = &mut self.requests[self.len];
        request.wr_id = id;
        request.num_sge = pieces.len() as i32;
        request.send_flags = 0;
        if is_signalled {
            request.send_flags |= sys::ibv_send_flags::IBV_SEND_SIGNALED.0;
        }
        if is_inline {
            request.send_flags |= sys::ibv_send_flags::IBV_SEND_INLINE.0;
        }
        match operation {
            Operation::Datagram { to, queue_pair, qkey } => {
                request.opcode = sys::ibv_wr_opcode::IBV_WR_SEND;
                request.wr.ud.ah = to.raw();
                request.wr.ud.remote_qpn = queue_pair;
                request.wr.ud.remote_qkey = qkey;
            }
            Operation::Write { address, key } => {
                request.opcode = sys::ibv_wr_opcode::IBV_WR_RDMA_WRITE;
                request.wr.rdma.remote_addr = address;
                request.wr.rdma.rkey = key;
            }
            #[cfg(test)]
            Operation::Message => request.opcode = sys::ibv_wr_opcode::IBV_WR_SEND,
        }
        self.len += 1;
    }
}

/// Receive buffers to be posted together.
pub(super) struct ReceiveList {
    requests: Box<[sys::ibv_recv_wr; BURST]>,
    pieces: Box<[sys::ibv_sge; BURST]>,
    len: usize,
}

// SAFETY: as for `SendList`.
unsafe impl Send for ReceiveList {}

impl ReceiveList {
    pub(super) fn new() -> ReceiveList {
        // SAFETY: a work request is numbers and pointers, for which all zeroes is a value.
        let request: sys::ibv_recv_wr = unsafe { std::mem::zeroed() };
        ReceiveList { requests: Box::new([request; BURST]), pieces: Box::new([sys::ibv_sge::default(); BURST]), len: 0 }
    }

    pub(super) fn is_full(&self) -> bool {
        self.len == BURST
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds a buffer.
    pub(super) fn push(&mut self, id: u64, piece: Piece) {
        assert!(self.len < BURST, "{} of {BURST} receives", self.len);
        self.pieces[self.len] = piece.raw();
        self.requests[self.len].wr_id = id;
        self.requests[self.len].num_sge = 1;
        self.len += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_rights_are_what_verbs_call_them() {
        assert_eq!(RemoteRights::NONE.flags(), 0);
        assert_eq!(RemoteRights::WRITE.flags(), 2);
        for flags in [0, 2, 4, 8, 6, 14] {
            assert_eq!(RemoteRights::from_flags(flags).flags(), flags);
        }
        // Local rights are nobody else's.
        assert_eq!(RemoteRights::from_flags(1), RemoteRights::NONE);
        assert_eq!(RemoteRights { write: true, read: true, atomic: false }.to_string(), "write, read rights");
    }
}
