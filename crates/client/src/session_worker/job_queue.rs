//! Queue of jobs from tasks and guards to the session worker, with a limit on open requests.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use leasehold_core::command::HandoffMode;
use leasehold_core::holder::Timing;
use leasehold_core::lease::Access;
use leasehold_core::time::Instant;
use leasehold_core::trace_context::TraceContext;
use leasehold_wire::v1::request::Operation as Message;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::WorkerHandle;
use super::compensated_reply::SessionListener;
use super::job_result::Response;
use super::lease_shared::LeaseShared;
use super::reply_channel::ReplySender;

/// Requests of one client that may be without a reply, waits included. Further callers wait for a permit.
const MAX_OPEN_REQUESTS: usize = 1 << 14;

/// One job for the worker.
#[derive(Debug)]
pub(crate) enum Job {
    /// Acquire leases.
    Acquire { slot: ReplySlot, spec: Box<AcquireSpec>, worker: Weak<WorkerHandle> },
    /// Call the grantor about a held lease.
    LeaseCall { slot: ReplySlot, lease: Arc<LeaseShared>, call: LeaseCall },
    /// Call the grantor in the session about something other than its leases.
    SessionCall { slot: ReplySlot, message: Box<Message>, worker: Weak<WorkerHandle> },
    /// A session call whose reply nothing waits for.
    SendDetached(Box<Message>),
    /// Deliver session events to this listener while it lives.
    Listen(Weak<dyn SessionListener>),
    /// Reply at this time.
    Sleep { until: Instant, reply: ReplySender<Response> },
    /// Release a lease; the release of a dropped guard has no reply.
    Release { key: u64, lease: Arc<LeaseShared>, reply: Option<ReplySender<Response>> },
    /// The lease has progress to report.
    Progress { lease: Arc<LeaseShared> },
    /// The caller stopped waiting for this request.
    Cancel(u64),
    /// The caller waits again for this request, after an indeterminate outcome.
    WaitAgain(u64),
    /// Close the session, which ends everything it holds.
    Close(ReplySender<Response>),
}

/// Where the reply to a request goes, and the permit that the request occupies.
#[derive(Debug)]
pub(crate) struct ReplySlot {
    pub(crate) key: u64,
    pub(crate) reply: ReplySender<Response>,
    pub(crate) _permit: OwnedSemaphorePermit,
}

/// A call about a held lease.
#[derive(Debug)]
pub(crate) enum LeaseCall {
    Confirm,
    Rotate,
    Pin { at: u64 },
    Put { key: String, bytes: Option<Vec<u8>>, expect: Option<u64> },
    Handoff { to: Option<String>, mode: Option<HandoffMode>, drain_ms: Option<u64> },
}

/// A validated acquire request for one or several leases: all or none.
#[derive(Debug)]
pub(crate) struct AcquireSpec {
    pub(crate) resources: Vec<Box<str>>,
    /// A named actor; if absent, an actor that nothing else in the process uses.
    pub(crate) holder: Option<String>,
    pub(crate) access: Access,
    pub(crate) slots: Option<u32>,
    pub(crate) timing: Timing,
    pub(crate) wait_ms: u64,
    pub(crate) priority: u8,
    pub(crate) max_hold_ms: Option<u64>,
    pub(crate) progress_ms: Option<u64>,
    pub(crate) metadata: Vec<u8>,
    /// The trace that the leases belong to.
    pub(crate) trace: Option<TraceContext>,
}

/// Multi-producer queue that the worker drains.
#[derive(Debug)]
pub(super) struct JobQueue {
    state: Mutex<JobQueueState>,
    pub(super) arrived: Notify,
    pub(super) permits: Arc<Semaphore>,
    next_key: AtomicU64,
}

#[derive(Debug, Default)]
struct JobQueueState {
    jobs: Vec<Job>,
    /// The last handle was dropped; no job follows.
    closed: bool,
    /// The worker has stopped.
    stopped: bool,
}

impl JobQueue {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::default(),
            arrived: Notify::new(),
            permits: Arc::new(Semaphore::new(MAX_OPEN_REQUESTS)),
            next_key: AtomicU64::new(1),
        }
    }

    /// A new key for a request that a task waits for.
    pub(super) fn next_key(&self) -> u64 {
        self.next_key.fetch_add(1, Ordering::Relaxed)
    }

    /// Adds a job. After the worker has stopped it is dropped, which completes its reply with an error.
    pub(super) fn push(&self, job: Job) {
        let mut state = self.lock();
        if state.stopped {
            drop(state);
            drop(job);
            return;
        }
        state.jobs.push(job);
        let first = state.jobs.len() == 1;
        drop(state);
        if first {
            self.arrived.notify_one();
        }
    }

    /// Whether the worker has stopped.
    pub(super) fn is_stopped(&self) -> bool {
        self.lock().stopped
    }

    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.arrived.notify_one();
    }

    /// Moves all jobs into `into`. Returns true if no job follows.
    pub(super) fn drain(&self, into: &mut Vec<Job>) -> bool {
        let mut state = self.lock();
        std::mem::swap(&mut state.jobs, into);
        state.closed
    }

    /// The worker stops: remaining and later jobs are dropped.
    pub(super) fn stop(&self) {
        let mut state = self.lock();
        state.stopped = true;
        let rest = std::mem::take(&mut state.jobs);
        drop(state);
        drop(rest);
        self.permits.close();
    }

    fn lock(&self) -> MutexGuard<'_, JobQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
