//! How long ago leases were renewed. The remaining time does not say it: it also ends with the longest hold, the progress window or a
//! veto.

use std::collections::BTreeMap;

use leasehold_wire::v1;

/// Milliseconds since the last renewal, by lease id.
#[derive(Clone, Debug, Default)]
pub struct RenewalAges {
    ages: BTreeMap<u64, u64>,
}

impl RenewalAges {
    /// The ages of listed leases.
    pub fn new(leases: &[v1::ListedLease]) -> Self {
        let age = |listed: &v1::ListedLease| Some((listed.lease.as_ref()?.lease, listed.silent_ms));
        Self { ages: leases.iter().filter_map(age).collect() }
    }

    /// Milliseconds since a lease was renewed; none if it has ended meanwhile.
    pub fn of(&self, lease: &v1::LeaseView) -> Option<u64> {
        self.ages.get(&lease.lease).copied()
    }

    /// Whether nothing renewed a lease for half of its ttl. A lease without a ttl lives with its session.
    pub fn is_overdue(&self, lease: &v1::LeaseView) -> bool {
        lease.ttl_ms.zip(self.of(lease)).is_some_and(|(ttl, age)| age.saturating_mul(2) > ttl)
    }
}
