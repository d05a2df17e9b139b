//! UDP multicast: one datagram for every subscriber at once.
//!
//! [`UdpTx`] sends packets straight from the ring's memory, gathered by the kernel from a header and one or two pieces of
//! the ring. [`UdpRx`] receives batches into a slab of its own and hands up the lines where they lie. Both are made from
//! [`UdpOptions`]; what cannot be set up is a [`UdpError`] that says what was tried, why it failed and what to try next.
//!
//! A datagram that the kernel does not take, or that finds a full receive queue, is gone: it is counted here, and the
//! subscriber sees the gap in the stamps. Nothing in this module waits or sends again.

mod interface;
mod rx;
mod tx;

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::str::FromStr;

use protocol::line::LINE_LEN;
use protocol::packet::{HEADER_LEN, MAX_LINES};
use socket2::{Domain, Protocol, Socket, Type};

use interface::LocalInterface;

pub use rx::{UdpRx, UdpRxCounters};
pub use tx::{UdpTx, UdpTxCounters};

/// Bytes of an IPv4 header without options and a UDP header: what the MTU loses before our own header.
pub const IP_UDP_LEN: usize = 20 + 8;

/// Where a lane's multicast traffic goes, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UdpOptions {
    /// The multicast group, 224.0.0.0/4; 239.0.0.0/8 is the range for private use.
    pub group: Ipv4Addr,
    /// The UDP port; not 0.
    pub port: u16,
    /// The interface to send from and to join on.
    pub interface: Interface,
    /// How many routers a packet may pass: 0 stays on this host, 1 on this network.
    pub ttl: u8,
    /// The largest IP packet, in bytes, headers included. At most the interface's own MTU: packets are never fragmented,
    /// because one lost fragment loses them all. More than 63 lines are never put into a packet, whatever this says.
    pub mtu: u32,
    /// Size asked for the kernel's receive queue, in bytes, before the kernel's doubling. What it gave is
    /// [`UdpRx::receive_buffer`].
    pub receive_buffer: usize,
}

impl UdpOptions {
    /// For one network of Ethernet: TTL 1, MTU 1500 (22 lines a packet), a receive buffer of 4 MiB.
    pub fn new(group: Ipv4Addr, port: u16, interface: Interface) -> UdpOptions {
        UdpOptions { group, port, interface, ttl: 1, mtu: 1500, receive_buffer: 4 << 20 }
    }

    /// The most lines in one packet at this MTU: 22 at 1500, and 0 when not even one fits.
    pub fn lines_per_packet(&self) -> usize {
        ((self.mtu as usize).saturating_sub(IP_UDP_LEN + HEADER_LEN) / LINE_LEN).min(MAX_LINES)
    }

    /// Group and port.
    pub fn destination(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.group, self.port)
    }

    /// Checks everything that can be checked without a socket: group, port, interface and MTU.
    ///
    /// # Errors
    /// [`UdpError`], as [`UdpTx::open`] and [`UdpRx::open`] would give it.
    pub fn check(&self) -> Result<(), UdpError> {
        self.resolve().map(drop)
    }

    /// See [`UdpOptions::check`]; finds the interface.
    fn resolve(&self) -> Result<LocalInterface, UdpError> {
        if !self.group.is_multicast() {
            return Err(UdpError::NotMulticast { group: self.group });
        }
        if self.port == 0 {
            return Err(UdpError::NoPort { group: self.group });
        }
        let local = LocalInterface::find(&self.interface)?;
        if self.lines_per_packet() == 0 || self.mtu > local.mtu {
            return Err(UdpError::Mtu {
                mtu: self.mtu,
                least: (IP_UDP_LEN + HEADER_LEN + LINE_LEN) as u32,
                most: local.mtu,
                interface: local.name,
            });
        }
        Ok(local)
    }

    /// A new UDP socket that never waits.
    fn socket(&self) -> Result<Socket, UdpError> {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP));
        let socket = socket.map_err(|source| self.failed("open a UDP socket", source))?;
        socket.set_nonblocking(true).map_err(|source| self.failed("make the socket non-blocking", source))?;
        Ok(socket)
    }

    /// The error for a system call that failed while setting up.
    fn failed(&self, what: &'static str, source: io::Error) -> UdpError {
        let (destination, interface) = (self.destination(), self.interface.clone());
        match source.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => UdpError::Permission { what, destination, interface, source },
            Some(libc::EADDRINUSE) => UdpError::InUse { destination, source },
            _ => UdpError::System { what, destination, interface, source },
        }
    }
}

/// A network interface, as an operator names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Interface {
    /// The one that has this IPv4 address; 127.0.0.1 is loopback.
    Address(Ipv4Addr),
    /// The one of this name, such as `eth0`.
    Name(String),
}

impl Interface {
    /// Loopback, by its address.
    pub const LOOPBACK: Interface = Interface::Address(Ipv4Addr::LOCALHOST);
}

impl FromStr for Interface {
    type Err = std::convert::Infallible;

    /// An IPv4 address if it reads as one, else a name. Whether there is such an interface shows when it is used.
    fn from_str(text: &str) -> Result<Interface, Self::Err> {
        Ok(text.parse().map_or_else(|_| Interface::Name(text.to_owned()), Interface::Address))
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Interface::Address(address) => address.fmt(f),
            Interface::Name(name) => name.fmt(f),
        }
    }
}

/// The kernel's queue behind a socket, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BufferSize {
    /// What was asked for.
    pub requested: usize,
    /// What the kernel granted, on the same scale. It sets aside twice as much, for its own bookkeeping.
    pub granted: usize,
}

impl BufferSize {
    /// Whether the kernel gave less than asked: raise `net.core.rmem_max` (or `wmem_max` for sending).
    pub fn is_short(self) -> bool {
        self.granted < self.requested
    }
}

/// Why a UDP lane could not be set up: what was tried, on which address and interface, the system's cause, and what to
/// try next.
#[derive(Debug, thiserror::Error)]
pub enum UdpError {
    /// The group is no multicast address.
    #[error(
        "{group} is not a multicast group: choose one in 224.0.0.0 to 239.255.255.255, for private use in 239.0.0.0/8"
    )]
    NotMulticast {
        /// The address given as group.
        group: Ipv4Addr,
    },
    /// The port is 0.
    #[error("the port for group {group} is 0: sender and receivers must name the same port, 1 to 65535")]
    NoPort {
        /// The group.
        group: Ipv4Addr,
    },
    /// No interface has that name or address.
    #[error(
        "no network interface {asked} with an IPv4 address on this host: give the name or the address of one of {known}"
    )]
    NoSuchInterface {
        /// The interface asked for.
        asked: Interface,
        /// The interfaces there are, with their addresses.
        known: String,
    },
    /// The interface is there, but down.
    #[error("network interface {name} ({address}) is down: bring it up (ip link set {name} up) or choose another")]
    InterfaceDown {
        /// Its name.
        name: String,
        /// Its address.
        address: Ipv4Addr,
    },
    /// The interfaces of this host cannot be listed.
    #[error("cannot look up network interface {asked}: {source}; try again with its IPv4 address, or check `ip addr`")]
    Lookup {
        /// The interface asked for.
        asked: Interface,
        /// The system's cause.
        source: io::Error,
    },
    /// The MTU does not fit.
    #[error(
        "mtu {mtu} does not work on interface {interface}: set it between {least} (one line a packet) and {most}, the interface's own"
    )]
    Mtu {
        /// The MTU asked for, in bytes.
        mtu: u32,
        /// The least that carries a line.
        least: u32,
        /// The interface's own.
        most: u32,
        /// The interface's name.
        interface: String,
    },
    /// Another socket holds the address alone.
    #[error(
        "cannot receive on {destination}: another program holds the port without sharing it ({source}); choose another \
         port, or find the holder with `ss -ulpn sport = :{}`", destination.port()
    )]
    InUse {
        /// Group and port.
        destination: SocketAddrV4,
        /// The system's cause.
        source: io::Error,
    },
    /// The system forbids it.
    #[error(
        "no permission to {what} for {destination} on interface {interface} ({source}); ports below 1024 need \
         CAP_NET_BIND_SERVICE: choose a higher one, or check the firewall"
    )]
    Permission {
        /// What was tried.
        what: &'static str,
        /// Group and port.
        destination: SocketAddrV4,
        /// The interface.
        interface: Interface,
        /// The system's cause.
        source: io::Error,
    },
    /// A system call failed for another reason.
    #[error(
        "cannot {what} for {destination} on interface {interface}: {source}; check that the interface is up and carries \
         multicast (`ip addr`, `ip maddr`)"
    )]
    System {
        /// What was tried.
        what: &'static str,
        /// Group and port.
        destination: SocketAddrV4,
        /// The interface.
        interface: Interface,
        /// The system's cause.
        source: io::Error,
    },
}

/// Sets one integer option of a socket that socket2 has no name for.
fn set_option(socket: &Socket, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    // SAFETY: `value` lives across the call, the length passed is its own, and setsockopt only reads it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(group: [u8; 4]) -> UdpOptions {
        UdpOptions::new(group.into(), 4000, Interface::LOOPBACK)
    }

    #[test]
    fn an_ethernet_packet_holds_22_lines_and_none_holds_more_than_63() {
        let mut options = options([239, 255, 0, 1]);
        for (mtu, lines) in [(0, 0), (123, 0), (124, 1), (187, 1), (188, 2), (1500, 22), (4096, 63), (65536, 63)] {
            options.mtu = mtu;
            assert_eq!(options.lines_per_packet(), lines, "mtu {mtu}");
        }
    }

    #[test]
    fn wrong_options_are_refused_with_what_to_do_instead() {
        let error = options([192, 168, 1, 1]).resolve().unwrap_err().to_string();
        assert!(error.contains("192.168.1.1") && error.contains("239.0.0.0/8"), "{error}");

        let no_port = UdpOptions { port: 0, ..options([239, 255, 0, 1]) };
        assert!(matches!(no_port.resolve(), Err(UdpError::NoPort { .. })));

        let elsewhere = UdpOptions { interface: "no-such-card0".parse().unwrap(), ..options([239, 255, 0, 1]) };
        let error = elsewhere.resolve().unwrap_err().to_string();
        assert!(error.contains("no-such-card0") && error.contains("127.0.0.1"), "{error}");

        let elsewhere = UdpOptions { interface: "203.0.113.77".parse().unwrap(), ..options([239, 255, 0, 1]) };
        assert!(matches!(elsewhere.resolve(), Err(UdpError::NoSuchInterface { .. })));

        for mtu in [100, u32::MAX] {
            let error = UdpOptions { mtu, ..options([239, 255, 0, 1]) }.resolve().unwrap_err();
            assert!(matches!(&error, UdpError::Mtu { least: 124, .. }), "{error}");
        }
    }

    #[test]
    fn an_interface_reads_as_an_address_or_else_as_a_name() {
        assert_eq!("127.0.0.1".parse(), Ok(Interface::LOOPBACK));
        assert_eq!("eth0".parse(), Ok(Interface::Name("eth0".to_owned())));
        assert_eq!(Interface::LOOPBACK.to_string(), "127.0.0.1");
    }

    #[test]
    fn what_the_system_refuses_is_told_with_its_cause_and_the_next_step() {
        let options = options([239, 255, 0, 1]);
        let text = |errno| options.failed("bind", io::Error::from_raw_os_error(errno)).to_string();
        for errno in [libc::EACCES, libc::EADDRINUSE, libc::ENODEV] {
            let cause = io::Error::from_raw_os_error(errno).to_string();
            assert!(text(errno).contains("239.255.0.1:4000") && text(errno).contains(&cause), "{}", text(errno));
        }
        assert!(text(libc::EACCES).contains("no permission to bind") && text(libc::EACCES).contains("below 1024"));
        assert!(text(libc::EADDRINUSE).contains("choose another port") && text(libc::ENODEV).contains("cannot bind"));
    }

    #[test]
    fn loopback_is_found_by_name_and_by_address() {
        let by_address = options([239, 255, 0, 1]).resolve().expect("loopback by address");
        let by_name = UdpOptions { interface: Interface::Name(by_address.name.clone()), ..options([239, 255, 0, 1]) };
        assert_eq!(by_name.resolve().expect("loopback by name"), by_address);
        assert_eq!(by_address.address, Ipv4Addr::LOCALHOST);
        assert!(by_address.index > 0);
    }
}
