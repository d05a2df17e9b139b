//! The verbs seam, for tests: what a device does, as a test wants it, and what it was asked to do.
//!
//! Soft devices never show most of what a card can do: completion statuses other than a few, device failures, InfiniBand.
//! A [`Seam`] stands between this crate and libibverbs for one device. It changes completions, swallows them, refuses
//! posts and registrations, injects asynchronous events, presents other port attributes and other answers to a join, and
//! records the calls that make and change things.
//!
//! Where none is installed nothing is in the way: the functions of the hot path go through the provider's own table, which
//! a seam replaces in the contexts that are opened after it, and in no other; the cold ones look at one atomic number.

mod calls;
mod hooks;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::completion::Status;
use super::device::{GidEntry, LinkLayer, PortState};
use super::event::AsyncEvent;
use super::sys;

pub use calls::{AddressAttributes, Call, Modification};
pub(super) use hooks::*;

/// Sends or receives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// Sends and writes.
    Send,
    /// Receives.
    Receive,
}

/// What a port is to look like. What is `None` stays as the device says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PresentedPort {
    /// What carries its packets.
    pub link_layer: Option<LinkLayer>,
    /// Whether it carries traffic.
    pub state: Option<PortState>,
    /// Its LID.
    pub lid: Option<u16>,
    /// The subnet manager's LID.
    pub subnet_manager_lid: Option<u16>,
    /// Bytes, or 0 for a number that is no MTU.
    pub active_mtu: Option<usize>,
    /// The P_Key table.
    pub pkeys: Option<Vec<u16>>,
    /// The GID table; places that none names are empty.
    pub gids: Option<Vec<GidEntry>>,
    /// The P_Key of the network interface behind it.
    pub interface_pkey: Option<u16>,
}

/// What librdmacm is to answer to a join that succeeded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JoinAnswer {
    /// The way to the group.
    pub address: AddressAttributes,
    /// The queue pair that datagrams to it name.
    pub queue_pair: u32,
    /// Its Q_Key.
    pub qkey: u32,
}

/// What librdmacm is to answer when it is asked for a connected queue pair's attributes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionAnswer {
    /// The way to the peer.
    pub address: AddressAttributes,
    /// The place of the partition.
    pub pkey_index: u16,
    /// Bits of the mask beside its own.
    pub mask: u32,
}

/// What a seam is to do, and what it has seen.
#[derive(Default)]
struct Script {
    /// Statuses for the completions to come.
    statuses: HashMap<Direction, VecDeque<Status>>,
    /// Completions that never come.
    swallowed: HashMap<Direction, bool>,
    /// Posts to come that fail: how many, and with which error.
    refused_posts: HashMap<Direction, (usize, i32)>,
    /// Registrations fail with this error.
    refused_registrations: Option<i32>,
    events: VecDeque<AsyncEvent>,
    /// An injected event was handed out and is to be acknowledged: not to the device.
    is_acknowledged_here: bool,
    port: PresentedPort,
    join: Option<JoinAnswer>,
    connection: Option<ConnectionAnswer>,
    is_cut_off: bool,
    calls: Vec<Call>,
    /// Queue pairs that are there: their numbers, and where they are.
    queue_pairs: HashMap<u32, usize>,
}

struct Inner {
    device: String,
    script: Mutex<Script>,
}

impl Inner {
    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Seams there are, and contexts that they stand before.
#[derive(Default)]
struct Registry {
    seams: Vec<Arc<Inner>>,
    contexts: HashMap<usize, Before>,
}

/// A context, and what its table held.
#[derive(Clone)]
struct Before {
    seam: Arc<Inner>,
    ops: sys::ibv_context_ops,
}

static REGISTRY: Mutex<Option<Registry>> = Mutex::new(None);
/// Seams and contexts; while it is 0 nobody asks the registry.
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn registry<T>(what: impl FnOnce(&mut Registry) -> T) -> T {
    let mut registry = REGISTRY.lock().unwrap_or_else(PoisonError::into_inner);
    let registry = registry.get_or_insert_default();
    let result = what(registry);
    // Relaxed: whoever opens a device after a seam was installed does so in an order that the test establishes.
    COUNT.store(registry.seams.len() + registry.contexts.len(), Ordering::Relaxed);
    result
}

/// Stands before one device, for contexts opened from now on; taken away when dropped, but for contexts that are open.
pub struct Seam(Arc<Inner>);

impl fmt::Debug for Seam {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Seam({})", self.0.device)
    }
}

impl Seam {
    /// Before the device called `device`.
    ///
    /// # Panics
    /// If there is one already.
    pub fn install(device: &str) -> Seam {
        let inner = Arc::new(Inner { device: device.to_owned(), script: Mutex::default() });
        registry(|registry| {
            let is_free = registry.seams.iter().all(|seam| seam.device != device);
            assert!(is_free, "a second seam before {device}");
            registry.seams.push(Arc::clone(&inner));
        });
        Seam(inner)
    }

    /// The completions to come of that direction end with these statuses, one each.
    pub fn complete_with(&self, direction: Direction, statuses: &[Status]) {
        self.0.script().statuses.entry(direction).or_default().extend(statuses);
    }

    /// Statuses given to [`complete_with`](Seam::complete_with) that no completion has had yet.
    pub fn statuses_left(&self) -> usize {
        self.0.script().statuses.values().map(VecDeque::len).sum()
    }

    /// Completions of that direction never come, until this is taken back.
    pub fn swallow(&self, direction: Direction, is_swallowed: bool) {
        self.0.script().swallowed.insert(direction, is_swallowed);
    }

    /// The next `count` posts of that direction fail with `errno`, and nothing of them is taken.
    pub fn refuse_posts(&self, direction: Direction, count: usize, errno: i32) {
        self.0.script().refused_posts.insert(direction, (count, errno));
    }

    /// Registrations fail with this error, until this is taken back with `None`.
    pub fn refuse_registrations(&self, errno: Option<i32>) {
        self.0.script().refused_registrations = errno;
    }

    /// The device says this next. An event about a queue pair needs one that is there.
    pub fn inject(&self, event: AsyncEvent) {
        self.0.script().events.push_back(event);
    }

    /// What the device's ports look like from now on.
    pub fn present(&self, port: PresentedPort) {
        self.0.script().port = port;
    }

    /// What joins that succeed are answered with from now on.
    pub fn answer_joins(&self, answer: Option<JoinAnswer>) {
        self.0.script().join = answer;
    }

    /// What connected queue pairs are to be told from now on.
    pub fn answer_connections(&self, answer: Option<ConnectionAnswer>) {
        self.0.script().connection = answer;
    }

    /// With `true`, queue pairs are neither changed nor attached, address handles not made and work not posted: those calls
    /// succeed without the device. For attributes that the device behind it does not know.
    pub fn cut_off(&self, is_cut_off: bool) {
        self.0.script().is_cut_off = is_cut_off;
    }

    /// The calls since this was last asked, in order.
    pub fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.0.script().calls)
    }
}

impl Drop for Seam {
    fn drop(&mut self) {
        registry(|registry| registry.seams.retain(|seam| !Arc::ptr_eq(seam, &self.0)));
    }
}
