//! Why a resource is held or free, in the words of the dashboard.

use std::collections::BTreeMap;

use futures::TryStreamExt;
use leasehold::json::ResourceBody;
use leasehold::{Client, Error};
use leasehold_server::dashboard::hold_reason::{FirstLease, HoldReason};

/// Milliseconds since the last renewal, by lease id. The remaining time does not say it: it also ends with the longest hold.
pub type AgesByLease = BTreeMap<String, u64>;

/// How long ago the first leases of a resource were renewed.
pub async fn renewal_ages(client: &Client, resource: &str) -> Result<AgesByLease, Error> {
    let page = client.list_leases(resource).try_next().await?;
    let listed = page.map(|page| page.leases).unwrap_or_default();
    // Resources below this one are listed too.
    let own = listed.into_iter().filter(|listed| listed.lease.resource == resource);
    Ok(own.map(|listed| (listed.lease.lease, listed.silent_ms)).collect())
}

/// One sentence on a resource at this grantor time.
pub fn hold_sentence(resource: &ResourceBody, ages: &AgesByLease, time_ms: u64) -> String {
    let first = resource.leases.first().map(|lease| FirstLease {
        holder: &lease.holder,
        held_ms: time_ms.saturating_sub(lease.granted_ms),
        ttl_ms: lease.ttl_ms,
        silent_ms: ages.get(&lease.lease).copied(),
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
