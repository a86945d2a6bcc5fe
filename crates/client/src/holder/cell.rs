//! What the holder's thread and a guard share about one lease. The thread writes it, whoever holds reads it.

use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use leasehold_core::holder::{Deadline, Loss, RateError, Succession};
use leasehold_core::ids::LeaseId;
use leasehold_core::time::Instant;
use leasehold_core::token::Token;
use tokio::sync::Notify;

/// Until when a session may be thought alive: a session's end ends all that it carries, whatever their own deadlines.
#[derive(Debug, Default)]
pub(crate) struct Alive(AtomicU64);

impl Alive {
    pub(super) fn until(&self, until: Instant) {
        self.0.store(until.0, Ordering::Release);
    }

    pub(crate) fn get(&self) -> Instant {
        Instant(self.0.load(Ordering::Acquire))
    }
}

/// One lease.
pub(crate) struct Cell {
    pub(crate) resource: Box<str>,
    pub(crate) lease: LeaseId,
    pub(super) place: u32,
    session: Arc<Alive>,
    view: Mutex<View>,
    changed: Notify,
    listeners: AtomicUsize,
    progress: AtomicU64,
    progressed: AtomicBool,
}

/// What is known about a lease at one moment.
#[derive(Clone, Copy)]
pub(crate) struct View {
    pub(crate) token: Token,
    /// As the lease's own belief says; its session's may be earlier.
    pub(crate) deadline: Deadline,
    /// Whether work may go on, as far as the thread has looked.
    pub(crate) working: bool,
    /// How often work had to stop.
    pub(crate) suspensions: u32,
    /// A successor was granted or is awaited: finish by then.
    pub(crate) draining: Option<Instant>,
    /// The predecessor of an overlap may still write.
    pub(crate) overlap: Option<Overlap>,
    pub(crate) loss: Option<Loss>,
    /// Counts what was told.
    pub(crate) version: u64,
}

/// How long a successor waits before it claims, as it was told with its grant.
#[derive(Clone, Copy)]
pub(crate) struct Overlap {
    pub(crate) received: Instant,
    pub(crate) drain_ms: u64,
    pub(crate) rate: RateError,
}

impl Overlap {
    pub(crate) fn succession(&self) -> Succession {
        Succession::new(self.received, self.drain_ms, self.rate)
    }
}

impl Cell {
    pub(super) fn new(resource: Box<str>, lease: LeaseId, place: u32, session: Arc<Alive>, view: View) -> Self {
        Self {
            resource,
            lease,
            place,
            session,
            view: Mutex::new(view),
            changed: Notify::new(),
            listeners: AtomicUsize::new(0),
            progress: AtomicU64::new(0),
            progressed: AtomicBool::new(false),
        }
    }

    /// What is known now; the earlier of the lease's and its session's deadline counts.
    pub(crate) fn view(&self) -> View {
        let mut view = *self.lock();
        view.deadline.earliest = view.deadline.earliest.min(self.session.get());
        view
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut View)) {
        let mut view = self.lock();
        change(&mut view);
        view.version += 1;
        drop(view);
        self.ring();
    }

    /// Wakes whoever listens.
    pub(super) fn ring(&self) {
        if self.listeners.load(Ordering::Acquire) > 0 {
            self.changed.notify_waiters();
        }
    }

    /// Waits until a view answers the question.
    pub(crate) async fn until<T>(&self, mut asked: impl FnMut(&View) -> Option<T>) -> T {
        let _listening = Listening::new(self);
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            let found = poll_fn(|context| {
                // Listens before it looks, so that nothing told in between is missed. It looks whenever it is polled: a
                // deadline passes without a bell, and what else woke this task must not be done first.
                let told = changed.as_mut().poll(context).is_ready();
                match asked(&self.view()) {
                    None if !told => Poll::Pending,
                    found => Poll::Ready(found),
                }
            });
            if let Some(found) = found.await {
                return found;
            }
        }
    }

    /// Notes how far the work is; true if the thread must be told.
    pub(crate) fn progress(&self, at: u64) -> bool {
        self.progress.fetch_max(at, Ordering::AcqRel);
        !self.progressed.swap(true, Ordering::AcqRel)
    }

    /// The progress that was not yet shown, if there is any.
    pub(super) fn take_progress(&self) -> Option<u64> {
        self.progressed.swap(false, Ordering::AcqRel).then(|| self.progress.load(Ordering::Acquire))
    }

    /// What was shown may not have arrived: it is shown again.
    pub(super) fn show_again(&self) {
        self.progressed.store(true, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Listening<'a>(&'a Cell);

impl<'a> Listening<'a> {
    fn new(cell: &'a Cell) -> Self {
        cell.listeners.fetch_add(1, Ordering::AcqRel);
        Self(cell)
    }
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.0.listeners.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Without the token: it must not reach a log.
impl fmt::Debug for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cell").field("resource", &self.resource).field("lease", &self.lease).finish_non_exhaustive()
    }
}
