//! What a program may count about its leases; every hook is called from the holder's thread and must return at once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::holder::Loss;

/// Hooks for metrics. Each does nothing unless it is written.
pub trait Meter: Send + Sync {
    /// A lease was granted, after so long.
    fn granted(&self, resource: &str, after: Duration) {
        let _ = (resource, after);
    }

    /// So many renewals were answered together, after so long.
    fn renewed(&self, count: usize, after: Duration) {
        let _ = (count, after);
    }

    /// Work under a lease had to stop: its local deadline passed.
    fn suspended(&self, resource: &str) {
        let _ = resource;
    }

    /// Work under a lease may go on.
    fn resumed(&self, resource: &str) {
        let _ = resource;
    }

    /// A lease is over by the grantor's word.
    fn lost(&self, resource: &str, loss: Loss) {
        let _ = (resource, loss);
    }

    /// A lease was given back.
    fn released(&self, resource: &str) {
        let _ = resource;
    }

    /// The stream stands; whether the session went on.
    fn connected(&self, resumed: bool) {
        let _ = resumed;
    }

    /// The stream broke.
    fn disconnected(&self) {}
}

/// A program's hooks, kept from taking the holder's thread, and every lease with it, down when they panic.
pub(crate) struct Hooks(pub(crate) Option<Arc<dyn Meter>>);

impl Hooks {
    pub(crate) fn tell(&self, told: impl FnOnce(&dyn Meter)) {
        if let Some(meter) = &self.0
            && catch_unwind(AssertUnwindSafe(|| told(&**meter))).is_err()
        {
            tracing::error!("a hook for metrics panicked; the leases go on");
        }
    }
}
