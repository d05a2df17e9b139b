//! The raw functions: libibverbs by `ibverbs-sys`, librdmacm by declarations made from its header.
//!
//! What libibverbs inlines in its header goes through the provider's table of functions; those are here as functions of
//! the same names. What makes, changes and destroys things, and what asks a port, goes by way of the [seam](super::seam).
//! Nothing newer than libibverbs 44 is called.

pub(super) use ibverbs_sys::*;

/// libibverbs' own functions, for the seam alone.
pub(super) use ibverbs_sys as raw;

pub(super) use super::seam::{
    ack_async_event, get_async_event, ibv_attach_mcast, ibv_create_ah, ibv_create_cq, ibv_create_qp, ibv_destroy_ah,
    ibv_destroy_qp, ibv_detach_mcast, ibv_modify_qp, ibv_query_gid_ex, ibv_query_pkey, ibv_query_port, ibv_reg_mr,
};

/// librdmacm, as `build.rs` declares it.
#[allow(
    missing_docs,
    unreachable_pub,
    unused_imports,
    non_camel_case_types,
    non_upper_case_globals,
    non_snake_case,
    dead_code,
    unsafe_op_in_unsafe_fn,
    clippy::all,
    clippy::undocumented_unsafe_blocks
)]
pub(super) mod cm {
    include!(concat!(env!("OUT_DIR"), "/rdmacm.rs"));
}

use std::ffi::c_int;

/// `ibv_poll_cq`: at most `out.len()` completions.
///
/// # Safety
/// `cq` is a live completion queue.
#[inline(always)]
pub(super) unsafe fn ibv_poll_cq(cq: *mut ibv_cq, out: &mut [ibv_wc]) -> c_int {
    // SAFETY: a live queue has a live context, whose provider fills in the table when it opens (verbs.h reads it the same
    // way); the provider writes at most as many completions as it is told.
    unsafe {
        let poll = (*(*cq).context).ops.poll_cq.expect("every provider polls");
        poll(cq, out.len() as c_int, out.as_mut_ptr())
    }
}

/// `ibv_post_send`.
///
/// # Safety
/// `queue_pair` is live; `first` heads a list of work requests that are valid in the sense of ibv_post_send(3).
#[inline(always)]
pub(super) unsafe fn ibv_post_send(
    queue_pair: *mut ibv_qp,
    first: *mut ibv_send_wr,
    bad: &mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: as in `ibv_poll_cq`; the list is the caller's duty.
    unsafe {
        let post = (*(*queue_pair).context).ops.post_send.expect("every provider sends");
        post(queue_pair, first, bad)
    }
}

/// `ibv_post_recv`.
///
/// # Safety
/// `queue_pair` is live; `first` heads a list of work requests that are valid in the sense of ibv_post_recv(3).
#[inline(always)]
pub(super) unsafe fn ibv_post_recv(
    queue_pair: *mut ibv_qp,
    first: *mut ibv_recv_wr,
    bad: &mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: as in `ibv_poll_cq`; the list is the caller's duty.
    unsafe {
        let post = (*(*queue_pair).context).ops.post_recv.expect("every provider receives");
        post(queue_pair, first, bad)
    }
}
