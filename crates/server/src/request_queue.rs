//! Requests, renewals and queries that wait for the next turn.
//!
//! Each kind has a lane of its own with its own limit, so that a flood of new requests does not delay renewals (N1).

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use leasehold_core::command::LeaseRef;
use leasehold_core::grantor::Grantor;
use leasehold_core::ids::SessionId;
use leasehold_wire::v1;
use tokio::sync::Semaphore;

use crate::cancellation::{CancellationSink, Cancellations};
use crate::request::{QueuedRequest, RenewalBatch};

/// Requests that one turn takes; the rest waits for the next turn. Renewals are not counted.
pub const TURN_REQUESTS: usize = 4_096;
/// Weight of all requests that may wait. Beyond it unary callers must retry, and streams are not read until there is capacity.
pub const MAX_REQUESTS: usize = 1 << 17;
/// Renewals that may wait. Beyond it streams that renew are not read, and unary renewals must retry.
pub const MAX_RENEWALS: usize = 1 << 20;

/// A read of the state. It runs in a turn; the returned closure runs once the result may be sent (E1).
pub type StateRead = Box<dyn FnOnce(&Grantor) -> QueryReply + Send>;

/// Sends the result of a query, with the journal position it depends on.
pub type QueryReply = Box<dyn FnOnce(u64) + Send>;

/// The inputs of a turn.
#[derive(Default)]
pub struct TurnInputs {
    /// All batches of renewals.
    pub renewals: Vec<RenewalBatch>,
    /// Unary renewals, which bypass the other requests.
    pub priority: Vec<QueuedRequest>,
    /// The other requests, at most [`TURN_REQUESTS`].
    pub requests: VecDeque<QueuedRequest>,
    /// Queries of the state.
    pub queries: VecDeque<StateRead>,
    /// Waits and grants of callers that have disconnected.
    pub cancellations: Cancellations,
    /// No further input follows: finish and stop.
    pub stopping: bool,
}

impl TurnInputs {
    /// The number of requests and renewals.
    pub fn count(&self) -> usize {
        let renewals = self.renewals.iter().map(|renewals| renewals.leases.len()).sum::<usize>();
        renewals + self.priority.len() + self.requests.len()
    }

    /// Whether there is no input.
    pub fn is_empty(&self) -> bool {
        self.count() == 0 && self.queries.is_empty() && self.cancellations.is_empty()
    }
}

/// The queue between the API and the driver: many producers, one consumer.
pub struct RequestQueue {
    lanes: Mutex<TurnInputs>,
    arrived: Condvar,
    /// Capacity left for requests.
    request_permits: Semaphore,
    /// Capacity left for renewals.
    renewal_permits: Semaphore,
    /// Whether the driver sleeps; a producer signals only then.
    driver_sleeps: AtomicBool,
    /// Why the driver takes no further turn.
    close_reason: OnceLock<v1::Problem>,
}

impl Default for RequestQueue {
    fn default() -> Self {
        Self {
            lanes: Mutex::default(),
            arrived: Condvar::new(),
            request_permits: Semaphore::new(MAX_REQUESTS),
            renewal_permits: Semaphore::new(MAX_RENEWALS),
            driver_sleeps: AtomicBool::new(false),
            close_reason: OnceLock::new(),
        }
    }
}

/// A request was not queued, so nothing happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmitError {
    /// The queue is full: retry later.
    Full,
    /// The server is shutting down.
    Stopping,
}

impl RequestQueue {
    /// Queues a request, or fails if the queue is full.
    pub fn submit(&self, request: QueuedRequest) -> Result<(), SubmitError> {
        if request.is_renewal() {
            try_reserve(&self.renewal_permits, request.renewal_weight())?;
            return self.push(|lanes| lanes.priority.push(request));
        }
        try_reserve(&self.request_permits, request.weight())?;
        self.push(|lanes| lanes.requests.push_back(request))
    }

    /// Queues the requests of one batch; waits for capacity.
    pub async fn submit_all(&self, requests: Vec<QueuedRequest>) -> Result<(), SubmitError> {
        let (priority, requests): (Vec<_>, Vec<_>) = requests.into_iter().partition(QueuedRequest::is_renewal);
        if !priority.is_empty() {
            let weight = priority.iter().map(QueuedRequest::renewal_weight).fold(0, u32::saturating_add);
            reserve(&self.renewal_permits, weight.min(MAX_RENEWALS as u32)).await?;
            self.push(|lanes| lanes.priority.extend(priority))?;
        }
        let weight = requests.iter().map(QueuedRequest::weight).fold(0, u32::saturating_add);
        reserve(&self.request_permits, weight.min(MAX_REQUESTS as u32)).await?;
        self.push(|lanes| lanes.requests.extend(requests))
    }

    /// Queues a batch of renewals; waits for capacity. Renewals are never rejected.
    pub async fn renew(&self, renewals: RenewalBatch) -> Result<(), SubmitError> {
        let count = renewals.leases.len().min(MAX_RENEWALS) as u32;
        reserve(&self.renewal_permits, count).await?;
        self.push(|lanes| lanes.renewals.push(renewals))
    }

    /// Queues a query of the state, or fails if the queue is full.
    pub fn query(&self, query: StateRead) -> Result<(), SubmitError> {
        try_reserve(&self.request_permits, 1)?;
        self.push(|lanes| lanes.queries.push_back(query))
    }

    /// Accepts no further input. Queued requests are still executed, then the driver stops.
    pub fn stop(&self) {
        self.request_permits.close();
        self.renewal_permits.close();
        let mut lanes = self.lanes();
        lanes.stopping = true;
        self.wake(lanes);
    }

    /// Weight of the requests and queries that wait.
    pub fn waiting(&self) -> usize {
        MAX_REQUESTS.saturating_sub(self.request_permits.available_permits())
    }

    /// Whether [`RequestQueue::stop`] was called.
    pub fn is_stopping(&self) -> bool {
        self.lanes().stopping
    }

    /// Why no further turn is taken; none while the driver runs.
    pub fn close_reason(&self) -> Option<&v1::Problem> {
        self.close_reason.get()
    }

    /// Accepts no further input and returns what is queued, which will not be executed. A caller whose channel drops finds the
    /// reason.
    pub fn close(&self, reason: &v1::Problem) -> TurnInputs {
        // Only the first reason counts.
        let _ = self.close_reason.set(reason.clone());
        self.stop();
        std::mem::replace(&mut *self.lanes(), TurnInputs { stopping: true, ..TurnInputs::default() })
    }

    /// Blocks until there is input, at most for `timeout`.
    pub fn wait(&self, timeout: Duration) {
        let lanes = self.lanes();
        if lanes.is_empty() && !lanes.stopping && !timeout.is_zero() {
            self.driver_sleeps.store(true, Ordering::Relaxed);
            let lanes = self.arrived.wait_timeout(lanes, timeout).unwrap_or_else(|e| e.into_inner());
            self.driver_sleeps.store(false, Ordering::Relaxed);
            drop(lanes);
        }
    }

    /// Moves the inputs of one turn to the end of what the previous turn left over.
    pub fn drain(&self, into: &mut TurnInputs) {
        let mut lanes = self.lanes();
        // A turn takes every renewal: after a failover all holders renew at once (N1).
        std::mem::swap(&mut lanes.renewals, &mut into.renewals);
        std::mem::swap(&mut lanes.priority, &mut into.priority);
        into.cancellations.append(&mut lanes.cancellations);
        let before = into.queries.len();
        into.queries.append(&mut lanes.queries);
        let mut weight = into.queries.len() - before;
        let count = TURN_REQUESTS.saturating_sub(into.requests.len()).min(lanes.requests.len());
        if into.requests.is_empty() && count == lanes.requests.len() {
            std::mem::swap(&mut lanes.requests, &mut into.requests);
        } else {
            into.requests.extend(lanes.requests.drain(..count));
        }
        into.stopping = lanes.stopping && lanes.is_empty();
        drop(lanes);
        weight += into.requests.iter().rev().take(count).map(|request| request.weight() as usize).sum::<usize>();
        self.request_permits.add_permits(weight.min(MAX_REQUESTS));
        let renewals = into.renewals.iter().map(|renewals| renewals.leases.len().min(MAX_RENEWALS)).sum::<usize>();
        let priority = into.priority.iter().map(|request| request.renewal_weight() as usize).sum::<usize>();
        self.renewal_permits.add_permits(renewals + priority);
    }

    fn push(&self, push: impl FnOnce(&mut TurnInputs)) -> Result<(), SubmitError> {
        let mut lanes = self.lanes();
        if lanes.stopping {
            return Err(SubmitError::Stopping);
        }
        push(&mut lanes);
        self.wake(lanes);
        Ok(())
    }

    fn lanes(&self) -> MutexGuard<'_, TurnInputs> {
        // A thread that panicked while it held the lock left the lanes consistent: every change is one push.
        self.lanes.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn wake(&self, lanes: MutexGuard<'_, TurnInputs>) {
        let sleeps = self.driver_sleeps.load(Ordering::Relaxed);
        drop(lanes);
        if sleeps {
            self.arrived.notify_one();
        }
    }
}

impl CancellationSink for RequestQueue {
    fn abandon_wait(&self, session: SessionId, slot: u64) {
        // A queue that is stopping needs no cancellation.
        let _ = self.push(|lanes| lanes.cancellations.abandoned_waits.push((session, slot)));
    }

    fn return_grants(&self, grants: Vec<LeaseRef<'static>>) {
        let _ = self.push(|lanes| lanes.cancellations.undelivered_grants.extend(grants));
    }
}

fn try_reserve(permits: &Semaphore, weight: u32) -> Result<(), SubmitError> {
    use tokio::sync::TryAcquireError::{Closed, NoPermits};
    match permits.try_acquire_many(weight) {
        Ok(permits) => {
            permits.forget();
            Ok(())
        }
        Err(NoPermits) => Err(SubmitError::Full),
        Err(Closed) => Err(SubmitError::Stopping),
    }
}

async fn reserve(permits: &Semaphore, weight: u32) -> Result<(), SubmitError> {
    permits.acquire_many(weight).await.map_err(|_| SubmitError::Stopping)?.forget();
    Ok(())
}
