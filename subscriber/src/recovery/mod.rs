//! Asking for what was lost: the recovery server of a channel, over a socket of one's own.

mod usher;

use std::net::SocketAddr;

use transport::fault::FaultPlan;

/// Where a subscriber asks for what it lost, and how.
#[derive(Clone, PartialEq, Debug)]
pub struct RecoveryOptions {
    /// The publisher's control channel, which lets subscribers into its recovery server.
    pub control: SocketAddr,
    /// One of the tokens in the publisher's `[control]`.
    pub token: String,
    /// What this subscriber calls itself, for the publisher's messages.
    pub name: String,
    /// Asked for the kernel's queue of answers, bytes, before its doubling.
    pub receive_buffer: usize,
    /// Faults done to the answers, to try what becomes of it.
    pub faults: Option<FaultPlan>,
}

impl RecoveryOptions {
    /// By the control channel at `control`, with `token`; 4 MiB for answers that wait.
    pub fn new(control: SocketAddr, token: &str) -> RecoveryOptions {
        RecoveryOptions {
            control,
            token: token.to_owned(),
            name: format!("subscriber, pid {}", std::process::id()),
            receive_buffer: 4 << 20,
            faults: None,
        }
    }
}
