//! Metrics hooks: callbacks for what happens to a client's leases.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::holder::Loss;

use crate::Error;

/// Callbacks for metrics. Every method has an empty default.
///
/// They are called on the thread that renews all leases and must return quickly. A panic is caught and logged.
pub trait MetricsHook: Send + Sync {
    /// A lease was granted, `after` the request was submitted.
    fn granted(&self, resource: &str, after: Duration) {
        let _ = (resource, after);
    }

    /// A batch of `count` renewals was answered, `after` it was sent.
    fn renewed(&self, count: usize, after: Duration) {
        let _ = (count, after);
    }

    /// Work under a lease had to stop: its local deadline passed.
    fn suspended(&self, resource: &str) {
        let _ = resource;
    }

    /// Work under a suspended lease may continue.
    fn resumed(&self, resource: &str) {
        let _ = resource;
    }

    /// The grantor ended a lease.
    fn lost(&self, resource: &str, loss: Loss) {
        let _ = (resource, loss);
    }

    /// A lease was released.
    fn released(&self, resource: &str) {
        let _ = resource;
    }

    /// The session stream is established; `resumed` says whether the session continues.
    fn connected(&self, resumed: bool) {
        let _ = resumed;
    }

    /// The session stream broke.
    fn disconnected(&self) {}

    /// An attempt to connect failed. The client tries again, unless the error is [permanent](Error::is_permanent).
    fn connect_failed(&self, error: &Error) {
        let _ = error;
    }
}

/// A program's hook. A panic in it must not end the thread that renews all leases.
pub(crate) struct MetricsSink(pub(crate) Option<Arc<dyn MetricsHook>>);

impl MetricsSink {
    pub(crate) fn emit(&self, call: impl FnOnce(&dyn MetricsHook)) {
        if let Some(hook) = &self.0
            && catch_unwind(AssertUnwindSafe(|| call(&**hook))).is_err()
        {
            tracing::error!("metrics hook panicked; leases are still renewed");
        }
    }
}
