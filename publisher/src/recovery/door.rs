//! Who may ask the recovery server: let in and put out by the control channel, which runs on another thread.

use std::fs::File;
use std::io::{self, Read};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use protocol::control::{RecoveryInfo, RequestKey};

/// One subscriber that was let in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Guest {
    /// Its connection's number; never 0.
    pub(super) connection: u16,
    pub(super) key: RequestKey,
    /// Its answers are written into a ring of its own, and never sent as datagrams.
    pub(super) has_ring: bool,
}

/// What the two threads share: a place for each subscriber that may be there at a time.
#[derive(Debug)]
struct Register {
    places: Mutex<Vec<Option<Guest>>>,
    /// Rises with each change of `places`.
    changes: AtomicU64,
}

/// The control channel's side: lets subscribers in.
#[derive(Debug)]
pub struct Door {
    register: Arc<Register>,
    info: RecoveryInfo,
    /// The number given last.
    last: u16,
    random: File,
}

/// The server's side: who is in.
#[derive(Debug)]
pub(super) struct GuestList {
    register: Arc<Register>,
    seen: u64,
}

/// A door to at most `places` subscribers, and the list behind it.
pub(super) fn door(info: RecoveryInfo, places: usize) -> io::Result<(Door, GuestList)> {
    let register = Arc::new(Register { places: Mutex::new(vec![None; places]), changes: AtomicU64::new(0) });
    let random = File::open("/dev/urandom")?;
    let list = GuestList { register: Arc::clone(&register), seen: 0 };
    Ok((Door { register, info, last: 0, random }, list))
}

impl Door {
    /// How the server is reached, for the directory.
    pub fn info(&self) -> RecoveryInfo {
        self.info
    }

    /// Lets one more in: its connection's number, and the key that its requests are to bear. If it `has_ring`, its answers go
    /// there and nowhere else.
    ///
    /// # Errors
    /// Why not, for the subscriber.
    pub fn admit(&mut self, has_ring: bool) -> Result<(u16, RequestKey), String> {
        let mut bytes = [0; 8];
        self.random.read_exact(&mut bytes).map_err(|error| format!("no key can be made now ({error}); ask again"))?;
        let key = RequestKey(u64::from_le_bytes(bytes));
        let mut places = self.register.places.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(free) = places.iter().position(Option::is_none) else {
            let most = places.len();
            return Err(format!("{most} subscribers recover here already, which is the most ([recovery] subscribers)"));
        };
        // A number that was used lately is not used again soon: what is still under way for it is nobody else's.
        let mut connection = self.last;
        loop {
            connection = connection.checked_add(1).unwrap_or(1);
            if !places.iter().flatten().any(|guest| guest.connection == connection) {
                break;
            }
        }
        places[free] = Some(Guest { connection, key, has_ring });
        drop(places);
        self.last = connection;
        self.changed();
        Ok((connection, key))
    }

    /// Puts one out. Its requests are a stranger's from now on.
    pub fn dismiss(&mut self, connection: u16) {
        let mut places = self.register.places.lock().unwrap_or_else(PoisonError::into_inner);
        for place in places.iter_mut() {
            if place.is_some_and(|guest| guest.connection == connection) {
                *place = None;
            }
        }
        drop(places);
        self.changed();
    }

    fn changed(&self) {
        // Release: pairs with the Acquire in `GuestList::changed`; the places themselves are the lock's affair.
        self.register.changes.fetch_add(1, Ordering::Release);
    }
}

impl GuestList {
    /// Calls `look` with all places if anybody came or went since the last call; returns whether it did.
    pub(super) fn changed(&mut self, look: impl FnOnce(&[Option<Guest>])) -> bool {
        // Acquire: pairs with the Release in `Door::changed`. The look that follows is at least as new.
        let changes = self.register.changes.load(Ordering::Acquire);
        if changes == self.seen {
            return false;
        }
        self.seen = changes;
        look(&self.register.places.lock().unwrap_or_else(PoisonError::into_inner));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> (Door, GuestList) {
        let info =
            RecoveryInfo { at: "127.0.0.1:1".parse().expect("an address"), history_lines: 2, lines_per_second: 1 };
        door(info, 2).expect("random bytes can be had")
    }

    #[test]
    fn whoever_is_let_in_stands_on_the_list_until_put_out() {
        let (mut door, mut list) = two();
        assert!(!list.changed(|_| ()));
        let (first, key) = door.admit(false).expect("room");
        let (second, other) = door.admit(false).expect("room");
        assert!(first != second && key != other);
        assert!(door.admit(false).expect_err("two places").contains("2 subscribers"));
        let expected = [
            Some(Guest { connection: first, key, has_ring: false }),
            Some(Guest { connection: second, key: other, has_ring: false }),
        ];
        assert!(list.changed(|places| assert_eq!(places, expected)));
        assert!(!list.changed(|_| ()));
        door.dismiss(first);
        let (third, _) = door.admit(false).expect("room again");
        assert!(third != first && third != second, "a number is not used again at once");
        assert!(list.changed(|places| assert_eq!(places[0].map(|guest| guest.connection), Some(third))));
    }

    #[test]
    fn numbers_go_round_past_zero_and_past_those_in_use() {
        let (mut door, _list) = two();
        let (first, _) = door.admit(false).expect("room");
        assert_eq!(first, 1);
        door.last = u16::MAX;
        assert_eq!(door.admit(false).expect("room").0, 2);
    }
}
