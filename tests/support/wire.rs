//! The virtual machine's wire: rxe0 with 10.99.0.1 on w0, rxe1 with 10.99.0.2 on w1 (see tests/vm/run).

use std::process::Command;

/// The publisher's end.
pub const HERE: &str = "10.99.0.1";
/// The subscribers' end.
pub const THERE: &str = "10.99.0.2";

/// Runs a program of the system that must succeed.
///
/// # Panics
/// If it cannot be run, or fails.
pub fn run(program: &str, arguments: &str) -> String {
    let output = Command::new(program).args(arguments.split_whitespace()).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// `tc netem` at the publisher's end, taken off when dropped.
pub struct Netem;

impl Netem {
    /// Treats what leaves the publisher's end as `what` says, such as `loss 1%`.
    ///
    /// # Panics
    /// If `tc` fails.
    pub fn new(what: &str) -> Netem {
        run("tc", &format!("qdisc add dev w0 root netem {what}"));
        Netem
    }
}

impl Drop for Netem {
    fn drop(&mut self) {
        run("tc", "qdisc del dev w0 root");
    }
}

/// The subscribers' end, down until this is dropped or [`FarEnd::up`] is called.
pub struct FarEnd;

impl FarEnd {
    /// Takes the link down.
    ///
    /// # Panics
    /// If `ip` fails.
    pub fn down() -> FarEnd {
        run("ip", "link set w1 down");
        FarEnd
    }

    /// Takes its address away.
    ///
    /// # Panics
    /// If `ip` fails.
    pub fn without_address() -> FarEnd {
        run("ip", "addr del 10.99.0.2/24 dev w1");
        FarEnd
    }

    /// Brings it up again, and does what the network's configuration does then: address, routes, neighbour.
    pub fn up(self) {
        drop(self);
    }
}

impl Drop for FarEnd {
    fn drop(&mut self) {
        run("ip", "link set w1 up");
        run("ip", "addr replace 10.99.0.2/24 dev w1");
        for route in ["10.99.0.1/32", "239.0.0.0/8"] {
            run("ip", &format!("route replace {route} dev w1 src 10.99.0.2 table 101"));
        }
        let mac = std::fs::read_to_string("/sys/class/net/w0/address").expect("the near end's address");
        run("ip", &format!("neigh replace 10.99.0.1 lladdr {} dev w1 nud permanent", mac.trim()));
    }
}

/// What a process holds: queue pairs, regions, domains, identifiers of the connection manager, and descriptors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// Queue pairs.
    pub queue_pairs: usize,
    /// Regions.
    pub regions: usize,
    /// Protection domains.
    pub domains: usize,
    /// Completion queues.
    pub completion_queues: usize,
    /// Identifiers.
    pub identifiers: usize,
    /// Open files of every kind.
    pub descriptors: usize,
}

impl Held {
    /// By process `pid`, as the kernel says.
    ///
    /// # Panics
    /// If `rdma` fails, or there is no such process.
    pub fn by(pid: u32) -> Held {
        // The kernel names the thread that made each.
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process lives");
        let owners: Vec<String> =
            threads.flatten().map(|thread| format!(" pid {} ", thread.file_name().to_string_lossy())).collect();
        let count = |what: &str| {
            run("rdma", &format!("resource show {what}"))
                .lines()
                .filter(|line| owners.iter().any(|owner| format!("{line} ").contains(owner)))
                .count()
        };
        Held {
            queue_pairs: count("qp"),
            regions: count("mr"),
            domains: count("pd"),
            completion_queues: count("cq"),
            identifiers: count("cm_id"),
            descriptors: std::fs::read_dir(format!("/proc/{pid}/fd")).expect("the process lives").count(),
        }
    }
}
