//! Reads how long ago the leases of a page were renewed.

use leasehold_core::grantor::{LeaseFilter, Query, QueryAnswer};
use leasehold_wire::{lease_id, listed_lease, v1};

use super::super::Api;
use crate::dashboard::RenewalAges;

/// Leases of one page; the others are shown without.
const MAX_LEASES: usize = 500;

/// How long ago leases were renewed, as far as they are still held.
pub async fn renewal_ages(
    api: &Api,
    leases: impl IntoIterator<Item = &v1::LeaseView>,
) -> Result<RenewalAges, v1::Problem> {
    let leases: Vec<_> = leases.into_iter().take(MAX_LEASES).map(|lease| lease_id(lease.lease)).collect();
    if leases.is_empty() {
        return Ok(RenewalAges::default());
    }
    let query = Query::LeasesWithIds { filter: LeaseFilter::default(), leases };
    let convert = |answer: QueryAnswer<'_>| match answer {
        QueryAnswer::ListedLeases(leases, _) => Some(leases),
        _ => None,
    };
    let (found, _) = api.query_at("list_leases", 0, query, convert).await?;
    Ok(RenewalAges::new(&found.iter().map(listed_lease).collect::<Vec<_>>()))
}
