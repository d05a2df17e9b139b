//! What can go wrong before the first line.

use std::io;
use std::net::Ipv4Addr;

use super::device::Fabric;

/// Why an RDMA lane could not be set up: what was tried, on which device, the system's cause, and what to try next.
#[derive(Debug, thiserror::Error)]
pub enum RdmaError {
    /// There is no RDMA device, or none of that name.
    #[error(
        "no RDMA device{wanted} on this host (there is: {known}); load the card's driver, or make a software device with \
         `rdma link add rxe0 type rxe netdev eth0`",
        wanted = wanted.as_ref().map_or_else(String::new, |name| format!(" {name}"))
    )]
    NoDevice {
        /// The name asked for.
        wanted: Option<String>,
        /// The devices there are.
        known: String,
    },
    /// No RDMA port stands behind that address.
    #[error(
        "no RDMA port behind {address} on this host: {cause} (there is: {known}); give the IPv4 address of the network \
         interface behind the card, and see that it is up and has that address (`ip addr`, `rdma link`)"
    )]
    NoAddress {
        /// The address asked for.
        address: Ipv4Addr,
        /// Why not.
        cause: String,
        /// The GIDs there are.
        known: String,
    },
    /// The address is that of another device than the one named.
    #[error("{address} is the address of {found}, not of {wanted}: name {found}, or give the address of {wanted}")]
    OtherDevice {
        /// The address asked for.
        address: Ipv4Addr,
        /// The device asked for.
        wanted: String,
        /// The device that has the address.
        found: String,
    },
    /// The port has no GID that stands for the address.
    #[error(
        "port {port} of {device} has no {fabric} GID for {address} (there is: {known}); take the address off the network \
         interface and put it back (`ip addr`), and see `ibv_devinfo -v` for the port's GIDs"
    )]
    NoGid {
        /// The device.
        device: String,
        /// The port's number.
        port: u8,
        /// The address asked for.
        address: Ipv4Addr,
        /// What the port runs.
        fabric: Fabric,
        /// The GIDs there are.
        known: String,
    },
    /// The network interface's partition is not in the port's table.
    #[error(
        "port {port} of {device} is not in partition {pkey:#06x} of its network interface (there is: {known}); let the \
         subnet manager put the port into it, or make the interface anew in one of those"
    )]
    NoPkey {
        /// The device.
        device: String,
        /// The port's number.
        port: u8,
        /// The network interface's P_Key.
        pkey: u16,
        /// The P_Keys there are.
        known: String,
    },
    /// The fabric has no datagrams.
    #[error(
        "{device} runs {fabric}, which has no datagrams: there is no UD lane over it; the subscriber runs on RC alone \
         (leave the UD lane out)"
    )]
    NoDatagrams {
        /// The device.
        device: String,
        /// What it runs.
        fabric: Fabric,
    },
    /// The port does not carry traffic.
    #[error(
        "port {port} of {device} is {state}, not active; check the cable and `rdma link`, and bring its network \
         interface up"
    )]
    PortDown {
        /// The device.
        device: String,
        /// The port's number.
        port: u8,
        /// Its state.
        state: &'static str,
    },
    /// Not one line fits.
    #[error(
        "the active MTU of port {port} of {device} is {active}, and a packet takes {needed}: raise the MTU of \
         the network interface (RoCE takes the next lower of 256, 512, 1024, 2048 and 4096, less 64 for its headers)"
    )]
    Mtu {
        /// The device.
        device: String,
        /// The port's number.
        port: u8,
        /// The active MTU, bytes.
        active: usize,
        /// What a packet takes, bytes.
        needed: usize,
    },
    /// The memory may not be locked.
    #[error(
        "no permission to lock {len} bytes of memory for {device} ({source}); the limit is {limit} bytes: raise it with \
         `ulimit -l unlimited`, LimitMEMLOCK=infinity in the service's unit, or CAP_IPC_LOCK"
    )]
    Locked {
        /// The device.
        device: String,
        /// Bytes to lock.
        len: usize,
        /// What RLIMIT_MEMLOCK allows.
        limit: String,
        /// The system's cause.
        source: io::Error,
    },
    /// The other side could have written or read our memory.
    #[error(
        "queue pair {queue_pair} on {device} would give its peer {rights}: a publisher's memory is nobody else's; this \
         driver does not keep what it was told, do not publish over it"
    )]
    Rights {
        /// The device.
        device: String,
        /// The queue pair's number.
        queue_pair: u32,
        /// The rights found.
        rights: String,
    },
    /// What was asked for is more than the device has, or makes no sense.
    #[error("{what} is {value} for {device}, and must be {allowed}")]
    Limit {
        /// The device.
        device: String,
        /// What was asked for.
        what: &'static str,
        /// How much of it.
        value: u64,
        /// What there may be.
        allowed: String,
    },
    /// The group could not be joined.
    #[error(
        "cannot {what} multicast group {group} on {device}: {source}; check that the group is in 224.0.0.0/4 and that the \
         rdma_ucm module is loaded"
    )]
    Multicast {
        /// The device.
        device: String,
        /// The group.
        group: Ipv4Addr,
        /// What was tried.
        what: &'static str,
        /// The system's cause.
        source: io::Error,
    },
    /// A call of libibverbs failed for another reason.
    #[error("cannot {what} on {device}: {source}; {next}")]
    System {
        /// The device.
        device: String,
        /// What was tried.
        what: &'static str,
        /// The system's cause.
        source: io::Error,
        /// What to try next.
        next: &'static str,
    },
}

impl RdmaError {
    /// From a call that sets errno.
    pub(super) fn last(device: &str, what: &'static str, next: &'static str) -> RdmaError {
        RdmaError::from_source(device, what, io::Error::last_os_error(), next)
    }

    /// From a call that returns an errno.
    pub(super) fn code(device: &str, what: &'static str, code: i32, next: &'static str) -> RdmaError {
        // Some return -1 and set errno instead.
        let source = if code < 0 { io::Error::last_os_error() } else { io::Error::from_raw_os_error(code) };
        RdmaError::from_source(device, what, source, next)
    }

    fn from_source(device: &str, what: &'static str, source: io::Error, next: &'static str) -> RdmaError {
        RdmaError::System { device: device.to_owned(), what, source, next }
    }
}
