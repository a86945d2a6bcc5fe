//! Cloneable handle of a held lease: its token, its state, and calls under it.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use futures::stream::{BoxStream, StreamExt};
use leasehold_core::command::{Answer, HandoffMode};
use leasehold_core::holder::{Claim, ClockDrift, Deadline, Loss, Succession};
use leasehold_core::ids::LeaseId;
use leasehold_core::time::Instant;
use leasehold_core::token::Number;

use crate::session_worker::{Job, LeaseCall, LeaseShared, LocalLeaseView, Response, WorkerHandle};
use crate::{Error, FencingToken, RequestError, StampedToken};

/// What a holder knows about its lease at one moment, by its own clock.
///
/// Exhaustive on purpose: a new state would change what work may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardState {
    /// The lease is held: work may continue until the deadline.
    Held,
    /// The local deadline has passed: work stops, and continues only if the grantor renews the same lease.
    Suspended,
    /// The grantor ended the lease.
    Lost(Loss),
}

/// Handle of a held lease. Clone it and pass it to the work; only the [`Guard`](crate::Guard) releases the lease.
#[derive(Clone)]
pub struct LeaseHandle {
    pub(crate) lease: Arc<LeaseShared>,
    pub(crate) worker: Arc<WorkerHandle>,
}

/// State of a lease, as [`LeaseUpdates`] reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseStatus {
    /// Local state.
    pub state: GuardState,
    /// Token to present with writes.
    pub token: FencingToken,
    /// Earliest and latest end.
    pub deadline: Deadline,
    /// When the lease ends even if it is renewed, by the local clock; none if a renewal moves its end. Set while required progress
    /// is missing, and before the end of the maximum hold or of a drain period.
    pub fixed_end: Option<Instant>,
    /// A handoff or preemption has started: finish and release the lease before this time.
    pub draining: Option<Instant>,
}

/// Options of a handoff. Default: to the first waiter, as the charter says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct HandoffOptions {
    to: Option<String>,
    mode: Option<HandoffMode>,
    drain: Option<Duration>,
}

impl HandoffOptions {
    /// To the first waiter, as the charter says.
    pub fn new() -> Self {
        Self::default()
    }

    /// Holder name of the successor.
    pub fn to(mut self, holder: impl Into<String>) -> Self {
        self.to = Some(holder.into());
        self
    }

    /// Gap or overlap.
    pub const fn mode(mut self, mode: HandoffMode) -> Self {
        self.mode = Some(mode);
        self
    }

    /// Time that this holder may drain.
    pub const fn drain(mut self, drain: Duration) -> Self {
        self.drain = Some(drain);
        self
    }
}

impl LeaseHandle {
    /// Name of the resource.
    pub fn resource(&self) -> &str {
        &self.lease.resource
    }

    /// Id of the lease.
    pub fn lease_id(&self) -> LeaseId {
        self.lease.id
    }

    /// The current fencing token. Present its text with every write. If the charter raises tokens on renewal, call this again for
    /// every write.
    pub fn token(&self) -> FencingToken {
        self.lease.token()
    }

    /// The token with the stamp for a target of the charter, to present there instead of the token. `None` if the server has no stamp
    /// key for the target. The stamp is of the key that was active at the grant; [`LeaseHandle::rotate`] brings one of the newest.
    pub fn stamped_token(&self, target: &str) -> Option<StampedToken> {
        self.lease.stamped().iter().find(|stamped| stamped.target() == target).cloned()
    }

    /// The stamped tokens of all targets.
    pub fn stamped_tokens(&self) -> Vec<StampedToken> {
        self.lease.stamped().to_vec()
    }

    /// Number of the current token, for checks of your own.
    pub fn token_number(&self) -> Number {
        self.lease.token().number()
    }

    /// State of the lease now, by the local clock.
    pub fn state(&self) -> GuardState {
        self.state_of(&self.lease.view())
    }

    /// Whether work may continue now.
    pub fn is_held(&self) -> bool {
        self.state() == GuardState::Held
    }

    /// Earliest and latest end, in time of the machine's boot clock.
    pub fn deadline(&self) -> Deadline {
        self.lease.view().deadline
    }

    /// How long work may continue without another renewal.
    pub fn remaining(&self) -> Duration {
        let until = self.lease.view().deadline.earliest;
        Duration::from_nanos(until.0.saturating_sub(self.worker.clock.now().0))
    }

    /// When this holder must be finished, if a handoff or preemption has started.
    pub fn draining(&self) -> Option<Instant> {
        self.lease.view().draining
    }

    /// Waits until a handoff or preemption starts, or the lease is lost. Cancel-safe.
    pub async fn draining_started(&self) {
        self.lease.wait_for(|view| (view.draining.is_some() || view.loss.is_some()).then_some(())).await;
    }

    /// Waits until the grantor has ended the lease. Cancel-safe.
    pub async fn wait_lost(&self) -> Loss {
        self.lease.wait_for(|view| view.loss).await
    }

    /// Waits until work must stop: the lease is suspended or lost, even if it was resumed meanwhile. Cancel-safe.
    pub async fn wait_stopped(&self) -> GuardState {
        let before = self.lease.view().suspensions;
        self.wait_stopped_since(before).await
    }

    pub(crate) async fn wait_stopped_since(&self, suspensions: u32) -> GuardState {
        self.lease
            .wait_for(|view| match self.state_of(view) {
                GuardState::Held if view.suspensions == suspensions => None,
                GuardState::Held => Some(GuardState::Suspended),
                stopped => Some(stopped),
            })
            .await
    }

    /// The state of the lease now, and after every renewal and change.
    pub fn updates(&self) -> LeaseUpdates {
        let updates = futures::stream::unfold((self.clone(), None), |(handle, seen)| async move {
            if seen == Some(u64::MAX) {
                return None;
            }
            let view = handle.lease.wait_for(|view| (seen != Some(view.version)).then_some(*view)).await;
            let seen = Some(if view.loss.is_some() { u64::MAX } else { view.version });
            let status = handle.status_of(&view);
            Some((status, (handle, seen)))
        });
        LeaseUpdates { resource: self.resource().to_owned(), updates: updates.boxed() }
    }

    /// The state of the lease now, with its deadlines.
    pub fn status(&self) -> LeaseStatus {
        self.status_of(&self.lease.view())
    }

    fn status_of(&self, view: &LocalLeaseView) -> LeaseStatus {
        let LocalLeaseView { token, deadline, fixed_end, draining, .. } = *view;
        LeaseStatus { state: self.state_of(view), token, deadline, fixed_end, draining }
    }

    /// Checks with the grantor whether the lease is current at a moment during this call. An optimization, not a safety measure.
    pub async fn check(&self) -> Result<(), Error> {
        self.call(LeaseCall::Confirm, |_| Ok(())).await.map_err(RequestError::into_error)
    }

    /// Raises the token and returns the new one. Once a target has seen it, it rejects the old one.
    pub async fn rotate(&self) -> Result<FencingToken, RequestError<()>> {
        self.call(LeaseCall::Rotate, |_| Ok(())).await?;
        Ok(self.token())
    }

    /// Writes small state through the journal, only if the lease is current: the write is the check. Returns the revision.
    pub async fn put(&self, key: &str, bytes: &[u8]) -> Result<u64, RequestError<u64>> {
        self.put_if(key, Some(bytes), None).await
    }

    /// Like [`LeaseHandle::put`], only if the key has the expected revision. `None` as bytes deletes the key, and returns 0: a key
    /// that does not exist has no revision.
    pub async fn put_if(&self, key: &str, bytes: Option<&[u8]>, expect: Option<u64>) -> Result<u64, RequestError<u64>> {
        let put = LeaseCall::Put { key: key.to_owned(), bytes: bytes.map(Into::into), expect };
        self.call(put, |response| match response {
            Response::Answer(Answer::Stored { revision }) => Ok(revision),
            Response::Answer(Answer::Done) => Ok(0),
            _ => Err(Error::invalid_reply("an answer other than to a write")),
        })
        .await
    }

    /// Reports progress, which must increase. A lease with [required progress](crate::Lock::require_progress) ends as stalled
    /// without it (G1). Does not wait: the next renewal carries it, immediately if possible.
    pub fn progress(&self, at: u64) {
        if self.lease.record_progress(at) {
            self.worker.submit(Job::Progress { lease: self.lease.clone() });
        }
    }

    /// Starts a planned handoff. The lease continues while it drains: finish, then release. In an overlap the successor is granted
    /// immediately, and claims when this holder is done.
    pub async fn handoff(&self, options: HandoffOptions) -> Result<(), RequestError<()>> {
        let HandoffOptions { to, mode, drain } = options;
        let drain_ms = drain.map(|drain| u64::try_from(drain.as_millis()).unwrap_or(u64::MAX));
        self.call(LeaseCall::Handoff { to, mode, drain_ms }, |_| Ok(())).await
    }

    /// Waits until the targets may be claimed: immediately, unless the predecessor of an overlap still drains. Then claim, read
    /// again, and write, in this order (H2). Fails if the lease is lost before. Cancel-safe.
    pub async fn wait_claimable(&self) -> Result<Claim, Error> {
        let claim = |view: &LocalLeaseView| match (view.loss, view.overlap) {
            (Some(loss), _) => Some(Err(loss.into())),
            (None, Some(overlap)) => overlap.succession().claim(self.worker.clock.now()).ok().map(Ok),
            (None, None) => {
                let mut alone = Succession::new(Instant::default(), 0, ClockDrift::default());
                alone.predecessor_ended();
                alone.claim(self.worker.clock.now()).ok().map(Ok)
            }
        };
        self.lease.wait_for(claim).await
    }

    pub(crate) async fn call<T>(
        &self,
        call: LeaseCall,
        decode: fn(Response) -> Result<T, Error>,
    ) -> Result<T, RequestError<T>> {
        let lease = self.lease.clone();
        self.worker.call(|slot, _| Job::LeaseCall { slot, lease, call }, decode).await?.outcome().await
    }

    fn state_of(&self, view: &LocalLeaseView) -> GuardState {
        match view.loss {
            Some(loss) => GuardState::Lost(loss),
            None if view.working && self.worker.clock.now() < view.deadline.earliest => GuardState::Held,
            None => GuardState::Suspended,
        }
    }
}

/// Omits the token, which must not reach a log.
impl fmt::Debug for LeaseHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseHandle").field("resource", &self.resource()).field("state", &self.state()).finish()
    }
}

/// A stream of [`LeaseStatus`]: the state now, then after every renewal and change. It ends after a loss. A slow reader misses
/// intermediate states, never the newest.
#[must_use = "streams do nothing unless polled"]
pub struct LeaseUpdates {
    resource: String,
    updates: BoxStream<'static, LeaseStatus>,
}

impl Stream for LeaseUpdates {
    type Item = LeaseStatus;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<LeaseStatus>> {
        self.updates.as_mut().poll_next(context)
    }
}

impl fmt::Debug for LeaseUpdates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseUpdates").field("resource", &self.resource).finish_non_exhaustive()
    }
}
