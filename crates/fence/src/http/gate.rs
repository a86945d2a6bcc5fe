//! The gate of one fence id. A request is in flight until its outcome is known, and the mark is raised only when none is.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::token::Number;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::GateTimeouts;
use super::gate_state::{GateRequest, GateState, GateStep, MarkLogOp, RequestOutcome};
use super::mark_log::{FileStamp, MarkLog, OwnerLock, RecoveredState};
use crate::admission::PresentedToken;
use crate::{Error, FenceId, FenceRefusal, Mark, MarkLoss, SealVerifier};

/// The gate of one fence id: its durable mark, and the requests in flight.
#[derive(Debug)]
pub(super) struct Gate {
    pub(super) fence_id: FenceId,
    pub(super) path: PathBuf,
    mark_log: Mutex<MarkLog>,
    owner_lock: OwnerLock,
    state: Mutex<GateState>,
    changed: Notify,
    claim_timeout: Duration,
    max_request_time: Duration,
}

/// Why a request was not forwarded.
#[derive(Debug)]
pub(super) enum GateRejection {
    /// The fence rejected the token, or the mark file failed.
    Fence(Error),
    /// Requests with lower tokens were in flight longer than the claim timeout, or an outcome is unknown. Nothing changed.
    Blocked {
        /// Number of requests in flight.
        in_flight: usize,
        /// When to retry.
        retry_after: Duration,
    },
    /// The request is a duplicate: it was applied earlier.
    AlreadyApplied {
        /// The last sequence under this token.
        last: u64,
    },
    /// A request with this sequence was forwarded earlier, and its outcome is unknown.
    Unknown,
}

impl<E: Into<Error>> From<E> for GateRejection {
    fn from(error: E) -> Self {
        Self::Fence(error.into())
    }
}

impl Gate {
    /// Creates a gate over an open mark file. If an earlier process ended with requests in flight, higher tokens are blocked
    /// for the settle time.
    pub(super) fn new(
        fence_id: &FenceId,
        path: PathBuf,
        (mut mark_log, owner_lock): (MarkLog, OwnerLock),
        recovered: RecoveredState,
        timeouts: &GateTimeouts,
    ) -> Arc<Self> {
        let mut state = GateState::new(timeouts.max_request_time, timeouts.settle_time);
        let stamp = mark_log.stamp();
        // A fault of the file is reported to the first request, unless it is repaired before.
        let _ = update_mark(&mut state, stamp, mark_log.mark());
        if !recovered.settled {
            state.note_unknown_outcome(Instant::now());
        }
        if let Some((number, sequence, applied)) = recovered.sequence {
            state.restore_sequence(
                number,
                sequence,
                if applied { RequestOutcome::Applied } else { RequestOutcome::Unknown },
            );
        }
        let (mark_log, state) = (Mutex::new(mark_log), Mutex::new(state));
        Arc::new(Self {
            fence_id: fence_id.clone(),
            path,
            mark_log,
            owner_lock,
            state,
            changed: Notify::new(),
            claim_timeout: timeouts.claim_timeout,
            max_request_time: timeouts.max_request_time,
        })
    }

    /// Verifies the tokens of all later entries of the mark file. The layer has verified them before.
    pub(super) fn set_seal_verifier(&self, verifier: &SealVerifier) {
        self.mark_log.lock().unwrap_or_else(PoisonError::into_inner).set_seal_verifier(verifier);
    }

    /// Raises the mark once no request is in flight. It is durable when this returns.
    pub(super) async fn claim(self: &Arc<Self>, token: &str, presented: PresentedToken) -> Result<(), GateRejection> {
        self.admit(token, presented, GateRequest::Claim).await?;
        Ok(())
    }

    /// Admits a request. Until the returned value is dropped, no token can raise the mark.
    pub(super) async fn enter(
        self: &Arc<Self>,
        token: &str,
        presented: PresentedToken,
        sequence: Option<u64>,
    ) -> Result<InFlight, GateRejection> {
        let in_flight = self.admit(token, presented, GateRequest::Write { sequence }).await?;
        Ok(in_flight.expect("only a claim is never in flight"))
    }

    async fn admit(
        self: &Arc<Self>,
        token: &str,
        presented: PresentedToken,
        request: GateRequest,
    ) -> Result<Option<InFlight>, GateRejection> {
        let deadline = Instant::now() + self.claim_timeout;
        let mut waiter = RaiseWaiter { gate: self, id: None };
        let mut registered = None;
        loop {
            self.owner_lock.check()?;
            let stamp = FileStamp::at(&self.path);
            let step = self.state().poll(stamp, Instant::now(), presented, request, &mut waiter.id);
            match step {
                GateStep::Admitted(id) => {
                    return Ok(Some(InFlight::new(self, id, presented.number, request.sequence())));
                }
                GateStep::Claimed => return Ok(None),
                GateStep::Refused(refusal) => return Err(refusal.into()),
                GateStep::AlreadyApplied { last } => return Err(GateRejection::AlreadyApplied { last }),
                GateStep::Unknown => return Err(GateRejection::Unknown),
                GateStep::Execute(op) => {
                    if let Some(in_flight) = self.execute(op, token.to_owned(), presented).await? {
                        return Ok(Some(in_flight));
                    }
                }
                GateStep::Wait(until) => {
                    // Register for notifications before the next poll, so that no change in between is missed.
                    let Some(notified) = registered.take() else {
                        let mut notified = Box::pin(self.changed.notified());
                        notified.as_mut().enable();
                        registered = Some(notified);
                        continue;
                    };
                    let next = until.map_or(deadline, |until| until.min(deadline));
                    if timeout_at(next, notified).await.is_err() && Instant::now() >= deadline {
                        return Err(self.blocked());
                    }
                }
            }
        }
    }

    /// Executes an operation on the mark file. It completes even if the caller is dropped.
    async fn execute(
        self: &Arc<Self>,
        op: MarkLogOp,
        token: String,
        presented: PresentedToken,
    ) -> Result<Option<InFlight>, Error> {
        let gate = self.clone();
        let stored = tokio::task::spawn_blocking(move || gate.execute_blocking(op, &token, presented)).await;
        stored.map_err(|error| Error::Storage(Box::new(error)))?
    }

    fn execute_blocking(
        self: &Arc<Self>,
        op: MarkLogOp,
        token: &str,
        presented: PresentedToken,
    ) -> Result<Option<InFlight>, Error> {
        let mut mark_log = self.mark_log.lock().unwrap_or_else(PoisonError::into_inner);
        let result = match op {
            MarkLogOp::Read => Ok(()),
            MarkLogOp::Raise => mark_log.raise(token).map(drop),
            MarkLogOp::Begin => mark_log.record_begun(token),
            MarkLogOp::Forward(sequence) => mark_log.record_forwarded(token, sequence),
        };
        // Take the stamp first: the next poll then notices a write that comes after it.
        let stamp = mark_log.stamp();
        let mark = mark_log.mark();
        drop(mark_log);
        let mut state = self.state();
        state.busy = false;
        state.begun |= result.is_ok() && op == MarkLogOp::Begin;
        let updated = update_mark(&mut state, stamp, mark);
        match op {
            MarkLogOp::Read => state.followed_incarnation = None,
            MarkLogOp::Raise if result.is_ok() => state.followed_incarnation = Some(presented.incarnation),
            _ => {}
        }
        let mut in_flight = None;
        if let (Ok(()), MarkLogOp::Forward(sequence)) = (&result, op) {
            let id = state.forwarded(Instant::now(), presented.number, sequence);
            in_flight = Some(InFlight::new(self, id, presented.number, Some(sequence)));
        }
        drop(state);
        self.changed.notify_waiters();
        result.and(updated)?;
        Ok(in_flight)
    }

    fn store_applied(&self, token: &str, sequence: u64) {
        let mut mark_log = self.mark_log.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = mark_log.record_applied(token, sequence);
        let stamp = mark_log.stamp();
        let mark = mark_log.mark();
        drop(mark_log);
        let mut state = self.state();
        if !state.busy {
            let _ = update_mark(&mut state, stamp, mark);
        }
    }

    /// Number of requests in flight, how long an unknown outcome still blocks higher tokens, and the mark.
    pub(super) fn status(&self) -> (usize, Duration, Mark) {
        let state = self.state();
        let (in_flight, unknown) = state.status(Instant::now());
        (in_flight, unknown, state.mark)
    }

    /// Records at shutdown that all outcomes are known, so that the next process need not wait. Returns false if one is not.
    pub(super) fn record_settled(&self) -> Result<bool, Error> {
        let (in_flight, unknown, _) = self.status();
        if in_flight > 0 || !unknown.is_zero() {
            return Ok(false);
        }
        self.mark_log.lock().unwrap_or_else(PoisonError::into_inner).record_settled()?;
        self.state().begun = false;
        Ok(true)
    }

    fn blocked(&self) -> GateRejection {
        let (in_flight, unknown, _) = self.status();
        GateRejection::Blocked { in_flight, retry_after: unknown.max(Duration::from_millis(100)) }
    }

    fn state(&self) -> MutexGuard<'_, GateState> {
        // A method of the state does not panic midway, so a poisoned lock still protects a consistent state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Updates the state from the mark file. If the mark cannot be read, it is lost (F7), and the next poll reads it again.
fn update_mark(
    state: &mut GateState,
    stamp: FileStamp,
    (mark, sealed): (Result<Mark, Error>, bool),
) -> Result<(), Error> {
    state.sealed |= sealed;
    (state.mark, state.loss, state.stamp) = match mark {
        Ok(mark) => (mark, MarkLoss::Unreadable, stamp),
        Err(Error::Refused(FenceRefusal::MarkLost(loss))) => (Mark::Lost, loss, stamp),
        Err(error) => {
            (state.mark, state.loss, state.stamp) = (Mark::Lost, MarkLoss::Unreadable, FileStamp::NONE);
            return Err(error);
        }
    };
    Ok(())
}

/// A request that may wait to raise the mark. Dropping it cancels the wait.
struct RaiseWaiter<'a> {
    gate: &'a Gate,
    id: Option<u64>,
}

impl Drop for RaiseWaiter<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.gate.state().cancel_raise(id);
            self.gate.changed.notify_waiters();
        }
    }
}

/// A request in flight. Before it is forwarded, it can be dropped without effect. After that its outcome is unknown until
/// [`InFlight::set_outcome`] is called.
#[derive(Debug)]
pub(super) struct InFlight {
    gate: Arc<Gate>,
    id: u64,
    pub(super) presented: Number,
    sequence: Option<(Number, u64)>,
    outcome: Mutex<RequestOutcome>,
    pub(super) until: Instant,
}

impl InFlight {
    fn new(gate: &Arc<Gate>, id: u64, presented: Number, sequence: Option<u64>) -> Self {
        let sequence = sequence.map(|sequence| (presented, sequence));
        let until = Instant::now() + gate.max_request_time;
        Self { gate: gate.clone(), id, presented, sequence, outcome: Mutex::new(RequestOutcome::NotApplied), until }
    }

    /// Records durably that the request was applied, if it has a sequence. If this fails, the outcome is unknown after a crash.
    pub(super) async fn record_applied(&self, token: &str) {
        let Some((_, sequence)) = self.sequence else { return };
        let (gate, token) = (self.gate.clone(), token.to_owned());
        let recorded = tokio::task::spawn_blocking(move || gate.store_applied(&token, sequence));
        let _ = recorded.await;
    }

    /// Sets the outcome that is known so far.
    pub(super) fn set_outcome(&self, outcome: RequestOutcome) {
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = outcome;
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let outcome = *self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        self.gate.state().leave(Instant::now(), self.id, outcome, self.sequence);
        self.gate.changed.notify_waiters();
    }
}
