//! The RDMA ends of a ping, and the thread that turns their keepers.

mod rc;
mod ud;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use protocol::time::Nanos;
use transport::clock::Clock;
use transport::rdma::RdmaError;

use super::PingError;
use super::lanes::Side;

pub(super) use rc::{echo_rc, ping_rc};
pub(super) use ud::{echo_ud, ping_ud};

/// How often the keepers turn while connecting.
const CONNECTING_TURN: Duration = Duration::from_millis(1);
/// How often they turn while pings go to and fro. They have nothing to mend, and share the cores with what is measured: at
/// a millisecond, as in a publisher, whose keepers have a core to turn on, their system calls were a tenth of the time of
/// an emulated core, and most of that of one that had to share its own with others.
const TURN: Duration = Duration::from_millis(20);
/// How long a send or write may go without a completion: a ping that is not answered is found out by itself.
const DEADLINE_NS: u64 = 2_000_000_000;

fn failed(error: RdmaError) -> PingError {
    PingError::set_up("an RDMA lane", error)
}

/// The device and the address of the echo's port.
fn echo_port(side: &Side<'_>) -> (Option<String>, Ipv4Addr) {
    let arguments = side.arguments;
    let same = arguments.peer_address.is_none();
    let device = arguments.peer_device.clone().or_else(|| arguments.device.clone().filter(|_| same));
    (device, side.peer_address())
}

/// Turns keepers in a thread of its own until it is dropped. To be started before the calling thread is pinned: what it
/// starts afterwards would share its core.
struct Keepers {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Keepers {
    fn start(clock: Clock, mut turn: impl FnMut(Nanos) + Send + 'static) -> Keepers {
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            // Relaxed: the flag carries nothing but itself.
            while !asked.load(Ordering::Relaxed) {
                turn(clock.now());
                std::thread::sleep(TURN);
            }
        });
        Keepers { stop, thread: Some(thread) }
    }
}

impl Drop for Keepers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed; here it changes nothing any more.
            let _ = thread.join();
        }
    }
}
