//! Renewals that were observed while someone looked at a resource. Renewals are in no log, so the timeline shows only these.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold_wire::v1;

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
    pub fn observe(&self, view: &v1::ResourceView, now_ms: u64) -> Vec<ObservedRenewal> {
        let mut resources = self.resources();
        if !resources.contains_key(view.resource.as_str()) && resources.len() == RESOURCES {
            let oldest = resources.iter().min_by_key(|(_, one)| one.seen_ms).map(|(name, _)| name.clone());
            oldest.and_then(|name| resources.remove(&name));
        }
        let one = resources.entry(view.resource.as_str().into()).or_default();
        one.seen_ms = now_ms;
        for lease in &view.leases {
            let Some(ttl) = lease.ttl_ms else { continue };
            let at_ms = now_ms.saturating_sub(ttl.saturating_sub(lease.remaining_ms));
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

    fn view(resource: &str, remaining_ms: u64) -> v1::ResourceView {
        let lease = v1::LeaseView { token_number: 7, ttl_ms: Some(10_000), remaining_ms, ..Default::default() };
        v1::ResourceView { resource: resource.into(), leases: vec![lease], ..Default::default() }
    }

    #[test]
    fn one_renewal_is_counted_once() {
        let samples = RenewalSamples::default();
        samples.observe(&view("a", 10_000), 100_000);
        samples.observe(&view("a", 8_990), 101_000);
        let seen = samples.observe(&view("a", 9_900), 105_000);
        assert_eq!(seen.iter().map(|one| one.at_ms).collect::<Vec<_>>(), [100_000, 104_900]);
    }

    #[test]
    fn resources_and_renewals_are_bounded() {
        let samples = RenewalSamples::default();
        for at in 0..RESOURCES as u64 + 10 {
            samples.observe(&view(&at.to_string(), 10_000), at);
        }
        assert_eq!(samples.resources().len(), RESOURCES);
        assert!(!samples.resources().contains_key("0"), "the oldest makes room");
        for at in 0..RENEWALS as u64 + 10 {
            samples.observe(&view("x", 10_000), 1_000_000 + at * 1_000);
        }
        assert_eq!(samples.observe(&view("x", 0), 1_000_000).len(), RENEWALS);
    }
}
