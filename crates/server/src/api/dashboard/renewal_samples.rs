//! Renewals that were observed while someone looked at a resource. Renewals are in no log, so the timeline shows only these.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold_wire::v1;

use crate::dashboard::RenewalAges;
use crate::dashboard::timeline::ObservedRenewal;

/// Resources whose renewals are kept; the one that was looked at longest ago makes room.
const RESOURCES: usize = 64;
/// Renewals of a resource.
const RENEWALS: usize = 600;
/// Two observations of one renewal differ by at most this many milliseconds.
const SAME_MS: u64 = 250;

/// Observed renewals by resource.
#[derive(Debug, Default)]
pub struct RenewalSamples {
    resources: Mutex<BTreeMap<Box<str>, ResourceRenewals>>,
}

#[derive(Debug, Default)]
struct ResourceRenewals {
    seen_ms: u64,
    renewals: VecDeque<ObservedRenewal>,
}

impl RenewalSamples {
    fn resources(&self) -> MutexGuard<'_, BTreeMap<Box<str>, ResourceRenewals>> {
        // A thread that panicked while it held the lock left whole observations.
        self.resources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds what a view of a resource shows, and returns all renewals that were observed.
    pub fn observe(&self, view: &v1::ResourceView, ages: &RenewalAges, now_ms: u64) -> Vec<ObservedRenewal> {
        let mut resources = self.resources();
        if !resources.contains_key(view.resource.as_str()) && resources.len() == RESOURCES {
            let oldest = resources.iter().min_by_key(|(_, one)| one.seen_ms).map(|(name, _)| name.clone());
            oldest.and_then(|name| resources.remove(&name));
        }
        let one = resources.entry(view.resource.as_str().into()).or_default();
        one.seen_ms = now_ms;
        for lease in &view.leases {
            let Some(age) = ages.of(lease).filter(|_| lease.ttl_ms.is_some()) else { continue };
            let at_ms = now_ms.saturating_sub(age);
            let token = lease.token_number;
            let last = one.renewals.iter().rev().find(|renewal| renewal.token == token);
            if last.is_some_and(|last| at_ms <= last.at_ms + SAME_MS) {
                continue;
            }
            if one.renewals.len() == RENEWALS {
                one.renewals.pop_front();
            }
            one.renewals.push_back(ObservedRenewal { token, at_ms });
        }
        one.renewals.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Observes a resource whose lease was renewed `age_ms` ago and has little time left.
    fn observe(samples: &RenewalSamples, resource: &str, age_ms: u64, now_ms: u64) -> Vec<ObservedRenewal> {
        let lease = v1::LeaseView { token_number: 7, ttl_ms: Some(10_000), remaining_ms: 50, ..Default::default() };
        let listed = v1::ListedLease { lease: Some(lease.clone()), silent_ms: age_ms, ..Default::default() };
        let view = v1::ResourceView { resource: resource.into(), leases: vec![lease], ..Default::default() };
        samples.observe(&view, &RenewalAges::new(&[listed]), now_ms)
    }

    #[test]
    fn one_renewal_is_counted_once() {
        let samples = RenewalSamples::default();
        observe(&samples, "a", 0, 100_000);
        observe(&samples, "a", 1_010, 101_000);
        let seen = observe(&samples, "a", 100, 105_000);
        assert_eq!(seen.iter().map(|one| one.at_ms).collect::<Vec<_>>(), [100_000, 104_900]);
    }

    #[test]
    fn resources_and_renewals_are_bounded() {
        let samples = RenewalSamples::default();
        for at in 0..RESOURCES as u64 + 10 {
            observe(&samples, &at.to_string(), 0, at);
        }
        assert_eq!(samples.resources().len(), RESOURCES);
        assert!(!samples.resources().contains_key("0"), "the oldest makes room");
        for at in 0..RENEWALS as u64 + 10 {
            observe(&samples, "x", 0, 1_000_000 + at * 1_000);
        }
        assert_eq!(observe(&samples, "x", 10_000, 1_000_000).len(), RENEWALS);
    }
}
