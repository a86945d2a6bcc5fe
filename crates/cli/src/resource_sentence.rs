//! Why a resource is held or free, in the words of the dashboard.

use leasehold::json::ResourceBody;
use leasehold_server::dashboard::hold_reason::{FirstLease, HoldReason};

/// One sentence on a resource at this grantor time.
pub fn hold_sentence(resource: &ResourceBody, time_ms: u64) -> String {
    let first = resource.leases.first().map(|lease| FirstLease {
        holder: &lease.holder,
        held_ms: time_ms.saturating_sub(lease.granted_ms),
        ttl_ms: lease.ttl_ms,
        remaining_ms: lease.remaining_ms,
        draining: lease.draining.as_deref().map(|reason| (reason, lease.drain_ms.unwrap_or(0))),
    });
    let reason = HoldReason {
        held: resource.held,
        first,
        waiters: resource.waiters,
        held_for_operator: resource.held_for_operator,
        confirmed: resource.confirmed,
        capacity: resource.capacity,
    };
    reason.sentence()
}
