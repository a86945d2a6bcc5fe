//! Charters: the declared terms of leases under a prefix, which the grantor enforces and [`check`] checks for completeness.

mod completeness;
mod encode;
#[cfg(test)]
mod fixtures;
mod question;
mod table;
mod terms;
mod validate;
mod warnings;

pub use completeness::{AnswerSource, CharterFinding, CheckAnswer, check, is_complete};
pub use question::{Axis, Question};
pub use table::{Charters, TooManyCharters};
pub use terms::{
    AfterRevocation, AtExpiry, HandoffMode, HandoffTerms, OnDeadlock, Payload, Preemption, RenewalProof, StartsFrom,
    Target, TargetMode, TokenOnRenewal, Uncommitted,
};
pub use validate::CharterError;

use std::collections::BTreeMap;

use crate::lease::Validity;
use crate::limits::TTL_MIN;

/// The terms of every lease under one prefix. An unanswered term is `None`, and [`check`] reports it.
///
/// The default applies to a resource without a charter. It uses the safe choice for every term (`unwrap_or_default`
/// of an absent one) and answers almost no question.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Charter {
    /// What the lease is for.
    pub payload: Option<Payload>,
    /// What the validity of a lease must rest on.
    pub validity: Option<Validity>,
    /// Who observes that validity, and when a holder's view can differ.
    pub observer: Option<String>,
    /// The cost of two simultaneous holders, and whether the validity is worth it.
    pub price_of_failure: Option<String>,
    /// What the holder may change, item by item.
    pub authority: Vec<String>,
    /// Where the holder writes.
    pub targets: Vec<Target>,
    /// What a renewal proves.
    pub renewal: Option<RenewalProof>,
    /// Shortest ttl, in milliseconds; `None` for [`TTL_MIN`].
    pub ttl_min_ms: Option<u64>,
    /// Longest ttl, in milliseconds; `None` for the cluster's limit.
    pub ttl_max_ms: Option<u64>,
    /// Longest hold over all renewals, in milliseconds; `None` leaves it to each request.
    pub max_hold_ms: Option<u64>,
    /// How a lease is handed off.
    pub handoff: Option<HandoffTerms>,
    /// What happens to the predecessor's uncommitted work.
    pub uncommitted: Option<Uncommitted>,
    /// Where a successor continues.
    pub starts_from: Option<StartsFrom>,
    /// What happens when a lease expires.
    pub at_expiry: AtExpiry,
    /// What happens after a revocation.
    pub after_revocation: AfterRevocation,
    /// How a deadlock is resolved.
    pub deadlock: OnDeadlock,
    /// Whether a waiter may preempt the holder.
    pub preemption: Preemption,
    /// Whether a renewal changes the token.
    pub token_on_renewal: TokenOnRenewal,
    /// Units of each resource; `None` for one, or for the capacity set by command. Reducing it ends no lease (C3).
    pub capacity: Option<u32>,
}

impl Charter {
    /// Shortest and longest ttl under this charter, in milliseconds.
    pub fn ttl_bounds(&self, cluster_max_ttl: u64) -> (u64, u64) {
        let max = self.ttl_max_ms.map_or(cluster_max_ttl, |max| max.min(cluster_max_ttl));
        (self.ttl_min_ms.unwrap_or(TTL_MIN), max)
    }

    /// The targets that have a reporter, with its identity, by the name of the target.
    pub fn reporters(&self) -> BTreeMap<&str, &str> {
        self.targets.iter().filter_map(|target| Some((target.name.as_str(), target.reporter.as_deref()?))).collect()
    }

    /// The window within which work must progress, if renewals must prove progress (G1).
    pub fn progress_window(&self) -> Option<u64> {
        match self.renewal {
            Some(RenewalProof::Progress { window_ms }) => Some(window_ms),
            Some(RenewalProof::Pulse) | None => None,
        }
    }
}

/// Whether a text contains words; a lone dash or question mark is no answer.
fn has_words(text: &str) -> bool {
    text.chars().any(char::is_alphanumeric)
}

/// The names of targets in backticks, for messages.
fn quoted_names<'a>(targets: impl Iterator<Item = &'a Target>) -> String {
    targets.map(|target| format!("`{}`", target.name)).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charter_narrows_the_clusters_ttl_and_never_widens_it() {
        assert_eq!(Charter::default().ttl_bounds(60_000), (TTL_MIN, 60_000));
        let narrow = Charter { ttl_min_ms: Some(1_000), ttl_max_ms: Some(5_000), ..Charter::default() };
        assert_eq!(narrow.ttl_bounds(60_000), (1_000, 5_000));
        let wide = Charter { ttl_max_ms: Some(90_000), ..Charter::default() };
        assert_eq!(wide.ttl_bounds(60_000), (TTL_MIN, 60_000));
    }

    #[test]
    fn only_a_charter_that_requires_progress_has_a_window() {
        assert_eq!(Charter::default().progress_window(), None);
        let pulse = Charter { renewal: Some(RenewalProof::Pulse), ..Charter::default() };
        assert_eq!(pulse.progress_window(), None);
        let progress = Charter { renewal: Some(RenewalProof::Progress { window_ms: 700 }), ..Charter::default() };
        assert_eq!(progress.progress_window(), Some(700));
    }
}
