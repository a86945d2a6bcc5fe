//! Settings of the session that holds a client's leases.

use std::time::Duration;

use leasehold_core::holder::ClockDrift;
use leasehold_core::trace_context::TraceContext;

/// Settings of a client's session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionConfig {
    pub(crate) holder: Option<String>,
    pub(crate) ttl: Duration,
    pub(crate) clock_drift: ClockDrift,
    /// The trace that requests belong to which name none.
    pub(crate) trace: Option<TraceContext>,
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self { holder: None, ttl: Duration::from_secs(30), clock_drift: ClockDrift::default(), trace: None }
    }
}

impl SessionConfig {
    /// The configured holder name, or one with the process id.
    pub(crate) fn holder_name(&self) -> String {
        self.holder.clone().unwrap_or_else(|| format!("process-{}", std::process::id()))
    }
}
