//! State of one lease that the session worker shares with its guard. The worker writes it; the guard reads it.

use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use leasehold_core::holder::{ClockDrift, Deadline, Loss, Succession};
use leasehold_core::ids::LeaseId;
use leasehold_core::time::Instant;
use leasehold_core::trace_context::TraceContext;
use tokio::sync::Notify;

use crate::{FencingToken, StampedToken};

/// Local deadline of a session. Everything that a session carries ends with it, whatever its own deadline is.
#[derive(Debug, Default)]
pub(crate) struct SessionDeadline(AtomicU64);

impl SessionDeadline {
    pub(super) fn set(&self, deadline: Instant) {
        self.0.store(deadline.0, Ordering::Release);
    }

    pub(crate) fn get(&self) -> Instant {
        Instant(self.0.load(Ordering::Acquire))
    }
}

/// One lease, shared by the worker, its guard and every handle.
pub(crate) struct LeaseShared {
    pub(crate) resource: Box<str>,
    pub(crate) id: LeaseId,
    /// Index in the worker's lease table.
    pub(super) index: u32,
    /// The trace that it belongs to, and so do its release and the calls about it.
    pub(super) trace: Option<TraceContext>,
    session: Arc<SessionDeadline>,
    view: Mutex<LocalLeaseView>,
    stamped: Mutex<Arc<[StampedToken]>>,
    changed: Notify,
    /// Number of tasks in [`LeaseShared::wait_for`]: without any, a change wakes nothing.
    waiters: AtomicUsize,
    progress: AtomicU64,
    progress_pending: AtomicBool,
}

/// What the worker knows about a lease at one moment.
#[derive(Clone, Copy)]
pub(crate) struct LocalLeaseView {
    pub(crate) token: FencingToken,
    /// Deadline of the lease itself; the deadline of its session may be earlier.
    pub(crate) deadline: Deadline,
    /// When the lease ends even if it is renewed.
    pub(crate) fixed_end: Option<Instant>,
    /// Whether work may continue, as of the worker's last poll of this lease.
    pub(crate) working: bool,
    /// Counts how often work had to stop.
    pub(crate) suspensions: u32,
    /// A successor was granted or is expected: finish by then.
    pub(crate) draining: Option<Instant>,
    /// The predecessor of an overlap may still write.
    pub(crate) overlap: Option<Overlap>,
    pub(crate) loss: Option<Loss>,
    /// Incremented with every change.
    pub(crate) version: u64,
}

/// How long the successor of an overlap waits before it claims, as received with its grant.
#[derive(Clone, Copy)]
pub(crate) struct Overlap {
    pub(crate) received: Instant,
    pub(crate) drain_ms: u64,
    pub(crate) clock_drift: ClockDrift,
}

impl Overlap {
    pub(crate) fn succession(&self) -> Succession {
        Succession::new(self.received, self.drain_ms, self.clock_drift)
    }
}

impl LeaseShared {
    pub(super) fn new(
        resource: Box<str>,
        id: LeaseId,
        index: u32,
        session: Arc<SessionDeadline>,
        view: LocalLeaseView,
    ) -> Self {
        Self {
            resource,
            id,
            index,
            trace: None,
            session,
            view: Mutex::new(view),
            stamped: Mutex::default(),
            changed: Notify::new(),
            waiters: AtomicUsize::new(0),
            progress: AtomicU64::new(0),
            progress_pending: AtomicBool::new(false),
        }
    }

    /// The same lease, which belongs to a trace.
    pub(super) fn traced(self, trace: Option<TraceContext>) -> Self {
        Self { trace, ..self }
    }

    /// The current view. Its deadline is the earlier of the lease's and its session's.
    pub(crate) fn view(&self) -> LocalLeaseView {
        let mut view = *self.lock();
        view.deadline.earliest = view.deadline.earliest.min(self.session.get());
        view
    }

    /// The current token, without a copy of the rest of the view.
    pub(crate) fn token(&self) -> FencingToken {
        self.lock().token
    }

    /// The stamped texts of the token, one for each target.
    pub(crate) fn stamped(&self) -> Arc<[StampedToken]> {
        self.stamped.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_stamped(&self, stamped: Vec<StampedToken>) {
        *self.stamped.lock().unwrap_or_else(PoisonError::into_inner) = stamped.into();
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut LocalLeaseView)) {
        let mut view = self.lock();
        change(&mut view);
        view.version += 1;
        drop(view);
        self.wake();
    }

    /// Wakes every task that waits for a change.
    pub(super) fn wake(&self) {
        if self.waiters.load(Ordering::Acquire) > 0 {
            self.changed.notify_waiters();
        }
    }

    /// Waits until `condition` returns a value for the current view.
    pub(crate) async fn wait_for<T>(&self, mut condition: impl FnMut(&LocalLeaseView) -> Option<T>) -> T {
        let _registered = WaiterCount::new(self);
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            let found = poll_fn(|context| {
                // Registers before it reads, so that no change in between is missed. It reads on every poll: a deadline
                // passes without a notification, and nothing else that woke this task may run before the check.
                let notified = changed.as_mut().poll(context).is_ready();
                match condition(&self.view()) {
                    None if !notified => Poll::Pending,
                    found => Poll::Ready(found),
                }
            });
            if let Some(found) = found.await {
                return found;
            }
        }
    }

    /// Records progress. Returns true if the worker must be notified.
    pub(crate) fn record_progress(&self, at: u64) -> bool {
        self.progress.fetch_max(at, Ordering::AcqRel);
        !self.progress_pending.swap(true, Ordering::AcqRel)
    }

    /// Progress that no renewal has carried yet.
    pub(super) fn take_progress(&self) -> Option<u64> {
        self.progress_pending.swap(false, Ordering::AcqRel).then(|| self.progress.load(Ordering::Acquire))
    }

    /// The renewal that carried the progress may not have arrived: the next one carries it again.
    pub(super) fn restore_progress(&self) {
        self.progress_pending.store(true, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, LocalLeaseView> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a task in [`LeaseShared::wait_for`] while it lives.
struct WaiterCount<'a>(&'a LeaseShared);

impl<'a> WaiterCount<'a> {
    fn new(lease: &'a LeaseShared) -> Self {
        lease.waiters.fetch_add(1, Ordering::AcqRel);
        Self(lease)
    }
}

impl Drop for WaiterCount<'_> {
    fn drop(&mut self) {
        self.0.waiters.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Omits the token, which must not reach a log.
impl fmt::Debug for LeaseShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseShared").field("resource", &self.resource).field("id", &self.id).finish_non_exhaustive()
    }
}
