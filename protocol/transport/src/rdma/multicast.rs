//! Membership in multicast groups.
//!
//! Attaching a queue pair receives nothing by itself: the network must be told too. librdmacm does that (IGMP on RoCE, the
//! subnet manager on InfiniBand), and gives back the group's own address.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::address::Route;
use super::device::{Gid, LocalPort};
use super::error::RdmaError;
use super::identifier::{Identifier, PortSpace, socket_address};
use super::queue_pair::QueuePair;
use super::sys::{self, cm};

/// How long a join may take: 2 to 17 ms over RoCE, round trips to the subnet manager over InfiniBand.
const JOIN_TIMEOUT: Duration = Duration::from_secs(5);

/// What a group is called on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupAddress {
    /// The group's GID, or MGID.
    pub gid: Gid,
    /// The group's LID, on InfiniBand; 0 on Ethernet.
    pub lid: u16,
    /// The queue pair that datagrams to a group name: 0xFFFFFF.
    pub queue_pair: u32,
    /// The Q_Key that the group has, on InfiniBand. On RoCE it means nothing.
    pub qkey: u32,
    /// The way there.
    pub route: Route,
}

impl Identifier {
    /// Waits for the answer to a join.
    fn joined(&self, deadline: Instant) -> io::Result<GroupAddress> {
        // SAFETY: the channel is live; its descriptor is fixed.
        let descriptor = unsafe { (*self.channel()).fd };
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut ready = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
            // SAFETY: one pollfd, alive across the call.
            match unsafe { libc::poll(&mut ready, 1, left.as_millis() as i32) } {
                0 => return Err(io::Error::from(io::ErrorKind::TimedOut)),
                1 => {}
                _ => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => continue,
                    error => return Err(error),
                },
            }
            let mut event = std::ptr::null_mut();
            // SAFETY: the channel is live and has an event; one pointer is written.
            if unsafe { cm::rdma_get_cm_event(self.channel(), &mut event) } != 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: the event is valid until it is acknowledged; its kind says that `ud` is the member that is set.
            let (kind, status, parameters) = unsafe {
                let it = &*event;
                let parameters =
                    (it.event == cm::RDMA_CM_EVENT_MULTICAST_JOIN).then(|| joined_address(it.param.ud.as_ref()));
                (it.event, it.status, parameters)
            };
            // SAFETY: from rdma_get_cm_event, acknowledged once.
            unsafe { cm::rdma_ack_cm_event(event) };
            match (kind, parameters) {
                (cm::RDMA_CM_EVENT_MULTICAST_JOIN, Some(parameters)) if status == 0 => return Ok(parameters),
                (cm::RDMA_CM_EVENT_MULTICAST_JOIN | cm::RDMA_CM_EVENT_MULTICAST_ERROR, _) => {
                    return Err(io::Error::from_raw_os_error(status.abs()));
                }
                _ => {}
            }
        }
    }
}

/// A port's membership in a group, and the queue pair that receives it. Left, and the queue pair detached, when dropped.
pub struct MulticastMembership {
    address: GroupAddress,
    group: libc::sockaddr_in,
    attached: Option<Arc<QueuePair>>,
    identifier: Identifier,
}

impl MulticastMembership {
    /// Joins `group` on `local`: from now on the network brings the group's packets there.
    ///
    /// # Errors
    /// [`RdmaError::Multicast`]: the group is none, the port cannot carry one, or nobody answered within 5 s.
    pub fn join(local: &LocalPort, group: Ipv4Addr) -> Result<MulticastMembership, RdmaError> {
        let failed = |what, source| {
            let device = local.device.name().to_owned();
            RdmaError::Multicast { device, group, what, source }
        };
        if !group.is_multicast() {
            return Err(failed("join", io::Error::new(io::ErrorKind::InvalidInput, "it is no multicast address")));
        }
        let identifier = Identifier::new(PortSpace::Datagrams);
        let identifier = identifier.map_err(|source| failed("open librdmacm to join", source))?;
        let bound = identifier.bind(local.address).map_err(|source| failed("bind to the port to join", source))?;
        let found = bound.map_or_else(|| "no RDMA device".to_owned(), |bound| bound.device);
        if found != local.device.name() {
            let message = format!("its address belongs to {found}");
            return Err(failed("join", io::Error::new(io::ErrorKind::AddrNotAvailable, message)));
        }
        let mut group_address = socket_address(group);
        // SAFETY: the identifier is live; the address is read only, and as long as its family says.
        let code =
            unsafe { cm::rdma_join_multicast(identifier.raw(), (&raw mut group_address).cast(), std::ptr::null_mut()) };
        if code != 0 {
            return Err(failed("join", io::Error::last_os_error()));
        }
        let address = match identifier.joined(Instant::now() + JOIN_TIMEOUT) {
            Ok(address) => address,
            Err(source) => {
                // SAFETY: the join was begun on this identifier; leaving ends it.
                unsafe { cm::rdma_leave_multicast(identifier.raw(), (&raw mut group_address).cast()) };
                return Err(failed("join", source));
            }
        };
        Ok(MulticastMembership { address, group: group_address, attached: None, identifier })
    }

    /// Lets `queue_pair`, of the port that joined, receive what comes for the group. It lives at least as long as this.
    ///
    /// # Errors
    /// [`RdmaError::System`] if the device has no room for another member.
    pub fn attach(&mut self, queue_pair: &Arc<QueuePair>) -> Result<(), RdmaError> {
        assert!(self.attached.is_none(), "a membership has one queue pair");
        let gid = sys::ibv_gid { raw: self.address.gid.0 };
        // SAFETY: the queue pair is live; the GID is read only.
        let code = unsafe { sys::ibv_attach_mcast(queue_pair.raw(), &gid, self.address.lid) };
        if code != 0 {
            return Err(RdmaError::code(
                queue_pair.domain().device().name(),
                "attach a queue pair to its multicast group",
                code,
                "the device may have no room for another member: see max_mcast_qp_attach in `ibv_devinfo -v`",
            ));
        }
        self.attached = Some(Arc::clone(queue_pair));
        Ok(())
    }

    /// What the group is called on the wire.
    pub fn address(&self) -> &GroupAddress {
        &self.address
    }
}

impl Drop for MulticastMembership {
    fn drop(&mut self) {
        if let Some(queue_pair) = &self.attached {
            let gid = sys::ibv_gid { raw: self.address.gid.0 };
            // SAFETY: attached in `attach` with the same address, detached once, before the queue pair is let go: one that
            // is attached cannot be destroyed (EBUSY).
            unsafe { sys::ibv_detach_mcast(queue_pair.raw(), &gid, self.address.lid) };
        }
        // SAFETY: joined in `join` with this address, left once, before the identifier is destroyed.
        unsafe { cm::rdma_leave_multicast(self.identifier.raw(), (&raw mut self.group).cast()) };
    }
}

/// What a group is called, from the answer to a join.
fn joined_address(parameters: &cm::rdma_ud_param) -> GroupAddress {
    let attributes = &parameters.ah_attr;
    // SAFETY: both members of the union are sixteen bytes, any of which are a value.
    let gid = Gid(unsafe { attributes.grh.dgid.raw });
    let route = Route {
        gid,
        source_index: attributes.grh.sgid_index,
        hop_limit: attributes.grh.hop_limit,
        lid: attributes.dlid,
        service_level: attributes.sl,
        port: attributes.port_num,
    };
    GroupAddress { gid, lid: attributes.dlid, queue_pair: parameters.qp_num, qkey: parameters.qkey, route }
}
