//! A clock that a test moves, which knows when the holder that reads it has nothing left to do.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::time::Instant;
use tokio::sync::Notify;

/// A holder that does not come to rest for so long is left alone.
const REST: Duration = Duration::from_secs(30);

/// One holder's view of the time that all share.
#[derive(Debug)]
pub(crate) struct Hand {
    time: Arc<AtomicU64>,
    state: Mutex<State>,
    moved: Notify,
    rested: Condvar,
}

#[derive(Debug, Default)]
struct State {
    paused: bool,
    /// At which time the holder went to sleep, if it sleeps.
    asleep: Option<Instant>,
    /// The holder was started.
    runs: bool,
}

impl Hand {
    pub(super) fn new(time: Arc<AtomicU64>) -> Self {
        Self { time, state: Mutex::default(), moved: Notify::new(), rested: Condvar::new() }
    }

    pub(crate) fn now(&self) -> Instant {
        Instant(self.time.load(Ordering::Acquire))
    }

    pub(crate) async fn gate(&self) {
        loop {
            let moved = self.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            if !self.lock().paused {
                return;
            }
            moved.await;
        }
    }

    pub(crate) async fn sleep_until(&self, due: Instant) {
        let _awake = Awake(self);
        loop {
            let moved = self.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            let now = self.now();
            if now >= due {
                return;
            }
            self.sleeps(now);
            moved.await;
        }
    }

    fn sleeps(&self, now: Instant) {
        let mut state = self.lock();
        state.asleep = Some(now);
        drop(state);
        self.rested.notify_all();
    }

    /// Something was sent to this holder: it is not at rest.
    pub(super) fn disturb(&self) {
        self.lock().asleep = None;
    }

    pub(super) fn pause(&self, yes: bool) {
        self.lock().paused = yes;
        self.moved.notify_waiters();
        self.rested.notify_all();
    }

    pub(super) fn wake(&self) {
        self.moved.notify_waiters();
    }

    /// Waits until the holder has done all that this moment wants of it.
    pub(super) fn rest(&self) {
        let now = self.now();
        let busy = |state: &mut State| state.runs && !state.paused && state.asleep != Some(now);
        drop(self.rested.wait_timeout_while(self.lock(), REST, busy));
    }

    /// The holder is started: from now on time waits for it.
    pub(crate) fn begun(&self) {
        self.lock().runs = true;
    }

    /// The holder has ended.
    pub(crate) fn ended(&self) {
        self.lock().runs = false;
        self.rested.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Awake<'a>(&'a Hand);

impl Drop for Awake<'_> {
    fn drop(&mut self) {
        self.0.lock().asleep = None;
    }
}
