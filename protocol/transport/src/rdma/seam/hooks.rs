//! Where a seam takes hold: the functions that stand for libibverbs' own. Each does what that one does, unless a seam says
//! otherwise.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::device::{Gid, GidType, mtu_raw};
use super::super::queue_pair::{Depths, Service};
use super::super::sys::{self, raw};
use super::calls::{AddressAttributes, Call, Modification};
use super::{Before, COUNT, Direction, Inner, registry};

use sys::{
    ibv_ah, ibv_ah_attr, ibv_async_event, ibv_comp_channel, ibv_context, ibv_cq, ibv_gid, ibv_gid_entry, ibv_mr,
    ibv_pd, ibv_port_attr, ibv_qp, ibv_qp_attr, ibv_qp_init_attr, ibv_recv_wr, ibv_send_wr, ibv_wc,
};

/// A device called `name` was opened.
///
/// # Safety
/// `context` was just opened, and nobody else has it yet.
pub(in super::super) unsafe fn opened(name: &str, context: *mut ibv_context) {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return;
    }
    registry(|registry| {
        let Some(seam) = registry.seams.iter().find(|seam| seam.device == name) else { return };
        seam.script().calls.push(Call::OpenDevice);
        // SAFETY: nobody else has the context yet (the caller's duty), so the table may be read and written.
        unsafe {
            let ops = &mut (*context).ops;
            registry.contexts.insert(context as usize, Before { seam: Arc::clone(seam), ops: *ops });
            ops.poll_cq = Some(poll_cq);
            ops.post_send = Some(post_send);
            ops.post_recv = Some(post_recv);
        }
    });
}

/// A context is about to be closed.
pub(in super::super) fn closing(context: *mut ibv_context) {
    if COUNT.load(Ordering::Relaxed) > 0 {
        registry(|registry| registry.contexts.remove(&(context as usize)));
    }
}

/// What stands before a context, if anything does.
fn before(context: *mut ibv_context) -> Option<Before> {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    registry(|registry| registry.contexts.get(&(context as usize)).cloned())
}

fn seam_of(context: *mut ibv_context) -> Option<Arc<Inner>> {
    before(context).map(|before| before.seam)
}

fn seam_named(device: &str) -> Option<Arc<Inner>> {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    registry(|registry| registry.seams.iter().find(|seam| seam.device == device).cloned())
}

// ── In the provider's table ──────────────────────────────────────────────────────────────────────────────────────────

/// # Safety
/// As the provider's own.
unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, most: c_int, out: *mut ibv_wc) -> c_int {
    // SAFETY: a live queue has a live context.
    let before = before(unsafe { (*cq).context }).expect("only contexts behind a seam have this function");
    let poll = before.ops.poll_cq.expect("every provider polls");
    // SAFETY: the caller's duties are the provider's.
    let count = unsafe { poll(cq, most, out) };
    let mut script = before.seam.script();
    let mut kept = 0;
    for place in 0..count.max(0) as usize {
        // SAFETY: the provider has filled `count` of the places that it was given. The status lies behind the number of the
        // work request, and before the operation (verbs.h).
        unsafe {
            let mut completion = *out.add(place);
            let status = (&raw mut completion).cast::<u8>().add(size_of::<u64>()).cast::<u32>();
            let direction = match *status.add(1) & sys::ibv_wc_opcode::IBV_WC_RECV {
                0 => Direction::Send,
                _ => Direction::Receive,
            };
            if script.swallowed.get(&direction) == Some(&true) {
                continue;
            }
            if let Some(wanted) = script.statuses.get_mut(&direction).and_then(|statuses| statuses.pop_front()) {
                *status = wanted.raw();
            }
            *out.add(kept) = completion;
        }
        kept += 1;
    }
    if count < 0 { count } else { kept as c_int }
}

impl super::Script {
    /// The error that the next post of that direction fails with, if it does.
    fn refusal(&mut self, direction: Direction) -> Option<c_int> {
        let (count, errno) = self.refused_posts.get_mut(&direction)?;
        *count = count.checked_sub(1)?;
        Some(*errno)
    }
}

/// # Safety
/// As the provider's own.
unsafe extern "C" fn post_send(queue_pair: *mut ibv_qp, first: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int {
    // SAFETY: a live queue pair has a live context.
    let before = before(unsafe { (*queue_pair).context }).expect("only contexts behind a seam have this function");
    let mut script = before.seam.script();
    if let Some(errno) = script.refusal(Direction::Send) {
        // SAFETY: the caller gives a place for it.
        unsafe { *bad = first };
        return errno;
    }
    if script.is_cut_off {
        return 0;
    }
    drop(script);
    let post = before.ops.post_send.expect("every provider sends");
    // SAFETY: the caller's duties are the provider's.
    unsafe { post(queue_pair, first, bad) }
}

/// # Safety
/// As the provider's own.
unsafe extern "C" fn post_recv(queue_pair: *mut ibv_qp, first: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int {
    // SAFETY: a live queue pair has a live context.
    let before = before(unsafe { (*queue_pair).context }).expect("only contexts behind a seam have this function");
    let mut script = before.seam.script();
    if let Some(errno) = script.refusal(Direction::Receive) {
        // SAFETY: the caller gives a place for it.
        unsafe { *bad = first };
        return errno;
    }
    if script.is_cut_off {
        return 0;
    }
    drop(script);
    let post = before.ops.post_recv.expect("every provider receives");
    // SAFETY: the caller's duties are the provider's.
    unsafe { post(queue_pair, first, bad) }
}

// ── In place of the library's own ────────────────────────────────────────────────────────────────────────────────────

/// `ibv_query_port`, for a structure of this size.
///
/// # Safety
/// `context` is open.
pub(in super::super) unsafe fn ibv_query_port(context: *mut ibv_context, port: u8, out: &mut ibv_port_attr) -> c_int {
    // SAFETY: the context is open; the exported function fills a structure that is no longer than this one, which is all
    // zeroes where it does not reach (the header's inline function does the same for such providers).
    let code = unsafe { raw::ibv_query_port(context, port, (&raw mut *out).cast()) };
    if let Some(seam) = seam_of(context) {
        let presented = &seam.script().port;
        if let Some(layer) = presented.link_layer {
            out.link_layer = layer.raw();
        }
        if let Some(state) = presented.state {
            out.state = state.raw();
        }
        out.lid = presented.lid.unwrap_or(out.lid);
        out.sm_lid = presented.subnet_manager_lid.unwrap_or(out.sm_lid);
        if let Some(mtu) = presented.active_mtu {
            out.active_mtu = if mtu == 0 { 0 } else { mtu_raw(mtu) };
        }
        if let Some(pkeys) = &presented.pkeys {
            out.pkey_tbl_len = pkeys.len() as u16;
        }
        if let Some(gids) = &presented.gids {
            out.gid_tbl_len = gids.iter().map(|entry| i32::from(entry.index) + 1).max().unwrap_or(0);
        }
    }
    code
}

/// `ibv_query_gid_ex`.
///
/// # Safety
/// `context` is open.
pub(in super::super) unsafe fn ibv_query_gid_ex(
    context: *mut ibv_context,
    port: u32,
    index: u32,
    out: &mut ibv_gid_entry,
) -> c_int {
    if let Some(seam) = seam_of(context)
        && let Some(gids) = &seam.script().port.gids
    {
        let Some(entry) = gids.iter().find(|entry| u32::from(entry.index) == index) else { return libc::ENODATA };
        *out = ibv_gid_entry::default();
        out.gid.raw = entry.gid.0;
        out.gid_index = index;
        out.port_num = port;
        out.ndev_ifindex = entry.interface_index;
        out.gid_type = match entry.gid_type {
            GidType::InfiniBand => sys::IBV_GID_TYPE_IB,
            GidType::RoceV1 => sys::IBV_GID_TYPE_ROCE_V1,
            GidType::RoceV2 => sys::IBV_GID_TYPE_ROCE_V2,
            GidType::Other(raw) => raw,
        };
        return 0;
    }
    // SAFETY: the context is open; the function fills the entry, whose size it is told.
    unsafe { raw::_ibv_query_gid_ex(context, port, index, out, 0, size_of::<ibv_gid_entry>()) }
}

/// `ibv_query_pkey`.
///
/// # Safety
/// `context` is open.
pub(in super::super) unsafe fn ibv_query_pkey(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    out: &mut u16,
) -> c_int {
    if let Some(seam) = seam_of(context)
        && let Some(pkeys) = &seam.script().port.pkeys
    {
        let Some(pkey) = usize::try_from(index).ok().and_then(|index| pkeys.get(index)) else { return -1 };
        *out = pkey.to_be();
        return 0;
    }
    // SAFETY: the context is open; one number is written.
    unsafe { raw::ibv_query_pkey(context, port, index, out) }
}

/// The P_Key of the network interface behind a device, which librdmacm says to be `found`.
pub(in super::super) fn interface_pkey(device: &str, found: u16) -> u16 {
    seam_named(device).and_then(|seam| seam.script().port.interface_pkey).unwrap_or(found)
}

/// The answer to a join on a device, which librdmacm says to be `found`: the way, the queue pair, the Q_Key.
pub(in super::super) fn join_answer(device: &str, found: (ibv_ah_attr, u32, u32)) -> (ibv_ah_attr, u32, u32) {
    let answer = seam_named(device).and_then(|seam| seam.script().join);
    answer.map_or(found, |answer| (answer.address.raw(), answer.queue_pair, answer.qkey))
}

/// The attributes of a connected queue pair on a device, and which of them, as librdmacm says.
pub(in super::super) fn connection_attributes(device: Option<&str>, attributes: &mut ibv_qp_attr, which: &mut u32) {
    let answer = device.and_then(seam_named).and_then(|seam| seam.script().connection);
    if let Some(answer) = answer {
        attributes.ah_attr = answer.address.raw();
        attributes.pkey_index = answer.pkey_index;
        *which |= answer.mask;
    }
}

/// `ibv_get_async_event`.
///
/// # Safety
/// `context` is open. An event is acknowledged by [`ack_async_event`] before the next one is asked for.
pub(in super::super) unsafe fn get_async_event(context: *mut ibv_context, out: &mut ibv_async_event) -> c_int {
    if let Some(seam) = seam_of(context) {
        let mut script = seam.script();
        if let Some(event) = script.events.pop_front() {
            out.event_type = event.kind.raw();
            if let Some(number) = event.queue_pair {
                let place = script.queue_pairs.get(&number);
                out.element.qp = *place.unwrap_or_else(|| panic!("no queue pair {number}")) as *mut ibv_qp;
            } else if let Some(port) = event.port {
                out.element.port_num = port.into();
            }
            script.is_acknowledged_here = true;
            return 0;
        }
    }
    // SAFETY: the context is open; the call fills the event, or fails.
    unsafe { raw::ibv_get_async_event(context, out) }
}

/// `ibv_ack_async_event`.
///
/// # Safety
/// `event` is from [`get_async_event`] on this context, and acknowledged once.
pub(in super::super) unsafe fn ack_async_event(context: *mut ibv_context, event: &mut ibv_async_event) {
    if let Some(seam) = seam_of(context)
        && std::mem::take(&mut seam.script().is_acknowledged_here)
    {
        // The device knows nothing of it.
        return;
    }
    // SAFETY: the caller's duty.
    unsafe { raw::ibv_ack_async_event(event) }
}

/// `ibv_create_cq`, without a channel.
///
/// # Safety
/// `context` is open.
pub(in super::super) unsafe fn ibv_create_cq(
    context: *mut ibv_context,
    len: c_int,
    user: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: c_int,
) -> *mut ibv_cq {
    if let Some(seam) = seam_of(context) {
        seam.script().calls.push(Call::CreateCompletionQueue { len: len as usize });
    }
    // SAFETY: the caller's duty.
    unsafe { raw::ibv_create_cq(context, len, user, channel, vector) }
}

/// `ibv_create_qp`.
///
/// # Safety
/// As libibverbs' own.
pub(in super::super) unsafe fn ibv_create_qp(domain: *mut ibv_pd, attributes: &mut ibv_qp_init_attr) -> *mut ibv_qp {
    let depths = Depths { send: attributes.cap.max_send_wr as usize, receive: attributes.cap.max_recv_wr as usize };
    // SAFETY: the caller's duty.
    let made = unsafe { raw::ibv_create_qp(domain, attributes) };
    // SAFETY: a live domain has a live context.
    if let Some(seam) = seam_of(unsafe { (*domain).context })
        && !made.is_null()
    {
        // SAFETY: just made.
        let number = unsafe { (*made).qp_num };
        let service = match attributes.qp_type {
            sys::ibv_qp_type::IBV_QPT_UD => Some(Service::Ud),
            sys::ibv_qp_type::IBV_QPT_RC => Some(Service::Rc),
            _ => None,
        };
        let mut script = seam.script();
        script.queue_pairs.insert(number, made as usize);
        script.calls.push(Call::CreateQueuePair { number, service, depths });
    }
    made
}

/// `ibv_destroy_qp`.
///
/// # Safety
/// As libibverbs' own.
pub(in super::super) unsafe fn ibv_destroy_qp(queue_pair: *mut ibv_qp) -> c_int {
    // SAFETY: live until the call.
    let (context, number) = unsafe { ((*queue_pair).context, (*queue_pair).qp_num) };
    if let Some(seam) = seam_of(context) {
        let mut script = seam.script();
        script.queue_pairs.remove(&number);
        // Nobody is left to tell.
        script.events.retain(|event| event.queue_pair != Some(number));
        script.calls.push(Call::DestroyQueuePair { number });
    }
    // SAFETY: the caller's duty.
    unsafe { raw::ibv_destroy_qp(queue_pair) }
}

/// `ibv_modify_qp`.
///
/// # Safety
/// As libibverbs' own.
pub(in super::super) unsafe fn ibv_modify_qp(
    queue_pair: *mut ibv_qp,
    attributes: &mut ibv_qp_attr,
    mask: c_int,
) -> c_int {
    // SAFETY: live (the caller's duty).
    let (context, number) = unsafe { ((*queue_pair).context, (*queue_pair).qp_num) };
    if let Some(seam) = seam_of(context) {
        let mut script = seam.script();
        script.calls.push(Call::ModifyQueuePair(Modification::new(number, attributes, mask)));
        if script.is_cut_off {
            return 0;
        }
    }
    // SAFETY: the caller's duty.
    unsafe { raw::ibv_modify_qp(queue_pair, attributes, mask) }
}

/// `ibv_create_ah`.
///
/// # Safety
/// As libibverbs' own.
pub(in super::super) unsafe fn ibv_create_ah(domain: *mut ibv_pd, attributes: &mut ibv_ah_attr) -> *mut ibv_ah {
    // SAFETY: live (the caller's duty).
    let context = unsafe { (*domain).context };
    if let Some(seam) = seam_of(context) {
        let mut script = seam.script();
        script.calls.push(Call::CreateAddressHandle(AddressAttributes::new(attributes)));
        if script.is_cut_off {
            // One that no device knows: `ibv_destroy_ah` tells it by its domain.
            return Box::into_raw(Box::new(ibv_ah { context, ..ibv_ah::default() }));
        }
    }
    // SAFETY: the caller's duty.
    unsafe { raw::ibv_create_ah(domain, attributes) }
}

/// `ibv_destroy_ah`.
///
/// # Safety
/// `handle` is from [`ibv_create_ah`], and destroyed once.
pub(in super::super) unsafe fn ibv_destroy_ah(handle: *mut ibv_ah) -> c_int {
    // SAFETY: live until the call. Those that a device knows have a domain; those that have none were boxed above.
    unsafe {
        if (*handle).pd.is_null() {
            drop(Box::from_raw(handle));
            return 0;
        }
        raw::ibv_destroy_ah(handle)
    }
}

/// Records an attachment or its end; whether it ends here.
fn is_cut_off(context: *mut ibv_context, call: Call) -> bool {
    let Some(seam) = seam_of(context) else { return false };
    let mut script = seam.script();
    script.calls.push(call);
    script.is_cut_off
}

/// `ibv_attach_mcast`.
///
/// # Safety
/// As libibverbs' own.
pub(in super::super) unsafe fn ibv_attach_mcast(queue_pair: *mut ibv_qp, gid: &ibv_gid, lid: u16) -> c_int {
    // SAFETY: live (the caller's duty); both members of the union are sixteen bytes, any of which are a value.
    let (context, number, to) = unsafe { ((*queue_pair).context, (*queue_pair).qp_num, Gid(gid.raw)) };
    if is_cut_off(context, Call::Attach { queue_pair: number, gid: to, lid }) {
        return 0;
    }
    // SAFETY: the caller's duty.
    unsafe { raw::ibv_attach_mcast(queue_pair, gid, lid) }
}

/// `ibv_detach_mcast`.
///
/// # Safety
/// As libibverbs' own.
pub(in super::super) unsafe fn ibv_detach_mcast(queue_pair: *mut ibv_qp, gid: &ibv_gid, lid: u16) -> c_int {
    // SAFETY: as above.
    let (context, number, from) = unsafe { ((*queue_pair).context, (*queue_pair).qp_num, Gid(gid.raw)) };
    if is_cut_off(context, Call::Detach { queue_pair: number, gid: from, lid }) {
        return 0;
    }
    // SAFETY: the caller's duty.
    unsafe { raw::ibv_detach_mcast(queue_pair, gid, lid) }
}

/// `ibv_reg_mr`.
///
/// # Safety
/// As libibverbs' own.
pub(in super::super) unsafe fn ibv_reg_mr(
    domain: *mut ibv_pd,
    address: *mut c_void,
    len: usize,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: live (the caller's duty).
    if let Some(seam) = seam_of(unsafe { (*domain).context }) {
        let mut script = seam.script();
        script.calls.push(Call::Register { len, access: access as u32 });
        if let Some(errno) = script.refused_registrations {
            // SAFETY: errno is this thread's own.
            unsafe { *libc::__errno_location() = errno };
            return std::ptr::null_mut();
        }
    }
    // SAFETY: the caller's duty.
    unsafe { raw::ibv_reg_mr(domain, address, len, access) }
}
