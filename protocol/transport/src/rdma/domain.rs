//! Protection domains: what belongs together.

use std::ptr::NonNull;
use std::sync::Arc;

use super::device::Device;
use super::error::RdmaError;
use super::sys;

struct Inner {
    raw: NonNull<sys::ibv_pd>,
    device: Device,
}

// SAFETY: libibverbs is thread-safe in all calls on a domain (verbs(7)); the pointer is only passed to it.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: allocated in `Domain::new`, freed once; regions, queue pairs and address handles keep a clone of the
        // `Domain`, so none of them is left.
        unsafe { sys::ibv_dealloc_pd(self.raw.as_ptr()) };
    }
}

/// A protection domain. A queue pair reaches only regions of its own domain. Cheap to clone.
#[derive(Clone)]
pub struct Domain(Arc<Inner>);

impl Domain {
    /// A new domain on `device`.
    ///
    /// # Errors
    /// [`RdmaError::System`] if the device has no more of them.
    pub fn new(device: &Device) -> Result<Domain, RdmaError> {
        // SAFETY: the device is open.
        let raw = unsafe { sys::ibv_alloc_pd(device.raw()) };
        match NonNull::new(raw) {
            Some(raw) => Ok(Domain(Arc::new(Inner { raw, device: device.clone() }))),
            None => Err(RdmaError::last(
                device.name(),
                "allocate a protection domain",
                "see `rdma resource` for who holds them",
            )),
        }
    }

    /// The device it is on.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    pub(super) fn raw(&self) -> *mut sys::ibv_pd {
        self.0.raw.as_ptr()
    }
}
