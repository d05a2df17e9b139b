//! Membership in multicast groups.
//!
//! Attaching a queue pair receives nothing by itself: the network must be told too. librdmacm does that (IGMP on RoCE, the
//! subnet manager on InfiniBand), and gives back the group's own address.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::address::Route;
use super::device::Gid;
use super::error::RdmaError;
use super::identifier::{Identifier, PortSpace, socket_address};
use super::local::LocalPort;
use super::queue_pair::QueuePair;
use super::seam;
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
    /// The next thing that librdmacm says, waiting for it at most so long.
    fn said(&self, device: &str, wait: Duration) -> io::Result<Option<Said>> {
        // SAFETY: the channel is live; its descriptor is fixed.
        let descriptor = unsafe { (*self.channel()).fd };
        let mut ready = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd, alive across the call.
        match unsafe { libc::poll(&mut ready, 1, wait.as_millis() as i32) } {
            0 => return Ok(None),
            1 => {}
            _ => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => return Ok(None),
                error => return Err(error),
            },
        }
        let mut event = std::ptr::null_mut();
        // SAFETY: the channel is live and has an event; one pointer is written.
        if unsafe { cm::rdma_get_cm_event(self.channel(), &mut event) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the event is valid until it is acknowledged; its kind says that `ud` is the member that is set.
        let (kind, status, answer) = unsafe {
            let it = &*event;
            let answer = (it.event == cm::RDMA_CM_EVENT_MULTICAST_JOIN).then(|| {
                let answer = it.param.ud.as_ref();
                (answer.ah_attr, answer.qp_num, answer.qkey)
            });
            (it.event, it.status, answer)
        };
        // SAFETY: from rdma_get_cm_event, acknowledged once.
        unsafe { cm::rdma_ack_cm_event(event) };
        Ok(Some(match (kind, answer) {
            (cm::RDMA_CM_EVENT_MULTICAST_JOIN, Some(answer)) if status == 0 => {
                Said::Joined(joined_address(seam::join_answer(device, answer)))
            }
            (cm::RDMA_CM_EVENT_MULTICAST_JOIN | cm::RDMA_CM_EVENT_MULTICAST_ERROR, _) => {
                Said::Lost(io::Error::from_raw_os_error(status.abs()))
            }
            (cm::RDMA_CM_EVENT_DEVICE_REMOVAL | cm::RDMA_CM_EVENT_ADDR_CHANGE, _) => {
                Said::Lost(io::Error::from_raw_os_error(libc::ENETRESET))
            }
            _ => Said::Else,
        }))
    }
}

/// What librdmacm says of a membership.
enum Said {
    /// It is one.
    Joined(GroupAddress),
    /// It is none, or none any more.
    Lost(io::Error),
    /// Nothing that matters.
    Else,
}

/// A join under way. Given up when dropped.
pub(super) struct MulticastJoin {
    device: String,
    group: Ipv4Addr,
    /// `None` when it has become a membership.
    identifier: Option<Identifier>,
}

impl MulticastJoin {
    /// Begins to join `group` on `local`.
    ///
    /// # Errors
    /// [`RdmaError::Multicast`]: the group is none, or the port cannot carry one.
    pub(super) fn begin(local: &LocalPort, group: Ipv4Addr) -> Result<MulticastJoin, RdmaError> {
        let device = local.device.name().to_owned();
        let mut join = MulticastJoin { device, group, identifier: None };
        if !group.is_multicast() {
            return Err(join.failed("join", io::Error::new(io::ErrorKind::InvalidInput, "it is no multicast address")));
        }
        let identifier = Identifier::new(PortSpace::Datagrams);
        let identifier = identifier.map_err(|source| join.failed("open librdmacm to join", source))?;
        let bound = identifier.bind(local.address).map_err(|source| join.failed("bind to the port to join", source))?;
        let found = bound.map_or_else(|| "no RDMA device".to_owned(), |bound| bound.device);
        if found != local.device.name() {
            let message = format!("its address belongs to {found}");
            return Err(join.failed("join", io::Error::new(io::ErrorKind::AddrNotAvailable, message)));
        }
        let mut address = socket_address(group);
        // SAFETY: the identifier is live; the address is read only, and as long as its family says.
        let code =
            unsafe { cm::rdma_join_multicast(identifier.raw(), (&raw mut address).cast(), std::ptr::null_mut()) };
        if code != 0 {
            return Err(join.failed("join", io::Error::last_os_error()));
        }
        join.identifier = Some(identifier);
        Ok(join)
    }

    /// The membership, when it is one. To be asked no more after that, or after a failure.
    ///
    /// # Errors
    /// [`RdmaError::Multicast`]: the group cannot be joined.
    pub(super) fn poll(&mut self) -> Result<Option<MulticastMembership>, RdmaError> {
        self.wait(Duration::ZERO)
    }

    fn wait(&mut self, wait: Duration) -> Result<Option<MulticastMembership>, RdmaError> {
        let identifier = self.identifier.as_ref().expect("asked for once more");
        match identifier.said(&self.device, wait).map_err(|source| self.failed("join", source))? {
            None | Some(Said::Else) => Ok(None),
            Some(Said::Lost(source)) => Err(self.failed("join", source)),
            Some(Said::Joined(address)) => {
                let identifier = self.identifier.take().expect("just asked");
                Ok(Some(MulticastMembership { address, group: self.group, attached: None, identifier }))
            }
        }
    }

    /// The error for a join that nobody answers.
    pub(super) fn timed_out(&self) -> RdmaError {
        self.failed("join", io::Error::from(io::ErrorKind::TimedOut))
    }

    fn failed(&self, what: &'static str, source: io::Error) -> RdmaError {
        RdmaError::Multicast { device: self.device.clone(), group: self.group, what, source }
    }
}

impl Drop for MulticastJoin {
    fn drop(&mut self) {
        if let Some(identifier) = &self.identifier {
            identifier.leave(self.group);
        }
    }
}

impl Identifier {
    /// Leaves `group`, or gives joining up.
    fn leave(&self, group: Ipv4Addr) {
        let mut group = socket_address(group);
        // SAFETY: the identifier is live, and a join of this group was begun on it.
        unsafe { cm::rdma_leave_multicast(self.raw(), (&raw mut group).cast()) };
    }
}

/// A port's membership in a group, and the queue pair that receives it. Left, and the queue pair detached, when dropped.
pub struct MulticastMembership {
    address: GroupAddress,
    group: Ipv4Addr,
    attached: Option<Arc<QueuePair>>,
    identifier: Identifier,
}

impl MulticastMembership {
    /// Joins `group` on `local`: from now on the network brings the group's packets there.
    ///
    /// # Errors
    /// [`RdmaError::Multicast`]: the group is none, the port cannot carry one, or nobody answered within 5 s.
    pub fn join(local: &LocalPort, group: Ipv4Addr) -> Result<MulticastMembership, RdmaError> {
        let mut join = MulticastJoin::begin(local, group)?;
        let deadline = Instant::now() + JOIN_TIMEOUT;
        loop {
            if let Some(membership) = join.wait(deadline.saturating_duration_since(Instant::now()))? {
                return Ok(membership);
            }
            if Instant::now() >= deadline {
                return Err(join.timed_out());
            }
        }
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

    /// Whether librdmacm says that the group is to be joined anew. A system call; never waits.
    pub(super) fn is_lost(&self) -> bool {
        loop {
            match self.identifier.said("", Duration::ZERO) {
                Ok(None) => return false,
                Ok(Some(Said::Lost(_))) | Err(_) => return true,
                Ok(Some(_)) => {}
            }
        }
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
        self.identifier.leave(self.group);
    }
}

/// What a group is called, from the answer to a join: the way there, the queue pair, the Q_Key.
fn joined_address((attributes, queue_pair, qkey): (sys::ibv_ah_attr, u32, u32)) -> GroupAddress {
    // SAFETY: both members of the union are sixteen bytes, any of which are a value.
    let gid = Gid(unsafe { attributes.grh.dgid.raw });
    let route = Route {
        gid,
        source_index: attributes.grh.sgid_index,
        hop_limit: attributes.grh.hop_limit,
        lid: attributes.dlid,
        service_level: attributes.sl,
        static_rate: attributes.static_rate,
        traffic_class: attributes.grh.traffic_class,
        flow_label: attributes.grh.flow_label,
        port: attributes.port_num,
    };
    GroupAddress { gid, lid: attributes.dlid, queue_pair, qkey, route }
}
