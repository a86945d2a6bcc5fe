//! An owned lease: dropping it releases the lease.

use std::fmt;
use std::sync::Arc;

use super::WorkerHandle;
use super::lease_shared::LeaseShared;

/// A granted lease with its one owner. A guard contains it; before that, the reply to an acquire request does.
pub(crate) struct OwnedLease {
    pub(crate) lease: Arc<LeaseShared>,
    pub(crate) worker: Arc<WorkerHandle>,
    release_on_drop: bool,
}

impl OwnedLease {
    pub(super) const fn new(lease: Arc<LeaseShared>, worker: Arc<WorkerHandle>) -> Self {
        Self { lease, worker, release_on_drop: true }
    }

    /// The lease is released in another way; dropping this does nothing.
    pub(crate) fn disarm(&mut self) {
        self.release_on_drop = false;
    }
}

impl Drop for OwnedLease {
    fn drop(&mut self) {
        if self.release_on_drop {
            self.worker.release_detached(self.lease.clone());
        }
    }
}

impl fmt::Debug for OwnedLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnedLease").field(&self.lease).finish()
    }
}
