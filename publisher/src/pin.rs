//! Pinning a thread to a core.

use core_affinity::CoreId;

/// Why a thread cannot be pinned.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PinError {
    /// There is no such core, or this process may not run on it.
    #[error("core {core} is not among those this process may use: {}", list(.usable))]
    NoSuchCore {
        /// The core asked for.
        core: usize,
        /// The cores there are.
        usable: Vec<usize>,
    },
    /// The system refused.
    #[error(
        "the system refused to pin this thread to core {core}; start without pinning, or ask for the right to set the affinity"
    )]
    Refused {
        /// The core asked for.
        core: usize,
    },
}

fn list(cores: &[usize]) -> String {
    if cores.is_empty() {
        return "none are known".into();
    }
    cores.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

/// The cores that this process may use, in order.
pub fn usable_cores() -> Vec<usize> {
    let mut cores: Vec<usize> =
        core_affinity::get_core_ids().unwrap_or_default().into_iter().map(|core| core.id).collect();
    cores.sort_unstable();
    cores
}

/// Whether this process may run on `core`.
///
/// # Errors
/// [`PinError::NoSuchCore`], with the cores there are.
pub fn check(core: usize) -> Result<(), PinError> {
    let usable = usable_cores();
    if usable.contains(&core) { Ok(()) } else { Err(PinError::NoSuchCore { core, usable }) }
}

/// Pins the calling thread to `core`.
///
/// # Errors
/// [`PinError`].
pub fn pin(core: usize) -> Result<(), PinError> {
    check(core)?;
    if core_affinity::set_for_current(CoreId { id: core }) { Ok(()) } else { Err(PinError::Refused { core }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_that_does_not_exist_is_named_with_those_that_do() {
        let error = pin(100_000).expect_err("no machine has it").to_string();
        assert!(error.contains("core 100000") && error.contains(&usable_cores()[0].to_string()), "{error}");
    }

    #[test]
    fn the_first_usable_core_can_be_had() {
        let first = usable_cores()[0];
        std::thread::spawn(move || pin(first)).join().expect("no panic").expect("pinned");
    }
}
