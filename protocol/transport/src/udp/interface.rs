//! Finds a network interface of this host by name or by address.

use std::ffi::CStr;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;

use socket2::{Domain, Socket, Type};

use super::{Interface, UdpError};

/// An interface of this host, with one of its IPv4 addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LocalInterface {
    /// Its name.
    pub(super) name: String,
    /// The kernel's number for it; not 0.
    pub(super) index: u32,
    /// The address asked for, or its first one.
    pub(super) address: Ipv4Addr,
    /// The largest IP packet it carries, in bytes.
    pub(super) mtu: u32,
}

impl LocalInterface {
    /// The interface that `asked` names, which must be up.
    pub(super) fn find(asked: &Interface) -> Result<LocalInterface, UdpError> {
        let lookup = |source| UdpError::Lookup { asked: asked.clone(), source };
        let all = addresses().map_err(lookup)?;
        let found = all.iter().find(|entry| match asked {
            Interface::Address(address) => entry.address == *address,
            Interface::Name(name) => entry.name == *name,
        });
        let Some(found) = found else {
            let known: Vec<_> = all.iter().map(|entry| format!("{} ({})", entry.name, entry.address)).collect();
            return Err(UdpError::NoSuchInterface { asked: asked.clone(), known: known.join(", ") });
        };
        if !found.up {
            return Err(UdpError::InterfaceDown { name: found.name.clone(), address: found.address });
        }
        let (index, mtu) = index_and_mtu(&found.name).map_err(lookup)?;
        Ok(LocalInterface { name: found.name.clone(), index, address: found.address, mtu })
    }
}

/// One IPv4 address of one interface.
struct Entry {
    name: String,
    address: Ipv4Addr,
    up: bool,
}

/// All IPv4 addresses of this host, in the kernel's order.
fn addresses() -> io::Result<Vec<Entry>> {
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: getifaddrs writes one pointer into `list`, which lives across the call.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut entries = Vec::new();
    let mut next = list;
    while !next.is_null() {
        // SAFETY: `next` is an element of the list that getifaddrs made; nothing frees it before the end of this function.
        let element = unsafe { &*next };
        next = element.ifa_next;
        // SAFETY: ifa_addr is null (as_ref then gives None) or points to a socket address of that same list.
        let Some(address) = (unsafe { element.ifa_addr.as_ref() }) else { continue };
        if libc::c_int::from(address.sa_family) != libc::AF_INET {
            continue;
        }
        // SAFETY: an address of family AF_INET is a sockaddr_in (ip(7)), and the list holds it in full.
        let address = unsafe { element.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned() };
        // SAFETY: ifa_name is a string with a final zero (getifaddrs(3)), in that same list.
        let name = unsafe { CStr::from_ptr(element.ifa_name) };
        entries.push(Entry {
            name: name.to_string_lossy().into_owned(),
            address: Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)),
            up: element.ifa_flags & libc::IFF_UP as libc::c_uint != 0,
        });
    }
    // SAFETY: `list` came from getifaddrs, is freed once, and no reference into it is left: names were copied.
    unsafe { libc::freeifaddrs(list) };
    Ok(entries)
}

/// The kernel's number of the interface `name`, and its MTU in bytes.
fn index_and_mtu(name: &str) -> io::Result<(u32, u32)> {
    // SAFETY: ifreq is a plain C structure of numbers, for which all zeros is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    let mut ask = |what| {
        // SAFETY: both requests read ifr_name (zero-terminated: it is shorter than the array, checked above) and write
        // within the ifreq, which lives across the call.
        match unsafe { libc::ioctl(socket.as_raw_fd(), what, &raw mut request) } {
            // SAFETY: the kernel wrote ifr_ifindex or ifr_mtu, both of them an int at the start of the union.
            0 => Ok(unsafe { request.ifr_ifru.ifru_ifindex } as u32),
            _ => Err(io::Error::last_os_error()),
        }
    };
    Ok((ask(libc::SIOCGIFINDEX)?, ask(libc::SIOCGIFMTU)?))
}
