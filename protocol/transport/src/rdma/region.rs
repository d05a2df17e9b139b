//! Registered memory: what a card may reach, and how.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use super::domain::Domain;
use super::error::RdmaError;
use super::sys;
use crate::memory::Mapping;

/// What a region gives: to the own card, and to whoever is connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rights {
    /// The own card reads, nobody else does anything: what a publisher sends from.
    SendOnly,
    /// The own card writes what it receives.
    Receive,
    /// The connected peer writes: a live ring. Never with relaxed ordering, which would let a later line show first.
    RemoteWrite,
}

impl Rights {
    fn flags(self) -> u32 {
        match self {
            // Reading by the own card needs no flag.
            Rights::SendOnly => 0,
            Rights::Receive => sys::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0,
            Rights::RemoteWrite => {
                sys::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0 | sys::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0
            }
        }
    }

    /// Whether a peer may do anything with it.
    pub fn is_remote(self) -> bool {
        self == Rights::RemoteWrite
    }
}

/// A range of mapped memory that a device may reach. Keeps the memory mapped.
pub struct Region {
    raw: NonNull<sys::ibv_mr>,
    rights: Rights,
    address: u64,
    len: usize,
    domain: Domain,
    /// Unmapped only after the region is gone.
    _memory: Arc<Mapping>,
}

// SAFETY: libibverbs is thread-safe in all calls on a region (verbs(7)); its fields are read only.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Registers `len` bytes at `address`, which lie within `memory`.
    pub(super) fn new(
        domain: &Domain,
        memory: &Arc<Mapping>,
        address: NonNull<u8>,
        len: usize,
        rights: Rights,
    ) -> Result<Region, RdmaError> {
        let (base, mapped) = memory.extent();
        let offset = (address.as_ptr() as usize).wrapping_sub(base.as_ptr() as usize);
        assert!(offset <= mapped && len <= mapped - offset, "{len} bytes at {offset} of {mapped} mapped bytes");
        // SAFETY: the range is mapped (asserted), and stays so while the region exists, because the region keeps the
        // mapping. What a device then does with it follows `rights`.
        let raw =
            unsafe { sys::ibv_reg_mr(domain.raw(), address.as_ptr().cast(), len, rights.flags() as std::ffi::c_int) };
        let Some(raw) = NonNull::new(raw) else {
            let (device, source) = (domain.device().name().to_owned(), io::Error::last_os_error());
            return Err(match source.raw_os_error() {
                Some(libc::ENOMEM | libc::EPERM | libc::EAGAIN) => {
                    RdmaError::Locked { device, len, limit: lock_limit(), source }
                }
                _ => RdmaError::System {
                    device,
                    what: "register memory",
                    source,
                    next: "see `rdma resource` for how many regions there are",
                },
            });
        };
        let address = address.as_ptr() as u64;
        Ok(Region { raw, rights, address, len, domain: domain.clone(), _memory: Arc::clone(memory) })
    }

    /// What it gives.
    pub fn rights(&self) -> Rights {
        self.rights
    }

    /// Its domain.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// Where it begins: what a peer names that writes into it.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Its length in bytes.
    pub fn byte_len(&self) -> usize {
        self.len
    }

    /// The key by which the own queue pairs name it.
    pub fn local_key(&self) -> u32 {
        // SAFETY: the region is registered until drop; the field was written by ibv_reg_mr.
        unsafe { (*self.raw.as_ptr()).lkey }
    }

    /// The key by which a peer names it. Worth nothing without remote rights.
    pub fn remote_key(&self) -> u32 {
        // SAFETY: as above.
        unsafe { (*self.raw.as_ptr()).rkey }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: registered in `new`, deregistered once, before the memory is let go. Work requests that still name it
        // end with an error.
        unsafe { sys::ibv_dereg_mr(self.raw.as_ptr()) };
    }
}

/// RLIMIT_MEMLOCK in words.
fn lock_limit() -> String {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: getrlimit fills the structure that it is given.
    match unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) } {
        0 if limit.rlim_cur == libc::RLIM_INFINITY => "unlimited".to_owned(),
        0 => limit.rlim_cur.to_string(),
        _ => "unknown".to_owned(),
    }
}
