//! A clock that a test moves. It knows when the worker that reads it is idle.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::time::Instant;
use tokio::sync::Notify;

/// A worker that is not idle after this time is not waited for.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// One worker's view of the shared time.
#[derive(Debug)]
pub(crate) struct ManualClock {
    time: Arc<AtomicU64>,
    state: Mutex<ManualClockState>,
    moved: Notify,
    idle: Condvar,
}

#[derive(Debug, Default)]
struct ManualClockState {
    paused: bool,
    /// If the worker sleeps: the time at which it fell asleep, and the number of disturbances it had seen.
    asleep: Option<(Instant, u64)>,
    /// Disturbances before the worker last polled its inputs.
    seen: u64,
    /// Number of times the worker got something to do.
    disturbances: u64,
    /// The worker was started.
    running: bool,
}

impl ManualClock {
    pub(crate) fn new(time: Arc<AtomicU64>) -> Self {
        Self { time, state: Mutex::default(), moved: Notify::new(), idle: Condvar::new() }
    }

    pub(crate) fn now(&self) -> Instant {
        Instant(self.time.load(Ordering::Acquire))
    }

    pub(crate) async fn wait_while_paused(&self) {
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
        let _awake = WakeOnDrop(self);
        loop {
            let moved = self.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            let now = self.now();
            if now >= due {
                return;
            }
            if self.fall_asleep(now) {
                moved.await;
            } else {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Falls asleep, unless the worker was disturbed since it polled its inputs.
    fn fall_asleep(&self, now: Instant) -> bool {
        let mut state = self.lock();
        let sleeps = state.seen == state.disturbances;
        state.asleep = sleeps.then_some((now, state.seen));
        drop(state);
        self.idle.notify_all();
        sleeps
    }

    /// The worker polls its inputs: it sees every earlier disturbance before it sleeps.
    pub(crate) fn note_poll(&self) {
        let mut state = self.lock();
        state.seen = state.disturbances;
    }

    /// The worker has something to do: it is not idle until it has polled its inputs again.
    pub(crate) fn disturb(&self) {
        self.lock().disturbances += 1;
        self.moved.notify_waiters();
    }

    pub(crate) fn disturbances(&self) -> u64 {
        self.lock().disturbances
    }

    pub(crate) fn set_paused(&self, paused: bool) {
        self.lock().paused = paused;
        self.moved.notify_waiters();
        self.idle.notify_all();
    }

    /// Waits until the worker is idle at the current time.
    pub(crate) fn wait_idle(&self) {
        let now = self.now();
        let busy = |state: &mut ManualClockState| {
            state.running && !state.paused && state.asleep != Some((now, state.disturbances))
        };
        drop(self.idle.wait_timeout_while(self.lock(), IDLE_TIMEOUT, busy));
    }

    /// The worker is started: from now on the test waits for it.
    pub(crate) fn worker_started(&self) {
        self.lock().running = true;
    }

    pub(crate) fn worker_stopped(&self) {
        self.lock().running = false;
        self.idle.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, ManualClockState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct WakeOnDrop<'a>(&'a ManualClock);

impl Drop for WakeOnDrop<'_> {
    fn drop(&mut self) {
        self.0.lock().asleep = None;
    }
}
