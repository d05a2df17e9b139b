//! The thread that polls.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use protocol::record::InstrumentId;
use subscriber::Subscriber;

use super::source::Source;
use super::view::{Tally, View, Viewer};

/// A view at most this often.
const VIEW_NS: u64 = 100_000_000;
/// While nothing has come, what is waited for is looked up this often.
const LOOK_UP_NS: u64 = 1_000_000_000;
/// Before this nothing counts as missing.
const FIRST_LOOK_UP_NS: u64 = 300_000_000;
/// Turns without work before the thread sleeps: a viewer is not worth a core.
const IDLE_TURNS: u32 = 64;
/// How long it sleeps. A ring of 65,536 lines holds 65 ms of a million lines a second.
const NAP: Duration = Duration::from_micros(50);

/// What the polling thread and the showing one tell each other.
pub(crate) struct Board {
    /// The newest view that has not been shown.
    view: Mutex<Option<Box<View>>>,
    /// The instrument whose depth is wanted; 0 the first row's.
    pub(crate) selected: AtomicU32,
    /// Levels a side.
    pub(crate) depth: usize,
    /// Polling ends with the stream.
    pub(crate) ends_with_stream: bool,
    /// Polling ends then.
    pub(crate) until: Option<Instant>,
    /// Polling has ended.
    pub(crate) over: AtomicBool,
}

impl Board {
    /// A board for views of `depth` levels a side. No instrument is chosen: the first row stands for it.
    pub(crate) fn new(depth: usize, ends_with_stream: bool, until: Option<Instant>) -> Board {
        Board {
            view: Mutex::new(None),
            selected: AtomicU32::new(0),
            depth,
            ends_with_stream,
            until,
            over: AtomicBool::new(false),
        }
    }

    /// The newest view, if there is one that was not taken yet. Held locked for a move of its pointers only.
    pub(crate) fn take(&self) -> Option<Box<View>> {
        self.view.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take()
    }

    /// Leaves a view, unless the place is in use at this moment.
    fn leave(&self, view: Box<View>) -> Result<(), Box<View>> {
        let Ok(mut place) = self.view.try_lock() else { return Err(view) };
        let old = place.replace(view);
        drop(place);
        // Freed outside the lock.
        drop(old);
        Ok(())
    }
}

/// Polls until `stop`, the end of the stream (if the board says so) or the board's time; each line takes `slow` on purpose.
/// Returns the last view.
pub(crate) fn poll<R: Source>(
    subscriber: &mut Subscriber<R>,
    board: &Board,
    stop: &AtomicBool,
    names: (&str, u16),
    slow: Option<Duration>,
) -> View {
    let clock = subscriber.clock();
    let mut tally = Tally::default();
    tally.slow = slow;
    let mut viewer = Viewer::default();
    let mut next_view = clock.now();
    // A ring that is there is found and read within the first turns: nothing to be said of it.
    let mut next_look_up = next_view.plus(FIRST_LOOK_UP_NS);
    let mut waiting_for = String::new();
    let mut longest_ns = 0;
    let mut left: Option<Box<View>> = None;
    let mut idle_turns = 0;
    loop {
        let now = clock.now();
        let work = subscriber.poll_at(now, &mut tally);
        let over = stop.load(Ordering::Relaxed)
            || board.ends_with_stream && subscriber.has_ended()
            || board.until.is_some_and(|until| Instant::now() >= until);
        if now >= next_view || over {
            next_view = now.plus(VIEW_NS);
            if subscriber.next().is_none() && (now >= next_look_up || over) {
                next_look_up = now.plus(LOOK_UP_NS);
                waiting_for = subscriber.rx().waiting_for(names.0, names.1);
            }
            let selected = InstrumentId(board.selected.load(Ordering::Relaxed));
            let mut view = viewer.look(subscriber, &tally, now, selected, board.depth);
            longest_ns = longest_ns.max(clock.now().since(now).max(0) as u64);
            view.longest_ns = longest_ns;
            if subscriber.next().is_none() {
                view.waiting_for.clone_from(&waiting_for);
            }
            if over {
                board.over.store(true, Ordering::Relaxed);
                return view;
            }
            left = Some(Box::new(view));
        }
        // A view that finds the place in use is left at the next turn.
        left = left.and_then(|view| board.leave(view).err());
        idle_turns = if work == 0 { idle_turns + 1 } else { 0 };
        if idle_turns > IDLE_TURNS {
            std::thread::sleep(NAP);
        }
    }
}
