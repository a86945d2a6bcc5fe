//! Leases that were requested together: the caller receives all of them, or none.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use leasehold_core::time::Instant;

use super::WorkerHandle;
use super::job_queue::ReplySlot;
use super::job_result::Response;
use super::owned_lease::OwnedLease;
use crate::Error;

/// Grants of one acquire request that the caller has not received yet.
pub(super) struct PendingGrants {
    pub worker: Weak<WorkerHandle>,
    pub timeout_at: Instant,
    pub submitted_at: Instant,
    collected: Mutex<Option<CollectedGrants>>,
}

struct CollectedGrants {
    slot: ReplySlot,
    leases: Vec<Option<OwnedLease>>,
}

impl PendingGrants {
    pub(super) fn new(
        slot: ReplySlot,
        worker: Weak<WorkerHandle>,
        timeout_at: Instant,
        submitted_at: Instant,
        count: usize,
    ) -> Arc<Self> {
        let leases = std::iter::repeat_with(|| None).take(count).collect();
        let collected = Mutex::new(Some(CollectedGrants { slot, leases }));
        Arc::new(Self { worker, timeout_at, submitted_at, collected })
    }

    /// Adds a lease that may act. The last one completes the request. If the request was rejected meanwhile, or its caller is
    /// gone, they are dropped, which releases them.
    pub(super) fn add(&self, index: usize, lease: OwnedLease) {
        let mut guard = self.collected.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(collected) = guard.as_mut() else {
            return;
        };
        collected.leases[index] = Some(lease);
        if collected.leases.iter().all(Option::is_some)
            && let Some(CollectedGrants { slot, leases }) = guard.take()
        {
            slot.reply.send(Ok(Response::Leases(leases.into_iter().flatten().collect())));
        }
    }

    /// One lease cannot be acquired, so none is.
    pub(super) fn reject(&self, error: Error) {
        let collected = self.collected.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(CollectedGrants { slot, leases }) = collected {
            drop(leases);
            slot.reply.send(Err(error));
        }
    }
}
