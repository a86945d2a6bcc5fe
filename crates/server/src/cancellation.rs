//! Callers that disconnect before they receive their reply (W3).
//!
//! A request with a request id is never cancelled: its caller retries and receives the stored reply. Without an id no one can
//! retry, so nothing may stay behind: a wait is withdrawn, and a grant is released. A disconnect drops the future of the handler,
//! and with it one of two guards:
//!
//! ```text
//!   Queued ────────────── CancelOnDrop dropped ───────▶ Cancelled      the driver discards the request
//!     │ CallerState::register
//!     ▼
//!   Registered(slot) ──── CancelOnDrop dropped ───────▶ abandon_wait   the driver withdraws the wait
//!     │ final reply sent
//!     ▼
//!   Replied ───────────── UndeliveredGrant dropped ───▶ return_grants  the driver releases the leases
//!     │ DurableReply::delivered
//!     ▼
//!   Delivered
//! ```
//!
//! Cancellations go to the next turn through a [`CancellationSink`], the request queue. A unary wait without a session has a third
//! protection: the API opens a session for it and closes that session with the call.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_core::command::{Answer, Grant, LeaseRef};
use leasehold_core::ids::SessionId;

/// Receives cancellations for the next turn. A server that shuts down drops them: waits end with it, and leases expire.
pub trait CancellationSink: Send + Sync {
    /// The caller of the wait registered in `slot` has disconnected.
    fn abandon_wait(&self, session: SessionId, slot: u64);

    /// The caller that these leases were granted to has disconnected.
    fn return_grants(&self, grants: Vec<LeaseRef<'static>>);
}

/// Cancellations that wait for a turn. Each ends an admitted request, so the limit on requests bounds them.
#[derive(Debug, Default)]
pub struct Cancellations {
    /// Waits whose callers have disconnected: session and slot of the pending reply.
    pub abandoned_waits: Vec<(SessionId, u64)>,
    /// Leases granted to callers that have disconnected.
    pub undelivered_grants: Vec<LeaseRef<'static>>,
}

impl Cancellations {
    /// Whether there is nothing to cancel.
    pub fn is_empty(&self) -> bool {
        self.abandoned_waits.is_empty() && self.undelivered_grants.is_empty()
    }

    /// Moves all of `other` to the end of this list.
    pub fn append(&mut self, other: &mut Self) {
        self.abandoned_waits.append(&mut other.abandoned_waits);
        self.undelivered_grants.append(&mut other.undelivered_grants);
    }
}

/// State of a cancellable caller, shared by its handler and the driver: queued, registered in a slot, or cancelled.
#[derive(Debug)]
pub struct CallerState(AtomicU64);

impl CallerState {
    const QUEUED: u64 = u64::MAX;
    const CANCELLED: u64 = u64::MAX - 1;

    /// Records the slot of the pending reply. False if the caller has disconnected.
    pub fn register(&self, slot: u64) -> bool {
        self.0.compare_exchange(Self::QUEUED, slot, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Records that the caller has disconnected. Returns the slot if the request was registered already.
    pub fn cancel(&self) -> Option<u64> {
        self.0.compare_exchange(Self::QUEUED, Self::CANCELLED, Ordering::AcqRel, Ordering::Acquire).err()
    }
}

impl Default for CallerState {
    fn default() -> Self {
        Self(AtomicU64::new(Self::QUEUED))
    }
}

/// Guard in the handler of a wait: cancels the wait when it is dropped before [`CancelOnDrop::disarm`].
pub struct CancelOnDrop {
    sink: Arc<dyn CancellationSink>,
    session: SessionId,
    /// None once it is disarmed.
    state: Option<Arc<CallerState>>,
}

impl CancelOnDrop {
    /// Guards a wait in `session`.
    pub fn new(sink: Arc<dyn CancellationSink>, session: SessionId, state: Arc<CallerState>) -> Self {
        Self { sink, session, state: Some(state) }
    }

    /// The reply has arrived, so there is nothing to cancel.
    pub fn disarm(mut self) {
        self.state = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(slot) = self.state.take().and_then(|state| state.cancel()) {
            self.sink.abandon_wait(self.session, slot);
        }
    }
}

/// Guard in a reply: releases the granted leases when it is dropped before [`UndeliveredGrant::delivered`].
pub struct UndeliveredGrant {
    sink: Arc<dyn CancellationSink>,
    grants: Vec<LeaseRef<'static>>,
}

impl UndeliveredGrant {
    /// Guards the leases that an answer grants; `None` if it grants nothing.
    pub fn of(answer: &Answer, sink: &Arc<dyn CancellationSink>) -> Option<Self> {
        let lease = |grant: &Grant| LeaseRef::by_id(grant.lease, grant.number);
        let grants = match answer {
            Answer::Granted(grant) => vec![lease(grant)],
            Answer::GrantedAll(grants) => grants.iter().map(lease).collect(),
            _ => return None,
        };
        Some(Self { sink: sink.clone(), grants })
    }

    /// The caller has received the reply and keeps the leases.
    pub fn delivered(mut self) {
        self.grants.clear();
    }
}

impl Drop for UndeliveredGrant {
    fn drop(&mut self) {
        if !self.grants.is_empty() {
            self.sink.return_grants(std::mem::take(&mut self.grants));
        }
    }
}

impl fmt::Debug for UndeliveredGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UndeliveredGrant").field(&self.grants).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_is_either_cancelled_in_the_queue_or_cancelled_in_its_slot() {
        let state = CallerState::default();
        assert_eq!(state.cancel(), None);
        assert!(!state.register(7));
        let state = CallerState::default();
        assert!(state.register(7));
        assert_eq!(state.cancel(), Some(7));
    }
}
