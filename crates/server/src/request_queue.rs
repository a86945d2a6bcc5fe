//! Requests, renewals and queries that wait for the next turn.
//!
//! Each kind has a lane of its own with its own limit, so that a flood of new requests does not delay renewals (N1). In each lane an
//! identity has a share, and what a turn takes is divided between the identities by weight, which grows with the bytes (A12).

mod fair_lane;
mod identity_shares;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use leasehold_core::command::LeaseRef;
use leasehold_core::grantor::Grantor;
use leasehold_core::ids::SessionId;
use leasehold_wire::v1;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use self::fair_lane::FairLane;
use self::identity_shares::IdentityShares;
use crate::cancellation::{CancellationSink, Cancellations};
use crate::identity::Identity;
use crate::request::{QueuedRequest, RenewalBatch};

/// Weight of the requests that one turn takes; the rest waits for the next turn. Renewals are not counted.
pub const TURN_REQUESTS: usize = 4_096;
/// Queries that one turn takes. It may answer fewer; the rest is first in the next turn.
pub const TURN_QUERIES: usize = 256;
/// Weight of all requests that may wait. Beyond it unary callers must retry, and streams are not read until there is capacity.
pub const MAX_REQUESTS: usize = 1 << 17;
/// Renewals that may wait. Beyond it streams that renew are not read, and unary renewals must retry.
pub const MAX_RENEWALS: usize = 1 << 20;
/// The part of [`MAX_REQUESTS`] that one identity may use, with access rules.
pub const IDENTITY_REQUESTS: usize = MAX_REQUESTS / 8;
/// The part of [`MAX_RENEWALS`] that one identity may use, with access rules.
pub const IDENTITY_RENEWALS: usize = MAX_RENEWALS / 4;

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
    /// The other requests, of a weight of about [`TURN_REQUESTS`].
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

/// What waits, by kind.
#[derive(Default)]
struct Lanes {
    renewals: Vec<RenewalBatch>,
    priority: Vec<QueuedRequest>,
    /// The parts of identities in both.
    renewal_shares: Vec<OwnedSemaphorePermit>,
    requests: FairLane<QueuedRequest>,
    queries: FairLane<StateRead>,
    cancellations: Cancellations,
    stopping: bool,
}

impl Lanes {
    fn is_empty(&self) -> bool {
        self.renewals.is_empty()
            && self.priority.is_empty()
            && self.requests.is_empty()
            && self.queries.is_empty()
            && self.cancellations.is_empty()
    }
}

/// The queue between the API and the driver: many producers, one consumer.
pub struct RequestQueue {
    lanes: Mutex<Lanes>,
    arrived: Condvar,
    /// Capacity left for requests.
    request_permits: Semaphore,
    /// Capacity left for renewals.
    renewal_permits: Semaphore,
    /// What each identity may have in the lanes of requests and queries, and of renewals.
    request_shares: IdentityShares,
    renewal_shares: IdentityShares,
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
            request_shares: IdentityShares::new(IDENTITY_REQUESTS),
            renewal_shares: IdentityShares::new(IDENTITY_RENEWALS),
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
    /// The share of the caller's identity is used up: retry later, or send fewer requests at once.
    IdentityFull,
    /// The server is shutting down.
    Stopping,
}

impl RequestQueue {
    /// Queues a request, or fails if the queue is full.
    pub fn submit(&self, request: QueuedRequest) -> Result<(), SubmitError> {
        if request.is_renewal() {
            let weight = request.renewal_weight();
            let share = try_reserve_share(self.renewal_shares.of(&request.identity), weight)?;
            try_reserve(&self.renewal_permits, weight)?;
            return self.push(|lanes| {
                lanes.priority.push(request);
                lanes.renewal_shares.extend(share);
            });
        }
        let share = try_reserve_share(self.request_shares.of(&request.identity), request.weight())?;
        let weight = request.weight();
        try_reserve(&self.request_permits, weight)?;
        let identity = request.identity.clone();
        self.push(|lanes| lanes.requests.push(&identity.principal, request, weight, share))
    }

    /// Queues the requests of one batch, which have one identity; waits for capacity.
    pub async fn submit_all(&self, requests: Vec<QueuedRequest>) -> Result<(), SubmitError> {
        let Some(identity) = requests.first().map(|request| request.identity.clone()) else { return Ok(()) };
        let (priority, requests): (Vec<_>, Vec<_>) = requests.into_iter().partition(QueuedRequest::is_renewal);
        if !priority.is_empty() {
            let weight = priority.iter().map(QueuedRequest::renewal_weight).fold(0, u32::saturating_add);
            let share = reserve_share(self.renewal_shares.of(&identity), weight.min(IDENTITY_RENEWALS as u32)).await?;
            reserve(&self.renewal_permits, weight.min(MAX_RENEWALS as u32)).await?;
            self.push(|lanes| {
                lanes.priority.extend(priority);
                lanes.renewal_shares.extend(share);
            })?;
        }
        let weight = requests.iter().map(QueuedRequest::weight).fold(0, u32::saturating_add);
        let mut share = reserve_share(self.request_shares.of(&identity), weight.min(IDENTITY_REQUESTS as u32)).await?;
        reserve(&self.request_permits, weight.min(MAX_REQUESTS as u32)).await?;
        self.push(|lanes| {
            for request in requests {
                let weight = request.weight();
                let part = share.as_mut().and_then(|share| share.split(weight as usize));
                lanes.requests.push(&identity.principal, request, weight, part);
            }
        })
    }

    /// Queues a batch of renewals; waits for capacity. Renewals are never rejected.
    pub async fn renew(&self, renewals: RenewalBatch) -> Result<(), SubmitError> {
        let count = renewals.leases.len().min(MAX_RENEWALS) as u32;
        let share =
            reserve_share(self.renewal_shares.of(&renewals.identity), count.min(IDENTITY_RENEWALS as u32)).await?;
        reserve(&self.renewal_permits, count).await?;
        self.push(|lanes| {
            lanes.renewals.push(renewals);
            lanes.renewal_shares.extend(share);
        })
    }

    /// Queues a query of an identity, or fails if the queue is full.
    pub fn query(&self, identity: &Identity, query: StateRead) -> Result<(), SubmitError> {
        let share = try_reserve_share(self.request_shares.of(identity), 1)?;
        try_reserve(&self.request_permits, 1)?;
        self.push(|lanes| lanes.queries.push(&identity.principal, query, 1, share))
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
        let mut lanes = std::mem::replace(&mut *self.lanes(), Lanes { stopping: true, ..Lanes::default() });
        TurnInputs {
            renewals: lanes.renewals,
            priority: lanes.priority,
            requests: std::iter::from_fn(|| lanes.requests.pop()).collect(),
            queries: std::iter::from_fn(|| lanes.queries.pop()).collect(),
            cancellations: lanes.cancellations,
            stopping: true,
        }
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
        lanes.renewal_shares.clear();
        let mut returned = 0;
        while into.queries.len() < TURN_QUERIES
            && let Some(query) = lanes.queries.pop()
        {
            into.queries.push_back(query);
            returned += 1;
        }
        let mut weight = into.requests.iter().map(|request| request.weight() as usize).sum::<usize>();
        while weight < TURN_REQUESTS
            && let Some(request) = lanes.requests.pop()
        {
            weight += request.weight() as usize;
            returned += request.weight() as usize;
            into.requests.push_back(request);
        }
        into.stopping = lanes.stopping && lanes.is_empty();
        drop(lanes);
        self.request_permits.add_permits(returned.min(MAX_REQUESTS));
        let renewals = into.renewals.iter().map(|renewals| renewals.leases.len().min(MAX_RENEWALS)).sum::<usize>();
        let priority = into.priority.iter().map(|request| request.renewal_weight() as usize).sum::<usize>();
        self.renewal_permits.add_permits(renewals + priority);
    }

    fn push(&self, push: impl FnOnce(&mut Lanes)) -> Result<(), SubmitError> {
        let mut lanes = self.lanes();
        if lanes.stopping {
            return Err(SubmitError::Stopping);
        }
        push(&mut lanes);
        self.wake(lanes);
        Ok(())
    }

    fn lanes(&self) -> MutexGuard<'_, Lanes> {
        // A thread that panicked while it held the lock left the lanes consistent: every change is one push.
        self.lanes.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn wake(&self, lanes: MutexGuard<'_, Lanes>) {
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

/// A part of the share of an identity, or fails if it is used up.
fn try_reserve_share(share: Option<Arc<Semaphore>>, weight: u32) -> Result<Option<OwnedSemaphorePermit>, SubmitError> {
    share.map(|share| share.try_acquire_many_owned(weight)).transpose().map_err(|_| SubmitError::IdentityFull)
}

/// A part of the share of an identity; waits for it.
async fn reserve_share(
    share: Option<Arc<Semaphore>>,
    weight: u32,
) -> Result<Option<OwnedSemaphorePermit>, SubmitError> {
    match share {
        Some(share) => share.acquire_many_owned(weight).await.map(Some).map_err(|_| SubmitError::Stopping),
        None => Ok(None),
    }
}
