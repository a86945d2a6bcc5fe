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
    /// At which time the holder went to sleep, if it sleeps, and what it had been disturbed by before it last looked around.
    asleep: Option<(Instant, u64)>,
    looked: u64,
    /// How often there was something to do.
    disturbed: u64,
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
            if self.sleeps(now) {
                moved.await;
            } else {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Goes to sleep, unless something came since it looked around.
    fn sleeps(&self, now: Instant) -> bool {
        let mut state = self.lock();
        let sleeps = state.looked == state.disturbed;
        state.asleep = sleeps.then_some((now, state.looked));
        drop(state);
        self.rested.notify_all();
        sleeps
    }

    /// The holder looks around: what was there before this is seen before it sleeps.
    pub(crate) fn looks(&self) {
        let mut state = self.lock();
        state.looked = state.disturbed;
    }

    /// There is something for this holder to see: it is not at rest before it has looked around again.
    pub(super) fn disturb(&self) {
        self.lock().disturbed += 1;
        self.moved.notify_waiters();
    }

    pub(super) fn disturbed(&self) -> u64 {
        self.lock().disturbed
    }

    pub(super) fn pause(&self, yes: bool) {
        self.lock().paused = yes;
        self.moved.notify_waiters();
        self.rested.notify_all();
    }

    /// Waits until the holder has done all that this moment wants of it.
    pub(super) fn rest(&self) {
        let now = self.now();
        let busy = |state: &mut State| state.runs && !state.paused && state.asleep != Some((now, state.disturbed));
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
